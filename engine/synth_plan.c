/* synth_plan.c - the tensors of a shape in file order, each with its type and distribution. */
#include "quantise_internal.h"
#include "synth_internal.h"

#include "omm/mathd.h"
#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS_MAX 512u
#define LOGIT_DEVIATION 3.0f
#define NORM_DEVIATION 0.1f
#define TOKEN_EMBD "token_embd.weight"

typedef enum matrix_role { ROLE_BODY, ROLE_FUSED, ROLE_MORE_BITS, ROLE_OUTPUT } matrix_role;

/* ---- types ----------------------------------------------------------------------------------- */

static omm_err parse_type(omm_ggml_type *out, const char *name) {
    char names[512];
    const omm_ggml_info *info = omm_ggml_find_name(name);
    if (info && synth_can_encode(info->type)) {
        *out = info->type;
        return OMM_OK;
    }
    omm_synth_types(names, sizeof names);
    return omm_raise(OMM_ERR_CONFIG, "type '%s' cannot be made here; choose from: %s", name, names);
}

static omm_ggml_type type_for(synth_plan *p, matrix_role role, uint32_t layer, uint32_t cols) {
    omm_ggml_type type = role == ROLE_OUTPUT ? p->output_type : p->type;
    if (p->mixed && role == ROLE_MORE_BITS && quantise_is_marked(layer, p->layers))
        type = OMM_GGML_Q6_K;
    if (p->mixed && role == ROLE_FUSED) type = OMM_GGML_Q5_K;
    if (cols % omm_ggml_find((uint32_t)type)->block == 0) return type;
    p->fallbacks++;
    return cols % 32 == 0 ? OMM_GGML_Q8_0 : OMM_GGML_F16;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static synth_tensor *add(synth_plan *p, const char *name, uint32_t cols, uint32_t rows) {
    OMM_ASSERT(p->count < p->capacity);
    synth_tensor *t = &p->tensors[p->count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->cols = cols;
    t->rows = rows;
    return t;
}

static void add_matrix(synth_plan *p, const char *name, matrix_role role, uint32_t layer,
                       uint32_t cols, uint32_t rows, float scale) {
    synth_tensor *t = add(p, name, cols, rows);
    t->type = type_for(p, role, layer, cols);
    t->deviation = scale / sqrtf((float)cols);
}

static void add_vector(synth_plan *p, const char *name, uint32_t count, float mean) {
    synth_tensor *t = add(p, name, count, 1);
    t->mean = mean;
    t->deviation = NORM_DEVIATION;
}

/* ---- a layer --------------------------------------------------------------------------------- */

typedef struct layer_plan {
    synth_plan *p;
    uint32_t layer;
    char name[OMM_GGUF_NAME_MAX];
} layer_plan;

static const char *in_layer(layer_plan *l, const char *part) {
    snprintf(l->name, sizeof l->name, "blk.%u.%s", l->layer, part);
    return l->name;
}

static void matrix(layer_plan *l, const char *part, matrix_role role, uint32_t cols,
                   uint32_t rows) {
    add_matrix(l->p, in_layer(l, part), role, l->layer, cols, rows, 1.0f);
}

/* One whose product is added to the residual. */
static void closing(layer_plan *l, const char *part, matrix_role role, uint32_t cols,
                    uint32_t rows) {
    const float scale = 1.0f / sqrtf(2.0f * (float)l->p->layers);
    add_matrix(l->p, in_layer(l, part), role, l->layer, cols, rows, scale);
}

static void vector(layer_plan *l, const char *part, uint32_t count, float mean) {
    add_vector(l->p, in_layer(l, part), count, mean);
}

static void add_attention(layer_plan *l) {
    const synth_shape *s = l->p->shape;
    const uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    if (!s->no_pre_norms) vector(l, "attn_norm.weight", s->d_model, 1.0f);
    if (s->fused) {
        matrix(l, "attn_qkv.weight", ROLE_FUSED, s->d_model, q + 2 * kv);
    } else {
        matrix(l, "attn_q.weight", ROLE_BODY, s->d_model, q);
        matrix(l, "attn_k.weight", ROLE_BODY, s->d_model, kv);
        matrix(l, "attn_v.weight", ROLE_MORE_BITS, s->d_model, kv);
    }
    if (s->biases) {
        vector(l, "attn_q.bias", q, 0.0f);
        vector(l, "attn_k.bias", kv, 0.0f);
        vector(l, "attn_v.bias", kv, 0.0f);
    }
    if (s->qk_norms) {
        vector(l, "attn_q_norm.weight", s->whole_norms ? q : s->head_dim, 1.0f);
        vector(l, "attn_k_norm.weight", s->whole_norms ? kv : s->head_dim, 1.0f);
    }
    closing(l, "attn_output.weight", ROLE_BODY, q, s->d_model);
    if (s->post_norms) vector(l, "post_attention_norm.weight", s->d_model, 1.0f);
}

static void add_feed_forward(layer_plan *l) {
    const synth_shape *s = l->p->shape;
    if (!s->no_pre_norms) vector(l, "ffn_norm.weight", s->d_model, 1.0f);
    if (s->fused) {
        matrix(l, "ffn_up.weight", ROLE_BODY, s->d_model, 2 * s->d_ff);
    } else {
        matrix(l, "ffn_gate.weight", ROLE_BODY, s->d_model, s->d_ff);
        matrix(l, "ffn_up.weight", ROLE_BODY, s->d_model, s->d_ff);
    }
    closing(l, "ffn_down.weight", ROLE_MORE_BITS, s->d_ff, s->d_model);
    if (s->post_norms) vector(l, "post_ffw_norm.weight", s->d_model, 1.0f);
}

/* Llama 3's scaling by wave length: long waves are slowed down 32 times, short ones not at all, and
 * a ramp lies between.  Trained over 8192 positions.  Source: the rope_scaling of its config.json. */
static void add_rope_factors(synth_plan *p) {
    const synth_shape *s = p->shape;
    const double trained = 8192.0, factor = 32.0, low = 1.0, high = 4.0;
    const uint32_t count = s->head_dim / 2;
    OMM_ASSERT(count <= SYNTH_ROPE_FACTORS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const double turn = omm_pow_d((double)s->rope_base, 2.0 * i / s->head_dim);
        const double waves = trained / (6.283185307179586 * turn);
        double ramp = (waves - low) / (high - low);
        ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
        p->rope_factors[i] = (float)(1.0 / ((1.0 - ramp) / factor + ramp));
    }
    add(p, "rope_freqs.weight", count, 1)->values = p->rope_factors;
}

static void add_all(synth_plan *p) {
    const synth_shape *s = p->shape;
    const float logits = s->logit_scale > 0.0f ? s->logit_scale * LOGIT_DEVIATION : LOGIT_DEVIATION;
    add_matrix(p, TOKEN_EMBD, s->untied ? ROLE_BODY : ROLE_OUTPUT, 0, s->d_model, s->vocab, logits);
    if (s->rope_factors) add_rope_factors(p);
    for (uint32_t i = 0; i < p->layers; i++) {
        layer_plan l = {.p = p, .layer = i};
        add_attention(&l);
        add_feed_forward(&l);
    }
    add_vector(p, "output_norm.weight", s->d_model, 1.0f);
    if (s->untied) add_matrix(p, "output.weight", ROLE_OUTPUT, 0, s->d_model, s->vocab, logits);
}

static omm_err parse(synth_plan *p, const omm_synth_options *o) {
    const char *type = o->type ? o->type : "Q8_0";
    OMM_TRY(synth_shape_find(&p->shape, o->shape));
    p->layers = o->layers ? o->layers : p->shape->layers;
    if (p->layers > LAYERS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u layers: at most %u", p->layers, LAYERS_MAX);
    p->mixed = strcasecmp(type, SYNTH_MIX) == 0;
    OMM_TRY(parse_type(&p->type, p->mixed ? "Q4_K" : type));
    p->output_type = p->mixed ? OMM_GGML_Q6_K : p->type;
    return o->output ? parse_type(&p->output_type, o->output) : OMM_OK;
}

omm_err synth_plan_init(synth_plan *plan, const omm_synth_options *options) {
    *plan = (synth_plan){0};
    OMM_TRY(parse(plan, options));
    plan->capacity = 4 + 16 * plan->layers;
    plan->tensors = (synth_tensor *)omm_alloc(plan->capacity, sizeof *plan->tensors);
    if (!plan->tensors) return omm_raise(OMM_ERR_NOMEM, "no memory for the list of tensors");
    add_all(plan);
    return OMM_OK;
}

void synth_plan_fini(synth_plan *plan) {
    omm_free(plan->tensors);
    plan->tensors = NULL;
}
