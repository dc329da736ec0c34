/* Bundles that were changed and sealed again, by a stranger or with the real bundle key: each fails
 * on what it is, in the check that is there for it, not only on a checksum. */
#include "omm/envelope.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

static kit s_kit;   /* the honest run */
static kit s_short; /* the same without one submission of the last round */

static void copy_from(const char *dir, const char *path, const char *other,
                      const char *other_path) {
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, other, other_path);
    kit_write(dir, path, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
}

/* As whoever has both keys ends a run that says something else. */
static void close_again(const char *dir) {
    omm_buf text;
    omm_arena arena;
    omm_envelope env;
    omm_close end;
    omm_buf_init(&text, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, dir, "close.env");
    CHECK_OK(omm_envelope_open_as(&env, OMM_CONTEXT_CLOSE, omm_buf_view(&text)));
    CHECK_OK(omm_close_decode(&end, env.payload, &arena));
    CHECK_OK(omm_bundle_evidence_digest(&end.eval_digest, dir));
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_close_encode(&payload, &end));
    omm_buf_clear(&text);
    CHECK_OK(
        omm_envelope_seal(&text, OMM_CONTEXT_CLOSE, omm_buf_view(&payload), &s_kit.coordinator));
    kit_write(dir, "close.env", omm_buf_view(&text));
    omm_buf_fini(&payload);
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
}

typedef struct forgery {
    const char *name;
    void (*change)(const char *dir);
    const char *check, *path; /* where it must fail */
    bool judge;               /* the forger judges again, so that the verdicts fit */
    bool stranger;            /* sealed by another key */
} forgery;

static void nothing(const char *dir) {
    (void)dir;
}

static void verdict(const char *dir) {
    kit_edit(dir, "gates.json", "\"heldout_uplift\"", "\"value\":", "\"value\":1");
}

static void measured_verdict(const char *dir) {
    kit_edit(dir, "measured/gates.json", NULL, "\"value\":", "\"value\":1");
}

static void junit(const char *dir) {
    kit_edit(dir, "junit.xml", NULL, "name=\"up_bytes_max\"", "name=\"up_bytes_min\"");
}

static void policy(const char *dir) {
    kit_edit(dir, "policy.yaml", NULL, "threshold: 0.3", "threshold: 0.1");
}

static void policy_and_close(const char *dir) {
    policy(dir);
    close_again(dir);
}

static void test_and_close(const char *dir) {
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, dir, "run.json");
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *digest = strstr((char *)text.data, "\"test\":{\"digest\":\"");
    CHECK(digest != NULL);
    digest += strlen("\"test\":{\"digest\":\"");
    *digest = *digest == '0' ? '1' : '0';
    kit_write(dir, "run.json", omm_bytes_of(text.data, text.size - 1));
    omm_buf_fini(&text);
    close_again(dir);
}

static void base_and_close(const char *dir) {
    kit_edit(dir, "run.json", "\"base\"", "\"bytes\":", "\"bytes\":1");
    close_again(dir);
}

static void scenario(const char *dir) {
    kit_edit(dir, "scenario.yaml", NULL, "kit", "kid");
}

static omm_bundle_path submission(uint32_t round, size_t node) {
    return omm_bundle_path_submission(round, &s_kit.ids[node]);
}

/* Its files, and nothing else. */
static void submission_files(const char *dir) {
    kit_delete(dir, submission(0, 0).text);
    kit_delete(dir, omm_bundle_path_receipt(0, &s_kit.ids[0]).text);
}

/* The last round as if the submission had never come, all that follows from it recomputed: line,
 * master, broadcast, ledger, final adapter.  Only the coordinator's close is that of the real run. */
static void last_submission(const char *dir) {
    CHECK_OK(omm_dir_remove(dir));
    char copy[OMM_PATH_MAX];
    kit_copy(copy, s_short.dir);
    CHECK(rename(copy, dir) == 0);
    copy_from(dir, "close.env", s_kit.dir, "close.env");
}

static void weight(const char *dir) {
    kit_edit(dir, "rounds.jsonl", NULL, "\"tokens\":500", "\"tokens\":501");
    kit_edit(dir, "rounds.jsonl", NULL, "\"weight_sum\":1800", "\"weight_sum\":1801");
}

