/* Logits are there of some rows at a time.  Backward goes where an adapter needs it and no further: below the lowest adapted product no weight is
 * read again, no attention and no layer is computed again, and nothing sums the gradient of a weight that
 * is frozen.  An adapter's products are done with its weight's: what it adds to y and dx in the same tiles, dA and
 * dB in the same pass over the pool.  Counted where the trainer calls what does the work; the linker puts __wrap_
 * there. */
#include "graph.h"
#include "test_model.h"

#include <string.h>

enum { LAYERS = 2, RANK = 3 };

#define BIT(target) (1U << OMM_LORA_##target)
#define FEED_FORWARD (BIT(GATE) | BIT(UP) | BIT(DOWN))
#define ALL OMM_LORA_ALL_TARGETS

/* Of one step. */
static struct counts {
    const omm_model *model;
    unsigned weights[LAYERS][OMM_LORA_TARGET_COUNT], output;
    unsigned paired[LAYERS][OMM_LORA_TARGET_COUNT]; /* of them, with the adapter's product */
    unsigned summed[LAYERS][OMM_LORA_TARGET_COUNT]; /* sums over tokens that went with them */
    unsigned forward[LAYERS][OMM_LORA_TARGET_COUNT], forward_paired[LAYERS][OMM_LORA_TARGET_COUNT];
    uint32_t adapted[LAYERS]; /* bits of targets */
    unsigned attention[LAYERS], again[LAYERS], sums;
    size_t logit_rows, logit_rows_most; /* in all; at once */
} s_counts;

typedef unsigned layer_counts[OMM_LORA_TARGET_COUNT];

static void count_weight(layer_counts *all, layer_counts *with_adapter, const omm_matrix *w,
                         bool paired) {
    for (size_t i = 0; i < LAYERS; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            if (w == &s_counts.model->layers[i].weights[t]) {
                all[i][t]++;
                with_adapter[i][t] += paired;
            }
}

static void count_sum(const omm_matrix *w) {
    for (size_t i = 0; i < LAYERS; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            s_counts.summed[i][t] += w == &s_counts.model->layers[i].weights[t];
}

static void count_backward(const omm_matrix *w, bool paired) {
    if (w == s_counts.model->output) s_counts.output++;
    count_weight(s_counts.weights, s_counts.paired, w, paired);
}

/* ---- in the place of what they are called by ------------------------------------------------- */
/* NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names */

void __real_omm_linear_backward(const omm_compute *c, float *dx, const float *dy,
                                const omm_matrix *w, size_t m, bool accumulate);
void __wrap_omm_linear_backward(const omm_compute *c, float *dx, const float *dy,
                                const omm_matrix *w, size_t m, bool accumulate);
void __real_omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                               size_t m, bool accumulate);
void __wrap_omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                               size_t m, bool accumulate);
void __real_omm_products(const omm_compute *c, const omm_product *products, size_t count);
void __wrap_omm_products(const omm_compute *c, const omm_product *products, size_t count);
void __real_graph_attention_backward(graph *g, size_t layer);
void __wrap_graph_attention_backward(graph *g, size_t layer);
void __real_graph_forward_layer(graph *g, size_t layer, float *x_next);
void __wrap_graph_forward_layer(graph *g, size_t layer, float *x_next);

void __wrap_omm_linear_backward(const omm_compute *c, float *dx, const float *dy,
                                const omm_matrix *w, size_t m, bool accumulate) {
    count_backward(w, false);
    __real_omm_linear_backward(c, dx, dy, w, m, accumulate);
}

void __wrap_omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                               size_t m, bool accumulate) {
    count_weight(s_counts.forward, s_counts.forward_paired, w, false);
    if (w == s_counts.model->output) {
        s_counts.logit_rows += m;
        if (m > s_counts.logit_rows_most) s_counts.logit_rows_most = m;
    }
    __real_omm_linear_forward(c, y, x, w, m, accumulate);
}

/* Sums are of A and B; that of a weight would have no rank on either side. */
void __wrap_omm_products(const omm_compute *c, const omm_product *products, size_t count) {
    unsigned sums = 0;
    for (size_t i = 0; i < count; i++) {
        if (products[i].kind != OMM_PRODUCT_CHUNKS) continue;
        CHECK_EQ(products[i].plain.m, RANK);
        sums++;
    }
    s_counts.sums += sums;
    for (size_t i = 0; i < count; i++) {
        const omm_product *p = &products[i];
        if (p->kind == OMM_PRODUCT_FORWARD)
            count_weight(s_counts.forward, s_counts.forward_paired, p->w, p->pair.k > 0);
        if (p->kind != OMM_PRODUCT_BACKWARD) continue;
        count_backward(p->w, p->pair.k > 0);
        for (unsigned k = 0; k < sums; k++) count_sum(p->w);
    }
    __real_omm_products(c, products, count);
}

void __wrap_graph_attention_backward(graph *g, size_t layer) {
    s_counts.attention[layer]++;
    __real_graph_attention_backward(g, layer);
}

void __wrap_graph_forward_layer(graph *g, size_t layer, float *x_next) {
    if (!x_next) s_counts.again[layer]++;
    __real_graph_forward_layer(g, layer, x_next);
}

/* NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming) */

/* ---- what is needed --------------------------------------------------------------------------- */

typedef struct wanted {
    const char *targets;
    uint32_t read[LAYERS];      /* bits of the weights that dx goes through */
    unsigned attention[LAYERS]; /* backward of it */
    unsigned first;             /* the lowest layer with anything at all */
} wanted;

