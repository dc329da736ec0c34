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

/* A product of many rows over the pool (kernels.c). */
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

#endif
