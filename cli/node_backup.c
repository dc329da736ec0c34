/* node_backup.c - `meshmind node backup` and `restore`: a node's file, key and certificate as one file.
 *
 *   {"schema_version":1,"kind":"omm-node-backup","config":text,"key":text,"tls_certificate":text}
 *
 * A key with a passphrase keeps it; one without is as secret as the backup itself.  State (which rounds,
 * which receipts) is not in it: a node makes its own again.
 */
#include "commands.h"
#include "node_actions.h"
#include "node_config.h"
#include "options.h"
#include "places.h"
#include "secret.h"
#include "service_config.h"

#include "omm/json.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define KIND "omm-node-backup"

static omm_err put_file(json_t *root, const char *key, const char *path) {
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_buf_append(&text, "", 1);
    if (err == OMM_OK) err = omm_json_set_str(root, key, (const char *)text.data);
    secret_wipe(&text);
    return err;
}

static omm_err write_backup(const char *out, const json_t *root) {
    omm_buf text;
    omm_buf_init(&text, 4 * FILE_BYTES_MAX);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) err = omm_file_create(out, omm_buf_view(&text), 0600);
    secret_wipe(&text);
    return err;
}

/* Where the file says that they are. */
static omm_err find_files(const char **key, const char **certificate, service_env *env,
                          const char *config) {
    node_file file;
    OMM_TRY(service_load(env, &file, node_fields, config));
    if (!file.key[0]) return omm_raise(OMM_ERR_CONFIG, "%s: key: a node without one", config);
    OMM_TRY(service_path(key, env, file.key));
    return service_path(certificate, env, file.tls_certificate);
}

static omm_err backup(const char *config, const char *out) {
    service_env env = {0};
    const char *key = NULL, *certificate = "";
    json_t *root = json_pack("{s:i,s:s}", "schema_version", 1, "kind", KIND);
    omm_err err = find_files(&key, &certificate, &env, config);
    if (err == OMM_OK) err = put_file(root, "config", config);
    if (err == OMM_OK) err = put_file(root, "key", key);
    if (err == OMM_OK && certificate[0]) err = put_file(root, "tls_certificate", certificate);
    if (err == OMM_OK) err = write_backup(out, root);
    service_end(&env);
    json_decref(root);
    return err;
}

/* ---- restore ---- */

static omm_err take_file(const json_t *root, const char *key, const char *path, bool replace) {
    const char *text;
    if (!path[0] || !json_object_get(root, key)) return OMM_OK;
    OMM_TRY(omm_json_get_str(&text, root, key));
    OMM_TRY(place_make_parent(path));
    const omm_bytes bytes = omm_bytes_str(text);
    return replace ? omm_file_write(path, bytes, 0600) : omm_file_create(path, bytes, 0600);
}

/* Before anything is written: is it a backup, and would it overwrite something? */
static omm_err check(const json_t *root, const char *config, bool replace) {
    const char *kind, *text;
    int64_t version;
    OMM_TRY(omm_json_get_str(&kind, root, "kind"));
    OMM_TRY(omm_json_get_int(&version, root, "schema_version", 1, 1));
    if (strcmp(kind, KIND) != 0) return omm_raise(OMM_ERR_FORMAT, "no backup of a node");
    OMM_TRY(omm_json_get_str(&text, root, "key"));
    OMM_TRY(omm_json_get_str(&text, root, "config"));
    if (omm_file_exists(config) && !replace)
        return omm_raise(OMM_ERR_EXISTS, "%s is there already and stays as it is (--replace)",
                         config);
    return OMM_OK;
}

/* The key's path stands in the file, so that comes first; it goes again if the key cannot follow. */
static omm_err restore(const char *from, const char *config, bool replace) {
    json_t *root = NULL;
    service_env env = {0};
    const char *key = NULL, *certificate = "";
    OMM_TRY(omm_file_check_private(from));
    OMM_TRY(omm_json_load(&root, from, 4 * FILE_BYTES_MAX));
    omm_err err = check(root, config, replace);
    const bool was_there = omm_file_exists(config);
    if (err == OMM_OK) err = take_file(root, "config", config, replace);
    const bool is_written = err == OMM_OK;
    if (err == OMM_OK) err = find_files(&key, &certificate, &env, config);
    if (err == OMM_OK) err = take_file(root, "key", key, replace);
    if (err != OMM_OK && is_written && !was_there) {
        const omm_err gone = omm_file_remove(config);
        (void)gone;
    }
    if (err == OMM_OK && (replace || !omm_file_exists(certificate)))
        err = take_file(root, "tls_certificate", certificate, replace);
    service_end(&env);
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
        is_restore ? "Write a node's file, key and certificate from a backup."
                   : "A node's file, key and certificate in one file for its owner alone.\n"
                     "Without a passphrase the key in it is as open as the backup.",
        1, 1);
    if (code >= 0) return code;
    omm_err err =
        config ? omm_path_join(file, ".", config) : place_path(file, PLACE_CONFIG, "node.yaml");
    if (err == OMM_OK) err = is_restore ? restore(args[0], file, replace) : backup(file, args[0]);
    return err == OMM_OK ? CLI_EXIT_PASS
                         : cli_fail(is_restore ? "node restore" : "node backup", err);
}

int node_backup(int argc, char **argv) {
    return run(argc, argv, false);
}

int node_restore(int argc, char **argv) {
    return run(argc, argv, true);
}
