/* graph_adapters.c - the adapters of a batch: which rows have which, their products and terms. */
#include "graph.h"
#include "omm/mem.h"

omm_err model_graph_reserve(model_graph *g, const omm_adapter *const *adapters, size_t count) {
    size_t width = 0, rows = g->options.rows_max;
    OMM_ASSERT(count <= OMM_ADAPTERS_MAX);
    for (size_t i = 0; i < count; i++) width += adapters[i]->rows_max;
    if (width <= g->z_width) return OMM_OK;
    float *z = NULL;
    omm_linear_term *terms = g->terms;
    if (!terms) terms = (omm_linear_term *)omm_alloc(rows * GRAPH_TERMS_PER_ROW, sizeof *terms);
    if (!terms) return omm_raise(OMM_ERR_NOMEM, "no memory for the adapters' terms");
    g->terms = terms;
    z = (float *)omm_alloc_aligned(rows * width, sizeof *z);
    if (!z) return omm_raise(OMM_ERR_NOMEM, "no memory for the adapters of %zu tokens", rows);
    omm_free(g->z);
    g->z = z;
    g->z_width = width;
    return OMM_OK;
}

/* Consecutive rows with the same adapters. */
void model_graph_find_runs(model_graph *g) {
    size_t row = 0, count = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        const model_span *s = &g->spans[i];
        model_run *last = count ? &g->runs[count - 1] : NULL;
        bool same = last && last->adapter_count == s->adapter_count;
        for (size_t j = 0; same && j < s->adapter_count; j++)
            same = last->adapters[j] == s->adapters[j];
        if (!same) {
            last = &g->runs[count++];
            *last = (model_run){s->adapters, s->adapter_count, row, 0};
        }
        last->rows += s->rows;
        row += s->rows;
    }
    g->run_count = count;
}

/* Where z of the next adapter of a run lies: after `used` columns of the run's part. */
static float *z_next(const model_graph *g, const model_run *run, size_t *used,
                     const omm_matrix *a) {
    float *z = g->z + run->first * g->z_width + run->rows * *used;
    *used += a->rows;
    OMM_ASSERT(*used <= g->z_width);
    return z;
}

/* On this thread alone: it may be inside a task. */
static void scale_alone(const model_graph *g, float *z, float by, size_t count) {
    omm_compute alone = *g->c;
    alone.workers = 1;
    omm_vec_scale(&alone, z, z, by, count);
}

/* Pairs that share an A have most often one scale. */
static void scale_z(const model_graph *g, float *z, const omm_adapter *adapter,
                    const adapter_layer *l, adapter_input input, size_t rows) {
    const size_t width = l->a[input].rows;
    if (l->one_scale[input]) {
        scale_alone(g, z, adapter->scale * l->scale[input], rows * width);
        return;
    }
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        if (!l->b[t].data || adapter_input_of((omm_lora_target)t) != input) continue;
        for (size_t i = 0; i < rows; i++) {
            float *part = z + i * width + l->row[t];
            scale_alone(g, part, adapter->scale * l->pair_scale[t], l->b[t].cols);
        }
    }
}

/* z of one run's rows alone, in the arithmetic that it has with all rows alike. */
static void lower_run(model_graph *g, float *z, const float *x, const omm_matrix *a,
                      const model_run *run, size_t width) {
    if (!model_graph_takes_q8(g, a)) {
        omm_linear_forward(g->c, z, x + run->first * width, a, run->rows, false);
        return;
    }
    model_graph_quantise(g, x, g->rows, width);
    omm_linear_q8_rows(g->c, z - run->first * a->rows, &g->q8, a, run->first, run->rows);
}

size_t model_graph_lower(model_graph *g, omm_linear *products, const float *x, uint32_t layer,
                         adapter_input input, size_t width) {
    size_t count = 0;
    for (size_t i = 0; i < g->run_count; i++) {
        const model_run *run = &g->runs[i];
        size_t used = 0;
        for (size_t j = 0; j < run->adapter_count; j++) {
            const omm_matrix *a = &run->adapters[j]->layers[layer].a[input];
            if (!a->data) continue;
            float *z = z_next(g, run, &used, a);
            if (g->run_count == 1)
                products[count++] = (omm_linear){.y = z, .w = a};
            else
                lower_run(g, z, x, a, run, width);
        }
    }
    return count;
}

void model_graph_scale(void *ud) {
    const model_graph_scaling *scaling = (const model_graph_scaling *)ud;
    const model_graph *g = scaling->graph;
    const adapter_input input = scaling->input;
    for (size_t i = 0; i < g->run_count; i++) {
        const model_run *run = &g->runs[i];
        size_t used = 0;
        for (size_t j = 0; j < run->adapter_count; j++) {
            const adapter_layer *l = &run->adapters[j]->layers[scaling->layer];
            if (!l->a[input].data) continue;
            scale_z(g, z_next(g, run, &used, &l->a[input]), run->adapters[j], l, input, run->rows);
        }
    }
}

/* The terms that adapters add to one target, in the order of rows and of each run's adapters. */
size_t model_graph_terms(omm_linear_term *terms, const model_graph *g, uint32_t layer,
                         omm_lora_target target) {
    const adapter_input input = adapter_input_of(target);
    size_t count = 0;
    for (size_t i = 0; i < g->run_count; i++) {
        const model_run *run = &g->runs[i];
        size_t used = 0;
        for (size_t j = 0; j < run->adapter_count; j++) {
            const adapter_layer *l = &run->adapters[j]->layers[layer];
            if (!l->a[input].data) continue;
            const float *z = z_next(g, run, &used, &l->a[input]);
            if (!l->b[target].data) continue;
            terms[count++] = (omm_linear_term){.z = z + l->row[target],
                                               .b = &l->b[target],
                                               .first = run->first,
                                               .rows = run->rows,
                                               .z_stride = l->a[input].rows};
        }
    }
    return count;
}
