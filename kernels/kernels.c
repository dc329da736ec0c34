/* kernels.c - public kernels: cut the work, hand the pieces to the pool.
 *
 * Cuts run along tokens, output columns and key/value heads, never through a chain or a row sum.
 */
#include "omm/kernels.h"

#include "kernels_cut.h"

#include <string.h>

#define TASKS_PER_WORKER 3u
/* What a task of a product costs beside its multiply-adds, in those: reading an element of A from
 * memory, and making one of a panel of B. */
#define GEMM_A_COST ((size_t)16)
#define GEMM_B_COST ((size_t)8)
/* Cells of a product for each worker, at most. */
#define GEMM_CELLS_PER_WORKER 5u
/* Of a cell's columns that are a task of their own: one in so many. */
#define GEMM_LAST_PART ((size_t)5)
/* Part of a task for which others wait at the end of a product: a 32nd for each worker, to a half.  Of many the
 * slowest is slower. */
#define GEMM_WAIT_WORKERS ((size_t)16)

/* The linter does not see that an output stored in a job or cut is written through it. */
/* NOLINTBEGIN(readability-non-const-parameter) */

/* ---- matrix products ------------------------------------------------------------------------- */

/* A product in cells, m_count over one another and n_count side by side.  A cell is a task, or with n_last two: its
 * last n_last columns are one of their own. */
typedef struct gemm_cut {
    const omm_compute *c;
    const gemm_job *job;
    size_t m_count, n_count, n_last;
} gemm_cut;

/* `size` in `count` parts of whole units, as equal as may be; what is left of a unit is in the last one, which has
 * none more than others.  Of 512 rows in tiles of 12 two threads get 252 and 260, not 264 and 248. */
static size_t part_begin(size_t size, size_t unit, size_t i, size_t count) {
    return i < count ? divide_up(size / unit * i, count) * unit : size;
}

static size_t part_largest(size_t size, size_t unit, size_t count) {
    const size_t units = size / unit;
    const size_t first = divide_up(units, count) * unit, last = units / count * unit + size % unit;
    return first > last ? first : last;
}

static size_t gemm_tasks(const gemm_cut *cut) {
    return cut->m_count * cut->n_count * (cut->n_last > 0 ? 2 : 1);
}

static void gemm_task(void *ud, size_t task, unsigned worker) {
    const gemm_cut *cut = (const gemm_cut *)ud;
    const gemm_job *job = cut->job;
    const bool is_last = cut->n_last > 0 && task % 2 == 1;
    const size_t cell = cut->n_last > 0 ? task / 2 : task;
    const size_t row = cell / cut->n_count, column = cell % cut->n_count;
    const size_t begin = part_begin(job->n, GEMM_NC, column, cut->n_count);
    const size_t end = part_begin(job->n, GEMM_NC, column + 1, cut->n_count);
    const size_t most = part_largest(job->n, GEMM_NC, cut->n_count) / GEMM_NC * GEMM_NC;
    const size_t middle = cut->n_last > 0 ? min_size(begin + most - cut->n_last, end) : end;
    const size_t from = is_last ? middle : begin, to = is_last ? end : middle;
    const size_t m0 = part_begin(job->m, GEMM_MR_MAX, row, cut->m_count);
    const size_t m1 = part_begin(job->m, GEMM_MR_MAX, row + 1, cut->m_count);
    if (from == to || m0 == m1) return;
    cut->c->k->gemm(job, worker_scratch(cut->c, worker), m0, m1, from, to);
}

/* About `cells` cells, `m_count` of them over one another. */
static gemm_cut gemm_cut_of(const omm_compute *c, const gemm_job *job, size_t m_count,
                            size_t cells) {
    gemm_cut cut = {.c = c, .job = job, .m_count = m_count};
    cut.n_count = min_size(divide_up(cells, m_count), divide_up(job->n, GEMM_NC));
    OMM_ASSERT(cut.n_count > 0);
    return cut;
}

/* Multiply-adds of a task of m rows and n columns for each step of k, with what comes beside them. */
static size_t gemm_task_cost(const gemm_job *job, size_t m, size_t n) {
    size_t a_times = 1, b_times = divide_up(m, GEMM_MB);
    if (gemm_by_weights(job, m) || gemm_by_tokens(job, m)) {
        a_times = divide_up(n, weights_columns_step(m, n));
        b_times = divide_up(m, weights_rows_step(m));
    }
    return m * n + GEMM_A_COST * m * a_times + GEMM_B_COST * n * b_times;
}

/* The same until the last worker ends. */
static size_t gemm_cost(const gemm_cut *cut) {
    const gemm_job *job = cut->job;
    const size_t m = part_largest(job->m, GEMM_MR_MAX, cut->m_count);
    const size_t n = part_largest(job->n, GEMM_NC, cut->n_count);
    const size_t waiting = min_size(cut->c->workers, GEMM_WAIT_WORKERS);
    const size_t last = gemm_task_cost(job, m, cut->n_last > 0 ? cut->n_last : n);
    const size_t one = cut->n_last > 0 ? gemm_task_cost(job, m, n - cut->n_last) + last : last;
    return divide_up(cut->m_count * cut->n_count, cut->c->workers) * one +
           last * waiting / (2 * GEMM_WAIT_WORKERS);
}

static void keep_cheaper(gemm_cut *best, size_t *least, const gemm_cut *cut) {
    const size_t cost = gemm_cost(cut);
    if (cost >= *least) return;
    *least = cost;
    *best = *cut;
}

