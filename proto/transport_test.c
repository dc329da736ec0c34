/* The transport over inproc, ipc and tcp: lockstep in one thread, limits, lost connections. */
#include "omm/transport.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "peers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000u

static omm_server *open_server(const omm_server_options *options) {
    omm_server *server;
    omm_server_options defaults = omm_server_options_default();
    CHECK_OK(omm_server_open(&server, options ? options : &defaults));
    return server;
}

static omm_client *open_client(const char *url) {
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.reconnect_min_ms = 10;
    CHECK_OK(omm_client_open(&client, url, &options));
    return client;
}

/* One request and its reply, all in this thread. */
static void lockstep(omm_client *client, omm_server *server, omm_bytes question, omm_bytes answer) {
    omm_exchange *exchange;
    omm_bytes got;
    CHECK_OK(omm_client_send(client, question));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK(omm_bytes_equal(got, question));
    CHECK_OK(omm_exchange_reply(exchange, answer));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    CHECK(omm_bytes_equal(got, answer));
}

static void test_lockstep(const char *listen_url) {
    char url[OMM_URL_BYTES_MAX];
    static uint8_t big[OMM_MESSAGE_BYTES_MAX];
    omm_wire_count at_server, at_client;
    omm_server *server = open_server(NULL);
    memset(big, 7, sizeof big);
    CHECK_OK(omm_server_listen(server, listen_url));
    snprintf(url, sizeof url, "%s", listen_url);
    if (strncmp(url, "tcp", 3) == 0) {
        CHECK(omm_server_port(server) != 0);
        snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    }
    omm_client *client = open_client(url);
    for (unsigned i = 0; i < 20; i++) {
        lockstep(client, server, omm_bytes_str("question"), omm_bytes_str("an answer"));
    }
    lockstep(client, server, omm_bytes_of(big, sizeof big), omm_bytes_of(big, sizeof big));
    lockstep(client, server, omm_bytes_of(NULL, 0), omm_bytes_of(NULL, 0));
    omm_server_count(&at_server, server);
    omm_client_count(&at_client, client);
    CHECK_EQ(at_server.messages_in, 22);
    CHECK_EQ(at_server.bytes_in, (uint64_t)20 * (8 + 12) + sizeof big + 12 + 12);
    CHECK_EQ(at_server.bytes_out, (uint64_t)20 * (9 + 12) + sizeof big + 12 + 12);
    CHECK_EQ(at_client.bytes_out, at_server.bytes_in);
    CHECK_EQ(at_client.bytes_in, at_server.bytes_out);
    CHECK_EQ(at_client.messages_in, at_server.messages_out);
    CHECK_EQ(at_server.connections, 1);
    omm_client_close(client);
    omm_server_close(server);
}

/* Many clients in lockstep, as the simulator has them. */
static void test_many_clients(void) {
    enum { CLIENTS = 40 };
    omm_client *clients[CLIENTS];
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "inproc://many"));
    for (unsigned i = 0; i < CLIENTS; i++) clients[i] = open_client("inproc://many");
    for (unsigned turn = 0; turn < 5; turn++) {
        for (unsigned i = 0; i < CLIENTS; i++) {
            uint8_t text[2] = {(uint8_t)turn, (uint8_t)i};
            lockstep(clients[i], server, omm_bytes_of(text, 2), omm_bytes_of(text + 1, 1));
        }
    }
    for (unsigned i = 0; i < CLIENTS; i++) omm_client_close(clients[i]);
    omm_server_close(server);
}

static void test_client_states(void) {
    omm_bytes got;
    omm_exchange *exchange;
    omm_server *server = open_server(NULL);
    omm_client *client = open_client("inproc://states");
    CHECK_ERR(omm_client_receive(&got, client, 0), OMM_ERR_STATE);
    CHECK_OK(omm_client_send(client, omm_bytes_str("early"))); /* nobody listens yet */
    CHECK(omm_client_is_waiting(client));
    CHECK_ERR(omm_client_receive(&got, client, 20), OMM_ERR_TIMEOUT);
    CHECK_OK(omm_server_listen(server, "inproc://states"));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("early")));
    CHECK(strcmp(omm_exchange_peer(exchange), "local") == 0);
    CHECK_ERR(omm_client_receive(&got, client, 20), OMM_ERR_TIMEOUT);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("late"))); /* a time-out lost nothing */
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    CHECK_OK(omm_client_receive(&got, client, 0)); /* and the reply stays */
    CHECK(omm_bytes_equal(got, omm_bytes_str("late")));
    CHECK(!omm_client_is_waiting(client));
    CHECK_ERR(omm_server_receive(&exchange, &got, server, 0), OMM_ERR_TIMEOUT);
    omm_client_close(client);
    omm_server_close(server);
}

