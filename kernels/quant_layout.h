/* quant_layout.h - what each quantised format is made of; packing and kernels follow this table.
 *
 * A new format is a row here, a reader of its GGUF block in quant_blocks.c, and its name.
 * Layout of the strips: omm/quant.h.
 */
#ifndef ENGINE_QUANT_LAYOUT_H
#define ENGINE_QUANT_LAYOUT_H

#include "omm/quant.h"

/* How the bytes of sub-scales are read. */
typedef enum quant_subs {
    QUANT_SUBS_NONE,
    QUANT_SUBS_SIGNED,  /* int8 scale */
    QUANT_SUBS_MINIMA,  /* uint8 scales, then uint8 minima */
    QUANT_SUBS_NIBBLES, /* scale in the low half, minimum in the high half */
} quant_subs;

#define QUANT_PLANE_8 8u
#define QUANT_PLANE_4 4u
#define QUANT_PLANE_2 2u
#define QUANT_PLANE_1 1u

typedef struct quant_layout {
    uint16_t block;  /* columns that share d; 0: not quantised */
    uint16_t sub;    /* columns that share a sub-scale; else the block */
    uint8_t planes;  /* QUANT_PLANE_*; their sum is the bits of a stored quant */
    uint8_t bias;    /* a stored quant is q + bias; 8-bit planes hold q itself */
    uint8_t subs;    /* quant_subs */
    uint8_t has_min; /* a second f16 after d */
    uint8_t table;   /* quants are indices of QUANT_IQ4 */
    uint8_t bytes;   /* of a block in a GGUF file */
} quant_layout;

/* clang-format off */
static const quant_layout QUANT_LAYOUT[OMM_FORMAT_COUNT] = {
    /*                     block sub planes                          bias subs            min table bytes */
    [OMM_FORMAT_Q8_0]   = {32,  32,  QUANT_PLANE_8,                  0,  QUANT_SUBS_NONE,    0, 0, 34},
    [OMM_FORMAT_Q4_0]   = {32,  32,  QUANT_PLANE_4,                  8,  QUANT_SUBS_NONE,    0, 0, 18},
    [OMM_FORMAT_Q4_1]   = {32,  32,  QUANT_PLANE_4,                  0,  QUANT_SUBS_NONE,    1, 0, 20},
    [OMM_FORMAT_Q5_0]   = {32,  32,  QUANT_PLANE_4 + QUANT_PLANE_1,  16, QUANT_SUBS_NONE,    0, 0, 22},
    [OMM_FORMAT_Q5_1]   = {32,  32,  QUANT_PLANE_4 + QUANT_PLANE_1,  0,  QUANT_SUBS_NONE,    1, 0, 24},
    [OMM_FORMAT_IQ4_NL] = {32,  32,  QUANT_PLANE_4,                  0,  QUANT_SUBS_NONE,    0, 1, 18},
    [OMM_FORMAT_Q2_K]   = {256, 16,  QUANT_PLANE_2,                  0,  QUANT_SUBS_NIBBLES, 1, 0, 84},
    [OMM_FORMAT_Q3_K]   = {256, 16,  QUANT_PLANE_2 + QUANT_PLANE_1,  4,  QUANT_SUBS_SIGNED,  0, 0, 110},
    [OMM_FORMAT_Q4_K]   = {256, 32,  QUANT_PLANE_4,                  0,  QUANT_SUBS_MINIMA,  1, 0, 144},
    [OMM_FORMAT_Q5_K]   = {256, 32,  QUANT_PLANE_4 + QUANT_PLANE_1,  0,  QUANT_SUBS_MINIMA,  1, 0, 176},
    [OMM_FORMAT_Q6_K]   = {256, 16,  QUANT_PLANE_4 + QUANT_PLANE_2,  32, QUANT_SUBS_SIGNED,  0, 0, 210},
    [OMM_FORMAT_IQ4_XS] = {256, 32,  QUANT_PLANE_4,                  0,  QUANT_SUBS_SIGNED,  0, 1, 136},
    [OMM_FORMAT_TQ1_0]  = {256, 256, QUANT_PLANE_2,                  1,  QUANT_SUBS_NONE,    0, 0, 54},
    [OMM_FORMAT_TQ2_0]  = {256, 256, QUANT_PLANE_2,                  1,  QUANT_SUBS_NONE,    0, 0, 66},
};
/* clang-format on */

/* The codebook of IQ4_NL and IQ4_XS.  Source: ggml, kvalues_iq4nl. */
static const int8_t QUANT_IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

/* Bytes, and offsets from the start of a block of 16 rows. */
static inline size_t quant_subs_at(const quant_layout *l) {
    return (size_t)OMM_STRIP * 2 * (1u + l->has_min);
}
static inline size_t quant_subs_bytes(const quant_layout *l) { /* scales alone, or with minima */
    const size_t one = l->subs == QUANT_SUBS_NONE ? 0 : (size_t)l->block / l->sub * OMM_STRIP;
    return l->subs == QUANT_SUBS_MINIMA ? 2 * one : one;
}
static inline size_t quant_planes_at(const quant_layout *l) {
    return quant_subs_at(l) + quant_subs_bytes(l);
}
static inline size_t quant_chunk_bytes(const quant_layout *l) { /* 32 columns of planes */
    return (size_t)l->planes * 64;
}
static inline size_t quant_block_bytes(const quant_layout *l) {
    return quant_planes_at(l) + l->block / OMM_QUANT_BLOCK * quant_chunk_bytes(l);
}

/* Packs a block of up to 16 rows, row i's at from + i * stride, into a block of a strip, which is zero
 * before.  Returns the first row whose scale or minimum is not finite; `rows`: there is none. */
typedef size_t (*quant_packer)(uint8_t *to, const uint8_t *from, size_t stride, size_t rows);
/* NULL for F32, F16, BF16. */
quant_packer quant_packer_of(omm_format format);

#endif
