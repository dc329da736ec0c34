/* service.c - the loop around the state machine: one request at a time, one commit for all that are waiting,
 * heavy work beside them.
 *
 * Requests are taken for as long as there are any, within limits; then what they changed is committed, then
 * their answers leave.  A lone request waits for nobody.
 *
 * A tick may sum, publish and evaluate for minutes.  It runs in a thread of its own, and whoever asks
 * meanwhile is told to ask again: a request that waited for the end of it would be answered to a
 * node that had given it up.  Two threads never use the state machine at once.
 */
#include "omm/coordinator_service.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/sync.h"
#include "omm/transport.h"

#include "actions.h"
#include "base_serve.h"
#include "canary_work.h"
#include "ctl.h"
#include "diary.h"
#include "held.h"
#include "meter.h"
#include "timetable.h"
#include "watch.h"
#include "watch_brief.h"
#include "web.h"
#include "wires.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE_EPOCH_MS ((uint64_t)1 << 40)
#define SERVICE_SLICE_MS 200u     /* how soon a stop is noticed */
#define SERVICE_BUSY_SLICE_MS 10u /* how soon the end of a tick is */
#define SERVICE_BUSY_MS 1000u     /* a tick that makes others wait is worth a second */
#define SERVICE_TROUBLE_MS 5000u  /* between attempts when our own disk fails */
#define SERVICE_DETAIL_BYTES 2048u
#define SERVICE_ACTIONS_BYTES_MAX ((size_t)32 << 20)
#define SERVICE_BATCH_MS 20u  /* no request waits longer for others to be taken */
#define SERVICE_DRAIN_MS 100u /* quiet for so long: nobody's repeated request is under way */

typedef struct service {
    const omm_coord_service_options *o;
    omm_bundle *bundle;
    omm_coord *coord;
    omm_server *server;
    watch *watch;
    diary *diary;
    web *web;
    ctl *ctl;
    base_serve *base; /* NULL: none is served */
    canary_work *canaries;
    timetable times;
    bool is_held, has_opened; /* a round, since it was looked at last */
    omm_buf reply;
    held held;
    meter *meter;
    uint64_t deadline_ms;
    uint64_t busy_ms; /* when to ask again while a tick runs */
    wires *wires;
    uint32_t node_max;
    omm_coord_enrolment enrolment;
} service;

/* From far above zero: a stage may have begun before this machine did. */
static uint64_t now_ms(const service *s) {
    return SERVICE_EPOCH_MS + s->o->clock.now_ms(s->o->clock.ud);
}

/* Asked to, or nothing that is written is sure to last any more. */
static bool is_stopped(const service *s) {
    return (s->o->stop && atomic_load(s->o->stop)) || omm_sync_check() != OMM_OK;
}

static omm_err write_port(const char *path, unsigned port) {
    if (!path) return OMM_OK;
    char text[16];
    (void)snprintf(text, sizeof text, "%u\n", port);
    return omm_file_write(path, omm_bytes_str(text), 0644);
}

/* ---- seen from outside ---- */

/* What others see.  Not while a tick runs: it owns the state machine. */
static void show(service *s, bool now) {
    const uint64_t now_at_ms = now_ms(s);
    watch_beat(s->watch, false);
    watch_stage(s->watch, omm_coord_stage_ms(s->coord, now_at_ms),
                s->deadline_ms == OMM_COORD_NEVER ? OMM_COORD_NEVER
                : s->deadline_ms > now_at_ms      ? s->deadline_ms - now_at_ms
                                                  : 0);
    watch_take(s->watch, s->coord, now, wires_of, s->wires);
}

static void on_event(void *ud, const omm_coord_event *event) {
    service *s = ud;
    if (event->kind == OMM_COORD_EVENT_OPENED) s->has_opened = true;
    watch_event(s->watch, event);
    diary_event(s->diary, event, s->coord);
}

