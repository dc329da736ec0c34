/* grammar_pattern.c - strings that a regular expression describes, byte after byte.
 *
 * One spelling each: characters stand for themselves but for quotes, backslashes and what is below a space, which have the
 * escapes that JSON has for them.  A byte may follow where a character begins so that the expression takes. */
#include "grammar_internal.h"

#define CONTROL_LAST 0x1fu
#define WALK_MAX 1024u /* states: some microseconds a token */

/* May one of the characters low .. high come next? */
static const pattern_edge *find(const thread *t, const omm_grammar *g, uint32_t low,
                                uint32_t high) {
    const uint32_t most = g->rules[t->rule].max;
    const uint32_t room = most == RULE_NONE ? PATTERN_NONE : most - t->at;
    return pattern_find(&g->patterns, t->lo, low, high, room);
}

/* The character has come. */
static bool take(thread *t, const omm_grammar *g, uint32_t character) {
    const pattern_edge *edge = find(t, g, character, character);
    if (!edge) return false;
    t->lo = edge->next;
    t->letter = LETTER_BETWEEN;
    t->pos = t->code = t->left = t->low = t->high =
        0; /* between characters nothing is left of them */
    if (g->rules[t->rule].max != RULE_NONE) t->at++;
    return true;
}

static bool begin_escape(thread *t, const omm_grammar *g) {
    t->letter = LETTER_ESCAPE;
    return find(t, g, 1, CONTROL_LAST) || find(t, g, '"', '"') || find(t, g, '\\', '\\');
}

/* The first of several bytes, RFC 3629, section 4: `left` more, the next one from low to high. */
static bool begin_long(thread *t, const omm_grammar *g, uint8_t b) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    t->letter = LETTER_TAIL;
    t->left = b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
    t->low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    t->high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    t->pos = b & (0x3fu >> t->left);
    const uint32_t first = t->pos << 6 * t->left, last = first + (1u << 6 * t->left) - 1;
    return find(t, g, first > least[t->left] ? first : least[t->left], last) != NULL;
}

static bool step_long(thread *t, const omm_grammar *g, uint8_t b) {
    if (b < t->low || b > t->high) return false;
    t->pos = t->pos << 6 | (b & 0x3fu);
    t->left--;
    t->low = 0x80;
    t->high = 0xbf;
    if (t->left == 0) return take(t, g, t->pos);
    const uint32_t first = t->pos << 6 * t->left;
    return find(t, g, first, first + (1u << 6 * t->left) - 1) != NULL;
}

static bool step_escape(thread *t, const omm_grammar *g, uint8_t b) {
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    const char *named = b ? strchr(names, b) : NULL;
    if (named) return take(t, g, (uint8_t)values[named - names]);
    t->letter = LETTER_HEX;
    t->left = 4;
    return b == 'u' && find(t, g, 1, CONTROL_LAST) != NULL;
}

static bool step_hex(thread *t, const omm_grammar *g, uint8_t b) {
    const int value = pattern_hex_value(b);
    if (value < 0) return false;
    t->code = (uint16_t)(t->code * 16 + value);
    t->left--;
    if (t->left == 0) return take(t, g, t->code);
    const uint32_t first = (uint32_t)t->code << 4 * t->left;
    const uint32_t last = first + (1u << 4 * t->left) - 1;
    return first <= CONTROL_LAST && find(t, g, first, last < CONTROL_LAST ? last : CONTROL_LAST);
}

bool pattern_step(thread *t, const omm_grammar *g, uint8_t b) {
    switch (t->letter) {
    case LETTER_TAIL: return step_long(t, g, b);
    case LETTER_ESCAPE: return step_escape(t, g, b);
    case LETTER_HEX: return step_hex(t, g, b);
    default: break;
    }
    if (b == '"') {
        const bool ends = g->patterns.states[t->lo].left == 0;
        t->lo = 0;
        return ends && match_go(t, PHASE_DONE, 0);
    }
    if (b == '\\') return begin_escape(t, g);
    if (b < 0x80) return b >= ' ' && take(t, g, b);
    return b >= 0xc2 && b <= 0xf4 && begin_long(t, g, b);
}

/* Of up to `most` characters in all, as many plain ones as leave room for what ends the text behind them: each takes one, and saves
 * one at most, so that behind the first that is too many all are. */
static uint32_t room_within(const pattern_table *p, uint32_t state, uint32_t most) {
    for (uint32_t count = 0; count < WALK_MAX; count++) {
        const pattern_state *s = &p->states[state];
        if (s->plain == state) return most - s->left;
        if (s->room == 0) return count;
        if (p->states[s->plain].left >= most - count) return count;
        state = s->plain;
    }
    return MATCH_ROOM_UNKNOWN;
}

uint32_t pattern_room(const thread *t, const omm_grammar *g) {
    const uint32_t room = g->patterns.states[t->lo].room, most = g->rules[t->rule].max;
    if (room == PATTERN_ROOM_UNKNOWN) return MATCH_ROOM_UNKNOWN;
    if (most != RULE_NONE) return room_within(&g->patterns, t->lo, most - t->at);
    return room == PATTERN_ROOM_ALL ? MATCH_ROOM_ALL : room;
}
