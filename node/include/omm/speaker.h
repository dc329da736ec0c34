/* speaker.h - whoever writes the assistant's turns: a language model, or a script in a test.
 *
 * Depends on: engine (chat, session, tokenizer).  Threads: a speaker belongs to one thread.
 */
#ifndef OMM_SPEAKER_H
#define OMM_SPEAKER_H

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/constraint.h"
#include "omm/err.h"
#include "omm/sample.h"
#include "omm/session.h"
#include "omm/tokenizer.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gets the answer in pieces of whole characters, as they come. */
typedef omm_err (*omm_speaker_piece)(void *ud, omm_bytes text);

typedef enum omm_speaker_stop {
    OMM_SPEAKER_END,       /* the turn is complete */
    OMM_SPEAKER_LENGTH,    /* cut at the limit of tokens */
    OMM_SPEAKER_CONTEXT,   /* cut where the context is full */
    OMM_SPEAKER_INTERRUPT, /* the user stopped it */
} omm_speaker_stop;

typedef struct omm_speaker {
    /* Do these turns leave room for an answer, or (ample) for several exchanges to come?
     * Errors: those of rendering. */
    omm_err (*fits)(void *ud, bool *fits, const omm_message *messages, size_t count, bool ample);
    /* Append the next assistant turn to `out`. */
    omm_err (*reply)(void *ud, omm_buf *out, omm_speaker_stop *stop, const omm_message *messages,
                     size_t count, omm_speaker_piece piece, void *piece_ud);
    bool no_calls; /* its turns have a form in which no tool can be called */
    bool thinks;   /* its turns may begin with a thought, as thinking.h has it */
    bool wraps;    /* what they answer may stand between marks, as there */
    const omm_tokenizer
        *tokenizer; /* of the model, whose template may say how tools are announced; NULL: none */
    void *ud;
} omm_speaker;

typedef struct omm_model_speaker_options {
    uint32_t reply_tokens_max; /* of one answer, without its thought; default 160 */
    uint32_t room_tokens;      /* left free for an answer; default 96 */
    omm_sampler sampler;       /* its rng is not used; default omm_sampler_default: greedy */
    uint32_t lookup; /* proposals from the text so far, at once; default 0: none.  No other text */
    uint64_t seed;   /* of the draws; default 1 */
    bool at_once;    /* without a thought, of a model that thinks */
    const omm_grammar *
        grammar; /* what each answer is, without a thought or tool call; borrowed; default NULL: any text */
    /* Not 0: stop before the next batch of the prompt, or the next token; may be NULL. */
    const volatile sig_atomic_t *interrupt;
} omm_model_speaker_options;

omm_model_speaker_options omm_model_speaker_options_default(void);

/* What is wrong with them whatever the model is, to be said before it is loaded.
 * Errors: CONFIG (sampling, proposals, no token for an answer). */
OMM_CHECKED omm_err omm_model_speaker_check(const omm_model_speaker_options *options);

typedef struct omm_model_speaker omm_model_speaker;

/* A model that answers: `session` is used by nothing else; both borrowed until close.  What is in the
 * session, from before or of an earlier prompt, and in common with the next prompt is not computed again.
 * Errors: CONFIG (sampling, limits against the session's positions), UNSUPPORTED (no token ends a text, where a grammar is
 * given), NOMEM. */
OMM_CHECKED omm_err omm_model_speaker_open(omm_model_speaker **out, omm_session *session,
                                           const omm_tokenizer *tokenizer, uint32_t vocab,
                                           const omm_model_speaker_options *options);
void omm_model_speaker_close(omm_model_speaker *speaker); /* NULL is fine */
omm_speaker omm_model_speaker_get(omm_model_speaker *speaker);

/* Since it was opened. */
typedef struct omm_model_speaker_usage {
    uint64_t prompt_tokens; /* of all prompts, as far as they were read */
    uint64_t reused_tokens; /* of these in the cache already */
    uint64_t answer_tokens;
    uint64_t accepted_tokens; /* of these: proposals of look-up that were right */
} omm_model_speaker_usage;
omm_model_speaker_usage omm_model_speaker_get_usage(const omm_model_speaker *speaker);

/* Answers so far, counted over several runs: each draws from a lane of its own.  Set it to go on where
 * another speaker was closed. */
uint32_t omm_model_speaker_replies(const omm_model_speaker *speaker);
void omm_model_speaker_set_replies(omm_model_speaker *speaker, uint32_t replies);

#endif
