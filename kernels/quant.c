/* quant.c - packing GGUF rows into strips of 16. */
#include "omm/quant.h"

#include "omm/mem.h"
#include "quant_layout.h"

#include <stdatomic.h>
#include <string.h>

#define TASKS_PER_THREAD 4u

static const char *const s_names[OMM_FORMAT_COUNT] = {
    "F32",  "F16",  "Q8_0", "Q4_0", "BF16", "Q4_1",   "Q5_0",  "Q5_1", "IQ4_NL",
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ1_0", "TQ2_0"};

const char *omm_format_name(omm_format format) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    return s_names[format];
}

bool omm_format_find(omm_format *out, const char *name) {
    for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++) {
        if (strcmp(s_names[f], name) != 0) continue;
        *out = (omm_format)f;
        return true;
    }
    return false;
}

bool omm_format_is_quantised(omm_format format) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    return QUANT_LAYOUT[format].block != 0;
}

uint32_t omm_format_block(omm_format format) {
    return omm_format_is_quantised(format) ? QUANT_LAYOUT[format].block : 1;
}

size_t omm_format_row_bytes(omm_format format, uint32_t cols) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    if (l->block == 0) return (size_t)cols * (format == OMM_FORMAT_F32 ? 4 : 2);
    return (size_t)cols / l->block * l->bytes;
}

/* ---- shape ----------------------------------------------------------------------------------- */

static size_t strip_bytes(omm_format format, uint32_t cols) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    if (l->block == 0) return omm_format_row_bytes(format, cols) * OMM_STRIP;
    return (size_t)cols / l->block * quant_block_bytes(l);
}

static omm_err shape_check(omm_format format, uint32_t rows, uint32_t cols) {
    if (rows == 0 || cols == 0 || rows > OMM_MATRIX_DIM_MAX || cols > OMM_MATRIX_DIM_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "matrix of %u x %u: each side must be 1 to %u", rows,
                         cols, OMM_MATRIX_DIM_MAX);
    if (cols % omm_format_block(format) != 0)
        return omm_raise(OMM_ERR_FORMAT, "%u columns in %s: must be a multiple of %u", cols,
                         omm_format_name(format), omm_format_block(format));
    return OMM_OK;
}

omm_err omm_matrix_outline(omm_matrix *m, omm_format format, uint32_t rows, uint32_t cols) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    OMM_TRY(shape_check(format, rows, cols));
    *m = (omm_matrix){.format = format, .rows = rows, .cols = cols};
    m->cols_padded = (cols + OMM_STRIP - 1) / OMM_STRIP * OMM_STRIP;
    m->strips = (rows + OMM_STRIP - 1) / OMM_STRIP;
    m->strip_bytes = strip_bytes(format, m->cols_padded);
    return OMM_OK;
}

static omm_err matrix_init(omm_matrix *m, omm_format format, uint32_t rows, uint32_t cols) {
    OMM_TRY(omm_matrix_outline(m, format, rows, cols));
    m->data = (uint8_t *)omm_alloc_huge(omm_matrix_bytes(m));
    if (!m->data)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a matrix of %u x %u %s", rows, cols,
                         omm_format_name(format));
    return OMM_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Where a strip's first element that is not finite is: row << 32 | column; NONE if all are. */
#define NONE UINT64_MAX

typedef struct pack_job {
    omm_matrix *m;
    const uint8_t *from;
    size_t row_bytes, step; /* step: strips in a task */
    quant_packer pack;      /* NULL: the format has no blocks */
    _Atomic uint64_t fault; /* the lowest one, whichever thread finds which first */
} pack_job;

static uint64_t place(size_t row, size_t column) {
    return (uint64_t)row << 32 | column;
}

static uint64_t pack_strip_f32(uint8_t *to, const pack_job *job, size_t row0, size_t rows) {
    for (size_t lane = 0; lane < rows; lane++) {
        const uint8_t *from = job->from + (row0 + lane) * job->row_bytes;
        for (size_t k = 0; k < job->m->cols; k++) {
            const uint32_t bits = omm_get_u32(from + 4 * k);
            if ((bits & 0x7f800000u) == 0x7f800000u) return place(row0 + lane, k);
            memcpy(to + (k * OMM_STRIP + lane) * 4, &bits, sizeof bits);
        }
    }
    return NONE;
}

/* F16 and BF16 differ in the bits that tell a number from NaN and infinity. */
static uint64_t pack_strip_half(uint8_t *to, const pack_job *job, size_t row0, size_t rows) {
    const uint16_t exponent = job->m->format == OMM_FORMAT_F16 ? 0x7c00u : 0x7f80u;
    for (size_t lane = 0; lane < rows; lane++) {
        const uint8_t *from = job->from + (row0 + lane) * job->row_bytes;
        for (size_t k = 0; k < job->m->cols; k++) {
            const uint16_t bits = (uint16_t)(from[2 * k] | from[2 * k + 1] << 8);
            if ((bits & exponent) == exponent) return place(row0 + lane, k);
            memcpy(to + (k * OMM_STRIP + lane) * 2, &bits, sizeof bits);
        }
    }
    return NONE;
}

