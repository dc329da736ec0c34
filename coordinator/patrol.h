/* patrol.h - are the files of rounds that are over still what was written?  `verify` says so when the run is over; by then
 * the copy that a lost file could come back from may be gone.
 *
 *   patrol_step    a piece of one file, of round after round; what is not as the round's line in the database has it is
 *                  told, and looked at again until it is as it was, which is told too
 *
 * Looked at are the line's place in rounds.jsonl, offer, adapter and master after the round, submissions, receipts and accepted
 * payloads, and what was refused.  Not: the other files of lines (ledger.jsonl, eval/), and payloads that were refused.
 *
 * Depends on: base, artifacts, coordinator.h.  Threads: as the state machine, between two of its steps.
 */
#ifndef COORDINATOR_PATROL_H
#define COORDINATOR_PATROL_H

#include "omm/bundle.h"
#include "omm/coordinator.h"
#include "omm/evidence.h"
#include "omm/file.h"

#define PATROL_STEP_MS 100u /* between two pieces */
#define PATROL_PIECE_BYTES (256u << 10)
#define PATROL_PASS_MS 3600000u /* all rounds are looked at again after so long; new ones at once */
#define PATROL_AGAIN_MS 10000u  /* one of the damaged is looked at again, in turn */
#define PATROL_DAMAGED_MAX 16u  /* that are remembered; more are told in each pass anew */

/* Item 0 of a round is its line, then its files in the order of the line. */
typedef struct patrol_place {
    uint32_t round;
    size_t item;
} patrol_place;

typedef struct patrol_damage {
    patrol_place place;
    omm_bundle_path path;
} patrol_damage;

/* path: in the bundle.  why: NULL, it is as it was again. */
typedef void (*patrol_tell)(void *ud, uint32_t round, const char *path, const char *why);

typedef struct patrol {
    omm_coord *coord;
    const char *dir; /* of the bundle */
    patrol_tell tell;
    void *ud;
    uint64_t now_ms, next_ms, began_ms, chosen_ms, again_ms;
    patrol_place next, at;
    patrol_damage damaged[PATROL_DAMAGED_MAX]; /* (damaged_count) */
    size_t damaged_count, again;               /* the one that was looked at again last */
    omm_arena arena;                           /* of the record */
    omm_buf line;
    uint64_t line_at; /* its place in rounds.jsonl */
    bool has_record;
    omm_round_record record;
    uint8_t *piece;
    int fd; /* of the file at hand, or -1 */
    omm_bundle_path path;
    omm_digest want;
    uint64_t offset, left;
    omm_hasher hasher;
} patrol;

/* dir is borrowed.  Errors: NOMEM. */
OMM_CHECKED omm_err patrol_open(patrol *p, omm_coord *coord, const char *dir, patrol_tell tell,
                                void *ud);
void patrol_close(patrol *p); /* also of one that is all zeros */
/* At most PATROL_PIECE_BYTES are read.  Trouble of our own ends the look at this file, and nothing else. */
void patrol_step(patrol *p, uint64_t now_ms);
/* In the bundle, of one that is not as it was, as far as is known; "": of none. */
const char *patrol_damaged(const patrol *p);

#endif
