/* pattern.c - see pattern.h: the nodes in which a text may be at once are one state of it, found from the first one on. */
#include "pattern_nodes.h"

#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_MAX (1u << 20) /* nodes of all states */
#define SLOTS (2 * PATTERN_STATES_MAX)
#define CAPACITY_LEAST 64u

/* A state while it is made. */
typedef struct key {
    uint32_t at,
        count; /* nodes, in `keys`, ascending: all that wait for a character, or for the end */
    uint32_t written; /* characters so far, up to `least` */
    bool begins;      /* none so far */
} key;

typedef struct builder {
    pattern_table *t;
    nodes n;
    uint32_t least;
    uint32_t first;                         /* state of the table that is the first of these */
    uint32_t work_end;                      /* of the table's, where its share ends */
    bool live[PATTERN_NODES_MAX];           /* behind a character it can still lead to a match */
    uint32_t seen[PATTERN_NODES_MAX], turn; /* of the walk at hand */
    uint32_t stack[PATTERN_NODES_MAX], stack_count;
    uint32_t *keys, key_count, key_capacity;
    key states[PATTERN_STATES_MAX];
    uint32_t slots[SLOTS];                            /* state, and 1, by what is in it */
    uint32_t ends[4 * PATTERN_RANGES_MAX], end_count; /* where edges of a state may begin */
} builder;

/* ---- lists ------------------------------------------------------------------------------------- */

static omm_err too_many(void) {
    return omm_raise(OMM_ERR_UNSUPPORTED, "patterns that take more than %u states or %u steps",
                     PATTERN_STATES_MAX, PATTERN_EDGES_MAX);
}

static omm_err make_room(void **list, uint32_t *capacity, uint32_t count, uint32_t most,
                         size_t size) {
    if (count < *capacity) return OMM_OK;
    if (count >= most) return too_many();
    uint32_t room = *capacity ? 2 * *capacity : CAPACITY_LEAST;
    if (room > most) room = most;
    void *grown = omm_grow(*list, *capacity, room, size);
    if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for a pattern");
    *list = grown;
    *capacity = room;
    return OMM_OK;
}

static omm_err add_edge(pattern_table *t, pattern_edge made) {
    void *list = t->edges;
    const omm_err err =
        make_room(&list, &t->edge_capacity, t->edge_count, PATTERN_EDGES_MAX, sizeof *t->edges);
    t->edges = (pattern_edge *)list;
    if (err == OMM_OK) t->edges[t->edge_count++] = made;
    return err;
}

static omm_err add_key(builder *b, uint32_t one) {
    void *list = b->keys;
    const omm_err err = make_room(&list, &b->key_capacity, b->key_count, KEYS_MAX, sizeof *b->keys);
    b->keys = (uint32_t *)list;
    if (err == OMM_OK) b->keys[b->key_count++] = one;
    return err;
}

static omm_err work(builder *b, uint32_t amount) {
    const bool fits = amount <= b->work_end - b->t->work;
    b->t->work = fits ? b->t->work + amount : b->work_end;
    return fits ? OMM_OK : too_many();
}

/* One that is too much leaves most of it to those behind it. */
static uint32_t share_of(const pattern_table *t) {
    const uint32_t most = t->work_max ? t->work_max : PATTERN_WORK_MAX;
    return t->work < most ? (most - t->work) / PATTERN_WORK_SHARE : 0;
}

/* ---- nodes at once ----------------------------------------------------------------------------- */

static bool leads_on(const builder *b, const node *x) {
    if (x->kind == NODE_MATCH) return true;
    if (x->kind == NODE_BEGIN) return false;
    return b->live[x->next] || (x->kind == NODE_SPLIT && b->live[x->other]);
}

/* Nodes were made from the end on: what follows one mostly stands before it. */
static omm_err find_live(builder *b) {
    bool changed = true;
    while (changed) {
        changed = false;
        OMM_TRY(work(b, b->n.count));
        for (uint32_t i = 0; i < b->n.count; i++) {
            if (b->live[i] || !leads_on(b, &b->n.list[i])) continue;
            b->live[i] = changed = true;
        }
    }
    return OMM_OK;
}

