/* tokens.h - POST /tokenize and /detokenize, as llama.cpp's server has them.
 *
 *   {"content": TEXT, "add_special": false, "parse_special": true}  -->  {"tokens": [5, 6]}
 *   {"tokens": [5, 6]}                                              -->  {"content": TEXT}
 *
 * Depends on: engine, fault.  Threads: no shared state.
 */
#ifndef SERVE_TOKENS_H
#define SERVE_TOKENS_H

#include "fault.h"

#include "omm/serve.h"

#define TOKENS_TEXT_MAX ((size_t)32 << 20) /* bytes of an answer */

/* The answer to `body`: the ids of a text (add_special: with the token that begins one, where the model's file asks for it;
 * parse_special: names of control tokens become those), without a line end behind.  False: *why says so; `out` may have a part of it. */
OMM_CHECKED bool tokens_of_text(omm_buf *out, fault *why, const omm_serve_options *o,
                                omm_bytes body);
/* The text of ids, control tokens by their names; bytes that are no character as U+FFFD. */
OMM_CHECKED bool tokens_to_text(omm_buf *out, fault *why, const omm_serve_options *o,
                                omm_bytes body);

#endif
