/* judge_test.c - the verdicts of a bundle are those of its evidence, worked out by hand; a repetition counts only where it is
 * one of a submission that the receipts chose, run otherwise, and compared with what the bundle says. */
#include "omm/evidence.h"
#include "omm/json.h"
#include "omm/judge.h"
#include "omm/mem.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

static kit s_kit;

static const omm_verdict *find(const omm_judgement *j, const char *metric) {
    for (size_t i = 0; i < j->evidence.count; i++)
        if (strcmp(j->evidence.items[i].metric, metric) == 0) return &j->evidence.items[i];
    for (size_t i = 0; i < j->measured.count; i++)
        if (strcmp(j->measured.items[i].metric, metric) == 0) return &j->measured.items[i];
    return NULL;
}

/* To the bit, but for what takes a rounding more by hand. */
static void expect(const omm_judgement *j, const char *metric, double value, uint64_t samples) {
    const omm_verdict *v = find(j, metric);
    CHECK(v != NULL && v->has_value);
    if (fabs(v->value - value) > 1e-12) fprintf(stderr, "%s: %.17g\n", metric, v->value);
    CHECK(fabs(v->value - value) <= 1e-12);
    CHECK_EQ(v->samples, samples);
}

static void expect_reason(const omm_judgement *j, const char *metric, const char *says) {
    const omm_verdict *v = find(j, metric);
    CHECK(v != NULL && !v->passed);
    if (!strstr(v->reason, says)) fprintf(stderr, "%s: %s\n", metric, v->reason);
    CHECK(strstr(v->reason, says) != NULL);
}

/* Items 0 .. 5 of clients 0 1 2 0 1 2, with 10 + i tokens: 30 + i/2 before, 10 + i/2 after, 9.5 + i/2 of the control. */
static double client_mean(size_t c, double nats) {
    return (nats / (double)(10 + c) + nats / (double)(13 + c)) / 2;
}

/* 15,030 bytes, and of them 3 x 162 of payloads and 159, 158, 157 of global adapters.  Signed are six payloads of 54 bytes and
 * six adapters of 318 in all, which have 14 values and so 56 bytes in f32; each row is rounded down. */
#define PAYLOADS (6 * 54.0)
#define ADAPTERS 318.0
#define AS_FP32(bytes, is) ((bytes) * (6 * 56.0 / (is)))
#define ROW_FP32(i) floor(4679 + 11.0 * (i) + AS_FP32(162, PAYLOADS) + AS_FP32(159 - (i), ADAPTERS))
#define WIRE_SAVING (1 - 15030.0 / (ROW_FP32(0) + ROW_FP32(1) + ROW_FP32(2)))

