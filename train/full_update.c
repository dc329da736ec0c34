/* full_update.c - from the gradient of all weights to the next weights, by all threads. */
#include "adamw.h"
#include "full_internal.h"
#include "omm/mem.h"
#include "optimizer.h"

#include <math.h>
#include <string.h>

enum { SLICE = 1 << 16 };

static bool is_of_layer(const full_tensor *x) {
    return x->matrix && strncmp(x->name, "blk.", 4) == 0;
}

uint32_t full_side_of(const full_tensor *x) {
    if (!is_of_layer(x)) return 0;
    return x->rows < x->cols ? x->rows : x->cols;
}

static bool is_projected(uint32_t rank, const full_tensor *x) {
    return rank > 0 && full_side_of(x) > rank;
}

/* First and second moments of a tensor that moves as a whole. */
static size_t m_count_of(const omm_recipe *recipe, const full_tensor *x) {
    return recipe->optimizer == OMM_RECIPE_ADAFACTOR ? 0 : (size_t)x->rows * x->cols;
}

static size_t v_count_of(const omm_recipe *recipe, const full_tensor *x) {
    if (recipe->optimizer == OMM_RECIPE_SGD) return 0;
    if (recipe->optimizer == OMM_RECIPE_ADAFACTOR) return (size_t)x->rows + x->cols;
    return (size_t)x->rows * x->cols;
}

