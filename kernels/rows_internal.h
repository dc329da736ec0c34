/* rows_internal.h - how a block of each quantised type lies in memory, in one table.
 *
 * Codes (the small integers that stand for elements) lie in bit planes.  In a plane of `bits` bits
 * and run length `run`, `run` bytes hold run * 8 / bits elements: byte i has elements i, i + run,
 * i + 2 run, ... in ascending bits.  A type has one or two planes; the second gives high bits.
 */
#ifndef ENGINE_ROWS_INTERNAL_H
#define ENGINE_ROWS_INTERNAL_H

#include "omm/rows.h"

enum { ROWS_BLOCK_MAX = 256, ROWS_SUBS_MAX = 16, ROWS_NONE = 255 };

typedef struct rows_plane {
    uint8_t at;    /* byte of the block where it begins */
    uint8_t bits;  /* of one element; 0: no such plane */
    uint8_t run;   /* bytes in a run */
    uint8_t shift; /* where its bits go in the code */
} rows_plane;

typedef struct rows_layout {
    omm_ggml_type type;
    uint16_t block; /* columns and bytes of a block, as omm_ggml_find has them */
    uint16_t bytes;
    uint8_t d_at;        /* f16 scale of the block */
    uint8_t min_at;      /* f16: m of Q4_1 and Q5_1, dmin of Q2_K, Q4_K and Q5_K; ROWS_NONE */
    uint8_t sub;         /* columns that share a scale; 0: there are no sub-blocks */
    uint8_t zero;        /* the code of value 0 where there is neither minimum nor table */
    uint8_t levels;      /* codes written are 0 .. levels - 1; 0 stands for 256 */
    const int8_t *table; /* value of each code, or NULL */
    rows_plane planes[2];
} rows_layout;

/* A block taken apart. */
typedef struct rows_block {
    uint16_t d, dmin;              /* f16 */
    int16_t scales[ROWS_SUBS_MAX]; /* as it multiplies: Q3_K and IQ4_XS have 32 taken off */
    uint8_t mins[ROWS_SUBS_MAX];
    uint8_t codes[ROWS_BLOCK_MAX];
} rows_block;

/* NULL for F32, F16 and BF16. */
const rows_layout *rows_layout_of(omm_ggml_type type);

void rows_unpack(rows_block *out, const rows_layout *layout, const uint8_t *from);
/* The inverse.  Codes, scales and minima must be in the type's range. */
void rows_pack(uint8_t *to, const rows_layout *layout, const rows_block *block);

/* out[block] = the values of a block, by the formulas of rows.h. */
void rows_values(float *out, const rows_layout *layout, const rows_block *block);

/* Fill a block of Q2_K .. Q6_K, IQ4_NL or IQ4_XS so that its weighted squared error is small.
 * x[block] finite.  Errors: NUMERIC (a value over 65504). */
OMM_CHECKED omm_err rows_fit(rows_block *out, const rows_layout *layout, const float *x);

#endif
