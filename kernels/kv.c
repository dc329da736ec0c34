/* kv.c - blocks of keys and values: pool, tables. */
#include "omm/kv.h"

#include "omm/mem.h"

#include <string.h>

#define KV_ELEMENTS_MAX ((size_t)1 << 34)
#define HEADER_BYTES 64u /* in front of a block, so that it stays aligned for vectors */

static const char *const s_names[OMM_KV_TYPE_COUNT] = {"f32", "f16", "q8_0"};

const char *omm_kv_type_name(omm_kv_type type) {
    OMM_ASSERT((unsigned)type < OMM_KV_TYPE_COUNT);
    return s_names[type];
}

omm_err omm_kv_type_parse(omm_kv_type *out, const char *name) {
    for (unsigned i = 0; i < OMM_KV_TYPE_COUNT; i++) {
        if (strcmp(name, s_names[i]) != 0) continue;
        *out = (omm_kv_type)i;
        return OMM_OK;
    }
    return omm_raise(OMM_ERR_CONFIG, "cache type '%s': choose f32, f16 or q8_0", name);
}

/* ---- pool ------------------------------------------------------------------------------------ */

typedef struct block_header {
    struct block_header *next; /* free, or NULL */
    uint32_t owners;
} block_header;

struct omm_kv_pool {
    size_t block_bytes, blocks_max, made, used;
    block_header *free;
};

static block_header *header_of(void *block) {
    return (block_header *)(void *)((uint8_t *)block - HEADER_BYTES);
}

static void *block_of(block_header *header) {
    return (uint8_t *)header + HEADER_BYTES;
}

omm_err omm_kv_pool_open(omm_kv_pool **out, size_t block_bytes, size_t blocks_max) {
    OMM_ASSERT(block_bytes > 0);
    omm_kv_pool *pool = (omm_kv_pool *)omm_alloc(1, sizeof *pool);
    if (!pool) return omm_raise(OMM_ERR_NOMEM, "no memory for a pool of cache blocks");
    *pool = (omm_kv_pool){.block_bytes = block_bytes, .blocks_max = blocks_max};
    *out = pool;
    return OMM_OK;
}

void omm_kv_pool_close(omm_kv_pool *pool) {
    if (!pool) return;
    OMM_ASSERT(pool->used == 0);
    for (block_header *h = pool->free; h;) {
        block_header *next = h->next;
        omm_free_huge(h, HEADER_BYTES + pool->block_bytes);
        h = next;
    }
    omm_free(pool);
}

omm_err omm_kv_pool_take(void **out, omm_kv_pool *pool) {
    block_header *h = pool->free;
    if (h) {
        pool->free = h->next;
    } else {
        if (pool->made == pool->blocks_max)
            return omm_raise(OMM_ERR_TOO_BIG, "the cache is full: %zu blocks of %zu bytes",
                             pool->made, pool->block_bytes);
        h = (block_header *)omm_alloc_huge(HEADER_BYTES + pool->block_bytes);
        if (!h)
            return omm_raise(OMM_ERR_NOMEM, "no memory for a cache block of %zu bytes",
                             pool->block_bytes);
        pool->made++;
    }
    *h = (block_header){.owners = 1};
    pool->used++;
    *out = block_of(h);
    return OMM_OK;
}

void omm_kv_pool_share(void *block) {
    block_header *h = header_of(block);
    OMM_ASSERT(h->owners > 0 && h->owners < UINT32_MAX);
    h->owners++;
}

void omm_kv_pool_give(omm_kv_pool *pool, void *block) {
    block_header *h = header_of(block);
    OMM_ASSERT(h->owners > 0);
    if (--h->owners > 0) return;
    h->next = pool->free;
    pool->free = h;
    pool->used--;
}

size_t omm_kv_pool_made_bytes(size_t block_bytes) {
    return HEADER_BYTES + (block_bytes + 63) / 64 * 64;
}

size_t omm_kv_pool_block_bytes(const omm_kv_pool *pool) {
    return pool->block_bytes;
}

size_t omm_kv_pool_blocks_used(const omm_kv_pool *pool) {
    return pool->used;
}

