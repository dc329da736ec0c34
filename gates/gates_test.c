/* Goal: good evidence passes, and everything else fails closed, in every family.
 * Method: one battery over all families: the same rows with missing, unreadable, stale, foreign,
 * empty, too few and NaN evidence; then values by hand, thresholds at their edge, and the reports.
 */
#include "omm/gates.h"
#include "omm/json.h"
#include "omm/stats.h"
#include "omm_test.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CLIENTS = 4, ITEMS = 12 };

typedef enum rows_kind { ROWS_GOOD, ROWS_EMPTY, ROWS_NAN } rows_kind;

typedef omm_err (*family_fn)(omm_verdicts *verdicts, const omm_gate_context *context,
                             const omm_gate_source *source, rows_kind kind);

static omm_err feed_communication(omm_verdicts *v, const omm_gate_context *c,
                                  const omm_gate_source *s, rows_kind kind) {
    const omm_gate_bytes rows[] = {{1000, 3000, 16000}, {2000, 2000, 16000}};
    omm_gate_traffic traffic = {0};
    for (size_t i = 0; i < 2 && kind == ROWS_GOOD; i++) omm_gate_traffic_add(&traffic, &rows[i]);
    return omm_gate_communication(v, c, s, &traffic);
}

static omm_err feed_wire(omm_verdicts *v, const omm_gate_context *c, const omm_gate_source *s,
                         rows_kind kind) {
    omm_gate_bytes rows[] = {{1500, 3000, 16000}, {2500, 2000, 16000}};
    if (kind == ROWS_NAN) rows[0].up = UINT64_MAX; /* the sum would wrap around */
    return omm_gate_wire(v, c, s, rows, kind == ROWS_EMPTY ? 0 : 2, 8000);
}

static omm_err feed_shares(omm_verdicts *v, const omm_gate_context *c, const omm_gate_source *s,
                           rows_kind kind) {
    omm_gate_share rows[] = {{100, 100}, {50, 100}, {200, 400}};
    if (kind == ROWS_NAN) rows[1].tokens_offered = 0;
    return omm_gate_shares(v, c, s, rows, kind == ROWS_EMPTY ? 0 : 3);
}

/* Client i % CLIENTS; uplift 0.5 + client / 8 nats per token, item tokens 1 .. 12. */
static void items_of(omm_gate_item items[ITEMS], rows_kind kind) {
    for (uint32_t i = 0; i < ITEMS; i++) {
        double tokens = (double)(i + 1);
        uint32_t client = i % CLIENTS;
        items[i] = (omm_gate_item){.client = client,
                                   .tokens = i + 1,
                                   .nll_before = 3.0 * tokens,
                                   .nll_after = (2.5 - (double)client / 8) * tokens,
                                   .is_tool = i % 2 == 0,
                                   .parsed_before = true,
                                   .parsed_after = true,
                                   .named_after = i >= 6,
                                   .exact_after = i == 10};
    }
    if (kind == ROWS_NAN) items[7].nll_after = (double)NAN;
}

static omm_err feed_client_uplift(omm_verdicts *v, const omm_gate_context *c,
                                  const omm_gate_source *s, rows_kind kind) {
    omm_gate_item items[ITEMS];
    items_of(items, kind);
    return omm_gate_client_uplift(v, c, s, items, kind == ROWS_EMPTY ? 0 : ITEMS, CLIENTS);
}

static omm_err feed_quality(omm_verdicts *v, const omm_gate_context *c, const omm_gate_source *s,
                            rows_kind kind) {
    omm_gate_item items[ITEMS];
    items_of(items, kind);
    if (kind == ROWS_NAN) /* a NaN loss says nothing of tool calls: take those away */
        for (int i = 0; i < ITEMS; i++) items[i].is_tool = false;
    return omm_gate_quality(v, c, s, items, kind == ROWS_EMPTY ? 0 : ITEMS, CLIENTS);
}

static omm_err feed_control(omm_verdicts *v, const omm_gate_context *c, const omm_gate_source *s,
                            rows_kind kind) {
    omm_gate_item items[ITEMS];
    items_of(items, kind);
    return omm_gate_control(v, c, s, items, kind == ROWS_EMPTY ? 0 : ITEMS, CLIENTS);
}

