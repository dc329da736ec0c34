/* cmd_node.c - `meshmind node -c FILE`: train for a coordinator on data that stays here. */
#include "commands.h"
#include "options.h"
#include "service_config.h"

#include "omm/dataset.h"
#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/model.h"
#include "omm/node_service.h"
#include "omm/scenario_run.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <string.h>

typedef struct node_limits_file {
    uint32_t rank_max, steps_max;
    uint64_t tokens_max, pass_tokens_max;
    uint64_t adapter_values_max, download_bytes_max, upload_bytes_max;
} node_limits_file;

typedef struct node_file {
    const char *coordinator, *name, *state_dir, *scenario, *key, *coordinator_key, *model, *data,
        *client, *run_id, *log_level, *tls_certificate;
    uint32_t threads, checkpoint_steps;
    uint64_t answer_ms;
    node_limits_file limits;
} node_file;

static const omm_config_field s_limits[] = {
    OMM_CONFIG_U32(node_limits_file, rank_max, .fallback = "256", .min = 1, .max = 1024,
                   .help = "largest adapter rank we train"),
    OMM_CONFIG_U32(node_limits_file, steps_max, .fallback = "100000", .min = 1, .max = 1e6,
                   .help = "most optimiser steps per round"),
    OMM_CONFIG_U64(node_limits_file, tokens_max, .fallback = "100000000", .min = 1, .max = 1e15,
                   .help = "tokens we train in one round: time"),
    OMM_CONFIG_U64(node_limits_file, pass_tokens_max, .fallback = "8192", .min = 1, .max = 1e6,
                   .help = "tokens of one training pass: memory"),
    OMM_CONFIG_U64(node_limits_file, adapter_values_max, .fallback = "268435456", .min = 1,
                   .max = 1e9, .help = "values of an adapter, 4 bytes each"),
    OMM_CONFIG_U64(node_limits_file, download_bytes_max, .fallback = "1073741824", .min = 1,
                   .max = 1e12, .help = "of one global adapter"),
    OMM_CONFIG_U64(node_limits_file, upload_bytes_max, .fallback = "1073741824", .min = 1,
                   .max = 1e12, .help = "of one submission"),
    {0}};

static const omm_config_field s_fields[] = {
    OMM_CONFIG_STRING(node_file, coordinator, .min = 1, .max = 255,
                      .help = "tls+tcp://host:port or tcp://host:port to connect to"),
    OMM_CONFIG_STRING(node_file, tls_certificate, .fallback = "", .max = 4000,
                      .help = "the coordinator's certificate, PEM; required with tls+tcp://"),
    OMM_CONFIG_STRING(node_file, name, .min = 1, .max = 64, .help = "of this node, for logs"),
    OMM_CONFIG_STRING(node_file, state_dir, .min = 1, .max = 4000, .help = "kept across restarts"),
    OMM_CONFIG_STRING(node_file, scenario, .fallback = "", .max = 4000,
                      .help = "rehearse: key, model and data of the scenario's client `name`"),
    OMM_CONFIG_STRING(node_file, key, .fallback = "", .max = 4000,
                      .help = "secret key file (keygen); required without scenario"),
    OMM_CONFIG_STRING(node_file, coordinator_key, .fallback = "", .max = 64,
                      .help = "the coordinator's public key, pinned; required without scenario"),
    OMM_CONFIG_STRING(node_file, model, .fallback = "", .max = 4000,
                      .help = "base model, GGUF; required without scenario"),
    OMM_CONFIG_STRING(node_file, data, .fallback = "", .max = 4000,
                      .help = "chat examples, JSONL; required without scenario"),
    OMM_CONFIG_STRING(node_file, client, .fallback = "", .max = 128,
                      .help = "use only this client's lines of the data"),
    OMM_CONFIG_STRING(node_file, run_id, .fallback = "", .max = 32,
                      .help = "join only this run; default: any of the pinned coordinator"),
    OMM_CONFIG_U32(node_file, threads, .fallback = "0", .max = 256,
                   .help = "for training; 0: one per core"),
    OMM_CONFIG_U32(node_file, checkpoint_steps, .fallback = "5", .min = 1, .max = 1e6,
                   .help = "training steps between checkpoints"),
    OMM_CONFIG_U64(node_file, answer_ms, .fallback = "60000", .min = 100, .max = 3600000,
                   .help = "without an answer for so long, a request is sent again"),
    OMM_CONFIG_MAP(node_file, limits, s_limits, .help = "offers beyond these are declined"),
    OMM_CONFIG_STRING(node_file, log_level, .fallback = "info", .max = 8,
                      .help = "debug, info, warn, error"),
    {0}};

