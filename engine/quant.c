/* quant.c - packing GGUF rows into strips of 16. */
#include "omm/quant.h"

#include "omm/kernels.h"
#include "omm/mem.h"

#include <string.h>

#define Q8_BLOCK_BYTES 34u /* f16 scale, 32 x i8 */
#define Q4_BLOCK_BYTES 18u /* f16 scale, 16 bytes of nibbles */

static const char *const s_names[OMM_FORMAT_COUNT] = {"F32", "F16", "Q8_0", "Q4_0"};

const char *omm_format_name(omm_format format) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    return s_names[format];
}

bool omm_format_is_quantised(omm_format format) {
    return format == OMM_FORMAT_Q8_0 || format == OMM_FORMAT_Q4_0;
}

/* ---- layout ---------------------------------------------------------------------------------- */

static size_t row_bytes(omm_format format, uint32_t cols) {
    switch (format) {
    case OMM_FORMAT_F32: return (size_t)cols * 4;
    case OMM_FORMAT_F16: return (size_t)cols * 2;
    case OMM_FORMAT_Q8_0: return (size_t)cols / OMM_QUANT_BLOCK * Q8_BLOCK_BYTES;
    default: return (size_t)cols / OMM_QUANT_BLOCK * Q4_BLOCK_BYTES;
    }
}

static size_t block_stride(omm_format format) {
    return (size_t)OMM_STRIP * (format == OMM_FORMAT_Q8_0 ? Q8_BLOCK_BYTES : Q4_BLOCK_BYTES);
}

static omm_err shape_check(omm_format format, uint32_t rows, uint32_t cols) {
    if (rows == 0 || cols == 0 || rows > OMM_MATRIX_DIM_MAX || cols > OMM_MATRIX_DIM_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "matrix of %u x %u: each side must be 1 to %u", rows,
                         cols, OMM_MATRIX_DIM_MAX);
    if (omm_format_is_quantised(format) && cols % OMM_QUANT_BLOCK != 0)
        return omm_raise(OMM_ERR_FORMAT, "%u columns in %s: must be a multiple of %u", cols,
                         omm_format_name(format), OMM_QUANT_BLOCK);
    return OMM_OK;
}

static omm_err matrix_init(omm_matrix *m, omm_format format, uint32_t rows, uint32_t cols) {
    OMM_TRY(shape_check(format, rows, cols));
    *m = (omm_matrix){.format = format, .rows = rows, .cols = cols};
    m->cols_padded = (cols + OMM_STRIP - 1) / OMM_STRIP * OMM_STRIP;
    m->strips = (rows + OMM_STRIP - 1) / OMM_STRIP;
    m->strip_bytes = row_bytes(format, m->cols_padded) * OMM_STRIP;
    m->data = (uint8_t *)omm_alloc_aligned(m->strips, m->strip_bytes);
    if (!m->data)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a matrix of %u x %u %s", rows, cols,
                         omm_format_name(format));
    return OMM_OK;
}

static omm_err not_finite(const char *what, uint32_t row, uint32_t col) {
    return omm_raise(OMM_ERR_NUMERIC, "%s of row %u, column %u is not a finite number", what, row,
                     col);
}

static omm_err pack_row_f32(omm_matrix *m, uint32_t row, const uint8_t *from) {
    uint8_t *to = m->data + row / OMM_STRIP * m->strip_bytes + (size_t)row % OMM_STRIP * 4;
    for (uint32_t k = 0; k < m->cols; k++) {
        uint32_t bits = omm_get_u32(from + (size_t)k * 4);
        if ((bits & 0x7f800000u) == 0x7f800000u) return not_finite("weight", row, k);
        memcpy(to + (size_t)k * OMM_STRIP * 4, &bits, sizeof bits);
    }
    return OMM_OK;
}

static omm_err pack_row_f16(omm_matrix *m, uint32_t row, const uint8_t *from) {
    uint8_t *to = m->data + row / OMM_STRIP * m->strip_bytes + (size_t)row % OMM_STRIP * 2;
    for (uint32_t k = 0; k < m->cols; k++) {
        uint16_t h = omm_get_u16(from + (size_t)k * 2);
        if ((h & 0x7c00u) == 0x7c00u) return not_finite("weight", row, k);
        memcpy(to + (size_t)k * OMM_STRIP * 2, &h, sizeof h);
    }
    return OMM_OK;
}

/* Both block formats move four bytes at a time: [groups of 4][16 rows][4]. */
static omm_err pack_row_blocks(omm_matrix *m, uint32_t row, const uint8_t *from) {
    const size_t block = m->format == OMM_FORMAT_Q8_0 ? Q8_BLOCK_BYTES : Q4_BLOCK_BYTES;
    uint8_t *to = m->data + row / OMM_STRIP * m->strip_bytes;
    const size_t lane = row % OMM_STRIP;
    for (uint32_t b = 0; b < m->cols / OMM_QUANT_BLOCK; b++) {
        uint16_t scale = omm_get_u16(from);
        if ((scale & 0x7c00u) == 0x7c00u) return not_finite("scale", row, b * OMM_QUANT_BLOCK);
        memcpy(to + lane * 2, &scale, sizeof scale);
        for (size_t g = 0; g < (block - 2) / 4; g++)
            memcpy(to + (size_t)OMM_STRIP * 2 + (g * OMM_STRIP + lane) * 4, from + 2 + g * 4, 4);
        from += block;
        to += block_stride(m->format);
    }
    return OMM_OK;
}

