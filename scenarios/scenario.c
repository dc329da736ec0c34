/* scenario.c - the schema of a scenario file, and what a table cannot check. */
#include "omm/scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCENARIO_YAML_BYTES_MAX (1u << 20)
#define VALUE_MAX_LEAST (1.0 / 65536)
#define VALUE_MAX_MOST 32768.0
#define SUM_RANGE_MOST 0x1p42

const char *const omm_hostile_names[] = {"none",          "unsigned", "wrong_key",    "replayed",
                                         "wrong_context", "nan",      "out_of_range", "wrong_base",
                                         "truncated",     "oversize", "zstd_bomb",    NULL};
_Static_assert(sizeof omm_hostile_names / sizeof omm_hostile_names[0] == OMM_HOSTILE_COUNT + 1,
               "one name per kind");

static const char *const s_clients_names[] = {"federated", "all", NULL};

static const omm_config_field s_client = {.key = "client",
                                          .kind = OMM_CONFIG_KIND_STRING,
                                          .min = 1,
                                          .max = 64,
                                          .help = "a client of the training data"};

static const omm_config_field s_group_fields[] = {
    OMM_CONFIG_STRING(omm_scenario_group, group, .min = 1, .max = 32, .help = "name of the group"),
    {.key = "clients",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(omm_scenario_group, clients),
     .optional = true,
     .max = OMM_SCENARIO_NODES_MAX,
     .item = &s_client,
     .item_size = sizeof(const char *),
     .help = "clients of the training data, one node each"},
    OMM_CONFIG_U32(omm_scenario_group, count, .fallback = "0", .max = OMM_SCENARIO_NODES_MAX,
                   .help = "nodes of a hostile group"),
    OMM_CONFIG_ENUM(omm_scenario_group, hostile, omm_hostile_names, .fallback = "none",
                    .help = "what these nodes do wrong"),
    OMM_CONFIG_REAL(omm_scenario_group, tokens_per_s, .fallback = "2000", .min = 1, .max = 1e9,
                    .help = "virtual training speed"),
    OMM_CONFIG_REAL(omm_scenario_group, slowdown, .fallback = "1", .min = 1, .max = 1e6,
                    .help = "divides the speed"),
    OMM_CONFIG_REAL(omm_scenario_group, uplink_kbit_s, .fallback = "5000", .min = 1, .max = 1e9,
                    .help = "virtual bandwidth to the coordinator"),
    OMM_CONFIG_REAL(omm_scenario_group, downlink_kbit_s, .fallback = "20000", .min = 1, .max = 1e9,
                    .help = "virtual bandwidth from the coordinator"),
    OMM_CONFIG_REAL(omm_scenario_group, latency_ms, .fallback = "30", .max = 1e6,
                    .help = "virtual latency, one way"),
    OMM_CONFIG_REAL(omm_scenario_group, jitter_ms, .fallback = "0", .max = 1e6,
                    .help = "uniform extra latency per message"),
    OMM_CONFIG_REAL(omm_scenario_group, dropout, .fallback = "0", .max = 1,
                    .help = "chance, per node and round, to vanish after taking the offer"),
    {0}};

static const omm_config_field s_group = {
    .key = "group", .kind = OMM_CONFIG_KIND_MAP, .sub = s_group_fields};

static const omm_config_field s_round_fields[] = {
    OMM_CONFIG_U32(omm_scenario_round, quorum, .fallback = "0", .max = OMM_SCENARIO_NODES_MAX,
                   .help = "ready nodes before a round opens; 0: all honest nodes"),
    OMM_CONFIG_U32(omm_scenario_round, select, .fallback = "0", .max = OMM_SCENARIO_NODES_MAX,
                   .help = "nodes selected per round; 0: all that are ready"),
    OMM_CONFIG_U64(omm_scenario_round, deadline_ms, .fallback = "600000", .min = 1000, .max = 1e12,
                   .help = "from opening to the last accepted submission"),
    OMM_CONFIG_U32(omm_scenario_round, accept_min, .fallback = "1", .min = 1,
                   .max = OMM_SCENARIO_NODES_MAX,
                   .help = "fewer accepted submissions make the round void"),
    OMM_CONFIG_U64(omm_scenario_round, join_ms, .fallback = "60000", .max = 1e12,
                   .help =
                       "how long a round waits for its quorum; then it opens with who is ready"),
    OMM_CONFIG_REAL(omm_scenario_round, loss_increase_max, .fallback = "0.5", .max = 100,
                    .help = "an adapter worse by more is not published (nats per token)"),
    {0}};

