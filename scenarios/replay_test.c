/* Goal: a replay gives the signed bytes, on another number of threads; what differs is named.
 * Method: simulate a small scenario, then act as a node that signs something else: another digest of
 * one step, or a payload with one value changed.
 */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char s_dir[64], s_bundle[OMM_PATH_MAX + 16], s_base[OMM_PATH_MAX];

/* Of each client of the scenario up to `most` lines: a folder of its own, and quick to read. */
static void write_few(const char *name, size_t most) {
    static const char *const clients[] = {"\"cafe-02\"", "\"studio-02\"", "\"harbor-02\""};
    size_t taken[3] = {0, 0, 0};
    char path[OMM_PATH_MAX + 64];
    omm_buf text, few;
    omm_buf_init(&text, 64u << 20);
    omm_buf_init(&few, 64u << 20);
    snprintf(path, sizeof path, "%s/base/%s", s_base, name);
    CHECK_OK(omm_file_read(&text, path));
    const uint8_t *from = text.data, *end = text.data + text.size;
    while (from < end) {
        const size_t size =
            (size_t)((const uint8_t *)memchr(from, '\n', (size_t)(end - from)) + 1 - from);
        for (size_t i = 0; i < 3; i++)
            if (memmem(from, size, clients[i], strlen(clients[i])) && taken[i]++ < most)
                CHECK_OK(omm_buf_append(&few, from, size));
        from += size;
    }
    snprintf(path, sizeof path, "%s/base/%s", s_dir, name);
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&few), 0644));
    omm_buf_fini(&text);
    omm_buf_fini(&few);
}

/* The scenario, its model and as much of its data as it needs, in s_dir, which s_base is from then on. */
static void write_base(void) {
    static const char model[] = "openmeshmind-tiny-F16.gguf";
    char from[OMM_PATH_MAX + 64], to[OMM_PATH_MAX];
    omm_buf text;
    omm_buf_init(&text, 1u << 16);
    snprintf(to, sizeof to, "%s/base", s_dir);
    CHECK_OK(omm_dir_make(to));
    snprintf(from, sizeof from, "%s/base/%s", s_base, model);
    snprintf(to, sizeof to, "%s/base/%s", s_dir, model);
    CHECK_EQ(symlink(from, to), 0);
    write_few("train.jsonl", SIZE_MAX);
    write_few("test.jsonl", 1);
    snprintf(from, sizeof from, "%s/processes.yaml", s_base);
    snprintf(to, sizeof to, "%s/processes.yaml", s_dir);
    CHECK_OK(omm_file_read(&text, from));
    CHECK_OK(omm_buf_printf(&text, "policy: mine.yaml\n"));
    CHECK_OK(omm_file_write_fast(to, omm_buf_view(&text), 0644));
    omm_buf_fini(&text);
    snprintf(to, sizeof to, "%s/mine.yaml", s_dir);
    CHECK_OK(omm_file_write_fast(to, omm_bytes_str("bootstrap: {resamples: 2000}\n"), 0644));
    snprintf(s_base, sizeof s_base, "%s", s_dir);
}

/* What a progress bar is told: nothing goes back, no phase is without work, and the end is the end. */
typedef struct told {
    double done, total, trained, judged, audited;
} told;

static void on_progress(void *ud, const omm_simulate_progress *p) {
    told *t = ud;
    const double more = p->done - t->done;
    CHECK(more >= 0.0 && p->done <= p->total * (1.0 + 1e-9));
    if (strcmp(p->phase, "train") == 0) t->trained += more;
    if (strncmp(p->phase, "evaluate", 8) == 0) t->judged += more;
    if (strncmp(p->phase, "audit", 5) == 0) {
        if (t->audited > 0.0) CHECK(p->total == t->total); /* by then it is exact */
        t->audited += more;
    }
    t->done = p->done;
    t->total = p->total;
}

/* Means of clients are those that gates take: their difference is the uplift. */
static void check_losses(const omm_simulate_result *r) {
    double before = 0.0, after = 0.0;
    for (size_t i = 0; i < r->client_count; i++) {
        before += r->clients[i].before.item_loss;
        after += r->clients[i].after.item_loss;
    }
    const double count = (double)r->client_count;
    CHECK(fabs(before / count - r->client_loss_before) < 1e-12);
    CHECK(fabs(after / count - r->client_loss_after) < 1e-12);
    const omm_verdicts *v = &r->judgement.evidence;
    size_t at = 0;
    while (at < v->count && v->items[at].id != OMM_METRIC_UPLIFT) at++;
    CHECK(at < v->count);
    CHECK(fabs(v->items[at].value - (r->client_loss_before - r->client_loss_after)) < 1e-9);
}

