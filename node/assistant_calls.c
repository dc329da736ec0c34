/* assistant_calls.c - a call of the speaker: checked against what was said, run, its result given back. */
#include "assistant_internal.h"

#include "checks.h"
#include "omm/calculator.h"

#include <string.h>

_Static_assert(OMM_CALCULATOR_BYTES_MAX <= OMM_NOTE_BYTES_MAX, "one buffer for both");

/* Put this call in the place of the speaker's last turn; `value` may stand in an earlier turn. */
static omm_err replace_call(omm_assistant *a, const char *tool, const char *name, omm_bytes value) {
    json_t *arguments = json_pack("{s:s%}", name, value.data, value.size);
    omm_buf_clear(&a->answer);
    omm_err err = omm_chat_write_call(&a->answer, assistant_calls(a), tool, arguments);
    json_decref(arguments);
    OMM_TRY(err);
    transcript_remove(&a->turns, a->turns.count - 1, a->turns.count);
    return transcript_push(&a->turns, OMM_ROLE_ASSISTANT, omm_buf_view(&a->answer));
}

/* Numbers in a sum that nobody said: the model may have made them up. */
static omm_err check_numbers(omm_assistant *a, omm_bytes expression) {
    omm_buf unsaid;
    omm_buf_init(&unsaid, NOTICE_BYTES_MAX);
    /* the turn with the call itself is not evidence */
    omm_err err = checks_put_unsaid(&unsaid, expression, CHECKS_NUMBERS, a->turns.messages,
                                    a->turns.count - 1, true);
    bool percent = omm_bytes_equal(omm_buf_view(&unsaid), omm_bytes_str("\"100\""));
    if (err == OMM_OK && unsaid.size > 0 && !percent)
        err = assistant_notice(a, "check: nobody said %.*s", (int)unsaid.size,
                               (const char *)unsaid.data);
    omm_buf_fini(&unsaid);
    return err;
}

static size_t last_user(const omm_assistant *a) {
    size_t at = a->turns.count - 1;
    while (a->turns.messages[at].role != OMM_ROLE_USER) at--;
    return at;
}

/* "Save this note: TEXT" says itself what the note is: the text after the first colon, or empty. */
static omm_bytes find_note(const omm_assistant *a) {
    omm_bytes said = a->turns.messages[last_user(a)].content;
    for (size_t i = 0; i + 2 < said.size; i++)
        if (said.data[i] == ':' && said.data[i + 1] == ' ')
            return omm_bytes_of(said.data + i + 2, said.size - i - 2);
    return (omm_bytes){0};
}

/* The user dictated it: "... note ...: TEXT". */
static bool is_dictated(const omm_assistant *a, omm_bytes own) {
    const omm_bytes said = a->turns.messages[last_user(a)].content;
    return own.size > 0 &&
           checks_has_word(omm_bytes_of(said.data, said.size - own.size - 2), "note");
}

/* Does the model's note leave out words of what the user dictated? */
static omm_err check_dictated(bool *shorter, const omm_assistant *a, omm_bytes own,
                              const char *argument) {
    const omm_message written = {.role = OMM_ROLE_USER, .content = omm_bytes_str(argument)};
    omm_buf dropped;
    *shorter = false;
    if (!is_dictated(a, own)) return OMM_OK;
    omm_buf_init(&dropped, NOTICE_BYTES_MAX);
    omm_err err = checks_put_unsaid(&dropped, own, CHECKS_ALL, &written, 1, true);
    if (err == OMM_ERR_TOO_BIG) err = OMM_OK; /* more than a notice holds are left out */
    *shorter = err == OMM_OK && dropped.size > 0;
    omm_buf_fini(&dropped);
    return err;
}

/* A note is kept for long, so every word of it must have been said, and of one that is dictated none left out.  Else
 * the user's own words are taken, where they are marked by a colon, and if not, nothing is saved: then *done. */
static omm_err check_note(bool *done, char out[OMM_NOTE_BYTES_MAX + 1], const char **argument,
                          omm_assistant *a) {
    omm_buf unsaid;
    omm_buf_init(&unsaid, NOTICE_BYTES_MAX);
    omm_err err = checks_put_unsaid(&unsaid, omm_bytes_str(*argument), CHECKS_ALL,
                                    a->turns.messages, a->turns.count - 1, true);
    omm_bytes own = find_note(a);
    bool shorter = false;
    if (err == OMM_OK) err = check_dictated(&shorter, a, own, *argument);
    if (err != OMM_OK || (unsaid.size == 0 && !(shorter && own.size <= OMM_NOTE_BYTES_MAX))) {
        /* as it should be */
    } else if (own.size > 0 && own.size <= OMM_NOTE_BYTES_MAX) {
        err = assistant_notice(a, "the model wrote \"%s\"; your own words are saved", *argument);
        memcpy(out, own.data, own.size);
        out[own.size] = '\0';
        *argument = out;
        if (err == OMM_OK) err = replace_call(a, "note_save", "text", own);
    } else {
        *done = true;
        err = assistant_notice(a, "not saved: nobody said %.*s; write \"Save this note: ...\"",
                               (int)unsaid.size, (const char *)unsaid.data);
        if (err == OMM_OK)
            err = transcript_push(&a->turns, OMM_ROLE_ASSISTANT,
                                  omm_bytes_str("I did not save that."));
    }
    omm_buf_fini(&unsaid);
    return err;
}

