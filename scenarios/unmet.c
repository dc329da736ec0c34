/* unmet.c - required gates that nothing of a scenario gives a sample: a run would fail by them, whatever it learns. */
#include "internal.h"

#include "omm/mem.h"
#include "omm/policy.h"

#include <inttypes.h>
#include <stdio.h>

#define UNMET_ARENA_BYTES (16u << 20)

/* What would give `least` samples; NULL: the scenario has it. */
static const char *missing_for(omm_metric_id id, uint64_t least, const omm_scenario *s,
                               omm_isa isa) {
    const omm_scenario_audit *audit = &s->audit;
    omm_isa lower;
    switch (id) {
    case OMM_METRIC_REPEAT_THREADS:
        if (audit->submissions >= least && audit->other_threads) return NULL;
        return "so many audit: submissions, and other_threads: true";
    case OMM_METRIC_REPEAT_ISA:
        if (!omm_isa_lower(&lower, isa)) return "an instruction set above plain C";
        if (audit->submissions >= least && audit->lower_isa) return NULL;
        return "so many audit: submissions, and lower_isa: true";
    case OMM_METRIC_REPEAT_SCALAR:
        if (isa == OMM_ISA_SCALAR) return "an instruction set above plain C";
        return audit->scalar_steps > 0 ? NULL : "audit: scalar_steps of 1 or more";
    case OMM_METRIC_TOOL_PARSED:
    case OMM_METRIC_TOOL_NAMED:
    case OMM_METRIC_TOOL_EXACT: return s->evaluation.generate ? NULL : "evaluation: generate: true";
    case OMM_METRIC_CONTROL_GAP:
        return s->control_uncompressed ? NULL : "control_uncompressed: true";
    default: return NULL;
    }
}

static void warn_of(const omm_simulate_options *options, omm_metric_id id, uint64_t least,
                    const char *missing) {
    const omm_metric_info *info = omm_metric_info_of(id);
    char sentence[320];
    (void)snprintf(sentence, sizeof sentence,
                   "%s.%s is required with samples_min %" PRIu64
                   ", which this scenario does not give: the run will fail by it; accepted: %s, or "
                   "level: informational in the policy",
                   info->family, info->name, least, missing);
    options->warn(options->ud, sentence);
}

omm_err sim_warn_unmet(const sim_setup *setup, const omm_simulate_options *options) {
    omm_policy policy;
    omm_arena arena;
    if (!options->warn) return OMM_OK;
    omm_arena_init(&arena, UNMET_ARENA_BYTES);
    const omm_err err = omm_config_parse(&policy, omm_policy_fields,
                                         omm_buf_view(&setup->policy_yaml), "policy.yaml", &arena);
    omm_arena_fini(&arena);
    OMM_TRY(err);
    for (int id = 0; id < OMM_METRIC_COUNT; id++) {
        const omm_policy_rule *rule = &policy.rules[id];
        if (rule->level != OMM_LEVEL_REQUIRED) continue;
        const char *missing =
            missing_for((omm_metric_id)id, rule->samples_min, &setup->scenario, options->isa);
        if (missing) warn_of(options, (omm_metric_id)id, rule->samples_min, missing);
    }
    return OMM_OK;
}
