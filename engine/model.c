/* model.c - loading a model: tensors by name, shapes, packing. */
#include "omm/model.h"

#include "arch.h"
#include "omm/gguf.h"
#include "omm/mathd.h"
#include "omm/mem.h"
#include "packed_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------- */

static omm_err find(const omm_gguf_tensor **out, const omm_gguf *gguf, const char *name) {
    *out = omm_gguf_find_tensor(gguf, name);
    if (*out) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND, "tensor '%s' is missing", name);
}

static omm_err check_shape(const omm_gguf_tensor *t, uint64_t cols, uint64_t rows) {
    if (t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == 1 && t->dims[3] == 1)
        return OMM_OK;
    if (t->n_dims > 2)
        return omm_raise(OMM_ERR_MISMATCH,
                         "tensor '%s' has %u dimensions: expected [%llu, %llu] (columns, rows)",
                         t->name, t->n_dims, (unsigned long long)cols, (unsigned long long)rows);
    return omm_raise(OMM_ERR_MISMATCH,
                     "tensor '%s' is [%llu, %llu]: expected [%llu, %llu] (columns, rows)", t->name,
                     (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                     (unsigned long long)cols, (unsigned long long)rows);
}

/* The reader refuses every type that has no row in ggml.c, and each row has a format (rows_test). */
static omm_format format_of(const omm_gguf_tensor *t) {
    omm_format format = OMM_FORMAT_F32;
    OMM_ASSERT(omm_format_find(&format, omm_ggml_find((uint32_t)t->type)->name));
    return format;
}

/* Rows of a matrix that may be part of a larger tensor. */
typedef struct part {
    uint32_t first, rows, all; /* of `all` rows of the tensor */
    omm_bytes *later;          /* not NULL: packed later, from these bytes */
} part;

static omm_err load_part(omm_model *model, omm_matrix *out, const omm_gguf *gguf, const char *name,
                         part p, uint32_t cols) {
    const omm_gguf_tensor *t = NULL;
    OMM_TRY(find(&t, gguf, name));
    OMM_TRY(check_shape(t, cols, p.all));
    const omm_format format = format_of(t);
    const size_t row_bytes = t->data.size / p.all;
    omm_bytes data = omm_bytes_of(t->data.data + p.first * row_bytes, p.rows * row_bytes);
    if (model->outline || model->packed || p.later) {
        OMM_TRY(omm_gguf_of_tensor(omm_matrix_outline(out, format, p.rows, cols), name));
        if (p.later) *p.later = data;
        if (model->outline) model->weight_bytes += omm_matrix_bytes(out);
        return OMM_OK;
    }
    OMM_TRY(omm_gguf_of_tensor(omm_matrix_pack_with(out, model->pool, format, p.rows, cols, data),
                               name));
    omm_gguf_release(gguf, data);
    model->weight_bytes += omm_matrix_bytes(out);
    return OMM_OK;
}

static omm_err load_matrix(omm_model *model, omm_matrix *out, const omm_gguf *gguf,
                           const char *name, uint32_t rows, uint32_t cols) {
    return load_part(model, out, gguf, name, (part){0, rows, rows, NULL}, cols);
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

static omm_err load_vector(omm_model *model, float **out, const omm_gguf *gguf, const char *name,
                           uint32_t count) {
    const omm_gguf_tensor *t = NULL;
    OMM_TRY(find(&t, gguf, name));
    OMM_TRY(check_shape(t, count, 1));
    if (t->type != OMM_GGML_F32 && t->type != OMM_GGML_F16)
        return omm_raise(OMM_ERR_UNSUPPORTED, "tensor '%s' is no F32 or F16 vector", name);
    model->vector_bytes += count * sizeof **out;
    if (model->outline) return OMM_OK;
    *out = (float *)omm_alloc_aligned(count, sizeof **out);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "no memory for tensor '%s'", name);
    return vector_values(*out, t);
}

static void shape_of(omm_lora_shape *s, const omm_model_dims *d, const arch *a) {
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    const uint32_t in[OMM_LORA_TARGET_COUNT] = {d->d_model, d->d_model, d->d_model, q,
                                                d->d_model, d->d_model, d->d_ff};
    const uint32_t out[OMM_LORA_TARGET_COUNT] = {q,       kv,      kv,        d->d_model,
                                                 d->d_ff, d->d_ff, d->d_model};
    *s = (omm_lora_shape){.layer_count = d->layers};
    s->fused = (a->parts & ARCH_FUSED_QKV) && (a->parts & ARCH_FUSED_GATE_UP);
    snprintf(s->architecture, sizeof s->architecture, "%s", a->name);
    memcpy(s->d_in, in, sizeof in);
    memcpy(s->d_out, out, sizeof out);
}

/* ---- layers ---------------------------------------------------------------------------------- */

typedef struct layer_loader {
    omm_model *model;
    const arch *a;
    const omm_gguf *gguf;
    uint32_t index;
    char name[OMM_GGUF_NAME_MAX]; /* of the tensor named last */
} layer_loader;

static const char *tensor_name(layer_loader *l, const char *stem, const char *kind) {
    snprintf(l->name, sizeof l->name, "blk.%u.%s.%s", l->index, stem, kind);
    return l->name;
}

/* Weights first .. last as the rows, one after the other, of one tensor. */
static omm_err load_fused(layer_loader *l, const char *stem, omm_lora_target first,
                          omm_lora_target last) {
    const omm_lora_shape *s = &l->model->lora_shape;
    omm_layer *layer = &l->model->layers[l->index];
    part p = {0};
    for (unsigned t = first; t <= (unsigned)last; t++) p.all += s->d_out[t];
    for (unsigned t = first; t <= (unsigned)last; t++) {
        p.rows = s->d_out[t];
        p.later = l->index < l->model->resident && !l->model->packed ? NULL : &layer->rows[t];
        OMM_TRY(load_part(l->model, &layer->weights[t], l->gguf, tensor_name(l, stem, "weight"), p,
                          s->d_in[t]));
        p.first += p.rows;
    }
    return OMM_OK;
}

static omm_err load_weights(layer_loader *l) {
    unsigned fused = 0; /* targets that come from a fused tensor */
    if (l->a->parts & ARCH_FUSED_QKV) {
        fused |= 1u << OMM_LORA_Q | 1u << OMM_LORA_K | 1u << OMM_LORA_V;
        OMM_TRY(load_fused(l, "attn_qkv", OMM_LORA_Q, OMM_LORA_V));
    }
    if (l->a->parts & ARCH_FUSED_GATE_UP) {
        fused |= 1u << OMM_LORA_GATE | 1u << OMM_LORA_UP;
        OMM_TRY(load_fused(l, "ffn_up", OMM_LORA_GATE, OMM_LORA_UP));
    }
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (!(fused >> t & 1u))
            OMM_TRY(load_fused(l, omm_lora_target_tensor((omm_lora_target)t), (omm_lora_target)t,
                               (omm_lora_target)t));
    return OMM_OK;
}

static omm_err load_named(float **out, layer_loader *l, const char *stem, const char *kind,
                          uint32_t count) {
    return load_vector(l->model, out, l->gguf, tensor_name(l, stem, kind), count);
}

static omm_err load_layer(layer_loader *l) {
    omm_layer *layer = &l->model->layers[l->index];
    const omm_model_dims *d = &l->model->dims;
    const unsigned parts = l->a->parts;
    layer->window = model_layer_window(d, l->index);
    layer->unrotated = model_layer_unrotated(d, l->index);
    OMM_TRY(load_weights(l));
    if (!(parts & ARCH_NO_PRE_NORMS)) {
        OMM_TRY(load_named(&layer->attn_norm, l, "attn_norm", "weight", d->d_model));
        OMM_TRY(load_named(&layer->ffn_norm, l, "ffn_norm", "weight", d->d_model));
    }
    for (unsigned t = OMM_LORA_Q; parts & ARCH_QKV_BIAS && t <= OMM_LORA_V; t++)
        OMM_TRY(load_named(&layer->bias[t], l, omm_lora_target_tensor((omm_lora_target)t), "bias",
                           l->model->lora_shape.d_out[t]));
    if (parts & ARCH_QK_NORM) {
        const uint32_t q = omm_model_norm_width(d, d->heads);
        const uint32_t k = omm_model_norm_width(d, d->kv_heads);
        OMM_TRY(load_named(&layer->q_norm, l, "attn_q_norm", "weight", q));
        OMM_TRY(load_named(&layer->k_norm, l, "attn_k_norm", "weight", k));
    }
    if (!(parts & ARCH_POST_NORMS)) return OMM_OK;
    OMM_TRY(load_named(&layer->attn_post_norm, l, "post_attention_norm", "weight", d->d_model));
    return load_named(&layer->ffn_post_norm, l, "post_ffw_norm", "weight", d->d_model);
}

static void layer_fini(omm_layer *layer) {
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        omm_matrix_fini(&layer->weights[t]);
        omm_free(layer->bias[t]);
    }
    omm_free(layer->attn_norm);
    omm_free(layer->ffn_norm);
    omm_free(layer->q_norm);
    omm_free(layer->k_norm);
    omm_free(layer->attn_post_norm);
    omm_free(layer->ffn_post_norm);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool in_graph(const omm_model *model, const arch *a, const char *name) {
    char want[32];
    if (arch_has_tensor(a, model->dims.rope_scaling, name)) return true;
    for (uint32_t i = 0; i < model->dims.layers; i++) {
        const int n = snprintf(want, sizeof want, "blk.%u.", i);
        if (strncmp(name, want, (size_t)n) == 0) return arch_has_layer_tensor(a, name + n);
    }
    return false;
}

static omm_err refuse_tensor(const char *name, const omm_model *model, const arch *a) {
    const bool of_rope = strncmp(name, "rope_", 5) == 0;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "tensor '%s' has no place in the '%s' graph as it is supported here%s%s", name,
                     a->name, of_rope ? " with rope scaling " : "",
                     of_rope ? model_scaling_name(model->dims.rope_scaling) : "");
}

