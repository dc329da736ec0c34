/* lora_test.c - the flat vector's order, the file's round trip, and adapters that do not fit. */
#include "omm/file.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/rows.h"

#include "omm_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20 };

static omm_lora_shape small_shape(void) {
    return (omm_lora_shape){.layer_count = 2,
                            .d_in = {8, 8, 8, 8, 8, 8, 12},
                            .d_out = {8, 4, 4, 8, 12, 12, 8},
                            .architecture = "llama"};
}

static omm_rng test_rng(uint64_t n) {
    omm_seed seed = omm_seed_from_u64(n);
    return omm_rng_init(&seed, OMM_PURPOSE_ADAPTER_INIT, 0, 0);
}

static omm_lora random_lora(uint32_t rank, uint32_t targets) {
    omm_lora lora;
    omm_lora_spec spec = {.rank = rank, .alpha = 16.0f, .targets = targets};
    omm_lora_shape shape = small_shape();
    omm_rng rng = test_rng(7);
    CHECK_OK(omm_lora_init_random(&lora, &spec, &shape, &rng));
    for (size_t i = 0; i < lora.value_count; i++)
        if (lora.values[i] == 0.0f) lora.values[i] = (float)i * 0.001f - 0.1f; /* B */
    return lora;
}

static void test_layout(void) {
    omm_lora lora = random_lora(4, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN);
    CHECK_EQ(lora.tensor_count, 8);
    CHECK_EQ(lora.value_count, 2 * 4 * (8 + 8 + 12 + 8));
    size_t offset = 0;
    for (size_t i = 0; i < lora.tensor_count; i++) {
        const omm_lora_tensor *t = &lora.tensors[i];
        CHECK_EQ(t->offset, offset);
        CHECK_EQ(t->is_b, i % 2);
        CHECK_EQ(t->layer, i / 4);
        CHECK_EQ(t->target, i / 2 % 2 ? OMM_LORA_DOWN : OMM_LORA_Q);
        offset += (size_t)t->rows * t->cols;
    }
    CHECK(strcmp(lora.tensors[7].name, "blk.1.ffn_down.weight.lora_b") == 0);
    CHECK_EQ(lora.tensors[6].rows, 4);
    CHECK_EQ(lora.tensors[6].cols, 12);
    const float *a = NULL;
    const float *b = NULL;
    omm_lora_find(&a, &b, &lora, 1, OMM_LORA_DOWN);
    CHECK(a == lora.values + lora.tensors[6].offset);
    CHECK(b == lora.values + lora.tensors[7].offset);
    omm_lora_find(&a, &b, &lora, 1, OMM_LORA_K);
    CHECK(a == NULL);
    CHECK(b == NULL);
    CHECK_EQ(omm_lora_find_index(&lora, 2, OMM_LORA_Q), -1);
    CHECK(omm_lora_is_uniform(&lora) && lora.tensors[0].scale == 4.0f);
    omm_lora_fini(&lora);
}

static void test_random(void) {
    omm_lora_spec spec = {.rank = 3, .alpha = 8.0f, .targets = OMM_LORA_ALL_TARGETS};
    omm_lora_shape shape = small_shape();
    omm_lora one, two;
    omm_rng rng = test_rng(1);
    omm_rng other = test_rng(2);
    CHECK_OK(omm_lora_init_random(&one, &spec, &shape, &rng));
    CHECK_OK(omm_lora_init_random(&two, &spec, &shape, &rng));
    CHECK(memcmp(one.values, two.values, one.value_count * sizeof(float)) == 0);
    omm_lora_fini(&two);
    CHECK_OK(omm_lora_init_random(&two, &spec, &shape, &other));
    CHECK(memcmp(one.values, two.values, one.value_count * sizeof(float)) != 0);
    for (size_t i = 0; i < one.tensor_count; i++) {
        const omm_lora_tensor *t = &one.tensors[i];
        float bound = 1.0f / sqrtf((float)t->cols);
        for (size_t v = 0; v < (size_t)t->rows * t->cols; v++) {
            float x = one.values[t->offset + v];
            CHECK(t->is_b ? x == 0.0f : x >= -bound && x <= bound && x != 0.0f);
        }
    }
    /* the documented formula, at one index */
    float u = omm_rng_unit(&rng, 5);
    CHECK(one.values[5] == (2.0f * u - 1.0f) / sqrtf(8.0f));
    omm_lora_fini(&one);
    omm_lora_fini(&two);
}

