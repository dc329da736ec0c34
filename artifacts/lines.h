/* lines.h - a bundle's file of lines, read one at a time: what is in memory is the longest line.
 *
 * The file is gone through twice, first for its digest and its shape, then for its lines; one that does not give the same
 * both times is refused, so that whoever goes by the digest goes by these lines.
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef ARTIFACTS_LINES_H
#define ARTIFACTS_LINES_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/file_in.h"
#include "omm/hash.h"

#include <stddef.h>
#include <stdint.h>

typedef struct line_reader {
    omm_file_in in;    /* in.fd < 0: not open */
    uint64_t bytes;    /* of the file */
    size_t count;      /* of its lines */
    omm_digest digest; /* BLAKE2b-256 of it */
    uint64_t offset;   /* of the line that comes next */
    uint64_t taken;    /* bytes that were read for lines */
    omm_hasher hasher; /* of those */
    omm_buf buf;       /* read, from the line at hand on */
    size_t at;         /* in `buf`: the line that comes next */
} line_reader;

/* Close it, also after an error.  Errors: those of omm_bundle_file_find, NOT_FOUND, IO, TOO_BIG (over what the file may have, or
 * over count_max lines), FORMAT (an empty line, or no newline at the end). */
OMM_CHECKED omm_err line_reader_open(line_reader *r, const char *dir, const char *path,
                                     size_t count_max);
/* The next line with its newline, borrowed until the next call; empty at the end.  Errors: IO (also: the file has
 * changed), NOMEM. */
OMM_CHECKED omm_err line_reader_next(omm_bytes *line, line_reader *r);
void line_reader_close(line_reader *r);

#endif
