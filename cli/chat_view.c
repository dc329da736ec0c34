/* chat_view.c - owns the output of `meshmind chat`. */
#include "chat_view.h"

#include "omm/json.h"
#include "omm/plain_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES_MAX (1u << 20)

void chat_view_init(chat_view *view, bool json) {
    *view = (chat_view){.json = json};
    omm_buf_init(&view->argument, LINE_BYTES_MAX);
    omm_buf_init(&view->line, LINE_BYTES_MAX);
}

void chat_view_fini(chat_view *view) {
    omm_buf_fini(&view->argument);
    omm_buf_fini(&view->line);
}

/* ---- Text ---------------------------------------------------------------------------------- */

/* Who talks to nobody is told so at once: notes would be saved for a reader that has gone. */
static omm_err put_bytes(chat_view *view, omm_bytes text) {
    if (text.size == 0) return OMM_OK;
    if (fwrite(text.data, 1, text.size, stdout) != text.size || fflush(stdout) != 0)
        return omm_raise(OMM_ERR_IO, "cannot write the output: %s", strerror(errno));
    view->mid_line = text.data[text.size - 1] != '\n';
    return OMM_OK;
}

static omm_err end_line(chat_view *view) {
    return view->mid_line ? put_bytes(view, omm_bytes_str("\n")) : OMM_OK;
}

/* A line of its own, from `line`, in brackets. */
static omm_err put_line(chat_view *view) {
    OMM_TRY(omm_buf_append(&view->line, "]\n", 2));
    OMM_TRY(end_line(view));
    return put_bytes(view, omm_buf_view(&view->line));
}

/* "[calculator: 47*86 = 4042]"; further lines of a result are indented. */
static omm_err put_result(chat_view *view, const omm_assistant_event *e) {
    omm_buf *line = &view->line;
    bool sum = !e->failed && strcmp(e->tool, "calculator") == 0;
    OMM_TRY(omm_buf_printf(line, "[%s: ", e->tool));
    OMM_TRY(omm_text_clean(line, omm_buf_view(&view->argument)));
    if (view->argument.size > 0) OMM_TRY(omm_buf_printf(line, sum ? " = " : " -> "));
    for (size_t i = 0; i < e->text.size; i++) {
        OMM_TRY(omm_buf_append(line, &e->text.data[i], 1));
        if (e->text.data[i] == '\n') OMM_TRY(omm_buf_printf(line, "    "));
    }
    omm_buf_clear(&view->argument);
    return put_line(view);
}

/* A thought begins, or the answer behind one. */
static omm_err turn_to(chat_view *view, bool thinking, const char *word) {
    if (view->thinking == thinking) return OMM_OK;
    view->thinking = thinking;
    OMM_TRY(omm_buf_printf(&view->line, "[%s", word));
    OMM_TRY(put_line(view));
    omm_buf_clear(&view->line);
    return OMM_OK;
}

static omm_err show_text(chat_view *view, const omm_assistant_event *e) {
    const bool is_thought = e->kind == OMM_ASSISTANT_THOUGHT;
    omm_buf_clear(&view->line);
    switch (e->kind) {
    case OMM_ASSISTANT_THOUGHT:
    case OMM_ASSISTANT_TEXT:
        OMM_TRY(turn_to(view, is_thought, is_thought ? "thinks" : "answers"));
        OMM_TRY(omm_text_clean(&view->line, e->text));
        return put_bytes(view, omm_buf_view(&view->line));
    case OMM_ASSISTANT_CALL:
        view->thinking = false; /* what it thinks of the result is another thought */
        omm_buf_clear(&view->argument);
        return omm_buf_append(&view->argument, e->text.data, e->text.size);
    case OMM_ASSISTANT_RESULT: return put_result(view, e);
    case OMM_ASSISTANT_SOURCE:
        OMM_TRY(omm_buf_printf(&view->line, "[source: "));
        OMM_TRY(omm_text_clean(&view->line, omm_bytes_str(e->file)));
        OMM_TRY(omm_buf_printf(&view->line, ", passage %u", e->number));
        return put_line(view);
    case OMM_ASSISTANT_NOTICE:
        OMM_TRY(omm_buf_printf(&view->line, "["));
        OMM_TRY(omm_text_clean(&view->line, e->text));
        return put_line(view);
    }
    return OMM_OK;
}

/* ---- JSON Lines ---------------------------------------------------------------------------- */

