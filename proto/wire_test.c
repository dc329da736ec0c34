/* Chunk arithmetic, and the computed bytes of a round against a round that really passed. */
#include "omm/wire.h"

#include "omm/envelope.h"
#include "omm/messages.h"
#include "omm/transport.h"
#include "omm_test.h"
#include "samples.h"

#include <string.h>

static void test_chunks(void) {
    static const uint64_t sizes[] = {0,
                                     1,
                                     OMM_CHUNK_BYTES - 1,
                                     OMM_CHUNK_BYTES,
                                     OMM_CHUNK_BYTES + 1,
                                     (uint64_t)3 * OMM_CHUNK_BYTES,
                                     UINT64_MAX};
    static const uint64_t counts[] = {0, 1, 1, 1, 2, 3, (uint64_t)1 << 46};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK_EQ(omm_chunk_count(sizes[i]), counts[i]);
        CHECK_EQ(omm_chunk_size(sizes[i], counts[i]), 0);
        if (counts[i] == 0) continue;
        uint64_t last = omm_chunk_size(sizes[i], counts[i] - 1);
        CHECK_EQ((counts[i] - 1) * OMM_CHUNK_BYTES + last, sizes[i]);
    }
    static uint8_t data[OMM_CHUNK_BYTES + 7];
    omm_bytes view = omm_chunk_view(omm_bytes_of(data, sizeof data), 1);
    CHECK(view.data == data + OMM_CHUNK_BYTES);
    CHECK_EQ(view.size, 7);
    CHECK_EQ(omm_chunk_view(omm_bytes_of(data, sizeof data), 2).size, 0);
}

static void test_describe(void) {
    static uint8_t data[2 * OMM_CHUNK_BYTES + 9];
    omm_arena arena;
    omm_blob blob;
    omm_digest canonical = sample_digest(1);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i >> 9);
    omm_bytes view = omm_bytes_of(data, sizeof data);
    omm_arena_init(&arena, 100000);
    CHECK_OK(omm_blob_describe(&blob, &arena, view, &canonical));
    CHECK_EQ(blob.chunk_count, 3);
    CHECK_EQ(blob.size, sizeof data);
    omm_digest whole = omm_hash(view);
    CHECK(omm_digest_equal(&blob.digest, &whole));
    for (size_t i = 0; i < 3; i++) {
        omm_digest d = omm_hash(omm_chunk_view(view, i));
        CHECK(omm_digest_equal(&d, &blob.chunk_digests[i]));
    }
    CHECK_ERR(omm_blob_describe(&blob, &arena, omm_bytes_of(data, 0), &canonical), OMM_ERR_FORMAT);
    omm_bytes huge = {data, (size_t)OMM_CHUNK_BYTES * OMM_BLOB_CHUNKS_MAX + 1};
    CHECK_ERR(omm_blob_describe(&blob, &arena, huge, &canonical), OMM_ERR_TOO_BIG);
    omm_arena_fini(&arena);
    omm_arena_init(&arena, 0);
    CHECK_ERR(omm_blob_describe(&blob, &arena, view, &canonical), OMM_ERR_NOMEM);
    omm_arena_fini(&arena);
}

static void test_nominal_poll(void) {
    static const uint32_t rounds[] = {0, 1, 126, 127, 128, 20000};
    omm_key key;
    omm_key_generate(&key);
    for (unsigned i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        omm_poll poll = sample_poll();
        omm_buf payload, envelope;
        omm_buf_init(&payload, 1000);
        omm_buf_init(&envelope, 1000);
        poll.rounds_seen = rounds[i];
        poll.counter = (uint64_t)rounds[i] + 1;
        CHECK_OK(omm_poll_encode(&payload, &poll));
        CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_POLL, omm_buf_view(&payload), &key));
        CHECK_EQ(envelope.size, omm_wire_poll_bytes(rounds[i]));
        omm_buf_fini(&envelope);
        omm_buf_fini(&payload);
    }
}

static uint8_t s_bytes[3 * OMM_CHUNK_BYTES];

