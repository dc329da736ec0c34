/* group.c - several sequences through the model at once, batch by batch. */
#include "session_internal.h"

#include "omm/mem.h"

#include <string.h>

#define POSITIONS_DEFAULT_MAX 4096u
#define BATCH_DEFAULT 256u
#define BATCH_MAX 65536u
#define ROLLBACK_DEFAULT 256u
#define ROLLBACK_MIN 64u /* what speculation needs */

omm_session_options omm_session_options_default(void) {
    return (omm_session_options){.batch_max = BATCH_DEFAULT, .rollback_max = ROLLBACK_DEFAULT};
}

/* ---- opening --------------------------------------------------------------------------------- */

omm_err session_options_check(omm_session_options *o, const omm_model *model) {
    const uint32_t context = model->dims.context;
    if (o->positions_max == 0)
        o->positions_max = context < POSITIONS_DEFAULT_MAX ? context : POSITIONS_DEFAULT_MAX;
    if (o->positions_max > context)
        return omm_raise(OMM_ERR_TOO_BIG, "%u positions: the model was trained for %u",
                         o->positions_max, context);
    if (o->batch_max == 0 || o->batch_max > BATCH_MAX)
        return omm_raise(OMM_ERR_CONFIG, "batch of %u tokens: must be 1 to %u", o->batch_max,
                         BATCH_MAX);
    if (o->kv_type == OMM_KV_Q8_0 && model->dims.head_dim < OMM_KV_Q8_0_DIM_MIN)
        return omm_raise(OMM_ERR_CONFIG,
                         "a cache in q8_0 is too coarse for heads of %u values (from %u on it is "
                         "not); accepted: f16, f32",
                         model->dims.head_dim, OMM_KV_Q8_0_DIM_MIN);
    if (o->rollback_max < ROLLBACK_MIN) o->rollback_max = ROLLBACK_MIN;
    return OMM_OK;
}

static omm_err open_parts(omm_group *g, const omm_compute *compute, const omm_model *model) {
    const omm_model_dims *d = &model->dims;
    OMM_TRY(session_options_check(&g->options, model));
    const uint32_t rope = g->options.rope_positions;
    const model_graph_options o = {.compute = compute,
                                   .model = model,
                                   .activations = g->options.activations,
                                   .rows_max = g->options.batch_max,
                                   .positions_max = g->options.positions_max,
                                   .rope_positions = rope ? rope : g->options.positions_max};
    OMM_TRY(model_graph_init(&g->graph, &o));
    const size_t block = omm_kv_block_bytes(g->options.kv_type, d->kv_heads, d->head_dim);
    const size_t limit = g->options.cache_bytes_max;
    OMM_TRY(omm_kv_pool_open(&g->pool, block, limit ? limit / block : SIZE_MAX));
    g->spans = (model_span *)omm_alloc(g->options.batch_max, sizeof *g->spans);
    g->ids = (uint32_t *)omm_alloc(g->options.batch_max, sizeof *g->ids);
    g->rows = (uint32_t *)omm_alloc(g->options.batch_max, sizeof *g->rows);
    if (!g->spans || !g->ids || !g->rows)
        return omm_raise(OMM_ERR_NOMEM, "no memory for batches of %u tokens", g->options.batch_max);
    return OMM_OK;
}

