/* dataset_chat.c - the messages of a chat line as turns of the model's template. */
#include "dataset_internal.h"

#include <stdio.h>
#include <string.h>

enum {
    TOOLS_MAX = 64,     /* announced in one example */
    MESSAGES_MAX = 256, /* of one example */
};

/* Text between two offsets of m->texts becomes message content once the buffer is complete. */
typedef struct span {
    bool made; /* in m->texts, else `view` */
    size_t from, to;
    omm_bytes view;
} span;

/* Anything else would be left out without a word. */
static bool is_list_or_none(const json_t *value) {
    return !value || json_is_null(value) || json_is_array(value);
}

static omm_bytes text_of(const json_t *value) {
    return omm_bytes_of(json_string_value(value), json_string_length(value));
}

/* --- tools ----------------------------------------------------------------------------------- */

static omm_err tool_arguments(maker *m, char *out, size_t size, const char *name,
                              const json_t *function) {
    json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
    size_t used = 0;
    out[0] = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(properties, key, value) {
        const size_t need = strlen(key) + (used ? 2 : 0);
        if (used + need + 1 > size)
            return BAD(m, TOOLS, "tools: the names of the arguments of '%.64s' are over %zu bytes",
                       name, size - 1);
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", key);
    }
    return OMM_OK;
}

/* system text + announced tools, as the base model was taught. */
static omm_err announce(maker *m, span *out, omm_bytes system, const json_t *tools) {
    omm_chat_tool list[TOOLS_MAX] = {0};
    char arguments[TOOLS_MAX][256];
    size_t count = json_array_size(tools);
    if (count > TOOLS_MAX) return BAD(m, TOOLS, "tools: %zu; at most %d", count, TOOLS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name) return BAD(m, TOOLS, "tools: entry %zu has no function name", i);
        OMM_TRY(tool_arguments(m, arguments[i], sizeof arguments[i], name, function));
        list[i] = (omm_chat_tool){name, arguments[i]};
    }
    *out = (span){.made = true, .from = m->texts.size};
    OMM_TRY(omm_chat_system(&m->texts, system, list, count, OMM_CHAT_SIGNATURES));
    out->to = m->texts.size;
    return OMM_OK;
}

/* OpenAI writes the arguments as JSON in a string; the object itself is accepted too. */
static omm_err call_arguments(maker *m, json_t **out, json_t *arguments, size_t index) {
    *out = arguments;
    if (json_is_object(arguments)) {
        json_incref(arguments);
        return OMM_OK;
    }
    if (omm_json_parse(out, text_of(arguments), "arguments") != OMM_OK)
        return BAD(m, TOOLS, "tool_calls: the arguments of call %zu are no JSON", index);
    return OMM_OK;
}

static omm_err render_call(maker *m, const json_t *call, size_t index, bool first) {
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *text = json_object_get(function, "arguments"), *arguments = NULL;
    if (!name || !(json_is_string(text) || json_is_object(text)))
        return BAD(m, TOOLS, "tool_calls: call %zu has no name or arguments", index);
    OMM_TRY(call_arguments(m, &arguments, text, index));
    omm_err err = first ? OMM_OK : omm_buf_append(&m->texts, "\n", 1);
    if (err == OMM_OK) err = omm_chat_write_call(&m->texts, name, arguments);
    json_decref(arguments);
    return err;
}

/* An assistant turn in OpenAI's form: content (may be null) and tool_calls. */
static omm_err render_calls(maker *m, span *out, omm_bytes content, const json_t *calls) {
    *out = (span){.made = true, .from = m->texts.size};
    OMM_TRY(omm_buf_append(&m->texts, content.data, content.size));
    for (size_t i = 0; i < json_array_size(calls); i++)
        OMM_TRY(render_call(m, json_array_get(calls, i), i, m->texts.size == out->from));
    out->to = m->texts.size;
    return OMM_OK;
}

/* --- messages -------------------------------------------------------------------------------- */

