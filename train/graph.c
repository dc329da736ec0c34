/* graph.c - forward pass of the training graph. */
#include "graph.h"

#include "full.h"

#include <string.h>

/* --- forward ------------------------------------------------------------------------------- */

/* Queries of n rows by the temperature of their positions. */
static void warm(const graph *g, float *q, size_t n) {
    const omm_model_dims *d = &g->model->dims;
    const size_t width = (size_t)d->heads * d->head_dim;
    for (size_t i = 0; i < n; i++, q += width) {
        const float t = omm_model_temperature(d, (uint32_t)i);
        if (t != 1) omm_vec_scale(g->compute, q, q, t, width);
    }
}

/* Of the n rows of one sequence. */
static void turn(const graph *g, size_t layer, float *q, float *k, size_t n, bool back) {
    const omm_model_dims *d = &g->model->dims;
    const omm_layer *l = &g->model->layers[layer];
    const omm_rope *rope = &g->rope[l->window > 0 && g->rope[1].positions > 0];
    if (back) warm(g, q, n);
    if (!l->unrotated) {
        omm_rope_apply(g->compute, q, rope, n, d->heads, 0, back);
        omm_rope_apply(g->compute, k, rope, n, d->kv_heads, 0, back);
    }
    if (!back) warm(g, q, n);
}

void graph_turn_all(const graph *g, size_t layer, float *q, float *k, bool back) {
    const omm_model_dims *d = &g->model->dims;
    const size_t qs = (size_t)d->heads * d->head_dim, kvs = (size_t)d->kv_heads * d->head_dim;
    for (size_t i = 0, row = 0; i < g->example_count; row += g->counts[i++])
        turn(g, layer, q + row * qs, k + row * kvs, g->counts[i], back);
}

graph_rows graph_rows_after_attention(const graph *g, size_t layer) {
    bool last = layer + 1 == g->model->dims.layers;
    return last ? (graph_rows){g->learned, g->picked_rows} : (graph_rows){g->rows, NULL};
}

const float *graph_dropped(graph *g, const float *x, graph_rows rows, size_t layer,
                           omm_lora_target target) {
    const graph_dropout *drop = &g->dropout;
    if (drop->rate <= 0) return x;
    size_t width = g->model->lora_shape.d_in[target];
    uint64_t place = layer * OMM_LORA_TARGET_COUNT + (unsigned)target;
    uint64_t places = (uint64_t)g->model->dims.layers * OMM_LORA_TARGET_COUNT;
    uint32_t limit = (uint32_t)((double)drop->rate * 4294967296.0);
    float scale = 1.0F / (1.0F - drop->rate);
    uint32_t *random = (uint32_t *)(void *)g->random;
    for (size_t i = 0; i < rows.count; i++) {
        /* Numbers of one (token, layer, target) fill a span of 2^24, over OMM_MATRIX_DIM_MAX. */
        uint64_t token = drop->first_token + g->tokens[rows.map ? rows.map[i] : i];
        omm_rng_fill_u32(random, &drop->lane, (token * places + place) << 24, width);
        g->grad->dropout(g->dropped + i * width, x + i * width, random, limit, scale, width);
    }
    return g->dropped;
}

/* One of the products of a step's input. */
typedef struct linear_place {
    float *y; /* NULL: only z */
    omm_lora_target target;
} linear_place;

#define LINEARS_MAX 3 /* q, k, v */

/* Keeps z = scale * A x of those that are adapted. */
static void keep_z(graph *g, const float *x, graph_rows rows, size_t layer, const linear_place *at,
                   size_t count) {
    const omm_compute *c = g->compute;
    omm_product products[LINEARS_MAX] = {0};
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const graph_pair *p = graph_pair_of(g, layer, at[i].target);
        const size_t m = rows.count, rank = p->rank, d_in = p->d_in;
        if (!d_in) continue;
        const float *a = g->adapter + p->a_offset;
        const float *dropped = graph_dropped(g, x, rows, layer, at[i].target);
        products[n++] = (omm_product){.kind = OMM_PRODUCT_NT,
                                      .plain = {g->layers[layer].z[at[i].target], dropped, a, m,
                                                rank, d_in, d_in, d_in, rank, false}};
        if (dropped == x) continue;
        omm_products(c, products, n); /* the next one's x takes its place */
        n = 0;
    }
    omm_products(c, products, n);
    for (size_t i = 0; i < count; i++) {
        const graph_pair *p = graph_pair_of(g, layer, at[i].target);
        float *z = g->layers[layer].z[at[i].target];
        if (p->d_in) omm_vec_scale(c, z, z, p->scale, rows.count * p->rank);
    }
}

