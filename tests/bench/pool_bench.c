/* pool_bench.c [THREADS_MAX [RUNS]] - what a run of the pool costs beside its tasks, for 2, 4, 8 .. threads: with
 * tasks of nothing, of one microsecond a thread, and of twenty in sixteen pieces each; medians.  Also how
 * long the same work would take alone.  Run it while nothing else runs. */
#include "omm/clock.h"
#include "omm/mem.h"
#include "omm/pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 4000, CALIBRATE = 2000000 };

typedef struct work {
    unsigned turns; /* of a loop that nothing can shorten */
} work;

static void turn(unsigned turns) {
    for (unsigned i = 0; i < turns; i++) __asm__ volatile("" ::: "memory");
}

static void task(void *ud, size_t number, unsigned worker) {
    (void)number;
    (void)worker;
    turn(((const work *)ud)->turns);
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Median ns of a run of `tasks` tasks. */
static double run_ns(omm_pool *pool, size_t tasks, unsigned turns, uint64_t *times, unsigned runs) {
    work w = {turns};
    for (unsigned i = 0; i < runs; i++) {
        const uint64_t begin = omm_measure_ns();
        omm_pool_run(pool, task, &w, tasks);
        times[i] = omm_measure_ns() - begin;
    }
    qsort(times, runs, sizeof *times, ascending);
    const uint64_t median = times[runs / 2];
    return (double)median;
}

static double turns_of_a_microsecond(void) {
    const uint64_t begin = omm_measure_ns();
    turn(CALIBRATE);
    return CALIBRATE * 1e3 / (double)(omm_measure_ns() - begin);
}

static void bench(unsigned threads, unsigned per_us, uint64_t *times, unsigned runs) {
    omm_pool *pool = NULL;
    if (omm_pool_open(&pool, threads) != OMM_OK) {
        fprintf(stderr, "pool_bench: %s\n", omm_err_sentence());
        exit(3);
    }
    const double nothing = run_ns(pool, threads, 0, times, runs);
    const double one = run_ns(pool, threads, per_us, times, runs);
    const double many = run_ns(pool, (size_t)threads * 16, per_us * 20 / 16, times, runs);
    printf("%3u threads: %6.2f us for nothing, %6.2f us more than a task of 1 us for each, %6.2f "
           "us more than 16 of 1.25 us\n",
           threads, nothing / 1e3, one / 1e3 - 1, many / 1e3 - 20);
    omm_pool_close(pool);
}

int main(int argc, char **argv) {
    const unsigned most = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : omm_cpu_count();
    const unsigned runs = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : RUNS;
    if (most < 2 || most > OMM_POOL_THREADS_MAX || runs < 1 || runs > 1000000) {
        fprintf(stderr, "usage: pool_bench [THREADS_MAX, 2 to 256 [RUNS, to 1000000]]\n");
        return 2;
    }
    uint64_t *times = omm_alloc(runs, sizeof *times);
    if (!times) return 3;
    const unsigned per_us = (unsigned)turns_of_a_microsecond();
    for (unsigned threads = 2; threads <= most; threads *= 2) bench(threads, per_us, times, runs);
    omm_free(times);
    return 0;
}
