/* model.h - a language model of a supported architecture, loaded and packed once, read-only
 * afterwards.
 *
 * For tokens t at positions p (f32 mode; the order of operations is the definition, and training
 * follows it to the bit).  Steps in brackets are those that not every architecture has:
 *   x = embed[t]                                         [x = embed_scale * x]
 *   each layer:  h = rmsnorm(x, attn_norm) [or x];  q = Wq h;  k = Wk h;  v = Wv h   [+ bias: q = q + bq]
 *                [q, k = rmsnorm of each head, or of all together, q_norm, k_norm]
 *                [in some layers not:] q, k = rope(q, k, p);  a = attention(q, k, v);  h = Wo a
 *                [h = rmsnorm(h, attn_post_norm)];  [h = residual_scale * h];  x = x + h
 *                h = rmsnorm(x, ffn_norm) [or x];  g = Wgate h;  u = Wup h;  h = Wdown (act(g) * u)
 *                [h = rmsnorm(h, ffn_post_norm)];  [h = residual_scale * h];  x = x + h
 *   logits = Wout rmsnorm(x, output_norm)  [logits = logit_scale * logits]
 *                                          [softcap(logits, output_softcap)]
 * act is silu, or the tanh form of GELU.  attention scales by attention_scale, and has a soft-cap
 * and in some layers a window [kernels.h].
 * A LoRA adapter on W: z = A h (chain from 0);  z = (alpha / rank) * z;  y = W h, then the chain of
 * y continues over r: y = fma(z[r], B[n][r], y); a bias is added after it.
 * Mode q8: products with quantised weights take int8 activations (kernels.h), and so does an A kept in
 * Q8_0 (adapter.h), the A of targets that share an input being one matrix; the rest is as in f32.
 *
 * Rope turns pair i of a head's first `rotated` elements by p * f[i], in double:
 *   f[i] = base^(-2i / rotated)          layers with a window may have a base of their own
 *   linear     f[i] = f[i] * (1 / factor)
 *   factors    f[i] = f[i] / rope_freqs[i]               rope_freqs.weight (Llama 3)
 *   longrope   f[i] = f[i] / long[i] where the session has room for more positions than the original
 *              context (training: where the recipe's seq_max is more), else f[i] / short[i]
 *   yarn       f[i] = f[i] * (1 - s + s / factor), s = clamp((i - low) / max(0.001, high - low)) in
 *              0 .. 1, low = floor(pair(beta_fast)), high = ceil(pair(beta_slow)), both clamped to
 *              0 .. rotated - 1, pair(n) = rotated log(context / (2 pi n)) / (2 log base);
 *              cos and sin times 1 + 0.1 log(factor), of mistral3 over 1 + 0.1 yarn_log_multiplier log(factor)
 *   cos and sin times rope.scaling.attn_factor.  Layers with a base of their own have no scaling.
 *
 * Accepted: the architectures of arch.c; matrices of every omm_format; vectors F32 or F16; grouped heads; tied or separate output.
 * Everything else is refused by name, also a tensor that the graph would not use.
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
/* The rotary table is exact so far; what a file says beyond is not used. */
#define OMM_MODEL_CONTEXT_MAX (1u << 20)

typedef enum omm_ffn { OMM_FFN_SWIGLU, OMM_FFN_GEGLU } omm_ffn;

typedef enum omm_rope_scaling {
    OMM_ROPE_SCALING_NONE,
    OMM_ROPE_SCALING_LINEAR,
    OMM_ROPE_SCALING_YARN,
    OMM_ROPE_SCALING_LONG
} omm_rope_scaling;

typedef struct omm_model_dims {
    uint32_t layers, d_model, d_ff, heads, kv_heads, head_dim, vocab;
    uint32_t context; /* positions it was trained for */
    float rms_eps;
    omm_ffn ffn;
    float embed_scale;       /* 1: none */
    float attention_scale;   /* usually 1 / sqrt(head_dim) */
    bool whole_norms;        /* q_norm and k_norm are of all heads together, not of each */
    bool norms_turned;       /* they come after rope, not before it */
    float residual_scale;    /* 1: none */
    float logit_scale;       /* 1: none; files say what logits are divided by */
    float attention_softcap; /* 0: none */
    float output_softcap;    /* 0: none */
    uint32_t window;         /* positions seen by layers with a window; 0: none has one */
    uint32_t window_period;  /* the last layer of each period has no window; 0: all have it */
    omm_rope_style rope_style;
    uint32_t unrotated_period; /* the last layer of each period has no rope; 0: all have it */
    uint32_t rotated;          /* elements of a head that turn, even */
    double rope_base;
    double rope_base_local; /* of layers with a window */
    bool rope_local;        /* these turn by themselves: by that base, and unscaled */
    omm_rope_scaling rope_scaling;
    double rope_factor;    /* linear, yarn; else 1 */
    double rope_magnitude; /* rope.scaling.attn_factor, or 1 */
    uint32_t rope_context; /* positions before scaling: yarn, longrope */
    double yarn_beta_fast, yarn_beta_slow;
    double yarn_log_multiplier; /* what yarn's magnitude is divided by; 0: nothing */
    double temperature;         /* of omm_model_temperature; 0: none */
} omm_model_dims;

