/* limits_test.c - what one client may have of a server: a head, a nesting, connections of an address, the time of a connection
 * that is kept, a stream that it does not read. */
#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm_test.h"
#include "test_served.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define END "Connection: close\r\n\r\n"

static void has(const answer *a, unsigned status, const char *path, const char *want) {
    char *got = served_member(a->body, path);
    if (a->status != status || !strstr(got, want)) {
        fprintf(stderr, "%u, %s is %s, not %u, %s\n", a->status, path, got, status, want);
        exit(1);
    }
    free(got);
}

/* A head of so many bytes, all but a few of them one header's. */
static unsigned status_of_head(unsigned port, size_t bytes) {
    static char head[1 << 16];
    const int fd = served_connect(port);
    answer a;
    const size_t begin =
        (size_t)snprintf(head, sizeof head, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Y: ");
    const size_t end = bytes - strlen("\r\n" END);
    memset(head + begin, 'z', end - begin);
    snprintf(head + end, sizeof head - end, "\r\n" END);
    CHECK_EQ(strlen(head), bytes);
    served_send(fd, head, bytes);
    served_read(&a, fd);
    const unsigned status = a.status;
    answer_fini(&a);
    return status;
}

/* 16 KiB, of which the server itself takes some. */
static void test_head(unsigned port) {
    CHECK_EQ(status_of_head(port, 12 << 10), 200);
    CHECK_EQ(status_of_head(port, 17 << 10), 431);
    CHECK_EQ(status_of_head(port, 60 << 10), 431);
    CHECK_EQ(status_of_head(port, 12 << 10), 200);
}

/* Deeper than any reader goes. */
static void test_nested(unsigned port) {
    enum { DEEP = 3000 };
    static char body[2 * DEEP + 64];
    static const char *const paths[] = {CHAT, TEXT, "/tokenize", "/detokenize"};
    const int n = snprintf(body, sizeof body, "{\"user\": ");
    memset(body + n, '[', DEEP);
    memset(body + n + DEEP, ']', DEEP);
    body[n + 2 * DEEP] = '}';
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        answer a = served_ask(port, paths[i], body);
        has(&a, 400, "error.message", "maximum parsing depth");
        has(&a, 400, "error.param", "null");
        has(&a, 400, "error.type", "invalid_request_error");
        answer_fini(&a);
    }
}

static bool is_closed(int fd, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte = 0;
    return poll(&p, 1, wait_ms) == 1 && recv(fd, &byte, 1, MSG_PEEK) <= 0;
}

/* Of one address so many are open; who comes too many is closed, and has a place when one of them has gone. */
static void test_address(served *s) {
    enum { MOST = 3 };
    omm_serve *server = NULL;
    int fds[MOST];
    s->options.connections_per_address = MOST;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    for (unsigned i = 0; i < MOST; i++) fds[i] = served_connect(port);
    int more = served_connect(port);
    CHECK(is_closed(more, 60000));
    close(more);
    for (unsigned i = 0; i < MOST; i++) CHECK(!is_closed(fds[i], 0));
    for (unsigned i = 0; i < MOST; i++) close(fds[i]);
    answer a = {0};
    for (unsigned i = 0; a.status != 200; i++) { /* that they have gone is seen a little later */
        CHECK(i < 6000);
        if (i > 0) usleep(10000);
        answer_fini(&a);
        a = served_ask(port, TEXT, "{\"prompt\": \"x\", \"max_tokens\": 1}");
    }
    answer_fini(&a);
    omm_serve_close(server);
    s->options.connections_per_address = 128;
}

static _Atomic uint64_t s_time_ms = 1000;

static uint64_t read_time(void *ud) {
    (void)ud;
    return atomic_load(&s_time_ms);
}

/* One more request on a connection that stays: its answer's status, when it is here whole. */
static void ask_again(int fd) {
    static const char request[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                  "application/json\r\nContent-Length: 32\r\n\r\n"
                                  "{\"prompt\": \"x\", \"max_tokens\": 1}";
    char got[8192] = "";
    size_t at = 0;
    served_send(fd, request, sizeof request - 1);
    while (!strstr(got, "\"usage\":") || !strstr(got, "}}\n")) {
        const ssize_t n = recv(fd, got + at, sizeof got - 1 - at, 0);
        CHECK(n > 0);
        at += (size_t)n;
        got[at] = 0;
    }
    CHECK_EQ(strncmp(got, "HTTP/1.1 200 ", 13), 0);
}

/* The time of a request begins with the end of the one before, however old the connection is; and each has that much. */
static void test_kept(served *s) {
    static const char half[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\n";
    omm_serve *server = NULL;
    const omm_clock clock = s->options.clock;
    s->options.clock.now_ms = read_time;
    s->options.request_ms = 1000000;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const int fd = served_connect(omm_serve_port(server));
    for (unsigned i = 0; i < 3; i++) {
        ask_again(fd);
        CHECK(!is_closed(fd, 300)); /* three looks */
        atomic_fetch_add(&s_time_ms, s->options.request_ms - 1);
        CHECK(!is_closed(fd, 300));
    }
    served_send(fd, half, sizeof half - 1);
    CHECK(!is_closed(fd, 300));
    atomic_fetch_add(&s_time_ms, s->options.request_ms);
    CHECK(is_closed(fd, 60000));
    close(fd);
    omm_serve_close(server);
    s->options.clock = clock;
    s->options.request_ms = 30000;
}

/* So much of a stream waits for who does not read it; then his texts end, and that is the end of what he reads. */
static void test_unread(served *s) {
    enum { TOKENS = 20 * 500, BUFFER = 1 << 17 };
    omm_serve *server = NULL;
    answer a;
    const int size = BUFFER;
    s->options.unread_bytes_max = (size_t)1 << 20;
    s->options.request_ms = 1000000; /* a connection on which nothing moves for so long is closed */
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    const int fd = served_connect(port);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    served_post(fd, TEXT,
                "{\"prompt\": \"x\", \"max_tokens\": 500, \"temperature\": 9, \"n\": 20, \"seed\": "
                "5, \"stream\": true, \"logprobs\": 20}");
    while (served_metric(port, "texts_total") < 1) usleep(10000);
    while (served_metric(port, "seats_taken") > 0) usleep(10000);
    CHECK(served_metric(port, "tokens_total") < TOKENS);
    CHECK_EQ(served_metric(port, "waiting"), 0);
    CHECK_EQ(served_metric(port, "left_total"), 0);
    served_read(&a, fd);
    CHECK_EQ(a.status, 200);
    CHECK(a.body_size > s->options.unread_bytes_max);
    CHECK(strstr(a.body, "the client does not read its stream") != NULL);
    CHECK(strstr(a.body, "[DONE]") == NULL);
    answer_fini(&a);
    omm_serve_close(server);
    s->options.unread_bytes_max = (size_t)16 << 20;
    s->options.request_ms = 30000;
}

int main(void) {
    served s;
    omm_serve *server = NULL;
    if (omm_mhd_load() == OMM_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", omm_err_sentence());
        return 77;
    }
    served_open(&s);
    CHECK_OK(omm_serve_open(&server, &s.options));
    const unsigned port = omm_serve_port(server);
    test_head(port);
    test_nested(port);
    omm_serve_close(server);
    test_address(&s);
    test_kept(&s);
    test_unread(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
