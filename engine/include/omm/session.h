/* session.h - sequences on their way through a model: key/value cache, prefill, decode.
 *
 *   open --append(ids)--> logits of the last (or of every) position --sample.h--> id --append--> ...
 *
 * Appending ids one at a time, all at once or in any pieces gives the same logits to the bit; so
 * does appending those of several sequences of a group together.
 *
 * Cache blocks of 64 positions are taken when their first position is reached and go back when the
 * session is cut, or when a sliding window has passed them: a long context costs what is used of
 * it, and a layer with a window at most window + rollback_max + batch_max + 64 positions.
 *
 * Depends on: model, kernels, adapter.  Threads: a group and its sessions belong to one thread
 * at a time and use the compute context they were opened with; groups on different contexts run in
 * parallel.
 */
#ifndef OMM_SESSION_H
#define OMM_SESSION_H

#include "omm/adapter.h"
#include "omm/compute.h"
#include "omm/err.h"
#include "omm/lora.h"
#include "omm/model.h"
#include "omm/profile.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum omm_activations { OMM_ACTIVATIONS_F32, OMM_ACTIVATIONS_Q8 } omm_activations;
/* "f32", "q8".  Errors: CONFIG. */
OMM_CHECKED omm_err omm_activations_parse(omm_activations *out, const char *name);
const char *omm_activations_name(omm_activations a);

typedef struct omm_session_options {
    omm_activations activations; /* default F32 */
    omm_kv_type kv_type;         /* default F32; F16 halves the cache, Q8_0 quarters it */
    uint32_t positions_max;      /* of one session; default 0: the model's context, at most 4096 */
    uint32_t rope_positions;     /* longrope's choice is for; default 0: positions_max */
    uint32_t batch_max;          /* tokens computed together; default 256 */
    size_t cache_bytes_max;      /* of all blocks together; default 0: no limit */
    uint32_t rollback_max; /* positions that layers with a window keep beyond it, so that truncate
                            * can go back; default 256, at least 64 */
} omm_session_options;

omm_session_options omm_session_options_default(void);

typedef struct omm_session omm_session;
/* What sessions share that run together: memory for a batch, rotary table, pool of blocks. */
typedef struct omm_group omm_group;

/* ---- one sequence ------------------------------------------------------------------------ */

/* A session in a group of its own.  compute and model are borrowed until close; the adapter's
 * values (lora; NULL: none) are packed here, so later changes to them do not reach the session.
 * Errors: NOMEM, TOO_BIG, CONFIG (batch_max 0), REFUSED_SHAPE (adapter of another shape),
 * NUMERIC. */
OMM_CHECKED omm_err omm_session_open(omm_session **out, const omm_compute *compute,
                                     const omm_model *model, const omm_lora *lora,
                                     const omm_session_options *options);
void omm_session_close(omm_session *session);
omm_group *omm_session_group(const omm_session *session);

/* Apply these adapters in this order from now on; borrowed until they are set again or the session
 * is closed.  If they are not those of before, the session is emptied: what is in its cache was
 * computed with those.  Errors: TOO_BIG (over OMM_ADAPTERS_MAX), NOMEM; nothing has changed. */
OMM_CHECKED omm_err omm_session_set_adapters(omm_session *session,
                                             const omm_adapter *const *adapters, size_t count);

uint32_t omm_session_position(const omm_session *session); /* ids appended so far */
uint32_t omm_session_positions_max(const omm_session *session);
const uint32_t *omm_session_ids(const omm_session *session); /* [position], borrowed */
/* Forget positions from `position` on; position <= omm_session_position.  Returns what is left:
 * `position`, or 0 where a layer with a window no longer has what the next token would see. */
uint32_t omm_session_truncate(omm_session *session, uint32_t position);

/* Append `count` >= 1 ids and compute logits: of the last position (every = false,
 * logits[vocab]) or of every one (every = true, logits[count][vocab]).  logits NULL: only
 * fill the cache.
 * Errors: FORMAT (an id is not in the vocabulary), TOO_BIG (over positions_max or the group's
 * cache, says the limit), NOMEM; then nothing has changed, except that a session of a model with
 * windows may be empty.  NUMERIC (a logit is not finite; the ids
 * have been appended). */
OMM_CHECKED omm_err omm_session_append(omm_session *session, const uint32_t *ids, size_t count,
                                       float *logits, bool every);
/* Hold exactly ids[0..count), count >= 1, and give the last one's logits: keeps what the session
 * has in common with them, takes more from the group's prefix store (prefix.h) if there is one,
 * computes the rest and keeps it there.  Errors: as append; what was in common may be all that is
 * left. */
OMM_CHECKED omm_err omm_session_become(omm_session *session, const uint32_t *ids, size_t count,
                                       float *logits);
/* Whoever waits may not want to any more: `ask` is called before each batch of batch_max ids, and
 * true ends it. */
typedef struct omm_session_stop {
    bool (*ask)(void *ud);
    void *ud;
} omm_session_stop;
/* The same, to the same bytes, unless `stop` (NULL: never) says so: then the session holds the beginning
 * of ids that has been computed, which the next become finds.
 * Errors: as become, when that may be so, too; CANCELLED. */
OMM_CHECKED omm_err omm_session_become_unless(omm_session *session, const uint32_t *ids,
                                              size_t count, float *logits,
                                              const omm_session_stop *stop);
/* How many of its ids the last become found computed, in the session or in the store. */
uint32_t omm_session_reused(const omm_session *session);

/* Sum over i of -log p(ids[i+1] | ids[..i]) for ids[0..count), from an empty session of at least
 * count positions; per_token[count - 1] may be NULL.  Summed in double, ascending.
 * Errors: as omm_session_append; STATE (session not empty). */
OMM_CHECKED omm_err omm_session_nll(double *sum, float *per_token, omm_session *session,
                                    const uint32_t *ids, size_t count);

/* ---- several ------------------------------------------------------------------------------- */

/* Errors: NOMEM, TOO_BIG, CONFIG (batch_max 0). */
OMM_CHECKED omm_err omm_group_open(omm_group **out, const omm_compute *compute,
                                   const omm_model *model, const omm_session_options *options);
void omm_group_close(omm_group *group);               /* after its sessions and prefix store */
size_t omm_group_cache_bytes(const omm_group *group); /* blocks made so far */
/* Where the time of passes goes from now on; borrowed until it is set again.  NULL: nobody asks. */
void omm_group_set_profile(omm_group *group, omm_profile *profile);
/* Errors: NOMEM. */
OMM_CHECKED omm_err omm_session_open_in(omm_session **out, omm_group *group);

typedef enum omm_logits { OMM_LOGITS_NONE, OMM_LOGITS_LAST, OMM_LOGITS_EVERY } omm_logits;

typedef struct omm_part {
    omm_session *session; /* of the group; in one part only */
    const uint32_t *ids;
    size_t count; /* >= 1 */
    omm_logits logits;
} omm_part;

/* Append each part's ids to its session, all as one stream of batches.  logits[rows][vocab]: the
 * rows that the parts ask for, in their order.  Errors: as omm_session_append, for all parts. */
OMM_CHECKED omm_err omm_group_append(omm_group *group, const omm_part *parts, size_t count,
                                     float *logits);

#endif