/* What a run is judged by is in its bundle, the bound too, although the policy's file leaves it open; a bundle of before says none. */
static void check_policy(void) {
    omm_buf text;
    omm_buf_init(&text, 1u << 16);
    CHECK_OK(omm_bundle_file_read(&text, s_bundle, "policy.yaml"));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "  resamples: 2000\n  bound: \"percentile_and_t\"\n") !=
          NULL);
    omm_buf_fini(&text);
}

static void simulate(void) {
    char scenario[OMM_PATH_MAX + 32];
    told t = {0};
    write_base();
    snprintf(scenario, sizeof scenario, "%s/processes.yaml", s_base);
    omm_simulate_options options = {.scenario = scenario,
                                    .out = s_bundle,
                                    .threads = 2,
                                    .clock = omm_clock_system(),
                                    .commit = "test",
                                    .build = "test",
                                    .progress = on_progress,
                                    .ud = &t};
    CHECK_OK(omm_isa_choose(&options.isa, NULL));
    omm_simulate_result result;
    CHECK_OK(omm_simulate(&result, &options));
    CHECK(t.trained > 0.0 && t.judged > 0.0 && t.audited > 0.0);
    CHECK(fabs(t.done - t.total) <= t.total * 1e-9);
    check_losses(&result);
    check_policy();
    omm_simulate_result_fini(&result);
    CHECK_ERR(omm_simulate(&result, &options), OMM_ERR_EXISTS); /* a bundle is written once */
    char wire[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(wire, s_bundle, "measured/wire.json"));
    CHECK(omm_file_exists(wire));
}

static void open_compute(omm_pool **pool, omm_compute *compute) {
    omm_isa isa;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_pool_open(pool, 3));
    CHECK_OK(omm_compute_init(compute, *pool, isa));
}

static bool s_is_bad; /* the error was one of the bundle */

static omm_err replay(omm_replay_result *result, const char *node, uint32_t round, uint32_t steps) {
    omm_pool *pool = NULL;
    omm_compute compute;
    open_compute(&pool, &compute);
    omm_replay_options options = {.bundle = s_bundle,
                                  .base_dir = s_base,
                                  .node = node,
                                  .round = round,
                                  .steps_max = steps,
                                  .compute = &compute,
                                  .is_bad = &s_is_bad};
    s_is_bad = false;
    omm_err err = omm_replay(result, &options);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return err;
}

/* The policy of a run that goes on, as agreed in the bundle that lies in s_dir/`bundle`: what of it speaks of the bound. */
static const char *bound_gone_on_with(const char *bundle) {
    static char said[64];
    char scenario[OMM_PATH_MAX + 32], begun[OMM_PATH_MAX + 64];
    omm_pool *pool = NULL;
    omm_compute compute;
    sim_setup setup;
    open_compute(&pool, &compute);
    snprintf(scenario, sizeof scenario, "%s/processes.yaml", s_base);
    snprintf(begun, sizeof begun, "%s/%s", s_dir, bundle);
    const sim_setup_options options = {
        .scenario = scenario, .compute = &compute, .has_begun = true, .begun = begun};
    CHECK_OK(sim_setup_open(&setup, &options));
    CHECK_OK(omm_buf_append(&setup.policy_yaml, "", 1));
    const char *at = strstr((const char *)setup.policy_yaml.data, "  resamples: 2000\n");
    CHECK(at != NULL);
    snprintf(said, sizeof said, "%.60s", at + strlen("  resamples: 2000\n"));
    sim_setup_close(&setup);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return said;
}

/* A run that began when no policy had a bound ends by the policy it began with, after the program was renewed; others are as they were. */
static void test_goes_on_with_its_policy(void) {
    static const char line[] = "  bound: \"percentile_and_t\"\n";
    char before[OMM_PATH_MAX + 64];
    omm_buf text;
    omm_buf_init(&text, 1u << 16);
    CHECK_OK(omm_bundle_file_read(&text, s_bundle, "policy.yaml"));
    CHECK(text.size > strlen(line) &&
          memcmp(text.data + text.size - strlen(line), line, strlen(line)) == 0);
    snprintf(before, sizeof before, "%s/before", s_dir);
    CHECK_OK(omm_dir_make(before));
    CHECK(strcmp(bound_gone_on_with("before"), line) == 0); /* nothing lies there yet */
    snprintf(before, sizeof before, "%s/before/policy.yaml", s_dir);
    CHECK_OK(omm_file_write_fast(before, omm_bytes_of(text.data, text.size - strlen(line)), 0644));
    CHECK(strcmp(bound_gone_on_with("before"), "") == 0);
    CHECK(strcmp(bound_gone_on_with("bundle"), line) == 0);
    omm_buf_fini(&text);
}

