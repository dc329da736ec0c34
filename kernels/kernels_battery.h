/* kernels_battery.h - every kernel over odd shapes, as one list of (name, hash of the bytes).
 *
 * Tests run it on different instruction sets, thread counts and batch splits, and on another
 * architecture, and compare the lists.
 */
#ifndef ENGINE_KERNELS_BATTERY_H
#define ENGINE_KERNELS_BATTERY_H

#include "omm/kernels.h"

#define BATTERY_ROWS_MAX 320u

typedef struct battery_row {
    char name[64];
    uint64_t hash;
} battery_row;

typedef struct battery {
    battery_row rows[BATTERY_ROWS_MAX];
    size_t count;
    bool
        q8_alone; /* products of quantised activations and nothing else: all that instruction sets with the same floats differ in */
} battery;

/* split: tokens (or elements, in sixteens) in one call; 0: all in one.  Aborts when out of memory. */
void battery_run(battery *out, const omm_compute *c, size_t split);
/* The same for the products of the formats after Q4_0. */
void battery_run_formats(battery *out, const omm_compute *c, size_t split);
/* Products of many rows, over several blocks of rows and of k. */
void battery_run_many(battery *out, const omm_compute *c);

/* Helpers that tests share: reproducible numbers in (-1, 1), and weights in GGUF rows. */
float *battery_floats(uint64_t seed, size_t count);
/* Owned; omm_free takes .data. */
omm_bytes battery_rows(omm_format format, uint32_t rows, uint32_t cols, uint64_t seed);
omm_matrix battery_matrix(omm_format format, uint32_t rows, uint32_t cols, uint64_t seed);
uint64_t battery_hash(const void *data, size_t size);

#endif