static const omm_config_field s_codec_fields[] = {
    OMM_CONFIG_MAP(omm_scenario_codecs, up, omm_codec_up_fields, .help = "node to coordinator"),
    OMM_CONFIG_MAP(omm_scenario_codecs, down, omm_codec_down_fields, .help = "coordinator to node"),
    {0}};

static const omm_config_field s_aggregation_fields[] = {
    OMM_CONFIG_REAL(omm_scenario_aggregation, value_max, .fallback = "0", .max = 32768,
                    .help =
                        "largest magnitude of a value, a power of two; 0: as recipe.parts needs "
                        "(1, a core 4 or more)"),
    OMM_CONFIG_U64(omm_scenario_aggregation, weight_sum_max, .fallback = "4294967296", .min = 1,
                   .max = 1099511627776.0, .help = "tokens per round; a power of two"),
    OMM_CONFIG_REAL(omm_scenario_aggregation, norm_max, .fallback = "100", .max = 1e9,
                    .help = "L2 norm of one update; 0: no bound"),
    {0}};

static const omm_config_field s_evaluation_fields[] = {
    OMM_CONFIG_U32(omm_scenario_evaluation, round_items, .fallback = "64", .max = 1000000,
                   .help = "test items for the loss after each round; 0: all"),
    OMM_CONFIG_BOOL(omm_scenario_evaluation, generate, .fallback = "true",
                    .help = "generate replies before and after, for exact match"),
    OMM_CONFIG_U32(omm_scenario_evaluation, new_tokens_max, .fallback = "64", .min = 1, .max = 4096,
                   .help = "longest generated reply"),
    OMM_CONFIG_ENUM(omm_scenario_evaluation, clients, s_clients_names, .fallback = "federated",
                    .help = "whose test items count"),
    {0}};

static const omm_config_field s_audit_fields[] = {
    OMM_CONFIG_U32(omm_scenario_audit, submissions, .fallback = "1", .max = 10000,
                   .help = "sampled submissions that are trained again"),
    OMM_CONFIG_BOOL(omm_scenario_audit, other_threads, .fallback = "true",
                    .help = "train them again with another number of threads"),
    OMM_CONFIG_BOOL(omm_scenario_audit, lower_isa, .fallback = "true",
                    .help = "... and on the next lower instruction set"),
    OMM_CONFIG_U32(omm_scenario_audit, scalar_steps, .fallback = "1", .max = 1000000,
                   .help =
                       "first steps of one submission in plain C, no more than it has; 0: none"),
    {0}};

