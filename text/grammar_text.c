/* grammar_text.c - byte after byte through a whole text: a value alone, or any text and the calls that it ends with.
 *
 *   BEGIN --<think>--> THOUGHT --</think>--> FREE --<tool_call>--> OPEN --> VALUE --> CLOSE --</tool_call>--> BETWEEN
 *   BETWEEN --<tool_call>--> OPEN;  --a text that ends an answer--> OVER
 *   LEAD --{"name": "NAME"--> VALUE --> OVER;  --anything else--> FREE
 *   FREE --a form's own mark--> LIST --[--> VALUE --> AFTER --,--> LIST;  AFTER --]--> SHUT --what closes it--> BETWEEN
 *        or NAME --> ARGS --[ARGS]--> VALUE --> NEXT --the mark--> NAME;  NAME --[CALL_ID]--> ID --> ARGS
 *   where content is held:  EITHER --a mark--> OPEN, LIST or NAME;  EITHER_BARE --{"name": "NAME"--> VALUE --> OVER
 *                           both --anything else--> VALUE
 *
 * None of the marks begins again inside itself but with its first byte, so that where one was left is known by how many of
 * its bytes there are. */
#include "chat_internal.h"
#include "grammar_internal.h"

static const char s_think[] = "<think>";
static const char s_thought[] = "</think>";
static const char s_call[] = OMM_CHAT_CALL_OPENS;

/* With what goes on behind a call's value, and behind a call; in front of those stand the texts that end an answer. */
static const char *const s_close[] = {OMM_CHAT_CALL_CLOSES, "\n" OMM_CHAT_CALL_CLOSES,
                                      " " OMM_CHAT_CALL_CLOSES};
static const char *const s_next[] = {OMM_CHAT_CALL_OPENS, "\n" OMM_CHAT_CALL_OPENS,
                                     " " OMM_CHAT_CALL_OPENS};
enum { MARKS = 3 };
_Static_assert(MARKS + GRAMMAR_STOPS_MAX <= 8, "one bit for each in crowd.alive");

static void stand(crowd *c, text_part part, uint8_t at, uint8_t alive) {
    c->part = (uint8_t)part;
    c->at = at;
    c->alive = alive;
    c->count = 0;
}

static void stop(crowd *c) {
    stand(c, TEXT_VALUE, 0, 0); /* and no thread */
}

static bool is_blank(uint8_t b) {
    return b == ' ' || b == '\n';
}

/* ---- text ------------------------------------------------------------------------------------------ */

/* Bytes of a mark that there are behind one more, where there were `at`. */
static uint8_t follow(const char *mark, uint8_t at, uint8_t b) {
    if (b == (uint8_t)mark[at]) return (uint8_t)(at + 1);
    return b == (uint8_t)mark[0];
}

/* A mark has come, the form's own or not. */
static void begin_call(crowd *out, const omm_grammar *g, bool own) {
    const calls_kind kind = calls_style_of(g->calls.form)->kind;
    stand(out, !own ? TEXT_OPEN : kind == CALLS_LIST ? TEXT_LIST : TEXT_NAME, 0, 0);
}

/* Behind `at` bytes of one. */
static void step_free(crowd *out, const omm_grammar *g, omm_call_mark mark, uint8_t b) {
    if (omm_call_mark_follow(&mark, g->calls.form, b))
        begin_call(out, g, mark.own);
    else
        stand(out, TEXT_FREE, mark.at, mark.own);
}

static void step_thought(crowd *out, uint8_t at, uint8_t b) {
    const uint8_t next = follow(s_thought, at, b);
    if (s_thought[next])
        stand(out, TEXT_THOUGHT, next, 0);
    else
        stand(out, TEXT_FREE, 0, 0);
}

static uint8_t in_common(const char *a, const char *b, uint8_t most) {
    uint8_t n = 0;
    while (n < most && a[n] == b[n]) n++;
    return n;
}

