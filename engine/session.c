/* session.c - one sequence through the model, a batch of tokens at a time. */
#include "omm/session.h"

#include "graph.h"
#include "omm/mem.h"

#include <string.h>

#define POSITIONS_DEFAULT_MAX 4096u
#define BATCH_DEFAULT 256u
#define BATCH_MAX 65536u

struct omm_session {
    omm_session_options options;
    uint32_t position;
    model_graph graph;
    omm_kv *kv;            /* [layers] */
    model_adapter adapter; /* pairs NULL: none */
};

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

omm_session_options omm_session_options_default(void) {
    return (omm_session_options){.batch_max = BATCH_DEFAULT};
}

/* ---- opening --------------------------------------------------------------------------------- */

static omm_err options_check(omm_session_options *o, const omm_model *model) {
    const uint32_t context = model->dims.context;
    if (o->positions_max == 0)
        o->positions_max = context < POSITIONS_DEFAULT_MAX ? context : POSITIONS_DEFAULT_MAX;
    if (o->positions_max > context)
        return omm_raise(OMM_ERR_TOO_BIG, "%u positions: the model was trained for %u",
                         o->positions_max, context);
    if (o->batch_max == 0 || o->batch_max > BATCH_MAX)
        return omm_raise(OMM_ERR_CONFIG, "batch of %u tokens: must be 1 to %u", o->batch_max,
                         BATCH_MAX);
    if (o->batch_max > o->positions_max) o->batch_max = o->positions_max;
    return OMM_OK;
}

static omm_err open_cache(omm_session *s, const omm_model_dims *d) {
    s->kv = (omm_kv *)omm_alloc(d->layers, sizeof *s->kv);
    if (!s->kv) return omm_raise(OMM_ERR_NOMEM, "no memory for the cache table");
    for (uint32_t i = 0; i < d->layers; i++)
        OMM_TRY(omm_kv_init(&s->kv[i], s->options.kv_type, d->kv_heads, d->head_dim,
                            s->options.positions_max));
    return OMM_OK;
}

static omm_err open_parts(omm_session *s, const omm_compute *compute, const omm_model *model,
                          const omm_lora *lora) {
    OMM_TRY(options_check(&s->options, model));
    model_graph_options o = {.compute = compute,
                             .model = model,
                             .activations = s->options.activations,
                             .rows_max = s->options.batch_max,
                             .positions_max = s->options.positions_max,
                             .rank_max = lora ? lora->spec.rank : 0};
    OMM_TRY(model_graph_init(&s->graph, &o));
    OMM_TRY(open_cache(s, &model->dims));
    return lora ? model_adapter_init(&s->adapter, model, lora) : OMM_OK;
}

omm_err omm_session_open(omm_session **out, const omm_compute *compute, const omm_model *model,
                         const omm_lora *lora, const omm_session_options *options) {
    omm_session *s = (omm_session *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for a session");
    s->options = options ? *options : omm_session_options_default();
    omm_err err = open_parts(s, compute, model, lora);
    if (err != OMM_OK) {
        omm_session_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

void omm_session_close(omm_session *s) {
    if (!s) return;
    for (uint32_t i = 0; s->kv && i < s->graph.model->dims.layers; i++) omm_kv_fini(&s->kv[i]);
    omm_free(s->kv);
    model_adapter_fini(&s->adapter);
    model_graph_fini(&s->graph);
    omm_free(s);
}

uint32_t omm_session_position(const omm_session *session) {
    return session->position;
}

uint32_t omm_session_positions_max(const omm_session *session) {
    return session->options.positions_max;
}

void omm_session_truncate(omm_session *session, uint32_t position) {
    OMM_ASSERT(position <= session->position);
    session->position = position;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void batch(omm_session *s, const uint32_t *ids, size_t m) {
    const model_adapter *adapter = &s->adapter;
    model_span span = {.kv = s->kv,
                       .adapters = &adapter,
                       .adapter_count = adapter->pairs ? 1 : 0,
                       .position = s->position,
                       .rows = m};
    model_graph_forward(&s->graph, ids, &span, 1);
    s->position += (uint32_t)m;
}

static omm_err ids_check(const omm_session *s, const uint32_t *ids, size_t count) {
    const uint32_t vocab = s->graph.model->dims.vocab,
                   left = s->options.positions_max - s->position;
    OMM_ASSERT(count >= 1);
    if (count > left)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu tokens after %u: at most %u positions fit", count,
                         s->position, s->options.positions_max);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return omm_raise(OMM_ERR_FORMAT, "token id %u: the vocabulary has %u", ids[i], vocab);
    return OMM_OK;
}

omm_err omm_session_append(omm_session *s, const uint32_t *ids, size_t count, float *logits,
                           bool every) {
    const size_t vocab = s->graph.model->dims.vocab;
    OMM_TRY(ids_check(s, ids, count));
    bool finite = true;
    for (size_t i = 0; i < count; i += s->options.batch_max) {
        size_t m = count - i < s->options.batch_max ? count - i : s->options.batch_max;
        batch(s, ids + i, m);
        if (!logits || (!every && i + m < count)) continue;
        const uint32_t last = (uint32_t)m - 1;
        const size_t rows = every ? m : 1;
        float *out = every ? logits + i * vocab : logits;
        model_graph_head(&s->graph, out, every ? NULL : &last, rows);
        finite = finite && omm_all_finite(s->graph.c, out, rows * vocab);
    }
    if (!finite)
        return omm_raise(OMM_ERR_NUMERIC, "a logit at or before position %u is not a finite number",
                         s->position - 1);
    return OMM_OK;
}

/* ---- likelihood ------------------------------------------------------------------------------ */

static omm_err nll_batches(double *sum, float *per_token, omm_session *s, const uint32_t *ids,
                           size_t count, float *logits) {
    const size_t vocab = s->graph.model->dims.vocab;
    double total = 0.0;
    for (size_t i = 0; i + 1 < count; i += s->options.batch_max) {
        size_t left = count - 1 - i, m = left < s->options.batch_max ? left : s->options.batch_max;
        OMM_TRY(omm_session_append(s, ids + i, m, logits, true));
        for (size_t j = 0; j < m; j++) {
            float lse = 0.0f;
            omm_row_lse(s->graph.c, NULL, &lse, logits + j * vocab, 1, vocab);
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
    OMM_TRY(ids_check(s, ids, count));
    const size_t rows = s->options.batch_max, vocab = s->graph.model->dims.vocab;
    float *logits = (float *)omm_alloc_aligned(rows * vocab, sizeof *logits);
    if (!logits) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu logits", rows * vocab);
    omm_err err = nll_batches(sum, per_token, s, ids, count, logits);
    omm_free(logits);
    return err;
}
