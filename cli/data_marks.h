/* data_marks.h - examples by their tokens, so that those which two data sets have in common are found: what `data check`
 * says of two files, and `train` of what is held out.
 *
 * Two conversations are equal when their token ids are, whatever their client or spelling.
 *
 *   marks of what is held out --sort--> meet, with each example that is trained on --> count, first pairs
 *
 * Depends on: base; train's dataset.h.  Threads: one at a time.
 */
#ifndef CLI_DATA_MARKS_H
#define CLI_DATA_MARKS_H

#include "omm/dataset.h"
#include "omm/json.h"

enum { DATA_PAIRS_SHOWN = 5 };

typedef struct data_mark {
    uint64_t hash;
    uint32_t line; /* where the example begins in its file; 0: of a stream, not known */
    uint32_t met;  /* place of the first example of the other set that is equal; 0: none yet */
} data_mark;

typedef struct data_marks {
    data_mark *rows;
    size_t count, capacity;
} data_marks;

/* Of the first `tokens` of an example: what a training on so many sees of it. */
uint64_t data_mark_of(const omm_example *example, uint32_t tokens);
/* Errors: NOMEM. */
OMM_CHECKED omm_err data_marks_add(data_marks *marks, uint64_t hash, uint32_t line);
/* In the order of (hash, line). */
void data_marks_sort(data_marks *marks);
/* Every mark of this hash, in sorted `marks`, is met by the example at `where` (over 0) if by none before. */
void data_marks_meet(const data_marks *marks, uint64_t hash, uint32_t where);
void data_marks_fini(data_marks *marks);

/* What was met, and the first of it by line, where lines are known. */
typedef struct data_shared {
    uint64_t count;
    size_t shown;
    data_mark first[DATA_PAIRS_SHOWN];
} data_shared;

data_shared data_shared_of(const data_marks *marks);
/* [[place, line], ...] of the first. */
json_t *data_shared_json(const data_shared *shared);

/* What of `held_out`, in memory, is among what is trained on in `data`, in memory or a stream, which is read once more:
 * by the tokens that the latter may have.  Places are lines, of a stream numbers of examples.  Errors: NOMEM, those of
 * a stream's reader. */
OMM_CHECKED omm_err data_shared_find(data_shared *out, const omm_dataset *held_out,
                                     const omm_dataset *data);

#endif