const omm_config_field omm_scenario_fields[] = {
    OMM_CONFIG_U32(omm_scenario, schema_version, .min = 1, .max = 1, .help = "format of this file"),
    OMM_CONFIG_STRING(omm_scenario, name, .min = 1, .max = 64, .help = "names the bundle"),
    OMM_CONFIG_U64(omm_scenario, seed, .fallback = "1", .max = 9007199254740992.0,
                   .help = "every random choice of the run comes from it"),
    OMM_CONFIG_STRING(omm_scenario, model, .min = 1, .max = 1024,
                      .help = "GGUF base model, relative to this file"),
    OMM_CONFIG_STRING(omm_scenario, train, .min = 1, .max = 1024,
                      .help = "chat JSONL, or one JSON array, with `client`"),
    OMM_CONFIG_STRING(omm_scenario, test, .min = 1, .max = 1024, .help = "held-out, as train"),
    OMM_CONFIG_U32(omm_scenario, rounds, .min = 1, .max = 10000, .help = "how many"),
    {.key = "population",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(omm_scenario, population),
     .min = 1,
     .max = 1000,
     .item = &s_group,
     .item_size = sizeof(omm_scenario_group),
     .help = "groups of nodes"},
    OMM_CONFIG_MAP(omm_scenario, round, s_round_fields, .help = "when a round opens and closes"),
    OMM_CONFIG_MAP(omm_scenario, recipe, omm_recipe_fields, .help = "what every node trains"),
    OMM_CONFIG_MAP(omm_scenario, codec, s_codec_fields, .help = "how deltas travel"),
    OMM_CONFIG_MAP(omm_scenario, aggregation, s_aggregation_fields, .help = "bounds of the sum"),
    OMM_CONFIG_MAP(omm_scenario, evaluation, s_evaluation_fields, .help = "held-out measurement"),
    OMM_CONFIG_BOOL(omm_scenario, control_uncompressed, .fallback = "false",
                    .help = "also run without compression, and compare"),
    OMM_CONFIG_MAP(omm_scenario, audit, s_audit_fields,
                   .help = "what is trained again to compare bytes"),
    OMM_CONFIG_STRING(omm_scenario, policy, .fallback = "", .max = 1024,
                      .help = "gate policy, relative to this file; empty: the defaults"),
    {0}};

/* Letters, digits, '-', '_' and '.', not starting with a dot: safe in paths, logs and metrics. */
static bool is_plain_name(const char *name) {
    if (name[0] == '.' || !name[0]) return false;
    return name[strspn(name,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] == 0;
}

omm_err omm_scenario_check_name(const char *file, const char *key, const char *name) {
    if (is_plain_name(name)) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s: %s: '%s' is no plain name; accepted: letters, digits, '-', '_', '.'",
                     file, key, name);
}

static bool is_power_of_two(double value) {
    int exponent = 0;
    return frexp(value, &exponent) == 0.5;
}

static omm_err check_group(const char *file, const omm_scenario_group *g) {
    OMM_TRY(omm_scenario_check_name(file, "population.group", g->group));
    if (g->hostile == OMM_HOSTILE_NONE) {
        if (g->clients.count == 0)
            return omm_raise(OMM_ERR_CONFIG,
                             "%s: population: group %s has no clients; accepted: a list of "
                             "clients of the training data",
                             file, g->group);
        if (g->count != 0)
            return omm_raise(
                OMM_ERR_CONFIG,
                "%s: population: group %s: count is for hostile groups; honest nodes are named in "
                "`clients`",
                file, g->group);
    } else if (g->clients.count != 0 || g->count == 0) {
        return omm_raise(
            OMM_ERR_CONFIG,
            "%s: population: group %s is hostile: accepted is a `count` of at least 1 and no "
            "`clients`",
            file, g->group);
    }
    const char *const *clients = g->clients.items;
    for (size_t i = 0; i < g->clients.count; i++)
        OMM_TRY(omm_scenario_check_name(file, "population.clients", clients[i]));
    return OMM_OK;
}

/* Names of all nodes differ: two equal names would share a key. */
static omm_err check_distinct(const char *file, const omm_scenario *s) {
    omm_arena arena;
    omm_arena_init(&arena, 64u << 20);
    omm_scenario_node *nodes = NULL;
    size_t count = 0;
    omm_err err = omm_scenario_nodes(&nodes, &count, s, &arena);
    if (err == OMM_OK && count > OMM_SCENARIO_NODES_MAX)
        err = omm_raise(OMM_ERR_CONFIG, "%s: population: %zu nodes; accepted: at most %u", file,
                        count, OMM_SCENARIO_NODES_MAX);
    for (size_t i = 0; err == OMM_OK && i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(nodes[i].name, nodes[j].name) == 0) {
                err = omm_raise(OMM_ERR_CONFIG,
                                "%s: population: node '%s' occurs twice; accepted: each name once",
                                file, nodes[i].name);
                break;
            }
    omm_arena_fini(&arena);
    return err;
}

