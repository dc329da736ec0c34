/* session.c - one sequence: its cache, its adapters, its tokens so far. */
#include "session_internal.h"

#include "omm/mem.h"

#include <string.h>

static const char *const s_activations[] = {"f32", "q8"};

const char *omm_activations_name(omm_activations a) {
    return s_activations[a];
}

omm_err omm_activations_parse(omm_activations *out, const char *name) {
    for (int i = 0; i < 2; i++) {
        if (strcmp(name, s_activations[i]) != 0) continue;
        *out = (omm_activations)i;
        return OMM_OK;
    }
    return omm_raise(OMM_ERR_CONFIG, "activations '%s': choose f32 or q8", name);
}

/* ---- opening --------------------------------------------------------------------------------- */

static omm_err open_cache(omm_session *s) {
    const omm_group *g = s->group;
    const omm_model_dims *d = &g->graph.model->dims;
    s->ids = (uint32_t *)omm_alloc(g->options.positions_max, sizeof *s->ids);
    s->kv = (omm_kv *)omm_alloc(d->layers, sizeof *s->kv);
    if (!s->kv || !s->ids) return omm_raise(OMM_ERR_NOMEM, "no memory for the cache table");
    for (uint32_t i = 0; i < d->layers; i++)
        OMM_TRY(omm_kv_init_pooled(&s->kv[i], g->options.kv_type, d->kv_heads, d->head_dim,
                                   g->options.positions_max, g->pool));
    return OMM_OK;
}

