/* assistant.c - owns the course of a conversation: asks the speaker, runs the tools, keeps the turns. */
#include "omm/assistant.h"

#include "checks.h"
#include "omm/calculator.h"
#include "omm/mem.h"
#include "text.h"
#include "tools.h"
#include "transcript.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 4u
#define PASSAGES_MAX 2u
#define NOTES_FOUND_MAX 3u
_Static_assert(OMM_CALCULATOR_BYTES_MAX <= OMM_NOTE_BYTES_MAX, "one buffer for both");
#define ANSWER_BYTES_MAX (1u << 18)
#define NOTICE_BYTES_MAX 4096u

static const char s_call_mark[] = "<tool_call>";

struct omm_assistant {
    omm_assistant_options options;
    tool_set tools;
    transcript turns;
    /* of the exchange in progress */
    omm_buf answer;  /* the speaker's turn, as written */
    size_t shown;    /* bytes of the answer that `each` has got */
    bool in_call;    /* a call has begun: nothing after it is shown */
    bool has_saved;  /* a note was saved */
    bool has_result; /* a tool has said something that an answer can rest on */
    uint32_t calls;
    tool_result result;
    tool_source sources[TOOL_SOURCES_MAX]; /* of the last search that found something */
    size_t source_count;
};

omm_assistant_options omm_assistant_options_default(void) {
    return (omm_assistant_options){
        .system = "You are OpenMeshMind, a small assistant that runs on this machine.",
        .calls_max = CALLS_MAX,
        .passages_max = PASSAGES_MAX,
        .notes_max = NOTES_FOUND_MAX};
}

/* ---- Events -------------------------------------------------------------------------------- */

static omm_err tell(omm_assistant *a, omm_assistant_event event) {
    return a->options.each ? a->options.each(a->options.each_ud, &event) : OMM_OK;
}

/* The program itself says something. */
__attribute__((format(printf, 2, 3))) static omm_err notice(omm_assistant *a, const char *fmt,
                                                            ...) {
    char text[NOTICE_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tell(a,
                (omm_assistant_event){.kind = OMM_ASSISTANT_NOTICE, .text = omm_bytes_str(text)});
}

static omm_err show(omm_assistant *a, size_t to) {
    if (to <= a->shown) return OMM_OK;
    omm_bytes text = omm_bytes_of(a->answer.data + a->shown, to - a->shown);
    a->shown = to;
    return tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_TEXT, .text = text});
}

/* Bytes at the end of `text` that may be the beginning of a call. */
static size_t held_back(omm_bytes text) {
    size_t size = sizeof s_call_mark - 2;
    if (size > text.size) size = text.size;
    while (size > 0 && memcmp(text.data + text.size - size, s_call_mark, size) != 0) size--;
    return size;
}

/* The speaker has written more: show it up to a call, or to what could become one. */
static omm_err take_piece(void *ud, omm_bytes piece) {
    omm_assistant *a = ud;
    (void)piece; /* it is at the end of `answer` already */
    if (a->in_call) return OMM_OK;
    omm_bytes text = omm_buf_view(&a->answer);
    const uint8_t *mark = memmem(text.data, text.size, s_call_mark, sizeof s_call_mark - 1);
    a->in_call = mark != NULL;
    return show(a, mark ? (size_t)(mark - text.data) : text.size - held_back(text));
}

/* ---- Room in the context ------------------------------------------------------------------- */

static omm_err fits(bool *out, omm_assistant *a, bool ample) {
    return a->options.speaker.fits(a->options.speaker.ud, out, a->turns.messages, a->turns.count,
                                   ample);
}

/* When the context is full, drop old exchanges until much of it is free: then this happens seldom.
 * *fit is false when the last exchange alone is too long. */
static omm_err make_room(bool *fit, omm_assistant *a) {
    unsigned dropped = 0;
    bool ample = false;
    OMM_TRY(fits(fit, a, false));
    if (*fit) return OMM_OK;
    while (!ample && transcript_drop_oldest(&a->turns)) {
        dropped++;
        OMM_TRY(fits(&ample, a, true));
    }
    OMM_TRY(fits(fit, a, false));
    if (dropped == 0) return OMM_OK;
    return notice(a,
                  "the model's context is full: the oldest %u question%s and what came of %s are "
                  "forgotten",
                  dropped, dropped == 1 ? "" : "s", dropped == 1 ? "it" : "them");
}

