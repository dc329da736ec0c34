/* gemm_tokens_body.h - sums over tokens for many outputs; part of kernels_body.h.
 *
 * The gradients of whole matrices: c[m][n] (+)= a[k][m]^T b[k][n], each chunk of at most 64 steps a chain
 * of its own that begins at zero, the chunks added in order.  As in gemm_weights_body.h a thread stays
 * with some outputs until all tokens have passed:
 *
 *   for each group of whole chunks (at most GEMM_KC steps):
 *                                     rows of A as [tile][k][SIMD_MR]
 *     for each 32 columns:            B as a panel [k][16] x 2
 *       for each tile:                chunk by chunk in registers, added to the outputs, tile by tile
 *
 * so the sums meet in the first cache, and nothing is turned: A lies as tiles want it but for its stride.
 */

/* c[mr][32] (zero: of which nothing counts yet) += the sum of each chunk of `steps`, in order. */
SIMD_TILE_INLINE void tokens_tile_of(const int mr, const uint32_t *steps, size_t chunks,
                                     const float *a, const float *b, float *c, bool zero) {
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        vf acc[SIMD_MR][SIMD_NV];
        SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
            SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) acc[i][j] = vf_zero();
        }
        for (size_t k = steps[chunk]; k > 0; k--) {
            vf bv[SIMD_NV];
            SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) {
                bv[j] = vf_load(b + (size_t)j * WEIGHTS_KC_ROOM * VL);
            }
            if (WEIGHTS_ASKS) {
                SIMD_PREFETCH_NEAR(a + WEIGHTS_AHEAD * SIMD_MR);
                SIMD_PREFETCH_NEAR(c + WEIGHTS_TILE_FLOATS +
                                   (chunk * OMM_TOKEN_CHUNK + k) * WEIGHTS_NEXT);
            }
            tile_step(mr, SIMD_NV, acc, a, 1, bv);
            a += SIMD_MR;
            b += VL;
        }
        SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
            SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) {
                float *to = c + (size_t)(i * SIMD_NV + j) * VL;
                vf_store(to, vf_add(zero ? vf_zero() : vf_load(to), acc[i][j]));
            }
        }
        zero = false;
    }
}

typedef void (*tokens_tile_fn)(const uint32_t *steps, size_t chunks, const float *a, const float *b,
                               float *c, bool zero);

#define TOKENS_TILE(MR, NV)                                                                        \
    static __attribute__((noinline)) void tokens_tile_##MR(const uint32_t *steps, size_t chunks,   \
                                                           const float *a, const float *b,         \
                                                           float *c, bool zero) {                  \
        tokens_tile_of(MR, steps, chunks, a, b, c, zero);                                          \
    }
#define TOKENS_TILE_NAME(MR, NV) tokens_tile_##MR,

TILES(TOKENS_TILE, )
static const tokens_tile_fn s_tokens_tiles[SIMD_MR] = {TILES(TOKENS_TILE_NAME, )};

/* Chunks of job->k, group by group. */
typedef struct tokens_group {
    size_t k0, kc, chunks, next; /* next: the first chunk of the group after this one */
    uint32_t steps[GEMM_KC];
} tokens_group;

static void tokens_next(tokens_group *g, const gemm_job *job) {
    g->k0 += g->kc;
    g->kc = g->chunks = 0;
    for (size_t at = g->k0; at < job->k; g->next++) {
        const size_t end = job->ends ? job->ends[g->next] : min_size(at + OMM_TOKEN_CHUNK, job->k);
        if (end - g->k0 > GEMM_KC) break;
        g->steps[g->chunks++] = (uint32_t)(end - at);
        g->kc = end - g->k0;
        at = end;
    }
}

#define TOKENS_AHEAD ((size_t)8) /* rows of A that are asked for before they are copied */

/* Floats from tile to tile of A. */
static size_t tokens_stride(const tokens_group *g) {
    return g->kc * SIMD_MR + VL;
}

/* out[tile][kc][SIMD_MR].  Vectors reach over the end of a step, where the next one is written after
 * it, and of a tile into the room behind it. */
static void tokens_rows(float *out, const gemm_job *job, const tokens_group *g, size_t m,
                        size_t rows) {
    for (size_t k = 0; k < g->kc; k++) {
        const float *a = job->a + m + (g->k0 + k) * job->a_col;
        float *to = out + k * SIMD_MR;
        for (size_t i = 0; i < rows; i += SIMD_MR, to += tokens_stride(g)) {
            SIMD_PREFETCH(a + i + TOKENS_AHEAD * job->a_col);
            vf_store(to, rows - i < VL ? vf_load_n(a + i, rows - i) : vf_load(a + i));
        }
    }
}

