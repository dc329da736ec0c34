/* q8_body.h - int8 activations against quantised weights; part of kernels_body.h.
 *
 * The integer product of a sub-block is exact, so only the fma steps that kernels.h names decide
 * the result; how many strips and tokens go side by side does not.  Few tokens read the strips as
 * they lie; more share a panel into which a block of columns is unpacked once.
 */

/* ---- activations ----------------------------------------------------------------------------- */

/* Scale of values whose largest magnitude has the bit pattern `top`; 0 or NaN: they become zero. */
static float q8_scale(float *inverse, int32_t top) {
    float amax = 0.0f, nan = 0.0f;
    const int32_t nan_bits = 0x7fc00000;
    memcpy(&amax, &top, sizeof amax);
    memcpy(&nan, &nan_bits, sizeof nan);
    *inverse = 0.0f;
    if (top >= 0x7f800000) return nan;
    if (amax < 0x1p-100f) return 0.0f;
    *inverse = 127.0f / amax;
    return amax / 127.0f;
}

/* As integers, bit patterns of absolute values are ordered, NaN and infinity on top. */
SIMD_INLINE vi q8_magnitudes(const float *x) {
    return vi_and(vf_bits(vf_load(x)), vi_set1(0x7fffffff));
}

/* q[16] = rne(x * inverse); returns them as lanes. */
SIMD_INLINE vi q8_round(int8_t *q, const float *x, vf inverse) {
    const vf magic = vf_set1(12582912.0f);
    const vi r = vi_sub(vf_bits(vf_add(vf_mul(vf_load(x), inverse), magic)), vi_set1(0x4B400000));
    vi_store_i8(q, r);
    return r;
}

static void q8_block(omm_q8_rows *out, size_t at, const float *x) {
    int8_t *q = out->q + at * OMM_QUANT_BLOCK;
    int16_t *sums = out->sums + 2 * at;
    float *weighted = out->weighted + 3 * at, inverse = 0.0f;
    const float d = q8_scale(&inverse, vi_top(vi_max(q8_magnitudes(x), q8_magnitudes(x + VL))));
    out->d[at] = d;
    if (inverse == 0.0f) {
        memset(q, 0, OMM_QUANT_BLOCK);
        sums[0] = sums[1] = 0;
    } else {
        const vf scale = vf_set1(inverse);
        sums[0] = (int16_t)vi_total(q8_round(q, x, scale));
        sums[1] = (int16_t)vi_total(q8_round(q + VL, x + VL, scale));
    }
    weighted[0] = (float)sums[0] * d;
    weighted[1] = (float)sums[1] * d;
    weighted[2] = (float)(sums[0] + sums[1]) * d;
}

/* A block of columns of four rows, which lie side by side in `out`; false where they do not go together. */
SIMD_INLINE bool q8_four_blocks(omm_q8_rows *out, size_t at, const float *x) {
#ifdef SIMD_QUANTIZES_FOUR
    return vf_quantize_four(out->q + at * OMM_QUANT_BLOCK, out->d + at, out->sums + 2 * at,
                            out->weighted + 3 * at, x, out->cols);
#else
    (void)out;
    (void)at;
    (void)x;
    return false;
#endif
}

static void kernel_q8_quantize(omm_q8_rows *out, const float *x, size_t m0, size_t m1) {
    for (size_t m = m0; m < m1; m += 4)
        for (size_t b = 0; b < out->cols / OMM_QUANT_BLOCK; b++) {
            const size_t at = b * out->stride + m, rows = min_size(4, m1 - m);
            const float *from = x + m * out->cols + b * OMM_QUANT_BLOCK;
            if (rows == 4 && q8_four_blocks(out, at, from)) continue;
            for (size_t i = 0; i < rows; i++) q8_block(out, at + i, from + i * out->cols);
        }
}

/* ---- products of a sub-block ------------------------------------------------------------------ */

/* Bytes of w are signed: 8-bit planes and codebooks. */
SIMD_INLINE bool q8_wide(const omm_format format) {
    return (QUANT_LAYOUT[format].planes & QUANT_PLANE_8) != 0 || QUANT_LAYOUT[format].table != 0;
}

/* What a byte of w counts more than the weight. */
SIMD_INLINE int q8_bias(const omm_format format) {
    return q8_wide(format) ? SIMD_S8_BIAS : QUANT_LAYOUT[format].bias;
}

SIMD_INLINE int q8_span(const omm_format format) {
    return q8_wide(format) ? 1 : SIMD_SPAN((1 << QUANT_LAYOUT[format].planes) - 1);
}

SIMD_INLINE vq q8_dot(const omm_format format, vq p, vi w, vi x) {
    return q8_wide(format) ? vq_dot_s8(p, w, x) : vq_dot_u8(p, w, x);
}

/* The same of the four bytes at x, which each product reads for itself where that is an instruction less (decision 201). */
SIMD_INLINE vq q8_dot_at(const omm_format format, vq p, vi w, const int8_t *x) {
#ifdef SIMD_DOTS_READ
    (void)format;
    return vq_dot_at(p, w, x);
#else
    return q8_dot(format, p, w, vi_four(x));
#endif
}

/* 16-bit factors (a, b) of two neighbours in every lane. */
SIMD_INLINE vi q8_pair(const int a, const int b) {
    return vi_set1((int32_t)(((uint32_t)a & 0xffffu) | (uint32_t)b << 16));
}

/* Weights of the two halves of a block of x that sub-block h of `parts` takes, times `factor`. */
SIMD_INLINE vi q8_halves(const int parts, const int h, const int factor) {
    return parts == 1 ? q8_pair(factor, factor) : h ? q8_pair(0, factor) : q8_pair(factor, 0);
}

/* Sub-blocks in 32 columns. */
SIMD_INLINE int q8_parts(const omm_format format) {
    return QUANT_LAYOUT[format].sub == VL ? 2 : 1;
}

