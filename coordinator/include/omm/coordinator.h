/* coordinator.h - the coordinator of a federated run as a state machine: no clock, thread or socket.
 *
 *   JOINING --enough nodes are ready--> OPEN --all settled, or deadline--> AGGREGATING
 *      ^                                                                       |
 *      +---- next round <---- PUBLISHED <---- EVALUATING <---------------------+
 *                                 |
 *                                 +-- last round --> CLOSING --> CLOSED
 *
 * step() answers one request and is cheap but for the decoding of one finished upload; tick() does
 * one heavy piece (sum, evaluate, publish, close).  Both commit to SQLite before they return, or many
 * steps do with omm_coord_commit, so a process killed at any instant goes on with the same round and writes the same bytes.  Evidence
 * goes into the artifacts bundle as it happens; every write there may be repeated.
 *
 * Which bytes end up in the bundle depends on which messages arrived before which deadline, never
 * on their order, repetition, or on restarts.
 *
 * Depends on: base, compress, aggregate, proto, store, artifacts.
 * Threads: one coordinator belongs to one thread at a time; aggregation uses the pool given.
 */
#ifndef OMM_COORDINATOR_H
#define OMM_COORDINATOR_H

#include "omm/bundle.h"
#include "omm/bytes.h"
#include "omm/clock.h"
#include "omm/err.h"
#include "omm/evidence.h"
#include "omm/log.h"
#include "omm/pool.h"
#include "omm/rng.h"
#include "omm/sign.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_COORD_NEVER UINT64_MAX /* next_deadline_ms when only a message can change anything */
#define OMM_COORD_NOBODY (-1)      /* node index of who proved no identity */

typedef struct omm_coord omm_coord;
struct omm_coord_canaries;

/* When rounds open and close.  Times are durations in milliseconds of the caller's clock. */
typedef struct omm_coord_policy {
    uint32_t quorum; /* a round opens when this many ready nodes count; 0: all that count */
    uint32_t select; /* of the ready nodes; 0: all */
    double
        over_select; /* over 1: so many times the nodes that are needed get the offer (select; 0: of
                             those that are ready so many fewer are needed), and the round closes when
                             enough have come; who comes later is refused with a receipt.  0, 1: all are
                             waited for */
    uint32_t accept_min;  /* fewer accepted at the deadline make the round void; at least 1 */
    uint64_t join_ms;     /* after this long, open with whoever is ready (accept_min at least) */
    uint64_t deadline_ms; /* from opening to the last accepted byte; not counted: time in which
                             nothing can be kept */
    uint64_t poll_ms;     /* what a waiting node is told to wait */
    bool is_timed; /* omm_coord_hold keeps the next round for its time: no round makes way for it */
} omm_coord_policy;

/* An adapter that is not in memory yet: `read` fills (layout.value_count) f32, which the caller has room for. */
typedef struct omm_coord_values {
    omm_err (*read)(void *ud, float *values);
    void *ud;
} omm_coord_values;

/* The model side, so that the state machine runs without a model in tests.  Who evaluates reads `values` to where
 * they are needed: the coordinator holds none of them meanwhile.  All are deterministic functions of their input. */
typedef struct omm_coord_evaluator {
    /* Mean loss of the adapter on the round's held-out sample: fills items and loss. */
    omm_err (*sample)(void *ud, uint64_t *items, double *loss, const omm_coord_values *values);
    /* Append one omm_eval_record line per held-out item; `values` NULL: the base alone. */
    omm_err (*full)(void *ud, omm_buf *jsonl, const omm_coord_values *values);
    /* Append the adapter as a GGUF file. */
    omm_err (*render)(void *ud, omm_buf *gguf, const omm_coord_values *values);
    /* Append eval/control.jsonl, before the run is closed; NULL: the run has no control. */
    omm_err (*control)(void *ud, omm_buf *jsonl);
    void *ud;
} omm_coord_evaluator;

