/* graph_backward.c - backward pass of the training graph. */
#include "graph.h"

#include "full.h"

#include <string.h>

/* What one backward pass is for. */
typedef struct pass {
    graph *g;
    float *gradient;
    bool want_a, want_b;
} pass;

/* A weight of the model with its adapter, and the rows at hand. */
typedef struct place {
    size_t layer;
    omm_lora_target target;
    graph_rows rows;
} place;

/* c[m][n] += sum over the tokens of each sequence of a[token][m] b[token][n]. */
static omm_product token_sum(const graph *g, float *c, const float *a, size_t m, const float *b,
                             size_t n, graph_rows rows) {
    return (omm_product){.kind = OMM_PRODUCT_CHUNKS,
                         .plain = {c, a, b, m, n, rows.count, m, n, n, true},
                         .ends = rows.map ? g->picked_ends : g->ends};
}

/* g->dz = scale * dy B. */
static void take_dz(graph *g, const float *dy, place at) {
    const graph_pair *pair = graph_pair_of(g, at.layer, at.target);
    const float *b = g->adapter + pair->b_offset;
    const size_t rank = pair->rank, m = at.rows.count, d_out = pair->d_out;
    omm_gemm_nn(g->compute, &(omm_gemm){g->dz, dy, b, m, rank, d_out, d_out, rank, rank, false});
    omm_vec_scale(g->compute, g->dz, g->dz, pair->scale, m * rank);
}

/* dx += the adapter's share through its dropout. */
static void dropped_backward(graph *g, float *dx, place at) {
    const graph_pair *pair = graph_pair_of(g, at.layer, at.target);
    const float *a = g->adapter + pair->a_offset;
    const size_t rank = pair->rank, m = at.rows.count, d_in = pair->d_in;
    omm_gemm_nn(g->compute,
                &(omm_gemm){g->dropped, g->dz, a, m, d_in, rank, rank, d_in, d_in, false});
    graph_dropped(g, g->dropped, at.rows, at.layer, at.target); /* the same mask, in place */
    omm_vec_add(g->compute, dx, g->dropped, m * d_in);
}

/* dA and dB of an adapter with dz; returns how many. */
static size_t adapter_sums(const pass *p, omm_product *sums, const float *dy, const float *x,
                           place at) {
    graph *g = p->g;
    const graph_pair *pair = graph_pair_of(g, at.layer, at.target);
    const float *z = g->layers[at.layer].z[at.target];
    float *da = p->gradient + pair->a_offset, *db = p->gradient + pair->b_offset;
    size_t n = 0;
    if (p->want_b) sums[n++] = token_sum(g, db, z, pair->rank, dy, pair->d_out, at.rows);
    if (!p->want_a) return n;
    x = graph_dropped(g, x, at.rows, at.layer, at.target);
    sums[n++] = token_sum(g, da, g->dz, pair->rank, x, pair->d_in, at.rows);
    return n;
}

/* dx (+)= dy W and the adapter's share; dA, dB and the gradient of W where it has one, which read the same dy,
 * in one pass over the pool.  dx NULL: not needed below. */
static void linear_backward(const pass *p, float *dx, const float *dy, const float *x, place at,
                            bool accumulate) {
    graph *g = p->g;
    const graph_pair *pair = graph_pair_of(g, at.layer, at.target);
    const omm_layer *layer = &g->model->layers[at.layer];
    const size_t m = at.rows.count;
    const bool drops = g->dropout.rate > 0;
    omm_product products[4] = {0}; /* dx, gradient of W, dB, dA */
    size_t n = 0;
    graph_lap(g, OMM_TRAIN_ROWS);
    if (pair->d_in && (dx || p->want_a)) take_dz(g, dy, at);
    graph_lap(g, OMM_TRAIN_ADAPTER);
    if (dx) {
        omm_product *to = &products[n++];
        *to = (omm_product){.kind = OMM_PRODUCT_BACKWARD, .c = dx, .a = dy, .m = m};
        to->w = &layer->weights[at.target];
        to->accumulate = accumulate;
        if (pair->d_in && !drops)
            to->pair = (omm_linear_pair){g->dz, g->adapter + pair->a_offset, pair->rank};
    }
    if (g->full) products[n++] = full_sum(g, layer, at.target, dy, x, m);
    if (pair->d_in) n += adapter_sums(p, &products[n], dy, x, at);
    omm_products(g->compute, products, n);
    if (g->full) full_bias(g, layer, at.target, dy, m);
    graph_lap(g, OMM_TRAIN_BACKWARD);
    if (dx && pair->d_in && drops) dropped_backward(g, dx, at);
}

