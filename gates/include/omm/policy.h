/* policy.h - which metrics are judged, by which threshold, and whether they count.
 *
 *   quality:
 *     heldout_uplift: {level: required, direction: at_least, threshold: 0.02, samples_min: 8}
 *   bootstrap: {seed: 1, resamples: 10000, bound: percentile_and_t}
 *
 * Every metric of the table below has an entry with defaults; omm_config_write writes them all out.
 * A direction is written for the reader: only the metric's own is accepted.  `bound` is a later key: the policy of a bundle without
 * it means `percentile`, as when the bundle was made; a file that somebody writes now, the default (omm_policy_load).
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef OMM_POLICY_H
#define OMM_POLICY_H

#include "omm/config.h"
#include "omm/err.h"

#include <stdint.h>

/* XX(id, family, name, unit, direction, level, threshold, samples_min)
 *
 * communication  bytes of one node's completed exchange of one round, offers, receipts and message
 *                overhead included; saving = 1 - (all up + all down) / (all fp32).
 *                wire_*: of all bytes as they passed, fp32 being the same traffic with each adapter in f32:
 *                what else passed (polls, envelopes, frames) is in both, and so saves nothing and costs nothing
 * fairness       over accepted tokens / offered tokens of each selected node; client uplifts
 * quality        nats per token, before minus after (so up is better), mean of client means;
 *                tool metrics are shares of tool items, after minus before
 * reproducibility  repetitions that did not give the same bytes
 * integrity      counts that must be zero */
#define OMM_METRICS(XX)                                                                            \
    XX(UP_BYTES_MAX, communication, up_bytes_max, "bytes", AT_MOST, required, 4194304, 1)          \
    XX(DOWN_BYTES_MAX, communication, down_bytes_max, "bytes", AT_MOST, required, 8388608, 1)      \
    XX(SAVING_VS_FP32, communication, saving_vs_fp32, "ratio", AT_LEAST, required, 0.5, 1)         \
    XX(WIRE_SAVING, communication, wire_saving_vs_fp32, "ratio", AT_LEAST, required, 0.4, 1)       \
    XX(WIRE_OVERHEAD, communication, wire_overhead, "ratio", AT_MOST, informational, 0.5, 1)       \
    XX(JAIN_INDEX, fairness, jain_index, "index", AT_LEAST, required, 0.5, 1)                      \
    XX(SHARE_GAP, fairness, share_gap, "ratio", AT_MOST, informational, 1, 1)                      \
    XX(WORST_UPLIFT, fairness, worst_client_uplift, "nats/token", AT_LEAST, required, -0.1, 2)     \
    XX(DECILE_UPLIFT, fairness, lowest_decile_uplift, "nats/token", AT_LEAST, required, -0.05, 2)  \
    XX(UPLIFT, quality, heldout_uplift, "nats/token", AT_LEAST, required, 0.02, 2)                 \
    XX(UPLIFT_LOW, quality, heldout_uplift_low, "nats/token", AT_LEAST, required, 0, 2)            \
    XX(TOOL_PARSED, quality, tool_parsed_gain, "ratio", AT_LEAST, informational, 0, 1)             \
    XX(TOOL_NAMED, quality, tool_named_gain, "ratio", AT_LEAST, informational, 0, 1)               \
    XX(TOOL_EXACT, quality, tool_exact_gain, "ratio", AT_LEAST, informational, 0, 1)               \
    XX(CONTROL_GAP, quality, control_loss_gap, "nats/token", AT_MOST, informational, 0.05, 2)      \
    XX(REPEAT_THREADS, reproducibility, threads_mismatches, "count", AT_MOST, required, 0, 1)      \
    XX(REPEAT_ISA, reproducibility, isa_mismatches, "count", AT_MOST, required, 0, 1)              \
    XX(REPEAT_SCALAR, reproducibility, scalar_mismatches, "count", AT_MOST, informational, 0, 1)   \
    XX(UNSIGNED_ACCEPTED, integrity, unsigned_accepted, "count", AT_MOST, required, 0, 1)          \
    XX(EVIDENCE_FAULTS, integrity, evidence_faults, "count", AT_MOST, required, 0, 1)

typedef enum omm_metric_id {
#define XX(id, ...) OMM_METRIC_##id,
    OMM_METRICS(XX)
#undef XX
        OMM_METRIC_COUNT
} omm_metric_id;

typedef enum omm_direction { OMM_DIRECTION_AT_LEAST, OMM_DIRECTION_AT_MOST } omm_direction;
typedef enum omm_level { OMM_LEVEL_REQUIRED, OMM_LEVEL_INFORMATIONAL } omm_level;

/* What never depends on a policy. */
typedef struct omm_metric_info {
    const char *family; /* "quality" */
    const char *name;   /* "heldout_uplift" */
    const char *unit;   /* "nats/token" */
    omm_direction direction;
} omm_metric_info;
const omm_metric_info *omm_metric_info_of(omm_metric_id id);

typedef struct omm_policy_rule {
    int level;     /* omm_level */
    int direction; /* index into the one choice there is */
    double threshold;
    uint64_t samples_min; /* fewer fail */
} omm_policy_rule;

/* What heldout_uplift_low is the low end of (stats.h). */
typedef enum omm_bound {
    OMM_BOUND_PERCENTILE, /* the percentile bootstrap's interval: passes noise of few clients */
    OMM_BOUND_PERCENTILE_AND_T, /* the lower of that and Student's; none of one client */
} omm_bound;

typedef struct omm_policy {
    omm_policy_rule rules[OMM_METRIC_COUNT];
    struct {
        uint64_t seed;
        uint32_t resamples;
        bool has_bound; /* else PERCENTILE */
        int bound;      /* omm_bound */
    } bootstrap;
} omm_policy;

/* The mapping of a policy file, or of a scenario's `gates:`. */
extern const omm_config_field omm_policy_fields[];

void omm_policy_default(omm_policy *out);

/* A file that a person wrote: whatever it leaves open is as omm_policy_default has it.  A bundle's policy.yaml is read with
 * omm_config_load.  Errors: those of omm_config_load. */
OMM_CHECKED omm_err omm_policy_load(omm_policy *out, const char *path, omm_arena *arena);

#endif
