/* request.h - what a client asks for, from the body of a POST: checked, with its prompts as token ids.
 *
 * Every member is known or refused by name, for what is left out in silence changes a text in silence.  Those that concern
 * others than the text, or say what holds here anyway, are known and do nothing (neutral.h).
 *
 * Depends on: engine.  Threads: no shared state.
 */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "fault.h"

#include "omm/chat_turns.h"
#include "omm/grammar.h"
#include "omm/serve.h"
#include "omm/stops.h"

#define REQUEST_BYTES_MAX ((size_t)4 << 20) /* whatever the context is */
#define REQUEST_TEXTS_MAX 64u               /* n times the prompts */
#define REQUEST_STOPS_MAX 16u
#define REQUEST_TOP_LOGPROBS_MAX 20u
#define REQUEST_LOGPROBS_MAX (1u << 16)      /* of a whole answer: about 1 KiB each */
#define REQUEST_SEED_MAX ((uint64_t)1 << 53) /* what JSON's readers have exactly */

typedef struct request {
    bool is_chat, stream, include_usage, echo;
    bool logprobs; /* of the drawn tokens, and of so many of the likeliest beside each */
    uint32_t top_logprobs;
    char model[OMM_ADAPTERS_MAX *
               (OMM_SERVE_NAME_MAX + 1)]; /* as it was asked for, or the base's name */
    const omm_adapter *adapters[OMM_ADAPTERS_MAX];
    size_t adapter_count;
    omm_sampler sampler; /* its rng: of the first text; others take their number as lane */
    omm_bias *biases;    /* the sampler's (logit_bias), or NULL */
    uint64_t seed;
    uint32_t tokens_max; /* 0: as many as the context has room for */
    bool draws_none;     /* the prompt alone, echoed (max_tokens 0); tokens_max is 1 then */
    uint32_t n;          /* texts of each prompt */
    size_t prompt_count;
    omm_tokens prompts[REQUEST_TEXTS_MAX];
    omm_buf echoes[REQUEST_TEXTS_MAX]; /* echo: text of each prompt */
    omm_buf stop_bytes;                /* of all, one after the other */
    omm_bytes stops[REQUEST_STOPS_MAX];
    size_t stop_count;
    omm_grammar *
        grammar; /* what every text has to be (response_format), or its calls (tools); NULL: any text */
    bool has_tools;
    bool has_format;    /* beside them: a text without calls is JSON */
    uint32_t calls_max; /* in one text */
    bool at_once;       /* a model that thinks is asked not to */
    bool thinks;        /* texts may begin with a thought */
    bool wraps;         /* what they answer may stand between marks */
    omm_bytes opened;   /* of it, what the prompt ends with */
    omm_buf
        begun; /* a call that the answer has to begin with (tool_choice); part of the prompt's ids */
} request;

/* Large: not for a stack.  Release with request_fini, also after an error.  `draw` is a seed for a request without one. */
OMM_CHECKED bool request_read(request *out, fault *why, const omm_serve_options *o, bool is_chat,
                              omm_bytes body, uint64_t draw);
void request_fini(request *r);
/* Of a body: what a context of so many positions can have use for, some tokens of it being long or escaped.  Read, it
 * takes up to 20 times as much for a moment. */
size_t request_bytes_max(const omm_serve_options *o);
/* Tokens that each text of a prompt may have: those asked for, as far as the context has room.  The last one needs no
 * position. */
uint32_t request_room(const request *r, const omm_serve_options *o, size_t prompt);

#endif
