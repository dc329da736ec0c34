/* run.c - everything that follows from a run's configuration: what the simulator and the service
 * both start from. */
#include "omm/run_config.h"

#include "omm/compute.h"
#include "omm/dataset.h"
#include "omm/evaluate.h"
#include "omm/federated.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/model.h"
#include "omm/overlap.h"
#include "omm/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define RUN_ARENA_BYTES ((size_t)256 << 20)
#define RUN_RECIPE_BYTES_MAX 4096u
#define RUN_REPLIES_BYTES_MAX ((size_t)256 << 20)

typedef struct run_client {
    const char *name;
    omm_dataset *data;
} run_client;

struct omm_run {
    omm_arena arena;
    omm_run_record record;
    omm_coord_policy policy;
    omm_seed run_seed;
    omm_key key;
    omm_bytes scenario_yaml, policy_yaml;
    const omm_compute *compute;
    uint32_t new_tokens_max;
    omm_err (*control)(void *ud, omm_buf *jsonl);
    void *control_ud;
    void (*judged)(void *ud, size_t items, bool generates); /* NULL: nobody watches */
    void *judged_ud;

    const char *model_path;
    omm_model model;
    bool has_model;
    omm_tokenizer *tokenizer;
    omm_recipe recipe;
    omm_lora
        initial; /* names and sizes of what is sent about; its values are made when they are read */
    bool has_initial;
    omm_dataset *train, *test, *sample;
    run_client *clients;
    size_t client_count;
    bool *extra;
    omm_run_node *nodes; /* (node_max) of record */
    size_t listed;       /* of them when the run was opened */
    uint32_t node_max;
};

/* ---- the model ---- */

static omm_err no_memory(const char *what) {
    return omm_raise(OMM_ERR_NOMEM, "%s", what);
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static omm_err open_model(omm_run *run, const omm_run_config *config) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, config->model));
    omm_err err = omm_model_load(&run->model, &gguf);
    run->has_model = err == OMM_OK;
    if (err == OMM_OK) err = omm_tokenizer_open(&run->tokenizer, &gguf);
    run->record.base.bytes = omm_gguf_bytes(&gguf);
    run->record.base.digest = omm_gguf_digest(&gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    run->model_path = omm_arena_strdup(&run->arena, config->model);
    if (!run->model_path) return no_memory("model path");
    run->record.base.name = omm_arena_strdup(&run->arena, file_name(config->model));
    run->record.base.architecture =
        omm_arena_strdup(&run->arena, run->model.lora_shape.architecture);
    run->record.base.fingerprint = run->model.lora_shape.base.fingerprint;
    run->record.base.title = omm_arena_strdup(&run->arena, run->model.lora_shape.base.name);
    if (!run->record.base.name || !run->record.base.architecture || !run->record.base.title)
        return no_memory("model name");
    run->record.base.tokenizer_digest = omm_tokenizer_digest(run->tokenizer);
    return OMM_OK;
}

/* ---- the adapter and its codecs ---- */

static omm_err make_layout(omm_run *run) {
    const omm_lora *lora = &run->initial;
    omm_segment *segments = omm_arena_alloc(&run->arena, lora->tensor_count, sizeof *segments);
    if (!segments) return no_memory("layout");
    for (size_t i = 0; i < lora->tensor_count; i++)
        segments[i] = (omm_segment){lora->tensors[i].name, lora->tensors[i].rows,
                                    lora->tensors[i].cols, lora->tensors[i].offset};
    run->record.layout = (omm_layout){segments, lora->tensor_count, lora->value_count};
    return omm_layout_check(&run->record.layout);
}

static omm_federated federated(const omm_run *run) {
    return (omm_federated){
        .recipe = &run->recipe, .shape = &run->model.lora_shape, .base = run->record.base.digest};
}

static omm_err begin_adapter(omm_lora *out, const omm_run *run) {
    const omm_federated f = federated(run);
    const omm_rng lane = omm_rng_init(&run->run_seed, OMM_PURPOSE_ADAPTER_INIT, 0, 0);
    return omm_federated_begin(out, &f, &lane);
}

/* What is sent about, before round 0. */
static omm_err read_initial(void *ud, float *values) {
    const omm_run *run = ud;
    omm_lora lora;
    OMM_TRY(begin_adapter(&lora, run));
    memcpy(values, lora.values, lora.value_count * sizeof *values);
    omm_lora_fini(&lora);
    return OMM_OK;
}

