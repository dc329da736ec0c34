/* output.c - see output.h. */
#include "output.h"

#include "omm/utf8.h"

#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

const char *finish_name(finish f) {
    static const char *const names[] = {"", "stop", "length", "tool_calls"};
    return names[f];
}

/* What has to be JSON ends where it is whole: the template's own are none of its strings' matter. */
static omm_err add_stops(output *t, const request *r) {
    const bool is_value = r->grammar && !r->has_tools;
    size_t count = 0;
    const char *const *own = r->is_chat && !is_value ? omm_chat_stops(&count, t->tokenizer) : NULL;
    for (size_t i = 0; i < count; i++) {
        if (!r->has_format) OMM_TRY(omm_stops_add(&t->stops, omm_bytes_str(own[i])));
        OMM_TRY(omm_stops_add(&t->own, omm_bytes_str(own[i])));
    }
    for (size_t i = 0; i < r->stop_count; i++) OMM_TRY(omm_stops_add(&t->stops, r->stops[i]));
    return OMM_OK;
}

static omm_calls_form form_of(const output *t) {
    return omm_chat_calls_of(t->tokenizer);
}

/* A call that the prompt has begun, behind its mark. */
static void take_begun(output *t, omm_bytes begun) {
    const omm_calls_form form = form_of(t);
    const bool own = omm_call_mark_bytes(form, true) > 0;
    calls_begin(&t->calls, form);
    for (size_t i = form == OMM_CALLS_BARE ? 0 : omm_call_mark_bytes(form, own); i < begun.size;
         i++)
        calls_take(&t->calls, begun.data[i], i);
}

omm_err output_init(output *t, const request *r, const omm_tokenizer *tokenizer,
                    uint32_t tokens_max) {
    const omm_bytes begun = r->begun.size > 0 ? omm_buf_view(&r->begun) : r->opened;
    *t = (output){.tokenizer = tokenizer,
                  .detok = {.first = r->is_chat && begun.size == 0},
                  .begun = begun.size,
                  .thought = omm_thought_init(r->thinks, r->wraps),
                  .holds_calls = r->has_tools,
                  .has_format = r->has_format,
                  .in_call = r->begun.size > 0,
                  .leads = r->has_tools && r->begun.size == 0 &&
                           omm_chat_calls_of(tokenizer) == OMM_CALLS_BARE,
                  .grammar = r->grammar,
                  .tokens_max = tokens_max};
    omm_stops_init(&t->stops);
    omm_stops_init(&t->own);
    omm_buf_init(&t->fresh, TEXT_BYTES_MAX);
    omm_buf_init(&t->whole, TEXT_BYTES_MAX);
    OMM_TRY(add_stops(t, r));
    OMM_TRY(omm_buf_append(&t->whole, begun.data, begun.size));
    if (t->in_call) take_begun(t, begun);
    return OMM_OK;
}

void output_fini(output *t) {
    omm_stops_fini(&t->stops);
    omm_stops_fini(&t->own);
    omm_buf_fini(&t->fresh);
    omm_buf_fini(&t->whole);
}

/* Where content begins; at the end, while there is none. */
static size_t content_begin(const output *t) {
    return t->thought.answer < t->whole.size ? t->thought.answer : t->whole.size;
}

static omm_bytes content_so_far(const output *t) {
    const size_t at = content_begin(t);
    return omm_bytes_of(t->whole.data + at, t->whole.size - at);
}

static bool is_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_in_thought(const omm_thought *thought) {
    return thought->state == THOUGHT_OPEN || thought->state == THOUGHT_CLOSED;
}

static bool is_thought(const output *t) {
    return is_in_thought(&t->thought);
}

static bool has_stopped(const output *t) {
    return t->stops.stopped || t->own.stopped;
}

/* A stop text that a call has in it ends nothing; what ends an answer stands behind calls, outside of their strings. */
static omm_err push_to_call(output *t, uint8_t byte) {
    const bool was_inside = t->calls.in_string;
    calls_take(&t->calls, byte, t->whole.size + t->own.held.size);
    return was_inside ? omm_buf_append(&t->whole, &byte, 1)
                      : omm_stops_push(&t->whole, &t->own, omm_bytes_of(&byte, 1));
}

/* Of a mark that has come: it stands in a thought.  What stops hold back has been written as well. */
static omm_err is_thought_of(bool *out, output *t) {
    omm_thought thought = t->thought;
    const size_t size = t->whole.size;
    OMM_TRY(omm_buf_append(&t->whole, t->stops.held.data, t->stops.held.size));
    omm_thought_look(&thought, omm_buf_view(&t->whole), false);
    t->whole.size = size;
    *out = is_in_thought(&thought);
    return OMM_OK;
}

