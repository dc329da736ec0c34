/* file_in.c - see omm/file_in.h. */
#include "omm/file_in.h"

#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

omm_err omm_file_in_open(omm_file_in *in, const char *path) {
    const int size = snprintf(in->path, sizeof in->path, "%s", path);
    if (size < 0 || (size_t)size >= sizeof in->path)
        return omm_raise(OMM_ERR_TOO_BIG, "path too long: %.200s...", path);
    in->fd = -1;
    return base_open_plain(&in->fd, NULL, path);
}

omm_err omm_file_in_read(omm_file_in *in, void *to, size_t size) {
    for (size_t at = 0; at < size;) {
        const ssize_t got = read(in->fd, (char *)to + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return omm_raise(OMM_ERR_IO, "read %s: %s", in->path, strerror(errno));
        if (got == 0)
            return omm_raise(OMM_ERR_SIZE, "%s ends %zu bytes early", in->path, size - at);
        at += (size_t)got;
    }
    return OMM_OK;
}

omm_err omm_file_in_seek(omm_file_in *in, uint64_t offset) {
    if (offset <= INT64_MAX && lseek(in->fd, (off_t)offset, SEEK_SET) >= 0) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "seek in %s: %s", in->path,
                     offset <= INT64_MAX ? strerror(errno) : "beyond any file");
}

void omm_file_in_close(omm_file_in *in) {
    close(in->fd);
    in->fd = -1;
}
