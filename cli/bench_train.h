/* bench_train.h - `meshmind bench --train`: how fast a LoRA step is here, and what part of the
 * machine's f32 peak that is.
 *
 * A step is one batch of `seq` learned tokens in one sequence, all seven targets adapted, AdamW:
 * forward, backward, update, as `train` does it.  One step of each number of threads to warm up, then
 * `repeats` of each in turns with multiply-adds before and after each (omm/peaks.h), of which the best are
 * the peak.  The text is made of letters at random, the same each time.
 *   FLOP of a token = 4 * parameters + 2 * those of layers that backward computes again
 *   share           = tokens/s * that / f32 peak
 *   share in turns  = the same of one step / mean of the multiply-adds beside it
 *   products        = FLOP of the layers' products alone, over their time and the peak, or the mean of
 *                     all multiply-adds beside the steps; an adapter's dA and dB are with those of
 *                     backward, z and dz by themselves
 * Parameters are those of the matrices that a token passes through; a separate embedding is none.
 */
#ifndef CLI_BENCH_TRAIN_H
#define CLI_BENCH_TRAIN_H

#include "bench.h"

#include "omm/train_watch.h"

#define BENCH_SEQ_MAX 4096u

typedef struct bench_train_options {
    /* model, threads (not "auto"), activations, repeats, peak_seconds */
    const bench_options *bench;
    uint32_t seq, rank;
    uint32_t checkpoint_layers; /* of the first; as omm_trainer_options has it */
} bench_train_options;

typedef struct bench_train_run {
    unsigned threads;
    bench_spread speed; /* tokens per second */
    double seconds;     /* of all steps but the first, and of their parts: */
    omm_train_watch watch;
    bench_spread over_first; /* speed over that of the first number of threads, turn by turn */
    double fma_flops;        /* 0: not measured */
    double fma_beside;       /* mean of all that was beside the steps */
    bench_spread in_turns;   /* shares */
    /* FLOP per second of the layers' products and of the adapter's z and dz, medians of no step: means */
    double forward, backward, adapter;
} bench_train_run;

typedef struct bench_train_result {
    char architecture[BENCH_ARCHITECTURE_MAX];
    omm_isa isa;
    uint64_t parameters, adapter_parameters;
    double token_flops;
    uint32_t layers, checkpoint_layers;
    uint64_t memory_peak_bytes; /* with the most threads, loading included; 0: not known here */
    unsigned run_count;
    bench_train_run runs[BENCH_THREAD_COUNTS_MAX]; /* [run_count] */
} bench_train_result;

/* Errors: those of loading and training; TOO_BIG (seq). */
OMM_CHECKED omm_err bench_train_measure(bench_train_result *out,
                                        const bench_train_options *options);

/* On stdout. */
void bench_train_print(const bench_train_result *result, const bench_train_options *options);
OMM_CHECKED omm_err bench_train_print_json(const bench_train_result *result,
                                           const bench_train_options *options);

#endif
