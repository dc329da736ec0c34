/* cmd_coordinator.c - `meshmind coordinator -c FILE`: run a federation as a service. */
#include "build_info.h"
#include "canary_files.h"
#include "commands.h"
#include "coordinator_tools.h"
#include "loaded.h"
#include "options.h"
#include "places.h"
#include "service_config.h"

#include "omm/agreement.h"
#include "omm/base_model.h"
#include "omm/bundle.h"
#include "omm/coordinator_service.h"
#include "omm/enrolment.h"
#include "omm/json.h"
#include "omm/judge.h"
#include "omm/scenario.h"
#include "omm/scenario_run.h"
#include "omm/tls.h"
#include "omm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COORDINATOR_NODES_MAX 4096

typedef struct node_entry {
    const char *name, *public_key;
} node_entry;

typedef struct coordinator_file {
    const char *scenario, *listen, *state_dir, *bundle, *key, *bundle_key, *port_file, *log_level,
        *tls_certificate, *tls_key, *http, *http_port_file;
    omm_config_list nodes;      /* node_entry */
    omm_config_list mirrors;    /* const char * */
    omm_config_list http_hosts; /* const char * */
    const char *every, *at;
    double over_select;
    uint64_t poll_ms, linger_ms, node_messages_per_minute, node_bytes_per_minute, strangers_idle_ms,
        submission_bytes;
    uint32_t threads, node_max, work_bits, base_transfers, base_mbit, strangers,
        strangers_per_address, message_bytes;
    int enrolment; /* coordinator_enrolment */
    canary_file canary;
} coordinator_file;

typedef enum coordinator_enrolment {
    ENROLMENT_LIST,
    ENROLMENT_INVITATION,
    ENROLMENT_OPEN
} coordinator_enrolment;
static const char *const s_enrolments[] = {"list", "invitation", "open", NULL};
#define NODE_MAX_DEFAULT 64u /* with invitations */

static const omm_config_field s_node_fields[] = {
    OMM_CONFIG_STRING(node_entry, name, .min = 1, .max = 64,
                      .help = "letters, digits, '-', '_', '.'; for logs and evidence"),
    OMM_CONFIG_STRING(node_entry, public_key, .min = 64, .max = 64, .help = "64 hex digits"),
    {0}};

static const omm_config_field s_node = {
    .key = "node", .kind = OMM_CONFIG_KIND_MAP, .sub = s_node_fields};

static const omm_config_field s_mirror = {
    .key = "url", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = OMM_MIRROR_BYTES_MAX};

#define HTTP_HOSTS_MAX 16
static const omm_config_field s_http_host = {
    .key = "name", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = 253};

