/* log.h - one line per event, "event key=value ...", through a sink.
 *
 *   2026-11-20T19:40:12.123Z INFO round_open round=3 nodes=8 deadline_ms=60000
 *
 * A value with a space, quote or control character is written as a JSON string.  A line lets an
 * operator act: what, which node, which round, what happens next.
 *
 * Depends on: clock.  Threads: safe; one line is written whole.
 */
#ifndef OMM_LOG_H
#define OMM_LOG_H

#include "omm/clock.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum omm_log_level {
    OMM_LOG_DEBUG,
    OMM_LOG_INFO,
    OMM_LOG_WARN,
    OMM_LOG_ERROR
} omm_log_level;

typedef struct omm_log omm_log;
struct omm_log {
    omm_log_level level;
    omm_clock clock;
    /* Gets one whole line, without newline.  NULL: nothing is logged. */
    void (*sink)(void *ud, omm_log_level level, const char *line);
    void *ud;
};

/* A log to stderr. */
omm_log omm_log_stderr(omm_log_level level);
bool omm_log_wants(const omm_log *log, omm_log_level level); /* false for NULL */

typedef struct omm_log_field {
    const char *key;
    const char *text; /* used when not NULL */
    int64_t number;
} omm_log_field;
#define OMM_LOG_STR(k, v) ((omm_log_field){(k), (v), 0})
#define OMM_LOG_INT(k, v) ((omm_log_field){(k), 0, (int64_t)(v)})

/* omm_log_event(log, OMM_LOG_INFO, "round_open", OMM_LOG_INT("round", 3), ...); */
#define omm_log_event(log, level, event, ...)                                                      \
    omm_log_write((log), (level), (event), (const omm_log_field[]){__VA_ARGS__},                   \
                  sizeof((const omm_log_field[]){__VA_ARGS__}) / sizeof(omm_log_field))
void omm_log_write(const omm_log *log, omm_log_level level, const char *event,
                   const omm_log_field *fields, unsigned count);
/* Level by name ("info"); false when unknown. */
bool omm_log_level_parse(omm_log_level *out, const char *name);

#endif