static void push(builder *b, uint32_t index) {
    if (b->seen[index] == b->turn) return;
    b->seen[index] = b->turn;
    b->stack[b->stack_count++] = index;
}

/* What stands on the stack, and all that it leads to without a character; those that wait become keys. */
static omm_err spread(builder *b, bool begins) {
    while (b->stack_count > 0) {
        const uint32_t index = b->stack[--b->stack_count];
        const node *x = &b->n.list[index];
        OMM_TRY(work(b, 1));
        if (x->kind == NODE_SPLIT || (x->kind == NODE_BEGIN && begins)) push(b, x->next);
        if (x->kind == NODE_SPLIT) push(b, x->other);
        if (x->kind == NODE_MATCH || x->kind == NODE_END ||
            (x->kind == NODE_SET && b->live[x->next]))
            OMM_TRY(add_key(b, index));
    }
    return OMM_OK;
}

/* A text that ends in this state has a match. */
static omm_err may_end(bool *out, builder *b, const key *k) {
    *out = false;
    b->turn++;
    for (uint32_t i = 0; i < k->count; i++) push(b, b->keys[k->at + i]);
    while (b->stack_count > 0) {
        const node *x = &b->n.list[b->stack[--b->stack_count]];
        OMM_TRY(work(b, 1));
        if (x->kind == NODE_MATCH) *out = k->written == b->least;
        if (x->kind == NODE_SPLIT || x->kind == NODE_END || (x->kind == NODE_BEGIN && k->begins))
            push(b, x->next);
        if (x->kind == NODE_SPLIT) push(b, x->other);
    }
    return OMM_OK;
}

/* ---- states ------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* A match that has been found makes all others needless. */
static void settle(builder *b, key *k) {
    k->count = b->key_count - k->at;
    if (k->count == 0) return;
    qsort(b->keys + k->at, k->count, sizeof *b->keys, by_number);
    if (b->keys[k->at] != 0) return; /* node 0 is the match */
    k->count = 1;
    b->key_count = k->at + 1;
}

static uint32_t hash_of(const builder *b, const key *k) {
    uint32_t hash = 2166136261u ^ k->written * 2 ^ k->begins;
    for (uint32_t i = 0; i < k->count; i++) hash = (hash ^ b->keys[k->at + i]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool same(const builder *b, const key *x, const key *y) {
    return x->count == y->count && x->written == y->written && x->begins == y->begins &&
           memcmp(b->keys + x->at, b->keys + y->at, x->count * sizeof *b->keys) == 0;
}

static omm_err add_state(uint32_t *out, builder *b, const key *k) {
    pattern_table *t = b->t;
    void *list = t->states;
    bool ends = false;
    OMM_TRY(may_end(&ends, b, k));
    const omm_err err =
        make_room(&list, &t->state_capacity, t->state_count, PATTERN_STATES_MAX, sizeof *t->states);
    t->states = (pattern_state *)list;
    if (err != OMM_OK) return err;
    *out = t->state_count++;
    t->states[*out] = (pattern_state){.left = ends ? 0 : PATTERN_NONE};
    b->states[*out - b->first] = *k;
    return OMM_OK;
}

/* The state that is this one, whose keys stand last; PATTERN_NONE where nothing waits. */
static omm_err find_state(uint32_t *out, builder *b, key *k) {
    *out = PATTERN_NONE;
    settle(b, k);
    if (k->count == 0) return OMM_OK;
    uint32_t slot = hash_of(b, k) % SLOTS;
    for (; b->slots[slot]; slot = (slot + 1) % SLOTS) {
        if (!same(b, &b->states[b->slots[slot] - 1], k)) continue;
        *out = b->first + b->slots[slot] - 1;
        b->key_count = k->at;
        return OMM_OK;
    }
    OMM_TRY(add_state(out, b, k));
    b->slots[slot] = *out - b->first + 1;
    return OMM_OK;
}

/* ---- edges ------------------------------------------------------------------------------------- */

static void add_end(builder *b, uint32_t character) {
    b->ends[b->end_count++] = character;
}

/* To b->ends: where a set that a node of the state has begins, or has ended. */
static omm_err find_ends(builder *b, const key *k) {
    b->end_count = 0;
    for (uint32_t i = 0; i < k->count; i++) {
        const node *x = &b->n.list[b->keys[k->at + i]];
        if (x->kind != NODE_SET) continue;
        const set *s = &b->n.sets[x->set];
        OMM_TRY(work(b, s->count));
        if (s->count > (sizeof b->ends / sizeof b->ends[0] - b->end_count) / 2) return too_many();
        for (uint32_t m = 0; m < s->count; m++) {
            add_end(b, b->n.ranges[s->first + m].low);
            add_end(b, b->n.ranges[s->first + m].high + 1);
        }
    }
    qsort(b->ends, b->end_count, sizeof *b->ends, by_number);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->end_count; i++)
        if (i == 0 || b->ends[i] != b->ends[i - 1]) b->ends[kept++] = b->ends[i];
    b->end_count = kept;
    return OMM_OK;
}

static bool has_character(const builder *b, const set *s, uint32_t character) {
    uint32_t low = 0, high = s->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const range *one = &b->n.ranges[s->first + middle];
        if (character < one->low)
            high = middle;
        else if (character > one->high)
            low = middle + 1;
        else
            return true;
    }
    return false;
}

