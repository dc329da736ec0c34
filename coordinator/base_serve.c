/* base_serve.c - see base_serve.h. */
#include "base_serve.h"

#include "omm/envelope.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_REQUEST_BYTES 128u /* all that this file answers; signed requests are longer */
#define ASK_ARENA_BYTES 65536u

typedef struct slot {
    char peer[OMM_PEER_SIZE]; /* "": free */
    uint64_t asked_ms;
} slot;

/* One file of the model. */
typedef struct part_file {
    int fd; /* -1: not open */
    struct stat was;
    uint64_t begin; /* of its bytes, in all */
} part_file;

/* Reading all again: descriptors of what lies there now. */
typedef struct second_look {
    bool is_on;
    part_file files[OMM_BASE_PARTS_MAX];
    uint32_t file_count;
    uint64_t at;
    omm_hasher whole;
} second_look;

struct base_serve {
    base_serve_options o;
    part_file files[OMM_BASE_PARTS_MAX]; /* (file_count) */
    uint32_t file_count;
    uint64_t size; /* of all */
    uint64_t part_bytes[OMM_BASE_PARTS_MAX];
    uint32_t piece_chunks;
    omm_digest *pieces; /* (piece_count) */
    size_t piece_count;
    omm_buf envelope; /* of Base */
    slot slots[BASE_SLOTS_MAX];
    uint64_t allowance, filled_ms; /* bytes that may be sent; when it was last added to */
    base_serve_count count;        /* but for `slots` */
    bool is_doubtful;              /* a file has changed since it was read: nothing is sent */
    uint64_t look_ms;              /* the next step */
    second_look look;
};

static uint64_t now_ms(const base_serve *b) {
    return b->o.clock.now_ms(b->o.clock.ud);
}

/* ---- the file ---- */

static omm_err read_file(const base_serve *b, const part_file *f, uint8_t *to, size_t size,
                         uint64_t at) {
    while (size > 0) {
        const ssize_t got = pread(f->fd, to, size, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return omm_raise(OMM_ERR_IO, "%s: %s", b->o.path,
                             got < 0 ? strerror(errno) : "is shorter than it was");
        to += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return OMM_OK;
}

/* Bytes [at, at + size) of all files one after the other, which there are. */
static omm_err read_at(const base_serve *b, const part_file *files, uint8_t *to, size_t size,
                       uint64_t at) {
    for (uint32_t i = 0; i < b->file_count && size > 0; i++) {
        const uint64_t end = files[i].begin + b->part_bytes[i];
        if (at >= end) continue;
        const size_t here = end - at < size ? (size_t)(end - at) : size;
        OMM_TRY(read_file(b, &files[i], to, here, at - files[i].begin));
        to += here;
        at += here;
        size -= here;
    }
    return OMM_OK;
}

/* begin: where its bytes are, in all. */
static omm_err open_file(part_file *f, const char *path, uint64_t begin) {
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &f->was) != 0)
        return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "%s: %s", path,
                         strerror(errno));
    if (!S_ISREG(f->was.st_mode) || f->was.st_size == 0)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: no file that can be served as a base model", path);
    f->begin = begin;
    return OMM_OK;
}

static omm_err part_path(char path[OMM_PATH_MAX], const base_serve *b, uint32_t part) {
    if (b->o.part_count > 1) return omm_gguf_part_path(path, b->o.path, part, b->o.part_count);
    (void)snprintf(path, OMM_PATH_MAX, "%s", b->o.path);
    return OMM_OK;
}

static void close_files(part_file *files, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (files[i].fd >= 0) (void)close(files[i].fd);
}

static omm_err open_files(base_serve *b) {
    const uint32_t count = b->o.part_count;
    if (count < 1 || count > OMM_BASE_PARTS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: %u files, at most %u can be served", b->o.path,
                         count, OMM_BASE_PARTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(part_path(path, b, i));
        b->files[b->file_count].fd = -1;
        OMM_TRY(open_file(&b->files[b->file_count++], path, b->size));
        b->part_bytes[i] = (uint64_t)b->files[i].was.st_size;
        b->size += b->part_bytes[i];
    }
    b->piece_chunks = omm_base_piece_chunks_for(b->size);
    if (b->piece_chunks == 0)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: %llu bytes cannot be served as a base model",
                         b->o.path, (unsigned long long)b->size);
    if (b->piece_chunks < b->o.piece_chunks) b->piece_chunks = b->o.piece_chunks;
    const uint64_t bytes = omm_base_piece_bytes(b->piece_chunks);
    b->piece_count = (size_t)((b->size + bytes - 1) / bytes);
    b->pieces = omm_alloc(b->piece_count, sizeof *b->pieces);
    return b->pieces ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "%zu pieces", b->piece_count);
}

