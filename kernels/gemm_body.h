/* gemm_body.h - matrix products as fma chains; part of kernels_body.h.
 *
 * One core serves linear forward, linear backward and the three plain products: A's rows are
 * broadcast, B comes as panels of 16 columns [k][16], and a tile of SIMD_MR x (SIMD_NV * 16)
 * outputs stays in registers over a block of k.  Blocking over k stores and reloads the f32
 * accumulators, so the chain of each output is unbroken.
 */

/* acc[mr][nv] += a[mr] b[nv], rows of a lda apart.  A core that has two threads to serve takes three instructions of
 * each a cycle, and two of them are to multiply.  So most fma read their factor themselves, and as many rows load it
 * once for all that loads do not become too many (decision 201). */
SIMD_TILE_INLINE void tile_step(const int mr, const int nv, vf acc[SIMD_MR][SIMD_NV],
                                const float *a, size_t lda, const vf b[SIMD_NV]) {
    SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
        const float *at = a + (size_t)i * lda;
        if (SIMD_READS_EACH(i)) {
            SIMD_TILE_UNROLL for (int j = 0; j < nv; j++) {
                acc[i][j] = vf_fma_at(at, b[j], acc[i][j]);
            }
        } else {
            const vf av = vf_set1(*at);
            SIMD_TILE_UNROLL for (int j = 0; j < nv; j++) acc[i][j] = vf_fma(av, b[j], acc[i][j]);
        }
    }
}

/* c[mr][nv * 16] (+)= a[mr][kc] b: b's vector j of step k lies at b + j * b_vec + k * b_k.  Steps that lie
 * apart are rows of B, which no prefetcher follows: the columns of the next tile are asked for.
 */
SIMD_TILE_INLINE void tile_of(const int mr, const int nv, size_t kc, const float *a, size_t lda,
                              const float *b, size_t b_vec, size_t b_k, float *c, size_t ldc,
                              bool zero) {
    vf acc[SIMD_MR][SIMD_NV];
    SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
        SIMD_TILE_UNROLL for (int j = 0; j < nv; j++) {
            acc[i][j] = zero ? vf_zero() : vf_load(c + (size_t)i * ldc + (size_t)j * VL);
        }
    }
    const size_t ahead = b_k > VL ? (size_t)nv * VL : 0;
    for (size_t k = 0; k < kc; k++) {
        vf bv[SIMD_NV];
        SIMD_TILE_UNROLL for (int j = 0; j < nv; j++) {
            bv[j] = vf_load(b + (size_t)j * b_vec);
            SIMD_PREFETCH_NEAR(b + (size_t)j * b_vec + ahead);
        }
        tile_step(mr, nv, acc, a + k, lda, bv);
        b += b_k;
    }
    SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
        SIMD_TILE_UNROLL for (int j = 0; j < nv; j++) {
            vf_store(c + (size_t)i * ldc + (size_t)j * VL, acc[i][j]);
        }
    }
}

typedef void (*tile_fn)(size_t kc, const float *a, size_t lda, const float *b, size_t b_vec,
                        size_t b_k, float *c, size_t ldc, bool zero);

#define TILE(MR, NV)                                                                               \
    static __attribute__((noinline)) void tile_##MR##_##NV(                                        \
        size_t kc, const float *a, size_t lda, const float *b, size_t b_vec, size_t b_k, float *c, \
        size_t ldc, bool zero) {                                                                   \
        tile_of(MR, NV, kc, a, lda, b, b_vec, b_k, c, ldc, zero);                                  \
    }
#if SIMD_MR == 4
#define TILES(XX, NV) XX(1, NV) XX(2, NV) XX(3, NV) XX(4, NV)
#elif SIMD_MR == 6
#define TILES(XX, NV) XX(1, NV) XX(2, NV) XX(3, NV) XX(4, NV) XX(5, NV) XX(6, NV)
#else
#define TILES(XX, NV)                                                                              \
    XX(1, NV)                                                                                      \
    XX(2, NV)                                                                                      \
    XX(3, NV)                                                                                      \
    XX(4, NV) XX(5, NV) XX(6, NV) XX(7, NV) XX(8, NV) XX(9, NV) XX(10, NV) XX(11, NV) XX(12, NV)
#endif
#define TILE_NAME(MR, NV) tile_##MR##_##NV,

TILES(TILE, 1)
#if SIMD_NV == 2
TILES(TILE, 2)
#endif

