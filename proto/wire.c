/* wire.c - owns chunk arithmetic and the size of a faultless round. */
#include "omm/wire.h"

#include "internal.h"
#include "omm/envelope.h"
#include "omm/messages.h"

#include <string.h>

#define WHOLE_HEADERS_BYTES                                                                        \
    16u /* version, and tags and lengths of two fields: 2 + 2 x 4 bytes at most */

uint64_t omm_chunk_count(uint64_t size) {
    return size / OMM_CHUNK_BYTES + (size % OMM_CHUNK_BYTES != 0);
}

size_t omm_chunk_size(uint64_t size, uint64_t index) {
    if (index >= omm_chunk_count(size)) return 0;
    uint64_t left = size - index * OMM_CHUNK_BYTES;
    return left < OMM_CHUNK_BYTES ? (size_t)left : OMM_CHUNK_BYTES;
}

omm_bytes omm_chunk_view(omm_bytes data, uint64_t index) {
    size_t size = omm_chunk_size(data.size, index);
    if (size == 0) return omm_bytes_of(NULL, 0);
    return omm_bytes_of(data.data + (size_t)index * OMM_CHUNK_BYTES, size);
}

bool omm_wire_is_whole(size_t envelope_bytes, uint64_t blob_bytes) {
    return blob_bytes >= 1 && blob_bytes <= OMM_WHOLE_BYTES_MAX &&
           envelope_bytes + blob_bytes + WHOLE_HEADERS_BYTES <= OMM_MESSAGE_BYTES_MAX;
}

omm_err omm_blob_describe(omm_blob *out, omm_arena *arena, omm_bytes sent,
                          const omm_digest *canonical) {
    uint64_t count = omm_chunk_count(sent.size);
    if (count == 0) return omm_raise(OMM_ERR_FORMAT, "a blob has at least one byte");
    if (count > OMM_BLOB_CHUNKS_MAX) {
        return omm_raise(OMM_ERR_TOO_BIG, "blob of %zu bytes has %llu chunks, at most %u travel",
                         sent.size, (unsigned long long)count, OMM_BLOB_CHUNKS_MAX);
    }
    omm_digest *digests = omm_arena_alloc(arena, (size_t)count, sizeof *digests);
    if (!digests) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu chunk digests", (size_t)count);
    for (size_t i = 0; i < count; i++) digests[i] = omm_hash(omm_chunk_view(sent, i));
    *out = (omm_blob){.digest = omm_hash(sent),
                      .canonical = *canonical,
                      .size = sent.size,
                      .chunk_digests = digests,
                      .chunk_count = (size_t)count};
    return OMM_OK;
}

/* ---- sizes: protobuf-c computes them from lengths alone, the bytes are never looked at ---- */

static const uint8_t s_zero[32];

static ProtobufCBinaryData of_size(size_t size) {
    return (ProtobufCBinaryData){size, proto_data(omm_bytes_of(s_zero, 32)).data};
}

static uint64_t request_wire(Omm__Request *request) {
    request->version = OMM_WIRE_VERSION;
    return omm_wire_bytes(omm__request__get_packed_size(request));
}

static uint64_t reply_wire(Omm__Reply *reply) {
    reply->version = OMM_WIRE_VERSION;
    return omm_wire_bytes(omm__reply__get_packed_size(reply));
}

static uint64_t envelope_request(size_t bytes, bool is_poll) {
    Omm__Request request;
    omm__request__init(&request);
    request.body_case = is_poll ? OMM__REQUEST__BODY_POLL : OMM__REQUEST__BODY_SUBMIT;
    if (is_poll) {
        request.poll = of_size(bytes);
    } else {
        request.submit = of_size(bytes);
    }
    return request_wire(&request);
}

static uint64_t envelope_reply(size_t bytes, bool is_offer) {
    Omm__Reply reply;
    omm__reply__init(&reply);
    reply.body_case = is_offer ? OMM__REPLY__BODY_OFFER : OMM__REPLY__BODY_RECEIPT;
    if (is_offer) {
        reply.offer = of_size(bytes);
    } else {
        reply.receipt = of_size(bytes);
    }
    return reply_wire(&reply);
}

