/* full.h - all weights of a model as one flat vector, and the gradients of all of them.
 *
 * The vector holds the tensors one after the other, [rows][cols] each: token_embd, output (where it
 * is a matrix of its own), output_norm; then of each layer q k v o gate up down, the biases, the norms.
 *
 * Gradients are sums over tokens as docs/design.md section 3 has them: a chunk is at most 64 tokens of one
 * sequence, its sum begins at zero, chunks are added in ascending (sequence, chunk) order:
 *   matrix      chain of fma(dy[t][row], x[t][col], sum)
 *   norm        sum + dy[t][j] * (x[t][j] * r[t])          of heads: their rows in order
 *   bias        sum + dy[t][j]
 *   embedding   sum of dx[t] over the chunk's tokens with that id; where the output is the same
 *               matrix, these are added up apart and join its gradient at the end of the batch
 *
 *   full_begin -> (graph_forward, graph_backward)* -> full_end
 *
 * The graph calls full_linear, full_norm, full_head and full_embedding where it has what
 * they need (graph.full).  Inside train only.  Threads: as the graph.
 */
#ifndef TRAIN_FULL_H
#define TRAIN_FULL_H

#include "graph.h"
#include "omm/gguf.h"

typedef struct full_tensor {
    char name[OMM_GGUF_NAME_MAX];
    omm_matrix *matrix; /* in the model, F32; or */
    float *vector;      /* [cols], rows 1 */
    uint32_t rows, cols;
    size_t offset; /* in the flat vector */
} full_tensor;

typedef struct full_tensors {
    full_tensor *items;
    size_t count, capacity, value_count;
} full_tensors;

/* List the weights of a model whose matrices are all F32 (full_thaw), or the matrices of an outline.
 * Errors: NOMEM. */
OMM_CHECKED omm_err full_tensors_init(full_tensors *t, omm_model *model);
void full_tensors_fini(full_tensors *t);
/* The tensor that lies at a matrix or vector of the model; it must be one. */
const full_tensor *full_tensor_at(const full_tensors *t, const void *weight);
const full_tensor *full_tensor_named(const full_tensors *t, const char *name); /* or NULL */

/* Every matrix of the model becomes F32: its values, dequantised.  Errors: NOMEM. */
OMM_CHECKED omm_err full_thaw(omm_model *model);
/* values[value_count] from the model, and back into it. */
void full_read(float *values, const full_tensors *t);
void full_write(const omm_compute *c, const full_tensors *t, const float *values);

typedef struct full {
    const full_tensors *tensors; /* borrowed */
    float *gradient;             /* [value_count] */
    float *lookups;              /* [vocab][d_model] of a tied embedding; NULL: in `gradient` */
    size_t lookup_count;
    uint32_t *head_ends; /* where chunks of the judged rows at hand end */
    size_t head_rows;    /* judged rows whose logits exist at once */
    float *logits, *capped, *norm, *dnorm, *r;
} full;

/* Room for micro-batches of the graph's rows_max.  Errors: NOMEM.  Release with full_fini, also after
 * an error. */
OMM_CHECKED omm_err full_init(full *f, const full_tensors *t, const graph *g);
void full_fini(full *f);
/* Bytes that it takes for so many weights and rows of a micro-batch. */
uint64_t full_bytes_of(const omm_model *model, size_t value_count, size_t rows_max);
void full_begin(full *f, const omm_compute *c);
void full_end(full *f, const omm_compute *c, const omm_model *model);

/* The product that adds to the gradient of a layer's weight: dy[count][rows], x[count][cols]; count rows: all,
 * or the judged ones.  And the gradient of its bias, where it has one. */
omm_product full_sum(const graph *g, const omm_layer *layer, omm_lora_target target,
                     const float *dy, const float *x, size_t count);
void full_bias(graph *g, const omm_layer *layer, omm_lora_target target, const float *dy,
               size_t count);
/* dy[count][n], the gradient of (x * r) * w. */
void full_norm(graph *g, const float *w, const float *dy, const float *x, const float *r,
               size_t count, size_t n);
/* As the graph's own head (graph_forward), and the gradients of output and output norm. */
void full_head(graph *g, float *nll, float loss_scale);
/* From g->dx, the gradient of the first layer's input, which it may change. */
void full_embedding(graph *g);

#endif
