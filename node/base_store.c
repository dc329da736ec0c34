/* base_store.c - see base_store.h. */
#include "base_store.h"

#include "omm/plan.h"
#include "omm/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPLIT "-00001-of-00001" /* what a file's name has besides, where there are several */
#define NAME_SIZE (OMM_DIGEST_HEX_SIZE + sizeof SPLIT + 8)
#define MANIFEST "manifest.env"
#define SPARE_BYTES ((uint64_t)64 << 20) /* of the disk, for everything else */

static omm_err trouble(const char *path) {
    return omm_raise(OMM_ERR_IO, "%s: %s", path, strerror(errno));
}

/* Of file `file`; `end` is .part or .gguf. */
static void name_of(char out[NAME_SIZE], const omm_base_model *base, size_t file, const char *end) {
    char hex[OMM_DIGEST_HEX_SIZE], split[24] = "";
    omm_digest_hex(hex, &base->digest);
    if (base->part_count > 1)
        (void)snprintf(split, sizeof split, "-%05u-of-%05u", (unsigned)file + 1,
                       (unsigned)base->part_count);
    (void)snprintf(out, NAME_SIZE, "%s%s%s", hex, split, end);
}

static omm_err path_of(char out[OMM_PATH_MAX], const char *folder, const omm_base_model *base,
                       size_t file, const char *end) {
    char name[NAME_SIZE];
    name_of(name, base, file, end);
    return omm_path_join(out, folder, name);
}

omm_err base_store_path(char out[OMM_PATH_MAX], const char *folder, const omm_base_model *base,
                        size_t file) {
    return path_of(out, folder, base, file, ".gguf");
}

size_t base_store_file_at(uint64_t *offset, const omm_base_model *base, uint64_t at) {
    size_t file = 0;
    for (; file + 1 < base_store_files(base) && at >= base_store_file_bytes(base, file); file++)
        at -= base_store_file_bytes(base, file);
    *offset = at;
    return file;
}

/* ---- other models ---- */

typedef struct others {
    const base_store *s;
    const char *end;
} others;

static bool is_own(const base_store *s, const char *name) {
    char own[NAME_SIZE];
    for (size_t file = 0; file < base_store_files(s->base); file++) {
        name_of(own, s->base, file, ".part");
        if (strcmp(name, own) == 0) return true;
        name_of(own, s->base, file, ".gguf");
        if (strcmp(name, own) == 0) return true;
    }
    return false;
}

/* A digest, perhaps the number of a file, and the end.  What is named otherwise is not ours. */
static bool is_model(const char *name, const char *end) {
    const size_t hex = OMM_DIGEST_HEX_SIZE - 1, tail = strlen(end), size = strlen(name);
    const size_t split = sizeof SPLIT - 1;
    if (strspn(name, "0123456789abcdef") != hex) return false;
    if (size != hex + tail && size != hex + split + tail) return false;
    if (size == hex + split + tail &&
        (strspn(name + hex, "-of0123456789") != split || memcmp(name + hex + 6, "-of-", 4) != 0))
        return false;
    return strcmp(name + size - tail, end) == 0;
}

/* Not if another node is at it, as open_part left it. */
static omm_err remove_unlocked(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    const omm_err err = locked ? OMM_OK : omm_file_remove(path);
    if (fd >= 0) (void)close(fd);
    return err;
}

