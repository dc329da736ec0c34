/* assistant.c - owns the course of a conversation: asks the speaker, keeps the turns, says
 * what an answer rests on.  assistant_calls.c does what the speaker asks for. */
#include "omm/assistant.h"

#include "assistant_internal.h"
#include "checks.h"
#include "omm/mem.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 4u
#define PASSAGES_MAX 2u
#define NOTES_FOUND_MAX 3u
#define ANSWER_BYTES_MAX (1u << 18)

omm_assistant_options omm_assistant_options_default(void) {
    return (omm_assistant_options){
        .system = "You are OpenMeshMind, a small assistant that runs on this machine.",
        .calls_max = CALLS_MAX,
        .passages_max = PASSAGES_MAX,
        .notes_max = NOTES_FOUND_MAX,
        .at_length = "",
        .at_context = ""};
}

/* ---- Events -------------------------------------------------------------------------------- */

omm_err assistant_tell(omm_assistant *a, omm_assistant_event event) {
    return a->options.each ? a->options.each(a->options.each_ud, &event) : OMM_OK;
}

/* The program itself says something. */
omm_err assistant_notice(omm_assistant *a, const char *fmt, ...) {
    char text[NOTICE_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return assistant_tell(
        a, (omm_assistant_event){.kind = OMM_ASSISTANT_NOTICE, .text = omm_bytes_str(text)});
}

/* Where what the speaker's turn says begins, without what it thought. */
static size_t said_at(const omm_assistant *a) {
    return a->thought.answer < a->answer.size ? a->thought.answer : a->answer.size;
}

static omm_bytes said(const omm_assistant *a) {
    const size_t at = said_at(a);
    return omm_bytes_of(a->answer.data + at, a->thought.end > at ? a->thought.end - at : 0);
}

static omm_err show_thought(omm_assistant *a) {
    const size_t at = a->thought_shown > a->thought.from ? a->thought_shown : a->thought.from;
    if (a->thought.to <= at) return OMM_OK;
    const omm_bytes text = omm_bytes_of(a->answer.data + at, a->thought.to - at);
    a->thought_shown = a->thought.to;
    return assistant_tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_THOUGHT, .text = text});
}

static omm_err show(omm_assistant *a, size_t to) {
    OMM_TRY(show_thought(a));
    if (a->thought.answer == SIZE_MAX) return OMM_OK;
    if (a->shown < a->thought.answer) a->shown = a->thought.answer;
    if (to <= a->shown) return OMM_OK;
    omm_bytes text = omm_bytes_of(a->answer.data + a->shown, to - a->shown);
    a->shown = to;
    return assistant_tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_TEXT, .text = text});
}

omm_calls_form assistant_calls(const omm_assistant *a) {
    return omm_chat_calls_of(a->options.speaker.tokenizer);
}

static bool is_tool(const void *ud, omm_bytes name, bool whole) {
    const omm_assistant *a = ud;
    omm_chat_tool tools[TOOL_COUNT];
    const size_t count = tools_list(tools, &a->tools);
    for (size_t i = 0; i < count; i++)
        if (strncmp(tools[i].name, (const char *)name.data, name.size) == 0 &&
            (!whole || tools[i].name[name.size] == '\0'))
            return true;
    return false;
}

/* Bytes before a call, or (*sure false) before what may become one. */
static size_t before_call(bool *sure, const omm_assistant *a, omm_bytes text) {
    size_t at = 0;
    const size_t before = omm_chat_before_calls(sure, text, assistant_calls(a));
    const omm_bare bare =
        assistant_calls(a) == OMM_CALLS_BARE ? omm_chat_bare(&at, text, is_tool, a) : OMM_BARE_NOT;
    *sure = *sure || bare == OMM_BARE_CALL;
    return bare != OMM_BARE_NOT ? 0 : before;
}

/* The speaker has written more: show it up to a call, or to what could become one. */
static omm_err take_piece(void *ud, omm_bytes piece) {
    omm_assistant *a = ud;
    (void)piece; /* it is at the end of `answer` already */
    if (a->in_call) return OMM_OK;
    omm_thought_look(&a->thought, omm_buf_view(&a->answer), false);
    const omm_bytes text = said(a);
    const size_t size = a->options.speaker.no_calls ? text.size : before_call(&a->in_call, a, text);
    return show(a, said_at(a) + size);
}

/* ---- Room in the context ------------------------------------------------------------------- */

static omm_err fits(bool *out, omm_assistant *a, bool ample) {
    return a->options.speaker.fits(a->options.speaker.ud, out, a->turns.messages, a->turns.count,
                                   ample);
}

/* When the context is full, drop old exchanges until much of it is free: then this happens seldom.
 * *fit is false when the last exchange alone is too long. */
omm_err assistant_make_room(bool *fit, omm_assistant *a) {
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
    return assistant_notice(
        a,
        "the model's context is full: the oldest %u question%s and what came of %s are "
        "forgotten",
        dropped, dropped == 1 ? "" : "s", dropped == 1 ? "it" : "them");
}

