/* chat.h - conversations as token ids: ChatML, the way the base model was trained, and the tool calls
 * that come back.
 *
 *   <|im_start|>ROLE\nCONTENT<|im_end|>\n          one turn; no BOS
 *   <|im_start|>assistant\n                        generation prompt
 *   <tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>      inside an assistant turn
 *
 * The turn marks are written as ids, never as text that is encoded: content which spells
 * "<|im_end|>" becomes plain characters.  In user and tool turns "<tool_call>" is plain too; in
 * system and assistant turns it is the token the model knows.
 *
 * What is learned (mask 1): the content of assistant turns and the <|im_end|> that closes it.
 *
 * Depends on: err, bytes, json, tokenizer.  Threads: no shared state.
 */
#ifndef OMM_CHAT_H
#define OMM_CHAT_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/json.h"
#include "omm/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_CHAT_MESSAGES_MAX 4096u
#define OMM_CHAT_CALLS_MAX 8u          /* tool calls in one turn */
#define OMM_CHAT_CALL_BYTES_MAX 16384u /* JSON of one call */
#define OMM_CHAT_NAME_MAX 64u          /* bytes of a tool's name: [A-Za-z0-9_-] */

typedef enum omm_role {
    OMM_ROLE_SYSTEM,
    OMM_ROLE_USER,
    OMM_ROLE_ASSISTANT,
    OMM_ROLE_TOOL,
    OMM_ROLE_COUNT
} omm_role;

const char *omm_role_name(omm_role role);
/* Errors: FORMAT (names the four). */
OMM_CHECKED omm_err omm_role_parse(omm_role *out, const char *name);

typedef struct omm_message {
    omm_role role;
    omm_bytes content; /* UTF-8, borrowed */
} omm_message;

/* Token ids of a conversation, with what is to be learned. */
typedef struct omm_prompt {
    omm_tokens tokens;
    omm_buf mask; /* one byte per token: 1 = the loss counts the prediction of this token */
} omm_prompt;

void omm_prompt_init(omm_prompt *prompt, size_t tokens_max);
void omm_prompt_fini(omm_prompt *prompt);
void omm_prompt_clear(omm_prompt *prompt); /* memory kept */

/* Append one whole turn, or the generation prompt.  Errors: UNSUPPORTED (the vocabulary has no
 * <|im_start|> or <|im_end|>), NOMEM, TOO_BIG; then `prompt` is unchanged. */
OMM_CHECKED omm_err omm_chat_turn(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                                  const omm_message *message);
OMM_CHECKED omm_err omm_chat_generate(omm_prompt *prompt, const omm_tokenizer *tokenizer);
/* All turns, then the generation prompt if `generate`.  Errors: as above. */
OMM_CHECKED omm_err omm_chat_render(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                                    const omm_message *messages, size_t count, bool generate);

/* ---- Tools --------------------------------------------------------------------------------- */

/* A tool as the system turn announces it. */
typedef struct omm_chat_tool {
    const char *name;
    const char *arguments; /* "expression", "minutes, label" */
} omm_chat_tool;

typedef enum omm_chat_announce {
    OMM_CHAT_NAMES,      /* system + " Tools: calculator, note_save." */
    OMM_CHAT_SIGNATURES, /* system + " Tools: timer_set(minutes, label), list_add(list, item)." */
    OMM_CHAT_LINES,      /* system + "\nTools:\ncalculator(expression)\n..." */
} omm_chat_announce;

/* Append the system turn's content.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_chat_system(omm_buf *out, omm_bytes system, const omm_chat_tool *tools,
                                    size_t count, omm_chat_announce how);

typedef struct omm_tool_call {
    char name[OMM_CHAT_NAME_MAX + 1];
    json_t *arguments; /* an object, owned */
} omm_tool_call;

typedef struct omm_chat_reply {
    omm_bytes content; /* what stands outside of calls, trimmed; borrowed from the text */
    omm_tool_call calls[OMM_CHAT_CALLS_MAX];
    size_t call_count;
} omm_chat_reply;

/* Take an assistant turn apart.  A call is exactly {"name": string, "arguments": object}; text may
 * stand before the first call, only white space between and after.  Release with
 * omm_chat_reply_fini.  Errors: FORMAT (what is wrong, for the model or the user), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_chat_parse(omm_chat_reply *out, omm_bytes text);
void omm_chat_reply_fini(omm_chat_reply *reply);

/* Append a call as the model writes it: <tool_call>\n{...}\n</tool_call>, keys in the order of the
 * object, ", " and ": " between.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_chat_write_call(omm_buf *out, const char *name, const json_t *arguments);

#endif
