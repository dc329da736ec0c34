/* gemm_weights_body.h - many rows times packed weights; part of kernels_body.h.
 *
 * The products of training.  A thread takes up to WEIGHTS_MB rows and some hundred columns, and stays
 * there for the whole chain:
 *
 *   for each block of k (GEMM_KC):      rows of A turned into [tile][k][SIMD_MR], 516 KiB
 *     for each 32 columns:              their weights unpacked into a panel [k][16] x 2, 32 KiB
 *       for each tile of SIMD_MR rows:  outputs that lie tile by tile, 1.5 MiB in all
 *
 * So outputs go to memory once and not once for every block of k, nothing that is read again lies rows
 * apart (rows of a power of two share one set of a cache), and what comes next is asked for while a tile
 * is computed: A and outputs, which come from the second cache (or, being a stream, from behind it),
 * into the first one, and the weights of the next panel.  The chain of each output is what it is in gemm_body.h.
 */

/* Steps of a tile that are written out one after the other: what counts them would cost a twentieth. */
#define WEIGHTS_UNROLL ((size_t)4)
/* A tile of two vectors asks for what comes next: A so many steps ahead, which where it ends is the next
 * tile's, and so many floats of the next tile's outputs for each step (all of them in 192 steps).
 * One vector has less to wait for, and no time for it. */
#define WEIGHTS_ASKS (SIMD_NV > 1)
#define WEIGHTS_AHEAD ((size_t)24)
#define WEIGHTS_NEXT ((size_t)2)

/* ---- tiles ----------------------------------------------------------------------------------- */

#define WEIGHTS_STEP ((size_t)SIMD_NV * VL) /* columns of a tile */
#define WEIGHTS_TILE_FLOATS (SIMD_MR * WEIGHTS_STEP)

/* One step of k. */
SIMD_TILE_INLINE void weights_step(const int mr, vf acc[SIMD_MR][SIMD_NV], const float *a,
                                   const float *b) {
    vf bv[SIMD_NV];
    SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) {
        bv[j] = vf_load(b + (size_t)j * WEIGHTS_KC_ROOM * VL);
    }
    tile_step(mr, SIMD_NV, acc, a, 1, bv);
}

/* Where outputs of a tile come from (NULL: zeros) and go to, rows so many floats apart, and what is asked for
 * meanwhile: the next tile's, which lie in order. */
typedef struct weights_outputs {
    const float *from;
    float *to;
    size_t from_row, to_row;
    const float *ahead;
} weights_outputs;

/* o[mr][32] (+)= a[kc][SIMD_MR] b[kc][16], b's second vector WEIGHTS_KC_ROOM steps behind. */
SIMD_TILE_INLINE void weights_tile_of(const int mr, size_t kc, const float *a, const float *b,
                                      const weights_outputs *o) {
    vf acc[SIMD_MR][SIMD_NV];
    const float *from = o->from;
    SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
        SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) {
            acc[i][j] = from ? vf_load(from + (size_t)i * o->from_row + (size_t)j * VL) : vf_zero();
        }
    }
    size_t k = 0;
    for (; k + WEIGHTS_UNROLL <= kc; k += WEIGHTS_UNROLL) {
        if (WEIGHTS_ASKS) {
            for (size_t line = 0; line < WEIGHTS_UNROLL * SIMD_MR; line += VL)
                SIMD_PREFETCH_NEAR(a + WEIGHTS_AHEAD * SIMD_MR + line);
            SIMD_PREFETCH_NEAR(o->ahead + k * WEIGHTS_NEXT);
        }
        SIMD_TILE_UNROLL for (size_t u = 0; u < WEIGHTS_UNROLL; u++) {
            weights_step(mr, acc, a + u * SIMD_MR, b + u * VL);
        }
        a += WEIGHTS_UNROLL * SIMD_MR;
        b += WEIGHTS_UNROLL * VL;
    }
    for (; k < kc; k++) {
        weights_step(mr, acc, a, b);
        a += SIMD_MR;
        b += VL;
    }
    SIMD_TILE_UNROLL for (int i = 0; i < mr; i++) {
        SIMD_TILE_UNROLL for (int j = 0; j < SIMD_NV; j++) {
            vf_store(o->to + (size_t)i * o->to_row + (size_t)j * VL, acc[i][j]);
        }
    }
}

typedef void (*weights_tile_fn)(size_t kc, const float *a, const float *b,
                                const weights_outputs *o);

#define WEIGHTS_TILE(MR, NV)                                                                       \
    static __attribute__((noinline)) void weights_tile_##MR(                                       \
        size_t kc, const float *a, const float *b, const weights_outputs *o) {                     \
        weights_tile_of(MR, kc, a, b, o);                                                          \
    }
#define WEIGHTS_TILE_NAME(MR, NV) weights_tile_##MR,

