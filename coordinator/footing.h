/* footing.h - are the files that a run stands on still where they were?  What is written into a file that was moved away or
 * deleted is lost with the process, and a state folder that was moved away would be made again beside it.
 *
 *   footing_open    the folder and its files as they are now
 *   footing_check   as they are later: the first one that is gone, or another's
 *
 * Depends on: base.  Threads: the service's.
 */
#ifndef COORDINATOR_FOOTING_H
#define COORDINATOR_FOOTING_H

#include "omm/err.h"
#include "omm/file.h"

#include <stdbool.h>
#include <sys/types.h>

#define FOOTING_FILES 5u

typedef struct footing {
    struct {
        char path[OMM_PATH_MAX];
        dev_t device;
        ino_t number;
    } files[FOOTING_FILES];
    unsigned count;
} footing;

/* After they have been made.  bundle_dir may lie elsewhere.  Errors: IO, TOO_BIG (path). */
OMM_CHECKED omm_err footing_open(footing *f, const char *state_dir, const char *bundle_dir);
/* Errors: IO (which, and what to do). */
OMM_CHECKED omm_err footing_check(const footing *f);

#endif
