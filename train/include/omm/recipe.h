/* recipe.h - what a node is asked to train: adapter, batches, schedule, optimiser.
 *
 * The recipe travels inside the round offer as fixed bytes (omm_recipe_encode), so every node and
 * every replay reads the same numbers:
 *
 *   "OMMR" | version u32 | u32 and f32 fields in the order of struct omm_recipe, little endian
 *
 * Version 1 ends after seed_lane.  Version 2 goes on to b_rate_ratio, version 3 to the texts, which are
 * padded with zeros, version 5 to the end (4 is gone: its int8 products were rounded in another order).
 * The lowest version that has every field which is not 0 (and for parts = core version 3) is written, and
 * any other refused: one recipe has one spelling.
 *
 * Depends on: bytes, config, err; engine's lora.h for the adapter, model.h.  Threads: no shared state.
 */
#ifndef OMM_RECIPE_H
#define OMM_RECIPE_H

#include "omm/bytes.h"
#include "omm/config.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;
struct omm_lora;
struct omm_lora_plan;
struct omm_lora_shape;
struct omm_lora_spec;
struct omm_model;
struct omm_rng;

#define OMM_RECIPE_BYTES 84u    /* of version 1 */
#define OMM_RECIPE_BYTES_2 112u /* of version 2 */
#define OMM_RECIPE_TEXT 128u    /* of each text, with the zero at its end */
#define OMM_RECIPE_BYTES_3 (OMM_RECIPE_BYTES_2 + 3 * OMM_RECIPE_TEXT)
#define OMM_RECIPE_BYTES_MAX (OMM_RECIPE_BYTES_3 + 4)

/* Which half of each pair moves; the other keeps its start values: A frozen is LoRA-FA and FFA-LoRA, by
 * turns RoLoRA.  Core (Fed-SB, LoRA-XS): B C A with both halves frozen and C, r x r, trained.  From a
 * start adapter C begins as the identity; without one as zero, between random halves. */
typedef enum omm_recipe_parts {
    OMM_RECIPE_PARTS_AB = 0,
    OMM_RECIPE_PARTS_A = 1,
    OMM_RECIPE_PARTS_B = 2,
    OMM_RECIPE_PARTS_CORE = 3,
} omm_recipe_parts;

typedef enum omm_recipe_optimizer {
    OMM_RECIPE_ADAMW = 0,
    OMM_RECIPE_SGD = 1,       /* with momentum */
    OMM_RECIPE_ADAFACTOR = 2, /* factored second moments, no first */
} omm_recipe_optimizer;

/* After the warmup, from the peak to lr_min_ratio of it. */
typedef enum omm_recipe_schedule {
    OMM_RECIPE_COSINE = 0,
    OMM_RECIPE_LINEAR = 1,
    OMM_RECIPE_CONSTANT = 2, /* stays at the peak */
} omm_recipe_schedule;

/* What products with the base model take in forward.  Q8: inputs rounded to int8 by blocks of 32, as
 * they are when a quantised model chats; another result than F32's, the same on every machine.  It needs a
 * base with quantised matrices; those that are not take f32, and so do adapters and backward. */
typedef enum omm_recipe_activations {
    OMM_RECIPE_F32 = 0,
    OMM_RECIPE_Q8 = 1,
} omm_recipe_activations;

typedef struct omm_recipe {
    uint32_t rank;         /* 1 .. 256 */
    float alpha;           /* the adapter's output is scaled by alpha / rank; > 0 */
    uint32_t targets;      /* bit set of 1u << omm_lora_target, at least one */
    uint32_t parts;        /* omm_recipe_parts */
    float dropout;         /* of the adapter's input, 0 <= p < 1 */
    uint32_t steps;        /* optimiser steps, 1 .. 1,000,000 */
    uint32_t batch_tokens; /* a step takes examples while their tokens fit; at least one */
    uint32_t micro_tokens; /* packed per forward/backward pass; memory, never the result */
    uint32_t seq_max;      /* longer examples lose their tail; 8 .. 32,768 */
    float learning_rate;   /* peak */
    uint32_t warmup_steps; /* linear from 1/warmup_steps of the peak */
    float lr_min_ratio;    /* the schedule ends at this share of the peak, 0 .. 1 */
    float beta1, beta2;    /* Adam moments, 0 <= b < 1; Adafactor reads beta2 */
    float epsilon;         /* > 0 */
    float weight_decay;    /* decoupled, per unit of learning rate */
    float clip_norm;       /* global gradient norm at most this; 0 = off */
    float prox_mu;         /* FedProx: adds mu * (w - w_start) to the gradient; 0 = off */
    uint32_t seed_lane;    /* `node` of every random lane drawn from the training seed */
    /* Version 2; 0 is what version 1 does. */
    uint32_t optimizer;     /* omm_recipe_optimizer */
    uint32_t schedule;      /* omm_recipe_schedule */
    float momentum;         /* SGD, 0 <= m < 1 */
    uint32_t nesterov;      /* SGD: 1 looks ahead by the momentum, which is then over 0 */
    uint32_t relative_step; /* Adafactor: 1 makes the rate a share of each tensor's own size */
    uint32_t rslora;        /* 1: the scale is alpha / sqrt(rank) (2312.03732) */
    float b_rate_ratio;     /* LoRA+ (2402.12354): B's rate is this times A's; 0 = the same */
    /* Version 3.  Lists separated by commas, of names and patterns as omm_lora_plan_add takes them. */
    char target_pattern[OMM_RECIPE_TEXT]; /* what is adapted, instead of `targets`, which has all */
    char rank_pattern[OMM_RECIPE_TEXT]; /* "ffn_*=4,blk.0.*=2": other ranks for some of it; the last
                                             that names a layer counts */
    char alpha_pattern[OMM_RECIPE_TEXT]; /* the same for alpha */
    /* Version 5. */
    uint32_t activations; /* omm_recipe_activations */
} omm_recipe;

