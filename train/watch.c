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

void omm_train_watch_start(omm_train_watch *watch) {
    *watch = (omm_train_watch){.last_ns = omm_measure_ns()};
}

void omm_train_watch_skip(omm_train_watch *watch) {
    watch->last_ns = omm_measure_ns();
}

void omm_train_watch_lap(omm_train_watch *watch, omm_train_part part) {
    const uint64_t now = omm_measure_ns();
    watch->ns[part] += now - watch->last_ns;
    watch->last_ns = now;
}
