/* node_setup.c - `meshmind node setup`: four questions, then node.yaml and a key.
 *
 * What an option says is not asked.  Every answer is checked when it is given, and the file that was
 * written is read back as `node` reads it.  Nothing that is there is overwritten without being asked for.
 */
#include "commands.h"
#include "loaded.h"
#include "node_actions.h"
#include "node_config.h"
#include "options.h"
#include "places.h"
#include "print.h"
#include "secret.h"
#include "service_config.h"

#include "omm/dataset.h"
#include "omm/enrolment.h"
#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/key_lock.h"
#include "omm/tls.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MAX 4096
#define FILE_BYTES_MAX ((size_t)1 << 20)
#define EXAMPLES_SHOWN 1000u /* of the data are read, to say whether they can be */

typedef struct setup {
    const char *config, *key, *coordinator, *coordinator_key, *tls_certificate, *model, *data,
        *client, *hours, *cpu, *memory_mb, *name, *passphrase_file, *token, *token_file;
    bool replace, passphrase, json;
    char answers[11][ANSWER_MAX];
    uint32_t answer_count;
    char config_path[OMM_PATH_MAX], key_path[OMM_PATH_MAX], state_path[OMM_PATH_MAX];
    omm_key secret;
} setup;

/* ---- answers ---- */

/* A path as one that starts at "/"; "~/" is the owner's home.  Errors: NOT_FOUND (no file), TOO_BIG. */
static omm_err check_file(char out[OMM_PATH_MAX], const char *text) {
    char here[OMM_PATH_MAX];
    const char *home = getenv("HOME");
    if (strncmp(text, "~/", 2) == 0 && home)
        OMM_TRY(omm_path_join(out, home, text + 2));
    else if (text[0] != '/' && getcwd(here, sizeof here))
        OMM_TRY(omm_path_join(out, here, text));
    else
        OMM_TRY(omm_path_join(out, "/", text));
    uint64_t size = 0;
    return omm_file_size(&size, out);
}

static omm_err check_number(uint32_t *out, const char *text, uint32_t min, uint32_t max) {
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value < min || value > max)
        return omm_raise(OMM_ERR_CONFIG, "\"%.40s\"; accepted: %u to %u", text, min, max);
    *out = (uint32_t)value;
    return OMM_OK;
}

static omm_err check_certificate(const setup *s, const char *text) {
    (void)s;
    char full[OMM_PATH_MAX];
    omm_digest fingerprint;
    omm_buf pem;
    OMM_TRY(check_file(full, text));
    omm_buf_init(&pem, OMM_TLS_PEM_BYTES_MAX);
    omm_err err = omm_file_read(&pem, full);
    if (err == OMM_OK) err = omm_tls_fingerprint(&fingerprint, omm_buf_view(&pem));
    if (err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG)
        err =
            omm_raise(err, "%s; accepted: the PEM file that the coordinator's `keygen --tls` made",
                      omm_err_sentence());
    omm_buf_fini(&pem);
    return err;
}

static bool is_fetched(const char *model) {
    return strcmp(model, "fetch") == 0; /* the node gets the coordinator's by itself */
}

static omm_err check_model(const setup *s, const char *text) {
    (void)s;
    char full[OMM_PATH_MAX];
    omm_gguf gguf;
    if (is_fetched(text)) return OMM_OK;
    OMM_TRY(check_file(full, text));
    OMM_TRY(omm_gguf_open(&gguf, full));
    omm_gguf_close(&gguf);
    return OMM_OK;
}

static omm_err check_address(const setup *s, const char *text) {
    (void)s;
    const char *port = strrchr(text, ':');
    uint32_t number;
    if ((strncmp(text, "tcp://", 6) == 0 || strncmp(text, "tls+tcp://", 10) == 0) &&
        port > strstr(text, "//") + 2 && check_number(&number, port + 1, 1, 65535) == OMM_OK)
        return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "\"%.100s\"; accepted: tls+tcp://host:port, tcp://host:port, with the port's "
                     "number",
                     text);
}

static omm_err check_key(const setup *s, const char *text) {
    (void)s;
    omm_public_key key;
    return service_public_key(&key, text, "the coordinator's public key");
}

