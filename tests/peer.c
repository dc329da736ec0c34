/* peer.c - what a peer can say, word by word. */
#include "peer.h"

#include "omm/codec.h"
#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

void peer_send(peer *p, const omm_request *request) {
    omm_buf bytes;
    omm_buf_init(&bytes, (size_t)1 << 20);
    CHECK_OK(omm_request_encode(&bytes, request));
    fed_send(&p->f, &p->reply, omm_buf_view(&bytes));
    CHECK_OK(omm_reply_decode(&p->last, omm_buf_view(&p->reply), &p->arena));
    omm_buf_fini(&bytes);
}

/* The next poll of the node. */
static void seal_poll(omm_buf *envelope, peer *p, uint32_t node, omm_poll *poll) {
    omm_buf payload;
    poll->counter = ++p->counter;
    omm_buf_init(&payload, 4096);
    omm_buf_init(envelope, 4096);
    CHECK_OK(omm_poll_encode(&payload, poll));
    CHECK_OK(
        omm_envelope_seal(envelope, OMM_CONTEXT_POLL, omm_buf_view(&payload), &p->f.keys[node]));
    omm_buf_fini(&payload);
}

static void send_poll(peer *p, uint32_t node, omm_poll *poll, bool whole) {
    omm_buf envelope;
    seal_poll(&envelope, p, node, poll);
    peer_send(p, &(omm_request){.kind = OMM_REQUEST_POLL,
                                .envelope = omm_buf_view(&envelope),
                                .whole = whole});
    omm_buf_fini(&envelope);
}

void peer_poll_as(peer *p, uint32_t node) {
    send_poll(p, node, &(omm_poll){0}, false);
}

void peer_poll_with(peer *p, omm_poll *poll, bool whole) {
    send_poll(p, PEER, poll, whole);
}

void peer_pass_over(peer *p) {
    omm_buf envelope, bytes;
    seal_poll(&envelope, p, PEER, &(omm_poll){0});
    omm_buf_init(&bytes, (size_t)1 << 20);
    const omm_request request = {.kind = OMM_REQUEST_POLL, .envelope = omm_buf_view(&envelope)};
    CHECK_OK(omm_request_encode(&bytes, &request));
    omm_coord_pass_over(p->f.coord, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    omm_buf_fini(&envelope);
}

void peer_poll(peer *p) {
    peer_poll_as(p, PEER);
    if (p->last.kind != OMM_REPLY_REFUSED || p->last.reason != OMM_ERR_REFUSED_DUPLICATE) return;
    p->counter += OMM_COUNTER_BLOCK; /* the coordinator began again */
    peer_poll_as(p, PEER);
}

void peer_take_offer(peer *p) {
    omm_envelope envelope;
    CHECK_EQ(p->last.kind, OMM_REPLY_OFFER);
    p->offer_digest = omm_hash(p->last.envelope);
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_OFFER, p->last.envelope));
    CHECK_OK(omm_offer_decode(&p->offer, envelope.payload, &p->arena));
}

/* Let the honest ones go on until the round is open, then take the offer. */
void peer_until_open(peer *p, uint32_t round) {
    for (int i = 0; i < 1000; i++) {
        omm_coord_status status = omm_coord_get_status(p->f.coord);
        if (status.state == OMM_COORD_OPEN && status.round == round) break;
        if (status.state == OMM_COORD_JOINING) peer_poll(p);
        CHECK(fed_step(&p->f));
    }
    peer_poll(p);
    peer_take_offer(p);
}

/* Encode `values` (zeros when NULL) and describe an honest submission of them. */
void peer_fill(peer *p, const float *values) {
    size_t n = p->f.run.layout.value_count;
    float *zeros = omm_alloc(n, sizeof *zeros);
    CHECK(zeros);
    zeros[0] = 0.01f;
    omm_encoded info;
    omm_buf_clear(&p->payload);
    CHECK_OK(omm_codec_encode(&p->payload, &info, &p->f.run.codec_up, &p->f.run.layout,
                              values ? values : zeros));
    memset(zeros, 0, n * sizeof *zeros);
    omm_digest residual = omm_hash(omm_bytes_of(zeros, n * sizeof *zeros));
    omm_free(zeros);
    static const uint8_t steps[24];
    p->s = (omm_submission){.round = p->offer.round,
                            .nonce = p->offer.nonce,
                            .offer_digest = p->offer_digest,
                            .base_digest = p->offer.base_digest,
                            .global_digest = p->offer.global.digest,
                            .tokens = 100,
                            .examples = 10,
                            .steps = 3,
                            .loss_before = 2,
                            .loss_after = 1,
                            .codec = p->offer.codec_up,
                            .data_commitment = p->f.training[PEER]->data_commitment,
                            .residual_before = residual,
                            .residual_after = residual,
                            .step_digests = omm_bytes_of(steps, sizeof steps)};
    memcpy(p->s.run_id, p->offer.run_id, sizeof p->s.run_id);
    CHECK_OK(omm_blob_describe(&p->s.payload, &p->arena, omm_buf_view(&p->payload),
                               &info.payload_digest));
}

