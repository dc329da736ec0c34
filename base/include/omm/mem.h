/* mem.h - the only door to the heap, so tests can count it and make it fail.
 *
 * Depends on: libc only.  Threads: omm_alloc/omm_free are safe; use the test hooks from one thread.
 * An omm_arena belongs to one thread at a time.
 */
#ifndef OMM_MEM_H
#define OMM_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed array of `count` items of `size` bytes.  NULL when out of memory or on overflow.
 * Aligned for any type; omm_alloc_aligned gives 64 bytes, for vector loads.  Free with omm_free. */
void *omm_alloc(size_t count, size_t size);
void *omm_alloc_aligned(size_t count, size_t size);
void omm_free(void *ptr);

/* Zeroed memory for large arrays that are read in one go, 64-byte aligned: from 16 KiB on it lies in
 * memory for which the system is asked for large pages.  What is freed may go back to the system
 * only with its neighbours.  NULL when out of memory.  Free with omm_free_huge and the same number
 * of bytes; NULL is allowed. */
void *omm_alloc_huge(size_t bytes);
void omm_free_huge(void *ptr, size_t bytes);
/* The most that such arrays of `bytes` in all take in memory, for plans: large pages count whole. */
size_t omm_huge_taken(size_t bytes);

/* What these bytes of an allocation hold is not needed any more: whole pages of them go back to the system and read as zero, or
 * as before where it does not take them; the allocation stays. */
void omm_mem_forget(void *ptr, size_t bytes);

/* Zero `size` bytes in a way the compiler keeps, then free: for keys. */
void omm_free_secret(void *ptr, size_t size);

/* Heap copy of a NUL-terminated string; NULL when out of memory.  Free with omm_free. */
char *omm_strdup(const char *text);

/* Grow `ptr` (may be NULL) from `count_old` to `count_new` items; new items are zero.  The result is
 * aligned for any type.  NULL when out of memory or on overflow, and `ptr` is then still valid. */
void *omm_grow(void *ptr, size_t count_old, size_t count_new, size_t size);

/* From now on an array of 1 MiB or more goes back to the system when it is freed.  Else the C library keeps such arrays up
 * to 32 MiB for later, in a heap that has holes.  For programs that run for weeks; once, before threads begin. */
void omm_mem_give_back_large(void);
/* What is free in the C library's heap goes back to the machine, where the library can do that.  Any thread. */
void omm_mem_trim(void);

/* What an arena rounds each allocation up to; and its first block, each next one being as large as all before. */
#define OMM_ARENA_ALIGN 16u
#define OMM_ARENA_BLOCK_BYTES 4096u

/* An arena: many allocations, freed at once.  Blocks come from omm_alloc. */
typedef struct omm_arena {
    void *block;      /* newest block, linked to the older ones */
    size_t used;      /* bytes used in the newest block */
    size_t capacity;  /* bytes in the newest block */
    size_t total;     /* bytes in all blocks */
    size_t bytes_max; /* omm_arena_alloc fails beyond this */
} omm_arena;

void omm_arena_init(omm_arena *arena, size_t bytes_max);
void omm_arena_fini(omm_arena *arena);
/* Zeroed, 16-byte aligned; NULL when out of memory or over bytes_max.  Freed by omm_arena_fini. */
void *omm_arena_alloc(omm_arena *arena, size_t count, size_t size);
char *omm_arena_strdup(omm_arena *arena, const char *text);

/* Test hooks.  fail_nth = 1 makes the next allocation fail; 0 turns failing off. */
void omm_mem_fail_nth(size_t nth);
/* The failure that was asked for is still to come: what succeeded meanwhile did without so many allocations, and did not overlook
 * one that failed. */
bool omm_mem_fail_is_due(void);
size_t omm_mem_live(void);
/* Bytes asked for since the process began, granted or not: the difference over a call bounds it. */
size_t omm_mem_asked(void);

#endif
