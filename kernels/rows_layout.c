/* rows_layout.c - blocks of the quantised types taken apart and put together. */
#include "rows_internal.h"

#include "omm/bytes.h"

#include <string.h>

/* The 16 values of IQ4_NL and IQ4_XS. */
static const int8_t s_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

static const rows_layout s_layouts[] = {
    {OMM_GGML_Q4_0, 32, 18, 0, ROWS_NONE, 0, 8, 16, NULL, {{2, 4, 16, 0}}},
    {OMM_GGML_Q4_1, 32, 20, 0, 2, 0, 0, 16, NULL, {{4, 4, 16, 0}}},
    {OMM_GGML_Q5_0, 32, 22, 0, ROWS_NONE, 0, 16, 32, NULL, {{6, 4, 16, 0}, {2, 1, 1, 4}}},
    {OMM_GGML_Q5_1, 32, 24, 0, 2, 0, 0, 32, NULL, {{8, 4, 16, 0}, {4, 1, 1, 4}}},
    {OMM_GGML_Q8_0, 32, 34, 0, ROWS_NONE, 0, 128, 0, NULL, {{2, 8, 32, 0}}},
    {OMM_GGML_Q2_K, 256, 84, 80, 82, 16, 0, 4, NULL, {{16, 2, 32, 0}}},
    {OMM_GGML_Q3_K, 256, 110, 108, ROWS_NONE, 16, 4, 8, NULL, {{32, 2, 32, 0}, {0, 1, 32, 2}}},
    {OMM_GGML_Q4_K, 256, 144, 0, 2, 32, 0, 16, NULL, {{16, 4, 32, 0}}},
    {OMM_GGML_Q5_K, 256, 176, 0, 2, 32, 0, 32, NULL, {{48, 4, 32, 0}, {16, 1, 32, 4}}},
    {OMM_GGML_Q6_K, 256, 210, 208, ROWS_NONE, 16, 32, 64, NULL, {{0, 4, 64, 0}, {128, 2, 32, 4}}},
    {OMM_GGML_IQ4_NL, 32, 18, 0, ROWS_NONE, 0, 0, 16, s_iq4, {{2, 4, 16, 0}}},
    {OMM_GGML_IQ4_XS, 256, 136, 0, ROWS_NONE, 32, 0, 16, s_iq4, {{8, 4, 16, 0}}},
    {OMM_GGML_TQ1_0, 256, 54, 52, ROWS_NONE, 0, 1, 3, NULL, {{0}}},
    {OMM_GGML_TQ2_0, 256, 66, 64, ROWS_NONE, 0, 1, 3, NULL, {{0, 2, 32, 0}}},
};

const rows_layout *rows_layout_of(omm_ggml_type type) {
    for (size_t i = 0; i < sizeof s_layouts / sizeof *s_layouts; i++)
        if (s_layouts[i].type == type) return &s_layouts[i];
    return NULL;
}

/* ---- codes in bit planes --------------------------------------------------------------------- */

static void plane_get(uint8_t *codes, size_t n, const uint8_t *block, const rows_plane *p) {
    const uint8_t *from = block + p->at;
    const unsigned mask = (1u << p->bits) - 1u;
    for (size_t k = 0; k < n; from += p->run) {
        for (unsigned bit = 0; bit < 8; bit += p->bits, k += p->run)
            for (size_t i = 0; i < p->run; i++)
                codes[k + i] = (uint8_t)(codes[k + i] | ((from[i] >> bit & mask) << p->shift));
    }
}

static void plane_put(uint8_t *block, const uint8_t *codes, size_t n, const rows_plane *p) {
    uint8_t *to = block + p->at;
    const unsigned mask = (1u << p->bits) - 1u;
    for (size_t k = 0; k < n; to += p->run) {
        for (unsigned bit = 0; bit < 8; bit += p->bits, k += p->run)
            for (size_t i = 0; i < p->run; i++)
                to[i] = (uint8_t)(to[i] | ((codes[k + i] >> p->shift & mask) << bit));
    }
}

/* TQ1_0 packs five ternary digits into a byte as a binary fraction of 3^5: digit n is the integer
 * part of 3 * frac(byte * 3^n / 256).  Bytes 0 .. 31 hold columns 0 .. 159, one digit after the
 * other; bytes 32 .. 47 columns 160 .. 239; the last four bytes have four digits each. */