static void last_weight(const char *dir) {
    kit_edit(dir, "rounds.jsonl", "\"round\":2", "\"weight_sum\":1100", "\"weight_sum\":1101");
}

static void swap(const char *dir) {
    omm_buf text;
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_arena arena;
    omm_buf out;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    omm_arena_init(&arena, 4096);
    kit_read(&text, dir, "rounds.jsonl");
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_buf_view(&text), 9));
    static const size_t order[] = {0, 2, 1};
    CHECK_EQ(count, 3);
    if (count != 3) return;
    for (size_t i = 0; i < count; i++)
        CHECK_OK(omm_buf_append(&out, lines[order[i]].data, lines[order[i]].size));
    kit_write(dir, "rounds.jsonl", omm_buf_view(&out));
    omm_arena_fini(&arena);
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}

/* The rounds change places with everything that is theirs, under each other's names. */
static void swap_all(const char *dir) {
    swap(dir);
    kit_edit(dir, "rounds.jsonl", NULL, "\"round\":2", "\"round\":9");
    kit_edit(dir, "rounds.jsonl", NULL, "\"round\":1", "\"round\":2");
    kit_edit(dir, "rounds.jsonl", NULL, "\"round\":9", "\"round\":1");
    copy_from(dir, "offers/r001.env", s_kit.dir, "offers/r002.env");
    copy_from(dir, "offers/r002.env", s_kit.dir, "offers/r001.env");
}

static void adapter(const char *dir) {
    static const char other[] = "GGUF another adapter";
    kit_write(dir, "final.gguf", omm_bytes_str(other));
}

/* The last broadcast and its master too. */
static void whole_adapter(const char *dir) {
    copy_from(dir, "adapters/r003.bin", s_kit.dir, "adapters/r000.bin");
    copy_from(dir, "adapters/master-r003.f32", s_kit.dir, "adapters/master-r000.f32");
}

static void master(const char *dir) {
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, dir, "adapters/master-r001.f32");
    bytes.data[20] ^= 1;
    kit_write(dir, "adapters/master-r001.f32", omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
}

static void broadcast(const char *dir) {
    copy_from(dir, "adapters/r000.bin", s_kit.dir, "adapters/r003.bin");
}

/* Open an envelope and sign its payload with another key. */
static void sign_again(const char *dir, const char *path, omm_context context, const omm_key *key) {
    omm_buf bytes;
    omm_buf out;
    omm_envelope env;
    omm_buf_init(&bytes, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&bytes, dir, path);
    CHECK_OK(omm_envelope_open(&env, omm_buf_view(&bytes)));
    CHECK_OK(omm_envelope_seal(&out, context, env.payload, key));
    kit_write(dir, path, omm_buf_view(&out));
    omm_buf_fini(&out);
    omm_buf_fini(&bytes);
}

/* Put the digest of the forged file into its line of rounds.jsonl, so that only the signer is wrong. */
static void fix_digest(const char *dir, const char *path, const char *old_dir) {
    char from[OMM_DIGEST_HEX_SIZE];
    char to[OMM_DIGEST_HEX_SIZE];
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, old_dir, path);
    omm_digest d = omm_hash(omm_buf_view(&bytes));
    omm_digest_hex(from, &d);
    omm_buf_clear(&bytes);
    kit_read(&bytes, dir, path);
    d = omm_hash(omm_buf_view(&bytes));
    omm_digest_hex(to, &d);
    kit_edit(dir, "rounds.jsonl", NULL, from, to);
    omm_buf_fini(&bytes);
}

static void receipt(const char *dir) {
    omm_bundle_path path = omm_bundle_path_receipt(2, &s_kit.ids[0]);
    sign_again(dir, path.text, OMM_CONTEXT_RECEIPT, &s_kit.stranger);
    fix_digest(dir, path.text, s_kit.dir);
}

static void receipt_file(const char *dir) {
    sign_again(dir, omm_bundle_path_receipt(0, &s_kit.ids[1]).text, OMM_CONTEXT_RECEIPT,
               &s_kit.stranger);
}

