/* gemm_cut_test.c - how products are cut into tasks: every output is in exactly one, whatever the shape and the number of
 * workers, and where each worker has one cell, a part of it comes last. */
#include "kernels_table.h"
#include "omm/kernels.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

enum { TASKS_MAX = 1024 };

/* What a product was cut into, in order; nothing is computed. */
typedef struct piece {
    size_t m0, m1, n0, n1;
} piece;
static piece s_pieces[TASKS_MAX];
static size_t s_count;

/* NOLINTNEXTLINE(readability-non-const-parameter): a kernel's form */
static void note(const gemm_job *job, float *work, size_t m0, size_t m1, size_t n0, size_t n1) {
    (void)job;
    (void)work;
    CHECK(s_count < TASKS_MAX && m0 < m1 && n0 < n1 && n0 % GEMM_NC == 0);
    s_pieces[s_count++] = (piece){m0, m1, n0, n1};
}

/* y[m][rows] = x[m][cols] W^T by so many workers, whose tasks this thread does one after the other. */
static void cut(uint32_t m, uint32_t rows, uint32_t cols, unsigned workers) {
    static const struct omm_kernels table = {.gemm = note};
    omm_compute c;
    omm_matrix w;
    float nothing = 0;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_matrix_outline(&w, OMM_FORMAT_Q8_0, rows, cols));
    omm_compute counting = c;
    counting.k = &table;
    counting.workers = workers;
    s_count = 0;
    omm_linear_forward(&counting, &nothing, &nothing, &w, m, false);
    omm_compute_fini(&c);
}

static void covers(uint32_t m, uint32_t rows, uint32_t cols, unsigned workers) {
    uint8_t *times = omm_alloc((size_t)m * rows, 1);
    size_t wrong = 0;
    CHECK(times != NULL);
    cut(m, rows, cols, workers);
    for (size_t i = 0; i < s_count; i++) {
        const piece *p = &s_pieces[i];
        CHECK(p->m1 <= m && p->n1 <= rows);
        for (size_t row = p->m0; row < p->m1; row++)
            for (size_t n = p->n0; n < p->n1; n++) times[row * rows + n]++;
    }
    for (size_t i = 0; i < (size_t)m * rows; i++) wrong += times[i] != 1;
    if (wrong > 0)
        fprintf(stderr, "%u x %u x %u, %u workers: %zu outputs are not in one task\n", m, rows,
                cols, workers, wrong);
    CHECK_EQ(wrong, 0);
    omm_free(times);
}

static void all_covered(void) {
    static const uint32_t rows[] = {16, 48, 192, 288, 576, 1000, 1536, 2048};
    static const uint32_t tokens[] = {4, 47, 64, 130, 512};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++)
            for (unsigned workers = 1; workers <= 17; workers++)
                covers(tokens[k], rows[i], 576, workers);
}

static size_t outputs(const piece *p) {
    return (p->m1 - p->m0) * (p->n1 - p->n0);
}

/* Shares are taken from the front and stolen from the end: what is stolen is the small one. */
static void small_one_last(uint32_t rows) {
    cut(512, rows, 576, 2);
    CHECK_EQ(s_count, 4);
    for (size_t i = 0; i < 4; i += 2) {
        const size_t large = outputs(&s_pieces[i]), small = outputs(&s_pieces[i + 1]);
        CHECK(small * 10 >= large + small && small * 4 <= large + small);
    }
}

int main(void) {
    all_covered();
    small_one_last(576);
    small_one_last(1536);
    small_one_last(8192);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
