/* simd.h - 16 lanes of f32 or i32, the same on every instruction set, for kernel sources.
 *
 * A kernel is written once over `vf` (16 f32) and `vi` (16 i32) and compiled once per instruction
 * set: a thin file defines OMM_SIMD as one of the four values below, includes this header and then
 * the shared body, and gets its own compiler flags (cmake/OmmIsa.cmake):
 *
 *   #define OMM_SIMD OMM_SIMD_AVX2
 *   #include "omm/simd.h"
 *   #include "my_kernels_body.h"
 *
 * Each operation is one IEEE operation per lane, rounded to nearest even, so every instruction set
 * gives the same bits.  Functions have short names because kernels read like formulas.
 *   vf_fma(a, b, c) = a * b + c, rounded once.  vf_max(a, b) = a > b ? a : b, also for NaN.
 *
 * Products of bytes: p = vq_open(acc); p = vq_dot_u8(p, w, x) a few times; acc = vq_close(acc, p).
 *   vq_dot_u8, vq_dot_s8   lane l += sum over j < 4 of (byte j of w's lane l) * (byte j of x's),
 *                          x in -127 .. 127, w unsigned and below 128, or signed after vi_s8
 *   A vq may hold 16-bit sums: at most SIMD_SPAN(w's largest byte) dots between open and close.
 *
 * Depends on: base's bytes.h (plain C only).  Threads: pure functions.
 */
#ifndef OMM_SIMD_H
#define OMM_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OMM_SIMD_SCALAR 0
#define OMM_SIMD_AVX2 1
#define OMM_SIMD_AVX512 2
#define OMM_SIMD_NEON 3

#ifndef OMM_SIMD
#error "define OMM_SIMD before including omm/simd.h"
#endif

#define VL 16 /* lanes */
/* Asks for full unrolling of a loop with constant bounds: arrays of vectors stay in registers.
 * Plain C has no vector registers to fill, only code to bloat. */
#if OMM_SIMD == OMM_SIMD_SCALAR
#define SIMD_UNROLL
#define SIMD_INLINE static inline __attribute__((unused))
#else
#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#ifdef __clang__
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

/* Dots in a row whose sums stay within 16 bits: span * 2 * top * 127 < 32768. */
#define SIMD_SPAN(top) ((top) <= 16 ? 8 : (top) <= 32 ? 4 : (top) <= 64 ? 2 : 1)
/* A cache line ahead of a stream, as far as the second cache: the first one has few places for lines
 * on their way, and loads that wait for such a place are dear (measurements.md, Decode). */
#define SIMD_PREFETCH(p) __builtin_prefetch((p), 0, 2)

#if OMM_SIMD == OMM_SIMD_AVX512
/* ---------------------------------------------------------------------------------------------- */
#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;

/* Tile of the matrix product: SIMD_MR rows by SIMD_NV vectors of accumulators. */
#define SIMD_MR 12
#define SIMD_NV 2
/* Strips and tokens of the int8 tile: all sums and accumulators stay in 32 registers. */
#define SIMD_Q8_STRIPS 2
#define SIMD_Q8_TOKENS 6
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

#elif OMM_SIMD == OMM_SIMD_AVX2
/* ---------------------------------------------------------------------------------------------- */
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
#define SIMD_S8_BIAS 0

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

#elif OMM_SIMD == OMM_SIMD_NEON
/* ---------------------------------------------------------------------------------------------- */
#include <arm_neon.h>

typedef struct vf {
    float32x4_t q[4];
} vf;
typedef struct vi {
    int32x4_t q[4];
} vi;

#define SIMD_MR 6
#define SIMD_NV 1
#define SIMD_Q8_STRIPS 1
#define SIMD_Q8_TOKENS 4
#define SIMD_S8_BIAS 0
#define SIMD_EACH SIMD_UNROLL for (int i = 0; i < 4; i++)

