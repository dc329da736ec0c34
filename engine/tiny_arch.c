/* tiny_arch.c - see tiny_arch.h. */
#include "tiny_arch.h"

#include "kernels_battery.h"

#include "omm/gguf.h"
#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 64, FF = 96, HEADS = 4, KV_HEADS = 2 };

typedef struct maker {
    omm_gguf_writer w;
    omm_arena arena;
    const tiny_arch *o;
    uint32_t dim, rotated;
    uint64_t seed;
} maker;

static bool is(const maker *m, const char *name) {
    return strcmp(m->o->name, name) == 0;
}

static uint8_t *room(maker *m, size_t bytes) {
    uint8_t *data = omm_arena_alloc(&m->arena, bytes, 1);
    OMM_ASSERT(data != NULL);
    return data;
}

/* Blocks of 32 values, the largest of each one `size`. */
static void matrix_q8(maker *m, const char *name, uint32_t cols, uint32_t rows, float size) {
    const uint64_t dims[2] = {cols, rows};
    const size_t blocks = (size_t)cols * rows / 32;
    uint8_t *data = room(m, blocks * 34);
    float *r = battery_floats(++m->seed, blocks * 32);
    OMM_ASSERT(cols % 32 == 0);
    for (size_t i = 0; i < blocks; i++) {
        omm_put_u16(data + 34 * i, omm_f32_to_f16(size / 127.0f));
        for (size_t j = 0; j < 32; j++)
            data[34 * i + 2 + j] = (uint8_t)(int8_t)(r[32 * i + j] * 127.0f);
    }
    omm_free(r);
    omm_gguf_put_tensor(&m->w, name, OMM_GGML_Q8_0, 2, dims, omm_bytes_of(data, 34 * blocks));
}

/* Values of middle - size .. middle + size. */
static void tensor(maker *m, const char *name, uint32_t cols, uint32_t rows, float middle,
                   float size) {
    if (m->o->skip && strcmp(m->o->skip, name) == 0) return;
    if (rows > 1 && m->o->q8) {
        matrix_q8(m, name, cols, rows, size);
        return;
    }
    const uint64_t dims[2] = {cols, rows};
    const size_t count = (size_t)cols * rows;
    uint8_t *data = room(m, 4 * count);
    float *r = battery_floats(++m->seed, count);
    for (size_t i = 0; i < count; i++) omm_put_f32(data + 4 * i, middle + size * r[i]);
    omm_free(r);
    omm_gguf_put_tensor(&m->w, name, OMM_GGML_F32, rows > 1 ? 2 : 1, dims,
                        omm_bytes_of(data, 4 * count));
}

static void part(maker *m, uint32_t layer, const char *stem, const char *kind, uint32_t cols,
                 uint32_t rows) {
    char name[OMM_GGUF_NAME_MAX];
    snprintf(name, sizeof name, "blk.%u.%s.%s", layer, stem, kind);
    if (rows > 1)
        tensor(m, name, cols, rows, 0.0f, 2.0f / sqrtf((float)cols));
    else if (strcmp(kind, "bias") == 0)
        tensor(m, name, cols, 1, 0.0f, 0.8f);
    else
        tensor(m, name, cols, 1, 1.0f, 0.5f);
}

static void matrices(maker *m, uint32_t i) {
    const uint32_t q = HEADS * m->dim, kv = KV_HEADS * m->dim;
    if (is(m, "phi3")) {
        part(m, i, "attn_qkv", "weight", WIDTH, q + 2 * kv);
        part(m, i, "ffn_up", "weight", WIDTH, 2 * FF);
    } else {
        part(m, i, "attn_q", "weight", WIDTH, q);
        part(m, i, "attn_k", "weight", WIDTH, kv);
        part(m, i, "attn_v", "weight", WIDTH, kv);
        part(m, i, "ffn_gate", "weight", WIDTH, FF);
        part(m, i, "ffn_up", "weight", WIDTH, FF);
    }
    part(m, i, "attn_output", "weight", q, WIDTH);
    part(m, i, "ffn_down", "weight", FF, WIDTH);
}

