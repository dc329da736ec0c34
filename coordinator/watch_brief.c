/* watch_brief.c - see watch_brief.h. */
#include "watch_brief.h"

#include "watch_json.h"

#include <inttypes.h>
#include <string.h>

#define NAMES_MAX 5u /* of one kind; `nodes` lists all */

/* Where a node stands: in one place only, revoked and in quarantine first. */
typedef enum standing {
    STANDS_REVOKED,
    STANDS_QUARANTINED,
    STANDS_SETTLED,
    STANDS_UPLOADING,
    STANDS_DECLINES, /* has the offer, and says that it gives nothing */
    STANDS_WORKING,  /* has the offer */
    STANDS_SILENT,   /* selected, and not heard of since */
    STANDS_AWAY,
    STANDS_READY,
    STANDINGS
} standing;

static standing standing_of(const watch_seen *s, size_t node) {
    const omm_coord_node_status *is = &s->nodes[node].status;
    const bool asked = s->facts->status.state == OMM_COORD_OPEN && is->selected;
    if (is->revoked) return STANDS_REVOKED;
    if (is->quarantined) return STANDS_QUARANTINED;
    if (is->settled) return STANDS_SETTLED;
    if (is->uploading) return STANDS_UPLOADING;
    if (watch_declines(is, s->facts->status.state)) return STANDS_DECLINES;
    if (asked) return is->offered ? STANDS_WORKING : STANDS_SILENT;
    return is->ready ? STANDS_READY : STANDS_AWAY;
}

typedef struct node_counts {
    uint32_t of[STANDINGS];
} node_counts;

static node_counts count_nodes(const watch_seen *s) {
    node_counts n = {0};
    for (size_t i = 0; i < s->facts->node_count; i++) n.of[standing_of(s, i)]++;
    return n;
}

/* Who was selected for the last round that is over, and gave nothing in time. */
static uint32_t late_nodes(const watch_seen *s) {
    return s->facts->history_count ? s->history[s->facts->history_count - 1].missing : 0;
}

static const char *reason_name(unsigned reason) {
    static const char prefix[] = "REFUSED_";
    const char *name = omm_err_name((omm_err)reason);
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : NULL;
}

static bool has_left(uint64_t *left_ms, const watch_facts *f) {
    *left_ms = f->acts_at_ms > f->now_ms ? f->acts_at_ms - f->now_ms : 0;
    return f->acts_at_ms != UINT64_MAX && !f->ticking && f->status.state != OMM_COORD_CLOSED;
}

static uint64_t stage_ms(const watch_facts *f) {
    return f->now_ms > f->stage_since_ms ? f->now_ms - f->stage_since_ms : 0;
}

/* ---- for a terminal ---- */

static omm_err put_stage(omm_buf *out, const watch_facts *f) {
    uint64_t left_ms = 0;
    if (f->ticking)
        return omm_buf_printf(out, "working: a sum or an evaluation since %" PRIu64 " s\n",
                              (f->now_ms - f->tick_since_ms) / 1000);
    OMM_TRY(omm_buf_printf(out, "stage: since %" PRIu64 " s", stage_ms(f) / 1000));
    if (has_left(&left_ms, f))
        return omm_buf_printf(out, ", goes on in %" PRIu64 " s at the latest\n", left_ms / 1000);
    const omm_coord_status *is = &f->status;
    if (is->state != OMM_COORD_JOINING) return omm_buf_printf(out, "\n");
    if (is->draining) return omm_buf_printf(out, ", ends now\n");
    if (is->paused) return omm_buf_printf(out, ", waits for `resume`\n");
    if (is->held) return omm_buf_printf(out, ", waits for its time (every, at)\n");
    return omm_buf_printf(out,
                          ", waits for nodes: %u ready, at least %u are needed (accept_min), "
                          "with %u it begins at once\n",
                          is->ready, is->accept_min, is->quorum);
}

static omm_err put_refusals(omm_buf *out, const char *what, const uint64_t *counts) {
    bool any = false;
    OMM_TRY(omm_buf_printf(out, "%s refused since the start:", what));
    for (unsigned i = 1; i < WATCH_REASONS; i++) {
        const char *name = counts[i] > 0 ? reason_name(i) : NULL;
        if (name) OMM_TRY(omm_buf_printf(out, " %s %" PRIu64, name, counts[i]));
        any = any || name;
    }
    return omm_buf_printf(out, any ? "\n" : " none\n");
}

