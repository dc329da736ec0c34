/* twin_keys.h - what the twins read of a model's keys: "<arch>.<tail>", or `missing` where there is none.
 * Another type than asked for aborts the test. */
#ifndef TWIN_KEYS_H
#define TWIN_KEYS_H

#include "omm/bytes.h"
#include "omm/gguf.h"

#include <stdint.h>
#include <stdio.h>

static inline uint32_t twin_whole(const omm_gguf *gguf, const char *arch, const char *tail,
                                  uint32_t missing) {
    char key[96];
    uint32_t value = 0;
    snprintf(key, sizeof key, "%s.%s", arch, tail);
    OMM_ASSERT(omm_gguf_get_u32_or(&value, gguf, key, missing) == OMM_OK);
    return value;
}

static inline double twin_real(const omm_gguf *gguf, const char *arch, const char *tail,
                               double missing) {
    char key[96];
    float value = 0.0f;
    snprintf(key, sizeof key, "%s.%s", arch, tail);
    OMM_ASSERT(omm_gguf_get_f32_or(&value, gguf, key, (float)missing) == OMM_OK);
    return (double)value;
}

#endif
