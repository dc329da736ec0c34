/* peaks_test.c - the figures are there on every instruction set, in a range that no machine leaves,
 * and only grow; the loops do the operations that are counted for
 * them.  With an argument: print them (`peaks_test 0.3`). */
#include "omm/peaks.h"

#include "omm_test.h"
#include "peaks_loops.h"

#include <stdlib.h>

#define BUFFER_BYTES ((size_t)64 << 20)

static void check(omm_isa isa, omm_pool *pool) {
    omm_compute c;
    omm_peaks p;
    CHECK_OK(omm_compute_init(&c, pool, isa));
    CHECK_OK(omm_peaks_open(&p, &c, BUFFER_BYTES));
    CHECK(p.read_bytes == 0.0);
    omm_peaks_update(&p, 0.0); /* one chunk each */
    const omm_peaks first = p;
    CHECK(p.read_bytes > 1e6 && p.read_bytes < 1e14);
    CHECK(p.fma_flops > 1e6 && p.fma_flops < 1e16);
    CHECK(p.dot_ops > 1e6 && p.dot_ops < 1e16);
    omm_peaks_update(&p, 0.01);
    CHECK(p.read_bytes >= first.read_bytes);
    CHECK(p.fma_flops >= first.fma_flops);
    CHECK(p.dot_ops >= first.dot_ops);
    const double total = p.read_total, rate = omm_peaks_read(&p, 100e6);
    CHECK(p.read_total - total == 2.0 * (double)BUFFER_BYTES); /* whole chunks */
    CHECK(rate > 1e6 && rate <= p.read_bytes * 1.000001);      /* no mean is above the best */
    for (int i = 0; i < 2; i++) {                              /* one chunk; several */
        const double fma = omm_peaks_fma(&p, 0.01 * i);
        CHECK(fma > 1e6 && fma <= p.fma_flops * 1.000001 && p.fma_flops >= first.fma_flops);
    }
    omm_peaks_close(&p);
    omm_peaks_close(&p); /* harmless */
    omm_compute_fini(&c);
}

/* Every product is one: what all lanes together grow by is how many were added. */
static void check_counts(const peaks_loops *l) {
    enum { FEW = 3, ROUNDS = 1000 };
    float from[PEAKS_LANES], to[PEAKS_LANES];
    int32_t dots_from[PEAKS_LANES], dots_to[PEAKS_LANES];
    double fma = 0.0, dot = 0.0;
    l->fma(from, 1.0f, 1.0f, FEW);
    l->fma(to, 1.0f, 1.0f, FEW + ROUNDS);
    l->dot(dots_from, 1, 0x01010101, FEW);
    l->dot(dots_to, 1, 0x01010101, FEW + ROUNDS);
    for (int i = 0; i < PEAKS_LANES; i++) {
        fma += (double)to[i] - (double)from[i];
        dot += (double)dots_to[i] - (double)dots_from[i];
    }
    CHECK(2.0 * fma == (double)ROUNDS * l->fma_per_round);
    CHECK(2.0 * dot == (double)ROUNDS * l->dot_per_round);
}

static void print(omm_isa isa, omm_pool *pool, double seconds) {
    omm_compute c;
    omm_peaks p;
    CHECK_OK(omm_compute_init(&c, pool, isa));
    CHECK_OK(omm_peaks_open(&p, &c, 0));
    omm_peaks_update(&p, seconds);
    printf("%-7s %u threads: read %.1f GB/s, fma %.0f GFLOP/s, dot %.0f GOPS\n", omm_isa_name(isa),
           c.workers, p.read_bytes * 1e-9, p.fma_flops * 1e-9, p.dot_ops * 1e-9);
    omm_peaks_close(&p);
    omm_compute_fini(&c);
}

int main(int argc, char **argv) {
    omm_pool *pool = NULL;
    CHECK_OK(omm_pool_open(&pool, 2));
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++) {
        if (!omm_isa_available((omm_isa)i)) continue;
        if (argc > 1) {
            print((omm_isa)i, NULL, strtod(argv[1], NULL));
            print((omm_isa)i, pool, strtod(argv[1], NULL));
            continue;
        }
        check_counts(peaks_loops_of((omm_isa)i));
        check((omm_isa)i, NULL);
        check((omm_isa)i, pool);
    }
    if (argc == 1) check_counts(&peaks_scalar); /* also where plain C is peaks_scalar_fma */
    omm_pool_close(pool);
    return 0;
}
