/* chat_turns.h - a conversation as OpenAI's JSON has it, as turns: what is trained on and what is served read
 * alike.
 *
 *   {"role": "system" ("developer"), "user", "assistant" or "tool",
 *    "content": TEXT, or [{"type": "text", "text": TEXT}, ...], or null beside tool_calls,
 *    "tool_calls": [{"function": {"name": NAME, "arguments": OBJECT, or its text}}, ...],
 *    "weight": 0 or 1}
 *
 * What an assistant thought ("reasoning_content": TEXT) goes in front of what it said, as thinking.h has it, where that is
 * asked for; else it is left out.  An assistant's turn of weight 0 is context that nobody learns (OpenAI's and ShareGPT's files of
 * lessons), where weights are asked for; elsewhere it is not read.  Calls are written into the assistant's text, as chat.h has them.  Tools, [{"function": {"name", "parameters"}}] or
 * the functions themselves, are announced in the system turn, which is made where there is none, or in turns of their own where
 * the model's template has them so (chat.h: OMM_ROLE_TOOLS); a call's "id" and a result's "tool_call_id" are kept for models that have ids.
 *
 * Given back, an assistant's turn may be what nobody should learn: without content it says nothing, or its "refusal", which a part
 * of content may be, too; arguments that are no JSON, as those of a call that was cut, are written as they came, and none are {}.
 *
 * Depends on: chat, json.  Threads: no shared state.
 */
#ifndef OMM_CHAT_TURNS_H
#define OMM_CHAT_TURNS_H

#include "omm/chat.h"
#include "omm/thinking.h"

#define OMM_CHAT_TURNS_MAX 1024u
#define OMM_CHAT_TOOLS_MAX 128u /* announced in one conversation */

/* What a conversation was refused for. */
typedef enum omm_chat_bad {
    OMM_CHAT_BAD_NONE,
    OMM_CHAT_BAD_MESSAGES, /* not a list, empty, too many */
    OMM_CHAT_BAD_CONTENT,  /* role or content of a message */
    OMM_CHAT_BAD_TOOLS,    /* tools */
    OMM_CHAT_BAD_CALLS,    /* tool_calls of a message */
} omm_chat_bad;

typedef struct omm_chat_turns {
    omm_message *messages; /* (count) contents: in `texts`, or borrowed from the JSON */
    size_t count;
    bool with_thoughts; /* set it after init */
    bool with_weights;  /* the same */
    bool given_back;    /* the same: a client says again what a server has told it */
    const omm_tokenizer
        *tokenizer; /* the same: of the model, whose template may announce tools; NULL: none does */
    omm_buf texts;
    omm_chat_bad bad; /* after FORMAT */
    struct omm_chat_span *spans;
    size_t capacity; /* of messages and spans */
} omm_chat_turns;

/* Of entry `index` of tools, {"type": "function", "function": {...}} or the function itself; borrowed; NULL: there is none. */
const json_t *omm_chat_function_at(const json_t *tools, size_t index);

/* texts: at most bytes_max. */
void omm_chat_turns_init(omm_chat_turns *turns, size_t bytes_max);
void omm_chat_turns_fini(omm_chat_turns *turns);
/* Replaces what was there.  tools: NULL, or none: none.  The JSON must live as long as the turns.
 * Errors: FORMAT (turns->bad says of what; the sentence names the message or tool), NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_chat_turns_read(omm_chat_turns *turns, const json_t *messages,
                                        const json_t *tools);
/* Of one that was read: did it come with tool_calls? */
bool omm_chat_turns_calls(const omm_chat_turns *turns, size_t index);

#endif
