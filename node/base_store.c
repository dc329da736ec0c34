/* base_store.c - see base_store.h. */
#include "base_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_SIZE (OMM_DIGEST_HEX_SIZE + 8)
#define SPARE_BYTES ((uint64_t)64 << 20) /* of the disk, for everything else */

static omm_err trouble(const char *path) {
    return omm_raise(OMM_ERR_IO, "%s: %s", path, strerror(errno));
}

static omm_err name_of(char out[OMM_PATH_MAX], const char *folder, const omm_digest *digest,
                       const char *end) {
    char name[NAME_SIZE], hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    (void)snprintf(name, sizeof name, "%s%s", hex, end);
    return omm_path_join(out, folder, name);
}

omm_err base_store_path(char out[OMM_PATH_MAX], const char *folder, const omm_digest *digest) {
    return name_of(out, folder, digest, ".gguf");
}

/* ---- other models ---- */

typedef struct others {
    const base_store *s;
    const char *end;
} others;

static omm_err remove_other(void *ud, const char *name) {
    const others *o = ud;
    char path[OMM_PATH_MAX];
    const size_t size = strlen(name), end = strlen(o->end);
    if (size != OMM_DIGEST_HEX_SIZE - 1 + end || strcmp(name + size - end, o->end) != 0)
        return OMM_OK;
    OMM_TRY(omm_path_join(path, o->s->folder, name));
    if (strcmp(path, o->s->part) == 0 || strcmp(path, o->s->path) == 0) return OMM_OK;
    return omm_file_remove(path);
}

static omm_err remove_others(const base_store *s, const char *end) {
    others o = {s, end};
    return omm_dir_walk(s->folder, remove_other, &o);
}

/* ---- pieces ---- */

static void begin_piece(base_store *s) {
    omm_hasher_init(&s->hash);
    s->whole_before = s->whole;
}

void base_store_rewind(base_store *s) {
    const uint64_t begin = s->piece * omm_base_piece_bytes(s->base->piece_chunks);
    s->at = begin < s->base->size ? begin : s->base->size;
    s->whole = s->whole_before;
    omm_hasher_init(&s->hash);
}

/* Bytes of the piece at hand, which are on the disk or known to come there. */
static omm_err take(base_store *s, omm_bytes bytes) {
    omm_hasher_update(&s->hash, bytes);
    omm_hasher_update(&s->whole, bytes);
    s->at += bytes.size;
    const uint64_t begin = s->piece * omm_base_piece_bytes(s->base->piece_chunks);
    if (s->at < begin + omm_base_piece_size(s->base, s->piece)) return OMM_OK;
    const omm_digest digest = omm_hasher_final(&s->hash);
    if (!omm_digest_equal(&digest, &s->base->pieces[s->piece])) {
        base_store_rewind(s);
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "piece %zu of the base model: wrong bytes",
                         s->piece);
    }
    s->piece++;
    begin_piece(s);
    return OMM_OK;
}

/* Of `size` bytes from here on, how many belong to the piece at hand. */
static size_t of_piece(const base_store *s, size_t size) {
    const uint64_t begin = s->piece * omm_base_piece_bytes(s->base->piece_chunks);
    const uint64_t left = begin + omm_base_piece_size(s->base, s->piece) - s->at;
    return left < size ? (size_t)left : size;
}

static omm_err write_at(const base_store *s, omm_bytes bytes) {
    uint64_t at = s->at;
    while (bytes.size > 0) {
        const ssize_t put = pwrite(s->fd, bytes.data, bytes.size, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return trouble(s->part);
        bytes = omm_bytes_of(bytes.data + put, bytes.size - (size_t)put);
        at += (uint64_t)put;
    }
    return OMM_OK;
}

omm_err base_store_put(base_store *s, omm_bytes bytes) {
    if (bytes.size > s->base->size - s->at)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "more bytes than the base model has");
    while (bytes.size > 0) {
        const omm_bytes part = omm_bytes_of(bytes.data, of_piece(s, bytes.size));
        OMM_TRY(write_at(s, part));
        OMM_TRY(take(s, part));
        bytes = omm_bytes_of(bytes.data + part.size, bytes.size - part.size);
    }
    return OMM_OK;
}

/* ---- open, finish ---- */

/* Whole pieces that are right, from the first on. */
static omm_err read_back(base_store *s, uint64_t have) {
    uint8_t part[65536];
    omm_err err = OMM_OK;
    while (err == OMM_OK && s->at < have && s->at < s->base->size) {
        const size_t want = of_piece(s, sizeof part);
        const ssize_t got = pread(s->fd, part, want, (off_t)s->at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return trouble(s->part);
        if (got == 0) break;
        err = take(s, omm_bytes_of(part, (size_t)got));
    }
    base_store_rewind(s); /* of the piece that was cut, or wrong, nothing is kept */
    return err == OMM_ERR_REFUSED_DIGEST ? OMM_OK : err;
}

static omm_err check_room(const base_store *s) {
    struct statvfs disk;
    if (statvfs(s->folder, &disk) != 0) return trouble(s->folder);
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    const uint64_t want = s->base->size - s->at + SPARE_BYTES;
    if (room >= want) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE,
                     "%s: %.1f GB are free, and the base model still takes %.1f GB", s->folder,
                     (double)room / 1e9, (double)want / 1e9);
}

static omm_err open_part(base_store *s) {
    struct stat st;
    s->fd = open(s->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0 || fstat(s->fd, &st) != 0) return trouble(s->part);
    if (!S_ISREG(st.st_mode)) return omm_raise(OMM_ERR_IO, "%s: not a file", s->part);
    if (flock(s->fd, LOCK_EX | LOCK_NB) != 0)
        return omm_raise(OMM_ERR_STATE, "%s: another node fetches into this folder", s->part);
    OMM_TRY(read_back(s, (uint64_t)st.st_size));
    if (ftruncate(s->fd, (off_t)s->at) != 0) return trouble(s->part);
    return check_room(s);
}

omm_err base_store_open(base_store *s, const char *folder, const omm_base_model *base) {
    *s = (base_store){.base = base, .fd = -1};
    (void)snprintf(s->folder, sizeof s->folder, "%s", folder);
    OMM_TRY(name_of(s->part, folder, &base->digest, ".part"));
    OMM_TRY(base_store_path(s->path, folder, &base->digest));
    OMM_TRY(omm_dir_make(folder));
    OMM_TRY(remove_others(s, ".part"));
    omm_hasher_init(&s->whole);
    begin_piece(s);
    const omm_err err = open_part(s);
    if (err != OMM_OK) base_store_close(s);
    return err;
}

void base_store_close(base_store *s) {
    if (s->fd >= 0) (void)close(s->fd);
    s->fd = -1;
}

static omm_err sync_folder(const char *folder) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && fsync(fd) == 0;
    const omm_err err = ok ? OMM_OK : trouble(folder);
    if (fd >= 0) (void)close(fd);
    return err;
}

omm_err base_store_finish(base_store *s) {
    OMM_ASSERT(base_store_is_whole(s));
    omm_hasher whole = s->whole;
    const omm_digest digest = omm_hasher_final(&whole);
    if (!omm_digest_equal(&digest, &s->base->digest)) {
        (void)unlink(s->part);
        return omm_raise(OMM_ERR_REFUSED_DIGEST,
                         "the pieces of the base model are not the model that is named");
    }
    if (fsync(s->fd) != 0) return trouble(s->part);
    if (rename(s->part, s->path) != 0) return trouble(s->path);
    OMM_TRY(sync_folder(s->folder));
    return remove_others(s, ".gguf");
}
