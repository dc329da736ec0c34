/* The places of the page's server: so many visitors at a time, so many of an address, and each for so long. */
#include "http.h"

#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm_test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 60000
#define SOON_MS 500       /* several looks of the server's, which it would answer in */
#define VISIT_MS 1000000u /* of the test's clock; what the library itself would close is far away */
#define QUESTION "GET /x HTTP/1.0\r\n\r\n"

static _Atomic uint64_t s_time_ms = 1000;

static uint64_t read_time(void *ud) {
    (void)ud;
    return atomic_load(&s_time_ms);
}

static http_server *open_server(http_options *o) {
    static const http_text texts[] = {
        {.path = "/x", .type = "text/plain", .fixed = {(const uint8_t *)"here", 4}}, {0}};
    http_server *server;
    *o = http_options_default();
    o->place.address = "127.0.0.1:0";
    o->texts = texts;
    o->clock.now_ms = read_time;
    o->connection_ms = VISIT_MS;
    CHECK_OK(http_open(&server, o));
    return server;
}

/* From 127.0.0.`from`, with the first bytes of a request. */
static int visit(unsigned from, const http_server *server, const char *words) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + from)};
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)http_port(server)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
    (void)!send(fd, words, strlen(words), MSG_NOSIGNAL);
    return fd;
}

typedef enum end { END_ANSWERED, END_CLOSED, END_NONE } end;

/* What comes within so long; END_CLOSED: its end and no answer before it. */
static end end_of(int fd, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char text[4096] = "";
    if (poll(&p, 1, wait_ms) != 1) return END_NONE;
    (void)!recv(fd, text, sizeof text - 1, MSG_WAITALL);
    return strstr(text, "\r\n\r\nhere") ? END_ANSWERED : END_CLOSED;
}

static void ask(unsigned from, const http_server *server, end want) {
    const int fd = visit(from, server, QUESTION);
    CHECK_EQ(end_of(fd, WAIT_MS), want);
    close(fd);
}

/* Half a request each, as many of an address as it may have. */
static void visit_all(int *fds, unsigned count, const http_server *server, unsigned per_address) {
    for (unsigned i = 0; i < count; i++) fds[i] = visit(2 + i / per_address, server, "GET /x");
}

/* Sixteen of one address, and no more; the others of that address are closed at once. */
static void test_address(void) {
    http_options o;
    http_server *server = open_server(&o);
    int fds[64];
    const unsigned most = o.connections_per_address;
    CHECK(most < o.connections_max && most <= 64);
    visit_all(fds, most - 1, server, most);
    ask(2, server, END_ANSWERED);
    fds[most - 1] = visit(2, server, "GET /x");
    ask(2, server, END_CLOSED);
    ask(3, server, END_ANSWERED);
    for (unsigned i = 0; i < most; i++) close(fds[i]);
    http_close(server);
}

/* Sixty-four of all; who comes then waits for a place, which is free when one of them has had its time. */
static void test_all(void) {
    http_options o;
    http_server *server = open_server(&o);
    int fds[64];
    CHECK_EQ(o.connections_max, 64);
    CHECK_EQ(http_options_default().connection_ms, 10000);
    visit_all(fds, 63, server, o.connections_per_address);
    ask(200, server, END_ANSWERED);
    fds[63] = visit(200, server, "GET /x");
    const int waits = visit(201, server, QUESTION);
    CHECK_EQ(end_of(waits, SOON_MS), END_NONE);
    atomic_fetch_add(&s_time_ms, o.connection_ms - 1);
    CHECK_EQ(end_of(waits, SOON_MS), END_NONE);
    for (unsigned i = 0; i < 64; i++) CHECK_EQ(end_of(fds[i], 0), END_NONE);
    atomic_fetch_add(&s_time_ms, 1);
    CHECK_EQ(end_of(waits, WAIT_MS), END_ANSWERED);
    for (unsigned i = 0; i < 64; i++) CHECK_EQ(end_of(fds[i], WAIT_MS), END_CLOSED);
    for (unsigned i = 0; i < 64; i++) close(fds[i]);
    close(waits);
    http_close(server);
}

/* A place is given back with its connection: whoever comes after many others has as long as they had, and no longer. */
static void test_places(void) {
    http_options o;
    http_server *server = open_server(&o);
    const int stays = visit(2, server, "GET /x");
    for (unsigned i = 0; i < 2 * o.connections_max; i++) ask(3, server, END_ANSWERED);
    atomic_fetch_add(&s_time_ms, o.connection_ms - 1);
    const int last = visit(4, server, "GET /x");
    ask(5, server, END_ANSWERED); /* so it is in, too */
    CHECK_EQ(end_of(stays, 0), END_NONE);
    atomic_fetch_add(&s_time_ms, 1);
    CHECK_EQ(end_of(stays, WAIT_MS), END_CLOSED);
    CHECK_EQ(end_of(last, 0), END_NONE);
    atomic_fetch_add(&s_time_ms, o.connection_ms - 1);
    CHECK_EQ(end_of(last, WAIT_MS), END_CLOSED);
    close(stays);
    close(last);
    http_close(server);
}

