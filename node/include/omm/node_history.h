/* node_history.h - what a node has given and what it has declined, for its owner.
 *
 *   {"sent": {"rounds", "accepted", "waiting", "submission_bytes", "payload_bytes"},
 *    "rounds": [{"run_id", "round", "at_s", "submission", "payload", "submission_bytes",
 *                "payload_bytes", "steps", "tokens", "verdict", "sent"}, ...],   newest first, 20 of them
 *    "canaries": as "rounds": work on public data (docs/protocol.md), in none of the sums
 *    "declined": [{"run_id", "round", "first_s", "last_s", "times", "reason"}, ...]}
 *
 * A submission is in `rounds` from the moment when it is signed and stored, and in the sums of `sent` from
 * the moment when it is about to leave: one of a dry run is not `sent`.  Its verdict is "" until a receipt comes ("OK", or the reason of a refusal; "none" when the coordinator gave no signed one).
 * Times are seconds since 1970, UTC.
 *
 * Depends on: node.h; base (json).  Threads: as node.h.
 */
#ifndef OMM_NODE_HISTORY_H
#define OMM_NODE_HISTORY_H

#include "omm/json.h"
#include "omm/node.h"

/* Caller decrefs.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err omm_node_history(json_t **out, omm_node *node);
/* The same of a node that is not running.  Errors: NOT_FOUND (none has run there), STATE (it is
 * running), IO, FORMAT, NOMEM. */
OMM_CHECKED omm_err omm_node_history_read(json_t **out, const char *state_dir);

#endif
