/* priority_test.c - a thread that goes last, and those that it makes; nobody else. */
#include "omm/priority.h"

#include "omm_test.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IO_IDLE (3 << 13) /* IOPRIO_CLASS_IDLE */

/* Of one thread. */
typedef struct standing {
    int niceness, policy;
    long io;
} standing;

static standing now(void) {
    return (standing){.niceness = getpriority(PRIO_PROCESS, 0),
                      .policy = sched_getscheduler(0),
                      .io = syscall(SYS_ioprio_get, 1, 0)};
}

static void check_same(standing a, standing b) {
    CHECK_EQ(a.niceness, b.niceness);
    CHECK_EQ(a.policy, b.policy);
    CHECK_EQ(a.io, b.io);
}

static void *look(void *ud) {
    *(standing *)ud = now();
    return NULL;
}

typedef struct last {
    omm_priority priority;
    standing own, child;
} last;

static void *go_last(void *ud) {
    last *l = ud;
    pthread_t child;
    CHECK(omm_priority_take(l->priority));
    l->own = now();
    CHECK_EQ(pthread_create(&child, NULL, look, &l->child), 0);
    CHECK_EQ(pthread_join(child, NULL), 0);
    return NULL;
}

static void check_priority(omm_priority priority, standing want) {
    last l = {.priority = priority};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, go_last, &l), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    check_same(l.own, want);
    check_same(l.child, want);
}

int main(void) {
    const standing before = now();
    standing beside;
    pthread_t thread;
    check_priority(OMM_PRIORITY_NORMAL, before);
    check_priority(OMM_PRIORITY_LOW, (standing){19, before.policy, IO_IDLE});
    check_priority(OMM_PRIORITY_IDLE, (standing){19, SCHED_IDLE, IO_IDLE});
    CHECK_EQ(pthread_create(&thread, NULL, look, &beside), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    check_same(beside, before);
    check_same(now(), before);
    return 0;
}
