/* lines.c - see lines.h. */
#include "lines.h"
#include "internal.h"

#include <string.h>

#define PIECE_BYTES 16384u

static size_t piece_of(uint64_t left) {
    return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

/* What one pass has seen of the shape. */
typedef struct shape {
    size_t count, first_empty; /* lines; the number of the first empty one, 0: none */
    uint8_t last;              /* byte */
} shape;

static void look_at(shape *s, omm_bytes piece) {
    for (size_t i = 0; i < piece.size; i++) {
        if (piece.data[i] == '\n') {
            s->count++;
            if (s->last == '\n' && s->first_empty == 0) s->first_empty = s->count;
        }
        s->last = piece.data[i];
    }
}

static omm_err changed(const line_reader *r) {
    return omm_raise(OMM_ERR_IO, "%s changed while it was read", r->in.path);
}

static omm_err check_shape(line_reader *r, size_t count_max) {
    uint8_t piece[PIECE_BYTES];
    shape s = {.last = '\n'};
    omm_hasher_init(&r->hasher);
    for (uint64_t left = r->bytes; left > 0; left -= piece_of(left)) {
        const omm_bytes view = omm_bytes_of(piece, piece_of(left));
        const omm_err err = omm_file_in_read(&r->in, piece, view.size);
        if (err != OMM_OK) return err == OMM_ERR_SIZE ? changed(r) : err;
        omm_hasher_update(&r->hasher, view);
        look_at(&s, view);
    }
    r->digest = omm_hasher_final(&r->hasher);
    r->count = s.count;
    if (s.last != '\n') return omm_raise(OMM_ERR_FORMAT, "the last line has no newline");
    if (s.count > count_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu lines, at most %zu", s.count, count_max);
    if (s.first_empty) return omm_raise(OMM_ERR_FORMAT, "line %zu is empty", s.first_empty);
    omm_hasher_init(&r->hasher);
    return omm_file_in_seek(&r->in, 0);
}

omm_err line_reader_open(line_reader *r, const char *dir, const char *path, size_t count_max) {
    char full[OMM_PATH_MAX];
    uint64_t bytes_max = 0;
    memset(r, 0, sizeof *r);
    r->in.fd = -1;
    omm_buf_init(&r->buf, OMM_BUNDLE_FILE_BYTES_MAX);
    OMM_TRY(omm_bundle_file_find(full, &bytes_max, dir, path));
    OMM_TRY(omm_file_in_open(&r->in, full));
    OMM_TRY(omm_file_size(&r->bytes, full));
    if (r->bytes > bytes_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: larger than the limit of %llu bytes", path,
                         (unsigned long long)bytes_max);
    return check_shape(r, count_max);
}

/* One piece more behind what is there of the line at hand. */
static omm_err read_more(line_reader *r) {
    const size_t piece = piece_of(r->bytes - r->taken);
    if (piece == 0) return changed(r); /* the last line had a newline */
    r->buf.size -= r->at;
    if (r->at > 0) memmove(r->buf.data, r->buf.data + r->at, r->buf.size);
    r->at = 0;
    OMM_TRY(omm_buf_reserve(&r->buf, piece));
    uint8_t *to = r->buf.data + r->buf.size;
    const omm_err err = omm_file_in_read(&r->in, to, piece);
    if (err != OMM_OK) return err == OMM_ERR_SIZE ? changed(r) : err;
    omm_hasher_update(&r->hasher, omm_bytes_of(to, piece));
    r->buf.size += piece;
    r->taken += piece;
    return OMM_OK;
}

static omm_err check_end(line_reader *r) {
    const omm_digest is = omm_hasher_final(&r->hasher);
    return omm_digest_equal(&is, &r->digest) ? OMM_OK : changed(r);
}

omm_err line_reader_next(omm_bytes *line, line_reader *r) {
    size_t seen = 0; /* bytes of the line without a newline among them */
    *line = omm_bytes_of(NULL, 0);
    if (r->offset == r->bytes) return check_end(r);
    for (;;) {
        const size_t there = r->buf.size - r->at - seen;
        const uint8_t *begin = r->buf.data + r->at;
        const uint8_t *end = there > 0 ? memchr(begin + seen, '\n', there) : NULL;
        if (end) {
            *line = omm_bytes_of(begin, (size_t)(end - begin) + 1);
            r->at += line->size;
            r->offset += line->size;
            return OMM_OK;
        }
        seen += there;
        OMM_TRY(read_more(r));
    }
}

void line_reader_close(line_reader *r) {
    if (r->in.fd >= 0) omm_file_in_close(&r->in);
    omm_buf_fini(&r->buf);
}
