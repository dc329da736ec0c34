/* bench.h - the measurements of `meshmind bench`: how fast a model runs here, and what part of the
 * machine's peaks that is.
 *
 * For each number of threads: one run to warm up, in which the session is filled to its last position and the
 * memory looked at, then `repeats` times a prefill of `prompt` tokens from an empty session, `generate` single
 * tokens behind it, a look at the peaks (omm/peaks.h), and the last of the tokens once more with the pool's
 * clock and a profile running.  Ids are fixed; nothing is
 * sampled.  Decoding goes in turns of about a gigabyte of weights, with reads of as many bytes before
 * and after each; before and after a prefill are multiply-adds.
 *   share in turns = bytes of weights per second of one turn / mean of the reads beside it; the
 *                    median of all turns is what decode gets of what the machine gave in its time.
 *                    Of prefill: its operations per second / mean of the multiply-adds beside it
 *   share of read  = decode tokens/s * bytes of weights that a token needs / read bandwidth, of the
 *                    best 64 MiB (2 ms) of the run and of all that was read
 *   share of fma   = prefill tokens/s * 2 * parameters / f32 peak; of dot: the same over the int8 peak
 *   waiting        = time of threads inside parallel runs without a task, over all their time
 *   alone          = time in which the first thread computed alone
 *   file           = decode tokens/s * bytes of layers that are read and packed again for each pass
 * Parameters are those of the matrices that a token passes through; a separate embedding is none.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "bench_figures.h"
#include "memory.h"

#include "omm/profile.h"
#include "omm/session.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_THREAD_COUNTS_MAX 16u
#define BENCH_REPEATS_MAX 1000u

typedef struct bench_options {
    const char *model;
    omm_activations activations;
    omm_kv_type kv_type;
    uint32_t prompt, generate, repeats; /* prompt or generate 0: not measured; repeats >= 1 */
    unsigned threads[BENCH_THREAD_COUNTS_MAX];
    unsigned thread_counts; /* 0: measure which (omm/autothreads.h) */
    uint32_t max_memory_mb; /* 0: no limit */
    bool stream;            /* layers from the file: all, or those that the limit has no room for */
    bool packed;            /* from a packed copy beside the model */
    double peak_seconds;    /* per figure and number of threads, over all repeats; 0: no peaks */
    bool profile;           /* print decode time by part; JSON has it always */
} bench_options;

typedef struct bench_run {
    unsigned threads;
    bench_spread prefill, decode;            /* tokens per second */
    bench_spread in_turns, prefill_in_turns; /* shares; zeros without peaks */
    uint64_t memory_peak_bytes;              /* of the first: loading included; 0: not known here */
    double waiting, alone;                   /* shares of decode time, medians */
    double part_seconds[OMM_PROFILE_PARTS];  /* of decoding a token, means over the repeats */
    double read_bytes, fma_flops, dot_ops, read_sustained;
} bench_run;

typedef struct bench_result {
    char architecture[BENCH_ARCHITECTURE_MAX];
    omm_isa isa;
    uint64_t parameters, token_bytes;
    uint64_t memory_peak_bytes; /* the most of all runs, loading included; 0: not known here */
    uint64_t streamed_bytes;    /* of the file, in every pass */
    uint64_t part_bytes[OMM_PROFILE_PARTS]; /* of weights, for a token */
    double load_seconds;                    /* a copy that is made is made before */
    bool packed;                            /* a copy was there or could be made */
    cli_memory memory;                      /* its session has the cache's type that was measured */
    unsigned run_count;
    bench_run runs[BENCH_THREAD_COUNTS_MAX]; /* [run_count] */
} bench_result;

/* Errors: those of loading and of sessions; TOO_BIG (more positions than the model has). */
OMM_CHECKED omm_err bench_measure(bench_result *out, const bench_options *options);

/* On stdout. */
void bench_print(const bench_result *result, const bench_options *options);
OMM_CHECKED omm_err bench_print_json(const bench_result *result, const bench_options *options);

#endif
