/* node_status.c - `meshmind node status`: what a node does, since when, why it pauses, what it has sent
 * and what it declined; and what a dry run would have sent.
 *
 * A node that runs holds its database, and writes status.json every second; of one that does not run
 * the database itself is read.
 */
#include "commands.h"
#include "node_actions.h"
#include "node_config.h"
#include "options.h"
#include "places.h"
#include "service_config.h"

#include "omm/envelope.h"
#include "omm/json.h"
#include "omm/messages.h"
#include "omm/node_history.h"
#include "omm/node_service.h"
#include "omm/plain_text.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STATUS_BYTES_MAX ((size_t)1 << 20)
#define SILENT_S 30  /* a node that lives writes its status every second */
#define LOOKS_MAX 50 /* at a database that another holds */
#define LOOK_US 20000
#define DIGEST_SHOWN 16 /* hex digits, for people */

/* ---- gather ---- */

static omm_err put_path(json_t *root, const char *key, service_env *env, const char *path) {
    const char *full = NULL;
    OMM_TRY(service_path(&full, env, path));
    return full[0] ? omm_json_set(root, key, omm_json_text(full)) : OMM_OK;
}

/* What it reads and where it writes: nothing else of this machine is touched. */
static omm_err put_files(json_t *root, service_env *env, const node_file *file) {
    json_t *reads = json_object();
    OMM_TRY(omm_json_set(root, "reads", reads));
    OMM_TRY(put_path(reads, "data", env, file->data));
    OMM_TRY(put_path(reads, "model", env, file->model));
    OMM_TRY(put_path(reads, "scenario", env, file->scenario));
    OMM_TRY(put_path(reads, "key", env, file->key));
    OMM_TRY(put_path(root, "writes", env, file->state_dir));
    OMM_TRY(omm_json_set_str(root, "coordinator", file->coordinator));
    return omm_json_set_str(root, "name", file->name);
}

static omm_err put_running(json_t *root, const char *state_dir) {
    char path[OMM_PATH_MAX];
    json_t *now = NULL;
    OMM_TRY(omm_path_join(path, state_dir, OMM_NODE_STATUS_FILE));
    const omm_err err = omm_json_load(&now, path, STATUS_BYTES_MAX);
    if (err == OMM_ERR_NOT_FOUND) { /* it has its database, and not yet more */
        OMM_TRY(omm_json_set_str(root, "state", "starting"));
        return omm_json_set_bool(root, "running", true);
    }
    OMM_TRY(err);
    const int rc = json_object_update(root, now);
    json_decref(now);
    if (rc != 0) return omm_raise(OMM_ERR_NOMEM, "JSON");
    return omm_json_set_bool(root, "running", true);
}

