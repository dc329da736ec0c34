/* linear_pair_test.c - a product that goes on with a second one has the bytes of both, one after the
 * other: odd shapes, ranks up to and over what is done in one pass, instruction sets, threads. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

enum { RANKS = 4, SHAPES = 5 };
static const size_t s_ranks[RANKS] = {1, 3, 16, 17};
static const uint32_t s_shapes[SHAPES][3] = {/* m, rows, columns */
                                             {1, 16, 32},
                                             {5, 35, 96},
                                             {37, 64, 544},
                                             {130, 33, 256},
                                             {401, 200, 288}};

static void compare(const float *a, const float *b, size_t count, const char *what) {
    if (memcmp(a, b, count * sizeof *a) == 0) return;
    fprintf(stderr, "%s differs\n", what);
    exit(1);
}

static void check_shape(const omm_compute *c, omm_format format, const uint32_t shape[3],
                        size_t rank) {
    const size_t m = shape[0], n = shape[1], k = shape[2];
    char what[96];
    snprintf(what, sizeof what, "%s, %u threads, %s %zux%zux%zu, rank %zu", omm_isa_name(c->isa),
             c->workers, omm_format_name(format), m, n, k, rank);
    omm_matrix w = battery_matrix(format, shape[1], shape[2], n + k);
    float *x = battery_floats(1, m * k), *dy = battery_floats(2, m * n);
    float *z = battery_floats(3, m * rank), *b = battery_floats(4, (n + k) * rank);
    float *y[2] = {battery_floats(5, m * n), battery_floats(6, m * n)};
    float *dx[2] = {battery_floats(7, m * k), battery_floats(7, m * k)};
    const omm_linear_pair pair = {z, b, rank};
    const bool accumulate = rank % 2 == 1;
    omm_linear_forward(c, y[0], x, &w, m, false);
    omm_gemm_nt(c, &(omm_gemm){y[0], z, b, m, n, rank, rank, rank, n, true});
    omm_linear_forward_pair(c, y[1], x, &w, m, &pair);
    compare(y[0], y[1], m * n, what);
    omm_linear_backward(c, dx[0], dy, &w, m, accumulate);
    omm_gemm_nn(c, &(omm_gemm){dx[0], z, b, m, k, rank, rank, k, k, true});
    omm_linear_backward_pair(c, dx[1], dy, &w, m, accumulate, &pair);
    compare(dx[0], dx[1], m * k, what);
    float *all[] = {x, dy, z, b, y[0], y[1], dx[0], dx[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) omm_free(all[i]);
    omm_matrix_fini(&w);
}

static void check_all(omm_isa isa, unsigned threads) {
    static const omm_format formats[] = {OMM_FORMAT_F32, OMM_FORMAT_Q8_0, OMM_FORMAT_BF16};
    omm_pool *pool = NULL;
    omm_compute c;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < SHAPES; s++)
            for (size_t r = 0; r < RANKS; r++) check_shape(&c, formats[f], s_shapes[s], s_ranks[r]);
    omm_compute_fini(&c);
    omm_pool_close(pool);
}

int main(void) {
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        check_all((omm_isa)isa, 1 + isa % 2);
        printf("%s: the same bytes\n", omm_isa_name((omm_isa)isa));
    }
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    check_all(best, 3);
    return 0;
}
