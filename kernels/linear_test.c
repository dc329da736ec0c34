/* linear_test.c - products that go together, adapters with them: the bytes of each alone, its terms
 * applied one fma after the other, on every instruction set and thread count, whether z is there or
 * comes out of the same pass. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
    PRODUCTS = 4,
    K = 512,
    M_MAX = 50,
    RANK = 20,
    RANK_MAX = 32,
    TERMS = 2,
    Z = RANK + RANK_MAX
};

/* Large enough for many tasks; odd numbers of rows and of strips; a format without int8 between. */
static const uint32_t ROWS[PRODUCTS] = {700, 35, 325, 90};
static const omm_format FORMATS[PRODUCTS] = {OMM_FORMAT_Q8_0, OMM_FORMAT_F16, OMM_FORMAT_Q4_K,
                                             OMM_FORMAT_Q5_0};
/* The formats that go on in registers, and one that does not. */
static const omm_format TERM_FORMATS[PRODUCTS][TERMS] = {{OMM_FORMAT_F32, OMM_FORMAT_F16},
                                                         {OMM_FORMAT_F32},
                                                         {OMM_FORMAT_BF16, OMM_FORMAT_Q8_0},
                                                         {OMM_FORMAT_BF16}};

typedef struct rig {
    omm_matrix w[PRODUCTS], b[PRODUCTS][TERMS], a; /* a: [Z][K] */
    float *x, *z;                                  /* z: [M_MAX][Z] */
    float *want[PRODUCTS];                         /* [M_MAX][ROWS[i]] */
    omm_q8_rows q8;
} rig;

static void rig_init(rig *r, omm_format a) {
    for (unsigned i = 0; i < PRODUCTS; i++) {
        r->w[i] = battery_matrix(FORMATS[i], ROWS[i], K, i);
        r->want[i] = battery_floats(1, (size_t)M_MAX * ROWS[i]);
        for (unsigned t = 0; t < TERMS - i % 2; t++) {
            const omm_format format = TERM_FORMATS[i][t];
            const uint32_t rank = omm_format_is_quantised(format) ? RANK_MAX : RANK;
            r->b[i][t] = battery_matrix(format, ROWS[i], rank, 10 + 10 * t + i);
        }
    }
    r->x = battery_floats(5, (size_t)M_MAX * K);
    r->z = battery_floats(6, (size_t)M_MAX * Z);
    r->a = battery_matrix(a, Z, K, 30);
    CHECK_OK(omm_q8_rows_init(&r->q8, M_MAX, K));
}

static void rig_fini(rig *r) {
    for (unsigned i = 0; i < PRODUCTS; i++) {
        omm_matrix_fini(&r->w[i]);
        for (unsigned t = 0; t < TERMS; t++) omm_matrix_fini(&r->b[i][t]);
        omm_free(r->want[i]);
    }
    omm_matrix_fini(&r->a);
    omm_free(r->x);
    omm_free(r->z);
    omm_q8_rows_fini(&r->q8);
}

/* The first term is of all rows, the second of those from the middle on. */
static void terms_of(omm_linear_term terms[TERMS], const rig *r, unsigned product, size_t m) {
    for (unsigned t = 0; t < TERMS; t++) {
        const size_t first = t ? m / 2 : 0;
        terms[t] = (omm_linear_term){.z = r->z + first * Z + (size_t)t * RANK,
                                     .b = &r->b[product][t],
                                     .first = first,
                                     .rows = m - first,
                                     .z_stride = (size_t)Z};
    }
}

static void term_by_definition(float *y, const omm_linear_term *t) {
    float b[RANK_MAX];
    for (uint32_t n = 0; n < t->b->rows; n++) {
        omm_matrix_row(b, t->b, n);
        for (size_t i = 0; i < t->rows; i++) {
            float *at = y + (t->first + i) * t->b->rows + n;
            for (size_t k = 0; k < t->b->cols; k++)
                *at = fmaf(t->z[i * t->z_stride + k], b[k], *at);
        }
    }
}

/* What the passes under test do when z is there. */
typedef struct halving {
    float *z;
    size_t m;
    int calls;
} halving;

static void halve(void *ud) {
    halving *h = ud;
    for (size_t i = 0; i < h->m * Z; i++) h->z[i] = 0.5f * h->z[i];
    h->calls++;
}