static bool is_alive(json_int_t pid) {
    return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* Of the process that wrote the notice; *err NOT_FOUND: none has. */
static bool writer_lives(omm_err *err, const char *state_dir) {
    char path[OMM_PATH_MAX];
    json_t *now = NULL;
    *err = omm_path_join(path, state_dir, OMM_NODE_STATUS_FILE);
    if (*err == OMM_OK) *err = omm_json_load(&now, path, STATUS_BYTES_MAX);
    const bool lives = *err == OMM_OK && is_alive(json_integer_value(json_object_get(now, "pid")));
    json_decref(now);
    return lives;
}

/* It has no database before the base model is here; its notice may be of a process that is gone. */
static omm_err put_fetching(json_t *root, const char *state_dir) {
    omm_err err = OMM_OK;
    if (writer_lives(&err, state_dir)) return put_running(root, state_dir);
    return omm_json_set_str(root, "state",
                            err == OMM_ERR_NOT_FOUND ? "never started" : "not running");
}

/* A node writes its notice before it takes its database: where who wrote it is gone, somebody else looks just now. */
static omm_err read_history(json_t **history, const char *state_dir) {
    omm_err notice = OMM_OK;
    omm_err err = omm_node_history_read(history, state_dir);
    for (int i = 0; i < LOOKS_MAX && err == OMM_ERR_STATE; i++) {
        if (writer_lives(&notice, state_dir) || notice != OMM_OK) break;
        usleep(LOOK_US);
        err = omm_node_history_read(history, state_dir);
    }
    return err;
}

static omm_err put_state(json_t *root, const char *state_dir) {
    json_t *history = NULL;
    OMM_TRY(omm_json_set_bool(root, "running", false));
    const omm_err err = read_history(&history, state_dir);
    if (err == OMM_ERR_STATE) return put_running(root, state_dir);
    if (err == OMM_ERR_NOT_FOUND) return put_fetching(root, state_dir);
    OMM_TRY(err);
    OMM_TRY(omm_json_set(root, "history", history));
    return omm_json_set_str(root, "state", "not running");
}

/* ---- print ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long number_of(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *time_text(char out[32], long long seconds) {
    const time_t at = (time_t)seconds;
    struct tm local;
    out[0] = '\0';
    if (localtime_r(&at, &local)) (void)strftime(out, 32, "%Y-%m-%d %H:%M:%S", &local);
    return out;
}

/* A node that lives says something every second. */
static void print_silence(const json_t *root) {
    const long long silent_s = (long long)time(NULL) - number_of(root, "updated_s");
    if (!json_object_get(root, "updated_s") || silent_s < SILENT_S) return;
    printf("; no word from it for %lld s: it is stopped, has no processor time, or cannot write to "
           "its disk (see its log)",
           silent_s);
}

void node_print_clean(const char *text) {
    omm_buf clean;
    omm_buf_init(&clean, SIZE_MAX / 2);
    if (omm_text_clean(&clean, omm_bytes_str(text)) != OMM_OK) clean.size = 0;
    for (size_t i = 0; i < clean.size; i++)
        if (clean.data[i] == '\n' || clean.data[i] == '\t') clean.data[i] = '?'; /* one line */
    printf("%.*s", (int)clean.size, clean.size ? (const char *)clean.data : "");
    omm_buf_fini(&clean);
}

static void print_now(const json_t *root) {
    char since[32];
    node_print_clean(text_of(root, "name"));
    printf(": %s", text_of(root, "state"));
    if (text_of(root, "detail")[0]) {
        printf(", ");
        node_print_clean(text_of(root, "detail"));
    }
    if (json_is_true(json_object_get(root, "running"))) {
        if (json_object_get(root, "round")) printf(", round %lld", number_of(root, "round"));
        if (number_of(root, "steps"))
            printf(", step %lld of %lld", number_of(root, "steps_done"), number_of(root, "steps"));
        if (number_of(root, "since_s")) /* else it has not said more yet */
            printf("; since %s, %.1f MB in memory", time_text(since, number_of(root, "since_s")),
                   (double)number_of(root, "resident_bytes") * 1e-6);
        print_silence(root);
    }
    printf("\ncoordinator  ");
    node_print_clean(text_of(root, "coordinator"));
    printf("\n");
    const json_t *wire = json_object_get(root, "wire");
    if (wire && number_of(wire, "since_s"))
        printf("connection   %lld bytes out, %lld in, since %s\n", number_of(wire, "bytes_out"),
               number_of(wire, "bytes_in"), time_text(since, number_of(wire, "since_s")));
}

static void print_files(const json_t *root) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "reads"), key, value) {
        printf("reads        ");
        node_print_clean(json_string_value(value));
        printf(" (%s)%s\n", key, strcmp(key, "data") == 0 ? ": used here, never sent" : "");
    }
    printf("writes       ");
    node_print_clean(text_of(root, "writes"));
    printf("\n");
}

/* What came of a submission, in a word. */
static const char *verdict_of(const json_t *one, const char *ok) {
    const char *verdict = text_of(one, "verdict");
    if (json_is_false(json_object_get(one, "sent"))) return "made, not sent";
    if (!verdict[0]) return "no verdict yet";
    return strcmp(verdict, "OK") == 0 ? ok : verdict;
}

static void print_sent(const json_t *history) {
    const json_t *sent = json_object_get(history, "sent"), *round;
    size_t i;
    char at[32];
    printf("sent         %lld rounds, %lld of them accepted: %lld bytes of updates, %lld of signed "
           "manifests\n",
           number_of(sent, "rounds"), number_of(sent, "accepted"), number_of(sent, "payload_bytes"),
           number_of(sent, "submission_bytes"));
    json_array_foreach(json_object_get(history, "rounds"), i, round) {
        printf("  round %-4lld %s  %lld bytes, digest %.*s..., %s\n", number_of(round, "round"),
               time_text(at, number_of(round, "at_s")), number_of(round, "payload_bytes"),
               DIGEST_SHOWN, text_of(round, "payload"), verdict_of(round, "accepted"));
    }
}

static void print_canaries(const json_t *history) {
    const json_t *list = json_object_get(history, "canaries"), *one;
    size_t i;
    char at[32];
    if (json_array_size(list) == 0) return;
    printf("canaries     on public data, nothing of yours in them\n");
    json_array_foreach(list, i, one) {
        printf("  round %-4lld %s  %lld bytes, digest %.*s..., %s\n", number_of(one, "round"),
               time_text(at, number_of(one, "at_s")), number_of(one, "payload_bytes"), DIGEST_SHOWN,
               text_of(one, "payload"), verdict_of(one, "passed"));
    }
}

static void print_declined(const json_t *history) {
    const json_t *list = json_object_get(history, "declined"), *one;
    size_t i;
    char at[32];
    printf("declined     %s\n", json_array_size(list) ? "" : "nothing");
    json_array_foreach(list, i, one) printf(
        "  round %-4lld %s  %lld times: %s\n", number_of(one, "round"),
        time_text(at, number_of(one, "last_s")), number_of(one, "times"), text_of(one, "reason"));
}

static omm_err print_json(const json_t *root) {
    omm_buf text;
    omm_buf_init(&text, STATUS_BYTES_MAX);
    const omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    return err;
}

