/* file.h - whole files in, whole files out, and nothing half-written.
 *
 * A write is: temporary file in the same folder, fsync, rename, fsync of the folder.  The temporary
 * file has no name until it is whole, where the file system can do that (O_TMPFILE): a process that is
 * killed leaves nothing.
 * Sizes are limited before memory is taken; a path from outside goes through omm_path_is_inside.
 *
 * Depends on: err, mem, bytes.  Threads: no shared state.
 */
#ifndef OMM_FILE_H
#define OMM_FILE_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_PATH_MAX 4096u

/* Append the whole file, or pipe, to `out`.  Errors: NOT_FOUND, IO, TOO_BIG (over out->bytes_max), NOMEM. */
OMM_CHECKED omm_err omm_file_read(omm_buf *out, const char *path);
/* The same of a plain file; whatever else stands there, such as a pipe that nobody writes to, is refused at once (IO). */
OMM_CHECKED omm_err omm_file_read_plain(omm_buf *out, const char *path);

/* Replace `path` by `data`, atomically and durably.  `mode` e.g. 0644, or 0600 for keys; the umask
 * applies.  A symbolic link at `path` is itself replaced; a folder or device is refused.
 * Errors: IO, TOO_BIG (path).  On error the old file is untouched and no temporary file stays; only
 * where the last step, the fsync of the folder, fails is the new file there, perhaps not durably. */
OMM_CHECKED omm_err omm_file_write(const char *path, omm_bytes data, unsigned mode);

/* The same without fsync, for outputs that can be made again. */
OMM_CHECKED omm_err omm_file_write_fast(const char *path, omm_bytes data, unsigned mode);

/* The same with fsync of the file and not of its folder: for many files of one folder, which is synced when all are
 * there (omm_dir_sync_of).  Until then a power cut may take the name, and never a part of what has one. */
OMM_CHECKED omm_err omm_file_write_unlisted(const char *path, omm_bytes data, unsigned mode);

/* The same, but a file that is there stays as it is: of two at once one gets EXISTS.  For keys.
 * Errors: EXISTS (anything at `path`), IO, TOO_BIG (path). */
OMM_CHECKED omm_err omm_file_create(const char *path, omm_bytes data, unsigned mode);

/* Add to the end of a file that is there.  Errors: NOT_FOUND, IO.  On error a part of `data` may be
 * there, at the end. */
OMM_CHECKED omm_err omm_file_append(const char *path, omm_bytes data, bool durable);

/* Whose a file is and when it was last changed.  Who writes to it changes changed_ns, which nobody can set, so that its
 * content need not be read again to know that it is the same; but for who writes through a shared map, of which a system
 * takes note later, and in tmpfs never. */
typedef struct omm_file_state {
    uint64_t inode, bytes;
    uint64_t modified_ns, changed_ns; /* since 1970, modulo 2^64 */
    uint32_t owner, mode;             /* user; rights, as in chmod(2) */
} omm_file_state;
struct stat;
omm_file_state omm_file_state_of(const struct stat *st); /* what stat(2) says of it */

/* The same as omm_file_write piece by piece, for files that are larger than memory: what is written appears at `path`
 * whole, at finish, or not at all. */
typedef struct omm_file_out {
    int fd; /* -1: not open */
    bool nameless;
    char path[OMM_PATH_MAX];
    char temporary[OMM_PATH_MAX]; /* where what was written can be read; may lie in /proc */
} omm_file_out;
/* Release with omm_file_out_close, also after an error of the calls below, which leaves the old file
 * untouched.  Errors: IO, TOO_BIG (path). */
OMM_CHECKED omm_err omm_file_out_open(omm_file_out *out, const char *path, unsigned mode);
OMM_CHECKED omm_err omm_file_out_write(omm_file_out *out, omm_bytes data); /* Errors: IO */
/* Take the room of `bytes` zeros, in a file to which nothing is written, so that nobody else has it until it is closed.
 * OK too where the file system has no means for that (fallocate(2)).  Errors: IO (less is free). */
OMM_CHECKED omm_err omm_file_out_reserve(omm_file_out *out, uint64_t bytes);
/* durable: with fsync of file and folder, as omm_file_write.  Errors: IO. */
OMM_CHECKED omm_err omm_file_out_finish(omm_file_out *out, bool durable);
/* Of what will be at `path`.  Errors: IO. */
OMM_CHECKED omm_err omm_file_out_state(omm_file_state *out, const omm_file_out *file);
/* Without a finish before it, removes what was written. */
void omm_file_out_close(omm_file_out *out);

/* Bytes that this user can still write to the disk of `folder`.  False, and nothing changed: it does not say. */
bool omm_file_room(uint64_t *bytes, const char *folder);
/* A new file of `bytes` has room where `path` will be: asked before work that makes it.  What lies at `path` stays until the new file
 * is there, and so makes no room.  OK where the file system does not say.  Errors: IO (what is needed, what is free), TOO_BIG (path). */
OMM_CHECKED omm_err omm_file_check_room(const char *path, uint64_t bytes);

bool omm_file_exists(const char *path); /* a file, a folder, anything but a dangling link */
bool omm_file_same(const char *a, const char *b); /* both exist and are one file */
/* Before a secret is read: a regular file that only its owner may read.
 * Errors: NOT_FOUND, IO, FORMAT (not a regular file), CONFIG (others may read it). */
