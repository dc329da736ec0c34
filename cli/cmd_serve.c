/* cmd_serve.c - `meshmind serve`: a model over HTTP, for many at once, until SIGINT, SIGTERM or SIGHUP. */
#include "commands.h"
#include "decoding.h"
#include "loaded.h"
#include "secret.h"
#include "signals.h"

#include "omm/chat.h"
#include "omm/hash.h"
#include "omm/serve.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DRAIN_MS 30000u /* for texts that are being written when the server is stopped */
#define LOOK_MS 50u
#define FINGERPRINT_SIZE 24u
#define KEEP_MAX 4096u
#define WAITING_MAX 65536u
#define CONNECTIONS_MAX 16384u

typedef struct serve_options {
    loaded_options common;
    const char *listen, *key_file, *name, *log_level;
    cli_list lora; /* [NAME=]FILE[=X] */
    cli_list cors;
    uint32_t seats, waiting, keep, connections;
    omm_sampler sampler;
    bool no_think;
} serve_options;

/* What is served, by name. */
typedef struct served {
    loaded l;
    omm_buf key;
    char name[OMM_SERVE_NAME_MAX + 1];
    char adapters[OMM_ADAPTERS_MAX][OMM_SERVE_NAME_MAX + 1];
    char fingerprint[FINGERPRINT_SIZE];
    omm_log log;
} served;

static volatile sig_atomic_t s_signals;

static void on_signal(int number) {
    (void)number;
    if (s_signals < 2) s_signals++;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The file's name without folder and ending, of letters that a name may have. */
static void name_of_file(char out[OMM_SERVE_NAME_MAX + 1], const char *path, size_t size) {
    const char *slash = memrchr(path, '/', size);
    const char *from = slash ? slash + 1 : path;
    size_t n = size - (size_t)(from - path), at = 0;
    if (n > 5 && memcmp(from + n - 5, ".gguf", 5) == 0) n -= 5;
    for (size_t i = 0; i < n && at < OMM_SERVE_NAME_MAX; i++) {
        const char c = from[i];
        const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        out[at++] = (char)(fits ? c : '-');
    }
    out[at] = 0;
}

/* "[NAME=]FILE[=X]": where there is a file as it stands, it has no name of its own. */
static omm_err split_name(char out[OMM_SERVE_NAME_MAX + 1], const char **file, const char *text) {
    char path[OMM_PATH_MAX];
    float scale = 1.0f;
    struct stat is;
    const size_t size = strcspn(text, "=");
    const bool newest = strncmp(text, "newest", size) == 0 && size == 6;
    OMM_TRY(loaded_split_scale(path, &scale, text, "--lora"));
    *file = text;
    if (!text[size] || newest || (stat(path, &is) == 0 && S_ISREG(is.st_mode))) {
        if (newest)
            memcpy(out, "newest", sizeof "newest");
        else
            name_of_file(out, path, strlen(path));
        return OMM_OK;
    }
    if (size < 1 || size > OMM_SERVE_NAME_MAX || !text[size + 1])
        return omm_raise(OMM_ERR_USAGE,
                         "--lora %.80s: accepted is [NAME=]FILE[=X], NAME of 1 to %u bytes", text,
                         OMM_SERVE_NAME_MAX);
    memcpy(out, text, size);
    out[size] = 0;
    *file = text + size + 1;
    return OMM_OK;
}

static omm_err name_all(served *s, serve_options *o) {
    if (o->lora.count > OMM_ADAPTERS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--lora: %u adapters; at most %u", o->lora.count,
                         OMM_ADAPTERS_MAX);
    for (uint32_t i = 0; i < o->lora.count; i++)
        OMM_TRY(split_name(s->adapters[i], &o->common.lora.items[i], o->lora.items[i]));
    o->common.lora.count = o->lora.count;
    if (!o->name) {
        name_of_file(s->name, o->common.model, strlen(o->common.model));
        return OMM_OK;
    }
    if (strlen(o->name) > OMM_SERVE_NAME_MAX)
        return omm_raise(OMM_ERR_USAGE, "--name: at most %u bytes", OMM_SERVE_NAME_MAX);
    memcpy(s->name, o->name, strlen(o->name) + 1);
    return OMM_OK;
}

/* All that a text depends on beside its request: model, adapters and their names, arithmetic, cache, context (of which a
 * model with two tables of rotations chooses one), and how ids are drawn where a request does not say. */
static omm_err find_fingerprint(served *s, const serve_options *o) {
    omm_digest digest;
    omm_hasher h;
    char hex[OMM_DIGEST_HEX_SIZE], kinds[160];
    OMM_TRY(loaded_digest(&digest, &o->common));
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(digest.b, sizeof digest.b));
    for (size_t i = 0; i < s->l.adapter_count; i++) {
        digest = omm_adapter_digest(s->l.adapters[i]);
        omm_hasher_update(&h, omm_bytes_of(digest.b, sizeof digest.b));
        omm_hasher_update(&h, omm_bytes_of(s->adapters[i], strlen(s->adapters[i]) + 1));
    }
    snprintf(kinds, sizeof kinds, "%s %s %u %a %a %u", omm_activations_name(s->l.activations),
             omm_kv_type_name(s->l.memory.plan.session.kv_type),
             s->l.memory.plan.session.positions_max, (double)o->sampler.temperature,
             (double)o->sampler.top_p, o->sampler.top_k);
    omm_hasher_update(&h, omm_bytes_str(kinds));
    /* Without min_p and penalties the fingerprint is that of servers that did not know it. */
    snprintf(kinds, sizeof kinds, " min-p %a", (double)o->sampler.min_p);
    if (o->sampler.min_p > 0.0f) omm_hasher_update(&h, omm_bytes_str(kinds));
    snprintf(kinds, sizeof kinds, " penalties %a %a %a %u", (double)o->sampler.frequency_penalty,
             (double)o->sampler.presence_penalty, (double)o->sampler.repeat_penalty,
             o->sampler.repeat_last);
    if (omm_sampler_penalises(&o->sampler) || o->sampler.repeat_last != OMM_REPEAT_LAST_DEFAULT)
        omm_hasher_update(&h, omm_bytes_str(kinds));
    if (o->no_think) omm_hasher_update(&h, omm_bytes_str(" no-think"));
    digest = omm_hasher_final(&h);
    omm_digest_hex(hex, &digest);
    snprintf(s->fingerprint, sizeof s->fingerprint, "omm-%.16s", hex);
    return OMM_OK;
}

