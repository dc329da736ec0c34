/* The time of a training run by kind of work: evaluations are no training, and what is left counts each kind by what
 * one of it took. */
#include "train_clock.h"

#include "omm_test.h"

#define SECOND 1000000000ULL

/* Steps of 1 s, evaluations of 10 s, every second step one; a checkpoint of 4 s every fourth. */
static void speeds(void) {
    train_clock c = {0};
    train_clock_add(&c, TRAIN_WORK_JUDGING, 60 * SECOND);
    train_clock_add(&c, TRAIN_WORK_EVALUATION, 10 * SECOND);
    for (unsigned step = 1; step <= 8; step++) {
        train_clock_add(&c, TRAIN_WORK_STEP, SECOND);
        if (step % 2 == 0) train_clock_add(&c, TRAIN_WORK_EVALUATION, 10 * SECOND);
        if (step % 4 == 0) train_clock_add(&c, TRAIN_WORK_CHECKPOINT, 4 * SECOND);
    }
    CHECK(train_clock_seconds(&c, TRAIN_WORK_STEP) == 8);
    CHECK(train_clock_seconds(&c, TRAIN_WORK_EVALUATION) == 50);
    CHECK(train_clock_seconds(&c, TRAIN_WORK_CHECKPOINT) == 8);
    CHECK(train_clock_left_s(&c, (const uint64_t[]){4, 2, 1, 1}) == 4 + 20 + 4 + 60);
    CHECK(train_clock_left_s(&c, (const uint64_t[]){4, 0, 0, 0}) == 4);
    CHECK(train_clock_left_s(&c, (const uint64_t[]){0, 0, 0, 0}) == 0);
}

/* A mean of what came so far; what has not come is not guessed. */
static void means(void) {
    train_clock c = {0};
    const uint64_t left[] = {10, 3, 2, 1};
    CHECK(train_clock_left_s(&c, left) == 0);
    train_clock_add(&c, TRAIN_WORK_STEP, SECOND);
    train_clock_add(&c, TRAIN_WORK_STEP, 3 * SECOND);
    CHECK(train_clock_left_s(&c, left) == 20);
}

static void times(void) {
    CHECK_EQ(train_clock_times(1, 10, 3), 3); /* behind 3, 6 and 9 */
    CHECK_EQ(train_clock_times(3, 10, 3), 3); /* its own is still to come */
    CHECK_EQ(train_clock_times(4, 10, 3), 2);
    CHECK_EQ(train_clock_times(10, 10, 3), 0);
    CHECK_EQ(train_clock_times(10, 10, 5), 1);
    CHECK_EQ(train_clock_times(1, 10, 11), 0);
    CHECK_EQ(train_clock_times(1, 10, 0), 0);
}

int main(void) {
    speeds();
    means();
    times();
    return 0;
}
