/* graph_attention.c - backward of attention.
 *
 * A unit is 64 queries of one head against the keys that they see.  Units of one sequence that read one
 * key/value head add to the same dk and dv, head by head and block by block: a chain, done in this order
 * whoever does it.  Chains are often fewer than workers (a model may have one key/value head), so units
 * of a chain go side by side and wait for each other only where they add:
 *
 *   unit 4:   scores, dq  | piece 0 | piece 1 | piece 2 |
 *   unit 5:     scores, dq          | piece 0 | piece 1 | piece 2 |
 *
 * A piece is some keys, whose dk and dv the units that see one of them add to, one after the other.
 * Units are taken in order, and wait for earlier ones alone: somebody can always go on.
 */
#include "graph.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define CHAINS_MAX 64u  /* from so many on, whole chains are small enough to be tasks */
#define PIECES_MAX 16u  /* of a chain */
#define PIECE_BLOCKS 2u /* of OMM_KV_BLOCK keys in a piece, at least: smaller products are slower */
#define WAIT_SPINS 256u /* looks at a turn before a worker gives its processor to others */

typedef struct attention_job {
    graph *g;
    const graph_layer *l;
    size_t window, chains, piece_blocks;
    atomic_uint taken[CHAINS_MAX];             /* units of each chain, in order */
    atomic_uint turns[CHAINS_MAX][PIECES_MAX]; /* units that have added to each piece */
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

/* Queries first .. first + m - 1 against the n keys from key0 on, all that any of them sees; p, ds [m][n]. */
typedef struct unit_view {
    head_view h;
    size_t first, m, key0, n;
    float *p, *ds;
} unit_view;

/* p, ds and dq of a unit. */
static void unit_scores(graph *g, const unit_view *u, unsigned worker) {
    const head_view *h = &u->h;
    const omm_compute *c = &g->solo[worker];
    const omm_model_dims *d = &g->model->dims;
    const size_t first = u->first, m = u->m, key0 = u->key0, n = u->n, dim = d->head_dim;
    const float scale = d->attention_scale, cap = d->attention_softcap;
    float *p = u->p, *ds = u->ds, *lse = g->lse_rows + (size_t)worker * OMM_KV_BLOCK;
    float *capped = cap != 0 ? g->capped + (size_t)worker * OMM_KV_BLOCK * g->seq_max : NULL;
    const float *q = h->q + first * h->q_stride, *dout = h->dout + first * h->q_stride;
    const size_t qs = h->q_stride, kvs = h->kv_stride, at = key0 * kvs;
    for (size_t i = 0; i < m; i++) lse[i] = h->lse[(first + i) * h->heads];
    omm_gemm_nt(c, &(omm_gemm){p, q, h->k + at, m, n, dim, qs, kvs, n, false});
    omm_vec_scale(c, p, p, scale, m * n);
    if (capped) {
        omm_vec_softcap(c, p, p, cap, m * n);
        memcpy(capped, p, m * n * sizeof(float));
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
    if (capped) g->grad->softcap(ds, capped, 1.0F / cap, m * n);
    omm_gemm_nn(c, &(omm_gemm){h->dq + first * qs, ds, h->k + at, m, dim, n, n, kvs, qs, false});
}

/* Add to dk and dv of the keys from .. to - 1, all of them among those of the unit. */
static void unit_add(graph *g, const unit_view *u, size_t from, size_t to, unsigned worker) {
    const omm_compute *c = &g->solo[worker];
    const head_view *h = &u->h;
    const size_t dim = g->model->dims.head_dim, qs = h->q_stride, kvs = h->kv_stride;
    const float *q = h->q + u->first * qs, *dout = h->dout + u->first * qs;
    const float *ds = u->ds + (from - u->key0), *p = u->p + (from - u->key0);
    const size_t keys = to - from;
    omm_gemm_tn(c, &(omm_gemm){h->dk + from * kvs, ds, q, keys, dim, u->m, u->n, qs, kvs, true});
    omm_gemm_tn(c, &(omm_gemm){h->dv + from * kvs, p, dout, keys, dim, u->m, u->n, qs, kvs, true});
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
static unit_view unit_of(const attention_job *job, size_t chain, size_t unit, unsigned worker) {
    graph *g = job->g;
    const omm_model_dims *d = &g->model->dims;
    const size_t kv_head = chain % d->kv_heads, group = d->heads / d->kv_heads;
    const size_t blocks = blocks_of(job, chain), first = unit % blocks * OMM_KV_BLOCK;
    const size_t room = (size_t)worker * OMM_KV_BLOCK * g->seq_max;
    unit_view u = {.h = view_of(job, chain / d->kv_heads, kv_head, kv_head * group + unit / blocks),
                   .first = first,
                   .p = g->scores + room,
                   .ds = g->dscores + room};
    u.m = u.h.tokens - first > OMM_KV_BLOCK ? OMM_KV_BLOCK : u.h.tokens - first;
    u.key0 = first_seen(&u.h, first);
    u.n = first + u.m - u.key0;
    return u;
}

/* ---- one chain after the other ---------------------------------------------------------------- */

static void chain_task(void *ud, size_t chain, unsigned worker) {
    const attention_job *job = ud;
    const size_t units = units_of(job, chain);
    for (size_t unit = 0; unit < units; unit++) {
        const unit_view u = unit_of(job, chain, unit, worker);
        unit_scores(job->g, &u, worker);
        unit_add(job->g, &u, u.key0, u.key0 + u.n, worker);
    }
}

/* ---- units of a chain side by side ------------------------------------------------------------ */

/* The next unit of the chain that has most left.  False: all are taken. */
static bool take_unit(attention_job *job, size_t *chain, size_t *unit) {
    for (;;) {
        size_t most = 0;
        for (size_t i = 0; i < job->chains; i++) {
            const size_t units = units_of(job, i);
            const unsigned taken = atomic_load_explicit(&job->taken[i], memory_order_relaxed);
            if (taken >= units || units - taken <= most) continue;
            most = units - taken;
            *chain = i;
        }
        if (most == 0) return false;
        *unit = atomic_fetch_add_explicit(&job->taken[*chain], 1, memory_order_relaxed);
        if (*unit < units_of(job, *chain)) return true;
    }
}

/* Units before this one that add to the piece with the keys from .. to - 1: in each head those whose queries
 * reach it and do not look past it. */
static unsigned turn_of(const attention_job *job, size_t chain, size_t unit, size_t from,
                        size_t to) {
    const size_t blocks = blocks_of(job, chain), begin = from / OMM_KV_BLOCK;
    size_t end = blocks;
    if (job->window) { /* the last query that sees key to - 1 is window - 1 behind it */
        const size_t last = (to - 1 + job->window - 1) / OMM_KV_BLOCK;
        if (last + 1 < end) end = last + 1;
    }
    return (unsigned)(unit / blocks * (end - begin) + (unit % blocks - begin));
}

static void wait_for_turn(const atomic_uint *turn, unsigned mine) {
    for (unsigned i = 1; atomic_load_explicit(turn, memory_order_acquire) != mine; i++)
        if (i % WAIT_SPINS == 0) sched_yield();
}

static void add_in_turn(attention_job *job, const unit_view *u, size_t chain, size_t unit,
                        unsigned worker) {
    const size_t keys = job->piece_blocks * OMM_KV_BLOCK, end = u->key0 + u->n;
    for (size_t piece = u->key0 / keys; piece * keys < end; piece++) {
        const size_t from = piece * keys, to = from + keys;
        const unsigned mine = turn_of(job, chain, unit, from, to);
        atomic_uint *turn = &job->turns[chain][piece];
        wait_for_turn(turn, mine);
        unit_add(job->g, u, from > u->key0 ? from : u->key0, to < end ? to : end, worker);
        atomic_store_explicit(turn, mine + 1, memory_order_release);
    }
}

static void units_task(void *ud, size_t task, unsigned worker) {
    attention_job *job = ud;
    size_t chain = 0, unit = 0;
    (void)task;
    while (take_unit(job, &chain, &unit)) {
        const unit_view u = unit_of(job, chain, unit, worker);
        unit_scores(job->g, &u, worker);
        add_in_turn(job, &u, chain, unit, worker);
    }
}

static void run_chains(graph *g, const graph_layer *l, size_t window) {
    attention_job job = {.g = g, .l = l, .window = window};
    job.chains = g->example_count * g->model->dims.kv_heads;
    if (g->workers == 1 || job.chains >= CHAINS_MAX) {
        omm_pool_run(g->compute->pool, chain_task, &job, job.chains);
        return;
    }
    const size_t blocks = (g->seq_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    job.piece_blocks = (blocks + PIECES_MAX - 1) / PIECES_MAX;
    if (job.piece_blocks < PIECE_BLOCKS) job.piece_blocks = PIECE_BLOCKS;
    for (size_t i = 0; i < job.chains; i++) {
        atomic_init(&job.taken[i], 0);
        for (size_t piece = 0; piece < PIECES_MAX; piece++) atomic_init(&job.turns[i][piece], 0);
    }
    omm_pool_run(g->compute->pool, units_task, &job, g->workers);
}

void graph_attention_backward(graph *g, size_t layer) {
    const omm_model_dims *d = &g->model->dims;
    const graph_layer *l = &g->layers[layer];
    const size_t kvs = (size_t)d->kv_heads * d->head_dim;
    graph_rows_dot(g, g->row_dot, g->datt, l->att, g->rows * d->heads, d->head_dim);
    memset(g->dk, 0, g->rows * kvs * sizeof(float));
    memset(g->dv, 0, g->rows * kvs * sizeof(float));
    run_chains(g, l, g->model->layers[layer].window);
    if (!d->norms_turned) graph_turn_all(g, layer, g->dq, g->dk, true);
}
