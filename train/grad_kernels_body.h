/* grad_kernels_body.h - the kernels of grad_kernels.h, included once by each instruction set's file.
 * GRAD_TABLE names the table that this compilation defines. */
#include "grad_kernels.h"

#include <math.h>

enum { LANES = 16 };

static float fold(const float lanes[LANES]) {
    float l[LANES];
    for (int i = 0; i < LANES; i++) l[i] = lanes[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) l[i] += l[i + half];
    return l[0];
}

static float k_dot(const float *restrict a, const float *restrict b, size_t n) {
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] = fmaf(a[i + l], b[i + l], lanes[l]);
    for (size_t l = 0; i + l < n; l++) lanes[l] = fmaf(a[i + l], b[i + l], lanes[l]);
    return fold(lanes);
}

static void k_rmsnorm(float *restrict dx, const float *restrict dy, const float *restrict x,
                      const float *restrict w, float r, size_t n) {
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] = fmaf(dy[i + l] * w[i + l], x[i + l], lanes[l]);
    for (size_t l = 0; i + l < n; l++) lanes[l] = fmaf(dy[i + l] * w[i + l], x[i + l], lanes[l]);
    float c = (fold(lanes) * r) * (r * r) / (float)n;
    for (size_t j = 0; j < n; j++) dx[j] += fmaf(-c, x[j], r * (dy[j] * w[j]));
}

/* n elements, LANES but at the end.  Outputs may lie on inputs: results wait in arrays of their own, so that the
 * compiler needs no alias check. */
static inline __attribute__((always_inline)) void swiglu_lanes(float *dgate, float *dup,
                                                               const float *da, const float *gate,
                                                               const float *up, const float *e,
                                                               const size_t n) {
    float a[LANES], b[LANES];
    for (size_t l = 0; l < n; l++) {
        float d = da[l], g = gate[l], s = 1.0F / (1.0F + e[l]);
        float silu = g * s;
        a[l] = (d * up[l]) * fmaf(silu, 1.0F - s, s);
        b[l] = d * silu;
    }
    for (size_t l = 0; l < n; l++) dgate[l] = a[l];
    for (size_t l = 0; l < n; l++) dup[l] = b[l];
}

static void k_swiglu(float *dgate, float *dup, const float *da, const float *gate, const float *up,
                     const float *e, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        swiglu_lanes(dgate + i, dup + i, da + i, gate + i, up + i, e + i, LANES);
    swiglu_lanes(dgate + i, dup + i, da + i, gate + i, up + i, e + i, count - i);
}

/* sqrt(8 / pi), negated, and 0.044715 times it: those of omm_geglu_forward. */
static const float GELU_C0 = -1.5957691216F, GELU_C1 = -0.0713548163F;

static void k_gelu_power(float *v, const float *gate, size_t count) {
    for (size_t i = 0; i < count; i++) v[i] = gate[i] * fmaf(gate[i] * gate[i], GELU_C1, GELU_C0);
}

static inline __attribute__((always_inline)) void geglu_lanes(float *dgate, float *dup,
                                                              const float *da, const float *gate,
                                                              const float *up, const float *e,
                                                              const size_t n) {
    float a[LANES], b[LANES];
    for (size_t l = 0; l < n; l++) {
        float d = da[l], g = gate[l], s = 1.0F / (1.0F + e[l]);
        float gelu = g * s, slope = fmaf(g * g, 3.0F * GELU_C1, GELU_C0);
        a[l] = (d * up[l]) * fmaf(-gelu * (1.0F - s), slope, s);
        b[l] = d * gelu;
    }
    for (size_t l = 0; l < n; l++) dgate[l] = a[l];
    for (size_t l = 0; l < n; l++) dup[l] = b[l];
}

static void k_geglu(float *dgate, float *dup, const float *da, const float *gate, const float *up,
                    const float *e, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        geglu_lanes(dgate + i, dup + i, da + i, gate + i, up + i, e + i, LANES);
    geglu_lanes(dgate + i, dup + i, da + i, gate + i, up + i, e + i, count - i);
}

static void k_softcap(float *restrict dx, const float *restrict y, float inverse, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float t = y[i] * inverse;
        dx[i] *= fmaf(-t, t, 1.0F);
    }
}

static void k_softmax_row(float *restrict p, float *restrict dp, float d, float scale, size_t seen,
                          size_t n) {
    for (size_t j = 0; j < seen; j++) dp[j] = (p[j] * (dp[j] - d)) * scale;
    for (size_t j = seen; j < n; j++) p[j] = dp[j] = 0;
}

static void k_dropout(float *y, const float *x, const uint32_t *random, uint32_t limit, float scale,
                      size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = random[i] >= limit ? x[i] * scale : 0.0F;
}

static void k_add(float *restrict y, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void k_scale(float *y, const float *x, float a, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a * x[i];
}

const grad_kernels GRAD_TABLE = {k_rmsnorm,     k_swiglu, k_gelu_power, k_geglu, k_softcap,
                                 k_softmax_row, k_dot,    k_dropout,    k_add,   k_scale};
