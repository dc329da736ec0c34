/* mhd.c - see mhd.h. */
#include "omm/mhd.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libmicrohttpd.so.12"
#define BACKLOG 32

static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static omm_mhd_functions s_functions;
static bool s_is_loaded;

static omm_err missing(void) {
    const char *why = dlerror();
    return omm_raise(OMM_ERR_UNSUPPORTED, "http: needs %s (package libmicrohttpd12): %s", LIBRARY,
                     why ? why : "not found");
}

static omm_err load(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return missing();
#define XX(name)                                                                                   \
    {                                                                                              \
        void *found = dlsym(library, "MHD_" #name);                                                \
        if (!found) return missing(); /* the library stays: gnutls does not like to go */          \
        memcpy(&s_functions.name, &found, sizeof found);                                           \
    }
    OMM_MHD_MAP(XX)
#undef XX
    s_is_loaded = true;
    return OMM_OK;
}

omm_err omm_mhd_load(void) {
    pthread_mutex_lock(&s_mutex);
    omm_err err = s_is_loaded ? OMM_OK : load();
    pthread_mutex_unlock(&s_mutex);
    return err;
}

const omm_mhd_functions *omm_mhd(void) {
    OMM_ASSERT(s_is_loaded);
    return &s_functions;
}

/* ---- the socket ---- */

typedef struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t size;
} address;

static omm_err bad_address(const char *text) {
    return omm_raise(OMM_ERR_CONFIG,
                     "http: %s; accepted: an address of this machine and a port, as "
                     "127.0.0.1:8080, localhost:8080 or [::1]:8080",
                     text);
}

/* "HOST:PORT", "[HOST]:PORT" for IPv6: digits and nothing else is a port. */
static omm_err parse_address(address *out, const char *text) {
    char host[64] = "";
    char *end = NULL;
    *out = (address){0};
    const bool v6 = text[0] == '[';
    const char *colon = strrchr(text, ':');
    const char *first = v6 ? text + 1 : text;
    const char *last = colon && v6 ? colon - 1 : colon; /* behind the host */
    if (!last || last <= first || (v6 && *last != ']') || (size_t)(last - first) >= sizeof host ||
        colon[1] < '0' || colon[1] > '9')
        return bad_address(text);
    memcpy(host, first, (size_t)(last - first));
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end || port > 65535) return bad_address(text);
    out->size = v6 ? sizeof out->at.v6 : sizeof out->at.v4;
    out->at.any.sa_family = v6 ? AF_INET6 : AF_INET;
    void *into = v6 ? (void *)&out->at.v6.sin6_addr : (void *)&out->at.v4.sin_addr;
    if (strcmp(host, "localhost") == 0) memcpy(host, "127.0.0.1", sizeof "127.0.0.1");
    if (inet_pton(v6 ? AF_INET6 : AF_INET, host, into) != 1) return bad_address(text);
    *(v6 ? &out->at.v6.sin6_port : &out->at.v4.sin_port) = htons((uint16_t)port);
    return OMM_OK;
}

static omm_err bind_socket(int fd, unsigned *port, const char *text, address *a) {
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &a->at.any, a->size) != 0 || listen(fd, BACKLOG) != 0)
        return omm_raise(errno == EADDRINUSE ? OMM_ERR_STATE : OMM_ERR_IO,
                         "http: cannot listen on %s: %s", text, strerror(errno));
    if (getsockname(fd, &a->at.any, &a->size) != 0)
        return omm_raise(OMM_ERR_IO, "http: %s", strerror(errno));
    *port = ntohs(a->at.any.sa_family == AF_INET6 ? a->at.v6.sin6_port : a->at.v4.sin_port);
    return OMM_OK;
}

bool omm_mhd_can_listen(const char *text) {
    address a;
    return parse_address(&a, text) == OMM_OK;
}

omm_err omm_mhd_listen(int *fd, unsigned *port, const char *text) {
    address a;
    OMM_TRY(parse_address(&a, text));
    *fd = socket(a.at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return omm_raise(OMM_ERR_IO, "http: no socket: %s", strerror(errno));
    omm_err err = bind_socket(*fd, port, text, &a);
    if (err != OMM_OK) (void)close(*fd);
    if (err != OMM_OK) *fd = -1;
    return err;
}

bool omm_mhd_is_local(int fd) {
    address a = {.size = sizeof a.at};
    if (getsockname(fd, &a.at.any, &a.size) != 0) return false;
    if (a.at.any.sa_family == AF_INET) return ntohl(a.at.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a.at.v6.sin6_addr);
}

/* ---- who is asked ---- */

bool omm_mhd_is_host(const char *host, const char *name) {
    const size_t size = strlen(name);
    return host && strncasecmp(host, name, size) == 0 && (host[size] == 0 || host[size] == ':');
}

bool omm_mhd_is_address(const char *host) {
    return !host || omm_mhd_is_host(host, "localhost") || host[0] == '[' ||
           strspn(host, "0123456789.:") == strlen(host);
}
