/* utf8.h - where one character of a text ends and the next begins (RFC 3629).
 *
 * Depends on: bytes.  Threads: no shared state.
 */
#ifndef OMM_UTF8_H
#define OMM_UTF8_H

#include "omm/bytes.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at the start of p[left], 1 to 4; a NUL is one, of 1.  0 if there is none:
 * no byte left, a continuation alone, a character that is cut off, overlong, a surrogate, beyond U+10FFFF. */
unsigned omm_utf8_size(const uint8_t *p, size_t left);
/* Behind a byte order mark, which is no part of a text. */
omm_bytes omm_utf8_without_mark(omm_bytes text);
/* Characters of a text; a byte that is part of none counts as one. */
size_t omm_utf8_count(omm_bytes text);
/* A text of strangers for a terminal: `text`, as much of it as fits `size` with its NUL, with '?' for each control character
 * (C0, DEL, C1). */
void omm_utf8_clean(char *out, size_t size, const char *text);
/* In place: a '?' for each byte that is no part of a character, such as one that was cut off at the end. */
void omm_utf8_mend(char *text);

#endif
