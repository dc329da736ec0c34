/* lora_merge.c - a model with its adapters inside, tensor by tensor, a few rows at a time. */
#include "lora_internal.h"

#include "omm/lora_merge.h"

#include "omm/kernels.h"
#include "omm/mem.h"
#include "omm/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_ROWS = 64, PIECES_MAX = 3 }; /* of an adapter in one tensor: q, k, v */
enum { BLOCKS_VERSION = 2 };              /* of those that are written: omm/rows.h */

/* One adapter's pair of the tensor at hand. */
typedef struct piece {
    const float *a, *b;   /* [rank][cols], [rows][rank] */
    uint32_t first, rows; /* of the tensor, which may stack several targets */
    uint32_t rank;
    float scale; /* times the weight */
} piece;

typedef struct merging {
    const omm_lora_merge *m;
    const omm_gguf_tensor *t;
    omm_ggml_type to;
    size_t cols;
    piece *pieces; /* [PIECES_MAX count] of the tensor at hand */
    size_t piece_count;
    float *was, *now, *delta, *back; /* [CHUNK_ROWS][widest] */
    float *b;                        /* [CHUNK_ROWS][largest rank] */
    uint8_t *stored;                 /* [CHUNK_ROWS] rows of the output's type */
    omm_err errors[CHUNK_ROWS];
    size_t first, rows; /* of the chunk at hand */
    double change, error, error_max;
} merging;

/* ---- what happens to a tensor ------------------------------------------------------------------ */

static bool is_layer_matrix(const omm_gguf_tensor *t) {
    return strncmp(t->name, "blk.", 4) == 0 && t->dims[1] > 1 && t->dims[2] == 1 && t->dims[3] == 1;
}

static omm_ggml_type type_of(const omm_lora_merge *m, const omm_gguf_tensor *t) {
    return m->has_type && is_layer_matrix(t) ? m->type : t->type;
}

/* All pairs of one adapter that this tensor has. */
static omm_err take_part(merging *g, size_t index) {
    const omm_lora *part = g->m->parts[index];
    const omm_gguf_tensor *t = g->t;
    for (size_t i = 0; i < part->tensor_count; i += 2) {
        const omm_lora_tensor *a = &part->tensors[i];
        char name[OMM_GGUF_NAME_MAX];
        uint32_t first = 0, rows = 0;
        lora_base_tensor(name, &first, &rows, part, a);
        if (strcmp(t->name, name) != 0) continue;
        if (t->dims[0] != a->cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
            return omm_raise(OMM_ERR_MISMATCH, "tensor %s has not the shape that adapter %zu wants",
                             t->name, index + 1);
        OMM_ASSERT(g->piece_count < PIECES_MAX * g->m->count);
        g->pieces[g->piece_count++] = (piece){.a = part->values + a->offset,
                                              .b = part->values + a[1].offset,
                                              .first = first,
                                              .rows = a[1].rows,
                                              .rank = a->rows,
                                              .scale = a->scale * g->m->weights[index]};
    }
    return OMM_OK;
}

static omm_err take_pieces(merging *g) {
    g->piece_count = 0;
    for (size_t i = 0; i < g->m->count; i++) OMM_TRY(take_part(g, i));
    return OMM_OK;
}

static omm_err check_all_there(const omm_lora_merge *m) {
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < m->parts[i]->tensor_count; k += 2) {
            char base[OMM_GGUF_NAME_MAX];
            uint32_t first = 0, rows = 0;
            lora_base_tensor(base, &first, &rows, m->parts[i], &m->parts[i]->tensors[k]);
            if (!omm_gguf_find_tensor(m->base, base))
                return omm_raise(OMM_ERR_NOT_FOUND,
                                 "the model has no tensor %s, which adapter %zu "
                                 "adapts",
                                 base, i + 1);
        }
    return OMM_OK;
}

/* ---- a chunk of rows --------------------------------------------------------------------------- */

static omm_err load_rows(merging *g) {
    const size_t stride = omm_rows_stride(g->t->type, g->cols);
    for (size_t i = 0; i < g->rows; i++) {
        const uint8_t *row = g->t->data.data + (g->first + i) * stride;
        const size_t bad = omm_rows_check(g->t->type, row, g->cols);
        if (bad < g->cols)
            return omm_raise(OMM_ERR_NUMERIC, "tensor %s[%zu][%zu] is not finite", g->t->name,
                             g->first + i, bad);
        omm_rows_dequantise(g->was + i * g->cols, g->t->type, row, g->cols);
    }
    memcpy(g->now, g->was, g->rows * g->cols * sizeof(float));
    return OMM_OK;
}

