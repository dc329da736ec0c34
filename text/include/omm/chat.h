/* chat.h - conversations as token ids, in the template that the model was trained with, and the tool
 * calls that come back.
 *
 *   chatml, -text      <|im_start|>ROLE\nCONTENT<|im_end|>\n
 *                      SmolLM 3: a first turn that says how it reasons, an empty thought where it does not (below)
 *   phi4               <|im_start|>ROLE<|im_sep|>CONTENT<|im_end|>
 *   llama3             BOS once; <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>
 *   gemma              BOS once; <start_of_turn>user|model\nCONTENT<end_of_turn>\n
 *   phi3, phi4-mini    <|ROLE|>\nCONTENT<|end|>\n, without the line ends
 *   zephyr             <|ROLE|>\nCONTENT EOS\n
 *   tulu               <|ROLE|>\nCONTENT\n, an answer <|assistant|>\nCONTENT EOS\n (OLMo 2)
 *   deepseek           BOS once, all that the system says; <|User|>CONTENT<|Assistant|>ANSWER EOS, with wide bars (R1's distillations)
 *   granite            <|start_of_role|>ROLE<|end_of_role|>CONTENT<|end_of_text|>\n
 *   llama2             BOS [INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nCONTENT [/INST] ANSWER EOS
 *   mistral-v1 -v3     BOS once; [INST] CONTENT [/INST] ANSWER EOS, spaces by version
 *   mistral-v7         the same with [SYSTEM_PROMPT] SYSTEM [/SYSTEM_PROMPT]
 *   exaone             [|ROLE|]\nCONTENT[|endofturn|]\n, an answer without a thought behind an empty one (EXAONE 4.0)
 *   ernie              <|begin_of_sentence|> once, no BOS; SYSTEM\n, User: CONTENT\n, Assistant: ANSWER<|end_of_sentence|> (ERNIE 4.5)
 *   hunyuan            BOS once, all that the system says and a mark; <|hy_User|>CONTENT<|hy_Assistant|>ANSWER EOS, with wide bars
 *   hunyuan-7b         BOS SYSTEM<|extra_4|>CONTENT<|extra_0|>ANSWER EOS, BOS in front of the user's later turns too
 *
 * The file's tokenizer.chat_template says which (omm_chat_format_of); it is recognised by its marks,
 * never run; a default system prompt of ChatML stands in front of conversations that begin without one.  Without one that is known, ChatML stands in (omm_chat_doubt), its marks as plain text where the
 * vocabulary lacks them.  BOS as the file says (add_bos_token) where nothing else is stated; of tulu also where the template has bos_token.  A system message goes
 * into the first user turn in gemma, llama2 and mistral-v1, into the last one in mistral-v3; a role
 * that a template does not have is written as the user's.  Phi-3.5 and Granite 4 have no turn of a system that says nothing.  llama2, llama3 and gemma trim content (of
 * white space as Python has it), but not the system's inside a user turn; mistral-v3 trims answers.
 *
 * SmolLM 3's template begins every conversation with a turn of the system: what it says of itself, how it reasons (/think,
 * /no_think), the system's first message or the template's own text for either way, and tools.  It does not think if that message
 * has /no_think or OMM_CHAT_AT_ONCE asks for it; then answers begin with an empty thought, those of the history too.  Thoughts
 * in its history stay, results of tools are the user's turns.  A prompt that goes on knows nothing of its beginning.
 *
 * EXAONE 4.0's answers begin with an empty thought where they have none, those of the history always, none of which keeps its
 * own.  Of Hunyuan's answers, all but the last message, what stands behind the last <answer> is left, up to </answer>.  ERNIE's
 * roles are text, so lines of a content that begin like one are written as those that spell a mark.
 *
 * Content never becomes a mark.  Marks are written as ids, content as text: "<|im_end|>" in it stays
 * plain characters.  Where a model has its marks only as text ([INST] of Llama 2), content that
 * spells one is encoded character by character: the same text in ids that a mark never has.  In user and
 * tool turns user-defined tokens ("<tool_call>") are plain too; in system and assistant turns they are
 * the tokens the model knows, and so are marks of its calls that are control tokens in the file.
 *
 * What is learned (mask 1): the content of assistant turns and the mark that closes it, but of those that are only given.
 *
 * Tool calls in an assistant turn, by the model's template (omm_chat_calls_of):
 *   marked   [text] <tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>, and more of them
 *   bare     {"name": "...", "parameters": {...}}, which is the whole turn (Llama 3), or that behind "type": "function"
 *   mistral  [TOOL_CALLS] [{"name": "...", "arguments": {...}, "id": "..."}, ...], without the space in Tekken's vocabularies
 *   mistral-args  [TOOL_CALLS]NAME[ARGS]{...}, and more of them; mistral-ids: [CALL_ID]ID in front of [ARGS]
 *   granite  <|tool_call|>[{"name": "...", "arguments": {...}}, ...]
 *   phi4     the same and <|/tool_call|>
 *   exaone   marked, without line ends inside: <tool_call>{"name": "...", "arguments": {...}}</tool_call>
 * What is written marked is a call in all of them.
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
#define OMM_CHAT_CALL_OPENS "<tool_call>"
#define OMM_CHAT_CALL_CLOSES "</tool_call>"
#define OMM_CHAT_BARE_OPENS "{\"name\":"
#define OMM_CHAT_CALL_ID_BYTES 9u /* of a call's id, where the model has some: letters and digits */

