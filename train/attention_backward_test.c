/* Backward of attention has the same bytes whether its chains are done one after the other (one worker) or their
 * units side by side: one key/value head and several, windows, lengths about a block and a piece, several
 * sequences, more workers than units.  What it computes is twin_test's and gradient_test's to say. */
#include "graph.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/rng.h"
#include "test_model.h"

#include <string.h>

enum { SEQUENCES_MAX = 4, REPEATS = 2 };

typedef struct setting {
    uint32_t heads, kv_heads, window;
    float cap;
    uint32_t counts[SEQUENCES_MAX]; /* tokens of each sequence; 0: no more */
} setting;

static const setting s_settings[] = {
    {4, 2, 0, 0, {1}},           {4, 2, 0, 0, {64, 63}}, {4, 1, 0, 0, {65}},
    {4, 4, 0, 0, {129}},         {4, 1, 0, 0, {321}},    {9, 3, 0, 0, {512}},
    {6, 2, 0, 2, {300, 1, 128}}, {4, 2, 1, 0, {200}},    {4, 1, 40, 0, {257, 100}},
    {4, 2, 64, 1.5F, {320}},     {4, 2, 65, 0, {320}},   {4, 1, 200, 0, {500, 64, 130}},
    {2, 1, 0, 0, {2200}},    /* a sixteenth is more than two blocks */
    {2, 1, 1000, 0, {2200}}, /* and not all of it is seen */
};

static size_t sequences(const setting *s) {
    size_t n = 0;
    while (n < SEQUENCES_MAX && s->counts[n]) n++;
    return n;
}

static void fill(float *out, size_t count, const omm_rng *lane, float scale) {
    for (size_t i = 0; i < count; i++) {
        uint32_t word = 0;
        omm_rng_fill_u32(&word, lane, i, 1);
        out[i] = scale * ((float)(word >> 8) / (float)(1u << 23) - 1);
    }
}

static omm_rng lane_of(uint32_t number) {
    const omm_seed seed = omm_seed_from_u64(7);
    return omm_rng_init(&seed, OMM_PURPOSE_SYNTH, number, 0);
}

static void fill_all(graph *g) {
    const omm_model_dims *d = &g->model->dims;
    const size_t q = g->rows * d->heads * d->head_dim, kv = g->rows * d->kv_heads * d->head_dim;
    const graph_layer *l = &g->layers[0];
    float *const of_q[] = {l->q, l->att, g->datt}, *const of_kv[] = {l->k, l->v};
    uint32_t number = 0;
    for (size_t i = 0; i < 3; i++) {
        const omm_rng lane = lane_of(number++);
        fill(of_q[i], q, &lane, 1);
    }
    for (size_t i = 0; i < 2; i++) {
        const omm_rng lane = lane_of(number++);
        fill(of_kv[i], kv, &lane, 1);
    }
    const omm_rng lane = lane_of(number);
    fill(l->lse, g->rows * d->heads, &lane, 1);
}

static void add_rows(omm_hasher *h, const float *values, size_t rows, size_t n) {
    omm_hasher_update(h, omm_bytes_of(values, rows * n * sizeof *values));
}

static omm_digest digest_of(const graph *g) {
    const omm_model_dims *d = &g->model->dims;
    omm_hasher h;
    omm_hasher_init(&h);
    add_rows(&h, g->dq, g->rows, (size_t)d->heads * d->head_dim);
    add_rows(&h, g->dk, g->rows, (size_t)d->kv_heads * d->head_dim);
    add_rows(&h, g->dv, g->rows, (size_t)d->kv_heads * d->head_dim);
    return omm_hasher_final(&h);
}

/* dq, dk and dv with so many workers, by some of them several times; *digest says what they are. */
static void check_with(omm_digest *digest, const omm_model *model, const setting *s,
                       unsigned workers) {
    omm_pool *pool = NULL;
    omm_compute compute;
    graph g;
    uint32_t rows = 0, longest = 0;
    for (size_t i = 0; i < sequences(s); i++) {
        rows += s->counts[i];
        if (s->counts[i] > longest) longest = s->counts[i];
    }
    CHECK_OK(omm_pool_open(&pool, workers));
    omm_isa isa = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    const graph_options options = {.compute = &compute,
                                   .model = model,
                                   .spec = {.rank = 2, .alpha = 2, .targets = 1},
                                   .rows_max = rows,
                                   .seq_max = longest};
    CHECK_OK(graph_init(&g, &options));
    g.rows = rows;
    g.example_count = sequences(s);
    memcpy(g.counts, s->counts, g.example_count * sizeof *s->counts);
    fill_all(&g);
    for (unsigned i = 0; i < (workers > 1 ? REPEATS : 1); i++) {
        graph_attention_backward(&g, 0);
        const omm_digest got = digest_of(&g);
        if (workers == 1) *digest = got;
        CHECK(omm_digest_equal(&got, digest));
    }
    graph_fini(&g);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
}

static void test_setting(const setting *s) {
    static const unsigned workers[] = {1, 2, 3, 9};
    tiny_arch arch = test_arch("llama", OMM_FORMAT_F32);
    omm_model model;
    omm_digest digest;
    arch.context = 4096;
    tiny_arch_load(&model, &arch);
    model.dims.heads = s->heads; /* attention's backward reads no weight */
    model.dims.kv_heads = s->kv_heads;
    model.dims.attention_softcap = s->cap;
    model.layers[0].window = s->window;
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
        check_with(&digest, &model, s, workers[i]);
    omm_model_fini(&model);
}

int main(void) {
    for (size_t i = 0; i < sizeof s_settings / sizeof *s_settings; i++)
        test_setting(&s_settings[i]);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
