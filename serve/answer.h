/* answer.h - what is sent, as OpenAI's API has it: JSON, and events of a stream.
 *
 * Depends on: work.h's job.  Threads: a job belongs to one thread meanwhile.
 */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "work.h"

/* All append.  Errors: NOMEM, TOO_BIG, FORMAT (a text that is no UTF-8). */
OMM_CHECKED omm_err answer_fault(omm_buf *out, const fault *why);
/* The whole answer of a job whose texts have all ended. */
OMM_CHECKED omm_err answer_whole(omm_buf *out, const job *j, const omm_serve_options *o);
/* Events: the beginning of a text; what is new of it, with what ends it; usage, where it is wanted, and the end of the
 * stream; or an error, after which nothing comes. */
OMM_CHECKED omm_err answer_begin(omm_buf *out, const job *j, const choice *c,
                                 const omm_serve_options *o);
OMM_CHECKED omm_err answer_more(omm_buf *out, const job *j, choice *c, const omm_serve_options *o);
OMM_CHECKED omm_err answer_end(omm_buf *out, const job *j, const omm_serve_options *o);
OMM_CHECKED omm_err answer_broken(omm_buf *out, const fault *why);

/* The models: all, or `name` alone (NULL: all).  NOT_FOUND: there is none of that name. */
OMM_CHECKED omm_err answer_models(omm_buf *out, const omm_serve_options *o, const char *name,
                                  uint64_t created);

/* One token's entry of a list of log probabilities, in the form of a chat.  logits NULL: nothing foretold it. */
OMM_CHECKED omm_err answer_logprob(json_t **out, const request *r, const omm_serve_options *o,
                                   uint32_t id, const float *logits);

#endif
