/* linear.c - linear layers over packed weights: few rows strip by strip, many as matrix products.
 *
 * Few rows (decode) are a stream of bytes: products of the same x are cut into tasks of some strips
 * each and go over the pool together, adapters with them:
 *
 *   tasks   | z = A x (lower) | y = W x, y += B z | y = W x, y += B z | ...
 *
 * Whoever ends the last lower task scales z and says so.  A worker keeps the tasks in mind whose y it has
 * and adds the terms of neighbours together once z is there; so an adapter costs no pass of its own, and
 * each y is still in the cache of the worker that made it.  No chain crosses a cut: cuts cannot change a bit.
 */
#include "kernels_cut.h"
#include "omm/kernels.h"

#include <sched.h>
#include <stdatomic.h>

/* Fewer rows than this go with the products beside them instead of over the pool by themselves. */
#define FEW_ROWS_MAX ((size_t)48)
/* A task streams as many bytes as give each worker this many tasks, within limits: threads that end at
 * different times wait little, claiming a task costs nothing, and terms interrupt no stream too often. */
#define POOL_BYTES_MIN ((size_t)64 << 10)
#define FEW_TASKS_PER_WORKER 16u
#define FEW_BYTES_MIN ((size_t)16 << 10)
#define FEW_BYTES_MAX ((size_t)256 << 10)
/* Tasks whose terms are added in one go.  What is left of them at the end is one thread's, so with many
 * workers each adds its own at once. */
#define FEW_OWED 2u
#define FEW_OWED_WORKERS_MAX 4u
#define FEW_STRIPS ((size_t)2) /* of a task of several rows, a multiple of */
/* Where strips go side by side, a task has a multiple of Q8_FEW_STRIPS if each worker still gets this many tasks. */
#define FEW_TOGETHER_PER_WORKER 2u
_Static_assert(FEW_STRIPS % Q8_STRIPS == 0 && FEW_STRIPS * OMM_STRIP % GEMM_NC == 0,
               "cuts of both");
_Static_assert(Q8_FEW_STRIPS % FEW_STRIPS == 0, "cuts of both");
/* Of many rows, strips of a task share more than is read: what is made of x for them.  So many, or fewer of which
 * each worker gets this many tasks. */
#define MANY_ROWS ((size_t)64)
#define MANY_STRIPS ((size_t)8)
#define MANY_PER_WORKER 8u
#define WAIT_SPINS 4096u /* looks at z before a worker gives its processor to others */

/* The linter does not see that an output stored in a job or cut is written through it. */
/* NOLINTBEGIN(readability-non-const-parameter) */

/* Tasks first .. first + count - 1 of a worker have their y, but not their terms.  Each worker writes its own at
 * every task, so no two lie in one line of a cache. */
typedef struct few_owed {
    _Alignas(64) size_t first;
    size_t count;
} few_owed;

typedef struct few_cut {
    const omm_compute *c;
    omm_linear products[OMM_LINEAR_MAX];
    size_t step[OMM_LINEAR_MAX], tasks[OMM_LINEAR_MAX]; /* strips in a task, tasks */
    size_t count, m;
    const float *x;
    const omm_q8_rows *q8; /* for quantised products; NULL: x for all */
    size_t q8_first;       /* its first row at work; y begins with row 0 all the same */
    bool accumulate;
    /* With terms: */
    bool terms;
    const omm_linear_lower *lower; /* NULL: every z is there */
    atomic_size_t lower_left;      /* tasks of products 0 .. lower->count - 1 that are not done */
    atomic_bool z_ready;
    few_owed *owed; /* [workers] */
    size_t owed_most;
} few_cut;

/* Strips s0 .. s1 of one product. */
typedef struct few_part {
    size_t product, s0, s1;
} few_part;