static void test_round_trip(uint32_t rank, uint32_t targets) {
    omm_lora lora = random_lora(rank, targets);
    omm_lora_shape shape = small_shape();
    omm_buf file, again;
    omm_buf_init(&file, FILE_MAX);
    omm_buf_init(&again, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_lora_save(&again, &lora));
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&again)));
    omm_lora back;
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &shape));
    CHECK_EQ(back.spec.rank, rank);
    CHECK_EQ(back.spec.targets, targets);
    CHECK(back.spec.alpha == 16.0f);
    CHECK_EQ(back.value_count, lora.value_count);
    CHECK(memcmp(back.values, lora.values, lora.value_count * sizeof(float)) == 0);
    CHECK(memcmp(back.tensors, lora.tensors, lora.tensor_count * sizeof *lora.tensors) == 0);
    for (size_t size = 0; size < file.size; size += 1 + size / 64) {
        omm_lora cut;
        CHECK(omm_lora_load(&cut, omm_bytes_of(file.data, size), &shape) != OMM_OK);
    }
    omm_lora_fini(&lora);
    omm_lora_fini(&back);
    omm_buf_fini(&file);
    omm_buf_fini(&again);
}

static void test_bad_specs(void) {
    omm_lora_shape shape = small_shape();
    omm_lora lora;
    const omm_lora_spec bad[] = {{0, 8.0f, 1},      {OMM_LORA_RANK_MAX + 1, 8.0f, 1},
                                 {4, NAN, 1},       {4, INFINITY, 1},
                                 {4, 0.0f, 1},      {4, 8.0f, 0},
                                 {4, 8.0f, 1u << 7}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_ERR(omm_lora_init(&lora, &bad[i], &shape), OMM_ERR_CONFIG);
    omm_lora_spec good = {4, 8.0f, OMM_LORA_ALL_TARGETS};
    shape.d_in[OMM_LORA_GATE] = 0;
    CHECK_ERR(omm_lora_init(&lora, &good, &shape), OMM_ERR_CONFIG);
    const omm_rng rng = test_rng(1);
    CHECK_ERR(omm_lora_init_random(&lora, &good, &shape, &rng), OMM_ERR_CONFIG);
    shape = small_shape();
    shape.layer_count = OMM_LORA_LAYERS_MAX + 1;
    CHECK_ERR(omm_lora_init(&lora, &good, &shape), OMM_ERR_CONFIG);
    shape.layer_count--;
    CHECK_OK(omm_lora_init(&lora, &good, &shape));
    omm_lora_fini(&lora);
    shape.layer_count = 1000;
    for (int t = 0; t < 7; t++) shape.d_in[t] = shape.d_out[t] = UINT32_MAX;
    CHECK_ERR(omm_lora_init(&lora, &good, &shape), OMM_ERR_TOO_BIG);
    uint32_t targets = 0;
    CHECK_OK(omm_lora_targets_parse(&targets, "all"));
    CHECK_EQ(targets, OMM_LORA_ALL_TARGETS);
    CHECK_OK(omm_lora_targets_parse(&targets, "q,down"));
    CHECK_EQ(targets, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN);
    static const char *const lists[] = {"", "q,", ",q", "q,q", "x", "Q", "q, v", "all,q"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        CHECK_ERR(omm_lora_targets_parse(&targets, lists[i]), OMM_ERR_CONFIG);
}

/* Several numbers give the same scale in f32; kept is the one that was asked for. */
static void test_alphas(void) {
    const omm_lora_shape shape = small_shape();
    float alpha = 3.5f;
    for (int i = 0; i < 50; i++) {
        omm_lora lora;
        CHECK_OK(omm_lora_init(&lora, &(omm_lora_spec){3, alpha, 1}, &shape));
        CHECK(lora.spec.alpha == alpha && lora.tensors[0].scale == alpha / 3.0f);
        omm_lora_fini(&lora);
        alpha = nextafterf(alpha, 4.0f);
    }
}

/* ---- Files that must be refused ------------------------------------------------------------ */

typedef struct tamper {
    const char *what;
    const char *drop;   /* tensor left out */
    const char *rename; /* tensor written as `as` */
    const char *as;
    const char *widen; /* tensor with one more column block */
    const char *arch;
    const char *type;
    const char *adapter;
    const char *says; /* of those that name no tensor */
    omm_err err;
    bool nan, alora, bf16, other_rank;
    bool alpha_text;
    const char *deep; /* tensor of three dimensions */
} tamper;

static const float s_zeros[4096];

static void put_tensor(omm_gguf_writer *w, const omm_lora *lora, const omm_lora_tensor *t,
                       const tamper *c) {
    static float bad[64] = {0};
    bad[3] = NAN;
    uint64_t dims[2] = {t->cols, t->rows};
    size_t bytes = (size_t)t->rows * t->cols * 4;
    const void *data = lora->values + t->offset;
    uint32_t type = OMM_GGML_F32;
    if (c->drop && strcmp(t->name, c->drop) == 0) return;
    if (c->widen && strcmp(t->name, c->widen) == 0) {
        dims[t->is_b ? 1 : 0] += 1;
        bytes = (size_t)(dims[0] * dims[1]) * 4;
        data = s_zeros;
    }
    if (c->other_rank && t->layer == 1 && t->target == OMM_LORA_Q && t->is_b) {
        dims[t->is_b ? 0 : 1] = 2;
        bytes = (size_t)(dims[0] * dims[1]) * 4;
        data = s_zeros;
    }
    if (c->bf16 && t->layer == 0 && !t->is_b && t->target == OMM_LORA_Q) {
        type = OMM_GGML_BF16;
        bytes /= 2;
    }
    uint32_t n_dims = 2;
    uint64_t deep[3] = {dims[0], dims[1], 2};
    if (c->deep && strcmp(t->name, c->deep) == 0) {
        n_dims = 3;
        bytes *= 2;
        data = s_zeros;
    }
    if (c->nan && strcmp(t->name, "blk.1.attn_v.weight.lora_b") == 0) data = bad;
    const char *name = c->rename && strcmp(t->name, c->rename) == 0 ? c->as : t->name;
    deep[0] = dims[0];
    deep[1] = dims[1];
    omm_gguf_put_tensor(w, name, type, n_dims, deep, omm_bytes_of(data, bytes));
}

static void test_tamper(const tamper *c) {
    omm_lora lora = random_lora(4, 1u << OMM_LORA_Q | 1u << OMM_LORA_V);
    omm_lora_shape shape = small_shape();
    omm_gguf_writer w;
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "general.architecture", c->arch ? c->arch : "llama");
    omm_gguf_put_text(&w, "general.type", c->type ? c->type : "adapter");
    omm_gguf_put_text(&w, "adapter.type", c->adapter ? c->adapter : "lora");
    if (c->alpha_text) omm_gguf_put_text(&w, "adapter.lora.alpha", "4");
    if (c->alora) omm_gguf_put_array(&w, "adapter.alora.invocation_tokens", OMM_GGUF_U32, NULL, 0);
    for (size_t i = 0; i < lora.tensor_count; i++) put_tensor(&w, &lora, &lora.tensors[i], c);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    omm_lora back = {0};
    size_t live = omm_mem_live();
    omm_err err = omm_lora_load(&back, omm_buf_view(&file), &shape);
    if (err != c->err) fprintf(stderr, "case: %s\n", c->what);
    CHECK_ERR(err, c->err);
    if (err == OMM_OK) CHECK(back.spec.alpha == 4.0f); /* none given: a scale of one */
    if (err == OMM_OK) omm_lora_fini(&back);
    const char *named = c->drop ? c->drop : c->widen ? c->widen : c->as ? c->as : c->says;
    if (err != OMM_OK) CHECK(named && strstr(omm_err_sentence(), named) != NULL);
    CHECK_EQ(omm_mem_live(), live);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
    omm_lora_fini(&lora);
}

static void test_refusals(void) {
    static const tamper cases[] = {
        {.what = "untouched", .err = OMM_OK},
        {.what = "pair without b", .err = OMM_ERR_NOT_FOUND, .drop = "blk.0.attn_q.weight.lora_b"},
        {.what = "pair without a", .err = OMM_ERR_NOT_FOUND, .drop = "blk.1.attn_v.weight.lora_a"},
        {.what = "wide a", .err = OMM_ERR_MISMATCH, .widen = "blk.0.attn_v.weight.lora_a"},
        {.what = "wide b", .err = OMM_ERR_MISMATCH, .widen = "blk.1.attn_q.weight.lora_b"},
        {.what = "layer 2",
         .err = OMM_ERR_MISMATCH,
         .rename = "blk.1.attn_v.weight.lora_b",
         .as = "blk.2.attn_v.weight.lora_b"},
        {.what = "two matrices",
         .says = "blk.1.attn_v.weight.lora_a: not a matrix",
         .err = OMM_ERR_UNSUPPORTED,
         .deep = "blk.1.attn_v.weight.lora_a"},
        {.what = "strange name",
         .err = OMM_ERR_UNSUPPORTED,
         .rename = "blk.1.attn_v.weight.lora_b",
         .as = "blk.1.attn_v.bias.lora_b"},
        {.what = "leading zero",
         .err = OMM_ERR_UNSUPPORTED,
         .rename = "blk.1.attn_v.weight.lora_b",
         .as = "blk.01.attn_v.weight.lora_b"},
        {.what = "huge layer",
         .err = OMM_ERR_UNSUPPORTED,
         .rename = "blk.1.attn_v.weight.lora_b",
         .as = "blk.4294967297.attn_v.weight.lora_b"},
        {.what = "embedding",
         .err = OMM_ERR_UNSUPPORTED,
         .rename = "blk.1.attn_v.weight.lora_b",
         .as = "token_embd.weight.lora_b"},
        {.what = "other model",
         .says = "architecture is 'qwen2', wanted 'llama'",
         .err = OMM_ERR_MISMATCH,
         .arch = "qwen2"},
        {.what = "a model",
         .says = "type is 'model', wanted 'adapter'",
         .err = OMM_ERR_UNSUPPORTED,
         .type = "model"},
        {.what = "control vector",
         .says = "is 'control_vector', wanted 'lora'",
         .err = OMM_ERR_UNSUPPORTED,
         .adapter = "control_vector"},
        {.what = "activated", .says = "activated LoRA", .err = OMM_ERR_UNSUPPORTED, .alora = true},
        {.what = "no number",
         .says = "adapter.lora.alpha",
         .err = OMM_ERR_FORMAT,
         .alpha_text = true},
        {.what = "BF16", .err = OMM_OK, .bf16 = true},
        {.what = "halves of other rank",
         .says = "its other half",
         .err = OMM_ERR_MISMATCH,
         .other_rank = true},
        {.what = "not a number", .says = "is not finite", .err = OMM_ERR_NUMERIC, .nan = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) test_tamper(&cases[i]);
}

/* Half a pair is named before the memory of a whole one is taken, with and without a model. */
static void test_half_pair(void) {
    enum { RANK = 512, WIDE = 4096 };
    static const float values[RANK + WIDE];
    const uint64_t a[2] = {1, RANK}, whole_a[2] = {1, 1}, whole_b[2] = {1, WIDE};
    omm_lora_shape shape = {.layer_count = 2, .architecture = "llama"}, claimed = {0};
    shape.d_in[OMM_LORA_K] = 1;
    shape.d_out[OMM_LORA_K] = WIDE;
    omm_gguf_writer w;
    omm_gguf g;
    omm_lora lora;
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_text(&w, "general.type", "adapter");
    omm_gguf_put_text(&w, "adapter.type", "lora");
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_a", OMM_GGML_F32, 2, whole_a,
                        omm_bytes_of(values, sizeof(float)));
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_b", OMM_GGML_F32, 2, whole_b,
                        omm_bytes_of(values, WIDE * sizeof(float)));
    omm_gguf_put_tensor(&w, "blk.1.attn_k.weight.lora_a", OMM_GGML_F32, 2, a,
                        omm_bytes_of(values, RANK * sizeof(float)));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    const size_t asked = omm_mem_asked();
    CHECK_ERR(omm_lora_load(&lora, omm_buf_view(&file), &shape), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "blk.1.attn_k.weight.lora_b is missing") != NULL);
    CHECK(omm_mem_asked() - asked < 4 * file.size); /* the pair would take 8 MiB */
    char path[] = "/tmp/omm-lora-XXXXXX"; /* a file that is there is not one that is not found */
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&file), 0600));
    CHECK_ERR(omm_lora_load_file(&lora, path, &shape), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), path) && strstr(omm_err_sentence(), "lora_b is missing"));
    omm_lora_shape looked = {0};
    omm_digest digest;
    CHECK_ERR(omm_lora_claim_file(&looked, &digest, path), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), path) && strstr(omm_err_sentence(), "lora_b is missing"));
    CHECK_OK(omm_file_remove(path));
    CHECK_ERR(omm_lora_load_file(&lora, path, &shape), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_lora_claim_file(&looked, &digest, path), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_lora_claim_shape(&claimed, &g), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "blk.1.attn_k.weight.lora_b is missing") != NULL);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

