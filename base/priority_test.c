/* priority_test.c - a thread that goes last, and those that it makes; nobody else. */
#include "omm/priority.h"

#include "omm_test.h"

#include <pthread.h>
#include <sys/resource.h>

static int niceness(void) {
    return getpriority(PRIO_PROCESS, 0); /* of this thread */
}

static void *look(void *ud) {
    *(int *)ud = niceness();
    return NULL;
}

static void *go_last(void *ud) {
    int *seen = ud;
    pthread_t child;
    CHECK(omm_priority_take(OMM_PRIORITY_LOW));
    seen[0] = niceness();
    CHECK_EQ(pthread_create(&child, NULL, look, &seen[1]), 0);
    CHECK_EQ(pthread_join(child, NULL), 0);
    return NULL;
}

int main(void) {
    const int before = niceness();
    int seen[3] = {-1, -1, -1};
    pthread_t thread;
    CHECK(omm_priority_take(OMM_PRIORITY_NORMAL));
    CHECK_EQ(pthread_create(&thread, NULL, go_last, seen), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, look, &seen[2]), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(seen[0], 19);
    CHECK_EQ(seen[1], 19);
    CHECK_EQ(seen[2], before);
    CHECK_EQ(niceness(), before);
    return 0;
}
