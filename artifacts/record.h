/* record.h - building and taking apart the JSON objects of evidence.h; used in this folder only.
 *
 * A record_out collects members and remembers the first failure; record_finish writes the object.
 * A record_in does the same for reading; record_close also refuses any other spelling, by writing
 * what was read and comparing bytes.
 */
#ifndef ARTIFACTS_RECORD_H
#define ARTIFACTS_RECORD_H

#include "omm/bytes.h"
#include "omm/hash.h"
#include "omm/json.h"
#include "omm/mem.h"

typedef struct record_out {
    json_t *object;
    omm_err err;
} record_out;

record_out record_begin(void);
void record_put(record_out *r, const char *key, json_t *take_value);   /* NULL: out of memory */
void record_put_str(record_out *r, const char *key, const char *text); /* bad UTF-8: U+FFFD */
void record_put_u64(record_out *r, const char *key, uint64_t v);       /* at most 2^63 - 1 */
void record_put_real(record_out *r, const char *key, double v);
void record_put_bool(record_out *r, const char *key, bool v);
void record_put_digest(record_out *r, const char *key, const omm_digest *d);
void record_put_digest_if(record_out *r, const char *key, const omm_digest *d, bool present);
void record_put_hex(record_out *r, const char *key, omm_bytes bytes);
void record_put_digests(record_out *r, const char *key, const omm_digest *d, size_t count);
/* The object, for nesting; NULL after a failure, which moves to `parent`. */
void record_put_record(record_out *parent, const char *key, record_out *take);
void record_append_record(record_out *parent, json_t *array, record_out *take);
OMM_CHECKED omm_err record_finish(omm_buf *out, record_out *take);
/* Frees the object after a failure before finish. */
void record_drop(record_out *r);

typedef struct record_in {
    json_t *object; /* owned at the root, borrowed below it */
    omm_arena *arena;
    omm_err err;
} record_in;

/* `name` for messages.  r->err tells. */
record_in record_open(omm_bytes text, const char *name, omm_arena *arena);
record_in record_sub(record_in *r, const char *key);
/* Element of an array of objects. */
record_in record_item(record_in *parent, json_t *array, size_t index);
void record_fail(record_in *r, omm_err err);
const char *record_get_str(record_in *r, const char *key, size_t bytes_max);
uint64_t record_get_u64(record_in *r, const char *key, uint64_t max);
double record_get_real(record_in *r, const char *key);
bool record_get_bool(record_in *r, const char *key);
omm_digest record_get_digest(record_in *r, const char *key);
/* null: false and a zero digest. */
bool record_get_digest_if(omm_digest *out, record_in *r, const char *key);
void record_get_hex(record_in *r, const char *key, uint8_t *out, size_t size);
omm_bytes record_get_blob(record_in *r, const char *key, size_t bytes_max); /* hex, any size */
json_t *record_get_array(size_t *count, record_in *r, const char *key, size_t count_max);
omm_digest *record_get_digests(size_t *count, record_in *r, const char *key, size_t count_max);
void *record_alloc(record_in *r, size_t count, size_t size); /* in the arena */
/* Frees a root; returns the first failure, that a member is missing as FORMAT. */
OMM_CHECKED omm_err record_end(record_in *root);
/* The strict part: `again` is what the writer makes of the parsed record. */
OMM_CHECKED omm_err record_same(omm_bytes text, const omm_buf *again, const char *name);

#endif
