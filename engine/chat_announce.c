/* chat_announce.c - what a model's own template says to it: its default system prompt, tools, their results.
 *
 *   {{- "<|im_start|>system\nDEFAULT<|im_end|>\n" }}
 *   {{- "HEAD <tools>" }} {% for tool in tools %} {{- "\n" }} {{- tool | tojson }} {% endfor %} {{- "\n</tools> TAIL" }}
 *
 * Jinja is not run.  The texts that it writes between what it computes are read in their order: DEFAULT is a whole turn of the
 * system, for conversations that begin without one; HEAD is the text that ends with
 * <tools>, TAIL the next one that begins with </tools>, and a line end between them belongs to each tool.  That is what
 * Qwen and its kind do; what is written otherwise, or asks for calls that are not chat.h's, is not taken. */
#include "chat_internal.h"
#include "tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

#define OPENS "<tools>"
#define CLOSES "</tools>"
#define SYSTEM_TURN "<|im_start|>system\n"
#define TURN_END "<|im_end|>"

enum {
    TEXT_MAX = 8192,      /* bytes of HEAD and of TAIL */
    COMPUTED_MAX = 8,     /* between them: the loop, the tool, what ends it, a condition or two */
    CONTEXT_LEAST = 2048, /* positions of a model in which a few tools have room so */
    DEPTH_MAX = 64,
};

/* ---- the texts of a template ----------------------------------------------------------------- */

typedef struct scan {
    omm_bytes jinja;
    size_t at;
    bool in_output; /* inside {{ }} */
    omm_buf run;    /* what is written since the last thing that is computed */
} scan;

static bool is_at(const scan *s, const char *text) {
    const size_t size = strlen(text);
    return s->jinja.size - s->at >= size && memcmp(s->jinja.data + s->at, text, size) == 0;
}

/* Behind the quote that s->at stands on: to behind the one that closes it.  out NULL: to nowhere. */
static omm_err read_string(omm_buf *out, scan *s) {
    static const char from[] = "nrt", to[] = "\n\r\t";
    const uint8_t quote = s->jinja.data[s->at++];
    while (s->at < s->jinja.size && s->jinja.data[s->at] != quote) {
        uint8_t c = s->jinja.data[s->at++];
        if (c == '\\' && s->at < s->jinja.size) {
            c = s->jinja.data[s->at++];
            const char *known = c ? strchr(from, c) : NULL;
            if (known) c = (uint8_t)to[known - from];
        }
        if (out) OMM_TRY(omm_buf_append(out, &c, 1));
    }
    if (s->at < s->jinja.size) s->at++;
    return OMM_OK;
}

/* To behind `end`, or the end of the template; strings may have it in them. */
static omm_err skip_block(scan *s, const char *end) {
    while (s->at < s->jinja.size && !is_at(s, end)) {
        const uint8_t c = s->jinja.data[s->at];
        if (c == '\'' || c == '"')
            OMM_TRY(read_string(NULL, s));
        else
            s->at++;
    }
    s->at += is_at(s, end) ? strlen(end) : 0;
    return OMM_OK;
}

/* An expression that is no text, up to what may join it with one. */
static omm_err skip_computed(scan *s) {
    unsigned depth = 0;
    while (s->at < s->jinja.size) {
        const uint8_t c = s->jinja.data[s->at];
        if (depth == 0 && (c == '+' || c == '~' || is_at(s, "}}"))) return OMM_OK;
        if (c == '(' || c == '[' || c == '{') depth += depth < DEPTH_MAX;
        if ((c == ')' || c == ']' || c == '}') && depth > 0) depth--;
        if (c == '\'' || c == '"')
            OMM_TRY(read_string(NULL, s));
        else
            s->at++;
    }
    return OMM_OK;
}

/* White space and what stands between the parts of an output. */
static void skip_joints(scan *s) {
    while (s->at < s->jinja.size && !is_at(s, "}}") &&
           (chat_is_space(s->jinja.data[s->at]) || strchr("+~-", s->jinja.data[s->at])))
        s->at++;
}

