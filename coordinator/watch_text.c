/* watch_text.c - see watch_text.h. */
#include "watch_text.h"

#include "omm/memory.h"
#include "watch_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

/* ---- metrics ---- */

static omm_err put_kind(omm_buf *out, const char *name, const char *kind, const char *help) {
    return omm_buf_printf(out, "# HELP meshmind_%s %s\n# TYPE meshmind_%s %s\n", name, help, name,
                          kind);
}

static omm_err put_value(omm_buf *out, const char *name, const char *kind, const char *help,
                         uint64_t value) {
    OMM_TRY(put_kind(out, name, kind, help));
    return omm_buf_printf(out, "meshmind_%s %" PRIu64 "\n", name, value);
}

static omm_err put_seconds(omm_buf *out, const char *name, const char *kind, const char *help,
                           uint64_t ms) {
    OMM_TRY(put_kind(out, name, kind, help));
    return omm_buf_printf(out, "meshmind_%s %" PRIu64 ".%03u\n", name, ms / 1000,
                          (unsigned)(ms % 1000));
}

static omm_err put_sample(omm_buf *out, const char *name, const char *label, const char *is,
                          uint64_t value) {
    return omm_buf_printf(out, "meshmind_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, is, value);
}

/* A label's value: \, " and line ends escaped, as the format asks. */
static omm_err put_label(omm_buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\\' || *text == '"') OMM_TRY(omm_buf_append(out, "\\", 1));
        OMM_TRY(omm_buf_append(out, *text == '\n' ? "\\n" : text, *text == '\n' ? 2 : 1));
    }
    return OMM_OK;
}

static omm_err put_info(omm_buf *out, const watch_seen *s) {
    OMM_TRY(put_kind(out, "info", "gauge", "What runs; always 1."));
    OMM_TRY(omm_buf_printf(out, "meshmind_info{run_id=\"%s\",run=\"", s->o->run->run_id));
    OMM_TRY(put_label(out, s->o->run->name));
    OMM_TRY(omm_buf_printf(out, "\",commit=\""));
    OMM_TRY(put_label(out, s->o->commit));
    OMM_TRY(omm_buf_printf(out, "\",build=\""));
    OMM_TRY(put_label(out, s->o->build));
    return omm_buf_printf(out, "\"} 1\n");
}

static omm_err put_rounds(omm_buf *out, const watch_seen *s) {
    const watch_facts *f = s->facts;
    OMM_TRY(put_kind(out, "state", "gauge", "1 for the state that the coordinator is in."));
    for (int i = OMM_COORD_JOINING; i <= OMM_COORD_CLOSED; i++)
        OMM_TRY(put_sample(out, "state", "state", omm_coord_state_name((omm_coord_state)i),
                           f->status.state == (omm_coord_state)i));
    OMM_TRY(put_value(out, "paused", "gauge", "1 while no new round is opened.",
                      f->status.paused || f->status.draining));
    OMM_TRY(put_value(out, "round", "gauge", "The round that is gathered or open, from 0.",
                      f->status.round));
    OMM_TRY(put_value(out, "rounds_planned", "gauge", "Rounds of the run.", f->status.rounds));
    OMM_TRY(put_kind(out, "rounds_total", "counter", "Rounds of the run that are over."));
    OMM_TRY(put_sample(out, "rounds_total", "result", "published", f->rounds_published));
    OMM_TRY(put_sample(out, "rounds_total", "result", "held_back", f->rounds_held));
    OMM_TRY(put_sample(out, "rounds_total", "result", "void", f->rounds_void));
    if (f->over_wall_ms)
        OMM_TRY(put_seconds(out, "round_over_timestamp_seconds", "gauge",
                            "When the last round was over.", f->over_wall_ms));
    if (f->opened_wall_ms)
        OMM_TRY(put_seconds(out, "round_opened_timestamp_seconds", "gauge",
                            "When the last round was opened.", f->opened_wall_ms));
    OMM_TRY(put_value(out, "evidence_damaged", "gauge",
                      "1 while a file of a round that is over is not as it was; /healthz names it.",
                      f->damaged_file[0] != '\0'));
    OMM_TRY(put_value(out, "base_bytes_total", "counter",
                      "Bytes of the base model sent to nodes since the start.", f->base.bytes));
    OMM_TRY(put_value(out, "base_refused_total", "counter",
                      "Requests for it that were refused, as its file has changed here.",
                      f->base.refused));
    OMM_TRY(put_value(out, "base_changed", "gauge",
                      "1 while the base model's file is not the run's, and nodes get none of it.",
                      f->base.has_changed));
    if (!f->status.has_loss) return OMM_OK;
    OMM_TRY(put_kind(out, "loss", "gauge", "Held-out loss of the published adapter."));
    return omm_buf_printf(out, "meshmind_loss %.9g\n", f->status.loss);
}

