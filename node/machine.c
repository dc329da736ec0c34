/* machine.c - see machine.h. */
#include "machine.h"

#include "omm/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256
#define NAME_BYTES 255        /* of an entry of a folder */
#define MILLI_MAX 150000      /* a sensor that says more is broken */
#define STAT_FIELDS_BEFORE 11 /* of /proc/self/stat between its name and utime */
#define ROUTE_UP 1u           /* RTF_UP */
#define ROUTE_REJECT 0x0200u  /* RTF_REJECT */

/* The first line of ROOT/FOLDER/ENTRY/NAME without its end; "" for what is not there. */
static bool read_line(char out[LINE_MAX_BYTES], const char *root, const char *folder,
                      const char *entry, const char *name) {
    char path[OMM_PATH_MAX];
    out[0] = '\0';
    const int size = snprintf(path, sizeof path, "%s%s/%s/%s", root, folder, entry, name);
    if (size < 0 || (size_t)size >= sizeof path) return false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    if (!fgets(out, LINE_MAX_BYTES, f)) out[0] = '\0';
    fclose(f);
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

static void set_name(char out[MACHINE_NAME_MAX], const char *text) {
    size_t size = strnlen(text, MACHINE_NAME_MAX - 1);
    memcpy(out, text, size);
    out[size] = '\0';
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* The next word of a line; `out` may be NULL.  False at its end. */
static bool take_word(char out[MACHINE_NAME_MAX], const char **at) {
    *at += strspn(*at, " \t\n");
    const size_t size = strcspn(*at, " \t\n");
    const size_t kept = size < MACHINE_NAME_MAX ? size : MACHINE_NAME_MAX - 1;
    if (out) {
        memcpy(out, *at, kept);
        out[kept] = '\0';
    }
    *at += size;
    return size > 0;
}

/* The next word, which must be a number. */
static bool take_number(uint64_t *out, const char **at, int base) {
    char word[MACHINE_NAME_MAX], *end = NULL;
    if (!take_word(word, at) || word[0] == '-') return false;
    *out = strtoull(word, &end, base);
    return *end == '\0';
}

/* Call `each` for the entries of ROOT/FOLDER, in no order. */
static void for_entries(const char *root, const char *folder,
                        void (*each)(void *ud, const char *root, const char *entry), void *ud) {
    char path[OMM_PATH_MAX];
    const int size = snprintf(path, sizeof path, "%s%s", root, folder);
    DIR *dir = size > 0 && (size_t)size < sizeof path ? opendir(path) : NULL;
    if (!dir) return;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.') each(ud, root, entry->d_name);
    closedir(dir);
}

/* ---- power ---- */

#define POWER "/sys/class/power_supply"

typedef struct power {
    bool discharging, unsaid, mains;
    char name[MACHINE_NAME_MAX];
} power;

static void look_at_supply(void *ud, const char *root, const char *entry) {
    power *p = ud;
    char type[LINE_MAX_BYTES], text[LINE_MAX_BYTES];
    (void)read_line(type, root, POWER, entry, "type");
    if (strcmp(type, "Battery") != 0 && strcmp(type, "UPS") != 0) {
        if (read_line(text, root, POWER, entry, "online") && text[0] == '1') p->mains = true;
        return;
    }
    if (read_line(text, root, POWER, entry, "scope") && strcmp(text, "Device") == 0) return;
    const bool is_said = read_line(text, root, POWER, entry, "status");
    const bool discharging = is_said && strcmp(text, "Discharging") == 0;
    if (!is_said || strcmp(text, "Unknown") == 0) p->unsaid = true;
    if (discharging) p->discharging = true;
    if (discharging || !p->name[0]) set_name(p->name, entry);
}

bool machine_on_battery(char name[MACHINE_NAME_MAX], const char *root) {
    power p = {0};
    for_entries(root, POWER, look_at_supply, &p);
    set_name(name, p.name);
    return p.discharging || (p.unsaid && !p.mains);
}

/* ---- heat ---- */

#define THERMAL "/sys/class/thermal"
#define HWMON "/sys/class/hwmon"

typedef struct heat {
    long milli, any_milli; /* of processors; of all zones; 0: none */
    char name[MACHINE_NAME_MAX], any_name[MACHINE_NAME_MAX];
} heat;

/* As drivers call the sensor of a processor. */
static bool is_processor(const char *type) {
    static const char *const names[] = {"x86_pkg_temp", "coretemp",    "k10temp", "zenpower",
                                        "cpu",          "soc_thermal", "soc-",    "TCPU"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (begins(type, names[i])) return true;
    return false;
}

static long plausible(const char *text) {
    const long milli = strtol(text, NULL, 10);
    return milli > 0 && milli < MILLI_MAX ? milli : 0;
}

static void take_heat(heat *h, long milli, const char *type) {
    if (milli > h->any_milli) {
        h->any_milli = milli;
        set_name(h->any_name, type);
    }
    if (is_processor(type) && milli > h->milli) {
        h->milli = milli;
        set_name(h->name, type);
    }
}

static void look_at_zone(void *ud, const char *root, const char *entry) {
    char type[LINE_MAX_BYTES], temp[LINE_MAX_BYTES];
    if (!begins(entry, "thermal_zone")) return; /* cooling_device0 */
    if (!read_line(type, root, THERMAL, entry, "type")) return;
    if (read_line(temp, root, THERMAL, entry, "temp")) take_heat(ud, plausible(temp), type);
}

static void look_at_monitor(void *ud, const char *root, const char *entry) {
    char type[LINE_MAX_BYTES], temp[LINE_MAX_BYTES];
    if (!read_line(type, root, HWMON, entry, "name") || !is_processor(type)) return;
    for (int i = 1; i <= 32; i++) { /* temp1 is the package where there is one */
        char name[32];
        (void)snprintf(name, sizeof name, "temp%d_input", i);
        if (read_line(temp, root, HWMON, entry, name)) take_heat(ud, plausible(temp), type);
    }
}

bool machine_heat(int *celsius, char name[MACHINE_NAME_MAX], const char *root) {
    heat h = {0};
    for_entries(root, THERMAL, look_at_zone, &h);
    for_entries(root, HWMON, look_at_monitor, &h);
    const bool is_named = h.milli > 0;
    *celsius = (int)((is_named ? h.milli : h.any_milli) / 1000);
    set_name(name, is_named ? h.name : h.any_name);
    return *celsius > 0;
}

/* ---- load ---- */

/* user nice system idle iowait irq softirq steal */
static bool read_all(machine_ticks *out, const char *line) {
    uint64_t t[8] = {0};
    int count = 0;
    char name[MACHINE_NAME_MAX];
    if (!take_word(name, &line) || strcmp(name, "cpu") != 0) return false;
    while (count < 8 && take_number(&t[count], &line, 10)) count++;
    if (count < 4) return false;
    out->busy = t[0] + t[1] + t[2] + t[5] + t[6];
    out->all = out->busy + t[3] + t[4] + t[7];
    return true;
}

/* PID (NAME) STATE, ten more fields, utime, stime: the name may hold anything, so from the last ")". */
static bool read_own(machine_ticks *out, const char *line) {
    const char *at = strrchr(line, ')');
    if (!at) return false;
    at++;
    for (int i = 0; i < STAT_FIELDS_BEFORE; i++)
        if (!take_word(NULL, &at)) return false;
    uint64_t user = 0, system = 0;
    if (!take_number(&user, &at, 10) || !take_number(&system, &at, 10)) return false;
    out->own = user + system;
    return true;
}

bool machine_ticks_read(machine_ticks *out, const char *root) {
    char all[LINE_MAX_BYTES], own[LINE_MAX_BYTES];
    *out = (machine_ticks){0};
    return read_line(all, root, "/proc", ".", "stat") &&
           read_line(own, root, "/proc", "self", "stat") && read_all(out, all) &&
           read_own(out, own);
}

/* ---- network ---- */

typedef struct route {
    char name[MACHINE_NAME_MAX];
    uint64_t metric;
    bool is_found;
} route;

static void take_route(route *r, const char *name, uint64_t metric) {
    if (r->is_found && metric >= r->metric) return;
    set_name(r->name, name);
    r->metric = metric;
    r->is_found = true;
}

static bool is_open(uint64_t flags) {
    return (flags & ROUTE_UP) && !(flags & ROUTE_REJECT);
}

/* Iface Destination Gateway Flags RefCnt Use Metric Mask ... */
static void read_route4(route *r, const char *line) {
    char name[MACHINE_NAME_MAX];
    uint64_t to = 0, flags = 0, metric = 0, mask = 0;
    if (take_word(name, &line) && take_number(&to, &line, 16) && take_word(NULL, &line) &&
        take_number(&flags, &line, 16) && take_word(NULL, &line) && take_word(NULL, &line) &&
        take_number(&metric, &line, 10) && take_number(&mask, &line, 16) && to == 0 && mask == 0 &&
        is_open(flags))
        take_route(r, name, metric);
}

/* to prefix from prefix next metric refs use flags name, hexadecimal */
static void read_route6(route *r, const char *line) {
    char name[MACHINE_NAME_MAX], to[MACHINE_NAME_MAX];
    uint64_t prefix = 0, metric = 0, flags = 0;
    if (take_word(to, &line) && take_number(&prefix, &line, 16) && take_word(NULL, &line) &&
        take_word(NULL, &line) && take_word(NULL, &line) && take_number(&metric, &line, 16) &&
        take_word(NULL, &line) && take_word(NULL, &line) && take_number(&flags, &line, 16) &&
        take_word(name, &line) && prefix == 0 && strspn(to, "0") == strlen(to) && is_open(flags) &&
        strcmp(name, "lo") != 0)
        take_route(r, name, metric);
}

static void read_routes(route *r, const char *root, const char *file,
                        void (*read)(route *r, const char *line)) {
    char path[OMM_PATH_MAX], line[LINE_MAX_BYTES];
    const int size = snprintf(path, sizeof path, "%s/proc/net/%s", root, file);
    FILE *f = size > 0 && (size_t)size < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return;
    while (fgets(line, sizeof line, f)) read(r, line);
    fclose(f);
}

bool machine_route(char name[MACHINE_NAME_MAX], const char *root) {
    route r = {0};
    read_routes(&r, root, "route", read_route4);
    if (!r.is_found) read_routes(&r, root, "ipv6_route", read_route6);
    set_name(name, r.name);
    return r.is_found;
}

/* Is `name` one of a list with commas? */
static bool is_in_list(const char *name, const char *list) {
    const size_t size = strlen(name);
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        const size_t part = strcspn(at, ", ");
        if (part == size && strncmp(at, name, size) == 0) return true;
        at += part;
    }
    return false;
}

/* Drivers of modems, and of telephones that share their network over USB. */
static bool has_metered_driver(const char *interface, const char *root) {
    static const char *const drivers[] = {"cdc_mbim", "ipheth", "qmi_wwan", "rndis_host"};
    char path[OMM_PATH_MAX], target[NAME_BYTES + 1];
    const int size =
        snprintf(path, sizeof path, "%s/sys/class/net/%s/device/driver", root, interface);
    if (size < 0 || (size_t)size >= sizeof path) return false;
    const ssize_t got = readlink(path, target, sizeof target - 1);
    if (got <= 0) return false;
    target[got] = '\0';
    const char *name = strrchr(target, '/');
    name = name ? name + 1 : target;
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (strcmp(name, drivers[i]) == 0) return true;
    return false;
}

static bool says_modem(const char *interface, const char *root) {
    char path[OMM_PATH_MAX], line[LINE_MAX_BYTES];
    const int size = snprintf(path, sizeof path, "%s/sys/class/net/%s/uevent", root, interface);
    FILE *f = size > 0 && (size_t)size < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) found = begins(line, "DEVTYPE=wwan");
    fclose(f);
    return found;
}

bool machine_is_metered(const char *interface, const char *named, const char *root) {
    if (named && is_in_list(interface, named)) return true;
    if (strchr(interface, '/')) return false; /* no name of an interface */
    return begins(interface, "wwan") || begins(interface, "rmnet") || begins(interface, "bnep") ||
           says_modem(interface, root) || has_metered_driver(interface, root);
}
