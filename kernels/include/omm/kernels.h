/* kernels.h - the arithmetic of models, forward and what backward needs of it.
 *
 * Every result is defined to the bit; instruction set, thread count and the way a batch is split
 * cannot change it.  The definitions:
 *
 *   chain     c = fma(a_k, b_k, c) for ascending k, starting at +0, or at the value already in
 *             the output when `accumulate` is set.  All products of matrices are chains.
 *   row sum   16 lanes: lane l adds elements l, l + 16, ... in order (short rows end in zeros);
 *             then lanes fold 8, 4, 2, 1: lane[i] += lane[i + s].
 *   max       exact, so its order is free; rows with NaN are a caller's error (see all_finite).
 *
 * Shapes are row major; `m` counts tokens (rows).  Inputs must be finite; results may overflow to
 * infinity or NaN, which omm_all_finite finds.  None of these functions fail: buffers are the
 * caller's.  Outputs do not overlap inputs unless it is said.
 *
 * Source: docs/design.md section 3, "One arithmetic".
 * Depends on: compute, quant, mathd.  Threads: one call at a time per omm_compute.
 */
#ifndef OMM_KERNELS_H
#define OMM_KERNELS_H

#include "omm/compute.h"
#include "omm/kv.h"
#include "omm/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_TOKEN_CHUNK 64u /* tokens in one partial sum of a gradient */

/* ---- Linear layers over packed weights, f32 activations ------------------------------- */

/* y[m][rows] (+)= x[m][cols] W^T: one chain per output, k ascending over columns. */
void omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                        size_t m, bool accumulate);
/* Rows first .. first + rows - 1 of a product continue: y[n] = fma(z[k], b[n][k], y[n]), k
 * ascending: the second half of an adapter. */
typedef struct omm_linear_term {
    const float *z;      /* of row `first`; rows are z_stride floats apart */
    const omm_matrix *b; /* as many rows as the product's matrix */
    size_t first, rows, z_stride;
} omm_linear_term;
/* dx[m][cols] (+)= dy[m][rows] W: one chain per output, ascending over the rows of W. */
void omm_linear_backward(const omm_compute *c, float *dx, const float *dy, const omm_matrix *w,
                         size_t m, bool accumulate);
/* x[m][cols] = rows ids[0..m) of a packed matrix, dequantised.  ids[i] < rows. */
void omm_embed_forward(const omm_compute *c, float *x, const omm_matrix *w, const uint32_t *ids,
                       size_t m);

/* ---- The same with activations in int8 (mode q8) --------------------------------------- */

/* x quantised per 32 columns: amax = max |x|, d = amax / 127, q = rne(x * (127 / amax)), sums = sums
 * of q over columns 0 .. 15 and 16 .. 31.  A block with amax < 2^-100 becomes zero; one that is not
 * finite gets d = NaN.  Rows lie side by side, so that a few of them at a time are read in one go. */
typedef struct omm_q8_rows {
    size_t rows_max, cols_max;
    size_t rows, cols; /* of what is in it; cols is a multiple of 32 */
    size_t stride;     /* rows from one block of columns to the next: at least `rows` */
    int8_t *q;         /* [cols / 32][stride][32] */
    float *d;          /* [cols / 32][stride] */
    int16_t *sums;     /* [cols / 32][stride][2] */
    float *weighted;   /* [cols / 32][stride][3]: (float)sum * d of both halves, and of the whole */
} omm_q8_rows;

/* Errors: NOMEM. */
OMM_CHECKED omm_err omm_q8_rows_init(omm_q8_rows *rows, size_t rows_max, size_t cols_max);
void omm_q8_rows_fini(omm_q8_rows *rows);
size_t omm_q8_rows_bytes(size_t rows_max, size_t cols_max); /* that init takes */
/* cols <= cols_max given to init; m <= rows_max. */
void omm_q8_quantize(const omm_compute *c, omm_q8_rows *out, const float *x, size_t m, size_t cols);
/* y[m][rows] = x W^T for quantised w; m and w->cols are those that x was made with.  acc = +0, then
 * for each 32 columns in ascending order and their sub-blocks j (two of 16 in Q2_K, Q3_K and Q6_K,
 * else one of 32):
 *   acc = fma((float)idot_j * scale_j, d_x, acc)       idot_j: the exact integer product
 *   acc = fma((float)sum_j * d_x, min_j, acc)         where there are minima; sum_j: of x's quants
 * min_j = m in Q4_1 and Q5_1, 0 - dmin * sub_min_j in Q2_K, Q4_K and Q5_K;
 * scale_j = d, or d * sub_j where the format has sub-scales (products with d and dmin are exact). */