typedef enum omm_chat_format {
    OMM_CHAT_CHATML,
    OMM_CHAT_PHI4,
    OMM_CHAT_LLAMA3,
    OMM_CHAT_GEMMA,
    OMM_CHAT_PHI3,
    OMM_CHAT_PHI4_MINI,
    OMM_CHAT_ZEPHYR,
    OMM_CHAT_LLAMA2,
    OMM_CHAT_MISTRAL_V1,
    OMM_CHAT_MISTRAL_V3,
    OMM_CHAT_MISTRAL_V3_TEKKEN,
    OMM_CHAT_MISTRAL_V7,
    OMM_CHAT_MISTRAL_V7_TEKKEN,
    OMM_CHAT_TULU,
    OMM_CHAT_GRANITE,
    OMM_CHAT_DEEPSEEK,
    OMM_CHAT_EXAONE,
    OMM_CHAT_ERNIE,
    OMM_CHAT_HUNYUAN,
    OMM_CHAT_HUNYUAN_7B,
    OMM_CHAT_CHATML_TEXT, /* stands in for a template that is not known, in a vocabulary without its marks */
    OMM_CHAT_FORMAT_COUNT
} omm_chat_format;

const char *omm_chat_format_name(omm_chat_format format);
omm_chat_format omm_chat_format_of(const omm_tokenizer *tokenizer);
/* True when the file names no template that we know and ChatML stands in; `out` then says so in a
 * sentence that names what was found and whether the marks are plain text, in printable ASCII. */
enum { OMM_CHAT_DOUBT_MAX = 512 };
bool omm_chat_doubt(char out[OMM_CHAT_DOUBT_MAX], const omm_tokenizer *tokenizer);
/* Texts that end an answer because the model has this mark only as text; for omm_stops. */
const char *const *omm_chat_stops(size_t *count, const omm_tokenizer *tokenizer);

/* How a model writes calls of tools. */
typedef enum omm_calls_form {
    OMM_CALLS_MARKED,
    OMM_CALLS_BARE,
    OMM_CALLS_MISTRAL,
    OMM_CALLS_MISTRAL_TEKKEN,
    OMM_CALLS_MISTRAL_ARGS,
    OMM_CALLS_MISTRAL_IDS,
    OMM_CALLS_GRANITE,
    OMM_CALLS_PHI4,
    OMM_CALLS_EXAONE,
    OMM_CALLS_FORM_COUNT
} omm_calls_form;
const char *omm_calls_form_name(omm_calls_form form);  /* "marked" */
const char *omm_calls_form_shown(omm_calls_form form); /* a call, for people to read */
/* NULL, and where the template does not say: MARKED. */
omm_calls_form omm_chat_calls_of(const omm_tokenizer *tokenizer);

typedef enum omm_role {
    OMM_ROLE_SYSTEM,
    OMM_ROLE_USER,
    OMM_ROLE_ASSISTANT,
    OMM_ROLE_TOOL,
    OMM_ROLE_COUNT,                  /* of those that people name */
    OMM_ROLE_TOOLS = OMM_ROLE_COUNT, /* what announces tools, where that is a turn of its own */
} omm_role;

