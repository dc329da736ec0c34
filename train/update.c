/* update.c - see update.h. */
#include "update.h"

#include "adamw.h"
#include "optimizer.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define PARTS_MAX 64u /* of a rank-16 adapter of 135M: 300 KB of values each, which stay in cache */
#define PROX_VALUES                                                                                \
    ((size_t)1 << 15) /* of a task: three times 128 KiB, far longer than its start */

/* --- turning B ------------------------------------------------------------------------------- */

static size_t size_of(const omm_lora_tensor *x) {
    return (size_t)x->rows * x->cols;
}

size_t update_room(const omm_lora *lora) {
    size_t most = 0;
    for (size_t i = 0; i < lora->tensor_count; i++)
        if (size_of(&lora->tensors[i]) > most) most = size_of(&lora->tensors[i]);
    return most;
}

typedef struct turn_job {
    float *gradient, *room;
    const omm_lora *lora;
    size_t room_each;
} turn_job;

static void turn_task(void *ud, size_t task, unsigned worker) {
    const turn_job *job = ud;
    const omm_lora_tensor *b = &job->lora->tensors[task];
    if (!b->is_b) return;
    float *at = job->gradient + b->offset, *room = job->room + worker * job->room_each;
    const size_t rows = b->rows, cols = b->cols;
    memcpy(room, at, rows * cols * sizeof *at);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) at[r * cols + c] = room[c * rows + r];
}

/* NOLINTBEGIN(readability-non-const-parameter): written through the job */
void update_turn_b(const omm_compute *compute, float *gradient, const omm_lora *lora, float *room) {
    turn_job job = {gradient, room, lora, update_room(lora)};
    omm_pool_run(compute->pool, turn_task, &job, lora->tensor_count);
}
/* NOLINTEND(readability-non-const-parameter) */

/* --- FedProx -------------------------------------------------------------------------------- */

typedef struct prox_job {
    adamw_state *state;
    float mu;
} prox_job;

static void prox_task(void *ud, size_t task, unsigned worker) {
    const prox_job *job = ud;
    const size_t from = task * PROX_VALUES, left = job->state->count - from;
    (void)worker;
    adamw_prox(job->state, job->mu, from, from + (left < PROX_VALUES ? left : PROX_VALUES));
}

void update_prox(const omm_compute *compute, adamw_state *s, float mu) {
    prox_job job = {s, mu};
    omm_pool_run(compute->pool, prox_task, &job, (s->count + PROX_VALUES - 1) / PROX_VALUES);
}

/* --- moving and hashing ---------------------------------------------------------------------- */

typedef struct update_job {
    const update *u;
    size_t count;
    atomic_size_t next; /* part that nobody has taken */
    optimizer_part parts[PARTS_MAX];
    atomic_bool moved[PARTS_MAX];
} update_job;

static void cut_parts(update_job *job) {
    const omm_lora *lora = job->u->lora;
    const size_t values = (lora->value_count + PARTS_MAX - 1) / PARTS_MAX;
    optimizer_part part = {0};
    while (part.end < lora->tensor_count) {
        OMM_ASSERT(job->count < PARTS_MAX);
        part = optimizer_part_after(&part, job->u->recipe, lora, values);
        atomic_init(&job->moved[job->count], false);
        job->parts[job->count++] = part;
    }
    atomic_init(&job->next, 0);
}

/* Of the values, where part i begins; after the last, their end. */
static size_t value_at(const update_job *job, size_t i) {
    const omm_lora *lora = job->u->lora;
    return i < job->count ? lora->tensors[job->parts[i].first].offset : lora->value_count;
}

/* False: all are taken. */
static bool move_next(update_job *job) {
    const update *u = job->u;
    const size_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (i >= job->count) return false;
    const size_t from = value_at(job, i), to = value_at(job, i + 1);
    adamw_state clip = {.gradient = u->gradient + from, .count = to - from};
    adamw_clip(&clip, u->norm, u->recipe->clip_norm);
    optimizer_update(u->lora, u->gradient, u->m, u->v, &job->parts[i], u->recipe, u->rate, u->step);
    atomic_store_explicit(&job->moved[i], true, memory_order_release);
    return true;
}

static void hash_all(update_job *job) {
    for (size_t i = 0; i < job->count; i++) {
        while (!atomic_load_explicit(&job->moved[i], memory_order_acquire))
            if (!move_next(job)) sched_yield(); /* another thread is about to end it */
        const size_t from = value_at(job, i), to = value_at(job, i + 1);
        omm_hasher_update(job->u->hasher,
                          omm_bytes_of(job->u->lora->values + from, (to - from) * sizeof(float)));
    }
}

static void update_task(void *ud, size_t task, unsigned worker) {
    update_job *job = ud;
    (void)worker;
    if (task == 0 && job->u->hasher) {
        hash_all(job);
        return;
    }
    while (move_next(job)) {
    }
}

void update_run(const update *u) {
    update_job job = {.u = u};
    cut_parts(&job);
    omm_pool_run(u->compute->pool, update_task, &job, u->compute->workers);
}
