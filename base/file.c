#include "omm/file.h"
#include "internal.h"
#include "omm/mem.h"
#include "omm/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_PIECE 65536u
/* A named pipe without a writer reads as if it had ended.  Who writes may have been started together with us. */
#define WRITER_WAIT_MS 1000
#define TEMPORARY_NAMES_MAX 64

static omm_err raise_errno(const char *what, const char *path) {
    int e = errno;
    return omm_raise(e == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "%s %s: %s", what, path,
                     strerror(e));
}

/* --- reading --- */

/* With O_NONBLOCK a named pipe opens without waiting for a writer. */
static omm_err open_for_reading(int *fd, struct stat *st, const char *path) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) return raise_errno("open", path);
    omm_err err = fstat(*fd, st) == 0 ? OMM_OK : raise_errno("stat", path);
    if (err != OMM_OK) close(*fd);
    return err;
}

static omm_err check_plain(uint64_t *bytes, int fd, const char *path) {
    struct stat st;
    if (fstat(fd, &st) != 0) return raise_errno("stat", path);
    if (!S_ISREG(st.st_mode)) return omm_raise(OMM_ERR_IO, "%s is not a regular file", path);
    if (bytes) *bytes = (uint64_t)st.st_size;
    return OMM_OK;
}

/* With O_NONBLOCK a named pipe opens without waiting for a writer; files do not know the difference. */
omm_err base_open_plain(int *fd, uint64_t *bytes, const char *path) {
    return base_open_plain_with(fd, bytes, path, 0);
}

omm_err base_open_plain_with(int *fd, uint64_t *bytes, const char *path, int flags) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (opened < 0) return raise_errno("open", path);
    const omm_err err = check_plain(bytes, opened, path);
    if (err == OMM_OK)
        *fd = opened;
    else
        close(opened);
    return err;
}

/* Whoever made a file may have given it any time. */
static uint64_t nanoseconds(struct timespec t) {
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

omm_file_state omm_file_state_of(const struct stat *st) {
    return (omm_file_state){.inode = st->st_ino,
                            .bytes = (uint64_t)st->st_size,
                            .modified_ns = nanoseconds(st->st_mtim),
                            .changed_ns = nanoseconds(st->st_ctim),
                            .owner = st->st_uid,
                            .mode = st->st_mode & 07777};
}

omm_err base_file_state(omm_file_state *out, int fd, const char *path) {
    struct stat st;
    if (fstat(fd, &st) != 0) return raise_errno("stat", path);
    *out = omm_file_state_of(&st);
    return OMM_OK;
}

omm_err omm_file_state_read(omm_file_state *out, const char *path) {
    int fd = -1;
    OMM_TRY(base_open_plain(&fd, NULL, path));
    const omm_err err = base_file_state(out, fd, path);
    close(fd);
    return err;
}

/* Is there something to read, or the end of it, within so many ms?  Less where a signal comes; -1: ever. */
static bool wait_readable(int fd, int ms) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, ms) > 0;
}

static omm_err read_piece(size_t *got, int fd, void *to, size_t size, const char *path) {
    ssize_t n;
    while ((n = read(fd, to, size)) < 0) {
        if (errno == EAGAIN) /* a pipe whose writer has more to say */
            (void)wait_readable(fd, -1);
        else if (errno != EINTR)
            break;
    }
    if (n < 0) return omm_raise(OMM_ERR_IO, "read %s: %s", path, strerror(errno));
    *got = (size_t)n;
    return OMM_OK;
}

static omm_err too_big(const char *path, size_t bytes_max) {
    return omm_raise(OMM_ERR_TOO_BIG, "%s: larger than the limit of %zu bytes", path, bytes_max);
}

