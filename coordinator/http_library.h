/* http_library.h - libmicrohttpd, loaded when a coordinator serves HTTP and not before: it brings gnutls and its
 * libraries, 2.4 MB of memory, into every process that is linked with it, nodes that only wait among them.
 *
 * Depends on: base; libmicrohttpd 1.0's binary interface (libmicrohttpd.so.12).  Threads: any.
 */
#ifndef COORDINATOR_HTTP_LIBRARY_H
#define COORDINATOR_HTTP_LIBRARY_H

#include "omm/err.h"

#include <microhttpd.h>

/* What we use of it; MHD_x is mhd()->x. */
#define MHD_MAP(XX)                                                                                \
    XX(add_response_header)                                                                        \
    XX(create_response_from_buffer)                                                                \
    XX(destroy_response)                                                                           \
    XX(get_connection_info)                                                                        \
    XX(queue_response)                                                                             \
    XX(run_wait)                                                                                   \
    XX(start_daemon)                                                                               \
    XX(stop_daemon)

typedef struct mhd_functions {
#define XX(name) __typeof__ (&MHD_##name)(name);
    MHD_MAP(XX)
#undef XX
} mhd_functions;

/* Once for the process; again is no error.  Errors: UNSUPPORTED (names the package). */
OMM_CHECKED omm_err mhd_load(void);
/* After mhd_load. */
const mhd_functions *mhd(void);

#endif