static omm_err feed_reproducibility(omm_verdicts *v, const omm_gate_context *c,
                                    const omm_gate_source *s, rows_kind kind) {
    const omm_gate_repeat rows[] = {{OMM_GATE_REPEAT_THREADS, true},
                                    {OMM_GATE_REPEAT_ISA, true},
                                    {OMM_GATE_REPEAT_SCALAR, true}};
    return omm_gate_reproducibility(v, c, s, rows, kind == ROWS_GOOD ? 3 : 0);
}

static omm_err feed_integrity(omm_verdicts *v, const omm_gate_context *c, const omm_gate_source *s,
                              rows_kind kind) {
    const omm_gate_integrity_counts good = {3, 0, 20, 0};
    const omm_gate_integrity_counts empty = {0, 0, 0, 0};
    return omm_gate_integrity(v, c, s, kind == ROWS_GOOD ? &good : &empty);
}

static const struct {
    family_fn feed;
    size_t verdicts;
} FAMILIES[] = {
    {feed_communication, 3}, {feed_wire, 2},    {feed_shares, 2},          {feed_client_uplift, 2},
    {feed_quality, 5},       {feed_control, 1}, {feed_reproducibility, 3}, {feed_integrity, 2},
};
enum { FAMILY_COUNT = sizeof FAMILIES / sizeof FAMILIES[0] };

/* All metrics required, so that one failure fails the set. */
static omm_policy strict_policy(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    for (int i = 0; i < OMM_METRIC_COUNT; i++) policy.rules[i].level = OMM_LEVEL_REQUIRED;
    return policy;
}

static const omm_gate_source SOURCE = {
    .path = "rounds.jsonl", .run_id = "run-1", .commit = "c0ffee", .digest = {{1, 2, 3}}};

static void check_all_fail(family_fn feed, const omm_gate_context *context,
                           const omm_gate_source *source, rows_kind kind, size_t count,
                           const char *reason) {
    omm_verdicts v;
    omm_verdicts_init(&v);
    CHECK_OK(feed(&v, context, source, kind));
    CHECK_EQ(v.count, count);
    CHECK(!omm_verdicts_passed(&v));
    for (size_t i = 0; i < v.count; i++) {
        CHECK(!v.items[i].passed);
        if (!strstr(v.items[i].reason, reason))
            fprintf(stderr, "%s: %s\n", v.items[i].metric, v.items[i].reason);
        CHECK(strstr(v.items[i].reason, reason) != NULL);
    }
    omm_verdicts_fini(&v);
}

static void test_fails_closed(size_t f) {
    omm_policy policy = strict_policy();
    const omm_gate_context context = {&policy, "run-1", "c0ffee"};
    family_fn feed = FAMILIES[f].feed;
    size_t n = FAMILIES[f].verdicts;

    omm_verdicts v;
    omm_verdicts_init(&v);
    CHECK_OK(feed(&v, &context, &SOURCE, ROWS_GOOD));
    CHECK_EQ(v.count, n);
    for (size_t i = 0; i < n; i++) CHECK(v.items[i].passed && v.items[i].reason[0] == '\0');
    CHECK(omm_verdicts_passed(&v));
    CHECK_ERR(feed(&v, &context, &SOURCE, ROWS_GOOD), OMM_ERR_STATE); /* judged already */
    omm_verdicts_fini(&v);

    omm_gate_source bad = SOURCE;
    bad.path = NULL;
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "missing");
    bad.path = "";
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "missing");
    bad = SOURCE;
    bad.problem = "line 3 is no JSON";
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "line 3 is no JSON");
    bad = SOURCE;
    bad.run_id = "run-0";
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "stale");
    bad.run_id = NULL;
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "stale");
    bad = SOURCE;
    bad.commit = "decade";
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "foreign");
    bad.commit = NULL;
    check_all_fail(feed, &context, &bad, ROWS_GOOD, n, "foreign");
    const omm_gate_context of_nothing = {&policy, "run-1",
                                         ""}; /* two that say none are not the same */
    bad.commit = "";
    check_all_fail(feed, &of_nothing, &bad, ROWS_GOOD, n, "foreign");
    const omm_gate_context nameless = {&policy, "", NULL};
    bad = SOURCE;
    bad.run_id = "";
    check_all_fail(feed, &nameless, &bad, ROWS_GOOD, n, "the run that is judged is not known");
    check_all_fail(feed, &nameless, &SOURCE, ROWS_GOOD, n, "the run that is judged is not known");

    check_all_fail(feed, &context, &SOURCE, ROWS_EMPTY, n, "no samples");
    check_all_fail(feed, &context, &SOURCE, ROWS_NAN, n, "");
    for (int i = 0; i < OMM_METRIC_COUNT; i++) policy.rules[i].samples_min = 1000;
    check_all_fail(feed, &context, &SOURCE, ROWS_GOOD, n, "samples, policy asks for 1000");
    policy = strict_policy();
    for (int i = 0; i < OMM_METRIC_COUNT; i++) policy.rules[i].threshold = (double)NAN;
    check_all_fail(feed, &context, &SOURCE, ROWS_GOOD, n, "threshold");
}