/* A tensor that the graph would not use (a bias, an expert, factors of another rope) means a wrong result. */
static omm_err refuse_extra(const omm_model *model, const arch *a, const omm_gguf *gguf) {
    for (size_t i = 0; i < gguf->tensor_count; i++)
        if (!in_graph(model, a, gguf->tensors[i].name))
            return refuse_tensor(gguf->tensors[i].name, model, a);
    return OMM_OK;
}

/* Positive, and no pair turns so far within the context that nobody knows where to. */
static omm_err check_factor(const omm_model *model, const char *name, const double *frequency,
                            const float *factors, uint32_t i) {
    const double last = frequency[i] * (double)model->dims.context;
    if (!(factors[i] > 0.0f))
        return omm_raise(OMM_ERR_NUMERIC, "tensor '%s': element %u is not positive", name, i);
    if (last / (double)factors[i] <= OMM_TURN_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_NUMERIC,
                     "tensor '%s': element %u is %g: at least %g for a context of %u", name, i,
                     (double)factors[i], last / OMM_TURN_MAX, model->dims.context);
}

static omm_err load_factors(float **out, omm_model *model, const omm_gguf *gguf, const char *name) {
    double frequency[OMM_HEAD_DIM_MAX / 2];
    const uint32_t count = model->dims.rotated / 2;
    OMM_TRY(load_vector(model, out, gguf, name, count));
    if (model->outline) return OMM_OK;
    const float *factors = *out;
    OMM_ASSERT(factors != NULL);
    omm_rope_frequencies(frequency, model->dims.rotated, model->dims.rope_base);
    for (uint32_t i = 0; i < count; i++) OMM_TRY(check_factor(model, name, frequency, factors, i));
    return OMM_OK;
}

