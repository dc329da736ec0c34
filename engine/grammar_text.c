/* grammar_text.c - byte after byte through a whole text: a value alone, or any text and the calls that it ends with.
 *
 *   BEGIN --<think>--> THOUGHT --</think>--> FREE --<tool_call>--> OPEN --> VALUE --> CLOSE --</tool_call>--> BETWEEN
 *   BETWEEN --<tool_call>--> OPEN;  --a text that ends an answer--> OVER
 *   LEAD --{"name": "NAME"--> VALUE --> OVER;  --anything else--> FREE
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

static void step_free(crowd *out, uint8_t at, uint8_t b) {
    const uint8_t next = follow(s_call, at, b);
    if (s_call[next])
        stand(out, TEXT_FREE, next, 0);
    else
        stand(out, TEXT_OPEN, 0, 0);
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
static void step_begin(crowd *out, uint8_t at, uint8_t b) {
    if (at == 0 && chat_is_space(b))
        stand(out, TEXT_BEGIN, 0, 0);
    else if (b != (uint8_t)s_think[at]) {
        const uint8_t common = in_common(s_think, s_call, at);
        step_free(out, common == at ? at : 0, b);
    } else if (s_think[at + 1])
        stand(out, TEXT_BEGIN, (uint8_t)(at + 1), 0);
    else
        stand(out, TEXT_THOUGHT, 0, 0);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

/* A value is left when its last byte has come: it is an object. */
static void step_value(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    out->part = TEXT_VALUE;
    out->at = in->at;
    match_step(out, f, g, in, b);
    if (g->calls.max == 0 || !match_is_whole(g, out)) return;
    if (in->at == OMM_CALLS_MARKED) {
        stand(out, TEXT_CLOSE, 0, (1u << MARKS) - 1);
    } else {
        out->calls++;
        stand(out, TEXT_OVER, 0, 0);
    }
}

/* The text is as free as any until it has a tool's name, with its second quote: {"name": "NAME" */
static void step_lead(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t b) {
    enum { QUOTES = 4 };
    crowd begin = {.calls = out->calls};
    if (in->count == 0 && chat_is_space(b)) {
        stand(out, TEXT_LEAD, 0, 0);
        return;
    }
    if (in->count == 0) match_begin(&begin, g, g->calls.bare_root, false);
    match_step(out, f, g, in->count > 0 ? in : &begin, b);
    out->part = TEXT_LEAD;
    out->at = (uint8_t)(in->at + (b == '"'));
    if (out->count == 0) {
        step_free(out, 0, b);
    } else if (out->at == QUOTES) {
        out->part = TEXT_VALUE;
        out->at = OMM_CALLS_BARE;
    }
}

static void step_open(crowd *out, frames *f, const omm_grammar *g, uint8_t at, uint8_t b) {
    crowd begin = {.calls = out->calls};
    if (at == 0 && is_blank(b)) {
        stand(out, TEXT_OPEN, 1, 0);
        return;
    }
    match_begin(&begin, g, g->root, false);
    step_value(out, f, g, &begin, b);
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

static uint8_t all_next(const omm_grammar *g, const crowd *c) {
    OMM_ASSERT(g->calls.stop_count <= GRAMMAR_STOPS_MAX);
    const unsigned stops = ((1u << g->calls.stop_count) - 1) << MARKS;
    return (uint8_t)(stops | (c->calls < g->calls.max ? (1u << MARKS) - 1 : 0));
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

/* ---- all ------------------------------------------------------------------------------------------- */

void text_begin(crowd *out, const omm_grammar *g, bool leads) {
    out->calls = 0;
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
    case TEXT_BEGIN: step_begin(out, in->at, byte); break;
    case TEXT_LEAD: step_lead(out, f, g, in, byte); break;
    case TEXT_THOUGHT: step_thought(out, in->at, byte); break;
    case TEXT_FREE: step_free(out, in->at, byte); break;
    case TEXT_OPEN: step_open(out, f, g, in->at, byte); break;
    case TEXT_CLOSE: step_close(out, g, in, byte); break;
    case TEXT_BETWEEN: step_between(out, g, in, byte); break;
    case TEXT_OVER: stop(out); break;
    }
}

bool text_is_whole(const omm_grammar *g, const crowd *c) {
    if (c->part == TEXT_VALUE) return match_is_whole(g, c); /* a call's is left */
    if (text_is_free(c) || c->part == TEXT_OVER) return true;
    /* one blank is read as the end's as well as the next call's */
    const bool behind_blank = c->at == 1 && (c->alive & 6) != 0;
    return c->part == TEXT_BETWEEN && (c->at == 0 || behind_blank);
}

uint32_t text_room(const omm_grammar *g, const crowd *c) {
    return c->part == TEXT_VALUE ? match_room(g, c) : MATCH_ROOM_UNKNOWN;
}

bool text_may_open(omm_calls_form form, omm_bytes piece) {
    const size_t size = sizeof s_call - 1;
    if (form == OMM_CALLS_BARE) return piece.size > 0 && memchr(piece.data, '"', piece.size);
    if (piece.size >= size && memmem(piece.data, piece.size, s_call, size)) return true;
    for (size_t at = 1; at < size; at++) {
        const size_t left = size - at;
        if (piece.size >= left && memcmp(piece.data, s_call + at, left) == 0) return true;
    }
    return false;
}
