/* diary.c - see diary.h. */
#include "diary.h"

#include "omm/coordinator_enrol.h"
#include "omm/mem.h"

#include <math.h>
#include <string.h>

struct diary {
    diary_options o;
    omm_audit_log *log;
    uint64_t refused[WATCH_REASONS]; /* since the last round_over */
    bool *named;                     /* (nodes when it was opened): an entry says that it is in */
    size_t named_count;
    char sealed_by
        [OMM_MINISIGN_PUBLIC_SIZE]; /* what the last start says; "": there is none, or one of before */
};

static void show_head(diary *d) {
    omm_digest head;
    uint64_t entries = omm_audit_log_head(&head, d->log);
    watch_audit(d->o.watch, entries, &head);
}

static void note_key(diary *d, const json_t *entry) {
    const char *key = json_string_value(json_object_get(entry, "bundle_key"));
    if (key && strlen(key) < sizeof d->sealed_by) memcpy(d->sealed_by, key, strlen(key) + 1);
}

/* An entry that stood there before: whose is it? */
static omm_err note_entry(void *ud, const json_t *entry) {
    diary *d = ud;
    omm_digest id;
    const char *event = json_string_value(json_object_get(entry, "event"));
    if (strcmp(event, "start") == 0) note_key(d, entry);
    if (strcmp(event, "enrolled") != 0 && strcmp(event, "joined") != 0) return OMM_OK;
    if (omm_json_get_digest(id.b, entry, "id") != OMM_OK) return OMM_OK;
    for (size_t i = 0; i < d->named_count; i++)
        d->named[i] |= omm_digest_equal(&d->o.run->nodes[i].id, &id);
    return OMM_OK;
}

omm_err diary_open(diary **out, const diary_options *options) {
    diary *d = omm_alloc(1, sizeof *d);
    if (!d) return omm_raise(OMM_ERR_NOMEM, "audit log");
    d->o = *options;
    d->named_count = options->run->node_count;
    d->named = omm_alloc(d->named_count, sizeof *d->named);
    omm_err err = d->named ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "audit log");
    if (err == OMM_OK)
        err = omm_audit_log_open(&d->log, options->path, options->clock, note_entry, d);
    if (err == OMM_ERR_FORMAT)
        err = omm_raise(OMM_ERR_FORMAT, "%s; keep the file and move it away to begin a new one",
                        omm_err_sentence());
    if (err != OMM_OK) {
        diary_close(d);
        return err;
    }
    *out = d;
    return OMM_OK;
}

void diary_close(diary *d) {
    if (!d) return;
    omm_audit_log_close(d->log);
    omm_free(d->named);
    omm_free(d);
}

static omm_err put(diary *d, const char *event, json_t *taken, bool durable) {
    OMM_TRY(omm_audit_log_put(d->log, event, taken, durable));
    show_head(d);
    return OMM_OK;
}

/* ---- start and stop ---- */

static omm_err fill_start(json_t *entry, const diary *d, const omm_coord_status *status) {
    omm_digest scenario = omm_hash(d->o.scenario_yaml);
    omm_digest policy = omm_hash(d->o.policy_yaml);
    OMM_TRY(omm_json_set_str(entry, "run_id", d->o.run->run_id));
    OMM_TRY(omm_json_set_str(entry, "run", d->o.run->name));
    OMM_TRY(omm_json_set_digest(entry, "scenario", scenario.b));
    OMM_TRY(omm_json_set_digest(entry, "policy", policy.b));
    char bundle_key[OMM_MINISIGN_PUBLIC_SIZE];
    omm_minisign_public(bundle_key, d->o.bundle_key);
    OMM_TRY(omm_json_set_digest(entry, "coordinator_key", d->o.run->coordinator_key.b));
    OMM_TRY(omm_json_set_str(entry, "bundle_key", bundle_key));
    OMM_TRY(omm_json_set_int(entry, "nodes", (int64_t)d->o.run->node_count));
    OMM_TRY(omm_json_set_int(entry, "round", status->round));
    OMM_TRY(omm_json_set_str(entry, "state", omm_coord_state_name(status->state)));
    OMM_TRY(omm_json_set_str(entry, "commit", d->o.commit));
    return omm_json_set_str(entry, "build", d->o.build);
}

/* by NULL: it is on the list. */
static omm_err put_member(diary *d, size_t node, const char *by, bool durable) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_str(entry, "node", d->o.run->nodes[node].name);
    if (err == OMM_OK) err = omm_json_set_digest(entry, "id", d->o.run->nodes[node].id.b);
    if (err == OMM_OK && by) err = omm_json_set_str(entry, "by", by);
    if (err == OMM_OK) return put(d, by ? "joined" : "enrolled", entry, durable);
    json_decref(entry);
    return err;
}