void peer_seal(peer *p, omm_context context, const omm_key *key) {
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_submission_encode(&payload, &p->s));
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_envelope_seal(&p->envelope, context, omm_buf_view(&payload), key));
    omm_buf_fini(&payload);
}

void peer_submit(peer *p) {
    omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p->envelope)};
    peer_send(p, &request);
}

void peer_put(peer *p, uint32_t index) {
    const omm_request request = {.kind = OMM_REQUEST_PUT,
                                 .digest = p->s.payload.digest,
                                 .index = index,
                                 .data = omm_chunk_view(omm_buf_view(&p->payload), index)};
    peer_send(p, &request);
}

void peer_upload(peer *p) {
    while (p->last.kind == OMM_REPLY_NEED && p->last.missing_count > 0)
        peer_put(p, p->last.missing[0]);
}

/* Replace the payload bytes and everything that names them. */
void peer_set_payload(peer *p, omm_bytes sent) {
    omm_digest canonical = p->s.payload.canonical;
    omm_buf_clear(&p->payload);
    CHECK_OK(omm_buf_append(&p->payload, sent.data, sent.size));
    CHECK_OK(omm_blob_describe(&p->s.payload, &p->arena, omm_buf_view(&p->payload), &canonical));
}

void peer_open(peer *p, const fed_options *options) {
    memset(p, 0, sizeof *p);
    fed_open(&p->f, options);
    omm_arena_init(&p->arena, (size_t)256 << 20);
    omm_buf_init(&p->reply, (size_t)1 << 20);
    omm_buf_init(&p->payload, (size_t)1 << 25);
    omm_buf_init(&p->envelope, OMM_ENVELOPE_BYTES_MAX);
}

void peer_close(peer *p) {
    fed_close(&p->f);
    omm_arena_fini(&p->arena);
    omm_buf_fini(&p->reply);
    omm_buf_fini(&p->payload);
    omm_buf_fini(&p->envelope);
}

fed_options peer_options(void) {
    fed_options options = fed_options_default();
    options.silent[PEER] = true;
    options.rounds = 1;
    options.norm_max = 2;
    options.deadline_ms = 20000; /* where it stays silent the others ask until then */
    return options;
}

/* What the reply says: the reason, from a receipt or a refusal. */
omm_err peer_reason_of(peer *p, bool *receipt) {
    *receipt = p->last.kind == OMM_REPLY_RECEIPT;
    if (!*receipt) {
        CHECK_EQ(p->last.kind, OMM_REPLY_REFUSED);
        CHECK(p->last.sentence[0]);
        p->sentence = p->last.sentence;
        return p->last.reason;
    }
    omm_envelope envelope;
    omm_receipt r;
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_RECEIPT, p->last.envelope));
    CHECK(omm_public_key_equal(&envelope.key, &p->f.coordinator_key.public_key));
    CHECK_OK(omm_receipt_decode(&r, envelope.payload, &p->arena));
    omm_digest digest = omm_hash(omm_buf_view(&p->envelope));
    CHECK(omm_digest_equal(&r.submission_digest, &digest));
    CHECK_EQ(r.accepted, r.reason == OMM_OK);
    CHECK_EQ(r.sentence[0] == '\0', r.accepted);
    p->sentence = r.sentence;
    return r.reason;
}

omm_round_record peer_last_round(peer *p) {
    omm_buf text;
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_round_record round;
    omm_buf_init(&text, (size_t)1 << 24);
    CHECK_OK(omm_bundle_read(&text, p->f.bundle, "rounds.jsonl"));
    CHECK_OK(omm_evidence_lines(&lines, &count, &p->arena, omm_buf_view(&text), 100));
    CHECK_OK(omm_round_record_parse(&round, &p->arena, lines[count - 1]));
    omm_buf_fini(&text);
    return round;
}

void peer_give(peer *p) {
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    peer_submit(p);
    peer_upload(p);
}

static void hear(void *ud, omm_log_level level, const char *line) {
    listener *l = ud;
    if (!strstr(line, l->event)) return;
    l->lines++;
    l->warnings += level >= OMM_LOG_WARN;
    (void)snprintf(l->last, sizeof l->last, "%s", line);
}

void listener_open(listener *l, const char *event) {
    *l = (listener){.event = event};
    l->log = (omm_log){
        .level = OMM_LOG_DEBUG, .clock = omm_clock_fake(&l->clock), .sink = hear, .ud = l};
}