static void expect_good(const omm_judgement *j) {
    CHECK_EQ(j->evidence.count, 15);
    CHECK_EQ(j->measured.count, 5);
    CHECK(j->passed);
    expect(j, "up_bytes_max", 933, 6);
    expect(j, "down_bytes_max", 1112, 6);
    expect(j, "saving_vs_fp32", 1 - 12246.0 / 672, 6); /* 6 exchanges of 14 values, 8 bytes each */
    expect(j, "wire_saving_vs_fp32", WIRE_SAVING, 3);
    expect(j, "wire_overhead", 15030.0 / 12246 - 1, 3);
    /* 1500, 1200 and 700 tokens of 3000 each */
    const double a = 0.5, b = 0.4, c = 700.0 / 3000, sum = a + b + c;
    expect(j, "jain_index", sum * sum / (3 * (a * a + b * b + c * c)), 3);
    expect(j, "share_gap", a - c, 3);
    expect(j, "worst_client_uplift", client_mean(2, 20), 3);
    expect(j, "lowest_decile_uplift", client_mean(2, 20), 3);
    expect(j, "heldout_uplift", (client_mean(0, 20) + client_mean(1, 20) + client_mean(2, 20)) / 3,
           3);
    expect(j, "tool_parsed_gain", 1, 3);
    expect(j, "tool_named_gain", 1, 3);
    expect(j, "tool_exact_gain", 0, 3);
    expect(j, "control_loss_gap",
           (client_mean(0, 0.5) + client_mean(1, 0.5) + client_mean(2, 0.5)) / 3, 3);
    expect(j, "unsigned_accepted", 0, 6);
    CHECK(find(j, "evidence_faults")->value == 0);
    expect(j, "threads_mismatches", 0, 1);
    expect(j, "isa_mismatches", 0, 1);
    expect(j, "scalar_mismatches", 0, 1);
    static const char *const paths[][2] = {{"up_bytes_max", "ledger.jsonl"},
                                           {"wire_overhead", "measured/wire.json"},
                                           {"jain_index", "rounds.jsonl"},
                                           {"heldout_uplift", "eval/after.jsonl"},
                                           {"control_loss_gap", "eval/control.jsonl"},
                                           {"unsigned_accepted", "rounds.jsonl"},
                                           {"isa_mismatches", "measured/repro.json"}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        CHECK(strcmp(find(j, paths[i][0])->evidence_path, paths[i][1]) == 0);
}

static void judge(omm_judgement *j, const char *dir) {
    CHECK_OK(omm_bundle_judge(j, dir, NULL, NULL, kit_read_scenario));
}

static void test_values(void) {
    omm_judgement j;
    json_t *json = NULL, *part = NULL;
    bool passed = false;
    omm_buf text;
    judge(&j, s_kit.dir);
    expect_good(&j);
    /* The digest is that of the file that was judged. */
    static const char *const files[][2] = {{"up_bytes_max", "ledger.jsonl"},
                                           {"wire_overhead", "measured/wire.json"},
                                           {"jain_index", "rounds.jsonl"},
                                           {"heldout_uplift", "eval/after.jsonl"},
                                           {"isa_mismatches", "measured/repro.json"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        omm_buf_init(&text, BUF_MAX);
        kit_read(&text, s_kit.dir, files[i][1]);
        const omm_digest digest = omm_hash(omm_buf_view(&text));
        CHECK(omm_digest_equal(&digest, &find(&j, files[i][0])->evidence_digest));
        omm_buf_fini(&text);
    }
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_gate_json(&text, NULL, &j, NULL));
    CHECK_OK(omm_json_parse(&json, omm_buf_view(&text), "judgement"));
    CHECK_OK(omm_json_get_bool(&passed, json, "passed"));
    CHECK(passed);
    CHECK_OK(omm_json_get_bool(&passed, json, "verified"));
    CHECK(!passed && !json_object_get(json, "signer") && !json_object_get(json, "run_digest"));
    CHECK_OK(omm_json_get_object(&part, json, "gates"));
    CHECK_OK(omm_json_get_object(&part, json, "measured_gates"));
    json_decref(json);
    omm_buf_clear(&text);
    CHECK_OK(omm_judgement_text(&text, &j));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *says = (const char *)text.data;
    CHECK(strstr(says, "  pass  communication   up_bytes_max                    933 <= 4.1943e+06 "
                       "bytes      n=6\n"));
    CHECK(strstr(says, "  pass  fairness        jain_index                  0.92185 >= 0.3        "
                       "index      n=3\n"));
    CHECK(strstr(says, "  miss  communication   wire_saving_vs_fp32      0.00285278 >= 0.4        "
                       "ratio      n=3 (informational) - "));
    CHECK(strcmp(says + text.size - 1 - strlen("gates: pass\n"), "gates: pass\n") == 0);
    omm_buf_fini(&text);
    omm_judgement_fini(&j);
}

static void replace(const char *dir, const char *path, const char *from, const char *to) {
    omm_buf text, out;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&text, dir, path);
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *start = (const char *)text.data, *at = strstr(start, from);
    CHECK(at != NULL);
    if (at)
        CHECK_OK(omm_buf_printf(&out, "%.*s%s%s", (int)(at - start), start, to, at + strlen(from)));
    kit_write(dir, path, omm_buf_view(&out));
    omm_buf_fini(&text);
    omm_buf_fini(&out);
}

/* A wire.json of before, which does not say what of it was adapters, is judged as it was: against those that were accepted, as
 * f32; and its bundle verifies.  What passed besides then counts against the codec, and now does not. */
