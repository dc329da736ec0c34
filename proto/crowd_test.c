/* Crowds of connections that nobody vouched for: they are counted from accept(2) on, by address and in all, make room for
 * others, leave descriptors, and are turned away by a reason. */
#include "omm/transport.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000u
#define HELLO "\0SP\0\0\x30\0\0"
#define HELLO_BYTES 8u

static _Atomic uint64_t s_time_ms = 1000;

static uint64_t read_time(void *ud) {
    (void)ud;
    return atomic_load(&s_time_ms);
}

static omm_server_options with_limits(unsigned all, unsigned per_address) {
    omm_server_options options = omm_server_options_default();
    options.untrusted_max = all;
    options.untrusted_per_peer = per_address;
    options.clock = (omm_clock){.now_ms = read_time};
    return options;
}

static omm_server *open_server(char url[OMM_URL_BYTES_MAX], const omm_server_options *options) {
    omm_server *server;
    CHECK_OK(omm_server_open(&server, options));
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    snprintf(url, OMM_URL_BYTES_MAX, "tcp://127.0.0.1:%u", omm_server_port(server));
    return server;
}

static omm_client *open_client(const char *url) {
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.reconnect_min_ms = 10;
    CHECK_OK(omm_client_open(&client, url, &options));
    return client;
}

/* The program's word about the connection of a question. */
typedef enum word { SAY_NOTHING, SAY_STAY, SAY_TRUST } word;

static void lockstep(omm_client *client, omm_server *server, word say) {
    omm_exchange *exchange;
    omm_bytes got;
    CHECK_OK(omm_client_send(client, omm_bytes_str("q")));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("q")));
    if (say == SAY_STAY) omm_exchange_stay(exchange);
    if (say == SAY_TRUST) omm_exchange_trust(exchange, 1);
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("a")));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
}

static struct sockaddr_storage address_of(const char *text, unsigned port) {
    struct sockaddr_storage out = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out;
    const bool is_six = strchr(text, ':') != NULL;
    out.ss_family = is_six ? AF_INET6 : AF_INET;
    if (is_six) six->sin6_port = htons((uint16_t)port);
    if (!is_six) four->sin_port = htons((uint16_t)port);
    CHECK_EQ(
        inet_pton(out.ss_family, text, is_six ? (void *)&six->sin6_addr : (void *)&four->sin_addr),
        1);
    return out;
}

/* 127.0.0.`from`, to the server. */
static int connect_from(unsigned from, const omm_server *server) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + from)};
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)omm_server_port(server)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

static omm_wire_count counts(omm_server *server) {
    omm_wire_count count;
    omm_server_count(&count, server);
    return count;
}

static void wait_turned(omm_server *server, omm_turned reason, uint64_t want) {
    for (unsigned i = 0; i < WAIT_MS / 10 && counts(server).turned_away[reason] < want; i++)
        usleep(10000);
    CHECK_EQ(counts(server).turned_away[reason], want);
}

/* Sockets that say nothing, fifty of one address: eight stay. */
static void test_silent(void) {
    enum { SILENT = 50 };
    char url[OMM_URL_BYTES_MAX];
    int fds[SILENT];
    const omm_server_options options = with_limits(256, 8);
    omm_server *server = open_server(url, &options);
    for (unsigned i = 0; i < SILENT; i++) fds[i] = connect_from(7, server);
    wait_turned(server, OMM_TURNED_ADDRESS, SILENT - 8);
    CHECK_EQ(counts(server).strangers, 8);
    CHECK_EQ(counts(server).connections, 0);
    for (unsigned i = 8; i < SILENT; i++) { /* the surplus sees its end at once */
        struct pollfd end = {.fd = fds[i], .events = POLLIN};
        uint8_t greeting[8];
        CHECK_EQ(poll(&end, 1, (int)WAIT_MS), 1);
        CHECK(recv(fds[i], greeting, sizeof greeting, 0) <= 0); /* and nobody's word before it */
    }
    omm_client *client = open_client(url);
    lockstep(client, server, SAY_TRUST);
    for (unsigned i = 0; i < SILENT; i++) close(fds[i]);
    wait_turned(server, OMM_TURNED_NO_HELLO, 8); /* gone, and forgotten */
    CHECK_EQ(counts(server).strangers, 0);
    CHECK_EQ(omm_wire_turned_away(&(omm_wire_count){.turned_away = {1, 2, 3}}), 6);
    omm_client_close(client);
    omm_server_close(server);
}

