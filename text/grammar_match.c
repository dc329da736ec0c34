/* grammar_match.c - byte after byte through rules.
 *
 * A thread is one way to read the text so far: the value that is being written, and the frames of those around it.  A value
 * that has ended is left when the next byte comes, which no value goes on with that may end before it.  What begins in
 * several ways becomes several threads that share their frame, so that they are one again where they come back to it alike.
 *
 * Every thread can be ended: one that has no room for the values that it needs does not begin (rule.height).
 *
 * Where more threads would begin than are followed, those that come first are; but where nothing may be lost (rule.wide) each
 * thread goes on as one, in any value of the kind that the byte begins. */
#include "grammar_internal.h"

typedef struct step {
    const omm_grammar *g;
    frames *f;
    crowd *out;
    uint8_t byte;
    bool widens; /* no thread becomes several that need not */
    bool *cut;   /* gets true: some are not followed */
} step;

/* ---- characters of strings --------------------------------------------------------------------------- */

static bool tail(thread *t, uint8_t left, uint8_t low, uint8_t high) {
    t->letter = LETTER_TAIL;
    t->left = left;
    t->low = low;
    t->high = high;
    return true;
}

/* The first byte of a character (RFC 3629, section 4), or a backslash. */
static bool begin_character(thread *t, uint8_t b) {
    if (b == '\\') {
        t->letter = LETTER_ESCAPE;
        return true;
    }
    if (b < 0x80) return b >= ' ';
    if (b < 0xc2 || b > 0xf4) return false;
    if (b < 0xe0) return tail(t, 1, 0x80, 0xbf);
    if (b < 0xf0) return tail(t, 2, b == 0xe0 ? 0xa0 : 0x80, b == 0xed ? 0x9f : 0xbf);
    return tail(t, 3, b == 0xf0 ? 0x90 : 0x80, b == 0xf4 ? 0x8f : 0xbf);
}

static bool begin_hex(thread *t, uint8_t letter) {
    t->letter = letter;
    t->left = 4;
    t->code = 0;
    return true;
}

/* A name has one spelling for each text. */
static bool step_escape(thread *t, uint8_t b, bool is_name) {
    if (b == 'u') return !is_name && begin_hex(t, LETTER_HEX);
    t->letter = LETTER_BETWEEN;
    return b != 0 && strchr(is_name ? "\"\\bfnrt" : "\"\\/bfnrt", b) != NULL;
}

/* Not \u0000; a low surrogate behind a high one and nowhere else. */
static bool step_hex(thread *t, uint8_t b) {
    const int value = pattern_hex_value(b);
    const bool pair = t->letter == LETTER_PAIR_HEX;
    if (value < 0) return false;
    t->code = (uint16_t)(t->code * 16 + value);
    t->left--;
    if (t->left == 3 && pair && t->code != 0xd) return false;
    if (t->left == 2 && pair != (t->code >= 0xdc && t->code <= 0xdf)) return false;
    if (t->left > 0) return true;
    const bool high = !pair && t->code >= 0xd800 && t->code <= 0xdbff, none = t->code == 0;
    t->letter = high ? LETTER_PAIR_BACKSLASH : LETTER_BETWEEN;
    t->code = 0;
    return !none;
}

/* Another byte of a character that has begun. */
static bool step_character(thread *t, uint8_t b, bool is_name) {
    switch (t->letter) {
    case LETTER_ESCAPE: return step_escape(t, b, is_name);
    case LETTER_PAIR_BACKSLASH: t->letter = LETTER_PAIR_U; return b == '\\';
    case LETTER_PAIR_U: return b == 'u' && begin_hex(t, LETTER_PAIR_HEX);
    case LETTER_HEX:
    case LETTER_PAIR_HEX: return step_hex(t, b);
    default: break;
    }
    if (b < t->low || b > t->high) return false;
    t->left--;
    t->low = t->left ? 0x80 : 0; /* between characters nothing is left of them */
    t->high = t->left ? 0xbf : 0;
    if (t->left == 0) t->letter = LETTER_BETWEEN;
    return true;
}

