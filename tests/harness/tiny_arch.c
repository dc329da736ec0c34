/* tiny_arch.c - see tiny_arch.h. */
#include "tiny_arch.h"

#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, Q4_K_BYTES = 144 };

typedef struct maker {
    omm_gguf_writer w;
    omm_arena arena;
    const tiny_arch *o;
    uint32_t width, ff, dim, rotated;
    uint64_t seed;
} maker;

static bool is(const maker *m, const char *name) {
    return strcmp(m->o->name, name) == 0;
}

/* In (-1, 1), the same on every machine; omm_free takes them. */
static float *numbers(uint64_t seed, size_t count) {
    float *x = omm_alloc(count ? count : 1, sizeof *x);
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 88172645463325252u;
    OMM_ASSERT(x != NULL);
    for (size_t i = 0; i < count; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x[i] = (float)((int32_t)(s >> 40) - 0x800000) / (float)0x800000;
    }
    return x;
}

static uint8_t *room(maker *m, size_t bytes) {
    uint8_t *data = omm_arena_alloc(&m->arena, bytes, 1);
    OMM_ASSERT(data != NULL);
    return data;
}

/* Of Q4_K a block is drawn as it is, since to search for its scales would take most of a test: two
 * halves, 12 bytes of scales and minima, 128 of codes.  Their products cancel in the mean. */
static void draw_q4_k(maker *m, uint8_t *blocks, size_t count, float size) {
    float *r = numbers(++m->seed, count * Q4_K_BYTES);
    for (size_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i * Q4_K_BYTES;
        for (size_t k = 4; k < Q4_K_BYTES; k++)
            block[k] = (uint8_t)(int)((r[i * Q4_K_BYTES + k] + 1.0f) * 127.9f);
        omm_put_u16(block, omm_f32_to_f16(size * 0.0024f));
        omm_put_u16(block + 2, omm_f32_to_f16(size * 0.018f));
    }
    omm_free(r);
}

static void quantise(maker *m, uint8_t *data, omm_ggml_type type, uint32_t cols, uint32_t rows,
                     float size) {
    const size_t stride = omm_rows_stride(type, cols);
    float *r = numbers(++m->seed, (size_t)cols * rows);
    for (size_t i = 0; i < (size_t)cols * rows; i++) r[i] *= size;
    for (size_t i = 0; i < rows; i++)
        OMM_ASSERT(omm_rows_quantise(data + i * stride, type, r + i * cols, cols) == OMM_OK);
    omm_free(r);
}

static void matrix(maker *m, const char *name, uint32_t cols, uint32_t rows, float size) {
    const uint64_t dims[2] = {cols, rows};
    bool is_plain = false;
    for (size_t i = 0; i < 2; i++)
        is_plain = is_plain || (m->o->plain[i] && strstr(name, m->o->plain[i]) != NULL);
    const omm_format format = is_plain ? OMM_FORMAT_F32 : m->o->format;
    const omm_ggml_type type = omm_ggml_find_name(omm_format_name(format))->type;
    const size_t bytes = omm_rows_stride(type, cols) * rows;
    uint8_t *data = room(m, bytes);
    if (type == OMM_GGML_Q4_K)
        draw_q4_k(m, data, bytes / Q4_K_BYTES, size);
    else
        quantise(m, data, type, cols, rows, size);
    omm_gguf_put_tensor(&m->w, name, type, 2, dims, omm_bytes_of(data, bytes));
}

/* Values of middle - size .. middle + size. */
static void tensor(maker *m, const char *name, uint32_t cols, uint32_t rows, float middle,
                   float size) {
    if (m->o->skip && strcmp(m->o->skip, name) == 0) return;
    if (rows > 1) {
        matrix(m, name, cols, rows, size);
        return;
    }
    const uint64_t dims[1] = {cols};
    uint8_t *data = room(m, 4 * (size_t)cols);
    float *r = numbers(++m->seed, cols);
    for (size_t i = 0; i < cols; i++) omm_put_f32(data + 4 * i, middle + size * r[i]);
    omm_free(r);
    omm_gguf_put_tensor(&m->w, name, OMM_GGML_F32, 1, dims, omm_bytes_of(data, 4 * (size_t)cols));
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
        part(m, i, "attn_qkv", "weight", m->width, q + 2 * kv);
        part(m, i, "ffn_up", "weight", m->width, 2 * m->ff);
    } else {
        part(m, i, "attn_q", "weight", m->width, q);
        part(m, i, "attn_k", "weight", m->width, kv);
        part(m, i, "attn_v", "weight", m->width, kv);
        part(m, i, "ffn_gate", "weight", m->width, m->ff);
        part(m, i, "ffn_up", "weight", m->width, m->ff);
    }
    part(m, i, "attn_output", "weight", q, m->width);
    part(m, i, "ffn_down", "weight", m->ff, m->width);
}