/* A file with K of one layer, A [rows][32] and B [2][rows], each of a type of its own. */
static void put_pair(omm_buf *file, omm_ggml_type type_a, omm_bytes a, omm_ggml_type type_b,
                     omm_bytes b, uint64_t rows) {
    const uint64_t dims_a[2] = {32, rows}, dims_b[2] = {rows, 2};
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_text(&w, "general.type", "adapter");
    omm_gguf_put_text(&w, "adapter.type", "lora");
    omm_gguf_put_f32(&w, "adapter.lora.alpha", 2.0f);
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_b", (uint32_t)type_b, 2, dims_b, b);
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_a", (uint32_t)type_a, 2, dims_a, a);
    CHECK_OK(omm_gguf_writer_finish(file, &w));
    omm_gguf_writer_fini(&w);
}

static omm_lora_shape pair_shape(void) {
    omm_lora_shape shape = {.layer_count = 1, .architecture = "llama"};
    shape.d_in[OMM_LORA_K] = 32;
    shape.d_out[OMM_LORA_K] = 2;
    return shape;
}

/* The largest rank is read, and one more refused before memory is taken for it. */
static void test_rank_max(void) {
    const omm_lora_shape shape = pair_shape();
    for (uint64_t rank = OMM_LORA_RANK_MAX; rank <= OMM_LORA_RANK_MAX + 1; rank++) {
        const size_t a = (size_t)rank * 32 * sizeof(float), b = (size_t)rank * 2 * sizeof(float);
        float *zeros = omm_alloc(a, 1);
        omm_lora lora;
        omm_buf file;
        double lost = -1.0;
        CHECK(zeros != NULL);
        omm_buf_init(&file, FILE_MAX);
        put_pair(&file, OMM_GGML_F32, omm_bytes_of(zeros, a), OMM_GGML_F32, omm_bytes_of(zeros, b),
                 rank);
        omm_free(zeros);
        CHECK_ERR(omm_lora_load(&lora, omm_buf_view(&file), &shape),
                  rank > OMM_LORA_RANK_MAX ? OMM_ERR_TOO_BIG : OMM_OK);
        if (rank > OMM_LORA_RANK_MAX) {
            CHECK(strstr(omm_err_sentence(), "has rank 1025, accepted are 1 to 1024") != NULL);
        } else {
            omm_buf_clear(&file); /* of nothing but zeros nothing is lost */
            CHECK_OK(omm_lora_save_as(&file, &lost, &lora, OMM_GGML_F16));
            CHECK(lost == 0.0);
            omm_lora_fini(&lora);
        }
        omm_buf_fini(&file);
    }
}

