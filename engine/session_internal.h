/* session_internal.h - sequences and what they share, as the files of the session see them. */
#ifndef ENGINE_SESSION_INTERNAL_H
#define ENGINE_SESSION_INTERNAL_H

#include "graph.h"
#include "omm/prefix.h"
#include "omm/session.h"

struct omm_group {
    omm_session_options options;
    model_graph graph;
    omm_kv_pool *pool;
    omm_prefix_store *store; /* borrowed; NULL: none */
    size_t sessions;         /* open */
    model_span *spans;       /* [batch_max] of the batch at hand */
    uint32_t *ids, *rows;    /* [batch_max] of the batch at hand; its rows that want logits */
};

struct omm_session {
    omm_group *group;
    bool owns_group;
    uint32_t position;
    uint32_t mark;   /* position before the append at work */
    uint32_t reused; /* ids that the last become did not compute */
    uint32_t *ids;   /* [positions_max]: what was appended */
    omm_kv *kv;      /* [layers] */
    const omm_adapter *adapters[OMM_ADAPTERS_MAX];
    size_t adapter_count;
    omm_adapter *own; /* made by omm_session_open, or NULL */
};

/* Sets what is 0.  Errors: TOO_BIG (positions over the model's), CONFIG (batch_max). */
OMM_CHECKED omm_err session_options_check(omm_session_options *o, const omm_model *model);
/* What distinguishes sessions of one group in the cache: BLAKE2b over the adapters' digests. */
omm_digest session_adapters_digest(const omm_session *s);
/* Blocks for `count` more positions in the layers with a window, or in those without; where memory
 * or blocks run out, what the prefix store has used least goes first.  Errors: NOMEM, TOO_BIG;
 * blocks taken so far stay until the next truncate. */
OMM_CHECKED omm_err session_reserve(omm_session *s, size_t count, bool windowed);
/* Give back what windows have passed. */
void session_forget(omm_session *s);
/* Does layer `layer` hold, in blocks, all that a token at `position` would see before it? */
bool session_window_there(const omm_session *s, void *const *blocks, uint32_t layer,
                          size_t position);
/* Errors: FORMAT, TOO_BIG. */
OMM_CHECKED omm_err session_check(const omm_session *s, const uint32_t *ids, size_t count);

/* Drop the blocks least recently used; false when the store is empty. */
bool prefix_store_shrink(omm_prefix_store *store);

#endif
