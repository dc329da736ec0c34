/* transcript.c - owns the turns of a conversation. */
#include "transcript.h"

#include "omm/mem.h"

#include <string.h>

#define TURN_BYTES_MAX (1u << 20)
#define MAGIC "OMMTURN1"
#define MAGIC_BYTES 8u

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
    t->messages[t->count] = (omm_message){.role = role, .content = omm_buf_view(&copy)};
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

/* ---- In a file ------------------------------------------------------------------------------- */

omm_err transcript_write(omm_buf *out, const transcript *t) {
    OMM_TRY(omm_buf_append(out, MAGIC, MAGIC_BYTES));
    OMM_TRY(omm_buf_put_u32(out, (uint32_t)t->count));
    for (size_t i = 0; i < t->count; i++) {
        OMM_TRY(omm_buf_put_u32(out, (uint32_t)t->messages[i].role));
        OMM_TRY(omm_buf_put_u32(out, (uint32_t)t->messages[i].content.size));
        OMM_TRY(omm_buf_append(out, t->messages[i].content.data, t->messages[i].content.size));
    }
    return OMM_OK;
}

/* May a turn of `role` be number `index`, after one of `before`? */
static bool in_order(size_t index, omm_role role, omm_role before) {
    if (index == 0) return role == OMM_ROLE_SYSTEM;
    if (index == 1) return role == OMM_ROLE_USER || role == OMM_ROLE_TOOLS;
    if (before == OMM_ROLE_TOOLS) return role == OMM_ROLE_USER;
    switch (role) {
    case OMM_ROLE_USER: return before == OMM_ROLE_ASSISTANT;
    case OMM_ROLE_ASSISTANT: return true; /* also after a call that was not carried out */
    case OMM_ROLE_TOOL: return before != OMM_ROLE_USER;
    default: return false;
    }
}

static omm_err read_turn(transcript *t, omm_reader *r) {
    const uint32_t role = omm_read_u32(r), size = omm_read_u32(r);
    const omm_bytes text = omm_read_bytes(r, size);
    const omm_role before = t->count ? t->messages[t->count - 1].role : OMM_ROLE_SYSTEM;
    if (r->failed || role > OMM_ROLE_TOOLS || !in_order(t->count, (omm_role)role, before))
        return omm_raise(OMM_ERR_FORMAT, "turn %zu of a saved conversation is damaged", t->count);
    return transcript_push(t, (omm_role)role, text);
}

static omm_err read_turns(transcript *t, omm_bytes saved) {
    omm_reader r = omm_reader_of(saved);
    const omm_bytes magic = omm_read_bytes(&r, MAGIC_BYTES);
    const uint32_t count = omm_read_u32(&r);
    if (r.failed || memcmp(magic.data, MAGIC, MAGIC_BYTES) != 0)
        return omm_raise(OMM_ERR_FORMAT, "there is no saved conversation");
    for (uint32_t i = 0; i < count; i++) OMM_TRY(read_turn(t, &r));
    const omm_role last = count > 0 ? t->messages[count - 1].role : OMM_ROLE_USER;
    const bool whole =
        count == 1 || last == OMM_ROLE_ASSISTANT || (count == 2 && last == OMM_ROLE_TOOLS);
    if (r.at == saved.size && whole) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "a saved conversation is not whole");
}

omm_err transcript_read(transcript *t, omm_bytes saved) {
    OMM_ASSERT(t->count == 0);
    omm_err err = read_turns(t, saved);
    if (err != OMM_OK) transcript_fini(t);
    return err;
}
