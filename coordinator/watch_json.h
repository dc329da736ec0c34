/* watch_json.h - values of the coordinator's JSON that have no other place: times, counts, strangers' words.
 *
 * Depends on: base, watch_health.h; jansson.  Threads: functions of their arguments.
 */
#ifndef COORDINATOR_WATCH_JSON_H
#define COORDINATOR_WATCH_JSON_H

#include "watch_health.h"

#include "omm/json.h"

/* New references; NULL without memory. */
/* A stranger's words: what is not plain ASCII becomes '?', so that it is UTF-8 whatever it was. */
json_t *watch_json_words(const char *text);
/* "2026-11-22T03:00:00.000Z", null for 0. */
json_t *watch_json_time(uint64_t wall_ms);
/* null where it is not finite. */
json_t *watch_json_real(double value);
json_t *watch_json_count(uint64_t value);
/* Set `sick`: the lines of watch_reasons_text, none where it is well.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err watch_json_sick(json_t *root, const watch_seen *seen);

#endif
