/* ctl_wire.h - where the socket of omm/coordinator_ctl.h is, and how its answers begin.
 *
 * A socket's address holds 107 bytes and a folder's path may be longer, so the folder is opened and
 * the socket named through it.
 */
#ifndef COORDINATOR_CTL_WIRE_H
#define COORDINATOR_CTL_WIRE_H

#include "omm/err.h"

#include <sys/un.h>

#define CTL_SOCKET_NAME "ctl.sock"
#define CTL_OK "ok\n"
#define CTL_REFUSED "error\n" /* by what was asked, or as the run stands */
#define CTL_FAILED "failed\n" /* for a reason of the coordinator's own */

/* *folder is the folder's descriptor, to be closed when the address has been used. */
OMM_CHECKED omm_err ctl_address(struct sockaddr_un *out, int *folder, const char *state_dir);

#endif
