/* adamw.h - AdamW over one flat vector, with global norm clipping and a FedProx pull.
 *
 * Elementwise f32 in one written order of operations; the norm is summed in
 * double over 16 lanes and a fixed tree, so bits depend on nothing but the input.  Inside train only.
 * Source: Loshchilov & Hutter 2019 (1711.05101), algorithm 2; Li et al. 2020 (1812.06127).
 */
#ifndef TRAIN_ADAMW_H
#define TRAIN_ADAMW_H

#include "omm/recipe.h"

#include <stddef.h>

/* Borrowed views of n floats each. */
typedef struct adamw_state {
    float *values;      /* the adapter, updated */
    float *m, *v;       /* moments, updated; zero before step 1 */
    float *gradient;    /* changed: proximal term added, clipped */
    const float *start; /* FedProx anchor; read when prox_mu > 0 */
    size_t count;
} adamw_state;

/* Square root of the sum of squares. */
double adamw_norm(const float *gradient, size_t count);

/* gradient += mu * (values - start), of entries [from, to). */
void adamw_prox(adamw_state *s, float mu, size_t from, size_t to);
/* Scale so that the norm is at most `limit` (0: leave); `norm` is what adamw_norm said. */
void adamw_clip(adamw_state *s, double norm, float limit);

/* Moments and update of entries [from, to) at step 1 ..:
 *   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g
 *   w = w - rate * ((m / c1) / (sqrt(v / c2) + eps) + decay * w),  c = 1 - b^step
 * c1 and c2 come from adamw_correction. */
void adamw_update(adamw_state *s, const omm_recipe *recipe, float rate, uint32_t step, size_t from,
                  size_t to);
/* 1 - beta^step, by repeated multiplication in double. */
float adamw_correction(float beta, uint32_t step);

#endif