/* A request that is given up gets no reply, and the next one gets its own. */
static void test_give_up(void) {
    omm_bytes got;
    omm_exchange *first, *second;
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "inproc://give-up"));
    omm_client *client = open_client("inproc://give-up");
    CHECK_OK(omm_client_send(client, omm_bytes_str("one")));
    CHECK_OK(omm_server_receive(&first, &got, server, WAIT_MS));
    CHECK_OK(omm_client_send(client, omm_bytes_str("two")));
    CHECK_OK(omm_server_receive(&second, &got, server, WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("two")));
    CHECK_OK(omm_exchange_reply(first, omm_bytes_str("to one")));
    CHECK_OK(omm_exchange_reply(second, omm_bytes_str("to two")));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("to two")));
    omm_client_close(client);
    omm_server_close(server);
}

static void test_drop_and_close(void) {
    omm_bytes got;
    omm_exchange *exchange;
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    char url[OMM_URL_BYTES_MAX];
    unsigned port = omm_server_port(server);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    omm_client *client = open_client(url);
    CHECK_OK(omm_client_send(client, omm_bytes_str("ignored")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK(strcmp(omm_exchange_peer(exchange), "127.0.0.1") == 0);
    omm_exchange_drop(exchange);
    CHECK_ERR(omm_client_receive(&got, client, 50), OMM_ERR_TIMEOUT);
    omm_server_close(server); /* the connection is lost with the request in flight */
    CHECK_ERR(omm_client_receive(&got, client, WAIT_MS), OMM_ERR_CLOSED);
    server = open_server(NULL); /* it comes back on the same port, and so does the client */
    CHECK_OK(omm_server_listen(server, url));
    lockstep(client, server, omm_bytes_str("again"), omm_bytes_str("welcome"));
    omm_client_close(client);
    omm_server_close(server);
}

/* More requests than exchanges: the rest waits in the connections, and nothing is lost. */
static void test_bounded_queue(void) {
    enum { CLIENTS = 6 };
    omm_server_options options = omm_server_options_default();
    options.exchanges_max = 2;
    omm_server *server = open_server(&options);
    omm_client *clients[CLIENTS];
    omm_exchange *held[2], *more;
    omm_bytes got;
    CHECK_OK(omm_server_listen(server, "inproc://bounded"));
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = open_client("inproc://bounded");
        CHECK_OK(omm_client_send(clients[i], omm_bytes_str("q")));
    }
    CHECK_OK(omm_server_receive(&held[0], &got, server, WAIT_MS));
    CHECK_OK(omm_server_receive(&held[1], &got, server, WAIT_MS));
    CHECK_ERR(omm_server_receive(&more, &got, server, 50), OMM_ERR_TIMEOUT);
    for (unsigned i = 0; i < 2; i++) CHECK_OK(omm_exchange_reply(held[i], omm_bytes_str("a")));
    for (unsigned i = 2; i < CLIENTS; i++) {
        CHECK_OK(omm_server_receive(&more, &got, server, WAIT_MS));
        CHECK_OK(omm_exchange_reply(more, omm_bytes_str("a")));
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        CHECK_OK(omm_client_receive(&got, clients[i], WAIT_MS));
        omm_client_close(clients[i]);
    }
    omm_server_close(server);
}

/* inproc passes any size, so we must say no; over tcp nng closes the connection. */
static void test_oversize(void) {
    static uint8_t big[OMM_MESSAGE_BYTES_MAX + 1];
    omm_client_options loose = omm_client_options_default();
    loose.message_bytes_max = sizeof big;
    omm_client *client;
    omm_exchange *exchange;
    omm_bytes got;
    omm_wire_count count;
    char url[OMM_URL_BYTES_MAX];
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "inproc://oversize"));
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    CHECK_OK(omm_client_open(&client, "inproc://oversize", &loose));
    CHECK_OK(omm_client_send(client, omm_bytes_of(big, sizeof big)));
    CHECK_ERR(omm_server_receive(&exchange, &got, server, WAIT_MS), OMM_ERR_REFUSED_SIZE);
    CHECK_EQ(got.size, 0);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("too big")));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    omm_server_count(&count, server);
    CHECK_EQ(count.oversize, 1);
    CHECK_OK(omm_client_send(client, omm_bytes_str("q")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK_ERR(omm_exchange_reply(exchange, omm_bytes_of(big, sizeof big)), OMM_ERR_TOO_BIG);
    omm_client_close(client);

    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    CHECK_OK(omm_client_open(&client, url, &loose));
    CHECK_OK(omm_client_send(client, omm_bytes_of(big, sizeof big)));
    CHECK_ERR(omm_client_receive(&got, client, WAIT_MS), OMM_ERR_CLOSED);
    CHECK_ERR(omm_server_receive(&exchange, &got, server, 0), OMM_ERR_TIMEOUT);
    lockstep(client, server, omm_bytes_str("small"), omm_bytes_str("fine"));
    omm_client_close(client);

    omm_client *strict = open_client("inproc://oversize");
    CHECK_ERR(omm_client_send(strict, omm_bytes_of(big, sizeof big)), OMM_ERR_TOO_BIG);
    omm_client_close(strict);
    omm_server_close(server);
}

/* A reply over the client's limit is refused by the client. */
static void test_oversize_reply(void) {
    omm_client_options tight = omm_client_options_default();
    tight.message_bytes_max = 10;
    omm_client *client;
    omm_exchange *exchange;
    omm_bytes got;
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "inproc://reply"));
    CHECK_OK(omm_client_open(&client, "inproc://reply", &tight));
    CHECK_OK(omm_client_send(client, omm_bytes_str("q")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("eleven byte")));
    CHECK_ERR(omm_client_receive(&got, client, WAIT_MS), OMM_ERR_REFUSED_SIZE);
    omm_client_close(client);
    omm_server_close(server);
}

