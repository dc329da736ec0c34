/* kernels.c - public kernels: cut the work, hand the pieces to the pool.
 *
 * Cuts run along tokens, output columns and key/value heads, never through a chain or a row sum.
 */
#include "omm/kernels.h"

#include "kernels_table.h"

#include <string.h>

/* Below this many multiply-adds (or elements of a row function) a pool costs more than it gives. */
#define POOL_FLOPS_MIN (1u << 19)
#define POOL_ELEMENTS_MIN 16384u
#define ATTENTION_FLOPS_MIN (1u << 16) /* half of what attention does: keys alone */
#define TASKS_PER_WORKER 3u
/* From this many tokens on, unpacking weights into panels pays; below, row by row. */
#define GEMM_ROWS_MIN 4u
/* What a task of a product costs beside its multiply-adds, in those: reading an element of A from
 * memory, and making one of a panel of B. */
#define GEMM_A_COST ((size_t)16)
#define GEMM_B_COST ((size_t)8)
/* Part of a task for which others wait at the end of a product, on average. */
#define GEMM_WAIT_SHARE ((size_t)16)
/* Few rows: a task streams as many bytes as give each worker this many tasks, within limits: 64 KiB
 * are 4 us, so threads that end at different times wait little, and claiming a task costs nothing. */
#define POOL_BYTES_MIN ((size_t)64 << 10)
#define GEMV_TASKS_PER_WORKER 16u
#define GEMV_BYTES_MIN ((size_t)16 << 10)
#define GEMV_BYTES_MAX ((size_t)64 << 10)

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static float *worker_scratch(const omm_compute *c, unsigned worker) {
    return c->work + (size_t)worker * c->work_floats;
}

/* The linter does not see that an output stored in a job or cut is written through it. */
/* NOLINTBEGIN(readability-non-const-parameter) */

/* ---- matrix products ------------------------------------------------------------------------- */

typedef struct gemm_cut {
    const omm_compute *c;
    const gemm_job *job;
    size_t m_step, n_step, n_count;
} gemm_cut;

static void gemm_task(void *ud, size_t task, unsigned worker) {
    const gemm_cut *cut = (const gemm_cut *)ud;
    const gemm_job *job = cut->job;
    size_t m = task / cut->n_count * cut->m_step, n = task % cut->n_count * cut->n_step;
    cut->c->k->gemm(job, worker_scratch(cut->c, worker), m, min_size(m + cut->m_step, job->m), n,
                    min_size(n + cut->n_step, job->n));
}

/* About `tasks` tasks, `m_count` of them over one another. */
static gemm_cut gemm_cut_of(const omm_compute *c, const gemm_job *job, size_t m_count,
                            size_t tasks) {
    gemm_cut cut = {.c = c, .job = job};
    cut.m_step = divide_up(divide_up(job->m, m_count), GEMM_MR_MAX) * GEMM_MR_MAX;
    const size_t n_count = divide_up(tasks, divide_up(job->m, cut.m_step));
    cut.n_step = divide_up(divide_up(job->n, n_count), GEMM_NC) * GEMM_NC;
    cut.n_count = divide_up(job->n, cut.n_step);
    return cut;
}

/* Multiply-adds for each step of k until the last worker ends, with what comes beside them. */
static size_t gemm_cost(const gemm_cut *cut) {
    const gemm_job *job = cut->job;
    const size_t m = min_size(cut->m_step, job->m), n = min_size(cut->n_step, job->n);
    const size_t tasks = divide_up(job->m, cut->m_step) * cut->n_count;
    size_t a_times = 1, b_times = divide_up(m, GEMM_MB);
    if (gemm_by_weights(job, m)) {
        a_times = divide_up(n, weights_columns_step(m, n));
        b_times = divide_up(m, weights_rows_step(m));
    }
    const size_t one = m * n + GEMM_A_COST * m * a_times + GEMM_B_COST * n * b_times;
    return divide_up(tasks, cut->c->workers) * one + one / GEMM_WAIT_SHARE;
}

/* Many tasks wait little for each other, few read A and make panels less often: the cheapest of
 * both, and of rows against columns. */