static const tile_fn s_tiles[SIMD_NV][SIMD_MR] = {
    {TILES(TILE_NAME, 1)},
#if SIMD_NV == 2
    {TILES(TILE_NAME, 2)},
#endif
};

/* ---- panels of B ----------------------------------------------------------------------------- */

/* out[16][16] = columns `column` .. + 16 of a strip. */
typedef void (*quant_load_fn)(float *out, const uint8_t *strip, size_t column);

#define QUANT_LOAD(F)                                                                              \
    static __attribute__((noinline)) void quant_load_##F(float *out, const uint8_t *strip,         \
                                                         size_t column) {                          \
        vf r[VL];                                                                                  \
        quant_load16(OMM_FORMAT_##F, r, strip, column);                                            \
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) vf_store(out + j * VL, r[j]);                  \
    }
QUANT_FORMATS(QUANT_LOAD)
#define QUANT_LOAD_NAME(F, K) [OMM_FORMAT_##F] = quant_load_##K,
static const quant_load_fn s_quant_load[OMM_FORMAT_COUNT] = {QUANT_KERNELS(QUANT_LOAD_NAME)};

/* out[16][16] = columns `column` .. + 16 of the strip, lane = row; column is a multiple of 16. */
SIMD_INLINE void load16(float *out, const omm_matrix *w, const uint8_t *strip, size_t column) {
    const uint16_t *halves = (const uint16_t *)(const void *)strip + column * VL;
    switch (w->format) {
    case OMM_FORMAT_F32: memcpy(out, (const float *)(const void *)strip + column * VL, 1024); break;
    case OMM_FORMAT_F16:
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) {
            vf_store(out + j * VL, vf_load_f16(halves + j * VL));
        }
        break;
    case OMM_FORMAT_BF16:
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) {
            vf_store(out + j * VL, vf_load_bf16(halves + j * VL));
        }
        break;
    default: s_quant_load[w->format](out, strip, column); break;
    }
}

/* panel[kc][16] = strip's columns k0 .. k0 + kc, written up to the next multiple of 16. */
static void panel_strip(float *panel, const omm_matrix *w, size_t strip, size_t k0, size_t kc) {
    const uint8_t *data = w->data + strip * w->strip_bytes;
    for (size_t k = 0; k < kc; k += VL) load16(panel + k * VL, w, data, k0 + k);
}

/* panel[kc][16]: rows k0 .. k0 + kc of w, its columns `column` .. + 16. */
static void panel_strip_turned(float *panel, const omm_matrix *w, size_t column, size_t k0,
                               size_t kc) {
    for (size_t k = 0; k < kc; k += VL) {
        vf r[VL];
        load16(panel + k * VL, w, w->data + (k0 + k) / VL * w->strip_bytes, column);
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) r[j] = vf_load(panel + (k + j) * VL);
        vf_transpose(r);
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) vf_store(panel + (k + j) * VL, r[j]);
    }
}

static void panel_rows(float *panel, const float *b, size_t ldb, size_t columns, size_t kc) {
    for (size_t k = 0; k < kc; k++) vf_store(panel + k * VL, vf_load_n(b + k * ldb, columns));
}

static void panel_columns(float *panel, const float *b, size_t ldb, size_t columns, size_t kc) {
    for (size_t k = 0; k < kc; k += VL) {
        vf r[VL];
        size_t n = min_size(VL, kc - k);
        for (size_t j = 0; j < VL; j++)
            r[j] = j < columns ? vf_load_n(b + j * ldb + k, n) : vf_zero();
        vf_transpose(r);
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) vf_store(panel + (k + j) * VL, r[j]);
    }
}

/* Columns n .. n + 16 nv, steps k0 .. k0 + kc.  Returns where they are: the panel, or b itself where
 * it can be read in place; *b_vec is the distance of the vectors, *b_k of the steps. */
