/* Who could contribute, and whom the result serves. */
#include "internal.h"

#include "omm/mem.h"

#include <math.h>

/* accepted / offered of each node; false where a row cannot be. */
static bool shares_of(double *shares, const omm_gate_share *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (rows[i].tokens_offered == 0 || rows[i].tokens_accepted > rows[i].tokens_offered)
            return false;
        shares[i] = (double)rows[i].tokens_accepted / (double)rows[i].tokens_offered;
    }
    return count > 0;
}

static double gap_of(const double *shares, size_t count) {
    double low = shares[0];
    double high = shares[0];
    for (size_t i = 1; i < count; i++) {
        if (shares[i] < low) low = shares[i];
        if (shares[i] > high) high = shares[i];
    }
    return high - low;
}

omm_err omm_gate_shares(omm_verdicts *verdicts, const omm_gate_context *context,
                        const omm_gate_source *source, const omm_gate_share *rows, size_t count) {
    double jain = (double)NAN;
    double gap = (double)NAN;
    double *shares = omm_alloc(count + 1, sizeof *shares);
    if (!shares) return omm_raise(OMM_ERR_NOMEM, "shares of %zu nodes", count);
    if (shares_of(shares, rows, count)) {
        jain = omm_jain(shares, count);
        gap = gap_of(shares, count);
    }
    omm_free(shares);
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_JAIN_INDEX,
                           metric_of(OMM_METRIC_JAIN_INDEX, jain, count)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_SHARE_GAP,
                          metric_of(OMM_METRIC_SHARE_GAP, gap, count));
}

/* Adds up each client's uplifts; false where a row cannot be. */
static bool add_items(double *sums, uint64_t *counts, const omm_gate_item *items, size_t count,
                      uint32_t client_count) {
    for (size_t i = 0; i < count; i++) {
        const omm_gate_item *item = &items[i];
        if (item->client >= client_count || item->tokens == 0 || !isfinite(item->nll_before) ||
            !isfinite(item->nll_after))
            return false;
        sums[item->client] += (item->nll_before - item->nll_after) / (double)item->tokens;
        counts[item->client]++;
    }
    for (uint32_t c = 0; c < client_count; c++) {
        if (counts[c] == 0) return false;
        sums[c] /= (double)counts[c];
    }
    return true;
}

omm_err client_uplifts(double **out, const omm_gate_item *items, size_t count,
                       uint32_t client_count) {
    *out = NULL;
    if (client_count == 0 || client_count > count) return OMM_OK; /* a client has no item */
    double *sums = omm_alloc(client_count, sizeof *sums);
    uint64_t *counts = omm_alloc(client_count, sizeof *counts);
    omm_err err = OMM_OK;
    if (!sums || !counts)
        err = omm_raise(OMM_ERR_NOMEM, "uplifts of %u clients", (unsigned)client_count);
    else if (add_items(sums, counts, items, count, client_count))
        *out = sums;
    if (*out != sums) omm_free(sums);
    omm_free(counts);
    return err;
}

static double lowest(const double *values, size_t count) {
    double low = values[0];
    for (size_t i = 1; i < count; i++)
        if (values[i] < low) low = values[i];
    return low;
}

omm_err omm_gate_client_uplift(omm_verdicts *verdicts, const omm_gate_context *context,
                               const omm_gate_source *source, const omm_gate_item *items,
                               size_t count, uint32_t client_count) {
    double *uplifts;
    double worst = (double)NAN;
    double decile = (double)NAN;
    OMM_TRY(client_uplifts(&uplifts, items, count, client_count));
    omm_err err = OMM_OK;
    if (uplifts) {
        worst = lowest(uplifts, client_count);
        err = omm_lowest_decile(&decile, uplifts, client_count);
    }
    omm_free(uplifts);
    OMM_TRY(err);
    uint64_t samples = count ? client_count : 0;
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_WORST_UPLIFT,
                           metric_of(OMM_METRIC_WORST_UPLIFT, worst, samples)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_DECILE_UPLIFT,
                          metric_of(OMM_METRIC_DECILE_UPLIFT, decile, samples));
}
