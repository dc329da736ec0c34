/* internal.h - shared inside base only.
 *
 * Depends on: libsodium (sodium.c).  Threads: safe.
 */
#ifndef OMM_BASE_INTERNAL_H
#define OMM_BASE_INTERNAL_H

#include "omm/err.h"
#include "omm/file.h"

#include <stdint.h>

/* Let libsodium choose its implementations and open its random source, once per process.  Every
 * file that calls libsodium calls this first; later calls cost one load.  Aborts if it cannot. */
void base_sodium_ready(void);

/* Open for reading what must be a plain file: whatever else stands there is refused at once, a pipe that nobody writes to
 * among it.  The caller closes.  bytes: its size, or NULL.  Errors: NOT_FOUND, IO. */
OMM_CHECKED omm_err base_open_plain(int *fd, uint64_t *bytes, const char *path);
/* The same with more flags of open(2), as O_NOFOLLOW. */
OMM_CHECKED omm_err base_open_plain_with(int *fd, uint64_t *bytes, const char *path, int flags);
/* omm_file_state_read of an open file. */
OMM_CHECKED omm_err base_file_state(omm_file_state *out, int fd, const char *path);

/* IO: what is needed and what is free; path: NULL, the caller names it. */
OMM_CHECKED omm_err base_no_room(const char *path, uint64_t wanted, uint64_t room);

#endif