static gemm_cut gemm_plan(const omm_compute *c, const gemm_job *job) {
    const size_t rows_max = divide_up(job->m, GEMM_MR_MAX);
    gemm_cut best = gemm_cut_of(c, job, 1, 1);
    size_t least = gemm_cost(&best);
    for (size_t each = 1; each <= TASKS_PER_WORKER; each++) {
        const size_t tasks = each * c->workers;
        for (size_t m_count = 1; m_count <= min_size(tasks, rows_max); m_count++) {
            const gemm_cut cut = gemm_cut_of(c, job, m_count, tasks);
            const size_t cost = gemm_cost(&cut);
            if (cost >= least) continue;
            least = cost;
            best = cut;
        }
    }
    return best;
}

static void gemm_run(const omm_compute *c, const gemm_job *job) {
    if (job->m == 0 || job->n == 0) return;
    if (job->k == 0) {
        for (size_t i = 0; i < job->m && !job->accumulate; i++)
            memset(job->c + i * job->ldc, 0, job->n * sizeof *job->c);
        return;
    }
    if (c->workers == 1 || job->m * job->n * job->k < POOL_FLOPS_MIN) {
        c->k->gemm(job, c->work, 0, job->m, 0, job->n);
        return;
    }
    gemm_cut cut = gemm_plan(c, job);
    omm_pool_run(c->pool, gemm_task, &cut, divide_up(job->m, cut.m_step) * cut.n_count);
}

/* Products of the same x (or their terms), strip by strip: each cut into tasks of whole strips. */
typedef struct gemv_cut {
    const omm_compute *c;
    omm_linear products[OMM_LINEAR_MAX];
    size_t step[OMM_LINEAR_MAX], tasks[OMM_LINEAR_MAX]; /* strips in a task, tasks */
    size_t count, m;
    const float *x;
    const omm_q8_rows *q8; /* for quantised products; NULL: x for all */
    bool accumulate, terms;
} gemv_cut;

static bool takes_q8(const omm_q8_rows *q8, const omm_matrix *w) {
    return q8 && omm_format_is_quantised(w->format);
}

static void gemv_terms(const omm_compute *c, const omm_linear *p, size_t s0, size_t s1) {
    for (size_t i = 0; i < p->term_count; i++) {
        const omm_linear_term *t = &p->terms[i];
        for (size_t row = 0; row < t->rows; row++)
            c->k->gemv(p->y + (t->first + row) * p->w->rows, t->z + row * t->z_stride, t->b, true,
                       s0, s1);
    }
}

static void gemv_strips(const gemv_cut *cut, const omm_linear *p, unsigned worker, size_t s0,
                        size_t s1) {
    const omm_matrix *w = p->w;
    if (takes_q8(cut->q8, w)) {
        cut->c->k->q8_linear(p->y, cut->q8, w, worker_scratch(cut->c, worker), 0, cut->m, s0, s1);
        return;
    }
    for (size_t i = 0; i < cut->m; i++)
        cut->c->k->gemv(p->y + i * w->rows, cut->x + i * w->cols, w, cut->accumulate, s0, s1);
}

static void gemv_task(void *ud, size_t task, unsigned worker) {
    const gemv_cut *cut = (const gemv_cut *)ud;
    size_t i = 0;
    for (; task >= cut->tasks[i]; i++) task -= cut->tasks[i];
    const omm_linear *p = &cut->products[i];
    OMM_ASSERT(p->w != NULL);
    const size_t s0 = task * cut->step[i], s1 = min_size(s0 + cut->step[i], p->w->strips);
    if (cut->terms)
        gemv_terms(cut->c, p, s0, s1);
    else
        gemv_strips(cut, p, worker, s0, s1);
}

/* What a strip of product i reads. */
static size_t gemv_strip_bytes(const gemv_cut *cut, size_t i) {
    const omm_linear *p = &cut->products[i];
    size_t bytes = 0;
    for (size_t t = 0; cut->terms && t < p->term_count; t++) bytes += p->terms[t].b->strip_bytes;
    return cut->terms ? bytes : p->w->strip_bytes;
}

/* Fills step and tasks; returns the number of tasks of all products. */
static size_t gemv_plan(gemv_cut *cut, size_t bytes_of_task) {
    size_t all = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const omm_matrix *w = cut->products[i].w;
        const size_t bytes = gemv_strip_bytes(cut, i);
        cut->step[i] = bytes ? divide_up(min_size(bytes_of_task, bytes * w->strips), bytes) : 1;
        if (takes_q8(cut->q8, w) && cut->m > 1)
            cut->step[i] = divide_up(cut->step[i], Q8_STRIPS) * Q8_STRIPS;
        cut->tasks[i] = bytes ? divide_up(w->strips, cut->step[i]) : 0;
        all += cut->tasks[i];
    }
    return all;
}

