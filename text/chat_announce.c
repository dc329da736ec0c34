/* chat_announce.c - what a model's own template says to it: its default system prompt, tools, their
 * results.
 *
 *   {%- if tools %}
 *       {{- '<|im_start|>system\n' }}
 *       {%- if messages[0].role == 'system' %} {{- messages[0].content }}
 *       {%- else %} {{- 'INSTEAD' }} {%- endif %}
 *       {{- '\n\nHEAD <tools>' }}
 *       {%- for tool in tools %} {{- '\n' }} {{- tool | tojson }} {%- endfor %}
 *       {{- '\n</tools> TAIL<|im_end|>\n' }}
 *   {%- else %}
 *       {%- if messages[0].role == 'system' %} ...
 *       {%- else %} {{- '<|im_start|>system\nDEFAULT<|im_end|>\n' }} {%- endif %}
 *   {%- endif %}
 *
 * Jinja is not run.  Its parts (jinja_parts.h) are compared with the shapes that ChatML models are
 * published with, condition by condition, and what differs anywhere is not taken: a text that is
 * nearly what the model was taught is worse than none. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

#define OPENS "<tools>"
#define CLOSES "</tools>"
#define SYSTEM_TURN "<|im_start|>system\n"
#define TURN_END "<|im_end|>\n"
#define IS_SYSTEM "messages[0].role=='system'"
#define IS_NOT_SYSTEM "messages[0].role!='system'"

enum {
    TEXT_MAX = 8192,      /* bytes of each text that is taken */
    CONTEXT_LEAST = 2048, /* positions of a model in which a few tools have room so */
};

/* ---- parts ----------------------------------------------------------------------------------- */

static bool is_text(omm_bytes text, const char *wanted) {
    return omm_bytes_equal(text, omm_bytes_str(wanted));
}

/* A text; empty where there is none, or one that is too large. */
static omm_bytes take_text(jinja_cursor *c) {
    const bool is =
        jinja_is(c->parts, c->at, JINJA_TEXT) && jinja_text(c->parts, c->at).size <= TEXT_MAX;
    c->at += is;
    return is ? jinja_text(c->parts, c->at - 1) : omm_bytes_str("");
}

/* ---- tools announced ------------------------------------------------------------------------- */

/* Borrowed from the parts. */
typedef struct found {
    omm_bytes system;              /* DEFAULT, of conversations without tools */
    omm_bytes instead, head, tail; /* no head: tools are not announced */
    bool apart, before, empty_too; /* see chat_tools */
} found;

/* Of an if: where tools are given, and not an empty list of them. */
static bool asks_for_tools(const jinja_parts *p, size_t at) {
    static const char *const forms[] = {"tools", "tools is defined and tools",
                                        "tools is not none and tools",
                                        "tools is defined and tools is not none and tools"};
    return jinja_begins(p, at, "if") &&
           JINJA_FITS_ONE(jinja_condition(p, at), forms, JINJA_NO_NAME);
}

/* {%- if messages[0].role == 'system' %} CONTENT [\n\n] [{%- else %} INSTEAD] {%- endif %} */
static bool take_content(found *f, jinja_cursor *c) {
    if (!jinja_takes(c, JINJA_BLOCK, "if " IS_SYSTEM) ||
        !jinja_takes(c, JINJA_OUTPUT, "messages[0].content"))
        return false;
    f->apart = jinja_takes(c, JINJA_TEXT, "\n\n");
    if (jinja_takes(c, JINJA_BLOCK, "else")) f->instead = take_text(c);
    return jinja_takes(c, JINJA_BLOCK, "endif") && !chat_find(f->instead, "<|");
}

