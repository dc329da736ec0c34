/* kernels_bench.c - bytes per second of one token and operations per second of many, for each format,
 * beside the peaks of the machine measured in between.
 *
 *   kernels_bench [THREADS [ISA [FORMAT [TOKENS]]]]
 *
 * Shapes are those of a 1.24B llama: 8192 x 2048 and 2048 x 8192, as many of them as take 200 MB, so
 * that nothing is read twice from a cache.  Each figure is the median of its runs.
 */
#include "omm/compute.h"
#include "omm/kernels.h"
#include "omm/mem.h"
#include "omm/peaks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDE = 8192, NARROW = 2048, MATRICES_MAX = 64, RUNS = 15 };

static const size_t WEIGHT_BYTES = (size_t)200 << 20;

typedef struct bench {
    omm_compute c;
    omm_pool *pool;
    omm_peaks peaks;
    size_t tokens, count;
    omm_matrix matrices[MATRICES_MAX];
    omm_q8_rows q8;
    float *x, *y;
} bench;

static void need(omm_err err) {
    if (err == OMM_OK) return;
    fprintf(stderr, "kernels_bench: %s\n", omm_err_sentence());
    exit(3);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes whose pairs are all finite halves. */
static void weights_make(bench *b, omm_format format) {
    const size_t bytes = omm_format_row_bytes(format, WIDE) * NARROW;
    uint8_t *data = (uint8_t *)omm_alloc(bytes, 1);
    if (!data) exit(3);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)((i * 2654435761u >> 13) & 0x3b);
    size_t total = 0;
    for (b->count = 0; b->count < MATRICES_MAX && total < WEIGHT_BYTES; b->count++) {
        const bool tall = b->count % 2 == 0;
        omm_matrix *m = &b->matrices[b->count];
        need(omm_matrix_pack_with(m, b->pool, format, tall ? WIDE : NARROW, tall ? NARROW : WIDE,
                                  omm_bytes_of(data, bytes)));
        total += omm_matrix_bytes(m);
    }
    omm_free(data);
}

static void product(bench *b, const omm_matrix *w, size_t m) {
    if (!omm_format_is_quantised(w->format)) {
        omm_linear_forward(&b->c, b->y, b->x, w, m, false);
        return;
    }
    omm_q8_quantize(&b->c, &b->q8, b->x, m, w->cols);
    omm_linear_q8(&b->c, b->y, &b->q8, w, m);
}

/* Median seconds of a product of `m` tokens with `count` matrices, one after the other. */
static double median(bench *b, size_t m, size_t count) {
    double t[RUNS];
    for (int r = 0; r < RUNS; r++) {
        const double start = seconds();
        for (size_t i = 0; i < count; i++) product(b, &b->matrices[i], m);
        t[r] = seconds() - start;
        omm_peaks_update(&b->peaks, 0.02);
    }
    qsort(t, RUNS, sizeof *t, ascending);
    return t[RUNS / 2];
}

static void format_run(bench *b, omm_format format) {
    weights_make(b, format);
    double bytes = 0.0;
    for (size_t i = 0; i < b->count; i++)
        bytes += (double)(b->matrices[i].strips * b->matrices[i].strip_bytes);
    const double read = bytes / median(b, 1, b->count);
    const double ops = 4.0 * (double)b->tokens * WIDE * NARROW / median(b, b->tokens, 2);
    printf("%-7s %6.1f GB/s %5.1f %% of read   %7.0f GOPS %5.2f x fma %5.1f %% of dot\n",
           omm_format_name(format), read * 1e-9, 100.0 * read / b->peaks.read_bytes, ops * 1e-9,
           ops / b->peaks.fma_flops, 100.0 * ops / b->peaks.dot_ops);
    fflush(stdout);
    for (size_t i = 0; i < b->count; i++) omm_matrix_fini(&b->matrices[i]);
}

static void bench_open(bench *b, unsigned threads, const char *isa_name) {
    omm_isa isa;
    need(omm_isa_choose(&isa, isa_name));
    need(omm_pool_open(&b->pool, threads));
    need(omm_compute_init(&b->c, b->pool, isa));
    need(omm_peaks_open(&b->peaks, &b->c, 0));
    need(omm_q8_rows_init(&b->q8, b->tokens, WIDE));
    b->x = (float *)omm_alloc_aligned(b->tokens * WIDE, sizeof *b->x);
    b->y = (float *)omm_alloc_aligned(b->tokens * WIDE, sizeof *b->y);
    if (!b->x || !b->y) exit(3);
    for (size_t i = 0; i < b->tokens * WIDE; i++) b->x[i] = (float)((i * 7919u) % 2001u) - 1000.0f;
}

int main(int argc, char **argv) {
    static bench b;
    const long threads = argc > 1 ? strtol(argv[1], NULL, 10) : (long)omm_cpu_count();
    b.tokens = argc > 4 ? (size_t)strtoul(argv[4], NULL, 10) : 256;
    if (threads < 1 || threads > (long)OMM_POOL_THREADS_MAX || b.tokens < 1 || b.tokens > 4096) {
        fprintf(stderr, "usage: kernels_bench [THREADS [ISA [FORMAT|all [TOKENS up to 4096]]]]\n");
        return 2;
    }
    bench_open(&b, (unsigned)threads, argc > 2 ? argv[2] : NULL);
    omm_peaks_update(&b.peaks, OMM_PEAKS_SECONDS);
    for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++) {
        const char *name = omm_format_name((omm_format)f);
        if (argc > 3 && strcmp(argv[3], "all") != 0 && strcmp(argv[3], name) != 0) continue;
        format_run(&b, (omm_format)f);
    }
    printf("%s, %ld threads, %zu tokens; peaks: read %.1f GB/s, fma %.0f GFLOP/s, dot %.0f GOPS\n",
           omm_isa_name(b.c.isa), threads, b.tokens, b.peaks.read_bytes * 1e-9,
           b.peaks.fma_flops * 1e-9, b.peaks.dot_ops * 1e-9);
    omm_free(b.x);
    omm_free(b.y);
    omm_q8_rows_fini(&b.q8);
    omm_peaks_close(&b.peaks);
    omm_compute_fini(&b.c);
    omm_pool_close(b.pool);
    return 0;
}
