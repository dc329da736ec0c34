/* envelope.h - who said what, for which purpose: the only thing in the protocol that is signed.
 *
 *   Envelope  { context: 32 bytes, zero-padded ASCII | payload | public key: 32 | signature: 64 }
 *   signature = Ed25519 over context || payload
 *
 * What was received is stored and hashed as received; an envelope has exactly one spelling, any
 * other encoding of the same fields is refused.
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef OMM_ENVELOPE_H
#define OMM_ENVELOPE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/sign.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_CONTEXT_BYTES 32u
#define OMM_ENVELOPE_BYTES_MAX 262144u /* leaves room for the message around it */

/* What a signature is for.  The texts are on the wire. */
typedef enum omm_context {
    OMM_CONTEXT_POLL,       /* "omm.poll.v1" */
    OMM_CONTEXT_OFFER,      /* "omm.offer.v1" */
    OMM_CONTEXT_SUBMISSION, /* "omm.submission.v1" */
    OMM_CONTEXT_RECEIPT,    /* "omm.receipt.v1" */
    OMM_CONTEXT_CLOSE,      /* "omm.close.v1" */
    OMM_CONTEXT_ENROL,      /* "omm.enrol.v1" */
    OMM_CONTEXT_CHALLENGE,  /* "omm.challenge.v1" */
    OMM_CONTEXT_INVITATION, /* "omm.invitation.v1"; of no envelope, but of what an invitation signs */
    OMM_CONTEXT_WORK,       /* "omm.work.v1"; begins what is hashed for a proof of work */
    OMM_CONTEXT_BASE,       /* "omm.base.v1" */
} omm_context;

void omm_context_bytes(uint8_t out[OMM_CONTEXT_BYTES], omm_context context);

typedef struct omm_envelope {
    uint8_t context[OMM_CONTEXT_BYTES];
    omm_bytes payload; /* borrowed from what was opened */
    omm_public_key key;
    bool is_signed; /* false: the signature field was empty */
    omm_signature signature;
} omm_envelope;

/* Append the envelope of `payload`, signed with `key`.
 * Errors: NOMEM, TOO_BIG (payload, or out->bytes_max), FORMAT (empty payload). */
OMM_CHECKED omm_err omm_envelope_seal(omm_buf *out, omm_context context, omm_bytes payload,
                                      const omm_key *key);
/* Append an envelope as it stands, without a signature when !is_signed: for tests and tools. */
OMM_CHECKED omm_err omm_envelope_encode(omm_buf *out, const omm_envelope *envelope);

/* Take apart, without believing anything: out->payload points into `in`.
 * Errors: REFUSED_SIZE, REFUSED_FORMAT, NOMEM.  On error `out` is untouched. */
OMM_CHECKED omm_err omm_envelope_open(omm_envelope *out, omm_bytes in);

/* The signature is the key's, over the context and payload, and the context is `want`.
 * Errors: REFUSED_SIGNATURE, REFUSED_CONTEXT (well signed for another purpose), NOMEM. */
OMM_CHECKED omm_err omm_envelope_verify(const omm_envelope *envelope, omm_context want);

/* open + verify. */
OMM_CHECKED omm_err omm_envelope_open_as(omm_envelope *out, omm_context want, omm_bytes in);

#endif