/* After the state machine, which holds the state's lock: one process writes this file. */
static omm_err open_diary(service *s) {
    char path[OMM_PATH_MAX];
    omm_coord_options run;
    omm_run_coord_options(&run, s->o->run);
    OMM_TRY(omm_path_join(path, s->o->state_dir, "audit.jsonl"));
    diary_options options = {.path = path,
                             .run = run.run,
                             .scenario_yaml = run.scenario_yaml,
                             .policy_yaml = run.policy_yaml,
                             .commit = s->o->commit,
                             .build = s->o->build,
                             .clock = s->o->clock,
                             .watch = s->watch,
                             .log = s->o->log};
    OMM_TRY(diary_open(&s->diary, &options));
    omm_coord_status status = omm_coord_get_status(s->coord);
    return diary_start(s->diary, &status);
}

static omm_err open_watch(service *s) {
    watch_options options = {.run = omm_run_get_record(s->o->run),
                             .node_max = s->node_max,
                             .clock = s->o->clock,
                             .state_dir = s->o->state_dir,
                             .commit = s->o->commit,
                             .build = s->o->build};
    return watch_open(&s->watch, &options);
}

static omm_err open_web(service *s) {
    if (!s->o->http) return OMM_OK;
    OMM_TRY(web_open(&s->web, s->o->http, s->watch, s->server, s->o->log));
    OMM_TRY(write_port(s->o->http_port_file, web_port(s->web)));
    omm_log_event(s->o->log, OMM_LOG_INFO, "http_listening", OMM_LOG_STR("address", s->o->http),
                  OMM_LOG_INT("port", web_port(s->web)));
    return OMM_OK;
}

/* ---- the operator ---- */

static omm_err say_status(service *s, omm_buf *answer, const char *form) {
    const bool json = strcmp(form, "json") == 0;
    if (form[0] && !json)
        return omm_raise(OMM_ERR_USAGE, "status: %.40s; accepted: json, or nothing", form);
    watch_facts *facts = omm_alloc(1, sizeof *facts); /* too large for a stack */
    watch_node *nodes = omm_alloc(watch_node_max(s->watch), sizeof *nodes);
    omm_err err = facts && nodes ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "status");
    watch_seen seen;
    if (err == OMM_OK) {
        watch_see(&seen, facts, nodes, s->watch, s->server);
        err = json ? watch_brief_json(answer, &seen) : watch_brief_text(answer, &seen);
    }
    omm_free(facts);
    omm_free(nodes);
    return err;
}

/* A node that may not take part any more is not listened to, either. */
static omm_err do_action(service *s, omm_buf *answer, const ctl_request *r) {
    actions a = {.coord = s->coord,
                 .run = omm_run_get_record(s->o->run),
                 .diary = s->diary,
                 .now_ms = now_ms(s),
                 .deadline_ms = &s->deadline_ms};
    OMM_TRY(actions_do(&a, answer, r));
    if (a.revoked >= 0)
        omm_server_hang_up(s->server, wires_connection(s->wires, (size_t)a.revoked));
    return OMM_OK;
}