/* Texts go to s->run.  *computed: something else has come.  Only called before the end. */
static omm_err step_output(bool *computed, scan *s) {
    skip_joints(s);
    if (s->at == s->jinja.size) return OMM_OK;
    const uint8_t c = s->jinja.data[s->at];
    if (is_at(s, "}}")) {
        s->at += 2;
        s->in_output = false;
        return OMM_OK;
    }
    if (c == '\'' || c == '"') return read_string(&s->run, s);
    *computed = true;
    return skip_computed(s);
}

static omm_err step_outside(bool *computed, scan *s) {
    if (is_at(s, "{{")) {
        s->at += 2;
        s->in_output = true;
        return OMM_OK;
    }
    if (is_at(s, "{#")) return skip_block(s, "#}");
    if (is_at(s, "{%")) {
        *computed = true;
        return skip_block(s, "%}");
    }
    if (!chat_is_space(s->jinja.data[s->at])) *computed = true; /* text outside of all blocks */
    s->at++;
    return OMM_OK;
}

/* The run is whole: something computed comes, or the end. */
static omm_err next_run(bool *more, scan *s) {
    bool computed = false;
    omm_buf_clear(&s->run);
    *more = s->at < s->jinja.size;
    while (s->at < s->jinja.size && !computed)
        OMM_TRY(s->in_output ? step_output(&computed, s) : step_outside(&computed, s));
    return OMM_OK;
}

/* ---- HEAD and TAIL ------------------------------------------------------------------------------ */

static bool starts_with(omm_bytes text, const char *start) {
    const size_t size = strlen(start);
    return text.size >= size && memcmp(text.data, start, size) == 0;
}

static bool ends_with(omm_bytes text, const char *end) {
    const size_t size = strlen(end);
    return text.size >= size && memcmp(text.data + text.size - size, end, size) == 0;
}

static omm_bytes behind(omm_bytes text, const char *last) {
    for (const uint8_t *at; (at = chat_find(text, last)) != NULL;) {
        const uint8_t *from = at + strlen(last);
        text = omm_bytes_of(from, (size_t)(text.data + text.size - from));
    }
    return text;
}

static omm_bytes before(omm_bytes text, const char *first) {
    const uint8_t *at = chat_find(text, first);
    return at ? omm_bytes_of(text.data, (size_t)(at - text.data)) : text;
}

static bool is_line_end(omm_bytes run) {
    return run.size == 1 && run.data[0] == '\n';
}

/* What stands from HEAD on, without what the system's text is in front of. */
static omm_err take_head(chat_tools *form, omm_bytes run) {
    omm_bytes head = behind(run, SYSTEM_TURN);
    while (head.size > 0 && head.data[0] == '\n') head = omm_bytes_of(head.data + 1, head.size - 1);
    omm_buf_clear(&form->head);
    return omm_buf_append(&form->head, head.data, head.size);
}

/* The run that begins with </tools>, before much else; line ends of tools on the way. */
static omm_err find_tail(bool *found, chat_tools *form, scan *s) {
    bool more = true;
    const bool own_line = !ends_with(omm_buf_view(&form->head), "\n");
    *found = false;
    form->before = own_line;
    for (unsigned i = 0; i < COMPUTED_MAX && more; i++) {
        OMM_TRY(next_run(&more, s));
        const omm_bytes run = omm_buf_view(&s->run);
        if (i == 1 && is_line_end(run)) form->before = false; /* it stands behind the tool */
        if (!starts_with(chat_trim(run), CLOSES)) continue;
        const omm_bytes tail = before(run, TURN_END);
        *found = chat_find(tail, OMM_CHAT_CALL_OPENS) && chat_find(tail, "\"arguments\"");
        omm_buf_clear(&form->tail);
        return *found ? omm_buf_append(&form->tail, tail.data, tail.size) : OMM_OK;
    }
    return OMM_OK;
}

