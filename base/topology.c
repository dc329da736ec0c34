/* topology.c - reads the kernel's files about processors and quotas; see topology.h. */
#include "omm/topology.h"

#include "kernel_files.h"
#include "omm/pool.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CPUS_MAX OMM_TOPOLOGY_CPUS_MAX
#define PERFORMANCE_SHARE                                                                          \
    0.8 /* of the fastest core's speed: turbo bins differ by less, kinds more */

typedef struct processors {
    bool has[CPUS_MAX];
} processors;

/* ---- small files ----------------------------------------------------------------------------- */

static bool read_of_cpu(char text[KERNEL_TEXT_MAX], const char *folder, unsigned cpu,
                        const char *name) {
    char part[128];
    snprintf(part, sizeof part, "cpu%u/%s", cpu, name);
    return kernel_text(text, folder, part);
}

/* "0-3,8": false, and *out is undefined, when it is no such list or names no processor we can see. */
static bool parse_list(processors *out, const char *text) {
    bool any = false;
    memset(out, 0, sizeof *out);
    for (const char *p = text;; p++) {
        unsigned long long first = 0, last = 0;
        if (!kernel_number(&first, &p)) return false;
        last = first;
        if (*p == '-') {
            p++;
            if (!kernel_number(&last, &p) || last < first) return false;
        }
        for (unsigned long long i = first; i <= last && i < CPUS_MAX; i++) any = out->has[i] = true;
        if (*p != ',') return any && (*p == 0 || *p == '\n');
    }
}

/* ---- processors ------------------------------------------------------------------------------ */

static void read_affinity(processors *out) {
    cpu_set_t set;
    memset(out, 0, sizeof *out);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (unsigned i = 0; i < CPUS_MAX && i < CPU_SETSIZE; i++) out->has[i] = CPU_ISSET(i, &set);
        return;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (unsigned i = 0; i < CPUS_MAX && (long)i < online; i++) out->has[i] = true;
}

static void read_usable(processors *out, const omm_topology_source *s) {
    char text[KERNEL_TEXT_MAX];
    processors online;
    if (!s->allowed || !parse_list(out, s->allowed)) read_affinity(out);
    if (!kernel_text(text, s->cpu_folder, "online") || !parse_list(&online, text)) return;
    bool any = false;
    for (unsigned i = 0; i < CPUS_MAX; i++) any = any || (out->has[i] && online.has[i]);
    for (unsigned i = 0; any && i < CPUS_MAX; i++) out->has[i] = out->has[i] && online.has[i];
}

/* A core is named by its lowest processor, usable or not. */
static unsigned core_of(const char *folder, unsigned cpu) {
    char text[KERNEL_TEXT_MAX];
    processors siblings;
    bool known = read_of_cpu(text, folder, cpu, "topology/core_cpus_list") ||
                 read_of_cpu(text, folder, cpu, "topology/thread_siblings_list");
    if (!known || !parse_list(&siblings, text) || !siblings.has[cpu]) return cpu;
    unsigned lowest = 0;
    while (!siblings.has[lowest]) lowest++;
    return lowest;
}

/* In a unit that all processors share when all have the file.  0: not known. */
static unsigned long long speed_of(const char *folder, unsigned cpu, const char *name) {
    char text[KERNEL_TEXT_MAX];
    const char *p = text;
    unsigned long long speed = 0;
    return read_of_cpu(text, folder, cpu, name) && kernel_number(&speed, &p) ? speed : 0;
}

/* Of `count` cores, those that are about as fast as the fastest. */
static unsigned count_fast(const char *folder, const unsigned *cpus, unsigned count) {
    static const char *const files[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        unsigned long long speeds[CPUS_MAX], fastest = 0;
        bool all = true;
        unsigned fast = 0;
        for (unsigned i = 0; i < count; i++) {
            speeds[i] = speed_of(folder, cpus[i], files[f]);
            if (speeds[i] > fastest) fastest = speeds[i];
            all = all && speeds[i] > 0;
        }
        if (!all) continue;
        for (unsigned i = 0; i < count; i++)
            fast += (double)speeds[i] >= PERFORMANCE_SHARE * (double)fastest;
        if (fast < count || f > 0)
            return fast; /* capacities may all be 1024 where nobody set them */
    }
    return count;
}

static void read_cores(omm_topology *t, const omm_topology_source *s) {
    processors usable, seen = {0};
    unsigned cpus[CPUS_MAX]; /* one usable processor of each core */
    read_usable(&usable, s);
    for (unsigned i = 0; i < CPUS_MAX; i++) {
        if (!usable.has[i]) continue;
        t->cpus++;
        const unsigned core = core_of(s->cpu_folder, i);
        if (!seen.has[core]) cpus[t->cores++] = i;
        seen.has[core] = true;
    }
    t->performance = count_fast(s->cpu_folder, cpus, t->cores);
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static double quota_of(const char *folder) {
    char text[KERNEL_TEXT_MAX], period_text[KERNEL_TEXT_MAX];
    unsigned long long quota = 0, period = 0;
    const char *p = text, *q = period_text;
    if (kernel_text(text, folder, "cpu.max")) {
        if (!kernel_number(&quota, &p) || *p != ' ') return 0.0; /* "max" */
        p++;
        if (!kernel_number(&period, &p)) return 0.0;
    } else if (!kernel_text(text, folder, "cpu.cfs_quota_us") ||
               !kernel_number(&quota, &p) || /* "-1" */
               !kernel_text(period_text, folder, "cpu.cfs_period_us") ||
               !kernel_number(&period, &q)) {
        return 0.0;
    }
    return period > 0 ? (double)quota / (double)period : 0.0;
}

/* The least of those seen, in *ud; 0: none yet. */
static void visit_group(void *ud, const char *folder) {
    double *least = (double *)ud;
    const double quota = quota_of(folder);
    if (quota > 0.0 && (*least == 0.0 || quota < *least)) *least = quota;
}

/* ---- together -------------------------------------------------------------------------------- */

void omm_topology_read(omm_topology *out, const omm_topology_source *source) {
    omm_topology_source s = source ? *source : (omm_topology_source){0};
    if (!s.cpu_folder) s.cpu_folder = "/sys/devices/system/cpu";
    *out = (omm_topology){0};
    read_cores(out, &s);
    if (out->cpus == 0) out->cpus = out->cores = out->performance = 1;
    if (s.group)
        kernel_groups_each(s.group, s.group_root ? s.group_root : s.group, visit_group,
                           &out->quota);
    else
        kernel_own_groups_each("cpu", visit_group, &out->quota);
    out->threads = out->cores;
    /* Downwards: threads that share less than a processor each wait for each other in every run. */
    if (out->quota > 0.0 && out->quota < (double)out->threads) out->threads = (unsigned)out->quota;
    if (out->threads == 0) out->threads = 1;
}

unsigned omm_threads_default(void) {
    omm_topology t;
    omm_topology_read(&t, NULL);
    return t.threads < OMM_POOL_THREADS_MAX ? t.threads : OMM_POOL_THREADS_MAX;
}

unsigned omm_cpu_count(void) {
    omm_topology t;
    omm_topology_read(&t, NULL);
    return t.cpus;
}
