/* TLS: the right certificate gets through, over IPv4 and IPv6, and nobody else does. */
#include "omm/tls.h"

#include "omm/mem.h"
#include "omm/transport.h"
#include "omm_test.h"

#include <arpa/inet.h>
#include <mbedtls/ecp.h>
#include <mbedtls/pem.h>
#include <mbedtls/x509_crt.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MBEDTLS_PRIVATE /* before version 3 */
#define MBEDTLS_PRIVATE(MEMBER) MEMBER
#endif

#define WAIT_MS 60000u
#define REFUSED_MS 400u /* long enough for a handshake here, and then some */

typedef struct pair {
    omm_buf certificate, key;
} pair;

static pair make_pair(void) {
    pair p;
    omm_buf_init(&p.certificate, OMM_TLS_PEM_BYTES_MAX);
    omm_buf_init(&p.key, OMM_TLS_PEM_BYTES_MAX);
    CHECK_OK(omm_tls_make(&p.certificate, &p.key));
    return p;
}

static void free_pair(pair *p) {
    omm_buf_fini(&p->certificate);
    omm_buf_fini(&p->key);
}

static omm_server *open_server(char url[OMM_URL_BYTES_MAX], const pair *p, const char *host) {
    omm_server *server;
    omm_server_options options = omm_server_options_default();
    char listen_url[OMM_URL_BYTES_MAX];
    options.tls_certificate = omm_buf_view(&p->certificate);
    options.tls_key = omm_buf_view(&p->key);
    CHECK_OK(omm_server_open(&server, &options));
    snprintf(listen_url, sizeof listen_url, "tls+tcp://%s:0", host);
    CHECK_OK(omm_server_listen(server, listen_url));
    CHECK(omm_server_port(server) != 0);
    snprintf(url, OMM_URL_BYTES_MAX, "tls+tcp://%s:%u", host, omm_server_port(server));
    return server;
}

static omm_client *open_client(const char *url, const omm_buf *certificates) {
    omm_client *client;
    omm_client_options options = omm_client_options_default();
    options.reconnect_min_ms = 10;
    if (certificates) options.tls_certificate = omm_buf_view(certificates);
    CHECK_OK(omm_client_open(&client, url, &options));
    return client;
}

static void lockstep(omm_client *client, omm_server *server, omm_bytes question) {
    omm_exchange *exchange;
    omm_bytes got;
    CHECK_OK(omm_client_send(client, question));
    CHECK_OK(omm_server_receive(&exchange, &got, server, WAIT_MS));
    CHECK(omm_bytes_equal(got, question));
    CHECK_OK(omm_exchange_reply(exchange, question));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
    CHECK(omm_bytes_equal(got, question));
}

static bool has_ipv6(void) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return found;
}

static void test_through(const char *host) {
    static uint8_t big[OMM_MESSAGE_BYTES_MAX];
    char url[OMM_URL_BYTES_MAX];
    omm_wire_count at_server, at_client;
    pair p = make_pair();
    omm_server *server = open_server(url, &p, host);
    omm_client *client = open_client(url, &p.certificate);
    for (size_t i = 0; i < sizeof big; i++) big[i] = (uint8_t)(i * 7 >> 3);
    lockstep(client, server, omm_bytes_str("question"));
    lockstep(client, server, omm_bytes_of(big, sizeof big));
    omm_server_count(&at_server, server);
    omm_client_count(&at_client, client);
    CHECK_EQ(at_server.bytes_in, (uint64_t)8 + sizeof big + 24); /* as over tcp:// */
    CHECK_EQ(at_client.bytes_in, at_server.bytes_out);
    CHECK_EQ(at_server.connections, 1);
    omm_client_close(client);
    omm_server_close(server);
    free_pair(&p);
}

/* Nothing of what `client` sends arrives. */
static void check_shut_out(omm_client *client, omm_server *server) {
    omm_exchange *exchange;
    omm_bytes got;
    CHECK_OK(omm_client_send(client, omm_bytes_str("let me in")));
    CHECK_ERR(omm_server_receive(&exchange, &got, server, REFUSED_MS), OMM_ERR_TIMEOUT);
    CHECK(omm_client_is_waiting(client));
}

/* What its owner is told is about this trouble. */
static void check_says(omm_client *client, const char *word) {
    for (unsigned i = 0; i < WAIT_MS / 10 && !strstr(omm_client_trouble(client), word); i++)
        usleep(10000);
    if (!strstr(omm_client_trouble(client), word))
        fprintf(stderr, "it says: %s\n", omm_client_trouble(client));
    CHECK(strstr(omm_client_trouble(client), word));
}

