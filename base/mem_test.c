#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm/memory.h"
#include "omm_test.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int all_zero(const void *ptr, size_t size) {
    const unsigned char *p = ptr;
    for (size_t i = 0; i < size; i++) {
        if (p[i] != 0) return 0;
    }
    return 1;
}

static void counts_what_lives(void) {
    CHECK_EQ(omm_mem_live(), 0);
    void *a = omm_alloc(3, 5);
    void *b = omm_alloc_aligned(3, 5);
    CHECK(a && b);
    CHECK(all_zero(a, 15));
    CHECK(all_zero(b, 15));
    CHECK_EQ((uintptr_t)b % 64, 0);
    CHECK_EQ(omm_mem_live(), 2);
    omm_free(a);
    omm_free_secret(b, 15);
    omm_free(NULL);
    omm_free_secret(NULL, 10);
    CHECK_EQ(omm_mem_live(), 0);
}

static void refuses_overflow(void) {
    size_t huge = SIZE_MAX / 2 + 1;
    CHECK(omm_alloc(huge, 2) == NULL);
    CHECK(omm_alloc(huge, 4) == NULL);
    CHECK(omm_alloc_aligned(huge, 2) == NULL);
    CHECK(omm_alloc_aligned(SIZE_MAX - 10, 1) == NULL);
    char *p = omm_alloc(8, 1);
    CHECK(omm_grow(p, 8, huge, 2) == NULL);
    memset(p, 1, 8); /* still valid */
    omm_free(p);
    CHECK_EQ(omm_mem_live(), 0);
}

static void nothing_is_something(void) {
    void *a = omm_alloc(0, 8);
    void *b = omm_alloc_aligned(8, 0);
    CHECK(a && b);
    a = omm_grow(a, 0, 0, 8);
    CHECK(a != NULL);
    omm_free(a);
    omm_free(b);
}

static void grow_keeps_and_zeroes(void) {
    uint32_t *v = NULL;
    size_t count = 0;
    for (size_t next = 1; next < 5000; next = next * 3 + 1) {
        v = omm_grow(v, count, next, sizeof *v);
        CHECK(v != NULL);
        for (size_t i = 0; i < count; i++) CHECK_EQ(v[i], i + 7);
        CHECK(all_zero(v + count, (next - count) * sizeof *v));
        for (size_t i = count; i < next; i++) v[i] = (uint32_t)i + 7;
        count = next;
    }
    CHECK_EQ(omm_mem_live(), 1);
    omm_free(v);
}

static void fails_exactly_the_nth(void) {
    omm_mem_fail_nth(2);
    void *a = omm_alloc(1, 1);
    void *b = omm_alloc_aligned(1, 1);
    void *c = omm_alloc(1, 1);
    CHECK(a && !b && c);
    omm_mem_fail_nth(1);
    CHECK(omm_grow(a, 1, 2, 1) == NULL);
    omm_mem_fail_nth(1);
    CHECK(omm_strdup("x") == NULL);
    omm_mem_fail_nth(0);
    char *d = omm_strdup("copy");
    CHECK(d && strcmp(d, "copy") == 0);
    omm_free(a);
    omm_free(c);
    omm_free(d);
    CHECK_EQ(omm_mem_live(), 0);
}

static void arena_keeps_its_promises(void) {
    omm_arena arena;
    omm_arena_init(&arena, 1u << 20);
    unsigned char *kept[200];
    for (size_t i = 0; i < 200; i++) {
        size_t size = i * 7 % 601;
        kept[i] = omm_arena_alloc(&arena, size, 1);
        CHECK(kept[i] != NULL);
        CHECK_EQ((uintptr_t)kept[i] % 16, 0);
        CHECK(all_zero(kept[i], size));
        memset(kept[i], (int)i, size);
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t j = 0; j < i * 7 % 601; j++) CHECK_EQ(kept[i][j], i);
    }
    char *text = omm_arena_strdup(&arena, "hello");
    CHECK(text && strcmp(text, "hello") == 0);
    CHECK(omm_mem_live() > 1);
    CHECK(omm_mem_live() < 10); /* blocks double */
    omm_arena_fini(&arena);
    CHECK_EQ(omm_mem_live(), 0);
    CHECK(omm_arena_alloc(&arena, 1, 1) != NULL); /* usable again */
    omm_arena_fini(&arena);
}

