/* packed_internal.h - what loading and copies have in common: the order of a model's matrices. */
#ifndef ENGINE_PACKED_INTERNAL_H
#define ENGINE_PACKED_INTERNAL_H

#include "omm/model.h"
#include "omm/packed.h"

/* omm_model_outline, and of every layer where its weights lie in the file (omm_layer.rows). */
OMM_CHECKED omm_err model_outline_rows(omm_model *model, const omm_gguf *gguf);

/* Lead the matrices of a model without data into its copy.  Errors: MISMATCH (its size). */
OMM_CHECKED omm_err packed_attach(omm_model *model);

#endif