/* The first turn that is all text. */
static omm_err look_for_default(chat_tools *form, omm_bytes run) {
    if (form->system.size > 0 || !starts_with(run, SYSTEM_TURN)) return OMM_OK;
    const size_t size = sizeof SYSTEM_TURN - 1;
    const omm_bytes text = omm_bytes_of(run.data + size, run.size - size);
    const omm_bytes turn = before(text, TURN_END);
    if (turn.size == text.size || chat_find(turn, "<|")) return OMM_OK;
    return omm_buf_append(&form->system, turn.data, turn.size);
}

/* *found: HEAD and TAIL. */
static omm_err find(bool *found, chat_tools *form, scan *s) {
    bool more = true;
    *found = false;
    while (more) {
        OMM_TRY(next_run(&more, s));
        OMM_TRY(look_for_default(form, omm_buf_view(&s->run)));
        if (*found || !ends_with(chat_trim(omm_buf_view(&s->run)), OPENS)) continue;
        OMM_TRY(take_head(form, omm_buf_view(&s->run)));
        OMM_TRY(find_tail(found, form, s));
    }
    return OMM_OK;
}

/* ---- recognising --------------------------------------------------------------------------------- */

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

omm_err announce_recognise(omm_tokenizer *t, const omm_gguf *g, omm_bytes jinja) {
    uint32_t context = 0;
    scan s = {.jinja = jinja};
    if (t->chat != OMM_CHAT_CHATML) return OMM_OK;
    t->tools.response = chat_find(jinja, "<tool_response>") && chat_find(jinja, "</tool_response>");
    OMM_TRY(context_of(&context, g));
    omm_buf_init(&s.run, TEXT_MAX);
    omm_buf_init(&t->tools.system, TEXT_MAX);
    omm_buf_init(&t->tools.head, TEXT_MAX);
    omm_buf_init(&t->tools.tail, TEXT_MAX);
    omm_err err = find(&t->tools.announces, &t->tools, &s);
    omm_buf_fini(&s.run);
    if (err != OMM_OK || context < CONTEXT_LEAST) t->tools.announces = false;
    return err == OMM_ERR_TOO_BIG ? OMM_OK : err; /* texts of a size that no announcement has */
}

omm_bytes omm_chat_default_system(const omm_tokenizer *tokenizer) {
    return omm_buf_view(&tokenizer->tools.system);
}

/* ---- announcing ---------------------------------------------------------------------------------- */

bool omm_chat_announces(const omm_tokenizer *tokenizer) {
    return tokenizer->tools.announces;
}

static omm_err put_tool(omm_buf *out, const chat_tools *form, json_t *tool) {
    json_t *whole = json_object_get(tool, "function")
                        ? json_incref(tool)
                        : json_pack("{s:s, s:O}", "type", "function", "function", tool);
    if (!whole) return omm_raise(OMM_ERR_NOMEM, "no memory for a tool");
    omm_err err = form->before ? omm_buf_append(out, "\n", 1) : OMM_OK;
    if (err == OMM_OK) err = omm_json_write_spaced(out, whole);
    if (err == OMM_OK && !form->before) err = omm_buf_append(out, "\n", 1);
    json_decref(whole);
    return err;
}

static omm_err put_all(omm_buf *out, const chat_tools *form, omm_bytes system,
                       const json_t *tools) {
    if (system.size > 0) {
        OMM_TRY(omm_buf_append(out, system.data, system.size));
        OMM_TRY(omm_buf_append(out, "\n\n", 2));
    }
    OMM_TRY(omm_buf_append(out, form->head.data, form->head.size));
    for (size_t i = 0; i < json_array_size(tools); i++)
        OMM_TRY(put_tool(out, form, json_array_get(tools, i)));
    return omm_buf_append(out, form->tail.data, form->tail.size);
}

omm_err omm_chat_announce_tools(omm_buf *out, const omm_tokenizer *tokenizer, omm_bytes system,
                                const json_t *tools) {
    const size_t at = out->size;
    OMM_ASSERT(omm_chat_announces(tokenizer));
    const omm_err err = put_all(out, &tokenizer->tools, system, tools);
    if (err != OMM_OK) out->size = at;
    return err;
}
