/* rng.h - ChaCha20 lanes: random numbers that are indexed, never drawn from a global generator.
 *
 * A lane is a 32-byte key derived from (seed, purpose, node, round).  Number i of a lane is word
 * i % 16 of ChaCha20 block i / 16 (RFC 8439 block function, nonce zero; a block number over 32 bits
 * carries into the next state word): any thread may compute any number in any order and gets the
 * same one.
 *
 *   seed --omm_seed_derive(purpose, context)--> seed --omm_rng_init(purpose, node, round)--> lane
 *
 * Depends on: bytes, hash.  Threads: no shared state.
 */
#ifndef OMM_RNG_H
#define OMM_RNG_H

#include "omm/bytes.h"

#include <stdint.h>

typedef struct omm_seed {
    uint8_t b[32];
} omm_seed;

/* What a lane serves.  Append only: the numbers are part of every recorded run. */
typedef enum omm_purpose {
    OMM_PURPOSE_NONCE = 1,    /* round nonces from the run seed */
    OMM_PURPOSE_NODE_KEY,     /* Ed25519 seeds of simulated nodes */
    OMM_PURPOSE_COORD_KEY,    /* the same for the coordinator */
    OMM_PURPOSE_BUNDLE_KEY,   /* the same for the bundle signer */
    OMM_PURPOSE_SELECT,       /* node selection */
    OMM_PURPOSE_ADAPTER_INIT, /* LoRA A */
    OMM_PURPOSE_SHUFFLE,      /* order of training examples */
    OMM_PURPOSE_DROPOUT,      /* LoRA dropout masks */
    OMM_PURPOSE_TRAIN,        /* a node's training seed: KDF(nonce, node id) */
    OMM_PURPOSE_SAMPLE,       /* token sampling */
    OMM_PURPOSE_BOOTSTRAP,    /* gate statistics */
    OMM_PURPOSE_AUDIT,        /* which submissions the reproducibility gate replays */
    OMM_PURPOSE_FAULT,        /* simulated dropouts, jitter, stragglers */
    OMM_PURPOSE_COMMIT_KEY,   /* keyed commitment to a simulated node's data */
    OMM_PURPOSE_SYNTH,        /* random weights for benchmark models */
    OMM_PURPOSE_SPLIT,        /* data partition */
    OMM_PURPOSE_TEST,         /* tests only */
} omm_purpose;

/* A seed from an integer (scenario files give integers): BLAKE2b-256 of "omm seed" || u64 LE. */
omm_seed omm_seed_from_u64(uint64_t value);
/* Keyed BLAKE2b-256: key = parent, data = purpose u32 LE || context (at most 1024 bytes). */
omm_seed omm_seed_derive(const omm_seed *parent, omm_purpose purpose, omm_bytes context);
/* From the operating system, for the service.  Aborts if the system has none. */
omm_seed omm_seed_random(void);

typedef struct omm_rng {
    uint8_t key[32];
} omm_rng;

/* Keyed BLAKE2b-256: key = seed, data = "lane" || purpose u32 LE || node u64 LE || round u32 LE. */
omm_rng omm_rng_init(const omm_seed *seed, omm_purpose purpose, uint64_t node, uint32_t round);

/* Number `index` of the lane; and numbers first .. first + count - 1. */
uint32_t omm_rng_u32(const omm_rng *rng, uint64_t index);
void omm_rng_fill_u32(uint32_t *out, const omm_rng *rng, uint64_t first, size_t count);

/* Uniform in [0, 1): 24 bits of number `index`, exact in f32. */
float omm_rng_unit(const omm_rng *rng, uint64_t index);
/* Uniform in [0, n), n >= 1: numbers 2*index and 2*index+1 as a u64, times n, high half.
 * The bias is below n / 2^64. */
uint64_t omm_rng_below(const omm_rng *rng, uint64_t index, uint64_t n);
/* Fisher-Yates from the top: position i swaps with omm_rng_below(first + i, i + 1). */
void omm_rng_shuffle_u32(uint32_t *items, size_t count, const omm_rng *rng, uint64_t first);

#endif
