/* simulate.h - run a scenario: all nodes and the coordinator in one process, in virtual time.
 *
 *   one event queue ordered by (virtual time, node, sequence)
 *   node --request--> nng inproc:// --> coordinator --reply--> nng inproc:// --> node
 *
 * The node and coordinator code is the service's own; every encoded message really passes nng, one in
 * flight.  Training jobs that run at the same virtual time run in parallel, one thread each; nothing
 * in the evidence depends on how many threads there are or how fast they are.
 *
 * Depends on: all folders below scenarios.  Threads: one simulation per call; several calls may run.
 */
#ifndef OMM_SIMULATE_H
#define OMM_SIMULATE_H

#include "omm/clock.h"
#include "omm/compute.h"
#include "omm/err.h"
#include "omm/file.h"
#include "omm/hash.h"
#include "omm/judge.h"
#include "omm/log.h"

#include <stdbool.h>
#include <stdint.h>

/* What is going on, for a progress bar.  `done` and `total` count the same thing (tokens to train, and what is judged and
 * trained again in as many) over the whole run; done never goes back, and total is set right once, when the audit knows what
 * it repeats. */
typedef struct omm_simulate_progress {
    uint32_t round, rounds; /* 1-based; round 0 before the first */
    const char *phase;      /* "evaluate base", "train", "aggregate", "audit", ... */
    double done, total;
    const char *dir; /* of the bundle that is written */
} omm_simulate_progress;

typedef struct omm_simulate_options {
    const char *scenario; /* path of the scenario file */
    const uint64_t *seed; /* overrides the scenario's; NULL: as written */
    const char *out;      /* folder of the bundle; NULL: artifacts/runs/<time>-<name> */
    unsigned threads;     /* at least 1 */
    omm_isa isa;
    omm_clock clock;    /* names the bundle and measures; never in deterministic evidence */
    const char *commit; /* of this program */
    const char *build;  /* compiler, preset */
    const omm_log *log; /* may be NULL */
    void (*progress)(void *ud, const omm_simulate_progress *progress); /* may be NULL */
    /* Before the run: one sentence for each required gate that nothing of this scenario will give a sample, and one where
     * the model's file does not say how texts are cut into words.  May be NULL. */
    void (*warn)(void *ud, const char *sentence);
    void *ud;
} omm_simulate_options;

/* Sums over the items of an eval file. */
typedef struct omm_simulate_eval {
    uint64_t items, tokens, calls, replies;
    uint64_t generated; /* items with a reply: of none the counts below say nothing */
    double loss;        /* nats per learned token, over all tokens */
    double
        item_loss; /* nats per token, mean over the items: of a client what gates and comparisons take */
    uint64_t parsed;      /* of calls: the reply holds one well-formed call */
    uint64_t tool_ok;     /* of calls: the right tool is named */
    uint64_t call_exact;  /* of calls: arguments too */
    uint64_t reply_exact; /* of replies: equal to the reference */
} omm_simulate_eval;

/* One client of the held-out data. */
typedef struct omm_simulate_client {
    char name[65];
    omm_simulate_eval before, after;
} omm_simulate_client;

typedef struct omm_simulate_result {
    char dir[OMM_PATH_MAX]; /* of the bundle */
    bool is_begun;          /* what lies there is this run's; also after an error */
    omm_digest run_digest;
    omm_judgement judgement; /* verdicts */
    bool is_judged;          /* judgement is filled */
    omm_simulate_eval before, after;
    omm_simulate_client *clients; /* ascending by name, owned */
    size_t client_count;
    double client_loss_before, client_loss_after; /* means of the clients' item_loss */
    uint32_t rounds, rounds_void, nodes;
    uint32_t rounds_held; /* not void, but worse by more than loss_increase_max: not published */
    uint64_t accepted, refused;
    uint64_t missing; /* of nodes that were asked, and of which nothing came before the deadline */
    char refusals
        [512]; /* their reasons: "REFUSED_RANGE 5, REFUSED_LATE 1"; "" where there are none */
    uint64_t values_kept, values;  /* of a delta: that one submission carries, and that it has */
    uint64_t bytes_up, bytes_down; /* wire bytes as they passed, overhead included */
    uint64_t bytes_fp32;           /* the same with all adapters in f32; 0: nothing was accepted */
    uint64_t virtual_ms;           /* virtual time at the end */
    double train_s, evaluate_s, audit_s, total_s; /* measured */
} omm_simulate_result;

/* Run, seal and judge.  A failed gate is no error: see judgement.passed.
 * Errors: CONFIG, NOT_FOUND, IO, NOMEM, EXISTS (out is there), and those of the run.
 * On error an unfinished bundle may stay in the folder, without a manifest: see result->is_begun. */
OMM_CHECKED omm_err omm_simulate(omm_simulate_result *result, const omm_simulate_options *options);
void omm_simulate_result_fini(omm_simulate_result *result);

#endif
