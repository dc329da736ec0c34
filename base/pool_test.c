#include "omm/pool.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TASKS_MAX 1000u

typedef struct marks {
    unsigned runs[TASKS_MAX]; /* plain: only its one task may touch an entry, TSan watches */
    unsigned per_worker[OMM_POOL_THREADS_MAX];
    unsigned threads;
    unsigned sleep_us;
} marks;

static void mark(void *ud, size_t task, unsigned worker) {
    marks *m = ud;
    OMM_ASSERT(worker < m->threads);
    m->runs[task]++;
    m->per_worker[worker]++;
    if (m->sleep_us > 0) usleep(m->sleep_us);
}

static void check_marks(const marks *m, size_t tasks, unsigned want) {
    unsigned total = 0;
    for (size_t i = 0; i < TASKS_MAX; i++) CHECK_EQ(m->runs[i], i < tasks ? want : 0);
    for (unsigned w = 0; w < OMM_POOL_THREADS_MAX; w++) total += m->per_worker[w];
    CHECK_EQ(total, tasks * want);
}

/* Each task once, for task counts below, at and above the thread count; the pool is reused. */
static void test_each_task_once(omm_pool *pool) {
    static const size_t counts[] = {0, 1, 2, 3, 5, 8, 100, TASKS_MAX};
    for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        marks m = {.threads = omm_pool_threads(pool)};
        omm_pool_run(pool, mark, &m, counts[c]);
        check_marks(&m, counts[c], 1);
    }
}

static void test_many_tiny_runs(omm_pool *pool) {
    marks m = {.threads = omm_pool_threads(pool)};
    for (unsigned i = 0; i < 3000; i++) omm_pool_run(pool, mark, &m, 1 + i % 5);
    CHECK_EQ(m.runs[0], 3000);
    CHECK_EQ(m.runs[4], 600);
}

/* Long pauses between runs and inside tasks: workers and caller go through sleep and wake. */
static void test_sleep_and_wake(omm_pool *pool) {
    marks m = {.threads = omm_pool_threads(pool), .sleep_us = 500};
    for (unsigned i = 0; i < 20; i++) {
        usleep(300 * (i % 3));
        omm_pool_run(pool, mark, &m, 7);
    }
    check_marks(&m, 7, 20);
}

static double processor_seconds(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Between runs nobody spins for longer than a moment: 100 ms cost less than a fifth of one thread. */
static void test_idle_is_asleep(omm_pool *pool) {
    marks m = {.threads = omm_pool_threads(pool)};
    omm_pool_run(pool, mark, &m, 16);
    const double before = processor_seconds();
    usleep(100000);
    CHECK(processor_seconds() - before < 0.02);
}

/* With tasks that wait for each other, more than one thread must really be at work. */
typedef struct meeting {
    atomic_uint here;
    unsigned want;
} meeting;

static void meet(void *ud, size_t task, unsigned worker) {
    meeting *m = ud;
    (void)task;
    (void)worker;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < m->want) usleep(50);
}

static void test_runs_in_parallel(void) {
    omm_pool *pool;
    CHECK_OK(omm_pool_open(&pool, 4));
    for (unsigned i = 0; i < 20; i++) {
        meeting m = {.want = 4};
        omm_pool_run(pool, meet, &m, 4);
        CHECK_EQ(m.here, 4);
    }
    omm_pool_close(pool);
}

/* What one run wrote, the next run and the caller see, without any locks of their own. */
static void prefix_step(void *ud, size_t task, unsigned worker) {
    unsigned *values = ud;
    (void)worker;
    values[TASKS_MAX + task] = values[task] + values[(task + 1) % TASKS_MAX];
}

static void test_visibility(omm_pool *pool) {
    static unsigned values[2 * TASKS_MAX], want[2 * TASKS_MAX];
    for (unsigned i = 0; i < TASKS_MAX; i++) values[i] = want[i] = i;
    for (unsigned step = 0; step < 20; step++) {
        omm_pool_run(pool, prefix_step, values, TASKS_MAX);
        memcpy(values, values + TASKS_MAX, TASKS_MAX * sizeof values[0]);
        omm_pool_run(NULL, prefix_step, want, TASKS_MAX);
        memcpy(want, want + TASKS_MAX, TASKS_MAX * sizeof want[0]);
    }
    CHECK(memcmp(values, want, TASKS_MAX * sizeof values[0]) == 0);
}

/* Shares are all tasks, one behind the other, of equal lengths but for one; each thread begins with its own. */
static void test_shares(void) {
    for (unsigned threads = 1; threads <= 9; threads++)
        for (size_t tasks = 1; tasks <= 40; tasks++) {
            CHECK_EQ(omm_pool_share_begin(0, tasks, threads), 0);
            CHECK_EQ(omm_pool_share_begin(threads, tasks, threads), tasks);
            CHECK(omm_pool_share_begin(1, tasks, threads) > 0);
            for (unsigned i = 0; i < threads; i++) {
                const size_t begin = omm_pool_share_begin(i, tasks, threads);
                const size_t end = omm_pool_share_begin(i + 1u, tasks, threads);
                CHECK(end - begin == tasks / threads || end - begin == tasks / threads + 1);
                for (size_t task = begin; task < end; task++)
                    CHECK_EQ(omm_pool_share_of(task, tasks, threads), i);
            }
        }
    /* One behind the largest run that there can be, in threads that do not divide it. */
    CHECK_EQ(omm_pool_share_begin(256, SIZE_MAX, 256), SIZE_MAX);
    CHECK_EQ(omm_pool_share_of(SIZE_MAX - 1, SIZE_MAX, 256), 255);
}

