/* session.c - one sequence through the model, a batch of tokens at a time. */
#include "omm/session.h"

#include "omm/mem.h"

#include <string.h>

#define POSITIONS_DEFAULT_MAX 4096u
#define BATCH_DEFAULT 256u
#define BATCH_MAX 65536u

/* An adapter's pair for one matrix, packed so that it runs through the same kernels as weights. */
typedef struct session_pair {
    omm_matrix a, b; /* data NULL: none */
} session_pair;

struct omm_session {
    const omm_compute *c;
    const omm_model *model;
    omm_session_options options;
    uint32_t position;
    omm_rope rope;
    omm_kv *kv;          /* [layers] */
    session_pair *pairs; /* [layers][OMM_LORA_TARGET_COUNT], or NULL */
    float pair_scale;
    float *x, *h, *q, *k, *v, *a, *gate, *up; /* [batch][their width] */
    float *z;                                 /* [batch][rank] */
    omm_q8_rows q8;
    bool q8_ready; /* q8 holds the rows that the next product takes */
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

static omm_err buffer(float **out, size_t batch, size_t width) {
    *out = (float *)omm_alloc_aligned(batch * width, sizeof **out);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for %zu activations", batch * width);
}

static omm_err open_buffers(omm_session *s) {
    const omm_model_dims *d = &s->model->dims;
    const size_t batch = s->options.batch_max, q = (size_t)d->heads * d->head_dim;
    const size_t kv = (size_t)d->kv_heads * d->head_dim;
    OMM_TRY(buffer(&s->x, batch, d->d_model));
    OMM_TRY(buffer(&s->h, batch, d->d_model));
    OMM_TRY(buffer(&s->q, batch, q));
    OMM_TRY(buffer(&s->k, batch, kv));
    OMM_TRY(buffer(&s->v, batch, kv));
    OMM_TRY(buffer(&s->a, batch, q));
    OMM_TRY(buffer(&s->gate, batch, d->d_ff));
    OMM_TRY(buffer(&s->up, batch, d->d_ff));
    if (s->options.activations != OMM_ACTIVATIONS_Q8) return OMM_OK;
    size_t widest = d->d_ff > d->d_model ? d->d_ff : d->d_model;
    return omm_q8_rows_init(&s->q8, batch, widest > q ? widest : q);
}

static omm_err open_cache(omm_session *s) {
    const omm_model_dims *d = &s->model->dims;
    OMM_TRY(omm_model_rope(&s->rope, s->model, s->options.positions_max));
    s->kv = (omm_kv *)omm_alloc(d->layers, sizeof *s->kv);
    if (!s->kv) return omm_raise(OMM_ERR_NOMEM, "no memory for the cache table");
    for (uint32_t i = 0; i < d->layers; i++)
        OMM_TRY(omm_kv_init(&s->kv[i], s->options.kv_type, d->kv_heads, d->head_dim,
                            s->options.positions_max));
    return OMM_OK;
}

static bool same_shape(const omm_lora_shape *a, const omm_lora_shape *b) {
    return a->layer_count == b->layer_count && memcmp(a->d_in, b->d_in, sizeof a->d_in) == 0 &&
           memcmp(a->d_out, b->d_out, sizeof a->d_out) == 0;
}

static omm_err open_lora(omm_session *s, const omm_lora *lora) {
    const uint32_t layers = s->model->dims.layers;
    if (!same_shape(&lora->shape, &s->model->lora_shape))
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "the adapter was made for a model of other shape");
    s->pair_scale = omm_lora_scale(lora);
    s->pairs = (session_pair *)omm_alloc((size_t)layers * OMM_LORA_TARGET_COUNT, sizeof *s->pairs);
    if (!s->pairs) return omm_raise(OMM_ERR_NOMEM, "no memory for the adapter table");
    OMM_TRY(buffer(&s->z, s->options.batch_max, lora->spec.rank));
    for (uint32_t i = 0; i < layers; i++) {
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const float *a = NULL, *b = NULL;
            session_pair *pair = &s->pairs[(size_t)i * OMM_LORA_TARGET_COUNT + t];
            omm_lora_find(&a, &b, lora, i, (omm_lora_target)t);
            if (!a) continue;
            OMM_TRY(omm_matrix_pack_f32(&pair->a, lora->spec.rank, lora->shape.d_in[t], a));
            OMM_TRY(omm_matrix_pack_f32(&pair->b, lora->shape.d_out[t], lora->spec.rank, b));
        }
    }
    return OMM_OK;
}

