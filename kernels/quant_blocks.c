/* quant_blocks.c - blocks of the quantised GGUF formats, taken apart and packed into strips.
 *
 * Words are little-endian, four quants in ascending columns to a word, so that most of the work is
 * done on four at once.  Source: ggml's block formats (FORMATS in docs; ggml-common.h).
 */
#include "quant_layout.h"

#include <string.h>

/* One block of one row: quants as stored (q + bias), four to a word in ascending columns from the low
 * byte.  Readers fill what their format has. */
typedef struct quant_block {
    uint16_t d, m;    /* f16 bits */
    uint8_t subs[32]; /* as they lie in a strip: scales, then minima */
    uint32_t quants[64];
} quant_block;

typedef void (*quant_reader)(quant_block *out, const uint8_t *from);

/* Little-endian; inline, for these are most of loading a model. */
static inline uint32_t word_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint16_t half_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

#define LOW_HALVES 0x0f0f0f0fu
#define PAIRS 0x03030303u
#define ONES 0x01010101u

/* Bits 0 .. 3 of `bits`, one to a byte. */
static uint32_t spread_bits(uint32_t bits) {
    return ((bits & 15u) * 0x00204081u) & ONES;
}

/* 16 bytes of halves: columns 0 .. 15 in the low ones, 16 .. 31 in the high ones. */
static void halves_of_32(uint32_t q[8], const uint8_t *from) {
    for (size_t i = 0; i < 4; i++) {
        const uint32_t w = word_at(from + 4 * i);
        q[i] = w & LOW_HALVES;
        q[4 + i] = (w >> 4) & LOW_HALVES;
    }
}

static void read_q8_0(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    for (size_t i = 0; i < 8; i++) out->quants[i] = word_at(from + 2 + 4 * i);
}

/* Q4_0 and IQ4_NL. */
static void read_q4_0(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    halves_of_32(out->quants, from + 2);
}

static void read_q4_1(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    out->m = half_at(from + 2);
    halves_of_32(out->quants, from + 4);
}

static void fifth_bits(uint32_t q[8], uint32_t bits) {
    for (size_t i = 0; i < 8; i++) q[i] |= spread_bits(bits >> 4 * i) << 4;
}

static void read_q5_0(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    halves_of_32(out->quants, from + 6);
    fifth_bits(out->quants, word_at(from + 2));
}

static void read_q5_1(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    out->m = half_at(from + 2);
    halves_of_32(out->quants, from + 8);
    fifth_bits(out->quants, word_at(from + 4));
}

/* 64 bytes of pairs of bits: each 32 bytes hold 4 x 32 columns, the low bits first. */
static void pairs_of_256(uint32_t q[64], const uint8_t *from) {
    for (size_t n = 0; n < 2; n++)
        for (size_t i = 0; i < 8; i++) {
            const uint32_t w = word_at(from + 32 * n + 4 * i);
            for (size_t j = 0; j < 4; j++) q[32 * n + 8 * j + i] = (w >> 2 * j) & PAIRS;
        }
}

static void read_q2_k(quant_block *out, const uint8_t *from) {
    memcpy(out->subs, from, 16);
    pairs_of_256(out->quants, from + 16);
    out->d = half_at(from + 80);
    out->m = half_at(from + 82);
}

static void read_q3_k(quant_block *out, const uint8_t *from) {
    const uint8_t *scales = from + 96;
    pairs_of_256(out->quants, from + 32);
    for (size_t i = 0; i < 8; i++) {
        const uint32_t high = word_at(from + 4 * i);
        for (size_t c = 0; c < 8; c++) out->quants[8 * c + i] |= (high >> c & ONES) << 2;
    }
    for (size_t i = 0; i < 16; i++) {
        const unsigned low = i < 8 ? scales[i] & 15u : (unsigned)scales[i - 8] >> 4;
        const unsigned high = (unsigned)scales[8 + i % 4] >> 2 * (i / 4) & 3u;
        out->subs[i] = (uint8_t)((low | high << 4) - 32u);
    }
    out->d = half_at(from + 108);
}

