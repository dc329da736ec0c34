/* answer.c - one request, one answer: polls and the global adapter here, the rest where it belongs. */
#include "submit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static omm_err reply_refused(omm_buf *reply, omm_err reason, const char *sentence) {
    omm_reply r = {.kind = OMM_REPLY_REFUSED, .reason = reason, .sentence = sentence};
    return omm_reply_encode(reply, &r);
}

omm_err coord_reply_wait(omm_buf *reply, const omm_coord *c) {
    omm_reply r = {.kind = OMM_REPLY_WAIT, .retry_ms = c->o.policy.poll_ms};
    return omm_reply_encode(reply, &r);
}

/* Anybody on the way can write a refusal, and refuse a node for ever with it; what keeps a node out is a receipt
 * for the very poll that it answers. */
static omm_err reply_kept_out(omm_buf *reply, const omm_coord *c, omm_err reason,
                              const char *sentence) {
    omm_buf receipt;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = coord_receipt(&receipt, c, c->round, &c->o.run->nodes[c->kept_out].id,
                                &c->kept_out_poll, reason, sentence);
    if (err == OMM_OK) {
        omm_reply r = {.kind = OMM_REPLY_RECEIPT, .envelope = omm_buf_view(&receipt)};
        err = omm_reply_encode(reply, &r);
    }
    omm_buf_fini(&receipt);
    return err;
}

void coord_note_who(omm_coord *c, const omm_public_key *key, int32_t node) {
    char hex[2 * sizeof key->b + 1];
    omm_hex(hex, omm_bytes_of(key->b, sizeof key->b));
    if (node >= 0)
        (void)snprintf(c->who, sizeof c->who, "%.79s", c->o.run->nodes[node].name);
    else
        (void)snprintf(c->who, sizeof c->who, "key %.16s...", hex);
}

/* ---- polls ---- */

/* Everybody on the way can send a captured poll again.  The same poll in the same round and state is
 * our own answer's second try; later it says nothing any more: it is answered, and changes nothing. */
static bool is_stale(coord_node *n, const omm_coord *c, uint64_t counter) {
    uint64_t moment = ((uint64_t)c->round << 8) | (uint64_t)c->state;
    if (n->has_counter && counter == n->counter) return n->counter_moment != moment;
    n->has_counter = true;
    n->counter = counter;
    n->counter_moment = moment;
    return false;
}

/* Whoever sends that one again is no newer. */
static void take_passed(coord_node *n) {
    if (n->counter_passed == 0 || (n->has_counter && n->counter_passed <= n->counter)) return;
    n->has_counter = true;
    n->counter = n->counter_passed;
    n->counter_moment = COORD_PASSED;
}

static omm_err check_counter(const coord_node *n, uint64_t counter) {
    if (counter > INT64_MAX)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "counter: %" PRIu64 " is over 2^63 - 1", counter);
    if (!n->has_counter || counter >= n->counter) return OMM_OK;
    if (n->counter_moment == COORD_BEFORE)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                         "counter: %" PRIu64 " is below %" PRIu64
                         ", up to which it may have been seen before this start: the node goes on "
                         "above, or this is a replay",
                         counter, n->counter);
    return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                     "counter: %" PRIu64 " is below %" PRIu64
                     ", which was seen: the node's state is new, or another has its key",
                     counter, n->counter);
}

/* What a poll changes must not count before the disk says that the poll was there, or it could be sent again after a
 * kill.  So that few polls need a write, it says so of a whole block, ahead by half of it for those that are passed over:
 * after a restart all of that is refused, and a node goes on a block further. */
static omm_err reserve(omm_coord *c, uint32_t node, uint64_t counter) {
    coord_node *n = &c->nodes[node];
    if (n->has_counter && counter + OMM_COUNTER_BLOCK / 2 <= n->counter_upto) return OMM_OK;
    const uint64_t most = INT64_MAX - (OMM_COUNTER_BLOCK - 1);
    const uint64_t upto = (counter < most ? counter : most) + (OMM_COUNTER_BLOCK - 1);
    OMM_TRY(coord_store_counter(c, node, upto));
    n->counter_upto = upto;
    return OMM_OK;
}

