/* sample_test.c - the sampler's rules on logits that can be checked by hand. */
#include "omm/constraint.h"
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/sample.h"
#include "omm_test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- penalties ------------------------------------------------------------------------------- */

static omm_sampler penalising(float frequency, float presence, float repeat, uint32_t last) {
    omm_sampler s = omm_sampler_default();
    s.frequency_penalty = frequency;
    s.presence_penalty = presence;
    s.repeat_penalty = repeat;
    s.repeat_last = last;
    return s;
}

/* Prompt 0 1 2, then 3 3 2 3 4: three times 3, once 2 and 4. */
static const uint32_t s_said[] = {0, 1, 2, 3, 3, 2, 3, 4};
static const float s_before[7] = {4.0f, -2.0f, 1.0f, 3.0f, -0.5f, 8.0f, 0.0f};

typedef struct penalty_case {
    float frequency, presence, repeat;
    uint32_t last;
    size_t count, prompt_count;
    float want[7];
} penalty_case;

static const penalty_case s_cases[] = {
    {0, 0, 1, 64, 8, 3, {4, -2, 1, 3, -0.5f, 8, 0}},
    {0, 0, 2, 0, 8, 3, {4, -2, 1, 3, -0.5f, 8, 0}}, /* looks back at nothing */
    /* what was generated, each time; the prompt is not */
    {0.5f, 0, 1, 64, 8, 3, {4, -2, 0.5f, 1.5f, -1, 8, 0}},
    {0, 0.75f, 1, 64, 8, 3, {4, -2, 0.25f, 2.25f, -1.25f, 8, 0}},
    {0.5f, 0.75f, 1, 64, 8, 3, {4, -2, -0.25f, 0.75f, -1.75f, 8, 0}},
    {-2, 0.5f, 1, 64, 8, 3, {4, -2, 2.5f, 8.5f, 1, 8, 0}},
    {0.5f, 0.75f, 1, 64, 3, 3, {4, -2, 1, 3, -0.5f, 8, 0}}, /* nothing yet */
    {0.5f, 0, 1, 64, 8, 0, {3.5f, -2.5f, 0, 1.5f, -1, 8, 0}},
    /* once each, the prompt too; the sign decides */
    {0, 0, 2, 64, 8, 3, {2, -4, 0.5f, 1.5f, -1, 8, 0}},
    {0, 0, 0.5f, 64, 8, 3, {8, -1, 2, 6, -0.25f, 8, 0}},
    {0, 0, 2, 3, 8, 3, {4, -2, 0.5f, 1.5f, -1, 8, 0}}, /* 2 3 4 */
    {0, 0, 2, 1, 8, 3, {4, -2, 1, 3, -1, 8, 0}},
    {0, 0, 2, 7, 8, 3, {4, -4, 0.5f, 1.5f, -1, 8, 0}}, /* all but the first */
    {0, 0, 2, OMM_REPEAT_LAST_ALL, 8, 3, {2, -4, 0.5f, 1.5f, -1, 8, 0}},
    {0, 0, 2, 2, 3, 3, {4, -4, 0.5f, 3, -0.5f, 8, 0}},
    /* divided first: 3 / 2 - 1.5 - 0.25, not (3 - 1.75) / 2 */
    {0.5f, 0.25f, 2, 64, 8, 3, {2, -4, -0.25f, -0.25f, -1.75f, 8, 0}},
};

static bool same(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i]) return false;
    return true;
}

