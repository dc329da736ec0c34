/* ggml.c - the table of element types: name, block length, bytes of a block; and what the others are called. */
#include "gguf_internal.h"

#include <stdio.h>
#include <strings.h>

static const omm_ggml_info s_types[] = {
    {OMM_GGML_F32, "F32", 1, 4},         {OMM_GGML_F16, "F16", 1, 2},
    {OMM_GGML_Q4_0, "Q4_0", 32, 18},     {OMM_GGML_Q4_1, "Q4_1", 32, 20},
    {OMM_GGML_Q5_0, "Q5_0", 32, 22},     {OMM_GGML_Q5_1, "Q5_1", 32, 24},
    {OMM_GGML_Q8_0, "Q8_0", 32, 34},     {OMM_GGML_Q2_K, "Q2_K", 256, 84},
    {OMM_GGML_Q3_K, "Q3_K", 256, 110},   {OMM_GGML_Q4_K, "Q4_K", 256, 144},
    {OMM_GGML_Q5_K, "Q5_K", 256, 176},   {OMM_GGML_Q6_K, "Q6_K", 256, 210},
    {OMM_GGML_IQ4_NL, "IQ4_NL", 32, 18}, {OMM_GGML_IQ4_XS, "IQ4_XS", 256, 136},
    {OMM_GGML_BF16, "BF16", 1, 2},       {OMM_GGML_TQ1_0, "TQ1_0", 256, 54},
    {OMM_GGML_TQ2_0, "TQ2_0", 256, 66},
};

enum { TYPE_COUNT = sizeof s_types / sizeof s_types[0] };

/* By number: what ggml names, or named once, and we do not read. */
static const char *const s_others[] = {
    [4] = "Q4_2",        [5] = "Q4_3",        [9] = "Q8_1",      [15] = "Q8_K",
    [16] = "IQ2_XXS",    [17] = "IQ2_XS",     [18] = "IQ3_XXS",  [19] = "IQ1_S",
    [21] = "IQ3_S",      [22] = "IQ2_S",      [24] = "I8",       [25] = "I16",
    [26] = "I32",        [27] = "I64",        [28] = "F64",      [29] = "IQ1_M",
    [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",   [33] = "Q4_0_8_8", [36] = "IQ4_NL_4_4",
    [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8", [39] = "MXFP4",    [40] = "NVFP4",
    [41] = "Q1_0",       [42] = "Q2_0",
};

const omm_ggml_info *omm_ggml_find(uint32_t type) {
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if ((uint32_t)s_types[i].type == type) return &s_types[i];
    return NULL;
}

const omm_ggml_info *omm_ggml_find_name(const char *name) {
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strcasecmp(s_types[i].name, name) == 0) return &s_types[i];
    return NULL;
}

const omm_ggml_info *omm_ggml_all(size_t *count) {
    *count = TYPE_COUNT;
    return s_types;
}

omm_err ggml_refuse(uint32_t type) {
    char read[256];
    size_t at = 0;
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        at += (size_t)snprintf(read + at, sizeof read - at, "%s%s", i ? ", " : "", s_types[i].name);
        OMM_ASSERT(at < sizeof read);
    }
    const char *name = type < sizeof s_others / sizeof s_others[0] ? s_others[type] : NULL;
    if (!name)
        return omm_raise(OMM_ERR_UNSUPPORTED, "type %u is none of ggml's; these are read: %s", type,
                         read);
    return omm_raise(OMM_ERR_UNSUPPORTED, "type %s is not read; these are: %s", name, read);
}
