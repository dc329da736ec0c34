#include "omm/fedavg.h"

#include "omm/hash.h"
#include "omm/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* A task of the pool: large enough to be worth waking a thread, small enough to share evenly. */
enum { BLOCK = 1 << 15 };

#define FEDAVG_MAGIC 0x41464d4fu /* "OMFA", little endian */
#define FEDAVG_VERSION 1u
enum { HEAD_BYTES = 40, DIGEST_BYTES = 32 };

enum { VALUE_MAX_LOG2_MIN = -16, VALUE_MAX_LOG2_MAX = 15, WEIGHT_LOG2_MAX = 40 };

static size_t block_count(size_t n) {
    return (n + BLOCK - 1) / BLOCK;
}

static size_t block_end(size_t block, size_t n) {
    size_t end = (block + 1) * BLOCK;
    return end < n ? end : n;
}

/* 2^e for the exponents of normal doubles, from its bits. */
static double power_of_two(int e) {
    OMM_ASSERT(e >= -1022 && e <= 1023);
    return omm_f64_of_bits((uint64_t)(e + 1023) << 52);
}

omm_fedavg_range omm_fedavg_range_default(void) {
    return (omm_fedavg_range){.value_max_log2 = 0, .weight_sum_max_log2 = 32};
}

omm_err omm_fedavg_shift(int32_t *shift, const omm_fedavg_range *range) {
    if (range->value_max_log2 < VALUE_MAX_LOG2_MIN || range->value_max_log2 > VALUE_MAX_LOG2_MAX)
        return omm_raise(OMM_ERR_CONFIG, "value_max is 2^%d, must be 2^%d to 2^%d",
                         (int)range->value_max_log2, VALUE_MAX_LOG2_MIN, VALUE_MAX_LOG2_MAX);
    if (range->weight_sum_max_log2 > WEIGHT_LOG2_MAX)
        return omm_raise(OMM_ERR_CONFIG, "weight_sum_max is 2^%u, must be at most 2^%d",
                         (unsigned)range->weight_sum_max_log2, WEIGHT_LOG2_MAX);
    *shift = 62 - range->value_max_log2 - (int32_t)range->weight_sum_max_log2;
    return OMM_OK;
}

omm_err omm_fedavg_init(omm_fedavg *acc, const omm_fedavg_range *range, size_t value_count) {
    int32_t shift;
    OMM_TRY(omm_fedavg_shift(&shift, range));
    if (value_count < 1 || value_count > OMM_FEDAVG_VALUES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "aggregation of %zu values, must be 1 to %u", value_count,
                         OMM_FEDAVG_VALUES_MAX);
    int64_t *sums = omm_alloc(value_count, sizeof *sums);
    if (!sums) return omm_raise(OMM_ERR_NOMEM, "accumulator of %zu values", value_count);
    *acc = (omm_fedavg){.range = *range, .shift = shift, .value_count = value_count, .sums = sums};
    return OMM_OK;
}

void omm_fedavg_fini(omm_fedavg *acc) {
    omm_free(acc->sums);
    *acc = (omm_fedavg){0};
}

void omm_fedavg_clear(omm_fedavg *acc) {
    memset(acc->sums, 0, acc->value_count * sizeof *acc->sums);
    acc->weight_sum = 0;
    acc->contributions = 0;
    acc->is_open = false;
}

/* A part of a contribution is in the sums. */
static omm_err check_whole(const omm_fedavg *acc) {
    if (!acc->is_open) return OMM_OK;
    return omm_raise(OMM_ERR_STATE, "a contribution ends at value %zu of %zu", acc->at,
                     acc->value_count);
}

static void lower_to(atomic_size_t *lowest, size_t i) {
    size_t seen = atomic_load(lowest);
    while (i < seen && !atomic_compare_exchange_weak(lowest, &seen, i)) {
    }
}

typedef struct check_job {
    const float *values;
    size_t n;
    float value_max;
    atomic_size_t first_bad; /* lowest index found so far; n: none */
} check_job;