static void test_identical(void) {
    omm_replay_result result;
    CHECK_OK(replay(&result, "cafe-02", 1, 0));
    CHECK(result.equal && result.claim[0] == 0);
    CHECK_EQ(result.rounds_trained, 2); /* the residual goes back to round 0 */
    CHECK(omm_digest_equal(&result.expected, &result.repeated));
    CHECK_OK(replay(&result, "cafe-02", 1, 1));
    CHECK(result.equal);
    CHECK_EQ(result.steps_compared, 1);
    CHECK_ERR(replay(&result, "nobody", 0, 0), OMM_ERR_NOT_FOUND);
    CHECK_ERR(replay(&result, "cafe-02", 9, 0), OMM_ERR_NOT_FOUND);
}

/* --- held-out items ----------------------------------------------------------------------------- */

static omm_err judge_again(omm_reevaluate_result *result) {
    omm_pool *pool = NULL;
    omm_compute compute;
    open_compute(&pool, &compute);
    const omm_replay_options options = {
        .bundle = s_bundle, .base_dir = s_base, .compute = &compute, .is_bad = &s_is_bad};
    s_is_bad = false;
    const omm_err err = omm_reevaluate(result, &options);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return err;
}

typedef struct held_out {
    const char *file;
    void (*change)(omm_eval_record *row); /* the last one; NULL: it is taken away */
    const char *what;
} held_out;

static void other_nll(omm_eval_record *row) {
    row->nll += 1;
}

static void has_reply(omm_eval_record *row) {
    row->generated = true;
    row->reply = "well";
}

static void put_file(const char *file, omm_bytes text) {
    char path[OMM_PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s", s_bundle, file);
    CHECK_OK(omm_file_write_fast(path, text, 0644));
}

static void get_file(omm_buf *out, const char *file) {
    char path[OMM_PATH_MAX * 2];
    omm_buf_init(out, 1u << 22);
    snprintf(path, sizeof path, "%s/%s", s_bundle, file);
    CHECK_OK(omm_file_read(out, path));
}

/* The first difference is named, and where it is. */
static void names_row(const held_out *h) {
    omm_reevaluate_result r;
    omm_bytes *lines = NULL;
    omm_eval_record row;
    omm_arena arena;
    omm_buf was, is;
    size_t count = 0;
    omm_arena_init(&arena, 1u << 22);
    get_file(&was, h->file);
    omm_buf_init(&is, 1u << 22);
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_buf_view(&was), 10000));
    CHECK_OK(omm_eval_record_parse(&row, &arena, lines[count - 1]));
    CHECK_OK(omm_buf_append(&is, was.data, (size_t)(lines[count - 1].data - was.data)));
    if (h->change) h->change(&row);
    if (h->change) CHECK_OK(omm_eval_record_write(&is, &row));
    put_file(h->file, omm_buf_view(&is));
    CHECK_OK(judge_again(&r));
    put_file(h->file, omm_buf_view(&was));
    if (r.equal || strcmp(r.path, h->file) != 0 || strcmp(r.what, h->what) != 0 ||
        r.line != (h->change ? count : 0)) {
        fprintf(stderr, "%s, %s: %d, %s, line %zu, %s: %s, %s\n", h->file, h->what, r.equal, r.path,
                r.line, r.what, r.said, r.repeated);
        exit(1);
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&was);
    omm_buf_fini(&is);
}