static const omm_verdict *find(const omm_verdicts *v, omm_metric_id id) {
    for (size_t i = 0; i < v->count; i++)
        if (v->items[i].id == id) return &v->items[i];
    return NULL;
}

static double value_of(const omm_verdicts *v, omm_metric_id id) {
    const omm_verdict *verdict = find(v, id);
    CHECK(verdict != NULL);
    CHECK(verdict->has_value);
    return verdict->value;
}

static void test_values_by_hand(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    omm_verdicts v;
    omm_verdicts_init(&v);
    for (size_t f = 0; f < FAMILY_COUNT; f++)
        CHECK_OK(FAMILIES[f].feed(&v, &context, &SOURCE, ROWS_GOOD));
    CHECK_EQ(v.count, OMM_METRIC_COUNT); /* no metric of the table is left unjudged */
    CHECK(value_of(&v, OMM_METRIC_UP_BYTES_MAX) == 2000);
    CHECK(value_of(&v, OMM_METRIC_DOWN_BYTES_MAX) == 3000);
    CHECK(value_of(&v, OMM_METRIC_SAVING_VS_FP32) == 0.75); /* 8000 of 32000 */
    CHECK(value_of(&v, OMM_METRIC_WIRE_SAVING) == 1.0 - 9000.0 / 32000.0);
    CHECK(value_of(&v, OMM_METRIC_WIRE_OVERHEAD) == 0.125);
    CHECK(value_of(&v, OMM_METRIC_JAIN_INDEX) == 4.0 / 4.5); /* 1, 1/2, 1/2 */
    CHECK(value_of(&v, OMM_METRIC_SHARE_GAP) == 0.5);
    CHECK(value_of(&v, OMM_METRIC_WORST_UPLIFT) == 0.5);
    CHECK(value_of(&v, OMM_METRIC_DECILE_UPLIFT) == 0.5);
    CHECK(value_of(&v, OMM_METRIC_UPLIFT) == 0.6875);
    /* of 0.5, 0.625, 0.75, 0.875; t of 3 degrees of freedom */
    const double low = 0.6875 - 3.1824463052837096 * sqrt(5.0 / 192 / 4);
    CHECK(fabs(value_of(&v, OMM_METRIC_UPLIFT_LOW) - low) < 1e-12);
    CHECK(value_of(&v, OMM_METRIC_TOOL_PARSED) == 0);
    CHECK(value_of(&v, OMM_METRIC_TOOL_NAMED) == 0.5);
    CHECK(value_of(&v, OMM_METRIC_TOOL_EXACT) == 1.0 / 6.0);
    CHECK(value_of(&v, OMM_METRIC_CONTROL_GAP) == -0.6875);
    CHECK_EQ(find(&v, OMM_METRIC_UPLIFT)->samples, CLIENTS);
    CHECK(find(&v, OMM_METRIC_UPLIFT)->commit == NULL);
    CHECK(omm_verdicts_passed(&v));
    omm_verdicts_fini(&v);
    CHECK(!omm_verdicts_passed(&v)); /* nothing judged is nothing passed */
}

static bool judge_one(const omm_policy *policy, omm_metric_id id, omm_metric metric) {
    const omm_gate_context context = {policy, "run-1", NULL};
    omm_verdicts v;
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_judge(&v, &context, &SOURCE, id, metric));
    bool passed = v.items[0].passed;
    omm_verdicts_fini(&v);
    return passed;
}

/* Nothing changed is 0, whatever the sign that a difference of equals was given. */
static void test_no_minus_zero(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", "c0ffee"};
    omm_gate_item items[ITEMS];
    omm_verdicts v;
    omm_buf json;
    items_of(items, ROWS_GOOD);
    for (int i = 0; i < ITEMS; i++) items[i].nll_after = items[i].nll_before;
    omm_verdicts_init(&v);
    omm_buf_init(&json, 1 << 16);
    CHECK_OK(omm_gate_control(&v, &context, &SOURCE, items, ITEMS, CLIENTS));
    CHECK(v.items[0].has_value && v.items[0].value == 0 && !signbit(v.items[0].value));
    CHECK_OK(omm_verdicts_json(&json, &v, &context));
    CHECK(memmem(json.data, json.size, "-0.0", 4) == NULL);
    omm_buf_fini(&json);
    omm_verdicts_fini(&v);
}

