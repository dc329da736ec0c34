/* cmd_node.c - `meshmind node -c FILE`: train for a coordinator on data that stays here. */
#include "commands.h"
#include "node_actions.h"
#include "node_config.h"
#include "node_model.h"
#include "options.h"
#include "places.h"
#include "secret.h"
#include "service_config.h"

#include "omm/dataset.h"
#include "omm/enrolment.h"
#include "omm/json.h"
#include "omm/node_service.h"
#include "omm/scenario_run.h"
#include "omm/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEGABYTE 1000000u
#define DRY_DIR "dry-run" /* in state_dir */
#define STOP_GRACE_S 1u   /* then it leaves as if it were killed: all that counts is on disk */

typedef struct node {
    service_env env;
    node_file file;
    omm_key key;
    omm_public_key coordinator;
    omm_buf tls_certificate;
    const char *config, *run_id;
    omm_seed token;
    bool has_token;
    omm_scenario_run *run;    /* with a scenario */
    omm_training_files files; /* without */
    omm_guest_rules rules;
    omm_training_options training_options;
    omm_training *training;
    bool is_dry;
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
                                                 .tokenizer = omm_run_tokenizer(run),
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

/* state_dir/newest.gguf, for `generate --lora newest`. */
static omm_err find_newest(node *n) {
    const char *state_dir = NULL;
    char path[OMM_PATH_MAX];
    OMM_TRY(service_path(&state_dir, &n->env, n->file.state_dir));
    OMM_TRY(omm_path_join(path, state_dir, "newest.gguf"));
    n->files.newest = omm_arena_strdup(&n->env.arena, path);
    return n->files.newest ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "path %s", path);
}

/* Once a node has been there the invitation may be gone: whoever was let in needs none, and whoever was not is told so by
 * the coordinator. */
static omm_err check_token_file(bool *is_needed, node *n, const char *path) {
    const char *state_dir = NULL;
    char database[OMM_PATH_MAX];
    *is_needed = omm_file_exists(path);
    if (*is_needed) return OMM_OK;
    OMM_TRY(service_path(&state_dir, &n->env, n->file.state_dir));
    OMM_TRY(omm_path_join(database, state_dir, "node.sqlite"));
    if (!omm_file_exists(database))
        return omm_raise(OMM_ERR_NOT_FOUND, "token_file: %s is not there", path);
    omm_log_event(&n->env.log, OMM_LOG_INFO, "no_token_file", OMM_LOG_STR("node", n->file.name),
                  OMM_LOG_STR("file", path),
                  OMM_LOG_STR("then", "a node that has been let in needs none"));
    return OMM_OK;
}

/* A token is like a key: in files of its owner alone, never in a word that others see. */
static omm_err load_token(node *n) {
    const char *path = n->config;
    if (!n->file.token[0] && !n->file.token_file[0]) return OMM_OK;
    if (n->file.token[0] && n->file.token_file[0])
        return omm_raise(OMM_ERR_CONFIG, "token and token_file: one of them");
    if (n->file.token_file[0]) OMM_TRY(service_path(&path, &n->env, n->file.token_file));
    bool is_needed = true;
    if (n->file.token_file[0]) OMM_TRY(check_token_file(&is_needed, n, path));
    if (!is_needed) return OMM_OK;
    OMM_TRY(omm_file_check_private(path));
    omm_buf text;
    omm_buf_init(&text, OMM_INVITATION_TEXT_SIZE + 8);
    omm_err err = OMM_OK;
    if (n->file.token[0])
        err = omm_buf_printf(&text, "%s", n->file.token);
    else
        err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_buf_append(&text, "", 1);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG) {
        err = omm_invitation_parse(&n->token, err == OMM_OK ? (const char *)text.data : "");
        if (err != OMM_OK) err = omm_raise(OMM_ERR_CONFIG, "%s: %s", path, omm_err_sentence());
    }
    n->has_token = err == OMM_OK;
    omm_free_secret(text.data, text.capacity);
    return err;
}