/* --- norms ----------------------------------------------------------------------------------- */

/* dx of rows of a norm; dy is added to dx's gradient.  `h` of the graph is scratch, r room for
 * one number per row. */
static void norm_rows(graph *g, float *dx, const float *dy, const float *x, const float *w,
                      float *r, size_t rows, size_t n) {
    omm_rmsnorm_forward(g->compute, g->h, r, x, w, rows, n, g->model->dims.rms_eps);
    if (g->full) full_norm(g, w, dy, x, r, rows, n);
    graph_rows_norm(g, dx, dy, x, w, r, rows, n);
}

/* dy of normalised heads becomes that of the heads before; datt and row_dot are free by now. */
static void heads_backward(graph *g, float *dy, const float *raw, const float *w, uint32_t heads) {
    const size_t count = g->rows * heads * g->model->dims.head_dim;
    const size_t n = omm_model_norm_width(&g->model->dims, heads);
    if (!w) return;
    memset(g->datt, 0, count * sizeof(float));
    norm_rows(g, g->datt, dy, raw, w, g->row_dot, count / n, n);
    memcpy(dy, g->datt, count * sizeof(float));
}

/* datt -> dq, dk, dv as the products gave them. */
static void attention_backward(graph *g, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const graph_layer *l = &g->layers[layer];
    const omm_layer *w = &g->model->layers[layer];
    graph_lap(g, OMM_TRAIN_ROWS);
    graph_attention_backward(g, layer);
    graph_lap(g, OMM_TRAIN_ATTENTION);
    heads_backward(g, g->dq, l->q_raw, w->q_norm, d->heads);
    heads_backward(g, g->dk, l->k_raw, w->k_norm, d->kv_heads);
    if (d->norms_turned) graph_turn_all(g, layer, g->dq, g->dk, true);
}

/* --- a layer --------------------------------------------------------------------------------- */

/* dx += gradient of h = rmsnorm(x, w), or h = x where there is no norm, given dh. */
static void norm_backward(graph *g, const float *x, const float *w, size_t rows) {
    const size_t n = g->model->dims.d_model;
    if (w)
        norm_rows(g, g->dx, g->dh, x, w, g->dz, rows, n);
    else
        omm_vec_add(g->compute, g->dx, g->dh, rows * n);
}

/* The gradient of a step's result, given dx after it was normalised, scaled and added: dx itself where
 * it was only added, else in dh. */
static const float *result_backward(graph *g, const float *raw, const float *w, size_t rows) {
    const size_t n = g->model->dims.d_model;
    const float scale = g->model->dims.residual_scale;
    OMM_ASSERT(scale == 1 || !w); /* no architecture has both */
    if (scale != 1) {
        omm_vec_scale(g->compute, g->dh, g->dx, scale, rows * n);
        return g->dh;
    }
    if (!w) return g->dx;
    memset(g->dh, 0, rows * n * sizeof(float));
    norm_rows(g, g->dh, g->dx, raw, w, g->dz, rows, n);
    return g->dh;
}