/* The user's turn with nothing before it must fit, else it is refused before anything is dropped. */
static omm_err check_alone(omm_assistant *a) {
    omm_message alone[HEAD_MAX + 1];
    bool fit = false;
    memcpy(alone, a->turns.messages, a->head * sizeof *alone);
    alone[a->head] = a->turns.messages[a->turns.count - 1];
    OMM_TRY(a->options.speaker.fits(a->options.speaker.ud, &fit, alone, a->head + 1, false));
    if (fit) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "that is too long for the model's context");
}

/* ---- Answers ------------------------------------------------------------------------------- */

static omm_err check_answer(omm_assistant *a, omm_bytes answer) {
    omm_buf unsaid;
    if (!a->has_result) return OMM_OK;
    omm_buf_init(&unsaid, NOTICE_BYTES_MAX);
    omm_err err =
        checks_put_unsaid(&unsaid, answer, CHECKS_NAMES, a->turns.messages, a->turns.count, false);
    if (err == OMM_OK && unsaid.size > 0)
        err = assistant_notice(a, "check: no tool said %.*s", (int)unsaid.size,
                               (const char *)unsaid.data);
    omm_buf_fini(&unsaid);
    return err;
}

/* A sum that was answered out of the model's head. */
static omm_err check_sum(omm_assistant *a) {
    omm_buf value;
    omm_bytes sum = {0};
    if (a->calls > 0) return OMM_OK;
    omm_buf_init(&value, NOTICE_BYTES_MAX);
    omm_err err = assistant_find_sum(&sum, &value, a);
    if (err == OMM_OK && sum.size > 0)
        err = assistant_notice(a, "the model did not calculate; %.*s -> %.*s", (int)sum.size,
                               (const char *)sum.data, (int)value.size, (const char *)value.data);
    omm_buf_fini(&value);
    return err;
}

/* A small model likes to say that it saved something. */
static omm_err check_saved(omm_assistant *a, omm_bytes answer) {
    if (a->has_saved || !a->options.notes || !checks_has_word(answer, "saved")) return OMM_OK;
    return assistant_notice(a, "nothing was saved");
}

static omm_err tell_sources(omm_assistant *a) {
    for (size_t i = 0; i < a->source_count; i++)
        OMM_TRY(assistant_tell(a, (omm_assistant_event){.kind = OMM_ASSISTANT_SOURCE,
                                                        .file = a->sources[i].file,
                                                        .number = a->sources[i].number}));
    return OMM_OK;
}

static omm_err finish(omm_assistant *a, omm_speaker_stop stop) {
    OMM_TRY(show(a, said_at(a) + said(a).size));
    if (stop == OMM_SPEAKER_LENGTH)
        OMM_TRY(assistant_notice(a, "the answer was cut here%s", a->options.at_length));
    if (stop == OMM_SPEAKER_CONTEXT)
        OMM_TRY(assistant_notice(a, "the answer was cut here: the context is full%s",
                                 a->options.at_context));
    if (stop == OMM_SPEAKER_INTERRUPT) { /* what is not there is not held against the model */
        OMM_TRY(assistant_notice(a, "stopped"));
        return tell_sources(a);
    }
    if (stop == OMM_SPEAKER_END && a->thought.answer == SIZE_MAX && a->answer.size > 0)
        OMM_TRY(assistant_notice(a, "the model thought, and said nothing"));
    if (a->options.speaker.no_calls) return OMM_OK; /* it was asked for its form, not for a tool */
    OMM_TRY(check_sum(a));
    OMM_TRY(check_saved(a, said(a)));
    OMM_TRY(check_answer(a, said(a)));
    return tell_sources(a);
}

/* The exchange that has begun is forgotten; whatever was dropped before it stays dropped. */
static void forget_exchange(omm_assistant *a) {
    size_t at = a->turns.count;
    while (at > 1 && a->turns.messages[at - 1].role != OMM_ROLE_USER) at--;
    if (at > 1) transcript_remove(&a->turns, at - 1, a->turns.count);
}

/* One turn of the speaker, and what it asks for.  *done when the exchange is over. */
static omm_err step(bool *done, omm_assistant *a) {
    omm_speaker_stop stop = OMM_SPEAKER_END;
    omm_chat_reply reply = {0};
    omm_buf_clear(&a->answer);
    a->thought = omm_thought_init(a->options.speaker.thinks, a->options.speaker.wraps);
    a->thought_shown = a->shown = 0;
    a->in_call = false;
    OMM_TRY(a->options.speaker.reply(a->options.speaker.ud, &a->answer, &stop, a->turns.messages,
                                     a->turns.count, take_piece, a));
    omm_thought_look(&a->thought, omm_buf_view(&a->answer), true);
    if (stop == OMM_SPEAKER_INTERRUPT && said(a).size == 0) {
        *done = true; /* a question without an answer would be answered with the next one */
        forget_exchange(a);
        return assistant_notice(a, "stopped");
    }
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_ASSISTANT, omm_buf_view(&a->answer)));
    if (stop != OMM_SPEAKER_END && a->in_call) {
        *done = true;
        a->shown = a->answer.size; /* half a call is of no use to anyone */
        return finish(a, stop);
    }
    if (a->options.speaker.no_calls) {
        *done = true;
        return finish(a, stop);
    }
    omm_err err = omm_chat_parse(&reply, said(a), assistant_calls(a), is_tool, a);
    if (err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG) {
        a->calls++;
        return assistant_do_bad_call(done, a, "tool call");
    }
    if (err != OMM_OK) return err;
    *done = reply.call_count == 0;
    err = *done ? finish(a, stop) : assistant_do_calls(done, a, &reply);
    omm_chat_reply_fini(&reply);
    return err;
}

