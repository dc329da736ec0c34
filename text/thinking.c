/* thinking.c - see omm/thinking.h. */
#include "omm/thinking.h"

#include "chat_internal.h"
#include "tokenizer_internal.h"

#include <string.h>

#define OPENS "<think>"
#define CLOSES "</think>"
#define LINE_ENDS_MAX 2u /* behind CLOSES */
#define WRAP_OPENS "<answer>"
#define WRAP_CLOSES "</answer>"

static omm_bytes from(omm_bytes text, const uint8_t *at) {
    return omm_bytes_of(at, (size_t)(text.data + text.size - at));
}

/* Behind the last `wanted`; data NULL: there is none. */
static omm_bytes behind_last(omm_bytes text, const char *wanted) {
    omm_bytes rest = {0};
    for (const uint8_t *at; (at = chat_find(text, wanted)) != NULL;)
        rest = text = from(text, at + strlen(wanted));
    return rest;
}

/* ---- What a template says ------------------------------------------------------------------- */

/* Line ends that the text begins with, themselves or as escapes; `rest` is what follows them. */
static unsigned line_ends(omm_bytes *rest, omm_bytes text) {
    unsigned count = 0;
    for (size_t size; (size = chat_line_end(text)) > 0; count++)
        text = omm_bytes_of(text.data + size, text.size - size);
    *rest = text;
    return count;
}

static bool is_quote(omm_bytes text) {
    return text.size > 0 && (text.data[0] == '\'' || text.data[0] == '"');
}

/* In the part that begins an answer: where the opened thought begins that a text ends with; NULL: there is none. */
static const uint8_t *opening_of(omm_bytes part) {
    for (const uint8_t *at; (at = chat_find(part, OPENS)) != NULL;) {
        omm_bytes rest;
        part = from(part, at + sizeof OPENS - 1);
        if (line_ends(&rest, part) <= 1 && is_quote(rest)) return at;
    }
    return NULL;
}

/* The last statement in front of the thought asks whether it is wanted. */
static bool is_switched(omm_bytes part, const uint8_t *opening) {
    static const char *const asks[] = {"if enable_thinking", "if enable_thinking is true",
                                       "if enable_thinking is defined and enable_thinking"};
    const omm_bytes said =
        behind_last(omm_bytes_of(part.data, (size_t)(opening - part.data)), "{%");
    const uint8_t *end = chat_find(said, "%}");
    const uint8_t *at = said.data;
    while (end && at < end && (*at == '-' || *at == '+' || *at == ' ')) at++;
    while (end && end > at && (end[-1] == '-' || end[-1] == '+' || end[-1] == ' ')) end--;
    for (size_t i = 0; end && i < sizeof asks / sizeof *asks; i++)
        if (omm_bytes_equal(omm_bytes_of(at, (size_t)(end - at)), omm_bytes_str(asks[i])))
            return true;
    return false;
}

void thinking_recognise(omm_tokenizer *t, omm_bytes jinja) {
    t->thinking = OMM_THINKING_NONE;
    const omm_bytes part = behind_last(jinja, "add_generation_prompt");
    const uint8_t *opening = opening_of(part);
    if (!chat_find(jinja, CLOSES) && !opening) return;
    omm_bytes rest;
    t->thinking = opening ? OMM_THINKING_OPENED : OMM_THINKING_OWN;
    const uint8_t *closes = chat_find(part, CLOSES);
    t->thought_lines = !closes && opening && is_switched(part, opening) ? 0 : LINE_ENDS_MAX;
    if (!closes) return;
    const unsigned lines = line_ends(&rest, from(part, closes + sizeof CLOSES - 1));
    if (lines >= 1 && lines < LINE_ENDS_MAX) t->thought_lines = (uint8_t)lines;
}

omm_thinking omm_thinking_of(const omm_tokenizer *tokenizer) {
    return (omm_thinking)tokenizer->thinking;
}

