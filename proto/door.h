/* door.h - who may connect at all, asked where the kernel hands a connection over.
 *
 * nng 1.5 tells of a connection when its TLS and its hello are done, and gives it ten seconds for that: sockets that say
 * nothing are in no table until then, and there may be as many as the process may have descriptors.  nng has no hook before
 * it, so accept(2) is ours: door.c defines accept and accept4, which the linker puts before libc's for this program and
 * its libraries.  For a listening port that no door stands at they are what libc's are.
 *
 * Depends on: nothing.  Threads: all functions are safe; `ask` is called from nng's, with a lock of nng's held.
 */
#ifndef OMM_PROTO_DOOR_H
#define OMM_PROTO_DOOR_H

#include <stdbool.h>
#include <sys/socket.h>

/* A connection from `address` is there as `fd`.  False: it is closed before anybody hears of it. */
typedef bool (*door_ask)(void *ud, int fd, const struct sockaddr_storage *address);

typedef struct door {
    unsigned port; /* that is listened on */
    door_ask ask;
    void *ud;
    struct door *next;
} door;

void door_open(door *d); /* borrowed until it is closed */
/* After it `ask` is not called any more. */
void door_close(door *d);

#endif
