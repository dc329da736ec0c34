/* batch.c - owns the batch: many steps in one transaction, what they have to tell, and to log of what is kept, held back
 * until it is committed.
 *
 * A commit that fails leaves memory ahead of the database.  Then memory is read again, as a process
 * does that was killed in the middle of the batch: there is one way back to a sound state, and the tests
 * that kill take it too.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

typedef struct coord_line {
    omm_log_level level;
    const char *event; /* NULL: no line */
    const omm_log_field *fields;
    unsigned count;
} coord_line;

typedef struct coord_told { /* an event, or a line of the log */
    omm_coord_event event;
    omm_digest digest;
    coord_line line;
    struct coord_told *next;
} coord_told;

omm_err coord_check_sound(const omm_coord *c) {
    if (!c->is_broken) return OMM_OK;
    return omm_raise(OMM_ERR_STATE, "the state could not be read again after a failed commit");
}

/* ---- events ---- */

static void tell_now(const omm_coord *c, const omm_coord_event *event) {
    if (c->o.on_event) c->o.on_event(c->o.on_event_ud, event);
}

static coord_told *copy_event(omm_arena *arena, const omm_coord_event *event) {
    coord_told *told = omm_arena_alloc(arena, 1, sizeof *told);
    if (!told) return NULL;
    *told = (coord_told){.event = *event};
    if (event->digest) {
        told->digest = *event->digest;
        told->event.digest = &told->digest;
    }
    if (event->sentence && !(told->event.sentence = omm_arena_strdup(arena, event->sentence)))
        return NULL;
    if (event->peer && !(told->event.peer = omm_arena_strdup(arena, event->peer))) return NULL;
    return told;
}

static void append(omm_coord *c, coord_told *told) {
    if (c->batch.last)
        c->batch.last->next = told;
    else
        c->batch.first = told;
    c->batch.last = told;
}

void coord_tell(omm_coord *c, const omm_coord_event *event) {
    /* Who joined is in a database of its own, committed already. */
    if (!c->batch.open || event->kind == OMM_COORD_EVENT_JOINED) {
        tell_now(c, event);
        return;
    }
    coord_told *told = copy_event(&c->batch.arena, event);
    if (told)
        append(c, told);
    else
        c->batch.is_lost = true;
}

/* ---- lines of the log ---- */

static coord_told *copy_line(omm_arena *arena, const coord_line *line) {
    coord_told *told = omm_arena_alloc(arena, 1, sizeof *told);
    omm_log_field *fields = omm_arena_alloc(arena, line->count, sizeof *fields);
    if (!told || !fields) return NULL;
    for (unsigned i = 0; i < line->count; i++) {
        fields[i] = line->fields[i];
        if (fields[i].text && !(fields[i].text = omm_arena_strdup(arena, fields[i].text)))
            return NULL;
    }
    *told = (coord_told){.line = *line};
    told->line.fields = fields;
    return told;
}

void coord_log_write(omm_coord *c, omm_log_level level, const char *event,
                     const omm_log_field *fields, unsigned count) {
    const coord_line line = {level, event, fields, count};
    if (!omm_log_wants(c->o.log, level)) return;
    coord_told *told = c->batch.open ? copy_line(&c->batch.arena, &line) : NULL;
    if (told)
        append(c, told);
    else /* a line that no memory is left for is better early than never */
        omm_log_write(c->o.log, level, event, fields, count);
}

static void tell_held(const omm_coord *c, const coord_told *told) {
    const coord_line *line = &told->line;
    if (line->event)
        omm_log_write(c->o.log, line->level, line->event, line->fields, line->count);
    else
        tell_now(c, &told->event);
}

static void end_batch(omm_coord *c) {
    c->batch.open = c->batch.has_verdict = c->batch.is_lost = false;
    c->batch.first = c->batch.last = NULL;
    omm_arena_fini(&c->batch.arena);
    omm_arena_init(&c->batch.arena, COORD_BATCH_ARENA_BYTES);
}

/* ---- the transaction ---- */

omm_err omm_coord_begin(omm_coord *c) {
    OMM_TRY(coord_check_sound(c));
    OMM_ASSERT(!c->batch.open);
    OMM_TRY(omm_db_begin(c->db));
    c->batch.open = true;
    c->batch.has_verdict = false;
    return OMM_OK;
}

static omm_err try_commit(omm_coord *c) {
    if (c->batch.is_lost) return omm_raise(OMM_ERR_NOMEM, "events of a batch");
    if (!omm_db_in_transaction(c->db))
        return omm_raise(OMM_ERR_IO, "a statement failed and SQLite gave the transaction up");
    return omm_db_commit(c->db);
}

/* Back to what is on disk. */
static omm_err undo(omm_coord *c, omm_err why) {
    char sentence[OMM_SENTENCE_BYTES_MAX];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    omm_db_rollback(c->db);
    end_batch(c);
    omm_err err = coord_store_reload(c);
    c->is_broken = err != OMM_OK;
    if (c->is_broken)
        return omm_raise(OMM_ERR_STATE, "%.100s; and then: %.100s", sentence, omm_err_sentence());
    omm_log_event(c->o.log, OMM_LOG_ERROR, "batch_undone", OMM_LOG_INT("round", c->round),
                  OMM_LOG_STR("detail", sentence));
    return omm_raise(why == OMM_ERR_NOMEM ? OMM_ERR_NOMEM : OMM_ERR_IO, "%s", sentence);
}

omm_err omm_coord_commit(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms) {
    OMM_ASSERT(c->batch.open);
    omm_err err = try_commit(c);
    if (err != OMM_OK) {
        err = undo(c, err);
        coord_deadline_failed(c, now_ms, err);
    } else {
        if (c->batch.has_verdict) omm_crash_point(c->o.state_dir, c->o.crash_at, "after_receipt");
        c->batch.open = false; /* what an event makes somebody do is after it */
        for (const coord_told *t = c->batch.first; t; t = t->next) tell_held(c, t);
        end_batch(c);
    }
    coord_round_note_quorum(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
    return err;
}