static void test_edges(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    policy.rules[OMM_METRIC_UPLIFT].threshold = 0.25;
    policy.rules[OMM_METRIC_UPLIFT].samples_min = 3;
    omm_metric good = {true, 0.25, 3, "nats/token"};
    CHECK(judge_one(&policy, OMM_METRIC_UPLIFT, good));
    omm_metric m = good;
    m.value = nextafter(0.25, 0);
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m.value = (double)INFINITY;
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m.value = (double)NAN;
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m = good;
    m.samples = 2;
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m = good;
    m.present = false;
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m = good;
    m.unit = "bits/token";
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    m.unit = NULL;
    CHECK(!judge_one(&policy, OMM_METRIC_UPLIFT, m));
    omm_metric bytes = {true, 4194304, 1, "bytes"};
    CHECK(judge_one(&policy, OMM_METRIC_UP_BYTES_MAX, bytes));
    bytes.value++;
    CHECK(!judge_one(&policy, OMM_METRIC_UP_BYTES_MAX, bytes));
    bytes.value = -(double)INFINITY;
    CHECK(!judge_one(&policy, OMM_METRIC_UP_BYTES_MAX, bytes));
}

static void test_rows_that_cannot_be(void) {
    omm_policy policy = strict_policy();
    const omm_gate_context context = {&policy, "run-1", NULL};
    omm_gate_item items[ITEMS];
    for (int what = 0; what < 6; what++) {
        omm_verdicts v;
        omm_verdicts_init(&v);
        items_of(items, ROWS_GOOD);
        uint32_t clients = CLIENTS;
        if (what == 0) items[3].client = CLIENTS;
        if (what == 1) items[3].tokens = 0;
        if (what == 2) clients = CLIENTS + 1; /* the last one has no item */
        if (what == 3) clients = 0;
        if (what == 4) items[1].nll_before = (double)NAN; /* the others' uplifts are numbers */
        if (what == 5) items[1].nll_before = (double)INFINITY;
        CHECK_OK(omm_gate_quality(&v, &context, &SOURCE, items, ITEMS, clients));
        CHECK(!find(&v, OMM_METRIC_UPLIFT)->passed && !find(&v, OMM_METRIC_UPLIFT_LOW)->passed);
        CHECK_OK(omm_gate_client_uplift(&v, &context, &SOURCE, items, ITEMS, clients));
        CHECK(!find(&v, OMM_METRIC_WORST_UPLIFT)->passed);
        CHECK(!find(&v, OMM_METRIC_DECILE_UPLIFT)->passed);
        omm_verdicts_fini(&v);
    }
    omm_verdicts v;
    omm_verdicts_init(&v);
    const omm_gate_share over[] = {{101, 100}};
    CHECK_OK(omm_gate_shares(&v, &context, &SOURCE, over, 1));
    CHECK(!v.items[0].passed && !v.items[1].passed);
    const omm_gate_bytes few[] = {{100, 100, 16000}};
    CHECK_OK(omm_gate_wire(&v, &context, &SOURCE, few, 1, 201)); /* below the ledger */
    CHECK(!find(&v, OMM_METRIC_WIRE_OVERHEAD)->passed);
    CHECK(!find(&v, OMM_METRIC_WIRE_SAVING)->has_value); /* nor is it a saving */
    const omm_gate_repeat different[] = {{OMM_GATE_REPEAT_THREADS, true},
                                         {OMM_GATE_REPEAT_THREADS, false}};
    CHECK_OK(omm_gate_reproducibility(&v, &context, &SOURCE, different, 2));
    CHECK(value_of(&v, OMM_METRIC_REPEAT_THREADS) == 1);
    CHECK(!find(&v, OMM_METRIC_REPEAT_THREADS)->passed);
    CHECK(!find(&v, OMM_METRIC_REPEAT_ISA)->passed); /* no second instruction set */
    const omm_gate_integrity_counts bad = {3, 1, 20, 2};
    CHECK_OK(omm_gate_integrity(&v, &context, &SOURCE, &bad));
    CHECK(!find(&v, OMM_METRIC_UNSIGNED_ACCEPTED)->passed);
    CHECK(!find(&v, OMM_METRIC_EVIDENCE_FAULTS)->passed);
    omm_verdicts_fini(&v);
}