SIMD_INLINE vf vf_load(const float *p) {
    vf r;
    SIMD_EACH r.q[i] = vld1q_f32(p + 4 * i);
    return r;
}
SIMD_INLINE void vf_store(float *p, vf x) {
    SIMD_EACH vst1q_f32(p + 4 * i, x.q[i]);
}
SIMD_INLINE vf vf_set1(float x) {
    vf r;
    SIMD_EACH r.q[i] = vdupq_n_f32(x);
    return r;
}
/* vfmaq takes the accumulator first. */
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) {
    SIMD_EACH c.q[i] = vfmaq_f32(c.q[i], a.q[i], b.q[i]);
    return c;
}
SIMD_INLINE vf vf_add(vf a, vf b) {
    SIMD_EACH a.q[i] = vaddq_f32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vf vf_sub(vf a, vf b) {
    SIMD_EACH a.q[i] = vsubq_f32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vf vf_mul(vf a, vf b) {
    SIMD_EACH a.q[i] = vmulq_f32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vf vf_div(vf a, vf b) {
    SIMD_EACH a.q[i] = vdivq_f32(a.q[i], b.q[i]);
    return a;
}
/* By compare and select: fmax and fmin treat NaN differently from x86. */
SIMD_INLINE vf vf_max(vf a, vf b) {
    SIMD_EACH a.q[i] = vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vf vf_min(vf a, vf b) {
    SIMD_EACH a.q[i] = vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vf vf_sqrt(vf a) {
    SIMD_EACH a.q[i] = vsqrtq_f32(a.q[i]);
    return a;
}
SIMD_INLINE vi vi_load(const void *p) {
    vi r;
    SIMD_EACH r.q[i] = vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
    return r;
}
SIMD_INLINE void vi_store(void *p, vi x) {
    SIMD_EACH vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_s32(x.q[i]));
}
SIMD_INLINE vi vi_set1(int32_t x) {
    vi r;
    SIMD_EACH r.q[i] = vdupq_n_s32(x);
    return r;
}
SIMD_INLINE vi vi_add(vi a, vi b) {
    SIMD_EACH a.q[i] = vaddq_s32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vi vi_sub(vi a, vi b) {
    SIMD_EACH a.q[i] = vsubq_s32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vi vi_and(vi a, vi b) {
    SIMD_EACH a.q[i] = vandq_s32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vi vi_max(vi a, vi b) {
    SIMD_EACH a.q[i] = vmaxq_s32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vi vi_shl(vi a, int n) {
    SIMD_EACH a.q[i] = vshlq_s32(a.q[i], vdupq_n_s32(n));
    return a;
}
SIMD_INLINE vi vi_sar(vi a, int n) {
    SIMD_EACH a.q[i] = vshlq_s32(a.q[i], vdupq_n_s32(-n));
    return a;
}
SIMD_INLINE vf vf_from_vi(vi a) {
    vf r;
    SIMD_EACH r.q[i] = vcvtq_f32_s32(a.q[i]);
    return r;
}
SIMD_INLINE vi vf_bits(vf a) {
    vi r;
    SIMD_EACH r.q[i] = vreinterpretq_s32_f32(a.q[i]);
    return r;
}
SIMD_INLINE vf vi_as_vf(vi a) {
    vf r;
    SIMD_EACH r.q[i] = vreinterpretq_f32_s32(a.q[i]);
    return r;
}
SIMD_INLINE vf vf_load_f16(const uint16_t *p) {
    vf r;
    SIMD_EACH r.q[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    return r;
}
SIMD_INLINE void vf_store_f16(uint16_t *p, vf x) {
    SIMD_EACH vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.q[i])));
}
SIMD_INLINE vi vi_load_i8(const int8_t *p) {
    int8x16_t v = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    return (vi){{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
                 vmovl_high_s16(high)}};
}
SIMD_INLINE void vi_store_i8(int8_t *p, vi x) {
    int32_t t[VL];
    vi_store(t, x);
    for (int i = 0; i < VL; i++) p[i] = (int8_t)t[i];
}
SIMD_INLINE vf vf_swap_pairs(vf x) {
    SIMD_EACH x.q[i] = vrev64q_f32(x.q[i]);
    return x;
}
#if defined(__ARM_FEATURE_DOTPROD)
SIMD_INLINE int32x4_t simd_dot4(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vdotq_s32(acc, w, x);
}
#else
/* Products of |w| <= 128 and |x| <= 127 fit 16 bits; they are widened before they are added. */
SIMD_INLINE int32x4_t simd_dot4(int32x4_t acc, int8x16_t w, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    int16x8_t high = vmull_high_s8(w, x);
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
#endif
SIMD_INLINE vi vi_or(vi a, vi b) {
    SIMD_EACH a.q[i] = vorrq_s32(a.q[i], b.q[i]);
    return a;
}
SIMD_INLINE vi vi_load_u8(const uint8_t *p) {
    vi r;
    uint8x16_t v = vld1q_u8(p);
    uint16x8_t a = vmovl_u8(vget_low_u8(v)), b = vmovl_high_u8(v);
    r.q[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a)));
    r.q[1] = vreinterpretq_s32_u32(vmovl_high_u16(a));
    r.q[2] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(b)));
    r.q[3] = vreinterpretq_s32_u32(vmovl_high_u16(b));
    return r;
}
SIMD_INLINE vf vf_load_bf16(const uint16_t *p) {
    vf r;
    SIMD_EACH r.q[i] = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p + 4 * i)), 16));
    return r;
}
SIMD_INLINE int32_t vi_top(vi a) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.q[0], a.q[1]), vmaxq_s32(a.q[2], a.q[3])));
}
SIMD_INLINE int32_t vi_total(vi a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.q[0], a.q[1]), vaddq_s32(a.q[2], a.q[3])));
}
SIMD_INLINE vi vi_lookup(const int8_t table[16], vi b) {
    const int8x16_t t = vld1q_s8(table);
    SIMD_EACH b.q[i] = vreinterpretq_s32_s8(vqtbl1q_s8(t, vreinterpretq_u8_s32(b.q[i])));
    return b;
}
SIMD_INLINE vi vi_four(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    return vi_set1(v);
}
SIMD_INLINE vi vi_dot_s16(vi acc, vi w, vi x) {
    SIMD_EACH {
        int16x8_t a = vreinterpretq_s16_s32(w.q[i]), b = vreinterpretq_s16_s32(x.q[i]);
        int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
        acc.q[i] = vaddq_s32(acc.q[i], vpaddq_s32(low, vmull_high_s16(a, b)));
    }
    return acc;
}
typedef vi vq;
SIMD_INLINE vq vq_open(vi acc) {
    return acc;
}
SIMD_INLINE vi vi_s8(vi w) {
    return w;
}
SIMD_INLINE vq vq_dot_s8(vq p, vi w, vi x) {
    SIMD_EACH p.q[i] =
        simd_dot4(p.q[i], vreinterpretq_s8_s32(w.q[i]), vreinterpretq_s8_s32(x.q[i]));
    return p;
}
SIMD_INLINE vq vq_dot_u8(vq p, vi w, vi x) { /* bytes of w are below 128 */
    return vq_dot_s8(p, w, x);
}
SIMD_INLINE vi vq_close(vi acc, vq p) {
    (void)acc;
    return p;
}
SIMD_INLINE void vf_transpose(vf r[VL]) {
    float t[VL][VL];
    for (int i = 0; i < VL; i++) vf_store(t[i], r[i]);
    for (int i = 0; i < VL; i++) {
        float u[VL];
        for (int j = 0; j < VL; j++) u[j] = t[j][i];
        r[i] = vf_load(u);
    }
}
#undef SIMD_EACH

