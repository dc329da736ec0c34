/* dataset_source.c - the bytes of a data file: all in memory, or a window that moves over it. */
#include "dataset_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two of the longest lines, so that most views need no reading. */
#define WINDOW_BYTES ((size_t)2 * (OMM_DATASET_LINE_BYTES_MAX + 1u))
#define FILE_BYTES_MAX (1ULL << 40)

void source_of_memory(source *s, omm_bytes memory, const char *name) {
    *s = (source){.name = name, .memory = memory, .fd = -1, .size = memory.size};
    omm_buf_init(&s->window, 0);
}

static omm_err identify(file_identity *out, int fd, const char *name) {
    struct stat st;
    if (fstat(fd, &st) != 0) return omm_raise(OMM_ERR_IO, "stat %s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return omm_raise(OMM_ERR_IO,
                         "%s: %s; accepted: a regular file, which can be read more than once", name,
                         S_ISDIR(st.st_mode)    ? "a folder"
                         : S_ISFIFO(st.st_mode) ? "a pipe"
                                                : "a device");
    *out = (file_identity){.device = (uint64_t)st.st_dev,
                           .inode = (uint64_t)st.st_ino,
                           .size = (uint64_t)st.st_size,
                           .seconds = (int64_t)st.st_mtim.tv_sec,
                           .nanoseconds = (int64_t)st.st_mtim.tv_nsec};
    return OMM_OK;
}

/* With O_NONBLOCK a named pipe is refused without waiting for a writer; files do not know the difference. */
omm_err source_open(source *s, const char *path) {
    *s = (source){.name = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    omm_buf_init(&s->window, WINDOW_BYTES);
    if (s->fd < 0)
        return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "open %s: %s", path,
                         strerror(errno));
    omm_err err = identify(&s->identity, s->fd, path);
    s->size = s->identity.size;
    if (err == OMM_OK && s->size > FILE_BYTES_MAX)
        err = omm_raise(OMM_ERR_TOO_BIG, "%s: over 2^40 bytes", path);
    if (err != OMM_OK) source_close(s);
    return err;
}

void source_close(source *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    omm_buf_fini(&s->window);
}

omm_err source_check(const source *s, const file_identity *then) {
    file_identity now = s->identity;
    if (s->fd >= 0) OMM_TRY(identify(&now, s->fd, s->name));
    if (now.device == then->device && now.inode == then->inode && now.size == then->size &&
        now.seconds == then->seconds && now.nanoseconds == then->nanoseconds)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s: the file has changed since it was indexed", s->name);
}

size_t source_window_bytes(uint64_t size) {
    return size < WINDOW_BYTES ? (size_t)size : WINDOW_BYTES;
}

/* The window becomes the bytes from `at` on, as many as it holds. */
static omm_err move_window(source *s, uint64_t at) {
    const size_t size = source_window_bytes(s->size - at);
    omm_buf_clear(&s->window);
    OMM_TRY(omm_buf_reserve(&s->window, size));
    s->window_at = at;
    while (s->window.size < size) {
        ssize_t n = pread(s->fd, s->window.data + s->window.size, size - s->window.size,
                          (off_t)(at + s->window.size));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return omm_raise(OMM_ERR_IO, "read %s: %s", s->name, strerror(errno));
        if (n == 0)
            return omm_raise(OMM_ERR_MISMATCH, "%s: the file became shorter while it was read",
                             s->name);
        s->window.size += (size_t)n;
    }
    return OMM_OK;
}

omm_err source_view(source *s, omm_bytes *out, uint64_t at, size_t want) {
    OMM_ASSERT(at <= s->size);
    OMM_ASSERT(want <= WINDOW_BYTES);
    if (s->fd < 0) {
        *out = omm_bytes_of(s->memory.data ? s->memory.data + at : NULL, (size_t)(s->size - at));
        return OMM_OK;
    }
    uint64_t end = s->size - at < want ? s->size : at + want;
    bool here = at >= s->window_at && end <= s->window_at + s->window.size;
    if (!here) OMM_TRY(move_window(s, at));
    size_t from = (size_t)(at - s->window_at);
    *out = omm_bytes_of(s->window.data ? s->window.data + from : NULL, s->window.size - from);
    return OMM_OK;
}
