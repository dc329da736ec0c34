/* rows_body.h - elementwise functions, row sums and rotary positions; part of kernels_body.h.
 *
 * Row sums use 16 lanes (lane l takes elements l, l + 16, ...; a short end counts as zeros) and one
 * fixed fold, so their value does not depend on the width of the machine's vectors.
 */

static void kernel_vec_scale(float *y, const float *x, float alpha, size_t count) {
    const vf a = vf_set1(alpha);
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf_store_n(y + i, vf_mul(a, vf_load_n(x + i, n)), n);
    }
}

static void kernel_vec_add(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf_store_n(y + i, vf_add(vf_load_n(y + i, n), vf_load_n(x + i, n)), n);
    }
}

static void kernel_vec_exp(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf_store_n(y + i, vf_exp(vf_load_n(x + i, n)), n);
    }
}

static void kernel_vec_log(float *y, const float *x, size_t count) {
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf_store_n(y + i, vf_log(vf_load_n(x + i, n)), n);
    }
}

static void kernel_swiglu(float *y, const float *gate, const float *up, size_t count) {
    const vf one = vf_set1(1.0f);
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf g = vf_load_n(gate + i, n);
        vf s = vf_div(g, vf_add(one, vf_exp(vf_sub(vf_zero(), g))));
        vf_store_n(y + i, vf_mul(s, vf_load_n(up + i, n)), n);
    }
}

/* tanh, at most 1.2 ulp off: a = |x|, at most 10; below 0.625 the odd series a + a z P(z), z = a a;
 * above 1 - 2 / (exp(2 a) + 1); then the sign of x. */
SIMD_INLINE vf vf_tanh(vf x) {
    const vf one = vf_set1(1.0f);
    vi sign = vi_and(vf_bits(x), vi_set1(INT32_MIN));
    vf a = vf_min(vi_as_vf(vi_and(vf_bits(x), vi_set1(INT32_MAX))), vf_set1(10.0f));
    vf z = vf_mul(a, a);
    vf p = vf_fma(vf_set1(2.292744815e-03f), z, vf_set1(-8.343945257e-03f));
    p = vf_fma(p, z, vf_set1(2.176891826e-02f));
    p = vf_fma(p, z, vf_set1(-5.395925790e-02f));
    p = vf_fma(p, z, vf_set1(1.333330423e-01f));
    p = vf_fma(p, z, vf_set1(-3.333333433e-01f));
    vf small = vf_fma(vf_mul(a, z), p, a);
    vf large = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(vf_exp(vf_add(a, a)), one)));
    vi is_small = vi_sar(vf_bits(vf_sub(a, vf_set1(0.625f))), 31);
    vi difference = vi_and(vi_sub(vf_bits(small), vf_bits(large)), is_small);
    return vi_as_vf(vi_add(vi_add(vf_bits(large), difference), sign));
}

static void kernel_vec_softcap(float *y, const float *x, float cap, size_t count) {
    const vf c = vf_set1(cap), inverse = vf_set1(1.0f / cap);
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf_store_n(y + i, vf_mul(c, vf_tanh(vf_mul(vf_load_n(x + i, n), inverse))), n);
    }
}

static void kernel_geglu(float *y, const float *gate, const float *up, size_t count) {
    const vf one = vf_set1(1.0f);
    for (size_t i = 0; i < count; i += VL) {
        size_t n = min_size(VL, count - i);
        vf g = vf_load_n(gate + i, n);
        vf t = vf_fma(vf_mul(g, g), vf_set1(-0.0713548163f), vf_set1(-1.5957691216f));
        vf s = vf_div(g, vf_add(one, vf_exp(vf_mul(g, t))));
        vf_store_n(y + i, vf_mul(s, vf_load_n(up + i, n)), n);
    }
}

static float row_dot(const float *a, const float *b, size_t n) {
    vf sum = vf_zero();
    for (size_t i = 0; i < n; i += VL) {
        size_t left = min_size(VL, n - i);
        sum = vf_fma(vf_load_n(a + i, left), vf_load_n(b + i, left), sum);
    }
    return vf_fold(sum);
}

static void kernel_row_dot(float *out, const float *a, const float *b, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++) out[i] = row_dot(a + i * n, b + i * n, n);
}

static void kernel_rmsnorm(float *y, float *r_out, const float *x, const float *w, size_t m,
                           size_t n, float eps) {
    for (size_t row = 0; row < m; row++, x += n, y += n) {
        const float squares = row_dot(x, x, n);
        /* Too large for f32, or none: not a row of zeros, which a division by infinity would make. */
        const float r = squares <= FLT_MAX ? 1.0f / sqrtf(squares / (float)n + eps) : NAN;
        vf rv = vf_set1(r);
        for (size_t i = 0; i < n; i += VL) {
            size_t left = min_size(VL, n - i);
            vf v = vf_mul(vf_load_n(x + i, left), rv);
            vf_store_n(y + i, vf_mul(v, vf_load_n(w + i, left)), left);
        }
        if (r_out) r_out[row] = r;
    }
}