static omm_err make_adapter(omm_run *run, const omm_run_config *config) {
    omm_lora_spec spec;
    run->recipe = config->recipe;
    const omm_federated f = federated(run);
    OMM_TRY(omm_federated_spec(&spec, &f));
    OMM_TRY(begin_adapter(&run->initial, run));
    run->has_initial = true;
    omm_free(run->initial.values);
    run->initial.values = NULL;
    run->record.rank = spec.rank;
    run->record.alpha = spec.alpha;
    run->record.targets = spec.targets;
    OMM_TRY(make_layout(run));
    OMM_TRY(omm_codec_resolve(&run->record.codec_up, &config->codec_up, &run->record.layout));
    return omm_codec_resolve(&run->record.codec_down, &config->codec_down, &run->record.layout);
}

static omm_err make_recipe(omm_run *run, const omm_run_config *config) {
    omm_buf bytes;
    omm_buf_init(&bytes, RUN_RECIPE_BYTES_MAX);
    omm_err err = omm_recipe_validate(&config->recipe);
    if (err == OMM_OK) err = omm_recipe_check_base(&config->recipe, &run->model);
    if (err == OMM_OK) err = omm_recipe_encode(&bytes, &config->recipe);
    uint8_t *copy = err == OMM_OK ? omm_arena_alloc(&run->arena, bytes.size, 1) : NULL;
    if (err == OMM_OK && !copy) err = no_memory("recipe");
    if (err == OMM_OK) {
        memcpy(copy, bytes.data, bytes.size);
        run->record.recipe = omm_bytes_of(copy, bytes.size);
    }
    omm_buf_fini(&bytes);
    return err;
}

/* ---- the nodes and their data ---- */

static void set_fault(const omm_run_config *config, omm_run_fault fault) {
    if (config->fault) *config->fault = fault;
}

static omm_err select_client(omm_run *run, const omm_run_config *config, const char *name,
                             omm_digest *digest, uint64_t *examples) {
    run_client *client = &run->clients[run->client_count];
    const omm_err err = omm_dataset_select(&client->data, run->train, &name, 1);
    if (err == OMM_ERR_NOT_FOUND) set_fault(config, OMM_RUN_FAULT_TRAIN_CLIENT);
    if (err != OMM_OK) return omm_raise(err, "train: %s", omm_err_sentence());
    client->name = omm_arena_strdup(&run->arena, name);
    if (!client->name) {
        omm_dataset_close(client->data);
        return no_memory("client name");
    }
    run->client_count++;
    *digest = omm_dataset_digest(client->data);
    *examples = omm_dataset_count(client->data);
    return OMM_OK;
}

typedef struct enrolled {
    omm_run_node node;
    bool extra;
} enrolled;

static int by_id(const void *a, const void *b) {
    return omm_digest_compare(&((const enrolled *)a)->node.id, &((const enrolled *)b)->node.id);
}

static omm_err fill_node(enrolled *out, omm_run *run, const omm_run_config *config,
                         const omm_run_enrolled *from) {
    out->extra = from->extra;
    out->node = (omm_run_node){.name = omm_arena_strdup(&run->arena, from->name),
                               .id = omm_key_id(&from->public_key),
                               .public_key = from->public_key,
                               .client = omm_arena_strdup(&run->arena, from->client)};
    if (!out->node.name || !out->node.client) return no_memory("node name");
    if (!run->train || !from->client[0]) return OMM_OK;
    return select_client(run, config, from->client, &out->node.data_digest, &out->node.examples);
}

static omm_err enroll(omm_run *run, const omm_run_config *config) {
    size_t n = config->node_count;
    size_t most = config->node_max ? config->node_max : n;
    if (most == 0) return omm_raise(OMM_ERR_CONFIG, "no node is enrolled");
    if (most < n || most > OMM_SELECTED_MAX)
        return omm_raise(OMM_ERR_CONFIG, "node_max: %zu; accepted: %zu, who is enrolled, to %u",
                         most, n, OMM_SELECTED_MAX);
    enrolled *all = omm_arena_alloc(&run->arena, most, sizeof *all);
    omm_run_node *nodes = omm_arena_alloc(&run->arena, most, sizeof *nodes);
    run->extra = omm_arena_alloc(&run->arena, most, sizeof *run->extra);
    run->clients = omm_arena_alloc(&run->arena, most, sizeof *run->clients);
    if (!all || !nodes || !run->extra || !run->clients) return no_memory("nodes");
    for (size_t i = 0; i < n; i++) OMM_TRY(fill_node(&all[i], run, config, &config->nodes[i]));
    qsort(all, n, sizeof *all, by_id);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && omm_digest_equal(&all[i].node.id, &all[i - 1].node.id))
            return omm_raise(OMM_ERR_CONFIG, "nodes %s and %s have one key", all[i - 1].node.name,
                             all[i].node.name);
        if (i > 0 && omm_bundle_is_same_node(&all[i].node.id, &all[i - 1].node.id))
            return omm_raise(OMM_ERR_CONFIG,
                             "nodes %s and %s: their keys' ids begin alike, and their files in the "
                             "bundle would have one name; one of them needs another key",
                             all[i - 1].node.name, all[i].node.name);
        nodes[i] = all[i].node;
        run->extra[i] = all[i].extra;
    }
    run->nodes = nodes;
    run->node_max = (uint32_t)most;
    run->listed = n;
    run->record.nodes = nodes;
    run->record.node_count = n;
    return OMM_OK;
}

