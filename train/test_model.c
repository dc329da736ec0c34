#include "test_model.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/rng.h"
#include "omm/rows.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, VOCAB = 2048, BLOCK_MAX = 256, K_BYTES = 144 };

void test_path(char out[512], const char *relative) {
    const char *root = getenv("OMM_SOURCE_DIR");
    snprintf(out, 512, "%s/%s", root ? root : ".", relative);
}

void test_tokenizer_open(omm_tokenizer **out) {
    char path[512];
    omm_gguf gguf;
    test_path(path, "scenarios/base/openmeshmind-tiny-F16.gguf");
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_tokenizer_open(out, &gguf));
    omm_gguf_close(&gguf);
}

void test_base_open(omm_model *model, omm_tokenizer **tokenizer) {
    char path[512];
    omm_gguf gguf;
    test_path(path, "scenarios/base/openmeshmind-tiny-F16.gguf");
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_model_load(model, &gguf));
    CHECK_OK(omm_tokenizer_open(tokenizer, &gguf));
    omm_gguf_close(&gguf);
}

typedef struct synth {
    omm_gguf_writer writer;
    omm_rng lane;
    uint64_t next;
    omm_arena arena;
    omm_ggml_type type; /* of the matrices */
    uint32_t layers, d, ff, head_dim, kv_dim;
    const char *architecture;
} synth;

/* Rows are whole blocks; where that makes them long, one layer is enough. */
static void choose_sizes(synth *s, omm_format format) {
    const uint32_t block = omm_format_block(format);
    s->type = omm_ggml_find_name(omm_format_name(format))->type;
    CHECK(block <= BLOCK_MAX);
    s->layers = block > 32 ? 1 : 2;
    s->d = block > 32 ? 256 : block > 1 ? 96 : 72;
    s->ff = block > 32 ? 256 : block > 1 ? 160 : 88;
    s->head_dim = s->d / HEADS;
    s->kv_dim = s->head_dim * KV_HEADS;
}

static bool is_one_of(const synth *s, const char *a, const char *b) {
    return strcmp(s->architecture, a) == 0 || strcmp(s->architecture, b) == 0;
}

/* Of Q4_K a block is drawn as it is, since to search for its scales would take most of a test: two
 * halves, 12 bytes of scales and minima, 128 of codes.  Their products cancel in the mean. */
static void draw_block(synth *s, uint8_t *block, float scale) {
    for (size_t i = 4; i < K_BYTES; i++) block[i] = (uint8_t)omm_rng_u32(&s->lane, s->next++);
    omm_put_u16(block, omm_f32_to_f16(scale * 0.0024F));
    omm_put_u16(block + 2, omm_f32_to_f16(scale * 0.018F));
}

static void put_row(synth *s, uint8_t *out, size_t cols, float scale) {
    float row[BLOCK_MAX];
    CHECK(cols <= BLOCK_MAX);
    if (s->type == OMM_GGML_Q4_K) {
        draw_block(s, out, scale);
        return;
    }
    for (size_t i = 0; i < cols; i++) row[i] = (2 * omm_rng_unit(&s->lane, s->next++) - 1) * scale;
    CHECK_OK(omm_rows_quantise(out, s->type, row, cols));
}

static void put_matrix(synth *s, const char *name, uint64_t rows, uint64_t cols, float scale) {
    const size_t stride = omm_rows_stride(s->type, (size_t)cols);
    uint64_t dims[2] = {cols, rows};
    uint8_t *data = omm_arena_alloc(&s->arena, (size_t)rows, stride);
    CHECK(data && (s->type != OMM_GGML_Q4_K || stride == K_BYTES));
    for (size_t i = 0; i < rows; i++) put_row(s, data + i * stride, (size_t)cols, scale);
    omm_gguf_put_tensor(&s->writer, name, s->type, 2, dims, omm_bytes_of(data, rows * stride));
}

