/* arch.h - what distinguishes one architecture from another, as data: a new one is a table entry.
 *
 * arch.c has the table; model_keys.c reads the keys, model.c the tensors and graph.c runs the
 * layers, all of them led by it.  None of them knows an architecture by name.
 *
 * Inside engine only.  Depends on: model.
 */
#ifndef ENGINE_ARCH_H
#define ENGINE_ARCH_H

#include "omm/model.h"

/* Tensors and steps that not every architecture has. */
enum {
    ARCH_QKV_BIAS = 1u << 0,      /* attn_q.bias, attn_k.bias, attn_v.bias */
    ARCH_QK_NORM = 1u << 1,       /* attn_q_norm.weight, attn_k_norm.weight, per head */
    ARCH_POST_NORMS = 1u << 2,    /* post_attention_norm.weight, post_ffw_norm.weight */
    ARCH_FUSED_QKV = 1u << 3,     /* attn_qkv.weight: rows of q, then k, then v */
    ARCH_FUSED_GATE_UP = 1u << 4, /* ffn_up.weight: rows of gate, then up */
    ARCH_LONG_ROPE = 1u << 5,     /* rope_factors_short.weight and rope_factors_long.weight */
    ARCH_EMBED_SCALED = 1u << 6,  /* embeddings times sqrt(d_model) */
    ARCH_SOFTCAPS = 1u << 7,      /* keys attn_logit_softcapping, final_logit_softcapping */
    ARCH_SCALES = 1u << 8, /* keys embedding_scale, residual_scale, attention.scale, logit_scale */
    ARCH_ROPE_SWITCH = 1u << 9,       /* rope.scaling.finetuned = false means no rope: refused */
    ARCH_NO_PRE_NORMS = 1u << 10,     /* without attn_norm.weight and ffn_norm.weight */
    ARCH_QK_NORM_WHOLE = 1u << 11,    /* with ARCH_QK_NORM: of all heads together */
    ARCH_WINDOWS_UNSCALED = 1u << 12, /* rope's scaling is not for layers with a window */
    ARCH_WINDOWS_TURN = 1u << 13,     /* where there is a window, layers without it turn nothing */
    ARCH_NORMS_TURNED = 1u << 14,     /* with ARCH_QK_NORM: of heads that have been turned */
    ARCH_BASE_STRETCHED = 1u << 15,   /* key rope.scaling.alpha */
    ARCH_TEMPERATURE =
        1u << 16, /* keys attention.temperature_scale, rope.scaling.yarn_log_multiplier */
    ARCH_YARN_SAID = 1u << 17 /* rope.scaling.attn_factor may say what yarn gives by itself */
};

typedef struct arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    unsigned parts;   /* of the above */
    omm_rope_style rope_style;
    omm_ffn ffn;
    float attention_softcap, output_softcap; /* with ARCH_SOFTCAPS, where the key is missing */
    bool windowed;                           /* attention.sliding_window is read */
    uint32_t window;                         /* where the key is missing; 0: no window then */
    uint32_t window_period; /* each period's last layer sees everything; 0: all have the window */
    double rope_base_local; /* of layers with a window; 0: the same as elsewhere */
    uint32_t unrotated_period; /* each period's last layer turns nothing; 0: all turn */
    /* The one size, told by its layers, that scales scores by 1 / sqrt(d_model / heads) and not by
     * 1 / sqrt(head_dim); 0: none does. */
    uint32_t wide_scale_layers;
} arch;

/* Errors: UNSUPPORTED (lists what is supported). */
OMM_CHECKED omm_err arch_find(const arch **out, const char *name);
/* A layer of this architecture has the tensor "blk.N.<tail>". */
bool arch_has_layer_tensor(const arch *a, const char *tail);
/* The model has the tensor outside its layers; factors of rope that its scaling does not look at it has not. */
bool arch_has_tensor(const arch *a, omm_rope_scaling scaling, const char *name);

/* dims of a file but for the vocabulary.  Errors: as omm_model_load. */
OMM_CHECKED omm_err model_keys_load(omm_model_dims *d, const arch *a, const omm_gguf *gguf);
/* As rope.scaling.type has it. */
const char *model_scaling_name(omm_rope_scaling scaling);
/* The layer's window, 0 where it sees everything. */
uint32_t model_layer_window(const omm_model_dims *d, uint32_t layer);
/* Does the layer leave q and k as they are? */
bool model_layer_unrotated(const omm_model_dims *d, uint32_t layer);

#endif
