/* graph_attention.c - backward of attention.
 *
 * A unit is 64 queries of one head against the keys that they see.  Units of one sequence that read one
 * key/value head add to the same dk and dv, head by head and block by block: a chain, whose units are
 * done in this order, whoever does them.  Chains may be fewer than twice the workers, so a worker does
 * not take a chain but its next unit, of the chain that has most left.
 */
#include "graph.h"

#include <stdatomic.h>
#include <string.h>

#define CHAINS_MAX 64u   /* from so many on, whole chains are small enough to be tasks */
#define TAKEN (1u << 31) /* somebody is at this chain's next unit */

typedef struct attention_job {
    graph *g;
    const graph_layer *l;
    size_t window, chains;
    atomic_uint done[CHAINS_MAX]; /* units done of each chain, and TAKEN */
    atomic_size_t unfinished;     /* chains */
} attention_job;

typedef struct head_view {
    size_t q_stride, kv_stride; /* floats from token to token */
    const float *q, *dout;      /* first token of this head */
    const float *k, *v;
    float *dq, *dk, *dv;
    const float *lse, *dot; /* stride heads */
    size_t tokens, heads;
    size_t window; /* 0: none */
} head_view;

/* First key that the query at `position` sees. */
static size_t first_seen(const head_view *h, size_t position) {
    return h->window && position >= h->window ? position + 1 - h->window : 0;
}

/* Queries first .. first + m - 1 against the keys that any of them sees. */
static void attention_block(graph *g, const head_view *h, size_t first, size_t m, unsigned worker) {
    const omm_compute *c = &g->solo[worker];
    const omm_model_dims *d = &g->model->dims;
    const size_t key0 = first_seen(h, first), n = first + m - key0, dim = d->head_dim;
    const size_t room = (size_t)worker * OMM_KV_BLOCK * g->seq_max;
    const float scale = d->attention_scale, cap = d->attention_softcap;
    float *p = g->scores + room, *ds = g->dscores + room;
    float *lse = g->lse_rows + (size_t)worker * OMM_KV_BLOCK;
    const float *q = h->q + first * h->q_stride, *dout = h->dout + first * h->q_stride;
    const size_t qs = h->q_stride, kvs = h->kv_stride, at = key0 * kvs;
    for (size_t i = 0; i < m; i++) lse[i] = h->lse[(first + i) * h->heads];
    omm_gemm_nt(c, &(omm_gemm){p, q, h->k + at, m, n, dim, qs, kvs, n, false});
    omm_vec_scale(c, p, p, scale, m * n);
    if (cap != 0) {
        omm_vec_softcap(c, p, p, cap, m * n);
        memcpy(g->capped + room, p, m * n * sizeof(float));
    }
    omm_row_exp(c, p, p, lse, m, n, n, n);
    omm_gemm_nt(c, &(omm_gemm){ds, dout, h->v + at, m, n, dim, qs, kvs, n, false});
    for (size_t i = 0; i < m; i++) {
        const size_t skip = first_seen(h, first + i) - key0, row = i * n;
        memset(p + row, 0, skip * sizeof(float));
        memset(ds + row, 0, skip * sizeof(float));
        g->grad->softmax_row(p + row + skip, ds + row + skip, h->dot[(first + i) * h->heads], scale,
                             first + i + 1 - key0 - skip, n - skip);
    }
    if (cap != 0) g->grad->softcap(ds, g->capped + room, 1.0F / cap, m * n);
    omm_gemm_nn(c, &(omm_gemm){h->dq + first * qs, ds, h->k + at, m, dim, n, n, kvs, qs, false});
    omm_gemm_tn(c, &(omm_gemm){h->dk + at, ds, q, n, dim, m, n, qs, kvs, true});
    omm_gemm_tn(c, &(omm_gemm){h->dv + at, p, dout, n, dim, m, n, qs, kvs, true});
}

static size_t sequence_start(const graph *g, size_t sequence) {
    size_t row = 0;
    for (size_t i = 0; i < sequence; i++) row += g->counts[i];
    return row;
}

static head_view view_of(const attention_job *job, size_t sequence, size_t kv_head, size_t head) {
    const graph *g = job->g;
    const omm_model_dims *d = &g->model->dims;
    const size_t qs = (size_t)d->heads * d->head_dim, kvs = (size_t)d->kv_heads * d->head_dim;
    const size_t row = sequence_start(g, sequence);
    const size_t q_at = row * qs + head * d->head_dim, kv_at = row * kvs + kv_head * d->head_dim;
    return (head_view){.q_stride = qs,
                       .kv_stride = kvs,
                       .q = job->l->q + q_at,
                       .dout = g->datt + q_at,
                       .k = job->l->k + kv_at,
                       .v = job->l->v + kv_at,
                       .dq = g->dq + q_at,
                       .dk = g->dk + kv_at,
                       .dv = g->dv + kv_at,
                       .lse = job->l->lse + row * d->heads + head,
                       .dot = g->row_dot + row * d->heads + head,
                       .tokens = g->counts[sequence],
                       .heads = d->heads,
                       .window = job->window};
}

