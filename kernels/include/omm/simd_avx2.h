/* simd_avx2.h - the operations of simd.h on AVX2, FMA and F16C, and AVX-VNNI where it may be used: two
 * registers of 8 lanes.
 *
 * Included by simd.h alone, which says what each operation means.
 *
 * Depends on: simd.h, which it is a part of.  Threads: pure functions.
 */
#ifndef OMM_SIMD_AVX2_H
#define OMM_SIMD_AVX2_H

#include <immintrin.h>

typedef struct vf {
    __m256 a, b; /* lanes 0..7, 8..15 */
} vf;
typedef struct vi {
    __m256i a, b;
} vi;

#define SIMD_MR 6
#define SIMD_NV 1
#define SIMD_Q8_STRIPS 1
#define SIMD_Q8_TOKENS 4

/* Products of bytes in one instruction: of AVX-VNNI, or of AVX-512 VNNI on 256 bits, which is the same in another encoding
 * (cmake/OmmIsa.cmake says for what). */
#if defined(__AVXVNNI__)
#define SIMD_ONE_DOT 1
#define SIMD_DPBUSD _mm256_dpbusd_avx_epi32
#define SIMD_DPWSSD _mm256_dpwssd_avx_epi32
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define SIMD_ONE_DOT 1
#define SIMD_DPBUSD _mm256_dpbusd_epi32
#define SIMD_DPWSSD _mm256_dpwssd_epi32
#else
#define SIMD_ONE_DOT 0
#endif
#define SIMD_Q8_STARTS_APART SIMD_ONE_DOT
#define SIMD_S8_BIAS (SIMD_ONE_DOT ? 128 : 0)

