/* enrol_ctl.h - the operator's words about who takes part: nodes, invitations, invite, uninvite, revoke.
 *
 * Depends on: base, coordinator_enrol.h, ctl.h, diary.h.  Threads: as the state machine.
 */
#ifndef COORDINATOR_ENROL_CTL_H
#define COORDINATOR_ENROL_CTL_H

#include "ctl.h"
#include "diary.h"

bool enrol_ctl_has(omm_coord_ctl_action action);

/* By name; or by id or the beginning of one, eight digits at least.  Errors: NOT_FOUND. */
OMM_CHECKED omm_err enrol_ctl_find(size_t *out, const omm_run_record *run, const char *which);

typedef struct enrol_ctl {
    omm_coord *coord;
    const omm_run_record *run;
    diary *diary; /* what changes something is written there first */
    uint64_t now_ms;
    uint64_t *deadline_ms;
    int32_t revoked; /* node whose connection is to end; OMM_COORD_NOBODY: none */
} enrol_ctl;
/* Errors: those of omm/coordinator_enrol.h, USAGE (an argument that does not say what is needed). */
OMM_CHECKED omm_err enrol_ctl_act(enrol_ctl *e, omm_buf *answer, const ctl_request *request);

#endif
