/* coordinator_canary.h - work on public data, which the coordinator does again.
 *
 *   by work --> candidate --poll--> offer of a canary --submission--> queue --replay--> verdict
 *                   ^                                                                      |
 *                   +---- passed, fewer than `passes` <------------------------------------+
 *                         passed, enough: a node of the run, from the next round on  <-----+
 *                         failed: never let in; a node of the run: in quarantine     <-----+
 *
 * A candidate is not in run->nodes: no round, quorum or evidence knows it.  A node of the run gets a
 * canary instead of a round where its lot says so (`share`), and no other work before it has answered.
 *
 * A canary begins at the run's first adapter, without a residual, so that a replay needs the offer, the
 * shard and nothing that went on since.  What is remembered is in state_dir/canary.sqlite, committed by
 * itself: an offer before it is sent, a submission before its chunks are asked for, a verdict after it has
 * had its effect.  So a crash repeats a replay, and skips none.
 *
 * The state machine keeps the queue; training is somebody else's, on another thread:
 *
 *   omm_coord_canary_next -> job -> omm_canary_replay -> result -> omm_coord_canary_verdict
 *
 * Depends on: coordinator.h, compress, proto.  Threads: as the coordinator; a job and its replay belong to
 * whoever has them.
 */
#ifndef OMM_COORDINATOR_CANARY_H
#define OMM_COORDINATOR_CANARY_H

#include "omm/coordinator.h"
#include "omm/mem.h"
#include "omm/messages.h"

#define OMM_COORD_SHARDS_MAX 16u
#define OMM_COORD_CANARY_PASSES_MAX 100u
#define OMM_COORD_CANDIDATES_MAX 256u /* who has not counted for an hour makes room for the next */
/* Uploads and replays at a time, of candidates and of nodes each. */
#define OMM_COORD_CANARY_QUEUE_MAX 8u

/* All borrowed for the life of the coordinator. */
typedef struct omm_coord_shard {
    const char *name; /* for logs and evidence */
    omm_bytes text;   /* chat JSONL, 1 to OMM_CANARY_BYTES_MAX bytes */
} omm_coord_shard;

typedef struct omm_coord_canaries {
    const omm_coord_shard *shards;
    size_t shard_count; /* 1 to OMM_COORD_SHARDS_MAX */
    uint32_t passes;    /* of who comes by work, before it counts; 0: it counts at once */
    double share;       /* of a node's turns, 0 to 1 */
} omm_coord_canaries;

/* One canary to be done again. */
typedef struct omm_canary_job {
    omm_arena arena;
    omm_digest digest; /* of the submission's envelope */
    omm_digest node;   /* its id */
    char name[80];
    omm_submission submission;
    omm_bytes envelope, offer; /* as they were sent */
    omm_bytes recipe;
    omm_seed seed;                 /* of the training */
    uint32_t shard;                /* index */
    const omm_coord_shard *shards; /* (any) borrowed */
    const omm_layout *layout;      /* borrowed */
    const omm_codec *codec;        /* borrowed */
    const float *start;            /* (layout->value_count) borrowed: the run's first adapter */
    omm_buf payload;               /* as it came */
} omm_canary_job;
void omm_canary_job_fini(omm_canary_job *job);

/* What training the same gave. */
typedef struct omm_canary_trained {
    uint64_t tokens, examples;
    uint32_t steps;
    float loss_before, loss_after;
    uint32_t
        different_step; /* 1-based, whose digest is not the submission's: it stopped there; 0: none */
    omm_digest step_digest; /* first 8 bytes: of that step as it was done again */
} omm_canary_trained;

/* The model side.  values: (layout->value_count) receives the trained adapter, unless a step differs.
 * Errors are our own: the canary is done again later. */
typedef omm_err (*omm_canary_train_fn)(void *ud, omm_canary_trained *out, float *values,
                                       const omm_canary_job *job);

typedef struct omm_canary_result {
    bool passed;
    uint32_t step;                /* where steps differ; 0 */
    omm_digest claimed, repeated; /* of the payload before zstd; of a step: 8 bytes and zeros */
    char why[161];                /* "" when passed */
} omm_canary_result;

/* Train, encode, compare; all of the submission that follows from the offer must be equal.
 * Errors: those of `train`, NOMEM. */
OMM_CHECKED omm_err omm_canary_replay(omm_canary_result *out, const omm_canary_job *job,
                                      omm_canary_train_fn train, void *ud);

/* The canary that waits longest; it stays in the queue until its verdict.  *found false: none waits.
 * Errors: IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_canary_next(bool *found, omm_canary_job *job, omm_coord *coord);
/* Not within a batch.  A submission that is not in the queue (any more) is no error.  What failed is kept in
 * state_dir/canaries/failed: offer, submission, payload, shard, verdict.
 * Errors: STATE (the run is over: nothing is judged any more), IO, NOMEM: nothing is remembered. */
OMM_CHECKED omm_err omm_coord_canary_verdict(uint64_t *next_deadline_ms, omm_coord *coord,
                                             uint64_t now_ms, const omm_canary_job *job,
                                             const omm_canary_result *result);

#endif