static bool step_string(thread *t, const rule *r, uint8_t b) {
    if (t->letter != LETTER_BETWEEN) return step_character(t, b, false);
    if (b == '"') {
        t->phase = PHASE_DONE;
        return t->at >= r->min;
    }
    if (t->at == r->max || !begin_character(t, b)) return false;
    if (t->at < RULE_NONE - 1) t->at++; /* without a limit nobody asks for more */
    return true;
}

/* ---- one of some texts ------------------------------------------------------------------------------- */

static bool has_byte(const omm_grammar *g, uint32_t index, uint32_t pos, uint8_t least) {
    const literal *x = &g->texts[index];
    return x->size > pos && g->bytes.data[x->at + pos] >= least;
}

/* The first text of lo .. hi - 1, which agree in their first `pos` bytes, whose next byte is at least that. */
static uint32_t bound(const omm_grammar *g, const thread *t, unsigned least) {
    uint32_t lo = t->lo, hi = t->hi;
    if (least > 0xff) return hi;
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (has_byte(g, middle, t->pos, (uint8_t)least))
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

/* Those that go on with b; none: 0 .. 0. */
static void narrow(thread *t, const omm_grammar *g, uint8_t b) {
    const uint32_t lo = bound(g, t, b), hi = bound(g, t, b + 1u);
    t->lo = lo < hi ? lo : 0;
    t->hi = lo < hi ? hi : 0;
    t->pos = lo < hi ? t->pos + 1 : 0;
}

static bool step_texts(thread *t, const omm_grammar *g, const rule *r, uint8_t b) {
    if (t->phase == PHASE_BEGIN) {
        t->phase = PHASE_TEXT;
        t->lo = r->first;
        t->hi = r->first + r->count;
    }
    narrow(t, g, b);
    return t->lo < t->hi;
}

/* ---- values inside others ------------------------------------------------------------------------------ */

/* Has a value inside this one room to be ended? */
static bool fits(const omm_grammar *g, const thread *t, uint32_t inside) {
    const uint32_t height = g->rules[inside].height;
    return height != RULE_NONE && t->depth + height <= GRAMMAR_DEPTH_MAX;
}

/* False: there are as many as are followed. */
static bool add(crowd *out, const thread *t) {
    for (uint32_t i = 0; i < out->count; i++)
        if (memcmp(&out->list[i], t, sizeof *t) == 0) return true;
    if (out->count == GRAMMAR_THREADS_MAX) return false;
    out->list[out->count++] = *t;
    return true;
}

static bool go_on(const step *s, thread *t);

/* Returns how many of its alternatives the byte begins. */
static uint32_t begin_all(const step *s, const thread *t, uint32_t inside) {
    const rule *r = &s->g->rules[inside];
    const bool choice = r->kind == RULE_CHOICE;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < (choice ? r->count : 1); i++) {
        const uint32_t one = choice ? s->g->parts[r->first + i] : inside;
        thread child = {.rule = one,
                        .parent = s->f->count,
                        .phase = PHASE_BEGIN,
                        .depth = (uint8_t)(t->depth + 1)};
        if (!fits(s->g, t, one) || !go_on(s, &child)) continue;
        if (!add(s->out, &child)) *s->cut = true;
        begun++;
    }
    return begun;
}

/* The byte begins a value inside t, which goes on behind it where t->at says. */
static void enter(const step *s, const thread *t, uint32_t inside) {
    const uint32_t before = s->out->count;
    uint32_t begun = begin_all(s, t, inside);
    if (begun > 1 && s->widens && s->g->rules[inside].wide) {
        s->out->count = before;
        begun = begin_all(s, t, s->g->any);
    }
    if (begun == 0) return;
    OMM_ASSERT(s->f->count < MATCH_FRAMES_MAX);
    s->f->list[s->f->count++] = (frame){t->rule, t->at, t->parent};
}

