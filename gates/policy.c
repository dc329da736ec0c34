#include "omm/policy.h"

#include "omm/stats.h"

#include <stddef.h>

static const char *const s_levels[] = {"required", "informational", NULL};
static const char *const s_bounds[] = {"percentile", "percentile_and_t", NULL}; /* omm_bound */
static const char *const s_AT_LEAST[] = {"at_least", NULL};
static const char *const s_AT_MOST[] = {"at_most", NULL};

enum { LEVEL_required = OMM_LEVEL_REQUIRED, LEVEL_informational = OMM_LEVEL_INFORMATIONAL };

static const omm_metric_info s_infos[OMM_METRIC_COUNT] = {
#define XX(id, family_, name_, unit_, direction_, level, threshold, samples)                       \
    [OMM_METRIC_##id] = {.family = #family_,                                                       \
                         .name = #name_,                                                           \
                         .unit = (unit_),                                                          \
                         .direction = OMM_DIRECTION_##direction_},
    OMM_METRICS(XX)
#undef XX
};

const omm_metric_info *omm_metric_info_of(omm_metric_id id) {
    OMM_ASSERT((unsigned)id < OMM_METRIC_COUNT);
    return &s_infos[id];
}

void omm_policy_default(omm_policy *out) {
    *out = (omm_policy){
        .rules =
            {
#define XX(id, family, name, unit, direction_, level_, threshold_, samples)                        \
    [OMM_METRIC_##                                                                                 \
        id] = {.level = LEVEL_##level_, .threshold = (threshold_), .samples_min = (samples)},
                OMM_METRICS(XX)
#undef XX
            },
        .bootstrap = {.seed = 1,
                      .resamples = 10000,
                      .has_bound = true,
                      .bound = OMM_BOUND_PERCENTILE_AND_T},
    };
}

/* One table per metric, as the defaults differ. */
#define XX(id, family, name, unit, direction_, level_, threshold_, samples)                        \
    static const omm_config_field s_rule_##id[] = {                                                \
        OMM_CONFIG_ENUM(omm_policy_rule, level, s_levels, .fallback = #level_,                     \
                        .help = "does it decide the run"),                                         \
        OMM_CONFIG_ENUM(omm_policy_rule, direction, s_##direction_,                                \
                        .fallback = s_direction_##direction_, .help = "fixed"),                    \
        OMM_CONFIG_REAL(omm_policy_rule, threshold, .fallback = #threshold_, .help = (unit)),      \
        OMM_CONFIG_U64(omm_policy_rule, samples_min, .fallback = #samples, .min = 1,               \
                       .max = 0x1p40, .help = "fewer samples fail"),                               \
        {0}};
#define s_direction_AT_LEAST "at_least"
#define s_direction_AT_MOST "at_most"
OMM_METRICS(XX)
#undef XX

#define RULE(id, name_)                                                                            \
    {                                                                                              \
        .key = #name_, .kind = OMM_CONFIG_KIND_MAP,                                                \
        .offset = offsetof(omm_policy, rules) + OMM_METRIC_##id * sizeof(omm_policy_rule),         \
        .sub = s_rule_##id,                                                                        \
    }

/* Offsets are from the whole policy, so each family's map sits at offset 0. */
static const omm_config_field s_communication[] = {
    RULE(UP_BYTES_MAX, up_bytes_max),     RULE(DOWN_BYTES_MAX, down_bytes_max),
    RULE(SAVING_VS_FP32, saving_vs_fp32), RULE(WIRE_SAVING, wire_saving_vs_fp32),
    RULE(WIRE_OVERHEAD, wire_overhead),   {0}};
static const omm_config_field s_fairness[] = {RULE(JAIN_INDEX, jain_index),
                                              RULE(SHARE_GAP, share_gap),
                                              RULE(WORST_UPLIFT, worst_client_uplift),
                                              RULE(DECILE_UPLIFT, lowest_decile_uplift),
                                              {0}};
static const omm_config_field s_quality[] = {RULE(UPLIFT, heldout_uplift),
                                             RULE(UPLIFT_LOW, heldout_uplift_low),
                                             RULE(TOOL_PARSED, tool_parsed_gain),
                                             RULE(TOOL_NAMED, tool_named_gain),
                                             RULE(TOOL_EXACT, tool_exact_gain),
                                             RULE(CONTROL_GAP, control_loss_gap),
                                             {0}};
static const omm_config_field s_reproducibility[] = {RULE(REPEAT_THREADS, threads_mismatches),
                                                     RULE(REPEAT_ISA, isa_mismatches),
                                                     RULE(REPEAT_SCALAR, scalar_mismatches),
                                                     {0}};
static const omm_config_field s_integrity[] = {
    RULE(UNSIGNED_ACCEPTED, unsigned_accepted), RULE(EVIDENCE_FAULTS, evidence_faults), {0}};

static const omm_config_field s_bootstrap[] = {
    {.key = "seed",
     .kind = OMM_CONFIG_KIND_U64,
     .offset = offsetof(omm_policy, bootstrap.seed),
     .fallback = "1",
     .min = 0,
     .max = 0x1p62,
     .help = "of the resamples"},
    {.key = "resamples",
     .kind = OMM_CONFIG_KIND_U32,
     .offset = offsetof(omm_policy, bootstrap.resamples),
     .fallback = "10000",
     .min = 1000,
     .max = OMM_BOOTSTRAP_RESAMPLES_MAX,
     .help = "bootstrap resamples over clients"},
    {.key = "bound",
     .kind = OMM_CONFIG_KIND_ENUM,
     .offset = offsetof(omm_policy, bootstrap.bound),
     .optional = true,
     .present = offsetof(omm_policy, bootstrap.has_bound),
     .choices = s_bounds,
     .help = "low end of heldout_uplift_low: the bootstrap's, or the lower of it and Student's t, "
             "so that noise of few clients does not pass; left out: percentile_and_t, in a "
             "bundle's policy.yaml percentile"},
    {0}};

#define FAMILY(name_, help_)                                                                       \
    { .key = #name_, .kind = OMM_CONFIG_KIND_MAP, .offset = 0, .sub = s_##name_, .help = (help_) }

const omm_config_field omm_policy_fields[] = {
    FAMILY(communication, "bytes on the wire"),
    FAMILY(fairness, "who contributed, and who gained"),
    FAMILY(quality, "held-out loss and tool calls"),
    FAMILY(reproducibility, "repeated training gives the same bytes"),
    FAMILY(integrity, "nothing unsigned, nothing out of chain"),
    FAMILY(bootstrap, "confidence intervals"),
    {0}};

omm_err omm_policy_load(omm_policy *out, const char *path, omm_arena *arena) {
    omm_policy fixed;
    omm_policy_default(&fixed);
    *out = (omm_policy){0};
    OMM_TRY(omm_config_load(out, omm_policy_fields, path, arena));
    if (!out->bootstrap.has_bound) out->bootstrap.bound = fixed.bootstrap.bound;
    out->bootstrap.has_bound = true;
    return OMM_OK;
}
