/* full.h - training all weights of a model: for models small enough, and for models made from nothing.
 *
 *   model (F32) --open--> step, step, ... (done) --> the model holds the new weights; omm_full_save
 *                          |  ^
 *                        save  resume: an interrupted run ends with the same bytes
 *
 * A step is that of omm/trainer.h: the next examples of a seeded shuffle, gradients summed over 64-token
 * chunks in ascending (sequence, chunk) order, the loss divided by all learned tokens of the step,
 * clipping, the recipe's optimiser.  Decay is for matrices alone, not for norms and biases.  Threads,
 * micro-batch size and instruction set never change a bit of the result.
 *
 * Of the recipe, what is about adapters is not read: rank, alpha, targets, parts, dropout, prox_mu,
 * rslora, b_rate_ratio, activations.
 *
 * Memory: five f32 of each weight (in the model, flat, gradient, two moments), and the activations of
 * a micro-batch.
 *
 * Depends on: base; engine's model.h, compute.h, gguf.h; dataset.h, recipe.h.
 * Threads: as a trainer; the model belongs to it from open to close.
 */
#ifndef OMM_FULL_H
#define OMM_FULL_H

#include "omm/bytes.h"
#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/gguf.h"
#include "omm/recipe.h"
#include "omm/rng.h"
#include "omm/trainer.h"

#include <stdbool.h>
#include <stdint.h>

struct omm_model;
struct omm_compute;

typedef struct omm_full omm_full;

#define OMM_FULL_VALUES_MAX ((size_t)1 << 31) /* weights */

/* GaLore (2403.03507): the matrices of layers whose shorter side is over `rank` move by AdamW in a
 * subspace of their gradient, so that moments take rank x the longer side instead of all
 * entries.  Everything else moves by plain AdamW. */
typedef struct omm_full_galore {
    uint32_t rank;  /* 0: off; else the recipe's optimiser is AdamW */
    uint32_t every; /* steps from one subspace to the next, at least 1 */
    float scale;    /* of the rate in the subspace, over 0 */
} omm_full_galore;

/* Muon (Jordan et al. 2024, 2502.16982): the matrices of layers move along their momentum with its
 * singular values made equal, everything else by plain AdamW.  They keep one number of each weight
 * where AdamW keeps two, and a step takes longer by some products of each matrix with itself. */
typedef struct omm_full_muon {
    float rate;     /* of these matrices, as a multiple of the recipe's, over 0; 0: off, else the
                       recipe's optimiser is AdamW, without galore */
    float momentum; /* 0 <= m < 1 */
} omm_full_muon;

/* All borrowed for the life of the trainer. */
typedef struct omm_full_options {
    struct omm_model
        *model; /* its matrices become F32 at open, its weights change with every step */
    const omm_dataset *data;
    const omm_recipe *recipe;
    const struct omm_compute *compute;
    const omm_gguf *like;   /* what omm_full_save will be given, read at open: a checkpoint is of
                                    what the file has beside the weights, too; NULL: of the weights alone */
    omm_seed seed;          /* order of examples */
    bool listed;            /* one text of omm/documents.h after the other, each shuffled */
    omm_full_galore galore; /* zeroed: off */
    omm_full_muon muon;     /* zeroed: off */
    bool (*cancelled)(void *ud); /* asked before every micro-batch; NULL: never */
    void *ud;
    uint32_t micro_tokens, checkpoint_layers; /* as those of omm_trainer_options */
    size_t cache_bytes_max;                   /* as that of omm_trainer_options */
} omm_full_options;

/* Errors: CONFIG (recipe, galore, muon), NOT_FOUND (no examples), TOO_BIG (weights), NUMERIC (a weight is not finite),
 * NOMEM. */
OMM_CHECKED omm_err omm_full_open(omm_full **out, const omm_full_options *options);
void omm_full_close(omm_full *trainer);

typedef struct omm_full_report {
    uint32_t step;       /* 1 .. recipe.steps */
    float loss;          /* mean over the learned tokens of this step, before the update */
    float grad_norm;     /* before clipping */
    float learning_rate; /* of this step */
    uint64_t tokens;     /* processed in this step */
    uint64_t learned;    /* of these, counted in the loss */
} omm_full_report;

/* Do one step; `report` may be NULL.
 * Errors: STATE (all steps are done), CANCELLED, NUMERIC (names step and tensor), NOMEM.  On error the
 * model is as it was before the step. */
OMM_CHECKED omm_err omm_full_step(omm_full *trainer, omm_full_report *report);
uint32_t omm_full_steps(const omm_full *trainer); /* done */
bool omm_full_is_done(const omm_full *trainer);
uint64_t omm_full_tokens(const omm_full *trainer); /* processed so far */
size_t omm_full_values(const omm_full *trainer);   /* weights */
size_t omm_full_moments(const omm_full *trainer);  /* numbers that the optimiser keeps */
omm_train_result omm_full_result(const omm_full *trainer);
/* After the last step: set apart the output's rows of tokens that no step had.  Training only ever pushed them
 * away from what it predicted, all alike, so they end as one point, and no adapter could tell two of them
 * apart.  Each is moved by `spread` times the root mean square of how far the other rows lie from their
 * mean, its own way: a sum of such rows with random signs, which so has their covariance.  spread 0 moves
 * nothing.  *count: these tokens.  Errors: STATE (steps are left), NOMEM, those of reading data again. */
OMM_CHECKED omm_err omm_full_set_apart(omm_full *trainer, uint32_t *count, float spread);

/* BLAKE2b-256 of all weights as f32 LE: what two runs must have in common. */
omm_digest omm_full_digest(const omm_full *trainer);

/* Append a checkpoint: recipe, step, losses, weights, moments.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_full_checkpoint(const omm_full *trainer, omm_buf *out);
/* Go on from a checkpoint, in a trainer opened with the same options and the same start weights.
 * Errors: FORMAT, SIZE, VERSION, DIGEST (bytes damaged), MISMATCH (another recipe, seed, data, model: as
 * omm_trainer_resume; another vocabulary, chat template or other keys of `like`, which one of a version before 5 does
 * not know: it is taken whatever they are).
 * On error nothing has changed. */
OMM_CHECKED omm_err omm_full_resume(omm_full *trainer, omm_bytes checkpoint);

/* Append a GGUF file of the model's weights, all F32: keys as `like` has them (but for those of its
 * element types and parts), tensors in its order; what is no weight (rope factors) is copied from it.
 * `like` is of the same architecture and shape.  Errors: MISMATCH (names the tensor), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_full_save(omm_buf *out, struct omm_model *model, const omm_gguf *like);

#endif