/* ---- objects ------------------------------------------------------------------------------------- */

static uint32_t due(const omm_grammar *g, const thread *t, const rule *r) {
    return t->at < r->count ? g->members[r->first + t->at].due : RULE_NONE;
}

static bool may_have(const omm_grammar *g, const thread *t, const rule *r, uint32_t index) {
    const uint32_t last = due(g, t, r);
    return index >= t->at && (last == RULE_NONE || index <= last) &&
           fits(g, t, g->members[r->first + index].rule);
}

static bool may_have_other(const omm_grammar *g, const thread *t, const rule *r) {
    return r->rest != RULE_NONE && due(g, t, r) == RULE_NONE && fits(g, t, r->rest);
}

/* Is there a member that may come, of those whose names begin so? */
static bool may_name(const omm_grammar *g, const thread *t, const rule *r) {
    if (may_have_other(g, t, r)) return true;
    for (uint32_t i = t->lo; i < t->hi; i++)
        if (may_have(g, t, r, g->texts[i].member)) return true;
    return false;
}

static bool begin_name(const omm_grammar *g, thread *t, const rule *r) {
    t->phase = PHASE_NAME;
    t->letter = LETTER_BETWEEN;
    t->lo = r->names;
    t->hi = r->names + r->count;
    t->pos = 0;
    return may_name(g, t, r);
}

/* To the colon: *t has the rule of its value in `pos`. */
static bool end_name(const omm_grammar *g, thread *t, const rule *r) {
    narrow(t, g, '"');
    const bool known = t->lo < t->hi;
    const uint32_t index = known ? g->texts[t->lo].member : 0;
    if (known ? !may_have(g, t, r, index) : !may_have_other(g, t, r)) return false;
    t->at = known ? index + 1 : r->count;
    t->pos = known ? g->members[r->first + index].rule : r->rest;
    t->lo = t->hi = 0;
    t->phase = PHASE_COLON;
    return true;
}

static bool step_name(const omm_grammar *g, thread *t, const rule *r, uint8_t b) {
    if (t->letter == LETTER_BETWEEN && b == '"') return end_name(g, t, r);
    if (!(t->letter == LETTER_BETWEEN ? begin_character(t, b) : step_character(t, b, true)))
        return false;
    narrow(t, g, b);
    return may_name(g, t, r);
}

static bool needs_more(const omm_grammar *g, const thread *t, const rule *r) {
    return due(g, t, r) != RULE_NONE;
}

/* Could a comma have a member behind it? */
static bool may_go_on(const omm_grammar *g, const thread *t, const rule *r) {
    thread next = *t;
    return begin_name(g, &next, r);
}

/* False: `t` does not go on; where a value inside it begins it does, but as what enter made. */
static bool step_object(const step *s, thread *t, const rule *r) {
    const uint8_t b = s->byte;
    switch (t->phase) {
    case PHASE_BEGIN: return b == '{' && match_go(t, PHASE_OPEN, 0);
    case PHASE_OPEN:
        if (b == '}') return !needs_more(s->g, t, r) && match_go(t, PHASE_DONE, 0);
        return b == '"' && begin_name(s->g, t, r);
    case PHASE_NAME: return step_name(s->g, t, r, b);
    case PHASE_COLON: return b == ':' && match_go(t, PHASE_VALUE, t->at);
    case PHASE_VALUE:
        if (b == ' ') return match_go(t, PHASE_VALUE_SPACED, t->at);
        enter(s, t, t->pos);
        return false;
    case PHASE_VALUE_SPACED: enter(s, t, t->pos); return false;
    case PHASE_AFTER:
        if (b == '}') return !needs_more(s->g, t, r) && match_go(t, PHASE_DONE, 0);
        return b == ',' && may_go_on(s->g, t, r) && match_go(t, PHASE_COMMA, t->at);
    case PHASE_COMMA:
        if (b == ' ') return match_go(t, PHASE_COMMA_SPACED, t->at);
        return b == '"' && begin_name(s->g, t, r);
    case PHASE_COMMA_SPACED: return b == '"' && begin_name(s->g, t, r);
    default: return false;
    }
}