omm_err omm_group_open(omm_group **out, const omm_compute *compute, const omm_model *model,
                       const omm_session_options *options) {
    omm_group *g = (omm_group *)omm_alloc(1, sizeof *g);
    if (!g) return omm_raise(OMM_ERR_NOMEM, "no memory for a group of sessions");
    g->options = options ? *options : omm_session_options_default();
    omm_err err = open_parts(g, compute, model);
    if (err != OMM_OK) {
        omm_group_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}

void omm_group_close(omm_group *g) {
    if (!g) return;
    OMM_ASSERT(g->sessions == 0 && !g->store);
    omm_kv_pool_close(g->pool);
    model_graph_fini(&g->graph);
    omm_free(g->spans);
    omm_free(g->ids);
    omm_free(g->rows);
    omm_free(g);
}

size_t omm_group_cache_bytes(const omm_group *g) {
    return omm_kv_pool_blocks_made(g->pool) * omm_kv_pool_block_bytes(g->pool);
}

void omm_group_set_profile(omm_group *g, omm_profile *profile) {
    g->graph.profile = profile;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static omm_err reserve_layer(omm_session *s, uint32_t layer, size_t count) {
    for (;;) {
        omm_err err = omm_kv_reserve(&s->kv[layer], s->position, count);
        if (err == OMM_OK || !s->group->store || !prefix_store_shrink(s->group->store)) return err;
    }
}

omm_err session_reserve(omm_session *s, size_t count, bool windowed) {
    const omm_model *model = s->group->graph.model;
    for (uint32_t i = 0; i < model->dims.layers; i++)
        if ((model->layers[i].window > 0) == windowed) OMM_TRY(reserve_layer(s, i, count));
    return OMM_OK;
}

void session_forget(omm_session *s) {
    const omm_model *model = s->group->graph.model;
    for (uint32_t i = 0; i < model->dims.layers; i++) {
        const size_t kept = (size_t)model->layers[i].window + s->group->options.rollback_max;
        if (model->layers[i].window && s->position > kept)
            omm_kv_forget(&s->kv[i], s->position - kept + 1);
    }
}

bool session_window_there(const omm_session *s, void *const *blocks, uint32_t layer,
                          size_t position) {
    const size_t window = s->group->graph.model->layers[layer].window;
    if (window == 0 || position == 0) return true;
    const size_t first = position >= window ? position - window + 1 : 0;
    if (first == position) return true;
    for (size_t b = first / OMM_KV_BLOCK; b <= (position - 1) / OMM_KV_BLOCK; b++)
        if (!blocks[b]) return false;
    return true;
}

/* ---- batches --------------------------------------------------------------------------------- */

omm_err session_check(const omm_session *s, const uint32_t *ids, size_t count) {
    const uint32_t vocab = s->group->graph.model->dims.vocab;
    const uint32_t most = s->group->options.positions_max;
    OMM_ASSERT(count >= 1);
    if (count > most - s->position)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu tokens after %u: at most %u positions fit", count,
                         s->position, most);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return omm_raise(OMM_ERR_FORMAT, "token id %u: the vocabulary has %u", ids[i], vocab);
    return OMM_OK;
}

/* Where the walk through the parts' tokens stands, and what the batch at hand has. */
typedef struct walk {
    const omm_part *parts;
    size_t part_count;
    size_t part, at; /* next token */
    size_t spans, rows, wanted;
} walk;

/* The next span of the batch: as many tokens of the current part as fit. */
static omm_err add_span(omm_group *g, walk *w) {
    const omm_part *p = &w->parts[w->part];
    omm_session *s = p->session;
    size_t n = p->count - w->at, room = g->options.batch_max - w->rows;
    if (n > room) n = room;
    OMM_TRY(session_reserve(s, n, true));
    g->spans[w->spans++] = (model_span){.kv = s->kv,
                                        .adapters = s->adapters,
                                        .adapter_count = s->adapter_count,
                                        .position = s->position,
                                        .rows = n};
    for (size_t i = 0; i < n; i++) {
        bool last = w->at + i + 1 == p->count;
        g->ids[w->rows + i] = p->ids[w->at + i];
        if (p->logits == OMM_LOGITS_EVERY || (p->logits == OMM_LOGITS_LAST && last))
            g->rows[w->wanted++] = (uint32_t)(w->rows + i);
    }
    memcpy(s->ids + s->position, p->ids + w->at, n * sizeof *s->ids);
    s->position += (uint32_t)n;
    w->rows += n;
    w->at += n;
    if (w->at < p->count) return OMM_OK;
    w->at = 0;
    w->part++;
    return OMM_OK;
}

static omm_err next_batch(omm_group *g, walk *w) {
    w->spans = w->rows = w->wanted = 0;
    while (w->part < w->part_count && w->rows < g->options.batch_max) OMM_TRY(add_span(g, w));
    return OMM_OK;
}

static omm_err check_parts(const omm_group *g, const omm_part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        OMM_ASSERT(parts[i].session->group == g);
        for (size_t j = 0; j < i; j++) OMM_ASSERT(parts[j].session != parts[i].session);
        OMM_TRY(session_check(parts[i].session, parts[i].ids, parts[i].count));
    }
    return OMM_OK;
}

static omm_err reserve_parts(const omm_part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) parts[i].session->mark = parts[i].session->position;
    for (size_t i = 0; i < count; i++)
        OMM_TRY(session_reserve(parts[i].session, parts[i].count, false));
    return OMM_OK;
}

static omm_err run_batches(omm_group *g, walk *w, float *logits, bool *finite) {
    const size_t vocab = g->graph.model->dims.vocab;
    for (size_t done = 0;; done = w->part) {
        OMM_TRY(next_batch(g, w));
        if (w->rows == 0) return OMM_OK;
        OMM_TRY(model_graph_forward(&g->graph, g->ids, g->spans, w->spans));
        for (size_t i = done; i <= w->part && i < w->part_count; i++)
            session_forget(w->parts[i].session);
        if (w->wanted == 0) continue;
        model_graph_head(&g->graph, logits, g->rows, w->wanted);
        *finite = *finite && omm_all_finite(g->graph.c, logits, w->wanted * vocab);
        logits += w->wanted * vocab;
    }
}

omm_err omm_group_append(omm_group *g, const omm_part *parts, size_t count, float *logits) {
    walk w = {.parts = parts, .part_count = count};
    bool finite = true;
    OMM_TRY(check_parts(g, parts, count));
    omm_err err = reserve_parts(parts, count);
    if (err == OMM_OK) err = run_batches(g, &w, logits, &finite);
    for (size_t i = 0; i < count && err != OMM_OK; i++)
        omm_session_truncate(parts[i].session, parts[i].session->mark);
    OMM_TRY(err);
    if (finite) return OMM_OK;
    return omm_raise(
        OMM_ERR_NUMERIC, "a logit at or before position %u is not a finite number%s",
        parts[0].session->position - 1,
        g->options.kv_type == OMM_KV_F16
            ? " (if keys or values pass 65504, a cache in f16 cannot hold them; one in "
              "f32 can)"
            : "");
}