static const struct {
    uint8_t at, run, digits;
} s_ternary[3] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};

static void ternary_get(uint8_t *codes, const uint8_t *block) {
    for (size_t part = 0; part < 3; part++) {
        unsigned power = 1;
        for (unsigned digit = 0; digit < s_ternary[part].digits; digit++, power *= 3)
            for (size_t i = 0; i < s_ternary[part].run; i++) {
                uint8_t fraction = (uint8_t)(block[s_ternary[part].at + i] * power);
                *codes++ = (uint8_t)(fraction * 3u >> 8);
            }
    }
}

static void ternary_put(uint8_t *block, const uint8_t *codes) {
    for (size_t part = 0; part < 3; part++) {
        const size_t run = s_ternary[part].run;
        for (size_t i = 0; i < run; i++) {
            unsigned number = 0;
            for (unsigned digit = 0; digit < 5; digit++)
                number =
                    number * 3 + (digit < s_ternary[part].digits ? codes[digit * run + i] : 0u);
            block[s_ternary[part].at + i] = (uint8_t)((number * 256 + 242) / 243); /* upwards */
        }
        codes += run * s_ternary[part].digits;
    }
}

/* ---- scales and minima of sub-blocks --------------------------------------------------------- */

/* Q4_K, Q5_K: eight scales and eight minima of 6 bits in 12 bytes. */
static void scales_k4_get(rows_block *b, const uint8_t *s) {
    for (size_t j = 0; j < 4; j++) {
        b->scales[j] = (int16_t)(s[j] & 63);
        b->mins[j] = s[j + 4] & 63;
        b->scales[j + 4] = (int16_t)((s[j + 8] & 15) | (s[j] >> 6 << 4));
        b->mins[j + 4] = (uint8_t)(s[j + 8] >> 4 | (s[j + 4] >> 6 << 4));
    }
}

static void scales_k4_put(uint8_t *s, const rows_block *b) {
    for (size_t j = 0; j < 4; j++) {
        s[j] = (uint8_t)(b->scales[j] | (b->scales[j + 4] >> 4 << 6));
        s[j + 4] = (uint8_t)(b->mins[j] | (b->mins[j + 4] >> 4 << 6));
        s[j + 8] = (uint8_t)((b->scales[j + 4] & 15) | ((b->mins[j + 4] & 15) << 4));
    }
}

/* Q3_K: 16 scales of 6 bits, low nibbles first, then four bytes of high bits; 32 is zero. */
static void scales_q3_get(rows_block *b, const uint8_t *s) {
    for (unsigned j = 0; j < 16; j++) {
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        int high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
        b->scales[j] = (int16_t)((low | high << 4) - 32);
    }
}

static void scales_q3_put(uint8_t *s, const rows_block *b) {
    for (unsigned j = 0; j < 16; j++) {
        unsigned v = (unsigned)(b->scales[j] + 32);
        s[j % 8] = (uint8_t)(s[j % 8] | (v & 15) << (j < 8 ? 0 : 4));
        s[8 + j % 4] = (uint8_t)(s[8 + j % 4] | (v >> 4) << (2 * (j / 4)));
    }
}

/* IQ4_XS: eight scales of 6 bits: four bytes of low nibbles at 4, two of high bits at 2. */
static void scales_xs_get(rows_block *b, const uint8_t *block) {
    const unsigned high = omm_get_u16(block + 2);
    for (unsigned j = 0; j < 8; j++) {
        unsigned low = (unsigned)block[4 + j / 2] >> (4 * (j % 2)) & 15u;
        b->scales[j] = (int16_t)((int)(low | (high >> (2 * j) & 3u) << 4) - 32);
    }
}

static void scales_xs_put(uint8_t *block, const rows_block *b) {
    unsigned high = 0;
    for (unsigned j = 0; j < 8; j++) {
        unsigned v = (unsigned)(b->scales[j] + 32);
        block[4 + j / 2] = (uint8_t)(block[4 + j / 2] | (v & 15) << (4 * (j % 2)));
        high |= (v >> 4) << (2 * j);
    }
    omm_put_u16(block + 2, (uint16_t)high);
}

