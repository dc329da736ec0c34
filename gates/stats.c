#include "omm/stats.h"

#include "omm/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double omm_mean(const double *values, size_t count) {
    if (count == 0) return (double)NAN;
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

double omm_jain(const double *values, size_t count) {
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] >= 0 && isfinite(values[i]))) return (double)NAN;
        sum += values[i];
        squares += values[i] * values[i];
    }
    if (count == 0) return (double)NAN;
    if (squares == 0) return 0;
    return sum * sum / ((double)count * squares);
}

/* Finite doubles that compare equal are interchangeable but for the sign of zero, which no sum
 * below can show: the order qsort gives equal ones does not matter. */
static int ascending(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* 0.975 quantiles of Student's t for 1 to 30 degrees of freedom, from the incomplete beta function in 40 digits (mpmath 1.4);
 * scipy.stats.t.ppf has them to 14 digits. */
static const double s_t975[] = {
    12.706204736174705, 4.3026527297494639, 3.1824463052837096, 2.7764451051977944,
    2.5705818356363155, 2.4469118511449700, 2.3646242515927853, 2.3060041352041667,
    2.2621571627982055, 2.2281388519862747, 2.2009851600916399, 2.1788128296672289,
    2.1603686564627925, 2.1447866879178038, 2.1314495455597757, 2.1199052992212547,
    2.1098155778333171, 2.1009220402410385, 2.0930240544083098, 2.0859634472658648,
    2.0796138447276804, 2.0738730679040262, 2.0686576104190487, 2.0638985616280258,
    2.0595385527532977, 2.0555294386428732, 2.0518305164802856, 2.0484071417952452,
    2.0452296421327043, 2.0422724563012383};
#define T_TABLE (sizeof s_t975 / sizeof *s_t975)

/* Beyond the table Cornish and Fisher's expansion around the normal quantile z = 1.95996..., within 2.7e-8 from 31 on:
 * z + (z^3 + z) / 4 df + (5 z^5 + 16 z^3 + 3 z) / 96 df^2 + (3 z^7 + 19 z^5 + 17 z^3 - 15 z) / 384 df^3 +
 * (79 z^9 + 776 z^7 + 1482 z^5 - 1920 z^3 - 945 z) / 92160 df^4.
 * Source: Abramowitz and Stegun 1964, 26.7.5. */
static double t975(size_t df) {
    if (df <= T_TABLE) return s_t975[df - 1];
    const double x = 1 / (double)df;
    return 1.9599639845400542 +
           x * (2.3722712302985628 +
                x * (2.8224986157396118 + x * (2.5558496795077233 + x * 1.5895340533938235)));
}

double omm_student_low(const double *values, size_t count) {
    if (count < 2) return (double)NAN;
    const double mean = omm_mean(values, count);
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    const double low = mean - t975(count - 1) * sqrt(squares / (double)(count - 1) / (double)count);
    return isfinite(low) ? low : (double)NAN;
}

omm_err omm_lowest_decile(double *out, const double *values, size_t count) {
    if (count == 0) {
        *out = (double)NAN;
        return OMM_OK;
    }
    double *sorted = omm_alloc(count, sizeof *sorted);
    if (!sorted) return omm_raise(OMM_ERR_NOMEM, "lowest decile of %zu values", count);
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    *out = omm_mean(sorted, (count + 9) / 10);
    omm_free(sorted);
    return OMM_OK;
}

/* Means of all resamples.  `words` holds the 2 * count numbers of one resample: pair j is the u64
 * that omm_rng_below(lane, b * count + j, count) multiplies. */
static void resample(double *means, uint32_t *words, const double *values, size_t count,
                     const omm_rng *lane, uint32_t resamples) {
    for (uint32_t b = 0; b < resamples; b++) {
        omm_rng_fill_u32(words, lane, 2 * (uint64_t)b * count, 2 * count);
        double sum = 0;
        for (size_t j = 0; j < count; j++) {
            uint64_t number = (uint64_t)words[2 * j + 1] << 32 | words[2 * j];
            sum += values[(size_t)((unsigned __int128)number * count >> 64)];
        }
        means[b] = sum / (double)count;
    }
}

omm_err omm_bootstrap(omm_interval *out, const double *values, size_t count, const omm_seed *seed,
                      uint32_t resamples) {
    if (resamples < 40 || resamples > OMM_BOOTSTRAP_RESAMPLES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u resamples, must be 40 to %u", (unsigned)resamples,
                         OMM_BOOTSTRAP_RESAMPLES_MAX);
    if (count == 0) return omm_raise(OMM_ERR_NUMERIC, "bootstrap over no clients");
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return omm_raise(OMM_ERR_NUMERIC, "bootstrap: value %zu is not finite", i);

    double *means = omm_alloc(resamples, sizeof *means);
    uint32_t *words = omm_alloc(count, 2 * sizeof *words);
    omm_err err = OMM_OK;
    if (!means || !words) {
        err = omm_raise(OMM_ERR_NOMEM, "bootstrap of %u resamples", (unsigned)resamples);
    } else {
        omm_rng lane = omm_rng_init(seed, OMM_PURPOSE_BOOTSTRAP, 0, 0);
        resample(means, words, values, count, &lane, resamples);
        qsort(means, resamples, sizeof *means, ascending);
        uint32_t cut = resamples / 40;
        *out = (omm_interval){means[cut - 1], means[resamples - cut]};
    }
    omm_free(means);
    omm_free(words);
    return err;
}
