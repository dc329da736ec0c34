/* watch.h - what the coordinator lets others see of itself: kept by the service, read by the HTTP
 * thread, never the other way round.
 *
 *   service thread --watch_take, watch_beat, events--> watch --watch_read (a copy)--> HTTP thread
 *
 * The lock is held for a copy and no longer, so that nobody who looks makes a round wait.
 * Counters start with the process; what is of the run (rounds, verdicts of a node) comes from the
 * state machine and so from the database.
 *
 * Depends on: base, proto (transport), coordinator.h.
 * Threads: all functions are safe; take, beat and events come from whoever has the state machine.
 */
#ifndef COORDINATOR_WATCH_H
#define COORDINATOR_WATCH_H

#include "omm/coordinator.h"
#include "omm/transport.h"

#include <pthread.h>

#define WATCH_VERDICTS_MAX 64u /* newest kept */
#define WATCH_SENTENCE_SIZE 240u
#define WATCH_TROUBLE_SIZE 512u
#define WATCH_FILE_SIZE 160u
/* A request that goes well says nothing of another one that fails, and who had no answer asks again after a minute. */
#define WATCH_TROUBLE_MS 90000u
#define WATCH_TAKE_MS 200u /* a take copies all nodes: not at every request */

#define XX(name, text) WATCH_REASON_##name,
enum { WATCH_REASON_NONE, OMM_ERR_MAP(XX) WATCH_REASONS }; /* numbered as omm_err */
#undef XX

typedef struct watch_verdict {
    uint64_t wall_ms;
    uint32_t round;
    int32_t node; /* or OMM_COORD_NOBODY */
    omm_err reason;
    bool has_peer; /* a request without a record: who sent it is an address */
    char peer[OMM_PEER_SIZE];
    char sentence[WATCH_SENTENCE_SIZE]; /* strangers' words are in it */
} watch_verdict;

typedef struct watch_node {
    omm_coord_node_status status;
    uint64_t up, down; /* wire bytes */
} watch_node;

/* Of the base model that is handed out. */
typedef struct watch_base_facts {
    uint64_t bytes, refused; /* sent; requests refused because of has_changed */
    bool has_changed;        /* its file is not the run's any more */
} watch_base_facts;

/* Plain data, copied whole. */
typedef struct watch_facts {
    omm_coord_status status;
    size_t node_count; /* of run->nodes, when it was taken */
    uint32_t history_count;
    uint64_t now_ms, wall_ms; /* when it was read */
    uint64_t started_ms, started_wall_ms;
    uint64_t beat_ms; /* when the service's loop last went round */
    bool ticking;     /* heavy work is going on, since tick_since_ms */
    uint64_t tick_since_ms, ticks, tick_ms;
    uint64_t stage_since_ms,
        acts_at_ms;   /* when it goes on by itself; UINT64_MAX: not before something happens */
    bool has_trouble; /* our own, not a peer's: disk, memory; WATCH_TROUBLE_MS without it end it */
    bool has_stopped; /* the round stands still because of it, until a tick goes well */
    uint64_t trouble_ms, trouble_wall_ms; /* the last one */
    uint64_t trouble_since_wall_ms;       /* of those that last, the first one */
    char trouble[WATCH_TROUBLE_SIZE], stopped[WATCH_TROUBLE_SIZE];
    uint64_t audit_entries;
    omm_digest audit_head;
    bool has_audit_trouble; /* since the last entry that could be written */
    char audit_trouble[WATCH_TROUBLE_SIZE];
    char damaged_file[WATCH_FILE_SIZE]; /* of a round that is over; "": none is known */
    watch_base_facts base;
    uint64_t submissions[WATCH_REASONS]; /* [OMM_OK]: accepted */
    uint64_t requests[WATCH_REASONS];    /* refused without a record */
    uint64_t canaries_passed, canaries_failed;
    uint64_t replays, replay_ms; /* trained again, and how long that took in all */
    uint64_t rounds_published, rounds_held, rounds_void;
    uint64_t opened_wall_ms, over_wall_ms; /* of the last rounds; 0: none since the start */
    uint64_t verdict_count;
    watch_verdict verdicts[WATCH_VERDICTS_MAX]; /* number i is at i % WATCH_VERDICTS_MAX */
} watch_facts;

typedef struct watch_options {
    const omm_run_record *run; /* borrowed, as are the strings; node_count may grow */
    uint32_t node_max;         /* up to here; 0: it does not */
    omm_clock clock;
    const char *state_dir, *commit, *build;
    const char *
        note; /* what an operator should know of how this is set, though nothing is wrong; NULL: nothing */
} watch_options;

typedef struct watch watch;
OMM_CHECKED omm_err watch_open(watch **out, const watch_options *options); /* Errors: NOMEM */
void watch_close(watch *w);                                                /* NULL is fine */

/* ---- the service's side ---- */
void watch_event(void *ud, const omm_coord_event *event); /* omm_coord_options.on_event */
/* The loop goes round, ticking or not. */
void watch_beat(watch *w, bool ticking);
/* Copy the state machine, which nobody else may use meanwhile; not more often than WATCH_TAKE_MS
 * unless `now`.  up(ud, i) and down: wire bytes of node i. */
typedef struct watch_wire {
    uint64_t up, down;
} watch_wire;
void watch_take(watch *w, const omm_coord *coord, bool now, watch_wire (*wire)(void *ud, size_t i),
                void *ud);
/* The stage has lasted so long, and ends in so long by itself (OMM_COORD_NEVER: it does not). */
void watch_stage(watch *w, uint64_t stage_ms, uint64_t left_ms);
/* A canary was trained again, in so long. */
void watch_replay(watch *w, uint64_t ms);
/* A request went well (NULL), or failed for a reason of our own. */
void watch_trouble(watch *w, const char *sentence);
/* The same of a tick: a round that stands still stays so, however well requests go. */
void watch_round_trouble(watch *w, const char *sentence);
/* A file of a round that is over is not as it was; "": none is known. */
void watch_damaged(watch *w, const char *file);
void watch_base(watch *w, const watch_base_facts *base);
void watch_audit(watch *w, uint64_t entries, const omm_digest *head);
void watch_audit_failed(watch *w, const char *sentence);

/* ---- the reader's side ---- */
const watch_options *watch_get_options(const watch *w);
size_t watch_node_max(const watch *w);
/* nodes: (watch_node_max), may be NULL; the first out->node_count are filled.  Rounds 0 .. history_count - 1 of *history never change. */
void watch_read(watch_facts *out, watch_node *nodes, const omm_coord_round **history, watch *w);

#endif
