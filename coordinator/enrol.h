/* enrol.h - the coordinator's side of enrolment, shared by enrol*.c, by_id.c and coordinator.c.
 *
 * run->nodes[0 .. listed - 1] ascend by id; who joins is appended, so that indices in databases and
 * counters stay what they are.  Whatever goes on the wire or into evidence in the order of ids goes
 * through by_id.
 */
#ifndef COORDINATOR_ENROL_INTERNAL_H
#define COORDINATOR_ENROL_INTERNAL_H

#include "internal.h"

#include "omm/coordinator_enrol.h"
#include "omm/enrolment.h"

typedef struct enrol_node {
    char by[OMM_COORD_LABEL_MAX + 32]; /* "list", "invitation 0123456789abcdef (label)" */
    char revoked[OMM_COORD_REASON_MAX + 1];
} enrol_node;

/* What a node without an invitation works for: one for everybody, for a while. */
typedef struct enrol_challenge {
    bool is_there;
    uint64_t since_ms;
    omm_digest digest; /* of its payload */
    omm_buf envelope;
} enrol_challenge;

#define ENROL_CHALLENGE_MS 600000u /* handed out so long, and accepted for twice that */

struct coord_enrol {
    enrol_challenge now, before;
    omm_db *db;
    size_t listed;
    uint32_t capacity;
    enrol_node *nodes; /* (capacity) */
};

/* One row of table invitation. */
typedef struct enrol_invitation {
    omm_digest id;
    char label[OMM_COORD_LABEL_MAX + 1];
    uint64_t expires_ms; /* wall; 0: never */
    bool withdrawn, used;
    omm_digest used_by; /* id of the node */
} enrol_invitation;

/* ---- by_id.c ---- */
/* run->nodes[index] is new: it goes to its place in by_id. */
void enrol_take_place(omm_coord *c, uint32_t index);

/* ---- enrol_store.c ---- */
#define ENROL_DATABASE "enrolment.sqlite"
OMM_CHECKED omm_err enrol_store_open(omm_db **out, const char *state_dir);
OMM_CHECKED omm_err enrol_store_invite(omm_db *db, const enrol_invitation *all, size_t count);
OMM_CHECKED omm_err enrol_store_count(uint64_t *out, omm_db *db);
OMM_CHECKED omm_err enrol_store_find(bool *found, enrol_invitation *out, omm_db *db,
                                     const omm_digest *id);
/* The invitations whose id begins with these hex digits; at most two are counted. */
OMM_CHECKED omm_err enrol_store_find_hex(unsigned *count, enrol_invitation *out, omm_db *db,
                                         const char *hex);
OMM_CHECKED omm_err enrol_store_withdraw(omm_db *db, const omm_digest *id);
/* The newest, newest first; each goes to `fn`. */
OMM_CHECKED omm_err enrol_store_each(omm_db *db, uint32_t limit,
                                     omm_err (*fn)(void *ud, const enrol_invitation *one),
                                     void *ud);
/* invitation NULL: none was needed.  The invitation is used, and `node` a member; in the caller's transaction.  Errors: EXISTS (either is so
 * already). */
OMM_CHECKED omm_err enrol_store_join(omm_db *db, uint32_t node, const char *name, const char *by,
                                     const omm_public_key *key, const omm_digest *invitation);
OMM_CHECKED omm_err enrol_store_revoke(omm_db *db, uint32_t node, const char *reason,
                                       uint64_t wall_ms);
/* Members in the order in which they joined, then what was revoked. */
OMM_CHECKED omm_err enrol_store_members(omm_db *db,
                                        omm_err (*fn)(void *ud, uint32_t node, const char *name,
                                                      const char *by, const omm_public_key *key),
                                        void *ud);
OMM_CHECKED omm_err enrol_store_revoked(omm_db *db,
                                        omm_err (*fn)(void *ud, uint32_t node, const char *reason),
                                        void *ud);

#endif