static void gemv_run(gemv_cut *cut) {
    size_t flops = 0, bytes = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const omm_matrix *w = cut->products[i].w;
        bytes += gemv_strip_bytes(cut, i) * w->strips;
        flops += cut->terms ? 0 : cut->m * w->rows * w->cols;
    }
    if (cut->c->workers == 1 || (flops < POOL_FLOPS_MIN && bytes < POOL_BYTES_MIN)) {
        const size_t tasks = gemv_plan(cut, SIZE_MAX);
        for (size_t i = 0; i < tasks; i++) gemv_task(cut, i, 0);
        return;
    }
    size_t part = bytes / ((size_t)cut->c->workers * GEMV_TASKS_PER_WORKER);
    if (part < GEMV_BYTES_MIN) part = GEMV_BYTES_MIN;
    omm_pool_run(cut->c->pool, gemv_task, cut, gemv_plan(cut, min_size(part, GEMV_BYTES_MAX)));
}

static void linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                           size_t m, bool accumulate, const gemm_job *tail) {
    if (m < GEMM_ROWS_MIN) {
        gemv_cut cut = {.c = c,
                        .products = {{.y = y, .w = w}},
                        .count = 1,
                        .m = m,
                        .x = x,
                        .accumulate = accumulate};
        if (m > 0) gemv_run(&cut);
        return;
    }
    gemm_job job = {.c = y,
                    .a = x,
                    .w = w,
                    .m = m,
                    .n = w->rows,
                    .k = w->cols,
                    .a_row = w->cols,
                    .a_col = 1,
                    .ldc = w->rows,
                    .source = GEMM_B_STRIPS,
                    .accumulate = accumulate,
                    .tail = tail};
    gemm_run(c, &job);
}

void omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                        size_t m, bool accumulate) {
    linear_forward(c, y, x, w, m, accumulate, NULL);
}

static void linear_backward(const omm_compute *c, float *dx, const float *dy, const omm_matrix *w,
                            size_t m, bool accumulate, const gemm_job *tail) {
    gemm_job job = {.c = dx,
                    .a = dy,
                    .w = w,
                    .m = m,
                    .n = w->cols,
                    .k = w->rows,
                    .a_row = w->rows,
                    .a_col = 1,
                    .ldc = w->cols,
                    .source = GEMM_B_STRIPS_TURNED,
                    .accumulate = accumulate,
                    .tail = tail};
    gemm_run(c, &job);
}

void omm_linear_backward(const omm_compute *c, float *dx, const float *dy, const omm_matrix *w,
                         size_t m, bool accumulate) {
    linear_backward(c, dx, dy, w, m, accumulate, NULL);
}

void omm_linear_q8(const omm_compute *c, float *y, const omm_q8_rows *x, const omm_matrix *w,
                   size_t m) {
    OMM_ASSERT(omm_format_is_quantised(w->format));
    OMM_ASSERT(x->cols == w->cols && x->rows == m);
    gemv_cut cut = {.c = c, .products = {{.y = y, .w = w}}, .count = 1, .m = m, .q8 = x};
    if (m > 0) gemv_run(&cut);
}

void omm_linear_each(const omm_compute *c, const omm_linear *products, size_t count, const float *x,
                     const omm_q8_rows *q8, size_t m) {
    gemv_cut cut = {.c = c, .m = m, .x = x, .q8 = q8};
    OMM_ASSERT(count <= OMM_LINEAR_MAX);
    for (size_t i = 0; i < count && m > 0; i++) {
        const omm_linear *p = &products[i];
        if (q8) OMM_ASSERT(q8->cols == p->w->cols && q8->rows == m);
        if (m < GEMM_ROWS_MIN || takes_q8(q8, p->w))
            cut.products[cut.count++] = *p;
        else
            omm_linear_forward(c, p->y, x, p->w, m, false);
    }
    if (cut.count > 0) gemv_run(&cut);
}

