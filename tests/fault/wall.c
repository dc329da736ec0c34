/* wall.c - a wall clock that jumps, for LD_PRELOAD: CLOCK_REALTIME is off by as many seconds as the file that
 * OMM_WALL names has, as int64_t, now.  Other clocks are left alone. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's begin with two underlines */

static const volatile int64_t *s_offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("OMM_WALL");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    const void *at = mmap(NULL, sizeof *s_offset, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) s_offset = at;
    (void)close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && s_offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        t->tv_sec += (time_t)*s_offset;
    return rc;
}

time_t time(time_t *out) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec t = {0};
    (void)tz;
    int rc = clock_gettime(CLOCK_REALTIME, &t);
    *tv = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    return rc;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
