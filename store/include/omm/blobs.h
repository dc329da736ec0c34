/* blobs.h - content-addressed files: every blob is named by the BLAKE2b-256 of its bytes.
 *
 *   DIR/blobs/ab/abcdef...          whole blobs, first two hex digits as folder
 *   DIR/partial/012345.../000012    chunks that have arrived of a blob that is not whole yet; the
 *                                   folder is omm_blob_plan_name of what was announced
 *
 *   table small_blob of `db`        whole blobs of at most small_bytes_max that came in one piece
 *
 * Every file is written as temp, fsync, rename, fsync of the folder: after kill -9 a chunk or blob is
 * there whole, or not at all.  Rows are as durable as the database's commit that has them: whoever has a
 * transaction open may undo them, and puts many with one fsync.  Chunks found again are hashed again before they count.  Without a
 * folder everything is kept in memory, with the same behaviour.
 *
 * Depends on: base, database.h.  Threads: one store belongs to one thread at a time.
 */
#ifndef OMM_BLOBS_H
#define OMM_BLOBS_H

#include "omm/bytes.h"
#include "omm/database.h"
#include "omm/err.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct omm_blobs omm_blobs;

typedef struct omm_blobs_options {
    const char *dir;          /* NULL: in memory */
    uint64_t blob_bytes_max;  /* of one blob */
    uint64_t total_bytes_max; /* of all blobs and chunks; 0: no limit */
    bool durable;             /* fsync; false where everything can be made again */
    omm_db *db;               /* borrowed, of the same thread; NULL: every blob is a file */
    size_t small_bytes_max;   /* of a blob that is a row of `db` */
} omm_blobs_options;

/* Errors: NOMEM, IO. */
OMM_CHECKED omm_err omm_blobs_open(omm_blobs **out, const omm_blobs_options *options);
void omm_blobs_close(omm_blobs *blobs);
/* Bytes of all blobs and chunks. */
uint64_t omm_blobs_total(const omm_blobs *blobs);
/* A transaction of `db` was rolled back: count what is there.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err omm_blobs_undone(omm_blobs *blobs);

/* Store `data`; one that is there already is left alone.  `digest` (may be NULL) gets its name.
 * Errors: TOO_BIG, IO, NOMEM. */
OMM_CHECKED omm_err omm_blobs_put(omm_digest *digest, omm_blobs *blobs, omm_bytes data);
/* Errors: IO, NOMEM: then nobody knows. */
OMM_CHECKED omm_err omm_blobs_has(bool *has, const omm_blobs *blobs, const omm_digest *digest);
/* Append the blob, after hashing it.  Errors: NOT_FOUND, DIGEST (damaged on disk), TOO_BIG, IO,
 * NOMEM. */
OMM_CHECKED omm_err omm_blobs_get(omm_buf *out, const omm_blobs *blobs, const omm_digest *digest);
/* Append `size` bytes from `offset`, unchecked: the receiver of a chunk checks it.
 * Errors: NOT_FOUND, SIZE (beyond the end), TOO_BIG, IO, NOMEM. */
OMM_CHECKED omm_err omm_blobs_get_range(omm_buf *out, const omm_blobs *blobs,
                                        const omm_digest *digest, uint64_t offset, size_t size);
OMM_CHECKED omm_err omm_blobs_size(uint64_t *size, const omm_blobs *blobs,
                                   const omm_digest *digest);
/* Missing is no error. */
OMM_CHECKED omm_err omm_blobs_remove(omm_blobs *blobs, const omm_digest *digest);

/* A blob that arrives in chunks; all but the last have chunk_bytes. */
typedef struct omm_blob_plan {
    omm_digest owner; /* who sends it: owners share whole blobs, never chunks; zero: nobody */
    omm_digest digest;
    uint64_t size; /* at least 1 */
    size_t chunk_bytes;
    const omm_digest *chunk_digests; /* (chunk_count) */
    size_t chunk_count;              /* ceil(size / chunk_bytes) */
} omm_blob_plan;

/* BLAKE2b-256 over owner, digest, sizes and chunk digests: where its chunks are kept. */
omm_digest omm_blob_plan_name(const omm_blob_plan *plan);

/* Indices of the chunks that are not there, ascending; 0 of them when the blob is whole.  Where all are
 * there, but a kill came before the blob, the last one is asked for again: it puts the blob together.
 * `missing` has room for plan->chunk_count.  Errors: SIZE (plan contradicts itself), REFUSED_SIZE
 * (over blob_bytes_max), IO, NOMEM. */
OMM_CHECKED omm_err omm_blobs_missing(uint32_t *missing, size_t *missing_count, omm_blobs *blobs,
                                      const omm_blob_plan *plan);
/* Take one chunk; again is no error.  With the last one the blob is put together, hashed and moved
 * in place, and *complete is true.  Errors: REFUSED_SIZE (index or length, or over a limit),
 * REFUSED_DIGEST (this chunk, or the whole: then all its chunks are dropped), SIZE, IO, NOMEM. */
OMM_CHECKED omm_err omm_blobs_put_chunk(bool *complete, omm_blobs *blobs, const omm_blob_plan *plan,
                                        uint32_t index, omm_bytes data);
/* Forget the chunks of a plan that will not be finished, or of all plans.  Errors: IO; then those that could be removed are
 * missing, and only those. */
OMM_CHECKED omm_err omm_blobs_drop_partial(omm_blobs *blobs, const omm_blob_plan *plan);
OMM_CHECKED omm_err omm_blobs_drop_partials(omm_blobs *blobs);

#endif