omm_bytes omm_thinking_opening(const omm_tokenizer *tokenizer) {
    return omm_bytes_str(tokenizer->thinking == OMM_THINKING_OPENED ? OPENS "\n" : "");
}

bool omm_thinking_wraps(const omm_tokenizer *tokenizer) {
    return chat_templates[tokenizer->chat].thoughts == CHAT_THOUGHTS_ANSWERED;
}

omm_bytes thinking_none(const omm_tokenizer *tokenizer) {
    if (tokenizer->thinking == OMM_THINKING_NONE || tokenizer->thought_lines == 0)
        return omm_bytes_str("");
    return omm_bytes_str(tokenizer->thought_lines == 1 ? OPENS "\n\n" CLOSES "\n"
                                                       : OPENS "\n\n" CLOSES "\n\n");
}

/* ---- A text taken apart ---------------------------------------------------------------------- */

static size_t skip_space(omm_bytes text, size_t at) {
    while (at < text.size && chat_is_space(text.data[at])) at++;
    return at;
}

bool thinking_is_open(omm_bytes text) {
    const size_t at = skip_space(text, 0), size = sizeof OPENS - 1;
    return text.size - at >= size && memcmp(text.data + at, OPENS, size) == 0;
}

omm_thought omm_thought_init(bool is_thinking, bool wraps) {
    if (is_thinking) return (omm_thought){.answer = SIZE_MAX, .wraps = wraps};
    if (wraps) return (omm_thought){.answer = SIZE_MAX, .wraps = true, .state = THOUGHT_UNWRAPPED};
    return (omm_thought){.answer = 0, .state = THOUGHT_OVER};
}

/* Does the text have this mark at `at`?  *may: what there is of it may become one. */
static bool has_mark(bool *may, omm_bytes text, size_t at, const char *mark) {
    const size_t left = text.size - at, size = strlen(mark);
    *may = memcmp(text.data + at, mark, left < size ? left : size) == 0;
    return *may && left >= size;
}

/* Bytes that the text ends with and a mark begins with; not all of it. */
static size_t begun_mark(omm_bytes text, const char *mark) {
    size_t n = strlen(mark) - 1;
    if (n > text.size) n = text.size;
    while (n > 0 && memcmp(text.data + text.size - n, mark, n) != 0) n--;
    return n;
}

static size_t trim_space(omm_bytes text, size_t from, size_t to) {
    while (to > from && chat_is_space(text.data[to - 1])) to--;
    return to;
}

static void begin_answer(omm_thought *t, size_t at) {
    t->answer = t->end = t->looked = at;
    t->state = THOUGHT_OVER;
}

static void look_for_begin(omm_thought *t, omm_bytes text, bool is_over) {
    const size_t at = skip_space(text, 0);
    bool may = false;
    if (has_mark(&may, text, at, OPENS)) {
        t->state = THOUGHT_OPEN;
        t->from = t->to = t->looked = at + sizeof OPENS - 1;
    } else if ((!may || is_over) && t->wraps) {
        t->state = THOUGHT_UNWRAPPED;
    } else if (!may || is_over) {
        begin_answer(t, 0);
    }
}

/* What may become the mark that closes it is no thought yet, nor is white space in front of that. */
static void look_for_end(omm_thought *t, omm_bytes text, bool is_over) {
    const size_t size = sizeof CLOSES - 1;
    const omm_bytes rest = omm_bytes_of(text.data + t->looked, text.size - t->looked);
    const uint8_t *at = chat_find(rest, CLOSES);
    size_t to = at ? (size_t)(at - text.data) : text.size;
    if (!at && !is_over) to -= begun_mark(rest, CLOSES);
    t->looked = at ? to + size : to;
    if (t->from == t->to) t->from = t->to = skip_space(text, t->from);
    to = trim_space(text, t->to, to);
    if (to > t->to) t->to = to;
    if (at) t->state = THOUGHT_CLOSED;
}

