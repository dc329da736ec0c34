/* rows.c - rows of every element type: size, values, the first value that is not finite. */
#include "rows_internal.h"

#include "omm/bytes.h"

#include <string.h>

static const omm_ggml_info *info_of(omm_ggml_type type, size_t cols) {
    const omm_ggml_info *info = omm_ggml_find((uint32_t)type);
    OMM_ASSERT(info != NULL);
    OMM_ASSERT(cols % info->block == 0);
    OMM_ASSERT(cols >> 40 == 0);
    return info;
}

size_t omm_rows_stride(omm_ggml_type type, size_t cols) {
    const omm_ggml_info *info = info_of(type, cols);
    return cols / info->block * info->bytes;
}

static float bf16_to_f32(uint16_t h) {
    uint8_t bytes[4];
    omm_put_u32(bytes, (uint32_t)h << 16);
    return omm_get_f32(bytes);
}

void omm_rows_dequantise(float *out, omm_ggml_type type, const uint8_t *row, size_t cols) {
    const omm_ggml_info *info = info_of(type, cols);
    const rows_layout *layout = rows_layout_of(type);
    if (type == OMM_GGML_F32)
        for (size_t i = 0; i < cols; i++) out[i] = omm_get_f32(row + 4 * i);
    else if (type == OMM_GGML_F16)
        for (size_t i = 0; i < cols; i++) out[i] = omm_f16_to_f32(omm_get_u16(row + 2 * i));
    else if (type == OMM_GGML_BF16)
        for (size_t i = 0; i < cols; i++) out[i] = bf16_to_f32(omm_get_u16(row + 2 * i));
    else
        for (size_t i = 0; i < cols; i += info->block, row += info->bytes) {
            rows_block block;
            rows_unpack(&block, layout, row);
            rows_values(out + i, layout, &block);
        }
}

/* ---- finite or not --------------------------------------------------------------------------- */

static bool f16_is_finite(const uint8_t *at) {
    return (omm_get_u16(at) & 0x7c00u) != 0x7c00u;
}

static bool element_is_finite(omm_ggml_type type, const uint8_t *at) {
    if (type == OMM_GGML_F32) return (omm_get_u32(at) & 0x7f800000u) != 0x7f800000u;
    if (type == OMM_GGML_F16) return f16_is_finite(at);
    return (omm_get_u16(at) & 0x7f80u) != 0x7f80u;
}

/* An infinite scale times code 0 is NaN, so a block with a bad scale is bad from its first column. */
static bool block_is_finite(const rows_layout *layout, const uint8_t *at) {
    return f16_is_finite(at + layout->d_at) &&
           (layout->min_at == ROWS_NONE || f16_is_finite(at + layout->min_at));
}

size_t omm_rows_check(omm_ggml_type type, const uint8_t *row, size_t cols) {
    const omm_ggml_info *info = info_of(type, cols);
    const rows_layout *layout = rows_layout_of(type);
    for (size_t i = 0; i < cols; i += info->block, row += info->bytes) {
        bool finite = layout ? block_is_finite(layout, row) : element_is_finite(type, row);
        if (!finite) return i;
    }
    return cols;
}
