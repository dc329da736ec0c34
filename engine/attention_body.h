/* attention_body.h - causal attention over blocks of 64 positions; part of kernels_body.h.
 *
 * A tile takes up to SIMD_MR rows, a row being one (query, head) of the heads that share a
 * key/value head, query by query.  Scores of a block are one small product against the transposed
 * keys, the weighted values another; between them the online softmax of kernels.h, row by row.
 */

typedef struct attention_tile {
    const omm_attention *a;
    float *q;     /* [rows][ATTENTION_LD] */
    float *s;     /* [rows][ATTENTION_LD]: scores, then probabilities */
    float *o;     /* [rows][ATTENTION_LD] */
    float *k, *v; /* one block in f32, for an f16 cache */
    uint32_t kv_head, group;
    size_t first, rows; /* row r is query (first + r) / group, head (first + r) % group */
    float max[GEMM_MR_MAX], sum[GEMM_MR_MAX];
} attention_tile;

static size_t tile_position(const attention_tile *t, size_t row) {
    return t->a->pos0 + (t->first + row) / t->group;
}

static size_t tile_index(const attention_tile *t, size_t row) { /* in [m][heads] */
    size_t r = t->first + row;
    return r / t->group * t->a->heads + (size_t)t->kv_head * t->group + r % t->group;
}

static const float *block_f32(float *out, const void *data, omm_kv_type type, size_t offset,
                              size_t count) {
    if (type == OMM_KV_F32) return (const float *)data + offset;
    const uint16_t *from = (const uint16_t *)data + offset;
    for (size_t i = 0; i < count; i += VL) vf_store(out + i, vf_load_f16(from + i));
    return out;
}

/* b is a block [k][ldb], columns a multiple of 16. */
static void block_product(float *c, const float *a, const float *b, size_t rows, size_t columns,
                          size_t ldb, size_t kc, bool zero) {
    for (size_t n = 0; n < columns; n += (size_t)SIMD_NV * VL) {
        size_t nv = min_size(SIMD_NV, (columns - n) / VL);
        s_tiles[nv - 1][rows - 1](kc, a, b + n, VL, ldb, c + n, ATTENTION_LD, zero);
    }
}

/* Scores of one row become probabilities; `present` of the 64 positions count. */
static void row_scores(attention_tile *t, size_t row, size_t present) {
    float *s = t->s + row * ATTENTION_LD;
    const vf scale = vf_set1(t->a->scale);
    for (size_t j = present; j < OMM_KV_BLOCK; j++) s[j] = -INFINITY;
    vf v[OMM_KV_BLOCK / VL];
    SIMD_UNROLL for (size_t j = 0; j < OMM_KV_BLOCK / VL; j++) {
        v[j] = vf_mul(vf_load(s + j * VL), scale);
    }
    float top = vf_fold_max(vf_max(vf_max(v[0], v[1]), vf_max(v[2], v[3])));
    if (t->max[row] > top) top = t->max[row];
    float shrink[VL];
    vf_store(shrink, vf_exp(vf_set1(t->max[row] - top)));
    vf sum = vf_zero();
    SIMD_UNROLL for (size_t j = 0; j < OMM_KV_BLOCK / VL; j++) {
        v[j] = vf_exp(vf_sub(v[j], vf_set1(top)));
        sum = vf_add(sum, v[j]);
        vf_store(s + j * VL, v[j]);
    }
    if (t->max[row] == -INFINITY) {
        t->sum[row] = vf_fold(sum);
    } else {
        t->sum[row] = fmaf(t->sum[row], shrink[0], vf_fold(sum));
        kernel_vec_scale(t->o + row * ATTENTION_LD, t->o + row * ATTENTION_LD, shrink[0],
                         t->a->kv->dim_padded);
    }
    t->max[row] = top;
}