/* To those of the piece's rows that the chunk has. */
static void add_piece(merging *g, const piece *p) {
    const omm_compute *c = g->m->compute;
    const size_t low = g->first > p->first ? g->first : p->first;
    const size_t end = (size_t)p->first + p->rows, chunk_end = g->first + g->rows;
    const size_t high = chunk_end < end ? chunk_end : end;
    if (low >= high) return;
    const size_t rows = high - low;
    omm_vec_scale(c, g->b, p->b + (low - p->first) * p->rank, p->scale, rows * p->rank);
    const omm_gemm product = {.c = g->delta,
                              .a = g->b,
                              .b = p->a,
                              .m = rows,
                              .n = g->cols,
                              .k = p->rank,
                              .lda = p->rank,
                              .ldb = g->cols,
                              .ldc = g->cols};
    omm_gemm_nn(c, &product);
    omm_vec_add(c, g->now + (low - g->first) * g->cols, g->delta, rows * g->cols);
}

static void store_row(void *ud, size_t i, unsigned worker) {
    (void)worker;
    merging *g = ud;
    uint8_t *row = g->stored + i * omm_rows_stride(g->to, g->cols);
    g->errors[i] = omm_rows_quantise(row, g->to, g->now + i * g->cols, g->cols);
    if (g->errors[i] == OMM_OK) omm_rows_dequantise(g->back + i * g->cols, g->to, row, g->cols);
}

static void measure_rows(merging *g) {
    for (size_t i = 0; i < g->rows * g->cols; i++) {
        const double change = (double)g->now[i] - (double)g->was[i];
        const double error = fabs((double)g->back[i] - (double)g->now[i]);
        g->change += change * change;
        g->error += error * error;
        if (error > g->error_max) g->error_max = error;
    }
}

static omm_err merge_rows(merging *g, omm_file_out *out) {
    OMM_TRY(load_rows(g));
    for (size_t i = 0; i < g->piece_count; i++) add_piece(g, &g->pieces[i]);
    if (!omm_all_finite(g->m->compute, g->now, g->rows * g->cols))
        return omm_raise(OMM_ERR_NUMERIC, "tensor %s: a sum at or behind row %zu is not finite",
                         g->t->name, g->first);
    omm_pool_run(g->m->compute->pool, store_row, g, g->rows);
    for (size_t i = 0; i < g->rows; i++)
        if (g->errors[i] != OMM_OK)
            return omm_raise(g->errors[i], "tensor %s: row %zu cannot be stored as %s", g->t->name,
                             g->first + i, omm_ggml_find((uint32_t)g->to)->name);
    measure_rows(g);
    return omm_file_out_write(out,
                              omm_bytes_of(g->stored, g->rows * omm_rows_stride(g->to, g->cols)));
}

/* ---- a tensor ---------------------------------------------------------------------------------- */

static omm_err write_padding(omm_file_out *out, const omm_gguf_writer *w, uint64_t bytes) {
    static const uint8_t zeros[4096];
    for (size_t left = omm_gguf_padding(w, bytes); left > 0;) {
        const size_t n = left < sizeof zeros ? left : sizeof zeros;
        OMM_TRY(omm_file_out_write(out, omm_bytes_of(zeros, n)));
        left -= n;
    }
    return OMM_OK;
}

static omm_err merge_tensor(merging *g, omm_file_out *out, const omm_gguf_writer *w) {
    const uint64_t rows = g->t->dims[1];
    const double n = (double)rows * (double)g->cols;
    g->change = g->error = g->error_max = 0;
    for (g->first = 0; g->first < rows; g->first += CHUNK_ROWS) {
        g->rows = rows - g->first < CHUNK_ROWS ? (size_t)(rows - g->first) : CHUNK_ROWS;
        OMM_TRY(merge_rows(g, out));
    }
    if (g->m->report) {
        const omm_lora_merged merged = {.name = g->t->name,
                                        .from = g->t->type,
                                        .to = g->to,
                                        .adapted = g->piece_count > 0,
                                        .change = sqrt(g->change / n),
                                        .error = sqrt(g->error / n),
                                        .error_max = g->error_max};
        g->m->report(g->m->ud, &merged);
    }
    return write_padding(out, w, rows * omm_rows_stride(g->to, g->cols));
}

