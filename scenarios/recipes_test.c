/* Goal: what a recipe can say, a federated round trains: nodes take the offer, the coordinator their
 * work, and a replay gives its bytes.
 * Method: one round of two nodes for each of a few recipes that have every option between them.
 */
#include "omm/agreement.h"
#include "omm/bundle.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/replay.h"
#include "omm/scenario.h"
#include "omm/simulate.h"
#include "wrap_evaluate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char s_scenario[] =
    "schema_version: 1\n"
    "name: recipes\n"
    "seed: 5\n"
    "model: base/openmeshmind-tiny-F16.gguf\n"
    "train: train.jsonl\n"
    "test: test.jsonl\n"
    "rounds: 1\n"
    "population:\n"
    "  - {group: two, clients: [cafe-02, studio-02]}\n"
    "recipe: {steps: 2, seq_max: 48, batch_tokens: 64, learning_rate: 0.005, targets: \"%s}\n"
    "codec: {up: {kind: f16}, down: {kind: f16}}\n"
    "evaluation: {round_items: 2, generate: false}\n"
    "audit: {submissions: 0, scalar_steps: 0}\n";

static char s_dir[64], s_file[OMM_PATH_MAX], s_bundle[OMM_PATH_MAX];

/* The lines of the two clients alone: the whole file is read in a second by a program with sanitizers. */
static void put_data(const char *base, const char *name) {
    char path[OMM_PATH_MAX];
    static char line[1u << 16];
    snprintf(path, sizeof path, "%s/%s", base, name);
    FILE *all = fopen(path, "r");
    snprintf(path, sizeof path, "%s/%s", s_dir, name);
    FILE *few = fopen(path, "w");
    CHECK(all != NULL && few != NULL);
    while (fgets(line, sizeof line, all))
        if (strstr(line, "\"cafe-02\"") || strstr(line, "\"studio-02\""))
            CHECK(fputs(line, few) >= 0);
    CHECK(fclose(few) == 0 && fclose(all) == 0);
}

static void put_scenario(const char *recipe) {
    FILE *file = fopen(s_file, "w");
    CHECK(file != NULL);
    CHECK(fprintf(file, s_scenario, recipe) > 0);
    CHECK(fclose(file) == 0);
}

static void replays(void) {
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_isa isa;
    omm_replay_result result;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    const omm_replay_options options = {
        .bundle = s_bundle, .base_dir = s_dir, .node = "cafe-02", .compute = &compute};
    CHECK_OK(omm_replay(&result, &options));
    CHECK(result.equal && result.rounds_trained == 1);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
}

static void read_file(omm_buf *out, const char *path) {
    omm_buf_init(out, 1u << 20);
    CHECK_OK(omm_bundle_file_read(out, s_bundle, path));
}

static void agrees(void) {
    omm_arena arena;
    omm_run_record run;
    omm_scenario_facts facts;
    omm_buf scenario, record;
    const char *about = NULL;
    omm_arena_init(&arena, 16u << 20);
    read_file(&scenario, "scenario.yaml");
    read_file(&record, "run.json");
    CHECK_OK(omm_run_record_parse(&run, &arena, omm_buf_view(&record)));
    CHECK_OK(omm_scenario_agrees(&facts, &about, omm_buf_view(&scenario), &run));
    CHECK_EQ(facts.round_items, 2);
    CHECK(!facts.generate && !facts.control);
    omm_buf_fini(&record);
    omm_buf_fini(&scenario);
    omm_arena_fini(&arena);
}

static void trains(const char *recipe) {
    put_scenario(recipe);
    wrap_seq_max = 48;
    omm_simulate_options options = {.scenario = s_file,
                                    .out = s_bundle,
                                    .threads = 2,
                                    .clock = omm_clock_system(),
                                    .commit = "test",
                                    .build = "test"};
    CHECK_OK(omm_isa_choose(&options.isa, NULL));
    omm_simulate_result result;
    CHECK_OK(omm_simulate(&result, &options));
    printf("%s: %llu accepted, %llu refused\n", recipe, (unsigned long long)result.accepted,
           (unsigned long long)result.refused);
    CHECK_EQ(result.accepted, 2);
    CHECK(wrap_evaluations >= 2); /* of a round's sample, and in full */
    wrap_evaluations = 0;
    CHECK_EQ(result.refused, 0);
    CHECK_EQ(result.rounds_void, 0);
    omm_simulate_result_fini(&result);
    replays();
    agrees();
    CHECK_OK(omm_dir_remove(s_bundle));
}

int main(void) {
    const char *root = getenv("OMM_SOURCE_DIR");
    char base[OMM_PATH_MAX], link[OMM_PATH_MAX];
    CHECK(root != NULL);
    snprintf(s_dir, sizeof s_dir, "/tmp/omm-recipes-XXXXXX");
    CHECK(mkdtemp(s_dir) != NULL);
    snprintf(s_file, sizeof s_file, "%s/recipes.yaml", s_dir);
    snprintf(s_bundle, sizeof s_bundle, "%s/bundle", s_dir);
    snprintf(base, sizeof base, "%s/scenarios/base", root);
    snprintf(link, sizeof link, "%s/base", s_dir);
    CHECK(symlink(base, link) == 0);
    put_data(base, "train.jsonl");
    put_data(base, "test.jsonl");
    trains("q,v\", rank: 3, alpha: 6, rslora: true, b_rate_ratio: 4, dropout: 0.1, prox_mu: 0.01");
    trains("down\", rank: 2, alpha: 2.5, parts: b, optimizer: sgd, momentum: 0.9, nesterov: true");
    trains("all\", rank: 1, optimizer: adafactor, relative_step: true, schedule: linear");
    trains("blk.0-1.attn_*,blk.3.ffn_up\", rank: 3, rank_pattern: \"ffn_*=2\", alpha_pattern: "
           "\"attn_q=5\"");
    trains("all\", rank: 3, parts: core, dropout: 0.1");
    CHECK(unlink(link) == 0); /* not what it leads to */
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