/* A server's limit is for what it is sent: its answers may have what a message may. */
static void test_small_limit(void) {
    static uint8_t big[OMM_MESSAGE_BYTES_MAX];
    omm_server_options options = omm_server_options_default();
    options.message_bytes_max = 10;
    omm_exchange *exchange;
    omm_bytes got;
    omm_server *server = open_server(&options);
    CHECK_OK(omm_server_listen(server, "inproc://small"));
    omm_client *client = open_client("inproc://small");
    lockstep(client, server, omm_bytes_str("ten bytes."), omm_bytes_of(big, sizeof big));
    CHECK_OK(omm_client_send(client, omm_bytes_str("eleven byte")));
    CHECK_ERR(omm_server_receive(&exchange, &got, server, WAIT_MS), OMM_ERR_REFUSED_SIZE);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_of(big, 11)));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    omm_client_close(client);
    omm_server_close(server);
}

static void wait_for_connections(omm_server *server, uint64_t want, uint64_t turned_away_min) {
    omm_wire_count count;
    for (unsigned i = 0; i < WAIT_MS / 10; i++) {
        omm_server_count(&count, server);
        if (count.connections == want && omm_wire_turned_away(&count) >= turned_away_min) return;
        usleep(10000);
    }
    CHECK_EQ(count.connections, want);
    CHECK(omm_wire_turned_away(&count) >= turned_away_min);
}

