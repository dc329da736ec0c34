/* nng_glue.c - owns urls, error codes and timed waits of the transport. */
#include "nng_glue.h"

#include "omm/transport.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_MS_MAX (UINT64_C(1000) * 60 * 60 * 24 * 365) /* longer is forever */

static const char s_addresses[] =
    "; accepted: tls+tcp://ADDRESS:PORT, tcp://ADDRESS:PORT or ipc://PATH";

/* Behind the host, or the ']' of one that is an address of IPv6: without one any free port would be taken. */
static bool has_port(const char *place) {
    const char *host_end = place[0] == '[' ? strchr(place, ']') : place;
    const char *colon = host_end ? strrchr(host_end, ':') : NULL;
    if (!colon) return false;
    const char *port = colon + 1;
    const size_t digits = strspn(port, "0123456789");
    return digits > 0 && digits <= 5 && !port[digits] && strtoul(port, NULL, 10) <= 65535;
}

omm_err omm_url_check(const char *url) {
    static const char *const kinds[] = {"tcp://", "tls+tcp://", "ipc://", "inproc://"};
    size_t size = strnlen(url, OMM_URL_BYTES_MAX + 1);
    if (size > OMM_URL_BYTES_MAX) {
        return omm_raise(OMM_ERR_CONFIG, "url is over %u bytes", OMM_URL_BYTES_MAX);
    }
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(url, kinds[i], n) != 0 || size <= n) continue;
        if (!strstr(kinds[i], "tcp") || has_port(url + n)) return OMM_OK;
        return omm_raise(OMM_ERR_CONFIG, "%s: it has no port%s", url, s_addresses);
    }
    return omm_raise(OMM_ERR_CONFIG,
                     "\"%s\" is no url here; accepted: tls+tcp://host:port, tcp://host:port, "
                     "ipc:///path, inproc://name",
                     url);
}

bool glue_is_tls(const char *url) {
    return strncmp(url, "tls+tcp://", 10) == 0;
}

omm_err glue_error(int result, const char *doing, const char *what) {
    omm_err err = OMM_ERR_IO;
    switch (result) {
    case NNG_ENOMEM: err = OMM_ERR_NOMEM; break;
    case NNG_EADDRINUSE: err = OMM_ERR_STATE; break; /* it may pass */
    case NNG_EINVAL:
    case NNG_EADDRINVAL:
    case NNG_ENOTSUP: err = OMM_ERR_CONFIG; break;
    case NNG_ECLOSED:
    case NNG_ECONNRESET:
    case NNG_ECONNABORTED:
    case NNG_ECONNSHUT: err = OMM_ERR_CLOSED; break;
    default: break;
    }
    return omm_raise(err, "%s %s: %s%s", doing, what, nng_strerror(result),
                     result == NNG_EADDRINVAL || result == NNG_ENOTSUP ? s_addresses : "");
}

const char *glue_why(int result) {
    switch (result) {
    case 0: return "not connected: no attempt has ended yet";
    case NNG_ECONNREFUSED: return "connection refused: nobody listens at that address and port";
    case NNG_EADDRINVAL: return "the address is no address, or its name is not known here";
    case NNG_ETIMEDOUT:
    case NNG_EUNREACHABLE:
        return "nothing comes back from that address: it is wrong, or a network or firewall is "
               "between";
    case NNG_EPEERAUTH:
    case NNG_ECRYPTO: /* this nng does not tell them apart */
        return "no TLS: the certificate there is not that of tls_certificate or not valid by this "
               "clock, or it is tcp:// there";
    case NNG_ECLOSED:
    case NNG_ECONNSHUT:
    case NNG_ECONNRESET:
    case NNG_ECONNABORTED:
    case NNG_EPROTO:
        return "the other end closes the connection: it is tls+tcp:// there, another program, "
               "full, or takes no message so long";
    default: return nng_strerror(result);
    }
}

void glue_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    OMM_ASSERT(pthread_condattr_init(&attr) == 0);
    OMM_ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    OMM_ASSERT(pthread_cond_init(cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

glue_deadline glue_deadline_in(uint64_t timeout_ms) {
    glue_deadline d = {.is_never = timeout_ms >= WAIT_MS_MAX};
    if (d.is_never) return d;
    OMM_ASSERT(clock_gettime(CLOCK_MONOTONIC, &d.at) == 0);
    d.at.tv_sec += (time_t)(timeout_ms / 1000);
    d.at.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
    if (d.at.tv_nsec >= 1000000000L) {
        d.at.tv_nsec -= 1000000000L;
        d.at.tv_sec++;
    }
    return d;
}

bool glue_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, const glue_deadline *deadline) {
    if (deadline->is_never) return pthread_cond_wait(cond, mutex) == 0;
    return pthread_cond_timedwait(cond, mutex, &deadline->at) == 0;
}
