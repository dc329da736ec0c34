/* kernels_cut.h - what the files that cut kernels into tasks share. */
#ifndef ENGINE_KERNELS_CUT_H
#define ENGINE_KERNELS_CUT_H

#include "kernels_table.h"

/* Multiply-adds below which a pool costs more than it gives. */
#define POOL_FLOPS_MIN (1u << 19)
/* Elements of a row function (or of what is stored) below which a pool costs more than it gives. */
#define POOL_ELEMENTS_MIN 16384u

static inline size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static inline float *worker_scratch(const omm_compute *c, unsigned worker) {
    return c->work + (size_t)worker * c->work_floats;
}

/* From this many tokens on, unpacking weights into panels pays; below, row by row. */
#define GEMM_ROWS_MIN 4u

/* Products of many rows over the pool together (kernels.c); none reads or writes what another one writes. */
#define GEMM_JOBS_MAX 8u
void gemm_run_all(const omm_compute *c, const gemm_job *jobs, size_t count);
void gemm_run(const omm_compute *c, const gemm_job *job);

static inline gemm_job plain_job(const omm_gemm *g) {
    return (gemm_job){.c = g->c,
                      .a = g->a,
                      .b = g->b,
                      .m = g->m,
                      .n = g->n,
                      .k = g->k,
                      .a_row = g->lda,
                      .a_col = 1,
                      .ldb = g->ldb,
                      .ldc = g->ldc,
                      .source = GEMM_B_ROWS,
                      .accumulate = g->accumulate};
}

/* y[m] = x[m] W^T, rows of x x_stride floats apart. */
static inline gemm_job strips_job(float *y, const float *x, size_t x_stride, const omm_matrix *w,
                                  size_t m) {
    return (gemm_job){.c = y,
                      .a = x,
                      .w = w,
                      .m = m,
                      .n = w->rows,
                      .k = w->cols,
                      .a_row = x_stride,
                      .a_col = 1,
                      .ldc = w->rows,
                      .source = GEMM_B_STRIPS};
}

/* c = a[k][m]^T b[k][n], a sum of chunks. */
static inline gemm_job chunks_job(const omm_gemm *g, const uint32_t *ends) {
    gemm_job job = plain_job(g);
    job.a_row = 1;
    job.a_col = g->lda;
    job.fold_tokens = true;
    job.ends = ends;
    for (size_t i = 0, from = 0; ends && from < g->k; from = ends[i++])
        OMM_ASSERT(ends[i] > from && ends[i] <= g->k && ends[i] - from <= OMM_TOKEN_CHUNK);
    return job;
}

#endif