/* Where sums of bytes grow in place, they start at the bits of 1.5 * 2^23.  An exact sum within 22 bits then is a float
 * already, too large by that number, which scaling takes away within its own rounding: that many times a scale is
 * exact (19 bits at most).  So no sum is converted (decision 205). */
#if SIMD_ONE_DOT
#define Q8_ZERO 0x4B400000
#else
#define Q8_ZERO 0
#endif
typedef struct q8_factor {
    vf scale, offset; /* offset: what a sum of zero comes to, negated */
} q8_factor;

SIMD_INLINE q8_factor q8_factor_of(vf scale) {
    return (q8_factor){scale, vf_mul(scale, vf_set1(-12582912.0f))};
}

/* (float)sum * scale, rounded once. */
SIMD_INLINE vf q8_scaled(vi sum, q8_factor factor) {
#if SIMD_ONE_DOT
    return vf_fma(vi_as_vf(sum), factor.scale, factor.offset);
#else
    return vf_mul(vf_from_vi(sum), factor.scale);
#endif
}

/* What the product of a sub-block starts with, so that `bias` goes away. */
SIMD_INLINE vi q8_start(const int parts, const int bias, const omm_q8_rows *x, size_t at,
                        const int h) {
    if (bias == 0) return vi_set1(Q8_ZERO);
    return vi_dot_s16(vi_set1(Q8_ZERO), q8_halves(parts, h, -bias),
                      vi_four((const int8_t *)(const void *)(x->sums + 2 * at)));
}

/* The sum of x that goes with the minimum of sub-block h, times d_x. */
SIMD_INLINE vf q8_weighted(const omm_format format, const omm_q8_rows *x, size_t at, const int h) {
    return vf_set1(x->weighted[3 * at + (q8_parts(format) == 1 ? 2 : (size_t)h)]);
}

/* What is added for each unit of x: m, or -(dmin * min). */
SIMD_INLINE vf q8_addend(const omm_format format, vf min) {
    return QUANT_LAYOUT[format].subs == QUANT_SUBS_NONE ? min : vf_sub(vf_zero(), min);
}

/* ---- few tokens: strips as they lie ----------------------------------------------------------- */

/* nt tokens and ns strips, which lie strip_bytes apart.  Strips side by side are streams that a processor
 * fetches at the same time, and chains that do not wait for one another. */
typedef vi q8_few_ints[SIMD_Q8_FEW_STRIPS][SIMD_Q8_FEW];
typedef vf q8_few_floats[SIMD_Q8_FEW_STRIPS][SIMD_Q8_FEW];
_Static_assert(Q8_FEW_STRIPS % SIMD_Q8_FEW_STRIPS == 0, "strips of a cut");

#define Q8_FEW_EACH_STRIP SIMD_UNROLL for (int s = 0; s < (SIMD_Q8_FEW_STRIPS > 1 ? ns : 1); s++)
#define Q8_FEW_EACH_TOKEN SIMD_UNROLL for (int t = 0; t < nt; t++)

/* Group g of a chunk as q8_dot takes it. */
SIMD_INLINE vi q8_group(const omm_format format, const uint8_t *chunk, const int g) {
    const vi w = quant_group(format, chunk, g);
    return q8_wide(format) ? vi_s8(w) : w;
}

/* dot[ns][nt] += groups g0 .. g0 + count of a chunk times x, tokens 32 bytes apart. */
SIMD_INLINE void q8_run(const omm_format format, const int nt, const int ns, const int count,
                        q8_few_ints dot, const uint8_t *chunk, size_t strip_bytes, const int8_t *x,
                        const int g0) {
    const int span = q8_span(format) < count ? q8_span(format) : count;
    SIMD_UNROLL for (int g = 0; g < count; g += span) {
        vq p[SIMD_Q8_FEW_STRIPS][SIMD_Q8_FEW];
        Q8_FEW_EACH_STRIP Q8_FEW_EACH_TOKEN p[s][t] = vq_open(dot[s][t]);
        SIMD_UNROLL for (int i = 0; i < span; i++) {
            vi w[SIMD_Q8_FEW_STRIPS];
            Q8_FEW_EACH_STRIP w[s] = q8_group(format, chunk + (size_t)s * strip_bytes, g0 + g + i);
            Q8_FEW_EACH_TOKEN {
                const int8_t *at = x + (ptrdiff_t)t * (int)OMM_QUANT_BLOCK;
                const vi xv = vi_four(at + (ptrdiff_t)4 * (g0 + g + i));
                Q8_FEW_EACH_STRIP p[s][t] = q8_dot(format, p[s][t], w[s], xv);
            }
        }
        Q8_FEW_EACH_STRIP Q8_FEW_EACH_TOKEN dot[s][t] = vq_close(dot[s][t], p[s][t]);
    }
}

/* 32 columns of a block: `c` counts them, `at` is where x has those of the first token. */
SIMD_INLINE void q8_few_chunk(const omm_format format, const int nt, const int ns,
                              q8_few_floats acc, const uint8_t *block, size_t strip_bytes, size_t c,
                              const omm_q8_rows *x, size_t at) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    const uint8_t *chunk = block + quant_planes_at(l) + c * quant_chunk_bytes(l);
    const int parts = q8_parts(format);
    SIMD_UNROLL for (int h = 0; h < parts; h++) {
        const size_t sub = (c * OMM_QUANT_BLOCK + (size_t)h * VL) / l->sub;
        q8_factor factor[SIMD_Q8_FEW_STRIPS];
        vf min[SIMD_Q8_FEW_STRIPS];
        q8_few_ints dot;
        Q8_FEW_EACH_STRIP {
            vf scale;
            quant_scale(format, &scale, &min[s], block + (size_t)s * strip_bytes, sub);
            factor[s] = q8_factor_of(scale);
        }
        Q8_FEW_EACH_TOKEN {
            const vi start = q8_start(parts, q8_bias(format), x, at + (size_t)t, h);
            Q8_FEW_EACH_STRIP dot[s][t] = start;
        }
        q8_run(format, nt, ns, 8 / parts, dot, chunk, strip_bytes, x->q + at * OMM_QUANT_BLOCK,
               h * 4);
        Q8_FEW_EACH_TOKEN {
            const vf dx = vf_set1(x->d[at + (size_t)t]);
            Q8_FEW_EACH_STRIP {
                acc[s][t] = vf_fma(q8_scaled(dot[s][t], factor[s]), dx, acc[s][t]);
                if (!l->has_min) continue;
                acc[s][t] = vf_fma(q8_weighted(format, x, at + (size_t)t, h),
                                   q8_addend(format, min[s]), acc[s][t]);
            }
        }
    }
}

