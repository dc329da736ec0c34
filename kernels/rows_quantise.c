/* rows_quantise.c - f32 rows into every element type.
 *
 * The types whose reference rounding is one formula (the first function of each group below) get the
 * reference's bytes: the scale is computed and inverted in f32, elements are rounded against that
 * scale, and only then is it narrowed to f16.  The others are fitted (rows_fit.c).
 */
#include "rows_internal.h"

#include "omm/bytes.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- plain floats ---------------------------------------------------------------------------- */

/* To nearest even. */
static uint16_t f32_to_bf16(float v) {
    uint8_t bytes[4];
    omm_put_f32(bytes, v);
    const uint32_t bits = omm_get_u32(bytes);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static omm_err too_large(const char *name, size_t column, float v) {
    return omm_raise(OMM_ERR_NUMERIC, "column %zu: %g is too large for %s", column,
                     omm_nan_plain((double)v), name);
}

static omm_err put_floats(uint8_t *row, omm_ggml_type type, const float *values, size_t cols) {
    for (size_t i = 0; i < cols; i++) {
        if (type == OMM_GGML_F32) {
            omm_put_f32(row + 4 * i, values[i]);
            continue;
        }
        const bool half = type == OMM_GGML_F16;
        const uint16_t h = half ? omm_f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        const uint16_t exponent = half ? 0x7c00u : 0x7f80u;
        if ((h & exponent) == exponent) return too_large(half ? "F16" : "BF16", i, values[i]);
        omm_put_u16(row + 2 * i, h);
    }
    return OMM_OK;
}

/* ---- one scale, elements rounded to its multiples -------------------------------------------- */

/* 1 / d, or 0 where d is 0 or so small that this overflows: such a d is 0 in f16. */
static float inverse(float d) {
    const float id = d != 0.0f ? 1.0f / d : 0.0f;
    return isfinite(id) ? id : 0.0f;
}

/* The value of largest magnitude, the first of equals; 0 for a row of zeros. */
static float extreme(const float *x, size_t n) {
    float largest = 0.0f, at = 0.0f;
    for (size_t i = 0; i < n; i++)
        if (largest < fabsf(x[i])) {
            largest = fabsf(x[i]);
            at = x[i];
        }
    return at;
}

/* To nearest, halves away from zero.  |v| < 2^23. */
static int round_away(float v) {
    const int whole = (int)v;
    const float rest = v - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Q8_0, TQ1_0, TQ2_0: codes -top .. top, halves away from zero. */
static float put_symmetric(rows_block *b, const rows_layout *layout, const float *x) {
    const float top = layout->type == OMM_GGML_Q8_0 ? 127.0f : 1.0f;
    const float d = fabsf(extreme(x, layout->block)) / top;
    const float id = inverse(d);
    for (size_t i = 0; i < layout->block; i++)
        b->codes[i] = (uint8_t)(round_away(x[i] * id) + layout->zero);
    return d;
}

/* Q4_0, Q5_0: the extreme value gets code 0, whatever its sign; halves upwards. */
static float put_offset(rows_block *b, const rows_layout *layout, const float *x) {
    const float d = extreme(x, layout->block) / -(float)layout->zero;
    const float id = inverse(d);
    for (size_t i = 0; i < layout->block; i++) {
        const int code = (int)(x[i] * id + ((float)layout->zero + 0.5f));
        b->codes[i] = (uint8_t)(code < layout->levels ? code : layout->levels - 1);
    }
    return d;
}

/* Q4_1, Q5_1: from the least value to the largest; halves upwards. */
static float put_affine(rows_block *b, float *least, const rows_layout *layout, const float *x) {
    float min = FLT_MAX, max = -FLT_MAX;
    for (size_t i = 0; i < layout->block; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    const float d = (max - min) / (float)(layout->levels - 1);
    const float id = inverse(d);
    for (size_t i = 0; i < layout->block; i++) {
        const int code = isfinite(d) ? (int)((x[i] - min) * id + 0.5f) : 0;
        b->codes[i] = (uint8_t)(code < layout->levels ? code : layout->levels - 1);
    }
    *least = min;
    return d;
}

static omm_err put_block(rows_block *b, const rows_layout *layout, const float *x) {
    float d = 0.0f, least = 0.0f;
    switch (layout->type) {
    case OMM_GGML_Q4_0:
    case OMM_GGML_Q5_0: d = put_offset(b, layout, x); break;
    case OMM_GGML_Q4_1:
    case OMM_GGML_Q5_1: d = put_affine(b, &least, layout, x); break;
    case OMM_GGML_Q8_0:
    case OMM_GGML_TQ1_0:
    case OMM_GGML_TQ2_0: d = put_symmetric(b, layout, x); break;
    default: return rows_fit(b, layout, x);
    }
    b->d = omm_f32_to_f16(d);
    b->dmin = omm_f32_to_f16(least);
    if ((b->d & 0x7c00u) == 0x7c00u)
        return omm_raise(OMM_ERR_NUMERIC, "the scale %g does not fit into f16",
                         omm_nan_plain((double)d));
    if ((b->dmin & 0x7c00u) == 0x7c00u)
        return omm_raise(OMM_ERR_NUMERIC, "the minimum %g does not fit into f16",
                         omm_nan_plain((double)least));
    return OMM_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static omm_err put_blocks(uint8_t *row, const rows_layout *layout, const float *values,
                          size_t cols) {
    for (size_t i = 0; i < cols; i += layout->block, row += layout->bytes) {
        rows_block block = {0};
        omm_err err = put_block(&block, layout, values + i);
        if (err != OMM_OK)
            return omm_raise(err, "columns %zu to %zu in %s: %s", i, i + layout->block - 1,
                             omm_ggml_find(layout->type)->name, omm_err_sentence());
        rows_pack(row, layout, &block);
    }
    return OMM_OK;
}

omm_err omm_rows_quantise(uint8_t *row, omm_ggml_type type, const float *values, size_t cols) {
    OMM_ASSERT(omm_rows_stride(type, cols) > 0 || cols == 0);
    for (size_t i = 0; i < cols; i++)
        if (!isfinite(values[i]))
            return omm_raise(OMM_ERR_NUMERIC, "column %zu is not a finite number", i);
    const rows_layout *layout = rows_layout_of(type);
    return layout ? put_blocks(row, layout, values, cols) : put_floats(row, type, values, cols);
}
