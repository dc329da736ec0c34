/* constraint.c - see constraint.h. */
#include "grammar_internal.h"

#include "omm/mem.h"

struct omm_constraint {
    const omm_grammar *grammar;
    const omm_lexicon *lexicon;
    crowd now;
    bool ended, known;                         /* known: `allowed` is of now */
    frames frames;                             /* first those that `now` stands in */
    crowd path[MATCH_TOKEN_BYTES_MAX + 1];     /* of a walk: after each byte of a token */
    uint32_t marks[MATCH_TOKEN_BYTES_MAX + 1]; /* frames that there are then */
    uint32_t *allowed;                         /* bits [vocab] */
};

omm_err omm_constraint_open(omm_constraint **out, const omm_grammar *grammar,
                            const omm_lexicon *lexicon) {
    omm_constraint *c = (omm_constraint *)omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "no memory for a constraint");
    c->allowed = (uint32_t *)omm_alloc(lexicon->words, sizeof *c->allowed);
    if (!c->allowed) {
        omm_free(c);
        return omm_raise(OMM_ERR_NOMEM, "no memory for a constraint");
    }
    c->grammar = grammar;
    c->lexicon = lexicon;
    omm_constraint_restart(c);
    *out = c;
    return OMM_OK;
}

void omm_constraint_close(omm_constraint *c) {
    if (!c) return;
    omm_free(c->allowed);
    omm_free(c);
}

static void copy_crowd(crowd *to, const crowd *from) {
    to->part = from->part;
    to->at = from->at;
    to->alive = from->alive;
    to->calls = from->calls;
    to->count = from->count;
    memcpy(to->list, from->list, from->count * sizeof *to->list);
}

/* *now goes on with bytes that nobody draws. */
static void begin_with(omm_constraint *c, omm_bytes bytes) {
    for (size_t i = 0; i < bytes.size; i++) {
        text_step(&c->path[0], &c->frames, c->grammar, &c->now, bytes.data[i]);
        match_compact(&c->path[0], &c->frames);
        copy_crowd(&c->now, &c->path[0]);
    }
}

uint32_t omm_constraint_vocab(const omm_constraint *c) {
    return c->lexicon->vocab;
}

void omm_constraint_restart(omm_constraint *c) {
    text_begin(&c->now, c->grammar, c->lexicon->leads);
    c->frames.count = 0;
    c->ended = c->known = false;
    begin_with(c, grammar_begun(c->grammar));
}

void omm_constraint_copy(omm_constraint *to, const omm_constraint *from) {
    OMM_ASSERT(to->grammar == from->grammar);
    OMM_ASSERT(to->lexicon == from->lexicon);
    copy_crowd(&to->now, &from->now);
    to->frames.count = from->frames.count;
    memcpy(to->frames.list, from->frames.list, from->frames.count * sizeof *to->frames.list);
    to->ended = from->ended;
    to->known = false;
}

omm_err omm_constraint_clone(omm_constraint **out, const omm_constraint *from) {
    OMM_TRY(omm_constraint_open(out, from->grammar, from->lexicon));
    omm_constraint_copy(*out, from);
    return OMM_OK;
}

/* ---- which tokens ------------------------------------------------------------------------------ */

static void allow(uint32_t *bits, const lexicon_tree *tree, const lexicon_node *node) {
    for (uint32_t i = node->first; i < node->first + node->count; i++)
        bits[tree->ids[i] / 32] |= 1u << tree->ids[i] % 32;
}

/* Depth first; what a byte does not go on with, nothing below it does. */
static void walk(omm_constraint *c, const lexicon_tree *tree) {
    const uint32_t live = c->frames.count;
    copy_crowd(&c->path[0], &c->now);
    c->marks[0] = live;
    for (uint32_t i = 0; i < tree->node_count;) {
        const lexicon_node *node = &tree->nodes[i];
        crowd *next = &c->path[node->depth + 1];
        c->frames.count = c->marks[node->depth];
        text_step(next, &c->frames, c->grammar, &c->path[node->depth], node->byte);
        OMM_ASSERT(c->frames.count <= c->marks[node->depth] + c->path[node->depth].count);
        c->marks[node->depth + 1] = c->frames.count;
        if (text_goes_on(next)) allow(c->allowed, tree, node);
        i = text_goes_on(next) ? i + 1 : node->next;
    }
    c->frames.count = live;
}

/* The plain ones of up to so many characters. */
static void allow_plain(uint32_t *bits, const omm_lexicon *x, uint32_t room) {
    if (room == MATCH_ROOM_ALL) {
        memcpy(bits, x->plain, x->words * sizeof *bits);
        return;
    }
    if (room >= UINT16_MAX) room = UINT16_MAX - 1; /* no token has more */
    for (uint32_t i = 0; i < x->words; i++)
        for (uint32_t k = 0; k < 32; k++) /* 0 characters, less one, are too many */
            bits[i] |= (uint32_t)((uint16_t)(x->characters[i * 32 + k] - 1) < room) << k;
}

