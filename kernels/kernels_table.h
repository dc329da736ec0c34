/* kernels_table.h - what one instruction set provides: single-threaded pieces of work.
 *
 * kernels.c cuts a public call into such pieces and hands them to the pool; where it cuts cannot
 * change a bit, because no chain and no row sum ever crosses a cut.
 */
#ifndef ENGINE_KERNELS_TABLE_H
#define ENGINE_KERNELS_TABLE_H

#include "omm/kernels.h"

#include <stdatomic.h>

/* Blocking of the matrix product.  A panel of KC * 32 columns of B (32 KiB) is read in order from L1
 * and L2, MB * KC of A (384 KiB) stays in L2; MB is a multiple of every SIMD_MR.  Packed rows of A are
 * padded so that the rows of one tile do not fall into one cache set. */
#define GEMM_KC ((size_t)256)
#define GEMM_MB ((size_t)384)
#define GEMM_LDA (GEMM_KC + 16)
#define GEMM_TAIL_MAX (GEMM_LDA - GEMM_KC) /* a tail's part of A lies where rows are padded */
/* A is read where it lies when its rows are at most so many floats apart, and not by whole pages: then
 * a tile's rows would share one cache set. */
#define GEMM_PLACE_STRIDE ((size_t)4096)
#define GEMM_PAGE_FLOATS ((size_t)1024)
#define GEMM_NC ((size_t)32) /* columns of a cut are a multiple of this */
#define GEMM_MR_MAX ((size_t)12)
#define GEMM_PLACE_ROWS ((size_t)64) /* up to here a plain B is cheaper read in place than copied */

/* The product of many rows with packed weights (gemm_weights_body.h), and sums over tokens: rows and
 * steps of k of a thread that stay in its second cache, and outputs that pass through it in order once
 * for each block of k.  More rows make fewer panels, more columns turn A less often.  A last block of k
 * has the steps of a tail behind it. */
#define WEIGHTS_MB ((size_t)516)
#define WEIGHTS_COLS ((size_t)768)
#define WEIGHTS_KC_ROOM (GEMM_KC + GEMM_TAIL_MAX)
#define WEIGHTS_ROWS_MIN ((size_t)48) /* below, a plain product is cheaper than to move outputs */
#define WEIGHTS_A_FLOATS (WEIGHTS_MB * WEIGHTS_KC_ROOM + OMM_STRIP)
#define WEIGHTS_PANEL_FLOATS (WEIGHTS_KC_ROOM * GEMM_NC)
#define WEIGHTS_C_FLOATS (WEIGHTS_MB * WEIGHTS_COLS)
#define WEIGHTS_FLOATS (WEIGHTS_A_FLOATS + WEIGHTS_PANEL_FLOATS + WEIGHTS_C_FLOATS)

/* Columns in one panel of the int8 product: two strips of them (24 KiB) stay in L1 while the tokens
 * pass.  A multiple of OMM_QUANT_SUPER. */
#define Q8_COLUMNS ((size_t)512)
#define Q8_STRIPS ((size_t)2)     /* strips of a cut are a multiple of this: every SIMD_Q8_STRIPS */
#define Q8_FEW_STRIPS ((size_t)4) /* that few tokens take: at least every SIMD_Q8_FEW_STRIPS */
/* Tokens that pass at once: a block of columns of theirs (384 KiB), what its products start with
 * (98 KiB) and sums with four strips (192 KiB) stay in the second cache.  A multiple of every
 * SIMD_Q8_TOKENS. */
#define Q8_TOKENS ((size_t)768)

/* Scratch floats of one worker: the larger of what the matrix product (A block, B panel, one tile)
 * and attention (below) take. */
#define ATTENTION_LD ((size_t)OMM_HEAD_DIM_MAX + 16)
#define ATTENTION_ROWS ((size_t)48) /* share a block turned into f32; a multiple of every SIMD_MR */
#define ATTENTION_FLOATS                                                                           \
    (4 * ATTENTION_ROWS * ATTENTION_LD + (size_t)OMM_KV_BLOCK * OMM_HEAD_DIM_MAX)
