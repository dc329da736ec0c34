/* federated.h - what the nodes of a run send about, and the adapter that it makes.
 *
 *   recipe + shape of the model        -->  names, sizes and order of the values
 *   values (averaged) + recipe + base  -->  adapter: to train from, to evaluate, to publish as GGUF
 *
 * The values are those of the adapter, A and B, with whatever ranks and scales the recipe's patterns
 * give to each layer.  With parts = core they are the cores alone, rank x rank a layer: A and B are
 * random, frozen, and known to everybody, since they follow from the digest of the base model and the
 * recipe's seed_lane.  The mean of what nodes send is then the mean of what their adapters do,
 * B mean(C) A, which that of A and of B is not.  All of it follows from the recipe's bytes, which every
 * offer and every bundle has, and from the model: so node, coordinator, replay and `verify` make the
 * same adapter.
 *
 *   seed of the halves = omm_seed_derive(digest of the base model, ADAPTER_INIT, "omm.core")
 *
 * Source of cores: Fed-SB (2502.15436).
 *
 * Depends on: engine's lora.h, compute.h; recipe.h, trainer.h.  Threads: no shared state.
 */
#ifndef OMM_FEDERATED_H
#define OMM_FEDERATED_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/recipe.h"
#include "omm/trainer.h"

struct omm_compute;
struct omm_lora;
struct omm_lora_shape;
struct omm_lora_spec;
struct omm_rng;

/* All borrowed. */
typedef struct omm_federated {
    const omm_recipe *recipe;
    const struct omm_lora_shape *shape;
    omm_digest base; /* of the model's file; with parts = core */
} omm_federated;

/* What offers and run.json say of it: the recipe's rank, alpha (as omm_recipe_lora_spec has it) and
 * targets; with patterns the largest rank of any layer, and every target that any layer has.
 * Errors: those of omm_recipe_plan. */
OMM_CHECKED omm_err omm_federated_spec(struct omm_lora_spec *out, const omm_federated *f);

/* The values of a run that begins, in their layout: B zero, A zero or with a lane as
 * omm_lora_init_random has it; cores zero, and of them only tensors and values are set.
 * Errors: those of omm_recipe_adapter. */
OMM_CHECKED omm_err omm_federated_begin(struct omm_lora *out, const omm_federated *f,
                                        const struct omm_rng *lane);

/* The adapter of `values`, which are as many as omm_federated_begin says.  Errors: those of
 * omm_recipe_adapter. */
OMM_CHECKED omm_err omm_federated_adapter(struct omm_lora *out, const omm_federated *f,
                                          const float *values, const struct omm_compute *compute);

/* The same of values that are read to where they are needed: `fill` writes as many as there are.
 * Errors: those of `fill` too. */
typedef omm_err (*omm_federated_read)(void *ud, float *values);
OMM_CHECKED omm_err omm_federated_adapter_read(struct omm_lora *out, const omm_federated *f,
                                               omm_federated_read fill, void *ud,
                                               const struct omm_compute *compute);

/* Append it as GGUF, the file of omm_lora_save.  Scales that its one alpha cannot say go into B, rounded
 * once per value where they differ by no power of two (omm_lora_fold).  Errors: those, NUMERIC (a
 * value is not finite, or leaves f32 with its scale), NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_federated_save(omm_buf *out, const omm_federated *f, const float *values,
                                       const struct omm_compute *compute);

OMM_CHECKED omm_err omm_federated_save_read(omm_buf *out, const omm_federated *f,
                                            omm_federated_read fill, void *ud,
                                            const struct omm_compute *compute);

/* A trainer that goes on from `values`; of `options` recipe and where it starts are not read.  f->recipe is
 * copied.  omm_trainer_moved has what the values become.  Errors: those of omm_trainer_open. */
OMM_CHECKED omm_err omm_federated_trainer(omm_trainer **out, const omm_federated *f,
                                          const omm_trainer_options *options, const float *values);

#endif