/* Up to the end of the file, which may grow meanwhile or have no size (a pipe). */
static omm_err read_to_end(omm_buf *out, int fd, const char *path) {
    for (;;) {
        size_t room = out->bytes_max - out->size;
        size_t got = 0;
        if (room == 0) { /* one byte more tells "full" from "too big" */
            uint8_t extra;
            OMM_TRY(read_piece(&got, fd, &extra, 1, path));
            return got == 0 ? OMM_OK : too_big(path, out->bytes_max);
        }
        size_t piece = out->capacity - out->size;
        if (piece == 0) {
            piece = room < READ_PIECE ? room : READ_PIECE;
            OMM_TRY(omm_buf_reserve(out, piece));
        }
        OMM_TRY(read_piece(&got, fd, out->data + out->size, piece, path));
        if (got == 0) return OMM_OK;
        out->size += got;
    }
}

/* Takes over `fd`. */
static omm_err read_all(omm_buf *out, int fd, const struct stat *st, const char *path) {
    size_t size_before = out->size;
    omm_err err = OMM_OK;
    if (S_ISREG(st->st_mode) && st->st_size > 0) {
        uint64_t size = (uint64_t)st->st_size;
        if (size > out->bytes_max - out->size)
            err = too_big(path, out->bytes_max);
        else if (size < out->bytes_max - out->size)
            err = omm_buf_reserve(out, (size_t)size + 1); /* + 1: the end is seen without growing */
        else
            err = omm_buf_reserve(out, (size_t)size);
    }
    const bool is_silent = S_ISFIFO(st->st_mode) && !wait_readable(fd, WRITER_WAIT_MS);
    if (err == OMM_OK) err = read_to_end(out, fd, path);
    if (err == OMM_OK && is_silent && out->size == size_before)
        err = omm_raise(OMM_ERR_IO, "%s: a named pipe that nobody writes to", path);
    if (err != OMM_OK) out->size = size_before;
    close(fd);
    return err;
}

omm_err omm_file_read(omm_buf *out, const char *path) {
    int fd;
    struct stat st;
    OMM_TRY(open_for_reading(&fd, &st, path));
    return read_all(out, fd, &st, path);
}

omm_err omm_file_read_plain(omm_buf *out, const char *path) {
    int fd = -1;
    uint64_t bytes = 0;
    OMM_TRY(base_open_plain(&fd, &bytes, path));
    const struct stat st = {.st_mode = S_IFREG, .st_size = (off_t)bytes};
    return read_all(out, fd, &st, path);
}

/* --- writing --- */

static omm_err write_all(int fd, omm_bytes data, const char *path) {
    size_t at = 0;
    while (at < data.size) {
        ssize_t n = write(fd, data.data + at, data.size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return omm_raise(OMM_ERR_IO, "write %s: %s", path, strerror(errno));
        at += (size_t)n;
    }
    return OMM_OK;
}

/* "<path>.tmp.<pid>.<serial>"; of a name so long that this would be no name any more, the beginning. */
static omm_err temporary_name(char name[OMM_PATH_MAX], const char *path) {
    static atomic_uint s_serial;
    char ending[40];
    const size_t more =
        (size_t)snprintf(ending, sizeof ending, ".tmp.%ld.%u", (long)getpid(), s_serial++);
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    size_t kept = strlen(path + folder);
    if (kept + more > NAME_MAX) kept = NAME_MAX - more;
    const int size = snprintf(name, OMM_PATH_MAX, "%.*s%s", (int)(folder + kept), path, ending);
    if (size >= 0 && (size_t)size < OMM_PATH_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "path too long: %.200s...", path);
}

/* A file without a name in the folder of `path`: nothing of it is left however the process ends.
 * False where the file system or the missing /proc does not allow it. */
static bool open_nameless(omm_file_out *out, unsigned mode) {
    char folder[OMM_PATH_MAX];
    if (omm_path_dir(folder, out->path) != OMM_OK) return false;
    out->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, (mode_t)mode);
    if (out->fd < 0) return false;
    snprintf(out->temporary, sizeof out->temporary, "/proc/self/fd/%d", out->fd);
    out->nameless = access(out->temporary, F_OK) == 0;
    if (!out->nameless) {
        close(out->fd);
        out->fd = -1;
    }
    return out->nameless;
}

