/* q8_cache.c - the same tokens with both types of cache, and the divergence of what follows. */
#include "q8_cache.h"

#include "omm/mem.h"
#include "omm/session.h"

#include "omm_test.h"

#include <math.h>

static float *logits_with(const omm_compute *c, const omm_model *model, omm_kv_type type,
                          const uint32_t *ids, size_t count) {
    omm_session *s = NULL;
    const omm_session_options o = {
        .kv_type = type, .batch_max = 256, .positions_max = (uint32_t)count};
    float *logits = (float *)omm_alloc(count * model->dims.vocab, sizeof *logits);
    CHECK(logits != NULL);
    CHECK_OK(omm_session_open(&s, c, model, NULL, &o));
    CHECK_OK(omm_session_append(s, ids, count, logits, true));
    omm_session_close(s);
    return logits;
}

double q8_cache_kl(const omm_compute *c, const omm_model *model, const uint32_t *ids,
                   size_t count) {
    const size_t vocab = model->dims.vocab;
    float *f16 = logits_with(c, model, OMM_KV_F16, ids, count);
    float *q8 = logits_with(c, model, OMM_KV_Q8_0, ids, count);
    double sum = 0.0;
    for (size_t p = 0; p < count; p++) {
        const float *a = f16 + p * vocab, *b = q8 + p * vocab;
        float lse[2];
        omm_row_lse(c, NULL, &lse[0], a, 1, vocab);
        omm_row_lse(c, NULL, &lse[1], b, 1, vocab);
        for (size_t j = 0; j < vocab; j++)
            sum += exp((double)(a[j] - lse[0])) * (double)((a[j] - lse[0]) - (b[j] - lse[1]));
    }
    omm_free(f16);
    omm_free(q8);
    return sum / (double)count;
}