/* Worst and best are found wherever they stand. */
static void test_places(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    static const omm_gate_share orders[][3] = {{{25, 100}, {100, 100}, {50, 100}},
                                               {{50, 100}, {25, 100}, {100, 100}},
                                               {{100, 100}, {50, 100}, {25, 100}}};
    omm_verdicts v;
    for (size_t i = 0; i < 3; i++) {
        omm_verdicts_init(&v);
        CHECK_OK(omm_gate_shares(&v, &context, &SOURCE, orders[i], 3));
        CHECK(value_of(&v, OMM_METRIC_SHARE_GAP) == 0.75);
        omm_verdicts_fini(&v);
    }
    const omm_gate_share small[] = {{100, 100}, {1, 1}};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_shares(&v, &context, &SOURCE, small, 2));
    CHECK(value_of(&v, OMM_METRIC_SHARE_GAP) == 0 && value_of(&v, OMM_METRIC_JAIN_INDEX) == 1);
    omm_verdicts_fini(&v);
    const omm_gate_share nothing[] = {{100, 100}, {0, 0}};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_shares(&v, &context, &SOURCE, nothing, 2));
    CHECK(!find(&v, OMM_METRIC_SHARE_GAP)->has_value &&
          !find(&v, OMM_METRIC_JAIN_INDEX)->has_value);
    omm_verdicts_fini(&v);

    /* One item a client; which of them is harmed must not matter. */
    for (uint32_t worst = 0; worst < 3; worst++) {
        omm_gate_item items[3];
        for (uint32_t c = 0; c < 3; c++)
            items[c] = (omm_gate_item){c, 4, 8, c == worst ? 10 : 4, .is_tool = false};
        omm_verdicts_init(&v);
        CHECK_OK(omm_gate_client_uplift(&v, &context, &SOURCE, items, 3, 3));
        CHECK(value_of(&v, OMM_METRIC_WORST_UPLIFT) == -0.5);
        CHECK(!find(&v, OMM_METRIC_WORST_UPLIFT)->passed);
        omm_verdicts_fini(&v);
    }
}

/* Two items a client, of different uplifts; tool calls get worse, too. */
static void test_unlike_items(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    const omm_gate_item items[] = {
        {0, 2, 4, 2, true, true, false, true, true, true, false},    /* +1 */
        {0, 4, 3, 2, true, true, false, false, true, true, false},   /* +0.25 */
        {1, 8, 1, 2, true, true, true, false, true, false, true},    /* -0.125 */
        {1, 2, 2, 1, true, false, true, false, false, false, false}, /* +0.5 */
    };
    omm_verdicts v;
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_quality(&v, &context, &SOURCE, items, 4, 2));
    CHECK_OK(omm_gate_client_uplift(&v, &context, &SOURCE, items, 4, 2));
    CHECK(value_of(&v, OMM_METRIC_UPLIFT) == 0.40625);
    CHECK(value_of(&v, OMM_METRIC_WORST_UPLIFT) == 0.1875);
    CHECK(value_of(&v, OMM_METRIC_TOOL_PARSED) == -0.25);
    CHECK(value_of(&v, OMM_METRIC_TOOL_NAMED) == 0.5);
    CHECK(value_of(&v, OMM_METRIC_TOOL_EXACT) == -0.25);
    omm_verdicts_fini(&v);
}

/* Sums that wrap around are no saving; bytes to the byte of the ledger are no overhead. */
static void test_traffic(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    static const omm_gate_bytes rows[][2] = {{{UINT64_MAX, 1, 16000}, {1, 1, 16000}},
                                             {{1, 1, UINT64_MAX}, {1, 1, UINT64_MAX}},
                                             {{1, 1, 0}, {1, 1, 0}}};
    omm_verdicts v;
    for (size_t i = 0; i < 3; i++) {
        omm_gate_traffic t = {0};
        omm_gate_traffic_add(&t, &rows[i][0]);
        omm_gate_traffic_add(&t, &rows[i][1]);
        omm_verdicts_init(&v);
        CHECK_OK(omm_gate_communication(&v, &context, &SOURCE, &t));
        CHECK(!find(&v, OMM_METRIC_SAVING_VS_FP32)->has_value);
        CHECK(!find(&v, OMM_METRIC_SAVING_VS_FP32)->passed);
        omm_verdicts_fini(&v);
    }
    const omm_gate_bytes exact = {101, 100, 16000};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_wire(&v, &context, &SOURCE, &exact, 1, 201));
    CHECK(value_of(&v, OMM_METRIC_WIRE_OVERHEAD) == 0);
    CHECK(find(&v, OMM_METRIC_WIRE_SAVING)->passed);
    omm_verdicts_fini(&v);
    /* 2^64 bytes more than the ledger, which wrap around to it. */
    const omm_gate_bytes huge[] = {{(uint64_t)1 << 63, 201, 16000}, {(uint64_t)1 << 63, 0, 16000}};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_wire(&v, &context, &SOURCE, huge, 2, 201));
    for (size_t i = 0; i < v.count; i++) CHECK(!v.items[i].has_value && !v.items[i].passed);
    omm_verdicts_fini(&v);
}

