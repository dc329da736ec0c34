/* sample.h - choosing the next token: biases, penalties on what was said before, then the draw.
 *
 *   logits --biases, penalties(history)--> logits --top_k, temperature, top_p, min_p--> id
 *
 * All depends on the arguments alone: a text that is proposed and checked, or drawn beside others, is the same one.
 *
 * Depends on: rng, constraint.  Threads: no shared state.
 */
#ifndef OMM_SAMPLE_H
#define OMM_SAMPLE_H

#include "omm/constraint.h"
#include "omm/err.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_PENALTY_MAX 2.0f /* of frequency and presence: as OpenAI's API has them */
#define OMM_REPEAT_PENALTY_MIN 0.01f
#define OMM_REPEAT_PENALTY_MAX 100.0f
#define OMM_REPEAT_LAST_DEFAULT 64u
#define OMM_REPEAT_LAST_ALL UINT32_MAX
#define OMM_BIAS_MAX 100.0f /* either way: as OpenAI's API has it */
#define OMM_BIASES_MAX 1024u

/* Added to the logit of one token; the largest either way leave it no chance, or the others none. */
typedef struct omm_bias {
    uint32_t id;
    float bias;
} omm_bias;

typedef struct omm_sampler {
    float temperature;       /* 0: greedy */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 1: off; 0 < top_p <= 1 */
    float min_p;             /* 0: off; 0 <= min_p <= 1, of the likeliest's probability */
    omm_rng rng;             /* lane; number `position` decides the token at that position */
    float frequency_penalty; /* 0: off; -OMM_PENALTY_MAX .. OMM_PENALTY_MAX */
    float presence_penalty;  /* the same */
    float repeat_penalty;    /* 1: off; OMM_REPEAT_PENALTY_MIN .. OMM_REPEAT_PENALTY_MAX */
    uint32_t repeat_last;    /* tokens that repeat_penalty looks back at; 0: none, it is off */
    const omm_bias
        *biases; /* [bias_count] ascending by id, borrowed; each id under the vocabulary */
    uint32_t bias_count;
} omm_sampler;

/* Greedy, without a penalty; repeat_last is OMM_REPEAT_LAST_DEFAULT for who sets the penalty alone. */
omm_sampler omm_sampler_default(void);
/* Errors: CONFIG (a value that is not in its range, or no number; repeat_penalty only where it looks back; biases out of
 * order, or more than OMM_BIASES_MAX). */
OMM_CHECKED omm_err omm_sampler_check(const omm_sampler *sampler);

/* ---- what was said before -------------------------------------------------------------------- */

/* All ids before the one that is drawn: the prompt's, then those that were generated. */
typedef struct omm_history {
    const uint32_t
        *ids;     /* [count] each under vocab, borrowed; may be NULL where nothing is penalised */
    size_t count; /* the position of the one that is drawn */
    size_t prompt_count; /* of them, not generated in this answer; <= count */
} omm_history;

/* Has it a bias, or a penalty that changes a logit? */
bool omm_sampler_penalises(const omm_sampler *sampler);
/* What the logits were, of tokens that were biased or penalised; zeroed: none. */
typedef struct omm_penalised {
    struct omm_said *said; /* [mask + 1], NULL: none */
    size_t mask;
} omm_penalised;

/* Change logits[vocab] by biases and penalties, in f32 and in this order, for each id by itself:
 *   its bias b: x + b
 *   repeat_penalty p, if the id is among the last repeat_last of the history, prompt included: x > 0 ? x / p : x * p
 *   frequency_penalty f, for an id that was generated n times, n > 0: x - f * n
 *   presence_penalty q, for such an id: x - q
 * A logit beyond f32 is the largest there is.  Costs what was said and is biased, whatever the vocabulary.  To be undone.
 * Errors: NOMEM; then nothing has changed.
 * Source: Keskar et al. 2019, "CTRL" (repeat_penalty; its sign as in transformers and llama.cpp); OpenAI's API reference. */
OMM_CHECKED omm_err omm_penalise(omm_penalised *was, float *logits, uint32_t vocab,
                                 const omm_sampler *sampler, const omm_history *history);
/* The logits as they were. */
void omm_penalise_undo(omm_penalised *was, float *logits);

/* ---- the draw -------------------------------------------------------------------------------- */

/* Lowest id of the largest logit. */
uint32_t omm_argmax(const float *logits, uint32_t vocab);
/* The token to stand at `position`.  Candidates are ordered by logit, ties by lower id; top_k
 * first, then softmax at the temperature over what is left, then the shortest prefix whose
 * probability reaches top_p, and of it those at least min_p times as likely as the first (min_p:
 * Nguyen et al. 2024, "Turning Up the Heat").  A sampler with penalties is a bug here, for there is no history:
 * omm_sample_within takes one.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_sample(uint32_t *out, const omm_sampler *sampler, const float *logits,
                               uint32_t vocab, uint64_t position);
/* The same among the ids whose bits are set (bit id % 32 of allowed[id / 32]; NULL: all): the others are no candidates, so
 * top_k, top_p and min_p are of what is left.  The logits have been penalised already.
 * Errors: NOMEM, UNSUPPORTED (none is set). */
OMM_CHECKED omm_err omm_sample_allowed(uint32_t *out, const omm_sampler *sampler,
                                       const uint32_t *allowed, const float *logits, uint32_t vocab,
                                       uint64_t position);

/* The token that follows the history: its logits penalised, then omm_sample for position history->count among the ids that
 * are allowed; takes what was drawn.  constraint NULL: any id.  logits are changed meanwhile, and afterwards as they were.
 * Errors: as omm_sample; UNSUPPORTED (no id is allowed: the vocabulary lacks a byte); then nothing was taken. */
OMM_CHECKED omm_err omm_sample_within(uint32_t *out, const omm_sampler *sampler,
                                      omm_constraint *constraint, const omm_history *history,
                                      float *logits, uint32_t vocab);

#endif