static const float *panel_make(float *panel, size_t *b_vec, size_t *b_k, const gemm_job *job,
                               size_t n, size_t nv, size_t k0, size_t kc) {
    *b_vec = GEMM_KC * VL;
    *b_k = VL;
    if (job->source == GEMM_B_STRIPS && job->w->format == OMM_FORMAT_F32) {
        *b_vec = job->w->strip_bytes / sizeof(float);
        return (const float *)(const void *)(job->w->data + n / VL * job->w->strip_bytes) + k0 * VL;
    }
    if (job->source == GEMM_B_ROWS && job->n - n >= nv * VL && job->m <= GEMM_PLACE_ROWS) {
        *b_vec = VL;
        *b_k = job->ldb;
        return job->b + k0 * job->ldb + n;
    }
    for (size_t j = 0; j < nv; j++) {
        float *out = panel + j * GEMM_KC * VL;
        size_t column = n + j * VL, columns = min_size(VL, job->n - column);
        switch (job->source) {
        case GEMM_B_STRIPS: panel_strip(out, job->w, column / VL, k0, kc); break;
        case GEMM_B_STRIPS_TURNED: panel_strip_turned(out, job->w, column, k0, kc); break;
        case GEMM_B_ROWS:
            panel_rows(out, job->b + k0 * job->ldb + column, job->ldb, columns, kc);
            break;
        case GEMM_B_COLUMNS:
            panel_columns(out, job->b + column * job->ldb + k0, job->ldb, columns, kc);
            break;
        }
    }
    return panel;
}

/* out[rows][GEMM_LDA] = a's rows m .. m + rows, steps k0 .. k0 + kc. */
static void pack_a(float *out, const gemm_job *job, size_t m, size_t rows, size_t k0, size_t kc) {
    const float *a = job->a + m * job->a_row + k0 * job->a_col;
    if (job->a_col == 1) {
        for (size_t i = 0; i < rows; i++)
            memcpy(out + i * GEMM_LDA, a + i * job->a_row, kc * sizeof *a);
        return;
    }
    for (size_t i = 0; i < rows; i += VL) {
        size_t n = min_size(VL, rows - i);
        for (size_t k = 0; k < kc; k += VL) {
            vf r[VL];
            for (size_t j = 0; j < VL; j++)
                r[j] = k + j < kc ? vf_load_n(a + i + (k + j) * job->a_col, n) : vf_zero();
            vf_transpose(r);
            for (size_t j = 0; j < n; j++) vf_store(out + (i + j) * GEMM_LDA + k, r[j]);
        }
    }
}

/* ---- the core -------------------------------------------------------------------------------- */

/* Rows of A that the tiles of a block read: packed, or where they lie. */
typedef struct gemm_rows {
    const float *a;
    size_t lda;
} gemm_rows;

static gemm_rows rows_of(float *room, const gemm_job *job, size_t m, size_t rows, size_t k0,
                         size_t kc) {
    if (job->a_col == 1 && job->a_row <= GEMM_PLACE_STRIDE && job->a_row % GEMM_PAGE_FLOATS != 0)
        return (gemm_rows){job->a + m * job->a_row + k0, job->a_row};
    pack_a(room, job, m, rows, k0, kc);
    return (gemm_rows){room, GEMM_LDA};
}

/* Columns of B for the tiles of a block, vector j of step k at b + j * vec + k * step. */
typedef struct gemm_panel {
    const float *b;
    size_t vec, step;
} gemm_panel;

static size_t vectors_of(size_t columns) {
    return (columns + VL - 1) / VL;
}

/* A tile that hangs over the edge of c, or is folded into it: computed aside. */
static void tile_aside(const gemm_job *job, float *aside, size_t mr, size_t kc, const float *a,
                       size_t lda, const gemm_panel *p, float *c, size_t columns, bool first) {
    const bool fresh = first && !job->accumulate;
    const bool zero = fresh || job->fold_tokens;
    for (size_t i = 0; i < mr && !zero; i++)
        memcpy(aside + i * GEMM_NC, c + i * job->ldc, columns * sizeof *c);
    s_tiles[vectors_of(columns) - 1][mr - 1](kc, a, lda, p->b, p->vec, p->step, aside, GEMM_NC,
                                             zero);
    for (size_t i = 0; i < mr; i++) {
        float *to = c + i * job->ldc;
        const float *from = aside + i * GEMM_NC;
        if (!job->fold_tokens) {
            memcpy(to, from, columns * sizeof *to);
        } else {
            for (size_t j = 0; j < columns; j++) to[j] = (fresh ? 0.0f : to[j]) + from[j];
        }
    }
}

/* Asks for rows of c: the next tile begins by loading them, and by then they are there. */
static void tile_ahead(const float *c, size_t ldc, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += VL) __builtin_prefetch(c + i * ldc + j, 1, 3);
}

/* All rows of a block over one panel: columns n .. n + columns, steps k0 .. k0 + kc.  Of a symmetric product's c
 * neither tiles nor vectors that lie above the diagonal are computed. */