static omm_err put_error(omm_buf *out, const watch_facts *f) {
    char at[25];
    if (!f->trouble_wall_ms) return OMM_OK;
    omm_time_iso(at, f->trouble_wall_ms);
    return omm_buf_printf(out, "last error: %s %s%s\n", at, f->trouble,
                          f->has_trouble || f->has_stopped ? "" : " (since then all went well)");
}

/* "what: anna, bert and 3 more; hint"; nothing where nobody stands so. */
static omm_err put_names(omm_buf *out, const watch_seen *s, standing kind, const char *what,
                         const char *hint) {
    uint32_t count = 0;
    for (size_t i = 0; i < s->facts->node_count; i++) {
        if (standing_of(s, i) != kind || ++count > NAMES_MAX) continue;
        OMM_TRY(omm_buf_printf(out, "%s%s", count == 1 ? what : ", ", s->o->run->nodes[i].name));
    }
    if (count == 0) return OMM_OK;
    if (count > NAMES_MAX) OMM_TRY(omm_buf_printf(out, " and %u more", count - NAMES_MAX));
    return omm_buf_printf(out, "; %s\n", hint);
}

/* Between rounds: what those said that gave nothing. */
static omm_err put_declined(omm_buf *out, const watch_seen *s) {
    char list[DECLINED_LIST_SIZE];
    const declined_counts counts = watch_declined(s);
    const omm_coord_state state = s->facts->status.state;
    declined_list(list, &counts);
    if (!list[0] || (state != OMM_COORD_JOINING && state < OMM_COORD_PUBLISHED)) return OMM_OK;
    return omm_buf_printf(out, "nodes that gave nothing to it say why: %s; `nodes` has which\n",
                          list);
}

static omm_err put_last(omm_buf *out, const watch_seen *s) {
    char at[25] = "never since the start";
    if (s->facts->over_wall_ms) omm_time_iso(at, s->facts->over_wall_ms);
    OMM_TRY(omm_buf_printf(out, "last round over: %s", at));
    if (s->facts->history_count == 0) return omm_buf_printf(out, "\n");
    const omm_coord_round *r = &s->history[s->facts->history_count - 1];
    OMM_TRY(omm_buf_printf(out, "; %u of %u accepted, ", r->accepted, r->selected));
    if (r->voided)
        return omm_buf_printf(out, "void: at least %u are needed (accept_min)\n",
                              s->facts->status.accept_min);
    return omm_buf_printf(out, r->published ? "published\n"
                                            : "held back: its loss is over loss_increase_max\n");
}

/* Which ones a round waits for or goes without, and what can be done about them. */
static omm_err put_who(omm_buf *out, const watch_seen *s) {
    if (s->facts->status.state == OMM_COORD_JOINING)
        OMM_TRY(put_names(out, s, STANDS_AWAY, "have not come for this round yet: ",
                          "join_ms or a quorum goes on without them"));
    OMM_TRY(put_names(out, s, STANDS_SILENT, "not heard of since they were selected: ",
                      "the deadline goes on without them, `quarantine` at once"));
    OMM_TRY(put_names(out, s, STANDS_DECLINES,
                      "have the offer, and give nothing: ", "`nodes` has what each says of why"));
    OMM_TRY(put_names(out, s, STANDS_WORKING, "have the offer, and nothing has come yet: ",
                      "they train, or have gone: the deadline goes on without them"));
    OMM_TRY(put_names(out, s, STANDS_UPLOADING, "in the middle of an upload: ",
                      "after a break it goes on with the chunks that are missing"));
    OMM_TRY(put_names(out, s, STANDS_QUARANTINED, "in quarantine: ",
                      "`release` lets one in again, the audit log has since when"));
    return put_names(out, s, STANDS_REVOKED, "revoked: ", "for good; `nodes` says why");
}