static void refused_receipt(const char *dir) {
    omm_bundle_path path = omm_bundle_path_refused_receipt(2, 0);
    sign_again(dir, path.text, OMM_CONTEXT_RECEIPT, &s_kit.stranger);
    fix_digest(dir, path.text, s_kit.dir);
}

static void signed_by_other(const char *dir) {
    sign_again(dir, submission(2, 0).text, OMM_CONTEXT_SUBMISSION, &s_kit.stranger);
    fix_digest(dir, submission(2, 0).text, s_kit.dir);
}

static void wrong_context(const char *dir) {
    sign_again(dir, submission(2, 0).text, OMM_CONTEXT_RECEIPT, &s_kit.nodes[0]);
    fix_digest(dir, submission(2, 0).text, s_kit.dir);
}

static void offer(const char *dir) {
    sign_again(dir, "offers/r001.env", OMM_CONTEXT_OFFER, &s_kit.stranger);
    fix_digest(dir, "offers/r001.env", s_kit.dir);
}

static void close_file(const char *dir) {
    sign_again(dir, "close.env", OMM_CONTEXT_CLOSE, &s_kit.stranger);
}

static void eval_after(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"nll\":10.5", "\"nll\":1.5");
}

static void eval_before(const char *dir) {
    kit_edit(dir, "eval/before.jsonl", NULL, "\"nll\":30.5", "\"nll\":90.5");
}

static void eval_item(const char *dir) {
    kit_edit(dir, "eval/before.jsonl", NULL, "\"tokens\":10", "\"tokens\":99");
}

static void control(const char *dir) {
    kit_delete(dir, "eval/control.jsonl");
}

static void states(const char *dir) {
    kit_edit(dir, "eval/rounds.jsonl", NULL, "\"loss\":2.75", "\"loss\":2.5");
}

static void ledger(const char *dir) {
    kit_edit(dir, "ledger.jsonl", NULL, "\"up\":", "\"up\":1");
}

static void refusal(const char *dir) {
    kit_delete(dir, "refused/r000-0-REFUSED_FORMAT.bin");
}

/* Its line too: nothing but the next offer knew of it. */
static void refusal_and_line(const char *dir) {
    char entry[1024];
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    refusal(dir);
    kit_read(&text, dir, "rounds.jsonl");
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *from = strstr((char *)text.data, "\"refused\":[{");
    char *to = from ? strstr(from, "]") : NULL;
    CHECK(to != NULL);
    if (to) {
        snprintf(entry, sizeof entry, "%.*s", (int)(to - from + 1), from);
        kit_edit(dir, "rounds.jsonl", NULL, entry, "\"refused\":[]");
    }
    omm_buf_fini(&text);
}

static void published(const char *dir) {
    kit_edit(dir, "rounds.jsonl", NULL, "\"published\":true", "\"published\":false");
}

static void payload(const char *dir) {
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, dir, submission(0, 0).text);
    omm_bundle_path path;
    omm_envelope env;
    omm_submission s;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_envelope_open(&env, omm_buf_view(&bytes)));
    CHECK_OK(omm_submission_decode(&s, env.payload, &arena));
    path = omm_bundle_path_payload(&s.payload.digest);
    omm_buf_clear(&bytes);
    kit_read(&bytes, dir, path.text);
    bytes.data[bytes.size - 1] ^= 1;
    kit_write(dir, path.text, omm_buf_view(&bytes));
    omm_arena_fini(&arena);
    omm_buf_fini(&bytes);
}

static void unnamed(const char *dir) {
    omm_digest other = omm_hash(omm_bytes_str("nobody"));
    copy_from(dir, omm_bundle_path_submission(0, &other).text, s_kit.dir, submission(0, 0).text);
}

