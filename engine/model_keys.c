/* model_keys.c - what a file's keys say about a model: sizes, rope and its scaling, caps, windows. */
#include "arch.h"
#include "omm/gguf.h"
#include "omm/mathd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEADS_MAX 1024u
#define KEY_BYTES 96u
#define CONTEXT_SAID_MAX (1u << 30) /* positions that a file may speak of */

static bool is_last_of(uint32_t period, uint32_t layer) {
    return period > 0 && layer % period == period - 1;
}

/* The keys of one architecture begin with its name. */
typedef struct keys {
    const omm_gguf *gguf;
    const arch *a;
    char name[KEY_BYTES]; /* of the key looked up last */
} keys;

static const char *key(keys *k, const char *tail) {
    int n = snprintf(k->name, sizeof k->name, "%s.%s", k->a->name, tail);
    OMM_ASSERT(n > 0 && (size_t)n < sizeof k->name);
    return k->name;
}

static omm_err in_range(const char *name, uint32_t value, uint32_t min, uint32_t max) {
    if (value >= min && value <= max) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "%s is %u: must be %u to %u", name, value, min, max);
}

static omm_err get_count(uint32_t *out, keys *k, const char *tail, uint32_t max) {
    OMM_TRY(omm_gguf_get_u32(out, k->gguf, key(k, tail)));
    return in_range(k->name, *out, 1, max);
}

static omm_err get_u32_or(uint32_t *out, keys *k, const char *tail, uint32_t missing) {
    return omm_gguf_get_u32_or(out, k->gguf, key(k, tail), missing);
}

/* A number of min .. max, both finite. */
static omm_err get_real(double *out, keys *k, const char *tail, double missing, double min,
                        double max) {
    float value = (float)missing;
    OMM_TRY(omm_gguf_get_f32_or(&value, k->gguf, key(k, tail), (float)missing));
    if (!((double)value >= min && (double)value <= max))
        return omm_raise(OMM_ERR_NUMERIC, "%s is %g: must be %g to %g", k->name,
                         omm_nan_plain((double)value), min, max);
    *out = (double)value;
    return OMM_OK;
}

static omm_err load_heads(omm_model_dims *d, keys *k) {
    uint32_t value_dim = 0;
    OMM_TRY(get_count(&d->heads, k, "attention.head_count", HEADS_MAX));
    OMM_TRY(get_u32_or(&d->kv_heads, k, "attention.head_count_kv", d->heads));
    OMM_TRY(in_range(k->name, d->kv_heads, 1, d->heads));
    if (d->heads % d->kv_heads != 0)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%u heads do not divide into %u key/value heads",
                         d->heads, d->kv_heads);
    OMM_TRY(get_u32_or(&d->head_dim, k, "attention.key_length", d->d_model / d->heads));
    OMM_TRY(get_u32_or(&value_dim, k, "attention.value_length", d->head_dim));
    OMM_TRY(get_u32_or(&d->rotated, k, "rope.dimension_count", d->head_dim));
    OMM_TRY(in_range("head width", d->head_dim, 2, OMM_HEAD_DIM_MAX));
    if (d->head_dim % 2 != 0 || value_dim != d->head_dim)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "keys of %u, values of %u: supported is one even width", d->head_dim,
                         value_dim);
    if (d->rotated < 2 || d->rotated % 2 != 0 || d->rotated > d->head_dim)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "%s.rope.dimension_count is %u: supported is an even number of 2 to %u",
                         k->a->name, d->rotated, d->head_dim);
    return OMM_OK;
}

/* The key that scales positions, or NULL; the second is the older one. */
static const char *factor_tail(keys *k) {
    static const char *const tails[] = {"rope.scaling.factor", "rope.scale_linear"};
    for (size_t i = 0; i < 2; i++)
        if (omm_gguf_find(k->gguf, key(k, tails[i]))) return tails[i];
    return NULL;
}

static const char *const s_scalings[] = {"none", "linear", "yarn", "longrope"};