/* ---- serving --------------------------------------------------------------------------------- */

static bool is_of_this_machine(const char *listen) {
    return strncmp(listen, "127.", 4) == 0 || strncmp(listen, "[::1]", 5) == 0 ||
           strncmp(listen, "localhost:", 10) == 0;
}

static void tell(const served *s, const serve_options *o, unsigned port) {
    const char *colon = strrchr(o->listen, ':');
    if (!o->key_file && !is_of_this_machine(o->listen))
        fprintf(
            stderr,
            "meshmind: warning: whoever reaches %s may use this server; --api-key-file asks for "
            "a key\n",
            o->listen);
    for (uint32_t i = 0; i < o->cors.count; i++)
        if (!o->key_file && strcmp(o->cors.items[i], "*") == 0)
            fprintf(stderr, "meshmind: warning: every web page that is opened in a browser on this "
                            "machine may use this server; --cors ORIGIN names some, --api-key-file "
                            "asks for a key\n");
    printf("serving %s at http://%.*s:%u/v1, %u texts at once, %u positions each; fingerprint %s\n",
           s->name, (int)(colon - o->listen), o->listen, port, o->seats,
           s->l.memory.plan.session.positions_max, s->fingerprint);
    for (size_t i = 0; i < s->l.adapter_count; i++) printf("adapter %s\n", s->adapters[i]);
    (void)fflush(stdout);
}

/* Until a signal; then until what is being written has been, or another one. */
static void wait_for_end(omm_serve *serve, const omm_log *log) {
    const omm_clock clock = omm_clock_system();
    while (s_signals == 0) clock.sleep_ms(clock.ud, LOOK_MS);
    const uint64_t begun = clock.now_ms(clock.ud);
    uint32_t left = omm_serve_stop(serve);
    omm_log_event(log, OMM_LOG_INFO, "stopping", OMM_LOG_INT("texts", left),
                  OMM_LOG_STR("then", left ? "they are finished first; once more ends at once"
                                           : "the server ends"));
    while (left > 0 && s_signals == 1 && clock.now_ms(clock.ud) - begun < DRAIN_MS) {
        clock.sleep_ms(clock.ud, LOOK_MS);
        left = omm_serve_stop(serve);
    }
}