/* A thought may begin the text, behind white space. */
static void step_begin(crowd *out, const omm_grammar *g, uint8_t at, uint8_t b) {
    if (at == 0 && chat_is_space(b))
        stand(out, TEXT_BEGIN, 0, 0);
    else if (b != (uint8_t)s_think[at]) {
        const uint8_t common = in_common(s_think, s_call, at);
        step_free(out, g, (omm_call_mark){0, common == at ? at : 0}, b);
    } else if (s_think[at + 1])
        stand(out, TEXT_BEGIN, (uint8_t)(at + 1), 0);
    else
        stand(out, TEXT_THOUGHT, 0, 0);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

static uint8_t all_next(const omm_grammar *g, const crowd *c) {
    OMM_ASSERT(g->calls.stop_count <= GRAMMAR_STOPS_MAX);
    const unsigned stops = ((1u << g->calls.stop_count) - 1) << MARKS;
    return (uint8_t)(stops | (c->calls < g->calls.max ? (1u << MARKS) - 1 : 0));
}

/* A value is left when its last byte has come: it is an object. */
static void step_value(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    out->part = TEXT_VALUE;
    out->at = in->at;
    match_step(out, f, g, in, b);
    if (g->calls.max == 0 || in->at == VALUE_HELD || !match_is_whole(g, out)) return;
    if (in->at == OMM_CALLS_MARKED) {
        stand(out, TEXT_CLOSE, 0, (1u << MARKS) - 1);
        return;
    }
    out->calls++;
    const calls_kind kind = calls_style_of((omm_calls_form)in->at)->kind;
    if (kind == CALLS_LIST)
        stand(out, TEXT_AFTER, 0, 0);
    else if (kind == CALLS_NAMED)
        stand(out, TEXT_NEXT, 0, all_next(g, out));
    else
        stand(out, TEXT_OVER, 0, 0);
}

/* To *out, which goes on through a bare call: its quotes.  True: they are all there, up to the one behind a tool's name. */
static bool count_quotes(crowd *out, const crowd *in, uint8_t b) {
    enum { QUOTES = 4, WITH_TYPE = 8 };
    out->at = (uint8_t)(in->at + (b == '"'));
    out->alive = in->alive || in->at == 0 ? in->alive : b == 't' ? WITH_TYPE : QUOTES;
    return out->at == out->alive && out->alive > 0;
}

static void be_value(crowd *out, omm_calls_form form) {
    out->part = TEXT_VALUE;
    out->at = (uint8_t)form;
}

/* The text is as free as any until it has a tool's name, with its second quote: {"name": "NAME" */
static void step_lead(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    crowd begin = {.calls = out->calls};
    if (in->count == 0 && chat_is_space(b)) {
        stand(out, TEXT_LEAD, 0, 0);
        return;
    }
    if (in->count == 0) match_begin(&begin, g, g->calls.bare_root, false);
    match_step(out, f, g, in->count > 0 ? in : &begin, b);
    out->part = TEXT_LEAD;
    const bool is_call = count_quotes(out, in, b);
    if (out->count == 0)
        step_free(out, g, (omm_call_mark){0, 0}, b);
    else if (is_call)
        be_value(out, OMM_CALLS_BARE);
}

/* ---- calls, or content that is held ---------------------------------------------------------------- */

/* Threads of a bare call stand in front of those of content; up to its arguments they are in rules of its own. */
static uint32_t count_bare(const crowd *c, const omm_grammar *g) {
    uint32_t count = 0;
    while (g->calls.bare && count < c->count && c->list[count].rule >= g->calls.bare_first &&
           c->list[count].rule < g->calls.bare_end)
        count++;
    return count;
}

/* A mark is no beginning of JSON but for its first byte, [; what bare calls begin with is. */
static void step_either(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    omm_call_mark mark = {in->alive, in->at};
    match_step(out, f, g, in, b);
    if (omm_call_mark_follow(&mark, g->calls.form, b)) {
        begin_call(out, g, mark.own);
        return;
    }
    const bool goes_on = mark.at == in->at + 1; /* and has not begun again */
    const bool leads = in->at == 0 && b == ' ' && out->count > 0;
    be_value(out, VALUE_HELD);
    if (goes_on || leads) {
        out->part = TEXT_EITHER;
        out->at = goes_on ? mark.at : 0;
        out->alive = goes_on ? mark.own : 0;
    } else if (count_bare(out, g) > 0) {
        out->part = TEXT_EITHER_BARE;
        out->at = out->alive = 0; /* no quote so far */
    }
}

static void step_either_bare(crowd *out, frames *f, const omm_grammar *g, const crowd *in,
                             uint8_t b) {
    match_step(out, f, g, in, b);
    out->part = TEXT_EITHER_BARE;
    const bool is_call = count_quotes(out, in, b);
    const uint32_t bare = count_bare(out, g);
    if (bare == 0) {
        be_value(out, VALUE_HELD);
    } else if (is_call) {
        out->count = bare;
        be_value(out, OMM_CALLS_BARE);
    }
}

/* The first byte of a call's value, of that form. */
static void begin_value(crowd *out, frames *f, const omm_grammar *g, uint32_t root,
                        omm_calls_form form, uint8_t b) {
    crowd begin = {.calls = out->calls, .at = (uint8_t)form};
    match_begin(&begin, g, root, false);
    begin.at = (uint8_t)form;
    step_value(out, f, g, &begin, b);
}

static void step_open(crowd *out, frames *f, const omm_grammar *g, uint8_t at, uint8_t b) {
    if (at == 0 && is_blank(b))
        stand(out, TEXT_OPEN, 1, 0);
    else
        begin_value(out, f, g, g->root, OMM_CALLS_MARKED, b);
}

/* Those of the texts that are alive and go on with b.  *ended: one that ends with it; MARKS and more: of stops. */
static uint8_t step_marks(int *ended, const char *const *marks, const omm_grammar *g,
                          const crowd *in, uint8_t b) {
    uint8_t alive = 0;
    *ended = -1;
    for (int i = 0; i < MARKS + (int)g->calls.stop_count; i++) {
        const char *mark = i < MARKS ? marks[i] : g->calls.stops[i - MARKS];
        if (!(in->alive >> i & 1) || (uint8_t)mark[in->at] != b) continue;
        alive |= (uint8_t)(1u << i);
        if (!mark[in->at + 1]) *ended = i;
    }
    return alive;
}

static void step_close(crowd *out, const omm_grammar *g, const crowd *in, uint8_t b) {
    int ended = -1;
    const uint8_t alive = step_marks(&ended, s_close, g, in, b);
    if (!alive) {
        stop(out);
    } else if (ended < 0) {
        stand(out, TEXT_CLOSE, (uint8_t)(in->at + 1), alive);
    } else {
        out->calls++;
        stand(out, TEXT_BETWEEN, 0, all_next(g, out));
    }
}

static void step_between(crowd *out, const omm_grammar *g, const crowd *in, uint8_t b) {
    int ended = -1;
    const uint8_t alive = step_marks(&ended, s_next, g, in, b);
    if (!alive)
        stop(out);
    else if (ended < 0)
        stand(out, TEXT_BETWEEN, (uint8_t)(in->at + 1), alive);
    else
        stand(out, ended < MARKS ? TEXT_OPEN : TEXT_OVER, 0, 0);
}

/* ---- calls behind a mark of the form's own --------------------------------------------------------- */

static void step_list(crowd *out, frames *f, const omm_grammar *g, uint8_t at, uint8_t b) {
    enum { CALL = 2 };
    if (at % 2 == 0 && is_blank(b))
        stand(out, TEXT_LIST, (uint8_t)(at + 1), 0);
    else if (at >= CALL)
        begin_value(out, f, g, g->root, g->calls.form, b);
    else if (b == '[')
        stand(out, TEXT_LIST, CALL, 0);
    else
        stop(out);
}

/* The list has ended: so has the text, but for what ends an answer. */
static void end_list(crowd *out, const omm_grammar *g) {
    out->calls = (uint8_t)g->calls.max;
    stand(out, TEXT_BETWEEN, 0, all_next(g, out));
}

static void step_after(crowd *out, const omm_grammar *g, uint8_t b) {
    if (b == ',' && out->calls < g->calls.max)
        stand(out, TEXT_LIST, 2, 0);
    else if (b != ']')
        stop(out);
    else if (*calls_style_of(g->calls.form)->closes)
        stand(out, TEXT_SHUT, 0, 0);
    else
        end_list(out, g);
}

static void step_shut(crowd *out, const omm_grammar *g, uint8_t at, uint8_t b) {
    const char *closes = calls_style_of(g->calls.form)->closes;
    if ((uint8_t)closes[at] != b)
        stop(out);
    else if (closes[at + 1])
        stand(out, TEXT_SHUT, (uint8_t)(at + 1), 0);
    else
        end_list(out, g);
}

/* The name of tool `i` in the order of names, without quotes. */
static omm_bytes name_of(const omm_grammar *g, uint32_t i) {
    const literal *text = &g->texts[g->rules[g->calls.names].first + i];
    return omm_bytes_of(g->bytes.data + text->at + 1, text->size - 2);
}

/* Names that begin alike stand one behind the other. */
static void step_name(crowd *out, const omm_grammar *g, const crowd *in, uint8_t b) {
    const uint32_t count = g->rules[g->calls.names].count;
    const omm_bytes now = name_of(g, in->alive);
    for (uint32_t i = in->alive; i < count; i++) {
        const omm_bytes name = name_of(g, i);
        if (name.size < in->at || memcmp(name.data, now.data, in->at) != 0) break;
        if (name.size == in->at && b == (uint8_t)CALLS_ARGS[0]) {
            stand(out, calls_style_of(g->calls.form)->ids ? TEXT_ID : TEXT_ARGS, 1, (uint8_t)i);
            return;
        }
        if (name.size == in->at || name.data[in->at] != b) continue;
        stand(out, TEXT_NAME, (uint8_t)(in->at + 1), (uint8_t)i);
        return;
    }
    stop(out);
}

/* Or there is none, and arguments follow the name. */
static void step_id(crowd *out, const crowd *in, uint8_t b) {
    enum { MARK = sizeof CALLS_ID - 1, LAST = MARK + OMM_CHAT_CALL_ID_BYTES - 1 };
    if (in->at == 1 && b == (uint8_t)CALLS_ARGS[1])
        stand(out, TEXT_ARGS, 2, in->alive);
    else if (in->at < MARK ? (uint8_t)CALLS_ID[in->at] != b : !calls_is_id_byte(b))
        stop(out);
    else
        stand(out, in->at < LAST ? TEXT_ID : TEXT_ARGS, in->at < LAST ? (uint8_t)(in->at + 1) : 0,
              in->alive);
}

static void step_args(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    enum { MARK = sizeof CALLS_ARGS - 1 };
    const literal *name = &g->texts[g->rules[g->calls.names].first + in->alive];
    const uint32_t arguments = g->members[g->rules[name->member].first + 1].rule;
    if (in->at == MARK)
        begin_value(out, f, g, arguments, g->calls.form, b);
    else if ((uint8_t)CALLS_ARGS[in->at] == b)
        stand(out, TEXT_ARGS, (uint8_t)(in->at + 1), in->alive);
    else
        stop(out);
}

static void step_next(crowd *out, const omm_grammar *g, const crowd *in, uint8_t b) {
    const char *const marks[MARKS] = {calls_style_of(g->calls.form)->opens, "", ""};
    crowd own = *in;
    int ended = -1;
    own.alive &= (uint8_t)~6u; /* there is one mark, without blanks */
    const uint8_t alive = step_marks(&ended, marks, g, &own, b);
    if (!alive)
        stop(out);
    else if (ended < 0)
        stand(out, TEXT_NEXT, (uint8_t)(in->at + 1), alive);
    else
        stand(out, ended < MARKS ? TEXT_NAME : TEXT_OVER, 0, 0);
}

/* ---- all ------------------------------------------------------------------------------------------- */

void text_begin(crowd *out, const omm_grammar *g, bool leads) {
    out->calls = 0;
    if (g->calls.held) {
        stand(out, TEXT_EITHER, 0, 0);
        if (g->calls.bare) match_begin(out, g, g->calls.bare_root, leads);
        match_begin_beside(out, g, g->calls.content, leads);
        return;
    }
    if (g->calls.max == 0) {
        stand(out, TEXT_VALUE, 0, 0);
        match_begin(out, g, g->root, leads);
        return;
    }
    if (g->calls.bare) {
        const bool begun = g->calls.begun_size > 0;
        stand(out, begun ? TEXT_VALUE : TEXT_LEAD, begun ? OMM_CALLS_BARE : 0, 0);
        if (begun) match_begin(out, g, g->calls.bare_root, false);
        return;
    }
    stand(out,
          g->calls.thinking == OMM_THINKING_NONE     ? TEXT_FREE
          : g->calls.thinking == OMM_THINKING_OPENED ? TEXT_THOUGHT
                                                     : TEXT_BEGIN,
          0, 0);
}

void text_step(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t byte) {
    out->calls = in->calls;
    switch ((text_part)in->part) {
    case TEXT_VALUE: step_value(out, f, g, in, byte); break;
    case TEXT_EITHER: step_either(out, f, g, in, byte); break;
    case TEXT_EITHER_BARE: step_either_bare(out, f, g, in, byte); break;
    case TEXT_BEGIN: step_begin(out, g, in->at, byte); break;
    case TEXT_LEAD: step_lead(out, f, g, in, byte); break;
    case TEXT_THOUGHT: step_thought(out, in->at, byte); break;
    case TEXT_FREE: step_free(out, g, (omm_call_mark){in->alive, in->at}, byte); break;
    case TEXT_OPEN: step_open(out, f, g, in->at, byte); break;
    case TEXT_CLOSE: step_close(out, g, in, byte); break;
    case TEXT_BETWEEN: step_between(out, g, in, byte); break;
    case TEXT_OVER: stop(out); break;
    case TEXT_LIST: step_list(out, f, g, in->at, byte); break;
    case TEXT_AFTER: step_after(out, g, byte); break;
    case TEXT_SHUT: step_shut(out, g, in->at, byte); break;
    case TEXT_NAME: step_name(out, g, in, byte); break;
    case TEXT_ID: step_id(out, in, byte); break;
    case TEXT_ARGS: step_args(out, f, g, in, byte); break;
    case TEXT_NEXT: step_next(out, g, in, byte); break;
    }
}

bool text_is_whole(const omm_grammar *g, const crowd *c) {
    if (c->part == TEXT_VALUE) return match_is_whole(g, c); /* a call's is left */
    if (text_is_free(c) || c->part == TEXT_OVER) return true;
    /* one blank is read as the end's as well as the next call's */
    const bool behind_blank = c->at == 1 && (c->alive & 6) != 0;
    if (c->part == TEXT_NEXT) return c->at == 0;
    return c->part == TEXT_BETWEEN && (c->at == 0 || behind_blank);
}

uint32_t text_room(const omm_grammar *g, const crowd *c) {
    return c->part == TEXT_VALUE ? match_room(g, c) : MATCH_ROOM_UNKNOWN;
}

bool text_may_open(calls_opener opener, omm_bytes piece) {
    static const omm_calls_form forms[OPENER_COUNT] = {OMM_CALLS_MARKED, OMM_CALLS_BARE,
                                                       OMM_CALLS_MISTRAL, OMM_CALLS_GRANITE};
    const char *mark = calls_style_of(forms[opener])->opens;
    if (opener == OPENER_BARE) return piece.size > 0 && memchr(piece.data, '"', piece.size);
    const size_t size = strlen(mark);
    if (piece.size >= size && memmem(piece.data, piece.size, mark, size)) return true;
    for (size_t at = 1; at < size; at++) {
        const size_t left = size - at;
        if (piece.size >= left && memcmp(piece.data, mark + at, left) == 0) return true;
    }
    return false;
}
