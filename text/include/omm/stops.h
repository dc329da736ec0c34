/* stops.h - texts that end an answer, found while it is written.
 *
 * A stop text may straddle any number of pieces.  What may still become one is held back, at most the
 * longest text less one byte; everything before goes on at once.
 *
 *   texts {"[INST]"}   pieces "ok [" "IN" "TO " ...  ->  "ok " "" "[INTO "
 *                      pieces "ok [" "INST] x"       ->  "ok " ""  stopped
 *
 * Depends on: err, bytes.  Threads: an omm_stops belongs to one stream.
 */
#ifndef OMM_STOPS_H
#define OMM_STOPS_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stddef.h>

#define OMM_STOPS_MAX 40u /* 32 of a command line, and a chat template's own */
#define OMM_STOP_BYTES_MAX 256u

typedef struct omm_stops {
    omm_bytes texts[OMM_STOPS_MAX]; /* borrowed */
    size_t count;
    omm_buf held;
    bool stopped;
} omm_stops;

void omm_stops_init(omm_stops *stops);
void omm_stops_fini(omm_stops *stops);
/* Add a text, borrowed until fini; before the first push.
 * Errors: USAGE (empty, longer than OMM_STOP_BYTES_MAX, or more than OMM_STOPS_MAX of them). */
OMM_CHECKED omm_err omm_stops_add(omm_stops *stops, omm_bytes text);
/* Append to `out` what of the text so far can no longer belong to a stop text.  At a stop text, what
 * stands before the first of them, and stops->stopped is set: nothing comes out any more.
 * Errors: NOMEM, TOO_BIG; then nothing has changed. */
OMM_CHECKED omm_err omm_stops_push(omm_buf *out, omm_stops *stops, omm_bytes text);
/* End of the text: what was held back.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_stops_flush(omm_buf *out, omm_stops *stops);

#endif