/* The value of an expression, or what is wrong with it. */
static omm_err work_out(omm_buf *out, omm_bytes expression) {
    omm_err err = omm_calculate(out, expression);
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return omm_buf_printf(out, "error: %s", omm_err_sentence());
}

/* Digits and signs alone: whoever writes that wants it calculated, even where it is refused. */
static bool looks_like_sum(omm_bytes text) {
    static const char s_signs[] = "+-*/^%x";
    bool digit = false;
    bool sign = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = (char)text.data[i];
        if (c == '\0' || !strchr("0123456789.,() +-*/^%x", c)) return false;
        digit = digit || (c >= '0' && c <= '9');
        sign = sign || strchr(s_signs, c) != NULL;
    }
    return digit && sign;
}

/* Too large to be worked out, and an expression all the same: it is one with its numbers cut short.  A long number alone is
 * none, nor are words around one. */
static bool is_large_sum(omm_bytes core) {
    enum { DIGITS_KEPT = 6 };
    char text[OMM_CALCULATOR_BYTES_MAX];
    size_t size = 0, digits = 0;
    if (core.size > sizeof text) return false;
    for (size_t i = 0; i < core.size; i++) {
        const char c = (char)core.data[i];
        digits = c >= '0' && c <= '9' ? digits + 1 : 0;
        if (digits <= DIGITS_KEPT) text[size++] = c;
    }
    const omm_bytes cut = omm_bytes_of(text, size);
    omm_buf value;
    omm_buf_init(&value, NOTICE_BYTES_MAX);
    const omm_err err = omm_calculate(&value, cut);
    const bool is = err == OMM_ERR_NUMERIC || err == OMM_ERR_TOO_BIG ||
                    (err == OMM_OK && !omm_bytes_equal(omm_buf_view(&value), cut));
    omm_buf_fini(&value);
    return is;
}

/* The user's last words, if they are nothing but an expression; else empty. */
omm_err assistant_find_sum(omm_bytes *sum, omm_buf *value, const omm_assistant *a) {
    omm_bytes core = omm_calculator_core(a->turns.messages[last_user(a)].content);
    omm_err err = omm_calculate(value, core);
    bool is_sum = err == OMM_OK || err == OMM_ERR_NUMERIC || looks_like_sum(core);
    if (err == OMM_ERR_TOO_BIG && !is_sum) is_sum = is_large_sum(core);
    *sum = is_sum && !omm_bytes_equal(omm_buf_view(value), core) ? core : (omm_bytes){0};
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return omm_buf_printf(value, "error: %s", omm_err_sentence());
}

/* Where the question itself is an expression and the call has another value, the question counts. */
static omm_err correct_call(char out[OMM_NOTE_BYTES_MAX + 1], bool *corrected, omm_assistant *a,
                            const char *argument) {
    omm_buf wanted;
    omm_buf written;
    omm_bytes sum = {0};
    omm_buf_init(&wanted, NOTICE_BYTES_MAX);
    omm_buf_init(&written, NOTICE_BYTES_MAX);
    omm_err err = assistant_find_sum(&sum, &wanted, a);
    if (err == OMM_OK) err = work_out(&written, omm_bytes_str(argument));
    *corrected = err == OMM_OK && sum.size > 0 &&
                 !omm_bytes_equal(omm_buf_view(&wanted), omm_buf_view(&written));
    if (*corrected) {
        memcpy(out, sum.data, sum.size);
        out[sum.size] = '\0';
        err = assistant_notice(a, "the model asked for %s; you asked for %s", argument, out);
        if (err == OMM_OK) err = replace_call(a, "calculator", "expression", omm_bytes_str(out));
    }
    omm_buf_fini(&wanted);
    omm_buf_fini(&written);
    return err;
}

/* A search without a result is answered here: the model would rather invent something. */
static omm_err answer_nothing(omm_assistant *a, tool_kind kind, const char *query) {
    const char *what = kind == TOOL_NOTE_FIND ? "no note" : "no passage of the documents";
    omm_buf_clear(&a->answer);
    if (kind == TOOL_NOTE_FIND)
        OMM_TRY(omm_buf_printf(&a->answer, "I found no note about that."));
    else
        OMM_TRY(omm_buf_printf(&a->answer, "The documents say nothing about %s.", query));
    OMM_TRY(assistant_notice(a, "%s fits \"%s\"", what, query));
    return transcript_push(&a->turns, OMM_ROLE_ASSISTANT, omm_buf_view(&a->answer));
}