/* The largest requests of a submission against what is said of them: never less, and little more.  Returns the largest. */
static size_t check_upload(uint64_t payload, uint32_t steps) {
    enum { CHUNKS = 4, STEPS = 16000 };
    static uint8_t digests[8 * STEPS], codec[OMM_CODEC_FIELD_MAX];
    omm_digest chunks[CHUNKS] = {{{0}}};
    omm_key key;
    omm_buf plain, sealed, out;
    omm_buf_init(&plain, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&sealed, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&out, OMM_MESSAGE_BYTES_MAX);
    omm_key_generate(&key);
    omm_submission s = sample_submission();
    s.tokens = s.examples = UINT64_MAX;
    s.round = s.steps = UINT32_MAX;
    s.codec = omm_bytes_of(codec, sizeof codec);
    s.payload.size = payload;
    s.payload.chunk_digests = chunks;
    s.payload.chunk_count = omm_chunk_count(payload);
    s.step_digests = omm_bytes_of(digests, 8 * (size_t)steps);
    CHECK(s.payload.chunk_count <= CHUNKS && steps <= STEPS);
    CHECK_OK(omm_submission_encode(&plain, &s));
    CHECK_OK(omm_envelope_seal(&sealed, OMM_CONTEXT_SUBMISSION, omm_buf_view(&plain), &key));
    omm_request submit = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&sealed)};
    if (omm_wire_is_whole(sealed.size, payload))
        submit.data = omm_bytes_of(s_bytes, (size_t)payload);
    CHECK_OK(omm_request_encode(&out, &submit));
    size_t most = out.size;
    omm_buf_clear(&out);
    omm_request put = {.kind = OMM_REQUEST_PUT, .digest = sample_digest(1), .index = CHUNKS};
    put.data = omm_bytes_of(s_bytes, omm_chunk_size(payload, 0));
    CHECK_OK(omm_request_encode(&out, &put));
    if (out.size > most) most = out.size;
    CHECK(most <= omm_wire_upload_bytes_max(payload, steps));
    CHECK(omm_wire_upload_bytes_max(payload, steps) <
          most + 1024 + (most < OMM_WHOLE_BYTES_MAX ? 0 : OMM_WHOLE_BYTES_MAX));
    omm_buf_fini(&out);
    omm_buf_fini(&sealed);
    omm_buf_fini(&plain);
    return most;
}

static void test_upload_bytes(void) {
    check_upload(1, 1);
    check_upload(6800, 25);
    const size_t whole = check_upload(OMM_WHOLE_BYTES_MAX, 100);
    /* "up to" a byte more is this one, too */
    CHECK(whole <= omm_wire_upload_bytes_max(OMM_WHOLE_BYTES_MAX + 1, 100));
    check_upload(OMM_WHOLE_BYTES_MAX + 1, 100);
    check_upload(3 * (uint64_t)OMM_CHUNK_BYTES, 1);
    check_upload(OMM_CHUNK_BYTES + 1, 16000);
    check_upload(100, 16000);
    CHECK_EQ(omm_wire_upload_bytes_max((uint64_t)1 << 40, UINT32_MAX), OMM_MESSAGE_BYTES_MAX);
}

/* ---- a round over the transport, counted where it passes ---- */

typedef struct line {
    omm_server *server;
    omm_client *client;
    omm_buf request, reply;
} line;

static void exchange(line *l, const omm_request *request, const omm_reply *reply) {
    omm_exchange *taken;
    omm_bytes got;
    omm_buf_clear(&l->request);
    omm_buf_clear(&l->reply);
    CHECK_OK(omm_request_encode(&l->request, request));
    CHECK_OK(omm_reply_encode(&l->reply, reply));
    CHECK_OK(omm_client_send(l->client, omm_buf_view(&l->request)));
    CHECK_OK(omm_server_receive(&taken, &got, l->server, 10000));
    CHECK_OK(omm_exchange_reply(taken, omm_buf_view(&l->reply)));
    CHECK_OK(omm_client_receive(&got, l->client, 10000));
}

static void download(line *l, uint64_t size) {
    for (uint32_t i = 0; i < omm_chunk_count(size); i++) {
        omm_request get = {.kind = OMM_REQUEST_GET, .digest = sample_digest(1), .index = i};
        omm_reply chunk = {.kind = OMM_REPLY_CHUNK, .digest = sample_digest(1), .index = i};
        chunk.data = omm_bytes_of(s_bytes, omm_chunk_size(size, i));
        exchange(l, &get, &chunk);
    }
}

