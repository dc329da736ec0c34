/* graph_rows.c - the row kernels of backward (grad_kernels.h), cut over the pool.
 *
 * Rows and elements are independent, so where they are cut cannot change a bit.
 */
#include "graph.h"

/* Below this many elements a pool costs more than it gives. */
#define POOL_ELEMENTS_MIN 16384u
#define TASKS_PER_WORKER 3u

/* Elements that go from function to function in one piece: 16 KiB of each of four arrays. */
#define PIECE_ELEMENTS ((size_t)4096)

typedef struct row_job {
    const graph *g;
    void (*run)(const struct row_job *job, size_t first, size_t count, unsigned worker);
    float *out, *out2;
    const float *a, *b, *w, *r;
    size_t m, n, step;
} row_job;

static void row_task(void *ud, size_t task, unsigned worker) {
    const row_job *job = ud;
    const size_t first = task * job->step, left = job->m - first;
    job->run(job, first, left < job->step ? left : job->step, worker);
}

static void rows_run(row_job *job) {
    const graph *g = job->g;
    if (g->workers == 1 || job->m * job->n < POOL_ELEMENTS_MIN) {
        job->run(job, 0, job->m, 0);
        return;
    }
    const size_t tasks = (size_t)g->workers * TASKS_PER_WORKER;
    job->step = (job->m + tasks - 1) / tasks;
    omm_pool_run(g->compute->pool, row_task, job, (job->m + job->step - 1) / job->step);
}

/* The linter does not see that an output stored in a job is written through it. */
/* NOLINTBEGIN(readability-non-const-parameter) */

static void run_norm(const row_job *job, size_t first, size_t count, unsigned worker) {
    const size_t n = job->n;
    (void)worker;
    for (size_t i = first; i < first + count; i++)
        job->g->grad->rmsnorm(job->out + i * n, job->a + i * n, job->b + i * n, job->w, job->r[i],
                              n);
}

void graph_rows_norm(const graph *g, float *dx, const float *dy, const float *x, const float *w,
                     const float *r, size_t rows, size_t n) {
    row_job job = {.g = g, .run = run_norm, .out = dx, .a = dy, .b = x, .w = w, .r = r};
    job.m = rows;
    job.n = n;
    rows_run(&job);
}

static void run_dot(const row_job *job, size_t first, size_t count, unsigned worker) {
    const size_t n = job->n;
    (void)worker;
    for (size_t i = first; i < first + count; i++)
        job->out[i] = job->g->grad->dot(job->a + i * n, job->b + i * n, n);
}

void graph_rows_dot(const graph *g, float *out, const float *a, const float *b, size_t rows,
                    size_t n) {
    row_job job = {.g = g, .run = run_dot, .out = out, .a = a, .b = b, .m = rows, .n = n};
    rows_run(&job);
}

/* e, the exponential that the gradient wants, and then the gradients: a piece at a time, which stays
 * in cache; all of e at once would go to memory and back between them. */
static void activation_piece(const row_job *job, size_t at, size_t n, unsigned worker) {
    const grad_kernels *k = job->g->grad;
    const omm_compute *c = &job->g->solo[worker];
    const bool is_gelu = job->g->model->dims.ffn == OMM_FFN_GEGLU;
    float *e = job->out + at, *da = job->out2 + at;
    const float *gate = job->a + at, *up = job->b + at;
    if (is_gelu)
        k->gelu_power(e, gate, n);
    else
        omm_vec_scale(c, e, gate, -1.0F, n);
    omm_vec_exp(c, e, e, n);
    if (is_gelu)
        k->geglu(e, da, da, gate, up, e, n);
    else
        k->swiglu(e, da, da, gate, up, e, n);
}

static void run_activation(const row_job *job, size_t first, size_t count, unsigned worker) {
    const size_t end = (first + count) * job->n;
    for (size_t at = first * job->n; at < end; at += PIECE_ELEMENTS)
        activation_piece(job, at, end - at < PIECE_ELEMENTS ? end - at : PIECE_ELEMENTS, worker);
}

void graph_rows_activation(const graph *g, float *dgate, float *da, const float *gate,
                           const float *up, size_t rows, size_t n) {
    row_job job = {.g = g, .run = run_activation, .out = dgate, .out2 = da, .a = gate, .b = up};
    job.m = rows;
    job.n = n;
    rows_run(&job);
}

/* NOLINTEND(readability-non-const-parameter) */
