/* trace.c - owns the log of operations, and which name and which descriptor is which object. */
#include "trace.h"

#include "disk.h"
#include "omm_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_MAX 1024
#define OBJECTS_MAX 16384u
#define NOTHING UINT32_MAX

typedef struct place {
    char *path; /* relative to the watched folder */
    uint32_t object;
} place;

static struct {
    char root[TRACE_PATH_MAX];
    trace_op *ops;
    uint64_t count, capacity;
    trace_object objects[OBJECTS_MAX];
    uint32_t object_count;
    place places[OBJECTS_MAX];
    uint32_t place_count;
    uint32_t of_fd[FDS_MAX]; /* object + 1 */
    char *folder_of_fd[FDS_MAX];
} s;

const trace_op *trace_ops(uint64_t *count) {
    *count = s.count;
    return s.ops;
}

const trace_object *trace_objects(uint32_t *count) {
    *count = s.object_count;
    return s.objects;
}

uint64_t disk_count(void) {
    return s.count;
}

/* ---- objects and names ---- */

static uint32_t new_object(const char *path, bool is_folder) {
    CHECK(s.object_count < OBJECTS_MAX);
    trace_object *object = &s.objects[s.object_count];
    *object = (trace_object){.is_folder = is_folder};
    (void)snprintf(object->top, sizeof object->top, "%.*s", (int)strcspn(path, "/"), path);
    return s.object_count++;
}

static place *find(const char *path) {
    for (uint32_t i = 0; i < s.place_count; i++)
        if (strcmp(s.places[i].path, path) == 0) return &s.places[i];
    return NULL;
}

static uint32_t object_at(const char *path) {
    const place *p = find(path);
    return p ? p->object : NOTHING;
}

static void put_place(const char *path, uint32_t object) {
    place *p = find(path);
    if (!p) {
        CHECK(s.place_count < OBJECTS_MAX);
        p = &s.places[s.place_count++];
        p->path = strdup(path);
        CHECK(p->path);
    }
    p->object = object;
}

static void drop_place(const char *path) {
    place *p = find(path);
    if (!p) return;
    free(p->path);
    *p = s.places[--s.place_count];
}

/* The folder that `path` lies in; its name there. */
static uint32_t parent_of(const char **name, const char *path) {
    char folder[TRACE_PATH_MAX] = "";
    const char *slash = strrchr(path, '/');
    if (slash) (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    *name = slash ? slash + 1 : path;
    uint32_t object = object_at(folder);
    CHECK(object != NOTHING);
    return object;
}

bool trace_path(char out[TRACE_PATH_MAX], int folder, const char *path) {
    size_t root = strlen(s.root);
    if (root == 0) return false;
    const char *from = "";
    if (path[0] != '/') {
        if (folder < 0 || folder >= FDS_MAX || !s.folder_of_fd[folder]) return false;
        from = s.folder_of_fd[folder];
    } else {
        if (strncmp(path, s.root, root) != 0 || (path[root] != '/' && path[root] != '\0'))
            return false;
        path += root;
        while (*path == '/') path++;
    }
    int size = snprintf(out, TRACE_PATH_MAX, "%s%s%s", from, from[0] ? "/" : "", path);
    CHECK(size >= 0 && size < (int)TRACE_PATH_MAX);
    while (size > 0 && out[size - 1] == '/') out[--size] = '\0';
    return true;
}

/* ---- the log ---- */

static trace_op *add(trace_kind kind, uint32_t object) {
    if (s.count == s.capacity) {
        s.capacity = s.capacity ? 2 * s.capacity : 4096;
        s.ops = realloc(s.ops, s.capacity * sizeof *s.ops);
        CHECK(s.ops);
    }
    trace_op *op = &s.ops[s.count++];
    *op = (trace_op){.kind = kind, .object = object};
    return op;
}

static void add_name(const char *path, uint32_t object) {
    const char *name = NULL;
    trace_op *op = add(TRACE_NAME, parent_of(&name, path));
    op->other = object;
    op->name = strdup(name);
    CHECK(op->name);
    put_place(path, object);
}

static void forget_ops(uint64_t from) {
    for (uint64_t i = from; i < s.count; i++) {
        free(s.ops[i].data);
        free(s.ops[i].name);
        free(s.ops[i].to);
    }
    s.count = from;
}

static void forget_all(void) {
    forget_ops(0);
    free(s.ops);
    for (uint32_t i = 0; i < s.place_count; i++) free(s.places[i].path);
    for (int i = 0; i < FDS_MAX; i++) free(s.folder_of_fd[i]);
    memset(&s, 0, sizeof s);
}

void disk_watch(const char *folder) {
    forget_all();
    (void)snprintf(s.root, sizeof s.root, "%s", folder);
    put_place("", new_object("", true));
}

void disk_rest(void) {
    s.root[0] = '\0';
    memset(s.of_fd, 0, sizeof s.of_fd);
}

/* What the operation did to names, once more.  A folder keeps its name. */
static void name_again(const trace_op *op) {
    char path[TRACE_PATH_MAX] = "", to[TRACE_PATH_MAX];
    for (uint32_t i = 0; i < s.place_count; i++)
        if (s.places[i].object == op->object)
            (void)snprintf(path, sizeof path, "%s", s.places[i].path);
    const size_t size = strlen(path);
    const char *slash = size ? "/" : "";
    CHECK(snprintf(to, sizeof to, "%s%s%s", path, slash, op->to ? op->to : op->name) <
          (int)sizeof to);
    CHECK(snprintf(path + size, sizeof path - size, "%s%s", slash, op->name) <
          (int)(sizeof path - size));
    if (op->kind == TRACE_RENAME || op->kind == TRACE_UNNAME) drop_place(path);
    if (op->kind == TRACE_RENAME || op->kind == TRACE_NAME) put_place(to, op->other);
}

void disk_go_on(const char *folder, uint64_t count) {
    CHECK(s.root[0] == '\0' && count <= s.count);
    forget_ops(count);
    while (s.place_count > 0) free(s.places[--s.place_count].path);
    put_place("", 0);
    s.object_count = 1;
    for (uint64_t i = 0; i < count; i++) {
        const trace_op *op = &s.ops[i];
        const uint32_t last = op->object > op->other ? op->object : op->other;
        if (last >= s.object_count) s.object_count = last + 1;
        if (op->name) name_again(op);
    }
    (void)snprintf(s.root, sizeof s.root, "%s", folder);
}

/* ---- calls ---- */

bool trace_knows(int fd) {
    return fd >= 0 && fd < FDS_MAX && s.of_fd[fd] > 0;
}

static uint32_t object_of(int fd) {
    CHECK(trace_knows(fd));
    return s.of_fd[fd] - 1;
}

void trace_open(int fd, const char *path, int flags, bool is_new) {
    struct stat st;
    CHECK(fd < FDS_MAX);
    CHECK(fstat(fd, &st) == 0);
    uint32_t object = NOTHING;
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        object = new_object(path, false);
    } else if (is_new) {
        object = new_object(path, false);
        add_name(path, object);
    } else {
        object = object_at(path);
        CHECK(object != NOTHING);
        if ((flags & O_TRUNC) && !S_ISDIR(st.st_mode)) add(TRACE_CUT, object);
    }
    s.of_fd[fd] = object + 1;
    free(s.folder_of_fd[fd]);
    s.folder_of_fd[fd] = S_ISDIR(st.st_mode) ? strdup(path) : NULL;
}

