/* Goal: a scenario file is read in full or refused with its place and what would be accepted; the
 * effective form parses back to itself; and every shipped scenario loads.
 */
#include "internal.h"
#include "omm/file.h"
#include "omm/scenario.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char GOOD[] = "schema_version: 1\n"
                           "name: two\n"
                           "seed: 7\n"
                           "model: base/m.gguf\n"
                           "train: base/train.jsonl\n"
                           "test: base/test.jsonl\n"
                           "rounds: 3\n"
                           "population:\n"
                           "  - {group: homes, clients: [home-01, home-02], latency_ms: 12.5}\n"
                           "  - {group: evil, hostile: nan, count: 2}\n"
                           "recipe: {rank: 4, steps: 3}\n"
                           "codec: {up: {kind: int8, topk_fraction: 0.25}, down: {kind: f16}}\n";

static omm_err parse(omm_scenario *out, omm_arena *arena, const char *text) {
    return omm_scenario_parse(out, omm_bytes_str(text), "s.yaml", NULL, arena);
}

static void test_reads_and_names_nodes(void) {
    omm_arena arena;
    omm_arena_init(&arena, 16u << 20);
    omm_scenario s;
    CHECK_OK(parse(&s, &arena, GOOD));
    CHECK_EQ(s.seed, 7);
    CHECK_EQ(s.rounds, 3);
    CHECK_EQ(s.recipe.rank, 4);
    CHECK_EQ(s.codec.up.kind, OMM_CODEC_INT8);
    CHECK_EQ(s.round.accept_min, 1);
    CHECK_EQ(s.evaluation.round_items, 64);
    omm_scenario_node *nodes = NULL;
    size_t count = 0;
    CHECK_OK(omm_scenario_nodes(&nodes, &count, &s, &arena));
    CHECK_EQ(count, 4);
    CHECK(strcmp(nodes[1].name, "home-02") == 0);
    CHECK(strcmp(nodes[1].client, "home-02") == 0);
    CHECK(strcmp(nodes[3].name, "evil-02") == 0);
    CHECK(nodes[3].client == NULL);
    CHECK(nodes[0].group->latency_ms == 12.5);
    omm_arena_fini(&arena);
}

static void test_effective_form_is_a_fixed_point(void) {
    omm_arena arena;
    omm_arena_init(&arena, 16u << 20);
    omm_scenario s;
    omm_scenario again;
    omm_buf one;
    omm_buf two;
    omm_buf_init(&one, 1u << 20);
    omm_buf_init(&two, 1u << 20);
    CHECK_OK(parse(&s, &arena, GOOD));
    CHECK_OK(omm_scenario_write(&one, &s));
    CHECK_OK(omm_scenario_parse(&again, omm_buf_view(&one), "effective", NULL, &arena));
    CHECK_OK(omm_scenario_write(&two, &again));
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));
    omm_digest digest;
    omm_digest other;
    CHECK_OK(omm_scenario_digest(&digest, &s));
    uint64_t seed = 8;
    CHECK_OK(omm_scenario_parse(&again, omm_buf_view(&one), "effective", &seed, &arena));
    CHECK_OK(omm_scenario_digest(&other, &again));
    CHECK(!omm_digest_equal(&digest, &other));
    omm_buf_fini(&one);
    omm_buf_fini(&two);
    omm_arena_fini(&arena);
}

/* The bound of values follows from what is trained, and stands in the effective form. */
static void test_value_max(void) {
    static const struct {
        const char *recipe;
        double want;
    } cases[] = {{"recipe: {steps: 3}\n", 1},
                 {"recipe: {parts: core, steps: 8, learning_rate: 0.1}\n", 4},
                 {"recipe: {parts: core, steps: 20, learning_rate: 0.1}\n", 4},
                 {"recipe: {parts: core, steps: 21, learning_rate: 0.1}\n", 8},
                 {"recipe: {parts: core, steps: 1000000, learning_rate: 1}\n", 32768},
                 {"recipe: {parts: core, steps: 8}\naggregation: {value_max: 0.5}\n", 0.5},
                 {"recipe: {parts: b, steps: 8}\naggregation: {value_max: 0}\n", 1},
                 {"recipe: {steps: 3}\naggregation: {value_max: 2}\n", 2},
                 {"recipe: {steps: 3}\naggregation: {value_max: 0.0000152587890625}\n", 0x1p-16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        omm_arena arena;
        omm_scenario s, again;
        omm_buf effective;
        omm_arena_init(&arena, 16u << 20);
        omm_buf_init(&effective, 1u << 20);
        snprintf(text, sizeof text, "%.*s%s", (int)(strstr(GOOD, "recipe:") - GOOD), GOOD,
                 cases[i].recipe);
        CHECK_OK(parse(&s, &arena, text));
        CHECK(s.aggregation.value_max == cases[i].want);
        CHECK_OK(omm_scenario_write(&effective, &s));
        CHECK_OK(omm_scenario_parse(&again, omm_buf_view(&effective), "effective", NULL, &arena));
        CHECK(again.aggregation.value_max == cases[i].want);
        omm_buf_fini(&effective);
        omm_arena_fini(&arena);
    }
}

/* Replace `from` by `to` in GOOD and expect a refusal whose sentence holds `says`. */
static void refuse(const char *from, const char *to, const char *says) {
    char text[4096];
    const char *at = strstr(GOOD, from);
    CHECK(at != NULL);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
    omm_arena arena;
    omm_arena_init(&arena, 16u << 20);
    omm_scenario s;
    CHECK_ERR(parse(&s, &arena, text), OMM_ERR_CONFIG);
    if (!strstr(omm_err_sentence(), says))
        fprintf(stderr, "wanted '%s' in: %s\n", says, omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), says) != NULL);
    omm_arena_fini(&arena);
}

