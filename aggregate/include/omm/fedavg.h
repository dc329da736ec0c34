/* fedavg.h - the weighted mean of adapter deltas in fixed point, one submission at a time.
 *
 *   S = 62 - log2 V - log2 W                      (V = value_max, W = weight_sum_max: powers of two)
 *   q = rne(v * 2^S)                              int64, |q| <= 2^62 / W
 *   acc += weight * q;  weight_sum += weight      |acc| <= 2^62, so int64 never overflows
 *   mean = rne_f32(acc / weight_sum / 2^S)        one exact quotient, rounded once, half to even
 *
 * Integer sums commute: order of arrival, threads, machines and splits into partial accumulators
 * cannot change a bit.  Memory is 8 bytes per value, whatever the number of nodes.
 *
 * Depends on: base.  Threads: one at a time per accumulator; work is spread over the given pool.
 */
#ifndef OMM_FEDAVG_H
#define OMM_FEDAVG_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_FEDAVG_VALUES_MAX (1u << 28)

/* Both as powers of two: V = 2^value_max_log2, W = 2^weight_sum_max_log2. */
typedef struct omm_fedavg_range {
    int32_t value_max_log2;       /* -16 .. 15; default 0 */
    uint32_t weight_sum_max_log2; /* 0 .. 40, tokens; default 32 */
} omm_fedavg_range;
omm_fedavg_range omm_fedavg_range_default(void);
/* S of the range, 7 to 78.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_fedavg_shift(int32_t *shift, const omm_fedavg_range *range);

typedef struct omm_fedavg {
    omm_fedavg_range range;
    int32_t shift; /* S */
    size_t value_count;
    uint64_t weight_sum;
    uint64_t contributions; /* how many omm_fedavg_add it holds */
    int64_t *sums;          /* (value_count), owned */
    bool is_open;           /* between omm_fedavg_begin and omm_fedavg_end */
    uint64_t weight;        /* of the contribution that is open */
    size_t at;              /* where its next piece begins */
} omm_fedavg;

/* An empty accumulator.  Errors: CONFIG (range, value_count 0 or over the maximum), NOMEM. */
OMM_CHECKED omm_err omm_fedavg_init(omm_fedavg *acc, const omm_fedavg_range *range,
                                    size_t value_count);
void omm_fedavg_fini(omm_fedavg *acc);
void omm_fedavg_clear(omm_fedavg *acc); /* back to empty, memory kept */

/* Could these values be added?  Errors: REFUSED_VALUE (NaN, or |v| > V; names the lowest index). */
OMM_CHECKED omm_err omm_fedavg_check(const omm_fedavg *acc, const float *values, omm_pool *pool);

/* Add one contribution.
 *
 *   values  (value_count) f32, |v| <= V;  weight  >= 1, tokens
 *   pool    may be NULL
 *
 * Errors: REFUSED_VALUE (NaN or |v| > V, or weight 0), REFUSED_SIZE (the weight sum would be over
 * W).  On error nothing changed. */
OMM_CHECKED omm_err omm_fedavg_add(omm_fedavg *acc, const float *values, uint64_t weight,
                                   omm_pool *pool);

/* The same one piece at a time, for who never has all values at once: begin, then pieces in ascending order
 * without holes, then end.
 *
 *   first   where the piece begins;  values  (count) f32, |v| <= V
 *
 * Errors: begin: REFUSED_VALUE, REFUSED_SIZE as add; nothing changed.  piece: REFUSED_VALUE; end: STATE (pieces are
 * missing).  After an error of these two, or without an end, a part of the contribution is in the sums: nothing
 * but clear and fini is allowed then, and the rest says STATE. */
OMM_CHECKED omm_err omm_fedavg_begin(omm_fedavg *acc, uint64_t weight);
OMM_CHECKED omm_err omm_fedavg_piece(omm_fedavg *acc, size_t first, const float *values,
                                     size_t count, omm_pool *pool);