static void term_gemm(const omm_compute *c, float *y, const omm_linear_term *t) {
    gemm_job job = {.c = y + t->first * t->b->rows,
                    .a = t->z,
                    .w = t->b,
                    .m = t->rows,
                    .n = t->b->rows,
                    .k = t->b->cols,
                    .a_row = t->z_stride,
                    .a_col = 1,
                    .ldc = t->b->rows,
                    .source = GEMM_B_STRIPS,
                    .accumulate = true};
    gemm_run(c, &job);
}

void omm_linear_add_terms(const omm_compute *c, const omm_linear *products, size_t count,
                          size_t m) {
    gemv_cut cut = {.c = c, .m = m, .terms = true};
    OMM_ASSERT(count <= OMM_LINEAR_MAX);
    for (size_t i = 0; i < count; i++) {
        const omm_linear *p = &products[i];
        for (size_t t = 0; t < p->term_count; t++) {
            OMM_ASSERT(p->terms[t].b->rows == p->w->rows);
            OMM_ASSERT(p->terms[t].first + p->terms[t].rows <= m);
            if (m >= GEMM_ROWS_MIN) term_gemm(c, p->y, &p->terms[t]);
        }
        if (m < GEMM_ROWS_MIN && p->term_count > 0) cut.products[cut.count++] = *p;
    }
    if (cut.count > 0) gemv_run(&cut);
}

static gemm_job plain_job(const omm_gemm *g) {
    return (gemm_job){.c = g->c,
                      .a = g->a,
                      .b = g->b,
                      .m = g->m,
                      .n = g->n,
                      .k = g->k,
                      .a_row = g->lda,
                      .a_col = 1,
                      .ldb = g->ldb,
                      .ldc = g->ldc,
                      .source = GEMM_B_ROWS,
                      .accumulate = g->accumulate};
}

void omm_gemm_nn(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    gemm_run(c, &job);
}

void omm_gemm_nt(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    job.source = GEMM_B_COLUMNS;
    gemm_run(c, &job);
}

void omm_gemm_tn(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    job.a_row = 1;
    job.a_col = g->lda;
    gemm_run(c, &job);
}

void omm_gemm_tn_tokens(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    job.a_row = 1;
    job.a_col = g->lda;
    job.fold_tokens = true;
    gemm_run(c, &job);
}

/* ---- products that go on with a plain one ---------------------------------------------------- */

void omm_linear_forward_pair(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                             size_t m, const omm_linear_pair *pair) {
    const size_t n = w->rows, k = pair->k;
    const omm_gemm g = {y, pair->z, pair->b, m, n, k, k, k, n, true};
    gemm_job tail = plain_job(&g);
    tail.source = GEMM_B_COLUMNS;
    const bool together = k <= GEMM_TAIL_MAX && m >= GEMM_ROWS_MIN;
    linear_forward(c, y, x, w, m, false, together ? &tail : NULL);
    if (!together) gemm_run(c, &tail);
}

void omm_linear_backward_pair(const omm_compute *c, float *dx, const float *dy, const omm_matrix *w,
                              size_t m, bool accumulate, const omm_linear_pair *pair) {
    const size_t n = w->cols, k = pair->k;
    const omm_gemm g = {dx, pair->z, pair->b, m, n, k, k, n, n, true};
    const gemm_job tail = plain_job(&g);
    const bool together = k <= GEMM_TAIL_MAX;
    linear_backward(c, dx, dy, w, m, accumulate, together ? &tail : NULL);
    if (!together) gemm_run(c, &tail);
}

/* ---- chunks of uneven length ------------------------------------------------------------------ */

void omm_gemm_tn_chunks(const omm_compute *c, const omm_gemm *g, const uint32_t *ends) {
    gemm_job job = plain_job(g);
    job.a_row = 1;
    job.a_col = g->lda;
    job.fold_tokens = true;
    job.ends = ends;
    for (size_t i = 0, from = 0; from < g->k; from = ends[i++])
        OMM_ASSERT(ends[i] > from && ends[i] <= g->k && ends[i] - from <= OMM_TOKEN_CHUNK);
    gemm_run(c, &job);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* One call over m rows (or flat elements) of which a task takes `step`. */
typedef struct row_cut {
    const omm_compute *c;
    void (*run)(const struct row_cut *cut, size_t row0, size_t rows);
    float *out, *out2;
    const float *a, *b;
    const void *other;
    size_t m, n, step, stride_out, stride_a;
    uint32_t heads;
    float value;
    bool flag;
} row_cut;

static void row_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const row_cut *cut = (const row_cut *)ud;
    size_t row = task * cut->step;
    cut->run(cut, row, min_size(cut->step, cut->m - row));
}

