/* front.h - HTTP in front of work.h: who may ask, what was asked, and the way of bytes to and fro.
 *
 *   GET  --> a text that is there            POST --> body --> request --> job, suspended until there is something
 *
 * One thread of its own.  A connection serves one request after the other; who takes longer than request_ms to say what
 * he wants, or stands idle for so long, is cut off.  Whoever closes his end while he waits has left.
 *
 * Depends on: work; libmicrohttpd.  Threads: open, stop and close by one thread.
 */
#ifndef SERVE_FRONT_H
#define SERVE_FRONT_H

#include "work.h"

typedef struct front front;

/* Errors: CONFIG (address), STATE (in use), UNSUPPORTED, IO, NOMEM. */
OMM_CHECKED omm_err front_open(front **out, const omm_serve_options *o, work *w);
unsigned front_port(const front *h);
/* Everything that is suspended must have been woken before (work_end). */
void front_close(front *h);

#endif