/* Where another one listens there is no server, and nothing of it is left. */
static void test_taken(void) {
    http_options o;
    http_server *server = open_server(&o), *second = NULL;
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", http_port(server));
    http_options other = o;
    other.place.address = address;
    CHECK_ERR(http_open(&second, &other), OMM_ERR_STATE);
    CHECK(!second);
    http_close(server);
}

static _Atomic unsigned s_made;
static atomic_bool s_fails, s_is_sick;

static omm_err make_text(void *ud, omm_buf *out, unsigned *code) {
    (void)ud;
    if (atomic_load(&s_fails)) return omm_raise(OMM_ERR_NOMEM, "a text");
    *code = atomic_load(&s_is_sick) ? 503 : 200;
    return omm_buf_printf(out, "here %u", atomic_fetch_add(&s_made, 1) + 1);
}

/* Who asks all the time costs a text in so long and no more, and nobody changes anything. */
static void test_fresh(void) {
    static const http_text texts[] = {{.path = "/x", .type = "text/plain", .make = make_text}, {0}};
    http_options o = http_options_default();
    http_server *server;
    o.place.address = "127.0.0.1:0";
    o.texts = texts;
    o.clock.now_ms = read_time;
    o.connection_ms = VISIT_MS;
    CHECK_OK(http_open(&server, &o));
    for (unsigned i = 0; i < 3; i++) ask(2, server, END_ANSWERED);
    CHECK_EQ(atomic_load(&s_made), 1);
    atomic_fetch_add(&s_time_ms, HTTP_FRESH_MS);
    ask(2, server, END_ANSWERED);
    CHECK_EQ(atomic_load(&s_made), 2);
    const int fd = visit(2, server, "POST /x HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    char text[4096] = "";
    CHECK(recv(fd, text, sizeof text - 1, MSG_WAITALL) > 0);
    CHECK(strstr(text, " 405 ") && strstr(text, "Allow: GET, HEAD"));
    close(fd);
    for (unsigned i = 0; i < 2; i++) { /* an old text is not shown as if it were of now */
        atomic_store(&s_fails, i == 0);
        atomic_fetch_add(&s_time_ms, HTTP_FRESH_MS);
        const int asked = visit(2, server, QUESTION);
        memset(text, 0, sizeof text);
        CHECK(recv(asked, text, sizeof text - 1, MSG_WAITALL) > 0);
        CHECK(strstr(text, i == 0 ? " 500 " : " 200 "));
        CHECK(strstr(text, i == 0 ? "failed; the log says why" : "\r\n\r\nhere 3"));
        close(asked);
    }
    for (unsigned i = 0; i < 3; i++) { /* its code is the text's, from the store too */
        atomic_store(&s_is_sick, i < 2);
        if (i != 1) atomic_fetch_add(&s_time_ms, HTTP_FRESH_MS);
        const int asked = visit(2, server, QUESTION);
        memset(text, 0, sizeof text);
        CHECK(recv(asked, text, sizeof text - 1, MSG_WAITALL) > 0);
        CHECK(strstr(text, i < 2 ? " 503 " : " 200 ") && strstr(text, "\r\n\r\nhere"));
        close(asked);
    }
    http_close(server);
}

static bool answers(const http_server *server, const char *host) {
    char text[4096] = "";
    (void)snprintf(text, sizeof text, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    const int fd = visit(2, server, text);
    memset(text, 0, sizeof text);
    CHECK(recv(fd, text, sizeof text - 1, MSG_WAITALL) > 0);
    close(fd);
    if (strstr(text, "\r\n\r\nhere")) return true;
    CHECK(strstr(text, " 403 ") && strstr(text, "http_hosts"));
    return false;
}

/* A page in the operator's browser whose name leads here reads nothing. */
static void test_hosts(void) {
    static const char *const hosts[] = {"page.example"};
    for (int i = 0; i < 4; i++) { /* for this machine alone, or for all; with names, or without */
        const bool is_local = i % 2 == 0, has_names = i / 2 == 1;
        http_options o;
        http_server *server = open_server(&o);
        http_close(server);
        o.place.address = is_local ? "127.0.0.1:0" : "0.0.0.0:0";
        o.place.hosts = hosts;
        o.place.host_count = has_names;
        CHECK_OK(http_open(&server, &o));
        static const char *const always[] = {"localhost",      "LOCALHOST:8080", "127.0.0.1",
                                             "127.0.0.1:8080", "192.0.2.7",      "[::1]:8080"};
        for (size_t k = 0; k < sizeof always / sizeof always[0]; k++)
            CHECK(answers(server, always[k]));
        CHECK_EQ(answers(server, "Page.Example:443"), has_names || !is_local);
        CHECK_EQ(answers(server, "evil.example"), !has_names && !is_local);
        CHECK_EQ(answers(server, "localhost.evil.example"), !has_names && !is_local);
        CHECK_EQ(answers(server, "127.0.0.1.evil.example"), !has_names && !is_local);
        ask(2, server, END_ANSWERED); /* nobody's browser: it says none */
        http_close(server);
    }
}

int main(void) {
    if (omm_mhd_load() == OMM_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", omm_err_sentence());
        return 77;
    }
    test_address();
    test_all();
    test_places();
    test_taken();
    test_fresh();
    test_hosts();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