/* Who is in and in no entry: all in a new log; else whom a kill left out, between the start and the list, or between the
 * database, which lets a node in, and its entry. */
static omm_err put_unnamed(diary *d, const omm_coord *coord) {
    size_t end = d->named_count;
    while (end > 0 && d->named[end - 1]) end--;
    for (size_t i = 0; i < end; i++) {
        if (d->named[i]) continue;
        OMM_TRY(put_member(d, i, coord ? omm_coord_joined_by(coord, i) : NULL, i + 1 == end));
    }
    return OMM_OK;
}

/* A run that has gone on for a while has had a log. */
static void tell_of_lost_log(const diary *d, const omm_coord_status *status) {
    omm_digest head;
    if (status->round == 0 && status->state == OMM_COORD_JOINING) return;
    if (omm_audit_log_head(&head, d->log) > 0) return;
    omm_log_event(
        d->o.log, OMM_LOG_WARN, "audit_log_begun_anew", OMM_LOG_STR("file", d->o.path),
        OMM_LOG_STR("what", "the run has begun before, and its audit log is gone or empty"),
        OMM_LOG_STR("do", "put it back with the process stopped, unless you moved it away"));
}

/* Whoever was told which key to trust learns of another one only at the end. */
static void tell_of_other_key(const diary *d) {
    char now[OMM_MINISIGN_PUBLIC_SIZE];
    omm_minisign_public(now, d->o.bundle_key);
    if (!d->sealed_by[0] || strcmp(d->sealed_by, now) == 0) return;
    omm_log_event(d->o.log, OMM_LOG_WARN, "bundle_key_changed", OMM_LOG_STR("was", d->sealed_by),
                  OMM_LOG_STR("is", now),
                  OMM_LOG_STR("what", "the run began with another bundle_key, and will be sealed "
                                      "with this one"),
                  OMM_LOG_STR("do", "put the old one back, or tell who verifies with --trust"));
}

omm_err diary_start(diary *d, const omm_coord_status *status, const omm_coord *coord) {
    tell_of_lost_log(d, status);
    tell_of_other_key(d);
    json_t *entry = json_object();
    omm_err err = fill_start(entry, d, status);
    if (err != OMM_OK) {
        json_decref(entry);
        return err;
    }
    OMM_TRY(put(d, "start", entry, true));
    return put_unnamed(d, coord);
}

omm_err diary_ctl(diary *d, const char *action, const char *argument, uint32_t uid) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_str(entry, "action", action);
    if (err == OMM_OK) err = omm_json_set_str(entry, "argument", argument);
    if (err == OMM_OK) err = omm_json_set_int(entry, "uid", uid);
    if (err == OMM_OK) return put(d, "ctl", entry, true);
    json_decref(entry);
    return err;
}

void diary_ctl_failed(diary *d, const char *action, uint32_t uid, const char *why) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_str(entry, "action", action);
    if (err == OMM_OK) err = omm_json_set_int(entry, "uid", uid);
    if (err == OMM_OK && omm_json_set_str(entry, "why", why) != OMM_OK)
        err = omm_json_set_str(entry, "why", "not UTF-8");
    if (err == OMM_OK)
        err = put(d, "ctl_failed", entry, true);
    else
        json_decref(entry);
    if (err != OMM_OK) watch_audit_failed(d->o.watch, omm_err_sentence());
}

/* ---- rounds ---- */

static const char *verdict_name(omm_err reason) {
    return reason == OMM_OK ? "accepted" : omm_err_name(reason);
}

static omm_err fill_refused(json_t *entry, const diary *d) {
    json_t *counts = json_object();
    for (unsigned i = 1; i < WATCH_REASONS; i++)
        if (d->refused[i] > 0)
            (void)json_object_set_new(counts, omm_err_name((omm_err)i),
                                      json_integer((json_int_t)d->refused[i]));
    return omm_json_set(entry, "refusals", counts);
}

omm_err diary_stop(diary *d, const char *why) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_str(entry, "why", why);
    if (err != OMM_OK) err = omm_json_set_str(entry, "why", "an error that is not UTF-8");
    if (err == OMM_OK) err = fill_refused(entry, d);
    if (err == OMM_OK) return put(d, "stop", entry, true);
    json_decref(entry);
    return err;
}