/* The client knows another certificate with the same name; a plain client; a TLS client of a plain server. */
static void test_others_shut_out(void) {
    char url[OMM_URL_BYTES_MAX], plain_url[OMM_URL_BYTES_MAX];
    pair ours = make_pair(), theirs = make_pair();
    omm_server *server = open_server(url, &ours, "127.0.0.1");
    omm_client *client = open_client(url, &theirs.certificate);
    check_shut_out(client, server);
    check_says(client, "the certificate there is not that of tls_certificate");
    omm_client_close(client);
    client = open_client(url + strlen("tls+"), NULL);
    check_shut_out(client, server);
    check_says(client, "it is tls+tcp:// there");
    omm_client_close(client);
    client = open_client(url, &ours.certificate); /* and the server is well */
    lockstep(client, server, omm_bytes_str("fine"));
    check_says(client, "connected");
    omm_client_close(client);
    omm_server_close(server);

    omm_server_options options = omm_server_options_default();
    CHECK_OK(omm_server_open(&server, &options));
    CHECK_OK(omm_server_listen(server, "tcp://127.0.0.1:0"));
    snprintf(plain_url, sizeof plain_url, "tls+tcp://127.0.0.1:%u", omm_server_port(server));
    client = open_client(plain_url, &ours.certificate);
    check_shut_out(client, server);
    check_says(client, "it is tcp:// there");
    omm_server_close(server);
    check_says(client, "connection refused");
    omm_client_close(client);
    free_pair(&ours);
    free_pair(&theirs);
}

/* A node that holds the old and the new certificate gets through to either. */
static void test_rotation(void) {
    pair old = make_pair(), new = make_pair();
    const pair *both[] = {&old, &new};
    omm_buf known;
    omm_buf_init(&known, OMM_TLS_PEM_BYTES_MAX);
    CHECK_OK(omm_buf_append(&known, old.certificate.data, old.certificate.size));
    CHECK_OK(omm_buf_append(&known, new.certificate.data, new.certificate.size));
    for (unsigned i = 0; i < 2; i++) {
        char url[OMM_URL_BYTES_MAX];
        omm_server *server = open_server(url, both[i], "127.0.0.1");
        omm_client *client = open_client(url, &known);
        lockstep(client, server, omm_bytes_str("either"));
        omm_client_close(client);
        omm_server_close(server);
    }
    omm_buf_fini(&known);
    free_pair(&old);
    free_pair(&new);
}

/* ---- what a certificate says ---- */

static void parse(mbedtls_x509_crt *out, const pair *p) {
    static char text[OMM_TLS_PEM_BYTES_MAX + 1];
    memcpy(text, p->certificate.data, p->certificate.size);
    text[p->certificate.size] = '\0';
    mbedtls_x509_crt_init(out);
    CHECK_EQ(mbedtls_x509_crt_parse(out, (const uint8_t *)text, p->certificate.size + 1), 0);
}

/* Self-signed, P-256, CN and DNS name OMM_TLS_NAME, no end. */
static void test_form(void) {
    pair p = make_pair();
    mbedtls_x509_crt c;
    char subject[64], issuer[64];
    parse(&c, &p);
    CHECK(mbedtls_pk_can_do(&c.pk, MBEDTLS_PK_ECKEY));
    CHECK_EQ(mbedtls_pk_ec(c.pk)->MBEDTLS_PRIVATE(grp).id, MBEDTLS_ECP_DP_SECP256R1);
    CHECK(mbedtls_x509_dn_gets(subject, sizeof subject, &c.subject) > 0);
    CHECK(mbedtls_x509_dn_gets(issuer, sizeof issuer, &c.issuer) > 0);
    CHECK_EQ(strcmp(subject, "CN=" OMM_TLS_NAME), 0);
    CHECK_EQ(strcmp(issuer, subject), 0);
    mbedtls_x509_subject_alternative_name name;
    CHECK_EQ(mbedtls_x509_parse_subject_alt_name(&c.subject_alt_names.buf, &name), 0);
    CHECK(!c.subject_alt_names.next);
    CHECK_EQ(name.type, MBEDTLS_X509_SAN_DNS_NAME);
    CHECK(
        omm_bytes_equal(omm_bytes_of(name.san.unstructured_name.p, name.san.unstructured_name.len),
                        omm_bytes_str(OMM_TLS_NAME)));
    CHECK_EQ(c.valid_to.year, 9999);
    mbedtls_x509_crt_free(&c);
    free_pair(&p);
}

