/* timetable_test.c - schedules and stages over restarts, reboots and clocks that jump. */
#include "omm_test.h"

#include "timetable.h"

#define HOUR ((uint64_t)3600 * 1000)

static char s_dir[] = "/tmp/omm-timetable-XXXXXX";
static omm_fake_clock s_fake;
static omm_clock s_clock;

/* A process that starts now, on the boot `boot`. */
static timetable started(uint64_t every_ms, bool has_at, uint64_t at_ms, const char *boot) {
    timetable t;
    CHECK_OK(timetable_open(&t, s_dir, s_clock, every_ms, has_at, at_ms, boot));
    return t;
}

static void pass(uint64_t ms) {
    s_fake.now_ms += ms;
    s_fake.wall_ms += ms;
}

static void begin(void) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, "timetable.json"));
    CHECK_OK(omm_file_remove(path));
    s_fake =
        (omm_fake_clock){.now_ms = 5000, .wall_ms = (uint64_t)1700000000 * 1000}; /* 22:13:20 UTC */
}

static uint64_t stage_ms(const timetable *t, uint32_t round, uint32_t stage) {
    uint64_t ms = 0;
    return timetable_stage_ms(&ms, t, round, stage) ? ms : UINT64_MAX;
}

/* After `away` with a wall clock that moved by `wall`, on another boot, how long has the stage lasted? */
static uint64_t after_reboot(int64_t wall) {
    begin();
    timetable t = started(0, false, 0, "a");
    CHECK_OK(timetable_note(&t, 3, 1, 0));
    pass(TIMETABLE_KEEP_MS);
    CHECK_OK(timetable_note(&t, 3, 1, TIMETABLE_KEEP_MS));
    s_fake.now_ms = 10;
    s_fake.wall_ms = (uint64_t)((int64_t)s_fake.wall_ms + wall);
    t = started(0, false, 0, "b");
    return stage_ms(&t, 3, 1);
}

static void test_stages(void) {
    begin();
    timetable t = started(0, false, 0, "a");
    CHECK_EQ(stage_ms(&t, 0, 0), UINT64_MAX);
    CHECK_OK(timetable_note(&t, 3, 1, 2000));
    pass(10000);
    /* The same boot: time goes on while the process is away, whatever the wall clock does. */
    s_fake.wall_ms += HOUR * 24 * 365 * 20;
    t = started(0, false, 0, "a");
    CHECK_EQ(stage_ms(&t, 3, 1), 12000);
    s_fake.wall_ms = 0;
    t = started(0, false, 0, "a");
    CHECK_EQ(stage_ms(&t, 3, 1), 12000);
    CHECK_EQ(stage_ms(&t, 4, 1), UINT64_MAX);
    CHECK_EQ(stage_ms(&t, 3, 0), UINT64_MAX);
    s_fake.now_ms =
        100; /* the same by name, and before it: by the wall clock, which stands as it did */
    s_fake.wall_ms = (uint64_t)1700000000 * 1000;
    t = started(0, false, 0, "a");
    CHECK_EQ(stage_ms(&t, 3, 1), 2000);
    /* Another boot: by the wall clock, as far as it can be believed. */
    CHECK_EQ(after_reboot(0), TIMETABLE_KEEP_MS);
    CHECK_EQ(after_reboot(90000), TIMETABLE_KEEP_MS + 90000);
    CHECK_EQ(after_reboot((int64_t)TIMETABLE_GAP_MS), TIMETABLE_KEEP_MS + TIMETABLE_GAP_MS);
    CHECK_EQ(after_reboot((int64_t)TIMETABLE_GAP_MS + 1), TIMETABLE_KEEP_MS);
    CHECK_EQ(after_reboot(-1000), TIMETABLE_KEEP_MS);
    CHECK_EQ(after_reboot((int64_t)(HOUR * 24 * 365 * 30)), TIMETABLE_KEEP_MS);
}

/* It is not written at every look, and what is damaged counts as nothing. */
static void test_file(void) {
    char path[OMM_PATH_MAX];
    begin();
    CHECK_OK(omm_path_join(path, s_dir, "timetable.json"));
    timetable t = started(0, false, 0, "a");
    CHECK_OK(timetable_note(&t, 0, 0, 0));
    CHECK_OK(omm_file_remove(path));
    for (uint64_t ms = 0; ms < TIMETABLE_KEEP_MS - 1000; ms += 200) {
        CHECK_OK(timetable_note(&t, 0, 0, ms + ms % 3));
        pass(200);
    }
    CHECK(!omm_file_exists(path));
    CHECK_OK(timetable_note(&t, 0, 1, 0));
    CHECK(omm_file_exists(path));
    static const char negative[] =
        "{\"schema_version\":1,\"boot\":\"a\",\"now_ms\":-5,\"wall_ms\":0,\"round\":0,\"stage\":1,"
        "\"stage_ms\":7,\"opened_ms\":-1,\"slot\":-1}";
    static const char *const wrong[] = {"", "{", "[]", "{\"schema_version\":2}", negative};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_OK(omm_file_write(path, omm_bytes_str(wrong[i]), 0600));
        t = started(HOUR, false, 0, "a");
        CHECK_EQ(stage_ms(&t, 0, 1), UINT64_MAX);
        CHECK(timetable_is_due(&t));
    }
    CHECK_OK(omm_file_remove(path));
    CHECK_OK(omm_dir_make(path)); /* nothing can be kept, and that is said */
    CHECK(timetable_note(&t, 1, 0, 0) != OMM_OK);
    CHECK_OK(omm_dir_remove(path));
}

