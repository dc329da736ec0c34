/* fault.c - see fault.h. */
#include "fault.h"

#include <stdio.h>

bool fault_refuse_list(fault *why, const char *param, const char *fmt, va_list args) {
    *why = (fault){.status = 400, .type = "invalid_request_error", .param = param};
    vsnprintf(why->message, sizeof why->message, fmt, args);
    return false;
}

bool fault_refuse(fault *why, const char *param, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)fault_refuse_list(why, param, fmt, args);
    va_end(args);
    return false;
}

bool fault_refuse_err(fault *why, const char *param, omm_err err) {
    (void)fault_refuse(why, param, "%s", omm_err_sentence());
    if (err != OMM_ERR_NOMEM) return false;
    why->status = 503;
    why->type = "server_error";
    why->param = NULL;
    return false;
}
