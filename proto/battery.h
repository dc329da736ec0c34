/* battery.h - what every message must stand, whatever it says: one list of forms, one set of tests.
 *
 * A form decodes bytes and encodes what it got, so tests need to know nothing about the message. */
#ifndef OMM_PROTO_BATTERY_H
#define OMM_PROTO_BATTERY_H

#include "omm/enrolment.h"
#include "omm/messages.h"

/* Decode `in`, and on success append the encoding of what was decoded to `again`. */
typedef omm_err (*form_pass)(omm_buf *again, omm_bytes in, omm_arena *arena);
typedef omm_err (*form_sample)(omm_buf *out);

typedef struct form {
    const char *name;
    form_sample sample; /* append a valid message */
    form_pass pass;
} form;

extern const form forms[];
extern const unsigned form_count;

#endif
