/* quant.h - weight matrices as the kernels want them: strips of 16 rows, in the file's own format.
 *
 *   strip s holds rows 16 s .. 16 s + 15, lane = row; rows beyond the last are zero
 *     F32    [cols_padded][16] f32                      cols_padded: cols rounded up to 16
 *     F16    [cols_padded][16] f16
 *     Q8_0   per 32 columns: [16] f16 scale, [8][16][4] i8
 *     Q4_0   per 32 columns: [16] f16 scale, [4][16][4] nibbles: byte j of group g holds column
 *            4g + j in its low half and column 16 + 4g + j in its high half, each plus 8
 *
 * One storage serves decode, prefill, forward and backward, on every instruction set, in as many
 * bytes as the GGUF has.  The value of a quantised element is scale * (float)q, one rounding.
 *
 * Source: ggml's block formats.  Depends on: err, mem, bytes.  Threads: read-only once packed.
 */
#ifndef OMM_QUANT_H
#define OMM_QUANT_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_STRIP 16u       /* rows in a strip */
#define OMM_QUANT_BLOCK 32u /* columns that share a scale in Q8_0 and Q4_0 */
#define OMM_MATRIX_DIM_MAX (1u << 24)

typedef enum omm_format {
    OMM_FORMAT_F32,
    OMM_FORMAT_F16,
    OMM_FORMAT_Q8_0,
    OMM_FORMAT_Q4_0,
    OMM_FORMAT_COUNT
} omm_format;

const char *omm_format_name(omm_format format); /* "Q8_0" */

typedef struct omm_matrix {
    omm_format format;
    uint32_t rows;        /* out_features */
    uint32_t cols;        /* in_features; a multiple of 32 for Q8_0 and Q4_0 */
    uint32_t cols_padded; /* columns stored */
    uint32_t strips;
    size_t strip_bytes;
    uint8_t *data; /* strips * strip_bytes, 64-byte aligned, owned */
} omm_matrix;

/* From GGUF rows (row major, `bytes` exactly as the format needs).  Release with omm_matrix_fini.
 * Errors: SIZE, TOO_BIG (a dimension over OMM_MATRIX_DIM_MAX or zero), FORMAT (columns no multiple
 * of the block), NUMERIC (a weight or scale is NaN or infinite; row and column named), NOMEM. */
OMM_CHECKED omm_err omm_matrix_pack(omm_matrix *out, omm_format format, uint32_t rows,
                                    uint32_t cols, omm_bytes bytes);
/* The same from f32 values in memory, for adapters. */
OMM_CHECKED omm_err omm_matrix_pack_f32(omm_matrix *out, uint32_t rows, uint32_t cols,
                                        const float *values);
void omm_matrix_fini(omm_matrix *matrix);

/* out[cols] = row `row`, dequantised.  row < rows. */
void omm_matrix_row(float *out, const omm_matrix *matrix, uint32_t row);

#endif
