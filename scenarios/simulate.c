/* simulate.c - a scenario from file to sealed bundle: set up, run, audit, measure, seal, read back. */
#include "omm/simulate.h"

#include "internal.h"

#include "omm/mem.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Rough costs for the progress bar, in trained tokens: judging an item, with a reply and without. */
#define SIMULATE_REPLY_TOKENS_PER_ITEM 80.0
#define SIMULATE_LOSS_TOKENS_PER_ITEM 25.0
#define SIMULATE_CONTROL_DIR ".control"

static double seconds_since(uint64_t begin_ns) {
    return (double)(omm_measure_ns() - begin_ns) / 1e9;
}

static omm_err open_compute(sim *s) {
    unsigned threads = s->options->threads;
    OMM_TRY(omm_pool_open(&s->pool, threads));
    OMM_TRY(omm_compute_init(&s->compute, s->pool, s->options->isa));
    s->solo = omm_alloc(threads, sizeof *s->solo);
    if (!s->solo) return omm_raise(OMM_ERR_NOMEM, "%u compute contexts", threads);
    for (; s->solo_count < threads; s->solo_count++)
        OMM_TRY(omm_compute_init(&s->solo[s->solo_count], NULL, s->options->isa));
    return OMM_OK;
}

static void close_compute(sim *s) {
    for (unsigned i = 0; i < s->solo_count; i++) omm_compute_fini(&s->solo[i]);
    omm_free(s->solo);
    if (s->compute.k) omm_compute_fini(&s->compute);
    omm_pool_close(s->pool);
}

static double item_tokens(bool generates) {
    return generates ? SIMULATE_REPLY_TOKENS_PER_ITEM : SIMULATE_LOSS_TOKENS_PER_ITEM;
}

static void on_judged(void *ud, size_t items, bool generates) {
    sim *s = ud;
    s->tokens_done += (double)items * item_tokens(generates);
    sim_report(s, generates ? "evaluate before and after" : "evaluate");
}

/* What the audit takes is known exactly when it begins; half of all rounds is what a chain of them has on average. */
static double plan_audit(const omm_scenario *scenario, double job, bool is_chain) {
    const omm_scenario_audit *audit = &scenario->audit;
    const double rounds = is_chain ? (1.0 + (double)scenario->rounds) / 2.0 : 1.0;
    return (double)audit->submissions * rounds * job *
               ((audit->other_threads ? SIM_AUDIT_FACTOR : 0.0) +
                (audit->lower_isa ? SIM_AUDIT_FACTOR : 0.0)) +
           (double)audit->scalar_steps * scenario->recipe.batch_tokens * SIM_AUDIT_SCALAR_FACTOR;
}

static void plan_progress(sim *s) {
    const omm_scenario *scenario = &s->setup->scenario;
    const omm_run_record *record = omm_run_get_record(s->setup->run);
    const double items = (double)record->test_items;
    const double sample =
        scenario->evaluation.round_items > 0 && scenario->evaluation.round_items < items
            ? (double)scenario->evaluation.round_items
            : items;
    const double job = (double)scenario->recipe.steps * scenario->recipe.batch_tokens;
    size_t honest = 0;
    for (size_t i = 0; i < s->setup->node_count; i++) honest += s->setup->nodes[i].client != NULL;
    const double run = job * (double)honest * scenario->rounds +
                       scenario->rounds * sample * item_tokens(false) +
                       2.0 * items * item_tokens(scenario->evaluation.generate);
    s->tokens_total = run * (scenario->control_uncompressed ? 2.0 : 1.0) +
                      plan_audit(scenario, job, record->codec_up.error_feedback);
}

/* --- the control: the same scenario, everything sent as it is --------------------------------- */

typedef struct control {
    const omm_simulate_options *options;
    sim *parent;
    const char *dir; /* of the run's bundle */
} control;

static omm_err run_control(void *ud, omm_buf *jsonl) {
    const control *c = ud;
    sim_setup setup;
    sim_setup_options open = {.scenario = c->options->scenario,
                              .seed = c->options->seed,
                              .is_control = true,
                              .compute = &c->parent->compute};
    OMM_TRY(sim_setup_open(&setup, &open));
    char dir[OMM_PATH_MAX];
    snprintf(dir, sizeof dir, "%s%s", c->dir, SIMULATE_CONTROL_DIR);
    sim s = {.options = c->options,
             .setup = &setup,
             .dir = c->dir,
             .pool = c->parent->pool,
             .compute = c->parent->compute,
             .solo = c->parent->solo,
             .solo_count = c->parent->solo_count,
             .tokens_done = c->parent->tokens_done,
             .tokens_total = c->parent->tokens_total};
    omm_bundle *bundle = NULL;
    omm_run_watch(setup.run, on_judged, &s);
    omm_err err = omm_bundle_open(&bundle, dir, false);
    if (err == OMM_OK) err = sim_run(&s, bundle);
    c->parent->tokens_done = s.tokens_done;
    if (err == OMM_OK) err = omm_bundle_read(jsonl, bundle, "eval/after.jsonl");
    sim_close(&s);
    omm_bundle_close(bundle);
    omm_err removed = omm_dir_remove(dir);
    sim_setup_close(&setup);
    return err == OMM_OK ? removed : err;
}