OMM_CHECKED omm_err omm_fedavg_end(omm_fedavg *acc);

/* acc += other: partial accumulators of the same range and size.
 * Errors: MISMATCH, REFUSED_SIZE (the weight sum would be over W), STATE.  On error nothing changed. */
OMM_CHECKED omm_err omm_fedavg_merge(omm_fedavg *acc, const omm_fedavg *other, omm_pool *pool);

/* The mean: out (value_count) f32.  Errors: STATE (nothing was added, or not all of
 * a contribution). */
OMM_CHECKED omm_err omm_fedavg_mean(float *out, const omm_fedavg *acc, omm_pool *pool);

/* omm_fedavg_mean and omm_server_step_plain in one, which takes no memory for the mean:
 * global[i] = global[i] + mean[i].
 * Errors: STATE (nothing was added), NUMERIC (a sum is not finite; names the lowest index, and `global` is
 * worth nothing then). */
OMM_CHECKED omm_err omm_fedavg_step(float *global, const omm_fedavg *acc, omm_pool *pool);

/* Plain server step: global[i] = global[i] + mean[i], one f32 addition.
 * Errors: NUMERIC (a sum is not finite).  On error nothing changed. */
OMM_CHECKED omm_err omm_server_step_plain(float *global, const float *mean, size_t value_count);

/* State for resuming after a crash:
 *   [magic "OMFA"][version u32][value_max_log2 i32][weight_sum_max_log2 u32][value_count u64]
 *   [weight_sum u64][contributions u64][sums i64 x value_count][BLAKE2b-256 of all before]
 * Errors: NOMEM, TOO_BIG, STATE. */
OMM_CHECKED omm_err omm_fedavg_save(omm_buf *out, const omm_fedavg *acc);
/* Into an initialised accumulator of the same range and size.
 * Errors: FORMAT, SIZE, VERSION, DIGEST, MISMATCH (another range or size).  On error nothing
 * changed. */
OMM_CHECKED omm_err omm_fedavg_load(omm_fedavg *acc, omm_bytes in);

/* Refuse a delta whose L2 norm is over `norm_max`.
 *
 * norm2 = sum of v * v in double, products exact, in 16 lanes (lane = index % 16) added in ascending
 * index, then lanes folded pairwise (0+8, 1+9, ...; then 4, 2, 1 apart); norm = sqrt(norm2).
 *
 *   norm   receives the norm, may be NULL
 *
 * Errors: REFUSED_VALUE (not finite), REFUSED_NORM (norm > norm_max).  norm_max 0: no bound. */
OMM_CHECKED omm_err omm_norm_check(double *norm, const float *values, size_t value_count,
                                   double norm_max);

/* The same one piece at a time: begin with {0}; pieces in ascending order.  Errors: piece: REFUSED_VALUE; end:
 * REFUSED_NORM. */
typedef struct omm_norm {
    size_t at; /* values so far */
    double lanes[16];
} omm_norm;
OMM_CHECKED omm_err omm_norm_piece(omm_norm *n, const float *values, size_t count);
OMM_CHECKED omm_err omm_norm_end(double *norm, const omm_norm *n, double norm_max);

/* Both bounds of a round on a delta that is walked through (omm_codec_each: `ud` is an omm_bounds that began with {0}
 * and its value_max).  A value over it does not end the walk.  Errors of piece: REFUSED_VALUE. */
typedef struct omm_bounds {
    double value_max;
    bool is_over; /* a value is over it: the first such */
    size_t index;
    float value;
    omm_norm norm;
} omm_bounds;
OMM_CHECKED omm_err omm_bounds_piece(void *ud, size_t first, const float *values, size_t count);
/* Errors: REFUSED_RANGE (a value is over value_max), REFUSED_NORM. */
OMM_CHECKED omm_err omm_bounds_end(double *norm, const omm_bounds *b, double norm_max);

#endif
