/* hand.c - see hand.h. */
#include "hand.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static void open_with(hand *h, fed *f, const omm_key *key) {
    *h = (hand){.f = f, .key = *key};
    omm_arena_init(&h->arena, (size_t)64 << 20);
    omm_buf_init(&h->reply, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&h->payload, 1u << 20);
    omm_buf_init(&h->envelope, OMM_ENVELOPE_BYTES_MAX);
}

void hand_open(hand *h, fed *f, uint64_t number) {
    const omm_seed seed = omm_seed_from_u64(1000 + number);
    omm_key key;
    omm_key_from_seed(&key, &seed);
    open_with(h, f, &key);
}

void hand_open_node(hand *h, fed *f, uint32_t node) {
    open_with(h, f, &f->keys[node]);
}

void hand_close(hand *h) {
    omm_arena_fini(&h->arena);
    omm_buf_fini(&h->reply);
    omm_buf_fini(&h->payload);
    omm_buf_fini(&h->envelope);
}

static omm_reply_kind hand_send(hand *h, const omm_request *request) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_request_encode(&bytes, request));
    fed_send(h->f, &h->reply, omm_buf_view(&bytes));
    CHECK_OK(omm_reply_decode(&h->said, omm_buf_view(&h->reply), &h->arena));
    omm_buf_fini(&bytes);
    return h->said.kind;
}

static omm_reply_kind hand_sign(hand *h, omm_request_kind kind, omm_context context,
                                omm_bytes payload) {
    omm_buf_clear(&h->envelope);
    CHECK_OK(omm_envelope_seal(&h->envelope, context, payload, &h->key));
    const bool whole = h->whole && kind == OMM_REQUEST_POLL;
    return hand_send(
        h, &(omm_request){.kind = kind, .envelope = omm_buf_view(&h->envelope), .whole = whole});
}

static omm_reply_kind hand_ask(hand *h, const omm_enrol *enrol) {
    omm_buf payload;
    omm_buf_init(&payload, 4096);
    CHECK_OK(omm_enrol_encode(&payload, enrol));
    const omm_reply_kind kind =
        hand_sign(h, OMM_REQUEST_ENROL, OMM_CONTEXT_ENROL, omm_buf_view(&payload));
    omm_buf_fini(&payload);
    return kind;
}

omm_reply_kind hand_enrol(hand *h) {
    omm_enrol e = {.coordinator = h->f->coordinator_key.public_key};
    omm_envelope opened;
    const omm_reply_kind kind = hand_ask(h, &e);
    if (kind != OMM_REPLY_CHALLENGE) return kind;
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_CHALLENGE, h->said.envelope));
    e.has_work = true;
    e.challenge = omm_hash(opened.payload);
    CHECK(
        omm_work_search(&e.work, &e.challenge, &h->key.public_key, h->f->o.work_bits, 0, 1u << 20));
    return hand_ask(h, &e);
}

omm_reply_kind hand_enrol_by(hand *h, const omm_seed *token) {
    omm_enrol e = {.coordinator = h->f->coordinator_key.public_key};
    omm_invitation_use(&e, token, &h->key.public_key);
    return hand_ask(h, &e);
}

static omm_reply_kind hand_poll_once(hand *h) {
    omm_poll poll = {.counter = ++h->counter};
    omm_buf payload;
    omm_buf_init(&payload, 4096);
    CHECK_OK(omm_poll_encode(&payload, &poll));
    const omm_reply_kind kind =
        hand_sign(h, OMM_REQUEST_POLL, OMM_CONTEXT_POLL, omm_buf_view(&payload));
    omm_buf_fini(&payload);
    return kind;
}

omm_reply_kind hand_poll(hand *h) {
    omm_envelope opened;
    omm_reply_kind kind = hand_poll_once(h);
    if (kind == OMM_REPLY_REFUSED && h->said.reason == OMM_ERR_REFUSED_DUPLICATE) {
        h->counter += OMM_COUNTER_BLOCK; /* the coordinator began again */
        kind = hand_poll_once(h);
    }
    if (kind != OMM_REPLY_OFFER) return kind;
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_OFFER, h->said.envelope));
    CHECK_OK(omm_offer_decode(&h->offer, opened.payload, &h->arena));
    h->offer_digest = omm_hash(h->said.envelope);
    return kind;
}

/* Chunk by chunk, as named. */
static omm_bytes hand_fetch(hand *h, const omm_blob *blob) {
    uint8_t *all = omm_arena_alloc(&h->arena, blob->size, 1);
    CHECK(all);
    for (uint32_t i = 0; i < blob->chunk_count; i++) {
        const omm_request get = {.kind = OMM_REQUEST_GET, .digest = blob->digest, .index = i};
        CHECK_EQ(hand_send(h, &get), OMM_REPLY_CHUNK);
        memcpy(all + (size_t)i * OMM_CHUNK_BYTES, h->said.data.data, h->said.data.size);
    }
    const omm_bytes bytes = omm_bytes_of(all, blob->size);
    const omm_digest digest = omm_hash(bytes);
    CHECK(omm_digest_equal(&digest, &blob->digest));
    return bytes;
}