/* What has happened and is committed, for counters, status pages and the audit log. */
typedef enum omm_coord_event_kind {
    OMM_COORD_EVENT_SUBMISSION, /* a verdict: accepted when reason is OMM_OK */
    OMM_COORD_EVENT_REQUEST,    /* refused without a record of it */
    OMM_COORD_EVENT_OPENED,     /* a round; digest: its offer */
    OMM_COORD_EVENT_PUBLISHED,  /* a round is over; digest: its line in rounds.jsonl */
    OMM_COORD_EVENT_CLOSED,     /* the run; digest: close.env */
    OMM_COORD_EVENT_JOINED,     /* node was let in; sentence: by what */
    OMM_COORD_EVENT_CANARY, /* passed when reason is OMM_OK; node NOBODY: a candidate, peer: its name;
                                   digest: the submission's */
} omm_coord_event_kind;

/* Borrowed for the call.  sentence and peer are what strangers make of them. */
typedef struct omm_coord_event {
    omm_coord_event_kind kind;
    uint32_t round;
    int32_t node; /* index in run->nodes, or OMM_COORD_NOBODY */
    omm_err reason;
    bool settles; /* SUBMISSION: the node is done for this round; so at most one a node and round */
    const char *sentence;
    const char *peer;         /* REQUEST and CANARY only; else NULL */
    const omm_digest *digest; /* SUBMISSION: of its envelope; REQUEST: NULL */
} omm_coord_event;

/* Who may join while the run goes on (coordinator_enrol.h).  All borrowed. */
typedef struct omm_coord_enrolment {
    size_t listed; /* nodes that were enrolled when the run was made: run->nodes[0 .. listed - 1] */
    uint32_t node_max; /* of all; room that `admit` has, at most OMM_SELECTED_MAX */
    uint32_t
        work_bits;   /* 0: nobody is let in without an invitation; else who proves so much work */
    omm_clock clock; /* wall time, for the end of invitations */
    /* Append a node to run->nodes, so that run->node_count is one more; strings are copied.  The key is
     * not in it yet.  Errors: NOMEM. */
    omm_err (*admit)(void *ud, const char *name, const omm_public_key *key);
    void (*retract)(void *ud); /* the last one that was admitted; what it took is not given back */
    void *ud;
} omm_coord_enrolment;

/* All borrowed for the life of the coordinator. */
typedef struct omm_coord_options {
    const omm_run_record *run;            /* what was agreed; run->nodes are the enrolled nodes */
    const omm_coord_enrolment *enrolment; /* NULL: run->nodes and nobody else, ever */
    const struct omm_coord_canaries *canaries; /* omm/coordinator_canary.h; NULL: none */
    const bool *extra;        /* (run->node_count) node does not count for the quorum; NULL: none */
    omm_bytes scenario_yaml;  /* effective configuration, as it goes into the bundle */
    omm_bytes policy_yaml;    /* effective gate policy */
    omm_seed run_seed;        /* nonces derive from it */
    uint32_t steps;           /* of every submission, as the recipe has them; 0: any number */
    omm_coord_values initial; /* the state before round 0; read when the coordinator is opened */
    const omm_key *key;       /* its public part is run->coordinator_key */
    omm_coord_policy policy;
    omm_coord_evaluator evaluator;
    omm_bundle *bundle;
    const char *state_dir; /* coordinator.sqlite is in it; NULL: in memory */
    const char *crash_at;  /* stage of omm/crash.h for tests; NULL: none */
    omm_pool *pool;        /* may be NULL */
    const omm_log *log;    /* may be NULL */
    /* Called inside step and tick, on their thread; may be NULL.  It must not call the coordinator. */
    void (*on_event)(void *ud, const omm_coord_event *event);
    void *on_event_ud;
} omm_coord_options;

/* Start the run, or take it up where state_dir has it.
 * Errors: CONFIG (what does not fit together), MISMATCH (state_dir holds another run), IO, NOMEM,
 * and those of the bundle. */
OMM_CHECKED omm_err omm_coord_open(omm_coord **out, const omm_coord_options *options);
void omm_coord_close(omm_coord *coord); /* NULL is fine */

/* Answer one request at `now_ms` (never smaller than before).
 *
 *   reply             cleared, then one message
 *   next_deadline_ms  tick at this time at the latest; <= now_ms: there is work, tick right after
 *                     the reply has left; OMM_COORD_NEVER: nothing to do
 *   request           as received, hostile; any length
 *   peer              name of the connection, for logs
 *
 * Whatever a peer sends is answered and is no error.
 * Errors: IO, NOMEM (our own trouble: the peer gets no answer and repeats). */
