/* nng_glue.h - what the two ends of the transport share: urls, errors, timed waits.
 *
 * Depends on: base; nng.  Threads: see each function.
 */
#ifndef OMM_PROTO_NNG_GLUE_H
#define OMM_PROTO_NNG_GLUE_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* nng counts the 4-byte request id into the size that it limits. */
#define NNG_REQUEST_ID_BYTES 4u

bool glue_is_tls(const char *url);
/* A server's (with `key`) or a client's (without) TLS configuration, PEM in.  Free with
 * nng_tls_config_free; who dials or listens with it holds it by itself.
 * Errors: FORMAT, MISMATCH, NOMEM, IO. */
OMM_CHECKED omm_err glue_tls_config(nng_tls_config **out, omm_bytes certificates, omm_bytes key);
/* The code for an nng result that is not 0; raises with what was being done. */
OMM_CHECKED omm_err glue_error(int result, const char *doing, const char *what);
/* What an nng result of an attempt to connect says about the other end, and what to look at; 0: none has ended. */
const char *glue_why(int result);

/* A condition that is timed on the monotonic clock. */
void glue_cond_init(pthread_cond_t *cond);
/* Wait until *deadline; false when it has passed.  timeout OMM_WAIT_FOREVER never passes. */
typedef struct glue_deadline {
    struct timespec at;
    bool is_never;
} glue_deadline;
glue_deadline glue_deadline_in(uint64_t timeout_ms);
bool glue_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, const glue_deadline *deadline);

#endif
