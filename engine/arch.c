/* arch.c - the architectures that are supported, and which tensors each has. */
#include "arch.h"

#include <stdio.h>
#include <string.h>

static const arch s_archs[] = {
    /* Llama 2 and 3.x, Mistral, TinyLlama, SmolLM2; GGUF permutes the rows of q and k into pairs. */
    {.name = "llama", .rope_style = OMM_ROPE_PAIRS, .ffn = OMM_FFN_SWIGLU},
    /* Qwen 2 and 2.5. */
    {.name = "qwen2", .parts = ARCH_QKV_BIAS, .rope_style = OMM_ROPE_HALVES, .ffn = OMM_FFN_SWIGLU},
    /* Qwen 3, dense. */
    {.name = "qwen3", .parts = ARCH_QK_NORM, .rope_style = OMM_ROPE_HALVES, .ffn = OMM_FFN_SWIGLU},
    /* Gemma 1. */
    {.name = "gemma",
     .parts = ARCH_EMBED_SCALED,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_GEGLU},
    /* Gemma 2: of two layers the first has the window; 27B has 46 layers. */
    {.name = "gemma2",
     .parts = ARCH_POST_NORMS | ARCH_EMBED_SCALED | ARCH_SOFTCAPS,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_GEGLU,
     .attention_softcap = 50.0f,
     .output_softcap = 30.0f,
     .windowed = true,
     .window = 4096,
     .window_period = 2,
     .wide_scale_layers = 46},
    /* Gemma 3, text: of six layers the first five have the window; 27B has 62 layers. */
    {.name = "gemma3",
     .parts = ARCH_QK_NORM | ARCH_POST_NORMS | ARCH_EMBED_SCALED | ARCH_SOFTCAPS,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_GEGLU,
     .windowed = true,
     .window_period = 6,
     .rope_base_local = 10000.0,
     .wide_scale_layers = 62},
    /* Phi 3, 3.5 and 4 mini. */
    {.name = "phi3",
     .parts = ARCH_FUSED_QKV | ARCH_FUSED_GATE_UP | ARCH_LONG_ROPE,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_SWIGLU,
     .windowed = true},
    /* SmolLM 3: of four layers the last knows no positions; the rest as llama's. */
    {.name = "smollm3", .rope_style = OMM_ROPE_PAIRS, .ffn = OMM_FFN_SWIGLU, .unrotated_period = 4},
    /* Granite 3, dense. */
    {.name = "granite",
     .parts = ARCH_SCALES | ARCH_ROPE_SWITCH,
     .rope_style = OMM_ROPE_PAIRS,
     .ffn = OMM_FFN_SWIGLU},
    /* OLMo 2: norms behind each step and none before it.  Files of OLMo 3 have the same name, and a
     * window in three of four layers. */
    {.name = "olmo2",
     .parts = ARCH_QK_NORM | ARCH_QK_NORM_WHOLE | ARCH_NO_PRE_NORMS | ARCH_POST_NORMS |
              ARCH_WINDOWS_UNSCALED | ARCH_YARN_SAID,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_SWIGLU,
     .windowed = true,
     .window_period = 4},
    /* Ministral 3, and Mistral Small 3.1 and later in files that call them so. */
    {.name = "mistral3",
     .parts = ARCH_TEMPERATURE,
     .rope_style = OMM_ROPE_PAIRS,
     .ffn = OMM_FFN_SWIGLU},
    /* EXAONE 4: norms as OLMo 2's, of each head; 32B has a window in three of four layers. */
    {.name = "exaone4",
     .parts = ARCH_QK_NORM | ARCH_NO_PRE_NORMS | ARCH_POST_NORMS | ARCH_WINDOWS_TURN,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_SWIGLU,
     .windowed = true,
     .window_period = 4},
    /* ERNIE 4.5, dense: rows of q and k are in pairs by themselves, not by GGUF. */
    {.name = "ernie4_5", .rope_style = OMM_ROPE_PAIRS, .ffn = OMM_FFN_SWIGLU},
    /* Hunyuan, dense. */
    {.name = "hunyuan-dense",
     .parts = ARCH_QK_NORM | ARCH_NORMS_TURNED | ARCH_BASE_STRETCHED,
     .rope_style = OMM_ROPE_HALVES,
     .ffn = OMM_FFN_SWIGLU},
};

enum { ARCH_COUNT = sizeof s_archs / sizeof *s_archs };

omm_err arch_find(const arch **out, const char *name) {
    char list[192] = "";
    size_t used = 0;
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        if (strcmp(name, s_archs[i].name) == 0) {
            *out = &s_archs[i];
            return OMM_OK;
        }
        int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", s_archs[i].name);
        OMM_ASSERT(n > 0 && (size_t)n < sizeof list - used);
        used += (size_t)n;
    }
    return omm_raise(OMM_ERR_UNSUPPORTED, "architecture '%s' is not supported; these are: %s", name,
                     list);
}

bool arch_has_layer_tensor(const arch *a, const char *tail) {
    static const struct {
        const char *tail;
        unsigned with, without; /* parts: any of `with` (0: always), none of `without` */
    } tensors[] = {{"attn_norm.weight", 0, ARCH_NO_PRE_NORMS},
                   {"attn_q.weight", 0, ARCH_FUSED_QKV},
                   {"attn_k.weight", 0, ARCH_FUSED_QKV},
                   {"attn_v.weight", 0, ARCH_FUSED_QKV},
                   {"attn_qkv.weight", ARCH_FUSED_QKV, 0},
                   {"attn_q.bias", ARCH_QKV_BIAS, 0},
                   {"attn_k.bias", ARCH_QKV_BIAS, 0},
                   {"attn_v.bias", ARCH_QKV_BIAS, 0},
                   {"attn_q_norm.weight", ARCH_QK_NORM, 0},
                   {"attn_k_norm.weight", ARCH_QK_NORM, 0},
                   {"attn_output.weight", 0, 0},
                   {"post_attention_norm.weight", ARCH_POST_NORMS, 0},
                   {"ffn_norm.weight", 0, ARCH_NO_PRE_NORMS},
                   {"ffn_gate.weight", 0, ARCH_FUSED_GATE_UP},
                   {"ffn_up.weight", 0, 0},
                   {"ffn_down.weight", 0, 0},
                   {"post_ffw_norm.weight", ARCH_POST_NORMS, 0}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (strcmp(tail, tensors[i].tail) != 0) continue;
        return (!tensors[i].with || (a->parts & tensors[i].with)) &&
               !(a->parts & tensors[i].without);
    }
    return false;
}

bool arch_has_tensor(const arch *a, omm_rope_scaling scaling, const char *name) {
    static const char *const all[] = {"token_embd.weight", "output_norm.weight", "output.weight"};
    const bool is_long = (a->parts & ARCH_LONG_ROPE) && scaling == OMM_ROPE_SCALING_LONG;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i]) == 0) return true;
    if (!is_long) return strcmp(name, "rope_freqs.weight") == 0;
    return strcmp(name, "rope_factors_long.weight") == 0 ||
           strcmp(name, "rope_factors_short.weight") == 0;
}
