/* link.c - virtual delays.  All of it is arithmetic on the scenario's numbers and an indexed random
 * lane: the machine that simulates never enters. */
#include "internal.h"

#include <math.h>

#define FAULT_DROPOUT_FIRST ((uint64_t)1 << 40) /* lane numbers of dropouts, far from messages */

void sim_link_init(sim_link *link, const omm_scenario_group *group, const omm_seed *run_seed,
                   uint32_t node) {
    *link =
        (sim_link){.group = group, .faults = omm_rng_init(run_seed, OMM_PURPOSE_FAULT, node, 0)};
}

/* Whole milliseconds, rounded up, so that nothing takes no time at all. */
static uint64_t ms_up(double ms) {
    return (uint64_t)ceil(ms < 0 ? 0 : ms);
}

static uint64_t transfer_ms(sim_link *link, size_t bytes, double kbit_s) {
    double jitter = link->group->jitter_ms * (double)omm_rng_unit(&link->faults, link->messages++);
    return ms_up(link->group->latency_ms + jitter + (double)bytes * 8.0 / kbit_s);
}

uint64_t sim_link_up_ms(sim_link *link, size_t bytes) {
    return transfer_ms(link, bytes, link->group->uplink_kbit_s);
}

uint64_t sim_link_down_ms(sim_link *link, size_t bytes) {
    return transfer_ms(link, bytes, link->group->downlink_kbit_s);
}

uint64_t sim_link_train_ms(const sim_link *link, uint64_t tokens) {
    return ms_up((double)tokens * 1000.0 * link->group->slowdown / link->group->tokens_per_s);
}

bool sim_link_drops_out(const sim_link *link, uint32_t round) {
    double u = (double)omm_rng_unit(&link->faults, FAULT_DROPOUT_FIRST + round);
    return u < link->group->dropout;
}