/* As `node` will read it. */
static omm_err check_token_file(const setup *s, const char *text) {
    char full[OMM_PATH_MAX];
    omm_buf token;
    omm_seed seed;
    (void)s;
    OMM_TRY(check_file(full, text));
    OMM_TRY(omm_file_check_private(full));
    omm_buf_init(&token, OMM_INVITATION_TEXT_SIZE + 8);
    omm_err err = omm_file_read(&token, full);
    if (err == OMM_OK) err = omm_buf_append(&token, "", 1);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG)
        err = omm_invitation_parse(&seed, err == OMM_OK ? (const char *)token.data : "");
    explicit_bzero(&seed, sizeof seed);
    omm_free_secret(token.data, token.capacity);
    return err;
}

static omm_err check_token(const setup *s, const char *text) {
    (void)s;
    omm_seed token;
    if (strcmp(text, "none") == 0) return OMM_OK;
    const omm_err err = omm_invitation_parse(&token, text);
    explicit_bzero(&token, sizeof token);
    return err;
}

static omm_err count_some(void *ud, const omm_example *example) {
    (void)example;
    return ++*(uint32_t *)ud < EXAMPLES_SHOWN ? OMM_OK
                                              : omm_raise(OMM_ERR_CANCELLED, "it is enough");
}