static void forbid_openers(omm_constraint *c, calls_opener opener) {
    for (uint32_t i = 0; i < c->lexicon->opener_counts[opener]; i++) {
        const uint32_t id = c->lexicon->openers[opener][i];
        if (!omm_constraint_permits(c, id)) c->allowed[id / 32] &= ~(1u << id % 32);
    }
}

/* Any token, but those with which a call begins as none may. */
static void find_free(omm_constraint *c) {
    const omm_lexicon *x = c->lexicon;
    memset(c->allowed, 0xff, x->words * sizeof *c->allowed);
    if (x->vocab % 32 > 0) c->allowed[x->words - 1] = (1u << x->vocab % 32) - 1;
    const calls_opener own = calls_style_of(c->grammar->calls.form)->opener;
    forbid_openers(c, OPENER_MARKED);
    if (own != OPENER_BARE || c->now.part == TEXT_LEAD) forbid_openers(c, own);
}

static void find_allowed(omm_constraint *c) {
    const omm_lexicon *x = c->lexicon;
    if (text_is_free(&c->now)) {
        find_free(c);
        return;
    }
    const uint32_t room = text_room(c->grammar, &c->now);
    memset(c->allowed, 0, x->words * sizeof *c->allowed);
    if (room != MATCH_ROOM_UNKNOWN) allow_plain(c->allowed, x, room);
    walk(c, room != MATCH_ROOM_UNKNOWN ? &x->odd : &x->all);
    if (!text_is_whole(c->grammar, &c->now)) return;
    for (uint32_t i = 0; i < x->words; i++) c->allowed[i] |= x->ends[i];
}

const uint32_t *omm_constraint_allowed(omm_constraint *c) {
    if (c->known) return c->allowed;
    if (c->ended)
        memset(c->allowed, 0, c->lexicon->words * sizeof *c->allowed);
    else
        find_allowed(c);
    c->known = true;
    return c->allowed;
}

/* *out: after the token, with c->frames grown by what it stands in.  A token longer than those of the trees begins and ends
 * where a string is free. */
static void step_token(crowd *out, omm_constraint *c, uint32_t id) {
    const omm_lexicon *x = c->lexicon;
    const uint32_t first = x->at[id], size = x->at[id + 1] - first;
    crowd *a = &c->path[0], *b = &c->path[1];
    copy_crowd(a, &c->now);
    for (uint32_t i = 0; i < size && text_goes_on(a); i++) {
        crowd *swap = a;
        text_step(b, &c->frames, c->grammar, a, x->bytes[first + i]);
        a = b;
        b = swap;
        /* never behind the last byte: who only asks goes on from where `now` stands, whose frames stay */
        if ((i + 1) % MATCH_TOKEN_BYTES_MAX == 0 && i + 1 < size) match_compact(a, &c->frames);
    }
    copy_crowd(out, a);
}

/* Of a token that is too long for the trees: as much of a string, or text that begins no call. */
static bool permits_long(omm_constraint *c, uint32_t id) {
    if (c->now.count > 0 && text_is_free(&c->now)) { /* in frames that have to stay: no steps */
        const omm_bytes bytes = lexicon_bytes(c->lexicon, id);
        return !text_may_open(OPENER_MARKED, bytes) && !text_may_open(OPENER_BARE, bytes);
    }
    if (text_is_free(&c->now)) {
        const uint32_t live = c->frames.count;
        step_token(&c->path[2], c, id);
        c->frames.count = live;
        return text_is_free(&c->path[2]);
    }
    const uint32_t room = text_room(c->grammar, &c->now), size = c->lexicon->characters[id];
    return room != MATCH_ROOM_UNKNOWN && size > 0 && size <= room;
}

bool omm_constraint_permits(omm_constraint *c, uint32_t id) {
    OMM_ASSERT(id < c->lexicon->vocab);
    const uint32_t live = c->frames.count;
    const uint32_t size = c->lexicon->at[id + 1] - c->lexicon->at[id];
    if (c->ended) return false;
    if (lexicon_has(c->lexicon->ends, id)) return text_is_whole(c->grammar, &c->now);
    if (size > MATCH_TOKEN_BYTES_MAX) return permits_long(c, id);
    if (size == 0) return text_is_free(&c->now);
    step_token(&c->path[2], c, id);
    c->frames.count = live;
    return text_goes_on(&c->path[2]);
}

void omm_constraint_take(omm_constraint *c, uint32_t id) {
    OMM_ASSERT(omm_constraint_permits(c, id));
    c->known = false;
    c->ended = lexicon_has(c->lexicon->ends, id);
    if (c->ended) return;
    step_token(&c->now, c, id);
    match_compact(&c->now, &c->frames);
}

bool omm_constraint_has_ended(const omm_constraint *c) {
    return c->ended;
}
