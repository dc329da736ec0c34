/* GaLore: the subspace of a gradient of known rank, the step by its definition, and the same bytes on every
 * instruction set and number of threads. */
#include "galore.h"

#include "omm/hash.h"
#include "omm/kernels.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { SIDE_MAX = 90, RANK = 5 };

/* What the directions miss of a gradient of their rank, of its norm.  Measured maximum 3.2e-7. */
static const double s_missed_max = 2e-6;
/* Length of a direction, and its product with another, from 1 and 0.  Measured maximum 1.8e-7. */
static const double s_orthonormal_max = 1e-6;

/* What moves outside of a gradient, of the whole move: the weights' own rounding.  Measured maximum 3.2e-5. */
static const double s_outside_max = 1e-3;

typedef struct rig {
    size_t rows, cols;
    float values[SIDE_MAX * SIDE_MAX], gradient[SIDE_MAX * SIDE_MAX];
    float p[SIDE_MAX * RANK], m[SIDE_MAX * RANK], v[SIDE_MAX * RANK];
    float scratch[SIDE_MAX * (2 * RANK + SIDE_MAX)];
} rig;

static float number(uint64_t i) {
    const omm_seed seed = omm_seed_from_u64(9);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    return 2 * omm_rng_unit(&lane, i) - 1;
}

static omm_rng lane_of(void) {
    const omm_seed seed = omm_seed_from_u64(4);
    return omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
}

/* Values, and a gradient of so many directions. */
static void begin_with(rig *r, size_t rows, size_t cols, size_t directions) {
    const omm_rng lane = lane_of();
    *r = (rig){.rows = rows, .cols = cols};
    CHECK(galore_scratch_count(rows, cols, RANK) <= sizeof r->scratch / sizeof *r->scratch);
    for (size_t i = 0; i < rows * cols; i++) r->values[i] = number(i);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            for (size_t k = 0; k < directions; k++)
                r->gradient[i * cols + j] +=
                    0.01F * number(10000 + i * RANK + k) * number(20000 + j * RANK + k);
    galore_begin(r->p, galore_p_count(rows, cols, RANK), &lane);
}

static void begin(rig *r, size_t rows, size_t cols) {
    begin_with(r, rows, cols, RANK);
}

static omm_recipe recipe_of(void) {
    omm_recipe recipe = omm_recipe_default();
    recipe.beta1 = 0.9F;
    recipe.beta2 = 0.95F;
    recipe.weight_decay = 0.1F;
    return recipe;
}

static const omm_full_galore s_galore = {.rank = RANK, .every = 2, .scale = 0.25F};

static void update(rig *r, const omm_compute *c, uint32_t step) {
    const omm_recipe recipe = recipe_of();
    const galore_tensor t = {.values = r->values,
                             .gradient = r->gradient,
                             .p = r->p,
                             .m = r->m,
                             .v = r->v,
                             .rows = r->rows,
                             .cols = r->cols,
                             .rank = RANK,
                             .lane = lane_of()};
    galore_update(c, &t, r->scratch, &s_galore, &recipe, 0.01F, step);
}

/* What the longer side has only behind the length of the shorter one is no rounding. */
static void far_columns(const omm_compute *c, size_t rows, size_t cols) {
    static rig r;
    const size_t n = rows < cols ? rows : cols;
    CHECK_EQ(galore_p_count(rows, cols, RANK), n * RANK);
    begin(&r, rows, cols);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            if (i < n && j < n) r.gradient[i * cols + j] = 0;
    memset(r.values, 0, sizeof r.values);
    update(&r, c, 1);
    for (size_t j = 0; j < RANK; j++) {
        double length = 0;
        for (size_t i = 0; i < n; i++)
            length += (double)r.p[i * RANK + j] * (double)r.p[i * RANK + j];
        CHECK(fabs(length - 1) < 1e-5);
    }
    CHECK(r.values[rows * cols - 1] != 0);
}

/* Element of the gradient with the shorter side first. */
static double at(const rig *r, size_t i, size_t j) {
    return (double)r->gradient[r->rows <= r->cols ? i * r->cols + j : j * r->cols + i];
}