static void test_plain_wire(void) {
    static const char was[] =
        "e831df1b899538c0f95d3dfd88b3438245913fd5997afe3d0534cab5cb2c0494"; /* of the program before */
    kit k;
    omm_judgement j;
    omm_buf text;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.plain_wire = true});
    judge(&j, k.dir);
    expect(&j, "wire_saving_vs_fp32", 1 - 15030.0 / 672, 3);
    CHECK_EQ(j.wire_fp32, 672);
    const omm_digest digest = omm_hash(omm_buf_view(&j.measured_json));
    char is[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(is, &digest);
    if (strcmp(is, was) != 0) fprintf(stderr, "measured/gates.json: %s\n", is);
    CHECK(strcmp(is, was) == 0);
    omm_judgement_fini(&j);
    kit_verify(&r, k.dir, NULL);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    /* What a poll costs is in both: a thousand bytes more, and the saving is nearer to none. */
    omm_buf_init(&text, BUF_MAX);
    judge(&j, s_kit.dir);
    const double bytes = (double)j.wire_fp32;
    omm_judgement_fini(&j);
    kit_read(&text, s_kit.dir, "measured/wire.json");
    replace(s_kit.dir, "measured/wire.json", "\"up\":2000,", "\"up\":3000,");
    judge(&j, s_kit.dir);
    expect(&j, "wire_saving_vs_fp32", 1 - 16030 / (bytes + 1000), 3);
    omm_judgement_fini(&j);
    kit_write(s_kit.dir, "measured/wire.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    kit_remove(&k);
}

static void judge_with(omm_judgement *j, const char *policy) {
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    kit_temp_dir(dir);
    CHECK_OK(omm_path_join(path, dir, "mine.yaml"));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(policy), 0644));
    CHECK_OK(omm_bundle_judge(j, s_kit.dir, path, NULL, kit_read_scenario));
    CHECK_OK(omm_dir_remove(dir));
}

/* The kit's policy.yaml says no bound, as those of before: its gates.json is, byte for byte, what it was before there was one.
 * A person's file without the key, even the same text, has the bound of now; or it names the old one. */
static void test_bound(void) {
    static const char was[] = "f16386f7056dff513dcff4f17c91fe985a3fed4aef126b003953b5b069c3644c";
    omm_judgement own, mine;
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, s_kit.dir, "policy.yaml");
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *policy = (const char *)text.data;
    CHECK(strstr(policy, "bound") == NULL);
    judge(&own, s_kit.dir);
    const omm_digest digest = omm_hash(omm_buf_view(&own.gates_json));
    char is[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(is, &digest);
    if (strcmp(is, was) != 0) fprintf(stderr, "gates.json: %s\n", is);
    CHECK(strcmp(is, was) == 0);
    expect(&own, "heldout_uplift_low", client_mean(2, 20), 3); /* all three drawn are the worst */

    judge_with(&mine, policy);
    const double a = client_mean(0, 20), b = client_mean(1, 20), c = client_mean(2, 20);
    const double m = (a + b + c) / 3;
    const double squares = (a - m) * (a - m) + (b - m) * (b - m) + (c - m) * (c - m);
    expect(&mine, "heldout_uplift_low", m - 4.3026527297494639 * sqrt(squares / 6), 3);
    omm_judgement_fini(&mine);

    text.size--;
    CHECK_OK(omm_buf_printf(&text, "  bound: percentile\n"));
    CHECK_OK(omm_buf_append(&text, "", 1));
    judge_with(&mine, (const char *)text.data);
    CHECK_EQ(mine.gates_json.size, own.gates_json.size);
    CHECK(memcmp(mine.gates_json.data, own.gates_json.data, own.gates_json.size) == 0);
    omm_judgement_fini(&mine);
    omm_judgement_fini(&own);
    omm_buf_fini(&text);
}

