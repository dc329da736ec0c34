/* synth_internal.h - what the parts of synth share: the table of shapes and the plan of tensors. */
#ifndef ENGINE_SYNTH_INTERNAL_H
#define ENGINE_SYNTH_INTERNAL_H

#include "omm/gguf.h"
#include "omm/synth.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct synth_shape {
    const char *name, *architecture;
    uint32_t layers, d_model, d_ff, heads, kv_heads, head_dim, vocab, context;
    float rope_base, rms_eps;
    uint32_t window; /* 0: none */
    bool untied;
    bool rope_factors;              /* Llama 3's, as rope_freqs.weight */
    bool biases;                    /* of q, k and v */
    bool qk_norms;                  /* per head */
    bool whole_norms;               /* these are of all heads together */
    bool no_pre_norms;              /* none before attention and feed-forward */
    bool post_norms;                /* after attention and feed-forward */
    bool fused;                     /* q, k, v in one matrix; gate and up in one */
    float attention_cap, final_cap; /* soft-caps; 0: none */
    float embedding_scale, residual_scale, attention_scale, logit_scale; /* 0: none */
    float yarn_factor, yarn_log_multiplier, temperature;                 /* 0: none */
    uint32_t yarn_context;                                               /* before it */
} synth_shape;

/* Errors: CONFIG (lists the names). */
OMM_CHECKED omm_err synth_shape_find(const synth_shape **out, const char *name);

/* All keys of a shape except the tokenizer's. */
void synth_put_keys(omm_gguf_writer *w, const synth_shape *shape, uint32_t layers);

typedef struct synth_tensor {
    char name[OMM_GGUF_NAME_MAX];
    omm_ggml_type type;
    uint32_t cols, rows; /* rows 1: a vector, F32 */
    float mean, deviation;
    const float *values; /* the vector itself, instead of random numbers; or NULL */
} synth_tensor;

#define SYNTH_MIX "Q4_K_M" /* the one mix of types that has a name here */
#define SYNTH_ROPE_FACTORS_MAX 128u

typedef struct synth_plan {
    const synth_shape *shape;
    uint32_t layers;
    omm_ggml_type type, output_type;
    bool mixed; /* Q4_K_M: type, and more bits for some */
    synth_tensor *tensors;
    uint32_t count, capacity;
    uint32_t fallbacks;
    float rope_factors[SYNTH_ROPE_FACTORS_MAX];
} synth_plan;

/* Errors: CONFIG (shape, type, layers), NOMEM.  Release with synth_plan_fini, also after an error. */
OMM_CHECKED omm_err synth_plan_init(synth_plan *plan, const omm_synth_options *options);
void synth_plan_fini(synth_plan *plan);

/* Values of this type can be made. */
bool synth_can_encode(omm_ggml_type type);

#endif
