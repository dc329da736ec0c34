/* twin.h - forward and backward of a model with its adapter once more, in float64 and from the
 * formulas of omm/model.h alone: what the trainer's gradients are held against.
 *
 * Plain loops over plain arrays: nothing packed, no rows left out, no chunk, no fused product, no
 * derivative that is shared with the graph.  Weights come straight from the tensors of a file, F32 or
 * Q8_0.  The adapter is one flat vector in the canonical order of omm/lora.h, and so is its gradient.
 *
 * For tests, small models and short sequences: attention keeps heads * n * n numbers a layer.
 * Not there: other types.  Failures abort the test.
 */
#ifndef TRAIN_TWIN_H
#define TRAIN_TWIN_H

#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/rng.h"

/* What a weight has of an adapter. */
typedef struct twin_pair {
    size_t rank; /* 0: nothing */
    double scale;
} twin_pair;

typedef struct twin_linear {
    double *w;    /* [d_out][d_in] */
    double *bias; /* [d_out] or NULL */
    size_t d_in, d_out;
    twin_pair pair;
    size_t a, b; /* offsets of A [rank][d_in] and B [d_out][rank] in the adapter */
} twin_linear;

typedef struct twin_layer {
    twin_linear linears[OMM_LORA_TARGET_COUNT];
    double *attn_norm, *ffn_norm;           /* [d] or NULL */
    double *q_norm, *k_norm;                /* [head_dim], of olmo2 [all heads], or NULL */
    double *attn_post_norm, *ffn_post_norm; /* [d] or NULL */
    size_t window;                          /* 0: none */
    size_t rope;                            /* which */
    bool still;                             /* nothing turns */
} twin_layer;

typedef struct twin_rope {
    double *speed; /* [rotated / 2], angles per position */
    double magnitude;
} twin_rope;

typedef struct twin {
    omm_arena arena; /* of the weights */
    size_t layers, d, ff, heads, kv_heads, head_dim, rotated, vocab;
    double rms_eps, embed_scale, attention_cap, output_cap; /* cap 0: none */
    double score_scale, residual_scale, logit_divisor;
    bool rope_pairs, gelu, norms_all_heads;
    bool norms_turned;                  /* norms of heads come behind rope */
    double temperature, temperature_of; /* of queries: 0: none; positions to a step */
    bool
        q8; /* products take inputs in int8 by blocks of 32 in forward, and backward knows nothing of
                it; of files whose matrices are all Q8_0.  The caller sets it */
    twin_rope ropes[2];                   /* of all layers; of those of gemma3 that have a window */
    double *embed, *output, *output_norm; /* [vocab][d], which may be one; [d] */
    twin_layer *all;
    size_t values; /* numbers in the adapter */
} twin;

/* Of a file as tiny_arch_write makes it; pairs [layers][OMM_LORA_TARGET_COUNT].  positions: that
 * longrope's factors are chosen for. */
void twin_open(twin *t, const omm_gguf *gguf, const char *architecture, const twin_pair *pairs,
               uint32_t positions);
void twin_close(twin *t);

typedef struct twin_dropout {
    omm_rng lane; /* of the step */
    uint64_t first_token;
    double rate; /* 0: off */
} twin_dropout;

/* Sum of the losses of the learned tokens of one sequence; gradient[values] of that sum times
 * `loss_scale` is added. */
double twin_example(const twin *t, double *gradient, const double *adapter, const uint32_t *ids,
                    const uint8_t *learn, size_t count, double loss_scale,
                    const twin_dropout *dropout);

#endif