static void test_every(void) {
    begin();
    timetable t = started(6 * HOUR, false, 0, "a");
    CHECK(timetable_is_due(&t)); /* the first one at once */
    CHECK_OK(timetable_note(&t, 0, 0, 0));
    pass(1000);
    t = started(6 * HOUR, false, 0, "a");
    CHECK(timetable_is_due(&t)); /* over a restart, too */
    timetable_opened(&t);
    CHECK_OK(timetable_note(&t, 0, 1, 0));
    pass(6 * HOUR - 1);
    CHECK(!timetable_is_due(&t));
    s_fake.wall_ms += HOUR * 24 * 1000; /* the wall clock is not asked */
    CHECK(!timetable_is_due(&t));
    t = started(6 * HOUR, false, 0, "a");
    CHECK(!timetable_is_due(&t));
    pass(1);
    CHECK(timetable_is_due(&t));
    timetable_opened(&t);
    CHECK(!timetable_is_due(&t));
    t = started(0, false, 0, "a");
    CHECK(timetable_is_due(&t)); /* without a schedule always */
}

/* A kill between a round's opening and the file that says so: the next one does not follow at once. */
static void test_killed(bool has_at) {
    enum { GATHERED = 0, OPEN = 1, SUMMED = 2 };
    begin();
    timetable t = started(6 * HOUR, has_at, 3 * HOUR, "a");
    timetable_opened(&t);
    CHECK_OK(timetable_note(&t, 0, OPEN, 0));
    pass(5 * HOUR); /* 03:13:20 */
    CHECK_OK(timetable_note(&t, 1, GATHERED, 0));
    pass(HOUR);
    CHECK(timetable_is_due(&t));
    t = started(6 * HOUR, has_at, 3 * HOUR, "a");
    CHECK(timetable_is_due(&t));
    timetable_begun(&t, 1, OPEN);
    CHECK(!timetable_is_due(&t));
    CHECK_OK(timetable_note(&t, 1, OPEN, 0));
    pass(2 * HOUR); /* what is kept stays as it is */
    t = started(6 * HOUR, has_at, 3 * HOUR, "a");
    timetable_begun(&t, 1, OPEN);
    CHECK_OK(timetable_note(&t, 1, SUMMED, 0));
    t = started(6 * HOUR, has_at, 3 * HOUR, "a");
    timetable_begun(&t, 1, OPEN);
    CHECK(!timetable_is_due(&t));
    pass(4 * HOUR);
    CHECK(timetable_is_due(&t));
}

static void test_at(void) {
    begin(); /* 22:13:20 */
    timetable t = started(0, true, 3 * HOUR, "a");
    CHECK(!timetable_is_due(&t));
    pass(4 * HOUR + 46 * (HOUR / 60) + 39999); /* 02:59:59.999 */
    CHECK(!timetable_is_due(&t));
    pass(1);
    CHECK(timetable_is_due(&t));
    pass(5000); /* until nodes are there */
    CHECK(timetable_is_due(&t));
    timetable_opened(&t);
    CHECK_OK(timetable_note(&t, 0, 1, 0));
    CHECK(!timetable_is_due(&t));
    /* A jump of years opens nothing, and blocks nothing: the next time is the next one of the new clock. */
    s_fake.wall_ms += HOUR * 24 * 365 * 10;
    CHECK(!timetable_is_due(&t));
    pass(11 * HOUR);
    CHECK(!timetable_is_due(&t));
    pass(HOUR);
    CHECK(timetable_is_due(&t));
    timetable_opened(&t);
    s_fake.wall_ms -= HOUR * 24 * 365 * 20;
    CHECK(!timetable_is_due(&t));
    pass(24 * HOUR);
    CHECK(timetable_is_due(&t));
    timetable_opened(&t);
    t = started(6 * HOUR, true, 3 * HOUR, "a"); /* 03, 09, 15, 21 */
    int opened = 0;
    for (int i = 0; i < 4 * 24 * 60; i++) { /* four days, minute by minute */
        pass(60000);
        if (!timetable_is_due(&t)) continue;
        const uint64_t minute = s_fake.wall_ms / 60000 % 360;
        CHECK(minute == 180 || opened == 0);
        timetable_opened(&t);
        opened++;
    }
    CHECK(opened == 16 || opened == 17);
}

int main(void) {
    CHECK(mkdtemp(s_dir));
    s_clock = omm_clock_fake(&s_fake);
    test_stages();
    test_file();
    test_every();
    test_killed(false);
    test_killed(true);
    test_at();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}