static omm_err set_text(chat_view *view, json_t *object, omm_bytes text) {
    omm_buf clean;
    omm_buf_init(&clean, LINE_BYTES_MAX);
    omm_err err = omm_text_clean(&clean, text);
    if (err == OMM_OK) err = omm_buf_append(&clean, "", 1); /* the NUL */
    if (err == OMM_OK) err = omm_json_set_str(object, "text", (const char *)clean.data);
    omm_buf_fini(&clean);
    (void)view;
    return err;
}

/* Takes `object`. */
static omm_err put_json(chat_view *view, json_t *object) {
    omm_buf_clear(&view->line);
    omm_err err = omm_json_write(&view->line, object);
    json_decref(object);
    return err == OMM_OK ? put_bytes(view, omm_buf_view(&view->line)) : err;
}

static omm_err fill(chat_view *view, json_t *object, const omm_assistant_event *e) {
    static const char *const s_names[] = {
        [OMM_ASSISTANT_THOUGHT] = "thought", [OMM_ASSISTANT_TEXT] = "text",
        [OMM_ASSISTANT_CALL] = "call",       [OMM_ASSISTANT_RESULT] = "result",
        [OMM_ASSISTANT_SOURCE] = "source",   [OMM_ASSISTANT_NOTICE] = "notice"};
    OMM_TRY(omm_json_set_str(object, "event", s_names[e->kind]));
    if (e->kind == OMM_ASSISTANT_SOURCE) {
        OMM_TRY(omm_json_set(object, "file", omm_json_text(e->file)));
        return omm_json_set_int(object, "passage", e->number);
    }
    if (e->tool) OMM_TRY(omm_json_set_str(object, "tool", e->tool));
    if (e->kind == OMM_ASSISTANT_RESULT) OMM_TRY(omm_json_set_bool(object, "failed", e->failed));
    return set_text(view, object, e->text);
}

static omm_err show_json(chat_view *view, const omm_assistant_event *e) {
    json_t *object = json_object();
    omm_err err = fill(view, object, e);
    if (err == OMM_OK) return put_json(view, object);
    json_decref(object);
    return err;
}

/* ---- Both ---------------------------------------------------------------------------------- */

omm_err chat_view_event(void *ud, const omm_assistant_event *event) {
    chat_view *view = ud;
    return view->json ? show_json(view, event) : show_text(view, event);
}

omm_err chat_view_user(chat_view *view, omm_bytes text) {
    if (view->json) {
        json_t *object = json_pack("{s:s}", "event", "user");
        omm_err err = set_text(view, object, text);
        if (err == OMM_OK) return put_json(view, object);
        json_decref(object);
        return err;
    }
    omm_buf_clear(&view->line);
    OMM_TRY(omm_buf_printf(&view->line, "> "));
    OMM_TRY(omm_text_clean(&view->line, text));
    OMM_TRY(omm_buf_printf(&view->line, "\n"));
    OMM_TRY(end_line(view));
    return put_bytes(view, omm_buf_view(&view->line));
}

omm_err chat_view_end(chat_view *view, const omm_model_speaker_usage *before,
                      const omm_model_speaker_usage *after) {
    const long long prompt = (long long)(after->prompt_tokens - before->prompt_tokens);
    const long long reused = (long long)(after->reused_tokens - before->reused_tokens);
    const long long answer = (long long)(after->answer_tokens - before->answer_tokens);
    const long long accepted = (long long)(after->accepted_tokens - before->accepted_tokens);
    if (view->json)
        return put_json(view, json_pack("{s:s, s:I, s:I, s:I, s:I}", "event", "end",
                                        "prompt_tokens", (json_int_t)prompt, "reused_tokens",
                                        (json_int_t)reused, "answer_tokens", (json_int_t)answer,
                                        "accepted_tokens", (json_int_t)accepted));
    view->thinking = false;
    OMM_TRY(end_line(view));
    OMM_TRY(put_bytes(view, omm_bytes_str("\n")));
    if (!view->stats) return OMM_OK;
    fprintf(stderr, "prompt %lld tokens, %lld of them in the cache; answer %lld tokens", prompt,
            reused, answer);
    if (view->lookup) fprintf(stderr, ", %lld of them proposed before", accepted);
    fputc('\n', stderr);
    return OMM_OK;
}

omm_err chat_view_say(chat_view *view, const char *fmt, ...) {
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return chat_view_event(
        view, &(omm_assistant_event){.kind = OMM_ASSISTANT_NOTICE, .text = omm_bytes_str(text)});
}