static const omm_config_field s_fields[] = {
    OMM_CONFIG_STRING(coordinator_file, scenario, .min = 1, .max = 4000,
                      .help = "model, held-out data, recipe, codecs, rounds, gates"),
    OMM_CONFIG_STRING(coordinator_file, listen, .fallback = "tcp://127.0.0.1:4711", .max = 255,
                      .help = "where nodes connect"),
    OMM_CONFIG_STRING(coordinator_file, state_dir, .min = 1, .max = 4000,
                      .help = "kept across restarts"),
    OMM_CONFIG_STRING(coordinator_file, bundle, .fallback = "", .max = 4000,
                      .help = "folder of the evidence; default: bundle in state_dir"),
    OMM_CONFIG_STRING(coordinator_file, key, .fallback = "", .max = 4000,
                      .help = "secret key file; none: keys derive from the scenario's seed"),
    OMM_CONFIG_STRING(coordinator_file, bundle_key, .fallback = "", .max = 4000,
                      .help = "secret key file that signs the bundle; required with key"),
    OMM_CONFIG_STRING(coordinator_file, tls_certificate, .fallback = "", .max = 4000,
                      .help =
                          "for listen: tls+tcp://...; keygen --tls makes it, nodes need it too"),
    OMM_CONFIG_STRING(coordinator_file, tls_key, .fallback = "", .max = 4000,
                      .help = "its secret key file"),
    {.key = "nodes",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(coordinator_file, nodes),
     .optional = true,
     .max = COORDINATOR_NODES_MAX,
     .item = &s_node,
     .item_size = sizeof(node_entry),
     .help = "who may take part from the start; required with key unless others can join"},
    OMM_CONFIG_ENUM(
        coordinator_file, enrolment, s_enrolments, .fallback = "list",
        .help = "who else: list: nobody; invitation: whoever has a token of "
                "`coordinator ctl invite`; open: these, and whoever proves work; needs key"),
    OMM_CONFIG_U32(coordinator_file, work_bits, .fallback = "22", .min = 1,
                   .max = OMM_WORK_BITS_MAX,
                   .help = "with enrolment: open: a node tries 2^bits hashes; 22: some seconds"),
    OMM_CONFIG_U32(coordinator_file, node_max, .fallback = "0", .max = COORDINATOR_NODES_MAX,
                   .help = "most nodes, with those who join; 0: 64.  Not to be changed in a run"),
    OMM_CONFIG_MAP(coordinator_file, canary, canary_fields,
                   .help = "work on public data, which is done again here and must be equal"),
    OMM_CONFIG_U32(coordinator_file, base_transfers, .fallback = "4", .max = 256,
                   .help =
                       "addresses that may fetch the base model at a time; 0: from mirrors only"),
    OMM_CONFIG_U32(coordinator_file, base_mbit, .fallback = "100", .max = 1e6,
                   .help = "megabits a second for all of these together; 0: no limit"),
    {.key = "mirrors",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(coordinator_file, mirrors),
     .optional = true,
     .max = OMM_BASE_MIRRORS_MAX,
     .item = &s_mirror,
     .item_size = sizeof(const char *),
     .help = "http:// and https:// where nodes find the base model, too"},
    OMM_CONFIG_STRING(coordinator_file, every, .fallback = "", .max = 16,
                      .help = "30m, 6h, 1d from one round's opening to the next; \"\": as soon as "
                              "nodes are ready"),
    OMM_CONFIG_STRING(coordinator_file, at, .fallback = "", .max = 5,
                      .help = "\"03:00\" UTC: rounds open then, and `every` (default 1d) after it"),
    OMM_CONFIG_REAL(coordinator_file, over_select, .fallback = "1", .min = 1, .max = 100,
                    .help =
                        "1.3: the offer goes to 1.3 times the nodes needed, and the round closes "
                        "when enough have come"),
    OMM_CONFIG_U64(coordinator_file, poll_ms, .fallback = "1000", .min = 10, .max = 600000,
                   .help = "how long a waiting node waits before it asks again"),
    OMM_CONFIG_U64(coordinator_file, linger_ms, .fallback = "60000", .max = 86400000,
                   .help = "how long to tell nodes that the run is over"),
    OMM_CONFIG_U32(coordinator_file, strangers, .fallback = "256", .min = 1, .max = 65536,
                   .help = "connections at a time that have proved nothing yet"),
    OMM_CONFIG_U32(coordinator_file, strangers_per_address, .fallback = "8", .min = 1, .max = 65536,
                   .help = "of those, from one address, or one /64 of IPv6"),
    OMM_CONFIG_U64(coordinator_file, strangers_idle_ms, .fallback = "30000", .min = 1000,
                   .max = 3600000,
                   .help = "such a connection is closed when it has proved nothing for so long"),
    OMM_CONFIG_U64(coordinator_file, node_messages_per_minute, .fallback = "12000",
                   .max = 1000000000,
                   .help = "of one node, or of a stranger's address; more waits; 0: no limit"),
    OMM_CONFIG_U64(coordinator_file, node_bytes_per_minute, .fallback = "2000000000",
                   .max = 1000000000000000, .help = "the same in bytes, both ways together"),
    OMM_CONFIG_U32(
        coordinator_file, message_bytes, .fallback = "266240", .min = 8192,
        .max = OMM_MESSAGE_BYTES_MAX,
        .help = "of one message; who sends more is cut off.  A chunk and its headers, or what "
                "this run's nodes send at most, is the least"),
    OMM_CONFIG_U64(coordinator_file, submission_bytes, .fallback = "0", .max = 1000000000,
                   .help = "a scenario whose payloads may be longer is refused; 0: the scenario "
                           "alone says it, by codec and byte_budget"),
    OMM_CONFIG_U32(coordinator_file, threads, .fallback = "0", .max = 256,
                   .help = "for evaluation and sums; 0: one per core"),
    OMM_CONFIG_STRING(coordinator_file, port_file, .fallback = "", .max = 4000,
                      .help = "gets the tcp port that was bound"),
    OMM_CONFIG_STRING(coordinator_file, http, .fallback = "", .max = 255,
                      .help = "status page, /healthz, /metrics: 127.0.0.1:8080; none: no HTTP"),
    {.key = "http_hosts",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(coordinator_file, http_hosts),
     .optional = true,
     .max = HTTP_HOSTS_MAX,
     .item = &s_http_host,
     .item_size = sizeof(const char *),
     .help = "names, without a port, by which a browser or a proxy may ask http, besides localhost "
             "and addresses; "
             "without any: none where http is of this machine alone, all elsewhere"},
    OMM_CONFIG_STRING(coordinator_file, http_port_file, .fallback = "", .max = 4000,
                      .help = "gets the port of http that was bound"),
    OMM_CONFIG_STRING(coordinator_file, log_level, .fallback = "info", .max = 8,
                      .help = "debug, info, warn, error"),
    {0}};

