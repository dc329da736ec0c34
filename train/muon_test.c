/* Muon: a matrix of known singular values by what the polynomial makes of each, momentum and decay by their
 * formulas, no gradient, and the same bytes on every instruction set and number of threads. */
#include "muon.h"

#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/pool.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { SIDE_MAX = 150, DIRECTIONS = 4 };
static const float s_momentum = 0.9F, s_rate = 0.01F, s_decay = 0.1F;

/* A move's share of a direction, and what it has of pairs of two, against double; of 1.  Measured maxima 3.6e-5
 * among long ones, 1.2e-3 with a short one: rounding grows as that does. */
static const double s_long = 1e-4, s_short = 5e-3;

typedef struct rig {
    size_t rows, cols;
    float values[SIDE_MAX * SIDE_MAX], gradient[SIDE_MAX * SIDE_MAX], m[SIDE_MAX * SIDE_MAX];
    float scratch[6 * SIDE_MAX * SIDE_MAX];
} rig;

static void update(rig *r, const omm_compute *c) {
    const muon_tensor t = {r->values, r->gradient, r->m, r->rows, r->cols};
    CHECK(muon_scratch_count(r->rows, r->cols) <= sizeof r->scratch / sizeof *r->scratch);
    muon_update(c, &t, r->scratch, s_momentum, s_rate, s_decay);
}

/* Element i of direction d of n: columns of the discrete cosine transform are orthonormal. */
static double direction(size_t d, size_t i, size_t n) {
    const double pi = 0x1.921fb54442d18p+1,
                 x = pi * ((double)i + 0.5) * (double)(d + 1) / (double)n;
    return sqrt(2.0 / (double)n) * cos(x);
}

static double share_of(const rig *r, const double *x, size_t a, size_t b) {
    double sum = 0;
    for (size_t i = 0; i < r->rows; i++)
        for (size_t j = 0; j < r->cols; j++)
            sum += direction(a, i, r->rows) * x[i * r->cols + j] * direction(b, j, r->cols);
    return sum;
}

/* What five rounds make of a singular value. */
static double rounds(double s) {
    for (int i = 0; i < 5; i++) s = 3.4445 * s - 4.775 * pow(s, 3) + 2.0315 * pow(s, 5);
    return s;
}

/* The gradient is a sum of directions with these lengths; two steps, whose momentum has the same ones. */
static void known_singular_values(const omm_compute *c, size_t rows, size_t cols) {
    static const double lengths[DIRECTIONS] = {3, 0.5, 0.02, 1e-4};
    static rig r;
    static double move[SIDE_MAX * SIDE_MAX];
    double whole = 0, worst[2] = {0, 0};
    r = (rig){.rows = rows, .cols = cols};
    for (size_t d = 0; d < DIRECTIONS; d++) whole += lengths[d] * lengths[d];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;
            for (size_t d = 0; d < DIRECTIONS; d++)
                sum += lengths[d] * direction(d, i, rows) * direction(d, j, cols);
            r.gradient[i * cols + j] = (float)sum;
        }
    const double scale = (double)s_rate * 0.2 * sqrt((double)(rows > cols ? rows : cols));
    for (int step = 0; step < 2; step++) {
        memset(r.values, 0, sizeof r.values); /* the move alone: nothing to decay */
        update(&r, c);
        for (size_t i = 0; i < rows * cols; i++) move[i] = -(double)r.values[i] / scale;
        for (size_t a = 0; a < DIRECTIONS; a++)
            for (size_t b = 0; b < DIRECTIONS; b++) {
                const double want = a == b ? rounds(lengths[a] / sqrt(whole)) : 0;
                double *at = &worst[a > 1 || b > 1];
                *at = worse_of(*at, fabs(share_of(&r, move, a, b) - want));
            }
    }
    printf("%zu x %zu: largest distance from double %.1e, %.1e\n", rows, cols, worst[0], worst[1]);
    CHECK(worst[0] <= s_long);
    CHECK(worst[1] <= s_short);
}

/* Singular values from 1 down to 1e-6 in a matrix of whole rank, against double: where squares of them are below
 * what f32 keeps of the largest one's, moves are right all the same. */