static bool takes_q8(const omm_q8_rows *q8, const omm_matrix *w) {
    return q8 && omm_format_is_quantised(w->format);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static few_part part_of(const few_cut *cut, size_t task) {
    size_t i = 0;
    for (; task >= cut->tasks[i]; i++) task -= cut->tasks[i];
    const size_t s0 = task * cut->step[i];
    return (few_part){i, s0, min_size(s0 + cut->step[i], cut->products[i].w->strips)};
}

/* A job's columns of some strips, on this thread. */
static void job_strips(const few_cut *cut, const gemm_job *job, const few_part *part,
                       unsigned worker) {
    cut->c->k->gemm(job, worker_scratch(cut->c, worker), 0, job->m, part->s0 * OMM_STRIP,
                    min_size(part->s1 * OMM_STRIP, job->n));
}

static void part_product(const few_cut *cut, const few_part *part, unsigned worker) {
    const omm_linear *p = &cut->products[part->product];
    const omm_matrix *w = p->w;
    OMM_ASSERT(w != NULL);
    if (takes_q8(cut->q8, w)) {
        cut->c->q8->linear(p->y, cut->q8, w, worker_scratch(cut->c, worker), cut->q8_first,
                           cut->q8_first + cut->m, part->s0, part->s1);
        return;
    }
    if (cut->m >= GEMM_ROWS_MIN) {
        const gemm_job job = strips_job(p->y, cut->x, w->cols, w, cut->m);
        job_strips(cut, &job, part, worker);
        return;
    }
    for (size_t i = 0; i < cut->m; i++)
        cut->c->k->gemv(p->y + i * w->rows, cut->x + i * w->cols, w, cut->accumulate, part->s0,
                        part->s1);
}

static gemm_job term_job(float *y, const omm_linear_term *t) {
    gemm_job job = strips_job(y + t->first * t->b->rows, t->z, t->z_stride, t->b, t->rows);
    job.accumulate = true;
    return job;
}

static void part_terms(const few_cut *cut, const few_part *part, unsigned worker) {
    const omm_linear *p = &cut->products[part->product];
    for (size_t i = 0; i < p->term_count; i++) {
        const omm_linear_term *t = &p->terms[i];
        if (t->rows >= GEMM_ROWS_MIN) {
            const gemm_job job = term_job(p->y, t);
            job_strips(cut, &job, part, worker);
            continue;
        }
        for (size_t row = 0; row < t->rows; row++)
            cut->c->k->gemv(p->y + (t->first + row) * p->w->rows, t->z + row * t->z_stride, t->b,
                            true, part->s0, part->s1);
    }
}

/* What the terms of a part will read is a short piece, which nothing but this brings in time. */
static void ask_for_terms(const few_cut *cut, const few_part *part) {
    const omm_linear *p = &cut->products[part->product];
    for (size_t i = 0; i < p->term_count; i++) {
        const omm_matrix *b = p->terms[i].b;
        for (size_t at = part->s0 * b->strip_bytes; at < part->s1 * b->strip_bytes; at += 64)
            __builtin_prefetch(b->data + at, 0, 2);
    }
}

static void lower_done(few_cut *cut) {
    if (atomic_fetch_sub(&cut->lower_left, 1) != 1) return;
    cut->lower->then(cut->lower->ud);
    atomic_store(&cut->z_ready, true);
}

/* May this task be added to what is owed, which is one piece?  A worker takes tasks of its own in ascending
 * order; one that it takes from another may not be. */
static bool owes_neighbour(const few_owed *owed, size_t task) {
    return owed->count == 0 || owed->first + owed->count == task;
}

/* z will come: whoever has a lower task works on it, and one that nobody has is at the front of the
 * share of a worker that begins with it. */
static void wait_for_z(const few_cut *cut) {
    for (unsigned i = 0; !atomic_load(&cut->z_ready); i++)
        if (i % WAIT_SPINS == WAIT_SPINS - 1) sched_yield();
}

static void pay(const few_cut *cut, unsigned worker) {
    few_owed *owed = &cut->owed[worker];
    const size_t end = owed->first + owed->count;
    for (size_t task = owed->first; task < end;) {
        few_part part = part_of(cut, task++);
        for (; task < end; task++) {
            const few_part next = part_of(cut, task);
            if (next.product != part.product) break;
            part.s1 = next.s1;
        }
        part_terms(cut, &part, worker);
    }
    owed->count = 0;
}

static void few_task(void *ud, size_t task, unsigned worker) {
    few_cut *cut = (few_cut *)ud;
    const few_part part = part_of(cut, task);
    if (cut->terms) ask_for_terms(cut, &part);
    part_product(cut, &part, worker);
    if (!cut->terms) return;
    if (cut->lower && part.product < cut->lower->count) {
        lower_done(cut);
        return;
    }
    few_owed *owed = &cut->owed[worker];
    if (!owes_neighbour(owed, task)) {
        wait_for_z(cut);
        pay(cut, worker);
    }
    if (owed->count++ == 0) owed->first = task;
    if (owed->count >= cut->owed_most && atomic_load(&cut->z_ready)) pay(cut, worker);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* What a strip of product i reads. */
static size_t strip_bytes(const few_cut *cut, size_t i) {
    const omm_linear *p = &cut->products[i];
    size_t bytes = p->w->strip_bytes;
    for (size_t t = 0; cut->terms && t < p->term_count; t++) bytes += p->terms[t].b->strip_bytes;
    return bytes;
}

static size_t round_up(size_t n, size_t unit) {
    return divide_up(n, unit) * unit;
}

/* Strips of a task of product i. */
static size_t few_step(const few_cut *cut, size_t i, size_t bytes_of_task) {
    const size_t strips = cut->products[i].w->strips, bytes = strip_bytes(cut, i);
    OMM_ASSERT(bytes > 0);
    size_t step = divide_up(min_size(bytes_of_task, bytes * strips), bytes);
    if (cut->m >= MANY_ROWS) {
        const size_t each =
            strips / ((size_t)cut->c->workers * MANY_PER_WORKER) / FEW_STRIPS * FEW_STRIPS;
        const size_t least = min_size(each, MANY_STRIPS);
        if (step < least) step = least;
    }
    const size_t together = round_up(step, Q8_FEW_STRIPS);
    if (atomic_load_explicit(&kernels_strips_together, memory_order_relaxed) &&
        divide_up(strips, together) >= (size_t)cut->c->workers * FEW_TOGETHER_PER_WORKER)
        return together;
    return cut->m > 1 ? round_up(step, FEW_STRIPS) : step;
}

/* Fills step and tasks; returns the number of tasks of all products. */
static size_t few_plan(few_cut *cut, size_t bytes_of_task) {
    size_t all = 0, lower = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const omm_matrix *w = cut->products[i].w;
        cut->step[i] = few_step(cut, i, bytes_of_task);
        cut->tasks[i] = divide_up(w->strips, cut->step[i]);
        all += cut->tasks[i];
        if (cut->lower && i < cut->lower->count) lower += cut->tasks[i];
    }
    atomic_init(&cut->lower_left, lower);
    atomic_init(&cut->z_ready, lower == 0);
    return all;
}

static void few_run(few_cut *cut) {
    const omm_compute *c = cut->c;
    few_owed owed[OMM_POOL_THREADS_MAX];
    size_t flops = 0, bytes = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const omm_matrix *w = cut->products[i].w;
        bytes += strip_bytes(cut, i) * w->strips;
        flops += cut->m * w->rows * w->cols;
    }
    for (unsigned i = 0; i < c->workers && cut->terms; i++) owed[i] = (few_owed){0};
    cut->owed = owed;
    cut->owed_most = c->workers <= FEW_OWED_WORKERS_MAX ? FEW_OWED : 1;
    if (c->workers <= 1 || (flops < POOL_FLOPS_MIN && bytes < POOL_BYTES_MIN)) {
        const size_t tasks = few_plan(cut, SIZE_MAX);
        for (size_t i = 0; i < tasks; i++) few_task(cut, i, 0);
    } else {
        const size_t part = bytes / ((size_t)c->workers * FEW_TASKS_PER_WORKER);
        const size_t least = part < FEW_BYTES_MIN ? FEW_BYTES_MIN : part;
        omm_pool_run(c->pool, few_task, cut, few_plan(cut, min_size(least, FEW_BYTES_MAX)));
    }
    for (unsigned i = 0; i < c->workers && cut->terms; i++) pay(cut, i);
}

