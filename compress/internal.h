/* internal.h - the steps of a codec, each in a file of its own.
 *
 *   keep.c   which entries are kept, and how their indices are written
 *   code.c   how kept values are written: f32, f16, int8 with a scale per row
 *   read.c   what code.c wrote, checked, and back to values
 *   frame.c  payload <-> sent bytes (zstd)
 *
 * Depends on: codec.h.  Threads: no shared state.
 */
#ifndef COMPRESS_INTERNAL_H
#define COMPRESS_INTERNAL_H

#include "omm/codec.h"

#include <stdbool.h>

/* Which entries a payload holds: `indices` ascending, or NULL for all of 0 .. count - 1. */
typedef struct kept {
    uint32_t *indices; /* owned */
    size_t count;
} kept;

static inline size_t kept_index(const kept *k, size_t i) {
    return k->indices ? k->indices[i] : i;
}

/* Rows of a layout in order: while (row_next(&w)) uses [w.first, w.end). */
typedef struct row_walk {
    const omm_layout *layout;
    size_t segment;
    uint32_t row;
    size_t first, end;
} row_walk;

static inline bool row_next(row_walk *w) {
    if (w->segment == w->layout->segment_count) return false;
    const omm_segment *s = &w->layout->segments[w->segment];
    w->first = s->offset + (size_t)w->row * s->cols;
    w->end = w->first + s->cols;
    if (++w->row == s->rows) {
        w->row = 0;
        w->segment++;
    }
    return true;
}

/* The k entries of largest magnitude, ties to the lower index; values are finite.
 * Errors: NOMEM. */
OMM_CHECKED omm_err keep_select(kept *out, const float *values, size_t n, size_t k);
void kept_fini(kept *k);

typedef enum index_coding { INDEX_ALL = 0, INDEX_GAPS = 1, INDEX_BITMAP = 2 } index_coding;

/* The coding the rule chooses, and its size in bytes. */
index_coding index_choose(size_t *bytes, const kept *k, size_t n);
/* The most bytes that any k indices below n can take. */
size_t index_bytes_max(size_t n, size_t k);
/* Append the indices.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err index_write(omm_buf *out, index_coding coding, const kept *k, size_t n);
/* The indices of a payload, one after the other, some read ahead of where we are. */
typedef struct index_walk {
    index_coding coding;
    omm_bytes in;     /* all of them as they are written; of gaps, from the first not read */
    size_t left;      /* indices that are not read ahead yet */
    uint64_t next;    /* the lowest one that these can begin with */
    size_t at, count; /* index[at .. count - 1] are read ahead */
    uint32_t index[128];
} index_walk;
/* Check `count` indices below n and read past them; nothing is read for INDEX_ALL.
 * Errors: REFUSED_FORMAT, REFUSED_SHAPE. */
OMM_CHECKED omm_err index_check(index_walk *out, omm_reader *in, index_coding coding, size_t count,
                                size_t n);
void index_read_ahead(index_walk *w);
static inline uint32_t index_next(index_walk *w) { /* at most `count` times */
    if (w->at == w->count) index_read_ahead(w);
    return w->index[w->at++];
}

#define CODE_SCALE_BYTES 3u
size_t code_width(omm_codec_kind kind); /* bytes per value: 4, 2, 1 */

/* Kept values as they are written. */
typedef struct coded {
    uint32_t *scales; /* upper 24 bits of the f32; owned */
    size_t scale_count;
    uint8_t *codes; /* (kept count * width), owned */
} coded;

/* Code the kept values.  Entries of a sparse selection that would be stored as zero are taken out
 * of `k`.  Errors: NOMEM. */
OMM_CHECKED omm_err code_values(coded *out, kept *k, omm_codec_kind kind, const omm_layout *layout,
                                const float *values);
void coded_fini(coded *c);
/* Append scales and codes.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err code_write(omm_buf *out, const coded *c, size_t bytes);

/* A payload whose codes were checked, and where its next value is.  Borrows its bytes. */
typedef struct code_reader {
    omm_codec_kind kind;
    const omm_layout *layout;
    bool is_sparse;
    size_t count;       /* entries */
    index_walk indices; /* behind `index` */
    size_t entry;       /* the next one */
    uint32_t index;     /* of it, where is_sparse and entry < count */
    size_t at;          /* values written */
    const uint8_t *scales, *codes;
    row_walk row; /* of the last value, with int8 */
    size_t row_count;
    float scale;
} code_reader;
/* Check what code_write wrote, `count` entries up to the end of `in`.
 * Errors: REFUSED_FORMAT, REFUSED_VALUE. */
OMM_CHECKED omm_err code_check(code_reader *out, omm_reader in, const index_walk *indices,
                               size_t count, omm_codec_kind kind, const omm_layout *layout);
/* Write the next n values, zeros where nothing was kept. */
void code_read(float *out, code_reader *r, size_t n);

/* frame.c: the payload in `sent`, which it borrows from, or from `room` where it had to be unpacked.
 * Errors: those of omm_codec_unpack. */
OMM_CHECKED omm_err frame_open(omm_bytes *payload, omm_buf *room, omm_bytes sent,
                               size_t payload_bytes_max);
/* `sent`, of which frame_open made `payload`, is read everywhere as it was here.  Errors: REFUSED_FORMAT. */
OMM_CHECKED omm_err frame_check_known(omm_bytes sent, omm_bytes payload);
/* frame_write.c: a zstd frame of the payload, the same on every machine, to be freed with omm_free; *out is
 * NULL where none is smaller than the payload itself.  Errors: NOMEM. */
OMM_CHECKED omm_err frame_write(uint8_t **out, size_t *size, omm_bytes payload);
/* The frame is that one; no memory is taken.  What frame_write does not write, because it is not smaller, never is. */
bool frame_is_ours(omm_bytes frame, omm_bytes payload);
/* A frame that libzstd reads has one segment, plain blocks and runs, and nothing else. */
bool frame_is_plain(omm_bytes frame);
/* omm_codec_pack, but `payload` is given back as soon as it is not needed any more. */
OMM_CHECKED omm_err frame_pack(omm_buf *sent, omm_buf *payload, uint32_t zstd_level);

#endif