SIMD_INLINE vf vf_load(const float *p) {
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SIMD_INLINE void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
SIMD_INLINE vf vf_set1(float x) {
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) {
    return (vf){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}
SIMD_INLINE vf vf_add(vf a, vf b) {
    return (vf){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_sub(vf a, vf b) {
    return (vf){_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_mul(vf a, vf b) {
    return (vf){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_div(vf a, vf b) {
    return (vf){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_max(vf a, vf b) {
    return (vf){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_min(vf a, vf b) {
    return (vf){_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)};
}
SIMD_INLINE vf vf_sqrt(vf a) {
    return (vf){_mm256_sqrt_ps(a.a), _mm256_sqrt_ps(a.b)};
}
SIMD_INLINE vi vi_load(const void *p) {
    return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1)};
}
SIMD_INLINE void vi_store(void *p, vi x) {
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}
SIMD_INLINE vi vi_set1(int32_t x) {
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
SIMD_INLINE vi vi_add(vi a, vi b) {
    return (vi){_mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b)};
}
SIMD_INLINE vi vi_sub(vi a, vi b) {
    return (vi){_mm256_sub_epi32(a.a, b.a), _mm256_sub_epi32(a.b, b.b)};
}
SIMD_INLINE vi vi_and(vi a, vi b) {
    return (vi){_mm256_and_si256(a.a, b.a), _mm256_and_si256(a.b, b.b)};
}
SIMD_INLINE vi vi_max(vi a, vi b) {
    return (vi){_mm256_max_epi32(a.a, b.a), _mm256_max_epi32(a.b, b.b)};
}
SIMD_INLINE vi vi_shl(vi a, int n) {
    return (vi){_mm256_slli_epi32(a.a, n), _mm256_slli_epi32(a.b, n)};
}
SIMD_INLINE vi vi_sar(vi a, int n) {
    return (vi){_mm256_srai_epi32(a.a, n), _mm256_srai_epi32(a.b, n)};
}
SIMD_INLINE vf vf_from_vi(vi a) {
    return (vf){_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b)};
}
SIMD_INLINE vi vf_bits(vf a) {
    return (vi){_mm256_castps_si256(a.a), _mm256_castps_si256(a.b)};
}
SIMD_INLINE vf vi_as_vf(vi a) {
    return (vf){_mm256_castsi256_ps(a.a), _mm256_castsi256_ps(a.b)};
}
SIMD_INLINE vf vf_load_f16(const uint16_t *p) {
    const __m128i *q = (const __m128i *)(const void *)p;
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
SIMD_INLINE void vf_store_f16(uint16_t *p, vf x) {
    __m128i *q = (__m128i *)(void *)p;
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
SIMD_INLINE vi vi_load_i8(const int8_t *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
SIMD_INLINE void vi_store_i8(int8_t *p, vi x) {
    int32_t t[VL];
    vi_store(t, x);
    for (int i = 0; i < VL; i++) p[i] = (int8_t)t[i];
}
SIMD_INLINE vf vf_swap_pairs(vf x) {
    return (vf){_mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1)};
}
SIMD_INLINE vi vi_or(vi a, vi b) {
    return (vi){_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b)};
}
SIMD_INLINE vi vi_load_u8(const uint8_t *p) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
SIMD_INLINE __m256 simd_bf16(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
SIMD_INLINE vf vf_load_bf16(const uint16_t *p) {
    const __m128i *q = (const __m128i *)(const void *)p;
    return (vf){simd_bf16(_mm_loadu_si128(q)), simd_bf16(_mm_loadu_si128(q + 1))};
}
SIMD_INLINE int32_t vi_top(vi a) {
    __m256i m = _mm256_max_epi32(a.a, a.b);
    __m128i n = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0x4e));
    n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0xb1));
    return _mm_cvtsi128_si32(n);
}
SIMD_INLINE int32_t vi_total(vi a) {
    __m256i m = _mm256_add_epi32(a.a, a.b);
    __m128i n = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    n = _mm_add_epi32(n, _mm_shuffle_epi32(n, 0x4e));
    n = _mm_add_epi32(n, _mm_shuffle_epi32(n, 0xb1));
    return _mm_cvtsi128_si32(n);
}
SIMD_INLINE vi vi_lookup(const int8_t table[16], vi b) {
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    __m256i both = _mm256_broadcastsi128_si256(t);
    return (vi){_mm256_shuffle_epi8(both, b.a), _mm256_shuffle_epi8(both, b.b)};
}
SIMD_INLINE vi vi_four(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    return vi_set1(v);
}
#if SIMD_ONE_DOT
SIMD_INLINE vi vi_dot_s16(vi acc, vi w, vi x) {
    return (vi){SIMD_DPWSSD(acc.a, w.a, x.a), SIMD_DPWSSD(acc.b, w.b, x.b)};
}
typedef vi vq;
SIMD_INLINE vq vq_open(vi acc) {
    return acc;
}
SIMD_INLINE vq vq_dot_u8(vq p, vi w, vi x) {
    return (vq){SIMD_DPBUSD(p.a, w.a, x.a), SIMD_DPBUSD(p.b, w.b, x.b)};
}
SIMD_INLINE vi vi_s8(vi w) {
    const __m256i top = _mm256_set1_epi8(-128);
    return (vi){_mm256_xor_si256(w.a, top), _mm256_xor_si256(w.b, top)};
}
SIMD_INLINE vq vq_dot_s8(vq p, vi w, vi x) {
    return vq_dot_u8(p, w, x);
}
SIMD_INLINE vi vq_close(vi acc, vq p) {
    (void)acc;
    return p;
}
#else
SIMD_INLINE vi vi_dot_s16(vi acc, vi w, vi x) {
    return (vi){_mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, x.a)),
                _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, x.b))};
}
/* Sixteen-bit partial sums: the caller adds no more than fit (SIMD_SPAN). */
typedef vi vq;
SIMD_INLINE vq vq_open(vi acc) {
    (void)acc;
    return (vq){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
SIMD_INLINE vq vq_dot_u8(vq p, vi w, vi x) {
    p = (vq){_mm256_add_epi16(p.a, _mm256_maddubs_epi16(w.a, x.a)),
             _mm256_add_epi16(p.b, _mm256_maddubs_epi16(w.b, x.b))};
    /* One after the other: gcc would make a tree of the sums and keep all products on the stack. */
    __asm__("" : "+x"(p.a), "+x"(p.b));
    return p;
}
SIMD_INLINE vi vi_s8(vi w) {
    return w;
}
/* |w| * sign(x, w): pairs reach at most 2 * 128 * 127 = 32512, so 16 bits never saturate. */
SIMD_INLINE vq vq_dot_s8(vq p, vi w, vi x) {
    return vq_dot_u8(p, (vi){_mm256_abs_epi8(w.a), _mm256_abs_epi8(w.b)},
                     (vi){_mm256_sign_epi8(x.a, w.a), _mm256_sign_epi8(x.b, w.b)});
}
SIMD_INLINE vi vq_close(vi acc, vq p) {
    return vi_dot_s16(acc, p, (vi){_mm256_set1_epi16(1), _mm256_set1_epi16(1)});
}
/* Signed bytes as pairs of 16 bits, which one product takes (vi_dot_s16): bytes 0 and 2 of each lane, bytes 1 and 3. */
#define SIMD_Q8_PAIRS 1
SIMD_INLINE __m256i simd_even_s8(__m256i v) {
    return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}
SIMD_INLINE vi vi_even_s8(vi w) {
    return (vi){simd_even_s8(w.a), simd_even_s8(w.b)};
}
SIMD_INLINE vi vi_odd_s8(vi w) {
    return (vi){_mm256_srai_epi16(w.a, 8), _mm256_srai_epi16(w.b, 8)};
}
/* Of 32 bytes: the eight even pairs, the eight odd ones. */
SIMD_INLINE void vi_store_pairs(int32_t out[16], const int8_t *x) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    _mm256_storeu_si256((__m256i *)(void *)out, simd_even_s8(v));
    _mm256_storeu_si256((__m256i *)(void *)(out + 8), _mm256_srai_epi16(v, 8));
}
/* For the same reason as in vq_dot_u8. */
SIMD_INLINE vi vi_dot_s16_now(vi acc, vi w, vi x) {
    acc = vi_dot_s16(acc, w, x);
    __asm__("" : "+x"(acc.a), "+x"(acc.b));
    return acc;
}
#endif
/* One 8 x 8 corner, in place. */
SIMD_INLINE void simd_transpose8(__m256 r[8]) {
    __m256 t[8];
    SIMD_UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    SIMD_UNROLL for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    SIMD_UNROLL for (int i = 0; i < 8; i++) r[i] = t[i];
}
SIMD_INLINE void vf_transpose(vf r[VL]) {
    __m256 q[4][8];
    SIMD_UNROLL for (int i = 0; i < 8; i++) {
        q[0][i] = r[i].a;
        q[1][i] = r[i].b;
        q[2][i] = r[8 + i].a;
        q[3][i] = r[8 + i].b;
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) simd_transpose8(q[i]);
    SIMD_UNROLL for (int i = 0; i < 8; i++) {
        r[i] = (vf){q[0][i], q[2][i]};
        r[8 + i] = (vf){q[1][i], q[3][i]};
    }
}

#endif
