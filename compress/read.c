/* read.c - codes back to values: all of a payload is checked in one pass, then the values are written in
 * ascending order, as many at a time as the caller has room for.
 *
 * Nothing is kept of the payload but where the next entry is, so that decoding takes no memory: indices
 * are walked once for each pass.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

static float float_at(const uint8_t *codes, size_t i, omm_codec_kind kind) {
    return kind == OMM_CODEC_NONE ? omm_get_f32(codes + 4 * i)
                                  : omm_f16_to_f32(omm_get_u16(codes + 2 * i));
}

static int code_at(const uint8_t *codes, size_t i) {
    return codes[i] < 128 ? codes[i] : codes[i] - 256;
}

static uint32_t scale_bits(const uint8_t *scales, size_t row) {
    const uint8_t *p = scales + row * CODE_SCALE_BYTES;
    return ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16) << 8;
}

/* On to the row that holds `index`, which is not behind us. */
static void row_seek(row_walk *w, size_t index) {
    while (w->end <= index) {
        const bool more = row_next(w);
        OMM_ASSERT(more);
    }
}

/* ---- the checks ------------------------------------------------------------------------------- */

static omm_err ends_elsewhere(const omm_reader *in, size_t count) {
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "%zu bytes, %zu entries end elsewhere", in->in.size,
                     count);
}

/* f32 or f16: finite, in range, +0 only where zeros are stored. */
static omm_err check_floats(code_reader *r, omm_reader in) {
    r->codes = omm_read_bytes(&in, r->count * code_width(r->kind)).data;
    if (in.failed || in.at != in.in.size) return ends_elsewhere(&in, r->count);
    for (size_t i = 0; i < r->count; i++) {
        const float v = float_at(r->codes, i, r->kind);
        if (!(fabsf(v) <= OMM_CODEC_VALUE_MAX))
            return omm_raise(OMM_ERR_REFUSED_VALUE, "entry %zu is not finite or over %g", i,
                             (double)OMM_CODEC_VALUE_MAX);
        if (v == 0.0f && (r->is_sparse || omm_f32_to_bits(v) != 0))
            return omm_raise(OMM_ERR_REFUSED_FORMAT, "entry %zu is a zero that must not be there",
                             i);
    }
    return OMM_OK;
}

/* Scale of row `row`.  0 is for rows of a dense payload. */
static omm_err check_scale(float *scale, const code_reader *r, size_t row) {
    const uint32_t bits = scale_bits(r->scales, row);
    *scale = omm_f32_of_bits(bits);
    if (bits == 0 && !r->is_sparse) return OMM_OK;
    if (!(*scale * 127.0f >= OMM_CODEC_ROW_MIN && *scale * 127.0f <= OMM_CODEC_VALUE_MAX))
        return omm_raise(OMM_ERR_REFUSED_VALUE, "scale %zu is out of range", row);
    return OMM_OK;
}

/* |q| <= 127, reached where the scale is not 0. */
static omm_err check_largest(int q_max, float scale, size_t entry) {
    if (q_max == (scale == 0.0f ? 0 : 127)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "row of entry %zu: largest code is %d", entry, q_max);
}

/* In a loop that the compiler turns into vectors. */
static int largest_code(const uint8_t *codes, size_t n) {
    int q_max = 0;
    for (size_t i = 0; i < n; i++) {
        int q = code_at(codes, i);
        int magnitude = q < 0 ? -q : q;
        q_max = magnitude > q_max ? magnitude : q_max;
    }
    return q_max;
}

static omm_err check_rows_dense(const code_reader *r) {
    row_walk w = {.layout = r->layout};
    for (size_t row = 0; row_next(&w); row++) {
        float scale;
        OMM_TRY(check_scale(&scale, r, row));
        OMM_TRY(check_largest(largest_code(r->codes + w.first, w.end - w.first), scale, w.first));
    }
    return OMM_OK;
}

/* `rows`: those that keep something, each of which has a scale.  Stops at the first fault, and at the first row that has
 * no scale left. */
static omm_err check_rows_sparse(size_t *rows, const code_reader *r, size_t scale_count) {
    row_walk w = {.layout = r->layout};
    index_walk indices = r->indices;
    size_t row = 0;
    size_t first = 0; /* entry of the row */
    float scale = 0;
    int q_max = 0;
    *rows = 0;
    for (size_t i = 0; i < r->count; i++) {
        const uint32_t index = index_next(&indices);
        if (index >= w.end) {
            if (i > 0) OMM_TRY(check_largest(q_max, scale, first));
            *rows = row + 1;
            if (row == scale_count) return OMM_OK;
            row_seek(&w, index);
            OMM_TRY(check_scale(&scale, r, row++));
            first = i;
            q_max = 0;
        }
        const int q = code_at(r->codes, i);
        if (q == 0) return omm_raise(OMM_ERR_REFUSED_FORMAT, "entry %zu keeps a zero", i);
        q_max = q > q_max ? q : -q > q_max ? -q : q_max;
    }
    return r->count > 0 ? check_largest(q_max, scale, first) : OMM_OK;
}

