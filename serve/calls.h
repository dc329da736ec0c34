/* calls.h - the calls of an answer as they are drawn, byte after byte, under a grammar that holds them to be calls
 * (omm_grammar_open_calls): what is known of each so far, so that it can be sent while it is written.
 *
 *   <tool_call> {"name": "NAME", "arguments": {...}} </tool_call>   and the next one
 *               {"name": "NAME", "parameters": {...}}   alone
 *                         ^^^^                 ^^^^^
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
    size_t count; /* that have begun */
    uint8_t mark; /* bytes of the one that begins a call, behind one */
    uint8_t depth, colons;
    bool in_string, escaped;
} drawn_calls;

/* Bytes of the mark that begins a call behind one more byte, where there were `at`. */
uint8_t calls_follow(uint8_t at, uint8_t byte);
/* All of it, after which a call has begun? */
bool calls_is_mark(uint8_t at);

/* The mark has come. */
void calls_begin(drawn_calls *c);
/* The next byte, which is at `at` in the text. */
void calls_take(drawn_calls *c, uint8_t byte, size_t at);
/* Of those that have begun, how many have a name. */
size_t calls_named(const drawn_calls *c);
/* One has begun and has not ended. */
bool calls_is_cut(const drawn_calls *c);

#endif
