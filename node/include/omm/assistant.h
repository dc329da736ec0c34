/* assistant.h - a conversation with tools: whose turn it is, what is executed, what is remembered.
 *
 *   user text --> speaker --> answer                                       --> done
 *                    |            \-- <tool_call> --> tool --> result turn --> speaker again
 *
 * Tools (announced by name in the system turn, as the base model was taught):
 *   calculator(expression)                exact, or refused (calculator.h)
 *   note_save(text), note_find(query)     notes.h
 *   search_docs(query)                    docs.h
 *
 * What a small model cannot be trusted with, this file does itself:
 *   - a call must be well formed, name a tool that was announced and have exactly its argument;
 *     anything else becomes a result that begins with "error:"
 *   - user text and results are plain text to the model: "<|im_end|>" in a document stays characters
 *   - when a search finds nothing, the answer is written here and the model is not asked
 *   - after an answer from documents, the passages that were given are named
 *   - names and numbers in an answer that occur in no result and not in the question are pointed out,
 *     and so are words in a call that nobody said
 *   - when the conversation outgrows the context, whole exchanges are dropped, oldest first
 *
 * Depends on: engine, calculator, notes, docs, speaker.  Threads: one thread at a time.
 */
#ifndef OMM_ASSISTANT_H
#define OMM_ASSISTANT_H

#include "omm/bytes.h"
#include "omm/docs.h"
#include "omm/err.h"
#include "omm/notes.h"
#include "omm/speaker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_ASSISTANT_USER_BYTES_MAX 8192u
#define OMM_ASSISTANT_RESULT_BYTES_MAX                                                             \
    1000u /* of several finds together; the first is given whole */

typedef enum omm_assistant_event_kind {
    OMM_ASSISTANT_THOUGHT, /* `text`: more of what the model thinks before it answers */
    OMM_ASSISTANT_TEXT,    /* `text`: more of the model's answer */
    OMM_ASSISTANT_CALL,    /* `tool` is called with `text` (its argument) */
    OMM_ASSISTANT_RESULT,  /* `text`: what `tool` said; `failed` for an error */
    OMM_ASSISTANT_SOURCE,  /* the answer was given with passage `number` of `file` at hand */
    OMM_ASSISTANT_NOTICE,  /* `text`: the program itself has to say something */
} omm_assistant_event_kind;

typedef struct omm_assistant_event {
    omm_assistant_event_kind kind;
    omm_bytes text;   /* may hold control characters: clean it before a terminal sees it */
    const char *tool; /* CALL, RESULT */
    const char *file; /* SOURCE */
    uint32_t number;  /* SOURCE */
    bool failed;      /* RESULT */
} omm_assistant_event;

/* Gets each event as it happens; all in it is borrowed for the call.  An error ends the turn. */
typedef omm_err (*omm_assistant_each)(void *ud, const omm_assistant_event *event);

/* Borrowed until close. */
typedef struct omm_assistant_options {
    omm_speaker speaker;
    const char *system;           /* system turn, to which the tools are added */
    omm_notes *notes;             /* NULL: no notes */
    omm_docs *docs;               /* NULL: no documents */
    uint64_t (*now_ms)(void *ud); /* for the date of a note; NULL: 0 */
    void *now_ud;
    uint32_t calls_max;    /* tool calls for one user turn, at least 1; default 4 */
    uint32_t passages_max; /* of one search; default 2 */
    uint32_t notes_max;    /* found notes shown to the model; default 3 */
    omm_assistant_each each;
    void *each_ud;
    /* What is said beside an answer that was cut at its most tokens, or where the context is full: what
     * the user can do about it; default "". */
    const char *at_length, *at_context;
} omm_assistant_options;

omm_assistant_options omm_assistant_options_default(void);

typedef struct omm_assistant omm_assistant;

/* Errors: NOMEM, TOO_BIG (the system turn alone does not fit), UNSUPPORTED (model without ChatML). */
OMM_CHECKED omm_err omm_assistant_open(omm_assistant **out, const omm_assistant_options *options);
void omm_assistant_close(omm_assistant *assistant); /* NULL is fine */

/* One turn of the user, up to and with the answer.
 * Errors: FORMAT (not plain UTF-8, empty), TOO_BIG (does not fit the context even alone): then
 * nothing has changed.  Others (of the speaker, of `each`, NOMEM) end the turn, and this exchange is
 * forgotten; notes that were saved stay. */
OMM_CHECKED omm_err omm_assistant_say(omm_assistant *assistant, omm_bytes text);

/* Forget the conversation; notes and documents stay. */
void omm_assistant_reset(omm_assistant *assistant);
/* Turns that the model will see, the system turn included (with one that announces tools as one). */
size_t omm_assistant_turns(const omm_assistant *assistant);

/* Append the turns, to go on from later:
 *
 *   "OMMTURN1" | u32 count | count times: u32 role (omm_role), u32 bytes, text       little-endian
 *
 * Errors: NOMEM, TOO_BIG (over out->bytes_max). */
OMM_CHECKED omm_err omm_assistant_save(omm_buf *out, const omm_assistant *assistant);
/* Begin where those turns end; what the assistant had before is forgotten.  Its tools act on the notes
 * and documents that it has now.
 * Errors: FORMAT (not such turns, or not whole exchanges), MISMATCH (another system turn: other words or
 * other tools), TOO_BIG, NOMEM; then nothing has changed. */
OMM_CHECKED omm_err omm_assistant_restore(omm_assistant *assistant, omm_bytes saved);

#endif