const char *model_scaling_name(omm_rope_scaling scaling) {
    OMM_ASSERT((unsigned)scaling < sizeof s_scalings / sizeof *s_scalings);
    return s_scalings[scaling];
}

static omm_err scaling_kind(omm_rope_scaling *out, keys *k) {
    const bool tables =
        k->a->parts & ARCH_LONG_ROPE && omm_gguf_find_tensor(k->gguf, "rope_factors_long.weight");
    char type[32] = "";
    omm_err err = omm_gguf_get_text(type, sizeof type, k->gguf, key(k, "rope.scaling.type"));
    if (err == OMM_ERR_NOT_FOUND) { /* a factor or tables alone say it */
        *out = factor_tail(k) ? OMM_ROPE_SCALING_LINEAR : OMM_ROPE_SCALING_NONE;
        if (tables) *out = OMM_ROPE_SCALING_LONG;
        return OMM_OK;
    }
    OMM_TRY(err);
    for (unsigned i = 0; i < sizeof s_scalings / sizeof *s_scalings; i++) {
        if (strcmp(type, s_scalings[i]) != 0 || (i == OMM_ROPE_SCALING_LONG && !tables)) continue;
        *out = (omm_rope_scaling)i;
        return OMM_OK;
    }
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "rope scaling '%s' is not supported in '%s'; these are: none, linear, yarn%s",
                     type, k->a->name,
                     k->a->parts & ARCH_LONG_ROPE ? ", longrope (with rope_factors tensors)" : "");
}

static omm_err refuse_false(keys *k, const char *tail, const char *supported) {
    bool value = true;
    const omm_err err = omm_gguf_get_bool(&value, k->gguf, key(k, tail));
    if (err != OMM_OK && err != OMM_ERR_NOT_FOUND) return err;
    if (value) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%s is false: supported are models %s", k->name,
                     supported);
}

/* A model whose tokens see those after them, as an encoder's do, is another computation, and so is
 * one that says that it knows no positions. */
static omm_err check_switches(keys *k) {
    OMM_TRY(refuse_false(k, "attention.causal", "whose tokens see what is before them"));
    if (!(k->a->parts & ARCH_ROPE_SWITCH)) return OMM_OK;
    return refuse_false(k, "rope.scaling.finetuned", "with rope");
}

/* A longer context by a slower base (NTK-aware): base * alpha^(n / (n - 2)) of n turned elements. */
static omm_err stretch_base(omm_model_dims *d, keys *k) {
    double alpha = 0.0;
    if (!(k->a->parts & ARCH_BASE_STRETCHED)) return OMM_OK;
    OMM_TRY(get_real(&alpha, k, "rope.scaling.alpha", 0.0, 0.0, 1e6));
    if (alpha > 0.0 && alpha < 1.0)
        return omm_raise(OMM_ERR_NUMERIC, "%s is %g: must be 0 (none) or 1 to 1e+06", k->name,
                         alpha);
    const double n = (double)d->rotated;
    if (alpha > 0.0 && n > 2.0) d->rope_base *= omm_pow_d(alpha, n / (n - 2.0));
    d->rope_base_local = d->rope_base;
    return OMM_OK;
}

/* Files of OLMo 3 by earlier converters have the whole of what its configuration calls attention_factor, which is 1 and a tenth of
 * the factor's logarithm: what yarn gives without being told. */
static void count_yarn_once(omm_model_dims *d, const keys *k) {
    if (!(k->a->parts & ARCH_YARN_SAID) || d->rope_scaling != OMM_ROPE_SCALING_YARN) return;
    const double whole = 1.0 + 0.1 * omm_log_d(d->rope_factor);
    if (fabs(d->rope_magnitude - whole) < 1e-5) d->rope_magnitude = 1.0;
}

