/* compare.h - two settings against each other, from the bundles of their runs.
 *
 *   bundles --settings, all but the seed--> sides A and B, in the order given; one or more seeds each
 *   held-out items, the same on both sides --> means of each client --> B - A
 *                                          --> bootstrap interval over clients (stats.h)
 *
 * Settings are scenario.yaml without seed, name and the paths of files, the base model's digest, how
 * many examples each client has, and policy.yaml.  A run says more than its seed only where others with
 * other seeds agree: with several on a side, each metric has their range and how many seeds took B's part.
 * Where a seed is on both sides, only runs of such seeds count: the same seed draws the same nodes, and another on one side
 * alone would lay its luck to the setting.  Where none is on both, seeds are a setting that differs, and the sides are told apart
 * only if all runs of one are below all of the other and that is no chance (under 5 % of the ways to share them out).
 * Fewer than OMM_COMPARE_CLIENTS_MIN clients all lean one way by chance too often: then as many seeds must, or the runs as above.
 *
 * Bundles are taken as they lie there: verify.h says whether they are what was signed.
 *
 * Depends on: base, gates, evidence.h.  Threads: no shared state.
 */
#ifndef OMM_COMPARE_H
#define OMM_COMPARE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/mem.h"
#include "omm/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_COMPARE_BUNDLES_MAX 256u
/* 2^(1 - 6) is 1 of 32, less than 5 %; of five clients it is 1 of 16. */
#define OMM_COMPARE_CLIENTS_MIN 6u

/* One setting that differs; NULL: that side does not have it. */
typedef struct omm_compare_setting {
    const char *
        path; /* "codec.up.kind", "population[1].count"; "(base model)", "(training data)", "policy.schema_version", "seed" */
    const char *a, *b;
} omm_compare_setting;

typedef enum omm_compare_quantity {
    OMM_COMPARE_LOSS,   /* nats a token of the held-out items, of the final adapter */
    OMM_COMPARE_EXACT,  /* share of generated replies that are the expected ones */
    OMM_COMPARE_PARSED, /* of items that ask for a tool: the reply is a call */
    OMM_COMPARE_TOOL,   /*   and of the right tool */
    OMM_COMPARE_QUANTITIES
} omm_compare_quantity;

typedef enum omm_compare_word {
    OMM_COMPARE_SAME,
    OMM_COMPARE_BETTER,
    OMM_COMPARE_WORSE,
    OMM_COMPARE_SEED, /* the clients agree, and it may be the seed: no run of the other side has it */
    OMM_COMPARE_FEW   /* they agree, and are too few for that to say anything */
} omm_compare_word;

/* Means over clients (each the mean of its items), then over the bundles of a side. */
typedef struct omm_compare_metric {
    bool known; /* false: no item of this kind */
    size_t clients;
    double a, b, difference;       /* b - a */
    omm_interval interval;         /* of the difference, 95 %, over clients */
    bool has_interval;             /* false: one client, of which there is none */
    omm_interval a_range, b_range; /* smallest and largest of a side's bundles */
    size_t seeds, seeds_better;    /* seeds that both sides have; those in which b is better */
    omm_compare_word word;         /* of b; SAME where the interval has 0, or there is none */
} omm_compare_metric;

typedef struct omm_compare_client {
    const char *name;
    size_t items;
    double a, b; /* loss */
} omm_compare_client;

typedef struct omm_compare_bundle {
    const char *dir; /* borrowed */
    bool is_b, has_seed;
    bool counts; /* false: others' seeds are on both sides, and its own is not */
    uint64_t seed;
    uint64_t up, down;                         /* bytes of completed exchanges, from the ledger */
    uint64_t refused;                          /* submissions */
    uint64_t missing;                          /* of selected nodes of which none came */
    uint32_t rounds, rounds_void, rounds_held; /* held: not void, and not published */
    double loss;
    const char *program; /* commit that sealed it */
} omm_compare_bundle;

typedef struct omm_comparison {
    const omm_compare_bundle *bundles;     /* as given */
    size_t bundle_count, a_count, b_count; /* of a side: that count */
    const omm_compare_setting *settings;
    size_t setting_count;
    omm_compare_metric metrics[OMM_COMPARE_QUANTITIES];
    const omm_compare_client *clients; /* ascending by name */
    size_t client_count, item_count;
    bool one_program; /* all were sealed by the same one */
    bool same_data;   /* where a seed is on both sides, its nodes trained on the same bytes */
    omm_arena arena;
} omm_comparison;

/* (count) 2 .. OMM_COMPARE_BUNDLES_MAX folders.  Errors: CONFIG (fewer or more than two settings; a seed, or of
 * a service a run_id, twice on a side), MISMATCH (not the same held-out items), NOT_FOUND, IO, FORMAT, NUMERIC, NOMEM, TOO_BIG; each names the bundle.
 * On error nothing is to be freed. */
OMM_CHECKED omm_err omm_compare(omm_comparison *out, const char *const *dirs, size_t count);
void omm_comparison_fini(omm_comparison *comparison);
/* For people; for programs one JSON object.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_comparison_text(omm_buf *out, const omm_comparison *comparison);
OMM_CHECKED omm_err omm_comparison_json(omm_buf *out, const omm_comparison *comparison);

#endif
