/* places.c - see places.h.  Source: XDG Base Directory Specification 0.8. */
#include "places.h"

#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

omm_err place_path(char out[OMM_PATH_MAX], place where, const char *name) {
    static const char *const variables[] = {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"};
    static const char *const defaults[] = {".config", ".local/share", ".local/state"};
    const char *folder = getenv(variables[where]), *home = getenv("HOME");
    int size = 0;
    if (folder && folder[0] == '/')
        size = snprintf(out, OMM_PATH_MAX, "%s/openmeshmind/%s", folder, name);
    else if (home && home[0] == '/')
        size = snprintf(out, OMM_PATH_MAX, "%s/%s/openmeshmind/%s", home, defaults[where], name);
    else
        return omm_raise(OMM_ERR_CONFIG,
                         "HOME is not set, so there is no place for %s: set HOME or %s to a folder "
                         "(its path begins with /)",
                         name, variables[where]);
    if (size >= (int)OMM_PATH_MAX) return omm_raise(OMM_ERR_TOO_BIG, "path of %s", name);
    return OMM_OK;
}

omm_err place_make_parent(const char *path) {
    char dir[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(dir, path));
    const mode_t mask = umask(077);
    const omm_err err = omm_dir_make(dir);
    (void)umask(mask);
    return err;
}

omm_err place_node_file(char out[OMM_PATH_MAX], const char *named) {
    if (named) return omm_path_join(out, ".", named);
    OMM_TRY(place_path(out, PLACE_CONFIG, "node.yaml"));
    if (omm_file_exists(out)) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "-c FILE is required: %s is not there (`node setup` makes it)",
                     out);
}

/* The nearest folder above `path` that is there: those between are made when the file is. */
static omm_err folder_of(char out[OMM_PATH_MAX], const char *path) {
    char below[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(out, path));
    while (!omm_file_exists(out)) {
        (void)snprintf(below, sizeof below, "%s", out);
        OMM_TRY(omm_path_dir(out, below));
    }
    return OMM_OK;
}

bool place_is_folder(const char *path) {
    struct stat at;
    return stat(path, &at) == 0 && S_ISDIR(at.st_mode);
}

/* Whether this is the folder that is looked for. */
typedef bool folder_is(const char *folder, const char *other);

/* *found: the first that is, of the folder that `path` will lie in, or is, and those above it; `at` names it, from the root.
 * Where the system does not say what is above it, none is. */
static omm_err find_above(char at[OMM_PATH_MAX], bool *found, const char *path, folder_is *is,
                          const char *other) {
    char from[OMM_PATH_MAX];
    OMM_TRY(place_is_folder(path) ? omm_path_join(from, ".", path) : folder_of(from, path));
    *found = false;
    if (!realpath(from, at)) return OMM_OK;
    while (!is(at, other)) {
        if (strcmp(at, "/") == 0) return OMM_OK;
        char *slash = strrchr(at, '/');
        slash[slash == at] = '\0';
    }
    *found = true;
    return OMM_OK;
}

omm_err place_check_outside(const char *option, const char *path, const char *input,
                            const char *folder) {
    char at[OMM_PATH_MAX];
    bool found = false;
    if (path) OMM_TRY(find_above(at, &found, path, omm_file_same, folder));
    if (!found) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "%s: %s is in %s, %s: give another folder", option, path, input,
                     folder);
}

/* A manifest alone may be another program's. */
static bool is_sealed(const char *folder, const char *unused) {
    char manifest[OMM_PATH_MAX], signature[OMM_PATH_MAX];
    (void)unused;
    return omm_path_join(manifest, folder, "manifest.json") == OMM_OK &&
           omm_path_join(signature, folder, "manifest.json.minisig") == OMM_OK &&
           omm_file_exists(manifest) && omm_file_exists(signature);
}

omm_err place_check_unsealed(const char *option, const char *path) {
    char at[OMM_PATH_MAX];
    bool found = false;
    if (path) OMM_TRY(find_above(at, &found, path, is_sealed, NULL));
    if (!found) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE,
                     "%s: %s is in the bundle %s, which is sealed and does not change: give "
                     "another place",
                     option, path, at);
}

/* Some folders take no files whatever their rights say, and what is no plain file is not replaced. */
static omm_err try_output(const char *path, const char *option) {
    omm_file_out out;
    const omm_err err = omm_file_out_open(&out, path, 0644);
    omm_file_out_close(&out);
    if (err == OMM_OK) return OMM_OK;
    return omm_raise(err, "%s %s: no file can be made there: %s", option, path, omm_err_sentence());
}

/* How many of `folder` and those above it are still to be made. */
static unsigned count_missing(const char *folder) {
    char at[OMM_PATH_MAX], below[OMM_PATH_MAX];
    unsigned count = 0;
    if (snprintf(at, sizeof at, "%s", folder) >= (int)sizeof at) return 0;
    while (!omm_file_exists(at)) {
        count++;
        memcpy(below, at, sizeof below);
        if (omm_path_dir(at, below) != OMM_OK) return 0;
    }
    return count;
}

void place_unmake(const place_made *made) {
    char at[OMM_PATH_MAX], below[OMM_PATH_MAX];
    memcpy(at, made->folder, sizeof at);
    for (unsigned left = made->count; left > 0 && (rmdir(at) == 0 || errno == ENOENT); left--) {
        memcpy(below, at, sizeof below);
        if (omm_path_dir(at, below) != OMM_OK) return;
    }
}

omm_err place_check_output(const char *path, const char *option) {
    char folder[OMM_PATH_MAX];
    struct stat at;
    if (place_is_folder(path))
        return omm_raise(OMM_ERR_USAGE, "%s: %s is a folder; accepted: a file", option, path);
    OMM_TRY(place_check_unsealed(option, path));
    OMM_TRY(folder_of(folder, path));
    errno = 0;
    if (stat(folder, &at) == 0 && !S_ISDIR(at.st_mode)) errno = ENOTDIR;
    if (errno == 0 && access(folder, W_OK | X_OK) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "%s %s: no file can be made in %s: %s", option, path, folder,
                     strerror(errno));
}

omm_err place_make_output(place_made *made, const char *path, const char *option) {
    char folder[OMM_PATH_MAX];
    if (made) *made = (place_made){0};
    OMM_TRY(place_check_output(path, option));
    OMM_TRY(omm_path_dir(folder, path));
    if (made) {
        memcpy(made->folder, folder, sizeof folder);
        made->count = count_missing(folder);
    }
    OMM_TRY(omm_dir_make(folder));
    return try_output(path, option);
}

omm_err place_plan_folder(place_made *made, const char *path, const char *option) {
    *made = (place_made){0};
    OMM_TRY(place_check_unsealed(option, path));
    OMM_TRY(omm_path_join(made->folder, ".", path));
    made->count = count_missing(made->folder);
    return OMM_OK;
}

omm_err place_hold_room(omm_file_out *room, const char *path, const char *option, uint64_t bytes) {
    OMM_TRY(omm_file_out_open(room, path, 0600));
    if (!room->nameless) { /* it would stay behind if this process were killed */
        omm_file_out_close(room);
        return OMM_OK;
    }
    return cli_of_file(omm_file_out_reserve(room, bytes), option, path);
}

omm_err place_check_room(const char *path, const char *option, uint64_t bytes) {
    omm_file_out room = {.fd = -1};
    if (!path || bytes == 0) return OMM_OK;
    const omm_err err = place_hold_room(&room, path, option, bytes);
    omm_file_out_close(&room);
    return err;
}