#else
/* ---- plain C: the definition ------------------------------------------------------------ */
#include "omm/bytes.h"

typedef struct vf {
    float f[VL];
} vf;
typedef struct vi {
    int32_t i[VL];
} vi;

#define SIMD_MR 4
#define SIMD_NV 1
#define SIMD_Q8_STRIPS 1
#define SIMD_Q8_TOKENS 2
#define SIMD_S8_BIAS 0
#define SIMD_EACH for (int l = 0; l < VL; l++)

SIMD_INLINE vf vf_load(const float *p) {
    vf r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
SIMD_INLINE void vf_store(float *p, vf x) {
    memcpy(p, x.f, sizeof x.f);
}
SIMD_INLINE vf vf_set1(float x) {
    vf r;
    SIMD_EACH r.f[l] = x;
    return r;
}
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) {
    SIMD_EACH c.f[l] = fmaf(a.f[l], b.f[l], c.f[l]);
    return c;
}
SIMD_INLINE vf vf_add(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] + b.f[l];
    return a;
}
SIMD_INLINE vf vf_sub(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] - b.f[l];
    return a;
}
SIMD_INLINE vf vf_mul(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] * b.f[l];
    return a;
}
SIMD_INLINE vf vf_div(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] / b.f[l];
    return a;
}
SIMD_INLINE vf vf_max(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] > b.f[l] ? a.f[l] : b.f[l];
    return a;
}
SIMD_INLINE vf vf_min(vf a, vf b) {
    SIMD_EACH a.f[l] = a.f[l] < b.f[l] ? a.f[l] : b.f[l];
    return a;
}
SIMD_INLINE vf vf_sqrt(vf a) {
    SIMD_EACH a.f[l] = sqrtf(a.f[l]);
    return a;
}
SIMD_INLINE vi vi_load(const void *p) {
    vi r;
    memcpy(r.i, p, sizeof r.i);
    return r;
}
SIMD_INLINE void vi_store(void *p, vi x) {
    memcpy(p, x.i, sizeof x.i);
}
SIMD_INLINE vi vi_set1(int32_t x) {
    vi r;
    SIMD_EACH r.i[l] = x;
    return r;
}
/* Integer lanes wrap, as vector units do. */
SIMD_INLINE vi vi_add(vi a, vi b) {
    SIMD_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] + (uint32_t)b.i[l]);
    return a;
}
SIMD_INLINE vi vi_sub(vi a, vi b) {
    SIMD_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] - (uint32_t)b.i[l]);
    return a;
}
SIMD_INLINE vi vi_and(vi a, vi b) {
    SIMD_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] & (uint32_t)b.i[l]);
    return a;
}
SIMD_INLINE vi vi_max(vi a, vi b) {
    SIMD_EACH a.i[l] = a.i[l] > b.i[l] ? a.i[l] : b.i[l];
    return a;
}
SIMD_INLINE vi vi_shl(vi a, int n) {
    SIMD_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] << n);
    return a;
}
SIMD_INLINE vi vi_sar(vi a, int n) {
    SIMD_EACH a.i[l] = a.i[l] >> n;
    return a;
}
SIMD_INLINE vf vf_from_vi(vi a) {
    vf r;
    SIMD_EACH r.f[l] = (float)a.i[l];
    return r;
}
SIMD_INLINE vi vf_bits(vf a) {
    vi r;
    memcpy(r.i, a.f, sizeof r.i);
    return r;
}
SIMD_INLINE vf vi_as_vf(vi a) {
    vf r;
    memcpy(r.f, a.i, sizeof r.f);
    return r;
}
SIMD_INLINE vf vf_load_f16(const uint16_t *p) {
    vf r;
    SIMD_EACH r.f[l] = omm_f16_to_f32(p[l]);
    return r;
}
SIMD_INLINE void vf_store_f16(uint16_t *p, vf x) {
    SIMD_EACH p[l] = omm_f32_to_f16(x.f[l]);
}
SIMD_INLINE vi vi_load_i8(const int8_t *p) {
    vi r;
    SIMD_EACH r.i[l] =
        (int32_t)p[l]; /* NOLINT(bugprone-signed-char-misuse): sign extended on purpose */
    return r;
}
SIMD_INLINE void vi_store_i8(int8_t *p, vi x) {
    SIMD_EACH p[l] = (int8_t)x.i[l];
}
SIMD_INLINE vf vf_swap_pairs(vf x) {
    vf r;
    SIMD_EACH r.f[l] = x.f[l ^ 1];
    return r;
}
SIMD_INLINE vi vi_or(vi a, vi b) {
    SIMD_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] | (uint32_t)b.i[l]);
    return a;
}
SIMD_INLINE vi vi_load_u8(const uint8_t *p) {
    vi r;
    SIMD_EACH r.i[l] = p[l];
    return r;
}
SIMD_INLINE vf vf_load_bf16(const uint16_t *p) {
    vi r;
    SIMD_EACH r.i[l] = (int32_t)((uint32_t)p[l] << 16);
    return vi_as_vf(r);
}
SIMD_INLINE int32_t vi_top(vi a) {
    int32_t r = a.i[0];
    SIMD_EACH r = a.i[l] > r ? a.i[l] : r;
    return r;
}
SIMD_INLINE int32_t vi_total(vi a) {
    int32_t r = 0;
    SIMD_EACH r += a.i[l];
    return r;
}
SIMD_INLINE vi vi_lookup(const int8_t table[16], vi b) {
    uint8_t t[4 * VL];
    memcpy(t, b.i, sizeof t);
    for (int i = 0; i < 4 * VL; i++) t[i] = (uint8_t)table[t[i] & 15];
    memcpy(b.i, t, sizeof t);
    return b;
}
SIMD_INLINE vi vi_four(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    return vi_set1(v);
}
SIMD_INLINE vi vi_dot_s16(vi acc, vi w, vi x) {
    SIMD_EACH {
        int16_t a[2], b[2];
        memcpy(a, &w.i[l], sizeof a);
        memcpy(b, &x.i[l], sizeof b);
        acc.i[l] += a[0] * b[0] + a[1] * b[1];
    }
    return acc;
}
typedef vi vq;
SIMD_INLINE vq vq_open(vi acc) {
    return acc;
}
SIMD_INLINE vi vi_s8(vi w) {
    return w;
}
SIMD_INLINE vq vq_dot_s8(vq p, vi w, vi x) {
    int8_t a[4 * VL], b[4 * VL];
    memcpy(a, w.i, sizeof a);
    memcpy(b, x.i, sizeof b);
    SIMD_EACH for (int j = 0; j < 4; j++) p.i[l] += a[4 * l + j] * b[4 * l + j];
    return p;
}
SIMD_INLINE vq vq_dot_u8(vq p, vi w, vi x) { /* bytes of w are below 128 */
    return vq_dot_s8(p, w, x);
}
SIMD_INLINE vi vq_close(vi acc, vq p) {
    (void)acc;
    return p;
}
SIMD_INLINE void vf_transpose(vf r[VL]) {
    for (int i = 0; i < VL; i++)
        for (int j = 0; j < i; j++) {
            float t = r[i].f[j];
            r[i].f[j] = r[j].f[i];
            r[j].f[i] = t;
        }
}
#undef SIMD_EACH
#endif