/* Every place is taken by crowds, and they come again: who has proved itself stays, and who is alone gets in. */
static void test_crowds(void) {
    enum { ALL = 16, EACH = 8, WAVES = 6 };
    char url[OMM_URL_BYTES_MAX];
    int fds[WAVES][EACH];
    const omm_server_options options = with_limits(ALL, EACH);
    omm_server *server = open_server(url, &options);
    omm_client *first = open_client(url);
    lockstep(first, server, SAY_TRUST);
    for (unsigned wave = 0; wave < WAVES; wave++) {
        for (unsigned i = 0; i < EACH; i++) {
            fds[wave][i] = connect_from(10 + wave, server);
            if (i % 2) CHECK_EQ(send(fds[wave][i], HELLO, HELLO_BYTES, MSG_NOSIGNAL), 8);
        }
        omm_client *alone = open_client(url);
        lockstep(alone, server, SAY_NOTHING);
        CHECK(counts(server).strangers <= ALL);
        lockstep(first, server, SAY_NOTHING);
        omm_client_close(alone);
    }
    CHECK(counts(server).turned_away[OMM_TURNED_STRANGERS] >= (uint64_t)EACH * (WAVES - 2));
    CHECK_EQ(counts(server).turned_ago_ms[OMM_TURNED_STRANGERS], 0);
    CHECK_EQ(counts(server).turned_away[OMM_TURNED_ADDRESS], 0);
    for (unsigned i = 0; i < WAVES * EACH; i++) close(fds[i / EACH][i % EACH]);
    omm_client_close(first);
    omm_server_close(server);
}

/* Descriptors above a limit are not for connections: files can be opened, whatever comes. */
static void test_descriptors(void) {
    enum { MANY = 120, LEFT = 60 };
    char url[OMM_URL_BYTES_MAX];
    int fds[MANY];
    omm_server_options options = with_limits(10000, 10000);
    const int lowest = dup(0);
    options.descriptors_max = (unsigned)lowest + LEFT;
    close(lowest);
    omm_server *server = open_server(url, &options);
    for (unsigned i = 0; i < MANY; i++) fds[i] = connect_from(7, server);
    for (unsigned i = 0;
         i < WAIT_MS / 10 && counts(server).turned_away[OMM_TURNED_DESCRIPTORS] == 0; i++)
        usleep(10000);
    CHECK(counts(server).turned_away[OMM_TURNED_DESCRIPTORS] > 0);
    CHECK(counts(server).strangers < LEFT);
    for (unsigned i = 0; i < MANY; i++) close(fds[i]);
    omm_client *client = open_client(url);
    lockstep(client, server, SAY_NOTHING);
    omm_client_close(client);
    omm_server_close(server);
}

/* The first descriptor that is not for connections, and the last that is. */
static void test_descriptor_limit(void) {
    peers table = {0};
    omm_server_options options = with_limits(10, 10);
    const struct sockaddr_storage from = address_of("203.0.113.9", 1);
    options.descriptors_max = 1 << 20;
    CHECK(!peers_arrive(&table, 1 << 20, &from, &options, 1));
    CHECK_EQ(table.turned[OMM_TURNED_DESCRIPTORS], 1);
    CHECK(peers_arrive(&table, (1 << 20) - 1, &from, &options, 1));
    CHECK_EQ(table.turned[OMM_TURNED_DESCRIPTORS], 1);
    peers_fini(&table);
}

