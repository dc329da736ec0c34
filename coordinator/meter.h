/* meter.h - how much one node, or one address nobody vouched for, may send and be sent in a minute.
 *
 *   request --meter_take--> 0: answer it, meter_add the answer
 *                       \-> n: over a limit; it may ask again in n ms
 *
 * A node is known by the connection on which it proved itself last; whoever has proved nothing shares
 * the allowance of his address.  Windows are whole minutes that begin with the first message.
 *
 * Depends on: base, proto (transport).  Threads: one at a time.
 */
#ifndef COORDINATOR_METER_H
#define COORDINATOR_METER_H

#include "omm/transport.h"

#define METER_WINDOW_MS 60000u

typedef struct meter meter;

typedef struct meter_limits {
    uint64_t messages, bytes; /* in a minute, both ways together; 0: no limit */
} meter_limits;

/* Errors: NOMEM. */
OMM_CHECKED omm_err meter_open(meter **out, size_t node_count, const meter_limits *limits);
void meter_close(meter *m); /* NULL is fine */

/* May this request be answered?  node: index, or negative: by `address` then.  0: yes, and it is counted;
 * else the milliseconds until its window ends, and omm_err_sentence() names limit and value. */
uint64_t meter_take(meter *m, int32_t node, const char *address, uint64_t now_ms, size_t bytes);
/* Bytes of the answer to the request that was taken last. */
void meter_add(meter *m, size_t bytes);

#endif