static void test_refusals(void) {
    refuse("rounds: 3", "rounds: 0", "s.yaml:7:9");
    refuse("rounds: 3", "rounds: 3x", "rounds");
    refuse("rounds: 3", "round_count: 3", "round_count");
    refuse("name: two", "name: ../two", "plain name");
    refuse("name: two", "name: .two", "name: '.two' is no plain name");
    refuse("home-02]", "..]", "population.clients: '..' is no plain name");
    refuse("home-02]", "a/b]", "population.clients: 'a/b' is no plain name");
    refuse("model: base/m.gguf", "model: ../m.gguf", "leaves the scenario's folder");
    refuse("recipe:", "policy: ../p.yaml\nrecipe:", "policy: '../p.yaml' leaves the scenario's");
    refuse("hostile: nan, count: 2", "hostile: nan, count: 9999",
           "10001 nodes; accepted: at most 10000");
    refuse("clients: [home-01, home-02]", "clients: [home-01, home-01]", "twice");
    refuse("clients: [home-01, home-02], ", "", "no clients");
    refuse("clients: [home-01", "count: 2, clients: [home-01", "count is for hostile");
    refuse("hostile: nan, count: 2", "hostile: nan", "`count`");
    refuse("hostile: nan, count: 2", "hostile: rude, count: 2", "wrong_base");
    refuse("recipe:", "aggregation: {value_max: 3}\nrecipe:", "power of two");
    refuse("recipe:", "aggregation: {value_max: 0.0000001}\nrecipe:", "2^-16 to 2^15");
    refuse("recipe:", "aggregation: {value_max: 0.00000762939453125}\nrecipe:", "2^-16 to 2^15");
    refuse("recipe:", "aggregation: {weight_sum_max: 1000}\nrecipe:", "power of two");
    refuse("recipe:", "aggregation: {value_max: 8, weight_sum_max: 1099511627776}\nrecipe:",
           "multiples of 1.9e-06");
    refuse("steps: 3", "steps: 3, targets: knees", "knees");
    refuse("steps: 3", "steps: 3, parts: a", "recipe.parts is a: B begins at 0");
    refuse("steps: 3", "steps: 3, optimizer: sgd, beta1: 0.8", "recipe.beta1 is of adamw");
    refuse("steps: 3", "steps: 3, optimizer: adafactor, epsilon: 0.001",
           "recipe.epsilon is of adamw");
    refuse("steps: 3", "steps: 3, optimizer: sgd, beta2: 0.9", "recipe.beta2 is of adamw and");
    refuse("steps: 3", "steps: 3, schedule: constant, lr_min_ratio: 0.5",
           "recipe.lr_min_ratio does");
    refuse("steps: 3", "steps: 3, parts: core, b_rate_ratio: 4", "recipe.b_rate_ratio is the rate");
    refuse("kind: int8", "kind: int9", "int8");
}

/* Nobody may edit what is sealed, and a run that goes on has to be what it began as. */
static void test_what_has_begun(void) {
    static const char *const idle[] = {
        "steps: 3, optimizer: sgd, beta1: 0.8", "steps: 3, schedule: constant, lr_min_ratio: 0.5",
        "steps: 3, parts: a", "steps: 3}\naggregation: {value_max: 32768"};
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        char path[] = "/tmp/omm-scenario-XXXXXX";
        omm_arena arena;
        omm_buf text;
        omm_scenario s;
        const char *at = strstr(GOOD, "steps: 3");
        const int fd = mkstemp(path);
        CHECK(fd >= 0 && at);
        close(fd);
        omm_arena_init(&arena, 16u << 20);
        omm_buf_init(&text, 1u << 20);
        CHECK_OK(omm_buf_printf(&text, "%.*s%s%s", (int)(at - GOOD), GOOD, idle[i],
                                at + strlen("steps: 3")));
        CHECK_OK(omm_file_write_fast(path, omm_buf_view(&text), 0644));
        CHECK_ERR(omm_scenario_load(&s, path, NULL, &arena), OMM_ERR_CONFIG);
        CHECK_OK(omm_scenario_load_begun(&s, path, NULL, &arena));
        CHECK_EQ(s.recipe.steps, 3);
        CHECK_EQ(unlink(path), 0);
        omm_buf_fini(&text);
        omm_arena_fini(&arena);
    }
}

static void test_shipped_scenarios(void) {
    static const char *const names[] = {"quickstart", "stragglers", "hostile", "processes"};
    const char *root = getenv("OMM_SOURCE_DIR");
    for (size_t i = 0; root && i < sizeof names / sizeof names[0]; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/scenarios/%s.yaml", root, names[i]);
        omm_arena arena;
        omm_arena_init(&arena, 16u << 20);
        omm_scenario s;
        CHECK_OK(omm_scenario_load(&s, path, NULL, &arena));
        CHECK(strcmp(s.name, names[i]) == 0);
        omm_arena_fini(&arena);
    }
}

/* Nothing would be trained, and nobody would hear why. */
static void test_more_than_nodes_keep(void) {
    CHECK_OK(sim_setup_check_values("s.yaml", OMM_NODE_ADAPTER_VALUES_MAX));
    CHECK_ERR(sim_setup_check_values("s.yaml", OMM_NODE_ADAPTER_VALUES_MAX + 1), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "an adapter of 240000001 values"));
}

int main(void) {
    test_reads_and_names_nodes();
    test_effective_form_is_a_fixed_point();
    test_value_max();
    test_refusals();
    test_what_has_begun();
    test_shipped_scenarios();
    test_more_than_nodes_keep();
    return 0;
}