/* Of four strangers from one address two get in; one we vouch for makes room for another. */
static void test_connection_limits(void) {
    omm_server_options options = omm_server_options_default();
    options.untrusted_per_peer = 2;
    options.idle_ms = 0;
    omm_server *server = open_server(&options);
    omm_client *clients[3];
    omm_exchange *exchange;
    omm_bytes got;
    char url[OMM_URL_BYTES_MAX];
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    clients[0] = open_client(url);
    lockstep(clients[0], server, omm_bytes_str("a"), omm_bytes_str("b"));
    clients[1] = open_client(url);
    wait_for_connections(server, 2, 0);
    clients[2] = open_client(url);
    wait_for_connections(server, 2, 1);
    CHECK_OK(omm_client_send(clients[0], omm_bytes_str("it is me")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK_EQ(omm_exchange_owner(exchange), OMM_OWNER_NONE);
    omm_exchange_trust(exchange, 7);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("so it is")));
    CHECK_OK(omm_client_receive(&got, clients[0], WAIT_MS));
    wait_for_connections(server, 3, 1);
    CHECK_OK(omm_client_send(clients[0], omm_bytes_str("again")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK_EQ(omm_exchange_owner(exchange), 7);
    CHECK_OK(omm_exchange_hold(exchange, omm_bytes_str("nothing of this")));
    CHECK_OK(omm_exchange_hold(exchange, omm_bytes_str("the second counts")));
    omm_exchange_send(exchange);
    CHECK_OK(omm_client_receive(&got, clients[0], WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("the second counts")));
    for (unsigned i = 0; i < 3; i++) omm_client_close(clients[i]);
    wait_for_connections(server, 0, 1);
    omm_server_close(server);
}

static int tcp_socket(unsigned port, bool is_listener) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (is_listener) {
        CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        CHECK_EQ(listen(fd, 1), 0);
    } else {
        CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    }
    return fd;
}

static uint64_t milliseconds(void) {
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static unsigned port_of(int listener) {
    struct sockaddr_in bound = {0};
    socklen_t size = sizeof bound;
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&bound, &size), 0);
    return ntohs(bound.sin_port);
}

/* A connection is lost again and again: none comes in its place before the shortest wait is over, by chance or by
 * nng's own doing, for it would be given up with whatever had been asked over it; and with each loss that is twice as long,
 * up to the longest. */
static void test_wait_after_loss(void) {
    enum { LOSSES = 12, WAIT_MIN_MS = 20, WAIT_MAX_MS = 160 };
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.reconnect_min_ms = WAIT_MIN_MS;
    options.reconnect_max_ms = WAIT_MAX_MS;
    uint64_t wait_ms = WAIT_MIN_MS;
    int listener = tcp_socket(0, true);
    char url[OMM_URL_BYTES_MAX], greeting[8];
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port_of(listener));
    CHECK_OK(omm_client_open(&client, url, &options));
    uint64_t lost_ms = 0;
    for (unsigned i = 0; i <= LOSSES; i++) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(milliseconds() - lost_ms >= wait_ms / 4);
        if (i > 0 && wait_ms < WAIT_MAX_MS) wait_ms *= 2;
        CHECK_EQ(recv(fd, greeting, sizeof greeting, MSG_WAITALL), (int64_t)sizeof greeting);
        CHECK_EQ(send(fd, "\0SP\0\0\x31\0\0", 8, MSG_NOSIGNAL), 8);
        CHECK_OK(omm_client_send(client, omm_bytes_str("lost with the connection")));
        CHECK(recv(fd, greeting, 1, 0) == 1);
        lost_ms = milliseconds();
        close(fd);
    }
    omm_client_close(client);
    close(listener);
}

/* The boundary of idleness, and who is exempt. */
static void test_idle_table(void) {
    enum { NO_FILE = 1 << 20 };
    peer items[] = {{.pipe = 1, .fd = NO_FILE, .since_ms = 100},
                    {.pipe = 2, .fd = NO_FILE, .since_ms = 101},
                    {.pipe = 3, .fd = NO_FILE, .is_trusted = true},
                    {.pipe = 4, .fd = NO_FILE, .is_local = true},
                    {.pipe = 5, .fd = NO_FILE, .since_ms = 100}};
    int pipes[] = {1, 2, 3, 4, 5};
    peers table = {.items = items, .pipes = pipes, .count = 5};
    CHECK_EQ(peers_strangers(&table), 3);
    peers_sweep(&table, 50, 149);
    CHECK_EQ(table.turned[OMM_TURNED_IDLE], 0);
    peers_sweep(&table, 0, 150);
    CHECK_EQ(table.turned[OMM_TURNED_IDLE], 0);
    peers_sweep(&table, 50, 150);
    CHECK_EQ(table.turned[OMM_TURNED_IDLE], 2);
    CHECK(items[0].is_leaving && !items[1].is_leaving && items[4].is_leaving);
    peers_sweep(&table, 50, 151);
    CHECK_EQ(table.turned[OMM_TURNED_IDLE], 3);
    CHECK_EQ(peers_strangers(&table), 0);
}

