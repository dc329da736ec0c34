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
#define BATCH_NAMES ((size_t)8192) /* of up to so many, and as many again, while a folder is read */

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
static omm_err make_one(const char *path, mode_t mode) {
    if (mkdir(path, mode) == 0) {
        omm_err err = omm_dir_sync_of(path);
        if (err != OMM_OK) (void)rmdir(path); /* the next attempt shall sync it too */
        return err;
    }
    int e = errno;
    struct stat st;
    if (e == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "make folder %s: %s", path, strerror(e));
}

static omm_err make_all(const char *path, mode_t mode) {
    char part[OMM_PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof part)
        return omm_raise(size ? OMM_ERR_TOO_BIG : OMM_ERR_IO, "make folder: path of %zu bytes",
                         size);
    memcpy(part, path, size + 1);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        OMM_TRY(make_one(part, 0755));
        *p = '/';
    }
    return make_one(part, mode);
}

omm_err omm_dir_make(const char *path) {
    return make_all(path, 0755);
}

omm_err omm_dir_make_private(const char *path) {
    return make_all(path, 0700);
}

/* --- remove --- */

static omm_err remove_content(int fd, const char *path, int depth);

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

/* The next name but "." and ".."; NULL: there are no more. */
static omm_err next_name(const char **name, DIR *dir, const char *path) {
    const struct dirent *entry = NULL;
    do {
        errno = 0;
        entry = readdir(dir);
        if (!entry && errno != 0)
            return omm_raise(OMM_ERR_IO, "read folder %s: %s", path, strerror(errno));
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    *name = entry ? entry->d_name : NULL;
    return OMM_OK;
}

/* Takes `fd`.  By descriptors, so that a folder swapped for a link meanwhile is not followed. */
static omm_err remove_content(int fd, const char *path, int depth) {
    const char *name = NULL;
    DIR *dir = depth <= DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!dir) {
        omm_err err = omm_raise(OMM_ERR_IO, "read folder %s: %s", path,
                                depth <= DEPTH_MAX ? strerror(errno) : "nested too deep");
        close(fd);
        return err;
    }
    omm_err err = next_name(&name, dir, path);
    while (err == OMM_OK && name) {
        err = remove_entry(fd, name, depth + 1);
        if (err == OMM_OK) err = next_name(&name, dir, path);
    }
    closedir(dir);
    return err;
}

omm_err omm_dir_remove(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && path[0] != '\0') return OMM_OK;
    if (fd < 0) return omm_raise(OMM_ERR_IO, "open folder %s: %s", path, strerror(errno));
    OMM_TRY(omm_err_about(remove_content(fd, path, 0), path));
    if (rmdir(path) != 0 && errno != ENOENT)
        return omm_raise(OMM_ERR_IO, "remove folder %s: %s", path, strerror(errno));
    return OMM_OK;
}

/* --- names --- */

omm_err omm_dir_names(const char *path, omm_dir_each each, void *ud) {
    const char *name = NULL;
    DIR *dir = opendir(path);
    if (!dir)
        return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "open folder %s: %s",
                         path, strerror(errno));
    omm_err err = next_name(&name, dir, path);
    while (err == OMM_OK && name) {
        err = each(ud, name);
        if (err == OMM_OK) err = next_name(&name, dir, path);
    }
    closedir(dir);
    return err;
}

/* --- walk --- */

/* Names are taken in order, so many at a time: a folder is read again for those that follow, and what is in memory
 * does not grow with the number of files. */
typedef struct name_batch {
    omm_arena arena;
    char **
        names; /* (count) in `arena`; a folder's ends with a slash, by which it sorts as its files do */
    size_t count, capacity;
    bool more; /* there are names behind the last one */
} name_batch;

typedef struct walk {
    const char *root;
    omm_dir_each each;
    void *ud;
    uint32_t *passed_over; /* NULL: what would be passed over is refused */
} walk;

static void batch_fini(name_batch *b) {
    omm_free(b->names);
    omm_arena_fini(&b->arena);
}

static const char *batch_last(const name_batch *b) {
    return b->count > 0 ? b->names[b->count - 1] : "";
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b); /* bytes, unsigned */
}

static omm_err batch_keep(name_batch *b, const char *name) {
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? b->capacity * 2 : 64;
        char **grown = omm_grow(b->names, b->capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu file names", capacity);
        b->names = grown;
        b->capacity = capacity;
    }
    char *copy = omm_arena_strdup(&b->arena, name);
    if (!copy) return omm_raise(OMM_ERR_NOMEM, "no memory for file names");
    b->names[b->count++] = copy;
    return OMM_OK;
}

/* Sort them, and keep the first BATCH_NAMES alone. */
static omm_err batch_cut(name_batch *b) {
    if (b->count > 0) qsort(b->names, b->count, sizeof *b->names, compare_names);
    if (b->count <= BATCH_NAMES) return OMM_OK;
    name_batch kept = {.more = true};
    omm_arena_init(&kept.arena, SIZE_MAX);
    omm_err err = OMM_OK;
    for (size_t i = 0; err == OMM_OK && i < BATCH_NAMES; i++) err = batch_keep(&kept, b->names[i]);
    batch_fini(b);
    *b = kept;
    return err;
}