/* What a file itself claims: its layers and widths, of an architecture that it must name. */
static void test_claims(void) {
    static const float values[64];
    omm_lora_shape shape = {0}, none = {0};
    omm_gguf_writer w;
    omm_gguf g;
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    put_pair(&file, OMM_GGML_F32, omm_bytes_of(values, 32 * sizeof(float)), OMM_GGML_F32,
             omm_bytes_of(values, 2 * sizeof(float)), 1);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_OK(omm_lora_claim_shape(&shape, &g));
    CHECK(shape.layer_count == 1 && strcmp(shape.architecture, "llama") == 0);
    CHECK(shape.d_in[OMM_LORA_K] == 32 && shape.d_out[OMM_LORA_K] == 2);
    CHECK(shape.d_in[OMM_LORA_Q] == 0 && !shape.stacked);
    omm_gguf_close(&g);
    omm_buf_clear(&file);
    omm_gguf_writer_init(&w);
    const uint64_t dims[2] = {1, 1};
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_a", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(values, sizeof(float)));
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight.lora_b", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(values, 4));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_lora_claim_shape(&none, &g), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "general.architecture") != NULL);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_clear(&file);
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_text(&w, "general.type", "adapter");
    omm_gguf_put_text(&w, "adapter.type", "lora");
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    omm_lora lora;
    CHECK_ERR(omm_lora_load(&lora, omm_buf_view(&file), &shape), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "adapter without tensors") != NULL);
    omm_gguf_writer_fini(&w);
    omm_buf_clear(&file);
    omm_gguf_writer_init(&w); /* a model */
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_tensor(&w, "blk.0.attn_k.weight", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(values, sizeof(float)));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_lora_claim_shape(&none, &g), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "no adapter: not one LoRA tensor") != NULL);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