static void rows_run(row_cut *cut, size_t row_elements) {
    if (cut->m == 0) return;
    if (cut->c->workers == 1 || cut->m * row_elements < POOL_ELEMENTS_MIN) {
        cut->run(cut, 0, cut->m);
        return;
    }
    cut->step = divide_up(cut->m, (size_t)cut->c->workers * TASKS_PER_WORKER);
    if (row_elements == 1) cut->step = divide_up(cut->step, 1024) * 1024;
    omm_pool_run(cut->c->pool, row_task, cut, divide_up(cut->m, cut->step));
}

static void run_embed(const row_cut *cut, size_t row0, size_t rows) {
    const omm_matrix *w = (const omm_matrix *)cut->other;
    const uint32_t *ids = (const uint32_t *)(const void *)cut->a;
    for (size_t i = row0; i < row0 + rows; i++) omm_matrix_row(cut->out + i * w->cols, w, ids[i]);
}

void omm_embed_forward(const omm_compute *c, float *x, const omm_matrix *w, const uint32_t *ids,
                       size_t m) {
    row_cut cut = {.c = c, .run = run_embed, .out = x, .other = w, .m = m};
    cut.a = (const float *)(const void *)ids;
    rows_run(&cut, w->cols);
}

typedef struct q8_cut {
    const omm_compute *c;
    omm_q8_rows *out;
    const float *x;
    size_t m, step;
} q8_cut;

static void q8_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const q8_cut *cut = (const q8_cut *)ud;
    size_t m = task * cut->step;
    cut->c->k->q8_quantize(cut->out, cut->x, m, min_size(m + cut->step, cut->m));
}

void omm_q8_quantize(const omm_compute *c, omm_q8_rows *out, const float *x, size_t m,
                     size_t cols) {
    OMM_ASSERT(m <= out->rows_max);
    OMM_ASSERT(cols <= out->cols_max && cols % OMM_QUANT_BLOCK == 0);
    out->rows = m;
    out->cols = cols;
    q8_cut cut = {.c = c, .out = out, .x = x, .m = m, .step = m};
    if (m == 0) return;
    if (c->workers > 1 && m * cols >= POOL_ELEMENTS_MIN)
        cut.step = divide_up(m, (size_t)c->workers * TASKS_PER_WORKER);
    if (cut.step == m)
        q8_task(&cut, 0, 0);
    else
        omm_pool_run(c->pool, q8_task, &cut, divide_up(m, cut.step));
}

static void run_scale(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->vec_scale(cut->out + i, cut->a + i, cut->value, count);
}

void omm_vec_scale(const omm_compute *c, float *y, const float *x, float alpha, size_t count) {
    row_cut cut = {.c = c, .run = run_scale, .out = y, .a = x, .value = alpha, .m = count};
    rows_run(&cut, 1);
}

static void run_add(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->vec_add(cut->out + i, cut->a + i, count);
}

void omm_vec_add(const omm_compute *c, float *y, const float *x, size_t count) {
    row_cut cut = {.c = c, .run = run_add, .out = y, .a = x, .m = count};
    rows_run(&cut, 1);
}

static void run_exp(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->vec_exp(cut->out + i, cut->a + i, count);
}

void omm_vec_exp(const omm_compute *c, float *y, const float *x, size_t count) {
    row_cut cut = {.c = c, .run = run_exp, .out = y, .a = x, .m = count};
    rows_run(&cut, 1);
}

static void run_log(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->vec_log(cut->out + i, cut->a + i, count);
}

void omm_vec_log(const omm_compute *c, float *y, const float *x, size_t count) {
    row_cut cut = {.c = c, .run = run_log, .out = y, .a = x, .m = count};
    rows_run(&cut, 1);
}

static void run_swiglu(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->swiglu(cut->out + i, cut->a + i, cut->b + i, count);
}

void omm_swiglu_forward(const omm_compute *c, float *y, const float *gate, const float *up,
                        size_t count) {
    row_cut cut = {.c = c, .run = run_swiglu, .out = y, .a = gate, .b = up, .m = count};
    rows_run(&cut, 1);
}

static void run_geglu(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->geglu(cut->out + i, cut->a + i, cut->b + i, count);
}

