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
#include "parts.h"

#include "omm/file.h"
#include "omm/messages.h"
#include "omm/sync.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE_SLICE_MS 200u     /* how soon a stop is noticed */
#define SERVICE_BUSY_SLICE_MS 10u /* how soon the end of a tick is */
#define SERVICE_ACTIONS_BYTES_MAX ((size_t)32 << 20)
#define SERVICE_BATCH_MS 20u       /* no request waits longer for others to be taken */
#define SERVICE_DRAIN_MS 100u      /* no node for so long: no repeated request is under way */
#define SERVICE_DRAIN_MS_MAX 5000u /* one always asks, or somebody plays its poll again */

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

static void book_held(void *ud, const held_answer *answer) {
    wires_book(ud, answer->said_by, answer->exchange,
               &(wires_passed){.request_bytes = answer->request_bytes,
                               .reply_bytes = answer->reply_bytes,
                               .payload = answer->payload});
}

/* Our own trouble costs the peer its answer, not us the run. */
static void note_trouble(service *s, const char *event) {
    watch_trouble(s->watch, omm_err_sentence());
    omm_log_event(s->o->log, OMM_LOG_ERROR, event, OMM_LOG_STR("detail", omm_err_sentence()));
}

/* False: it did not work, and is said. */
static bool keep_reply(service *s, int32_t said_by, omm_exchange *exchange, size_t request_bytes) {
    if (said_by >= 0) s->node_asked = true;
    if (held_take(&s->held, exchange, said_by, request_bytes, omm_buf_view(&s->reply)) == OMM_OK)
        return true;
    /* It will ask again. */
    omm_log_event(s->o->log, OMM_LOG_DEBUG, "reply_lost",
                  OMM_LOG_STR("detail", omm_err_sentence()));
    return false;
}

static omm_err make_wait(service *s, uint64_t ms) {
    omm_reply wait = {.kind = OMM_REPLY_WAIT, .retry_ms = ms};
    omm_buf_clear(&s->reply);
    return omm_reply_encode(&s->reply, &wait);
}

/* 0: it may be answered, and is counted; else it may in so many milliseconds. */
static uint64_t take_allowance(service *s, omm_exchange *exchange, omm_bytes request) {
    return meter_take(s->meter, omm_exchange_owner(exchange), omm_exchange_network(exchange),
                      service_now_ms(s), request.size);
}

/* What omm_err_sentence() says of an allowance, for the log and the counts.  Not while a tick owns the state machine. */
static void note_over(service *s, omm_exchange *exchange) {
    char sentence[OMM_SENTENCE_BYTES_MAX];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    service_on_event(s, &(omm_coord_event){.kind = OMM_COORD_EVENT_REQUEST,
                                           .round = omm_coord_get_status(s->coord).round,
                                           .node = omm_exchange_owner(exchange),
                                           .reason = OMM_ERR_REFUSED_BUDGET,
                                           .sentence = sentence,
                                           .peer = omm_exchange_peer(exchange)});
}

/* Over its allowance of this minute?  Then it is asked to come back when the next one begins. */
static omm_err check_allowance(bool *over, service *s, omm_exchange *exchange, omm_bytes request,
                               bool is_busy) {
    const uint64_t wait_ms = take_allowance(s, exchange, request);
    *over = wait_ms > 0;
    if (!*over) return OMM_OK;
    if (!is_busy) note_over(s, exchange);
    OMM_TRY(make_wait(s, wait_ms));
    keep_reply(s, omm_exchange_owner(exchange), exchange, request.size);
    return OMM_OK;
}

/* The manifest is in s->reply, or a word to wait for it. */
static omm_err answer_manifest(service *s, omm_exchange *exchange, omm_bytes request,
                               bool is_busy) {
    bool over = false;
    OMM_TRY(check_allowance(&over, s, exchange, request, is_busy));
    if (over) return OMM_OK;
    meter_add(s->meter, s->reply.size);
    keep_reply(s, WIRES_BASE, exchange, request.size);
    return OMM_OK;
}

