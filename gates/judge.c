/* One metric against one rule: the only place where something passes. */
#include "internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 512, ARENA_MAX = 1 << 20 };

void omm_verdicts_init(omm_verdicts *verdicts) {
    *verdicts = (omm_verdicts){0};
    omm_arena_init(&verdicts->arena, ARENA_MAX);
}

void omm_verdicts_fini(omm_verdicts *verdicts) {
    omm_arena_fini(&verdicts->arena);
    *verdicts = (omm_verdicts){0};
}

bool omm_verdicts_passed(const omm_verdicts *verdicts) {
    size_t required = 0;
    for (size_t i = 0; i < verdicts->count; i++) {
        const omm_verdict *v = &verdicts->items[i];
        if (v->required && !v->passed) return false;
        required += v->required;
    }
    return required > 0;
}

const char *omm_direction_name(omm_direction direction) {
    return direction == OMM_DIRECTION_AT_LEAST ? "at_least" : "at_most";
}

omm_metric metric_of(omm_metric_id id, double value, uint64_t samples) {
    return (omm_metric){
        .present = true, .value = value, .samples = samples, .unit = omm_metric_info_of(id)->unit};
}

/* A copy that is safe in JSON, XML and a terminal: evidence may be hostile, so anything but
 * printable ASCII becomes '?', and what is over TEXT_MAX is cut. */
static const char *copy_text(omm_verdicts *verdicts, const char *text) {
    size_t size = strnlen(text, TEXT_MAX);
    char *copy = omm_arena_alloc(&verdicts->arena, size + 1, 1);
    if (!copy) return NULL;
    for (size_t i = 0; i < size; i++) {
        copy[i] = '?';
        if (text[i] >= ' ' && text[i] <= '~') copy[i] = text[i];
    }
    return copy;
}

static bool same_text(const char *a, const char *b) {
    return a && b && a[0] != '\0' && strcmp(a, b) == 0;
}

static const char *or_none(const char *text) {
    return text && text[0] ? text : "none";
}

/* Room for a reason; says whether there is one. */
typedef struct reason {
    char text[TEXT_MAX];
} reason;

__attribute__((format(printf, 2, 3))) static bool because(reason *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, ap);
    va_end(ap);
    return true;
}

/* Is the evidence fit to be judged at all? */
static bool source_fails(reason *r, const omm_gate_context *context,
                         const omm_gate_source *source) {
    if (source->problem)
        return because(r, "evidence cannot be used: %.100s%s%.300s",
                       source->problem_in ? source->problem_in : "", source->problem_in ? ": " : "",
                       source->problem);
    if (!source->path || !source->path[0]) return because(r, "evidence is missing");
    if (!context->run_id || !context->run_id[0])
        return because(r, "the run that is judged is not known, so no evidence is of it");
    if (!same_text(source->run_id, context->run_id))
        return because(r, "stale: evidence is of run %.64s, not of %.64s", or_none(source->run_id),
                       or_none(context->run_id));
    if (context->commit && !same_text(source->commit, context->commit))
        return because(r, "foreign: evidence is of commit %.64s, not of %.64s",
                       or_none(source->commit), or_none(context->commit));
    return false;
}

static bool metric_fails(reason *r, const omm_metric *metric, const omm_metric_info *info,
                         const omm_policy_rule *rule) {
    if (!metric->present) return because(r, "metric is missing");
    if (!metric->unit || strcmp(metric->unit, info->unit) != 0)
        return because(r, "unit is %.32s, must be %s", or_none(metric->unit), info->unit);
    if (metric->samples == 0) return because(r, "no samples");
    if (metric->samples < rule->samples_min)
        return because(r, "%" PRIu64 " samples, policy asks for %" PRIu64, metric->samples,
                       rule->samples_min);
    if (!isfinite(metric->value)) return because(r, "value is not a finite number");
    if (!isfinite(rule->threshold)) return because(r, "threshold is not a finite number");
    bool good = info->direction == OMM_DIRECTION_AT_LEAST ? metric->value >= rule->threshold
                                                          : metric->value <= rule->threshold;
    if (!good)
        return because(r, "%.9g is not %s %.9g %s", metric->value,
                       info->direction == OMM_DIRECTION_AT_LEAST ? "at least" : "at most",
                       rule->threshold, info->unit);
    return false;
}

static bool judged_already(const omm_verdicts *verdicts, omm_metric_id id) {
    for (size_t i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].id == id) return true;
    return false;
}

omm_err omm_gate_judge(omm_verdicts *verdicts, const omm_gate_context *context,
                       const omm_gate_source *source, omm_metric_id id, omm_metric metric) {
    const omm_metric_info *info = omm_metric_info_of(id);
    const omm_policy_rule *rule = &context->policy->rules[id];
    if (judged_already(verdicts, id))
        return omm_raise(OMM_ERR_STATE, "%s.%s is judged already", info->family, info->name);

    reason r = {""};
    bool failed = source_fails(&r, context, source) || metric_fails(&r, &metric, info, rule);
    const char *why = copy_text(verdicts, r.text);
    const char *path = copy_text(verdicts, source->path ? source->path : "");
    const char *run_id = copy_text(verdicts, source->run_id ? source->run_id : "");
    const char *commit = copy_text(verdicts, source->commit ? source->commit : "");
    if (!why || !path || !run_id || !commit)
        return omm_raise(OMM_ERR_NOMEM, "verdict on %s.%s", info->family, info->name);
    bool has_value = metric.present && isfinite(metric.value);
    verdicts->items[verdicts->count++] = (omm_verdict){
        .id = id,
        .family = info->family,
        .metric = info->name,
        .unit = info->unit,
        .has_value = has_value,
        .value = has_value && metric.value != 0 ? metric.value : 0, /* records have no -0 */
        .threshold = rule->threshold,
        .direction = info->direction,
        .samples = metric.samples,
        .required = rule->level != OMM_LEVEL_INFORMATIONAL,
        .passed = !failed,
        .reason = why,
        .evidence_path = path,
        .evidence_digest = source->digest,
        .run_id = run_id,
        .commit = context->commit ? commit : NULL,
    };
    return OMM_OK;
}
