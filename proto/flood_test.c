/* Strangers who pipeline and do not read, over tcp and tls: they cost slots for a moment, and nobody else an answer. */
#include "omm/tls.h"
#include "omm/transport.h"

#include "nng_glue.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000u
/* Within which somebody else is answered: before SERVER_ANSWER_MS frees what is stuck. */
#define SOON_MS 4000u
/* An answer that waits so long is stuck: less than SERVER_PRESSED_MS, and long for a server. */
#define STUCK_MS 120u
#define GONE_MS 3000u  /* a request without an answer, where a connection was ended */
#define ASKED_MAX 400u /* answers of 200 kB that no socket's buffers take */
#define ANSWER_BYTES 200000u
#define BURST ((size_t)64) /* requests in one piece */
#define FRAME_BYTES ((size_t)13)

typedef struct place {
    omm_server *server;
    omm_buf certificate, key;
    char url[OMM_URL_BYTES_MAX];
    pthread_t thread;
} place;

static uint8_t s_answer[ANSWER_BYTES];

/* A request that begins with 't' is of an enrolled node; the answer is long to all but 'q'. */
static void *serve(void *arg) {
    place *p = arg;
    omm_exchange *exchange;
    omm_bytes got;
    for (;;) {
        omm_err err = omm_server_receive(&exchange, &got, p->server, OMM_WAIT_FOREVER);
        if (err == OMM_ERR_CLOSED) return NULL;
        CHECK_OK(err);
        const uint8_t kind = got.size > 0 ? got.data[0] : 'q';
        if (kind == 't') omm_exchange_trust(exchange, 3);
        CHECK_OK(omm_exchange_reply(
            exchange, omm_bytes_of(s_answer, kind == 'q' ? 5 : (size_t)ANSWER_BYTES)));
    }
}