static void check_block(void *ud, size_t block, unsigned worker) {
    (void)worker;
    check_job *job = ud;
    for (size_t i = block * BLOCK; i < block_end(block, job->n); i++) {
        if (fabsf(job->values[i]) <= job->value_max) continue; /* false for NaN */
        lower_to(&job->first_bad, i);
        return;
    }
}

static omm_err check_piece(const omm_fedavg *acc, size_t first, const float *values, size_t count,
                           omm_pool *pool) {
    check_job job = {
        .values = values, .n = count, .value_max = (float)power_of_two(acc->range.value_max_log2)};
    atomic_init(&job.first_bad, count);
    omm_pool_run(pool, check_block, &job, block_count(count));
    size_t bad = atomic_load(&job.first_bad);
    if (bad < count)
        return omm_raise(OMM_ERR_REFUSED_VALUE, "value %zu is %g, limit %g", first + bad,
                         omm_nan_plain((double)values[bad]), (double)job.value_max);
    return OMM_OK;
}

omm_err omm_fedavg_check(const omm_fedavg *acc, const float *values, omm_pool *pool) {
    return check_piece(acc, 0, values, acc->value_count, pool);
}

/* The weight sum stays within W, so that no sum can overflow. */
static omm_err weight_check(const omm_fedavg *acc, uint64_t more) {
    uint64_t max = (uint64_t)1 << acc->range.weight_sum_max_log2;
    if (more > max - acc->weight_sum)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "weight sum %llu + %llu, limit %llu",
                         (unsigned long long)acc->weight_sum, (unsigned long long)more,
                         (unsigned long long)max);
    return OMM_OK;
}

/* rne(v * 2^S).  The product is exact in double; an f32 of 2^24 or more is a whole number. */
static int64_t quantise(float v, double scale) {
    double x = (double)v * scale;
    if (fabs(x) < 0x1p24) x = (x + 0x1.8p52) - 0x1.8p52;
    return (int64_t)x;
}

typedef struct add_job {
    int64_t *sums;
    const float *values;
    size_t n;
    int64_t weight;
    double scale;
} add_job;

static void add_block(void *ud, size_t block, unsigned worker) {
    (void)worker;
    const add_job *job = ud;
    for (size_t i = block * BLOCK; i < block_end(block, job->n); i++)
        job->sums[i] += job->weight * quantise(job->values[i], job->scale);
}

static omm_err weight_of_one(const omm_fedavg *acc, uint64_t weight) {
    OMM_TRY(check_whole(acc));
    if (weight == 0) return omm_raise(OMM_ERR_REFUSED_VALUE, "weight is 0");
    return weight_check(acc, weight);
}

static void add_piece(omm_fedavg *acc, size_t first, const float *values, size_t count,
                      uint64_t weight, omm_pool *pool) {
    add_job job = {acc->sums + first, values, count, (int64_t)weight, power_of_two(acc->shift)};
    omm_pool_run(pool, add_block, &job, block_count(count));
}

omm_err omm_fedavg_add(omm_fedavg *acc, const float *values, uint64_t weight, omm_pool *pool) {
    OMM_TRY(weight_of_one(acc, weight));
    OMM_TRY(omm_fedavg_check(acc, values, pool));
    add_piece(acc, 0, values, acc->value_count, weight, pool);
    acc->weight_sum += weight;
    acc->contributions++;
    return OMM_OK;
}

omm_err omm_fedavg_begin(omm_fedavg *acc, uint64_t weight) {
    OMM_TRY(weight_of_one(acc, weight));
    acc->is_open = true;
    acc->weight = weight;
    acc->at = 0;
    return OMM_OK;
}

