/* grad_kernels.h - the row kernels that only backward needs, once per instruction set.
 *
 * grad_kernels_body.h is plain C whose inner loops run over 16 independent lanes; it is compiled
 * once per instruction set with that set's flags, and the compiler may use any vector width because no
 * operation crosses a lane but the written fold (8, 4, 2, 1).  The scalar build is the definition.
 * Inside train only.
 */
#ifndef TRAIN_GRAD_KERNELS_H
#define TRAIN_GRAD_KERNELS_H

#include "omm/compute.h"

#include <stddef.h>
#include <stdint.h>

typedef struct grad_kernels {
    /* dx[n] += gradient of y = (x * r) * w with r = 1 / sqrt(mean x^2 + eps), for one row:
     *   t = dy * w;  s = rowsum(fma t x);  c = (s * r) * (r * r) / n;  dx += fma(-c, x, r * t) */
    void (*rmsnorm)(float *dx, const float *dy, const float *x, const float *w, float r, size_t n);
    /* act = gate * sig * up, sig = 1 / (1 + e), e = exp(-gate) given in `e`:
     *   dup = da * (gate * sig);  dgate = (da * up) * fma(gate * sig, 1 - sig, sig)
     * dgate may be e, dup may be da. */
    void (*swiglu)(float *dgate, float *dup, const float *da, const float *gate, const float *up,
                   const float *e, size_t count);
    /* v = gate * t, t = fma(gate gate, C1, C0): the exponent in omm_geglu_forward.  v may be gate. */
    void (*gelu_power)(float *v, const float *gate, size_t count);
    /* act = gate * s * up, s = 1 / (1 + e), e = exp(gate * t) given in `e`:
     *   dup = da * (gate * s);  dt = fma(gate gate, 3 C1, C0), the slope of gate * t
     *   dgate = (da * up) * fma(-(gate * s) * (1 - s), dt, s).  Aliases as swiglu. */
    void (*geglu)(float *dgate, float *dup, const float *da, const float *gate, const float *up,
                  const float *e, size_t count);
    /* dx[n] = dx * (1 - t t), t = y * inverse, for y = cap * tanh(x / cap), inverse = 1 / cap. */
    void (*softcap)(float *dx, const float *y, float inverse, size_t n);
    /* Softmax backward of one causal row: the first `seen` of `n` entries
     *   ds = (p * (dp - d)) * scale, the others p = ds = 0.  ds is dp's place. */
    void (*softmax_row)(float *p, float *dp, float d, float scale, size_t seen, size_t n);
    /* Row sum of a * b over n (16 lanes, fma). */
    float (*dot)(const float *a, const float *b, size_t n);
    /* y[n] = x[n] * scale where random[n] >= limit, else 0; y may be x. */
    void (*dropout)(float *y, const float *x, const uint32_t *random, uint32_t limit, float scale,
                    size_t n);
    /* y[n] += x[n] */
    void (*add)(float *y, const float *x, size_t n);
    /* y[n] = a * x[n]; y may be x. */
    void (*scale)(float *y, const float *x, float a, size_t n);
} grad_kernels;

/* The table of an instruction set that omm_isa_available says is here. */
const grad_kernels *grad_kernels_of(omm_isa isa);

extern const grad_kernels grad_kernels_scalar;
#if defined(__x86_64__)
extern const grad_kernels grad_kernels_scalar_fma;
extern const grad_kernels grad_kernels_avx2;
extern const grad_kernels grad_kernels_avx512;
#elif defined(__aarch64__)
extern const grad_kernels grad_kernels_neon;
#endif

#endif