/* As the node will read them: all of it where the model is here, else their form. */
static omm_err read_examples(const setup *s, const char *data) {
    char full[OMM_PATH_MAX];
    omm_gguf gguf;
    omm_tokenizer *tokenizer = NULL;
    uint32_t count = 0;
    const omm_dataset_options options = {.clients = s->client ? &s->client : NULL,
                                         .client_count = s->client != NULL,
                                         .format = OMM_DATA_DETECT,
                                         .client_default = "own"};
    if (is_fetched(s->model)) return omm_dataset_check(data, &options, EXAMPLES_SHOWN);
    OMM_TRY(check_file(full, s->model));
    OMM_TRY(omm_gguf_open(&gguf, full));
    omm_err err = omm_tokenizer_open(&tokenizer, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    cli_warn_words(tokenizer);
    err = omm_dataset_scan(NULL, data, tokenizer, &options, count_some, &count);
    omm_tokenizer_close(tokenizer);
    if (err == OMM_ERR_CANCELLED) err = OMM_OK;
    if (err == OMM_OK && count == 0)
        err = omm_raise(OMM_ERR_NOT_FOUND, "%s: nothing to learn from%s%s", data,
                        s->client ? " of client " : "", s->client ? s->client : "");
    if (err == OMM_OK)
        fprintf(stderr, "  %u example%s\n", count,
                count == 1                ? ""
                : count == EXAMPLES_SHOWN ? "s and more"
                                          : "s");
    return err;
}

static omm_err check_data(const setup *s, const char *text) {
    char full[OMM_PATH_MAX];
    uint64_t size = 0;
    OMM_TRY(check_file(full, text));
    OMM_TRY(omm_file_size(&size, full));
    if (size == 0) return omm_raise(OMM_ERR_CONFIG, "%s is empty", full);
    return read_examples(s, full);
}

static omm_err check_hours(const setup *s, const char *text) {
    (void)s;
    omm_hours hours;
    if (text[0] && omm_hours_parse(&hours, text) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "\"%.60s\"; accepted: HH:MM-HH:MM, up to 4 of these with commas, or always",
                     text);
}

static omm_err parse_cpu(uint32_t *out, const char *text) {
    return check_number(out, text, 1, 100);
}

static omm_err check_cpu(const setup *s, const char *text) {
    (void)s;
    uint32_t value;
    return parse_cpu(&value, text);
}

static omm_err parse_memory(uint32_t *out, const char *text) {
    return check_number(out, text, 0, 16000000);
}

static omm_err check_memory(const setup *s, const char *text) {
    (void)s;
    uint32_t value;
    return parse_memory(&value, text);
}

/* What was pasted with a blank before it or behind. */
static void trim(char *text) {
    static const char blanks[] = " \t\r\n";
    const size_t begin = strspn(text, blanks);
    size_t end = strlen(text);
    while (end > begin && strchr(blanks, text[end - 1])) end--;
    memmove(text, text + begin, end - begin);
    text[end - begin] = '\0';
}

/* Ask until the answer is a good one; an empty one takes `fallback`, if there is one.
 * Errors: USAGE (no more input: names the option), those of check for what an option said. */
static omm_err ask(setup *s, const char **out, const char *question, const char *option,
                   const char *fallback, omm_err (*check)(const setup *s, const char *text)) {
    if (*out) return omm_err_about(check(s, *out), option);
    char *answer = s->answers[s->answer_count++];
    for (;;) {
        fprintf(stderr, "%s%s%s%s: ", question, fallback ? " [" : "", fallback ? fallback : "",
                fallback ? "]" : "");
        if (!fgets(answer, ANSWER_MAX, stdin))
            return omm_raise(OMM_ERR_USAGE, "%s is needed (or an answer)", option);
        trim(answer);
        if (!answer[0] && fallback) (void)snprintf(answer, ANSWER_MAX, "%s", fallback);
        if (check(s, answer) == OMM_OK) break;
        fprintf(stderr, "  %s\n", omm_err_sentence());
    }
    *out = answer;
    return OMM_OK;
}

/* Where all else is said by options and nobody answers there is none: not every coordinator asks for one. */
static omm_err ask_token(setup *s) {
    if (s->token_file) return ask(s, &s->token_file, "", "--token-file", NULL, check_token_file);
    const omm_err err =
        ask(s, &s->token, "  its invitation, or none", "--token-file", "none", check_token);
    if (err != OMM_ERR_USAGE || !feof(stdin)) return err;
    fputc('\n', stderr);
    s->token = "none";
    return OMM_OK;
}

static omm_err ask_all(setup *s) {
    fprintf(stderr, "Enter takes what is in brackets; Ctrl-C leaves all as it is.\n"
                    "1 of 4: which coordinator?  Whoever runs it tells you its address, its public "
                    "key and the model.\n");
    OMM_TRY(ask(s, &s->coordinator, "  address", "--coordinator", NULL, check_address));
    OMM_TRY(ask(s, &s->coordinator_key, "  public key", "--coordinator-key", NULL, check_key));
    if (strncmp(s->coordinator, "tls+", 4) == 0)
        OMM_TRY(ask(s, &s->tls_certificate, "  its certificate (file)", "--tls-certificate", NULL,
                    check_certificate));
    OMM_TRY(ask_token(s));
    OMM_TRY(ask(s, &s->model, "  base model (a file, or fetch)", "--model", "fetch", check_model));
    fprintf(stderr,
            "2 of 4: which data?  A text, or examples as JSON, one in each line.  The file stays "
            "here; what was\n        learned from it is sent.\n");
    OMM_TRY(ask(s, &s->data, "  data (file)", "--data", NULL, check_data));
    fprintf(stderr, "3 of 4: when?  As 22:00-07:00, or always.\n");
    OMM_TRY(ask(s, &s->hours, "  hours", "--hours", "always", check_hours));
    fprintf(stderr, "4 of 4: how much of this machine?\n");
    OMM_TRY(ask(s, &s->cpu, "  percent of all processors", "--cpu", "50", check_cpu));
    return ask(s, &s->memory_mb, "  megabytes of memory, 0 for what is free", "--memory-mb", "0",
               check_memory);
}

/* ---- files ---- */

static omm_err put_file(omm_buf *out, const char *key, const char *text) {
    char full[OMM_PATH_MAX];
    if (!text) return OMM_OK;
    OMM_TRY(check_file(full, text));
    return node_file_put(out, key, full);
}

static omm_err write_yaml(omm_buf *out, const setup *s) {
    uint32_t cpu, memory_mb;
    OMM_TRY(parse_cpu(&cpu, s->cpu));
    OMM_TRY(parse_memory(&memory_mb, s->memory_mb));
    OMM_TRY(omm_buf_printf(out, "# Written by `meshmind node setup`; `meshmind node --keys` lists "
                                "what else may stand here.\n"));
    OMM_TRY(node_file_put(out, "coordinator", s->coordinator));
    OMM_TRY(node_file_put(out, "coordinator_key", s->coordinator_key));
    OMM_TRY(put_file(out, "tls_certificate", s->tls_certificate));
    if (s->token && strcmp(s->token, "none") != 0) OMM_TRY(node_file_put(out, "token", s->token));
    OMM_TRY(put_file(out, "token_file", s->token_file));
    OMM_TRY(node_file_put(out, "name", s->name));
    OMM_TRY(node_file_put(out, "key", s->key_path));
    OMM_TRY(put_file(out, "passphrase_file", s->passphrase_file));
    OMM_TRY(node_file_put(out, "state_dir", s->state_path));
    if (!is_fetched(s->model)) OMM_TRY(put_file(out, "model", s->model));
    OMM_TRY(put_file(out, "data", s->data));
    if (s->client) OMM_TRY(node_file_put(out, "client", s->client));
    OMM_TRY(node_file_put(out, "hours", s->hours));
    return omm_buf_printf(out, "max_cpu_percent: %u\nmax_memory_mb: %u\npriority: idle\n", cpu,
                          memory_mb);
}

/* What `node` would refuse is refused before anything is written. */
static omm_err check_yaml(const setup *s, const omm_buf *text) {
    omm_arena arena;
    node_file file;
    omm_arena_init(&arena, 2 * FILE_BYTES_MAX);
    const omm_err err =
        omm_config_parse(&file, node_fields, omm_buf_view(text), s->config_path, &arena);
    omm_arena_fini(&arena);
    return err;
}

/* May `path` be written?  On a terminal the owner is asked. */
static omm_err may_replace(const setup *s, const char *path) {
    char answer[8] = "";
    if (!omm_file_exists(path) || s->replace) return OMM_OK;
    fprintf(stderr, "%s is there already; replace it? [no]: ", path);
    if (fgets(answer, sizeof answer, stdin) && strcmp(answer, "yes\n") == 0) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "%s is there already and stays as it is (--replace, or "
                     "answer yes)",
                     path);
}

