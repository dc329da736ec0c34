/* graph.c - memory and forward pass of the training graph. */
#include "graph.h"

#include "omm/mem.h"

#include <string.h>

enum { HEAD_FLOATS = 1 << 18 }; /* logits at once: 1 MiB, whatever the vocabulary */

/* --- memory -------------------------------------------------------------------------------- */

/* Carves one block; the first pass, with base NULL, only counts. */
typedef struct carver {
    float *base;
    size_t used;
} carver;

static float *carve(carver *c, size_t count) {
    float *at = c->base ? c->base + c->used : NULL;
    c->used += (count + 15) / 16 * 16; /* 64-byte steps */
    return at;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static void carve_layer(graph *g, carver *c, graph_layer *l, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    size_t rows = g->rows_max, q = (size_t)d->heads * d->head_dim;
    size_t kv = (size_t)d->kv_heads * d->head_dim;
    l->x = carve(c, rows * d->d_model);
    l->q = carve(c, rows * q);
    l->k = carve(c, rows * kv);
    l->v = carve(c, rows * kv);
    l->att = carve(c, rows * q);
    l->lse = carve(c, rows * d->heads);
    l->mid = carve(c, rows * d->d_model);
    l->gate = carve(c, rows * d->d_ff);
    l->up = carve(c, rows * d->d_ff);
    const omm_layer *w = &g->model->layers[layer];
    if (w->q_norm) l->q_raw = carve(c, rows * q);
    if (w->k_norm) l->k_raw = carve(c, rows * kv);
    if (w->attn_post_norm) l->o_raw = carve(c, rows * d->d_model);
    if (w->ffn_post_norm) l->down_raw = carve(c, rows * d->d_model);
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (graph_pair_of(g, layer, (omm_lora_target)t)->a.rows)
            l->z[t] = carve(c, rows * g->spec.rank);
}

static void carve_all(graph *g, carver *c) {
    const omm_model_dims *d = &g->model->dims;
    size_t rows = g->rows_max, model = d->d_model, ff = d->d_ff;
    size_t q = (size_t)d->heads * d->head_dim, kv = (size_t)d->kv_heads * d->head_dim;
    size_t widest = max_size(max_size(model, ff), q), block = (size_t)OMM_KV_BLOCK * g->seq_max;
    for (size_t i = 0; i < d->layers; i++) carve_layer(g, c, &g->layers[i], i);
    g->h = carve(c, rows * max_size(model, q));
    g->act = carve(c, rows * ff);
    g->exp_gate = carve(c, rows * ff);
    g->dropped = carve(c, rows * widest);
    g->dx = carve(c, rows * model);
    g->dh = carve(c, rows * model);
    g->dact = carve(c, rows * ff);
    g->dq = carve(c, rows * q);
    g->dk = carve(c, rows * kv);
    g->dv = carve(c, rows * kv);
    g->datt = carve(c, rows * q);
    g->dz = carve(c, rows * g->spec.rank);
    g->row_dot = carve(c, rows * d->heads);
    g->picked = carve(c, rows * model);
    g->picked_att = carve(c, rows * q);
    g->picked_norm = carve(c, g->head_rows * model);
    g->picked_r = carve(c, rows);
    g->logits = carve(c, g->head_rows * d->vocab);
    if (d->output_softcap != 0) g->capped_logits = carve(c, g->head_rows * d->vocab);
    g->lse_head = carve(c, g->head_rows);
    g->scores = carve(c, (size_t)g->workers * block);
    g->dscores = carve(c, (size_t)g->workers * block);
    if (d->attention_softcap != 0) g->capped = carve(c, (size_t)g->workers * block);
    g->lse_rows = carve(c, (size_t)g->workers * OMM_KV_BLOCK);
    g->random = carve(c, widest);
    g->ids = (uint32_t *)carve(c, rows);
    g->targets = (uint32_t *)carve(c, rows);
    g->picked_rows = (uint32_t *)carve(c, rows);
    g->tokens = (uint32_t *)carve(c, rows);
    g->counts = (uint32_t *)carve(c, rows);
}

static omm_err init_memory(graph *g) {
    carver count = {0};
    carve_all(g, &count);
    g->memory = omm_compute_take(g->compute, count.used, sizeof(float));
    if (!g->memory)
        return omm_raise(OMM_ERR_NOMEM,
                         "no memory for %zu MB of activations; fewer micro_tokens "
                         "need less",
                         count.used * sizeof(float) >> 20);
    carver real = {.base = g->memory};
    carve_all(g, &real);
    OMM_ASSERT(real.used == count.used);
    return OMM_OK;
}

/* --- the adapter --------------------------------------------------------------------------- */

/* Zero matrices of the right shapes, and their places in the canonical order. */
static omm_err init_pairs(graph *g) {
    const omm_lora_shape *shape = &g->model->lora_shape;
    size_t count = (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT, offset = 0, widest = 0;
    uint32_t r = g->spec.rank;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        widest = max_size(widest, max_size(shape->d_in[t], shape->d_out[t]));
    float *zeros = omm_alloc(widest * r, sizeof *zeros);
    g->pairs = omm_alloc(count, sizeof *g->pairs);
    omm_err err = OMM_OK;
    if (!zeros || !g->pairs) err = omm_raise(OMM_ERR_NOMEM, "no memory for the adapter");
    for (size_t i = 0; i < count && err == OMM_OK; i++) {
        unsigned t = (unsigned)(i % OMM_LORA_TARGET_COUNT);
        graph_pair *p = &g->pairs[i];
        if (!(g->spec.targets >> t & 1U)) continue;
        p->a_offset = offset;
        p->b_offset = offset + (size_t)r * shape->d_in[t];
        offset = p->b_offset + (size_t)r * shape->d_out[t];
        err = omm_matrix_pack_f32(&p->a, r, shape->d_in[t], zeros);
        if (err == OMM_OK) err = omm_matrix_pack_f32(&p->b, shape->d_out[t], r, zeros);
    }
    omm_free(zeros);
    return err;
}

/* The F32 strip layout of omm/quant.h: [strip][column][16], lane = row. */
static void repack(omm_matrix *m, const float *values) {
    for (uint32_t s = 0; s < m->strips; s++) {
        float *strip = (float *)(void *)(m->data + s * m->strip_bytes);
        uint32_t first = s * OMM_STRIP, rows = m->rows - first;
        if (rows > OMM_STRIP) rows = OMM_STRIP;
        for (uint32_t lane = 0; lane < rows; lane++)
            for (uint32_t col = 0; col < m->cols; col++)
                strip[(size_t)col * OMM_STRIP + lane] =
                    values[(size_t)(first + lane) * m->cols + col];
    }
}

void graph_set_adapter(graph *g, const float *values) {
    size_t count = (size_t)g->model->dims.layers * OMM_LORA_TARGET_COUNT;
    for (size_t i = 0; i < count; i++) {
        graph_pair *p = &g->pairs[i];
        if (!p->a.rows) continue;
        repack(&p->a, values + p->a_offset);
        repack(&p->b, values + p->b_offset);
    }
}

/* --- open and close -------------------------------------------------------------------------- */

static omm_err init_solo(graph *g) {
    g->solo = omm_alloc(g->workers, sizeof *g->solo);
    if (!g->solo) return omm_raise(OMM_ERR_NOMEM, "no memory for %u workers", g->workers);
    for (unsigned i = 0; i < g->workers; i++)
        OMM_TRY(omm_compute_init(&g->solo[i], NULL, g->compute->isa));
    return OMM_OK;
}

static omm_err init_rope(graph *g) {
    const omm_model_dims *d = &g->model->dims;
    OMM_TRY(omm_model_rope(&g->rope[0], g->model, (uint32_t)g->seq_max, false));
    if (d->window == 0 || d->rope_base_local == d->rope_base) return OMM_OK;
    return omm_model_rope(&g->rope[1], g->model, (uint32_t)g->seq_max, true);
}

static omm_err init_parts(graph *g) {
    const omm_model_dims *d = &g->model->dims;
    OMM_TRY(init_solo(g));
    OMM_TRY(init_rope(g));
    OMM_TRY(omm_kv_init(&g->kv, OMM_KV_F32, d->kv_heads, d->head_dim, (uint32_t)g->seq_max));
    OMM_TRY(init_pairs(g));
    g->layers = omm_alloc(d->layers, sizeof *g->layers);
    if (!g->layers) return omm_raise(OMM_ERR_NOMEM, "no memory for %u layers", d->layers);
    return init_memory(g);
}

omm_err graph_init(graph *g, const graph_options *options) {
    OMM_ASSERT(options->rows_max >= options->seq_max);
    *g = (graph){
        .compute = options->compute,
        .model = options->model,
        .grad = grad_kernels_of(options->compute->isa),
        .workers = omm_pool_threads(options->compute->pool),
        .spec = options->spec,
        .scale = options->spec.alpha / (float)options->spec.rank,
        .rows_max = options->rows_max,
        .seq_max = options->seq_max,
    };
    size_t head = HEAD_FLOATS / options->model->dims.vocab;
    g->head_rows = head < 16 ? 16 : head;
    if (g->head_rows > g->rows_max) g->head_rows = g->rows_max;
    omm_err err = init_parts(g);
    if (err != OMM_OK) graph_fini(g);
    return err;
}

void graph_fini(graph *g) {
    size_t pairs = g->pairs ? (size_t)g->model->dims.layers * OMM_LORA_TARGET_COUNT : 0;
    for (size_t i = 0; i < pairs; i++) {
        omm_matrix_fini(&g->pairs[i].a);
        omm_matrix_fini(&g->pairs[i].b);
    }
    for (unsigned i = 0; g->solo && i < g->workers; i++) omm_compute_fini(&g->solo[i]);
    omm_rope_fini(&g->rope[0]);
    omm_rope_fini(&g->rope[1]);
    omm_kv_fini(&g->kv);
    omm_free(g->pairs);
    omm_free(g->layers);
    omm_free(g->solo);
    if (g->memory) omm_compute_give(g->compute, g->memory);
    *g = (graph){0};
}

/* --- forward ------------------------------------------------------------------------------- */

const omm_rope *graph_rope(const graph *g, size_t layer) {
    return &g->rope[g->model->layers[layer].window > 0 && g->rope[1].positions > 0];
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

static void add_adapter(graph *g, float *y, const float *x, graph_rows rows, size_t layer,
                        omm_lora_target target) {
    const omm_compute *c = g->compute;
    graph_pair *p = graph_pair_of(g, layer, target);
    if (!p->a.rows) return;
    float *z = g->layers[layer].z[target];
    omm_linear_forward(c, z, graph_dropped(g, x, rows, layer, target), &p->a, rows.count, false);
    omm_vec_scale(c, z, z, g->scale, rows.count * g->spec.rank);
    omm_linear_forward(c, y, z, &p->b, rows.count, true);
}

/* y = W x + adapter + bias, over the rows given; keeps z. */
static void linear(graph *g, float *y, const float *x, graph_rows rows, size_t layer,
                   omm_lora_target target) {
    const omm_layer *l = &g->model->layers[layer];
    const omm_matrix *w = &l->weights[target];
    omm_linear_forward(g->compute, y, x, w, rows.count, false);
    add_adapter(g, y, x, rows, layer, target);
    if (l->bias[target]) omm_row_add(g->compute, y, l->bias[target], rows.count, w->rows);
}

/* y = rmsnorm(raw, w), n wide; nothing without w, where y has been written already. */
static void norm(graph *g, float *y, const float *raw, const float *w, size_t rows, size_t n) {
    if (w) omm_rmsnorm_forward(g->compute, y, NULL, raw, w, rows, n, g->model->dims.rms_eps);
}

/* The rows of `from` that `rows` names: `from` itself, or a copy of them in `room`. */
static const float *gather(float *room, const float *from, graph_rows rows, size_t width) {
    if (!rows.map) return from;
    for (size_t i = 0; i < rows.count; i++)
        memcpy(room + i * width, from + rows.map[i] * width, width * sizeof(float));
    return room;
}

static void attention(graph *g, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const omm_rope *rope = graph_rope(g, layer);
    graph_layer *l = &g->layers[layer];
    size_t q = (size_t)d->heads * d->head_dim, kv = (size_t)d->kv_heads * d->head_dim, row = 0;
    for (size_t i = 0; i < g->example_count; i++) {
        size_t n = g->counts[i];
        omm_rope_apply(g->compute, l->q + row * q, rope, n, d->heads, 0, false);
        omm_rope_apply(g->compute, l->k + row * kv, rope, n, d->kv_heads, 0, false);
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
}

void graph_activate(graph *g, const graph_layer *l, size_t rows) {
    const omm_model_dims *d = &g->model->dims;
    if (d->ffn == OMM_FFN_GEGLU)
        omm_geglu_forward(g->compute, g->act, l->gate, l->up, rows * d->d_ff);
    else
        omm_swiglu_forward(g->compute, g->act, l->gate, l->up, rows * d->d_ff);
}

static void forward_layer(graph *g, size_t layer, float *x_next) {
    const omm_compute *c = g->compute;
    const omm_model_dims *d = &g->model->dims;
    const omm_layer *w = &g->model->layers[layer];
    graph_layer *l = &g->layers[layer];
    graph_rows all = {g->rows, NULL}, rows = graph_rows_after_attention(g, layer);
    size_t width = d->d_model;
    omm_rmsnorm_forward(c, g->h, NULL, l->x, w->attn_norm, g->rows, width, d->rms_eps);
    linear(g, l->q_raw ? l->q_raw : l->q, g->h, all, layer, OMM_LORA_Q);
    linear(g, l->k_raw ? l->k_raw : l->k, g->h, all, layer, OMM_LORA_K);
    linear(g, l->v, g->h, all, layer, OMM_LORA_V);
    norm(g, l->q, l->q_raw, w->q_norm, g->rows * d->heads, d->head_dim);
    norm(g, l->k, l->k_raw, w->k_norm, g->rows * d->kv_heads, d->head_dim);
    attention(g, layer);
    const float *att = gather(g->picked_att, l->att, rows, (size_t)d->heads * d->head_dim);
    linear(g, l->o_raw ? l->o_raw : l->mid, att, rows, layer, OMM_LORA_O);
    norm(g, l->mid, l->o_raw, w->attn_post_norm, rows.count, width);
    omm_vec_add(c, l->mid, gather(g->h, l->x, rows, width), rows.count * width);
    omm_rmsnorm_forward(c, g->h, NULL, l->mid, w->ffn_norm, rows.count, width, d->rms_eps);
    linear(g, l->gate, g->h, rows, layer, OMM_LORA_GATE);
    linear(g, l->up, g->h, rows, layer, OMM_LORA_UP);
    graph_activate(g, l, rows.count);
    linear(g, l->down_raw ? l->down_raw : x_next, g->act, rows, layer, OMM_LORA_DOWN);
    norm(g, x_next, l->down_raw, w->ffn_post_norm, rows.count, width);
    omm_vec_add(c, x_next, l->mid, rows.count * width);
}

static omm_err check_ids(const graph *g, const omm_example *x) {
    OMM_ASSERT(x->count <= g->seq_max);
    for (uint32_t i = 0; i < x->count; i++)
        if (x->ids[i] >= g->model->dims.vocab)
            return omm_raise(OMM_ERR_FORMAT, "token id %u; the model has %u", x->ids[i],
                             g->model->dims.vocab);
    return OMM_OK;
}

/* Row i of a sequence predicts its token i + 1: its rows, up to the last that is judged (no later
 * one would change a loss or a gradient), and which are judged.  `token`: of its first, among all
 * tokens of the micro-batch. */
static void take_example(graph *g, size_t e, size_t token) {
    const omm_example *x = g->examples[e];
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
}

static omm_err take_batch(graph *g, const omm_example *const *examples, size_t count) {
    size_t token = 0;
    g->examples = examples;
    g->example_count = count;
    g->rows = g->learned = 0;
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
    size_t width = model->dims.d_model, vocab = model->dims.vocab;
    const float *x = g->picked + first * width;
    omm_rmsnorm_forward(c, g->picked_norm, g->picked_r, x, model->output_norm, n, width,
                        model->dims.rms_eps);
    omm_linear_forward(c, g->logits, g->picked_norm, model->output, n, false);
    const float cap = model->dims.output_softcap;
    if (cap != 0) {
        omm_vec_softcap(c, g->logits, g->logits, cap, n * vocab);
        memcpy(g->capped_logits, g->logits, n * vocab * sizeof(float));
    }
    omm_row_lse(c, NULL, g->lse_head, g->logits, n, vocab);
    for (size_t i = 0; i < n; i++)
        nll[i] = g->lse_head[i] - g->logits[i * vocab + g->targets[first + i]];
    omm_row_exp(c, g->logits, g->logits, g->lse_head, n, vocab, vocab, vocab);
    omm_vec_scale(c, g->logits, g->logits, loss_scale, n * vocab);
    for (size_t i = 0; i < n; i++) g->logits[i * vocab + g->targets[first + i]] -= loss_scale;
    if (cap != 0) g->grad->softcap(g->logits, g->capped_logits, 1.0F / cap, n * vocab);
    omm_linear_backward(c, g->picked_norm, g->logits, model->output, n, false);
    for (size_t i = 0; i < n; i++)
        g->grad->rmsnorm(g->dx + (first + i) * width, g->picked_norm + i * width, x + i * width,
                         model->output_norm, g->picked_r[i], width);
}

static void head(graph *g, float *nll, float loss_scale) {
    memset(g->dx, 0, g->learned * g->model->dims.d_model * sizeof(float));
    for (size_t first = 0; first < g->learned; first += g->head_rows) {
        size_t n = g->learned - first;
        if (n > g->head_rows) n = g->head_rows;
        head_chunk(g, nll + first, first, n, loss_scale);
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
        forward_layer(g, i, i + 1 < layers ? g->layers[i + 1].x : g->picked);
    head(g, nll, loss_scale);
    return OMM_OK;
}
