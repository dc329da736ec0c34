/* loop.c - the simulator's event loop.
 *
 * Invariants: at most one request per node is in flight; events are handled in the queue's total
 * order; the coordinator sees messages in that order and never a smaller time than before.  Real
 * time enters nowhere.  Training is computed when the first finished job is needed: all jobs that
 * are under way at that moment run in parallel, and their results do not depend on it.
 */
#include "internal.h"

#include "omm/clock.h"
#include "omm/enrolment.h"
#include "omm/mem.h"
#include "omm/messages.h"

#include <stdio.h>
#include <string.h>

#define LOOP_REPLY_TIMEOUT_MS 60000u /* inproc in one thread: only a bug takes that long */
#define LOOP_TIMELINE_BYTES_MAX (256u << 20)
#define LOOP_EVENTS_MAX 100000000u
#define LOOP_VANISHED_MS 1000u /* a vanished node comes back this long after the deadline */

void sim_report(sim *s, const char *phase) {
    if (!s->options->progress) return;
    omm_coord_status status = s->coord ? omm_coord_get_status(s->coord) : (omm_coord_status){0};
    omm_simulate_progress p = {.dir = s->dir,
                               .rounds = s->setup->scenario.rounds,
                               .phase = phase,
                               .done = s->tokens_done,
                               .total = s->tokens_total > s->tokens_done ? s->tokens_total
                                                                         : s->tokens_done};
    bool started = s->coord && (status.state != OMM_COORD_JOINING || status.round > 0);
    p.round = started ? status.round + 1 : 0;
    if (p.round > p.rounds) p.round = p.rounds;
    s->options->progress(s->options->ud, &p);
}

static omm_err note(sim *s, const sim_peer *peer, const char *event, uint64_t value) {
    return omm_buf_printf(
        &s->timeline, "{\"at_ms\":%llu,\"event\":\"%s\",\"node\":\"%s\",\"value\":%llu}\n",
        (unsigned long long)s->now_ms, event, peer->spec->name, (unsigned long long)value);
}

/* --- peers ------------------------------------------------------------------------------------ */

/* A simulated node takes what its scenario says: nobody's machine is to be spared. */
static omm_node_limits no_limits(void) {
    return (omm_node_limits){.rank_max = UINT32_MAX,
                             .steps_max = UINT32_MAX,
                             .tokens_max = UINT64_MAX,
                             .pass_tokens_max = UINT64_MAX,
                             .adapter_values_max = UINT64_MAX,
                             .download_bytes_max = UINT64_MAX,
                             .upload_bytes_max = UINT64_MAX,
                             .work_bits_max = OMM_WORK_BITS_MAX};
}

static omm_err open_honest(sim *s, sim_peer *peer) {
    const sim_setup *setup = s->setup;
    const omm_run_record *record = omm_run_get_record(setup->run);
    const struct omm_dataset *data = omm_run_client_data(setup->run, peer->spec->client);
    if (!data)
        return omm_raise(OMM_ERR_NOT_FOUND, "client '%s' has no line in %s", peer->spec->client,
                         setup->scenario.train);
    omm_training_options training = {.model = omm_run_model(setup->run),
                                     .data = data,
                                     .base_digest = record->base.digest,
                                     .tokenizer_digest = record->base.tokenizer_digest};
    omm_run_commit_key(training.commit_key, &setup->run_seed, peer->spec->name);
    OMM_TRY(omm_training_open(&peer->training, &training));
    omm_node_options node = {.key = &peer->key,
                             .name = peer->spec->name,
                             .coordinator = record->coordinator_key,
                             .run_id = record->run_id,
                             .limits = no_limits(),
                             .training = peer->training,
                             .log = s->options->log};
    return omm_node_open(&peer->node, &node);
}

static omm_err open_hostile(sim *s, sim_peer *peer) {
    sim_hostile_options options = {.kind = (omm_hostile)peer->spec->group->hostile,
                                   .key = &peer->key,
                                   .run_seed = &s->setup->run_seed,
                                   .layout = &omm_run_get_record(s->setup->run)->layout,
                                   .overheard = &s->overheard_view};
    return sim_hostile_open(&peer->hostile, &options);
}

static omm_err open_peer(sim *s, size_t index) {
    sim_peer *peer = &s->peers[index];
    peer->spec = &s->setup->nodes[index];
    peer->index = (uint32_t)index;
    omm_run_node_key(&peer->key, &s->setup->run_seed, peer->spec->name);
    peer->id = omm_key_id(&peer->key.public_key);
    omm_buf_init(&peer->request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&peer->reply, OMM_MESSAGE_BYTES_MAX);
    sim_link_init(&peer->link, peer->spec->group, &s->setup->run_seed, peer->index);
    return peer->spec->client ? open_honest(s, peer) : open_hostile(s, peer);
}

