#include "omm/clock.h"
#include "omm/err.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define WALL_MS_MAX UINT64_C(253402300799999) /* the last millisecond of the year 9999 */

static uint64_t read_ns(clockid_t id) {
    struct timespec t;
    int rc = clock_gettime(id, &t);
    OMM_ASSERT(rc == 0); /* both clocks exist on every Linux */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t omm_measure_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

static uint64_t system_now_ms(void *ud) {
    (void)ud;
    return read_ns(CLOCK_MONOTONIC) / 1000000u;
}

static uint64_t system_wall_ms(void *ud) {
    (void)ud;
    return read_ns(CLOCK_REALTIME) / 1000000u;
}

/* To a point in time, so that signals in between do not lengthen it. */
static void system_sleep_ms(void *ud, uint64_t ms) {
    (void)ud;
    struct timespec t;
    int rc = clock_gettime(CLOCK_MONOTONIC, &t);
    OMM_ASSERT(rc == 0);
    uint64_t ns = (uint64_t)t.tv_nsec + ms % 1000 * 1000000u;
    t.tv_sec += (time_t)(ms / 1000 + ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

omm_clock omm_clock_system(void) {
    return (omm_clock){system_now_ms, system_wall_ms, system_sleep_ms, NULL};
}

static uint64_t fake_now_ms(void *ud) {
    return ((const omm_fake_clock *)ud)->now_ms;
}

static uint64_t fake_wall_ms(void *ud) {
    return ((const omm_fake_clock *)ud)->wall_ms;
}

static void fake_sleep_ms(void *ud, uint64_t ms) {
    omm_fake_clock *fake = ud;
    fake->now_ms += ms;
    fake->wall_ms += ms;
}

omm_clock omm_clock_fake(omm_fake_clock *fake) {
    *fake = (omm_fake_clock){0, 0};
    return (omm_clock){fake_now_ms, fake_wall_ms, fake_sleep_ms, fake};
}

typedef struct calendar {
    unsigned year, month, day, hour, minute, second, ms;
} calendar;

static calendar calendar_of(uint64_t wall_ms) {
    if (wall_ms > WALL_MS_MAX) wall_ms = WALL_MS_MAX;
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    struct tm *filled = gmtime_r(&seconds, &tm);
    OMM_ASSERT(filled != NULL);
    return (calendar){(unsigned)tm.tm_year + 1900, (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday,
                      (unsigned)tm.tm_hour,        (unsigned)tm.tm_min,     (unsigned)tm.tm_sec,
                      (unsigned)(wall_ms % 1000)};
}

/* The moduli change nothing; they show the compiler that each field fits. */
void omm_time_stamp(char out[17], uint64_t wall_ms) {
    calendar c = calendar_of(wall_ms);
    snprintf(out, 17, "%04u%02u%02uT%02u%02u%02uZ", c.year % 10000, c.month % 100, c.day % 100,
             c.hour % 100, c.minute % 100, c.second % 100);
}

void omm_time_iso(char out[25], uint64_t wall_ms) {
    calendar c = calendar_of(wall_ms);
    snprintf(out, 25, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", c.year % 10000, c.month % 100,
             c.day % 100, c.hour % 100, c.minute % 100, c.second % 100, c.ms % 1000);
}

/* As `form`, which has a 0 where any digit may be. */
static bool has_form(const char *text, const char *form) {
    for (; *form; text++, form++)
        if (*form == '0' ? *text < '0' || *text > '9' : *text != *form) return false;
    return *text == '\0';
}

static unsigned number(const char *text, size_t digits) {
    unsigned value = 0;
    for (size_t i = 0; i < digits; i++) value = 10 * value + (unsigned)(text[i] - '0');
    return value;
}

static unsigned days_of(unsigned year, unsigned month) {
    static const unsigned days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && is_leap);
}

bool omm_time_is_iso(const char *text) {
    if (!has_form(text, "0000-00-00T00:00:00.000Z")) return false;
    const unsigned year = number(text, 4), month = number(text + 5, 2), day = number(text + 8, 2);
    return year >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= days_of(year, month) &&
           number(text + 11, 2) < 24 && number(text + 14, 2) < 60 && number(text + 17, 2) < 60;
}