static omm_err put_declined(omm_buf *out, const watch_seen *s) {
    const declined_counts counts = watch_declined(s);
    OMM_TRY(put_kind(out, "nodes_declined", "gauge",
                     "Nodes that gave nothing to the last offer, by what they say of why."));
    for (unsigned i = 1; i <= OMM_DECLINED_OTHER; i++)
        OMM_TRY(put_sample(out, "nodes_declined", "reason", omm_declined_word((omm_declined)i),
                           counts.of[i]));
    return OMM_OK;
}

static omm_err put_nodes(omm_buf *out, const watch_seen *s) {
    uint64_t uploading = 0;
    uint64_t settled = 0;
    for (size_t i = 0; i < s->facts->node_count; i++) {
        uploading += s->nodes[i].status.uploading;
        settled += s->nodes[i].status.settled;
    }
    OMM_TRY(put_kind(out, "nodes", "gauge", "Nodes of this round by what they are doing."));
    OMM_TRY(put_sample(out, "nodes", "is", "enrolled", s->facts->node_count));
    OMM_TRY(put_sample(out, "nodes", "is", "ready", s->facts->status.ready));
    OMM_TRY(put_sample(out, "nodes", "is", "selected", s->facts->status.selected));
    OMM_TRY(put_sample(out, "nodes", "is", "uploading", uploading));
    OMM_TRY(put_sample(out, "nodes", "is", "settled", settled));
    OMM_TRY(put_sample(out, "nodes", "is", "quarantined", s->facts->status.quarantined));
    return put_declined(out, s);
}

static omm_err put_by_reason(omm_buf *out, const char *name, const uint64_t *counts) {
    static const char prefix[] = "REFUSED_";
    for (unsigned i = 1; i < WATCH_REASONS; i++) {
        const char *reason = omm_err_name((omm_err)i);
        if (strncmp(reason, prefix, sizeof prefix - 1) == 0)
            OMM_TRY(put_sample(out, name, "reason", reason + sizeof prefix - 1, counts[i]));
    }
    return OMM_OK;
}

static omm_err put_verdicts(omm_buf *out, const watch_seen *s) {
    OMM_TRY(put_value(out, "submissions_accepted_total", "counter",
                      "Submissions accepted since the start.", s->facts->submissions[OMM_OK]));
    OMM_TRY(put_kind(out, "submissions_refused_total", "counter",
                     "Submissions refused since the start, by reason."));
    OMM_TRY(put_by_reason(out, "submissions_refused_total", s->facts->submissions));
    OMM_TRY(put_kind(out, "requests_refused_total", "counter",
                     "Other requests refused since the start, by reason."));
    return put_by_reason(out, "requests_refused_total", s->facts->requests);
}

static omm_err put_canaries(omm_buf *out, const watch_seen *s) {
    const watch_facts *f = s->facts;
    if (!f->status.has_canaries) return OMM_OK;
    OMM_TRY(put_value(out, "canaries_passed_total", "counter",
                      "Canaries that a replay found right since the start.", f->canaries_passed));
    OMM_TRY(put_value(out, "canaries_failed_total", "counter",
                      "Canaries that a replay found wrong since the start.", f->canaries_failed));
    OMM_TRY(put_value(out, "canaries_open", "gauge", "Canaries that nodes train, or shall.",
                      f->status.canaries_open));
    OMM_TRY(put_value(out, "canaries_waiting", "gauge", "Canaries that wait for their replay.",
                      f->status.canaries_waiting));
    OMM_TRY(put_value(out, "canary_replays_total", "counter",
                      "Canaries trained again since the start.", f->replays));
    OMM_TRY(put_seconds(out, "canary_replay_seconds_total", "counter",
                        "Time that took, beside the rounds.", f->replay_ms));
    return put_value(out, "candidates", "gauge", "Strangers on probation.", f->status.candidates);
}