typedef struct coordinator {
    service_env env;
    coordinator_file file;
    const char *scenario, *state_dir, *bundle, *port_file, *http_port_file;
    omm_key key, bundle_key;
    omm_buf tls_certificate, tls_key;
    omm_run_enrolled *nodes;
    uint32_t node_max; /* 0: nobody joins */
    omm_scenario_run *run;
} coordinator;

static omm_err resolve_paths(coordinator *c) {
    OMM_TRY(service_path(&c->scenario, &c->env, c->file.scenario));
    OMM_TRY(service_path(&c->state_dir, &c->env, c->file.state_dir));
    OMM_TRY(service_path(&c->bundle, &c->env, c->file.bundle));
    OMM_TRY(service_path(&c->port_file, &c->env, c->file.port_file));
    OMM_TRY(service_path(&c->http_port_file, &c->env, c->file.http_port_file));
    if (c->bundle[0]) return OMM_OK;
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, c->state_dir, "bundle"));
    c->bundle = omm_arena_strdup(&c->env.arena, path);
    return c->bundle ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "path");
}

/* The scenario is there.  The run's own bundle is sealed in the end, and found again; in another one nothing is written. */
static omm_err check_places(const coordinator *c) {
    char above[OMM_PATH_MAX];
    if (!omm_file_exists(c->scenario))
        return omm_raise(OMM_ERR_NOT_FOUND, "scenario: there is no %s", c->scenario);
    OMM_TRY(omm_path_dir(above, c->bundle));
    if (c->file.bundle[0])
        OMM_TRY(place_check_unsealed("bundle", omm_file_exists(c->bundle) ? above : c->bundle));
    if (c->port_file[0]) OMM_TRY(place_check_unsealed("port_file", c->port_file));
    if (c->http_port_file[0]) OMM_TRY(place_check_unsealed("http_port_file", c->http_port_file));
    return OMM_OK;
}

/* Without keys of its own every key follows from the scenario's seed: whoever reads the scenario can
 * sign as any node, and as the coordinator.  Good for a rehearsal on one machine, and only there. */
