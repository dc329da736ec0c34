/* scenario.h - one YAML file that says everything about a federated run.
 *
 * Population (groups of nodes, their data, speed, links, faults), model and data, training recipe,
 * codecs, rounds, aggregation, evaluation, audit, gates.  The effective scenario, defaults written
 * out and paths as the author wrote them, goes into the evidence; its digest and the seed name the run.
 *
 * Depends on: base, compress (codec.h), train (recipe.h).  Threads: read-only after load.
 */
#ifndef OMM_SCENARIO_H
#define OMM_SCENARIO_H

#include "omm/codec.h"
#include "omm/config.h"
#include "omm/err.h"
#include "omm/file.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/recipe.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_SCENARIO_NODES_MAX 10000u

/* What a group of nodes does wrong, on purpose. */
typedef enum omm_hostile {
    OMM_HOSTILE_NONE,
    OMM_HOSTILE_UNSIGNED,      /* a submission with a zero signature */
    OMM_HOSTILE_WRONG_KEY,     /* signed by a key nobody enrolled */
    OMM_HOSTILE_REPLAYED,      /* an honest submission of an earlier round, sent again */
    OMM_HOSTILE_WRONG_CONTEXT, /* a submission signed as if it were a poll */
    OMM_HOSTILE_NAN,           /* the payload holds a NaN */
    OMM_HOSTILE_OUT_OF_RANGE,  /* the payload holds values over value_max */
    OMM_HOSTILE_WRONG_BASE,    /* trained on another base model, says the manifest */
    OMM_HOSTILE_TRUNCATED,     /* the payload ends early */
    OMM_HOSTILE_OVERSIZE,      /* announces more bytes than the offer allows */
    OMM_HOSTILE_ZSTD_BOMB,     /* a small frame that would unpack to gigabytes */
    OMM_HOSTILE_COUNT
} omm_hostile;

/* NULL-ended names, in the order of omm_hostile: "none", "unsigned", ... */
extern const char *const omm_hostile_names[];

typedef struct omm_scenario_group {
    const char *group;       /* name; hostile nodes are called GROUP-01, GROUP-02, ... */
    omm_config_list clients; /* const char *: one node per client of the training data */
    uint32_t count;          /* hostile groups: how many nodes */
    int hostile;             /* omm_hostile */
    double tokens_per_s;     /* virtual training speed */
    double slowdown;         /* divides the speed: 1 is none */
    double uplink_kbit_s, downlink_kbit_s;
    double latency_ms, jitter_ms; /* one way; jitter is uniform in [0, jitter_ms] per message */
    double dropout;               /* chance, per node and round, to vanish after taking the offer */
} omm_scenario_group;

#define OMM_SCENARIO_SEED_MAX ((uint64_t)1 << 53) /* what a reader of JSON has exactly */

typedef struct omm_scenario_round {
    uint32_t quorum;      /* ready nodes before a round opens; 0: all honest nodes */
    uint32_t select;      /* nodes selected per round; 0: all that are ready */
    uint64_t deadline_ms; /* from opening */
    uint32_t accept_min;  /* fewer accepted submissions at the deadline: the round is void */
    uint64_t join_ms; /* how long a round waits for its quorum; then it opens with who is ready */
    double loss_increase_max; /* a new adapter that is worse by more is not published */
} omm_scenario_round;

typedef struct omm_scenario_codecs {
    omm_codec_config up, down;
} omm_scenario_codecs;

typedef struct omm_scenario_aggregation {
    double value_max;        /* power of two; left out, what recipe.parts needs */
    uint64_t weight_sum_max; /* tokens, power of two */
    double norm_max;         /* L2 norm of one decoded update; 0: no bound */
} omm_scenario_aggregation;

typedef struct omm_scenario_evaluation {
    uint32_t round_items;    /* test items for the loss after each round; 0: all */
    bool generate;           /* generate replies before and after, for exact match */
    uint32_t new_tokens_max; /* of one reply */
    int clients;             /* 0: test items of the federated clients; 1: of all clients */
} omm_scenario_evaluation;

typedef struct omm_scenario_audit {
    uint32_t submissions;  /* sampled submissions that are trained again, whole */
    bool other_threads;    /* ... with another number of threads */
    bool lower_isa;        /* ... on the next lower instruction set */
    uint32_t scalar_steps; /* first steps of one submission in plain C; 0: none */
} omm_scenario_audit;

typedef struct omm_scenario {
    uint32_t schema_version; /* 1 */
    const char *name;
    uint64_t seed;
    const char *model, *train, *test; /* as written: relative to the scenario file */
    uint32_t rounds;
    omm_config_list population; /* omm_scenario_group */
    omm_scenario_round round;
    omm_recipe_yaml recipe;
    omm_scenario_codecs codec;
    omm_scenario_aggregation aggregation;
    omm_scenario_evaluation evaluation;
    bool control_uncompressed; /* also run with codec none, and compare losses */
    omm_scenario_audit audit;
    const char *policy; /* gate policy, relative to the scenario file; "" for the defaults */
} omm_scenario;

extern const omm_config_field omm_scenario_fields[];

/* Load and check `path`; everything lives in `arena`.  `seed` overrides the file's when not NULL.
 * Beyond the schema it refuses: names that are no plain file names, a client in two groups, a
 * hostile group with clients or without a count, an honest one without clients, paths that leave
 * the scenario's folder upwards, bounds that are no powers of two.
 * Errors: those of omm_config_load; CONFIG (names the key and what would be accepted). */
OMM_CHECKED omm_err omm_scenario_load(omm_scenario *out, const char *path, const uint64_t *seed,
                                      omm_arena *arena);
/* The same of a scenario that is sealed, or whose run goes on: what is refused only because nothing comes of it (keys of
 * another optimiser, `parts: a`, sums that are too coarse) stays as it was when it began. */
OMM_CHECKED omm_err omm_scenario_load_begun(omm_scenario *out, const char *path,
                                            const uint64_t *seed, omm_arena *arena);
OMM_CHECKED omm_err omm_scenario_parse(omm_scenario *out, omm_bytes text, const char *name,
                                       const uint64_t *seed, omm_arena *arena);

/* A node's or a group's name: letters, digits, '-', '_' and '.', not starting with a dot, so that it is safe in paths, logs,
 * metrics and on a terminal.  Errors: CONFIG, with `file`, `key` and what is accepted. */
OMM_CHECKED omm_err omm_scenario_check_name(const char *file, const char *key, const char *name);

/* Append the effective scenario as YAML: parses back to the same scenario.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_scenario_write(omm_buf *out, const omm_scenario *scenario);

/* BLAKE2b-256 of omm_scenario_write's bytes. */
OMM_CHECKED omm_err omm_scenario_digest(omm_digest *out, const omm_scenario *scenario);

/* One node of the population, in the order of the file. */
typedef struct omm_scenario_node {
    const char *name;   /* the client's name, or GROUP-NN; in the arena */
    const char *client; /* NULL for hostile nodes */
    const omm_scenario_group *group;
} omm_scenario_node;

size_t omm_scenario_node_count(const omm_scenario *scenario);
/* All nodes.  `nodes` is in the arena.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_scenario_nodes(omm_scenario_node **nodes, size_t *count,
                                       const omm_scenario *scenario, omm_arena *arena);

#endif
