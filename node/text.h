/* text.h - private to node: plain text checked and folded, and words for a full-text query.
 *
 * Depends on: err, bytes.  Threads: no shared state.
 */
#ifndef OMM_NODE_TEXT_H
#define OMM_NODE_TEXT_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/plain_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_QUERY_BYTES_MAX 1000u
#define TEXT_TERMS_MAX 16u

/* UTF-8 without control characters; tab, line feed and carriage return are allowed. */
bool text_is_plain(omm_bytes text);
/* Append `text` with runs of white space as one space, none at the ends. */
OMM_CHECKED omm_err text_fold(omm_buf *out, omm_bytes text);

/* Step to the next word: letters, digits and everything beyond ASCII that is no sign.  Bytes that are
 * not UTF-8 separate words.  False at the end. */
bool text_next_word(omm_bytes *word, omm_bytes *rest);
/* "the", "what" and the like. */
bool text_is_light(omm_bytes word);

/* The words of a query: letters, digits and everything beyond ASCII; lower case is up to the index. */
typedef struct text_terms {
    omm_bytes terms[TEXT_TERMS_MAX]; /* borrowed from the text; each once */
    size_t count;
} text_terms;

/* Words such as "the" and "what" are left out, unless there is no other.
 * Errors: FORMAT (no word, or not plain), TOO_BIG. */
OMM_CHECKED omm_err text_take_terms(text_terms *out, omm_bytes query);
/* Append an FTS5 expression in which every term is quoted: all of them, or with `miss_one` (for
 * three or more) any selection that leaves out one.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err text_put_match(omm_buf *out, const text_terms *terms, bool miss_one);

#endif
