/* rope.c - rotary tables: their memory and contents. */
#include "omm/kernels.h"
#include "omm/mathd.h"
#include "omm/mem.h"

#define ROPE_FLOATS_MAX (1u << 28)

void omm_rope_frequencies(double *out, uint32_t rotated, double base) {
    for (uint32_t i = 0; i < rotated / 2; i++)
        out[i] = omm_pow_d(base, -2.0 * (double)i / (double)rotated);
}

static void fill(omm_rope *r, const omm_rope_spec *spec) {
    const uint32_t pairs = r->rotated / 2;
    const bool halves = r->style == OMM_ROPE_HALVES;
    for (uint32_t i = 0; i < pairs; i++) {
        for (uint32_t p = 0; p < r->positions; p++) {
            const size_t row = (size_t)p * r->rotated;
            const size_t a = row + (halves ? i : 2 * i), b = halves ? a + pairs : a + 1;
            const double angle = (double)p * spec->frequency[i];
            r->cos[a] = r->cos[b] = (float)(omm_cos_d(angle) * spec->magnitude);
            r->sin[b] = (float)(omm_sin_d(angle) * spec->magnitude);
            r->sin[a] = -r->sin[b];
        }
    }
}

/* Further on a sine is none; a table of NaN would be found in the logits. */
static omm_err check_turns(const omm_rope_spec *spec) {
    for (uint32_t i = 0; spec->positions > 0 && i < spec->rotated / 2; i++) {
        const double last = (double)(spec->positions - 1) * spec->frequency[i];
        if (!(last <= OMM_TURN_MAX))
            return omm_raise(OMM_ERR_NUMERIC,
                             "rotary table: pair %u turns by %g at position %u: at most %g", i,
                             omm_nan_plain(last), spec->positions - 1, OMM_TURN_MAX);
    }
    return OMM_OK;
}

omm_err omm_rope_init(omm_rope *rope, const omm_rope_spec *spec) {
    OMM_ASSERT(spec->rotated >= 2 && spec->rotated % 2 == 0 && spec->rotated <= spec->head_dim);
    if ((uint64_t)spec->positions * spec->rotated > ROPE_FLOATS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "rotary table of %u positions x %u: over %u",
                         spec->positions, spec->rotated, ROPE_FLOATS_MAX);
    OMM_TRY(check_turns(spec));
    const size_t count = (size_t)spec->positions * spec->rotated;
    omm_rope r = {.style = spec->style,
                  .positions = spec->positions,
                  .head_dim = spec->head_dim,
                  .rotated = spec->rotated};
    r.cos = (float *)omm_alloc_aligned(count, sizeof(float));
    r.sin = (float *)omm_alloc_aligned(count, sizeof(float));
    if (!r.cos || !r.sin) {
        omm_rope_fini(&r);
        return omm_raise(OMM_ERR_NOMEM, "no memory for a rotary table of %u positions",
                         spec->positions);
    }
    fill(&r, spec);
    *rope = r;
    return OMM_OK;
}

void omm_rope_fini(omm_rope *rope) {
    omm_free(rope->cos);
    omm_free(rope->sin);
    *rope = (omm_rope){0};
}
