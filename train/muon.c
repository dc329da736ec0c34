#include "muon.h"

#include "adamw.h"
#include "omm/kernels.h"

#include <math.h>
#include <string.h>

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

/* X, the next X, A, A A. */
size_t muon_scratch_count(size_t rows, size_t cols) {
    const size_t s = min_size(rows, cols);
    return 2 * (rows * cols + s * s);
}

double muon_cost(size_t rows, size_t cols) {
    const double s = (double)min_size(rows, cols), l = (double)max_size(rows, cols);
    return ROUNDS * s * s * (2 * l + s);
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

/* p = a I + b A + c A A, of A = `from` times itself turned; square is scratch. */
static void polynomial(const omm_compute *c, float *p, float *square, const float *from,
                       const muon_tensor *t) {
    const size_t s = min_size(t->rows, t->cols), l = max_size(t->rows, t->cols);
    const omm_gemm g = {p, from, from, s, s, l, t->cols, t->cols, s, false};
    if (t->rows <= t->cols)
        omm_gemm_nt(c, &g);
    else
        omm_gemm_tn(c, &g);
    omm_gemm_nn(c, &(omm_gemm){square, p, p, s, s, s, s, s, s, false});
    for (size_t i = 0; i < s * s; i++) p[i] = s_b * p[i] + s_c * square[i];
    for (size_t i = 0; i < s; i++) p[i * s + i] += s_a;
}

void muon_update(const omm_compute *c, const muon_tensor *t, float *scratch, float momentum,
                 float rate, float decay) {
    const size_t rows = t->rows, cols = t->cols, s = min_size(rows, cols);
    float *x = scratch, *next = x + rows * cols, *p = next + rows * cols, *square = p + s * s;
    direction(x, t, momentum);
    for (int i = 0; i < ROUNDS; i++) {
        polynomial(c, p, square, x, t);
        if (rows <= cols)
            omm_gemm_nn(c, &(omm_gemm){next, p, x, rows, cols, rows, rows, cols, cols, false});
        else
            omm_gemm_nn(c, &(omm_gemm){next, x, p, rows, cols, cols, cols, cols, cols, false});
        float *const before = x;
        x = next;
        next = before;
    }
    const float move = (float)(s_move * sqrt((double)max_size(rows, cols)));
    for (size_t i = 0; i < rows * cols; i++) {
        const float w = t->values[i];
        t->values[i] = w - rate * (move * x[i] + decay * w);
    }
}