/* Whether weights are asked for, into which cache, and how far ahead if that is the first one. */
typedef struct q8_ask {
    bool at_all, near;
    size_t ahead_near;
} q8_ask;

/* Strips go side by side where they were measured, asked for so (measurements/decode.md). */
SIMD_INLINE q8_ask q8_ask_of(const omm_format format, const int nt, const int ns) {
    if (ns > 1) return (q8_ask){true, true, SIMD_Q8_AHEAD};
    return (q8_ask){nt > 1 || format == OMM_FORMAT_Q8_0 || ask_few_bits(), ask_near(),
                    SIMD_Q8_AHEAD_NEAR};
}

SIMD_INLINE void q8_prefetch(const q8_ask ask, const uint8_t *at, const size_t bytes) {
    if (!ask.at_all) return;
    SIMD_UNROLL for (size_t line = 0; line < bytes; line += 64) {
        if (ask.near)
            SIMD_PREFETCH_NEAR(at + line + ask.ahead_near);
        else
            SIMD_PREFETCH(at + line + SIMD_Q8_AHEAD);
    }
}

/* Strips s0 .. s0 + ns times tokens m .. m + nt. */
SIMD_INLINE void q8_few(const omm_format format, const int nt, const int ns, float *y,
                        const omm_q8_rows *x, const omm_matrix *w, size_t m, size_t s0) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    const size_t bytes = quant_block_bytes(l), blocks = x->cols / l->block;
    const size_t chunks = l->block / OMM_QUANT_BLOCK;
    const uint8_t *block = w->data + s0 * w->strip_bytes;
    const q8_ask ask = q8_ask_of(format, nt, ns);
    q8_few_floats acc;
    Q8_FEW_EACH_STRIP Q8_FEW_EACH_TOKEN acc[s][t] = vf_zero();
    for (size_t b = 0; b < blocks; b++, block += bytes) {
        /* Behind the end of each lies one that is at work beside it: the next ones lie behind the last. */
        const bool within = ns == 1 || (blocks - b) * bytes > SIMD_Q8_AHEAD;
        const uint8_t *next = block + (within ? 0 : (size_t)(ns - 1) * w->strip_bytes);
        Q8_FEW_EACH_STRIP {
            q8_prefetch(ask, next + (size_t)s * w->strip_bytes, quant_planes_at(l));
        }
        for (size_t c = 0; c < chunks; c++) {
            const size_t at = quant_planes_at(l) + c * quant_chunk_bytes(l);
            Q8_FEW_EACH_STRIP {
                q8_prefetch(ask, next + (size_t)s * w->strip_bytes + at, quant_chunk_bytes(l));
            }
            q8_few_chunk(format, nt, ns, acc, block, w->strip_bytes, c, x,
                         (b * chunks + c) * x->stride + m);
        }
    }
    Q8_FEW_EACH_STRIP {
        const size_t row = (s0 + (size_t)s) * VL;
        Q8_FEW_EACH_TOKEN {
            vf_store_n(y + (m + (size_t)t) * w->rows + row, acc[s][t], w->rows - row);
        }
    }
}

typedef void (*q8_few_fn)(float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m, size_t s);