/* In front of part `at`, and alone there: NAME is the system's text, or empty. */
static omm_bytes system_name(const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, 0};
    const omm_bytes name = jinja_name_between(jinja_text(p, 1), "set ", "=messages[0].content");
    const omm_bytes rest = jinja_name_between(jinja_text(p, 2), "set ", "=messages[1:]");
    const bool is = rest.size > 0 && !omm_bytes_equal(name, rest) &&
                    jinja_takes(&c, JINJA_BLOCK, "if " IS_SYSTEM) &&
                    jinja_take(&c, JINJA_BLOCK, "set $=messages[0].content", name) &&
                    jinja_take(&c, JINJA_BLOCK, "set $=messages[1:]", rest) &&
                    jinja_takes(&c, JINJA_BLOCK, "else") &&
                    jinja_take(&c, JINJA_BLOCK, "set $=''", name) &&
                    jinja_take(&c, JINJA_BLOCK, "set $=messages", rest) &&
                    jinja_takes(&c, JINJA_BLOCK, "endif");
    return is && c.at == at ? name : JINJA_NO_NAME;
}

/* (NAME if NAME else 'INSTEAD'), as the templates have it that come with our own models. */
static bool take_named(found *f, jinja_cursor *c, omm_bytes name) {
    char start[128];
    bool is = false;
    const int n = (int)name.size;
    if (n == 0 || n > 32 || !jinja_is(c->parts, c->at, JINJA_OUTPUT)) return false;
    snprintf(start, sizeof start, "(%.*s if %.*s else'", n, name.data, n, name.data);
    f->instead = jinja_between(&is, jinja_text(c->parts, c->at), start, "')");
    f->empty_too = true;
    c->at++;
    return is && f->instead.size <= TEXT_MAX && !chat_find(f->instead, "'") &&
           !chat_find(f->instead, "\\") && !chat_find(f->instead, "<|");
}

/* {%- for V in tools %} [\n] V as JSON [\n] {%- endfor %}, one of the two line ends. */
static bool take_list(found *f, jinja_cursor *c) {
    const omm_bytes v = jinja_name_between(jinja_text(c->parts, c->at), "for ", " in tools");
    if (v.size == 0 || !jinja_take(c, JINJA_BLOCK, "for $ in tools", v)) return false;
    f->before = jinja_takes(c, JINJA_TEXT, "\n");
    return jinja_take(c, JINJA_OUTPUT, "$|tojson", v) &&
           jinja_takes(c, JINJA_TEXT, "\n") != f->before && jinja_takes(c, JINJA_BLOCK, "endfor");
}

/* An empty line stands between the system's text and HEAD, written with the one or the other. */
static bool take_head(found *f, jinja_cursor *c) {
    f->head = take_text(c);
    const bool parted =
        f->apart ? !jinja_starts_with(f->head, "\n") : jinja_starts_with(f->head, "\n\n");
    return parted && !chat_find(f->head, "<|") &&
           (jinja_ends_with(f->head, OPENS) || jinja_ends_with(f->head, OPENS "\n"));
}

/* TAIL asks for calls as chat.h has them, and ends the turn. */
static bool take_tail(found *f, jinja_cursor *c) {
    bool ends = false;
    f->tail = jinja_between(&ends, take_text(c), "", TURN_END);
    return ends && !chat_find(f->tail, "<|") && chat_find(f->tail, OMM_CHAT_CALL_OPENS) &&
           chat_find(f->tail, "\"arguments\"") &&
           (jinja_starts_with(f->tail, CLOSES) || jinja_starts_with(f->tail, "\n" CLOSES));
}

/* What the branch at `at` writes, and nothing else, up to the next one. */
static bool read_announced(found *out, const jinja_parts *p, size_t at) {
    jinja_cursor c = {p, at + 1};
    found f = *out;
    const omm_bytes name = system_name(p, at);
    const bool is = jinja_takes(&c, JINJA_TEXT, SYSTEM_TURN) &&
                    (name.size > 0 ? take_named(&f, &c, name) : take_content(&f, &c)) &&
                    take_head(&f, &c) && take_list(&f, &c) && take_tail(&f, &c) &&
                    c.at == jinja_next_branch(p, at);
    if (is) *out = f;
    return is;
}

