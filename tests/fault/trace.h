/* trace.h - what calls.c sees, trace.c writes down and rebuild.c reads again. */
#ifndef TESTS_FAULT_TRACE_H
#define TESTS_FAULT_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- the log ---- */

typedef enum trace_kind {
    TRACE_WRITE,  /* file: data at offset */
    TRACE_CUT,    /* file: its size becomes offset */
    TRACE_NAME,   /* folder: `name` is object `other` */
    TRACE_RENAME, /* folder: `name` becomes `to`; it is object `other` */
    TRACE_UNNAME, /* folder: `name` is gone */
    TRACE_SYNC,   /* file or folder: all that was done to it lasts */
} trace_kind;

typedef struct trace_op {
    trace_kind kind;
    uint32_t object, other;
    uint64_t offset;
    size_t size;
    uint8_t *data;
    char *name, *to;
} trace_op;

typedef struct trace_object {
    bool is_folder;
    char top
        [64]; /* the folder right below the watched one that it lies in; "" for that one itself */
} trace_object;

/* Object 0 is the watched folder. */
const trace_op *trace_ops(uint64_t *count);
const trace_object *trace_objects(uint32_t *count);

/* ---- calls that succeeded ---- */

/* Where `path`, seen from the open folder `folder` (or AT_FDCWD), lies below the watched one, in `out`;
 * false when it does not. */
#define TRACE_PATH_MAX 512u
bool trace_path(char out[TRACE_PATH_MAX], int folder, const char *path);
bool trace_knows(int fd);
/* Paths are those of trace_path. */
void trace_open(int fd, const char *path, int flags, bool is_new);
void trace_close(int fd);
void trace_write(int fd, off_t offset, const void *data, size_t size);
void trace_cut(int fd, off_t size);
void trace_sync(int fd);
void trace_mkdir(const char *path);
/* from: a path, or "" for the file that is open as from_fd. */
void trace_link(int from_fd, const char *from, const char *to);
void trace_rename(const char *from, const char *to);
void trace_unlink(const char *path);

#endif
