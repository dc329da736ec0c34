/* bench_figures.c - see bench_figures.h. */
#include "bench_figures.h"

#include "omm/memory.h"

#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bench_spread bench_spread_of(double *values, uint32_t n) {
    qsort(values, n, sizeof *values, ascending);
    return (bench_spread){.median = (values[(n - 1) / 2] + values[n / 2]) / 2.0,
                          .min = values[0],
                          .max = values[n - 1]};
}

json_t *bench_spread_json(const bench_spread *s) {
    return json_pack("{s:f, s:f, s:f}", "median", s->median, "min", s->min, "max", s->max);
}

double bench_share(double figure, double peak) {
    return peak > 0.0 ? figure / peak : 0.0;
}

omm_err bench_json_print(json_t *take) {
    omm_buf out;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err =
        take ? omm_json_write(&out, take) : omm_raise(OMM_ERR_NOMEM, "no memory for a report");
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(take);
    return err;
}

omm_err bench_load(omm_model *model, char architecture[BENCH_ARCHITECTURE_MAX],
                   const omm_gguf *gguf, const omm_packed *packed, uint32_t resident) {
    omm_pool *pool = NULL;
    OMM_TRY(omm_gguf_get_text(architecture, BENCH_ARCHITECTURE_MAX, gguf, "general.architecture"));
    OMM_TRY(omm_pool_open(&pool, omm_threads_default()));
    omm_err err = cli_packed_load(model, packed, pool, gguf, resident);
    omm_pool_close(pool);
    return err;
}

uint64_t bench_memory_peak(uint64_t before) {
    const uint64_t peak = omm_memory_peak();
    return peak > before ? peak : omm_memory_resident();
}

omm_err bench_processors_open(bench_processors *p, unsigned threads, omm_isa isa) {
    *p = (bench_processors){0};
    OMM_TRY(omm_pool_open(&p->pool, threads));
    return omm_compute_init(&p->c, p->pool, isa);
}

void bench_processors_close(bench_processors *p) {
    omm_peaks_close(&p->peaks);
    if (p->c.work) omm_compute_fini(&p->c);
    omm_pool_close(p->pool);
    *p = (bench_processors){0};
}
