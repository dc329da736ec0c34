/* core.h - what is trained between frozen halves: y = W x + scale B C (A x), C [rank][rank] per pair.
 *
 * The graph knows an ordinary adapter whose B is the product B C, computed once per step; so what is
 * exported is what was trained, to the bit, and any reader of LoRA files takes it:
 *
 *   B'[o][j] = chain over i ascending of B[o][i] C[i][j]      (d_out x rank, f32, from +0)
 *   dC[i][j] = chain over o ascending of B[o][i] dB'[o][j]
 *
 * Inside train only.  Source: Fed-SB (2502.15436), LoRA-XS (2405.17604).
 */
#ifndef TRAIN_CORE_H
#define TRAIN_CORE_H

#include "omm/kernels.h"
#include "omm/lora.h"

typedef struct core {
    omm_lora c;      /* tensors: C of each pair in canonical order; of it only tensors and values */
    float *b;        /* (b_count) the frozen B's, one after the other */
    float *gradient; /* (c.value_count) */
    size_t b_count;
} core;

/* Take the B's of `lora` as frozen.  C is the identity, or with a lane zero, and B as random as A:
 * value i is (2 u - 1) / sqrt(d_out) with u = omm_rng_unit(lane, i), i the flat offset.  With c (not NULL,
 * c.value_count values) C is that.  `lora` becomes the product.  Errors: CONFIG (the B's given are all
 * zero: no C would change anything), NOMEM; close it all the same. */
OMM_CHECKED omm_err core_init(core *k, omm_lora *lora, const omm_rng *lane, const float *c,
                              const omm_compute *compute);
/* Sizes and places alone: no values. */
OMM_CHECKED omm_err core_layout(core *k, const omm_lora *lora);
void core_fini(core *k);
/* The B's of `lora` become B C. */
void core_apply(const core *k, omm_lora *lora, const omm_compute *compute);
/* k->gradient, from that of the adapter, laid out as the adapter is. */
void core_backward(core *k, const omm_lora *lora, const float *gradient,
                   const omm_compute *compute);

#endif
