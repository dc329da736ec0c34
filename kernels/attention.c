/* attention.c - attention and its cache: cut the work, hand the pieces to the pool.
 *
 * Cuts run along sequences, key/value heads and queries, and for single queries along segments
 * of positions, never through a chain.
 */
#include "kernels_cut.h"
#include "omm/kernels.h"

#define ATTENTION_FLOPS_MIN (1u << 16) /* half of what attention does: keys alone */

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

/* ---- single queries over long caches: a task is a segment ------------------------------------- */

/* Key/value heads lie behind one another in a block, and a task of several reads memory as it comes.  Such
 * tasks are large: each worker has equally many of them, and what is left is cut into tasks of one head.
 *
 *   shares  | set, set, .. head, head | set, set, .. head |        a set: one segment of `together` heads
 */
typedef struct segment_cut {
    const omm_compute *c;
    const omm_attention *a;
    float *parts;    /* [attentions][kv_heads][segments][group][ATTENTION_PART] */
    size_t segments; /* at most, of any of them */
    size_t together; /* heads of a set */
    size_t each;     /* tasks of a whole set, of each worker */
    size_t tasks;
    size_t row, rows; /* floats of a part; rows of a key/value head */
} segment_cut;

/* Segments that a single query sees something of: begin .. end. */
static size_t segment_end(const omm_attention *a) {
    return a->pos0 / OMM_ATTENTION_SEGMENT + 1;
}

static size_t segment_begin(const omm_attention *a) {
    const bool all = a->window == 0 || a->pos0 < a->window;
    return all ? 0 : (a->pos0 - a->window + 1) / OMM_ATTENTION_SEGMENT;
}

static float *segment_parts(const segment_cut *cut, size_t list, size_t segment) {
    return cut->parts + (list * cut->segments + segment) * cut->rows * cut->row;
}

/* Heads first .. first + count of a set. */
static void segment_heads(const segment_cut *cut, unsigned worker, size_t set, size_t first,
                          size_t count) {
    const size_t kv_heads = cut->a->kv->kv_heads, sets = divide_up(kv_heads, cut->together);
    const size_t segment = set % cut->segments, i = set / cut->segments / sets;
    const size_t begin = set / cut->segments % sets * cut->together + first;
    const size_t end = min_size(kv_heads, begin + count);
    const omm_attention *a = &cut->a[i];
    if (begin >= end || segment < segment_begin(a) || segment >= segment_end(a)) return;
    cut->c->k->attention_part(a, worker_scratch(cut->c, worker), (uint32_t)begin, (uint32_t)end,
                              segment, segment_parts(cut, i * kv_heads + begin, segment),
                              cut->segments * cut->rows * cut->row);
}

static void segment_task(void *ud, size_t task, unsigned worker) {
    const segment_cut *cut = (const segment_cut *)ud;
    const unsigned workers = cut->c->workers;
    const size_t share = omm_pool_share_of(task, cut->tasks, workers);
    const size_t own = task - omm_pool_share_begin(share, cut->tasks, workers);
    if (own < cut->each) {
        segment_heads(cut, worker, share * cut->each + own, 0, cut->together);
        return;
    }
    const size_t head = task - (share + 1) * cut->each;
    segment_heads(cut, worker, workers * cut->each + head / cut->together, head % cut->together, 1);
}

static void segment_plan(segment_cut *cut, size_t count) {
    const size_t kv_heads = cut->a->kv->kv_heads, workers = cut->c->workers;
    OMM_ASSERT(workers > 0 && cut->rows > 0 && cut->rows <= ATTENTION_ROWS);
    cut->together = min_size(min_size(kv_heads, ATTENTION_ROWS / cut->rows), ATTENTION_PART_HEADS);
    const size_t sets = count * divide_up(kv_heads, cut->together) * cut->segments;
    cut->each = sets / workers;
    cut->tasks = cut->each * workers + sets % workers * cut->together;
}

static void segment_join(const segment_cut *cut, size_t i) {
    const omm_attention *a = &cut->a[i];
    const size_t begin = segment_begin(a), count = segment_end(a) - begin;
    for (uint32_t h = 0; h < a->heads; h++) {
        const size_t list = i * a->kv->kv_heads + h / cut->rows;
        cut->c->k->attention_join(a, h, segment_parts(cut, list, begin) + h % cut->rows * cut->row,
                                  cut->rows * cut->row, count);
    }
}

/* False: not this way. */
static bool attend_by_segments(const omm_compute *c, const omm_attention *a, size_t count) {
    segment_cut cut = {.c = c,
                       .a = a,
                       .row = ATTENTION_PART(a->kv->dim_padded),
                       .rows = attention_rows(a),
                       /* what attention leaves of a worker's scratch */
                       .parts = worker_scratch(c, 0) + ATTENTION_FLOATS};
    for (size_t i = 0; i < count; i++) {
        if (a[i].m > 1) return false;
        if (segment_end(&a[i]) > cut.segments) cut.segments = segment_end(&a[i]);
    }
    const size_t lists = count * a->kv->kv_heads;
    if (cut.segments == 1 || cut.rows > ATTENTION_ROWS ||
        lists * cut.segments * cut.rows * cut.row > WORK_FLOATS - ATTENTION_FLOATS)
        return false;
    segment_plan(&cut, count);
    omm_pool_run(c->pool, segment_task, &cut, cut.tasks);
    for (size_t i = 0; i < count; i++) segment_join(&cut, i);
    return true;
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
    if (pool && attend_by_segments(c, a, count)) return;
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
