/* kernels_battery.c - see kernels_battery.h. */
#include "kernels_battery.h"

#include "omm/mem.h"
#include "rows_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void *need(void *p) {
    OMM_ASSERT(p != NULL);
    return p;
}

float *battery_floats(uint64_t seed, size_t count) {
    float *x = (float *)need(omm_alloc_aligned(count ? count : 1, sizeof *x));
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 88172645463325252u;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((int32_t)(next(&s) >> 40) - 0x800000) / (float)0x800000;
    return x;
}

static void put_half(uint8_t *at, float value) {
    const uint16_t h = omm_f32_to_f16(value);
    memcpy(at, &h, sizeof h);
}

static void put_number(uint8_t *p, omm_format format, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (format == OMM_FORMAT_F32) memcpy(p, &value, sizeof value);
    if (format == OMM_FORMAT_F16) put_half(p, value);
    if (format == OMM_FORMAT_BF16) memcpy(p, (const uint8_t *)&bits + 2, 2);
}

omm_bytes battery_rows(omm_format format, uint32_t rows, uint32_t cols, uint64_t seed) {
    const omm_ggml_info *info = omm_ggml_find_name(omm_format_name(format));
    const rows_layout *layout = rows_layout_of(info->type);
    const size_t units = (size_t)rows * cols / info->block;
    uint8_t *data = (uint8_t *)need(omm_alloc(units, info->bytes));
    uint64_t s = seed * 0x2545f4914f6cdd1du + 88172645463325252u;
    for (size_t i = 0; i < units; i++) {
        uint8_t *p = data + i * info->bytes;
        for (size_t j = 0; j < info->bytes; j++) p[j] = (uint8_t)(next(&s) >> 33);
        const float v = (float)((int32_t)(next(&s) >> 40) - 0x800000) / (float)0x800000;
        if (!layout) {
            put_number(p, format, v);
            continue;
        }
        put_half(p + layout->d_at, v / 64.0f);
        if (layout->min_at != ROWS_NONE) put_half(p + layout->min_at, -v / 16.0f);
        /* The weights most likely to break an integer kernel. */
        if (format == OMM_FORMAT_Q8_0 && i % 3 == 0) memset(p + 2 + i % 8, 0x80, 20);
    }
    return omm_bytes_of(data, units * info->bytes);
}

omm_matrix battery_matrix(omm_format format, uint32_t rows, uint32_t cols, uint64_t seed) {
    omm_bytes bytes = battery_rows(format, rows, cols, seed);
    omm_matrix m;
    OMM_ASSERT(omm_matrix_pack(&m, format, rows, cols, bytes) == OMM_OK);
    omm_free((void *)(uintptr_t)bytes.data); /* NOLINT(performance-no-int-to-ptr): ours */
    return m;
}

