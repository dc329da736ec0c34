/* run_config.h - what a run is, in one struct that a scenario or a service file fills, and
 * everything that follows from it: model, held-out data, adapter layout, run record, evaluator.
 *
 *   scenario.yaml --scenarios/--+                    +--> omm_coord_options
 *                               +--> omm_run_config --omm_run_open--> omm_run
 *   coordinator.yaml --service--+                    +--> keys, run id, initial adapter
 *
 * The simulator and the service start from the same struct, so they write the same bytes.
 *
 * Depends on: base, compress, engine, train, artifacts, coordinator.h.
 * Threads: an omm_run is read-only after open, but its evaluator belongs to one thread at a time.
 */
#ifndef OMM_RUN_CONFIG_H
#define OMM_RUN_CONFIG_H

#include "omm/codec.h"
#include "omm/coordinator.h"
#include "omm/recipe.h"

struct omm_compute;
struct omm_dataset;
struct omm_lora;
struct omm_model;
struct omm_tokenizer;

/* One enrolled node. */
typedef struct omm_run_enrolled {
    const char *name;
    const char *client; /* whose lines of `train` are its data; "" when unknown (service) */
    omm_public_key public_key;
    bool extra; /* does not count for the quorum (hostile nodes of a scenario) */
} omm_run_enrolled;

/* What omm_run_open found wrong where a client of `nodes` is not in a data file, with NOT_FOUND; else OTHER. */
typedef enum omm_run_fault {
    OMM_RUN_FAULT_OTHER,
    OMM_RUN_FAULT_TRAIN_CLIENT, /* no example of it in `train` */
    OMM_RUN_FAULT_TEST_CLIENT,  /* none in `test` */
} omm_run_fault;

/* Borrowed until omm_run_open returns; strings of `nodes` and the two YAML texts for longer, as
 * long as the omm_run.  Paths can be opened as they are. */
typedef struct omm_run_config {
    const char *name;
    bool simulated; /* keys and seeds derive from run_seed; the evidence says so */
    bool has_seed;  /* run_seed = omm_seed_from_u64(seed), and the evidence names it */
    uint64_t seed;
    omm_seed run_seed;
    const char *model, *test; /* test NULL: nothing is judged, by who trains again alone */
    const char *train;        /* NULL: the nodes' data is unknown here (service) */
    uint32_t rounds;
    omm_coord_policy policy;
    double loss_increase_max;
    omm_recipe recipe;
    omm_codec_config codec_up, codec_down;
    double value_max;
    uint64_t weight_sum_max;
    double norm_max;
    uint64_t tokens_max;     /* per submission; 0: weight_sum_max over the number of nodes */
    uint32_t round_items;    /* held-out items of the round's sample, at least 1 */
    uint32_t new_tokens_max; /* of a generated reply before and after the run; 0: only losses */
    bool test_all_clients;   /* held-out items of all clients, not only of those enrolled */
    const omm_run_enrolled *nodes; /* any order */
    size_t node_count;
    uint32_t node_max; /* who joins later included; 0: the nodes above and nobody else */
    omm_key key;       /* the coordinator's */
    omm_bytes scenario_yaml, policy_yaml;
    /* Append eval/control.jsonl (omm_coord_evaluator); NULL: no control. */
    omm_err (*control)(void *ud, omm_buf *jsonl);
    void *control_ud;
    bool counts_no_cut;   /* as programs of before: run.json does not say what seq_max cuts */
    omm_run_fault *fault; /* receives it where opening fails; NULL: not asked for */
} omm_run_config;

/* Keys and ids that derive from the run seed of a scenario. */
void omm_run_node_key(omm_key *out, const omm_seed *run_seed, const char *name);
void omm_run_coordinator_key(omm_key *out, const omm_seed *run_seed);
void omm_run_bundle_key(omm_key *out, const omm_seed *run_seed);
/* 32 bytes: the key of a simulated node's data commitment. */
void omm_run_commit_key(uint8_t out[32], const omm_seed *run_seed, const char *name);
/* The seed of a service's run, from which nonces derive: drawn by the first call, and durable in state_dir/run_seed (0600)
 * before that returns; the same ever after.  Makes the folder.  Errors: IO, FORMAT (not 32 bytes), TOO_BIG (path). */
OMM_CHECKED omm_err omm_run_seed_keep(omm_seed *out, const char *state_dir);
/* First 16 bytes, in hex, of BLAKE2b-256("omm.run" || run seed || BLAKE2b-256(scenario_yaml)). */
void omm_run_id(char out[OMM_RUN_ID_SIZE], const omm_seed *run_seed, omm_bytes scenario_yaml);
/* Nonce of a round: KDF(run seed, round). */
void omm_run_nonce(uint8_t out[32], const omm_seed *run_seed, uint32_t round);

typedef struct omm_run omm_run;

/* Load the model, both data files, and work out the record.
 *
 *   compute  for evaluation; borrowed for the life of the run
 *
 * Errors: CONFIG, NOT_FOUND, IO, NOMEM, and those of model, data and codec. */
OMM_CHECKED omm_err omm_run_open(omm_run **out, const omm_run_config *config,
                                 const struct omm_compute *compute);
void omm_run_close(omm_run *run); /* NULL is fine */

/* For a progress bar: `judged` is called by who judges, now and then, with how many held-out items more are done; generates: each
 * with a reply, which takes many times as long. */
void omm_run_watch(omm_run *run, void (*judged)(void *ud, size_t items, bool generates), void *ud);

/* All borrowed from the run. */
const omm_run_record *omm_run_get_record(const omm_run *run);
const char *omm_run_model_path(const omm_run *run); /* of the first file, as it was opened */
const struct omm_model *omm_run_model(const omm_run *run);
const struct omm_tokenizer *omm_run_tokenizer(const omm_run *run);
const struct omm_compute *omm_run_compute(const omm_run *run);
/* Held-out items of the clients that count, and the whole of `train`; NULL where the configuration names none. */
const struct omm_dataset *omm_run_test_data(const omm_run *run);
const struct omm_dataset *omm_run_train_data(const omm_run *run);
/* Data of one client out of `train`; NULL when there is none of that name. */
const struct omm_dataset *omm_run_client_data(const omm_run *run, const char *client);

/* For omm_coord_options.enrolment: `run` takes up who joins.  `run` belongs to the coordinator's thread
 * from then on, but for nodes that others have been told of. */
void omm_run_enrolment(omm_coord_enrolment *out, omm_run *run, omm_clock clock);

/* Options for omm_coord_open: all that follows from the run; the caller adds bundle, state_dir,
 * crash_at, pool and log. */
void omm_run_coord_options(omm_coord_options *out, const omm_run *run);

#endif