void omm_geglu_forward(const omm_compute *c, float *y, const float *gate, const float *up,
                       size_t count) {
    row_cut cut = {.c = c, .run = run_geglu, .out = y, .a = gate, .b = up, .m = count};
    rows_run(&cut, 1);
}

static void run_softcap(const row_cut *cut, size_t i, size_t count) {
    cut->c->k->vec_softcap(cut->out + i, cut->a + i, cut->value, count);
}

void omm_vec_softcap(const omm_compute *c, float *y, const float *x, float cap, size_t count) {
    row_cut cut = {.c = c, .run = run_softcap, .out = y, .a = x, .value = cap, .m = count};
    rows_run(&cut, 1);
}

static void run_row_add(const row_cut *cut, size_t row, size_t rows) {
    for (size_t i = row; i < row + rows; i++)
        cut->c->k->vec_add(cut->out + i * cut->n, cut->a, cut->n);
}

void omm_row_add(const omm_compute *c, float *y, const float *bias, size_t m, size_t n) {
    row_cut cut = {.c = c, .run = run_row_add, .out = y, .a = bias, .m = m, .n = n};
    rows_run(&cut, n);
}

static void run_rmsnorm(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->rmsnorm(cut->out + row * cut->n, cut->out2 ? cut->out2 + row : NULL,
                       cut->a + row * cut->n, cut->b, rows, cut->n, cut->value);
}

void omm_rmsnorm_forward(const omm_compute *c, float *y, float *r_out, const float *x,
                         const float *w, size_t m, size_t n, float eps) {
    row_cut cut = {.c = c,
                   .run = run_rmsnorm,
                   .out = y,
                   .out2 = r_out,
                   .a = x,
                   .b = w,
                   .m = m,
                   .n = n,
                   .value = eps};
    rows_run(&cut, n);
}

static void run_lse(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->row_lse(cut->out2 ? cut->out2 + row : NULL, cut->out + row, cut->a + row * cut->n,
                       rows, cut->n);
}

void omm_row_lse(const omm_compute *c, float *max_out, float *lse_out, const float *x, size_t m,
                 size_t n) {
    row_cut cut = {.c = c, .run = run_lse, .out = lse_out, .out2 = max_out, .a = x, .m = m, .n = n};
    OMM_ASSERT(n > 0);
    rows_run(&cut, n);
}

static void run_softmax(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->softmax(cut->out + row * cut->n, cut->a + row * cut->n, rows, cut->n);
}

void omm_softmax_forward(const omm_compute *c, float *y, const float *x, size_t m, size_t n) {
    row_cut cut = {.c = c, .run = run_softmax, .out = y, .a = x, .m = m, .n = n};
    OMM_ASSERT(n > 0);
    rows_run(&cut, n);
}

static void run_row_exp(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->row_exp(cut->out + row * cut->stride_out, cut->a + row * cut->stride_a, cut->b + row,
                       rows, cut->n, cut->stride_out, cut->stride_a);
}

void omm_row_exp(const omm_compute *c, float *p, const float *x, const float *shift, size_t m,
                 size_t n, size_t p_stride, size_t x_stride) {
    row_cut cut = {.c = c,
                   .run = run_row_exp,
                   .out = p,
                   .a = x,
                   .b = shift,
                   .m = m,
                   .n = n,
                   .stride_out = p_stride,
                   .stride_a = x_stride};
    rows_run(&cut, n);
}

static void run_row_dot(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->row_dot(cut->out + row, cut->a + row * cut->n, cut->b + row * cut->n, rows, cut->n);
}

void omm_row_dot(const omm_compute *c, float *out, const float *a, const float *b, size_t m,
                 size_t n) {
    row_cut cut = {.c = c, .run = run_row_dot, .out = out, .a = a, .b = b, .m = m, .n = n};
    rows_run(&cut, n);
}

bool omm_all_finite(const omm_compute *c, const float *x, size_t count) {
    return c->k->all_finite(x, count);
}

static void run_rope(const row_cut *cut, size_t row, size_t rows) {
    cut->c->k->rope(cut->out + row * cut->n, (const omm_rope *)cut->other, rows, cut->heads,
                    cut->stride_a + row, cut->flag);
}

