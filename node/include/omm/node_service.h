/* node_service.h - a node on a real clock and a real transport, until the run is closed.
 *
 *   omm_node_step --SEND--> client --reply--> omm_node_step;  WORK: trains on this thread
 *
 * Killed at any instant and started again with the same options it goes on where it was.
 *
 * With guest rules it pauses when they say so: it sends nothing and trains nothing.  A training keeps its
 * memory for pause_hold_ms, then it leaves a checkpoint and lets go of it; with the pause over the node
 * asks again and goes on from there, to the same bytes.  A node that has not trained for half a minute
 * lets go of model and data, too.
 *
 * What it does stands in status.json of the state folder, and what it gave in its history.
 *
 * Depends on: base, proto (transport), node.h, guest.h.
 * Threads: runs on the calling thread; `stop` may be set by another or by a signal handler.
 */
#ifndef OMM_NODE_SERVICE_H
#define OMM_NODE_SERVICE_H

#include "omm/clock.h"
#include "omm/guest.h"
#include "omm/node.h"

#include <stdatomic.h>

struct omm_compute;

#define OMM_NODE_STATUS_FILE "status.json" /* in state_dir: node/board.h has what is in it */

/* Files in dry_dir: the signed manifest, and the delta as its codec has it. */
#define OMM_NODE_DRY_ENVELOPE "submission.env"
#define OMM_NODE_DRY_PAYLOAD "payload.bin"

typedef struct omm_node_service_options {
    omm_node_options node;     /* all of it borrowed */
    const char *url;           /* tls+tcp://coordinator.example:4711 */
    omm_bytes tls_certificate; /* PEM; empty unless the url is tls+tcp:// */
    uint64_t answer_ms;        /* without an answer for so long, a request is sent again */
    const struct omm_compute *compute;
    omm_clock clock;
    const omm_guest_rules *guest; /* NULL: always, at full speed */
    const char *guest_root;       /* of omm/guest.h; NULL: this machine */
    uint64_t pause_hold_ms;
    const char
        *dry_dir; /* end with the submission in this folder instead of sending it; NULL: send */
    const atomic_bool *stop; /* leave soon, with everything kept; NULL: never */
    atomic_bool *trains;     /* true while a training runs; NULL: nobody asks */
} omm_node_service_options;

typedef struct omm_node_service_result {
    bool is_done; /* false: stopped before the end of the run */
    bool is_dry;  /* stopped because a submission lies in dry_dir */
    omm_node_status status;
} omm_node_service_result;

/* Errors: those of omm_node_open and of the transport's url. */
OMM_CHECKED omm_err omm_node_serve(omm_node_service_result *result,
                                   const omm_node_service_options *options);

#endif
