/* graph.h - the layers of a model over one batch of rows (tokens) of one or several sequences.
 *
 *   rows    0 .. n0-1 | n0 .. n0+n1-1 | ...       ids[rows], activations [rows][...]
 *   spans       0     |      1        | ...       each with positions, caches and adapters of its own
 *
 * Everything but rope, cache, attention and adapters works on all rows alike; those go span by
 * span.  No chain crosses a row, so a row's result does not depend on what else is in the batch.
 * The order of operations is that of omm/model.h.
 *
 * Inside engine only; sequences, limits and sampling are the session's business.
 * Depends on: model, kernels, lora.  Threads: one call at a time per graph.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H

#include "adapter_internal.h"
#include "omm/model.h"
#include "omm/profile.h"
#include "omm/session.h"
#include "stream.h"

/* Terms of the products that go together, if each row has adapters of its own. */
#define GRAPH_TARGETS_MAX 3u
#define GRAPH_TERMS_PER_ROW ((size_t)GRAPH_TARGETS_MAX * OMM_ADAPTERS_MAX)
_Static_assert(GRAPH_TARGETS_MAX + OMM_ADAPTERS_MAX <= OMM_LINEAR_MAX, "products of one input");

/* Consecutive rows of one sequence, at positions `position`, `position + 1`, ... */
typedef struct model_span {
    omm_kv *kv; /* [layers]; has room for position + rows; holds what precedes */
    const omm_adapter *const *adapters; /* applied in this order */
    size_t adapter_count;
    size_t position, rows; /* rows >= 1 */
} model_span;

/* Consecutive rows of one or several spans that have the same adapters. */
typedef struct model_run {
    const omm_adapter *const *adapters;
    size_t adapter_count, first, rows;
} model_run;

typedef struct model_graph_options {
    const omm_compute *compute;
    const omm_model *model;
    omm_activations activations;
    size_t rows_max;         /* of one batch */
    uint32_t positions_max;  /* of any sequence */
    uint32_t rope_positions; /* longrope's factors are chosen for */
} model_graph_options;

typedef struct model_graph {
    model_graph_options options;
    const omm_compute *c;
    const omm_model *model;
    omm_rope rope[2]; /* of layers without and with a window; the second may be empty */
    float *x, *h, *q, *k, *v, *a, *gate, *up; /* [rows_max][their width] */
    /* Adapters at work, see model_graph_reserve: */
    float *z; /* [rows_max][z_width]: each run's rows, adapter by adapter */
    size_t z_width;
    omm_linear_term *terms;   /* [rows_max * GRAPH_TERMS_PER_ROW], or NULL */
    omm_attention *attention; /* [rows_max], one per span */
    model_stream stream;      /* layers that the model does not hold */
    omm_q8_rows q8;
    bool q8_ready; /* q8 holds the rows that the next product takes */
    /* Of the batch at hand: */
    const omm_layer *layer; /* the one at work */
    const model_span *spans;
    model_run *runs; /* [rows_max] */
    size_t span_count, run_count, rows;
    omm_profile *profile; /* borrowed; NULL: no clock is read */
} model_graph;

/* compute and model are borrowed.  Errors: NOMEM, TOO_BIG; then nothing is held. */
OMM_CHECKED omm_err model_graph_init(model_graph *g, const model_graph_options *options);
void model_graph_fini(model_graph *g);
/* Bytes of activations and of rotary tables that init takes, for plans: the model may be an outline;
 * compute is not looked at. */
uint64_t model_graph_activation_bytes(const model_graph_options *options);
uint64_t model_graph_rope_bytes(const model_graph_options *options);

/* Make room for spans with these adapters.  Errors: NOMEM; then nothing has changed. */
OMM_CHECKED omm_err model_graph_reserve(model_graph *g, const omm_adapter *const *adapters,
                                        size_t count);

/* Inside a forward.  Does a product with w take quantised rows? */
bool model_graph_takes_q8(const model_graph *g, const omm_matrix *w);
/* g->q8 = x[m][cols] quantised, unless it is there. */
void model_graph_quantise(model_graph *g, const float *x, size_t m, size_t cols);

/* For adapters (graph_adapters.c): runs of the spans at hand. */
void model_graph_find_runs(model_graph *g);
/* z = A x of the targets with this input, x[rows][width].  If all rows have the same adapters these
 * are products like others: added to products[], which has room for OMM_ADAPTERS_MAX, and their
 * number returned; else they are computed here. */
size_t model_graph_lower(model_graph *g, omm_linear *products, const float *x, uint32_t layer,
                         adapter_input input, size_t width);
/* z of one layer and input times the adapters' scales; ud: a model_graph_scaling. */
typedef struct model_graph_scaling {
    const model_graph *graph;
    uint32_t layer;
    adapter_input input;
} model_graph_scaling;
void model_graph_scale(void *ud);
/* The terms of one target over that z, at most OMM_ADAPTERS_MAX for each row. */
size_t model_graph_terms(omm_linear_term *terms, const model_graph *g, uint32_t layer,
                         omm_lora_target target);

/* Run ids[rows] through all layers, rows being the sum over spans, 1 .. rows_max; ids are in the
 * vocabulary.  Fills the spans' caches; the last layer's output stays in g->x.
 * Errors: those of streamed layers (stream.h); then the spans' caches are not to be used. */
OMM_CHECKED omm_err model_graph_forward(model_graph *g, const uint32_t *ids,
                                        const model_span *spans, size_t span_count);
/* logits[count][vocab] of the rows rows[0..count), ascending (NULL: rows 0 .. count - 1) of the
 * last forward. */
void model_graph_head(model_graph *g, float *logits, const uint32_t *rows, size_t count);

#endif