/* ---- one product ----------------------------------------------------------------------------- */

void omm_linear_forward(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                        size_t m, bool accumulate) {
    if (m < GEMM_ROWS_MIN) {
        few_cut cut = {.c = c,
                       .products = {{.y = y, .w = w}},
                       .count = 1,
                       .m = m,
                       .x = x,
                       .accumulate = accumulate};
        if (m > 0) few_run(&cut);
        return;
    }
    gemm_job job = strips_job(y, x, w->cols, w, m);
    job.accumulate = accumulate;
    gemm_run(c, &job);
}

void omm_linear_q8(const omm_compute *c, float *y, const omm_q8_rows *x, const omm_matrix *w,
                   size_t m) {
    OMM_ASSERT(x->rows == m);
    if (m > 0) omm_linear_q8_rows(c, y, x, w, 0, m);
}

void omm_linear_q8_rows(const omm_compute *c, float *y, const omm_q8_rows *x, const omm_matrix *w,
                        size_t first, size_t count) {
    OMM_ASSERT(omm_format_is_quantised(w->format));
    OMM_ASSERT(x->cols == w->cols && count > 0 && first + count <= x->rows);
    few_cut cut = {
        .c = c, .products = {{.y = y, .w = w}}, .count = 1, .m = count, .q8 = x, .q8_first = first};
    few_run(&cut);
}

