/* admission.c - see admission.h. */
#include "admission.h"

#include "omm/enrolment.h"
#include "omm/envelope.h"

#include <string.h>

omm_err admission_seal(omm_buf *envelope, const omm_node_options *node,
                       const admission_proof *proof) {
    omm_enrol enrol = {.coordinator = node->coordinator};
    omm_buf payload;
    if (node->token) {
        omm_invitation_use(&enrol, node->token, &node->key->public_key);
    } else if (proof) {
        enrol.has_work = true;
        enrol.challenge = proof->challenge;
        enrol.work = proof->work;
    }
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_enrol_encode(&payload, &enrol);
    if (err == OMM_OK)
        err = omm_envelope_seal(envelope, OMM_CONTEXT_ENROL, omm_buf_view(&payload), node->key);
    omm_buf_fini(&payload);
    return err;
}

omm_err admission_open(omm_digest *digest, uint32_t *bits, const omm_node_options *node,
                       omm_bytes bytes) {
    omm_envelope envelope;
    omm_challenge challenge;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = omm_envelope_open_as(&envelope, OMM_CONTEXT_CHALLENGE, bytes);
    if (err == OMM_OK && !omm_public_key_equal(&envelope.key, &node->coordinator))
        err = omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not the coordinator we pinned");
    if (err == OMM_OK) err = omm_challenge_decode(&challenge, envelope.payload, &arena);
    if (err == OMM_OK && node->run_id && strcmp(challenge.run_id, node->run_id) != 0)
        err =
            omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not the run we join", challenge.run_id);
    if (err == OMM_OK && challenge.bits > node->limits.work_bits_max)
        err = omm_raise(OMM_ERR_REFUSED_WORK, "bits: %u are asked for, our limit is %u",
                        challenge.bits, node->limits.work_bits_max);
    if (err == OMM_OK) {
        *digest = omm_hash(envelope.payload);
        *bits = challenge.bits;
    }
    omm_arena_fini(&arena);
    return err;
}

/* What a coordinator answers who is not let in.  One from before, that does not know the question, says something else. */
static bool keeps_out(omm_err reason) {
    return reason == OMM_ERR_REFUSED_KEY || reason == OMM_ERR_REFUSED_INVITATION ||
           reason == OMM_ERR_REFUSED_SIGNATURE || reason == OMM_ERR_REFUSED_FULL ||
           reason == OMM_ERR_REFUSED_LATE;
}

omm_err admission_read(admission_answer *out, const omm_node_options *node,
                       const omm_reply *reply) {
    omm_digest challenge;
    uint32_t bits;
    omm_err err = OMM_OK;
    *out = ADMISSION_IN;
    if (reply->kind == OMM_REPLY_WAIT && reply->retry_ms > 0) *out = ADMISSION_LATER;
    if (reply->kind == OMM_REPLY_REFUSED && keeps_out(reply->reason))
        err = omm_raise(reply->reason, "%s", reply->sentence);
    if (reply->kind == OMM_REPLY_CHALLENGE)
        err = admission_open(&challenge, &bits, node, reply->envelope);
    if (err != OMM_OK && err != OMM_ERR_NOMEM) *out = ADMISSION_REFUSED;
    return err;
}
