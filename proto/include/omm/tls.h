/* tls.h - keys and certificates of tls+tcp:// connections.
 *
 * TLS hides what passes from those in between and costs a stranger a handshake; who said what is told
 * by the signatures of envelopes, as everywhere.  So a certificate here is no passport from an authority:
 * a coordinator makes one (self-signed, P-256, CN and DNS name OMM_TLS_NAME, no end), gives it to its
 * nodes beside its public key, and a node accepts that certificate and no other.  A file of several
 * certificates accepts any of them: how an operator changes one without losing a node.
 *
 * Depends on: base; mbedtls.  Threads: any.
 */
#ifndef OMM_TLS_H
#define OMM_TLS_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"

/* The name in every certificate, and the one that a node asks for: nodes find a coordinator by
 * address, and addresses change. */
#define OMM_TLS_NAME "openmeshmind"
#define OMM_TLS_PEM_BYTES_MAX 65536u /* of a file of certificates or a key */

/* Append a new certificate and its secret key, both PEM, to buffers of at least 4 KiB.  The caller wipes
 * the key.  Errors: NOMEM, TOO_BIG, IO (no randomness). */
OMM_CHECKED omm_err omm_tls_make(omm_buf *certificate, omm_buf *key);
/* SHA-256 of the first certificate of a PEM file, as `openssl x509 -fingerprint -sha256` prints it.
 * Errors: FORMAT, NOMEM. */
OMM_CHECKED omm_err omm_tls_fingerprint(omm_digest *out, omm_bytes certificates);
/* Is `key` the secret half of the first certificate?  Errors: FORMAT (which of the two is no PEM),
 * MISMATCH (they are not of one pair), NOMEM. */
OMM_CHECKED omm_err omm_tls_check_pair(omm_bytes certificates, omm_bytes key);
/* Is one of them valid now, by the system's clock?  Who connects asks it.  Errors: MISMATCH (says from when to when), FORMAT,
 * NOMEM. */
OMM_CHECKED omm_err omm_tls_check_time(omm_bytes certificates);

#endif