/* An interval that cannot be has no value, and judging goes on. */
static void test_no_interval(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    omm_gate_item items[ITEMS];
    omm_verdicts v;
    for (int what = 0; what < 2; what++) {
        items_of(items, ROWS_GOOD);
        if (what == 0) policy.bootstrap.resamples = 39;
        if (what == 1) items[0].nll_before = DBL_MAX, items[0].nll_after = -DBL_MAX;
        omm_verdicts_init(&v);
        CHECK_OK(omm_gate_quality(&v, &context, &SOURCE, items, ITEMS, CLIENTS));
        CHECK(!find(&v, OMM_METRIC_UPLIFT_LOW)->has_value);
        omm_verdicts_fini(&v);
        omm_policy_default(&policy);
    }
}

/* One item of ten tokens for each of `count` clients. */
static omm_verdict low_of(const double *uplifts, uint32_t count, int bound) {
    enum { MOST = 32 };
    omm_gate_item items[MOST] = {{0}};
    omm_policy policy;
    omm_verdicts v;
    omm_policy_default(&policy);
    CHECK_EQ(policy.bootstrap.bound, OMM_BOUND_PERCENTILE_AND_T);
    policy.bootstrap.bound = bound;
    policy.bootstrap.resamples = 1000;
    policy.rules[OMM_METRIC_UPLIFT_LOW].samples_min = 1;
    const omm_gate_context context = {&policy, "run-1", NULL};
    for (uint32_t i = 0; i < count && i < MOST; i++)
        items[i] = (omm_gate_item){.client = i, .tokens = 10, .nll_before = 10 * uplifts[i]};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_quality(&v, &context, &SOURCE, items, count, count));
    const omm_verdict out = *find(&v, OMM_METRIC_UPLIFT_LOW);
    omm_verdicts_fini(&v);
    return out;
}

/* Each bound is the lower one somewhere, and the lower one counts; by name the old one stays what it was. */
static void test_bounds(void) {
    const double two[] = {0.5, 1.0}, alike[] = {0.25, 0.25, 0.25};
    double two_bad[30];
    for (int i = 0; i < 30; i++) two_bad[i] = i < 2 ? -20 : 1;
    const int old = OMM_BOUND_PERCENTILE, both = OMM_BOUND_PERCENTILE_AND_T;

    CHECK(low_of(two, 2, old).value == 0.5 && low_of(two, 2, old).passed);
    CHECK(!low_of(two, 2, both).passed);
    CHECK(fabs(low_of(two, 2, both).value - (0.75 - 12.706204736174705 * 0.25)) < 1e-12);
    CHECK(low_of(alike, 3, both).value == 0.25 && low_of(alike, 3, both).passed);
    CHECK(low_of(two_bad, 30, both).value == low_of(two_bad, 30, old).value);
    CHECK(low_of(two_bad, 30, both).value < omm_student_low(two_bad, 30));
    /* one client: its own uplift, or none */
    CHECK(low_of(two, 1, old).value == 0.5 && low_of(two, 1, old).passed);
    CHECK(!low_of(two, 1, both).has_value && !low_of(two, 1, both).passed);
}

