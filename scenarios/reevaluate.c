/* reevaluate.c - judge the held-out items of a bundle again, with the adapters that are in it, and find the first row that differs.
 *
 *   base + adapters/rNNN.bin + held-out file --as the coordinator does--> rows and losses, compared with eval/ byte by byte
 */
#include "internal.h"

#include "omm/bundle.h"
#include "omm/codec.h"
#include "omm/evidence.h"
#include "omm/replay.h"
#include "omm/run_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATES_PATH "eval/rounds.jsonl"
#define EVAL_BYTES_MAX (256u << 20)
#define ADAPTER_BYTES_MAX (1ull << 31)

typedef struct judge_again {
    const sim_evidence *evidence;
    omm_coord_evaluator evaluator;
    uint32_t state; /* that is judged */
    omm_arena arena;
    omm_reevaluate_result *result;
    void (*progress)(void *ud, const char *what);
    void *ud;
} judge_again;

/* As it was sent. */
static omm_err read_state(void *ud, float *values) {
    const judge_again *j = ud;
    const omm_run_record *run = &j->evidence->run;
    omm_buf file;
    omm_buf_init(&file, ADAPTER_BYTES_MAX);
    const omm_bundle_path path = omm_bundle_path_adapter(j->state);
    omm_err err = omm_bundle_file_read(&file, j->evidence->dir, path.text);
    if (err == OMM_OK)
        err = omm_codec_decode(values, NULL, &run->codec_down, &run->layout, omm_buf_view(&file));
    omm_buf_fini(&file);
    return sim_evidence_about(j->evidence, path.text, err);
}

/* ---- the first difference ---------------------------------------------------------------------- */

static void differs(judge_again *j, const char *path, size_t line, const char *what,
                    const char *said, const char *is) {
    omm_reevaluate_result *r = j->result;
    r->equal = false;
    r->line = line;
    snprintf(r->path, sizeof r->path, "%s", path);
    snprintf(r->what, sizeof r->what, "%s", what);
    snprintf(r->said, sizeof r->said, "%s", said);
    snprintf(r->repeated, sizeof r->repeated, "%s", is);
}

static void real_differs(judge_again *j, const char *path, size_t line, const char *what,
                         double said, double is) {
    char a[32], b[32];
    snprintf(a, sizeof a, "%.17g", said);
    snprintf(b, sizeof b, "%.17g", is);
    differs(j, path, line, what, a, b);
}

static void count_differs(judge_again *j, const char *path, size_t line, const char *what,
                          uint64_t said, uint64_t is) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%" PRIu64, said);
    snprintf(b, sizeof b, "%" PRIu64, is);
    differs(j, path, line, what, a, b);
}

static const char *yes_or_no(bool is) {
    return is ? "true" : "false";
}

