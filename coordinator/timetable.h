/* timetable.h - when the next round may open, and how long the stage at hand has lasted, over restarts.
 *
 *   every 6h            a round opens 6 hours after the one before it opened; the first one at once
 *   at 03:00            rounds open at this time of the UTC day, and `every` after it (by default once a day)
 *
 * Durations are monotonic time.  Over a restart of the process it is the same clock; over one of the machine
 * (/proc/sys/kernel/random/boot_id) the wall clock's difference counts, if it is none or more and at most
 * TIMETABLE_GAP_MS: a clock that was set back, or years ahead, counts as no time at all.  `at` reads the wall clock,
 * and once more: after a jump a round opens only where half of `every` has passed since the last one.
 *
 *   state_dir/timetable.json    {"schema_version": 1, "boot", "now_ms", "wall_ms", "round", "stage", "stage_ms",
 *                                "opened_ms" (-1: no round yet), "slot" (-1)}; lost or damaged, durations start again
 *
 * Depends on: base.  Threads: the service's.
 */
#ifndef COORDINATOR_TIMETABLE_H
#define COORDINATOR_TIMETABLE_H

#include "omm/clock.h"
#include "omm/err.h"
#include "omm/file.h"

#include <stdbool.h>
#include <stdint.h>

#define TIMETABLE_GAP_MS ((uint64_t)24 * 3600 * 1000)
#define TIMETABLE_KEEP_MS 60000u /* how often it is written while nothing happens */
#define TIMETABLE_DAY_MS ((uint64_t)24 * 3600 * 1000)

typedef struct timetable {
    omm_clock clock;
    char path[OMM_PATH_MAX];
    char boot[64]; /* this one's */
    uint64_t every_ms, at_ms;
    bool has_at;
    /* what is kept */
    uint32_t round, stage;
    uint64_t stage_since_ms;
    bool has_stage, has_opened;
    uint64_t opened_at_ms; /* may wrap around below zero: only differences to now count */
    int64_t slot;          /* of the wall clock when a round opened last; -1: none */
    uint64_t kept_ms;
} timetable;

/* every_ms 0 without at: rounds are not held back.  boot NULL: this machine's.  What is kept is read; what cannot be
 * read is as if nothing were.  Errors: TOO_BIG (path). */
OMM_CHECKED omm_err timetable_open(timetable *t, const char *state_dir, omm_clock clock,
                                   uint64_t every_ms, bool has_at, uint64_t at_ms,
                                   const char *boot);
/* How long this stage of this round has lasted; false: it is not the one that was kept. */
bool timetable_stage_ms(uint64_t *out, const timetable *t, uint32_t round, uint32_t stage);
/* The stage at hand, and that it lasts for stage_ms.  Written when it is new, and now and then.  Errors: IO. */
OMM_CHECKED omm_err timetable_note(timetable *t, uint32_t round, uint32_t stage, uint64_t stage_ms);
/* A round opens now; note follows. */
void timetable_opened(timetable *t);
/* At a start: this round is open, or further on, from the stage `opened` on.  Where what is kept does not say so a kill came between
 * the round and the file, and it opens now: else the next one would follow at once. */
void timetable_begun(timetable *t, uint32_t round, uint32_t opened);
/* May a round open now? */
bool timetable_is_due(timetable *t);

#endif
