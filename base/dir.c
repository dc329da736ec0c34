/* dir.c - folders and paths of omm/file.h: make, remove, walk, join. */
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/sync.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 64
#define NAMES_BYTES_MAX ((size_t)64 << 20)

/* --- paths --- */

omm_err omm_path_join(char out[OMM_PATH_MAX], const char *a, const char *b) {
    size_t a_size = strlen(a);
    bool alone = b[0] == '/' || a_size == 0;
    const char *slash = alone || a[a_size - 1] == '/' ? "" : "/";
    char joined[OMM_PATH_MAX]; /* apart: out may be a or b */
    int size = snprintf(joined, sizeof joined, "%s%s%s", alone ? "" : a, slash, b);
    if (size < 0 || (size_t)size >= sizeof joined)
        return omm_raise(OMM_ERR_TOO_BIG, "path over %u bytes: %.200s...", OMM_PATH_MAX - 1, a);
    memcpy(out, joined, (size_t)size + 1);
    return OMM_OK;
}

omm_err omm_path_dir(char out[OMM_PATH_MAX], const char *path) {
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--; /* "a/b/" is "a/b" */
    while (size > 0 && path[size - 1] != '/') size--;
    while (size > 1 && path[size - 1] == '/') size--;
    if (size >= OMM_PATH_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "path over %u bytes: %.200s...", OMM_PATH_MAX - 1, path);
    if (size == 0) {
        memcpy(out, ".", 2);
        return OMM_OK;
    }
    memmove(out, path, size);
    out[size] = '\0';
    return OMM_OK;
}

bool omm_path_is_inside(const char *relative_path) {
    size_t size = strlen(relative_path);
    if (size == 0 || size >= OMM_PATH_MAX) return false;
    const char *part = relative_path;
    for (const char *p = relative_path;; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '/' || c == '\0') {
            size_t n = (size_t)(p - part);
            if (n == 0 || (n == 1 && part[0] == '.')) return false;
            if (n == 2 && part[0] == '.' && part[1] == '.') return false;
            if (c == '\0') return true;
            part = p + 1;
        } else if (c < 0x20 || c == 0x7f || c == '\\') {
            return false;
        }
    }
}

/* --- make --- */

omm_err omm_dir_sync_of(const char *path) {
    char folder[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(folder, path));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return omm_raise(OMM_ERR_IO, "open folder %s: %s", folder, strerror(errno));
    omm_err err = omm_sync(fd, folder);
    /* EINVAL: a file system that cannot sync folders, and has nothing to lose by it. */
    if (err != OMM_OK && errno == EINVAL) err = OMM_OK;
    close(fd);
    return err;
}

/* A folder whose own name is lost takes with it whatever was synced in it. */
static omm_err make_one(const char *path) {
    if (mkdir(path, 0755) == 0) {
        omm_err err = omm_dir_sync_of(path);
        if (err != OMM_OK) (void)rmdir(path); /* the next attempt shall sync it too */
        return err;
    }
    int e = errno;
    struct stat st;
    if (e == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "make folder %s: %s", path, strerror(e));
}

omm_err omm_dir_make(const char *path) {
    char part[OMM_PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof part)
        return omm_raise(size ? OMM_ERR_TOO_BIG : OMM_ERR_IO, "make folder: path of %zu bytes",
                         size);
    memcpy(part, path, size + 1);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        OMM_TRY(make_one(part));
        *p = '/';
    }
    return make_one(part);
}

/* --- remove --- */

static omm_err remove_content(int fd, const char *name, int depth);

static omm_err remove_entry(int folder, const char *name, int depth) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return OMM_OK;
    if (errno != EISDIR && errno != EPERM)
        return omm_raise(OMM_ERR_IO, "remove %s: %s", name, strerror(errno));
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return omm_raise(OMM_ERR_IO, "open folder %s: %s", name, strerror(errno));
    OMM_TRY(remove_content(fd, name, depth));
    if (unlinkat(folder, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return omm_raise(OMM_ERR_IO, "remove folder %s: %s", name, strerror(errno));
    return OMM_OK;
}

/* Takes `fd`.  By descriptors, so that a folder swapped for a link meanwhile is not followed. */
static omm_err remove_content(int fd, const char *name, int depth) {
    DIR *dir = depth <= DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!dir) {
        omm_err err = omm_raise(OMM_ERR_IO, "read folder %s: %s", name,
                                depth <= DEPTH_MAX ? strerror(errno) : "nested too deep");
        close(fd);
        return err;
    }
    omm_err err = OMM_OK;
    while (err == OMM_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0)
                err = omm_raise(OMM_ERR_IO, "read folder %s: %s", name, strerror(errno));
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        err = remove_entry(fd, entry->d_name, depth + 1);
    }
    closedir(dir);
    return err;
}

