/* enrolment.c - owns Enrol and the proof of an invitation. */
#include "omm/enrolment.h"

#include "internal.h"

#include "check.h"

#include "omm/envelope.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ENROL_BYTES_MAX 1024u
#define AS(type, message) ((const type *)(const void *)(message))

static const char s_prefix[] = "invite-";

/* ---- Enrol ---- */

static ProtobufCBinaryData key_view(const omm_public_key *key) {
    return proto_data(omm_bytes_of(key->b, sizeof key->b));
}

omm_err omm_enrol_encode(omm_buf *out, const omm_enrol *enrol) {
    Omm__Enrol pb;
    omm__enrol__init(&pb);
    pb.version = OMM_WIRE_VERSION;
    pb.coordinator_key = key_view(&enrol->coordinator);
    if (enrol->has_invitation) {
        pb.invitation_key = key_view(&enrol->invitation);
        pb.invitation_signature = proto_data(
            omm_bytes_of(enrol->invitation_signature.b, sizeof enrol->invitation_signature.b));
    }
    if (enrol->has_work) {
        pb.challenge = proto_digest(&enrol->challenge);
        pb.work = enrol->work;
    }
    return proto_pack(out, &pb.base, ENROL_BYTES_MAX);
}

static omm_err get_bytes(uint8_t *out, size_t size, ProtobufCBinaryData data, const char *field) {
    if (data.len != size)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s has %zu bytes, not %zu", field, data.len,
                         size);
    memcpy(out, data.data, size);
    return OMM_OK;
}

omm_err omm_enrol_decode(omm_enrol *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    omm_enrol enrol = {0};
    OMM_TRY(proto_check_size(in.size, 1, ENROL_BYTES_MAX, "Enrol"));
    OMM_TRY(proto_unpack(&message, &omm__enrol__descriptor, in, arena));
    const Omm__Enrol *pb = AS(Omm__Enrol, message);
    OMM_TRY(proto_check_version(pb->version, "Enrol"));
    OMM_TRY(get_bytes(enrol.coordinator.b, 32, pb->coordinator_key, "coordinator_key"));
    enrol.has_invitation = pb->invitation_key.len > 0 || pb->invitation_signature.len > 0;
    if (enrol.has_invitation) {
        OMM_TRY(get_bytes(enrol.invitation.b, 32, pb->invitation_key, "invitation_key"));
        OMM_TRY(get_bytes(enrol.invitation_signature.b, 64, pb->invitation_signature,
                          "invitation_signature"));
    }
    enrol.has_work = pb->challenge.len > 0;
    if (enrol.has_work) OMM_TRY(proto_get_digest(&enrol.challenge, pb->challenge, "challenge"));
    enrol.work = pb->work;
    if (enrol.work && !enrol.has_work)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "work without the challenge that it is for");
    *out = enrol;
    return OMM_OK;
}

/* ---- Challenge ---- */

static omm_err check_challenge(const omm_challenge *challenge) {
    OMM_TRY(check_run_id(challenge->run_id, false));
    if (challenge->bits >= 1 && challenge->bits <= OMM_WORK_BITS_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "bits is %u, allowed are 1 to %u", challenge->bits,
                     OMM_WORK_BITS_MAX);
}

omm_err omm_challenge_encode(omm_buf *out, const omm_challenge *challenge) {
    Omm__Challenge pb;
    omm__challenge__init(&pb);
    OMM_TRY(check_challenge(challenge));
    pb.version = OMM_WIRE_VERSION;
    pb.run_id = proto_text(challenge->run_id);
    pb.seed = proto_digest(&challenge->seed);
    pb.bits = challenge->bits;
    return proto_pack(out, &pb.base, ENROL_BYTES_MAX);
}

omm_err omm_challenge_decode(omm_challenge *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    omm_challenge challenge = {0};
    OMM_TRY(proto_check_size(in.size, 1, ENROL_BYTES_MAX, "Challenge"));
    OMM_TRY(proto_unpack(&message, &omm__challenge__descriptor, in, arena));
    const Omm__Challenge *pb = AS(Omm__Challenge, message);
    OMM_TRY(proto_check_version(pb->version, "Challenge"));
    OMM_TRY(check_run_id(pb->run_id, false));
    (void)snprintf(challenge.run_id, sizeof challenge.run_id, "%s", pb->run_id);
    OMM_TRY(proto_get_digest(&challenge.seed, pb->seed, "seed"));
    challenge.bits = pb->bits;
    OMM_TRY(check_challenge(&challenge));
    *out = challenge;
    return OMM_OK;
}

/* ---- work ---- */

#define WORK_BYTES (OMM_CONTEXT_BYTES + 64u + 8u)

