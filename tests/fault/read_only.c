/* read_only.c - a disk that cannot be written for a while, for LD_PRELOAD: the file that OMM_READ_ONLY names has the path of a folder,
 * as text that ends with a zero, or is empty but for zeros, PATH_MAX bytes in all.  As long as it has one, every call that would
 * change something below that folder fails with EROFS, also on what is open already.  What was written before is on the disk, as
 * after `mount -o remount,ro`: fsync succeeds. */
#include "aliases.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's begin with two underlines */

static const volatile char *s_below; /* (PATH_MAX) */

__attribute__((constructor)) static void map_switch(void) {
    const char *path = getenv("OMM_READ_ONLY");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    const void *at = mmap(NULL, PATH_MAX, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) s_below = at;
    (void)close(fd);
}

static bool is_on(void) {
    return s_below && s_below[0] != '\0';
}

/* errno is EROFS then. */
static bool lies_below(const char *path) {
    size_t size = 0;
    for (; s_below[size] != '\0'; size++)
        if (path[size] != s_below[size]) return false;
    if (size == 0 || path[size] != '/') return false;
    errno = EROFS;
    return true;
}

static bool refuses_open(int fd) {
    char name[32], path[PATH_MAX];
    if (!is_on()) return false;
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return false;
    path[size] = '\0';
    return lies_below(path);
}

static bool refuses(int folder, const char *path) {
    if (!is_on()) return false;
    return path[0] == '/' || folder == AT_FDCWD ? lies_below(path) : refuses_open(folder);
}

/* ---- open ---- */

int disk_open(int folder, const char *path, int flags, mode_t mode) {
    const bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (changes && refuses(folder, path)) return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

/* ---- data ---- */

ssize_t write(int fd, const void *data, size_t size) {
    return refuses_open(fd) ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return refuses_open(fd) ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}

int ftruncate(int fd, off_t size) {
    return refuses_open(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

/* ---- names ---- */

/* One that is there is said to be there. */
int mkdir(const char *path, mode_t mode) {
    if (access(path, F_OK) != 0 && refuses(AT_FDCWD, path)) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (refuses(to_folder, to)) return -1;
    return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int rename(const char *from, const char *to) {
    if (refuses(AT_FDCWD, to)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *path, int flags) {
    return refuses(folder, path) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