/* Every element type of the format is read, to the values that its definition gives. */
static void test_types(void) {
    const uint8_t b[4] = {0x00, 0x38, 0x00, 0x80}; /* F16 0.5 -0 */
    float values[32], want[32];
    size_t count = 0, read = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t i = 0; i < 32; i++) values[i] = i == 7 ? 0.0f : (float)i * 0.37f - 5.0f;
    for (size_t i = 0; i < count; i++) {
        uint8_t row[128];
        const omm_lora_shape shape = pair_shape();
        omm_buf file;
        omm_lora lora;
        if (all[i].block > 32) continue; /* A would be of 256 columns */
        read++;
        CHECK_OK(omm_rows_quantise(row, all[i].type, values, 32));
        omm_rows_dequantise(want, all[i].type, row, 32);
        omm_buf_init(&file, FILE_MAX);
        put_pair(&file, all[i].type, omm_bytes_of(row, omm_rows_stride(all[i].type, 32)),
                 OMM_GGML_F16, omm_bytes_of(b, 4), 1);
        CHECK_OK(omm_lora_load(&lora, omm_buf_view(&file), &shape));
        CHECK(memcmp(lora.values, want, shape.d_in[OMM_LORA_K] * sizeof *want) == 0);
        CHECK(lora.values[32] == 0.5f && lora.values[33] == 0.0f && signbit(lora.values[33]));
        omm_lora_fini(&lora);
        omm_buf_fini(&file);
    }
    CHECK_EQ(read, 9);
}

