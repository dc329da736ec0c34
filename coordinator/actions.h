/* actions.h - what an operator's words do to the state machine; all but status, which only looks.
 *
 * What changes something is in the audit log before it is done.
 *
 * Depends on: base, coordinator.h, coordinator_enrol.h, ctl.h, diary.h.  Threads: as the state machine.
 */
#ifndef COORDINATOR_ACTIONS_H
#define COORDINATOR_ACTIONS_H

#include "ctl.h"
#include "diary.h"

typedef struct actions {
    omm_coord *coord;
    const omm_run_record *run;
    diary *diary;
    uint64_t now_ms;
    uint64_t *deadline_ms;
    int32_t revoked; /* node whose connection is to end; OMM_COORD_NOBODY: none */
} actions;
/* Errors: those of the functions of the state machine; NOT_FOUND (no such node, several), USAGE (an
 * argument that does not say what is needed). */
OMM_CHECKED omm_err actions_do(actions *a, omm_buf *answer, const ctl_request *request);

#endif
