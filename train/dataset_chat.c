/* dataset_chat.c - the messages of a chat line as turns of the model's template. */
#include "dataset_internal.h"

#include <math.h>
#include <string.h>

/* Why a line is bad, of what its conversation is. */
static omm_data_bad bad_of(omm_chat_bad bad) {
    static const omm_data_bad kinds[] = {
        [OMM_CHAT_BAD_NONE] = OMM_DATA_BAD_NONE,
        [OMM_CHAT_BAD_MESSAGES] = OMM_DATA_BAD_MESSAGES,
        [OMM_CHAT_BAD_CONTENT] = OMM_DATA_BAD_CONTENT,
        [OMM_CHAT_BAD_TOOLS] = OMM_DATA_BAD_TOOLS,
        [OMM_CHAT_BAD_CALLS] = OMM_DATA_BAD_TOOLS,
    };
    return kinds[bad];
}

/* An integer that has not kept its digits (omm_json_parse_wide). */
static bool has_wide(json_t *value) {
    json_t *item = NULL;
    const char *key = NULL;
    size_t i = 0;
    if (json_is_real(value)) return fabs(json_real_value(value)) >= 0x1p63;
    json_array_foreach(value, i, item) if (has_wide(item)) return true;
    json_object_foreach(value, key, item) if (has_wide(item)) return true;
    return false;
}

/* Nobody learns an id that stands beside a chat; what tools and calls say is learned digit by digit. */
static omm_err check_digits(maker *m, const json_t *root, const json_t *messages) {
    const json_t *message = NULL;
    size_t i = 0;
    bool is_lost = has_wide(json_object_get(root, "tools"));
    json_array_foreach(messages, i, message) is_lost |=
        has_wide(json_object_get(message, "tool_calls"));
    if (!is_lost) return OMM_OK;
    return BAD(m, TOOLS, "%s",
               "tools, tool_calls: a number over 64 bits, whose digits would be lost; accepted: "
               "whole numbers from -2^63 to 2^63 - 1, or a string");
}

static omm_err read_messages(maker *m, const json_t *root) {
    const json_t *list = json_object_get(root, "messages");
    const size_t n = json_array_size(list);
    if (!list) return BAD(m, MESSAGES, "%s", "messages: missing; accepted: " MAKER_LINE);
    if (!json_is_array(list) || n == 0 || n > MESSAGES_MAX)
        return BAD(m, MESSAGES, "messages: a list of 1 to %d messages is needed", MESSAGES_MAX);
    if (m->is_wide) OMM_TRY(check_digits(m, root, list));
    const omm_err err = omm_chat_turns_read(&m->turns, list, json_object_get(root, "tools"));
    if (err != OMM_ERR_FORMAT) return err;
    return make_bad(
        m, bad_of(m->turns.bad),
        omm_raise(err, "%s:%u:%s %s", m->name, m->line, m->element, omm_err_sentence()));
}

/* The first assistant turn that is learned; with loss on the completion alone, the last. */
static omm_err find_reply(maker *m, made *out) {
    const omm_message *messages = m->turns.messages, *reply = NULL;
    bool calls = false, any = false;
    for (size_t i = 0; i < m->turns.count; i++)
        if (messages[i].role == OMM_ROLE_ASSISTANT && !messages[i].is_given &&
            (!reply || m->options.loss == OMM_LOSS_COMPLETION)) {
            reply = &messages[i];
            calls = omm_chat_turns_calls(&m->turns, i);
        }
    for (size_t i = 0; i < m->turns.count; i++) any |= messages[i].role == OMM_ROLE_ASSISTANT;
    if (!reply)
        return BAD(m, REPLY, "%s",
                   any ? "messages: every assistant turn has weight 0: nothing to learn from"
                       : "messages: no assistant turn to learn from");
    OMM_TRY(omm_buf_append(&m->reply, reply->content.data, reply->content.size));
    OMM_TRY(omm_buf_append(&m->reply, "", 1));
    out->reply = (const char *)m->reply.data;
    OMM_TRY(maker_find_call(m, out));
    out->has_call = out->has_call || calls;
    return OMM_OK;
}

omm_err maker_chat(maker *m, made *out, const json_t *root) {
    OMM_TRY(read_messages(m, root));
    if (m->tokenizer)
        OMM_TRY(omm_chat_render(&m->prompt, m->tokenizer, m->turns.messages, m->turns.count,
                                OMM_CHAT_WHOLE));
    return find_reply(m, out);
}
