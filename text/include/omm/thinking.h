/* thinking.h - models that think before they answer.
 *
 *   <think>\nTHOUGHT\n</think>\n\nANSWER
 *   <think>\nTHOUGHT\n</think>\n<answer>\nANSWER\n</answer>     (Hunyuan)
 *
 * Whether a model does is seen in its chat template, as is who opens the thought: the model itself (Qwen3), or the
 * prompt (QwQ, Qwen3 Thinking).  An answer is kept with its thought in front of it, opened by whom it may; a prompt
 * (chat.h) leaves out the thoughts of answers before the last question, as these templates do (SmolLM 3's does not).
 *
 * Depends on: bytes, tokenizer.  Threads: no shared state.
 */
#ifndef OMM_THINKING_H
#define OMM_THINKING_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum omm_thinking {
    OMM_THINKING_NONE,   /* the template knows no thoughts */
    OMM_THINKING_OWN,    /* the model opens its thought, or answers at once */
    OMM_THINKING_OPENED, /* the prompt opens it */
} omm_thinking;

omm_thinking omm_thinking_of(const omm_tokenizer *tokenizer);
/* What an answer's text begins with although the model does not write it: "<think>\n" where the prompt ends with it. */
omm_bytes omm_thinking_opening(const omm_tokenizer *tokenizer);
/* The model writes its answer, behind a thought or without one, between <answer> and </answer>. */
bool omm_thinking_wraps(const omm_tokenizer *tokenizer);

/* A text that is still being written, taken apart.  All are places in it. */
typedef struct omm_thought {
    size_t from, to; /* of the thought, as far as it is one for sure; equal: nothing */
    size_t answer;   /* where the answer begins; SIZE_MAX: it has not begun */
    size_t end; /* of the answer, as far as it is one for sure; means nothing before it has begun */
    size_t looked; /* where to go on looking */
    bool wraps;    /* its marks are looked for, */
    bool wrapped;  /* and the first one is there */
    enum {
        THOUGHT_NOT_BEGUN,
        THOUGHT_OPEN,
        THOUGHT_CLOSED,
        THOUGHT_UNWRAPPED, /* behind it, or there is none: a mark may stand in front of the answer */
        THOUGHT_WRAPPED,   /* behind that */
        THOUGHT_OVER
    } state;
} omm_thought;

/* is_thinking: of a model that thinks; else all of the text is its answer.  wraps: its answer may stand between marks. */
omm_thought omm_thought_init(bool is_thinking, bool wraps);
/* `text`: all of it so far, of which nothing before its end has changed; is_over: nothing follows.  White space around a
 * thought, and between it and the answer, belongs to neither.  A thought that nothing closed is no answer.  Of an answer that
 * begins with <answer> neither this mark nor a </answer> at its end are a part, nor white space between them and it. */
void omm_thought_look(omm_thought *thought, omm_bytes text, bool is_over);

/* Append a thought as it stands in front of an answer, without white space around it.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_thought_write(omm_buf *out, omm_bytes thought);

/* A whole text without its thoughts: what stands behind the last </think> and the line ends there; nothing, where a thought
 * that it begins with has no end. */
omm_bytes omm_thought_leave_out(omm_bytes text);

#endif
