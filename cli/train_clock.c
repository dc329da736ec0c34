/* train_clock.c - see train_clock.h. */
#include "train_clock.h"

void train_clock_add(train_clock *c, train_work work, uint64_t ns) {
    c->ns[work] += ns;
    c->count[work]++;
}

double train_clock_seconds(const train_clock *c, train_work work) {
    return (double)c->ns[work] / 1e9;
}

double train_clock_left_s(const train_clock *c, const uint64_t left[TRAIN_WORK_COUNT]) {
    double seconds = 0;
    for (unsigned i = 0; i < TRAIN_WORK_COUNT; i++)
        if (c->count[i] > 0)
            seconds +=
                train_clock_seconds(c, (train_work)i) / (double)c->count[i] * (double)left[i];
    return seconds;
}

uint64_t train_clock_times(uint32_t step, uint32_t steps, uint32_t every) {
    return every ? steps / every - (step - 1) / every : 0;
}