static void layer(maker *m, uint32_t i) {
    matrices(m, i);
    if (!is(m, "olmo2") && !is(m, "exaone4")) {
        part(m, i, "attn_norm", "weight", m->width, 1);
        part(m, i, "ffn_norm", "weight", m->width, 1);
    }
    if (is(m, "qwen2")) {
        part(m, i, "attn_q", "bias", HEADS * m->dim, 1);
        part(m, i, "attn_k", "bias", KV_HEADS * m->dim, 1);
        part(m, i, "attn_v", "bias", KV_HEADS * m->dim, 1);
    }
    if (is(m, "qwen3") || is(m, "gemma3") || is(m, "exaone4") || is(m, "hunyuan-dense")) {
        part(m, i, "attn_q_norm", "weight", m->dim, 1);
        part(m, i, "attn_k_norm", "weight", m->dim, 1);
    }
    if (is(m, "olmo2")) {
        part(m, i, "attn_q_norm", "weight", HEADS * m->dim, 1);
        part(m, i, "attn_k_norm", "weight", KV_HEADS * m->dim, 1);
    }
    if (!is(m, "gemma2") && !is(m, "gemma3") && !is(m, "olmo2") && !is(m, "exaone4")) return;
    part(m, i, "post_attention_norm", "weight", m->width, 1);
    part(m, i, "post_ffw_norm", "weight", m->width, 1);
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
    key(m, "embedding_length", m->width);
    key(m, "feed_forward_length", m->ff);
    key(m, "context_length", o->context ? o->context : TINY_ARCH_CONTEXT);
    key(m, "attention.head_count", HEADS);
    key(m, "attention.head_count_kv", KV_HEADS);
    key(m, "attention.key_length", o->head_dim);
    key(m, "attention.value_length", o->head_dim);
    key(m, "rope.dimension_count", o->rotated);
    key(m, "attention.sliding_window", o->window);
    key(m, "attention.sliding_window_pattern", o->period);
    key(m, "rope.scaling.original_context_length", o->original);
    real(m, "attention.layer_norm_rms_epsilon", 1e-5f);
    real(m, "rope.freq_base", o->base);
    real(m, "rope.scaling.factor", o->factor);
    real(m, "rope.scale_linear", o->scale_linear);
    real(m, "rope.scaling.attn_factor", o->attn_factor);
    real(m, "rope.scaling.alpha", o->alpha);
    real(m, "rope.scaling.yarn_log_multiplier", o->log_multiplier);
    real(m, "attention.temperature_scale", o->temperature);
    real(m, "attn_logit_softcapping", o->caps[0]);
    real(m, "final_logit_softcapping", o->caps[1]);
    real(m, "embedding_scale", o->scales[0]);
    real(m, "residual_scale", o->scales[1]);
    real(m, "attention.scale", o->scales[2]);
    real(m, "logit_scale", o->scales[3]);
    snprintf(name, sizeof name, "%s.rope.scaling.finetuned", o->name);
    if (o->turns_not) omm_gguf_put_bool(&m->w, name, false);
    snprintf(name, sizeof name, "%s.attention.causal", o->name);
    if (o->sees_all) omm_gguf_put_bool(&m->w, name, false);
    snprintf(name, sizeof name, "%s.rope.scaling.type", o->name);
    if (o->scaling) omm_gguf_put_text(&m->w, name, o->scaling);
}

void tiny_arch_write(omm_buf *out, const tiny_arch *options) {
    maker m = {.o = options};
    const uint32_t layers = options->layers ? options->layers : 2;
    const uint32_t vocab = options->vocab ? options->vocab : TINY_ARCH_VOCAB;
    m.width = options->width ? options->width : 64;
    m.ff = options->ff ? options->ff : 96;
    m.dim = options->head_dim ? options->head_dim : m.width / HEADS;
    m.rotated = options->rotated ? options->rotated : m.dim;
    omm_gguf_writer_init(&m.w);
    omm_arena_init(&m.arena, 64u << 20);
    keys(&m, layers);
    tensor(&m, "token_embd.weight", m.width, vocab, 0.0f,
           options->embed != 0.0f ? options->embed : 1.0f);
    tensor(&m, "output_norm.weight", m.width, 1, 1.0f, 0.5f);
    if (options->untied) tensor(&m, "output.weight", m.width, vocab, 0.0f, 0.5f);
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
