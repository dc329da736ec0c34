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
 *   vf_fma_at(a, b, c) = vf_fma(vf_set1(*a), b, c): where SIMD_READS_EACH, as one instruction.
 *
 * Products of bytes: p = vq_open(acc); p = vq_dot_u8(p, w, x) a few times; acc = vq_close(acc, p).
 *   vq_dot_u8, vq_dot_s8   lane l += sum over j < 4 of (byte j of w's lane l) * (byte j of x's),
 *                          x in -127 .. 127, w unsigned and below 128, or signed after vi_s8
 *   A vq may hold 16-bit sums: at most SIMD_SPAN(w's largest byte) dots between open and close.
 * Where SIMD_Q8_PAIRS, many of the same signed bytes go faster as pairs of 16 bits (vi_even_s8, vi_odd_s8).
 *
 * One header for each instruction set has the operations, all with the same names:
 *
 *   simd_scalar.h  plain C, the definition    simd_avx2.h  simd_avx512.h  simd_neon.h
 *   simd_math.h    exp and log, written over them
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
#define SIMD_INLINE_ALWAYS static inline __attribute__((always_inline, unused))
#ifdef __clang__
#define SIMD_UNROLL_FULL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL_FULL _Pragma("GCC unroll 16")
#endif

/* Asks for full unrolling of a loop with constant bounds: arrays of vectors stay in registers.  All of plain C takes
 * gcc minutes that way (decision 133): there only the tiles of products are, where fma is an instruction. */
#if OMM_SIMD == OMM_SIMD_SCALAR
#define SIMD_UNROLL
#define SIMD_INLINE static inline __attribute__((unused))
#else
#define SIMD_UNROLL SIMD_UNROLL_FULL
#define SIMD_INLINE SIMD_INLINE_ALWAYS
#endif
#if OMM_SIMD == OMM_SIMD_SCALAR && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
#define SIMD_TILE_UNROLL SIMD_UNROLL_FULL
#define SIMD_TILE_INLINE SIMD_INLINE_ALWAYS
#else
#define SIMD_TILE_UNROLL SIMD_UNROLL
#define SIMD_TILE_INLINE SIMD_INLINE
#endif

/* Dots in a row whose sums stay within 16 bits: span * 2 * top * 127 < 32768. */
#define SIMD_SPAN(top) ((top) <= 16 ? 8 : (top) <= 32 ? 4 : (top) <= 64 ? 2 : 1)
/* A cache line ahead of a stream, as far as the second cache: the first one has few places for lines
 * on their way, and loads that wait for such a place are dear (measurements/decode.md). */
#define SIMD_PREFETCH(p) __builtin_prefetch((p), 0, 2)
/* The same into the first cache, for what is read within a microsecond and lies in the second one. */
#define SIMD_PREFETCH_NEAR(p) __builtin_prefetch((p), 0, 3)

#if OMM_SIMD == OMM_SIMD_AVX512
#include "omm/simd_avx512.h"
#elif OMM_SIMD == OMM_SIMD_AVX2
#include "omm/simd_avx2.h"
#elif OMM_SIMD == OMM_SIMD_NEON
#include "omm/simd_neon.h"
#else
#include "omm/simd_scalar.h"
#endif

/* ---- on every instruction set ------------------------------------------------------------ */

SIMD_INLINE vf vf_zero(void) {
    return vf_set1(0.0f);
}
#ifndef SIMD_READS_EACH
#define SIMD_READS_EACH(i) 0
SIMD_INLINE vf vf_fma_at(const float *a, vf b, vf c) {
    return vf_fma(vf_set1(*a), b, c);
}
#endif
#ifndef SIMD_Q8_PAIRS
#define SIMD_Q8_PAIRS 0
#endif
/* acc[l] += sum over j < 4 of (byte j of w's lane l, below 128) * byte j of x, signed. */
SIMD_INLINE vi vi_dot_u4(vi acc, vi w, int32_t x) {
    return vq_close(acc, vq_dot_u8(vq_open(acc), w, vi_set1(x)));
}
/* The first n (<= 16) elements; the other lanes are 0 (+0) on load and untouched on store. */
SIMD_INLINE vf vf_load_n(const float *p, size_t n) {
    if (n >= VL) return vf_load(p);
    float t[VL] = {0};
    memcpy(t, p, n * sizeof t[0]);
    return vf_load(t);
}
SIMD_INLINE vi vi_load_n(const void *p, size_t n) {
    if (n >= VL) return vi_load(p);
    int32_t t[VL] = {0};
    memcpy(t, p, n * sizeof t[0]);
    return vi_load(t);
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

#include "omm/simd_math.h"

#endif