/* Elementwise optimisers may cut a tensor anywhere. */
static size_t slices_of(const omm_recipe *recipe, const full_tensor *x) {
    const size_t size = (size_t)x->rows * x->cols;
    return recipe->optimizer == OMM_RECIPE_ADAMW ? (size + SLICE - 1) / SLICE : 1;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

full_sizes full_sizes_of(const omm_recipe *recipe, uint32_t galore_rank, bool muon,
                         unsigned workers, const full_tensors *t) {
    full_sizes sizes = {0};
    for (size_t i = 0; i < t->count; i++) {
        const full_tensor *x = &t->items[i];
        if (muon && is_of_layer(x)) {
            sizes.m += (uint64_t)x->rows * x->cols;
            sizes.scratch = larger(sizes.scratch, workers * muon_scratch_count(x->rows, x->cols));
            continue;
        }
        const bool projected = is_projected(galore_rank, x);
        sizes.m +=
            projected ? galore_m_count(x->rows, x->cols, galore_rank) : m_count_of(recipe, x);
        sizes.v +=
            projected ? galore_m_count(x->rows, x->cols, galore_rank) : v_count_of(recipe, x);
        if (!projected) continue;
        sizes.p += galore_p_count(x->rows, x->cols, galore_rank);
        sizes.scratch = larger(sizes.scratch, galore_scratch_count(x->rows, x->cols, galore_rank));
    }
    return sizes;
}

static void add_slices(omm_full *t, const full_tensor *x) {
    const size_t size = (size_t)x->rows * x->cols;
    const size_t step = slices_of(&t->recipe, x) > 1 ? SLICE : size;
    for (size_t from = 0; from < size; from += step)
        t->slices[t->slice_count++] = (full_slice){.tensor = x,
                                                   .from = from,
                                                   .to = size - from < step ? size : from + step,
                                                   .m_at = t->m_count,
                                                   .v_at = t->v_count};
    t->m_count += m_count_of(&t->recipe, x);
    t->v_count += v_count_of(&t->recipe, x);
}

static size_t add_projected(omm_full *t, const full_tensor *x) {
    const uint32_t rank = t->options.galore.rank;
    t->projected[t->projected_count++] = (full_projected){x, t->m_count, t->v_count, t->p_count};
    t->m_count += galore_m_count(x->rows, x->cols, rank);
    t->v_count += galore_m_count(x->rows, x->cols, rank);
    t->p_count += galore_p_count(x->rows, x->cols, rank);
    return galore_scratch_count(x->rows, x->cols, rank);
}

static void add_muon(omm_full *t, const full_tensor *x) {
    const size_t scratch = muon_scratch_count(x->rows, x->cols);
    t->projected[t->projected_count++] = (full_projected){.tensor = x, .m_at = t->m_count};
    t->m_count += (size_t)x->rows * x->cols;
    if (scratch > t->muon_scratch) t->muon_scratch = scratch;
}

static omm_err no_memory(const omm_full *t) {
    return omm_raise(OMM_ERR_NOMEM, "no memory for the moments of %zu weights",
                     t->tensors.value_count);
}

/* Numbers of the tensor's own. */
static omm_rng subspace_lane(const omm_full *t, const full_tensor *x) {
    const omm_seed seed =
        omm_seed_derive(&t->options.seed, OMM_PURPOSE_SYNTH, omm_bytes_str(x->name));
    return omm_rng_init(&seed, OMM_PURPOSE_SYNTH, 0, 0);
}

/* Directions to begin with. */
static void begin_subspaces(omm_full *t) {
    for (size_t i = 0; i < t->projected_count && t->options.galore.rank > 0; i++) {
        const full_projected *j = &t->projected[i];
        const full_tensor *x = j->tensor;
        const omm_rng lane = subspace_lane(t, x);
        galore_begin(t->p + j->p_at, galore_p_count(x->rows, x->cols, t->options.galore.rank),
                     &lane);
    }
}

static double cost_of(const full_projected *p) {
    return muon_cost(p->tensor->rows, p->tensor->cols);
}

/* Tasks are taken in this order: the largest first, so that no thread ends with a long one. */
static void share_out(omm_full *t) {
    for (size_t i = 1; i < t->projected_count && t->options.muon.rate > 0; i++)
        for (size_t j = i; j > 0 && cost_of(&t->projected[j]) > cost_of(&t->projected[j - 1]);
             j--) {
            const full_projected one = t->projected[j];
            t->projected[j] = t->projected[j - 1];
            t->projected[j - 1] = one;
        }
}

omm_err full_update_open(omm_full *t) {
    size_t count = 0, scratch = 1;
    for (size_t i = 0; i < t->tensors.count; i++)
        count += slices_of(&t->recipe, &t->tensors.items[i]);
    t->slices = omm_alloc(count, sizeof *t->slices);
    t->projected = omm_alloc(t->tensors.count, sizeof *t->projected);
    if (!t->slices || !t->projected) return no_memory(t);
    for (size_t i = 0; i < t->tensors.count; i++) {
        const full_tensor *x = &t->tensors.items[i];
        const bool projected = is_projected(t->options.galore.rank, x);
        const bool muon = t->options.muon.rate > 0 && is_of_layer(x);
        const size_t needed = projected ? add_projected(t, x) : 0;
        if (muon) add_muon(t, x);
        if (!projected && !muon) add_slices(t, x);
        if (needed > scratch) scratch = needed;
    }
    if (t->muon_scratch > 0) scratch = t->options.compute->workers * t->muon_scratch;
    share_out(t);
    t->m = omm_alloc_aligned(t->m_count ? t->m_count : 1, sizeof *t->m);
    t->v = omm_alloc_aligned(t->v_count ? t->v_count : 1, sizeof *t->v);
    t->p = omm_alloc_aligned(t->p_count ? t->p_count : 1, sizeof *t->p);
    t->scratch = omm_alloc_aligned(scratch, sizeof *t->scratch);
    t->squares = omm_alloc(t->tensors.count, sizeof *t->squares);
    if (!t->m || !t->v || !t->p || !t->scratch || !t->squares) return no_memory(t);
    begin_subspaces(t);
    return OMM_OK;
}

void full_update_close(omm_full *t) {
    omm_free(t->slices);
    omm_free(t->projected);
    omm_free(t->p);
    omm_free(t->scratch);
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
    const bool elementwise = t->recipe.optimizer == OMM_RECIPE_ADAMW; /* any shape will do */
    omm_recipe recipe = t->recipe;
    if (x->vector) recipe.weight_decay = 0;
    optimizer_tensor part = {.values = t->values + at,
                             .gradient = t->sums.gradient + at,
                             .rows = elementwise ? 1 : x->rows,
                             .cols = elementwise ? count : x->cols};
    part.m = recipe.optimizer == OMM_RECIPE_ADAFACTOR ? NULL : t->m + s->m_at + s->from;
    part.v = t->v + s->v_at + (elementwise ? s->from : 0);
    adamw_state clip = {.gradient = part.gradient, .count = count};
    adamw_clip(&clip, job->norm, recipe.clip_norm);
    optimizer_one(&part, &recipe, job->rate, t->step + 1);
}

/* One after the other: their products are what all threads share. */
static void update_projected(omm_full *t, const full_projected *j, double norm, float rate) {
    const full_tensor *x = j->tensor;
    float *gradient = t->sums.gradient + x->offset;
    adamw_state clip = {.gradient = gradient, .count = (size_t)x->rows * x->cols};
    adamw_clip(&clip, norm, t->recipe.clip_norm);
    const galore_tensor part = {.values = t->values + x->offset,
                                .gradient = gradient,
                                .p = t->p + j->p_at,
                                .m = t->m + j->m_at,
                                .v = t->v + j->v_at,
                                .rows = x->rows,
                                .cols = x->cols,
                                .rank = t->options.galore.rank,
                                .lane = subspace_lane(t, x)};
    galore_update(t->options.compute, &part, t->scratch, &t->options.galore, &t->recipe, rate,
                  t->step + 1);
}

/* Matrices are many and alike: each is one thread's. */
static void muon_task(void *ud, size_t task, unsigned worker) {
    const update_job *job = ud;
    omm_full *t = job->t;
    const full_projected *p = &t->projected[task];
    const full_tensor *x = p->tensor;
    float *gradient = t->sums.gradient + x->offset;
    adamw_state clip = {.gradient = gradient, .count = (size_t)x->rows * x->cols};
    adamw_clip(&clip, job->norm, t->recipe.clip_norm);
    const muon_tensor part = {t->values + x->offset, gradient, t->m + p->m_at, x->rows, x->cols};
    muon_update(&t->graph.solo[worker], &part, t->scratch + worker * t->muon_scratch,
                t->options.muon.momentum, job->rate * t->options.muon.rate, t->recipe.weight_decay);
}

void full_update(omm_full *t, double norm, float rate) {
    update_job job = {t, norm, rate};
    omm_pool_run(t->options.compute->pool, update_task, &job, t->slice_count);
    if (t->options.muon.rate > 0)
        omm_pool_run(t->options.compute->pool, muon_task, &job, t->projected_count);
    else
        for (size_t i = 0; i < t->projected_count; i++)
            update_projected(t, &t->projected[i], norm, rate);
    full_write(t->options.compute, &t->tensors, t->values);
}
