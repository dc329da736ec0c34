/* vocab_synth.h - a byte-level BPE vocabulary of any size for models with random weights: bytes, three control tokens, pairs of
 * letters, fillers.
 *
 * Depends on: gguf.  Threads: no shared state.
 */
#ifndef OMM_VOCAB_SYNTH_H
#define OMM_VOCAB_SYNTH_H

#include "omm/err.h"
#include "omm/gguf.h"

#include <stdint.h>

/* The keys tokenizer.ggml.* of a vocabulary of so many tokens, more than 259.  Errors: NOMEM (those of the writer stick to it). */
OMM_CHECKED omm_err omm_vocab_put_synthetic(omm_gguf_writer *w, uint32_t tokens);

#endif
