/* synth.c - draws the weights, quantises them and streams them to the file.
 *
 * A piece is some rows of one tensor, cut into tasks of a few rows; the tasks of a piece run in
 * parallel, the pieces are written in order.
 */
#include "omm/synth.h"

#include "synth_internal.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/rng.h"
#include "omm/rows.h"
#include "omm/vocab_synth.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES ((size_t)8 << 20)
#define TASK_VALUES 65536u     /* about 0.2 ms of ChaCha20 */
#define BYTES_DEVIATION 147.8f /* sqrt(4 * (256^2 - 1) / 12): of a sum of four random bytes */
#define BYTES_MEAN 510         /* 4 * 127.5 */
#define HEADER_BYTES_MAX (1u << 28)

/* ---- element types --------------------------------------------------------------------------- */

/* The number of general.file_type for a file mostly of one type. */
static const struct {
    omm_ggml_type type;
    uint32_t number;
} s_file_types[] = {
    {OMM_GGML_F32, 0},     {OMM_GGML_F16, 1},    {OMM_GGML_BF16, 32},  {OMM_GGML_Q4_0, 2},
    {OMM_GGML_Q4_1, 3},    {OMM_GGML_Q5_0, 8},   {OMM_GGML_Q5_1, 9},   {OMM_GGML_Q8_0, 7},
    {OMM_GGML_Q2_K, 10},   {OMM_GGML_Q3_K, 11},  {OMM_GGML_Q4_K, 14},  {OMM_GGML_Q5_K, 16},
    {OMM_GGML_Q6_K, 18},   {OMM_GGML_TQ1_0, 36}, {OMM_GGML_TQ2_0, 37}, {OMM_GGML_IQ4_NL, 25},
    {OMM_GGML_IQ4_XS, 30},
};

enum { TYPE_COUNT = sizeof s_file_types / sizeof *s_file_types, FILE_TYPE_MIX = 15 };

static uint32_t file_type_of(const synth_plan *p) {
    size_t i = 0;
    if (p->mixed) return FILE_TYPE_MIX;
    while (i < TYPE_COUNT - 1 && s_file_types[i].type != p->type) i++;
    OMM_ASSERT(s_file_types[i].type == p->type);
    return s_file_types[i].number;
}

bool synth_can_encode(omm_ggml_type type) {
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (s_file_types[i].type == type) return true;
    return false;
}

void omm_synth_types(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < TYPE_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s, ",
                                 omm_ggml_find((uint32_t)s_file_types[i].type)->name);
    if (used < size) snprintf(out + used, size - used, "%s", SYNTH_MIX);
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct piece {
    const synth_tensor *t;
    omm_rng rng;
    float *values; /* [workers][row_step][cols] */
    uint8_t *out;  /* [rows][row_bytes] */
    size_t row_bytes;
    uint32_t row, rows, row_step;
} piece;

static void draw(float *out, const synth_tensor *t, const omm_rng *rng, uint64_t first, size_t n) {
    uint32_t words[256];
    const float scale = t->deviation / BYTES_DEVIATION;
    for (size_t at = 0; at < n;) {
        size_t count = n - at < 256 ? n - at : 256;
        omm_rng_fill_u32(words, rng, first + at, count);
        for (size_t i = 0; i < count; i++) {
            const uint32_t w = words[i];
            const int sum = (int)((w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24));
            out[at + i] = t->mean + scale * (float)(sum - BYTES_MEAN);
        }
        at += count;
    }
}

static void piece_task(void *ud, size_t task, unsigned worker) {
    const piece *p = (const piece *)ud;
    const size_t first = task * p->row_step, cols = p->t->cols;
    const size_t rows = p->rows - first < p->row_step ? p->rows - first : p->row_step;
    float *values = p->values + (size_t)worker * p->row_step * cols;
    if (p->t->values)
        memcpy(values, p->t->values, cols * sizeof *values);
    else
        draw(values, p->t, &p->rng, (p->row + first) * (uint64_t)cols, rows * cols);
    for (size_t i = 0; i < rows; i++) /* values of a few deviations: none is too large for a type */
        OMM_ASSERT(omm_rows_quantise(p->out + (first + i) * p->row_bytes, p->t->type,
                                     values + i * cols, cols) == OMM_OK);
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct synth {
    synth_plan plan;
    omm_gguf_writer w;
    omm_file_out file;
    omm_pool *pool;
    omm_seed seed;
    float *values;
    uint8_t *out;
} synth;

static uint32_t rows_of(size_t limit, size_t row, uint32_t rows) {
    const size_t fit = limit / row;
    return fit < 1 ? 1 : fit < rows ? (uint32_t)fit : rows;
}

static size_t row_bytes_of(const synth_tensor *t) {
    const omm_ggml_info *info = omm_ggml_find((uint32_t)t->type);
    return (size_t)t->cols / info->block * info->bytes;
}

/* Behind the header. */
static uint64_t data_bytes(const synth *s) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->plan.count; i++) {
        const synth_tensor *t = &s->plan.tensors[i];
        const uint64_t own = (uint64_t)t->rows * row_bytes_of(t);
        bytes += own + omm_gguf_padding(&s->w, own);
    }
    return bytes;
}