/* A scale that is not finite is refused where it stands, also in blocks. */
static void test_type_not_finite(void) {
    const uint8_t b[8] = {0};
    uint8_t a[2 * 34] = {0};
    const omm_lora_shape shape = pair_shape();
    omm_lora lora;
    omm_buf file;
    a[34 + 1] = 0x7c; /* the second row's scale */
    omm_buf_init(&file, FILE_MAX);
    put_pair(&file, OMM_GGML_Q8_0, omm_bytes_of(a, sizeof a), OMM_GGML_F16, omm_bytes_of(b, 8), 2);
    CHECK_ERR(omm_lora_load(&lora, omm_buf_view(&file), &shape), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "blk.0.attn_k.weight.lora_a[32]") != NULL);
    omm_buf_fini(&file);
}

/* Written in 16 bits: to the nearest, and what that loses is said. */
static void test_narrow(void) {
    const omm_lora_shape shape = small_shape();
    static const struct {
        omm_ggml_type type;
        double lost_min, lost_max;
    } cases[] = {{OMM_GGML_F32, 0, 0},
                 {OMM_GGML_F16, 0x1p-15, 0x1p-11}, /* half of the last of 11 bits */
                 {OMM_GGML_BF16, 0x1p-12, 0x1p-8},
                 {OMM_GGML_Q8_0, 0x1p-15, 0x1p-11}}; /* rows of no whole block */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        omm_lora lora = random_lora(4, OMM_LORA_ALL_TARGETS), back, twice;
        omm_buf file, again;
        double lost = -1.0, none = -1.0, change = 0.0, all = 0.0;
        omm_buf_init(&file, FILE_MAX);
        omm_buf_init(&again, FILE_MAX);
        CHECK_OK(omm_lora_save_as(&file, &lost, &lora, cases[i].type));
        CHECK(lost >= cases[i].lost_min && lost <= cases[i].lost_max);
        CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &shape));
        for (size_t v = 0; v < lora.value_count; v++) {
            const double d = (double)back.values[v] - (double)lora.values[v];
            change += d * d;
            all += (double)lora.values[v] * (double)lora.values[v];
        }
        CHECK(lost == sqrt(change / all));
        CHECK_OK(omm_lora_save_as(&again, &none, &back, cases[i].type));
        CHECK(none == 0.0 && omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&again)));
        CHECK_OK(omm_lora_load(&twice, omm_buf_view(&again), &shape));
        CHECK(memcmp(twice.values, back.values, back.value_count * sizeof(float)) == 0);
        omm_lora_fini(&twice);
        omm_lora_fini(&back);
        omm_buf_fini(&again);
        omm_buf_fini(&file);
        lora.values[lora.value_count - 1] = 65520.0f; /* the least that is beyond F16 */
        omm_buf_init(&file, FILE_MAX);
        const bool f16 = cases[i].type == OMM_GGML_F16 || cases[i].type == OMM_GGML_Q8_0;
        CHECK_ERR(omm_lora_save_as(&file, &lost, &lora, cases[i].type),
                  f16 ? OMM_ERR_NUMERIC : OMM_OK);
        if (f16)
            CHECK(file.size == 0 && strstr(omm_err_sentence(), "blk.1.ffn_down.weight.lora_b"));
        omm_buf_fini(&file);
        omm_lora_fini(&lora);
    }
}

