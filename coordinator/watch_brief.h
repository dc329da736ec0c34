/* watch_brief.h - what an operator asks first: `ctl status`, as a text for a terminal and as JSON for a script.
 *
 * Depends on: base, watch_health.h.  Threads: functions of their arguments.
 */
#ifndef COORDINATOR_WATCH_BRIEF_H
#define COORDINATOR_WATCH_BRIEF_H

#include "watch_health.h"

/* Append; seen->nodes is used.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err watch_brief_text(omm_buf *out, const watch_seen *seen);
/* One object, its fields in docs/service.md; never more than OMM_COORD_CTL_ANSWER_MAX, however many nodes. */
OMM_CHECKED omm_err watch_brief_json(omm_buf *out, const watch_seen *seen);

#endif