omm_err omm_dir_remove(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && path[0] != '\0') return OMM_OK;
    if (fd < 0) return omm_raise(OMM_ERR_IO, "open folder %s: %s", path, strerror(errno));
    OMM_TRY(remove_content(fd, path, 0));
    if (rmdir(path) != 0 && errno != ENOENT)
        return omm_raise(OMM_ERR_IO, "remove folder %s: %s", path, strerror(errno));
    return OMM_OK;
}

/* --- walk --- */

typedef struct walk {
    const char *root;
    omm_arena names;
    char **paths; /* each in `names` */
    size_t count;
    size_t capacity;
} walk;

static omm_err walk_keep(walk *w, const char *relative) {
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? w->capacity * 2 : 64;
        char **grown = omm_grow(w->paths, w->capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "%s: %zu file names", w->root, capacity);
        w->paths = grown;
        w->capacity = capacity;
    }
    char *copy = omm_arena_strdup(&w->names, relative);
    if (!copy) {
        bool full = w->names.total > NAMES_BYTES_MAX / 2;
        return omm_raise(full ? OMM_ERR_TOO_BIG : OMM_ERR_NOMEM, "%s: file names over memory",
                         w->root);
    }
    w->paths[w->count++] = copy;
    return OMM_OK;
}

static omm_err walk_folder(walk *w, const char *relative, int depth);

static omm_err walk_entry(walk *w, int folder, const char *relative, int depth) {
    const char *slash = strrchr(relative, '/');
    struct stat st;
    if (fstatat(folder, slash ? slash + 1 : relative, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return omm_raise(OMM_ERR_IO, "stat %s/%s: %s", w->root, relative, strerror(errno));
    if (S_ISREG(st.st_mode)) return walk_keep(w, relative);
    if (S_ISDIR(st.st_mode)) return walk_folder(w, relative, depth + 1);
    return omm_raise(OMM_ERR_FORMAT, "%s/%s: %s, not a file or a folder", w->root, relative,
                     S_ISLNK(st.st_mode) ? "a symbolic link" : "a special file");
}

static omm_err walk_read(walk *w, DIR *dir, const char *relative, int depth) {
    char child[OMM_PATH_MAX];
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            return omm_raise(OMM_ERR_IO, "read folder %s/%s: %s", w->root, relative,
                             strerror(errno));
        if (!entry) return OMM_OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        OMM_TRY(omm_path_join(child, relative, entry->d_name));
        OMM_TRY(walk_entry(w, dirfd(dir), child, depth));
    }
}

static omm_err walk_folder(walk *w, const char *relative, int depth) {
    if (depth > DEPTH_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s/%s: nested too deep", w->root, relative);
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, w->root, relative));
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth > 0 ? O_NOFOLLOW : 0);
    int fd = open(path, flags);
    if (fd < 0)
        return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "open folder %s: %s",
                         path, strerror(errno));
    DIR *dir = fdopendir(fd);
    if (!dir) {
        omm_err err = omm_raise(OMM_ERR_IO, "read folder %s: %s", path, strerror(errno));
        close(fd);
        return err;
    }
    omm_err err = walk_read(w, dir, relative, depth);
    closedir(dir);
    return err;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b); /* bytes, unsigned */
}

omm_err omm_dir_walk(const char *dir, omm_dir_each each, void *ud) {
    walk w = {.root = dir};
    omm_arena_init(&w.names, NAMES_BYTES_MAX);
    omm_err err = walk_folder(&w, "", 0);
    if (err == OMM_OK && w.count > 0) qsort(w.paths, w.count, sizeof *w.paths, compare_paths);
    for (size_t i = 0; err == OMM_OK && i < w.count; i++) err = each(ud, w.paths[i]);
    omm_free(w.paths);
    omm_arena_fini(&w.names);
    return err;
}