/* Rows that keep something. */
static size_t rows_kept(const code_reader *r) {
    row_walk w = {.layout = r->layout};
    index_walk indices = r->indices;
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) {
        const uint32_t index = index_next(&indices);
        if (index < w.end) continue;
        row_seek(&w, index);
        count++;
    }
    return count;
}

static omm_err check_dense(code_reader *r, omm_reader in) {
    r->scales = omm_read_bytes(&in, omm_layout_rows(r->layout) * CODE_SCALE_BYTES).data;
    r->codes = omm_read_bytes(&in, r->count).data;
    if (in.failed || in.at != in.in.size) return ends_elsewhere(&in, r->count);
    return check_rows_dense(r);
}

/* How many scales there are follows from the size; that it is right is known when the rows were gone through. */
static omm_err check_sparse(code_reader *r, omm_reader in) {
    const size_t left = in.in.size - in.at;
    if (left < r->count) return ends_elsewhere(&in, r->count);
    const size_t bytes = left - r->count;
    const size_t scale_count = bytes / CODE_SCALE_BYTES;
    size_t rows;
    r->scales = omm_read_bytes(&in, bytes).data;
    r->codes = omm_read_bytes(&in, r->count).data;
    const omm_err err = check_rows_sparse(&rows, r, scale_count);
    if (err == OMM_OK && rows * CODE_SCALE_BYTES == bytes) return OMM_OK;
    return rows_kept(r) * CODE_SCALE_BYTES == bytes ? err : ends_elsewhere(&in, r->count);
}

omm_err code_check(code_reader *out, omm_reader in, const index_walk *indices, size_t count,
                   omm_codec_kind kind, const omm_layout *layout) {
    *out = (code_reader){.kind = kind,
                         .layout = layout,
                         .is_sparse = indices->coding != INDEX_ALL,
                         .count = count,
                         .indices = *indices,
                         .row = {.layout = layout}};
    if (kind != OMM_CODEC_INT8) {
        OMM_TRY(check_floats(out, in));
    } else {
        OMM_TRY(out->is_sparse ? check_sparse(out, in) : check_dense(out, in));
    }
    if (out->is_sparse && count > 0) out->index = index_next(&out->indices);
    return OMM_OK;
}

/* ---- the values ------------------------------------------------------------------------------- */

/* The row that holds `index`, and its scale, which is the next one. */
static void enter_row(code_reader *r, size_t index) {
    row_seek(&r->row, index);
    r->scale = omm_f32_of_bits(scale_bits(r->scales, r->row_count++));
}

static void read_dense_floats(float *restrict out, const code_reader *r, size_t n) {
    const uint8_t *codes = r->codes + r->at * code_width(r->kind);
    for (size_t i = 0; i < n; i++) out[i] = float_at(codes, i, r->kind);
}

static void scale_codes(float *restrict out, const uint8_t *restrict codes, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) out[i] = (float)code_at(codes, i) * scale;
}

static void read_dense_int8(float *out, code_reader *r, size_t n) {
    const size_t end = r->at + n;
    for (size_t at = r->at; at < end;) {
        if (at >= r->row.end) enter_row(r, at);
        const size_t stop = r->row.end < end ? r->row.end : end;
        scale_codes(out + (at - r->at), r->codes + at, stop - at, r->scale);
        at = stop;
    }
}

static void read_sparse(float *out, code_reader *r, size_t n) {
    memset(out, 0, n * sizeof *out);
    for (; r->entry < r->count && r->index < r->at + n; r->entry++) {
        float *value = &out[r->index - r->at];
        if (r->kind == OMM_CODEC_INT8) {
            if (r->index >= r->row.end) enter_row(r, r->index);
            *value = (float)code_at(r->codes, r->entry) * r->scale;
        } else {
            *value = float_at(r->codes, r->entry, r->kind);
        }
        if (r->entry + 1 < r->count) r->index = index_next(&r->indices);
    }
}

void code_read(float *out, code_reader *r, size_t n) {
    OMM_ASSERT(n <= r->layout->value_count - r->at);
    if (r->is_sparse)
        read_sparse(out, r, n);
    else if (r->kind == OMM_CODEC_INT8)
        read_dense_int8(out, r, n);
    else
        read_dense_floats(out, r, n);
    r->at += n;
}
