/* adapter_internal.h - what the graph sees of an adapter. */
#ifndef ENGINE_ADAPTER_INTERNAL_H
#define ENGINE_ADAPTER_INTERNAL_H

#include "omm/adapter.h"

/* What a target multiplies: targets of one input share a packed A. */
typedef enum adapter_input {
    ADAPTER_INPUT_ATTENTION, /* q, k, v */
    ADAPTER_INPUT_OUTPUT,    /* o */
    ADAPTER_INPUT_FEED,      /* gate, up */
    ADAPTER_INPUT_DOWN,      /* down */
    ADAPTER_INPUT_COUNT
} adapter_input;

typedef struct adapter_layer {
    omm_matrix a[ADAPTER_INPUT_COUNT];   /* [ranks of the targets present][d_in]; data NULL: none */
    omm_matrix b[OMM_LORA_TARGET_COUNT]; /* [d_out][rank]; data NULL: not adapted */
    uint32_t row[OMM_LORA_TARGET_COUNT]; /* where the target's rows begin in a */
    float pair_scale[OMM_LORA_TARGET_COUNT];
    float scale[ADAPTER_INPUT_COUNT]; /* of all its pairs, if ... */
    bool one_scale[ADAPTER_INPUT_COUNT];
} adapter_layer;

struct omm_adapter {
    float scale; /* what the user asked for, times each pair's */
    uint32_t layer_count;
    uint32_t rows_max; /* of any a */
    omm_digest digest;
    adapter_layer *layers;
};

adapter_input adapter_input_of(omm_lora_target target);
/* Rows, or values of a row, as packed: whole strips. */
uint64_t adapter_padded(uint64_t n);

#endif
