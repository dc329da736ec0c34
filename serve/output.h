/* output.h - one text as it comes, token by token: whole characters, up to what ends it, a thought in front apart, tool calls
 * kept together.
 *
 * Depends on: engine.  Threads: an output belongs to one thread at a time.
 */
#ifndef SERVE_OUTPUT_H
#define SERVE_OUTPUT_H

#include "calls.h"
#include "request.h"

#include "omm/thinking.h"

typedef enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CALLS } finish;
const char *finish_name(finish f); /* "stop", "length", "tool_calls" */

typedef struct output {
    const omm_tokenizer *tokenizer;
    omm_detok detok;
    omm_stops stops;
    omm_stops own;      /* of them, those of the template: inside a call no others end a text */
    omm_call_mark mark; /* of the first call, as far as it has come */
    bool in_call;       /* behind it, or behind the name of a bare one */
    size_t call_at;     /* where it begins */
    bool leads;         /* a bare call may begin */
    uint8_t bare[OMM_CHAT_BARE_MAX]; /* (bare_size) what may be one, as far as it has come */
    size_t bare_size, bare_at;       /* where it begins */
    const omm_grammar *grammar;
    drawn_calls calls;
    size_t calls_sent, arguments_sent; /* to who reads a stream: whole ones; of the next one */
    bool call_told;                    /* the next one's name has been sent */
    omm_buf fresh;                     /* characters on their way through stops */
    omm_buf
        whole; /* so far; begins with what the prompt has begun: a call that was asked for, or a thought */
    size_t begun; /* of it, that */
    omm_thought thought;
    size_t sent; /* of it, to who reads a stream */
    size_t thought_sent;
    bool holds_calls;    /* what may be a call is not sent as text */
    bool has_format;     /* a text is one value or calls, as its first bytes say: */
    size_t format_bytes; /* so many, without white space in front */
    uint32_t tokens, tokens_max;
    uint32_t thought_tokens;  /* of them */
    size_t bytes, characters; /* that tokens have come to, those held back among them */
    finish finish;
} output;

/* Borrows the request.  tokens_max: what the context has room for, or less.  Errors: NOMEM, USAGE (stops). */
OMM_CHECKED omm_err output_init(output *t, const request *r, const omm_tokenizer *tokenizer,
                                uint32_t tokens_max);
void output_fini(output *t);
/* One more id; t->finish says whether it was the last one.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err output_push(output *t, uint32_t id);
/* What may be sent now and has not been; counts as sent.  Of the thought all comes before anything of the rest. */
omm_bytes output_next_thought(output *t);
omm_bytes output_next(output *t);
/* Bytes of what tokens have come to that are in the text for good. */
size_t output_settled(const output *t);
/* All that is thought, and all that is content, of a text that has ended. */
omm_bytes output_thought(const output *t);
omm_bytes output_content(const output *t);
/* Calls of which there is a name; the last one may be cut, or still go on. */
size_t output_calls(const output *t);
omm_bytes output_call_name(const output *t, size_t i);
omm_bytes output_call_arguments(const output *t, size_t i); /* so far, as they were drawn */
/* What may be sent of calls now and has not been: of call *i, its name where it has not been told (else empty), and what has
 * come of its arguments; counts as sent.  False: nothing. */
bool output_next_call(output *t, size_t *i, omm_bytes *name, omm_bytes *arguments);
/* Of a token with these bytes of what tokens have come to: is it neither of the thought nor of the marks of an answer? */
bool output_is_content(const output *t, size_t begin, size_t end);

#endif
