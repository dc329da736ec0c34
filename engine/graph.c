/* graph.c - the layers of a model over a batch: memory, adapters, forward. */
#include "graph.h"

#include "omm/mem.h"

#include <string.h>

/* ---- adapters -------------------------------------------------------------------------------- */

static bool same_shape(const omm_lora_shape *a, const omm_lora_shape *b) {
    return a->layer_count == b->layer_count && memcmp(a->d_in, b->d_in, sizeof a->d_in) == 0 &&
           memcmp(a->d_out, b->d_out, sizeof a->d_out) == 0;
}

static omm_err pack_pair(model_adapter_pair *pair, const omm_lora *lora, uint32_t layer,
                         omm_lora_target target) {
    const float *a = NULL, *b = NULL;
    omm_lora_find(&a, &b, lora, layer, target);
    if (!a) return OMM_OK;
    const omm_lora_tensor *t = &lora->tensors[omm_lora_find_index(lora, layer, target)];
    pair->scale = t->scale;
    OMM_TRY(omm_matrix_pack_f32(&pair->a, t->rows, lora->shape.d_in[target], a));
    return omm_matrix_pack_f32(&pair->b, lora->shape.d_out[target], t->rows, b);
}

omm_err model_adapter_init(model_adapter *out, const omm_model *model, const omm_lora *lora) {
    if (!same_shape(&lora->shape, &model->lora_shape))
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "the adapter was made for a model of other shape");
    model_adapter made = {.scale = 1.0f, .rank = lora->spec.rank, .layers = model->dims.layers};
    const size_t count = (size_t)made.layers * OMM_LORA_TARGET_COUNT;
    made.pairs = (model_adapter_pair *)omm_alloc(count, sizeof *made.pairs);
    if (!made.pairs) return omm_raise(OMM_ERR_NOMEM, "no memory for the adapter table");
    omm_err err = OMM_OK;
    for (size_t i = 0; i < count && err == OMM_OK; i++)
        err = pack_pair(&made.pairs[i], lora, (uint32_t)(i / OMM_LORA_TARGET_COUNT),
                        (omm_lora_target)(i % OMM_LORA_TARGET_COUNT));
    if (err != OMM_OK) {
        model_adapter_fini(&made);
        return err;
    }
    *out = made;
    return OMM_OK;
}

void model_adapter_fini(model_adapter *adapter) {
    const size_t count = (size_t)adapter->layers * OMM_LORA_TARGET_COUNT;
    for (size_t i = 0; adapter->pairs && i < count; i++) {
        omm_matrix_fini(&adapter->pairs[i].a);
        omm_matrix_fini(&adapter->pairs[i].b);
    }
    omm_free(adapter->pairs);
    *adapter = (model_adapter){0};
}

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
    if (g->options.rank_max > 0) OMM_TRY(buffer(&g->z, rows, g->options.rank_max));
    if (g->options.activations != OMM_ACTIVATIONS_Q8) return OMM_OK;
    size_t widest = d->d_ff > d->d_model ? d->d_ff : d->d_model;
    return omm_q8_rows_init(&g->q8, rows, widest > q ? widest : q);
}

static omm_err init_rope(model_graph *g) {
    const omm_model_dims *d = &g->model->dims;
    const uint32_t positions = g->options.positions_max;
    OMM_TRY(omm_model_rope(&g->rope[0], g->model, positions, false));
    if (d->window == 0 || d->rope_base_local == d->rope_base) return OMM_OK;
    return omm_model_rope(&g->rope[1], g->model, positions, true);
}

omm_err model_graph_init(model_graph *g, const model_graph_options *options) {
    *g = (model_graph){.options = *options, .c = options->compute, .model = options->model};
    omm_err err = init_buffers(g);
    if (err == OMM_OK) err = init_rope(g);
    if (err != OMM_OK) model_graph_fini(g);
    return err;
}

void model_graph_fini(model_graph *g) {
    float *buffers[] = {g->x, g->h, g->q, g->k, g->v, g->a, g->gate, g->up, g->z};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) omm_free(buffers[i]);
    omm_rope_fini(&g->rope[0]);
    omm_rope_fini(&g->rope[1]);
    omm_q8_rows_fini(&g->q8);
    *g = (model_graph){0};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y = W x; products that share x share its quantised rows too, until q8_ready is taken back. */
static void product(model_graph *g, float *y, const float *x, const omm_matrix *w, size_t m) {
    if (g->options.activations != OMM_ACTIVATIONS_Q8 || !omm_format_is_quantised(w->format)) {
        omm_linear_forward(g->c, y, x, w, m, false);
        return;
    }
    if (!g->q8_ready) omm_q8_quantize(g->c, &g->q8, x, m, w->cols);
    g->q8_ready = true;
    omm_linear_q8(g->c, y, &g->q8, w, m);
}

static void adapt(model_graph *g, float *y, const float *x, const model_adapter *adapter,
                  uint32_t layer, omm_lora_target target, size_t m) {
    const model_adapter_pair *pair =
        &adapter->pairs[(size_t)layer * OMM_LORA_TARGET_COUNT + target];
    if (!pair->a.data) return;
    OMM_ASSERT(adapter->rank <= g->options.rank_max);
    omm_linear_forward(g->c, g->z, x, &pair->a, m, false);
    omm_vec_scale(g->c, g->z, g->z, adapter->scale * pair->scale, m * pair->a.rows);
    omm_linear_forward(g->c, y, g->z, &pair->b, m, true);
}