static omm_err put_tensors(merging *g, omm_file_out *out, const omm_gguf_writer *w) {
    for (size_t i = 0; i < g->m->base->tensor_count; i++) {
        g->t = &g->m->base->tensors[i];
        g->to = type_of(g->m, g->t);
        g->cols = (size_t)g->t->dims[0];
        OMM_TRY(take_pieces(g));
        if (g->piece_count > 0 || g->to != g->t->type) {
            OMM_TRY(merge_tensor(g, out, w));
            continue;
        }
        OMM_TRY(omm_file_out_write(out, g->t->data));
        OMM_TRY(write_padding(out, w, g->t->data.size));
    }
    return OMM_OK;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* The base's keys, but for which part of it a file was; where types change, without the name of the old ones. */
static void put_keys(omm_gguf_writer *w, const omm_lora_merge *m) {
    static const char version[] = "general.quantization_version";
    for (size_t i = 0; i < m->base->kv_count; i++) {
        const omm_gguf_kv *kv = &m->base->kvs[i];
        if (omm_gguf_is_split_key(kv->key)) continue;
        if (m->has_type && omm_bytes_equal(kv->key, omm_bytes_str("general.file_type"))) continue;
        if (m->has_type && omm_bytes_equal(kv->key, omm_bytes_str(version)))
            omm_gguf_put_u32(w, version, BLOCKS_VERSION);
        else
            omm_gguf_put_kv(w, kv);
    }
}

static omm_err make_header(omm_buf *out, omm_gguf_writer *w, const omm_lora_merge *m) {
    put_keys(w, m);
    for (size_t i = 0; i < m->base->tensor_count; i++) {
        const omm_gguf_tensor *t = &m->base->tensors[i];
        const omm_ggml_type to = type_of(m, t);
        const uint32_t block = omm_ggml_find((uint32_t)to)->block;
        if (t->dims[0] % block != 0)
            return omm_raise(
                OMM_ERR_UNSUPPORTED, "tensor %s has %llu columns, no multiple of the %u of %s",
                t->name, (unsigned long long)t->dims[0], block, omm_ggml_find((uint32_t)to)->name);
        omm_gguf_put_tensor_info(w, t->name, (uint32_t)to, t->n_dims, t->dims);
    }
    return omm_gguf_writer_header(out, w);
}

/* Before hours of a large model are spent on a file that has no place. */
static omm_err check_room(const char *path, const omm_lora_merge *m, const omm_gguf_writer *w,
                          size_t header) {
    uint64_t all = header;
    for (size_t i = 0; i < m->base->tensor_count; i++) {
        const omm_gguf_tensor *t = &m->base->tensors[i];
        uint64_t bytes = 0;
        OMM_TRY(omm_gguf_tensor_bytes(&bytes, (uint32_t)type_of(m, t), t->n_dims, t->dims));
        all += bytes + omm_gguf_padding(w, bytes);
    }
    return omm_file_check_room(path, all);
}

static omm_err take_memory(merging *g) {
    size_t cols = 1, rank = 1, stride = 1;
    for (size_t i = 0; i < g->m->base->tensor_count; i++) {
        const omm_gguf_tensor *t = &g->m->base->tensors[i];
        if (strncmp(t->name, "blk.", 4) != 0) continue; /* all that can be adapted or changed */
        const size_t bytes = omm_rows_stride(type_of(g->m, t), (size_t)t->dims[0]);
        if (t->dims[0] > cols) cols = (size_t)t->dims[0];
        if (bytes > stride) stride = bytes;
    }
    for (size_t i = 0; i < g->m->count; i++)
        if (g->m->parts[i]->spec.rank > rank) rank = g->m->parts[i]->spec.rank;
    g->was = omm_alloc_aligned(CHUNK_ROWS * cols, sizeof(float));
    g->now = omm_alloc_aligned(CHUNK_ROWS * cols, sizeof(float));
    g->delta = omm_alloc_aligned(CHUNK_ROWS * cols, sizeof(float));
    g->back = omm_alloc_aligned(CHUNK_ROWS * cols, sizeof(float));
    g->b = omm_alloc_aligned(CHUNK_ROWS * rank, sizeof(float));
    g->stored = omm_alloc_aligned(CHUNK_ROWS, stride);
    g->pieces = omm_alloc(PIECES_MAX * g->m->count + 1, sizeof *g->pieces);
    if (g->was && g->now && g->delta && g->back && g->b && g->stored && g->pieces) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for %d rows of %zu columns", CHUNK_ROWS, cols);
}

/* The file as written must be one that the reader accepts, before it takes its name. */
static omm_err check_written(const omm_file_out *out) {
    omm_gguf g;
    OMM_TRY(omm_gguf_open(&g, out->temporary));
    omm_gguf_close(&g);
    return OMM_OK;
}

static omm_err write_file(merging *g, const char *path, const omm_gguf_writer *w,
                          omm_bytes header) {
    omm_file_out out;
    OMM_TRY(omm_file_out_open(&out, path, 0644));
    omm_err err = omm_file_out_write(&out, header);
    if (err == OMM_OK) err = put_tensors(g, &out, w);
    if (err == OMM_OK) err = check_written(&out);
    if (err == OMM_OK) err = omm_file_out_finish(&out, true);
    omm_file_out_close(&out);
    return err;
}

omm_err omm_lora_merge_file(const char *path, const omm_lora_merge *merge) {
    OMM_TRY(check_all_there(merge));
    merging g = {.m = merge};
    omm_gguf_writer w;
    omm_buf header;
    omm_gguf_writer_init(&w);
    omm_buf_init(&header, SIZE_MAX / 2);
    omm_err err = make_header(&header, &w, merge);
    if (err == OMM_OK) err = check_room(path, merge, &w, header.size);
    if (err == OMM_OK) err = take_memory(&g);
    if (err == OMM_OK) err = write_file(&g, path, &w, omm_buf_view(&header));
    float *floats[] = {g.was, g.now, g.delta, g.back, g.b};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) omm_free(floats[i]);
    omm_free(g.stored);
    omm_free(g.pieces);
    omm_buf_fini(&header);
    omm_gguf_writer_fini(&w);
    return err;
}