/* The farthest of P^T P from 1, where so many columns are not zero. */
static double off_orthonormal(const rig *r, size_t columns) {
    const size_t n = r->rows < r->cols ? r->rows : r->cols;
    double off = 0;
    for (size_t a = 0; a < RANK; a++)
        for (size_t b = 0; b < RANK; b++) {
            double dot = 0;
            for (size_t i = 0; i < n; i++)
                dot += (double)r->p[i * RANK + a] * (double)r->p[i * RANK + b];
            off = worse_of(off, fabs(dot - (a == b && a < columns)));
        }
    return off;
}

static void spans_the_gradient(const omm_compute *c, size_t rows, size_t cols, size_t directions) {
    static rig r;
    double missed = 0, whole = 0;
    begin_with(&r, rows, cols, directions);
    update(&r, c, 1);
    const size_t n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    const double off = off_orthonormal(&r, directions);
    for (size_t j = 0; j < m; j++) {
        double share[RANK] = {0};
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < RANK; k++) share[k] += (double)r.p[i * RANK + k] * at(&r, i, j);
        for (size_t i = 0; i < n; i++) {
            double kept = 0;
            for (size_t k = 0; k < RANK; k++) kept += (double)r.p[i * RANK + k] * share[k];
            missed += (kept - at(&r, i, j)) * (kept - at(&r, i, j));
            whole += at(&r, i, j) * at(&r, i, j);
        }
    }
    printf("%zu x %zu, %zu directions: missed %.1e, orthonormal to %.1e\n", rows, cols, directions,
           sqrt(missed / whole), off);
    CHECK(sqrt(missed / whole) <= s_missed_max);
    CHECK(off <= s_orthonormal_max);
}

/* Two steps in one subspace, each number by its formula. */
static void by_definition(const omm_compute *c, size_t rows, size_t cols) {
    static rig r, twin;
    begin(&r, rows, cols);
    begin(&twin, rows, cols);
    const size_t n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    const omm_recipe o = recipe_of();
    float beta1 = 1, beta2 = 1;
    for (uint32_t step = 1; step <= 2; step++) {
        float d[SIDE_MAX * RANK];
        update(&r, c, step);
        beta1 *= o.beta1;
        beta2 *= o.beta2;
        for (size_t k = 0; k < RANK; k++)
            for (size_t j = 0; j < m; j++) {
                const size_t x = rows <= cols ? k * m + j : j * RANK + k;
                float g = 0;
                for (size_t i = 0; i < n; i++) g = fmaf((float)at(&r, i, j), r.p[i * RANK + k], g);
                twin.m[x] = o.beta1 * twin.m[x] + (1 - o.beta1) * g;
                twin.v[x] = o.beta2 * twin.v[x] + (1 - o.beta2) * (g * g);
                d[x] = -0.01F * 0.25F * (twin.m[x] / (1 - beta1)) /
                       (sqrtf(twin.v[x] / (1 - beta2)) + o.epsilon);
            }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < m; j++) {
                float move = 0, *w = &twin.values[rows <= cols ? i * cols + j : j * cols + i];
                for (size_t k = 0; k < RANK; k++)
                    move += r.p[i * RANK + k] * d[rows <= cols ? k * m + j : j * RANK + k];
                *w = *w - 0.01F * 0.1F * *w + move;
            }
    }
    for (size_t i = 0; i < RANK * m; i++) CHECK(r.m[i] == twin.m[i] && r.v[i] == twin.v[i]);
    for (size_t i = 0; i < rows * cols; i++) CHECK(fabsf(r.values[i] - twin.values[i]) < 1e-6F);
}

static omm_digest three_steps(omm_isa isa, unsigned threads, size_t rows, size_t cols) {
    static rig r;
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    begin(&r, rows, cols);
    for (uint32_t step = 1; step <= 3; step++) {
        update(&r, &c, step);
        for (size_t i = 0; i < rows * cols; i++) r.gradient[i] += 0.001F * r.values[i];
    }
    omm_compute_fini(&c);
    omm_pool_close(pool);
    return omm_hash(omm_bytes_of(r.values, rows * cols * sizeof *r.values));
}