TILES(WEIGHTS_TILE, )
static const weights_tile_fn s_weights_tiles[SIMD_MR] = {TILES(WEIGHTS_TILE_NAME, )};

/* ---- a block --------------------------------------------------------------------------------- */

typedef struct weights_block {
    const gemm_job *job;
    size_t m, rows, n, columns; /* of this thread's outputs */
    size_t k0, kc, steps;       /* of k; steps: with the tail's, behind the last block */
    float *a, *panel, *c;
} weights_block;

static size_t weights_tiles(const weights_block *b) {
    return (b->rows + SIMD_MR - 1) / SIMD_MR;
}

/* out[kc][SIMD_MR] = steps k0 .. k0 + kc of mr rows; vectors reach over the end of the last by less than
 * VL.  The rows of the next tile are asked for meanwhile. */
static void weights_turn(float *out, const gemm_job *job, size_t m, size_t mr, size_t k0,
                         size_t kc) {
    const float *a = job->a + m * job->a_row + k0;
    size_t k = 0;
#ifdef SIMD_TURNS_FOUR
    _Static_assert(SIMD_MR % 4 == 0, "turned by fours");
    for (; mr == SIMD_MR && k + VL <= kc; k += VL) {
        SIMD_UNROLL for (size_t i = 0; i < SIMD_MR; i += 4) {
            vf r[4];
            SIMD_UNROLL for (size_t j = 0; j < 4; j++) {
                r[j] = vf_load(a + (i + j) * job->a_row + k);
                SIMD_PREFETCH(a + (i + j + SIMD_MR) * job->a_row + k);
            }
            vf_store_four(out + k * SIMD_MR + i, SIMD_MR, r);
        }
    }
#endif
    for (; k < kc; k += VL) {
        const size_t n = min_size(VL, kc - k);
        vf r[VL];
        SIMD_UNROLL for (size_t j = 0; j < VL; j++) {
            r[j] = vf_zero();
            if (j >= mr) continue;
            r[j] = vf_load_n(a + j * job->a_row + k, n);
            SIMD_PREFETCH(a + (j + SIMD_MR) * job->a_row + k);
        }
        vf_transpose(r);
        for (size_t j = 0; j < n; j++) vf_store(out + (k + j) * SIMD_MR, r[j]);
    }
}

static void weights_rows(const weights_block *b) {
    for (size_t i = 0; i < b->rows; i += SIMD_MR) {
        const size_t mr = min_size(SIMD_MR, b->rows - i);
        float *out = b->a + i * b->steps;
        weights_turn(out, b->job, b->m + i, mr, b->k0, b->kc);
        if (b->steps > b->kc)
            weights_turn(out + b->kc * SIMD_MR, b->job->tail, b->m + i, mr, 0, b->job->tail->k);
    }
}

static void weights_tail_panel(float *out, const gemm_job *tail, size_t column) {
    const size_t columns = min_size(VL, tail->n - column);
    if (tail->source == GEMM_B_ROWS)
        panel_rows(out, tail->b + column, tail->ldb, columns, tail->k);
    else
        panel_columns(out, tail->b + column * tail->ldb, tail->ldb, columns, tail->k);
}

static void weights_panel(const weights_block *b, size_t n) {
    const gemm_job *job = b->job;
    for (size_t column = n; column < min_size(n + WEIGHTS_STEP, job->n); column += VL) {
        float *out = b->panel + (column - n) * WEIGHTS_KC_ROOM;
        if (job->source == GEMM_B_STRIPS)
            panel_strip(out, job->w, column / VL, b->k0, b->kc);
        else
            panel_strip_turned(out, job->w, column, b->k0, b->kc);
        if (b->steps > b->kc) weights_tail_panel(out + b->kc * VL, job->tail, column);
    }
}

/* What a panel is unpacked from: `count` pieces of `bytes` each. */
typedef struct weights_source {
    const uint8_t *data;
    size_t count, bytes, stride;
} weights_source;

static weights_source weights_source_of(const weights_block *b, size_t n, size_t k0) {
    const omm_matrix *w = b->job->w;
    const size_t kc = min_size(k_step(b->job), b->job->k - k0), left = b->job->n - n;
    weights_source s = {.count = (min_size(WEIGHTS_STEP, left) + VL - 1) / VL};
    size_t row = n, column = k0, columns = kc;
    if (b->job->source == GEMM_B_STRIPS_TURNED) {
        s.count = (kc + VL - 1) / VL;
        row = k0;
        column = n;
        columns = min_size(WEIGHTS_STEP, left);
    }
    s.stride = w->strip_bytes;
    s.bytes = w->strip_bytes * columns / w->cols;
    s.data = w->data + row / VL * w->strip_bytes + w->strip_bytes * column / w->cols;
    return s;
}

