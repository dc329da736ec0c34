/* canary.h - the coordinator's side of canaries, shared by the canary*.c; the rest calls coord_canary_*.
 *
 *   canary.c          open, close; whose turn it is; offers and polls
 *   canary_submit.c   submissions and chunks
 *   canary_verdict.c  the queue, what a verdict changes, evidence, lists
 *   canary_store.c    canary.sqlite
 *   canary_replay.c   a job trained, encoded and compared; no state of the coordinator's
 *   canary_work.c     the thread that does it, for the service
 *
 * A peer is a candidate, or a node of the run that has, or had, a canary; each has one canary at most.
 *
 *   DUE --poll--> OFFERED --submission--> UPLOADING --last chunk--> WAITING --verdict--> PASSED, FAILED
 *    ^                                                                                      |
 *    +----- next canary <-------------------------------------------------------------------+
 */
#ifndef COORDINATOR_CANARY_INTERNAL_H
#define COORDINATOR_CANARY_INTERNAL_H

#include "internal.h"

#include "omm/coordinator_canary.h"
#include "omm/coordinator_enrol.h"

#define CANARY_UPLOAD_MS 60000u  /* without a chunk for so long, an upload's place is another's */
#define CANARY_STALE_MS 3600000u /* a candidate that has not moved for so long makes room */
#define CANARY_FAILED_MAX 10000u /* keys of candidates that failed, the newest */
#define CANARY_EVIDENCE_MAX 64u  /* folders of what candidates failed in; of nodes all */

typedef enum canary_state { /* the numbers are in the database */
                            CANARY_DUE = 0,
                            CANARY_OFFERED = 1,
                            CANARY_UPLOADING = 2,
                            CANARY_WAITING = 3,
                            CANARY_PASSED = 4,
                            CANARY_FAILED = 5,
} canary_state;

typedef struct canary_peer {
    omm_public_key key;
    omm_digest id;
    int32_t node;                      /* index in run->nodes; COORD_ANONYMOUS: a candidate */
    char by[OMM_COORD_LABEL_MAX + 32]; /* how a candidate came */
    uint32_t passes;                   /* of a candidate */
    uint64_t moved_ms;                 /* wall; of a candidate */
    canary_state state;
    uint32_t number; /* of its canary, from 0 */
    uint64_t place;  /* in the queue, ascending in order of arrival */
    omm_digest offer_digest;
    omm_digest submission; /* from UPLOADING on */
    coord_upload upload;   /* UPLOADING, WAITING */
    uint64_t chunk_ms;     /* when the last chunk came; COORD_BEFORE: not looked at since then */
    uint32_t replaced_count;
    char reason[OMM_COORD_REASON_MAX + 1]; /* FAILED */
} canary_peer;

struct coord_canary {
    const omm_coord_canaries *o;
    omm_db *db;
    omm_blobs *uploads;
    omm_arena arena;  /* of shards and global */
    omm_blob *shards; /* (o->shard_count) */
    omm_buf sent;     /* the run's first adapter */
    omm_blob global;
    float *start;        /* (value_count) */
    canary_peer **peers; /* (peer_count), candidates and nodes mixed */
    size_t peer_count, peer_max;
    canary_peer **of_node; /* (node_max) NULL: it never had one */
    uint64_t places;       /* given so far */
    uint64_t now_ms;       /* of the request at hand */
};

/* ---- canary.c ---- */
/* NULL: unknown. */
canary_peer *canary_find(const coord_canary *w, const omm_digest *id);
/* One peer less; frees it. */
void canary_forget_peer(coord_canary *w, canary_peer *peer);
/* "guest-0123abcd" of a candidate, or the node's name. */
void canary_name(char out[80], const omm_coord *c, const canary_peer *peer);
/* Index of the shard with this digest, or shard_count. */
size_t canary_shard_index(const coord_canary *w, const omm_digest *digest);

/* ---- canary_submit.c ---- */
omm_blob_plan canary_plan(const canary_peer *peer);

/* ---- canary_store.c ---- */
typedef enum canary_column {
    CANARY_NO_BYTES,
    CANARY_OFFER,
    CANARY_SUBMISSION,
    CANARY_RECEIPT
} canary_column;
OMM_CHECKED omm_err canary_store_open(omm_db **out, const char *state_dir);
/* The peer as it is, and in the same commit the bytes of one column. */
OMM_CHECKED omm_err canary_store_save(omm_db *db, const canary_peer *peer, canary_column column,
                                      omm_bytes bytes);
/* Append a column's bytes; nothing where there are none. */
OMM_CHECKED omm_err canary_store_read(omm_buf *out, omm_db *db, const omm_digest *id,
                                      canary_column column);
OMM_CHECKED omm_err canary_store_drop(omm_db *db, const omm_digest *id);
/* The peer was a candidate and is one that failed. */
OMM_CHECKED omm_err canary_store_failed(omm_db *db, const canary_peer *peer, omm_bytes receipt);
OMM_CHECKED omm_err canary_store_failed_count(uint64_t *out, omm_db *db);
/* submission, receipt and reason may be NULL. */
OMM_CHECKED omm_err canary_store_find_failed(bool *found, char reason[OMM_COORD_REASON_MAX + 1],
                                             omm_digest *submission, omm_buf *receipt, omm_db *db,
                                             const omm_digest *id);
OMM_CHECKED omm_err canary_store_each(omm_db *db, omm_err (*fn)(void *ud, const canary_peer *row),
                                      void *ud);

#endif
