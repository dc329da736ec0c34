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
} synth;

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

static void put_norm(synth *s, const char *name) {
    uint64_t dims[1] = {D};
    uint8_t *data = omm_arena_alloc(&s->arena, D, 4);
    CHECK(data);
    for (size_t i = 0; i < D; i++)
        omm_put_f32(data + 4 * i, 0.5F + omm_rng_unit(&s->lane, s->next++));
    omm_gguf_put_tensor(&s->writer, name, OMM_GGML_F32, 1, dims, omm_bytes_of(data, (size_t)4 * D));
}

static void put_layer(synth *s, int layer) {
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } weights[] = {{"attn_q", D, D},      {"attn_k", KV_DIM, D}, {"attn_v", KV_DIM, D},
                   {"attn_output", D, D}, {"ffn_gate", FF, D},   {"ffn_up", FF, D},
                   {"ffn_down", D, FF}};
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    put_norm(s, name);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, weights[i].name);
        put_matrix(s, name, weights[i].rows, weights[i].cols, 0.2F);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    put_norm(s, name);
}

static void put_keys(omm_gguf_writer *w) {
    omm_gguf_put_text(w, "general.architecture", "llama");
    omm_gguf_put_u32(w, "llama.context_length", 512);
    omm_gguf_put_u32(w, "llama.embedding_length", D);
    omm_gguf_put_u32(w, "llama.block_count", LAYERS);
    omm_gguf_put_u32(w, "llama.feed_forward_length", FF);
    omm_gguf_put_u32(w, "llama.attention.head_count", HEADS);
    omm_gguf_put_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    omm_gguf_put_u32(w, "llama.rope.dimension_count", HEAD_DIM);
    omm_gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    omm_gguf_put_f32(w, "llama.rope.freq_base", 10000);
}

void test_synth_open(omm_model *model, omm_format format) {
    omm_seed seed = omm_seed_from_u64(7);
    synth s = {.lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0), .format = format};
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 64 << 20);
    omm_arena_init(&s.arena, 64 << 20);
    omm_gguf_writer_init(&s.writer);
    put_keys(&s.writer);
    put_matrix(&s, "token_embd.weight", VOCAB, D, 0.5F);
    for (int i = 0; i < LAYERS; i++) put_layer(&s, i);
    put_norm(&s, "output_norm.weight");
    CHECK_OK(omm_gguf_writer_finish(&file, &s.writer));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(model, &gguf));
    omm_gguf_close(&gguf);
    omm_gguf_writer_fini(&s.writer);
    omm_arena_fini(&s.arena);
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
                  uint64_t seed_value) {
    omm_seed seed = omm_seed_from_u64(seed_value);
    omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
    omm_lora_spec spec = {rank, 2.0F * (float)rank, targets};
    CHECK_OK(omm_lora_init_random(out, &spec, &model->lora_shape, &lane));
    for (size_t i = 0; i < out->tensor_count; i++) {
        const omm_lora_tensor *t = &out->tensors[i];
        if (!t->is_b) continue;
        for (size_t k = 0; k < (size_t)t->rows * t->cols; k++)
            out->values[t->offset + k] = (2 * omm_rng_unit(&lane, t->offset + k) - 1) / (float)rank;
    }
}
