/* jinja_shape.h - the parts of a chat template compared with a shape that is known.
 *
 * A form is a text in which $ stands for a name that the template chose: "for $ in tools".  What is
 * compared is in the one spelling of jinja_parts.h.
 *
 * Depends on: bytes, jinja_parts.  Threads: no shared state. */
#ifndef TEXT_JINJA_SHAPE_H
#define TEXT_JINJA_SHAPE_H

#include "jinja_parts.h"

#define JINJA_NO_NAME omm_bytes_of("", 0)

bool jinja_starts_with(omm_bytes text, const char *start);
bool jinja_ends_with(omm_bytes text, const char *end);
/* What stands between the two; *found: they are there. */
omm_bytes jinja_between(bool *found, omm_bytes text, const char *start, const char *end);
/* The text is the form, all of it, with this name. */
bool jinja_fits(omm_bytes text, const char *form, omm_bytes name);
bool jinja_fits_one(omm_bytes text, const char *const forms[], size_t count, omm_bytes name);
#define JINJA_FITS_ONE(text, forms, name)                                                          \
    jinja_fits_one(text, forms, sizeof(forms) / sizeof *(forms), name)
/* A name between the two, if it is none of those that conditions have (loop, messages, tools,
 * content); else empty. */
omm_bytes jinja_name_between(omm_bytes text, const char *start, const char *end);

/* Append what the one literal says that the text is behind `start`.  False, and perhaps some of it appended: it is none, has
 * an escape beyond \n \\ \' \", or *err. */
bool jinja_put_literal(omm_err *err, omm_buf *out, omm_bytes text, const char *start);

/* The next part to be compared. */
typedef struct jinja_cursor {
    const jinja_parts *parts;
    size_t at;
} jinja_cursor;

/* The next part is this: on to the one behind it. */
bool jinja_take(jinja_cursor *c, jinja_kind kind, const char *form, omm_bytes name);

/* The same of a form without a name. */
static inline bool jinja_takes(jinja_cursor *c, jinja_kind kind, const char *text) {
    return jinja_take(c, kind, text, JINJA_NO_NAME);
}

/* A run of parts, each a letter for its kind (T, O, B) and a form: "Bif tools".  How many there are from `at` on; 0: they are
 * other ones. */
size_t jinja_run(const jinja_parts *p, size_t at, const char *const run[], size_t count,
                 omm_bytes name);
#define JINJA_RUN(p, at, run, name) jinja_run(p, at, run, sizeof(run) / sizeof *(run), name)

/* A statement that begins with this word; none that is read begins with another's. */
bool jinja_begins(const jinja_parts *p, size_t at, const char *word);
/* +1 where an if or a for begins, -1 where it ends. */
int jinja_step(const jinja_parts *p, size_t at);
/* From an if, a for or one of its branches: its next branch, or its end; the count of parts where
 * there is none. */
size_t jinja_next_branch(const jinja_parts *p, size_t at);
size_t jinja_end_of(const jinja_parts *p, size_t at); /* the same, its end alone */
/* What an if or an elif asks; empty: it is neither. */
omm_bytes jinja_condition(const jinja_parts *p, size_t at);
/* It writes nothing, and `messages` and `tools` are what they were. */
bool jinja_is_silent(const jinja_parts *p, size_t at);

#endif