/* Five clients, close to normal around 0: the old bound passes one draw in twelve, this one about one in forty. */
static void test_noise(void) {
    enum { DRAWS = 1000, COUNT = 5, PARTS = 12, MEAN = 6 };
    const omm_seed seed = omm_seed_from_u64(9);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    size_t old = 0, both = 0;
    for (size_t draw = 0; draw < DRAWS; draw++) {
        uint32_t words[COUNT * PARTS];
        double uplifts[COUNT];
        omm_rng_fill_u32(words, &lane, draw * COUNT * PARTS, (size_t)COUNT * PARTS);
        for (size_t i = 0; i < COUNT; i++) {
            uplifts[i] = -MEAN;
            for (size_t k = 0; k < PARTS; k++) uplifts[i] += words[i * PARTS + k] * 0x1p-32;
        }
        old += low_of(uplifts, COUNT, OMM_BOUND_PERCENTILE).passed;
        both += low_of(uplifts, COUNT, OMM_BOUND_PERCENTILE_AND_T).passed;
    }
    if (old < 60 || both >= 40) fprintf(stderr, "of noise %zu, %zu pass\n", old, both);
    CHECK(old >= 60);
    CHECK(both >= 10 && both < 40);
}

static void test_control_left_out(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    const omm_gate_source none = {.run_id = "run-1"};
    omm_verdicts v;
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_control(&v, &context, &none, NULL, 0, 0));
    CHECK_EQ(v.count, 0);
    policy.rules[OMM_METRIC_CONTROL_GAP].level = OMM_LEVEL_REQUIRED;
    CHECK_OK(omm_gate_control(&v, &context, &none, NULL, 0, 0));
    CHECK_EQ(v.count, 1);
    CHECK(!v.items[0].passed);
    omm_verdicts_fini(&v);
    /* One that cannot be read was not left out: that is said. */
    policy.rules[OMM_METRIC_CONTROL_GAP].level = OMM_LEVEL_INFORMATIONAL;
    const omm_gate_source broken = {.run_id = "run-1", .problem = "line 3 is no JSON"};
    omm_verdicts_init(&v);
    CHECK_OK(omm_gate_control(&v, &context, &broken, NULL, 0, 0));
    CHECK_EQ(v.count, 1);
    CHECK(!v.items[0].passed && strstr(v.items[0].reason, "line 3 is no JSON"));
    omm_verdicts_fini(&v);
}

static const char GOLDEN_JSON[] =
    "{\"kind\":\"omm-verdicts\",\"passed\":false,\"run_id\":\"run-1\",\"schema_version\":1,"
    "\"verdicts\":[{\"commit\":null,\"direction\":\"at_most\",\"evidence\":\"rounds.jsonl\","
    "\"evidence_digest\":"
    "\"0102030000000000000000000000000000000000000000000000000000000000\","
    "\"gate\":\"integrity\",\"metric\":\"unsigned_accepted\","
    "\"reason\":\"1 is not at most 0 count\",\"required\":true,\"run_id\":\"run-1\","
    "\"samples\":3,\"status\":\"fail\",\"threshold\":0.0,\"unit\":\"count\",\"value\":1.0},"
    "{\"commit\":null,\"direction\":\"at_most\",\"evidence\":null,\"evidence_digest\":null,"
    "\"gate\":\"communication\",\"metric\":\"wire_overhead\","
    "\"reason\":\"evidence cannot be used: <a & \\\"b\\\"?\?>\",\"required\":false,"
    "\"run_id\":\"\",\"samples\":0,\"status\":\"fail\",\"threshold\":0.5,\"unit\":\"ratio\","
    "\"value\":null}]}\n";

