/* watch.c - see omm/train_watch.h. */
#include "omm/clock.h"
#include "omm/train_watch.h"

static const char *const s_names[OMM_TRAIN_PART_COUNT] = {
#define XX(name, word, text) word,
    OMM_TRAIN_PART_MAP(XX)
#undef XX
};

const char *omm_train_part_name(omm_train_part part) {
    return s_names[part];
}

/* What all threads have worked by now: in runs of the pool each its tasks, between them the one thread. */
static uint64_t work_until(const omm_train_watch *watch, uint64_t now) {
    const omm_pool_times times = omm_pool_measured(watch->pool);
    return now - times.run_ns + times.busy_ns;
}

void omm_train_watch_start(omm_train_watch *watch, omm_pool *pool) {
    omm_pool_measure(pool, true);
    *watch = (omm_train_watch){.pool = pool};
    omm_train_watch_skip(watch);
}

void omm_train_watch_skip(omm_train_watch *watch) {
    watch->last_ns = omm_measure_ns();
    watch->last_work_ns = work_until(watch, watch->last_ns);
}

void omm_train_watch_lap(omm_train_watch *watch, omm_train_part part) {
    const uint64_t now = omm_measure_ns(), work = work_until(watch, now);
    watch->ns[part] += now - watch->last_ns;
    watch->work_ns[part] += work - watch->last_work_ns;
    watch->last_ns = now;
    watch->last_work_ns = work;
}
