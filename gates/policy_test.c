/* Goal: an empty policy is the defaults, a policy written out reads back the same, and no policy can
 * turn a metric around or name one that does not exist.  A policy of before means what it meant.
 */
#include "omm/file.h"
#include "omm/policy.h"
#include "omm/stats.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
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
    CHECK_EQ(a->bootstrap.has_bound, b->bootstrap.has_bound);
    CHECK_EQ(a->bootstrap.bound, b->bootstrap.bound);
}

/* A copy that ends with 0; the caller frees it with omm_buf_fini. */
static const char *written(omm_buf *out, const omm_policy *policy) {
    omm_buf_init(out, 1 << 16);
    CHECK_OK(omm_config_write(out, omm_policy_fields, policy));
    CHECK_OK(omm_buf_append(out, "", 1));
    return (const char *)out->data;
}

static void test_defaults_written_out(void) {
    omm_policy fixed, parsed, again;
    omm_policy_default(&fixed);
    CHECK_OK(parse(&parsed, omm_bytes_str("bootstrap: {bound: percentile_and_t}\n")));
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

/* What bundles of before have ends with the resamples: it reads as the old bound and is written as it was.  With the old bound
 * by name the name stays. */
static void test_older(void) {
    static const char older[] = "bootstrap:\n  seed: 1\n  resamples: 10000\n";
    static const char named[] = "bootstrap: {bound: percentile}\n";
    omm_policy policy;
    omm_buf text;
    CHECK_OK(parse(&policy, omm_bytes_str("{}\n")));
    CHECK(!policy.bootstrap.has_bound);
    CHECK_EQ(policy.bootstrap.bound, OMM_BOUND_PERCENTILE);
    const char *says = written(&text, &policy);
    CHECK(strlen(says) > strlen(older) && strcmp(says + strlen(says) - strlen(older), older) == 0);
    CHECK_OK(parse(&policy, omm_bytes_str(says)));
    CHECK_OK(omm_config_check_written(omm_bytes_str(says), omm_policy_fields, &policy));
    omm_buf_fini(&text);

    CHECK_OK(parse(&policy, omm_bytes_str(named)));
    CHECK(policy.bootstrap.has_bound);
    CHECK_EQ(policy.bootstrap.bound, OMM_BOUND_PERCENTILE);
    CHECK(strstr(written(&text, &policy), "\n  bound: \"percentile\"\n") != NULL);
    omm_buf_fini(&text);
}

/* A person's file that leaves the bound open gets the default; what it says stays. */
static void test_file(void) {
    char dir[] = "/tmp/omm-policy-XXXXXX", path[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/p.yaml", dir);
    static const struct {
        const char *text;
        int bound;
    } files[] = {{"quality: {heldout_uplift: {threshold: 0.5}}\n", OMM_BOUND_PERCENTILE_AND_T},
                 {"bootstrap: {resamples: 2000}\n", OMM_BOUND_PERCENTILE_AND_T},
                 {"bootstrap: {bound: percentile}\n", OMM_BOUND_PERCENTILE},
                 {"bootstrap: {bound: percentile_and_t}\n", OMM_BOUND_PERCENTILE_AND_T}};
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    omm_policy policy;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        omm_buf text;
        CHECK_OK(omm_file_write_fast(path, omm_bytes_str(files[i].text), 0644));
        CHECK_OK(omm_policy_load(&policy, path, &arena));
        CHECK_EQ(policy.bootstrap.bound, files[i].bound);
        CHECK(strstr(written(&text, &policy), "\n  bound: \"percentile") != NULL);
        omm_buf_fini(&text);
        if (i == 0) CHECK(policy.rules[OMM_METRIC_UPLIFT].threshold == 0.5);
        if (i == 1) CHECK_EQ(policy.bootstrap.resamples, 2000);
    }
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str("bootstrap: {bound: t}\n"), 0644));
    CHECK_ERR(omm_policy_load(&policy, path, &arena), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "p.yaml:1:20: bootstrap.bound: ") != NULL);
    CHECK(strstr(omm_err_sentence(), "percentile_and_t") != NULL);
    omm_arena_fini(&arena);
    CHECK_OK(omm_dir_remove(dir));
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
        "bootstrap: {bound: t}\n",
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
    test_older();
    test_file();
    test_refused();
    return 0;
}
