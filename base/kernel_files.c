/* kernel_files.c - see kernel_files.h. */
#include "kernel_files.h"

#include "omm/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP_LEVELS_MAX 32u

/* ---- texts ----------------------------------------------------------------------------------- */

static bool read_text(char text[KERNEL_TEXT_MAX], const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, KERNEL_TEXT_MAX - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    return true;
}

bool kernel_text(char text[KERNEL_TEXT_MAX], const char *folder, const char *name) {
    char path[OMM_PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/%s", folder, name);
    return size > 0 && (size_t)size < sizeof path && read_text(text, path);
}

bool kernel_number(unsigned long long *out, const char **p) {
    char *end = NULL;
    if (**p < '0' || **p > '9') return false;
    errno = 0;
    *out = strtoull(*p, &end, 10);
    *p = end;
    return errno == 0;
}

bool kernel_field(uint64_t *out, const char *text, const char *name) {
    const size_t size = strlen(name);
    for (const char *line = text; *line;) {
        if (strncmp(line, name, size) == 0 && strchr(": \t", line[size])) {
            unsigned long long value = 0;
            const char *p = line + size + strspn(line + size, ": \t");
            if (!kernel_number(&value, &p)) return false;
            *out = value;
            return true;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return false;
}

/* ---- groups ---------------------------------------------------------------------------------- */

void kernel_groups_each(const char *group, const char *root, kernel_group_visit visit, void *ud) {
    char folder[OMM_PATH_MAX];
    const size_t stop = strlen(root);
    snprintf(folder, sizeof folder, "%s", group);
    for (unsigned level = 0; level < GROUP_LEVELS_MAX; level++) {
        visit(ud, folder);
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= stop) break;
        *slash = 0;
    }
}

/* "cpu,cpuacct" has "cpu". */
static bool list_has(const char *list, const char *word) {
    const size_t size = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, size) == 0 && (p[size] == 0 || p[size] == ',')) return true;
    return false;
}

bool kernel_group_line(char folder[OMM_PATH_MAX], char root[OMM_PATH_MAX], const char *line,
                       size_t size, const char *controller) {
    char copy[OMM_PATH_MAX];
    if (size >= sizeof copy) return false;
    memcpy(copy, line, size);
    copy[size] = 0;
    char *kind = strchr(copy, ':');
    char *path = kind ? strchr(kind + 1, ':') : NULL;
    if (!path) return false;
    *path++ = 0;
    kind++;
    const bool v2 = kind[0] == 0;
    if (!v2 && !list_has(kind, controller)) return false;
    int n = snprintf(root, OMM_PATH_MAX, "/sys/fs/cgroup%s%s", v2 ? "" : "/", kind);
    int m = snprintf(folder, OMM_PATH_MAX, "%s%s", root, strcmp(path, "/") == 0 ? "" : path);
    return n > 0 && m > 0 && n < (int)OMM_PATH_MAX && m < (int)OMM_PATH_MAX;
}

void kernel_own_groups_each(const char *controller, kernel_group_visit visit, void *ud) {
    char text[KERNEL_TEXT_MAX], folder[OMM_PATH_MAX], root[OMM_PATH_MAX];
    if (!kernel_text(text, "/proc/self", "cgroup")) return;
    for (const char *line = text; *line;) {
        const size_t size = strcspn(line, "\n");
        if (kernel_group_line(folder, root, line, size, controller))
            kernel_groups_each(folder, root, visit, ud);
        line += size + (line[size] == '\n');
    }
}
