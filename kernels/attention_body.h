/* attention_body.h - causal attention over blocks of 64 positions; part of kernels_body.h.
 *
 * A tile takes up to ATTENTION_ROWS rows, a row being one (query, head) of the heads that share a
 * key/value head, query by query.  A block of keys (then of values) is turned into f32 once for the
 * tile; groups of SIMD_MR rows go through it as one small product.  Between the products stands the
 * online softmax of kernels.h, row by row.
 */

#define SEGMENT_BLOCKS ((size_t)OMM_ATTENTION_SEGMENT / OMM_KV_BLOCK)

typedef struct attention_tile {
    const omm_attention *a;
    float *q;     /* [rows][ATTENTION_LD] */
    float *s;     /* [rows][ATTENTION_LD]: scores, then probabilities */
    float *o;     /* [rows][ATTENTION_LD] */
    float *block; /* keys or values of one block in f32; Q8_0: weights of a few rows */
    uint32_t kv_head, group;
    size_t last;        /* block that the tile reads */
    size_t first, rows; /* row r is query (first + r) / group, head (first + r) % group */
    float max[ATTENTION_ROWS], sum[ATTENTION_ROWS];
    float *whole; /* [rows][ATTENTION_LD]: o of the segments before, joined */
    float whole_max[ATTENTION_ROWS], whole_sum[ATTENTION_ROWS];
} attention_tile;

/* Positions begin .. end of one block that a row sees; none: begin == end. */
typedef struct seen {
    size_t begin, end;
} seen;

static size_t tile_position(const attention_tile *t, size_t row) {
    return t->a->pos0 + (t->first + row) / t->group;
}

static size_t tile_index(const attention_tile *t, size_t row) { /* in [m][heads] */
    size_t r = t->first + row;
    return r / t->group * t->a->heads + (size_t)t->kv_head * t->group + r % t->group;
}

