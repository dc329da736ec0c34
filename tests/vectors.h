/* vectors.h - what the tests of docs/protocol.json share: members of its objects, and each of a list.
 *
 * Members that are missing or of another kind fail the test.  Texts are borrowed from the object. */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

#include "omm/hash.h"
#include "omm/json.h"
#include "omm_test.h"

enum { FILE_MAX = 1 << 20 };

const char *text_of(const json_t *object, const char *key);
int64_t number_of(const json_t *object, const char *key);
json_t *list_of(const json_t *object, const char *key, size_t least); /* of so many at least */
json_t *object_of(const json_t *object, const char *key);
omm_buf bytes_of(const json_t *object, const char *key); /* hex digits as bytes; fini them */
omm_digest digest_of(const json_t *object, const char *key);

/* `err` is the member "reason". */
void check_reason(const json_t *vector, omm_err err);
void each(const json_t *vectors, const char *key, size_t least, void (*check)(const json_t *));

/* vectors_files.c: what docs/files.md describes. */
void check_files(const json_t *vectors);

#endif
