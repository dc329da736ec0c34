/* graph.h - the graph of a model for training: forward that keeps what backward needs, and backward.
 *
 * Sequences are packed one after the other into rows; no operation but attention, rope and the
 * token sums looks across rows, and these go sequence by sequence.  Forward has the order of
 * operations that omm/model.h defines, so its losses equal a session's to the bit.
 *
 *   graph_forward: ids -> kept activations, loss of every learned token
 *   graph_backward: kept activations -> gradient of the adapter, added to `gradient`
 *
 * In the last layer what follows attention is computed for the judged rows alone: the others would
 * add zeros to the gradient, and adding zero changes no bit.  For the same reason a sequence ends with
 * its last judged row.
 *
 * Kept per layer and token: x, q, k, v, attention out, x after attention, gate, up, z of each
 * target, and what the norms of heads and of a step's result take; norms' outputs and the
 * feed-forward product are computed again.  The first `checkpoint_layers` layers keep x alone, and
 * backward computes their forward again: the same operations, so the same bytes, for a third more
 * time and a tenth of the memory.  All architectures of omm/model.h are trained.
 *
 * With q8 the inputs of products with quantised weights are rounded to int8 in forward, the output
 * matrix's too, as a session does that chats: losses are then equal to those of such a session with an f32 cache.  Rounding
 * has no slope, so backward is that of the products without it (the straight-through estimator of
 * 1308.3432); adapters take what was not rounded.
 * Inside train only.
 */
#ifndef TRAIN_GRAPH_H
#define TRAIN_GRAPH_H

#include "grad_kernels.h"
#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/kernels.h"
#include "omm/lora.h"
#include "omm/model.h"
#include "omm/rng.h"
#include "omm/train_watch.h"

/* Activations of one layer, all [rows][...]. */
typedef struct graph_layer {
    float *x, *q, *k, *v, *att, *lse, *mid, *gate, *up;
    float *q_raw, *k_raw;    /* before the norms of heads; NULL where there are none */
    float *o_raw, *down_raw; /* before the norms that follow them; NULL where there is none */
    float *z[OMM_LORA_TARGET_COUNT]; /* scaled A h, [rows][rank]; NULL where not adapted */
} graph_layer;

/* Which rows a buffer holds: all of the micro-batch, or (in the last layer, after attention, where
 * nobody needs the others) those that are judged. */
typedef struct graph_rows {
    size_t count;
    const uint32_t *map; /* place of each among all rows, ascending; NULL: they are all there */
} graph_rows;

/* A [rank][d_in] and B [d_out][rank] of one adapted weight: where they are in the flat vector. */
typedef struct graph_pair {
    uint32_t rank, d_in, d_out; /* 0 where not adapted */
    float scale;
    size_t a_offset, b_offset;
} graph_pair;

/* Dropout of one micro-batch: number index of a token is (its place in the step's batch). */
typedef struct graph_dropout {
    omm_rng lane; /* of this step */
    uint64_t first_token;
    float rate; /* 0: off */
} graph_dropout;

typedef struct graph {
    const omm_compute *compute;
    const omm_model *model;
    const grad_kernels *grad;
    omm_compute *solo; /* one context without a pool per worker */
    unsigned workers;
    uint32_t rank_max;  /* of any pair, at least 1 */
    size_t first_layer; /* the lowest with an adapter: no gradient goes below */
    size_t rows_max, seq_max, head_rows;
    omm_rope rope[2]; /* of layers without and with a window; the second may be empty */
    omm_kv kv;
    size_t checkpoint_layers; /* so many from the first keep x alone */
    bool drops;               /* has room for dropout */
    const float *adapter;     /* borrowed: graph_set_adapter */
    graph_pair *pairs;        /* [layers][targets] */
    graph_layer *layers;
    float *memory; /* all activations: one block */
    size_t memory_bytes;
    omm_q8_rows q8; /* the input of the products at hand in int8; empty: products take f32 */
    float *h, *act, *dgate, *dropped, *dx, *dh, *dact, *dq, *dk, *dv, *datt;
    float *dz, *row_dot, *picked, *picked_att, *picked_norm, *picked_r, *logits;
    float *capped_logits;                        /* a row per worker; NULL without soft-cap */
    float *scores, *dscores, *capped, *lse_rows; /* per worker; capped NULL without soft-cap */
    float *random;                               /* uint32_t numbers of one row */
    uint32_t *ids, *targets, *picked_rows;
    uint32_t *tokens; /* [rows] place of each row among the tokens of the micro-batch */
    uint32_t *counts; /* [examples] rows of each: up to the last that is judged */
    /* Where chunks of tokens (OMM_TOKEN_CHUNK, of one sequence each) end among all rows, and among the judged
     * ones, of which a chunk has some or none. */
    uint32_t *ends, *picked_ends;
    size_t end_count, picked_end_count;
    struct full *full; /* gradients of the model's own weights (full.h); NULL: they are frozen */
    /* Of the micro-batch at hand: */
    const omm_example *const *examples;
    size_t example_count, rows, learned;
    graph_dropout dropout;
    omm_train_watch *watch; /* borrowed, or NULL */
} graph;

