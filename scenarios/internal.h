/* internal.h - what the simulator's files share: virtual time, virtual links, peers. */
#ifndef SCENARIOS_INTERNAL_H
#define SCENARIOS_INTERNAL_H

#include "omm/err.h"
#include "omm/rng.h"
#include "omm/scenario.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- events.c: a queue ordered by (virtual time, node, sequence) ------------------------------ */

typedef enum sim_event_kind {
    SIM_WAKE,     /* the node acts */
    SIM_ARRIVE,   /* its request reaches the coordinator */
    SIM_REPLY,    /* the reply reaches it */
    SIM_WORKED,   /* its training is done */
    SIM_DEADLINE, /* the coordinator's own clock */
} sim_event_kind;

#define SIM_NODE_COORDINATOR UINT32_MAX /* orders after every node of the same millisecond */

typedef struct sim_event {
    uint64_t at_ms;
    uint64_t sequence; /* set by sim_queue_push: order of pushing */
    uint32_t node;     /* index into the population */
    sim_event_kind kind;
} sim_event;

typedef struct sim_queue {
    sim_event *events; /* binary heap, owned */
    size_t count, capacity;
    uint64_t next_sequence;
} sim_queue;

void sim_queue_init(sim_queue *queue);
void sim_queue_fini(sim_queue *queue);
/* Errors: NOMEM. */
OMM_CHECKED omm_err sim_queue_push(sim_queue *queue, uint64_t at_ms, uint32_t node,
                                   sim_event_kind kind);
/* False when empty. */
bool sim_queue_pop(sim_event *out, sim_queue *queue);

/* --- link.c: virtual time of one node's messages, training and faults ------------------------- */

typedef struct sim_link {
    const omm_scenario_group *group;
    omm_rng faults;    /* lane (run seed, FAULT, node, 0) */
    uint64_t messages; /* jitter of message i is number i of the lane */
} sim_link;

void sim_link_init(sim_link *link, const omm_scenario_group *group, const omm_seed *run_seed,
                   uint32_t node);
/* Milliseconds for `bytes` to the coordinator (up) or from it, latency and jitter included. */
uint64_t sim_link_up_ms(sim_link *link, size_t bytes);
uint64_t sim_link_down_ms(sim_link *link, size_t bytes);
uint64_t sim_link_train_ms(const sim_link *link, uint64_t tokens);
/* Does this node vanish in this round? */
bool sim_link_drops_out(const sim_link *link, uint32_t round);

#endif
