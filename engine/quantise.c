/* quantise.c - a model read from its map and written piece by piece in other types. */
#include "quantise_internal.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/quant.h"
#include "omm/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE_VALUES = 1 << 20, /* written at once; one row where that is longer */
    TASK_VALUES = 1 << 14,  /* of one task */
    HEADER_BYTES_MAX = 1 << 29,
};

/* What happened in one row. */
typedef struct row_result {
    double squares, error_squares, error_max;
    omm_err err;
} row_result;

typedef struct job {
    const omm_gguf *in;
    omm_quantise_report report;
    omm_gguf_writer w;
    omm_file_out file;
    omm_pool *pool;
    uint8_t *out;        /* one piece */
    float *values;       /* [workers][2][cols_max]: read, and read back */
    row_result *results; /* [rows of a piece] */
    size_t cols_max;
    uint32_t file_type;
    /* The piece in work. */
    const omm_gguf_tensor *t;
    omm_ggml_type to;
    uint64_t row;
    size_t rows, rows_of_task;
    size_t stride_from, stride_to;
} job;

void omm_quantise_report_fini(omm_quantise_report *report) {
    omm_free(report->tensors);
    *report = (omm_quantise_report){0};
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void measure(row_result *r, const float *was, const float *is, size_t cols) {
    for (size_t i = 0; i < cols; i++) {
        const double e = (double)is[i] - (double)was[i];
        r->squares += (double)was[i] * (double)was[i];
        r->error_squares += e * e;
        r->error_max = fabs(e) > r->error_max ? fabs(e) : r->error_max;
    }
}

/* Same type: the bytes as they are, when their values are finite. */
static omm_err convert_row(uint8_t *out, float *values, const job *j, const uint8_t *from) {
    const size_t cols = (size_t)j->t->dims[0];
    const size_t bad = omm_rows_check(j->t->type, from, cols);
    if (bad < cols) return omm_raise(OMM_ERR_NUMERIC, "column %zu is not a finite number", bad);
    omm_rows_dequantise(values, j->t->type, from, cols);
    if (j->to != j->t->type) return omm_rows_quantise(out, j->to, values, cols);
    memcpy(out, from, j->stride_to);
    return OMM_OK;
}

static void task(void *ud, size_t index, unsigned worker) {
    const job *j = (const job *)ud;
    const size_t cols = (size_t)j->t->dims[0];
    float *values = j->values + 2 * (size_t)worker * j->cols_max;
    const size_t begin = index * j->rows_of_task;
    for (size_t i = begin; i < begin + j->rows_of_task && i < j->rows; i++) {
        row_result *r = &j->results[i];
        uint8_t *out = j->out + i * j->stride_to;
        *r = (row_result){0};
        r->err = convert_row(out, values, j, j->t->data.data + (j->row + i) * j->stride_from);
        if (r->err != OMM_OK) continue;
        omm_rows_dequantise(values + j->cols_max, j->to, out, cols);
        measure(r, values, values + j->cols_max, cols);
    }
}

/* The sentence of a failed row was said on another thread: say it again on this one. */
static omm_err row_error(job *j, size_t i) {
    const uint8_t *from = j->t->data.data + (j->row + i) * j->stride_from;
    omm_err err = convert_row(j->out, j->values, j, from);
    OMM_ASSERT(err != OMM_OK);
    return omm_raise(err, "tensor '%s', row %llu: %s", j->t->name, (unsigned long long)(j->row + i),
                     omm_err_sentence());
}

/* Rows in ascending order, so that the sums do not depend on threads. */
static omm_err add_results(job *j, omm_quantise_tensor *sum) {
    for (size_t i = 0; i < j->rows; i++) {
        const row_result *r = &j->results[i];
        if (r->err != OMM_OK) return row_error(j, i);
        sum->squares += r->squares;
        sum->error_squares += r->error_squares;
        sum->error_max = r->error_max > sum->error_max ? r->error_max : sum->error_max;
    }
    return OMM_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static size_t at_least_one(size_t n) {
    return n > 0 ? n : 1;
}

static omm_err write_tensor(job *j, size_t index) {
    static const uint8_t zeros[4096];
    omm_quantise_tensor *sum = &j->report.tensors[index];
    j->t = &j->in->tensors[index];
    j->to = sum->to;
    const size_t cols = (size_t)j->t->dims[0];
    const uint64_t rows = quantise_rows(j->t);
    const size_t step = at_least_one(PIECE_VALUES / cols);
    j->rows_of_task = at_least_one(TASK_VALUES / cols);
    j->stride_from = omm_rows_stride(j->t->type, cols);
    j->stride_to = omm_rows_stride(j->to, cols);
    for (j->row = 0; j->row < rows; j->row += j->rows) {
        j->rows = rows - j->row < step ? (size_t)(rows - j->row) : step;
        omm_pool_run(j->pool, task, j, (j->rows + j->rows_of_task - 1) / j->rows_of_task);
        OMM_TRY(add_results(j, sum));
        OMM_TRY(omm_file_out_write(&j->file, omm_bytes_of(j->out, j->rows * j->stride_to)));
    }
    for (uint32_t left = omm_gguf_padding(&j->w, sum->bytes_to); left > 0;) {
        const uint32_t n = left < sizeof zeros ? left : (uint32_t)sizeof zeros;
        OMM_TRY(omm_file_out_write(&j->file, omm_bytes_of(zeros, n)));
        left -= n;
    }
    return OMM_OK;
}

static bool is_key(const omm_gguf_kv *kv, const char *name) {
    return omm_bytes_equal(kv->key, omm_bytes_str(name));
}

static void put_keys(job *j) {
    static const char type_key[] = "general.file_type";
    static const char version_key[] = "general.quantization_version";
    for (size_t i = 0; i < j->in->kv_count; i++) {
        const omm_gguf_kv *kv = &j->in->kvs[i];
        if (!omm_gguf_is_split_key(kv->key) && !is_key(kv, type_key) && !is_key(kv, version_key))
            omm_gguf_put_kv(&j->w, kv);
    }
    omm_gguf_put_u32(&j->w, type_key, j->file_type);
    omm_gguf_put_u32(&j->w, version_key, 2);
}

/* Behind the header. */
static uint64_t data_bytes(const job *j) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < j->report.count; i++) {
        const uint64_t own = j->report.tensors[i].bytes_to;
        bytes += own + omm_gguf_padding(&j->w, own);
    }
    return bytes;
}

