/* quant_blocks.c - one block of each quantised GGUF format, taken apart.
 *
 * Words are little-endian, four quants in ascending columns to a word, so that most of the work is
 * done on four at once.  Source: ggml's block formats (FORMATS in docs; ggml-common.h).
 */
#include "quant_layout.h"

#include <string.h>

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

quant_reader quant_reader_of(omm_format format) {
    static const quant_reader readers[OMM_FORMAT_COUNT] = {
        [OMM_FORMAT_Q8_0] = read_q8_0,   [OMM_FORMAT_Q4_0] = read_q4_0,
        [OMM_FORMAT_Q4_1] = read_q4_1,   [OMM_FORMAT_Q5_0] = read_q5_0,
        [OMM_FORMAT_Q5_1] = read_q5_1,   [OMM_FORMAT_IQ4_NL] = read_q4_0,
        [OMM_FORMAT_Q2_K] = read_q2_k,   [OMM_FORMAT_Q3_K] = read_q3_k,
        [OMM_FORMAT_Q4_K] = read_q4_k,   [OMM_FORMAT_Q5_K] = read_q5_k,
        [OMM_FORMAT_Q6_K] = read_q6_k,   [OMM_FORMAT_IQ4_XS] = read_iq4_xs,
        [OMM_FORMAT_TQ1_0] = read_tq1_0, [OMM_FORMAT_TQ2_0] = read_tq2_0};
    return readers[format];
}