/* The rows of B that become the next panel. */
typedef struct tokens_source {
    const float *b;
    size_t count;
} tokens_source;

/* After that of columns n .. of a group come columns further right up to `end`, then from `begin` on the next group. */
static tokens_source tokens_ahead(const gemm_job *job, const tokens_group *g, size_t n,
                                  size_t begin, size_t end) {
    const bool right = n + WEIGHTS_STEP < end;
    const size_t k = right ? g->k0 : g->k0 + g->kc, left = job->k - k;
    if (left == 0) return (tokens_source){0};
    return (tokens_source){job->b + k * job->ldb + (right ? n + WEIGHTS_STEP : begin),
                           min_size(left, g->kc)};
}

/* Share i of `shares` of it. */
static void tokens_ask(const tokens_source *s, size_t ldb, size_t i, size_t shares) {
    for (size_t k = s->count * i / shares; k < s->count * (i + 1) / shares; k++)
        for (size_t j = 0; j < WEIGHTS_STEP; j += VL) SIMD_PREFETCH(s->b + k * ldb + j);
}

static void tokens_column(const gemm_job *job, const tokens_group *g, const float *a, float *panel,
                          float *c, size_t rows, size_t n, size_t columns,
                          const tokens_source *next) {
    const size_t tiles = (rows + SIMD_MR - 1) / SIMD_MR;
    for (size_t at = 0; at < columns; at += VL)
        panel_rows(panel + at * WEIGHTS_KC_ROOM, job->b + g->k0 * job->ldb + n + at, job->ldb,
                   min_size(VL, columns - at), g->kc);
    for (size_t i = 0; i < tiles; i++, c += WEIGHTS_TILE_FLOATS) {
        tokens_ask(next, job->ldb, i, tiles);
        s_tokens_tiles[min_size(SIMD_MR, rows - i * SIMD_MR) - 1](
            g->steps, g->chunks, a + i * tokens_stride(g), panel, c,
            g->k0 == 0 && !job->accumulate);
    }
}

/* Outputs that are added to into tiles, or out of them. */
static void tokens_outputs(const gemm_job *job, float *tile, size_t m, size_t rows, size_t n,
                           size_t columns, bool out) {
    for (size_t j = 0; j < columns; j += WEIGHTS_STEP)
        for (size_t i = 0; i < rows; i += SIMD_MR, tile += WEIGHTS_TILE_FLOATS) {
            const size_t mr = min_size(SIMD_MR, rows - i);
            const size_t width = min_size(WEIGHTS_STEP, columns - j);
            float *c = job->c + (m + i) * job->ldc + n + j;
            if (out)
                weights_store(c, job->ldc, tile, mr, width);
            else
                weights_load(tile, c, job->ldc, mr, width);
        }
}

/* The linter does not see that work is written through its parts. */
static void tokens_gemm(const gemm_job *job,
                        float *work, /* NOLINT(readability-non-const-parameter) */
                        size_t m0, size_t m1, size_t n0, size_t n1) {
    const size_t m_step = weights_rows_step(m1 - m0);
    const size_t n_step = weights_columns_step(m1 - m0, n1 - n0);
    float *a = work, *panel = work + WEIGHTS_A_FLOATS, *c = panel + WEIGHTS_PANEL_FLOATS;
    for (size_t n = n0; n < n1; n += n_step)
        for (size_t m = m0; m < m1; m += m_step) {
            const size_t columns = min_size(n_step, n1 - n), rows = min_size(m_step, m1 - m);
            const size_t tiles = (rows + SIMD_MR - 1) / SIMD_MR;
            tokens_group g = {0};
            if (job->accumulate) tokens_outputs(job, c, m, rows, n, columns, false);
            for (tokens_next(&g, job); g.chunks > 0; tokens_next(&g, job)) {
                tokens_rows(a, job, &g, m, rows);
                for (size_t j = 0; j < columns; j += WEIGHTS_STEP) {
                    const tokens_source next = tokens_ahead(job, &g, n + j, n, n + columns);
                    tokens_column(job, &g, a, panel,
                                  c + j / WEIGHTS_STEP * tiles * WEIGHTS_TILE_FLOATS, rows, n + j,
                                  min_size(WEIGHTS_STEP, columns - j), &next);
                }
            }
            tokens_outputs(job, c, m, rows, n, columns, true);
        }
}
