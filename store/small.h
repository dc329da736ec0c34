/* small.h - shared inside store only: small blobs as rows of somebody's database.
 *
 *   small_blob(digest, bytes)   one row a blob; what is written is durable with the database's commit
 *
 * Depends on: base, database.h.  Threads: one at a time, that of the database.
 */
#ifndef OMM_STORE_SMALL_H
#define OMM_STORE_SMALL_H

#include "omm/bytes.h"
#include "omm/database.h"
#include "omm/err.h"
#include "omm/hash.h"

typedef struct small {
    omm_db *db; /* NULL: there are none */
    size_t bytes_max;
    uint64_t total; /* bytes of all */
} small;

/* Makes the table where it is missing.  `db` NULL is fine.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err small_open(small *out, omm_db *db, size_t bytes_max);
/* Belongs a blob of this size here? */
bool small_takes(const small *s, uint64_t size);
/* Errors: NOT_FOUND, IO, NOMEM. */
OMM_CHECKED omm_err small_size(uint64_t *size, const small *s, const omm_digest *digest);
/* Insert; `digest` is not there.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err small_put(small *s, const omm_digest *digest, omm_bytes data);
/* Append `size` bytes from `offset`.  Errors: NOT_FOUND, SIZE, TOO_BIG, IO, NOMEM. */
OMM_CHECKED omm_err small_read(omm_buf *out, const small *s, const omm_digest *digest,
                               uint64_t offset, size_t size);
/* Missing is no error. */
OMM_CHECKED omm_err small_remove(small *s, const omm_digest *digest);
/* Count again, after a rollback.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err small_count(small *s);

#endif
