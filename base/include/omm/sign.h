/* sign.h - Ed25519 keys and signatures, key files, and minisign-compatible file signatures.
 *
 * Depends on: err, bytes, hash, rng.  Threads: no shared state.
 * Source: RFC 8032; minisign file formats (jedisct1.github.io/minisign).
 */
#ifndef OMM_SIGN_H
#define OMM_SIGN_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct omm_public_key {
    uint8_t b[32];
} omm_public_key;
typedef struct omm_signature {
    uint8_t b[64];
} omm_signature;
/* Wipe with omm_key_wipe when done. */
typedef struct omm_key {
    uint8_t secret[64];
    omm_public_key public_key;
} omm_key;

void omm_key_from_seed(omm_key *out, const omm_seed *seed);
void omm_key_generate(omm_key *out);
void omm_key_wipe(omm_key *key);
bool omm_public_key_equal(const omm_public_key *a, const omm_public_key *b);

/* BLAKE2b-256 of the public key: a node's id on the wire and in evidence. */
omm_digest omm_key_id(const omm_public_key *key);

/* Deterministic signature over `message`. */
omm_signature omm_sign(const omm_key *key, omm_bytes message);
/* Errors: SIGNATURE. */
OMM_CHECKED omm_err omm_verify(const omm_public_key *key, const omm_signature *sig,
                               omm_bytes message);

/* Key file: one JSON object {"schema_version":1,"kind":"omm-secret-key","secret":hex,"public":hex},
 * mode 0600.  Load refuses a file that others can read (CONFIG) and a public part that does not
 * belong to the secret (MISMATCH).  Save refuses to overwrite (EXISTS). */
OMM_CHECKED omm_err omm_key_save(const char *path, const omm_key *key);
OMM_CHECKED omm_err omm_key_load(omm_key *out, const char *path);

/* minisign: a prehashed ("ED") signature file over `data`, and its check.  `key_id` is the first
 * 8 bytes of omm_key_id.  `comment` goes in the trusted comment and is signed too.
 * The public key text is what `minisign -P` takes. */
#define OMM_MINISIGN_PUBLIC_SIZE 57u /* 56 base64 characters and a NUL */
/* Errors of the parser: FORMAT, also when the key id is not the one above: our keys only. */
void omm_minisign_public(char out[OMM_MINISIGN_PUBLIC_SIZE], const omm_public_key *key);
OMM_CHECKED omm_err omm_minisign_public_parse(omm_public_key *out, const char *text);
/* Appends the text of a .minisig file.  Errors: NOMEM, TOO_BIG (also a comment over 8000 bytes),
 * FORMAT (a control character in the comment). */
OMM_CHECKED omm_err omm_minisign_sign(omm_buf *out, const omm_key *key, omm_bytes data,
                                      const char *comment);
/* The same for data in pieces: after omm_minisign_begin every piece through omm_hasher_update, in order. */
void omm_minisign_begin(omm_hasher *h);
OMM_CHECKED omm_err omm_minisign_finish(omm_buf *out, const omm_key *key, omm_hasher *h,
                                        const char *comment);
/* Check `sig_text` over `data` with `key`; both signatures in it count, and its key id must be the
 * key's.  Errors: FORMAT, SIGNATURE. */
OMM_CHECKED omm_err omm_minisign_verify(const omm_public_key *key, omm_bytes sig_text,
                                        omm_bytes data);

#endif
