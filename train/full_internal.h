/* full_internal.h - the state of a run over all weights, shared by full_trainer.c, full_update.c and
 * full_checkpoint.c. */
#ifndef TRAIN_FULL_INTERNAL_H
#define TRAIN_FULL_INTERNAL_H

#include "checkpoint.h"
#include "full.h"
#include "galore.h"
#include "muon.h"
#include "omm/full.h"
#include "sequence.h"

/* Some elements of a tensor, updated in one task; for all optimisers but AdamW all of them. */
typedef struct full_slice {
    const full_tensor *tensor;
    size_t from, to;   /* in the tensor */
    size_t m_at, v_at; /* where its moments begin */
} full_slice;

/* A matrix that moves in a subspace (galore.h) or by muon.h. */
typedef struct full_projected {
    const full_tensor *tensor;
    size_t m_at, v_at, p_at;
} full_projected;

struct omm_full {
    omm_full_options options; /* recipe points to our copy */
    omm_recipe recipe;        /* without what is about adapters */
    full_tensors tensors;
    full sums;
    graph graph;
    sequence sequence;
    float *values;   /* (tensors.value_count) */
    float *m, *v;    /* (m_count), (v_count) */
    double *squares; /* (tensors.count) of the gradient */
    full_slice *slices;
    full_projected *projected;
    float *p;       /* (p_count) */
    float *scratch; /* of one matrix that moves in a subspace; with muon (workers x muon_scratch) */
    size_t muon_scratch;
    size_t m_count, v_count, p_count, slice_count, projected_count;
    float *nll;        /* (graph.rows_max) */
    float *losses;     /* (recipe.steps) */
    uint32_t step;     /* done */
    uint64_t position; /* examples consumed */
    uint64_t tokens, learned;
    checkpoint_identity identity, before; /* as checkpoint_run has them */
};

/* What omm_full_resume would check, and the steps that a checkpoint has done; changes nothing. */
OMM_CHECKED omm_err full_checkpoint_step(uint32_t *step, const omm_full *t, omm_bytes checkpoint);

/* Of what omm_full_save takes from `like`: keys in their order, names and shapes of tensors, what is no weight. */
omm_digest full_like_digest(const omm_gguf *like);

/* The smaller side of a layer's matrix, of which GaLore takes its rank's directions; 0 of anything else. */
uint32_t full_side_of(const full_tensor *x);

/* Numbers that the optimiser keeps, and its scratch. */
typedef struct full_sizes {
    uint64_t m, v, p, scratch;
} full_sizes;
full_sizes full_sizes_of(const omm_recipe *recipe, uint32_t galore_rank, bool muon,
                         unsigned workers, const full_tensors *t);

/* Errors: NOMEM. */
OMM_CHECKED omm_err full_update_open(omm_full *t);
void full_update_close(omm_full *t);
/* Norm of the gradient; the squares of each tensor stay in t->squares. */
double full_gradient_norm(omm_full *t);
/* Clip to the recipe's limit and move the weights: step t->step + 1.  The model follows. */
void full_update(omm_full *t, double norm, float rate);

#endif