static void arena_has_a_limit(void) {
    omm_arena arena;
    omm_arena_init(&arena, 10000);
    CHECK(omm_arena_alloc(&arena, 10001, 1) == NULL);
    CHECK(omm_arena_alloc(&arena, SIZE_MAX, 1) == NULL);
    CHECK(omm_arena_alloc(&arena, SIZE_MAX / 2, 3) == NULL);
    CHECK(omm_arena_alloc(&arena, SIZE_MAX / 2 + 2, 2) ==
          NULL); /* 2 bytes, where it wraps around */
    CHECK_EQ(omm_mem_live(), 0);
    size_t got = 0;
    while (omm_arena_alloc(&arena, 100, 1)) got += 100;
    CHECK(got <= 10000);
    CHECK(got >= 8000);
    CHECK(arena.total <= 10000);
    omm_arena_fini(&arena);

    omm_arena_init(&arena, 0);
    CHECK(omm_arena_alloc(&arena, 1, 1) == NULL);
    omm_arena_fini(&arena);
    omm_arena_init(&arena, 7); /* below a block's head */
    CHECK(omm_arena_alloc(&arena, 1, 1) == NULL);
    omm_arena_fini(&arena);
}

static void arena_survives_failing_memory(void) {
    omm_arena arena;
    omm_arena_init(&arena, 1u << 20);
    char *a = omm_arena_strdup(&arena, "first");
    omm_mem_fail_nth(1);
    CHECK(omm_arena_alloc(&arena, 60000, 1) == NULL);
    omm_mem_fail_nth(0);
    char *b = omm_arena_alloc(&arena, 60000, 1);
    CHECK(a && b && strcmp(a, "first") == 0);
    omm_arena_fini(&arena);
    CHECK_EQ(omm_mem_live(), 0);
}

/* Small and large: aligned, zero, counted, failing when asked to. */
static void huge_memory(void) {
    static const size_t sizes[] = {0, 1, 32767, 32768, 70000, (6u << 20) + 1, (25u << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t live = omm_mem_live();
        unsigned char *p = (unsigned char *)omm_alloc_huge(sizes[i]);
        CHECK(p != NULL);
        CHECK_EQ(omm_mem_live(), live + 1);
        CHECK_EQ((uintptr_t)p % 64u, 0);
        for (size_t k = 0; k < sizes[i]; k++) CHECK_EQ(p[k], 0);
        memset(p, 1, sizes[i]);
        omm_free_huge(p, sizes[i]);
        omm_mem_fail_nth(1);
        CHECK(omm_alloc_huge(sizes[i]) == NULL);
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK(omm_alloc_huge(SIZE_MAX) == NULL);
    CHECK(omm_alloc_huge(SIZE_MAX / 2) == NULL);
    omm_free_huge(NULL, 2u << 20);
}

/* More than one chunk of them: apart from each other, zero however often memory comes back, and what
 * is freed leaves its neighbours as they are. */
static void huge_neighbours(void) {
    enum { COUNT = 5 };
    const size_t bytes = (20u << 20) + 64; /* three to a chunk, none on a page's edge */
    unsigned char *p[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            p[i] = (unsigned char *)omm_alloc_huge(bytes);
            CHECK(p[i] != NULL);
            for (size_t k = 0; k < bytes; k += 61) CHECK_EQ(p[i][k], 0);
            memset(p[i], 1 + i, bytes);
        }
        for (int freed = 0; freed < COUNT; freed++) {
            const int i = (2 * freed + 1) % COUNT; /* 1 3 0 2 4: from the middle of a chunk too */
            for (size_t k = 0; k < bytes; k++) CHECK_EQ(p[i][k], 1 + i);
            omm_free_huge(p[i], bytes);
        }
    }
    CHECK_EQ(omm_mem_live(), 0);
}

/* What is resident is never more than planned, though each chunk ends in a large page that is not full. */
static void huge_is_planned(void) {
    enum { COUNT = 7 };
    const size_t bytes = (22u << 20) + 64, heap = 1u << 20; /* two to a chunk */
    unsigned char *p[COUNT];
    const uint64_t before = omm_memory_resident();
    for (int i = 0; i < COUNT; i++) {
        p[i] = (unsigned char *)omm_alloc_huge(bytes);
        CHECK(p[i] != NULL);
        memset(p[i], 1, bytes);
    }
    const uint64_t taken = omm_memory_resident() - before, planned = omm_huge_taken(COUNT * bytes);
    printf("%zu bytes of large arrays take %llu, planned %llu\n", COUNT * bytes,
           (unsigned long long)taken, (unsigned long long)planned);
    CHECK(taken <= planned + heap);
    for (int i = 0; i < COUNT; i++) omm_free_huge(p[i], bytes);
}

/* Arrays that come and go beside one that stays: the same addresses again, zero again, never over each
 * other, in any order of freeing. */
static void huge_holes(void) {
    enum { COUNT = 300, TURNS = 20 };
    static unsigned char *p[COUNT];
    static size_t bytes[COUNT];
    unsigned char *stays = (unsigned char *)omm_alloc_huge(100000);
    CHECK(stays != NULL);
    uintptr_t low = UINTPTR_MAX, high = 0, high_first = 0;
    uint32_t random = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < COUNT; i++) {
            random = random * 1664525u + 1013904223u;
            if (p[i] && turn + 1 < TURNS && (random >> 28) < 6) continue; /* lives on */
            if (p[i]) {
                for (size_t k = 0; k < bytes[i]; k += 17) CHECK_EQ(p[i][k], i % 251 + 1);
                omm_free_huge(p[i], bytes[i]);
                p[i] = NULL;
            }
            if (turn + 1 == TURNS) continue;
            bytes[i] = 32768 + (random >> 12) % 60000;
            p[i] = (unsigned char *)omm_alloc_huge(bytes[i]);
            CHECK(p[i] != NULL);
            CHECK_EQ((uintptr_t)p[i] % 64u, 0);
            for (size_t k = 0; k < bytes[i]; k++) CHECK_EQ(p[i][k], 0);
            memset(p[i], i % 251 + 1, bytes[i]);
            if ((uintptr_t)p[i] < low) low = (uintptr_t)p[i];
            if ((uintptr_t)p[i] > high) high = (uintptr_t)p[i];
        }
        if (turn == 0) high_first = high;
    }
    CHECK(high - low < 2 * (high_first - low)); /* 20 turns took not 20 times the room of one */
    for (size_t k = 0; k < 100000; k++) CHECK_EQ(stays[k], 0);
    omm_free_huge(stays, 100000);
    CHECK_EQ(omm_mem_live(), 0);
}