static void penalties_by_hand(void) {
    omm_penalised was = {0};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const penalty_case *c = &s_cases[i];
        const omm_sampler s = penalising(c->frequency, c->presence, c->repeat, c->last);
        const omm_history h = {s_said, c->count, c->prompt_count};
        float got[7];
        CHECK_EQ(omm_sampler_penalises(&s), i > 1);
        CHECK_OK(omm_sampler_check(&s));
        memcpy(got, s_before, sizeof got);
        CHECK_OK(omm_penalise(&was, got, 7, &s, &h));
        for (int k = 0; k < 7; k++)
            if (got[k] != c->want[k]) {
                fprintf(stderr, "case %zu: logit %d is %g, not %g\n", i, k, (double)got[k],
                        (double)c->want[k]);
                exit(1);
            }
        omm_penalise_undo(&was, got);
        CHECK(same(got, s_before, 7) && !was.said);
    }
    /* f32 in its order: 0.1 three times is rounded once, then taken off. */
    const omm_sampler s = penalising(0.1f, 0.3f, 1.1f, 64);
    float got[7];
    memcpy(got, s_before, sizeof got);
    CHECK_OK(omm_penalise(&was, got, 7, &s, &(omm_history){s_said, 8, 3}));
    const float divided = 3.0f / 1.1f, three = 0.1f * 3.0f, after = divided - three;
    CHECK(got[3] == after - 0.3f);
    omm_penalise_undo(&was, got);
    /* no logit is beyond numbers */
    const omm_sampler large = penalising(-2.0f, -2.0f, 0.01f, 64);
    const omm_sampler small = penalising(2.0f, 2.0f, 100.0f, 64);
    float ends[2] = {FLT_MAX, -FLT_MAX};
    CHECK_OK(omm_penalise(&was, ends, 2, &large, &(omm_history){s_said, 2, 0}));
    CHECK(ends[0] == FLT_MAX && ends[1] > -FLT_MAX && ends[1] < 0.0f);
    omm_penalise_undo(&was, ends);
    CHECK_OK(omm_penalise(&was, ends, 2, &small, &(omm_history){s_said, 2, 0}));
    CHECK(ends[1] == -FLT_MAX && ends[0] > 0.0f && ends[0] < FLT_MAX);
    omm_penalise_undo(&was, ends);
    CHECK(ends[0] == FLT_MAX && ends[1] == -FLT_MAX);
}

/* Many tokens, said in any order, against counting them one by one. */
static void penalties_by_counting(void) {
    enum { VOCAB = 3000, SAID = 2500 };
    static float logits[VOCAB], got[VOCAB];
    static uint32_t said[SAID];
    const omm_seed seed = omm_seed_from_u64(11);
    const omm_rng values = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    for (uint32_t i = 0; i < VOCAB; i++) logits[i] = omm_rng_unit(&values, i) * 9.0f - 4.0f;
    for (uint64_t round = 0; round < 6; round++) {
        omm_penalised was = {0};
        const omm_sampler s = penalising(round % 2 ? 0.7f : 0.0f, round % 3 ? -0.2f : 0.0f,
                                         round > 1 ? 1.3f : 1.0f, round < 4 ? 64 : 2400);
        const omm_history h = {said, SAID, 300 * round};
        for (uint32_t i = 0; i < SAID; i++)
            said[i] = (uint32_t)omm_rng_below(&values, VOCAB * (round + 1) + i, VOCAB) &
                      (round < 3 ? ~0u : ~0xffu); /* ids that collide */
        memcpy(got, logits, sizeof got);
        CHECK_OK(omm_penalise(&was, got, VOCAB, &s, &h));
        for (uint32_t id = 0; id < VOCAB; id++) {
            uint32_t count = 0, recent = 0;
            float want = logits[id];
            for (size_t i = 0; i < SAID; i++) {
                count += said[i] == id && i >= h.prompt_count;
                recent += said[i] == id && i + s.repeat_last >= SAID;
            }
            if (recent) want = want > 0.0f ? want / s.repeat_penalty : want * s.repeat_penalty;
            if (count) want = want - s.frequency_penalty * (float)count;
            if (count) want = want - s.presence_penalty;
            CHECK(got[id] == want);
        }
        omm_penalise_undo(&was, got);
        CHECK(same(got, logits, VOCAB));
    }
}