static omm_err status(json_t *root, const char *path, bool json) {
    service_env env = {0};
    node_file file;
    const char *state_dir = NULL;
    omm_err err = service_load(&env, &file, node_fields, path);
    if (err == OMM_OK) err = service_path(&state_dir, &env, file.state_dir);
    if (err == OMM_OK) err = put_files(root, &env, &file);
    if (err == OMM_OK) err = put_state(root, state_dir);
    service_end(&env);
    OMM_TRY(err);
    if (json) return print_json(root);
    const json_t *history = json_object_get(root, "history");
    print_now(root);
    print_files(root);
    if (history) print_sent(history);
    if (history) print_canaries(history);
    if (history) print_declined(history);
    return OMM_OK;
}

int node_status(int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &path, "FILE", "node file (XDG: openmeshmind/node.yaml)"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "node status [-c FILE]",
                         "What a node does now and since when, which files it reads, what it has "
                         "sent,\nwhat it declined and why.",
                         0, 0);
    if (code >= 0) return code;
    char config[OMM_PATH_MAX];
    json_t *root = json_object();
    omm_err err = place_node_file(config, path);
    if (err == OMM_OK) err = omm_json_set_int(root, "schema_version", 1);
    if (err == OMM_OK) err = status(root, config, json);
    json_decref(root);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("node status", err);
}

/* ---- a dry run ---- */

static omm_err put_manifest(json_t *root, const omm_submission *s) {
    OMM_TRY(omm_json_set_str(root, "run_id", s->run_id));
    OMM_TRY(omm_json_set_int(root, "round", s->round));
    OMM_TRY(omm_json_set_int(root, "steps", s->steps));
    OMM_TRY(omm_json_set_int(root, "tokens", (int64_t)s->tokens));
    OMM_TRY(omm_json_set_int(root, "examples", (int64_t)s->examples));
    OMM_TRY(omm_json_set_real(root, "loss_before", (double)s->loss_before));
    OMM_TRY(omm_json_set_real(root, "loss_after", (double)s->loss_after));
    OMM_TRY(omm_json_set_digest(root, "offer", s->offer_digest.b));
    OMM_TRY(omm_json_set_digest(root, "base", s->base_digest.b));
    OMM_TRY(omm_json_set_digest(root, "global", s->global_digest.b));
    OMM_TRY(omm_json_set_digest(root, "nonce", s->nonce.b));
    OMM_TRY(omm_json_set_digest(root, "data_commitment", s->data_commitment.b));
    OMM_TRY(omm_json_set_digest(root, "residual_before", s->residual_before.b));
    OMM_TRY(omm_json_set_digest(root, "residual_after", s->residual_after.b));
    OMM_TRY(omm_json_set_int(root, "step_digest_bytes", (int64_t)s->step_digests.size));
    OMM_TRY(omm_json_set_int(root, "payload_bytes", (int64_t)s->payload.size));
    return omm_json_set_digest(root, "payload", s->payload.digest.b);
}

static void print_manifest(json_t *root) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        if (json_is_string(value)) printf("  %-18s %s\n", key, json_string_value(value));
        if (json_is_integer(value))
            printf("  %-18s %lld\n", key, (long long)json_integer_value(value));
        if (json_is_real(value)) printf("  %-18s %.6f\n", key, json_real_value(value));
    }
}

static void print_next(bool is_told) {
    printf("These are all the bytes that the next start without --dry-run sends. %s\n",
           is_told
               ? "The coordinator was told that it is a dry run: where others are enough for a "
                 "round it does not wait for them, and if this one is over by then, they are "
                 "refused as late."
               : "This start did not tell the coordinator that it is a dry run: if an earlier one "
                 "did not either, a round that is open waits for them until its deadline.");
}

static omm_err show(const char *dir, omm_bytes bytes, bool is_told, omm_arena *arena, bool json) {
    omm_envelope envelope;
    omm_submission submission;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, bytes));
    OMM_TRY(omm_submission_decode(&submission, envelope.payload, arena));
    json_t *root = json_object();
    omm_err err = put_manifest(root, &submission);
    if (err == OMM_OK && json) {
        err = omm_json_set(root, "dir", omm_json_text(dir));
        if (err == OMM_OK) err = omm_json_set_bool(root, "sent", false);
        if (err == OMM_OK) err = omm_json_set_bool(root, "told", is_told);
        if (err == OMM_OK) err = print_json(root);
    } else if (err == OMM_OK) {
        printf("not sent: %s/%s, the signed manifest (%zu bytes), and %s/%s, the update\n", dir,
               OMM_NODE_DRY_ENVELOPE, bytes.size, dir, OMM_NODE_DRY_PAYLOAD);
        print_manifest(root);
        print_next(is_told);
    }
    json_decref(root);
    return err;
}

omm_err node_show_submission(const char *dir, bool is_told, bool json) {
    char path[OMM_PATH_MAX];
    omm_buf bytes;
    omm_arena arena;
    OMM_TRY(omm_path_join(path, dir, OMM_NODE_DRY_ENVELOPE));
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = omm_file_read(&bytes, path);
    if (err == OMM_OK) err = show(dir, omm_buf_view(&bytes), is_told, &arena, json);
    omm_arena_fini(&arena);
    omm_buf_fini(&bytes);
    return err;
}
