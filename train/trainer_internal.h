/* trainer_internal.h - the state of a training run, shared by trainer.c and checkpoint.c. */
#ifndef TRAIN_TRAINER_INTERNAL_H
#define TRAIN_TRAINER_INTERNAL_H

#include "graph.h"
#include "omm/trainer.h"

struct omm_trainer {
    omm_trainer_options options; /* recipe points to our copy; start is not used after open */
    omm_recipe recipe;
    omm_lora lora;
    float *start, *m, *v, *gradient; /* (lora.value_count) each */
    float *scratch;                  /* one B, for transposing */
    float *nll;                      /* (graph.rows_max) */
    graph graph;
    omm_example *examples; /* views, cut to recipe.seq_max; all have something to learn */
    uint32_t *order;       /* of the epoch `order_epoch` */
    uint64_t order_epoch;
    size_t example_count;
    const omm_example **batch; /* (example_count) of the step at hand */
    uint32_t step;             /* done */
    uint64_t position;         /* examples consumed: epoch * example_count + place */
    uint64_t tokens, learned;
    float *losses;     /* (recipe.steps) */
    omm_digest *chain; /* (recipe.steps + 1) */
    omm_digest identity;
};

#endif
