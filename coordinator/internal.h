/* internal.h - the coordinator's own state, shared by its files.
 *
 *   coordinator.c   open, close, step and tick: who does what in which state
 *   store.c         the database: one function per thing that is remembered of run and rounds
 *   store_submission.c   its table of submissions
 *   store_load.c    the state, read from it again
 *   answer.c        one request, one answer: polls, the global adapter
 *   submit.c        a submission's manifest: checks in order, cheap ones first
 *   upload.c        its payload, and the verdict
 *   batch.c         many steps with one commit
 *   verdict.c       receipts and refusal records
 *   room.c          what fits a bundle
 *   round.c         opening, publishing and closing
 *   sum.c           aggregating
 *   deadline.c      when an open round runs out
 *   declined.c      why nodes give nothing to a round, as they say
 *   state.c         what a round begins from, and what nodes get of it
 *   rollback.c      rounds that begin from an earlier adapter
 *   evidence.c      the files of a round, written when it is over
 *   by_id.c         the nodes in the order of their ids
 *   enrol.c         who is let in while the run goes on
 *   enrol_operator.c     what the operator does about that: invitations, revocation, lists
 *   canary*.c       work on public data that is done again (canary.h)
 *
 * Invariants: memory follows the database (a commit first, then the fields; in a batch a statement
 * first, and all fields are read again when its commit fails); what is in the bundle
 * is a function of the database, so writing it again gives the same bytes.
 */
#ifndef COORDINATOR_INTERNAL_H
#define COORDINATOR_INTERNAL_H

#include "declined.h"

#include "omm/blobs.h"
#include "omm/coordinator.h"
#include "omm/crash.h"
#include "omm/database.h"
#include "omm/envelope.h"
#include "omm/fedavg.h"
#include "omm/file.h"
#include "omm/messages.h"

#define COORD_ANONYMOUS OMM_COORD_NOBODY
#define COORD_ANONYMOUS_RECORDS_MAX 32u /* refusals without identity kept per round (room.c) */
#define COORD_ANONYMOUS_BYTES_MAX (4u << 20)
#define COORD_NODE_RECORDS_MAX 8u     /* refusals kept per node and round (room.c) */
#define COORD_REPLACED_MAX 4u         /* how often a node may start its upload over in a round */
#define COORD_LOGGED_REFUSALS_MAX 64u /* per round at level WARN; a flood goes on at DEBUG */
#define COORD_UPLOAD_ARENA_BYTES OMM_MESSAGE_ARENA_BYTES
#define COORD_BATCH_ARENA_BYTES ((size_t)8 << 20) /* events: 2,048 of a deadline and then some */
#define COORD_SMALL_BYTES_MAX ((size_t)64 << 10)  /* of a payload that is kept in the database */

/* A round does not run out for so long after a call that could not keep what it was given: who had no answer asks again
 * after a minute (node.yaml answer_ms).  At most so long after it would have otherwise: a weekend. */
#define COORD_FAILING_MS 90000u
#define COORD_FAILING_MS_MAX ((uint64_t)3 * 24 * 3600 * 1000)

#define COORD_BEFORE UINT64_MAX       /* a moment before this process */
#define COORD_PASSED (UINT64_MAX - 1) /* a moment in which nothing could be answered */

typedef enum coord_status { /* of a submission; the numbers are in the database */
                            COORD_PENDING = 0, /* announced, payload incomplete */
                            COORD_ACCEPTED = 1,
                            COORD_REFUSED = 2,  /* and the node is done for this round */
                            COORD_REJECTED = 3, /* refused, but proves nothing about its node */
} coord_status;

/* A submission whose manifest passed all checks. */
typedef struct coord_upload {
    bool active;
    omm_digest digest; /* of the envelope */
    omm_arena arena;
    omm_submission submission;
} coord_upload;

