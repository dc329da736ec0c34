/* peft_internal.h - what the files about PEFT folders share inside engine. */
#ifndef ENGINE_PEFT_INTERNAL_H
#define ENGINE_PEFT_INTERNAL_H

#include "lora_internal.h"

#include "omm/json.h"
#include "omm/peft.h"

#define PEFT_KEY_PREFIX "base_model.model."
#define PEFT_PATH_PREFIX "model." /* of a text model; the one that we write */
enum { PEFT_PATH_MAX = 160 };

/* "self_attn.q_proj" ... "mlp.down_proj"; of a stacked shape "self_attn.qkv_proj", "mlp.gate_up_proj". */
const char *peft_module(const omm_lora_shape *shape, omm_lora_target target);

/* adapter_config.json, checked, with its regular expressions compiled. */
typedef struct peft_config {
    json_t *root; /* holds the texts */
    uint32_t rank;
    double alpha;
    bool rslora;
    struct peft_pattern *patterns; /* all tables, one after the other; owned */
    size_t pattern_count;
    size_t ranks, alphas; /* patterns[0..ranks) of rank_pattern, then alphas of alpha_pattern */
} peft_config;

/* Errors: as omm_peft_import says about the configuration. */
OMM_CHECKED omm_err peft_config_open(peft_config *config, const char *path);
void peft_config_close(peft_config *config);

/* Would PEFT adapt the module at this path ("model.layers.0.self_attn.q_proj") of layer `layer`?
 * Errors: UNSUPPORTED (a pattern that takes too long). */
OMM_CHECKED omm_err peft_config_targets(bool *yes, const peft_config *config, const char *path,
                                        uint32_t layer);
/* Its rank and scale.  Errors: CONFIG, UNSUPPORTED. */
OMM_CHECKED omm_err peft_config_pair(omm_lora_pair *pair, const peft_config *config,
                                     const char *path);

/* Row of B in the other order; `to_gguf` says which.  rows is a multiple of head_dim. */
static inline size_t peft_row(size_t row, size_t head_dim, bool to_gguf) {
    const size_t head = row - row % head_dim, at = row % head_dim, half = head_dim / 2;
    return head + (to_gguf ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}
/* Head width where the rows of this target are permuted, else 0. */
uint32_t peft_head_dim(const omm_peft_base *base, omm_lora_target target);

#endif