/* One product by itself. */
static void product(const rig *r, const omm_compute *c, float *y, const omm_matrix *w, bool q8,
                    size_t m) {
    if (q8 && omm_format_is_quantised(w->format))
        omm_linear_q8(c, y, &r->q8, w, m);
    else
        omm_linear_forward(c, y, r->x, w, m, false);
}

static void expect(rig *r, const omm_compute *scalar, bool q8, bool terms, size_t m) {
    omm_q8_quantize(scalar, &r->q8, r->x, m, K);
    product(r, scalar, r->z, &r->a, q8, m);
    halve(&(halving){r->z, m, 0});
    for (unsigned i = 0; i < PRODUCTS; i++) {
        omm_linear_term list[TERMS];
        product(r, scalar, r->want[i], &r->w[i], q8, m);
        terms_of(list, r, i, m);
        for (unsigned t = 0; t < TERMS - i % 2 && terms; t++)
            term_by_definition(r->want[i], &list[t]);
    }
}

typedef enum way { PLAIN, TERMS_ALONE, TERMS_WITH_LOWER, WAYS } way;

static void compare(const rig *r, const omm_compute *c, bool q8, way how, size_t m) {
    omm_linear products[1 + PRODUCTS] = {{.y = r->z, .w = &r->a}};
    omm_linear_term list[PRODUCTS][TERMS];
    float *y[PRODUCTS];
    halving h = {r->z, m, 0};
    const omm_linear_lower lower = {1, halve, &h};
    const size_t skip = how == TERMS_WITH_LOWER ? 0 : 1;
    for (unsigned i = 0; i < PRODUCTS; i++) {
        y[i] = battery_floats(77, (size_t)M_MAX * ROWS[i]);
        terms_of(list[i], r, i, m);
        products[1 + i] = (omm_linear){y[i], &r->w[i], list[i], how == PLAIN ? 0 : TERMS - i % 2};
    }
    if (!skip) memset(r->z, 0xff, m * Z * sizeof *r->z); /* NaN, should anybody take it too early */
    omm_linear_each(c, products + skip, 1 + PRODUCTS - skip, skip ? NULL : &lower, r->x,
                    q8 ? &r->q8 : NULL, m);
    CHECK_EQ(h.calls, !skip);
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

/* Some of the quantised rows alone: what they are among all, the others' results untouched. */
static void rows_alone(rig *r, const omm_compute *c, size_t m) {
    float *all = battery_floats(78, (size_t)M_MAX * ROWS[0]);
    omm_q8_quantize(c, &r->q8, r->x, m, K);
    omm_linear_q8(c, all, &r->q8, &r->w[0], m);
    for (size_t first = 0; first < m; first += 3) {
        const size_t most = first == 0 ? 5 : m - first, at = first * ROWS[0];
        const size_t count = m - first < most ? m - first : most;
        float *y = battery_floats(79, (size_t)M_MAX * ROWS[0]);
        float *want = battery_floats(79, (size_t)M_MAX * ROWS[0]);
        memcpy(want + at, all + at, count * ROWS[0] * sizeof *want);
        omm_linear_q8_rows(c, y, &r->q8, &r->w[0], first, count);
        CHECK(same_bytes(y, want, (size_t)M_MAX * ROWS[0] * sizeof *y));
        omm_free(y);
        omm_free(want);
    }
    omm_free(all);
}

typedef struct machine {
    omm_pool *pool;
    omm_compute c;
} machine;

static void doze(void *ud) {
    (void)ud;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* z comes late: one worker has all of its y before it, of two products, and nothing left to do.  What it
 * owes is paid. */
static void late_z(const machine *m) {
    enum { ROWS_EACH = 64, LATE = 2 };
    omm_matrix a = battery_matrix(OMM_FORMAT_F32, ROWS_EACH, K, 40), w[LATE], b[LATE];
    float *x = battery_floats(5, K), z[ROWS_EACH], y[LATE][ROWS_EACH];
    float want[LATE][ROWS_EACH], want_z[ROWS_EACH];
    omm_linear_forward(&m->c, want_z, x, &a, 1, false);
    for (unsigned i = 0; i < LATE; i++) {
        w[i] = battery_matrix(OMM_FORMAT_F32, ROWS_EACH, K, 41 + i);
        b[i] = battery_matrix(OMM_FORMAT_F32, ROWS_EACH, ROWS_EACH, 44 + i);
        omm_linear_forward(&m->c, want[i], x, &w[i], 1, false);
        omm_linear_forward(&m->c, want[i], want_z, &b[i], 1, true);
    }
    for (int turn = 0; turn < 20; turn++) {
        const omm_linear_term terms[LATE] = {{z, &b[0], 0, 1, ROWS_EACH},
                                             {z, &b[1], 0, 1, ROWS_EACH}};
        const omm_linear products[] = {
            {.y = z, .w = &a}, {y[0], &w[0], &terms[0], 1}, {y[1], &w[1], &terms[1], 1}};
        memset(z, 0xff, sizeof z);
        omm_linear_each(&m->c, products, 3, &(omm_linear_lower){1, doze, NULL}, x, NULL, 1);
        CHECK(same_bytes(y, want, sizeof y));
    }
    omm_matrix_fini(&a);
    for (unsigned i = 0; i < LATE; i++) {
        omm_matrix_fini(&w[i]);
        omm_matrix_fini(&b[i]);
    }
    omm_free(x);
}

/* One row and any number of strips, the last one not full: as many go side by side as there are. */
static void few_strips(const machine *m) {
    enum { STRIPS = 17, COLS = 40, ROOM = STRIPS * OMM_STRIP };
    static const omm_format formats[] = {OMM_FORMAT_F32, OMM_FORMAT_F16, OMM_FORMAT_BF16};
    for (unsigned f = 0; f < sizeof formats / sizeof *formats; f++)
        for (uint32_t rows = OMM_STRIP - 3; rows <= ROOM; rows += OMM_STRIP) {
            omm_matrix w = battery_matrix(formats[f], rows, COLS, rows);
            float *x = battery_floats(rows, COLS), *y = battery_floats(f, ROOM), row[COLS];
            float want[ROOM];
            memcpy(want, y, sizeof want);
            for (uint32_t i = 0; i < rows; i++) {
                omm_matrix_row(row, &w, i);
                for (size_t k = 0; k < COLS; k++) want[i] = fmaf(x[k], row[k], want[i]);
            }
            omm_linear_forward(&m->c, y, x, &w, 1, true);
            CHECK(same_bytes(y, want, sizeof want));
            omm_matrix_fini(&w);
            omm_free(x);
            omm_free(y);
        }
}

enum { THREADS_MAX = 3, MACHINES_MAX = OMM_ISA_COUNT * THREADS_MAX };

static size_t open_machines(machine *machines) {
    size_t count = 0;
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++)
        for (unsigned t = 1; t <= THREADS_MAX && omm_isa_available((omm_isa)isa); t++) {
            machine *m = &machines[count++];
            CHECK_OK(omm_pool_open(&m->pool, t));
            CHECK_OK(omm_compute_init(&m->c, m->pool, (omm_isa)isa));
        }
    return count;
}

/* With A in this format. */
static void products_of_adapters(const machine *machines, size_t count, omm_format a) {
    static const size_t rows[] = {1, 2, 3, 4, 7, 47, M_MAX};
    rig r = {0}; /* nothing where a product has one term */
    omm_compute scalar;
    CHECK_OK(omm_compute_init(&scalar, NULL, OMM_ISA_SCALAR));
    rig_init(&r, a);
    const size_t step = a == OMM_FORMAT_F32 ? 1 : 2; /* fewer of them will do */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += step)
        for (int mode = 0; mode < 2 * WAYS; mode++) {
            expect(&r, &scalar, mode % 2, mode / 2 != PLAIN, rows[i]);
            for (size_t m = 0; m < count; m++)
                compare(&r, &machines[m].c, mode % 2, (way)(mode / 2), rows[i]);
        }
    for (size_t m = 0; m < count && a == OMM_FORMAT_Q8_0; m++)
        rows_alone(&r, &machines[m].c, M_MAX);
    rig_fini(&r);
    omm_compute_fini(&scalar);
}

int main(void) {
    static machine machines[MACHINES_MAX];
    const size_t count = open_machines(machines);
    products_of_adapters(machines, count, OMM_FORMAT_F32);
    products_of_adapters(machines, count, OMM_FORMAT_Q8_0);
    for (size_t m = 0; m < count; m++) {
        late_z(&machines[m]);
        few_strips(&machines[m]);
    }
    for (size_t m = 0; m < count; m++) {
        omm_compute_fini(&machines[m].c);
        omm_pool_close(machines[m].pool);
    }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