/* ---- on every instruction set ------------------------------------------------------------ */

SIMD_INLINE vf vf_zero(void) {
    return vf_set1(0.0f);
}
/* acc[l] += sum over j < 4 of (byte j of w's lane l, below 128) * byte j of x, signed. */
SIMD_INLINE vi vi_dot_u4(vi acc, vi w, int32_t x) {
    return vq_close(acc, vq_dot_u8(vq_open(acc), w, vi_set1(x)));
}
/* The first n (<= 16) elements; the other lanes are +0 on load and untouched on store. */
SIMD_INLINE vf vf_load_n(const float *p, size_t n) {
    if (n >= VL) return vf_load(p);
    float t[VL] = {0};
    memcpy(t, p, n * sizeof t[0]);
    return vf_load(t);
}
SIMD_INLINE void vf_store_n(float *p, vf x, size_t n) {
    if (n >= VL) {
        vf_store(p, x);
        return;
    }
    float t[VL];
    vf_store(t, x);
    memcpy(p, t, n * sizeof t[0]);
}
/* Fold of a row sum, and of a maximum: lanes i and i + 8, then i + 4, 2, 1. */
#if OMM_SIMD == OMM_SIMD_AVX512 || OMM_SIMD == OMM_SIMD_AVX2
SIMD_INLINE __m256 simd_half(vf x, const int high) {
#if OMM_SIMD == OMM_SIMD_AVX2
    return high ? x.b : x.a;
#else
    return high ? _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1))
                : _mm512_castps512_ps256(x);