static omm_err open_parts(omm_session *s, const omm_lora *lora) {
    OMM_TRY(options_check(&s->options, s->model));
    OMM_TRY(open_buffers(s));
    OMM_TRY(open_cache(s));
    return lora ? open_lora(s, lora) : OMM_OK;
}

omm_err omm_session_open(omm_session **out, const omm_compute *compute, const omm_model *model,
                         const omm_lora *lora, const omm_session_options *options) {
    omm_session *s = (omm_session *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for a session");
    s->c = compute;
    s->model = model;
    s->options = options ? *options : omm_session_options_default();
    omm_err err = open_parts(s, lora);
    if (err != OMM_OK) {
        omm_session_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

void omm_session_close(omm_session *s) {
    if (!s) return;
    const uint32_t layers = s->model->dims.layers;
    for (uint32_t i = 0; s->kv && i < layers; i++) omm_kv_fini(&s->kv[i]);
    for (size_t i = 0; s->pairs && i < (size_t)layers * OMM_LORA_TARGET_COUNT; i++) {
        omm_matrix_fini(&s->pairs[i].a);
        omm_matrix_fini(&s->pairs[i].b);
    }
    float *buffers[] = {s->x, s->h, s->q, s->k, s->v, s->a, s->gate, s->up, s->z};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) omm_free(buffers[i]);
    omm_free(s->kv);
    omm_free(s->pairs);
    omm_rope_fini(&s->rope);
    omm_q8_rows_fini(&s->q8);
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

/* ---- the graph ------------------------------------------------------------------------------- */

/* y = W x; products that share x share its quantised rows too, until q8_ready is taken back. */
static void product(omm_session *s, float *y, const float *x, const omm_matrix *w, size_t m) {
    if (s->options.activations != OMM_ACTIVATIONS_Q8 || !omm_format_is_quantised(w->format)) {
        omm_linear_forward(s->c, y, x, w, m, false);
        return;
    }
    if (!s->q8_ready) omm_q8_quantize(s->c, &s->q8, x, m, w->cols);
    s->q8_ready = true;
    omm_linear_q8(s->c, y, &s->q8, w, m);
}

static void linear(omm_session *s, float *y, const float *x, uint32_t layer, omm_lora_target target,
                   size_t m) {
    product(s, y, x, &s->model->layers[layer].weights[target], m);
    if (!s->pairs) return;
    const session_pair *pair = &s->pairs[(size_t)layer * OMM_LORA_TARGET_COUNT + target];
    if (!pair->a.data) return;
    omm_linear_forward(s->c, s->z, x, &pair->a, m, false);
    omm_vec_scale(s->c, s->z, s->z, s->pair_scale, m * pair->a.rows);
    omm_linear_forward(s->c, y, s->z, &pair->b, m, true);
}

static void attend(omm_session *s, uint32_t layer, size_t m) {
    const omm_model_dims *d = &s->model->dims;
    const size_t pos0 = s->position;
    omm_rmsnorm_forward(s->c, s->h, NULL, s->x, s->model->layers[layer].attn_norm, m, d->d_model,
                        d->rms_eps);
    s->q8_ready = false;
    linear(s, s->q, s->h, layer, OMM_LORA_Q, m);
    linear(s, s->k, s->h, layer, OMM_LORA_K, m);
    linear(s, s->v, s->h, layer, OMM_LORA_V, m);
    omm_rope_apply(s->c, s->q, &s->rope, m, d->heads, pos0, false);
    omm_rope_apply(s->c, s->k, &s->rope, m, d->kv_heads, pos0, false);
    omm_kv_store(s->c, &s->kv[layer], s->k, s->v, m, pos0);
    omm_attention a = {.out = s->a,
                       .q = s->q,
                       .kv = &s->kv[layer],
                       .m = m,
                       .pos0 = pos0,
                       .heads = d->heads,
                       .scale = omm_model_attention_scale(s->model)};
    omm_attention_forward(s->c, &a);
    s->q8_ready = false;
    linear(s, s->h, s->a, layer, OMM_LORA_O, m);
    omm_vec_add(s->c, s->x, s->h, m * d->d_model);
}

static void feed_forward(omm_session *s, uint32_t layer, size_t m) {
    const omm_model_dims *d = &s->model->dims;
    omm_rmsnorm_forward(s->c, s->h, NULL, s->x, s->model->layers[layer].ffn_norm, m, d->d_model,
                        d->rms_eps);
    s->q8_ready = false;
    linear(s, s->gate, s->h, layer, OMM_LORA_GATE, m);
    linear(s, s->up, s->h, layer, OMM_LORA_UP, m);
    omm_swiglu_forward(s->c, s->gate, s->gate, s->up, m * d->d_ff);
    s->q8_ready = false;
    linear(s, s->h, s->gate, layer, OMM_LORA_DOWN, m);
    omm_vec_add(s->c, s->x, s->h, m * d->d_model);
}

/* Logits of the last `m` rows of x, of which there are `rows`. */
static void head(omm_session *s, float *logits, size_t rows, size_t m) {
    const omm_model_dims *d = &s->model->dims;
    omm_rmsnorm_forward(s->c, s->h, NULL, s->x + (rows - m) * d->d_model, s->model->output_norm, m,
                        d->d_model, d->rms_eps);
    s->q8_ready = false;
    product(s, logits, s->h, s->model->output, m);
}

static void batch(omm_session *s, const uint32_t *ids, size_t m) {
    omm_embed_forward(s->c, s->x, &s->model->embed, ids, m);
    for (uint32_t i = 0; i < s->model->dims.layers; i++) {
        attend(s, i, m);
        feed_forward(s, i, m);
    }
    s->position += (uint32_t)m;
}

static omm_err ids_check(const omm_session *s, const uint32_t *ids, size_t count) {
    const uint32_t vocab = s->model->dims.vocab, left = s->options.positions_max - s->position;
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
    const size_t vocab = s->model->dims.vocab;
    OMM_TRY(ids_check(s, ids, count));
    bool finite = true;
    for (size_t i = 0; i < count; i += s->options.batch_max) {
        size_t m = count - i < s->options.batch_max ? count - i : s->options.batch_max;
        batch(s, ids + i, m);
        if (!logits || (!every && i + m < count)) continue;
        size_t rows = every ? m : 1;
        float *out = every ? logits + i * vocab : logits;
        head(s, out, m, rows);
        finite = finite && omm_all_finite(s->c, out, rows * vocab);
    }
    if (!finite)
        return omm_raise(OMM_ERR_NUMERIC, "a logit at or before position %u is not a finite number",
                         s->position - 1);
    return OMM_OK;
}

/* ---- likelihood ------------------------------------------------------------------------------ */

static omm_err nll_batches(double *sum, float *per_token, omm_session *s, const uint32_t *ids,
                           size_t count, float *logits) {
    const size_t vocab = s->model->dims.vocab;
    double total = 0.0;
    for (size_t i = 0; i + 1 < count; i += s->options.batch_max) {
        size_t left = count - 1 - i, m = left < s->options.batch_max ? left : s->options.batch_max;
        OMM_TRY(omm_session_append(s, ids + i, m, logits, true));
        for (size_t j = 0; j < m; j++) {
            float lse = 0.0f;
            omm_row_lse(s->c, NULL, &lse, logits + j * vocab, 1, vocab);
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
    float *logits = NULL;
    OMM_TRY(buffer(&logits, s->options.batch_max, s->model->dims.vocab));
    omm_err err = nll_batches(sum, per_token, s, ids, count, logits);
    omm_free(logits);
    return err;
}