/* The same key and another certificate: of another name, or only of another number.  Nobody looks at the signature of one that
 * is known byte for byte. */
static void forge(pair *p, bool renames) {
    static uint8_t der[4096], pem[8192];
    static const char begin[] = "-----BEGIN CERTIFICATE-----\n",
                      end[] = "-----END CERTIFICATE-----\n";
    enum { NAME = sizeof OMM_TLS_NAME - 1 };
    mbedtls_x509_crt c;
    size_t size = 0;
    unsigned names = 0;
    parse(&c, p);
    CHECK(c.raw.len <= sizeof der);
    memcpy(der, c.raw.p, c.raw.len);
    if (!renames) der[c.serial.p - c.raw.p + 1] ^= 1;
    for (size_t i = 0; renames && i + NAME <= c.raw.len; i++) {
        if (memcmp(der + i, OMM_TLS_NAME, NAME) != 0) continue;
        der[i] ^= 1;
        names++;
    }
    CHECK_EQ(names, renames ? 3 : 0); /* issuer, subject, DNS name */
    CHECK_EQ(mbedtls_pem_write_buffer(begin, end, der, c.raw.len, pem, sizeof pem, &size), 0);
    mbedtls_x509_crt_free(&c);
    omm_buf_clear(&p->certificate);
    CHECK_OK(omm_buf_append(&p->certificate, pem, size - 1)); /* its NUL */
}

/* A certificate that the client was given is no good for a server of another name. */
static void test_name(void) {
    for (unsigned renames = 0; renames < 2; renames++) {
        char url[OMM_URL_BYTES_MAX];
        pair p = make_pair();
        forge(&p, renames);
        omm_server *server = open_server(url, &p, "127.0.0.1");
        omm_client *client = open_client(url, &p.certificate);
        if (renames)
            check_shut_out(client, server);
        else
            lockstep(client, server, omm_bytes_str("another number"));
        omm_client_close(client);
        omm_server_close(server);
        free_pair(&p);
    }
}

/* From an address of its own. */
static int connect_to(unsigned port) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000007)};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Strangers who stop in the middle of a handshake, or send rubbish, hold up nobody; no more of one address stay than may. */
static void test_stalled_handshakes(void) {
    enum { STALLED = 40 };
    static const uint8_t hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};
    char url[OMM_URL_BYTES_MAX];
    int fds[STALLED];
    omm_wire_count count;
    pair p = make_pair();
    omm_server *server = open_server(url, &p, "127.0.0.1");
    for (unsigned i = 0; i < STALLED; i++) {
        fds[i] = connect_to(omm_server_port(server));
        if (i % 3) /* one that was refused may know already */
            (void)send(fds[i], i % 3 == 1 ? (const void *)hello : "GET / HTTP/1.0\r\n\r\n",
                       sizeof hello, MSG_NOSIGNAL);
    }
    omm_client *client = open_client(url, &p.certificate);
    for (unsigned i = 0; i < 5; i++) lockstep(client, server, omm_bytes_str("between them"));
    struct pollfd rubbish = {.fd = fds[2], .events = POLLIN};
    CHECK_EQ(poll(&rubbish, 1, (int)WAIT_MS), 1); /* an alert, or the end: it is not kept */
    omm_server_count(&count, server);
    CHECK_EQ(count.connections, 1); /* none of them is one yet */
    CHECK(count.strangers <= 1 + 8);
    CHECK(count.turned_away[OMM_TURNED_ADDRESS] >= STALLED / 3 - 8);
    for (unsigned i = 0; i < STALLED; i++) close(fds[i]);
    omm_client_close(client);
    omm_server_close(server);
    free_pair(&p);
}

static int take_silently(int listener) {
    uint8_t byte;
    const int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(recv(fd, &byte, 1, MSG_WAITALL), 1); /* its ClientHello has come */
    return fd;
}

/* A coordinator that stands still, or a network that is gone in the middle of the handshake: the attempt is left for
 * another one. */