uint64_t battery_hash(const void *data, size_t size) {
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void record(battery *out, const char *what, const char *format, size_t m, size_t n, size_t k,
                   const void *data, size_t size) {
    OMM_ASSERT(out->count < BATTERY_ROWS_MAX);
    battery_row *row = &out->rows[out->count++];
    snprintf(row->name, sizeof row->name, "%s %s %zux%zux%zu", what, format, m, n, k);
    row->hash = battery_hash(data, size);
}

static size_t step_of(size_t m, size_t split) {
    return split && split < m ? split : m;
}

static size_t part(size_t m, size_t at, size_t step) {
    return m - at < step ? m - at : step;
}

/* y = x W^T, dx = dy W. */
static void run_floats(battery *out, const omm_compute *c, size_t split, const omm_matrix *w,
                       float *y, const float *x, uint32_t m) {
    const uint32_t n = w->rows, k = w->cols;
    const size_t step = step_of(m, split);
    float *dx = battery_floats(2, (size_t)m * k), *dy = battery_floats(3, (size_t)m * n);
    for (size_t i = 0; i < m; i += step)
        omm_linear_forward(c, y + i * n, x + i * k, w, part(m, i, step), m % 2 == 0);
    record(out, "forward", omm_format_name(w->format), m, n, k, y, (size_t)m * n * 4);
    for (size_t i = 0; i < m; i += step)
        omm_linear_backward(c, dx + i * k, dy + i * n, w, part(m, i, step), m % 3 == 0);
    record(out, "backward", omm_format_name(w->format), m, n, k, dx, (size_t)m * k * 4);
    omm_free(dx);
    omm_free(dy);
}

static void run_linear(battery *out, const omm_compute *c, size_t split, omm_format format,
                       uint32_t m, uint32_t n, uint32_t k) {
    omm_matrix w = battery_matrix(format, n, k, n + k);
    float *x = battery_floats(m, (size_t)m * k), *y = battery_floats(1, (size_t)m * n);
    const size_t step = step_of(m, split);
    if (!out->q8_alone) run_floats(out, c, split, &w, y, x, m);
    if (omm_format_is_quantised(format)) {
        omm_q8_rows q = {0};
        OMM_ASSERT(omm_q8_rows_init(&q, m, k) == OMM_OK);
        for (size_t i = 0; i < m; i += step) {
            omm_q8_quantize(c, &q, x + i * k, part(m, i, step), k);
            omm_linear_q8(c, y + i * n, &q, &w, part(m, i, step));
        }
        record(out, "q8", omm_format_name(format), m, n, k, y, (size_t)m * n * 4);
        omm_q8_rows_fini(&q);
    }
    omm_matrix_fini(&w);
    omm_free(x);
    omm_free(y);
}

static void run_tokens(const omm_compute *c, const omm_gemm *g) {
    omm_gemm_tn_chunks(c, g, NULL);
}

static void run_plain(battery *out, const omm_compute *c, uint32_t m, uint32_t n, uint32_t k,
                      bool accumulate) {
    const size_t lda = (m > k ? m : k) + 3, ldb = (n > k ? n : k) + 1, ldc = n + 5;
    const size_t rows = (m > k ? m : k) > n ? (m > k ? m : k) : n;
    float *a = battery_floats(m, rows * lda), *b = battery_floats(n, rows * ldb);
    static void (*const fn[4])(const omm_compute *, const omm_gemm *) = {omm_gemm_nt, omm_gemm_nn,
                                                                         omm_gemm_tn, run_tokens};
    static const char *const names[4] = {"nt", "nn", "tn", "tn_tokens"};
    for (int i = 0; i < 4; i++) {
        float *r = battery_floats(k, m * ldc);
        omm_gemm g = {r, a, b, m, n, k, lda, ldb, ldc, accumulate};
        fn[i](c, &g);
        record(out, names[i], accumulate ? "more" : "new", m, n, k, r, m * ldc * 4);
        omm_free(r);
    }
    omm_free(a);
    omm_free(b);
}

/* Halves of squares. */
static void run_symmetric(battery *out, const omm_compute *c, uint32_t n, uint32_t k) {
    const size_t lda = (n > k ? n : k) + 3, ldb = (n > k ? n : k) + 1, ldc = n + 5;
    float *a = battery_floats(n, (n > k ? n : k) * lda), *b = battery_floats(k, ldb * ldb);
    static void (*const fn[3])(const omm_compute *, const omm_gemm *) = {
        omm_gemm_nt_symmetric, omm_gemm_nn_symmetric, omm_gemm_tn_symmetric};
    static const char *const names[3] = {"nt", "nn", "tn"};
    for (int i = 0; i < 3; i++) {
        float *r = battery_floats(k, n * ldc);
        fn[i](c, &(omm_gemm){r, a, b, n, n, k, lda, ldb, ldc, false});
        record(out, names[i], "symmetric", n, n, k, r, n * ldc * 4);
        omm_free(r);
    }
    omm_free(a);
    omm_free(b);
}

static void run_rows(battery *out, const omm_compute *c, size_t split, size_t m, size_t n) {
    float *x = battery_floats(n, m * n), *u = battery_floats(n + 1, m * n),
          *y = battery_floats(1, m * n);
    float *r = battery_floats(2, m), *top = battery_floats(3, m);
    omm_vec_scale(c, x, x, 20.0f, m * n);
    const size_t step = step_of(m, split);
    for (size_t i = 0; i < m; i += step)
        omm_rmsnorm_forward(c, y + i * n, r + i, x + i * n, u, part(m, i, step), n, 1e-5f);
    record(out, "rmsnorm", "", m, n, 0, y, m * n * 4);
    record(out, "rmsnorm r", "", m, n, 0, r, m * 4);
    for (size_t i = 0; i < m; i += step)
        omm_softmax_forward(c, y + i * n, x + i * n, part(m, i, step), n);
    record(out, "softmax", "", m, n, 0, y, m * n * 4);
    omm_row_lse(c, top, r, x, m, n);
    record(out, "lse", "", m, n, 0, r, m * 4);
    omm_row_exp(c, y, x, r, m, n, n, n);
    record(out, "row_exp", "", m, n, 0, y, m * n * 4);
    omm_row_dot(c, r, x, u, m, n);
    record(out, "row_dot", "", m, n, 0, r, m * 4);
    omm_swiglu_forward(c, y, x, u, m * n);
    record(out, "swiglu", "", m, n, 0, y, m * n * 4);
    omm_geglu_forward(c, y, x, u, m * n);
    record(out, "geglu", "", m, n, 0, y, m * n * 4);
    omm_vec_softcap(c, y, x, 7.0f, m * n);
    omm_row_add(c, y, u, m, n);
    record(out, "softcap", "", m, n, 0, y, m * n * 4);
    omm_swiglu_forward(c, y, x, u, m * n);
    omm_vec_add(c, y, x, m * n);
    omm_vec_exp(c, y, y, m * n);
    record(out, "exp", "", m, n, 0, y, m * n * 4);
    for (size_t i = 0; i < m * n; i++) y[i] = y[i] > 1e-30f && y[i] < 1e30f ? y[i] : 2.0f;
    omm_vec_log(c, y, y, m * n);
    record(out, "log", "", m, n, 0, y, m * n * 4);
    omm_free(x);
    omm_free(u);
    omm_free(y);
    omm_free(r);
    omm_free(top);
}

typedef struct attention_case {
    omm_kv_type type;
    uint32_t m, heads, kv_heads, d;
    uint32_t rotated; /* 0: pairs over all of d; else halves over this */
    uint32_t window;
    float softcap;
} attention_case;

static omm_rope battery_rope(const attention_case *t) {
    omm_rope rope = {0};
    double frequency[OMM_HEAD_DIM_MAX / 2];
    omm_rope_spec spec = {.positions = t->m,
                          .head_dim = t->d,
                          .rotated = t->rotated ? t->rotated : t->d,
                          .style = t->rotated ? OMM_ROPE_HALVES : OMM_ROPE_PAIRS,
                          .frequency = frequency,
                          .magnitude = t->rotated ? 1.2 : 1.0};
    omm_rope_frequencies(frequency, spec.rotated, 10000.0);
    OMM_ASSERT(omm_rope_init(&rope, &spec) == OMM_OK);
    return rope;
}

static void run_attention(battery *out, const omm_compute *c, size_t split,
                          const attention_case *t) {
    const uint32_t m = t->m, heads = t->heads, kv_heads = t->kv_heads, d = t->d;
    const size_t width = (size_t)heads * d, kv_width = (size_t)kv_heads * d;
    float *q = battery_floats(1, m * width), *k = battery_floats(2, m * kv_width);
    float *v = battery_floats(3, m * kv_width), *o = battery_floats(4, m * width);
    float *top = battery_floats(5, (size_t)m * heads), *lse = battery_floats(6, (size_t)m * heads);
    omm_rope rope = battery_rope(t);
    omm_kv kv = {0};
    OMM_ASSERT(omm_kv_init(&kv, t->type, kv_heads, d, m) == OMM_OK);
    const size_t step = step_of(m, split);
    for (size_t i = 0; i < m; i += step) {
        size_t count = part(m, i, step);
        omm_rope_apply(c, q + i * width, &rope, count, heads, i, false);
        omm_rope_apply(c, k + i * kv_width, &rope, count, kv_heads, i, false);
        omm_kv_store(c, &kv, k + i * kv_width, v + i * kv_width, count, i);
        omm_attention a = {.out = o + i * width,
                           .max = top + i * heads,
                           .lse = lse + i * heads,
                           .q = q + i * width,
                           .kv = &kv,
                           .m = count,
                           .pos0 = i,
                           .heads = heads,
                           .scale = 3.0f,
                           .softcap = t->softcap,
                           .window = t->window};
        omm_attention_forward(c, &a);
    }
    const char *name = t->type == OMM_KV_F16 ? "f16" : "f32";
    record(out, "rope", name, m, heads, d, q, m * width * 4);
    record(out, "attention", name, m, heads, d, o, m * width * 4);
    record(out, "attention max", name, m, heads, d, top, (size_t)m * heads * 4);
    record(out, "attention lse", name, m, heads, d, lse, (size_t)m * heads * 4);
    omm_rope_apply(c, q, &rope, m, heads, 0, true);
    record(out, "rope inverse", name, m, heads, d, q, m * width * 4);
    omm_rope_fini(&rope);
    omm_kv_fini(&kv);
    omm_free(q);
    omm_free(k);
    omm_free(v);
    omm_free(o);
    omm_free(top);
    omm_free(lse);
}

void battery_run(battery *out, const omm_compute *c, size_t split) {
    out->count = 0;
    static const uint32_t shapes[][3] = {{1, 1, 32},   {1, 33, 64},   {2, 16, 32},   {3, 129, 96},
                                         {4, 31, 288}, {37, 48, 544}, {250, 130, 64}};
    for (unsigned f = 0; f <= OMM_FORMAT_Q4_0; f++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            run_linear(out, c, split, (omm_format)f, shapes[i][0], shapes[i][1], shapes[i][2]);
    /* Columns that are no multiple of 16: only the unblocked formats have them. */
    for (unsigned f = OMM_FORMAT_F32; f <= OMM_FORMAT_F16; f++) {
        run_linear(out, c, split, (omm_format)f, 5, 20, 172);
        run_linear(out, c, split, (omm_format)f, 1, 17, 7);
    }
    if (out->q8_alone) return;
    run_plain(out, c, 1, 1, 1, false);
    run_plain(out, c, 5, 8, 300, false);
    run_plain(out, c, 130, 37, 8, true);
    run_plain(out, c, 16, 50, 517, true);
    run_plain(out, c, 29, 64, 128, false);
    run_rows(out, c, split, 3, 1);
    run_rows(out, c, split, 7, 17);
    run_rows(out, c, split, 4, 172);
    run_rows(out, c, split, 5, 1023);
    static const attention_case cases[] = {
        {OMM_KV_F32, 1, 1, 1, 2, 0, 0, 0.0f},       {OMM_KV_F32, 70, 8, 4, 8, 0, 0, 0.0f},
        {OMM_KV_F32, 131, 6, 2, 32, 0, 0, 0.0f},    {OMM_KV_F16, 131, 6, 2, 32, 0, 0, 0.0f},
        {OMM_KV_F32, 65, 14, 1, 24, 0, 0, 0.0f},    {OMM_KV_F16, 20, 3, 3, 40, 0, 0, 0.0f},
        {OMM_KV_F32, 200, 4, 2, 24, 24, 16, 0.0f},  {OMM_KV_F32, 150, 2, 1, 40, 30, 1, 5.0f},
        {OMM_KV_F16, 150, 13, 1, 16, 16, 64, 2.0f}, {OMM_KV_F32, 260, 3, 1, 36, 34, 65, 0.0f},
        {OMM_KV_F32, 140, 5, 5, 16, 16, 140, 9.0f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attention(out, c, split, &cases[i]);
}

void battery_run_formats(battery *out, const omm_compute *c, size_t split) {
    out->count = 0;
    /* Columns in units of 32 or 256; those of one format end within a panel of 512. */
    static const uint32_t shapes[][3] = {{1, 1, 1},  {1, 83, 3}, {2, 16, 1},
                                         {3, 65, 2}, {4, 31, 5}, {45, 50, 3}};
    for (unsigned f = OMM_FORMAT_BF16; f < OMM_FORMAT_COUNT; f++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const uint32_t block = omm_format_block((omm_format)f);
            const uint32_t unit = block == 1 ? 37 : block == 32 ? 192 : 256;
            run_linear(out, c, split, (omm_format)f, shapes[i][0], shapes[i][1],
                       shapes[i][2] * unit);
        }
}

void battery_run_many(battery *out, const omm_compute *c) {
    static const omm_format formats[] = {OMM_FORMAT_F32, OMM_FORMAT_Q8_0};
    out->count = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        run_linear(out, c, 0, formats[i], 265, 40, 288);
        run_linear(out, c, 0, formats[i], 48, 290, 64);
    }
    if (out->q8_alone) return;
    run_symmetric(out, c, 1, 1);
    run_symmetric(out, c, 47, 130);
    run_symmetric(out, c, 389, 259); /* more than GEMM_MB rows, than GEMM_KC steps */
}
