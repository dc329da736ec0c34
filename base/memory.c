/* memory.c - see omm/memory.h. */
#include "omm/memory.h"

#include "kernel_files.h"

#include <stddef.h>
#include <string.h>

/* Of machine and groups so far. */
typedef struct least {
    omm_memory *memory;
    bool available; /* is known: it may be 0 */
} least;

static bool number_in(uint64_t *out, const char *folder, const char *name) {
    char text[KERNEL_TEXT_MAX];
    const char *p = text;
    unsigned long long value = 0;
    if (!kernel_text(text, folder, name) || !kernel_number(&value, &p)) return false;
    *out = value;
    return true;
}

/* Limit and use of one group, and what of it would go.  False: there is no limit. */
static bool group_of(uint64_t *limit, uint64_t *used, const char *folder) {
    static const char *const files[2][3] = {
        {"memory.max", "memory.current", "inactive_file"},
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};
    char text[KERNEL_TEXT_MAX];
    for (size_t v = 0; v < 2; v++) {
        uint64_t idle = 0;
        if (!number_in(limit, folder, files[v][0])) continue; /* "max", or the other version */
        *used = 0;
        if (!number_in(used, folder, files[v][1])) return true;
        if (kernel_text(text, folder, "memory.stat")) (void)kernel_field(&idle, text, files[v][2]);
        *used = *used > idle ? *used - idle : 0;
        return true;
    }
    return false;
}

static void visit_group(void *ud, const char *folder) {
    least *l = (least *)ud;
    omm_memory *m = l->memory;
    uint64_t limit = 0, used = 0;
    if (!group_of(&limit, &used, folder)) return;
    if (m->total > 0 && limit >= m->total) return; /* cgroup 1 writes "none" as a huge number */
    const uint64_t left = limit > used ? limit - used : 0;
    if (m->limit == 0 || limit < m->limit) m->limit = limit;
    if (!l->available || left < m->available) m->available = left;
    l->available = true;
}

void omm_memory_read(omm_memory *out, const omm_memory_source *source) {
    char text[KERNEL_TEXT_MAX];
    const omm_memory_source s = source ? *source : (omm_memory_source){0};
    uint64_t kib = 0;
    least l = {.memory = out};
    *out = (omm_memory){0};
    if (kernel_text(text, s.proc ? s.proc : "/proc", "meminfo")) {
        if (kernel_field(&kib, text, "MemTotal")) out->total = kib * 1024;
        l.available = kernel_field(&kib, text, "MemAvailable");
        if (l.available) out->available = kib * 1024;
    }
    if (s.group)
        kernel_groups_each(s.group, s.group_root ? s.group_root : s.group, visit_group, &l);
    else
        kernel_own_groups_each("memory", visit_group, &l);
}

static uint64_t own(const char *field) {
    char text[KERNEL_TEXT_MAX];
    uint64_t kib = 0;
    if (!kernel_text(text, "/proc/self", "status") || !kernel_field(&kib, text, field)) return 0;
    return kib * 1024;
}

uint64_t omm_memory_peak(void) {
    return own("VmHWM");
}

uint64_t omm_memory_resident(void) {
    return own("VmRSS");
}
