/* map.c - files in memory as they lie on the disk, and the signal of one that is shortened meanwhile. */
#include "internal.h"
#include "omm/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- which file an address is in ------------------------------------------------------------- */

enum { MAPS_NAMED_MAX = 256, NAME_BYTES = 256, SAID_BYTES = NAME_BYTES + 128 };

/* A map that is open, for the signal handler.  `first` is 0 where there is none, and written last. */
typedef struct named_map {
    atomic_uintptr_t first;
    size_t size;
    char name[NAME_BYTES]; /* the path, of a long one its end */
} named_map;

static named_map s_maps[MAPS_NAMED_MAX];
static pthread_mutex_t s_maps_mutex = PTHREAD_MUTEX_INITIALIZER;
static int s_exit_code;

/* A file beyond so many maps has no name in the message. */
static void add_name(omm_bytes view, const char *path) {
    const size_t size = strlen(path);
    pthread_mutex_lock(&s_maps_mutex);
    for (size_t i = 0; i < MAPS_NAMED_MAX; i++) {
        named_map *m = &s_maps[i];
        if (atomic_load(&m->first) != 0) continue;
        m->size = view.size;
        snprintf(m->name, sizeof m->name, "%s",
                 path + (size < sizeof m->name ? 0 : size - sizeof m->name + 1));
        atomic_store(&m->first, (uintptr_t)view.data);
        break;
    }
    pthread_mutex_unlock(&s_maps_mutex);
}

static void remove_name(omm_bytes view) {
    pthread_mutex_lock(&s_maps_mutex);
    for (size_t i = 0; i < MAPS_NAMED_MAX; i++)
        if (atomic_load(&s_maps[i].first) == (uintptr_t)view.data)
            atomic_store(&s_maps[i].first, 0);
    pthread_mutex_unlock(&s_maps_mutex);
}

static void copy_name(char out[NAME_BYTES], omm_bytes view) {
    snprintf(out, NAME_BYTES, "a file");
    pthread_mutex_lock(&s_maps_mutex);
    for (size_t i = 0; i < MAPS_NAMED_MAX; i++)
        if (atomic_load(&s_maps[i].first) == (uintptr_t)view.data)
            memcpy(out, s_maps[i].name, NAME_BYTES);
    pthread_mutex_unlock(&s_maps_mutex);
}

/* Adds a text to a message of at most SAID_BYTES, of which `size` bytes are there; returns how many then are. */
static size_t said_with(char *message, size_t size, const char *text) {
    while (*text && size < SAID_BYTES) message[size++] = *text++;
    return size;
}

/* Only what a signal handler may call.  The message is one write: threads that meet the end of a file together
   do not mix theirs, and who reads it from a pipe has it whole. */
static void on_bus_error(int signal_no, siginfo_t *info, void *context) {
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr;
    const char *name = NULL;
    for (size_t i = 0; i < MAPS_NAMED_MAX && !name; i++) {
        const uintptr_t first = atomic_load(&s_maps[i].first);
        if (first != 0 && at >= first && at - first < s_maps[i].size) name = s_maps[i].name;
    }
    if (!name) { /* no file's: the process ends as it would have */
        (void)signal(signal_no, SIG_DFL);
        (void)raise(signal_no);
        return;
    }
    char message[SAID_BYTES];
    size_t size = said_with(message, 0, "meshmind: ");
    size = said_with(message, size, name);
    size = said_with(message, size, " became shorter while it was read, or its disk failed\n");
    (void)!write(STDERR_FILENO, message, size);
    _exit(s_exit_code);
}

void omm_map_exit_when_shortened(int exit_code) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    s_exit_code = exit_code;
    OMM_ASSERT(sigaction(SIGBUS, &action, NULL) == 0);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static omm_err open_with(omm_map *map, const char *path, int flags) {
    uint64_t bytes = 0;
    int fd = -1;
    *map = (omm_map){0};
    OMM_TRY(base_open_plain_with(&fd, &bytes, path, flags));
    omm_err err = base_file_state(&map->state, fd, path);
    if (err == OMM_OK && bytes > 0) {
        const size_t size = (size_t)bytes;
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            err = omm_raise(OMM_ERR_IO, "map %s: %s", path, strerror(errno));
        else
            map->view = omm_bytes_of(data, size);
    }
    if (map->view.size > 0) {
        map->fd = fd;
        add_name(map->view, path);
    } else {
        close(fd);
    }
    return err;
}

omm_err omm_map_open(omm_map *map, const char *path) {
    return open_with(map, path, 0);
}

omm_err omm_map_open_itself(omm_map *map, const char *path) {
    return open_with(map, path, O_NOFOLLOW);
}

omm_err omm_map_check_unchanged(const omm_map *map) {
    char name[NAME_BYTES];
    omm_file_state now;
    if (map->view.size == 0) return OMM_OK;
    copy_name(name, map->view);
    OMM_TRY(base_file_state(&now, map->fd, name));
    if (now.bytes == map->state.bytes && now.modified_ns == map->state.modified_ns) return OMM_OK;
    return omm_raise(OMM_ERR_STATE,
                     "%s was written to while this program reads from it: start again, and put "
                     "another version in its place by mv",
                     name);
}

/* Advice on the pages of `part` that lie in the map: on those that it covers in `whole`, or on all that
 * it touches. */
static void advise(const omm_map *map, omm_bytes part, bool whole, int advice) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)part.data, end = begin + part.size;
    const uintptr_t first = (uintptr_t)map->view.data, last = first + map->view.size;
    if (begin < first) begin = first;
    if (end > last) end = last;
    if (begin >= end) return;
    begin = (whole ? begin + page - 1 : begin) / page * page;
    end = (whole ? end : end + page - 1) / page * page;
    if (begin >= end) return;
    (void)madvise((void *)begin, end - begin, /* NOLINT(performance-no-int-to-ptr): page-aligned */
                  advice);
}

void omm_map_release(const omm_map *map, omm_bytes part) {
    advise(map, part, true, MADV_DONTNEED);
}

void omm_map_prefetch(const omm_map *map, omm_bytes part) {
    advise(map, part, false, MADV_WILLNEED);
}

void omm_map_prefer_huge(const omm_map *map) {
    advise(map, map->view, false, MADV_HUGEPAGE);
}

void omm_map_close(omm_map *map) {
    if (map->view.size > 0) {
        union { /* munmap takes a pointer to what may be written; ours never was */
            const uint8_t *data;
            void *address;
        } u = {map->view.data};
        remove_name(map->view);
        int rc = munmap(u.address, map->view.size);
        OMM_ASSERT(rc == 0);
        close(map->fd);
    }
    *map = (omm_map){0};
}
