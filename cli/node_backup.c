/* node_backup.c - `meshmind node backup` and `restore`: what makes a node this one, as one file.
 *
 *   {"schema_version":1,"kind":"omm-node-backup","config_path":text,"config":text,"key":text,
 *    "tls_certificate":text,"token":text}
 *
 * A key with a passphrase keeps it, and the passphrase is in no backup: else the lock would be worth nothing.  A key without
 * one, and an invitation, are as secret as the backup itself.  Not in it either: data and model, which are large and the
 * owner's own, and the state (which rounds, which receipts), as a node makes its own again.
 *
 * Restored where it was, every file comes back to its place.  Elsewhere (another user, machine or folder) what the node file
 * names by an absolute path is moved (s_carried) and the file says where; relative paths begin at the node file anyway.
 */
#include "commands.h"
#include "node_actions.h"
#include "node_config.h"
#include "options.h"
#include "places.h"
#include "secret.h"
#include "service_config.h"

#include "omm/enrolment.h"
#include "omm/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define BACKUP_BYTES_MAX (8 * FILE_BYTES_MAX)
#define KIND "omm-node-backup"

typedef enum carried {
    CARRIED_KEY,
    CARRIED_CERTIFICATE,
    CARRIED_TOKEN,
    CARRIED_PASSPHRASE,
    CARRIED_STATE,
    CARRIED_COUNT
} carried;

/* A line of the node file; the member of the backup, NULL: it is in none; what it is called elsewhere, and where. */
static const struct {
    const char *line, *member, *name;
    place where;
} s_carried[CARRIED_COUNT] = {
    [CARRIED_KEY] = {"key", "key", "node.key", PLACE_DATA},
    [CARRIED_CERTIFICATE] = {"tls_certificate", "tls_certificate", "coordinator.crt", PLACE_DATA},
    [CARRIED_TOKEN] = {"token_file", "token", "node.token", PLACE_DATA},
    [CARRIED_PASSPHRASE] = {"passphrase_file", NULL, "node.passphrase", PLACE_DATA},
    [CARRIED_STATE] = {"state_dir", NULL, "node", PLACE_STATE}};

static const char *path_of(const node_file *file, carried what) {
    switch (what) {
    case CARRIED_KEY: return file->key;
    case CARRIED_CERTIFICATE: return file->tls_certificate;
    case CARRIED_TOKEN: return file->token_file;
    case CARRIED_PASSPHRASE: return file->passphrase_file;
    case CARRIED_STATE: return file->state_dir;
    case CARRIED_COUNT: break;
    }
    return "";
}

/* From the root, so that it can be compared with that of another folder. */
static omm_err full_path(char out[OMM_PATH_MAX], const char *path) {
    char here[OMM_PATH_MAX];
    if (path[0] == '/') return omm_path_join(out, "/", path);
    while (strncmp(path, "./", 2) == 0) path += 2;
    if (!getcwd(here, sizeof here)) return omm_raise(OMM_ERR_IO, "no current folder");
    return omm_path_join(out, here, path);
}

/* ---- what a backup may put there ---- */

/* A backup of somebody else names the places of its files itself, and a shell runs what it can of a file that lies where it
 * looks for its own.  So nothing but a key, an invitation and certificates is ever written, without a byte around them. */

#define PEM_LINE_MAX 76u

static bool is_hex(const char *text) {
    return text[0] && !text[strspn(text, "0123456789abcdef")];
}

/* Of a key file: is it a member of this kind of key? */
static bool is_of_key(const char *name, const json_t *value, bool is_locked) {
    static const char *const locked[] = {"salt", "nonce", "box"}, *const numbers[] = {"ops",
                                                                                      "mem_bytes"};
    const char *text = json_string_value(value);
    if (strcmp(name, "kind") == 0) return true;
    if (strcmp(name, "schema_version") == 0) return json_is_integer(value);
    if (strcmp(name, "public") == 0) return text && is_hex(text);
    if (!is_locked) return strcmp(name, "secret") == 0 && text && is_hex(text);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i]) == 0) return json_is_integer(value);
    for (size_t i = 0; i < sizeof locked / sizeof *locked; i++)
        if (strcmp(name, locked[i]) == 0) return text && is_hex(text);
    return false;
}

