/* train_watch.h - where the time of training goes: one stop watch, one total for each part of a step.
 *
 * Who trains reads the clock only where a watch was given (omm_trainer_options); the result of
 * training does not depend on it.
 *
 * Depends on: clock.  Threads: one watch belongs to one trainer.
 */
#ifndef OMM_TRAIN_WATCH_H
#define OMM_TRAIN_WATCH_H

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
    uint64_t last_ns;
    uint64_t ns[OMM_TRAIN_PART_COUNT];
} omm_train_watch;

const char *omm_train_part_name(omm_train_part part);
/* All totals zero; time runs from here. */
void omm_train_watch_start(omm_train_watch *watch);
/* Time since the last call belongs to no part. */
void omm_train_watch_skip(omm_train_watch *watch);
/* Time since the last call belongs to `part`. */
void omm_train_watch_lap(omm_train_watch *watch, omm_train_part part);

#endif
