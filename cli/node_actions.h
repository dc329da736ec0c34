/* node_actions.h - what `meshmind node` does beside training: each gets argv with "node ACTION" at
 * argv[0] and returns the exit code. */
#ifndef CLI_NODE_ACTIONS_H
#define CLI_NODE_ACTIONS_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>

int node_status(int argc, char **argv);
int node_setup(int argc, char **argv);
int node_backup(int argc, char **argv);
int node_restore(int argc, char **argv);

/* To stdout, on one line and with nothing that moves a terminal's cursor: paths of a file that somebody else may have written,
 * words of a coordinator's. */
void node_print_clean(const char *text);

/* Show the submission in `dir` (omm/node_service.h) that --dry-run left there; is_told: the coordinator was told that nothing
 * was sent.  Errors: IO, FORMAT, NOMEM. */
OMM_CHECKED omm_err node_show_submission(const char *dir, bool is_told, bool json);

#endif
