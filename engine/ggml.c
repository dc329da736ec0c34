/* ggml.c - the table of element types: name, block length, bytes of a block. */
#include "omm/gguf.h"

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
