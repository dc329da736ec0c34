/* Is the adapter better on what nobody trained on? */
#include "internal.h"

#include "omm/mem.h"

#include <math.h>

/* Low end of the mean uplift's interval; NaN where it is not defined. */
static omm_err low_of(double *out, const double *uplifts, uint32_t client_count,
                      const omm_policy *policy) {
    omm_seed seed = omm_seed_from_u64(policy->bootstrap.seed);
    omm_interval interval;
    omm_err err =
        omm_bootstrap(&interval, uplifts, client_count, &seed, policy->bootstrap.resamples);
    *out = (double)NAN;
    if (err == OMM_ERR_NUMERIC || err == OMM_ERR_CONFIG) return OMM_OK;
    OMM_TRY(err);
    *out = interval.low;
    if (policy->bootstrap.bound == OMM_BOUND_PERCENTILE) return OMM_OK;
    const double low = omm_student_low(uplifts, client_count);
    if (!(low >= *out)) *out = low; /* NaN too: of one client there is none */
    return OMM_OK;
}

static omm_err judge_uplift(omm_verdicts *verdicts, const omm_gate_context *context,
                            const omm_gate_source *source, const omm_gate_item *items, size_t count,
                            uint32_t client_count) {
    double *uplifts;
    double mean = (double)NAN;
    double low = (double)NAN;
    OMM_TRY(client_uplifts(&uplifts, items, count, client_count));
    omm_err err = OMM_OK;
    if (uplifts) {
        mean = omm_mean(uplifts, client_count);
        err = low_of(&low, uplifts, client_count, context->policy);
    }
    omm_free(uplifts);
    OMM_TRY(err);
    uint64_t samples = count ? client_count : 0;
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_UPLIFT,
                           metric_of(OMM_METRIC_UPLIFT, mean, samples)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_UPLIFT_LOW,
                          metric_of(OMM_METRIC_UPLIFT_LOW, low, samples));
}

typedef struct tool_counts {
    uint64_t items;
    int64_t parsed, named, exact; /* after minus before */
} tool_counts;

static tool_counts count_tools(const omm_gate_item *items, size_t count) {
    tool_counts c = {0};
    for (size_t i = 0; i < count; i++) {
        const omm_gate_item *item = &items[i];
        if (!item->is_tool) continue;
        c.items++;
        c.parsed += item->parsed_after - item->parsed_before;
        c.named += item->named_after - item->named_before;
        c.exact += item->exact_after - item->exact_before;
    }
    return c;
}

static omm_metric gain(omm_metric_id id, int64_t difference, uint64_t items) {
    return metric_of(id, items ? (double)difference / (double)items : (double)NAN, items);
}

omm_err omm_gate_quality(omm_verdicts *verdicts, const omm_gate_context *context,
                         const omm_gate_source *source, const omm_gate_item *items, size_t count,
                         uint32_t client_count) {
    OMM_TRY(judge_uplift(verdicts, context, source, items, count, client_count));
    tool_counts c = count_tools(items, count);
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_TOOL_PARSED,
                           gain(OMM_METRIC_TOOL_PARSED, c.parsed, c.items)));
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_TOOL_NAMED,
                           gain(OMM_METRIC_TOOL_NAMED, c.named, c.items)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_TOOL_EXACT,
                          gain(OMM_METRIC_TOOL_EXACT, c.exact, c.items));
}

omm_err omm_gate_control(omm_verdicts *verdicts, const omm_gate_context *context,
                         const omm_gate_source *source, const omm_gate_item *items, size_t count,
                         uint32_t client_count) {
    const omm_policy_rule *rule = &context->policy->rules[OMM_METRIC_CONTROL_GAP];
    bool left_out = !source->path && !source->problem;
    if (left_out && rule->level == OMM_LEVEL_INFORMATIONAL) return OMM_OK;

    double *uplifts;
    OMM_TRY(client_uplifts(&uplifts, items, count, client_count));
    double gap = uplifts ? -omm_mean(uplifts, client_count) : (double)NAN;
    omm_free(uplifts);
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_CONTROL_GAP,
                          metric_of(OMM_METRIC_CONTROL_GAP, gap, count ? client_count : 0));
}