static omm_err check_listen(const coordinator *c) {
    static const char *const here[] = {
        "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:", "ipc://", "inproc://"};
    const char *listen = c->file.listen;
    OMM_TRY(omm_err_about(omm_url_check(listen), "listen"));
    if (c->file.key[0]) return OMM_OK;
    if (strncmp(listen, "tls+", 4) == 0) listen += 4;
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++)
        if (strncmp(listen, here[i], strlen(here[i])) == 0) return OMM_OK;
    return omm_raise(
        OMM_ERR_CONFIG,
        "listen: %s is open to others, and without key anybody who has the scenario "
        "can sign as every node; set key, bundle_key and nodes, or listen on 127.0.0.1",
        c->file.listen);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const omm_run_enrolled *)a)->name, ((const omm_run_enrolled *)b)->name);
}

/* Is there a run that goes on? */
static omm_err find_begun(bool *has_begun, const coordinator *c) {
    char started[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(started, c->state_dir, "coordinator.sqlite"));
    *has_begun = omm_file_exists(started);
    return OMM_OK;
}

/* A name is how the operator speaks of a node.  A run that began with a name for two, or with one of other characters, goes
 * on: what is shown of it is cleaned. */
static omm_err check_names(const coordinator *c) {
    bool has_begun = false;
    qsort(c->nodes, c->file.nodes.count, sizeof *c->nodes, by_name);
    OMM_TRY(find_begun(&has_begun, c));
    if (has_begun) return OMM_OK;
    for (size_t i = 0; i < c->file.nodes.count; i++)
        OMM_TRY(omm_scenario_check_name("nodes", "name", c->nodes[i].name));
    for (size_t i = 1; i < c->file.nodes.count; i++)
        if (strcmp(c->nodes[i - 1].name, c->nodes[i].name) == 0)
            return omm_raise(OMM_ERR_CONFIG, "nodes: two are called %s; accepted: a name for each",
                             c->nodes[i].name);
    return OMM_OK;
}

/* With one key for both, who has it alone could make up a whole run's evidence.  A run that began so goes on. */
static omm_err check_two_keys(const coordinator *c) {
    bool has_begun = false;
    const omm_public_key *key = &c->key.public_key, *bundle_key = &c->bundle_key.public_key;
    if (memcmp(key, bundle_key, sizeof *key) != 0) return OMM_OK;
    OMM_TRY(find_begun(&has_begun, c));
    if (has_begun) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "bundle_key: %s holds the same key as key: %s; accepted: a key of its own, as "
                     "keygen --out makes it",
                     c->file.bundle_key, c->file.key);
}

static omm_err load_keys(coordinator *c) {
    const char *path = NULL;
    if (!c->file.bundle_key[0]) return omm_raise(OMM_ERR_CONFIG, "bundle_key: required with key");
    if (c->file.nodes.count == 0 && c->file.enrolment == ENROLMENT_LIST)
        return omm_raise(
            OMM_ERR_CONFIG,
            "nodes: required with key, or enrolment: invitation so that nodes can join");
    OMM_TRY(service_path(&path, &c->env, c->file.key));
    OMM_TRY(omm_err_about(omm_key_load(&c->key, path), "key"));
    OMM_TRY(service_path(&path, &c->env, c->file.bundle_key));
    OMM_TRY(omm_err_about(omm_key_load(&c->bundle_key, path), "bundle_key"));
    OMM_TRY(check_two_keys(c));
    c->nodes = omm_arena_alloc(&c->env.arena, c->file.nodes.count + 1, sizeof *c->nodes);
    if (!c->nodes) return omm_raise(OMM_ERR_NOMEM, "nodes");
    const node_entry *entries = c->file.nodes.items;
    for (size_t i = 0; i < c->file.nodes.count; i++) {
        c->nodes[i] = (omm_run_enrolled){.name = entries[i].name, .client = ""};
        OMM_TRY(service_public_key(&c->nodes[i].public_key, entries[i].public_key,
                                   "nodes: public_key"));
    }
    return check_names(c);
}

