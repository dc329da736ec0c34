/* graph.c - the layers of a model over a batch: memory, forward. */
#include "graph.h"

#include "omm/mem.h"

#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static omm_err buffer(float **out, size_t rows, size_t width) {
    *out = (float *)omm_alloc_aligned(rows * width, sizeof **out);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for %zu activations", rows * width);
}

static omm_err init_buffers(model_graph *g) {
    const omm_model_dims *d = &g->model->dims;
    const size_t rows = g->options.rows_max, q = (size_t)d->heads * d->head_dim;
    const size_t kv = (size_t)d->kv_heads * d->head_dim;
    OMM_TRY(buffer(&g->x, rows, d->d_model));
    OMM_TRY(buffer(&g->h, rows, d->d_model));
    OMM_TRY(buffer(&g->q, rows, q));
    OMM_TRY(buffer(&g->k, rows, kv));
    OMM_TRY(buffer(&g->v, rows, kv));
    OMM_TRY(buffer(&g->a, rows, q));
    OMM_TRY(buffer(&g->gate, rows, d->d_ff));
    OMM_TRY(buffer(&g->up, rows, d->d_ff));
    g->attention = (omm_attention *)omm_alloc(rows, sizeof *g->attention);
    g->runs = (model_run *)omm_alloc(rows, sizeof *g->runs);
    if (!g->attention || !g->runs)
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu sequences", rows);
    if (g->options.activations != OMM_ACTIVATIONS_Q8) return OMM_OK;
    return omm_q8_rows_init(&g->q8, rows, omm_model_widest_input(d));
}

/* Layers with a window have a table of their own. */
static bool two_ropes(const omm_model_dims *d) {
    return d->window != 0 && d->rope_local;
}

static omm_err init_rope(model_graph *g) {
    const uint32_t positions = g->options.positions_max;
    const bool far = omm_model_rope_far(g->model, g->options.rope_positions);
    OMM_TRY(omm_model_rope(&g->rope[0], g->model, positions, far, false));
    if (!two_ropes(&g->model->dims)) return OMM_OK;
    return omm_model_rope(&g->rope[1], g->model, positions, far, true);
}

uint64_t model_graph_activation_bytes(const model_graph_options *o) {
    const omm_model_dims *d = &o->model->dims;
    const uint64_t q = (uint64_t)d->heads * d->head_dim, kv = (uint64_t)d->kv_heads * d->head_dim;
    uint64_t row = 2 * (d->d_model + q + kv + (uint64_t)d->d_ff) * sizeof(float);
    row += sizeof(omm_attention) + sizeof(model_run);
    return o->rows_max * row + (o->activations == OMM_ACTIVATIONS_Q8
                                    ? omm_q8_rows_bytes(o->rows_max, omm_model_widest_input(d))
                                    : 0);
}

uint64_t model_graph_rope_bytes(const model_graph_options *o) {
    const omm_model_dims *d = &o->model->dims;
    const uint64_t table = (uint64_t)o->positions_max * d->rotated * 2 * sizeof(float);
    return two_ropes(d) ? 2 * table : table;
}

omm_err model_graph_init(model_graph *g, const model_graph_options *options) {
    *g = (model_graph){.options = *options, .c = options->compute, .model = options->model};
    omm_err err = init_buffers(g);
    if (err == OMM_OK) err = init_rope(g);
    if (err == OMM_OK) err = model_stream_init(&g->stream, g->model);
    if (err != OMM_OK) model_graph_fini(g);
    return err;
}

void model_graph_fini(model_graph *g) {
    float *buffers[] = {g->x, g->h, g->q, g->k, g->v, g->a, g->gate, g->up, g->z};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) omm_free(buffers[i]);
    omm_free(g->terms);
    omm_free(g->attention);
    omm_free(g->runs);
    omm_rope_fini(&g->rope[0]);
    omm_rope_fini(&g->rope[1]);
    omm_q8_rows_fini(&g->q8);
    model_stream_fini(&g->stream);
    *g = (model_graph){0};
}

/* ---- forward --------------------------------------------------------------------------------- */

static void mark(model_graph *g, omm_profile_part part) {
    if (g->profile) omm_profile_add(g->profile, part);
}

bool model_graph_takes_q8(const model_graph *g, const omm_matrix *w) {
    return g->options.activations == OMM_ACTIVATIONS_Q8 && omm_format_is_quantised(w->format);
}

void model_graph_quantise(model_graph *g, const float *x, size_t m, size_t cols) {
    if (g->q8_ready) return;
    omm_q8_quantize(g->c, &g->q8, x, m, cols);
    g->q8_ready = true;
    mark(g, OMM_PROFILE_QUANTISE);
}

/* Products of the same x[m][cols]; in mode q8 they share its quantised rows too, until q8_ready is
 * taken back. */