/* ---- the default ----------------------------------------------------------------------------- */

/* One whole turn: what it says. */
static omm_bytes take_turn(jinja_cursor *c) {
    bool is = false;
    const omm_bytes said = jinja_between(&is, take_text(c), SYSTEM_TURN, TURN_END);
    return is && !chat_find(said, "<|") ? said : omm_bytes_str("");
}

/* What the if or elif at `at`, which ends at `end`, writes where there is no system turn, and then
 * alone. */
static omm_bytes read_default(const jinja_parts *p, size_t at, size_t end) {
    jinja_cursor c = {p, at + 1};
    const omm_bytes asks = jinja_condition(p, at);
    if (is_text(asks, IS_SYSTEM)) {
        c.at = jinja_next_branch(p, at);
        if (!jinja_takes(&c, JINJA_BLOCK, "else")) return omm_bytes_str("");
    } else if (!is_text(asks, IS_NOT_SYSTEM)) {
        return omm_bytes_str("");
    }
    const omm_bytes said = take_turn(&c);
    return c.at == end ? said : omm_bytes_str("");
}

/* {%- for V in messages %} {%- if loop.first and V.role != 'system' %} DEFAULT {%- endif %} ... */
static omm_bytes read_first(const jinja_parts *p, size_t at) {
    static const char *const forms[] = {"if loop.first and " IS_NOT_SYSTEM,
                                        "if loop.first and $.role!='system'"};
    const omm_bytes v = jinja_name_between(jinja_text(p, at), "for ", " in messages");
    jinja_cursor c = {p, at + 2};
    if (!jinja_begins(p, at, "for") || v.size == 0 || !jinja_begins(p, at + 1, "if") ||
        !JINJA_FITS_ONE(jinja_text(p, at + 1), forms, v))
        return omm_bytes_str("");
    const omm_bytes said = take_turn(&c);
    const bool is = jinja_begins(p, c.at, "endif") && jinja_end_of(p, at) < p->count;
    return is ? said : omm_bytes_str("");
}

/* ---- where they stand ------------------------------------------------------------------------ */

/* What is written next is written by a loop: turns. */
static bool turns_follow(const jinja_parts *p, size_t at) {
    bool in_loop = false;
    for (int depth = 0; at < p->count && jinja_is_silent(p, at); at++) {
        if (depth == 0) in_loop = jinja_begins(p, at, "for");
        depth += jinja_step(p, at);
        in_loop = in_loop && depth > 0;
    }
    return in_loop || at == p->count;
}

/* An if about tools, with what it writes without them: in its other branch, or in an if that is all
 * that this has. */
static void read_branches(found *f, const jinja_parts *p, size_t at, size_t end) {
    const size_t other = jinja_next_branch(p, at);
    read_announced(f, p, at);
    if (jinja_begins(p, other, "elif"))
        f->system = read_default(p, other, end);
    else if (jinja_begins(p, other, "else"))
        f->system = read_default(p, other + 1, end - 1);
}

/* Part `at` begins what is written of a system turn. */
static bool read_part(found *f, const jinja_parts *p, size_t at) {
    if (jinja_begins(p, at, "for")) {
        f->system = read_first(p, at);
        return f->system.size > 0;
    }
    if (!jinja_begins(p, at, "if")) return false;
    const size_t end = jinja_end_of(p, at);
    if (asks_for_tools(p, at))
        read_branches(f, p, at, end);
    else
        f->system = read_default(p, at, end);
    return (f->system.size > 0 || f->head.size > 0) && turns_follow(p, end + 1);
}

/* Under no other condition, behind nothing that writes. */
static found read_system(const jinja_parts *p) {
    int depth = 0;
    for (size_t at = 0; jinja_is_silent(p, at); at++) {
        found f = {0};
        if (depth == 0 && read_part(&f, p, at)) return f;
        depth += jinja_step(p, at);
    }
    return (found){0};
}