static omm_err stop_calling(omm_assistant *a) {
    OMM_TRY(assistant_notice(a, "stopped after %u tool calls without an answer", a->calls));
    OMM_TRY(tell_sources(a));
    return transcript_push(&a->turns, OMM_ROLE_ASSISTANT,
                           omm_bytes_str("I could not answer that."));
}

static omm_err exchange(omm_assistant *a) {
    bool done = false;
    bool fit = false;
    OMM_TRY(assistant_make_room(&fit, a));
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

static bool announces(const omm_assistant *a) {
    const omm_speaker *s = &a->options.speaker;
    return !s->no_calls && s->tokenizer && omm_chat_announces(s->tokenizer);
}

/* In a turn of their own: it stands behind the system's and stays there, wherever the template has it, as old turns go. */
static bool announces_apart(const omm_assistant *a) {
    return omm_chat_announces_at(a->options.speaker.tokenizer) != OMM_CHAT_IN_SYSTEM;
}

static omm_err announce(omm_assistant *a, omm_bytes system) {
    json_t *functions = NULL;
    OMM_TRY(tools_functions(&functions, &a->tools));
    const omm_err err =
        omm_chat_announce_tools(&a->answer, a->options.speaker.tokenizer, system, functions);
    json_decref(functions);
    return err;
}

/* Tools as the model's own template has them, or by name, as the base model was taught. */
static omm_err write_system(omm_assistant *a, bool announced) {
    const omm_bytes system = omm_bytes_str(a->options.system);
    const bool calls = !a->options.speaker.no_calls;
    omm_chat_tool tools[TOOL_COUNT];
    omm_buf_clear(&a->answer);
    if (announced && announces_apart(a))
        return omm_buf_append(&a->answer, system.data, system.size);
    if (!announced)
        return omm_chat_system(&a->answer, system, tools, calls ? tools_list(tools, &a->tools) : 0,
                               OMM_CHAT_NAMES);
    return announce(a, system);
}

static omm_err try_system(bool *fit, omm_assistant *a, bool announced) {
    OMM_TRY(write_system(a, announced));
    OMM_TRY(transcript_push(&a->turns, OMM_ROLE_SYSTEM, omm_buf_view(&a->answer)));
    if (announced && announces_apart(a)) {
        omm_buf_clear(&a->answer);
        OMM_TRY(announce(a, (omm_bytes){0}));
        OMM_TRY(transcript_push(&a->turns, OMM_ROLE_TOOLS, omm_buf_view(&a->answer)));
    }
    a->head = a->turns.count;
    OMM_TRY(fits(fit, a, announced)); /* amply, or as little as it may be */
    if (!*fit) transcript_remove(&a->turns, 0, a->turns.count);
    return OMM_OK;
}

/* Where all that a template says of tools would leave little room, their names are enough. */
static omm_err push_system(omm_assistant *a) {
    bool fit = false;
    if (announces(a)) OMM_TRY(try_system(&fit, a, true));
    if (!fit) OMM_TRY(try_system(&fit, a, false));
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
    transcript_remove(&a->turns, a->head, a->turns.count);
}

size_t omm_assistant_turns(const omm_assistant *a) {
    return a->turns.count - a->head + 1;
}

omm_err omm_assistant_save(omm_buf *out, const omm_assistant *a) {
    return transcript_write(out, &a->turns);
}

omm_err omm_assistant_restore(omm_assistant *a, omm_bytes saved) {
    transcript turns = {0};
    OMM_TRY(transcript_read(&turns, saved));
    bool same = turns.count >= a->head;
    for (size_t i = 0; i < a->head && same; i++)
        same = turns.messages[i].role == a->turns.messages[i].role &&
               omm_bytes_equal(turns.messages[i].content, a->turns.messages[i].content);
    if (!same || (turns.count > a->head && turns.messages[a->head].role == OMM_ROLE_TOOLS)) {
        transcript_fini(&turns);
        return omm_raise(OMM_ERR_MISMATCH, "the conversation began with another system turn or "
                                           "with other tools");
    }
    transcript_fini(&a->turns);
    a->turns = turns;
    return OMM_OK;
}