static void find_type(omm_ggml_type *out, const omm_gguf *g, const char *name) {
    const omm_gguf_tensor *t = omm_gguf_find_tensor(g, name);
    CHECK(t != NULL);
    *out = t->type;
}

/* In Q8_0, tensor by tensor: blocks where rows have whole ones, halves else; each where the file says. */
static void test_blocks(void) {
    omm_lora_shape shape = small_shape();
    const omm_lora_spec spec = {32, 16.0f, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN};
    omm_rng rng = test_rng(7);
    omm_lora lora, back;
    omm_buf file;
    omm_gguf g;
    double lost = 0.0;
    shape.d_in[OMM_LORA_Q] = 64;
    CHECK_OK(omm_lora_init_random(&lora, &spec, &shape, &rng));
    for (size_t i = 0; i < lora.value_count; i++)
        if (lora.values[i] == 0.0f) lora.values[i] = (float)(i % 97) * 0.01f; /* B */
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save_as(&file, &lost, &lora, OMM_GGML_Q8_0));
    CHECK(lost > 0x1p-10 && lost < 0x1p-7);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    for (size_t i = 0; i < lora.tensor_count; i++) {
        omm_ggml_type type = OMM_GGML_F32;
        const omm_lora_tensor *t = &lora.tensors[i];
        find_type(&type, &g, t->name);
        CHECK_EQ(type, t->cols % 32 == 0 ? OMM_GGML_Q8_0 : OMM_GGML_F16);
    }
    omm_gguf_close(&g);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &shape));
    for (size_t i = 0; i < lora.tensor_count;
         i++) { /* half of the block's scale is the most that is off */
        const omm_lora_tensor *t = &lora.tensors[i];
        for (size_t v = 0; v < (size_t)t->rows * t->cols; v++)
            CHECK(fabsf(back.values[t->offset + v] - lora.values[t->offset + v]) <=
                  (t->is_b ? 1.0f : 0.36f) / 252.0f);
    }
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
    omm_buf_fini(&file);
}

static void test_not_finite(void) {
    omm_lora lora = random_lora(2, OMM_LORA_ALL_TARGETS);
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    lora.values[lora.value_count - 1] = INFINITY;
    CHECK_ERR(omm_lora_save(&file, &lora), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "blk.1.ffn_down.weight.lora_b") != NULL);
    CHECK_EQ(file.size, 0);
    omm_buf_fini(&file);
    omm_lora_fini(&lora);
}

static void test_allocations(void) {
    omm_lora lora = random_lora(2, OMM_LORA_ALL_TARGETS);
    omm_lora_shape shape = small_shape();
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, &lora));
    size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_lora back;
        omm_mem_fail_nth(nth);
        err = omm_lora_load(&back, omm_buf_view(&file), &shape);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK)
            omm_lora_fini(&back);
        else
            CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_buf out;
        omm_buf_init(&out, FILE_MAX);
        omm_mem_fail_nth(nth);
        err = omm_lora_save(&out, &lora);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && out.size == 0));
        omm_buf_fini(&out);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora_fini(&lora);
    live = omm_mem_live();
    err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_mem_fail_nth(nth);
        err = omm_lora_init(&lora, &(omm_lora_spec){2, 4.0f, 1}, &shape);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) omm_lora_fini(&lora);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_buf_fini(&file);
}

int main(void) {
    test_layout();
    test_random();
    test_round_trip(1, 1u << OMM_LORA_K);
    test_round_trip(4, 1u << OMM_LORA_Q | 1u << OMM_LORA_V);
    test_round_trip(5, OMM_LORA_ALL_TARGETS);
    test_bad_specs();
    test_alphas();
    test_refusals();
    test_half_pair();
    test_rank_max();
    test_claims();
    test_types();
    test_type_not_finite();
    test_narrow();
    test_blocks();
    test_not_finite();
    test_allocations();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