static const wanted s_wanted[] = {
    {"blk.1.ffn_down", {0, 0}, {0, 0}, 1},
    {"blk.1.ffn_up", {0, BIT(DOWN)}, {0, 0}, 1},
    {"blk.1.attn_output", {0, FEED_FORWARD}, {0, 0}, 1},
    {"blk.1.attn_v", {0, FEED_FORWARD | BIT(O)}, {0, 1}, 1},
    {"blk.0.ffn_down", {0, ALL}, {0, 1}, 0},
    {"blk.0.ffn_gate", {BIT(DOWN), ALL}, {0, 1}, 0},
    {"blk.0.attn_q,blk.1.ffn_down", {FEED_FORWARD | BIT(O), ALL}, {1, 1}, 0},
    {"all", {FEED_FORWARD | BIT(O), ALL}, {1, 1}, 0},
};

static void train_one_step(test_rig *r, const char *targets, float dropout, uint32_t again) {
    omm_trainer *t = NULL;
    r->recipe = omm_recipe_default();
    r->recipe.rank = RANK;
    r->recipe.steps = 1;
    r->recipe.dropout = dropout;
    r->recipe.batch_tokens = r->recipe.micro_tokens = 4096; /* one micro-batch */
    CHECK_OK(omm_recipe_set_targets(&r->recipe, targets));
    omm_trainer_options options = test_rig_options(r);
    options.checkpoint_layers = again;
    CHECK_OK(omm_trainer_open(&t, &options));
    s_counts = (struct counts){.model = &r->model};
    const omm_lora *adapter = omm_trainer_adapter(t);
    for (size_t i = 0; i < adapter->tensor_count; i++)
        s_counts.adapted[adapter->tensors[i].layer] |= 1U << adapter->tensors[i].target;
    CHECK_OK(omm_trainer_step(t, NULL));
    omm_trainer_close(t);
}

/* Products are fused with the adapter's: forward always, backward without dropout. */
static void check(test_rig *r, const wanted *w, float dropout, uint32_t again) {
    train_one_step(r, w->targets, dropout, again);
    CHECK(s_counts.output > 0 && s_counts.sums > 0);
    for (size_t i = 0; i < LAYERS; i++) {
        CHECK_EQ(s_counts.attention[i], w->attention[i]);
        CHECK_EQ(s_counts.again[i], i < again && i >= w->first);
        const uint32_t paired = dropout > 0 ? 0 : w->read[i] & s_counts.adapted[i];
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const bool is_read = s_counts.weights[i][t] == 1;
            if (s_counts.weights[i][t] != (w->read[i] >> t & 1))
                fprintf(stderr, "targets %s: backward through layer %zu's %s: %s\n", w->targets, i,
                        omm_lora_target_tensor(t), is_read ? "not needed" : "missing, or twice");
            CHECK_EQ(s_counts.weights[i][t], w->read[i] >> t & 1);
            CHECK_EQ(s_counts.paired[i][t], paired >> t & 1);
            const bool is_adapted = (s_counts.adapted[i] >> t & 1) != 0;
            CHECK_EQ(s_counts.summed[i][t], is_read && is_adapted ? 2 : 0); /* dA, dB */
            const unsigned forward = s_counts.forward[i][t];
            CHECK(forward >= 1);
            CHECK_EQ(s_counts.forward_paired[i][t], is_adapted ? forward : 0);
        }
    }
}

/* ---- logits ----------------------------------------------------------------------------------- */

/* However many tokens are learned at once and however large the vocabulary: never more than 192 rows, and with a large one
 * 16. */
static void logits_of_some_rows(const test_rig *r) {
    enum { TOKENS = 500, MOST = 192, LEAST = 16, LARGE = 1 << 21 };
    uint32_t ids[TOKENS];
    uint8_t learn[TOKENS];
    float nll[TOKENS];
    omm_lora lora;
    graph g;
    graph_sizes sizes;
    for (uint32_t i = 0; i < TOKENS; i++) {
        ids[i] = i;
        learn[i] = i > 0;
    }
    const omm_example one = {.ids = ids, .learn = learn, .count = TOKENS}, *all = &one;
    const graph_dropout none = {.rate = 0};
    test_adapter(&lora, &r->model, RANK, ALL, 5);
    graph_options options = {.compute = &r->compute,
                             .model = &r->model,
                             .lora = &lora,
                             .rows_max = TOKENS,
                             .seq_max = TOKENS};
    CHECK_OK(graph_init(&g, &options));
    graph_set_adapter(&g, lora.values);
    s_counts = (struct counts){.model = &r->model};
    CHECK_OK(graph_forward(&g, nll, &all, 1, 1, &none));
    graph_fini(&g);
    CHECK_EQ(s_counts.logit_rows, TOKENS - 1);
    CHECK(s_counts.logit_rows_most <= MOST);
    CHECK_OK(graph_sizes_of(&sizes, &options, 1));
    CHECK_EQ(sizes.logits, MOST * (uint64_t)r->model.dims.vocab * sizeof(float));
    omm_model large = r->model; /* an outline: sizes alone */
    large.dims.vocab = LARGE;
    options.model = &large;
    CHECK_OK(graph_sizes_of(&sizes, &options, 1));
    CHECK_EQ(sizes.logits, LEAST * (uint64_t)LARGE * sizeof(float));
    omm_lora_fini(&lora);
}

int main(void) {
    test_rig r;
    test_rig_open(&r, 3);
    CHECK_EQ(r.model.dims.layers, LAYERS);
    for (size_t i = 0; i < sizeof s_wanted / sizeof *s_wanted; i++) {
        check(&r, &s_wanted[i], 0, 0);
        check(&r, &s_wanted[i], 0.1F, 1);
    }
    logits_of_some_rows(&r);
    test_rig_close(&r);
    return 0;
}
