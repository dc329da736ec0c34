/* prefix.h - computed beginnings of sequences, kept for those that begin alike.
 *
 * A store belongs to one group, so that model, cache type and activations are the same for all that
 * it holds.  What is kept are whole blocks of 64 positions, as chains:
 *
 *   key(0) = BLAKE2b(adapters' digests with scales)     key(n) = BLAKE2b(key(n - 1), 64 token ids)
 *
 * A session that begins with the same tokens under the same adapters (same order, same scales)
 * shares those blocks instead of computing them: equal bytes either way.  Other adapters give
 * other keys.  In layers with a window a chain serves up to where it has what the window shows.
 * The least recently used chains go first when the limit is reached.
 *
 * Depends on: session.  Threads: a store belongs to the thread of its group.
 */
#ifndef OMM_PREFIX_H
#define OMM_PREFIX_H

#include "omm/session.h"

typedef struct omm_prefix_store omm_prefix_store;

/* At most bytes_max of cache blocks are kept.  The group's sessions use the store from now on
 * (omm_session_become); close it before the group.  Errors: NOMEM, STATE (the group has one). */
OMM_CHECKED omm_err omm_prefix_open(omm_prefix_store **out, omm_group *group, size_t bytes_max);
void omm_prefix_close(omm_prefix_store *store);

/* Put the whole blocks of what the session holds into the store.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_prefix_keep(omm_prefix_store *store, omm_session *session);
/* Let the session begin with ids[0..count) as far as the store has more of them than the session,
 * whose own ids are a beginning of these.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_prefix_fetch(omm_prefix_store *store, omm_session *session,
                                     const uint32_t *ids, size_t count);

typedef struct omm_prefix_stats {
    size_t bytes, blocks;      /* held now; a block: 64 positions of all layers */
    uint64_t positions_reused; /* that fetches have saved from being computed */
    uint64_t blocks_evicted;
} omm_prefix_stats;
omm_prefix_stats omm_prefix_stats_of(const omm_prefix_store *store);

#endif
