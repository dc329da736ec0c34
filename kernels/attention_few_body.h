/* attention_few_body.h - one query's heads against one block of 64 positions; part of kernels_body.h.
 *
 * What decoding does with a cache of floats (Q8_0: attention_q8_body.h).  A block is not turned into f32 for so few rows: keys (then values) are widened
 * in registers and go straight into the chains of up to ATTENTION_FEW rows, the same chains as those
 * of the products in attention_body.h.
 */

#define ATTENTION_FEW 4

/* Vectors side by side. */
#if OMM_SIMD == OMM_SIMD_AVX512
#define ATTENTION_FEW_NV 4
#else
#define ATTENTION_FEW_NV 1
#endif

static void halves_f32(float *out, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i += VL) vf_store(out + i, vf_load_f16(from + i));
}

/* 16 elements, `at` elements behind data. */
SIMD_INLINE vf few_load(const omm_kv_type type, const uint8_t *data, size_t at) {
    if (type == OMM_KV_F32) return vf_load((const float *)(const void *)data + at);
    return vf_load_f16((const uint16_t *)(const void *)data + at);
}

/* What will be read after this block's keys (or values), asked for line by line on the way. */
typedef struct few_ahead {
    const uint8_t *data;
    size_t step;  /* bytes asked for with each row of keys or values, a multiple of 64 */
    size_t bytes; /* in all */
    bool near;    /* ask_near() */
} few_ahead;

SIMD_INLINE void few_ask(const few_ahead *next, size_t row) {
    const size_t end = min_size((row + 1) * next->step, next->bytes);
    for (size_t at = row * next->step; at < end; at += 64)
        if (next->near)
            SIMD_PREFETCH_NEAR(next->data + at);
        else
            SIMD_PREFETCH(next->data + at);
}

/* s[rows][64] = q[rows][d] keys[d][64] */
SIMD_INLINE void few_keys(const omm_kv_type type, const int rows, float *s, const float *q,
                          const uint8_t *keys, size_t d, const few_ahead *next) {
    for (size_t j = 0; j < OMM_KV_BLOCK; j += (size_t)ATTENTION_FEW_NV * VL) {
        vf acc[ATTENTION_FEW][ATTENTION_FEW_NV];
        SIMD_UNROLL for (int r = 0; r < rows; r++) {
            SIMD_UNROLL for (int v = 0; v < ATTENTION_FEW_NV; v++) acc[r][v] = vf_zero();
        }
        for (size_t k = 0; k < d; k++) {
            if (j == 0) {
                few_ask(next, k);
            }
            SIMD_UNROLL for (int v = 0; v < ATTENTION_FEW_NV; v++) {
                const vf x = few_load(type, keys, k * OMM_KV_BLOCK + j + (size_t)v * VL);
                SIMD_UNROLL for (int r = 0; r < rows; r++) {
                    acc[r][v] = vf_fma(vf_set1(q[(size_t)r * ATTENTION_LD + k]), x, acc[r][v]);
                }
            }
        }
        SIMD_UNROLL for (int r = 0; r < rows; r++) {
            SIMD_UNROLL for (int v = 0; v < ATTENTION_FEW_NV; v++) {
                vf_store(s + (size_t)r * ATTENTION_LD + j + (size_t)v * VL, acc[r][v]);
            }
        }
    }
}

/* Values of one head in a block, and which of its positions count. */
typedef struct few_block {
    const uint8_t *values; /* [64][width] */
    size_t width, begin, end;
    few_ahead next;
} few_block;

/* o[rows][16 nv] += p[rows][begin .. end] values, columns i .. i + 16 nv */
SIMD_INLINE void few_columns(const omm_kv_type type, const int rows, const int nv, float *o,
                             const float *p, const few_block *b, size_t i) {
    vf acc[ATTENTION_FEW][ATTENTION_FEW_NV];
    SIMD_UNROLL for (int r = 0; r < rows; r++) {
        SIMD_UNROLL for (int v = 0; v < nv; v++) {
            acc[r][v] = vf_load(o + (size_t)r * ATTENTION_LD + i + (size_t)v * VL);
        }
    }
    for (size_t j = b->begin; j < b->end; j++) {
        if (i == 0) {
            few_ask(&b->next, j);
        }
        SIMD_UNROLL for (int v = 0; v < nv; v++) {
            const vf x = few_load(type, b->values, j * b->width + i + (size_t)v * VL);
            SIMD_UNROLL for (int r = 0; r < rows; r++) {
                acc[r][v] = vf_fma(vf_set1(p[(size_t)r * ATTENTION_LD + j]), x, acc[r][v]);
            }
        }
    }
    SIMD_UNROLL for (int r = 0; r < rows; r++) {
        SIMD_UNROLL for (int v = 0; v < nv; v++) {
            vf_store(o + (size_t)r * ATTENTION_LD + i + (size_t)v * VL, acc[r][v]);
        }
    }
}

SIMD_INLINE void few_values(const omm_kv_type type, const int rows, float *o, const float *p,
                            const few_block *b) {
    const size_t step = (size_t)ATTENTION_FEW_NV * VL;
    size_t i = 0;
    for (; i + step <= b->width; i += step) few_columns(type, rows, ATTENTION_FEW_NV, o, p, b, i);
    for (; i < b->width; i += VL) few_columns(type, rows, 1, o, p, b, i);
}

typedef struct few_kernel {
    void (*keys)(float *s, const float *q, const uint8_t *keys, size_t d, const few_ahead *next);
    void (*values)(float *o, const float *p, const few_block *b);
} few_kernel;

#define FEW_KERNEL(T, ROWS)                                                                        \
    static __attribute__((noinline)) void few_keys_##T##_##ROWS(                                   \
        float *s, const float *q, const uint8_t *keys, size_t d, const few_ahead *next) {          \
        few_keys(OMM_KV_##T, ROWS, s, q, keys, d, next);                                           \
    }                                                                                              \
    static __attribute__((noinline)) void few_values_##T##_##ROWS(float *o, const float *p,        \
                                                                  const few_block *b) {            \
        few_values(OMM_KV_##T, ROWS, o, p, b);                                                     \
    }
#define FEW_KERNELS(T) FEW_KERNEL(T, 1) FEW_KERNEL(T, 2) FEW_KERNEL(T, 3) FEW_KERNEL(T, 4)
FEW_KERNELS(F32)
FEW_KERNELS(F16)
#define FEW_NAME(T, ROWS)                                                                          \
    { few_keys_##T##_##ROWS, few_values_##T##_##ROWS }
#define FEW_NAMES(T) [OMM_KV_##T] = {FEW_NAME(T, 1), FEW_NAME(T, 2), FEW_NAME(T, 3), FEW_NAME(T, 4)}
static const few_kernel s_few[OMM_KV_TYPE_COUNT][ATTENTION_FEW] = {FEW_NAMES(F32), FEW_NAMES(F16)};
