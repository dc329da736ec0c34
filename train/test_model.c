#include "test_model.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    D = 72,
    FF = 88,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 18,
    KV_DIM = 36,
    LAYERS = 2,
    VOCAB = 2048
};

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
    omm_format format;
    const char *architecture;
} synth;

static bool is_one_of(const synth *s, const char *a, const char *b) {
    return strcmp(s->architecture, a) == 0 || strcmp(s->architecture, b) == 0;
}

static void put_matrix(synth *s, const char *name, uint64_t rows, uint64_t cols, float scale) {
    size_t count = (size_t)(rows * cols);
    bool half = s->format == OMM_FORMAT_F16;
    uint64_t dims[2] = {cols, rows};
    uint8_t *data = omm_arena_alloc(&s->arena, count, 4);
    CHECK(data);
    for (size_t i = 0; i < count; i++) {
        float v = (2 * omm_rng_unit(&s->lane, s->next++) - 1) * scale;
        if (half)
            omm_put_u16(data + 2 * i, omm_f32_to_f16(v));
        else
            omm_put_f32(data + 4 * i, v);
    }
    omm_gguf_put_tensor(&s->writer, name, half ? OMM_GGML_F16 : OMM_GGML_F32, 2, dims,
                        omm_bytes_of(data, count * (half ? 2 : 4)));
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
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } plain[] = {{"attn_q", D, D},      {"attn_k", KV_DIM, D}, {"attn_v", KV_DIM, D},
                 {"attn_output", D, D}, {"ffn_gate", FF, D},   {"ffn_up", FF, D},
                 {"ffn_down", D, FF}},
      fused[] = {{"attn_qkv", D + 2 * KV_DIM, D},
                 {"attn_output", D, D},
                 {"ffn_up", 2 * (uint64_t)FF, D},
                 {"ffn_down", D, FF}};
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
    put_layer_vector(s, layer, "attn_norm.weight", D, 0.5F);
    put_layer_matrices(s, layer);
    put_layer_vector(s, layer, "ffn_norm.weight", D, 0.5F);
    if (is_one_of(s, "qwen2", "qwen2")) {
        put_layer_vector(s, layer, "attn_q.bias", D, -0.5F);
        put_layer_vector(s, layer, "attn_k.bias", KV_DIM, -0.5F);
        put_layer_vector(s, layer, "attn_v.bias", KV_DIM, -0.5F);
    }
    if (is_one_of(s, "qwen3", "gemma3")) {
        put_layer_vector(s, layer, "attn_q_norm.weight", HEAD_DIM, 0.5F);
        put_layer_vector(s, layer, "attn_k_norm.weight", HEAD_DIM, 0.5F);
    }
    if (is_one_of(s, "gemma2", "gemma3")) {
        put_layer_vector(s, layer, "post_attention_norm.weight", D, 0.5F);
        put_layer_vector(s, layer, "post_ffw_norm.weight", D, 0.5F);
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
    put_key(s, "embedding_length", D);
    put_key(s, "block_count", LAYERS);
    put_key(s, "feed_forward_length", FF);
    put_key(s, "attention.head_count", HEADS);
    put_key(s, "attention.head_count_kv", KV_HEADS);
    put_key(s, "rope.dimension_count", HEAD_DIM);
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
    put_matrix(s, "token_embd.weight", VOCAB, D, 0.5F);
    for (int i = 0; i < LAYERS; i++) put_layer(s, i);
    put_vector(s, "output_norm.weight", D, 0.5F);
}

void test_synth_open(omm_model *model, omm_format format) {
    test_architecture_open(model, format, "llama");
}

void test_architecture_file(omm_buf *file, omm_format format, const char *architecture) {
    omm_seed seed = omm_seed_from_u64(7);
    synth s = {.lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0),
               .format = format,
               .architecture = architecture};
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