omm_err omm_session_open_in(omm_session **out, omm_group *group) {
    omm_session *s = (omm_session *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for a session");
    s->group = group;
    group->sessions++;
    omm_err err = open_cache(s);
    if (err != OMM_OK) {
        omm_session_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

static omm_err add_lora(omm_session *s, const omm_lora *lora) {
    OMM_TRY(omm_adapter_open(&s->own, s->group->graph.model, lora, 1.0f));
    const omm_adapter *list[] = {s->own};
    return omm_session_set_adapters(s, list, 1);
}

omm_err omm_session_open(omm_session **out, const omm_compute *compute, const omm_model *model,
                         const omm_lora *lora, const omm_session_options *options) {
    omm_group *group = NULL;
    omm_session *s = NULL;
    OMM_TRY(omm_group_open(&group, compute, model, options));
    omm_err err = omm_session_open_in(&s, group);
    if (err != OMM_OK) {
        omm_group_close(group);
        return err;
    }
    s->owns_group = true;
    if (lora) err = add_lora(s, lora);
    if (err != OMM_OK) {
        omm_session_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

void omm_session_close(omm_session *s) {
    if (!s) return;
    omm_group *group = s->group;
    for (uint32_t i = 0; s->kv && i < group->graph.model->dims.layers; i++) omm_kv_fini(&s->kv[i]);
    group->sessions--;
    if (s->owns_group) omm_group_close(group);
    omm_adapter_close(s->own);
    omm_free(s->kv);
    omm_free(s->ids);
    omm_free(s);
}

omm_group *omm_session_group(const omm_session *session) {
    return session->group;
}

/* ---- adapters -------------------------------------------------------------------------------- */

omm_err omm_session_set_adapters(omm_session *s, const omm_adapter *const *adapters, size_t count) {
    if (count > OMM_ADAPTERS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu adapters at once: at most %u", count,
                         OMM_ADAPTERS_MAX);
    OMM_TRY(model_graph_reserve(&s->group->graph, adapters, count));
    bool same = count == s->adapter_count;
    for (size_t i = 0; same && i < count; i++) same = s->adapters[i] == adapters[i];
    if (!same) omm_session_truncate(s, 0);
    for (size_t i = 0; i < count; i++) s->adapters[i] = adapters[i];
    s->adapter_count = count;
    return OMM_OK;
}

omm_digest session_adapters_digest(const omm_session *s) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (size_t i = 0; i < s->adapter_count; i++) {
        omm_digest d = omm_adapter_digest(s->adapters[i]);
        omm_hasher_update(&h, omm_bytes_of(d.b, sizeof d.b));
    }
    return omm_hasher_final(&h);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

uint32_t omm_session_position(const omm_session *session) {
    return session->position;
}

uint32_t omm_session_positions_max(const omm_session *session) {
    return session->group->options.positions_max;
}

const uint32_t *omm_session_ids(const omm_session *session) {
    return session->ids;
}

uint32_t omm_session_truncate(omm_session *s, uint32_t position) {
    OMM_ASSERT(position <= s->position);
    const uint32_t layers = s->group->graph.model->dims.layers;
    for (uint32_t i = 0; i < layers; i++)
        if (!session_window_there(s, s->kv[i].blocks, i, position)) position = 0;
    s->position = position;
    for (uint32_t i = 0; i < layers; i++) omm_kv_cut(&s->kv[i], position);
    return position;
}

omm_err omm_session_append(omm_session *s, const uint32_t *ids, size_t count, float *logits,
                           bool every) {
    const omm_part part = {.session = s,
                           .ids = ids,
                           .count = count,
                           .logits = !logits ? OMM_LOGITS_NONE
                                     : every ? OMM_LOGITS_EVERY
                                             : OMM_LOGITS_LAST};
    return omm_group_append(s->group, &part, 1, logits);
}

uint32_t omm_session_reused(const omm_session *session) {
    return session->reused;
}

/* In the batches that one append would make. */
static omm_err append_unless(omm_session *s, const uint32_t *ids, size_t count, float *logits,
                             const omm_session_stop *stop) {
    if (!stop) return omm_session_append(s, ids, count, logits, false);
    OMM_TRY(session_check(s, ids, count));
    const size_t most = s->group->options.batch_max;
    for (size_t at = 0; at < count; at += most) {
        const size_t n = count - at < most ? count - at : most;
        if (stop->ask(stop->ud))
            return omm_raise(OMM_ERR_CANCELLED, "stopped before token %zu of %zu", at, count);
        OMM_TRY(omm_session_append(s, ids + at, n, at + n == count ? logits : NULL, false));
    }
    return OMM_OK;
}

omm_err omm_session_become(omm_session *s, const uint32_t *ids, size_t count, float *logits) {
    return omm_session_become_unless(s, ids, count, logits, NULL);
}

omm_err omm_session_become_unless(omm_session *s, const uint32_t *ids, size_t count, float *logits,
                                  const omm_session_stop *stop) {
    OMM_ASSERT(count >= 1);
    size_t same = 0;
    while (same < s->position && same + 1 < count && s->ids[same] == ids[same]) same++;
    same = omm_session_truncate(s, (uint32_t)same);
    if (s->group->store) {
        OMM_TRY(omm_prefix_fetch(s->group->store, s, ids, count - 1));
        same = s->position;
    }
    s->reused = (uint32_t)same;
    OMM_TRY(append_unless(s, ids + same, count - same, logits, stop));
    return s->group->store ? omm_prefix_keep(s->group->store, s) : OMM_OK;
}

/* ---- likelihood ------------------------------------------------------------------------------ */

static omm_err nll_batches(double *sum, float *per_token, omm_session *s, const uint32_t *ids,
                           size_t count, float *logits) {
    const omm_compute *c = s->group->graph.c;
    const size_t vocab = s->group->graph.model->dims.vocab, most = s->group->options.batch_max;
    double total = 0.0;
    for (size_t i = 0; i + 1 < count; i += most) {
        size_t left = count - 1 - i, m = left < most ? left : most;
        OMM_TRY(omm_session_append(s, ids + i, m, logits, true));
        for (size_t j = 0; j < m; j++) {
            float lse = 0.0f;
            omm_row_lse(c, NULL, &lse, logits + j * vocab, 1, vocab);
            float nll = lse - logits[j * vocab + ids[i + j + 1]];
            if (per_token) per_token[i + j] = nll;
            total += (double)nll;
        }
    }
    *sum = total;
    return OMM_OK;
}

omm_err omm_session_nll(double *sum, float *per_token, omm_session *s, const uint32_t *ids,
                        size_t count) {
    if (s->position != 0)
        return omm_raise(OMM_ERR_STATE, "the session has %u tokens already", s->position);
    OMM_ASSERT(count >= 1);
    OMM_TRY(session_check(s, ids, count));
    const size_t vocab = s->group->graph.model->dims.vocab;
    size_t rows = s->group->options.batch_max;
    if (rows > count) rows = count;
    /* From the system and back to it: a heap that takes and frees such blocks of many sizes keeps several. */
    const size_t bytes = rows * vocab * sizeof(float);
    float *logits = (float *)omm_alloc_huge(bytes);
    if (!logits) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu logits", rows * vocab);
    omm_err err = nll_batches(sum, per_token, s, ids, count, logits);
    omm_free_huge(logits, bytes);
    return err;
}