/* ---- results of tools ------------------------------------------------------------------------ */

/* A result, its turn begun in front of the first of several and ended behind the last. */
static bool take_result(jinja_cursor *c, const char *content, omm_bytes v) {
    static const char last[] = "if loop.last or(messages[loop.index0+1].role!='tool')";
    static const char *const first[] = {
        "if(loop.index0==0)or(messages[loop.index0-1].role!='tool')",
        "if loop.first or(messages[loop.index0-1].role!='tool')"};
    const bool is_first = JINJA_FITS_ONE(jinja_text(c->parts, c->at), first, JINJA_NO_NAME);
    c->at++;
    return is_first && jinja_takes(c, JINJA_TEXT, "<|im_start|>user") &&
           jinja_takes(c, JINJA_BLOCK, "endif") &&
           jinja_takes(c, JINJA_TEXT, "\n<tool_response>\n") &&
           jinja_take(c, JINJA_OUTPUT, content, v) &&
           jinja_takes(c, JINJA_TEXT, "\n</tool_response>") && jinja_takes(c, JINJA_BLOCK, last) &&
           jinja_takes(c, JINJA_TEXT, TURN_END) && jinja_takes(c, JINJA_BLOCK, "endif");
}

/* The branch of tools, of the if at `at` that is all that the loop over messages has. */
static size_t tool_branch(const jinja_parts *p, size_t at, omm_bytes v) {
    static const char plain[] = "($.role=='user')or($.role=='system'and not loop.first)"
                                "or($.role=='assistant'and not $.tool_calls)";
    static const char *const others[] = {plain,
                                         "($.role=='user')or($.role=='system'and not loop.first)",
                                         "$.role=='assistant'and not $.tool_calls",
                                         "$.role=='assistant'",
                                         "$.role=='user'",
                                         "$.role=='system'"};
    if (!jinja_begins(p, at, "if") || !jinja_begins(p, jinja_end_of(p, at) + 1, "endfor"))
        return p->count;
    while (JINJA_FITS_ONE(jinja_condition(p, at), others, v)) at = jinja_next_branch(p, at);
    return jinja_fits(jinja_condition(p, at), "$.role=='tool'", v) ? at : p->count;
}

/* `content` is what a message says. */
static bool take_content_set(jinja_cursor *c, omm_bytes v) {
    return jinja_take(c, JINJA_BLOCK, "if $.content is string", v) &&
           jinja_take(c, JINJA_BLOCK, "set content=$.content", v) &&
           jinja_takes(c, JINJA_BLOCK, "else") && jinja_takes(c, JINJA_BLOCK, "set content=''") &&
           jinja_takes(c, JINJA_BLOCK, "endif");
}

static bool read_results(const jinja_parts *p, size_t at) {
    const omm_bytes v = jinja_name_between(jinja_text(p, at), "for ", " in messages");
    jinja_cursor c = {p, at + 1};
    if (!jinja_begins(p, at, "for") || v.size == 0) return false;
    const bool is_set = take_content_set(&c, v);
    const size_t branch = tool_branch(p, is_set ? c.at : at + 1, v);
    c.at = branch + 1;
    return take_result(&c, is_set ? "content" : "$.content", v) &&
           c.at == jinja_next_branch(p, branch);
}

/* A loop over all messages, under no condition, writes results of tools as chat.c does. */
static bool has_responses(const jinja_parts *p) {
    int depth = 0;
    for (size_t at = 0; at < p->count; at++) {
        if (depth == 0 && read_results(p, at)) return true;
        depth += jinja_step(p, at);
    }
    return false;
}

/* ---- recognising ----------------------------------------------------------------------------- */

