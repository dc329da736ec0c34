/* server.c - owns the answering end: REP contexts as a bounded queue of exchanges.
 *
 *   receiving --request--> ready (queue) --receive--> taken --reply--> replying --sent--> receiving
 *                                                         \--drop--> receiving
 *
 * A connection that asks over a network again before it was answered is closed.  nng takes an answer at once where the one
 * before it has left; else it waits for that, in its exchange, SERVER_ANSWER_MS at most, and then the connection is
 * closed: nobody reads there.
 *
 * nng's threads move an exchange through receiving and replying, the program through the rest; the
 * server's lock guards the queue, the connections and the counts.
 */
#include "omm/transport.h"

#include "door.h"
#include "nng_glue.h"
#include "omm/mem.h"
#include "peers.h"

#include <arpa/inet.h>
#include <nng/protocol/reqrep0/rep.h>
#include <stdio.h>
#include <string.h>

#define SERVER_ANSWER_MS 5000 /* for who reads late, or not at all */
#define SERVER_PRESSED_MS 250 /* the same while more than half of the exchanges wait so */
/* Of a connection, waiting so; one more request closes it.  That nng is done with an answer is heard some time after the
 * peer has read it, and has asked the next thing. */
#define SERVER_UNREAD_MAX 3u
#define SWEEP_MS 1000
#define DOORS_MAX 4u /* of further listeners connections count from their hello */

typedef enum exchange_state {
    EXCHANGE_RECEIVING,
    EXCHANGE_READY,
    EXCHANGE_TAKEN,
    EXCHANGE_REPLYING,
} exchange_state;

struct omm_exchange {
    omm_server *server;
    omm_exchange *next; /* in the queue */
    exchange_state state;
    nng_ctx context;
    nng_aio *aio;
    nng_msg *message; /* the request, while ready or taken */
    bool is_open;     /* context and aio exist */
    bool is_given_up; /* its connection was ended: no answer */
    int32_t owner;    /* of the connection when the request came */
    char peer[OMM_PEER_SIZE], network[OMM_PEER_SIZE];
    int connection; /* the answer's message does not know it; 0: none */
};

struct omm_server {
    omm_server_options options;
    nng_socket socket;
    bool is_open; /* socket exists */
    nng_tls_config *tls;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    omm_exchange *exchanges; /* (exchanges_max) */
    omm_exchange *first, *last;
    unsigned waiting;       /* threads inside receive */
    unsigned answering;     /* exchanges whose answer has not left */
    uint64_t all_answer_ms; /* since when that is all of them */
    bool is_closing;
    unsigned port;
    nng_aio *sweep;
    peers peers;
    door doors[DOORS_MAX];
    unsigned door_count;
    omm_wire_count count;
};

omm_server_options omm_server_options_default(void) {
    return (omm_server_options){.exchanges_max = 16,
                                .message_bytes_max = OMM_MESSAGE_BYTES_MAX,
                                .untrusted_max = 256,
                                .untrusted_per_peer = 8,
                                .idle_ms = 30000,
                                .clock = omm_clock_system()};
}

/* ---- connections ---- */

static uint64_t now_ms(const omm_server *server) {
    return server->options.clock.now_ms(server->options.clock.ud);
}

/* From accept(), with locks of nng's held: nothing of nng is called. */
static bool on_arrival(void *ud, int fd, const struct sockaddr_storage *address) {
    omm_server *server = ud;
    pthread_mutex_lock(&server->mutex);
    const bool is_in = peers_arrive(&server->peers, fd, address, &server->options, now_ms(server));
    pthread_mutex_unlock(&server->mutex);
    return is_in;
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg) {
    omm_server *server = arg;
    bool is_refused = false;
    pthread_mutex_lock(&server->mutex);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        is_refused = !peers_add(&server->peers, pipe, &server->options, now_ms(server));
    } else {
        peers_remove(&server->peers, pipe, now_ms(server));
    }
    pthread_mutex_unlock(&server->mutex);
    if (is_refused) nng_pipe_close(pipe);
}

static void on_sweep(void *arg) {
    omm_server *server = arg;
    if (nng_aio_result(server->sweep) != 0) return; /* stopped */
    pthread_mutex_lock(&server->mutex);
    peers_sweep(&server->peers, server->options.idle_ms, now_ms(server));
    pthread_mutex_unlock(&server->mutex);
    nng_sleep_aio(SWEEP_MS, server->sweep);
}

