/* synth_shapes.c - dimensions of published models, and the keys that say them. */
#include "synth_internal.h"

#include <stdio.h>
#include <string.h>

#define LLAMA .architecture = "llama", .rms_eps = 1e-5f
#define QWEN2 .architecture = "qwen2", .rms_eps = 1e-6f, .rope_base = 1e6f, .biases = true
#define QWEN3 .architecture = "qwen3", .rms_eps = 1e-6f, .rope_base = 1e6f, .qk_norms = true
#define GEMMA .architecture = "gemma", .rms_eps = 1e-6f, .rope_base = 1e4f
#define GEMMA2                                                                                     \
    .architecture = "gemma2", .rms_eps = 1e-6f, .rope_base = 1e4f, .post_norms = true,             \
    .attention_cap = 50.0f, .final_cap = 30.0f
#define GEMMA3                                                                                     \
    .architecture = "gemma3", .rms_eps = 1e-6f, .rope_base = 1e6f, .post_norms = true,             \
    .qk_norms = true
#define PHI3                                                                                       \
    .architecture = "phi3", .rms_eps = 1e-5f, .rope_base = 1e4f, .fused = true, .untied = true
#define SMOLLM3 .architecture = "smollm3", .rms_eps = 1e-6f, .rope_base = 5e6f
#define GRANITE                                                                                    \
    .architecture = "granite", .rms_eps = 1e-5f, .rope_base = 1e7f, .embedding_scale = 12.0f,      \
    .residual_scale = 0.22f, .attention_scale = 0.015625f, .logit_scale = 8.0f
#define OLMO2                                                                                      \
    .architecture = "olmo2", .rms_eps = 1e-6f, .rope_base = 5e5f, .qk_norms = true,                \
    .whole_norms = true, .no_pre_norms = true, .post_norms = true, .untied = true
#define OLMO3 OLMO2, .yarn_factor = 8.0f
#define MISTRAL3                                                                                   \
    .architecture = "mistral3", .rms_eps = 1e-5f, .rope_base = 1e6f, .yarn_factor = 16.0f,         \
    .yarn_log_multiplier = 1.0f, .temperature = 0.1f
#define EXAONE4                                                                                    \
    .architecture = "exaone4", .rms_eps = 1e-5f, .rope_base = 1e6f, .qk_norms = true,              \
    .no_pre_norms = true, .post_norms = true
#define ERNIE .architecture = "ernie4_5", .rms_eps = 1e-5f, .rope_base = 5e5f
#define HUNYUAN                                                                                    \
    .architecture = "hunyuan-dense", .rms_eps = 1e-5f, .rope_base = 1e4f, .qk_norms = true
#define DIMS(l, d, ff, h, kv, hd, v, c)                                                            \
    .layers = (l), .d_model = (d), .d_ff = (ff), .heads = (h), .kv_heads = (kv), .head_dim = (hd), \
    .vocab = (v), .context = (c)
/* All column counts are multiples of 256: every element type fits. */
#define TINY DIMS(2, 256, 512, 4, 2, 64, 512, 512)

/* Source: the published config.json of each model. */
static const synth_shape s_shapes[] = {
    {"llama3.2-1b", LLAMA, DIMS(16, 2048, 8192, 32, 8, 64, 128256, 131072), .rope_base = 5e5f,
     .rope_factors = true},
    {"smollm2-135m", LLAMA, DIMS(30, 576, 1536, 9, 3, 64, 49152, 8192), .rope_base = 1e5f},
    {"smollm2-360m", LLAMA, DIMS(32, 960, 2560, 15, 5, 64, 49152, 8192), .rope_base = 1e5f},
    {"tinyllama-1.1b", LLAMA, DIMS(22, 2048, 5632, 32, 4, 64, 32000, 2048), .rope_base = 1e4f,
     .untied = true},
    {"qwen2.5-0.5b", QWEN2, DIMS(24, 896, 4864, 14, 2, 64, 151936, 32768)},
    {"qwen3-0.6b", QWEN3, DIMS(28, 1024, 3072, 16, 8, 128, 151936, 40960)},
    {"gemma2-2b", GEMMA2, DIMS(26, 2304, 9216, 8, 4, 256, 256000, 8192), .window = 4096},
    {"gemma3-1b", GEMMA3, DIMS(26, 1152, 6912, 4, 1, 256, 262144, 32768), .window = 512},
    {"phi3-mini", PHI3, DIMS(32, 3072, 8192, 32, 32, 96, 32064, 4096), .window = 2047},
    {"smollm3-3b", SMOLLM3, DIMS(36, 2048, 11008, 16, 4, 128, 128256, 65536)},
    {"granite3.3-2b", GRANITE, DIMS(40, 2048, 8192, 32, 8, 64, 49159, 131072)},
    {"olmo2-1b", OLMO2, DIMS(16, 2048, 8192, 16, 16, 128, 100352, 4096)},
    {"olmo3-7b", OLMO3, DIMS(32, 4096, 11008, 32, 32, 128, 100278, 65536), .window = 4096,
     .yarn_context = 8192},
    {"ministral3-3b", MISTRAL3, DIMS(26, 3072, 9216, 32, 8, 128, 131072, 262144),
     .yarn_context = 16384},
    {"ernie4.5-0.3b", ERNIE, DIMS(18, 1024, 3072, 16, 2, 128, 103424, 131072)},
    {"tiny-llama", LLAMA, TINY, .rope_base = 5e5f, .rope_factors = true},
    {"tiny-qwen2", QWEN2, TINY},
    {"tiny-qwen3", QWEN3, DIMS(2, 256, 512, 4, 2, 128, 512, 512)},
    {"tiny-gemma", GEMMA, TINY},
    {"tiny-gemma2", GEMMA2, TINY, .window = 64},
    {"tiny-gemma3", GEMMA3, DIMS(7, 256, 512, 4, 2, 64, 512, 512), .window = 64},
    {"tiny-phi3", PHI3, TINY, .window = 64},
    {"tiny-smollm3", SMOLLM3, DIMS(5, 256, 512, 4, 2, 64, 512, 512)},
    {"tiny-granite", GRANITE, TINY},
    {"tiny-olmo2", OLMO2, TINY},
    {"tiny-olmo3", OLMO3, DIMS(4, 256, 512, 4, 2, 64, 512, 512), .window = 64, .yarn_context = 32},
    {"tiny-mistral3", MISTRAL3, TINY, .yarn_context = 32},
    {"tiny-exaone4", EXAONE4, DIMS(4, 256, 512, 4, 2, 64, 512, 512), .window = 64},
    {"tiny-ernie4.5", ERNIE, TINY},
    {"tiny-hunyuan", HUNYUAN, TINY},
};