static omm_err load_rope(omm_model_dims *d, keys *k) {
    d->rope_style = k->a->rope_style;
    d->unrotated_period = k->a->unrotated_period;
    d->rope_factor = 1.0;
    OMM_TRY(get_real(&d->rope_base, k, "rope.freq_base", 10000.0, 1.001, 1e12));
    const double local = k->a->rope_base_local > 0.0 ? k->a->rope_base_local : d->rope_base;
    OMM_TRY(get_real(&d->rope_base_local, k, "rope.freq_base_swa", local, 1.001, 1e12));
    d->rope_local = k->a->rope_base_local > 0.0 || d->rope_base_local != d->rope_base;
    OMM_TRY(stretch_base(d, k));
    OMM_TRY(scaling_kind(&d->rope_scaling, k));
    OMM_TRY(
        get_u32_or(&d->rope_context, k, "rope.scaling.original_context_length", d->rope_context));
    OMM_TRY(in_range(k->name, d->rope_context, 1, CONTEXT_SAID_MAX));
    OMM_TRY(get_real(&d->rope_magnitude, k, "rope.scaling.attn_factor", 1.0, 1e-3, 1e3));
    OMM_TRY(get_real(&d->yarn_beta_fast, k, "rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6));
    OMM_TRY(get_real(&d->yarn_beta_slow, k, "rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6));
    if (k->a->parts & ARCH_TEMPERATURE) {
        OMM_TRY(get_real(&d->temperature, k, "attention.temperature_scale", 0.0, 0.0, 1e3));
        OMM_TRY(get_real(&d->yarn_log_multiplier, k, "rope.scaling.yarn_log_multiplier", 0.0, 0.0,
                         1e3));
    }
    if (d->rope_scaling != OMM_ROPE_SCALING_LINEAR && d->rope_scaling != OMM_ROPE_SCALING_YARN)
        return OMM_OK;
    const char *tail = factor_tail(k);
    if (!tail)
        return omm_raise(OMM_ERR_NOT_FOUND, "key '%s' is missing", key(k, "rope.scaling.factor"));
    OMM_TRY(get_real(&d->rope_factor, k, tail, 1.0, 1.0, 1e6));
    count_yarn_once(d, k);
    return OMM_OK;
}

static omm_err load_caps(omm_model_dims *d, keys *k) {
    const arch *a = k->a;
    double attention = 0.0, output = 0.0;
    if (!(a->parts & ARCH_SOFTCAPS)) return OMM_OK;
    OMM_TRY(
        get_real(&attention, k, "attn_logit_softcapping", (double)a->attention_softcap, 0.0, 1e6));
    OMM_TRY(get_real(&output, k, "final_logit_softcapping", (double)a->output_softcap, 0.0, 1e6));
    d->attention_softcap = (float)attention;
    d->output_softcap = (float)output;
    return OMM_OK;
}

/* Where the key is missing or 0, *out stays. */
static omm_err get_scale(float *out, keys *k, const char *tail) {
    double scale = 0.0;
    OMM_TRY(get_real(&scale, k, tail, 0.0, 0.0, 1e6));
    if (scale > 0.0) *out = (float)scale;
    return OMM_OK;
}

static omm_err load_scales(omm_model_dims *d, keys *k) {
    const arch *a = k->a;
    const bool wide = a->wide_scale_layers > 0 && d->layers == a->wide_scale_layers;
    float divisor = 0.0f;
    d->attention_scale = 1.0f / sqrtf((float)(wide ? d->d_model / d->heads : d->head_dim));
    d->embed_scale = a->parts & ARCH_EMBED_SCALED ? sqrtf((float)d->d_model) : 1.0f;
    d->residual_scale = d->logit_scale = 1.0f;
    if (!(a->parts & ARCH_SCALES)) return OMM_OK;
    OMM_TRY(get_scale(&d->embed_scale, k, "embedding_scale"));
    OMM_TRY(get_scale(&d->residual_scale, k, "residual_scale"));
    OMM_TRY(get_scale(&d->attention_scale, k, "attention.scale"));
    OMM_TRY(omm_gguf_get_f32(&divisor, k->gguf, key(k, "logit_scale")));
    if (!(divisor >= 1e-6f && divisor <= 1e6f))
        return omm_raise(OMM_ERR_NUMERIC, "%s is %g: must be 1e-06 to 1e+06", k->name,
                         omm_nan_plain((double)divisor));
    d->logit_scale = 1.0f / divisor;
    return OMM_OK;
}

/* A number, or of each layer whether it has the window: then all but each period's last. */
static omm_err load_period(omm_model_dims *d, keys *k) {
    const omm_gguf_kv *kv = omm_gguf_find(k->gguf, key(k, "attention.sliding_window_pattern"));
    if (!kv || kv->kind != OMM_GGUF_ARRAY || kv->element != OMM_GGUF_BOOL) {
        OMM_TRY(get_u32_or(&d->window_period, k, "attention.sliding_window_pattern",
                           k->a->window_period));
        return in_range(k->name, d->window_period, 0, OMM_MODEL_LAYERS_MAX);
    }
    d->window_period = k->a->window_period;
    for (uint64_t i = 0; i < kv->count && d->window > 0; i++)
        if (kv->count != d->layers ||
            (kv->data.data[i] != 0) == is_last_of(d->window_period, (uint32_t)i))
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%s: supported are %u layers that all have a window, but for the last "
                             "of every %u (0: none)",
                             k->name, d->layers, d->window_period);
    return OMM_OK;
}

static omm_err load_window(omm_model_dims *d, keys *k) {
    if (!k->a->windowed) return OMM_OK;
    OMM_TRY(get_u32_or(&d->window, k, "attention.sliding_window", k->a->window));
    OMM_TRY(load_period(d, k));
    if (d->window == 0) return OMM_OK;
    if (k->a->parts & ARCH_WINDOWS_TURN) d->unrotated_period = d->window_period;
    if (k->a->parts & ARCH_WINDOWS_UNSCALED) d->rope_local = true;
    return OMM_OK;
}

static omm_err load_counts(omm_model_dims *d, keys *k) {
    OMM_TRY(get_count(&d->layers, k, "block_count", OMM_MODEL_LAYERS_MAX));
    OMM_TRY(get_count(&d->d_model, k, "embedding_length", OMM_MODEL_WIDTH_MAX));
    OMM_TRY(get_count(&d->d_ff, k, "feed_forward_length", 4 * OMM_MODEL_WIDTH_MAX));
    OMM_TRY(get_count(&d->rope_context, k, "context_length", CONTEXT_SAID_MAX));
    d->context = d->rope_context < OMM_MODEL_CONTEXT_MAX ? d->rope_context : OMM_MODEL_CONTEXT_MAX;
    OMM_TRY(omm_gguf_get_f32(&d->rms_eps, k->gguf, key(k, "attention.layer_norm_rms_epsilon")));
    if (!(d->rms_eps > 0.0f && d->rms_eps < 1.0f))
        return omm_raise(OMM_ERR_NUMERIC, "%s is out of range", k->name);
    return OMM_OK;
}

omm_err model_keys_load(omm_model_dims *d, const arch *a, const omm_gguf *gguf) {
    OMM_TRY(omm_gguf_refuse_adapter(gguf));
    keys k = {.gguf = gguf, .a = a};
    OMM_TRY(load_counts(d, &k));
    OMM_TRY(load_heads(d, &k));
    OMM_TRY(check_switches(&k));
    OMM_TRY(load_rope(d, &k));
    OMM_TRY(load_caps(d, &k));
    OMM_TRY(load_window(d, &k));
    OMM_TRY(load_scales(d, &k));
    d->ffn = a->ffn;
    d->whole_norms = a->parts & ARCH_QK_NORM_WHOLE;
    d->norms_turned = a->parts & ARCH_NORMS_TURNED;
    return OMM_OK;
}

uint32_t model_layer_window(const omm_model_dims *d, uint32_t layer) {
    return is_last_of(d->window_period, layer) ? 0 : d->window;
}

bool model_layer_unrotated(const omm_model_dims *d, uint32_t layer) {
    return is_last_of(d->unrotated_period, layer);
}
