/* q8_body.h - int8 activations against Q8_0 and Q4_0 weights; part of kernels_body.h.
 *
 * The integer product of a 32-block is exact, so only its one fma into the accumulator, block after
 * block, decides the result; how many strips and tokens go side by side does not.
 */

static void q8_block(int8_t *q, float *d, int32_t *sum, const float *x) {
    const vi abs_mask = vi_set1(0x7fffffff);
    vf a = vf_load(x), b = vf_load(x + VL);
    /* As integers, bit patterns of absolute values are ordered, NaN and infinity on top. */
    vi m = vi_max(vi_and(vf_bits(a), abs_mask), vi_and(vf_bits(b), abs_mask));
    int32_t lanes[VL], top = 0;
    vi_store(lanes, m);
    for (int i = 0; i < VL; i++) top = lanes[i] > top ? lanes[i] : top;
    float amax = 0.0f;
    memcpy(&amax, &top, sizeof amax);
    if (top >= 0x7f800000 || amax < 0x1p-100f) {
        memset(q, 0, OMM_QUANT_BLOCK);
        *sum = 0;
        const int32_t nan_bits = 0x7fc00000;
        *d = 0.0f;
        if (top >= 0x7f800000) memcpy(d, &nan_bits, sizeof *d);
        return;
    }
    *d = amax / 127.0f;
    const vf inverse = vf_set1(127.0f / amax), magic = vf_set1(12582912.0f);
    const vi zero_bits = vi_set1(0x4B400000);
    vi qa = vi_sub(vf_bits(vf_add(vf_mul(a, inverse), magic)), zero_bits);
    vi qb = vi_sub(vf_bits(vf_add(vf_mul(b, inverse), magic)), zero_bits);
    vi_store_i8(q, qa);
    vi_store_i8(q + VL, qb);
    vi_store(lanes, vi_add(qa, qb));
    int32_t total = 0;
    for (int i = 0; i < VL; i++) total += lanes[i];
    *sum = total;
}

static void kernel_q8_quantize(omm_q8_rows *out, const float *x, size_t m0, size_t m1) {
    const size_t blocks = out->cols / OMM_QUANT_BLOCK;
    for (size_t i = m0 * blocks; i < m1 * blocks; i++)
        q8_block(out->q + i * OMM_QUANT_BLOCK, out->d + i, out->sum + i, x + i * OMM_QUANT_BLOCK);
}

SIMD_INLINE int32_t load_i32(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ia[s][t] = exact product of block b of strip s with token t. */
SIMD_INLINE void q8_dots(const int ns, const int nt, vi ia[4][4], const omm_matrix *w,
                         const uint8_t *block, const int8_t *q, size_t cols) {
    if (w->format == OMM_FORMAT_Q8_0) {
        SIMD_UNROLL for (size_t g = 0; g < 8; g++) {
            SIMD_UNROLL for (int s = 0; s < ns; s++) {
                vi v = vi_load(block + (size_t)s * w->strip_bytes + STRIP_SCALE_BYTES + g * 64);
                SIMD_UNROLL for (int t = 0; t < nt; t++) {
                    ia[s][t] = vi_dot_s8(ia[s][t], v, load_i32(q + (size_t)t * cols + 4 * g));
                }
            }
        }
        return;
    }
    const vi low = vi_set1(0x0f0f0f0f);
    SIMD_UNROLL for (size_t g = 0; g < 4; g++) {
        SIMD_UNROLL for (int s = 0; s < ns; s++) {
            vi v = vi_load(block + (size_t)s * w->strip_bytes + STRIP_SCALE_BYTES + g * 64);
            vi a = vi_and(v, low), b = vi_and(vi_sar(v, 4), low);
            SIMD_UNROLL for (int t = 0; t < nt; t++) {
                const int8_t *x = q + (size_t)t * cols + 4 * g;
                ia[s][t] = vi_dot_u4(ia[s][t], a, load_i32(x));
                ia[s][t] = vi_dot_u4(ia[s][t], b, load_i32(x + 16));
            }
        }
    }
}

SIMD_INLINE void q8_tile(const int ns, const int nt, float *y, const omm_q8_rows *x,
                         const omm_matrix *w, size_t m, size_t strip) {
    const bool q8 = w->format == OMM_FORMAT_Q8_0;
    const size_t block_bytes = q8 ? STRIP_Q8_BYTES : STRIP_Q4_BYTES;
    const int32_t bias = q8 ? SIMD_S8_BIAS : 8;
    const size_t blocks = x->cols / OMM_QUANT_BLOCK;
    const uint8_t *block = w->data + strip * w->strip_bytes;
    vf acc[4][4];
    SIMD_UNROLL for (int s = 0; s < ns; s++) {
        SIMD_UNROLL for (int t = 0; t < nt; t++) acc[s][t] = vf_zero();
    }
    for (size_t b = 0; b < blocks; b++, block += block_bytes) {
        vi ia[4][4];
        SIMD_UNROLL for (int s = 0; s < ns; s++) {
            SIMD_UNROLL for (int t = 0; t < nt; t++) {
                ia[s][t] = vi_set1(-bias * x->sum[(m + (size_t)t) * blocks + b]);
            }
        }
        q8_dots(ns, nt, ia, w, block, x->q + m * x->cols + b * OMM_QUANT_BLOCK, x->cols);
        SIMD_UNROLL for (int s = 0; s < ns; s++) {
            const uint8_t *scale = block + (size_t)s * w->strip_bytes;
            vf d = vf_load_f16((const uint16_t *)(const void *)scale);
            SIMD_UNROLL for (int t = 0; t < nt; t++) {
                vf dx = vf_set1(x->d[(m + (size_t)t) * blocks + b]);
                acc[s][t] = vf_fma(vf_from_vi(ia[s][t]), vf_mul(d, dx), acc[s][t]);
            }
        }
    }
    SIMD_UNROLL for (int s = 0; s < ns; s++) {
        size_t row = (strip + (size_t)s) * VL;
        SIMD_UNROLL for (int t = 0; t < nt; t++) {
            vf_store_n(y + (m + (size_t)t) * w->rows + row, acc[s][t], w->rows - row);
        }
    }
}

/* A few tokens: each on its own, four strips at a time. */
static void q8_few(float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m, size_t s0,
                   size_t s1) {
    size_t s = s0;
    for (; s + 4 <= s1; s += 4) q8_tile(4, 1, y, x, w, m, s);
    for (; s < s1; s++) q8_tile(1, 1, y, x, w, m, s);
}

static void kernel_q8_linear(float *y, const omm_q8_rows *x, const omm_matrix *w, size_t m0,
                             size_t m1, size_t s0, size_t s1) {
    const size_t tiled = m0 + (m1 - m0) / 4 * 4;
    size_t s = s0;
    /* Strips outside, so that two of them stay in L1 while the tokens pass. */
    for (; s + 2 <= s1; s += 2)
        for (size_t m = m0; m < tiled; m += 4) q8_tile(2, 4, y, x, w, m, s);
    for (; s < s1; s++)
        for (size_t m = m0; m < tiled; m += 4) q8_tile(1, 4, y, x, w, m, s);
    for (size_t m = tiled; m < m1; m++) q8_few(y, x, w, m, s0, s1);
}
