/* evaluate.h - how well a model with an adapter does on held-out examples, item by item.
 *
 * Every item gives its mean loss and, by greedy generation from the prompt of its first reply,
 * what was right.  Sums over clients and skills are the reader's work (gates).
 * The rows are the same for any number of threads and any instruction set (f32 activations).
 *
 * Depends on: base; engine's model.h, compute.h, lora.h, chat.h; dataset.h.  Threads: uses the
 * workers of `pool`, several items at a time each.
 */
#ifndef OMM_EVALUATE_H
#define OMM_EVALUATE_H

#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/mem.h"

#include <stdbool.h>
#include <stdint.h>

struct omm_model;
struct omm_compute;
struct omm_lora;
struct omm_tokenizer;

/* One row per example of the dataset, in its order. */
typedef struct omm_eval_item {
    double nll;         /* negative log likelihood of the learned tokens, summed, nats */
    uint32_t tokens;    /* learned tokens */
    bool has_reply;     /* the example has one; without, nothing is generated */
    bool is_call;       /* the reference reply has tool calls */
    bool reply_exact;   /* generated reply equals the reference, byte for byte */
    bool call_parses;   /* is_call, and the reply's calls, one at least, are well-formed */
    bool tool_right;    /* call_parses, and as many calls name the right tools in order */
    bool call_exact;    /* tool_right, and the arguments are equal as JSON */
    uint32_t generated; /* tokens generated, the end token included */
    const char *reply;  /* generated text in options.replies; NULL without */
} omm_eval_item;

typedef struct omm_eval_options {
    uint32_t new_tokens_max; /* generation stops here, or at the model's context; 0: only losses */
    uint32_t rope_positions; /* longrope's factors are chosen for, as in training: the recipe's
                              * seq_max; 0: for the longest item */
    const struct omm_tokenizer *tokenizer; /* for the text; NULL only without generation */
    omm_arena *replies;                    /* keeps the generated texts; NULL: not wanted */
    uint64_t *reused; /* grows by the positions that prompts had in common with ones before, whole
                       * blocks of 64, and that were not computed again; NULL: not wanted */
    bool (*cancelled)(void *ud);
    void *ud;
    /* Called from the calling thread's task now and then; may be NULL. */
    void (*progress)(void *ud, size_t done, size_t total);
} omm_eval_options;

/* Fill items[omm_dataset_count(data)].  `adapter` NULL: the base alone.
 * Errors: NOMEM, CANCELLED, NUMERIC, REFUSED_SHAPE (adapter does not fit the model). */
OMM_CHECKED omm_err omm_evaluate(omm_eval_item *items, const struct omm_model *model,
                                 const struct omm_lora *adapter, const omm_dataset *data,
                                 const struct omm_compute *compute,
                                 const omm_eval_options *options);

/* Totals of a run of rows. */
typedef struct omm_eval_summary {
    size_t items, calls, replies;               /* replies: items whose reference is no call */
    double loss;                                /* per learned token, over all items */
    size_t reply_exact;                         /* of `replies` */
    size_t call_parses, tool_right, call_exact; /* of `calls` */
} omm_eval_summary;

/* How many reference replies have more tokens than are generated: none of them can be met.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_eval_replies_cut(size_t *count, const omm_dataset *data,
                                         const struct omm_tokenizer *tokenizer,
                                         uint32_t new_tokens_max);

omm_eval_summary omm_eval_summarise(const omm_eval_item *items, size_t count);

/* What omm_evaluate opens for each worker, for plans of memory. */
typedef struct omm_eval_room {
    unsigned workers;
    size_t seats;           /* sessions, those included whose worth of beginnings is kept */
    uint32_t positions_max; /* of each */
    size_t logit_rows;      /* [vocab] floats each */
} omm_eval_room;
/* Errors: NOMEM. */
OMM_CHECKED omm_err omm_eval_room_of(omm_eval_room *out, const struct omm_model *model,
                                     const omm_dataset *data, unsigned workers,
                                     uint32_t new_tokens_max);

#endif