/* The panel after that of columns n, in the order in which they are made; none after the last. */
static weights_source weights_next(const weights_block *b, size_t n) {
    n += WEIGHTS_STEP;
    if (n < b->n + b->columns) return weights_source_of(b, n, b->k0);
    if (b->k0 + b->kc < b->job->k) return weights_source_of(b, b->n, b->k0 + b->kc);
    return (weights_source){0};
}

/* Share i of `shares` of it. */
static void weights_ask(const weights_source *s, size_t i, size_t shares) {
    if (s->count == 0) return;
    const size_t lines = s->bytes / 64 + 1, all = s->count * lines;
    const size_t from = all * i / shares, piece = from / lines;
    const uint8_t *data = s->data + piece * s->stride;
    size_t line = from - piece * lines;
    for (size_t left = all * (i + 1) / shares - from; left > 0; left--) {
        SIMD_PREFETCH(data + line * 64);
        if (++line < lines) continue;
        line = 0;
        data += s->stride;
    }
}

/* ---- outputs --------------------------------------------------------------------------------- */

static void weights_load(float *tile, const float *c, size_t ldc, size_t mr, size_t columns) {
    for (size_t i = 0; i < mr; i++)
        for (size_t j = 0; j < columns; j += VL)
            vf_store(tile + i * WEIGHTS_STEP + j,
                     vf_load_n(c + i * ldc + j, min_size(VL, columns - j)));
}

static void weights_store(float *c, size_t ldc, const float *tile, size_t mr, size_t columns) {
    for (size_t i = 0; i < mr; i++)
        for (size_t j = 0; j < columns; j += VL)
            vf_store_n(c + i * ldc + j, vf_load(tile + i * WEIGHTS_STEP + j), columns - j);
}

/* All tiles of columns n .. + 32 over one block of k; outputs come from memory in the first one, where they are
 * added to, and go there in the last: straight, but for the columns at the edge, of which only some are there. */
static void weights_column(const weights_block *b, size_t n) {
    const gemm_job *job = b->job;
    const size_t columns = min_size(WEIGHTS_STEP, b->n + b->columns - n), tiles = weights_tiles(b);
    const bool first = b->k0 == 0, last = b->k0 + b->kc == job->k, whole = columns == WEIGHTS_STEP;
    const weights_source next = weights_next(b, n);
    float *tile = b->c + (n - b->n) / WEIGHTS_STEP * tiles * WEIGHTS_TILE_FLOATS;
    weights_panel(b, n);
    for (size_t t = 0; t < tiles; t++, tile += WEIGHTS_TILE_FLOATS) {
        const size_t mr = min_size(SIMD_MR, b->rows - t * SIMD_MR);
        float *c = job->c + (b->m + t * SIMD_MR) * job->ldc + n;
        weights_ask(&next, t, tiles);
        weights_outputs o = {.from = tile,
                             .to = tile,
                             .from_row = WEIGHTS_STEP,
                             .to_row = WEIGHTS_STEP,
                             .ahead = tile + WEIGHTS_TILE_FLOATS};
        if (first && !job->accumulate) o.from = NULL;
        if (first && job->accumulate && !whole) weights_load(tile, c, job->ldc, mr, columns);
        if (first && job->accumulate && whole) {
            o.from = c;
            o.from_row = job->ldc;
        }
        if (last) tile_ahead(c, job->ldc, mr, columns);
        if (last && whole) {
            o.to = c;
            o.to_row = job->ldc;
        }
        s_weights_tiles[mr - 1](b->steps, b->a + t * SIMD_MR * b->steps, b->panel, &o);
        if (last && !whole) weights_store(c, job->ldc, tile, mr, columns);
    }
}

static void weights_chunk(weights_block *b) {
    const gemm_job *job = b->job;
    const size_t step = k_step(job);
    for (b->k0 = 0; b->k0 < job->k; b->k0 += b->kc) {
        b->kc = min_size(step, job->k - b->k0);
        b->steps = b->kc + (b->k0 + b->kc == job->k && job->tail ? job->tail->k : 0);
        weights_rows(b);
        for (size_t n = b->n; n < b->n + b->columns; n += WEIGHTS_STEP) weights_column(b, n);
    }
}

/* The linter does not see that work is written through the block. */
static void weights_gemm(const gemm_job *job,
                         float *work, /* NOLINT(readability-non-const-parameter) */
                         size_t m0, size_t m1, size_t n0, size_t n1) {
    const size_t m_step = weights_rows_step(m1 - m0);
    const size_t n_step = weights_columns_step(m1 - m0, n1 - n0);
    weights_block b = {.job = job, .a = work, .panel = work + WEIGHTS_A_FLOATS};
    b.c = b.panel + WEIGHTS_PANEL_FLOATS;
    for (b.n = n0; b.n < n1; b.n += n_step) {
        b.columns = min_size(n_step, n1 - b.n);
        for (b.m = m0; b.m < m1; b.m += m_step) {
            b.rows = min_size(m_step, m1 - b.m);
            weights_chunk(&b);
        }
    }
}
