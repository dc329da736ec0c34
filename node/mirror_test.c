/* A mirror that takes no connection is left after connect_s; one that took it may think for longer.  Where it may send
 * whoever asks, and what is taken of a file. */
#include "mirror.h"

#include "omm/clock.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BODY "0123456789"
/* LATE_MS: before the kernel itself gives up. */
enum {
    BODY_BYTES = 10,
    FILLERS = 64,
    HEADER_PIECES = 160, /* of 64 KiB */
    BESIDE_PIECES = 1600,
    SOON_MS = 300,
    CONNECT_S = 1,
    THINKS_MS = 2000,
    LATE_MS = 100000,
    NEVER_S = 600
};

static omm_err take(void *ud, omm_bytes bytes) {
    *(size_t *)ud += bytes.size;
    return OMM_OK;
}

/* Of the file, from `from` on. */
typedef struct rest {
    size_t from, got;
} rest;

static omm_err take_rest(void *ud, omm_bytes bytes) {
    rest *r = ud;
    CHECK(r->from + r->got + bytes.size <= BODY_BYTES);
    CHECK(bytes.size == 0 || same_bytes(bytes.data, &BODY[r->from + r->got], bytes.size));
    r->got += bytes.size;
    return OMM_OK;
}

static bool may_go_on(void *ud) {
    (void)ud;
    return true;
}