/* The pieces' digests and that of all, in one reading. */
static omm_err hash_pieces(base_serve *b) {
    uint8_t *part = omm_alloc(OMM_CHUNK_BYTES, 1);
    if (!part) return omm_raise(OMM_ERR_NOMEM, "a chunk");
    omm_hasher whole, piece;
    omm_err err = OMM_OK;
    omm_hasher_init(&whole);
    const uint64_t size = b->size;
    const uint64_t bytes = omm_base_piece_bytes(b->piece_chunks);
    for (uint64_t at = 0; at < size && err == OMM_OK; at += OMM_CHUNK_BYTES) {
        const size_t want = size - at < OMM_CHUNK_BYTES ? (size_t)(size - at) : OMM_CHUNK_BYTES;
        err = read_at(b, b->files, part, want, at);
        if (err != OMM_OK) break;
        if (at % bytes == 0) omm_hasher_init(&piece);
        omm_hasher_update(&piece, omm_bytes_of(part, want));
        omm_hasher_update(&whole, omm_bytes_of(part, want));
        if ((at + want) % bytes == 0 || at + want == size)
            b->pieces[at / bytes] = omm_hasher_final(&piece);
    }
    omm_free(part);
    OMM_TRY(err);
    const omm_digest digest = omm_hasher_final(&whole);
    if (omm_digest_equal(&digest, &b->o.digest)) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "%s: has changed since it was opened as the run's base model", b->o.path);
}

static omm_err seal(base_serve *b) {
    const omm_base_model base = {.digest = b->o.digest,
                                 .size = b->size,
                                 .piece_chunks = b->piece_chunks,
                                 .pieces = b->pieces,
                                 .piece_count = b->piece_count,
                                 .mirrors = b->o.mirrors,
                                 .mirror_count = b->o.mirror_count,
                                 .parts = b->part_bytes,
                                 .part_count = b->file_count > 1 ? b->file_count : 0};
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_base_model_encode(&payload, &base);
    if (err == OMM_OK)
        err = omm_envelope_seal(&b->envelope, OMM_CONTEXT_BASE, omm_buf_view(&payload), b->o.key);
    omm_buf_fini(&payload);
    return err;
}

static omm_err check_mirrors(const base_serve_options *o) {
    char any[OMM_MIRROR_BYTES_MAX + 1];
    for (size_t i = 0; i < o->mirror_count; i++) {
        OMM_TRY(omm_mirror_check(o->mirrors[i]));
        if (o->part_count > 1) OMM_TRY(omm_mirror_part(any, o->mirrors[i], 0, o->part_count));
    }
    return OMM_OK;
}

omm_err base_serve_open(base_serve **out, const base_serve_options *options) {
    *out = NULL;
    if (options->transfers == 0 && options->mirror_count == 0) return OMM_OK;
    OMM_TRY(check_mirrors(options));
    base_serve *b = omm_alloc(1, sizeof *b);
    if (!b) return omm_raise(OMM_ERR_NOMEM, "base model");
    b->o = *options;
    if (b->o.transfers > BASE_SLOTS_MAX) b->o.transfers = BASE_SLOTS_MAX;
    omm_buf_init(&b->envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = open_files(b);
    if (err == OMM_OK) err = hash_pieces(b);
    if (err == OMM_OK) err = seal(b);
    if (err != OMM_OK) {
        base_serve_close(b);
        return err;
    }
    b->filled_ms = now_ms(b);
    *out = b;
    return OMM_OK;
}

void base_serve_close(base_serve *b) {
    if (!b) return;
    close_files(b->files, b->file_count);
    close_files(b->look.files, b->look.file_count);
    omm_buf_fini(&b->envelope);
    omm_free(b->pieces);
    omm_free(b);
}

/* ---- a file that has changed ---- */

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool has_changed(const part_file *files, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct stat now;
        if (fstat(files[i].fd, &now) != 0 || !is_same(&now, &files[i].was)) return true;
    }
    return false;
}

/* Nothing more is sent until it was read again. */
static bool is_doubtful(base_serve *b) {
    if (!b->is_doubtful && has_changed(b->files, b->file_count)) {
        b->is_doubtful = true;
        b->look_ms = now_ms(b);
    }
    return b->is_doubtful;
}