static uint64_t read_time(void *ud) {
    return atomic_load((_Atomic uint64_t *)ud);
}

/* A stranger that says nothing is closed; one we know may be silent.  Time stands until both are
 * connected and one is known, however slow this machine is. */
static void test_idle(void) {
    _Atomic uint64_t time_ms = 1000;
    omm_server_options options = omm_server_options_default();
    options.clock = (omm_clock){.now_ms = read_time, .ud = &time_ms};
    omm_server *server = open_server(&options);
    omm_exchange *exchange;
    omm_bytes got;
    omm_wire_count count;
    char url[OMM_URL_BYTES_MAX];
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    omm_client *known = open_client(url);
    CHECK_OK(omm_client_send(known, omm_bytes_str("hello")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    omm_exchange_trust(exchange, 7);
    int silent = tcp_socket(omm_server_port(server), false); /* nng's client may be back at once */
    CHECK_EQ(send(silent, "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL), 8);
    wait_for_connections(server, 2, 0);
    atomic_store(&time_ms, 1000 + options.idle_ms);
    wait_for_connections(server, 1, 1);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("still here")));
    CHECK_OK(omm_client_receive(&got, known, WAIT_MS));
    omm_server_count(&count, server);
    CHECK_EQ(count.turned_away[OMM_TURNED_IDLE], 1);
    CHECK_EQ(omm_wire_turned_away(&count), 1);
    close(silent);
    omm_client_close(known);
    omm_server_close(server);
}

/* Bytes of no protocol at all: the server lives on. */
static void test_garbage(void) {
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    static const char *const texts[] = {
        "GET / HTTP/1.0\r\n\r\n",
        "\0SP\0\0\x30\0\0\xff\xff\xff\xff\xff\xff\xff\xff", /* a frame of 2^64 - 1 bytes */
        "\0SP\0\0\x30\0\0\0\0\0\0\0\0\0\2hi",               /* too short for a request id */
        "\0SP\0\0\x10\0\0\0\0\0\0\0\0\0\2hi",               /* another protocol */
    };
    static const size_t sizes[] = {18, 16, 18, 18};
    for (unsigned i = 0; i < 4; i++) {
        char back[64];
        int fd = tcp_socket(omm_server_port(server), false);
        struct timeval limit = {.tv_usec = 100000};
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
        CHECK_EQ(send(fd, texts[i], sizes[i], MSG_NOSIGNAL), (int64_t)sizes[i]);
        while (recv(fd, back, sizeof back, 0) > 0) continue;
        close(fd);
    }
    char url[OMM_URL_BYTES_MAX];
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    omm_client *client = open_client(url);
    lockstep(client, server, omm_bytes_str("fine"), omm_bytes_str("indeed"));
    omm_client_close(client);
    omm_server_close(server);
}

/* A relay that counts what passes on the socket itself, as interface counters would. */
typedef struct relay {
    int listener;
    unsigned server_port;
    uint64_t up, down;
} relay;

static bool pass_on(int from, int to, uint64_t *count) {
    char bytes[65536];
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    for (ssize_t sent = 0; sent < got;) {
        ssize_t n = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += n;
    }
    *count += (uint64_t)got;
    return true;
}

static void *run_relay(void *arg) {
    relay *r = arg;
    int client = accept(r->listener, NULL, NULL);
    int server = tcp_socket(r->server_port, false);
    CHECK(client >= 0);
    for (bool is_open = true; is_open;) {
        struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        CHECK(poll(fds, 2, -1) > 0);
        if (fds[0].revents) is_open = pass_on(client, server, &r->up);
        if (is_open && fds[1].revents) is_open = pass_on(server, client, &r->down);
    }
    close(client);
    close(server);
    return NULL;
}

/* Our count is what passes in the TCP stream, but for the 8-byte greeting of each side. */
static void test_count_on_the_socket(void) {
    static uint8_t big[200000];
    char url[OMM_URL_BYTES_MAX];
    omm_wire_count count;
    pthread_t thread;
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    relay r = {.listener = tcp_socket(0, true), .server_port = omm_server_port(server)};
    CHECK_EQ(pthread_create(&thread, NULL, run_relay, &r), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port_of(r.listener));
    omm_client *client = open_client(url);
    for (size_t n = 1; n < sizeof big; n = 7 * n + 3) {
        lockstep(client, server, omm_bytes_of(big, n), omm_bytes_of(big, n / 2));
    }
    omm_client_count(&count, client);
    omm_client_close(client);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close(r.listener);
    CHECK_EQ(r.up, count.bytes_out + 8);
    CHECK_EQ(r.down, count.bytes_in + 8);
    omm_server_close(server);
}

static atomic_int s_receivers[3]; /* their thread ids */

typedef struct receiver {
    omm_server *server;
    atomic_int *id;
} receiver;

static void *receive_forever(void *arg) {
    const receiver *r = arg;
    omm_exchange *exchange;
    omm_bytes got;
    atomic_store(r->id, (int)gettid());
    omm_err err = omm_server_receive(&exchange, &got, r->server, OMM_WAIT_FOREVER);
    return err == OMM_ERR_CLOSED ? arg : NULL;
}

/* A thread of ours sleeps, as the kernel has it. */
static bool is_asleep(int id) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgets(text, sizeof text, file) != NULL);
    CHECK_EQ(fclose(file), 0);
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") S", 3) == 0;
}