/* One thing is wrong with one file: which verdicts say so, and how. */
static void test_wrong_files(void) {
    static const struct {
        const char *path, *from, *to; /* from NULL: the file is gone */
        const char *metric, *says;
    } wrong[] = {
        {"measured/wire.json", "\"commit\":\"0123", "\"commit\":\"9123", "wire_overhead",
         "foreign: evidence is of commit 9123"},
        {"measured/wire.json", "\"run_id\":\"6", "\"run_id\":\"7", "wire_overhead",
         "stale: evidence is of run 7"},
        {"measured/repro.json", "\"run_id\":\"6", "\"run_id\":\"7", "isa_mismatches",
         "stale: evidence is of run 7"},
        {"measured/repro.json", "\"commit\":\"0123", "\"commit\":\"9123", "isa_mismatches",
         "foreign: evidence is of commit 9123"},
        {"measured/wire.json", NULL, NULL, "wire_overhead", "evidence is missing"},
        {"measured/repro.json", NULL, NULL, "isa_mismatches", "evidence is missing"},
        {"measured/repro.json", "{", "[", "isa_mismatches", "evidence cannot be used"},
        {"ledger.jsonl", NULL, NULL, "up_bytes_max", "evidence is missing"},
        {"ledger.jsonl", NULL, NULL, "wire_overhead", "evidence is missing"},
        {"ledger.jsonl", "{", "[", "wire_overhead", "ledger.jsonl"},
        {"eval/control.jsonl", "\"tokens\":10", "\"tokens\":11", "control_loss_gap",
         "the two evaluations have different items"},
        {"eval/before.jsonl", "\"tokens\":10", "\"tokens\":11", "heldout_uplift",
         "the two evaluations have different items"},
        {"eval/before.jsonl", "\"client\":\"home-01\"", "\"client\":\"home-02\"", "heldout_uplift",
         "the two evaluations have different items"},
        {"eval/before.jsonl", "\"kind\":\"tool\"", "\"kind\":\"text\"", "heldout_uplift",
         "the two evaluations have different items"},
        {"eval/before.jsonl", "\"item\":\"8", "\"item\":\"9", "heldout_uplift",
         "the two evaluations have different items"},
        {"eval/before.jsonl", NULL, NULL, "heldout_uplift", "evidence is missing"},
        {"rounds.jsonl", NULL, NULL, "jain_index", "evidence is missing"},
        {"run.json", NULL, NULL, "jain_index", "evidence is missing"},
        {"run.json", "{", "[", "unsigned_accepted", "evidence cannot be used: run.json"},
        {"run.json", "\"rounds\"", "\"roundt\"", "unsigned_accepted",
         "evidence cannot be used: run.json: member \"rounds\" is missing"},
        {"run.json", "\"rounds\"", "\"roundt\"", "up_bytes_max",
         "the run that is judged is not known"},
        {"measured/wire.json", "\"retries\"", "\"retriet\"", "wire_overhead",
         "member \"retries\" is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char dir[OMM_PATH_MAX];
        omm_judgement j;
        kit_copy(dir, s_kit.dir);
        if (wrong[i].from)
            replace(dir, wrong[i].path, wrong[i].from, wrong[i].to);
        else
            kit_delete(dir, wrong[i].path);
        judge(&j, dir);
        expect_reason(&j, wrong[i].metric, wrong[i].says);
        CHECK(!j.passed || !find(&j, wrong[i].metric)->required);
        omm_judgement_fini(&j);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* The first tool item of a file of eval/ has no reply. */
static void without_reply(const char *dir, const char *path) {
    omm_buf text, out;
    omm_arena arena;
    omm_bytes *lines = NULL;
    size_t count = 0;
    bool is_done = false;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, dir, path);
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_buf_view(&text), KIT_ITEMS));
    for (size_t i = 0; i < count; i++) {
        omm_eval_record row;
        CHECK_OK(omm_eval_record_parse(&row, &arena, lines[i]));
        if (row.is_tool && !is_done) {
            row.generated = row.parsed = row.tool_ok = row.exact = false;
            row.reply = "";
            is_done = true;
        }
        CHECK_OK(omm_eval_record_write(&out, &row));
    }
    CHECK(is_done);
    kit_write(dir, path, omm_buf_view(&out));
    omm_arena_fini(&arena);
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}

/* A tool item counts where both have generated; here two of three have. */
static void test_not_generated(void) {
    static const char *const paths[] = {"eval/before.jsonl", "eval/after.jsonl"};
    for (size_t i = 0; i < 2; i++) {
        char dir[OMM_PATH_MAX];
        omm_judgement j;
        kit_copy(dir, s_kit.dir);
        without_reply(dir, paths[i]);
        judge(&j, dir);
        expect(&j, "tool_parsed_gain", 1, 2);
        omm_judgement_fini(&j);
        CHECK_OK(omm_dir_remove(dir));
    }
}

static void test_row_less(const char *path) {
    char dir[OMM_PATH_MAX];
    omm_judgement j;
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    kit_read(&text, dir, path);
    for (text.size--; text.data[text.size - 1] != '\n'; text.size--) {
    }
    kit_write(dir, path, omm_buf_view(&text));
    omm_buf_fini(&text);
    judge(&j, dir);
    expect_reason(&j, "heldout_uplift", "the two evaluations have different numbers of items");
    expect_reason(&j, "worst_client_uplift", "different numbers");
    CHECK_EQ(find(&j, "heldout_uplift")->samples, 0);
    omm_judgement_fini(&j);
    CHECK_OK(omm_dir_remove(dir));
}

