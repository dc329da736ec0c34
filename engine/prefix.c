/* prefix.c - chains of shared cache blocks under keys, with a limit. */
#include "session_internal.h"

#include "omm/mem.h"

#include <string.h>

#define BUCKETS 1024u /* of the table of keys; a store has thousands of nodes, not millions */

/* 64 positions of all layers, after those of `parent`. */
typedef struct node {
    omm_digest key;
    struct node *next;   /* in the bucket */
    struct node *parent; /* NULL: the first block */
    size_t children;
    uint64_t used; /* clock of the last keep or fetch */
    void *blocks[];
} node;

struct omm_prefix_store {
    omm_group *group;
    size_t nodes_max;
    uint64_t clock;
    omm_prefix_stats stats;
    node *buckets[BUCKETS];
};

static uint32_t layers_of(const omm_prefix_store *store) {
    return store->group->graph.model->dims.layers;
}

static size_t node_bytes(const omm_prefix_store *store) {
    return layers_of(store) * omm_kv_pool_block_bytes(store->group->pool);
}

omm_err omm_prefix_open(omm_prefix_store **out, omm_group *group, size_t bytes_max) {
    if (group->store) return omm_raise(OMM_ERR_STATE, "the group has a prefix store already");
    omm_prefix_store *s = (omm_prefix_store *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for a prefix store");
    s->group = group;
    s->nodes_max = bytes_max / node_bytes(s);
    group->store = s;
    *out = s;
    return OMM_OK;
}

void omm_prefix_close(omm_prefix_store *store) {
    if (!store) return;
    while (prefix_store_shrink(store)) {
    }
    store->group->store = NULL;
    omm_free(store);
}

omm_prefix_stats omm_prefix_stats_of(const omm_prefix_store *store) {
    return store->stats;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static node **bucket_of(omm_prefix_store *s, const omm_digest *key) {
    return &s->buckets[(key->b[0] | (unsigned)key->b[1] << 8) % BUCKETS];
}

static node *find(omm_prefix_store *s, const omm_digest *key) {
    node *n = *bucket_of(s, key);
    while (n && !omm_digest_equal(&n->key, key)) n = n->next;
    return n;
}

static void next_key(omm_digest *key, const uint32_t *ids) {
    uint8_t bytes[32 + 4 * OMM_KV_BLOCK];
    memcpy(bytes, key->b, 32);
    for (size_t i = 0; i < OMM_KV_BLOCK; i++) omm_put_u32(bytes + 32 + 4 * i, ids[i]);
    *key = omm_hash(omm_bytes_of(bytes, sizeof bytes));
}

static void remove_node(omm_prefix_store *s, node *n) {
    node **at = bucket_of(s, &n->key);
    while (*at != n) at = &(*at)->next;
    *at = n->next;
    if (n->parent) n->parent->children--;
    for (uint32_t i = 0; i < layers_of(s); i++)
        if (n->blocks[i]) omm_kv_pool_give(s->group->pool, n->blocks[i]);
    s->stats.blocks--;
    s->stats.bytes -= node_bytes(s);
    omm_free(n);
}

bool prefix_store_shrink(omm_prefix_store *s) {
    node *oldest = NULL;
    for (size_t b = 0; b < BUCKETS; b++)
        for (node *n = s->buckets[b]; n; n = n->next)
            if (n->children == 0 && (!oldest || n->used < oldest->used)) oldest = n;
    if (!oldest) return false;
    remove_node(s, oldest);
    s->stats.blocks_evicted++;
    return true;
}

/* The session's block number `index` under `key`. */
static omm_err add_node(omm_prefix_store *s, const omm_session *session, const omm_digest *key,
                        node *parent, size_t index, node **out) {
    const uint32_t layers = layers_of(s);
    node *n = (node *)omm_alloc(1, sizeof *n + layers * sizeof n->blocks[0]);
    if (!n) return omm_raise(OMM_ERR_NOMEM, "no memory to keep a prefix");
    n->key = *key;
    n->parent = parent;
    for (uint32_t i = 0; i < layers; i++) {
        n->blocks[i] = session->kv[i].blocks[index];
        if (n->blocks[i]) omm_kv_pool_share(n->blocks[i]);
    }
    if (parent) parent->children++;
    node **bucket = bucket_of(s, key);
    n->next = *bucket;
    *bucket = n;
    s->stats.blocks++;
    s->stats.bytes += node_bytes(s);
    *out = n;
    return OMM_OK;
}

/* A node kept by a session whose windows had passed it takes what this one still has. */
static void complete(node *n, const omm_session *session, size_t index, uint32_t layers) {
    for (uint32_t i = 0; i < layers; i++) {
        if (n->blocks[i] || !session->kv[i].blocks[index]) continue;
        n->blocks[i] = session->kv[i].blocks[index];
        omm_kv_pool_share(n->blocks[i]);
    }
}

/* ---- keep and fetch -------------------------------------------------------------------------- */

omm_err omm_prefix_keep(omm_prefix_store *s, omm_session *session) {
    OMM_ASSERT(session->group == s->group);
    omm_digest key = session_adapters_digest(session);
    node *parent = NULL;
    s->clock++;
    for (size_t i = 0; (i + 1) * OMM_KV_BLOCK <= session->position; i++) {
        next_key(&key, session->ids + i * OMM_KV_BLOCK);
        node *n = find(s, &key);
        /* The chain at hand is the newest: its own nodes are never the ones to go. */
        while (!n && s->stats.blocks >= s->nodes_max) {
            if (i >= s->nodes_max || !prefix_store_shrink(s)) return OMM_OK;
        }
        if (!n) OMM_TRY(add_node(s, session, &key, parent, i, &n));
        complete(n, session, i, layers_of(s));
        n->used = s->clock;
        parent = n;
    }
    return OMM_OK;
}

/* Table entry `index` of every layer becomes the node's. */
static void share_node(omm_session *session, const node *n, size_t index, uint32_t layers) {
    for (uint32_t i = 0; i < layers; i++) {
        void **slot = &session->kv[i].blocks[index];
        if (*slot) omm_kv_pool_give(session->group->pool, *slot);
        *slot = n->blocks[i];
        if (*slot) omm_kv_pool_share(*slot);
    }
}

/* Do layers with a window find in the chain up to `last`, number `index`, what a token right after
 * it would see?  Whole blocks that the session has count as well. */
static bool chain_serves(const omm_session *session, const node *last, size_t index) {
    const omm_model *model = session->group->graph.model;
    for (uint32_t i = 0; i < model->dims.layers; i++) {
        const size_t window = model->layers[i].window, end = (index + 1) * OMM_KV_BLOCK;
        if (window <= 1) continue;
        const size_t first = end >= window ? (end - window + 1) / OMM_KV_BLOCK : 0;
        const node *n = last;
        for (size_t b = index + 1; b-- > first; n = n->parent)
            if ((b + 1) * OMM_KV_BLOCK <= session->position ? !session->kv[i].blocks[b]
                                                            : !n->blocks[i])
                return false;
    }
    return true;
}

/* The session takes the chain up to `last`, number `index`. */
static void take_chain(omm_prefix_store *s, omm_session *session, const node *last, size_t index,
                       const uint32_t *ids) {
    const uint32_t had = session->position, end = (uint32_t)(index + 1) * OMM_KV_BLOCK;
    const node *n = last;
    for (size_t b = index + 1; b-- > 0 && n; n = n->parent)
        if ((b + 1) * OMM_KV_BLOCK > had) share_node(session, n, b, layers_of(s));
    memcpy(session->ids + had, ids + had, (end - had) * sizeof *ids);
    session->position = end;
    s->stats.positions_reused += end - had;
}

omm_err omm_prefix_fetch(omm_prefix_store *s, omm_session *session, const uint32_t *ids,
                         size_t count) {
    OMM_ASSERT(session->group == s->group && session->position <= count);
    if (count > session->group->options.positions_max)
        count = session->group->options.positions_max;
    omm_digest key = session_adapters_digest(session);
    node *last = NULL;
    size_t found = 0;
    s->clock++;
    for (size_t i = 0; (i + 1) * OMM_KV_BLOCK <= count; i++) {
        next_key(&key, ids + i * OMM_KV_BLOCK);
        node *n = find(s, &key);
        if (!n) break;
        n->used = s->clock;
        last = n;
        found = i + 1;
    }
    for (; found * OMM_KV_BLOCK > session->position; found--, last = last->parent) {
        if (!chain_serves(session, last, found - 1)) continue;
        take_chain(s, session, last, found - 1, ids);
        break;
    }
    return OMM_OK;
}
