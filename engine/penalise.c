/* penalise.c - biases, and penalties on tokens that were said before: see sample.h.  A table of those tokens, as large as what
 * was said and is biased and not as the vocabulary; each is changed once, by what is known of it alone, so their order is of
 * no matter. */
#include "omm/mem.h"
#include "omm/sample.h"

#include <float.h>

struct omm_said {
    uint32_t id, count; /* generated so often */
    float was;          /* its logit */
    float bias;
    bool used;
    bool recent; /* repeat_penalty sees it */
};

static bool repeats(const omm_sampler *s) {
    return s->repeat_penalty != 1.0f && s->repeat_last > 0;
}

static bool discounts(const omm_sampler *s) {
    return s->frequency_penalty != 0.0f || s->presence_penalty != 0.0f;
}

bool omm_sampler_penalises(const omm_sampler *s) {
    return repeats(s) || discounts(s) || s->bias_count > 0;
}

static float bounded(float x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

static float penalised(const omm_sampler *s, const struct omm_said *e) {
    float x = e->bias != 0.0f ? bounded(e->was + e->bias) : e->was;
    if (e->recent) x = bounded(x > 0.0f ? x / s->repeat_penalty : x * s->repeat_penalty);
    if (e->count == 0) return x;
    x = bounded(x - s->frequency_penalty * (float)e->count);
    return bounded(x - s->presence_penalty);
}

/* Its entry, or the free one where it would be. */
static struct omm_said *entry_of(const omm_penalised *p, uint32_t id) {
    const uint32_t mixed = id * 2654435761u; /* 2^32 over the golden ratio */
    size_t at = (mixed ^ mixed >> 15) & p->mask;
    while (p->said[at].used && p->said[at].id != id) at = (at + 1) & p->mask;
    return &p->said[at];
}

static struct omm_said *take(const omm_penalised *p, uint32_t id) {
    struct omm_said *e = entry_of(p, id);
    e->used = true;
    e->id = id;
    return e;
}

/* At least half of it stays free. */
static omm_err open_table(omm_penalised *p, size_t most) {
    size_t size = 16;
    while (size < 2 * most) size *= 2;
    *p = (omm_penalised){.said = (struct omm_said *)omm_alloc(size, sizeof *p->said),
                         .mask = size - 1};
    return p->said ? OMM_OK
                   : omm_raise(OMM_ERR_NOMEM, "no memory for the penalties of %zu tokens", most);
}

omm_err omm_penalise(omm_penalised *p, float *logits, uint32_t vocab, const omm_sampler *s,
                     const omm_history *h) {
    const size_t recent = !repeats(s)                 ? h->count
                          : h->count > s->repeat_last ? h->count - s->repeat_last
                                                      : 0;
    const size_t generated = discounts(s) ? h->prompt_count : h->count;
    const size_t from = recent < generated ? recent : generated;
    OMM_ASSERT(h->prompt_count <= h->count);
    OMM_TRY(open_table(p, h->count - from + s->bias_count));
    for (size_t i = from; i < h->count; i++) {
        OMM_ASSERT(h->ids[i] < vocab);
        struct omm_said *e = take(p, h->ids[i]);
        e->recent = i >= recent; /* its latest place says it */
        e->count += i >= generated;
    }
    for (uint32_t i = 0; i < s->bias_count; i++) {
        OMM_ASSERT(s->biases[i].id < vocab);
        take(p, s->biases[i].id)->bias = s->biases[i].bias;
    }
    for (size_t i = 0; i <= p->mask; i++) {
        struct omm_said *e = &p->said[i];
        if (!e->used) continue;
        e->was = logits[e->id];
        logits[e->id] = penalised(s, e);
    }
    return OMM_OK;
}

void omm_penalise_undo(omm_penalised *was, float *logits) {
    for (size_t i = 0; was->said && i <= was->mask; i++)
        if (was->said[i].used) logits[was->said[i].id] = was->said[i].was;
    omm_free(was->said);
    *was = (omm_penalised){0};
}