static void end_connection(omm_server *server, int connection, omm_turned reason) {
    const nng_pipe pipe = {.id = (uint32_t)connection};
    pthread_mutex_lock(&server->mutex);
    peer *found = peers_find(&server->peers, pipe);
    const bool is_ended = !found || peers_end(&server->peers, found, reason, now_ms(server));
    pthread_mutex_unlock(&server->mutex);
    if (!is_ended) nng_pipe_close(pipe);
}

/* ---- exchanges ---- */

static void start_receiving(omm_exchange *exchange) {
    omm_server *server = exchange->server;
    pthread_mutex_lock(&server->mutex);
    if (exchange->state == EXCHANGE_REPLYING) server->answering--;
    exchange->state = EXCHANGE_RECEIVING;
    exchange->connection = 0;
    pthread_mutex_unlock(&server->mutex);
    nng_aio_set_timeout(exchange->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(exchange->context, exchange->aio);
}

/* With the lock held: the connection has a request that is not answered yet, or answers that it does not read. */
static bool is_ahead(const omm_server *server, int connection) {
    unsigned unread = 0;
    for (unsigned i = 0; i < server->options.exchanges_max; i++) {
        const omm_exchange *exchange = &server->exchanges[i];
        if (exchange->connection != connection) continue;
        if (exchange->state != EXCHANGE_REPLYING) return true;
        unread++;
    }
    return unread >= SERVER_UNREAD_MAX;
}

/* With the lock held: answers that are not on their way yet stay here, so that nothing goes out while nng ends the pipe. */
static void give_up(const omm_server *server, int connection) {
    for (unsigned i = 0; i < server->options.exchanges_max; i++)
        if (server->exchanges[i].connection == connection) server->exchanges[i].is_given_up = true;
}

/* With the lock held.  A request is counted, and belongs to its peer.  False: it came before the answer to another one,
 * and its connection is ended. */
static bool take_request(omm_exchange *exchange, nng_msg *message) {
    omm_server *server = exchange->server;
    const nng_pipe pipe = nng_msg_get_pipe(message);
    peer gone = {.owner = OMM_OWNER_NONE};
    peer *from = peers_find(&server->peers, pipe);
    server->count.messages_in++;
    server->count.bytes_in += omm_wire_bytes(nng_msg_len(message));
    if (nng_msg_len(message) > server->options.message_bytes_max) server->count.oversize++;
    if (from) from->heard_ms = now_ms(server);
    if (from && from->is_leaving) return false;
    if (from && !from->is_local && is_ahead(server, nng_pipe_id(pipe)) &&
        peers_end(&server->peers, from, OMM_TURNED_AHEAD, now_ms(server))) {
        give_up(server, nng_pipe_id(pipe));
        return false;
    }
    if (!from) { /* meanwhile */
        peers_name_pipe(&gone, pipe);
        from = &gone;
    }
    from->has_spoken = true;
    memcpy(exchange->peer, from->address, sizeof exchange->peer);
    peers_network(exchange->network, from);
    exchange->owner = from->owner;
    exchange->connection = nng_pipe_id(pipe);
    exchange->is_given_up = false;
    exchange->message = message;
    exchange->next = NULL;
    exchange->state = EXCHANGE_READY;
    return true;
}

static void on_request(omm_exchange *exchange, nng_msg *message) {
    omm_server *server = exchange->server;
    pthread_mutex_lock(&server->mutex);
    const bool is_taken = take_request(exchange, message);
    if (is_taken) {
        if (server->last) {
            server->last->next = exchange;
        } else {
            server->first = exchange;
        }
        server->last = exchange;
        server->count.queued++;
        pthread_cond_signal(&server->changed);
    }
    pthread_mutex_unlock(&server->mutex);
    if (is_taken) return;
    nng_msg_free(message);
    start_receiving(exchange);
}

static void on_replied(omm_exchange *exchange, int result) {
    if (result != 0) {
        nng_msg_free(nng_aio_get_msg(exchange->aio)); /* it is still ours */
        nng_aio_set_msg(exchange->aio, NULL);
    }
    if (result == NNG_ECLOSED || result == NNG_ECANCELED) return;
    if (result == NNG_ETIMEDOUT)
        end_connection(exchange->server, exchange->connection, OMM_TURNED_UNREAD);
    start_receiving(exchange);
}

static void on_exchange(void *arg) {
    omm_exchange *exchange = arg;
    int result = nng_aio_result(exchange->aio);
    if (exchange->state == EXCHANGE_REPLYING) {
        on_replied(exchange, result);
    } else if (result == 0) {
        nng_msg *message = nng_aio_get_msg(exchange->aio);
        nng_aio_set_msg(exchange->aio, NULL);
        on_request(exchange, message);
    } else if (result != NNG_ECLOSED && result != NNG_ECANCELED) {
        start_receiving(exchange);
    }
}

/* ---- open and close ---- */

static omm_err open_exchange(omm_exchange *exchange, omm_server *server) {
    exchange->server = server;
    int result = nng_aio_alloc(&exchange->aio, on_exchange, exchange);
    if (result == 0) result = nng_ctx_open(&exchange->context, server->socket);
    if (result != 0) {
        if (exchange->aio) nng_aio_free(exchange->aio);
        return glue_error(result, "cannot open", "an exchange");
    }
    exchange->is_open = true;
    return OMM_OK;
}

static omm_err open_socket(omm_server *server) {
    int result = nng_rep0_open(&server->socket);
    if (result != 0) return glue_error(result, "cannot open", "a server socket");
    server->is_open = true;
    result = nng_socket_set_size(server->socket, NNG_OPT_RECVMAXSZ,
                                 server->options.message_bytes_max + NNG_REQUEST_ID_BYTES);
    if (result == 0) {
        result = nng_pipe_notify(server->socket, NNG_PIPE_EV_ADD_PRE, on_pipe, server);
    }
    if (result == 0) {
        result = nng_pipe_notify(server->socket, NNG_PIPE_EV_REM_POST, on_pipe, server);
    }
    if (result == 0) result = nng_aio_alloc(&server->sweep, on_sweep, server);
    if (result != 0) return glue_error(result, "cannot set up", "a server socket");
    return OMM_OK;
}

omm_err omm_server_open(omm_server **out, const omm_server_options *options) {
    OMM_ASSERT(options->exchanges_max >= 1);
    omm_server *server = omm_alloc(1, sizeof *server);
    if (!server) return omm_raise(OMM_ERR_NOMEM, "no memory for a server");
    server->options = *options;
    OMM_ASSERT(pthread_mutex_init(&server->mutex, NULL) == 0);
    glue_cond_init(&server->changed);
    omm_err err = OMM_OK;
    if (options->tls_certificate.size > 0)
        err = glue_tls_config(&server->tls, options->tls_certificate, options->tls_key);
    server->options.tls_certificate = server->options.tls_key = omm_bytes_of(NULL, 0);
    server->exchanges = omm_alloc(options->exchanges_max, sizeof *server->exchanges);
    if (err == OMM_OK && !server->exchanges)
        err = omm_raise(OMM_ERR_NOMEM, "no memory for a server's queue");
    if (err == OMM_OK) err = open_socket(server);
    for (unsigned i = 0; err == OMM_OK && i < options->exchanges_max; i++) {
        err = open_exchange(&server->exchanges[i], server);
    }
    if (err != OMM_OK) {
        omm_server_close(server);
        return err;
    }
    for (unsigned i = 0; i < options->exchanges_max; i++) start_receiving(&server->exchanges[i]);
    nng_sleep_aio(SWEEP_MS, server->sweep);
    *out = server;
    return OMM_OK;
}

static void close_exchanges(omm_server *server) {
    for (unsigned i = 0; server->exchanges && i < server->options.exchanges_max; i++) {
        omm_exchange *exchange = &server->exchanges[i];
        if (!exchange->is_open) continue;
        nng_aio_free(exchange->aio); /* waits for its callback */
        if (exchange->message) nng_msg_free(exchange->message);
    }
    omm_free(server->exchanges);
}

void omm_server_close(omm_server *server) {
    if (!server) return;
    pthread_mutex_lock(&server->mutex);
    server->is_closing = true;
    pthread_cond_broadcast(&server->changed);
    while (server->waiting > 0) pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
    if (server->sweep) nng_aio_stop(server->sweep);
    for (unsigned i = 0; i < server->door_count; i++) door_close(&server->doors[i]);
    if (server->is_open) nng_close(server->socket);
    close_exchanges(server);
    if (server->sweep) nng_aio_free(server->sweep);
    if (server->tls) nng_tls_config_free(server->tls);
    peers_fini(&server->peers);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    omm_free(server);
}

static unsigned bound_port(nng_listener listener) {
    nng_sockaddr address;
    if (nng_listener_get_addr(listener, NNG_OPT_LOCADDR, &address) != 0) return 0;
    if (address.s_family == NNG_AF_INET) return ntohs(address.s_in.sa_port);
    if (address.s_family == NNG_AF_INET6) return ntohs(address.s_in6.sa_port);
    return 0;
}

omm_err omm_server_listen(omm_server *server, const char *url) {
    nng_listener listener;
    OMM_TRY(omm_url_check(url));
    if (glue_is_tls(url) && !server->tls)
        return omm_raise(OMM_ERR_CONFIG, "%s needs a certificate and its key", url);
    int result = nng_listener_create(&listener, server->socket, url);
    if (result == 0 && glue_is_tls(url))
        result = nng_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, server->tls);
    if (result == 0) {
        result = nng_listener_start(listener, 0);
        if (result != 0) (void)nng_listener_close(listener);
    }
    if (result != 0) return glue_error(result, "cannot listen on", url);
    unsigned port = bound_port(listener);
    if (port == 0) return OMM_OK;
    server->port = port;
    if (server->door_count == DOORS_MAX) return OMM_OK;
    door *d = &server->doors[server->door_count++];
    *d = (door){.port = port, .ask = on_arrival, .ud = server};
    door_open(d);
    return OMM_OK;
}

