/* lora_internal.h - what the files of the adapter share inside engine. */
#ifndef ENGINE_LORA_INTERNAL_H
#define ENGINE_LORA_INTERNAL_H

#include "omm/lora.h"

/* Rank 1 .. OMM_LORA_RANK_MAX and a finite scale.  Errors: CONFIG. */
OMM_CHECKED omm_err lora_check_pair(omm_lora_pair pair);

/* '*' stands for any run of characters, '?' for any one. */
bool lora_glob(const char *pattern, size_t size, const char *text);

/* The scale that a file with this alpha gives a pair. */
static inline float lora_file_scale(float alpha, uint32_t rank) {
    return alpha == 0.0f ? 1.0f : alpha / (float)rank;
}
/* An alpha that gives `scale`, or, where no f32 does, the nearest to one. */
float lora_alpha_for(float scale, uint32_t rank);

/* Which layer, target and half the tensor of an adapter file means; false when none.  `stacked` says
 * whether attn_q or attn_qkv is one. */
bool lora_parse_name(uint32_t *layer, omm_lora_target *target, bool *is_b, const char *name,
                     bool stacked);

/* "attn_q" ... "ffn_down", or "attn_qkv" in a stacked shape. */
const char *lora_tensor_stem(const omm_lora_shape *shape, omm_lora_target target);
/* Of a fused shape, the one of the stacked tensors. */
omm_lora_shape lora_stacked_shape(const omm_lora_shape *shape);
/* The model's tensor that the pair of `a` adapts, its first row there, and the rows of the whole. */
void lora_base_tensor(char name[OMM_GGUF_NAME_MAX], uint32_t *first, uint32_t *rows,
                      const omm_lora *lora, const omm_lora_tensor *a);
/* A stacked adapter for a model of this fused shape, with the same alpha.  Errors: TOO_BIG, NOMEM. */
OMM_CHECKED omm_err lora_unfuse(omm_lora *out, const omm_lora *in, const omm_lora_shape *shape);

/* ---- lora_base.c ---- */

/* Of GGUF keys and of a PEFT folder's metadata. */
#define LORA_BASE_FINGERPRINT "openmeshmind.base.fingerprint"

/* The keys of a file; none for what is not known. */
void lora_base_put(omm_gguf_writer *w, const omm_lora_base *base);
/* Errors: FORMAT (no 64 hex digits; `where` begins the sentence). */
OMM_CHECKED omm_err lora_base_take(omm_lora_base *base, const char *hex, const char *where);
/* An adapter that says `file` is read for `base`: where that is not known it becomes what the adapter
 * says, but with base->any.  Errors: MISMATCH (both known, and others); then nothing has changed. */
OMM_CHECKED omm_err lora_base_meet(omm_lora_base *base, const omm_lora_base *file);

#endif
