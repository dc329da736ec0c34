/* session.h - one sequence on its way through a model: key/value cache, prefill, decode, sampling.
 *
 *   open --append(ids)--> logits of the last (or of every) position --sample--> id --append--> ...
 *
 * Appending ids one at a time, all at once or in any pieces gives the same logits to the bit.
 *
 * Depends on: model, kernels, lora, rng.  Threads: a session belongs to one thread at a time and
 * uses the compute context it was opened with; sessions on different contexts run in parallel.
 */
#ifndef OMM_SESSION_H
#define OMM_SESSION_H

#include "omm/compute.h"
#include "omm/err.h"
#include "omm/lora.h"
#include "omm/model.h"
#include "omm/rng.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum omm_activations { OMM_ACTIVATIONS_F32, OMM_ACTIVATIONS_Q8 } omm_activations;
/* "f32", "q8".  Errors: CONFIG. */
OMM_CHECKED omm_err omm_activations_parse(omm_activations *out, const char *name);
const char *omm_activations_name(omm_activations a);

typedef struct omm_session_options {
    omm_activations activations; /* default F32 */
    omm_kv_type kv_type;         /* default F32; F16 halves the cache, Q8_0 quarters it */
    uint32_t positions_max;      /* default 0: the model's context, at most 4096 */
    uint32_t batch_max;          /* tokens computed together in prefill; default 256 */
} omm_session_options;

omm_session_options omm_session_options_default(void);

typedef struct omm_session omm_session;

/* compute, model and lora (NULL: none) are borrowed until close; the adapter's values are packed
 * here, so later changes to them do not reach the session.
 * Errors: NOMEM, TOO_BIG, CONFIG (batch_max 0), REFUSED_SHAPE (adapter of another shape),
 * NUMERIC. */
OMM_CHECKED omm_err omm_session_open(omm_session **out, const omm_compute *compute,
                                     const omm_model *model, const omm_lora *lora,
                                     const omm_session_options *options);
void omm_session_close(omm_session *session);

uint32_t omm_session_position(const omm_session *session); /* ids appended so far */
uint32_t omm_session_positions_max(const omm_session *session);
/* Forget positions from `position` on; position <= omm_session_position. */
void omm_session_truncate(omm_session *session, uint32_t position);

/* Append `count` >= 1 ids and compute logits: of the last position (every = false,
 * logits[vocab]) or of every one (every = true, logits[count][vocab]).  logits NULL: only
 * fill the cache.
 * Errors: FORMAT (an id is not in the vocabulary), TOO_BIG (over positions_max, says the limit);
 * then nothing has changed.  NUMERIC (a logit is not finite; the ids have been appended). */
OMM_CHECKED omm_err omm_session_append(omm_session *session, const uint32_t *ids, size_t count,
                                       float *logits, bool every);

/* Sum over i of -log p(ids[i+1] | ids[..i]) for ids[0..count), from an empty session of at least
 * count positions; per_token[count - 1] may be NULL.  Summed in double, ascending.
 * Errors: as omm_session_append; STATE (session not empty). */
OMM_CHECKED omm_err omm_session_nll(double *sum, float *per_token, omm_session *session,
                                    const uint32_t *ids, size_t count);

typedef struct omm_sampler {
    float temperature; /* 0: greedy */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off; 0 < top_p <= 1 */
    omm_rng rng;       /* lane; number `position` decides the token at that position */
} omm_sampler;

/* Greedy. */
omm_sampler omm_sampler_default(void);
/* Errors: CONFIG (temperature < 0 or not finite, top_p outside (0, 1]). */
OMM_CHECKED omm_err omm_sampler_check(const omm_sampler *sampler);

/* Lowest id of the largest logit. */
uint32_t omm_argmax(const float *logits, uint32_t vocab);
/* The token to stand at `position`.  Candidates are ordered by logit, ties by lower id; top_k
 * first, then softmax at the temperature over what is left, then the shortest prefix whose
 * probability reaches top_p.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_sample(uint32_t *out, const omm_sampler *sampler, const float *logits,
                               uint32_t vocab, uint64_t position);

#endif
