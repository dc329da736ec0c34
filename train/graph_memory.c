/* graph_memory.c - what a training graph holds: activations, the adapter's places, rotary tables. */
#include "graph.h"

#include "omm/mem.h"

#include <string.h>

/* Logits at once, whatever the vocabulary: 64 MiB.  So many judged rows share one pass over the
 * output matrix; from about a hundred on, unpacking its weights costs little. */
enum { HEAD_FLOATS = 1 << 24, HEAD_ROWS_MIN = 16, HEAD_ROWS_MAX = 192 };

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

/* Room that z needs: the last layer lends it to those that are computed again. */
static size_t z_rank(const graph *g, size_t layer, size_t target) {
    size_t rank = g->pairs[layer * OMM_LORA_TARGET_COUNT + target].rank;
    if (layer + 1 < g->model->dims.layers) return rank;
    for (size_t i = 0; i < g->checkpoint_layers; i++)
        rank = max_size(rank, g->pairs[i * OMM_LORA_TARGET_COUNT + target].rank);
    return rank;
}

static void carve_layer(graph *g, carver *c, graph_layer *l, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    size_t rows = g->rows_max, q = (size_t)d->heads * d->head_dim;
    size_t kv = (size_t)d->kv_heads * d->head_dim;
    l->q = carve(c, rows * q);
    l->k = carve(c, rows * kv);
    l->v = carve(c, rows * kv);
    l->att = carve(c, rows * q);
    l->lse = carve(c, rows * d->heads);
    l->mid = carve(c, rows * d->d_model);
    l->gate = carve(c, rows * d->d_ff);
    l->up = carve(c, rows * d->d_ff);
    if (g->model->head_norms) l->q_raw = carve(c, rows * q);
    if (g->model->head_norms) l->k_raw = carve(c, rows * kv);
    if (g->model->post_norms) l->o_raw = carve(c, rows * d->d_model);
    if (g->model->post_norms) l->down_raw = carve(c, rows * d->d_model);
    for (size_t t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const size_t rank = z_rank(g, layer, t);
        if (rank > 0) l->z[t] = carve(c, rows * rank);
    }
}

/* Layers that keep their input alone use the place of the last one, which backward is done with
 * before it comes to them. */
static void carve_layers(graph *g, carver *c) {
    const omm_model_dims *d = &g->model->dims;
    for (size_t i = g->checkpoint_layers; i < d->layers; i++) carve_layer(g, c, &g->layers[i], i);
    for (size_t i = 0; i < g->checkpoint_layers; i++) g->layers[i] = g->layers[d->layers - 1];
    for (size_t i = 0; i < d->layers; i++) g->layers[i].x = carve(c, g->rows_max * d->d_model);
}

static void carve_all(graph *g, carver *c) {
    const omm_model_dims *d = &g->model->dims;
    size_t rows = g->rows_max, model = d->d_model, ff = d->d_ff;
    size_t q = (size_t)d->heads * d->head_dim, kv = (size_t)d->kv_heads * d->head_dim;
    size_t widest = omm_model_widest_input(d), block = (size_t)OMM_KV_BLOCK * g->seq_max;
    carve_layers(g, c);
    g->h = carve(c, rows * max_size(model, q));
    g->act = carve(c, rows * ff);
    g->dgate = carve(c, rows * ff);
    if (g->drops) g->dropped = carve(c, rows * widest);
    g->dx = carve(c, rows * model);
    g->dh = carve(c, rows * model);
    g->dact = carve(c, rows * ff);
    g->dq = carve(c, rows * q);
    g->dk = carve(c, rows * kv);
    g->dv = carve(c, rows * kv);
    g->datt = carve(c, rows * q);
    g->dz = carve(c, rows * g->rank_max);
    g->row_dot = carve(c, rows * d->heads);
    g->picked = carve(c, rows * model);
    g->picked_att = carve(c, rows * q);
    g->picked_norm = carve(c, g->head_rows * model);
    g->picked_r = carve(c, rows);
    g->logits = carve(c, g->head_rows * d->vocab);
    if (d->output_softcap != 0) g->capped_logits = carve(c, (size_t)g->workers * d->vocab);
    g->scores = carve(c, (size_t)g->workers * block);
    g->dscores = carve(c, (size_t)g->workers * block);
    if (d->attention_softcap != 0) g->capped = carve(c, (size_t)g->workers * block);
    g->lse_rows = carve(c, (size_t)g->workers * OMM_KV_BLOCK);
    if (g->drops) g->random = carve(c, widest);
    g->ids = (uint32_t *)carve(c, rows);
    g->targets = (uint32_t *)carve(c, rows);
    g->picked_rows = (uint32_t *)carve(c, rows);
    g->tokens = (uint32_t *)carve(c, rows);
    g->counts = (uint32_t *)carve(c, rows);
    g->ends = (uint32_t *)carve(c, rows);
    g->picked_ends = (uint32_t *)carve(c, rows);
}

