/* chat_llama.c - what the template of a Llama 3 says of tools (3.1 and later; see chat_announce.c).
 *
 *   SYSTEM TURN
 *   {%- if tools is not none %} {{- 'ENVIRONMENT' }} {%- endif %}
 *   dates, which are left out here as everywhere
 *   {%- if tools is not none and not tools_in_user_message %}
 *       {{- 'HEAD' }}
 *       {%- for t in tools %} {{- t | tojson(indent=4) }} {{- '\n\n' }} {%- endfor %}
 *   {%- endif %}
 *   {{- system_message }}
 *   ...
 *   a call:     {{- '{"name": "' + tool_call.name + '", "parameters": ' }} {{- tool_call.arguments | tojson }} {{- '}' }}
 *   a result:   {%- if message.content is mapping or message.content is iterable %} {{- message.content | tojson }} ...
 *
 * The template has the tools in the first user's turn unless it is asked for this way, in which they stay where a long
 * conversation drops no turn. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

enum { TEXT_MAX = 8192 }; /* bytes of each text that is taken */

/* Borrowed from the parts; empty: not there. */
typedef struct found {
    omm_bytes environment, head;
    bool calls, results;
} found;

static bool take(jinja_cursor *c, jinja_kind kind, const char *text) {
    return jinja_take(c, kind, text, JINJA_NO_NAME);
}

static omm_bytes take_text(jinja_cursor *c) {
    const omm_bytes text = jinja_text(c->parts, c->at);
    if (!jinja_is(c->parts, c->at, JINJA_TEXT) || text.size > TEXT_MAX || chat_find(text, "<|"))
        return JINJA_NO_NAME;
    c->at++;
    return text;
}

/* {%- if tools is not none %} ENVIRONMENT {%- endif %} */
static void read_environment(found *f, const jinja_parts *p, size_t at) {
    static const char *const forms[] = {"if tools is not none",
                                        "if builtin_tools is defined or tools is not none"};
    jinja_cursor c = {p, at + 1};
    if (!JINJA_FITS_ONE(jinja_text(p, at), forms, JINJA_NO_NAME)) return;
    const omm_bytes text = take_text(&c);
    if (take(&c, JINJA_BLOCK, "endif")) f->environment = text;
}

static void read_head(found *f, const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at};
    if (!take(&c, JINJA_BLOCK, "if tools is not none and not tools_in_user_message")) return;
    const omm_bytes head = take_text(&c);
    const omm_bytes v = jinja_name_between(jinja_text(p, c.at), "for ", " in tools");
    const bool is = v.size > 0 && jinja_take(&c, JINJA_BLOCK, "for $ in tools", v) &&
                    jinja_take(&c, JINJA_OUTPUT, "$|tojson(indent=4)", v) &&
                    take(&c, JINJA_TEXT, "\n\n") && take(&c, JINJA_BLOCK, "endfor") &&
                    take(&c, JINJA_BLOCK, "endif") && take(&c, JINJA_OUTPUT, "system_message") &&
                    chat_find(head, "\"parameters\"");
    if (is) f->head = head;
}

static bool is_call(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at};
    return jinja_is(p, at - 1, JINJA_TEXT) &&
           jinja_ends_with(jinja_text(p, at - 1), "{\"name\": \"") &&
           take(&c, JINJA_OUTPUT, "tool_call.name") &&
           take(&c, JINJA_TEXT, "\", \"parameters\": ") &&
           take(&c, JINJA_OUTPUT, "tool_call.arguments|tojson") && jinja_is(p, c.at, JINJA_TEXT) &&
           jinja_starts_with(jinja_text(p, c.at), "}");
}

/* A text is iterable: it comes as a JSON string. */
static bool is_result(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at};
    return jinja_is(p, at - 1, JINJA_TEXT) &&
           jinja_ends_with(jinja_text(p, at - 1), "ipython<|end_header_id|>\n\n") &&
           take(&c, JINJA_BLOCK, "if message.content is mapping or message.content is iterable") &&
           take(&c, JINJA_OUTPUT, "message.content|tojson") && take(&c, JINJA_BLOCK, "else") &&
           take(&c, JINJA_OUTPUT, "message.content") && take(&c, JINJA_BLOCK, "endif");
}

/* The system turn's texts under no other condition. */
static found read_all(const jinja_parts *p) {
    found f = {0};
    int depth = 0;
    for (size_t at = 0; at < p->count; at++) {
        if (depth == 0 && f.head.size == 0) read_environment(&f, p, at);
        if (depth == 0) read_head(&f, p, at);
        f.calls = f.calls || (at > 0 && is_call(p, at));
        f.results = f.results || (at > 0 && is_result(p, at));
        depth += jinja_step(p, at);
    }
    return f;
}

omm_err llama_recognise(chat_tools *out, const jinja_parts *parts) {
    const found f = read_all(parts);
    if (!f.calls) return OMM_OK;
    out->calls = OMM_CALLS_BARE;
    out->quoted = f.results;
    out->announces = out->lists = f.head.size > 0;
    omm_buf_init(&out->head, (size_t)2 * TEXT_MAX);
    OMM_TRY(omm_buf_append(&out->head, f.environment.data, f.environment.size));
    return omm_buf_append(&out->head, f.head.data, f.head.size);
}

omm_calls_form omm_chat_calls_of(const omm_tokenizer *tokenizer) {
    return tokenizer ? (omm_calls_form)tokenizer->tools.calls : OMM_CALLS_MARKED;
}
