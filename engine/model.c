/* model.c - loading a llama-architecture model: keys, tensors by name, shapes, packing. */
#include "omm/model.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE "llama"
#define SUPPORTED_TYPES "F32, F16, Q8_0, Q4_0"
#define HEADS_MAX 1024u

/* ---- keys ------------------------------------------------------------------------------------ */

static omm_err check_architecture(const omm_gguf *gguf) {
    char name[64] = "";
    OMM_TRY(omm_gguf_get_text(name, sizeof name, gguf, "general.architecture"));
    if (strcmp(name, ARCHITECTURE) != 0)
        return omm_raise(OMM_ERR_UNSUPPORTED, "architecture '%s' is not supported; only '%s' is",
                         name, ARCHITECTURE);
    return OMM_OK;
}

static omm_err in_range(const char *key, uint32_t value, uint32_t min, uint32_t max) {
    if (value >= min && value <= max) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "%s is %u: must be %u to %u", key, value, min, max);
}

static omm_err get_count(uint32_t *out, const omm_gguf *gguf, const char *key, uint32_t max) {
    OMM_TRY(omm_gguf_get_u32(out, gguf, key));
    return in_range(key, *out, 1, max);
}

static omm_err load_heads(omm_model_dims *d, const omm_gguf *gguf) {
    uint32_t value_dim = 0, rope_dim = 0;
    OMM_TRY(get_count(&d->heads, gguf, "llama.attention.head_count", HEADS_MAX));
    OMM_TRY(omm_gguf_get_u32_or(&d->kv_heads, gguf, "llama.attention.head_count_kv", d->heads));
    OMM_TRY(in_range("llama.attention.head_count_kv", d->kv_heads, 1, d->heads));
    if (d->heads % d->kv_heads != 0)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%u heads do not divide into %u key/value heads",
                         d->heads, d->kv_heads);
    const uint32_t usual = d->d_model / d->heads;
    OMM_TRY(omm_gguf_get_u32_or(&d->head_dim, gguf, "llama.attention.key_length", usual));
    OMM_TRY(omm_gguf_get_u32_or(&value_dim, gguf, "llama.attention.value_length", d->head_dim));
    OMM_TRY(omm_gguf_get_u32_or(&rope_dim, gguf, "llama.rope.dimension_count", d->head_dim));
    OMM_TRY(in_range("head width", d->head_dim, 2, OMM_HEAD_DIM_MAX));
    if (d->head_dim % 2 != 0 || value_dim != d->head_dim || rope_dim != d->head_dim)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "keys of %u, values of %u, rotation over %u: supported is one even width",
                         d->head_dim, value_dim, rope_dim);
    return OMM_OK;
}

static omm_err load_rope(omm_model_dims *d, const omm_gguf *gguf) {
    char type[32] = "none";
    float base = 0.0f, factor = 1.0f;
    OMM_TRY(omm_gguf_get_f32_or(&base, gguf, "llama.rope.freq_base", 10000.0f));
    omm_err err = omm_gguf_get_text(type, sizeof type, gguf, "llama.rope.scaling.type");
    if (err != OMM_OK && err != OMM_ERR_NOT_FOUND) return err;
    if (strcmp(type, "linear") == 0) {
        OMM_TRY(omm_gguf_get_f32(&factor, gguf, "llama.rope.scaling.factor"));
    } else if (strcmp(type, "none") != 0) {
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "rope scaling '%s' is not supported; 'none' and 'linear' are", type);
    }
    if (!(base >= 1.0f && base <= 1e12f) || !(factor >= 1.0f && factor <= 1e6f))
        return omm_raise(OMM_ERR_NUMERIC, "rope base or scaling factor is out of range");
    d->rope_base = (double)base;
    d->rope_scale = 1.0 / (double)factor;
    return OMM_OK;
}

static omm_err load_dims(omm_model_dims *d, const omm_gguf *gguf) {
    OMM_TRY(check_architecture(gguf));
    OMM_TRY(get_count(&d->layers, gguf, "llama.block_count", OMM_MODEL_LAYERS_MAX));
    OMM_TRY(get_count(&d->d_model, gguf, "llama.embedding_length", OMM_MODEL_WIDTH_MAX));
    OMM_TRY(get_count(&d->d_ff, gguf, "llama.feed_forward_length", 4 * OMM_MODEL_WIDTH_MAX));
    OMM_TRY(get_count(&d->context, gguf, "llama.context_length", OMM_MODEL_CONTEXT_MAX));
    OMM_TRY(omm_gguf_get_f32(&d->rms_eps, gguf, "llama.attention.layer_norm_rms_epsilon"));
    if (!(d->rms_eps > 0.0f && d->rms_eps < 1.0f))
        return omm_raise(OMM_ERR_NUMERIC, "llama.attention.layer_norm_rms_epsilon is out of range");
    OMM_TRY(load_heads(d, gguf));
    return load_rope(d, gguf);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static omm_err find(const omm_gguf_tensor **out, const omm_gguf *gguf, const char *name) {
    *out = omm_gguf_find_tensor(gguf, name);
    if (*out) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND, "tensor '%s' is missing", name);
}