/* This and load_secrets: what can be said before a model is fetched for hours. */
static omm_err check_required(node *n) {
    const struct {
        const char *name, *value;
    } required[] = {
        {"coordinator_key", n->file.coordinator_key}, {"key", n->file.key}, {"data", n->file.data}};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        const char *path = NULL;
        uint64_t size = 0;
        if (!required[i].value[0])
            return omm_raise(OMM_ERR_CONFIG, "%s: required without scenario", required[i].name);
        if (i == 0) continue;
        OMM_TRY(service_path(&path, &n->env, required[i].value));
        const omm_err err = omm_file_size(&size, path);
        if (err != OMM_OK) return omm_raise(err, "%s: %s", required[i].name, omm_err_sentence());
    }
    return OMM_OK;
}

/* Whose they are: the coordinator's key, our own, and the invitation. */
static omm_err load_secrets(node *n) {
    const char *path = NULL;
    const char *passphrase_file = NULL;
    OMM_TRY(service_public_key(&n->coordinator, n->file.coordinator_key, "coordinator_key"));
    OMM_TRY(service_path(&path, &n->env, n->file.key));
    OMM_TRY(service_path(&passphrase_file, &n->env, n->file.passphrase_file));
    const omm_err err = secret_load_key(&n->key, path, passphrase_file);
    if (err != OMM_OK) return omm_raise(err, "key: %s", omm_err_sentence());
    return load_token(n);
}

static omm_err from_files(node *n) {
    if (!n->files.model) OMM_TRY(service_path(&n->files.model, &n->env, n->file.model));
    OMM_TRY(service_path(&n->files.data, &n->env, n->file.data));
    n->files.client = n->file.client;
    n->files.threads = n->file.threads ? n->file.threads : omm_threads_default();
    n->files.memory_max = (uint64_t)n->file.max_memory_mb * MEGABYTE;
    OMM_TRY(find_newest(n));
    n->training_options = (omm_training_options){.files = &n->files};
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
    return service_pem(&n->tls_certificate, &n->env, "tls_certificate", n->file.tls_certificate,
                       false);
}

/* What of the data can be said before a model is fetched for hours. */
static omm_err check_data(node *n) {
    const char *path = NULL;
    const char *const client = n->file.client;
    const omm_dataset_options options = {.clients = client[0] ? &client : NULL,
                                         .client_count = client[0] != '\0',
                                         .format = OMM_DATA_DETECT,
                                         .client_default = "own"};
    OMM_TRY(service_path(&path, &n->env, n->file.data));
    const omm_err err = omm_dataset_check(path, &options, 0);
    return err == OMM_OK ? err : omm_raise(err, "data: %s", omm_err_sentence());
}

/* *ready false: stopped before the model was here. */
static omm_err need_model(bool *ready, node *n) {
    if (!n->file.scenario[0]) {
        OMM_TRY(check_required(n));
        OMM_TRY(load_secrets(n));
    }
    *ready = n->file.scenario[0] || n->file.model[0];
    if (*ready) return OMM_OK;
    OMM_TRY(check_data(n));
    const node_model_asker asker = {&n->key, n->has_token ? &n->token : NULL, &n->rules,
                                    omm_buf_view(&n->tls_certificate)};
    OMM_TRY(node_get_model(&n->files.model, &n->env, &n->file, &asker));
    *ready = n->files.model != NULL;
    return OMM_OK;
}

