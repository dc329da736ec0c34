/* lora.h - a LoRA adapter: one flat f32 vector with a fixed order, and its GGUF file.
 *
 *   y = W x + scale * B (A x)        A [rank][d_in]   B [d_out][rank]   row major
 *
 *   values: for layer ascending, for target ascending (only the pairs there are): A, then B
 *
 * Most adapters are uniform: one rank, scale = alpha / rank, the same targets in every layer; an
 * omm_lora_spec says it all.  An omm_lora_plan gives each pair its own rank and scale (PEFT's rank
 * and alpha patterns, rsLoRA, layers left out).
 * Everything federated sees only `values` and the list of (name, rows, cols, offset).
 * The file is llama.cpp's GGUF LoRA layout: general.type=adapter, adapter.type=lora,
 * adapter.lora.alpha, tensors `<base tensor>.lora_a` with dims [d_in, rank] and `.lora_b` with
 * dims [rank, d_out] (innermost first), F32 unless asked.  It has one alpha: scale = alpha / rank of the pair, or
 * 1 for all pairs when alpha is 0.  Other scales must go into B first: omm_lora_fold; they are kept in
 * openmeshmind.lora.scales (f32, one a pair in the order of the tensors), which others ignore.  The model that it was
 * trained on is in openmeshmind.base.fingerprint, general.base_model.count and general.base_model.0.name (lora_base.h).  A model whose file
 * stacks q, k, v and gate, up has seven targets here all the same; omm_lora_fuse makes the file's pairs.
 *
 * Depends on: err, mem, bytes, rng, gguf, lora_base.  Threads: no shared state.
 */
#ifndef OMM_LORA_H
#define OMM_LORA_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/gguf.h"
#include "omm/lora_base.h"
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
    bool fused;   /* the model's file has q, k, v by rows in attn_qkv and gate, up in ffn_up */
    bool stacked; /* of those tensors themselves: Q is attn_qkv, UP both; no K, V, GATE */
    omm_lora_base base; /* the model, which adapters of this shape name in their files */
} omm_lora_shape;

/* What one linear layer gets. */
typedef struct omm_lora_pair {
    uint32_t rank; /* 0: left out */
    float scale;   /* finite, not zero */
} omm_lora_pair;

/* What every linear layer gets.  Start with all left out, then add; the last call that names a
 * layer counts. */
typedef struct omm_lora_plan {
    omm_lora_shape shape;
    omm_lora_pair *pairs; /* [layer_count][OMM_LORA_TARGET_COUNT], owned */
} omm_lora_plan;

typedef struct omm_lora_tensor {
    char name[OMM_GGUF_NAME_MAX]; /* "blk.0.attn_q.weight.lora_a" */
    uint32_t layer;
    omm_lora_target target;
    bool is_b;
    uint32_t rows, cols; /* A: rank, d_in.  B: d_out, rank */
    float scale;         /* of the pair */
    float
        own_scale; /* 0, or what it was trained with, where omm_lora_fold put a part of that into B */
    size_t offset; /* of element [0][0] in `values` */
} omm_lora_tensor;

typedef struct omm_lora {
    /* Of a uniform adapter, what made it.  Else: the largest rank, the alpha to stand in a file
     * (may be 0), and the targets that any layer has. */
    omm_lora_spec spec;
    omm_lora_shape shape;
    omm_lora_tensor *tensors; /* canonical order, owned */
    size_t tensor_count;
    uint32_t *slots; /* [layer_count][OMM_LORA_TARGET_COUNT]: 1 + index of A, 0: none; owned */
    float *values;   /* owned, 64-byte aligned */
    size_t value_count;
} omm_lora;

/* ---- Which layers: omm_lora_plan ----------------------------------------------------------- */

/* Name of a target as scenarios and commands spell it ("q", "k", "v", "o", "gate", "up", "down"),
 * and as the GGUF tensor does ("attn_q" ... "ffn_down"). */
const char *omm_lora_target_name(omm_lora_target target);
const char *omm_lora_target_tensor(omm_lora_target target);
/* Targets from a comma list of names of either kind, patterns over them ("ffn_*"; '*' any run, '?'
 * any character), "all" or "all-linear".  Errors: CONFIG (an item that is unknown or adds nothing to
 * those before it; names what is accepted). */
OMM_CHECKED omm_err omm_lora_targets_parse(uint32_t *targets, const char *list);

/* The scale of a pair: alpha / rank, or alpha / sqrt(rank) for rsLoRA (in double, rounded once).
 * rank >= 1. */
float omm_lora_scale_of(double alpha, uint32_t rank, bool rslora);

