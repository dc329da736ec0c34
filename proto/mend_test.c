/* What proto/mend.c mends of nng: strangers who break off before they are greeted, clients closed while they dial, and
 * what is stopped when it has just ended. */
#include "omm/transport.h"

#include "omm_test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000u
#define STRANGERS 200
#define SHORT_LIVED 600
#define WATCHDOG_S 300u /* a client that is never closed ends the test */
#define REFUSED 40
#define REST_MS 100u /* nng's, after each of them */
#define TRIES 5
#define ASKING 25000u
#define LATE_US 100u /* a callback, behind its operation */
#define GONE_US 200u /* at most, after their question */

/* Between the end of an operation of nng's and its callback there is a moment, made longer here, in which it may be stopped. */
typedef struct nni_task nni_task;
static _Atomic bool s_is_late;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void __real_nni_task_dispatch(nni_task *task);
void __wrap_nni_task_dispatch(nni_task *task);

void __wrap_nni_task_dispatch(nni_task *task) {
    if (s_is_late) (void)usleep(LATE_US);
    __real_nni_task_dispatch(task);
}
/* NOLINTEND(bugprone-reserved-identifier) */

typedef struct place {
    omm_server *server;
    char url[OMM_URL_BYTES_MAX];
    struct sockaddr_storage address;
    socklen_t address_bytes;
    pthread_t thread;
} place;

static void *serve(void *arg) {
    omm_exchange *exchange;
    omm_bytes got;
    for (;;) {
        omm_err err = omm_server_receive(&exchange, &got, arg, OMM_WAIT_FOREVER);
        if (err == OMM_ERR_CLOSED) return NULL;
        CHECK_OK(err);
        CHECK_OK(omm_exchange_reply(exchange, got));
    }
}

static void listen_at(place *p, const char *url) {
    omm_server_options options = omm_server_options_default();
    options.untrusted_max = options.untrusted_per_peer = 10000;
    *p = (place){0};
    CHECK_OK(omm_server_open(&p->server, &options));
    CHECK_OK(omm_server_listen(p->server, url));
    snprintf(p->url, sizeof p->url, "%s", url);
    CHECK_EQ(pthread_create(&p->thread, NULL, serve, p->server), 0);
}

static void listen_tcp(place *p) {
    listen_at(p, "tcp://127.0.0.1:0");
    struct sockaddr_in *in = (struct sockaddr_in *)&p->address;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)omm_server_port(p->server));
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->address_bytes = sizeof *in;
    snprintf(p->url, sizeof p->url, "tcp://127.0.0.1:%u", omm_server_port(p->server));
}

static void listen_ipc(place *p, const char *folder) {
    char url[OMM_URL_BYTES_MAX];
    snprintf(url, sizeof url, "ipc://%s/door", folder);
    listen_at(p, url);
    struct sockaddr_un *un = (struct sockaddr_un *)&p->address;
    un->sun_family = AF_UNIX;
    snprintf(un->sun_path, sizeof un->sun_path, "%s/door", folder);
    p->address_bytes = sizeof *un;
}

static void close_place(place *p) {
    omm_server_close(p->server);
    CHECK_EQ(pthread_join(p->thread, NULL), 0);
}

static omm_client *open_client(const place *p) {
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.reconnect_min_ms = 10;
    CHECK_OK(omm_client_open(&client, p->url, &options));
    return client;
}

/* Somebody new is let in and answered. */
static void somebody_new_is_answered(const place *p) {
    omm_client *client = open_client(p);
    omm_bytes got;
    CHECK_OK(omm_client_send(client, omm_bytes_str("q")));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    CHECK(omm_bytes_equal(got, omm_bytes_str("q")));
    omm_client_close(client);
}

static int connect_stranger(const place *p) {
    const int fd = socket(p->address.ss_family, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(connect(fd, (const struct sockaddr *)&p->address, p->address_bytes), 0);
    return fd;
}

/* No port is kept for it afterwards, of which there are fewer than strangers here. */
static void reset(int fd) {
    const struct linger at_once = {.l_onoff = 1};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    CHECK_EQ(close(fd), 0);
}

/* Closed, then reset: what the server sends meets a broken pipe. */
static void break_off(int fd) {
    CHECK_EQ(shutdown(fd, SHUT_WR), 0);
    reset(fd);
}

static void strangers_break_off(const place *p) {
    for (int i = 0; i < STRANGERS; i++) break_off(connect_stranger(p));
    somebody_new_is_answered(p);
}

static void test_broken_off(const char *folder) {
    place p;
    listen_tcp(&p);
    strangers_break_off(&p);
    close_place(&p);
    listen_ipc(&p, folder);
    strangers_break_off(&p);
    close_place(&p);
}

static uint64_t milliseconds(void) {
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* One whose greeting is none, and one who is let in after it. */
static uint64_t refuse_and_answer(const place *p) {
    const uint64_t begin = milliseconds();
    for (int i = 0; i < REFUSED; i++) {
        char byte;
        const int fd = connect_stranger(p);
        CHECK_EQ(send(fd, "GET / HT", 8, MSG_NOSIGNAL), 8);
        while (recv(fd, &byte, 1, 0) > 0) {
        }
        CHECK_EQ(close(fd), 0);
        somebody_new_is_answered(p);
    }
    return milliseconds() - begin;
}

/* With nng's rest no try can take less than all of its rests. */
static void test_refused_greeting(void) {
    place p;
    uint64_t least = UINT64_MAX;
    listen_tcp(&p);
    for (int i = 0; i < TRIES && least >= (uint64_t)REFUSED * REST_MS; i++) {
        const uint64_t took = refuse_and_answer(&p);
        if (took < least) least = took;
    }
    CHECK(least < (uint64_t)REFUSED * REST_MS);
    close_place(&p);
}

/* A greeting and a question, and gone about when the answer is handed over: LeakSanitizer looks for it. */
static void test_asks_and_goes(void) {
    const uint8_t said[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 0, 0,  0,
                            0, 0,   0,   0, 5, 0x80, 0, 0, 1, 'q'};
    place p;
    listen_tcp(&p);
    for (unsigned i = 0; i < ASKING; i++) {
        const int fd = connect_stranger(&p);
        CHECK_EQ(send(fd, said, sizeof said, MSG_NOSIGNAL), (ssize_t)sizeof said);
        (void)usleep(i % GONE_US);
        reset(fd);
    }
    somebody_new_is_answered(&p);
    close_place(&p);
}

static void clients_live_shortly(const place *p, unsigned us_max) {
    unsigned state = 1;
    for (int i = 0; i < SHORT_LIVED; i++) {
        omm_client *client = open_client(p);
        state = state * 1103515245u + 12345u;
        (void)usleep((state >> 16) % us_max);
        omm_client_close(client);
    }
    somebody_new_is_answered(p);
}

static void test_closed_while_dialling(void) {
    place p;
    listen_at(&p, "inproc://dialling");
    clients_live_shortly(&p, 100);
    close_place(&p);
    listen_tcp(&p);
    clients_live_shortly(&p, 400);
    s_is_late = true;
    clients_live_shortly(&p, 1000);
    s_is_late = false;
    close_place(&p);
}

int main(void) {
    char folder[] = "/tmp/omm_mend_test_XXXXXX", door[64];
    CHECK(mkdtemp(folder));
    alarm(WATCHDOG_S);
    test_broken_off(folder);
    test_refused_greeting();
    test_closed_while_dialling();
    test_asks_and_goes();
    snprintf(door, sizeof door, "%s/door", folder);
    (void)unlink(door);
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
