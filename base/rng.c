/* rng.c - owns random numbers: seeds, lanes, and the indexed ChaCha20 words behind them. */
#include "omm/rng.h"

#include "internal.h"
#include "omm/hash.h"

#include <sodium.h>
#include <string.h>

#define BLOCK_WORDS 16u
#define BLOCK_BYTES 64u
#define PIECE_BLOCKS 16u /* 1 KiB of key stream at a time, on the stack */

#define CONTEXT_BYTES_MAX 1024u /* callers pass ids and counters */

omm_seed omm_seed_from_u64(uint64_t value) {
    uint8_t text[16] = {'o', 'm', 'm', ' ', 's', 'e', 'e', 'd'};
    omm_seed seed;
    omm_put_u64(text + 8, value);
    omm_digest d = omm_hash(omm_bytes_of(text, sizeof text));
    memcpy(seed.b, d.b, sizeof seed.b);
    return seed;
}

omm_seed omm_seed_derive(const omm_seed *parent, omm_purpose purpose, omm_bytes context) {
    uint8_t text[4 + CONTEXT_BYTES_MAX];
    omm_seed seed;
    OMM_ASSERT(context.size <= CONTEXT_BYTES_MAX);
    omm_put_u32(text, (uint32_t)purpose);
    if (context.size > 0) memcpy(text + 4, context.data, context.size);
    omm_digest d = omm_hash_keyed(omm_bytes_of(parent->b, sizeof parent->b),
                                  omm_bytes_of(text, 4 + context.size));
    memcpy(seed.b, d.b, sizeof seed.b);
    return seed;
}

omm_seed omm_seed_random(void) {
    omm_seed seed;
    base_sodium_ready();
    randombytes_buf(seed.b, sizeof seed.b);
    return seed;
}

omm_rng omm_rng_init(const omm_seed *seed, omm_purpose purpose, uint64_t node, uint32_t round) {
    uint8_t text[20] = {'l', 'a', 'n', 'e'};
    omm_rng rng;
    omm_put_u32(text + 4, (uint32_t)purpose);
    omm_put_u64(text + 8, node);
    omm_put_u32(text + 16, round);
    omm_digest d =
        omm_hash_keyed(omm_bytes_of(seed->b, sizeof seed->b), omm_bytes_of(text, sizeof text));
    memcpy(rng.key, d.b, sizeof rng.key);
    return rng;
}

/* Key stream of `count` blocks from block number `block`.  The 64-bit counter form is used: for
 * the first 2^32 blocks it is RFC 8439 with nonce zero, and it does not end there. */
static void stream(uint8_t *out, const omm_rng *rng, uint64_t block, size_t count) {
    static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES];
    memset(out, 0, count * BLOCK_BYTES);
    OMM_ASSERT(
        crypto_stream_chacha20_xor_ic(out, out, count * BLOCK_BYTES, nonce, block, rng->key) == 0);
}

uint32_t omm_rng_u32(const omm_rng *rng, uint64_t index) {
    uint8_t block[BLOCK_BYTES];
    base_sodium_ready();
    stream(block, rng, index / BLOCK_WORDS, 1);
    return omm_get_u32(block + 4 * (index % BLOCK_WORDS));
}

void omm_rng_fill_u32(uint32_t *out, const omm_rng *rng, uint64_t first, size_t count) {
    uint8_t piece[PIECE_BLOCKS * BLOCK_BYTES];
    base_sodium_ready();
    while (count > 0) {
        size_t skip = (size_t)(first % BLOCK_WORDS);
        size_t words = (size_t)PIECE_BLOCKS * BLOCK_WORDS - skip;
        if (words > count) words = count;
        size_t blocks = (skip + words + BLOCK_WORDS - 1) / BLOCK_WORDS;
        stream(piece, rng, first / BLOCK_WORDS, blocks);
        for (size_t i = 0; i < words; i++) out[i] = omm_get_u32(piece + 4 * (skip + i));
        out += words;
        first += words;
        count -= words;
    }
}

float omm_rng_unit(const omm_rng *rng, uint64_t index) {
    return (float)(omm_rng_u32(rng, index) >> 8) * 0x1p-24f;
}

uint64_t omm_rng_below(const omm_rng *rng, uint64_t index, uint64_t n) {
    uint8_t block[BLOCK_BYTES];
    uint64_t word = index % (BLOCK_WORDS / 2); /* two numbers make one u64, low word first */
    OMM_ASSERT(n >= 1);
    base_sodium_ready();
    stream(block, rng, index / (BLOCK_WORDS / 2), 1);
    unsigned __int128 product = (unsigned __int128)omm_get_u64(block + 8 * word) * n;
    return (uint64_t)(product >> 64);
}

void omm_rng_shuffle_u32(uint32_t *items, size_t count, const omm_rng *rng, uint64_t first) {
    for (size_t i = count; i-- > 1;) {
        size_t j = (size_t)omm_rng_below(rng, first + i, (uint64_t)i + 1);
        uint32_t held = items[i];
        items[i] = items[j];
        items[j] = held;
    }
}