static omm_err put_wire(omm_buf *out, const omm_wire_count *w) {
    OMM_TRY(put_kind(out, "wire_bytes_total", "counter", "Bytes of messages since the start."));
    OMM_TRY(put_sample(out, "wire_bytes_total", "direction", "in", w->bytes_in));
    OMM_TRY(put_sample(out, "wire_bytes_total", "direction", "out", w->bytes_out));
    OMM_TRY(put_kind(out, "wire_messages_total", "counter", "Messages since the start."));
    OMM_TRY(put_sample(out, "wire_messages_total", "direction", "in", w->messages_in));
    OMM_TRY(put_sample(out, "wire_messages_total", "direction", "out", w->messages_out));
    OMM_TRY(put_value(out, "connections", "gauge", "Connections of nodes now.", w->connections));
    OMM_TRY(put_kind(out, "connections_turned_away_total", "counter",
                     "Connections that were refused or closed here, or left nothing whole."));
    for (int i = 0; i < OMM_TURNED_REASONS; i++)
        OMM_TRY(put_sample(out, "connections_turned_away_total", "reason",
                           omm_turned_name((omm_turned)i), w->turned_away[i]));
    OMM_TRY(put_value(out, "strangers", "gauge", "Connections now that have proved nothing yet.",
                      w->strangers));
    OMM_TRY(put_value(out, "connections_stuck", "gauge",
                      "Connections that were ended half a minute ago and are still there.",
                      w->stuck));
    OMM_TRY(put_value(out, "messages_oversize_total", "counter",
                      "Messages over the limit that came whole.", w->oversize));
    OMM_TRY(put_value(out, "answers_waiting", "gauge",
                      "Answers that wait until their peer has read the one before.", w->answering));
    return put_value(out, "requests_queued", "gauge", "Requests that wait for their turn.",
                     w->queued);
}

static omm_err is_healthy(bool *healthy, const watch_seen *s) {
    omm_buf reasons;
    omm_buf_init(&reasons, 4096);
    const omm_err err = watch_reasons_text(&reasons, s);
    *healthy = reasons.size == 0;
    omm_buf_fini(&reasons);
    return err;
}

