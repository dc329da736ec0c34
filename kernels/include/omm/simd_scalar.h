/* simd_scalar.h - the operations of simd.h in plain C, which the others are tested against.
 *
 * Included by simd.h alone, which says what each operation means.
 *
 * Depends on: simd.h, which it is a part of; base's bytes.h.  Threads: pure functions.
 */
#ifndef OMM_SIMD_SCALAR_H
#define OMM_SIMD_SCALAR_H

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
#define SIMD_Q8_STARTS_APART 0
#define SIMD_ONE_DOT 0
#define SIMD_S8_BIAS 0
#define SIMD_EACH for (int l = 0; l < VL; l++)

SIMD_INLINE vf vf_load(const float *p) {
    vf r;
    SIMD_EACH r.f[l] = p[l];
    return r;
}
SIMD_INLINE void vf_store(float *p, vf x) {
    SIMD_EACH p[l] = x.f[l];
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
    int16_t a[2 * VL], b[2 * VL];
    memcpy(a, w.i, sizeof a);
    memcpy(b, x.i, sizeof b);
    SIMD_EACH for (int j = 0; j < 2; j++) {
        const int16_t u = a[2 * l + j], v = b[2 * l + j];
        p.i[l] += (int8_t)u * (int8_t)v + (u >> 8) * (v >> 8);
    }
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
