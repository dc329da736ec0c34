/* lora_base.h - which model an adapter was trained on: its name, and a fingerprint that all quantised
 * files of that model have in common.
 *
 *   fingerprint = BLAKE2b-256 of
 *     text "openmeshmind base 1", text general.architecture,
 *     u64 block_count, embedding_length, feed_forward_length, attention.head_count, .head_count_kv
 *     u64 count of tokenizer.ggml.tokens, u64 bytes of its elements, the elements as GGUF has them
 *     of each learned vector, ascending by name:  text name, u64 count, f32 values
 *   text = u64 bytes, the bytes.  All little-endian; a number that the file does not have is 0, but
 *   head_count_kv is then head_count.  Learned vectors are the tensors of one dimension in F32, F16 or
 *   BF16 but those whose name begins with "rope_": norms and biases, which every quantiser leaves alone
 *   and every training moves.  It takes kilobytes of a file beside the tokens.
 *
 * It does not notice: another model whose norms, biases and tokens are the same.  That is one that was
 * trained with these frozen, a base with a LoRA adapter merged into it, and two models without trained
 * norms (random ones of one shape).  It is a check against mistakes: whoever writes a file writes what he
 * likes into it.  What is not in it may differ: context, scaling of positions, the chat template.
 *
 * Depends on: err, bytes, hash, gguf.  Threads: no shared state.
 */
#ifndef OMM_LORA_BASE_H
#define OMM_LORA_BASE_H

#include "omm/gguf.h"
#include "omm/hash.h"

#include <stdbool.h>

#define OMM_LORA_BASE_NAME_MAX 128u /* bytes of a name with its NUL */

typedef struct omm_lora_base {
    omm_digest fingerprint;            /* zeros: not known */
    char name[OMM_LORA_BASE_NAME_MAX]; /* for people; UTF-8 without control characters; may be "" */
    bool any; /* adapters that are read for it are not asked what they were trained on */
} omm_lora_base;

/* Of a model's file; name is its general.name.  `any` is false. */
void omm_lora_base_read(omm_lora_base *out, const omm_gguf *model);
/* What an adapter's file says: openmeshmind.base.fingerprint and general.base_model.0.name, each where it
 * is there.  `any` is false.  Errors: FORMAT (the fingerprint is not 64 hex digits). */
OMM_CHECKED omm_err omm_lora_base_claim(omm_lora_base *out, const omm_gguf *adapter);
/* Take a name from a stranger's text: cut at a character, '?' for what is no UTF-8 or a control character. */
void omm_lora_base_set_name(omm_lora_base *base, omm_bytes text);
bool omm_lora_base_is_known(const omm_lora_base *base);

#endif