/* One row less, a submission less, and a commit that is not asked of the run's own evidence. */
static void test_less(void) {
    char dir[OMM_PATH_MAX];
    omm_judgement j;
    test_row_less("eval/before.jsonl");
    test_row_less("eval/after.jsonl");

    kit_copy(dir, s_kit.dir);
    kit_delete(dir, omm_bundle_path_submission(2, &s_kit.ids[0]).text);
    judge(&j, dir);
    expect(&j, "unsigned_accepted", 1, 6);
    CHECK(!find(&j, "unsigned_accepted")->passed && !find(&j, "evidence_faults")->passed);
    CHECK(!j.passed);
    omm_judgement_fini(&j);
    CHECK_OK(omm_dir_remove(dir));

    /* A fault of any link of the chain is one of the evidence. */
    const omm_bundle_path links[] = {omm_bundle_path_receipt(0, &s_kit.ids[1]),
                                     omm_bundle_path_offer(1),
                                     omm_bundle_path_refused(0, 0, "REFUSED_FORMAT", false)};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        kit_copy(dir, s_kit.dir);
        kit_delete(dir, links[i].text);
        judge(&j, dir);
        CHECK(find(&j, "evidence_faults")->value > 0);
        CHECK(!find(&j, "evidence_faults")->passed && !j.passed);
        omm_judgement_fini(&j);
        CHECK_OK(omm_dir_remove(dir));
    }

    CHECK_OK(omm_bundle_judge(&j, s_kit.dir, NULL, "decade", kit_read_scenario));
    expect_reason(&j, "isa_mismatches", "foreign");
    CHECK(find(&j, "heldout_uplift")->passed && omm_verdicts_passed(&j.evidence));
    CHECK(!j.passed);
    omm_judgement_fini(&j);
}

/* A ledger whose bytes are 2^64 and a few more is not one of a few bytes, beside which little has passed. */
static void test_huge_ledger(void) {
    char dir[OMM_PATH_MAX];
    omm_judgement j;
    kit_lines l;
    kit_copy(dir, s_kit.dir);
    kit_lines_open(&l, dir, "ledger.jsonl");
    CHECK_EQ(l.count, 6);
    for (size_t i = 0; i < l.count; i++) {
        omm_ledger_record row;
        CHECK_OK(omm_ledger_record_parse(&row, l.lines[i]));
        if (i < 4) row.up = (uint64_t)1 << 62;
        CHECK_OK(omm_ledger_record_write(&l.out, &row));
    }
    kit_lines_put(&l, dir, "ledger.jsonl");
    judge(&j, dir);
    expect_reason(&j, "saving_vs_fp32", "value is not a finite number");
    expect_reason(&j, "wire_overhead", "value is not a finite number");
    omm_judgement_fini(&j);
    CHECK_OK(omm_dir_remove(dir));
}

/* A row of more adapters than 64 bits can count as f32 is no saving. */
static void test_huge_wire(void) {
    char dir[OMM_PATH_MAX];
    omm_judgement j;
    kit_copy(dir, s_kit.dir);
    replace(dir, "measured/wire.json", "\"up\":2000,", "\"up\":9223372036854775807,");
    replace(dir, "measured/wire.json", "\"up_payload\":162", "\"up_payload\":9223372036854775807");
    judge(&j, dir);
    expect_reason(&j, "wire_saving_vs_fp32", "value is not a finite number");
    omm_judgement_fini(&j);
    CHECK_OK(omm_dir_remove(dir));
}

/* Whom no round has selected was offered nothing, and has no share to be compared. */
static void test_never_selected(void) {
    char dir[OMM_PATH_MAX];
    omm_judgement j;
    kit_lines l;
    kit_copy(dir, s_kit.dir);
    kit_lines_open(&l, dir, "rounds.jsonl");
    for (size_t i = 0; i < l.count; i++) {
        omm_round_record round;
        CHECK_OK(omm_round_record_parse(&round, &l.arena, l.lines[i]));
        CHECK_EQ(round.selected_count, KIT_NODES);
        round.selected_count = KIT_NODES - 1; /* the last one of them */
        CHECK_OK(omm_round_record_write(&l.out, &round));
    }
    kit_lines_put(&l, dir, "rounds.jsonl");
    judge(&j, dir);
    CHECK_EQ(find(&j, "jain_index")->samples, KIT_NODES - 1);
    CHECK(find(&j, "jain_index")->has_value && find(&j, "share_gap")->has_value);
    omm_judgement_fini(&j);
    CHECK_OK(omm_dir_remove(dir));
}

