/* cache.c - rotary tables and key/value caches: their memory and fixed contents. */
#include "omm/kernels.h"
#include "omm/mathd.h"
#include "omm/mem.h"

#include <string.h>

#define ROPE_FLOATS_MAX (1u << 28)
#define KV_ELEMENTS_MAX ((size_t)1 << 34)

omm_err omm_rope_init(omm_rope *rope, uint32_t positions, uint32_t head_dim, double freq_base,
                      double scale, const float *factors) {
    OMM_ASSERT(head_dim > 0 && head_dim % 2 == 0);
    if ((uint64_t)positions * head_dim > ROPE_FLOATS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "rotary table of %u positions x %u: over %u", positions,
                         head_dim, ROPE_FLOATS_MAX);
    const size_t count = (size_t)positions * head_dim;
    omm_rope r = {.positions = positions, .head_dim = head_dim};
    r.cos = (float *)omm_alloc_aligned(count, sizeof(float));
    r.sin = (float *)omm_alloc_aligned(count, sizeof(float));
    if (!r.cos || !r.sin) {
        omm_rope_fini(&r);
        return omm_raise(OMM_ERR_NOMEM, "no memory for a rotary table of %u positions", positions);
    }
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double frequency = omm_pow_d(freq_base, -2.0 * (double)i / (double)head_dim) * scale;
        if (factors) frequency /= (double)factors[i];
        for (uint32_t p = 0; p < positions; p++) {
            const size_t at = (size_t)p * head_dim + 2 * (size_t)i;
            const double angle = (double)p * frequency;
            r.cos[at] = r.cos[at + 1] = (float)omm_cos_d(angle);
            r.sin[at + 1] = (float)omm_sin_d(angle);
            r.sin[at] = -r.sin[at + 1];
        }
    }
    *rope = r;
    return OMM_OK;
}

void omm_rope_fini(omm_rope *rope) {
    omm_free(rope->cos);
    omm_free(rope->sin);
    *rope = (omm_rope){0};
}

omm_err omm_kv_init(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim,
                    uint32_t positions_max) {
    OMM_ASSERT(head_dim > 0 && head_dim <= OMM_HEAD_DIM_MAX && kv_heads > 0);
    omm_kv r = {.type = type, .kv_heads = kv_heads, .head_dim = head_dim};
    r.dim_padded = (head_dim + OMM_STRIP - 1) / OMM_STRIP * OMM_STRIP;
    const size_t blocks = ((size_t)positions_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    const size_t rows = blocks * OMM_KV_BLOCK * kv_heads;
    if (blocks * OMM_KV_BLOCK > UINT32_MAX || rows * r.dim_padded > KV_ELEMENTS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "cache of %u positions x %u heads x %u: over %zu values",
                         positions_max, kv_heads, head_dim, KV_ELEMENTS_MAX);
    r.positions_max = (uint32_t)(blocks * OMM_KV_BLOCK);
    const size_t size = type == OMM_KV_F16 ? 2 : 4;
    r.k = omm_alloc_aligned(rows * head_dim, size);
    r.v = omm_alloc_aligned(rows * r.dim_padded, size);
    if (!r.k || !r.v) {
        omm_kv_fini(&r);
        return omm_raise(OMM_ERR_NOMEM, "no memory for a cache of %u positions", positions_max);
    }
    *kv = r;
    return OMM_OK;
}

void omm_kv_fini(omm_kv *kv) {
    omm_free(kv->k);
    omm_free(kv->v);
    *kv = (omm_kv){0};
}
