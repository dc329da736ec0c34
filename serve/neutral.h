/* neutral.h - members of requests that clients send and that are of no effect here, or of none at some values.
 *
 * What a member would do that we do not do is refused by name; what it says by itself, as a client's own default, is let
 * through: a text is the same with it and without.
 *
 * Depends on: json.  Threads: no shared state.
 */
#ifndef SERVE_NEUTRAL_H
#define SERVE_NEUTRAL_H

#include "omm/json.h"

#include <stdbool.h>

typedef struct neutral {
    const char *name;
    unsigned kinds; /* NEUTRAL_CHAT, NEUTRAL_TEXT: requests that have it */
    const char *
        values; /* JSON, with commas between them; "": null alone; NULL: any, it concerns others than the text */
} neutral;

enum { NEUTRAL_CHAT = 1, NEUTRAL_TEXT = 2 };

/* NULL: there is none of that name. */
const neutral *neutral_find(const char *name, bool is_chat);
/* Is it one of the values (a number by its value: 1 and 1.0 are one), or null? */
bool neutral_has(const neutral *n, const json_t *value);

#endif
