/* file_in.h - a file read piece by piece, for who has no room for the whole (omm_file_out of file.h is its
 * counterpart).
 *
 * Depends on: err, file.  Threads: no shared state.
 */
#ifndef OMM_FILE_IN_H
#define OMM_FILE_IN_H

#include "omm/err.h"
#include "omm/file.h"

#include <stddef.h>
#include <stdint.h>

typedef struct omm_file_in {
    int fd;
    char path[OMM_PATH_MAX];
} omm_file_in;

/* Errors: NOT_FOUND, IO, TOO_BIG (path).  Release with omm_file_in_close. */
OMM_CHECKED omm_err omm_file_in_open(omm_file_in *in, const char *path);
/* The next `size` bytes, all of them.  Errors: IO, SIZE (the file ends before). */
OMM_CHECKED omm_err omm_file_in_read(omm_file_in *in, void *to, size_t size);
/* What is read next begins `offset` bytes behind the beginning.  Errors: IO (no file that can be moved in). */
OMM_CHECKED omm_err omm_file_in_seek(omm_file_in *in, uint64_t offset);
void omm_file_in_close(omm_file_in *in);

#endif