/* What differs of two rows that do. */
static void name_row(judge_again *j, const char *path, size_t line, const omm_eval_record *said,
                     const omm_eval_record *is) {
    char a[OMM_DIGEST_HEX_SIZE], b[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(a, &said->item);
    omm_digest_hex(b, &is->item);
    if (strcmp(a, b) != 0)
        differs(j, path, line, "item", a, b);
    else if (strcmp(said->client, is->client) != 0)
        differs(j, path, line, "client", said->client, is->client);
    else if (strcmp(said->skill, is->skill) != 0)
        differs(j, path, line, "skill", said->skill, is->skill);
    else if (said->tokens != is->tokens)
        count_differs(j, path, line, "tokens", said->tokens, is->tokens);
    else if (said->nll != is->nll)
        real_differs(j, path, line, "nll", said->nll, is->nll);
    else if (strcmp(said->reply, is->reply) != 0)
        differs(j, path, line, "reply", said->reply, is->reply);
    else if (said->is_tool != is->is_tool)
        differs(j, path, line, "kind", said->is_tool ? "tool" : "text",
                is->is_tool ? "tool" : "text");
    else if (said->parsed != is->parsed)
        differs(j, path, line, "parsed", yes_or_no(said->parsed), yes_or_no(is->parsed));
    else if (said->tool_ok != is->tool_ok)
        differs(j, path, line, "tool_ok", yes_or_no(said->tool_ok), yes_or_no(is->tool_ok));
    else if (said->exact != is->exact)
        differs(j, path, line, "exact", yes_or_no(said->exact), yes_or_no(is->exact));
    else
        differs(j, path, line, "generated", yes_or_no(said->generated), yes_or_no(is->generated));
}

/* ---- rows -------------------------------------------------------------------------------------- */

static omm_err compare_lines(judge_again *j, const char *path, omm_bytes said, omm_bytes is) {
    omm_bytes *theirs = NULL, *mine = NULL;
    size_t their_count = 0, count = 0;
    OMM_TRY(sim_evidence_about(
        j->evidence, path, omm_evidence_lines(&theirs, &their_count, &j->arena, said, SIZE_MAX)));
    OMM_TRY(omm_evidence_lines(&mine, &count, &j->arena, is, SIZE_MAX));
    for (size_t i = 0; i < count && i < their_count; i++) {
        omm_eval_record a, b;
        j->result->rows++;
        if (omm_bytes_equal(theirs[i], mine[i])) continue;
        OMM_TRY(
            sim_evidence_about(j->evidence, path, omm_eval_record_parse(&a, &j->arena, theirs[i])));
        OMM_TRY(omm_eval_record_parse(&b, &j->arena, mine[i]));
        name_row(j, path, i + 1, &a, &b);
        return OMM_OK;
    }
    if (count != their_count) count_differs(j, path, 0, "rows", their_count, count);
    return OMM_OK;
}

static omm_err repeat_rows(judge_again *j, const char *path, bool with_adapter) {
    const omm_coord_values values = {read_state, j};
    omm_buf said, is;
    if (!j->result->equal) return OMM_OK;
    if (j->progress) j->progress(j->ud, path);
    j->state = (uint32_t)j->evidence->round_count;
    omm_buf_init(&said, EVAL_BYTES_MAX);
    omm_buf_init(&is, EVAL_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&said, j->evidence->dir, path);
    err = sim_evidence_about(j->evidence, path, err);
    if (err == OMM_OK) err = j->evaluator.full(j->evaluator.ud, &is, with_adapter ? &values : NULL);
    if (err == OMM_OK) err = compare_lines(j, path, omm_buf_view(&said), omm_buf_view(&is));
    omm_buf_fini(&said);
    omm_buf_fini(&is);
    return err;
}

/* ---- states ------------------------------------------------------------------------------------ */

static omm_err repeat_state(judge_again *j, size_t line, const omm_state_record *said) {
    const omm_coord_values values = {read_state, j};
    uint64_t items = 0;
    double loss = 0;
    j->state = said->state;
    OMM_TRY(j->evaluator.sample(j->evaluator.ud, &items, &loss, &values));
    j->result->states++;
    if (items != said->items)
        count_differs(j, STATES_PATH, line, "items", said->items, items);
    else if (loss != said->loss)
        real_differs(j, STATES_PATH, line, "loss", said->loss, loss);
    return OMM_OK;
}

/* Of a candidate that was held back the bundle has no adapter. */
static bool is_kept(const sim_evidence *evidence, const omm_state_record *s) {
    return s->state == 0 ||
           (s->state <= evidence->round_count && evidence->rounds[s->state - 1].published);
}

static omm_err repeat_states(judge_again *j, omm_bytes text) {
    omm_bytes *lines = NULL;
    size_t count = 0;
    OMM_TRY(sim_evidence_about(
        j->evidence, STATES_PATH,
        omm_evidence_lines(&lines, &count, &j->arena, text, OMM_EVIDENCE_ROUNDS_MAX)));
    for (size_t i = 0; i < count && j->result->equal; i++) {
        omm_state_record said;
        OMM_TRY(
            sim_evidence_about(j->evidence, STATES_PATH, omm_state_record_parse(&said, lines[i])));
        if (is_kept(j->evidence, &said))
            OMM_TRY(repeat_state(j, i + 1, &said));
        else
            j->result->states_left++;
    }
    return OMM_OK;
}

static omm_err repeat_all(judge_again *j) {
    omm_buf text;
    OMM_TRY(repeat_rows(j, "eval/before.jsonl", false));
    OMM_TRY(repeat_rows(j, "eval/after.jsonl", true));
    if (!j->result->equal) return OMM_OK;
    if (j->progress) j->progress(j->ud, STATES_PATH);
    omm_buf_init(&text, EVAL_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, j->evidence->dir, STATES_PATH);
    err = sim_evidence_about(j->evidence, STATES_PATH, err);
    if (err == OMM_OK) err = repeat_states(j, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

/* ---- all --------------------------------------------------------------------------------------- */

/* Of this very model and this very file nothing else can be true: what run.json says otherwise is a difference. */
static void compare_count(judge_again *j, const char *what, uint64_t said, uint64_t is) {
    if (j->result->equal && said != is) count_differs(j, "run.json", 0, what, said, is);
}

static void compare_text(judge_again *j, const char *what, const char *said, const char *is) {
    if (j->result->equal && strcmp(said, is) != 0) differs(j, "run.json", 0, what, said, is);
}

static void compare_digest(judge_again *j, const char *what, const omm_digest *said,
                           const omm_digest *is) {
    char a[OMM_DIGEST_HEX_SIZE], b[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(a, said);
    omm_digest_hex(b, is);
    compare_text(j, what, a, b);
}

static void compare_run(judge_again *j, const omm_run_record *here) {
    const omm_run_record *said = &j->evidence->run;
    compare_count(j, "base.bytes", said->base.bytes, here->base.bytes);
    compare_text(j, "base.architecture", said->base.architecture, here->base.architecture);
    compare_digest(j, "base.tokenizer_digest", &said->base.tokenizer_digest,
                   &here->base.tokenizer_digest);
    if (!omm_digest_is_zero(&said->base.fingerprint)) { /* those of a run of before name none */
        compare_text(j, "base.title", said->base.title, here->base.title);
        compare_digest(j, "base.fingerprint", &said->base.fingerprint, &here->base.fingerprint);
    }
    compare_count(j, "test.items", said->test_items, here->test_items);
    if (said->test_cut || said->test_left_out) { /* else none, or one of before */
        compare_count(j, "test.cut", said->test_cut, here->test_cut);
        compare_count(j, "test.left_out", said->test_left_out, here->test_left_out);
    }
    compare_count(j, "adapter.layout", said->layout.value_count, here->layout.value_count);
}

static omm_err check_same(const omm_run_record *bundle, const omm_run_record *here) {
    OMM_TRY(sim_check_base(bundle, here));
    if (omm_digest_equal(&bundle->test_digest, &here->test_digest)) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "the held-out file here is not the run's");
}

static omm_err judge(omm_reevaluate_result *result, const sim_evidence *evidence,
                     const sim_setup *setup, const omm_replay_options *options) {
    omm_coord_options run;
    OMM_TRY(check_same(&evidence->run, omm_run_get_record(setup->run)));
    omm_run_coord_options(&run, setup->run);
    judge_again j = {.evidence = evidence,
                     .evaluator = run.evaluator,
                     .result = result,
                     .progress = options->judging,
                     .ud = options->ud};
    omm_arena_init(&j.arena, 2 * (size_t)EVAL_BYTES_MAX);
    *result = (omm_reevaluate_result){.equal = true};
    compare_run(&j, omm_run_get_record(setup->run));
    const omm_err err = repeat_all(&j);
    omm_arena_fini(&j.arena);
    char path[OMM_PATH_MAX];
    OMM_TRY(err);
    OMM_TRY(omm_path_join(path, evidence->dir, "eval/control.jsonl"));
    result->has_control = omm_file_exists(path);
    return OMM_OK;
}

omm_err omm_reevaluate(omm_reevaluate_result *result, const omm_replay_options *options) {
    sim_evidence evidence;
    sim_setup setup = {0};
    OMM_TRY(sim_evidence_open_for(&evidence, options));
    omm_err err = sim_evidence_check_rounds(&evidence);
    if (err == OMM_OK) err = sim_replay_setup(&setup, &evidence, options, true);
    if (err == OMM_OK) err = judge(result, &evidence, &setup, options);
    if (setup.run) sim_setup_close(&setup);
    sim_evidence_close(&evidence);
    return err;
}