static omm_err check_path(const char *file, const char *key, const char *path) {
    if (path[0] == '/' || omm_path_is_inside(path)) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s: %s: '%s' leaves the scenario's folder; accepted: a path below it, or an "
                     "absolute one",
                     file, key, path);
}

static omm_err check(const char *file, const omm_scenario *s) {
    OMM_TRY(omm_scenario_check_name(file, "name", s->name));
    OMM_TRY(check_path(file, "model", s->model));
    OMM_TRY(check_path(file, "train", s->train));
    OMM_TRY(check_path(file, "test", s->test));
    if (s->policy[0]) OMM_TRY(check_path(file, "policy", s->policy));
    const omm_scenario_group *groups = s->population.items;
    for (size_t i = 0; i < s->population.count; i++) OMM_TRY(check_group(file, &groups[i]));
    OMM_TRY(check_distinct(file, s));
    if (!is_power_of_two(s->aggregation.value_max) || s->aggregation.value_max < VALUE_MAX_LEAST)
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: aggregation.value_max is %g; accepted: a power of two from 2^-16 to "
                         "2^15, or 0 for what recipe.parts needs",
                         file, s->aggregation.value_max);
    if (s->aggregation.weight_sum_max & (s->aggregation.weight_sum_max - 1))
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: aggregation.weight_sum_max is %llu; accepted: a power of two", file,
                         (unsigned long long)s->aggregation.weight_sum_max);
    return OMM_OK;
}

/* A core starts at zero and moves at some ten times the rate of A and B: by AdamW at most rate x steps a
 * round, and as much again may wait as residual. */
static double value_max_for(const omm_recipe_yaml *r) {
    if (r->parts != OMM_RECIPE_PARTS_CORE) return 1;
    double bound = 4;
    while (bound < 2 * r->learning_rate * r->steps && bound < VALUE_MAX_MOST) bound *= 2;
    return bound;
}

/* What is added is a multiple of value_max x weight_sum_max over 2^62 (omm/fedavg.h): where values are far smaller than
 * value_max, all may be rounded to none. */
static omm_err check_sum_range(const char *file, const omm_scenario *s) {
    const omm_scenario_aggregation *a = &s->aggregation;
    const double range = a->value_max * (double)a->weight_sum_max;
    if (range <= SUM_RANGE_MOST || a->value_max <= value_max_for(&s->recipe)) return OMM_OK;
    return omm_raise(
        OMM_ERR_CONFIG,
        "%s: aggregation: value_max %g times weight_sum_max %llu: updates would be rounded to "
        "multiples of %.2g; accepted: a product of at most 2^42, multiples of 2^-20",
        file, a->value_max, (unsigned long long)a->weight_sum_max, range * 0x1p-62);
}