void omm_linear_q8(const omm_compute *c, float *y, const omm_q8_rows *x, const omm_matrix *w,
                   size_t m);
/* The same of rows first .. first + count - 1 alone, count >= 1: y[x->rows][w->rows], whose other rows
 * stay as they are. */
void omm_linear_q8_rows(const omm_compute *c, float *y, const omm_q8_rows *x, const omm_matrix *w,
                        size_t first, size_t count);
/* One of several products of the same x. */
typedef struct omm_linear {
    float *y; /* [m][w->rows] */
    const omm_matrix *w;
    const omm_linear_term *terms; /* [term_count] */
    size_t term_count;
} omm_linear;
#define OMM_LINEAR_MAX 12u
/* Adapters: the first `count` of some products are z = A x of terms of the others.  `then` is called
 * once when they are done, on any thread, and may change what they gave (scales). */
typedef struct omm_linear_lower {
    size_t count;
    void (*then)(void *ud);
    void *ud;
} omm_linear_lower;
/* y = x W^T of `count` <= OMM_LINEAR_MAX products, m >= 1, each y continued by its terms in their order.
 * lower: NULL (every z is there), or where z comes from.  q8: NULL, or x quantised, which quantised
 * matrices then take in place of x.  One pass over the pool where that is possible: with few rows, or
 * in int8. */
void omm_linear_each(const omm_compute *c, const omm_linear *products, size_t count,
                     const omm_linear_lower *lower, const float *x, const omm_q8_rows *q8,
                     size_t m);

/* ---- Products of plain matrices (adapters, attention backward) ------------------------- */

/* c[m][n]; lda, ldb, ldc are the floats from one row to the next of the matrices as they lie. */
typedef struct omm_gemm {
    float *c;
    const float *a, *b;
    size_t m, n, k;
    size_t lda, ldb, ldc;
    bool accumulate; /* chains continue from c */
} omm_gemm;

void omm_gemm_nt(const omm_compute *c, const omm_gemm *g); /* c = a[m][k] b[n][k]^T */
void omm_gemm_nn(const omm_compute *c, const omm_gemm *g); /* c = a[m][k] b[k][n] */
void omm_gemm_tn(const omm_compute *c, const omm_gemm *g); /* c = a[k][m]^T b[k][n] */
/* The same where c is symmetric but for rounding: m == n, not accumulate.  Half of the work: what is above the
 * diagonal is what is below it. */
void omm_gemm_nt_symmetric(const omm_compute *c, const omm_gemm *g);
void omm_gemm_nn_symmetric(const omm_compute *c, const omm_gemm *g);
void omm_gemm_tn_symmetric(const omm_compute *c, const omm_gemm *g);
/* Sums over the k tokens of sequences: chains from zero within each chunk of at most OMM_TOKEN_CHUNK tokens,
 * then c = c + chunk in ascending order.  With `accumulate` the fold continues from c, else it starts at
 * zero.  Chunk i ends before row ends[i] (ascending, the last is k); NULL: every OMM_TOKEN_CHUNK tokens. */
void omm_gemm_tn_chunks(const omm_compute *c, const omm_gemm *g, const uint32_t *ends);

/* ---- Several products over the pool together -------------------------------------------- */

/* A second product that every chain of a weight's goes on with, k ascending; with k of at most 16 it is done
 * while the first one's results are in cache. */
typedef struct omm_linear_pair {
    const float *z; /* [m][k] */
    const float *b; /* forward: [rows of w][k]; backward: [k][columns of w] */
    size_t k;       /* 0: none */
} omm_linear_pair;
typedef enum omm_product_kind {
    OMM_PRODUCT_FORWARD,  /* omm_linear_forward(c, a, w, m, accumulate), and its pair */
    OMM_PRODUCT_BACKWARD, /* omm_linear_backward of the same, and its pair */
    OMM_PRODUCT_NT,       /* omm_gemm_nt(plain) */
    OMM_PRODUCT_NN,       /* omm_gemm_nn(plain) */
    OMM_PRODUCT_CHUNKS    /* omm_gemm_tn_chunks(plain, ends) */
} omm_product_kind;
typedef struct omm_product {
    omm_product_kind kind;
    /* Of a weight: */
    float *c;            /* y[m][rows], or dx[m][columns] */
    const float *a;      /* x[m][columns], or dy[m][rows] */
    const omm_matrix *w; /* NULL in the others */
    size_t m;
    bool accumulate;
    omm_linear_pair pair;
    /* Of plain matrices: */
    omm_gemm plain;
    const uint32_t *ends;
} omm_product;
#define OMM_PRODUCTS_MAX 8u
/* The bytes of one call after the other.  No product may read or write what another one writes.  Threads that are
 * done with their part of the large ones, which are best named first, go on with the small ones, so they wait once
 * for all of them. */