/* In quarantine or revoked: it is refused, and the answer is signed (reply_kept_out). */
static omm_err keep_out(omm_coord *c, omm_bytes poll, int32_t node) {
    c->kept_out = node;
    c->kept_out_poll = omm_hash(poll);
    if (c->nodes[node].revoked) return coord_refuse_revoked(c, (size_t)node);
    const char *canary = coord_canary_reason(c, (size_t)node);
    return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, "round: node is in quarantine, %s",
                     canary[0] ? canary : "by the operator's word");
}

/* A node has receipts of rounds that this run has not had: an older copy of the state was put back.  It takes no offer for
 * them again.  Said once, since a node may lie. */
static void note_ahead(omm_coord *c, uint32_t node, uint32_t rounds_seen) {
    if (rounds_seen <= c->round + 1 || c->ahead) return;
    c->ahead = rounds_seen;
    omm_log_event(
        c->o.log, OMM_LOG_WARN, "state_is_older", OMM_LOG_INT("round", c->round),
        OMM_LOG_INT("node_has_seen", rounds_seen), OMM_LOG_STR("node", c->o.run->nodes[node].name),
        OMM_LOG_STR(
            "then",
            "nodes take no offer for rounds that they have given to: those are void; "
            "if an older copy of the state was put back, `ctl pause` and put back a newer one"));
}

/* *node is COORD_ANONYMOUS for a candidate, who is none of the run's; *gives: it says of no dry run. */
static omm_err check_poll(int32_t *node, omm_digest *id, bool *stale, bool *gives, omm_coord *c,
                          omm_bytes bytes, omm_arena *arena) {
    omm_envelope envelope;
    omm_poll poll;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, bytes));
    *id = omm_key_id(&envelope.key);
    int32_t found = coord_node_find(c, id);
    bool is_candidate = false;
    coord_note_who(c, &envelope.key, found);
    if (found < 0) OMM_TRY(coord_canary_knows(&is_candidate, c, id));
    if (found < 0 && !is_candidate) return coord_refuse_stranger(c);
    if (found >= 0 && c->nodes[found].revoked) return keep_out(c, bytes, found);
    OMM_TRY(omm_poll_decode(&poll, envelope.payload, arena));
    if (poll.run_id[0] && strcmp(poll.run_id, c->o.run->run_id) != 0)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not this run", poll.run_id);
    *node = found;
    *gives = poll.declined != OMM_DECLINED_DRY;
    if (is_candidate) return OMM_OK;
    coord_node *n = &c->nodes[found];
    take_passed(n);
    OMM_TRY(check_counter(n, poll.counter));
    note_ahead(c, (uint32_t)found, poll.rounds_seen);
    OMM_TRY(reserve(c, (uint32_t)found, poll.counter));
    c->peer_fresh = !n->has_counter || poll.counter > n->counter;
    if (c->peer_fresh) OMM_TRY(coord_declined_note(c, (uint32_t)found, poll.declined));
    *stale = is_stale(n, c, poll.counter);
    return OMM_OK;
}

static omm_err pass_over(omm_coord *c, omm_bytes bytes, omm_arena *arena) {
    omm_request request;
    omm_envelope envelope;
    omm_poll poll;
    OMM_TRY(omm_request_decode(&request, bytes, arena));
    if (request.kind != OMM_REQUEST_POLL) return OMM_OK;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, request.envelope));
    const omm_digest id = omm_key_id(&envelope.key);
    const int32_t found = coord_node_find(c, &id);
    if (found < 0) return OMM_OK;
    OMM_TRY(omm_poll_decode(&poll, envelope.payload, arena));
    coord_node *n = &c->nodes[found];
    if (poll.counter <= INT64_MAX && poll.counter > n->counter_passed)
        n->counter_passed = poll.counter;
    return OMM_OK;
}

