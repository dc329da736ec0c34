/* compute.c - which instruction sets there are, and contexts on them. */
#include "omm/compute.h"

#include "kernels_table.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#endif
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

atomic_bool kernels_ask_near, kernels_ask_few_bits, kernels_strips_together;

static const char *const s_names[OMM_ISA_COUNT] = {"scalar", "avx2", "avx2_vnni",
                                                   "avx512", "neon", "neon_dotprod"};

const char *omm_isa_name(omm_isa isa) {
    OMM_ASSERT((unsigned)isa < OMM_ISA_COUNT);
    return s_names[isa];
}

/* What an instruction set computes with; NULL where this build has none. */
typedef struct tables {
    const struct omm_kernels *k;
    const struct omm_q8_kernels *q8;
} tables;

#if defined(__x86_64__)
/* Where glibc says that it may be used: a tunable that hides it from the C library hides it here. */
bool omm_isa_scalar_fuses(void) {
#ifdef CPU_FEATURE_ACTIVE
    return CPU_FEATURE_ACTIVE(FMA);
#else
    __builtin_cpu_init();
    return __builtin_cpu_supports("fma");
#endif
}

static tables tables_of(omm_isa isa) {
    if (isa == OMM_ISA_SCALAR)
        return omm_isa_scalar_fuses() ? (tables){&kernels_scalar_fma, &q8_scalar_fma}
                                      : (tables){&kernels_scalar, &q8_scalar};
    if (isa == OMM_ISA_AVX2) return (tables){&kernels_avx2, &q8_avx2};
    if (isa == OMM_ISA_AVX2_VNNI) return (tables){&kernels_avx2, &q8_avx2_vnni};
    return isa == OMM_ISA_AVX512 ? (tables){&kernels_avx512, &q8_avx512} : (tables){NULL, NULL};
}

/* By CPUID: clang 14 does not know the name for __builtin_cpu_supports. */
static bool has_f16c(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (unsigned)bit_F16C);
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

#ifdef OMM_AVX2_VNNI_BY_AVX512 /* cmake/OmmIsa.cmake */
static bool has_vnni_of_256_bits(void) {
    return has_avx512();
}
#else
static bool has_vnni_of_256_bits(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1U << 4);
}
#endif

static bool cpu_has(omm_isa isa) {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (isa == OMM_ISA_AVX2) return avx2;
    if (isa == OMM_ISA_AVX2_VNNI) return avx2 && has_vnni_of_256_bits();
    return avx2 && has_avx512();
}

static bool cpu_is_of(const char vendor[12]) {
    unsigned top = 0, name[3] = {0};
    return __get_cpuid(0, &top, &name[0], &name[2], &name[1]) &&
           memcmp(name, vendor, sizeof name) == 0;
}

/* 25 is Zen 3 and Zen 4, 26 Zen 5; 0: not AMD's. */
static unsigned amd_family(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!cpu_is_of("AuthenticAMD")) return 0;
    return __get_cpuid(1, &a, &b, &c, &d) ? (a >> 8 & 15) + (a >> 20 & 255) : 0;
}

/* From Zen 5 on: 1.1 to 1.6 times as fast.  Zen 4 and Intel's: as fast or slower. */
static bool cpu_asks_near(void) {
    return amd_family() >= 26;
}

/* Zen 4 reads them 1.1 to 1.5 times as fast unasked (of 8 bits: as fast, or more slowly).  Of its family it
 * alone has AVX-512. */
static bool cpu_asks_few_bits(void) {
    return amd_family() != 25 || !cpu_has(OMM_ISA_AVX512);
}

/* Intel's read several streams faster than one: weights of 8 bits 1.1 times, of less 1.3 times.  AMD's were measured
 * with one, which has what memory gives there. */
static bool cpu_takes_strips_together(void) {
    return cpu_is_of("GenuineIntel");
}
#elif defined(__aarch64__)
bool omm_isa_scalar_fuses(void) {
    return true; /* part of the base architecture */
}

static tables tables_of(omm_isa isa) {
    if (isa == OMM_ISA_SCALAR) return (tables){&kernels_scalar, &q8_scalar};
    if (isa == OMM_ISA_NEON) return (tables){&kernels_neon, &q8_neon};
    return isa == OMM_ISA_NEON_DOTPROD ? (tables){&kernels_neon, &q8_neon_dotprod}
                                       : (tables){NULL, NULL};
}

static bool cpu_has(omm_isa isa) {
    if (isa == OMM_ISA_NEON) return true; /* part of the base architecture */
    return isa == OMM_ISA_NEON_DOTPROD && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static bool cpu_asks_near(void) {
    return false;
}

static bool cpu_asks_few_bits(void) {
    return true;
}

static bool cpu_takes_strips_together(void) {
    return false;
}
#else
bool omm_isa_scalar_fuses(void) {
    return false; /* perhaps it does; nothing here chooses */
}

static tables tables_of(omm_isa isa) {
    return isa == OMM_ISA_SCALAR ? (tables){&kernels_scalar, &q8_scalar} : (tables){NULL, NULL};
}

static bool cpu_has(omm_isa isa) {
    return isa == OMM_ISA_SCALAR;
}

static bool cpu_asks_near(void) {
    return false;
}

static bool cpu_asks_few_bits(void) {
    return true;
}

static bool cpu_takes_strips_together(void) {
    return false;
}
#endif

bool omm_isa_available(omm_isa isa) {
    if ((unsigned)isa >= OMM_ISA_COUNT || !tables_of(isa).k) return false;
    return isa == OMM_ISA_SCALAR || cpu_has(isa);
}

static void available_list(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++) {
        if (!omm_isa_available((omm_isa)i)) continue;
        int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", s_names[i]);
        OMM_ASSERT(n > 0 && (size_t)n < size - used);
        used += (size_t)n;
    }
}

