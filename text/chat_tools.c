/* chat_tools.c - tools announced to the model briefly, and the calls it answers with. */
#include "chat_internal.h"

#include <string.h>

static const char s_open[] = OMM_CHAT_CALL_OPENS;
static const char s_close[] = OMM_CHAT_CALL_CLOSES;

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

static omm_err take_name(omm_tool_call *call, omm_bytes name) {
    if (name.size < 1 || name.size > OMM_CHAT_NAME_MAX)
        return omm_raise(OMM_ERR_FORMAT, "tool call: a name has 1 to %u bytes", OMM_CHAT_NAME_MAX);
    if (!calls_is_name(name))
        return omm_raise(OMM_ERR_FORMAT, "tool call: names have letters, digits, _ and - only");
    memcpy(call->name, name.data, name.size);
    call->name[name.size] = '\0';
    return OMM_OK;
}

/* Beside name and arguments: an id, or (bare) what kind of call it is. */
static size_t count_more(const json_t *object, const calls_style *s) {
    const json_t *id = json_object_get(object, "id");
    const char *type = json_string_value(json_object_get(object, "type"));
    const bool is_function = type && strcmp(type, "function") == 0;
    return s->kind == CALLS_LIST ? json_is_string(id) : s->kind == CALLS_WHOLE && is_function;
}

static omm_err take_call(omm_tool_call *call, const json_t *object, omm_calls_form form) {
    const calls_style *s = calls_style_of(form);
    if (!json_is_object(object) || json_object_size(object) != 2 + count_more(object, s))
        return omm_raise(OMM_ERR_FORMAT, "tool call: wanted an object with name and %s", s->key);
    json_t *arguments = NULL;
    const char *name = NULL;
    OMM_TRY(omm_json_get_str(&name, object, "name"));
    OMM_TRY(take_name(call, omm_bytes_str(name)));
    OMM_TRY(omm_json_get_object(&arguments, object, s->key));
    call->arguments = json_incref(arguments);
    return OMM_OK;
}

static omm_err read_body(json_t **object, omm_bytes body) {
    if (body.size > OMM_CHAT_CALL_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "tool call of %zu bytes, at most %u", body.size,
                         OMM_CHAT_CALL_BYTES_MAX);
    return omm_json_parse(object, body, "tool call");
}

static omm_err check_room(const omm_chat_reply *reply) {
    if (reply->call_count < OMM_CHAT_CALLS_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "more than %u tool calls in one turn", OMM_CHAT_CALLS_MAX);
}

