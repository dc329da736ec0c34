/* peaks.c - chunks of the loops of peaks_body.h over the threads of a context, the best one kept.
 *
 * A chunk is at most about CHUNK_NS of work, found by doubling, or READ_CHUNK_BYTES to read; its tasks
 * are several per thread, so that a thread that wakes late does not decide the figure.
 */
#include "omm/peaks.h"

#include "omm/clock.h"
#include "omm/mem.h"
#include "peaks_loops.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_NS 2000000u /* shorter than a time slice: some chunks run undisturbed */
#define TASKS_PER_THREAD 4u
#define READ_CHUNK_BYTES ((size_t)64 << 20)
#define READ_TASK_BYTES ((size_t)64 << 10) /* what decode takes: no thread waits long for another */
#define BUFFER_BYTES_MIN ((size_t)512 << 20)
#define BUFFER_BYTES_MAX ((size_t)2 << 30)

const peaks_loops *peaks_loops_of(omm_isa isa) {
#if defined(__x86_64__)
    if (isa == OMM_ISA_SCALAR && omm_isa_scalar_fuses()) return &peaks_scalar_fma;
    if (isa == OMM_ISA_AVX2) return &peaks_avx2;
    if (isa == OMM_ISA_AVX2_VNNI) return &peaks_avx2_vnni;
    if (isa == OMM_ISA_AVX512) return &peaks_avx512;
#elif defined(__aarch64__)
    if (isa == OMM_ISA_NEON) return &peaks_neon;
    if (isa == OMM_ISA_NEON_DOTPROD) return &peaks_neon_dotprod;
#endif
    OMM_ASSERT(isa == OMM_ISA_SCALAR);
    return &peaks_scalar;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

typedef enum peak_figure { FIGURE_READ, FIGURE_FMA, FIGURE_DOT } peak_figure;

typedef struct chunk {
    const peaks_loops *loops;
    const uint8_t *data;
    peak_figure figure;
    uint64_t work;   /* per task: bytes, or rounds */
    atomic_int sink; /* what the loops return goes somewhere */
} chunk;

static void chunk_task(void *ud, size_t task, unsigned worker) {
    chunk *c = (chunk *)ud;
    float sums[PEAKS_LANES] = {0};
    int32_t result = 0, totals[PEAKS_LANES] = {0};
    (void)worker;
    switch (c->figure) {
    case FIGURE_READ: result = c->loops->read(c->data + task * c->work, (size_t)c->work); break;
    case FIGURE_FMA:
        c->loops->fma(sums, 0.999f, 0.001f, c->work);
        result = (int32_t)sums[0];
        break;
    default:
        c->loops->dot(totals, 0, 0x01020304, c->work);
        result = totals[0];
        break;
    }
    atomic_store_explicit(&c->sink, result, memory_order_relaxed);
}

static double amount(const chunk *c, size_t tasks) {
    const unsigned per_unit =
        c->figure == FIGURE_FMA ? c->loops->fma_per_round : c->loops->dot_per_round;
    return (double)c->work * (double)tasks * per_unit;
}

/* Next part of the buffer, so that no chunk finds in a cache what the one before it read. */
static const uint8_t *next_part(omm_peaks *p, size_t bytes) {
    if (p->at + bytes > p->buffer_bytes) p->at = 0;
    const uint8_t *data = p->buffer + p->at;
    p->at += bytes;
    return data;
}

/* One chunk; returns seconds. */
static double read_chunk(omm_peaks *p) {
    chunk c = {.loops = peaks_loops_of(p->c->isa),
               .data = next_part(p, READ_CHUNK_BYTES),
               .figure = FIGURE_READ,
               .work = READ_TASK_BYTES};
    const uint64_t begin = omm_measure_ns();
    omm_pool_run(p->c->pool, chunk_task, &c, READ_CHUNK_BYTES / READ_TASK_BYTES);
    const double spent = (double)(omm_measure_ns() - begin + 1) * 1e-9; /* never 0 */
    const double rate = (double)READ_CHUNK_BYTES / spent;
    p->read_total += (double)READ_CHUNK_BYTES;
    p->read_seconds += spent;
    if (rate > p->read_bytes) p->read_bytes = rate;
    return spent;
}

double omm_peaks_read(omm_peaks *p, double bytes) {
    double done = 0.0, spent = 0.0;
    do {
        spent += read_chunk(p);
        done += (double)READ_CHUNK_BYTES;
    } while (done < bytes);
    return done / spent;
}

static void measure_read(omm_peaks *p, double seconds) {
    const uint64_t start = omm_measure_ns(), limit = (uint64_t)(seconds * 1e9);
    do {
        (void)read_chunk(p);
    } while (omm_measure_ns() - start < limit);
}

/* Returns the mean rate of all chunks; *best becomes that of the best, if it is better. */
static double measure(double *best, const omm_peaks *p, peak_figure figure, double seconds) {
    const size_t tasks = (size_t)p->c->workers * TASKS_PER_THREAD;
    chunk c = {.loops = peaks_loops_of(p->c->isa), .figure = figure, .work = 1024};
    const uint64_t start = omm_measure_ns(), limit = (uint64_t)(seconds * 1e9);
    double done = 0.0, done_ns = 0.0;
    uint64_t now;
    do {
        const uint64_t begin = omm_measure_ns();
        omm_pool_run(p->c->pool, chunk_task, &c, tasks);
        now = omm_measure_ns();
        const uint64_t spent = now - begin;
        if (spent < CHUNK_NS / 2) {
            c.work *= 2;
            continue;
        }
        const double rate = amount(&c, tasks) * 1e9 / (double)spent;
        if (rate > *best) *best = rate;
        done += amount(&c, tasks);
        done_ns += (double)spent;
    } while (now - start < limit || done == 0.0);
    return done * 1e9 / done_ns;
}

/* ---- the buffer ------------------------------------------------------------------------------ */

size_t omm_peaks_buffer_bytes(void) {
    size_t bytes = BUFFER_BYTES_MIN;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && 2 * (size_t)cache > bytes) bytes = 2 * (size_t)cache;
#endif
    return bytes < BUFFER_BYTES_MAX ? bytes : BUFFER_BYTES_MAX;
}

