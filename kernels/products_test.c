/* products_test.c - products that go over the pool together have the bytes of one call after the other; one that
 * goes on with a second has those of both: odd shapes, ranks up to and over what is done in one pass, instruction
 * sets, threads. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

enum { RANKS = 4, SHAPES = 5 };
static const size_t s_ranks[RANKS] = {1, 3, 16, 17};
static const uint32_t s_shapes[SHAPES][3] = {/* m, rows, columns */
                                             {1, 16, 32},
                                             {5, 35, 96},
                                             {37, 64, 544},
                                             {130, 33, 256},
                                             {401, 200, 288}};

static void compare(const float *a, const float *b, size_t count, const char *what) {
    if (memcmp(a, b, count * sizeof *a) == 0) return;
    fprintf(stderr, "%s differs\n", what);
    exit(1);
}

/* What one training step does with a weight, by calls of their own and together. */
typedef struct rig {
    uint32_t m, rows, cols;
    size_t rank;
    omm_matrix w;
    float *x, *dy, *z, *b;
    float *y[2], *dx[2], *da[2], *db[2], *dw[2];
    uint32_t ends[16];
} rig;

static void rig_init(rig *r, omm_format format, const uint32_t shape[3], size_t rank) {
    const size_t m = shape[0], rows = shape[1], cols = shape[2];
    *r = (rig){.m = shape[0], .rows = shape[1], .cols = shape[2], .rank = rank};
    r->w = battery_matrix(format, shape[1], shape[2], rows + cols);
    r->x = battery_floats(1, m * cols);
    r->dy = battery_floats(2, m * rows);
    r->z = battery_floats(3, m * rank);
    r->b = battery_floats(4, (rows + cols) * rank);
    for (int i = 0; i < 2; i++) {
        r->y[i] = battery_floats(5, m * rows);
        r->dx[i] = battery_floats(7, m * cols);
        r->da[i] = battery_floats(8, rank * cols);
        r->db[i] = battery_floats(9, rank * rows);
        r->dw[i] = battery_floats(10, rows * cols);
    }
    for (uint32_t i = 0, end = 0; end < r->m; i++) { /* chunks of 64, 63, 62 .. rows */
        end = r->m - end < OMM_TOKEN_CHUNK - i ? r->m : end + OMM_TOKEN_CHUNK - i;
        r->ends[i] = end;
    }
}

static void rig_fini(rig *r) {
    float *inputs[] = {r->x, r->dy, r->z, r->b};
    for (size_t i = 0; i < 4; i++) omm_free(inputs[i]);
    for (int i = 0; i < 2; i++) {
        float *outputs[] = {r->y[i], r->dx[i], r->da[i], r->db[i], r->dw[i]};
        for (size_t k = 0; k < 5; k++) omm_free(outputs[k]);
    }
    omm_matrix_fini(&r->w);
}

/* a[m][width] as a sum over tokens with b[m][n]: c[width][n]. */
static omm_gemm sum_of(const rig *r, float *c, const float *a, size_t width, const float *b,
                       size_t n) {
    return (omm_gemm){c, a, b, width, n, r->m, width, n, n, true};
}

static void one_after_the_other(const rig *r, const omm_compute *c, bool accumulate) {
    const size_t m = r->m, n = r->rows, k = r->cols, rank = r->rank;
    const omm_gemm da = sum_of(r, r->da[0], r->z, rank, r->x, k);
    const omm_gemm db = sum_of(r, r->db[0], r->z, rank, r->dy, n);
    const omm_gemm dw = sum_of(r, r->dw[0], r->dy, n, r->x, k);
    omm_linear_forward(c, r->y[0], r->x, &r->w, m, false);
    omm_gemm_nt(c, &(omm_gemm){r->y[0], r->z, r->b, m, n, rank, rank, rank, n, true});
    omm_linear_backward(c, r->dx[0], r->dy, &r->w, m, accumulate);
    omm_gemm_nn(c, &(omm_gemm){r->dx[0], r->z, r->b, m, k, rank, rank, k, k, true});
    omm_gemm_tn_chunks(c, &da, r->ends);
    omm_gemm_tn_chunks(c, &db, NULL);
    omm_gemm_tn_chunks(c, &dw, r->ends);
}