typedef struct coord_node {
    bool counts;      /* for the quorum */
    bool ready;       /* polled since the round began to gather */
    bool selected;    /* for the open round */
    bool offered;     /* took this round's offer: it will not ask for older receipts */
    bool settled;     /* accepted or refused in this round */
    bool told;        /* got Done */
    bool told_kept;   /* and the database has it */
    bool quarantined; /* also when revoked */
    bool revoked;
    bool has_counter;
    uint64_t counter; /* of its last poll */
    uint64_t
        counter_moment; /* round and state in which that poll came first, or one of the two above */
    uint64_t counter_passed; /* of the last poll that was passed over; of the thread that serves */
    uint64_t counter_upto;   /* in the database: what a poll up to it needs no write for */
    omm_digest residual;     /* after its last accepted submission */
    coord_upload upload;
    omm_digest replaced[COORD_REPLACED_MAX]; /* manifests it gave up in this round */
    uint32_t replaced_count;
    uint32_t accepted_total, refused_total; /* since the run began */
    uint32_t declined;        /* why it gave nothing to this round's offer, by its last poll */
    uint32_t declined_logged; /* lines about that, in this round */
    uint64_t asked_ms; /* OPEN: when it last asked for a round that is not this one; 0: not yet */
    uint64_t dry_until_ms; /* a round has made way for its dry run: up to then no other one does */
} coord_node;

/* What the steps of an open batch have to tell, once it is committed. */
typedef struct coord_batch {
    bool open;
    bool has_verdict;
    bool is_lost; /* an event did not fit in memory: the batch must not be committed */
    omm_arena arena;
    struct coord_told *first, *last;
} coord_batch;
/* Round `round` begins from state `to`; where that is `round` itself, from the newest, as always. */
typedef struct coord_rollback {
    bool known;
    uint32_t round, to;
} coord_rollback;

typedef struct coord_enrol coord_enrol;   /* enrol.h */
typedef struct coord_canary coord_canary; /* canary.h */
struct canary_peer;

struct omm_coord {
    omm_coord_options o;
    coord_enrol *enrol;   /* NULL: nobody joins */
    coord_canary *canary; /* NULL: there are none */
    size_t listed;        /* nodes when the run was made */
    uint32_t node_max;
    uint32_t anonymous_records_max, node_records_max; /* room.c */
    uint32_t *by_id; /* (node_max) indices of run->nodes in ascending order of ids */
    const omm_layout *layout;
    size_t value_count;
    omm_digest layout_digest;
    omm_digest residual_zero; /* of (value_count) zeros */
    uint8_t codec_up[OMM_CODEC_BYTES], codec_down[OMM_CODEC_BYTES];
    uint64_t payload_bytes_max;
    omm_fedavg_range range;
    omm_db *db;
    omm_blobs *uploads;

    omm_coord_state state;
    uint32_t round;
    uint32_t
        ahead; /* rounds that a node has had and this run has not: 0, or the first such count */
    bool has_loss;
    double loss;         /* of the published adapter */
    omm_digest previous; /* of the last line of rounds.jsonl, or of what was agreed */
    uint32_t begins;     /* the state that the round begins from; its values are in the bundle */
    omm_buf sent;        /* what nodes get of it; empty: coord_state_hold makes it */
    omm_arena sent_arena;
    omm_blob global;

    bool paused, draining, held; /* no round is opened */
    bool has_since;              /* false after a restart: durations start again */
    uint64_t since_ms;           /* of an open round later than it opened, by waited_ms */
    bool has_failed;             /* OPEN: something could not be kept, */
    uint64_t failed_ms;          /* the last time then */
    bool failing_told;           /* the log has it */
    uint64_t waited_ms;          /* time of this round that does not count */
    bool has_quorum;             /* JOINING: enough are ready, since quorum_ms */
    uint64_t quorum_ms;
    coord_node *nodes; /* (node_max), in the order of run->nodes */
    uint32_t selected_count, accepted_count, refused_count;
    uint32_t shut_out_count; /* selected, not settled, and in quarantine since */
    omm_buf offer;           /* envelope; empty unless OPEN or later in the round */
    omm_digest offer_digest, nonce;
    uint64_t refusals_total;
    uint32_t refusals_logged; /* in this round */
    uint32_t declined_logged; /* the same */
    bool declined_told;       /* that too few are left for this round */
    bool has_dry;             /* somebody has said in this round that it is a dry run */
    bool ended_dry; /* the round, or the last one, made way: it waited for dry runs alone */

    bool is_void;
    uint64_t weight_sum;
    bool is_judged;   /* EVALUATING: is_published, eval_items and candidate_loss are known */
    float *candidate; /* EVALUATING, and not void or held back; else NULL */
    omm_buf candidate_sent;
    omm_digest candidate_canonical;
    uint64_t eval_items;
    double candidate_loss;
    bool is_published;

