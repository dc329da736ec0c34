/* calls.c - see calls.h. */
#include "calls.h"

static const char s_mark[] = OMM_CHAT_CALL_OPENS;

uint8_t calls_follow(uint8_t at, uint8_t byte) {
    if (byte == (uint8_t)s_mark[at]) return (uint8_t)(at + 1);
    return byte == (uint8_t)s_mark[0];
}

bool calls_is_mark(uint8_t at) {
    return at == sizeof s_mark - 1;
}

void calls_begin(drawn_calls *c) {
    OMM_ASSERT(c->count < OMM_CHAT_CALLS_MAX);
    c->count++;
    c->mark = c->depth = c->colons = 0;
}

/* A quote, of a name or a text. */
static void take_quote(drawn_calls *c, drawn_call *call, size_t at) {
    const bool is_name = c->colons == 1 && !call->name_end;
    if (is_name && c->in_string)
        call->name_end = at;
    else if (is_name)
        call->name = at + 1;
    c->in_string = !c->in_string;
}

static void open_bracket(drawn_calls *c, drawn_call *call, size_t at) {
    c->depth++;
    if (c->depth == 2) call->arguments = at;
}

static void close_bracket(drawn_calls *c, drawn_call *call, size_t at) {
    c->depth--;
    if (c->depth == 1) call->arguments_end = at + 1;
}

/* Behind a call: the mark of the next one. */
static void take_between(drawn_calls *c, uint8_t byte) {
    c->mark = calls_follow(c->mark, byte);
    if (calls_is_mark(c->mark)) calls_begin(c);
}

void calls_take(drawn_calls *c, uint8_t byte, size_t at) {
    drawn_call *call = &c->list[c->count - 1];
    if (c->in_string && (c->escaped || byte == '\\')) {
        c->escaped = !c->escaped;
        return;
    }
    if (byte == '"')
        take_quote(c, call, at);
    else if (c->in_string)
        return;
    else if (byte == '{' || byte == '[')
        open_bracket(c, call, at);
    else if (byte == '}' || byte == ']')
        close_bracket(c, call, at);
    else if (c->depth == 0)
        take_between(c, byte);
    else if (c->depth == 1 && byte == ':')
        c->colons++;
}

size_t calls_named(const drawn_calls *c) {
    return c->count > 0 && !c->list[c->count - 1].name_end ? c->count - 1 : c->count;
}

bool calls_is_cut(const drawn_calls *c) {
    return c->count > 0 && (c->depth > 0 || !c->list[c->count - 1].arguments_end);
}