void omm_products(const omm_compute *c, const omm_product *products, size_t count);

/* y[count] = alpha * x[count]; may be in place. */
void omm_vec_scale(const omm_compute *c, float *y, const float *x, float alpha, size_t count);
/* y[count] = y + x. */
void omm_vec_add(const omm_compute *c, float *y, const float *x, size_t count);

/* ---- Rows and elements ------------------------------------------------------------------ */

/* y[m][n] = (x * r) * w, r = 1 / sqrt(rowsum(fma x x) / n + eps).  r_out[m] keeps r unless NULL.
 * y == x is allowed. */
void omm_rmsnorm_forward(const omm_compute *c, float *y, float *r_out, const float *x,
                         const float *w, size_t m, size_t n, float eps);
/* y[count] = (gate / (1 + exp(-gate))) * up; y may be gate or up. */
void omm_swiglu_forward(const omm_compute *c, float *y, const float *gate, const float *up,
                        size_t count);
/* y[count] = (gate / (1 + exp(gate * t))) * up, t = fma(gate gate, -0.0713548163, -1.5957691216):
 * the tanh form of GELU, g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))), computed exactly rather
 * than from a table.  y may be gate or up. */
void omm_geglu_forward(const omm_compute *c, float *y, const float *gate, const float *up,
                       size_t count);
/* y[count] = cap * tanh(x * (1 / cap)), cap > 0; our tanh is at most 1.2 ulp off.  y == x is
 * allowed.  NaN gives an undefined finite number or NaN. */
void omm_vec_softcap(const omm_compute *c, float *y, const float *x, float cap, size_t count);
/* y[m][n] = y + bias[n]. */
void omm_row_add(const omm_compute *c, float *y, const float *bias, size_t m, size_t n);
/* Elementwise, at most 1.1 ulp off.  exp: x > 88.72 gives the largest finite results or infinity,
 * x < -87.33 gives 0 (no subnormals).  log: x positive and normal.  y == x is allowed. */
void omm_vec_exp(const omm_compute *c, float *y, const float *x, size_t count);
void omm_vec_log(const omm_compute *c, float *y, const float *x, size_t count);
/* Per row: max_out = max x, lse_out = max + log(rowsum exp(x - max)).  max_out may be NULL. */
void omm_row_lse(const omm_compute *c, float *max_out, float *lse_out, const float *x, size_t m,
                 size_t n);
/* y = exp(x - max) * (1 / rowsum exp(x - max)); y == x is allowed. */
void omm_softmax_forward(const omm_compute *c, float *y, const float *x, size_t m, size_t n);
/* p[m][n] = exp(x - shift[row]) with rows x_stride and p_stride apart: recomputes probabilities
 * from a saved log-sum-exp.  p == x is allowed. */
void omm_row_exp(const omm_compute *c, float *p, const float *x, const float *shift, size_t m,
                 size_t n, size_t p_stride, size_t x_stride);
/* Row sums of a[m][n] * b[m][n], chained as fma in each of the 16 lanes. */
void omm_row_dot(const omm_compute *c, float *out, const float *a, const float *b, size_t m,
                 size_t n);
/* False if any of x[count] is NaN or infinite. */
bool omm_all_finite(const omm_compute *c, const float *x, size_t count);

/* ---- Rotary positions --------------------------------------------------------------------- */

typedef enum omm_rope_style {
    OMM_ROPE_PAIRS, /* elements 2i and 2i + 1 turn together: llama, as GGUF permutes its rows */
    OMM_ROPE_HALVES /* elements i and i + rotated / 2: all others */
} omm_rope_style;

/* cos and sin of every position and pair, times a magnitude, computed in double. */
typedef struct omm_rope {
    omm_rope_style style;
    uint32_t positions, head_dim;
    uint32_t rotated; /* elements of a head that turn: its first ones */
    float *cos;       /* [positions][rotated], each pair's value at both elements */
    float *sin;       /* [positions][rotated]: -s at the pair's first element, +s at its second */
} omm_rope;