typedef struct node {
    service_env env;
    node_file file;
    omm_key key;
    omm_public_key coordinator;
    omm_buf tls_certificate;
    const char *run_id;
    omm_scenario_run *run; /* with a scenario */
    omm_model model;       /* without */
    bool has_model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
    omm_training_options training_options;
    omm_training *training;
} node;

/* ---- where model and data come from ---- */

static omm_err from_scenario(node *n) {
    const char *path = NULL;
    OMM_TRY(service_path(&path, &n->env, n->file.scenario));
    omm_scenario_run_options options = {.scenario = path, .compute = &n->env.compute};
    OMM_TRY(omm_scenario_run_open(&n->run, &options));
    const omm_run *run = omm_scenario_run_get(n->run);
    const omm_run_record *record = omm_run_get_record(run);
    const omm_seed *seed = omm_scenario_run_seed(n->run);
    n->training_options = (omm_training_options){.model = omm_run_model(run),
                                                 .data = omm_run_client_data(run, n->file.name),
                                                 .base_digest = record->base.digest,
                                                 .tokenizer_digest = record->base.tokenizer_digest};
    if (!n->training_options.data)
        return omm_raise(OMM_ERR_CONFIG, "name: %s is no client of %s", n->file.name, path);
    omm_run_commit_key(n->training_options.commit_key, seed, n->file.name);
    omm_run_node_key(&n->key, seed, n->file.name);
    n->coordinator = record->coordinator_key;
    n->run_id = record->run_id;
    return OMM_OK;
}

static omm_err load_model(node *n, const char *path) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, path));
    omm_err err = omm_model_load(&n->model, &gguf);
    n->has_model = err == OMM_OK;
    if (err == OMM_OK) err = omm_tokenizer_open(&n->tokenizer, &gguf);
    omm_gguf_close(&gguf);
    return err;
}

/* Of all its files. */
static omm_err digest_model(omm_digest *out, const char *path) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, path));
    *out = omm_gguf_digest(&gguf);
    omm_gguf_close(&gguf);
    return OMM_OK;
}

static omm_err load_data(node *n) {
    const char *path = NULL;
    OMM_TRY(service_path(&path, &n->env, n->file.data));
    omm_dataset_options options = {.clients = &n->file.client,
                                   .client_count = n->file.client[0] ? 1 : 0};
    return omm_dataset_load(&n->data, path, n->tokenizer, n->file.client[0] ? &options : NULL);
}

static omm_err from_files(node *n) {
    const struct {
        const char *name, *value;
    } required[] = {{"key", n->file.key},
                    {"coordinator_key", n->file.coordinator_key},
                    {"model", n->file.model},
                    {"data", n->file.data}};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (!required[i].value[0])
            return omm_raise(OMM_ERR_CONFIG, "%s: required without scenario", required[i].name);
    OMM_TRY(service_public_key(&n->coordinator, n->file.coordinator_key, "coordinator_key"));
    const char *path = NULL;
    OMM_TRY(service_path(&path, &n->env, n->file.key));
    OMM_TRY(omm_key_load(&n->key, path));
    OMM_TRY(service_path(&path, &n->env, n->file.model));
    OMM_TRY(load_model(n, path));
    OMM_TRY(load_data(n));
    n->training_options =
        (omm_training_options){.model = &n->model,
                               .data = n->data,
                               .tokenizer_digest = omm_tokenizer_digest(n->tokenizer)};
    OMM_TRY(digest_model(&n->training_options.base_digest, path));
    /* The commitment's key stays with the node's own. */
    omm_seed secret;
    memcpy(secret.b, n->key.secret, sizeof secret.b);
    omm_seed commit = omm_seed_derive(&secret, OMM_PURPOSE_COMMIT_KEY, omm_bytes_str("data"));
    memcpy(n->training_options.commit_key, commit.b, sizeof commit.b);
    n->run_id = n->file.run_id[0] ? n->file.run_id : NULL;
    return OMM_OK;
}