const char *omm_role_name(omm_role role);
/* Errors: FORMAT (names the four). */
OMM_CHECKED omm_err omm_role_parse(omm_role *out, const char *name);

typedef struct omm_message {
    omm_role role;
    omm_bytes content; /* UTF-8, borrowed */
    omm_bytes call_id; /* of a tool's result, where it has one; borrowed */
    bool is_given;     /* of an assistant's turn: context alone, not to be learned */
} omm_message;

/* Append one more text of a message that has several, of which out has what stands behind `from`, as the model's template joins
 * them (NULL, most: one behind the other).  Errors: of omm_buf_append. */
OMM_CHECKED omm_err omm_chat_join(omm_buf *out, size_t from, const omm_tokenizer *tokenizer,
                                  omm_role role, omm_bytes part);

/* Token ids of a conversation, with what is to be learned. */
typedef struct omm_prompt {
    omm_tokens tokens;
    omm_buf mask; /* one byte per token: 1 = the loss counts the prediction of this token */
} omm_prompt;

void omm_prompt_init(omm_prompt *prompt, size_t tokens_max);
void omm_prompt_fini(omm_prompt *prompt);
void omm_prompt_clear(omm_prompt *prompt); /* memory kept */

/* What stands behind the turns. */
typedef enum omm_chat_ending {
    OMM_CHAT_WHOLE,   /* nothing: they are all that there is, for training */
    OMM_CHAT_ANSWER,  /* the beginning of an answer */
    OMM_CHAT_AT_ONCE, /* the same, of a model that thinks (thinking.h) with an empty thought */
} omm_chat_ending;

/* Append all turns, then what `ending` says.  An empty `prompt` begins a conversation; one with tokens goes on with it.
 * In front of an answer the thoughts of answers before the last user's turn are left out (not SmolLM 3's); whole, they stay.
 * Errors: UNSUPPORTED (the vocabulary lacks a mark, by name; or content that the model cannot tell from a
 * mark), FORMAT (the result of a tool is not UTF-8, which has to be quoted), NOMEM, TOO_BIG; then `prompt` is unchanged. */
OMM_CHECKED omm_err omm_chat_render(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                                    const omm_message *messages, size_t count,
                                    omm_chat_ending ending);

/* The system's text of conversations that begin with another turn and have no tools, as the
 * template has it; empty: none.  Rendered by omm_chat_render where the prompt is empty. */
omm_bytes omm_chat_default_system(const omm_tokenizer *tokenizer);

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

/* Does the model's own template announce tools in a way that is read, and has the model room for that (2048 positions)?  Then
 * they are announced so. */
bool omm_chat_announces(const omm_tokenizer *tokenizer);
/* Where: in the system turn, or in a turn of its own (OMM_ROLE_TOOLS): in front of all others, behind the system's (SmolLM 3: it
 * becomes part of that), or in front of the last one of the user, and of what says the same as that. */
typedef enum omm_chat_place {
    OMM_CHAT_IN_SYSTEM,
    OMM_CHAT_AT_FRONT,
    OMM_CHAT_BEHIND_SYSTEM,
    OMM_CHAT_AT_LAST_USER,
} omm_chat_place;
omm_chat_place omm_chat_announces_at(const omm_tokenizer *tokenizer);
/* What the system's turn says of a model that announces elsewhere, where the conversation has none; empty: there is none. */
omm_bytes omm_chat_announcing_system(const omm_tokenizer *tokenizer);
/* The same as the template has it, of a model that announces: the system's text, the tools as JSON, how to call them; of
 * Llama 3 in another order.  Elsewhere than in the system turn: the tools alone, without `system`.
 * system: without data (not: without bytes) where the conversation has none; what the template has
 * instead stands there then.
 * tools: [{"type": "function", "function": {...}}, or the function itself, ...].  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_chat_announce_tools(omm_buf *out, const omm_tokenizer *tokenizer,
                                            omm_bytes system, const json_t *tools);

/* Is there a tool of this name, or (not whole) of one that begins so? */
typedef bool (*omm_chat_named)(const void *ud, omm_bytes name, bool whole);

/* Is a text that goes on a bare call?  It is one with the quote behind the name: {"name": "NAME"  spelled so, or
 * {"type": "function", "name": "NAME"  or without spaces, behind white space (ASCII's); *at: bytes of that.  named NULL: any name
 * that a tool may have. */