#endif
}
SIMD_INLINE float vf_fold(vf x) {
    const __m256 a = _mm256_add_ps(simd_half(x, 0), simd_half(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
SIMD_INLINE float vf_fold_max(vf x) {
    const __m256 a = _mm256_max_ps(simd_half(x, 0), simd_half(x, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
#else
SIMD_INLINE float vf_fold(vf x) {
    float t[VL];
    vf_store(t, x);
    for (int s = VL / 2; s; s /= 2)
        for (int i = 0; i < s; i++) t[i] = t[i] + t[i + s];
    return t[0];
}
SIMD_INLINE float vf_fold_max(vf x) {
    float t[VL];
    vf_store(t, x);
    for (int s = VL / 2; s; s /= 2)
        for (int i = 0; i < s; i++) t[i] = t[i] > t[i + s] ? t[i] : t[i + s];
    return t[0];
}
#endif

/* exp, at most 1.1 ulp off: n = round(x / ln 2) by the magic number, two-step Cody-Waite reduction,
 * degree-5 polynomial (Cephes expf coefficients), 2^n in two factors.  Below -87.33654 the result
 * is 0, so no subnormal ever appears; NaN and values above 88.72283 are clamped. */
SIMD_INLINE vf vf_exp(vf x) {
    x = vf_min(x, vf_set1(88.72283f));
    vf c = vf_max(x, vf_set1(-87.33654f));
    vf t = vf_fma(c, vf_set1(1.44269504f), vf_set1(12582912.0f));
    vi n = vi_sub(vf_bits(t), vi_set1(0x4B400000));
    vf nf = vf_sub(t, vf_set1(12582912.0f));
    vf r = vf_fma(nf, vf_set1(-0x1.62e400p-1f), c);
    r = vf_fma(nf, vf_set1(-0x1.7f7d1cp-20f), r);
    vf p = vf_fma(vf_set1(1.9875691500e-4f), r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_fma(vf_mul(r, r), p, r);
    p = vf_add(p, vf_set1(1.0f));
    vi h = vi_sar(n, 1), g = vi_sub(n, h);
    p = vf_mul(p, vi_as_vf(vi_shl(vi_add(h, vi_set1(127)), 23)));
    p = vf_mul(p, vi_as_vf(vi_shl(vi_add(g, vi_set1(127)), 23)));
    /* x < c exactly where it was clamped from below: the sign of x - c becomes a mask. */
    vi low = vi_sar(vf_bits(vf_sub(x, c)), 31);
    return vi_as_vf(vi_sub(vf_bits(p), vi_and(vf_bits(p), low)));
}

/* log of positive normal numbers, at most 0.9 ulp off (the fdlibm scheme in f32). */
SIMD_INLINE vf vf_log(vf x) {
    vi b = vf_bits(x);
    vi e = vi_sar(vi_sub(b, vi_set1(0x3f3504f3)), 23);
    vf m = vi_as_vf(vi_sub(b, vi_shl(e, 23))); /* in [sqrt(1/2), sqrt(2)) */
    vf f = vf_sub(m, vf_set1(1.0f));
    vf s = vf_div(f, vf_add(f, vf_set1(2.0f)));
    vf z = vf_mul(s, s);
    vf ef = vf_from_vi(e);
    vf r = vf_fma(z, vf_set1(0.24279078841f), vf_set1(0.28498786688f));
    r = vf_fma(z, r, vf_set1(0.40000972152f));
    r = vf_fma(z, r, vf_set1(0.66666662693f));
    r = vf_mul(z, r);
    vf h = vf_mul(vf_mul(f, f), vf_set1(0.5f));
    vf low = vf_fma(s, vf_add(h, r), vf_mul(ef, vf_set1(9.0580006145e-6f)));
    return vf_fma(ef, vf_set1(6.9313812256e-1f), vf_sub(f, vf_sub(h, low)));
}

#endif