static const forgery s_forgeries[] = {
    {"a stranger's key", nothing, "signature", "manifest.json.minisig", true, true},
    {"a verdict edited", verdict, "verdicts", "gates.json", false, false},
    {"a measured verdict edited", measured_verdict, "verdicts", "measured/gates.json", false,
     false},
    {"a verdict edited in what is shown of it", junit, "verdicts", "junit.xml", false, false},
    {"the policy edited", policy, "close", "close.env", true, false},
    {"the policy edited, and the end signed again", policy_and_close, "offers", "offers/r000.env",
     true, false},
    {"other held-out data named, and the end signed again", test_and_close, "offers",
     "offers/r000.env", true, false},
    {"another size of the base named, and the end signed again", base_and_close, "offers",
     "offers/r000.env", true, false},
    {"the scenario edited", scenario, "run", "scenario.yaml", true, false},
    {"a submission's files dropped", submission_files, "submissions", "submissions/", true, false},
    {"a submission of the last round dropped, all recomputed", last_submission, "close",
     "rounds.jsonl", true, false},
    {"a weight changed", weight, "submissions", "submissions/", true, false},
    {"a weight sum of the last round changed", last_weight, "aggregation", "rounds.jsonl", true,
     false},
    {"two rounds swapped", swap, "run", "rounds.jsonl", true, false},
    {"two rounds swapped with their offers", swap_all, "offers", "offers/r001.env", true, false},
    {"the final adapter replaced", adapter, "adapter", "final.gguf", true, false},
    {"the last state replaced", whole_adapter, "aggregation", "adapters/master-r003.f32", true,
     false},
    {"one value of a master changed", master, "aggregation", "adapters/master-r001.f32", true,
     false},
    {"a broadcast replaced", broadcast, "broadcast", "adapters/r000.bin", true, false},
    {"a receipt forged", receipt, "receipts", "receipts/", true, false},
    {"a receipt's file forged", receipt_file, "receipts", "receipts/", true, false},
    {"the receipt of a refusal forged", refused_receipt, "refusals", "refused/r002-0.receipt.env",
     true, false},
    {"a submission signed by a stranger", signed_by_other, "submissions", "submissions/", true,
     false},
    {"a submission signed for another purpose", wrong_context, "submissions", "submissions/", true,
     false},
    {"an offer signed by a stranger", offer, "offers", "offers/r001.env", true, false},
    {"the close signed by a stranger", close_file, "close", "close.env", true, false},
    {"a row after edited, judged again", eval_after, "close", "close.env", true, false},
    {"a row before edited, judged again", eval_before, "close", "close.env", true, false},
    {"another item before", eval_item, "eval", "eval/before.jsonl", true, false},
    {"the control taken away", control, "close", "close.env", true, false},
    {"a round's loss edited", states, "eval", "eval/rounds.jsonl", true, false},
    {"the ledger edited", ledger, "ledger", "ledger.jsonl", true, false},
    {"a refusal dropped", refusal, "refusals", "refused/r000-0-REFUSED_FORMAT.bin", true, false},
    {"a refusal dropped with its line", refusal_and_line, "offers", "offers/r001.env", true, false},
    {"a round said to be held back", published, "eval", "rounds.jsonl", true, false},
    {"a payload changed", payload, "payloads", "payloads/", true, false},
    {"a file that no record names", unnamed, "complete", "submissions/", true, false},
};

static bool names_like(const omm_verify_report *r, const char *check, const char *prefix) {
    for (size_t i = 0; i < r->failure_count; i++)
        if (strcmp(r->failures[i].check, check) == 0 &&
            strncmp(r->failures[i].path, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

static void try_forgery(const forgery *f) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    kit_copy(dir, s_kit.dir);
    f->change(dir);
    kit_reseal(dir, f->stranger ? &s_kit.stranger : &s_kit.bundle, f->judge);
    kit_verify(&r, dir, &s_kit.bundle.public_key);
    /* What a stranger has sealed is not even hashed. */
    bool sealed_well =
        r.checks[0].passed && r.checks[2].passed == !f->stranger && r.pinned == !f->stranger;
    fprintf(stderr, "%s:", f->name);
    for (size_t i = 0; i < r.check_count; i++)
        if (!r.checks[i].passed) fprintf(stderr, " %s", r.checks[i].name);
    fprintf(stderr, "\n");
    if (r.passed || r.intact || !sealed_well || !names_like(&r, f->check, f->path)) {
        kit_print(&r);
        exit(1);
    }
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

/* --- what a simulation says of itself --- */

static void not_simulated(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"simulated\":true", "\"simulated\":false");
}

static void no_seed(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"seed\":1", "\"seed\":null");
}

static void service(const char *dir) {
    not_simulated(dir);
    no_seed(dir);
}

static void coordinator_key(const char *dir) {
    char from[2 * sizeof s_kit.coordinator.public_key.b + 1], to[sizeof from];
    omm_hex(from, omm_bytes_of(s_kit.coordinator.public_key.b, 32));
    omm_hex(to, omm_bytes_of(s_kit.stranger.public_key.b, 32));
    kit_edit(dir, "run.json", NULL, from, to);
}

static void node_name(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"name\":\"home-02\"", "\"name\":\"home-01\"");
}