static omm_err check_shape(const omm_gguf_tensor *t, uint64_t cols, uint64_t rows) {
    if (t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == 1 && t->dims[3] == 1)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "tensor '%s' is [%llu, %llu]: expected [%llu, %llu] (columns, rows)", t->name,
                     (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                     (unsigned long long)cols, (unsigned long long)rows);
}

static omm_err format_of(omm_format *out, const omm_gguf_tensor *t) {
    switch (t->type) {
    case OMM_GGML_F32: *out = OMM_FORMAT_F32; return OMM_OK;
    case OMM_GGML_F16: *out = OMM_FORMAT_F16; return OMM_OK;
    case OMM_GGML_Q8_0: *out = OMM_FORMAT_Q8_0; return OMM_OK;
    case OMM_GGML_Q4_0: *out = OMM_FORMAT_Q4_0; return OMM_OK;
    default: break;
    }
    const omm_ggml_info *info = omm_ggml_find((uint32_t)t->type);
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "tensor '%s' is of type %s, which is not supported; these are: %s", t->name,
                     info ? info->name : "unknown", SUPPORTED_TYPES);
}

static omm_err named(omm_err err, const char *name) {
    if (err == OMM_OK) return OMM_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", omm_err_sentence());
    return omm_raise(err, "tensor '%s': %s", name, why);
}

static omm_err load_matrix(omm_model *model, omm_matrix *out, const omm_gguf *gguf,
                           const char *name, uint32_t rows, uint32_t cols) {
    const omm_gguf_tensor *t = NULL;
    omm_format format = OMM_FORMAT_F32;
    OMM_TRY(find(&t, gguf, name));
    OMM_TRY(check_shape(t, cols, rows));
    OMM_TRY(format_of(&format, t));
    OMM_TRY(named(omm_matrix_pack(out, format, rows, cols, t->data), name));
    model->weight_bytes += (size_t)out->strips * out->strip_bytes;
    return OMM_OK;
}

static omm_err vector_values(float *out, const omm_gguf_tensor *t) {
    for (size_t i = 0; i < t->dims[0]; i++) {
        out[i] = t->type == OMM_GGML_F32 ? omm_get_f32(t->data.data + 4 * i)
                                         : omm_f16_to_f32(omm_get_u16(t->data.data + 2 * i));
        if (!isfinite(out[i]))
            return omm_raise(OMM_ERR_NUMERIC, "tensor '%s': element %zu is not a finite number",
                             t->name, i);
    }
    return OMM_OK;
}

static omm_err load_vector(float **out, const omm_gguf *gguf, const char *name, uint32_t count) {
    const omm_gguf_tensor *t = NULL;
    OMM_TRY(find(&t, gguf, name));
    OMM_TRY(check_shape(t, count, 1));
    if (t->type != OMM_GGML_F32 && t->type != OMM_GGML_F16)
        return omm_raise(OMM_ERR_UNSUPPORTED, "tensor '%s' is no F32 or F16 vector", name);
    *out = (float *)omm_alloc_aligned(count, sizeof **out);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "no memory for tensor '%s'", name);
    return vector_values(*out, t);
}

static void shape_of(omm_lora_shape *s, const omm_model_dims *d) {
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    const uint32_t in[OMM_LORA_TARGET_COUNT] = {d->d_model, d->d_model, d->d_model, q,
                                                d->d_model, d->d_model, d->d_ff};
    const uint32_t out[OMM_LORA_TARGET_COUNT] = {q,       kv,      kv,        d->d_model,
                                                 d->d_ff, d->d_ff, d->d_model};
    *s = (omm_lora_shape){.layer_count = d->layers, .architecture = ARCHITECTURE};
    memcpy(s->d_in, in, sizeof in);
    memcpy(s->d_out, out, sizeof out);
}

static omm_err load_layer(omm_model *model, const omm_gguf *gguf, uint32_t index) {
    omm_layer *layer = &model->layers[index];
    const omm_lora_shape *s = &model->lora_shape;
    char name[OMM_GGUF_NAME_MAX];
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", index,
                 omm_lora_target_tensor((omm_lora_target)t));
        OMM_TRY(load_matrix(model, &layer->weights[t], gguf, name, s->d_out[t], s->d_in[t]));
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", index);
    OMM_TRY(load_vector(&layer->attn_norm, gguf, name, model->dims.d_model));
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", index);
    return load_vector(&layer->ffn_norm, gguf, name, model->dims.d_model);
}