static omm_err on_ctl(void *ud, omm_buf *answer, const ctl_request *r) {
    service *s = ud;
    char why[SERVICE_DETAIL_BYTES] = "done";
    if (r->action == OMM_COORD_CTL_status) return say_status(s, answer, r->argument);
    omm_err err = do_action(s, answer, r);
    if (err != OMM_OK) (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    omm_log_event(s->o->log, OMM_LOG_INFO, "ctl",
                  OMM_LOG_STR("action", omm_coord_ctl_name(r->action)),
                  OMM_LOG_STR("argument", r->argument), OMM_LOG_INT("uid", r->uid),
                  OMM_LOG_STR("result", why));
    if (err == OMM_OK) {
        watch_take(s->watch, s->coord, true, wires_of, s->wires);
        return OMM_OK;
    }
    diary_ctl_failed(s->diary, omm_coord_ctl_name(r->action), r->uid, why);
    return omm_raise(err, "%s", why);
}

/* ---- the timetable ---- */

/* After the state machine and before its first step: the stage goes on where it was. */
static omm_err open_times(service *s) {
    const omm_coord_status status = omm_coord_get_status(s->coord);
    uint64_t passed_ms = 0;
    OMM_TRY(timetable_open(&s->times, s->o->state_dir, s->o->clock, s->o->every_ms, s->o->has_at,
                           s->o->at_ms, NULL));
    if (timetable_stage_ms(&passed_ms, &s->times, status.round, status.state))
        omm_coord_resume_stage(s->coord, now_ms(s), passed_ms);
    omm_log_event(s->o->log, OMM_LOG_INFO, "stage_goes_on",
                  OMM_LOG_STR("state", omm_coord_state_name(status.state)),
                  OMM_LOG_INT("passed_ms", passed_ms));
    s->is_held = !timetable_is_due(&s->times);
    if (s->is_held) omm_coord_hold(&s->deadline_ms, s->coord, now_ms(s), true);
    return OMM_OK;
}

/* A timetable that cannot be written costs a restart its durations, and nothing else. */
static void look_at_times(service *s) {
    const omm_coord_status status = omm_coord_get_status(s->coord);
    const bool has_opened = s->has_opened;
    s->has_opened = false;
    if (has_opened) timetable_opened(&s->times);
    if (timetable_note(&s->times, status.round, status.state,
                       omm_coord_stage_ms(s->coord, now_ms(s))) != OMM_OK)
        omm_log_event(s->o->log, OMM_LOG_WARN, "timetable_failed",
                      OMM_LOG_STR("detail", omm_err_sentence()));
    const bool hold = status.state == OMM_COORD_JOINING && !timetable_is_due(&s->times);
    if (hold == s->is_held) return;
    s->is_held = hold;
    omm_coord_hold(&s->deadline_ms, s->coord, now_ms(s), hold);
    omm_log_event(s->o->log, OMM_LOG_INFO, hold ? "round_held" : "round_due",
                  OMM_LOG_INT("round", status.round));
}

/* Between two requests, when nobody else has the state machine. */
static void look_around(service *s) {
    ctl_poll(s->ctl, true, on_ctl, s);
    look_at_times(s);
    canary_work_turn(s->canaries, &s->deadline_ms, s->coord, now_ms(s));
    show(s, false);
}

/* No new round is opened, and the last one is over. */
static bool is_drained(const service *s) {
    omm_coord_status status = omm_coord_get_status(s->coord);
    return status.draining && status.state == OMM_COORD_JOINING;
}

/* Entries of the audit log that are in the bundle too, beside what was measured. */
static omm_err keep_entries(const service *s, const char *event, const char *name) {
    char path[OMM_PATH_MAX];
    omm_buf lines;
    OMM_TRY(omm_path_join(path, s->o->state_dir, "audit.jsonl"));
    omm_buf_init(&lines, SERVICE_ACTIONS_BYTES_MAX);
    omm_err err = omm_audit_log_copy(&lines, path, event);
    if (err == OMM_OK && lines.size > 0)
        err = omm_bundle_replace(s->bundle, name, omm_buf_view(&lines));
    omm_buf_fini(&lines);
    return err;
}

/* ---- the base model ---- */

/* A run does not fail because its model cannot be served, in several files, say: nodes may have it. */
static omm_err open_base(service *s, const omm_key *key) {
    const base_serve_options options = {.path = omm_run_model_path(s->o->run),
                                        .digest = omm_run_get_record(s->o->run)->base.digest,
                                        .transfers = s->o->base_transfers,
                                        .bytes_per_second = s->o->base_bytes_per_second,
                                        .mirrors = s->o->base_mirrors,
                                        .mirror_count = s->o->base_mirror_count,
                                        .key = key,
                                        .clock = s->o->clock};
    const omm_err err = base_serve_open(&s->base, &options);
    if (err != OMM_ERR_MISMATCH && err != OMM_ERR_TOO_BIG) return err;
    omm_log_event(s->o->log, OMM_LOG_WARN, "base_not_served",
                  OMM_LOG_STR("reason", omm_err_sentence()));
    return OMM_OK;
}

/* ---- the loop ---- */

static omm_err open_service(service *s) {
    omm_server_options server = omm_server_options_default();
    server.exchanges_max = HELD_MAX;
    server.untrusted_max = s->o->limits.strangers;
    server.untrusted_per_peer = s->o->limits.strangers_per_address;
    meter_limits limits = {s->o->limits.messages_per_minute, s->o->limits.bytes_per_minute};
    server.tls_certificate = s->o->tls_certificate;
    server.tls_key = s->o->tls_key;
    omm_coord_options options;
    omm_run_coord_options(&options, s->o->run);
    omm_run_enrolment(&s->enrolment, s->o->run, s->o->clock);
    s->enrolment.work_bits = s->o->work_bits;
    s->node_max = s->enrolment.node_max;
    options.enrolment = &s->enrolment;
    options.canaries = s->o->canaries;
    options.state_dir = s->o->state_dir;
    options.crash_at = s->o->crash_at;
    options.pool = s->o->pool;
    options.log = s->o->log;
    if (s->o->poll_ms) options.policy.poll_ms = s->o->poll_ms;
    OMM_TRY(omm_bundle_open(&s->bundle, s->o->bundle_dir, true));
    s->busy_ms = options.policy.poll_ms;
    if (s->busy_ms < SERVICE_BUSY_MS) s->busy_ms = SERVICE_BUSY_MS;
    options.bundle = s->bundle;
    OMM_TRY(open_watch(s));
    options.on_event = on_event;
    options.on_event_ud = s;
    if (s->o->over_select > 0) options.policy.over_select = s->o->over_select;
    OMM_TRY(omm_coord_open(&s->coord, &options));
    OMM_TRY(open_times(s));
    OMM_TRY(open_diary(s));
    OMM_TRY(wires_open(&s->wires, omm_run_get_record(s->o->run), s->node_max, s->o->state_dir));
    OMM_TRY(open_base(s, options.key));
    OMM_TRY(canary_work_open(&s->canaries, &(canary_work_options){.run = s->o->run,
                                                                  .canaries = s->o->canaries,
                                                                  .threads = s->o->canary_threads,
                                                                  .log = s->o->log}));
    OMM_TRY(meter_open(&s->meter, s->node_max, &limits));
    OMM_TRY(omm_server_open(&s->server, &server));
    OMM_TRY(omm_server_listen(s->server, s->o->url));
    OMM_TRY(write_port(s->o->port_file, omm_server_port(s->server)));
    show(s, true);
    OMM_TRY(ctl_open(&s->ctl, s->o->state_dir, s->o->clock));
    OMM_TRY(open_web(s));
    omm_log_event(s->o->log, OMM_LOG_INFO, "listening", OMM_LOG_STR("url", s->o->url),
                  OMM_LOG_INT("port", omm_server_port(s->server)));
    return OMM_OK;
}

static void close_service(service *s) {
    web_close(s->web); /* first: it reads what is below */
    ctl_close(s->ctl);
    if (s->server) omm_server_close(s->server);
    meter_close(s->meter);
    canary_work_close(s->canaries);
    omm_coord_close(s->coord);
    omm_bundle_close(s->bundle);
    base_serve_close(s->base);
    diary_close(s->diary);
    watch_close(s->watch);
    wires_close(s->wires);
    omm_buf_fini(&s->reply);
}

static void book_held(void *ud, const held_answer *answer) {
    wires_book(ud, answer->said_by, answer->exchange, answer->request_bytes, answer->reply_bytes);
}

/* Our own trouble costs the peer its answer, not us the run. */
static void note_trouble(service *s, const char *event) {
    watch_trouble(s->watch, omm_err_sentence());
    omm_log_event(s->o->log, OMM_LOG_ERROR, event, OMM_LOG_STR("detail", omm_err_detail()));
}

static void keep_reply(service *s, int32_t said_by, omm_exchange *exchange, size_t request_bytes) {
    if (held_take(&s->held, exchange, said_by, request_bytes, omm_buf_view(&s->reply)) == OMM_OK)
        return;
    /* It will ask again. */
    omm_log_event(s->o->log, OMM_LOG_DEBUG, "reply_lost",
                  OMM_LOG_STR("detail", omm_err_sentence()));
}

static omm_err make_wait(service *s, uint64_t ms) {
    omm_reply wait = {.kind = OMM_REPLY_WAIT, .retry_ms = ms};
    omm_buf_clear(&s->reply);
    return omm_reply_encode(&s->reply, &wait);
}

/* What is about the base model, in any state: it touches nothing of the rounds.  False: it is not. */
static bool answer_base(service *s, omm_exchange *exchange, omm_bytes request) {
    bool handled = false;
    const omm_err err =
        base_serve_answer(&handled, &s->reply, s->base, request, omm_exchange_peer(exchange));
    if (err != OMM_OK) {
        omm_log_event(s->o->log, OMM_LOG_ERROR, "base_failed",
                      OMM_LOG_STR("detail", omm_err_detail()));
        omm_exchange_drop(exchange);
        return true;
    }
    if (handled) keep_reply(s, OMM_COORD_NOBODY, exchange, request.size);
    return handled;
}

/* Over its allowance of this minute?  Then it is asked to come back when the next one begins. */
static omm_err check_allowance(bool *over, service *s, omm_exchange *exchange, omm_bytes request) {
    const char *address = omm_exchange_peer(exchange);
    int32_t owner = omm_exchange_owner(exchange);
    uint64_t wait_ms = meter_take(s->meter, owner, address, now_ms(s), request.size);
    *over = wait_ms > 0;
    if (!*over) return OMM_OK;
    char sentence[OMM_SENTENCE_BYTES_MAX];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    on_event(s, &(omm_coord_event){.kind = OMM_COORD_EVENT_REQUEST,
                                   .round = omm_coord_get_status(s->coord).round,
                                   .node = owner,
                                   .reason = OMM_ERR_REFUSED_BUDGET,
                                   .sentence = sentence,
                                   .peer = address});
    OMM_TRY(make_wait(s, wait_ms));
    keep_reply(s, owner, exchange, request.size);
    return OMM_OK;
}

/* Work out one answer; it leaves with the batch. */
static omm_err answer(service *s, omm_exchange *exchange, omm_bytes request) {
    bool over = false;
    if (answer_base(s, exchange, request)) return OMM_OK; /* it has limits of its own */
    OMM_TRY(check_allowance(&over, s, exchange, request));
    if (over) return OMM_OK;
    omm_err err = omm_coord_step(&s->reply, &s->deadline_ms, s->coord, now_ms(s), request,
                                 omm_exchange_peer(exchange));
    if (err != OMM_OK) {
        note_trouble(s, "request_failed");
        omm_exchange_drop(exchange);
        return OMM_OK;
    }
    int32_t node = omm_coord_last_node(s->coord);
    if (omm_coord_peer_is_fresh(s->coord)) omm_exchange_trust(exchange, node);
    meter_add(s->meter, s->reply.size);
    keep_reply(s, node, exchange, request.size);
    return OMM_OK;
}

/* The next request, or NULL when there is none within `ms`. */
static omm_err receive(omm_exchange **exchange, omm_bytes *request, service *s, uint64_t ms) {
    *exchange = NULL;
    omm_err err = omm_server_receive(exchange, request, s->server,
                                     ms < SERVICE_SLICE_MS ? ms : SERVICE_SLICE_MS);
    if (err == OMM_ERR_TIMEOUT) return OMM_OK;
    if (err != OMM_ERR_REFUSED_SIZE) return err;
    omm_exchange_drop(*exchange);
    *exchange = NULL;
    return OMM_OK;
}

/* Commit, then let the answers go; where it failed nothing was remembered, and all may ask again. */
static omm_err end_batch(service *s) {
    omm_err err = omm_coord_commit(&s->deadline_ms, s->coord, now_ms(s));
    if (err == OMM_OK) {
        watch_trouble(s->watch, NULL);
    } else {
        note_trouble(s, "commit_failed");
        if (err == OMM_ERR_STATE) return err;
        OMM_TRY(make_wait(s, s->busy_ms));
        held_replace(&s->held, omm_buf_view(&s->reply));
    }
    held_send(&s->held, book_held, s->wires);
    return OMM_OK;
}

/* All requests that are waiting, or come within `ms` when none is; *heard (may be NULL) says whether there
 * was one.  A batch ends early when the state machine has work. */
static omm_err answer_all(bool *heard, service *s, uint64_t ms) {
    omm_exchange *exchange = NULL;
    omm_bytes request;
    OMM_TRY(receive(&exchange, &request, s, ms));
    if (heard) *heard = exchange != NULL;
    if (!exchange) return OMM_OK;
    omm_err err = omm_coord_begin(s->coord);
    if (err != OMM_OK) {
        note_trouble(s, "request_failed");
        omm_exchange_drop(exchange);
        return err == OMM_ERR_STATE ? err : OMM_OK;
    }
    uint64_t begin_ms = now_ms(s);
    while (exchange) {
        err = answer(s, exchange, request);
        uint64_t now = now_ms(s);
        exchange = NULL;
        if (err == OMM_OK && held_has_room(&s->held) && now - begin_ms < SERVICE_BATCH_MS &&
            s->deadline_ms > now)
            err = receive(&exchange, &request, s, 0);
    }
    OMM_TRY(end_batch(s));
    return err;
}

/* While a tick runs: it owns the state machine, so nothing is read and nothing promised. */
static omm_err answer_busy(service *s, uint64_t ms) {
    omm_exchange *exchange = NULL;
    omm_bytes request;
    OMM_TRY(receive(&exchange, &request, s, ms));
    if (!exchange) return OMM_OK;
    const size_t request_bytes = request.size;
    if (!answer_base(s, exchange, request)) {
        OMM_TRY(make_wait(s, s->busy_ms));
        keep_reply(s, OMM_COORD_NOBODY, exchange, request_bytes);
    }
    held_send(&s->held, book_held, s->wires);
    return OMM_OK;
}

/* One tick of the state machine, beside the loop. */
typedef struct ticking {
    service *s;
    uint64_t now_ms;
    omm_err err;
    char detail[SERVICE_DETAIL_BYTES]; /* the error's words are of the thread that raised it */
    atomic_bool done;
} ticking;

static void *tick_main(void *ud) {
    ticking *t = ud;
    t->err = omm_coord_tick(&t->s->deadline_ms, t->s->coord, t->now_ms);
    if (t->err != OMM_OK) (void)snprintf(t->detail, sizeof t->detail, "%s", omm_err_sentence());
    atomic_store(&t->done, true);
    return NULL;
}

/* A full disk, say.  Nothing has changed: the same is due again. */
static omm_err wait_for_room(service *s, const char *detail) {
    watch_trouble(s->watch, detail);
    omm_log_event(s->o->log, OMM_LOG_ERROR, "round_stands_still", OMM_LOG_STR("detail", detail),
                  OMM_LOG_STR("then", "tried again; what was accepted is kept"));
    s->deadline_ms = now_ms(s) + SERVICE_TROUBLE_MS;
    return OMM_OK;
}

static omm_err tick(service *s, uint64_t now) {
    ticking t = {.s = s, .now_ms = now};
    pthread_t thread;
    atomic_init(&t.done, false);
    int why = pthread_create(&thread, NULL, tick_main, &t);
    if (why != 0) return omm_raise(OMM_ERR_IO, "no thread for a tick: %s", strerror(why));
    omm_err err = OMM_OK;
    while (!atomic_load(&t.done) && err == OMM_OK) {
        watch_beat(s->watch, true);
        ctl_poll(s->ctl, false, on_ctl, s);
        err = answer_busy(s, SERVICE_BUSY_SLICE_MS);
    }
    (void)pthread_join(thread, NULL);
    show(s, true);
    if (t.err == OMM_ERR_IO && omm_sync_check() == OMM_OK) return wait_for_room(s, t.detail);
    return t.err != OMM_OK ? omm_raise(t.err, "%s", t.detail) : err;
}

static omm_err run_rounds(service *s) {
    while (!omm_coord_is_done(s->coord) && !is_stopped(s) && !is_drained(s)) {
        uint64_t now = now_ms(s);
        if (s->deadline_ms <= now) {
            OMM_TRY(tick(s, now));
            OMM_TRY(wires_keep(s->wires));
        }
        now = now_ms(s);
        OMM_TRY(answer_all(NULL, s, s->deadline_ms <= now ? 0 : s->deadline_ms - now));
        look_around(s);
    }
    return OMM_OK;
}

static omm_err tell_nodes(service *s) {
    uint64_t begin_ms = now_ms(s);
    while (!omm_coord_all_told(s->coord) && now_ms(s) - begin_ms < s->o->linger_ms &&
           !is_stopped(s)) {
        OMM_TRY(answer_all(NULL, s, SERVICE_SLICE_MS));
        look_around(s);
    }
    /* Who repeated a request while we were slow is answered too: its first one it has given up. */
    bool heard = omm_coord_all_told(s->coord);
    while (heard && now_ms(s) - begin_ms < s->o->linger_ms && !is_stopped(s))
        OMM_TRY(answer_all(&heard, s, SERVICE_DRAIN_MS));
    return OMM_OK;
}

static omm_err seal(omm_coord_service_result *result, service *s) {
    omm_bundle_seal_options options = {.key = s->o->bundle_key,
                                       .commit = s->o->commit,
                                       .build = s->o->build,
                                       .machine = s->o->machine,
                                       .wall_ms = s->o->clock.wall_ms(s->o->clock.ud)};
    OMM_TRY(wires_write(s->wires, s->bundle, s->o->commit));
    OMM_TRY(keep_entries(s, "ctl", "measured/operator.jsonl"));
    OMM_TRY(keep_entries(s, "canary", "measured/canaries.jsonl"));
    OMM_TRY(omm_bundle_seal(&result->run_digest, &result->judgement, s->bundle, &options));
    result->is_sealed = true;
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &result->run_digest);
    omm_log_event(s->o->log, OMM_LOG_INFO, "bundle_sealed", OMM_LOG_STR("dir", s->o->bundle_dir),
                  OMM_LOG_STR("run_digest", hex));
    return OMM_OK;
}

