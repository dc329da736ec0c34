/* muon.h - momentum whose singular values are made equal, for the matrices of layers.  Inside train only.
 *
 * A matrix W [rows][cols] with gradient G, s its shorter side, l its longer one:
 *   m = momentum * m + G;  U = G + momentum * m
 *   X = U / (length of U, as adamw_norm has it); a U shorter than 1e-30 becomes zero
 *   R = X X^T [s][s], or X^T X if rows > cols;  Q = I
 *   5 times:  Z = a I + b R + c R R;  Q = Z Q;  R = (Z R) Z;  a, b, c = 3.4445, -4.775, 2.0315
 *   W = W - rate * (0.2 sqrt(l) Q X + decay * W), or X Q if rows > cols
 * which is five times X = (a I + b A + c A A) X with A = X X^T of that time.  Z and Q are polynomials of one R: their
 * products are symmetric, and of these, as of R, the lower half is computed and copied.
 * The rounds bring the singular values of Q X near to 1 (0.7 .. 1.2) unless they are tiny; the factor makes the
 * mean square of a move about that of AdamW, so both take one rate.  Rounding: what a round has in R for a
 * singular value near 0 is off by 1e-7 .. 1e-6 and grows to 20,000 times that in five rounds, which moves Z there
 * from a = 3.44 by a few percent; a singular value that is not tiny keeps five digits (muon_test.c).
 * Products are the chains of kernels.h and the length is that of adamw.h, so the bits depend on nothing but the input.
 *
 * Source: Jordan et al. 2024 (kellerjordan.github.io/posts/muon), its polynomial; Liu et al. 2025
 * (2502.16982) for the factor and the decay.
 * Threads: one call a compute context.  No allocation.
 */
#ifndef TRAIN_MUON_H
#define TRAIN_MUON_H

#include "omm/compute.h"

#include <stddef.h>

/* Borrowed views, [rows][cols] each. */
typedef struct muon_tensor {
    float *values;         /* updated */
    const float *gradient; /* clipped */
    float *m;              /* updated; zero before step 1 */
    size_t rows, cols;
} muon_tensor;

/* Floats that muon_update takes as scratch. */
size_t muon_scratch_count(size_t rows, size_t cols);
/* Multiply-adds of one update, for sharing work out. */
double muon_cost(size_t rows, size_t cols);
void muon_update(const omm_compute *c, const muon_tensor *t, float *scratch, float momentum,
                 float rate, float decay);

#endif