size_t omm_kv_pool_blocks_made(const omm_kv_pool *pool) {
    return pool->made;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void shape(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim) {
    static const size_t bytes[OMM_KV_TYPE_COUNT] = {4, 2, 1};
    OMM_ASSERT(head_dim > 0 && head_dim <= OMM_HEAD_DIM_MAX && kv_heads > 0);
    *kv = (omm_kv){.type = type, .kv_heads = kv_heads, .head_dim = head_dim};
    kv->dim_padded = (head_dim + 15) / 16 * 16;
    const size_t scales = type == OMM_KV_Q8_0 ? omm_kv_groups(head_dim) * OMM_KV_BLOCK * 2 : 0;
    const size_t key = type == OMM_KV_Q8_0 ? kv->dim_padded : head_dim;
    kv->values_at = key * OMM_KV_BLOCK * bytes[type] + scales;
    kv->head_bytes = (size_t)kv->dim_padded * OMM_KV_BLOCK * bytes[type] + scales + kv->values_at;
}

size_t omm_kv_block_bytes(omm_kv_type type, uint32_t kv_heads, uint32_t head_dim) {
    omm_kv kv;
    shape(&kv, type, kv_heads, head_dim);
    return kv.head_bytes * kv_heads;
}

static omm_err own_memory(omm_kv *kv, size_t blocks) {
    const size_t bytes = kv->head_bytes * kv->kv_heads;
    kv->memory = omm_alloc_huge(blocks * bytes);
    if (!kv->memory) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu cache blocks", blocks);
    for (size_t i = 0; i < blocks; i++) kv->blocks[i] = (uint8_t *)kv->memory + i * bytes;
    return OMM_OK;
}

static omm_err init(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim,
                    uint32_t positions_max, omm_kv_pool *pool) {
    omm_kv r;
    shape(&r, type, kv_heads, head_dim);
    const size_t blocks = ((size_t)positions_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    if (blocks * OMM_KV_BLOCK * kv_heads * r.dim_padded > KV_ELEMENTS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "cache of %u positions x %u heads x %u: over %zu values",
                         positions_max, kv_heads, head_dim, KV_ELEMENTS_MAX);
    r.positions_max = (uint32_t)(blocks * OMM_KV_BLOCK);
    r.pool = pool;
    OMM_ASSERT(!pool || pool->block_bytes == r.head_bytes * kv_heads);
    r.blocks = (void **)omm_alloc(blocks, sizeof *r.blocks);
    if (!r.blocks) return omm_raise(OMM_ERR_NOMEM, "no memory for a table of %zu blocks", blocks);
    omm_err err = pool ? OMM_OK : own_memory(&r, blocks);
    if (err == OMM_OK)
        *kv = r;
    else
        omm_kv_fini(&r);
    return err;
}

omm_err omm_kv_init(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim,
                    uint32_t positions_max) {
    return init(kv, type, kv_heads, head_dim, positions_max, NULL);
}

omm_err omm_kv_init_pooled(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim,
                           uint32_t positions_max, omm_kv_pool *pool) {
    OMM_ASSERT(pool != NULL);
    return init(kv, type, kv_heads, head_dim, positions_max, pool);
}

/* Give back the blocks begin .. of the table. */
static void give_range(omm_kv *kv, size_t begin, size_t end) {
    for (size_t i = begin; kv->pool && i < end; i++) {
        if (kv->blocks[i]) omm_kv_pool_give(kv->pool, kv->blocks[i]);
        kv->blocks[i] = NULL;
    }
}

void omm_kv_fini(omm_kv *kv) {
    if (kv->blocks) give_range(kv, 0, kv->positions_max / OMM_KV_BLOCK);
    omm_free((void *)kv->blocks);
    if (kv->memory)
        omm_free_huge(kv->memory, kv->positions_max / OMM_KV_BLOCK * kv->head_bytes * kv->kv_heads);
    *kv = (omm_kv){0};
}

/* The block `*slot` becomes ours alone. */
static omm_err own_block(omm_kv *kv, void **slot) {
    void *block = NULL;
    if (*slot && header_of(*slot)->owners == 1) return OMM_OK;
    OMM_TRY(omm_kv_pool_take(&block, kv->pool));
    if (*slot) {
        memcpy(block, *slot, kv->pool->block_bytes);
        omm_kv_pool_give(kv->pool, *slot);
    }
    *slot = block;
    return OMM_OK;
}

omm_err omm_kv_reserve(omm_kv *kv, size_t pos0, size_t m) {
    OMM_ASSERT(m > 0 && pos0 + m <= kv->positions_max);
    if (!kv->pool) return OMM_OK;
    for (size_t i = pos0 / OMM_KV_BLOCK; i <= (pos0 + m - 1) / OMM_KV_BLOCK; i++)
        OMM_TRY(own_block(kv, &kv->blocks[i]));
    return OMM_OK;
}

void omm_kv_cut(omm_kv *kv, size_t position) {
    give_range(kv, (position + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK, kv->positions_max / OMM_KV_BLOCK);
}

void omm_kv_forget(omm_kv *kv, size_t position) {
    /* Earlier calls have given back what lies before, so the walk is short. */
    for (size_t i = position / OMM_KV_BLOCK; i > 0 && kv->blocks[i - 1]; i--)
        give_range(kv, i - 1, i);
}