/* Words that prove nothing keep no place; what counts does. */
static void test_talk(void) {
    char url[OMM_URL_BYTES_MAX];
    const omm_server_options options = with_limits(256, 8);
    omm_server *server = open_server(url, &options);
    omm_client *idle = open_client(url), *busy = open_client(url), *known = open_client(url);
    for (unsigned second = 0; second < 30; second += 10) {
        lockstep(idle, server, SAY_NOTHING);
        lockstep(busy, server, SAY_STAY);
        lockstep(known, server, SAY_TRUST);
        atomic_fetch_add(&s_time_ms, 10000);
    }
    wait_turned(server, OMM_TURNED_IDLE, 1);
    omm_bytes got;
    CHECK_OK(omm_client_send(busy, omm_bytes_str("q"))); /* these two are still there */
    CHECK_OK(omm_client_send(known, omm_bytes_str("q")));
    for (unsigned i = 0; i < 2; i++) {
        omm_exchange *exchange;
        CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
        CHECK_OK(omm_exchange_reply(exchange, omm_bytes_str("a")));
    }
    CHECK_OK(omm_client_receive(&got, busy, WAIT_MS));
    CHECK_OK(omm_client_receive(&got, known, WAIT_MS));
    CHECK_EQ(counts(server).turned_away[OMM_TURNED_IDLE], 1);
    omm_client_close(idle);
    omm_client_close(busy);
    omm_client_close(known);
    omm_server_close(server);
}

static void wait_pipes(omm_server *server, uint64_t want) {
    for (unsigned i = 0; i < WAIT_MS / 10 && counts(server).connections != want; i++) usleep(10000);
    CHECK_EQ(counts(server).connections, want);
}

static void send_and_wait(omm_server *server, const void *bytes, size_t size, omm_turned reason,
                          uint64_t want) {
    wait_pipes(server, 0);
    int fd = connect_from(7, server);
    CHECK_EQ(send(fd, bytes, size, MSG_NOSIGNAL), (int64_t)size);
    if (reason == OMM_TURNED_NO_MESSAGE) { /* its greeting first: then it is a pipe */
        char hello[HELLO_BYTES];
        CHECK_EQ(recv(fd, hello, sizeof hello, MSG_WAITALL), (int64_t)sizeof hello);
        wait_pipes(server, 1);
        close(fd);
    }
    wait_turned(server, reason, want);
    if (reason != OMM_TURNED_NO_MESSAGE) close(fd);
}

/* Whatever it is that nng closes by itself, it is counted. */
static void test_reasons(void) {
    char url[OMM_URL_BYTES_MAX];
    const omm_server_options options = with_limits(256, 8);
    omm_server *server = open_server(url, &options);
    send_and_wait(server, "GET / HTTP/1.0\r\n\r\n", 18, OMM_TURNED_NO_HELLO, 1);
    send_and_wait(server, HELLO "\xff\xff\xff\xff\xff\xff\xff\xff", 16, OMM_TURNED_FRAME, 1);
    send_and_wait(server, HELLO "\0\0\0\0\1\0\0\0", 16, OMM_TURNED_FRAME, 2);
    send_and_wait(server, HELLO "\0\0\0\0\0\0\0\2hi", 18, OMM_TURNED_FRAME, 3);
    send_and_wait(server, HELLO "\0\0\0\0\0\0\0\7hal", 19, OMM_TURNED_NO_MESSAGE, 1);
    const omm_wire_count count = counts(server);
    CHECK_EQ(omm_wire_turned_away(&count), 5);
    for (int i = 0; i < OMM_TURNED_REASONS; i++) {
        CHECK(strlen(omm_turned_name((omm_turned)i)) > 3);
        CHECK((count.turned_ago_ms[i] == UINT64_MAX) == (count.turned_away[i] == 0));
    }
    omm_server_close(server);
}

/* An address and where it belongs. */
static void check_network(const char *text, const char *address, const char *network) {
    peer p = {0};
    char found[OMM_PEER_SIZE];
    const struct sockaddr_storage from = address_of(text, 5);
    peers_name(&p, &from);
    peers_network(found, &p);
    CHECK(!p.is_local);
    CHECK(strcmp(p.address, address) == 0);
    CHECK(strcmp(found, network) == 0);
}

