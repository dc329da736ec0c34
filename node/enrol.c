/* enrol.c - a node that polls is not known: what it shows to be let in, and the work for that. */
#include "admission.h"
#include "internal.h"

#include "omm/enrolment.h"

omm_err node_enrol_request(omm_buf *out, const omm_node *node) {
    const admission_proof proof = {node->challenge, node->proof};
    omm_buf envelope;
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = admission_seal(&envelope, &node->o, node->has_proof ? &proof : NULL);
    if (err == OMM_OK) {
        const omm_request request = {.kind = OMM_REQUEST_ENROL,
                                     .envelope = omm_buf_view(&envelope)};
        err = omm_request_encode(out, &request);
    }
    omm_buf_fini(&envelope);
    return err;
}

omm_err node_take_challenge(omm_node *node, omm_bytes envelope) {
    OMM_TRY(admission_open(&node->challenge, &node->challenge_bits, &node->o, envelope));
    node->has_challenge = true;
    node->has_proof = false;
    return OMM_OK;
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