    coord_rollback rollbacks[2]; /* of this round, and of the next one */
    bool must_roll_back;         /* this round's has not been taken up yet */

    omm_coord_round *history; /* (run->rounds) */
    uint32_t history_count;   /* rounds that are over */

    omm_buf close;             /* envelope of Close */
    int32_t last_node;         /* whose request this step answers */
    omm_coord_payload payload; /* of it and its answer */
    char who
        [80]; /* for the log, of who signed it: a node's name, or how its key begins; "": nobody */
    bool peer_fresh;          /* and nobody else can have sent it: it is no replay */
    bool peer_tries;          /* a candidate's, about its canary */
    int32_t kept_out;         /* whose poll is refused with a signature; or nobody */
    omm_digest kept_out_poll; /* that poll's envelope */
    coord_batch batch;
    bool is_broken; /* memory could not be read again after a failed commit */
};

/* ---- coordinator.c ---- */
uint64_t coord_next_deadline(const omm_coord *c, uint64_t now_ms);
/* The node is in quarantine from now on, or not any more: that is in a database already. */
void coord_set_quarantine(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, size_t node,
                          bool quarantined);

/* ---- answer.c ---- */
/* Well signed: by this node, or by a stranger (negative) with this key. */
void coord_note_who(omm_coord *c, const omm_public_key *key, int32_t node);

/* ---- batch.c ---- */
/* Errors: STATE (is_broken). */
OMM_CHECKED omm_err coord_check_sound(const omm_coord *c);
/* Now, or when the open batch is committed. */
void coord_tell(omm_coord *c, const omm_coord_event *event);
/* A line of the log about what the database keeps: the same, and not at all where the batch is undone.  Used as omm_log_event. */
#define coord_log_kept(c, level, event, ...)                                                       \
    coord_log_write((c), (level), (event), (const omm_log_field[]){__VA_ARGS__},                   \
                    sizeof((const omm_log_field[]){__VA_ARGS__}) / sizeof(omm_log_field))
void coord_log_write(omm_coord *c, omm_log_level level, const char *event,
                     const omm_log_field *fields, unsigned count);

/* ---- store_load.c ---- */
OMM_CHECKED omm_err coord_store_load(omm_coord *c); /* state, round, flags, uploads */
OMM_CHECKED omm_err coord_told_load(omm_coord *c);  /* who has heard of the end (told.c) */
/* After a rollback: forget what coord_store_load fills, and load it.  Errors: IO, NOMEM, FORMAT. */
OMM_CHECKED omm_err coord_store_reload(omm_coord *c);
/* What a line of rounds.jsonl says.  Errors: FORMAT (also: not the line of `round`), NOMEM. */
OMM_CHECKED omm_err coord_history_parse(omm_coord_round *out, uint32_t round, omm_bytes line);

/* ---- store.c ---- */
OMM_CHECKED omm_err coord_store_open(omm_coord *c);
typedef omm_err (*coord_store_body)(omm_coord *c, const void *ud);
/* All statements of `body` or none: in a transaction, in an open batch as a part of that one. */
OMM_CHECKED omm_err coord_store_in_transaction(omm_coord *c, coord_store_body body, const void *ud);
OMM_CHECKED omm_err coord_store_state(omm_coord *c, omm_coord_state state, uint32_t round);
OMM_CHECKED omm_err coord_store_offer(omm_coord *c, omm_bytes envelope);
/* Polls of the node up to this counter are not fresh any more after a restart. */
OMM_CHECKED omm_err coord_store_counter(omm_coord *c, uint32_t node, uint64_t upto);
/* The node is ready for the round, or took its offer, or has said since that it is a dry run. */
typedef enum coord_presence { /* the numbers are in the database */
                              COORD_READY = 0,
                              COORD_OFFERED = 1,
                              COORD_DRY = 2,
} coord_presence;
OMM_CHECKED omm_err coord_store_presence(omm_coord *c, uint32_t node, coord_presence is);
OMM_CHECKED omm_err coord_store_loss(omm_coord *c, double loss);
/* Whoever was ready for this round is asked anew, over a restart too; so is everybody where a pause ends, and a node that comes
 * into quarantine or out of it. */
