/* priority.h - a thread that goes last: a guest's training, a replay beside rounds.
 *
 * Linux gives each thread a niceness of its own, and a thread passes it on to those that it makes.
 *
 * Depends on: nothing.  Threads: changes the calling one.
 */
#ifndef OMM_PRIORITY_H
#define OMM_PRIORITY_H

#include <stdbool.h>

typedef enum omm_priority {
    OMM_PRIORITY_NORMAL,
    OMM_PRIORITY_LOW,  /* nice 19, disk when nobody else wants it */
    OMM_PRIORITY_IDLE, /* SCHED_IDLE as well: only time that nobody else wants */
} omm_priority;

/* For the calling thread and those it makes from now on.  A machine that refuses a part of it gives the
 * rest; false: no part was had. */
bool omm_priority_take(omm_priority priority);

#endif