/* Twelve bytes hold eight 6-bit scales and eight 6-bit minima. */
static void scales_of_k(uint8_t subs[16], const uint8_t *from) {
    for (size_t j = 0; j < 4; j++) {
        const unsigned a = from[j], b = from[4 + j], c = from[8 + j];
        subs[j] = (uint8_t)(a & 63u);
        subs[8 + j] = (uint8_t)(b & 63u);
        subs[4 + j] = (uint8_t)((c & 15u) | a >> 6 << 4);
        subs[12 + j] = (uint8_t)(c >> 4 | b >> 6 << 4);
    }
}

/* 128 bytes of halves: each 32 bytes hold 2 x 32 columns, the low halves first. */
static void halves_of_256(uint32_t q[64], const uint8_t *from) {
    for (size_t j = 0; j < 4; j++)
        for (size_t i = 0; i < 8; i++) {
            const uint32_t w = word_at(from + 32 * j + 4 * i);
            q[16 * j + i] = w & LOW_HALVES;
            q[16 * j + 8 + i] = (w >> 4) & LOW_HALVES;
        }
}

static void read_q4_k(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    out->m = half_at(from + 2);
    scales_of_k(out->subs, from + 4);
    halves_of_256(out->quants, from + 16);
}

static void read_q5_k(quant_block *out, const uint8_t *from) {
    out->d = half_at(from);
    out->m = half_at(from + 2);
    scales_of_k(out->subs, from + 4);
    halves_of_256(out->quants, from + 48);
    for (size_t i = 0; i < 8; i++) {
        const uint32_t high = word_at(from + 16 + 4 * i);
        for (size_t c = 0; c < 8; c++) out->quants[8 * c + i] |= (high >> c & ONES) << 4;
    }
}

static void read_q6_k(quant_block *out, const uint8_t *from) {
    for (size_t n = 0; n < 2; n++) {
        uint32_t *q = out->quants + 32 * n;
        for (size_t i = 0; i < 8; i++) {
            const uint32_t a = word_at(from + 64 * n + 4 * i);
            const uint32_t b = word_at(from + 64 * n + 32 + 4 * i);
            const uint32_t high = word_at(from + 128 + 32 * n + 4 * i);
            q[i] = (a & LOW_HALVES) | (high & PAIRS) << 4;
            q[8 + i] = (b & LOW_HALVES) | (high >> 2 & PAIRS) << 4;
            q[16 + i] = (a >> 4 & LOW_HALVES) | (high >> 4 & PAIRS) << 4;
            q[24 + i] = (b >> 4 & LOW_HALVES) | (high >> 6 & PAIRS) << 4;
        }
    }
    memcpy(out->subs, from + 192, 16);
    out->d = half_at(from + 208);
}

static void read_iq4_xs(quant_block *out, const uint8_t *from) {
    const uint32_t high = half_at(from + 2);
    out->d = half_at(from);
    for (size_t j = 0; j < 8; j++) {
        const uint32_t low = (uint32_t)from[4 + j / 2] >> 4 * (j % 2) & 15u;
        out->subs[j] = (uint8_t)((low | (high >> 2 * j & 3u) << 4) - 32);
        halves_of_32(out->quants + 8 * j, from + 8 + 16 * j);
    }
}

/* Five base-3 digits to a byte: the byte is ceil(number * 256 / 243), digits come out of its top by
 * multiplication.  `count` bytes give `digits` runs of `count` columns. */
static uint8_t *digits_of(uint8_t *q, const uint8_t *from, size_t count, size_t digits) {
    uint8_t power = 1;
    for (size_t n = 0; n < digits; n++, power = (uint8_t)(power * 3u))
        for (size_t i = 0; i < count; i++) *q++ = (uint8_t)((uint8_t)(from[i] * power) * 3u >> 8);
    return q;
}

static void read_tq1_0(quant_block *out, const uint8_t *from) {
    uint8_t q[256], *at = q;
    at = digits_of(at, from, 32, 5);
    at = digits_of(at, from + 32, 16, 5);
    digits_of(at, from + 48, 4, 4);
    for (size_t i = 0; i < 64; i++) out->quants[i] = word_at(q + 4 * i);
    out->d = half_at(from + 52);
}

