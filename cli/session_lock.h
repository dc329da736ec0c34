/* session_lock.h - one program at a time goes on with a session's file. */
#ifndef CLI_SESSION_LOCK_H
#define CLI_SESSION_LOCK_H

#include "omm/err.h"

#include <stdbool.h>

/* Zeroed: none is held.  It goes with the process. */
typedef struct session_lock {
    bool is_held;
    int fd; /* of the file */
} session_lock;

/* Of the file at `path`; again after every save, which puts a new file there.
 * Errors: STATE (another program has it), NOT_FOUND, IO. */
OMM_CHECKED omm_err session_lock_take(session_lock *lock, const char *path);
void session_lock_drop(session_lock *lock);

#endif