static omm_err context_of(uint32_t *out, const omm_gguf *g) {
    omm_bytes name = {0};
    char key[80];
    *out = UINT32_MAX;
    if (!omm_gguf_find(g, "general.architecture")) return OMM_OK;
    OMM_TRY(omm_gguf_get_str(&name, g, "general.architecture"));
    snprintf(key, sizeof key, "%.*s.context_length", (int)(name.size < 48 ? name.size : 48),
             (const char *)name.data);
    return omm_gguf_get_u32_or(out, g, key, UINT32_MAX);
}

static omm_err keep(omm_buf *out, omm_bytes text) {
    omm_buf_init(out, TEXT_MAX);
    return omm_buf_append(out, text.data, text.size);
}

static omm_err keep_found(chat_tools *out, const found *f) {
    OMM_TRY(keep(&out->system, f->system));
    OMM_TRY(keep(&out->instead, f->instead));
    OMM_TRY(keep(&out->head, f->head));
    OMM_TRY(keep(&out->tail, f->tail));
    out->announces = f->head.size > 0;
    out->apart = f->apart;
    out->before = f->before;
    out->empty_too = f->empty_too;
    return OMM_OK;
}

static omm_err chatml_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    OMM_TRY(smollm_recognise(t, parts));
    if (t->reasoning.is) return OMM_OK;
    const found f = read_system(parts);
    OMM_TRY(keep_found(&t->tools, &f));
    t->tools.response = has_responses(parts);
    return OMM_OK;
}

static bool is_mistral(omm_chat_format format) {
    return format == OMM_CHAT_MISTRAL_V3 || format == OMM_CHAT_MISTRAL_V3_TEKKEN ||
           format == OMM_CHAT_MISTRAL_V7 || format == OMM_CHAT_MISTRAL_V7_TEKKEN;
}

/* By family. */
static omm_err recognise(omm_tokenizer *t, const jinja_parts *parts) {
    const omm_chat_format format = omm_chat_format_of(t);
    if (format == OMM_CHAT_CHATML) return chatml_recognise(t, parts);
    if (format == OMM_CHAT_GRANITE) return granite_recognise(t, parts);
    if (format == OMM_CHAT_EXAONE) return exaone_recognise(t, parts);
    if (format == OMM_CHAT_PHI3) phi3_recognise(t, parts);
    if (omm_thinking_of(t) != OMM_THINKING_NONE) return OMM_OK;
    if (format == OMM_CHAT_LLAMA3) return llama_recognise(&t->tools, parts);
    if (is_mistral(format)) mistral_recognise(t, parts);
    if (format == OMM_CHAT_PHI4_MINI) phi_recognise(t, parts);
    return OMM_OK;
}

/* A token of its own, which ends or begins nothing. */
static bool is_mark(const omm_tokenizer *t, const char *mark) {
    const uint32_t id = omm_tokenizer_special(t, mark);
    return id != OMM_TOKEN_NONE && !omm_tokenizer_is_end(t, id) && id != omm_tokenizer_bos(t);
}

void tools_take_form(omm_tokenizer *t, const tools_form *form) {
    for (size_t i = 0; i < FORM_MARKS_MAX && form->marks[i]; i++)
        if (!is_mark(t, form->marks[i])) return;
    for (size_t i = 0; i < FORM_SPOKEN_MAX && form->spoken[i]; i++)
        if (!is_mark(t, form->spoken[i])) return;
    for (size_t i = 0; i < FORM_SPOKEN_MAX && form->spoken[i]; i++)
        tokenizer_speak(t, omm_tokenizer_special(t, form->spoken[i]));
    t->tools.form = form;
    t->tools.calls = (uint8_t)form->calls;
    t->tools.announces = true;
}

