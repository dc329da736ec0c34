/* kernel_files.h - small text files of the kernel, and the control groups this process is in.
 *
 * Inside base only.  The files may say anything or be missing: then there is no value.
 * Depends on: file.  Threads: no shared state.
 */
#ifndef BASE_KERNEL_FILES_H
#define BASE_KERNEL_FILES_H

#include "omm/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_TEXT_MAX 4096u /* of one file; the rest is not read */

/* The text of folder/name.  False: there is none. */
bool kernel_text(char text[KERNEL_TEXT_MAX], const char *folder, const char *name);
/* A number at *p, which is moved behind it. */
bool kernel_number(unsigned long long *out, const char **p);
/* The number of the line "name: number" or "name number". */
bool kernel_field(uint64_t *out, const char *text, const char *name);

/* A line of /proc/self/cgroup, "0::/a/b" (cgroup 2) or "4:cpu,cpuacct:/a/b" (cgroup 1), as the folder of the group and that
 * of its hierarchy.  False: it is another controller's, or no such line. */
bool kernel_group_line(char folder[OMM_PATH_MAX], char root[OMM_PATH_MAX], const char *line,
                       size_t size, const char *controller);

typedef void (*kernel_group_visit)(void *ud, const char *folder);
/* `group` and all folders above it, up to `root`, at most 32. */
void kernel_groups_each(const char *group, const char *root, kernel_group_visit visit, void *ud);
/* The same for the groups of this process that have `controller` ("cpu", "memory"). */
void kernel_own_groups_each(const char *controller, kernel_group_visit visit, void *ud);

#endif