static omm_err load_tls(coordinator *c) {
    if (!c->file.tls_certificate[0] != !c->file.tls_key[0])
        return omm_raise(OMM_ERR_CONFIG, "tls_certificate and tls_key: one needs the other");
    if (strncmp(c->file.listen, "tls+", 4) == 0 && !c->file.tls_key[0])
        return omm_raise(OMM_ERR_CONFIG, "listen: %s needs tls_certificate and tls_key",
                         c->file.listen);
    OMM_TRY(service_pem(&c->tls_certificate, &c->env, "tls_certificate", c->file.tls_certificate,
                        false));
    OMM_TRY(service_pem(&c->tls_key, &c->env, "tls_key", c->file.tls_key, true));
    if (!c->file.tls_key[0]) return OMM_OK;
    if (omm_tls_check_pair(omm_buf_view(&c->tls_certificate), omm_buf_view(&c->tls_key)) == OMM_OK)
        return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "tls_certificate %s, tls_key %s: %s", c->file.tls_certificate,
                     c->file.tls_key, omm_err_sentence());
}

/* 0 where nobody joins. */
static omm_err find_node_max(uint32_t *out, const coordinator *c) {
    *out = 0;
    if (c->file.enrolment == ENROLMENT_LIST && c->file.node_max)
        return omm_raise(OMM_ERR_CONFIG, "node_max: %u; accepted with enrolment: invitation only",
                         c->file.node_max);
    if (c->file.enrolment == ENROLMENT_LIST) return OMM_OK;
    if (!c->file.key[0])
        return omm_raise(OMM_ERR_CONFIG,
                         "enrolment: %s needs key; without it everybody's key "
                         "follows from the scenario",
                         s_enrolments[c->file.enrolment]);
    *out = c->file.node_max ? c->file.node_max : NODE_MAX_DEFAULT;
    if (*out >= c->file.nodes.count) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "node_max: %u; accepted: %zu, as many as nodes has, to %u",
                     *out, c->file.nodes.count, COORDINATOR_NODES_MAX);
}

static omm_err check_http_hosts(const coordinator *c) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const char *const *hosts = c->file.http_hosts.items;
    for (size_t i = 0; i < c->file.http_hosts.count; i++)
        if (hosts[i][strspn(hosts[i], letters)])
            return omm_raise(OMM_ERR_CONFIG,
                             "http_hosts: %s; accepted: a name without scheme, port and path, as "
                             "page.example.org",
                             hosts[i]);
    return OMM_OK;
}

static omm_err check_mirrors(const coordinator *c) {
    const char *const *mirrors = c->file.mirrors.items;
    for (size_t i = 0; i < c->file.mirrors.count; i++) OMM_TRY(omm_mirror_check(mirrors[i]));
    return OMM_OK;
}

static omm_err read_schedule(omm_coord_service_options *out, const coordinator *c) {
    if (c->file.every[0]) OMM_TRY(service_duration(&out->every_ms, c->file.every, "every"));
    out->has_at = c->file.at[0] != '\0';
    if (!out->has_at) return OMM_OK;
    OMM_TRY(service_time_of_day(&out->at_ms, c->file.at, "at"));
    if (out->every_ms == 0 || SERVICE_DAY_MS % out->every_ms == 0) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "every: %s does not divide a day, which `at` needs",
                     c->file.every);
}

static void log_doubt(void *ud, const char *sentence) {
    const coordinator *c = ud;
    omm_log_event(&c->env.log, OMM_LOG_WARN, "scenario_doubt", OMM_LOG_STR("detail", sentence));
}

static omm_err open_run(coordinator *c) {
    omm_scenario_run_options options = {.scenario = c->scenario,
                                        .compute = &c->env.compute,
                                        .bundle = c->bundle,
                                        .node_max = c->node_max};
    OMM_TRY(find_begun(&options.has_begun, c));
    if (c->file.key[0]) {
        OMM_TRY(omm_run_seed_keep(&options.run_seed, c->state_dir));
        options.key = &c->key;
        options.nodes = c->nodes;
        options.node_count = c->file.nodes.count;
    }
    OMM_TRY(omm_scenario_run_open(&c->run, &options));
    cli_warn_words(omm_run_tokenizer(omm_scenario_run_get(c->run)));
    if (!options.has_begun) OMM_TRY(omm_scenario_run_warn(c->run, log_doubt, c));
    if (!c->file.key[0]) omm_run_bundle_key(&c->bundle_key, omm_scenario_run_seed(c->run));
    return OMM_OK;
}