OMM_CHECKED omm_err coord_store_gather_anew(omm_coord *c);
OMM_CHECKED omm_err coord_store_paused(omm_coord *c, bool paused);
OMM_CHECKED omm_err coord_store_quarantine(omm_coord *c, size_t node, bool quarantined);
/* Lines of the ledger, and of the evaluated states, that earlier rounds wrote. */
OMM_CHECKED omm_err coord_store_counts_before(uint32_t *ledger_lines, uint32_t *state_lines,
                                              omm_coord *c, uint32_t round);
OMM_CHECKED omm_err coord_store_publish(omm_coord *c, omm_bytes line, bool evaluated);
OMM_CHECKED omm_err coord_store_close(omm_coord *c, omm_bytes close_envelope);

/* ---- store_submission.c ---- */
/* One row of table submission. */
typedef struct coord_row {
    uint32_t round;
    omm_digest digest;
    int32_t node; /* or COORD_ANONYMOUS */
    coord_status status;
    omm_err reason;
    const char *sentence;
    bool is_envelope;
    bool is_passed;    /* no record is kept of it: not in the database */
    omm_bytes bytes;   /* as received */
    omm_bytes receipt; /* empty: none */
    uint64_t tokens;
    omm_digest payload, canonical;
    double norm;
    omm_digest residual; /* put only, of an accepted row: after it */
} coord_row;
OMM_CHECKED omm_err coord_store_put(omm_coord *c, const coord_row *row); /* insert or replace */
OMM_CHECKED omm_err coord_store_drop(omm_coord *c, uint32_t round, const omm_digest *digest);
/* Newest row of this digest, of any round; strings and bytes in `arena`. */
OMM_CHECKED omm_err coord_store_find(bool *found, coord_row *row, omm_coord *c,
                                     const omm_digest *digest, omm_arena *arena);
/* Settled row of the newest round in which `payload` was announced; found false when two nodes
 * announced it there. */
OMM_CHECKED omm_err coord_store_find_payload(bool *found, coord_row *row, omm_coord *c,
                                             const omm_digest *payload, omm_arena *arena);
/* Has another node than row->node an accepted submission of the same payload in row->round? */
OMM_CHECKED omm_err coord_store_is_copy(bool *copy, omm_coord *c, const coord_row *row);
OMM_CHECKED omm_err coord_store_is_settled(bool *settled, omm_coord *c, uint32_t round,
                                           uint32_t node);
/* How much `node` left in `round` as refusals that do not settle. */
OMM_CHECKED omm_err coord_store_rejected(uint64_t *count, uint64_t *bytes, omm_coord *c,
                                         uint32_t round, int32_t node);
/* What was accepted in a round, in ascending order of nodes.  `each` may read the database and must not write to it;
 * its error ends the walk. */
typedef omm_err (*coord_accepted_fn)(void *ud, const omm_digest *payload, uint64_t tokens);
OMM_CHECKED omm_err coord_store_each_accepted(omm_coord *c, uint32_t round, coord_accepted_fn each,
                                              void *ud);
/* Rows of a round in ascending (node id, digest) order. */
OMM_CHECKED omm_err coord_store_rows(coord_row **rows, size_t *count, omm_coord *c, uint32_t round,
                                     omm_arena *arena);

/* ---- answer.c ---- */
OMM_CHECKED omm_err coord_answer(omm_buf *reply, omm_coord *c, uint64_t now_ms, omm_bytes request,
                                 const char *peer);
/* Ask again in a while. */
OMM_CHECKED omm_err coord_reply_wait(omm_buf *reply, const omm_coord *c);

/* ---- upload.c ---- */
/* Uploads still open at the deadline become late refusals. */
OMM_CHECKED omm_err coord_refuse_unfinished(omm_coord *c);
/* The node is in quarantine: its open upload, if it has one, becomes a refusal. */
OMM_CHECKED omm_err coord_refuse_upload(omm_coord *c, size_t node);
/* Take up an announced submission again after a restart. */
OMM_CHECKED omm_err coord_upload_restore(omm_coord *c, const coord_row *row);
/* Take up `envelope`, whose manifest was checked and whose digest this is, in memory, instead of what was there.
 * Errors: those of decoding; then nothing has changed. */
OMM_CHECKED omm_err coord_upload_open(coord_upload *upload, const omm_digest *digest,
                                      omm_bytes envelope);
void coord_upload_end(coord_upload *upload);
/* Borrows from `upload`. */
omm_blob_plan coord_upload_plan(const coord_upload *upload, const omm_digest *owner);