/* Where a character leads that is not the first. */
static omm_err follow(uint32_t *next, builder *b, const key *from, uint32_t character) {
    key k = {.at = b->key_count,
             .written = from->written < b->least ? from->written + 1 : b->least};
    b->turn++;
    OMM_TRY(work(b, from->count));
    for (uint32_t i = 0; i < from->count; i++) {
        const node *x = &b->n.list[b->keys[from->at + i]];
        if (x->kind == NODE_MATCH) push(b, 0);
        if (x->kind == NODE_SET && has_character(b, &b->n.sets[x->set], character))
            push(b, x->next);
    }
    OMM_TRY(spread(b, false));
    return find_state(next, b, &k);
}

static omm_err join_edge(pattern_table *t, uint32_t first, pattern_edge made) {
    pattern_edge *last = t->edge_count > first ? &t->edges[t->edge_count - 1] : NULL;
    if (!last || last->next != made.next || last->high + 1 != made.low) return add_edge(t, made);
    last->high = made.high;
    return OMM_OK;
}

static omm_err add_edges(builder *b, uint32_t state) {
    const key k = b->states[state - b->first];
    const uint32_t first = b->t->edge_count;
    OMM_TRY(find_ends(b, &k));
    if (b->keys[k.at] == 0) { /* a match: any character */
        const uint32_t all[] = {1, 0xd800, 0xe000, PATTERN_CHARACTER_MAX + 1};
        memcpy(b->ends, all, sizeof all);
        b->end_count = 4;
    }
    for (uint32_t i = 0; i + 1 < b->end_count; i++) {
        uint32_t next = 0;
        if (b->ends[i] == 0xd800) continue; /* up to 0xe000 */
        OMM_TRY(follow(&next, b, &k, b->ends[i]));
        if (next != PATTERN_NONE)
            OMM_TRY(join_edge(b->t, first, (pattern_edge){b->ends[i], b->ends[i + 1] - 1, next}));
    }
    b->t->states[state].first = first;
    b->t->states[state].count = b->t->edge_count - first;
    return OMM_OK;
}

static omm_err add_all(builder *b) {
    uint32_t start = 0;
    key k = {.written = 0, .begins = true};
    b->turn++;
    push(b, b->n.start);
    OMM_TRY(spread(b, true));
    OMM_TRY(find_state(&start, b, &k));
    for (uint32_t i = b->first; i < b->t->state_count; i++) OMM_TRY(add_edges(b, i));
    return OMM_OK;
}

