/* priority.c - see omm/priority.h. */
#include "omm/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICE_LOWEST 19
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_IDLE (3 << 13)

bool omm_priority_take(omm_priority priority) {
    if (priority == OMM_PRIORITY_NORMAL) return true;
    bool any = setpriority(PRIO_PROCESS, 0, NICE_LOWEST) == 0;
    if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) == 0) any = true;
#ifdef SCHED_IDLE
    const struct sched_param none = {0};
    if (priority == OMM_PRIORITY_IDLE && sched_setscheduler(0, SCHED_IDLE, &none) == 0) any = true;
#endif
    return any;
}
