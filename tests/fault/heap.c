/* heap.c - counts what a process has on the heap, its libraries' blocks too, for LD_PRELOAD: in the file that OMM_HEAP
 * names, where others read them while it runs.  A file that is there is begun anew.
 *
 * Depends on glibc, whose own names of malloc and its like are called.  Threads: any. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-inconsistent-declaration-parameter-name) */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *ptr);

enum {
    SMALLEST = 24,
    STEP = 16,
    CLASSES = 65
}; /* usable bytes of glibc's blocks: 24, 40, 56 ... */

/* Of now; all are numbers of 8 bytes, as tests/load_test.py reads them. */
typedef struct heap_counts {
    atomic_uint_fast64_t bytes;           /* usable ones, of all blocks */
    atomic_uint_fast64_t blocks[CLASSES]; /* by usable bytes; the last: over 1,032 */
} heap_counts;
_Static_assert(sizeof(heap_counts) == (1 + CLASSES) * (size_t)8, "nothing between them");

static heap_counts s_before; /* until the file is there, and for ever where none is named */
static heap_counts *s_counts = &s_before;

/* One block more, or one less. */
static void count(size_t usable, int more) {
    size_t class = usable > SMALLEST ? (usable - SMALLEST + STEP - 1) / STEP : 0;
    if (class >= CLASSES) class = CLASSES - 1;
    const uint_fast64_t bytes = more > 0 ? usable : -usable;
    atomic_fetch_add_explicit(&s_counts->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&s_counts->blocks[class], (uint_fast64_t)more, memory_order_relaxed);
}

static void *come(void *ptr) {
    if (ptr) count(malloc_usable_size(ptr), 1);
    return ptr;
}

/* Before main, and before there are threads. */
__attribute__((constructor)) static void map_counts(void) {
    const char *path = getenv("OMM_HEAP");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    heap_counts *at = MAP_FAILED;
    if (ftruncate(fd, sizeof *at) == 0)
        at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (at == MAP_FAILED) return;
    atomic_store(&at->bytes, s_before.bytes);
    for (size_t i = 0; i < CLASSES; i++) atomic_store(&at->blocks[i], s_before.blocks[i]);
    s_counts = at;
}

void *malloc(size_t size) {
    return come(__libc_malloc(size));
}

void *calloc(size_t items, size_t size) {
    return come(__libc_calloc(items, size));
}

void *realloc(void *ptr, size_t size) {
    const size_t usable = ptr ? malloc_usable_size(ptr) : 0;
    void *out = __libc_realloc(ptr, size);
    if (ptr && (out || size == 0)) count(usable, -1); /* else it stays as it was */
    return come(out);
}

void *memalign(size_t align, size_t size) {
    return come(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size) {
    return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size) {
    void *ptr = memalign(align, size);
    if (ptr) *out = ptr;
    return ptr ? 0 : ENOMEM;
}

void free(void *ptr) {
    if (ptr) count(malloc_usable_size(ptr), -1);
    __libc_free(ptr);
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-inconsistent-declaration-parameter-name) */
