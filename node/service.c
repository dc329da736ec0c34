/* service.c - the loop around the node's state machine. */
#include "omm/node_service.h"

#include "board.h"
#include "patience.h"

#include "omm/compute.h"
#include "omm/sync.h"
#include "omm/topology.h"
#include "omm/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SERVICE_WATCH_MS 50u     /* the same while it trains */
#define SERVICE_TROUBLE_MS 1000u /* between attempts when our own disk or memory fails, at first */
#define SERVICE_TROUBLE_MOST_MS 30000u /* and when it goes on failing */
#define SERVICE_IDLE_MS 30000u         /* without training, then model and data are let go */
#define SERVICE_LATE_MS 1000u /* a wait that ends so much too late: the process had no processor */

typedef struct service {
    const omm_node_service_options *o;
    omm_node_options node_options; /* of o, with the pace */
    omm_node *node;
    omm_client *client;
    board board;
    patience patience; /* of the loop, or of the watcher while it lives, as is ran_ms */
    uint64_t ran_ms;   /* up to then this process is known to have run */
    omm_pace pace;
    atomic_bool is_paused, let_go; /* from the watcher to the training */
    uint64_t worked_ms;
    char trouble[BOARD_DETAIL_SIZE]; /* what keeps it from its next step; "": nothing */
    bool has_failed;                 /* the last request */
    uint64_t asked_ms;               /* since when there is no answer */
    uint32_t jitter;                 /* a walk of its own for each process */
} service;

static uint64_t now_ms(const service *s) {
    return patience_now_ms(&s->patience);
}

static void sleep_ms(const service *s, uint64_t ms) {
    s->o->clock.sleep_ms(s->o->clock.ud, ms);
}

static bool is_stopped(const service *s) {
    return patience_is_stopped(&s->patience);
}

/* The scratch space first: the training gives back to the system what the heap has then. */
static void rest(const service *s) {
    if (s->o->compute) omm_compute_rest(s->o->compute);
    omm_training_rest(s->o->node.training);
}

/* It runs now, and meant to wait for `wanted_ms` since it was last known to: what passed beyond that is time in which this
 * process did not run, so that nothing that was missed in it is anybody else's fault.  Every wait ends with this, so that
 * no moment lies between two of them. */
static uint64_t stood_still_ms(service *s, uint64_t wanted_ms) {
    const uint64_t now = now_ms(s), took_ms = now - s->ran_ms;
    s->ran_ms = now;
    if (took_ms < wanted_ms + SERVICE_LATE_MS) return 0;
    const uint64_t lost_ms = took_ms - wanted_ms;
    s->asked_ms += lost_ms;
    if (lost_ms >= PATIENCE_SILENT_MS)
        omm_log_event(
            s->o->node.log, OMM_LOG_WARN, "stood_still", OMM_LOG_STR("node", s->o->node.name),
            OMM_LOG_INT("seconds", lost_ms / 1000),
            OMM_LOG_STR("detail",
                        "this process did not go on: it was stopped, other programs took all "
                        "processor time, or its disk did not answer"));
    return lost_ms;
}

/* Up to when it is known to have run: a stand-still that has begun since is not known yet. */
static uint64_t silent_ms(const service *s) {
    return s->ran_ms - s->asked_ms;
}

/* It is not the time to work, or the machine has no room for a guest. */
static void show_paused(service *s) {
    const omm_node_status status = omm_node_get_status(s->node);
    char detail[BOARD_DETAIL_SIZE];
    (void)snprintf(detail, sizeof detail, "%s%s%s", s->patience.guest.view.text,
                   status.refused[0] ? "; the coordinator refuses it: " : "", status.refused);
    board_show(&s->board, "paused", detail, s->node, s->client, true);
}

