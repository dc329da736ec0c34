/* model.h - a llama-architecture language model, loaded and packed once, read-only afterwards.
 *
 * For tokens t at positions p (f32 mode; the order of operations is the definition, and training
 * follows it to the bit):
 *   x = embed[t]
 *   each layer:  h = rmsnorm(x, attn_norm);  q = Wq h;  k = Wk h;  v = Wv h
 *                q, k = rope(q, k, p);  a = attention(q, k, v);  x = x + Wo a
 *                h = rmsnorm(x, ffn_norm);  g = Wgate h;  u = Wup h;  x = x + Wdown (silu(g) * u)
 *   logits = Wout rmsnorm(x, output_norm)
 * A LoRA adapter on W: z = A h (chain from 0);  z = (alpha / rank) * z;  y = W h, then the chain of
 * y continues over r: y = fma(z[r], B[n][r], y).
 * Mode q8: products with Q8_0 and Q4_0 weights take int8 activations (kernels.h); the rest is as in
 * f32, the adapter included.
 *
 * Accepted: general.architecture "llama"; matrices F32, F16, Q8_0 or Q4_0; norms F32 or F16;
 * grouped heads; tied or separate output; adjacent-pair RoPE, optionally with rope_freqs.weight or
 * linear scaling.  Everything else is refused by name.
 *
 * Depends on: gguf, lora, quant, kernels.  Threads: read-only after load; share it freely.
 */
#ifndef OMM_MODEL_H
#define OMM_MODEL_H

#include "omm/gguf.h"
#include "omm/kernels.h"
#include "omm/lora.h"
#include "omm/quant.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_MODEL_LAYERS_MAX 512u
#define OMM_MODEL_WIDTH_MAX 65536u
#define OMM_MODEL_CONTEXT_MAX (1u << 20) /* the rotary table is exact so far */

typedef struct omm_model_dims {
    uint32_t layers, d_model, d_ff, heads, kv_heads, head_dim, vocab;
    uint32_t context; /* positions it was trained for */
    float rms_eps;
    double rope_base;
    double rope_scale; /* angles are multiplied by this; 1 without scaling */
} omm_model_dims;

typedef struct omm_layer {
    omm_matrix weights[OMM_LORA_TARGET_COUNT]; /* indexed by omm_lora_target: Q .. DOWN */
    float *attn_norm, *ffn_norm;               /* [d_model] */
} omm_layer;

typedef struct omm_model {
    omm_model_dims dims;
    omm_lora_shape lora_shape;
    omm_matrix embed;         /* [vocab][d_model] */
    omm_matrix output_own;    /* empty when tied */
    const omm_matrix *output; /* &embed or &output_own: do not copy the struct */
    float *output_norm;       /* [d_model] */
    float *rope_factors;      /* [head_dim / 2] or NULL */
    omm_layer *layers;
    size_t weight_bytes; /* of all packed matrices */
    bool tied;
} omm_model;

/* Copies what it needs: `gguf` may be closed afterwards.  Release with omm_model_fini.
 * Errors: UNSUPPORTED (architecture, tensor type, rope scaling; says what is supported), NOT_FOUND
 * (a key or tensor, by name), MISMATCH (a tensor's shape, by name), NUMERIC (a weight that is not
 * finite), FORMAT, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_model_load(omm_model *model, const omm_gguf *gguf);
void omm_model_fini(omm_model *model);

/* Rotary table for `positions` positions of this model.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_model_rope(omm_rope *rope, const omm_model *model, uint32_t positions);

/* 1 / sqrt(head_dim), as attention takes it. */
float omm_model_attention_scale(const omm_model *model);

#endif
