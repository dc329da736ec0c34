/* galore.h - AdamW in a subspace of a matrix's gradient that has few dimensions.  Inside train only.
 *
 * A matrix W [rows][cols] with gradient G, its shorter side s and rank r < s:
 *   P [s][r]     orthonormal columns (or zero) that span about the r strongest directions of G on that side;
 *                found anew every `every` steps
 *   rows <= cols:  R = P^T G;  D = AdamW(R);  W = W - rate * decay * W + P D
 *   rows >  cols:  R = G P;    D = AdamW(R);  W = W - rate * decay * W + D P^T
 * where AdamW(R) is the move of adamw.h at the rate rate * scale, without decay.  The moments stay as
 * they are when P changes.
 *
 * P: four rounds of P = orthonormal(G G^T P) (on the other side G^T G P), beginning with the P before,
 * at first with random numbers.  Orthonormal: column by column, in double, the earlier columns taken off
 * in ascending order, again and again (four times at most) until that takes less than half of the length; a column of
 * which nothing is left begins anew with random numbers.  In the end columns in which the gradient has no share, but
 * for rounding, are zero until P is found anew: it may have fewer directions than P, or none yet.  Products are the chains of kernels.h, so the bits depend on nothing but the input.
 *
 * Source: Zhao et al. 2024 (2403.03507), algorithm 2, with subspace iterations in place of an SVD.
 * Threads: the compute context's pool; one call at a time.  No allocation.
 */
#ifndef TRAIN_GALORE_H
#define TRAIN_GALORE_H

#include "omm/compute.h"
#include "omm/full.h"
#include "omm/recipe.h"
#include "omm/rng.h"

#include <stddef.h>
#include <stdint.h>

/* Borrowed views. */
typedef struct galore_tensor {
    float *values;         /* [rows][cols], updated */
    const float *gradient; /* [rows][cols], clipped */
    float *p;              /* [shorter side][rank], updated; from galore_begin before step 1 */
    float *m, *v;          /* [longer side][rank] values each, updated; zero before step 1 */
    size_t rows, cols, rank;
    omm_rng
        lane; /* that galore_begin took its numbers from: those behind them are for columns that begin anew */
} galore_tensor;

/* Values of p, of m (and of v), and of the scratch that galore_update takes. */
size_t galore_p_count(size_t rows, size_t cols, size_t rank);
size_t galore_m_count(size_t rows, size_t cols, size_t rank);
size_t galore_scratch_count(size_t rows, size_t cols, size_t rank);

/* p = numbers of the lane, in -1 .. 1. */
void galore_begin(float *p, size_t count, const omm_rng *lane);
/* Step 1 ... at learning rate `rate`. */
void galore_update(const omm_compute *c, const galore_tensor *t, float *scratch,
                   const omm_full_galore *galore, const omm_recipe *recipe, float rate,
                   uint32_t step);

#endif
