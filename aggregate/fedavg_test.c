/* Goal: the mean is exact, and nothing but the contributions decides its bytes.
 * Method: an independent reference in wide integers that proves each f32 the nearest; permuted
 * orders, thread counts and splits compared bytewise; limits at their exact edge; saved state with
 * every truncation and bit flip.
 */
#include "omm/fedavg.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef __int128 wide;

static omm_rng lane(uint64_t seed) {
    omm_seed s = omm_seed_from_u64(seed);
    return omm_rng_init(&s, OMM_PURPOSE_TEST, 0, 0);
}

/* Values of all magnitudes up to V, with the edges among them. */
static void fill(float *out, size_t n, uint64_t seed, int value_max_log2) {
    omm_rng rng = lane(seed);
    for (size_t i = 0; i < n; i++) {
        uint32_t shape = omm_rng_u32(&rng, 2 * i + 1) % 64;
        float u = 2.0f * omm_rng_unit(&rng, 2 * i) - 1.0f;
        int down = shape < 40 ? (int)shape : shape < 42 ? 149 : 3;
        out[i] = ldexpf(u, value_max_log2 - down);
        if (shape == 60) out[i] = ldexpf(1.0f, value_max_log2);
        if (shape == 61) out[i] = -ldexpf(1.0f, value_max_log2);
        if (shape == 62) out[i] = 0.0f;
    }
}

/* rne(v * 2^shift) from the bits of v, in integers. */
static int64_t reference_quantise(float v, int shift) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    int exponent = (int)(bits >> 23 & 0xff);
    int64_t mantissa = (int64_t)(bits & 0x7fffff) | (exponent ? 0x800000 : 0);
    int up = (exponent ? exponent : 1) - 150 + shift;
    int64_t q;
    if (up >= 0) {
        q = mantissa << up;
    } else if (up < -40) {
        q = 0;
    } else {
        int64_t one = (int64_t)1 << -up;
        q = mantissa / one;
        int64_t rest = mantissa % one;
        if (2 * rest > one || (2 * rest == one && q % 2 == 1)) q++;
    }
    return bits >> 31 ? -q : q;
}

static wide wide_abs(wide x) {
    return x < 0 ? -x : x;
}

/* Is `mean` the f32 nearest to sum / (weight_sum * 2^shift), ties to even?  In units of half the
 * spacing of f32 below `mean`, so that the neighbours are whole numbers. */
static bool is_nearest(float mean, wide sum, uint64_t weight_sum, int shift) {
    if (sum == 0 || mean == 0.0f) return sum == 0 && mean == 0.0f;
    int exponent;
    float fraction = frexpf(fabsf(mean), &exponent);
    wide mantissa = (wide)ldexpf(fraction, 24); /* 2^23 .. 2^24 - 1 */
    int unit = exponent - 24 - 2;               /* value = 4 * mantissa * 2^unit */
    /* compare |sum| * 2^-shift with m * weight_sum * 2^unit */
    int lift = -shift - unit;
    wide target = wide_abs(sum);
    wide weight = (wide)weight_sum;
    if (lift >= 0)
        target <<= lift;
    else
        weight <<= -lift;
    wide at = wide_abs(target - 4 * mantissa * weight);
    wide above = wide_abs(target - (4 * mantissa + 4) * weight);
    wide below = wide_abs(target - (4 * mantissa - (mantissa == 0x800000 ? 2 : 4)) * weight);
    if (at > above || at > below) return false;
    if ((at == above || at == below) && mantissa % 2 == 1) return false;
    return (mean < 0) == (sum < 0);
}