static void layer(maker *m, uint32_t i) {
    matrices(m, i);
    part(m, i, "attn_norm", "weight", WIDTH, 1);
    part(m, i, "ffn_norm", "weight", WIDTH, 1);
    if (is(m, "qwen2")) {
        part(m, i, "attn_q", "bias", HEADS * m->dim, 1);
        part(m, i, "attn_k", "bias", KV_HEADS * m->dim, 1);
        part(m, i, "attn_v", "bias", KV_HEADS * m->dim, 1);
    }
    if (is(m, "qwen3") || is(m, "gemma3")) {
        part(m, i, "attn_q_norm", "weight", m->dim, 1);
        part(m, i, "attn_k_norm", "weight", m->dim, 1);
    }
    if (!is(m, "gemma2") && !is(m, "gemma3")) return;
    part(m, i, "post_attention_norm", "weight", WIDTH, 1);
    part(m, i, "post_ffw_norm", "weight", WIDTH, 1);
}

/* A value of 0 means no key. */
static void key(maker *m, const char *tail, uint32_t value) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", m->o->name, tail);
    if (value) omm_gguf_put_u32(&m->w, name, value);
}

static void real(maker *m, const char *tail, float value) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", m->o->name, tail);
    if (value != 0.0f) omm_gguf_put_f32(&m->w, name, value);
}

static void keys(maker *m, uint32_t layers) {
    const tiny_arch *o = m->o;
    char name[96];
    omm_gguf_put_text(&m->w, "general.architecture", o->name);
    key(m, "block_count", layers);
    key(m, "embedding_length", WIDTH);
    key(m, "feed_forward_length", FF);
    key(m, "context_length", TINY_ARCH_CONTEXT);
    key(m, "attention.head_count", HEADS);
    key(m, "attention.head_count_kv", KV_HEADS);
    key(m, "attention.key_length", o->head_dim);
    key(m, "attention.value_length", o->head_dim);
    key(m, "rope.dimension_count", o->rotated);
    key(m, "attention.sliding_window", o->window);
    key(m, "rope.scaling.original_context_length", o->original);
    real(m, "attention.layer_norm_rms_epsilon", 1e-5f);
    real(m, "rope.freq_base", o->base);
    real(m, "rope.scaling.factor", o->factor);
    real(m, "rope.scale_linear", o->scale_linear);
    real(m, "rope.scaling.attn_factor", o->attn_factor);
    real(m, "attn_logit_softcapping", o->caps[0]);
    real(m, "final_logit_softcapping", o->caps[1]);
    snprintf(name, sizeof name, "%s.rope.scaling.type", o->name);
    if (o->scaling) omm_gguf_put_text(&m->w, name, o->scaling);
}

void tiny_arch_write(omm_buf *out, const tiny_arch *options) {
    maker m = {.o = options};
    const uint32_t layers = options->layers ? options->layers : 2;
    m.dim = options->head_dim ? options->head_dim : WIDTH / HEADS;
    m.rotated = options->rotated ? options->rotated : m.dim;
    omm_gguf_writer_init(&m.w);
    omm_arena_init(&m.arena, 64u << 20);
    keys(&m, layers);
    tensor(&m, "token_embd.weight", WIDTH, TINY_ARCH_VOCAB, 0.0f, 1.0f);
    tensor(&m, "output_norm.weight", WIDTH, 1, 1.0f, 0.5f);
    if (options->untied) tensor(&m, "output.weight", WIDTH, TINY_ARCH_VOCAB, 0.0f, 0.5f);
    if (options->freqs) tensor(&m, "rope_freqs.weight", m.rotated / 2, 1, 4.5f, 3.5f);
    if (options->long_factors) {
        tensor(&m, "rope_factors_long.weight", m.rotated / 2, 1, 9.0f, 6.0f);
        tensor(&m, "rope_factors_short.weight", m.rotated / 2, 1, 1.5f, 0.5f);
    }
    for (uint32_t i = 0; i < layers; i++) layer(&m, i);
    OMM_ASSERT(omm_gguf_writer_finish(out, &m.w) == OMM_OK);
    omm_gguf_writer_fini(&m.w);
    omm_arena_fini(&m.arena);
}

void tiny_arch_load(omm_model *out, const tiny_arch *options) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, options);
    OMM_ASSERT(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)) == OMM_OK);
    OMM_ASSERT(omm_model_load(out, &gguf) == OMM_OK);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}
