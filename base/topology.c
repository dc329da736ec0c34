/* topology.c - reads the kernel's files about processors and quotas; see topology.h. */
#include "omm/topology.h"

#include "omm/file.h"
#include "omm/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPUS_MAX OMM_TOPOLOGY_CPUS_MAX
#define TEXT_MAX 4096u /* of one file; the rest is not read */
#define PERFORMANCE_SHARE                                                                          \
    0.8 /* of the fastest core's speed: turbo bins differ by less, kinds more */
#define GROUP_LEVELS_MAX 32u

typedef struct processors {
    bool has[CPUS_MAX];
} processors;

/* ---- small files ----------------------------------------------------------------------------- */

/* The text of a file without its line end.  False: there is none. */
static bool read_text(char text[TEXT_MAX], const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, TEXT_MAX - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    return true;
}

static bool read_in(char text[TEXT_MAX], const char *folder, const char *name) {
    char path[OMM_PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/%s", folder, name);
    return size > 0 && (size_t)size < sizeof path && read_text(text, path);
}

static bool read_of_cpu(char text[TEXT_MAX], const char *folder, unsigned cpu, const char *name) {
    char part[128];
    snprintf(part, sizeof part, "cpu%u/%s", cpu, name);
    return read_in(text, folder, part);
}

/* A number at *p, which is moved behind it. */
static bool number(unsigned long long *out, const char **p) {
    char *end = NULL;
    if (**p < '0' || **p > '9') return false;
    errno = 0;
    *out = strtoull(*p, &end, 10);
    *p = end;
    return errno == 0;
}

/* "0-3,8": false, and *out is undefined, when it is no such list or names no processor we can see. */
static bool parse_list(processors *out, const char *text) {
    bool any = false;
    memset(out, 0, sizeof *out);
    for (const char *p = text;; p++) {
        unsigned long long first = 0, last = 0;
        if (!number(&first, &p)) return false;
        last = first;
        if (*p == '-') {
            p++;
            if (!number(&last, &p) || last < first) return false;
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
    char text[TEXT_MAX];
    processors online;
    if (!s->allowed || !parse_list(out, s->allowed)) read_affinity(out);
    if (!read_in(text, s->cpu_folder, "online") || !parse_list(&online, text)) return;
    bool any = false;
    for (unsigned i = 0; i < CPUS_MAX; i++) any = any || (out->has[i] && online.has[i]);
    for (unsigned i = 0; any && i < CPUS_MAX; i++) out->has[i] = out->has[i] && online.has[i];
}

/* A core is named by its lowest processor, usable or not. */
static unsigned core_of(const char *folder, unsigned cpu) {
    char text[TEXT_MAX];
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
    char text[TEXT_MAX];
    const char *p = text;
    unsigned long long speed = 0;
    return read_of_cpu(text, folder, cpu, name) && number(&speed, &p) ? speed : 0;
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
    char text[TEXT_MAX], period_text[TEXT_MAX];
    unsigned long long quota = 0, period = 0;
    const char *p = text, *q = period_text;
    if (read_in(text, folder, "cpu.max")) {
        if (!number(&quota, &p) || *p != ' ') return 0.0; /* "max" */
        p++;
        if (!number(&period, &p)) return 0.0;
    } else if (!read_in(text, folder, "cpu.cfs_quota_us") || !number(&quota, &p) || /* "-1" */
               !read_in(period_text, folder, "cpu.cfs_period_us") || !number(&period, &q)) {
        return 0.0;
    }
    return period > 0 ? (double)quota / (double)period : 0.0;
}

/* The least of a group and all above it. */
static double least_quota(const char *group, const char *root) {
    char folder[OMM_PATH_MAX];
    double least = 0.0;
    const size_t stop = strlen(root);
    snprintf(folder, sizeof folder, "%s", group);
    for (unsigned level = 0; level < GROUP_LEVELS_MAX; level++) {
        const double quota = quota_of(folder);
        if (quota > 0.0 && (least == 0.0 || quota < least)) least = quota;
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= stop) break;
        *slash = 0;
    }
    return least;
}

/* "0::/a/b" (cgroup 2) or "4:cpu,cpuacct:/a/b" (cgroup 1) in /proc/self/cgroup. */
static bool group_line(char folder[OMM_PATH_MAX], char root[OMM_PATH_MAX], const char *line,
                       size_t size) {
    char copy[OMM_PATH_MAX];
    if (size >= sizeof copy) return false;
    memcpy(copy, line, size);
    copy[size] = 0;
    char *kind = strchr(copy, ':');
    char *path = kind ? strchr(kind + 1, ':') : NULL;
    if (!path) return false;
    *path++ = 0;
    kind++;
    const bool v2 = kind[0] == 0;
    if (!v2 && strcmp(kind, "cpu") != 0 && strcmp(kind, "cpu,cpuacct") != 0) return false;
    int n = snprintf(root, OMM_PATH_MAX, "/sys/fs/cgroup%s%s", v2 ? "" : "/", kind);
    int m = snprintf(folder, OMM_PATH_MAX, "%s%s", root, strcmp(path, "/") == 0 ? "" : path);
    return n > 0 && m > 0 && m < (int)OMM_PATH_MAX;
}

static double own_quota(void) {
    char text[TEXT_MAX], folder[OMM_PATH_MAX], root[OMM_PATH_MAX];
    double least = 0.0;
    if (!read_text(text, "/proc/self/cgroup")) return 0.0;
    for (const char *line = text; *line;) {
        const size_t size = strcspn(line, "\n");
        if (group_line(folder, root, line, size)) {
            const double quota = least_quota(folder, root);
            if (quota > 0.0 && (least == 0.0 || quota < least)) least = quota;
        }
        line += size + (line[size] == '\n');
    }
    return least;
}

/* ---- together -------------------------------------------------------------------------------- */

void omm_topology_read(omm_topology *out, const omm_topology_source *source) {
    omm_topology_source s = source ? *source : (omm_topology_source){0};
    if (!s.cpu_folder) s.cpu_folder = "/sys/devices/system/cpu";
    *out = (omm_topology){0};
    read_cores(out, &s);
    if (out->cpus == 0) out->cpus = out->cores = out->performance = 1;
    out->quota =
        s.group ? least_quota(s.group, s.group_root ? s.group_root : s.group) : own_quota();
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