static omm_err check_key(const char *text) {
    json_t *key = NULL, *value;
    const char *kind = "", *name;
    omm_err err = omm_json_parse(&key, omm_bytes_str(text), "key");
    if (err == OMM_OK) err = omm_json_get_str(&kind, key, "kind");
    const bool is_locked = strcmp(kind, "omm-locked-key") == 0;
    bool is_key = err == OMM_OK && (is_locked || strcmp(kind, "omm-secret-key") == 0);
    json_object_foreach(key, name, value) is_key = is_key && is_of_key(name, value, is_locked);
    json_decref(key);
    return is_key ? OMM_OK : omm_raise(OMM_ERR_FORMAT, "the backup's key is no key file");
}

static omm_err check_token(const char *text) {
    char line[256];
    omm_seed seed;
    const size_t size = strcspn(text, "\r\n");
    (void)snprintf(line, sizeof line, "%.*s", (int)size, text);
    const bool is_alone = !text[size + strspn(text + size, "\r\n")];
    if (is_alone && omm_invitation_parse(&seed, line) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "the backup's token is no invitation on one line");
}

static bool is_line(const char *line, size_t size, const char *is) {
    return size == strlen(is) && memcmp(line, is, size) == 0;
}

/* RFC 7468: one certificate behind the other; nothing else beside, but empty lines. */
static bool is_pem(const char *text) {
    static const char base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    static const char *const marks[] = {"-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"};
    bool is_inside = false, any = false;
    while (*text) {
        const size_t whole = strcspn(text, "\n");
        const size_t size = whole > 0 && text[whole - 1] == '\r' ? whole - 1 : whole;
        const size_t letters = strspn(text, base64);
        if (is_line(text, size, marks[is_inside])) {
            is_inside = !is_inside;
            any = true;
        } else if (size > 0 && (!is_inside || letters != size || size > PEM_LINE_MAX)) {
            return false;
        }
        text += whole + (text[whole] == '\n');
    }
    return any && !is_inside;
}

/* A line of base64 may be a word that a shell knows: a certificate is not put where one looks for its own. */
static omm_err check_certificate_name(const json_t *root, const char *path) {
    static const char *const ends[] = {".crt", ".pem", ".cer", ".cert"};
    if (!json_object_get(root, "tls_certificate")) return OMM_OK;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t size = strlen(ends[i]), whole = strlen(path);
        if (whole > size && strcmp(path + whole - size, ends[i]) == 0) return OMM_OK;
    }
    return omm_raise(OMM_ERR_FORMAT, "the backup's tls_certificate is no file of a certificate's "
                                     "name; accepted: .crt, .pem, .cer, .cert at its end");
}

static omm_err check_contents(const json_t *root) {
    const char *text;
    OMM_TRY(omm_json_get_str(&text, root, "key"));
    OMM_TRY(check_key(text));
    if (json_object_get(root, "token")) {
        OMM_TRY(omm_json_get_str(&text, root, "token"));
        OMM_TRY(check_token(text));
    }
    if (!json_object_get(root, "tls_certificate")) return OMM_OK;
    OMM_TRY(omm_json_get_str(&text, root, "tls_certificate"));
    if (is_pem(text)) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "the backup's tls_certificate is no certificate in PEM, or "
                                     "there is something beside it");
}

/* ---- backup ---- */

static omm_err put_file(json_t *root, const char *key, const char *path) {
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_buf_append(&text, "", 1);
    if (err == OMM_OK) err = omm_json_set_str(root, key, (const char *)text.data);
    secret_wipe(&text);
    return err;
}

/* A node that was let in may have lost its invitation, and needs it no more. */
static omm_err put_carried(json_t *root, service_env *env, const node_file *file) {
    for (carried i = 0; i < CARRIED_COUNT; i++) {
        const char *path = NULL;
        OMM_TRY(service_path(&path, env, path_of(file, i)));
        if (!s_carried[i].member || !path[0]) continue;
        if (i == CARRIED_TOKEN && !omm_file_exists(path)) continue;
        OMM_TRY(put_file(root, s_carried[i].member, path));
    }
    return OMM_OK;
}

static omm_err write_backup(const char *out, const json_t *root) {
    omm_buf text;
    omm_buf_init(&text, BACKUP_BYTES_MAX);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) err = omm_file_create(out, omm_buf_view(&text), 0600);
    secret_wipe(&text);
    return err;
}

static omm_err load_file(service_env *env, node_file *file, const char *config) {
    OMM_TRY(service_load(env, file, node_fields, config));
    if (file->key[0]) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "%s: key: a node without one", config);
}

