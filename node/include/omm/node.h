/* node.h - a training node as a state machine: no clock, thread or socket.
 *
 *   POLLING <-- ENROLLING <--not enrolled-- POLLING      by a token, or
 *   ENROLLING <--WORK_DONE-- PROVING <--challenge-- ENROLLING      by work
 *   POLLING --offer--> FETCHING --global adapter--> TRAINING --WORK_DONE--> SUBMITTING
 *      ^                                                                       | Need
 *      +------------- receipt: accepted commits the residual <---- UPLOADING <-+
 *      |
 *      +-- Done --> DONE
 *   a dry run: FETCHING --> TELLING (a Poll that says so) --> TRAINING --WORK_DONE--> SHOWING
 *
 * step() takes one event and says what to do next.  At most one request is in flight; a request
 * whose answer is lost is sent again, byte for byte.  Training runs in omm_node_work, outside of
 * step, on any thread.  With a state_dir everything that matters is on disk before step returns, so
 * a node killed at any instant ends with the same bytes.
 *
 * What the node trusts: its pinned coordinator key and its own limits.  An offer by another key,
 * for another base model or over a limit is not followed.
 *
 * Depends on: base, compress, proto, store, training.h.
 * Threads: one node belongs to one thread at a time; only omm_node_cancel may come from another.
 */
#ifndef OMM_NODE_H
#define OMM_NODE_H

#include "omm/bytes.h"
#include "omm/clock.h"
#include "omm/err.h"
#include "omm/log.h"
#include "omm/sign.h"
#include "omm/training.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct omm_node omm_node;

/* What an adapter leaves behind of a round is one value of the node's database, and SQLite holds at most 10^9 bytes in one. */
#define OMM_NODE_ADAPTER_VALUES_MAX 240000000u

/* What the owner of the machine agreed to; an offer beyond it is declined. */
typedef struct omm_node_limits {
    uint32_t rank_max;
    uint32_t steps_max;          /* asked from training->plan */
    uint64_t tokens_max;         /* trained in one round: time */
    uint64_t pass_tokens_max;    /* in one forward and backward pass: memory */
    uint64_t adapter_values_max; /* 4 bytes each, a handful of copies; at most
                                    OMM_NODE_ADAPTER_VALUES_MAX are taken */
    uint64_t download_bytes_max; /* of one global adapter */
    uint64_t upload_bytes_max;   /* of one payload */
    uint32_t work_bits_max;      /* of a proof of work, to be let in; 0: none is done */
} omm_node_limits;
omm_node_limits omm_node_limits_default(void);

/* All borrowed for the life of the node. */
typedef struct omm_node_options {
    const omm_key *key;
    const char *name;           /* for logs */
    omm_public_key coordinator; /* pinned */
    const char *run_id;         /* only this run; NULL: any run of the pinned coordinator */
    const omm_seed *token; /* invitation (omm/enrolment.h), for a coordinator that does not know us;
                                   NULL: none */
    omm_node_limits limits;
    bool
        whole; /* a small adapter comes with its offer, a small payload goes with its submission; asked
                   in chunks, as always, where the coordinator is one that does not know that */
    omm_training *training; /* model and data (training.h), or a test's own */
    const char *state_dir;  /* node.sqlite and the checkpoint are in it; NULL: in memory */
    const char *crash_at;   /* stage of omm/crash.h for tests; NULL: none */
    const omm_log *log;     /* may be NULL */
    const omm_clock *clock; /* wall time for the owner's history; NULL: all at 0 */
    bool
        is_dry; /* no submission is sent: the coordinator is told that, and the node ends with SHOW */
    void (*pace)(void *ud); /* called before every micro-batch; may sleep; NULL: full speed */
    void *pace_ud;
} omm_node_options;

/* Errors: CONFIG, MISMATCH (state_dir belongs to another key), IO, NOMEM. */
OMM_CHECKED omm_err omm_node_open(omm_node **out, const omm_node_options *options);
void omm_node_close(omm_node *node); /* NULL is fine */