/* First position that a query at `position` sees. */
static size_t window_begin(const omm_attention *a, size_t position) {
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

static seen row_sees(const attention_tile *t, size_t row, size_t block) {
    const size_t position = tile_position(t, row), from = block * OMM_KV_BLOCK;
    const size_t first = window_begin(t->a, position);
    seen s = {.begin = first > from ? first - from : 0};
    s.end = position < from ? 0 : min_size(OMM_KV_BLOCK, position - from + 1);
    if (s.begin > s.end) s.begin = s.end;
    return s;
}

/* ---- one head's part of a block, in f32 (F32, F16) ------------------------------------------- */

/* keys [head_dim][64] */
static const float *block_keys(float *out, const omm_kv *kv, const uint8_t *head) {
    const size_t d = kv->head_dim, count = d * OMM_KV_BLOCK;
    if (kv->type == OMM_KV_F32) return (const float *)(const void *)head;
    halves_f32(out, (const uint16_t *)(const void *)head, count);
    return out;
}

/* values [64][dim_padded] */
static const float *block_values(float *out, const omm_kv *kv, const uint8_t *head) {
    head += kv->values_at;
    if (kv->type == OMM_KV_F32) return (const float *)(const void *)head;
    halves_f32(out, (const uint16_t *)(const void *)head, (size_t)kv->dim_padded * OMM_KV_BLOCK);
    return out;
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* c[rows] (+)= a[rows][kc] b, b a block [kc][columns], columns a multiple of 16. */
static void block_product(float *c, const float *a, const float *b, size_t rows, size_t columns,
                          size_t kc, bool zero) {
    for (size_t n = 0; n < columns; n += (size_t)SIMD_NV * VL) {
        size_t nv = min_size(SIMD_NV, (columns - n) / VL);
        s_tiles[nv - 1][rows - 1](kc, a, ATTENTION_LD, b + n, VL, columns, c + n, ATTENTION_LD,
                                  zero);
    }
}

/* Scores of one row become probabilities; those of positions that it does not see become 0. */
static void row_scores(attention_tile *t, size_t row, seen sees) {
    float *s = t->s + row * ATTENTION_LD;
    vf scale = vf_set1(t->a->scale);
    if (t->a->softcap != 0.0f) {
        kernel_vec_scale(s, s, t->a->scale, OMM_KV_BLOCK);
        kernel_vec_softcap(s, s, t->a->softcap, OMM_KV_BLOCK);
        scale = vf_set1(1.0f);
    }
    for (size_t j = 0; j < sees.begin; j++) s[j] = -INFINITY;
    for (size_t j = sees.end; j < OMM_KV_BLOCK; j++) s[j] = -INFINITY;
    vf v[OMM_KV_BLOCK / VL];
    SIMD_UNROLL for (size_t j = 0; j < OMM_KV_BLOCK / VL; j++) {
        v[j] = vf_mul(vf_load(s + j * VL), scale);
    }
    float top = vf_fold_max(vf_max(vf_max(v[0], v[1]), vf_max(v[2], v[3])));
    if (t->max[row] > top) top = t->max[row];
    vf sum = vf_zero();
    SIMD_UNROLL for (size_t j = 0; j < OMM_KV_BLOCK / VL; j++) {
        v[j] = vf_exp(vf_sub(v[j], vf_set1(top)));
        sum = vf_add(sum, v[j]);
        vf_store(s + j * VL, v[j]);
    }
    const float before = t->max[row], part = vf_fold(sum);
    t->max[row] = top;
    if (before == -INFINITY) {
        t->sum[row] = part;
    } else if (before == top) {
        t->sum[row] += part; /* exp(0) is 1 */
    } else {
        float shrink[VL];
        vf_store(shrink, vf_exp(vf_set1(before - top)));
        t->sum[row] = fmaf(t->sum[row], shrink[0], part);
        kernel_vec_scale(t->o + row * ATTENTION_LD, t->o + row * ATTENTION_LD, shrink[0],
                         t->a->kv->dim_padded);
    }
}

/* Rows r .. r + rows continue their chains over positions begin .. end of a block. */
static void add_values(attention_tile *t, size_t r, size_t rows, const float *v, size_t begin,
                       size_t end) {
    const size_t width = t->a->kv->dim_padded;
    if (begin >= end) return;
    block_product(t->o + r * ATTENTION_LD, t->s + r * ATTENTION_LD + begin, v + begin * width, rows,
                  width, end - begin, false);
}

/* Positions that all rows see go through one product; what single rows see before and after them,
 * row by row, because positions that a row does not see must not enter its chain. */
static void rows_add_values(attention_tile *t, size_t r0, size_t rows, const float *v,
                            size_t block) {
    const seen last = row_sees(t, r0 + rows - 1, block);
    seen common = {.begin = last.begin, .end = row_sees(t, r0, block).end};
    if (common.begin > common.end) common.begin = common.end;
    for (size_t r = r0; r < r0 + rows; r++) {
        seen own = row_sees(t, r, block);
        add_values(t, r, 1, v, own.begin, common.begin);
    }
    add_values(t, r0, rows, v, common.begin, common.end);
    for (size_t r = r0; r < r0 + rows; r++) {
        seen own = row_sees(t, r, block);
        add_values(t, r, 1, v, own.begin > common.end ? own.begin : common.end, own.end);
    }
}

/* Reading a long cache is waiting for memory unless it is asked for in time: values while the keys
 * are at work, the next block's keys while the values are. */
static void ahead(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
}

static const uint8_t *block_head(const attention_tile *t, size_t block) {
    return (const uint8_t *)t->a->kv->blocks[block] + t->kv_head * t->a->kv->head_bytes;
}

/* `bytes` asked for in `rows` steps.  NULL: nothing is asked for. */
static few_ahead ahead_in(const uint8_t *data, size_t bytes, size_t rows) {
    return (few_ahead){data, data ? ((bytes + rows - 1) / rows + 63) / 64 * 64 : 0, bytes,
                       ask_near()};
}

/* All rows are heads of one query. */
static void tile_block_few(attention_tile *t, size_t block, const uint8_t *next) {
    const omm_kv *kv = t->a->kv;
    const uint8_t *head = block_head(t, block), *values = head + kv->values_at;
    const seen sees = row_sees(t, 0, block);
    const few_ahead own = ahead_in(values, kv->head_bytes - kv->values_at, kv->head_dim);
    const few_block b = {.values = values,
                         .width = kv->dim_padded,
                         .begin = sees.begin,
                         .end = sees.end,
                         .next = ahead_in(next, kv->values_at, OMM_KV_BLOCK)};
    for (size_t r = 0; r < t->rows; r += ATTENTION_FEW)
        s_few[kv->type][min_size(ATTENTION_FEW, t->rows - r) - 1].keys(
            t->s + r * ATTENTION_LD, t->q + r * ATTENTION_LD, head, kv->head_dim, &own);
    for (size_t r = 0; r < t->rows; r++) row_scores(t, r, sees);
    for (size_t r = 0; r < t->rows; r += ATTENTION_FEW)
        s_few[kv->type][min_size(ATTENTION_FEW, t->rows - r) - 1].values(
            t->o + r * ATTENTION_LD, t->s + r * ATTENTION_LD, &b);
}

/* How many bytes of a head keys, rows' scores, and values ask for. */
typedef struct q8_asks {
    size_t keys, rows, values;
} q8_asks;

/* As time passes in the three; asked for faster than memory gives, a line keeps those behind it
 * waiting, and the products too.  How much each takes differs with the cache that is asked
 * (measurements/decode.md). */
static q8_asks q8_asks_of(size_t bytes) {
    const size_t keys = ask_near() ? bytes / 3 : bytes * 3 / 20;
    const size_t rows = ask_near() ? bytes / 3 : bytes / 2;
    return (q8_asks){keys, rows, bytes - rows - keys};
}

/* Rows r .. r + rows, at most ATTENTION_FEW; on the way they ask for `next`, a head of the next block,
 * or NULL. */
static void tile_rows_q8(attention_tile *t, size_t block, size_t r, size_t rows,
                         const uint8_t *next) {
    const omm_kv *kv = t->a->kv;
    const size_t width = kv->dim_padded;
    const uint8_t *head = block_head(t, block), *values = head + kv->values_at;
    const uint16_t *scales = (const uint16_t *)(const void *)(values + width * OMM_KV_BLOCK);
    const q8_kernel *kernel = &s_q8_attention[rows - 1];
    const seen early = row_sees(t, r, block), late = row_sees(t, r + rows - 1, block);
    q8_weights *p = (q8_weights *)(void *)t->block;
    const q8_asks asks = q8_asks_of(kv->head_bytes);
    const q8_keys keys = {head, width, ahead_in(next, asks.keys, width / 4)};
    const few_ahead between = ahead_in(next ? next + asks.keys : NULL, asks.rows, rows);
    kernel->scores(t->s + r * ATTENTION_LD, t->q + r * ATTENTION_LD, &keys);
    for (size_t i = 0; i < rows; i++) {
        const seen sees = row_sees(t, r + i, block);
        few_ask(&between, i);
        row_scores(t, r + i, sees);
        q8_weights_set(&p[i], t->s + (r + i) * ATTENTION_LD, scales, omm_kv_groups(kv->head_dim),
                       sees.begin, sees.end);
    }
    const q8_values b = {
        values, width, early.begin, late.end,
        ahead_in(next ? next + asks.keys + asks.rows : NULL, asks.values, Q8_VALUE_ASKS(width))};
    kernel->values(t->o + r * ATTENTION_LD, p, &b);
}

static void tile_block_many(attention_tile *t, size_t block, const uint8_t *next) {
    const omm_kv *kv = t->a->kv;
    const uint8_t *head = block_head(t, block);
    size_t r0 = 0, r1 = t->rows; /* rows that see something of this block */
    while (row_sees(t, r0, block).end == 0) r0++;
    while (row_sees(t, r1 - 1, block).begin == OMM_KV_BLOCK) r1--;
    if (kv->type == OMM_KV_Q8_0) {
        for (size_t r = r0; r < r1; r += ATTENTION_FEW)
            tile_rows_q8(t, block, r, min_size(ATTENTION_FEW, r1 - r), r == r0 ? next : NULL);
        return;
    }
    ahead(head + kv->values_at, kv->head_bytes - kv->values_at);
    const float *k = block_keys(t->block, kv, head);
    for (size_t r = r0; r < r1; r += SIMD_MR)
        block_product(t->s + r * ATTENTION_LD, t->q + r * ATTENTION_LD, k,
                      min_size(SIMD_MR, r1 - r), OMM_KV_BLOCK, kv->head_dim, true);
    for (size_t r = r0; r < r1; r++) row_scores(t, r, row_sees(t, r, block));
    if (next) ahead(next, kv->values_at);
    const float *v = block_values(t->block, kv, head);
    for (size_t r = r0; r < r1; r += SIMD_MR)
        rows_add_values(t, r, min_size(SIMD_MR, r1 - r), v, block);
}

static void tile_query(attention_tile *t, size_t r) {
    const size_t d = t->a->kv->head_dim;
    const float *x = t->a->q + tile_index(t, r) * d;
    float *q = t->q + r * ATTENTION_LD;
    if (t->a->kv->type == OMM_KV_Q8_0)
        q8_query_set((q8_query *)(void *)q, x, d);
    else
        memcpy(q, x, d * sizeof *q);
}

/* One block; `next`: the head of a block that is read after this one, or NULL. */
static void tile_block(attention_tile *t, size_t block, const uint8_t *next) {
    const bool one_query = t->first / t->group == (t->first + t->rows - 1) / t->group;
    if (one_query && t->a->kv->type != OMM_KV_Q8_0)
        tile_block_few(t, block, next);
    else
        tile_block_many(t, block, next);
}

static const uint8_t *next_block(const attention_tile *t, size_t block) {
    return block < t->last && t->a->kv->blocks[block + 1] ? block_head(t, block + 1) : NULL;
}

static void tile_open(attention_tile *t) { /* from nothing */
    for (size_t r = 0; r < t->rows; r++) {
        memset(t->o + r * ATTENTION_LD, 0, t->a->kv->dim_padded * sizeof(float));
        t->max[r] = -INFINITY;
        t->sum[r] = 0.0f;
    }
}

/* Blocks begin .. end of one segment. */
static void tile_blocks(attention_tile *t, size_t begin, size_t end) {
    tile_open(t);
    for (size_t b = begin; b < end; b++) tile_block(t, b, next_block(t, b));
}

/* A row's softmax over some positions goes on with that over later ones. */
static void join_part(float *o, float *max, float *sum, const float *part, float part_max,
                      float part_sum, size_t width) {
    if (part_max == -INFINITY) return; /* none that the row sees */
    if (*max == -INFINITY) {
        memcpy(o, part, width * sizeof *o);
        *max = part_max;
        *sum = part_sum;
        return;
    }
    const float top = *max > part_max ? *max : part_max;
    float shrink[VL] = {*max - top, part_max - top};
    vf_store(shrink, vf_exp(vf_load(shrink)));
    const vf before = vf_set1(shrink[0]), now = vf_set1(shrink[1]);
    for (size_t i = 0; i < width; i += VL)
        vf_store(o + i, vf_fma(vf_load(part + i), now, vf_mul(vf_load(o + i), before)));
    *sum = fmaf(part_sum, shrink[1], *sum * shrink[0]);
    *max = top;
}

static void row_result(const omm_attention *a, size_t index, const float *o, float max, float sum) {
    const size_t d = a->kv->head_dim;
    kernel_vec_scale(a->out + index * d, o, 1.0f / sum, d);
    if (a->max) a->max[index] = max;
    if (a->lse) a->lse[index] = max + log_one(sum);
}

/* Several segments, one after the other; what they come to is then where that of one would be. */
static void tile_segments(attention_tile *t, size_t begin, size_t end) {
    for (size_t r = 0; r < t->rows; r++) t->whole_max[r] = -INFINITY;
    for (size_t b = begin, next = 0; b < end; b = next) {
        next = min_size(end, (b / SEGMENT_BLOCKS + 1) * SEGMENT_BLOCKS);
        tile_blocks(t, b, next);
        for (size_t r = 0; r < t->rows; r++)
            join_part(t->whole + r * ATTENTION_LD, &t->whole_max[r], &t->whole_sum[r],
                      t->o + r * ATTENTION_LD, t->max[r], t->sum[r], t->a->kv->dim_padded);
    }
    t->o = t->whole;
    memcpy(t->max, t->whole_max, t->rows * sizeof *t->max);
    memcpy(t->sum, t->whole_sum, t->rows * sizeof *t->sum);
}

static size_t tile_begin(const attention_tile *t) { /* first block that a row sees */
    return window_begin(t->a, tile_position(t, 0)) / OMM_KV_BLOCK;
}

static void tile_attend(attention_tile *t) {
    const size_t begin = tile_begin(t);
    const size_t end = tile_position(t, t->rows - 1) / OMM_KV_BLOCK + 1;
    t->last = end - 1;
    for (size_t r = 0; r < t->rows; r++) tile_query(t, r);
    if (begin / SEGMENT_BLOCKS == t->last / SEGMENT_BLOCKS)
        tile_blocks(t, begin, end);
    else
        tile_segments(t, begin, end);
    for (size_t r = 0; r < t->rows; r++)
        row_result(t->a, tile_index(t, r), t->o + r * ATTENTION_LD, t->max[r], t->sum[r]);
}

static attention_tile attention_tile_of(const omm_attention *a, float *work, uint32_t kv_head,
                                        size_t first, size_t rows) {
    const size_t part = ATTENTION_ROWS * ATTENTION_LD;
    return (attention_tile){.a = a,
                            .q = work,
                            .s = work + part,
                            .o = work + 2 * part,
                            .whole = work + 3 * part,
                            .block = work + 4 * part,
                            .kv_head = kv_head,
                            .group = a->heads / a->kv->kv_heads,
                            .first = first,
                            .rows = rows};
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the tile */
static void kernel_attention(const omm_attention *a, float *work, uint32_t kv_head, size_t r0,
                             size_t r1) {
    for (size_t r = r0; r < r1; r += ATTENTION_ROWS) {
        attention_tile t = attention_tile_of(a, work, kv_head, r, min_size(ATTENTION_ROWS, r1 - r));
        tile_attend(&t);
    }
}

/* Heads block by block: they lie behind one another there, and a processor that reads ahead by itself reads
 * what comes next. */
static void tiles_blocks(attention_tile *tiles, size_t heads, size_t begin, size_t end) {
    for (size_t h = 0; h < heads; h++) tile_open(&tiles[h]);
    for (size_t b = begin; b < end; b++) {
        for (size_t h = 0; h + 1 < heads; h++)
            tile_block(&tiles[h], b, block_head(&tiles[h + 1], b));
        tile_block(&tiles[heads - 1], b, next_block(&tiles[0], b));
    }
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the tiles */
static void kernel_attention_part(const omm_attention *a, float *work, uint32_t head0,
                                  uint32_t head1, size_t segment, float *parts, size_t stride) {
    const size_t width = a->kv->dim_padded, blocks = a->pos0 / OMM_KV_BLOCK + 1;
    const size_t group = a->heads / a->kv->kv_heads, heads = head1 - head0;
    attention_tile tiles[ATTENTION_PART_HEADS];
    OMM_ASSERT(heads > 0 && heads <= ATTENTION_PART_HEADS);
    for (size_t h = 0; h < heads; h++) {
        attention_tile *t = &tiles[h];
        *t = attention_tile_of(a, work + h * group * ATTENTION_LD, head0 + (uint32_t)h, 0, group);
        t->block = tiles[0].block;
        t->last = blocks - 1; /* whoever takes this segment is likely to take the next one */
        for (size_t r = 0; r < group; r++) tile_query(t, r);
    }
    const size_t own = segment * SEGMENT_BLOCKS, first = tile_begin(tiles);
    tiles_blocks(tiles, heads, own > first ? own : first, min_size(blocks, own + SEGMENT_BLOCKS));
    for (size_t h = 0; h < heads; h++, parts += stride) {
        float *part = parts;
        for (size_t r = 0; r < group; r++, part += ATTENTION_PART(width)) {
            memcpy(part, tiles[h].o + r * ATTENTION_LD, width * sizeof *part);
            part[width] = tiles[h].max[r];
            part[width + 1] = tiles[h].sum[r];
        }
    }
}

static void kernel_attention_join(const omm_attention *a, uint32_t head, const float *parts,
                                  size_t stride, size_t count) {
    const size_t width = a->kv->dim_padded;
    float o[OMM_HEAD_DIM_MAX], max = -INFINITY, sum = 0.0f;
    for (size_t i = 0; i < count; i++, parts += stride)
        join_part(o, &max, &sum, parts, parts[width], parts[width + 1], width);
    row_result(a, head, o, max, sum);
}

/* ---- filling the cache ----------------------------------------------------------------------- */

/* Up to 32 values as kernels.h defines Q8_0 of a cache; returns the scale. */
static uint16_t kv_quantise(int8_t q[OMM_KV_GROUP], const float *x, size_t n) {
    const vi abs_mask = vi_set1(0x7fffffff);
    vf part[2] = {vf_load_n(x, n), n > VL ? vf_load_n(x + VL, n - VL) : vf_zero()};
    /* As integers, bit patterns of absolute values are ordered, NaN and infinity on top. */
    vi m = vi_max(vi_and(vf_bits(part[0]), abs_mask), vi_and(vf_bits(part[1]), abs_mask));
    int32_t lanes[VL], top = 0;
    uint16_t scale[VL];
    float amax = 0.0f, d[VL];
    vi_store(lanes, m);
    for (int i = 0; i < VL; i++) top = lanes[i] > top ? lanes[i] : top;
    memset(q, 0, OMM_KV_GROUP);
    if (top >= 0x7f800000) return OMM_KV_SCALE_NAN;
    memcpy(&amax, &top, sizeof amax);
    vf_store_f16(scale, vf_set1(amax / 127.0f));
    vf_store(d, vf_load_f16(scale));
    if (d[0] == 0.0f) return 0;
    const vf inverse = vf_set1(1.0f / d[0]), magic = vf_set1(12582912.0f);
    SIMD_UNROLL for (int i = 0; i < 2; i++) {
        vf v = vf_mul(part[i], inverse);
        v = vf_max(vf_min(v, vf_set1(127.0f)), vf_set1(-127.0f));
        vi_store_i8(q + (ptrdiff_t)i * VL, vi_sub(vf_bits(vf_add(v, magic)), vi_set1(0x4B400000)));
    }
    return scale[0];
}

/* k [head_dim] and v [head_dim] of one head become position `slot` of its part of a block. */
static void store_f32(const omm_kv *kv, uint8_t *head, size_t slot, const float *k,
                      const float *v) {
    float *kb = (float *)(void *)head + slot;
    float *vb = (float *)(void *)(head + kv->values_at) + slot * kv->dim_padded;
    for (size_t j = 0; j < kv->head_dim; j++) kb[j * OMM_KV_BLOCK] = k[j];
    memcpy(vb, v, kv->head_dim * sizeof *v);
}

static void store_f16(const omm_kv *kv, uint8_t *head, size_t slot, const float *k,
                      const float *v) {
    uint16_t *kb = (uint16_t *)(void *)head + slot, half[VL];
    uint16_t *vb = (uint16_t *)(void *)(head + kv->values_at) + slot * kv->dim_padded;
    for (size_t j = 0; j < kv->head_dim; j += VL) {
        size_t n = min_size(VL, kv->head_dim - j);
        vf_store_f16(half, vf_load_n(k + j, n));
        for (size_t l = 0; l < n; l++) kb[(j + l) * OMM_KV_BLOCK] = half[l];
        vf_store_f16(half, vf_load_n(v + j, n));
        memcpy(vb + j, half, n * sizeof half[0]);
    }
}

static void store_q8(const omm_kv *kv, uint8_t *head, size_t slot, const float *k, const float *v) {
    const size_t d = kv->head_dim, groups = omm_kv_groups(kv->head_dim);
    const size_t plane = (size_t)kv->dim_padded * OMM_KV_BLOCK;
    uint8_t *values = head + kv->values_at;
    int8_t q[OMM_KV_GROUP], *kb = (int8_t *)head + slot * 4;
    int8_t *vb = (int8_t *)values + slot / 4 * 4 * kv->dim_padded + slot % 4;
    uint16_t *ks = (uint16_t *)(void *)(head + plane) + slot;
    uint16_t *vs = (uint16_t *)(void *)(values + plane) + slot;
    for (size_t g = 0; g < groups; g++) {
        const size_t j = g * OMM_KV_GROUP, n = min_size(OMM_KV_GROUP, d - j);
        ks[g * OMM_KV_BLOCK] = kv_quantise(q, k + j, n);
        for (size_t l = 0; l < n; l++) kb[(j + l) / 4 * 4 * OMM_KV_BLOCK + (j + l) % 4] = q[l];
        vs[g * OMM_KV_BLOCK] = kv_quantise(q, v + j, n);
        for (size_t l = 0; l < n; l++) vb[(j + l) * 4] = q[l];
    }
}

static void (*const s_stores[OMM_KV_TYPE_COUNT])(const omm_kv *kv, uint8_t *head, size_t slot,
                                                 const float *k,
                                                 const float *v) = {store_f32, store_f16, store_q8};

static void kernel_kv_store(const omm_kv *kv, const float *k, const float *v, size_t m, size_t pos0,
                            uint32_t head0, uint32_t head1) {
    const size_t d = kv->head_dim, row = d * kv->kv_heads;
    for (size_t i = 0; i < m; i++) {
        uint8_t *block = (uint8_t *)kv->blocks[(pos0 + i) / OMM_KV_BLOCK];
        const size_t slot = (pos0 + i) % OMM_KV_BLOCK;
        for (uint32_t h = head0; h < head1; h++) {
            const float *kr = k + i * row + h * d, *vr = v + i * row + h * d;
            uint8_t *head = block + h * kv->head_bytes;
            s_stores[kv->type](kv, head, slot, kr, vr);
        }
    }
}
