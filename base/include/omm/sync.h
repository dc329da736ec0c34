/* sync.h - fsync, and that it failed.
 *
 * After an fsync that failed the system may have dropped what was written, and the next fsync of the
 * same file succeeds all the same (fsync(2), EIO).  So it is never tried again: whoever has promised that
 * things last stops, and a new process goes on from what is really on the disk.
 *
 * Depends on: err.  Threads: safe.
 */
#ifndef OMM_SYNC_H
#define OMM_SYNC_H

#include "omm/err.h"

#include <stdbool.h>

/* Errors: IO, with errno; from then on omm_sync_check fails (not after EINVAL: what cannot be synced). */
OMM_CHECKED omm_err omm_sync(int fd, const char *path);
/* For who calls fsync by other ways (SQLite): one has failed. */
void omm_sync_failed(const char *path);
/* Errors: IO when an fsync of this process has failed, and says which, and what to do. */
OMM_CHECKED omm_err omm_sync_check(void);
/* Tests only: a process that begins anew. */
void omm_sync_forget(void);

#endif
