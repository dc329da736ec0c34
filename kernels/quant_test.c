/* quant_test.c - packed strips of every format against rows.h, which defines their values, and the
 * int8 products against the text of kernels.h, on every instruction set. */
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "rows_internal.h"

#include <math.h>
#include <string.h>

static omm_ggml_type type_of(omm_format format) {
    return omm_ggml_find_name(omm_format_name(format))->type;
}

static bool same_bits(const float *a, const float *b, size_t count) {
    return same_bytes(a, b, count * sizeof *a);
}

/* The rows of battery_rows are the caller's own. */
static uint8_t *writable(omm_bytes bytes) {
    return (uint8_t *)(uintptr_t)bytes.data; /* NOLINT(performance-no-int-to-ptr) */
}

static void release(omm_bytes bytes) {
    omm_free(writable(bytes));
}

static omm_matrix packed(omm_format format, uint32_t rows, uint32_t cols, omm_bytes bytes,
                         unsigned threads) {
    omm_pool *pool = NULL;
    omm_matrix w = {0};
    if (threads > 1) CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_matrix_pack_with(&w, pool, format, rows, cols, bytes));
    if (pool) omm_pool_close(pool);
    return w;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void tables_agree(omm_format format) {
    const omm_ggml_info *info = omm_ggml_find_name(omm_format_name(format));
    omm_format found = OMM_FORMAT_COUNT;
    CHECK(info != NULL && omm_format_find(&found, info->name) && found == format);
    CHECK_EQ(info->block, omm_format_block(format));
    CHECK_EQ(omm_rows_stride(info->type, 512), omm_format_row_bytes(format, 512));
}

/* Rows of the strips, any number of threads, and both f32 products, are those of rows.h. */
static void values_agree(const omm_compute *c, omm_format format) {
    enum { N = 37, K = 768, M = 5 };
    const omm_ggml_type type = type_of(format);
    omm_bytes bytes = battery_rows(format, N, K, 5);
    omm_matrix w = packed(format, N, K, bytes, 1), v = packed(format, N, K, bytes, 3);
    CHECK(memcmp(w.data, v.data, w.strips * w.strip_bytes) == 0);
    memset(v.data, 0xa5, v.strips * v.strip_bytes); /* memory that held another matrix */
    CHECK_OK(omm_matrix_pack_into(&v, NULL, bytes));
    CHECK(memcmp(w.data, v.data, w.strips * w.strip_bytes) == 0);
    CHECK_ERR(omm_matrix_pack_into(&v, NULL, omm_bytes_of(bytes.data, bytes.size - 1)),
              OMM_ERR_SIZE);
    static float rows[N][K], got[K];
    for (uint32_t n = 0; n < N; n++) {
        omm_rows_dequantise(rows[n], type, bytes.data + n * omm_rows_stride(type, K), K);
        omm_matrix_row(got, &w, n);
        CHECK(same_bits(got, rows[n], K));
    }
    float *x = battery_floats(1, (size_t)M * K), *dy = battery_floats(2, (size_t)M * N);
    float *y = battery_floats(3, (size_t)M * N), *dx = battery_floats(4, (size_t)M * K);
    omm_linear_forward(c, y, x, &w, M, false);
    omm_linear_backward(c, dx, dy, &w, M, false);
    float *one = battery_floats(5, N);
    omm_linear_forward(c, one, x, &w, 1, false);
    CHECK(same_bits(one, y, N));
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float s = 0.0f;
            for (int k = 0; k < K; k++) s = fmaf(x[m * K + k], rows[n][k], s);
            CHECK(same_bits(&s, &y[m * N + n], 1));
        }
        for (int k = 0; k < K; k++) {
            float s = 0.0f;
            for (int n = 0; n < N; n++) s = fmaf(dy[m * N + n], rows[n][k], s);
            CHECK(same_bits(&s, &dx[m * K + k], 1));
        }
    }
    float *owned[] = {x, dy, y, dx, one};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) omm_free(owned[i]);
    omm_matrix_fini(&w);
    omm_matrix_fini(&v);
    release(bytes);
}

/* ---- int8 products --------------------------------------------------------------------------- */

static int quant_of(const rows_layout *l, uint8_t code) {
    return l->table ? l->table[code] : l->min_at != ROWS_NONE ? code : (int8_t)(code - l->zero);
}

