/* transport.h - requests and replies between processes or inside one: tls+tcp://, tcp://, ipc://, inproc://.
 *
 *   client --send--> [wire] --> server queue --receive--> exchange --reply--> [wire] --> receive
 *
 * One request is in flight per client, and per connection: who sends another one over a network before it was answered
 * is closed, as is who does not read: an answer waits a few seconds at most for the one before it to leave.  The
 * server takes at most `exchanges_max` requests at a time; further ones wait in their connections.
 * Messages over `message_bytes_max` are refused before they are looked at: by nng (which closes the
 * connection; inproc:// does not) and by us.  Time-outs here carry no meaning in the protocol.
 *
 * Nothing is ever sent twice by itself: a lost connection ends the exchange with CLOSED, and
 * whoever sent decides to send again, and counts it.  Connections come back by themselves, with
 * back-off.
 *
 * Connections that the program has not vouched for (omm_exchange_trust) are limited: in number, per address, and to
 * `idle_ms` without anything that counts (omm_exchange_stay); they count from when the kernel hands them over.
 * ipc:// and inproc:// have no such limits.
 *
 * tls+tcp:// is TLS 1.2 with the certificates of omm/tls.h: a server has one, a client knows it and connects
 * to no other.  Bytes are counted as over tcp://, without what TLS adds.
 *
 * Depends on: base, wire.h; nng.  Threads: a server's functions may be called from any thread, an
 * exchange from one at a time; a client belongs to one thread at a time.
 */
#ifndef OMM_TRANSPORT_H
#define OMM_TRANSPORT_H

#include "omm/bytes.h"
#include "omm/clock.h"
#include "omm/err.h"
#include "omm/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_URL_BYTES_MAX 256u
#define OMM_PEER_SIZE 64u /* "203.0.113.9", "[2001:db8::1]", "local" and a NUL */
#define OMM_WAIT_FOREVER UINT64_MAX
#define OMM_OWNER_NONE (-1)

/* tls+tcp:// or tcp:// with a port, ipc:// or inproc://, as open and listen ask themselves.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_url_check(const char *url);

typedef struct omm_server omm_server;
typedef struct omm_exchange omm_exchange;
typedef struct omm_client omm_client;

/* Why connections are turned away, and what /metrics calls it. */
#define OMM_TURNED_MAP(XX)                                                                         \
    XX(ADDRESS, address)         /* its address has as many as one may have */                     \
    XX(STRANGERS, strangers)     /* all places are taken, by a crowd */                            \
    XX(DESCRIPTORS, descriptors) /* as many files are open as may be for connections */            \
    XX(NODE, node)               /* the oldest of a node that has too many */                      \
    XX(NO_HELLO, no_hello)       /* it went, or ten seconds passed, without TLS and greeting */    \
    XX(NO_MESSAGE, no_message)   /* it went without a whole message */                             \
    XX(FRAME, frame)             /* a frame that is too long, or none of the protocol */           \
    XX(IDLE, idle)               /* nothing that counts for idle_ms */                             \
    XX(AHEAD, ahead)             /* it asked again before it was answered */                       \
    XX(UNREAD, unread)           /* it does not read its answers */
typedef enum omm_turned {
#define XX(name, text) OMM_TURNED_##name,
    OMM_TURNED_MAP(XX)
#undef XX
        OMM_TURNED_REASONS
} omm_turned;
const char *omm_turned_name(omm_turned reason);

/* What passed, bodies and OMM_WIRE_OVERHEAD_BYTES each. */
typedef struct omm_wire_count {
    uint64_t messages_in, bytes_in;
    uint64_t messages_out, bytes_out;
    uint64_t oversize;    /* messages over the limit that we saw (inproc) */
    uint64_t connections; /* open now (server only) */
    uint64_t queued;      /* requests that wait to be received (server only) */
    /* Server only: */
    uint64_t answering;                       /* answers now that wait for the one before them */
    uint64_t all_answer_ms;                   /* for so long all exchanges have been answering */
    uint64_t stuck;                           /* connections that were ended and are still there */
    uint64_t strangers;                       /* connections now that nobody vouched for */
    uint64_t strangers_max;                   /* places for them */
    uint64_t turned_away[OMM_TURNED_REASONS]; /* connections */
    uint64_t turned_ago_ms[OMM_TURNED_REASONS]; /* since the last one; UINT64_MAX: none yet */
} omm_wire_count;
/* For whatever reason. */
uint64_t omm_wire_turned_away(const omm_wire_count *count);

typedef struct omm_server_options {
    unsigned exchanges_max; /* requests taken at a time */
    size_t
        message_bytes_max; /* of a request body, at most OMM_MESSAGE_BYTES_MAX; a reply may have those */
    unsigned untrusted_max;      /* connections nobody vouched for */
    unsigned untrusted_per_peer; /* of those, per address, or /64 of IPv6 */
    unsigned
        descriptors_max; /* a connection with this one or a higher one is refused; 0: no limit */
    uint64_t idle_ms;    /* without anything that counts while untrusted; 0: no limit */
    omm_bytes tls_certificate; /* PEM, copied; with tls_key: for tls+tcp://.  Empty: none */
    omm_bytes tls_key;
    omm_clock clock; /* idle_ms is counted on it; now_ms is called from any thread */
} omm_server_options;
/* 16, OMM_MESSAGE_BYTES_MAX, 256, 8, no limit, 30,000, the system's clock. */
omm_server_options omm_server_options_default(void);

