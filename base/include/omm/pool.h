/* pool.h - a thread pool that runs numbered tasks; results must not depend on who runs which.
 *
 * omm_pool_run(pool, fn, ud, n) calls fn(ud, task, worker) once for each task 0..n-1 and returns
 * when all are done.  Workers take tasks in ascending order from one counter; the caller works
 * too.  Idle workers spin briefly, then sleep.  Every worker asserts that the floating-point
 * control word is the IEEE default (no flush-to-zero, round to nearest).
 *
 * Depends on: err, mem.  Threads: one omm_pool_run at a time per pool; a task may not call
 * omm_pool_run on its own pool.  pool == NULL means "this thread alone".
 */
#ifndef OMM_POOL_H
#define OMM_POOL_H

#include "omm/err.h"

#include <stddef.h>

#define OMM_POOL_THREADS_MAX 256u

typedef struct omm_pool omm_pool;
/* worker: 0 .. threads-1, stable within one run; index scratch memory by it. */
typedef void (*omm_pool_fn)(void *ud, size_t task, unsigned worker);

/* threads: 1 .. OMM_POOL_THREADS_MAX, the caller included.  Errors: NOMEM, IO (no thread). */
OMM_CHECKED omm_err omm_pool_open(omm_pool **out, unsigned threads);
void omm_pool_close(omm_pool *pool);
unsigned omm_pool_threads(const omm_pool *pool); /* 1 for NULL */
void omm_pool_run(omm_pool *pool, omm_pool_fn fn, void *ud, size_t tasks);

/* Online processors this process may use, at least 1. */
unsigned omm_cpu_count(void);
/* Abort unless this thread has IEEE default floating point (MXCSR / FPCR). */
void omm_fp_assert(void);

#endif