static omm_err backup(const char *config, const char *out) {
    service_env env = {0};
    node_file file;
    char full[OMM_PATH_MAX];
    json_t *root = json_pack("{s:i,s:s}", "schema_version", 1, "kind", KIND);
    omm_err err = place_check_unsealed("BACKUP", out);
    if (err == OMM_OK) err = full_path(full, config);
    if (err == OMM_OK) err = load_file(&env, &file, config);
    if (err == OMM_OK && omm_json_set_str(root, "config_path", full) != OMM_OK)
        err = omm_raise(OMM_ERR_USAGE,
                        "%s: a backup says where this file was, in UTF-8, which its path is not: "
                        "accepted is a copy in "
                        "another folder (-c FILE)",
                        full);
    if (err == OMM_OK) err = put_file(root, "config", config);
    if (err == OMM_OK) err = put_carried(root, &env, &file);
    if (err == OMM_OK) err = check_contents(root);
    if (err == OMM_OK) err = write_backup(out, root);
    service_end(&env);
    json_decref(root);
    return err;
}

/* ---- the node file, in another place ---- */

/* What its lines say then: the path, "" for none. */
typedef struct moved {
    char path[CARRIED_COUNT][OMM_PATH_MAX];
    bool changes[CARRIED_COUNT];
} moved;

/* With a file of the owner's choice (is_beside) all lies beside it, else in this user's own places. */
static omm_err plan_one(moved *m, carried what, const char *was, bool moves, bool is_beside) {
    char *path = m->path[what];
    (void)snprintf(path, OMM_PATH_MAX, "%s", was);
    if (!moves || was[0] != '/') return OMM_OK;
    m->changes[what] = true;
    if (!is_beside) return place_path(path, s_carried[what].where, s_carried[what].name);
    (void)snprintf(path, OMM_PATH_MAX, "%s", s_carried[what].name);
    return OMM_OK;
}

/* Which line of the file is this, if it is one that changes?  CARRIED_COUNT: it stays. */
static carried line_of(const moved *m, const char *text) {
    for (carried i = 0; i < CARRIED_COUNT; i++) {
        const size_t size = strlen(s_carried[i].line);
        if (m->changes[i] && strncmp(text, s_carried[i].line, size) == 0 && text[size] == ':')
            return i;
    }
    return CARRIED_COUNT;
}

static omm_err put_lines(omm_buf *out, const char *text, const moved *m) {
    while (*text) {
        const size_t size = strcspn(text, "\n") + (strchr(text, '\n') != NULL);
        const carried what = line_of(m, text);
        if (what == CARRIED_COUNT)
            OMM_TRY(omm_buf_append(out, text, size));
        else if (m->path[what][0])
            OMM_TRY(node_file_put(out, s_carried[what].line, m->path[what]));
        text += size;
    }
    return OMM_OK;
}

/* A file may be written in other ways than in lines: then they are not what they should be. */
static omm_err check_lines(const omm_buf *text, const moved *m, const char *config) {
    omm_arena arena;
    node_file file;
    omm_arena_init(&arena, 2 * FILE_BYTES_MAX);
    omm_err err = omm_config_parse(&file, node_fields, omm_buf_view(text), config, &arena);
    for (carried i = 0; i < CARRIED_COUNT && err == OMM_OK; i++)
        if (strcmp(path_of(&file, i), m->path[i]) != 0)
            err = omm_raise(OMM_ERR_CONFIG,
                            "%s: %s is not a line of its own in the node file of this backup; "
                            "accepted: the place where it was (-c)",
                            config, s_carried[i].line);
    omm_arena_fini(&arena);
    return err;
}

