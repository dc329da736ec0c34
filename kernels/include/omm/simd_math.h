/* simd_math.h - exp and log of 16 lanes, written once over the operations of simd.h.
 *
 * Included by simd.h alone.
 *
 * Depends on: simd.h, which it is a part of.  Threads: pure functions.
 */
#ifndef OMM_SIMD_MATH_H
#define OMM_SIMD_MATH_H

#ifndef SIMD_SCALES
/* p * 2^n, n = t - 1.5 * 2^23, in two factors: neither overflows; 0 where x < c. */
SIMD_INLINE vf vf_scale(vf p, vf t, vf x, vf c) {
    const vi n = vi_sub(vf_bits(t), vi_set1(0x4B400000));
    const vi h = vi_sar(n, 1), g = vi_sub(n, h);
    p = vf_mul(p, vi_as_vf(vi_shl(vi_add(h, vi_set1(127)), 23)));
    p = vf_mul(p, vi_as_vf(vi_shl(vi_add(g, vi_set1(127)), 23)));
    /* the sign of x - c becomes a mask */
    const vi low = vi_sar(vf_bits(vf_sub(x, c)), 31);
    return vi_as_vf(vi_sub(vf_bits(p), vi_and(vf_bits(p), low)));
}
#endif

/* exp, at most 1.1 ulp off: n = round(x / ln 2) by the magic number, two-step Cody-Waite reduction,
 * degree-5 polynomial (Cephes expf coefficients), 2^n in two factors.  Below -87.33654 the result
 * is 0, so no subnormal ever appears; NaN and values above 88.72283 are clamped. */
SIMD_INLINE vf vf_exp(vf x) {
    x = vf_min(x, vf_set1(88.72283f));
    vf c = vf_max(x, vf_set1(-87.33654f));
    vf t = vf_fma(c, vf_set1(1.44269504f), vf_set1(12582912.0f));
    vf n = vf_sub(t, vf_set1(12582912.0f));
    vf r = vf_fma(n, vf_set1(-0x1.62e400p-1f), c);
    r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
    vf p = vf_fma(vf_set1(1.9875691500e-4f), r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_fma(vf_mul(r, r), p, r);
    p = vf_add(p, vf_set1(1.0f));
    return vf_scale(p, t, x, c); /* x < c exactly where it was clamped from below */
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
