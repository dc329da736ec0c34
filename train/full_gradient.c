/* full_gradient.c - sums over tokens: the gradients of matrices, norms, biases, embedding, output. */
#include "full.h"

#include "omm/mem.h"

#include <string.h>

enum {
    HEAD_FLOATS = 1 << 19, /* logits at once: 2 MiB, but at least those of one chunk */
    COLUMNS = 64,          /* of a vector's sum in one task */
    CLEARED = 1 << 17,     /* values in one task */
};

/* --- memory ---------------------------------------------------------------------------------- */

static size_t head_rows_of(const omm_model_dims *d, size_t rows_max) {
    size_t rows = HEAD_FLOATS / d->vocab;
    if (rows < OMM_TOKEN_CHUNK) rows = OMM_TOKEN_CHUNK;
    return rows < rows_max ? rows : rows_max;
}

uint64_t full_bytes_of(const omm_model *model, size_t value_count, size_t rows_max) {
    const omm_model_dims *d = &model->dims;
    const uint64_t logits = (uint64_t)d->vocab * (d->output_softcap != 0 ? 2 : 1);
    const uint64_t head = head_rows_of(d, rows_max) * (logits + 2 * (uint64_t)d->d_model + 2);
    const uint64_t lookups = model->tied ? (uint64_t)d->vocab * d->d_model : 0;
    return (value_count + lookups + head + (uint64_t)rows_max) * sizeof(float);
}

static omm_err take_head(full *f, const graph *g) {
    const omm_model_dims *d = &g->model->dims;
    f->head_rows = head_rows_of(d, g->rows_max);
    f->logits = omm_alloc_aligned(f->head_rows * d->vocab, sizeof(float));
    f->norm = omm_alloc_aligned(f->head_rows * d->d_model, sizeof(float));
    f->dnorm = omm_alloc_aligned(f->head_rows * d->d_model, sizeof(float));
    f->r = omm_alloc_aligned(f->head_rows, sizeof(float));
    if (d->output_softcap != 0)
        f->capped = omm_alloc_aligned((size_t)g->workers * d->vocab, sizeof(float));
    bool all = f->logits && f->norm && f->dnorm && f->r;
    if (all && (f->capped || d->output_softcap == 0)) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for %zu rows of logits", f->head_rows);
}

omm_err full_init(full *f, const full_tensors *t, const graph *g) {
    *f = (full){.tensors = t};
    OMM_TRY(take_head(f, g));
    if (g->model->tied) f->lookup_count = (size_t)g->model->embed.rows * g->model->embed.cols;
    f->gradient = omm_alloc_aligned(t->value_count, sizeof(float));
    if (f->lookup_count) f->lookups = omm_alloc_aligned(f->lookup_count, sizeof(float));
    f->head_ends = omm_alloc(g->rows_max, sizeof *f->head_ends);
    if (f->gradient && (f->lookups || !f->lookup_count) && f->head_ends) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for the gradients of %zu weights", t->value_count);
}

void full_fini(full *f) {
    omm_free(f->gradient);
    omm_free(f->lookups);
    omm_free(f->head_ends);
    omm_free(f->logits);
    omm_free(f->capped);
    omm_free(f->norm);
    omm_free(f->dnorm);
    omm_free(f->r);
    *f = (full){0};
}

static void clear_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const full *f = ud;
    const size_t at = task * CLEARED, left = f->tensors->value_count - at;
    memset(f->gradient + at, 0, (left < CLEARED ? left : CLEARED) * sizeof(float));
}

void full_begin(full *f, const omm_compute *c) {
    omm_pool_run(c->pool, clear_task, f, (f->tensors->value_count + CLEARED - 1) / CLEARED);
    if (f->lookups) memset(f->lookups, 0, f->lookup_count * sizeof(float));
}

void full_end(full *f, const omm_compute *c, const omm_model *model) {
    if (!f->lookups) return;
    float *to = f->gradient + full_tensor_at(f->tensors, &model->embed)->offset;
    omm_vec_add(c, to, f->lookups, f->lookup_count);
}

/* --- chunks ---------------------------------------------------------------------------------- */

/* Rows are all of the micro-batch, `each` of a token, or the judged ones.  Where both are as many,
 * they are the same. */
typedef struct chunks {
    const uint32_t *ends;
    size_t count, each;
} chunks;

static chunks chunks_of(const graph *g, size_t rows) {
    if (rows == g->learned) return (chunks){g->picked_ends, g->picked_end_count, 1};
    OMM_ASSERT(rows % g->rows == 0);
    return (chunks){g->ends, g->end_count, rows / g->rows};
}

static float *gradient_at(const graph *g, const void *weight) {
    const full *f = g->full;
    return f->gradient + full_tensor_at(f->tensors, weight)->offset;
}

/* --- weights --------------------------------------------------------------------------------- */

typedef struct column_job {
    float *out;
    const float *dy, *x, *r; /* x, r NULL: of a bias */
    chunks chunks;
    size_t n;
} column_job;

/* sum[width] += row i of the products, `at` its first column. */
static void add_row(float *restrict sum, const column_job *job, size_t row, size_t at,
                    size_t width) {
    const float *dy = job->dy + row * job->n + at;
    if (!job->x) {
        for (size_t j = 0; j < width; j++) sum[j] += dy[j];
        return;
    }
    const float *x = job->x + row * job->n + at, r = job->r[row];
    for (size_t j = 0; j < width; j++) sum[j] += dy[j] * (x[j] * r);
}

