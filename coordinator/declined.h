/* declined.h - private to the coordinator: why nodes give nothing to the round, counted by reason.
 *
 * Depends on: proto (declined.h).  Threads: no shared state.
 */
#ifndef COORDINATOR_DECLINED_H
#define COORDINATOR_DECLINED_H

#include "omm/declined.h"

#include <stdbool.h>
#include <stdint.h>

#define DECLINED_LIST_SIZE 320u /* every reason, with as many nodes as a run has */

typedef struct declined_counts {
    uint32_t of[OMM_DECLINED_OTHER + 1]; /* nodes; [OMM_DECLINED_NOTHING] is never counted */
} declined_counts;

/* Does a node that says so give nothing until somebody does something, or for a while?  One that was paused has gone on
 * with the offer by the time it can say so: it is at work. */
bool declined_lasts(uint32_t declined);
/* One node more. */
void declined_add(declined_counts *counts, uint32_t declined);
/* "base 2, memory 1"; "" where nobody says anything. */
void declined_list(char out[DECLINED_LIST_SIZE], const declined_counts *counts);

#endif