static void check_pipes(const peers *table) {
    for (size_t i = 0; i < table->count; i++) CHECK_EQ(table->pipes[i], table->items[i].pipe);
}

/* Its hello, too: a socket that is not there is forgotten before. */
static bool arrive(peers *table, const char *text, unsigned port,
                   const omm_server_options *options) {
    const struct sockaddr_storage from = address_of(text, port);
    const bool is_in = peers_arrive(table, 1 << 20, &from, options, 1);
    check_pipes(table);
    if (is_in) table->items[table->count - 1].pipe = table->pipes[table->count - 1] = (int)port;
    return is_in;
}

static void test_networks(void) {
    check_network("203.0.113.9", "203.0.113.9", "203.0.113.9");
    check_network("::ffff:203.0.113.9", "203.0.113.9", "203.0.113.9");
    check_network("2001:db8:1:2:3:4:5:6", "[2001:db8:1:2:3:4:5:6]", "[2001:db8:1:2::]/64");
    peers table = {0};
    const omm_server_options options = with_limits(6, 2);
    CHECK(arrive(&table, "2001:db8::1", 1, &options));
    CHECK(arrive(&table, "2001:db8::2:1:1", 2, &options));
    CHECK(!arrive(&table, "2001:db8::3:1:1", 3, &options)); /* the same /64 */
    CHECK(arrive(&table, "2001:db8:0:1::1", 4, &options));
    CHECK(arrive(&table, "203.0.113.9", 5, &options));
    CHECK(arrive(&table, "::ffff:203.0.113.9", 6, &options));
    CHECK(!arrive(&table, "203.0.113.9", 7, &options));
    CHECK_EQ(table.turned[OMM_TURNED_ADDRESS], 2);
    CHECK(arrive(&table, "203.0.113.10", 8, &options));
    CHECK_EQ(peers_strangers(&table), 6);
    table.items[1].since_ms = 2;                        /* it came after the other pair's second */
    CHECK(arrive(&table, "203.0.113.11", 9, &options)); /* full: the oldest of a pair goes */
    CHECK(table.items[4].is_leaving && !table.items[1].is_leaving);
    CHECK(arrive(&table, "203.0.113.12", 10, &options));
    CHECK(table.items[1].is_leaving);
    CHECK_EQ(table.turned[OMM_TURNED_STRANGERS], 2);
    CHECK_EQ(peers_strangers(&table), 6);
    CHECK(!arrive(&table, "203.0.113.12", 11, &options)); /* no pair is left that is larger */
    CHECK_EQ(table.turned[OMM_TURNED_STRANGERS], 3);
    peers_fini(&table);
}

/* The same port again, and nothing had come from the first: that one is over, and has no place any more. */
static void test_same_port(void) {
    peers table = {0};
    const omm_server_options options = with_limits(6, 6);
    const struct sockaddr_storage from = address_of("203.0.113.9", 5);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(peers_arrive(&table, 1 << 20, &from, &options, 1));
        CHECK_EQ(table.count, 1);
    }
    peers_fini(&table);
}

/* Who comes and who goes, in any order, is found by its pipe and by no other. */
static void test_pipes(void) {
    enum { ALL = 40, SOCKET = 1000 };
    peers table = {0};
    const omm_server_options options = with_limits(ALL, ALL);
    for (unsigned id = 1; id <= ALL; id++) {
        CHECK(peers_add(&table, (nng_pipe){.id = id}, &options, 1)); /* local: of no server */
        check_pipes(&table);
    }
    for (unsigned id = 1; id <= ALL; id += 3) {
        peers_remove(&table, (nng_pipe){.id = id}, 1);
        check_pipes(&table);
    }
    const size_t left = table.count;
    CHECK_EQ(left, ALL - (ALL + 2) / 3);
    for (unsigned i = 0; table.count < ALL; i++)
        CHECK(arrive(&table, "203.0.113.9", SOCKET + i, &options)); /* where others were */
    for (unsigned id = 1; id <= ALL; id++) {
        const peer *found = peers_find(&table, (nng_pipe){.id = id});
        CHECK((found != NULL) == (id % 3 != 1));
        CHECK(!found || found->pipe == (int)id);
    }
    for (unsigned i = 0; i < ALL - left; i++) {
        const peer *found = peers_find(&table, (nng_pipe){.id = SOCKET + i});
        CHECK(found && found->port == htons((uint16_t)(SOCKET + i)));
    }
    peers_fini(&table);
}