static omm_err begin_calls(output *t, size_t at, omm_calls_form form) {
    t->in_call = true;
    t->leads = false;
    t->call_at = at;
    calls_begin(&t->calls, form);
    return omm_stops_flush(&t->whole, &t->stops);
}

/* One more byte of a text that may be a bare call; it stands at `at`. */
static omm_bare follow_bare(output *t, uint8_t byte, size_t at) {
    size_t space = 0;
    if (!t->leads) return OMM_BARE_NOT;
    if (t->bare_size == 0) t->bare_at = at;
    t->bare[t->bare_size++] = byte;
    const omm_bare is = omm_chat_bare(&space, omm_bytes_of(t->bare, t->bare_size),
                                      omm_grammar_has_tool, t->grammar);
    if (space > 0 || is == OMM_BARE_NOT) t->bare_size = 0;
    t->leads = is != OMM_BARE_NOT;
    return is;
}

static omm_err take_bare(output *t) {
    OMM_TRY(begin_calls(t, t->bare_at, OMM_CALLS_BARE));
    for (size_t i = 0; i < t->bare_size; i++) calls_take(&t->calls, t->bare[i], t->bare_at + i);
    return OMM_OK;
}

static omm_err take_mark(output *t) {
    bool in_thought = false;
    const omm_call_mark mark = t->mark;
    t->mark = (omm_call_mark){0, 0};
    OMM_TRY(is_thought_of(&in_thought, t));
    if (in_thought) return OMM_OK;
    return begin_calls(t, t->whole.size + t->stops.held.size - mark.at,
                       mark.own ? form_of(t) : OMM_CALLS_MARKED);
}

/* One more byte of a text in a format, which is calls from its first byte on or has none in it.  False: a mark that ends with it
 * is none. */
static bool follow_format(output *t, uint8_t byte, omm_bare bare) {
    if (!t->has_format) return true;
    t->format_bytes += t->format_bytes > 0 || !is_space(byte);
    const bool is_mark = t->mark.at == t->format_bytes;
    if (!is_mark) t->mark = (omm_call_mark){0, 0};
    if (!is_mark && bare == OMM_BARE_NOT) t->holds_calls = t->leads = false;
    return is_mark;
}

static omm_err push_byte(output *t, uint8_t byte) {
    if (t->in_call) return push_to_call(t, byte);
    const omm_bare bare = follow_bare(t, byte, t->whole.size + t->stops.held.size);
    const bool ends_mark = omm_call_mark_follow(&t->mark, form_of(t), byte);
    const bool is_mark = follow_format(t, byte, bare) && ends_mark;
    OMM_TRY(omm_stops_push(&t->whole, &t->stops, omm_bytes_of(&byte, 1)));
    if (has_stopped(t)) return OMM_OK;
    if (bare == OMM_BARE_CALL) return take_bare(t);
    return is_mark ? take_mark(t) : OMM_OK;
}

static omm_err push_text(output *t, omm_bytes text) {
    size_t i = 0;
    for (; t->holds_calls && i < text.size; i++) OMM_TRY(push_byte(t, text.data[i]));
    if (i == text.size) return OMM_OK;
    return omm_stops_push(&t->whole, &t->stops, omm_bytes_of(text.data + i, text.size - i));
}

/* What was held back as part of a character or of a stop text comes out. */
static omm_err end(output *t, finish how) {
    t->finish = how;
    omm_buf_clear(&t->fresh);
    OMM_TRY(omm_detok_flush(&t->fresh, &t->detok));
    OMM_TRY(push_text(t, omm_buf_view(&t->fresh)));
    OMM_TRY(omm_stops_flush(&t->whole, t->in_call ? &t->own : &t->stops));
    omm_thought_look(&t->thought, omm_buf_view(&t->whole), true);
    if (output_calls(t) > 0 && !calls_is_cut(&t->calls)) t->finish = FINISH_CALLS;
    return OMM_OK;
}

omm_err output_push(output *t, uint32_t id) {
    t->tokens++;
    if (omm_tokenizer_is_end(t->tokenizer, id)) return end(t, FINISH_STOP);
    omm_buf_clear(&t->fresh);
    OMM_TRY(omm_detok_push(&t->fresh, &t->detok, t->tokenizer, id, 0));
    t->bytes += t->fresh.size;
    t->characters += omm_utf8_count(omm_buf_view(&t->fresh));
    OMM_TRY(push_text(t, omm_buf_view(&t->fresh)));
    omm_thought_look(&t->thought, omm_buf_view(&t->whole), false);
    if (is_thought(t)) t->thought_tokens = t->tokens;
    if (has_stopped(t)) return end(t, FINISH_STOP);
    return t->tokens == t->tokens_max ? end(t, FINISH_LENGTH) : OMM_OK;
}