static void all_lengths(const omm_compute *c, size_t rows, size_t cols) {
    static double move[SIDE_MAX * SIDE_MAX], left[SIDE_MAX * SIDE_MAX], right[SIDE_MAX * SIDE_MAX];
    static double sums[SIDE_MAX * SIDE_MAX];
    static rig r;
    const size_t s = rows < cols ? rows : cols;
    double whole = 0, dot = 0, squares = 0, of_moves = 0;
    r = (rig){.rows = rows, .cols = cols};
    for (size_t d = 0; d < s; d++) {
        for (size_t i = 0; i < rows; i++) left[d * rows + i] = direction(d, i, rows);
        for (size_t j = 0; j < cols; j++) right[d * cols + j] = direction(d, j, cols);
        const double length = pow(10, -6 * (double)d / (double)(s - 1));
        whole += length * length;
    }
    memset(move, 0, sizeof move);
    memset(sums, 0, sizeof sums);
    for (size_t d = 0; d < s; d++) {
        const double length = pow(10, -6 * (double)d / (double)(s - 1));
        const double want = rounds(length / sqrt(whole));
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++) {
                const double one = left[d * rows + i] * right[d * cols + j];
                sums[i * cols + j] += length * one;
                move[i * cols + j] += want * one;
            }
    }
    for (size_t i = 0; i < rows * cols; i++) r.gradient[i] = (float)sums[i];
    update(&r, c);
    for (size_t i = 0; i < rows * cols; i++) {
        const double got = -(double)r.values[i];
        dot += got * move[i];
        squares += move[i] * move[i];
        of_moves += got * got;
    }
    const double scale = (double)s_rate * 0.2 * sqrt((double)(rows > cols ? rows : cols));
    const double apart = 1 - dot / sqrt(squares * of_moves);
    const double length = sqrt(of_moves / squares) / scale - 1;
    printf("%zu x %zu, all lengths: 1 - cosine %.1e, length off by %.1e\n", rows, cols, apart,
           length);
    CHECK(apart < 1e-6);
    CHECK(fabs(length) < 2e-4);
}

/* Elements of one column: a move of rounds(1) along it, whatever its length; momentum and decay by formula. */
static void one_direction(const omm_compute *c) {
    enum { N = 7 };
    static const float lengths[] = {0.25F, -0.2F, 2}; /* the second turns the look ahead, not m */
    static rig r;
    float m = 0, w = 0.5F;
    const double size = rounds(1) * 0.2 * sqrt(N);
    r = (rig){.rows = N, .cols = 1};
    for (int i = 0; i < N; i++) r.values[i] = w;
    for (size_t step = 0; step < sizeof lengths / sizeof *lengths; step++) {
        for (int i = 0; i < N; i++) r.gradient[i] = lengths[step];
        update(&r, c);
        m = s_momentum * m + lengths[step];
        const float sign = lengths[step] + s_momentum * m > 0 ? 1 : -1;
        w -= s_rate * ((float)(size / sqrt(N)) * sign + s_decay * w);
        for (int i = 0; i < N; i++) {
            CHECK(r.m[i] == m);
            CHECK(fabsf(r.values[i] - w) < 1e-6F);
        }
    }
}

static omm_digest three_steps(omm_isa isa, unsigned threads, size_t rows, size_t cols) {
    static rig r;
    const omm_seed seed = omm_seed_from_u64(9);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    r = (rig){.rows = rows, .cols = cols};
    for (size_t i = 0; i < rows * cols; i++) r.values[i] = omm_rng_unit(&lane, i) - 0.5F;
    for (size_t step = 0; step < 3; step++) {
        for (size_t i = 0; i < rows * cols; i++)
            r.gradient[i] = omm_rng_unit(&lane, (step + 1) << 20 | i) - 0.5F;
        update(&r, &c);
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

/* Nothing moves but by decay. */
static void no_gradient(const omm_compute *c) {
    static rig r;
    r = (rig){.rows = 20, .cols = 33};
    for (size_t i = 0; i < (size_t)20 * 33; i++) r.values[i] = (float)i;
    update(&r, c);
    for (size_t i = 0; i < (size_t)20 * 33; i++)
        CHECK(r.values[i] == (float)i - s_rate * (s_decay * (float)i));
    r = (rig){.rows = 20, .cols = 33}; /* so small that no number times it has length 1 */
    for (size_t i = 0; i < (size_t)20 * 33; i++) r.gradient[i] = 1e-42F;
    update(&r, c);
    for (size_t i = 0; i < (size_t)20 * 33; i++) CHECK(r.values[i] == 0);
}

int main(void) {
    static const size_t shapes[][2] = {{40, 90}, {90, 40}, {33, 33}, {6, 17}, {150, 7}};
    omm_compute c;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        known_singular_values(&c, shapes[i][0], shapes[i][1]);
        all_the_same(shapes[i][0], shapes[i][1]);
    }
    all_lengths(&c, 100, 149);
    all_lengths(&c, 150, 96);
    one_direction(&c);
    no_gradient(&c);
    omm_compute_fini(&c);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