typedef struct graph_options {
    const omm_compute *compute;
    const omm_model *model;
    omm_lora_spec spec;       /* of a uniform adapter */
    const omm_lora *lora;     /* instead: ranks and scales of any; read by graph_init alone */
    size_t rows_max;          /* tokens of one micro-batch, at least the longest example */
    size_t seq_max;           /* longest example */
    uint32_t rope_positions;  /* longrope's factors are chosen for; 0: the short ones */
    size_t checkpoint_layers; /* at most all but the last; more count as that */
    bool drops;               /* graph_forward may be given a dropout */
    bool q8;                  /* forward products of quantised weights take int8 activations */
    omm_train_watch *watch;   /* borrowed; NULL: nothing is measured */
} graph_options;

/* Errors: NOMEM, UNSUPPORTED. */
OMM_CHECKED omm_err graph_init(graph *g, const graph_options *options);
void graph_fini(graph *g);

/* What graph_init would take with so many workers, in bytes.  options->compute is not read; the model
 * may be an outline.  Errors: NOMEM. */
typedef struct graph_sizes {
    uint64_t activations; /* kept by layers, and the passing ones */
    uint64_t logits;
    uint64_t work; /* scratch of workers, rotary tables, keys and values, inputs in int8 */
} graph_sizes;
OMM_CHECKED omm_err graph_sizes_of(graph_sizes *out, const graph_options *options,
                                   unsigned workers);

/* Use these values (value_count floats in canonical order, borrowed) from here on. */
void graph_set_adapter(graph *g, const float *values);

/* Forward of `count` examples, together at most rows_max tokens.  nll[learned] gets the loss of
 * each learned token, in order; dx is prepared for backward: the judged rows' gradient of
 * sum(nll) * loss_scale.  Errors: FORMAT (an id outside the vocabulary). */
OMM_CHECKED omm_err graph_forward(graph *g, float *nll, const omm_example *const *examples,
                                  size_t count, float loss_scale, const graph_dropout *dropout);

/* Add the gradient of the last forward.  `gradient` has the layout of the adapter but for B, which
 * lies transposed, [rank][d_out], at its offset.  want_a, want_b: which halves are computed. */
void graph_backward(graph *g, float *gradient, bool want_a, bool want_b);

/* Shared by forward and backward: x with the dropout of (layer, target), or x itself. */
const float *graph_dropped(graph *g, const float *x, graph_rows rows, size_t layer,
                           omm_lora_target target);
/* Forward of one layer from its x, which must be there; x_next NULL: only what backward needs. */
void graph_forward_layer(graph *g, size_t layer, float *x_next);
/* What the first products of a step take: g->h, x normalised, or x itself where there is no norm. */
const float *graph_step_input(graph *g, const float *x, const float *norm_w, size_t rows);
/* g->act = act(gate) * up of a layer's rows. */
void graph_activate(graph *g, const graph_layer *l, size_t rows);
/* q and k of all sequences turned as a layer turns them, or (back) their gradients back. */
void graph_turn_all(const graph *g, size_t layer, float *q, float *k, bool back);
/* Kernels of grad_kernels.h over rows of n: norm backward with r given; row sums of a * b; from da, the
 * gradient of act(gate) * up, that of gate into dgate, and that of up in da's place. */
void graph_rows_norm(const graph *g, float *dx, const float *dy, const float *x, const float *w,
                     const float *r, size_t rows, size_t n);
void graph_rows_dot(const graph *g, float *out, const float *a, const float *b, size_t rows,
                    size_t n);
void graph_rows_activation(const graph *g, float *dgate, float *da, const float *gate,
                           const float *up, size_t rows, size_t n);
/* logits[n][vocab] of judged rows first .. first + n - 1 become the gradient of sum(nll) * loss_scale;
 * nll[n].  capped [workers][vocab]: scratch, not read without output soft-cap. */
void graph_judge(const graph *g, float *nll, float *logits, float *capped, size_t first, size_t n,
                 float loss_scale);
/* datt -> dq, dk, dv of a layer, before the norms of heads. */
void graph_attention_backward(graph *g, size_t layer);
/* Rows of a layer after its attention. */
graph_rows graph_rows_after_attention(const graph *g, size_t layer);

/* What passed since the last lap was `part`. */
static inline void graph_lap(const graph *g, omm_train_part part) {
    if (g->watch) omm_train_watch_lap(g->watch, part);
}

/* Whether any of these targets (1u << omm_lora_target) is adapted in a layer. */
bool graph_adapts(const graph *g, size_t layer, uint32_t targets);

static inline graph_pair *graph_pair_of(graph *g, size_t layer, omm_lora_target target) {
    return &g->pairs[layer * OMM_LORA_TARGET_COUNT + target];
}

#endif
