/* coordinator_tools.h - what an operator does with a coordinator that is there: talk to it, check its log. */
#ifndef CLI_COORDINATOR_TOOLS_H
#define CLI_COORDINATOR_TOOLS_H

#include "omm/file.h"

/* `coordinator ctl ...` and `coordinator audit ...`; argv[0] is the last of these words. */
int coordinator_ctl(int argc, char **argv);
int coordinator_audit(int argc, char **argv);

/* state_dir of a service file, as it can be opened.  Errors: those of service_load. */
OMM_CHECKED omm_err coordinator_state_dir(char out[OMM_PATH_MAX], const char *path);

#endif