OMM_CHECKED omm_err omm_file_check_private(const char *path);
/* Errors: NOT_FOUND, IO (also: not a regular file). */
OMM_CHECKED omm_err omm_file_size(uint64_t *size, const char *path);
OMM_CHECKED omm_err omm_file_remove(const char *path); /* a missing file is no error */

/* Make a folder and its parents (mode 0755), durably.  An existing folder is no error. */
OMM_CHECKED omm_err omm_dir_make(const char *path);
/* The same, and a new one is its owner's alone (0700); its parents are as above, and one that is there keeps its rights. */
OMM_CHECKED omm_err omm_dir_make_private(const char *path);
/* fsync of the folder that `path` lies in: what has been named, renamed or removed there lasts.
 * Errors: IO, TOO_BIG (path). */
OMM_CHECKED omm_err omm_dir_sync_of(const char *path);
/* Remove a folder and all in it; follows no symbolic link.  Missing is no error.
 * Errors: IO (also: not a folder, or nested over 64 deep).  On error a part may be gone. */
OMM_CHECKED omm_err omm_dir_remove(const char *path);

/* Call `each` for every regular file under `dir`, recursively, in ascending byte order of the
 * relative path ("a/b.json").  Names are held some thousands at a time, however many there are.  `each` may remove
 * files; what is added meanwhile behind the file at hand may be visited, too.
 * Symbolic links and special files are refused before the first call.  The first error of `each`
 * stops the walk and is returned.
 * Errors: NOT_FOUND, IO, FORMAT (a link, a special file), TOO_BIG (64 levels), NOMEM. */
typedef omm_err (*omm_dir_each)(void *ud, const char *relative_path);
OMM_CHECKED omm_err omm_dir_walk(const char *dir, omm_dir_each each, void *ud);
/* The same of a folder that is somebody's own: passed over, and added to *passed_over, is what is hidden (its name begins
 * with a point), a symbolic link, a special file, or a folder below `dir` that cannot be opened or is too deep.
 * Errors: NOT_FOUND, IO, NOMEM, those of `each`. */
OMM_CHECKED omm_err omm_dir_walk_over(uint32_t *passed_over, const char *dir, omm_dir_each each,
                                      void *ud);

/* Call `each` for every name in `dir`, "." and ".." left out, in no order: files, folders, links.  `each` may remove files.
 * The first error of `each` stops it and is returned.  Errors: NOT_FOUND, IO. */
OMM_CHECKED omm_err omm_dir_names(const char *dir, omm_dir_each each, void *ud);

/* out = a "/" b, or b alone when b is absolute.  Errors: TOO_BIG. */
OMM_CHECKED omm_err omm_path_join(char out[OMM_PATH_MAX], const char *a, const char *b);
/* out = the folder part of `path` ("." when none).  Errors: TOO_BIG. */
OMM_CHECKED omm_err omm_path_dir(char out[OMM_PATH_MAX], const char *path);
/* True for a relative path without "..", ".", empty parts, backslash, NUL or control characters. */
bool omm_path_is_inside(const char *relative_path);

/* Hold an open file or folder (flock(2)) until it is closed: false where another process holds it.  True as well where
 * the file system has no locks. */
bool omm_file_hold(int fd);

/* Of the plain file at `path`, whose links are followed.  Errors: NOT_FOUND, IO (also: not a regular file). */
OMM_CHECKED omm_err omm_file_state_read(omm_file_state *out, const char *path);

/* A read-only memory map of a whole file.  An empty file gives size 0. */
typedef struct omm_map {
    omm_bytes view;
    omm_file_state state; /* of the file when it was opened */
    int fd; /* of the file, open as long as the map is; none where the view is empty */
} omm_map;
/* Errors: NOT_FOUND, IO. */
OMM_CHECKED omm_err omm_map_open(omm_map *map, const char *path);
/* The same of the file that lies at `path` itself: a symbolic link is refused (IO). */
OMM_CHECKED omm_err omm_map_open_itself(omm_map *map, const char *path);
void omm_map_close(omm_map *map);
/* Nothing was written to the file since it was opened, as its size and its time of change say; that another file is
 * under its name by now, or none, is no change.  Not noticed at once: writes through a shared map.
 * Errors: STATE, IO. */
OMM_CHECKED omm_err omm_map_check_unchanged(const omm_map *map);
/* The process need not keep `part` in memory: what lies in `map` is read from the file again when it
 * is looked at again.  The rest of `part` is left alone. */
void omm_map_release(const omm_map *map, omm_bytes part);
/* What lies in `map` of `part` will be looked at soon: the system begins to read it, and this call does
 * not wait for that.  A hint: nothing depends on it. */
void omm_map_prefetch(const omm_map *map, omm_bytes part);
/* A wish for large pages, for what is read again and again all over. */
void omm_map_prefer_huge(const omm_map *map);
/* For a program's main: from now on a map that is read beyond the end of a file which has become shorter, or that its
 * disk cannot give, ends the process with a message that names the file and this exit code, instead of by SIGBUS. */
void omm_map_exit_when_shortened(int exit_code);

#endif
