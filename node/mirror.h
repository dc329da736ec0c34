/* mirror.h - private to node: the bytes of a file from a plain HTTP server, from some place on.
 *
 * libcurl is loaded when it is used first.  What comes is nobody's word: whoever takes it checks it.
 *
 * Depends on: base; libcurl.  Threads: one transfer at a time.
 */
#ifndef OMM_NODE_MIRROR_H
#define OMM_NODE_MIRROR_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define MIRROR_REDIRECTS_MAX 3
#define MIRROR_CONNECT_S 20            /* connect_s of every node */
#define MIRROR_STALL_BYTES 1024u       /* a second, over stall_s */
#define MIRROR_BESIDE_BYTES (1u << 20) /* the most that comes with a redirect */

typedef struct mirror_get {
    const char *url;
    uint64_t from, size; /* bytes [from, size) of the file */
    bool may_be_private; /* its address, and those of its redirects */
    uint32_t connect_s;  /* until there is a connection, at least 1 */
    uint32_t stall_s;
    /* More bytes of the file, in order; an error ends the transfer and is returned. */
    omm_err (*take)(void *ud, omm_bytes bytes);
    /* Asked about once a second, and whenever bytes come: false ends the transfer with CANCELLED. */
    bool (*may_go_on)(void *ud);
    void *ud;
} mirror_get;

/* Until all bytes have come.  A server without Range sends the file from its beginning: what is before `from` is
 * passed over.
 * Errors: those of take; CANCELLED; CLOSED (cut, or no connection), TIMEOUT (no connection within connect_s, or
 * stalled): try again later; MISMATCH (it says no, has another size, redirects too often or with too much beside, is no HTTP server
 * or at a private address: do not try again);
 * UNSUPPORTED (no libcurl), NOMEM. */
OMM_CHECKED omm_err mirror_fetch(const mirror_get *get);

/* An address that is not for everybody: loopback, private, link-local, shared, multicast, unspecified. */
bool mirror_is_private(const struct sockaddr *address);

#endif
