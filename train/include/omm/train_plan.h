/* train_plan.h - how much memory training will take, told before the model is loaded, and what makes
 * it fit.
 *
 *   adapter      values and gradient: 8 bytes a parameter (12 with prox_mu or keeps_best), and room for
 *                one B; with cores B once more
 *   optimizer    its moments: 8 bytes a parameter that moves with AdamW
 *   activations  what layers keep for backward and what passes through, of one micro-batch
 *   logits       of the rows that the loss takes at once, whatever the number of tokens
 *   work         scratch of threads, rotary tables, one layer's keys and values, one product's inputs in
 *                int8, the log of steps
 *   checkpoint   the file while it is written, beside all of these
 *   writing      what writing adapter or model takes in the end, beyond what is given back by then
 *   reader       the order of the examples; of a stream the window over the file, one line of it while it becomes
 *                tokens, the batch, and (cache) the examples that it keeps
 *
 * Weights, vocabulary and data are the caller's.  Three things change memory and never the result: how
 * many layers keep their input alone and are computed again in backward, the tokens of a
 * micro-batch, and the cache of a stream's reader.
 *
 * Depends on: trainer.  Threads: no shared state.
 */
#ifndef OMM_TRAIN_PLAN_H
#define OMM_TRAIN_PLAN_H

#include "omm/full.h"
#include "omm/trainer.h"

#define OMM_TRAIN_PLAN_MICRO_TOKENS 256u /* fewer rows than this slow products down */

typedef struct omm_train_plan_options {
    const struct omm_model *model; /* may be an outline */
    const omm_recipe *recipe;
    const omm_dataset *data;     /* for its longest example */
    const struct omm_lora *like; /* the adapter has its ranks and targets; NULL: the recipe's */
    unsigned threads;
    bool
        full; /* all weights instead of an adapter: `adapter` is then a copy of them, their gradient, and
                  with keeps_best the best of them; the model's own, in F32, are the caller's */
    bool keeps_best;
    bool has_checkpoint; /* checkpoints are written on the way */
    bool writes;         /* what was trained becomes a file while the trainer is there */
    omm_full_galore galore;
    omm_full_muon muon;
    uint32_t checkpoint_layers; /* at least; omm_train_plan_make: exactly */
    uint32_t micro_tokens;      /* at most; 0: the recipe's */
} omm_train_plan_options;

typedef struct omm_train_plan {
    uint32_t micro_tokens, checkpoint_layers; /* for omm_trainer_options */
    uint32_t longest;                         /* tokens of the longest example */
    uint64_t parameters;                      /* of the adapter, cores or all weights */
    uint64_t adapter, optimizer, activations, logits, work, checkpoint, writing, reader; /* bytes */
    uint64_t total; /* their sum */
    uint64_t cache; /* of `reader`, for omm_trainer_options: at least 1 */
    /* Not of the total: what an evaluation takes for the adapter, and each of its workers; 0 with `full`. */
    uint64_t judged, judging;
} omm_train_plan;

/* Errors: CONFIG (recipe), NOT_FOUND (no examples), NOMEM. */
OMM_CHECKED omm_err omm_train_plan_make(omm_train_plan *out, const omm_train_plan_options *options);
/* The same within bytes_max.  The first of these that fits, because it costs least time: micro-batches
 * of fewer tokens, down to OMM_TRAIN_PLAN_MICRO_TOKENS or the longest example; layers computed again, as
 * few as are needed; micro-batches of one example.  What is left then is the cache of a stream's reader.
 * Errors: as above; CONFIG (nothing fits: says the least). */
OMM_CHECKED omm_err omm_train_plan_fit(omm_train_plan *out, const omm_train_plan_options *options,
                                       uint64_t bytes_max);
/* The least: one example at a time, all layers computed again, no cache; and in *longest the most tokens to which
 * examples may be cut so that the least is within bytes_max, 0: none.  Errors: as omm_train_plan_make. */
OMM_CHECKED omm_err omm_train_plan_least(omm_train_plan *out, uint32_t *longest,
                                         const omm_train_plan_options *options, uint64_t bytes_max);

#endif
