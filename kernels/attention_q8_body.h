/* attention_q8_body.h - rows against one block of 64 positions of a Q8_0 cache, in integers; part of
 * kernels_body.h.
 *
 * Queries and probabilities become integers as kernels.h says; sums of their products with the
 * cache's bytes are exact, so only the few steps in f32 that kernels.h names decide a result.  One
 * query's heads and many queries go the same way, up to ATTENTION_FEW rows at a time.
 */

#define ATTENTION_Q8_GROUPS (OMM_HEAD_DIM_MAX / OMM_KV_GROUP)
#define ATTENTION_Q8_BITS 12 /* the largest probability of a block becomes 2^12 .. 2^13 */

/* Vectors side by side. */
#if OMM_SIMD == OMM_SIMD_AVX512
#define ATTENTION_Q8_KEY_NV(ROWS) ((ROWS) < 4 ? 4 : 2)
#define ATTENTION_Q8_VALUE_NV 2
#else
#define ATTENTION_Q8_KEY_NV(ROWS) 1
#define ATTENTION_Q8_VALUE_NV 1
#endif

/* A row's query. */
typedef struct q8_query {
    int8_t q[OMM_HEAD_DIM_MAX]; /* zeros behind the last */
    float d[ATTENTION_Q8_GROUPS];
    int32_t start[ATTENTION_Q8_GROUPS]; /* takes away what a byte of a key counts more */
} q8_query;

_Static_assert(sizeof(q8_query) <= ATTENTION_LD * sizeof(float), "lies where a row's query does");

static void q8_query_set(q8_query *out, const float *x, size_t d) {
    for (size_t g = 0, at = 0; at < d; g++, at += OMM_KV_GROUP) {
        float part[OMM_KV_GROUP] = {0}, inverse = 0.0f;
        memcpy(part, x + at, min_size(OMM_KV_GROUP, d - at) * sizeof *part);
        out->d[g] =
            q8_scale(&inverse, vi_top(vi_max(q8_magnitudes(part), q8_magnitudes(part + VL))));
        out->start[g] = 0;
        if (inverse == 0.0f) {
            memset(out->q + at, 0, OMM_KV_GROUP);
            continue;
        }
        const vi low = q8_round(out->q + at, part, vf_set1(inverse));
        const vi high = q8_round(out->q + at + VL, part + VL, vf_set1(inverse));
        out->start[g] = -SIMD_S8_BIAS * vi_total(vi_add(low, high));
    }
}

SIMD_INLINE vi q8_dot_key(vi acc, vi key, const int8_t *q) {
    return vq_close(acc, vq_dot_s8(vq_open(acc), key, vi_four(q)));
}

SIMD_INLINE vi q8_dot_value(vi acc, const int8_t *p, vi value) {
    return vq_close(acc, vq_dot_u8(vq_open(acc), vi_four(p), value));
}

/* Keys of one head in a block. */
typedef struct q8_keys {
    const uint8_t *data; /* [width / 4][64][4] */
    size_t width;
    few_ahead next;
} q8_keys;

static const q8_query *q8_query_of(const float *q, int r) {
    return (const q8_query *)(const void *)(q + (size_t)r * ATTENTION_LD);
}

/* dot[rows][nv] += integer products of `steps` times four dimensions from 4 k on, positions j .. j + 16 nv */
SIMD_INLINE void q8_key_dots(const int rows, const int nv, const int steps,
                             vi dot[ATTENTION_FEW][4], const float *q, const q8_keys *keys,
                             size_t k, size_t j) {
    const uint8_t *data = keys->data + (k * OMM_KV_BLOCK + j) * 4;
    SIMD_UNROLL for (int i = 0; i < steps; i++) {
        if (j == 0) {
            few_ask(&keys->next, k + (size_t)i);
        }
        SIMD_UNROLL for (int v = 0; v < nv; v++) {
            const vi key = vi_s8(vi_load(data + ((size_t)i * OMM_KV_BLOCK + (size_t)v * VL) * 4));
            SIMD_UNROLL for (int r = 0; r < rows; r++) {
                dot[r][v] = q8_dot_key(dot[r][v], key, q8_query_of(q, r)->q + (k + (size_t)i) * 4);
            }
        }
    }
}