/* The user's turn with nothing before it must fit, else it is refused before anything is dropped. */
static omm_err check_alone(omm_assistant *a) {
    omm_message alone[2] = {a->turns.messages[0], a->turns.messages[a->turns.count - 1]};
    bool fit = false;
    OMM_TRY(a->options.speaker.fits(a->options.speaker.ud, &fit, alone, 2, false));
    if (fit) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "that is too long for the model's context");
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* Put this call in the place of the speaker's last turn; `value` may stand in an earlier turn. */
static omm_err replace_call(omm_assistant *a, const char *tool, const char *name, omm_bytes value) {
    json_t *arguments = json_pack("{s:s%}", name, value.data, value.size);
    omm_buf_clear(&a->answer);
    omm_err err = omm_chat_write_call(&a->answer, tool, arguments);
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
        err = notice(a, "check: nobody said %.*s", (int)unsaid.size, (const char *)unsaid.data);
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

/* A note is kept for long, so every word of it must have been said.  Else the user's own words are
 * taken, where they are marked by a colon, and if not, nothing is saved: then *done. */
static omm_err check_note(bool *done, char out[OMM_NOTE_BYTES_MAX + 1], const char **argument,
                          omm_assistant *a) {
    omm_buf unsaid;
    omm_buf_init(&unsaid, NOTICE_BYTES_MAX);
    omm_err err = checks_put_unsaid(&unsaid, omm_bytes_str(*argument), CHECKS_ALL,
                                    a->turns.messages, a->turns.count - 1, true);
    omm_bytes own = find_note(a);
    if (err != OMM_OK || unsaid.size == 0) {
        /* as it should be */
    } else if (own.size > 0 && own.size <= OMM_NOTE_BYTES_MAX) {
        err = notice(a, "the model wrote \"%s\"; your own words are saved", *argument);
        memcpy(out, own.data, own.size);
        out[own.size] = '\0';
        *argument = out;
        if (err == OMM_OK) err = replace_call(a, "note_save", "text", own);
    } else {
        *done = true;
        err = notice(a, "not saved: nobody said %.*s; write \"Save this note: ...\"",
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

/* The user's last words, if they are nothing but an expression; else empty. */
static omm_err find_sum(omm_bytes *sum, omm_buf *value, const omm_assistant *a) {
    omm_bytes core = omm_calculator_core(a->turns.messages[last_user(a)].content);
    omm_err err = omm_calculate(value, core);
    bool is_sum = err == OMM_OK || err == OMM_ERR_NUMERIC || looks_like_sum(core);
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
    omm_err err = find_sum(&sum, &wanted, a);
    if (err == OMM_OK) err = work_out(&written, omm_bytes_str(argument));
    *corrected = err == OMM_OK && sum.size > 0 &&
                 !omm_bytes_equal(omm_buf_view(&wanted), omm_buf_view(&written));
    if (*corrected) {
        memcpy(out, sum.data, sum.size);
        out[sum.size] = '\0';
        err = notice(a, "the model asked for %s; you asked for %s", argument, out);
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
    OMM_TRY(notice(a, "%s fits \"%s\"", what, query));
    return transcript_push(&a->turns, OMM_ROLE_ASSISTANT, omm_buf_view(&a->answer));
}

/* Give the result to the model; what does not fit is replaced by an error. */
static omm_err push_result(omm_assistant *a) {
    bool fit = false;
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_TOOL,
                            omm_bytes_of(a->result.text.data, a->result.model_size)));
    OMM_TRY(make_room(&fit, a));
    if (fit) return OMM_OK;
    transcript_remove(&a->turns, a->turns.count - 1, a->turns.count);
    (void)omm_raise(OMM_ERR_TOO_BIG, "the result is too long");
    OMM_TRY(tools_fail(&a->result));
    return transcript_push(&a->turns, OMM_ROLE_TOOL, omm_buf_view(&a->result.text));
}

static omm_err tell_result(omm_assistant *a, const char *tool) {
    return tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_RESULT,
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

/* A call that cannot be read, or asks for what there is not, is answered with what is wrong. */
static omm_err do_bad_call(omm_assistant *a, const char *name) {
    OMM_TRY(tools_fail(&a->result));
    OMM_TRY(tell_result(a, name));
    return push_result(a);
}

/* One call, perhaps the only one of this exchange; *done when the exchange is over. */
static omm_err do_call(bool *done, omm_assistant *a, const omm_tool_call *call, bool is_only) {
    char own[OMM_NOTE_BYTES_MAX + 1];
    tool_kind kind = TOOL_COUNT;
    const char *argument = "";
    if (tools_check(&kind, &argument, &a->tools, call) != OMM_OK) return do_bad_call(a, call->name);
    OMM_TRY(check_argument(done, own, &argument, a, kind, is_only));
    if (*done) return OMM_OK;
    OMM_TRY(tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_CALL,
                                          .tool = call->name,
                                          .text = omm_bytes_str(argument)}));
    a->tools.now_ms = a->options.now_ms ? a->options.now_ms(a->options.now_ud) : 0;
    OMM_TRY(tools_run(&a->result, &a->tools, kind, argument));
    OMM_TRY(tell_result(a, call->name));
    OMM_TRY(push_result(a));
    keep_sources(a);
    a->has_saved = a->has_saved || (kind == TOOL_NOTE_SAVE && !a->result.failed);
    *done = a->result.nothing;
    return a->result.nothing ? answer_nothing(a, kind, argument) : OMM_OK;
}

static omm_err do_calls(bool *done, omm_assistant *a, const omm_chat_reply *reply) {
    for (size_t i = 0; i < reply->call_count && !*done; i++) {
        if (a->calls == a->options.calls_max) break;
        a->calls++;
        OMM_TRY(do_call(done, a, &reply->calls[i], a->calls == 1 && reply->call_count == 1));
    }
    return OMM_OK;
}

/* ---- Answers ------------------------------------------------------------------------------- */

static omm_err check_answer(omm_assistant *a, omm_bytes answer) {
    omm_buf unsaid;
    if (!a->has_result) return OMM_OK;
    omm_buf_init(&unsaid, NOTICE_BYTES_MAX);
    omm_err err =
        checks_put_unsaid(&unsaid, answer, CHECKS_NAMES, a->turns.messages, a->turns.count, false);
    if (err == OMM_OK && unsaid.size > 0)
        err = notice(a, "check: no tool said %.*s", (int)unsaid.size, (const char *)unsaid.data);
    omm_buf_fini(&unsaid);
    return err;
}

/* A sum that was answered out of the model's head. */
static omm_err check_sum(omm_assistant *a) {
    omm_buf value;
    omm_bytes sum = {0};
    if (a->calls > 0) return OMM_OK;
    omm_buf_init(&value, NOTICE_BYTES_MAX);
    omm_err err = find_sum(&sum, &value, a);
    if (err == OMM_OK && sum.size > 0)
        err = notice(a, "the model did not calculate; %.*s -> %.*s", (int)sum.size,
                     (const char *)sum.data, (int)value.size, (const char *)value.data);
    omm_buf_fini(&value);
    return err;
}

/* A small model likes to say that it saved something. */
static omm_err check_saved(omm_assistant *a, omm_bytes answer) {
    if (a->has_saved || !a->options.notes || !checks_has_word(answer, "saved")) return OMM_OK;
    return notice(a, "nothing was saved");
}

static omm_err tell_sources(omm_assistant *a) {
    for (size_t i = 0; i < a->source_count; i++)
        OMM_TRY(tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_SOURCE,
                                              .file = a->sources[i].file,
                                              .number = a->sources[i].number}));
    return OMM_OK;
}

