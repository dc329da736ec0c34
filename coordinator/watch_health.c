/* watch_health.c - see watch_health.h. */
#include "watch_health.h"

#include <inttypes.h>

void watch_see(watch_seen *seen, watch_facts *facts, watch_node *nodes, watch *w,
               omm_server *server) {
    *seen = (watch_seen){.o = watch_get_options(w), .facts = facts, .nodes = nodes};
    watch_read(facts, nodes, &seen->history, w);
    omm_server_count(&seen->wire, server);
    seen->has_disk = seen->o->state_dir && omm_file_room(&seen->disk_free, seen->o->state_dir);
}

/* ---- why it is sick ---- */

/* Of the newest rounds; those that made way, as they waited for dry runs alone, say nothing about nodes. */
static uint32_t void_in_a_row(const watch_seen *s) {
    uint32_t count = 0;
    for (uint32_t i = s->facts->history_count; i > 0 && s->history[i - 1].voided; i--)
        count += !s->history[i - 1].ended_dry;
    return count;
}

static bool was_turned(const omm_wire_count *w, omm_turned reason) {
    return w->turned_away[reason] > 0 && w->turned_ago_ms[reason] < WATCH_CROWD_MS;
}

/* What strangers, or nng, do to the connections. */
static omm_err put_connections(omm_buf *out, const omm_wire_count *w) {
    if (w->all_answer_ms >= WATCH_UNREAD_MS)
        OMM_TRY(omm_buf_printf(out,
                               "answers: nobody was answered for %" PRIu64 " s, all %" PRIu64
                               " wait for peers who do not read\n",
                               w->all_answer_ms / 1000, w->answering));
    if (was_turned(w, OMM_TURNED_STRANGERS))
        OMM_TRY(omm_buf_printf(out,
                               "strangers: all %" PRIu64 " places are taken, %" PRIu64
                               " connections had to go for others\n",
                               w->strangers_max, w->turned_away[OMM_TURNED_STRANGERS]));
    if (was_turned(w, OMM_TURNED_DESCRIPTORS))
        OMM_TRY(omm_buf_printf(out,
                               "descriptors: all that connections may have are open, %" PRIu64
                               " connections were refused or had to go\n",
                               w->turned_away[OMM_TURNED_DESCRIPTORS]));
    if (w->stuck == 0) return OMM_OK;
    return omm_buf_printf(out, "connections: %" PRIu64 " that were ended are still there\n",
                          w->stuck);
}

/* ---- who declines ---- */

bool watch_declines(const omm_coord_node_status *n, omm_coord_state state) {
    return state == OMM_COORD_OPEN && n->selected && n->offered && !n->settled && !n->uploading &&
           !n->quarantined && declined_lasts(n->declined);
}

declined_counts watch_declined(const watch_seen *s) {
    declined_counts counts = {0};
    for (size_t i = 0; s->nodes && i < s->facts->node_count; i++)
        declined_add(&counts, s->nodes[i].status.declined);
    return counts;
}

/* The round waits, and all that have come for its offer give nothing; 0: that is not so. */
static uint32_t all_that_decline(const watch_seen *s) {
    const omm_coord_status *is = &s->facts->status;
    uint32_t decline = 0, offered = 0;
    if (is->state != OMM_COORD_OPEN || is->accepted > 0 || !s->nodes) return 0;
    for (size_t i = 0; i < s->facts->node_count; i++) {
        const omm_coord_node_status *n = &s->nodes[i].status;
        offered += n->selected && n->offered && !n->settled && !n->quarantined;
        decline += watch_declines(n, is->state);
    }
    return decline == offered ? decline : 0;
}

/* What is wrong is at the nodes, so it is not sick. */
static omm_err put_declined(omm_buf *out, const watch_seen *s) {
    char list[DECLINED_LIST_SIZE];
    const uint32_t all = all_that_decline(s);
    const declined_counts counts = watch_declined(s);
    if (all == 0) return OMM_OK;
    declined_list(list, &counts);
    return omm_buf_printf(out,
                          "warning: round: every node that came for its offer (%u) gives nothing, "
                          "and says why: %s; `ctl nodes` has which one says what, docs/service.md "
                          "what can be done; `pause` keeps the rounds after this one\n",
                          all, list);
}