/* All left out.  Errors: CONFIG (layer count), NOMEM. */
OMM_CHECKED omm_err omm_lora_plan_init(omm_lora_plan *plan, const omm_lora_shape *shape);
void omm_lora_plan_fini(omm_lora_plan *plan);
/* Give `pair` to all layers that the comma list names: as omm_lora_targets_parse (then in every layer
 * of the model), or with the layer ("blk.0.*", "blk.1?.attn_q", "blk.4-7.ffn_*": 4 to 7).  rank 0
 * leaves them out.
 * Errors: CONFIG (an item that names nothing the model has; rank, scale); the plan is unchanged. */
OMM_CHECKED omm_err omm_lora_plan_add(omm_lora_plan *plan, const char *list, omm_lora_pair pair);

/* ---- Making adapters ----------------------------------------------------------------------- */

/* All zero.  Errors: CONFIG (rank, alpha, targets, or a target the model lacks), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_lora_init(omm_lora *lora, const omm_lora_spec *spec,
                                  const omm_lora_shape *shape);
/* A uniform in [-1/sqrt(d_in), 1/sqrt(d_in)), B zero: value i of A is (2 u - 1) / sqrt(d_in) with
 * u = omm_rng_unit(rng, i), i the flat offset.  Errors: as omm_lora_init. */
OMM_CHECKED omm_err omm_lora_init_random(omm_lora *lora, const omm_lora_spec *spec,
                                         const omm_lora_shape *shape, const omm_rng *rng);
/* All zero, with the pairs of a plan.  Errors: CONFIG (no pair at all, rank, scale, a layer the model
 * lacks), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_lora_init_plan(omm_lora *lora, const omm_lora_plan *plan);
/* A as omm_lora_init_random does.  Errors: as omm_lora_init_plan. */
OMM_CHECKED omm_err omm_lora_init_plan_random(omm_lora *lora, const omm_lora_plan *plan,
                                              const omm_rng *rng);
void omm_lora_fini(omm_lora *lora);

/* One rank and scale for all, alpha / rank, and the same targets in every layer: `spec` says all. */
bool omm_lora_is_uniform(const omm_lora *lora);

/* Make one alpha serve all pairs, as the file needs it: B is multiplied by what the pair's scale has
 * more than alpha / rank.  Exact where that factor is a power of two (and no value leaves f32's
 * range); an alpha for which everything is exact is looked for.  `rounding` also allows other factors,
 * with one rounding per value of B; `*rounded` says whether that was needed.
 * Errors: UNSUPPORTED (a pair that needs rounding, by name), NUMERIC (a value leaves the range of
 * f32); then nothing has changed. */
OMM_CHECKED omm_err omm_lora_fold(bool *rounded, omm_lora *lora, bool rounding);
/* Back to the scales that pairs were trained with, for who goes on training: the same products, but B, and so its
 * gradient, is as it was.  B of pairs without `own_scale` stays; others are rounded once where the factor is no power
 * of two.  Errors: NUMERIC (a value leaves the range of f32, named; then nothing has changed). */
OMM_CHECKED omm_err omm_lora_unfold(omm_lora *lora);
/* The same where that rounds no value; *left pairs stay as they are, with their `own_scale`. */
void omm_lora_unfold_exact(size_t *left, omm_lora *lora);

/* The adapter in the tensors that the model's file has (shape.fused), as llama.cpp and PEFT want it: A
 * of q, k, v one below the other, B with each in its block; one A where all have the same.  `in` is
 * folded; the result has a stacked shape: to be saved, not run.  omm_lora_load takes it apart again, to
 * the same values where each column of B has what is not zero.  Ranks whose ratios are no powers of two
 * need `rounding`, as omm_lora_fold.
 * Errors: UNSUPPORTED (rounding), NUMERIC, TOO_BIG (a rank over OMM_LORA_RANK_MAX, values), NOMEM. */
OMM_CHECKED omm_err omm_lora_fuse(omm_lora *out, bool *rounded, const omm_lora *in, bool rounding);

/* Where A and B of one layer's target begin; NULL both when the adapter does not have it. */
void omm_lora_find(const float **a, const float **b, const omm_lora *lora, uint32_t layer,
                   omm_lora_target target);
/* Index in `tensors` of its A (its B follows), or -1. */
ptrdiff_t omm_lora_find_index(const omm_lora *lora, uint32_t layer, omm_lora_target target);

/* ---- Files --------------------------------------------------------------------------------- */