/* A file that nobody else has, beside its path. */
static omm_err open_temporary(omm_file_out *out, unsigned mode) {
    if (open_nameless(out, mode)) return OMM_OK;
    for (int i = 0; i < TEMPORARY_NAMES_MAX; i++) {
        OMM_TRY(temporary_name(out->temporary, out->path));
        out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       (mode_t)mode);
        if (out->fd >= 0) return OMM_OK;
        if (errno != EEXIST) break; /* EEXIST: left by a process of the same number that died */
    }
    return omm_raise(OMM_ERR_IO, "create %s: %s", out->path, strerror(errno));
}

static bool link_nameless(const omm_file_out *out, const char *name) {
    return linkat(AT_FDCWD, out->temporary, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* Its own name at once where nothing has it; else one that rename() can move over what is there. */
static omm_err give_name(bool *is_own, omm_file_out *out) {
    char name[OMM_PATH_MAX];
    *is_own = link_nameless(out, out->path);
    if (*is_own) return OMM_OK;
    for (int i = 0; i < TEMPORARY_NAMES_MAX; i++) {
        OMM_TRY(temporary_name(name, out->path));
        if (link_nameless(out, name)) {
            memcpy(out->temporary, name, sizeof name);
            out->nameless = false;
            return OMM_OK;
        }
        if (errno != EEXIST) break;
    }
    return omm_raise(OMM_ERR_IO, "create %s: %s", out->path, strerror(errno));
}

/* rename() over a device or a socket, or over a link to one, would remove it from the system. */
static omm_err check_replaceable(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode)) return OMM_OK;
    if (S_ISLNK(st.st_mode) && (stat(path, &st) != 0 || S_ISREG(st.st_mode))) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "%s exists and is not a regular file", path);
}

/* What follows the last slash is what the file will be called. */
static omm_err check_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (*name == 0) return omm_raise(OMM_ERR_IO, "'%s' has no name of a file at its end", path);
    if (strlen(name) <= NAME_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "a file's name has at most %d bytes: %.80s...", NAME_MAX,
                     name);
}

omm_err omm_file_out_open(omm_file_out *out, const char *path, unsigned mode) {
    *out = (omm_file_out){.fd = -1};
    int size = snprintf(out->path, sizeof out->path, "%s", path);
    if (size < 0 || (size_t)size >= sizeof out->path)
        return omm_raise(OMM_ERR_TOO_BIG, "path too long: %.200s...", path);
    OMM_TRY(check_name(path));
    OMM_TRY(check_replaceable(path));
    return open_temporary(out, mode);
}

omm_err omm_file_out_write(omm_file_out *out, omm_bytes data) {
    return write_all(out->fd, data, out->path);
}

omm_err omm_file_out_reserve(omm_file_out *out, uint64_t bytes) {
    int rc;
    do rc = fallocate(out->fd, 0, 0, (off_t)bytes);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return OMM_OK;
    const int why = errno;
    char folder[OMM_PATH_MAX];
    uint64_t room = 0;
    if (why == ENOSPC && omm_path_dir(folder, out->path) == OMM_OK &&
        omm_file_room(&room, folder) && room < bytes)
        return base_no_room(NULL, bytes, room);
    return omm_raise(OMM_ERR_IO, "no room for %.1f MB: %s", (double)bytes / 1e6, strerror(why));
}

omm_err omm_file_out_state(omm_file_state *out, const omm_file_out *file) {
    return base_file_state(out, file->fd, file->path);
}

void omm_file_out_close(omm_file_out *out) {
    if (out->fd < 0) return;
    close(out->fd);
    if (!out->nameless) unlink(out->temporary);
    out->fd = -1;
}

/* Under its path, whole; its folder is not synced. */
static omm_err put_in_place(omm_file_out *out) {
    bool is_own = false;
    if (out->nameless) OMM_TRY(give_name(&is_own, out));
    int rc = close(out->fd);
    int why = errno;
    out->fd = -1;
    if (is_own) return rc == 0 ? OMM_OK : raise_errno("close", out->path);
    if (rc != 0 || rename(out->temporary, out->path) != 0) {
        omm_err err = omm_raise(OMM_ERR_IO, "%s %s: %s", rc != 0 ? "close" : "rename to", out->path,
                                strerror(rc != 0 ? why : errno));
        unlink(out->temporary);
        return err;
    }
    return OMM_OK;
}

