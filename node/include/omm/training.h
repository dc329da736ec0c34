/* training.h - what a node does between an offer and a submission: train one adapter from a start.
 *
 *   start (flat f32) --recipe, seed, local data--> trained (flat f32), losses, step digests
 *
 * omm_training is an interface of four calls, so that the node's protocol is tested without a
 * model; omm_training_open gives the real one, which replay uses too.
 *
 * Depends on: base, compress (layout); the real one: engine, train.
 * Threads: one omm_training belongs to one thread at a time; model and data may be shared.
 */
#ifndef OMM_TRAINING_H
#define OMM_TRAINING_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/layout.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stdint.h>

struct omm_compute;
struct omm_dataset;
struct omm_model;
struct omm_tokenizer;

#define OMM_STEP_DIGEST_BYTES 8u /* first bytes of the chain value after a step */

/* The adapter an offer asks for, as it says so. */
typedef struct omm_training_adapter {
    uint32_t rank, targets;
    float alpha;
} omm_training_adapter;

typedef struct omm_training_plan {
    uint32_t steps;
    uint64_t tokens;              /* at most: steps * batch */
    uint64_t pass_tokens;         /* in memory at once */
    uint64_t memory_bytes;        /* of the whole process, at the largest; 0: not known */
    omm_training_adapter adapter; /* as omm_federated_spec; the offer must say the same */
} omm_training_plan;

typedef struct omm_training_job {
    omm_bytes recipe; /* train's canonical bytes, from the offer */
    omm_bytes shard; /* omm/shard.h: train on this instead of the node's own data; size 0: do not */
    omm_seed seed;
    const float *start;          /* (value_count) */
    size_t value_count;          /* of the recipe's layout */
    omm_bytes checkpoint;        /* what save was last given for this very job; size 0: none */
    bool (*cancelled)(void *ud); /* asked often; may be NULL */
    /* Keep a checkpoint; called now and then from the training thread; may be NULL.  IO costs no more than that one. */
    omm_err (*save)(void *ud, omm_bytes checkpoint, uint32_t step);
    /* `step` steps are done: once before the first one here, then after each; may be NULL. */
    void (*progress)(void *ud, uint32_t step);
    void *ud;
} omm_training_job;

typedef struct omm_training_result {
    uint64_t tokens;   /* processed: the weight of the submission */
    uint64_t examples; /* in the local data, or the shard */
    uint32_t steps;
    float loss_before, loss_after;
} omm_training_result;

typedef struct omm_training omm_training;
struct omm_training {
    omm_digest base_digest, tokenizer_digest; /* of the model; an offer must name them */
    omm_digest data_commitment;               /* keyed digest of the data, for manifests */
    /* Borrowed layout of what a recipe trains, until the next call.  Errors: REFUSED_RECIPE (the model has
     * no such adapter), NOMEM. */
    omm_err (*layout)(omm_training *training, omm_layout *out, omm_bytes recipe);
    /* Errors: REFUSED_RECIPE; REFUSED_SIZE (no room for it in memory); MISMATCH (files have changed). */
    omm_err (*plan)(omm_training *training, omm_training_plan *out, omm_bytes recipe);
    /* Train.  The recipe must be for job->value_count values (REFUSED_RECIPE); values (value_count)
     * receives what they become; step_digests gets
     * OMM_STEP_DIGEST_BYTES per step.  Errors: CANCELLED, NUMERIC, NOMEM, those of plan. */
    omm_err (*run)(omm_training *training, omm_training_result *out, float *values,
                   omm_buf *step_digests, const omm_training_job *job,
                   const struct omm_compute *compute);
    /* Nothing is to be trained for a while: let go of memory, get it again when needed.  NULL: it
     * keeps none.  Cheap when there is none. */
    void (*rest)(omm_training *training);
    void (*close)(omm_training *training);
};

/* Where model and data are.  They are read when they are needed, and let go by rest. */
typedef struct omm_training_files {
    const char *model, *data; /* GGUF; as omm/dataset.h has it */
    const char *client;       /* only this client's lines; NULL or "": all */
    unsigned threads;         /* that will train: their scratch is planned */
    const char *newest;       /* gets the global adapter of every training, GGUF; NULL: none */
    uint64_t memory_max;      /* bytes of the whole process; 0: what the machine has left */
} omm_training_files;

/* Of a model and a node's data, all borrowed: either `files`, or both in memory with the digests of
 * the model.  base_digest is BLAKE2b-256 of the model file, commit_key 32 bytes that stay on the
 * node.  With files, plan refuses a recipe that does not fit into memory, and plan and run refuse files
 * that have changed since (MISMATCH).  Errors: NOMEM; with files those of reading them. */
typedef struct omm_training_options {
    const omm_training_files *files;
    const struct omm_model *model;
    const struct omm_dataset *data;
    const struct omm_tokenizer *tokenizer; /* without files; NULL: shards are refused */
    omm_digest base_digest, tokenizer_digest;
    uint8_t commit_key[32];
    uint32_t checkpoint_steps; /* save every so many steps; 0: every step.  Also after a step that
                                  ends half a minute after the last one, and when cancelled */
} omm_training_options;
OMM_CHECKED omm_err omm_training_open(omm_training **out, const omm_training_options *options);
static inline void omm_training_rest(omm_training *training) {
    if (training && training->rest) training->rest(training);
}
static inline void omm_training_close(omm_training *training) {
    if (training) training->close(training);
}

/* Seed of a node's training: KDF(nonce, node id). */
omm_seed omm_training_seed(const uint8_t nonce[32], const omm_digest *node_id);

#endif
