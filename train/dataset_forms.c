/* dataset_forms.c - what a line says it is by its members, and the chats that are spelt otherwise: Alpaca's
 * instructions, ShareGPT's conversations. */
#include "dataset_internal.h"

#include <string.h>

/* --- what a line is -------------------------------------------------------------------------- */

/* In this order: what has several (Alpaca's own file has "text" beside the rest) is the first. */
static const struct {
    const char *member;
    omm_data_format format;
} s_members[] = {{"messages", OMM_DATA_CHAT},      {"conversations", OMM_DATA_SHAREGPT},
                 {"prompt", OMM_DATA_COMPLETION},  {"completion", OMM_DATA_COMPLETION},
                 {"instruction", OMM_DATA_ALPACA}, {"text", OMM_DATA_LINES}};

omm_data_format form_of(const json_t *root) {
    for (size_t i = 0; i < sizeof s_members / sizeof *s_members; i++)
        if (json_object_get(root, s_members[i].member)) return s_members[i].format;
    return OMM_DATA_DETECT;
}

bool form_is_chat(omm_data_format format) {
    return format == OMM_DATA_CHAT || format == OMM_DATA_ALPACA || format == OMM_DATA_SHAREGPT;
}

bool omm_data_format_is_text(omm_data_format format) {
    return format == OMM_DATA_TEXT || format == OMM_DATA_LINES;
}

/* --- mixtures -------------------------------------------------------------------------------- */

/* What a line of each format is called, and what is wrong with a file that has it beside others. */
static const struct {
    const char *one, *many, *members;
    omm_data_bad bad;
} s_called[] = {
    [OMM_DATA_CHAT] = {"a chat (\"messages\")", "chats", "\"messages\"", OMM_DATA_BAD_MESSAGES},
    [OMM_DATA_COMPLETION] = {"a prompt", "completions", "\"prompt\" and \"completion\"",
                             OMM_DATA_BAD_COMPLETION},
    [OMM_DATA_ALPACA] = {"an instruction", "instructions", "\"instruction\" and \"output\"",
                         OMM_DATA_BAD_INSTRUCTION},
    [OMM_DATA_SHAREGPT] = {"a conversation (\"conversations\")", "conversations",
                           "\"conversations\"", OMM_DATA_BAD_MESSAGES},
    [OMM_DATA_LINES] = {"a text (\"text\")", "texts", "\"text\"", OMM_DATA_BAD_TEXT},
};

/* A member that tells this format is there, whatever else is. */
static bool may_be(const json_t *root, omm_data_format format) {
    for (size_t i = 0; i < sizeof s_members / sizeof *s_members; i++)
        if (s_members[i].format == format && json_object_get(root, s_members[i].member))
            return true;
    return false;
}

omm_err form_check(maker *m, const json_t *root) {
    const omm_data_format wanted = m->options.format, is = form_of(root);
    if (is == OMM_DATA_DETECT || may_be(root, wanted)) return OMM_OK;
    const omm_err err =
        m->is_asked
            ? omm_raise(OMM_ERR_FORMAT,
                        "%s:%u:%s %s, where %s are asked for; accepted: %s, or the format %s",
                        m->name, m->line, m->element, s_called[is].one, s_called[wanted].many,
                        s_called[wanted].members, omm_data_format_name(is))
            : omm_raise(OMM_ERR_FORMAT,
                        "%s:%u:%s %s, in a file whose first %s is %s; accepted: one kind in a file",
                        m->name, m->line, m->element, s_called[is].one,
                        m->element[0] ? "element" : "line", s_called[wanted].one);
    return make_bad(m, s_called[wanted].bad, err);
}

/* --- other spellings of a chat ----------------------------------------------------------------- */

/* Append a message, which takes `content`. */
static omm_err push(json_t *messages, const char *role, json_t *content) {
    if (json_array_append_new(messages, json_pack("{s:s,s:o}", "role", role, "content", content)) ==
        0)
        return OMM_OK;
    return dataset_no_memory();
}

static omm_err read_part(maker *m, const char **out, const json_t *root, const char *key,
                         bool is_needed) {
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    if ((is_needed && (!text || !*text)) || (value && !text && !json_is_null(value)))
        return BAD(m, INSTRUCTION, "%s: a string%s is needed", key,
                   is_needed ? " that is not empty" : "");
    *out = text ? text : "";
    return OMM_OK;
}

/* As one turn of the user and one of the assistant. */
static omm_err of_alpaca(maker *m, json_t *messages, const json_t *root) {
    const char *instruction = NULL, *input = NULL, *output = NULL;
    OMM_TRY(read_part(m, &instruction, root, "instruction", true));
    OMM_TRY(read_part(m, &input, root, "input", false));
    OMM_TRY(read_part(m, &output, root, "output", true));
    OMM_TRY(
        push(messages, "user", json_sprintf("%s%s%s", instruction, *input ? "\n\n" : "", input)));
    return push(messages, "assistant", json_string(output));
}

static const char *role_of(const char *from) {
    static const char *const roles[][2] = {{"human", "user"},
                                           {"user", "user"},
                                           {"gpt", "assistant"},
                                           {"assistant", "assistant"},
                                           {"system", "system"}};
    for (size_t i = 0; from && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(from, roles[i][0]) == 0) return roles[i][1];
    return NULL;
}

static omm_err of_sharegpt(maker *m, json_t *messages, const json_t *root) {
    const json_t *list = json_object_get(root, "conversations"), *turn = NULL;
    size_t i = 0;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > MESSAGES_MAX)
        return BAD(m, MESSAGES, "conversations: a list of 1 to %d turns is needed", MESSAGES_MAX);
    json_array_foreach(list, i, turn) {
        const char *from = json_string_value(json_object_get(turn, "from"));
        json_t *value = json_object_get(turn, "value");
        const char *role = role_of(from);
        if (!from) return BAD(m, CONTENT, "turn %zu has no \"from\"", i);
        if (!role)
            return BAD(m, CONTENT,
                       "turn %zu: from '%.40s'; accepted: human, user, gpt, assistant, system", i,
                       from);
        if (!json_is_string(value)) return BAD(m, CONTENT, "turn %zu: value is not a string", i);
        OMM_TRY(push(messages, role, json_incref(value)));
        json_t *weight = json_object_get(turn, "weight");
        if (weight && json_object_set(json_array_get(messages, i), "weight", weight) != 0)
            return dataset_no_memory();
    }
    return OMM_OK;
}

omm_err form_make_messages(maker *m, json_t *root) {
    if (m->options.format == OMM_DATA_CHAT) return OMM_OK;
    json_t *messages = json_array();
    if (!messages) return dataset_no_memory();
    omm_err err = m->options.format == OMM_DATA_ALPACA ? of_alpaca(m, messages, root)
                                                       : of_sharegpt(m, messages, root);
    if (err == OMM_OK && json_object_set(root, "messages", messages) != 0)
        err = dataset_no_memory();
    json_decref(messages);
    return err;
}
