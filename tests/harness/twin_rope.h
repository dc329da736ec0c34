/* twin_rope.h - how fast each pair of a head turns, in double and from the papers: for the twins of
 * engine and train.  Shares nothing with the engine but the reader of GGUF.  Link test_models. */
#ifndef TWIN_ROPE_H
#define TWIN_ROPE_H

#include "omm/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* Angle per position of pair i of rotated / 2; *magnitude: what cos and sin are multiplied by.
 * is_local: of a layer of gemma3 or olmo2 that has a window.  is_long: longer than the original context. */
double twin_rope_speed(double *magnitude, const omm_gguf *gguf, uint32_t rotated, bool is_local,
                       bool is_long, uint32_t i);

#endif