static void close_peer(sim_peer *peer) {
    omm_node_close(peer->node);
    omm_training_close(peer->training);
    sim_hostile_close(peer->hostile);
    omm_buf_fini(&peer->request);
    omm_buf_fini(&peer->reply);
    omm_key_wipe(&peer->key);
}

/* --- what a node wants next ------------------------------------------------------------------- */

/* Keep the first honest submission of each round, for the peer that replays it in a later one. */
static omm_err overhear(sim *s, const sim_peer *peer) {
    if (!peer->node) return OMM_OK;
    uint32_t round = omm_node_get_status(peer->node).round;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_request request;
    omm_err err = omm_request_decode(&request, omm_buf_view(&peer->request), &arena);
    bool is_new = s->heard.size == 0 || round > s->heard_round;
    if (err == OMM_OK && request.kind == OMM_REQUEST_SUBMIT && is_new) {
        omm_buf_clear(&s->overheard);
        err = omm_buf_append(&s->overheard, s->heard.data, s->heard.size);
        omm_buf_clear(&s->heard);
        if (err == OMM_OK)
            err = omm_buf_append(&s->heard, request.envelope.data, request.envelope.size);
        s->heard_round = round;
        s->overheard_view = omm_buf_view(&s->overheard);
    }
    omm_arena_fini(&arena);
    return err;
}

static omm_err begin_send(sim *s, sim_peer *peer, const omm_node_action *action) {
    omm_buf_clear(&peer->request);
    OMM_TRY(omm_buf_append(&peer->request, action->request.data, action->request.size));
    OMM_TRY(overhear(s, peer));
    peer->retries += action->is_retry;
    uint64_t took = sim_link_up_ms(&peer->link, peer->request.size + OMM_WIRE_OVERHEAD_BYTES);
    return sim_queue_push(&s->queue, s->now_ms + took, peer->index, SIM_ARRIVE);
}

static omm_err begin_work(sim *s, sim_peer *peer, uint64_t tokens) {
    uint32_t round = omm_node_get_status(peer->node).round;
    peer->working = true;
    peer->worked = false;
    peer->vanished = sim_link_drops_out(&peer->link, round);
    uint64_t took = peer->vanished ? s->setup->scenario.round.deadline_ms + LOOP_VANISHED_MS
                                   : sim_link_train_ms(&peer->link, tokens);
    OMM_TRY(note(s, peer, peer->vanished ? "vanish" : "train", took));
    return sim_queue_push(&s->queue, s->now_ms + took, peer->index, SIM_WORKED);
}

static omm_err follow(sim *s, sim_peer *peer, const omm_node_action *action) {
    switch (action->kind) {
    case OMM_NODE_SEND: return begin_send(s, peer, action);
    case OMM_NODE_WORK: return begin_work(s, peer, action->work_tokens);
    case OMM_NODE_WAIT: {
        uint64_t at = action->until_ms > s->now_ms ? action->until_ms : s->now_ms + 1;
        return sim_queue_push(&s->queue, at, peer->index, SIM_WAKE);
    }
    case OMM_NODE_DONE: peer->done = true; return note(s, peer, "done", 0);
    case OMM_NODE_SHOW: break; /* no simulated node is dry */
    }
    return omm_raise(OMM_ERR_STATE, "node %s wants action %d", peer->spec->name, (int)action->kind);
}

static omm_err give(sim *s, sim_peer *peer, const omm_node_event *event) {
    omm_node_action action = {0};
    if (peer->node)
        OMM_TRY(omm_node_step(&action, peer->node, s->now_ms, event));
    else
        OMM_TRY(sim_hostile_step(&action, peer->hostile, s->now_ms, event));
    return follow(s, peer, &action);
}

/* --- the coordinator -------------------------------------------------------------------------- */

static omm_err set_deadline(sim *s, uint64_t next_ms) {
    if (next_ms == OMM_COORD_NEVER) {
        s->deadline_ms = next_ms;
        return OMM_OK;
    }
    uint64_t at = next_ms > s->now_ms ? next_ms : s->now_ms;
    if (s->deadline_ms == at) return OMM_OK; /* that event is in the queue */
    s->deadline_ms = at;
    return sim_queue_push(&s->queue, at, SIM_NODE_COORDINATOR, SIM_DEADLINE);
}