unsigned omm_server_port(const omm_server *server) {
    return server->port;
}

/* ---- the program's side ---- */

omm_err omm_server_receive(omm_exchange **out, omm_bytes *request, omm_server *server,
                           uint64_t timeout_ms) {
    glue_deadline deadline = glue_deadline_in(timeout_ms);
    pthread_mutex_lock(&server->mutex);
    server->waiting++;
    bool in_time = true;
    while (!server->first && !server->is_closing && in_time) {
        in_time = glue_wait(&server->changed, &server->mutex, &deadline);
    }
    bool is_closing = server->is_closing;
    omm_exchange *exchange = is_closing ? NULL : server->first;
    if (exchange) {
        server->first = exchange->next;
        if (!server->first) server->last = NULL;
        server->count.queued--;
        exchange->state = EXCHANGE_TAKEN;
    }
    server->waiting--;
    if (is_closing) pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    if (is_closing) return omm_raise(OMM_ERR_CLOSED, "server is closing");
    if (!exchange) {
        return omm_raise(OMM_ERR_TIMEOUT, "no request within %llu ms",
                         (unsigned long long)timeout_ms);
    }
    size_t size = nng_msg_len(exchange->message);
    *out = exchange;
    *request = omm_bytes_of(NULL, 0);
    if (size > server->options.message_bytes_max) {
        return omm_raise(OMM_ERR_REFUSED_SIZE, "request has %zu bytes, at most %zu are allowed",
                         size, server->options.message_bytes_max);
    }
    *request = omm_bytes_of(nng_msg_body(exchange->message), size);
    return OMM_OK;
}