void hand_train(hand *h) {
    const omm_layout *layout = &h->f->run.layout;
    const omm_digest id = omm_key_id(&h->key.public_key);
    const size_t n = layout->value_count;
    float *start = omm_arena_alloc(&h->arena, n, sizeof *start);
    float *values = omm_arena_alloc(&h->arena, n, sizeof *values);
    omm_seed nonce;
    omm_encoded info;
    CHECK(start && values && h->offer.is_canary && h->offer.selected_count == 1);
    CHECK(omm_digest_equal(&h->offer.selected[0], &id));
    const omm_bytes global = hand_fetch(h, &h->offer.global);
    const omm_bytes shard = hand_fetch(h, &h->offer.canary);
    CHECK_OK(omm_codec_decode(start, NULL, &h->f->run.codec_down, layout, global));
    memcpy(nonce.b, h->offer.nonce.b, sizeof nonce.b);
    const omm_seed seed = omm_training_seed(nonce.b, &id);
    const omm_seed mixed = omm_seed_derive(&seed, OMM_PURPOSE_TEST, shard);
    fed_trained(values, start, &mixed, n);
    for (size_t i = 0; i < n; i++) values[i] -= start[i];
    omm_buf_clear(&h->payload);
    CHECK_OK(omm_codec_encode(&h->payload, &info, &h->f->run.codec_up, layout, values));
    uint8_t *steps = omm_arena_alloc(&h->arena, 3, 8);
    for (uint64_t step = 1; step <= 3; step++) omm_put_u64(steps + 8 * (step - 1), step);
    h->s = (omm_submission){.round = h->offer.round,
                            .nonce = h->offer.nonce,
                            .offer_digest = h->offer_digest,
                            .base_digest = h->offer.base_digest,
                            .global_digest = h->offer.global.digest,
                            .tokens = shard.size,
                            .examples = shard.size,
                            .steps = 3,
                            .loss_before = 2.5f,
                            .loss_after = 1.5f,
                            .codec = h->offer.codec_up,
                            .data_commitment = h->offer.canary.digest,
                            .residual_before = omm_residual_zero(n),
                            .residual_after = omm_residual_zero(n),
                            .step_digests = omm_bytes_of(steps, 24)};
    memcpy(h->s.run_id, h->offer.run_id, sizeof h->s.run_id);
    CHECK_OK(omm_blob_describe(&h->s.payload, &h->arena, omm_buf_view(&h->payload),
                               &info.payload_digest));
}

static void hand_seal(hand *h) {
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_submission_encode(&payload, &h->s));
    omm_buf_clear(&h->envelope);
    CHECK_OK(
        omm_envelope_seal(&h->envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload), &h->key));
    omm_buf_fini(&payload);
}

static omm_reply_kind hand_send_sealed(hand *h, omm_bytes whole) {
    return hand_send(h, &(omm_request){.kind = OMM_REQUEST_SUBMIT,
                                       .envelope = omm_buf_view(&h->envelope),
                                       .data = whole});
}

omm_reply_kind hand_submit_whole(hand *h, omm_bytes whole) {
    hand_seal(h);
    return hand_send_sealed(h, whole);
}

omm_reply_kind hand_submit(hand *h) {
    return hand_submit_whole(h, (omm_bytes){0});
}

omm_reply_kind hand_submit_forged(hand *h) {
    hand_seal(h);
    h->envelope.data[h->envelope.size - 1] ^= 1;
    return hand_send_sealed(h, (omm_bytes){0});
}

omm_reply_kind hand_put_chunk(hand *h, uint32_t index) {
    return hand_send(h, &(omm_request){.kind = OMM_REQUEST_PUT,
                                       .digest = h->s.payload.digest,
                                       .index = index,
                                       .data = omm_chunk_view(omm_buf_view(&h->payload), index)});
}

omm_reply_kind hand_put(hand *h) {
    return hand_put_chunk(h, 0);
}

omm_err hand_refused(hand *h, omm_reply_kind kind) {
    omm_envelope opened;
    omm_receipt receipt;
    if (kind == OMM_REPLY_REFUSED) return h->said.reason;
    CHECK_EQ(kind, OMM_REPLY_RECEIPT); /* who is kept out reads it signed */
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_RECEIPT, h->said.envelope));
    CHECK_OK(omm_receipt_decode(&receipt, opened.payload, &h->arena));
    const omm_digest asked = omm_hash(omm_buf_view(&h->envelope));
    CHECK(!receipt.accepted && omm_digest_equal(&receipt.submission_digest, &asked));
    return receipt.reason;
}

omm_err hand_verdict(hand *h) {
    omm_envelope opened;
    omm_receipt receipt;
    if (hand_submit(h) != OMM_REPLY_RECEIPT) return OMM_ERR_STATE;
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_RECEIPT, h->said.envelope));
    CHECK_OK(omm_receipt_decode(&receipt, opened.payload, &h->arena));
    CHECK(receipt.accepted == (receipt.reason == OMM_OK));
    return receipt.reason;
}

void hand_begin(hand *h, fed *f, uint64_t number) {
    hand_open(h, f, number);
    CHECK_EQ(hand_enrol(h), OMM_REPLY_WAIT);
    CHECK_EQ(hand_poll(h), OMM_REPLY_OFFER);
    hand_train(h);
}

void hand_give(hand *h) {
    CHECK_EQ(hand_submit(h), OMM_REPLY_NEED);
    CHECK_EQ(hand_put(h), OMM_REPLY_WAIT);
}
