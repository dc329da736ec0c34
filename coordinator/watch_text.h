/* watch_text.h - what others see of the coordinator, as texts: metrics, JSON.
 *
 * Depends on: base, watch_health.h.  Threads: functions of their arguments.
 * Source: Prometheus text exposition format 0.0.4.
 */
#ifndef COORDINATOR_WATCH_TEXT_H
#define COORDINATOR_WATCH_TEXT_H

#include "watch_health.h"

#define WATCH_JSON_NODES_MAX 4096u
#define WATCH_JSON_ROUNDS_MAX 100u /* newest, in full */
#define WATCH_JSON_CURVE_MAX 400u  /* points of the loss curve, evenly thinned */

/* Append; errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err watch_metrics_text(omm_buf *out, const watch_seen *seen);
OMM_CHECKED omm_err watch_status_text(omm_buf *out, const watch_seen *seen);

#endif
