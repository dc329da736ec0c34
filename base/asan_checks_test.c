/* The quick look at many bytes agrees with the sanitizer's own, and what is wrong is still reported. */
#include "asan_checks.h"
#include "omm_test.h"

#if OMM_ASAN_CHECKS
#include <sanitizer/asan_interface.h>
#include <sys/wait.h>
#include <unistd.h>

void __asan_loadN(void *p, size_t size);
void __asan_storeN(void *p, size_t size);

enum { BYTES = 160 };

/* Every place and size in a block whose first `good` bytes may be touched. */
static void agrees(size_t good) {
    char *block = aligned_alloc(16, BYTES);
    CHECK(block != NULL);
    ASAN_POISON_MEMORY_REGION(block + good, BYTES - good);
    size_t quick = 0;
    for (size_t at = 0; at < BYTES; at++)
        for (size_t size = 1; size <= 64 && at + size <= BYTES; size++) {
            const bool bad = __asan_region_is_poisoned(block + at, size) != NULL;
            CHECK_EQ(bad, at + size > good);
            if (!omm_asan_all_good(block + at, size)) continue;
            CHECK(!bad);
            quick++;
        }
    for (size_t at = 0; at + 32 <= good / 8 * 8; at++)
        CHECK(omm_asan_all_good(block + at, 32)); /* else it would be of no use */
    CHECK(good < 64 || quick > 0);
    CHECK(!omm_asan_all_good(block, 0));
    ASAN_UNPOISON_MEMORY_REGION(block, BYTES);
    free(block);
}

/* 32 bytes of which the last is not ours: the process ends with a report. */
static void reports(void (*touch)(void *, size_t), const char *says) {
    int ends[2];
    char text[8192] = "";
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        char *block = malloc(31);
        touch(block, 32);
        _exit(0);
    }
    close(ends[1]);
    size_t have = 0;
    for (ssize_t n = 1; n > 0 && have + 1 < sizeof text; have += n > 0 ? (size_t)n : 0)
        n = read(ends[0], text + have, sizeof text - 1 - have);
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status != 0);
    CHECK(strstr(text, "31-byte region") != NULL);
    CHECK(strstr(text, says) != NULL);
}

int main(void) {
    for (size_t good = 0; good <= BYTES; good++) agrees(good);
    reports(__asan_loadN, "READ of size 32");
    reports(__asan_storeN, "WRITE of size 32");
    return 0;
}
#else
int main(void) {
    puts("skipped: this build is not gcc's with AddressSanitizer on x86-64");
    return 77;
}
#endif