/* The steps of kernels.h for the 32 columns from k on of a block; x: their quants and scale. */
static float chunk_by_definition(float acc, const rows_layout *l, const rows_block *w, int k,
                                 const int8_t *x, float dx) {
    const float d = omm_f16_to_f32(w->d), min = omm_f16_to_f32(w->dmin);
    const int sub = l->sub == 16 ? 16 : 32;
    for (int i0 = 0; i0 < 32; i0 += sub) {
        int32_t dot = 0, sum = 0;
        const int j = l->sub ? (k + i0) / l->sub : 0;
        for (int i = i0; i < i0 + sub; i++) {
            dot += quant_of(l, w->codes[k + i]) * x[i];
            sum += x[i];
        }
        const float scale = l->sub ? d * (float)w->scales[j] : d;
        acc = fmaf((float)dot * scale, dx, acc);
        if (l->min_at == ROWS_NONE) continue;
        acc = fmaf((float)sum * dx, l->sub ? 0.0f - min * (float)w->mins[j] : min, acc);
    }
    return acc;
}

static void quants_by_definition(int8_t q[32], float *d, const float *x) {
    float top = 0.0f;
    for (int i = 0; i < 32; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    *d = top / 127.0f;
    const float inverse = 127.0f / top;
    for (int i = 0; i < 32; i++) q[i] = (int8_t)lrintf(x[i] * inverse);
}

/* Each block is unpacked once, for all of the `m` tokens. */
static void products_by_definition(float *y, const rows_layout *l, omm_bytes bytes, uint32_t n,
                                   uint32_t k, size_t m, const float *x) {
    const size_t stride = omm_rows_stride(l->type, k), chunks = k / 32;
    int8_t *q = omm_alloc(m * k, sizeof *q);
    float *d = omm_alloc(m * chunks, sizeof *d);
    CHECK(q && d);
    for (size_t at = 0; at < m * chunks; at++)
        quants_by_definition(q + at * 32, &d[at], x + at * 32);
    for (uint32_t row = 0; row < n; row++) {
        for (size_t i = 0; i < m; i++) y[i * n + row] = 0.0f;
        for (uint32_t at = 0; at < k; at += l->block) {
            rows_block block = {0};
            rows_unpack(&block, l, bytes.data + row * stride + (size_t)(at / l->block) * l->bytes);
            for (size_t i = 0; i < m; i++)
                for (uint32_t j = 0; j < l->block; j += 32) {
                    const size_t chunk = i * chunks + (at + j) / 32;
                    y[i * n + row] = chunk_by_definition(y[i * n + row], l, &block, (int)j,
                                                         q + chunk * 32, d[chunk]);
                }
        }
    }
    omm_free(q);
    omm_free(d);
}

/* `m` tokens in calls of so many, for each of `splits`, which end with 0. */
static void products_agree(const omm_compute *c, omm_format format, omm_bytes bytes, uint32_t n,
                           uint32_t k, size_t m, const size_t *splits, const float *x) {
    omm_matrix w = packed(format, n, k, bytes, 1);
    float *y = battery_floats(3, m * n), *want = battery_floats(4, m * n);
    omm_q8_rows rows = {0};
    CHECK_OK(omm_q8_rows_init(&rows, m, k));
    products_by_definition(want, rows_layout_of(type_of(format)), bytes, n, k, m, x);
    for (; *splits; splits++) {
        memset(y, 0xa5, m * n * sizeof *y);
        for (size_t i = 0; i < m; i += *splits) {
            const size_t part = m - i < *splits ? m - i : *splits;
            omm_q8_quantize(c, &rows, x + i * k, part, k);
            omm_linear_q8(c, y + i * n, &rows, &w, part);
        }
        for (size_t i = 0; i < m * n; i++) {
            if (!same_bits(&want[i], &y[i], 1))
                fprintf(stderr, "%s, %s: token %zu row %zu: %a, not %a\n", omm_isa_name(c->isa),
                        omm_format_name(format), i / n, i % n, (double)y[i], (double)want[i]);
            CHECK(same_bits(&want[i], &y[i], 1));
        }
    }
    omm_q8_rows_fini(&rows);
    omm_matrix_fini(&w);
    omm_free(want);
    omm_free(y);
}

/* All quants the same, and activations at the ends of their range: what overflows first. */
static void extremes_agree(const omm_compute *c, omm_format format, uint8_t filling) {
    enum { N = 17, K = 1024, M = 59 };
    const rows_layout *l = rows_layout_of(type_of(format));
    omm_bytes bytes = battery_rows(format, N, K, 3);
    uint8_t *data = writable(bytes);
    for (size_t b = 0; b < bytes.size; b += l->bytes)
        for (size_t i = 0; i < l->bytes; i++) {
            const bool d = i == l->d_at || i == l->d_at + 1u;
            const bool min = l->min_at != ROWS_NONE && (i == l->min_at || i == l->min_at + 1u);
            if (!d && !min) data[b + i] = filling;
        }
    float *x = battery_floats(8, (size_t)M * K);
    for (int m = 0; m < M; m++)
        for (int i = 0; i < K; i++) {
            x[m * K + i] = m % 3 == 0 ? 1.0f : m % 3 == 1 || i % 2 == 0 ? -1.0f : 1.0f;
        }
    products_agree(c, format, bytes, N, K, M, (size_t[]){M, 0}, x); /* in tiles of 6, 4 and 1 */
    products_agree(c, format, bytes, N, K, 3, (size_t[]){3, 1, 0}, x);
    omm_free(x);
    release(bytes);
}

static void formats_agree(const omm_compute *c, omm_format format) {
    enum { N = 53, K = 1280, M = 13 };
    omm_bytes bytes = battery_rows(format, N, K, 7);
    float *x = battery_floats(6, (size_t)M * K);
    products_agree(c, format, bytes, N, K, M, (size_t[]){M, 5, 1, 0}, x);
    omm_free(x);
    release(bytes);
    extremes_agree(c, format, 0xff);
    extremes_agree(c, format, 0x80);
    extremes_agree(c, format, 0x00);
}

/* ---- equal bytes ----------------------------------------------------------------------------- */

/* FNV-1a over all hashes of the battery: the same from every compiler and processor. */
static const uint64_t GOLDEN = 0x314e93b7cb4eddb7;

static void all_equal(void) {
    static battery base, other;
    uint64_t all = 0;
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        for (unsigned threads = 1; threads <= 3; threads++) {
            static const size_t splits[] = {0, 1, 7};
            omm_pool *pool = NULL;
            omm_compute c;
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            battery *list = base.count == 0 ? &base : &other;
            battery_run_formats(list, &c, splits[threads - 1]);
            for (size_t i = 0; list == &other && i < other.count; i++) {
                if (base.rows[i].hash == other.rows[i].hash) continue;
                fprintf(stderr, "%s, %u threads: %s differs\n", omm_isa_name((omm_isa)isa), threads,
                        base.rows[i].name);
                exit(1);
            }
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
    for (size_t i = 0; i < base.count; i++) all = (all ^ base.rows[i].hash) * 1099511628211u;
    printf("%zu results, together 0x%016" PRIx64 "\n", base.count, all);
    CHECK(all == GOLDEN);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void put_infinity(uint8_t *half) {
    half[0] = 0x00;
    half[1] = 0x7c;
}

/* Columns that fill no strip: what lies beside them is zero, whatever was in that memory.  The largest numbers of each
 * type are numbers. */
static void odd_columns(omm_format format) {
    enum { N = 37, K = 37 };
    omm_bytes bytes = battery_rows(format, N, K, 3);
    const size_t size = omm_format_row_bytes(format, 1);
    uint8_t *first = writable(bytes);
    first[size - 1] =
        format == OMM_FORMAT_F16 ? 0x7b : 0x7f; /* the exponent, but for its last bit */
    first[size - 2] = format == OMM_FORMAT_F16 ? 0xff : 0x7f;
    omm_matrix w = packed(format, N, K, bytes, 1), v = packed(format, N, K, bytes, 1);
    memset(v.data, 0xa5, v.strips * v.strip_bytes);
    CHECK_OK(omm_matrix_pack_into(&v, NULL, bytes));
    CHECK(memcmp(w.data, v.data, w.strips * w.strip_bytes) == 0);
    float got[K], want[K];
    omm_matrix_row(got, &w, 0);
    omm_rows_dequantise(want, type_of(format), bytes.data, K);
    CHECK(same_bits(got, want, K) && want[0] > 60000.0f);
    omm_matrix_fini(&w);
    omm_matrix_fini(&v);
    release(bytes);
}

/* An infinite scale or weight is named by row and column, the first one whatever thread finds it. */
static void faults_are_named(omm_format format) {
    enum { N = 70, K = 512 };
    const omm_ggml_type type = type_of(format);
    const rows_layout *l = rows_layout_of(type);
    const size_t stride = omm_rows_stride(type, K), unit = stride / (K / omm_format_block(format));
    omm_bytes bytes = battery_rows(format, N, K, 2);
    omm_pool *pool = NULL;
    CHECK_OK(omm_pool_open(&pool, 3));
    for (uint32_t row = 69; row > 0; row = row == 69 ? 33 : 0) { /* then an earlier one */
        uint8_t *at = writable(bytes) + row * stride + unit;
        const bool min = l && l->min_at != ROWS_NONE && row == 33;
        at += l ? (min ? l->min_at : l->d_at) : unit - 2;
        at[0] = 0x80;
        at[1] = format == OMM_FORMAT_BF16 || format == OMM_FORMAT_F32 ? 0x7f : 0x7c;
        omm_matrix w = {0};
        char where[64];
        CHECK_EQ(omm_matrix_pack_with(&w, pool, format, N, K, bytes), OMM_ERR_NUMERIC);
        snprintf(where, sizeof where, "row %u, column %u ", row, omm_format_block(format));
        CHECK(strstr(omm_err_sentence(), where) != NULL);
        const bool is_scale = l || format == OMM_FORMAT_Q8_0 || format == OMM_FORMAT_Q4_0;
        CHECK(strstr(omm_err_sentence(), is_scale ? "scale of" : "weight of") != NULL);
        CHECK(w.data == NULL);
    }
    omm_pool_close(pool);
    release(bytes);
}

/* Two faults in one strip: the row above is named, although its column comes later. */
static void upper_fault_is_named(void) {
    enum { K = 512 };
    const size_t stride = omm_format_row_bytes(OMM_FORMAT_Q8_0, K);
    omm_bytes bytes = battery_rows(OMM_FORMAT_Q8_0, 8, K, 2);
    uint8_t *data = writable(bytes);
    omm_matrix w = {0};
    put_infinity(data + 6 * stride + 34);
    put_infinity(data + 5 * stride + (size_t)34 * 9);
    put_infinity(data + 7 * stride + (size_t)34 * 12);
    CHECK_EQ(omm_matrix_pack(&w, OMM_FORMAT_Q8_0, 8, K, bytes), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "row 5, column 288 ") != NULL);
    release(bytes);
}

static void shapes_are_checked(omm_format format) {
    omm_matrix w = {0};
    const uint32_t block = omm_format_block(format);
    const size_t bytes = omm_format_row_bytes(format, 256);
    uint8_t *zeros = (uint8_t *)omm_alloc(bytes, 2);
    CHECK_EQ(omm_matrix_pack(&w, format, 1, 256, omm_bytes_of(zeros, bytes - 1)), OMM_ERR_SIZE);
    CHECK_EQ(omm_matrix_pack(&w, format, 1, 256, omm_bytes_of(zeros, bytes + 1)), OMM_ERR_SIZE);
    CHECK_EQ(omm_matrix_pack(&w, format, 0, 256, omm_bytes_of(zeros, 0)), OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_matrix_pack(&w, format, OMM_MATRIX_DIM_MAX + 1, 256, omm_bytes_of(zeros, bytes)),
             OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_matrix_outline(&w, format, 1, OMM_MATRIX_DIM_MAX + 256), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_matrix_outline(&w, format, OMM_MATRIX_DIM_MAX, 256));
    if (block > 1)
        CHECK_EQ(omm_matrix_pack(&w, format, 1, block + 16, omm_bytes_of(zeros, bytes)),
                 OMM_ERR_FORMAT);
    omm_mem_fail_nth(1);
    CHECK_EQ(omm_matrix_pack(&w, format, 1, 256, omm_bytes_of(zeros, bytes)), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    omm_free(zeros);
}

int main(void) {
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++) {
        const omm_format format = (omm_format)f;
        omm_compute c;
        CHECK_OK(omm_compute_init(&c, NULL, best));
        tables_agree(format);
        values_agree(&c, format);
        omm_compute_fini(&c);
        for (unsigned isa = 0; isa < OMM_ISA_COUNT && omm_format_is_quantised(format); isa++) {
            if (!omm_isa_available((omm_isa)isa)) continue;
            CHECK_OK(omm_compute_init(&c, NULL, (omm_isa)isa));
            formats_agree(&c, format);
            omm_compute_fini(&c);
        }
        if (!omm_format_is_quantised(format)) odd_columns(format);
        faults_are_named(format);
        shapes_are_checked(format);
    }
    upper_fault_is_named();
    all_equal();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
