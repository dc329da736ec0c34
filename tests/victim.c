/* victim.c - see victim.h. */
#include "victim.h"

#include "omm/codec.h"
#include "omm/mem.h"
#include "omm/node_history.h"
#include "omm_test.h"

#include <string.h>

void victim_step(victim *v, omm_node_event_kind kind, omm_bytes reply) {
    omm_node_event event = {.kind = kind, .reply = reply};
    CHECK_OK(omm_node_step(&v->action, v->node, v->now_ms, &event));
}

/* Let time pass until it wants to send or work. */
void victim_until_active(victim *v) {
    for (int i = 0; v->action.kind == OMM_NODE_WAIT; i++) {
        CHECK(i < 100);
        v->now_ms = v->action.until_ms;
        victim_step(v, OMM_NODE_TICK, (omm_bytes){0});
    }
}

omm_request_kind victim_asked(victim *v) {
    omm_request request;
    victim_until_active(v);
    CHECK_EQ(v->action.kind, OMM_NODE_SEND);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    return request.kind;
}

void victim_answer(victim *v, const omm_reply *reply) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_reply_encode(&bytes, reply));
    victim_step(v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
}

void victim_open_with(victim *v, const fed_options *options) {
    memset(v, 0, sizeof *v);
    peer_open(&v->p, options);
    peer_until_open(&v->p, 0);
    omm_buf_init(&v->offer, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&v->offer, v->p.last.envelope.data, v->p.last.envelope.size));
    v->node = v->p.f.nodes[PEER];
    v->now_ms = 1;
    victim_step(v, OMM_NODE_TICK, (omm_bytes){0});
}

fed_options victim_fed_options(void) {
    fed_options options = peer_options();
    options.on_disk = true;
    return options;
}

void victim_open(victim *v) {
    const fed_options options = victim_fed_options();
    victim_open_with(v, &options);
}

void victim_open_as(victim *v, bool whole) {
    fed_options options = victim_fed_options();
    options.whole = whole;
    victim_open_with(v, &options);
}

omm_node_options victim_options(victim *v, const omm_node_limits *limits) {
    return (omm_node_options){.key = &v->p.f.keys[PEER],
                              .name = "again",
                              .coordinator = v->p.f.coordinator_key.public_key,
                              .limits = *limits,
                              .training = v->p.f.training[PEER],
                              .state_dir = fed_path(&v->p.f, v->dir, v->p.f.names[PEER])};
}

/* The node again, from its folder. */
void victim_reopen_as(victim *v, const omm_node_options *options) {
    omm_node_close(v->node);
    CHECK_OK(omm_node_open(&v->node, options));
    v->p.f.nodes[PEER] = v->node;
    victim_step(v, OMM_NODE_TICK, (omm_bytes){0});
}

void victim_reopen(victim *v, const omm_node_limits *limits) {
    const omm_node_options options = victim_options(v, limits);
    victim_reopen_as(v, &options);
}

void victim_close(victim *v) {
    omm_buf_fini(&v->offer);
    peer_close(&v->p);
}

/* The offer, changed and signed. */
void victim_offer_signed(victim *v, void (*change)(omm_offer *offer), omm_context context,
                         const omm_key *key) {
    omm_offer offer = v->p.offer;
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    if (change) change(&offer);
    CHECK_OK(omm_offer_encode(&payload, &offer));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

void victim_offer(victim *v, void (*change)(omm_offer *offer), const omm_key *key) {
    victim_offer_signed(v, change, OMM_CONTEXT_OFFER, key);
}

void victim_offer_honest(victim *v) {
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&v->offer)});
}

void victim_give_chunk(victim *v) {
    omm_buf reply;
    CHECK_EQ(victim_asked(v), OMM_REQUEST_GET);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    fed_send(&v->p.f, &reply, v->action.request);
    victim_step(v, OMM_NODE_REPLY, omm_buf_view(&reply));
    omm_buf_fini(&reply);
}

/* The global adapter, from the real coordinator. */
void victim_give_chunks(victim *v) {
    while (v->action.kind != OMM_NODE_WORK) victim_give_chunk(v);
}

void victim_work(victim *v) {
    CHECK_EQ(v->action.kind, OMM_NODE_WORK);
    CHECK_OK(omm_node_work(v->node, NULL));
    victim_step(v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK_EQ(victim_asked(v), OMM_REQUEST_SUBMIT);
}

/* For what the node has just sent: the test may change it before it is signed. */
omm_receipt victim_receipt(victim *v, omm_err reason) {
    omm_request request;
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    omm_receipt receipt = {.round = v->p.offer.round,
                           .node_id = v->p.f.run_nodes[v->p.f.of_node[PEER]].id,
                           .submission_digest = omm_hash(request.envelope),
                           .accepted = reason == OMM_OK,
                           .reason = reason,
                           .sentence = reason == OMM_OK ? "" : "no"};
    memcpy(receipt.run_id, v->p.offer.run_id, sizeof receipt.run_id);
    return receipt;
}

void victim_answer_receipt_as(victim *v, const omm_receipt *receipt, omm_context context,
                              const omm_key *key) {
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_receipt_encode(&payload, receipt));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_RECEIPT, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

void victim_answer_receipt(victim *v, const omm_receipt *receipt, const omm_key *key) {
    victim_answer_receipt_as(v, receipt, OMM_CONTEXT_RECEIPT, key);
}

void victim_answer_close(victim *v, const char *run_id, omm_context context, const omm_key *key) {
    omm_close close = {.rounds = 1};
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    (void)snprintf(close.run_id, sizeof close.run_id, "%s", run_id);
    CHECK_OK(omm_close_encode(&payload, &close));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_DONE, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

void victim_refuse(victim *v) {
    const omm_receipt receipt = victim_receipt(v, OMM_ERR_REFUSED_NORM);
    victim_answer_receipt(v, &receipt, &v->p.f.coordinator_key);
}

/* Of the declined offers that its owner reads, the newest first: how often, and NULL or why. */
int64_t victim_declined(victim *v, size_t index, const char *why) {
    json_t *history = NULL;
    CHECK_OK(omm_node_history(&history, v->node));
    const json_t *one = json_array_get(json_object_get(history, "declined"), index);
    const char *reason = json_string_value(json_object_get(one, "reason"));
    const int64_t times = json_integer_value(json_object_get(one, "times"));
    CHECK(!why == !reason && (!why || strstr(reason, why)));
    json_decref(history);
    return times;
}

omm_submission victim_submission(victim *v) {
    omm_request request;
    omm_envelope envelope;
    omm_submission s;
    CHECK_EQ(victim_asked(v), OMM_REQUEST_SUBMIT);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, request.envelope));
    CHECK_OK(omm_submission_decode(&s, envelope.payload, &v->p.arena));
    return s;
}

omm_poll victim_poll(victim *v) {
    omm_request request;
    omm_envelope envelope;
    omm_poll poll;
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, request.envelope));
    CHECK_OK(omm_poll_decode(&poll, envelope.payload, &v->p.arena));
    return poll;
}

/* Its owner reads that it was sent, of each. */
void victim_check_sent(victim *v, const char *list, size_t count, const char *verdict) {
    json_t *history = NULL, *round;
    size_t i;
    CHECK_OK(omm_node_history(&history, v->node));
    CHECK_EQ(json_array_size(json_object_get(history, list)), count);
    json_array_foreach(json_object_get(history, list), i, round) {
        CHECK(json_is_true(json_object_get(round, "sent")));
        const char *is = json_string_value(json_object_get(round, "verdict"));
        CHECK(!verdict || strcmp(is, verdict) == 0);
    }
    json_decref(history);
}
