/* key_lock.h - secret keys behind a passphrase.
 *
 *   passphrase --Argon2id, salt--> 32 bytes --XSalsa20-Poly1305, nonce--> box over the key's seed
 *
 * Key file: {"schema_version":1,"kind":"omm-locked-key","public":hex,"ops":N,"mem_bytes":N,"salt":hex,
 * "nonce":hex,"box":hex}, mode 0600.  What the file asks for is limited before it is done: ops to 16,
 * mem_bytes to 1 GiB.
 *
 * Source: RFC 9106 (Argon2); libsodium's crypto_pwhash and crypto_secretbox.
 * Depends on: sign, bytes, file, json; libsodium.  Threads: no shared state.
 */
#ifndef OMM_KEY_LOCK_H
#define OMM_KEY_LOCK_H

#include "omm/bytes.h"
#include "omm/sign.h"

#define OMM_PASSPHRASE_BYTES_MIN 8u
#define OMM_PASSPHRASE_BYTES_MAX 1024u

/* Is it such a file?  *locked is false for an omm_key_save file and for anything else that can be read.
 * Errors: those of omm_file_check_private and omm_file_read. */
OMM_CHECKED omm_err omm_key_is_locked(bool *locked, const char *path);
/* Takes about a tenth of a second and 64 MiB, on purpose.  Never overwrites.
 * Errors: EXISTS, CONFIG (length of the passphrase), IO, NOMEM. */
OMM_CHECKED omm_err omm_key_save_locked(const char *path, const omm_key *key, omm_bytes passphrase);
/* Errors: SIGNATURE (another passphrase, or the box was changed), FORMAT, MISMATCH (the public part is
 * another's), TOO_BIG (it asks for more work than is allowed), and those of omm_key_load. */
OMM_CHECKED omm_err omm_key_load_locked(omm_key *out, const char *path, omm_bytes passphrase);

#endif