/* Of what a tick looks at and changes this reads the nodes' ids alone, which only enrolment changes, and that is no tick's. */
void omm_coord_pass_over(omm_coord *c, omm_bytes request) {
    omm_arena arena;
    omm_arena_init(&arena, (size_t)2 * OMM_MESSAGE_ARENA_BYTES);
    (void)pass_over(c, request, &arena); /* what is wrong with it, who asks again hears */
    omm_arena_fini(&arena);
}

static omm_err keep_counters(omm_coord *c, const void *ud) {
    (void)ud;
    for (uint32_t i = 0; i < c->o.run->node_count; i++) {
        coord_node *n = &c->nodes[i];
        take_passed(n);
        if (n->has_counter) OMM_TRY(coord_store_counter(c, i, n->counter));
    }
    return OMM_OK;
}

omm_err omm_coord_keep_counters(omm_coord *c) {
    OMM_ASSERT(!c->batch.open);
    OMM_TRY(coord_check_sound(c));
    OMM_TRY(coord_store_in_transaction(c, keep_counters, NULL));
    for (size_t i = 0; i < c->o.run->node_count; i++) c->nodes[i].counter_upto = 0;
    return OMM_OK;
}

/* The offer, and with it the global adapter for who takes it so and where it fits. */
static omm_err reply_offer(omm_buf *reply, omm_coord *c, bool whole) {
    omm_reply r = {.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&c->offer)};
    if (whole && omm_wire_is_whole(c->offer.size, c->global.size)) {
        OMM_TRY(coord_state_hold(c));
        r.data = omm_buf_view(&c->sent);
        c->payload.down = r.data.size;
    }
    return omm_reply_encode(reply, &r);
}

static omm_err answer_poll(omm_buf *reply, omm_coord *c, uint64_t now_ms,
                           const omm_request *request, omm_arena *arena) {
    int32_t index = COORD_ANONYMOUS;
    bool stale = false, gives = true;
    omm_digest id;
    OMM_TRY(check_poll(&index, &id, &stale, &gives, c, request->envelope, arena));
    if (index < 0) return coord_canary_answer_poll(reply, c, &id, request->whole);
    c->last_node = index;
    coord_node *node = &c->nodes[index];
    if (c->state == OMM_COORD_CLOSED) {
        /* Who only repeats what the node said before has not been told, whoever it is: the node asks anew. */
        if (stale) return coord_reply_wait(reply, c);
        omm_reply r = {.kind = OMM_REPLY_DONE, .envelope = omm_buf_view(&c->close)};
        OMM_TRY(omm_reply_encode(reply, &r));
        node->told = true;
        return OMM_OK;
    }
    if (node->quarantined) return keep_out(c, request->envelope, index); /* its counter was taken */
    if (c->state == OMM_COORD_OPEN && node->selected && !node->settled) {
        OMM_TRY(reply_offer(reply, c, request->whole));
        if (stale || node->offered) return OMM_OK;
        OMM_TRY(coord_store_presence(c, (uint32_t)index, COORD_OFFERED));
        node->offered = true;
        return OMM_OK;
    }
    if (coord_canary_holds(c, (size_t)index))
        return coord_canary_answer_poll(reply, c, &id, request->whole);
    OMM_TRY(coord_reply_wait(reply, c));
    if (c->peer_fresh && gives) coord_declined_asks(c, (uint32_t)index, now_ms);
    if (c->state != OMM_COORD_JOINING || node->ready || stale || !gives) return OMM_OK;
    OMM_TRY(coord_store_presence(c, (uint32_t)index, COORD_READY));
    node->ready = true;
    return OMM_OK;
}

/* ---- the global adapter ---- */