static omm_err read_message(maker *m, omm_role *role, span *content, const json_t *message,
                            size_t index) {
    const char *name = json_string_value(json_object_get(message, "role"));
    if (!name) return BAD(m, CONTENT, "message %zu has no role", index);
    if (omm_role_parse(role, name) != OMM_OK)
        return BAD(m, CONTENT, "message %zu: role '%.32s'; accepted: system, user, assistant, tool",
                   index, name);
    const json_t *text = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    bool has_calls = json_array_size(calls) > 0 && *role == OMM_ROLE_ASSISTANT;
    if (!is_list_or_none(calls))
        return BAD(m, TOOLS, "message %zu: tool_calls: a list of calls is needed", index);
    if (!json_is_string(text) && !has_calls)
        return BAD(m, CONTENT, "message %zu: content is not a string", index);
    *content = (span){0};
    if (json_is_string(text)) content->view = text_of(text);
    return has_calls ? render_calls(m, content, content->view, calls) : OMM_OK;
}

/* Fill messages[count + 1]; one more may be put in front for announced tools. */
static omm_err read_messages(maker *m, omm_message *messages, size_t *count, const json_t *root) {
    span spans[MESSAGES_MAX + 1] = {0};
    const json_t *list = json_object_get(root, "messages");
    const json_t *tools = json_object_get(root, "tools");
    size_t n = json_array_size(list), at = 0;
    if (!list && json_object_get(root, "prompt"))
        return BAD(m, MESSAGES, "%s",
                   m->is_asked
                       ? "a prompt, where chats are asked for; accepted: \"messages\", or the "
                         "format completion"
                       : "a prompt, in a file whose first line is a chat; accepted: one of "
                         "the two in a file");
    if (!list) return BAD(m, MESSAGES, "%s", "messages: missing; accepted: " MAKER_LINE);
    if (!is_list_or_none(tools)) return BAD(m, TOOLS, "%s", "tools: a list of tools is needed");
    if (!json_is_array(list) || n == 0 || n > MESSAGES_MAX)
        return BAD(m, MESSAGES, "messages: a list of 1 to %d messages is needed", MESSAGES_MAX);
    for (size_t i = 0; i < n; i++, at++) {
        omm_role role = OMM_ROLE_USER;
        OMM_TRY(read_message(m, &role, &spans[at], json_array_get(list, i), i));
        if (i == 0 && json_array_size(tools) > 0) {
            bool system = role == OMM_ROLE_SYSTEM;
            omm_bytes text = system ? spans[at].view : omm_bytes_str("");
            if (!system) spans[at + 1] = spans[at];
            OMM_TRY(announce(m, &spans[at], text, tools));
            messages[at].role = OMM_ROLE_SYSTEM;
            if (system) continue;
            at++;
        }
        messages[at].role = role;
    }
    for (size_t i = 0; i < at; i++)
        messages[i].content =
            spans[i].made ? omm_bytes_of(m->texts.data + spans[i].from, spans[i].to - spans[i].from)
                          : spans[i].view;
    *count = at;
    return OMM_OK;
}

/* The first assistant turn; with loss on the completion alone, the last. */
static omm_err find_reply(maker *m, made *out, const omm_message *messages, size_t count) {
    const omm_message *reply = NULL;
    for (size_t i = 0; i < count; i++)
        if (messages[i].role == OMM_ROLE_ASSISTANT &&
            (!reply || m->options.loss == OMM_LOSS_COMPLETION))
            reply = &messages[i];
    if (!reply) return BAD(m, REPLY, "%s", "messages: no assistant turn to learn from");
    OMM_TRY(omm_buf_append(&m->reply, reply->content.data, reply->content.size));
    OMM_TRY(omm_buf_append(&m->reply, "", 1));
    out->reply = (const char *)m->reply.data;
    out->has_call = strstr(out->reply, "<tool_call>") != NULL;
    return OMM_OK;
}

omm_err maker_chat(maker *m, made *out, const json_t *root) {
    omm_message messages[MESSAGES_MAX + 1] = {0};
    size_t count = 0;
    OMM_TRY(read_messages(m, messages, &count, root));
    OMM_TRY(omm_chat_render(&m->prompt, m->tokenizer, messages, count, false));
    return find_reply(m, out, messages, count);
}
