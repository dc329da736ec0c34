/* disk.h - a disk that forgets and fails.  The file calls of the whole program, SQLite's among them, pass
 * through disk_calls.c: those below one folder are written down, and may be made to fail.
 *
 * The model is the strictest that POSIX allows.  After a power cut there is
 *   of a file      what was written before its last fsync, and of what came later any part, in pieces
 *                  of 512 bytes
 *   of a folder    the names that were there at its own last fsync, and of later changes any part
 * A name outlives the cut only if its folder was synced: an fsync of the file alone is not enough.
 *
 * Nothing is really synced, so a test is quick.  Threads: one, the test's.
 */
#ifndef TESTS_FAULT_DISK_H
#define TESTS_FAULT_DISK_H

#include "omm/hash.h"

#include <stdbool.h>
#include <stdint.h>

/* An empty folder, in memory where there is such a place: nothing is really synced. */
void disk_folder(char out[64]);
/* From here on, what happens below `folder`, which is empty, is written down. */
void disk_watch(const char *folder);
/* No more; what is written down stays until the next disk_watch. */
void disk_rest(void);
/* The log is cut to its first `count` operations: a process was killed then.  What they made lies in
 * `folder`, where another goes on; what it does is written down behind them. */
void disk_go_on(const char *folder, uint64_t count);
/* How many operations were written down. */
uint64_t disk_count(void);
/* The log, for who looks for a fault. */
void disk_print(void);

typedef enum disk_loss {
    DISK_LOSE_NOTHING,  /* a kill -9 */
    DISK_LOSE_UNSYNCED, /* all of it */
    DISK_LOSE_DATA,     /* of files; names stay */
    DISK_LOSE_NAMES,    /* of files and folders; data stays where it has a name */
    DISK_LOSE_SOME,     /* whatever the seed says */
} disk_loss;

/* What a cut after `count` operations leaves.  Only folders right below the watched one for which
 * `loses` says so lose anything. */
typedef struct disk_state disk_state;
/* For `loses`: all of them. */
bool disk_everything(void *ud, const char *name);
disk_state *disk_make(uint64_t count, disk_loss loss, uint64_t seed,
                      bool (*loses)(void *ud, const char *name), void *ud);
/* Of names and bytes: equal for equal states.  Of an SQLite log only what SQLite would read counts. */
omm_digest disk_digest(const disk_state *state);
/* Into an empty folder. */
void disk_put(const disk_state *state, const char *into);
void disk_free(disk_state *state);
/* All of it at once. */
void disk_rebuild(const char *into, uint64_t count, disk_loss loss, uint64_t seed,
                  bool (*loses)(void *ud, const char *name), void *ud);

/* ---- calls that fail ---- */

typedef enum disk_call {
    DISK_NAME = 1,  /* create, link, rename, mkdir, unlink */
    DISK_WRITE = 2, /* write, also ftruncate */
    DISK_SYNC = 4,
} disk_call;
/* After `after` more calls of the kinds `calls` below the watched folder, `times` of them fail with the
 * error number `why`. */
void disk_fail(unsigned calls, uint64_t after, uint64_t times, int why);
/* Calls that failed since disk_fail. */
uint64_t disk_failed(void);
/* Calls of these kinds since disk_watch. */
uint64_t disk_calls(unsigned calls);

#endif