/* ---- serve ---- */

static omm_err print_result(const omm_node_service_result *result, bool json) {
    const omm_node_status *s = &result->status;
    if (!json) {
        printf("%s: %u rounds accepted, %u refused%s%s\n",
               result->is_done ? "run closed" : "stopped", s->rounds_accepted, s->rounds_refused,
               s->last_reason[0] ? ", last verdict " : "", s->last_reason);
        return OMM_OK;
    }
    json_t *root = json_pack("{s:i,s:s,s:b,s:i,s:i}", "schema_version", 1, "run_id", s->run_id,
                             "done", (int)result->is_done, "accepted", (int)s->rounds_accepted,
                             "refused", (int)s->rounds_refused);
    omm_buf text;
    omm_buf_init(&text, 4096);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "JSON");
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err load_tls(node *n) {
    if (strncmp(n->file.coordinator, "tls+", 4) == 0 && !n->file.tls_certificate[0])
        return omm_raise(OMM_ERR_CONFIG, "coordinator: %s needs tls_certificate",
                         n->file.coordinator);
    return service_pem(&n->tls_certificate, &n->env, n->file.tls_certificate, false);
}

static omm_err serve(node *n, bool json) {
    OMM_TRY(service_start(&n->env, n->file.threads, n->file.log_level));
    OMM_TRY(load_tls(n));
    OMM_TRY(n->file.scenario[0] ? from_scenario(n) : from_files(n));
    n->training_options.checkpoint_steps = n->file.checkpoint_steps;
    OMM_TRY(omm_training_open(&n->training, &n->training_options));
    const node_limits_file *limits = &n->file.limits;
    omm_node_service_options options = {
        .node = {.key = &n->key,
                 .name = n->file.name,
                 .coordinator = n->coordinator,
                 .run_id = n->run_id,
                 .limits = {.rank_max = limits->rank_max,
                            .steps_max = limits->steps_max,
                            .tokens_max = limits->tokens_max,
                            .pass_tokens_max = limits->pass_tokens_max,
                            .adapter_values_max = limits->adapter_values_max,
                            .download_bytes_max = limits->download_bytes_max,
                            .upload_bytes_max = limits->upload_bytes_max},
                 .training = n->training,
                 .crash_at = n->env.crash_at,
                 .log = &n->env.log},
        .url = n->file.coordinator,
        .tls_certificate = omm_buf_view(&n->tls_certificate),
        .answer_ms = n->file.answer_ms,
        .compute = &n->env.compute,
        .clock = omm_clock_system(),
        .stop = service_stop()};
    OMM_TRY(service_path(&options.node.state_dir, &n->env, n->file.state_dir));
    omm_node_service_result result;
    OMM_TRY(omm_node_serve(&result, &options));
    return print_result(&result, json);
}

static void close_node(node *n) {
    omm_training_close(n->training);
    if (n->data) omm_dataset_close(n->data);
    if (n->tokenizer) omm_tokenizer_close(n->tokenizer);
    if (n->has_model) omm_model_fini(&n->model);
    omm_scenario_run_close(n->run);
    service_end(&n->env);
    omm_key_wipe(&n->key);
    service_pem_wipe(&n->tls_certificate);
}

int cmd_node(int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    bool keys = false;
    const cli_option options[] = {{"config", 'c', CLI_STR, &path, "FILE", "node file (required)"},
                                  {"keys", 0, CLI_FLAG, &keys, NULL, "list the keys of the file"},
                                  {"json", 0, CLI_FLAG, &json, NULL, "one JSON object at the end"},
                                  {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "node -c FILE",
                         "Train for a coordinator until its run is closed; the data stays here.\n"
                         "Killed and started again it goes on where it was.",
                         0, 0);
    if (code >= 0) return code;
    if (keys) {
        service_describe(s_fields);
        return CLI_EXIT_PASS;
    }
    if (!path) return cli_fail("node", omm_raise(OMM_ERR_USAGE, "-c FILE is required"));
    node n = {0};
    omm_err err = service_load(&n.env, &n.file, s_fields, path);
    if (err == OMM_OK) err = serve(&n, json);
    close_node(&n);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("node", err);
}