/* Of one text. */
static size_t cache_bytes(const loaded *l) {
    const omm_session_options *o = &l->memory.plan.session;
    const omm_model_dims *d = &l->model.dims;
    const size_t blocks = (o->positions_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    return blocks * d->layers * omm_kv_block_bytes(o->kv_type, d->kv_heads, d->head_dim);
}

/* What needs no model. */
static omm_err name_options(omm_serve_options *out, served *s, const serve_options *o) {
    *out = omm_serve_options_default();
    out->listen = o->listen;
    out->api_key = o->key_file ? (const char *)s->key.data : NULL;
    out->origins = o->cors.items;
    out->origin_count = o->cors.count;
    out->name = s->name;
    out->adapter_count = o->common.lora.count;
    for (size_t i = 0; i < out->adapter_count; i++) out->adapters[i].name = s->adapters[i];
    out->batcher.seats = o->seats;
    out->sampler = o->sampler;
    out->at_once = o->no_think;
    out->waiting_max = o->waiting;
    out->connections_max = o->connections;
    out->connections_per_address =
        is_of_this_machine(o->listen) ? o->connections : (o->connections + 1) / 2;
    out->log = &s->log;
    return omm_serve_check(out);
}

static omm_err serve(served *s, const serve_options *o, omm_serve_options *so) {
    omm_serve *server = NULL;
    so->fingerprint = s->fingerprint;
    so->compute = &s->l.compute;
    so->model = &s->l.model;
    so->tokenizer = s->l.tokenizer;
    for (size_t i = 0; i < s->l.adapter_count; i++) so->adapters[i].adapter = s->l.adapters[i];
    so->batcher.session = s->l.memory.plan.session;
    so->batcher.prefix_bytes_max = o->keep * cache_bytes(&s->l);
    OMM_TRY(cli_take_signals(on_signal, 0));
    OMM_TRY(omm_serve_open(&server, so));
    tell(s, o, omm_serve_port(server));
    wait_for_end(server, &s->log);
    omm_serve_close(server);
    return OMM_OK;
}

/* A line end of another system is none of it; what a client can send in a header, it may have. */
static omm_err read_key(omm_buf *out, const char *path) {
    OMM_TRY(secret_read(out, path));
    while (out->size > 0 && strchr(" \t\r", out->data[out->size - 1])) out->size--;
    for (size_t i = 0; i < out->size; i++)
        if (out->data[i] <= ' ' || out->data[i] > '~')
            return omm_raise(OMM_ERR_CONFIG,
                             "--api-key-file %s: a key is printable ASCII without blanks", path);
    if (out->size == 0)
        return omm_raise(OMM_ERR_CONFIG, "--api-key-file %s: its first line is empty", path);
    return omm_buf_append(out, "", 1);
}

static omm_err check_options(served *s, const serve_options *o) {
    omm_log_level level;
    if (o->seats < 1 || o->seats > OMM_BATCHER_SEATS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--parallel %u: accepted are 1 to %u", o->seats,
                         OMM_BATCHER_SEATS_MAX);
    if (o->waiting > WAITING_MAX)
        return omm_raise(OMM_ERR_USAGE, "--queue %u: accepted are 0 to %u", o->waiting,
                         WAITING_MAX);
    if (o->connections < 1 || o->connections > CONNECTIONS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--connections %u: accepted are 1 to %u", o->connections,
                         CONNECTIONS_MAX);
    if (o->keep > KEEP_MAX)
        return omm_raise(OMM_ERR_USAGE, "--keep %u: accepted are 0 to %u", o->keep, KEEP_MAX);
    if (!omm_serve_is_address(o->listen))
        return omm_raise(OMM_ERR_USAGE,
                         "--listen %s: accepted are an address of this machine and a port, as "
                         "127.0.0.1:8080, localhost:8080 or [::1]:8080",
                         o->listen);
    if (!omm_log_level_parse(&level, o->log_level))
        return omm_raise(OMM_ERR_USAGE, "--log-level %s; accepted: debug, info, warn, error",
                         o->log_level);
    s->log = omm_log_stderr(level);
    return OMM_OK;
}

static omm_err load_and_serve(served *s, serve_options *o) {
    omm_serve_options so;
    OMM_TRY(check_options(s, o));
    if (!o->common.model) return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE");
    OMM_TRY(name_all(s, o));
    if (o->key_file) OMM_TRY(read_key(&s->key, o->key_file));
    OMM_TRY(name_options(&so, s, o));
    OMM_TRY(loaded_open(&s->l, &o->common, true));
    cli_warn_template(s->l.tokenizer);
    if (o->no_think) cli_warn_thinking(s->l.tokenizer);
    OMM_TRY(find_fingerprint(s, o));
    return serve(s, o, &so);
}

int cmd_serve(int argc, char **argv) {
    serve_options o = {.common = {.activations = "q8", .kv_default = "f16"},
                       .listen = "127.0.0.1:8080",
                       .log_level = "info",
                       .seats = 4,
                       .waiting = 64,
                       .keep = 1,
                       .connections = 256,
                       .sampler = omm_sampler_default()};
    o.sampler.temperature = 1.0f;
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &o.common.model, "FILE", "GGUF model"},
        {"lora", 0, CLI_LIST, &o.lora, "[NAME=]FILE[=X]",
         "GGUF LoRA adapter, times X, that requests ask for by NAME (the file's); up to eight; "
         "newest: your node's"},
        ANY_BASE_OPTION(o.common.any_base),
        {"name", 0, CLI_STR, &o.name, "NAME", "of the model (the file's)"},
        {"listen", 0, CLI_STR, &o.listen, "HOST:PORT",
         "where to listen (127.0.0.1:8080: this machine alone); port 0: a free one"},
        {"api-key-file", 0, CLI_STR, &o.key_file, "FILE",
         "requests must bring the key in FILE's first line; FILE is its owner's alone"},
        {"cors", 0, CLI_LIST, &o.cors, "ORIGIN",
         "web pages of ORIGIN (http://localhost:3000; *: any) may ask from a browser; up to 32; "
         "none without it"},
        {"parallel", 0, CLI_U32, &o.seats, "N", "texts written at once (4)"},
        {"queue", 0, CLI_U32, &o.waiting, "N", "texts that may wait; more are refused (64)"},
        {"keep", 0, CLI_U32, &o.keep, "N",
         "caches of texts kept for prompts that begin alike (1): of so many times -c positions"},
        {"connections", 0, CLI_U32, &o.connections, "N",
         "clients that are connected; of one address half as many, of this machine all (256)"},
        {"temp", 0, CLI_F32, &o.sampler.temperature, "X",
         "temperature of requests without one (1)"},
        {"top-k", 0, CLI_U32, &o.sampler.top_k, "N",
         "top_k of requests without one; 0: all (default)"},
        {"top-p", 0, CLI_F32, &o.sampler.top_p, "X", "top_p of requests without one (1: all)"},
        {"min-p", 0, CLI_F32, &o.sampler.min_p, "X", "min_p of requests without one (0: all)"},
        {"frequency-penalty", 0, CLI_F32, &o.sampler.frequency_penalty, "X",
         "frequency_penalty of requests without one; -2 to 2 (0)"},
        {"presence-penalty", 0, CLI_F32, &o.sampler.presence_penalty, "X",
         "presence_penalty of requests without one; -2 to 2 (0)"},
        {"repeat-penalty", 0, CLI_F32, &o.sampler.repeat_penalty, "X",
         "repeat_penalty of requests without one (1: none)"},
        {"repeat-last-n", 0, CLI_U32, &o.sampler.repeat_last, "N",
         "repeat_last_n of requests without one (64)"},
        NO_THINK_OPTION(o.no_think),
        LOADED_COMPUTE_OPTIONS(o.common, "q8", "f16"),
        {"log-level", 0, CLI_STR, &o.log_level, "LEVEL", "debug, info, warn or error (info)"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(
        &count, &args, argc, argv, options, "serve -m MODEL [options]",
        "Answer chats and continue texts over HTTP: POST /v1/chat/completions, /v1/completions; "
        "GET "
        "/v1/models, /health, /metrics.\n"
        "A request's \"model\" names the model or an adapter, or adapters joined by +.  Equal "
        "requests with equal seeds give equal text, whatever else is asked at the same time.",
        0, 0);
    if (code >= 0) return code;
    served s = {0};
    o.common.sessions = o.seats + o.keep;
    o.common.lexicon = true; /* for the first request that asks for JSON */
    o.common.logit_rows = (uint64_t)o.seats + omm_batcher_options_default().rows_max;
    omm_buf_init(&s.key, 4096);
    omm_err err = load_and_serve(&s, &o);
    loaded_close(&s.l);
    secret_wipe(&s.key);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
