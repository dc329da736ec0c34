/* sample_test.c - the sampler's rules on logits that can be checked by hand. */
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/session.h"
#include "omm_test.h"

#include <math.h>
#include <stdlib.h>

static omm_sampler sampler(float temperature, uint32_t top_k, float top_p, uint64_t seed_number) {
    omm_seed seed = omm_seed_from_u64(seed_number);
    return (omm_sampler){.temperature = temperature,
                         .top_k = top_k,
                         .top_p = top_p,
                         .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
}

static void counts(unsigned *out, const omm_sampler *s, const float *logits, uint32_t vocab,
                   unsigned draws) {
    for (unsigned i = 0; i < draws; i++) {
        uint32_t id = 0, again = 1;
        CHECK_OK(omm_sample(&id, s, logits, vocab, i));
        CHECK_OK(omm_sample(&again, s, logits, vocab, i));
        CHECK_EQ(id, again);
        CHECK(id < vocab);
        out[id]++;
    }
}

/* The rules of session.h by sorting everything. */
typedef struct item {
    float logit;
    uint32_t id;
} item;

static int by_logit(const void *a, const void *b) {
    const item *x = (const item *)a, *y = (const item *)b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t by_definition(const omm_sampler *s, const float *logits, uint32_t vocab,
                              uint64_t position) {
    static item list[5000];
    static double p[5000];
    double total = 0.0, kept = 0.0, reached = 0.0, u = (double)omm_rng_unit(&s->rng, position);
    for (uint32_t i = 0; i < vocab; i++) list[i] = (item){logits[i], i};
    qsort(list, vocab, sizeof *list, by_logit);
    uint32_t count = s->top_k && s->top_k < vocab ? s->top_k : vocab, n = 0;
    for (uint32_t i = 0; i < count; i++) {
        p[i] = omm_exp_d(((double)list[i].logit - (double)list[0].logit) / (double)s->temperature);
        total += p[i];
    }
    while (n < count && (n == 0 || kept < (double)s->top_p * total)) kept += p[n++];
    while (n > 1 && p[n - 1] < (double)s->min_p) n--; /* the first has 1 */
    kept = 0;
    for (uint32_t i = 0; i < n; i++) kept += p[i];
    for (uint32_t i = 0; i + 1 < n; i++) {
        reached += p[i];
        if (u * kept < reached) return list[i].id;
    }
    return list[n - 1].id;
}

static void selection_is_sorting(void) {
    enum { VOCAB = 5000 };
    static float logits[VOCAB];
    static const float temperatures[] = {0.01f, 0.3f, 1.0f, 3.0f, 100.0f};
    static const uint32_t top_k[] = {0, 2, 40, 700, VOCAB, 2 * VOCAB};
    static const float top_p[] = {1.0f, 0.9f, 0.2f}, min_p[] = {0.0f, 0.05f, 0.5f, 1.0f};
    const omm_seed seed = omm_seed_from_u64(3);
    const omm_rng values = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t i = 0; i < VOCAB; i++) {
            float u = omm_rng_unit(&values, i + (uint64_t)kind * VOCAB);
            logits[i] = kind == 0 ? 60.0f * u - 50.0f : kind == 1 ? roundf(8.0f * u - 4.0f) : 0.0f;
            if (i % 7 == 0 && logits[i] == 0.0f) logits[i] = -0.0f; /* ties with +0 */
        }
        for (unsigned c = 0; c < 5 * 6 * 3; c++) {
            omm_sampler s = sampler(temperatures[c % 5], top_k[c / 5 % 6], top_p[c / 30], c);
            s.min_p = min_p[c % 4];
            for (uint64_t at = 0; at < 5; at++) {
                uint32_t id = VOCAB;
                CHECK_OK(omm_sample(&id, &s, logits, VOCAB, at));
                CHECK_EQ(id, by_definition(&s, logits, VOCAB, at));
            }
        }
    }
}

int main(void) {
    selection_is_sorting();
    /* Probabilities 0.5, 0.25, 0.125, 0.0625 twice, in mixed order. */
    const float ln2 = 0.6931472f;
    const float logits[5] = {-3 * ln2, -1 * ln2, -4 * ln2, -2 * ln2, -4 * ln2};
    unsigned n[5] = {0};
    omm_sampler s = sampler(1.0f, 0, 1.0f, 7);
    counts(n, &s, logits, 5, 4000);
    static const double p[5] = {0.125, 0.5, 0.0625, 0.25, 0.0625};
    for (int i = 0; i < 5; i++) /* five standard deviations */
        CHECK(fabs(n[i] - 4000 * p[i]) < 5 * sqrt(4000 * p[i] * (1 - p[i])));

    unsigned k[5] = {0}, t[5] = {0}, e[5] = {0};
    s = sampler(1.0f, 2, 1.0f, 7);
    counts(k, &s, logits, 5, 500);
    CHECK(k[1] > 0 && k[3] > 0 && k[1] + k[3] == 500);
    s = sampler(1.0f, 0, 0.8f, 7); /* 0.5 + 0.25 < 0.8 <= + 0.125 */
    counts(t, &s, logits, 5, 500);
    CHECK(t[0] > 0 && t[2] + t[4] == 0);
    unsigned h[4] = {0};
    s = sampler(1.0f, 0, 0.5f, 7); /* of four alike two are half, which is enough */
    counts(h, &s, (const float[4]){0}, 4, 500);
    CHECK(h[0] > 0 && h[1] > 0 && h[0] + h[1] == 500);
    unsigned m[5] = {0};
    s = sampler(1.0f, 0, 1.0f, 7);
    s.min_p = 0.3f; /* 0.25 is half of 0.5, 0.125 a quarter */
    counts(m, &s, logits, 5, 500);
    CHECK(m[1] > 0 && m[3] > 0 && m[1] + m[3] == 500);
    s = sampler(1.0f, 4, 1.0f, 7); /* ids 2 and 4 tie: the lower one stays */
    counts(e, &s, logits, 5, 2000);
    CHECK(e[2] > 0 && e[4] == 0);

    uint32_t id = 9;
    s = sampler(1.0f, 0, 1e-9f, 1);
    CHECK_OK(omm_sample(&id, &s, logits, 5, 3));
    CHECK_EQ(id, 1);
    s = sampler(1e-6f, 0, 1.0f, 1);
    CHECK_OK(omm_sample(&id, &s, logits, 5, 3));
    CHECK_EQ(id, 1);
    CHECK_EQ(omm_argmax((const float[]){1.0f, 5.0f, 5.0f, 2.0f}, 4), 1);

    s = sampler(-1.0f, 0, 1.0f, 1);
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    s = sampler(1.0f, 0, 1.5f, 1);
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    s = sampler(NAN, 0, 1.0f, 1);
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    for (size_t i = 0; i < 3; i++) {
        s = sampler(1.0f, 0, 1.0f, 1);
        s.min_p = (float[]){-0.1f, 1.1f, NAN}[i];
        CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    }
    s = omm_sampler_default();
    CHECK_OK(omm_sampler_check(&s));
    s = sampler(1.0f, 0, 1.0f, 1);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_sample(&id, &s, logits, 5, 0), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
