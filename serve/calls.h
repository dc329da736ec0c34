/* calls.h - the calls of an answer as they are drawn, byte after byte, under a grammar that holds them to be calls
 * (omm_grammar_open_calls): what is known of each so far, so that it can be sent while it is written.
 *
 *   <tool_call> {"name": "NAME", "arguments": {...}} </tool_call>   and the next one
 *               {"name": "NAME", "parameters": {...}}   alone
 *         MARK [{"name": "NAME", "arguments": {...}}, and the next one]
 *                         ^^^^                 ^^^^^
 *         MARK NAME[ARGS]{...}   and the next one
 *
 * Depends on: engine.  Threads: no shared state.
 */
#ifndef SERVE_CALLS_H
#define SERVE_CALLS_H

#include "omm/chat.h"

/* Bytes of the text, from and to; 0: not so far. */
typedef struct drawn_call {
    size_t name, name_end;
    size_t arguments, arguments_end;
} drawn_call;

typedef struct drawn_calls {
    drawn_call list[OMM_CHAT_CALLS_MAX];
    size_t count;        /* that have begun */
    omm_calls_form form; /* of them all */
    bool listed, named;  /* that is: in a list; a name without quotes */
    bool typed;          /* "type" stands in front of the next name */
    omm_call_mark mark;  /* of the next one, behind a call */
    uint8_t depth, colons;
    bool in_string, escaped;
} drawn_calls;

/* The first mark has come, or the beginning of a bare call; those behind it are of the same form. */
void calls_begin(drawn_calls *c, omm_calls_form form);
/* The next byte, which is at `at` in the text. */
void calls_take(drawn_calls *c, uint8_t byte, size_t at);
/* Of those that have begun, how many have a name. */
size_t calls_named(const drawn_calls *c);
/* One has begun and has not ended. */
bool calls_is_cut(const drawn_calls *c);

#endif
