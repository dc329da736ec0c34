/* peaks.h - what this machine can do at most, measured: bytes read from memory, f32 fused
 * multiply-adds, int8 multiply-adds; the denominators of every share that `bench` prints.
 *
 * Each figure is the best of many short chunks of work, cut over the threads of a context and in its
 * instruction set: on a shared machine the best chunk is the one that nobody disturbed.  Call
 * omm_peaks_update between the measurements that are to be compared, so that both see the same hours
 * of the machine.
 *   read  bytes of a buffer larger than the caches, each once, ascending, by every thread its share
 *   fma   2 operations per f32 multiply-add, on registers, as many chains as hide the latency
 *   dot   2 operations per multiply-add of u8 by i8 into i32, the plain sequence of the instruction
 *         set (VNNI: one instruction; AVX2: multiply to i16, widen, add; kernels that know their
 *         weights to be small may join i16 sums and be faster than this)
 *
 * Depends on: err, compute.  Threads: as omm_compute, one call at a time per context.
 */
#ifndef OMM_PEAKS_H
#define OMM_PEAKS_H

#include "omm/compute.h"
#include "omm/err.h"

#include <stdint.h>

#define OMM_PEAKS_SECONDS 0.3 /* per figure: enough for about fifty chunks */

typedef struct omm_peaks {
    double read_bytes, fma_flops, dot_ops; /* per second; 0 before the first update */
    double read_total, read_seconds;       /* of all chunks read */
    const omm_compute *c;                  /* borrowed */
    uint8_t *buffer;
    size_t buffer_bytes, at;
} omm_peaks;

/* Twice the last cache, within 512 MiB to 2 GiB. */
size_t omm_peaks_buffer_bytes(void);
/* buffer_bytes: of the buffer that is read, at least 64 MiB; 0: omm_peaks_buffer_bytes.  Touches all of it.  Release with omm_peaks_close.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_peaks_open(omm_peaks *p, const omm_compute *c, size_t buffer_bytes);
void omm_peaks_close(omm_peaks *p);

/* Bytes per second over all chunks together, the disturbed ones too: what a long stream of reads gets
 * on this machine in these minutes.  0 before the first update. */
double omm_peaks_read_sustained(const omm_peaks *p);
/* Bytes per second of reading the next `bytes` of the buffer now (whole chunks of 64 MiB, at least one):
 * a turn beside a turn of what is to be compared.  Counts for read_bytes and the sustained rate too. */
double omm_peaks_read(omm_peaks *p, double bytes);
/* The same of f32 multiply-adds: operations per second over the next `seconds` of them (whole chunks of 1 to 2 ms, at least one), the
 * disturbed ones too.  Counts for fma_flops. */
double omm_peaks_fma(omm_peaks *p, double seconds);
/* Measure each figure for `seconds` (at least one chunk) and keep the better of old and new. */
void omm_peaks_update(omm_peaks *p, double seconds);

#endif