OMM_CHECKED omm_err omm_coord_step(omm_buf *reply, uint64_t *next_deadline_ms, omm_coord *coord,
                                   uint64_t now_ms, omm_bytes request, const char *peer);

/* Many steps with one commit:
 *
 *   begin -> step, step, ... -> commit -> their replies leave
 *
 * Steps between begin and commit answer each other's consequences as ever, but nothing is on disk and no
 * event is told before the commit: until it has returned OK, no reply may leave.  Nothing but steps may be
 * called in between; whoever closes the coordinator there forgets the batch.
 * Errors: STATE (after an earlier one), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_begin(omm_coord *coord);
/* Errors: IO, NOMEM: nothing of the batch is remembered, on disk and in memory, so its peers must be told to ask
 * again; STATE: the same, and what was before could not be read again: close the coordinator. */
OMM_CHECKED omm_err omm_coord_commit(uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms);

/* Time passed.  At most one transition per call.  Errors: IO, NOMEM, those of the evaluator. */
OMM_CHECKED omm_err omm_coord_tick(uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms);

/* ---- an operator's word; each is committed before it returns, and kept over restarts ---- */

/* Paused: no round is opened; one that is open goes on.  Resuming gathers the nodes anew: who was
 * ready before a long pause may be gone.  Errors: STATE (it is so already, or the run is closed), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_pause(uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms,
                                    bool paused);
/* The line of rounds.jsonl of a round that is over, as the database has it, appended to `line`, and where it begins in the file.
 * Errors: NOT_FOUND (it is not over), IO, NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_coord_round_line(omm_buf *line, uint64_t *at, omm_coord *coord,
                                         uint32_t round);
/* Quarantine: the node is not selected and does not count for a quorum; what it still owes to the open
 * round is refused, with a receipt, and the round does not wait for it.  What was accepted before stays.
 * Errors: STATE (it is so already, or the run is closed), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_quarantine(uint64_t *next_deadline_ms, omm_coord *coord,
                                         uint64_t now_ms, size_t node, bool quarantined);
/* Paused until the process ends, and nothing is kept of it. */
void omm_coord_drain(omm_coord *coord);

/* The next round begins from the adapter after round `round`, or from the run's first one (round < 0), instead of from
 * the newest: the one that is gathered now, or, with one open, the one after it.  The last word before it opens
 * counts; the newest state's number takes a rollback back.  *next is the round that it is about.
 * Errors: STATE (no round is left, or `round` is not over: says which are), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_rollback(uint32_t *next, uint64_t *next_deadline_ms, omm_coord *coord,
                                       uint64_t now_ms, int64_t round);
/* Held: no round is opened until it is let go, which gathers the nodes anew.  Nothing is kept of it. */
void omm_coord_hold(uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms, bool held);
/* How long this state has lasted on the caller's clock; and, after a restart and before the first step, how long it
 * had: passed_ms is at most now_ms.  Without it durations start again.  An open round does not run out at once: who could
 * not reach us comes again. */
uint64_t omm_coord_stage_ms(const omm_coord *coord, uint64_t now_ms);
void omm_coord_resume_stage(omm_coord *coord, uint64_t now_ms, uint64_t passed_ms);

/* CLOSED: the evidence is complete and signed; polls are answered with Done. */
bool omm_coord_is_done(const omm_coord *coord);
/* CLOSED, and every node that counts has been told so. */
bool omm_coord_all_told(const omm_coord *coord);
/* Not within a batch, and after its answers have left: who has been told so is so after a restart.
 * Errors: IO, NOMEM: some are not, and a restart waits for them once more. */
OMM_CHECKED omm_err omm_coord_keep_told(omm_coord *coord);
/* Before an orderly end, when no request is taken any more: how far the polls of every node came is on disk then, and the
 * next start refuses nobody's next one.  Errors: IO, NOMEM, STATE: it refuses every node once, as after a kill. */