/* The key that is there, or a new one. */
static omm_err take_key(setup *s, omm_public_key *public_key) {
    const char *passphrase_file = s->passphrase_file ? s->passphrase_file : "";
    if (omm_file_exists(s->key_path)) {
        OMM_TRY(secret_load_key(&s->secret, s->key_path, passphrase_file));
        *public_key = s->secret.public_key;
        return OMM_OK;
    }
    OMM_TRY(place_make_parent(s->key_path));
    omm_key_generate(&s->secret);
    *public_key = s->secret.public_key;
    if (!s->passphrase && !s->passphrase_file) return omm_key_save(s->key_path, &s->secret);
    omm_buf passphrase;
    omm_buf_init(&passphrase, OMM_PASSPHRASE_BYTES_MAX);
    omm_err err = s->passphrase_file ? secret_read(&passphrase, s->passphrase_file)
                                     : secret_ask(&passphrase, "passphrase for the new key", true);
    if (err == OMM_OK)
        err = omm_key_save_locked(s->key_path, &s->secret, omm_buf_view(&passphrase));
    secret_wipe(&passphrase);
    return err;
}

static omm_err print_done(const setup *s, const omm_public_key *key) {
    char hex[2 * sizeof key->b + 1];
    omm_hex(hex, omm_bytes_of(key->b, sizeof key->b));
    if (s->json) {
        omm_buf text;
        omm_buf_init(&text, FILE_BYTES_MAX);
        json_t *root = json_pack("{s:i,s:s,s:s}", "schema_version", 1, "config", s->config_path,
                                 "public_key", hex);
        const omm_err err = omm_json_write(&text, root);
        if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
        json_decref(root);
        omm_buf_fini(&text);
        return err;
    }
    const bool is_invited = s->token_file || (s->token && strcmp(s->token, "none") != 0);
    char word[4 * OMM_PATH_MAX], file[sizeof word + 8] = ""; /* in its place it is found without */
    if (s->config) {
        cli_shell_word(word, sizeof word, s->config_path);
        (void)snprintf(file, sizeof file, " -c %s", word);
    }
    printf(
        "written: %s\nyour public key%s:\n  %s\nthen: meshmind node --dry-run%s   trains for a "
        "round and shows what would be sent.  It waits for one\n        to open, says that it is "
        "there, uses the invitation, and sends nothing that it has learned; no\n        round that "
        "others are enough for waits for it\n"
        "      meshmind node%s   takes part, and sends what the dry run has made if its round is "
        "still open\n",
        s->config_path,
        is_invited ? ", which your invitation lets in"
                   : "; whoever runs the coordinator must let it in",
        hex, file, file);
    return OMM_OK;
}

