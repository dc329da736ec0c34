/* pool.h - a thread pool that runs numbered tasks; results must not depend on who runs which.
 *
 * omm_pool_run(pool, fn, ud, n) calls fn(ud, task, worker) once for each task 0..n-1 and returns
 * when all are done.  Each thread begins with its own contiguous share of the tasks, the same for
 * equal n, and then steals from the others; the caller works too.  Idle workers spin briefly, then
 * sleep.  Every worker asserts that the floating-point
 * control word is the IEEE default (no flush-to-zero, round to nearest).
 *
 * Depends on: err, mem, topology.  Threads: one omm_pool_run at a time per pool; a task may not call
 * omm_pool_run on its own pool.  pool == NULL means "this thread alone".
 */
#ifndef OMM_POOL_H
#define OMM_POOL_H

#include "omm/err.h"
#include "omm/topology.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_POOL_THREADS_MAX 256u

typedef struct omm_pool omm_pool;
/* worker: 0 .. threads-1, stable within one run; index scratch memory by it. */
typedef void (*omm_pool_fn)(void *ud, size_t task, unsigned worker);

/* threads: 1 .. OMM_POOL_THREADS_MAX, the caller included.  Errors: NOMEM, IO (no thread). */
OMM_CHECKED omm_err omm_pool_open(omm_pool **out, unsigned threads);
void omm_pool_close(omm_pool *pool);
unsigned omm_pool_threads(const omm_pool *pool); /* 1 for NULL */
void omm_pool_run(omm_pool *pool, omm_pool_fn fn, void *ud, size_t tasks);

/* How a run is cut, for tasks of unequal size: share i, with which thread i begins, is tasks
 * share_begin(i) .. share_begin(i + 1); they differ by one task at most, and the first is never empty.
 * share_of: that of a task.  Which thread runs a task is another matter, as threads steal. */
size_t omm_pool_share_begin(size_t share, size_t tasks, unsigned threads);
size_t omm_pool_share_of(size_t task, size_t tasks, unsigned threads);

/* Where the time of runs went, for measurements: off unless asked for, because it reads the clock
 * twice per thread and run.  `run_ns * threads - busy_ns` is what threads spent inside runs without
 * a task: waking up, and waiting for the last one.  Runs on this thread alone are not counted. */
typedef struct omm_pool_times {
    uint64_t runs;
    uint64_t run_ns;  /* from the call of omm_pool_run to its return */
    uint64_t busy_ns; /* from a thread's first claim to its last task's end, all threads together */
} omm_pool_times;
/* Set the counts to zero and begin (or end) measuring.  Not during a run. */
void omm_pool_measure(omm_pool *pool, bool on);
omm_pool_times omm_pool_measured(const omm_pool *pool);

/* Abort unless this thread has IEEE default floating point (MXCSR / FPCR). */
void omm_fp_assert(void);

#endif
