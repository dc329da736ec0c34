/* chat_tools.c - tools announced to the model, and the calls it answers with. */
#include "chat_internal.h"

#include <string.h>

static const char s_open[] = OMM_CHAT_CALL_OPENS;
static const char s_close[] = OMM_CHAT_CALL_CLOSES;
static const char *const s_arguments[OMM_CALLS_FORM_COUNT] = {"arguments", "parameters"};

/* ---- To the model -------------------------------------------------------------------------- */

static omm_err put_tool(omm_buf *out, const omm_chat_tool *tool, omm_chat_announce how) {
    if (how == OMM_CHAT_NAMES) return omm_buf_printf(out, "%s", tool->name);
    return omm_buf_printf(out, "%s(%s)", tool->name, tool->arguments);
}

static omm_err put_system(omm_buf *out, omm_bytes system, const omm_chat_tool *tools, size_t count,
                          omm_chat_announce how) {
    OMM_TRY(omm_buf_append(out, system.data, system.size));
    if (count == 0) return OMM_OK;
    bool lines = how == OMM_CHAT_LINES;
    const char *between = system.size == 0 ? "" : lines ? "\n" : " ";
    OMM_TRY(omm_buf_printf(out, "%s%s", between, lines ? "Tools:\n" : "Tools: "));
    for (size_t i = 0; i < count; i++) {
        if (i > 0) OMM_TRY(omm_buf_printf(out, "%s", lines ? "\n" : ", "));
        OMM_TRY(put_tool(out, &tools[i], how));
    }
    return lines ? OMM_OK : omm_buf_printf(out, ".");
}

omm_err omm_chat_system(omm_buf *out, omm_bytes system, const omm_chat_tool *tools, size_t count,
                        omm_chat_announce how) {
    size_t before = out->size;
    omm_err err = put_system(out, system, tools, count, how);
    if (err != OMM_OK) out->size = before;
    return err;
}

omm_err omm_chat_write_call(omm_buf *out, omm_calls_form form, const char *name,
                            const json_t *arguments) {
    size_t before = out->size;
    const bool marked = form == OMM_CALLS_MARKED;
    json_t *call = json_pack("{s:s, s:O}", "name", name, s_arguments[form], arguments);
    omm_err err =
        call ? OMM_OK : omm_raise(OMM_ERR_FORMAT, "tool call: unusable name '%.60s'", name);
    if (err == OMM_OK && marked) err = omm_buf_printf(out, "%s\n", s_open);
    if (err == OMM_OK) err = omm_json_write_spaced(out, call);
    if (err == OMM_OK && marked) err = omm_buf_printf(out, "\n%s", s_close);
    json_decref(call);
    if (err != OMM_OK) out->size = before;
    return err;
}

omm_err omm_chat_begin_call(omm_buf *out, omm_calls_form form, const char *name) {
    const char *opens = form == OMM_CALLS_MARKED ? OMM_CHAT_CALL_OPENS "\n" : "";
    if (!name) return omm_buf_printf(out, "%s" OMM_CHAT_BARE_OPENS, opens);
    return omm_buf_printf(out, "%s" OMM_CHAT_BARE_OPENS " \"%s\", \"%s\":", opens, name,
                          s_arguments[form]);
}

/* ---- From the model ------------------------------------------------------------------------ */

static bool starts_with(omm_bytes text, const char *start) {
    size_t size = strlen(start);
    return text.size >= size && memcmp(text.data, start, size) == 0;
}

static omm_bytes skip(omm_bytes text, size_t size) {
    return size > 0 ? omm_bytes_of(text.data + size, text.size - size) : text;
}

/* Bytes of `text` before `mark`; all of it, and false, when the mark does not occur. */
static bool before_mark(omm_bytes *out, omm_bytes text, const char *mark) {
    const uint8_t *at = text.size ? memmem(text.data, text.size, mark, strlen(mark)) : NULL;
    *out = at ? omm_bytes_of(text.data, (size_t)(at - text.data)) : text;
    return at != NULL;
}

