#include "omm/clock.h"
#include "omm_test.h"

#include <string.h>

static void times_are_spelled(void) {
    static const struct {
        uint64_t wall_ms;
        const char *stamp;
        const char *iso;
    } table[] = {
        {0, "19700101T000000Z", "1970-01-01T00:00:00.000Z"},
        {951827696789, "20000229T123456Z", "2000-02-29T12:34:56.789Z"},
        {1795203612123, "20261120T194012Z", "2026-11-20T19:40:12.123Z"},
        {253402300799999, "99991231T235959Z", "9999-12-31T23:59:59.999Z"},
        {UINT64_MAX, "99991231T235959Z", "9999-12-31T23:59:59.999Z"},
    };
    char stamp[17];
    char iso[25];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        omm_time_stamp(stamp, table[i].wall_ms);
        omm_time_iso(iso, table[i].wall_ms);
        CHECK(strcmp(stamp, table[i].stamp) == 0);
        CHECK(strcmp(iso, table[i].iso) == 0);
        CHECK(omm_time_is_iso(iso));
    }
}

/* Every byte of a time changed, and times that there are not. */
static void no_times(void) {
    static const char *const table[] = {
        "",
        "2026-11-20",
        "2026-11-20T19:40:12Z",
        "2026-11-20T19:40:12.123",
        "2026-11-20T19:40:12.123z",
        "2026-11-20 19:40:12.123Z",
        "2026-11-20T19:40:12,123Z",
        "2026-11-20T19:40:12.123ZZ",
        "2026-11-20T19:40:12.123+00:00",
        "1969-12-31T23:59:59.999Z",
        "2026-00-20T19:40:12.123Z",
        "2026-13-20T19:40:12.123Z",
        "2026-11-00T19:40:12.123Z",
        "2026-11-31T19:40:12.123Z",
        "2026-02-29T19:40:12.123Z",
        "2100-02-29T19:40:12.123Z",
        "2026-11-20T24:00:00.000Z",
        "2026-11-20T19:60:12.123Z",
        "2026-12-31T23:59:60.000Z",
        "+026-11-20T19:40:12.123Z",
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) CHECK(!omm_time_is_iso(table[i]));
    char iso[25];
    omm_time_iso(iso, 1795203612123);
    for (size_t i = 0; i < sizeof iso - 1; i++) {
        const char was = iso[i];
        iso[i] = '/';
        CHECK(!omm_time_is_iso(iso));
        iso[i] = was;
    }
    CHECK(omm_time_is_iso("2028-02-29T00:00:00.000Z"));
    CHECK(omm_time_is_iso("2000-02-29T23:59:59.999Z"));
}

int main(void) {
    omm_fake_clock fake = {5, 5};
    omm_clock c = omm_clock_fake(&fake);
    CHECK_EQ(c.now_ms(c.ud), 0);
    fake.wall_ms = 1000;
    c.sleep_ms(c.ud, 250);
    CHECK_EQ(c.now_ms(c.ud), 250);
    CHECK_EQ(c.wall_ms(c.ud), 1250);

    c = omm_clock_system();
    uint64_t before = omm_measure_ns();
    uint64_t now = c.now_ms(c.ud);
    c.sleep_ms(c.ud, 20);
    CHECK(omm_measure_ns() - before >= 20000000u);
    CHECK(c.now_ms(c.ud) - now >= 19); /* the two readings round down */
    CHECK(c.wall_ms(c.ud) > 1700000000000u);
    c.sleep_ms(c.ud, 0);
    times_are_spelled();
    no_times();
    return 0;
}
