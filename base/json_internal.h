/* json_internal.h - what the files of JSON share. */
#ifndef BASE_JSON_INTERNAL_H
#define BASE_JSON_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Halves of a surrogate pair that stand alone in texts, or names, below those members (NULL at the end) of the outermost object, as
 * its text spells them, become U+FFFD; returns how many did.  The text may be anything. */
size_t json_mend_surrogates(uint8_t *text, size_t size, const char *const *members);

#endif
