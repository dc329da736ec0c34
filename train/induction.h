/* induction.h - start weights in which the first two layers hold an induction circuit: what stood behind a
 * token before is expected behind it again.
 *
 * Training finds this circuit late in small models and on small texts, or not at all; with it drawn
 * at the start, copying is there after half a million tokens (docs/measurements/base-model.md).
 * Half of the key-value heads of each of the two layers take part, the others begin as ever:
 *
 *   embeddings  drawn + a part common to all tokens, which q and k can tell positions by
 *   layer 0     q, k: from the common part, turned by one position, so that a token looks at the one before it
 *               v: a projection P of what is seen there; out: as drawn, W
 *   layer 1     q: P of this token; k: W^T, so it reads what layer 0 wrote, and finds tokens that
 *               followed this one; v, out: a projection and its transpose, so that what is found is expected
 *
 * Circuit: Olsson et al. 2022, "In-context learning and induction heads"; structure drawn instead of
 * learned: Trockman and Kolter 2023, "Mimetic initialization of self-attention layers".  The strengths below
 * are measured ones, for deviations near 0.02.
 * Inside train only.  Rounding is IEEE's alone: the same bits on any machine.
 */
#ifndef TRAIN_INDUCTION_H
#define TRAIN_INDUCTION_H

#include "omm/err.h"
#include "omm/pretrain.h"

#include <stddef.h>

enum { INDUCTION_LAYERS = 2 };

/* Of one layer, as drawn: q, out [width][width], k, v [kv_heads * head width][width]. */
typedef struct induction_layer {
    float *q, *k, *v, *out;
} induction_layer;

/* Errors: CONFIG where the shape has no room for it: two layers, two kv_heads, heads of six values. */
OMM_CHECKED omm_err induction_check(const omm_pretrain_model *shape);
/* token_embd.weight: `count` values, drawn with shape->deviation. */
void induction_embeddings(float *embeddings, size_t count, const omm_pretrain_model *shape);
void induction_layers(induction_layer layers[INDUCTION_LAYERS], const omm_pretrain_model *shape);

#endif
