/* envelope.c - owns signed envelopes. */
#include "omm/envelope.h"

#include "internal.h"

#include <string.h>

#define SIGNATURE_BYTES 64u
/* context 34, payload tag and length 4, key 34, signature 66 */
#define ENVELOPE_EXTRA_BYTES 138u
#define PAYLOAD_BYTES_MAX (OMM_ENVELOPE_BYTES_MAX - ENVELOPE_EXTRA_BYTES)

void omm_context_bytes(uint8_t out[OMM_CONTEXT_BYTES], omm_context context) {
    static const char texts[][OMM_CONTEXT_BYTES] = {
        [OMM_CONTEXT_POLL] = "omm.poll.v1",
        [OMM_CONTEXT_OFFER] = "omm.offer.v1",
        [OMM_CONTEXT_SUBMISSION] = "omm.submission.v1",
        [OMM_CONTEXT_RECEIPT] = "omm.receipt.v1",
        [OMM_CONTEXT_CLOSE] = "omm.close.v1",
        [OMM_CONTEXT_ENROL] = "omm.enrol.v1",
        [OMM_CONTEXT_CHALLENGE] = "omm.challenge.v1",
        [OMM_CONTEXT_WORK] = "omm.work.v1",
        [OMM_CONTEXT_INVITATION] = "omm.invitation.v1",
        [OMM_CONTEXT_BASE] = "omm.base.v1",
    };
    OMM_ASSERT((size_t)context < sizeof texts / sizeof texts[0]);
    memcpy(out, texts[context], OMM_CONTEXT_BYTES);
}

/* context || payload, the bytes that are signed; fini the buffer. */
static omm_err signed_bytes(omm_buf *out, const uint8_t context[OMM_CONTEXT_BYTES],
                            omm_bytes payload) {
    omm_buf_init(out, OMM_CONTEXT_BYTES + (size_t)OMM_ENVELOPE_BYTES_MAX);
    OMM_TRY(omm_buf_reserve(out, OMM_CONTEXT_BYTES + payload.size));
    OMM_TRY(omm_buf_append(out, context, OMM_CONTEXT_BYTES));
    return omm_buf_append(out, payload.data, payload.size);
}

static omm_err check_payload(omm_bytes payload) {
    if (payload.size == 0) return omm_raise(OMM_ERR_FORMAT, "an envelope has a payload");
    if (payload.size > PAYLOAD_BYTES_MAX) {
        return omm_raise(OMM_ERR_TOO_BIG, "envelope payload has %zu bytes, at most %u are allowed",
                         payload.size, PAYLOAD_BYTES_MAX);
    }
    return OMM_OK;
}

omm_err omm_envelope_seal(omm_buf *out, omm_context context, omm_bytes payload,
                          const omm_key *key) {
    omm_buf message;
    OMM_TRY(check_payload(payload));
    omm_envelope envelope = {.payload = payload, .key = key->public_key, .is_signed = true};
    omm_context_bytes(envelope.context, context);
    omm_err err = signed_bytes(&message, envelope.context, payload);
    if (err == OMM_OK) {
        envelope.signature = omm_sign(key, omm_buf_view(&message));
        err = omm_envelope_encode(out, &envelope);
    }
    omm_buf_fini(&message);
    return err;
}

omm_err omm_envelope_encode(omm_buf *out, const omm_envelope *envelope) {
    Omm__Envelope pb;
    omm__envelope__init(&pb);
    OMM_TRY(check_payload(envelope->payload));
    pb.context = proto_data(omm_bytes_of(envelope->context, OMM_CONTEXT_BYTES));
    pb.payload = proto_data(envelope->payload);
    pb.public_key = proto_data(omm_bytes_of(envelope->key.b, sizeof envelope->key.b));
    if (envelope->is_signed) {
        pb.signature = proto_data(omm_bytes_of(envelope->signature.b, SIGNATURE_BYTES));
    }
    return proto_pack(out, &pb.base, OMM_ENVELOPE_BYTES_MAX);
}

/* In the one spelling the payload follows context (34 bytes), its tag and its minimal length. */
static omm_bytes payload_in(omm_bytes in, size_t size) {
    size_t start = 2 + OMM_CONTEXT_BYTES + 1;
    for (size_t v = size; v >= 0x80; v >>= 7) start++;
    start++;
    OMM_ASSERT(start + size <= in.size);
    return omm_bytes_of(in.data + start, size);
}

static omm_err read_envelope(omm_envelope *out, const Omm__Envelope *pb, omm_bytes in) {
    omm_envelope e = {.is_signed = pb->signature.len > 0};
    if (pb->context.len != OMM_CONTEXT_BYTES) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "envelope context has %zu bytes, not %u",
                         pb->context.len, OMM_CONTEXT_BYTES);
    }
    OMM_TRY(proto_check_size(pb->payload.len, 1, PAYLOAD_BYTES_MAX, "envelope payload"));
    if (pb->public_key.len != sizeof e.key.b) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "envelope key has %zu bytes, not %zu",
                         pb->public_key.len, sizeof e.key.b);
    }
    if (e.is_signed && pb->signature.len != SIGNATURE_BYTES) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "envelope signature has %zu bytes, not %u",
                         pb->signature.len, SIGNATURE_BYTES);
    }
    memcpy(e.context, pb->context.data, OMM_CONTEXT_BYTES);
    memcpy(e.key.b, pb->public_key.data, sizeof e.key.b);
    if (e.is_signed) memcpy(e.signature.b, pb->signature.data, SIGNATURE_BYTES);
    e.payload = payload_in(in, pb->payload.len);
    *out = e;
    return OMM_OK;
}

omm_err omm_envelope_open(omm_envelope *out, omm_bytes in) {
    omm_arena arena;
    ProtobufCMessage *message;
    OMM_TRY(proto_check_size(in.size, 1, OMM_ENVELOPE_BYTES_MAX, "envelope"));
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = proto_unpack(&message, &omm__envelope__descriptor, in, &arena);
    if (err == OMM_OK) err = read_envelope(out, (const Omm__Envelope *)(void *)message, in);
    omm_arena_fini(&arena);
    return err;
}

omm_err omm_envelope_verify(const omm_envelope *envelope, omm_context want) {
    uint8_t context[OMM_CONTEXT_BYTES];
    omm_buf message;
    if (!envelope->is_signed) {
        return omm_raise(OMM_ERR_REFUSED_SIGNATURE, "envelope carries no signature");
    }
    omm_err err = signed_bytes(&message, envelope->context, envelope->payload);
    bool is_good = err == OMM_OK && omm_verify(&envelope->key, &envelope->signature,
                                               omm_buf_view(&message)) == OMM_OK;
    omm_buf_fini(&message);
    OMM_TRY(err);
    if (!is_good) {
        return omm_raise(OMM_ERR_REFUSED_SIGNATURE, "envelope signature does not verify");
    }
    omm_context_bytes(context, want);
    if (memcmp(context, envelope->context, OMM_CONTEXT_BYTES) != 0) {
        return omm_raise(OMM_ERR_REFUSED_CONTEXT, "envelope was signed for another purpose than %s",
                         (const char *)context);
    }
    return OMM_OK;
}

omm_err omm_envelope_open_as(omm_envelope *out, omm_context want, omm_bytes in) {
    omm_envelope envelope;
    OMM_TRY(omm_envelope_open(&envelope, in));
    OMM_TRY(omm_envelope_verify(&envelope, want));
    *out = envelope;
    return OMM_OK;
}