/* ---- by_id.c ---- */
/* Index of an enrolled node by id, or COORD_ANONYMOUS. */
int32_t coord_node_find(const omm_coord *c, const omm_digest *id);
/* The run's record with nodes[0 .. count - 1], ascending by id. */
OMM_CHECKED omm_err coord_record_write(omm_buf *out, const omm_coord *c, size_t count);
/* What ascends by node ascends by the node's id then. */
OMM_CHECKED omm_err coord_rows_by_id(coord_row *rows, size_t count, const omm_coord *c);

/* ---- enrol.c ---- */
/* Of the wall, for moments that the operator reads; 0 in a run without enrolment. */
uint64_t coord_wall_ms(const omm_coord *c);
OMM_CHECKED omm_err coord_enrol_open(omm_coord *c);
void coord_enrol_close(omm_coord *c);
OMM_CHECKED omm_err coord_enrol_answer(omm_buf *reply, omm_coord *c, uint64_t now_ms,
                                       omm_bytes bytes, omm_arena *arena);
/* A new node of the run.  Errors: REFUSED_FULL, REFUSED_LATE, IO, NOMEM. */
OMM_CHECKED omm_err coord_enrol_let_in(omm_coord *c, const omm_public_key *key, const char *by);
/* Always REFUSED_KEY, saying what would be accepted, or why this node is not any more. */
OMM_CHECKED omm_err coord_refuse_stranger(const omm_coord *c);
OMM_CHECKED omm_err coord_refuse_revoked(const omm_coord *c, size_t node);

/* ---- canary*.c; without canaries all of these do nothing ---- */
OMM_CHECKED omm_err coord_canary_open(omm_coord *c); /* after all that it looks at was loaded */
void coord_canary_close(omm_coord *c);
void coord_canary_now(omm_coord *c, uint64_t now_ms); /* of the request at hand */
/* Who comes by work is a candidate first. */
bool coord_canary_tries(const omm_coord *c);
OMM_CHECKED omm_err coord_canary_admit(omm_coord *c, const omm_public_key *key, const char *by);
/* A candidate?  Errors: REFUSED_KEY (it was one, and failed), IO. */
OMM_CHECKED omm_err coord_canary_knows(bool *known, const omm_coord *c, const omm_digest *id);
/* A candidate has become a node of the run by an invitation: what it has begun it ends, as a node does, and owes no more. */
OMM_CHECKED omm_err coord_canary_invited(omm_coord *c, const omm_digest *id);
/* Has the node of the run a canary that it must answer first? */
bool coord_canary_holds(const omm_coord *c, size_t node);
/* Of a candidate, or of a node that is held. */
OMM_CHECKED omm_err coord_canary_answer_poll(omm_buf *reply, omm_coord *c, const omm_digest *id,
                                             bool whole);
/* Those of the chosen whose turn is a canary are not chosen any more. */
OMM_CHECKED omm_err coord_canary_draw(bool *chosen, omm_coord *c);
/* handled: it was about a canary, and the reply is there or the error is its answer. */
OMM_CHECKED omm_err coord_canary_get(bool *handled, omm_buf *reply, omm_coord *c,
                                     const omm_request *request);
OMM_CHECKED omm_err coord_canary_submit(bool *handled, omm_buf *reply, omm_coord *c,
                                        const omm_request *request, const omm_digest *digest,
                                        omm_arena *arena);
/* The chunk, whose digest this is, goes to all uploads of canaries that it fits; the first one answers
 * unless somebody has. */
OMM_CHECKED omm_err coord_canary_put(omm_buf *reply, bool *answered, omm_coord *c,
                                     const omm_request *request, const omm_digest *digest);
OMM_CHECKED omm_err coord_canary_let_in(omm_coord *c, struct canary_peer *candidate);
/* Why its canary put the node in quarantine; "": it did not. */
const char *coord_canary_reason(const omm_coord *c, size_t node);
/* The operator lets the node out of it. */
OMM_CHECKED omm_err coord_canary_release(omm_coord *c, size_t node);
OMM_CHECKED omm_err coord_canary_list(omm_buf *out, const omm_coord *c);
/* Is there room for one more line of a list, and `kept` bytes behind it?  (enrol_operator.c) */
bool coord_list_has_room(const omm_buf *out, size_t kept);
void coord_canary_count(omm_coord_status *out, const omm_coord *c);

