/* sample.c - choosing the next token; all arithmetic in double and in one fixed order. */
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/session.h"

#include <math.h>
#include <stdlib.h>

omm_sampler omm_sampler_default(void) {
    return (omm_sampler){.top_p = 1.0f};
}

omm_err omm_sampler_check(const omm_sampler *sampler) {
    if (!(sampler->temperature >= 0.0f && sampler->temperature <= 100.0f))
        return omm_raise(OMM_ERR_CONFIG, "temperature %g: must be 0 to 100",
                         (double)sampler->temperature);
    if (!(sampler->top_p > 0.0f && sampler->top_p <= 1.0f))
        return omm_raise(OMM_ERR_CONFIG, "top-p %g: must be above 0 and at most 1",
                         (double)sampler->top_p);
    return OMM_OK;
}

uint32_t omm_argmax(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

typedef struct candidate {
    float logit;
    uint32_t id;
    double p;
} candidate;

/* A total order, so that any sorting algorithm gives the same result. */
static int by_logit(const void *a, const void *b) {
    const candidate *x = (const candidate *)a, *y = (const candidate *)b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t draw(candidate *list, uint32_t count, const omm_sampler *sampler, float u) {
    double total = 0.0, kept = 0.0, reached = 0.0;
    const double t = (double)sampler->temperature;
    for (uint32_t i = 0; i < count; i++) {
        list[i].p = omm_exp_d(((double)list[i].logit - (double)list[0].logit) / t);
        total += list[i].p;
    }
    uint32_t n = 0;
    while (n < count && (n == 0 || kept < (double)sampler->top_p * total)) kept += list[n++].p;
    for (uint32_t i = 0; i + 1 < n; i++) {
        reached += list[i].p;
        if ((double)u * kept < reached) return list[i].id;
    }
    return list[n - 1].id;
}

omm_err omm_sample(uint32_t *out, const omm_sampler *sampler, const float *logits, uint32_t vocab,
                   uint64_t position) {
    OMM_ASSERT(vocab > 0);
    if (sampler->temperature == 0.0f || sampler->top_k == 1) {
        *out = omm_argmax(logits, vocab);
        return OMM_OK;
    }
    candidate *list = (candidate *)omm_alloc(vocab, sizeof *list);
    if (!list) return omm_raise(OMM_ERR_NOMEM, "no memory to sort %u candidates", vocab);
    for (uint32_t i = 0; i < vocab; i++) list[i] = (candidate){.logit = logits[i], .id = i};
    qsort(list, vocab, sizeof *list, by_logit);
    uint32_t count = sampler->top_k && sampler->top_k < vocab ? sampler->top_k : vocab;
    *out = draw(list, count, sampler, omm_rng_unit(&sampler->rng, position));
    omm_free(list);
    return OMM_OK;
}