static bool in_graph(const omm_model *model, const char *name) {
    static const char *const top[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                      "rope_freqs.weight"};
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        if (strcmp(name, top[i]) == 0) return true;
    char want[OMM_GGUF_NAME_MAX];
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    if (!dot) return false;
    for (uint32_t i = 0; i < model->dims.layers; i++) {
        int n = snprintf(want, sizeof want, "blk.%u", i);
        if (n != dot - name || strncmp(name, want, (size_t)n) != 0) continue;
        if (strcmp(dot, ".attn_norm.weight") == 0 || strcmp(dot, ".ffn_norm.weight") == 0)
            return true;
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            snprintf(want, sizeof want, ".%s.weight", omm_lora_target_tensor((omm_lora_target)t));
            if (strcmp(dot, want) == 0) return true;
        }
    }
    return false;
}

/* A tensor that the graph would not use (a bias, an expert) means a wrong result. */
static omm_err refuse_extra(const omm_model *model, const omm_gguf *gguf) {
    for (size_t i = 0; i < gguf->tensor_count; i++)
        if (!in_graph(model, gguf->tensors[i].name))
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "tensor '%s' has no place in the '%s' graph as it is supported here",
                             gguf->tensors[i].name, ARCHITECTURE);
    return OMM_OK;
}

static omm_err load_factors(omm_model *model, const omm_gguf *gguf) {
    const char *name = "rope_freqs.weight";
    if (!omm_gguf_find_tensor(gguf, name)) return OMM_OK;
    const uint32_t count = model->dims.head_dim / 2;
    OMM_TRY(load_vector(&model->rope_factors, gguf, name, count));
    for (uint32_t i = 0; i < count; i++)
        if (!(model->rope_factors[i] > 0.0f))
            return omm_raise(OMM_ERR_NUMERIC, "tensor '%s': element %u is not positive", name, i);
    return OMM_OK;
}

static omm_err load_ends(omm_model *model, const omm_gguf *gguf) {
    const omm_gguf_tensor *t = NULL;
    omm_model_dims *d = &model->dims;
    OMM_TRY(find(&t, gguf, "token_embd.weight"));
    if (t->dims[1] > OMM_MATRIX_DIM_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "vocabulary of %llu: at most %u",
                         (unsigned long long)t->dims[1], OMM_MATRIX_DIM_MAX);
    d->vocab = (uint32_t)t->dims[1];
    OMM_TRY(load_matrix(model, &model->embed, gguf, t->name, d->vocab, d->d_model));
    OMM_TRY(load_vector(&model->output_norm, gguf, "output_norm.weight", d->d_model));
    model->output = &model->embed;
    model->tied = omm_gguf_find_tensor(gguf, "output.weight") == NULL;
    if (model->tied) return OMM_OK;
    model->output = &model->output_own;
    return load_matrix(model, &model->output_own, gguf, "output.weight", d->vocab, d->d_model);
}

static omm_err load_all(omm_model *model, const omm_gguf *gguf) {
    OMM_TRY(load_dims(&model->dims, gguf));
    OMM_TRY(refuse_extra(model, gguf));
    shape_of(&model->lora_shape, &model->dims);
    OMM_TRY(load_ends(model, gguf));
    OMM_TRY(load_factors(model, gguf));
    model->layers = (omm_layer *)omm_alloc(model->dims.layers, sizeof *model->layers);
    if (!model->layers) return omm_raise(OMM_ERR_NOMEM, "no memory for the layer table");
    for (uint32_t i = 0; i < model->dims.layers; i++) OMM_TRY(load_layer(model, gguf, i));
    return OMM_OK;
}

omm_err omm_model_load(omm_model *model, const omm_gguf *gguf) {
    *model = (omm_model){0};
    omm_err err = load_all(model, gguf);
    if (err != OMM_OK) omm_model_fini(model);
    return err;
}

void omm_model_fini(omm_model *model) {
    for (uint32_t i = 0; model->layers && i < model->dims.layers; i++) {
        omm_layer *layer = &model->layers[i];
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) omm_matrix_fini(&layer->weights[t]);
        omm_free(layer->attn_norm);
        omm_free(layer->ffn_norm);
    }
    omm_free(model->layers);
    omm_matrix_fini(&model->embed);
    omm_matrix_fini(&model->output_own);
    omm_free(model->output_norm);
    omm_free(model->rope_factors);
    *model = (omm_model){0};
}

omm_err omm_model_rope(omm_rope *rope, const omm_model *model, uint32_t positions) {
    const omm_model_dims *d = &model->dims;
    double frequency[OMM_HEAD_DIM_MAX / 2];
    omm_rope_frequencies(frequency, d->head_dim, d->rope_base);
    for (uint32_t i = 0; i < d->head_dim / 2; i++) {
        frequency[i] *= d->rope_scale;
        if (model->rope_factors) frequency[i] /= (double)model->rope_factors[i];
    }
    omm_rope_spec spec = {.style = OMM_ROPE_PAIRS,
                          .positions = positions,
                          .head_dim = d->head_dim,
                          .rotated = d->head_dim,
                          .frequency = frequency,
                          .magnitude = 1.0};
    return omm_rope_init(rope, &spec);
}

float omm_model_attention_scale(const omm_model *model) {
    return 1.0f / sqrtf((float)model->dims.head_dim);
}
