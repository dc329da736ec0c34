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