static omm_err pack_rows(omm_matrix *m, const uint8_t *from) {
    const size_t bytes = row_bytes(m->format, m->cols);
    for (uint32_t row = 0; row < m->rows; row++, from += bytes) {
        if (m->format == OMM_FORMAT_F32)
            OMM_TRY(pack_row_f32(m, row, from));
        else if (m->format == OMM_FORMAT_F16)
            OMM_TRY(pack_row_f16(m, row, from));
        else
            OMM_TRY(pack_row_blocks(m, row, from));
    }
    return OMM_OK;
}

omm_err omm_matrix_pack(omm_matrix *out, omm_format format, uint32_t rows, uint32_t cols,
                        omm_bytes bytes) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    OMM_TRY(shape_check(format, rows, cols));
    if (bytes.size != row_bytes(format, cols) * rows)
        return omm_raise(OMM_ERR_SIZE, "%zu bytes for %u x %u %s: expected %zu", bytes.size, rows,
                         cols, omm_format_name(format), row_bytes(format, cols) * rows);
    omm_matrix m;
    OMM_TRY(matrix_init(&m, format, rows, cols));
    omm_err err = pack_rows(&m, bytes.data);
    if (err != OMM_OK) {
        omm_free(m.data);
        return err;
    }
    *out = m;
    return OMM_OK;
}

omm_err omm_matrix_pack_f32(omm_matrix *out, uint32_t rows, uint32_t cols, const float *values) {
    return omm_matrix_pack(out, OMM_FORMAT_F32, rows, cols,
                           omm_bytes_of(values, (size_t)rows * cols * sizeof *values));
}

void omm_matrix_fini(omm_matrix *matrix) {
    omm_free(matrix->data);
    *matrix = (omm_matrix){0};
}

/* ---- one row back ---------------------------------------------------------------------------- */

static uint16_t get_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static void row_blocks(float *out, const omm_matrix *m, const uint8_t *strip, size_t lane) {
    for (uint32_t b = 0; b < m->cols / OMM_QUANT_BLOCK; b++, out += OMM_QUANT_BLOCK) {
        const float d = omm_f16_to_f32(get_half(strip + lane * 2));
        const uint8_t *q = strip + (size_t)OMM_STRIP * 2 + lane * 4;
        for (size_t i = 0; i < OMM_QUANT_BLOCK; i++) {
            if (m->format == OMM_FORMAT_Q8_0) {
                out[i] = d * (float)(int8_t)q[i / 4 * OMM_STRIP * 4 + i % 4];
            } else {
                uint8_t v = q[i % 16 / 4 * OMM_STRIP * 4 + i % 4];
                out[i] = d * (float)((i < 16 ? v & 15 : v >> 4) - 8);
            }
        }
        strip += block_stride(m->format);
    }
}

void omm_matrix_row(float *out, const omm_matrix *matrix, uint32_t row) {
    OMM_ASSERT(row < matrix->rows);
    const uint8_t *strip = matrix->data + row / OMM_STRIP * matrix->strip_bytes;
    const size_t lane = row % OMM_STRIP;
    switch (matrix->format) {
    case OMM_FORMAT_F32:
        for (size_t k = 0; k < matrix->cols; k++)
            memcpy(out + k, strip + (k * OMM_STRIP + lane) * 4, sizeof *out);
        break;
    case OMM_FORMAT_F16:
        for (size_t k = 0; k < matrix->cols; k++)
            out[k] = omm_f16_to_f32(get_half(strip + (k * OMM_STRIP + lane) * 2));
        break;
    default: row_blocks(out, matrix, strip, lane); break;
    }
}

/* ---- activations in int8 --------------------------------------------------------------------- */

omm_err omm_q8_rows_init(omm_q8_rows *rows, size_t rows_max, size_t cols_max) {
    const size_t blocks = (cols_max + OMM_QUANT_BLOCK - 1) / OMM_QUANT_BLOCK;
    omm_q8_rows r = {.rows_max = rows_max, .cols_max = blocks * OMM_QUANT_BLOCK};
    r.q = (int8_t *)omm_alloc_aligned(rows_max, r.cols_max);
    r.d = (float *)omm_alloc(rows_max * blocks, sizeof *r.d);
    r.sum = (int32_t *)omm_alloc(rows_max * blocks, sizeof *r.sum);
    if (!r.q || !r.d || !r.sum) {
        omm_q8_rows_fini(&r);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu x %zu int8 activations", rows_max,
                         cols_max);
    }
    *rows = r;
    return OMM_OK;
}

void omm_q8_rows_fini(omm_q8_rows *rows) {
    omm_free(rows->q);
    omm_free(rows->d);
    omm_free(rows->sum);
    *rows = (omm_q8_rows){0};
}
