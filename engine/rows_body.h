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
        float r = 1.0f / sqrtf(row_dot(x, x, n) / (float)n + eps);
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

static void kernel_rope(float *x, const omm_rope *rope, size_t m, uint32_t heads, size_t pos0,
                        bool inverse) {
    const size_t d = rope->head_dim;
    for (size_t row = 0; row < m; row++) {
        const float *cos = rope->cos + (pos0 + row) * d, *sin = rope->sin + (pos0 + row) * d;
        for (uint32_t h = 0; h < heads; h++, x += d) {
            for (size_t i = 0; i < d; i += VL) {
                size_t left = min_size(VL, d - i);
                vf v = vf_load_n(x + i, left), s = vf_load_n(sin + i, left);
                if (inverse) s = vf_sub(vf_zero(), s);
                vf turned = vf_mul(vf_swap_pairs(v), s);
                vf_store_n(x + i, vf_fma(v, vf_load_n(cos + i, left), turned), left);
            }
        }
    }
}
