/* energy.c - RAPL counters of a powercap folder, added up. */
#include "energy.h"

#include <stdio.h>
#include <string.h>

/* First line of FOLDER/intel-rapl:ZONE/NAME, without its end. */
static bool read_line(char *out, int size, const energy *e, uint32_t zone, const char *name) {
    char path[OMM_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/intel-rapl:%u/%s", e->folder, zone, name);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const bool got = fgets(out, size, f) != NULL;
    fclose(f);
    if (got) out[strcspn(out, "\n")] = 0;
    return got;
}

static bool read_number(uint64_t *out, const energy *e, uint32_t zone, const char *name) {
    char text[32];
    if (!read_line(text, (int)sizeof text, e, zone, name) || !text[0]) return false;
    uint64_t value = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || value > (UINT64_MAX - 9) / 10) return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *out = value;
    return true;
}

void energy_begin(energy *e, const char *folder) {
    *e = (energy){.known = true};
    snprintf(e->folder, sizeof e->folder, "%s", folder);
    for (uint32_t zone = 0; zone < ENERGY_PACKAGES_MAX; zone++) {
        char name[64];
        if (!read_line(name, (int)sizeof name, e, zone, "name")) continue;
        if (strncmp(name, "package", strlen("package")) != 0) continue;
        const uint32_t at = e->count++;
        e->zones[at] = zone;
        if (!read_number(&e->last_uj[at], e, zone, "energy_uj") ||
            !read_number(&e->ranges_uj[at], e, zone, "max_energy_range_uj") ||
            e->last_uj[at] > e->ranges_uj[at])
            e->known = false; /* a part of the truth is none */
    }
    if (!e->count) e->known = false;
}

void energy_sample(energy *e) {
    for (uint32_t i = 0; e->known && i < e->count; i++) {
        uint64_t now = 0, used = 0;
        if (!read_number(&now, e, e->zones[i], "energy_uj") || now > e->ranges_uj[i]) {
            e->known = false;
            return;
        }
        used = now >= e->last_uj[i] ? now - e->last_uj[i] : e->ranges_uj[i] - e->last_uj[i] + now;
        e->joules += (double)used / 1e6;
        e->last_uj[i] = now;
    }
}