/* s[rows][64] */
SIMD_INLINE void q8_scores(const int rows, float *s, const float *q, const q8_keys *keys) {
    enum { STEPS = OMM_KV_GROUP / 4 };
    const int nv = ATTENTION_Q8_KEY_NV(rows);
    const uint16_t *scales =
        (const uint16_t *)(const void *)(keys->data + keys->width * OMM_KV_BLOCK);
    for (size_t j = 0; j < OMM_KV_BLOCK; j += (size_t)nv * VL) {
        vf acc[ATTENTION_FEW][4];
        SIMD_UNROLL for (int r = 0; r < rows; r++) {
            SIMD_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = vf_zero();
        }
        for (size_t g = 0; g * OMM_KV_GROUP < keys->width; g++) {
            const size_t k = g * STEPS;
            vi dot[ATTENTION_FEW][4];
            SIMD_UNROLL for (int r = 0; r < rows; r++) {
                const vi start = vi_set1(q8_query_of(q, r)->start[g]);
                SIMD_UNROLL for (int v = 0; v < nv; v++) dot[r][v] = start;
            }
            if (k + STEPS <= keys->width / 4)
                q8_key_dots(rows, nv, STEPS, dot, q, keys, k, j);
            else
                q8_key_dots(rows, nv, STEPS / 2, dot, q, keys, k, j);
            SIMD_UNROLL for (int v = 0; v < nv; v++) {
                const vf scale = vf_load_f16(scales + g * OMM_KV_BLOCK + j + (size_t)v * VL);
                SIMD_UNROLL for (int r = 0; r < rows; r++) {
                    const vf d = vf_mul(scale, vf_set1(q8_query_of(q, r)->d[g]));
                    acc[r][v] = vf_fma(vf_from_vi(dot[r][v]), d, acc[r][v]);
                }
            }
        }
        SIMD_UNROLL for (int r = 0; r < rows; r++) {
            SIMD_UNROLL for (int v = 0; v < nv; v++) {
                vf_store(s + (size_t)r * ATTENTION_LD + j + (size_t)v * VL, acc[r][v]);
            }
        }
    }
}

/* A row's probabilities in a block, times the scales of the values of each group: 128 high + low. */
typedef struct q8_weights {
    int8_t high[ATTENTION_Q8_GROUPS][OMM_KV_BLOCK], low[ATTENTION_Q8_GROUPS][OMM_KV_BLOCK];
    float d[ATTENTION_Q8_GROUPS];
} q8_weights;

_Static_assert(ATTENTION_FEW * sizeof(q8_weights) <=
                   sizeof(float) * OMM_KV_BLOCK * OMM_HEAD_DIM_MAX,
               "lie where a block in f32 does");

static float q8_power(int32_t exponent) { /* 2^exponent, -126 .. 127 */
    const int32_t bits = (exponent + 127) << 23;
    float r = 0.0f;
    memcpy(&r, &bits, sizeof r);
    return r;
}

/* x[64] of group g. */
SIMD_INLINE void q8_weights_of(q8_weights *out, size_t g, const vf x[OMM_KV_BLOCK / VL]) {
    enum { NV = OMM_KV_BLOCK / VL };
    const vi magnitude = vi_set1(0x7fffffff), zero = vi_set1(0x4B400000), low = vi_set1(127);
    vi top = vi_and(vf_bits(x[0]), magnitude);
    SIMD_UNROLL for (int v = 1; v < NV; v++) top = vi_max(top, vi_and(vf_bits(x[v]), magnitude));
    const int32_t exponent = (vi_top(top) >> 23) - 127;
    const bool some = exponent >= -100 && exponent < 128;
    const vf up = vf_set1(some ? q8_power(ATTENTION_Q8_BITS - exponent) : 0.0f);
    out->d[g] = some ? q8_power(exponent - ATTENTION_Q8_BITS) : exponent < 128 ? 0.0f : NAN;
    SIMD_UNROLL for (int v = 0; v < NV; v++) {
        const vi u = vi_sub(vf_bits(vf_fma(x[v], up, vf_set1(12582912.0f))), zero);
        vi_store_i8(out->high[g] + (ptrdiff_t)v * VL, vi_sar(u, 7));
        vi_store_i8(out->low[g] + (ptrdiff_t)v * VL, vi_and(u, low));
    }
}

/* p[64], those that the row sees: begin .. end; scales [groups][64] f16. */
static void q8_weights_set(q8_weights *out, const float *p, const uint16_t *scales, size_t groups,
                           size_t begin, size_t end) {
    enum { NV = OMM_KV_BLOCK / VL };
    for (size_t g = 0; g < groups; g++, scales += OMM_KV_BLOCK) {
        vf x[NV];
        SIMD_UNROLL for (int v = 0; v < NV; v++) {
            const ptrdiff_t at = (ptrdiff_t)v * VL;
            x[v] = vf_mul(vf_load(p + at), vf_load_f16(scales + at));
        }
        if (begin > 0 || end < OMM_KV_BLOCK) { /* the other positions' scales are anybody's */
            float seen[OMM_KV_BLOCK];
            SIMD_UNROLL for (int v = 0; v < NV; v++) vf_store(seen + (ptrdiff_t)v * VL, x[v]);
            for (size_t j = 0; j < begin; j++) seen[j] = 0.0f;
            for (size_t j = end; j < OMM_KV_BLOCK; j++) seen[j] = 0.0f;
            SIMD_UNROLL for (int v = 0; v < NV; v++) x[v] = vf_load(seen + (ptrdiff_t)v * VL);
        }
        q8_weights_of(out, g, x);
    }
}