/* What run.json says of model and held-out file is compared with those here. */
static void other_run(const char *from, const char *to, const char *what) {
    omm_reevaluate_result result;
    omm_buf was, is;
    get_file(&was, "run.json");
    CHECK_OK(omm_buf_append(&was, "", 1));
    omm_buf_init(&is, 1u << 22);
    const char *text = (const char *)was.data, *at = strstr(text, from);
    CHECK(at != NULL);
    if (at)
        CHECK_OK(omm_buf_printf(&is, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    put_file("run.json", omm_buf_view(&is));
    CHECK_OK(judge_again(&result));
    if (strcmp(result.what, what) != 0) fprintf(stderr, "%s: '%s'\n", what, result.what);
    CHECK(!result.equal && strcmp(result.what, what) == 0);
    CHECK(strcmp(result.path, "run.json") == 0 && strcmp(result.said, result.repeated) != 0);
    CHECK_EQ(result.rows, 0);
    put_file("run.json", omm_bytes_of(was.data, was.size - 1));
    omm_buf_fini(&was);
    omm_buf_fini(&is);
}

static void test_judged_again(void) {
    omm_reevaluate_result result;
    CHECK_OK(judge_again(&result));
    CHECK(result.equal && !result.has_control);
    CHECK(result.rows == 6 && result.states == 3 && result.states_left == 0);
    static const held_out changed[] = {{"eval/before.jsonl", other_nll, "nll"},
                                       {"eval/before.jsonl", has_reply, "reply"},
                                       {"eval/before.jsonl", NULL, "rows"},
                                       {"eval/after.jsonl", other_nll, "nll"}};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) names_row(&changed[i]);
    omm_buf was, is;
    get_file(&was, "eval/rounds.jsonl");
    omm_buf_init(&is, 1u << 16);
    for (size_t i = 0; i < 3; i++) /* of other losses */
        CHECK_OK(omm_state_record_write(
            &is, &(omm_state_record){.state = (uint32_t)i, .items = 3, .loss = 2}));
    put_file("eval/rounds.jsonl", omm_buf_view(&is));
    CHECK_OK(judge_again(&result));
    CHECK(!result.equal && result.line == 1 && strcmp(result.what, "loss") == 0);
    CHECK_EQ(strcmp(result.path, "eval/rounds.jsonl"), 0);
    omm_buf_clear(&is); /* of fewer items */
    CHECK_OK(omm_state_record_write(&is, &(omm_state_record){.items = 2, .loss = 2}));
    put_file("eval/rounds.jsonl", omm_buf_view(&is));
    CHECK_OK(judge_again(&result));
    CHECK(!result.equal && result.line == 1 && strcmp(result.what, "items") == 0);
    CHECK(strcmp(result.said, "2") == 0 && strcmp(result.repeated, "3") == 0);
    put_file("eval/rounds.jsonl", omm_buf_view(&was));
    omm_buf_fini(&was);
    omm_buf_fini(&is);
    other_run("\"items\":", "\"items\":1", "test.items");
    other_run("\"test\":{", "\"test\":{\"cut\":1,", "test.cut");
    other_run("\"items\":3", "\"items\":3,\"left_out\":1", "test.left_out");
    other_run("}],\"rank\"", "0}],\"rank\"", "adapter.layout"); /* ten times the rows */
    other_run("\"bytes\":", "\"bytes\":1", "base.bytes");
    other_run("\"architecture\":\"llama\"", "\"architecture\":\"llamb\"", "base.architecture");
    other_run("\"tokenizer_digest\":\"b", "\"tokenizer_digest\":\"c", "base.tokenizer_digest");
    /* What final.gguf names its base by: of this file, both. */
    other_run("\"title\":\"", "\"title\":\"Not ", "base.title");
    other_run("\"fingerprint\":\"1894", "\"fingerprint\":\"1895", "base.fingerprint");
}

/* Of other held-out items than the run's nothing is judged. */
static void test_other_held_out(void) {
    char path[OMM_PATH_MAX * 2];
    omm_reevaluate_result result;
    omm_buf text;
    omm_buf_init(&text, 1u << 22);
    snprintf(path, sizeof path, "%s/base/test.jsonl", s_base);
    CHECK_OK(omm_file_read(&text, path));
    CHECK_OK(omm_buf_append(&text, "\n", 1)); /* the same items, even */
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&text), 0644));
    CHECK_ERR(judge_again(&result), OMM_ERR_CONFIG);
    CHECK(!s_is_bad && strstr(omm_err_sentence(), "the held-out file here is not the run's"));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(text.data, text.size - 1), 0644));
    omm_buf_fini(&text);
}

/* --- a node that signs something else --------------------------------------------------------- */

typedef struct forge {
    omm_key key;
    omm_digest id;
    omm_buf file;
    omm_arena arena;
    omm_submission manifest;
    char path[OMM_PATH_MAX * 2];
} forge;

static void forge_open(forge *f, const char *node, uint32_t round) {
    omm_seed seed = omm_seed_from_u64(11); /* of processes.yaml */
    omm_run_node_key(&f->key, &seed, node);
    f->id = omm_key_id(&f->key.public_key);
    snprintf(f->path, sizeof f->path, "%s/%s", s_bundle,
             omm_bundle_path_submission(round, &f->id).text);
    omm_buf_init(&f->file, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&f->arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_file_read(&f->file, f->path));
    omm_envelope envelope;
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&f->file)));
    CHECK_OK(omm_submission_decode(&f->manifest, envelope.payload, &f->arena));
}

