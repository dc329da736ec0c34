/* Goal: scenario.yaml says what ran, or verify says what it does not say.
 * Method: whole bundles by somebody who has every key of a run and lies in scenario.yaml, or in run.json and the offers;
 * everything else of each fits together, so that one check alone may fail.
 */
#include "omm/agreement.h"
#include "omm/compute.h"
#include "omm/recipe.h"
#include "omm/scenario.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <stdio.h>
#include <string.h>

static void verify(omm_verify_report *r, const kit *k, omm_scenario_reader read_scenario) {
    const omm_verify_options options = {.render = kit_render, .read_scenario = read_scenario};
    CHECK_OK(omm_bundle_verify(r, k->dir, &options));
}

static void print_failures(const omm_verify_report *r) {
    for (size_t i = 0; i < r->failure_count; i++)
        fprintf(stderr, "%s: %s: %s\n", r->failures[i].check, r->failures[i].path,
                r->failures[i].reason);
}

/* checks: the names of those that fail, and no other may. */
static void expect(const kit_options *options, const char *checks, const char *path,
                   const char *says) {
    kit k;
    omm_verify_report r;
    bool found = false, others = false;
    kit_make(&k, options);
    verify(&r, &k, omm_scenario_agrees);
    for (size_t i = 0; i < r.failure_count; i++) {
        const omm_verify_failure *f = &r.failures[i];
        others = others || !strstr(checks, f->check);
        found = found || (strcmp(f->path, path) == 0 && strstr(f->reason, says));
    }
    if (!found || others) print_failures(&r);
    if (!found) fprintf(stderr, "expected of %s: %s\n", path, says);
    CHECK(found && !others && !r.intact);
    omm_verify_report_fini(&r);
    verify(&r, &k, NULL); /* who cannot read scenarios does not notice */
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

static void test_honest(void) {
    static const kit_options honest[] = {{0}, {.no_control = true}, {.hold_back = true}};
    for (size_t i = 0; i < sizeof honest / sizeof *honest; i++) {
        kit k;
        omm_verify_report r;
        kit_make(&k, &honest[i]);
        verify(&r, &k, omm_scenario_agrees);
        print_failures(&r);
        CHECK(r.intact);
        omm_verify_report_fini(&r);
        kit_remove(&k);
    }
}

/* --- scenario.yaml ---------------------------------------------------------------------------- */

static const struct {
    const char *from, *to, *says;
} s_texts[] = {
    {"name: \"kit\"", "name: \"kid\"", "name: kid, and run.json says kit"},
    {"seed: 1", "seed: 2", "seed: 2, and run.json says 1"},
    {"model: \"base.gguf\"", "model: \"base/better.gguf\"", "model: better.gguf, and run.json"},
    {"rounds: 3", "rounds: 4", "rounds: 4, and run.json says 3"},
    {", \"home-03\"", "", "population: nodes: 2, and run.json says 3"},
    {"\"home-03\"", "\"home-04\"", "population: a node: home-04, and run.json says home-03"},
    {"clients: [\"home-01\", \"home-02\", \"home-03\"]\n    count: 0\n    hostile: \"none\"",
     "count: 3\n    hostile: \"nan\"", "population: a node: homes-01"},
    {"loss_increase_max: 0.5", "loss_increase_max: 0.25", "round.loss_increase_max: 0.25, and run"},
    {"rank: 2", "rank: 4", "recipe: run.json has another (rank is 2 there, 4 here)"},
    {"learning_rate: 0.5", "learning_rate: 0.25", "(learning_rate is 0.5 there, 0.25 here)"},
    {"seed_lane: 0", "seed_lane: 0\n  optimizer: \"sgd\"", "(another optimizer)"},
    {"targets: \"q\"", "targets: \"blk.0.attn_q\"", "recipe: run.json has another"},
    {"topk_fraction: 1", "topk_fraction: 0.5", "codec.up: run.json has another"},
    {"error_feedback: true", "error_feedback: false", "codec.up: run.json has another"},
    {"zstd_level: 3", "zstd_level: 9", "codec.down: run.json has another"},
    {"value_max: 1", "value_max: 2", "aggregation.value_max: 2, and run.json says 1"},
    {"4294967296", "8589934592", "aggregation.weight_sum_max: 8589934592, and run.json says"},
    {"norm_max: 3", "norm_max: 0", "aggregation.norm_max: 0, and run.json says 3"},
    {"schema_version: 1\n", "", "schema_version: required key is missing"},
    {"schema_version: 1\n", "not yaml: [[\n", "scenario.yaml:1:1"},
    {"schema_version: 1\n", "\x01\n", "not valid YAML"},
    {"schema_version: 1\n", "# hi\nschema_version: 1\n", "line 1 is not as the effective form"},
    {"seed: 1\n", "seed:  1\n", "line 3 is not as the effective form"},
    {"    dropout: 0\n", "", "line 19 is not as the effective form"},
    {"policy: \"\"\n", "policy: \"\"", "line 72 is not as the effective form"},
    {"policy: \"\"\n", "policy: \"\"\n\n", "line 73 is not as the effective form"},
};

static void test_texts(void) {
    for (size_t i = 0; i < sizeof s_texts / sizeof *s_texts; i++) {
        const kit_options options = {.from = s_texts[i].from, .to = s_texts[i].to};
        expect(&options, "run", "scenario.yaml", s_texts[i].says);
    }
    expect(&(kit_options){.from = "accept_min: 2", .to = "accept_min: 1"}, "run", "rounds.jsonl",
           "round 1 is void, with 1 accepted, and scenario.yaml says accept_min: 1");
    expect(&(kit_options){.from = "accept_min: 2", .to = "accept_min: 3"}, "run", "rounds.jsonl",
           "round 2 is not void, with 2 accepted, and scenario.yaml says accept_min: 3");
    expect(&(kit_options){.from = "select: 0", .to = "select: 2"}, "verdicts", "rounds.jsonl",
           "round 0: 3 clients are selected, and scenario.yaml gives select: 2");
    expect(&(kit_options){.from = "round_items: 4", .to = "round_items: 2"}, "run, eval",
           "rounds.jsonl",
           "round 0 was evaluated on 4 items, and scenario.yaml and run.json give 2");
    expect(&(kit_options){.from = "deadline_ms: 60000", .to = "deadline_ms: 60001"}, "offers",
           "offers/r000.env", "deadline_ms is 60000, and scenario.yaml says 60001");
    expect(&(kit_options){.from = "generate: true", .to = "generate: false"}, "eval",
           "eval/after.jsonl", "line 1 has a reply, and scenario.yaml says otherwise");
    expect(&(kit_options){.from = "uncompressed: true", .to = "uncompressed: false"}, "eval",
           "eval/control.jsonl", "is there, and scenario.yaml asks for no control");
    expect(&(kit_options){.from = "other_threads: true", .to = "other_threads: false"}, "verdicts",
           "measured/repro.json", "with other threads: 1, and scenario.yaml gives 0");
    expect(&(kit_options){.from = "lower_isa: true", .to = "lower_isa: false"}, "verdicts",
           "measured/repro.json", "by another instruction set: 1, and scenario.yaml gives 0");
    expect(&(kit_options){.from = "scalar_steps: 2", .to = "scalar_steps: 0"}, "verdicts",
           "measured/repro.json", "in plain C: 1, and scenario.yaml gives 0");
    expect(&(kit_options){.from = "uncompressed: false",
                          .to = "uncompressed: true",
                          .no_control = true},
           "eval", "eval/control.jsonl", "is missing, and scenario.yaml asks for a control");
}

/* --- run.json and the offers ------------------------------------------------------------------ */

static uint8_t s_recipe[OMM_RECIPE_BYTES_MAX];

/* The recipe with these 4 bytes at `at`, or cut there (0). */
static void change_recipe(omm_run_record *run, size_t at, uint32_t bits) {
    memcpy(s_recipe, run->recipe.data, run->recipe.size);
    if (bits) omm_put_u32(s_recipe + at, bits);
    run->recipe = omm_bytes_of(s_recipe, bits ? run->recipe.size : at);
}

static void no_recipe(omm_run_record *run) {
    change_recipe(run, 1, 0);
}
static void recipe_version(omm_run_record *run) {
    change_recipe(run, 4, UINT32_MAX);
}
static void recipe_rank(omm_run_record *run) {
    change_recipe(run, 8, 64);
}
static void recipe_steps(omm_run_record *run) {
    change_recipe(run, 28, 7);
}
static void alpha(omm_run_record *run) {
    run->alpha = 99;
}
static void more_tokens(omm_run_record *run) {
    run->tokens_max = 1000000000;
}
static void fewer_tokens(omm_run_record *run) {
    run->tokens_max = 999;
}
static void client(omm_run_record *run) {
    static omm_run_node nodes[KIT_NODES];
    memcpy(nodes, run->nodes, sizeof nodes);
    nodes[0].client = "somebody";
    run->nodes = nodes;
}

static void test_records(void) {
    static const struct {
        void (*change)(omm_run_record *run);
        const char *path, *says;
    } all[] = {
        {no_recipe, "run.json", "recipe: 1 bytes instead of"},
        {recipe_version, "run.json", "recipe: version 4294967295"},
        {recipe_rank, "scenario.yaml", "(rank is 64 there, 2 here)"},
        {recipe_steps, "scenario.yaml", "(steps is 7 there, 2 here)"},
        {alpha, "run.json", "rank, alpha or targets are not the recipe's"},
        {more_tokens, "run.json", "tokens_max: 1000000000, and recipe, weight_sum_max and nodes"},
        {fewer_tokens, "run.json", "tokens_max: 999, and"},
        {client, "scenario.yaml", "and run.json says somebody"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(&(kit_options){.change_run = all[i].change}, "run", all[i].path, all[i].says);
}

/* --- what is no lie --------------------------------------------------------------------------- */

typedef struct sample {
    kit k;
    omm_arena arena;
    omm_buf scenario, record;
    omm_run_record run;
} sample;

static void sample_open(sample *s, const kit_options *options) {
    kit_make(&s->k, options);
    omm_arena_init(&s->arena, 16u << 20);
    omm_buf_init(&s->scenario, 1u << 20);
    omm_buf_init(&s->record, 1u << 20);
    kit_read(&s->scenario, s->k.dir, "scenario.yaml");
    kit_read(&s->record, s->k.dir, "run.json");
    CHECK_OK(omm_run_record_parse(&s->run, &s->arena, omm_buf_view(&s->record)));
}

static void sample_close(sample *s) {
    omm_buf_fini(&s->scenario);
    omm_buf_fini(&s->record);
    omm_arena_fini(&s->arena);
    kit_remove(&s->k);
}

static omm_err agrees(const sample *s, const omm_run_record *run) {
    omm_scenario_facts facts;
    const char *about = NULL;
    return omm_scenario_agrees(&facts, &about, omm_buf_view(&s->scenario), run);
}

/* Its nodes, their number, and its seed are not the scenario's; and it may keep room for more nodes. */
static void test_service(void) {
    sample s;
    sample_open(&s, &(kit_options){0});
    omm_run_record run = s.run;
    run.simulated = run.has_seed = false;
    run.node_count = 2;
    run.tokens_max = 900;
    CHECK_OK(agrees(&s, &run));
    run.tokens_max = 1001;
    CHECK_ERR(agrees(&s, &run), OMM_ERR_MISMATCH);
    run.tokens_max = 0;
    CHECK_ERR(agrees(&s, &run), OMM_ERR_MISMATCH);
    run.tokens_max = 900;
    run.rounds++;
    CHECK_ERR(agrees(&s, &run), OMM_ERR_MISMATCH);
    sample_close(&s);
}

/* A key that is refused today, as nothing reads it (beta1 with sgd); zstd's level where nothing is packed. */
static void test_older(void) {
    sample s;
    omm_scenario parsed = {0};
    omm_recipe recipe;
    omm_buf bytes;
    sample_open(&s,
                &(kit_options){.from = "seed_lane: 0", .to = "seed_lane: 0\n  optimizer: \"sgd\""});
    omm_run_record run = s.run;
    omm_buf_init(&bytes, 4096);
    CHECK_ERR(omm_scenario_parse(&parsed, omm_buf_view(&s.scenario), "s", NULL, &s.arena),
              OMM_ERR_CONFIG);
    CHECK_OK(omm_recipe_decode(&recipe, run.recipe));
    recipe.optimizer = OMM_RECIPE_SGD;
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    run.recipe = omm_buf_view(&bytes);
    CHECK_OK(agrees(&s, &run));
    omm_buf_fini(&bytes);
    sample_close(&s);
    sample_open(&s, &(kit_options){.from = "kind: \"f16\"", .to = "kind: \"none\""});
    run = s.run;
    CHECK_ERR(agrees(&s, &run), OMM_ERR_MISMATCH);
    run.codec_down = (omm_codec){.kind = OMM_CODEC_NONE};
    CHECK_OK(agrees(&s, &run));
    run.codec_down.zstd_level = 3;
    CHECK_OK(agrees(&s, &run));
    run.codec_down.zstd_level = 4;
    CHECK_ERR(agrees(&s, &run), OMM_ERR_MISMATCH);
    sample_close(&s);
}

/* More nodes than anybody has memory for. */
static void test_many_nodes(void) {
    sample s;
    sample_open(&s, &(kit_options){0});
    omm_buf text;
    const char *at = strstr((const char *)s.scenario.data, "round:\n");
    omm_buf_init(&text, 1u << 20);
    CHECK(at != NULL);
    if (at) {
        const size_t before = (size_t)(at - (const char *)s.scenario.data);
        CHECK_OK(omm_buf_append(&text, s.scenario.data, before));
        for (int i = 0; i < 900; i++)
            CHECK_OK(omm_buf_printf(
                &text, "  - group: \"g\"\n    count: 10000\n    hostile: \"nan\"\n"
                       "    tokens_per_s: 2000\n    slowdown: 1\n    uplink_kbit_s: 5000\n"
                       "    downlink_kbit_s: 20000\n    latency_ms: 30\n    jitter_ms: 0\n"
                       "    dropout: 0\n"));
        CHECK_OK(omm_buf_append(&text, at, s.scenario.size - before));
    }
    omm_scenario_facts facts;
    const char *about = NULL;
    CHECK_ERR(omm_scenario_agrees(&facts, &about, omm_buf_view(&text), &s.run), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "population: nodes: 9000003, and run.json says 3") != NULL);
    omm_buf_fini(&text);
    sample_close(&s);
}

/* What verify knows of instruction sets, also of another processor's, is what the engine has. */
static void test_instruction_sets(void) {
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++) {
        const omm_isa isa = (omm_isa)i;
        const char *floats = omm_repro_floats(omm_isa_name(isa));
        CHECK(floats != NULL);
        if (omm_isa_available(isa)) CHECK(strcmp(floats, omm_isa_name(omm_isa_floats(isa))) == 0);
    }
    CHECK(omm_repro_floats("") == NULL && omm_repro_floats("AVX2") == NULL);
}

int main(void) {
    test_instruction_sets();
    test_honest();
    test_texts();
    test_records();
    test_service();
    test_older();
    test_many_nodes();
    return 0;
}
