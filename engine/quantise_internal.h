/* quantise_internal.h - which tensor gets which type. */
#ifndef ENGINE_QUANTISE_INTERNAL_H
#define ENGINE_QUANTISE_INTERNAL_H

#include "omm/quantise.h"

/* The types of all tensors of `in` into tensors[in->tensor_count], with names, sizes and nothing of
 * errors; *file_type is general.file_type.  Errors: CONFIG, UNSUPPORTED, TOO_BIG. */
OMM_CHECKED omm_err quantise_plan(omm_quantise_tensor *tensors, uint32_t *file_type,
                                  const omm_gguf *in, const omm_quantise_options *options);

/* The layers that mixes give more bits: the first and last eighth, and every third between. */
bool quantise_is_marked(uint32_t layer, uint32_t layers);

/* Columns, and rows: all other dimensions together. */
uint64_t quantise_rows(const omm_gguf_tensor *t);

#endif
