/* json.h - JSON in, JSON out, in one spelling, over jansson's json_t.
 *
 * Canonical spelling: keys sorted by bytes, no spaces, UTF-8 unescaped, reals as %.17g, one final
 * newline.  Equal values give equal bytes.  A real with a whole value keeps ".0", so that it stays a
 * real when read back; -0.0 keeps its sign.
 *
 * jansson's lexer reads past its buffer when an allocation fails inside it.  So jansson gets memory
 * or the process ends with a message: its values are never NULL for want of memory, and the
 * documents that we parse are limited in size.
 *
 * Depends on: err, bytes, file; jansson.  Threads: a json_t belongs to one thread at a time.
 */
#ifndef OMM_JSON_H
#define OMM_JSON_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define OMM_JSON_BYTES_MAX                                                                         \
    ((size_t)256 << 20) /* of a text: a manifest of a million files has 235 MB */

/* Parse one document; `name` (file name, "line 12 of x.jsonl") stands in error messages.
 * Refuses duplicate keys, NaN and infinity, and trailing bytes.  Any value may stand alone.  Caller decrefs.
 * Errors: FORMAT (with line and column; also nesting over 2048), TOO_BIG (over OMM_JSON_BYTES_MAX). */
OMM_CHECKED omm_err omm_json_parse(json_t **out, omm_bytes text, const char *name);
/* omm_json_parse of data that others have written: an integer that 64 bits do not hold is a real of about its value, 2^63 or more
 * without its sign, and *is_wide says that there is one (it may be true after an error, too).  All else is as it would be.
 * Errors: also NOMEM. */
OMM_CHECKED omm_err omm_json_parse_wide(json_t **out, bool *is_wide, omm_bytes text,
                                        const char *name);
/* The same of what a client asks: a text may have U+0000 in it, behind which json_string_length goes on; a key may not.  Below
 * the members `texts` (NULL at the end) of the outermost object half of a surrogate pair is U+FFFD. */
OMM_CHECKED omm_err omm_json_parse_asked(json_t **out, omm_bytes text, const char *const *texts,
                                         const char *name);
/* Has a text in it, at any depth, a U+0000? */
bool omm_json_has_nul(json_t *value);
/* omm_json_parse of what a model or a client has written: of a member that stands twice the last one counts, as most readers have it. */
OMM_CHECKED omm_err omm_json_parse_last(json_t **out, omm_bytes text, const char *name);
/* omm_json_parse for a file.  Errors: NOT_FOUND, IO, FORMAT, TOO_BIG (over bytes_max), NOMEM. */
OMM_CHECKED omm_err omm_json_load(json_t **out, const char *path, size_t bytes_max);

/* Append the canonical spelling.  Errors: NOMEM, TOO_BIG, FORMAT (value is NULL or cyclic).
 * On error the buffer is unchanged. */
OMM_CHECKED omm_err omm_json_write(omm_buf *out, const json_t *value);
/* For a model to read, as Python's json.dumps has it with ensure_ascii off, which chat templates use: ", " and ": ", keys in
 * their order, the fewest digits that give a real back (19.99, 1e-05).  No newline behind.  Errors: as omm_json_write. */
OMM_CHECKED omm_err omm_json_write_spaced(omm_buf *out, json_t *value);
/* The same with `indent` spaces for each level, as json.dumps has it with indent: an entry a line. */
OMM_CHECKED omm_err omm_json_write_indented(omm_buf *out, json_t *value, unsigned indent);
/* Indented by two, keys sorted: for files that people read.  Deterministic too. */
OMM_CHECKED omm_err omm_json_write_pretty(omm_buf *out, const json_t *value);
/* omm_json_write_pretty to a file, atomically. */
OMM_CHECKED omm_err omm_json_save(const char *path, const json_t *value);

/* Set a member; an existing one is replaced.  `omm_json_set` takes the reference.
 * Errors: FORMAT (text or key is not UTF-8; NULL for a value), NUMERIC (not finite). */
OMM_CHECKED omm_err omm_json_set(json_t *object, const char *key, json_t *taken);
OMM_CHECKED omm_err omm_json_set_str(json_t *object, const char *key, const char *text);
/* A text of the system's, as a path or an argument, which need not be UTF-8: '?' for each byte that is none.  Of one that is its own
 * bytes. */
json_t *omm_json_text(const char *text);
OMM_CHECKED omm_err omm_json_set_int(json_t *object, const char *key, int64_t value);
OMM_CHECKED omm_err omm_json_set_real(json_t *object, const char *key, double value);
OMM_CHECKED omm_err omm_json_set_bool(json_t *object, const char *key, bool value);
OMM_CHECKED omm_err omm_json_set_digest(json_t *object, const char *key, const uint8_t digest[32]);

/* Typed access to members; errors name the member and what was found.
 * Errors: NOT_FOUND (missing), FORMAT (another type, or out of range). */
OMM_CHECKED omm_err omm_json_get_str(const char **out, const json_t *object, const char *key);
OMM_CHECKED omm_err omm_json_get_int(int64_t *out, const json_t *object, const char *key,
                                     int64_t min, int64_t max);
OMM_CHECKED omm_err omm_json_get_real(double *out, const json_t *object, const char *key);
OMM_CHECKED omm_err omm_json_get_bool(bool *out, const json_t *object, const char *key);
OMM_CHECKED omm_err omm_json_get_object(json_t **out, const json_t *object, const char *key);
OMM_CHECKED omm_err omm_json_get_array(json_t **out, const json_t *object, const char *key);
/* Errors: FORMAT when not 64 lower-case hex digits. */
OMM_CHECKED omm_err omm_json_get_digest(uint8_t out[32], const json_t *object, const char *key);

#endif