static omm_err print_result(const coordinator *c, const omm_coord_service_result *result,
                            bool json) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &result->run_digest);
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 20);
    omm_err err = OMM_OK;
    if (json) {
        json_t *root = json_pack("{s:i,s:s,s:s,s:o,s:b}", "schema_version", 1, "run_id",
                                 omm_run_get_record(omm_scenario_run_get(c->run))->run_id,
                                 "run_digest", hex, "bundle", omm_json_text(c->bundle),
                                 "gates_passed", (int)result->judgement.passed);
        err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "JSON");
        json_decref(root);
    } else {
        err = omm_judgement_text(&text, &result->judgement);
        if (err == OMM_OK)
            err = omm_buf_printf(&text, "run digest  %s\nbundle      %s\n", hex, c->bundle);
    }
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    return err;
}

/* A run that is over, started again by whoever watches over processes: it says its verdict once more. */
static omm_err repeat_result(bool *is_over, const coordinator *c, bool json, bool *passed) {
    omm_coord_service_result result = {0};
    const char *run_id = omm_run_get_record(omm_scenario_run_get(c->run))->run_id;
    const omm_err is_own = omm_bundle_sealed(is_over, &result.run_digest, c->bundle, run_id);
    if (is_own == OMM_ERR_MISMATCH)
        return omm_raise(OMM_ERR_CONFIG,
                         "bundle: %s; accepted: another folder in bundle, or in state_dir",
                         omm_err_sentence());
    OMM_TRY(is_own);
    if (!*is_over) return OMM_OK;
    OMM_TRY(omm_bundle_judge(&result.judgement, c->bundle, NULL, NULL, omm_scenario_agrees));
    result.is_sealed = true;
    omm_log_event(&c->env.log, OMM_LOG_INFO, "run_is_over", OMM_LOG_STR("run_id", run_id),
                  OMM_LOG_STR("bundle", c->bundle));
    omm_err err = print_result(c, &result, json);
    *passed = result.judgement.passed;
    omm_coord_service_result_fini(&result);
    return err;
}

static omm_err serve(coordinator *c, bool json, bool *passed) {
    bool is_over = false;
    OMM_TRY(service_start(&c->env, c->file.threads, c->file.log_level));
    OMM_TRY(check_listen(c));
    OMM_TRY(check_mirrors(c));
    OMM_TRY(check_http_hosts(c));
    OMM_TRY(read_schedule(&(omm_coord_service_options){0}, c)); /* before a model is loaded */
    const omm_coord_canaries *canaries = NULL;
    OMM_TRY(canary_files_load(&canaries, &c->env, &c->file.canary));
    OMM_TRY(resolve_paths(c));
    OMM_TRY(load_tls(c));
    service_tell_time(&c->env, &c->tls_certificate);
    OMM_TRY(find_node_max(&c->node_max, c));
    if (c->file.key[0]) OMM_TRY(load_keys(c)); /* before a folder is made */
    OMM_TRY(check_places(c));
    OMM_TRY(service_take_state(&c->env, c->file.state_dir));
    OMM_TRY(open_run(c));
    OMM_TRY(repeat_result(&is_over, c, json, passed));
    if (is_over) return OMM_OK;
    char machine[128];
    (void)snprintf(machine, sizeof machine, "%s, %u threads, %u processors",
                   omm_isa_name(c->env.compute.isa), omm_pool_threads(c->env.pool),
                   omm_cpu_count());
    omm_coord_service_options options = {
        .run = omm_scenario_run_own(c->run),
        .url = c->file.listen,
        .tls_certificate = omm_buf_view(&c->tls_certificate),
        .tls_key = omm_buf_view(&c->tls_key),
        .bundle_dir = c->bundle,
        .state_dir = c->state_dir,
        .port_file = c->port_file[0] ? c->port_file : NULL,
        .http = c->file.http[0] ? c->file.http : NULL,
        .http_hosts = c->file.http_hosts.items,
        .http_host_count = c->file.http_hosts.count,
        .http_port_file = c->http_port_file[0] ? c->http_port_file : NULL,
        .bundle_key = &c->bundle_key,
        .commit = OMM_BUILD_COMMIT,
        .build = OMM_BUILD_TEXT,
        .machine = machine,
        .work_bits = c->file.enrolment == ENROLMENT_OPEN ? c->file.work_bits : 0,
        .canaries = canaries,
        .canary_threads = c->file.canary.threads,
        .base_transfers = c->file.base_transfers,
        .base_bytes_per_second = (uint64_t)c->file.base_mbit * 1000000 / 8,
        .base_mirrors = c->file.mirrors.items,
        .base_mirror_count = c->file.mirrors.count,
        .poll_ms = c->file.poll_ms,
        .linger_ms = c->file.linger_ms,
        .limits = {c->file.strangers, c->file.strangers_per_address, c->file.strangers_idle_ms,
                   c->file.node_messages_per_minute, c->file.node_bytes_per_minute,
                   c->file.message_bytes, c->file.submission_bytes},
        .crash_at = c->env.crash_at,
        .pool = c->env.pool,
        .clock = omm_clock_system(),
        .log = &c->env.log,
        .stop = service_stop()};
    options.over_select = c->file.over_select;
    OMM_TRY(read_schedule(&options, c));
    omm_coord_service_result result;
    OMM_TRY(omm_coord_serve(&result, &options));
    omm_err err = result.is_sealed ? print_result(c, &result, json) : OMM_OK;
    *passed = !result.is_sealed || result.judgement.passed;
    omm_coord_service_result_fini(&result);
    return err;
}