/* What it does, by the node's phase, when nothing holds it back. */
static void show(service *s) {
    static const struct {
        const char *phase, *state;
    } states[] = {{"polling", "waiting"},    {"fetching", "fetching"}, {"training", "training"},
                  {"submitting", "sending"}, {"uploading", "sending"}, {"done", "done"},
                  {"enrolling", "waiting"},  {"proving", "proving"},   {"telling", "waiting"},
                  {"showing", "stopped"}};
    if (s->trouble[0]) { /* also while it waits to try again */
        board_show(&s->board, "trouble", s->trouble, s->node, s->client, false);
        return;
    }
    if (patience_would_pause(&s->patience)) { /* also while it has nothing to do */
        show_paused(s);
        return;
    }
    const omm_node_status status = omm_node_get_status(s->node);
    const char *state = status.phase;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(status.phase, states[i].phase) == 0) state = states[i].state;
    char detail[BOARD_DETAIL_SIZE] = "";
    if (status.is_over && strcmp(state, "waiting") == 0)
        (void)snprintf(detail, sizeof detail, "its run is over; it asks for a next one");
    if (status.left[0] && !status.refused[0] && strcmp(state, "waiting") == 0)
        (void)snprintf(detail, sizeof detail, "it left the last round: %s", status.left);
    if (status.refused[0])
        (void)snprintf(detail, sizeof detail, "the coordinator refuses it: %s%s%s", status.refused,
                       status.advice[0] ? "; " : "", status.advice);
    if (s->has_failed && silent_ms(s) >= PATIENCE_SILENT_MS)
        patience_silence(detail, silent_ms(s), s->client);
    board_show(&s->board, state, detail, s->node, s->client, true);
}

static void sleep_until(service *s, uint64_t until_ms) {
    for (uint64_t now = now_ms(s); now < until_ms && !is_stopped(s); now = now_ms(s)) {
        if (now - s->worked_ms >= SERVICE_IDLE_MS) rest(s);
        const uint64_t left_ms = until_ms - now;
        const uint64_t slice_ms = left_ms < PATIENCE_SLICE_MS ? left_ms : PATIENCE_SLICE_MS;
        sleep_ms(s, slice_ms);
        (void)stood_still_ms(s, slice_ms);
        show(s); /* written once a second: who reads it sees that it lives */
    }
}

/* ---- a guest ---- */

/* While it must pause, nothing is sent or trained, and nothing large is held. */
static void wait_for_leave(service *s) {
    const uint64_t begin_ms = now_ms(s);
    while (!is_stopped(s) && patience_must_pause(&s->patience)) {
        if (now_ms(s) - begin_ms >= s->o->pause_hold_ms) rest(s);
        show_paused(s);
        const uint64_t before_ms = s->ran_ms;
        sleep_ms(s, PATIENCE_SLICE_MS);
        const uint64_t lost_ms = stood_still_ms(s, PATIENCE_SLICE_MS);
        s->asked_ms += s->ran_ms - before_ms - lost_ms; /* nobody was asked: it is no silence */
    }
}

/* On the training's thread, before every micro-batch: rest as long as pause and budget ask for. */
static void keep_pace(void *ud) {
    service *s = ud;
    while (!is_stopped(s) && !atomic_load(&s->let_go)) {
        const uint64_t owed_ns = omm_pace_owed_ns(&s->pace, omm_measure_ns(), omm_process_cpu_ns());
        const uint64_t owed_ms = (owed_ns + 999999u) / 1000000u;
        if (owed_ms == 0 && !atomic_load(&s->is_paused)) return;
        sleep_ms(s, owed_ms > 0 && owed_ms < SERVICE_WATCH_MS ? owed_ms : SERVICE_WATCH_MS);
    }
}

/* ---- work ---- */

static void tell_silence(service *s) {
    patience_tell_silence(&s->patience, silent_ms(s), &s->board, "waiting", s->node, s->client);
}

static void tell_answer(service *s) {
    if (s->patience.told_after_ms > PATIENCE_SILENT_MS)
        omm_log_event(s->o->node.log, OMM_LOG_INFO, "answered",
                      OMM_LOG_STR("node", s->o->node.name),
                      OMM_LOG_INT("seconds", silent_ms(s) / 1000));
}

/* Send, and wait for the answer.  Whatever goes wrong on the way is SEND_FAILED: the node sends
 * the same request again, later. */
static omm_node_event exchange(service *s, omm_bytes request) {
    omm_node_event event = {.kind = OMM_NODE_SEND_FAILED};
    (void)stood_still_ms(s, 0);
    if (!s->has_failed) {
        s->asked_ms = s->ran_ms;
        patience_renew(&s->patience);
    }
    uint64_t sent_ms = s->ran_ms;
    tell_silence(s);
    if (omm_client_send(s->client, request) != OMM_OK) return event;
    while (!is_stopped(s) && s->ran_ms - sent_ms < s->o->answer_ms) {
        omm_err err = omm_client_receive(&event.reply, s->client, PATIENCE_SLICE_MS);
        sent_ms += stood_still_ms(s, PATIENCE_SLICE_MS);
        if (err == OMM_ERR_TIMEOUT) tell_silence(s);
        if (err == OMM_ERR_TIMEOUT) continue;
        if (err == OMM_OK) event.kind = OMM_NODE_REPLY;
        if (err == OMM_OK) tell_answer(s);
        return event;
    }
    omm_client_renew(s->client);
    return event;
}

