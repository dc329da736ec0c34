/* internal.h - the steps of a codec, each in a file of its own.
 *
 *   keep.c   which entries are kept, and how their indices are written
 *   code.c   how kept values are written: f32, f16, int8 with a scale per row
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
/* Read k->count indices below n into k->indices (there is room).
 * Errors: REFUSED_FORMAT, REFUSED_SHAPE. */
OMM_CHECKED omm_err index_read(kept *k, omm_reader *in, index_coding coding, size_t n);

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
/* Read what code_write wrote, up to the end of `in`; values go to `out`, or nowhere when NULL.
 * Errors: REFUSED_FORMAT, REFUSED_VALUE. */
OMM_CHECKED omm_err code_read(float *out, omm_reader in, const kept *k, omm_codec_kind kind,
                              const omm_layout *layout);

#endif