/* ---- arrays ------------------------------------------------------------------------------------- */

static bool may_have_item(const omm_grammar *g, const thread *t, const rule *r) {
    const uint32_t item = grammar_item(g, r, t->at);
    return t->at < r->max && item != RULE_NONE && fits(g, t, item);
}

static void enter_item(const step *s, const thread *t, const rule *r) {
    thread behind = *t;
    if (!may_have_item(s->g, t, r)) return;
    behind.at++;
    enter(s, &behind, grammar_item(s->g, r, t->at));
}

static bool step_array(const step *s, thread *t, const rule *r) {
    const uint8_t b = s->byte;
    switch (t->phase) {
    case PHASE_BEGIN: return b == '[' && match_go(t, PHASE_OPEN, 0);
    case PHASE_OPEN:
        if (b == ']') return r->min == 0 && match_go(t, PHASE_DONE, 0);
        break;
    case PHASE_AFTER:
        if (b == ']') return t->at >= r->min && match_go(t, PHASE_DONE, 0);
        return b == ',' && may_have_item(s->g, t, r) && match_go(t, PHASE_COMMA, t->at);
    case PHASE_COMMA:
        if (b == ' ') return match_go(t, PHASE_COMMA_SPACED, t->at);
        break;
    case PHASE_COMMA_SPACED: break;
    default: return false;
    }
    enter_item(s, t, r);
    return false;
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool go_on(const step *s, thread *t) {
    const rule *r = &s->g->rules[t->rule];
    if (t->phase == PHASE_LEAD) {
        t->phase = PHASE_BEGIN;
        if (s->byte == ' ') return true;
    }
    if (t->phase == PHASE_DONE) return false;
    switch (r->kind) {
    case RULE_TEXTS: return step_texts(t, s->g, r, s->byte);
    case RULE_STRING:
        if (t->phase == PHASE_BEGIN) return s->byte == '"' && match_go(t, PHASE_STRING, 0);
        return step_string(t, r, s->byte);
    case RULE_PATTERN:
        if (t->phase != PHASE_BEGIN) return pattern_step(t, s->g, s->byte);
        t->lo = r->first;
        return s->byte == '"' && match_go(t, PHASE_STRING, 0);
    case RULE_INTEGER:
    case RULE_NUMBER: return number_step(t, r, s->byte);
    case RULE_OBJECT: return step_object(s, t, r);
    case RULE_ARRAY: return step_array(s, t, r);
    default: break;
    }
    OMM_ASSERT(r->kind != RULE_CHOICE); /* no thread writes one */
    return false;
}

static bool can_end(const omm_grammar *g, const thread *t) {
    switch (t->phase) {
    case PHASE_ZERO:
    case PHASE_DIGITS:
    case PHASE_FRACTION: return number_can_end(t, &g->rules[t->rule]);
    case PHASE_DONE:
    case PHASE_EXPONENT: return true;
    case PHASE_TEXT: return g->texts[t->lo].size == t->pos; /* the shortest stands first */
    default: return false;
    }
}

static thread leave(const omm_grammar *g, const frames *f, const thread *t) {
    const frame *around = &f->list[t->parent];
    return (thread){.rule = g->rules[t->rule].switches ? g->texts[t->lo].member : around->rule,
                    .parent = around->parent,
                    .at = around->at,
                    .phase = PHASE_AFTER,
                    .depth = (uint8_t)(t->depth - 1)};
}

/* A value that may end is left only for a byte that it does not go on with: the two sets of bytes have none in common. */
static void step_thread(const step *s, thread t) {
    for (;;) {
        const uint32_t before = s->out->count;
        thread next = t;
        if (go_on(s, &next)) {
            if (!add(s->out, &next)) *s->cut = true;
            return;
        }
        if (s->out->count > before || !can_end(s->g, &t) || t.parent == FRAME_NONE) return;
        t = leave(s->g, s->f, &t);
    }
}

void match_begin_beside(crowd *out, const omm_grammar *g, uint32_t root, bool leads) {
    const rule *r = &g->rules[root];
    const bool choice = r->kind == RULE_CHOICE;
    for (uint32_t i = 0; i < (choice ? r->count : 1); i++) {
        const thread t = {.rule = choice ? g->parts[r->first + i] : root,
                          .parent = FRAME_NONE,
                          .phase = leads ? PHASE_LEAD : PHASE_BEGIN,
                          .depth = 1};
        if (g->rules[t.rule].height <= GRAMMAR_DEPTH_MAX)
            (void)add(out, &t); /* not more (flatten), but beside others */
    }
}

void match_begin(crowd *out, const omm_grammar *g, uint32_t root, bool leads) {
    out->count = 0;
    match_begin_beside(out, g, root, leads);
}

void match_step(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t byte) {
    const uint32_t frames_before = f->count;
    for (int widens = 0; widens < 2; widens++) {
        bool cut = false;
        const step s = {g, f, out, byte, widens == 1, &cut};
        out->count = 0;
        f->count = frames_before;
        for (uint32_t i = 0; i < in->count; i++) step_thread(&s, in->list[i]);
        if (!cut || g->any == RULE_NONE) break; /* nothing is wide without it */
    }
}

bool match_is_whole(const omm_grammar *g, const crowd *c) {
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].parent == FRAME_NONE && can_end(g, &c->list[i])) return true;
    return false;
}