/* The first task of all returns when every other one has: somebody must steal the rest of its share. */
typedef struct stubborn {
    atomic_uint done;
    unsigned tasks;
} stubborn;

static void wait_for_others(void *ud, size_t task, unsigned worker) {
    stubborn *s = ud;
    (void)worker;
    while (task == 0 && atomic_load(&s->done) < s->tasks - 1) usleep(50);
    atomic_fetch_add(&s->done, 1);
}

static void test_stealing(void) {
    for (unsigned threads = 2; threads <= 5; threads++) {
        omm_pool *pool;
        CHECK_OK(omm_pool_open(&pool, threads));
        for (unsigned tasks = 2; tasks < 40; tasks++) {
            stubborn s = {.tasks = tasks};
            omm_pool_run(pool, wait_for_others, &s, tasks);
            CHECK_EQ(s.done, tasks);
        }
        omm_pool_close(pool);
    }
}

static void test_measuring(omm_pool *pool) {
    const unsigned threads = omm_pool_threads(pool);
    marks m = {.threads = threads, .sleep_us = 200};
    omm_pool_measure(pool, true);
    for (unsigned i = 0; i < 5; i++) omm_pool_run(pool, mark, &m, 16);
    const omm_pool_times times = omm_pool_measured(pool);
    CHECK_EQ(times.runs, threads > 1 ? 5 : 0);
    CHECK(times.busy_ns <= times.run_ns * threads);
    CHECK(threads == 1 || times.busy_ns >= 5 * 16ull * 200000);
    omm_pool_measure(pool, false);
    omm_pool_run(pool, mark, &m, 16);
    CHECK_EQ(omm_pool_measured(pool).busy_ns, 0);
    CHECK_EQ(omm_pool_measured(pool).run_ns, 0);
    CHECK_EQ(omm_pool_measured(NULL).runs, 0);
}

static void all_with(unsigned threads) {
    omm_pool *pool;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_EQ(omm_pool_threads(pool), threads);
    test_each_task_once(pool);
    test_many_tiny_runs(pool);
    test_sleep_and_wake(pool);
    test_idle_is_asleep(pool);
    test_visibility(pool);
    test_measuring(pool);
    omm_pool_close(pool);
}

static void test_open_and_close_at_once(void) {
    for (unsigned i = 0; i < 50; i++) {
        omm_pool *pool;
        CHECK_OK(omm_pool_open(&pool, 1 + i % 6));
        omm_pool_close(pool);
    }
    omm_pool_close(NULL);
}

static void test_no_pool(void) {
    marks m = {.threads = 1};
    CHECK_EQ(omm_pool_threads(NULL), 1);
    omm_pool_run(NULL, mark, &m, 9);
    check_marks(&m, 9, 1);
    CHECK_EQ(m.per_worker[0], 9);
    CHECK(omm_cpu_count() >= 1);
}

static void test_no_memory(void) {
    size_t live = omm_mem_live();
    for (size_t nth = 1; nth <= 2; nth++) {
        omm_pool *pool = NULL;
        omm_mem_fail_nth(nth);
        CHECK_ERR(omm_pool_open(&pool, 3), OMM_ERR_NOMEM);
        omm_mem_fail_nth(0);
        CHECK(pool == NULL);
        CHECK_EQ(omm_mem_live(), live);
    }
}

static void set_flush_to_zero(void) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8000u);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr |= (uint64_t)1 << 24;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

/* In a child process: what `body` does must abort. */
static void check_aborts(void (*body)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        CHECK(freopen("/dev/null", "w", stderr) != NULL);
        body();
        _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGABRT);
}

static void abort_flushing_caller(void) {
    set_flush_to_zero();
    omm_fp_assert();
}

static void flush_then_nothing(void *ud, size_t task, unsigned worker) {
    (void)ud;
    (void)task;
    (void)worker;
    set_flush_to_zero();
}

/* A task that leaves its thread flushing is caught at the next run, whoever the thread is. */
static void abort_flushing_task(void) {
    marks m = {.threads = 1};
    omm_pool_run(NULL, flush_then_nothing, NULL, 1);
    omm_pool_run(NULL, mark, &m, 1);
}

int main(void) {
    omm_fp_assert();
    check_aborts(abort_flushing_caller);
    check_aborts(abort_flushing_task);
    test_no_pool();
    test_no_memory();
    test_open_and_close_at_once();
    test_runs_in_parallel();
    test_shares();
    test_stealing();
    static const unsigned threads[] = {1, 2, 3, 8};
    for (unsigned i = 0; i < 4; i++) all_with(threads[i]);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