/* Bytes of the content for sure: no call, nor what may become one, nor white space in front of it. */
static size_t size_before_calls(const output *t) {
    const omm_bytes text = content_so_far(t);
    size_t size = text.size;
    const bool is_call = t->in_call && (output_calls(t) > 0 || t->finish != FINISH_STOP);
    if (!t->holds_calls || (t->finish != FINISH_NONE && !is_call)) return size;
    if (t->in_call)
        size = t->call_at - content_begin(t);
    else if (t->leads && t->bare_size > 0 && t->bare_at - content_begin(t) < size)
        size = t->bare_at - content_begin(t); /* else stops hold it */
    else if (!t->leads || t->bare_size == 0)
        size -= omm_chat_mark_tail(text, form_of(t));
    while (size > 0 && is_space(text.data[size - 1])) size--;
    return size;
}

/* The same without the mark behind it. */
static size_t content_size(const output *t) {
    const size_t begin = content_begin(t), size = size_before_calls(t);
    const size_t most = t->thought.end > begin ? t->thought.end - begin : 0;
    return size < most ? size : most;
}

static omm_bytes next(const output *t, size_t *sent, size_t begin, size_t to) {
    const size_t from = *sent > begin ? *sent : begin;
    if (to <= from) return omm_bytes_str("");
    *sent = to;
    return omm_bytes_of(t->whole.data + from, to - from);
}

omm_bytes output_next_thought(output *t) {
    return next(t, &t->thought_sent, t->thought.from, t->thought.to);
}

omm_bytes output_next(output *t) {
    const size_t begin = content_begin(t);
    return next(t, &t->sent, begin, begin + content_size(t));
}

bool output_is_content(const output *t, size_t begin, size_t end) {
    const omm_thought *is = &t->thought;
    if (is->answer == SIZE_MAX || (is->answer > 0 && t->begun + end <= is->answer)) return false;
    return !is->wrapped || t->finish == FINISH_NONE || t->begun + begin < is->end;
}

size_t output_settled(const output *t) {
    const omm_thought *is = &t->thought;
    if (t->finish == FINISH_NONE && is->state == THOUGHT_NOT_BEGUN) return 0;
    if (t->finish == FINISH_NONE && is->state == THOUGHT_UNWRAPPED && is->looked > t->begun)
        return is->looked - t->begun;
    if (t->finish == FINISH_NONE && is->state == THOUGHT_UNWRAPPED) return 0;
    if (t->finish == FINISH_NONE && is->wrapped && is->state == THOUGHT_OVER)
        return is->end - t->begun;
    if (t->finish != FINISH_NONE && !has_stopped(t)) return t->bytes;
    return t->whole.size - t->begun;
}

omm_bytes output_thought(const output *t) {
    return omm_bytes_of(t->whole.data + t->thought.from, t->thought.to - t->thought.from);
}

omm_bytes output_content(const output *t) {
    return omm_bytes_of(t->whole.data + content_begin(t), content_size(t));
}

size_t output_calls(const output *t) {
    return calls_named(&t->calls);
}

omm_bytes output_call_name(const output *t, size_t i) {
    const drawn_call *call = &t->calls.list[i];
    return omm_bytes_of(t->whole.data + call->name, call->name_end - call->name);
}

omm_bytes output_call_arguments(const output *t, size_t i) {
    const drawn_call *call = &t->calls.list[i];
    const size_t end = call->arguments_end ? call->arguments_end : t->whole.size;
    if (!call->arguments || call->arguments >= t->whole.size) return omm_bytes_str("");
    return omm_bytes_of(t->whole.data + call->arguments,
                        (end < t->whole.size ? end : t->whole.size) - call->arguments);
}

bool output_next_call(output *t, size_t *i, omm_bytes *name, omm_bytes *arguments) {
    if (t->calls_sent == output_calls(t)) return false;
    const omm_bytes all = output_call_arguments(t, t->calls_sent);
    const bool ended = t->calls.list[t->calls_sent].arguments_end > 0;
    OMM_ASSERT(t->arguments_sent <= all.size);
    *i = t->calls_sent;
    *name = t->call_told ? omm_bytes_str("") : output_call_name(t, *i);
    *arguments = omm_bytes_of(all.data + t->arguments_sent, all.size - t->arguments_sent);
    t->calls_sent += ended;
    t->call_told = !ended;
    t->arguments_sent = ended ? 0 : all.size;
    return name->size > 0 || arguments->size > 0;
}
