/* canary_work.h - the thread that trains canaries again, one at a time, beside the service's loop.
 *
 *   loop --canary_work_turn--> next job --thread--> result --canary_work_turn--> verdict
 *
 * It shares the run's model with the evaluation, both read it only, and has threads and scratch of its own.  They have
 * the lowest priority, so that a round never waits for a replay; not SCHED_IDLE, by which a machine that others keep
 * busy would never come to a verdict.
 * What it was doing when the service ends is done again at the next start.
 *
 * Depends on: base, engine, train, coordinator_canary.h, run_config.h.  Threads: the service's.
 */
#ifndef COORDINATOR_CANARY_WORK_H
#define COORDINATOR_CANARY_WORK_H

#include "omm/coordinator_canary.h"
#include "omm/run_config.h"

#define CANARY_AGAIN_MS 60000u /* after trouble of our own: a full disk, no memory */

typedef struct canary_work_options {
    const omm_run *run;                 /* borrowed, as the rest */
    const omm_coord_canaries *canaries; /* NULL: there are none */
    uint32_t threads;                   /* 0: 1 */
    omm_clock clock;
    /* A replay ended, with a verdict or without, after so long; may be NULL. */
    void (*on_replay)(void *ud, uint64_t ms);
    void *ud;
    const omm_log *log;
} canary_work_options;

typedef struct canary_work canary_work;
/* Reads every shard as a node does.  Without canaries *out is NULL.
 * Errors: CONFIG (a shard is not as a node would take it: file, line, why), those of pool and compute. */
OMM_CHECKED omm_err canary_work_open(canary_work **out, const canary_work_options *options);
/* Stops what is under way.  NULL is fine. */
void canary_work_close(canary_work *work);
/* Between two requests: take up a verdict that is there, begin the next job.  NULL is fine. */
void canary_work_turn(canary_work *work, uint64_t *next_deadline_ms, omm_coord *coord,
                      uint64_t now_ms);

#endif
