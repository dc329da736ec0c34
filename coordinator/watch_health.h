/* watch_health.h - what is seen of the coordinator at one time, and what is wrong with it, in words.
 *
 * Depends on: base, watch.h.  Threads: a function of its arguments and of the disk's free space.
 */
#ifndef COORDINATOR_WATCH_HEALTH_H
#define COORDINATOR_WATCH_HEALTH_H

#include "declined.h"
#include "watch.h"

/* Over these the service is said to be sick. */
#define WATCH_BEAT_MS_MAX 10000u                      /* the loop goes round five times a second */
#define WATCH_TICK_MS_MAX ((uint64_t)2 * 3600 * 1000) /* of one sum and evaluation */
#define WATCH_VOID_MAX 3u     /* void rounds in a row: the run is used up for nothing */
#define WATCH_UNREAD_MS 5000u /* all exchanges wait for peers who do not read */
#define WATCH_CROWD_MS 10000u /* since a connection was turned away for want of room */
#define WATCH_DISK_BYTES_MIN ((uint64_t)256 << 20) /* left where the state is */

/* All borrowed. */
typedef struct watch_seen {
    const watch_options *o;
    const watch_facts *facts;
    const watch_node *nodes;
    const omm_coord_round *history;
    omm_wire_count wire;
    bool has_disk;
    uint64_t disk_free;
} watch_seen;

/* Read the watch into *facts and (watch_node_max) nodes, which may be NULL, and the rest beside it. */
void watch_see(watch_seen *seen, watch_facts *facts, watch_node *nodes, watch *w,
               omm_server *server);

/* Has it the open round's offer, and says that it gives nothing? */
bool watch_declines(const omm_coord_node_status *node, omm_coord_state state);
/* What nodes say of why they give nothing to the open round or, until another one opens, gave nothing to the last. */
declined_counts watch_declined(const watch_seen *seen);

/* Append; errors: NOMEM, TOO_BIG. */
/* Why it is sick, a line for each reason. */
OMM_CHECKED omm_err watch_reasons_text(omm_buf *out, const watch_seen *seen);
/* "ok" or "sick" and a reason a line; *healthy says which. */
OMM_CHECKED omm_err watch_health_text(omm_buf *out, bool *healthy, const watch_seen *seen);

#endif