omm_err omm_peaks_open(omm_peaks *p, const omm_compute *c, size_t buffer_bytes) {
    *p =
        (omm_peaks){.c = c, .buffer_bytes = buffer_bytes ? buffer_bytes : omm_peaks_buffer_bytes()};
    OMM_ASSERT(p->buffer_bytes >= READ_CHUNK_BYTES);
    /* Large pages where there are some: otherwise this measures page tables.  The reads may ask for
     * lines a little behind the end, which is harmless. */
    void *data =
        mmap(NULL, p->buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        const size_t bytes = p->buffer_bytes;
        *p = (omm_peaks){0};
        return omm_raise(OMM_ERR_NOMEM, "no memory for a buffer of %zu bytes to read", bytes);
    }
    p->buffer = (uint8_t *)data;
    (void)madvise(data, p->buffer_bytes, MADV_HUGEPAGE);
    memset(data, 1, p->buffer_bytes);
    return OMM_OK;
}

void omm_peaks_close(omm_peaks *p) {
    if (p->buffer) OMM_ASSERT(munmap(p->buffer, p->buffer_bytes) == 0);
    *p = (omm_peaks){0};
}

double omm_peaks_read_sustained(const omm_peaks *p) {
    return p->read_seconds > 0.0 ? p->read_total / p->read_seconds : 0.0;
}

double omm_peaks_fma(omm_peaks *p, double seconds) {
    return measure(&p->fma_flops, p, FIGURE_FMA, seconds);
}

void omm_peaks_update(omm_peaks *p, double seconds) {
    measure_read(p, seconds);
    (void)omm_peaks_fma(p, seconds);
    (void)measure(&p->dot_ops, p, FIGURE_DOT, seconds);
}