/* `count` values of low .. low + 1. */
static void put_vector(synth *s, const char *name, uint64_t count, float low) {
    uint64_t dims[1] = {count};
    uint8_t *data = omm_arena_alloc(&s->arena, (size_t)count, 4);
    CHECK(data);
    for (size_t i = 0; i < count; i++)
        omm_put_f32(data + 4 * i, low + omm_rng_unit(&s->lane, s->next++));
    omm_gguf_put_tensor(&s->writer, name, OMM_GGML_F32, 1, dims,
                        omm_bytes_of(data, (size_t)(4 * count)));
}

static void put_layer_vector(synth *s, int layer, const char *tail, uint64_t count, float low) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, tail);
    put_vector(s, name, count, low);
}

static void put_layer_matrices(synth *s, int layer) {
    const uint64_t d = s->d, ff = s->ff, kv = s->kv_dim;
    const struct {
        const char *name;
        uint64_t rows, cols;
    } plain[] = {{"attn_q", d, d},    {"attn_k", kv, d}, {"attn_v", kv, d},  {"attn_output", d, d},
                 {"ffn_gate", ff, d}, {"ffn_up", ff, d}, {"ffn_down", d, ff}},
      fused[] = {{"attn_qkv", d + 2 * kv, d},
                 {"attn_output", d, d},
                 {"ffn_up", 2 * ff, d},
                 {"ffn_down", d, ff}};
    const bool is_fused = is_one_of(s, "phi3", "phi3");
    const size_t count = is_fused ? 4 : 7;
    char name[64];
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer,
                 is_fused ? fused[i].name : plain[i].name);
        put_matrix(s, name, is_fused ? fused[i].rows : plain[i].rows,
                   is_fused ? fused[i].cols : plain[i].cols, 0.2F);
    }
}

static void put_layer(synth *s, int layer) {
    put_layer_vector(s, layer, "attn_norm.weight", s->d, 0.5F);
    put_layer_matrices(s, layer);
    put_layer_vector(s, layer, "ffn_norm.weight", s->d, 0.5F);
    if (is_one_of(s, "qwen2", "qwen2")) {
        put_layer_vector(s, layer, "attn_q.bias", s->d, -0.5F);
        put_layer_vector(s, layer, "attn_k.bias", s->kv_dim, -0.5F);
        put_layer_vector(s, layer, "attn_v.bias", s->kv_dim, -0.5F);
    }
    if (is_one_of(s, "qwen3", "gemma3")) {
        put_layer_vector(s, layer, "attn_q_norm.weight", s->head_dim, 0.5F);
        put_layer_vector(s, layer, "attn_k_norm.weight", s->head_dim, 0.5F);
    }
    if (is_one_of(s, "gemma2", "gemma3")) {
        put_layer_vector(s, layer, "post_attention_norm.weight", s->d, 0.5F);
        put_layer_vector(s, layer, "post_ffw_norm.weight", s->d, 0.5F);
    }
}

static void put_key(synth *s, const char *tail, uint32_t value) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", s->architecture, tail);
    omm_gguf_put_u32(&s->writer, name, value);
}

static void put_real(synth *s, const char *tail, float value) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", s->architecture, tail);
    omm_gguf_put_f32(&s->writer, name, value);
}

static void put_keys(synth *s) {
    omm_gguf_put_text(&s->writer, "general.architecture", s->architecture);
    put_key(s, "context_length", 512);
    put_key(s, "embedding_length", s->d);
    put_key(s, "block_count", s->layers);
    put_key(s, "feed_forward_length", s->ff);
    put_key(s, "attention.head_count", HEADS);
    put_key(s, "attention.head_count_kv", KV_HEADS);
    put_key(s, "rope.dimension_count", s->head_dim);
    put_real(s, "attention.layer_norm_rms_epsilon", 1e-5F);
    put_real(s, "rope.freq_base", 10000);
    if (is_one_of(s, "gemma2", "gemma3") || is_one_of(s, "phi3", "phi3")) {
        put_key(s, "attention.sliding_window", 21);
        put_key(s, "attention.sliding_window_pattern", 2);
    }
    if (is_one_of(s, "gemma2", "gemma2")) {
        put_real(s, "attn_logit_softcapping", 2);
        put_real(s, "final_logit_softcapping", 3);
    }
}

