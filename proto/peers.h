/* peers.h - the open connections of a server, and the limits of those nobody vouched for.
 *
 * Depends on: base; nng.  Threads: the caller holds the server's lock.
 */
#ifndef OMM_PROTO_PEERS_H
#define OMM_PROTO_PEERS_H

#include "omm/transport.h"

#include <nng/nng.h>

typedef struct peer {
    int pipe; /* nng's id */
    bool is_trusted;
    bool is_local; /* ipc, inproc: no limits */
    int32_t owner; /* what the program said, or negative */
    uint64_t heard_ms;
    char address[OMM_PEER_SIZE];
} peer;

typedef struct peers {
    peer *items;
    size_t count, capacity;
} peers;

void peers_fini(peers *table);
/* Address of a connection as text without its port; false (and "local") for ipc and inproc. */
bool peers_address(char out[OMM_PEER_SIZE], nng_pipe pipe);
/* Note a new connection.  False when a limit of `options`, or memory, says no. */
bool peers_add(peers *table, nng_pipe pipe, const omm_server_options *options, uint64_t now_ms);
void peers_remove(peers *table, nng_pipe pipe);
peer *peers_find(peers *table, nng_pipe pipe); /* NULL when unknown */
/* Pipes that have been silent for idle_ms: up to `max` ids; returns how many. */
size_t peers_idle(int *pipes, size_t max, const peers *table, uint64_t idle_ms, uint64_t now_ms);

#endif
