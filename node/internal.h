/* internal.h - the node's own state, shared by its files.
 *
 *   node.c     open, close, and which event does what in which phase
 *   admission.c, enrol.c    what a node shows to be let in
 *   work.c     training and proof of work, outside of step
 *   take.c     an offer: is it followed?  chunks of the global adapter
 *   give.c     a finished training: residual, codec, manifest, signature; receipts
 *   kept_out.c in quarantine or revoked: it is told so, and comes again rarely; what owners can do
 *   closed.c   the end of the run, over kills
 *   canary.c   work on public data, which leaves no trace in the node's own
 *   keep.c     what survives a kill: one table of named values
 *   history.c  what was given and declined, for the owner
 *   training.c the real omm_training
 *
 * Invariant: while `submission` is stored, the node asks for its verdict before anything else, so
 * that residual and receipts never part.
 */
#ifndef NODE_INTERNAL_H
#define NODE_INTERNAL_H

#include "omm/codec.h"
#include "omm/crash.h"
#include "omm/database.h"
#include "omm/declined.h"
#include "omm/envelope.h"
#include "omm/file.h"
#include "omm/messages.h"
#include "omm/node.h"

#include <stdatomic.h>

#define NODE_BACKOFF_MIN_MS 250u      /* after a failed send, doubling ... */
#define NODE_BACKOFF_MAX_MS 30000u    /* ... up to here */
#define NODE_STRANGER_MS 60000u       /* between two attempts to be let in */
#define NODE_DECLINED_MS 5000u        /* before asking again after an offer we do not follow */
#define NODE_WAIT_MIN_MS 10u          /* nor a shorter one: no coordinator's poll_ms is */
#define NODE_WAIT_MAX_MS 600000u      /* a longer wait than this is not believed */
#define NODE_WHOLE_FAILURES 3u        /* of sending a submission whole: then without its payload */
#define NODE_NEEDS_SPARE 64u          /* over four per chunk, the coordinator asks without end */
#define NODE_TELLING_FAILURES 3u      /* then a dry run goes on unheard */
#define NODE_UNSIGNED_REFUSALS_MAX 3u /* then a submission without a verdict is given up */

typedef enum node_phase {
    NODE_POLLING,
    NODE_FETCHING,
    NODE_TRAINING,
    NODE_SUBMITTING,
    NODE_UPLOADING,
    NODE_DONE,
    NODE_ENROLLING,
    NODE_PROVING,
    NODE_TELLING, /* that this is a dry run, for whose submission the round need not wait */
    NODE_SHOWING, /* of a dry run: the submission is made, and stays here */
} node_phase;

/* The offer that is followed. */
typedef struct node_job {
    bool active;
    omm_arena arena; /* of offer and layout names */
    omm_offer offer;
    omm_digest offer_digest;
    omm_declined declined; /* what the coordinator is told if the check at hand fails */
    omm_codec up, down;
    omm_layout layout; /* own copy: segments and names in the arena */
    omm_buf global;    /* as sent */
    omm_buf shard;     /* of a canary */
    uint32_t next_chunk, next_shard_chunk;
    float *start;  /* (value_count) decoded global adapter */
    float *values; /* (value_count) trained */
    omm_training_plan plan;
    bool trained;
    omm_training_result result;
    omm_buf step_digests;
    omm_buf checkpoint;
} node_job;

/* The last offer that a submission was signed for; run_id "" when there is none. */
typedef struct node_given {
    char run_id[OMM_RUN_ID_SIZE];
    uint32_t round;
    omm_digest offer;
} node_given;
#define NODE_GIVEN_BYTES (OMM_RUN_ID_SIZE - 1 + 4 + sizeof(omm_digest))

struct omm_node {
    omm_node_options o;
    omm_digest id;
    omm_db *db;
    node_phase phase;
    omm_buf request; /* in flight or next */
    bool sent_before;
    bool in_flight;
    bool is_waiting; /* the last action was WAIT */
    uint64_t until_ms;
    uint32_t failures; /* sends in a row */
    uint32_t unsigned_refusals;
    uint32_t kept_out; /* answers in a row that say that we are */
    bool is_plain;     /* this coordinator does not understand what is whole (as long as we run) */
    bool is_terse;     /* nor why we gave nothing */
    atomic_bool cancelled, has_begun;
    atomic_uint steps_done; /* of the training at hand */

    char run_id[OMM_RUN_ID_SIZE];
    bool is_new_run;                /* that our owner named, and not the one that is kept */
    uint64_t counter, counter_kept; /* the kept one is never below what was sent */
    uint32_t duplicates;            /* refusals in a row that said it is too low */
    omm_digest poll;                /* envelope of the last one */
    uint32_t rounds_seen;
    bool is_over; /* its run was closed before we were opened, and no answer speaks of a next one */
    bool has_round;
    uint32_t round;
    uint32_t rounds_accepted, rounds_refused;
    char last_reason[40];
    char left[OMM_NODE_REFUSED_SIZE]; /* why, the last round without a verdict */
    omm_declined declined; /* the same for the coordinator, from then until an offer is followed */
    bool said_declined;    /* in the last poll */
    bool told_dry;         /* the coordinator has heard that this is a dry run */
    char refused
        [OMM_NODE_REFUSED_SIZE]; /* by the last answers to polls and to who asks to be let in */
    const char *advice;          /* what can be done about it; "": nothing is known */

