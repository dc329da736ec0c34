/* internal.h - what the simulator's files share: virtual time, virtual links, peers. */
#ifndef SCENARIOS_INTERNAL_H
#define SCENARIOS_INTERNAL_H

#include "omm/bundle.h"
#include "omm/coordinator.h"
#include "omm/err.h"
#include "omm/node.h"
#include "omm/pool.h"
#include "omm/replay.h"
#include "omm/rng.h"
#include "omm/run_config.h"
#include "omm/scenario.h"
#include "omm/scenario_run.h"
#include "omm/simulate.h"
#include "omm/transport.h"

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

/* --- setup.c: a scenario as the run configuration that coordinator and nodes start from ------- */

/* Everything of a scenario that has been opened: model, data, keys, record. */
typedef struct sim_setup {
    omm_arena arena;
    omm_scenario scenario;
    omm_seed run_seed;
    omm_scenario_node *nodes; /* in the order of the file */
    size_t node_count;
    omm_run_enrolled *enrolled; /* the same nodes */
    omm_buf scenario_yaml, policy_yaml;
    omm_run_config config;
    omm_run *run;
} sim_setup;

typedef struct sim_setup_options {
    const char *scenario;
    const uint64_t *seed;
    /* Model and data paths start in the first of these that has the model, else in the last; ended by NULL.
     * NULL: in the scenario's own folder. */
    const char *const *base_dirs;
    bool has_begun;    /* as in omm_scenario_run_options */
    const char *begun; /* its bundle, whose policy.yaml is gone on with; or NULL */
    bool skip_policy;  /* do not read the gate policy: nothing will be judged */
    bool is_control;   /* the uncompressed twin: no codecs, losses only */
    const omm_scenario_run_options *own; /* a service's keys and nodes; NULL: the scenario's */
    const char *model;                   /* this file instead of the scenario's; NULL: that */
    bool skip_test;                      /* do not read the held-out file: nothing will be judged */
    const omm_compute *compute;
    omm_err (*control)(void *ud, omm_buf *jsonl); /* see omm_coord_evaluator */
    void *control_ud;
} sim_setup_options;

/* Errors: those of omm_scenario_load and omm_run_open. */
OMM_CHECKED omm_err sim_setup_open(sim_setup *setup, const sim_setup_options *options);
void sim_setup_close(sim_setup *setup);
/* Errors: CONFIG (the base model here is not the bundle's: names both). */
OMM_CHECKED omm_err sim_check_base(const omm_run_record *bundle, const omm_run_record *here);
/* Clients: nodes that count. */
uint32_t sim_setup_honest(const sim_setup *setup);
/* CONFIG where the adapter is larger than what a node can keep, so that all of them would decline it. */
OMM_CHECKED omm_err sim_setup_check_values(const char *scenario, uint64_t values);

/* --- hostile.c: peers that do one thing wrong, on purpose ------------------------------------- */

typedef struct sim_hostile sim_hostile;

typedef struct sim_hostile_options {
    omm_hostile kind;
    const omm_key *key;       /* enrolled */
    const omm_seed *run_seed; /* for the key that nobody enrolled */
    const omm_layout *layout;
    const omm_bytes *overheard; /* an honest submission of an earlier round; empty: none yet */
} sim_hostile_options;

OMM_CHECKED omm_err sim_hostile_open(sim_hostile **out, const sim_hostile_options *options);
void sim_hostile_close(sim_hostile *hostile);
/* The interface of omm_node_step. */
OMM_CHECKED omm_err sim_hostile_step(omm_node_action *action, sim_hostile *hostile, uint64_t now_ms,
                                     const omm_node_event *event);

/* --- loop.c: the event loop ------------------------------------------------------------------- */

typedef struct sim_peer {
    const omm_scenario_node *spec;
    uint32_t index;
    omm_key key;
    omm_digest id;
    omm_training *training; /* honest nodes */
    omm_node *node;
    sim_hostile *hostile; /* the others */
    sim_link link;
    omm_buf request, reply; /* in flight */
    bool working;           /* a training job is under way in virtual time */
    bool vanished;          /* ... and its node is switched off */
    bool worked;            /* ... and it has been computed */
    omm_err work_result;
    bool done;
    uint64_t bytes_up, bytes_down, retries; /* as they passed */
    uint64_t payload_up, payload_down;      /* what of them was an adapter */
} sim_peer;

typedef struct sim {
    const omm_simulate_options *options;
    const sim_setup *setup;
    const char *dir; /* of the run's bundle, its control's too */
    omm_coord *coord;
    omm_server *server;
    omm_client *client;
    sim_peer *peers; /* (setup->node_count) */
    sim_queue queue;
    uint64_t now_ms;
    uint64_t deadline_ms; /* the coordinator's next; OMM_COORD_NEVER */
    omm_pool *pool;
    omm_compute compute;  /* with the pool: one job, all threads */
    omm_compute *solo;    /* one per thread, without a pool: one job each */
    unsigned solo_count;  /* of those that are initialised */
    omm_buf heard;        /* first honest submission of round heard_round, as sent */
    uint32_t heard_round; /* ... */
    omm_buf overheard;    /* the same of the round before: what replaying peers send */
    omm_bytes overheard_view;
    omm_buf timeline;                 /* virtual/timeline.jsonl */
    double tokens_done, tokens_total; /* progress */
    uint64_t train_ns, evaluate_ns;   /* measured */
} sim;