/* Many tasks wait little for each other, few read A and make panels less often: the cheapest of both, and of rows
 * against columns.  Where each worker has one cell, a fifth of it comes last: whoever is done early takes that of a
 * worker whose processor is slower, an efficiency core or one that others use, and reads A once more, not many times. */
static gemm_cut gemm_plan(const omm_compute *c, const gemm_job *job) {
    const size_t rows_max = divide_up(job->m, GEMM_MR_MAX);
    gemm_cut best = gemm_cut_of(c, job, 1, 1);
    size_t least = gemm_cost(&best);
    for (size_t each = 1; each <= GEMM_CELLS_PER_WORKER; each++) {
        const size_t cells = each * c->workers;
        for (size_t m_count = 1; m_count <= min_size(cells, rows_max); m_count++) {
            gemm_cut cut = gemm_cut_of(c, job, m_count, cells);
            keep_cheaper(&best, &least, &cut);
            if (each > 1) continue;
            cut.n_last = job->n / cut.n_count / GEMM_NC / GEMM_LAST_PART * GEMM_NC;
            keep_cheaper(&best, &least, &cut);
        }
    }
    return best;
}

/* Products that go over the pool together, each cut by itself.  A worker's share has its part of the first, of the
 * second and so on: who is done early with those at the front, the large ones, takes of the others' last and small. */
typedef struct gemm_batch {
    gemm_cut cuts[GEMM_JOBS_MAX];
    size_t count;
} gemm_batch;

/* Tasks of the shares of all workers before `worker`. */
static size_t batch_begin(const gemm_batch *b, unsigned worker) {
    size_t sum = 0;
    for (size_t i = 0; i < b->count; i++)
        sum += omm_pool_share_begin(worker, gemm_tasks(&b->cuts[i]), b->cuts[0].c->workers);
    return sum;
}

static void batch_task(void *ud, size_t task, unsigned worker) {
    gemm_batch *b = (gemm_batch *)ud;
    const unsigned workers = b->cuts[0].c->workers;
    unsigned share = 0;
    while (batch_begin(b, share + 1) <= task) share++;
    size_t rest = task - batch_begin(b, share);
    for (size_t i = 0; i < b->count; i++) {
        const size_t tasks = gemm_tasks(&b->cuts[i]);
        const size_t first = omm_pool_share_begin(share, tasks, workers);
        const size_t here = omm_pool_share_begin(share + 1, tasks, workers) - first;
        if (rest < here) {
            gemm_task(&b->cuts[i], first + rest, worker);
            return;
        }
        rest -= here;
    }
}

static bool gemm_is_small(const gemm_job *job) {
    return job->m * job->n * job->k < POOL_FLOPS_MIN;
}

/* Nothing to add up. */
static void gemm_clear(const gemm_job *job) {
    for (size_t i = 0; i < job->m && !job->accumulate; i++)
        memset(job->c + i * job->ldc, 0, job->n * sizeof *job->c);
}

void gemm_run_all(const omm_compute *c, const gemm_job *jobs, size_t count) {
    gemm_batch b = {.count = 0};
    size_t flops = 0;
    OMM_ASSERT(count <= GEMM_JOBS_MAX);
    for (size_t i = 0; i < count; i++) flops += jobs[i].m * jobs[i].n * jobs[i].k;
    for (size_t i = 0; i < count; i++) {
        const gemm_job *job = &jobs[i];
        if (job->m == 0 || job->n == 0) continue;
        if (job->k == 0)
            gemm_clear(job);
        else if (c->workers == 1 || flops < POOL_FLOPS_MIN)
            c->k->gemm(job, c->work, 0, job->m, 0, job->n);
        else
            b.cuts[b.count++] = gemm_is_small(job) ? gemm_cut_of(c, job, 1, 1) : gemm_plan(c, job);
    }
    if (b.count > 0) omm_pool_run(c->pool, batch_task, &b, batch_begin(&b, c->workers));
}

void gemm_run(const omm_compute *c, const gemm_job *job) {
    gemm_run_all(c, job, 1);
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

void omm_gemm_tn_chunks(const omm_compute *c, const omm_gemm *g, const uint32_t *ends) {
    const gemm_job job = chunks_job(g, ends);
    gemm_run(c, &job);
}

/* ---- symmetric products ----------------------------------------------------------------------- */

static void symmetric_run(const omm_compute *c, gemm_job *job) {
    OMM_ASSERT(job->m == job->n && !job->accumulate);
    job->lower = true;
    gemm_run(c, job);
    c->k->mirror(job->c, job->ldc, job->n);
}

void omm_gemm_nn_symmetric(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    symmetric_run(c, &job);
}

void omm_gemm_nt_symmetric(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    job.source = GEMM_B_COLUMNS;
    symmetric_run(c, &job);
}

void omm_gemm_tn_symmetric(const omm_compute *c, const omm_gemm *g) {
    gemm_job job = plain_job(g);
    job.a_row = 1;
    job.a_col = g->lda;
    symmetric_run(c, &job);
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
    cut->c->q8->quantize(cut->out, cut->x, m, min_size(m + cut->step, cut->m));
}

void omm_q8_quantize(const omm_compute *c, omm_q8_rows *out, const float *x, size_t m,
                     size_t cols) {
    OMM_ASSERT(m <= out->rows_max);
    OMM_ASSERT(cols <= out->cols_max && cols % OMM_QUANT_BLOCK == 0);
    out->rows = m;
    out->stride = q8_stride(m);
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
