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

#define SYSTEM_OPENS "<|start_header_id|>system<|end_header_id|>\n\n"
#define CALL_OPENS "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \""
#define RESULT_OPENS "<|start_header_id|>ipython<|end_header_id|>\n\n"
#define END "<|eot_id|>"

static bool takes_one(jinja_cursor *c, const char *const forms[], size_t count) {
    const bool is = jinja_is(c->parts, c->at, JINJA_BLOCK) &&
                    jinja_fits_one(jinja_text(c->parts, c->at), forms, count, JINJA_NO_NAME);
    c->at += is;
    return is;
}

/* ---- the system turn --------------------------------------------------------------------------- */

static omm_bytes take_text(jinja_cursor *c) {
    const omm_bytes text = jinja_text(c->parts, c->at);
    if (!jinja_is(c->parts, c->at, JINJA_TEXT) || text.size > TEXT_MAX || chat_find(text, "<|"))
        return JINJA_NO_NAME;
    c->at++;
    return text;
}

/* Part `at` begins the turn. */
static bool opens_system(const jinja_parts *p, size_t at) {
    return jinja_is(p, at, JINJA_TEXT) && jinja_ends_with(jinja_text(p, at), SYSTEM_OPENS);
}

/* {%- if tools is not none %} ENVIRONMENT {%- endif %} */
static omm_bytes read_environment(const jinja_parts *p, size_t at) {
    static const char *const forms[] = {"if tools is not none",
                                        "if builtin_tools is defined or tools is not none"};
    jinja_cursor c = {p, at};
    if (!takes_one(&c, forms, 2)) return JINJA_NO_NAME;
    const omm_bytes text = take_text(&c);
    return jinja_takes(&c, JINJA_BLOCK, "endif") ? text : JINJA_NO_NAME;
}

static omm_bytes read_head(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at};
    if (!jinja_takes(&c, JINJA_BLOCK, "if tools is not none and not tools_in_user_message"))
        return JINJA_NO_NAME;
    const omm_bytes head = take_text(&c);
    const omm_bytes v = jinja_name_between(jinja_text(p, c.at), "for ", " in tools");
    const bool is = v.size > 0 && jinja_take(&c, JINJA_BLOCK, "for $ in tools", v) &&
                    jinja_take(&c, JINJA_OUTPUT, "$|tojson(indent=4)", v) &&
                    jinja_takes(&c, JINJA_TEXT, "\n\n") && jinja_takes(&c, JINJA_BLOCK, "endfor") &&
                    jinja_takes(&c, JINJA_BLOCK, "endif") &&
                    jinja_takes(&c, JINJA_OUTPUT, "system_message") &&
                    chat_find(head, "\"parameters\"");
    return is ? head : JINJA_NO_NAME;
}

/* Behind part `at`, which begins it: the text in front of tools and, up to the turn's end, where they are listed. */
static void read_system(found *f, const jinja_parts *p, size_t at) {
    int depth = 0;
    f->environment = read_environment(p, ++at);
    for (; at < p->count && f->head.size == 0; at++) {
        if (jinja_is(p, at, JINJA_TEXT) && chat_find(jinja_text(p, at), END)) return;
        if (depth == 0) f->head = read_head(p, at);
        depth += jinja_step(p, at);
    }
}

/* ---- calls and results --------------------------------------------------------------------------- */

/* What ends the turn; where built-in tools may be called they have an end of their own. */
static bool takes_end(jinja_cursor *c) {
    if (jinja_takes(c, JINJA_TEXT, "}" END)) return true;
    return jinja_takes(c, JINJA_TEXT, "}") && jinja_takes(c, JINJA_BLOCK, "endif") &&
           jinja_takes(c, JINJA_BLOCK, "if builtin_tools is defined") &&
           jinja_takes(c, JINJA_TEXT, "<|eom_id|>") && jinja_takes(c, JINJA_BLOCK, "else") &&
           jinja_takes(c, JINJA_TEXT, END) && jinja_takes(c, JINJA_BLOCK, "endif");
}

/* All of the branch at `at`: one call. */
static bool is_call(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at + 1};
    if (jinja_takes(&c, JINJA_BLOCK, "if not message.tool_calls|length==1") &&
        !(jinja_is(p, c.at++, JINJA_OUTPUT) && jinja_takes(&c, JINJA_BLOCK, "endif")))
        return false;
    if (!jinja_takes(&c, JINJA_BLOCK, "set tool_call=message.tool_calls[0].function")) return false;
    if (jinja_takes(&c, JINJA_BLOCK,
                    "if builtin_tools is defined and tool_call.name in builtin_tools")) {
        c.at = jinja_next_branch(p, c.at - 1);
        if (!jinja_takes(&c, JINJA_BLOCK, "else")) return false;
    }
    return jinja_takes(&c, JINJA_TEXT, CALL_OPENS) &&
           jinja_takes(&c, JINJA_OUTPUT, "tool_call.name") &&
           jinja_takes(&c, JINJA_TEXT, "\", \"parameters\": ") &&
           jinja_takes(&c, JINJA_OUTPUT, "tool_call.arguments|tojson") && takes_end(&c) &&
           c.at == jinja_next_branch(p, at);
}

/* All of the branch at `at`: a text is iterable, so it comes as a JSON string. */
static bool is_result(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at + 1};
    return jinja_takes(&c, JINJA_TEXT, RESULT_OPENS) &&
           jinja_takes(&c, JINJA_BLOCK,
                       "if message.content is mapping or message.content is iterable") &&
           jinja_takes(&c, JINJA_OUTPUT, "message.content|tojson") &&
           jinja_takes(&c, JINJA_BLOCK, "else") &&
           jinja_takes(&c, JINJA_OUTPUT, "message.content") &&
           jinja_takes(&c, JINJA_BLOCK, "endif") && jinja_takes(&c, JINJA_TEXT, END) &&
           c.at == jinja_next_branch(p, at);
}

/* Part `at` is the loop over all messages, and its first part an if: its branches. */
static void read_turns(found *f, const jinja_parts *p, size_t at) {
    static const char calls[] = "'tool_calls'in message";
    static const char *const results[] = {"message.role=='tool'or message.role=='ipython'",
                                          "message.role=='tool'"};
    if (!jinja_begins(p, at, "for message in messages")) return;
    for (at++; jinja_condition(p, at).size > 0; at = jinja_next_branch(p, at)) {
        const omm_bytes asks = jinja_condition(p, at);
        if (omm_bytes_equal(asks, omm_bytes_str(calls))) f->calls = is_call(p, at);
        if (JINJA_FITS_ONE(asks, results, JINJA_NO_NAME)) f->results = is_result(p, at);
    }
}

/* Under no other condition. */
static found read_all(const jinja_parts *p) {
    found f = {0};
    int depth = 0;
    for (size_t at = 0; at < p->count; at++) {
        if (depth == 0 && opens_system(p, at)) read_system(&f, p, at);
        if (depth == 0) read_turns(&f, p, at);
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
