/* aliases.c - libc's file calls that are another one in other words, for a program or library that brings that one:
 * disk_open, pwrite, ftruncate, unlinkat. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's begin with two underlines */
#include "aliases.h"

#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

/* va_start is in the callers, which clang-tidy 14 does not see. */
static mode_t mode_of(int flags, va_list args) {
    if (!(flags & (O_CREAT | O_TMPFILE))) return 0;
    return (mode_t)va_arg(args, unsigned); /* NOLINT(clang-analyzer-valist.Uninitialized) */
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return disk_open(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return disk_open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return disk_open(folder, path, flags, mode);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return pwrite(fd, data, size, offset);
}

int ftruncate64(int fd, off_t size) {
    return ftruncate(fd, size);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