static void test_silent_coordinator(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char url[OMM_URL_BYTES_MAX];
    uint8_t rest[4096];
    omm_client *client;
    pair p = make_pair();
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(listener, (struct sockaddr *)&address, size), 0);
    CHECK_EQ(listen(listener, 8), 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof url, "tls+tcp://127.0.0.1:%u", ntohs(address.sin_port));
    omm_client_options options = omm_client_options_default();
    options.tls_certificate = omm_buf_view(&p.certificate);
    options.reconnect_min_ms = 10;
    options.attempt_ms = 300;
    CHECK_OK(omm_client_open(&client, url, &options));
    const int first = take_silently(listener), second = take_silently(listener);
    while (recv(first, rest, sizeof rest, 0) > 0) {
    }
    CHECK(strstr(omm_client_trouble(client), "nothing comes back"));
    omm_client_close(client);
    CHECK(close(first) == 0 && close(second) == 0 && close(listener) == 0);
    free_pair(&p);
}

/* Version and suite by which the server goes on, of those that this ClientHello has; 0: it refuses the version. */
static unsigned version_for(unsigned port, uint8_t minor) {
    enum { RECORD = 5, HEAD = 11, RANDOM = 32 };
    static const uint8_t tail[] = {
        0,                                    /* no session */
        0, 4,  0xc0, 0x09, 0xc0, 0x2b,        /* ECDHE-ECDSA: AES-CBC-SHA, AES-GCM */
        1, 0,                                 /* no compression */
        0, 22,                                /* extensions: */
        0, 10, 0,    4,    0,    2,    0, 23, /* P-256 */
        0, 11, 0,    2,    1,    0,           /* points as they are */
        0, 13, 0,    4,    0,    2,    4, 3}; /* ECDSA with SHA-256 */
    uint8_t hello[HEAD + RANDOM + sizeof tail] = {
        22, 3, 1, 0, sizeof hello - RECORD, 1, 0, 0, sizeof hello - RECORD - 4, 3, minor};
    memcpy(hello + HEAD + RANDOM, tail, sizeof tail);
    uint8_t answer[11];
    const int fd = connect_to(port);
    CHECK_EQ(send(fd, hello, sizeof hello, MSG_NOSIGNAL), (int64_t)sizeof hello);
    CHECK_EQ(recv(fd, answer, 7, MSG_WAITALL), 7);
    const bool is_alert = answer[0] == 21;
    if (is_alert) CHECK_EQ(answer[6], 70); /* protocol_version, and for no other reason */
    if (!is_alert) CHECK_EQ(recv(fd, answer + 7, 4, MSG_WAITALL), 4);
    CHECK(is_alert || (answer[0] == 22 && answer[5] == 2)); /* ServerHello */
    close(fd);
    return is_alert ? 0 : (unsigned)answer[9] << 8 | answer[10];
}

/* TLS 1.2, and nothing older, however well the rest of it would do. */
static void test_version(void) {
    char url[OMM_URL_BYTES_MAX];
    pair p = make_pair();
    omm_server *server = open_server(url, &p, "127.0.0.1");
    CHECK_EQ(version_for(omm_server_port(server), 3), 0x303);
    CHECK_EQ(version_for(omm_server_port(server), 2), 0); /* 1.1 */
    CHECK_EQ(version_for(omm_server_port(server), 1), 0);
    CHECK_EQ(version_for(omm_server_port(server), 0), 0);
    omm_server_close(server);
    free_pair(&p);
}

static void test_refusals(void) {
    pair p = make_pair(), q = make_pair();
    omm_server *server;
    omm_client *client;
    omm_digest one, two;
    omm_server_options options = omm_server_options_default();
    omm_client_options client_options = omm_client_options_default();
    CHECK_OK(omm_server_open(&server, &options));
    CHECK_ERR(omm_server_listen(server, "tls+tcp://127.0.0.1:0"), OMM_ERR_CONFIG);
    omm_server_close(server);
    CHECK_ERR(omm_client_open(&client, "tls+tcp://127.0.0.1:1", &client_options), OMM_ERR_CONFIG);
    client_options.tls_certificate = omm_bytes_str("not a certificate");
    CHECK_ERR(omm_client_open(&client, "tls+tcp://127.0.0.1:1", &client_options), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_detail(), "keygen --tls"));
    options.tls_certificate = omm_buf_view(&p.certificate);
    options.tls_key = omm_buf_view(&q.key);
    CHECK_ERR(omm_server_open(&server, &options), OMM_ERR_MISMATCH);
    options.tls_key = omm_bytes_str("no key");
    CHECK_ERR(omm_server_open(&server, &options), OMM_ERR_FORMAT);
    CHECK_OK(omm_tls_check_pair(omm_buf_view(&p.certificate), omm_buf_view(&p.key)));
    CHECK_OK(omm_tls_fingerprint(&one, omm_buf_view(&p.certificate)));
    CHECK_OK(omm_tls_fingerprint(&two, omm_buf_view(&q.certificate)));
    CHECK(!omm_digest_equal(&one, &two));
    CHECK_ERR(omm_tls_fingerprint(&one, omm_bytes_of(NULL, 0)), OMM_ERR_FORMAT);
    CHECK_ERR(omm_tls_fingerprint(&one, omm_bytes_of("a\0b", 3)), OMM_ERR_FORMAT);
    CHECK_ERR(omm_tls_fingerprint(&one, omm_buf_view(&p.key)), OMM_ERR_FORMAT);
    for (size_t cut = 1; cut + 1 < p.certificate.size; cut += 7) /* the last byte is a newline */
        CHECK_ERR(omm_tls_fingerprint(&one, omm_bytes_of(p.certificate.data, cut)), OMM_ERR_FORMAT);
    free_pair(&p);
    free_pair(&q);
}