typedef enum omm_bare { OMM_BARE_NOT, OMM_BARE_PERHAPS, OMM_BARE_CALL } omm_bare;
#define OMM_CHAT_BARE_MAX                                                                          \
    (sizeof "{\"type\": \"function\", \"name\":" + OMM_CHAT_NAME_MAX + 2u) /* bytes that tell */
omm_bare omm_chat_bare(size_t *at, omm_bytes text, omm_chat_named named, const void *ud);

typedef struct omm_tool_call {
    char name[OMM_CHAT_NAME_MAX + 1];
    json_t *arguments; /* an object, owned */
} omm_tool_call;

typedef struct omm_chat_reply {
    omm_bytes content; /* what stands outside of calls, trimmed; borrowed from the text */
    omm_tool_call calls[OMM_CHAT_CALLS_MAX];
    size_t call_count;
} omm_chat_reply;

/* Take an assistant turn apart.  A call is exactly {"name": string, "arguments": object}; of a list it may have an "id".
 * MARKED: text may stand before the first call, only white space between and after.
 * BARE: a turn that begins as omm_chat_bare has it is calls and nothing else, with "parameters", white space and ; between
 * them.  Others: text may stand before the first mark, white space and the end behind calls.
 * MARKED calls are read in all of them: a model may have been trained to them.  The first mark decides.
 * Release with omm_chat_reply_fini.  Errors: FORMAT (what is wrong, for the model or the user), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_chat_parse(omm_chat_reply *out, omm_bytes text, omm_calls_form form,
                                   omm_chat_named named, const void *ud);
void omm_chat_reply_fini(omm_chat_reply *reply);

/* Append a call as the model writes it, keys in the order of the object, ", " and ": " between.  Errors: NOMEM, TOO_BIG,
 * FORMAT (a name that is none, where no quotes stand around it). */
OMM_CHECKED omm_err omm_chat_write_call(omm_buf *out, omm_calls_form form, const char *name,
                                        json_t *arguments);
/* The same of several in one turn, one after the other: its number in them, and how many there are.
 * says: text of the turn stands in front.  id: empty, or what calls are known by; written where the model has ids, as
 * OMM_CHAT_CALL_ID_BYTES that are made of it.  spelled: written in place of `arguments`, as it is, if those are NULL. */
typedef struct omm_written_call {
    const char *name;
    json_t *arguments;
    omm_bytes spelled;
    omm_bytes id;
    size_t index, count;
    bool says;
} omm_written_call;
OMM_CHECKED omm_err omm_chat_write_nth(omm_buf *out, omm_calls_form form,
                                       const omm_written_call *call);
/* Does a turn with calls say nothing else?  What it says is left out then. */
bool omm_chat_calls_alone(omm_calls_form form);
bool omm_chat_calls_listed(omm_calls_form form); /* one JSON list has them all */
bool omm_chat_calls_named(
    omm_calls_form form); /* the name stands in front of the JSON, without quotes */
/* Append what every call begins with, up to the name (NULL), or those of this name up to the arguments.  Errors: as that. */
OMM_CHECKED omm_err omm_chat_begin_call(omm_buf *out, omm_calls_form form, const char *name);
/* Append the ids of what an answer begins with, behind a prompt: omm_chat_begin_call's text.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_chat_go_on(omm_tokens *out, const omm_tokenizer *tokenizer, omm_bytes text);

/* ---- Marks with which calls begin --------------------------------------------------------- */

/* What has come of one: the form's own, or OMM_CHAT_CALL_OPENS. */
typedef struct omm_call_mark {
    uint8_t own; /* 1: the form's */
    uint8_t at;  /* bytes of it */
} omm_call_mark;
/* One more byte.  True: with it the mark is whole; follow the next one from {0}. */
bool omm_call_mark_follow(omm_call_mark *mark, omm_calls_form form, uint8_t byte);
/* Bytes of it; 0: the form has none of its own. */
size_t omm_call_mark_bytes(omm_calls_form form, bool own);
/* Bytes at the end of a text that may become one. */
size_t omm_chat_mark_tail(omm_bytes text, omm_calls_form form);
/* Bytes before the first mark of a text, or (*sure false) before what may become one at its end. */
size_t omm_chat_before_calls(bool *sure, omm_bytes text, omm_calls_form form);

#endif