    bool has_challenge, has_proof; /* work to do; done */
    omm_digest challenge;
    uint32_t challenge_bits;
    uint64_t proof;

    node_given given;
    node_job job;
    omm_buf submission; /* envelope, while its verdict is not known */
    omm_buf payload;
    omm_digest payload_digest, submission_digest;
    uint32_t *missing; /* chunk indices to upload, ascending */
    size_t missing_count;
    bool gave_canary; /* the submission is one: its verdict changes nothing of the node's own */
    bool said_sent;   /* in the owner's history, since the node was opened */
    uint64_t needs;   /* answers "Need" since the submission was made */
    uint32_t put_off; /* answers "Wait" */
};

/* ---- keep.c: names of stored values ---- */
#define KEEP_KEY_ID "key_id"
#define KEEP_RUN_ID "run_id"
#define KEEP_INVITED "invited" /* id of the invitation that we showed, and are in by */
#define KEEP_COUNTER "counter"
#define KEEP_ROUNDS_SEEN "rounds_seen"
#define KEEP_RESIDUAL "residual"         /* f32 little endian */
#define KEEP_RESIDUAL_TAG "residual_tag" /* of the run and layout it belongs to */
#define KEEP_SUBMISSION "submission"
#define KEEP_PAYLOAD "payload"
#define KEEP_RESIDUAL_NEXT "residual_next"
#define KEEP_RESIDUAL_NEXT_TAG "residual_next_tag"
#define KEEP_SUBMISSION_IS_CANARY "submission_is_canary"
#define KEEP_GIVEN "given"      /* node_given */
#define KEEP_RECEIPT "receipt/" /* + run id / round: what the coordinator signed, for disputes */
#define KEEP_CLOSE "close"      /* of the last run whose end we heard, as it was signed */
#define KEEP_ENDED "ended"      /* for it */
#define KEEP_CHECKPOINT "checkpoint"               /* large */
#define KEEP_CHECKPOINT_OFFER "checkpoint_offer"   /* digest of the offer it is for */
#define KEEP_CANARY_CHECKPOINT "canary_checkpoint" /* large; beside that of our own work */
#define KEEP_CANARY_CHECKPOINT_OFFER "canary_checkpoint_offer"
#define KEEP_GLOBAL "global"        /* digest of the global adapter that chunks are kept of */
#define KEEP_GLOBAL_CHUNK "global/" /* + index, of those that came before a restart or a pause */

#define NODE_DATABASE "node.sqlite"
OMM_CHECKED omm_err node_keep_open(omm_node *node);
/* The file alone.  busy_ms: how long to wait for who has it open; 0: some seconds. */
OMM_CHECKED omm_err node_keep_open_file(omm_db **out, const char *path, uint32_t busy_ms);
OMM_CHECKED omm_err node_keep_put(omm_node *node, const char *name, omm_bytes value);
OMM_CHECKED omm_err node_keep_put_u64(omm_node *node, const char *name, uint64_t value);
OMM_CHECKED omm_err node_keep_drop(omm_node *node, const char *name);
/* Append the value; nothing when there is none. */
OMM_CHECKED omm_err node_keep_get(bool *found, omm_buf *out, omm_node *node, const char *name);
OMM_CHECKED omm_err node_keep_get_u64(uint64_t *out, omm_node *node, const char *name);
/* The same for values of any size, in pieces: `name`, name/1, name/2 ...  SQLite holds a value twice while it writes one, and
 * takes none over 1 GB.  Put and drop belong into a transaction. */
OMM_CHECKED omm_err node_keep_put_large(omm_node *node, const char *name, omm_bytes value);
OMM_CHECKED omm_err node_keep_drop_large(omm_node *node, const char *name);
OMM_CHECKED omm_err node_keep_get_large(bool *found, omm_buf *out, omm_node *node,
                                        const char *name);
/* Run `body` in one transaction. */
OMM_CHECKED omm_err node_keep_all(omm_node *node, omm_err (*body)(omm_node *node, const void *ud),
                                  const void *ud);

/* ---- enrol.c ---- */
/* The request that asks to be let in: by the owner's token, by work that was done, or for work.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err node_enrol_request(omm_buf *out, const omm_node *node);
/* Errors: REFUSED_* (not this coordinator's, or over our limit), NOMEM. */
OMM_CHECKED omm_err node_take_challenge(omm_node *node, omm_bytes envelope);
/* Until it is found: node->proof.  Asks is_cancelled now and then, the place to rest.  Errors: CANCELLED. */
OMM_CHECKED omm_err node_prove(omm_node *node, bool (*is_cancelled)(void *ud));

