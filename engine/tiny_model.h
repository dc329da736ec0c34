/* tiny_model.h - a random llama model of odd sizes as GGUF bytes, and broken variants, for tests. */
#ifndef ENGINE_TINY_MODEL_H
#define ENGINE_TINY_MODEL_H

#include "omm/bytes.h"
#include "omm/gguf.h"
#include "omm/quant.h"

enum {
    TINY_LAYERS = 2,
    TINY_WIDTH = 96,
    TINY_FF = 160,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 24,
    TINY_VOCAB = 77,
    TINY_CONTEXT = 200
};

#define TINY_FORMATS 4u /* F32, F16, Q8_0, Q4_0: the first of omm_format */

typedef struct tiny_options {
    omm_format format;
    bool untied;
    const char *architecture; /* default "llama" */
    const char *skip;         /* tensor or key to leave out */
    const char *nan;          /* tensor that gets a NaN (scale or weight) */
    const char *extra;        /* tensor to add */
    const char *narrow;       /* matrix that gets 32 columns too few */
    const char *key;          /* u32 key to replace ... */
    uint32_t value;           /* ... by this */
    const char *scaling;      /* llama.rope.scaling.type */
    bool file_type;           /* general.file_type, 0 */
    uint32_t alignment;       /* of tensors; 0: the usual one */
} tiny_options;

/* Append the file; aborts when out of memory. */
void tiny_model_write(omm_buf *out, const tiny_options *options);

#endif
