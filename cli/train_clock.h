/* train_clock.h - where the time of a training run goes, by kind of work: a speed is of steps alone, and what is left
 * is every kind's own mean times how often it is still to come.
 *
 * Time comes from the caller.  Depends on: base.  Threads: one at a time.
 */
#ifndef CLI_TRAIN_CLOCK_H
#define CLI_TRAIN_CLOCK_H

#include <stdint.h>

typedef enum train_work {
    TRAIN_WORK_STEP,
    TRAIN_WORK_EVALUATION, /* of losses, on the way */
    TRAIN_WORK_CHECKPOINT,
    TRAIN_WORK_JUDGING, /* with replies, before and after */
    TRAIN_WORK_COUNT
} train_work;

typedef struct train_clock {
    uint64_t ns[TRAIN_WORK_COUNT];
    uint64_t count[TRAIN_WORK_COUNT];
} train_clock;

/* Work of this kind was done once more, and took so long. */
void train_clock_add(train_clock *clock, train_work work, uint64_t ns);
double train_clock_seconds(const train_clock *clock, train_work work);
/* What `left` of each kind will take; a kind that has not come yet counts nothing. */
double train_clock_left_s(const train_clock *clock, const uint64_t left[TRAIN_WORK_COUNT]);
/* How often one of every `every` steps is still to come behind step `step` (1 .. steps), which itself is one of
 * them; 0: never. */
uint64_t train_clock_times(uint32_t step, uint32_t steps, uint32_t every);

#endif
