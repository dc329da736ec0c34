/* internal.h - shared inside store only: named byte strings in a folder, or in memory.
 *
 *   name   "blobs/ab/abcd..." or "partial/abcd.../000012", inside the store
 *
 * Depends on: base.  Threads: one at a time.
 */
#ifndef OMM_STORE_INTERNAL_H
#define OMM_STORE_INTERNAL_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct memory_file {
    char *name;
    uint8_t *data;
    size_t size;
} memory_file;

typedef struct files {
    char *dir;          /* NULL: in memory */
    bool durable;       /* fsync */
    memory_file *items; /* (count), in memory, ascending by name */
    size_t count, capacity;
} files;

OMM_CHECKED omm_err files_open(files *out, const char *dir, bool durable);
void files_close(files *f);

/* Replace atomically.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err files_write(files *f, const char *name, omm_bytes data);
/* Append `size` bytes from `offset`.  Errors: NOT_FOUND, SIZE, TOO_BIG, IO, NOMEM. */
OMM_CHECKED omm_err files_read(omm_buf *out, const files *f, const char *name, uint64_t offset,
                               size_t size);
/* Errors: NOT_FOUND, IO. */
OMM_CHECKED omm_err files_size(uint64_t *size, const files *f, const char *name);
OMM_CHECKED omm_err files_remove(files *f, const char *name); /* missing is no error */
/* Remove everything whose name starts with `prefix` + "/". */
OMM_CHECKED omm_err files_remove_under(files *f, const char *prefix);
/* Bytes of all files. */
OMM_CHECKED omm_err files_total(uint64_t *bytes, const files *f);

#endif