/* Put the file in its place, as the one that the round accepted. */
static void forge_write(const forge *f, omm_bytes file) {
    char rounds[OMM_PATH_MAX * 2], was[OMM_DIGEST_HEX_SIZE], is[OMM_DIGEST_HEX_SIZE];
    omm_buf before, text;
    omm_buf_init(&before, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&text, 1 << 20);
    snprintf(rounds, sizeof rounds, "%s/rounds.jsonl", s_bundle);
    CHECK_OK(omm_file_read(&before, f->path));
    CHECK_OK(omm_file_read(&text, rounds));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const omm_digest old = omm_hash(omm_buf_view(&before)), new = omm_hash(file);
    omm_digest_hex(was, &old);
    omm_digest_hex(is, &new);
    char *at = strstr((char *)text.data, was);
    CHECK(at != NULL);
    memcpy(at, is, strlen(is));
    CHECK_OK(omm_file_write_fast(rounds, omm_bytes_of(text.data, text.size - 1), 0644));
    CHECK_OK(omm_file_write_fast(f->path, file, 0644));
    omm_buf_fini(&before);
    omm_buf_fini(&text);
}

static void forge_sign(forge *f) {
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_submission_encode(&payload, &f->manifest));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload), &f->key));
    forge_write(f, omm_buf_view(&envelope));
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

/* Put the honest submission back. */
static void forge_close(forge *f) {
    forge_write(f, omm_buf_view(&f->file));
    omm_buf_fini(&f->file);
    omm_arena_fini(&f->arena);
}

static void test_names_the_step(void) {
    forge f;
    forge_open(&f, "studio-02", 0);
    CHECK_EQ(f.manifest.step_digests.size, 2 * OMM_STEP_DIGEST_BYTES);
    uint8_t digests[2 * OMM_STEP_DIGEST_BYTES];
    memcpy(digests, f.manifest.step_digests.data, sizeof digests);
    digests[OMM_STEP_DIGEST_BYTES] ^= 1;
    f.manifest.step_digests = omm_bytes_of(digests, sizeof digests);
    forge_sign(&f);
    omm_replay_result result;
    CHECK_OK(replay(&result, "studio-02", 0, 0));
    CHECK(!result.equal);
    CHECK_EQ(result.round, 0);
    CHECK_EQ(result.step, 2);
    CHECK(result.tensor[0] == 0); /* the payload is the honest one */
    CHECK_OK(replay(&result, "studio-02", 0, 1));
    CHECK(result.equal); /* the first step is */
    forge_close(&f);
}

/* What a node says of its work beside the payload: its weight in the mean is of that. */
static void claims(const char *claim, void (*lie)(omm_submission *manifest), const char *is) {
    forge f;
    omm_replay_result result;
    forge_open(&f, "studio-02", 0);
    lie(&f.manifest);
    forge_sign(&f);
    CHECK_OK(replay(&result, "studio-02", 0, 0));
    if (strcmp(result.claim, claim) != 0) fprintf(stderr, "%s: '%s'\n", claim, result.claim);
    CHECK(!result.equal && strcmp(result.claim, claim) == 0);
    CHECK_EQ(result.round, 0);
    CHECK(strcmp(result.claim_signed, result.claim_repeated) != 0);
    if (is) CHECK(strcmp(result.claim_repeated, is) == 0);
    CHECK(result.step == 0 && result.tensor[0] == 0); /* the work itself is the honest one */
    forge_close(&f);
}

static void more_weight(omm_submission *manifest) {
    manifest->tokens *= 2;
}

static void more_examples(omm_submission *manifest) {
    manifest->examples++;
}

static void other_start(omm_submission *manifest) {
    manifest->loss_before += 1;
}

static void other_end(omm_submission *manifest) {
    manifest->loss_after /= 2;
}

static void other_residual(omm_submission *manifest) {
    manifest->residual_after.b[31] ^= 1;
}

static void other_base(omm_submission *manifest) {
    manifest->base_digest.b[0] ^= 1;
}

static void other_global(omm_submission *manifest) {
    manifest->global_digest.b[0] ^= 1;
}

static void no_steps(omm_submission *manifest) {
    manifest->steps = 0;
    manifest->step_digests = omm_bytes_of(NULL, 0);
}

static void no_digests(omm_submission *manifest) {
    manifest->step_digests = omm_bytes_of(NULL, 0);
}