/* From 2001-02-03 to 2002-03-04. */
static const char s_old[] = "-----BEGIN CERTIFICATE-----\n"
                            "MIIBCDCBr6ADAgECAgFNMAoGCCqGSM49BAMCMA4xDDAKBgNVBAMMA29sZDAeFw0w\n"
                            "MTAyMDMwMDAwMDBaFw0wMjAzMDQwMDAwMDBaMA4xDDAKBgNVBAMMA29sZDBZMBMG\n"
                            "ByqGSM49AgEGCCqGSM49AwEHA0IABATD1OKRB91ebdA+Kd5GFN7dZQZ/VjESCk7E\n"
                            "lVmrosqWU2A6ZR/SwsqfsBNTCoPV+81HMdzI50s3FZIeAzJ7bHwwCgYIKoZIzj0E\n"
                            "AwIDSAAwRQIgaVqvdXXavfRIu1FFLPRoLZSO0jZk+Fos+1acaD5U3IUCIQDJAfuu\n"
                            "Jc+TZ6yqVvUHQGbhyTU/h1FYLumAE6zZMz+EOg==\n"
                            "-----END CERTIFICATE-----\n";

/* One that is valid is enough: the old one and its successor in one file. */
static void test_time(void) {
    pair p = make_pair();
    omm_buf both;
    omm_buf_init(&both, OMM_TLS_PEM_BYTES_MAX);
    CHECK_OK(omm_tls_check_time(omm_buf_view(&p.certificate)));
    CHECK_ERR(omm_tls_check_time(omm_bytes_str(s_old)), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "valid from 2001-02-03 to 2002-03-04, and it is 20"));
    CHECK_OK(omm_buf_printf(&both, "%s%.*s", s_old, (int)p.certificate.size,
                            (const char *)p.certificate.data));
    CHECK_OK(omm_tls_check_time(omm_buf_view(&both)));
    CHECK_ERR(omm_tls_check_time(omm_bytes_str("none")), OMM_ERR_FORMAT);
    omm_buf_fini(&both);
    free_pair(&p);
}

/* Out of memory at any place: an error, both buffers as they were. */
static void test_no_memory(void) {
    pair p = {0};
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        CHECK(nth < 100);
        omm_buf_init(&p.certificate, OMM_TLS_PEM_BYTES_MAX);
        omm_buf_init(&p.key, OMM_TLS_PEM_BYTES_MAX);
        omm_mem_fail_nth(nth);
        err = omm_tls_make(&p.certificate, &p.key);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) CHECK_EQ(p.certificate.size + p.key.size, 0);
        if (err == OMM_OK) CHECK(p.certificate.size > 0 && p.key.size > 0);
        free_pair(&p);
    }
    /* Too small a buffer for the second part: the first is taken back. */
    omm_buf_init(&p.certificate, 100);
    omm_buf_init(&p.key, OMM_TLS_PEM_BYTES_MAX);
    CHECK_ERR(omm_tls_make(&p.certificate, &p.key), OMM_ERR_TOO_BIG);
    CHECK_EQ(p.certificate.size + p.key.size, 0);
    free_pair(&p);
}

int main(void) {
    test_through("127.0.0.1");
    if (has_ipv6()) {
        test_through("[::1]");
    } else {
        printf("no IPv6 here: only IPv4 was tried\n");
    }
    test_others_shut_out();
    test_rotation();
    test_form();
    test_name();
    test_stalled_handshakes();
    test_silent_coordinator();
    test_version();
    test_refusals();
    test_time();
    test_no_memory();
    return 0;
}