static void products_of(model_graph *g, const omm_linear *products, size_t count,
                        const omm_linear_lower *lower, const float *x, size_t m) {
    bool q8 = false;
    for (size_t i = 0; i < count; i++) q8 = q8 || model_graph_takes_q8(g, products[i].w);
    if (q8) model_graph_quantise(g, x, m, products->w->cols);
    omm_linear_each(g->c, products, count, lower, x, q8 ? &g->q8 : NULL, m);
}

/* y[i][rows][out] = W x[rows][in] of the targets first, first + 1, ..., which share x; then each
 * span's adapters on its own rows, then the bias. */
static void linear(model_graph *g, float *const *y, size_t count, const float *x, uint32_t layer,
                   omm_lora_target first) {
    const omm_layer *l = g->layer;
    omm_linear products[OMM_LINEAR_MAX] = {{0}};
    OMM_ASSERT(count <= GRAPH_TARGETS_MAX);
    model_graph_scaling scaling = {g, layer, adapter_input_of(first)};
    const omm_linear_lower lower = {
        .count = model_graph_lower(g, products, x, layer, scaling.input, l->weights[first].cols),
        .then = model_graph_scale,
        .ud = &scaling};
    omm_linear *own = products + lower.count;
    if (lower.count == 0) model_graph_scale(&scaling); /* of adapters that differ from row to row */
    omm_linear_term *terms = g->terms;
    for (size_t i = 0; i < count; i++) {
        own[i] = (omm_linear){.y = y[i], .w = &l->weights[first + i], .terms = terms};
        if (!terms) continue;
        own[i].term_count = model_graph_terms(terms, g, layer, (omm_lora_target)(first + i));
        terms += own[i].term_count;
    }
    products_of(g, products, lower.count + count, lower.count > 0 ? &lower : NULL, x, g->rows);
    for (size_t i = 0; i < count; i++)
        if (l->bias[first + i])
            omm_row_add(g->c, y[i], l->bias[first + i], g->rows, own[i].w->rows);
}

static void norm(model_graph *g, float *y, const float *x, const float *weight, size_t m) {
    omm_rmsnorm_forward(g->c, y, NULL, x, weight, m, g->model->dims.d_model,
                        g->model->dims.rms_eps);
    g->q8_ready = false;
}

/* q or k of some rows, each head normalised on its own, or all of a row together. */
static void norm_heads(model_graph *g, float *x, const float *weight, uint32_t heads, size_t rows) {
    const omm_model_dims *d = &g->model->dims;
    const size_t n = omm_model_norm_width(d, heads), count = rows * heads * d->head_dim;
    if (weight) omm_rmsnorm_forward(g->c, x, NULL, x, weight, count / n, n, d->rms_eps);
}

static void norm_qk(model_graph *g, float *q, float *k, size_t rows) {
    norm_heads(g, q, g->layer->q_norm, g->model->dims.heads, rows);
    norm_heads(g, k, g->layer->k_norm, g->model->dims.kv_heads, rows);
}

/* Rope and cache of one span whose rows begin at `row`; its attention, to be run. */
static omm_attention store_span(model_graph *g, const model_span *s, uint32_t layer, size_t row) {
    const omm_model_dims *d = &g->model->dims;
    const size_t q_width = (size_t)d->heads * d->head_dim, m = s->rows;
    const size_t kv_width = (size_t)d->kv_heads * d->head_dim;
    float *q = g->q + row * q_width, *k = g->k + row * kv_width, *v = g->v + row * kv_width;
    const uint32_t window = g->model->layers[layer].window;
    const omm_rope *rope = &g->rope[window > 0 && g->rope[1].positions > 0];
    if (!g->layer->unrotated) {
        omm_rope_apply(g->c, q, rope, m, d->heads, s->position, false);
        omm_rope_apply(g->c, k, rope, m, d->kv_heads, s->position, false);
    }
    for (size_t i = 0; i < m; i++) {
        const float t = omm_model_temperature(d, (uint32_t)(s->position + i));
        if (t != 1.0f) omm_vec_scale(g->c, q + i * q_width, q + i * q_width, t, q_width);
    }
    if (d->norms_turned) norm_qk(g, q, k, m);
    omm_kv_store(g->c, &s->kv[layer], k, v, m, s->position);
    return (omm_attention){.out = g->a + row * q_width,
                           .q = q,
                           .kv = &s->kv[layer],
                           .m = m,
                           .pos0 = s->position,
                           .heads = d->heads,
                           .scale = d->attention_scale,
                           .softcap = d->attention_softcap,
                           .window = window};
}

/* What the first products of a step take: g->h, x normalised, or x itself where there is no norm. */
static const float *step_input(model_graph *g, const float *weight) {
    g->q8_ready = false;
    if (!weight) return g->x;
    norm(g, g->h, g->x, weight, g->rows);
    return g->h;
}