/* Greedy, drawn and within what is allowed: the draw is that of the logits with penalties. */
static void penalties_are_drawn(void) {
    enum { VOCAB = 50, SAID = 40 };
    const omm_seed seed = omm_seed_from_u64(9);
    const omm_rng values = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    unsigned others = 0;
    for (uint64_t round = 0; round < 200; round++) {
        float logits[VOCAB], before[VOCAB];
        omm_penalised was = {0};
        uint32_t said[SAID], id = VOCAB, want = VOCAB, without = VOCAB;
        omm_sampler s = sampler(round % 3 ? 0.8f : 0.0f, round % 4 ? 0 : 5, 0.9f, round);
        omm_sampler plain = s;
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = omm_rng_unit(&values, round * 100 + i) * 4.0f - 1.0f;
        for (uint32_t i = 0; i < SAID; i++)
            said[i] = (uint32_t)omm_rng_below(&values, round * 100 + VOCAB + i, 20);
        s.frequency_penalty = round % 2 ? 0.3f : 0.0f;
        s.presence_penalty = round % 5 ? 0.6f : -0.6f;
        s.repeat_penalty = round % 7 ? 1.0f : 1.3f;
        s.repeat_last = 10;
        const omm_history h = {said, round % SAID, round % SAID / 2};
        memcpy(before, logits, sizeof before);
        CHECK_OK(omm_sample_within(&id, &s, NULL, &h, logits, VOCAB));
        CHECK(same(before, logits, VOCAB));
        CHECK_OK(omm_penalise(&was, logits, VOCAB, &s, &h));
        CHECK_OK(omm_sample(&want, &plain, logits, VOCAB, h.count));
        omm_penalise_undo(&was, logits);
        CHECK_OK(omm_sample(&without, &plain, logits, VOCAB, h.count));
        CHECK_EQ(id, want);
        others += id != without;
    }
    CHECK(others > 20);
}

/* Added before the penalties, to tokens that were said and others; taken back to the bit. */
static void biases_by_hand(void) {
    static const omm_bias biases[] = {{1, 3.0f}, {3, -100.0f}, {5, -7.5f}, {6, 0.0f}};
    const omm_history h = {s_said, 8, 3}, nothing_said = {NULL, 5, 2};
    omm_sampler s = penalising(0.5f, 0.25f, 2.0f, 64);
    omm_penalised was = {0};
    float logits[7];
    uint32_t id = 9;
    s.biases = biases;
    s.bias_count = 4;
    CHECK_OK(omm_sampler_check(&s));
    memcpy(logits, s_before, sizeof logits);
    CHECK_OK(omm_penalise(&was, logits, 7, &s, &h));
    /* 0: 4 / 2; 1: (-2 + 3) / 2; 2: 1 / 2 - 0.5 - 0.25; 3: (3 - 100) * 2 - 3 * 0.5 - 0.25; 4: -0.5 * 2 - 0.75; 5: 8 - 7.5 */
    CHECK(same(logits, (const float[7]){2.0f, 0.5f, -0.25f, -195.75f, -1.75f, 0.5f, 0.0f}, 7));
    omm_penalise_undo(&was, logits);
    CHECK(same(logits, s_before, 7));
    s = omm_sampler_default(); /* without penalties nobody looks at what was said */
    CHECK(!omm_sampler_penalises(&s));
    s.biases = biases;
    s.bias_count = 3;
    CHECK(omm_sampler_penalises(&s));
    CHECK_OK(omm_sample_within(&id, &s, NULL, &nothing_said, logits, 7));
    CHECK_EQ(id, 0); /* 5 has 0.5 */
    CHECK(same(logits, s_before, 7));
}

static void biases_refused(void) {
    static const omm_bias turned[] = {{2, 1.0f}, {1, 1.0f}}, twice[] = {{2, 1.0f}, {2, 1.0f}};
    static const float bad[] = {100.5f, -101.0f, NAN, INFINITY};
    static omm_bias many[OMM_BIASES_MAX + 1];
    omm_sampler s = omm_sampler_default();
    s.bias_count = 2;
    s.biases = turned;
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    s.biases = twice;
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const omm_bias one = {7, bad[i]};
        s.biases = &one;
        s.bias_count = 1;
        CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), "of token 7: must be -100 to 100"));
    }
    for (uint32_t i = 0; i <= OMM_BIASES_MAX; i++) many[i].id = i;
    s.biases = many;
    s.bias_count = OMM_BIASES_MAX;
    CHECK_OK(omm_sampler_check(&s));
    s.bias_count++;
    CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
}