static void together(const rig *r, const omm_compute *c, bool accumulate) {
    const omm_linear_pair pair = {r->z, r->b, r->rank};
    const omm_product products[] = {
        {.kind = OMM_PRODUCT_FORWARD, .c = r->y[1], .a = r->x, .w = &r->w, .m = r->m, .pair = pair},
        {.kind = OMM_PRODUCT_BACKWARD,
         .c = r->dx[1],
         .a = r->dy,
         .w = &r->w,
         .m = r->m,
         .accumulate = accumulate,
         .pair = pair},
        {.kind = OMM_PRODUCT_CHUNKS,
         .plain = sum_of(r, r->dw[1], r->dy, r->rows, r->x, r->cols),
         .ends = r->ends},
        {.kind = OMM_PRODUCT_CHUNKS, .plain = sum_of(r, r->db[1], r->z, r->rank, r->dy, r->rows)},
        {.kind = OMM_PRODUCT_CHUNKS,
         .plain = sum_of(r, r->da[1], r->z, r->rank, r->x, r->cols),
         .ends = r->ends},
    };
    omm_products(c, products, sizeof products / sizeof *products);
}

static void check_shape(const omm_compute *c, omm_format format, const uint32_t shape[3],
                        size_t rank) {
    rig r;
    char what[96];
    rig_init(&r, format, shape, rank);
    snprintf(what, sizeof what, "%s, %u threads, %s %ux%ux%u, rank %zu", omm_isa_name(c->isa),
             c->workers, omm_format_name(format), r.m, r.rows, r.cols, rank);
    one_after_the_other(&r, c, rank % 2 == 1);
    together(&r, c, rank % 2 == 1);
    compare(r.y[0], r.y[1], (size_t)r.m * r.rows, what);
    compare(r.dx[0], r.dx[1], (size_t)r.m * r.cols, what);
    compare(r.da[0], r.da[1], rank * r.cols, what);
    compare(r.db[0], r.db[1], rank * r.rows, what);
    compare(r.dw[0], r.dw[1], (size_t)r.rows * r.cols, what);
    rig_fini(&r);
}

/* Plain matrices, of which one has nothing to add up, one no rows, one is large and one a dot. */
static void check_plain(const omm_compute *c) {
    enum { M = 150, N = 90, K = 200 };
    const size_t size = (size_t)M * N;
    float *a = battery_floats(1, (size_t)M * K), *b = battery_floats(2, (size_t)N * K);
    float *r[2] = {battery_floats(3, 4 * size), battery_floats(3, 4 * size)};
    const omm_gemm one_by_one[] = {{r[0], a, b, M, N, K, K, K, N, true},
                                   {r[0] + size, a, b, M, N, K, K, N, N, false},
                                   {r[0] + 2 * size, a, b, 1, 1, K, K, N, N, true},
                                   {r[0] + 2 * size + 5, a, b, 3, 5, 0, K, N, N, false},
                                   {r[0] + 3 * size, a, b, 0, N, K, K, N, N, false}};
    omm_product products[5] = {0};
    for (size_t i = 0; i < 5; i++) {
        products[i].kind = i == 0 ? OMM_PRODUCT_NT : OMM_PRODUCT_NN;
        products[i].plain = one_by_one[i];
        products[i].plain.c = r[1] + (one_by_one[i].c - r[0]);
        (i == 0 ? omm_gemm_nt : omm_gemm_nn)(c, &one_by_one[i]);
    }
    omm_products(c, products, 5);
    CHECK_EQ(r[1][2 * size + 5] == 0.0F, 1);
    compare(r[0], r[1], 4 * size, "plain");
    omm_products(c, products, 0);
    omm_free(a);
    omm_free(b);
    omm_free(r[0]);
    omm_free(r[1]);
}

static void check_all(omm_isa isa, unsigned threads) {
    static const omm_format formats[] = {OMM_FORMAT_F32, OMM_FORMAT_Q8_0, OMM_FORMAT_BF16};
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < SHAPES; s++)
            for (size_t r = 0; r < RANKS; r++) check_shape(&c, formats[f], s_shapes[s], s_ranks[r]);
    check_plain(&c);
    omm_compute_fini(&c);
    omm_pool_close(pool);
}

int main(void) {
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        check_all((omm_isa)isa, 1 + isa % 2);
        printf("%s: the same bytes\n", omm_isa_name((omm_isa)isa));
    }
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    check_all(best, 3);
    check_all(best, 7);
    return 0;
}