/* Append the adapter as GGUF bytes, deterministic.  Errors: NOMEM, TOO_BIG, NUMERIC (a value is
 * not finite, named), UNSUPPORTED (scales that one alpha cannot say: fold first). */
OMM_CHECKED omm_err omm_lora_save(omm_buf *out, const omm_lora *lora);
/* F32, F16, BF16, Q8_0. */
bool omm_lora_type_is_stored(omm_ggml_type type);
/* The same in one of those types: a half or a quarter of the bytes, and read at run time in less time.  In Q8_0
 * tensors whose rows are no multiple of 32 are F16: B, unless the rank is one.  Values go to the nearest
 * (omm/rows.h); `*lost` is the norm of what that changed over the norm of all values.
 * Errors: those, NUMERIC (a value too large for the type, named). */
OMM_CHECKED omm_err omm_lora_save_as(omm_buf *out, double *lost, const omm_lora *lora,
                                     omm_ggml_type type);
/* The same to a file, atomically.  Errors: those, IO. */
OMM_CHECKED omm_err omm_lora_save_file(const char *path, const omm_lora *lora);
/* The same in the tensors of the model's own file: fused first where its shape says so.  Errors: those,
 * and of omm_lora_fuse. */
OMM_CHECKED omm_err omm_lora_save_fused(omm_buf *out, bool *rounded, const omm_lora *lora,
                                        bool rounding);

/* Read an adapter (of any element type, its values in f32) for a model of this shape; ranks and targets may differ from layer to
 * layer.  A missing or zero alpha means a scale of 1.  For a fused shape also one of the stacked tensors,
 * whoever made it: its blocks, or the whole A for every part.  What says that it was trained on another model is refused
 * unless shape->base.any; what says nothing is taken.  lora->shape.base is shape's, where that is known, else the file's.
 * Errors: those of omm_gguf_open; UNSUPPORTED (no LoRA adapter, another kind of tensor); MISMATCH
 * (another architecture, another base, a shape that does not fit, named); NOT_FOUND (a pair with one part missing);
 * NUMERIC (a value is not finite). */
OMM_CHECKED omm_err omm_lora_load(omm_lora *lora, omm_bytes file, const omm_lora_shape *shape);
/* The same; what a file lacks that is there is FORMAT, and NOT_FOUND is a file that is not. */
OMM_CHECKED omm_err omm_lora_load_file(omm_lora *lora, const char *path,
                                       const omm_lora_shape *shape);

/* ---- Looking, joining ----------------------------------------------------------------------- */

/* Sizes of one pair, in double; `frobenius` and `spectral` are those of scale * B A. */
typedef struct omm_lora_norms {
    double a, b; /* Frobenius */
    double frobenius, spectral;
} omm_lora_norms;

/* Of the pair whose A is tensors[index].  Errors: NOMEM. */
OMM_CHECKED omm_err omm_lora_measure(omm_lora_norms *out, const omm_lora *lora, size_t index);

/* Widen `shape` by what an adapter file itself claims, so that it can be looked at without its model:
 * layers, widths (the first tensor of a kind decides), architecture, base.  Begin with a zeroed shape, but for base.any.
 * A file with attn_qkv makes it stacked; then the adapter is loaded as it is, to be looked at or joined.
 * Errors: NOT_FOUND, FORMAT (no architecture); NOT_FOUND (a pair with one part missing, named); UNSUPPORTED
 * (no LoRA tensor at all); MISMATCH (attn_qkv and attn_k, attn_v or ffn_gate; a file of another base before it). */
OMM_CHECKED omm_err omm_lora_claim_shape(omm_lora_shape *shape, const omm_gguf *gguf);
/* The same of a file, which errors name, and the digest of all its parts (omm_gguf_digest).  Errors: those of omm_gguf_open;
 * the above, but what a file lacks that is there is FORMAT. */
OMM_CHECKED omm_err omm_lora_claim_file(omm_lora_shape *shape, omm_digest *digest,
                                        const char *path);

/* One adapter that does what several do at once, each times a weight: ranks add, the columns of B and
 * rows of A stand side by side in the order given.  All have one shape; 1 or more parts.
 * Exact where scales times weights differ by powers of two, else with `rounding` as omm_lora_fold.
 * The result is folded.  It names the base that those name which name one; none, where they name several.  Errors: CONFIG (a weight of zero or not finite, ranks over
 * OMM_LORA_RANK_MAX), UNSUPPORTED, NUMERIC, MISMATCH (shapes), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_lora_join(omm_lora *out, bool *rounded, const omm_lora *const *parts,
                                  const float *weights, size_t count, bool rounding);

#endif