/* ---- held-out data ---- */

/* What verify takes of their rows, too. */
static omm_err make_sample(omm_run *run, const omm_run_config *config) {
    const size_t n = omm_dataset_count(run->test);
    omm_digest *items = omm_alloc(n, sizeof *items);
    bool *keep = omm_alloc(n, sizeof *keep);
    omm_err err = items && keep ? OMM_OK : no_memory("held-out sample");
    for (size_t i = 0; err == OMM_OK && i < n; i++)
        items[i] = omm_dataset_example(run->test, i)->digest;
    if (err == OMM_OK)
        err = omm_eval_sample(keep, items, n, config->round_items ? config->round_items : n);
    if (err == OMM_OK) err = omm_dataset_pick(&run->sample, run->test, keep);
    omm_free(items);
    omm_free(keep);
    return err;
}

/* Where the nodes' data are here: a held-out example that one of them trains on judges nothing. */
static omm_err check_held_out(const omm_run *run, const omm_run_config *config) {
    for (size_t i = 0; i < run->client_count; i++) {
        omm_overlap same;
        if (!run->clients[i].data) continue;
        OMM_TRY(omm_dataset_overlap(&same, run->test, run->clients[i].data));
        if (same.count == 0) continue;
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: %llu of %zu held-out examples, the first in %s %u, are also what "
                         "%s trains on, so they would judge nothing; `meshmind data check TRAIN "
                         "TEST` names all",
                         config->test, (unsigned long long)same.count, omm_dataset_count(run->test),
                         omm_dataset_totals(run->test)->is_array ? "element" : "line",
                         same.first[0].place, run->clients[i].name);
    }
    return OMM_OK;
}

static omm_err open_test(omm_run *run, const omm_run_config *config) {
    omm_dataset_options options = {.seq_max = config->recipe.seq_max};
    const char **clients = NULL;
    if (!config->test_all_clients && run->client_count > 0) {
        clients = omm_alloc(run->client_count, sizeof *clients);
        if (!clients) return no_memory("clients");
        for (size_t i = 0; i < run->client_count; i++) clients[i] = run->clients[i].name;
        options.clients = clients;
        options.client_count = run->client_count;
    }
    omm_err err = omm_dataset_load(&run->test, config->test, run->tokenizer, &options);
    omm_free(clients);
    if (err == OMM_ERR_NOT_FOUND && options.clients && omm_file_exists(config->test))
        set_fault(config, OMM_RUN_FAULT_TEST_CLIENT);
    OMM_TRY(err);
    OMM_TRY(omm_hash_file(&run->record.test_digest, config->test));
    run->record.test_items = omm_dataset_count(run->test);
    if (!config->counts_no_cut) {
        run->record.test_cut = omm_dataset_totals(run->test)->truncated;
        run->record.test_left_out = omm_dataset_totals(run->test)->dropped;
    }
    OMM_TRY(check_held_out(run, config));
    return make_sample(run, config);
}

/* ---- open ---- */

static omm_err fill_record(omm_run *run, const omm_run_config *config) {
    omm_run_record *r = &run->record;
    r->name = omm_arena_strdup(&run->arena, config->name);
    if (!r->name) return no_memory("run name");
    omm_run_id(r->run_id, &config->run_seed, config->scenario_yaml);
    r->has_seed = config->has_seed;
    r->seed = config->seed;
    r->simulated = config->simulated;
    r->rounds = config->rounds;
    r->value_max = config->value_max;
    r->weight_sum_max = config->weight_sum_max;
    r->norm_max = config->norm_max;
    r->loss_increase_max = config->loss_increase_max;
    r->coordinator_key = config->key.public_key;
    /* All nodes together never pass the sum's bound, so arrival order decides nothing; and no node
     * weighs more than the recipe can train: a step takes one example or what fits its batch. */
    const omm_recipe *recipe = &config->recipe;
    uint64_t share = config->weight_sum_max / run->node_max;
    uint64_t trained =
        (uint64_t)recipe->steps *
        (recipe->seq_max > recipe->batch_tokens ? recipe->seq_max : recipe->batch_tokens);
    if (trained < share) share = trained;
    r->tokens_max = config->tokens_max && config->tokens_max < share ? config->tokens_max : share;
    return r->tokens_max > 0 ? OMM_OK
                             : omm_raise(OMM_ERR_CONFIG, "weight_sum_max is below one per node");
}