static omm_err finish(omm_assistant *a, omm_speaker_stop stop) {
    OMM_TRY(show(a, a->answer.size));
    if (stop == OMM_SPEAKER_LENGTH) OMM_TRY(notice(a, "the answer was cut here"));
    if (stop == OMM_SPEAKER_INTERRUPT) OMM_TRY(notice(a, "stopped"));
    OMM_TRY(check_sum(a));
    OMM_TRY(check_saved(a, omm_buf_view(&a->answer)));
    OMM_TRY(check_answer(a, omm_buf_view(&a->answer)));
    return tell_sources(a);
}

/* One turn of the speaker, and what it asks for.  *done when the exchange is over. */
static omm_err step(bool *done, omm_assistant *a) {
    omm_speaker_stop stop = OMM_SPEAKER_END;
    omm_chat_reply reply = {0};
    omm_buf_clear(&a->answer);
    a->shown = 0;
    a->in_call = false;
    OMM_TRY(a->options.speaker.reply(a->options.speaker.ud, &a->answer, &stop, a->turns.messages,
                                     a->turns.count, take_piece, a));
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_ASSISTANT, omm_buf_view(&a->answer)));
    if (stop != OMM_SPEAKER_END && a->in_call) {
        *done = true;
        a->shown = a->answer.size; /* half a call is of no use to anyone */
        return finish(a, stop);
    }
    omm_err err = omm_chat_parse(&reply, omm_buf_view(&a->answer));
    if (err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG) {
        a->calls++;
        return do_bad_call(a, "tool call");
    }
    if (err != OMM_OK) return err;
    *done = reply.call_count == 0;
    err = *done ? finish(a, stop) : do_calls(done, a, &reply);
    omm_chat_reply_fini(&reply);
    return err;
}

static omm_err stop_calling(omm_assistant *a) {
    OMM_TRY(notice(a, "stopped after %u tool calls without an answer", a->calls));
    OMM_TRY(tell_sources(a));
    return transcript_push(&a->turns, OMM_ROLE_ASSISTANT,
                           omm_bytes_str("I could not answer that."));
}