static void end_look(base_serve *b, bool is_the_runs) {
    second_look *look = &b->look;
    look->is_on = false;
    b->is_doubtful = !is_the_runs;
    b->count.has_changed = !is_the_runs;
    b->count.read_again += is_the_runs;
    b->look_ms = now_ms(b) + BASE_LOOK_MS;
    if (is_the_runs) { /* what lies there now may be another file than the one that was open */
        close_files(b->files, b->file_count);
        memcpy(b->files, look->files, b->file_count * sizeof b->files[0]);
        look->file_count = 0;
    }
    close_files(look->files, look->file_count);
    for (uint32_t i = 0; i < look->file_count; i++) look->files[i].fd = -1;
}

/* What lies there now has the size of each file; `*again`: and is what was looked at before, and was not the run's. */
static bool open_look(bool *again, base_serve *b) {
    second_look *look = &b->look;
    const uint32_t looked_at = look->file_count;
    *again = b->count.has_changed && looked_at == b->file_count;
    for (uint32_t i = 0; i < b->file_count; i++) {
        char path[OMM_PATH_MAX];
        part_file f = {.fd = -1};
        const bool is_open =
            part_path(path, b, i) == OMM_OK && open_file(&f, path, b->files[i].begin) == OMM_OK;
        *again = *again && is_open && is_same(&f.was, &look->files[i].was);
        look->files[i] = f;
        look->file_count = i + 1;
        if (!is_open || (uint64_t)f.was.st_size != b->part_bytes[i]) return false;
    }
    return true;
}

static void begin_look(base_serve *b) {
    bool again = false;
    if (!open_look(&again, b) || again) {
        end_look(b, false);
        return;
    }
    b->look.is_on = true;
    b->look.at = 0;
    omm_hasher_init(&b->look.whole);
}

/* False: it cannot be read. */
static bool hash_some(base_serve *b) {
    second_look *look = &b->look;
    uint8_t *part = omm_alloc(OMM_CHUNK_BYTES, 1);
    bool ok = part != NULL;
    for (size_t done = 0; ok && done < BASE_STEP_BYTES && look->at < b->size;) {
        const uint64_t left = b->size - look->at;
        const size_t want = left < OMM_CHUNK_BYTES ? (size_t)left : OMM_CHUNK_BYTES;
        ok = read_at(b, look->files, part, want, look->at) == OMM_OK;
        if (ok) omm_hasher_update(&look->whole, omm_bytes_of(part, want));
        look->at += want;
        done += want;
    }
    omm_free(part);
    return ok;
}

void base_serve_step(base_serve *b) {
    if (!b || b->o.transfers == 0 || now_ms(b) < b->look_ms) return;
    second_look *look = &b->look;
    b->look_ms = now_ms(b) + (is_doubtful(b) ? BASE_STEP_MS : BASE_LOOK_MS);
    if (!b->is_doubtful) return;
    if (!look->is_on) {
        begin_look(b);
        return;
    }
    if (!hash_some(b)) {
        end_look(b, false);
        look->file_count = 0; /* it may be readable the next time */
        return;
    }
    if (look->at < b->size) return;
    const omm_digest digest = omm_hasher_final(&look->whole);
    if (has_changed(look->files, look->file_count)) { /* while it was read: again, in a while */
        look->is_on = false;
        close_files(look->files, look->file_count);
        look->file_count = 0;
        b->look_ms = now_ms(b) + BASE_LOOK_MS;
        return;
    }
    end_look(b, omm_digest_equal(&digest, &b->o.digest));
}

/* ---- who may have how much ---- */

static bool is_taken(const slot *s, uint64_t now) {
    return s->peer[0] && now - s->asked_ms < BASE_SLOT_MS;
}

/* The address's slot, or a free one, which it takes. */
static bool take_slot(base_serve *b, const char *peer, uint64_t now) {
    slot *found = NULL;
    for (uint32_t i = 0; i < b->o.transfers; i++) {
        slot *s = &b->slots[i];
        if (is_taken(s, now) && strcmp(s->peer, peer) == 0) {
            found = s;
            break;
        }
        if (!is_taken(s, now) && !found) found = s;
    }
    if (!found) return false;
    (void)snprintf(found->peer, sizeof found->peer, "%s", peer);
    found->asked_ms = now;
    return true;
}

/* 0: `size` bytes may go now; else in how many ms.  Up to a second's bytes are saved up, and one chunk is
 * always allowed for. */
static uint64_t wait_for_bytes(base_serve *b, size_t size, uint64_t now) {
    const uint64_t rate = b->o.bytes_per_second;
    if (rate == 0) return 0;
    const uint64_t most = rate > OMM_CHUNK_BYTES ? rate : OMM_CHUNK_BYTES;
    const uint64_t passed = now - b->filled_ms;
    b->allowance = passed > 1000 * most / rate ? most : b->allowance + rate * passed / 1000;
    if (b->allowance > most) b->allowance = most;
    b->filled_ms = now;
    if (b->allowance < size) return 1 + 1000 * (size - b->allowance) / rate;
    b->allowance -= size;
    return 0;
}