/* NULL: *err says why. */
static DIR *open_walked(omm_err *err, const walk *w, const char *relative, int depth) {
    char path[OMM_PATH_MAX];
    *err = depth <= DEPTH_MAX
               ? omm_path_join(path, w->root, relative)
               : omm_raise(OMM_ERR_TOO_BIG, "%s/%s: nested too deep", w->root, relative);
    if (*err != OMM_OK) return NULL;
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth > 0 ? O_NOFOLLOW : 0);
    int fd = open(path, flags);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir) return dir;
    *err = omm_raise(fd < 0 && errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO,
                     "open folder %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
}

/* Errors: IO, FORMAT (neither a file nor a folder). */
static omm_err look_at(bool *is_folder, const walk *w, DIR *dir, const struct dirent *entry,
                       const char *child) {
    struct stat st;
    *is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_DIR || entry->d_type == DT_REG) return OMM_OK;
    if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return omm_raise(OMM_ERR_IO, "stat %s/%s: %s", w->root, child, strerror(errno));
    *is_folder = S_ISDIR(st.st_mode);
    if (*is_folder || S_ISREG(st.st_mode)) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "%s/%s: %s, not a file or a folder", w->root, child,
                     S_ISLNK(st.st_mode) ? "a symbolic link" : "a special file");
}

/* The next entry: its path and whether it is a folder.  *child is empty at the end. */
static omm_err next_entry(char child[OMM_PATH_MAX], bool *is_folder, const walk *w, DIR *dir,
                          const char *relative) {
    for (;;) {
        child[0] = '\0';
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            return omm_raise(OMM_ERR_IO, "read folder %s/%s: %s", w->root, relative,
                             strerror(errno));
        if (!entry) return OMM_OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const bool passed = w->passed_over && entry->d_name[0] == '.';
        omm_err err = passed ? OMM_OK : omm_path_join(child, relative, entry->d_name);
        if (err == OMM_OK && !passed) err = look_at(is_folder, w, dir, entry, child);
        if (!w->passed_over || (err == OMM_OK && !passed)) return err;
        ++*w->passed_over;
    }
}

/* Is there nothing but files and folders? */
static omm_err check_folder(const walk *w, const char *relative, int depth) {
    char child[OMM_PATH_MAX];
    bool is_folder = false;
    omm_err err = OMM_OK;
    DIR *dir = open_walked(&err, w, relative, depth);
    if (!dir) return err;
    err = next_entry(child, &is_folder, w, dir, relative);
    while (err == OMM_OK && child[0]) {
        if (is_folder) err = check_folder(w, child, depth + 1);
        if (err == OMM_OK) err = next_entry(child, &is_folder, w, dir, relative);
    }
    closedir(dir);
    return err;
}

/* The first names behind `last`. */
static omm_err read_batch(name_batch *b, const walk *w, DIR *dir, const char *relative,
                          const char *last) {
    char child[OMM_PATH_MAX];
    bool is_folder = false;
    omm_err err = OMM_OK;
    const uint32_t before = w->passed_over ? *w->passed_over : 0;
    rewinddir(dir);
    while (err == OMM_OK && (err = next_entry(child, &is_folder, w, dir, relative)) == OMM_OK &&
           child[0]) {
        if (is_folder) err = omm_path_join(child, child, "");
        bool is_near = !b->more || strcmp(child, b->names[BATCH_NAMES - 1]) < 0;
        if (err != OMM_OK || !is_near || strcmp(child, last) <= 0) continue;
        err = batch_keep(b, child);
        if (err == OMM_OK && b->count == 2 * BATCH_NAMES) err = batch_cut(b);
    }
    if (w->passed_over && last[0]) *w->passed_over = before; /* counted with the first names */
    return err == OMM_OK ? batch_cut(b) : err;
}

static omm_err walk_folder(const walk *w, const char *relative, int depth);

static omm_err walk_batch(const walk *w, const name_batch *b, int depth) {
    for (size_t i = 0; i < b->count; i++) {
        char *name = b->names[i];
        size_t size = strlen(name);
        if (name[size - 1] != '/') {
            OMM_TRY(w->each(w->ud, name));
            continue;
        }
        name[size - 1] = '\0';
        omm_err err = walk_folder(w, name, depth + 1);
        name[size - 1] = '/';
        OMM_TRY(err);
    }
    return OMM_OK;
}

static omm_err walk_folder(const walk *w, const char *relative, int depth) {
    char last[OMM_PATH_MAX] = "";
    bool more = true;
    omm_err err = OMM_OK;
    DIR *dir = open_walked(&err, w, relative, depth);
    if (!dir && w->passed_over && depth > 0) {
        ++*w->passed_over;
        return OMM_OK;
    }
    if (!dir) return err;
    while (err == OMM_OK && more) {
        name_batch b = {.more = false};
        omm_arena_init(&b.arena, SIZE_MAX);
        err = read_batch(&b, w, dir, relative, last);
        more = b.more;
        if (err == OMM_OK && more) err = omm_path_join(last, "", batch_last(&b));
        if (err == OMM_OK) err = walk_batch(w, &b, depth);
        batch_fini(&b);
    }
    closedir(dir);
    return err;
}

omm_err omm_dir_walk(const char *dir, omm_dir_each each, void *ud) {
    const walk w = {dir, each, ud, NULL};
    OMM_TRY(check_folder(&w, "", 0));
    return walk_folder(&w, "", 0);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): counted in `w` */
omm_err omm_dir_walk_over(uint32_t *passed_over, const char *dir, omm_dir_each each, void *ud) {
    const walk w = {dir, each, ud, passed_over};
    return walk_folder(&w, "", 0);
}
