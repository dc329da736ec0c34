/* tiny_arch.h - a random model of any supported architecture and rope scaling as GGUF bytes: what the tests of
 * engine and train open.  Link test_models. */
#ifndef TINY_ARCH_H
#define TINY_ARCH_H

#include "omm/bytes.h"
#include "omm/model.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tiny_arch {
    const char *name;     /* general.architecture */
    const char *scaling;  /* rope.scaling.type; NULL: no such key */
    const char *skip;     /* tensor to leave out */
    const char *plain[2]; /* matrices whose names have one of these are F32; NULL: none */
    omm_format format;    /* of the matrices; Q4_K has rows of one block */
    uint32_t layers;      /* 0: 2 */
    uint32_t width, ff;   /* 0: 64 and 96 */
    uint32_t vocab;       /* 0: TINY_ARCH_VOCAB */
    uint32_t context;     /* 0: TINY_ARCH_CONTEXT */
    uint32_t head_dim;    /* 0: width / heads, without a key */
    uint32_t rotated;     /* 0: all of the head, without a key */
    uint32_t window;      /* 0: no key */
    uint32_t period;      /* attention.sliding_window_pattern; 0: no key */
    uint32_t original;    /* rope.scaling.original_context_length; 0: no key */
    float factor;         /* rope.scaling.factor; 0: no key */
    float scale_linear;   /* rope.scale_linear, the older key of the factor; 0: no key */
    float attn_factor;    /* rope.scaling.attn_factor; 0: no key */
    float embed;          /* largest value of an embedding; 0: 1 */
    float base;           /* rope.freq_base; 0: no key */
    float caps[2];        /* of scores and logits; 0: no key */
    float scales[4]; /* embedding_scale, residual_scale, attention.scale, logit_scale; 0: no key */
    float alpha;     /* rope.scaling.alpha; 0: no key */
    float log_multiplier; /* rope.scaling.yarn_log_multiplier; 0: no key */
    float temperature;    /* attention.temperature_scale; 0: no key */
    bool untied;          /* output.weight */
    bool sees_all;        /* attention.causal = false */
    bool turns_not;       /* rope.scaling.finetuned = false */
    bool freqs;           /* rope_freqs.weight */
    bool long_factors;    /* rope_factors_long.weight and rope_factors_short.weight */
} tiny_arch;

enum { TINY_ARCH_VOCAB = 61, TINY_ARCH_CONTEXT = 400 };

/* Append the file; aborts when out of memory. */
void tiny_arch_write(omm_buf *out, const tiny_arch *options);
/* The model of such a file, for omm_model_fini; aborts when it cannot be loaded. */
void tiny_arch_load(omm_model *out, const tiny_arch *options);

#endif
