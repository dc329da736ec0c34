/* coordinator_ctl.h - an operator's word to a coordinator that runs, over a socket in its state_dir.
 *
 *   client                                   coordinator
 *     "quarantine anna\n"          -->         done between two requests, written to the audit log first
 *     "ok\nanna is in quarantine\n"  <--       or a sentence after "error\n" (it refuses: nothing has changed, and asked
 *                                             again it says the same) or "failed\n" (it cannot: a disk, memory; it may
 *                                             have been done); then the connection ends
 *
 * The socket is state_dir/ctl.sock, mode 0600; only the coordinator's own user, and root, are heard.
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef OMM_COORDINATOR_CTL_H
#define OMM_COORDINATOR_CTL_H

#include "omm/bytes.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_COORD_CTL_LINE_MAX 256u                  /* of a request, its newline included */
#define OMM_COORD_CTL_ANSWER_MAX ((size_t)128 << 10) /* passes a socket at once */

/* XX(name, argument, "" or [may be left out], what it does): what a coordinator understands.  Arguments are as the command line has
 * them; over the socket they are "COUNT HOURS" or "COUNT HOURS LABEL" (invite), "NODE\tREASON" (revoke) and
 * "ROUND\tREASON" (rollback), because names have blanks. */
#define OMM_COORD_CTL_MAP(XX)                                                                      \
    XX(status, "[json]", "what it does now; json: for scripts")                                    \
    XX(pause, "", "open no new round; the open one goes on.  Kept over restarts")                  \
    XX(resume, "", "open rounds again")                                                            \
    XX(quarantine, "NODE", "refuse a node from now on, by name or id.  Kept over restarts")        \
    XX(release, "NODE", "let it take part again, from the next round on")                          \
    XX(rollback, "ROUND --reason TEXT",                                                            \
       "begin the next round from the adapter after ROUND, or from start")                         \
    XX(drain, "", "end the open round, then exit with everything kept")                            \
    XX(nodes, "", "everybody who is in, was in quarantine or is revoked")                          \
    XX(invite, "--count N --expires HOURS --label TEXT",                                           \
       "tokens that let one node in each; 0 hours: no end")                                        \
    XX(invitations, "", "all of them, and who used them")                                          \
    XX(uninvite, "ID", "an invitation that nobody has used lets nobody in any more")               \
    XX(revoke, "NODE --reason TEXT", "for good: the node is refused, and told why")

typedef enum omm_coord_ctl_action {
#define XX(name, argument, help) OMM_COORD_CTL_##name,
    OMM_COORD_CTL_MAP(XX)
#undef XX
        OMM_COORD_CTL_COUNT
} omm_coord_ctl_action;

/* By name.  Errors: USAGE (unknown, without its argument, with one too many; names what is accepted). */
OMM_CHECKED omm_err omm_coord_ctl_parse(omm_coord_ctl_action *out, const char *action,
                                        const char *argument);
const char *omm_coord_ctl_name(omm_coord_ctl_action action);

/* Send one action and wait for its answer, which is appended without its first line.
 *
 *   argument    "" for none
 *   timeout_ms  a sum or an evaluation that is going on is waited for
 *
 * Errors: USAGE; NOT_FOUND (no coordinator runs there), STATE (it refuses: `answer` says why),
 * TIMEOUT (it may still be done), IO (also its own: `answer` says what), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_coord_ctl_ask(omm_buf *answer, const char *state_dir, const char *action,
                                      const char *argument, uint64_t timeout_ms);

#endif
