/* stats.h - the statistics of the gates, the same bits on every machine.
 *
 * Sums run in ascending index, in double, one addition after the other; of libm only sqrt, which IEEE 754 rounds correctly.
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef OMM_STATS_H
#define OMM_STATS_H

#include "omm/err.h"
#include "omm/rng.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_BOOTSTRAP_RESAMPLES_MAX 1000000u

/* NaN when count is 0. */
double omm_mean(const double *values, size_t count);

/* Jain's fairness index (sum x)^2 / (count * sum x^2), 1 / count to 1; 0 when all are zero, NaN when
 * count is 0 or a value is negative or not finite.
 * Source: Jain, Chiu, Hawe 1984, DEC-TR-301. */
double omm_jain(const double *values, size_t count);

/* Mean of the lowest ceil(count / 10) values; NaN when count is 0.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_lowest_decile(double *out, const double *values, size_t count);

typedef struct omm_interval {
    double low, high;
} omm_interval;

/* Percentile bootstrap interval, 95 %, of the mean over `count` clients.
 *
 * Resample b draws client omm_rng_below(lane, b * count + j, count) for j = 0 .. count - 1 and
 * averages in that order; lane = omm_rng_init(seed, OMM_PURPOSE_BOOTSTRAP, 0, 0).  With the
 * resampled means in ascending order and c = floor(resamples / 40) (2.5 %), low is number c - 1 and
 * high number resamples - c, counted from 0.
 *
 * Errors: NUMERIC (count 0 or a value not finite), CONFIG (resamples below 40 or over the maximum),
 * NOMEM.  Source: Efron 1979. */
OMM_CHECKED omm_err omm_bootstrap(omm_interval *out, const double *values, size_t count,
                                  const omm_seed *seed, uint32_t resamples);

/* Low end of Student's 95 % interval of the mean: mean - t * sqrt(sum (x - mean)^2 / (count - 1) / count), t the 0.975
 * quantile of count - 1 degrees of freedom.  NaN when count is below 2 or the result is not finite.
 * Of normal values with mean 0 it is 0 or more in 2.5 % of all draws, however few they are; a percentile bootstrap's
 * low end in 24 % of two, 8 % of five, 5 % of ten.
 * Source: Student 1908, Biometrika 6, 1-25. */
double omm_student_low(const double *values, size_t count);

#endif