/* ---- answers ---- */

static size_t find_piece(const base_serve *b, const omm_digest *digest) {
    for (size_t i = 0; i < b->piece_count; i++)
        if (omm_digest_equal(&b->pieces[i], digest)) return i;
    return b->piece_count;
}

static omm_err answer_wait(omm_buf *reply, base_serve *b, uint64_t ms) {
    b->count.waits++;
    return omm_reply_encode(reply, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = ms});
}

static omm_err refuse(omm_buf *reply, const char *sentence) {
    return omm_reply_encode(reply, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                                .reason = OMM_ERR_REFUSED_BASE,
                                                .sentence = sentence});
}

static omm_err send_chunk(omm_buf *reply, base_serve *b, const omm_request *ask, uint64_t at,
                          size_t size) {
    uint8_t *part = omm_alloc(size, 1);
    if (!part) return omm_raise(OMM_ERR_NOMEM, "a chunk of the base model");
    omm_err err = read_at(b, b->files, part, size, at);
    if (err == OMM_OK)
        err = omm_reply_encode(reply, &(omm_reply){.kind = OMM_REPLY_CHUNK,
                                                   .digest = ask->digest,
                                                   .index = ask->index,
                                                   .data = omm_bytes_of(part, size)});
    omm_free(part);
    if (err == OMM_OK) b->count.chunks++;
    if (err == OMM_OK) b->count.bytes += size;
    return err;
}

static omm_err answer_chunk(omm_buf *reply, base_serve *b, const omm_request *ask, size_t piece,
                            const char *peer) {
    const uint64_t bytes = omm_base_piece_bytes(b->piece_chunks);
    const uint64_t size = b->size;
    const uint64_t at = piece * bytes + (uint64_t)ask->index * OMM_CHUNK_BYTES;
    if (b->o.transfers == 0) return refuse(reply, "base: only mirrors have it");
    if (ask->index >= b->piece_chunks || at >= size)
        return refuse(reply, "base: no such chunk in the piece");
    if (is_doubtful(b) && !b->count.has_changed) return answer_wait(reply, b, BASE_FULL_MS);
    if (b->is_doubtful) {
        b->count.refused++;
        return refuse(reply, "base: its file has changed here");
    }
    const uint64_t now = now_ms(b);
    const size_t part = size - at < OMM_CHUNK_BYTES ? (size_t)(size - at) : OMM_CHUNK_BYTES;
    if (!take_slot(b, peer, now)) return answer_wait(reply, b, BASE_FULL_MS);
    const uint64_t wait_ms = wait_for_bytes(b, part, now);
    if (wait_ms > 0) return answer_wait(reply, b, wait_ms);
    return send_chunk(reply, b, ask, at, part);
}

omm_err base_serve_answer(base_serve_asked *asked, omm_buf *reply, base_serve *b, omm_bytes request,
                          const char *peer) {
    *asked = BASE_SERVE_NOTHING;
    if (!b || request.size > SMALL_REQUEST_BYTES) return OMM_OK;
    omm_arena arena;
    omm_request ask;
    omm_arena_init(&arena, ASK_ARENA_BYTES);
    const bool is_read = omm_request_decode(&ask, request, &arena) == OMM_OK;
    omm_arena_fini(&arena);
    if (!is_read) return OMM_OK;
    size_t piece = b->piece_count;
    if (ask.kind == OMM_REQUEST_GET) piece = find_piece(b, &ask.digest);
    if (piece < b->piece_count)
        *asked = BASE_SERVE_CHUNK;
    else if (ask.kind == OMM_REQUEST_BASE)
        *asked = BASE_SERVE_MANIFEST;
    else
        return OMM_OK;
    omm_buf_clear(reply);
    if (*asked == BASE_SERVE_CHUNK) return answer_chunk(reply, b, &ask, piece, peer);
    return omm_reply_encode(
        reply, &(omm_reply){.kind = OMM_REPLY_BASE, .envelope = omm_buf_view(&b->envelope)});
}

base_serve_count base_serve_counts(const base_serve *b) {
    base_serve_count count = {0};
    if (!b) return count;
    count = b->count;
    const uint64_t now = now_ms(b);
    for (uint32_t i = 0; i < b->o.transfers; i++) count.slots += is_taken(&b->slots[i], now);
    return count;
}
