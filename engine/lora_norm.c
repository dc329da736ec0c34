/* lora_norm.c - how large a pair is, without ever making the product: all from r x r matrices. */
#include "omm/lora.h"

#include "omm/mem.h"

#include <math.h>

enum { STEPS_MAX = 1000 };
#define WORK_MAX ((size_t)1 << 25) /* steps times r^2: those of rank 183 */
#define CONVERGED 1e-13

/* g[r][r] = A A^T for A[r][cols]. */
static void gram_of_rows(double *g, const float *a, size_t r, size_t cols) {
    for (size_t i = 0; i < r; i++)
        for (size_t j = i; j < r; j++) {
            double sum = 0;
            for (size_t k = 0; k < cols; k++)
                sum += (double)a[i * cols + k] * (double)a[j * cols + k];
            g[i * r + j] = g[j * r + i] = sum;
        }
}

/* g[r][r] = B^T B for B[rows][r]. */
static void gram_of_columns(double *g, const float *b, size_t rows, size_t r) {
    for (size_t n = 0; n < rows; n++)
        for (size_t i = 0; i < r; i++)
            for (size_t j = 0; j < r; j++)
                g[i * r + j] += (double)b[n * r + i] * (double)b[n * r + j];
}

static double trace(const double *g, size_t r) {
    double sum = 0;
    for (size_t i = 0; i < r; i++) sum += g[i * r + i];
    return sum;
}

static void times(double *y, const double *g, const double *x, size_t r) {
    for (size_t i = 0; i < r; i++) {
        y[i] = 0;
        for (size_t j = 0; j < r; j++) y[i] += g[i * r + j] * x[j];
    }
}

static double dot(const double *x, const double *y, size_t r) {
    double sum = 0;
    for (size_t i = 0; i < r; i++) sum += x[i] * y[i];
    return sum;
}

/* The largest eigenvalue of GA GB, which is that of (B A)^T (B A), by power iteration; GA GB is
 * symmetric in the inner product x^T GB y, whose Rayleigh quotient rises to it. */
static double largest(const double *ga, const double *gb, double *work, size_t r) {
    double *v = work, *w = work + r, *t = work + 2 * r, before = 0;
    for (size_t i = 0; i < r; i++) v[i] = 1.0 + (double)(i * 7 % 11) / 13.0;
    /* Of two values that are nearly equal, neither is found quickly, and either will do. */
    const size_t most = WORK_MAX / (r * r), steps = most < STEPS_MAX ? most : STEPS_MAX;
    for (size_t step = 0; step < steps; step++) {
        times(w, gb, v, r);
        times(t, ga, w, r);
        const double length = dot(v, w, r), norm = sqrt(dot(t, t, r));
        if (!(length > 0) || !(norm > 0)) return before;
        const double now = dot(w, t, r) / length;
        for (size_t i = 0; i < r; i++) v[i] = t[i] / norm;
        if (fabs(now - before) <= CONVERGED * now) return now;
        before = now;
    }
    return before;
}

omm_err omm_lora_measure(omm_lora_norms *out, const omm_lora *lora, size_t index) {
    const omm_lora_tensor *a = &lora->tensors[index], *b = &lora->tensors[index + 1];
    const size_t r = a->rows;
    OMM_ASSERT(!a->is_b);
    double *memory = omm_alloc(2 * r * r + 3 * r, sizeof *memory);
    if (!memory) return omm_raise(OMM_ERR_NOMEM, "no memory for the norms of rank %zu", r);
    double *ga = memory, *gb = memory + r * r, product = 0;
    gram_of_rows(ga, lora->values + a->offset, r, a->cols);
    gram_of_columns(gb, lora->values + b->offset, b->rows, r);
    for (size_t i = 0; i < r * r; i++) product += ga[i] * gb[i];
    const double scale = fabs((double)a->scale);
    *out = (omm_lora_norms){.a = sqrt(trace(ga, r)),
                            .b = sqrt(trace(gb, r)),
                            .frobenius = scale * sqrt(product > 0 ? product : 0),
                            .spectral = scale * sqrt(largest(ga, gb, memory + 2 * r * r, r))};
    omm_free(memory);
    return OMM_OK;
}