typedef struct omm_rope_spec {
    omm_rope_style style;
    uint32_t positions, head_dim;
    uint32_t rotated;        /* even, 2 .. head_dim */
    const double *frequency; /* [rotated / 2], radians per position */
    double magnitude;        /* factor of cos and sin; 1 without scaling */
} omm_rope_spec;

/* out[rotated / 2]: base^(-2i / rotated). */
void omm_rope_frequencies(double *out, uint32_t rotated, double base);
/* Errors: NOMEM, TOO_BIG (over 2^28 floats), NUMERIC (a pair turns by more than OMM_TURN_MAX). */
OMM_CHECKED omm_err omm_rope_init(omm_rope *rope, const omm_rope_spec *spec);
void omm_rope_fini(omm_rope *rope);
/* In place on x[m][heads][head_dim], rows at positions pos0, pos0 + 1, ...; a and b the elements of
 * a pair:  a' = fma(a, cos, b * -sin), b' = fma(b, cos, a * sin).
 * `inverse` turns by the negative angle (backward).  pos0 + m <= rope->positions. */
void omm_rope_apply(const omm_compute *c, float *x, const omm_rope *rope, size_t m, uint32_t heads,
                    size_t pos0, bool inverse);

/* ---- Attention over a cache of keys and values ----------------------------------------- */

/* Store rows k[m][kv_heads * head_dim] and v at positions pos0 .. pos0 + m - 1 (f16: to nearest
 * even; q8_0: kv.h), whose blocks are there. */
void omm_kv_store(const omm_compute *c, const omm_kv *kv, const float *k, const float *v, size_t m,
                  size_t pos0);

/* Causal attention of m queries at positions pos0 .. pos0 + m - 1 over a cache that holds positions
 * 0 .. pos0 + m - 1 (with a window: those that the queries see).  Head h reads key/value head
 * h / (heads / kv_heads).  A query at position p sees j <= p, with a window only j > p - window.
 * Segments of 1,024 positions from absolute position 0 are each a softmax of their own.  Blocks
 * b = 0, 1, ... of 64 positions of a segment that have such a j, for each (query, head):
 *   s_j  = chain over d of q[d] k_j[d], times scale        for the positions j that it sees
 *   s_j  = softcap * tanh(s_j * (1 / softcap))             unless softcap is 0
 *   m'   = max(m, max s_j);  a = exp(m - m') (first block of a segment: o = l = 0, no rescaling)
 *   p_j  = exp(s_j - m');  l = fma(l, a, rowsum over 64 of p, absent ones zero)
 *   o[d] = chain over present j of p_j v_j[d], from o[d] * a
 * Segments that have such a j are joined in ascending order (the first is what it is):
 *   M' = max(M, m);  O = fma(o, exp(m - M'), O * exp(M - M')), L the same way of l
 * out = O * (1 / L);  lse = M + log(L).
 * With a Q8_0 cache s_j and o are of exact integer products, for each group g of 32 dimensions:
 *   s_j  = +0, then for ascending g fma((float)idot(q_g, k_jg), dk_jg * dq_g, s_j), times scale
 *          q_g, dq_g: q quantised as rows of omm_q8_rows are
 *   w_j  = p_j dv_jg for present j;  e: the exponent of the largest, 2^e <= max |w_j| < 2^(e + 1)
 *   o[d] = fma((float)sum of rne(w_j 2^(12 - e)) v_j[d], 2^(e - 12), o[d] * a)
 *          the second product is 0 where e < -100, NaN where a w_j is not finite. */
#define OMM_ATTENTION_SEGMENT 1024u
typedef struct omm_attention {
    float *out;     /* [m][heads][head_dim] */
    float *max;     /* [m][heads]: M, or NULL */
    float *lse;     /* [m][heads], or NULL */
    const float *q; /* [m][heads][head_dim], rotated */
    const omm_kv *kv;
    size_t m, pos0;
    uint32_t heads;
    float scale;     /* usually 1 / sqrt(head_dim) */
    float softcap;   /* 0: none */
    uint32_t window; /* positions a query sees, its own included; 0: all */
} omm_attention;

void omm_attention_forward(const omm_compute *c, const omm_attention *a);
/* `count` independent ones (several sequences), side by side on the pool. */
void omm_attention_each(const omm_compute *c, const omm_attention *a, size_t count);

#endif
