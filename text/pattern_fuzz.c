/* pattern_fuzz.c - any bytes as a regular expression, behind two of its least and most characters: work is bounded, and of the
 * states it is true what pattern.h says. */
#include "pattern.h"

#include "omm/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_character(uint32_t c) {
    return c > 0 && c <= PATTERN_CHARACTER_MAX && (c < 0xd800 || c > 0xdfff);
}

/* Ends where its shortest way says, and nowhere sooner. */
static void check_state(const pattern_table *t, const pattern_state *s) {
    uint32_t shortest = PATTERN_NONE, last = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const pattern_edge *e = &t->edges[s->first + i];
        OMM_ASSERT(is_character(e->low) && is_character(e->high));
        OMM_ASSERT(e->low > last && e->low <= e->high);
        OMM_ASSERT(e->high < 0xd800 || e->low > 0xdfff);
        OMM_ASSERT(t->states[e->next].left != PATTERN_NONE);
        if (t->states[e->next].left < shortest) shortest = t->states[e->next].left;
        last = e->high;
    }
    if (s->left != 0 && s->left != PATTERN_NONE) OMM_ASSERT(s->left == shortest + 1);
    if (s->left == PATTERN_NONE) OMM_ASSERT(s->count == 0);
}

/* As many plain characters as the next state takes, and one; where none leads on there, none at all. */
static void check_room(const pattern_table *t, uint32_t state) {
    const pattern_state *s = &t->states[state];
    const pattern_edge *edge = pattern_find(t, state, 'x', 'x', PATTERN_NONE);
    if (s->plain == PATTERN_NONE) {
        OMM_ASSERT(s->room == 0 || s->room == PATTERN_ROOM_UNKNOWN);
        OMM_ASSERT(s->room != 0 || !edge);
        return;
    }
    OMM_ASSERT(edge && edge->next == s->plain);
    const uint32_t next = t->states[s->plain].room;
    OMM_ASSERT(s->room == (next < PATTERN_ROOM_UNKNOWN ? next + 1 : next));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pattern_table t = {0};
    uint32_t start = 0;
    if (size < 2 || size - 2 > PATTERN_BYTES_MAX) return 0;
    char *text = (char *)omm_alloc(size - 1, 1); /* and no byte more */
    OMM_ASSERT(text != NULL);
    memcpy(text, data + 2, size - 2);
    const uint32_t most = data[1] == 0xff ? PATTERN_NONE : data[1];
    const omm_err err = pattern_add(&start, &t, text, data[0] % 16, most);
    if (err == OMM_OK) {
        OMM_ASSERT(t.states[start].left <= most);
        for (uint32_t i = 0; i < t.state_count; i++) {
            check_state(&t, &t.states[i]);
            check_room(&t, i);
        }
    } else {
        OMM_ASSERT(err == OMM_ERR_FORMAT || err == OMM_ERR_UNSUPPORTED);
        OMM_ASSERT(t.state_count == 0 && t.edge_count == 0);
    }
    pattern_table_fini(&t);
    omm_free(text);
    return 0;
}