static omm_err write_config(const setup *s, const omm_buf *text) {
    OMM_TRY(place_make_parent(s->config_path));
    OMM_TRY(omm_file_write(s->config_path, omm_buf_view(text), 0600));
    service_env env = {0};
    node_file file;
    const omm_err err = service_load(&env, &file, node_fields, s->config_path);
    service_end(&env);
    return err;
}

static omm_err find_paths(setup *s) {
    OMM_TRY(s->config ? omm_path_join(s->config_path, ".", s->config)
                      : place_path(s->config_path, PLACE_CONFIG, "node.yaml"));
    char here[OMM_PATH_MAX];
    if (s->key && s->key[0] != '/' && getcwd(here, sizeof here))
        OMM_TRY(omm_path_join(s->key_path, here, s->key));
    else
        OMM_TRY(s->key ? omm_path_join(s->key_path, "/", s->key)
                       : place_path(s->key_path, PLACE_DATA, "node.key"));
    return place_path(s->state_path, PLACE_STATE, "node");
}

static omm_err run_setup(setup *s) {
    omm_public_key public_key;
    omm_buf text;
    OMM_TRY(find_paths(s));
    OMM_TRY(place_check_unsealed("--config", s->config_path));
    OMM_TRY(place_check_unsealed("--key", s->key_path));
    OMM_TRY(may_replace(s, s->config_path));
    OMM_TRY(ask_all(s));
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = write_yaml(&text, s);
    if (err == OMM_OK) err = check_yaml(s, &text);
    if (err == OMM_OK) err = take_key(s, &public_key);
    if (err == OMM_OK) err = write_config(s, &text);
    if (err == OMM_OK) err = print_done(s, &public_key);
    omm_free_secret(text.data, text.capacity); /* a token may be in it */
    omm_key_wipe(&s->secret);
    return err;
}

int node_setup(int argc, char **argv) {
    static setup s; /* the answers are long */
    s = (setup){.name = "node"};
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &s.config, "FILE", "to write (XDG: openmeshmind/node.yaml)"},
        {"coordinator", 0, CLI_STR, &s.coordinator, "URL",
         "tls+tcp://host:port or tcp://host:port"},
        {"coordinator-key", 0, CLI_STR, &s.coordinator_key, "HEX", "its public key"},
        {"tls-certificate", 0, CLI_STR, &s.tls_certificate, "FILE", "its certificate, for tls+tcp"},
        {"token-file", 0, CLI_STR, &s.token_file, "FILE", "has the invitation, if there is one"},
        {"model", 'm', CLI_STR, &s.model, "FILE", "base model, GGUF; fetch: the coordinator's"},
        {"data", 'd', CLI_STR, &s.data, "FILE", "your data; it stays here"},
        {"client", 0, CLI_STR, &s.client, "NAME", "only this client's lines of it"},
        {"hours", 0, CLI_STR, &s.hours, "HOURS", "22:00-07:00, or always"},
        {"cpu", 0, CLI_STR, &s.cpu, "PERCENT", "of all processors"},
        {"memory-mb", 0, CLI_STR, &s.memory_mb, "N", "of the whole process; 0: what is free"},
        {"name", 'n', CLI_STR, &s.name, "NAME", "of this node, for logs (node)"},
        {"key", 'k', CLI_STR, &s.key, "FILE", "secret key, made if it is not there (XDG)"},
        {"passphrase", 0, CLI_FLAG, &s.passphrase, NULL, "lock the new key; asks for it"},
        {"passphrase-file", 0, CLI_STR, &s.passphrase_file, "FILE",
         "lock it with this file's line"},
        {"replace", 0, CLI_FLAG, &s.replace, NULL, "overwrite a file that is there"},
        {"json", 0, CLI_FLAG, &s.json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    const int code = cli_parse(&count, &args, argc, argv, options, "node setup [options]",
                               "Ask four questions and write node.yaml and a key, for this user "
                               "alone.\nWhat an option says is not asked.",
                               0, 0);
    if (code >= 0) return code;
    const omm_err err = run_setup(&s);
    explicit_bzero(s.answers, sizeof s.answers);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("node setup", err);
}