static void test_reference(void) {
    enum { N = 257, NODES = 7 };
    static float values[NODES][N];
    static const omm_fedavg_range ranges[] = {{0, 32}, {-16, 0}, {15, 40}, {4, 20}, {0, 3}};
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
        omm_fedavg acc;
        int32_t shift;
        CHECK_OK(omm_fedavg_shift(&shift, &ranges[r]));
        CHECK_EQ(shift, 62 - ranges[r].value_max_log2 - (int32_t)ranges[r].weight_sum_max_log2);
        CHECK_OK(omm_fedavg_init(&acc, &ranges[r], N));
        uint64_t weight_max = (uint64_t)1 << ranges[r].weight_sum_max_log2;
        omm_rng rng = lane(99);
        uint64_t weights[NODES];
        size_t nodes = weight_max < NODES ? 1 : NODES;
        for (size_t i = 0; i < nodes; i++) {
            fill(values[i], N, 10 * r + i, ranges[r].value_max_log2);
            weights[i] = 1 + omm_rng_below(&rng, i, weight_max / nodes);
            CHECK_OK(omm_fedavg_add(&acc, values[i], weights[i], NULL));
        }
        float mean[N];
        CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
        for (size_t j = 0; j < N; j++) {
            wide sum = 0;
            for (size_t i = 0; i < nodes; i++)
                sum += (wide)weights[i] * reference_quantise(values[i][j], shift);
            CHECK(sum == acc.sums[j]);
            CHECK(is_nearest(mean[j], sum, acc.weight_sum, shift));
        }
        omm_fedavg_fini(&acc);
    }
}

/* Small sums over large weights: the quotient then has only one bit below the f32, and the
 * remainder decides which side of the middle it is. */
static void test_hard_rounding(void) {
    const omm_fedavg_range range = {0, 40};
    omm_fedavg acc;
    CHECK_OK(omm_fedavg_init(&acc, &range, 2));
    omm_rng rng = lane(17);
    for (uint64_t i = 0; i < 20000; i++) {
        float mean[2];
        acc.weight_sum = ((uint64_t)1 << 39) + omm_rng_below(&rng, i, (uint64_t)1 << 39);
        acc.contributions = 1;
        acc.sums[0] = 1 + (int64_t)(i % 5);
        acc.sums[1] = -(int64_t)acc.weight_sum - (int64_t)(i % 7);
        CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
        CHECK(is_nearest(mean[0], acc.sums[0], acc.weight_sum, acc.shift));
        CHECK(is_nearest(mean[1], acc.sums[1], acc.weight_sum, acc.shift));
    }
    omm_fedavg_fini(&acc);
}

/* By hand: (3 * 0.5 + 1 * -0.25) / 4 = 0.3125; half to even of 1/3-like quotients by the above. */
static void test_by_hand(void) {
    omm_fedavg_range range = omm_fedavg_range_default();
    omm_fedavg acc;
    CHECK_OK(omm_fedavg_init(&acc, &range, 2));
    CHECK_OK(omm_fedavg_add(&acc, (const float[]){0.5f, 1.0f}, 3, NULL));
    CHECK_EQ(acc.sums[1], (int64_t)3 << 30);
    CHECK_OK(omm_fedavg_add(&acc, (const float[]){-0.25f, -1.0f}, 1, NULL));
    float mean[2];
    CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
    CHECK(mean[0] == 0.3125f);
    CHECK(mean[1] == 0.5f);
    CHECK_EQ(acc.contributions, 2);
    omm_fedavg_clear(&acc);
    CHECK_ERR(omm_fedavg_mean(mean, &acc, NULL), OMM_ERR_STATE);
    float global[2] = {1.0f, -1.0f};
    CHECK_OK(omm_server_step_plain(global, mean, 2));
    CHECK(global[0] == 1.3125f && global[1] == -0.5f);
    const float huge[2] = {0.0f, -3e38f};
    global[1] = -3e38f;
    CHECK_ERR(omm_server_step_plain(global, huge, 2), OMM_ERR_NUMERIC);
    CHECK(global[0] == 1.3125f);
    omm_fedavg_fini(&acc);
}

/* A mean in the middle of two f32 is the one whose last bit is 0: the lower one, then the upper one, of either sign. */
static void test_ties(void) {
    enum { N = 4 };
    const omm_fedavg_range range = omm_fedavg_range_default();
    const float low[N] = {0.5f, 0.5f + 0x1p-24f, -0.5f, -0.5f - 0x1p-24f};
    const float high[N] = {0.5f + 0x1p-24f, 0.5f + 0x2p-24f, -0.5f - 0x1p-24f, -0.5f - 0x2p-24f};
    float mean[N];
    omm_fedavg acc;
    CHECK_OK(omm_fedavg_init(&acc, &range, N));
    CHECK_OK(omm_fedavg_add(&acc, low, 5, NULL));
    CHECK_OK(omm_fedavg_add(&acc, high, 5, NULL));
    CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
    CHECK(mean[0] == 0.5f && mean[1] == 0.5f + 0x2p-24f);
    CHECK(mean[2] == -0.5f && mean[3] == -0.5f - 0x2p-24f);
    omm_fedavg_fini(&acc);
}

