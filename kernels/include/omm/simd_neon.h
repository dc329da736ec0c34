/* simd_neon.h - the operations of simd.h on AArch64: four registers of 4 lanes.
 *
 * Included by simd.h alone, which says what each operation means.
 *
 * Depends on: simd.h, which it is a part of.  Threads: pure functions.
 */
#ifndef OMM_SIMD_NEON_H
#define OMM_SIMD_NEON_H

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
#define SIMD_Q8_STARTS_APART 0
#if defined(__ARM_FEATURE_DOTPROD)
#define SIMD_ONE_DOT 1
#else
#define SIMD_ONE_DOT 0
#endif
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
#if SIMD_ONE_DOT
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

#endif
