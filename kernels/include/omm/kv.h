/* kv.h - memory of keys and values: blocks of 64 positions from a pool, found through a table.
 *
 * A sequence holds, for each layer, a table of blocks; a block comes from a pool when its first
 * position is stored and goes back when the sequence is cut or a sliding window has passed it, so a
 * long context costs what is used of it.  Sequences may share blocks that nobody writes any more;
 * who wants to write a shared block takes a copy first.
 *
 *   block   [kv_heads] parts of head_bytes; a part is keys, then values (at values_at):
 *     F32, F16   k [head_dim][64]              v [64][dim_padded]
 *     Q8_0       k [dim_padded / 4][64][4] int8, then scales [groups][64] f16
 *                v [64 / 4][dim_padded][4] int8, then scales [groups][64] f16
 *   dim_padded: head_dim rounded up to 16; groups: head_dim / 32, rounded up.  Four neighbours of a
 *   chain (dimensions of a key, positions of a value) lie side by side, as integer dots take them.
 *
 * Depends on: err.  Threads: a pool and the tables over it belong to one thread at a time.
 */
#ifndef OMM_KV_H
#define OMM_KV_H

#include "omm/err.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_HEAD_DIM_MAX 256u
#define OMM_KV_BLOCK 64u /* positions in one block of the cache and of attention */
#define OMM_KV_GROUP 32u /* values of one head at one position that share a scale (Q8_0) */
#define OMM_KV_SCALE_NAN ((uint16_t)0x7e00)

/* Q8_0, for each group of 32 values x of a key or value (the last group may be shorter):
 * d = f16(max |x| / 127) to nearest even; q = rne(clamp(x * (1 / d), -127, 127)), all 0 where d
 * is 0; the value is d * q.  A group with NaN or infinity gets d = NaN. */
/* Least head_dim of a cache in Q8_0: eight bits of a narrower head's keys are too coarse (KL over 1e-3 against F16), and
 * take little less than halves. */
#define OMM_KV_Q8_0_DIM_MIN 16u

typedef enum omm_kv_type { OMM_KV_F32, OMM_KV_F16, OMM_KV_Q8_0, OMM_KV_TYPE_COUNT } omm_kv_type;

const char *omm_kv_type_name(omm_kv_type type); /* "f32", "f16", "q8_0" */
/* Errors: CONFIG (says what is accepted). */
OMM_CHECKED omm_err omm_kv_type_parse(omm_kv_type *out, const char *name);

static inline size_t omm_kv_groups(uint32_t head_dim) {
    return (head_dim + OMM_KV_GROUP - 1) / OMM_KV_GROUP;
}

/* ---- pool ---------------------------------------------------------------------------------- */

typedef struct omm_kv_pool omm_kv_pool;

/* Blocks of block_bytes each, at most blocks_max at once.  Memory is taken when a block is first
 * needed and kept until close.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_kv_pool_open(omm_kv_pool **out, size_t block_bytes, size_t blocks_max);
/* Memory of one block, with what the pool keeps beside it. */
size_t omm_kv_pool_made_bytes(size_t block_bytes);
/* Every block must have been given back. */
void omm_kv_pool_close(omm_kv_pool *pool);
/* A block with one owner; its contents are undefined.  Errors: NOMEM, TOO_BIG (over blocks_max). */
OMM_CHECKED omm_err omm_kv_pool_take(void **out, omm_kv_pool *pool);
void omm_kv_pool_share(void *block); /* one owner more */
void omm_kv_pool_give(omm_kv_pool *pool, void *block);
size_t omm_kv_pool_block_bytes(const omm_kv_pool *pool);
size_t omm_kv_pool_blocks_used(const omm_kv_pool *pool);
size_t omm_kv_pool_blocks_made(const omm_kv_pool *pool); /* memory held: times block_bytes */

/* ---- the table of one layer and one sequence ----------------------------------------------- */

typedef struct omm_kv {
    omm_kv_type type;
    uint32_t kv_heads, head_dim, dim_padded;
    uint32_t positions_max;       /* a multiple of 64 */
    size_t head_bytes, values_at; /* one head's part of a block; values in it */
    void **blocks;                /* [positions_max / 64], 64-byte aligned or NULL */
    omm_kv_pool *pool;            /* borrowed; NULL: `memory` has all blocks */
    void *memory;
} omm_kv;

/* Bytes of one block of this shape. */
size_t omm_kv_block_bytes(omm_kv_type type, uint32_t kv_heads, uint32_t head_dim);

/* positions_max is rounded up to 64; all blocks are there.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_kv_init(omm_kv *kv, omm_kv_type type, uint32_t kv_heads, uint32_t head_dim,
                                uint32_t positions_max);
/* The same with an empty table; blocks (of omm_kv_block_bytes) come from the pool. */
OMM_CHECKED omm_err omm_kv_init_pooled(omm_kv *kv, omm_kv_type type, uint32_t kv_heads,
                                       uint32_t head_dim, uint32_t positions_max,
                                       omm_kv_pool *pool);
void omm_kv_fini(omm_kv *kv);
/* Blocks for positions pos0 .. pos0 + m - 1, each with one owner: new ones where there are none,
 * copies of shared ones.  No position changes.  Errors: NOMEM, TOO_BIG; blocks taken so far stay,
 * unseen, until the next omm_kv_cut. */
OMM_CHECKED omm_err omm_kv_reserve(omm_kv *kv, size_t pos0, size_t m);
/* Give back blocks that lie wholly at or after `position` (before it). */
void omm_kv_cut(omm_kv *kv, size_t position);
void omm_kv_forget(omm_kv *kv, size_t position);

#endif