static omm_err answer_get(omm_buf *reply, omm_coord *c, const omm_request *request) {
    bool is_canary = false;
    OMM_TRY(coord_canary_get(&is_canary, reply, c, request));
    if (is_canary) return OMM_OK;
    if (!omm_digest_equal(&request->digest, &c->global.digest))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "digest: not the current global adapter");
    OMM_TRY(coord_state_hold(c));
    omm_bytes chunk = omm_chunk_view(omm_buf_view(&c->sent), request->index);
    if (chunk.size == 0)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "index: %u is beyond the last of %zu chunks",
                         request->index, c->global.chunk_count);
    c->payload.down = chunk.size;
    omm_reply r = {
        .kind = OMM_REPLY_CHUNK, .digest = request->digest, .index = request->index, .data = chunk};
    return omm_reply_encode(reply, &r);
}

/* ---- one request ---- */

static omm_err answer_kind(omm_buf *reply, omm_coord *c, uint64_t now_ms,
                           const omm_request *request, omm_arena *arena) {
    switch (request->kind) {
    case OMM_REQUEST_POLL: return answer_poll(reply, c, now_ms, request, arena);
    case OMM_REQUEST_GET: return answer_get(reply, c, request);
    case OMM_REQUEST_PUT: return coord_upload_put(reply, c, request, arena);
    case OMM_REQUEST_SUBMIT: return coord_submit_answer(reply, c, request, arena);
    case OMM_REQUEST_ENROL: return coord_enrol_answer(reply, c, now_ms, request->envelope, arena);
    case OMM_REQUEST_BASE: /* base_serve.c answers where there is something to serve */
        return omm_raise(OMM_ERR_REFUSED_BASE, "base: no base model is served here");
    }
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "body: unknown kind of request");
}

/* A node's payload whatever verdict it has; not what somebody sends whom nobody knows, nor a candidate's. */
static void note_payload(omm_coord *c, const omm_request *request) {
    const bool is_signed = request->kind == OMM_REQUEST_SUBMIT && c->last_node != OMM_COORD_NOBODY;
    const bool is_candidates = c->peer_tries && c->last_node == OMM_COORD_NOBODY;
    const bool is_chunk = request->kind == OMM_REQUEST_PUT && !is_candidates;
    if (is_signed || is_chunk) c->payload.up = request->data.size;
}

omm_err coord_answer(omm_buf *reply, omm_coord *c, uint64_t now_ms, omm_bytes bytes,
                     const char *peer) {
    omm_arena request_arena;
    omm_arena arena;
    omm_arena_init(&request_arena, OMM_MESSAGE_ARENA_BYTES);
    omm_arena_init(&arena, (size_t)2 * OMM_MESSAGE_ARENA_BYTES);
    omm_request request;
    c->kept_out = COORD_ANONYMOUS;
    omm_err err = omm_request_decode(&request, bytes, &request_arena); /* its size first */
    if (err == OMM_OK) err = answer_kind(reply, c, now_ms, &request, &arena);
    if (err == OMM_OK) note_payload(c, &request);
    if (err == OMM_ERR_VERSION) err = OMM_ERR_REFUSED_FORMAT;
    if (coord_is_refusal(err)) {
        c->payload = (omm_coord_payload){0}; /* nor does the answer leave that was made */
        c->refusals_total++;
        char sentence[SENTENCE_SIZE];
        (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
        omm_log_event(c->o.log, coord_refusal_level(c), "request_refused",
                      OMM_LOG_STR("peer", peer ? peer : "unknown"), OMM_LOG_STR("node", c->who),
                      OMM_LOG_STR("reason", omm_err_name(err)), OMM_LOG_STR("sentence", sentence));
        coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_REQUEST,
                                         .round = c->round,
                                         .node = c->last_node,
                                         .reason = err,
                                         .sentence = sentence,
                                         .peer = peer ? peer : "unknown"});
        omm_buf_clear(reply);
        err = c->kept_out >= 0 ? reply_kept_out(reply, c, err, sentence)
                               : reply_refused(reply, err, sentence);
    }
    omm_arena_fini(&arena);
    omm_arena_fini(&request_arena);
    return err;
}
