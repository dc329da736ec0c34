/* held.h - answers that wait for a commit: made, not sent.
 *
 *   request --step--> held_take ... commit --OK--> held_send
 *                                          \------> held_replace by "ask again", held_send
 *
 * Bounded in number and bytes, so that one commit serves many peers and none of them waits long.
 *
 * Depends on: base, proto (transport), coordinator.h.  Threads: one at a time.
 */
#ifndef COORDINATOR_HELD_H
#define COORDINATOR_HELD_H

#include "omm/coordinator.h"
#include "omm/transport.h"

/* At 64 the commit (0.3 ms) costs each of them 5 us; as many requests are taken from connections. */
#define HELD_MAX 64u
#define HELD_BYTES_MAX ((size_t)8 << 20) /* of requests and answers */

typedef struct held_answer {
    omm_exchange *exchange;
    int32_t said_by; /* node, OMM_COORD_NOBODY or WIRES_BASE */
    size_t request_bytes, reply_bytes;
    omm_coord_payload payload; /* of these bytes */
} held_answer;

typedef struct held {
    held_answer items[HELD_MAX];
    size_t count;
    size_t bytes; /* of requests and answers since the last send */
} held;

bool held_has_room(const held *h);
/* Keep the answer to an exchange, which it takes.  Errors: NOMEM, TOO_BIG: the exchange has ended. */
OMM_CHECKED omm_err held_take(held *h, omm_exchange *exchange, int32_t said_by,
                              size_t request_bytes, omm_bytes reply);
/* What of the answer taken last, and of its request, was an adapter; without it nothing was. */
void held_payload(held *h, omm_coord_payload payload);
/* Another answer for all.  Those that cannot have it end without one. */
void held_replace(held *h, omm_bytes reply);
/* All leave, in the order in which they came.  `sent` hears of each just before. */
typedef void (*held_sent_fn)(void *ud, const held_answer *answer);
void held_send(held *h, held_sent_fn sent, void *ud);

#endif
