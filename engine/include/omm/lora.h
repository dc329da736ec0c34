/* lora.h - a LoRA adapter: one flat f32 vector with a fixed order, and its GGUF file.
 *
 *   y = W x + (alpha / rank) * B (A x)        A [rank][d_in]   B [d_out][rank]   row major
 *
 *   values: for layer ascending, for target ascending (only those in spec.targets): A, then B
 *
 * Everything federated sees only `values` and the list of (name, rows, cols, offset).
 * The file is llama.cpp's GGUF LoRA layout: general.type=adapter, adapter.type=lora,
 * adapter.lora.alpha, tensors `<base tensor>.lora_a` with dims [d_in, rank] and `.lora_b` with
 * dims [rank, d_out] (innermost first), F32.
 *
 * Depends on: err, mem, bytes, rng, gguf.  Threads: no shared state.
 */
#ifndef OMM_LORA_H
#define OMM_LORA_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/gguf.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_LORA_RANK_MAX 1024u
#define OMM_LORA_LAYERS_MAX 1024u
#define OMM_LORA_VALUES_MAX (1u << 30) /* f32 values in one adapter */

typedef enum omm_lora_target {
    OMM_LORA_Q,
    OMM_LORA_K,
    OMM_LORA_V,
    OMM_LORA_O,
    OMM_LORA_GATE,
    OMM_LORA_UP,
    OMM_LORA_DOWN,
    OMM_LORA_TARGET_COUNT
} omm_lora_target;

#define OMM_LORA_ALL_TARGETS ((1u << OMM_LORA_TARGET_COUNT) - 1u)

typedef struct omm_lora_spec {
    uint32_t rank;    /* 1 .. OMM_LORA_RANK_MAX */
    float alpha;      /* finite, not zero */
    uint32_t targets; /* bit set of 1u << omm_lora_target, not empty */
} omm_lora_spec;

/* What a model offers to adapt; the model fills it in. */
typedef struct omm_lora_shape {
    uint32_t layer_count;
    uint32_t d_in[OMM_LORA_TARGET_COUNT]; /* 0: the model has no such layer */
    uint32_t d_out[OMM_LORA_TARGET_COUNT];
    char architecture[32]; /* general.architecture, checked on load */
} omm_lora_shape;

typedef struct omm_lora_tensor {
    char name[OMM_GGUF_NAME_MAX]; /* "blk.0.attn_q.weight.lora_a" */
    uint32_t layer;
    omm_lora_target target;
    bool is_b;
    uint32_t rows, cols; /* A: rank, d_in.  B: d_out, rank */
    size_t offset;       /* of element [0][0] in `values` */
} omm_lora_tensor;

typedef struct omm_lora {
    omm_lora_spec spec;
    omm_lora_shape shape;
    omm_lora_tensor *tensors; /* canonical order, owned */
    size_t tensor_count;
    float *values; /* owned, 64-byte aligned */
    size_t value_count;
} omm_lora;

/* Name of a target as scenarios and commands spell it ("q", "k", "v", "o", "gate", "up", "down"),
 * and as the GGUF tensor does ("attn_q" ... "ffn_down"). */
const char *omm_lora_target_name(omm_lora_target target);
const char *omm_lora_target_tensor(omm_lora_target target);
/* Targets from a comma list ("q,v") or "all".  Errors: CONFIG (names what is accepted). */
OMM_CHECKED omm_err omm_lora_targets_parse(uint32_t *targets, const char *list);

/* All zero.  Errors: CONFIG (rank, alpha, targets, or a target the model lacks), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_lora_init(omm_lora *lora, const omm_lora_spec *spec,
                                  const omm_lora_shape *shape);
/* A uniform in [-1/sqrt(d_in), 1/sqrt(d_in)), B zero: value i of A is (2 u - 1) / sqrt(d_in) with
 * u = omm_rng_unit(rng, i), i the flat offset.  Errors: as omm_lora_init. */
OMM_CHECKED omm_err omm_lora_init_random(omm_lora *lora, const omm_lora_spec *spec,
                                         const omm_lora_shape *shape, const omm_rng *rng);
void omm_lora_fini(omm_lora *lora);

/* alpha / rank. */
float omm_lora_scale(const omm_lora *lora);

/* Where A and B of one layer's target begin; NULL both when the adapter does not have it. */
void omm_lora_find(const float **a, const float **b, const omm_lora *lora, uint32_t layer,
                   omm_lora_target target);
/* Index in `tensors` of its A (its B follows), or -1. */
ptrdiff_t omm_lora_find_index(const omm_lora *lora, uint32_t layer, omm_lora_target target);

/* Append the adapter as GGUF bytes, deterministic.  Errors: NOMEM, TOO_BIG, NUMERIC (a value is
 * not finite, named). */
OMM_CHECKED omm_err omm_lora_save(omm_buf *out, const omm_lora *lora);
/* The same to a file, atomically.  Errors: those, IO. */
OMM_CHECKED omm_err omm_lora_save_file(const char *path, const omm_lora *lora);

/* Read an adapter (F32 or F16) for a model of this shape.  One rank for all tensors, the same
 * targets in every layer; a missing alpha means alpha = rank.  Errors: those of omm_gguf_open; UNSUPPORTED (no LoRA adapter, another
 * tensor kind, mixed ranks); MISMATCH (another architecture, a shape that does not fit, named);
 * NOT_FOUND (a pair with one part missing, a layer left out); NUMERIC (a value is not finite). */
OMM_CHECKED omm_err omm_lora_load(omm_lora *lora, omm_bytes file, const omm_lora_shape *shape);
OMM_CHECKED omm_err omm_lora_load_file(omm_lora *lora, const char *path,
                                       const omm_lora_shape *shape);

#endif
