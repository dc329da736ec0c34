/* rows.h - one row of a tensor, from any element type of the format to f32 and back: the plain C
 * definition that every fast kernel is tested against.
 *
 * A row is cols / block blocks, one after the other (ggml.c has block lengths and bytes).  What a
 * stored element is worth, each product and sum rounded once to f32 and never fused:
 *
 *   F32, F16, BF16                 the value itself
 *   Q4_0 Q5_0 Q8_0 TQ1_0 TQ2_0     d * (code - zero)               zero 8, 16, 0, 1, 1
 *   Q4_1 Q5_1                      d * code + m
 *   IQ4_NL                         d * table[code]
 *   Q2_K Q4_K Q5_K                 (d * scale) * code - (dmin * min)
 *   Q3_K Q6_K                      (d * scale) * (code - zero)     zero 4, 32
 *   IQ4_XS                         (d * scale) * table[code]
 *
 * d, m and dmin are halves widened exactly; scale and min are integers of 4 to 8 bits that 16 or 32
 * columns share.
 *
 * Source: the block layouts and reference (de)quantisation of ggml (ggml-common.h, ggml-quants.c).
 * Depends on: err, bytes, gguf.  Threads: no shared state.
 */
#ifndef OMM_ROWS_H
#define OMM_ROWS_H

#include "omm/err.h"
#include "omm/gguf.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes from one row to the next.  cols is a multiple of the type's block and below 2^40. */
size_t omm_rows_stride(omm_ggml_type type, size_t cols);

/* out[cols] = the values of a row of omm_rows_stride(type, cols) bytes, unaligned.  Bytes that hold
 * NaN or infinity give NaN or infinity: files go through omm_rows_check first. */
void omm_rows_dequantise(float *out, omm_ggml_type type, const uint8_t *row, size_t cols);

/* The first column whose value is NaN or infinite, `cols` when there is none.  Looks at scales and
 * minima only where the type has them: no finite ones can give a value beyond f32. */
size_t omm_rows_check(omm_ggml_type type, const uint8_t *row, size_t cols);

/* row[omm_rows_stride(type, cols)] = values[cols] in another type, always the same bytes.
 *
 *   F16, BF16                       to nearest even
 *   Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 TQ1_0 TQ2_0    the reference's rounding, byte for byte
 *   Q2_K .. Q6_K, IQ4_NL, IQ4_XS    a search of ours; errors beside the reference's:
 *                                   docs/measurements/files.md
 *
 * Errors: NUMERIC (a value is NaN or infinite, or too large for the type; names the columns); then
 * the content of `row` is not defined. */
OMM_CHECKED omm_err omm_rows_quantise(uint8_t *row, omm_ggml_type type, const float *values,
                                      size_t cols);

#endif