static void test_close_wakes_receivers(void) {
    pthread_t threads[3];
    receiver receivers[3];
    void *result;
    omm_server *server = open_server(NULL);
    for (unsigned i = 0; i < 3; i++) {
        receivers[i] = (receiver){server, &s_receivers[i]};
        CHECK_EQ(pthread_create(&threads[i], NULL, receive_forever, &receivers[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) /* in the wait: who comes after the end would find no server */
        while (!atomic_load(&s_receivers[i]) || !is_asleep(atomic_load(&s_receivers[i])))
            usleep(1000);
    omm_server_close(server);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(pthread_join(threads[i], &result), 0);
        CHECK(result != NULL);
    }
}

static void *serve_five(void *arg) {
    omm_server *server = arg;
    for (unsigned i = 0; i < 50; i++) {
        omm_exchange *exchange;
        omm_bytes got;
        CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
        CHECK_OK(omm_exchange_reply(exchange, got));
    }
    return NULL;
}

static void *ask_ten(void *arg) {
    omm_client *client = open_client(arg);
    for (unsigned i = 0; i < 10; i++) {
        omm_bytes got;
        CHECK_OK(omm_client_send(client, omm_bytes_of(&i, sizeof i)));
        CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
        CHECK(omm_bytes_equal(got, omm_bytes_of(&i, sizeof i)));
    }
    omm_client_close(client);
    return NULL;
}

/* Nothing comes: a new connection, and what was in flight is asked again over it, however soon.  Every answer begins the waits between
 * connections again: else the last ones here would take minutes. */
static void test_renew(void) {
    enum { RENEWALS = 20 };
    omm_exchange *first, *again;
    omm_bytes got;
    char url[OMM_URL_BYTES_MAX];
    omm_server_options server_options = omm_server_options_default();
    omm_client_options options = omm_client_options_default();
    omm_client *client;
    server_options.idle_ms = 0; /* nobody but the client ends a connection */
    options.reconnect_min_ms = 1;
    options.reconnect_max_ms = 1 << 24;
    omm_server *server = open_server(&server_options);
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(server));
    CHECK_OK(omm_client_open(&client, url, &options));
    for (unsigned i = 0; i < RENEWALS; i++) {
        CHECK_OK(omm_client_send(client, omm_bytes_str("lost")));
        CHECK_OK(omm_server_receive(&first, &got, server, WAIT_MS));
        omm_client_renew(client);
        if (i % 2 == 0) CHECK_ERR(omm_client_receive(&got, client, WAIT_MS), OMM_ERR_CLOSED);
        CHECK_OK(omm_client_send(client, omm_bytes_str("lost")));
        CHECK_OK(omm_server_receive(&again, &got, server, WAIT_MS));
        CHECK(omm_bytes_equal(got, omm_bytes_str("lost")));
        CHECK(omm_exchange_connection(first) != omm_exchange_connection(again));
        omm_exchange_drop(first);
        CHECK_OK(omm_exchange_reply(again, omm_bytes_str("found")));
        CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
        CHECK(omm_bytes_equal(got, omm_bytes_str("found")));
    }
    omm_client_close(client);
    omm_server_close(server);
}

/* Several threads answer several clients, as the service does. */
static void test_threads(void) {
    pthread_t servers[2] = {0}, clients[10] = {0};
    char url[] = "inproc://threads";
    omm_server *server = open_server(NULL);
    CHECK_OK(omm_server_listen(server, url));
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&servers[i], NULL, serve_five, server), 0);
    }
    for (unsigned i = 0; i < 10; i++) {
        CHECK_EQ(pthread_create(&clients[i], NULL, ask_ten, url), 0);
    }
    for (unsigned i = 0; i < 10; i++) CHECK_EQ(pthread_join(clients[i], NULL), 0);
    for (unsigned i = 0; i < 2; i++) CHECK_EQ(pthread_join(servers[i], NULL), 0);
    omm_server_close(server);
}