/* --- replay.c and audit.c: train again from evidence ------------------------------------------ */

typedef struct sim_evidence {
    char dir[OMM_PATH_MAX];
    omm_arena arena;
    omm_run_record run;
    omm_round_record *rounds;
    size_t round_count;
    bool *is_bad; /* set by sim_evidence_about; NULL: nobody asks */
} sim_evidence;

/* Parse run.json and rounds.jsonl of a bundle.  Errors: NOT_FOUND, FORMAT, IO, NOMEM. */
OMM_CHECKED omm_err sim_evidence_open(sim_evidence *evidence, const char *dir);
void sim_evidence_close(sim_evidence *evidence);
/* What came of reading `path` of the bundle: where that is not there, or not what it must be, the sentence names it, and it
 * is the bundle's fault. */
OMM_CHECKED omm_err sim_evidence_about(const sim_evidence *evidence, const char *path, omm_err err);
/* MISMATCH where rounds.jsonl has not as many lines as run.json says rounds, said as sim_evidence_about says it. */
OMM_CHECKED omm_err sim_evidence_check_rounds(const sim_evidence *evidence);
/* Of `options`, with is_bad. */
OMM_CHECKED omm_err sim_evidence_open_for(sim_evidence *evidence,
                                          const omm_replay_options *options);

/* The model and data that a bundle's scenario names, here: of a simulation all, of a service without its nodes' data, and without
 * the held-out file unless it is to judge.  Errors: as omm_run_open; NOT_FOUND says where they were looked for. */
OMM_CHECKED omm_err sim_replay_setup(sim_setup *setup, sim_evidence *evidence,
                                     const omm_replay_options *options, bool judges);

typedef struct sim_replay {
    const sim_evidence *evidence;
    const omm_run *run;             /* the same model and data, opened again */
    const struct omm_dataset *data; /* the node's own; NULL: those of its client in `run` */
    omm_digest node;
    uint32_t round;
    uint32_t steps_max; /* 0: all, with the payload */
    const omm_compute *compute;
    void (*progress)(void *ud, uint32_t round, uint32_t step, uint32_t steps);
    void *ud;
} sim_replay;

/* Rounds that it trains: those before it that the node's residual comes from are among them.  Errors: as sim_replay_run. */
OMM_CHECKED omm_err sim_replay_rounds(uint32_t *rounds, const sim_replay *replay);
/* Errors: NOT_FOUND (no accepted submission of that node in that round), and those of training. */
OMM_CHECKED omm_err sim_replay_run(omm_replay_result *result, const sim_replay *replay);

/* What a token trained again costs against one of many nodes side by side: with all threads in one job, on lower
 * instruction sets; and in plain C. */
#define SIM_AUDIT_FACTOR 1.2
#define SIM_AUDIT_SCALAR_FACTOR 6.0
/* Repeat what the scenario's audit asks for and write measured/repro.json.
 * Errors: those of sim_replay_run but NOT_FOUND; a difference is written down, not an error. */
OMM_CHECKED omm_err sim_audit(sim *s, omm_bundle *bundle);

/* --- unmet.c: required gates that cannot pass ------------------------------------------------- */

/* Tell options->warn of each.  Errors: CONFIG (the policy), NOMEM. */
OMM_CHECKED omm_err sim_warn_unmet(const sim_setup *setup, const omm_simulate_options *options);

/* --- words.c: what cannot be meant ------------------------------------------------------------ */

typedef void (*sim_warn_fn)(void *ud, const char *sentence);
/* Tell `warn` of each.  Errors: NOMEM. */
OMM_CHECKED omm_err sim_warn_words(const sim_setup *setup, sim_warn_fn warn, void *ud);

/* --- outcome.c: what is printed at the end, read back from the bundle ------------------------- */

/* Fill before, after, clients, accepted, refused, rounds_void of `result` from the evidence. */
OMM_CHECKED omm_err sim_outcome_read(omm_simulate_result *result, const char *dir);
/* Write measured/wire.json, times.json, machine.json and virtual/timeline.jsonl. */
OMM_CHECKED omm_err sim_outcome_write(const sim *s, omm_bundle *bundle,
                                      const omm_simulate_result *result);

/* Open peers and coordinator state, run until every node knows that the run is closed. */
OMM_CHECKED omm_err sim_run(sim *s, omm_bundle *bundle);
void sim_close(sim *s); /* also after a failed sim_run */
void sim_report(sim *s, const char *phase);

#endif
