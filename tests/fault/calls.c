/* calls.c - libc's file calls, for every library in the program: its own come before those of libc.
 * Each does what was asked, by the system call, unless it is to fail; then it is written down. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's begin with two underlines */
#include "aliases.h"
#include "disk.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    unsigned calls;
    uint64_t after, times, failed;
    int why;
} s_fail;
static uint64_t s_names, s_writes, s_syncs;

void disk_fail(unsigned calls, uint64_t after, uint64_t times, int why) {
    s_fail.calls = calls;
    s_fail.after = after;
    s_fail.times = times;
    s_fail.failed = 0;
    s_fail.why = why;
}

uint64_t disk_failed(void) {
    return s_fail.failed;
}

uint64_t disk_calls(unsigned calls) {
    return (calls & DISK_NAME ? s_names : 0) + (calls & DISK_WRITE ? s_writes : 0) +
           (calls & DISK_SYNC ? s_syncs : 0);
}

/* Does this call of the watched folder fail? */
static bool fails(disk_call kind) {
    *(kind == DISK_NAME ? &s_names : kind == DISK_WRITE ? &s_writes : &s_syncs) += 1;
    if (!(s_fail.calls & kind) || s_fail.times == 0) return false;
    if (s_fail.after > 0) {
        s_fail.after--;
        return false;
    }
    s_fail.times--;
    s_fail.failed++;
    errno = s_fail.why;
    return true;
}

/* ---- open and close ---- */

int disk_open(int folder, const char *path, int flags, mode_t mode) {
    char at[TRACE_PATH_MAX];
    if (!trace_path(at, folder, path)) return (int)syscall(SYS_openat, folder, path, flags, mode);
    struct stat st;
    bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    bool is_new = (flags & O_CREAT) && fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) != 0;
    if (creates && fails(DISK_NAME)) return -1;
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0) trace_open(fd, at, flags, is_new);
    return fd;
}

int close(int fd) {
    trace_close(fd);
    return (int)syscall(SYS_close, fd);
}

/* ---- data ---- */

ssize_t write(int fd, const void *data, size_t size) {
    if (!trace_knows(fd)) return syscall(SYS_write, fd, data, size);
    if (fails(DISK_WRITE)) return -1;
    ssize_t wrote = syscall(SYS_write, fd, data, size);
    if (wrote > 0) trace_write(fd, lseek(fd, 0, SEEK_CUR) - wrote, data, (size_t)wrote);
    return wrote;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (!trace_knows(fd)) return syscall(SYS_pwrite64, fd, data, size, offset);
    if (fails(DISK_WRITE)) return -1;
    ssize_t wrote = syscall(SYS_pwrite64, fd, data, size, offset);
    if (wrote > 0) trace_write(fd, offset, data, (size_t)wrote);
    return wrote;
}

int ftruncate(int fd, off_t size) {
    if (!trace_knows(fd)) return (int)syscall(SYS_ftruncate, fd, size);
    if (fails(DISK_WRITE)) return -1;
    int rc = (int)syscall(SYS_ftruncate, fd, size);
    if (rc == 0) trace_cut(fd, size);
    return rc;
}

static int sync_fd(int fd) {
    if (!trace_knows(fd)) return 0; /* nobody will look for it after a cut */
    if (fails(DISK_SYNC)) return -1;
    trace_sync(fd);
    return 0;
}

int fsync(int fd) {
    return sync_fd(fd);
}

int fdatasync(int fd) {
    return sync_fd(fd);
}

/* ---- names ---- */

int mkdir(const char *path, mode_t mode) {
    char at[TRACE_PATH_MAX];
    bool known = trace_path(at, AT_FDCWD, path);
    if (known && fails(DISK_NAME)) return -1;
    int rc = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (rc == 0 && known) trace_mkdir(at);
    return rc;
}

/* of /proc/self/fd/N, else -1 */
static int open_file(const char *path) {
    static const char begin[] = "/proc/self/fd/";
    if (strncmp(path, begin, sizeof begin - 1) != 0) return -1;
    int fd = (int)strtol(path + sizeof begin - 1, NULL, 10);
    return trace_knows(fd) ? fd : -1;
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char old[TRACE_PATH_MAX] = "", at[TRACE_PATH_MAX];
    bool known = trace_path(at, to_folder, to);
    if (known && fails(DISK_NAME)) return -1;
    int rc = (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (rc != 0 || !known) return rc;
    int fd = open_file(from);
    if (fd >= 0 || trace_path(old, from_folder, from)) trace_link(fd, old, at);
    return rc;
}

int link(const char *from, const char *to) {
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int rename(const char *from, const char *to) {
    char old[TRACE_PATH_MAX], at[TRACE_PATH_MAX];
    bool known = trace_path(old, AT_FDCWD, from) && trace_path(at, AT_FDCWD, to);
    if (known && fails(DISK_NAME)) return -1;
    int rc = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (rc == 0 && known) trace_rename(old, at);
    return rc;
}

int unlinkat(int folder, const char *path, int flags) {
    char at[TRACE_PATH_MAX];
    bool known = trace_path(at, folder, path);
    if (known && fails(DISK_NAME)) return -1;
    int rc = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (rc == 0 && known) trace_unlink(at);
    return rc;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