static void block_tiles(const gemm_job *job, gemm_rows from, float *panel, size_t m, size_t rows,
                        size_t n, size_t columns, size_t k0, size_t kc) {
    float *aside = panel + GEMM_KC * GEMM_NC;
    gemm_panel p = {0};
    p.b = panel_make(panel, &p.vec, &p.step, job, n, vectors_of(columns), k0, kc);
    const bool whole = columns % VL == 0 && !job->fold_tokens, first = k0 == 0;
    const size_t above = job->lower && n > m ? (n - m) / SIMD_MR * SIMD_MR : 0;
    for (size_t i = above; i < rows; i += SIMD_MR) {
        const size_t mr = min_size(SIMD_MR, rows - i), left = rows - i - mr;
        float *c = job->c + (m + i) * job->ldc + n;
        const float *a = from.a + i * from.lda;
        const bool narrow = job->lower && m + i + mr <= n + VL;
        const size_t width = narrow ? min_size(columns, VL) : columns;
        tile_ahead(c + mr * job->ldc, job->ldc, min_size(SIMD_MR, left), columns);
        if (whole) {
            s_tiles[vectors_of(width) - 1][mr - 1](kc, a, from.lda, p.b, p.vec, p.step, c, job->ldc,
                                                   first && !job->accumulate);
        } else {
            tile_aside(job, aside, mr, kc, a, from.lda, &p, c, width, first);
        }
    }
}

static void gemm_block(const gemm_job *job, float *work, size_t m, size_t rows, size_t n0,
                       size_t n1, size_t k0, size_t kc) {
    float *packed = work, *panel = work + GEMM_MB * GEMM_LDA;
    const gemm_job *tail = k0 + kc == job->k ? job->tail : NULL;
    const size_t step = (size_t)SIMD_NV * VL;
    const gemm_rows a = rows_of(packed, job, m, rows, k0, kc);
    gemm_rows a_tail = {0};
    if (tail) a_tail = rows_of(packed + GEMM_KC, tail, m, rows, 0, tail->k);
    if (job->lower) n1 = min_size(n1, m + rows);
    for (size_t n = n0; n < n1; n += step) {
        const size_t columns = min_size(step, n1 - n);
        block_tiles(job, a, panel, m, rows, n, columns, k0, kc);
        if (tail) block_tiles(tail, a_tail, panel, m, rows, n, columns, 0, tail->k);
    }
}

/* Blocks of k are about equal, so that none is a short rest; where they end changes no bit. */
static size_t k_step(const gemm_job *job) {
    if (job->fold_tokens) return OMM_TOKEN_CHUNK;
    const size_t blocks = (job->k + GEMM_KC - 1) / GEMM_KC;
    return ((job->k + blocks - 1) / blocks + VL - 1) / VL * VL;
}

static void blocks_gemm(const gemm_job *job, float *work, size_t m0, size_t m1, size_t n0,
                        size_t n1) {
    const size_t step = k_step(job);
    for (size_t m = m0; m < m1; m += GEMM_MB) {
        size_t rows = min_size(GEMM_MB, m1 - m);
        for (size_t k0 = 0, kc = 0, i = 0; k0 < job->k; k0 += kc, i++) {
            kc = job->ends ? job->ends[i] - k0 : min_size(step, job->k - k0);
            gemm_block(job, work, m, rows, n0, n1, k0, kc);
        }
    }
}

#include "gemm_weights_body.h"
/* whose outputs lie as in the former */
#include "gemm_tokens_body.h"

static void kernel_gemm(const gemm_job *job, float *work, size_t m0, size_t m1, size_t n0,
                        size_t n1) {
    if (gemm_by_weights(job, m1 - m0))
        weights_gemm(job, work, m0, m1, n0, n1);
    else if (gemm_by_tokens(job, m1 - m0))
        tokens_gemm(job, work, m0, m1, n0, n1);
    else
        blocks_gemm(job, work, m0, m1, n0, n1);
}

/* The block at rows i and columns j, turned, becomes that at rows j and columns i. */
static void mirror_block(float *c, size_t ldc, size_t i, size_t j, size_t rows) {
    vf r[VL];
    for (size_t k = 0; k < VL; k++) r[k] = k < rows ? vf_load(c + (i + k) * ldc + j) : vf_zero();
    vf_transpose(r);
    for (size_t k = 0; k < VL; k++) vf_store_n(c + (j + k) * ldc + i, r[k], rows);
}

