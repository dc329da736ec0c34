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
/* An alpha that gives `scale`, or, where no f32 does, one that misses by an ulp. */
float lora_alpha_for(float scale, uint32_t rank);

/* Which layer, target and half the tensor of an adapter file means; false when none. */
bool lora_parse_name(uint32_t *layer, omm_lora_target *target, bool *is_b, const char *name);

#endif