typedef struct omm_layer {
    omm_matrix weights[OMM_LORA_TARGET_COUNT]; /* indexed by omm_lora_target: Q .. DOWN */
    float *bias[OMM_LORA_TARGET_COUNT];        /* [rows of the weight], or NULL */
    float *attn_norm, *ffn_norm;               /* [d_model], or NULL */
    float *q_norm, *k_norm;                    /* [omm_model_norm_width], or NULL */
    float *attn_post_norm, *ffn_post_norm;     /* [d_model], or NULL */
    uint32_t window;                           /* positions a query sees; 0: all */
    bool unrotated;                            /* no rope */
    omm_bytes
        rows[OMM_LORA_TARGET_COUNT]; /* of a streamed layer: its weights in the file, or packed */
} omm_layer;

typedef struct omm_model {
    omm_model_dims dims;
    omm_lora_shape lora_shape;
    omm_matrix embed;         /* [vocab][d_model] */
    omm_matrix output_own;    /* empty when tied */
    const omm_matrix *output; /* &embed or &output_own: do not copy the struct */
    float *output_norm;       /* [d_model] */
    float *rope_factors;      /* [rotated / 2] or NULL */
    float *rope_factors_long; /* [rotated / 2] or NULL: where the sequence may be long */
    omm_layer *layers;
    uint32_t resident;    /* layers from here on are streamed; dims.layers: none is */
    const omm_gguf *gguf; /* where from; borrowed; NULL: nothing is streamed, or from `packed` */
    const struct omm_packed
        *packed;         /* where all matrices lie (packed.h); borrowed; NULL: they are owned */
    size_t weight_bytes; /* of all packed matrices; of an outline: of all that there would be */
    size_t vector_bytes; /* of norms, biases, rope factors */
    omm_pool *pool;      /* while it is loaded; borrowed */
    bool tied;
    bool head_norms,
        post_norms; /* layers have q_norm and k_norm; attn_post_norm and ffn_post_norm */
    bool outline;   /* shapes alone */
} omm_model;

/* Copies what it needs: `gguf` may be closed afterwards.  Release with omm_model_fini.
 * Errors: UNSUPPORTED (architecture, tensor type, rope scaling; says what is supported), NOT_FOUND
 * (a key or tensor, by name), MISMATCH (a tensor's shape, by name), NUMERIC (a weight that is not
 * finite), FORMAT, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_model_load(omm_model *model, const omm_gguf *gguf);
/* The same by the threads of `pool` (NULL: this thread alone).  Matrices are packed one after the
 * other, and the file's pages of each are let go: the peak is the packed model and one tensor. */
OMM_CHECKED omm_err omm_model_load_with(omm_model *model, omm_pool *pool, const omm_gguf *gguf);
/* The same for models that are larger than memory: matrices of the first `resident` layers (more: all)
 * are packed; the others are streamed: a session's graph reads and packs each of them anew every time
 * it comes to it, into memory for one layer of its own, to the same bytes.  `gguf` stays open until
 * omm_model_fini, and errors of streamed tensors appear at their first use.  A file that is written to meanwhile is
 * noticed when its next layer is read, or at the end of loading: then the session's call fails (STATE). */
OMM_CHECKED omm_err omm_model_load_streamed(omm_model *model, omm_pool *pool, const omm_gguf *gguf,
                                            uint32_t resident);
/* What loading would make, from the header alone: matrices without data, vectors NULL, lora_shape.base
 * not known.  For sizes, not for sessions.  Errors: as omm_model_load, but for what only values can show (NUMERIC). */
OMM_CHECKED omm_err omm_model_outline(omm_model *model, const omm_gguf *gguf);
void omm_model_fini(omm_model *model);

/* Elements that a norm of q (heads: those of q) or of k (those of k) takes together. */
static inline uint32_t omm_model_norm_width(const omm_model_dims *d, uint32_t heads) {
    return d->whole_norms ? heads * d->head_dim : d->head_dim;
}

/* Columns of the widest matrix of a layer. */
static inline size_t omm_model_widest_input(const omm_model_dims *d) {
    const size_t q = (size_t)d->heads * d->head_dim;
    const size_t widest = d->d_ff > d->d_model ? d->d_ff : d->d_model;
    return widest > q ? widest : q;
}

/* What a query at `position` is multiplied with, after rope: 1, and of a model with a temperature (Llama 4's, arXiv
 * 2501.19399) more from each further rope_context positions on. */
float omm_model_temperature(const omm_model_dims *d, uint32_t position);
/* Where longrope's factors are chosen for `positions` positions: are they the long ones? */
bool omm_model_rope_far(const omm_model *model, uint32_t positions);
/* Rotary table for `positions` positions; `far`: by the long factors; `local`: of the layers with a
 * window.  Errors: NOMEM, TOO_BIG, NUMERIC (factors that turn too far). */
OMM_CHECKED omm_err omm_model_rope(omm_rope *rope, const omm_model *model, uint32_t positions,
                                   bool far, bool local);

#endif
