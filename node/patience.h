/* patience.h - private to node: when whoever waits for a coordinator may not work, and what is said of its silence.
 * The loop that serves and the one that fetches a base model each wait in their own way.
 *
 * Depends on: base, proto, guest.h.  Threads: one at a time.
 */
#ifndef OMM_NODE_PATIENCE_H
#define OMM_NODE_PATIENCE_H

#include "board.h"

#define PATIENCE_SLICE_MS 200u /* how soon a stop is noticed */
/* Without an answer for so long its owner is told, and again after twice that, and so on. */
#define PATIENCE_SILENT_MS 5000u

typedef struct patience {
    omm_clock clock;
    const omm_log *log;
    const char *name, *url; /* of the node; of the coordinator */
    const atomic_bool *stop;
    const omm_guest_rules *rules; /* NULL: it may always work */
    /* The rest is patience_init's. */
    omm_guest guest;
    omm_guest_pause said;
    uint64_t told_after_ms; /* how long a silence must be to be told (again) */
} patience;

/* guest_root: of omm/guest.h. */
void patience_init(patience *p, const char *guest_root);
uint64_t patience_now_ms(const patience *p);
bool patience_is_stopped(const patience *p);
/* Is there a reason not to work?  The view's text says it to the owner. */
bool patience_would_pause(patience *p);
/* The same of who has something to do: says so in the log when that changes. */
bool patience_must_pause(patience *p);
/* The next silence begins to count anew. */
void patience_renew(patience *p);
/* What the owner reads of it; "" before it is worth a word. */
void patience_silence(char text[BOARD_DETAIL_SIZE], uint64_t silent_ms, omm_client *client);
/* Shows a silence as `state`, and says it in the log, each time after twice as long. */
void patience_tell_silence(patience *p, uint64_t silent_ms, board *b, const char *state,
                           omm_node *node, omm_client *client);

#endif