static void no_data(const char *dir) {
    static const char key[] = "\"data_digest\":";
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, dir, "run.json");
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *at = strstr((const char *)text.data, key);
    char was[sizeof key + 66] = "";
    CHECK(at != NULL);
    if (at) memcpy(was, at, sizeof was - 1);
    kit_edit(dir, "run.json", NULL, was, "\"data_digest\":null");
    omm_buf_fini(&text);
}

static void round_items(const char *dir) {
    kit_edit(dir, "rounds.jsonl", NULL, "\"items\":4", "\"items\":5");
}

static void first_items(const char *dir) {
    kit_edit(dir, "eval/rounds.jsonl", NULL, "\"items\":4", "\"items\":5");
}

static void not_generated(const char *dir) {
    kit_edit(dir, "eval/control.jsonl", NULL, "\"generated\":false", "\"generated\":true");
}

static void no_control(const char *dir) {
    kit_edit(dir, "scenario.yaml", NULL, "uncompressed: true", "uncompressed: false");
}

static void another_scenario(const char *dir) {
    kit_edit(dir, "scenario.yaml", NULL, "rounds: 3", "rounds: 4");
}

static void policy_comment(const char *dir) {
    kit_edit(dir, "policy.yaml", NULL, "  jain_index:", "  # why\n  jain_index:");
}

static void policy_default(const char *dir) {
    kit_edit(dir, "policy.yaml", NULL, "  resamples: 1000\n", "");
    kit_edit(dir, "policy.yaml", NULL, "bootstrap:\n  seed: 1\n", "");
}

static void examples(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"examples\":11", "\"examples\":1000");
}

static void no_client(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"client\":\"home-01\"", "\"client\":\"\"");
}

static void skill(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"skill\":\"talk\"", "\"skill\":\"tell\"");
}

static void less_than_nothing(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"nll\":", "\"nll\":-");
}

static void right_unread(const char *dir) {
    kit_edit(dir, "eval/control.jsonl", NULL, "\"exact\":false", "\"exact\":true");
}

static void no_learned_tokens(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"tokens\":10", "\"tokens\":0");
}

static void call_in_text(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"parsed\":false", "\"parsed\":true");
}

static void not_parsed(const char *dir) {
    kit_edit(dir, "eval/after.jsonl", NULL, "\"parsed\":true", "\"parsed\":false");
}

static void not_its_tool(const char *dir) {
    kit_edit(dir, "eval/before.jsonl", "\n", "\"exact\":false", "\"exact\":true");
}

static void huge_alpha(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"alpha\":4.0", "\"alpha\":1e39");
}

static void no_value_max(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"value_max\":1.0", "\"value_max\":-1.0");
}

static void no_norm_max(const char *dir) {
    kit_edit(dir, "run.json", NULL, "\"norm_max\":3.0", "\"norm_max\":-3.0");
}

static void layout_gap(const char *dir) {
    kit_edit(dir, "run.json", "\"layout\"", "\"offset\":0", "\"offset\":1");
}