/* --- repetitions --- */

enum { CHECKS_MAX = 4, THREADS = 0, ISA = 1, SCALAR = 2 };

typedef struct repeats {
    omm_arena arena;
    omm_repro_record record;
    omm_repro_check checks[CHECKS_MAX];
    omm_round_record rounds[KIT_ROUNDS];
    omm_audit_item *order;
    char hex[6][OMM_DIGEST_HEX_SIZE]; /* canonical, by place in the order */
} repeats;

static void repeats_read(repeats *r) {
    omm_buf text;
    omm_bytes *lines = NULL;
    size_t count = 0;
    memset(r, 0, sizeof *r);
    omm_arena_init(&r->arena, BUF_MAX);
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, s_kit.dir, "measured/repro.json");
    CHECK_OK(omm_repro_record_parse(&r->record, &r->arena, omm_buf_view(&text)));
    CHECK_EQ(r->record.check_count, 3);
    memcpy(r->checks, r->record.checks, 3 * sizeof *r->checks);
    r->record.checks = r->checks;
    omm_buf_clear(&text);
    kit_read(&text, s_kit.dir, "rounds.jsonl");
    CHECK_OK(omm_evidence_lines(&lines, &count, &r->arena, omm_buf_view(&text), KIT_ROUNDS));
    for (size_t i = 0; i < count; i++)
        CHECK_OK(omm_round_record_parse(&r->rounds[i], &r->arena, lines[i]));
    CHECK_OK(omm_audit_order(&r->order, &count, &r->arena, r->rounds, KIT_ROUNDS));
    CHECK_EQ(count, 6);
    for (size_t i = 0; i < 6; i++)
        omm_digest_hex(r->hex[i],
                       &r->rounds[r->order[i].round].accepted[r->order[i].index].canonical);
    omm_buf_fini(&text);
}

/* The check is of what stands at `place` of the order. */
static void aim(repeats *r, omm_repro_check *c, size_t place) {
    c->round = r->order[place].round;
    c->node = r->rounds[c->round].accepted[r->order[place].index].node;
    c->expected = c->repeated = r->hex[place];
}

