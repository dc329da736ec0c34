/* trainer_internal.h - the state of a training run, shared by trainer.c and checkpoint.c. */
#ifndef TRAIN_TRAINER_INTERNAL_H
#define TRAIN_TRAINER_INTERNAL_H

#include "checkpoint.h"
#include "core.h"
#include "graph.h"
#include "omm/trainer.h"
#include "optimizer.h"
#include "sequence.h"

struct omm_trainer {
    omm_trainer_options options; /* recipe points to our copy; start is not used after open */
    omm_recipe recipe;
    omm_lora lora;
    core core;       /* with parts = core, else zeroed */
    omm_lora *moved; /* what the optimiser moves: lora, or core.c */
    float *gradient; /* (lora.value_count) */
    float *start;    /* (moved->value_count) with prox_mu, else NULL */
    float *m, *v;    /* (state.m), (state.v) */
    optimizer_sizes state;
    float *room; /* a B per worker, for turning its gradient */
    float *nll;  /* (graph.rows_max) */
    graph graph;
    sequence sequence;
    uint32_t step;     /* done */
    uint64_t position; /* examples consumed: epoch * sequence.count + place */
    uint64_t tokens, learned;
    float *losses;     /* (recipe.steps) */
    omm_digest *chain; /* (recipe.steps + 1) */
    checkpoint_identity identity;
};

/* losses[steps] */
omm_train_result trainer_result_of(const float *losses, uint32_t steps, uint64_t tokens,
                                   uint64_t learned);

/* The adapter of a recipe (zero, or with a lane random), or a zero one laid out as `like`.
 * Errors: those of omm_recipe_adapter. */
OMM_CHECKED omm_err trainer_layout(omm_lora *out, const omm_recipe *recipe,
                                   const omm_lora_shape *shape, const omm_lora *like,
                                   const omm_rng *lane);

/* What omm_trainer_resume would check, and the steps that a checkpoint has done; changes nothing. */
OMM_CHECKED omm_err checkpoint_step(uint32_t *step, const omm_trainer *t, omm_bytes checkpoint);

#endif
