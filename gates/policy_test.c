/* Goal: an empty policy is the defaults, a policy written out reads back the same, and no policy can
 * turn a metric around or name one that does not exist.
 */
#include "omm/policy.h"
#include "omm/stats.h"
#include "omm_test.h"

#include <string.h>

static omm_err parse(omm_policy *out, omm_bytes text) {
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    *out = (omm_policy){0};
    omm_err err = omm_config_parse(out, omm_policy_fields, text, "policy.yaml", &arena);
    omm_arena_fini(&arena);
    return err;
}

static void check_equal(const omm_policy *a, const omm_policy *b) {
    for (int i = 0; i < OMM_METRIC_COUNT; i++) {
        CHECK_EQ(a->rules[i].level, b->rules[i].level);
        CHECK_EQ(a->rules[i].direction, 0);
        CHECK_EQ(b->rules[i].direction, 0);
        CHECK(a->rules[i].threshold == b->rules[i].threshold);
        CHECK_EQ(a->rules[i].samples_min, b->rules[i].samples_min);
    }
    CHECK_EQ(a->bootstrap.seed, b->bootstrap.seed);
    CHECK_EQ(a->bootstrap.resamples, b->bootstrap.resamples);
}

static void test_defaults_written_out(void) {
    omm_policy fixed, parsed, again;
    omm_policy_default(&fixed);
    CHECK_OK(parse(&parsed, omm_bytes_str("{}\n")));
    check_equal(&fixed, &parsed);

    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_config_write(&text, omm_policy_fields, &parsed));
    CHECK_OK(parse(&again, omm_buf_view(&text)));
    check_equal(&fixed, &again);
    CHECK_OK(omm_buf_append(&text, "", 1));
    for (int i = 0; i < OMM_METRIC_COUNT; i++) { /* every metric is there, with its direction */
        const omm_metric_info *info = omm_metric_info_of((omm_metric_id)i);
        const char *at = strstr((const char *)text.data, info->name);
        CHECK(at != NULL);
        const char *direction = strstr(at, "direction:");
        CHECK(direction != NULL);
        CHECK(strncmp(direction + 12,
                      info->direction == OMM_DIRECTION_AT_LEAST ? "at_least" : "at_most", 7) == 0);
    }
    omm_buf_fini(&text);
}

/* What a run without a policy of its own is judged by: changed here and there, or not at all. */
static void test_defaults(void) {
    enum { MOST = OMM_DIRECTION_AT_MOST, LEAST = OMM_DIRECTION_AT_LEAST };
    enum { REQ = OMM_LEVEL_REQUIRED, INFO = OMM_LEVEL_INFORMATIONAL };
    static const struct {
        const char *family, *name, *unit;
        int direction, level;
        double threshold;
        uint64_t samples_min;
    } want[] = {
        {"communication", "up_bytes_max", "bytes", MOST, REQ, 4194304, 1},
        {"communication", "down_bytes_max", "bytes", MOST, REQ, 8388608, 1},
        {"communication", "saving_vs_fp32", "ratio", LEAST, REQ, 0.5, 1},
        {"communication", "wire_saving_vs_fp32", "ratio", LEAST, REQ, 0.4, 1},
        {"communication", "wire_overhead", "ratio", MOST, INFO, 0.5, 1},
        {"fairness", "jain_index", "index", LEAST, REQ, 0.5, 1},
        {"fairness", "share_gap", "ratio", MOST, INFO, 1, 1},
        {"fairness", "worst_client_uplift", "nats/token", LEAST, REQ, -0.1, 2},
        {"fairness", "lowest_decile_uplift", "nats/token", LEAST, REQ, -0.05, 2},
        {"quality", "heldout_uplift", "nats/token", LEAST, REQ, 0.02, 2},
        {"quality", "heldout_uplift_low", "nats/token", LEAST, REQ, 0, 2},
        {"quality", "tool_parsed_gain", "ratio", LEAST, INFO, 0, 1},
        {"quality", "tool_named_gain", "ratio", LEAST, INFO, 0, 1},
        {"quality", "tool_exact_gain", "ratio", LEAST, INFO, 0, 1},
        {"quality", "control_loss_gap", "nats/token", MOST, INFO, 0.05, 2},
        {"reproducibility", "threads_mismatches", "count", MOST, REQ, 0, 1},
        {"reproducibility", "isa_mismatches", "count", MOST, REQ, 0, 1},
        {"reproducibility", "scalar_mismatches", "count", MOST, INFO, 0, 1},
        {"integrity", "unsigned_accepted", "count", MOST, REQ, 0, 1},
        {"integrity", "evidence_faults", "count", MOST, REQ, 0, 1},
    };
    omm_policy policy;
    omm_policy_default(&policy);
    CHECK_EQ(sizeof want / sizeof *want, OMM_METRIC_COUNT);
    for (int i = 0; i < OMM_METRIC_COUNT; i++) {
        const omm_metric_info *info = omm_metric_info_of((omm_metric_id)i);
        CHECK(strcmp(info->family, want[i].family) == 0 && strcmp(info->name, want[i].name) == 0);
        CHECK(strcmp(info->unit, want[i].unit) == 0);
        CHECK_EQ(info->direction, want[i].direction);
        CHECK_EQ(policy.rules[i].level, want[i].level);
        CHECK(policy.rules[i].threshold == want[i].threshold);
        CHECK_EQ(policy.rules[i].samples_min, want[i].samples_min);
    }
}

static void test_set(void) {
    omm_policy policy;
    CHECK_OK(parse(&policy, omm_bytes_str("quality:\n"
                                          "  heldout_uplift: {threshold: 0.5, samples_min: 7}\n"
                                          "  control_loss_gap: {level: required}\n"
                                          "bootstrap: {resamples: 2000}\n")));
    CHECK(policy.rules[OMM_METRIC_UPLIFT].threshold == 0.5);
    CHECK_EQ(policy.rules[OMM_METRIC_UPLIFT].samples_min, 7);
    CHECK_EQ(policy.rules[OMM_METRIC_UPLIFT].level, OMM_LEVEL_REQUIRED);
    CHECK_EQ(policy.rules[OMM_METRIC_CONTROL_GAP].level, OMM_LEVEL_REQUIRED);
    CHECK_EQ(policy.bootstrap.resamples, 2000);
}

static void test_refused(void) {
    static const char *const bad[] = {
        "quality: {heldout_uplift: {direction: at_most}}\n",
        "quality: {heldout_uplift: {level: off}}\n",
        "quality: {heldout_uplift: {threshold: .nan}}\n",
        "quality: {heldout_uplift: {samples_min: 0}}\n",
        "quality: {uplift: {threshold: 1}}\n",
        "luck: {}\n",
        "bootstrap: {resamples: 10}\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        omm_policy policy;
        CHECK_ERR(parse(&policy, omm_bytes_str(bad[i])), OMM_ERR_CONFIG);
    }
}

int main(void) {
    test_defaults_written_out();
    test_defaults();
    test_set();
    test_refused();
    return 0;
}
