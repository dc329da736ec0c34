/* calls.c - see calls.h. */
#include "calls.h"

/* The next one, as far as there may be one. */
static void begin_next(drawn_calls *c) {
    OMM_ASSERT(c->count < OMM_CHAT_CALLS_MAX);
    c->count++;
    c->mark = (omm_call_mark){0, 0};
    c->colons = 0;
    c->typed = false;
}

void calls_begin(drawn_calls *c, omm_calls_form form) {
    c->form = form;
    c->named = omm_chat_calls_named(form);
    c->listed = omm_chat_calls_listed(form);
    c->depth = 0;
    begin_next(c);
}

/* Brackets around what a call has, and around its arguments. */
static uint8_t own_depth(const drawn_calls *c) {
    return c->listed ? 2 : 1;
}

static uint8_t arguments_depth(const drawn_calls *c) {
    return c->named ? 1 : (uint8_t)(own_depth(c) + 1);
}

/* A quote, of a name or a text. */
static void take_quote(drawn_calls *c, drawn_call *call, size_t at) {
    const bool is_name = !c->named && c->colons == (c->typed ? 2 : 1) && !call->name_end;
    if (is_name && c->in_string)
        call->name_end = at;
    else if (is_name)
        call->name = at + 1;
    c->in_string = !c->in_string;
}

static void open_bracket(drawn_calls *c, size_t at) {
    c->depth++;
    if (c->listed && c->depth == own_depth(c) && c->list[c->count - 1].arguments_end) begin_next(c);
    if (c->depth == arguments_depth(c)) c->list[c->count - 1].arguments = at;
}

static void close_bracket(drawn_calls *c, drawn_call *call, size_t at) {
    if (c->depth == arguments_depth(c)) call->arguments_end = at + 1;
    c->depth--;
}

/* Up to the arguments of a call whose name has no quotes. */
static void take_head(drawn_calls *c, drawn_call *call, uint8_t byte, size_t at) {
    if (!call->name) call->name = at;
    if (!call->name_end && (byte == '[' || byte == '{')) call->name_end = at;
    if (byte == '{') open_bracket(c, at);
}

/* Behind a call: the mark of the next one. */
static void take_between(drawn_calls *c, uint8_t byte) {
    if (!c->listed && omm_call_mark_follow(&c->mark, c->form, byte)) begin_next(c);
}

static void take_outside(drawn_calls *c, drawn_call *call, uint8_t byte, size_t at) {
    if (byte == '"')
        take_quote(c, call, at);
    else if (byte == '{' || byte == '[')
        open_bracket(c, at);
    else if (byte == '}' || byte == ']')
        close_bracket(c, call, at);
    else if (c->depth == own_depth(c) && byte == ':')
        c->colons++;
}

void calls_take(drawn_calls *c, uint8_t byte, size_t at) {
    drawn_call *call = &c->list[c->count - 1];
    if (c->in_string && (c->escaped || byte == '\\')) {
        c->escaped = !c->escaped;
        return;
    }
    if (c->in_string && byte != '"')
        c->typed =
            c->typed || (c->colons == 0 && byte == 't'); /* no name that comes first has one */
    else if (c->depth == 0 && call->arguments_end)
        take_between(c, byte);
    else if (c->named && !call->arguments)
        take_head(c, call, byte, at);
    else
        take_outside(c, call, byte, at);
}

size_t calls_named(const drawn_calls *c) {
    return c->count > 0 && !c->list[c->count - 1].name_end ? c->count - 1 : c->count;
}

bool calls_is_cut(const drawn_calls *c) {
    return c->count > 0 && (c->depth > 0 || !c->list[c->count - 1].arguments_end);
}