/* What is about the base model, in any state: it touches nothing of the rounds.  *handled: it was. */
static omm_err answer_base(bool *handled, service *s, omm_exchange *exchange, omm_bytes request,
                           bool is_busy) {
    base_serve_asked asked = BASE_SERVE_NOTHING;
    const uint64_t sent = base_serve_counts(s->base).chunks;
    const omm_err err =
        base_serve_answer(&asked, &s->reply, s->base, request, omm_exchange_network(exchange));
    *handled = err != OMM_OK || asked != BASE_SERVE_NOTHING;
    if (err != OMM_OK) {
        omm_log_event(s->o->log, OMM_LOG_ERROR, "base_failed",
                      OMM_LOG_STR("detail", omm_err_sentence()));
        omm_exchange_drop(exchange);
        return OMM_OK;
    }
    if (base_serve_counts(s->base).chunks > sent) omm_exchange_stay(exchange);
    if (asked == BASE_SERVE_MANIFEST) return answer_manifest(s, exchange, request, is_busy);
    if (asked == BASE_SERVE_CHUNK) keep_reply(s, WIRES_BASE, exchange, request.size);
    return OMM_OK;
}

/* Whoever gets no answer waits for a minute; where a disk has no room that is a minute that its round lacks. */
static void put_off(service *s, omm_exchange *exchange, size_t request_bytes) {
    note_trouble(s, "request_failed");
    if (make_wait(s, SERVICE_TROUBLE_MS) == OMM_OK)
        keep_reply(s, OMM_COORD_NOBODY, exchange, request_bytes);
    else
        omm_exchange_drop(exchange);
}

