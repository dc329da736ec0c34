/* simd_avx512.h - the operations of simd.h on AVX-512 (F, BW, DQ, VL, VNNI): one register.
 *
 * Included by simd.h alone, which says what each operation means.
 *
 * Depends on: simd.h, which it is a part of.  Threads: pure functions.
 */
#ifndef OMM_SIMD_AVX512_H
#define OMM_SIMD_AVX512_H

#include <immintrin.h>
#include <stdbool.h>

typedef __m512 vf;
typedef __m512i vi;

/* Tile of the matrix product: SIMD_MR rows by SIMD_NV vectors of accumulators. */
#define SIMD_MR 12
#define SIMD_NV 2
/* Whether each operation with factor i of a tile's step reads it by itself (vf_fma_at); else it is loaded once for all. */
#define SIMD_READS_EACH(i) ((i) % 3 != 2)
/* Strips and tokens of the int8 tile: all sums and accumulators stay in 32 registers. */
#define SIMD_Q8_STRIPS 2
#define SIMD_Q8_TOKENS 6
/* What sums start with is made for all tokens beforehand; a product of bytes is one instruction. */
#define SIMD_Q8_STARTS_APART 1
#define SIMD_ONE_DOT 1
/* vi_s8 counts each weight as w + SIMD_S8_BIAS: start the sum at -SIMD_S8_BIAS * sum(x). */
#define SIMD_S8_BIAS 128