static int listen_at(unsigned *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(listen(fd, 0), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* Who asks for a connection is not answered any more: nobody accepts, and the queue is full.  How many that took. */
static unsigned fill(int *fds, unsigned port) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (unsigned i = 0; i < FILLERS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(fds[i] >= 0);
        struct pollfd p = {.fd = fds[i], .events = POLLOUT};
        const int result = connect(fds[i], (const struct sockaddr *)&to, sizeof to);
        CHECK(result == 0 || errno == EINPROGRESS);
        if (result != 0 && poll(&p, 1, SOON_MS) == 0) return i + 1;
    }
    CHECK(false);
    return 0;
}

static omm_err fetch(unsigned port, size_t *got) {
    char url[64];
    *got = 0;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/m", port);
    const mirror_get get = {.url = url,
                            .size = BODY_BYTES,
                            .may_be_private = true,
                            .connect_s = CONNECT_S,
                            .stall_s = NEVER_S,
                            .take = take,
                            .may_go_on = may_go_on,
                            .ud = got};
    return mirror_fetch(&get);
}

static void test_no_connection(void) {
    unsigned port;
    int fds[FILLERS];
    size_t got;
    const int door = listen_at(&port);
    const unsigned count = fill(fds, port);
    const uint64_t begin_ns = omm_measure_ns();
    CHECK_ERR(fetch(port, &got),
              OMM_ERR_TIMEOUT); /* the fetch asks another source, and this one later */
    const uint64_t took_ms = (omm_measure_ns() - begin_ns) / 1000000;
    CHECK(took_ms >= CONNECT_S * 1000 - 100 && took_ms < LATE_MS);
    CHECK(!strstr(omm_err_sentence(), "bytes a second"));
    CHECK_EQ(got, 0);
    for (unsigned i = 0; i < count; i++) close(fds[i]);
    close(door);
}

/* One header without an end.  Sent until whoever reads it has had enough. */
static void *answer_without_end(void *ud) {
    static const char begin[] = "HTTP/1.1 206 Part\r\nX: ";
    static char filler[65536];
    char question[4096];
    const int fd = accept(*(const int *)ud, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(recv(fd, question, sizeof question, 0) > 0);
    memset(filler, 'a', sizeof filler);
    ssize_t sent = send(fd, begin, sizeof begin - 1, MSG_NOSIGNAL);
    for (unsigned i = 0; i < HEADER_PIECES && sent > 0; i++)
        sent = send(fd, filler, sizeof filler, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

/* It is the mirror's fault, and no trouble of ours, which would end the node. */
static void test_long_header(void) {
    unsigned port;
    size_t got;
    pthread_t thread;
    char url[64];
    int door = listen_at(&port);
    CHECK_EQ(pthread_create(&thread, NULL, answer_without_end, &door), 0);
    CHECK_ERR(fetch(port, &got), OMM_ERR_MISMATCH);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/m: ", port);
    CHECK(strstr(omm_err_sentence(), url) == omm_err_sentence());
    CHECK_EQ(got, 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close(door);
}

typedef struct mirror {
    int door;
    unsigned thinks_ms;
    const char *status;
} mirror;

/* It answers once: the whole file, with its status. */
static void *answer_once(void *ud) {
    const mirror *m = ud;
    char question[4096], answer[256];
    const int fd = accept(m->door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(recv(fd, question, sizeof question, 0) > 0);
    usleep(m->thinks_ms * 1000);
    const int size = snprintf(answer, sizeof answer,
                              "HTTP/1.1 %s\r\nContent-Length: 10\r\n\r\n" BODY, m->status);
    CHECK_EQ(send(fd, answer, (size_t)size, MSG_NOSIGNAL), size);
    close(fd);
    return NULL;
}

static omm_err fetch_from(const char *status, unsigned thinks_ms, size_t *got) {
    unsigned port;
    pthread_t thread;
    mirror m = {.door = listen_at(&port), .thinks_ms = thinks_ms, .status = status};
    CHECK_EQ(pthread_create(&thread, NULL, answer_once, &m), 0);
    const omm_err err = fetch(port, got);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close(m.door);
    return err;
}

static void test_slow_answer(void) {
    size_t got;
    CHECK_OK(fetch_from("200 OK", THINKS_MS, &got));
    CHECK_EQ(got, BODY_BYTES);
}

/* What comes with a status that is not "here it is" is not the file, whatever it is: nothing of it is taken. */
static void test_other_status(void) {
    static const char *const others[] = {"201 Created", "202 Accepted", "203 By Somebody Else",
                                         "207 Many"};
    size_t got;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_ERR(fetch_from(others[i], 0, &got), OMM_ERR_MISMATCH);
        CHECK_EQ(got, 0);
        CHECK(strstr(omm_err_sentence(), "status 20"));
    }
}

/* ---- redirects ---- */

enum { ROUNDS = 40 };

/* It sends whoever asks to `place` for ROUNDS times, and then the file. */
typedef struct sender {
    int door;
    const char *place;
    atomic_uint asked;
} sender;

static void *send_on(void *ud) {
    sender *s = ud;
    for (;;) {
        char question[4096], answer[256];
        const int fd = accept(s->door, NULL, NULL);
        if (fd < 0) return NULL; /* shut down */
        if (recv(fd, question, sizeof question, 0) > 0) {
            const bool sends = atomic_fetch_add(&s->asked, 1) < ROUNDS;
            const int size =
                sends ? snprintf(answer, sizeof answer,
                                 "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n"
                                 "Connection: close\r\n\r\n",
                                 s->place)
                      : snprintf(answer, sizeof answer,
                                 "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" BODY);
            CHECK_EQ(send(fd, answer, (size_t)size, MSG_NOSIGNAL), size);
        }
        close(fd);
    }
}

/* It is followed to nothing but other addresses of mirrors, and not for ever. */
static void sent_on(const char *place, unsigned asked) {
    unsigned port;
    size_t got;
    pthread_t thread;
    sender s = {.door = listen_at(&port), .place = place};
    CHECK_EQ(pthread_create(&thread, NULL, send_on, &s), 0);
    CHECK_ERR(fetch(port, &got), OMM_ERR_MISMATCH);
    CHECK_EQ(got, 0);
    CHECK_EQ(shutdown(s.door, SHUT_RDWR), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(atomic_load(&s.asked), asked);
    close(s.door);
}

static void test_redirects(void) {
    sent_on("/m", MIRROR_REDIRECTS_MAX + 1);
    sent_on("file:///etc/passwd", 1);
    sent_on("ftp://127.0.0.1/m", 1);
    sent_on("gopher://127.0.0.1/m", 1);
}

typedef struct endless {
    int door;
    unsigned pieces; /* of BESIDE_PIECES that were taken */
} endless;

/* It sends whoever asks elsewhere, and much beside. */
static void *send_on_without_end(void *ud) {
    static const char begin[] = "HTTP/1.1 302 Found\r\nLocation: /m\r\nTransfer-Encoding: "
                                "chunked\r\n\r\n40000000\r\n";
    static char filler[65536];
    endless *e = ud;
    char question[4096];
    const int fd = accept(e->door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(recv(fd, question, sizeof question, 0) > 0);
    ssize_t sent = send(fd, begin, sizeof begin - 1, MSG_NOSIGNAL);
    while (sent > 0 && e->pieces < BESIDE_PIECES) {
        sent = send(fd, filler, sizeof filler, MSG_NOSIGNAL);
        e->pieces += sent > 0;
    }
    close(fd);
    return NULL;
}

/* An owner's network is not used up by what is no model. */
static void test_endless_redirect(void) {
    unsigned port;
    size_t got;
    pthread_t thread;
    endless e = {.door = listen_at(&port)};
    CHECK_EQ(pthread_create(&thread, NULL, send_on_without_end, &e), 0);
    CHECK_ERR(fetch(port, &got), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "over 1048576 bytes come with a redirect"));
    CHECK_EQ(got, 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(e.pieces < BESIDE_PIECES / 2); /* the rest lay between us */
    close(e.door);
}

/* A private address is not even connected to. */
static void test_private(void) {
    unsigned port;
    size_t got = 0;
    char url[64];
    const int door = listen_at(&port);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/m", port);
    const mirror_get get = {.url = url,
                            .size = BODY_BYTES,
                            .connect_s = CONNECT_S,
                            .stall_s = NEVER_S,
                            .take = take,
                            .may_go_on = may_go_on,
                            .ud = &got};
    CHECK_ERR(mirror_fetch(&get), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "at an address of a private network"));
    struct pollfd p = {.fd = door, .events = POLLIN};
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_EQ(got, 0);
    close(door);
}

/* ---- the rest of a file ---- */

/* It knows parts, or sends all of the file whatever it is asked. */
typedef struct parts {
    int door;
    bool knows;
    char question[4096];
} parts;

static void *give_rest(void *ud) {
    parts *s = ud;
    char answer[256];
    const int fd = accept(s->door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(recv(fd, s->question, sizeof s->question - 1, 0) > 0);
    const char *body = s->knows ? &BODY[4] : BODY;
    const int size = snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
                              s->knows ? "206 Part" : "200 OK", strlen(body), body);
    CHECK_EQ(send(fd, answer, (size_t)size, MSG_NOSIGNAL), size);
    close(fd);
    return NULL;
}

/* It asks for what is missing, and takes that alone. */
static void test_rest(bool knows) {
    unsigned port;
    pthread_t thread;
    char url[64];
    rest r = {.from = 4};
    parts s = {.door = listen_at(&port), .knows = knows};
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/m", port);
    const mirror_get get = {.url = url,
                            .from = r.from,
                            .size = BODY_BYTES,
                            .may_be_private = true,
                            .connect_s = CONNECT_S,
                            .stall_s = NEVER_S,
                            .take = take_rest,
                            .may_go_on = may_go_on,
                            .ud = &r};
    CHECK_EQ(pthread_create(&thread, NULL, give_rest, &s), 0);
    CHECK_OK(mirror_fetch(&get));
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(strstr(s.question, "\r\nRange: bytes=4-9\r\n"));
    CHECK_EQ(r.got, BODY_BYTES - r.from);
    close(s.door);
}

int main(void) {
    size_t got;
    if (fetch(1, &got) == OMM_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", omm_err_sentence());
        return 77;
    }
    test_no_connection();
    test_slow_answer();
    test_other_status();
    test_long_header();
    test_redirects();
    test_endless_redirect();
    test_private();
    test_rest(true);
    test_rest(false);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
