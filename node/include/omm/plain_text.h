/* plain_text.h - text from anywhere, made fit to be shown.
 *
 * Depends on: err, bytes.  Threads: no shared state.
 */
#ifndef OMM_PLAIN_TEXT_H
#define OMM_PLAIN_TEXT_H

#include "omm/bytes.h"
#include "omm/err.h"

/* Append `text` fit for a terminal and for JSON: bytes that are not UTF-8 and control characters
 * other than tab and line feed become '?', and so does what turns the direction of a line (U+202A to 202E, 2066 to 2069)
 * and Unicode's line and paragraph separators.  Errors: NOMEM, TOO_BIG; then `out` is unchanged. */
OMM_CHECKED omm_err omm_text_clean(omm_buf *out, omm_bytes text);

#endif