static omm_err write_header(job *j) {
    omm_buf header;
    put_keys(j);
    for (size_t i = 0; i < j->in->tensor_count; i++) {
        const omm_gguf_tensor *t = &j->in->tensors[i];
        const uint32_t to = (uint32_t)j->report.tensors[i].to;
        omm_gguf_put_tensor_info(&j->w, t->name, to, t->n_dims, t->dims);
    }
    omm_buf_init(&header, HEADER_BYTES_MAX);
    omm_err err = omm_gguf_writer_header(&header, &j->w);
    if (err == OMM_OK) err = omm_file_check_room(j->file.path, header.size + data_bytes(j));
    if (err == OMM_OK) err = omm_file_out_write(&j->file, omm_buf_view(&header));
    omm_buf_fini(&header);
    return err;
}

static omm_err open_scratch(job *j) {
    size_t rows_max = 1, bytes = 1;
    for (size_t i = 0; i < j->in->tensor_count; i++) {
        const omm_gguf_tensor *t = &j->in->tensors[i];
        const size_t cols = (size_t)t->dims[0], step = at_least_one(PIECE_VALUES / cols);
        const size_t rows = quantise_rows(t) < step ? (size_t)quantise_rows(t) : step;
        j->cols_max = cols > j->cols_max ? cols : j->cols_max;
        rows_max = rows > rows_max ? rows : rows_max;
    }
    bytes = 4 * (j->cols_max > PIECE_VALUES ? j->cols_max : (size_t)PIECE_VALUES);
    j->out = (uint8_t *)omm_alloc_aligned(bytes, 1);
    j->values = (float *)omm_alloc_aligned(2 * (size_t)omm_pool_threads(j->pool) * j->cols_max,
                                           sizeof *j->values);
    j->results = (row_result *)omm_alloc(rows_max, sizeof *j->results);
    if (j->out && j->values && j->results) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory to quantise rows of %zu columns", j->cols_max);
}

/* The file as written must be one that the reader accepts, before it takes its name. */
static omm_err check_written(job *j) {
    omm_gguf g;
    OMM_TRY(omm_gguf_open(&g, j->file.temporary));
    j->report.bytes = omm_gguf_bytes(&g);
    const bool same = g.tensor_count == j->in->tensor_count;
    omm_gguf_close(&g);
    OMM_ASSERT(same);
    return OMM_OK;
}

static omm_err write_all(job *j, const char *path, omm_quantise_progress progress, void *ud) {
    uint64_t done = 0, all = 0;
    OMM_TRY(open_scratch(j));
    OMM_TRY(omm_file_out_open(&j->file, path, 0644));
    OMM_TRY(write_header(j));
    for (size_t i = 0; i < j->report.count; i++) all += j->report.tensors[i].elements;
    for (size_t i = 0; i < j->report.count; i++) {
        OMM_TRY(write_tensor(j, i));
        done += j->report.tensors[i].elements;
        if (progress) progress(ud, done, all);
    }
    OMM_TRY(check_written(j));
    return omm_file_out_finish(&j->file, true);
}

omm_err omm_quantise_file(const char *path, const omm_gguf *in, const omm_quantise_options *options,
                          omm_pool *pool, omm_quantise_report *report,
                          omm_quantise_progress progress, void *ud) {
    job j = {.in = in, .pool = pool, .file = {.fd = -1}};
    omm_gguf_writer_init(&j.w);
    j.report.count = in->tensor_count;
    j.report.tensors = (omm_quantise_tensor *)omm_alloc(in->tensor_count, sizeof *j.report.tensors);
    omm_err err = j.report.tensors ? quantise_plan(j.report.tensors, &j.file_type, in, options)
                                   : omm_raise(OMM_ERR_NOMEM, "no memory for the tensor table");
    if (err == OMM_OK) err = write_all(&j, path, progress, ud);
    omm_file_out_close(&j.file);
    omm_gguf_writer_fini(&j.w);
    omm_free(j.out);
    omm_free(j.values);
    omm_free(j.results);
    if (err == OMM_OK)
        *report = j.report;
    else
        omm_quantise_report_fini(&j.report);
    return err;
}