const char *omm_exchange_peer(const omm_exchange *exchange) {
    return exchange->peer;
}

const char *omm_exchange_network(const omm_exchange *exchange) {
    return exchange->network;
}

int32_t omm_exchange_owner(const omm_exchange *exchange) {
    return exchange->owner;
}

void omm_exchange_trust(omm_exchange *exchange, int32_t owner) {
    omm_server *server = exchange->server;
    OMM_ASSERT(exchange->state == EXCHANGE_TAKEN);
    exchange->owner = owner;
    pthread_mutex_lock(&server->mutex);
    peers_trust(&server->peers, nng_msg_get_pipe(exchange->message), owner, now_ms(server));
    pthread_mutex_unlock(&server->mutex);
}

void omm_exchange_stay(omm_exchange *exchange) {
    omm_server *server = exchange->server;
    OMM_ASSERT(exchange->state == EXCHANGE_TAKEN);
    pthread_mutex_lock(&server->mutex);
    peer *from = peers_find(&server->peers, nng_msg_get_pipe(exchange->message));
    if (from) from->since_ms = now_ms(server);
    pthread_mutex_unlock(&server->mutex);
}

int omm_exchange_connection(const omm_exchange *exchange) {
    return exchange->connection;
}

void omm_server_hang_up(omm_server *server, int connection) {
    if (connection > 0) end_connection(server, connection, OMM_TURNED_REASONS);
}

