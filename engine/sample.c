/* sample.c - choosing the next token; all arithmetic in double and in one fixed order. */
#include "omm/sample.h"
#include "omm/mathd.h"
#include "omm/mem.h"

#include <math.h>

omm_sampler omm_sampler_default(void) {
    return (omm_sampler){
        .top_p = 1.0f, .repeat_penalty = 1.0f, .repeat_last = OMM_REPEAT_LAST_DEFAULT};
}

static omm_err check_penalty(const char *name, float value) {
    if (value >= -OMM_PENALTY_MAX && value <= OMM_PENALTY_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "%s %g: must be %g to %g", name, (double)value,
                     (double)-OMM_PENALTY_MAX, (double)OMM_PENALTY_MAX);
}

static omm_err check_biases(const omm_sampler *s) {
    if (s->bias_count > OMM_BIASES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u biases: at most %u", s->bias_count, OMM_BIASES_MAX);
    for (uint32_t i = 0; i < s->bias_count; i++) {
        const omm_bias *b = &s->biases[i];
        if (i > 0 && b->id <= s->biases[i - 1].id)
            return omm_raise(OMM_ERR_CONFIG, "bias of token %u: not in ascending order", b->id);
        if (!(b->bias >= -OMM_BIAS_MAX && b->bias <= OMM_BIAS_MAX))
            return omm_raise(OMM_ERR_CONFIG, "bias %g of token %u: must be %g to %g",
                             (double)b->bias, b->id, (double)-OMM_BIAS_MAX, (double)OMM_BIAS_MAX);
    }
    return OMM_OK;
}

omm_err omm_sampler_check(const omm_sampler *sampler) {
    if (!(sampler->temperature >= 0.0f && sampler->temperature <= 100.0f))
        return omm_raise(OMM_ERR_CONFIG, "temperature %g: must be 0 to 100",
                         (double)sampler->temperature);
    if (!(sampler->top_p > 0.0f && sampler->top_p <= 1.0f))
        return omm_raise(OMM_ERR_CONFIG, "top-p %g: must be above 0 and at most 1",
                         (double)sampler->top_p);
    if (!(sampler->min_p >= 0.0f && sampler->min_p <= 1.0f))
        return omm_raise(OMM_ERR_CONFIG, "min-p %g: must be 0 to 1", (double)sampler->min_p);
    OMM_TRY(check_penalty("frequency-penalty", sampler->frequency_penalty));
    OMM_TRY(check_penalty("presence-penalty", sampler->presence_penalty));
    if (sampler->repeat_last > 0 && !(sampler->repeat_penalty >= OMM_REPEAT_PENALTY_MIN &&
                                      sampler->repeat_penalty <= OMM_REPEAT_PENALTY_MAX))
        return omm_raise(OMM_ERR_CONFIG, "repeat-penalty %g: must be %g to %g",
                         (double)sampler->repeat_penalty, (double)OMM_REPEAT_PENALTY_MIN,
                         (double)OMM_REPEAT_PENALTY_MAX);
    return check_biases(sampler);
}

uint32_t omm_argmax(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static bool is_allowed(const uint32_t *allowed, uint32_t id) {
    return !allowed || (allowed[id / 32] >> (id % 32) & 1);
}

/* The same among those that are allowed; vocab: none is. */
static uint32_t argmax_allowed(const float *logits, uint32_t vocab, const uint32_t *allowed) {
    uint32_t best = vocab;
    if (!allowed) return omm_argmax(logits, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        if (is_allowed(allowed, i) && (best == vocab || logits[i] > logits[best])) best = i;
    return best;
}

/* Candidates are ordered by key, then id: the key falls as the logit rises. */
typedef struct candidate {
    uint32_t key, id;
} candidate;

typedef struct candidates {
    candidate *list, *spare; /* [vocab] */
    double *p;               /* [vocab] */
    uint32_t count;
} candidates;

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static uint32_t key_of(float logit) {
    const float x = logit + 0.0f; /* -0 and +0 tie */
    const uint32_t bits = omm_f32_to_bits(x);
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

/* Probabilities under 2^-54 of the largest change no sum that it is in, so they are left out: the
 * result is that of all candidates. */
static void gather(candidates *c, const omm_sampler *sampler, const float *logits, uint32_t vocab,
                   uint32_t best, const uint32_t *allowed) {
    const double top = (double)logits[best];
    const double low = top - 38.0 * (double)sampler->temperature; /* exp(-38) < 2^-54 */
    for (uint32_t i = 0; i < vocab; i++)
        if ((double)logits[i] >= low && is_allowed(allowed, i))
            c->list[c->count++] = (candidate){key_of(logits[i]), i};
}

/* Keep those that can be among the first k: all whose leading digit is not beyond the k-th's. */
static void narrow(candidates *c, uint32_t k) {
    uint32_t counts[DIGITS] = {0}, digit = 0, kept = 0;
    for (uint32_t i = 0; i < c->count; i++) counts[c->list[i].key >> (32 - DIGIT_BITS)]++;
    for (uint32_t sum = counts[0]; sum < k; sum += counts[++digit]) {
    }
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].key >> (32 - DIGIT_BITS) <= digit) c->list[kept++] = c->list[i];
    c->count = kept;
}

/* By key; equal keys keep their order, which is that of the ids. */
static void sort(candidates *c) {
    for (unsigned shift = 0; shift < 32; shift += DIGIT_BITS) {
        uint32_t at[DIGITS] = {0}, sum = 0;
        for (uint32_t i = 0; i < c->count; i++) at[c->list[i].key >> shift & (DIGITS - 1)]++;
        for (uint32_t d = 0; d < DIGITS; d++) {
            const uint32_t n = at[d];
            at[d] = sum;
            sum += n;
        }
        for (uint32_t i = 0; i < c->count; i++)
            c->spare[at[c->list[i].key >> shift & (DIGITS - 1)]++] = c->list[i];
        candidate *swap = c->list;
        c->list = c->spare;
        c->spare = swap;
    }
}

static uint32_t draw(const candidates *c, const omm_sampler *sampler, const float *logits,
                     float u) {
    double total = 0.0, kept = 0.0, reached = 0.0;
    const double t = (double)sampler->temperature, top = (double)logits[c->list[0].id];
    for (uint32_t i = 0; i < c->count; i++) {
        c->p[i] = omm_exp_d(((double)logits[c->list[i].id] - top) / t);
        total += c->p[i];
    }
    uint32_t n = 0;
    while (n < c->count && (n == 0 || (kept < (double)sampler->top_p * total &&
                                       c->p[n] >= (double)sampler->min_p * c->p[0])))
        kept += c->p[n++];
    for (uint32_t i = 0; i + 1 < n; i++) {
        reached += c->p[i];
        if ((double)u * kept < reached) return c->list[i].id;
    }
    return c->list[n - 1].id;
}

omm_err omm_sample_allowed(uint32_t *out, const omm_sampler *sampler, const uint32_t *allowed,
                           const float *logits, uint32_t vocab, uint64_t position) {
    OMM_ASSERT(vocab > 0);
    const uint32_t best = argmax_allowed(logits, vocab, allowed), k = sampler->top_k;
    if (best == vocab)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "no token of the vocabulary goes on with the text as it has to");
    if (sampler->temperature == 0.0f || k == 1) {
        *out = best;
        return OMM_OK;
    }
    uint8_t *room = (uint8_t *)omm_alloc(vocab, 2 * sizeof(candidate) + sizeof(double));
    if (!room) return omm_raise(OMM_ERR_NOMEM, "no memory for %u candidates", vocab);
    candidates c = {.p = (double *)(void *)room};
    c.list = (candidate *)(void *)(room + vocab * sizeof(double));
    c.spare = c.list + vocab;
    gather(&c, sampler, logits, vocab, best, allowed);
    if (k && k < c.count) narrow(&c, k);
    sort(&c);
    if (k && k < c.count) c.count = k;
    *out = draw(&c, sampler, logits, omm_rng_unit(&sampler->rng, position));
    omm_free(room);
    return OMM_OK;
}

omm_err omm_sample(uint32_t *out, const omm_sampler *sampler, const float *logits, uint32_t vocab,
                   uint64_t position) {
    OMM_ASSERT(!omm_sampler_penalises(sampler));
    return omm_sample_allowed(out, sampler, NULL, logits, vocab, position);
}

omm_err omm_sample_within(uint32_t *out, const omm_sampler *sampler, omm_constraint *c,
                          const omm_history *history, float *logits, uint32_t vocab) {
    OMM_ASSERT(!c || vocab == omm_constraint_vocab(c));
    const uint32_t *allowed = c ? omm_constraint_allowed(c) : NULL;
    omm_penalised was = {0};
    if (omm_sampler_penalises(sampler))
        OMM_TRY(omm_penalise(&was, logits, vocab, sampler, history));
    const omm_err err = omm_sample_allowed(out, sampler, allowed, logits, vocab, history->count);
    omm_penalise_undo(&was, logits);
    if (err == OMM_OK && c) omm_constraint_take(c, *out);
    return err;
}