/* The same for one of them. */
static uint32_t room_of(const omm_grammar *g, const thread *t) {
    const bool inside = t->phase == PHASE_STRING || t->phase == PHASE_NAME;
    if (inside && t->letter == LETTER_TAIL) return 0;
    if (!inside || t->letter != LETTER_BETWEEN) return MATCH_ROOM_UNKNOWN;
    const rule *r = &g->rules[t->rule];
    if (t->phase == PHASE_NAME)
        return may_have_other(g, t, r) ? MATCH_ROOM_ALL : MATCH_ROOM_UNKNOWN;
    if (r->kind == RULE_PATTERN) return pattern_room(t, g);
    return r->max == RULE_NONE ? MATCH_ROOM_ALL : r->max - t->at;
}

uint32_t match_room(const omm_grammar *g, const crowd *c) {
    uint32_t most = 0;
    bool known = true;
    for (uint32_t i = 0; i < c->count; i++) {
        const uint32_t room = room_of(g, &c->list[i]);
        if (room == MATCH_ROOM_ALL) return room;
        if (room == MATCH_ROOM_UNKNOWN)
            known = false;
        else if (room > most)
            most = room;
    }
    return known ? most : MATCH_ROOM_UNKNOWN;
}

/* ---- frames ------------------------------------------------------------------------------------- */

/* Frames are kept in the order in which they were made, each behind the one around it. */
void match_compact(crowd *c, frames *f) {
    uint32_t moved[MATCH_FRAMES_MAX], kept = 0; /* 1: is stood in; then its new place, and 1 */
    memset(moved, 0, f->count * sizeof *moved);
    for (uint32_t i = 0; i < c->count; i++)
        for (uint32_t at = c->list[i].parent; at != FRAME_NONE && moved[at] == 0;
             at = f->list[at].parent)
            moved[at] = 1;
    for (uint32_t i = 0; i < f->count; i++) {
        if (moved[i] == 0) continue;
        frame one = f->list[i];
        if (one.parent != FRAME_NONE) one.parent = moved[one.parent] - 1;
        f->list[kept] = one;
        moved[i] = ++kept;
    }
    for (uint32_t i = 0; i < c->count; i++)
        if (c->list[i].parent != FRAME_NONE) c->list[i].parent = moved[c->list[i].parent] - 1;
    f->count = kept;
}