static void all_the_same(size_t rows, size_t cols) {
    const omm_digest want = three_steps(OMM_ISA_SCALAR, 1, rows, cols);
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            if (!omm_isa_available((omm_isa)isa)) continue;
            const omm_digest got = three_steps((omm_isa)isa, threads, rows, cols);
            CHECK(omm_digest_equal(&want, &got));
        }
}

/* axes[directions]: orthonormal, on the shorter side, of a gradient of begin_with. */
static void axes_of(double axes[][SIDE_MAX], const rig *r, size_t directions) {
    const bool left = r->rows <= r->cols;
    const size_t n = left ? r->rows : r->cols;
    for (size_t k = 0; k < directions; k++) {
        double length = 0;
        for (size_t i = 0; i < n; i++)
            axes[k][i] = (double)number((left ? 10000 : 20000) + i * RANK + k);
        for (size_t l = 0; l < k; l++) {
            double share = 0;
            for (size_t i = 0; i < n; i++) share += axes[k][i] * axes[l][i];
            for (size_t i = 0; i < n; i++) axes[k][i] -= share * axes[l][i];
        }
        for (size_t i = 0; i < n; i++) length += axes[k][i] * axes[k][i];
        for (size_t i = 0; i < n; i++) axes[k][i] /= sqrt(length);
    }
}

/* Where a gradient has fewer directions than P, nothing but decay moves outside of them: what a column has no share in is
 * rounding, by which AdamW would move as far as by any other. */
static void moves_stay_in_the_gradient(const omm_compute *c, size_t rows, size_t cols) {
    enum { FEW = 2 };
    static rig r, before;
    double outside = 0, whole = 0, axes[FEW][SIDE_MAX] = {{0}};
    begin_with(&r, rows, cols, FEW);
    before = r;
    update(&r, c, 1);
    axes_of(axes, &r, FEW);
    const bool left = rows <= cols;
    const size_t n = left ? rows : cols, m = left ? cols : rows;
    for (size_t j = 0; j < m; j++) { /* across, along the shorter side */
        double move[SIDE_MAX], share[FEW] = {0};
        for (size_t i = 0; i < n; i++) {
            const size_t at = left ? i * cols + j : j * cols + i;
            const double w = (double)before.values[at];
            move[i] = (double)r.values[at] - (w - 0.01 * (double)0.1F * w);
            whole += move[i] * move[i];
            for (size_t k = 0; k < FEW; k++) share[k] += move[i] * axes[k][i];
        }
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < FEW; k++) move[i] -= share[k] * axes[k][i];
            outside += move[i] * move[i];
        }
    }
    printf("%zu x %zu: %.1e of the move lies outside of the gradient\n", rows, cols,
           sqrt(outside / whole));
    CHECK(sqrt(outside / whole) < s_outside_max);
}

/* Without a gradient nothing moves but by decay; when there is one, it is found. */
static void no_gradient(const omm_compute *c) {
    static rig r, with;
    begin(&with, 20, 33);
    begin(&r, 20, 33);
    memset(r.gradient, 0, sizeof r.gradient);
    const float w = r.values[7];
    update(&r, c, 1);
    CHECK(off_orthonormal(&r, 0) == 0);
    CHECK(r.values[7] == w - 0.01F * 0.1F * w);
    memcpy(r.gradient, with.gradient, sizeof r.gradient);
    const float before = r.values[7];
    update(&r, c, 3); /* with directions of its own again */
    const float decayed = before - 0.01F * 0.1F * before;
    CHECK(off_orthonormal(&r, RANK) <= s_orthonormal_max);
    CHECK(fabsf(r.values[7] - decayed) > 1e-5F);
}

int main(void) {
    static const size_t shapes[][2] = {{40, 90}, {90, 40}, {33, 33}, {6, 17}, {89, 7}};
    omm_compute c;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        spans_the_gradient(&c, shapes[i][0], shapes[i][1], RANK);
        spans_the_gradient(&c, shapes[i][0], shapes[i][1], 2);
        moves_stay_in_the_gradient(&c, shapes[i][0], shapes[i][1]);
        by_definition(&c, shapes[i][0], shapes[i][1]);
        all_the_same(shapes[i][0], shapes[i][1]);
    }
    no_gradient(&c);
    far_columns(&c, 12, 30);
    far_columns(&c, 30, 12);
    omm_compute_fini(&c);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