/* rank 8, alpha 16, all seven targets, 20 steps of 2,048 tokens, learning rate 1e-2. */
omm_recipe omm_recipe_default(void);

/* Errors: CONFIG, naming the field, the value and the limit. */
OMM_CHECKED omm_err omm_recipe_validate(const omm_recipe *recipe);

/* The adapter that this recipe trains.  With rslora its alpha is alpha * sqrt(rank), so that every
 * reader of the file gets the scale from the usual alpha / rank. */
void omm_recipe_lora_spec(struct omm_lora_spec *out, const omm_recipe *recipe);
/* Whether that spec says it all: no patterns. */
bool omm_recipe_is_uniform(const omm_recipe *recipe);

/* Which layers of a model of this shape are adapted, at what rank and scale.  Errors: CONFIG (a pattern
 * that names nothing, or nothing adapted; says what would be accepted), NOMEM. */
OMM_CHECKED omm_err omm_recipe_plan(struct omm_lora_plan *out, const omm_recipe *recipe,
                                    const struct omm_lora_shape *shape);
/* A rule of rank_pattern or alpha_pattern all of whose layers later rules take changes nothing, and was meant to: *sentence names the
 * first such one, or is "" where there is none.  No error of the recipe, whose plan is good.  Errors: as omm_recipe_plan. */
#define OMM_RECIPE_DOUBT_MAX 320u
OMM_CHECKED omm_err omm_recipe_doubt(char sentence[OMM_RECIPE_DOUBT_MAX], const omm_recipe *recipe,
                                     const struct omm_lora_shape *shape);
/* The adapter itself: zero, or with a lane as omm_lora_init_random has it.  Errors: as above, TOO_BIG. */
OMM_CHECKED omm_err omm_recipe_adapter(struct omm_lora *out, const omm_recipe *recipe,
                                       const struct omm_lora_shape *shape,
                                       const struct omm_rng *lane);

/* Whether this model (an outline will do) can be trained so.  Errors: CONFIG (q8, and no matrix of it is
 * quantised). */
OMM_CHECKED omm_err omm_recipe_check_base(const omm_recipe *recipe, const struct omm_model *model);

/* What omm_recipe_encode appends, by version: OMM_RECIPE_BYTES, _BYTES_2, _BYTES_3 or _BYTES_MAX. */
size_t omm_recipe_bytes(const omm_recipe *recipe);
/* Of the recipe that `in` begins with, by its version; 0: of none that is known. */
size_t omm_recipe_bytes_in(omm_bytes in);
/* Equal recipes give equal bytes.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_recipe_encode(omm_buf *out, const omm_recipe *recipe);
/* Errors: SIZE, FORMAT (not a recipe; a version without need), VERSION, CONFIG (a field out of range).  On error `out` is
 * untouched. */
OMM_CHECKED omm_err omm_recipe_decode(omm_recipe *out, omm_bytes in);

#define OMM_RECIPE_DIFFERENCE_BYTES 96u
/* The first of all members that differs, as "steps is 3 there, 5 here", for messages; of names and texts only which.
 * False: none does. */
bool omm_recipe_difference(char out[OMM_RECIPE_DIFFERENCE_BYTES], const omm_recipe *there,
                           const omm_recipe *here);

/* The same as a YAML mapping, for scenario and service files: use omm_recipe_fields as the `sub`
 * table of a member of type omm_recipe_yaml, then omm_recipe_from_yaml. */
typedef struct omm_recipe_yaml {
    uint32_t rank;
    double alpha;
    const char *targets; /* "all", or names and patterns: "q,v", "ffn_*", "blk.4-7.*" */
    int parts;           /* "ab", "a", "b", "core" */
    double dropout;
    uint32_t steps, batch_tokens, micro_tokens, seq_max;
    double learning_rate;
    uint32_t warmup_steps;
    double lr_min_ratio, beta1, beta2, epsilon, weight_decay, clip_norm, prox_mu;
    uint32_t seed_lane;
    int optimizer; /* "adamw", "sgd", "adafactor" */
    int schedule;  /* "cosine", "linear", "constant" */
    double momentum, b_rate_ratio;
    bool nesterov, relative_step, rslora;
    const char *rank_pattern, *alpha_pattern; /* NULL: none */
    int activations;                          /* "f32", "q8" */
    bool has_rank, has_alpha, has_targets;    /* they were there */
} omm_recipe_yaml;

extern const omm_config_field omm_recipe_fields[];
/* Ended by NULL, in the order of the enums. */
extern const char *const omm_recipe_optimizers[], *const omm_recipe_schedules[];
extern const char *const omm_recipe_parts_names[], *const omm_recipe_activations_names[];

/* Take what is adapted from a list as in YAML: names alone go into `targets`, the same bytes as ever;
 * patterns with layers into target_pattern.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_recipe_set_targets(omm_recipe *recipe, const char *list);
/* Set rank_pattern and alpha_pattern; NULL: none.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_recipe_set_patterns(omm_recipe *recipe, const char *ranks,
                                            const char *alphas);

/* Whether it says anything of what is adapted, at what rank or scale. */
bool omm_recipe_says_shape(const omm_recipe_yaml *yaml);
/* Errors: CONFIG. */
OMM_CHECKED omm_err omm_recipe_from_yaml(omm_recipe *out, const omm_recipe_yaml *yaml);
/* The other way: a mapping that has every member but empty patterns, and whose text read as YAML gives the
 * same recipe.  The caller decrefs.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_recipe_to_json(struct json_t **out, const omm_recipe *recipe);

#endif