static omm_err put_process(omm_buf *out, const watch_seen *s) {
    const watch_facts *f = s->facts;
    bool healthy = false;
    OMM_TRY(is_healthy(&healthy, s));
    struct rusage usage = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    uint64_t cpu_ms = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                      (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
    OMM_TRY(put_seconds(out, "work_seconds_total", "counter",
                        "Time in sums, evaluations and publishing since the start.",
                        f->tick_ms + (f->ticking ? f->now_ms - f->tick_since_ms : 0)));
    OMM_TRY(put_value(out, "work_running", "gauge", "1 while such work goes on.", f->ticking));
    OMM_TRY(put_value(out, "healthy", "gauge", "0 where /healthz says `sick`, and why.", healthy));
    OMM_TRY(put_value(out, "trouble", "gauge",
                      "1 when a request failed for a reason of our own, or a round stands still.",
                      f->has_trouble || f->has_stopped));
    OMM_TRY(
        put_value(out, "audit_entries", "gauge", "Entries of the audit log.", f->audit_entries));
    OMM_TRY(put_seconds(out, "start_timestamp_seconds", "gauge", "When the process began.",
                        f->started_wall_ms));
    OMM_TRY(put_seconds(out, "cpu_seconds_total", "counter", "Processor time.", cpu_ms));
    OMM_TRY(
        put_value(out, "resident_bytes", "gauge", "Memory of the process.", omm_memory_resident()));
    OMM_TRY(
        put_value(out, "resident_peak_bytes", "gauge", "The most it has had.", omm_memory_peak()));
    if (!s->has_disk) return OMM_OK;
    return put_value(out, "disk_free_bytes", "gauge", "Left where the state is.", s->disk_free);
}

omm_err watch_metrics_text(omm_buf *out, const watch_seen *s) {
    OMM_TRY(put_info(out, s));
    OMM_TRY(put_rounds(out, s));
    OMM_TRY(put_nodes(out, s));
    OMM_TRY(put_verdicts(out, s));
    OMM_TRY(put_canaries(out, s));
    OMM_TRY(put_wire(out, &s->wire));
    return put_process(out, s);
}

/* ---- status.json ---- */

static const char *doing(const omm_coord_node_status *n, omm_coord_state state) {
    if (n->revoked) return "revoked";
    if (n->quarantined) return "in quarantine";
    if (n->settled) return "settled";
    if (n->uploading) return "uploading";
    if (watch_declines(n, state)) return "declines";
    if (state == OMM_COORD_OPEN && n->selected) return n->offered ? "training" : "selected";
    return n->ready ? "ready" : "away";
}

static omm_err set_nodes(json_t *root, const watch_seen *s) {
    json_t *list = json_array();
    size_t n = s->facts->node_count;
    if (n > WATCH_JSON_NODES_MAX) n = WATCH_JSON_NODES_MAX;
    for (size_t i = 0; i < n; i++) {
        const omm_run_node *node = &s->o->run->nodes[i];
        char id[OMM_DIGEST_HEX_SIZE], declined[OMM_DECLINED_TEXT_SIZE];
        omm_digest_hex(id, &node->id);
        id[16] = '\0';
        omm_declined_text(declined, s->nodes[i].status.declined);
        json_t *item = json_pack(
            "{s:s,s:s,s:s,s:i,s:i,s:o,s:o}", "id", id, "is",
            doing(&s->nodes[i].status, s->facts->status.state), "declined", declined, "accepted",
            (int)s->nodes[i].status.accepted, "refused", (int)s->nodes[i].status.refused, "up",
            watch_json_count(s->nodes[i].up), "down", watch_json_count(s->nodes[i].down));
        omm_err err = omm_json_set_str(item, "name", node->name);
        if (err != OMM_OK) err = omm_json_set_str(item, "name", "?");
        json_array_append_new(list, item);
        if (err == OMM_OK) continue;
        json_decref(list);
        return err;
    }
    return omm_json_set(root, "nodes", list);
}

static const char *verdict_of(const omm_coord_round *r) {
    if (r->voided) return "void";
    return r->published ? "published" : "held back";
}

static omm_err set_history(json_t *root, const watch_seen *s) {
    uint32_t n = s->facts->history_count;
    uint32_t from = n > WATCH_JSON_ROUNDS_MAX ? n - WATCH_JSON_ROUNDS_MAX : 0;
    json_t *list = json_array();
    for (uint32_t i = from; i < n; i++) {
        const omm_coord_round *r = &s->history[i];
        json_array_append_new(list,
                              json_pack("{s:i,s:i,s:i,s:i,s:i,s:o,s:o,s:s}", "round", (int)r->round,
                                        "selected", (int)r->selected, "accepted", (int)r->accepted,
                                        "refused", (int)r->refused, "missing", (int)r->missing,
                                        "tokens", watch_json_count(r->tokens), "loss",
                                        watch_json_real(r->loss), "verdict", verdict_of(r)));
    }
    OMM_TRY(omm_json_set(root, "history", list));
    json_t *curve = json_array();
    uint32_t step = (n + WATCH_JSON_CURVE_MAX - 1) / WATCH_JSON_CURVE_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const omm_coord_round *r = &s->history[i];
        if (!isfinite(r->loss) || (i % step != 0 && i + 1 != n)) continue;
        json_array_append_new(curve, json_pack("[i,f,b]", (int)r->round, r->loss, r->published));
    }
    return omm_json_set(root, "curve", curve);
}