/* The next one of the reply. */
static omm_err push_call(omm_chat_reply *reply, const json_t *object, omm_calls_form form) {
    OMM_TRY(check_room(reply));
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

/* What a bare call begins with, a space or none behind : and , of it. */
static const char *const s_leads[] = {OMM_CHAT_BARE_OPENS " \"",
                                      "{\"type\": \"function\", \"name\": \""};

/* Bytes of the lead that the text begins with, up to the name; *cut: the text ends in it.  0: it begins otherwise. */
static size_t lead_size(bool *cut, omm_bytes text, const char *lead) {
    size_t at = 0;
    *cut = false;
    for (; *lead; lead++) {
        *cut = at == text.size;
        if (*cut) return at;
        if (text.data[at] == (uint8_t)*lead)
            at++;
        else if (*lead != ' ')
            return 0;
    }
    return at;
}

/* Behind white space. */
static omm_bare is_bare(omm_bytes text, omm_chat_named named, const void *ud) {
    size_t size = 0;
    bool cut = false;
    for (size_t i = 0; i < 2 && size == 0; i++) {
        size = lead_size(&cut, text, s_leads[i]);
        if (cut) return OMM_BARE_PERHAPS;
    }
    if (size == 0) return OMM_BARE_NOT;
    text = skip(text, size);
    const uint8_t *quote = text.size > 0 ? memchr(text.data, '"', text.size) : NULL;
    const omm_bytes name = quote ? omm_bytes_of(text.data, (size_t)(quote - text.data)) : text;
    const bool fits =
        name.size <= OMM_CHAT_NAME_MAX && calls_is_name(name) && (!quote || name.size > 0);
    if (!fits || (named && !named(ud, name, quote != NULL))) return OMM_BARE_NOT;
    return quote ? OMM_BARE_CALL : OMM_BARE_PERHAPS;
}

omm_bare omm_chat_bare(size_t *at, omm_bytes text, omm_chat_named named, const void *ud) {
    for (*at = 0; *at < text.size && chat_is_space(text.data[*at]);) ++*at;
    return is_bare(skip(text, *at), named, ud);
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

/* ---- lists and names behind a mark of their own ---- */

/* Calls at most, and as many bytes of each. */
#define LIST_BYTES_MAX ((size_t)OMM_CHAT_CALLS_MAX * OMM_CHAT_CALL_BYTES_MAX)

static omm_err push_list(omm_chat_reply *reply, const json_t *list, omm_calls_form form) {
    if (!json_is_array(list) || json_array_size(list) == 0)
        return omm_raise(OMM_ERR_FORMAT, "tool call: wanted a list of calls");
    for (size_t i = 0; i < json_array_size(list); i++)
        OMM_TRY(push_call(reply, json_array_get(list, i), form));
    return OMM_OK;
}

/* All of the text is one list, and perhaps what closes it. */
static omm_err take_list(omm_chat_reply *reply, omm_bytes *rest, omm_calls_form form) {
    json_t *list = NULL;
    const char *closes = calls_style_of(form)->closes;
    const omm_bytes body = omm_bytes_of(rest->data, value_size(*rest));
    if (body.size > LIST_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "tool calls of %zu bytes, at most %zu", body.size,
                         LIST_BYTES_MAX);
    OMM_TRY(omm_json_parse(&list, body, "tool call"));
    const omm_err err = push_list(reply, list, form);
    json_decref(list);
    *rest = chat_trim(skip(*rest, body.size));
    if (*closes && starts_with(*rest, closes)) *rest = chat_trim(skip(*rest, strlen(closes)));
    return err;
}

/* Behind a name: an id or none, and the mark of arguments or none. */
static bool is_between(omm_bytes text) {
    if (starts_with(text, CALLS_ID)) {
        text = skip(text, strlen(CALLS_ID));
        while (text.size > 0 && calls_is_name(omm_bytes_of(text.data, 1))) text = skip(text, 1);
    }
    if (starts_with(text, CALLS_ARGS)) text = skip(text, strlen(CALLS_ARGS));
    return chat_trim(text).size == 0;
}

/* NAME[ARGS]{...} */
static omm_err take_named(omm_chat_reply *reply, omm_bytes *rest) {
    json_t *arguments = NULL;
    OMM_TRY(check_room(reply));
    omm_tool_call *call = &reply->calls[reply->call_count];
    const uint8_t *end = rest->size > 0 ? memchr(rest->data, '{', rest->size) : NULL;
    if (!end) return omm_raise(OMM_ERR_FORMAT, "tool call: there are no arguments");
    const omm_bytes head = omm_bytes_of(rest->data, (size_t)(end - rest->data));
    const uint8_t *mark = head.size > 0 ? memchr(head.data, '[', head.size) : NULL;
    const omm_bytes name = mark ? omm_bytes_of(head.data, (size_t)(mark - head.data)) : head;
    OMM_TRY(take_name(call, chat_trim(name)));
    if (!is_between(skip(head, name.size)))
        return omm_raise(OMM_ERR_FORMAT, "tool call: wanted " CALLS_ARGS " behind the name");
    const omm_bytes body = omm_bytes_of(end, value_size(omm_bytes_of(end, rest->size - head.size)));
    OMM_TRY(read_body(&arguments, body));
    call->arguments = arguments;
    reply->call_count++;
    *rest = chat_trim(skip(*rest, head.size + body.size));
    return OMM_OK;
}

static omm_err parse_own(omm_chat_reply *reply, omm_bytes text, omm_calls_form form) {
    const calls_style *s = calls_style_of(form);
    bool is_marked = false;
    const size_t size = omm_chat_before_calls(&is_marked, text, form);
    omm_bytes rest = skip(text, size);
    if (!is_marked || !starts_with(rest, s->opens)) return parse_marked(reply, text);
    reply->content = chat_trim(omm_bytes_of(text.data, size));
    do {
        rest = chat_trim(skip(rest, strlen(s->opens)));
        OMM_TRY(s->kind == CALLS_LIST ? take_list(reply, &rest, form) : take_named(reply, &rest));
    } while (s->kind == CALLS_NAMED && starts_with(rest, s->opens));
    return rest.size == 0 ? OMM_OK : omm_raise(OMM_ERR_FORMAT, "tool call: text after a call");
}

static omm_err parse(omm_chat_reply *reply, omm_bytes text, omm_calls_form form,
                     omm_chat_named named, const void *ud) {
    if (calls_style_of(form)->kind == CALLS_EACH) return parse_marked(reply, text);
    return form == OMM_CALLS_BARE ? parse_bare(reply, text, named, ud)
                                  : parse_own(reply, text, form);
}

omm_err omm_chat_parse(omm_chat_reply *out, omm_bytes text, omm_calls_form form,
                       omm_chat_named named, const void *ud) {
    omm_chat_reply reply = {0};
    const omm_err err = parse(&reply, text, form, named, ud);
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
