/* memory.h - how much memory this machine has left for this process, and how much it has used.
 *
 * Read from the kernel's files, which may say anything or be missing: what is not known is 0.
 *   PROC/meminfo             MemTotal, MemAvailable (what is free, and caches that would go)
 *   GROUP/memory.max         bytes, or "max": cgroup 2, with memory.current
 *      or memory.limit_in_bytes, memory.usage_in_bytes            cgroup 1
 *   GROUP/memory.stat        inactive_file (cgroup 1: total_inactive_file): used, but would go
 *   PROC/self/status         VmHWM, VmRSS
 *
 * Source: Linux Documentation/filesystems/proc.rst, admin-guide/cgroup-v2.rst.
 * Depends on: nothing.  Threads: no shared state.
 */
#ifndef OMM_MEMORY_H
#define OMM_MEMORY_H

#include <stdint.h>

/* Where to read; NULL members mean this machine. */
typedef struct omm_memory_source {
    const char *proc;       /* PROC above; "/proc" */
    const char *group;      /* GROUP above; the group of this process */
    const char *group_root; /* limits of all folders from GROUP up to this one hold */
} omm_memory_source;

typedef struct omm_memory {
    uint64_t total;     /* bytes of the machine */
    uint64_t limit;     /* the least limit of a group; 0: none */
    uint64_t available; /* what this process can still take: of machine and groups the least */
} omm_memory;

/* Never fails.  source: NULL for this machine. */
void omm_memory_read(omm_memory *out, const omm_memory_source *source);
/* The most bytes that this process has had in memory at once (VmHWM), files included. */
uint64_t omm_memory_peak(void);
/* What it has now (VmRSS). */
uint64_t omm_memory_resident(void);

#endif
