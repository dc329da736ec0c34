/* chat_calls.c - how models write calls of tools: each form's marks, and a call written in it. */
#include "chat_internal.h"

#include <string.h>

#define MISTRAL "[TOOL_CALLS]"
#define TOOL "<|tool_call|>"

static const calls_style s_styles[OMM_CALLS_FORM_COUNT] = {
    [OMM_CALLS_MARKED] = {.name = "marked",
                          .shown = "<tool_call> {\"name\": ..., \"arguments\": ...} </tool_call>",
                          .kind = CALLS_EACH,
                          .opener = OPENER_MARKED,
                          .opens = OMM_CHAT_CALL_OPENS,
                          .gap = "\n",
                          .closes = "\n" OMM_CHAT_CALL_CLOSES,
                          .key = "arguments"},
    [OMM_CALLS_BARE] = {.name = "bare",
                        .shown = "{\"name\": ..., \"parameters\": ...}",
                        .kind = CALLS_WHOLE,
                        .opener = OPENER_BARE,
                        .gap = "",
                        .closes = "",
                        .key = "parameters",
                        .alone = true},
    [OMM_CALLS_MISTRAL] = {.name = "mistral",
                           .shown = MISTRAL " [{\"name\": ..., \"arguments\": ...}, ...]",
                           .kind = CALLS_LIST,
                           .opener = OPENER_MISTRAL,
                           .opens = MISTRAL,
                           .gap = " ",
                           .closes = "",
                           .key = "arguments",
                           .ids = true,
                           .alone = true},
    [OMM_CALLS_MISTRAL_TEKKEN] = {.name = "mistral-tekken",
                                  .shown = MISTRAL "[{\"name\": ..., \"arguments\": ...}, ...]",
                                  .kind = CALLS_LIST,
                                  .opener = OPENER_MISTRAL,
                                  .opens = MISTRAL,
                                  .gap = "",
                                  .closes = "",
                                  .key = "arguments",
                                  .ids = true,
                                  .alone = true},
    [OMM_CALLS_MISTRAL_ARGS] = {.name = "mistral-args",
                                .shown = MISTRAL "NAME" CALLS_ARGS "{...}",
                                .kind = CALLS_NAMED,
                                .opener = OPENER_MISTRAL,
                                .opens = MISTRAL,
                                .gap = "",
                                .closes = ""},
    [OMM_CALLS_MISTRAL_IDS] = {.name = "mistral-ids",
                               .shown = MISTRAL "NAME" CALLS_ID "ID" CALLS_ARGS "{...}",
                               .kind = CALLS_NAMED,
                               .opener = OPENER_MISTRAL,
                               .opens = MISTRAL,
                               .gap = "",
                               .closes = "",
                               .ids = true,
                               .alone = true},
    [OMM_CALLS_GRANITE] = {.name = "granite",
                           .shown = TOOL "[{\"name\": ..., \"arguments\": ...}, ...]",
                           .kind = CALLS_LIST,
                           .opener = OPENER_TOOL,
                           .opens = TOOL,
                           .gap = "",
                           .closes = "",
                           .key = "arguments"},
    [OMM_CALLS_PHI4] = {.name = "phi4",
                        .shown = TOOL "[{\"name\": ..., \"arguments\": ...}, ...]<|/tool_call|>",
                        .kind = CALLS_LIST,
                        .opener = OPENER_TOOL,
                        .opens = TOOL,
                        .gap = "",
                        .closes = "<|/tool_call|>",
                        .key = "arguments"},
    [OMM_CALLS_EXAONE] = {.name = "exaone",
                          .shown = "<tool_call>{\"name\": ..., \"arguments\": ...}</tool_call>",
                          .kind = CALLS_EACH,
                          .opener = OPENER_MARKED,
                          .opens = OMM_CHAT_CALL_OPENS,
                          .gap = "",
                          .closes = OMM_CHAT_CALL_CLOSES,
                          .key = "arguments"},
};

const calls_style *calls_style_of(omm_calls_form form) {
    OMM_ASSERT((unsigned)form < OMM_CALLS_FORM_COUNT);
    return &s_styles[form];
}