omm_err omm_isa_parse(omm_isa *out, const char *name) {
    char list[64];
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++) {
        if (strcmp(name, s_names[i]) != 0 || !omm_isa_available((omm_isa)i)) continue;
        *out = (omm_isa)i;
        return OMM_OK;
    }
    available_list(list, sizeof list);
    return omm_raise(OMM_ERR_CONFIG, "instruction set '%s' is not available here; choose from: %s",
                     name, list);
}

omm_err omm_isa_choose(omm_isa *out, const char *requested) {
    if (requested && requested[0]) return omm_isa_parse(out, requested);
    omm_isa best = OMM_ISA_SCALAR;
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++)
        if (omm_isa_available((omm_isa)i)) best = (omm_isa)i;
    *out = best;
    return OMM_OK;
}

omm_isa omm_isa_floats(omm_isa isa) {
    for (unsigned i = 0; i < (unsigned)isa; i++)
        if (tables_of((omm_isa)i).k == tables_of(isa).k) return (omm_isa)i;
    return isa;
}

bool omm_isa_lower(omm_isa *out, omm_isa isa) {
    for (int i = (int)isa - 1; i >= 0; i--) {
        if (!omm_isa_available((omm_isa)i) || omm_isa_floats((omm_isa)i) == omm_isa_floats(isa))
            continue;
        *out = (omm_isa)i;
        return true;
    }
    return false;
}

/* ---- memory that stays ---------------------------------------------------------------------- */

typedef struct omm_spare {
    void *block; /* the one that is kept, or in use, or NULL */
    size_t bytes;
    bool in_use;
} omm_spare;

static void *take_kept(omm_spare *s, size_t bytes) {
    if (s->bytes < bytes) {
        omm_free(s->block);
        *s = (omm_spare){0};
        s->block = omm_alloc_aligned(bytes, 1);
        if (!s->block) return NULL;
        s->bytes = bytes;
    }
    s->in_use = true;
    return s->block;
}

void *omm_compute_take(const omm_compute *c, size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    if (c->spare->in_use || bytes > OMM_COMPUTE_SPARE_BYTES_MAX)
        return omm_alloc_aligned(count, size);
    return take_kept(c->spare, bytes);
}

void omm_compute_give(const omm_compute *c, void *ptr) {
    if (ptr && ptr == c->spare->block)
        c->spare->in_use = false;
    else
        omm_free(ptr);
}

void omm_compute_rest(const omm_compute *c) {
    if (!c->spare->in_use) {
        omm_free(c->spare->block);
        *c->spare = (omm_spare){0};
    }
    omm_mem_forget(c->work, c->workers * c->work_floats * sizeof *c->work);
}

/* ---- contexts ------------------------------------------------------------------------------- */

omm_err omm_compute_init(omm_compute *c, omm_pool *pool, omm_isa isa) {
    char list[64];
    available_list(list, sizeof list);
    if (!omm_isa_available(isa))
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "instruction set %u is not available here; these "
                         "are: %s",
                         (unsigned)isa, list);
    omm_fp_assert();
    atomic_store_explicit(&kernels_ask_near, cpu_asks_near(), memory_order_relaxed);
    atomic_store_explicit(&kernels_ask_few_bits, cpu_asks_few_bits(), memory_order_relaxed);
    atomic_store_explicit(&kernels_strips_together, cpu_takes_strips_together(),
                          memory_order_relaxed);
    unsigned workers = omm_pool_threads(pool);
    float *work = (float *)omm_alloc_aligned((size_t)workers * WORK_FLOATS, sizeof *work);
    omm_spare *spare = (omm_spare *)omm_alloc(1, sizeof *spare);
    if (!work || !spare) {
        omm_free(work);
        omm_free(spare);
        return omm_raise(OMM_ERR_NOMEM, "no memory for the scratch space of %u threads", workers);
    }
    *c = (omm_compute){.pool = pool,
                       .isa = isa,
                       .k = tables_of(isa).k,
                       .q8 = tables_of(isa).q8,
                       .workers = workers,
                       .work = work,
                       .work_floats = WORK_FLOATS,
                       .spare = spare};
    return OMM_OK;
}

size_t omm_compute_bytes(unsigned threads) {
    return (size_t)threads * WORK_FLOATS * sizeof(float);
}

void omm_compute_fini(omm_compute *c) {
    OMM_ASSERT(!c->spare || !c->spare->in_use);
    if (c->spare) omm_free(c->spare->block);
    omm_free(c->spare);
    omm_free(c->work);
    *c = (omm_compute){0};
}
