/* mem_count.h - how many bytes of the heap live, for tests that hold a part of the program to a bound.
 *
 * Counted in mem.c, as the heap has rounded them up; what moves while it grows counts once.  Libraries' own
 * allocations (zstd, SQLite, nng) are not in it.
 *
 * Depends on: nothing.  Threads: safe; a peak is that of all threads together.
 */
#ifndef OMM_MEM_COUNT_H
#define OMM_MEM_COUNT_H

#include <stddef.h>

size_t omm_mem_bytes(void);
/* The most of them since the process began, or since the last restart. */
size_t omm_mem_peak(void);
void omm_mem_peak_restart(void);

#endif
