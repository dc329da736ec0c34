/* internal.h - what the gate families share.
 *
 * Depends on: gates.h, stats.h.  Threads: no shared state.
 */
#ifndef GATES_INTERNAL_H
#define GATES_INTERNAL_H

#include "omm/gates.h"
#include "omm/stats.h"

/* A metric in the unit of its table entry. */
omm_metric metric_of(omm_metric_id id, double value, uint64_t samples);

/* a + b, or false on overflow: hostile rows must not wrap around. */
static inline bool sum_u64(uint64_t *sum, uint64_t more) {
    return !__builtin_add_overflow(*sum, more, sum);
}

/* Mean uplift (before - after) / tokens of each client's items, in item order.
 *
 *   out  receives an owned array of `client_count` doubles, or NULL where the rows are not valid: no
 *        rows, a client outside 0 .. client_count - 1 or without items, 0 tokens, a loss that is
 *        not finite.  Free with omm_free.
 *
 * Errors: NOMEM. */
OMM_CHECKED omm_err client_uplifts(double **out, const omm_gate_item *items, size_t count,
                                   uint32_t client_count);

#endif