static void scales_get(rows_block *b, const rows_layout *layout, const uint8_t *from) {
    switch (layout->type) {
    case OMM_GGML_Q2_K:
        for (size_t j = 0; j < 16; j++) {
            b->scales[j] = (int16_t)(from[j] & 15);
            b->mins[j] = from[j] >> 4;
        }
        break;
    case OMM_GGML_Q3_K: scales_q3_get(b, from + 96); break;
    case OMM_GGML_Q4_K:
    case OMM_GGML_Q5_K: scales_k4_get(b, from + 4); break;
    case OMM_GGML_Q6_K:
        for (size_t j = 0; j < 16; j++) {
            b->scales[j] = (int16_t)((from[192 + j] ^ 128) - 128);
        }
        break;
    default: scales_xs_get(b, from); break;
    }
}

static void scales_put(uint8_t *to, const rows_layout *layout, const rows_block *b) {
    switch (layout->type) {
    case OMM_GGML_Q2_K:
        for (size_t j = 0; j < 16; j++) to[j] = (uint8_t)(b->scales[j] | b->mins[j] << 4);
        break;
    case OMM_GGML_Q3_K: scales_q3_put(to + 96, b); break;
    case OMM_GGML_Q4_K:
    case OMM_GGML_Q5_K: scales_k4_put(to + 4, b); break;
    case OMM_GGML_Q6_K:
        for (size_t j = 0; j < 16; j++) to[192 + j] = (uint8_t)b->scales[j];
        break;
    default: scales_xs_put(to, b); break;
    }
}

/* ---- whole blocks ---------------------------------------------------------------------------- */

/* Q8_0 stores signed bytes; as a code, -128 is 0. */
static void flip_signs(uint8_t *codes, size_t n) {
    for (size_t i = 0; i < n; i++) codes[i] ^= 128u;
}

void rows_unpack(rows_block *out, const rows_layout *layout, const uint8_t *from) {
    const size_t n = layout->block;
    out->d = omm_get_u16(from + layout->d_at);
    if (layout->min_at != ROWS_NONE) out->dmin = omm_get_u16(from + layout->min_at);
    if (layout->sub) scales_get(out, layout, from);
    if (layout->type == OMM_GGML_TQ1_0) {
        ternary_get(out->codes, from);
        return;
    }
    memset(out->codes, 0, n);
    for (size_t p = 0; p < 2 && layout->planes[p].bits; p++)
        plane_get(out->codes, n, from, &layout->planes[p]);
    if (layout->type == OMM_GGML_Q8_0) flip_signs(out->codes, n);
}

void rows_pack(uint8_t *to, const rows_layout *layout, const rows_block *block) {
    const size_t n = layout->block;
    memset(to, 0, layout->bytes);
    omm_put_u16(to + layout->d_at, block->d);
    if (layout->min_at != ROWS_NONE) omm_put_u16(to + layout->min_at, block->dmin);
    if (layout->sub) scales_put(to, layout, block);
    if (layout->type == OMM_GGML_TQ1_0) ternary_put(to, block->codes);
    for (size_t p = 0; p < 2 && layout->planes[p].bits; p++)
        plane_put(to, block->codes, n, &layout->planes[p]);
    if (layout->type == OMM_GGML_Q8_0) flip_signs(to + layout->planes[0].at, n);
}

/* The integer that multiplies the scale. */
static float level(const rows_layout *layout, uint8_t code) {
    return layout->table ? (float)layout->table[code] : (float)((int)code - layout->zero);
}

void rows_values(float *out, const rows_layout *layout, const rows_block *block) {
    const size_t n = layout->block, width = layout->sub ? layout->sub : n;
    const float d = omm_f16_to_f32(block->d);
    const bool has_min = layout->min_at != ROWS_NONE;
    const float dmin = has_min ? omm_f16_to_f32(block->dmin) : 0.0f;
    for (size_t j = 0; j < n / width; j++, out += width) {
        const uint8_t *codes = block->codes + j * width;
        const float scale = layout->sub ? d * (float)block->scales[j] : d;
        for (size_t i = 0; i < width; i++) out[i] = scale * level(layout, codes[i]);
        if (!has_min) continue;
        const float min = layout->sub ? -(dmin * (float)block->mins[j]) : dmin;
        for (size_t i = 0; i < width; i++) out[i] += min;
    }
}