#define Q8_FEW(F, NT, NS)                                                                          \
    static __attribute__((noinline)) void q8_few_##F##_##NT##_##NS(                                \
        float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m, size_t s) {                 \
        q8_few(OMM_FORMAT_##F, NT, NS, y, x, w, m, s);                                             \
    }
/* Products of 2^i tokens by so many strips: [i]. */
typedef struct q8_few_form {
    q8_few_fn run;
    size_t strips;
} q8_few_form;

#define Q8_FORM(F, NT, NS)                                                                         \
    { q8_few_##F##_##NT##_##NS, NS }
#define Q8_FORMS(F, ...)                                                                           \
    static const q8_few_form s_q8_few_##F[2][4] = {{Q8_APART(F)}, {__VA_ARGS__}};
/* One strip after the other, or several side by side: so many as was measured, more registers hold more.  Formats that are
 * seldom met have several for one token alone: the others take a compiler longer than all the rest of a format. */
#define Q8_FEW_APART(F) Q8_FEW(F, 1, 1) Q8_FEW(F, 2, 1) Q8_FEW(F, 4, 1)
#if OMM_SIMD == OMM_SIMD_AVX512
#define Q8_APART(F) Q8_FORM(F, 1, 1), Q8_FORM(F, 2, 1), Q8_FORM(F, 4, 1), Q8_FORM(F, 8, 1)
#define Q8_SELDOM(F)                                                                               \
    Q8_FEW_APART(F)                                                                                \
    Q8_FEW(F, 8, 1)                                                                                \
    Q8_FEW(F, 1, 4)                                                                                \
    Q8_FORMS(F, Q8_FORM(F, 1, 4), Q8_FORM(F, 2, 1), Q8_FORM(F, 4, 1), Q8_FORM(F, 8, 1))
#define Q8_OFTEN(F)                                                                                \
    Q8_FEW_APART(F)                                                                                \
    Q8_FEW(F, 8, 1)                                                                                \
    Q8_FEW(F, 1, 4)                                                                                \
    Q8_FEW(F, 2, 4)                                                                                \
    Q8_FEW(F, 4, 4)                                                                                \
    Q8_FEW(F, 8, 2)                                                                                \
    Q8_FORMS(F, Q8_FORM(F, 1, 4), Q8_FORM(F, 2, 4), Q8_FORM(F, 4, 4), Q8_FORM(F, 8, 2))
#elif OMM_SIMD == OMM_SIMD_AVX2
#define Q8_APART(F) Q8_FORM(F, 1, 1), Q8_FORM(F, 2, 1), Q8_FORM(F, 4, 1)
#define Q8_SELDOM(F)                                                                               \
    Q8_FEW_APART(F)                                                                                \
    Q8_FEW(F, 1, 4)                                                                                \
    Q8_FORMS(F, Q8_FORM(F, 1, 4), Q8_FORM(F, 2, 1), Q8_FORM(F, 4, 1))
#define Q8_OFTEN(F)                                                                                \
    Q8_FEW_APART(F)                                                                                \
    Q8_FEW(F, 1, 4)                                                                                \
    Q8_FEW(F, 2, 2)                                                                                \
    Q8_FORMS(F, Q8_FORM(F, 1, 4), Q8_FORM(F, 2, 2), Q8_FORM(F, 4, 1))
#else
#define Q8_APART(F) Q8_FORM(F, 1, 1), Q8_FORM(F, 2, 1), Q8_FORM(F, 4, 1)
#define Q8_SELDOM(F) Q8_FEW_APART(F) Q8_FORMS(F, Q8_APART(F))
#define Q8_OFTEN(F) Q8_SELDOM(F)
#endif
QUANT_OFTEN(Q8_OFTEN)
QUANT_SELDOM(Q8_SELDOM)
#define Q8_FEW_NAME(F, K) [OMM_FORMAT_##F] = s_q8_few_##K,
/* Of one strip, of several: [format][together][i]. */
static const q8_few_form (*const s_q8_few[OMM_FORMAT_COUNT])[4] = {QUANT_KERNELS(Q8_FEW_NAME)};

/* Tokens m0 .. m1 of strips s .. s + count, one or SIMD_Q8_FEW_STRIPS: later tokens find them in the first or second
 * cache. */
static void q8_few_tokens(float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m0, size_t m1,
                          size_t s, size_t count) {
    const q8_few_form *forms = s_q8_few[w->format][count > 1];
    unsigned i = SIMD_Q8_FEW == 8 ? 3 : 2;
    for (size_t m = m0; m < m1; m += (size_t)1 << i) {
        while ((size_t)1 << i > m1 - m) i--;
        for (size_t k = 0; k < count; k += forms[i].strips) forms[i].run(y, x, w, m, s + k);
    }
}

/* Tokens m0 .. m1 of strips s0 .. s1. */
static void q8_few_strips(float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m0, size_t m1,
                          size_t s0, size_t s1) {
    size_t count = 1;
    if (strips_together()) count = SIMD_Q8_FEW_STRIPS;
    for (size_t s = s0; s < s1; s += count) {
        if (count > s1 - s) count = 1;
        q8_few_tokens(y, x, w, m0, m1, s, count);
    }
}

/* ---- many tokens: panels ---------------------------------------------------------------------- */

/* What a pass takes: columns of a block, tokens, and tiles of strips side by side. */
typedef struct q8_pass {
    size_t columns, tokens, tiles;
} q8_pass;

/* AVX2 without VNNI multiplies signed bytes as pairs of 16 bits: one product where bytes take a sign, a product of
 * bytes and one of pairs.  Both sides are twice as wide then, so a pass has fewer columns and tokens; x is made
 * wide for as many strips as the second cache lets sums wait for (decision 213). */
SIMD_INLINE bool q8_paired(const omm_format format) {
    return SIMD_Q8_PAIRS && q8_wide(format);
}

#define Q8_TILES_MAX ((size_t)(SIMD_Q8_PAIRS ? 8 : 2))

static q8_pass q8_pass_of(omm_format format, size_t m) {
    if (q8_paired(format)) {
        const size_t tokens = Q8_TOKENS / 4;
        return (q8_pass){Q8_COLUMNS / 2, q8_tokens_step(m, tokens), Q8_TILES_MAX};
    }
    return (q8_pass){Q8_COLUMNS, q8_tokens_step(m, Q8_TOKENS), 2};
}

/* Columns of a strip, unpacked: as many as a pass takes. */
typedef struct q8_panel {
    uint8_t q[Q8_COLUMNS * VL];       /* as q8_dot takes them, or pairs */
    float scale[Q8_COLUMNS / VL][VL]; /* of each sub-block */
    float min[Q8_COLUMNS / VL][VL];
} q8_panel;

/* Group g of a chunk, for a panel. */
SIMD_INLINE void q8_unpack_group(const omm_format format, uint8_t *q, const uint8_t *chunk,
                                 const int g) {
    const vi w = q8_group(format, chunk, g);
#if SIMD_Q8_PAIRS
    if (q8_paired(format)) {
        vi_store(q + (ptrdiff_t)128 * g, vi_even_s8(w));
        vi_store(q + (ptrdiff_t)128 * g + 64, vi_odd_s8(w));
        return;
    }
#endif
    vi_store(q + (ptrdiff_t)64 * g, w);
}

/* Bytes of 32 columns in a panel. */
SIMD_INLINE size_t q8_chunk_bytes(const omm_format format) {
    return (size_t)OMM_QUANT_BLOCK * VL * (q8_paired(format) ? 2 : 1);
}

SIMD_INLINE void q8_unpack(const omm_format format, q8_panel *out, const uint8_t *strip, size_t k0,
                           size_t kc) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    const size_t bytes = quant_block_bytes(l), parts = (size_t)q8_parts(format);
    const uint8_t *block = strip + k0 / l->block * bytes;
    for (size_t k = 0; k < kc; k += OMM_QUANT_BLOCK) {
        const size_t c = k % l->block / OMM_QUANT_BLOCK;
        const uint8_t *chunk = block + quant_planes_at(l) + c * quant_chunk_bytes(l);
        uint8_t *q = out->q + k / OMM_QUANT_BLOCK * q8_chunk_bytes(format);
        SIMD_UNROLL for (int g = 0; g < 8; g++) q8_unpack_group(format, q, chunk, g);
        for (size_t h = 0; h < parts; h++) {
            const size_t j = k / OMM_QUANT_BLOCK * parts + h;
            vf scale, min;
            quant_scale(format, &scale, &min, block, (c * OMM_QUANT_BLOCK + h * VL) / l->sub);
            vf_store(out->scale[j], scale);
            if (l->has_min) vf_store(out->min[j], q8_addend(format, min));
        }
        if ((k + OMM_QUANT_BLOCK) % l->block == 0) block += bytes;
    }
}

/* With VNNI what products start with is made for all tokens of a pass, 16 at a time, and tiles load it.  Made in a
 * tile it is an operation a token of the two ports that the dots keep busy, and copies of zeros and for the second
 * strip.  Elsewhere loading it is slower (decision 132). */

/* Starts of one sub-block: one a token, padded so that those of a token do not share a cache's sets. */
#define Q8_STARTS (Q8_TOKENS + VL)

/* out[sub-blocks][Q8_STARTS]: q8_start of `count` tokens from m on, columns k0 .. k0 + kc. */
static void q8_starts(const omm_format format, int32_t *out, const omm_q8_rows *x, size_t m,
                      size_t count, size_t k0, size_t kc) {
    if (!SIMD_Q8_STARTS_APART || q8_bias(format) == 0) return;
    const int parts = q8_parts(format), bias = q8_bias(format);
    for (size_t k = k0; k < k0 + kc; k += OMM_QUANT_BLOCK) {
        const int16_t *sums = x->sums + 2 * (k / OMM_QUANT_BLOCK * x->stride + m);
        for (int h = 0; h < parts; h++, out += Q8_STARTS) {
            const vi factors = q8_halves(parts, h, -bias);
            for (size_t t = 0; t < count; t += VL) {
                const vi pairs = vi_load_n(sums + 2 * t, min_size(count - t, VL));
                vi_store(out + t, vi_dot_s16(vi_set1(Q8_ZERO), factors, pairs));
            }
        }
    }
}

/* Dwords of 32 columns of a token as pairs: those of even bytes, those of odd ones. */
#define Q8_PAIRS 16
#define Q8_PAIRS_AHEAD                                                                             \
    ((ptrdiff_t)4 * SIMD_Q8_TOKENS * Q8_PAIRS) /* blocks ahead of what a tile reads */

#if SIMD_Q8_PAIRS
/* out[tokens / SIMD_Q8_TOKENS][blocks][SIMD_Q8_TOKENS][Q8_PAIRS], as tiles read it: what q8_paired multiplies, of
 * `count` tokens from m on, columns k0 .. k0 + kc. */
static void q8_pairs(int32_t *out, const omm_q8_rows *x, size_t m, size_t count, size_t k0,
                     size_t kc) {
    const size_t blocks = kc / OMM_QUANT_BLOCK;
    for (size_t b = 0; b < blocks; b++)
        for (size_t t = 0; t < count; t++) {
            const size_t group = t / SIMD_Q8_TOKENS, in_group = t % SIMD_Q8_TOKENS;
            const size_t at = (k0 / OMM_QUANT_BLOCK + b) * x->stride + m + t;
            int32_t *to = out + ((group * blocks + b) * SIMD_Q8_TOKENS + in_group) * Q8_PAIRS;
            vi_store_pairs(to, x->q + at * OMM_QUANT_BLOCK);
        }
}
#else
#define q8_pairs(...) ((void)0)
#endif

/* Where those of token t are, which begins a tile. */
static const int32_t *q8_pairs_at(const int32_t *pairs, size_t kc, size_t t) {
    const size_t group = SIMD_Q8_TOKENS * kc / OMM_QUANT_BLOCK * Q8_PAIRS;
    return pairs + t / SIMD_Q8_TOKENS * group + t % SIMD_Q8_TOKENS * Q8_PAIRS;
}

/* A tile: SIMD_Q8_STRIPS strips from one whose first row is y[0], and a few tokens from m on.  Between
 * blocks of columns its sums lie tile by tile in scratch: in y, tokens of a power of two of rows would
 * share one set of a cache. */
typedef struct q8_tile {
    float *y;         /* [tokens][ldy], at the first strip's first row */
    size_t ldy, rows; /* rows: of y, from there */
    float *sums;      /* [tokens][Q8_TILE_ROWS] */
    const q8_panel *w;
    const int32_t *starts; /* [sub-blocks][Q8_STARTS], at token m */
    int bias;              /* where starts do not lie apart */
    const int32_t *pairs;  /* of q8_pairs, at token m */
    const omm_q8_rows *x;
    size_t m, k0, kc;
    bool first, last; /* block of columns */
} q8_tile;

#define Q8_TILE_ROWS ((size_t)SIMD_Q8_STRIPS * VL)

typedef struct q8_work {
    q8_panel panels[Q8_TILES_MAX * SIMD_Q8_STRIPS];
    /* Formats have the one or the other. */
    union {
        int32_t starts[Q8_COLUMNS / VL * Q8_STARTS];
        int32_t pairs[Q8_COLUMNS / 2 / OMM_QUANT_BLOCK * (Q8_TOKENS / 4) * Q8_PAIRS];
    } x;
    float sums[2 * Q8_TOKENS * Q8_TILE_ROWS]; /* [tiles][tokens][Q8_TILE_ROWS] */
} q8_work;

_Static_assert(sizeof(q8_work) <= WORK_FLOATS * sizeof(float), "scratch");

typedef vi q8_ints[SIMD_Q8_STRIPS][SIMD_Q8_TOKENS];
typedef vf q8_floats[SIMD_Q8_STRIPS][SIMD_Q8_TOKENS];

#define Q8_EACH_STRIP SIMD_UNROLL for (int s = 0; s < SIMD_Q8_STRIPS; s++)
#define Q8_EACH_TOKEN SIMD_UNROLL for (int t = 0; t < nt; t++)

SIMD_INLINE void q8_tile_load(const int nt, q8_floats acc, const q8_tile *tile) {
    Q8_EACH_STRIP Q8_EACH_TOKEN {
        const float *sums = tile->sums + (size_t)t * Q8_TILE_ROWS + (size_t)s * VL;
        acc[s][t] = tile->first ? vf_zero() : vf_load(sums);
    }
}

SIMD_INLINE void q8_tile_store(const int nt, const q8_floats acc, const q8_tile *tile) {
    if (!tile->last) {
        Q8_EACH_STRIP Q8_EACH_TOKEN {
            vf_store(tile->sums + (size_t)t * Q8_TILE_ROWS + (size_t)s * VL, acc[s][t]);
        }
        return;
    }
    Q8_EACH_STRIP {
        const size_t row = (size_t)s * VL, left = tile->rows > row ? tile->rows - row : 0;
        Q8_EACH_TOKEN {
            if (left > 0) vf_store_n(tile->y + (size_t)t * tile->ldy + row, acc[s][t], left);
        }
    }
}

/* Asks for the rows behind those at `at`, which the next tile takes: they lie apart from the next
 * block's. */
SIMD_INLINE void q8_tile_ahead(const int nt, const omm_q8_rows *x, size_t at) {
    SIMD_UNROLL for (size_t t = 0; t < (size_t)nt; t += 64 / OMM_QUANT_BLOCK) {
        SIMD_PREFETCH_NEAR(x->q + (at + (size_t)nt + t) * OMM_QUANT_BLOCK);
    }
}

/* dot += groups of w at `at` (in panels that lie side by side) times x, tokens 32 bytes apart. */
SIMD_INLINE void q8_tile_dots(const omm_format format, const int nt, const int groups, q8_ints dot,
                              const q8_panel *w, size_t at, const int8_t *x) {
    const int span = q8_span(format) < groups ? q8_span(format) : groups;
    SIMD_UNROLL for (int g = 0; g < groups; g += span) {
        vq p[SIMD_Q8_STRIPS][SIMD_Q8_TOKENS];
        Q8_EACH_STRIP Q8_EACH_TOKEN p[s][t] = vq_open(dot[s][t]);
        SIMD_UNROLL for (int i = 0; i < span; i++) {
            vi wv[SIMD_Q8_STRIPS];
            Q8_EACH_STRIP wv[s] = vi_load(w[s].q + (at + (size_t)(g + i)) * 64);
            Q8_EACH_TOKEN {
                const int8_t *four =
                    x + (ptrdiff_t)t * (int)OMM_QUANT_BLOCK + (ptrdiff_t)4 * (g + i);
                Q8_EACH_STRIP p[s][t] = q8_dot_at(format, p[s][t], wv[s], four);
            }
        }
        Q8_EACH_STRIP Q8_EACH_TOKEN dot[s][t] = vq_close(dot[s][t], p[s][t]);
    }
}

#if SIMD_Q8_PAIRS
/* dot += 32 columns of w times x, both as pairs.  Asks for x of the next tile. */
SIMD_INLINE void q8_tile_pairs(const int nt, q8_ints dot, const uint8_t *w, const int32_t *x) {
    const int32_t *ahead = x + Q8_PAIRS_AHEAD;
    Q8_EACH_TOKEN {
        SIMD_PREFETCH_NEAR(ahead + (ptrdiff_t)t * Q8_PAIRS);
    }
    SIMD_UNROLL for (int g = 0; g < 16; g++) {
        const vi wv = vi_load(w + (ptrdiff_t)64 * g);
        Q8_EACH_TOKEN {
            const vi xv = vi_set1(x[(ptrdiff_t)t * Q8_PAIRS + (ptrdiff_t)(g % 2) * 8 + g / 2]);
            dot[0][t] = vi_dot_s16_now(dot[0][t], wv, xv);
        }
    }
}
#else
#define q8_tile_pairs(...) ((void)0)
#endif

/* acc = fma(dot * scale, d_x, acc) for sub-block j. */
SIMD_INLINE void q8_tile_scale(const int nt, q8_floats acc, const q8_ints dot, const q8_tile *tile,
                               size_t j, size_t at) {
    Q8_EACH_STRIP {
        const q8_factor factor = q8_factor_of(vf_load(tile->w[s].scale[j]));
        Q8_EACH_TOKEN {
            const vf dx = vf_set1(tile->x->d[at + (size_t)t]);
            acc[s][t] = vf_fma(q8_scaled(dot[s][t], factor), dx, acc[s][t]);
        }
    }
}

SIMD_INLINE void q8_tile_minima(const omm_format format, const int nt, q8_floats acc,
                                const q8_tile *tile, size_t j, size_t at, const int h) {
    vf min[SIMD_Q8_STRIPS];
    Q8_EACH_STRIP min[s] = vf_load(tile->w[s].min[j]);
    Q8_EACH_TOKEN {
        const vf sum = q8_weighted(format, tile->x, at + (size_t)t, h);
        Q8_EACH_STRIP acc[s][t] = vf_fma(sum, min[s], acc[s][t]);
    }
}

/* What the products of sub-block j, which is h of its 32 columns, start with for token t. */
SIMD_INLINE vi q8_tile_start(const omm_format format, const q8_tile *tile, size_t j, const int h,
                             size_t at, size_t t) {
    if (q8_bias(format) == 0) return vi_set1(Q8_ZERO);
    return SIMD_Q8_STARTS_APART ? vi_set1(tile->starts[j * Q8_STARTS + t])
                                : q8_start(q8_parts(format), tile->bias, tile->x, at + t, h);
}

SIMD_INLINE void q8_tile_of(const omm_format format, const int nt, const q8_tile *tile) {
    const omm_q8_rows *x = tile->x;
    const int parts = q8_parts(format), groups = 8 / parts;
    q8_floats acc;
    q8_tile_load(nt, acc, tile);
    for (size_t b = 0; b < tile->kc / OMM_QUANT_BLOCK; b++) {
        const size_t at = (tile->k0 / OMM_QUANT_BLOCK + b) * x->stride + tile->m;
        if (!q8_paired(format)) q8_tile_ahead(nt, x, at);
        SIMD_UNROLL for (int h = 0; h < parts; h++) {
            const size_t j = b * (size_t)parts + (size_t)h;
            q8_ints dot;
            Q8_EACH_TOKEN {
                const vi start = q8_tile_start(format, tile, j, h, at, (size_t)t);
                Q8_EACH_STRIP dot[s][t] = start;
            }
            if (q8_paired(format))
                q8_tile_pairs(nt, dot, tile->w->q + b * q8_chunk_bytes(format),
                              tile->pairs + b * SIMD_Q8_TOKENS * Q8_PAIRS);
            else
                q8_tile_dots(format, nt, groups, dot, tile->w, j * (size_t)groups,
                             x->q + at * OMM_QUANT_BLOCK + (ptrdiff_t)h * 16);
            q8_tile_scale(nt, acc, dot, tile, j, at);
            if (QUANT_LAYOUT[format].has_min) q8_tile_minima(format, nt, acc, tile, j, at, h);
        }
    }
    q8_tile_store(nt, acc, tile);
}

/* Tiles of 1, 2, 4 and SIMD_Q8_TOKENS tokens. */
typedef struct q8_tiles {
    void (*of_1)(const q8_tile *tile);
    void (*of_2)(const q8_tile *tile);
    void (*of_4)(const q8_tile *tile); /* only where tiles are larger than 4 */
    void (*of_all)(const q8_tile *tile);
} q8_tiles;

#define Q8_TILE(F, NAME, NT)                                                                       \
    static __attribute__((noinline)) void q8_tile_##F##_##NAME(const q8_tile *tile) {              \
        q8_tile_of(OMM_FORMAT_##F, NT, tile);                                                      \
    }
#if SIMD_Q8_TOKENS == 6
#define Q8_TILE_4(F) Q8_TILE(F, 4, 4)
#define Q8_TILE_4_NAME(F) q8_tile_##F##_4
#else
#define Q8_TILE_4(F)
#define Q8_TILE_4_NAME(F) NULL
#endif
#define Q8_TILES_OF(F)                                                                             \
    Q8_TILE(F, 1, 1)                                                                               \
    Q8_TILE(F, 2, 2)                                                                               \
    Q8_TILE_4(F)                                                                                   \
    Q8_TILE(F, all, SIMD_Q8_TOKENS)                                                                \
    static const q8_tiles s_q8_tiles_##F = {q8_tile_##F##_1, q8_tile_##F##_2, Q8_TILE_4_NAME(F),   \
                                            q8_tile_##F##_all};
/* Of what is unpacked, bytes, sub-blocks and minima remain: formats in which these are alike share tiles. */
Q8_TILES_OF(Q8_0)
Q8_TILES_OF(Q4_0)
Q8_TILES_OF(Q4_1)
Q8_TILES_OF(Q5_0)
Q8_TILES_OF(Q5_1)
Q8_TILES_OF(Q2_K)
Q8_TILES_OF(Q3_K)
Q8_TILES_OF(Q6_K)

/* What one format brings. */
typedef struct q8_format {
    void (*unpack)(q8_panel *out, const uint8_t *strip, size_t k0, size_t kc);
    const q8_tiles *tiles;
} q8_format;

#define Q8_UNPACK(F)                                                                               \
    static __attribute__((noinline)) void q8_unpack_##F(q8_panel *out, const uint8_t *strip,       \
                                                        size_t k0, size_t kc) {                    \
        q8_unpack(OMM_FORMAT_##F, out, strip, k0, kc);                                             \
    }
QUANT_FORMATS(Q8_UNPACK)
#define Q8_FORMAT(F, UNPACK, TILES) [OMM_FORMAT_##F] = {q8_unpack_##UNPACK, &s_q8_tiles_##TILES},
static const q8_format s_q8_formats[OMM_FORMAT_COUNT] = {
    /* clang-format off */
    Q8_FORMAT(Q8_0, Q8_0, Q8_0)
    Q8_FORMAT(Q4_0, Q4_0, Q4_0)
    Q8_FORMAT(Q4_1, Q4_1, Q4_1)
    Q8_FORMAT(Q5_0, Q5_0, Q5_0)
    Q8_FORMAT(Q5_1, Q5_1, Q5_1)
    Q8_FORMAT(IQ4_NL, IQ4_NL, Q8_0)
    Q8_FORMAT(Q2_K, Q2_K, Q2_K)
    Q8_FORMAT(Q3_K, Q3_K, Q3_K)
    Q8_FORMAT(Q4_K, Q4_K, Q4_1)
    Q8_FORMAT(Q5_K, Q5_K, Q5_1)
    Q8_FORMAT(Q6_K, Q6_K, Q6_K)
    Q8_FORMAT(IQ4_XS, IQ4_XS, Q8_0)
    Q8_FORMAT(TQ1_0, TQ1_0, Q4_0)
    Q8_FORMAT(TQ2_0, TQ1_0, Q4_0)
    /* clang-format on */
};

/* Weights that are unpacked later: the same columns of some strips.  They are asked for while tokens pass, a few
 * lines a tile. */
typedef struct q8_next {
    const uint8_t *at;
    size_t bytes, strip_bytes, strips; /* bytes: of one strip's columns */
} q8_next;

/* Columns from k on, `most` of them, of strips s and those beside it, as many as a tile has; none from s1 on. */
static q8_next q8_next_of(const omm_matrix *w, size_t most, size_t k, size_t s, size_t s1) {
    const quant_layout *l = &QUANT_LAYOUT[w->format];
    const size_t columns = min_size(most, w->cols - k);
    if (s >= s1) return (q8_next){0};
    return (q8_next){.at = w->data + s * w->strip_bytes + k / l->block * quant_block_bytes(l),
                     .bytes = columns / l->block * quant_block_bytes(l),
                     .strip_bytes = w->strip_bytes,
                     .strips = min_size(SIMD_Q8_STRIPS, s1 - s)};
}

/* The `bytes` behind the first `done` of each strip. */
static void q8_next_ask(const q8_next *next, size_t done, size_t bytes) {
    for (size_t i = 0; i < next->strips; i++)
        for (size_t line = done; line < min_size(done + bytes, next->bytes); line += 64)
            SIMD_PREFETCH(next->at + i * next->strip_bytes + line);
}

/* Tokens m0 .. m1 of one block of columns; y, sums, starts and pairs of the tile are those of token m0. */
static void q8_tokens(const q8_tiles *tiles, q8_tile tile, const q8_next *next, size_t m0,
                      size_t m1) {
    const size_t count = (m1 - m0) / SIMD_Q8_TOKENS;
    const size_t step = count ? (next->bytes / count + 63) / 64 * 64 : 0;
    const int32_t *pairs = tile.pairs;
    size_t done = 0;
    for (size_t m = m0, nt = 0; m < m1; m += nt) {
        const size_t left = m1 - m;
        tile.m = m;
        tile.pairs = q8_pairs_at(pairs, tile.kc, m - m0);
        if (done < next->bytes) q8_next_ask(next, done, step);
        done += step;
        if (left >= SIMD_Q8_TOKENS) {
            nt = SIMD_Q8_TOKENS;
            tiles->of_all(&tile);
        } else if (left >= 4) {
            nt = 4;
            tiles->of_4(&tile);
        } else if (left >= 2) {
            nt = 2;
            tiles->of_2(&tile);
        } else {
            nt = 1;
            tiles->of_1(&tile);
        }
        tile.y += nt * tile.ldy;
        tile.sums += nt * Q8_TILE_ROWS;
        tile.starts += nt;
    }
}

/* Tokens m0 .. m1 (of a pass) of strips s .. s + count (its tiles, at most), after which those up to s1 come. */
static void q8_strips(q8_tile tile, float *y, const omm_matrix *w, const q8_pass *pass,
                      q8_work *work, size_t m0, size_t m1, size_t s, size_t count, size_t s1) {
    const q8_format *format = &s_q8_formats[w->format];
    const size_t end = min_size((s + count) * VL, w->rows);
    for (tile.k0 = 0; tile.k0 < w->cols; tile.k0 += tile.kc) {
        tile.kc = min_size(pass->columns, w->cols - tile.k0);
        tile.first = tile.k0 == 0;
        tile.last = tile.k0 + tile.kc == w->cols;
        for (size_t i = 0; i < count; i++)
            format->unpack(&work->panels[i], w->data + (s + i) * w->strip_bytes, tile.k0, tile.kc);
        q8_starts(w->format, work->x.starts, tile.x, m0, m1 - m0, tile.k0, tile.kc);
        if (q8_paired(w->format)) q8_pairs(work->x.pairs, tile.x, m0, m1 - m0, tile.k0, tile.kc);
        for (size_t i = 0; i < count; i += SIMD_Q8_STRIPS) {
            const q8_next next =
                tile.last ? q8_next_of(w, pass->columns, 0, s + count + i, s1)
                          : q8_next_of(w, pass->columns, tile.k0 + tile.kc, s + i, s + count);
            tile.w = work->panels + i;
            tile.sums = work->sums + i / SIMD_Q8_STRIPS * pass->tokens * Q8_TILE_ROWS;
            tile.y = y + m0 * w->rows + (s + i) * VL;
            tile.rows = end - (s + i) * VL;
            q8_tokens(format->tiles, tile, &next, m0, m1);
        }
    }
}

static void kernel_q8_linear(float *y, const omm_q8_rows *x, const omm_matrix *w, float *scratch,
                             size_t m0, size_t m1, size_t s0, size_t s1) {
    q8_work *work = (q8_work *)(void *)scratch;
    if (m1 - m0 <= SIMD_Q8_FEW_MAX) {
        q8_few_strips(y, x, w, m0, m1, s0, s1);
        return;
    }
    const q8_pass pass = q8_pass_of(w->format, m1 - m0);
    const size_t group = pass.tiles * SIMD_Q8_STRIPS;
    const q8_tile tile = {.ldy = w->rows,
                          .starts = work->x.starts,
                          .bias = q8_bias(w->format),
                          .pairs = work->x.pairs,
                          .x = x};
    for (size_t m = m0; m < m1; m += pass.tokens)
        for (size_t s = s0; s < s1; s += group)
            q8_strips(tile, y, w, &pass, work, m, min_size(m + pass.tokens, m1), s,
                      min_size(group, s1 - s), s1);
}
