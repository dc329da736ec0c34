/* wire.h - the fixed numbers of the wire, chunk arithmetic, and the bytes of a faultless round.
 *
 *   frame   [length u64][request id u32][body]      body: one protobuf Request or Reply
 *
 * Wire bytes of a message = body + OMM_WIRE_OVERHEAD_BYTES; TCP, TLS and IP are excluded.
 *
 * Depends on: err, bytes, hash, mem.  Threads: no shared state.
 */
#ifndef OMM_WIRE_H
#define OMM_WIRE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_WIRE_VERSION 1u
#define OMM_WIRE_OVERHEAD_BYTES 12u /* 8 frame length, 4 request id */
#define OMM_CHUNK_BYTES 262144u
#define OMM_MESSAGE_BYTES_MAX 266240u /* 260 KiB: a chunk and its headers */
#define OMM_BLOB_CHUNKS_MAX 3072u     /* 768 MiB; their digests and the rest fit one offer */
#define OMM_WHOLE_BYTES_MAX 65536u /* of a blob that travels with the envelope that describes it */

static inline uint64_t omm_wire_bytes(size_t body) {
    return (uint64_t)body + OMM_WIRE_OVERHEAD_BYTES;
}

/* A large thing by digest: how it is named in offers and submissions, and fetched in chunks. */
typedef struct omm_blob {
    omm_digest digest;               /* BLAKE2b-256 of the bytes as sent */
    omm_digest canonical;            /* BLAKE2b-256 of the payload inside (before zstd) */
    uint64_t size;                   /* bytes as sent, at least 1 */
    const omm_digest *chunk_digests; /* (chunk_count), each BLAKE2b-256 of one chunk */
    size_t chunk_count;              /* omm_chunk_count(size) */
} omm_blob;

/* ceil(size / OMM_CHUNK_BYTES). */
uint64_t omm_chunk_count(uint64_t size);
/* Bytes of chunk `index` of a blob of `size` bytes; 0 when there is no such chunk. */
size_t omm_chunk_size(uint64_t size, uint64_t index);
/* View of chunk `index` of `data`; empty when there is none. */
omm_bytes omm_chunk_view(omm_bytes data, uint64_t index);

/* May a blob of `blob_bytes` travel in one message with an envelope of `envelope_bytes`? */
bool omm_wire_is_whole(size_t envelope_bytes, uint64_t blob_bytes);

/* Describe `sent`; the chunk digests live in `arena`.  Errors: NOMEM, TOO_BIG (over
 * OMM_BLOB_CHUNKS_MAX chunks), FORMAT (empty). */
OMM_CHECKED omm_err omm_blob_describe(omm_blob *out, omm_arena *arena, omm_bytes sent,
                                      const omm_digest *canonical);

/* What one node's round is made of; a later part that is 0 did not happen. */
typedef struct omm_wire_round {
    size_t poll_bytes;       /* poll envelope; omm_wire_poll_bytes gives the nominal one */
    size_t offer_bytes;      /* offer envelope */
    uint64_t global_bytes;   /* broadcast adapter as sent */
    size_t submission_bytes; /* submission envelope */
    uint64_t payload_bytes;  /* its payload as sent */
    size_t receipt_bytes;    /* receipt envelope */
} omm_wire_round;

/* Wire bytes of one faultless round, each message once: poll -> offer; each chunk of the global
 * adapter; submission -> need (all chunks); each payload chunk -> need (the rest) | receipt.  What travels
 * whole is counted so, too: a nominal figure, a little above what passes. */
void omm_wire_round_bytes(uint64_t *up, uint64_t *down, const omm_wire_round *round);

/* Bytes of the poll envelope that a node sends for round `round` when nothing goes wrong: it knows
 * the run id (32 characters), has seen `round` rounds, and its counter is round + 1. */
size_t omm_wire_poll_bytes(uint32_t round);

/* Bytes of the largest request that a node makes to submit a payload of up to `payload_max` bytes as sent, with `steps`
 * digests of steps: its manifest, with the payload where that may travel whole, or a chunk.  Up to a kilobyte above what
 * passes, and at most OMM_MESSAGE_BYTES_MAX. */
size_t omm_wire_upload_bytes_max(uint64_t payload_max, uint32_t steps);

#endif
