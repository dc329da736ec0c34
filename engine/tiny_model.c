/* tiny_model.c - see tiny_model.h. */
#include "tiny_model.h"

#include "kernels_battery.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct tiny {
    omm_gguf_writer w;
    const tiny_options *o;
    void *blocks[64]; /* payloads, kept until the file is written */
    size_t count;
} tiny;

static bool is(const char *a, const char *b) {
    return a && strcmp(a, b) == 0;
}

static void key(tiny *t, const char *name, uint32_t value) {
    if (is(t->o->skip, name)) return;
    omm_gguf_put_u32(&t->w, name, is(t->o->key, name) ? t->o->value : value);
}

static uint16_t half_of(float x) {
    return omm_f32_to_f16(x);
}

/* `units` blocks of random weights of about the size that keeps activations near 1. */
static uint8_t *fill(omm_format format, size_t units, float size, uint64_t seed) {
    static const size_t bytes[TINY_FORMATS] = {4, 2, 34, 18};
    uint8_t *data = (uint8_t *)omm_alloc(units, bytes[format]);
    OMM_ASSERT(data != NULL);
    float *r = battery_floats(seed, units * 32);
    for (size_t i = 0; i < units; i++) {
        uint8_t *p = data + i * bytes[format];
        float v = r[i] * size;
        if (format == OMM_FORMAT_F32) {
            omm_put_f32(p, v);
            continue;
        }
        uint16_t h = half_of(format == OMM_FORMAT_Q8_0   ? size / 127.0f
                             : format == OMM_FORMAT_Q4_0 ? size / 8.0f
                                                         : v);
        p[0] = (uint8_t)h;
        p[1] = (uint8_t)(h >> 8);
        for (size_t j = 2; j < bytes[format]; j++)
            p[j] = (uint8_t)(int8_t)(r[units + (i * 31 + j) % (units * 31)] * 127.0f);
    }
    omm_free(r);
    return data;
}

static void tensor(tiny *t, const char *name, omm_format format, uint32_t cols, uint32_t rows) {
    static const uint32_t types[TINY_FORMATS] = {OMM_GGML_F32, OMM_GGML_F16, OMM_GGML_Q8_0,
                                                 OMM_GGML_Q4_0};
    if (is(t->o->skip, name)) return;
    if (is(t->o->narrow, name)) cols -= 32;
    const uint32_t type = types[format];
    const uint64_t dims[2] = {cols, rows};
    uint64_t bytes = 0;
    OMM_ASSERT(omm_gguf_tensor_bytes(&bytes, type, rows > 1 ? 2 : 1, dims) == OMM_OK);
    size_t units = (size_t)cols * rows / (omm_format_is_quantised(format) ? 32 : 1);
    const float size = rows > 1 ? 1.7f / sqrtf((float)cols) : 1.0f;
    OMM_ASSERT(t->count < 64);
    uint8_t *data = fill(format, units, size, t->count + 11);
    if (is(t->o->nan, name)) {
        uint8_t *p = data + (size_t)bytes / 2 / 34 * 34;
        if (format == OMM_FORMAT_Q4_0) p = data + (size_t)bytes / 2 / 18 * 18;
        if (format == OMM_FORMAT_F32) {
            omm_put_f32(data + bytes / 8 * 4, NAN);
        } else { /* an infinite half: weight or scale */
            if (format == OMM_FORMAT_F16) p = data + bytes / 4 * 2;
            p[0] = 0;
            p[1] = 0x7c;
        }
    }
    t->blocks[t->count++] = data;
    omm_gguf_put_tensor(&t->w, name, type, rows > 1 ? 2 : 1, dims,
                        omm_bytes_of(data, (size_t)bytes));
}

static void layer(tiny *t, unsigned i) {
    static const struct {
        const char *name;
        uint32_t cols, rows;
    } parts[] = {{"attn_q", TINY_WIDTH, TINY_HEADS * TINY_HEAD_DIM},
                 {"attn_k", TINY_WIDTH, TINY_KV_HEADS * TINY_HEAD_DIM},
                 {"attn_v", TINY_WIDTH, TINY_KV_HEADS * TINY_HEAD_DIM},
                 {"attn_output", TINY_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
                 {"ffn_gate", TINY_WIDTH, TINY_FF},
                 {"ffn_up", TINY_WIDTH, TINY_FF},
                 {"ffn_down", TINY_FF, TINY_WIDTH}};
    char name[OMM_GGUF_NAME_MAX];
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, parts[p].name);
        tensor(t, name, t->o->format, parts[p].cols, parts[p].rows);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", i);
    tensor(t, name, OMM_FORMAT_F32, TINY_WIDTH, 1);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", i);
    tensor(t, name, OMM_FORMAT_F32, TINY_WIDTH, 1);
}

void tiny_model_write(omm_buf *out, const tiny_options *options) {
    tiny t = {.o = options};
    omm_gguf_writer_init(&t.w);
    if (options->alignment) omm_gguf_put_alignment(&t.w, options->alignment);
    if (!is(options->skip, "general.architecture"))
        omm_gguf_put_text(&t.w, "general.architecture",
                          options->architecture ? options->architecture : "llama");
    if (options->file_type) omm_gguf_put_u32(&t.w, "general.file_type", 0);
    key(&t, "llama.block_count", TINY_LAYERS);
    key(&t, "llama.embedding_length", TINY_WIDTH);
    key(&t, "llama.feed_forward_length", TINY_FF);
    key(&t, "llama.context_length", TINY_CONTEXT);
    key(&t, "llama.attention.head_count", TINY_HEADS);
    key(&t, "llama.attention.head_count_kv", TINY_KV_HEADS);
    if (options->key && strstr(options->key, "rope")) key(&t, options->key, 0);
    if (!is(options->skip, "llama.attention.layer_norm_rms_epsilon"))
        omm_gguf_put_f32(&t.w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (options->scaling) omm_gguf_put_text(&t.w, "llama.rope.scaling.type", options->scaling);
    tensor(&t, "token_embd.weight", options->format, TINY_WIDTH, TINY_VOCAB);
    tensor(&t, "output_norm.weight", OMM_FORMAT_F32, TINY_WIDTH, 1);
    if (options->untied) tensor(&t, "output.weight", options->format, TINY_WIDTH, TINY_VOCAB);
    for (unsigned i = 0; i < TINY_LAYERS; i++) layer(&t, i);
    if (options->extra) tensor(&t, options->extra, OMM_FORMAT_F32, TINY_WIDTH, 1);
    OMM_ASSERT(omm_gguf_writer_finish(out, &t.w) == OMM_OK);
    omm_gguf_writer_fini(&t.w);
    for (size_t i = 0; i < t.count; i++) omm_free(t.blocks[i]);
}
