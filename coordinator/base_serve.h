/* base_serve.h - the base model for nodes that do not have it: named in a signed manifest, sent chunk by
 * chunk from the file where it lies, or the files, which are then served one after the other as if they were one.
 *
 *   Request{base}          ->  Reply{base}                     whoever asks
 *   Request{get: piece}    ->  Reply{chunk}                    of a piece of the base, from a slot
 *                              Reply{wait}                     all slots are taken, or the second's bytes are
 *
 *                              Reply{refused}                  its file is not the run's any more
 *
 * A file that was touched, or written again, is read again before more of it is sent, in pieces between requests, and who
 * asks is told to wait.  Where it is the run's still, or was put back, it is served again; else it is looked at again when
 * it changes.
 *
 * A slot belongs to an address that has asked within BASE_SLOT_MS: a slow node costs one, never a thread or a
 * copy of the file.  Bytes per second are counted over all slots.  The rounds go before: a request takes one
 * read of a chunk's size.
 *
 * Depends on: base, proto.  Threads: the service's.
 */
#ifndef COORDINATOR_BASE_SERVE_H
#define COORDINATOR_BASE_SERVE_H

#include "omm/base_model.h"
#include "omm/clock.h"
#include "omm/log.h"
#include "omm/sign.h"
#include "omm/wire.h"

#define BASE_SLOT_MS 30000u /* an address that has not asked for so long has left its slot */
#define BASE_SLOTS_MAX 256u
/* What is said to who gets no slot, or comes while the file is read again. */
#define BASE_FULL_MS 5000u
#define BASE_LOOK_MS 5000u /* between two looks at whether it has changed */
#define BASE_STEP_MS 50u   /* between two pieces of one that is read again */
#define BASE_STEP_BYTES ((size_t)8 * OMM_CHUNK_BYTES) /* such a piece: 2 ms of hashing */

typedef struct base_serve_options {
    const char *path;          /* the file, or any of them; borrowed until the end, as the rest */
    uint32_t part_count;       /* files: 1 unless the model is split; at most OMM_BASE_PARTS_MAX */
    omm_digest digest;         /* it has, by what the run was opened with */
    uint32_t piece_chunks;     /* of a piece; 0, or fewer than it takes: as few as there may be */
    uint32_t transfers;        /* slots; 0: only mirrors are named */
    uint64_t bytes_per_second; /* over all of them; 0: no limit */
    const char *const *mirrors;
    size_t mirror_count;
    const omm_key *key; /* the coordinator's */
    omm_clock clock;
} base_serve_options;

typedef struct base_serve base_serve;
/* Reads all once for the digests of the pieces.  Without transfers and mirrors *out is NULL.
 * Errors: CONFIG (a mirror; also one that is not the first file's), MISMATCH (another file than the run's), TOO_BIG, IO, NOT_FOUND, NOMEM. */
OMM_CHECKED omm_err base_serve_open(base_serve **out, const base_serve_options *options);
void base_serve_close(base_serve *b); /* NULL is fine */

/* Chunks have limits of their own; the manifest, of up to some hundred KiB for a request of a few bytes, has none here. */
typedef enum base_serve_asked {
    BASE_SERVE_NOTHING, /* malformed, or about something else: left for others */
    BASE_SERVE_MANIFEST,
    BASE_SERVE_CHUNK
} base_serve_asked;
/* *asked: what the request was about; unless that is nothing, `reply` (cleared) has the answer.  `b` may be NULL.
 * Errors: IO, NOMEM. */
OMM_CHECKED omm_err base_serve_answer(base_serve_asked *asked, omm_buf *reply, base_serve *b,
                                      omm_bytes request, const char *peer);

/* A look at the file, or the next piece of one: to be called often, between requests. */
void base_serve_step(base_serve *b); /* NULL is fine */

typedef struct base_serve_count {
    uint64_t chunks, bytes, waits; /* sent; told to wait */
    uint64_t refused;              /* as it is not the run's any more */
    uint64_t read_again;           /* times that it was, and is the run's */
    uint32_t slots;                /* taken now */
    bool has_changed;              /* it is not the run's any more */
} base_serve_count;
base_serve_count base_serve_counts(const base_serve *b); /* NULL: zeros */

#endif