#define ATTENTION_PART_HEADS ((size_t)16)            /* key/value heads side by side, at most */
#define ATTENTION_PART(WIDTH) ((size_t)(WIDTH) + 16) /* floats of a row's part: o, maximum, sum */
#define GEMM_FLOATS (GEMM_MB * GEMM_LDA + GEMM_KC * GEMM_NC + GEMM_MR_MAX * GEMM_NC)
#define GEMM_OR_ATTENTION_FLOATS (GEMM_FLOATS > ATTENTION_FLOATS ? GEMM_FLOATS : ATTENTION_FLOATS)
#define WORK_FLOATS                                                                                \
    (WEIGHTS_FLOATS > GEMM_OR_ATTENTION_FLOATS ? WEIGHTS_FLOATS : GEMM_OR_ATTENTION_FLOATS)

/* Where B of c[m][n] (+)= a[m][k] b[k][n] comes from. */
typedef enum gemm_source {
    GEMM_B_ROWS,         /* b[k][n] */
    GEMM_B_COLUMNS,      /* b[n][k] */
    GEMM_B_STRIPS,       /* packed w, n = its rows, k = its columns */
    GEMM_B_STRIPS_TURNED /* packed w, n = its columns, k = its rows */
} gemm_source;

typedef struct gemm_job {
    float *c;
    const float *a; /* element (i, k) at a[i * a_row + k * a_col]; one of the strides is 1 */
    const float *b;
    const omm_matrix *w;
    size_t m, n, k;
    size_t a_row, a_col, ldb, ldc;
    gemm_source source;
    bool accumulate;
    bool lower;           /* c[m][m]: tiles above the diagonal may be left as they are */
    bool fold_tokens;     /* omm_gemm_tn_chunks */
    const uint32_t *ends; /* of the chunks; NULL: every OMM_TOKEN_CHUNK steps */
    /* NULL, or a job of the same c over k <= GEMM_TAIL_MAX that every chain goes on with while its
     * output is in cache: c + tail.a tail.b. */
    const struct gemm_job *tail;
} gemm_job;

/* Whether rows of a job go through gemm_weights_body.h; else gemm_body.h has them. */
static inline bool gemm_by_weights(const gemm_job *job, size_t rows) {
    return rows >= WEIGHTS_ROWS_MIN &&
           (job->source == GEMM_B_STRIPS || job->source == GEMM_B_STRIPS_TURNED);
}

/* Whether sums over tokens go through gemm_tokens_body.h, which wants A's tokens apart. */
static inline bool gemm_by_tokens(const gemm_job *job, size_t rows) {
    return job->fold_tokens && job->a_row == 1 && rows >= WEIGHTS_ROWS_MIN &&
           job->source == GEMM_B_ROWS;
}

/* Rows of a block, and columns whose outputs stay with it: about equal parts. */
static inline size_t weights_rows_step(size_t m) {
    const size_t blocks = (m + WEIGHTS_MB - 1) / WEIGHTS_MB;
    return ((m + blocks - 1) / blocks + GEMM_MR_MAX - 1) / GEMM_MR_MAX * GEMM_MR_MAX;
}
static inline size_t weights_columns_step(size_t m, size_t n) {
    const size_t most = WEIGHTS_C_FLOATS / weights_rows_step(m) / GEMM_NC * GEMM_NC;
    const size_t parts = (n + most - 1) / most;
    return ((n + parts - 1) / parts + GEMM_NC - 1) / GEMM_NC * GEMM_NC;
}

/* omm_q8_rows.stride of so many rows; more rows have no smaller one. */
size_t q8_stride(size_t rows);

/* Tokens of a pass, `most` of them: about equal parts. */
static inline size_t q8_tokens_step(size_t m, size_t most) {
    const size_t passes = (m + most - 1) / most;
    return ((m + passes - 1) / passes + 11) / 12 * 12;
}

/* int8 activations against quantised weights: what products of bytes are for. */
struct omm_q8_kernels {
    void (*quantize)(omm_q8_rows *out, const float *x, size_t m0, size_t m1);
    /* tokens m0 .. m1, strips s0 .. s1 */
    void (*linear)(float *y, const omm_q8_rows *x, const omm_matrix *w, float *work, size_t m0,
                   size_t m1, size_t s0, size_t s1);
};

