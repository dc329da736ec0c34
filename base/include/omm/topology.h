/* topology.h - which processors this process may use: physical cores, their SMT siblings, fast and
 * slow cores, and how much of them a container grants.
 *
 * Read from the kernel's files, which may say anything or be missing: what is not known counts
 * as one core per processor, all of one kind, without a quota.
 *   CPU/online                                    list of processors ("0-3,8")
 *   CPU/cpuN/topology/core_cpus_list              processors that share a core with N
 *            or topology/thread_siblings_list     (older kernels)
 *   CPU/cpuN/cpu_capacity                         speed of N, 1024 the fastest of this machine
 *            or cpufreq/cpuinfo_max_freq          (kHz)
 *   GROUP/cpu.max                                 "quota period" or "max period", cgroup 2
 *      or cpu.cfs_quota_us, cpu.cfs_period_us     cgroup 1
 *
 * Source: Linux Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/cgroup-v2.rst.
 * Depends on: err.  Threads: no shared state.
 */
#ifndef OMM_TOPOLOGY_H
#define OMM_TOPOLOGY_H

#include "omm/err.h"

#define OMM_TOPOLOGY_CPUS_MAX 1024u /* processors of higher number are not seen */

/* Where to read; NULL members mean this machine. */
typedef struct omm_topology_source {
    const char *cpu_folder; /* CPU above; "/sys/devices/system/cpu" */
    const char *group;      /* GROUP above; the group of this process */
    const char *group_root; /* quotas of all folders from GROUP up to this one hold */
    const char *allowed;    /* list of processors; the affinity of this process */
} omm_topology_source;

typedef struct omm_topology {
    unsigned cpus;        /* logical processors that may be used, at least 1 */
    unsigned cores;       /* physical cores with at least one of them, at least 1 */
    unsigned performance; /* of these: within a fifth of the fastest core's speed, at least 1 */
    double quota;         /* processors' worth of time that is granted; 0: no limit */
    unsigned threads;     /* to compute with: cores, within the quota; at least 1 */
} omm_topology;

/* Never fails.  source: NULL for this machine. */
void omm_topology_read(omm_topology *out, const omm_topology_source *source);

/* threads of this machine, at most OMM_POOL_THREADS_MAX. */
unsigned omm_threads_default(void);
/* Logical processors this process may use, at least 1. */
unsigned omm_cpu_count(void);

#endif
