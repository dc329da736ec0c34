/* peers.h - the open connections of a server, and the limits of those nobody vouched for.
 *
 *   arrived (a socket) --hello--> here (a pipe) --vouched for--> trusted
 *
 * nng 1.5.2 must not end a pipe while frames come in on it: its thread that ends pipes may then wait for ever, and no other
 * one ends any more.  So who is turned away is not listened to, and when it is quiet its socket is shut for reading, where
 * nng finds the end; not for writing, since an answer that fails would end the pipe in the middle of what comes in.
 *
 * A socket counts from the moment the kernel hands it over (door.h).  An address (of IPv6 its /64: whoever has one has
 * all of it) may have so many that nobody vouched for; one more is refused.  Where all places are taken, a new one takes that of
 * the oldest from the address that has most: a crowd makes room, and who proves who it is at its first word is let in.
 *
 * Depends on: base; nng.  Threads: the caller holds the server's lock.
 */
#ifndef OMM_PROTO_PEERS_H
#define OMM_PROTO_PEERS_H

#include "omm/transport.h"

#include <nng/nng.h>
#include <sys/socket.h>

#define PEERS_QUIET_MS 500u
#define PEERS_LOUD_MS 10000u  /* who is not quiet until then is ended all the same */
#define PEERS_STUCK_MS 30000u /* whoever was turned away is gone in a moment */
#define PEERS_PER_OWNER 8u /* connections: networks change, and the old ones look alive for hours */

typedef struct peer {
    int pipe;      /* nng's id; 0: it has not said hello */
    int fd;        /* -1: not known */
    uint16_t port; /* at its end */
    bool is_trusted;
    bool is_local;   /* ipc, inproc: no limits */
    bool is_leaving; /* it was turned away */
    bool is_shut;    /* and its socket is */
    bool has_spoken; /* a whole message came */
    int32_t owner;   /* what the program said, or negative */
    unsigned rank;   /* it was the so-many-th of its network when it came */
    uint64_t network;
    uint64_t since_ms; /* it came, or did the last thing that counts, or was turned away */
    uint64_t heard_ms; /* a message, once it has spoken */
    char address[OMM_PEER_SIZE];
} peer;

typedef struct peers {
    peer *items;
    int *pipes; /* of the items, side by side: what each request is searched in */
    size_t count, capacity;
    uint64_t turned[OMM_TURNED_REASONS];    /* how many were turned away */
    uint64_t turned_ms[OMM_TURNED_REASONS]; /* when the last one was */
} peers;

void peers_fini(peers *table);
/* Who is at the other end: address as text without its port, "local" for ipc and inproc; port, network. */
void peers_name(peer *out, const struct sockaddr_storage *address);
void peers_name_pipe(peer *out, nng_pipe pipe);
void peers_network(char out[OMM_PEER_SIZE], const peer *p); /* its address, or /64, as text */
/* A socket was handed over.  False: it must be closed.  Another one may be turned away for it. */
bool peers_arrive(peers *table, int fd, const struct sockaddr_storage *address,
                  const omm_server_options *options, uint64_t now_ms);
/* It is a pipe now.  False: there is no room for one that came by no door, or no memory. */
bool peers_add(peers *table, nng_pipe pipe, const omm_server_options *options, uint64_t now_ms);
void peers_remove(peers *table, nng_pipe pipe, uint64_t now_ms); /* its socket is still open */
peer *peers_find(peers *table, nng_pipe pipe);                   /* NULL when unknown */
/* The program vouched for it; of an owner that has too many then the oldest goes. */
void peers_trust(peers *table, nng_pipe pipe, int32_t owner, uint64_t now_ms);
/* Turn it away; OMM_TURNED_REASONS: the program's own doing, not counted.  False: its socket is not known, and it must be closed as a pipe. */
bool peers_end(peers *table, peer *p, omm_turned reason, uint64_t now_ms);
/* Turn those away that nobody vouched for and that have done nothing that counts for idle_ms (0: no limit), and forget
 * sockets that are gone without a hello. */
void peers_sweep(peers *table, uint64_t idle_ms, uint64_t now_ms);
size_t peers_strangers(const peers *table); /* those that nobody vouched for */
size_t peers_pipes(const peers *table);
size_t peers_stuck(const peers *table, uint64_t now_ms); /* turned away, and still there */

#endif
