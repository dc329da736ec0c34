/* pool.c - owns the thread pool.
 *
 * One 64-bit word holds (generation << 32 | tasks not yet claimed).  A thread claims a task by a
 * compare-and-swap on the whole word, so a late sleeper of an earlier run can claim nothing of a
 * later one by mistake, and a run does not wait for threads that took no task.
 *
 *   run:    done = 0; fn, ud, tasks; word = (generation + 1, tasks); wake; work; wait for done
 *   worker: word changed? read fn, ud, tasks; claim task (tasks - unclaimed); call; done += 1
 *
 * fn, ud and tasks change only while the word says 0 unclaimed, and a claim succeeds only from
 * above 0: what was read between loading the word and a successful claim is of that generation.
 * Sleeping follows Dekker: the sleeper counts itself, then looks again; the waker publishes, then
 * looks at the count (both sequentially consistent).
 */
#include "omm/pool.h"

#include "omm/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define SPINS 500u                  /* about 20 to 50 us, the gap between two kernels of a layer */
#define BATCH_TASKS_MAX 0x7fffffffu /* a longer run is cut into batches that fit the word */

typedef struct pool_worker {
    omm_pool *pool;
    pthread_t thread;
    unsigned index;
} pool_worker;

/* The two contended counters have a cache line each. */
struct omm_pool {                    /* NOLINT(clang-analyzer-optin.performance.Padding) */
    _Alignas(64) atomic_ullong word; /* generation << 32 | unclaimed tasks */
    _Alignas(64) atomic_uint done;
    _Alignas(64) _Atomic(omm_pool_fn) fn;
    _Atomic(void *) ud;
    atomic_size_t first; /* number of task 0 of this batch */
    atomic_uint tasks;
    atomic_uint sleepers;
    atomic_bool caller_sleeps;
    atomic_bool closing;
    atomic_bool running; /* catches two runs at once, which is a bug */
    pthread_mutex_t mutex;
    pthread_cond_t wake;     /* workers sleep here */
    pthread_cond_t finished; /* the caller sleeps here */
    unsigned threads;
    unsigned started; /* workers that exist: threads - 1 after open */
    unsigned spins;
    pool_worker *workers;
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

unsigned omm_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int count = CPU_COUNT(&set);
        if (count > 0) return (unsigned)count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

static unsigned generation_of(unsigned long long word) {
    return (unsigned)(word >> 32);
}

static unsigned unclaimed_of(unsigned long long word) {
    return (unsigned)(word & 0xffffffffu);
}

static void task_done(omm_pool *pool, unsigned tasks) {
    if (atomic_fetch_add(&pool->done, 1) + 1 != tasks) return;
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
}

/* Claim and run tasks until none is left.  Returns the generation that had none. */
static unsigned work(omm_pool *pool, unsigned worker) {
    bool checked = false;
    unsigned long long word = atomic_load(&pool->word);
    while (unclaimed_of(word) > 0) {
        omm_pool_fn fn = atomic_load(&pool->fn);
        void *ud = atomic_load(&pool->ud);
        size_t first = atomic_load(&pool->first);
        unsigned tasks = atomic_load(&pool->tasks);
        if (!atomic_compare_exchange_weak(&pool->word, &word, word - 1)) continue;
        if (!checked) omm_fp_assert();
        checked = true;
        fn(ud, first + (tasks - unclaimed_of(word)), worker);
        task_done(pool, tasks);
        word = atomic_load(&pool->word);
    }
    return generation_of(word);
}

static bool has_news(omm_pool *pool, unsigned seen) {
    return generation_of(atomic_load(&pool->word)) != seen || atomic_load(&pool->closing);
}

static void wait_for_news(omm_pool *pool, unsigned seen) {
    for (unsigned i = 0; i < pool->spins; i++) {
        if (has_news(pool, seen)) return;
        cpu_relax();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_news(pool, seen)) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg) {
    pool_worker *self = arg;
    omm_pool *pool = self->pool;
    unsigned seen = 0;
    omm_fp_assert();
    for (;;) {
        wait_for_news(pool, seen);
        if (atomic_load(&pool->closing)) return NULL;
        seen = work(pool, self->index);
    }
}

static omm_err start_workers(omm_pool *pool) {
    for (unsigned i = 1; i < pool->threads; i++) {
        pool_worker *w = &pool->workers[i - 1];
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
    pool->workers = omm_alloc(threads, sizeof *pool->workers);
    if (!pool->workers) {
        omm_free(pool);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %u threads", threads);
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->threads = threads;
    pool->spins = threads <= omm_cpu_count() ? SPINS : 0; /* a spinner would take a worker's CPU */
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
    for (unsigned i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
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

static void wait_for_done(omm_pool *pool, unsigned tasks) {
    for (unsigned i = 0; i < pool->spins; i++) {
        if (atomic_load(&pool->done) == tasks) return;
        cpu_relax();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->done) != tasks) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

static void run_batch(omm_pool *pool, omm_pool_fn fn, void *ud, size_t first, unsigned tasks) {
    unsigned long long generation = (atomic_load(&pool->word) >> 32) + 1;
    atomic_store(&pool->done, 0);
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->ud, ud);
    atomic_store(&pool->first, first);
    atomic_store(&pool->tasks, tasks);
    atomic_store(&pool->word, generation << 32 | tasks);
    wake_workers(pool, tasks);
    work(pool, 0);
    wait_for_done(pool, tasks);
}

static void run_alone(omm_pool_fn fn, void *ud, size_t tasks) {
    omm_fp_assert();
    for (size_t task = 0; task < tasks; task++) fn(ud, task, 0);
}

void omm_pool_run(omm_pool *pool, omm_pool_fn fn, void *ud, size_t tasks) {
    if (tasks <= 1 || omm_pool_threads(pool) == 1) {
        run_alone(fn, ud, tasks);
        return;
    }
    OMM_ASSERT(!atomic_exchange(&pool->running, true));
    for (size_t first = 0; first < tasks;) {
        size_t left = tasks - first;
        unsigned batch = left > BATCH_TASKS_MAX ? BATCH_TASKS_MAX : (unsigned)left;
        run_batch(pool, fn, ud, first, batch);
        first += batch;
    }
    atomic_store(&pool->running, false);
}