static void test_bad_urls(void) {
    static const char *const bad[] = {"",
                                      "http://x",
                                      "tcp://",
                                      "127.0.0.1:5",
                                      "inproc:/x",
                                      "tcp://127.0.0.1",
                                      "tls+tcp://127.0.0.1",
                                      "tcp://127.0.0.1:",
                                      "tcp://127.0.0.1:65536",
                                      "tcp://127.0.0.1:4711x",
                                      "tcp://[::1]",
                                      "tcp://[::1"};
    omm_server *server = open_server(NULL);
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_ERR(omm_server_listen(server, bad[i]), OMM_ERR_CONFIG);
        CHECK_ERR(omm_client_open(&client, bad[i], &options), OMM_ERR_CONFIG);
        CHECK(strncmp(bad[i], "tcp://[", 7) != 0 || strstr(omm_err_sentence(), "has no port"));
    }
    CHECK_OK(omm_server_listen(server, "inproc://taken"));
    CHECK_ERR(omm_server_listen(server, "inproc://taken"), OMM_ERR_STATE);
    omm_server_close(server);
}

static void test_no_memory(void) {
    size_t live = omm_mem_live();
    omm_server *server;
    omm_client *client;
    omm_server_options options = omm_server_options_default();
    omm_client_options client_options = omm_client_options_default();
    for (size_t nth = 1; nth <= 2; nth++) {
        omm_mem_fail_nth(nth);
        CHECK_ERR(omm_server_open(&server, &options), OMM_ERR_NOMEM);
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_client_open(&client, "inproc://none", &client_options), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_EQ(omm_mem_live(), live);
    omm_server_close(NULL);
    omm_client_close(NULL);
}

int main(void) {
    char ipc[OMM_URL_BYTES_MAX], dir[] = "/tmp/omm_transport_test_XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    snprintf(ipc, sizeof ipc, "ipc://%s/socket", dir);
    test_lockstep("inproc://lockstep");
    test_lockstep(ipc);
    test_lockstep("tcp://127.0.0.1:0");
    test_many_clients();
    test_client_states();
    test_give_up();
    test_renew();
    test_drop_and_close();
    test_bounded_queue();
    test_oversize();
    test_oversize_reply();
    test_small_limit();
    test_connection_limits();
    test_wait_after_loss();
    test_idle_table();
    test_idle();
    test_garbage();
    test_count_on_the_socket();
    test_close_wakes_receivers();
    test_threads();
    test_bad_urls();
    test_no_memory();
    CHECK_EQ(omm_mem_live(), 0);
    rmdir(dir);
    return 0;
}
