/* nearest.h - which of some names was meant by a word that is none of them.
 *
 * Depends on: nothing.  Threads: no shared state.
 */
#ifndef OMM_NEAREST_H
#define OMM_NEAREST_H

/* Name: of those offered the one that fewest letters tell from the word (one wrong, missing, too many, or changed with its
 * neighbour; '-' is '_'), if that is a third of them at most; of several the first.  NULL: none. */
typedef struct omm_nearest {
    const char *name; /* borrowed from who offered it */
    const char *word; /* borrowed */
    unsigned best;
} omm_nearest;

omm_nearest omm_nearest_begin(const char *word);
void omm_nearest_offer(omm_nearest *nearest, const char *name);

#endif
