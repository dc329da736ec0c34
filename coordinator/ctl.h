/* ctl.h - the coordinator's end of omm/coordinator_ctl.h, asked from the service's loop.
 *
 * One client at a time, nothing blocks: who does not send a whole line within CTL_LINE_MS is dropped.
 * What touches the state machine waits while a tick has it.
 *
 * Depends on: base.  Threads: the service's.
 */
#ifndef COORDINATOR_CTL_H
#define COORDINATOR_CTL_H

#include "omm/clock.h"
#include "omm/coordinator_ctl.h"

#define CTL_LINE_MS 2000u

typedef struct ctl_request {
    omm_coord_ctl_action action;
    const char *argument; /* borrowed for the call; may be anything */
    uint32_t uid;         /* of who asks */
} ctl_request;

/* Do it and append what to say.  An error is answered with its sentence. */
typedef omm_err (*ctl_act)(void *ud, omm_buf *answer, const ctl_request *request);

typedef struct ctl ctl;
/* Takes the place of a socket that a killed coordinator left in `state_dir`; the caller has the state's
 * lock.  Errors: IO, NOMEM, TOO_BIG. */
OMM_CHECKED omm_err ctl_open(ctl **out, const char *state_dir, omm_clock clock);
void ctl_close(ctl *c); /* NULL is fine; removes the socket */
/* Go on with the client there is, or take one.  is_free: the state machine may be used; without it
 * only `status` is acted on, and the rest waits. */
void ctl_poll(ctl *c, bool is_free, ctl_act act, void *ud);

#endif
