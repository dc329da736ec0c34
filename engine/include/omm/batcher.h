/* batcher.h - many texts generated at once, one pass through the weights for all: continuous batching.
 *
 *   sit(prompt, adapters, sampler) --> seat      step() --> {seat, id} ...      leave(seat)
 *
 * A seat is taken whenever one is free and left whenever its text has ended; the others go on meanwhile.
 * A step gives each seat what it needs next: its last token, or more of its prompt.  While others decode, prompts are
 * read prefill_max tokens a step, shared among those that read, so that nobody waits long for his next token.
 *
 * A position's logits depend on nothing that stands beside it in a batch, and its draw on seed, position and
 * the text's own ids alone: a text has the ids that it would have if nobody else were there.
 *
 * Beginnings that were computed are kept (prefix.h) when a prompt has been read and when a seat is left, and
 * serve whoever begins alike under the same adapters.
 *
 * Depends on: session, prefix, sample, constraint.  Threads: a batcher belongs to one thread at a time.
 */
#ifndef OMM_BATCHER_H
#define OMM_BATCHER_H

#include "omm/constraint.h"
#include "omm/sample.h"
#include "omm/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_BATCHER_SEATS_MAX 64u
#define OMM_BATCHER_WHY_MAX 256u

typedef struct omm_batcher_options {
    omm_session_options
        session; /* of each seat; batch_max holds for all together, rollback_max is at least a step */
    uint32_t seats; /* 1 .. OMM_BATCHER_SEATS_MAX; default 4 */
    uint32_t
        prefill_max; /* prompt tokens of a step in which others decode, at least 1; default 64 */
    uint32_t
        rows_max; /* logits of prompts at once, for who wants those of each position; default 32 */
    size_t prefix_bytes_max; /* of the cache, kept for who begins alike; 0: nothing is kept */
} omm_batcher_options;
omm_batcher_options omm_batcher_options_default(void);

typedef struct omm_batcher omm_batcher;

/* compute and model are borrowed until close.  Errors: CONFIG (seats, prefill_max), those of omm_group_open. */
OMM_CHECKED omm_err omm_batcher_open(omm_batcher **out, const omm_compute *compute,
                                     const omm_model *model, const omm_batcher_options *options);
void omm_batcher_close(omm_batcher *batcher); /* NULL is fine */

/* The logits[vocab] of position `position` of a prompt, which foretell the id after it; borrowed for the call. */
typedef void (*omm_batcher_row)(void *ud, uint32_t seat, uint32_t position, const float *logits);

typedef struct omm_batcher_text {
    const uint32_t *prompt;             /* (count) copied */
    size_t count;                       /* 1 .. positions_max */
    const omm_adapter *const *adapters; /* applied in this order; borrowed until the seat is left */
    size_t adapter_count;
    omm_sampler sampler;
    omm_constraint *constraint; /* borrowed until the seat is left; NULL: any token may come */
    omm_batcher_row
        each; /* called for each position of the prompt but its last, ascending, while it is read; nothing that
                           * was kept serves such a prompt.  NULL: not wanted */
    void *each_ud;
} omm_batcher_text;

/* Take a free seat.  Errors: STATE (none is free), TOO_BIG (prompt or adapters), FORMAT (an id is not in the
 * vocabulary), CONFIG (sampler), NOMEM; then no seat is taken. */
OMM_CHECKED omm_err omm_batcher_sit(uint32_t *seat, omm_batcher *batcher,
                                    const omm_batcher_text *text);
/* The text has ended, or nobody wants it any more. */
void omm_batcher_leave(omm_batcher *batcher, uint32_t index);

/* What came to a seat.  With an error the text cannot go on, and nothing but leaving is left to do: NUMERIC (a
 * logit is not finite), TOO_BIG (positions_max are full), UNSUPPORTED (no token is allowed), NOMEM. */
typedef struct omm_batcher_token {
    uint32_t seat;
    omm_err err;
    uint32_t id;
    const float
        *logits; /* [vocab] that it was drawn from, without penalties; until the next step */
    char why[OMM_BATCHER_WHY_MAX]; /* of an error: its sentence */
} omm_batcher_token;

/* One batch for all that sit; tokens[seats] takes those of seats whose prompts have been read.  Nothing
 * happens where nobody sits.  Errors: none that concern one text alone, which are in its token. */
void omm_batcher_step(omm_batcher_token *tokens, size_t *count, omm_batcher *batcher);

uint32_t omm_batcher_taken(const omm_batcher *batcher); /* seats */
/* Ids of the prompt that are not computed again; from omm_batcher_sit on. */
uint32_t omm_batcher_reused(const omm_batcher *batcher, uint32_t index);
size_t omm_batcher_cache_bytes(const omm_batcher *batcher); /* made so far */

#endif