/* A table that cannot grow refuses who comes, and stays as it was. */
static void test_no_memory(void) {
    enum { FULL = 16 };
    const omm_server_options options = with_limits(2 * FULL, 2 * FULL);
    const struct sockaddr_storage from = address_of("203.0.113.9", 1);
    for (unsigned count = 0; count <= FULL; count += FULL)
        for (size_t nth = 1; nth <= 2; nth++) {
            peers table = {0};
            for (unsigned id = 1; id <= count; id++)
                CHECK(peers_add(&table, (nng_pipe){.id = id}, &options, 1));
            omm_mem_fail_nth(nth);
            CHECK(!peers_arrive(&table, 1 << 20, &from, &options, 1));
            omm_mem_fail_nth(nth);
            CHECK(!peers_add(&table, (nng_pipe){.id = 99}, &options, 1));
            omm_mem_fail_nth(0);
            CHECK_EQ(table.count, count);
            check_pipes(&table);
            CHECK(!peers_find(&table, (nng_pipe){.id = 99}));
            CHECK(peers_add(&table, (nng_pipe){.id = 99}, &options, 1));
            CHECK(arrive(&table, "203.0.113.9", 100, &options));
            CHECK_EQ(table.count, count + 2);
            peers_fini(&table);
        }
}

/* A node's connections are bounded, too: the one that has been quiet for longest goes. */
static void test_owners(void) {
    peer items[PEERS_PER_OWNER + 2] = {{0}};
    int pipes[PEERS_PER_OWNER + 2];
    peers table = {.items = items, .pipes = pipes, .count = PEERS_PER_OWNER + 2};
    for (unsigned i = 0; i < table.count; i++) {
        pipes[i] = (int)i + 1;
        items[i] = (peer){.pipe = pipes[i], .fd = 1 << 20, .owner = OMM_OWNER_NONE};
    }
    for (unsigned i = 0; i < PEERS_PER_OWNER; i++)
        peers_trust(&table, (nng_pipe){.id = i + 1}, 4, 100 + i);
    peers_trust(&table, (nng_pipe){.id = 1}, 4, 200);
    peers_trust(&table, (nng_pipe){.id = PEERS_PER_OWNER + 1}, 5, 300);
    CHECK_EQ(table.turned[OMM_TURNED_NODE], 0);
    peers_trust(&table, (nng_pipe){.id = PEERS_PER_OWNER + 2}, 4, 400);
    CHECK_EQ(table.turned[OMM_TURNED_NODE], 1);
    CHECK(items[1].is_leaving && !items[0].is_leaving);
    CHECK_EQ(peers_strangers(&table), 0);
    peers_trust(&table, (nng_pipe){.id = 1}, 5, 500); /* another key over the same connection */
    CHECK_EQ(items[0].owner, 5);
    CHECK_EQ(table.turned[OMM_TURNED_NODE], 1);
}

