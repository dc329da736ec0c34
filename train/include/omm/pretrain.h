/* pretrain.h - a model from nothing: what a pretraining file says, and the model it begins with.
 *
 *   file.yaml --load--> config --start--> GGUF: trained vocabulary, random weights --omm/full.h--> model
 *
 * The model is of architecture `llama` with tied embeddings.  Weights: norms are 1; element i of a
 * matrix is deviation * (b0 + b1 + b2 + b3 - 510) / 147.8, where b0 .. b3 are the bytes of number i of
 * the ChaCha20 lane of (seed, tensor name): near normal, never beyond 3.5 deviations.  The two matrices
 * of a layer that end in the residual have their deviation divided by sqrt(2 layers).  Where `start` says
 * induction, the first two layers and the embeddings are then made as train/induction.h says.
 * Equal files and texts give equal bytes, on any machine.
 *
 * Depends on: base; engine's gguf.h, vocab_train.h; recipe.h.  Threads: no shared state.
 */
#ifndef OMM_PRETRAIN_H
#define OMM_PRETRAIN_H

#include "omm/bytes.h"
#include "omm/config.h"
#include "omm/err.h"
#include "omm/full.h"
#include "omm/gguf.h"
#include "omm/recipe.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_PRETRAIN_TEXTS_MAX 32u
enum { OMM_PRETRAIN_MIXED, OMM_PRETRAIN_LISTED }; /* texts in one shuffle, or one after the other */
enum { OMM_PRETRAIN_RANDOM, OMM_PRETRAIN_INDUCTION }; /* weights at the start */
#define OMM_PRETRAIN_MUON (OMM_RECIPE_ADAFACTOR + 1)  /* the recipe has AdamW, and omm_full_muon */

/* Paths are as the file has them; omm_pretrain_folders says where they begin. */
typedef struct omm_pretrain_vocabulary {
    const char *from;      /* a GGUF whose vocabulary is taken; else one is trained: */
    omm_config_list texts; /* of const char *: paths */
    uint32_t size;
    const char *words;
    bool digits_apart;
    omm_config_list control, user; /* of const char * */
    const char *bos, *eos, *padding;
} omm_pretrain_vocabulary;

typedef struct omm_pretrain_model {
    uint32_t layers, width, feed_forward, heads, kv_heads, context;
    double rope_base, rms_epsilon, deviation;
    int start; /* OMM_PRETRAIN_RANDOM, OMM_PRETRAIN_INDUCTION */
} omm_pretrain_model;

typedef struct omm_pretrain_training {
    omm_config_list texts; /* of const char *: paths; documents end with `separator` */
    const char *separator;
    int order; /* OMM_PRETRAIN_MIXED, OMM_PRETRAIN_LISTED */
    uint32_t steps, batch_tokens, micro_tokens;
    int optimizer; /* omm_recipe_optimizer, or OMM_PRETRAIN_MUON */
    int schedule;  /* omm_recipe_schedule */
    double learning_rate;
    uint32_t warmup_steps;
    double lr_min_ratio, beta1, beta2, epsilon, weight_decay, clip_norm, momentum, matrix_rate;
    double unseen_spread; /* of omm_full_set_apart */
} omm_pretrain_training;

typedef struct omm_pretrain_config {
    const char *name, *basename, *size_label, *license, *description; /* general.* of the file */
    const char *chat_template;                                        /* a path, or NULL */
    const char *type; /* of the matrices in the finished file */
    uint64_t seed;
    omm_pretrain_vocabulary vocabulary;
    omm_pretrain_model model;
    omm_pretrain_training training;
    const char *valid_text; /* a path, or NULL: nothing is held out */
    uint32_t valid_every;   /* steps */
} omm_pretrain_config;

extern const omm_config_field omm_pretrain_fields[];

/* Strings and lists live in `arena`.  Errors: NOT_FOUND, IO, CONFIG, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_pretrain_load(omm_pretrain_config *out, const char *path, omm_arena *arena);
/* The recipe of its training, and what it says of Muon. */
omm_recipe omm_pretrain_recipe(const omm_pretrain_config *config);
omm_full_muon omm_pretrain_muon_of(const omm_pretrain_config *config);

/* Where the files are that the config names. */
typedef struct omm_pretrain_folders {
    const char *config; /* of the file itself: vocabulary.from, chat_template, valid_text */
    const char *data;   /* of the texts */
} omm_pretrain_folders;

/* Append the model that training begins with, all F32.  Errors: CONFIG, NOT_FOUND, IO, FORMAT (a text
 * that is not UTF-8), UNSUPPORTED, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_pretrain_start(omm_buf *out, const omm_pretrain_config *config,
                                       const omm_pretrain_folders *folders);

#endif
