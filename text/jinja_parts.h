/* jinja_parts.h - a chat template taken apart: what it writes as it stands, what it computes, and
 * its statements.
 *
 *   {{- 'Hi ' + x["name"] }} {%- if a  ==  "b" -%} ! {%- endif %}
 *   TEXT |Hi |  OUTPUT |x.name|  BLOCK |if a=='b'|  TEXT |!|  BLOCK |endif|
 *
 * Nothing is run (a template is a program of whoever made the file), so that whoever looks for a
 * shape in the parts has to see all of it.  White space and line ends go where Jinja leaves them
 * out with trim_blocks and lstrip_blocks.  A TEXT is written whenever its place is reached: raw
 * text, and the literals of a sum; a literal of any other expression is none, nor is one with an
 * escape beyond \n \r \t \\ \' \".  Source is given in one spelling: space only between words,
 * strings in '' where they allow it, x.name for x['name'].  What macro, call, filter, raw and a set
 * without = have in them is left out behind the one BLOCK that opens it; comments are nothing.
 *
 * Depends on: bytes.  Threads: no shared state. */
#ifndef TEXT_JINJA_PARTS_H
#define TEXT_JINJA_PARTS_H

#include "omm/bytes.h"

enum { JINJA_PARTS_MAX = 4096, JINJA_BYTES_MAX = 1 << 18 }; /* published ones: some 200, 20 KB */

typedef enum jinja_kind { JINJA_TEXT, JINJA_OUTPUT, JINJA_BLOCK } jinja_kind;

typedef struct jinja_part {
    jinja_kind kind;
    size_t at, size; /* in the text of them all */
} jinja_part;

typedef struct jinja_parts {
    omm_buf text;
    jinja_part *list;
    size_t count;
} jinja_parts;

/* No part at all of a template that cannot be read: too large, cut, or with a statement beyond if,
 * for, set, generation and those above (break is one).  `out` is initialised in any case.
 * Errors: NOMEM. */
OMM_CHECKED omm_err jinja_parts_read(jinja_parts *out, omm_bytes jinja);
/* The same for whoever compares all of it, part by part: what macros have in them stands there, too, before a BLOCK
 * `endmacro`, and break and continue are BLOCKs.  Errors: NOMEM. */
OMM_CHECKED omm_err jinja_parts_read_all(jinja_parts *out, omm_bytes jinja);
void jinja_parts_fini(jinja_parts *parts);

static inline bool jinja_is(const jinja_parts *parts, size_t at, jinja_kind kind) {
    return at < parts->count && parts->list[at].kind == kind;
}

/* Borrowed; empty where there is no such part. */
static inline omm_bytes jinja_text(const jinja_parts *parts, size_t at) {
    if (at >= parts->count || parts->list[at].size == 0) return omm_bytes_of("", 0);
    return omm_bytes_of(parts->text.data + parts->list[at].at, parts->list[at].size);
}

static inline bool jinja_is_word(uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

#endif