static void read_tq2_0(quant_block *out, const uint8_t *from) {
    pairs_of_256(out->quants, from);
    out->d = half_at(from + 64);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* With a constant layout its conditions fold away, and the block of a row stays in registers. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The planes of 32 columns, from eight words of quants. */
ALWAYS_INLINE void write_planes(uint8_t *to, const uint32_t q[8], unsigned planes) {
    uint32_t words[8 + 4 + 2 + 1];
    size_t n = 0, bits = 0;
    if (planes & QUANT_PLANE_8)
        for (; n < 8; n++) words[n] = q[n];
    if (planes & QUANT_PLANE_4) {
        for (size_t p = 0; p < 4; p++)
            words[n++] = (q[p] & 0x0f0f0f0fu) | (q[p + 4] & 0x0f0f0f0fu) << 4;
        bits = 4;
    }
    if (planes & QUANT_PLANE_2) {
        for (size_t p = 0; p < 2; p++) {
            uint32_t w = 0;
            for (size_t i = 0; i < 4; i++) w |= (q[p + 2 * i] >> bits & 0x03030303u) << 2 * i;
            words[n++] = w;
        }
        bits += 2;
    }
    if (planes & QUANT_PLANE_1) {
        uint32_t w = 0;
        for (size_t i = 0; i < 8; i++) w |= (q[i] >> bits & 0x01010101u) << i;
        words[n++] = w;
    }
    for (size_t i = 0; i < n; i++) memcpy(to + i * OMM_STRIP * 4, &words[i], 4);
}

ALWAYS_INLINE void write_block(uint8_t *to, size_t lane, const quant_block *b,
                               const quant_layout *l) {
    memcpy(to + lane * 2, &b->d, 2);
    if (l->has_min) memcpy(to + (OMM_STRIP + lane) * 2, &b->m, 2);
    const size_t subs = quant_subs_bytes(l) / OMM_STRIP;
    uint8_t *at = to + quant_subs_at(l) + lane;
    for (size_t i = 0; i < subs; i++) at[i * OMM_STRIP] = b->subs[i];
    at = to + quant_planes_at(l) + lane * 4;
    for (size_t i = 0; i < l->block / OMM_QUANT_BLOCK; i++, at += quant_chunk_bytes(l))
        write_planes(at, b->quants + 8 * i, l->planes);
}

static bool half_finite(uint16_t h) {
    return (h & 0x7c00u) != 0x7c00u;
}

ALWAYS_INLINE size_t pack_rows(const quant_layout *l, quant_reader read, uint8_t *to,
                               const uint8_t *from, size_t stride, size_t rows) {
    size_t fault = rows;
    for (size_t lane = 0; lane < rows; lane++, from += stride) {
        quant_block block;
        read(&block, from);
        write_block(to, lane, &block, l);
        if (half_finite(block.d) && (!l->has_min || half_finite(block.m))) continue;
        if (fault == rows) fault = lane;
    }
    return fault;
}

/* X(format, its reader) */
#define PACKERS(X)                                                                                 \
    X(Q8_0, read_q8_0)                                                                             \
    X(Q4_0, read_q4_0)                                                                             \
    X(Q4_1, read_q4_1)                                                                             \
    X(Q5_0, read_q5_0)                                                                             \
    X(Q5_1, read_q5_1)                                                                             \
    X(IQ4_NL, read_q4_0)                                                                           \
    X(Q2_K, read_q2_k)                                                                             \
    X(Q3_K, read_q3_k)                                                                             \
    X(Q4_K, read_q4_k)                                                                             \
    X(Q5_K, read_q5_k)                                                                             \
    X(Q6_K, read_q6_k)                                                                             \
    X(IQ4_XS, read_iq4_xs)                                                                         \
    X(TQ1_0, read_tq1_0)                                                                           \
    X(TQ2_0, read_tq2_0)

#define PACKER(F, READ)                                                                            \
    static size_t pack_##F(uint8_t *to, const uint8_t *from, size_t stride, size_t rows) {         \
        return pack_rows(&QUANT_LAYOUT[OMM_FORMAT_##F], READ, to, from, stride, rows);             \
    }
PACKERS(PACKER)

quant_packer quant_packer_of(omm_format format) {
#define PACKER_NAME(F, READ) [OMM_FORMAT_##F] = pack_##F,
    static const quant_packer packers[OMM_FORMAT_COUNT] = {PACKERS(PACKER_NAME)};
    return packers[format];
}