static void test_names_the_claim(void) {
    claims("tokens", more_weight, NULL);
    claims("examples", more_examples, NULL);
    claims("loss_before", other_start, NULL);
    claims("loss_after", other_end, NULL);
    claims("residual_after", other_residual, NULL);
    claims("base_digest", other_base, NULL);
    claims("global_digest", other_global, NULL);
    claims("steps", no_steps, "2");
    claims("step_digests", no_digests, "2");
    forge f; /* the first steps alone: where no digest is, nothing is identical */
    omm_replay_result result;
    forge_open(&f, "studio-02", 0);
    no_steps(&f.manifest);
    forge_sign(&f);
    CHECK_OK(replay(&result, "studio-02", 0, 1));
    CHECK(!result.equal && strcmp(result.claim, "steps") == 0);
    CHECK_EQ(result.steps_compared, 0);
    forge_close(&f);
}

/* Change one value of the payload, as the codec can say it, and sign that. */
static void change_value(forge *f, const sim_evidence *evidence, size_t at) {
    const omm_layout *layout = &evidence->run.layout;
    char path[OMM_PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s", s_bundle,
             omm_bundle_path_payload(&f->manifest.payload.digest).text);
    omm_buf sent;
    omm_buf_init(&sent, 64u << 20);
    CHECK_OK(omm_file_read(&sent, path));
    float *values = omm_alloc(layout->value_count, sizeof *values);
    CHECK(values != NULL);
    CHECK_OK(omm_codec_decode(values, NULL, &evidence->run.codec_up, layout, omm_buf_view(&sent)));
    values[at] = -values[at];
    omm_encoded info;
    omm_buf_clear(&sent);
    CHECK_OK(omm_codec_encode(&sent, &info, &evidence->run.codec_up, layout, values));
    CHECK_OK(omm_blob_describe(&f->manifest.payload, &f->arena, omm_buf_view(&sent),
                               &info.payload_digest));
    snprintf(path, sizeof path, "%s/%s", s_bundle,
             omm_bundle_path_payload(&f->manifest.payload.digest).text);
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&sent), 0644));
    omm_free(values);
    omm_buf_fini(&sent);
}

/* Index of a value that the payload really carries. */
static size_t find_value(const forge *f, const sim_evidence *evidence) {
    const omm_layout *layout = &evidence->run.layout;
    char path[OMM_PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s", s_bundle,
             omm_bundle_path_payload(&f->manifest.payload.digest).text);
    omm_buf sent;
    omm_buf_init(&sent, 64u << 20);
    CHECK_OK(omm_file_read(&sent, path));
    float *values = omm_alloc(layout->value_count, sizeof *values);
    CHECK(values != NULL);
    CHECK_OK(omm_codec_decode(values, NULL, &evidence->run.codec_up, layout, omm_buf_view(&sent)));
    size_t at = layout->value_count / 2;
    while (values[at] == 0) at++;
    omm_free(values);
    omm_buf_fini(&sent);
    return at;
}

static void test_names_tensor_and_element(void) {
    sim_evidence evidence;
    CHECK_OK(sim_evidence_open(&evidence, s_bundle));
    forge f;
    forge_open(&f, "harbor-02", 0);
    size_t at = find_value(&f, &evidence);
    change_value(&f, &evidence, at);
    forge_sign(&f);
    omm_replay_result result;
    CHECK_OK(replay(&result, "harbor-02", 0, 0));
    CHECK(!result.equal);
    CHECK_EQ(result.step, 0); /* trained as signed, then something else was sent */
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < evidence.run.layout.segment_count; i++) {
        const omm_segment *s = &evidence.run.layout.segments[i];
        if (strcmp(s->name, result.tensor) == 0)
            found = s->offset + (size_t)result.row * s->cols + result.column;
    }
    CHECK_EQ(found, at);
    CHECK(result.value_expected == -result.value_repeated);
    forge_close(&f);
    sim_evidence_close(&evidence);
}