/* --- the run ---------------------------------------------------------------------------------- */

static omm_err choose_dir(char out[OMM_PATH_MAX], const omm_simulate_options *options) {
    if (options->out) {
        if (strlen(options->out) >= OMM_PATH_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "--out: %zu bytes", strlen(options->out));
        memcpy(out, options->out, strlen(options->out) + 1);
    } else {
        omm_arena arena;
        omm_arena_init(&arena, 64u << 20);
        omm_scenario scenario;
        omm_err err = omm_scenario_load(&scenario, options->scenario, options->seed, &arena);
        char stamp[17];
        omm_time_stamp(stamp, options->clock.wall_ms(options->clock.ud));
        if (err == OMM_OK)
            snprintf(out, OMM_PATH_MAX, "artifacts/runs/%s-%s", stamp, scenario.name);
        for (unsigned i = 2; err == OMM_OK && i < 1000 && omm_file_exists(out); i++)
            snprintf(out, OMM_PATH_MAX, "artifacts/runs/%s-%s-%u", stamp, scenario.name, i);
        omm_arena_fini(&arena);
        OMM_TRY(err);
    }
    if (!omm_file_exists(out)) return OMM_OK;
    char sealed[OMM_PATH_MAX], begun[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(sealed, out, "manifest.json"));
    OMM_TRY(omm_path_join(begun, out, "run.json"));
    /* What is no run's is somebody's: nobody is told to remove it. */
    return omm_raise(OMM_ERR_EXISTS, "%s is there already%s", out,
                     omm_file_exists(sealed) ? "; a bundle is written once"
                     : omm_file_exists(begun)
                         ? ", of a run that did not end: remove it, or name another folder"
                         : ", and is no run's: name a folder that is not there");
}

static void sum_wire(omm_simulate_result *result, const sim *s) {
    const omm_run_record *run = omm_run_get_record(s->setup->run);
    result->values = run->layout.value_count;
    result->values_kept = run->codec_up.keep_count > 0 ? run->codec_up.keep_count : result->values;
    for (size_t i = 0; i < s->setup->node_count; i++) {
        if (!s->peers[i].node) continue;
        result->bytes_up += s->peers[i].bytes_up;
        result->bytes_down += s->peers[i].bytes_down;
        result->nodes++;
    }
    result->virtual_ms = s->now_ms;
    result->train_s = (double)s->train_ns / 1e9;
    result->evaluate_s = (double)s->evaluate_ns / 1e9;
}

static omm_err seal(omm_simulate_result *result, const sim *s, omm_bundle *bundle) {
    omm_key key;
    omm_run_bundle_key(&key, &s->setup->run_seed);
    char machine[128];
    snprintf(machine, sizeof machine, "%s, %u threads, %u processors",
             omm_isa_name(s->options->isa), s->options->threads, omm_cpu_count());
    omm_bundle_seal_options options = {.key = &key,
                                       .commit = s->options->commit,
                                       .build = s->options->build,
                                       .machine = machine,
                                       .wall_ms = s->options->clock.wall_ms(s->options->clock.ud)};
    omm_err err = omm_bundle_seal(&result->run_digest, &result->judgement, bundle, &options);
    result->is_judged = err == OMM_OK;
    if (err == OMM_OK) result->bytes_fp32 = result->judgement.wire_fp32;
    omm_key_wipe(&key);
    return err;
}

static omm_err run_all(omm_simulate_result *result, sim *s, omm_bundle *bundle, uint64_t begin_ns) {
    plan_progress(s);
    omm_run_watch(s->setup->run, on_judged, s);
    OMM_TRY(sim_run(s, bundle));
    sum_wire(result, s);
    uint64_t audit_ns = omm_measure_ns();
    OMM_TRY(sim_audit(s, bundle));
    result->audit_s = seconds_since(audit_ns);
    result->total_s = seconds_since(begin_ns);
    sim_report(s, "seal");
    OMM_TRY(sim_outcome_write(s, bundle, result));
    OMM_TRY(sim_outcome_read(result, omm_bundle_dir(bundle)));
    OMM_TRY(seal(result, s, bundle));
    result->total_s = seconds_since(begin_ns);
    return OMM_OK;
}