enum { ORDER_N = 100001, ORDER_NODES = 9 }; /* more than one block of the pool */

static void check_same(const omm_fedavg *a, const omm_fedavg *b) {
    CHECK_EQ(a->weight_sum, b->weight_sum);
    CHECK_EQ(a->contributions, b->contributions);
    CHECK(memcmp(a->sums, b->sums, a->value_count * sizeof *a->sums) == 0);
}

static void test_order_threads_splits(void) {
    static float values[ORDER_NODES][ORDER_N];
    static float mean[ORDER_N], mean_again[ORDER_N];
    omm_fedavg_range range = omm_fedavg_range_default();
    omm_fedavg first, again, part;
    CHECK_OK(omm_fedavg_init(&first, &range, ORDER_N));
    CHECK_OK(omm_fedavg_init(&again, &range, ORDER_N));
    CHECK_OK(omm_fedavg_init(&part, &range, ORDER_N));
    for (size_t i = 0; i < ORDER_NODES; i++) {
        fill(values[i], ORDER_N, i, 0);
        CHECK_OK(omm_fedavg_add(&first, values[i], 1000 + 77 * i, NULL));
    }
    CHECK_OK(omm_fedavg_mean(mean, &first, NULL));

    omm_rng rng = lane(5);
    for (unsigned trial = 0; trial < 12; trial++) {
        uint32_t order[ORDER_NODES];
        for (uint32_t i = 0; i < ORDER_NODES; i++) order[i] = i;
        omm_rng_shuffle_u32(order, ORDER_NODES, &rng, (uint64_t)trial * ORDER_NODES);
        omm_pool *pool;
        CHECK_OK(omm_pool_open(&pool, 1 + trial % 4));
        omm_fedavg_clear(&again);
        omm_fedavg_clear(&part);
        for (size_t i = 0; i < ORDER_NODES; i++)
            CHECK_OK(omm_fedavg_add(i < trial % ORDER_NODES ? &part : &again, values[order[i]],
                                    1000 + 77 * order[i], pool));
        CHECK_OK(omm_fedavg_merge(&again, &part, pool));
        check_same(&first, &again);
        CHECK_OK(omm_fedavg_mean(mean_again, &again, pool));
        CHECK(omm_bytes_equal(omm_bytes_of(mean, sizeof mean),
                              omm_bytes_of(mean_again, sizeof mean_again)));
        omm_pool_close(pool);
    }
    omm_fedavg_fini(&first);
    omm_fedavg_fini(&again);
    omm_fedavg_fini(&part);
}

/* Cut anywhere, with any number of threads: the sums of a whole, the step of mean and sum. */
static void test_pieces(void) {
    enum { N = 100003 };
    static float values[3][N], mean[N], whole[N], stepped[N];
    const omm_fedavg_range range = omm_fedavg_range_default();
    omm_fedavg acc, cut;
    omm_pool *pool = NULL;
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_fedavg_init(&acc, &range, N));
    CHECK_OK(omm_fedavg_init(&cut, &range, N));
    for (uint64_t k = 0; k < 3; k++) {
        fill(values[k], N, 20 + k, 0);
        CHECK_OK(omm_fedavg_add(&acc, values[k], 100 + k, NULL));
        CHECK_OK(omm_fedavg_begin(&cut, 100 + k));
        for (size_t at = 0, size = 1; at < N; at += size, size = size * 7 + k) {
            if (size > N - at) size = N - at;
            CHECK_OK(omm_fedavg_piece(&cut, at, values[k] + at, size, k == 1 ? pool : NULL));
        }
        CHECK_ERR(omm_fedavg_mean(mean, &cut, NULL), OMM_ERR_STATE); /* its end was not said */
        CHECK_OK(omm_fedavg_end(&cut));
    }
    check_same(&acc, &cut);
    CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
    fill(whole, N, 30, 3);
    memcpy(stepped, whole, sizeof whole);
    CHECK_OK(omm_server_step_plain(whole, mean, N));
    CHECK_OK(omm_fedavg_step(stepped, &cut, pool));
    CHECK(
        omm_bytes_equal(omm_bytes_of(whole, sizeof whole), omm_bytes_of(stepped, sizeof stepped)));
    stepped[N - 1] = INFINITY;
    stepped[7] = NAN;
    CHECK_ERR(omm_fedavg_step(stepped, &cut, pool), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "value 7 ") != NULL);
    omm_pool_close(pool);
    omm_fedavg_fini(&acc);
    omm_fedavg_fini(&cut);
}

