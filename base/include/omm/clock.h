/* clock.h - time is a parameter: libraries take an omm_clock, tests give a fake one.
 *
 * Depends on: libc.  Threads: the system clock is safe; a fake one belongs to its test.
 */
#ifndef OMM_CLOCK_H
#define OMM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct omm_clock {
    /* Monotonic, from an arbitrary start. */
    uint64_t (*now_ms)(void *ud);
    /* UTC since 1970, for names and logs only; never in anything deterministic. */
    uint64_t (*wall_ms)(void *ud);
    void (*sleep_ms)(void *ud, uint64_t ms);
    void *ud;
} omm_clock;

omm_clock omm_clock_system(void);

/* Starts at 0; sleep advances it. */
typedef struct omm_fake_clock {
    uint64_t now_ms;
    uint64_t wall_ms;
} omm_fake_clock;
omm_clock omm_clock_fake(omm_fake_clock *fake);

/* "20261120T194012Z" from wall milliseconds. */
void omm_time_stamp(char out[17], uint64_t wall_ms);
/* "2026-11-20T19:40:12.123Z" */
void omm_time_iso(char out[25], uint64_t wall_ms);
/* Is `text`, a stranger's, what omm_time_iso writes of some time?  1970 to 9999, days that there are, no leap second. */
bool omm_time_is_iso(const char *text);
/* Monotonic nanoseconds of the system, for measurements. */
uint64_t omm_measure_ns(void);

#endif