/* Turned away in the middle of a flood: not before it is quiet, or has been loud for long enough, is it shut. */
static void test_loud(void) {
    enum { TURNED_MS = 50000 };
    peer items[3] = {{0}};
    int pipes[3] = {1, 2, 3};
    peers table = {.items = items, .pipes = pipes, .count = 3};
    items[2] = (peer){.pipe = 3, .fd = 1 << 20, .is_trusted = true}; /* not turned away at all */
    for (unsigned i = 0; i < 2; i++) {
        items[i] = (peer){.pipe = pipes[i], .fd = 1 << 20, .owner = OMM_OWNER_NONE};
        items[i].has_spoken = true;
        items[i].heard_ms = TURNED_MS;
        CHECK(peers_end(&table, &items[i], OMM_TURNED_AHEAD, TURNED_MS));
        CHECK(items[i].is_leaving && !items[i].is_shut);
    }
    peer *quiet = &items[0], *loud = &items[1];
    const uint64_t end_ms = TURNED_MS + PEERS_LOUD_MS;
    peers_sweep(&table, 1, TURNED_MS + PEERS_QUIET_MS - 1);
    CHECK(!quiet->is_shut);
    for (uint64_t t = TURNED_MS + PEERS_QUIET_MS; t < end_ms; t += PEERS_QUIET_MS) {
        loud->heard_ms = t;
        peers_sweep(&table, 1, t);
        CHECK(quiet->is_shut && !loud->is_shut);
    }
    loud->heard_ms = end_ms - 1;
    peers_sweep(&table, 1, end_ms - 1);
    CHECK(!loud->is_shut);
    loud->heard_ms = end_ms;
    peers_sweep(&table, 1, end_ms);
    CHECK(loud->is_shut);
    CHECK_EQ(peers_stuck(&table, TURNED_MS + PEERS_STUCK_MS - 1), 0); /* and if it is there still */
    CHECK_EQ(peers_stuck(&table, TURNED_MS + PEERS_STUCK_MS), 2);
}

/* Until so many messages have come in, one of ours each time that none does. */
static void speak_until(omm_server *server, int fd, uint64_t messages) {
    const uint8_t frame[] = {0, 0, 0, 0, 0, 0, 0, 5, 0x80, 0, 0, 1, 'q'};
    for (unsigned i = 0; i < WAIT_MS / 10 && counts(server).messages_in < messages; i++) {
        CHECK_EQ(send(fd, frame, sizeof frame, MSG_NOSIGNAL), (int64_t)sizeof frame);
        usleep(10000);
    }
    CHECK(counts(server).messages_in >= messages);
}

/* One that asks and asks and waits for no answer is not listened to, and it is closed though it never stops. */
static void test_never_quiet(void) {
    enum { STEP_MS = PEERS_QUIET_MS / 2 };
    char url[OMM_URL_BYTES_MAX];
    const omm_server_options options = with_limits(256, 8);
    omm_server *server = open_server(url, &options);
    const int fd = connect_from(7, server);
    CHECK_EQ(send(fd, HELLO, HELLO_BYTES, MSG_NOSIGNAL), (int64_t)HELLO_BYTES);
    speak_until(server, fd, 3);
    wait_turned(server, OMM_TURNED_AHEAD, 1);
    omm_exchange *first;
    omm_bytes got;
    CHECK_OK(omm_server_receive(&first, &got, server, WAIT_MS));
    CHECK_OK(omm_exchange_reply(first, omm_bytes_str("to nobody")));
    CHECK_EQ(counts(server).messages_out, 0); /* nothing goes out while nng ends it */
    for (unsigned ms = 0; ms < PEERS_LOUD_MS; ms += STEP_MS) {
        speak_until(server, fd, counts(server).messages_in + 2);
        CHECK_EQ(counts(server).connections, 1); /* nng must not end it now */
        atomic_fetch_add(&s_time_ms, STEP_MS);
    }
    const uint8_t frame[] = {0, 0, 0, 0, 0, 0, 0, 5, 0x80, 0, 0, 1, 'q'};
    for (unsigned i = 0; i < WAIT_MS / 10 && counts(server).connections > 0; i++) {
        (void)!send(fd, frame, sizeof frame, MSG_NOSIGNAL);
        usleep(10000);
    }
    CHECK_EQ(counts(server).connections, 0);
    CHECK_EQ(counts(server).queued, 0); /* nothing after its first question */
    close(fd);
    omm_server_close(server);
}

int main(void) {
    test_networks();
    test_same_port();
    test_pipes();
    test_no_memory();
    test_owners();
    test_silent();
    test_crowds();
    test_descriptors();
    test_descriptor_limit();
    test_talk();
    test_loud();
    test_never_quiet();
    test_reasons();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
