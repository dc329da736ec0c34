/* adapter.h - a LoRA adapter made ready to run beside a model's weights, with a scale.
 *
 * Matrices A whose targets share an input (q, k, v; gate, up) are packed as one, so that a token
 * costs four small products per layer where the adapter has seven; B of a target continues the
 * chain of its weight's product in the same pass.  Each of these matrices is kept in the first of
 * BF16, F16, Q8_0, F32 that has all its values exactly (Q8_0: rows of whole blocks of 32).  Nothing
 * of this changes a bit of model.h's definition, in which mode q8 asks for an A kept in Q8_0.
 *
 * Depends on: model, lora.  Threads: read-only once open; share it freely.
 */
#ifndef OMM_ADAPTER_H
#define OMM_ADAPTER_H

#include "omm/hash.h"
#include "omm/lora.h"
#include "omm/model.h"

#define OMM_ADAPTERS_MAX 8u /* on one sequence */

typedef struct omm_adapter omm_adapter;

/* Values are copied.  z = A h is multiplied by the pair's own scale times `scale`; scale finite.
 * Errors: REFUSED_SHAPE (made for another model), NUMERIC (a value is not finite), CONFIG (scale),
 * NOMEM. */
OMM_CHECKED omm_err omm_adapter_open(omm_adapter **out, const omm_model *model,
                                     const omm_lora *lora, float scale);
void omm_adapter_close(omm_adapter *adapter);
/* For plans of memory: what omm_adapter_open takes for an adapter of this layout, all values in F32, and what a session
 * takes for it beside that, with batches of so many tokens.  Its values are not read. */
uint64_t omm_adapter_bytes(const omm_lora *lora);
uint64_t omm_adapter_batch_bytes(const omm_lora *lora, size_t tokens);
/* BLAKE2b-256 of values, shapes and scale. */
omm_digest omm_adapter_digest(const omm_adapter *adapter);

#endif