void trace_close(int fd) {
    if (fd < 0 || fd >= FDS_MAX) return;
    s.of_fd[fd] = 0;
    free(s.folder_of_fd[fd]);
    s.folder_of_fd[fd] = NULL;
}

void trace_write(int fd, off_t offset, const void *data, size_t size) {
    trace_op *op = add(TRACE_WRITE, object_of(fd));
    op->offset = (uint64_t)offset;
    op->size = size;
    op->data = malloc(size ? size : 1);
    CHECK(op->data);
    memcpy(op->data, data, size);
}

void trace_cut(int fd, off_t size) {
    add(TRACE_CUT, object_of(fd))->offset = (uint64_t)size;
}

void trace_sync(int fd) {
    add(TRACE_SYNC, object_of(fd));
}

void trace_mkdir(const char *path) {
    add_name(path, new_object(path, true));
}

void trace_link(int from_fd, const char *from, const char *to) {
    uint32_t object = from[0] ? object_at(from) : object_of(from_fd);
    CHECK(object != NOTHING);
    add_name(to, object);
}

void trace_rename(const char *from, const char *to) {
    const char *name = NULL, *new_name = NULL;
    uint32_t object = object_at(from), folder = parent_of(&name, from);
    CHECK(object != NOTHING && !s.objects[object].is_folder);
    CHECK(parent_of(&new_name, to) == folder); /* from one folder to another is not modelled */
    trace_op *op = add(TRACE_RENAME, folder);
    op->other = object;
    op->name = strdup(name);
    op->to = strdup(new_name);
    CHECK(op->name && op->to);
    drop_place(from);
    put_place(to, object);
}

void trace_unlink(const char *path) {
    const char *name = NULL;
    trace_op *op = add(TRACE_UNNAME, parent_of(&name, path));
    op->name = strdup(name);
    CHECK(op->name);
    drop_place(path);
}

void disk_print(void) {
    static const char *const kinds[] = {"write", "cut", "name", "rename", "unname", "sync"};
    for (uint64_t i = 0; i < s.count; i++) {
        const trace_op *op = &s.ops[i];
        printf("%" PRIu64 " %s %s#%u +%" PRIu64 " %zu %s %s #%u\n", i, kinds[op->kind],
               s.objects[op->object].top, op->object, op->offset, op->size,
               op->name ? op->name : "", op->to ? op->to : "", op->other);
    }
}
