/* speaker.h - whoever writes the assistant's turns: a language model, or a script in a test.
 *
 * Depends on: engine (chat, session, tokenizer).  Threads: a speaker belongs to one thread.
 */
#ifndef OMM_SPEAKER_H
#define OMM_SPEAKER_H

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/err.h"
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
    OMM_SPEAKER_LENGTH,    /* cut at the limit of tokens or of the context */
    OMM_SPEAKER_INTERRUPT, /* the user stopped it */
} omm_speaker_stop;

typedef struct omm_speaker {
    /* Do these turns leave room for an answer, or (ample) for several exchanges to come?
     * Errors: those of rendering. */
    omm_err (*fits)(void *ud, bool *fits, const omm_message *messages, size_t count, bool ample);
    /* Append the next assistant turn to `out`. */
    omm_err (*reply)(void *ud, omm_buf *out, omm_speaker_stop *stop, const omm_message *messages,
                     size_t count, omm_speaker_piece piece, void *piece_ud);
    void *ud;
} omm_speaker;

typedef struct omm_model_speaker_options {
    uint32_t reply_tokens_max;              /* of one answer; default 160 */
    uint32_t room_tokens;                   /* left free for an answer; default 96 */
    float temperature;                      /* default 0: the likeliest token */
    uint64_t seed;                          /* of the draws; default 1 */
    const volatile sig_atomic_t *interrupt; /* not 0: stop soon; may be NULL */
} omm_model_speaker_options;

omm_model_speaker_options omm_model_speaker_options_default(void);

typedef struct omm_model_speaker omm_model_speaker;

/* A model that answers: `session` is empty and used by nothing else; both borrowed until close.
 * What an earlier prompt has in common with the next stays in the cache.
 * Errors: CONFIG (temperature, limits against the session's positions), NOMEM. */
OMM_CHECKED omm_err omm_model_speaker_open(omm_model_speaker **out, omm_session *session,
                                           const omm_tokenizer *tokenizer, uint32_t vocab,
                                           const omm_model_speaker_options *options);
void omm_model_speaker_close(omm_model_speaker *speaker); /* NULL is fine */
omm_speaker omm_model_speaker_get(omm_model_speaker *speaker);

#endif