/* Below what is named: what it means for the open round, and what there is to do. */
static omm_err put_deadline(omm_buf *out, const watch_facts *f) {
    char since[25];
    if (f->status.state != OMM_COORD_OPEN || !f->status.is_spared ||
        (!f->has_trouble && !f->has_stopped))
        return OMM_OK;
    omm_time_iso(since, f->trouble_since_wall_ms);
    return omm_buf_printf(out,
                          "deadline: waits since %s (%" PRIu64
                          " s so far), as what nodes give cannot be kept: mend what is named here; "
                          "nodes come again by themselves, and what they trained is not late\n",
                          since, f->status.waited_ms / 1000);
}

omm_err watch_reasons_text(omm_buf *out, const watch_seen *s) {
    const watch_facts *f = s->facts;
    uint64_t silent_ms = f->now_ms > f->beat_ms ? f->now_ms - f->beat_ms : 0;
    /* A run that is closed is being sealed, which takes as long as its bundle is large. */
    if (silent_ms > WATCH_BEAT_MS_MAX && f->status.state != OMM_COORD_CLOSED)
        OMM_TRY(omm_buf_printf(out, "loop: stands still for %" PRIu64 " s\n", silent_ms / 1000));
    if (f->ticking && f->now_ms - f->tick_since_ms > WATCH_TICK_MS_MAX)
        OMM_TRY(omm_buf_printf(out, "work: one sum or evaluation takes %" PRIu64 " s\n",
                               (f->now_ms - f->tick_since_ms) / 1000));
    if (f->has_stopped)
        OMM_TRY(omm_buf_printf(out, "%s: stands still, and is tried again: %.256s\n",
                               f->status.state == OMM_COORD_CLOSED ? "sealing" : "round",
                               f->stopped));
    if (f->has_trouble) OMM_TRY(omm_buf_printf(out, "trouble: %s\n", f->trouble));
    OMM_TRY(put_deadline(out, f));
    if (void_in_a_row(s) >= WATCH_VOID_MAX)
        OMM_TRY(omm_buf_printf(out,
                               "rounds: the last %u were void: fewer than accept_min (%u) were "
                               "accepted in time\n",
                               void_in_a_row(s), f->status.accept_min));
    if (f->base.has_changed)
        OMM_TRY(omm_buf_printf(out,
                               "base: the file of the base model (%s) has changed or is gone, and "
                               "nodes that fetch it get none of it: put back the file that the run "
                               "began with; it is looked at every few seconds, without a restart\n",
                               s->o->run->base.name));
    OMM_TRY(put_connections(out, &s->wire));
    if (f->has_audit_trouble) OMM_TRY(omm_buf_printf(out, "audit: %s\n", f->audit_trouble));
    if (s->has_disk && s->disk_free < WATCH_DISK_BYTES_MIN)
        OMM_TRY(omm_buf_printf(
            out, "disk: %" PRIu64 " MiB left for the state, %" PRIu64 " are asked for\n",
            s->disk_free >> 20, (uint64_t)WATCH_DISK_BYTES_MIN >> 20));
    return OMM_OK;
}

omm_err watch_health_text(omm_buf *out, bool *healthy, const watch_seen *s) {
    omm_buf reasons;
    omm_buf_init(&reasons, 4096);
    omm_err err = watch_reasons_text(&reasons, s);
    *healthy = reasons.size == 0;
    if (err == OMM_OK)
        err = omm_buf_printf(out, "%s\n%.*s", *healthy ? "ok" : "sick", (int)reasons.size,
                             reasons.data ? (const char *)reasons.data : "");
    if (err == OMM_OK && s->facts->damaged_file[0])
        err = omm_buf_printf(out,
                             "warning: bundle: %s is not as its round wrote it: put it back from a "
                             "copy, or the bundle will not verify; rounds go on\n",
                             s->facts->damaged_file);
    if (err == OMM_OK) err = put_declined(out, s);
    if (err == OMM_OK)
        err = omm_buf_printf(out, "state: %s%s\nround: %u (rounds 0 to %u)\n",
                             omm_coord_state_name(s->facts->status.state),
                             s->facts->status.draining ? ", draining"
                             : s->facts->status.paused ? ", paused"
                                                       : "",
                             s->facts->status.round, s->facts->status.rounds - 1);
    if (err == OMM_OK && s->o->note) err = omm_buf_printf(out, "note: %s\n", s->o->note);
    omm_buf_fini(&reasons);
    return err;
}