static void feed_forward_backward(const pass *p, size_t layer, bool below) {
    graph *g = p->g;
    const omm_model_dims *d = &g->model->dims;
    const graph_layer *l = &g->layers[layer];
    const omm_layer *w = &g->model->layers[layer];
    graph_rows rows = graph_rows_after_attention(g, layer);
    place gate = {layer, OMM_LORA_GATE, rows}, up = {layer, OMM_LORA_UP, rows};
    place down = {layer, OMM_LORA_DOWN, rows};
    bool inner = below || graph_adapts(g, layer, 1U << OMM_LORA_GATE | 1U << OMM_LORA_UP);
    const float *dy = result_backward(g, l->down_raw, w->ffn_post_norm, rows.count);
    graph_activate(g, l, rows.count);
    linear_backward(p, inner ? g->dact : NULL, dy, g->act, down, false);
    if (!inner) return;
    graph_rows_activation(g, g->dgate, g->dact, l->gate, l->up, rows.count, d->d_ff);
    const float *x = graph_step_input(g, l->mid, w->ffn_norm, rows.count);
    float *dh = below ? g->dh : NULL;
    linear_backward(p, dh, g->dgate, x, gate, false);
    linear_backward(p, dh, g->dact, x, up, true);
    if (below) norm_backward(g, l->mid, w->ffn_norm, rows.count);
}

/* Move row i of x to row map[i], zero elsewhere.  From the end, because map[i] >= i. */
static void scatter(float *x, graph_rows rows, size_t total, size_t width) {
    if (!rows.map) return;
    size_t end = total;
    for (size_t i = rows.count; i-- > 0;) {
        size_t at = rows.map[i];
        if (at != i) memcpy(x + at * width, x + i * width, width * sizeof(float));
        memset(x + (at + 1) * width, 0, (end - at - 1) * width * sizeof(float));
        end = at;
    }
    memset(x, 0, end * width * sizeof(float));
}

static void attention_layer_backward(const pass *p, size_t layer, bool below) {
    graph *g = p->g;
    const omm_model_dims *d = &g->model->dims;
    const graph_layer *l = &g->layers[layer];
    const omm_layer *w = &g->model->layers[layer];
    const uint32_t qkv = 1U << OMM_LORA_Q | 1U << OMM_LORA_K | 1U << OMM_LORA_V;
    graph_rows all = {g->rows, NULL}, rows = graph_rows_after_attention(g, layer);
    place q = {layer, OMM_LORA_Q, all}, k = {layer, OMM_LORA_K, all};
    place v = {layer, OMM_LORA_V, all}, o = {layer, OMM_LORA_O, rows};
    bool inner = below || graph_adapts(g, layer, qkv);
    const float *att = rows.map ? g->picked_att : l->att;
    const float *dy = result_backward(g, l->o_raw, w->attn_post_norm, rows.count);
    linear_backward(p, inner ? g->datt : NULL, dy, att, o, false);
    if (!inner) return;
    scatter(g->datt, rows, g->rows, (size_t)d->heads * d->head_dim);
    scatter(g->dx, rows, g->rows, d->d_model);
    attention_backward(g, layer);
    const float *x = graph_step_input(g, l->x, w->attn_norm, g->rows);
    float *dh = below ? g->dh : NULL;
    linear_backward(p, dh, g->dq, x, q, false);
    linear_backward(p, dh, g->dk, x, k, true);
    linear_backward(p, dh, g->dv, x, v, true);
    if (below) norm_backward(g, l->x, w->attn_norm, g->rows);
}

void graph_backward(graph *g, float *gradient, bool want_a, bool want_b) {
    const uint32_t attention =
        1U << OMM_LORA_Q | 1U << OMM_LORA_K | 1U << OMM_LORA_V | 1U << OMM_LORA_O;
    pass p = {.g = g, .want_a = want_a, .want_b = want_b};
    p.gradient = gradient;
    for (size_t layer = g->model->dims.layers; layer-- > g->first_layer;) {
        bool below = layer > g->first_layer || g->full;
        bool attention_below = below || graph_adapts(g, layer, attention);
        if (layer < g->checkpoint_layers) graph_forward_layer(g, layer, NULL);
        feed_forward_backward(&p, layer, attention_below);
        if (attention_below) attention_layer_backward(&p, layer, below);
    }
    if (g->full) full_embedding(g);
    graph_lap(g, OMM_TRAIN_ROWS);
}