/* ---- room.c ---- */
/* Could the bundle of this run, with up to `most` nodes, be sealed?  Errors: CONFIG. */
OMM_CHECKED omm_err coord_room_check(const omm_coord_options *o, size_t most);
/* Set how many refusals are kept; o and node_max are there, and were checked. */
void coord_room_share(omm_coord *c);

/* ---- verdict.c ---- */
bool coord_is_refusal(omm_err err);
/* At which level a refusal is logged: the first of a round so that they are seen. */
omm_log_level coord_refusal_level(omm_coord *c);
/* Round whose evidence takes what arrives now; rounds when the run takes no more. */
uint32_t coord_evidence_round(const omm_coord *c);
/* A signed verdict on `submission`, which says that it is for `round`. */
OMM_CHECKED omm_err coord_receipt(omm_buf *out, const omm_coord *c, uint32_t round,
                                  const omm_digest *node_id, const omm_digest *submission,
                                  omm_err reason, const char *sentence);
/* Remember the verdict in `row` (reason, sentence, status; the receipt is added) and answer. */
OMM_CHECKED omm_err coord_settle(omm_buf *reply, omm_coord *c, coord_row *row);
OMM_CHECKED omm_err coord_reply_row(omm_buf *reply, const coord_row *row);

/* ---- state.c: vectors are (value_count), to be freed by the caller ---- */
/* What the run begins with.  Errors: NOMEM, those of the options' initial. */
OMM_CHECKED omm_err coord_state_initial(float **values, const omm_coord *c);
/* What the round begins from.  Errors: NOMEM, NOT_FOUND, IO, SIZE. */
OMM_CHECKED omm_err coord_state_load(float **values, const omm_coord *c);
/* `values` as they are sent. */
OMM_CHECKED omm_err coord_broadcast_make(omm_buf *sent, omm_digest *canonical, const omm_coord *c,
                                         const float *values);
/* What nodes make of it; the values read from `sent` while it lives. */
typedef struct coord_sent {
    const omm_coord *c;
    omm_bytes bytes;
} coord_sent;
omm_coord_values coord_sent_values(coord_sent *sent);
/* c->global and what it lies in. */
typedef struct coord_global {
    omm_arena arena;
    omm_blob blob;
} coord_global;
OMM_CHECKED omm_err coord_global_describe(coord_global *out, omm_bytes sent,
                                          const omm_digest *canonical);
void coord_global_take(omm_coord *c, const coord_global *global);
/* After OK c->sent is in memory.  Errors: those of coord_state_load and the codec, DIGEST (the file is another). */
OMM_CHECKED omm_err coord_state_hold(omm_coord *c);
void coord_state_drop(omm_coord *c);
/* The round begins from state `number` of the bundle, or from the first one, which is put there.  On error nothing has
 * changed. */
OMM_CHECKED omm_err coord_state_begin(omm_coord *c, uint32_t number);
OMM_CHECKED omm_err coord_state_begin_first(omm_coord *c);

/* ---- sum.c ---- */
/* Errors: CONFIG (no powers of two). */
OMM_CHECKED omm_err coord_range(omm_fedavg_range *out, const omm_run_record *run);
OMM_CHECKED omm_err coord_round_aggregate(omm_coord *c);

/* ---- round.c ---- */
void coord_candidate_forget(omm_coord *c);
OMM_CHECKED omm_err coord_evaluate_initial(omm_coord *c);
/* All of an offer but nonce and selection. */
void coord_offer_fill(omm_offer *out, const omm_coord *c);
OMM_CHECKED omm_err coord_offer_seal(omm_buf *envelope, const omm_coord *c, const omm_offer *offer);
void coord_round_note_quorum(omm_coord *c, uint64_t now_ms);
/* When the round opens if nobody else comes; OMM_COORD_NEVER: too few are ready. */
uint64_t coord_round_opens_ms(const omm_coord *c);
/* Ready nodes that open a round at once. */
uint32_t coord_round_quorum(const omm_coord *c);
/* Nodes of the open round that it does not wait for any more: they are settled, or nothing is taken of them. */
uint32_t coord_round_done(const omm_coord *c);
/* Sets shut_out_count, after what it counts has changed. */
void coord_round_count_shut_out(omm_coord *c);
/* Enough have come: nobody is waited for any more. */
bool coord_round_has_enough(const omm_coord *c);
OMM_CHECKED omm_err coord_round_open(omm_coord *c, uint64_t now_ms);
OMM_CHECKED omm_err coord_round_restore(omm_coord *c); /* offer and selection from the database */
OMM_CHECKED omm_err coord_round_collected(omm_coord *c);
OMM_CHECKED omm_err coord_round_publish(omm_coord *c);
OMM_CHECKED omm_err coord_round_next(omm_coord *c);
OMM_CHECKED omm_err coord_run_close(omm_coord *c);

