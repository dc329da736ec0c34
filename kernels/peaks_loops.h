/* peaks_loops.h - the three loops that omm_peaks measures, one table per instruction set. */
#ifndef ENGINE_PEAKS_LOOPS_H
#define ENGINE_PEAKS_LOOPS_H

#include "omm/compute.h"

#include <stddef.h>
#include <stdint.h>

enum { PEAKS_LANES = 16 };

typedef struct peaks_loops {
    /* Read `bytes` (a multiple of 1024) at `data`, 64-byte aligned. */
    int32_t (*read)(const uint8_t *data, size_t bytes);
    /* In every lane of every chain, in each round: acc = acc * x + y from 0 on.  lanes: sums over chains. */
    void (*fma)(float lanes[PEAKS_LANES], float x, float y, uint64_t rounds);
    /* acc += four products of `weight` by a byte of x, from the chain's number on. */
    void (*dot)(int32_t lanes[PEAKS_LANES], uint8_t weight, int32_t x, uint64_t rounds);
    unsigned fma_per_round; /* operations of one round: two for each product that is added */
    unsigned dot_per_round;
} peaks_loops;

/* The table of an instruction set that is available. */
const peaks_loops *peaks_loops_of(omm_isa isa);

extern const peaks_loops peaks_scalar;
extern const peaks_loops peaks_scalar_fma;
extern const peaks_loops peaks_avx2;
extern const peaks_loops peaks_avx2_vnni;
extern const peaks_loops peaks_avx512;
extern const peaks_loops peaks_neon;
extern const peaks_loops peaks_neon_dotprod;

#endif