OMM_CHECKED omm_err omm_coord_keep_counters(omm_coord *coord);
/* A request that is not answered now, as a tick is under way in another thread: where it is a poll of a node, that it was
 * there is remembered, or whoever listens could send it later as a new one.  Nothing else is done with it. */
void omm_coord_pass_over(omm_coord *coord, omm_bytes request);
/* Index in run->nodes of the node whose signature, or whose announced chunk, the last step's request
 * carried; OMM_COORD_NOBODY when it proved nothing.  It may be a replay by anybody who listens. */
int32_t omm_coord_last_node(const omm_coord *coord);
/* What of that request and of its answer was an adapter as the codecs send it: a payload or a part of it, of a submission that a
 * node has signed and whatever came of it, and the global adapter or a part of that.  Of a canary's, too; of its shard no byte. */
typedef struct omm_coord_payload {
    size_t up, down; /* bytes */
} omm_coord_payload;
omm_coord_payload omm_coord_last_payload(const omm_coord *coord);
/* It was no replay: a poll newer than all before, or a manifest for the open round that was not here
 * before.  A transport may lift its limits for such a connection. */
bool omm_coord_peer_is_fresh(const omm_coord *coord);
/* It was a node's, be it a replay, or a candidate's on probation: a transport may keep the connection a while. */
bool omm_coord_peer_stays(const omm_coord *coord);

typedef enum omm_coord_state { /* the numbers are in the database */
                               OMM_COORD_JOINING = 0,
                               OMM_COORD_OPEN = 1,
                               OMM_COORD_AGGREGATING = 2,
                               OMM_COORD_EVALUATING = 3,
                               OMM_COORD_PUBLISHED = 4,
                               OMM_COORD_CLOSING = 5,
                               OMM_COORD_CLOSED = 6,
} omm_coord_state;
const char *omm_coord_state_name(omm_coord_state state);

/* For progress bars, status pages and logs. */
typedef struct omm_coord_status {
    omm_coord_state state;
    uint32_t round, rounds;
    uint32_t ready;                       /* nodes waiting for the round to open */
    uint32_t selected, accepted, refused; /* of this round */
    bool has_loss;
    double loss;                 /* of the published adapter on the round's sample */
    bool paused, draining, held; /* held: its time has not come yet */
    uint32_t quorum, accept_min; /* ready nodes that open a round at once; that it needs at least */
    uint32_t quarantined;
    bool is_spared;          /* OPEN: it does not run out at once, as something could not be kept */
    uint64_t waited_ms;      /* OPEN: time that does not count for its deadline because of that */
    uint64_t refusals_total; /* also those that left no record */
    bool has_canaries;
    uint32_t candidates, canaries_open,
        canaries_waiting; /* offers not answered; answers not judged */
} omm_coord_status;
omm_coord_status omm_coord_get_status(const omm_coord *coord);

/* A round that is over, as its line in rounds.jsonl says. */
typedef struct omm_coord_round {
    uint32_t round;
    uint32_t selected, accepted, refused, missing;
    uint64_t tokens; /* of the accepted submissions */
    double loss;     /* of the candidate, published or not; NaN for a void round */
    bool published, voided;
    bool
        ended_dry; /* void before its deadline: it waited for dry runs alone, as far as this process has seen it */
    uint32_t begins; /* number of the state it began from: `round`, or an earlier one */
} omm_coord_round;
/* Rounds 0 .. count - 1; valid until the next tick. */
const omm_coord_round *omm_coord_history(uint32_t *count, const omm_coord *coord);

/* One node of run->nodes, of this round and of the whole run. */
typedef struct omm_coord_node_status {
    bool ready, selected, offered, uploading, settled, quarantined, revoked;
    uint32_t accepted, refused; /* submissions, since the run began; of the refused ones a restart
                                   forgets those that left no record */
    /* omm/declined.h: why it gives nothing to the open round or, until another one opens, gave nothing to the
     * last one.  After a restart not known until it has polled, but for a dry run, which says it once. */
    uint32_t declined;
} omm_coord_node_status;
omm_coord_node_status omm_coord_get_node(const omm_coord *coord, size_t index);

#endif