/* ---- deadline.c ---- */
/* When the open round runs out; OMM_COORD_NEVER: not while there is time. */
uint64_t coord_deadline_ms(const omm_coord *c);
/* It opens now. */
void coord_deadline_begin(omm_coord *c, uint64_t now_ms);
/* It does not run out for COORD_FAILING_MS. */
void coord_deadline_spare(omm_coord *c, uint64_t now_ms);
/* A call has returned `err` now, whose sentence is still there; no disk failed, or no round is open: nothing. */
void coord_deadline_failed(omm_coord *c, uint64_t now_ms, omm_err err);

/* ---- declined.c ---- */
/* A round opens: nobody has said anything of it. */
void coord_declined_begin(omm_coord *c);
/* A fresh poll says so; counts where it can be about the open round's offer.  Errors: IO; then it was not said. */
OMM_CHECKED omm_err coord_declined_note(omm_coord *c, uint32_t node, uint32_t declined);
/* The database has of this node that it is a dry run in the open round. */
void coord_declined_restore(omm_coord *c, uint32_t node);
/* Of this round; until the next one opens, of the last one. */
void coord_declined_list(char out[DECLINED_LIST_SIZE], const omm_coord *c);
/* Nodes of the open round that it need not wait for: they said so themselves, and may give all the same. */
uint32_t coord_declined_dry(const omm_coord *c);
/* A node that has nothing to do in the open round asks for work now. */
void coord_declined_asks(omm_coord *c, uint32_t node, uint64_t now_ms);
/* Must the round make way?  It has not enough and waits for dry runs alone, while as many others as a round needs wait for
 * the next one. */
bool coord_declined_makes_way(const omm_coord *c, uint64_t now_ms);
/* It has: for so long as it might have waited, the word of those who were dry ends no other one. */
void coord_declined_made_way(omm_coord *c, uint64_t until_ms);

/* ---- rollback.c ---- */
OMM_CHECKED omm_err coord_rollback_load(omm_coord *c); /* what was asked for before a restart */
/* This round begins, or began, from an earlier state than the one before it. */
bool coord_rollback_is_now(const omm_coord *c);
void coord_rollback_next(omm_coord *c); /* c->round is another one now */
/* Take up the state that this round begins from, where that is not the one before it.
 * Errors: IO, NOMEM, those of the bundle. */
OMM_CHECKED omm_err coord_rollback_apply(omm_coord *c);

/* ---- store_load.c ---- */
/* Has a run begun here before? */
OMM_CHECKED omm_err coord_store_has_run(bool *out, omm_coord *c);
/* What the file of state `number`, 1 or more, was when it was written.  Errors: FORMAT, IO, NOMEM. */
OMM_CHECKED omm_err coord_store_master(omm_digest *out, omm_coord *c, uint32_t number);

/* ---- changed.c ---- */
/* What is not as it was when the run began, by the bundle; `record`: run.json as it would be now. */
void coord_name_change(char *out, size_t size, const omm_coord *c, omm_bytes record);

/* ---- evidence.c ---- */
OMM_CHECKED omm_err coord_evidence_start(omm_coord *c);
OMM_CHECKED omm_err coord_evidence_state_line(omm_coord *c, uint32_t line, uint32_t state,
                                              uint64_t items, double loss);
OMM_CHECKED omm_err coord_evidence_master(omm_coord *c, uint32_t number, const float *master,
                                          omm_bytes sent, omm_digest *master_digest);
/* Everything of the round but its line, which is appended to `line`. */
OMM_CHECKED omm_err coord_evidence_round_files(omm_buf *line, omm_coord *c, omm_digest master,
                                               omm_digest broadcast);
OMM_CHECKED omm_err coord_evidence_close(omm_coord *c, omm_digest *final_digest,
                                         omm_digest *evidence_digest);
OMM_CHECKED omm_err coord_evidence_load_master(float *out, const omm_coord *c, uint32_t number);

#endif