static omm_err remove_other(void *ud, const char *name) {
    const others *o = ud;
    char path[OMM_PATH_MAX];
    if (!is_model(name, o->end) || is_own(o->s, name)) return OMM_OK;
    OMM_TRY(omm_path_join(path, o->s->folder, name));
    return remove_unlocked(path);
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

/* What is wrong with the part of file `file`, by its name. */
static omm_err part_trouble(const base_store *s, size_t file) {
    const int why = errno;
    char path[OMM_PATH_MAX];
    OMM_TRY(path_of(path, s->folder, s->base, file, ".part"));
    errno = why;
    return trouble(path);
}

/* Bytes from `at` on that are in one file: which, from where in it, and at most `size` of them. */
static size_t in_file(size_t *file, off_t *offset, const base_store *s, uint64_t at, size_t size) {
    uint64_t begin = 0;
    *file = base_store_file_at(&begin, s->base, at);
    const uint64_t left = base_store_file_bytes(s->base, *file) - begin;
    *offset = (off_t)begin;
    return left < size ? (size_t)left : size;
}

static omm_err write_at(const base_store *s, omm_bytes bytes) {
    uint64_t at = s->at;
    while (bytes.size > 0) {
        size_t file;
        off_t offset;
        const size_t size = in_file(&file, &offset, s, at, bytes.size);
        const ssize_t put = pwrite(s->fds[file], bytes.data, size, offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return part_trouble(s, file);
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

/* Whole pieces that are right, from the first on; until a file ends too early. */
static omm_err read_back(base_store *s) {
    uint8_t part[65536];
    omm_err err = OMM_OK;
    while (err == OMM_OK && s->at < s->base->size) {
        size_t file;
        off_t offset;
        const size_t want = in_file(&file, &offset, s, s->at, of_piece(s, sizeof part));
        const ssize_t got = pread(s->fds[file], part, want, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return part_trouble(s, file);
        if (got == 0) break;
        err = take(s, omm_bytes_of(part, (size_t)got));
    }
    base_store_rewind(s); /* of the piece that was cut, or wrong, nothing is kept */
    return err == OMM_ERR_REFUSED_DIGEST ? OMM_OK : err;
}

static omm_err check_room(const base_store *s) {
    uint64_t room = 0;
    const uint64_t want = s->base->size - s->at + SPARE_BYTES;
    if (!omm_file_room(&room, s->folder) || room >= want) return OMM_OK;
    char free_text[32], want_text[32], spare_text[32];
    omm_plan_bytes_text(free_text, room);
    omm_plan_bytes_text(want_text, want - SPARE_BYTES);
    omm_plan_bytes_text(spare_text, SPARE_BYTES);
    return omm_raise(OMM_ERR_REFUSED_SIZE,
                     "%s: %s are free; the base model still takes %s, and %s have to stay free "
                     "beside it: make room, or name another state_dir",
                     s->folder, free_text, want_text, spare_text);
}

/* One that has its name is taken up too: killed while files were given theirs. */
static omm_err open_part(base_store *s, size_t file) {
    struct stat st;
    char path[OMM_PATH_MAX], whole[OMM_PATH_MAX];
    OMM_TRY(path_of(path, s->folder, s->base, file, ".part"));
    OMM_TRY(base_store_path(whole, s->folder, s->base, file));
    if (!omm_file_exists(path) && omm_file_exists(whole) && rename(whole, path) != 0)
        return trouble(whole);
    s->fds[file] = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fds[file] < 0 || fstat(s->fds[file], &st) != 0) return trouble(path);
    if (!S_ISREG(st.st_mode)) return omm_raise(OMM_ERR_IO, "%s: not a file", path);
    if (flock(s->fds[file], LOCK_EX | LOCK_NB) != 0)
        return omm_raise(OMM_ERR_STATE, "%s: another node fetches into this folder", path);
    return OMM_OK;
}

/* Nothing is kept behind what is right. */
static omm_err cut_parts(const base_store *s) {
    uint64_t begin = 0;
    for (size_t file = 0; file < base_store_files(s->base); file++) {
        const uint64_t bytes = base_store_file_bytes(s->base, file);
        uint64_t have = s->at > begin ? s->at - begin : 0;
        if (have > bytes) have = bytes;
        if (ftruncate(s->fds[file], (off_t)have) != 0) return part_trouble(s, file);
        begin += bytes;
    }
    return OMM_OK;
}

static omm_err open_parts(base_store *s) {
    for (size_t file = 0; file < base_store_files(s->base); file++) OMM_TRY(open_part(s, file));
    OMM_TRY(read_back(s));
    OMM_TRY(cut_parts(s));
    return check_room(s);
}

omm_err base_store_open(base_store *s, const char *folder, const omm_base_model *base) {
    *s = (base_store){.base = base};
    for (size_t file = 0; file < OMM_BASE_PARTS_MAX; file++) s->fds[file] = -1;
    OMM_ASSERT(base->part_count <= OMM_BASE_PARTS_MAX);
    (void)snprintf(s->folder, sizeof s->folder, "%s", folder);
    OMM_TRY(path_of(s->part, folder, base, 0, ".part"));
    OMM_TRY(base_store_path(s->path, folder, base, 0));
    OMM_TRY(omm_dir_make_private(folder));
    OMM_TRY(remove_others(s, ".part"));
    omm_hasher_init(&s->whole);
    begin_piece(s);
    const omm_err err = open_parts(s);
    if (err != OMM_OK) base_store_close(s);
    return err;
}

void base_store_close(base_store *s) {
    for (size_t file = 0; file < OMM_BASE_PARTS_MAX; file++) {
        if (s->fds[file] >= 0) (void)close(s->fds[file]);
        s->fds[file] = -1;
    }
}

static omm_err remove_parts(const base_store *s) {
    for (size_t file = 0; file < base_store_files(s->base); file++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(path_of(path, s->folder, s->base, file, ".part"));
        (void)unlink(path);
    }
    return OMM_OK;
}

static omm_err sync_parts(const base_store *s) {
    for (size_t file = 0; file < base_store_files(s->base); file++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(path_of(path, s->folder, s->base, file, ".part"));
        OMM_TRY(omm_sync(s->fds[file], path));
    }
    return OMM_OK;
}

/* The first one last: where it has its name, all do. */
static omm_err name_files(const base_store *s) {
    for (size_t file = base_store_files(s->base); file-- > 0;) {
        char part[OMM_PATH_MAX], path[OMM_PATH_MAX];
        OMM_TRY(path_of(part, s->folder, s->base, file, ".part"));
        OMM_TRY(base_store_path(path, s->folder, s->base, file));
        if (file == 0) OMM_TRY(omm_dir_sync_of(path));
        if (rename(part, path) != 0) return trouble(path);
    }
    return omm_dir_sync_of(s->path);
}

omm_err base_store_finish(base_store *s) {
    OMM_ASSERT(base_store_is_whole(s));
    omm_hasher whole = s->whole;
    const omm_digest digest = omm_hasher_final(&whole);
    if (!omm_digest_equal(&digest, &s->base->digest)) {
        OMM_TRY(remove_parts(s));
        return omm_raise(OMM_ERR_REFUSED_DIGEST,
                         "the pieces of the base model are not the model that is named");
    }
    OMM_TRY(sync_parts(s));
    OMM_TRY(name_files(s));
    return remove_others(s, ".gguf");
}

/* ---- the manifest ---- */

static bool has_manifest(const char *folder, omm_bytes envelope) {
    omm_buf kept;
    omm_buf_init(&kept, envelope.size);
    const bool same = base_store_get_manifest(&kept, folder) == OMM_OK &&
                      omm_bytes_equal(omm_buf_view(&kept), envelope);
    omm_buf_fini(&kept);
    return same;
}

/* A node that has its model begins on a full disk, too: what is there already takes no room. */
omm_err base_store_put_manifest(const char *folder, omm_bytes envelope) {
    char path[OMM_PATH_MAX];
    if (has_manifest(folder, envelope)) return OMM_OK;
    OMM_TRY(omm_dir_make_private(folder));
    OMM_TRY(omm_path_join(path, folder, MANIFEST));
    return omm_file_write(path, envelope, 0600);
}

omm_err base_store_get_manifest(omm_buf *out, const char *folder) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, folder, MANIFEST));
    return omm_file_read(out, path);
}