static omm_err set_verdicts(json_t *root, const watch_seen *s) {
    const watch_facts *f = s->facts;
    json_t *list = json_array();
    uint64_t from =
        f->verdict_count > WATCH_VERDICTS_MAX ? f->verdict_count - WATCH_VERDICTS_MAX : 0;
    for (uint64_t i = f->verdict_count; i > from; i--) {
        const watch_verdict *v = &f->verdicts[(i - 1) % WATCH_VERDICTS_MAX];
        json_t *item = json_pack("{s:o,s:i,s:s,s:o,s:o}", "time", watch_json_time(v->wall_ms),
                                 "round", (int)v->round, "verdict",
                                 v->reason == OMM_OK ? "accepted" : omm_err_name(v->reason),
                                 "sentence", watch_json_words(v->sentence), "peer",
                                 v->has_peer ? watch_json_words(v->peer) : json_null());
        omm_err err = OMM_OK;
        if (v->node >= 0) err = omm_json_set_str(item, "node", s->o->run->nodes[v->node].name);
        if (v->node < 0 || err != OMM_OK) err = omm_json_set(item, "node", json_null());
        json_array_append_new(list, item);
        if (err == OMM_OK) continue;
        json_decref(list);
        return err;
    }
    return omm_json_set(root, "verdicts", list);
}

static omm_err fill(json_t *root, const watch_seen *s) {
    const watch_facts *f = s->facts;
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(omm_json_set_str(root, "run_id", s->o->run->run_id));
    OMM_TRY(omm_json_set_str(root, "run", s->o->run->name));
    OMM_TRY(omm_json_set_str(root, "commit", s->o->commit));
    OMM_TRY(omm_json_set_str(root, "state", omm_coord_state_name(f->status.state)));
    OMM_TRY(omm_json_set_bool(root, "working", f->ticking));
    OMM_TRY(omm_json_set_bool(root, "paused", f->status.paused));
    OMM_TRY(omm_json_set_bool(root, "draining", f->status.draining));
    OMM_TRY(omm_json_set_int(root, "round", f->status.round));
    OMM_TRY(omm_json_set_int(root, "rounds", f->status.rounds));
    OMM_TRY(omm_json_set_int(root, "node_count", (int64_t)s->facts->node_count));
    OMM_TRY(omm_json_set_int(root, "ready", f->status.ready));
    OMM_TRY(omm_json_set_int(root, "selected", f->status.selected));
    OMM_TRY(omm_json_set_int(root, "accepted", f->status.accepted));
    OMM_TRY(omm_json_set_int(root, "refused", f->status.refused));
    OMM_TRY(omm_json_set(root, "loss",
                         f->status.has_loss ? watch_json_real(f->status.loss) : json_null()));
    OMM_TRY(omm_json_set(root, "bytes_in", watch_json_count(s->wire.bytes_in)));
    OMM_TRY(omm_json_set(root, "bytes_out", watch_json_count(s->wire.bytes_out)));
    OMM_TRY(omm_json_set(root, "connections", watch_json_count(s->wire.connections)));
    OMM_TRY(omm_json_set(root, "resident_bytes", watch_json_count(omm_memory_resident())));
    OMM_TRY(omm_json_set(root, "time", watch_json_time(f->wall_ms)));
    OMM_TRY(omm_json_set(root, "started", watch_json_time(f->started_wall_ms)));
    OMM_TRY(omm_json_set(root, "round_opened", watch_json_time(f->opened_wall_ms)));
    OMM_TRY(omm_json_set(root, "round_over", watch_json_time(f->over_wall_ms)));
    OMM_TRY(omm_json_set(root, "audit_entries", watch_json_count(f->audit_entries)));
    OMM_TRY(omm_json_set_digest(root, "audit_head", f->audit_head.b));
    OMM_TRY(watch_json_sick(root, s));
    OMM_TRY(set_nodes(root, s));
    OMM_TRY(set_history(root, s));
    return set_verdicts(root, s);
}

omm_err watch_status_text(omm_buf *out, const watch_seen *s) {
    json_t *root = json_object();
    omm_err err = root ? fill(root, s) : omm_raise(OMM_ERR_NOMEM, "JSON");
    if (err == OMM_OK) err = omm_json_write(out, root);
    json_decref(root);
    return err;
}
