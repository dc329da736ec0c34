/* quant.h - weight matrices as the kernels want them: strips of 16 rows, in the file's own format.
 *
 *   strip s holds rows 16 s .. 16 s + 15, lane = row; rows beyond the last are zero
 *     F32          [cols_padded][16] f32                cols_padded: cols rounded up to 16
 *     F16, BF16    [cols_padded][16] of 16 bits
 *     quantised    blocks of 32 or 256 columns, each:
 *                  [16] f16 d                           scale
 *                  [16] f16 m                           Q4_1, Q5_1: minimum; Q2_K, Q4_K, Q5_K: dmin
 *                  [n][16] sub-scales of a byte         where the format has them, n sub-blocks
 *                  [n][16] sub-minima of a byte         Q4_K, Q5_K; Q2_K: in the high half above
 *                  for each 32 columns, bit planes, of groups g = 0 .. 7 of four columns:
 *                    8 bits  [8][16][4]                 byte j of group g: column 4 g + j
 *                    4 bits  [4][16][4]                 groups p (low half) and p + 4
 *                    2 bits  [2][16][4]                 groups p, p + 2, p + 4, p + 6, low bits first
 *                    1 bit   [1][16][4]                 groups 0 .. 7, low bits first
 *                  planes of a format in falling order hold its quants from the low bits up
 *
 * One storage serves decode, prefill, forward and backward, on every instruction set, in as many
 * bytes as the GGUF has (Q3_K, Q4_K, Q5_K, IQ4_XS 1 to 4 % more: 6-bit sub-scales take 8; TQ1_0 22 %
 * more, it is stored as TQ2_0).  Which planes a format has is in quant_layout.h.
 *
 * Values, each operation rounded once, q the signed quant (codebook value in IQ4):
 *     Q8_0 Q4_0 Q5_0 IQ4_NL TQ1_0 TQ2_0   d * q
 *     Q4_1 Q5_1                           d * q + m
 *     Q3_K Q6_K IQ4_XS                    (d * sub) * q
 *     Q2_K Q4_K Q5_K                      (d * sub) * q - dmin * sub_min
 *
 * Source: ggml's block formats.  Depends on: err, mem, bytes, pool.  Threads: read-only once packed.
 */
#ifndef OMM_QUANT_H
#define OMM_QUANT_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_STRIP 16u        /* rows in a strip */
#define OMM_QUANT_BLOCK 32u  /* columns that share a scale in Q8_0, Q4_0, ... */
#define OMM_QUANT_SUPER 256u /* the same in the K, IQ4_XS and TQ formats */
#define OMM_MATRIX_DIM_MAX (1u << 24)

typedef enum omm_format {
    OMM_FORMAT_F32,
    OMM_FORMAT_F16,
    OMM_FORMAT_Q8_0,
    OMM_FORMAT_Q4_0,
    OMM_FORMAT_BF16,
    OMM_FORMAT_Q4_1,
    OMM_FORMAT_Q5_0,
    OMM_FORMAT_Q5_1,
    OMM_FORMAT_IQ4_NL,
    OMM_FORMAT_Q2_K,
    OMM_FORMAT_Q3_K,
    OMM_FORMAT_Q4_K,
    OMM_FORMAT_Q5_K,
    OMM_FORMAT_Q6_K,
    OMM_FORMAT_IQ4_XS,
    OMM_FORMAT_TQ1_0,
    OMM_FORMAT_TQ2_0,
    OMM_FORMAT_COUNT
} omm_format;

const char *omm_format_name(omm_format format); /* "Q8_0" */
/* False when no format has that name. */
bool omm_format_find(omm_format *out, const char *name);
/* True for the formats that mode q8 multiplies as integers; F32, F16 and BF16 keep f32 activations. */
bool omm_format_is_quantised(omm_format format);
/* Columns that share a scale: 32 or 256; 1 for F32, F16 and BF16. */
uint32_t omm_format_block(omm_format format);
/* Bytes of a row of `cols` columns in a GGUF file.  cols is a multiple of the block. */
size_t omm_format_row_bytes(omm_format format, uint32_t cols);

typedef struct omm_matrix {
    omm_format format;
    uint32_t rows;        /* out_features */
    uint32_t cols;        /* in_features; a multiple of the format's block */
    uint32_t cols_padded; /* columns stored */
    uint32_t strips;
    size_t strip_bytes;
    uint8_t *data; /* strips * strip_bytes, 64-byte aligned, owned unless borrowed */
    bool borrowed; /* of a map: only to be read */
} omm_matrix;

/* Of its data. */
static inline size_t omm_matrix_bytes(const omm_matrix *m) {
    return m->strips * m->strip_bytes;
}

/* From GGUF rows (row major, `bytes` exactly as the format needs).  Release with omm_matrix_fini.
 * Errors: SIZE, TOO_BIG (a dimension over OMM_MATRIX_DIM_MAX or zero), FORMAT (columns no multiple
 * of the block), NUMERIC (a weight or scale is NaN or infinite; row and column named), NOMEM. */
OMM_CHECKED omm_err omm_matrix_pack(omm_matrix *out, omm_format format, uint32_t rows,
                                    uint32_t cols, omm_bytes bytes);
/* The same, cut among the threads of `pool` (NULL: this thread alone). */
OMM_CHECKED omm_err omm_matrix_pack_with(omm_matrix *out, omm_pool *pool, omm_format format,
                                         uint32_t rows, uint32_t cols, omm_bytes bytes);
/* The same into m->data, which has omm_matrix_bytes(m) bytes of whatever content; the rest of m
 * as omm_matrix_outline makes it.  Errors: SIZE, NUMERIC; then the content is not defined. */
OMM_CHECKED omm_err omm_matrix_pack_into(omm_matrix *m, omm_pool *pool, omm_bytes bytes);
/* The same from f32 values in memory, for adapters. */
OMM_CHECKED omm_err omm_matrix_pack_f32(omm_matrix *out, uint32_t rows, uint32_t cols,
                                        const float *values);
/* Its shape alone, with data NULL: what packing would make.  Errors: TOO_BIG, FORMAT. */
OMM_CHECKED omm_err omm_matrix_outline(omm_matrix *out, omm_format format, uint32_t rows,
                                       uint32_t cols);
void omm_matrix_fini(omm_matrix *matrix);

/* out[cols] = row `row`, dequantised.  row < rows. */
void omm_matrix_row(float *out, const omm_matrix *matrix, uint32_t row);

#endif