static uint64_t pack_strip_blocks(uint8_t *to, const pack_job *job, size_t row0, size_t rows) {
    const quant_layout *l = &QUANT_LAYOUT[job->m->format];
    const uint8_t *from = job->from + row0 * job->row_bytes;
    uint64_t fault = NONE;
    for (size_t b = 0; b < job->m->cols / l->block; b++, to += quant_block_bytes(l)) {
        const size_t row = job->pack(to, from + b * l->bytes, job->row_bytes, rows);
        const uint64_t here = row < rows ? place(row0 + row, b * l->block) : NONE;
        fault = here < fault ? here : fault;
    }
    return fault;
}

static uint64_t pack_strip(const pack_job *job, size_t strip) {
    const size_t row0 = strip * OMM_STRIP, left = job->m->rows - row0;
    const size_t rows = left < OMM_STRIP ? left : OMM_STRIP;
    uint8_t *to = job->m->data + strip * job->m->strip_bytes;
    if (job->m->format == OMM_FORMAT_F32) return pack_strip_f32(to, job, row0, rows);
    if (!job->pack) return pack_strip_half(to, job, row0, rows);
    return pack_strip_blocks(to, job, row0, rows);
}

static void pack_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    pack_job *job = (pack_job *)ud;
    const size_t s0 = task * job->step, strips = job->m->strips;
    for (size_t s = s0; s < strips && s < s0 + job->step; s++) {
        const uint64_t here = pack_strip(job, s);
        uint64_t old = atomic_load(&job->fault);
        while (here < old && !atomic_compare_exchange_weak(&job->fault, &old, here)) {
        }
    }
}

static omm_err pack_rows(omm_matrix *m, omm_pool *pool, const uint8_t *from) {
    pack_job job = {.m = m, .from = from, .row_bytes = omm_format_row_bytes(m->format, m->cols)};
    const size_t tasks = (size_t)omm_pool_threads(pool) * TASKS_PER_THREAD;
    job.pack = quant_packer_of(m->format);
    job.step = (m->strips + tasks - 1) / tasks;
    atomic_init(&job.fault, NONE);
    omm_pool_run(pool, pack_task, &job, (m->strips + job.step - 1) / job.step);
    const uint64_t fault = atomic_load(&job.fault);
    if (fault == NONE) return OMM_OK;
    return omm_raise(OMM_ERR_NUMERIC, "%s of row %u, column %u is not a finite number",
                     job.pack ? "scale" : "weight", (unsigned)(fault >> 32), (unsigned)fault);
}

static omm_err size_check(omm_format format, uint32_t rows, uint32_t cols, omm_bytes bytes) {
    const size_t expected = omm_format_row_bytes(format, cols) * rows;
    if (bytes.size == expected) return OMM_OK;
    return omm_raise(OMM_ERR_SIZE, "%zu bytes for %u x %u %s: expected %zu", bytes.size, rows, cols,
                     omm_format_name(format), expected);
}

/* Packing writes what rows and columns there are; the rest of a strip is zero. */
static void clear_padding(omm_matrix *m) {
    if (m->cols != m->cols_padded)
        memset(m->data, 0, omm_matrix_bytes(m));
    else if (m->rows % OMM_STRIP != 0)
        memset(m->data + (m->strips - 1) * m->strip_bytes, 0, m->strip_bytes);
}

omm_err omm_matrix_pack_into(omm_matrix *m, omm_pool *pool, omm_bytes bytes) {
    OMM_TRY(size_check(m->format, m->rows, m->cols, bytes));
    clear_padding(m);
    return pack_rows(m, pool, bytes.data);
}

omm_err omm_matrix_pack_with(omm_matrix *out, omm_pool *pool, omm_format format, uint32_t rows,
                             uint32_t cols, omm_bytes bytes) {
    OMM_ASSERT((unsigned)format < OMM_FORMAT_COUNT);
    OMM_TRY(shape_check(format, rows, cols));
    OMM_TRY(size_check(format, rows, cols, bytes));
    omm_matrix m;
    OMM_TRY(matrix_init(&m, format, rows, cols));
    omm_err err = pack_rows(&m, pool, bytes.data);
    if (err != OMM_OK) {
        omm_matrix_fini(&m);
        return err;
    }
    *out = m;
    return OMM_OK;
}

omm_err omm_matrix_pack(omm_matrix *out, omm_format format, uint32_t rows, uint32_t cols,
                        omm_bytes bytes) {
    return omm_matrix_pack_with(out, NULL, format, rows, cols, bytes);
}

omm_err omm_matrix_pack_f32(omm_matrix *out, uint32_t rows, uint32_t cols, const float *values) {
    return omm_matrix_pack(out, OMM_FORMAT_F32, rows, cols,
                           omm_bytes_of(values, (size_t)rows * cols * sizeof *values));
}

