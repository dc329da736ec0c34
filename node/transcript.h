/* transcript.h - private to node: the turns that the model sees.
 *
 *   [system] [user assistant tool assistant] [user assistant] ...      an exchange begins with a user
 *
 * Depends on: engine (chat).  Threads: one thread at a time.
 */
#ifndef OMM_NODE_TRANSCRIPT_H
#define OMM_NODE_TRANSCRIPT_H

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stddef.h>

#define TRANSCRIPT_TURNS_MAX 1024u

typedef struct transcript {
    omm_message *messages; /* contents owned, see turns */
    omm_buf *turns;
    size_t count;
    size_t capacity;
} transcript;

void transcript_fini(transcript *t);
/* Errors: NOMEM, TOO_BIG; then nothing has changed. */
OMM_CHECKED omm_err transcript_push(transcript *t, omm_role role, omm_bytes text);
/* As omm_assistant_save has it.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err transcript_write(omm_buf *out, const transcript *t);
/* Into an empty transcript: a system turn and whole exchanges, each from a user's turn to an
 * assistant's.  Errors: FORMAT, TOO_BIG, NOMEM; then it is empty. */
OMM_CHECKED omm_err transcript_read(transcript *t, omm_bytes saved);
/* Remove turns from .. to-1. */
void transcript_remove(transcript *t, size_t from, size_t to);
/* Remove the oldest exchange but not the last; false when there is none to remove. */
bool transcript_drop_oldest(transcript *t);

#endif