static void tile_block(attention_tile *t, size_t block) {
    const omm_kv *kv = t->a->kv;
    const size_t begin = block * OMM_KV_BLOCK;
    const size_t k_floats = (size_t)kv->head_dim * OMM_KV_BLOCK;
    const size_t v_floats = (size_t)kv->dim_padded * OMM_KV_BLOCK;
    const size_t index = block * kv->kv_heads + t->kv_head;
    const float *k = block_f32(t->k, kv->k, kv->type, index * k_floats, k_floats);
    const float *v = block_f32(t->v, kv->v, kv->type, index * v_floats, v_floats);
    size_t r0 = 0;
    while (tile_position(t, r0) < begin) r0++; /* queries before this block */
    block_product(t->s + r0 * ATTENTION_LD, t->q + r0 * ATTENTION_LD, k, t->rows - r0, OMM_KV_BLOCK,
                  OMM_KV_BLOCK, kv->head_dim, true);
    for (size_t r = r0; r < t->rows; r++)
        row_scores(t, r, min_size(OMM_KV_BLOCK, tile_position(t, r) - begin + 1));
    /* Positions that all rows see in one product; what later rows see beyond, row by row, because
     * absent positions must not enter a chain. */
    size_t common = min_size(OMM_KV_BLOCK, tile_position(t, r0) - begin + 1);
    block_product(t->o + r0 * ATTENTION_LD, t->s + r0 * ATTENTION_LD, v, t->rows - r0,
                  kv->dim_padded, kv->dim_padded, common, false);
    for (size_t r = r0; r < t->rows; r++) {
        size_t present = min_size(OMM_KV_BLOCK, tile_position(t, r) - begin + 1);
        if (present == common) continue;
        block_product(t->o + r * ATTENTION_LD, t->s + r * ATTENTION_LD + common,
                      v + common * kv->dim_padded, 1, kv->dim_padded, kv->dim_padded,
                      present - common, false);
    }
}

static void tile_attend(attention_tile *t) {
    const omm_attention *a = t->a;
    const size_t d = a->kv->head_dim;
    for (size_t r = 0; r < t->rows; r++) {
        memcpy(t->q + r * ATTENTION_LD, a->q + tile_index(t, r) * d, d * sizeof(float));
        memset(t->o + r * ATTENTION_LD, 0, a->kv->dim_padded * sizeof(float));
        t->max[r] = -INFINITY;
        t->sum[r] = 0.0f;
    }
    const size_t blocks = tile_position(t, t->rows - 1) / OMM_KV_BLOCK + 1;
    for (size_t b = 0; b < blocks; b++) tile_block(t, b);
    for (size_t r = 0; r < t->rows; r++) {
        size_t index = tile_index(t, r);
        kernel_vec_scale(a->out + index * d, t->o + r * ATTENTION_LD, 1.0f / t->sum[r], d);
        if (a->max) a->max[index] = t->max[r];
        if (a->lse) a->lse[index] = t->max[r] + log_one(t->sum[r]);
    }
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the tile */
static void kernel_attention(const omm_attention *a, float *work, uint32_t kv_head, size_t m0,
                             size_t m1) {
    const size_t part = (size_t)GEMM_MR_MAX * ATTENTION_LD;
    attention_tile t = {.a = a,
                        .q = work,
                        .s = work + part,
                        .o = work + 2 * part,
                        .k = work + 3 * part,
                        .v = work + 3 * part + (size_t)OMM_KV_BLOCK * OMM_HEAD_DIM_MAX,
                        .kv_head = kv_head,
                        .group = a->heads / a->kv->kv_heads};
    for (size_t r = m0 * t.group; r < m1 * t.group; r += SIMD_MR) {
        t.first = r;
        t.rows = min_size(SIMD_MR, m1 * t.group - r);
        tile_attend(&t);
    }
}

/* ---- filling the cache ----------------------------------------------------------------------- */

static void kernel_kv_store(omm_kv *kv, const float *k, const float *v, size_t m, size_t pos0) {
    const size_t d = kv->head_dim, row = d * kv->kv_heads;
    for (size_t i = 0; i < m; i++) {
        const size_t block = (pos0 + i) / OMM_KV_BLOCK, slot = (pos0 + i) % OMM_KV_BLOCK;
        for (size_t h = 0; h < kv->kv_heads; h++) {
            const float *kr = k + i * row + h * d, *vr = v + i * row + h * d;
            const size_t index = block * kv->kv_heads + h;
            const size_t k_at = index * d * OMM_KV_BLOCK + slot;
            const size_t v_at = (index * OMM_KV_BLOCK + slot) * kv->dim_padded;
            if (kv->type == OMM_KV_F32) {
                float *kb = (float *)kv->k + k_at;
                for (size_t j = 0; j < d; j++) kb[j * OMM_KV_BLOCK] = kr[j];
                memcpy((float *)kv->v + v_at, vr, d * sizeof *vr);
                continue;
            }
            uint16_t *kb = (uint16_t *)kv->k + k_at, half[VL];
            for (size_t j = 0; j < d; j += VL) {
                size_t n = min_size(VL, d - j);
                vf_store_f16(half, vf_load_n(kr + j, n));
                for (size_t l = 0; l < n; l++) kb[(j + l) * OMM_KV_BLOCK] = half[l];
                vf_store_f16(half, vf_load_n(vr + j, n));
                memcpy((uint16_t *)kv->v + v_at + j, half, n * sizeof half[0]);
            }
        }
    }
}
