/* door.c - see door.h. */
#include "door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static door *s_doors;

void door_open(door *d) {
    pthread_mutex_lock(&s_mutex);
    d->next = s_doors;
    s_doors = d;
    pthread_mutex_unlock(&s_mutex);
}

void door_close(door *d) {
    pthread_mutex_lock(&s_mutex);
    for (door **at = &s_doors; *at; at = &(*at)->next) {
        if (*at != d) continue;
        *at = d->next;
        break;
    }
    pthread_mutex_unlock(&s_mutex);
}

/* 0: not of TCP. */
static unsigned port_of(int listener) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0) return 0;
    if (address.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return 0;
}

static bool lets_in(int listener, int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    const unsigned port = port_of(listener);
    bool is_in = true;
    if (port == 0) return true;
    pthread_mutex_lock(&s_mutex);
    const door *d = s_doors;
    while (d && d->port != port) d = d->next;
    if (d && getpeername(fd, (struct sockaddr *)&address, &size) == 0)
        is_in = d->ask(d->ud, fd, &address);
    pthread_mutex_unlock(&s_mutex);
    return is_in;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's are not for others to use */
int accept4(int listener, __SOCKADDR_ARG address, socklen_t *restrict size, int flags) {
    const int fd =
        (int)syscall(SYS_accept4, listener, (struct sockaddr *)address.__sockaddr__, size, flags);
    if (fd < 0 || lets_in(listener, fd)) return fd;
    (void)close(fd);
    errno = ECONNABORTED; /* its caller takes the next one */
    return -1;
}

int accept(int listener, __SOCKADDR_ARG address, socklen_t *restrict size) {
    return accept4(listener, address, size, 0);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