/* y[rows][out] = W x[rows][in], then each span's adapters on its own rows, then the bias. */
static void linear(model_graph *g, float *y, const float *x, uint32_t layer,
                   omm_lora_target target) {
    const omm_matrix *w = &g->model->layers[layer].weights[target];
    const float *bias = g->model->layers[layer].bias[target];
    product(g, y, x, w, g->rows);
    size_t row = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        const model_span *s = &g->spans[i];
        for (size_t j = 0; j < s->adapter_count; j++)
            adapt(g, y + row * w->rows, x + row * w->cols, s->adapters[j], layer, target, s->rows);
        row += s->rows;
    }
    if (bias) omm_row_add(g->c, y, bias, g->rows, w->rows);
}

static void norm(model_graph *g, float *y, const float *x, const float *weight, size_t m) {
    omm_rmsnorm_forward(g->c, y, NULL, x, weight, m, g->model->dims.d_model,
                        g->model->dims.rms_eps);
    g->q8_ready = false;
}

/* Rope, cache and attention of one span whose rows begin at `row`. */
static void attend_span(model_graph *g, const model_span *s, uint32_t layer, size_t row) {
    const omm_model_dims *d = &g->model->dims;
    const size_t q_width = (size_t)d->heads * d->head_dim, m = s->rows;
    const size_t kv_width = (size_t)d->kv_heads * d->head_dim;
    float *q = g->q + row * q_width, *k = g->k + row * kv_width, *v = g->v + row * kv_width;
    const uint32_t window = g->model->layers[layer].window;
    const omm_rope *rope = &g->rope[window > 0 && g->rope[1].positions > 0];
    omm_rope_apply(g->c, q, rope, m, d->heads, s->position, false);
    omm_rope_apply(g->c, k, rope, m, d->kv_heads, s->position, false);
    omm_kv_store(g->c, &s->kv[layer], k, v, m, s->position);
    omm_attention a = {.out = g->a + row * q_width,
                       .q = q,
                       .kv = &s->kv[layer],
                       .m = m,
                       .pos0 = s->position,
                       .heads = d->heads,
                       .scale = d->attention_scale,
                       .softcap = d->attention_softcap,
                       .window = window};
    omm_attention_forward(g->c, &a);
}

/* q and k, each head normalised on its own. */
static void norm_heads(model_graph *g, const omm_layer *w) {
    const omm_model_dims *d = &g->model->dims;
    if (w->q_norm)
        omm_rmsnorm_forward(g->c, g->q, NULL, g->q, w->q_norm, g->rows * d->heads, d->head_dim,
                            d->rms_eps);
    if (w->k_norm)
        omm_rmsnorm_forward(g->c, g->k, NULL, g->k, w->k_norm, g->rows * d->kv_heads, d->head_dim,
                            d->rms_eps);
}

/* x = x + h, normalised first where there is a norm for it. */
static void add_to_x(model_graph *g, const float *post_norm) {
    if (post_norm) norm(g, g->h, g->h, post_norm, g->rows);
    omm_vec_add(g->c, g->x, g->h, g->rows * g->model->dims.d_model);
}

static void attend(model_graph *g, uint32_t layer) {
    const omm_layer *w = &g->model->layers[layer];
    norm(g, g->h, g->x, w->attn_norm, g->rows);
    linear(g, g->q, g->h, layer, OMM_LORA_Q);
    linear(g, g->k, g->h, layer, OMM_LORA_K);
    linear(g, g->v, g->h, layer, OMM_LORA_V);
    norm_heads(g, w);
    size_t row = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        attend_span(g, &g->spans[i], layer, row);
        row += g->spans[i].rows;
    }
    g->q8_ready = false;
    linear(g, g->h, g->a, layer, OMM_LORA_O);
    add_to_x(g, w->attn_post_norm);
}

static void feed_forward(model_graph *g, uint32_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const omm_layer *w = &g->model->layers[layer];
    norm(g, g->h, g->x, w->ffn_norm, g->rows);
    linear(g, g->gate, g->h, layer, OMM_LORA_GATE);
    linear(g, g->up, g->h, layer, OMM_LORA_UP);
    if (d->ffn == OMM_FFN_GEGLU)
        omm_geglu_forward(g->c, g->gate, g->gate, g->up, g->rows * d->d_ff);
    else
        omm_swiglu_forward(g->c, g->gate, g->gate, g->up, g->rows * d->d_ff);
    g->q8_ready = false;
    linear(g, g->h, g->gate, layer, OMM_LORA_DOWN);
    add_to_x(g, w->ffn_post_norm);
}

void model_graph_forward(model_graph *g, const uint32_t *ids, const model_span *spans,
                         size_t span_count) {
    g->spans = spans;
    g->span_count = span_count;
    g->rows = 0;
    for (size_t i = 0; i < span_count; i++) g->rows += spans[i].rows;
    OMM_ASSERT(g->rows >= 1 && g->rows <= g->options.rows_max);
    const omm_model_dims *d = &g->model->dims;
    omm_embed_forward(g->c, g->x, &g->model->embed, ids, g->rows);
    if (d->embed_scale != 1.0f)
        omm_vec_scale(g->c, g->x, g->x, d->embed_scale, g->rows * d->d_model);
    for (uint32_t i = 0; i < g->model->dims.layers; i++) {
        attend(g, i);
        feed_forward(g, i);
    }
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
    product(g, logits, g->h, model->output, count);
    const float cap = model->dims.output_softcap;
    if (cap != 0.0f) omm_vec_softcap(g->c, logits, logits, cap, count * model->dims.vocab);
}
