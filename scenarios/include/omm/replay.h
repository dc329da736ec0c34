/* replay.h - train a submission of a bundle again, or judge its held-out items again, and compare bytes.
 *
 *   bundle: offer, global adapter, manifest     data: the node's lines of the training file
 *        \                                       /
 *         train again (chained over the rounds since the node's last zero residual)
 *                          |
 *          step digests, canonical payload: equal, or the first step, tensor and element that differ
 *
 * Depends on: all folders below scenarios.  Threads: uses the compute context given.
 */
#ifndef OMM_REPLAY_H
#define OMM_REPLAY_H

#include "omm/compute.h"
#include "omm/err.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct omm_replay_options {
    const char *bundle; /* folder */
    /* Folder that the scenario's model and data paths start from; NULL: the current one, or scenarios/ in it where the
     * model is not in the former. */
    const char *base_dir;
    const char *node; /* name, or at least 8 hex digits of the id */
    /* Of a service's bundle, for who has them: the node's data, as its node.yaml names them, and its client there (NULL: all
     * lines); the held-out file is not needed.  model: a file instead of the scenario's; NULL: that. */
    const char *own_data, *client, *model;
    uint32_t round;
    uint32_t
        steps_max; /* compare only the first steps, by their digests; 0: the whole submission */
    const omm_compute *compute;
    void (*progress)(void *ud, uint32_t round, uint32_t step, uint32_t steps);
    void (*judging)(void *ud, const char *path); /* that is repeated now; may be NULL */
    void *ud;
    /* Set where an error is the bundle's: a file of it that is missing, or not what it must be, which the sentence names.  It has
     * failed then, and trying again gives no other answer.  May be NULL. */
    bool *is_bad;
} omm_replay_options;

typedef struct omm_replay_result {
    bool equal;
    uint32_t rounds_trained; /* length of the chain */
    uint32_t steps_compared; /* in the last round */
    omm_digest expected,
        repeated;     /* canonical digests; with steps_max: step digests, zero padded */
    uint32_t round;   /* where the first difference is, when !equal */
    uint32_t step;    /* first step whose digest differs, 1-based; 0: no step does */
    char tensor[128]; /* first tensor of the decoded payload that differs; "" if none */
    uint32_t row, column;
    float value_expected, value_repeated;
    /* What the node said of its work beside the payload, where that is not so: "tokens", its weight in the mean; "examples",
     * "steps", "loss_before", "loss_after", "step_digests", "residual_after"; "base_digest" and "global_digest", what it says it began
     * from; "" if all of it is.  Not with steps_max, but for "steps", "step_digests" and the last two. */
    char claim[24];
    char claim_signed[OMM_DIGEST_HEX_SIZE], claim_repeated[OMM_DIGEST_HEX_SIZE]; /* as text */
} omm_replay_result;

/* Errors: CONFIG (also: `node` is more than one of them; own_data of a simulation; model or data that are not those of the run), USAGE (steps_max: over the round's), UNSUPPORTED (a service's,
 * without own_data), NOT_FOUND (no such node or submission, files), DIGEST (not the submission that was accepted), FORMAT, NOMEM, and those of training.  A difference is no error: see result->equal. */
OMM_CHECKED omm_err omm_replay(omm_replay_result *result, const omm_replay_options *options);

/* eval/ of a bundle, repeated. */
typedef struct omm_reevaluate_result {
    bool equal;
    size_t
        rows; /* of eval/before.jsonl and eval/after.jsonl that were compared, up to the first that differs */
    size_t states; /* lines of eval/rounds.jsonl that were */
    size_t
        states_left; /* and were not: candidates that were held back, whose adapters no bundle has */
    bool
        has_control; /* there is an eval/control.jsonl, which is not repeated: simulating the scenario again gives it */
    char path[32]; /* where the first difference is, when !equal */
    size_t line;   /* from 1; 0: the files are not of one length, or it is run.json */
    char what[24]; /* "nll", "reply", ...; of run.json a member, as "test.items" */
    char said[256], repeated[256]; /* as text, cut */
} omm_reevaluate_result;

/* Of the options bundle, base_dir, compute, judging and ud count.  A service's bundle as well, for whoever has its held-out file.
 * What run.json says of model and held-out file is compared first.  Whether the bundle is what was signed nobody asks: omm_bundle_verify.
 * Errors: those of omm_replay; CONFIG (model or held-out file are not those of the run). */
OMM_CHECKED omm_err omm_reevaluate(omm_reevaluate_result *result,
                                   const omm_replay_options *options);

#endif