static void column_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const column_job *job = ud;
    const size_t at = task * COLUMNS, width = job->n - at < COLUMNS ? job->n - at : COLUMNS;
    size_t row = 0;
    for (size_t i = 0; i < job->chunks.count; i++) {
        float sum[COLUMNS] = {0};
        for (const size_t end = job->chunks.ends[i] * job->chunks.each; row < end; row++)
            add_row(sum, job, row, at, width);
        for (size_t j = 0; j < width; j++) job->out[at + j] += sum[j];
    }
}

static void add_columns(const graph *g, column_job *job) {
    omm_pool_run(g->compute->pool, column_task, job, (job->n + COLUMNS - 1) / COLUMNS);
}

void full_norm(graph *g, const float *w, const float *dy, const float *x, const float *r,
               size_t count, size_t n) {
    column_job job = {gradient_at(g, w), dy, x, r, chunks_of(g, count), n};
    add_columns(g, &job);
}

omm_product full_sum(const graph *g, const omm_layer *layer, omm_lora_target target,
                     const float *dy, const float *x, size_t count) {
    const omm_matrix *w = &layer->weights[target];
    omm_product sum = {.kind = OMM_PRODUCT_CHUNKS, .ends = chunks_of(g, count).ends};
    sum.plain = (omm_gemm){.a = dy, .b = x, .m = w->rows, .n = w->cols, .k = count};
    sum.plain.c = gradient_at(g, w);
    sum.plain.lda = w->rows;
    sum.plain.ldb = sum.plain.ldc = w->cols;
    sum.plain.accumulate = true;
    return sum;
}

void full_bias(graph *g, const omm_layer *layer, omm_lora_target target, const float *dy,
               size_t count) {
    const float *bias = layer->bias[target];
    const size_t n = layer->weights[target].rows;
    if (!bias) return;
    column_job job = {gradient_at(g, bias), dy, NULL, NULL, chunks_of(g, count), n};
    add_columns(g, &job);
}

/* --- output ---------------------------------------------------------------------------------- */

/* Losses of `count` whole chunks, judged rows first .. first + n - 1, and what follows from their
 * logits. */
static void head_chunks(graph *g, float *nll, size_t first, size_t n, size_t count,
                        float loss_scale) {
    const omm_compute *c = g->compute;
    const omm_model *model = g->model;
    full *f = g->full;
    const size_t width = model->dims.d_model;
    const float *x = g->picked + first * width;
    omm_rmsnorm_forward(c, f->norm, f->r, x, model->output_norm, n, width, model->dims.rms_eps);
    omm_linear_forward(c, f->logits, f->norm, model->output, n, false);
    graph_judge(g, nll, f->logits, f->capped, first, n, loss_scale);
    omm_gemm sum = {.a = f->logits, .b = f->norm, .m = model->dims.vocab, .n = width, .k = n};
    sum.c = gradient_at(g, model->output);
    sum.lda = sum.m;
    sum.ldb = sum.ldc = width;
    sum.accumulate = true;
    omm_gemm_tn_chunks(c, &sum, f->head_ends);
    omm_linear_backward(c, f->dnorm, f->logits, model->output, n, false);
    column_job job = {.out = gradient_at(g, model->output_norm),
                      .dy = f->dnorm,
                      .x = x,
                      .r = f->r,
                      .chunks = {f->head_ends, count, 1},
                      .n = width};
    add_columns(g, &job);
    graph_rows_norm(g, g->dx + first * width, f->dnorm, x, model->output_norm, f->r, n, width);
}

void full_head(graph *g, float *nll, float loss_scale) {
    full *f = g->full;
    memset(g->dx, 0, g->learned * g->model->dims.d_model * sizeof(float));
    for (size_t i = 0, first = 0; i < g->picked_end_count;) {
        size_t count = 0, n = 0;
        while (i < g->picked_end_count && g->picked_ends[i] - first <= f->head_rows) {
            n = g->picked_ends[i++] - first;
            f->head_ends[count++] = (uint32_t)n;
        }
        OMM_ASSERT(n > 0);
        head_chunks(g, nll + first, first, n, count, loss_scale);
        first += n;
    }
}

/* --- embedding ------------------------------------------------------------------------------- */

/* Rows from .. end are one chunk: what each id of it has gathered, columns at .. at + width. */
static void embed_chunk(const graph *g, float *out, size_t from, size_t end, size_t at,
                        size_t width) {
    const size_t n = g->model->dims.d_model;
    for (size_t i = from; i < end; i++) {
        size_t before = from;
        while (g->ids[before] != g->ids[i]) before++;
        if (before < i) continue; /* summed with its first token */
        float sum[COLUMNS] = {0};
        for (size_t k = i; k < end; k++)
            for (size_t j = 0; g->ids[k] == g->ids[i] && j < width; j++)
                sum[j] += g->dx[k * n + at + j];
        float *to = out + (size_t)g->ids[i] * n + at;
        for (size_t j = 0; j < width; j++) to[j] += sum[j];
    }
}

static void embed_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const graph *g = ud;
    const full *f = g->full;
    const size_t n = g->model->dims.d_model, at = task * COLUMNS;
    const size_t width = n - at < COLUMNS ? n - at : COLUMNS;
    float *out = f->lookups ? f->lookups : gradient_at(g, &g->model->embed);
    for (size_t i = 0, from = 0; i < g->end_count; from = g->ends[i++])
        embed_chunk(g, out, from, g->ends[i], at, width);
}

void full_embedding(graph *g) {
    const omm_model_dims *d = &g->model->dims;
    if (d->embed_scale != 1)
        omm_vec_scale(g->compute, g->dx, g->dx, d->embed_scale, g->rows * d->d_model);
    omm_pool_run(g->compute->pool, embed_task, g, (d->d_model + COLUMNS - 1) / COLUMNS);
}