static bool takes_q8(const graph *g, const omm_matrix *w) {
    return g->q8.q && omm_format_is_quantised(w->format);
}

/* What products of w[count] are about to take, in int8 where one of them does. */
static void take_x(graph *g, const float *x, size_t rows, const omm_matrix *w, size_t count) {
    bool q8 = false;
    for (size_t i = 0; i < count; i++) q8 = q8 || takes_q8(g, &w[i]);
    if (q8) omm_q8_quantize(g->compute, &g->q8, x, rows, w->cols);
}

/* y = W x, of x as take_x had it. */
static void product(const graph *g, float *y, const float *x, const omm_matrix *w, size_t rows) {
    if (takes_q8(g, w))
        omm_linear_q8(g->compute, y, &g->q8, w, rows);
    else
        omm_linear_forward(g->compute, y, x, w, rows, false);
}

/* y = W x, and y += B z where there is an adapter: one chain. */
static void products(graph *g, const float *x, size_t rows, size_t layer, const linear_place *at,
                     size_t count) {
    const omm_compute *c = g->compute;
    omm_product all[LINEARS_MAX] = {0}, tails[LINEARS_MAX] = {0};
    omm_linear q8[LINEARS_MAX] = {0};
    size_t all_count = 0, tail_count = 0, q8_count = 0;
    for (size_t i = 0; i < count; i++) {
        const omm_matrix *w = &g->model->layers[layer].weights[at[i].target];
        const graph_pair *p = graph_pair_of(g, layer, at[i].target);
        const size_t n = w->rows, k = p->d_in ? p->rank : 0;
        const omm_linear_pair pair = {g->layers[layer].z[at[i].target], g->adapter + p->b_offset,
                                      k};
        float *y = at[i].y;
        if (!y) continue;
        if (!takes_q8(g, w)) {
            all[all_count++] = (omm_product){
                .kind = OMM_PRODUCT_FORWARD, .c = y, .a = x, .w = w, .m = rows, .pair = pair};
            continue;
        }
        q8[q8_count++] = (omm_linear){.y = y, .w = w};
        if (k > 0)
            tails[tail_count++] = (omm_product){
                .kind = OMM_PRODUCT_NT, .plain = {y, pair.z, pair.b, rows, n, k, k, k, n, true}};
    }
    if (q8_count > 0) omm_linear_each(c, q8, q8_count, NULL, NULL, &g->q8, rows);
    omm_products(c, all, all_count);
    omm_products(c, tails, tail_count);
}

/* y = W x + adapter + bias of products of one x, over the rows given; keeps z. */
static void linears(graph *g, const float *x, graph_rows rows, size_t layer, const linear_place *at,
                    size_t count) {
    const omm_layer *l = &g->model->layers[layer];
    OMM_ASSERT(count <= LINEARS_MAX);
    graph_lap(g, OMM_TRAIN_ROWS);
    keep_z(g, x, rows, layer, at, count);
    graph_lap(g, OMM_TRAIN_ADAPTER);
    products(g, x, rows.count, layer, at, count);
    graph_lap(g, OMM_TRAIN_FORWARD);
    for (size_t i = 0; i < count; i++) {
        const float *bias = l->bias[at[i].target];
        if (at[i].y && bias)
            omm_row_add(g->compute, at[i].y, bias, rows.count, l->weights[at[i].target].rows);
    }
}

/* One of them. */
static void linear(graph *g, float *y, const float *x, graph_rows rows, size_t layer,
                   omm_lora_target target) {
    linears(g, x, rows, layer, &(linear_place){y, target}, 1);
}

/* y = rmsnorm(raw, w), n wide; nothing without w, where y has been written already. */
static void norm(graph *g, float *y, const float *raw, const float *w, size_t rows, size_t n) {
    if (w) omm_rmsnorm_forward(g->compute, y, NULL, raw, w, rows, n, g->model->dims.rms_eps);
}

const float *graph_step_input(graph *g, const float *x, const float *norm_w, size_t rows) {
    if (!norm_w) return x;
    norm(g, g->h, x, norm_w, rows, g->model->dims.d_model);
    return g->h;
}

/* Of q or k as the products gave them. */
static void norm_heads(graph *g, float *y, const float *raw, const float *norm_w, uint32_t heads) {
    const omm_model_dims *d = &g->model->dims;
    const size_t n = omm_model_norm_width(d, heads), count = g->rows * heads * d->head_dim;
    norm(g, y, raw, norm_w, count / n, n);
}

/* The rows of `from` that `rows` names: `from` itself, or a copy of them in `room`. */
static const float *gather(float *room, const float *from, graph_rows rows, size_t width) {
    if (!rows.map) return from;
    for (size_t i = 0; i < rows.count; i++)
        memcpy(room + i * width, from + rows.map[i] * width, width * sizeof(float));
    return room;
}