/* x = x + h, normalised and scaled first where the model does that. */
static void add_to_x(model_graph *g, const float *post_norm) {
    const size_t count = g->rows * g->model->dims.d_model;
    const float scale = g->model->dims.residual_scale;
    if (post_norm) norm(g, g->h, g->h, post_norm, g->rows);
    if (scale != 1.0f) omm_vec_scale(g->c, g->h, g->h, scale, count);
    omm_vec_add(g->c, g->x, g->h, count);
}

static void attend(model_graph *g, uint32_t layer) {
    const omm_layer *w = g->layer;
    const omm_model_dims *d = &g->model->dims;
    const float *x = step_input(g, w->attn_norm);
    mark(g, OMM_PROFILE_NORM);
    linear(g, (float *[]){g->q, g->k, g->v}, 3, x, layer, OMM_LORA_Q);
    mark(g, OMM_PROFILE_QKV);
    if (!d->norms_turned) norm_qk(g, g->q, g->k, g->rows);
    mark(g, OMM_PROFILE_NORM);
    size_t row = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        g->attention[i] = store_span(g, &g->spans[i], layer, row);
        row += g->spans[i].rows;
    }
    mark(g, OMM_PROFILE_POSITIONS);
    omm_attention_each(g->c, g->attention, g->span_count);
    mark(g, OMM_PROFILE_ATTENTION);
    g->q8_ready = false;
    linear(g, &g->h, 1, g->a, layer, OMM_LORA_O);
    mark(g, OMM_PROFILE_OUT);
    add_to_x(g, w->attn_post_norm);
    mark(g, OMM_PROFILE_ADD);
}

static void feed_forward(model_graph *g, uint32_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const omm_layer *w = g->layer;
    const float *x = step_input(g, w->ffn_norm);
    mark(g, OMM_PROFILE_NORM);
    linear(g, (float *[]){g->gate, g->up}, 2, x, layer, OMM_LORA_GATE);
    mark(g, OMM_PROFILE_GATE_UP);
    if (d->ffn == OMM_FFN_GEGLU)
        omm_geglu_forward(g->c, g->gate, g->gate, g->up, g->rows * d->d_ff);
    else
        omm_swiglu_forward(g->c, g->gate, g->gate, g->up, g->rows * d->d_ff);
    mark(g, OMM_PROFILE_ACTIVATION);
    g->q8_ready = false;
    linear(g, &g->h, 1, g->gate, layer, OMM_LORA_DOWN);
    mark(g, OMM_PROFILE_DOWN);
    add_to_x(g, w->ffn_post_norm);
    mark(g, OMM_PROFILE_ADD);
}

omm_err model_graph_forward(model_graph *g, const uint32_t *ids, const model_span *spans,
                            size_t span_count) {
    g->spans = spans;
    g->span_count = span_count;
    g->rows = 0;
    for (size_t i = 0; i < span_count; i++) g->rows += spans[i].rows;
    OMM_ASSERT(g->rows >= 1 && g->rows <= g->options.rows_max);
    model_graph_find_runs(g);
    const omm_model_dims *d = &g->model->dims;
    omm_embed_forward(g->c, g->x, &g->model->embed, ids, g->rows);
    if (d->embed_scale != 1.0f)
        omm_vec_scale(g->c, g->x, g->x, d->embed_scale, g->rows * d->d_model);
    mark(g, OMM_PROFILE_BEGIN);
    for (uint32_t i = 0; i < g->model->dims.layers; i++) {
        OMM_TRY(model_stream_layer(&g->layer, &g->stream, g->c->pool, i));
        if (i >= g->model->resident) mark(g, OMM_PROFILE_READ);
        attend(g, i);
        feed_forward(g, i);
    }
    return OMM_OK;
}

void model_graph_head(model_graph *g, float *logits, const uint32_t *rows, size_t count) {
    const omm_model *model = g->model;
    const size_t width = model->dims.d_model;
    OMM_ASSERT(count <= g->rows);
    for (size_t i = 0, run = count; i < count; i += run) {
        const size_t first = rows ? rows[i] : i;
        for (run = rows ? 1 : count; rows && i + run < count && rows[i + run] == first + run;)
            run++;
        OMM_ASSERT(first + run <= g->rows);
        norm(g, g->h + i * width, g->x + first * width, model->output_norm, run);
    }
    mark(g, OMM_PROFILE_NORM);
    const omm_linear head = {.y = logits, .w = model->output};
    if (count > 0) products_of(g, &head, 1, NULL, g->h, count);
    const float scale = model->dims.logit_scale, cap = model->dims.output_softcap;
    if (scale != 1.0f) omm_vec_scale(g->c, logits, logits, scale, count * model->dims.vocab);
    if (cap != 0.0f) omm_vec_softcap(g->c, logits, logits, cap, count * model->dims.vocab);
    mark(g, OMM_PROFILE_HEAD);
}