/* Bytes of `text` before the mark that closes a call: not the one that a string of its JSON has, unless there is no other. */
static bool before_close(omm_bytes *out, omm_bytes text) {
    const size_t size = sizeof s_close - 1;
    bool in_string = false;
    for (size_t i = 0; i < text.size; i++) {
        if (in_string && text.data[i] == '\\')
            i++;
        else if (text.data[i] == '"')
            in_string = !in_string;
        else if (!in_string && text.size - i >= size && memcmp(text.data + i, s_close, size) == 0) {
            *out = omm_bytes_of(text.data, i);
            return true;
        }
    }
    return before_mark(out, text, s_close);
}

static bool is_name(omm_bytes text) {
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t c = text.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-'))
            return false;
    }
    return true;
}

static omm_err take_name(omm_tool_call *call, const json_t *object) {
    const char *name = NULL;
    OMM_TRY(omm_json_get_str(&name, object, "name"));
    const size_t size = strlen(name);
    if (size < 1 || size > OMM_CHAT_NAME_MAX)
        return omm_raise(OMM_ERR_FORMAT, "tool call: a name has 1 to %u bytes", OMM_CHAT_NAME_MAX);
    if (!is_name(omm_bytes_str(name)))
        return omm_raise(OMM_ERR_FORMAT, "tool call: names have letters, digits, _ and - only");
    memcpy(call->name, name, size + 1);
    return OMM_OK;
}

static omm_err take_call(omm_tool_call *call, const json_t *object, omm_calls_form form) {
    if (!json_is_object(object) || json_object_size(object) != 2)
        return omm_raise(OMM_ERR_FORMAT, "tool call: wanted an object with name and %s",
                         s_arguments[form]);
    json_t *arguments = NULL;
    OMM_TRY(take_name(call, object));
    OMM_TRY(omm_json_get_object(&arguments, object, s_arguments[form]));
    call->arguments = json_incref(arguments);
    return OMM_OK;
}

static omm_err read_body(json_t **object, omm_bytes body) {
    if (body.size > OMM_CHAT_CALL_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "tool call of %zu bytes, at most %u", body.size,
                         OMM_CHAT_CALL_BYTES_MAX);
    return omm_json_parse(object, body, "tool call");
}

/* The next one of the reply. */
static omm_err push_call(omm_chat_reply *reply, const json_t *object, omm_calls_form form) {
    if (reply->call_count == OMM_CHAT_CALLS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u tool calls in one turn",
                         OMM_CHAT_CALLS_MAX);
    const omm_err err = take_call(&reply->calls[reply->call_count], object, form);
    if (err == OMM_ERR_NOT_FOUND) return omm_raise(OMM_ERR_FORMAT, "%s", omm_err_sentence());
    reply->call_count += err == OMM_OK;
    return err;
}

/* ---- marked ---- */

/* `rest` begins with an opening mark; moves behind the closing one and its white space. */
static omm_err take_block(omm_chat_reply *reply, omm_bytes *rest) {
    omm_bytes body = {0};
    *rest = skip(*rest, sizeof s_open - 1);
    if (!before_close(&body, *rest))
        return omm_raise(OMM_ERR_FORMAT, "tool call: %s is missing", s_close);
    json_t *object = NULL;
    OMM_TRY(read_body(&object, chat_trim(body)));
    const omm_err err = push_call(reply, object, OMM_CALLS_MARKED);
    json_decref(object);
    OMM_TRY(err);
    *rest = chat_trim(skip(*rest, body.size + sizeof s_close - 1));
    return OMM_OK;
}