/* ---- how far from the end ---------------------------------------------------------------------- */

typedef struct backward {
    uint32_t *first; /* [states + 1] of those that lead to a state, in `from` */
    uint32_t *from;  /* [edges] */
    uint32_t *queue; /* [states] */
} backward;

static void turn_round(backward *w, const pattern_table *t, uint32_t first) {
    const uint32_t states = t->state_count - first;
    for (uint32_t i = first; i < t->state_count; i++)
        for (uint32_t k = 0; k < t->states[i].count; k++)
            w->first[t->edges[t->states[i].first + k].next - first]++;
    for (uint32_t i = 0, sum = 0; i <= states; i++) {
        sum += w->first[i];
        w->first[i] = sum; /* where those of i end, until they are put there */
    }
    for (uint32_t i = first; i < t->state_count; i++)
        for (uint32_t k = 0; k < t->states[i].count; k++)
            w->from[--w->first[t->edges[t->states[i].first + k].next - first]] = i;
}

/* Breadth first from those that may end. */
static void find_left(backward *w, pattern_table *t, uint32_t first) {
    uint32_t count = 0;
    turn_round(w, t, first);
    for (uint32_t i = first; i < t->state_count; i++)
        if (t->states[i].left == 0) w->queue[count++] = i;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = w->queue[i] - first;
        for (uint32_t k = w->first[at]; k < w->first[at + 1]; k++) {
            pattern_state *before = &t->states[w->from[k]];
            if (before->left != PATTERN_NONE) continue;
            before->left = t->states[w->queue[i]].left + 1;
            w->queue[count++] = w->from[k];
        }
    }
}

static omm_err set_left(pattern_table *t, uint32_t first, uint32_t first_edge) {
    const uint32_t states = t->state_count - first;
    backward w = {
        .first = (uint32_t *)omm_alloc((size_t)states + 1, sizeof *w.first),
        .from = (uint32_t *)omm_alloc((size_t)(t->edge_count - first_edge) + 1, sizeof *w.from),
        .queue = (uint32_t *)omm_alloc((size_t)states + 1, sizeof *w.queue)};
    const bool has_all = w.first && w.from && w.queue;
    if (has_all) find_left(&w, t, first);
    omm_free(w.first);
    omm_free(w.from);
    omm_free(w.queue);
    return has_all ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a pattern");
}

/* ---- plain characters ----------------------------------------------------------------------------- */

#define ROOM_OPEN (PATTERN_ROOM_UNKNOWN - 1) /* on the way that is walked */
#define ROOM_FRESH (PATTERN_ROOM_UNKNOWN - 2)

static const range s_plain[] = {
    {' ', '!'}, {'#', '['}, {']', 0x2027}, {0x202a, 0xd7ff}, {0xe000, PATTERN_CHARACTER_MAX}};

/* plain, and room where it does not depend on other states. */
static void begin_plain(pattern_table *t, uint32_t state) {
    pattern_state *s = &t->states[state];
    uint32_t next = PATTERN_NONE;
    size_t led = 0, taken = 0; /* of the ranges, all to one state, and at all */
    for (size_t i = 0; i < sizeof s_plain / sizeof s_plain[0]; i++) {
        const range *r = &s_plain[i];
        const pattern_edge *edge = pattern_find(t, state, r->low, r->high, PATTERN_NONE);
        if (!edge) continue;
        taken++;
        if (i == 0) next = edge->next;
        led += edge->next == next && edge->low <= r->low && edge->high >= r->high;
    }
    const bool all = led == sizeof s_plain / sizeof s_plain[0];
    s->plain = all ? next : PATTERN_NONE;
    s->room = all ? ROOM_FRESH : taken > 0 ? PATTERN_ROOM_UNKNOWN : 0;
}