/* Submission, then every chunk; each answer but the last lists what is missing. */
static void upload(line *l, const omm_wire_round *round) {
    uint32_t indices[300];
    uint32_t count = (uint32_t)omm_chunk_count(round->payload_bytes);
    for (uint32_t i = 0; i < count; i++) indices[i] = i;
    omm_request submit = {.kind = OMM_REQUEST_SUBMIT};
    submit.envelope = omm_bytes_of(s_bytes, round->submission_bytes);
    omm_reply need = {.kind = OMM_REPLY_NEED, .missing = indices, .missing_count = count};
    exchange(l, &submit, &need);
    for (uint32_t i = 0; i < count; i++) {
        omm_request put = {.kind = OMM_REQUEST_PUT, .digest = sample_digest(1), .index = i};
        put.data = omm_bytes_of(s_bytes, omm_chunk_size(round->payload_bytes, i));
        omm_reply reply = {.kind = OMM_REPLY_NEED};
        reply.missing = indices + i + 1;
        reply.missing_count = count - i - 1;
        if (i + 1 == count) {
            reply.kind = OMM_REPLY_RECEIPT;
            reply.envelope = omm_bytes_of(s_bytes, round->receipt_bytes);
        }
        exchange(l, &put, &reply);
    }
}

static void check_round(const omm_wire_round *round) {
    line l;
    omm_wire_count count;
    uint64_t up, down;
    omm_server_options options = omm_server_options_default();
    omm_client_options client_options = omm_client_options_default();
    omm_buf_init(&l.request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&l.reply, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_server_open(&l.server, &options));
    CHECK_OK(omm_server_listen(l.server, "inproc://round"));
    CHECK_OK(omm_client_open(&l.client, "inproc://round", &client_options));
    omm_request poll = {.kind = OMM_REQUEST_POLL};
    omm_reply offer = {.kind = OMM_REPLY_OFFER};
    poll.envelope = omm_bytes_of(s_bytes, round->poll_bytes);
    offer.envelope = omm_bytes_of(s_bytes, round->offer_bytes);
    exchange(&l, &poll, &offer);
    download(&l, round->global_bytes);
    if (round->submission_bytes > 0) upload(&l, round);
    omm_server_count(&count, l.server);
    omm_wire_round_bytes(&up, &down, round);
    CHECK_EQ(count.bytes_in, up);
    CHECK_EQ(count.bytes_out, down);
    omm_client_close(l.client);
    omm_server_close(l.server);
    omm_buf_fini(&l.reply);
    omm_buf_fini(&l.request);
}

static void test_round_bytes(void) {
    check_round(&(omm_wire_round){180, 700, 1000, 600, 900, 300});
    check_round(&(omm_wire_round){120, 128, OMM_CHUNK_BYTES, 127, OMM_CHUNK_BYTES + 1, 129});
    check_round(&(omm_wire_round){200, 70000, (uint64_t)3 * OMM_CHUNK_BYTES, 20000,
                                  (uint64_t)2 * OMM_CHUNK_BYTES + 130, 310});
    check_round(
        &(omm_wire_round){180, 700, (uint64_t)5 * OMM_CHUNK_BYTES, 0, 0, 0}); /* dropped out */
}

/* Lists of chunk indices that need one and two bytes each. */
static void test_long_need(void) {
    omm_wire_round round = {180, 700, 1, 600, (uint64_t)130 * OMM_CHUNK_BYTES, 300};
    uint64_t up, down, want = 0;
    omm_buf out;
    uint32_t indices[130];
    omm_buf_init(&out, OMM_MESSAGE_BYTES_MAX);
    for (uint32_t i = 0; i < 130; i++) indices[i] = i;
    for (uint32_t i = 0; i < 130; i++) {
        omm_reply need = {.kind = OMM_REPLY_NEED, .missing = indices + i};
        need.missing_count = 130 - i;
        omm_buf_clear(&out);
        CHECK_OK(omm_reply_encode(&out, &need));
        want += omm_wire_bytes(out.size);
    }
    omm_wire_round_bytes(&up, &down, &round);
    round.payload_bytes = 0;
    uint64_t up_without, down_without;
    omm_wire_round_bytes(&up_without, &down_without, &round);
    CHECK_EQ(down - down_without, want);
    omm_buf_fini(&out);
}

int main(void) {
    test_chunks();
    test_describe();
    test_nominal_poll();
    test_upload_bytes();
    test_round_bytes();
    test_long_need();
    return 0;
}