static omm_err parse_marked(omm_chat_reply *reply, omm_bytes text) {
    omm_bytes stray = {0};
    before_mark(&reply->content, text, s_open);
    omm_bytes rest = skip(text, reply->content.size);
    if (before_mark(&stray, reply->content, s_close))
        return omm_raise(OMM_ERR_FORMAT, "tool call: %s without %s", s_close, s_open);
    reply->content = chat_trim(reply->content);
    while (rest.size > 0) {
        if (!starts_with(rest, s_open))
            return omm_raise(OMM_ERR_FORMAT, "tool call: text after %s", s_close);
        OMM_TRY(take_block(reply, &rest));
    }
    return OMM_OK;
}

/* ---- bare ---- */

/* Bytes of the object or list that `text` begins with; all of it where that does not end. */
static size_t value_size(omm_bytes text) {
    bool in_string = false;
    size_t depth = 0;
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t c = text.data[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return i + 1;
    }
    return text.size;
}

omm_bare omm_chat_bare(size_t *at, omm_bytes text, omm_chat_named named, const void *ud) {
    static const char opens[] = OMM_CHAT_BARE_OPENS;
    const size_t opens_size = sizeof opens - 1;
    for (*at = 0; *at < text.size && chat_is_space(text.data[*at]);) ++*at;
    text = skip(text, *at);
    const size_t same = text.size < opens_size ? text.size : opens_size;
    if (same > 0 && memcmp(text.data, opens, same) != 0) return OMM_BARE_NOT;
    text = skip(text, same);
    if (text.size > 0 && text.data[0] == ' ') text = skip(text, 1);
    if (text.size == 0) return OMM_BARE_PERHAPS;
    if (text.data[0] != '"') return OMM_BARE_NOT;
    text = skip(text, 1);
    const uint8_t *quote = text.size > 0 ? memchr(text.data, '"', text.size) : NULL;
    const omm_bytes name = quote ? omm_bytes_of(text.data, (size_t)(quote - text.data)) : text;
    const bool fits = name.size <= OMM_CHAT_NAME_MAX && is_name(name) && (!quote || name.size > 0);
    if (!fits || (named && !named(ud, name, quote != NULL))) return OMM_BARE_NOT;
    return quote ? OMM_BARE_CALL : OMM_BARE_PERHAPS;
}

/* `rest` begins a call; moves behind it and its white space. */
static omm_err take_bare(omm_chat_reply *reply, omm_bytes *rest) {
    json_t *object = NULL;
    const omm_bytes body = omm_bytes_of(rest->data, value_size(*rest));
    OMM_TRY(read_body(&object, body));
    const omm_err err = push_call(reply, object, OMM_CALLS_BARE);
    json_decref(object);
    *rest = chat_trim(skip(*rest, body.size));
    return err;
}

static omm_err parse_bare(omm_chat_reply *reply, omm_bytes text, omm_chat_named named,
                          const void *ud) {
    size_t at = 0;
    omm_bytes rest = chat_trim(text);
    if (omm_chat_bare(&at, rest, named, ud) != OMM_BARE_CALL) return parse_marked(reply, text);
    reply->content = omm_bytes_str("");
    while (rest.size > 0) {
        if (omm_chat_bare(&at, rest, named, ud) != OMM_BARE_CALL)
            return omm_raise(OMM_ERR_FORMAT, "tool call: text after a call");
        OMM_TRY(take_bare(reply, &rest));
        if (starts_with(rest, ";")) rest = chat_trim(skip(rest, 1));
    }
    return OMM_OK;
}

omm_err omm_chat_parse(omm_chat_reply *out, omm_bytes text, omm_calls_form form,
                       omm_chat_named named, const void *ud) {
    omm_chat_reply reply = {0};
    const omm_err err =
        form == OMM_CALLS_BARE ? parse_bare(&reply, text, named, ud) : parse_marked(&reply, text);
    if (err != OMM_OK) {
        omm_chat_reply_fini(&reply);
        return err;
    }
    *out = reply;
    return OMM_OK;
}

void omm_chat_reply_fini(omm_chat_reply *reply) {
    for (size_t i = 0; i < OMM_CHAT_CALLS_MAX; i++) json_decref(reply->calls[i].arguments);
    memset(reply, 0, sizeof *reply);
}