static void free_request(omm_exchange *exchange) {
    OMM_ASSERT(exchange->state == EXCHANGE_TAKEN);
    nng_msg_free(exchange->message);
    exchange->message = NULL;
}

void omm_exchange_drop(omm_exchange *exchange) {
    free_request(exchange);
    start_receiving(exchange);
}

/* The answer, in place of the request or of an answer before it. */
static omm_err set_message(omm_exchange *exchange, omm_bytes reply) {
    nng_msg *message = NULL;
    if (reply.size > OMM_MESSAGE_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "reply has %zu bytes, at most %u are allowed", reply.size,
                         OMM_MESSAGE_BYTES_MAX);
    if (nng_msg_alloc(&message, reply.size) != 0)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a reply of %zu bytes", reply.size);
    if (reply.size > 0) memcpy(nng_msg_body(message), reply.data, reply.size);
    nng_msg_free(exchange->message);
    exchange->message = message;
    return OMM_OK;
}

omm_err omm_exchange_hold(omm_exchange *exchange, omm_bytes reply) {
    OMM_ASSERT(exchange->state == EXCHANGE_TAKEN);
    omm_err err = set_message(exchange, reply);
    if (err != OMM_OK) omm_exchange_drop(exchange);
    return err;
}

void omm_exchange_send(omm_exchange *exchange) {
    omm_server *server = exchange->server;
    OMM_ASSERT(exchange->state == EXCHANGE_TAKEN);
    nng_msg *message = exchange->message;
    pthread_mutex_lock(&server->mutex);
    const bool is_given_up = exchange->is_given_up;
    if (!is_given_up) {
        server->count.messages_out++;
        server->count.bytes_out += omm_wire_bytes(nng_msg_len(message));
        exchange->state = EXCHANGE_REPLYING;
        server->answering++;
        if (server->answering == server->options.exchanges_max)
            server->all_answer_ms = now_ms(server);
    }
    const bool is_pressed = server->answering > (server->options.exchanges_max + 1) / 2;
    pthread_mutex_unlock(&server->mutex);
    if (is_given_up) {
        omm_exchange_drop(exchange);
        return;
    }
    exchange->message = NULL;
    nng_aio_set_timeout(exchange->aio, is_pressed ? SERVER_PRESSED_MS : SERVER_ANSWER_MS);
    nng_aio_set_msg(exchange->aio, message);
    nng_ctx_send(exchange->context, exchange->aio);
}

omm_err omm_exchange_reply(omm_exchange *exchange, omm_bytes reply) {
    OMM_TRY(omm_exchange_hold(exchange, reply));
    omm_exchange_send(exchange);
    return OMM_OK;
}

void omm_server_count(omm_wire_count *out, omm_server *server) {
    pthread_mutex_lock(&server->mutex);
    const uint64_t now = now_ms(server);
    *out = server->count;
    out->answering = server->answering;
    if (server->answering == server->options.exchanges_max)
        out->all_answer_ms = now - server->all_answer_ms;
    out->connections = peers_pipes(&server->peers);
    out->stuck = peers_stuck(&server->peers, now);
    out->strangers = peers_strangers(&server->peers);
    out->strangers_max = server->options.untrusted_max;
    for (unsigned i = 0; i < OMM_TURNED_REASONS; i++) {
        out->turned_away[i] = server->peers.turned[i];
        out->turned_ago_ms[i] =
            server->peers.turned[i] ? now - server->peers.turned_ms[i] : UINT64_MAX;
    }
    pthread_mutex_unlock(&server->mutex);
}
