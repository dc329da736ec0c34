/* kernels_body.h - all kernels of one instruction set; compiled once for each by kernels_<isa>.c, which first
 * defines OMM_SIMD, KERNELS_Q8 and KERNELS (the names of its tables), or leaves KERNELS out: then its
 * floats are another's.
 */
#include "kernels_table.h"
#include "omm/simd.h"
#include "quant_layout.h"

#include <float.h>
#include <math.h>

/* Strips side by side in decode: enough chains to hide the latency of fma. */
#if OMM_SIMD == OMM_SIMD_AVX512
#define SIMD_GEMV 8
#else
#define SIMD_GEMV 4
#endif

/* The same where strips have to be unpacked.  AVX2 does that into registers, one function a format: 1.15 to 1.2 times
 * as fast there.  Elsewhere one function serves all: as fast or 1.1 times with AVX-512, and much less to compile. */
#define SIMD_GEMV_QUANT 2
#define SIMD_GEMV_UNPACKED (OMM_SIMD == OMM_SIMD_AVX2 ? 1 : 4)
/* Tokens that take a strip as it lies: as many side by side (a power of two), and in all; more share
 * what was unpacked once.  Strips of theirs side by side, where strips_together() (a power of two). */
#if OMM_SIMD == OMM_SIMD_AVX512
#define SIMD_Q8_FEW 8
#define SIMD_Q8_FEW_MAX 48
#define SIMD_Q8_FEW_STRIPS 4
#else
#define SIMD_Q8_FEW 4
#define SIMD_Q8_FEW_MAX 24
#define SIMD_Q8_FEW_STRIPS (OMM_SIMD == OMM_SIMD_AVX2 ? 4 : 1)
#endif
/* Bytes that decode asks for ahead of what it reads: of one strip of int8 products, into the first
 * cache or the second, and SIMD_Q8_AHEAD into the first of each of several side by side; of each strip
 * of f32 products (they go side by side), into the second. */
#define SIMD_Q8_AHEAD_NEAR 8192
#define SIMD_Q8_AHEAD 3072
#define SIMD_GEMV_AHEAD 3072

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static bool ask_near(void) {
    return atomic_load_explicit(&kernels_ask_near, memory_order_relaxed);
}

static bool ask_few_bits(void) {
    return atomic_load_explicit(&kernels_ask_few_bits, memory_order_relaxed);
}

static bool strips_together(void) {
    return atomic_load_explicit(&kernels_strips_together, memory_order_relaxed);
}

/* Later files use what earlier ones define. */
/* clang-format off */
#include "quant_body.h"
#include "q8_body.h"
#ifdef KERNELS
#include "gemm_body.h"
#include "rows_body.h"
#include "attention_few_body.h"
#include "attention_q8_body.h"
#include "attention_body.h"
#endif
/* clang-format on */

const struct omm_q8_kernels KERNELS_Q8 = {
    .quantize = kernel_q8_quantize,
    .linear = kernel_q8_linear,
};

#ifdef KERNELS
const struct omm_kernels KERNELS = {
    .gemm = kernel_gemm,
    .mirror = kernel_mirror,
    .gemv = kernel_gemv,
    .vec_scale = kernel_vec_scale,
    .vec_add = kernel_vec_add,
    .vec_exp = kernel_vec_exp,
    .vec_log = kernel_vec_log,
    .swiglu = kernel_swiglu,
    .geglu = kernel_geglu,
    .vec_softcap = kernel_vec_softcap,
    .rmsnorm = kernel_rmsnorm,
    .row_lse = kernel_row_lse,
    .softmax = kernel_softmax,
    .row_exp = kernel_row_exp,
    .row_dot = kernel_row_dot,
    .all_finite = kernel_all_finite,
    .rope = kernel_rope,
    .kv_store = kernel_kv_store,
    .attention = kernel_attention,
    .attention_part = kernel_attention_part,
    .attention_join = kernel_attention_join,
};
#endif