/* Pages in the middle go; what shares a page with others stays, and so does the allocation. */
static void forgets_whole_pages(void) {
    enum { BYTES = 1 << 20, EDGE = 65536 }; /* EDGE: a page at most */
    unsigned char *p = (unsigned char *)omm_alloc_aligned(BYTES, 1);
    CHECK(p != NULL);
    memset(p, 7, BYTES);
    omm_mem_forget(p + EDGE + 1, BYTES - 2 * EDGE - 2);
    for (size_t i = 0; i <= EDGE; i++) CHECK(p[i] == 7 && p[BYTES - 1 - i] == 7);
    CHECK(all_zero(p + (size_t)2 * EDGE, BYTES - (size_t)4 * EDGE));
    omm_mem_forget(p + 1, 100); /* no whole page */
    omm_mem_forget(p, 0);
    CHECK_EQ(p[1], 7);
    memset(p, 8, BYTES);
    omm_free(p);
    CHECK_EQ(omm_mem_live(), 0);
}

static bool is_about(size_t bytes, size_t wanted) {
    return bytes >= wanted && bytes <= wanted + 8192; /* pages are whole */
}

static void counts_bytes_and_their_peak(void) {
    static const size_t MIB = (size_t)1 << 20;
    const size_t none = omm_mem_bytes();
    omm_mem_peak_restart();
    CHECK_EQ(omm_mem_peak(), none);
    void *a = omm_alloc(MIB, 1);
    void *b = omm_alloc_aligned(2 * MIB, 1);
    void *c = omm_alloc_huge(4 * MIB);
    CHECK(a && b && c);
    CHECK(is_about(omm_mem_bytes() - none, 7 * MIB));
    omm_free(b);
    void *grown = omm_grow(a, MIB, 3 * MIB, 1);
    CHECK(grown != NULL);
    CHECK(is_about(omm_mem_bytes() - none, 7 * MIB));
    void *less = omm_grow(grown, 3 * MIB, MIB, 1);
    CHECK(less != NULL);
    CHECK(is_about(omm_mem_bytes() - none, 5 * MIB));
    omm_free_huge(c, 4 * MIB);
    omm_free(less);
    CHECK_EQ(omm_mem_bytes(), none);
    CHECK(is_about(omm_mem_peak() - none, 7 * MIB));
    omm_mem_peak_restart();
    CHECK_EQ(omm_mem_peak(), none);
}

static pthread_barrier_t s_begin;

static void *trim_at_once(void *ud) {
    pthread_barrier_wait(&s_begin);
    omm_mem_trim();
    return ud;
}

/* Processes whose first calls come at once: what they share is begun by one of them (with a sanitizer's heap). */
static void trims_at_once(void) {
    enum { PROCESSES = 40, THREADS = 4 };
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            pthread_t threads[THREADS];
            CHECK_EQ(pthread_barrier_init(&s_begin, NULL, THREADS), 0);
            for (int t = 0; t < THREADS; t++)
                CHECK_EQ(pthread_create(&threads[t], NULL, trim_at_once, NULL), 0);
            for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
            _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

int main(void) {
    trims_at_once();
    counts_bytes_and_their_peak();
    forgets_whole_pages();
    huge_memory();
    huge_is_planned();
    huge_neighbours();
    huge_holes();
    counts_what_lives();
    refuses_overflow();
    nothing_is_something();
    grow_keeps_and_zeroes();
    fails_exactly_the_nth();
    arena_keeps_its_promises();
    arena_has_a_limit();
    arena_survives_failing_memory();
    return 0;
}
