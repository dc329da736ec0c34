/* full_update.c - from the gradient of all weights to the next weights, by all threads. */
#include "adamw.h"
#include "full_internal.h"
#include "omm/mem.h"
#include "optimizer.h"

#include <math.h>

enum { SLICE = 1 << 16 };

/* Second moments of a tensor. */
static size_t v_count_of(const omm_recipe *recipe, const full_tensor *x) {
    if (recipe->optimizer == OMM_RECIPE_SGD) return 0;
    if (recipe->optimizer == OMM_RECIPE_ADAFACTOR) return (size_t)x->rows + x->cols;
    return (size_t)x->rows * x->cols;
}

static size_t slices_of(const omm_recipe *recipe, const full_tensor *x) {
    const size_t size = (size_t)x->rows * x->cols;
    return recipe->optimizer == OMM_RECIPE_ADAMW ? (size + SLICE - 1) / SLICE : 1;
}

omm_err full_update_open(omm_full *t) {
    size_t count = 0;
    for (size_t i = 0; i < t->tensors.count; i++)
        count += slices_of(&t->recipe, &t->tensors.items[i]);
    t->slices = omm_alloc(count, sizeof *t->slices);
    if (!t->slices) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu slices of weights", count);
    for (size_t i = 0; i < t->tensors.count; i++) {
        const full_tensor *x = &t->tensors.items[i];
        const size_t size = (size_t)x->rows * x->cols, of_x = slices_of(&t->recipe, x);
        const size_t step = of_x > 1 ? SLICE : size;
        for (size_t from = 0; from < size; from += step)
            t->slices[t->slice_count++] =
                (full_slice){x, from, size - from < step ? size : from + step, t->v_count};
        t->v_count += v_count_of(&t->recipe, x);
    }
    t->m_count = t->recipe.optimizer == OMM_RECIPE_ADAFACTOR ? 0 : t->tensors.value_count;
    t->m = omm_alloc_aligned(t->m_count ? t->m_count : 1, sizeof *t->m);
    t->v = omm_alloc_aligned(t->v_count ? t->v_count : 1, sizeof *t->v);
    t->squares = omm_alloc(t->tensors.count, sizeof *t->squares);
    if (t->m && t->v && t->squares) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for the moments of %zu weights",
                     t->tensors.value_count);
}

void full_update_close(omm_full *t) {
    omm_free(t->slices);
    omm_free(t->m);
    omm_free(t->v);
    omm_free(t->squares);
}

static void square_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    omm_full *t = ud;
    const full_tensor *x = &t->tensors.items[task];
    const double norm = adamw_norm(t->sums.gradient + x->offset, (size_t)x->rows * x->cols);
    t->squares[task] = norm * norm;
}

double full_gradient_norm(omm_full *t) {
    double sum = 0;
    omm_pool_run(t->options.compute->pool, square_task, t, t->tensors.count);
    for (size_t i = 0; i < t->tensors.count; i++) sum += t->squares[i];
    return sqrt(sum);
}

typedef struct update_job {
    omm_full *t;
    double norm;
    float rate;
} update_job;

static void update_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const update_job *job = ud;
    omm_full *t = job->t;
    const full_slice *s = &t->slices[task];
    const full_tensor *x = s->tensor;
    const size_t at = x->offset + s->from, count = s->to - s->from;
    omm_recipe recipe = t->recipe;
    if (x->vector) recipe.weight_decay = 0;
    optimizer_tensor part = {.values = t->values + at,
                             .gradient = t->sums.gradient + at,
                             .m = t->m_count ? t->m + at : NULL,
                             .v = t->v + s->v_at +
                                  (recipe.optimizer == OMM_RECIPE_ADAMW ? s->from : 0),
                             .rows = x->rows,
                             .cols = x->cols};
    adamw_state clip = {.gradient = part.gradient, .count = count};
    adamw_clip(&clip, job->norm, recipe.clip_norm);
    if (count < (size_t)x->rows * x->cols) { /* elementwise: any shape will do */
        part.rows = 1;
        part.cols = (uint32_t)count;
    }
    optimizer_one(&part, &recipe, job->rate, t->step + 1);
}

void full_update(omm_full *t, double norm, float rate) {
    update_job job = {t, norm, rate};
    omm_pool_run(t->options.compute->pool, update_task, &job, t->slice_count);
    full_write(t->options.compute, &t->tensors, t->values);
}