void omm_rope_apply(const omm_compute *c, float *x, const omm_rope *rope, size_t m, uint32_t heads,
                    size_t pos0, bool inverse) {
    OMM_ASSERT(pos0 + m <= rope->positions);
    row_cut cut = {.c = c,
                   .run = run_rope,
                   .out = x,
                   .other = rope,
                   .m = m,
                   .n = (size_t)heads * rope->head_dim,
                   .heads = heads,
                   .stride_a = pos0,
                   .flag = inverse};
    rows_run(&cut, cut.n);
}

/* NOLINTEND(readability-non-const-parameter) */

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention_cut {
    const omm_compute *c;
    const omm_attention *a;
    size_t step, count, tasks; /* rows in a task, tasks per key/value head, per sequence */
} attention_cut;

static size_t attention_rows(const omm_attention *a) { /* of one key/value head */
    return a->m * (a->heads / a->kv->kv_heads);
}

static void attention_task(void *ud, size_t task, unsigned worker) {
    const attention_cut *cut = (const attention_cut *)ud;
    const omm_attention *a = &cut->a[task / cut->tasks];
    const size_t part = task % cut->tasks, rows = attention_rows(a);
    /* Late queries see most positions: they go first, so that no worker ends with a long one. */
    size_t r0 = (cut->count - 1 - part % cut->count) * cut->step;
    if (r0 >= rows) return;
    cut->c->k->attention(a, worker_scratch(cut->c, worker), (uint32_t)(part / cut->count), r0,
                         min_size(r0 + cut->step, rows));
}

/* Tasks of whole tiles; of one tile's rows when there are too few for the workers. */
static void attention_plan(attention_cut *cut, size_t rows, size_t lists, size_t workers) {
    OMM_ASSERT(rows > 0 && lists > 0);
    cut->step = min_size(rows, ATTENTION_ROWS);
    if (rows <= ATTENTION_ROWS && lists < workers)
        cut->step = divide_up(rows, divide_up(workers, lists));
    cut->count = divide_up(rows, cut->step);
}

void omm_attention_each(const omm_compute *c, const omm_attention *a, size_t count) {
    size_t flops = 0, rows = 0;
    for (size_t i = 0; i < count; i++) {
        OMM_ASSERT(a[i].m > 0 && a[i].pos0 + a[i].m <= a[i].kv->positions_max);
        OMM_ASSERT(a[i].kv->kv_heads == a[0].kv->kv_heads && a[i].heads == a[0].heads);
        OMM_ASSERT(a[i].heads % a[i].kv->kv_heads == 0);
        flops += a[i].m * a[i].heads * a[i].kv->head_dim * (a[i].pos0 + a[i].m);
        if (attention_rows(&a[i]) > rows) rows = attention_rows(&a[i]);
    }
    if (count == 0) return;
    const size_t lists = count * a->kv->kv_heads;
    attention_cut cut = {.c = c, .a = a, .step = rows, .count = 1};
    const bool pool = c->workers > 1 && flops >= ATTENTION_FLOPS_MIN;
    if (pool) attention_plan(&cut, rows, lists, c->workers);
    cut.tasks = cut.count * a->kv->kv_heads;
    if (pool)
        omm_pool_run(c->pool, attention_task, &cut, cut.tasks * count);
    else
        for (size_t i = 0; i < lists; i++) attention_task(&cut, i, 0);
}

void omm_attention_forward(const omm_compute *c, const omm_attention *a) {
    if (a->m > 0) omm_attention_each(c, a, 1);
}

typedef struct kv_cut {
    const omm_compute *c;
    const omm_kv *kv;
    const float *k, *v;
    size_t m, pos0;
} kv_cut;

static void kv_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const kv_cut *cut = (const kv_cut *)ud;
    cut->c->k->kv_store(cut->kv, cut->k, cut->v, cut->m, cut->pos0, (uint32_t)task,
                        (uint32_t)task + 1);
}

void omm_kv_store(const omm_compute *c, const omm_kv *kv, const float *k, const float *v, size_t m,
                  size_t pos0) {
    OMM_ASSERT(pos0 + m <= kv->positions_max);
    kv_cut cut = {.c = c, .kv = kv, .k = k, .v = v, .m = m, .pos0 = pos0};
    if (c->workers > 1 && m * kv->kv_heads * kv->head_dim >= POOL_ELEMENTS_MIN)
        omm_pool_run(c->pool, kv_task, &cut, kv->kv_heads);
    else
        c->k->kv_store(kv, k, v, m, pos0, 0, kv->kv_heads);
}