static void add_get_chunk(uint64_t *up, uint64_t *down, uint32_t index, size_t bytes) {
    Omm__Request request;
    omm__request__init(&request);
    Omm__GetChunk get;
    omm__get_chunk__init(&get);
    Omm__Reply reply;
    omm__reply__init(&reply);
    Omm__Chunk chunk;
    omm__chunk__init(&chunk);
    get.digest = chunk.digest = of_size(32);
    get.index = chunk.index = index;
    chunk.data = of_size(bytes);
    request.body_case = OMM__REQUEST__BODY_GET;
    request.get = &get;
    reply.body_case = OMM__REPLY__BODY_CHUNK;
    reply.chunk = &chunk;
    *up += request_wire(&request);
    *down += reply_wire(&reply);
}

static uint64_t put_chunk(uint32_t index, size_t bytes) {
    Omm__Request request;
    omm__request__init(&request);
    Omm__PutChunk put;
    omm__put_chunk__init(&put);
    put.digest = of_size(32);
    put.index = index;
    put.data = of_size(bytes);
    request.body_case = OMM__REQUEST__BODY_PUT;
    request.put = &put;
    return request_wire(&request);
}

static size_t varint_size(uint64_t value) {
    size_t n = 1;
    for (; value >= 0x80; value >>= 7) n++;
    return n;
}

/* Reply{need} that lists chunks first .. count - 1: a packed list of varints. */
static uint64_t need_reply(uint64_t first, uint64_t count) {
    size_t list = 0;
    for (uint64_t i = first; i < count; i++) list += varint_size(i);
    size_t need = list == 0 ? 0 : 1 + varint_size(list) + list;
    size_t version = 2;
    return omm_wire_bytes(version + 1 + varint_size(need) + need);
}

void omm_wire_round_bytes(uint64_t *up, uint64_t *down, const omm_wire_round *round) {
    uint64_t u = 0, d = 0;
    if (round->poll_bytes > 0) u += envelope_request(round->poll_bytes, true);
    if (round->offer_bytes > 0) d += envelope_reply(round->offer_bytes, true);
    uint64_t global_chunks = omm_chunk_count(round->global_bytes);
    for (uint64_t i = 0; i < global_chunks; i++) {
        add_get_chunk(&u, &d, (uint32_t)i, omm_chunk_size(round->global_bytes, i));
    }
    if (round->submission_bytes > 0) u += envelope_request(round->submission_bytes, false);
    uint64_t chunks = omm_chunk_count(round->payload_bytes);
    for (uint64_t i = 0; i < chunks; i++) {
        d += need_reply(i, chunks); /* to the submission, then to every chunk but the last */
        u += put_chunk((uint32_t)i, omm_chunk_size(round->payload_bytes, i));
    }
    if (round->receipt_bytes > 0) d += envelope_reply(round->receipt_bytes, false);
    *up = u;
    *down = d;
}

#define MANIFEST_BYTES 1024u /* a manifest in its envelope, without what has many parts */

size_t omm_wire_upload_bytes_max(uint64_t payload_max, uint32_t steps) {
    const size_t chunk = put_chunk(UINT32_MAX, omm_chunk_size(payload_max, 0));
    uint64_t submit = MANIFEST_BYTES + 8 * (uint64_t)steps +
                      omm_chunk_count(payload_max) * (sizeof(omm_digest) + 2);
    submit += payload_max < OMM_WHOLE_BYTES_MAX ? payload_max : OMM_WHOLE_BYTES_MAX;
    const uint64_t most = submit > chunk ? submit : chunk;
    return most < OMM_MESSAGE_BYTES_MAX ? (size_t)most : OMM_MESSAGE_BYTES_MAX;
}

size_t omm_wire_poll_bytes(uint32_t round) {
    Omm__Poll poll;
    omm__poll__init(&poll);
    Omm__Envelope envelope;
    omm__envelope__init(&envelope);
    char run_id[OMM_RUN_ID_SIZE];
    memset(run_id, '0', sizeof run_id - 1);
    run_id[sizeof run_id - 1] = '\0';
    poll.version = OMM_WIRE_VERSION;
    poll.run_id = run_id;
    poll.rounds_seen = round;
    poll.counter = (uint64_t)round + 1;
    envelope.context = of_size(OMM_CONTEXT_BYTES);
    envelope.payload = of_size(omm__poll__get_packed_size(&poll));
    envelope.public_key = of_size(32);
    envelope.signature = of_size(64);
    return omm__envelope__get_packed_size(&envelope);
}
