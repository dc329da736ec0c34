/* chat_turns.c - see chat_turns.h. */
#include "omm/chat_turns.h"

#include "omm/mem.h"

#include <string.h>

/* Where a turn's content is while they are read: what is made lies in `texts`, which may move. */
struct omm_chat_span {
    bool made; /* in texts, else `view` */
    bool calls;
    size_t from, to;
    omm_bytes view;
};

#define BAD(turns, kind, ...)                                                                      \
    make_bad((turns), OMM_CHAT_BAD_##kind, omm_raise(OMM_ERR_FORMAT, __VA_ARGS__))
static omm_err make_bad(omm_chat_turns *t, omm_chat_bad bad, omm_err err) {
    t->bad = bad;
    return err;
}

void omm_chat_turns_init(omm_chat_turns *t, size_t bytes_max) {
    *t = (omm_chat_turns){0};
    omm_buf_init(&t->texts, bytes_max);
}

void omm_chat_turns_fini(omm_chat_turns *t) {
    omm_buf_fini(&t->texts);
    omm_free(t->messages);
    omm_free(t->spans);
}

static omm_err reserve(omm_chat_turns *t, size_t count) {
    if (count <= t->capacity) return OMM_OK;
    omm_message *messages = (omm_message *)omm_alloc(count, sizeof *messages);
    struct omm_chat_span *spans = (struct omm_chat_span *)omm_alloc(count, sizeof *spans);
    if (!messages || !spans) {
        omm_free(messages);
        omm_free(spans);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu turns", count);
    }
    omm_free(t->messages);
    omm_free(t->spans);
    t->messages = messages;
    t->spans = spans;
    t->capacity = count;
    return OMM_OK;
}

/* Anything else would be left out without a word. */
static bool is_list_or_none(const json_t *value) {
    return !value || json_is_null(value) || json_is_array(value);
}

static omm_bytes text_of(const json_t *value) {
    return omm_bytes_of(json_string_value(value), json_string_length(value));
}

static omm_bytes text_or_none(const json_t *value) {
    return json_string_length(value) > 0 ? text_of(value) : omm_bytes_str("");
}

/* What turn number `at` says lies in t->texts from `from` on. */
static void set_made(omm_chat_turns *t, size_t at, size_t from) {
    t->spans[at].made = true;
    t->spans[at].from = from;
    t->spans[at].to = t->texts.size;
}

/* --- tools ----------------------------------------------------------------------------------- */

/* Names of a tool's arguments, as they are announced. */
static omm_err put_arguments(omm_buf *out, const json_t *function) {
    json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
    const size_t from = out->size;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(properties, key, value) {
        if (out->size > from) OMM_TRY(omm_buf_append(out, ", ", 2));
        OMM_TRY(omm_buf_append(out, key, strlen(key)));
    }
    return omm_buf_append(out, "", 1);
}

const json_t *omm_chat_function_at(const json_t *tools, size_t index) {
    const json_t *tool = json_array_get(tools, index);
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

static const char *name_at(const json_t *tools, size_t i) {
    return json_string_value(json_object_get(omm_chat_function_at(tools, i), "name"));
}

/* As the base model was taught. */
static omm_err announce_briefly(omm_chat_turns *t, omm_bytes system, const json_t *tools) {
    omm_chat_tool list[OMM_CHAT_TOOLS_MAX] = {0};
    size_t from[OMM_CHAT_TOOLS_MAX];
    omm_buf arguments; /* of one tool after the other */
    const size_t count = json_array_size(tools);
    omm_err err = OMM_OK;
    omm_buf_init(&arguments, t->texts.bytes_max);
    for (size_t i = 0; i < count && err == OMM_OK; i++) {
        from[i] = arguments.size;
        err = put_arguments(&arguments, omm_chat_function_at(tools, i));
    }
    for (size_t i = 0; i < count && err == OMM_OK; i++)
        list[i] = (omm_chat_tool){name_at(tools, i), (const char *)arguments.data + from[i]};
    if (err == OMM_OK) err = omm_chat_system(&t->texts, system, list, count, OMM_CHAT_SIGNATURES);
    omm_buf_fini(&arguments);
    return err;
}

static omm_err check_tools(omm_chat_turns *t, const json_t *tools) {
    const size_t count = json_array_size(tools);
    if (count > OMM_CHAT_TOOLS_MAX)
        return BAD(t, TOOLS, "tools: %zu; at most %u", count, OMM_CHAT_TOOLS_MAX);
    for (size_t i = 0; i < count; i++)
        if (!name_at(tools, i)) return BAD(t, TOOLS, "tools: entry %zu has no function name", i);
    return OMM_OK;
}

/* system text + announced tools, as the model's own template has it, or briefly. */
static omm_err announce(omm_chat_turns *t, size_t at, omm_bytes system, const json_t *tools) {
    const size_t from = t->texts.size;
    OMM_TRY(check_tools(t, tools));
    if (t->tokenizer && omm_chat_announces(t->tokenizer))
        OMM_TRY(omm_chat_announce_tools(&t->texts, t->tokenizer, system, tools));
    else
        OMM_TRY(announce_briefly(t, system, tools));
    set_made(t, at, from);
    return OMM_OK;
}

/* OpenAI writes the arguments as JSON in a string, an empty one where there are none; the object itself is accepted too.
 * *out NULL: they are what they are spelled as. */
static omm_err call_arguments(omm_chat_turns *t, json_t **out, json_t *arguments, size_t index) {
    *out = arguments;
    if (json_is_object(arguments)) {
        json_incref(arguments);
        return OMM_OK;
    }
    *out = NULL;
    const omm_bytes text = json_string_length(arguments) ? text_of(arguments) : omm_bytes_str("{}");
    if (omm_json_parse_last(out, text, "arguments") == OMM_OK || t->given_back) return OMM_OK;
    return BAD(t, CALLS, "tool_calls: the arguments of call %zu are no JSON: %.200s", index,
               omm_err_sentence());
}

static bool are_arguments(const omm_chat_turns *t, const json_t *value) {
    if (!value || json_is_null(value)) return t->given_back;
    return json_is_string(value) || json_is_object(value);
}

static omm_err write_call(omm_chat_turns *t, const json_t *call, size_t index, size_t count,
                          bool says) {
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *text = json_object_get(function, "arguments"), *arguments = NULL;
    if (!name || !are_arguments(t, text))
        return BAD(t, CALLS, "tool_calls: call %zu has no name or arguments", index);
    OMM_TRY(call_arguments(t, &arguments, text, index));
    const omm_written_call written = {.name = name,
                                      .arguments = arguments,
                                      .spelled = text_or_none(text),
                                      .id = text_or_none(json_object_get(call, "id")),
                                      .index = index,
                                      .count = count,
                                      .says = says};
    const omm_err err = omm_chat_write_nth(&t->texts, omm_chat_calls_of(t->tokenizer), &written);
    json_decref(arguments);
    return err == OMM_ERR_FORMAT ? make_bad(t, OMM_CHAT_BAD_CALLS, err) : err;
}

/* An assistant turn in OpenAI's form: content (may be null, or a thought alone: then it says nothing) and tool_calls.
 * Where calls stand alone the template leaves the text out. */
static omm_err write_calls(omm_chat_turns *t, size_t at, omm_bytes content, const json_t *calls,
                           bool says) {
    const size_t from = t->texts.size, count = json_array_size(calls);
    if (omm_chat_calls_alone(omm_chat_calls_of(t->tokenizer))) {
        content = omm_bytes_str("");
        says = false;
    }
    OMM_TRY(omm_buf_append(&t->texts, content.data, content.size));
    for (size_t i = 0; i < count; i++)
        OMM_TRY(write_call(t, json_array_get(calls, i), i, count, says));
    set_made(t, at, from);
    return OMM_OK;
}

/* --- messages -------------------------------------------------------------------------------- */

static omm_err read_role(omm_chat_turns *t, omm_role *role, const json_t *message, size_t index) {
    const char *name = json_string_value(json_object_get(message, "role"));
    if (!name) return BAD(t, CONTENT, "message %zu has no role", index);
    if (strcmp(name, "developer") == 0) name = "system"; /* what OpenAI calls it since 2024 */
    if (omm_role_parse(role, name) == OMM_OK) return OMM_OK;
    return BAD(t, CONTENT, "message %zu: role '%.32s'; accepted: system, user, assistant, tool",
               index, name);
}

/* Parts of text, as the model's template joins them. */
static omm_err join_parts(omm_chat_turns *t, omm_bytes *out, size_t *from, const json_t *parts,
                          omm_role role, size_t index) {
    *from = t->texts.size;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = type ? json_object_get(part, type) : NULL;
        const bool known =
            type && (strcmp(type, "text") == 0 || (t->given_back && strcmp(type, "refusal") == 0));
        if (!known || !json_is_string(text))
            return BAD(t, CONTENT, "message %zu: content part of type '%.32s'; accepted: text",
                       index, type ? type : "");
        OMM_TRY(omm_chat_join(&t->texts, *from, t->tokenizer, role, text_of(text)));
    }
    *out = omm_bytes_of(t->texts.data + *from, t->texts.size - *from);
    return OMM_OK;
}

/* A copy, because `content` may lie in the buffer that is written to. */
static omm_err write_calls_after(omm_chat_turns *t, size_t at, omm_bytes content,
                                 const json_t *calls, bool says) {
    omm_buf copy;
    omm_buf_init(&copy, t->texts.bytes_max);
    omm_err err = omm_buf_append(&copy, content.data, content.size);
    if (err == OMM_OK) err = write_calls(t, at, omm_buf_view(&copy), calls, says);
    omm_buf_fini(&copy);
    return err;
}

/* `text` may lie in the buffer that is written to. */
static omm_err put_thought(omm_chat_turns *t, size_t at, omm_bytes *text, const json_t *message,
                           size_t index) {
    const json_t *thought = json_object_get(message, "reasoning_content");
    if (!thought || json_is_null(thought)) return OMM_OK;
    if (!json_is_string(thought))
        return BAD(t, CONTENT, "message %zu: reasoning_content is not a string", index);
    if (!t->with_thoughts || json_string_length(thought) == 0) return OMM_OK;
    const bool wraps = t->tokenizer && omm_thinking_wraps(t->tokenizer);
    omm_buf copy;
    omm_buf_init(&copy, t->texts.bytes_max);
    omm_err err = omm_buf_append(&copy, text->data, text->size);
    const size_t from = t->texts.size;
    if (err == OMM_OK) err = omm_thought_write(&t->texts, text_of(thought));
    if (err == OMM_OK && wraps) err = omm_buf_printf(&t->texts, "<answer>\n");
    if (err == OMM_OK) err = omm_buf_append(&t->texts, copy.data, copy.size);
    if (err == OMM_OK && wraps) err = omm_buf_printf(&t->texts, "\n</answer>");
    omm_buf_fini(&copy);
    set_made(t, at, from);
    *text = omm_bytes_of(t->texts.data + from, t->texts.size - from);
    return err;
}

/* Any other weight would be a rate of its own for that turn. */
static omm_err read_weight(omm_chat_turns *t, bool *is_given, const json_t *message, size_t index) {
    const json_t *weight = t->with_weights ? json_object_get(message, "weight") : NULL;
    *is_given = false;
    if (!weight || json_is_null(weight)) return OMM_OK;
    const double value = json_number_value(weight);
    if (!json_is_number(weight) || (value != 0.0 && value != 1.0))
        return BAD(t, CONTENT, "message %zu: weight; accepted: 1, or 0 for what is not learned",
                   index);
    *is_given = value == 0.0;
    return OMM_OK;
}

/* Where an assistant has refused, as OpenAI's may, what it said is there and not in its content. */
static const json_t *content_of(const omm_chat_turns *t, const json_t *message, omm_role role) {
    const json_t *content = json_object_get(message, "content");
    const json_t *refusal = json_object_get(message, "refusal");
    const bool is_none = !content || json_is_null(content);
    const bool refuses = t->given_back && role == OMM_ROLE_ASSISTANT && json_is_string(refusal);
    return is_none && refuses ? refusal : content;
}

static omm_err read_message(omm_chat_turns *t, size_t at, const json_t *message, size_t index) {
    omm_role *role = &t->messages[at].role;
    OMM_TRY(read_role(t, role, message, index));
    t->messages[at].is_given = false;
    if (*role == OMM_ROLE_ASSISTANT)
        OMM_TRY(read_weight(t, &t->messages[at].is_given, message, index));
    t->messages[at].call_id = text_or_none(json_object_get(message, "tool_call_id"));
    const json_t *content = content_of(t, message, *role);
    const json_t *calls = json_object_get(message, "tool_calls");
    const bool has_calls = json_array_size(calls) > 0 && *role == OMM_ROLE_ASSISTANT;
    const bool may_be_none = has_calls || (t->given_back && *role == OMM_ROLE_ASSISTANT &&
                                           (!content || json_is_null(content)));
    if (may_be_none && !has_calls && json_is_object(json_object_get(message, "function_call")))
        return BAD(t, CALLS, "message %zu: function_call; accepted: tool_calls", index);
    if (!is_list_or_none(calls))
        return BAD(t, CALLS, "message %zu: tool_calls: a list of calls is needed", index);
    if (!json_is_string(content) && !json_is_array(content) && !may_be_none)
        return BAD(t, CONTENT, "message %zu: content is not a string", index);
    omm_bytes text = omm_bytes_str("");
    size_t from = 0;
    t->spans[at] = (struct omm_chat_span){.calls = has_calls};
    if (json_is_string(content)) text = text_of(content);
    if (json_is_array(content)) OMM_TRY(join_parts(t, &text, &from, content, *role, index));
    t->spans[at].view = text;
    const bool says = text.size > 0;
    if (json_is_array(content)) set_made(t, at, from);
    if (*role == OMM_ROLE_ASSISTANT) OMM_TRY(put_thought(t, at, &text, message, index));
    return has_calls ? write_calls_after(t, at, text, calls, says) : OMM_OK;
}

static omm_bytes span_text(const omm_chat_turns *t, size_t at) {
    if (!t->spans[at].made) return t->spans[at].view;
    const size_t from = t->spans[at].from, to = t->spans[at].to;
    return to > from ? omm_bytes_of(t->texts.data + from, to - from) : omm_bytes_str("");
}

/* The turn at `at`, the first one, has been read: the tools go into it, or into one before it. */
static omm_err put_tools(omm_chat_turns *t, size_t *at, const json_t *tools) {
    omm_buf system;
    const bool is_system = t->messages[*at].role == OMM_ROLE_SYSTEM;
    if (!is_system) {
        t->messages[*at + 1] = t->messages[*at];
        t->spans[*at + 1] = t->spans[*at];
        t->spans[*at] = (struct omm_chat_span){0};
        t->messages[*at].role = OMM_ROLE_SYSTEM;
    }
    omm_bytes text = {0};
    if (is_system)
        text = span_text(t, *at);
    else if (t->tokenizer && !omm_chat_announces(t->tokenizer))
        text = omm_chat_default_system(t->tokenizer);
    omm_buf_init(&system, t->texts.bytes_max);
    omm_err err = omm_buf_append(&system, text.data, text.size);
    if (text.size > 0) text = omm_buf_view(&system);
    if (err == OMM_OK) err = announce(t, *at, text, tools);
    omm_buf_fini(&system);
    *at += !is_system;
    return err;
}

/* A turn of `role` in front of the one at `at`; it says what texts have from `from` on. */
static void insert(omm_chat_turns *t, size_t at, omm_role role, size_t from, size_t to) {
    OMM_ASSERT(t->count < t->capacity);
    const size_t behind = t->count - at;
    memmove(t->messages + at + 1, t->messages + at, behind * sizeof *t->messages);
    memmove(t->spans + at + 1, t->spans + at, behind * sizeof *t->spans);
    t->messages[at] = (omm_message){.role = role};
    t->spans[at] = (struct omm_chat_span){.made = true, .from = from, .to = to};
    t->count++;
}

/* Behind the system's turn, which is made if the template has one then. */
static omm_err put_behind_system(omm_chat_turns *t, size_t from, size_t to) {
    const omm_bytes system = omm_chat_announcing_system(t->tokenizer);
    const bool is_system = t->messages[0].role == OMM_ROLE_SYSTEM;
    insert(t, is_system, OMM_ROLE_TOOLS, from, to);
    if (is_system || system.size == 0) return OMM_OK;
    OMM_TRY(omm_buf_append(&t->texts, system.data, system.size));
    insert(t, 0, OMM_ROLE_SYSTEM, to, t->texts.size);
    return OMM_OK;
}

/* In front of the user's last turn, and of others that say the same, as templates compare them. */
static void put_at_user(omm_chat_turns *t, size_t from, size_t to) {
    size_t last = t->count;
    while (last > 0 && t->messages[last - 1].role != OMM_ROLE_USER) last--;
    if (last == 0) return;
    for (size_t i = last--; i-- > 0;) {
        const bool same = t->messages[i].role == OMM_ROLE_USER &&
                          omm_bytes_equal(span_text(t, i), span_text(t, last));
        if (!same) continue;
        insert(t, i, OMM_ROLE_TOOLS, from, to);
        last++;
    }
}

/* All turns have been read: tools are announced in turns of their own. */
static omm_err put_turns(omm_chat_turns *t, omm_chat_place place, const json_t *tools) {
    const size_t from = t->texts.size;
    OMM_TRY(check_tools(t, tools));
    OMM_TRY(omm_chat_announce_tools(&t->texts, t->tokenizer, (omm_bytes){0}, tools));
    const size_t to = t->texts.size;
    if (place == OMM_CHAT_BEHIND_SYSTEM) return put_behind_system(t, from, to);
    if (place == OMM_CHAT_AT_FRONT) insert(t, 0, OMM_ROLE_TOOLS, from, to);
    if (place == OMM_CHAT_AT_LAST_USER) put_at_user(t, from, to);
    return OMM_OK;
}

bool omm_chat_turns_calls(const omm_chat_turns *t, size_t index) {
    OMM_ASSERT(index < t->count);
    return t->spans[index].calls;
}

omm_err omm_chat_turns_read(omm_chat_turns *t, const json_t *messages, const json_t *tools) {
    const size_t n = json_array_size(messages);
    const omm_chat_place place =
        t->tokenizer ? omm_chat_announces_at(t->tokenizer) : OMM_CHAT_IN_SYSTEM;
    size_t at = 0;
    t->bad = OMM_CHAT_BAD_NONE;
    t->count = 0;
    omm_buf_clear(&t->texts);
    if (!is_list_or_none(tools)) return BAD(t, TOOLS, "tools: a list of tools is needed");
    if (!json_is_array(messages) || n == 0 || n > OMM_CHAT_TURNS_MAX)
        return BAD(t, MESSAGES, "messages: a list of 1 to %u messages is needed",
                   OMM_CHAT_TURNS_MAX);
    OMM_TRY(reserve(t, 2 * n + 2)); /* and a system turn for tools, and turns that announce them */
    for (size_t i = 0; i < n; i++, at++) {
        OMM_TRY(read_message(t, at, json_array_get(messages, i), i));
        if (i == 0 && json_array_size(tools) > 0 && place == OMM_CHAT_IN_SYSTEM)
            OMM_TRY(put_tools(t, &at, tools));
    }
    t->count = at;
    if (json_array_size(tools) > 0 && place != OMM_CHAT_IN_SYSTEM)
        OMM_TRY(put_turns(t, place, tools));
    for (size_t i = 0; i < t->count; i++) t->messages[i].content = span_text(t, i);
    return OMM_OK;
}