static void penalties_refused(void) {
    static const float bad[][3] = {{2.1f, 0, 1}, {-2.1f, 0, 1},     {NAN, 0, 1},
                                   {0, 3, 1},    {0, -INFINITY, 1}, {0, 0, 0},
                                   {0, 0, -1},   {0, 0, 101},       {0, 0, NAN}};
    static const char *const names[] = {"frequency-penalty 2.1: must be -2 to 2",
                                        "presence-penalty 3",
                                        "repeat-penalty 0: must be 0.01 to 100"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const omm_sampler s = penalising(bad[i][0], bad[i][1], bad[i][2], 64);
        CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
        if (i == 0) CHECK(strstr(omm_err_sentence(), names[0]));
        if (i == 3) CHECK(strstr(omm_err_sentence(), names[1]));
        if (i == 5) CHECK(strstr(omm_err_sentence(), names[2]));
    }
    const omm_sampler s = penalising(2.0f, 0, 1, 64), of_none = penalising(0, 0, 0, 0);
    const omm_history h = {s_said, 8, 3};
    omm_sampler drawn = s;
    omm_penalised was = {0};
    float logits[7];
    uint32_t id = 9;
    memcpy(logits, s_before, sizeof logits);
    CHECK_OK(omm_sampler_check(&s));
    CHECK_OK(omm_sampler_check(&of_none));
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_penalise(&was, logits, 7, &s, &h), OMM_ERR_NOMEM);
    drawn.temperature = 1.0f;
    for (size_t n = 1; n <= 2; n++) { /* the table, the candidates */
        omm_mem_fail_nth(n);
        CHECK_ERR(omm_sample_within(&id, &drawn, NULL, &h, logits, 7), OMM_ERR_NOMEM);
    }
    omm_mem_fail_nth(0);
    CHECK(same(logits, s_before, 7));
    CHECK_EQ(id, 9);
}

/* As if the others were not there: the same draw from a list of the allowed alone. */
static void allowed_alone(void) {
    enum { VOCAB = 200 };
    float logits[VOCAB], fewer[VOCAB];
    uint32_t ids[VOCAB], bits[(VOCAB + 31) / 32], all[(VOCAB + 31) / 32];
    const omm_seed seed = omm_seed_from_u64(11);
    const omm_rng dice = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    uint64_t thrown = 0;
    memset(all, 0xff, sizeof all);
    for (unsigned round = 0; round < 300; round++) {
        static const float temperatures[] = {0.0f, 0.7f, 1.0f, 5.0f};
        uint32_t count = 0, id = 0, want = 0;
        memset(bits, 0, sizeof bits);
        for (uint32_t i = 0; i < VOCAB; i++) {
            logits[i] = (float)omm_rng_below(&dice, thrown++, 30) * 0.5f; /* with ties */
            if (omm_rng_below(&dice, thrown++, 10) >= round % 9) continue;
            bits[i / 32] |= 1u << i % 32;
            ids[count] = i;
            fewer[count++] = logits[i];
        }
        omm_sampler s = {.temperature = temperatures[round % 4],
                         .top_k = round % 3 ? 0 : 1 + (uint32_t)omm_rng_below(&dice, thrown++, 12),
                         .top_p = round % 5 ? 1.0f : 0.6f,
                         .min_p = round % 7 ? 0.0f : 0.2f,
                         .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
        CHECK_OK(omm_sample(&want, &s, logits, VOCAB, round));
        CHECK_OK(omm_sample_allowed(&id, &s, all, logits, VOCAB, round));
        CHECK_EQ(id, want);
        const omm_err err = omm_sample_allowed(&id, &s, bits, logits, VOCAB, round);
        if (count == 0) {
            CHECK_ERR(err, OMM_ERR_UNSUPPORTED);
            CHECK(strstr(omm_err_sentence(), "no token of the vocabulary goes on"));
            continue;
        }
        CHECK_OK(err);
        CHECK_OK(omm_sample(&want, &s, fewer, count, round));
        CHECK_EQ(id, ids[want]);
    }
}

int main(void) {
    selection_is_sorting();
    allowed_alone();
    penalties_by_hand();
    penalties_by_counting();
    penalties_are_drawn();
    penalties_refused();
    biases_by_hand();
    biases_refused();
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
    for (size_t i = 0; i < 3; i++) {
        s = sampler(1.0f, 0, (float[]){0.0f, 1.5f, NAN}[i], 1);
        CHECK_ERR(omm_sampler_check(&s), OMM_ERR_CONFIG);
    }
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
