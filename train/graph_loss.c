/* graph_loss.c - losses of logits and their gradient, row by row.
 *
 * A row stays in cache from its maximum to its gradient; function by function over all rows it would
 * come from memory five times, which two threads cannot do faster than one.
 */
#include "graph.h"

#include <string.h>

#define TASK_ELEMENTS ((size_t)32768)

typedef struct loss_job {
    const graph *g;
    float *nll, *logits, *capped;
    const uint32_t *targets;
    size_t n, step;
    float loss_scale;
} loss_job;

static void judge_row(const loss_job *job, size_t row, unsigned worker) {
    const omm_compute *c = &job->g->solo[worker];
    const size_t vocab = job->g->model->dims.vocab;
    const float cap = job->g->model->dims.output_softcap;
    const float scale = job->g->model->dims.logit_scale;
    float *x = job->logits + row * vocab, *capped = NULL, lse = 0;
    if (scale != 1) omm_vec_scale(c, x, x, scale, vocab);
    if (cap != 0) {
        capped = job->capped + worker * vocab;
        omm_vec_softcap(c, x, x, cap, vocab);
        memcpy(capped, x, vocab * sizeof(float));
    }
    omm_row_lse(c, NULL, &lse, x, 1, vocab);
    job->nll[row] = lse - x[job->targets[row]];
    omm_row_exp(c, x, x, &lse, 1, vocab, vocab, vocab);
    omm_vec_scale(c, x, x, job->loss_scale, vocab);
    x[job->targets[row]] -= job->loss_scale;
    if (cap != 0) job->g->grad->softcap(x, capped, 1.0F / cap, vocab);
    if (scale != 1) omm_vec_scale(c, x, x, scale, vocab);
}

static void judge_task(void *ud, size_t task, unsigned worker) {
    const loss_job *job = ud;
    const size_t first = task * job->step, end = first + job->step;
    for (size_t row = first; row < end && row < job->n; row++) judge_row(job, row, worker);
}

/* The linter does not see that an output stored in a job is written through it. */
/* NOLINTBEGIN(readability-non-const-parameter) */
void graph_judge(const graph *g, float *nll, float *logits, float *capped, size_t first, size_t n,
                 float loss_scale) {
    loss_job job = {.g = g, .nll = nll, .logits = logits, .capped = capped};
    job.targets = g->targets + first;
    job.n = n;
    job.step = (TASK_ELEMENTS + g->model->dims.vocab - 1) / g->model->dims.vocab;
    job.loss_scale = loss_scale;
    omm_pool_run(g->compute->pool, judge_task, &job, (n + job.step - 1) / job.step);
}
/* NOLINTEND(readability-non-const-parameter) */