omm_err coordinator_state_dir(char out[OMM_PATH_MAX], const char *path) {
    coordinator c = {0};
    omm_err err = service_load(&c.env, &c.file, s_fields, path);
    if (err == OMM_OK) err = service_path(&c.state_dir, &c.env, c.file.state_dir);
    if (err == OMM_OK) (void)snprintf(out, OMM_PATH_MAX, "%s", c.state_dir);
    omm_arena_fini(&c.env.arena);
    return err;
}

int cmd_coordinator(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "ctl") == 0) return coordinator_ctl(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "audit") == 0) return coordinator_audit(argc - 1, argv + 1);
    if (argc > 1 && argv[1][0] != '-')
        return cli_fail(
            "coordinator",
            omm_raise(OMM_ERR_USAGE, "unknown action %.80s; accepted: ctl, audit", argv[1]));
    const char *path = NULL;
    bool json = false;
    bool keys = false;
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &path, "FILE", "service file (required)"},
        {"keys", 0, CLI_FLAG, &keys, NULL, "list the keys of the service file"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object at the end"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options,
                  "coordinator -c FILE | coordinator ctl -c FILE ACTION | "
                  "coordinator audit verify FILE",
                  "Run a federation as a service until its bundle is sealed.\n"
                  "Killed and started again it goes on where it was.  `coordinator ctl --help`:\n"
                  "pause, resume, quarantine and more while it runs; `coordinator audit --help`:\n"
                  "check its audit log.",
                  0, 0);
    if (code >= 0) return code;
    if (keys) {
        service_describe(s_fields);
        return CLI_EXIT_PASS;
    }
    if (!path) return cli_fail("coordinator", omm_raise(OMM_ERR_USAGE, "-c FILE is required"));
    coordinator c = {0};
    bool passed = false;
    omm_err err = service_load(&c.env, &c.file, s_fields, path);
    if (err == OMM_OK) err = serve(&c, json, &passed);
    omm_scenario_run_close(c.run);
    service_end(&c.env);
    omm_key_wipe(&c.key);
    omm_key_wipe(&c.bundle_key);
    service_pem_wipe(&c.tls_certificate);
    service_pem_wipe(&c.tls_key);
    if (err != OMM_OK) return cli_fail("coordinator", err);
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
