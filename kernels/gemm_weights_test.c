/* gemm_weights_test.c - products of many rows against their definition, one fma after the other: over
 * the edges of blocks of rows, of k and of columns, added to what is there or not, with a second product
 * behind, on every instruction set and thread count. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 6, RANK_MAX = 16, SPARE = 5 };

typedef struct shape {
    omm_format format;
    uint32_t m, rows, cols;
    size_t rank; /* 0: no second product */
} shape;

/* Two blocks of rows with a ragged tile, and two of k; two of columns, forward and backward; the least
 * number of rows that counts as many; one strip and three blocks of k; odd blocks of k, an odd number of
 * columns. */
static const shape s_shapes[SHAPES] = {
    {OMM_FORMAT_Q8_0, 529, 97, 288, 16}, {OMM_FORMAT_Q8_0, 505, 801, 32, 16},
    {OMM_FORMAT_F32, 505, 33, 801, 2},   {OMM_FORMAT_Q4_K, 48, 257, 768, 3},
    {OMM_FORMAT_BF16, 265, 16, 600, 0},  {OMM_FORMAT_F32, 61, 513, 293, 1}};

typedef struct rig {
    shape s;
    omm_matrix w;
    float *x, *dy;    /* [m][cols], [m][rows] */
    float *z, *b;     /* of the pair: [m][rank]; [rows][rank] or [rank][cols] */
    float *y, *dx[2]; /* as defined, SPARE behind; dx: new, added to what was there */
} rig;

/* sum + a[0 .. k] b, k ascending. */
static float chain(float sum, const float *a, const float *b, size_t b_step, size_t k) {
    for (size_t i = 0; i < k; i++) sum = fmaf(a[i], b[i * b_step], sum);
    return sum;
}

static void define(rig *r, const float *values) {
    const size_t rows = r->s.rows, cols = r->s.cols, rank = r->s.rank;
    for (size_t i = 0; i < r->s.m; i++) {
        const float *z = r->z + i * rank;
        for (size_t n = 0; n < rows; n++) {
            const float sum = chain(0, r->x + i * cols, values + n * cols, 1, cols);
            r->y[i * rows + n] = chain(sum, z, r->b + n * rank, 1, rank);
        }
        for (size_t n = 0; n < cols; n++)
            for (int more = 0; more < 2; more++) {
                float *dx = &r->dx[more][i * cols + n];
                const float sum = chain(more ? *dx : 0, r->dy + i * rows, values + n, cols, rows);
                *dx = chain(sum, z, r->b + n, cols, rank);
            }
    }
}

static void rig_init(rig *r, const shape *s) {
    const size_t m = s->m, rows = s->rows, cols = s->cols;
    r->s = *s;
    r->w = battery_matrix(s->format, s->rows, s->cols, 9);
    r->x = battery_floats(2, m * cols);
    r->dy = battery_floats(3, m * rows);
    r->z = battery_floats(4, m * RANK_MAX);
    r->b = battery_floats(5, (rows + cols) * RANK_MAX);
    r->y = battery_floats(6, m * rows + SPARE);
    for (int i = 0; i < 2; i++) r->dx[i] = battery_floats(7, m * cols + SPARE);
    float *values = battery_floats(1, rows * cols);
    for (uint32_t n = 0; n < s->rows; n++) omm_matrix_row(values + n * cols, &r->w, n);
    define(r, values);
    omm_free(values);
}

static void rig_fini(rig *r) {
    float *all[] = {r->x, r->dy, r->z, r->b, r->y, r->dx[0], r->dx[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) omm_free(all[i]);
    omm_matrix_fini(&r->w);
}

static void compare(const rig *r, const omm_compute *c, float *got, const float *want,
                    size_t columns, const char *what) {
    const bool same = memcmp(got, want, (r->s.m * columns + SPARE) * sizeof *got) == 0;
    omm_free(got);
    if (same) return;
    fprintf(stderr, "%s, %u threads, %s, %u rows: %s differs\n", omm_isa_name(c->isa), c->workers,
            omm_format_name(r->s.format), r->s.m, what);
    exit(1);
}

static void check(const rig *r, const omm_compute *c) {
    const size_t m = r->s.m, rows = r->s.rows, cols = r->s.cols;
    omm_product p = {.kind = OMM_PRODUCT_FORWARD, .w = &r->w, .m = m};
    p.pair = (omm_linear_pair){r->z, r->b, r->s.rank};
    float *y = battery_floats(6, m * rows + SPARE);
    p.c = y;
    p.a = r->x;
    omm_products(c, &p, 1);
    compare(r, c, y, r->y, rows, "forward");
    p.kind = OMM_PRODUCT_BACKWARD;
    p.a = r->dy;
    for (int more = 0; more < 2; more++) {
        float *dx = battery_floats(7, m * cols + SPARE);
        p.c = dx;
        p.accumulate = more != 0;
        omm_products(c, &p, 1);
        compare(r, c, dx, r->dx[more], cols, more ? "backward, added" : "backward");
    }
}

static void on(const rig *r, omm_isa isa, unsigned threads) {
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    check(r, &c);
    omm_compute_fini(&c);
    omm_pool_close(pool);
}

int main(void) {
    for (size_t i = 0; i < SHAPES; i++) {
        rig r;
        rig_init(&r, &s_shapes[i]);
        for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
            if (!omm_isa_available((omm_isa)isa) || omm_isa_floats((omm_isa)isa) != isa) continue;
            for (unsigned threads = 1; threads <= 3; threads++) on(&r, (omm_isa)isa, threads);
        }
        rig_fini(&r);
    }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
