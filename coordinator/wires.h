/* wires.h - bytes as they passed, by node: counted at each answer, kept beside the state, written into the
 * bundle as measured/wire.json.
 *
 * Requests for chunks of the global adapter are not signed: they are booked on the node that was heard by the same
 * connection.  A connection that has not shown whose it is may be a node's that has just connected again, or anybody's at
 * its address: its bytes are booked on the node heard last there, for each node and round no more than one global adapter
 * takes on the wire, and the rest on nobody.  What is about the base model is nobody's traffic of a round.
 * Kept from stage to stage: a kill loses the counts since the last one.
 *
 *   traffic   for each node of the run up, down, up_payload, down_payload, u64 each
 *   wire      up, down: of a run that began before payloads were counted, which goes on and is judged so
 *
 * Depends on: base, artifacts, proto (transport), watch.h.  Threads: as the state machine.
 */
#ifndef COORDINATOR_WIRES_H
#define COORDINATOR_WIRES_H

#include "watch.h"

#include "omm/bundle.h"
#include "omm/coordinator.h"
#include "omm/transport.h"

typedef struct wires wires;

/* With what `state_dir` has kept.  `run` may get nodes, up to node_max.  Errors: NOMEM, IO. */
OMM_CHECKED omm_err wires_open(wires **out, const omm_run_record *run, uint32_t node_max,
                               const char *state_dir);
void wires_close(wires *w); /* NULL is fine */
#define WIRES_BASE (-2)     /* of no node: about the base model */
/* From here on it is this round. */
void wires_round(wires *w, uint32_t round);
/* One exchange. */
typedef struct wires_passed {
    size_t request_bytes, reply_bytes; /* without their frames */
    omm_coord_payload payload;         /* what of them was an adapter as codecs send it */
} wires_passed;
/* said_by: the node that signed it, OMM_COORD_NOBODY or WIRES_BASE. */
void wires_book(wires *w, int32_t said_by, const omm_exchange *exchange,
                const wires_passed *passed);
/* By which the node's last request came; 0: none. */
int wires_connection(const wires *w, size_t node);
/* Of node i; ud: the wires, as watch_take hands them on. */
watch_wire wires_of(void *ud, size_t i);
/* Errors of these two: IO, NOMEM. */
OMM_CHECKED omm_err wires_keep(const wires *w);
OMM_CHECKED omm_err wires_write(const wires *w, omm_bundle *bundle, const char *commit);

#endif