static omm_err open_parts(omm_run *run, const omm_run_config *config) {
    OMM_TRY(open_model(run, config));
    OMM_TRY(make_adapter(run, config));
    OMM_TRY(make_recipe(run, config));
    omm_dataset_options options = {.seq_max = config->recipe.seq_max};
    if (config->train)
        OMM_TRY(omm_dataset_load(&run->train, config->train, run->tokenizer, &options));
    OMM_TRY(enroll(run, config));
    if (config->test) OMM_TRY(open_test(run, config));
    return fill_record(run, config);
}

omm_err omm_run_open(omm_run **out, const omm_run_config *config,
                     const struct omm_compute *compute) {
    omm_run *run = omm_alloc(1, sizeof *run);
    if (!run) return no_memory("run");
    omm_arena_init(&run->arena, RUN_ARENA_BYTES);
    run->policy = config->policy;
    run->run_seed = config->run_seed;
    run->key = config->key;
    run->scenario_yaml = config->scenario_yaml;
    run->policy_yaml = config->policy_yaml;
    run->compute = compute;
    run->new_tokens_max = config->new_tokens_max;
    run->control = config->control;
    run->control_ud = config->control_ud;
    omm_err err = open_parts(run, config);
    if (err != OMM_OK) {
        omm_run_close(run);
        return err;
    }
    *out = run;
    return OMM_OK;
}

void omm_run_close(omm_run *run) {
    if (!run) return;
    for (size_t i = 0; i < run->client_count; i++) omm_dataset_close(run->clients[i].data);
    if (run->sample) omm_dataset_close(run->sample);
    if (run->test) omm_dataset_close(run->test);
    if (run->train) omm_dataset_close(run->train);
    if (run->has_initial) omm_lora_fini(&run->initial);
    if (run->tokenizer) omm_tokenizer_close(run->tokenizer);
    if (run->has_model) omm_model_fini(&run->model);
    omm_key_wipe(&run->key);
    omm_arena_fini(&run->arena);
    omm_free(run);
}

/* ---- evaluation ---- */

typedef struct watch {
    const omm_run *run;
    size_t told;
    bool generates;
} watch;

static void on_judged(void *ud, size_t done, size_t total) {
    watch *w = ud;
    (void)total;
    if (done > w->told) w->run->judged(w->run->judged_ud, done - w->told, w->generates);
    w->told = done;
}

static omm_err evaluate(omm_eval_item **items, const omm_run *run, const omm_coord_values *values,
                        const omm_dataset *data, const omm_eval_options *how) {
    const omm_federated f = federated(run);
    omm_lora lora = {0};
    watch w = {.run = run, .generates = how->new_tokens_max > 0};
    omm_eval_options options = *how;
    if (run->judged) {
        options.progress = on_judged;
        options.ud = &w;
    }
    *items = omm_alloc(omm_dataset_count(data), sizeof **items);
    if (!*items) return no_memory("evaluation");
    if (values)
        OMM_TRY(omm_federated_adapter_read(&lora, &f, values->read, values->ud, run->compute));
    const omm_err err =
        omm_evaluate(*items, &run->model, values ? &lora : NULL, data, run->compute, &options);
    if (values) omm_lora_fini(&lora);
    if (err == OMM_OK && run->judged) on_judged(&w, omm_dataset_count(data), 0);
    return err;
}

static omm_err evaluate_sample(void *ud, uint64_t *count, double *loss,
                               const omm_coord_values *values) {
    const omm_run *run = ud;
    omm_eval_options options = {.rope_positions = run->recipe.seq_max};
    omm_eval_item *items = NULL;
    size_t n = omm_dataset_count(run->sample);
    omm_err err = evaluate(&items, run, values, run->sample, &options);
    if (err == OMM_OK) {
        *count = n;
        *loss = omm_eval_summarise(items, n).loss;
    }
    omm_free(items);
    return err;
}