omm_err announce_recognise(omm_tokenizer *t, const omm_gguf *g, omm_bytes jinja) {
    uint32_t context = 0;
    jinja_parts parts;
    const omm_chat_format format = omm_chat_format_of(t);
    if (format != OMM_CHAT_CHATML && format != OMM_CHAT_LLAMA3 && format != OMM_CHAT_GRANITE &&
        format != OMM_CHAT_PHI3 && format != OMM_CHAT_PHI4_MINI && format != OMM_CHAT_EXAONE &&
        !is_mistral(format))
        return OMM_OK;
    OMM_TRY(context_of(&context, g));
    omm_err err = format == OMM_CHAT_EXAONE ? jinja_parts_read_all(&parts, jinja)
                                            : jinja_parts_read(&parts, jinja);
    if (err == OMM_OK) err = recognise(t, &parts);
    if (context < CONTEXT_LEAST) t->tools.announces = false;
    jinja_parts_fini(&parts);
    return err;
}

omm_bytes omm_chat_default_system(const omm_tokenizer *tokenizer) {
    return omm_buf_view(&tokenizer->tools.system);
}

/* ---- announcing ------------------------------------------------------------------------------ */

bool omm_chat_announces(const omm_tokenizer *tokenizer) {
    return tokenizer->tools.announces;
}

omm_chat_place omm_chat_announces_at(const omm_tokenizer *tokenizer) {
    const chat_tools *tools = &tokenizer->tools;
    return tools->announces && tools->form ? tools->form->place : OMM_CHAT_IN_SYSTEM;
}

omm_bytes omm_chat_announcing_system(const omm_tokenizer *tokenizer) {
    return omm_buf_view(&tokenizer->tools.instead);
}

/* The system's text, or what stands there instead. */
static omm_err put_system(omm_buf *out, const chat_tools *form, omm_bytes system) {
    if (!system.data || (system.size == 0 && form->empty_too))
        return omm_buf_append(out, form->instead.data, form->instead.size);
    OMM_TRY(omm_buf_append(out, system.data, system.size));
    return form->apart ? omm_buf_append(out, "\n\n", 2) : OMM_OK;
}

static omm_err put_tool(omm_buf *out, const chat_tools *form, json_t *tool) {
    const char *behind = form->lists     ? "\n\n"
                         : form->before  ? ""
                         : form->wrapped ? "</tool>\n"
                                         : "\n";
    json_t *whole = json_object_get(tool, "function")
                        ? json_incref(tool)
                        : json_pack("{s:s, s:O}", "type", "function", "function", tool);
    if (!whole) return omm_raise(OMM_ERR_NOMEM, "no memory for a tool");
    omm_err err = form->before    ? omm_buf_append(out, "\n", 1)
                  : form->wrapped ? omm_buf_printf(out, "<tool>")
                                  : OMM_OK;
    if (err == OMM_OK) err = omm_json_write_indented(out, whole, form->lists ? 4 : 0);
    if (err == OMM_OK) err = omm_buf_append(out, behind, strlen(behind));
    json_decref(whole);
    return err;
}

static omm_err put_all(omm_buf *out, const chat_tools *form, omm_bytes system,
                       const json_t *tools) {
    if (!form->lists) OMM_TRY(put_system(out, form, system));
    OMM_TRY(omm_buf_append(out, form->head.data, form->head.size));
    for (size_t i = 0; i < json_array_size(tools); i++)
        OMM_TRY(put_tool(out, form, json_array_get(tools, i)));
    const omm_bytes behind = form->lists ? chat_strip(system) : omm_buf_view(&form->tail);
    return omm_buf_append(out, behind.data, behind.size);
}

/* ---- as a family has them --------------------------------------------------------------------- */

/* A new reference: the tool with its kind beside it, or (function) without. */
static omm_err tool_of(json_t **out, json_t *tool, bool function) {
    json_t *inner = json_object_get(tool, "function");
    *out = inner || function ? json_incref(inner && function ? inner : tool)
                             : json_pack("{s:s, s:O}", "type", "function", "function", tool);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a tool");
}