/* Values of one head in a block, and which of its positions any row sees. */
typedef struct q8_values {
    const uint8_t *data; /* [64 / 4][width][4] */
    size_t width, begin, end;
    few_ahead next;
} q8_values;

/* Columns side by side; and how often the values of `width` columns ask for what is next. */
#define Q8_VALUE_COLUMNS ((size_t)ATTENTION_Q8_VALUE_NV * VL)
#define Q8_VALUE_ASKS(WIDTH)                                                                       \
    (((WIDTH) + Q8_VALUE_COLUMNS - 1) / Q8_VALUE_COLUMNS * (OMM_KV_BLOCK / 4))

/* o[rows][16 nv] += the rows' weights times values, columns i .. i + 16 nv of one group */
SIMD_INLINE void q8_columns(const int rows, const int nv, float *o, const q8_weights *p,
                            const q8_values *b, size_t i) {
    enum { STEPS = VL / 4, QUADS = OMM_KV_BLOCK / 4 }; /* of four positions */
    const size_t g = i / OMM_KV_GROUP;
    vi high[ATTENTION_FEW][2], low[ATTENTION_FEW][2];
    SIMD_UNROLL for (int r = 0; r < rows; r++) {
        SIMD_UNROLL for (int v = 0; v < nv; v++) high[r][v] = low[r][v] = vi_set1(0);
    }
    for (size_t j = b->begin / VL * STEPS; j * 4 < b->end; j += STEPS) {
        const uint8_t *data = b->data + (j * b->width + i) * 4;
        SIMD_UNROLL for (int k = 0; k < STEPS; k++) {
            few_ask(&b->next, i / Q8_VALUE_COLUMNS * QUADS + j + (size_t)k);
            SIMD_UNROLL for (int v = 0; v < nv; v++) {
                const vi value = vi_load(data + ((size_t)k * b->width + (size_t)v * VL) * 4);
                SIMD_UNROLL for (int r = 0; r < rows; r++) {
                    const size_t at = (j + (size_t)k) * 4;
                    high[r][v] = q8_dot_value(high[r][v], p[r].high[g] + at, value);
                    low[r][v] = q8_dot_value(low[r][v], p[r].low[g] + at, value);
                }
            }
        }
    }
    SIMD_UNROLL for (int r = 0; r < rows; r++) {
        SIMD_UNROLL for (int v = 0; v < nv; v++) {
            float *at = o + (size_t)r * ATTENTION_LD + i + (size_t)v * VL;
            const vf sum = vf_from_vi(vi_add(vi_shl(high[r][v], 7), low[r][v]));
            vf_store(at, vf_fma(sum, vf_set1(p[r].d[g]), vf_load(at)));
        }
    }
}

SIMD_INLINE void q8_add_values(const int rows, float *o, const q8_weights *p, const q8_values *b) {
    size_t i = 0;
    for (; i + Q8_VALUE_COLUMNS <= b->width; i += Q8_VALUE_COLUMNS)
        q8_columns(rows, ATTENTION_Q8_VALUE_NV, o, p, b, i);
    for (; i < b->width; i += VL) q8_columns(rows, 1, o, p, b, i);
}

typedef struct q8_kernel {
    void (*scores)(float *s, const float *q, const q8_keys *keys);
    void (*values)(float *o, const q8_weights *p, const q8_values *b);
} q8_kernel;

#define Q8_KERNEL(ROWS)                                                                            \
    static __attribute__((noinline)) void q8_scores_##ROWS(float *s, const float *q,               \
                                                           const q8_keys *keys) {                  \
        q8_scores(ROWS, s, q, keys);                                                               \
    }                                                                                              \
    static __attribute__((noinline)) void q8_values_##ROWS(float *o, const q8_weights *p,          \
                                                           const q8_values *b) {                   \
        q8_add_values(ROWS, o, p, b);                                                              \
    }
#define Q8_KERNELS(EACH) EACH(1) EACH(2) EACH(3) EACH(4)
Q8_KERNELS(Q8_KERNEL)
#define Q8_NAME(ROWS) {q8_scores_##ROWS, q8_values_##ROWS},
static const q8_kernel s_q8_attention[ATTENTION_FEW] = {Q8_KERNELS(Q8_NAME)};