static float row_max(const float *x, size_t n) {
    vf m = vf_set1(x[0]);
    size_t i = 0;
    for (; i + VL <= n; i += VL) m = vf_max(vf_load(x + i), m);
    float top = vf_fold_max(m);
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* exp(x - shift) of elements i .. i + left; the lanes beyond are +0. */
SIMD_INLINE vf exp_part(const float *x, vf shift, size_t left) {
    if (left >= VL) return vf_exp(vf_sub(vf_load(x), shift));
    float t[VL] = {0};
    vf_store_n(t, vf_exp(vf_sub(vf_load_n(x, left), shift)), left);
    return vf_load(t);
}

static float row_exp_sum(const float *x, float shift, size_t n) {
    const vf s = vf_set1(shift);
    vf sum = vf_zero();
    for (size_t i = 0; i < n; i += VL) sum = vf_add(sum, exp_part(x + i, s, min_size(VL, n - i)));
    return vf_fold(sum);
}

static float log_one(float x) {
    float t[VL];
    vf_store(t, vf_log(vf_set1(x)));
    return t[0];
}

static void kernel_row_lse(float *max_out, float *lse_out, const float *x, size_t m, size_t n) {
    for (size_t row = 0; row < m; row++, x += n) {
        float top = row_max(x, n);
        if (max_out) max_out[row] = top;
        lse_out[row] = top + log_one(row_exp_sum(x, top, n));
    }
}

static void kernel_softmax(float *y, const float *x, size_t m, size_t n) {
    for (size_t row = 0; row < m; row++, x += n, y += n) {
        float top = row_max(x, n);
        vf shift = vf_set1(top), sum = vf_zero();
        for (size_t i = 0; i < n; i += VL) {
            size_t left = min_size(VL, n - i);
            vf p = exp_part(x + i, shift, left);
            vf_store_n(y + i, p, left);
            sum = vf_add(sum, p);
        }
        kernel_vec_scale(y, y, 1.0f / vf_fold(sum), n);
    }
}

static void kernel_row_exp(float *p, const float *x, const float *shift, size_t m, size_t n,
                           size_t p_stride, size_t x_stride) {
    for (size_t row = 0; row < m; row++, x += x_stride, p += p_stride) {
        vf s = vf_set1(shift[row]);
        for (size_t i = 0; i < n; i += VL) {
            size_t left = min_size(VL, n - i);
            vf_store_n(p + i, vf_exp(vf_sub(vf_load_n(x + i, left), s)), left);
        }
    }
}

static bool kernel_all_finite(const float *x, size_t count) {
    const vi mask = vi_set1(0x7fffffff);
    vi top = vi_set1(0);
    for (size_t i = 0; i < count; i += VL)
        top = vi_max(top, vi_and(vf_bits(vf_load_n(x + i, min_size(VL, count - i))), mask));
    int32_t lanes[VL];
    vi_store(lanes, top);
    for (int i = 0; i < VL; i++)
        if (lanes[i] >= 0x7f800000) return false;
    return true;
}

/* One head, pairs side by side. */
SIMD_INLINE void rope_pairs(float *x, const float *cos, const float *sin, size_t d, bool inverse) {
    for (size_t i = 0; i < d; i += VL) {
        size_t left = min_size(VL, d - i);
        vf v = vf_load_n(x + i, left), s = vf_load_n(sin + i, left);
        if (inverse) s = vf_sub(vf_zero(), s);
        vf turned = vf_mul(vf_swap_pairs(v), s);
        vf_store_n(x + i, vf_fma(v, vf_load_n(cos + i, left), turned), left);
    }
}

/* One head, element i with element i + d / 2. */
SIMD_INLINE void rope_halves(float *x, const float *cos, const float *sin, size_t d, bool inverse) {
    const size_t h = d / 2;
    for (size_t i = 0; i < h; i += VL) {
        size_t left = min_size(VL, h - i);
        vf a = vf_load_n(x + i, left), b = vf_load_n(x + h + i, left);
        vf sa = vf_load_n(sin + i, left), sb = vf_load_n(sin + h + i, left);
        if (inverse) sa = vf_sub(vf_zero(), sa), sb = vf_sub(vf_zero(), sb);
        vf c = vf_load_n(cos + i, left);
        vf_store_n(x + i, vf_fma(a, c, vf_mul(b, sa)), left);
        vf_store_n(x + h + i, vf_fma(b, c, vf_mul(a, sb)), left);
    }
}

static void kernel_rope(float *x, const omm_rope *rope, size_t m, uint32_t heads, size_t pos0,
                        bool inverse) {
    const size_t d = rope->rotated;
    for (size_t row = 0; row < m; row++) {
        const float *cos = rope->cos + (pos0 + row) * d, *sin = rope->sin + (pos0 + row) * d;
        for (uint32_t h = 0; h < heads; h++, x += rope->head_dim) {
            if (rope->style == OMM_ROPE_HALVES)
                rope_halves(x, cos, sin, d, inverse);
            else
                rope_pairs(x, cos, sin, d, inverse);
        }
    }
}