static omm_err load_all_factors(omm_model *model, const omm_gguf *gguf) {
    if (model->dims.rope_scaling == OMM_ROPE_SCALING_LONG) {
        OMM_TRY(load_factors(&model->rope_factors_long, model, gguf, "rope_factors_long.weight"));
        return load_factors(&model->rope_factors, model, gguf, "rope_factors_short.weight");
    }
    const char *name = "rope_freqs.weight";
    return omm_gguf_find_tensor(gguf, name) ? load_factors(&model->rope_factors, model, gguf, name)
                                            : OMM_OK;
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
    OMM_TRY(load_vector(model, &model->output_norm, gguf, "output_norm.weight", d->d_model));
    model->output = &model->embed;
    model->tied = omm_gguf_find_tensor(gguf, "output.weight") == NULL;
    if (model->tied) return OMM_OK;
    model->output = &model->output_own;
    return load_matrix(model, &model->output_own, gguf, "output.weight", d->vocab, d->d_model);
}

static omm_err load_all(omm_model *model, const omm_gguf *gguf) {
    char name[64] = "";
    const arch *a = NULL;
    OMM_TRY(omm_gguf_get_text(name, sizeof name, gguf, "general.architecture"));
    OMM_TRY(arch_find(&a, name));
    OMM_TRY(model_keys_load(&model->dims, a, gguf));
    OMM_TRY(refuse_extra(model, a, gguf));
    shape_of(&model->lora_shape, &model->dims, a);
    if (!model->outline) omm_lora_base_read(&model->lora_shape.base, gguf);
    model->head_norms = a->parts & ARCH_QK_NORM;
    model->post_norms = a->parts & ARCH_POST_NORMS;
    if (model->resident > model->dims.layers) model->resident = model->dims.layers;
    model->gguf = model->resident < model->dims.layers && !model->packed ? gguf : NULL;
    OMM_TRY(load_ends(model, gguf));
    OMM_TRY(load_all_factors(model, gguf));
    model->layers = (omm_layer *)omm_alloc(model->dims.layers, sizeof *model->layers);
    if (!model->layers) return omm_raise(OMM_ERR_NOMEM, "no memory for the layer table");
    layer_loader l = {.model = model, .a = a, .gguf = gguf};
    for (; l.index < model->dims.layers; l.index++) OMM_TRY(load_layer(&l));
    if (model->gguf) omm_gguf_release_all(gguf); /* pages around the vectors of streamed layers */
    return OMM_OK;
}

