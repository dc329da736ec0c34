/* gemm_symmetric_test.c - symmetric products against their definition, one fma after the other: each half of the
 * outputs, over the edges of tiles, of blocks of rows and of k, on every instruction set and thread count; what lies
 * between the rows stays. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 5, SPARE = 7 };

/* n, k.  One output; less than a vector; a ragged tile; whole panels; two blocks of rows and of k. */
static const size_t s_shapes[SHAPES][2] = {{1, 3}, {13, 40}, {111, 64}, {256, 256}, {405, 301}};

typedef void (*product)(const omm_compute *c, const omm_gemm *g);
static const product s_products[3] = {omm_gemm_nn_symmetric, omm_gemm_nt_symmetric,
                                      omm_gemm_tn_symmetric};

typedef struct rig {
    size_t n, k, lda, ldb, ldc;
    float *a, *b; /* [larger of n, k][lda], [..][ldb] */
    float *want[3];
} rig;

/* Nothing here is symmetric, so that an output above the diagonal shows where it is from. */
static void define(const rig *r, int which, float *want) {
    const size_t n = r->n, a_row = which == 2 ? 1 : r->lda, a_col = which == 2 ? r->lda : 1;
    const size_t b_row = which == 1 ? 1 : r->ldb, b_col = which == 1 ? r->ldb : 1;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            float sum = 0;
            for (size_t k = 0; k < r->k; k++)
                sum = fmaf(r->a[i * a_row + k * a_col], r->b[k * b_row + j * b_col], sum);
            want[i * r->ldc + j] = want[j * r->ldc + i] = sum;
        }
}

static void rig_init(rig *r, size_t n, size_t k) {
    const size_t side = n > k ? n : k;
    *r = (rig){.n = n, .k = k, .lda = side + 3, .ldb = side + 1, .ldc = n + SPARE};
    r->a = battery_floats(1, side * r->lda);
    r->b = battery_floats(2, side * r->ldb);
    for (int i = 0; i < 3; i++) {
        r->want[i] = battery_floats(3, n * r->ldc);
        define(r, i, r->want[i]);
    }
}

static void rig_fini(rig *r) {
    float *all[] = {r->a, r->b, r->want[0], r->want[1], r->want[2]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) omm_free(all[i]);
}

static void on(const rig *r, omm_isa isa, unsigned threads) {
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    for (int i = 0; i < 3; i++) {
        float *got = battery_floats(3, r->n * r->ldc);
        s_products[i](
            &c, &(omm_gemm){got, r->a, r->b, r->n, r->n, r->k, r->lda, r->ldb, r->ldc, false});
        CHECK(memcmp(got, r->want[i], r->n * r->ldc * sizeof *got) == 0);
        omm_free(got);
    }
    omm_compute_fini(&c);
    omm_pool_close(pool);
}

int main(void) {
    for (size_t i = 0; i < SHAPES; i++) {
        rig r;
        rig_init(&r, s_shapes[i][0], s_shapes[i][1]);
        for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
            if (!omm_isa_available((omm_isa)isa) || omm_isa_floats((omm_isa)isa) != isa) continue;
            for (unsigned threads = 1; threads <= 3; threads++) on(&r, (omm_isa)isa, threads);
        }
        rig_fini(&r);
    }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