static const char *name_in(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Both from the root, and a folder may have two names.  Neither file need be there. */
static bool is_same_place(const char *a, const char *b) {
    char one[OMM_PATH_MAX], other[OMM_PATH_MAX];
    if (strcmp(a, b) == 0) return true;
    return strcmp(name_in(a), name_in(b)) == 0 && omm_path_dir(one, a) == OMM_OK &&
           omm_path_dir(other, b) == OMM_OK && omm_file_same(one, other);
}

/* The node file for `config`, and what changes in it. */
static omm_err move_config(omm_buf *out, moved *m, const json_t *root, const char *config,
                           bool is_beside) {
    const char *text, *was = "";
    char full[OMM_PATH_MAX];
    *m = (moved){0};
    node_file file;
    omm_arena arena;
    OMM_TRY(omm_json_get_str(&text, root, "config"));
    OMM_TRY(full_path(full, config));
    if (json_object_get(root, "config_path")) OMM_TRY(omm_json_get_str(&was, root, "config_path"));
    const bool moves = was[0] && !is_same_place(was, full);
    omm_arena_init(&arena, 2 * FILE_BYTES_MAX);
    omm_err err = omm_config_parse(&file, node_fields, omm_bytes_str(text), config, &arena);
    for (carried i = 0; i < CARRIED_COUNT && err == OMM_OK; i++)
        err = plan_one(m, i, path_of(&file, i), moves, is_beside);
    omm_arena_fini(&arena);
    OMM_TRY(err);
    OMM_TRY(check_certificate_name(root, m->path[CARRIED_CERTIFICATE]));
    if (!json_object_get(root, "token") && m->path[CARRIED_TOKEN][0]) {
        m->path[CARRIED_TOKEN][0] = '\0';
        m->changes[CARRIED_TOKEN] = true;
    }
    OMM_TRY(put_lines(out, text, m));
    return check_lines(out, m, config);
}

/* ---- restore ---- */

static omm_err put(const char *path, omm_bytes bytes, bool replace) {
    OMM_TRY(place_check_unsealed("a restored file", path));
    OMM_TRY(place_make_parent(path));
    return replace ? omm_file_write(path, bytes, 0600) : omm_file_create(path, bytes, 0600);
}

/* The path is the backup's. */
static void say_written(const char *path) {
    printf("written: ");
    node_print_clean(path);
    printf("\n");
}

static omm_err take_file(const json_t *root, carried what, const char *path, bool replace) {
    const char *text;
    if (!path[0] || !json_object_get(root, s_carried[what].member)) return OMM_OK;
    OMM_TRY(omm_json_get_str(&text, root, s_carried[what].member));
    OMM_TRY(put(path, omm_bytes_str(text), replace));
    say_written(path);
    return OMM_OK;
}

/* Before anything is written: is it a backup, and would it overwrite something? */
static omm_err check(const json_t *root, const char *config, bool replace) {
    const char *kind, *text;
    int64_t version;
    OMM_TRY(omm_json_get_str(&kind, root, "kind"));
    OMM_TRY(omm_json_get_int(&version, root, "schema_version", 1, 1));
    if (strcmp(kind, KIND) != 0) return omm_raise(OMM_ERR_FORMAT, "no backup of a node");
    OMM_TRY(omm_json_get_str(&text, root, "config"));
    OMM_TRY(check_contents(root));
    if (omm_file_exists(config) && !replace)
        return omm_raise(OMM_ERR_EXISTS, "%s is there already and stays as it is (--replace)",
                         config);
    return OMM_OK;
}

/* Another node's would be taken for this one's. */
static omm_err check_other(const json_t *root, carried what, const char *path) {
    const char *text;
    omm_buf is;
    if (!path[0] || !omm_file_exists(path) || !json_object_get(root, s_carried[what].member))
        return OMM_OK;
    OMM_TRY(omm_json_get_str(&text, root, s_carried[what].member));
    omm_buf_init(&is, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&is, path);
    if (err == OMM_OK && !omm_bytes_equal(omm_buf_view(&is), omm_bytes_str(text)))
        err = omm_raise(OMM_ERR_EXISTS,
                        "%s is there already, is not that of the backup, and stays as it is "
                        "(--replace, or -c in another folder)",
                        path);
    secret_wipe(&is);
    return err;
}

/* Where they were, what is there is this node's own, and may be newer; elsewhere it is somebody's. */
static omm_err check_others(const json_t *root, const moved *m, service_env *env,
                            const node_file *file) {
    const carried others[] = {CARRIED_CERTIFICATE, CARRIED_TOKEN};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *path = NULL;
        OMM_TRY(service_path(&path, env, path_of(file, others[i])));
        if (m->changes[others[i]]) OMM_TRY(check_other(root, others[i], path));
    }
    return OMM_OK;
}

/* Where a certificate or an invitation is already it stays. */
static omm_err take_others(const json_t *root, service_env *env, const node_file *file,
                           bool replace) {
    const carried others[] = {CARRIED_CERTIFICATE, CARRIED_TOKEN};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *path = NULL;
        OMM_TRY(service_path(&path, env, path_of(file, others[i])));
        if (replace || !omm_file_exists(path)) OMM_TRY(take_file(root, others[i], path, replace));
    }
    return OMM_OK;
}

