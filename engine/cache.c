/* cache.c - rotary tables: their memory and contents. */
#include "omm/kernels.h"
#include "omm/mathd.h"
#include "omm/mem.h"

#define ROPE_FLOATS_MAX (1u << 28)

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
