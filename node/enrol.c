/* enrol.c - what a node shows to be let in by a coordinator that does not know it. */
#include "internal.h"

#include "omm/enrolment.h"

#include <string.h>

omm_err node_enrol_request(omm_buf *out, const omm_node *node) {
    omm_enrol enrol = {.coordinator = node->o.coordinator};
    omm_buf payload;
    omm_buf envelope;
    if (node->o.token)
        omm_invitation_use(&enrol, node->o.token, &node->o.key->public_key);
    else if (node->has_proof) {
        enrol.has_work = true;
        enrol.challenge = node->challenge;
        enrol.work = node->proof;
    }
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_enrol_encode(&payload, &enrol);
    if (err == OMM_OK)
        err = omm_envelope_seal(&envelope, OMM_CONTEXT_ENROL, omm_buf_view(&payload), node->o.key);
    if (err == OMM_OK) {
        const omm_request request = {.kind = OMM_REQUEST_ENROL,
                                     .envelope = omm_buf_view(&envelope)};
        err = omm_request_encode(out, &request);
    }
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    return err;
}

omm_err node_take_challenge(omm_node *node, omm_bytes bytes) {
    omm_envelope envelope;
    omm_challenge challenge;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = omm_envelope_open_as(&envelope, OMM_CONTEXT_CHALLENGE, bytes);
    if (err == OMM_OK && !omm_public_key_equal(&envelope.key, &node->o.coordinator))
        err = omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not the coordinator we pinned");
    if (err == OMM_OK) err = omm_challenge_decode(&challenge, envelope.payload, &arena);
    if (err == OMM_OK && node->o.run_id && strcmp(challenge.run_id, node->o.run_id) != 0)
        err =
            omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not the run we join", challenge.run_id);
    if (err == OMM_OK && challenge.bits > node->o.limits.work_bits_max)
        err = omm_raise(OMM_ERR_REFUSED_WORK, "bits: %u are asked for, our limit is %u",
                        challenge.bits, node->o.limits.work_bits_max);
    if (err == OMM_OK) {
        node->challenge = omm_hash(envelope.payload);
        node->challenge_bits = challenge.bits;
        node->has_challenge = true;
        node->has_proof = false;
    }
    omm_arena_fini(&arena);
    return err;
}

#define PROVE_TRIES 4096u /* a few milliseconds */

omm_err node_prove(omm_node *node, bool (*is_cancelled)(void *ud)) {
    OMM_ASSERT(node->has_challenge);
    for (uint64_t from = 0;; from += PROVE_TRIES) {
        if (is_cancelled(node)) return omm_raise(OMM_ERR_CANCELLED, "work was cancelled");
        if (!omm_work_search(&node->proof, &node->challenge, &node->o.key->public_key,
                             node->challenge_bits, from, PROVE_TRIES))
            continue;
        node->has_proof = true;
        return OMM_OK;
    }
}