/* What is too large to be kept for the next graph gets large pages. */
static bool is_large(const graph *g) {
    return g->memory_bytes > OMM_COMPUTE_SPARE_BYTES_MAX;
}

static omm_err init_memory(graph *g) {
    carver count = {0};
    carve_all(g, &count);
    g->memory_bytes = count.used * sizeof(float);
    g->memory = is_large(g) ? omm_alloc_huge(g->memory_bytes)
                            : omm_compute_take(g->compute, g->memory_bytes, 1);
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

/* Places in the canonical order: A, then B, pair after pair. */
static void add_pair(graph *g, size_t *offset, size_t at, uint32_t rank, float scale) {
    const omm_lora_shape *shape = &g->model->lora_shape;
    const size_t t = at % OMM_LORA_TARGET_COUNT, layer = at / OMM_LORA_TARGET_COUNT;
    graph_pair *p = &g->pairs[at];
    *p = (graph_pair){rank, shape->d_in[t], shape->d_out[t], scale, *offset, 0};
    p->b_offset = *offset + (size_t)rank * p->d_in;
    *offset = p->b_offset + (size_t)rank * p->d_out;
    if (layer < g->first_layer) g->first_layer = layer;
    if (rank > g->rank_max) g->rank_max = rank;
}

static omm_err init_pairs(graph *g, const graph_options *o) {
    const uint32_t layers = g->model->lora_shape.layer_count;
    const size_t count = (size_t)layers * OMM_LORA_TARGET_COUNT;
    size_t offset = 0;
    g->pairs = omm_alloc(count, sizeof *g->pairs);
    if (!g->pairs) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu pairs", count);
    g->rank_max = 1;
    g->first_layer = layers;
    for (size_t i = 0; i < count; i++) {
        const uint32_t slot = o->lora ? o->lora->slots[i] : 0;
        const omm_lora_tensor *a = slot ? &o->lora->tensors[slot - 1] : NULL;
        if (a) add_pair(g, &offset, i, a->rows, a->scale);
        if (!o->lora && (o->spec.targets >> i % OMM_LORA_TARGET_COUNT & 1U))
            add_pair(g, &offset, i, o->spec.rank, o->spec.alpha / (float)o->spec.rank);
    }
    if (g->first_layer == layers) g->first_layer = 0; /* all weights, or none */
    /* Backward never comes to those below: they keep nothing, and are not computed again. */
    if (g->checkpoint_layers < g->first_layer) g->checkpoint_layers = g->first_layer;
    return OMM_OK;
}

bool graph_adapts(const graph *g, size_t layer, uint32_t targets) {
    for (size_t t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if ((targets >> t & 1U) && g->pairs[layer * OMM_LORA_TARGET_COUNT + t].rank) return true;
    return false;
}

void graph_set_adapter(graph *g, const float *values) {
    g->adapter = values;
}

/* --- open and close -------------------------------------------------------------------------- */

static omm_err init_solo(graph *g) {
    g->solo = omm_alloc(g->workers, sizeof *g->solo);
    if (!g->solo) return omm_raise(OMM_ERR_NOMEM, "no memory for %u workers", g->workers);
    for (unsigned i = 0; i < g->workers; i++)
        OMM_TRY(omm_compute_init(&g->solo[i], NULL, g->compute->isa));
    return OMM_OK;
}

static bool has_local_rope(const omm_model *model) {
    return model->dims.window > 0 && model->dims.rope_local;
}

static omm_err init_rope(graph *g, bool far) {
    const uint32_t positions = (uint32_t)g->seq_max;
    OMM_TRY(omm_model_rope(&g->rope[0], g->model, positions, far, false));
    if (!has_local_rope(g->model)) return OMM_OK;
    return omm_model_rope(&g->rope[1], g->model, positions, far, true);
}

static omm_err init_parts(graph *g, const graph_options *o) {
    const omm_model_dims *d = &g->model->dims;
    OMM_TRY(init_solo(g));
    OMM_TRY(init_rope(g, omm_model_rope_far(g->model, o->rope_positions)));
    OMM_TRY(omm_kv_init(&g->kv, OMM_KV_F32, d->kv_heads, d->head_dim, (uint32_t)g->seq_max));
    OMM_TRY(init_pairs(g, o));
    g->layers = omm_alloc(d->layers, sizeof *g->layers);
    if (!g->layers) return omm_raise(OMM_ERR_NOMEM, "no memory for %u layers", d->layers);
    if (o->q8) OMM_TRY(omm_q8_rows_init(&g->q8, g->rows_max, omm_model_widest_input(d)));
    return init_memory(g);
}

/* All that is known before memory is taken. */
static graph graph_of(const graph_options *o, unsigned workers) {
    const size_t layers = o->model->dims.layers, vocab = o->model->dims.vocab;
    size_t head = max_size(HEAD_FLOATS / vocab, HEAD_ROWS_MIN);
    if (head > HEAD_ROWS_MAX) head = HEAD_ROWS_MAX;
    OMM_ASSERT(o->rows_max >= o->seq_max);
    return (graph){
        .compute = o->compute,
        .model = o->model,
        .workers = workers,
        .rows_max = o->rows_max,
        .seq_max = o->seq_max,
        .head_rows = head < o->rows_max ? head : o->rows_max,
        .checkpoint_layers = o->checkpoint_layers < layers ? o->checkpoint_layers : layers - 1,
        .drops = o->drops,
        .watch = o->watch,
    };
}

omm_err graph_init(graph *g, const graph_options *options) {
    *g = graph_of(options, omm_pool_threads(options->compute->pool));
    g->grad = grad_kernels_of(options->compute->isa);
    omm_err err = init_parts(g, options);
    if (err != OMM_OK) graph_fini(g);
    return err;
}

static size_t rope_bytes(const graph *g) {
    const omm_model_dims *d = &g->model->dims;
    const size_t tables = has_local_rope(g->model) ? 2 : 1;
    return tables * 2 * g->seq_max * d->rotated * sizeof(float);
}

static size_t kv_bytes(const graph *g) {
    const omm_model_dims *d = &g->model->dims;
    const size_t block = omm_kv_block_bytes(OMM_KV_F32, d->kv_heads, d->head_dim);
    return (g->seq_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK * omm_kv_pool_made_bytes(block);
}

omm_err graph_sizes_of(graph_sizes *out, const graph_options *options, unsigned workers) {
    const omm_model_dims *d = &options->model->dims;
    graph g = graph_of(options, workers);
    carver c = {0};
    omm_err err = init_pairs(&g, options);
    g.layers = omm_alloc(d->layers, sizeof *g.layers);
    if (err == OMM_OK && !g.layers) err = omm_raise(OMM_ERR_NOMEM, "no memory for a plan");
    if (err == OMM_OK) {
        carve_all(&g, &c);
        *out =
            (graph_sizes){.logits = (g.head_rows + (d->output_softcap != 0 ? workers : 0)) *
                                    (uint64_t)d->vocab * 4,
                          .work = workers * omm_compute_bytes(1) + rope_bytes(&g) + kv_bytes(&g)};
        out->activations = c.used * sizeof(float) - out->logits;
        if (options->q8) out->work += omm_q8_rows_bytes(g.rows_max, omm_model_widest_input(d));
    }
    omm_free(g.pairs);
    omm_free(g.layers);
    return err;
}

void graph_fini(graph *g) {
    for (unsigned i = 0; g->solo && i < g->workers; i++) omm_compute_fini(&g->solo[i]);
    omm_rope_fini(&g->rope[0]);
    omm_rope_fini(&g->rope[1]);
    omm_kv_fini(&g->kv);
    omm_q8_rows_fini(&g->q8);
    omm_free(g->pairs);
    omm_free(g->layers);
    omm_free(g->solo);
    if (g->memory && is_large(g)) omm_free_huge(g->memory, g->memory_bytes);
    if (g->memory && !is_large(g)) omm_compute_give(g->compute, g->memory);
    *g = (graph){0};
}
