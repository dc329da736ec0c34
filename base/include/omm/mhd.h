/* mhd.h - libmicrohttpd, loaded when a process serves HTTP and not before: it brings gnutls and its
 * libraries, 2.4 MB of memory, into every process that is linked with it, nodes that only wait among them.
 *
 * Depends on: err; libmicrohttpd 1.0's binary interface (libmicrohttpd.so.12).  Threads: any.
 */
#ifndef OMM_MHD_H
#define OMM_MHD_H

#include "omm/err.h"

#include <stdbool.h>

#include <microhttpd.h>

/* What we use of it; MHD_x is omm_mhd()->x. */
#define OMM_MHD_MAP(XX)                                                                            \
    XX(add_response_header)                                                                        \
    XX(create_response_from_buffer)                                                                \
    XX(create_response_from_callback)                                                              \
    XX(destroy_response)                                                                           \
    XX(get_connection_info)                                                                        \
    XX(get_connection_values)                                                                      \
    XX(get_daemon_info)                                                                            \
    XX(get_timeout)                                                                                \
    XX(lookup_connection_value)                                                                    \
    XX(queue_response)                                                                             \
    XX(resume_connection)                                                                          \
    XX(run_wait)                                                                                   \
    XX(start_daemon)                                                                               \
    XX(stop_daemon)                                                                                \
    XX(suspend_connection)

typedef struct omm_mhd_functions {
#define XX(name) __typeof__ (&MHD_##name)(name);
    OMM_MHD_MAP(XX)
#undef XX
} omm_mhd_functions;

/* Once for the process; again is no error.  Errors: UNSUPPORTED (names the package). */
OMM_CHECKED omm_err omm_mhd_load(void);
/* After omm_mhd_load. */
const omm_mhd_functions *omm_mhd(void);

/* Is it "HOST:PORT", as omm_mhd_listen takes it? */
bool omm_mhd_can_listen(const char *address);
/* A socket that listens at "HOST:PORT" ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"; port 0: a free one), not blocking; the caller
 * closes it.  Errors: CONFIG (address), STATE (in use), IO. */
OMM_CHECKED omm_err omm_mhd_listen(int *fd, unsigned *port, const char *address);
/* Does only this machine reach what listens at that socket? */
bool omm_mhd_is_local(int fd);
/* Is a Host header (NULL: none was sent) this name, whatever port it has? */
bool omm_mhd_is_host(const char *host, const char *name);
/* Is it none, localhost or an address?  Another name may be one that somebody has pointed at this machine, and then it is a
 * page of his that asks in a browser here; an address says itself where it leads.  Browsers always send it. */
bool omm_mhd_is_address(const char *host);

#endif