static void open_place(place *p, const char *kind, unsigned exchanges) {
    omm_server_options options = omm_server_options_default();
    char listen[OMM_URL_BYTES_MAX];
    *p = (place){0};
    omm_buf_init(&p->certificate, OMM_TLS_PEM_BYTES_MAX);
    omm_buf_init(&p->key, OMM_TLS_PEM_BYTES_MAX);
    CHECK_OK(omm_tls_make(&p->certificate, &p->key));
    options.tls_certificate = omm_buf_view(&p->certificate);
    options.tls_key = omm_buf_view(&p->key);
    options.exchanges_max = exchanges;
    options.untrusted_per_peer = 64;
    CHECK_OK(omm_server_open(&p->server, &options));
    snprintf(listen, sizeof listen, "%s127.0.0.1:0", kind);
    CHECK_OK(omm_server_listen(p->server, listen));
    snprintf(p->url, sizeof p->url, "%s127.0.0.1:%u", kind, omm_server_port(p->server));
    CHECK_EQ(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void close_place(place *p) {
    omm_server_close(p->server);
    CHECK_EQ(pthread_join(p->thread, NULL), 0);
    omm_buf_fini(&p->certificate);
    omm_buf_fini(&p->key);
}

static omm_client *open_client(const place *p) {
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.tls_certificate = omm_buf_view(&p->certificate);
    CHECK_OK(omm_client_open(&client, p->url, &options));
    return client;
}

static uint64_t milliseconds(void) {
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* How long an answer takes now. */
static uint64_t ask(omm_client *client) {
    omm_bytes got;
    const uint64_t begin = milliseconds();
    CHECK_OK(omm_client_send(client, omm_bytes_str("q")));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    return milliseconds() - begin;
}

static omm_wire_count counts(const place *p) {
    omm_wire_count count;
    omm_server_count(&count, p->server);
    return count;
}

static uint64_t turned(const place *p) {
    const omm_wire_count count = counts(p);
    return count.turned_away[OMM_TURNED_AHEAD] + count.turned_away[OMM_TURNED_UNREAD];
}

/* ---- one that does not read: a stream of bytes, of which nobody asks for any ---- */

typedef struct deaf {
    nng_stream_dialer *dialer;
    nng_tls_config *tls;
    nng_stream *stream;
    nng_aio *aio;
    uint32_t id;
} deaf;

static void open_deaf(deaf *d, const place *p) {
    *d = (deaf){0};
    CHECK_EQ(nng_aio_alloc(&d->aio, NULL, NULL), 0);
    CHECK_EQ(nng_stream_dialer_alloc(&d->dialer, p->url), 0);
    if (glue_is_tls(p->url)) {
        CHECK_OK(glue_tls_config(&d->tls, omm_buf_view(&p->certificate), omm_bytes_of(NULL, 0)));
        CHECK_EQ(nng_stream_dialer_set_ptr(d->dialer, NNG_OPT_TLS_CONFIG, d->tls), 0);
    }
    nng_stream_dialer_dial(d->dialer, d->aio);
    nng_aio_wait(d->aio);
    CHECK_EQ(nng_aio_result(d->aio), 0);
    d->stream = nng_aio_get_output(d->aio, 0);
}

static void close_deaf(deaf *d) {
    nng_stream_free(d->stream);
    nng_stream_dialer_free(d->dialer);
    if (d->tls) nng_tls_config_free(d->tls);
    nng_aio_free(d->aio);
}

/* False: the other end has closed. */
static bool put(deaf *d, const void *bytes, size_t size) {
    uint8_t copy[BURST * FRAME_BYTES];
    CHECK(size <= sizeof copy);
    memcpy(copy, bytes, size);
    for (size_t sent = 0; sent < size;) {
        nng_iov part = {.iov_buf = copy + sent, .iov_len = size - sent};
        CHECK_EQ(nng_aio_set_iov(d->aio, 1, &part), 0);
        nng_aio_set_timeout(d->aio, (nng_duration)WAIT_MS);
        nng_stream_send(d->stream, d->aio);
        nng_aio_wait(d->aio);
        if (nng_aio_result(d->aio) != 0) return false;
        sent += nng_aio_count(d->aio);
    }
    return true;
}

static bool greet(deaf *d) {
    return put(d, "\0SP\0\0\x30\0\0", 8);
}

/* `count` requests in one piece. */
static bool pipeline(deaf *d, char kind, unsigned count) {
    uint8_t frames[BURST * FRAME_BYTES] = {0};
    CHECK(count <= BURST);
    for (unsigned i = 0; i < count; i++) {
        uint8_t *frame = frames + FRAME_BYTES * i;
        const uint32_t id = ++d->id;
        frame[7] = 5; /* id and one byte */
        const uint8_t tail[5] = {(uint8_t)(0x80 | id >> 24), (uint8_t)(id >> 16),
                                 (uint8_t)(id >> 8), (uint8_t)id, (uint8_t)kind};
        memcpy(frame + 8, tail, sizeof tail);
    }
    return put(d, frames, FRAME_BYTES * count);
}

/* One request after the other, each when the one before was answered, until an answer waits.  False: it was closed, as it
 * seems: on a busy machine it may have been stuck, and ended, before we looked. */
static bool get_stuck(deaf *d, const place *p, char kind) {
    const uint64_t ended = turned(p);
    for (unsigned i = 0; i < ASKED_MAX; i++) {
        const omm_wire_count before = counts(p);
        if (!pipeline(d, kind, 1)) return false;
        const uint64_t asked = milliseconds();
        while (counts(p).messages_out == before.messages_out) {
            if (turned(p) > ended && milliseconds() - asked > GONE_MS) return false;
            CHECK(milliseconds() - asked < WAIT_MS);
            usleep(500);
        }
        const uint64_t answered = milliseconds();
        while (counts(p).answering > before.answering) {
            if (milliseconds() - answered > STUCK_MS) return true;
            usleep(2000);
        }
    }
    CHECK(false);
    return false;
}

/* All in one burst, by a stranger and by an enrolled node: one request is taken, the rest is not waited for. */
static void test_burst(const char *kind) {
    place p;
    open_place(&p, kind, 4);
    omm_client *client = open_client(&p);
    (void)ask(client);
    for (unsigned turn = 0; turn < 6; turn++) {
        deaf d;
        open_deaf(&d, &p);
        CHECK(greet(&d));
        if (turn % 2) CHECK(pipeline(&d, 't', 1));
        (void)pipeline(&d, 'a', BURST);
        for (unsigned i = 0; i < 5; i++) CHECK(ask(client) < SOON_MS);
        const uint64_t end = milliseconds() + WAIT_MS;
        while (turned(&p) <= turn || counts(&p).connections > 1) {
            CHECK(milliseconds() < end);
            usleep(1000);
        }
        close_deaf(&d);
    }
    CHECK_EQ(counts(&p).connections, 1);
    CHECK_EQ(turned(&p), 6);
    CHECK(counts(&p).turned_away[OMM_TURNED_AHEAD] >= 3); /* and not for want of reading */
    CHECK_EQ(counts(&p).stuck, 0);
    omm_client_close(client);
    close_place(&p);
}

/* More of them than there are exchanges, each with answers that wait: others are answered all the time, and in the end
 * every slot is free and every such connection closed. */
static void test_deaf(const char *kind) {
    enum { DEAF = 6, EXCHANGES = 4 };
    place p;
    deaf all[DEAF];
    open_place(&p, kind, EXCHANGES);
    omm_client *client = open_client(&p);
    (void)ask(client);
    unsigned stuck = 0;
    bool is_stuck[DEAF];
    for (unsigned i = 0; i < DEAF; i++) {
        open_deaf(&all[i], &p);
        CHECK(greet(&all[i]));
        is_stuck[i] = get_stuck(&all[i], &p, i % 2 ? 't' : 'a');
        stuck += is_stuck[i];
        CHECK(ask(client) < SOON_MS);
    }
    CHECK(stuck >= 3);
    const uint64_t end = milliseconds() + (uint64_t)2 * WAIT_MS;
    while (counts(&p).answering > 0 || counts(&p).connections > 1) {
        CHECK(ask(client) < SOON_MS);
        CHECK(milliseconds() < end);
        for (unsigned i = 0; i < DEAF; i++) /* one that was not closed after all goes on */
            if (!is_stuck[i]) (void)pipeline(&all[i], 'a', 1);
        usleep(50000);
    }
    CHECK(turned(&p) >= stuck);
    for (unsigned i = 0; i < DEAF; i++) close_deaf(&all[i]);
    omm_client_close(client);
    close_place(&p);
}

/* One question: true when it was answered, false when the connection was ended instead. */
static bool is_answered(deaf *d, const place *p, char kind) {
    const uint64_t ended = turned(p), answers = counts(p).messages_out;
    const uint64_t end = milliseconds() + WAIT_MS;
    if (!pipeline(d, kind, 1)) return false;
    while (counts(p).messages_out == answers && turned(p) == ended) {
        CHECK(milliseconds() < end);
        usleep(500);
    }
    return counts(p).messages_out > answers;
}

/* Who does not read has three answers that wait, and the next question ends it: not the one before, and not the one after.
 * Again where this took so long that it was ended for want of reading. */
static void test_unread(void) {
    enum { ATTEMPTS = 10, WAIT_FOR_IT = 3 };
    place p;
    open_place(&p, "tcp://", 16);
    bool is_seen = false;
    for (unsigned i = 0; !is_seen && i < ATTEMPTS; i++) {
        deaf d;
        const omm_wire_count before = counts(&p);
        open_deaf(&d, &p);
        CHECK(greet(&d));
        uint64_t most = 0;
        if (get_stuck(&d, &p, 'a')) {
            most = counts(&p).answering;
            while (is_answered(&d, &p, 'a'))
                if (counts(&p).answering > most) most = counts(&p).answering;
        }
        const omm_wire_count after = counts(&p);
        is_seen = after.turned_away[OMM_TURNED_UNREAD] == before.turned_away[OMM_TURNED_UNREAD];
        if (is_seen) CHECK_EQ(after.turned_away[OMM_TURNED_AHEAD], i + 1);
        if (is_seen) CHECK_EQ(most, WAIT_FOR_IT);
        close_deaf(&d);
        const uint64_t end = milliseconds() + WAIT_MS;
        while (counts(&p).answering > 0 || counts(&p).connections > 0) {
            CHECK(milliseconds() < end);
            usleep(10000);
        }
    }
    CHECK(is_seen);
    close_place(&p);
}

/* While others could be answered, one that reads late has seconds for it; and with the last exchange it is known since when
 * nobody can. */
static void test_patience(void) {
    enum { PATIENT_MS = 1000, ANSWER_MS = 5000 };
    place p;
    deaf d;
    open_place(&p, "tcp://", 1);
    open_deaf(&d, &p);
    CHECK(greet(&d));
    const uint64_t begin = milliseconds();
    (void)get_stuck(&d, &p, 'a');
    for (const uint64_t stuck = milliseconds(); milliseconds() - stuck < PATIENT_MS;) {
        const omm_wire_count count = counts(&p);
        if (turned(&p) > 0) {
            CHECK(milliseconds() - begin >= ANSWER_MS);
            break;
        }
        CHECK(count.all_answer_ms <= milliseconds() - begin);
        usleep(5000);
    }
    close_deaf(&d);
    close_place(&p);
}

static size_t descriptors(void) {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder)) count++;
    (void)closedir(folder);
    return count;
}

/* Who goes in the middle of many requests, some with a reset: nng 1.5.2 used to end no connection any more (mend.c). */
static void test_gone(void) {
    place p;
    open_place(&p, "tcp://", 4);
    omm_client *client = open_client(&p);
    (void)ask(client);
    const size_t before = descriptors();
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)omm_server_port(p.server)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint8_t bytes[8 + BURST * FRAME_BYTES] = "\0SP\0\0\x30\0";
    for (unsigned i = 0; i < BURST; i++) {
        uint8_t *frame = bytes + 8 + FRAME_BYTES * i;
        frame[7] = 5;
        frame[8] = 0x80;
        frame[11] = (uint8_t)(i + 1);
        frame[12] = 'q';
    }
    for (unsigned turn = 0; turn < 600; turn++) {
        const struct linger reset = {.l_onoff = 1, .l_linger = 0};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(fd >= 0);
        if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
            (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        if (turn % 3 == 0) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        if (turn % 2) usleep(1000);
        close(fd);
    }
    const uint64_t end = milliseconds() + (uint64_t)2 * WAIT_MS;
    while (descriptors() > before) {
        CHECK(milliseconds() < end);
        CHECK(ask(client) < WAIT_MS);
        usleep(50000);
    }
    CHECK_EQ(counts(&p).stuck, 0);
    omm_client_close(client);
    close_place(&p);
}

int main(void) {
    static const char *const kinds[] = {"tcp://", "tls+tcp://"};
    for (unsigned i = 0; i < 2; i++) {
        test_burst(kinds[i]);
        test_deaf(kinds[i]);
    }
    test_unread();
    test_patience();
    test_gone();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