static void put_model(synth *s) {
    put_keys(s);
    put_matrix(s, "token_embd.weight", VOCAB, s->d, 0.5F);
    for (int i = 0; i < (int)s->layers; i++) put_layer(s, i);
    put_vector(s, "output_norm.weight", s->d, 0.5F);
}

void test_synth_open(omm_model *model, omm_format format) {
    test_architecture_open(model, format, "llama");
}

void test_architecture_file(omm_buf *file, omm_format format, const char *architecture) {
    omm_seed seed = omm_seed_from_u64(7);
    synth s = {.lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0), .architecture = architecture};
    choose_sizes(&s, format);
    omm_arena_init(&s.arena, 64 << 20);
    omm_gguf_writer_init(&s.writer);
    put_model(&s);
    CHECK_OK(omm_gguf_writer_finish(file, &s.writer));
    omm_gguf_writer_fini(&s.writer);
    omm_arena_fini(&s.arena);
}

void test_architecture_open(omm_model *model, omm_format format, const char *architecture) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 64 << 20);
    test_architecture_file(&file, format, architecture);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(model, &gguf));
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

void test_data_open(omm_dataset **out, const char *file, size_t count,
                    const omm_tokenizer *tokenizer) {
    char path[256], full[512];
    omm_buf text;
    omm_buf_init(&text, 16 << 20);
    snprintf(path, sizeof path, "scenarios/base/%s", file);
    test_path(full, path);
    CHECK_OK(omm_file_read(&text, full));
    size_t size = 0;
    while (count && size < text.size)
        if (text.data[size++] == '\n') count--;
    CHECK_OK(omm_dataset_parse(out, omm_bytes_of(text.data, size), file, tokenizer, NULL));
    omm_buf_fini(&text);
}

void test_adapter(omm_lora *out, const omm_model *model, uint32_t rank, uint32_t targets,
                  uint64_t seed) {
    omm_recipe recipe = omm_recipe_default();
    recipe.rank = rank;
    recipe.alpha = 2.0F * (float)rank;
    recipe.targets = targets;
    test_adapter_of(out, model, &recipe, seed);
}

void test_adapter_of(omm_lora *out, const omm_model *model, const omm_recipe *recipe,
                     uint64_t seed_value) {
    const omm_seed seed = omm_seed_from_u64(seed_value);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
    CHECK_OK(omm_recipe_adapter(out, recipe, &model->lora_shape, &lane));
    for (size_t i = 0; i < out->tensor_count; i++) {
        const omm_lora_tensor *t = &out->tensors[i];
        if (!t->is_b) continue;
        for (size_t k = 0; k < (size_t)t->rows * t->cols; k++)
            out->values[t->offset + k] =
                (2 * omm_rng_unit(&lane, t->offset + k) - 1) / (float)t->cols;
    }
}

void test_rig_open(test_rig *r, size_t lines) {
    omm_isa isa = OMM_ISA_SCALAR;
    *r = (test_rig){.recipe = omm_recipe_default()};
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r->compute, NULL, isa));
    test_tokenizer_open(&r->tokenizer);
    test_data_open(&r->data, "train.jsonl", lines, r->tokenizer);
    test_synth_open(&r->model, OMM_FORMAT_F16);
}

void test_rig_close(test_rig *r) {
    omm_dataset_close(r->data);
    omm_tokenizer_close(r->tokenizer);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
}

omm_trainer_options test_rig_options(const test_rig *r) {
    return (omm_trainer_options){.model = &r->model,
                                 .data = r->data,
                                 .recipe = &r->recipe,
                                 .compute = &r->compute,
                                 .seed = omm_seed_from_u64(1)};
}