const char *omm_calls_form_name(omm_calls_form form) {
    return calls_style_of(form)->name;
}

const char *omm_calls_form_shown(omm_calls_form form) {
    return calls_style_of(form)->shown;
}

bool omm_chat_calls_alone(omm_calls_form form) {
    return calls_style_of(form)->alone;
}

bool omm_chat_calls_listed(omm_calls_form form) {
    return calls_style_of(form)->kind == CALLS_LIST;
}

bool omm_chat_calls_named(omm_calls_form form) {
    return calls_style_of(form)->kind == CALLS_NAMED;
}

/* ---- Marks --------------------------------------------------------------------------------- */

/* NULL: there is no such one. */
static const char *mark_of(omm_calls_form form, bool own) {
    const calls_style *s = calls_style_of(form);
    if (!own) return OMM_CHAT_CALL_OPENS;
    return s->opener == OPENER_MARKED || s->opener == OPENER_BARE ? NULL : s->opens;
}

size_t omm_call_mark_bytes(omm_calls_form form, bool own) {
    const char *mark = mark_of(form, own);
    return mark ? strlen(mark) : 0;
}

/* Does the mark go on so behind the bytes that there are of another?  None begins again inside itself but with its first
 * byte. */
static bool goes_on(const char *mark, const char *other, size_t at, uint8_t byte) {
    return mark && strncmp(mark, other, at) == 0 && (uint8_t)mark[at] == byte;
}

bool omm_call_mark_follow(omm_call_mark *mark, omm_calls_form form, uint8_t byte) {
    const char *now = mark_of(form, mark->own != 0);
    OMM_ASSERT(now);
    for (size_t at = mark->at;; at = 0) {
        for (unsigned own = 0; own < 2; own++) {
            const char *one = mark_of(form, own != 0);
            if (!goes_on(one, now, at, byte)) continue;
            *mark = (omm_call_mark){(uint8_t)own, (uint8_t)(at + 1)};
            return one[at + 1] == '\0';
        }
        if (at == 0) break;
    }
    *mark = (omm_call_mark){0, 0};
    return false;
}

size_t omm_chat_before_calls(bool *sure, omm_bytes text, omm_calls_form form) {
    omm_call_mark mark = {0, 0};
    *sure = false;
    for (size_t i = 0; i < text.size; i++) {
        if (!omm_call_mark_follow(&mark, form, text.data[i])) continue;
        *sure = true;
        return i + 1 - mark.at;
    }
    return text.size - mark.at;
}

size_t omm_chat_mark_tail(omm_bytes text, omm_calls_form form) {
    enum { LONGEST = 16 }; /* bytes, and more than a mark has */
    omm_call_mark mark = {0, 0};
    for (size_t i = text.size > LONGEST ? text.size - LONGEST : 0; i < text.size; i++)
        if (omm_call_mark_follow(&mark, form, text.data[i])) mark = (omm_call_mark){0, 0};
    return mark.at;
}

/* ---- Names and ids ------------------------------------------------------------------------- */

bool calls_is_name(omm_bytes text) {
    for (size_t i = 0; i < text.size; i++)
        if (!calls_is_id_byte(text.data[i]) && text.data[i] != '_' && text.data[i] != '-')
            return false;
    return true;
}

void calls_id(char out[OMM_CHAT_CALL_ID_BYTES + 1], omm_bytes id) {
    size_t at = OMM_CHAT_CALL_ID_BYTES;
    memset(out, '0', at);
    out[at] = '\0';
    for (size_t i = id.size; i > 0 && at > 0; i--)
        if (calls_is_id_byte(id.data[i - 1])) out[--at] = (char)id.data[i - 1];
}

/* ---- Writing ------------------------------------------------------------------------------- */

static omm_err put_arguments(omm_buf *out, const omm_written_call *call) {
    if (call->arguments) return omm_json_write_spaced(out, call->arguments);
    return omm_buf_append(out, call->spelled.data, call->spelled.size);
}