static void work_begin(uint8_t out[WORK_BYTES], const omm_digest *challenge,
                       const omm_public_key *node) {
    omm_context_bytes(out, OMM_CONTEXT_WORK);
    memcpy(out + OMM_CONTEXT_BYTES, challenge->b, 32);
    memcpy(out + OMM_CONTEXT_BYTES + 32, node->b, 32);
}

static uint32_t zero_bits(const omm_digest *d) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < sizeof d->b; i++) {
        if (d->b[i] == 0) {
            bits += 8;
            continue;
        }
        for (uint8_t b = d->b[i]; !(b & 0x80); b = (uint8_t)(b << 1)) bits++;
        break;
    }
    return bits;
}

static uint32_t work_try(uint8_t bytes[WORK_BYTES], uint64_t work) {
    omm_put_u64(bytes + OMM_CONTEXT_BYTES + 64, work);
    const omm_digest digest = omm_hash(omm_bytes_of(bytes, WORK_BYTES));
    return zero_bits(&digest);
}

uint32_t omm_work_bits(const omm_digest *challenge, const omm_public_key *node, uint64_t work) {
    uint8_t bytes[WORK_BYTES];
    work_begin(bytes, challenge, node);
    return work_try(bytes, work);
}

bool omm_work_search(uint64_t *found, const omm_digest *challenge, const omm_public_key *node,
                     uint32_t bits, uint64_t from, uint64_t count) {
    uint8_t bytes[WORK_BYTES];
    work_begin(bytes, challenge, node);
    for (uint64_t i = 0; i < count; i++) {
        if (work_try(bytes, from + i) < bits) continue;
        *found = from + i;
        return true;
    }
    return false;
}

/* ---- invitations ---- */

void omm_invitation_text(char out[OMM_INVITATION_TEXT_SIZE], const omm_seed *token) {
    memcpy(out, s_prefix, sizeof s_prefix);
    omm_hex(out + sizeof s_prefix - 1, omm_bytes_of(token->b, sizeof token->b));
}

omm_err omm_invitation_parse(omm_seed *out, const char *text) {
    const size_t prefix = sizeof s_prefix - 1;
    char digits[2 * sizeof out->b + 1];
    while (isspace((unsigned char)*text)) text++;
    size_t size = strlen(text);
    while (size > 0 && isspace((unsigned char)text[size - 1])) size--;
    omm_err err = size == prefix + sizeof digits - 1 && strncmp(text, s_prefix, prefix) == 0
                      ? OMM_OK
                      : OMM_ERR_FORMAT;
    if (err == OMM_OK) {
        memcpy(digits, text + prefix, sizeof digits - 1);
        digits[sizeof digits - 1] = '\0';
        err = omm_unhex(out->b, sizeof out->b, digits);
        explicit_bzero(digits, sizeof digits);
    }
    if (err == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "not an invitation; accepted: invite- and 64 lower-case hex "
                                     "digits, as `coordinator ctl invite` prints it");
}

omm_digest omm_invitation_id(const omm_seed *token) {
    omm_key key;
    omm_key_from_seed(&key, token);
    const omm_digest id = omm_key_id(&key.public_key);
    omm_key_wipe(&key);
    return id;
}

#define STATEMENT_BYTES (OMM_CONTEXT_BYTES + 64u)

static omm_bytes statement(uint8_t out[STATEMENT_BYTES], const omm_enrol *enrol,
                           const omm_public_key *node) {
    omm_context_bytes(out, OMM_CONTEXT_INVITATION);
    memcpy(out + OMM_CONTEXT_BYTES, enrol->coordinator.b, 32);
    memcpy(out + OMM_CONTEXT_BYTES + 32, node->b, 32);
    return omm_bytes_of(out, STATEMENT_BYTES);
}

void omm_invitation_use(omm_enrol *enrol, const omm_seed *token, const omm_public_key *node) {
    uint8_t bytes[STATEMENT_BYTES];
    omm_key key;
    omm_key_from_seed(&key, token);
    enrol->has_invitation = true;
    enrol->invitation = key.public_key;
    enrol->invitation_signature = omm_sign(&key, statement(bytes, enrol, node));
    omm_key_wipe(&key);
}

omm_err omm_invitation_check(const omm_enrol *enrol, const omm_public_key *node) {
    uint8_t bytes[STATEMENT_BYTES];
    OMM_ASSERT(enrol->has_invitation);
    if (omm_verify(&enrol->invitation, &enrol->invitation_signature,
                   statement(bytes, enrol, node)) == OMM_OK)
        return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIGNATURE,
                     "invitation_signature: not of this invitation for this node and coordinator");
}