static size_t blocks_of(const attention_job *job, size_t chain) {
    const graph *g = job->g;
    return (g->counts[chain / g->model->dims.kv_heads] + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
}

static size_t units_of(const attention_job *job, size_t chain) {
    const omm_model_dims *d = &job->g->model->dims;
    return d->heads / d->kv_heads * blocks_of(job, chain);
}

/* Heads ascending, in each blocks of queries ascending. */
static void run_unit(const attention_job *job, size_t chain, size_t unit, unsigned worker) {
    const omm_model_dims *d = &job->g->model->dims;
    const size_t kv_head = chain % d->kv_heads, group = d->heads / d->kv_heads;
    const size_t blocks = blocks_of(job, chain), first = unit % blocks * OMM_KV_BLOCK;
    const head_view h = view_of(job, chain / d->kv_heads, kv_head, kv_head * group + unit / blocks);
    const size_t m = h.tokens - first;
    attention_block(job->g, &h, first, m > OMM_KV_BLOCK ? OMM_KV_BLOCK : m, worker);
}

/* The next unit of the free chain that has most left.  False: there is none, and there are not so
 * many unfinished chains that this worker would find one when another is given back. */
static bool take_unit(attention_job *job, size_t *chain, size_t *unit) {
    for (;;) {
        size_t most = 0;
        unsigned seen = 0;
        for (size_t i = 0; i < job->chains; i++) {
            const unsigned done = atomic_load_explicit(&job->done[i], memory_order_relaxed);
            if (done & TAKEN || units_of(job, i) - done <= most) continue;
            most = units_of(job, i) - done;
            *chain = i;
            seen = done;
        }
        *unit = seen;
        if (most > 0 &&
            atomic_compare_exchange_strong_explicit(&job->done[*chain], &seen, seen | TAKEN,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
        if (most == 0 && atomic_load(&job->unfinished) < job->g->workers) return false;
    }
}

static void units_task(void *ud, size_t task, unsigned worker) {
    attention_job *job = ud;
    size_t chain = 0, unit = 0;
    (void)task;
    while (take_unit(job, &chain, &unit)) {
        run_unit(job, chain, unit, worker);
        atomic_store_explicit(&job->done[chain], (unsigned)unit + 1, memory_order_release);
        if (unit + 1 == units_of(job, chain)) atomic_fetch_sub(&job->unfinished, 1);
    }
}

static void chain_task(void *ud, size_t chain, unsigned worker) {
    const attention_job *job = ud;
    const size_t units = units_of(job, chain);
    for (size_t unit = 0; unit < units; unit++) run_unit(job, chain, unit, worker);
}

static void run_chains(graph *g, const graph_layer *l, size_t window) {
    attention_job job = {.g = g, .l = l, .window = window};
    job.chains = g->example_count * g->model->dims.kv_heads;
    if (g->workers == 1 || job.chains >= CHAINS_MAX || job.chains == 1) {
        omm_pool_run(g->compute->pool, chain_task, &job, job.chains);
        return;
    }
    for (size_t i = 0; i < job.chains; i++) atomic_init(&job.done[i], 0);
    atomic_init(&job.unfinished, job.chains);
    omm_pool_run(g->compute->pool, units_task, &job,
                 g->workers < job.chains ? g->workers : job.chains);
}

void graph_attention_backward(graph *g, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const graph_layer *l = &g->layers[layer];
    const size_t qs = (size_t)d->heads * d->head_dim, kvs = (size_t)d->kv_heads * d->head_dim;
    graph_rows_dot(g, g->row_dot, g->datt, l->att, g->rows * d->heads, d->head_dim);
    memset(g->dk, 0, g->rows * kvs * sizeof(float));
    memset(g->dv, 0, g->rows * kvs * sizeof(float));
    run_chains(g, l, g->model->layers[layer].window);
    for (size_t i = 0, row = 0; i < g->example_count; row += g->counts[i++]) {
        const size_t n = g->counts[i];
        graph_turn(g, layer, g->dq + row * qs, g->dk + row * kvs, n, true);
    }
}
