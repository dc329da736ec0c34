/* service.c - the loop around the node's state machine. */
#include "omm/node_service.h"

#include "omm/transport.h"

#include <pthread.h>
#include <string.h>

#define SERVICE_SLICE_MS 200u    /* how soon a stop is noticed */
#define SERVICE_TROUBLE_MS 1000u /* between attempts when our own disk or memory fails */

typedef struct service {
    const omm_node_service_options *o;
    omm_node *node;
    omm_client *client;

} service;

static uint64_t now_ms(const service *s) {
    return s->o->clock.now_ms(s->o->clock.ud);
}

static bool is_stopped(const service *s) {
    return s->o->stop && atomic_load(s->o->stop);
}

static void sleep_until(const service *s, uint64_t until_ms) {
    for (uint64_t now = now_ms(s); now < until_ms && !is_stopped(s); now = now_ms(s)) {
        uint64_t left_ms = until_ms - now;
        s->o->clock.sleep_ms(s->o->clock.ud,
                             left_ms < SERVICE_SLICE_MS ? left_ms : SERVICE_SLICE_MS);
    }
}

/* Send, and wait for the answer.  Whatever goes wrong on the way is SEND_FAILED: the node sends
 * the same request again, later. */
static omm_node_event exchange(service *s, omm_bytes request) {
    omm_node_event event = {.kind = OMM_NODE_SEND_FAILED};
    if (omm_client_send(s->client, request) != OMM_OK) return event;
    uint64_t begin_ms = now_ms(s);
    while (!is_stopped(s) && now_ms(s) - begin_ms < s->o->answer_ms) {
        omm_err err = omm_client_receive(&event.reply, s->client, SERVICE_SLICE_MS);
        if (err == OMM_ERR_TIMEOUT) continue;
        if (err == OMM_OK) event.kind = OMM_NODE_REPLY;
        break;
    }
    return event;
}

/* Passes a stop on to the training while it blocks the loop. */
typedef struct watcher {
    const service *s;
    atomic_bool done;
} watcher;

static void *watch(void *ud) {
    watcher *w = ud;
    while (!atomic_load(&w->done)) {
        if (is_stopped(w->s)) omm_node_cancel(w->s->node);
        w->s->o->clock.sleep_ms(w->s->o->clock.ud, SERVICE_SLICE_MS / 4);
    }
    return NULL;
}

static omm_node_event work(service *s) {
    watcher w = {.s = s};
    atomic_init(&w.done, false);
    pthread_t thread;
    bool watched = s->o->stop && pthread_create(&thread, NULL, watch, &w) == 0;
    omm_node_event event = {.kind = OMM_NODE_WORK_DONE,
                            .work = omm_node_work(s->node, s->o->compute)};
    atomic_store(&w.done, true);
    if (watched) (void)pthread_join(thread, NULL);
    if (event.work != OMM_OK && event.work != OMM_ERR_CANCELLED)
        omm_log_event(s->o->node.log, OMM_LOG_ERROR, "training_failed",
                      OMM_LOG_STR("node", s->o->node.name),
                      OMM_LOG_STR("detail", omm_err_detail()));
    return event;
}

static omm_node_event perform(service *s, const omm_node_action *action) {
    switch (action->kind) {
    case OMM_NODE_SEND: return exchange(s, action->request);
    case OMM_NODE_WORK: return work(s);
    case OMM_NODE_WAIT: sleep_until(s, action->until_ms); break;
    case OMM_NODE_DONE: break;
    }
    return (omm_node_event){.kind = OMM_NODE_TICK};
}

static omm_err run(omm_node_service_result *result, service *s) {
    OMM_TRY(omm_node_open(&s->node, &s->o->node));
    OMM_TRY(omm_client_open(&s->client, s->o->url,
                            &(omm_client_options){.message_bytes_max = OMM_MESSAGE_BYTES_MAX,
                                                  .reconnect_min_ms = 100,
                                                  .reconnect_max_ms = 5000,
                                                  .tls_certificate = s->o->tls_certificate}));
    omm_node_event event = {.kind = OMM_NODE_TICK};
    while (!is_stopped(s)) {
        omm_node_action action;
        omm_err err = omm_node_step(&action, s->node, now_ms(s), &event);
        if (err != OMM_OK) { /* a full disk, say: the event is kept and tried again */
            omm_log_event(s->o->node.log, OMM_LOG_ERROR, "node_trouble",
                          OMM_LOG_STR("detail", omm_err_detail()));
            sleep_until(s, now_ms(s) + SERVICE_TROUBLE_MS);
            continue;
        }
        if (action.kind == OMM_NODE_DONE) {
            result->is_done = true;
            break;
        }
        event = perform(s, &action);
    }
    result->status = omm_node_get_status(s->node);
    return OMM_OK;
}

omm_err omm_node_serve(omm_node_service_result *result, const omm_node_service_options *options) {
    *result = (omm_node_service_result){0};
    service s = {.o = options};
    omm_err err = run(result, &s);
    if (s.client) omm_client_close(s.client);
    omm_node_close(s.node);
    return err;
}
