/* peaks_body.h - the loops of peaks_loops.h for one instruction set; compiled once for each by
 * peaks_<isa>.c, which defines OMM_SIMD and PEAKS (the name of its table) first.
 */
#include "omm/simd.h"
#include "peaks_loops.h"

#include <string.h>

/* Chains in flight: more than latency times units, and within the registers (a vector here is one,
 * two or four of them). */
#if OMM_SIMD == OMM_SIMD_AVX512
#define FMA_CHAINS 16
#define DOT_CHAINS 16
#elif OMM_SIMD == OMM_SIMD_SCALAR
#define FMA_CHAINS 4
#define DOT_CHAINS 1
#else
#define FMA_CHAINS 6
#define DOT_CHAINS (SIMD_ONE_DOT ? 5 : 4)
#endif
#define READ_STEP 1024u
#define READ_AHEAD 3072u /* bytes; 8192, and into the first cache, read as fast or more slowly */

/* The compiler believes that `table` has changed: what was loaded before is loaded again. */
#define FORGET(table) __asm__ volatile("" : : "r"(table) : "memory")

/* One lane of a result of which all lanes are needed: a half that nobody reads is not computed. */
static int32_t any_lane(vi x) {
    _Alignas(64) int32_t lanes[VL];
    vi_store(lanes, x);
    FORGET(lanes);
    return lanes[0];
}

/* Asks ahead, into the second cache.  Best in measurements/decode.md in most minutes; without it
 * decode has been faster than this loop, which then is no peak. */
static int32_t loop_read(const uint8_t *data, size_t bytes) {
    vi a = vi_set1(0), b = a, c = a, d = a;
    for (size_t at = 0; at < bytes; at += READ_STEP) {
        SIMD_UNROLL
        for (size_t i = 0; i < READ_STEP; i += 256) {
            const uint8_t *p = data + at + i;
            SIMD_PREFETCH(p + READ_AHEAD);
            SIMD_PREFETCH(p + READ_AHEAD + 64);
            SIMD_PREFETCH(p + READ_AHEAD + 128);
            SIMD_PREFETCH(p + READ_AHEAD + 192);
            a = vi_add(a, vi_load(p));
            b = vi_add(b, vi_load(p + 64));
            c = vi_add(c, vi_load(p + 128));
            d = vi_add(d, vi_load(p + 192));
        }
    }
    return any_lane(vi_add(vi_add(a, b), vi_add(c, d)));
}

_Static_assert(VL == PEAKS_LANES, "lanes of a result");

/* Start values that the compiler cannot know, no two alike: otherwise it computes equal halves of a
 * vector once. */
static float s_start[FMA_CHAINS][VL];

static void loop_fma(float lanes[PEAKS_LANES], float scale, float step, uint64_t rounds) {
    vf acc[FMA_CHAINS];
    const vf x = vf_set1(scale), y = vf_set1(step);
    FORGET(s_start);
    SIMD_TILE_UNROLL
    for (int i = 0; i < FMA_CHAINS; i++) acc[i] = vf_load(s_start[i]);
    for (uint64_t r = 0; r < rounds; r++) {
        SIMD_TILE_UNROLL
        for (int i = 0; i < FMA_CHAINS; i++) acc[i] = vf_fma(acc[i], x, y);
    }
    SIMD_TILE_UNROLL
    for (int i = 1; i < FMA_CHAINS; i++) acc[0] = vf_add(acc[0], acc[i]);
    vf_store(lanes, acc[0]);
}

/* Where a product takes several instructions, weights come from the nearest cache in every round, as
 * in kernels: no half of a product is kept. */
static void loop_dot(int32_t lanes[PEAKS_LANES], uint8_t weight, int32_t x, uint64_t rounds) {
    _Alignas(64) uint8_t weights[DOT_CHAINS][4 * VL];
    vi acc[DOT_CHAINS];
    memset(weights, weight, sizeof weights);
    SIMD_UNROLL
    for (int i = 0; i < DOT_CHAINS; i++) acc[i] = vi_set1(i);
    FORGET(weights);
    for (uint64_t r = 0; r < rounds; r++) {
        if (!SIMD_ONE_DOT) FORGET(weights);
        SIMD_UNROLL
        for (int i = 0; i < DOT_CHAINS; i++)
            acc[i] = vi_dot_u4(acc[i], vi_load(weights[SIMD_ONE_DOT ? 0 : i]), x);
    }
    SIMD_UNROLL
    for (int i = 1; i < DOT_CHAINS; i++) acc[0] = vi_add(acc[0], acc[i]);
    vi_store(lanes, acc[0]);
}

const peaks_loops PEAKS = {.read = loop_read,
                           .fma = loop_fma,
                           .dot = loop_dot,
                           .fma_per_round = 2 * VL * FMA_CHAINS,
                           .dot_per_round = 2 * 4 * VL * DOT_CHAINS};