omm_err omm_file_out_finish(omm_file_out *out, bool durable) {
    if (durable) OMM_TRY(omm_sync(out->fd, out->path));
    OMM_TRY(put_in_place(out));
    return durable ? omm_dir_sync_of(out->path) : OMM_OK;
}

static omm_err write_file(const char *path, omm_bytes data, unsigned mode, bool durable) {
    omm_file_out out;
    OMM_TRY(omm_file_out_open(&out, path, mode));
    omm_err err = omm_file_out_write(&out, data);
    if (err == OMM_OK) err = omm_file_out_finish(&out, durable);
    omm_file_out_close(&out);
    return err;
}

omm_err omm_file_write_unlisted(const char *path, omm_bytes data, unsigned mode) {
    omm_file_out out;
    OMM_TRY(omm_file_out_open(&out, path, mode));
    omm_err err = omm_file_out_write(&out, data);
    if (err == OMM_OK) err = omm_sync(out.fd, path);
    if (err == OMM_OK) err = put_in_place(&out);
    omm_file_out_close(&out);
    return err;
}

omm_err omm_file_write(const char *path, omm_bytes data, unsigned mode) {
    return write_file(path, data, mode, true);
}

omm_err omm_file_write_fast(const char *path, omm_bytes data, unsigned mode) {
    return write_file(path, data, mode, false);
}

omm_err omm_file_append(const char *path, omm_bytes data, bool durable) {
    int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return raise_errno("open", path);
    omm_err err = write_all(fd, data, path);
    if (err == OMM_OK && durable) err = omm_sync(fd, path);
    if (close(fd) != 0 && err == OMM_OK) err = raise_errno("close", path);
    return err;
}

/* linkat() fails where the name exists, so two creators cannot both win. */
static omm_err link_new(const omm_file_out *out) {
    OMM_TRY(omm_sync(out->fd, out->path));
    if (linkat(AT_FDCWD, out->temporary, AT_FDCWD, out->path,
               out->nameless ? AT_SYMLINK_FOLLOW : 0) == 0)
        return omm_dir_sync_of(out->path);
    int why = errno;
    return omm_raise(why == EEXIST ? OMM_ERR_EXISTS : OMM_ERR_IO, "cannot create %s: %s", out->path,
                     strerror(why));
}

omm_err omm_file_create(const char *path, omm_bytes data, unsigned mode) {
    omm_file_out out;
    struct stat st;
    if (lstat(path, &st) == 0)
        return omm_raise(OMM_ERR_EXISTS, "%s exists and is not overwritten", path);
    OMM_TRY(omm_file_out_open(&out, path, mode));
    omm_err err = omm_file_out_write(&out, data);
    if (err == OMM_OK) err = link_new(&out);
    omm_file_out_close(&out);
    return err;
}

/* --- questions and removal --- */

omm_err omm_file_check_private(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        int why = errno;
        return omm_raise(why == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "cannot open %s: %s", path,
                         strerror(why));
    }
    if (!S_ISREG(st.st_mode)) return omm_raise(OMM_ERR_FORMAT, "%s is no regular file", path);
    if (st.st_mode & 077)
        return omm_raise(
            OMM_ERR_CONFIG,
            "%s holds a secret (a key or token) but has mode %04o; only its owner may read it "
            "(chmod 600)",
            path, (unsigned)(st.st_mode & 07777));
    return OMM_OK;
}

bool omm_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool omm_file_same(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

omm_err omm_file_size(uint64_t *size, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return raise_errno("stat", path);
    if (!S_ISREG(st.st_mode)) return omm_raise(OMM_ERR_IO, "%s is not a regular file", path);
    *size = (uint64_t)st.st_size;
    return OMM_OK;
}

omm_err omm_file_remove(const char *path) {
    if (unlink(path) == 0 || errno == ENOENT) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "remove %s: %s", path, strerror(errno));
}

bool omm_file_hold(int fd) {
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}
