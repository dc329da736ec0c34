/* pool.c - owns the thread pool.
 *
 * A run cuts its tasks into one contiguous share per thread, the same each time, so that a weight
 * matrix stays in the caches and the page table entries of the thread that had it before.  A thread
 * takes its own share from the front; when that is empty it steals single tasks from the end of the
 * largest share left, so that slow cores and late threads cost little.
 *
 *   state word:  generation << 1 | open     the caller alone writes it
 *   share word:  begin << 32 | end          begin only grows and end only falls within one run
 *   inside:      of each worker, which alone writes it, in a cache line that nobody else does
 *
 *   caller: shares, fn, ud; state = (generation + 1, open); wake; work; close; wait for nobody inside
 *   worker: state open and new? inside = true; state still that? work; inside = false
 *
 * fn, ud and the shares change only while the state says closed and nobody is inside, so whoever is
 * inside reads them without further care: a worker says that it comes and then looks whether the run
 * is still open, the caller closes and then looks who is there (both sequentially consistent, as
 * Dekker has it), so one of the two sees the other.  Threads leave only when no task is left to claim:
 * closed with nobody inside means that every task has been done.  A run does not wait for threads
 * that never came.  Sleeping is done alike: the sleeper counts itself, then looks again; the waker
 * publishes, then looks at the count.
 */
#include "omm/pool.h"

#include "omm/clock.h"
#include "omm/mem.h"
#include "omm/topology.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SPIN_NS 50000u              /* longer than the gap between two kernels of a layer */
#define SPINS_PER_LOOK 32u          /* pauses between two looks at the clock */
#define BATCH_TASKS_MAX 0x7fffffffu /* a longer run is cut into batches that fit a share word */
#define OPEN 1ull

typedef struct pool_worker {          /* NOLINT(clang-analyzer-optin.performance.Padding) */
    _Alignas(64) atomic_ullong share; /* tasks begin << 32 | end that nobody has claimed */
    _Alignas(64) atomic_bool inside;  /* a run, or about to see that it is over */
    uint64_t busy_ns;                 /* measured; written while inside, read after the run */
    omm_pool *pool;
    pthread_t thread;
    unsigned index; /* 0: the caller, no thread of its own */
} pool_worker;

/* What every thread polls shares its cache line with what a thread that enters needs next, and with
 * nothing else: between processors without a common cache each line costs a few hundred ns. */