/* Give the result to the model; what does not fit is replaced by an error. */
static omm_err push_result(omm_assistant *a) {
    bool fit = false;
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_TOOL,
                            omm_bytes_of(a->result.text.data, a->result.model_size)));
    OMM_TRY(assistant_make_room(&fit, a));
    if (fit) return OMM_OK;
    transcript_remove(&a->turns, a->turns.count - 1, a->turns.count);
    (void)omm_raise(OMM_ERR_TOO_BIG, "the result is too long");
    OMM_TRY(tools_fail(&a->result));
    return transcript_push(&a->turns, OMM_ROLE_TOOL, omm_buf_view(&a->result.text));
}

static omm_err tell_result(omm_assistant *a, const char *tool) {
    return assistant_tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_RESULT,
                                                   .tool = tool,
                                                   .text = omm_buf_view(&a->result.text),
                                                   .failed = a->result.failed});
}

static void keep_sources(omm_assistant *a) {
    if (!a->result.failed) a->has_result = true;
    if (a->result.source_count == 0) return;
    memcpy(a->sources, a->result.sources, sizeof a->sources);
    a->source_count = a->result.source_count;
}

/* The argument after checks; `own` has room for words of the user that take its place. */
static omm_err check_argument(bool *done, char own[OMM_NOTE_BYTES_MAX + 1], const char **argument,
                              omm_assistant *a, tool_kind kind, bool is_only) {
    bool corrected = false;
    if (kind == TOOL_NOTE_SAVE) return check_note(done, own, argument, a);
    if (kind != TOOL_CALCULATOR) return OMM_OK; /* a search shows by its result what it was worth */
    if (is_only) OMM_TRY(correct_call(own, &corrected, a, *argument));
    if (corrected) *argument = own;
    return corrected ? OMM_OK : check_numbers(a, omm_bytes_str(*argument));
}

static omm_err run_call(bool *done, omm_assistant *a, tool_kind kind, const char *name,
                        const char *argument) {
    OMM_TRY(assistant_tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_CALL,
                                                    .tool = name,
                                                    .text = omm_bytes_str(argument)}));
    a->tools.now_ms = a->options.now_ms ? a->options.now_ms(a->options.now_ud) : 0;
    OMM_TRY(tools_run(&a->result, &a->tools, kind, argument));
    OMM_TRY(tell_result(a, name));
    OMM_TRY(push_result(a));
    keep_sources(a);
    a->has_saved = a->has_saved || (kind == TOOL_NOTE_SAVE && !a->result.failed);
    *done = a->result.nothing;
    return a->result.nothing ? answer_nothing(a, kind, argument) : OMM_OK;
}

/* The call was to be the note that the user dictated. */
static bool was_note(const omm_assistant *a, omm_bytes own) {
    const omm_bytes call = omm_buf_view(&a->answer);
    return a->tools.notes && !a->has_saved && is_dictated(a, own) &&
           own.size <= OMM_NOTE_BYTES_MAX && call.size > 0 &&
           memmem(call.data, call.size, "note_save", strlen("note_save")) != NULL;
}

omm_err assistant_do_bad_call(bool *done, omm_assistant *a, const char *name) {
    char note[OMM_NOTE_BYTES_MAX + 1];
    const omm_bytes own = find_note(a);
    if (was_note(a, own)) {
        memcpy(note, own.data, own.size);
        note[own.size] = '\0';
        OMM_TRY(assistant_notice(a, "the model's call cannot be read; your own words are saved"));
        OMM_TRY(replace_call(a, "note_save", "text", own));
        return run_call(done, a, TOOL_NOTE_SAVE, "note_save", note);
    }
    OMM_TRY(tools_fail(&a->result));
    OMM_TRY(tell_result(a, name));
    return push_result(a);
}

/* One call, perhaps the only one of this exchange; *done when the exchange is over. */
static omm_err do_call(bool *done, omm_assistant *a, const omm_tool_call *call, bool is_only) {
    char own[OMM_NOTE_BYTES_MAX + 1];
    tool_kind kind = TOOL_COUNT;
    const char *argument = "";
    if (tools_check(&kind, &argument, &a->tools, call) != OMM_OK)
        return assistant_do_bad_call(done, a, call->name);
    OMM_TRY(check_argument(done, own, &argument, a, kind, is_only));
    return *done ? OMM_OK : run_call(done, a, kind, call->name, argument);
}

omm_err assistant_do_calls(bool *done, omm_assistant *a, const omm_chat_reply *reply) {
    for (size_t i = 0; i < reply->call_count && !*done; i++) {
        if (a->calls == a->options.calls_max) break;
        a->calls++;
        OMM_TRY(do_call(done, a, &reply->calls[i], a->calls == 1 && reply->call_count == 1));
    }
    return OMM_OK;
}
