/* federation.h - a whole federation in one process, without sockets and without a model: the real
 * coordinator and real nodes around a training and an evaluation that are plain arithmetic.
 *
 * Time is virtual, messages pass through a fault function, and every process may be closed and
 * opened again from its files between any two messages.
 */
#ifndef TESTS_FEDERATION_H
#define TESTS_FEDERATION_H

#include "omm/bundle.h"
#include "omm/coordinator_canary.h"
#include "omm/coordinator_enrol.h"
#include "omm/enrolment.h"
#include "omm/file.h"
#include "omm/node.h"

#include <stdbool.h>
#include <stdint.h>

#define FED_NODES_MAX 24u
#define FED_TRAIN_MS 1000u

typedef enum fed_fault {
    FED_DELIVER,
    FED_LOSE_REQUEST, /* the coordinator never sees it */
    FED_LOSE_REPLY,   /* it does, but the node gets no answer */
    FED_TWICE,        /* it sees it twice, the node gets the second answer */
    FED_FLIP,         /* one bit of the answer is wrong */
    FED_UNDO,         /* batched: the commit cannot write, the node gets no answer */
} fed_fault;

typedef enum fed_alloc { FED_ALLOC_NONE, FED_ALLOC_STEP, FED_ALLOC_TICK, FED_ALLOC_NODE } fed_alloc;

typedef struct fed fed;

typedef struct fed_options {
    uint32_t nodes, rounds, select, accept_min;
    uint32_t listed;      /* nodes from here on have an invitation; 0: none, and nobody can join */
    uint32_t node_max;    /* with it; 0: nodes */
    uint32_t token_hours; /* how long invitations last; 0: for ever */
    uint32_t work_bits;   /* instead of invitations they work; 0: they do not */
    uint32_t work_bits_max; /* what they agree to; 0: the default */
    bool canaries;          /* two shards; who works must pass, and every node's turn may be one */
    uint32_t passes;
    double share;
    bool replays_by_hand; /* the test calls fed_replay; else it is called after every message */
    /* What a node's training gives on a shard, instead of the honest values; NULL: nothing else. */
    void (*cheat)(void *ud, uint32_t node, omm_training_result *result, float *values,
                  omm_buf *step_digests);
    double over_select;
    bool is_timed;   /* rounds wait for their time */
    uint32_t quorum; /* 0: all that count */
    uint64_t deadline_ms, join_ms;
    uint64_t train_ms[FED_NODES_MAX]; /* 0: FED_TRAIN_MS */
    bool silent[FED_NODES_MAX];       /* never asks for anything */
    bool extra[FED_NODES_MAX];
    bool error_feedback;
    double norm_max; /* 0: 10 */
    double loss_increase_max;
    bool loss_rises;     /* the fake loss goes up every round */
    bool loss_nan;       /* candidates have no loss at all */
    uint64_t order_seed; /* permutes nodes that act at the same time */
    bool on_disk;        /* state in files, so that processes may restart */
    const char *dir; /* an empty folder, or one to go on from; NULL: one of its own, in memory */
    bool durable;    /* on disk: the bundle too is synced, as a service's */
    bool restart_coordinator, restart_nodes; /* after every message and tick */
    bool whole;                              /* nodes send and take small adapters whole */
    bool batched;                            /* every request is a batch with its own commit */
    void (*on_event)(void *ud, const omm_coord_event *event); /* of the coordinator, with `ud` */
    const omm_log *log;                                       /* of the coordinator; NULL: none */
    uint32_t values_cols;       /* width of the second matrix; 0: small */
    const omm_layout *layout;   /* of an adapter that is really trained; NULL: of these two */
    bool is_plain;              /* a training that takes no time for many values */
    const omm_codec *up, *down; /* NULL: int8 and f16, both with zstd */
    bool counts_bytes;          /* coord_bytes and coord_peaks */
    /* What happens to message number `index` (0 upwards, every attempt counts). */
    fed_fault (*fault)(void *ud, uint64_t index);
    size_t request_bytes_max; /* longer ones never arrive; 0: all do */
    /* The alloc_nth allocation of call number alloc_call (coordinator steps, ticks and node steps, each
     * counted by its own kind) fails; the call must then change nothing. */
    fed_alloc alloc_kind;
    uint64_t alloc_call;
    uint32_t alloc_nth;
    /* The disk fails: a call that returns IO is repeated; it must then have changed nothing. */
    bool disk_fails;
    /* What node number `node` is answered, before it hears it. */
    void (*answered)(void *ud, fed *f, uint32_t node, omm_bytes reply);
    /* Called before each message; may act as a peer of its own. */
    void (*intrude)(void *ud, fed *f);
    void *ud;
} fed_options;
fed_options fed_options_default(void);
/* A service's: all of it on disk and synced, in `dir`, which is borrowed. */
fed_options fed_options_durable(const char *dir);

