/* sync.c - see sync.h. */
#include "omm/sync.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    bool failed;
    char path[512]; /* of the first */
} s_sync = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void omm_sync_failed(const char *path) {
    pthread_mutex_lock(&s_sync.mutex);
    if (!s_sync.failed) (void)snprintf(s_sync.path, sizeof s_sync.path, "%s", path);
    s_sync.failed = true;
    pthread_mutex_unlock(&s_sync.mutex);
}

void omm_sync_forget(void) {
    pthread_mutex_lock(&s_sync.mutex);
    s_sync.failed = false;
    pthread_mutex_unlock(&s_sync.mutex);
}

omm_err omm_sync(int fd, const char *path) {
    if (fsync(fd) == 0) return OMM_OK;
    int why = errno;
    if (why != EINVAL) omm_sync_failed(path); /* EINVAL: this cannot be synced at all */
    omm_err err = omm_raise(OMM_ERR_IO, "sync %s: %s", path, strerror(why));
    errno = why;
    return err;
}

omm_err omm_sync_check(void) {
    omm_err err = OMM_OK;
    pthread_mutex_lock(&s_sync.mutex);
    if (s_sync.failed)
        err = omm_raise(
            OMM_ERR_IO,
            "fsync of %s has failed, so what was written may be lost: stopped, to go on from "
            "what is on the disk; look at the disk (dmesg), then start again",
            s_sync.path);
    pthread_mutex_unlock(&s_sync.mutex);
    return err;
}