/* What is wrong with a file is said of that file, and of which of its lines. */
static void test_names_the_file(void) {
    char path[OMM_PATH_MAX + 64];
    omm_buf whole;
    omm_replay_result result;
    snprintf(path, sizeof path, "%s/rounds.jsonl", s_bundle);
    omm_buf_init(&whole, 64u << 20);
    CHECK_OK(omm_file_read(&whole, path));
    const omm_bytes all = omm_buf_view(&whole);
    CHECK_OK(omm_file_write(path, omm_bytes_of(all.data, all.size - 1), 0644));
    CHECK_ERR(replay(&result, "cafe-02", 1, 0), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "rounds.jsonl: the last line has no newline") != NULL);
    const uint8_t *second = memchr(all.data, '\n', all.size);
    CHECK(second != NULL);
    whole.data[second + 1 - all.data] = '?';
    CHECK_OK(omm_file_write(path, all, 0644));
    CHECK_ERR(replay(&result, "cafe-02", 1, 0), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "rounds.jsonl: line 2: ") != NULL);
    whole.data[second + 1 - all.data] = '{';
    /* Cut at a line's end it has lines of all rounds but one, and that one is asked for, or the last state. */
    omm_reevaluate_result judged;
    CHECK_OK(omm_file_write(path, omm_bytes_of(all.data, (size_t)(second + 1 - all.data)), 0644));
    CHECK_ERR(replay(&result, "cafe-02", 1, 0), OMM_ERR_MISMATCH);
    CHECK(s_is_bad &&
          strstr(omm_err_sentence(), "rounds.jsonl: has 1 lines, and run.json says 2 rounds"));
    CHECK_ERR(judge_again(&judged), OMM_ERR_MISMATCH);
    CHECK(s_is_bad && strstr(omm_err_sentence(), "rounds.jsonl: has 1 lines"));
    CHECK_ERR(replay(&result, "cafe-02", 2, 0), OMM_ERR_NOT_FOUND); /* the run has none such */
    CHECK(!s_is_bad);
    CHECK_OK(omm_file_write(
        path, omm_bytes_of(second + 1, all.size - (size_t)(second + 1 - all.data)), 0644));
    CHECK_ERR(replay(&result, "cafe-02", 0, 0), OMM_ERR_FORMAT);
    CHECK(s_is_bad && strstr(omm_err_sentence(), "rounds.jsonl: line 1 is of round 1, not of 0"));
    CHECK_OK(omm_file_write(path, all, 0644));
    omm_buf_fini(&whole);
}

static void test_other_data_is_refused(void) {
    char copy[OMM_PATH_MAX + 64];
    char path[OMM_PATH_MAX + 128];
    char good_base[sizeof s_base];
    static const char *const files[] = {"openmeshmind-tiny-F16.gguf", "train.jsonl", "test.jsonl"};
    snprintf(copy, sizeof copy, "%s/data/base", s_dir);
    CHECK_OK(omm_dir_make(copy));
    for (size_t i = 0; i < 3; i++) {
        omm_buf body;
        omm_buf_init(&body, 64u << 20);
        snprintf(path, sizeof path, "%s/base/%s", s_base, files[i]);
        CHECK_OK(omm_file_read(&body, path));
        if (i == 1) { /* one letter of one message of a client that took part */
            char *at = memmem(body.data, body.size, "\"cafe-02\"", 9);
            CHECK(at != NULL);
            at = memmem(at, body.size - (size_t)((uint8_t *)at - body.data),
                        "\"assistant\", \"content\": \"", 25);
            CHECK(at != NULL);
            at[25] = at[25] == 'A' ? 'B' : 'A';
        }
        snprintf(path, sizeof path, "%s/%s", copy, files[i]);
        CHECK_OK(omm_file_write_fast(path, omm_buf_view(&body), 0644));
        omm_buf_fini(&body);
    }
    memcpy(good_base, s_base, sizeof s_base);
    snprintf(s_base, sizeof s_base, "%s/data", s_dir);
    omm_replay_result result;
    CHECK_ERR(replay(&result, "cafe-02", 0, 0), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "cafe-02") != NULL);
    memcpy(s_base, good_base, sizeof s_base);
}

/* The last member of a record by another name: that is missing, and the file is not. */
static void put_misnamed(const char *file, const omm_buf *was) {
    omm_buf is;
    size_t at = was->size - 1;
    omm_buf_init(&is, 1u << 22);
    CHECK_OK(omm_buf_append(&is, was->data, was->size));
    while (at > 0 && memcmp(was->data + at - 1, ",\"", 2) != 0) at--;
    CHECK(at > 0);
    is.data[at + 1] ^= 1;
    put_file(file, omm_buf_view(&is));
    omm_buf_fini(&is);
}

/* Without its last bytes, or not there at all: a file that is read is named, and it is the bundle's fault. */
static void fault(const char *file, bool judges) {
    omm_replay_result result;
    omm_reevaluate_result judged;
    char path[OMM_PATH_MAX * 2];
    omm_buf was;
    get_file(&was, file);
    snprintf(path, sizeof path, "%s/%s", s_bundle, file);
    const bool is_run = strcmp(file, "run.json") == 0 || strcmp(file, "rounds.jsonl") == 0;
    for (int i = 0; i < 2 + is_run; i++) {
        if (i == 0) put_file(file, omm_bytes_of(was.data, was.size - 1));
        if (i == 1) CHECK_EQ(unlink(path), 0);
        if (i == 2) put_misnamed(file, &was);
        const omm_err err = judges ? judge_again(&judged) : replay(&result, "cafe-02", 0, 0);
        CHECK(err != OMM_OK);
        CHECK(strstr(omm_err_sentence(), file) != NULL);
        CHECK_EQ(s_is_bad, i != 1 || !is_run); /* without these it is no bundle */
    }
    put_file(file, omm_buf_view(&was));
    omm_buf_fini(&was);
}