struct omm_pool {                     /* NOLINT(clang-analyzer-optin.performance.Padding) */
    _Alignas(64) atomic_ullong state; /* generation << 1 | open */
    omm_pool_fn fn;
    void *ud;
    size_t first; /* number of task 0 of this batch */
    bool measures;
    _Alignas(64) omm_pool_times times;
    _Alignas(64) atomic_uint sleepers;
    atomic_bool caller_sleeps;
    atomic_bool closing;
    atomic_bool running; /* catches two runs at once, which is a bug */
    pthread_mutex_t mutex;
    pthread_cond_t wake;     /* workers sleep here */
    pthread_cond_t finished; /* the caller sleeps here */
    unsigned threads;
    unsigned started; /* workers that exist: threads - 1 after open */
    bool spins;
    pool_worker *workers; /* [threads] */
};

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void omm_fp_assert(void) {
#if defined(__x86_64__)
    /* All but the six sticky exception flags: exceptions masked, nearest, no FTZ, no DAZ. */
    unsigned mxcsr_control = __builtin_ia32_stmxcsr() & ~0x3fu;
    OMM_ASSERT(mxcsr_control == 0x1f80u);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    /* FIZ, AH, NEP, FZ16, RMode, FZ, DN, AHP */
    uint64_t fpcr_control = fpcr & 0x07c80007u;
    OMM_ASSERT(fpcr_control == 0);
#else
    volatile float tiny = 0x1p-126f, one = 1.0f, half_ulp = 0x1p-24f;
    OMM_ASSERT(tiny * 0.5f != 0.0f);
    OMM_ASSERT(one + half_ulp == 1.0f);
    OMM_ASSERT(one + 3.0f * half_ulp == 1.0f + 0x1p-22f);
#endif
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static unsigned long long generation_of(unsigned long long state) {
    return state >> 1;
}

static unsigned begin_of(unsigned long long share) {
    return (unsigned)(share >> 32);
}

static unsigned end_of(unsigned long long share) {
    return (unsigned)share;
}

/* The first task of a share.  The order of claims is of no concern, only that each is made once. */
static bool take_first(unsigned *task, atomic_ullong *share) {
    unsigned long long s = atomic_load_explicit(share, memory_order_relaxed);
    while (begin_of(s) < end_of(s)) {
        *task = begin_of(s);
        if (atomic_compare_exchange_weak_explicit(share, &s, s + (1ull << 32), memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

static bool take_last(unsigned *task, atomic_ullong *share) {
    unsigned long long s = atomic_load_explicit(share, memory_order_relaxed);
    while (begin_of(s) < end_of(s)) {
        *task = end_of(s) - 1;
        if (atomic_compare_exchange_weak_explicit(share, &s, s - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

/* The last task of the largest share.  False: every task has been claimed. */
static bool steal(unsigned *task, omm_pool *pool) {
    for (;;) {
        unsigned most = 0;
        pool_worker *victim = NULL;
        for (unsigned i = 0; i < pool->threads; i++) {
            const unsigned long long s =
                atomic_load_explicit(&pool->workers[i].share, memory_order_relaxed);
            const unsigned left = end_of(s) > begin_of(s) ? end_of(s) - begin_of(s) : 0;
            if (left <= most) continue;
            most = left;
            victim = &pool->workers[i];
        }
        if (!victim) return false;
        if (take_last(task, &victim->share)) return true;
    }
}

/* Inside: run tasks until none is left. */
static void work(omm_pool *pool, pool_worker *self) {
    unsigned task = 0;
    const uint64_t begin = pool->measures ? omm_measure_ns() : 0;
    omm_fp_assert();
    while (take_first(&task, &self->share) || steal(&task, pool))
        pool->fn(pool->ud, pool->first + task, self->index);
    if (pool->measures) self->busy_ns += omm_measure_ns() - begin;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* What a worker waits for: another run than that of generation `seen`. */
static bool has_news(omm_pool *pool, unsigned long long seen) {
    return generation_of(atomic_load(&pool->state)) != seen || atomic_load(&pool->closing);
}

/* Spin for a while: true when `done` says so. */
static bool spin(omm_pool *pool, bool (*done)(omm_pool *pool, unsigned long long arg),
                 unsigned long long arg) {
    if (done(pool, arg)) return true;
    if (!pool->spins) return false;
    const uint64_t start = omm_measure_ns();
    do {
        for (unsigned i = 0; i < SPINS_PER_LOOK; i++) {
            cpu_relax();
            if (done(pool, arg)) return true;
        }
    } while (omm_measure_ns() - start < SPIN_NS);
    return false;
}

static void wait_for_news(omm_pool *pool, unsigned long long seen) {
    if (spin(pool, has_news, seen)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_news(pool, seen)) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

/* Tell the caller, who may sleep until nobody is inside. */
static void leave(omm_pool *pool, pool_worker *self) {
    atomic_store(&self->inside, false);
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
}

/* True: inside the run of generation *seen.  False: it is over. */
static bool enter(unsigned long long *seen, omm_pool *pool, pool_worker *self) {
    const unsigned long long state = atomic_load(&pool->state);
    *seen = generation_of(state);
    if (!(state & OPEN)) return false;
    atomic_store(&self->inside, true);
    if (atomic_load(&pool->state) == state) return true;
    leave(pool, self);
    return false;
}

static void *worker_main(void *arg) {
    pool_worker *self = arg;
    omm_pool *pool = self->pool;
    unsigned long long seen = 0;
    omm_fp_assert();
    for (;;) {
        wait_for_news(pool, seen);
        if (atomic_load(&pool->closing)) return NULL;
        if (!enter(&seen, pool, self)) continue;
        work(pool, self);
        leave(pool, self);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

static omm_err start_workers(omm_pool *pool) {
    for (unsigned i = 1; i < pool->threads; i++) {
        pool_worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i;
        int why = pthread_create(&w->thread, NULL, worker_main, w);
        if (why != 0) {
            return omm_raise(OMM_ERR_IO, "cannot start thread %u of %u: %s", i + 1, pool->threads,
                             strerror(why));
        }
        pool->started = i;
    }
    return OMM_OK;
}

omm_err omm_pool_open(omm_pool **out, unsigned threads) {
    OMM_ASSERT(threads >= 1);
    OMM_ASSERT(threads <= OMM_POOL_THREADS_MAX);
    omm_pool *pool = omm_alloc_aligned(1, sizeof *pool);
    if (!pool) return omm_raise(OMM_ERR_NOMEM, "no memory for a thread pool");
    pool->workers = omm_alloc_aligned(threads, sizeof *pool->workers);
    if (!pool->workers) {
        omm_free(pool);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %u threads", threads);
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->threads = threads;
    pool->spins = threads <= omm_cpu_count(); /* else a spinner would take a worker's processor */
    omm_err err = start_workers(pool);
    if (err != OMM_OK) {
        omm_pool_close(pool);
        return err;
    }
    *out = pool;
    return OMM_OK;
}

void omm_pool_close(omm_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->closing, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    omm_free(pool->workers);
    omm_free(pool);
}

unsigned omm_pool_threads(const omm_pool *pool) {
    return pool ? pool->threads : 1;
}

static void wake_workers(omm_pool *pool, unsigned tasks) {
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    if (tasks >= pool->threads) {
        pthread_cond_broadcast(&pool->wake);
    } else {
        for (unsigned i = 1; i < tasks; i++) pthread_cond_signal(&pool->wake);
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* Closed before: who is seen outside comes back to see that, and no further, until the next run. */
static bool all_left(omm_pool *pool, unsigned long long unused) {
    (void)unused;
    for (unsigned i = 1; i <= pool->started; i++)
        if (atomic_load(&pool->workers[i].inside)) return false;
    return true;
}

static void wait_for_leaving(omm_pool *pool) {
    if (spin(pool, all_left, 0)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (!all_left(pool, 0)) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

size_t omm_pool_share_begin(size_t share, size_t tasks, unsigned threads) {
    OMM_ASSERT(share <= threads);
    const size_t rest = tasks % threads; /* in parts: the product may not fit */
    return tasks / threads * share + (rest * share + threads - 1) / threads;
}

size_t omm_pool_share_of(size_t task, size_t tasks, unsigned threads) {
    OMM_ASSERT(task < tasks);
    size_t share = task / (tasks / threads + (tasks % threads != 0));
    while (omm_pool_share_begin(share + 1, tasks, threads) <= task) share++;
    return share;
}

static void cut_shares(omm_pool *pool, unsigned tasks) {
    for (unsigned i = 0; i < pool->threads; i++) {
        const unsigned long long begin = omm_pool_share_begin(i, tasks, pool->threads);
        const unsigned long long end = omm_pool_share_begin(i + 1u, tasks, pool->threads);
        atomic_store_explicit(&pool->workers[i].share, begin << 32 | end, memory_order_relaxed);
    }
}

static void run_batch(omm_pool *pool, omm_pool_fn fn, void *ud, size_t first, unsigned tasks) {
    const unsigned long long generation = generation_of(atomic_load(&pool->state)) + 1;
    pool->fn = fn;
    pool->ud = ud;
    pool->first = first;
    cut_shares(pool, tasks);
    atomic_store(&pool->state, generation << 1 | OPEN);
    wake_workers(pool, tasks);
    work(pool, &pool->workers[0]);
    atomic_store(&pool->state, generation << 1);
    wait_for_leaving(pool);
}

static void run_alone(omm_pool_fn fn, void *ud, size_t tasks) {
    omm_fp_assert();
    for (size_t task = 0; task < tasks; task++) fn(ud, task, 0);
}

static void run_all(omm_pool *pool, omm_pool_fn fn, void *ud, size_t tasks) {
    for (size_t first = 0; first < tasks;) {
        size_t left = tasks - first;
        unsigned batch = left > BATCH_TASKS_MAX ? BATCH_TASKS_MAX : (unsigned)left;
        run_batch(pool, fn, ud, first, batch);
        first += batch;
    }
}

void omm_pool_run(omm_pool *pool, omm_pool_fn fn, void *ud, size_t tasks) {
    if (tasks <= 1 || omm_pool_threads(pool) == 1) {
        run_alone(fn, ud, tasks);
        return;
    }
    OMM_ASSERT(!atomic_exchange(&pool->running, true));
    const uint64_t begin = pool->measures ? omm_measure_ns() : 0;
    run_all(pool, fn, ud, tasks);
    if (pool->measures) {
        pool->times.run_ns += omm_measure_ns() - begin;
        pool->times.runs++;
    }
    atomic_store(&pool->running, false);
}

/* ---- measuring ------------------------------------------------------------------------------- */

void omm_pool_measure(omm_pool *pool, bool on) {
    if (!pool) return;
    pool->measures = on;
    pool->times = (omm_pool_times){0};
    for (unsigned i = 0; i < pool->threads; i++) pool->workers[i].busy_ns = 0;
}

omm_pool_times omm_pool_measured(const omm_pool *pool) {
    if (!pool) return (omm_pool_times){0};
    omm_pool_times times = pool->times;
    for (unsigned i = 0; i < pool->threads; i++) times.busy_ns += pool->workers[i].busy_ns;
    return times;
}