omm_err omm_fedavg_piece(omm_fedavg *acc, size_t first, const float *values, size_t count,
                         omm_pool *pool) {
    OMM_ASSERT(acc->is_open && first == acc->at && count <= acc->value_count - first);
    OMM_TRY(check_piece(acc, first, values, count, pool));
    add_piece(acc, first, values, count, acc->weight, pool);
    acc->at += count;
    return OMM_OK;
}

omm_err omm_fedavg_end(omm_fedavg *acc) {
    OMM_ASSERT(acc->is_open);
    if (acc->at < acc->value_count) return check_whole(acc);
    acc->is_open = false;
    acc->weight_sum += acc->weight;
    acc->contributions++;
    return OMM_OK;
}

static bool same_range(const omm_fedavg_range *a, const omm_fedavg_range *b) {
    return a->value_max_log2 == b->value_max_log2 &&
           a->weight_sum_max_log2 == b->weight_sum_max_log2;
}

typedef struct merge_job {
    int64_t *sums;
    const int64_t *other;
    size_t n;
} merge_job;

static void merge_block(void *ud, size_t block, unsigned worker) {
    (void)worker;
    const merge_job *job = ud;
    for (size_t i = block * BLOCK; i < block_end(block, job->n); i++) job->sums[i] += job->other[i];
}

omm_err omm_fedavg_merge(omm_fedavg *acc, const omm_fedavg *other, omm_pool *pool) {
    OMM_ASSERT(acc != other);
    OMM_TRY(check_whole(acc));
    OMM_TRY(check_whole(other));
    if (!same_range(&acc->range, &other->range) || acc->value_count != other->value_count)
        return omm_raise(OMM_ERR_MISMATCH, "partial sums have another range or size");
    OMM_TRY(weight_check(acc, other->weight_sum));
    merge_job job = {acc->sums, other->sums, acc->value_count};
    omm_pool_run(pool, merge_block, &job, block_count(acc->value_count));
    acc->weight_sum += other->weight_sum;
    acc->contributions += other->contributions;
    return OMM_OK;
}

/* sum / (weight_sum * 2^S), rounded once to f32, half to even.  sum * 2^64 / weight_sum has at
 * least 25 bits (weight_sum <= 2^40), and the result is at least 2^-78: never subnormal. */
static float mean_of(int64_t sum, uint64_t weight_sum, int32_t shift) {
    if (sum == 0) return 0.0f;
    uint64_t magnitude = sum < 0 ? 0 - (uint64_t)sum : (uint64_t)sum;
    unsigned __int128 scaled = (unsigned __int128)magnitude << 64;
    unsigned __int128 quotient = scaled / weight_sum;
    bool inexact = scaled % weight_sum != 0;

    uint64_t high = (uint64_t)(quotient >> 64);
    int bits = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)quotient);
    int drop = bits - 24;
    OMM_ASSERT(drop >= 1);
    uint32_t mantissa = (uint32_t)(quotient >> drop);
    unsigned __int128 half = (unsigned __int128)1 << (drop - 1);
    unsigned __int128 rest = quotient & (half * 2 - 1);
    if (rest > half || (rest == half && (inexact || (mantissa & 1)))) mantissa++;

    double value = (double)mantissa * power_of_two(drop - 64 - shift);
    return (float)(sum < 0 ? -value : value);
}

typedef struct mean_job {
    float *out;
    const omm_fedavg *acc;
} mean_job;

static void mean_block(void *ud, size_t block, unsigned worker) {
    (void)worker;
    const mean_job *job = ud;
    for (size_t i = block * BLOCK; i < block_end(block, job->acc->value_count); i++)
        job->out[i] = mean_of(job->acc->sums[i], job->acc->weight_sum, job->acc->shift);
}

static omm_err check_mean(const omm_fedavg *acc) {
    OMM_TRY(check_whole(acc));
    if (acc->weight_sum == 0) return omm_raise(OMM_ERR_STATE, "mean of no contribution");
    return OMM_OK;
}

