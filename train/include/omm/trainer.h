/* trainer.h - LoRA training of a frozen model: same inputs, same bytes, on any machine.
 *
 *   open -> step, step, ... (done) -> adapter, result, chain of digests
 *            |  ^
 *          save  resume: an interrupted run ends with the same bytes
 *
 * A step takes the next examples of a seeded shuffle (of a stream: reads them), packs them into micro-batches (one sequence
 * per example, no attention across), sums gradients over 64-token chunks in ascending (sequence,
 * chunk) order, divides the loss by all learned tokens of the step, clips, and applies the recipe's optimiser.
 * Threads, micro-batch size and instruction set never change a bit of the result.
 *
 * Depends on: base; engine's model.h, compute.h, lora.h; dataset.h, recipe.h.
 * Threads: one trainer belongs to one thread at a time and uses the pool of its compute context;
 * any number of trainers may share one model and one dataset.
 */
#ifndef OMM_TRAINER_H
#define OMM_TRAINER_H

#include "omm/bytes.h"
#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/recipe.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stdint.h>

struct omm_model;
struct omm_compute;
struct omm_lora;
struct omm_train_watch;

typedef struct omm_trainer omm_trainer;

/* All borrowed for the life of the trainer, but `start`, `core` and `halves`, which are copied. */
typedef struct omm_trainer_options {
    const struct omm_model *model;
    const omm_dataset *data;
    const omm_recipe *recipe;
    const struct omm_compute *compute;
    omm_seed seed;                /* order of examples, dropout, and A where `start` is NULL */
    const struct omm_lora *start; /* the global adapter; NULL: random A, zero B */
    const float *
        core; /* with parts = core: what every C begins with, one after the other in the order of the
                          adapter, rank x rank each; NULL: as recipe.h says */
    const omm_seed *halves;  /* A, and B of a core, where `start` is NULL; NULL: `seed` */
    bool like_start;         /* ranks, scales and targets are those of start; the recipe's are not
                                     read */
    omm_digest model_digest; /* of the model's file: a checkpoint belongs to it.  Zeroed: to any
                                     model of its architecture and sizes */
    bool (*cancelled)(void *ud); /* asked before every micro-batch; NULL: never */
    void *ud;
    uint32_t micro_tokens; /* instead of the recipe's; 0: the recipe's.  Never the result */
    uint32_t
        checkpoint_layers; /* so many from the first keep their input alone and compute the rest
                                      again in backward: memory and time, never the result */
    size_t
        cache_bytes_max; /* of examples that were read from a stream; 0: as it was opened.  Never the
                               result */
    struct omm_train_watch *watch; /* borrowed; NULL: time is not measured */
} omm_trainer_options;

/* Errors: CONFIG (recipe), REFUSED_SHAPE (`start` does not match recipe or model), NOT_FOUND (no
 * examples), UNSUPPORTED (model), NOMEM. */
OMM_CHECKED omm_err omm_trainer_open(omm_trainer **out, const omm_trainer_options *options);
void omm_trainer_close(omm_trainer *trainer);

typedef struct omm_step_report {
    uint32_t step;       /* 1 .. recipe.steps */
    float loss;          /* mean over the learned tokens of this step, before the update */
    float grad_norm;     /* before clipping */
    float learning_rate; /* of this step */
    uint64_t tokens;     /* processed in this step */
    uint64_t learned;    /* of these, counted in the loss */
    omm_digest digest;   /* chain value after this step */
} omm_step_report;

/* Do one step; `report` may be NULL.
 * Errors: STATE (all steps are done), CANCELLED, NUMERIC (names step and tensor), NOMEM.  On error the
 * trainer is as it was before the step. */
OMM_CHECKED omm_err omm_trainer_step(omm_trainer *trainer, omm_step_report *report);
/* Step until done. */
OMM_CHECKED omm_err omm_trainer_run(omm_trainer *trainer);

bool omm_trainer_is_done(const omm_trainer *trainer);
/* Borrowed; changes with every step. */
const struct omm_lora *omm_trainer_adapter(const omm_trainer *trainer);
/* What the optimiser moves: the adapter; with parts = core the cores, of which only tensors (each
 * rank x rank, "blk.0.attn_q.core") and values are set.  Borrowed as above. */
const struct omm_lora *omm_trainer_moved(const omm_trainer *trainer);

typedef struct omm_train_result {
    uint32_t steps;   /* done so far */
    float loss_first; /* mean loss of the first ceil(steps / 8) steps */
    float loss_last;  /* and of the last */
    uint64_t tokens;
    uint64_t learned;
} omm_train_result;

omm_train_result omm_trainer_result(const omm_trainer *trainer);
/* Chain after `step` steps: chain(0) = H(values as f32 LE), chain(i) = H(chain(i-1) || values). */
omm_digest omm_trainer_chain(const omm_trainer *trainer, uint32_t step);

/* Append a checkpoint: recipe, seed, data digest, step, adapter, moments, chain.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_trainer_save(const omm_trainer *trainer, omm_buf *out);
/* Continue from a checkpoint, in a trainer opened with the same options.  Errors: FORMAT, SIZE,
 * VERSION, DIGEST (bytes damaged), MISMATCH (another recipe, seed, data, model or start adapter: which of these, but of a checkpoint
 * of before whose seed, data or start differs).
 * On error the trainer is unchanged. */
OMM_CHECKED omm_err omm_trainer_resume(omm_trainer *trainer, omm_bytes checkpoint);

#endif