void omm_matrix_fini(omm_matrix *matrix) {
    if (!matrix->borrowed) omm_free_huge(matrix->data, omm_matrix_bytes(matrix));
    *matrix = (omm_matrix){0};
}

/* ---- one row back ---------------------------------------------------------------------------- */

static uint16_t get_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static float bf16_to_f32(uint16_t h) {
    return omm_f32_of_bits((uint32_t)h << 16);
}

/* The quants of 32 columns of one lane, as stored. */
static void read_planes(uint32_t q[8], const uint8_t *from, unsigned planes) {
    uint32_t words[8 + 4 + 2 + 1];
    size_t n = 0, bits = 0;
    for (size_t i = 0; i < planes; i++) memcpy(&words[i], from + i * OMM_STRIP * 4, 4);
    memset(q, 0, 8 * sizeof *q);
    if (planes & QUANT_PLANE_8)
        for (; n < 8; n++) q[n] = words[n];
    if (planes & QUANT_PLANE_4) {
        for (size_t g = 0; g < 8; g++) q[g] = words[g % 4] >> 4 * (g / 4) & 0x0f0f0f0fu;
        n = bits = 4;
    }
    if (planes & QUANT_PLANE_2) {
        for (size_t g = 0; g < 8; g++)
            q[g] |= (words[n + g % 2] >> 2 * (g / 2) & 0x03030303u) << bits;
        n += 2, bits += 2;
    }
    if (planes & QUANT_PLANE_1)
        for (size_t g = 0; g < 8; g++) q[g] |= (words[n] >> g & 0x01010101u) << bits;
}

static int quant_value(const quant_layout *l, uint8_t stored) {
    if (l->planes & QUANT_PLANE_8) return (int8_t)stored;
    return l->table ? QUANT_IQ4[stored] : (int)stored - l->bias;
}

/* Scale and what is added, of sub-block j. */
static void sub_scale(float *scale, float *add, const uint8_t *block, size_t lane, size_t j,
                      const quant_layout *l) {
    const float d = omm_f16_to_f32(get_half(block + lane * 2));
    const float m = l->has_min ? omm_f16_to_f32(get_half(block + (OMM_STRIP + lane) * 2)) : 0.0f;
    const uint8_t *subs = block + quant_subs_at(l) + lane;
    const size_t minima = (size_t)l->block / l->sub * OMM_STRIP;
    *scale = d;
    *add = m;
    switch ((quant_subs)l->subs) {
    case QUANT_SUBS_NONE: break;
    case QUANT_SUBS_SIGNED: *scale = d * (float)(int8_t)subs[j * OMM_STRIP]; break;
    case QUANT_SUBS_MINIMA:
        *scale = d * (float)subs[j * OMM_STRIP];
        *add = -(m * (float)subs[minima + j * OMM_STRIP]);
        break;
    case QUANT_SUBS_NIBBLES:
        *scale = d * (float)(subs[j * OMM_STRIP] & 15);
        *add = -(m * (float)(subs[j * OMM_STRIP] >> 4));
        break;
    }
}

static void row_block(float *out, const uint8_t *block, size_t lane, const quant_layout *l) {
    float scale = 0.0f, add = 0.0f;
    for (size_t k = 0; k < l->block; k += OMM_QUANT_BLOCK) {
        uint32_t q[8];
        read_planes(q, block + quant_planes_at(l) + k / 32 * quant_chunk_bytes(l) + lane * 4,
                    l->planes);
        for (size_t i = 0; i < OMM_QUANT_BLOCK; i++) {
            if (i % OMM_STRIP == 0) sub_scale(&scale, &add, block, lane, (k + i) / l->sub, l);
            const uint8_t stored = (uint8_t)(q[i / 4] >> 8 * (i % 4));
            out[k + i] = scale * (float)quant_value(l, stored);
            if (l->has_min) out[k + i] = out[k + i] + add;
        }
    }
}

void omm_matrix_row(float *out, const omm_matrix *matrix, uint32_t row) {
    OMM_ASSERT(row < matrix->rows);
    const uint8_t *strip = matrix->data + row / OMM_STRIP * matrix->strip_bytes;
    const size_t lane = row % OMM_STRIP;
    const quant_layout *l = &QUANT_LAYOUT[matrix->format];
    for (size_t k = 0; k < matrix->cols; k++) {
        if (matrix->format == OMM_FORMAT_F32)
            memcpy(out + k, strip + (k * OMM_STRIP + lane) * 4, sizeof *out);
        else if (matrix->format == OMM_FORMAT_F16)
            out[k] = omm_f16_to_f32(get_half(strip + (k * OMM_STRIP + lane) * 2));
        else if (matrix->format == OMM_FORMAT_BF16)
            out[k] = bf16_to_f32(get_half(strip + (k * OMM_STRIP + lane) * 2));
        else
            break;
    }
    if (l->block == 0) return;
    for (size_t k = 0; k < matrix->cols; k += l->block, strip += quant_block_bytes(l))
        row_block(out + k, strip, lane, l);
}
