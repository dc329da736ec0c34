/* batch.h - one optimiser step's examples through a graph, in micro-batches.
 *
 * Micro-batches take whole examples while their tokens fit the graph's rows, at least one; gradients add
 * up in ascending order, so where they are cut never changes a bit.  Inside train only.
 */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "graph.h"
#include "omm/recipe.h"

typedef struct batch_options {
    graph *graph;
    const omm_example *const *examples; /* (count) */
    size_t count;
    uint64_t learned;      /* tokens that the loss counts, of all of them */
    float *nll;            /* (graph.rows_max) scratch */
    graph_dropout dropout; /* of the first token */
    float *gradient;       /* as graph_backward has it, zero before; NULL with graph.full */
    bool want_a, want_b;
    uint32_t step;               /* for the message */
    bool (*cancelled)(void *ud); /* asked before every micro-batch; NULL: never */
    void *ud;
} batch_options;

/* *loss = sum over the learned tokens.  Errors: CANCELLED, those of graph_forward. */
OMM_CHECKED omm_err batch_run(double *loss, const batch_options *options);

/* Rows of a micro-batch, where the longest example has `longest` tokens: no more than a batch or the
 * data have.  micro_tokens 0: the recipe's. */
size_t batch_rows_max(const omm_recipe *recipe, const omm_dataset *data, size_t longest,
                      uint32_t micro_tokens);

#endif