static void test_faults(void) {
    sim_evidence evidence;
    omm_replay_result result;
    CHECK_OK(sim_evidence_open(&evidence, s_bundle));
    const omm_digest id = evidence.rounds[0].accepted[0].node,
                     next = evidence.rounds[0].accepted[1].node;
    const omm_bundle_path own = omm_bundle_path_submission(0, &id);
    const omm_bundle_path later = omm_bundle_path_submission(1, &id);
    const omm_bundle_path others = omm_bundle_path_submission(0, &next);
    const char *name = NULL;
    for (size_t i = 0; i < evidence.run.node_count; i++)
        if (omm_digest_equal(&evidence.run.nodes[i].id, &id)) name = evidence.run.nodes[i].name;
    CHECK(name != NULL);
    omm_buf was, is;
    get_file(&was, own.text);
    get_file(&is, later.text);
    put_file(own.text, omm_buf_view(&is));
    CHECK_ERR(replay(&result, name, 0, 0), OMM_ERR_DIGEST);
    CHECK(s_is_bad && strstr(omm_err_sentence(), own.text) &&
          strstr(omm_err_sentence(), "is not the submission that round 0 accepted"));
    omm_buf_fini(&is);
    get_file(&is, others.text);
    put_file(own.text, omm_buf_view(&is));
    CHECK_ERR(replay(&result, name, 0, 0), OMM_ERR_REFUSED_KEY);
    CHECK(s_is_bad && strstr(omm_err_sentence(), "is not signed by its node"));
    put_file(own.text, omm_buf_view(&was));
    CHECK_OK(replay(&result, name, 0, 0));
    CHECK(!s_is_bad);
    CHECK_ERR(replay(&result, "nobody", 0, 0), OMM_ERR_NOT_FOUND);
    CHECK(!s_is_bad); /* asked wrongly */
    omm_buf_fini(&is);
    omm_buf_fini(&was);
    sim_evidence_close(&evidence);
    static const char *const judged[] = {"eval/before.jsonl", "eval/after.jsonl",
                                         "eval/rounds.jsonl", "adapters/r002.bin", "run.json"};
    for (size_t i = 0; i < sizeof judged / sizeof judged[0]; i++) fault(judged[i], true);
    fault("adapters/r000.bin", false);
    fault("rounds.jsonl", false);
}

/* As a service's two volunteers may be called: no run of its own is taken for one of them. */
static void test_two_of_one_name(void) {
    static const char from[] = "\"name\":\"studio-02\"", to[] = "\"name\":\"cafe-02\"";
    char path[OMM_PATH_MAX * 2];
    omm_replay_result result;
    omm_buf was, is;
    omm_buf_init(&was, 1u << 20);
    omm_buf_init(&is, 1u << 20);
    snprintf(path, sizeof path, "%s/run.json", s_bundle);
    CHECK_OK(omm_file_read(&was, path));
    CHECK_OK(omm_buf_append(&was, "", 1));
    const char *text = (const char *)was.data, *at = strstr(text, from);
    CHECK(at != NULL);
    if (at)
        CHECK_OK(omm_buf_printf(&is, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&is), 0644));
    CHECK_ERR(replay(&result, "cafe-02", 0, 1), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "2 nodes of the run are 'cafe-02'") != NULL);
    CHECK_ERR(replay(&result, "studio-02", 0, 1), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(was.data, was.size - 1), 0644));
    omm_buf_fini(&was);
    omm_buf_fini(&is);
}

int main(void) {
    const char *root = getenv("OMM_SOURCE_DIR");
    CHECK(root != NULL);
    snprintf(s_base, sizeof s_base, "%s/scenarios", root);
    snprintf(s_dir, sizeof s_dir, "/tmp/omm-replay-XXXXXX");
    CHECK(mkdtemp(s_dir) != NULL);
    snprintf(s_bundle, sizeof s_bundle, "%s/bundle", s_dir);
    simulate();
    test_goes_on_with_its_policy();
    test_identical();
    test_judged_again();
    test_other_held_out();
    test_two_of_one_name();
    test_faults();
    test_names_the_step();
    test_names_the_claim();
    test_names_tensor_and_element();
    test_names_the_file();
    test_other_data_is_refused();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
