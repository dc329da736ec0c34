/* linear_test.c - products that go together: the bytes of each alone, its terms applied one fma after
 * the other, on every instruction set and thread count. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { PRODUCTS = 3, K = 512, M_MAX = 7, RANK = 5, TERMS = 2 };

/* Large enough for many tasks; odd numbers of rows and of strips; a format without int8 between. */
static const uint32_t ROWS[PRODUCTS] = {700, 35, 325};
static const omm_format FORMATS[PRODUCTS] = {OMM_FORMAT_Q8_0, OMM_FORMAT_F16, OMM_FORMAT_Q4_K};

typedef struct rig {
    omm_matrix w[PRODUCTS], b[PRODUCTS][TERMS];
    float *x, *z;
    float *want[PRODUCTS]; /* [M_MAX][ROWS[i]] */
    omm_q8_rows q8;
} rig;

static void rig_init(rig *r) {
    for (unsigned i = 0; i < PRODUCTS; i++) {
        r->w[i] = battery_matrix(FORMATS[i], ROWS[i], K, i);
        r->want[i] = battery_floats(1, (size_t)M_MAX * ROWS[i]);
        /* The second is as a caller stores values that need no more. */
        r->b[i][0] = battery_matrix(OMM_FORMAT_F32, ROWS[i], RANK, 10 + i);
        r->b[i][1] = battery_matrix(OMM_FORMAT_BF16, ROWS[i], RANK, 20 + i);
    }
    r->x = battery_floats(5, (size_t)M_MAX * K);
    r->z = battery_floats(6, (size_t)M_MAX * 2 * RANK);
    CHECK_OK(omm_q8_rows_init(&r->q8, M_MAX, K));
}

static void rig_fini(rig *r) {
    for (unsigned i = 0; i < PRODUCTS; i++) {
        omm_matrix_fini(&r->w[i]);
        for (unsigned t = 0; t < TERMS; t++) omm_matrix_fini(&r->b[i][t]);
        omm_free(r->want[i]);
    }
    omm_free(r->x);
    omm_free(r->z);
    omm_q8_rows_fini(&r->q8);
}

/* The first term is of all rows, the second of those from the middle on. */
static void terms_of(omm_linear_term terms[TERMS], const rig *r, unsigned product, size_t m) {
    for (unsigned t = 0; t < TERMS; t++) {
        const size_t first = t ? m / 2 : 0;
        terms[t] = (omm_linear_term){.z = r->z + first * 2 * RANK + (size_t)t * RANK,
                                     .b = &r->b[product][t],
                                     .first = first,
                                     .rows = m - first,
                                     .z_stride = (size_t)2 * RANK};
    }
}

static void term_by_definition(float *y, const omm_linear_term *t) {
    float b[RANK];
    for (uint32_t n = 0; n < t->b->rows; n++) {
        omm_matrix_row(b, t->b, n);
        for (size_t i = 0; i < t->rows; i++) {
            float *at = y + (t->first + i) * t->b->rows + n;
            for (size_t k = 0; k < RANK; k++) *at = fmaf(t->z[i * t->z_stride + k], b[k], *at);
        }
    }
}

static void expect(rig *r, const omm_compute *scalar, bool q8, bool terms, size_t m) {
    omm_q8_quantize(scalar, &r->q8, r->x, m, K);
    for (unsigned i = 0; i < PRODUCTS; i++) {
        omm_linear_term list[TERMS];
        if (q8 && omm_format_is_quantised(FORMATS[i]))
            omm_linear_q8(scalar, r->want[i], &r->q8, &r->w[i], m);
        else
            omm_linear_forward(scalar, r->want[i], r->x, &r->w[i], m, false);
        terms_of(list, r, i, m);
        for (unsigned t = 0; t < TERMS - i % 2 && terms; t++)
            term_by_definition(r->want[i], &list[t]);
    }
}

static void compare(const rig *r, const omm_compute *c, bool q8, bool terms, size_t m) {
    omm_linear products[PRODUCTS];
    omm_linear_term list[PRODUCTS][TERMS];
    float *y[PRODUCTS];
    for (unsigned i = 0; i < PRODUCTS; i++) {
        y[i] = battery_floats(77, (size_t)M_MAX * ROWS[i]);
        terms_of(list[i], r, i, m);
        products[i] = (omm_linear){y[i], &r->w[i], list[i], terms ? TERMS - i % 2 : 0};
    }
    omm_linear_each(c, products, PRODUCTS, r->x, q8 ? &r->q8 : NULL, m);
    omm_linear_add_terms(c, products, PRODUCTS, m);
    for (unsigned i = 0; i < PRODUCTS; i++) {
        CHECK(memcmp(y[i], r->want[i], m * ROWS[i] * sizeof(float)) == 0);
        /* Nothing behind the last row has been written. */
        float *fresh = battery_floats(77, (size_t)M_MAX * ROWS[i]);
        CHECK(memcmp(y[i] + m * ROWS[i], fresh + m * ROWS[i],
                     (M_MAX - m) * ROWS[i] * sizeof(float)) == 0);
        omm_free(fresh);
        omm_free(y[i]);
    }
}

static void on(rig *r, const omm_compute *scalar, omm_isa isa, unsigned threads) {
    static const size_t counts[] = {1, 2, 3, 4, M_MAX};
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int mode = 0; mode < 4; mode++) {
            expect(r, scalar, mode & 1, mode & 2, counts[i]);
            compare(r, &c, mode & 1, mode & 2, counts[i]);
        }
    omm_compute_fini(&c);
    omm_pool_close(pool);
}

int main(void) {
    rig r;
    omm_compute scalar;
    CHECK_OK(omm_compute_init(&scalar, NULL, OMM_ISA_SCALAR));
    rig_init(&r);
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++)
        for (unsigned threads = 1; threads <= 3 && omm_isa_available((omm_isa)isa); threads++)
            on(&r, &scalar, (omm_isa)isa, threads);
    rig_fini(&r);
    omm_compute_fini(&scalar);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
