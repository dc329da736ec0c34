/* transcript.c - owns the turns of a conversation. */
#include "transcript.h"

#include "omm/mem.h"

#include <string.h>

#define TURN_BYTES_MAX (1u << 20)

void transcript_fini(transcript *t) {
    transcript_remove(t, 0, t->count);
    omm_free(t->messages);
    omm_free(t->turns);
    *t = (transcript){0};
}

static omm_err make_room(transcript *t) {
    if (t->count < t->capacity) return OMM_OK;
    if (t->count == TRANSCRIPT_TURNS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u turns", TRANSCRIPT_TURNS_MAX);
    size_t wanted = t->capacity ? t->capacity * 2 : 16;
    omm_message *messages = omm_grow(t->messages, t->capacity, wanted, sizeof *messages);
    if (messages) t->messages = messages;
    omm_buf *turns = omm_grow(t->turns, t->capacity, wanted, sizeof *turns);
    if (turns) t->turns = turns;
    if (!messages || !turns) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu turns", wanted);
    t->capacity = wanted;
    return OMM_OK;
}

omm_err transcript_push(transcript *t, omm_role role, omm_bytes text) {
    omm_buf copy;
    OMM_TRY(make_room(t));
    omm_buf_init(&copy, TURN_BYTES_MAX);
    omm_err err = omm_buf_append(&copy, text.data, text.size);
    if (err != OMM_OK) {
        omm_buf_fini(&copy);
        return err;
    }
    t->turns[t->count] = copy;
    t->messages[t->count] = (omm_message){role, omm_buf_view(&copy)};
    t->count++;
    return OMM_OK;
}

void transcript_remove(transcript *t, size_t from, size_t to) {
    OMM_ASSERT(from <= to);
    OMM_ASSERT(to <= t->count);
    if (from == to) return;
    for (size_t i = from; i < to; i++) omm_buf_fini(&t->turns[i]);
    memmove(t->turns + from, t->turns + to, (t->count - to) * sizeof *t->turns);
    memmove(t->messages + from, t->messages + to, (t->count - to) * sizeof *t->messages);
    t->count -= to - from;
}

/* The first user turn from `from` on, or the count. */
static size_t find_user(const transcript *t, size_t from) {
    while (from < t->count && t->messages[from].role != OMM_ROLE_USER) from++;
    return from;
}

bool transcript_drop_oldest(transcript *t) {
    size_t first = find_user(t, 0);
    size_t next = find_user(t, first + 1);
    if (next >= t->count) return false;
    transcript_remove(t, first, next);
    return true;
}
