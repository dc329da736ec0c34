/* board.h - private to node: status.json in the state folder, which says what the node does right now.
 *
 *   {"schema_version": 1, "pid", "name", "state", "since_s", "detail", "updated_s", "phase", "run_id",
 *    "round", "steps", "steps_done", "resident_bytes", "wire": {"bytes_out", "bytes_in", "since_s"},
 *    "history": as omm/node_history.h}
 *
 * It is a notice, not a record: written without fsync, and what is wrong with it stops nothing.
 *
 * Depends on: base, proto.  Threads: one at a time.
 */
#ifndef OMM_NODE_BOARD_H
#define OMM_NODE_BOARD_H

#include "omm/file.h"
#include "omm/json.h"
#include "omm/messages.h"
#include "omm/node_service.h"
#include "omm/transport.h"

#define BOARD_DETAIL_SIZE 640u /* two sentences */

typedef struct board {
    char path[OMM_PATH_MAX]; /* "": none is kept */
    const char *name;
    omm_clock clock;
    json_t *history; /* owned; NULL: none yet */
    char state[24], detail[BOARD_DETAIL_SIZE], run_id[OMM_RUN_ID_SIZE];
    uint64_t opened_ms, since_ms, written_ms, history_ms; /* wall; wall; now; now */
} board;

/* Without a state folder nothing is ever written. */
void board_open(board *b, const omm_node_options *node, omm_clock clock);
void board_close(board *b);
/* It is in `state` now.  Writes when that is new, and once a second.  `node` NULL: not opened yet.
 * may_ask: no other thread works on the node, so that its history may be read. */
void board_show(board *b, const char *state, const char *detail, omm_node *node, omm_client *client,
                bool may_ask);

#endif