/* All else. */
struct omm_kernels {
    /* rows m0 .. m1, columns n0 .. n1 (n0 a multiple of GEMM_NC) of a job; k >= 1 */
    void (*gemm)(const gemm_job *job, float *work, size_t m0, size_t m1, size_t n0, size_t n1);
    /* c[n][n]: what is above the diagonal becomes what is below it */
    void (*mirror)(float *c, size_t ldc, size_t n);
    /* one row of omm_linear_forward, strips s0 .. s1 */
    void (*gemv)(float *y, const float *x, const omm_matrix *w, bool accumulate, size_t s0,
                 size_t s1);
    void (*vec_scale)(float *y, const float *x, float alpha, size_t count);
    void (*vec_add)(float *y, const float *x, size_t count);
    void (*vec_exp)(float *y, const float *x, size_t count);
    void (*vec_log)(float *y, const float *x, size_t count);
    void (*swiglu)(float *y, const float *gate, const float *up, size_t count);
    void (*geglu)(float *y, const float *gate, const float *up, size_t count);
    void (*vec_softcap)(float *y, const float *x, float cap, size_t count);
    void (*rmsnorm)(float *y, float *r_out, const float *x, const float *w, size_t m, size_t n,
                    float eps);
    void (*row_lse)(float *max_out, float *lse_out, const float *x, size_t m, size_t n);
    void (*softmax)(float *y, const float *x, size_t m, size_t n);
    void (*row_exp)(float *p, const float *x, const float *shift, size_t m, size_t n,
                    size_t p_stride, size_t x_stride);
    void (*row_dot)(float *out, const float *a, const float *b, size_t m, size_t n);
    bool (*all_finite)(const float *x, size_t count);
    void (*rope)(float *x, const omm_rope *rope, size_t m, uint32_t heads, size_t pos0,
                 bool inverse);
    /* key/value heads head0 .. head1 */
    void (*kv_store)(const omm_kv *kv, const float *k, const float *v, size_t m, size_t pos0,
                     uint32_t head0, uint32_t head1);
    /* rows r0 .. r1 of key/value head `kv_head`: row r is query r / group, its head r % group */
    void (*attention)(const omm_attention *a, float *work, uint32_t kv_head, size_t r0, size_t r1);
    /* one query (m = 1), all rows of key/value heads head0 .. head1 (at most ATTENTION_ROWS together and
     * ATTENTION_PART_HEADS heads) over one segment that it sees something of: parts[rows] of each head,
     * `stride` floats from one to the next */
    void (*attention_part)(const omm_attention *a, float *work, uint32_t head0, uint32_t head1,
                           size_t segment, float *parts, size_t stride);
    /* row `head` of a query from its `count` parts, `stride` floats apart, in ascending order */
    void (*attention_join)(const omm_attention *a, uint32_t head, const float *parts, size_t stride,
                           size_t count);
};

/* How what one token reads is asked for: no byte depends on it, and processors differ
 * (measurements/decode.md).  Near: weights of int8 products and the cache as far as the first
 * cache, or the second one.  Few bits: weights of less than 8 bits at all, or they are left to the
 * processor.  Together: few tokens take up to Q8_FEW_STRIPS strips side by side, or one after the
 * other.
 * omm_compute_init stores what this one has measured better with. */
extern atomic_bool kernels_ask_near, kernels_ask_few_bits, kernels_strips_together;

/* Those that this build has.  What has products of bytes beside it has no other floats. */
extern const struct omm_kernels kernels_scalar;
extern const struct omm_kernels kernels_scalar_fma;
extern const struct omm_kernels kernels_avx2;
extern const struct omm_kernels kernels_avx512;
extern const struct omm_kernels kernels_neon;
extern const struct omm_q8_kernels q8_scalar;
extern const struct omm_q8_kernels q8_scalar_fma;
extern const struct omm_q8_kernels q8_avx2;
extern const struct omm_q8_kernels q8_avx2_vnni;
extern const struct omm_q8_kernels q8_avx512;
extern const struct omm_q8_kernels q8_neon;
extern const struct omm_q8_kernels q8_neon_dotprod;

#endif
