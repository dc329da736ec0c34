#include "session_lock.h"

#include "omm/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often a file may be replaced between its opening and its lock. */
enum { TRIES = 8 };

static bool is_still_there(int fd, const char *path) {
    struct stat opened, now;
    return fstat(fd, &opened) == 0 && stat(path, &now) == 0 && opened.st_dev == now.st_dev &&
           opened.st_ino == now.st_ino;
}

static omm_err in_use(const char *path) {
    return omm_raise(OMM_ERR_STATE,
                     "%s: another program goes on with this session; end it, or give another file",
                     path);
}

omm_err session_lock_take(session_lock *lock, const char *path) {
    for (int i = 0; i < TRIES; i++) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "open %s: %s", path,
                             strerror(errno));
        const bool is_taken = !omm_file_hold(fd);
        if (!is_taken && is_still_there(fd, path)) {
            if (lock->is_held) close(lock->fd);
            *lock = (session_lock){true, fd};
            return OMM_OK;
        }
        close(fd);
        if (is_taken) return in_use(path);
    }
    return in_use(path);
}

void session_lock_drop(session_lock *lock) {
    if (lock->is_held) close(lock->fd);
    *lock = (session_lock){0};
}