static omm_err exchange(omm_assistant *a) {
    bool done = false;
    bool fit = false;
    OMM_TRY(make_room(&fit, a));
    OMM_ASSERT(fit); /* alone it did */
    a->calls = 0;
    a->has_saved = false;
    a->has_result = false;
    a->source_count = 0;
    while (!done && a->calls < a->options.calls_max) OMM_TRY(step(&done, a));
    if (done) return OMM_OK;
    /* the last word, after the last result that is allowed */
    OMM_TRY(step(&done, a));
    return done ? OMM_OK : stop_calling(a);
}

/* ---- Public -------------------------------------------------------------------------------- */

static omm_err push_system(omm_assistant *a) {
    omm_chat_tool tools[TOOL_COUNT];
    size_t count = tools_list(tools, &a->tools);
    bool fit = false;
    omm_buf_clear(&a->answer);
    OMM_TRY(omm_chat_system(&a->answer, omm_bytes_str(a->options.system), tools, count,
                            OMM_CHAT_NAMES));
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_SYSTEM, omm_buf_view(&a->answer)));
    OMM_TRY(fits(&fit, a, false));
    if (fit) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "the system turn does not fit the model's context");
}

omm_err omm_assistant_open(omm_assistant **out, const omm_assistant_options *options) {
    OMM_ASSERT(options->calls_max >= 1);
    OMM_ASSERT(options->passages_max >= 1);
    OMM_ASSERT(options->passages_max <= TOOL_SOURCES_MAX);
    omm_assistant *a = omm_alloc(1, sizeof *a);
    if (!a) return omm_raise(OMM_ERR_NOMEM, "no memory for the assistant");
    a->options = *options;
    a->tools = (tool_set){.notes = options->notes,
                          .docs = options->docs,
                          .passages_max = options->passages_max,
                          .notes_max = options->notes_max,
                          .bytes_max = OMM_ASSISTANT_RESULT_BYTES_MAX};
    omm_buf_init(&a->answer, ANSWER_BYTES_MAX);
    omm_buf_init(&a->result.text, ANSWER_BYTES_MAX);
    omm_err err = push_system(a);
    if (err != OMM_OK) {
        omm_assistant_close(a);
        return err;
    }
    *out = a;
    return OMM_OK;
}

void omm_assistant_close(omm_assistant *a) {
    if (!a) return;
    transcript_fini(&a->turns);
    omm_buf_fini(&a->answer);
    omm_buf_fini(&a->result.text);
    omm_free(a);
}

/* The exchange that has begun is forgotten; whatever was dropped before it stays dropped. */
static void forget_exchange(omm_assistant *a) {
    size_t at = a->turns.count;
    while (at > 1 && a->turns.messages[at - 1].role != OMM_ROLE_USER) at--;
    if (at > 1) transcript_remove(&a->turns, at - 1, a->turns.count);
}

static bool is_empty(omm_bytes text) {
    omm_bytes rest = text;
    while (rest.size > 0 && strchr(" \t\r\n", rest.data[0]))
        rest = omm_bytes_of(rest.data + 1, rest.size - 1);
    return rest.size == 0;
}

omm_err omm_assistant_say(omm_assistant *a, omm_bytes text) {
    if (text.size > OMM_ASSISTANT_USER_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu bytes at once, at most %u", text.size,
                         OMM_ASSISTANT_USER_BYTES_MAX);
    if (!text_is_plain(text)) return omm_raise(OMM_ERR_FORMAT, "that is not plain UTF-8 text");
    if (is_empty(text)) return omm_raise(OMM_ERR_FORMAT, "there is nothing in that line");
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_USER, text));
    omm_err err = check_alone(a);
    if (err == OMM_OK) err = exchange(a);
    if (err != OMM_OK) forget_exchange(a);
    return err;
}

void omm_assistant_reset(omm_assistant *a) {
    transcript_remove(&a->turns, 1, a->turns.count);
}

size_t omm_assistant_turns(const omm_assistant *a) {
    return a->turns.count;
}

omm_err omm_assistant_save(omm_buf *out, const omm_assistant *a) {
    return transcript_write(out, &a->turns);
}

omm_err omm_assistant_restore(omm_assistant *a, omm_bytes saved) {
    transcript turns = {0};
    OMM_TRY(transcript_read(&turns, saved));
    if (turns.count == 0 ||
        !omm_bytes_equal(turns.messages[0].content, a->turns.messages[0].content)) {
        transcript_fini(&turns);
        return omm_raise(OMM_ERR_MISMATCH, "the conversation began with another system turn or "
                                           "with other tools");
    }
    transcript_fini(&a->turns);
    a->turns = turns;
    return OMM_OK;
}
