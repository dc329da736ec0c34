#include "galore.h"

#include "adamw.h"
#include "omm/kernels.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 4, PASSES = 4, ATTEMPTS = 4 };
static const double s_vanished = 1e-30; /* of a column's length */
static const double s_rounding =
    1e-6; /* of the gradient's norm: some times what rounding leaves in a column */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t galore_p_count(size_t rows, size_t cols, size_t rank) {
    return min_size(rows, cols) * rank;
}

size_t galore_m_count(size_t rows, size_t cols, size_t rank) {
    return max_size(rows, cols) * rank;
}

/* The projected gradient, its move, and a move of the whole. */
size_t galore_scratch_count(size_t rows, size_t cols, size_t rank) {
    return 2 * galore_m_count(rows, cols, rank) + rows * cols;
}

void galore_begin(float *p, size_t count, const omm_rng *lane) {
    for (size_t i = 0; i < count; i++) p[i] = 2 * omm_rng_unit(lane, i) - 1;
}

/* --- the subspace ---------------------------------------------------------------------------- */

/* out = one side of the gradient times q, summed over the other: G^T q (turned) or G q. */
static void times(const omm_compute *c, float *out, const galore_tensor *t, const float *q,
                  bool turned) {
    const size_t r = t->rank, m = turned ? t->cols : t->rows, k = turned ? t->rows : t->cols;
    omm_gemm g = {NULL, t->gradient, q, m, r, k, t->cols, r, r, false};
    g.c = out;
    if (turned)
        omm_gemm_tn(c, &g);
    else
        omm_gemm_nn(c, &g);
}

static double dot(const float *a, const float *b, size_t n, size_t stride) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i * stride] * (double)b[i * stride];
    return sum;
}

/* Takes the first j columns of q [n][r] off its column j.  False: nothing that is not rounding was left. */
static bool take_off(float *q, size_t n, size_t r, size_t j) {
    float *x = q + j;
    double length = sqrt(dot(x, x, n, r));
    for (int pass = 0; pass < PASSES; pass++) {
        const double before = length;
        for (size_t k = 0; k < j; k++) {
            const double share = dot(x, q + k, n, r);
            for (size_t i = 0; i < n; i++)
                x[i * r] = (float)((double)x[i * r] - share * (double)q[i * r + k]);
        }
        length = sqrt(dot(x, x, n, r));
        if (length <= s_vanished) return false;
        for (size_t i = 0; i < n; i++) x[i * r] = (float)((double)x[i * r] / length);
        if (length >= 0.5 * before) return true;
        length = 1;
    }
    return false;
}

/* Columns of q [n][r], r < n.  Numbers that are new to the lane: those of a step lie behind those before. */
static void orthonormal(float *q, const galore_tensor *t, size_t n, uint64_t draw) {
    const size_t r = t->rank;
    for (size_t j = 0; j < r; j++)
        for (int attempt = 0; attempt < ATTEMPTS && !take_off(q, n, r, j); attempt++)
            for (size_t i = 0; i < n; i++)
                q[i * r + j] = 2 * omm_rng_unit(&t->lane, draw++ * r + j) - 1;
}

/* r = the gradient in the subspace. */
static void project(const omm_compute *c, float *r, const galore_tensor *t) {
    const size_t k = t->rank;
    if (t->rows <= t->cols)
        omm_gemm_tn(
            c, &(omm_gemm){r, t->p, t->gradient, k, t->cols, t->rows, k, t->cols, t->cols, false});
    else
        times(c, r, t, t->p, false);
}

/* What is left of a gradient in a direction that it does not have is rounding, and AdamW moves by that as far as by any
 * other: such columns become zero. */
static void leave_out(const omm_compute *c, const galore_tensor *t, size_t n, float *scratch) {
    const size_t k = t->rank, count = t->rows * t->cols;
    const bool left = t->rows <= t->cols;
    const double least = s_rounding * sqrt(dot(t->gradient, t->gradient, count, 1));
    project(c, scratch, t);
    for (size_t j = 0; j < k; j++) {
        const float *share = left ? scratch + j * t->cols : scratch + j;
        const size_t m = left ? t->cols : t->rows;
        if (sqrt(dot(share, share, m, left ? 1 : k)) > least) continue;
        for (size_t i = 0; i < n; i++) t->p[i * k + j] = 0;
    }
}

static void find_subspace(const omm_compute *c, const galore_tensor *t, float *scratch,
                          uint32_t step) {
    const bool left = t->rows <= t->cols;
    const size_t n = left ? t->rows : t->cols;
    /* No two columns of a step have more than this many numbers. */
    const uint64_t most = (uint64_t)n * t->rank * ATTEMPTS;
    uint64_t draw = n + (uint64_t)step * (ROUNDS + 1) * most;
    for (int round = 0; round < ROUNDS; round++, draw += most) {
        orthonormal(t->p, t, n, draw); /* so that repeated products do not leave f32 */
        times(c, scratch, t, t->p, left);
        times(c, t->p, t, scratch, !left);
    }
    orthonormal(t->p, t, n, draw);
    leave_out(c, t, n, scratch);
}

/* --- the step -------------------------------------------------------------------------------- */

/* move [rows][cols] = d of the subspace. */
static void project_back(const omm_compute *c, float *move, const galore_tensor *t,
                         const float *d) {
    const size_t k = t->rank, rows = t->rows, cols = t->cols;
    if (rows <= cols)
        omm_gemm_nn(c, &(omm_gemm){move, t->p, d, rows, cols, k, k, cols, cols, false});
    else
        omm_gemm_nt(c, &(omm_gemm){move, d, t->p, rows, cols, k, k, k, cols, false});
}

void galore_update(const omm_compute *c, const galore_tensor *t, float *scratch,
                   const omm_full_galore *galore, const omm_recipe *recipe, float rate,
                   uint32_t step) {
    const size_t count = galore_m_count(t->rows, t->cols, t->rank);
    float *r = scratch, *d = r + count, *move = d + count;
    omm_recipe plain = *recipe;
    plain.weight_decay = 0;
    if ((step - 1) % galore->every == 0) find_subspace(c, t, scratch, step);
    project(c, r, t);
    memset(d, 0, count * sizeof *d);
    adamw_state s = {.values = d, .m = t->m, .v = t->v, .gradient = r, .count = count};
    adamw_update(&s, &plain, rate * galore->scale, step, 0, count);
    project_back(c, move, t, d);
    const float decay = rate * recipe->weight_decay;
    for (size_t i = 0; i < t->rows * t->cols; i++)
        t->values[i] = (t->values[i] - decay * t->values[i]) + move[i];
}