typedef enum omm_node_event_kind {
    OMM_NODE_TICK,        /* the time of a WAIT has come, or the node was just opened */
    OMM_NODE_REPLY,       /* answer to the request in flight: `reply` */
    OMM_NODE_SEND_FAILED, /* no answer came, or the connection broke */
    OMM_NODE_WORK_DONE,   /* omm_node_work returned: `work` is its result */
} omm_node_event_kind;

typedef struct omm_node_event {
    omm_node_event_kind kind;
    omm_bytes reply; /* hostile; any length */
    omm_err work;
} omm_node_event;

typedef enum omm_node_action_kind {
    OMM_NODE_SEND, /* send `request`; then REPLY or SEND_FAILED */
    OMM_NODE_WORK, /* call omm_node_work; then WORK_DONE */
    OMM_NODE_WAIT, /* then TICK at until_ms */
    OMM_NODE_DONE, /* the run is closed; nothing more to do */
    OMM_NODE_SHOW, /* is_dry: what would be sent is made (omm_node_get_submission); nothing more to do */
} omm_node_action_kind;

typedef struct omm_node_action {
    omm_node_action_kind kind;
    omm_bytes request;    /* SEND: borrowed until the next step */
    bool is_retry;        /* SEND: the same bytes as before */
    uint64_t until_ms;    /* WAIT */
    uint64_t work_tokens; /* WORK: tokens the recipe will process, for estimates */
} omm_node_action;

/* Take one event at `now_ms` and say what comes next.
 * Errors: IO, NOMEM (own trouble; the state is unchanged and the event may be repeated). */
OMM_CHECKED omm_err omm_node_step(omm_node_action *action, omm_node *node, uint64_t now_ms,
                                  const omm_node_event *event);

/* Do the training, or the proof of work, that the last WORK action asked for.  Blocks; uses the pool of `compute`; any
 * thread, while no other call is made on this node.  Give its result to the WORK_DONE event.
 * Errors: CANCELLED and those of the training. */
struct omm_compute;
OMM_CHECKED omm_err omm_node_work(omm_node *node, const struct omm_compute *compute);
/* Make a running omm_node_work return CANCELLED soon, with a checkpoint of what it has done.  Any
 * thread.  A later omm_node_work begins anew, so repeat it until work has returned. */
void omm_node_cancel(omm_node *node);

#define OMM_NODE_REFUSED_SIZE 257u
typedef struct omm_node_status {
    const char *phase; /* "polling", "training", ... */
    char run_id[33];
    bool is_over; /* its run was closed, and no answer since speaks of a next one */
    bool has_round;
    uint32_t round;             /* of the last offer */
    uint32_t steps, steps_done; /* of the training at hand; 0: none */
    uint32_t rounds_accepted, rounds_refused;
    char last_reason[40]; /* of the last receipt */
    /* Why the coordinator does not let it take part, in its words; "": it does, or has not answered yet. */
    char refused[OMM_NODE_REFUSED_SIZE];
    const char *advice; /* what its owner can do about it; "": nothing is known */
    bool told_dry;      /* is_dry: the coordinator knows that the round need not wait */
    char left
        [OMM_NODE_REFUSED_SIZE]; /* why it left a round without a verdict; "": there was one since */
} omm_node_status;
/* Also while omm_node_work runs, from another thread. */
omm_node_status omm_node_get_status(const omm_node *node);

/* After DONE, when the program is about to end: the next start asks the coordinator for another run, unless
 * options.run_id names this one.  Without it the next start ends at once.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err omm_node_ended(omm_node *node);

/* The submission that is made and waits for its verdict, as it is sent: envelope and payload, borrowed
 * until the next step; size 0: there is none. */
void omm_node_get_submission(omm_bytes *envelope, omm_bytes *payload, const omm_node *node);

#endif
