/* peaks_loops.h - the three loops that omm_peaks measures, one table per instruction set. */
#ifndef ENGINE_PEAKS_LOOPS_H
#define ENGINE_PEAKS_LOOPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct peaks_loops {
    /* Read `bytes` (a multiple of 1024) at `data`, 64-byte aligned. */
    int32_t (*read)(const uint8_t *data, size_t bytes);
    float (*fma)(uint64_t rounds);
    int32_t (*dot)(uint64_t rounds);
    unsigned fma_per_round; /* operations of one round */
    unsigned dot_per_round;
} peaks_loops;

extern const peaks_loops peaks_scalar;
extern const peaks_loops peaks_avx2;
extern const peaks_loops peaks_avx512;
extern const peaks_loops peaks_neon;

#endif