/* Errors: NOMEM, IO; FORMAT, MISMATCH (certificate and key). */
OMM_CHECKED omm_err omm_server_open(omm_server **out, const omm_server_options *options);
/* Ends waiting receives with CLOSED; exchanges not answered must not be used after it. */
void omm_server_close(omm_server *server);
/* May be called for several urls.  "tcp://127.0.0.1:0" takes a free port.
 * Errors: CONFIG (not a url of the four kinds, or tls+tcp:// without a certificate), STATE (address in use), IO, NOMEM. */
OMM_CHECKED omm_err omm_server_listen(omm_server *server, const char *url);
/* The tcp port that was bound last; 0 when none. */
unsigned omm_server_port(const omm_server *server);

/* Wait for the next request.  `request` is valid until the exchange is answered or dropped.
 * Errors: TIMEOUT, CLOSED; REFUSED_SIZE: *out is set, `request` is empty, and the exchange must be
 * answered (with a refusal) or dropped like any other. */
OMM_CHECKED omm_err omm_server_receive(omm_exchange **out, omm_bytes *request, omm_server *server,
                                       uint64_t timeout_ms);
/* Address of the peer without its port; "local" for ipc and inproc. */
const char *omm_exchange_peer(const omm_exchange *exchange);
/* The same for limits: of IPv6 its /64, "[2001:db8:0:1::]/64". */
const char *omm_exchange_network(const omm_exchange *exchange);
/* Vouch for the connection this request came on, before it is answered: its limits are lifted, and later
 * requests on it have this owner, a number of the program's own (not negative). */
void omm_exchange_trust(omm_exchange *exchange, int32_t owner);
/* What the request was about is worth waiting for: its connection may be untrusted for another idle_ms. */
void omm_exchange_stay(omm_exchange *exchange);
/* Whom the connection belonged to when the request came, or OMM_OWNER_NONE. */
int32_t omm_exchange_owner(const omm_exchange *exchange);
/* Number of the connection this request came on, never 0; and its end, if it is still there: whoever waits
 * at the other side sees it closed. */
int omm_exchange_connection(const omm_exchange *exchange);
void omm_server_hang_up(omm_server *server, int connection); /* 0: none */
/* Answer and end the exchange, also on error.  Sent in the background: a peer that is gone is not
 * noticed.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_exchange_reply(omm_exchange *exchange, omm_bytes reply);
/* The same in two steps: the answer is copied (another hold replaces it), and leaves with send.
 * The request ends with the first hold.  On error the exchange is ended.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_exchange_hold(omm_exchange *exchange, omm_bytes reply);
void omm_exchange_send(omm_exchange *exchange);
/* End the exchange without an answer. */
void omm_exchange_drop(omm_exchange *exchange);
void omm_server_count(omm_wire_count *out, omm_server *server);

typedef struct omm_client_options {
    size_t message_bytes_max;
    uint32_t reconnect_min_ms, reconnect_max_ms; /* doubles from one to the other; with jitter */
    uint32_t attempt_ms; /* for connection, TLS and greeting together; then it is tried again */
    omm_bytes tls_certificate; /* PEM, copied; those that are accepted.  Required by tls+tcp:// */
} omm_client_options;
/* OMM_MESSAGE_BYTES_MAX, 100, 10,000, 20,000. */
omm_client_options omm_client_options_default(void);

/* Connect in the background, now and whenever the connection is lost; a peer that is not there yet
 * is no error.  Errors: CONFIG (url, or tls+tcp:// without a certificate), FORMAT (certificate), NOMEM, IO. */
OMM_CHECKED omm_err omm_client_open(omm_client **out, const char *url,
                                    const omm_client_options *options);
void omm_client_close(omm_client *client);
/* Start a request; one still in flight is given up, and over a network a server then closes the connection: renew first.
 * Errors: NOMEM, TOO_BIG, IO. */
OMM_CHECKED omm_err omm_client_send(omm_client *client, omm_bytes request);
/* Wait for the reply; `reply` is valid until the next send or close.  TIMEOUT leaves the request in
 * flight, so receive may be called again.  Errors: TIMEOUT, CLOSED (connection lost: send again),
 * REFUSED_SIZE, STATE (nothing was sent), NOMEM, IO. */
OMM_CHECKED omm_err omm_client_receive(omm_bytes *reply, omm_client *client, uint64_t timeout_ms);
/* Leave this connection for a new one: a request in flight ends as CLOSED, and the next one goes over the new one.  For a
 * caller that has waited too long for an answer: after a change of networks a connection is dead and looks alive for hours. */
void omm_client_renew(omm_client *client);
/* Why nothing comes, for people: what became of the last attempt to connect, or that there is a connection. */
const char *omm_client_trouble(omm_client *client);
/* A request is in flight (sent or waiting for a connection) and has no result yet. */
bool omm_client_is_waiting(omm_client *client);
void omm_client_count(omm_wire_count *out, omm_client *client);

#endif