/* y, a step's result: normalised and scaled where the model does that, and added to x. */
static void add_step(graph *g, float *y, const float *raw, const float *norm_w, const float *x,
                     size_t rows) {
    const size_t width = g->model->dims.d_model;
    const float scale = g->model->dims.residual_scale;
    norm(g, y, raw, norm_w, rows, width);
    if (scale != 1) omm_vec_scale(g->compute, y, y, scale, rows * width);
    omm_vec_add(g->compute, y, x, rows * width);
}

static void attention(graph *g, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    graph_lap(g, OMM_TRAIN_ROWS);
    graph_layer *l = &g->layers[layer];
    size_t q = (size_t)d->heads * d->head_dim, kv = (size_t)d->kv_heads * d->head_dim, row = 0;
    if (!d->norms_turned) graph_turn_all(g, layer, l->q, l->k, false);
    for (size_t i = 0; i < g->example_count; i++) {
        size_t n = g->counts[i];
        omm_kv_store(g->compute, &g->kv, l->k + row * kv, l->v + row * kv, n, 0);
        omm_attention a = {.out = l->att + row * q,
                           .lse = l->lse + row * d->heads,
                           .q = l->q + row * q,
                           .kv = &g->kv,
                           .m = n,
                           .heads = d->heads,
                           .scale = d->attention_scale,
                           .softcap = d->attention_softcap,
                           .window = g->model->layers[layer].window};
        omm_attention_forward(g->compute, &a);
        row += n;
    }
    graph_lap(g, OMM_TRAIN_ATTENTION);
}

void graph_activate(graph *g, const graph_layer *l, size_t rows) {
    const omm_model_dims *d = &g->model->dims;
    if (d->ffn == OMM_FFN_GEGLU)
        omm_geglu_forward(g->compute, g->act, l->gate, l->up, rows * d->d_ff);
    else
        omm_swiglu_forward(g->compute, g->act, l->gate, l->up, rows * d->d_ff);
}

void graph_forward_layer(graph *g, size_t layer, float *x_next) {
    const omm_model_dims *d = &g->model->dims;
    const omm_layer *w = &g->model->layers[layer];
    graph_layer *l = &g->layers[layer];
    graph_rows all = {g->rows, NULL}, rows = graph_rows_after_attention(g, layer);
    size_t width = d->d_model;
    const float *x = graph_step_input(g, l->x, w->attn_norm, g->rows);
    take_x(g, x, g->rows, &w->weights[OMM_LORA_Q], 3);
    const linear_place qkv[] = {{l->q_raw ? l->q_raw : l->q, OMM_LORA_Q},
                                {l->k_raw ? l->k_raw : l->k, OMM_LORA_K},
                                {l->v, OMM_LORA_V}};
    linears(g, x, all, layer, qkv, 3);
    if (d->norms_turned) graph_turn_all(g, layer, l->q_raw, l->k_raw, false);
    norm_heads(g, l->q, l->q_raw, w->q_norm, d->heads);
    norm_heads(g, l->k, l->k_raw, w->k_norm, d->kv_heads);
    attention(g, layer);
    const float *att = gather(g->picked_att, l->att, rows, (size_t)d->heads * d->head_dim);
    take_x(g, att, rows.count, &w->weights[OMM_LORA_O], 1);
    linear(g, l->o_raw ? l->o_raw : l->mid, att, rows, layer, OMM_LORA_O);
    add_step(g, l->mid, l->o_raw, w->attn_post_norm, gather(g->h, l->x, rows, width), rows.count);
    x = graph_step_input(g, l->mid, w->ffn_norm, rows.count);
    take_x(g, x, rows.count, &w->weights[OMM_LORA_GATE], 2);
    const linear_place gate_up[] = {{l->gate, OMM_LORA_GATE}, {l->up, OMM_LORA_UP}};
    linears(g, x, rows, layer, gate_up, 2);
    graph_activate(g, l, rows.count);
    float *down = l->down_raw ? l->down_raw : x_next;
    if (down) take_x(g, g->act, rows.count, &w->weights[OMM_LORA_DOWN], 1);
    linear(g, down, g->act, rows, layer, OMM_LORA_DOWN);
    if (x_next) add_step(g, x_next, l->down_raw, w->ffn_post_norm, l->mid, rows.count);
}

static omm_err check_ids(const graph *g, const omm_example *x) {
    OMM_ASSERT(x->count <= g->seq_max);
    for (uint32_t i = 0; i < x->count; i++)
        if (x->ids[i] >= g->model->dims.vocab)
            return omm_raise(OMM_ERR_FORMAT, "token id %u; the model has %u", x->ids[i],
                             g->model->dims.vocab);
    return OMM_OK;
}