static omm_err put_object(omm_buf *out, const calls_style *s, const omm_written_call *call) {
    char id[OMM_CHAT_CALL_ID_BYTES + 1];
    json_t *name = json_string(call->name);
    if (!name) return omm_raise(OMM_ERR_FORMAT, "tool call: unusable name '%.60s'", call->name);
    omm_err err = omm_buf_printf(out, "{\"name\": ");
    if (err == OMM_OK) err = omm_json_write_spaced(out, name);
    json_decref(name);
    OMM_TRY(err);
    OMM_TRY(omm_buf_printf(out, ", \"%s\": ", s->key));
    OMM_TRY(put_arguments(out, call));
    calls_id(id, call->id);
    if (s->ids && call->id.size > 0) OMM_TRY(omm_buf_printf(out, ", \"id\": \"%s\"", id));
    return omm_buf_printf(out, "}");
}

/* No quotes stand around the name. */
static omm_err put_named(omm_buf *out, const calls_style *s, const omm_written_call *call) {
    char id[OMM_CHAT_CALL_ID_BYTES + 1];
    if (!*call->name || !calls_is_name(omm_bytes_str(call->name)))
        return omm_raise(OMM_ERR_FORMAT, "tool call: names have letters, digits, _ and - only");
    calls_id(id, call->id);
    OMM_TRY(omm_buf_printf(out, "%s%s", s->opens, call->name));
    if (s->ids && call->id.size > 0) OMM_TRY(omm_buf_printf(out, CALLS_ID "%s", id));
    OMM_TRY(omm_buf_printf(out, CALLS_ARGS));
    return put_arguments(out, call);
}

static omm_err put_each(omm_buf *out, const calls_style *s, const omm_written_call *call) {
    if (call->index > 0 || call->says) OMM_TRY(omm_buf_printf(out, "\n"));
    OMM_TRY(omm_buf_printf(out, "%s%s", s->opens, s->gap));
    OMM_TRY(put_object(out, s, call));
    return omm_buf_printf(out, "%s", s->closes);
}

static omm_err put_in_list(omm_buf *out, const calls_style *s, const omm_written_call *call) {
    if (call->index == 0)
        OMM_TRY(omm_buf_printf(out, "%s%s[", s->opens, s->gap));
    else
        OMM_TRY(omm_buf_printf(out, ", "));
    OMM_TRY(put_object(out, s, call));
    return call->index + 1 == call->count ? omm_buf_printf(out, "]%s", s->closes) : OMM_OK;
}

static omm_err put_call(omm_buf *out, const calls_style *s, const omm_written_call *call) {
    switch (s->kind) {
    case CALLS_EACH: return put_each(out, s, call);
    case CALLS_LIST: return put_in_list(out, s, call);
    case CALLS_NAMED: return put_named(out, s, call);
    case CALLS_WHOLE: break;
    }
    if (call->index > 0) OMM_TRY(omm_buf_printf(out, "; "));
    return put_object(out, s, call);
}

omm_err omm_chat_write_nth(omm_buf *out, omm_calls_form form, const omm_written_call *call) {
    const size_t before = out->size;
    const omm_err err = put_call(out, calls_style_of(form), call);
    if (err != OMM_OK) out->size = before;
    return err;
}

omm_err omm_chat_write_call(omm_buf *out, omm_calls_form form, const char *name,
                            json_t *arguments) {
    const omm_written_call call = {.name = name, .arguments = arguments, .count = 1};
    return omm_chat_write_nth(out, form, &call);
}

omm_err omm_chat_begin_call(omm_buf *out, omm_calls_form form, const char *name) {
    const calls_style *s = calls_style_of(form);
    const char *opens = s->opens ? s->opens : "", *list = s->kind == CALLS_LIST ? "[" : "";
    if (s->kind == CALLS_NAMED)
        return omm_buf_printf(out, "%s%s%s", opens, name ? name : "", name ? CALLS_ARGS : "");
    OMM_TRY(omm_buf_printf(out, "%s%s%s" OMM_CHAT_BARE_OPENS, opens, s->gap, list));
    return name ? omm_buf_printf(out, " \"%s\", \"%s\":", name, s->key) : OMM_OK;
}
