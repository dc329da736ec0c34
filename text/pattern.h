/* pattern.h - the strings in which a regular expression finds something, character by character.
 *
 *   regular expression --parse--> nodes (pattern_parse.c) --subsets--> states of a table (pattern.c)
 *
 * Expressions are those of ECMA-262, which JSON Schema's `pattern` names, with its u flag: characters are code points.  A text
 * fulfils one in which it finds a match, so all of it only between ^ and $.  Of a state it is known how few more characters
 * a text takes that fulfils it: none leads to where no text ends.  U+0000 and surrogates are no characters here.
 *
 * Read are  . [ ] [^ ] ( ) (?: ) (?<name> ) (?P<name> ) | * + ? {n} {n,} {n,m} and these with ? behind, ^ $, \d \w \s \D \W \S,
 * \t \n \v \f \r \0 \cX \xHH \uHHHH \u{H}, pairs of surrogates, and any other character that is no letter or digit behind a \.  Not: looking
 * around, \b \B, references, \p.
 *
 * Depends on: err.  Threads: a table that nothing is added to is read-only.
 */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

#define PATTERN_BYTES_MAX 4096u       /* of an expression */
#define PATTERN_STATES_MAX (1u << 15) /* of a table */
#define PATTERN_EDGES_MAX (1u << 17)  /* the same */
#define PATTERN_WORK_MAX (1u << 23)   /* nodes that are looked at for all states of a table */
#define PATTERN_WORK_SHARE 4u /* of what is left of that one expression takes no more than 1/4 */
#define PATTERN_CHARACTER_MAX 0x10ffffu
#define PATTERN_NONE UINT32_MAX
/* Plain characters are those from ' ' on but " and \, U+2028 and U+2029: `.` and most that is written [^...] takes all of them, and
 * nearly all tokens have no others. */
#define PATTERN_ROOM_ALL UINT32_MAX           /* any number */
#define PATTERN_ROOM_UNKNOWN (UINT32_MAX - 1) /* that depends on the characters */

typedef struct pattern_edge {
    uint32_t low, high, next; /* characters low .. high lead to that state */
} pattern_edge;

typedef struct pattern_state {
    uint32_t first, count; /* edges, ascending, none of whose characters is another's */
    uint32_t left; /* characters of the shortest text that it takes from here; 0: it may end */
    uint32_t
        plain; /* where all plain characters lead; PATTERN_NONE: not all of them to one state */
    uint32_t
        room; /* any text of up to so many plain characters may follow, and no other text of these; or one below */
} pattern_state;

typedef struct pattern_table {
    pattern_state *states;
    uint32_t state_count, state_capacity;
    pattern_edge *edges;
    uint32_t edge_count, edge_capacity;
    uint32_t work;     /* done */
    uint32_t work_max; /* 0: PATTERN_WORK_MAX; as much as `work`: nothing is added */
} pattern_table;       /* all zero: an empty one */

void pattern_table_fini(pattern_table *table);
/* *start: the state before the first character of texts of at least `least` characters, at most `most`.  What does not fit a limit
 * leaves the table as it was, but for `work`.
 * Errors: FORMAT (no regular expression), UNSUPPORTED (a part that is not read, a limit, no text fulfils it), NOMEM. */
OMM_CHECKED omm_err pattern_add(uint32_t *start, pattern_table *table, const char *expression,
                                uint32_t least, uint32_t most);

/* The first edge of `state`, from which on `room` more characters may come, with one of low .. high behind which a text can be
 * ended in that room; NULL: there is none.  Room PATTERN_NONE: any number. */
const pattern_edge *pattern_find(const pattern_table *table, uint32_t state, uint32_t low,
                                 uint32_t high, uint32_t room);

int pattern_hex_value(uint8_t digit); /* -1: it is none */

#endif