static omm_err write_tensor(synth *s, const synth_tensor *t) {
    static const uint8_t zeros[64];
    const omm_seed seed = omm_seed_derive(&s->seed, OMM_PURPOSE_SYNTH, omm_bytes_str(t->name));
    piece p = {.t = t, .values = s->values, .out = s->out};
    p.rng = omm_rng_init(&seed, OMM_PURPOSE_SYNTH, 0, 0);
    p.row_bytes = row_bytes_of(t);
    p.row_step = rows_of(TASK_VALUES, t->cols, t->rows);
    const uint32_t step = rows_of(PIECE_BYTES, p.row_bytes, t->rows);
    for (p.row = 0; p.row < t->rows; p.row += p.rows) {
        p.rows = t->rows - p.row < step ? t->rows - p.row : step;
        omm_pool_run(s->pool, piece_task, &p, (p.rows + p.row_step - 1) / p.row_step);
        OMM_TRY(omm_file_out_write(&s->file, omm_bytes_of(s->out, p.rows * p.row_bytes)));
    }
    const uint32_t padding = omm_gguf_padding(&s->w, t->rows * p.row_bytes);
    OMM_ASSERT(padding <= sizeof zeros);
    return omm_file_out_write(&s->file, omm_bytes_of(zeros, padding));
}

static omm_err write_header(synth *s) {
    const synth_plan *p = &s->plan;
    omm_buf header;
    synth_put_keys(&s->w, p->shape, p->layers);
    omm_gguf_put_u32(&s->w, "general.file_type", file_type_of(p));
    omm_gguf_put_u32(&s->w, "general.quantization_version", 2);
    OMM_TRY(omm_vocab_put_synthetic(&s->w, p->shape->vocab));
    for (uint32_t i = 0; i < p->count; i++) {
        const synth_tensor *t = &p->tensors[i];
        const uint64_t dims[2] = {t->cols, t->rows};
        omm_gguf_put_tensor_info(&s->w, t->name, (uint32_t)t->type, t->rows > 1 ? 2 : 1, dims);
    }
    omm_buf_init(&header, HEADER_BYTES_MAX);
    omm_err err = omm_gguf_writer_header(&header, &s->w);
    if (err == OMM_OK) err = omm_file_check_room(s->file.path, header.size + data_bytes(s));
    if (err == OMM_OK) err = omm_file_out_write(&s->file, omm_buf_view(&header));
    omm_buf_fini(&header);
    return err;
}

/* Scratch for the widest row and the largest piece. */
static omm_err open_scratch(synth *s) {
    size_t values = TASK_VALUES, bytes = PIECE_BYTES;
    for (uint32_t i = 0; i < s->plan.count; i++) {
        const size_t cols = s->plan.tensors[i].cols;
        values = cols > values ? cols : values;
        bytes = 4 * cols > bytes ? 4 * cols : bytes;
    }
    s->values = (float *)omm_alloc_aligned(omm_pool_threads(s->pool) * values, sizeof *s->values);
    s->out = (uint8_t *)omm_alloc_aligned(bytes, 1);
    if (s->values && s->out) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory to draw weights in");
}

static void count(omm_synth_report *r, const synth *s) {
    *r = (omm_synth_report){.tensors = s->plan.count, .fallbacks = s->plan.fallbacks};
    for (uint32_t i = 0; i < s->plan.count; i++)
        r->parameters += (uint64_t)s->plan.tensors[i].cols * s->plan.tensors[i].rows;
}

static omm_err write_all(synth *s, const char *path, const omm_synth_options *options) {
    OMM_TRY(synth_plan_init(&s->plan, options));
    OMM_TRY(open_scratch(s));
    OMM_TRY(omm_file_out_open(&s->file, path, 0644));
    OMM_TRY(write_header(s));
    for (uint32_t i = 0; i < s->plan.count; i++) OMM_TRY(write_tensor(s, &s->plan.tensors[i]));
    return omm_file_out_finish(&s->file, false);
}

omm_err omm_synth_write(const char *path, const omm_synth_options *options, omm_pool *pool,
                        omm_synth_report *report) {
    synth s = {.file = {.fd = -1}, .pool = pool, .seed = omm_seed_from_u64(options->seed)};
    omm_gguf_writer_init(&s.w);
    omm_err err = write_all(&s, path, options);
    if (err == OMM_OK && report) {
        count(report, &s);
        err = omm_file_size(&report->bytes, path);
    }
    omm_file_out_close(&s.file);
    omm_gguf_writer_fini(&s.w);
    synth_plan_fini(&s.plan);
    omm_free(s.values);
    omm_free(s.out);
    return err;
}