static omm_err serve(omm_coord_service_result *result, service *s) {
    OMM_TRY(open_service(s));
    OMM_TRY(run_rounds(s));
    OMM_TRY(omm_sync_check());
    if (!omm_coord_is_done(s->coord)) return OMM_OK;
    OMM_TRY(tell_nodes(s));
    OMM_TRY(omm_sync_check());
    return is_stopped(s) && !omm_coord_all_told(s->coord) ? OMM_OK : seal(result, s);
}

/* The last entry of the audit log.  An error that came before it is the one that is reported. */
static omm_err say_why(service *s, omm_err err, bool is_sealed) {
    char why[SERVICE_DETAIL_BYTES] = "stopped";
    if (is_drained(s)) (void)snprintf(why, sizeof why, "drained");
    if (is_sealed) (void)snprintf(why, sizeof why, "sealed");
    if (err != OMM_OK) (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    omm_err put = diary_stop(s->diary, why);
    return err == OMM_OK ? put : omm_raise(err, "%s", why);
}

omm_err omm_coord_serve(omm_coord_service_result *result,
                        const omm_coord_service_options *options) {
    *result = (omm_coord_service_result){0};
    service s = {.o = options};
    omm_buf_init(&s.reply, OMM_MESSAGE_BYTES_MAX);
    omm_err err = serve(result, &s);
    if (s.diary) err = say_why(&s, err, result->is_sealed);
    close_service(&s);
    if (err != OMM_OK) omm_coord_service_result_fini(result);
    return err;
}

void omm_coord_service_result_fini(omm_coord_service_result *result) {
    if (result->is_sealed) omm_judgement_fini(&result->judgement);
    result->is_sealed = false;
}
