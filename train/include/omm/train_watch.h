/* train_watch.h - where the time of training goes: one stop watch, one total for each part of a step.
 *
 * Who trains reads the clock only where a watch was given (omm_trainer_options); the result of
 * training does not depend on it.
 *
 * Depends on: clock, pool.  Threads: one watch belongs to one trainer.
 */
#ifndef OMM_TRAIN_WATCH_H
#define OMM_TRAIN_WATCH_H

#include "omm/pool.h"

#include <stdint.h>

/* XX(name, word, what it is) */
#define OMM_TRAIN_PART_MAP(XX)                                                                     \
    XX(FORWARD, "forward", "products of the layers, those computed again included")                \
    XX(BACKWARD, "backward", "products with the layers' weights")                                  \
    XX(ADAPTER, "adapter", "products with A and B, forward and backward, and their gradients")     \
    XX(ATTENTION, "attention", "both ways, with rope")                                             \
    XX(HEAD, "head", "output norm, logits, loss and their gradient")                               \
    XX(ROWS, "rows", "norms, activations, sums: what goes row by row")                             \
    XX(UPDATE, "update", "clipping, optimiser, digest")

typedef enum omm_train_part {
#define XX(name, word, text) OMM_TRAIN_##name,
    OMM_TRAIN_PART_MAP(XX)
#undef XX
        OMM_TRAIN_PART_COUNT
} omm_train_part;

typedef struct omm_train_watch {
    omm_pool *pool; /* borrowed; NULL: one thread */
    uint64_t last_ns, last_work_ns;
    uint64_t ns[OMM_TRAIN_PART_COUNT];
    uint64_t work_ns
        [OMM_TRAIN_PART_COUNT]; /* of all threads together, waiting left out: at most threads * ns */
} omm_train_watch;

const char *omm_train_part_name(omm_train_part part);
/* All totals zero; time runs from here.  `pool` is the trainer's, which measures its runs from here on. */
void omm_train_watch_start(omm_train_watch *watch, omm_pool *pool);
/* Time since the last call belongs to no part. */
void omm_train_watch_skip(omm_train_watch *watch);
/* Time since the last call belongs to `part`. */
void omm_train_watch_lap(omm_train_watch *watch, omm_train_part part);

#endif
