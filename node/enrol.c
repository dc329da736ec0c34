/* enrol.c - what a node shows to be let in by a coordinator that does not know it. */
#include "internal.h"

#include "omm/enrolment.h"

omm_err node_enrol_request(omm_buf *out, const omm_node *node) {
    omm_enrol enrol = {.coordinator = node->o.coordinator};
    omm_buf payload;
    omm_buf envelope;
    OMM_ASSERT(node->o.token);
    omm_invitation_use(&enrol, node->o.token, &node->o.key->public_key);
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