/* ---- take.c ---- */
void node_job_end(node_job *job);
/* Follow the offer in `envelope`: the job is filled and chunks are to be fetched.
 * Errors: REFUSED_* (declined, says why, and *declined for the coordinator), NOMEM. */
OMM_CHECKED omm_err node_take_offer(omm_declined *declined, omm_node *node, omm_bytes envelope);
/* What the coordinator is told of a training that was not planned, or not ended. */
omm_declined node_declined_by(omm_err err, omm_declined otherwise);
/* On error nothing has changed.  Errors: REFUSED_* (not what the offer names), NOMEM, IO. */
OMM_CHECKED omm_err node_take_chunk(bool *complete, omm_node *node, const omm_reply *reply);
/* The global adapter came with the offer: true when that is all of it.  What is not right is asked for in chunks.
 * Errors: as node_take_chunk. */
OMM_CHECKED omm_err node_take_whole(bool *complete, omm_node *node, omm_bytes global);
/* Nothing is left to be fetched. */
bool node_has_all(const node_job *job);
OMM_CHECKED omm_err node_load_checkpoint(omm_node *node);
/* The round's download is not needed any more.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err node_drop_chunks(omm_node *node);
omm_digest node_residual_tag(const omm_node *node);

/* ---- canary.c ---- */
/* Where checkpoints of this job are kept. */
const char *node_checkpoint_name(const node_job *job);
const char *node_checkpoint_offer_name(const node_job *job);
/* What is to be fetched next: of the global adapter, then of the shard. */
void node_next_chunk(omm_digest *digest, uint32_t *index, const node_job *job);
/* Is there a shard, and not all of it here? */
bool node_needs_shard(const node_job *job);
/* Errors: REFUSED_DIGEST, NOMEM. */
OMM_CHECKED omm_err node_take_shard_chunk(bool *complete, node_job *job, const omm_reply *reply);
/* The payload of a canary: delta alone, without error feedback; residuals are those of zeros. */
OMM_CHECKED omm_err node_canary_encode(omm_buf *sent, omm_encoded *info, node_job *job,
                                       float *delta);
/* In the caller's transaction: that the stored submission is a canary, and that it was given. */
struct node_gave;
OMM_CHECKED omm_err node_canary_gave(omm_node *node, const struct node_gave *gave);
OMM_CHECKED omm_err node_canary_restore(omm_node *node);

/* ---- closed.c ---- */
/* Is it the close of our run?  Then it is kept first.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err node_take_close(bool *is_over, omm_node *node, omm_bytes envelope);
/* What is kept of the run's end: node->is_over, and whether we have only to end for it. */
OMM_CHECKED omm_err node_close_restore(bool *ends, omm_node *node);

/* ---- kept_out.c ---- */
/* What our owner can do about a refusal for this reason; "": nothing that is known here. */
const char *node_advice(omm_err reason);
/* The answer to our last poll is that the coordinator keeps us out: why, for our owner, and in *wait_ms how long to
 * leave it alone.  Errors: REFUSED_* (it does not say so, or is not the coordinator's), NOMEM. */
OMM_CHECKED omm_err node_take_kept_out(uint64_t *wait_ms, omm_node *node, omm_bytes envelope);

/* ---- give.c ---- */
/* The request that gives the stored submission, with its payload where that is small.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err node_give_request(omm_buf *out, const omm_node *node);
/* From the trained values to a stored, signed submission.  Errors: NUMERIC, NOMEM, IO. */
OMM_CHECKED omm_err node_give(omm_node *node);
OMM_CHECKED omm_err node_submission_restore(omm_node *node);
OMM_CHECKED omm_err node_given_restore(omm_node *node);
/* Errors: REFUSED_* (not a receipt for our submission), IO, NOMEM. */
OMM_CHECKED omm_err node_take_receipt(omm_node *node, omm_bytes envelope);
/* A receipt of the pinned coordinator, for us and for what has this digest; it lives in `arena` and `envelope`.
 * Errors: REFUSED_*, NOMEM. */
OMM_CHECKED omm_err node_receipt_open(omm_receipt *out, const omm_node *node, omm_bytes envelope,
                                      const omm_digest *of, omm_arena *arena);
OMM_CHECKED omm_err node_submission_drop(omm_node *node);

/* ---- history.c ---- */
typedef struct node_gave {
    omm_digest submission, payload; /* of the envelope; as sent */
    uint64_t submission_bytes, payload_bytes;
} node_gave;
OMM_CHECKED omm_err node_history_gave(omm_node *node, const node_gave *gave);
OMM_CHECKED omm_err node_history_canary(omm_node *node, const node_gave *gave);
/* The submission that is stored is about to leave for the first time, as far as this process knows. */
OMM_CHECKED omm_err node_history_sends(omm_node *node);
OMM_CHECKED omm_err node_history_verdict(omm_node *node, const omm_digest *submission,
                                         const char *verdict);
/* offer: run and round are used; zero where it was not read. */
OMM_CHECKED omm_err node_history_declined(omm_node *node, const omm_offer *offer,
                                          const char *sentence);

#endif