omm_err omm_fedavg_mean(float *out, const omm_fedavg *acc, omm_pool *pool) {
    OMM_TRY(check_mean(acc));
    mean_job job = {.acc = acc};
    job.out = out;
    omm_pool_run(pool, mean_block, &job, block_count(acc->value_count));
    return OMM_OK;
}

typedef struct step_job {
    float *global;
    const omm_fedavg *acc;
    atomic_size_t first_bad; /* lowest index found so far; value_count: none */
} step_job;

static void step_block(void *ud, size_t block, unsigned worker) {
    (void)worker;
    step_job *job = ud;
    const omm_fedavg *acc = job->acc;
    for (size_t i = block * BLOCK; i < block_end(block, acc->value_count); i++) {
        job->global[i] = job->global[i] + mean_of(acc->sums[i], acc->weight_sum, acc->shift);
        if (isfinite(job->global[i])) continue;
        lower_to(&job->first_bad, i);
        return;
    }
}

omm_err omm_fedavg_step(float *global, const omm_fedavg *acc, omm_pool *pool) {
    OMM_TRY(check_mean(acc));
    step_job job = {.acc = acc};
    job.global = global;
    atomic_init(&job.first_bad, acc->value_count);
    omm_pool_run(pool, step_block, &job, block_count(acc->value_count));
    const size_t bad = atomic_load(&job.first_bad);
    if (bad < acc->value_count)
        return omm_raise(OMM_ERR_NUMERIC, "server step: value %zu is not finite", bad);
    return OMM_OK;
}

omm_err omm_server_step_plain(float *global, const float *mean, size_t value_count) {
    for (size_t i = 0; i < value_count; i++) {
        if (!isfinite(global[i] + mean[i]))
            return omm_raise(OMM_ERR_NUMERIC, "server step: value %zu is not finite", i);
    }
    for (size_t i = 0; i < value_count; i++) global[i] = global[i] + mean[i];
    return OMM_OK;
}

omm_err omm_fedavg_save(omm_buf *out, const omm_fedavg *acc) {
    size_t body = HEAD_BYTES + acc->value_count * 8;
    uint8_t *head;
    OMM_TRY(check_whole(acc));
    OMM_TRY(omm_buf_extend(out, &head, body + DIGEST_BYTES));
    omm_put_u32(head, FEDAVG_MAGIC);
    omm_put_u32(head + 4, FEDAVG_VERSION);
    omm_put_u32(head + 8, (uint32_t)acc->range.value_max_log2);
    omm_put_u32(head + 12, acc->range.weight_sum_max_log2);
    omm_put_u64(head + 16, acc->value_count);
    omm_put_u64(head + 24, acc->weight_sum);
    omm_put_u64(head + 32, acc->contributions);
    for (size_t i = 0; i < acc->value_count; i++)
        omm_put_u64(head + HEAD_BYTES + i * 8, (uint64_t)acc->sums[i]);
    omm_digest digest = omm_hash(omm_bytes_of(head, body));
    memcpy(head + body, digest.b, DIGEST_BYTES);
    return OMM_OK;
}

static omm_err head_check(const omm_fedavg *acc, omm_bytes in) {
    if (in.size < HEAD_BYTES + DIGEST_BYTES || omm_get_u32(in.data) != FEDAVG_MAGIC)
        return omm_raise(OMM_ERR_FORMAT, "no saved aggregation (%zu bytes)", in.size);
    if (omm_get_u32(in.data + 4) != FEDAVG_VERSION)
        return omm_raise(OMM_ERR_VERSION, "saved aggregation has version %u",
                         (unsigned)omm_get_u32(in.data + 4));
    omm_fedavg_range range = {(int32_t)omm_get_u32(in.data + 8), omm_get_u32(in.data + 12)};
    if (!same_range(&acc->range, &range) || omm_get_u64(in.data + 16) != acc->value_count)
        return omm_raise(OMM_ERR_MISMATCH, "saved aggregation has another range or size");
    if (in.size != HEAD_BYTES + acc->value_count * 8 + DIGEST_BYTES)
        return omm_raise(OMM_ERR_SIZE, "saved aggregation of %zu bytes, %zu values", in.size,
                         acc->value_count);
    omm_bytes content;
    if (!omm_hash_sealed(&content, in))
        return omm_raise(OMM_ERR_DIGEST, "saved aggregation is damaged");
    return OMM_OK;
}

