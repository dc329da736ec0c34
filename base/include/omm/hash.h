/* hash.h - BLAKE2b-256 names everything large; SHA-256 serves bundle manifests and run digests.
 *
 * Depends on: err, bytes.  Threads: no shared state.
 * Source: RFC 7693 (BLAKE2), FIPS 180-4 (SHA-256).
 */
#ifndef OMM_HASH_H
#define OMM_HASH_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct omm_digest {
    uint8_t b[32];
} omm_digest;

#define OMM_DIGEST_HEX_SIZE 65u /* 64 digits and a NUL */

bool omm_digest_equal(const omm_digest *a, const omm_digest *b);
bool omm_digest_is_zero(const omm_digest *d);
int omm_digest_compare(const omm_digest *a, const omm_digest *b); /* byte order: <0, 0, >0 */
void omm_digest_hex(char out[OMM_DIGEST_HEX_SIZE], const omm_digest *d);
OMM_CHECKED omm_err omm_digest_unhex(omm_digest *out, const char *hex); /* Errors: FORMAT */

/* BLAKE2b-256 of one view. */
omm_digest omm_hash(omm_bytes data);
/* Keyed BLAKE2b-256; key of 16 to 64 bytes. */
omm_digest omm_hash_keyed(omm_bytes key, omm_bytes data);
omm_digest omm_sha256(omm_bytes data);

/* Streaming forms.  The state is opaque and needs no freeing. */
typedef struct omm_hasher {
    _Alignas(64) uint8_t state[448];
} omm_hasher;
void omm_hasher_init(omm_hasher *h);
void omm_hasher_update(omm_hasher *h, omm_bytes data);
/* v as u64 LE; a text behind its size, so that no two lists of texts are the same bytes. */
void omm_hasher_u64(omm_hasher *h, uint64_t v);
void omm_hasher_sized(omm_hasher *h, omm_bytes text);
omm_digest omm_hasher_final(omm_hasher *h);

void omm_sha256er_init(omm_hasher *h);
void omm_sha256er_update(omm_hasher *h, omm_bytes data);
omm_digest omm_sha256er_final(omm_hasher *h);

/* What the program writes for itself to read again ends with the BLAKE2b-256 of all before it: damage shows,
 * forgery does not.  omm_hash_seal appends the digest of buf->data[from..size); Errors: NOMEM, TOO_BIG.
 * omm_hash_sealed says whether `in` ends with the digest of the rest; content then is that rest. */
OMM_CHECKED omm_err omm_hash_seal(omm_buf *buf, size_t from);
bool omm_hash_sealed(omm_bytes *content, omm_bytes in);

/* BLAKE2b-256 (SHA-256) of a file, read in pieces.  Errors: NOT_FOUND, IO. */
OMM_CHECKED omm_err omm_hash_file(omm_digest *out, const char *path);
OMM_CHECKED omm_err omm_sha256_file(omm_digest *out, const char *path);

#endif