static void kernel_mirror(float *c, size_t ldc, size_t n) {
    for (size_t i = 0; i < n; i += VL) {
        const size_t rows = min_size(VL, n - i);
        for (size_t j = 0; j < i; j += VL) mirror_block(c, ldc, i, j, rows);
        for (size_t k = i; k < i + rows; k++)
            for (size_t j = i; j < k; j++) c[j * ldc + k] = c[k * ldc + j];
    }
}

/* ---- one row: decode ------------------------------------------------------------------------- */

/* `count` strips side by side, so that their chains hide each other's latency. */
/* Strips side by side that are shorter than the distance (an adapter's B) are at the next ones then. */
SIMD_INLINE size_t gemv_ahead(const int count, const omm_matrix *w) {
    return w->strip_bytes < SIMD_GEMV_AHEAD ? (size_t)count * w->strip_bytes : SIMD_GEMV_AHEAD;
}

SIMD_INLINE void gemv_f32(const int count, vf *acc, const float *x, const omm_matrix *w,
                          const uint8_t *strip) {
    const float *p = (const float *)(const void *)strip;
    const size_t step = w->strip_bytes / sizeof *p, ahead = gemv_ahead(count, w);
    for (size_t k = 0; k < w->cols; k++) {
        vf xv = vf_set1(x[k]);
        SIMD_UNROLL for (int i = 0; i < count; i++) {
            SIMD_PREFETCH(strip + (size_t)i * w->strip_bytes + k * 64 + ahead);
            acc[i] = vf_fma(xv, vf_load(p + (size_t)i * step + k * VL), acc[i]);
        }
    }
}

SIMD_INLINE void gemv_half(const bool bf16, const int count, vf *acc, const float *x,
                           const omm_matrix *w, const uint8_t *strip) {
    const uint16_t *p = (const uint16_t *)(const void *)strip;
    const size_t step = w->strip_bytes / sizeof *p, ahead = gemv_ahead(count, w);
    for (size_t k = 0; k < w->cols; k++) {
        vf xv = vf_set1(x[k]);
        SIMD_UNROLL for (int i = 0; i < count; i++) {
            const uint16_t *at = p + (size_t)i * step + k * VL;
            if (k % 2 == 0) {
                SIMD_PREFETCH(strip + (size_t)i * w->strip_bytes + k * 32 + ahead);
            }
            acc[i] = vf_fma(xv, bf16 ? vf_load_bf16(at) : vf_load_f16(at), acc[i]);
        }
    }
}

SIMD_INLINE void gemv_quant(const omm_format format, const int count, vf *acc, const float *x,
                            const omm_matrix *w, const uint8_t *strip) {
    for (size_t k = 0; k < w->cols; k += VL) {
        SIMD_UNROLL for (int i = 0; i < count; i++) {
            vf r[VL];
            quant_load16(format, r, strip + (size_t)i * w->strip_bytes, k);
            SIMD_UNROLL for (size_t j = 0; j < VL; j++) {
                acc[i] = vf_fma(vf_set1(x[k + j]), r[j], acc[i]);
            }
        }
    }
}

/* The same of any quantised format, whose strips are unpacked as for panels. */
SIMD_INLINE void gemv_unpacked(const int count, vf *acc, const float *x, const omm_matrix *w,
                               const uint8_t *strip) {
    float values[SIMD_GEMV_UNPACKED][VL * VL];
    for (size_t k = 0; k < w->cols; k += VL) {
        for (int i = 0; i < count; i++)
            s_quant_load[w->format](values[i], strip + (size_t)i * w->strip_bytes, k);
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) {
            const vf xv = vf_set1(x[k + j]);
            SIMD_UNROLL for (int i = 0; i < count; i++) {
                acc[i] = vf_fma(xv, vf_load(values[i] + j * VL), acc[i]);
            }
        }
    }
}

#define GEMV_ANY OMM_FORMAT_COUNT /* a format that is not known before */

SIMD_INLINE void gemv_strips(const omm_format format, const int count, float *y, const float *x,
                             const omm_matrix *w, bool accumulate, size_t s) {
    vf acc[SIMD_GEMV];
    const uint8_t *strip = w->data + s * w->strip_bytes;
    size_t left = w->rows - s * VL;
    SIMD_UNROLL for (int i = 0; i < count; i++) {
        acc[i] = vf_zero();
        if (accumulate) acc[i] = vf_load_n(y + (s + (size_t)i) * VL, left - (size_t)i * VL);
    }
    if (format == OMM_FORMAT_F32)
        gemv_f32(count, acc, x, w, strip);
    else if (format == OMM_FORMAT_F16 || format == OMM_FORMAT_BF16)
        gemv_half(format == OMM_FORMAT_BF16, count, acc, x, w, strip);
    else if (format == GEMV_ANY)
        gemv_unpacked(count, acc, x, w, strip);
    else
        gemv_quant(format, count, acc, x, w, strip);
    SIMD_UNROLL for (int i = 0; i < count; i++) {
        vf_store_n(y + (s + (size_t)i) * VL, acc[i], left - (size_t)i * VL);
    }
}