enum { SHAPE_COUNT = sizeof s_shapes / sizeof *s_shapes };

void omm_synth_shapes(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < SHAPE_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", s_shapes[i].name);
}

omm_err synth_shape_find(const synth_shape **out, const char *name) {
    char names[1024];
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (strcmp(s_shapes[i].name, name) != 0) continue;
        *out = &s_shapes[i];
        return OMM_OK;
    }
    omm_synth_shapes(names, sizeof names);
    return omm_raise(OMM_ERR_CONFIG, "shape '%s' is not known; choose from: %s", name, names);
}

/* ---- keys ------------------------------------------------------------------------------------ */

typedef struct keys {
    omm_gguf_writer *w;
    const char *architecture;
    char name[OMM_GGUF_NAME_MAX + 32];
} keys;

static const char *named(keys *k, const char *name) {
    snprintf(k->name, sizeof k->name, "%s.%s", k->architecture, name);
    return k->name;
}

static void put_u32(keys *k, const char *name, uint32_t value) {
    if (value > 0) omm_gguf_put_u32(k->w, named(k, name), value);
}

static void put_f32(keys *k, const char *name, float value) {
    if (value > 0.0f) omm_gguf_put_f32(k->w, named(k, name), value);
}

void synth_put_keys(omm_gguf_writer *w, const synth_shape *s, uint32_t layers) {
    char name[64];
    keys k = {.w = w, .architecture = s->architecture};
    snprintf(name, sizeof name, "synth-%s", s->name);
    omm_gguf_put_text(w, "general.architecture", s->architecture);
    omm_gguf_put_text(w, "general.name", name);
    put_u32(&k, "vocab_size", s->vocab);
    put_u32(&k, "context_length", s->context);
    put_u32(&k, "embedding_length", s->d_model);
    put_u32(&k, "block_count", layers);
    put_u32(&k, "feed_forward_length", s->d_ff);
    put_u32(&k, "attention.head_count", s->heads);
    put_u32(&k, "attention.head_count_kv", s->kv_heads);
    put_u32(&k, "attention.key_length", s->head_dim);
    put_u32(&k, "attention.value_length", s->head_dim);
    put_u32(&k, "rope.dimension_count", s->head_dim);
    put_f32(&k, "rope.freq_base", s->rope_base);
    put_f32(&k, "attention.layer_norm_rms_epsilon", s->rms_eps);
    put_u32(&k, "attention.sliding_window", s->window);
    put_f32(&k, "attn_logit_softcapping", s->attention_cap);
    put_f32(&k, "final_logit_softcapping", s->final_cap);
    put_f32(&k, "embedding_scale", s->embedding_scale);
    put_f32(&k, "residual_scale", s->residual_scale);
    put_f32(&k, "attention.scale", s->attention_scale);
    put_f32(&k, "logit_scale", s->logit_scale);
    if (s->yarn_factor > 0.0f) omm_gguf_put_text(w, named(&k, "rope.scaling.type"), "yarn");
    put_f32(&k, "rope.scaling.factor", s->yarn_factor);
    put_u32(&k, "rope.scaling.original_context_length", s->yarn_context);
    put_f32(&k, "rope.scaling.yarn_log_multiplier", s->yarn_log_multiplier);
    put_f32(&k, "attention.temperature_scale", s->temperature);
}