static omm_eval_record record_of(const omm_example *example, const omm_eval_item *item,
                                 bool generated) {
    bool tool = item->is_call;
    return (omm_eval_record){.item = example->digest,
                             .client = example->client,
                             .skill = example->skill,
                             .nll = item->nll,
                             .tokens = item->tokens,
                             .is_tool = tool,
                             .generated = generated,
                             .parsed = item->call_parses,
                             .tool_ok = item->tool_right,
                             .exact = tool ? item->call_exact : item->reply_exact,
                             .reply = generated && item->reply ? item->reply : ""};
}

static omm_err evaluate_full(void *ud, omm_buf *jsonl, const omm_coord_values *values) {
    const omm_run *run = ud;
    omm_arena replies;
    omm_arena_init(&replies, RUN_REPLIES_BYTES_MAX);
    omm_eval_options options = {.new_tokens_max = run->new_tokens_max,
                                .rope_positions = run->recipe.seq_max,
                                .tokenizer = run->tokenizer,
                                .replies = &replies};
    omm_eval_item *items = NULL;
    omm_err err = evaluate(&items, run, values, run->test, &options);
    size_t n = omm_dataset_count(run->test);
    for (size_t i = 0; i < n && err == OMM_OK; i++) {
        omm_eval_record record =
            record_of(omm_dataset_example(run->test, i), &items[i], run->new_tokens_max > 0);
        err = omm_eval_record_write(jsonl, &record);
    }
    omm_free(items);
    omm_arena_fini(&replies);
    return err;
}

static omm_err render(void *ud, omm_buf *gguf, const omm_coord_values *values) {
    const omm_run *run = ud;
    const omm_federated f = federated(run);
    return omm_federated_save_read(gguf, &f, values->read, values->ud, run->compute);
}

static omm_err control(void *ud, omm_buf *jsonl) {
    const omm_run *run = ud;
    return run->control(run->control_ud, jsonl);
}

/* ---- who joins ---- */

static omm_err admit(void *ud, const char *name, const omm_public_key *key) {
    omm_run *run = ud;
    OMM_ASSERT(run->record.node_count < run->node_max);
    omm_run_node node = {.name = omm_arena_strdup(&run->arena, name),
                         .id = omm_key_id(key),
                         .public_key = *key,
                         .client = ""};
    if (!node.name) return no_memory("node name");
    run->nodes[run->record.node_count++] = node;
    return OMM_OK;
}

static void retract(void *ud) {
    omm_run *run = ud;
    run->record.node_count--;
}

void omm_run_enrolment(omm_coord_enrolment *out, omm_run *run, omm_clock clock) {
    *out = (omm_coord_enrolment){.listed = run->listed,
                                 .node_max = run->node_max,
                                 .clock = clock,
                                 .admit = admit,
                                 .retract = retract,
                                 .ud = run};
}

void omm_run_coord_options(omm_coord_options *out, const omm_run *run) {
    void *ud = NULL;
    memcpy(&ud, &run, sizeof ud); /* the callbacks only read it */
    *out = (omm_coord_options){.run = &run->record,
                               .extra = run->extra,
                               .scenario_yaml = run->scenario_yaml,
                               .policy_yaml = run->policy_yaml,
                               .run_seed = run->run_seed,
                               .steps = run->recipe.steps,
                               .initial = {read_initial, ud},
                               .key = &run->key,
                               .policy = run->policy,
                               .evaluator = {.sample = evaluate_sample,
                                             .full = evaluate_full,
                                             .render = render,
                                             .control = run->control ? control : NULL,
                                             .ud = ud}};
}

/* ---- queries ---- */

void omm_run_watch(omm_run *run, void (*judged)(void *ud, size_t items, bool generates), void *ud) {
    run->judged = judged;
    run->judged_ud = ud;
}

const omm_run_record *omm_run_get_record(const omm_run *run) {
    return &run->record;
}

const char *omm_run_model_path(const omm_run *run) {
    return run->model_path;
}

const struct omm_model *omm_run_model(const omm_run *run) {
    return &run->model;
}

const struct omm_tokenizer *omm_run_tokenizer(const omm_run *run) {
    return run->tokenizer;
}

const struct omm_compute *omm_run_compute(const omm_run *run) {
    return run->compute;
}

const struct omm_dataset *omm_run_test_data(const omm_run *run) {
    return run->test;
}

const struct omm_dataset *omm_run_train_data(const omm_run *run) {
    return run->train;
}

const struct omm_dataset *omm_run_client_data(const omm_run *run, const char *client) {
    for (size_t i = 0; i < run->client_count; i++)
        if (strcmp(run->clients[i].name, client) == 0) return run->clients[i].data;
    return NULL;
}
