/* optimizer.h - how one tensor of the adapter moves, by the optimiser of the recipe.
 *
 *   adamw      m, v of the size of what moves (adamw.h)
 *   sgd        m of that size
 *   adafactor  v with rows + cols numbers of each tensor that moves
 *
 * One written order of operations, sums in double over 16 lanes and a fixed tree, so bits depend on
 * nothing but the input.  Inside train only.  No allocation.
 * Source: Sutskever et al. 2013 as PyTorch spells it (SGD); Shazeer & Stern 2018 (1804.04235),
 * algorithm 4 with the decay of section 7.1: beta2 corrected for its start, no pow of the step.
 */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "omm/lora.h"
#include "omm/recipe.h"

#include <stddef.h>

/* Floats of state. */
typedef struct optimizer_sizes {
    size_t m, v;
} optimizer_sizes;
optimizer_sizes optimizer_sizes_of(const omm_recipe *recipe, const omm_lora *lora);

/* Borrowed views of one tensor, [rows][cols]. */
typedef struct optimizer_tensor {
    float *values;   /* updated */
    float *gradient; /* after clipping; Adafactor leaves the update's direction there */
    float *m, *v;    /* of this tensor, updated; zero before step 1 */
    size_t rows, cols;
} optimizer_tensor;

/* With g the gradient, w the values, all decay decoupled:
 *   sgd        m = momentum m + g;  d = m, or with nesterov g + momentum m;  w -= rate (d + decay w)
 *   adafactor  b = beta2 (1 - beta2^(step-1)) / (1 - beta2^step)
 *              R_i = b R_i + (1 - b) mean_j(g^2 + 1e-30), C_j alike over i
 *              u = g / sqrt(R_i C_j / mean(R));  u /= max(1, rms(u))
 *              relative_step: rate *= max(1e-3, rms(w));  w -= rate (u + decay w) */
void optimizer_sgd(const optimizer_tensor *t, const omm_recipe *recipe, float rate);
void optimizer_adafactor(const optimizer_tensor *t, const omm_recipe *recipe, float rate,
                         uint32_t step);

/* Update one tensor by the optimiser of the recipe. */
void optimizer_one(const optimizer_tensor *t, const omm_recipe *recipe, float rate, uint32_t step);

/* Tensors first .. end - 1 of an adapter, and where their state begins in m and v. */
typedef struct optimizer_part {
    size_t first, end, m_at, v_at;
} optimizer_part;
/* What follows `before` ({0}: the beginning): whole tensors of together at least `values` values, at
 * least one, or all that are left. */
optimizer_part optimizer_part_after(const optimizer_part *before, const omm_recipe *recipe,
                                    const omm_lora *lora, size_t values);

/* Update the tensors of a part that the recipe does not freeze, at step 1 ...  B's rate is
 * b_rate_ratio times `rate`.  gradient[value_count]; m, v of all, as optimizer_sizes_of says. */
void optimizer_update(omm_lora *lora, float *gradient, float *m, float *v,
                      const optimizer_part *part, const omm_recipe *recipe, float rate,
                      uint32_t step);

#endif