static omm_err load(omm_model *model, const omm_gguf *gguf, omm_model how) {
    *model = how;
    omm_err err = load_all(model, gguf);
    if (err == OMM_OK && !model->outline) err = omm_gguf_check_unchanged(gguf);
    model->pool = NULL;
    if (err != OMM_OK) omm_model_fini(model);
    return err;
}

omm_err omm_model_load_streamed(omm_model *model, omm_pool *pool, const omm_gguf *gguf,
                                uint32_t resident) {
    return load(model, gguf, (omm_model){.pool = pool, .resident = resident});
}

omm_err omm_model_load_with(omm_model *model, omm_pool *pool, const omm_gguf *gguf) {
    return omm_model_load_streamed(model, pool, gguf, UINT32_MAX);
}

omm_err omm_model_load(omm_model *model, const omm_gguf *gguf) {
    return omm_model_load_with(model, NULL, gguf);
}

omm_err omm_model_outline(omm_model *model, const omm_gguf *gguf) {
    return load(model, gguf, (omm_model){.resident = UINT32_MAX, .outline = true});
}

omm_err model_outline_rows(omm_model *model, const omm_gguf *gguf) {
    return load(model, gguf, (omm_model){.outline = true});
}

omm_err omm_model_load_packed(omm_model *model, const omm_gguf *gguf, const omm_packed *packed,
                              uint32_t resident) {
    OMM_TRY(load(model, gguf, (omm_model){.resident = resident, .packed = packed}));
    omm_err err = packed_attach(model);
    if (err != OMM_OK) omm_model_fini(model);
    return err;
}

void omm_model_fini(omm_model *model) {
    for (uint32_t i = 0; model->layers && i < model->dims.layers; i++)
        layer_fini(&model->layers[i]);
    omm_free(model->layers);
    omm_matrix_fini(&model->embed);
    omm_matrix_fini(&model->output_own);
    omm_free(model->output_norm);
    omm_free(model->rope_factors);
    omm_free(model->rope_factors_long);
    *model = (omm_model){0};
}
