/* checks.h - private to node: words of a text that stand in no turn of the conversation.
 *
 * Depends on: engine (chat), text.  Threads: no shared state.
 */
#ifndef OMM_NODE_CHECKS_H
#define OMM_NODE_CHECKS_H

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Does this word stand in the text, in any case of its letters? */
bool checks_has_word(omm_bytes text, const char *word);

typedef enum checks_words {
    CHECKS_NUMBERS, /* words that begin with a digit */
    CHECKS_NAMES,   /* those, and capitalised words inside a sentence */
    CHECKS_ALL,     /* every word but "the" and the like */
} checks_words;

/* Append the unsaid words of `text`, quoted, with commas, each once; nothing if all were said.
 * With `by_assistant` the assistant's own turns count as said, else only the others.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err checks_put_unsaid(omm_buf *out, omm_bytes text, checks_words which,
                                      const omm_message *turns, size_t count, bool by_assistant);

#endif