SIMD_INLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
SIMD_INLINE void vf_store(float *p, vf x) {
    _mm512_storeu_ps(p, x);
}
SIMD_INLINE vf vf_set1(float x) {
    return _mm512_set1_ps(x);
}
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* Written out: compilers would load the factor once for all that read it. */
SIMD_INLINE vf vf_fma_at(const float *a, vf b, vf c) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}
SIMD_INLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
SIMD_INLINE vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
SIMD_INLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
SIMD_INLINE vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
SIMD_INLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
SIMD_INLINE vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
SIMD_INLINE vf vf_sqrt(vf a) {
    return _mm512_sqrt_ps(a);
}
SIMD_INLINE vi vi_load(const void *p) {
    return _mm512_loadu_si512(p);
}
SIMD_INLINE void vi_store(void *p, vi x) {
    _mm512_storeu_si512(p, x);
}
SIMD_INLINE vi vi_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
SIMD_INLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
SIMD_INLINE vi vi_sub(vi a, vi b) {
    return _mm512_sub_epi32(a, b);
}
SIMD_INLINE vi vi_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}
SIMD_INLINE vi vi_max(vi a, vi b) {
    return _mm512_max_epi32(a, b);
}
SIMD_INLINE vi vi_shl(vi a, int n) {
    return (vi)((__v16su)a << n);
}
SIMD_INLINE vi vi_sar(vi a, int n) {
    return (vi)((__v16si)a >> n);
}
SIMD_INLINE vf vf_from_vi(vi a) { /* value */
    return _mm512_cvtepi32_ps(a);
}
SIMD_INLINE vi vf_bits(vf a) { /* bit pattern */
    return _mm512_castps_si512(a);
}
SIMD_INLINE vf vi_as_vf(vi a) {
    return _mm512_castsi512_ps(a);
}
SIMD_INLINE vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
SIMD_INLINE void vf_store_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
/* 16 signed bytes. */
SIMD_INLINE vi vi_load_i8(const int8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* Low byte of each lane. */
SIMD_INLINE void vi_store_i8(int8_t *p, vi x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(x));
}
/* Neighbours change places: lanes 1, 0, 3, 2, ... */
SIMD_INLINE vf vf_swap_pairs(vf x) {
    return _mm512_permute_ps(x, 0xB1);
}
SIMD_INLINE vi vi_or(vi a, vi b) {
    return _mm512_or_si512(a, b);
}
SIMD_INLINE vi vi_load_u8(const uint8_t *p) { /* 16 bytes, one per lane */
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD_INLINE vf vf_load_bf16(const uint16_t *p) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
SIMD_INLINE int32_t vi_top(vi a) { /* largest lane */
    return _mm512_reduce_max_epi32(a);
}
SIMD_INLINE int32_t vi_total(vi a) { /* sum of the lanes */
    return _mm512_reduce_add_epi32(a);
}
/* Each byte b < 16 becomes table[b]. */
SIMD_INLINE vi vi_lookup(const int8_t table[16], vi b) {
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), b);
}
SIMD_INLINE vi vi_four(const int8_t *x) { /* the four bytes at x in every lane */
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm512_set1_epi32(v);
}
SIMD_INLINE vi vi_dot_s16(vi acc, vi w, vi x) { /* two products of 16-bit halves per lane */
    return _mm512_dpwssd_epi32(acc, w, x);
}
typedef vi vq;
SIMD_INLINE vq vq_open(vi acc) {
    return acc;
}
SIMD_INLINE vq vq_dot_u8(vq p, vi w, vi x) {
    return _mm512_dpbusd_epi32(p, w, x);
}
#define SIMD_DOTS_READ 1
typedef struct simd_four {
    int8_t bytes[4];
} simd_four;
/* vq_dot_u8 and vq_dot_s8 of the four bytes at x. */
SIMD_INLINE vq vq_dot_at(vq p, vi w, const int8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(p)
            : "v"(w), "m"(*(const simd_four *)(const void *)x));
    return p;
}
SIMD_INLINE vi vi_s8(vi w) {
    return _mm512_xor_si512(w, _mm512_set1_epi8(-128));
}
SIMD_INLINE vq vq_dot_s8(vq p, vi w, vi x) {
    return _mm512_dpbusd_epi32(p, w, x);
}
SIMD_INLINE vi vq_close(vi acc, vq p) {
    (void)acc;
    return p;
}
/* r[i] lane j <-> r[j] lane i. */
SIMD_INLINE void vf_transpose(vf r[VL]) {
    vf t[VL];
    SIMD_UNROLL for (int i = 0; i < VL; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    SIMD_UNROLL for (int i = 0; i < VL; i += 4) {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

#define SIMD_SCALES 1
/* p * 2^n, n = t - 1.5 * 2^23; 0 where x < c.  One rounding, as in two factors of which the first is exact. */
SIMD_INLINE vf vf_scale(vf p, vf t, vf x, vf c) {
    const vf n = _mm512_sub_ps(t, _mm512_set1_ps(12582912.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, c, _CMP_NLT_UQ), p, n);
}

#define SIMD_TURNS_FOUR 1
/* out[j * step .. + 4] = r[0..3] lane j: a quarter of a transpose, whose last step the stores are. */
SIMD_INLINE void vf_store_four(float *out, size_t step, const vf r[4]) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    const vf t[4] = {
        _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
        _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(b, d))};
    SIMD_UNROLL for (size_t i = 0; i < 4; i++) {
        _mm_storeu_ps(out + i * step, _mm512_castps512_ps128(t[i]));
        _mm_storeu_ps(out + (4 + i) * step, _mm512_extractf32x4_ps(t[i], 1));
        _mm_storeu_ps(out + (8 + i) * step, _mm512_extractf32x4_ps(t[i], 2));
        _mm_storeu_ps(out + (12 + i) * step, _mm512_extractf32x4_ps(t[i], 3));
    }
}

#define SIMD_QUANTIZES_FOUR 1
/* 32 columns of four rows of x, `stride` floats apart, as omm_q8_rows has them: q[4][32], d[4], sums[4][2],
 * weighted[4][3].  False, and nothing is written: one is not of plain numbers, or as good as zero. */
SIMD_INLINE bool vf_quantize_four(int8_t *q, float *d, int16_t *sums, float *weighted,
                                  const float *x, size_t stride) {
    const vi magnitude = vi_set1(0x7fffffff);
    vi top[4];
    SIMD_UNROLL for (size_t i = 0; i < 4; i++) {
        const vi low = vi_and(vf_bits(vf_load(x + i * stride)), magnitude);
        const vi high = vi_and(vf_bits(vf_load(x + i * stride + 16)), magnitude);
        top[i] = vi_max(low, high);
    }
    const vi top01 =
        vi_max(_mm512_unpacklo_epi32(top[0], top[1]), _mm512_unpackhi_epi32(top[0], top[1]));
    const vi top23 =
        vi_max(_mm512_unpacklo_epi32(top[2], top[3]), _mm512_unpackhi_epi32(top[2], top[3]));
    const vi quarters =
        vi_max(_mm512_unpacklo_epi64(top01, top23), _mm512_unpackhi_epi64(top01, top23));
    const __m256i halves =
        _mm256_max_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    const __m128i tops =
        _mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    const __m128 amax = _mm_castsi128_ps(tops), most = _mm_set1_ps(127.0f);
    if (_mm_cmp_epi32_mask(tops, _mm_set1_epi32(0x7f800000), _MM_CMPINT_NLT) != 0 ||
        _mm_cmp_ps_mask(amax, _mm_set1_ps(0x1p-100f), _CMP_LT_OQ) != 0)
        return false;
    const __m128 scales = _mm_div_ps(amax, most);
    const vf inverses = _mm512_castps128_ps512(_mm_div_ps(most, amax));
    vi words[4];
    SIMD_UNROLL for (size_t i = 0; i < 4; i++) {
        const vf inverse = _mm512_permutexvar_ps(vi_set1((int32_t)i), inverses);
        words[i] = _mm512_packs_epi32(
            _mm512_cvtps_epi32(_mm512_mul_ps(vf_load(x + i * stride), inverse)),
            _mm512_cvtps_epi32(_mm512_mul_ps(vf_load(x + i * stride + 16), inverse)));
    }
    /* Bytes of two rows, four of each half of each in every 128 bits, and their sums plus 128 each. */
    const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vi totals[2];
    SIMD_UNROLL for (size_t i = 0; i < 2; i++) {
        const vi bytes =
            _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words[2 * i], words[2 * i + 1]));
        vi_store(q + 64 * i, bytes);
        const vi eights = _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)),
                                          _mm512_setzero_si512());
        totals[i] = vi_add(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC));
    }
    /* Every 128 bits: a half of rows 0 and 2, or 1 and 3. */
    const vi mixed = _mm512_unpacklo_epi64(totals[0], totals[1]);
    const vi sorted = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 8, 2, 10, 4, 12, 6, 14, 0, 0, 0, 0, 0, 0, 0, 0), mixed);
    const __m256i both =
        _mm256_sub_epi32(_mm512_castsi512_si256(sorted), _mm256_set1_epi32(16 * 128));
    const __m128i first = _mm256_castsi256_si128(both), second = _mm256_extracti128_si256(both, 1);
    _mm_storeu_ps(d, scales);
    _mm_storeu_si128(
        (__m128i *)(void *)sums,
        _mm_or_si128(_mm_and_si128(first, _mm_set1_epi32(0xffff)), _mm_slli_epi32(second, 16)));
    vf parts = _mm512_castps128_ps512(_mm_mul_ps(_mm_cvtepi32_ps(first), scales));
    parts = _mm512_insertf32x4(parts, _mm_mul_ps(_mm_cvtepi32_ps(second), scales), 1);
    parts = _mm512_insertf32x4(
        parts, _mm_mul_ps(_mm_cvtepi32_ps(_mm_add_epi32(first, second)), scales), 2);
    _mm512_mask_storeu_ps(
        weighted, 0x0fff,
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 0, 0, 0, 0),
                              parts));
    return true;
}

#endif
