/* overlap.h - examples by their tokens, so that those which two data sets have in common are found: what a coordinator
 * refuses, `data check` counts of two files, and `train` says of what is held out.
 *
 * Two examples are equal when their token ids are, whatever their client or spelling: compared are the first 64 bits of
 * BLAKE2b-256 over the ids, u32 LE.
 *
 *   marks of what is held out --sort--> meet, with each example that is trained on --> count, first pairs
 *
 * The place of an example is where people find it: its element in an array, else its line; of a stream its number, from 1.
 *
 * Depends on: base; dataset.h.  Threads: one at a time.
 */
#ifndef OMM_OVERLAP_H
#define OMM_OVERLAP_H

#include "omm/dataset.h"

#define OMM_OVERLAP_SHOWN 5u

typedef struct omm_mark {
    uint64_t hash;
    uint32_t place; /* 0: not known, since it came from a stream */
    uint32_t met;   /* place of the first example of the other set that is equal; 0: none yet */
} omm_mark;

typedef struct omm_marks {
    omm_mark *rows;
    size_t count, capacity;
} omm_marks;

/* Of the first `tokens` of an example: what a training on so many sees of it. */
omm_mark omm_mark_of(const omm_example *example, uint32_t tokens);
/* Errors: NOMEM. */
OMM_CHECKED omm_err omm_marks_add(omm_marks *marks, omm_mark mark);
/* In the order of (hash, place). */
void omm_marks_sort(omm_marks *marks);
/* Every mark of its hash, in sorted `marks`, is met by `mark` (its place over 0) if by none before. */
void omm_marks_meet(const omm_marks *marks, omm_mark mark);
void omm_marks_fini(omm_marks *marks);

/* What was met, and the first of it by place, where places are known. */
typedef struct omm_overlap {
    uint64_t count;
    size_t shown;
    omm_mark first[OMM_OVERLAP_SHOWN];
} omm_overlap;

omm_overlap omm_marks_overlap(const omm_marks *marks);

/* Of `marks`, sorted: those behind an equal one, each with the place of the first one as `met`. */
omm_overlap omm_marks_doubles(const omm_marks *marks);
/* The same of examples in memory, by all their tokens.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_dataset_doubles(omm_overlap *out, const omm_dataset *data);

/* What of `held_out`, in memory, is among what is trained on in `data`, in memory or a stream, which is read once more:
 * by as many tokens as an example of the latter may have.  Errors: NOMEM, those of a stream's reader. */
OMM_CHECKED omm_err omm_dataset_overlap(omm_overlap *out, const omm_dataset *held_out,
                                        const omm_dataset *data);

#endif