/* Along the one way of plain characters to what is known or was met before, which is a circle; then again, from its end's on. */
static void find_room(pattern_table *t, uint32_t state) {
    uint32_t count = 0, at = state;
    for (; t->states[at].room == ROOM_FRESH; at = t->states[at].plain, count++)
        t->states[at].room = ROOM_OPEN;
    const uint32_t end = t->states[at].room == ROOM_OPEN ? PATTERN_ROOM_ALL : t->states[at].room;
    const bool is_count = end < PATTERN_ROOM_UNKNOWN;
    for (at = state; count > 0; count--, at = t->states[at].plain)
        t->states[at].room = is_count ? end + count : end;
}

static void find_rooms(pattern_table *t, uint32_t first) {
    for (uint32_t i = first; i < t->state_count; i++) begin_plain(t, i);
    for (uint32_t i = first; i < t->state_count; i++) find_room(t, i);
}

/* ---- all --------------------------------------------------------------------------------------- */

/* Edges to where no text ends go. */
static void drop_dead(pattern_table *t, uint32_t first, uint32_t kept) {
    for (uint32_t i = first; i < t->state_count; i++) {
        pattern_state *s = &t->states[i];
        const uint32_t from = s->first, count = s->count;
        s->first = kept;
        for (uint32_t k = 0; k < count; k++)
            if (t->states[t->edges[from + k].next].left != PATTERN_NONE)
                t->edges[kept++] = t->edges[from + k];
        s->count = kept - s->first;
    }
    t->edge_count = kept;
}

/* Reading is work, too, of what cannot be read as well. */
static omm_err read(builder *b, const char *expression) {
    const omm_err err = pattern_parse(&b->n, expression);
    const uint32_t left = b->work_end - b->t->work;
    if (err == OMM_OK) return work(b, b->n.work);
    b->t->work += b->n.work < left ? b->n.work : left;
    return err;
}

static omm_err build(builder *b, const char *expression, uint32_t most) {
    pattern_table *t = b->t;
    const uint32_t first_edge = t->edge_count;
    OMM_TRY(read(b, expression));
    OMM_TRY(find_live(b));
    OMM_TRY(add_all(b));
    OMM_TRY(set_left(t, b->first, first_edge));
    if (t->state_count == b->first || t->states[b->first].left == PATTERN_NONE ||
        t->states[b->first].left > most)
        return omm_raise(OMM_ERR_UNSUPPORTED, "a pattern that no text fulfils");
    drop_dead(t, b->first, first_edge);
    find_rooms(t, b->first);
    return OMM_OK;
}

omm_err pattern_add(uint32_t *start, pattern_table *t, const char *expression, uint32_t least,
                    uint32_t most) {
    const uint32_t states = t->state_count, edges = t->edge_count;
    const uint32_t share = share_of(t);
    if (share == 0) return too_many();
    builder *b = (builder *)omm_alloc(1, sizeof *b);
    if (!b) return omm_raise(OMM_ERR_NOMEM, "no memory for a pattern");
    b->t = t;
    b->least = least;
    b->first = states;
    b->work_end = t->work + share;
    const omm_err err = build(b, expression, most);
    omm_free(b->keys);
    omm_free(b);
    if (err != OMM_OK) {
        t->state_count = states;
        t->edge_count = edges;
        return err;
    }
    *start = states;
    return OMM_OK;
}

const pattern_edge *pattern_find(const pattern_table *t, uint32_t state, uint32_t low,
                                 uint32_t high, uint32_t room) {
    uint32_t from = 0, to = t->states[state].count;
    if (to == 0) return NULL; /* the table may have no edge at all: what matches nothing but "" */
    const pattern_edge *list = t->edges + t->states[state].first;
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        if (list[middle].high < low)
            from = middle + 1;
        else
            to = middle;
    }
    for (; from < t->states[state].count && list[from].low <= high; from++)
        if (room == PATTERN_NONE || t->states[list[from].next].left < room) return &list[from];
    return NULL;
}

void pattern_table_fini(pattern_table *t) {
    omm_free(t->states);
    omm_free(t->edges);
    *t = (pattern_table){0};
}
