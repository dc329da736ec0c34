/* products.c - several products over the pool together. */
#include "kernels_cut.h"
#include "omm/kernels.h"

_Static_assert(OMM_PRODUCTS_MAX <= GEMM_JOBS_MAX, "all of them are jobs");

/* dx[m][columns] = dy[m][rows] W. */
static gemm_job turned_job(const omm_product *p) {
    const omm_matrix *w = p->w;
    return (gemm_job){.c = p->c,
                      .a = p->a,
                      .w = w,
                      .m = p->m,
                      .n = w->cols,
                      .k = w->rows,
                      .a_row = w->rows,
                      .a_col = 1,
                      .ldc = w->cols,
                      .source = GEMM_B_STRIPS_TURNED};
}

/* What p->pair adds to every chain. */
static gemm_job pair_job(const omm_product *p) {
    const bool forward = p->kind == OMM_PRODUCT_FORWARD;
    const size_t n = forward ? p->w->rows : p->w->cols, k = p->pair.k;
    const omm_gemm g = {p->c, p->pair.z, p->pair.b, p->m, n, k, k, forward ? k : n, n, true};
    gemm_job job = plain_job(&g);
    job.source = forward ? GEMM_B_COLUMNS : GEMM_B_ROWS;
    return job;
}

static gemm_job weight_job(const omm_product *p) {
    gemm_job job = p->kind == OMM_PRODUCT_BACKWARD ? turned_job(p)
                                                   : strips_job(p->c, p->a, p->w->cols, p->w, p->m);
    job.accumulate = p->accumulate;
    return job;
}

static gemm_job matrices_job(const omm_product *p) {
    if (p->kind == OMM_PRODUCT_CHUNKS) return chunks_job(&p->plain, p->ends);
    gemm_job job = plain_job(&p->plain);
    if (p->kind == OMM_PRODUCT_NT) job.source = GEMM_B_COLUMNS;
    return job;
}

void omm_products(const omm_compute *c, const omm_product *products, size_t count) {
    gemm_job jobs[OMM_PRODUCTS_MAX], tails[OMM_PRODUCTS_MAX], after[OMM_PRODUCTS_MAX];
    size_t n = 0, later = 0;
    OMM_ASSERT(count <= OMM_PRODUCTS_MAX);
    for (size_t i = 0; i < count; i++) {
        const omm_product *p = &products[i];
        if (!p->w) {
            jobs[n++] = matrices_job(p);
            continue;
        }
        const bool few = p->kind == OMM_PRODUCT_FORWARD && p->m < GEMM_ROWS_MIN;
        const bool together = !few && p->pair.k <= GEMM_TAIL_MAX;
        tails[i] = pair_job(p);
        if (p->pair.k > 0 && !together) after[later++] = tails[i];
        if (few) {
            omm_linear_forward(c, p->c, p->a, p->w, p->m, p->accumulate);
            continue;
        }
        jobs[n] = weight_job(p);
        if (p->pair.k > 0 && together) jobs[n].tail = &tails[i];
        n++;
    }
    gemm_run_all(c, jobs, n);
    gemm_run_all(c, after, later);
}

void omm_linear_backward(const omm_compute *c, float *dx, const float *dy, const omm_matrix *w,
                         size_t m, bool accumulate) {
    omm_products(c,
                 &(omm_product){.kind = OMM_PRODUCT_BACKWARD,
                                .c = dx,
                                .a = dy,
                                .w = w,
                                .m = m,
                                .accumulate = accumulate},
                 1);
}
