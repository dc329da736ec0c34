/* setup.c - from a scenario file to everything that a run starts from. */
#include "internal.h"

#include "omm/bundle.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/node.h"
#include "omm/policy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SETUP_ARENA_BYTES_MAX (256u << 20)
#define SETUP_YAML_BYTES_MAX (4u << 20)
#define SETUP_RECORD_BYTES_MAX (256u << 20)

/* The file that `key` of the scenario names; it must be there. */
static omm_err resolve(const char **out, sim_setup *setup, const char *file, const char *base_dir,
                       const char *key, const char *path) {
    char joined[OMM_PATH_MAX];
    uint64_t bytes = 0;
    OMM_TRY(omm_path_join(joined, base_dir, path));
    if (!omm_file_exists(joined))
        return omm_raise(OMM_ERR_NOT_FOUND, "%s: %s: there is no %s", file, key, joined);
    /* a bundle is a stranger's: a pipe that nobody writes to would hold its replay for ever */
    OMM_TRY(omm_file_size(&bytes, joined));
    *out = omm_arena_strdup(&setup->arena, joined);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "path %s", joined);
}

static omm_err enroll(sim_setup *setup) {
    OMM_TRY(omm_scenario_nodes(&setup->nodes, &setup->node_count, &setup->scenario, &setup->arena));
    setup->enrolled = omm_arena_alloc(&setup->arena, setup->node_count, sizeof *setup->enrolled);
    if (!setup->enrolled) return omm_raise(OMM_ERR_NOMEM, "%zu nodes", setup->node_count);
    for (size_t i = 0; i < setup->node_count; i++) {
        const omm_scenario_node *node = &setup->nodes[i];
        omm_key key;
        omm_run_node_key(&key, &setup->run_seed, node->name);
        setup->enrolled[i] = (omm_run_enrolled){.name = node->name,
                                                .client = node->client ? node->client : "",
                                                .public_key = key.public_key,
                                                .extra = node->client == NULL};
        omm_key_wipe(&key);
    }
    return OMM_OK;
}

/* The twin of a scenario that sends everything: what compression is compared with. */
static void make_control(omm_scenario *s) {
    s->codec.up = (omm_codec_config){.kind = OMM_CODEC_NONE, .topk_fraction = 1.0};
    s->codec.down = s->codec.up;
    s->control_uncompressed = false;
    s->evaluation.generate = false;
}

/* A run that began when no policy had a bound goes on as it was agreed.  What is not there or not readable is told by who reads it. */
static void keep_begun(omm_policy *policy, const char *bundle, omm_arena *arena) {
    char path[OMM_PATH_MAX];
    omm_policy begun = {0};
    if (!bundle || omm_bundle_file_find(path, NULL, bundle, "policy.yaml") != OMM_OK ||
        omm_config_load(&begun, omm_policy_fields, path, arena) != OMM_OK ||
        begun.bootstrap.has_bound)
        return;
    policy->bootstrap.has_bound = false;
    policy->bootstrap.bound = OMM_BOUND_PERCENTILE;
}

/* Nor does a run of a program that did not count what seq_max cuts begin to say it. */
static bool counts_no_cut(const char *bundle) {
    omm_buf text;
    omm_arena arena;
    omm_run_record begun;
    omm_buf_init(&text, SETUP_RECORD_BYTES_MAX);
    omm_arena_init(&arena, SETUP_ARENA_BYTES_MAX);
    const bool is_there = bundle && omm_bundle_file_read(&text, bundle, "run.json") == OMM_OK &&
                          omm_run_record_parse(&begun, &arena, omm_buf_view(&text)) == OMM_OK;
    const bool says = is_there && (begun.test_cut || begun.test_left_out);
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    return is_there && !says;
}

/* The policy that the scenario in `file` names, from beside it. */
static omm_err load_policy(omm_policy *out, const omm_scenario *s, const char *file,
                           omm_arena *arena) {
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(dir, file));
    OMM_TRY(omm_path_join(path, dir, s->policy));
    if (!omm_file_exists(path))
        return omm_raise(OMM_ERR_NOT_FOUND, "%s: policy: there is no %s", file, path);
    return omm_policy_load(out, path, arena);
}

static omm_err effective_policy(omm_buf *out, const omm_scenario *s, const char *file,
                                const char *begun) {
    omm_policy policy;
    omm_policy_default(&policy);
    omm_arena arena;
    omm_arena_init(&arena, SETUP_ARENA_BYTES_MAX);
    omm_err err = s->policy[0] ? load_policy(&policy, s, file, &arena) : OMM_OK;
    keep_begun(&policy, begun, &arena);
    if (err == OMM_OK) err = omm_config_write(out, omm_policy_fields, &policy);
    omm_arena_fini(&arena);
    return err;
}

uint32_t sim_setup_honest(const sim_setup *setup) {
    uint32_t n = 0;
    for (size_t i = 0; i < setup->node_count; i++) n += setup->nodes[i].client != NULL;
    return n;
}

