/* peft.h - adapters of the Python world (PEFT): a folder with adapter_config.json and
 * adapter_model.safetensors, both ways.
 *
 *   base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight   [r][d_in]     blk.7.attn_q ... lora_a
 *   base_model.model.model.layers.7.self_attn.q_proj.lora_B.weight   [d_out][r]    blk.7.attn_q ... lora_b
 *
 * GGUF models of architecture llama hold the rows of q and k in another order, for rotation of
 * adjacent pairs: with head width hd, GGUF row h*hd + 2i + p is row h*hd + p*hd/2 + i over there.
 * So do the rows of their B; nothing else differs.  All values are f32 (f16 and bf16 widened
 * exactly), scales go through omm_lora_fold: there and back gives the same values.
 *
 * Architecture phi3 has self_attn.qkv_proj and mlp.gate_up_proj over there, as its GGUF files have
 * attn_qkv and ffn_up: written by omm_lora_fuse, and taken apart again.
 *
 * base_model_name_or_path and openmeshmind.base.fingerprint, in the tensors' __metadata__, say which
 * model it was trained on (lora_base.h).
 *
 * Read: rank and alpha patterns, rsLoRA, targets as list, regex or all-linear, exclusions,
 * layers_to_transform.  Refused by name, with the reason: whatever changes more than W + s B A (DoRA,
 * modules_to_save, biases, embeddings, new tokens, replicated layers), bases that were altered when
 * training began (pissa, olora, loftq, corda), pickles, and keys that are set and not known here.
 * Names in the files are compared, never used as paths.
 *
 * Source: huggingface/peft, src/peft/tuners/lora and utils/save_and_load.py.
 * Depends on: err, gguf, json, lora, safetensors.  Threads: no shared state.
 */
#ifndef OMM_PEFT_H
#define OMM_PEFT_H

#include "omm/gguf.h"
#include "omm/lora.h"

#include <stdbool.h>
#include <stdint.h>

/* The two files of a folder. */
#define OMM_PEFT_CONFIG_FILE "adapter_config.json"
#define OMM_PEFT_MODEL_FILE "adapter_model.safetensors"
#define OMM_PEFT_CONFIG_BYTES_MAX (4u << 20)
#define OMM_PEFT_PATTERNS_MAX 8192u /* in one table */
#define OMM_PEFT_PATTERN_BYTES_MAX 512u

/* What of a base model decides the conversion. */
typedef struct omm_peft_base {
    omm_lora_shape shape;
    uint32_t heads, kv_heads;
    bool permuted; /* rows of q and k, see above */
} omm_peft_base;

/* From the keys, tensor shapes and vectors of a model; the matrices are not read.
 * Errors: UNSUPPORTED (architecture: says which are supported), NOT_FOUND, FORMAT, MISMATCH (layers
 * of unlike shape, heads that do not divide), TOO_BIG. */
OMM_CHECKED omm_err omm_peft_base_read(omm_peft_base *base, const omm_gguf *gguf);

/* Read a folder, for a model, folded so that it can be saved (omm_lora_fold gets `rounding`).
 * Errors: NOT_FOUND (a file, or tensors of a targeted layer, named), UNSUPPORTED (see above),
 * MISMATCH (shape, rank, another base unless base->shape.base.any, a tensor that is not targeted, named), CONFIG (rank, alpha), NUMERIC (a
 * value is not finite), those of omm_json_load, omm_safetensors_open and omm_lora_fold. */
OMM_CHECKED omm_err omm_peft_import(omm_lora *out, bool *rounded, const char *dir,
                                    const omm_peft_base *base, bool rounding);
/* The same without a model, to look at: the shape is what the folder says, rows stay in their order,
 * scales are not folded, and the architecture is "peft". */
OMM_CHECKED omm_err omm_peft_load(omm_lora *out, const char *dir);

/* Write both files into `dir`, which is made where it is missing; each appears whole or not at all.
 * Always exact: PEFT has an alpha per layer; for phi3 within q, k, v and gate, up as omm_lora_fuse, and
 * UNSUPPORTED where it would round.  `name` goes into base_model_name_or_path.
 * Errors: MISMATCH (adapter of another shape), NUMERIC, FORMAT (name is not UTF-8), TOO_BIG, NOMEM,
 * IO. */
OMM_CHECKED omm_err omm_peft_export(const char *dir, const omm_lora *lora,
                                    const omm_peft_base *base, const char *name);

#endif