omm_err watch_brief_text(omm_buf *out, const watch_seen *s) {
    const omm_coord_status *is = &s->facts->status;
    const node_counts n = count_nodes(s);
    bool healthy = false;
    OMM_TRY(watch_health_text(out, &healthy, s));
    OMM_TRY(put_stage(out, s->facts));
    OMM_TRY(omm_buf_printf(
        out,
        "nodes: %zu enrolled, %u ready, %u working, %u uploading, %u settled, %u away, "
        "%u declining\n"
        "not taking part: %u in quarantine, %u revoked; late in the last round: %u\n"
        "this round: %u selected, %u accepted, %u refused, %u not heard of\n",
        s->facts->node_count, is->ready, n.of[STANDS_WORKING], n.of[STANDS_UPLOADING],
        n.of[STANDS_SETTLED], n.of[STANDS_AWAY], n.of[STANDS_DECLINES], n.of[STANDS_QUARANTINED],
        n.of[STANDS_REVOKED], late_nodes(s), is->selected, is->accepted, is->refused,
        n.of[STANDS_SILENT]));
    OMM_TRY(put_last(out, s));
    OMM_TRY(put_declined(out, s));
    OMM_TRY(put_who(out, s));
    OMM_TRY(put_refusals(out, "submissions", s->facts->submissions));
    OMM_TRY(put_refusals(out, "requests", s->facts->requests));
    OMM_TRY(put_error(out, s->facts));
    if (is->has_loss) OMM_TRY(omm_buf_printf(out, "held-out loss: %.6g\n", is->loss));
    if (is->has_canaries)
        OMM_TRY(omm_buf_printf(out,
                               "canaries: %u candidates, %u open, %u to be trained again; %" PRIu64
                               " passed, %" PRIu64 " failed since the start\n",
                               is->candidates, is->canaries_open, is->canaries_waiting,
                               s->facts->canaries_passed, s->facts->canaries_failed));
    char head[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(head, &s->facts->audit_head);
    return omm_buf_printf(out, "audit log: %" PRIu64 " entries, head %s\nrun: %s\n",
                          s->facts->audit_entries, head, s->o->run->run_id);
}

/* ---- for a script ---- */

static omm_err set_stage(json_t *root, const watch_facts *f) {
    uint64_t left_ms = 0;
    OMM_TRY(omm_json_set_str(root, "state", omm_coord_state_name(f->status.state)));
    OMM_TRY(omm_json_set_bool(root, "working", f->ticking));
    OMM_TRY(omm_json_set_bool(root, "paused", f->status.paused));
    OMM_TRY(omm_json_set_bool(root, "draining", f->status.draining));
    OMM_TRY(omm_json_set(
        root, "stage_seconds",
        watch_json_count((f->ticking ? f->now_ms - f->tick_since_ms : stage_ms(f)) / 1000)));
    json_t *left = has_left(&left_ms, f) ? watch_json_count(left_ms / 1000) : json_null();
    return omm_json_set(root, "seconds_left", left);
}

static omm_err set_round(json_t *root, const watch_seen *s) {
    const omm_coord_status *is = &s->facts->status;
    OMM_TRY(omm_json_set_int(root, "round", is->round));
    OMM_TRY(omm_json_set_int(root, "rounds", is->rounds));
    OMM_TRY(omm_json_set_int(root, "needed", is->accept_min));
    OMM_TRY(omm_json_set_int(root, "selected", is->selected));
    OMM_TRY(omm_json_set_int(root, "accepted", is->accepted));
    OMM_TRY(omm_json_set_int(root, "refused", is->refused));
    OMM_TRY(omm_json_set(root, "loss", is->has_loss ? watch_json_real(is->loss) : json_null()));
    OMM_TRY(omm_json_set(root, "round_opened", watch_json_time(s->facts->opened_wall_ms)));
    return omm_json_set(root, "round_over", watch_json_time(s->facts->over_wall_ms));
}

static omm_err set_nodes(json_t *root, const watch_seen *s) {
    const node_counts n = count_nodes(s);
    json_t *nodes =
        json_pack("{s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "enrolled",
                  watch_json_count(s->facts->node_count), "ready", (int)s->facts->status.ready,
                  "working", (int)n.of[STANDS_WORKING], "declining", (int)n.of[STANDS_DECLINES],
                  "uploading", (int)n.of[STANDS_UPLOADING], "settled", (int)n.of[STANDS_SETTLED],
                  "silent", (int)n.of[STANDS_SILENT], "away", (int)n.of[STANDS_AWAY], "quarantined",
                  (int)n.of[STANDS_QUARANTINED], "revoked", (int)n.of[STANDS_REVOKED], "late",
                  (int)late_nodes(s));
    return omm_json_set(root, "nodes", nodes);
}

static json_t *refusals_of(const uint64_t *counts) {
    json_t *by_reason = json_object();
    for (unsigned i = 1; i < WATCH_REASONS; i++)
        if (counts[i] > 0 && reason_name(i))
            (void)json_object_set_new(by_reason, reason_name(i), watch_json_count(counts[i]));
    return by_reason;
}

static omm_err set_refusals(json_t *root, const watch_facts *f) {
    json_t *both = json_pack("{s:o,s:o}", "submissions", refusals_of(f->submissions), "requests",
                             refusals_of(f->requests));
    return omm_json_set(root, "refusals", both);
}

static omm_err set_declined(json_t *root, const watch_seen *s) {
    const declined_counts counts = watch_declined(s);
    json_t *by_reason = json_object();
    for (unsigned i = 1; i <= OMM_DECLINED_OTHER; i++)
        if (counts.of[i] > 0)
            (void)json_object_set_new(by_reason, omm_declined_word((omm_declined)i),
                                      json_integer(counts.of[i]));
    return omm_json_set(root, "declined", by_reason);
}

static omm_err set_canaries(json_t *root, const watch_facts *f) {
    const omm_coord_status *is = &f->status;
    if (!is->has_canaries) return omm_json_set(root, "canaries", json_null());
    return omm_json_set(
        root, "canaries",
        json_pack("{s:i,s:i,s:i,s:o,s:o,s:o,s:f}", "candidates", (int)is->candidates, "open",
                  (int)is->canaries_open, "waiting", (int)is->canaries_waiting, "passed",
                  watch_json_count(f->canaries_passed), "failed",
                  watch_json_count(f->canaries_failed), "replays", watch_json_count(f->replays),
                  "replay_seconds", (double)f->replay_ms / 1000.0));
}

static omm_err set_error(json_t *root, const watch_facts *f) {
    if (!f->trouble_wall_ms) return omm_json_set(root, "last_error", json_null());
    return omm_json_set(root, "last_error",
                        json_pack("{s:o,s:o,s:b}", "time", watch_json_time(f->trouble_wall_ms),
                                  "sentence", watch_json_words(f->trouble), "lasts",
                                  f->has_trouble || f->has_stopped));
}

static omm_err fill(json_t *root, const watch_seen *s) {
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(omm_json_set_str(root, "run_id", s->o->run->run_id));
    OMM_TRY(omm_json_set(root, "time", watch_json_time(s->facts->wall_ms)));
    OMM_TRY(watch_json_sick(root, s));
    OMM_TRY(
        omm_json_set_bool(root, "healthy", json_array_size(json_object_get(root, "sick")) == 0));
    OMM_TRY(set_stage(root, s->facts));
    OMM_TRY(set_round(root, s));
    OMM_TRY(set_nodes(root, s));
    OMM_TRY(set_declined(root, s));
    OMM_TRY(set_refusals(root, s->facts));
    OMM_TRY(set_canaries(root, s->facts));
    OMM_TRY(set_error(root, s->facts));
    OMM_TRY(omm_json_set(root, "connections", watch_json_count(s->wire.connections)));
    OMM_TRY(omm_json_set(root, "disk_free_bytes",
                         s->has_disk ? watch_json_count(s->disk_free) : json_null()));
    OMM_TRY(omm_json_set(root, "audit_entries", watch_json_count(s->facts->audit_entries)));
    return omm_json_set_digest(root, "audit_head", s->facts->audit_head.b);
}

omm_err watch_brief_json(omm_buf *out, const watch_seen *s) {
    json_t *root = json_object();
    omm_err err = root ? fill(root, s) : omm_raise(OMM_ERR_NOMEM, "JSON");
    if (err == OMM_OK) err = omm_json_write(out, root);
    json_decref(root);
    return err;
}