struct fed {
    fed_options o;
    char dir[256];
    char state_dir[4096]; /* of the coordinator */
    uint64_t now_ms, messages;
    size_t longest;    /* request */
    uint64_t too_long; /* requests that did not arrive */
    omm_run_record run;
    omm_run_node run_nodes[FED_NODES_MAX];
    bool extra[FED_NODES_MAX];
    uint32_t of_node[FED_NODES_MAX]; /* index in run.nodes of node i */
    omm_segment segments[2];
    char names[FED_NODES_MAX][16];
    float *initial;
    omm_buf policy_yaml;
    omm_key coordinator_key;
    omm_key keys[FED_NODES_MAX];
    omm_coord_enrolment enrolment;
    omm_coord_canaries canaries;
    uint32_t passed, failed, replays; /* canaries; a replay may be done again */
    omm_fake_clock clock;             /* wall time of invitations */
    omm_seed tokens[FED_NODES_MAX];
    char joined[FED_NODES_MAX][64]; /* names that the coordinator gave */
    omm_training *training[FED_NODES_MAX];
    omm_coord *coord;
    omm_bundle *bundle;
    omm_node *nodes[FED_NODES_MAX];
    omm_node_action actions[FED_NODES_MAX];
    uint64_t wake_ms[FED_NODES_MAX];
    bool done[FED_NODES_MAX];
    uint64_t coord_deadline_ms;
    uint32_t evaluations;
    size_t coord_bytes;                       /* that the coordinator holds */
    size_t coord_peaks[OMM_COORD_CLOSED + 1]; /* the most of them, by the state a call began in */
    uint64_t calls[4];                        /* by kind of call */
    uint32_t out_of_memory;                   /* calls that failed on purpose */
    bool is_short;                            /* of memory, in the call that is made */
    uint32_t out_of_disk;                     /* the same */
    bool undo_next;                           /* the next batch cannot be written */
    uint32_t undone;                          /* commits that failed on purpose */
    bool is_stopped;                          /* an fsync failed: nobody acts any more */
};

/* All abort the test on an error. */
void fed_open(fed *f, const fed_options *options);
void fed_close(fed *f); /* removes its folder */
/* Until every node that is not silent has been told that the run is over. */
void fed_run(fed *f);
/* One action of the federation; false when nothing is left to do. */
bool fed_step(fed *f);
void fed_restart_coordinator(fed *f);
/* What the coordinator is opened with. */
omm_coord_options fed_coord_options(fed *f);
/* Every write to a file fails from now on, as on a full disk, or works again. */
void fed_forbid_writing(bool forbidden);
/* `name` in the folder of the federation; returns path. */
char *fed_path(const fed *f, char path[OMM_PATH_MAX], const char *name);

/* ---- federation_bundle.c ---- */
/* Digest over names and bytes of all files of the bundle. */
omm_digest fed_bundle_digest(const fed *f);
bool fed_bundle_has(const fed *f, const char *path);
/* Seal a bundle of such a run at this time; its run digest. */
omm_digest fed_seal(omm_bundle *bundle, uint64_t wall_ms);
OMM_CHECKED omm_err fed_try_to_seal(omm_digest *run_digest, omm_bundle *bundle, uint64_t wall_ms);
/* Everything but the verdicts of the gates: of this run's bundle, wherever it lies. */
void fed_verify(fed *f, const char *bundle_dir);
/* Both, where it was made. */
void fed_seal_and_verify(fed *f);
/* A run from its beginning to its end: fed_bundle_digest, and how many messages it took; the commits that failed are
 * added to *undone.  Both may be NULL. */
omm_digest fed_digest_of_run(const fed_options *options, uint64_t *messages, uint32_t *undone);
/* The adapter as the fake evaluation writes it; omm_coord_options.render. */
OMM_CHECKED omm_err fed_render(void *ud, omm_buf *gguf, const omm_coord_values *values);

/* ---- federation_faults.c: for fed_options.fault ---- */
typedef struct fed_one_fault {
    uint64_t index; /* of the message */
    fed_fault fault;
} fed_one_fault;
fed_fault fed_fault_once(void *ud, uint64_t index);        /* ud: fed_one_fault */
fed_fault fed_fault_every_other(void *ud, uint64_t index); /* ud: fed_fault, at even indices */
fed_fault fed_fault_often(void *ud,
                          uint64_t index); /* ud: omm_seed; one in four is lost or doubled */

/* ---- federation.c ---- */
/* Send bytes as a peer: the reply is in `reply` (initialised by the caller). */
void fed_send(fed *f, omm_buf *reply, omm_bytes request);

/* All canaries that wait are done again, and judged. */
void fed_replay(fed *f);
/* omm_rng_unit of the indices from 0, many at once: one of them takes a whole block of the cipher. */
void fed_units(float *out, const omm_rng *lane, size_t count);
/* The fake training's answer for a node: what an honest one would have trained from `start`, which may be `out`. */
void fed_trained(float *out, const float *start, const omm_seed *seed, size_t count);

#endif
