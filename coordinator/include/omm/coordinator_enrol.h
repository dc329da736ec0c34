/* coordinator_enrol.h - who may take part: invitations, and nodes that may not come back.
 *
 *   list        run->nodes as the run was made, in ascending order of ids: always in
 *   invitation  whoever proves a token (omm/enrolment.h): appended to run->nodes, in order of joining
 *   revoked     a node that was in and is not any more; what it gave before stays (as in quarantine)
 *
 * What is remembered is in state_dir/enrolment.sqlite, committed before anything is answered: a
 * token is used once, and the key that used it may present it again and is let in again, whatever
 * was lost on the way.  run.json of the bundle is written anew with everybody at every start and
 * before the run is closed.
 *
 * Depends on: coordinator.h, proto (enrolment.h).  Threads: as the coordinator.
 */
#ifndef OMM_COORDINATOR_ENROL_H
#define OMM_COORDINATOR_ENROL_H

#include "omm/coordinator.h"
#include "omm/mem.h"

#define OMM_COORD_INVITE_MAX 500u    /* tokens at once: what one answer holds */
#define OMM_COORD_INVITES_MAX 10000u /* in one run, used ones included */
#define OMM_COORD_LABEL_MAX 40u      /* bytes of printable ASCII */
#define OMM_COORD_REASON_MAX 160u    /* bytes of printable ASCII */
#define OMM_COORD_HOURS_MAX 87600u   /* ten years */
#define OMM_COORD_LIST_MAX 400u      /* lines of a list; the newest invitations, the first nodes */

/* Make `count` tokens and append them to `out`, one a line; they are kept nowhere.
 *
 *   hours   from now on, then they are refused; 0: as long as the run
 *   label   begins the names of the nodes that come by them; "": "guest"
 *
 * Errors: STATE (this run has its list and nothing else; or is over), CONFIG (a number or label that is not
 * accepted), TOO_BIG (over OMM_COORD_INVITES_MAX), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_invite(omm_buf *out, omm_coord *coord, uint32_t count, uint32_t hours,
                                     const char *label);
/* By the id of `omm_coord_invitations` or its beginning, eight digits at least.
 * Errors: NOT_FOUND, STATE (it was used: names the node; or withdrawn), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_uninvite(omm_coord *coord, const char *id);
/* One line each: id, until when, "open", "expired", "withdrawn" or "used by NAME", label.  Names and labels that are more than
 * letters, digits, - _ and . are in quotes here and below, with \ in front of " and \. */
OMM_CHECKED omm_err omm_coord_invitations(omm_buf *out, omm_coord *coord);

/* For good: refused as if it were not enrolled, with the reason.  Errors: STATE (it is so already, or the
 * run is closed), CONFIG (the reason is not accepted), IO, NOMEM. */
OMM_CHECKED omm_err omm_coord_revoke(uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms,
                                     size_t node, const char *reason);
/* One line each: id, name, state, how it came in, verdicts.  Of many as many as `out` has room for, and how many more there are:
 * that list is never refused for being long. */
OMM_CHECKED omm_err omm_coord_nodes(omm_buf *out, const omm_coord *coord);
/* What let in run->nodes[node], who was not on the list: "invitation ...", "work ..."; borrowed.  NULL: it was on it. */
const char *omm_coord_joined_by(const omm_coord *coord, size_t node);

#endif