/* ---- products of one x ----------------------------------------------------------------------- */

static void check_product(const omm_linear *p, const omm_q8_rows *q8, size_t m) {
    if (q8) OMM_ASSERT(q8->cols == p->w->cols && q8->rows == m);
    for (size_t t = 0; t < p->term_count; t++) {
        OMM_ASSERT(p->terms[t].b->rows == p->w->rows);
        OMM_ASSERT(p->terms[t].first + p->terms[t].rows <= m);
    }
}

/* Those that go over the pool together join the cut, the others are done here.  True: all have joined,
 * so terms can go with them. */
static bool join(few_cut *cut, const omm_linear *products, size_t count, size_t lower) {
    for (size_t i = 0; i < count; i++) {
        const omm_linear *p = &products[i];
        check_product(p, cut->q8, cut->m);
        const size_t rows_max = i < lower ? FEW_ROWS_MAX : GEMM_ROWS_MIN;
        if (cut->m < rows_max || takes_q8(cut->q8, p->w))
            cut->products[cut->count++] = *p;
        else
            omm_linear_forward(cut->c, p->y, cut->x, p->w, cut->m, false);
    }
    return cut->count == count;
}

void omm_linear_each(const omm_compute *c, const omm_linear *products, size_t count,
                     const omm_linear_lower *lower, const float *x, const omm_q8_rows *q8,
                     size_t m) {
    few_cut cut = {.c = c, .m = m, .x = x, .q8 = q8, .lower = lower};
    size_t terms = 0;
    OMM_ASSERT(count <= OMM_LINEAR_MAX && m > 0);
    for (size_t i = 0; i < count; i++) terms += products[i].term_count;
    const bool together = join(&cut, products, count, lower ? lower->count : 0);
    cut.terms = together && terms > 0 && m < FEW_ROWS_MAX;
    if (cut.count > 0) few_run(&cut);
    if (cut.terms) return;
    if (lower) lower->then(lower->ud);
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < products[i].term_count; t++) {
            const gemm_job job = term_job(products[i].y, &products[i].terms[t]);
            gemm_run(c, &job);
        }
}

/* NOLINTEND(readability-non-const-parameter) */