static omm_err fill_over(json_t *entry, const diary *d, const omm_coord *coord) {
    uint32_t count = 0;
    const omm_coord_round *r = omm_coord_history(&count, coord) + count - 1;
    OMM_ASSERT(count > 0);
    OMM_TRY(omm_json_set_int(entry, "selected", r->selected));
    OMM_TRY(omm_json_set_int(entry, "accepted", r->accepted));
    OMM_TRY(omm_json_set_int(entry, "missing", r->missing));
    OMM_TRY(omm_json_set(entry, "loss", isfinite(r->loss) ? json_real(r->loss) : json_null()));
    OMM_TRY(omm_json_set_str(entry, "verdict",
                             r->voided ? "void" : (r->published ? "published" : "held back")));
    return fill_refused(entry, d);
}

static omm_err fill_event(json_t *entry, const diary *d, const omm_coord_event *event,
                          const omm_coord *coord) {
    OMM_TRY(omm_json_set_int(entry, "round", event->round));
    OMM_TRY(omm_json_set_digest(entry, "digest", event->digest->b));
    if (event->kind == OMM_COORD_EVENT_PUBLISHED) return fill_over(entry, d, coord);
    if (event->kind != OMM_COORD_EVENT_SUBMISSION) return OMM_OK;
    OMM_TRY(omm_json_set_str(entry, "node", d->o.run->nodes[event->node].name));
    return omm_json_set_str(entry, "verdict", verdict_name(event->reason));
}

static void tell_trouble(const diary *d, const char *entry, omm_err err) {
    if (err == OMM_OK) return;
    omm_log_event(d->o.log, OMM_LOG_ERROR, "audit_failed", OMM_LOG_STR("entry", entry),
                  OMM_LOG_STR("detail", omm_err_sentence()));
    watch_audit_failed(d->o.watch, omm_err_sentence());
}

static omm_err put_canary(diary *d, const omm_coord_event *event) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_str(entry, "node", event->peer);
    if (err == OMM_OK) err = omm_json_set_digest(entry, "submission", event->digest->b);
    if (err == OMM_OK) err = omm_json_set_str(entry, "verdict", verdict_name(event->reason));
    if (err == OMM_OK) err = omm_json_set_str(entry, "why", event->sentence);
    if (err == OMM_OK) err = omm_json_set_bool(entry, "candidate", event->node < 0);
    if (err == OMM_OK) return put(d, "canary", entry, true);
    json_decref(entry);
    return err;
}

static omm_err put_evidence(diary *d, uint32_t round, const char *path, const char *why) {
    json_t *entry = json_object();
    omm_err err = omm_json_set_int(entry, "round", round);
    if (err == OMM_OK) err = omm_json_set_str(entry, "file", path);
    if (err == OMM_OK && why) err = omm_json_set_str(entry, "why", why);
    if (err == OMM_OK) return put(d, why ? "evidence_damaged" : "evidence_mended", entry, true);
    json_decref(entry);
    return err;
}

void diary_evidence(diary *d, uint32_t round, const char *path, const char *why) {
    tell_trouble(d, "evidence", put_evidence(d, round, path, why));
}

void diary_event(diary *d, const omm_coord_event *event, const omm_coord *coord) {
    static const char *const names[] = {[OMM_COORD_EVENT_SUBMISSION] = "receipt",
                                        [OMM_COORD_EVENT_REQUEST] = "",
                                        [OMM_COORD_EVENT_OPENED] = "round_open",
                                        [OMM_COORD_EVENT_PUBLISHED] = "round_over",
                                        [OMM_COORD_EVENT_CLOSED] = "closed"};
    if (event->kind == OMM_COORD_EVENT_CANARY) {
        tell_trouble(d, "canary", put_canary(d, event));
        return;
    }
    if (event->reason != OMM_OK) d->refused[event->reason]++;
    if (event->kind == OMM_COORD_EVENT_REQUEST) return;
    if (event->kind == OMM_COORD_EVENT_JOINED) {
        tell_trouble(d, "joined", put_member(d, (size_t)event->node, event->sentence, true));
        return;
    }
    bool is_receipt = event->kind == OMM_COORD_EVENT_SUBMISSION;
    if (is_receipt && !event->settles) return;
    json_t *entry = json_object();
    omm_err err = fill_event(entry, d, event, coord);
    if (err == OMM_OK)
        err = put(d, names[event->kind], entry, !is_receipt);
    else
        json_decref(entry);
    if (err == OMM_OK && event->kind == OMM_COORD_EVENT_PUBLISHED)
        memset(d->refused, 0, sizeof d->refused);
    tell_trouble(d, names[event->kind], err);
}
