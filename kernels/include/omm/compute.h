/* compute.h - where arithmetic runs: an instruction set, a thread pool and scratch memory.
 *
 * All instruction sets give identical bytes for every kernel, with any number of threads; the
 * choice is about speed, and about checking that claim on one machine (the reproducibility gate
 * replays on a lower instruction set).  There are no globals: one process may hold several
 * contexts at once, of different instruction sets and pools, over one read-only model.
 *
 * Depends on: err, mem, pool.  Threads: one call at a time per context, because the scratch memory
 * belongs to it; use one context (without a pool) per thread to run independent work in parallel.
 */
#ifndef OMM_COMPUTE_H
#define OMM_COMPUTE_H

#include "omm/err.h"
#include "omm/pool.h"

#include <stdbool.h>
#include <stddef.h>

/* In rising order of preference within one architecture.  The names ("scalar", ...) are in
 * evidence files. */
typedef enum omm_isa {
    OMM_ISA_SCALAR,    /* plain C: the definition that the others are tested against */
    OMM_ISA_AVX2,      /* AVX2, FMA, F16C */
    OMM_ISA_AVX2_VNNI, /* with AVX-VNNI: Intel's from Alder Lake on, AMD's from Zen 5 on */
    OMM_ISA_AVX512,    /* AVX-512 F, BW, DQ, VL and VNNI */
    OMM_ISA_NEON,      /* AArch64 */
    OMM_ISA_NEON_DOTPROD, /* with products of bytes (ASIMDDP): Cortex-A55 and A75 on, all of Apple's since 2019 */
    OMM_ISA_COUNT
} omm_isa;

/* Tables of one instruction set: kernels_table.h, private to engine. */
struct omm_kernels;
struct omm_q8_kernels;

typedef struct omm_compute {
    omm_pool *pool; /* borrowed; NULL: the calling thread alone */
    omm_isa isa;
    const struct omm_kernels *k;
    const struct omm_q8_kernels *q8;
    unsigned workers; /* omm_pool_threads(pool) */
    float *work;      /* scratch, `work_floats` for each worker, 64-byte aligned; owned */
    size_t work_floats;
    struct omm_spare *spare; /* of omm_compute_take; owned */
} omm_compute;

const char *omm_isa_name(omm_isa isa);
/* Built in, and this processor has it. */
bool omm_isa_available(omm_isa isa);
/* Errors: CONFIG (names the instruction sets that are available here). */
OMM_CHECKED omm_err omm_isa_parse(omm_isa *out, const char *name);
/* The value of the environment variable OMM_ISA if given, else the best available.
 * `requested` is that value or NULL; the caller reads the environment.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_isa_choose(omm_isa *out, const char *requested);
/* Does OMM_ISA_SCALAR use the processor's fma here, or call the C library for each?  The same bytes, at other speeds (decision 133). */
bool omm_isa_scalar_fuses(void);
/* The one whose floats an available one computes with: itself, or the one that it adds products of bytes to. */
omm_isa omm_isa_floats(omm_isa isa);
/* The next lower available one that has other float products (training is all floats), for replays; false when there is
 * none. */
bool omm_isa_lower(omm_isa *out, omm_isa isa);

/* pool may be NULL and must outlive the context.  Aborts when this thread's floating point
 * is not the IEEE default.  Release with omm_compute_fini.
 * Errors: UNSUPPORTED (isa is not available; says which are), NOMEM. */
OMM_CHECKED omm_err omm_compute_init(omm_compute *c, omm_pool *pool, omm_isa isa);
void omm_compute_fini(omm_compute *c);
size_t omm_compute_bytes(unsigned threads); /* of scratch that init takes */

/* Memory of a job that is one of many: count * size bytes, 64-byte aligned, contents undefined.
 * One block of up to OMM_COMPUTE_SPARE_BYTES_MAX is kept when it is given back and serves the next
 * call that it is large enough for, so that a job of a second does not begin with thousands of page
 * faults.  NULL: no memory. */
#define OMM_COMPUTE_SPARE_BYTES_MAX ((size_t)64 << 20)
void *omm_compute_take(const omm_compute *c, size_t count, size_t size);
/* Give back what omm_compute_take of the same context returned; NULL is allowed. */
void omm_compute_give(const omm_compute *c, void *ptr);
/* Nothing will be computed for a while: the block that is kept is freed unless it is in use, and the scratch space, which
 * holds nothing between two calls, is given back to the system until it is used again. */
void omm_compute_rest(const omm_compute *c);

#endif