/* Chunks of tokens of a sequence, and of those of its rows that are judged. */
static void take_chunks(graph *g, size_t row, size_t picked) {
    while (row < g->rows) {
        const size_t before = picked;
        row = row + OMM_TOKEN_CHUNK < g->rows ? row + OMM_TOKEN_CHUNK : g->rows;
        g->ends[g->end_count++] = (uint32_t)row;
        while (picked < g->learned && g->picked_rows[picked] < row) picked++;
        if (picked > before) g->picked_ends[g->picked_end_count++] = (uint32_t)picked;
    }
}

/* Row i of a sequence predicts its token i + 1: its rows, up to the last that is judged (no later
 * one would change a loss or a gradient), and which are judged.  `token`: of its first, among all
 * tokens of the micro-batch. */
static void take_example(graph *g, size_t e, size_t token) {
    const omm_example *x = g->examples[e];
    const size_t first = g->rows, picked = g->learned;
    uint32_t used = x->count;
    while (used > 0 && !x->learn[used - 1]) used--;
    OMM_ASSERT(used > 1 && !x->learn[0]);
    g->counts[e] = used - 1; /* nobody reads what the last learned token predicts */
    OMM_ASSERT(g->rows + g->counts[e] <= g->rows_max);
    for (uint32_t i = 0; i < g->counts[e]; i++) {
        size_t row = g->rows + i;
        g->ids[row] = x->ids[i];
        g->tokens[row] = (uint32_t)(token + i);
        if (!x->learn[i + 1]) continue;
        g->picked_rows[g->learned] = (uint32_t)row;
        g->targets[g->learned++] = x->ids[i + 1];
    }
    g->rows += g->counts[e];
    take_chunks(g, first, picked);
}

static omm_err take_batch(graph *g, const omm_example *const *examples, size_t count) {
    size_t token = 0;
    g->examples = examples;
    g->example_count = count;
    g->rows = g->learned = g->end_count = g->picked_end_count = 0;
    for (size_t e = 0; e < count; e++) {
        OMM_TRY(check_ids(g, examples[e]));
        take_example(g, e, token);
        token += examples[e]->count;
    }
    return OMM_OK;
}

/* Losses of `n` judged rows from `first` on, and their dx, the gradient before the output norm. */
static void head_chunk(graph *g, float *nll, size_t first, size_t n, float loss_scale) {
    const omm_compute *c = g->compute;
    const omm_model *model = g->model;
    const size_t width = model->dims.d_model;
    const float *x = g->picked + first * width;
    omm_rmsnorm_forward(c, g->picked_norm, g->picked_r, x, model->output_norm, n, width,
                        model->dims.rms_eps);
    take_x(g, g->picked_norm, n, model->output, 1);
    product(g, g->logits, g->picked_norm, model->output, n);
    graph_judge(g, nll, g->logits, g->capped_logits, first, n, loss_scale);
    omm_linear_backward(c, g->picked_norm, g->logits, model->output, n, false);
    graph_rows_norm(g, g->dx + first * width, g->picked_norm, x, model->output_norm, g->picked_r, n,
                    width);
}

/* In chunks of equal size, so that none unpacks the output matrix for a few rows. */
static void head(graph *g, float *nll, float loss_scale) {
    const size_t chunks = (g->learned + g->head_rows - 1) / g->head_rows;
    memset(g->dx, 0, g->learned * g->model->dims.d_model * sizeof(float));
    for (size_t i = 0; i < chunks; i++) {
        const size_t first = g->learned * i / chunks, end = g->learned * (i + 1) / chunks;
        head_chunk(g, nll + first, first, end - first, loss_scale);
    }
}

omm_err graph_forward(graph *g, float *nll, const omm_example *const *examples, size_t count,
                      float loss_scale, const graph_dropout *dropout) {
    size_t layers = g->model->dims.layers;
    g->dropout = *dropout;
    OMM_TRY(take_batch(g, examples, count));
    const omm_model_dims *d = &g->model->dims;
    float *x = g->layers[0].x;
    omm_embed_forward(g->compute, x, &g->model->embed, g->ids, g->rows);
    if (d->embed_scale != 1) omm_vec_scale(g->compute, x, x, d->embed_scale, g->rows * d->d_model);
    for (size_t i = 0; i < layers; i++)
        graph_forward_layer(g, i, i + 1 < layers ? g->layers[i + 1].x : g->picked);
    graph_lap(g, OMM_TRAIN_ROWS);
    if (g->full)
        full_head(g, nll, loss_scale);
    else
        head(g, nll, loss_scale);
    graph_lap(g, OMM_TRAIN_HEAD);
    return OMM_OK;
}