/* without: of which the bundle has no submission any more; NULL: it is whole. */
static void judge_repeats(omm_judgement *j, const repeats *r, const omm_repro_check *without) {
    char dir[OMM_PATH_MAX];
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    if (without) kit_delete(dir, omm_bundle_path_submission(without->round, &without->node).text);
    CHECK_OK(omm_repro_record_write(&text, &r->record));
    kit_write(dir, "measured/repro.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    judge(j, dir);
    CHECK_OK(omm_dir_remove(dir));
}

static const char STEP_1[] = "0102030405060708000000000000000000000000000000000000000000000000";
static const char STEP_2[] = "090a0b0c0d0e0f10000000000000000000000000000000000000000000000000";

/* One check differs; NULL: it may. */
static void change(repeats *r, int what) {
    omm_repro_check *c = r->checks;
    switch (what) {
    case 0: break;
    case 1: c[THREADS].threads = r->record.threads; break;
    case 2: c[ISA].isa = r->record.isa; break;
    case 3: c[SCALAR].isa = "avx2"; break;
    case 4: c[ISA].kind = "luck"; break;
    case 5: c[ISA].has_node = false; break;
    case 6: c[THREADS].steps = 1; break;
    case 7: c[SCALAR].steps = 0; break;
    case 8: aim(r, &c[THREADS], 1); break;
    case 9: c[ISA].expected = c[ISA].repeated = r->hex[1]; break;
    case 10: c[SCALAR].expected = c[SCALAR].repeated = STEP_1; break;
    case 11: c[SCALAR].expected = c[SCALAR].repeated = STEP_1, c[SCALAR].steps = 1; break;
    case 12: c[SCALAR].steps = 9; break; /* the training ended after 2 */
    case 13: c[3] = c[ISA], r->record.check_count = 4; break;
    case 14: c[3] = c[ISA], r->record.check_count = 4, aim(r, &c[3], 1); break;
    case 15: c[3] = c[ISA], r->record.check_count = 4, aim(r, &c[3], 2); break;
    case 16:
        c[3] = c[ISA], r->record.check_count = 4, aim(r, &c[3], 1), aim(r, &c[SCALAR], 1),
        c[SCALAR].expected = c[SCALAR].repeated = STEP_2;
        break;
    case 17: aim(r, &c[ISA], 0), c[ISA].round++; break;
    case 18: c[ISA].isa = "avx2_vnni"; break; /* whose floats are those of the run's avx2 */
    case 19: c[ISA].isa = "avx"; break;
    case 20: r->record.isa = "banana"; break;
    case 21: r->record.isa = "scalar", r->record.other_isa = false, c[ISA].isa = "avx2"; break;
    case 22: c[SCALAR].isa = "avx512"; break; /* another, and not plain C */
    default: CHECK(false);
    }
}

static void test_repeats(void) {
    static const char *const says[] = {NULL,
                                       "ran as the run itself did",
                                       "ran as the run itself did",
                                       "ran as the run itself did",
                                       "is of an unknown kind",
                                       "is of no submission",
                                       "is of all steps, in plain C of the first",
                                       "is of all steps, in plain C of the first",
                                       "was not chosen by the receipts",
                                       "compared with something else than the evidence",
                                       "compared with something else than the evidence",
                                       NULL,
                                       NULL,
                                       "is repeated twice in one way",
                                       NULL,
                                       "was not chosen by the receipts",
                                       "was not chosen by the receipts",
                                       "was not chosen by the receipts",
                                       "ran as the run itself did",
                                       "isa is 'avx'; known are scalar, avx2,",
                                       "isa is 'banana'; known are",
                                       "ran as the run itself did",
                                       "ran as the run itself did"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        repeats r;
        omm_judgement j;
        repeats_read(&r);
        change(&r, (int)i);
        judge_repeats(&j, &r, NULL);
        if (says[i]) {
            expect_reason(&j, "threads_mismatches", says[i]);
            expect_reason(&j, "isa_mismatches", says[i]);
            CHECK_EQ(find(&j, "isa_mismatches")->samples, 0);
            CHECK(!j.passed);
        } else {
            expect(&j, "threads_mismatches", 0, 1);
            expect(&j, "isa_mismatches", 0, i == 14 ? 2 : 1);
            expect(&j, "scalar_mismatches", 0, 1);
            CHECK(j.passed);
        }
        omm_judgement_fini(&j);
        omm_arena_fini(&r.arena);
    }
    /* Other bytes came out, or none: a mismatch, of its own kind alone. */
    static const char *const metrics[] = {"threads_mismatches", "isa_mismatches",
                                          "scalar_mismatches"};
    for (size_t kind = 0; kind < 3; kind++)
        for (int none = 0; none < 2; none++) {
            repeats r;
            omm_judgement j;
            repeats_read(&r);
            r.checks[kind].repeated = none ? "" : r.hex[1];
            judge_repeats(&j, &r, NULL);
            for (size_t i = 0; i < 3; i++) expect(&j, metrics[i], i == kind, 1);
            CHECK_EQ(j.passed, kind == SCALAR); /* informational */
            omm_judgement_fini(&j);
            omm_arena_fini(&r.arena);
        }
}

/* Nothing is not what nothing was to be, where the evidence does not say what had to come out. */
static void test_nothing_expected(void) {
    repeats r;
    omm_judgement j;
    repeats_read(&r);
    r.checks[SCALAR].expected = r.checks[SCALAR].repeated = "";
    judge_repeats(&j, &r, &r.checks[SCALAR]);
    expect_reason(&j, "scalar_mismatches", "compared with something else than the evidence");
    omm_judgement_fini(&j);
    omm_arena_fini(&r.arena);
}

/* Whatever allocation fails: no other verdicts come of it, which a seal would keep. */
static void test_no_memory(void) {
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err == OMM_ERR_NOMEM; nth++) {
        omm_judgement j;
        omm_mem_fail_nth(nth);
        err = omm_bundle_judge(&j, s_kit.dir, NULL, NULL, kit_read_scenario);
        CHECK(err == OMM_ERR_NOMEM || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) omm_judgement_fini(&j);
    }
    CHECK_OK(err);
}

int main(void) {
    kit_make(&s_kit, &(kit_options){0});
    test_values();
    test_bound();
    test_plain_wire();
    test_wrong_files();
    test_not_generated();
    test_less();
    test_never_selected();
    test_huge_ledger();
    test_huge_wire();
    test_repeats();
    test_nothing_expected();
    test_no_memory();
    kit_remove(&s_kit);
    return 0;
}