/* A name that we choose may have been taken by another run of this second since it was chosen: then the next one. */
static omm_err open_bundle(omm_bundle **out, omm_simulate_result *result,
                           const omm_simulate_options *options) {
    enum { TRIES = 1000 };
    omm_err err = OMM_ERR_STATE;
    for (unsigned i = 0; err == OMM_ERR_STATE && i < (options->out ? 1 : TRIES); i++) {
        if (!options->out) OMM_TRY(choose_dir(result->dir, options));
        err = omm_bundle_open(out, result->dir, false);
    }
    result->is_begun = err == OMM_OK;
    return err;
}

/* Of fewer nodes than are to be accepted no round would ever count, and a quorum of more than there are would be none, as
 * would one of nobody; nobody can join a simulated run. */
static omm_err check_round(const omm_simulate_options *options, const sim_setup *setup) {
    const omm_scenario_round *round = &setup->scenario.round;
    const uint32_t honest = sim_setup_honest(setup);
    uint32_t most = honest; /* of the others none is ever accepted */
    if (honest == 0)
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: population: all groups are hostile, so no round would ever begin; "
                         "accepted: a group with `clients` of the training data beside them",
                         options->scenario);
    if (round->quorum > honest)
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: round.quorum is %u, but there are %u clients, and nobody can join a "
                         "simulated run; accepted: 0 (all of them) to %u",
                         options->scenario, round->quorum, honest, honest);
    if (round->select > 0 && round->select < most) most = round->select;
    if (round->accept_min <= most) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s: round.accept_min is %u, but a round has %u clients at most: every round "
                     "would be void",
                     options->scenario, round->accept_min, most);
}

/* Else that would be found out when all is trained, and nothing goes on from there. */
static omm_err check_audit(const omm_simulate_options *options, const sim_setup *setup) {
    const omm_scenario *s = &setup->scenario;
    if (s->audit.scalar_steps <= s->recipe.steps) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s: audit.scalar_steps is %u, and a submission has recipe.steps: %u; "
                     "accepted: 0 (none) to %u",
                     options->scenario, s->audit.scalar_steps, s->recipe.steps, s->recipe.steps);
}

static omm_err warn_words(const omm_simulate_options *options, const sim_setup *setup) {
    char doubt[OMM_TOKENIZER_DOUBT_MAX];
    if (!options->warn) return OMM_OK;
    if (omm_tokenizer_doubt(doubt, omm_run_tokenizer(setup->run)))
        options->warn(options->ud, doubt);
    return sim_warn_words(setup, options->warn, options->ud);
}

omm_err omm_simulate(omm_simulate_result *result, const omm_simulate_options *options) {
    OMM_ASSERT(options->threads >= 1);
    uint64_t begin_ns = omm_measure_ns();
    *result = (omm_simulate_result){0};
    OMM_TRY(choose_dir(result->dir, options));
    sim_setup setup = {0};
    sim s = {.options = options, .setup = &setup, .dir = result->dir};
    control twin = {options, &s, result->dir};
    sim_setup_options open = {.scenario = options->scenario,
                              .seed = options->seed,
                              .compute = &s.compute,
                              .control = run_control,
                              .control_ud = &twin};
    omm_bundle *bundle = NULL;
    bool is_set_up = false;
    omm_err err = OMM_OK;
    OMM_TRY_OUT(open_compute(&s));
    OMM_TRY_OUT(sim_setup_open(&setup, &open));
    is_set_up = true;
    OMM_TRY_OUT(check_round(options, &setup));
    OMM_TRY_OUT(check_audit(options, &setup));
    OMM_TRY_OUT(sim_warn_unmet(&setup, options));
    OMM_TRY_OUT(warn_words(options, &setup));
    OMM_TRY_OUT(open_bundle(&bundle, result, options));
    OMM_TRY_OUT(run_all(result, &s, bundle, begin_ns));
out:
    sim_close(&s);
    omm_bundle_close(bundle);
    if (is_set_up) sim_setup_close(&setup);
    close_compute(&s);
    if (err != OMM_OK) omm_simulate_result_fini(result);
    return err;
}

void omm_simulate_result_fini(omm_simulate_result *result) {
    if (result->is_judged) omm_judgement_fini(&result->judgement);
    result->is_judged = false;
    omm_free(result->clients);
    result->clients = NULL;
    result->client_count = 0;
}
