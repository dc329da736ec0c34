/* twin.h - the forward pass of every supported architecture once more, naively and in double, for
 * tests: written from the papers and the file format, sharing no code with the engine but the reader
 * of GGUF and no table of architectures. */
#ifndef ENGINE_TWIN_H
#define ENGINE_TWIN_H

#include "omm/gguf.h"

/* out[count][vocab] of ids[count] from position 0.  Tensors are F32 or Q8_0.  long_rope: the sequence
 * was given more room than the original context.  Aborts on what it does not find. */
void twin_logits(double *out, const omm_gguf *gguf, const uint32_t *ids, size_t count,
                 bool long_rope);

#endif