/* What no sequence of adds can reach is refused: it could overflow later. */
static omm_err sums_check(const omm_fedavg *acc, omm_bytes in) {
    uint64_t weight_sum = omm_get_u64(in.data + 24);
    uint64_t contributions = omm_get_u64(in.data + 32);
    if (weight_sum > (uint64_t)1 << acc->range.weight_sum_max_log2 || contributions > weight_sum ||
        (contributions == 0) != (weight_sum == 0))
        return omm_raise(OMM_ERR_FORMAT, "saved aggregation has weight %llu of %llu contributions",
                         (unsigned long long)weight_sum, (unsigned long long)contributions);
    int64_t max = (int64_t)(weight_sum << (62 - acc->range.weight_sum_max_log2));
    for (size_t i = 0; i < acc->value_count; i++) {
        int64_t sum = (int64_t)omm_get_u64(in.data + HEAD_BYTES + i * 8);
        if (sum > max || sum < -max)
            return omm_raise(OMM_ERR_FORMAT, "saved aggregation: sum %zu is out of range", i);
    }
    return OMM_OK;
}

omm_err omm_fedavg_load(omm_fedavg *acc, omm_bytes in) {
    OMM_TRY(head_check(acc, in));
    OMM_TRY(sums_check(acc, in));
    acc->is_open = false;
    acc->weight_sum = omm_get_u64(in.data + 24);
    acc->contributions = omm_get_u64(in.data + 32);
    for (size_t i = 0; i < acc->value_count; i++)
        acc->sums[i] = (int64_t)omm_get_u64(in.data + HEAD_BYTES + i * 8);
    return OMM_OK;
}

omm_err omm_norm_piece(omm_norm *n, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return omm_raise(OMM_ERR_REFUSED_VALUE, "value %zu is not finite", n->at + i);
        n->lanes[(n->at + i) % 16] += (double)values[i] * (double)values[i];
    }
    n->at += count;
    return OMM_OK;
}

omm_err omm_norm_end(double *norm, const omm_norm *n, double norm_max) {
    double lanes[16];
    memcpy(lanes, n->lanes, sizeof lanes);
    for (size_t apart = 8; apart >= 1; apart /= 2)
        for (size_t i = 0; i < apart; i++) lanes[i] += lanes[i + apart];
    double root = sqrt(lanes[0]);
    if (norm_max > 0 && root > norm_max)
        return omm_raise(OMM_ERR_REFUSED_NORM, "norm %g, limit %g", root, norm_max);
    if (norm) *norm = root;
    return OMM_OK;
}

omm_err omm_norm_check(double *norm, const float *values, size_t value_count, double norm_max) {
    omm_norm n = {0};
    OMM_TRY(omm_norm_piece(&n, values, value_count));
    return omm_norm_end(norm, &n, norm_max);
}

omm_err omm_bounds_piece(void *ud, size_t first, const float *values, size_t count) {
    omm_bounds *b = ud;
    for (size_t i = 0; i < count && !b->is_over; i++) {
        if (fabs((double)values[i]) <= b->value_max) continue;
        b->is_over = true;
        b->index = first + i;
        b->value = values[i];
    }
    return omm_norm_piece(&b->norm, values, count);
}

omm_err omm_bounds_end(double *norm, const omm_bounds *b, double norm_max) {
    if (b->is_over)
        return omm_raise(OMM_ERR_REFUSED_RANGE, "value %zu: %.9g is over %.9g", b->index,
                         omm_nan_plain((double)b->value), b->value_max);
    return omm_norm_end(norm, &b->norm, norm_max);
}