static void node_twice(const char *dir) {
    char from[OMM_DIGEST_HEX_SIZE], to[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(from, &s_kit.ids[1]);
    omm_digest_hex(to, &s_kit.ids[0]);
    kit_edit(dir, "run.json", NULL, from, to);
}

static void no_loss(const char *dir) {
    kit_edit(dir, "rounds.jsonl", NULL, "\"loss\":2.75", "\"loss\":-2.75");
}

static void no_state_loss(const char *dir) {
    kit_edit(dir, "eval/rounds.jsonl", NULL, "\"loss\":", "\"loss\":-");
}

static void no_ledger(const char *dir) {
    kit_delete(dir, "ledger.jsonl");
    close_again(dir);
}

static const struct lie {
    void (*change)(const char *dir);
    const char *check, *path, *says;
} s_lies[] = {
    {not_simulated, "run", "run.json", "seed is 1 and simulated false"},
    {no_seed, "run", "run.json", "simulated is true and seed null"},
    {service, "run", "run.json", "coordinator_key follows from scenario.yaml's seed"},
    {coordinator_key, "run", "run.json", "coordinator_key does not follow from the seed"},
    {node_name, "run", "run.json", "node home-01: its key does not follow from seed and name"},
    {no_data, "run", "run.json", "no data_digest, and a simulation has its data"},
    {round_items, "run", "rounds.jsonl", "round 0 was evaluated on 5 items"},
    {first_items, "eval", "eval/rounds.jsonl", "line 1 is of 5 items"},
    {not_generated, "eval", "eval/control.jsonl", "line 1 has a reply"},
    {no_control, "eval", "eval/control.jsonl", "scenario.yaml asks for no control"},
    {control, "eval", "eval/control.jsonl", "scenario.yaml asks for a control"},
    {another_scenario, "run", "scenario.yaml", "is not the kit's"},
    {service, "run", "run.json", "node home-01: client, data_digest or examples, of a service"},
    {examples, "submissions", "submissions/r000", "examples is not what"},
    {no_client, "run", "run.json", "node home-01: data_digest or examples, without a client"},
    {skill, "eval", "eval/before.jsonl", "line 1 is of another item than in eval/after.jsonl"},
    {less_than_nothing, "eval", "eval/after.jsonl", "nll is below 0"},
    {right_unread, "eval", "eval/control.jsonl", "not generated, and yet a reply"},
    {no_learned_tokens, "eval", "eval/after.jsonl", "tokens is 0"},
    {call_in_text, "eval", "eval/after.jsonl", "a text has parsed or tool_ok"},
    {not_parsed, "eval", "eval/after.jsonl", "tool_ok without parsed"},
    {not_its_tool, "eval", "eval/before.jsonl", "exact without tool_ok"},
    {no_loss, "run", "rounds.jsonl", "loss is below 0"},
    {no_ledger, "ledger", "ledger.jsonl", "the file is missing"},
    {no_state_loss, "eval", "eval/rounds.jsonl", "loss is below 0"},
    {policy_comment, "verdicts", "policy.yaml", "is not as the effective form has it"},
    {policy_default, "verdicts", "policy.yaml", "is not as the effective form has it"},
};

static void test_lies(void) {
    for (size_t i = 0; i < sizeof s_lies / sizeof *s_lies; i++) {
        char dir[OMM_PATH_MAX];
        omm_verify_report r;
        kit_copy(dir, s_kit.dir);
        s_lies[i].change(dir);
        kit_reseal(dir, &s_kit.bundle, true);
        kit_verify(&r, dir, &s_kit.bundle.public_key);
        kit_said(&r, s_lies[i].check, s_lies[i].path, s_lies[i].says);
        omm_verify_report_fini(&r);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* What is no run.json at all: such a bundle is not sealed. */
static void test_no_run(void) {
    static const struct {
        void (*change)(const char *dir);
        const char *says;
    } cases[] = {{huge_alpha, "alpha is out of range"},
                 {no_value_max, "value_max or norm_max is out of range"},
                 {no_norm_max, "value_max or norm_max is out of range"},
                 {layout_gap, "adapter layout is not valid"},
                 {node_twice, "nodes are not ascending"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[OMM_PATH_MAX];
        omm_run_record run;
        omm_buf text;
        omm_arena arena;
        omm_buf_init(&text, BUF_MAX);
        omm_arena_init(&arena, BUF_MAX);
        kit_copy(dir, s_kit.dir);
        cases[i].change(dir);
        kit_read(&text, dir, "run.json");
        CHECK_ERR(omm_run_record_parse(&run, &arena, omm_buf_view(&text)), OMM_ERR_FORMAT);
        CHECK(strstr(omm_err_sentence(), cases[i].says) != NULL);
        omm_arena_fini(&arena);
        omm_buf_fini(&text);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* Nobody says which key is to be trusted; but a simulation's is known. */
static void test_bundle_key(void) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    kit_copy(dir, s_kit.dir);
    kit_reseal(dir, &s_kit.stranger, true);
    kit_verify(&r, dir, NULL);
    kit_said(&r, "run", "manifest.json", "bundle_key does not follow from the seed");
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

/* Without a reader nothing of the scenario is known; with one it is an evidence fault for the gates, too. */
static void test_readers(void) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_judgement j;
    omm_verify_options options = {.render = kit_render};
    kit_copy(dir, s_kit.dir);
    another_scenario(dir);
    kit_reseal(dir, &s_kit.bundle, true);
    CHECK_OK(omm_bundle_verify(&r, dir, &options));
    for (size_t i = 0; i < r.failure_count; i++)
        CHECK(strstr(r.failures[i].reason, "kit's") == NULL);
    omm_verify_report_fini(&r);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(omm_bundle_judge(&j, dir, NULL, NULL, i ? kit_read_scenario : NULL));
        for (size_t k = 0; k < j.evidence.count; k++)
            if (strcmp(j.evidence.items[k].metric, "evidence_faults") == 0)
                CHECK_EQ(j.evidence.items[k].value,
                         2 + i); /* what was agreed, the end; the run's id */
        omm_judgement_fini(&j);
    }
    CHECK_OK(omm_dir_remove(dir));
}

/* What verify says of ledger.jsonl where the end of it is this, instead of or behind its last line. */
static void check_ledger(bool drops_last, const char *more, uint64_t samples, size_t failures,
                         const char *said) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_buf text;
    size_t found = 0;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    kit_read(&text, dir, "ledger.jsonl");
    if (drops_last) text.size--;
    while (drops_last && text.data[text.size - 1] != '\n') text.size--;
    CHECK_OK(omm_buf_printf(&text, "%s", more));
    kit_write(dir, "ledger.jsonl", omm_buf_view(&text));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_verify(&r, dir, NULL);
    for (size_t i = 0; i < r.failure_count; i++) {
        if (strcmp(r.failures[i].check, "ledger") != 0) continue;
        found++;
        CHECK(strcmp(r.failures[i].path, "ledger.jsonl") == 0);
        if (!strstr(r.failures[i].reason, said)) fprintf(stderr, "%s\n", r.failures[i].reason);
        CHECK(strstr(r.failures[i].reason, said) != NULL);
    }
    CHECK_EQ(found, failures);
    /* Of a ledger with a bad line nothing is judged, not even the lines before it. */
    for (size_t i = 0; i < r.judgement.evidence.count; i++)
        if (strcmp(r.judgement.evidence.items[i].family, "communication") == 0)
            CHECK_EQ(r.judgement.evidence.items[i].samples, samples);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
    omm_buf_fini(&text);
}

static void test_ledgers(void) {
    char hex[OMM_DIGEST_HEX_SIZE], line[256];
    omm_digest_hex(hex, &s_kit.ids[1]);
    (void)snprintf(line, sizeof line,
                   "{\"down\":1,\"fp32\":112,\"node\":\"%s\",\"round\":2,\"up\":1}\n", hex);
    check_ledger(false, "", 6, 0, "");
    check_ledger(true, "", 5, 1, "5 lines for 6 accepted submissions");
    check_ledger(false, line, 7, 1, "7 lines for 6 accepted submissions");
    check_ledger(true, line, 6, 1, "line 6 is not what the sizes of its messages give (up ");
    line[1] = ' ';
    check_ledger(true, line, 0, 1, "line 6: a line of ledger.jsonl");
}

/* Another comment, signed as ours is. */
static void test_comment(void) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_buf text, sig;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&sig, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    kit_read(&text, dir, "manifest.json");
    CHECK_OK(omm_minisign_sign(&sig, &s_kit.bundle, omm_buf_view(&text),
                               "openmeshmind bundle of run 00"));
    kit_write(dir, "manifest.json.minisig", omm_buf_view(&sig));
    kit_verify(&r, dir, &s_kit.bundle.public_key);
    kit_said(&r, "signature", "manifest.json.minisig", "its trusted comment does not name the run");
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
    omm_buf_fini(&sig);
    omm_buf_fini(&text);
}

static void other_data(omm_submission *s) {
    s->data_commitment.b[0] ^= 1;
}

static void fewer_steps(omm_submission *s) {
    s->steps = 1;
    s->step_digests.size = 8;
}

/* Of which nothing can be trained again step by step. */
static void fewer_digests(omm_submission *s) {
    s->step_digests.size = 8;
}

/* Runs of a coordinator or of nodes that go their own ways, signed and sealed as they are. */
static const struct own_way {
    kit_options options;
    const char *check, *path, *says;
} s_runs[] = {
    {{.void_last = true},
     "run",
     "rounds.jsonl",
     "round 2 is void, with 2 accepted, and scenario.yaml says accept_min: 2"},
    {{.bad_residual = true}, "submissions", "submissions/r001", "residual_before is neither"},
    {{.bad_residual = true}, "submissions", "submissions/r002", "residual_before is neither"},
    {{.other_canonical = true},
     "broadcast",
     "offers/r002.env",
     "global.canonical_digest is not that of the"},
    {{.claim = other_data}, "submissions", "submissions/r002", "data_commitment (of data_digest)"},
    {{.claim = fewer_steps}, "submissions", "submissions/r002", "steps is not what"},
    {{.claim = fewer_digests}, "submissions", "submissions/r002", "step_digests (one a step)"},
    {{.change_run = kit_as_service, .joined = true},
     "eval",
     "eval/control.jsonl",
     "is there, and only a simulation has a control"},
    {{.change_run = kit_as_service, .joined = true},
     "verdicts",
     "measured/repro.json",
     "is there, and a service, which has no node's data, trains nothing again"},
    {{.small_payloads = true}, "offers", "offers/r002", "payload_bytes_max is not what run.json"},
    /* Losses of a part of the rows need no model to be checked. */
    {{.other_start = true},
     "eval",
     "eval/rounds.jsonl",
     "the first state has a loss of 3, and its rows in eval/before.jsonl"},
    {{.other_end = true}, "eval", "eval/rounds.jsonl", "the last state has a loss of 2.75, and"},
    {{.no_feedback = true},
     "submissions",
     "submissions/r000",
     "residual_after is not that of zeros"},
};

/* What an honest coordinator may do, and what a node may not. */
static void test_other_runs(void) {
    kit k;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.hold_back = true});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    if (!r.intact) kit_print(&r);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    kit_remove(&k);
    for (size_t i = 0; i < sizeof s_runs / sizeof *s_runs; i++) {
        kit_make(&k, &s_runs[i].options);
        kit_verify(&r, k.dir, &k.bundle.public_key);
        kit_said(&r, s_runs[i].check, s_runs[i].path, s_runs[i].says);
        omm_verify_report_fini(&r);
        kit_remove(&k);
    }
}

int main(void) {
    kit_make(&s_kit, &(kit_options){0});
    kit_make(&s_short, &(kit_options){.drop_last = true});
    /* The shorter run is a good one, with its own close, but for a scenario that asks for two in each round. */
    omm_verify_report r;
    const omm_verify_options unread = {.render = kit_render};
    CHECK_OK(omm_bundle_verify(&r, s_short.dir, &unread));
    if (!r.intact) kit_print(&r);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    for (size_t i = 0; i < sizeof s_forgeries / sizeof *s_forgeries; i++)
        try_forgery(&s_forgeries[i]);
    test_comment();
    test_ledgers();
    test_lies();
    test_no_run();
    test_bundle_key();
    test_readers();
    test_other_runs();
    kit_remove(&s_short);
    kit_remove(&s_kit);
    return 0;
}
