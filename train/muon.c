#include "muon.h"

#include "adamw.h"
#include "omm/kernels.h"

#include <math.h>

enum { ROUNDS = 5 };
static const float s_a = 3.4445F, s_b = -4.775F, s_c = 2.0315F;
static const double s_move = 0.2;       /* root mean square of a move, in rates */
static const double s_vanished = 1e-30; /* of a length whose inverse would leave f32 */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* U, X; R, Z, Q and one that is free. */
size_t muon_scratch_count(size_t rows, size_t cols) {
    const size_t s = min_size(rows, cols);
    return 2 * rows * cols + 4 * s * s;
}

/* Of X^T X half, Q X whole; of S, P, R four halves each, of the last S one, of Q four. */
double muon_cost(size_t rows, size_t cols) {
    const double s = (double)min_size(rows, cols), l = (double)max_size(rows, cols);
    return s * s * (1.5 * l + 0.5 * (4 * ROUNDS - 3) * s);
}

/* m = the next momentum; u = what is made orthogonal, of length 1. */
static void direction(float *u, const muon_tensor *t, float momentum) {
    const size_t count = t->rows * t->cols;
    for (size_t i = 0; i < count; i++) {
        const float g = t->gradient[i], m = momentum * t->m[i] + g;
        t->m[i] = m;
        u[i] = g + momentum * m;
    }
    const double length = adamw_norm(u, count);
    const float scale = length > s_vanished ? (float)(1 / length) : 0;
    for (size_t i = 0; i < count; i++) u[i] *= scale;
}

/* r = u times itself turned, over the longer side.  The linter does not see that it is written through g. */
static void gram(const omm_compute *c, float *r, /* NOLINT(readability-non-const-parameter) */
                 const float *u, const muon_tensor *t) {
    const size_t s = min_size(t->rows, t->cols), l = max_size(t->rows, t->cols);
    const omm_gemm g = {r, u, u, s, s, l, t->cols, t->cols, s, false};
    if (t->rows <= t->cols)
        omm_gemm_nt_symmetric(c, &g);
    else
        omm_gemm_tn_symmetric(c, &g);
}

/* out = a b of symmetric matrices [s][s] whose product is one. */
static void product(const omm_compute *c, float *out, const float *a, const float *b, size_t s) {
    omm_gemm_nn_symmetric(c, &(omm_gemm){out, a, b, s, s, s, s, s, s, false});
}

/* z = a I + b R + c R R. */
static void polynomial(const omm_compute *c, float *z, const float *r, size_t s) {
    product(c, z, r, r, s);
    for (size_t i = 0; i < s * s; i++) z[i] = s_b * r[i] + s_c * z[i];
    for (size_t i = 0; i < s; i++) z[i * s + i] += s_a;
}

static void exchange(float **a, float **b) {
    float *const was = *a;
    *a = *b;
    *b = was;
}

/* The rounds on r = U U^T, which is overwritten.  Returns Q, in `room` of 3 s s. */
static const float *rounds(const omm_compute *c, float *r, float *room, size_t s) {
    float *q = room, *z = room + s * s, *other = z + s * s;
    for (int i = 0; i < ROUNDS; i++) {
        polynomial(c, z, r, s);
        if (i + 1 < ROUNDS) {
            product(c, other, z, r, s);
            product(c, r, other, z, s);
        }
        if (i == 0) {
            exchange(&q, &z);
        } else {
            product(c, other, z, q, s);
            exchange(&q, &other);
        }
    }
    return q;
}

void muon_update(const omm_compute *c, const muon_tensor *t, float *scratch, float momentum,
                 float rate, float decay) {
    const size_t rows = t->rows, cols = t->cols, s = min_size(rows, cols);
    float *u = scratch, *x = u + rows * cols, *r = x + rows * cols;
    direction(u, t, momentum);
    gram(c, r, u, t);
    const float *q = rounds(c, r, r + s * s, s);
    if (rows <= cols)
        omm_gemm_nn(c, &(omm_gemm){x, q, u, rows, cols, rows, rows, cols, cols, false});
    else
        omm_gemm_nn(c, &(omm_gemm){x, u, q, rows, cols, cols, cols, cols, cols, false});
    const float move = (float)(s_move * sqrt((double)max_size(rows, cols)));
    for (size_t i = 0; i < rows * cols; i++) {
        const float w = t->values[i];
        t->values[i] = w - rate * (move * x[i] + decay * w);
    }
}