static omm_err fill_config(sim_setup *setup, const sim_setup_options *options,
                           const char *base_dir) {
    const omm_scenario *s = &setup->scenario;
    omm_run_config *c = &setup->config;
    *c = (omm_run_config){
        .name = s->name,
        .simulated = true,
        .has_seed = true,
        .seed = s->seed,
        .run_seed = setup->run_seed,
        .rounds = s->rounds,
        .policy = {.quorum = s->round.quorum ? s->round.quorum : sim_setup_honest(setup),
                   .select = s->round.select,
                   .accept_min = s->round.accept_min,
                   .join_ms = s->round.join_ms,
                   .deadline_ms = s->round.deadline_ms,
                   .poll_ms = 1000},
        .loss_increase_max = s->round.loss_increase_max,
        .codec_up = s->codec.up,
        .codec_down = s->codec.down,
        .value_max = s->aggregation.value_max,
        .weight_sum_max = s->aggregation.weight_sum_max,
        .norm_max = s->aggregation.norm_max,
        .round_items = s->evaluation.round_items,
        .new_tokens_max = s->evaluation.generate ? s->evaluation.new_tokens_max : 0,
        .test_all_clients = s->evaluation.clients != 0,
        .nodes = setup->enrolled,
        .node_count = setup->node_count,
        .scenario_yaml = omm_buf_view(&setup->scenario_yaml),
        .policy_yaml = omm_buf_view(&setup->policy_yaml),
        .control = s->control_uncompressed ? options->control : NULL,
        .control_ud = options->control_ud};
    OMM_TRY(omm_recipe_from_yaml(&c->recipe, &s->recipe));
    omm_run_coordinator_key(&c->key, &setup->run_seed);
    c->model = options->model;
    if (!c->model)
        OMM_TRY(resolve(&c->model, setup, options->scenario, base_dir, "model", s->model));
    if (!options->own)
        OMM_TRY(resolve(&c->train, setup, options->scenario, base_dir, "train", s->train));
    if (options->skip_test) return OMM_OK;
    return resolve(&c->test, setup, options->scenario, base_dir, "test", s->test);
}

/* A service's own keys and nodes, whose data nobody here knows. */
static void use_own(omm_run_config *c, const omm_scenario *s, const omm_scenario_run_options *own) {
    c->simulated = false;
    c->has_seed = false;
    c->seed = 0;
    c->run_seed = own->run_seed;
    c->key = *own->key;
    c->nodes = own->nodes;
    c->node_count = own->node_count;
    c->node_max = own->node_max;
    c->train = NULL;
    c->policy.quorum = s->round.quorum;
}

static const char *find_base(const sim_setup_options *options, const char *own, const char *model) {
    char path[OMM_PATH_MAX];
    const char *const *dir = options->base_dirs;
    if (!dir) return own;
    for (; dir[1]; dir++)
        if (omm_path_join(path, *dir, model) == OMM_OK && omm_file_exists(path)) break;
    return *dir;
}

/* A client of the population whom the training data do not know, or who has no held-out items. */
static omm_err of_clients(omm_err err, omm_run_fault fault, const char *scenario) {
    switch (fault) {
    case OMM_RUN_FAULT_OTHER: return err;
    case OMM_RUN_FAULT_TRAIN_CLIENT:
        err = omm_raise(err, "population: %s", omm_err_sentence());
        break;
    case OMM_RUN_FAULT_TEST_CLIENT:
        err = omm_raise(err,
                        "test: %s; accepted: held-out items of each client of the population, or "
                        "evaluation: {clients: all}, which counts those of whoever has some",
                        omm_err_sentence());
        break;
    }
    return omm_config_place(err, scenario);
}

omm_err sim_setup_check_values(const char *scenario, uint64_t values) {
    if (values <= OMM_NODE_ADAPTER_VALUES_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s: recipe: an adapter of %" PRIu64
                     " values, and every node would decline it; accepted: up to %u (rank, targets)",
                     scenario, values, OMM_NODE_ADAPTER_VALUES_MAX);
}

static omm_err open_run(sim_setup *setup, const sim_setup_options *options) {
    omm_run_fault fault = OMM_RUN_FAULT_OTHER;
    setup->config.fault = &fault;
    const omm_err err = omm_run_open(&setup->run, &setup->config, options->compute);
    setup->config.fault = NULL;
    if (err != OMM_OK) return of_clients(err, fault, options->scenario);
    return sim_setup_check_values(options->scenario,
                                  omm_run_get_record(setup->run)->layout.value_count);
}

static omm_err open_all(sim_setup *setup, const sim_setup_options *options) {
    char dir[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(dir, options->scenario));
    OMM_TRY((options->has_begun ? omm_scenario_load_begun : omm_scenario_load)(
        &setup->scenario, options->scenario, options->seed, &setup->arena));
    if (options->is_control) make_control(&setup->scenario);
    setup->run_seed = omm_seed_from_u64(setup->scenario.seed);
    OMM_TRY(omm_scenario_write(&setup->scenario_yaml, &setup->scenario));
    if (!options->skip_policy)
        OMM_TRY(effective_policy(&setup->policy_yaml, &setup->scenario, options->scenario,
                                 options->begun));
    OMM_TRY(enroll(setup));
    OMM_TRY(fill_config(setup, options, find_base(options, dir, setup->scenario.model)));
    setup->config.counts_no_cut = counts_no_cut(options->begun);
    if (options->own) use_own(&setup->config, &setup->scenario, options->own);
    return open_run(setup, options);
}

omm_err sim_setup_open(sim_setup *setup, const sim_setup_options *options) {
    *setup = (sim_setup){0};
    omm_arena_init(&setup->arena, SETUP_ARENA_BYTES_MAX);
    omm_buf_init(&setup->scenario_yaml, SETUP_YAML_BYTES_MAX);
    omm_buf_init(&setup->policy_yaml, SETUP_YAML_BYTES_MAX);
    omm_err err = open_all(setup, options);
    if (err != OMM_OK) sim_setup_close(setup);
    return err;
}

void sim_setup_close(sim_setup *setup) {
    omm_run_close(setup->run);
    omm_key_wipe(&setup->config.key);
    omm_buf_fini(&setup->scenario_yaml);
    omm_buf_fini(&setup->policy_yaml);
    omm_arena_fini(&setup->arena);
    *setup = (sim_setup){0};
}
