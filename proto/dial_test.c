/* dial_test.c - how long is waited before a connection is tried again, and which connection's end is the end. */
#include "dial.h"

#include "omm_test.h"

#define LONGEST 0
#define SHORTEST UINT16_MAX

/* Doubled from the shortest to the longest with each failure, by chance down to a quarter, and never too large. */
static void test_waits(void) {
    static const uint64_t want[] = {100, 100, 200, 400, 800, 1000, 1000};
    dial d = {.min_ms = 100, .max_ms = 1000};
    for (; d.failures < sizeof want / sizeof *want; d.failures++) {
        const uint64_t all = want[d.failures];
        CHECK_EQ(dial_wait_ms(&d, LONGEST), all);
        CHECK_EQ(dial_wait_ms(&d, 1 << 15), all - all / 2 * 3 / 4);
        CHECK(dial_wait_ms(&d, SHORTEST) >= all / 4 && dial_wait_ms(&d, SHORTEST) <= all / 4 + 1);
    }
    d.failures = UINT32_MAX;
    CHECK_EQ(dial_wait_ms(&d, LONGEST), 1000);
    d.min_ms = d.max_ms = UINT32_MAX;
    CHECK_EQ(dial_wait_ms(&d, LONGEST), UINT32_MAX);
    CHECK(dial_wait_ms(&d, SHORTEST) >= UINT32_MAX / 4);
}

static bool is_up(dial *d) {
    bool is = false;
    (void)dial_why(&is, d);
    return is;
}

/* One that was left is buried late, when the next one is there. */
static void test_late_burial(void) {
    dial d = {0};
    CHECK_EQ(pthread_mutex_init(&d.mutex, NULL), 0);
    glue_cond_init(&d.changed);
    dial_note(&d, 7, true);
    CHECK(is_up(&d));
    dial_note(&d, 8, true);
    dial_note(&d, 7, false);
    CHECK(is_up(&d));
    dial_note(&d, 8, false);
    CHECK(!is_up(&d));
    dial_fini(&d);
}

int main(void) {
    test_waits();
    test_late_burial();
    return 0;
}