/* A key that nothing reads beside the others changes the run's digest and nothing else. */
static omm_err check_idle(const char *file, const omm_recipe *r) {
    const omm_recipe usual = omm_recipe_default();
    const bool adamw = r->optimizer == OMM_RECIPE_ADAMW, sgd = r->optimizer == OMM_RECIPE_SGD;
    const struct {
        bool is_idle;
        const char *sentence;
    } all[] = {
        {!adamw && r->beta1 != usual.beta1, "beta1 is of adamw"},
        {!adamw && r->epsilon != usual.epsilon, "epsilon is of adamw"},
        {sgd && r->beta2 != usual.beta2, "beta2 is of adamw and adafactor"},
        {r->schedule == OMM_RECIPE_CONSTANT && r->lr_min_ratio != usual.lr_min_ratio,
         "lr_min_ratio does not go with schedule: constant"},
        {r->parts == OMM_RECIPE_PARTS_CORE && r->b_rate_ratio != usual.b_rate_ratio,
         "b_rate_ratio is the rate of B, which parts: core leaves alone"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is_idle)
            return omm_raise(OMM_ERR_CONFIG, "%s: recipe.%s; accepted: without it", file,
                             all[i].sentence);
    return OMM_OK;
}

/* What is left to follow from the rest is written out: the effective form has it as a number. */
static omm_err finish(omm_scenario *out, const char *file, const uint64_t *seed, bool has_begun) {
    if (seed) out->seed = *seed;
    omm_recipe recipe;
    OMM_TRY(omm_recipe_from_yaml(&recipe, &out->recipe));
    if (recipe.parts == OMM_RECIPE_PARTS_A && !has_begun)
        return omm_raise(
            OMM_ERR_CONFIG,
            "%s: recipe.parts is a: B begins at 0, where A has no gradient, so nothing "
            "would be learned; accepted: ab, b, core",
            file);
    if (!has_begun) OMM_TRY(check_idle(file, &recipe));
    if (out->aggregation.value_max == 0) out->aggregation.value_max = value_max_for(&out->recipe);
    OMM_TRY(check(file, out));
    return has_begun ? OMM_OK : check_sum_range(file, out);
}

omm_err omm_scenario_load(omm_scenario *out, const char *path, const uint64_t *seed,
                          omm_arena *arena) {
    OMM_TRY(omm_config_load(out, omm_scenario_fields, path, arena));
    return omm_config_place(finish(out, path, seed, false), path);
}

omm_err omm_scenario_load_begun(omm_scenario *out, const char *path, const uint64_t *seed,
                                omm_arena *arena) {
    OMM_TRY(omm_config_load(out, omm_scenario_fields, path, arena));
    return omm_config_place(finish(out, path, seed, true), path);
}

omm_err omm_scenario_parse(omm_scenario *out, omm_bytes text, const char *name,
                           const uint64_t *seed, omm_arena *arena) {
    OMM_TRY(omm_config_parse(out, omm_scenario_fields, text, name, arena));
    return finish(out, name, seed, false);
}

omm_err omm_scenario_write(omm_buf *out, const omm_scenario *scenario) {
    return omm_config_write(out, omm_scenario_fields, scenario);
}

omm_err omm_scenario_digest(omm_digest *out, const omm_scenario *scenario) {
    omm_buf text;
    omm_buf_init(&text, SCENARIO_YAML_BYTES_MAX);
    omm_err err = omm_scenario_write(&text, scenario);
    if (err == OMM_OK) *out = omm_hash(omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

static size_t group_size(const omm_scenario_group *g) {
    return g->hostile == OMM_HOSTILE_NONE ? g->clients.count : g->count;
}

size_t omm_scenario_node_count(const omm_scenario *scenario) {
    const omm_scenario_group *groups = scenario->population.items;
    size_t total = 0;
    for (size_t i = 0; i < scenario->population.count; i++) total += group_size(&groups[i]);
    return total;
}

static omm_err name_node(omm_scenario_node *node, const omm_scenario_group *g, size_t index,
                         omm_arena *arena) {
    *node = (omm_scenario_node){.group = g};
    if (g->hostile == OMM_HOSTILE_NONE) {
        node->name = node->client = ((const char *const *)g->clients.items)[index];
        return OMM_OK;
    }
    char name[64];
    snprintf(name, sizeof name, "%s-%02zu", g->group, index + 1);
    node->name = omm_arena_strdup(arena, name);
    return node->name ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "name of node %s", name);
}

omm_err omm_scenario_nodes(omm_scenario_node **nodes, size_t *count, const omm_scenario *scenario,
                           omm_arena *arena) {
    const omm_scenario_group *groups = scenario->population.items;
    const size_t total = omm_scenario_node_count(scenario);
    omm_scenario_node *all = omm_arena_alloc(arena, total + 1, sizeof *all);
    if (!all) return omm_raise(OMM_ERR_NOMEM, "%zu nodes", total);
    size_t n = 0;
    for (size_t i = 0; i < scenario->population.count; i++)
        for (size_t j = 0; j < group_size(&groups[i]); j++)
            OMM_TRY(name_node(&all[n++], &groups[i], j, arena));
    *nodes = all;
    *count = total;
    return OMM_OK;
}