static const char GOLDEN_XML[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<testsuites name=\"gates\" tests=\"3\" failures=\"1\" skipped=\"1\">\n"
    "  <testsuite name=\"communication\" tests=\"2\" failures=\"0\" skipped=\"1\">\n"
    "    <testcase classname=\"gates.communication\" name=\"wire_overhead\" time=\"0\">\n"
    "      <skipped message=\"evidence cannot be used: &lt;a &amp; &quot;b&quot;?\?&gt;\"/>\n"
    "    </testcase>\n"
    "    <testcase classname=\"gates.communication\" name=\"up_bytes_max\" time=\"0\"/>\n"
    "  </testsuite>\n"
    "  <testsuite name=\"integrity\" tests=\"1\" failures=\"1\" skipped=\"0\">\n"
    "    <testcase classname=\"gates.integrity\" name=\"unsigned_accepted\" time=\"0\">\n"
    "      <failure message=\"1 is not at most 0 count\"/>\n"
    "    </testcase>\n"
    "  </testsuite>\n"
    "</testsuites>\n";

static void test_reports(void) {
    omm_policy policy;
    omm_policy_default(&policy);
    const omm_gate_context context = {&policy, "run-1", NULL};
    const omm_gate_source hostile = {.problem = "<a & \"b\"\x01\xff>"};
    omm_verdicts v, other;
    omm_verdicts_init(&v);
    omm_verdicts_init(&other);
    CHECK_OK(omm_gate_judge(&v, &context, &SOURCE, OMM_METRIC_UNSIGNED_ACCEPTED,
                            (omm_metric){true, 1, 3, "count"}));
    CHECK_OK(omm_gate_judge(&v, &context, &hostile, OMM_METRIC_WIRE_OVERHEAD, (omm_metric){0}));
    CHECK_OK(omm_gate_judge(&other, &context, &SOURCE, OMM_METRIC_UP_BYTES_MAX,
                            (omm_metric){true, 1, 3, "bytes"}));
    omm_buf out;
    omm_buf_init(&out, 1 << 16);
    CHECK_OK(omm_verdicts_json(&out, &v, &context));
    if (!omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(GOLDEN_JSON)))
        fprintf(stderr, "%.*s", (int)out.size, (const char *)out.data);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(GOLDEN_JSON)));
    out.size = 0;
    const omm_verdicts *const sets[] = {&v, &other};
    CHECK_OK(omm_verdicts_junit(&out, sets, 2));
    if (!omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(GOLDEN_XML)))
        fprintf(stderr, "%.*s", (int)out.size, (const char *)out.data);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(GOLDEN_XML)));

    out.size = 0;
    const omm_junit_property whose[] = {
        {"bundle", "\"'<>&\t\x7f\xc2\x85\xed\xa0\x80\xf0\x9f\x98\x80\xc3"}, {"signer", ""}};
    CHECK_OK(omm_verdicts_junit_of(&out, sets, 2, whose, 2));
    CHECK_OK(omm_buf_append(&out, "", 1));
    static const char own[] = "skipped=\"1\">\n    <properties>\n"
                              "      <property name=\"bundle\" "
                              "value=\"&quot;&apos;&lt;&gt;&amp;??\?\?\?\?\xf0\x9f\x98\x80?\"/>\n"
                              "      <property name=\"signer\" value=\"\"/>\n"
                              "    </properties>\n    <testcase";
    const char *first = strstr((const char *)out.data, own);
    CHECK(first != NULL);
    unsigned lists = 0;
    for (const char *at = (const char *)out.data; (at = strstr(at, "<properties>")); at++) lists++;
    CHECK_EQ(lists, 2); /* one a testsuite */
    out.size--;

    for (size_t max = 1; max < out.size; max++) {
        omm_buf small;
        omm_buf_init(&small, max);
        CHECK_ERR(omm_verdicts_junit_of(&small, sets, 2, whose, 2), OMM_ERR_TOO_BIG);
        CHECK_EQ(small.size, 0);
        omm_buf_fini(&small);
    }
    omm_buf small;
    omm_buf_init(&small, 300);
    CHECK_ERR(omm_verdicts_json(&small, &v, &context), OMM_ERR_TOO_BIG);
    CHECK_EQ(small.size, 0);
    v.items[0].threshold = (double)NAN;
    CHECK_ERR(omm_verdicts_json(&out, &v, &context), OMM_ERR_NUMERIC);
    omm_buf_fini(&small);
    omm_buf_fini(&out);
    omm_verdicts_fini(&v);
    omm_verdicts_fini(&other);
}

static void test_out_of_memory(size_t f) {
    omm_policy policy = strict_policy();
    const omm_gate_context context = {&policy, "run-1", "c0ffee"};
    for (size_t nth = 1, done = 0; !done; nth++) {
        omm_verdicts v;
        omm_verdicts_init(&v);
        omm_mem_fail_nth(nth);
        omm_err err = FAMILIES[f].feed(&v, &context, &SOURCE, ROWS_GOOD);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) CHECK_ERR(err, OMM_ERR_NOMEM);
        done = err == OMM_OK;
        if (done) { /* nothing was left out, or judged by what there was no memory for */
            CHECK_EQ(v.count, FAMILIES[f].verdicts);
            for (size_t i = 0; i < v.count; i++) CHECK(v.items[i].passed);
        }
        omm_verdicts_fini(&v);
        CHECK_EQ(omm_mem_live(), 0);
    }
}

int main(void) {
    for (size_t f = 0; f < FAMILY_COUNT; f++) {
        test_fails_closed(f);
        test_out_of_memory(f);
    }
    test_values_by_hand();
    test_no_minus_zero();
    test_edges();
    test_rows_that_cannot_be();
    test_places();
    test_unlike_items();
    test_traffic();
    test_no_interval();
    test_bounds();
    test_noise();
    test_control_left_out();
    test_reports();
    return 0;
}
