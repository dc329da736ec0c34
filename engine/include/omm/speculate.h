/* speculate.h - decoding that guesses ahead and checks the guesses in one batch.
 *
 *   start(logits) -> next() -> id, next() -> id, ...    until the caller has enough
 *
 * A drafter proposes some ids; the session appends the last id and the proposals together, and each
 * position's own logits decide, by the sampler, which id stands there.  Proposals are taken while
 * they are those ids.  Because a position's logits do not depend on the batch, and its draw only on
 * the seed, the position and (penalties) the ids before it, the ids are exactly those of decoding one
 * by one, greedy or sampled.
 *
 * Two drafters: another model's session (with the same vocabulary), which draws with the same
 * sampler, or look-up: what followed the last ids where they stood before in this sequence.
 *
 * Depends on: session, sample, constraint.  Threads: those of the session.
 */
#ifndef OMM_SPECULATE_H
#define OMM_SPECULATE_H

#include "omm/constraint.h"
#include "omm/sample.h"
#include "omm/session.h"

#define OMM_SPECULATOR_DRAFTS_MAX 64u

typedef struct omm_speculator omm_speculator;

typedef struct omm_speculator_options {
    omm_session *draft;  /* NULL: look-up */
    uint32_t drafts_max; /* proposals at once, 1 to OMM_SPECULATOR_DRAFTS_MAX; default 4 */
    uint32_t match_max;  /* look-up: ids that must agree, tried from this many to 2; default 4 */
    omm_constraint
        *constraint; /* of what start begins: takes each id that is given out; NULL: none */
} omm_speculator_options;

omm_speculator_options omm_speculator_options_default(void);

/* All borrowed until close.  Errors: CONFIG (limits), MISMATCH (the draft has another number of
 * ids), NOMEM. */
OMM_CHECKED omm_err omm_speculator_open(omm_speculator **out, omm_session *session,
                                        const omm_sampler *sampler,
                                        const omm_speculator_options *options);
void omm_speculator_close(omm_speculator *speculator);

/* Go on from what the session holds, all of which is prompt; logits[vocab] are those of its last position. */
void omm_speculator_start(omm_speculator *speculator, const float *logits);
/* The next id.  The one before is in the session then, and so may be proposals after it.
 * Errors: as omm_session_append, of the session or the draft; UNSUPPORTED (a constraint that allows none). */
OMM_CHECKED omm_err omm_speculator_next(omm_speculator *speculator, uint32_t *id);
/* Ids that stand in the session for good: all that were given out but the last. */
uint32_t omm_speculator_position(const omm_speculator *speculator);
/* Cut the session to those. */
void omm_speculator_finish(omm_speculator *speculator);

typedef struct omm_speculator_stats {
    uint64_t steps, drafted, accepted; /* batches; proposals; those that were right */
} omm_speculator_stats;
omm_speculator_stats omm_speculator_stats_of(const omm_speculator *speculator);

#endif
