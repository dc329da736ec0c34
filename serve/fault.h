/* fault.h - why a request is refused, as OpenAI's API says it.
 *
 * Depends on: err.  Threads: no shared state.
 */
#ifndef SERVE_FAULT_H
#define SERVE_FAULT_H

#include "omm/err.h"

#include <stdarg.h>
#include <stdbool.h>

typedef struct fault {
    unsigned status;   /* of HTTP: 400, 404, ... */
    const char *type;  /* "invalid_request_error" */
    const char *code;  /* "model_not_found", or NULL */
    const char *param; /* the member; NULL: none */
    char message[512];
} fault;

/* A 400 about that member.  Always false, for `return fault_refuse(...)`. */
bool fault_refuse(fault *why, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool fault_refuse_list(fault *why, const char *param, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));
/* What our own functions say of what the client sent; want of memory is not his fault: a 503.  Always false. */
bool fault_refuse_err(fault *why, const char *param, omm_err err);

#endif