static omm_err serve(node *n, bool json) {
    OMM_TRY(node_file_rules(&n->rules, &n->file));
    /* Before there are other threads. */
    const bool is_low = omm_priority_take((omm_priority)n->file.priority);
    OMM_TRY(service_start(&n->env, n->file.threads, n->file.log_level));
    if (!is_low)
        omm_log_event(&n->env.log, OMM_LOG_WARN, "no_low_priority",
                      OMM_LOG_STR("what", "this system does not let it step back: other programs "
                                          "may feel it"),
                      OMM_LOG_STR("do", "allow setpriority and ioprio_set, or max_cpu_percent"));
    service_stop_within(STOP_GRACE_S);
    OMM_TRY(load_tls(n));
    service_tell_time(&n->env, &n->tls_certificate);
    OMM_TRY(service_take_state(&n->env, n->file.state_dir));
    bool ready = false;
    OMM_TRY(need_model(&ready, n));
    if (!ready) return print_result(&(omm_node_service_result){0}, json);
    OMM_TRY(n->file.scenario[0] ? from_scenario(n) : from_files(n));
    n->training_options.checkpoint_steps = n->file.checkpoint_steps;
    OMM_TRY(omm_training_open(&n->training, &n->training_options));
    omm_node_service_options options = {.node = {.key = &n->key,
                                                 .name = n->file.name,
                                                 .coordinator = n->coordinator,
                                                 .run_id = n->run_id,
                                                 .token = n->has_token ? &n->token : NULL,
                                                 .limits = node_file_limits(&n->file),
                                                 .whole = true,
                                                 .training = n->training,
                                                 .crash_at = n->env.crash_at,
                                                 .log = &n->env.log},
                                        .url = n->file.coordinator,
                                        .tls_certificate = omm_buf_view(&n->tls_certificate),
                                        .answer_ms = n->file.answer_ms,
                                        .compute = &n->env.compute,
                                        .clock = omm_clock_system(),
                                        .guest = &n->rules,
                                        .guest_root = getenv("OMM_GUEST_ROOT"),
                                        .pause_hold_ms = (uint64_t)n->file.pause_hold_s * 1000,
                                        .stop = service_stop(),
                                        .trains = service_trains()};
    OMM_TRY(service_path(&options.node.state_dir, &n->env, n->file.state_dir));
    char dry_dir[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(dry_dir, options.node.state_dir, DRY_DIR));
    if (n->is_dry) options.dry_dir = dry_dir;
    omm_node_service_result result;
    OMM_TRY(omm_node_serve(&result, &options));
    if (result.is_dry) return node_show_submission(dry_dir, result.status.told_dry, json);
    return print_result(&result, json);
}

static void close_node(node *n) {
    omm_training_close(n->training);
    omm_scenario_run_close(n->run);
    service_end(&n->env);
    omm_key_wipe(&n->key);
    explicit_bzero(&n->token, sizeof n->token);
    service_pem_wipe(&n->tls_certificate);
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} s_actions[] = {{"status", node_status},
                 {"setup", node_setup},
                 {"backup", node_backup},
                 {"restore", node_restore}};

static int action(int (*run)(int argc, char **argv), int argc, char **argv) {
    char name[32];
    (void)snprintf(name, sizeof name, "node %s", argv[1]);
    argv[1] = name;
    return run(argc - 1, argv + 1);
}

static int refuse_action(const char *name) {
    char known[128] = "";
    for (size_t i = 0; i < sizeof s_actions / sizeof *s_actions; i++)
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                       s_actions[i].name);
    return cli_fail("node",
                    omm_raise(OMM_ERR_USAGE, "unknown action %.80s; accepted: %s", name, known));
}

int cmd_node(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof s_actions / sizeof *s_actions; i++)
        if (strcmp(argv[1], s_actions[i].name) == 0) return action(s_actions[i].run, argc, argv);
    if (argc > 1 && argv[1][0] != '-') return refuse_action(argv[1]);
    const char *path = NULL;
    bool json = false;
    bool keys = false;
    bool is_dry = false;
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &path, "FILE", "node file (XDG: openmeshmind/node.yaml)"},
        {"dry-run", 0, CLI_FLAG, &is_dry, NULL, "train for one round and write what would be sent"},
        {"keys", 0, CLI_FLAG, &keys, NULL, "list the keys of the file"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object at the end"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "node [-c FILE], node ACTION",
                         "Train for a coordinator until its run is closed; the data stays here.\n"
                         "Killed and started again it goes on where it was.\n\n"
                         "  node setup     four questions, then node.yaml and a key\n"
                         "  node status    what it does, what it has sent, what it declined\n"
                         "  node backup    file and key in one; node restore brings them back",
                         0, 0);
    if (code >= 0) return code;
    if (keys) {
        service_describe(node_fields);
        return CLI_EXIT_PASS;
    }
    char config[OMM_PATH_MAX];
    node n = {.is_dry = is_dry, .config = config};
    omm_err err = place_node_file(config, path);
    if (err == OMM_OK) err = service_load(&n.env, &n.file, node_fields, config);
    if (err == OMM_OK) err = serve(&n, json);
    close_node(&n);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("node", err);
}