/* What the node needs besides. */
static omm_err tell_missing(service_env *env, const node_file *file, const char *config) {
    const struct {
        const char *line, *path, *what;
    } needs[] = {{"data", file->data, "put it there"},
                 {"model", file->model, "put it there"},
                 {"passphrase_file", file->passphrase_file,
                  "write the passphrase there, for yourself alone"}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const char *path = NULL;
        OMM_TRY(service_path(&path, env, needs[i].path));
        if (!path[0] || omm_file_exists(path)) continue;
        printf("not there: ");
        node_print_clean(path);
        printf(" (%s), which no backup has: %s, or change its line in %s\n", needs[i].line,
               needs[i].what, config);
    }
    printf("Start this node only where the one that was backed up does not run any more.\n");
    return OMM_OK;
}

static omm_err put_key(const json_t *root, service_env *env, node_file *file, const moved *m,
                       const char *config, bool replace) {
    const char *key = NULL;
    OMM_TRY(load_file(env, file, config));
    OMM_TRY(service_path(&key, env, file->key));
    if (!replace) OMM_TRY(check_others(root, m, env, file));
    return take_file(root, CARRIED_KEY, key, replace);
}

/* The node file as it was before: with the bytes of `old`, or not there.  Returns err. */
static omm_err undo(omm_err err, const char *config, bool was_there, const omm_buf *old) {
    char why[600];
    snprintf(why, sizeof why, "%s", omm_err_sentence());
    const omm_err undone =
        was_there ? omm_file_write(config, omm_buf_view(old), 0600) : omm_file_remove(config);
    return undone == OMM_OK ? err : omm_raise(err, "%s; %s is the backup's now", why, config);
}

/* The node file comes first, as the key's path stands in it; it is as it was again if the key cannot follow. */
static omm_err put_all(const json_t *root, const omm_buf *text, const moved *m, const char *config,
                       bool replace) {
    service_env env = {0};
    node_file file;
    omm_buf old;
    const bool was_there = omm_file_exists(config);
    omm_buf_init(&old, FILE_BYTES_MAX);
    omm_err err = was_there ? omm_file_read(&old, config) : OMM_OK;
    if (err == OMM_OK) err = put(config, omm_buf_view(text), replace);
    if (err == OMM_OK) {
        err = put_key(root, &env, &file, m, config, replace);
        if (err != OMM_OK) err = undo(err, config, was_there, &old);
    }
    secret_wipe(&old);
    if (err == OMM_OK) say_written(config);
    if (err == OMM_OK) err = take_others(root, &env, &file, replace);
    if (err == OMM_OK) err = tell_missing(&env, &file, config);
    service_end(&env);
    return err;
}

static omm_err restore(const char *from, const char *config, bool is_beside, bool replace) {
    json_t *root = NULL;
    omm_buf text;
    moved m;
    OMM_TRY(omm_file_check_private(from));
    OMM_TRY(omm_json_load(&root, from, BACKUP_BYTES_MAX));
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = check(root, config, replace);
    if (err == OMM_OK) err = move_config(&text, &m, root, config, is_beside);
    if (err == OMM_OK) err = put_all(root, &text, &m, config, replace);
    secret_wipe(&text); /* an invitation may be in it */
    json_decref(root);
    return err;
}

static int run(int argc, char **argv, bool is_restore) {
    const char *config = NULL;
    bool replace = false;
    char file[OMM_PATH_MAX];
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &config, "FILE", "node file (XDG: openmeshmind/node.yaml)"},
        {"replace", 0, CLI_FLAG, &replace, NULL, "restore: overwrite what is there"},
        {0}};
    int count = 0;
    char **args = NULL;
    const int code = cli_parse(
        &count, &args, argc, argv, options,
        is_restore ? "node restore BACKUP [-c FILE]" : "node backup BACKUP [-c FILE]",
        is_restore
            ? "Write a node's file, key, certificate and invitation from a backup.  Elsewhere than "
              "they\nwere, beside FILE or in this user's folders."
            : "A node's file, key, certificate and invitation in one file for its owner alone.\n"
              "Without a passphrase the key in it is as open as the backup; a passphrase, data, "
              "model\nand state are not in it.",
        1, 1);
    if (code >= 0) return code;
    omm_err err =
        config ? omm_path_join(file, ".", config) : place_path(file, PLACE_CONFIG, "node.yaml");
    if (err == OMM_OK)
        err = is_restore ? restore(args[0], file, config != NULL, replace) : backup(file, args[0]);
    return err == OMM_OK ? CLI_EXIT_PASS
                         : cli_fail(is_restore ? "node restore" : "node backup", err);
}

int node_backup(int argc, char **argv) {
    return run(argc, argv, false);
}

int node_restore(int argc, char **argv) {
    return run(argc, argv, true);
}
