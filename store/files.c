/* files.c - owns named byte strings, in a folder or in memory. */
#include "internal.h"

#include "omm/file.h"
#include "omm/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- in memory ---- */

/* Index of `name`, or of where it belongs. */
static size_t memory_place(const files *f, const char *name) {
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(f->items[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static memory_file *memory_find(const files *f, const char *name) {
    size_t at = memory_place(f, name);
    if (at == f->count || strcmp(f->items[at].name, name) != 0) return NULL;
    return &f->items[at];
}

static void memory_drop(files *f, size_t at) {
    omm_free(f->items[at].name);
    omm_free(f->items[at].data);
    memmove(&f->items[at], &f->items[at + 1], (f->count - at - 1) * sizeof f->items[0]);
    f->count--;
}

static omm_err memory_room(files *f) {
    if (f->count < f->capacity) return OMM_OK;
    size_t capacity = f->capacity > 0 ? 2 * f->capacity : 16;
    memory_file *items = omm_grow(f->items, f->capacity, capacity, sizeof *items);
    if (!items) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu stored files", capacity);
    f->items = items;
    f->capacity = capacity;
    return OMM_OK;
}

static omm_err memory_write(files *f, const char *name, omm_bytes data) {
    OMM_TRY(memory_room(f));
    uint8_t *copy = omm_alloc(data.size, 1);
    if (!copy) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu bytes of %s", data.size, name);
    if (data.size > 0) memcpy(copy, data.data, data.size);
    memory_file *old = memory_find(f, name);
    if (old) {
        omm_free(old->data);
        old->data = copy;
        old->size = data.size;
        return OMM_OK;
    }
    char *name_copy = omm_strdup(name);
    if (!name_copy) {
        omm_free(copy);
        return omm_raise(OMM_ERR_NOMEM, "no memory for the name %s", name);
    }
    size_t at = memory_place(f, name);
    memmove(&f->items[at + 1], &f->items[at], (f->count - at) * sizeof f->items[0]);
    f->items[at] = (memory_file){name_copy, copy, data.size};
    f->count++;
    return OMM_OK;
}

static bool is_under(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && name[n] == '/';
}

/* ---- in a folder ---- */

typedef struct folder_sum {
    const char *dir;
    uint64_t bytes;
} folder_sum;

/* A temporary file is left by a process that was killed while it wrote; nobody else is here. */
static omm_err sum_or_sweep(void *ud, const char *relative) {
    folder_sum *sum = ud;
    char path[OMM_PATH_MAX];
    uint64_t size;
    OMM_TRY(omm_path_join(path, sum->dir, relative));
    if (strstr(relative, ".tmp.")) return omm_file_remove(path);
    OMM_TRY(omm_file_size(&size, path));
    sum->bytes += size;
    return OMM_OK;
}

static omm_err folder_write(files *f, const char *name, omm_bytes data) {
    char path[OMM_PATH_MAX], folder[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, f->dir, name));
    OMM_TRY(omm_path_dir(folder, path));
    OMM_TRY(omm_dir_make(folder));
    if (f->durable) return omm_file_write(path, data, 0644);
    return omm_file_write_fast(path, data, 0644);
}

static omm_err read_at(uint8_t *to, int fd, uint64_t offset, size_t size, const char *path) {
    while (size > 0) {
        ssize_t got = pread(fd, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return omm_raise(OMM_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return omm_raise(OMM_ERR_SIZE, "%s ends before byte %zu", path, size);
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return OMM_OK;
}

static omm_err folder_read(omm_buf *out, const files *f, const char *name, uint64_t offset,
                           size_t size) {
    char path[OMM_PATH_MAX];
    uint8_t *to;
    OMM_TRY(omm_path_join(path, f->dir, name));
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int why = errno;
        return omm_raise(why == ENOENT || why == ENOTDIR ? OMM_ERR_NOT_FOUND : OMM_ERR_IO,
                         "cannot open %s: %s", path, strerror(why));
    }
    size_t before = out->size;
    omm_err err = omm_buf_extend(out, &to, size);
    if (err == OMM_OK) err = read_at(to, fd, offset, size, path);
    if (err != OMM_OK) out->size = before;
    close(fd);
    return err;
}

/* ---- either ---- */

omm_err files_open(files *out, const char *dir, bool durable) {
    files f = {.durable = durable};
    if (dir) {
        f.dir = omm_strdup(dir);
        if (!f.dir) return omm_raise(OMM_ERR_NOMEM, "no memory for a folder name");
        omm_err err = omm_dir_make(dir);
        if (err != OMM_OK) {
            omm_free(f.dir);
            return err;
        }
    }
    *out = f;
    return OMM_OK;
}

void files_close(files *f) {
    while (f->count > 0) memory_drop(f, f->count - 1);
    omm_free(f->items);
    omm_free(f->dir);
    *f = (files){0};
}

omm_err files_write(files *f, const char *name, omm_bytes data) {
    return f->dir ? folder_write(f, name, data) : memory_write(f, name, data);
}

omm_err files_read(omm_buf *out, const files *f, const char *name, uint64_t offset, size_t size) {
    if (f->dir) return folder_read(out, f, name, offset, size);
    const memory_file *file = memory_find(f, name);
    if (!file) return omm_raise(OMM_ERR_NOT_FOUND, "%s is not in the store", name);
    if (offset > file->size || size > file->size - offset) {
        return omm_raise(OMM_ERR_SIZE, "%s has %zu bytes only", name, file->size);
    }
    return omm_buf_append(out, file->data + offset, size);
}

omm_err files_size(uint64_t *size, const files *f, const char *name) {
    char path[OMM_PATH_MAX];
    if (f->dir) {
        OMM_TRY(omm_path_join(path, f->dir, name));
        return omm_file_size(size, path);
    }
    const memory_file *file = memory_find(f, name);
    if (!file) return omm_raise(OMM_ERR_NOT_FOUND, "%s is not in the store", name);
    *size = file->size;
    return OMM_OK;
}

omm_err files_remove(files *f, const char *name) {
    char path[OMM_PATH_MAX];
    if (f->dir) {
        OMM_TRY(omm_path_join(path, f->dir, name));
        return omm_file_remove(path);
    }
    size_t at = memory_place(f, name);
    if (at < f->count && strcmp(f->items[at].name, name) == 0) memory_drop(f, at);
    return OMM_OK;
}

omm_err files_remove_under(files *f, const char *prefix) {
    char path[OMM_PATH_MAX];
    if (f->dir) {
        OMM_TRY(omm_path_join(path, f->dir, prefix));
        return omm_dir_remove(path);
    }
    for (size_t i = f->count; i-- > 0;) {
        if (is_under(f->items[i].name, prefix)) memory_drop(f, i);
    }
    return OMM_OK;
}

omm_err files_total(uint64_t *bytes, const files *f) {
    folder_sum sum = {.dir = f->dir};
    if (f->dir) OMM_TRY(omm_dir_walk(f->dir, sum_or_sweep, &sum));
    for (size_t i = 0; i < f->count; i++) sum.bytes += f->items[i].size;
    *bytes = sum.bytes;
    return OMM_OK;
}