static omm_err put_member(omm_buf *out, const char *key, json_t *value, bool first) {
    OMM_TRY(omm_buf_printf(out, "%s\"%s\": ", first ? "" : ", ", key));
    if (!json_is_string(value)) return omm_json_write_indented(out, value, 0);
    OMM_TRY(omm_buf_append(out, "\"", 1)); /* what it says is not escaped */
    OMM_TRY(omm_buf_append(out, json_string_value(value), json_string_length(value)));
    return omm_buf_append(out, "\"", 1);
}

static omm_err put_members(omm_buf *out, json_t *function) {
    const char *key = NULL;
    json_t *value = NULL;
    bool first = true;
    OMM_TRY(omm_buf_printf(out, "{\"type\": \"function\", \"function\": {"));
    json_object_foreach(function, key, value) {
        if (strcmp(key, "return") == 0) continue;
        OMM_TRY(put_member(out, key, value, first));
        first = false;
    }
    return omm_buf_append(out, "}}", 2);
}

static bool is_python(tools_spelling how) {
    return how == TOOLS_AS_PYTHON || how == TOOLS_PYTHON_FUNCTIONS;
}

static omm_err put_one(omm_buf *out, json_t *tool, tools_spelling how) {
    if (how == TOOLS_APART) return omm_json_write_indented(out, tool, 4);
    if (!is_python(how)) return put_members(out, tool);
    OMM_TRY(smollm_put_python(out, tool));
    return omm_buf_append(out, "\n", 1);
}

/* One after the other. */
static omm_err put_each(omm_buf *out, const json_t *tools, tools_spelling how) {
    const char *between = how == TOOLS_APART ? "\n\n" : is_python(how) ? "" : ", ";
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = NULL;
        if (i > 0) OMM_TRY(omm_buf_printf(out, "%s", between));
        OMM_TRY(
            tool_of(&tool, json_array_get(tools, i), how != TOOLS_APART && how != TOOLS_AS_PYTHON));
        const omm_err err = put_one(out, tool, how);
        json_decref(tool);
        OMM_TRY(err);
    }
    return OMM_OK;
}

static omm_err put_list(omm_buf *out, const json_t *tools, tools_spelling how) {
    json_t *list = json_array();
    omm_err err = list ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for tools");
    for (size_t i = 0; i < json_array_size(tools) && err == OMM_OK; i++) {
        json_t *tool = NULL;
        err = tool_of(&tool, json_array_get(tools, i), how == TOOLS_FUNCTIONS);
        if (err == OMM_OK && json_array_append_new(list, tool) != 0)
            err = omm_raise(OMM_ERR_NOMEM, "no memory for tools");
    }
    if (err == OMM_OK) err = omm_json_write_indented(out, list, how == TOOLS_INDENTED ? 4 : 0);
    json_decref(list);
    return err;
}

/* In the system turn behind its text, with the marks around; else alone. */
static omm_err put_as_family(omm_buf *out, const tools_form *form, omm_bytes system,
                             const json_t *tools) {
    const bool inside = form->place == OMM_CHAT_IN_SYSTEM,
               listed = form->spelling == TOOLS_BY_MEMBERS;
    if (inside) OMM_TRY(omm_buf_append(out, system.data, system.size));
    OMM_TRY(omm_buf_printf(out, "%s%s", inside ? form->before : "", listed ? "[" : ""));
    const bool each = listed || form->spelling == TOOLS_APART || is_python(form->spelling);
    OMM_TRY(each ? put_each(out, tools, form->spelling) : put_list(out, tools, form->spelling));
    return omm_buf_printf(out, "%s%s", listed ? "]" : "", inside ? form->after : "");
}

omm_err omm_chat_announce_tools(omm_buf *out, const omm_tokenizer *tokenizer, omm_bytes system,
                                const json_t *tools) {
    const size_t at = out->size;
    OMM_ASSERT(omm_chat_announces(tokenizer));
    const chat_tools *has = &tokenizer->tools;
    const omm_err err =
        has->form ? put_as_family(out, has->form, system, tools) : put_all(out, has, system, tools);
    if (err != OMM_OK) out->size = at;
    return err;
}