/* A contribution that ends early is nobody's mean, and is not kept. */
static void test_unfinished(void) {
    static const float values[] = {0.5f, -0.5f, 0.25f, 2.0f};
    const omm_fedavg_range range = {.value_max_log2 = 0, .weight_sum_max_log2 = 4};
    omm_fedavg acc, other;
    float mean[4] = {7, 7, 7, 7};
    omm_buf out;
    omm_buf_init(&out, 4096);
    CHECK_OK(omm_fedavg_init(&acc, &range, 4));
    CHECK_OK(omm_fedavg_init(&other, &range, 4));
    CHECK_ERR(omm_fedavg_begin(&acc, 0), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(omm_fedavg_begin(&acc, 17), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_fedavg_step(mean, &acc, NULL), OMM_ERR_STATE);
    CHECK_OK(omm_fedavg_begin(&acc, 3));
    CHECK_OK(omm_fedavg_piece(&acc, 0, values, 2, NULL));
    CHECK_ERR(omm_fedavg_piece(&acc, 2, values + 2, 2, NULL), OMM_ERR_REFUSED_VALUE);
    CHECK(strstr(omm_err_sentence(), "value 3 ") != NULL);
    CHECK_ERR(omm_fedavg_end(&acc), OMM_ERR_STATE);
    CHECK_EQ(acc.contributions, 0);
    CHECK_ERR(omm_fedavg_begin(&acc, 1), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_add(&acc, values, 1, NULL), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_mean(mean, &acc, NULL), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_step(mean, &acc, NULL), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_merge(&acc, &other, NULL), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_merge(&other, &acc, NULL), OMM_ERR_STATE);
    CHECK_ERR(omm_fedavg_save(&out, &acc), OMM_ERR_STATE);
    CHECK(mean[0] == 7 && out.size == 0);
    omm_fedavg_clear(&acc);
    CHECK_OK(omm_fedavg_begin(&acc, 3));
    CHECK_OK(omm_fedavg_piece(&acc, 0, (const float[]){1, 1, 1, 1}, 4, NULL));
    CHECK_OK(omm_fedavg_end(&acc));
    CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
    CHECK(mean[0] == 1 && mean[3] == 1);
    omm_buf_fini(&out);
    omm_fedavg_fini(&acc);
    omm_fedavg_fini(&other);
}

static void test_refused(void) {
    enum { N = 70000 };
    static float values[N];
    omm_fedavg_range range = {.value_max_log2 = 1, .weight_sum_max_log2 = 10};
    omm_fedavg acc, other;
    omm_pool *pool;
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_fedavg_init(&acc, &range, N));
    CHECK_OK(omm_fedavg_init(&other, &range, N));
    const float bad[] = {2.0000002f, -2.0000002f, NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        values[N - 1] = bad[i];
        CHECK_ERR(omm_fedavg_add(&acc, values, 1, pool), OMM_ERR_REFUSED_VALUE);
    }
    values[40000] = -NAN; /* the lowest index is named, whoever finds it */
    for (int i = 0; i < 20; i++) {
        CHECK_ERR(omm_fedavg_check(&acc, values, pool), OMM_ERR_REFUSED_VALUE);
        CHECK(strstr(omm_err_sentence(), "value 40000 ") != NULL);
    }
    values[40000] = 2.0f;
    values[N - 1] = -2.0f;
    CHECK_ERR(omm_fedavg_add(&acc, values, 0, pool), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(omm_fedavg_add(&acc, values, 1025, pool), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_fedavg_add(&acc, values, UINT64_MAX, pool), OMM_ERR_REFUSED_SIZE);
    CHECK_EQ(acc.weight_sum, 0);
    for (size_t i = 0; i < N; i++) CHECK(acc.sums[i] == 0);

    CHECK_OK(omm_fedavg_add(&acc, values, 1023, pool));
    CHECK_ERR(omm_fedavg_add(&acc, values, 2, pool), OMM_ERR_REFUSED_SIZE);
    CHECK_OK(omm_fedavg_add(&other, values, 2, pool));
    CHECK_ERR(omm_fedavg_merge(&acc, &other, pool), OMM_ERR_REFUSED_SIZE);
    CHECK_OK(omm_fedavg_add(&acc, values, 1, pool)); /* exactly W, exactly V: 2^62 */
    CHECK_EQ(acc.sums[40000], (int64_t)1 << 62);
    CHECK_EQ(acc.sums[N - 1], -((int64_t)1 << 62));
    omm_fedavg_fini(&other);
    range.value_max_log2 = 2;
    CHECK_OK(omm_fedavg_init(&other, &range, N));
    CHECK_ERR(omm_fedavg_merge(&acc, &other, pool), OMM_ERR_MISMATCH);
    omm_fedavg_fini(&other);
    omm_fedavg_fini(&acc);
    omm_pool_close(pool);

    const omm_fedavg_range ranges[] = {{-17, 1}, {16, 1}, {0, 41}};
    for (size_t i = 0; i < 3; i++) CHECK_ERR(omm_fedavg_init(&acc, &ranges[i], 1), OMM_ERR_CONFIG);
    range = omm_fedavg_range_default();
    CHECK_ERR(omm_fedavg_init(&acc, &range, 0), OMM_ERR_CONFIG);
    CHECK_ERR(omm_fedavg_init(&acc, &range, (size_t)1 << 40), OMM_ERR_CONFIG);
}

static void test_saved(void) {
    enum { N = 5 };
    float values[N];
    omm_fedavg_range range = omm_fedavg_range_default();
    omm_fedavg acc, again;
    omm_buf saved;
    omm_buf_init(&saved, 4096);
    CHECK_OK(omm_fedavg_init(&acc, &range, N));
    CHECK_OK(omm_fedavg_init(&again, &range, N));
    fill(values, N, 1, 0);
    CHECK_OK(omm_fedavg_add(&acc, values, 12345, NULL));
    CHECK_OK(omm_fedavg_save(&saved, &acc));
    CHECK_EQ(saved.size, 40 + 8 * N + 32);
    CHECK_OK(omm_fedavg_load(&again, omm_buf_view(&saved)));
    check_same(&acc, &again);
    CHECK_OK(omm_fedavg_add(&again, values, 1, NULL)); /* goes on where it was */

    for (size_t size = 0; size < saved.size; size++)
        CHECK(omm_fedavg_load(&acc, omm_bytes_of(saved.data, size)) != OMM_OK);
    for (size_t bit = 0; bit < saved.size * 8; bit++) {
        saved.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        CHECK(omm_fedavg_load(&acc, omm_buf_view(&saved)) != OMM_OK);
        saved.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    CHECK_EQ(acc.weight_sum, 12345);
    /* a sum that no adds can reach, with a right digest */
    omm_put_u64(saved.data + 40, (uint64_t)1 << 61);
    omm_digest digest = omm_hash(omm_bytes_of(saved.data, saved.size - 32));
    memcpy(saved.data + saved.size - 32, digest.b, 32);
    CHECK_ERR(omm_fedavg_load(&acc, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    omm_buf_fini(&saved);
    omm_fedavg_fini(&acc);
    omm_fedavg_fini(&again);
}

static void seal(omm_buf *saved) {
    omm_digest digest = omm_hash(omm_bytes_of(saved->data, saved->size - 32));
    memcpy(saved->data + saved->size - 32, digest.b, 32);
}

/* What was saved is loaded at its limits and by its own range, and nothing that no adds can reach. */
static void test_saved_edges(void) {
    enum { N = 3, WEIGHT_AT = 24, COUNT_AT = 32, SUM_AT = 40 };
    static const omm_fedavg_range range = {-3, 20}, other_range = {-2, 20};
    static const float values[N] = {0.125f, -0.125f, 0};
    static const struct {
        uint64_t weight, count;
    } heads[] = {{(1u << 20) + 1, 1}, {1000, 1001}, {1000, 0}, {0, 1}};
    omm_fedavg acc, again, other;
    omm_buf saved;
    omm_buf_init(&saved, 4096);
    CHECK_OK(omm_fedavg_init(&acc, &range, N));
    CHECK_OK(omm_fedavg_init(&again, &range, N));
    CHECK_OK(omm_fedavg_init(&other, &other_range, N));
    CHECK_OK(omm_fedavg_add(&acc, values, 1000, NULL));
    CHECK_OK(omm_fedavg_save(&saved, &acc));
    CHECK_EQ((int32_t)omm_get_u32(saved.data + 8), -3);
    CHECK_EQ(omm_get_u32(saved.data + 12), 20);
    CHECK_OK(omm_fedavg_begin(&again, 1)); /* forgotten */
    CHECK_OK(omm_fedavg_load(&again, omm_buf_view(&saved)));
    check_same(&acc, &again);
    float mean[N];
    CHECK_OK(omm_fedavg_mean(mean, &again, NULL));
    CHECK(same_bytes(mean, values, sizeof mean));
    CHECK_ERR(omm_fedavg_load(&other, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        omm_put_u64(saved.data + WEIGHT_AT, heads[i].weight);
        omm_put_u64(saved.data + COUNT_AT, heads[i].count);
        seal(&saved);
        CHECK_ERR(omm_fedavg_load(&again, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    }
    omm_put_u64(saved.data + WEIGHT_AT, 1000);
    omm_put_u64(saved.data + COUNT_AT, 1);
    const int64_t max = (int64_t)1000 << 42;
    for (size_t i = 0; i < N; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            omm_put_u64(saved.data + SUM_AT + 8 * i, (uint64_t)(sign * max));
            seal(&saved);
            CHECK_OK(omm_fedavg_load(&again, omm_buf_view(&saved)));
            omm_put_u64(saved.data + SUM_AT + 8 * i, (uint64_t)(sign * (max + 1)));
            seal(&saved);
            CHECK_ERR(omm_fedavg_load(&again, omm_buf_view(&saved)), OMM_ERR_FORMAT);
            omm_put_u64(saved.data + SUM_AT + 8 * i, 0);
        }
    omm_buf_fini(&saved);
    omm_fedavg_fini(&acc);
    omm_fedavg_fini(&again);
    omm_fedavg_fini(&other);
}

/* Counts at the ends of the pool's blocks: no value is left out. */
static void test_block_ends(void) {
    static const size_t counts[] = {1, 2, 32767, 32768, 32769, 65537};
    static float values[65537], mean[65537];
    const omm_fedavg_range range = omm_fedavg_range_default();
    for (size_t i = 0; i < 65537; i++) values[i] = 0.5f;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        omm_fedavg acc;
        const size_t n = counts[c];
        CHECK_OK(omm_fedavg_init(&acc, &range, n));
        CHECK_OK(omm_fedavg_add(&acc, values, 3, NULL));
        CHECK_OK(omm_fedavg_mean(mean, &acc, NULL));
        for (size_t i = 0; i < n; i++) CHECK(mean[i] == 0.5f);
        values[n - 1] = 2;
        CHECK_ERR(omm_fedavg_add(&acc, values, 3, NULL), OMM_ERR_REFUSED_VALUE);
        values[n - 1] = 0.5f;
        omm_fedavg_fini(&acc);
    }
    float global[2] = {-3e38f, 0};
    CHECK_ERR(omm_server_step_plain(global, (const float[]){-3e38f, 1}, 2), OMM_ERR_NUMERIC);
    CHECK(global[1] == 0);
}

static void test_bounds(void) {
    static const float fits[] = {1, -1, 0.5f}, over[] = {0.25f, -1.5f, 2};
    double norm = 7;
    omm_bounds b = {.value_max = 1};
    CHECK_OK(omm_bounds_piece(&b, 0, fits, 3));
    CHECK_OK(omm_bounds_end(&norm, &b, 1.5));
    CHECK(norm == 1.5);
    CHECK_ERR(omm_bounds_end(&norm, &b, 1.25), OMM_ERR_REFUSED_NORM);
    CHECK_OK(omm_bounds_piece(&b, 3, over, 3));
    norm = 7;
    CHECK_ERR(omm_bounds_end(&norm, &b, 0), OMM_ERR_REFUSED_RANGE);
    CHECK(norm == 7);
    CHECK(strstr(omm_err_sentence(), "value 4: -1.5 is over 1") != NULL);
    CHECK_OK(omm_bounds_piece(&b, 6, fits, 3)); /* the first one stays the one that is named */
    CHECK_ERR(omm_bounds_end(NULL, &b, 0), OMM_ERR_REFUSED_RANGE);
    CHECK(strstr(omm_err_sentence(), "value 4: -1.5 is over 1") != NULL);
    b = (omm_bounds){.value_max = 1};
    CHECK_OK(omm_bounds_piece(&b, 0, (const float[]){-1.5f}, 1)); /* of all values the first */
    CHECK_ERR(omm_bounds_end(NULL, &b, 0), OMM_ERR_REFUSED_RANGE);
    CHECK(strstr(omm_err_sentence(), "value 0: -1.5 is over 1") != NULL);
    b = (omm_bounds){.value_max = 1};
    CHECK_ERR(omm_bounds_piece(&b, 0, (const float[]){0, NAN}, 2), OMM_ERR_REFUSED_VALUE);
}

static void test_out_of_memory(void) {
    omm_fedavg_range range = omm_fedavg_range_default();
    omm_fedavg acc;
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_fedavg_init(&acc, &range, 10), OMM_ERR_NOMEM);
    CHECK_OK(omm_fedavg_init(&acc, &range, 10));
    omm_buf out;
    omm_buf_init(&out, 4096);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_fedavg_save(&out, &acc), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
    omm_fedavg_fini(&acc);
    CHECK_EQ(omm_mem_live(), 0);
}

static void test_norm(void) {
    double norm;
    CHECK_OK(omm_norm_check(&norm, (const float[]){3.0f, 0.0f, -4.0f}, 3, 5.0));
    CHECK(norm == 5.0);
    CHECK_ERR(omm_norm_check(&norm, (const float[]){3.0f, -4.0f}, 2, 4.9999), OMM_ERR_REFUSED_NORM);
    CHECK_OK(omm_norm_check(NULL, (const float[]){3e38f, 3e38f}, 2, 0));
    CHECK_ERR(omm_norm_check(&norm, (const float[]){3e38f, -3e38f}, 2, 1e30), OMM_ERR_REFUSED_NORM);
    CHECK_ERR(omm_norm_check(&norm, (const float[]){0.0f, NAN}, 2, 0), OMM_ERR_REFUSED_VALUE);
    static float values[1000];
    fill(values, 1000, 3, 0);
    CHECK_OK(omm_norm_check(&norm, values, 1000, 0));
    double plain = 0;
    for (int i = 0; i < 1000; i++) plain += (double)values[i] * (double)values[i];
    CHECK(fabs(norm * norm - plain) < 1e-12 * plain);
    double lanes[16] = {0}; /* as the header has it, to the bit */
    for (int i = 0; i < 1000; i++) lanes[i % 16] += (double)values[i] * (double)values[i];
    for (int i = 0; i < 8; i++) lanes[i] += lanes[i + 8];
    for (int i = 0; i < 4; i++) lanes[i] += lanes[i + 4];
    for (int i = 0; i < 2; i++) lanes[i] += lanes[i + 2];
    CHECK(norm == sqrt(lanes[0] + lanes[1]));
    omm_norm pieces = {0};
    double again = 0;
    for (size_t at = 0, size = 1; at < 1000; at += size, size = size * 5 + 2) {
        if (size > 1000 - at) size = 1000 - at;
        CHECK_OK(omm_norm_piece(&pieces, values + at, size));
    }
    CHECK_OK(omm_norm_end(&again, &pieces, 0));
    CHECK(again == norm);
    CHECK_ERR(omm_norm_end(&again, &pieces, norm * 0.99), OMM_ERR_REFUSED_NORM);
    CHECK_ERR(omm_norm_piece(&pieces, (const float[]){0, INFINITY}, 2), OMM_ERR_REFUSED_VALUE);
    CHECK(strstr(omm_err_sentence(), "value 1001 ") != NULL);
}

int main(void) {
    test_by_hand();
    test_ties();
    test_reference();
    test_hard_rounding();
    test_order_threads_splits();
    test_pieces();
    test_unfinished();
    test_refused();
    test_saved();
    test_saved_edges();
    test_block_ends();
    test_bounds();
    test_out_of_memory();
    test_norm();
    return 0;
}
