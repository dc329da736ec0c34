/* bench_figures.h - what `meshmind bench` has for models that run and for models that learn: figures
 * over repeats, shares of a peak, a model read, and processors with the peaks that they reach.
 */
#ifndef CLI_BENCH_FIGURES_H
#define CLI_BENCH_FIGURES_H

#include "packed_copy.h"

#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/model.h"
#include "omm/peaks.h"

#include <stdint.h>

#define BENCH_ARCHITECTURE_MAX 32u

/* Over the repeats. */
typedef struct bench_spread {
    double median, min, max;
} bench_spread;

/* values[n], n >= 1: left sorted. */
bench_spread bench_spread_of(double *values, uint32_t n);
json_t *bench_spread_json(const bench_spread *s);
/* 0 where there is no peak. */
double bench_share(double figure, double peak);
/* On stdout; takes the report, which is NULL where a text in it is not UTF-8.
 * Errors: FORMAT (that), NOMEM. */
OMM_CHECKED omm_err bench_json_print(json_t *take);

/* The most memory of a run that began when the process had had at most `before`: what it had by then is another run's,
 * or that of the buffers in which the machine's peaks are measured.  Bytes; 0: not known here. */
uint64_t bench_memory_peak(uint64_t before);

/* Layers from `resident` on are streamed: then gguf stays open (omm_model_load_streamed).  packed: as cli_packed_load.
 * Errors: those of loading; TOO_BIG (the architecture's name). */
OMM_CHECKED omm_err bench_load(omm_model *model, char architecture[BENCH_ARCHITECTURE_MAX],
                               const omm_gguf *gguf, const omm_packed *packed, uint32_t resident);

/* Threads of one run, and their peaks where these are measured (omm_peaks_open). */
typedef struct bench_processors {
    omm_pool *pool;
    omm_compute c;
    omm_peaks peaks;
} bench_processors;

/* Release with bench_processors_close, also after an error.  Errors: NOMEM, IO. */
OMM_CHECKED omm_err bench_processors_open(bench_processors *p, unsigned threads, omm_isa isa);
void bench_processors_close(bench_processors *p);

#endif