/* Work out one answer; it leaves with the batch. */
static omm_err answer(service *s, omm_exchange *exchange, omm_bytes request) {
    bool handled = false, over = false;
    OMM_TRY(answer_base(&handled, s, exchange, request, false));
    if (handled) return OMM_OK;
    OMM_TRY(check_allowance(&over, s, exchange, request, false));
    if (over) return OMM_OK;
    omm_err err = omm_coord_step(&s->reply, &s->deadline_ms, s->coord, service_now_ms(s), request,
                                 omm_exchange_peer(exchange));
    if (err != OMM_OK) {
        put_off(s, exchange, request.size);
        return OMM_OK;
    }
    int32_t node = omm_coord_last_node(s->coord);
    if (omm_coord_peer_stays(s->coord)) omm_exchange_stay(exchange);
    if (omm_coord_peer_is_fresh(s->coord)) omm_exchange_trust(exchange, node);
    meter_add(s->meter, s->reply.size);
    wires_round(s->wires, omm_coord_get_status(s->coord).round);
    if (keep_reply(s, node, exchange, request.size))
        held_payload(&s->held, omm_coord_last_payload(s->coord));
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
    omm_err err = omm_coord_commit(&s->deadline_ms, s->coord, service_now_ms(s));
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

/* All requests that are waiting, or come within `ms` when none is.  A batch ends early when the state
 * machine has work. */
static omm_err answer_all(service *s, uint64_t ms) {
    omm_exchange *exchange = NULL;
    omm_bytes request;
    OMM_TRY(receive(&exchange, &request, s, ms));
    if (!exchange) return OMM_OK;
    omm_err err = omm_coord_begin(s->coord);
    if (err != OMM_OK) {
        note_trouble(s, "request_failed");
        omm_exchange_drop(exchange);
        return err == OMM_ERR_STATE ? err : OMM_OK;
    }
    uint64_t begin_ms = service_now_ms(s);
    while (exchange) {
        err = answer(s, exchange, request);
        uint64_t now = service_now_ms(s);
        exchange = NULL;
        if (err == OMM_OK && held_has_room(&s->held) && now - begin_ms < SERVICE_BATCH_MS &&
            s->deadline_ms > now)
            err = receive(&exchange, &request, s, 0);
    }
    OMM_TRY(end_batch(s));
    return err;
}

/* Over its allowance it is not worth the look at its signature. */
static void pass_over(service *s, omm_exchange *exchange, omm_bytes request) {
    if (take_allowance(s, exchange, request) == 0) omm_coord_pass_over(s->coord, request);
}

/* While a tick runs: it owns the state machine, so nothing is promised, and nothing kept but that a poll was there. */
static omm_err answer_busy(service *s, uint64_t ms) {
    omm_exchange *exchange = NULL;
    omm_bytes request;
    OMM_TRY(receive(&exchange, &request, s, ms));
    if (!exchange) return OMM_OK;
    bool handled = false;
    const size_t request_bytes = request.size;
    OMM_TRY(answer_base(&handled, s, exchange, request, true));
    if (!handled) {
        pass_over(s, exchange, request);
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
static void stand_still(service *s, const char *event, const char *detail) {
    watch_round_trouble(s->watch, detail);
    omm_log_event(s->o->log, OMM_LOG_ERROR, event, OMM_LOG_STR("detail", detail),
                  OMM_LOG_STR("then", "tried again; what was accepted is kept"));
    s->again_ms = service_now_ms(s) + SERVICE_TROUBLE_MS;
}

/* A file that is not there, or not as it was, may be put back: who stands still says so to whoever asks, who ends
 * is started again and again. */
static bool can_be_mended(omm_err err) {
    const bool is_of_files = err == OMM_ERR_IO || err == OMM_ERR_NOT_FOUND || err == OMM_ERR_SIZE ||
                             err == OMM_ERR_DIGEST || err == OMM_ERR_MISMATCH;
    return is_of_files && omm_sync_check() == OMM_OK;
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
        service_listen(s, false);
        err = answer_busy(s, SERVICE_BUSY_SLICE_MS);
    }
    (void)pthread_join(thread, NULL);
    service_show(s, true);
    if (t.err == OMM_OK) watch_round_trouble(s->watch, NULL);
    if (t.err == OMM_OK) return err;
    if (!can_be_mended(t.err)) return omm_raise(t.err, "%s", t.detail);
    stand_still(s, "round_stands_still", t.detail);
    return OMM_OK;
}

/* Counts that cannot be kept are lost with a kill, until the next stage writes all of them again: no reason to
 * end a run. */
static void keep_wires(service *s) {
    const bool failed = wires_keep(s->wires) != OMM_OK;
    if (failed && !s->wires_failed)
        omm_log_event(s->o->log, OMM_LOG_WARN, "wire_not_kept",
                      OMM_LOG_STR("detail", omm_err_sentence()));
    s->wires_failed = failed;
}

static omm_err run_rounds(service *s) {
    while (!omm_coord_is_done(s->coord) && !service_is_stopped(s) && !is_drained(s)) {
        uint64_t now = service_now_ms(s);
        const bool is_due = s->deadline_ms <= now && s->again_ms <= now;
        if (is_due)
            service_look_at_ground(s, true); /* a folder that was moved away is not made again */
        if (is_due && !s->has_lost_ground) {
            OMM_TRY(tick(s, now));
            keep_wires(s);
        }
        now = service_now_ms(s);
        const uint64_t due_ms = s->deadline_ms > s->again_ms ? s->deadline_ms : s->again_ms;
        OMM_TRY(answer_all(s, s->has_lost_ground ? SERVICE_SLICE_MS
                              : due_ms <= now    ? 0
                                                 : due_ms - now));
        service_look_around(s);
    }
    return OMM_OK;
}

/* Who has heard of the end; one that cannot be kept costs the next start its linger_ms, and nothing else. */
static void keep_told(service *s) {
    const bool failed = omm_coord_keep_told(s->coord) != OMM_OK;
    if (failed && !s->told_failed)
        omm_log_event(s->o->log, OMM_LOG_WARN, "told_not_kept",
                      OMM_LOG_STR("detail", omm_err_sentence()));
    s->told_failed = failed;
}

/* A node that repeated a request while we were slow is answered too: its first one it has given up.  Strangers, who may
 * ask for ever, are no reason to stay. */
static omm_err drain(service *s, uint64_t end_ms) {
    uint64_t now = service_now_ms(s), heard_ms = now;
    if (end_ms > now + SERVICE_DRAIN_MS_MAX) end_ms = now + SERVICE_DRAIN_MS_MAX;
    while (now < end_ms && now - heard_ms < SERVICE_DRAIN_MS && !service_is_stopped(s)) {
        s->node_asked = false;
        OMM_TRY(answer_all(s, SERVICE_DRAIN_MS));
        now = service_now_ms(s);
        if (s->node_asked) heard_ms = now;
    }
    return OMM_OK;
}

static omm_err tell_nodes(service *s) {
    uint64_t begin_ms = service_now_ms(s);
    while (!omm_coord_all_told(s->coord) && service_now_ms(s) - begin_ms < s->o->linger_ms &&
           !service_is_stopped(s)) {
        OMM_TRY(answer_all(s, SERVICE_SLICE_MS));
        keep_told(s);
        service_look_around(s);
    }
    return omm_coord_all_told(s->coord) ? drain(s, begin_ms + s->o->linger_ms) : OMM_OK;
}

static omm_err seal(omm_coord_service_result *result, service *s) {
    omm_bundle_seal_options options = {.key = s->o->bundle_key,
                                       .commit = s->o->commit,
                                       .build = s->o->build,
                                       .machine = s->o->machine,
                                       .wall_ms = s->o->clock.wall_ms(s->o->clock.ud),
                                       .state_dir = s->o->state_dir,
                                       .crash_at = s->o->crash_at};
    OMM_TRY(footing_check(&s->footing)); /* a folder that was moved away is not made again */
    OMM_TRY(omm_bundle_unseal(s->bundle));
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

/* Whoever asks meanwhile is answered, and the operator is told why. */
static omm_err wait_to_seal(service *s) {
    while (service_now_ms(s) < s->again_ms && !service_is_stopped(s)) {
        OMM_TRY(answer_all(s, SERVICE_SLICE_MS));
        service_look_around(s);
    }
    return omm_sync_check();
}

/* Until it is sealed, or the service is stopped: the next start seals it then. */
static omm_err seal_in_the_end(omm_coord_service_result *result, service *s) {
    for (;;) {
        const omm_err err = seal(result, s);
        if (!can_be_mended(err)) return err;
        stand_still(s, "sealing_stands_still", omm_err_sentence());
        OMM_TRY(wait_to_seal(s));
        if (service_is_stopped(s)) return OMM_OK;
    }
}

static omm_err serve(omm_coord_service_result *result, service *s) {
    OMM_TRY(service_open(s));
    OMM_TRY(run_rounds(s));
    OMM_TRY(omm_sync_check());
    if (!omm_coord_is_done(s->coord)) return OMM_OK;
    OMM_TRY(tell_nodes(s));
    OMM_TRY(omm_sync_check());
    if (service_is_stopped(s) && !omm_coord_all_told(s->coord)) return OMM_OK;
    return seal_in_the_end(result, s);
}

/* Numbers that cannot be kept cost each node a refusal, and nothing else. */
static void keep_counters(service *s) {
    if (omm_coord_keep_counters(s->coord) != OMM_OK)
        omm_log_event(s->o->log, OMM_LOG_WARN, "counters_not_kept",
                      OMM_LOG_STR("detail", omm_err_sentence()));
}

/* The last entry of the audit log.  An error that came before it is the one that is reported; one of the entry costs no run that is
 * sealed its verdict. */
static omm_err say_why(service *s, omm_err err, bool is_sealed) {
    char why[SERVICE_DETAIL_BYTES] = "stopped";
    if (is_drained(s)) (void)snprintf(why, sizeof why, "drained");
    if (is_sealed) (void)snprintf(why, sizeof why, "sealed");
    if (err != OMM_OK) (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    omm_err put = diary_stop(s->diary, why);
    if (err != OMM_OK) return omm_raise(err, "%s", why);
    if (put == OMM_OK || !is_sealed || omm_sync_check() != OMM_OK) return put;
    omm_log_event(s->o->log, OMM_LOG_WARN, "stop_not_kept",
                  OMM_LOG_STR("detail", omm_err_sentence()));
    return OMM_OK;
}

omm_err omm_coord_serve(omm_coord_service_result *result,
                        const omm_coord_service_options *options) {
    *result = (omm_coord_service_result){0};
    service s = {.o = options};
    omm_buf_init(&s.reply, OMM_MESSAGE_BYTES_MAX);
    omm_err err = serve(result, &s);
    if (err == OMM_OK) keep_counters(&s);
    if (s.diary) err = say_why(&s, err, result->is_sealed);
    service_close(&s);
    if (err != OMM_OK) omm_coord_service_result_fini(result);
    return err;
}

void omm_coord_service_result_fini(omm_coord_service_result *result) {
    if (result->is_sealed) omm_judgement_fini(&result->judgement);
    result->is_sealed = false;
}