/* Passes stops and pauses on to the training while it blocks the loop. */
typedef struct watcher {
    service *s;
    atomic_bool done;
} watcher;

static void *watch(void *ud) {
    watcher *w = ud;
    service *s = w->s;
    uint64_t free_ms = now_ms(s); /* when there was no reason to pause */
    while (!atomic_load(&w->done)) {
        const bool is_paused = patience_must_pause(&s->patience);
        if (!is_paused) free_ms = now_ms(s);
        atomic_store(&s->is_paused, is_paused);
        board_show(&s->board, is_paused ? "paused" : "training",
                   is_paused ? s->patience.guest.view.text : "", s->node, s->client, false);
        if (is_paused && now_ms(s) - free_ms >= s->o->pause_hold_ms) atomic_store(&s->let_go, true);
        if (is_stopped(s) || atomic_load(&s->let_go)) omm_node_cancel(s->node);
        sleep_ms(s, SERVICE_WATCH_MS);
        (void)stood_still_ms(s, SERVICE_WATCH_MS);
    }
    return NULL;
}

static omm_err begin_watch(pthread_t *thread, watcher *w) {
    if (pthread_create(thread, NULL, watch, w) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no thread that would pause or stop it");
}

static omm_err work_now(const service *s) {
    const bool trains = strcmp(omm_node_get_status(s->node).phase, "training") == 0;
    if (s->o->trains) atomic_store(s->o->trains, trains);
    const omm_err err = omm_node_work(s->node, s->o->compute);
    if (s->o->trains) atomic_store(s->o->trains, false);
    return err;
}

/* Unwatched it would go on when its owner needs the machine: then rather not at all, now. */
static omm_node_event work(service *s) {
    watcher w = {.s = s};
    atomic_init(&w.done, false);
    atomic_store(&s->is_paused, false);
    atomic_store(&s->let_go, false);
    pthread_t thread;
    omm_node_event event = {.kind = OMM_NODE_WORK_DONE};
    const bool must_watch = s->o->stop || s->o->guest;
    if (must_watch) event.work = begin_watch(&thread, &w);
    const bool is_watched = must_watch && event.work == OMM_OK;
    if (event.work == OMM_OK) event.work = work_now(s);
    atomic_store(&w.done, true);
    if (is_watched) (void)pthread_join(thread, NULL);
    s->worked_ms = now_ms(s);
    if (!is_watched) s->ran_ms = s->worked_ms;
    if (atomic_load(&s->let_go)) rest(s);
    if (event.work != OMM_OK && event.work != OMM_ERR_CANCELLED)
        omm_log_event(s->o->node.log, OMM_LOG_ERROR, "training_failed",
                      OMM_LOG_STR("node", s->o->node.name),
                      OMM_LOG_STR("detail", omm_err_sentence()));
    return event;
}

/* After a coordinator's restart its nodes shall not come back all at once: a wait after a failure is
 * longer by up to a half of itself. */
static uint64_t jittered_ms(service *s, uint64_t until_ms) {
    const uint64_t now = now_ms(s);
    if (!s->has_failed || until_ms <= now) return until_ms;
    s->jitter = s->jitter * 1664525u + 1013904223u;
    return until_ms + ((until_ms - now) * (s->jitter >> 16) >> 17);
}

static omm_node_event perform(service *s, const omm_node_action *action) {
    if (action->kind == OMM_NODE_SEND || action->kind == OMM_NODE_WORK) wait_for_leave(s);
    if (is_stopped(s)) return (omm_node_event){.kind = OMM_NODE_TICK};
    switch (action->kind) {
    case OMM_NODE_SEND: return exchange(s, action->request);
    case OMM_NODE_WORK: return work(s);
    case OMM_NODE_WAIT: sleep_until(s, jittered_ms(s, action->until_ms)); break;
    case OMM_NODE_DONE:
    case OMM_NODE_SHOW: break;
    }
    return (omm_node_event){.kind = OMM_NODE_TICK};
}

/* The submission that would be sent now, into two files. */
static omm_err write_submission(const service *s) {
    omm_bytes parts[2];
    char path[OMM_PATH_MAX];
    static const char *const names[] = {OMM_NODE_DRY_ENVELOPE, OMM_NODE_DRY_PAYLOAD};
    omm_node_get_submission(&parts[0], &parts[1], s->node);
    OMM_TRY(omm_dir_make_private(s->o->dry_dir));
    for (int i = 0; i < 2; i++) {
        OMM_TRY(omm_path_join(path, s->o->dry_dir, names[i]));
        OMM_TRY(omm_file_write(path, parts[i], 0600));
    }
    return OMM_OK;
}

static omm_err run(omm_node_service_result *result, service *s) {
    board_show(&s->board, "starting", "", NULL, NULL, false);
    rest(s); /* it may wait for long before the first round */
    OMM_TRY(omm_node_open(&s->node, &s->node_options));
    OMM_TRY(omm_client_open(&s->client, s->o->url,
                            &(omm_client_options){.message_bytes_max = OMM_MESSAGE_BYTES_MAX,
                                                  .reconnect_min_ms = 100,
                                                  .reconnect_max_ms = 5000,
                                                  .attempt_ms = 20000,
                                                  .tls_certificate = s->o->tls_certificate}));
    omm_node_event event = {.kind = OMM_NODE_TICK};
    uint64_t trouble_ms = SERVICE_TROUBLE_MS;
    s->ran_ms = now_ms(s);
    while (!is_stopped(s)) {
        omm_node_action action;
        omm_err err = omm_node_step(&action, s->node, now_ms(s), &event);
        OMM_TRY(omm_sync_check());
        if (err != OMM_OK) { /* a full disk, say: the event is kept and tried again */
            omm_log_event(s->o->node.log, OMM_LOG_ERROR, "node_trouble",
                          OMM_LOG_STR("detail", omm_err_sentence()));
            (void)snprintf(s->trouble, sizeof s->trouble, "%s", omm_err_sentence());
            show(s);
            sleep_until(s, now_ms(s) + trouble_ms);
            trouble_ms =
                trouble_ms < SERVICE_TROUBLE_MOST_MS / 2 ? 2 * trouble_ms : SERVICE_TROUBLE_MOST_MS;
            continue;
        }
        trouble_ms = SERVICE_TROUBLE_MS;
        s->trouble[0] = '\0';
        if (action.kind == OMM_NODE_DONE) {
            result->is_done = true;
            break;
        }
        if (action.kind == OMM_NODE_SHOW) {
            result->is_dry = true;
            OMM_TRY(write_submission(s));
            break;
        }
        show(s);
        event = perform(s, &action);
        if (action.kind == OMM_NODE_SEND) s->has_failed = event.kind == OMM_NODE_SEND_FAILED;
    }
    board_show(&s->board, result->is_done ? "done" : "stopped", "", s->node, s->client, true);
    result->status = omm_node_get_status(s->node);
    if (result->is_done && omm_node_ended(s->node) != OMM_OK)
        omm_log_event(s->o->node.log, OMM_LOG_WARN, "end_not_kept",
                      OMM_LOG_STR("detail", omm_err_sentence()),
                      OMM_LOG_STR("then", "the next start ends at once, too"));
    return OMM_OK;
}

omm_err omm_node_serve(omm_node_service_result *result, const omm_node_service_options *options) {
    *result = (omm_node_service_result){0};
    service s = {.o = options,
                 .node_options = options->node,
                 .patience = {.clock = options->clock,
                              .log = options->node.log,
                              .name = options->node.name,
                              .url = options->url,
                              .stop = options->stop,
                              .rules = options->guest},
                 .jitter =
                     (uint32_t)omm_measure_ns() ^ omm_get_u32(options->node.key->public_key.b)};
    atomic_init(&s.is_paused, false);
    atomic_init(&s.let_go, false);
    s.node_options.clock = &options->clock;
    s.node_options.is_dry = options->dry_dir != NULL;
    patience_init(&s.patience, options->guest_root);
    board_open(&s.board, &options->node, options->clock);
    if (options->guest) {
        omm_pace_init(&s.pace, options->guest->max_cpu_percent, omm_cpu_count(), omm_measure_ns(),
                      omm_process_cpu_ns());
        s.node_options.pace = keep_pace;
        s.node_options.pace_ud = &s;
    }
    omm_err err = run(result, &s);
    if (s.client) omm_client_close(s.client);
    omm_node_close(s.node);
    board_close(&s.board);
    return err;
}