/* Of any quantised format; what is left over from groups goes one after the other. */
static void gemv_each(float *y, const float *x, const omm_matrix *w, bool accumulate, size_t s0,
                      size_t s1) {
    size_t s = s0;
    for (; SIMD_GEMV_UNPACKED > 1 && s + SIMD_GEMV_UNPACKED <= s1; s += SIMD_GEMV_UNPACKED)
        gemv_strips(GEMV_ANY, SIMD_GEMV_UNPACKED, y, x, w, accumulate, s);
    for (; s < s1; s++) gemv_strips(GEMV_ANY, 1, y, x, w, accumulate, s);
}

typedef void (*gemv_fn)(float *y, const float *x, const omm_matrix *w, bool accumulate, size_t s0,
                        size_t s1);

/* Eight strips hide the latency of plain loads; what is left goes side by side too, since an adapter's
 * matrices are no more than that: one after the other, each would wait for its whole chain. */
#define GEMV_LEFT(F, COUNT)                                                                        \
    case COUNT:                                                                                    \
        gemv_strips(OMM_FORMAT_##F, COUNT, y, x, w, accumulate, s);                                \
        break;
#if SIMD_GEMV == 8
#define GEMV_LEFT_MORE(F) GEMV_LEFT(F, 4) GEMV_LEFT(F, 5) GEMV_LEFT(F, 6) GEMV_LEFT(F, 7)
#else
#define GEMV_LEFT_MORE(F)
#endif
#define GEMV(F)                                                                                    \
    static __attribute__((noinline)) void gemv_##F(float *y, const float *x, const omm_matrix *w,  \
                                                   bool accumulate, size_t s0, size_t s1) {        \
        size_t s = s0;                                                                             \
        for (; s + SIMD_GEMV <= s1; s += SIMD_GEMV)                                                \
            gemv_strips(OMM_FORMAT_##F, SIMD_GEMV, y, x, w, accumulate, s);                        \
        switch (s1 - s) {                                                                          \
            GEMV_LEFT(F, 1)                                                                        \
            GEMV_LEFT(F, 2)                                                                        \
            GEMV_LEFT(F, 3)                                                                        \
            GEMV_LEFT_MORE(F)                                                                      \
        default: break;                                                                            \
        }                                                                                          \
    }
#if SIMD_GEMV_UNPACKED == 1
/* Unpacked into registers, which brings work enough for two. */
#define GEMV_QUANT(F)                                                                              \
    static __attribute__((noinline)) void gemv_##F(float *y, const float *x, const omm_matrix *w,  \
                                                   bool accumulate, size_t s0, size_t s1) {        \
        size_t s = s0;                                                                             \
        for (; s + SIMD_GEMV_QUANT <= s1; s += SIMD_GEMV_QUANT)                                    \
            gemv_strips(OMM_FORMAT_##F, SIMD_GEMV_QUANT, y, x, w, accumulate, s);                  \
        gemv_each(y, x, w, accumulate, s, s1);                                                     \
    }
QUANT_FORMATS(GEMV_QUANT)
#define GEMV_QUANT_NAME(F, K) [OMM_FORMAT_##F] = gemv_##K,
#else
#define GEMV_QUANT_NAME(F, K) [OMM_FORMAT_##F] = gemv_each,
#endif
#define GEMV_NAME(F) [OMM_FORMAT_##F] = gemv_##F,

GEMV(F32)
GEMV(F16)
GEMV(BF16)

static const gemv_fn s_gemv[OMM_FORMAT_COUNT] = {GEMV_NAME(F32) GEMV_NAME(F16) GEMV_NAME(BF16)
                                                     QUANT_KERNELS(GEMV_QUANT_NAME)};

static void kernel_gemv(float *y, const float *x, const omm_matrix *w, bool accumulate, size_t s0,
                        size_t s1) {
    s_gemv[w->format](y, x, w, accumulate, s0, s1);
}