static const char *phase_name(omm_coord_state state) {
    switch (state) {
    case OMM_COORD_JOINING: return "nodes join";
    case OMM_COORD_OPEN: return "train";
    case OMM_COORD_AGGREGATING: return "aggregate";
    case OMM_COORD_EVALUATING: return "evaluate";
    case OMM_COORD_PUBLISHED: return "publish";
    case OMM_COORD_CLOSING: return "evaluate before and after";
    case OMM_COORD_CLOSED: return "close";
    }
    return "";
}

static omm_err on_deadline(sim *s, const sim_event *event) {
    if (event->at_ms != s->deadline_ms) return OMM_OK; /* overtaken by a newer one */
    omm_coord_state state = omm_coord_get_status(s->coord).state;
    sim_report(s, phase_name(state));
    uint64_t begin = omm_measure_ns();
    uint64_t next_ms = 0;
    s->deadline_ms = OMM_COORD_NEVER;
    OMM_TRY(omm_coord_tick(&next_ms, s->coord, s->now_ms));
    if (state == OMM_COORD_EVALUATING || state == OMM_COORD_CLOSING)
        s->evaluate_ns += omm_measure_ns() - begin;
    return set_deadline(s, next_ms);
}

/* The request really passes nng: sent, received by the server, answered, received by the client. */
static omm_err on_arrive(sim *s, sim_peer *peer) {
    OMM_TRY(omm_client_send(s->client, omm_buf_view(&peer->request)));
    omm_exchange *exchange = NULL;
    omm_bytes request = {0};
    omm_err err = omm_server_receive(&exchange, &request, s->server, LOOP_REPLY_TIMEOUT_MS);
    if (err != OMM_OK && err != OMM_ERR_REFUSED_SIZE) return err;
    omm_exchange_trust(exchange, 0);
    uint64_t next_ms = 0;
    err = omm_coord_step(&peer->reply, &next_ms, s->coord, s->now_ms, request, peer->spec->name);
    const omm_coord_payload payload = omm_coord_last_payload(s->coord);
    if (err != OMM_OK) {
        omm_exchange_drop(exchange);
        return err;
    }
    OMM_TRY(omm_exchange_reply(exchange, omm_buf_view(&peer->reply)));
    omm_bytes reply = {0};
    OMM_TRY(omm_client_receive(&reply, s->client, LOOP_REPLY_TIMEOUT_MS));
    omm_buf_clear(&peer->reply);
    OMM_TRY(omm_buf_append(&peer->reply, reply.data, reply.size));
    peer->bytes_up += omm_wire_bytes(peer->request.size);
    peer->bytes_down += omm_wire_bytes(reply.size);
    peer->payload_up += payload.up;
    peer->payload_down += payload.down;
    OMM_TRY(set_deadline(s, next_ms));
    uint64_t took = sim_link_down_ms(&peer->link, reply.size + OMM_WIRE_OVERHEAD_BYTES);
    return sim_queue_push(&s->queue, s->now_ms + took, peer->index, SIM_REPLY);
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct batch {
    sim *s;
    sim_peer **peers;
    size_t count;
} batch;

static void work_one(void *ud, size_t task, unsigned worker) {
    batch *b = ud;
    sim_peer *peer = b->peers[task];
    peer->work_result = omm_node_work(peer->node, &b->s->solo[worker]);
}

static void finish_batch(sim *s, const batch *b) {
    const omm_recipe_yaml *recipe = &s->setup->scenario.recipe;
    for (size_t i = 0; i < b->count; i++) {
        b->peers[i]->worked = true;
        s->tokens_done +=
            (double)recipe->steps * recipe->batch_tokens; /* as plan_progress counts */
    }
}

/* Compute all jobs that are under way: as many at a time as there are threads, one thread each;
 * a job that is alone gets all threads. */
static omm_err run_jobs(sim *s) {
    sim_peer **due = omm_alloc(s->setup->node_count, sizeof(sim_peer *));
    if (!due) return omm_raise(OMM_ERR_NOMEM, "training jobs");
    size_t count = 0;
    for (size_t i = 0; i < s->setup->node_count; i++) {
        sim_peer *peer = &s->peers[i];
        if (peer->working && !peer->worked && !peer->vanished) due[count++] = peer;
    }
    uint64_t begin = omm_measure_ns();
    for (size_t first = 0; first < count;) {
        size_t n = count - first < s->solo_count ? count - first : s->solo_count;
        batch b = {s, due + first, n};
        sim_report(s, "train");
        if (n == 1)
            due[first]->work_result = omm_node_work(due[first]->node, &s->compute);
        else
            omm_pool_run(s->pool, work_one, &b, n);
        finish_batch(s, &b);
        first += n;
    }
    s->train_ns += omm_measure_ns() - begin;
    omm_free(due);
    sim_report(s, "train");
    return OMM_OK;
}

static omm_err on_worked(sim *s, sim_peer *peer) {
    if (peer->vanished) {
        peer->work_result = OMM_ERR_CANCELLED;
    } else if (!peer->worked) {
        OMM_TRY(run_jobs(s));
    }
    omm_err result = peer->work_result;
    peer->working = peer->vanished = peer->worked = false;
    if (result != OMM_OK && result != OMM_ERR_CANCELLED) return result;
    omm_node_event event = {.kind = OMM_NODE_WORK_DONE, .work = result};
    return give(s, peer, &event);
}

/* --- the loop --------------------------------------------------------------------------------- */

static omm_err handle(sim *s, const sim_event *event) {
    s->now_ms = event->at_ms;
    if (event->kind == SIM_DEADLINE) return on_deadline(s, event);
    sim_peer *peer = &s->peers[event->node];
    if (peer->done) return OMM_OK;
    switch (event->kind) {
    case SIM_WAKE: return give(s, peer, &(omm_node_event){.kind = OMM_NODE_TICK});
    case SIM_ARRIVE: return on_arrive(s, peer);
    case SIM_REPLY:
        return give(s, peer,
                    &(omm_node_event){.kind = OMM_NODE_REPLY, .reply = omm_buf_view(&peer->reply)});
    case SIM_WORKED: return on_worked(s, peer);
    case SIM_DEADLINE: break;
    }
    return OMM_OK;
}

static omm_err open_all(sim *s, omm_bundle *bundle) {
    s->peers = omm_alloc(s->setup->node_count, sizeof *s->peers);
    if (!s->peers) return omm_raise(OMM_ERR_NOMEM, "%zu peers", s->setup->node_count);
    for (size_t i = 0; i < s->setup->node_count; i++) {
        OMM_TRY(open_peer(s, i));
        OMM_TRY(sim_queue_push(&s->queue, 0, (uint32_t)i, SIM_WAKE));
    }
    omm_coord_options coord;
    omm_run_coord_options(&coord, s->setup->run);
    coord.bundle = bundle;
    coord.pool = s->pool;
    coord.log = s->options->log;
    OMM_TRY(omm_coord_open(&s->coord, &coord));
    omm_server_options server = omm_server_options_default();
    server.idle_ms = 0;
    OMM_TRY(omm_server_open(&s->server, &server));
    char url[64];
    snprintf(url, sizeof url, "inproc://omm-simulate-%p", (void *)s);
    OMM_TRY(omm_server_listen(s->server, url));
    omm_client_options client = omm_client_options_default();
    return omm_client_open(&s->client, url, &client);
}

static bool all_done(const sim *s) {
    for (size_t i = 0; i < s->setup->node_count; i++)
        if (!s->peers[i].done) return false;
    return true;
}

omm_err sim_run(sim *s, omm_bundle *bundle) {
    omm_buf_init(&s->timeline, LOOP_TIMELINE_BYTES_MAX);
    omm_buf_init(&s->heard, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&s->overheard, OMM_MESSAGE_BYTES_MAX);
    sim_queue_init(&s->queue);
    s->deadline_ms = OMM_COORD_NEVER;
    OMM_TRY(open_all(s, bundle));
    sim_event event;
    for (uint64_t n = 0; !all_done(s); n++) {
        if (n == LOOP_EVENTS_MAX || !sim_queue_pop(&event, &s->queue))
            return omm_raise(OMM_ERR_STATE, "the simulation stands still after %llu events",
                             (unsigned long long)n);
        OMM_TRY(handle(s, &event));
    }
    return OMM_OK;
}

void sim_close(sim *s) {
    for (size_t i = 0; s->peers && i < s->setup->node_count; i++) close_peer(&s->peers[i]);
    omm_free(s->peers);
    omm_client_close(s->client);
    omm_server_close(s->server);
    omm_coord_close(s->coord);
    sim_queue_fini(&s->queue);
    omm_buf_fini(&s->timeline);
    omm_buf_fini(&s->heard);
    omm_buf_fini(&s->overheard);
}