static void look_for_answer(omm_thought *t, omm_bytes text, bool is_over) {
    t->looked = skip_space(text, t->looked);
    if (t->looked == text.size && !is_over) return;
    if (t->wraps && t->state == THOUGHT_CLOSED)
        t->state = THOUGHT_UNWRAPPED;
    else
        begin_answer(t, t->looked);
}

static void look_for_wrap(omm_thought *t, omm_bytes text, bool is_over) {
    const size_t at = skip_space(text, t->looked);
    bool may = false;
    if (has_mark(&may, text, at, WRAP_OPENS)) {
        t->wrapped = true;
        t->state = THOUGHT_WRAPPED;
        t->looked = at + sizeof WRAP_OPENS - 1;
    } else if (!may || is_over) {
        begin_answer(t, t->looked);
    }
}

/* A mark ends the answer where nothing follows it but white space: what may be one, or become one, is no answer yet, nor
 * is white space in front of that. */
static void look_for_wrap_end(omm_thought *t, omm_bytes text, bool is_over) {
    const size_t size = sizeof WRAP_CLOSES - 1;
    const size_t last = trim_space(text, t->answer, text.size);
    const omm_bytes rest = omm_bytes_of(text.data + t->answer, last - t->answer);
    const bool ends = rest.size >= size && memcmp(text.data + last - size, WRAP_CLOSES, size) == 0;
    if (ends)
        t->end = trim_space(text, t->answer, last - size);
    else if (is_over)
        t->end = text.size;
    else
        t->end = trim_space(text, t->answer,
                            last - (last == text.size ? begun_mark(rest, WRAP_CLOSES) : 0));
}

void omm_thought_look(omm_thought *thought, omm_bytes text, bool is_over) {
    if (text.size == 0) return;
    if (thought->state == THOUGHT_NOT_BEGUN) look_for_begin(thought, text, is_over);
    if (thought->state == THOUGHT_OPEN) look_for_end(thought, text, is_over);
    if (thought->state == THOUGHT_CLOSED) look_for_answer(thought, text, is_over);
    if (thought->state == THOUGHT_UNWRAPPED) look_for_wrap(thought, text, is_over);
    if (thought->state == THOUGHT_WRAPPED) look_for_answer(thought, text, is_over);
    if (thought->state != THOUGHT_OVER) return;
    if (thought->wrapped)
        look_for_wrap_end(thought, text, is_over);
    else
        thought->end = text.size;
}

omm_err omm_thought_write(omm_buf *out, omm_bytes thought) {
    const omm_bytes text = chat_trim(thought);
    OMM_TRY(omm_buf_append(out, OPENS "\n", sizeof OPENS));
    OMM_TRY(omm_buf_append(out, text.data, text.size));
    return omm_buf_append(out, "\n" CLOSES "\n\n", sizeof CLOSES + 2);
}

omm_bytes thinking_cut(omm_bytes text) {
    const omm_bytes rest = behind_last(text, CLOSES);
    return rest.data ? rest : text;
}

omm_bytes thinking_cut_clean(omm_bytes text) {
    const omm_bytes rest = behind_last(text, CLOSES);
    return rest.data ? chat_strip(rest) : text;
}

omm_bytes thinking_answer(omm_bytes text) {
    omm_bytes rest = behind_last(text, WRAP_OPENS);
    if (!rest.data) return text;
    rest = chat_strip(rest);
    const size_t size = sizeof WRAP_CLOSES - 1;
    if (rest.size >= size && memcmp(rest.data + rest.size - size, WRAP_CLOSES, size) == 0)
        rest.size -= size;
    return chat_strip(rest);
}

omm_bytes omm_thought_leave_out(omm_bytes text) {
    omm_bytes rest = behind_last(text, CLOSES);
    if (!rest.data) return thinking_is_open(text) ? omm_bytes_of(text.data, 0) : text;
    while (rest.size > 0 && rest.data[0] == '\n') rest = omm_bytes_of(rest.data + 1, rest.size - 1);
    return rest;
}
