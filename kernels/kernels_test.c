/* kernels_test.c - equal bytes on every instruction set, thread count and split of a batch, and the
 * definitions of kernels.h spelled out naively. */
#include "kernels_battery.h"
#include "kernels_table.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

static bool same_bits(const void *a, const void *b) {
    return memcmp(a, b, sizeof(float)) == 0;
}

static void compare(const battery *a, const battery *b, const char *what) {
    CHECK_EQ(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        if (a->rows[i].hash == b->rows[i].hash) continue;
        fprintf(stderr, "%s: %s differs\n", what, a->rows[i].name);
        exit(1);
    }
}

static battery s_base, s_other;

/* FNV-1a over all hashes of the battery: the same from every compiler and processor. */
static const uint64_t GOLDEN = 0xc199d311bc23504a;

static void all_equal(void) {
    omm_compute scalar;
    CHECK_OK(omm_compute_init(&scalar, NULL, OMM_ISA_SCALAR));
    battery_run(&s_base, &scalar, 0);
    omm_compute_fini(&scalar);
    uint64_t all = 0;
    for (size_t i = 0; i < s_base.count; i++) all = (all ^ s_base.rows[i].hash) * 1099511628211u;
    printf("%zu results, together 0x%016" PRIx64 "\n", s_base.count, all);
    CHECK(all == GOLDEN);
    static const size_t splits[] = {0, 1, 5};
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        for (unsigned threads = 1; threads <= 3; threads++) {
            if (isa == OMM_ISA_SCALAR && threads == 1) continue;
            omm_pool *pool = NULL;
            CHECK_OK(omm_pool_open(&pool, threads));
            omm_compute c;
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            atomic_store(&kernels_ask_near, threads % 2 == 1); /* no byte depends on them */
            atomic_store(&kernels_ask_few_bits, threads != 3);
            atomic_store(&kernels_strips_together, threads != 2);
            char what[64];
            snprintf(what, sizeof what, "%s, %u threads, split %zu", omm_isa_name((omm_isa)isa),
                     threads, splits[threads - 1]);
            battery_run(&s_other, &c, splits[threads - 1]);
            compare(&s_base, &s_other, what);
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
}

#if defined(__x86_64__)
/* Plain C as it is where fma is a call of the C library. */
static void calls_equal_instructions(void) {
    omm_compute c;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK(c.k == (omm_isa_scalar_fuses() ? &kernels_scalar_fma : &kernels_scalar));
    if (omm_isa_available(OMM_ISA_AVX2))
        CHECK(omm_isa_scalar_fuses()); /* no tunable hides it here */
    c.k = &kernels_scalar;
    battery_run(&s_other, &c, 0);
    compare(&s_base, &s_other, "plain C, fma of the C library");
    omm_compute_fini(&c);
}
#endif

/* y = x W^T and dx = dy W as the plain loops that define them. */
static void linear_by_definition(const omm_compute *c, omm_format format) {
    enum { M = 5, N = 35 };
    const int cols = omm_format_block(format) == OMM_QUANT_SUPER ? (int)OMM_QUANT_SUPER : 96;
    omm_matrix w = battery_matrix(format, N, (uint32_t)cols, 9);
    float *x = battery_floats(1, (size_t)M * (size_t)cols), *dy = battery_floats(2, (size_t)M * N);
    float *y = battery_floats(3, (size_t)M * N), *dx = battery_floats(4, (size_t)M * (size_t)cols);
    float rows[N][OMM_QUANT_SUPER];
    for (uint32_t n = 0; n < N; n++) omm_matrix_row(rows[n], &w, n);
    omm_linear_forward(c, y, x, &w, M, false);
    omm_linear_backward(c, dx, dy, &w, M, false);
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float s = 0.0f;
            for (int k = 0; k < cols; k++) s = fmaf(x[m * cols + k], rows[n][k], s);
            CHECK(same_bits(&s, &y[m * N + n]));
        }
        for (int k = 0; k < cols; k++) {
            float s = 0.0f;
            for (int n = 0; n < N; n++) s = fmaf(dy[m * N + n], rows[n][k], s);
            CHECK(same_bits(&s, &dx[m * cols + k]));
        }
    }
    omm_matrix_fini(&w);
    omm_free(x);
    omm_free(dy);
    omm_free(y);
    omm_free(dx);
}

/* Of 64 steps each, or as long as `ends` says. */
static float sum_of_chunks(float total, const float *a, const float *b, const omm_gemm *g,
                           const uint32_t *ends) {
    for (size_t k = 0, i = 0; k < g->k; i++) {
        const size_t end = ends ? ends[i] : (i + 1) * 64;
        float s = 0.0f;
        for (; k < g->k && k < end; k++) s = fmaf(a[k * g->lda], b[k * g->ldb], s);
        total = total + s;
    }
    return total;
}

/* Outputs of one row and column in `step` and of the last, added to what was there, or not; the numbers
 * between rows are left alone. */
static void sums_by_definition(const omm_compute *c, size_t m, size_t n, size_t k, size_t step,
                               const uint32_t *ends) {
    const size_t lda = m + 3, ldb = n + 1, ldc = n + 5;
    float *a = battery_floats(1, k * lda), *b = battery_floats(2, k * ldb);
    float *before = battery_floats(3, m * ldc);
    for (int more = 0; more < 2; more++) {
        float *r = battery_floats(3, m * ldc);
        const omm_gemm g = {r, a, b, m, n, k, lda, ldb, ldc, more != 0};
        omm_gemm_tn_chunks(c, &g, ends);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < ldc; j++) {
                if ((i % step != 0 && i + 1 < m) || (j % step != 0 && j + 1 < n)) continue;
                float want = before[i * ldc + j];
                if (j < n) want = sum_of_chunks(more ? want : 0.0f, a + i, b + j, &g, ends);
                CHECK(same_bits(&want, &r[i * ldc + j]));
            }
        omm_free(r);
    }
    omm_free(before);
    omm_free(a);
    omm_free(b);
}

/* Few rows go one way, many another (gemm_tokens_body.h): with several blocks of rows, of columns and
 * of tokens, each with a rest. */
static void tokens_by_definition(const omm_compute *c) {
    static const uint32_t odd[] = {1, 65, 66, 130, 180, 244, 300, 301, 333};
    static const uint32_t single[] = {1, 2, 3, 4, 5, 6, 7};
    sums_by_definition(c, 3, 18, 150, 1, NULL);
    sums_by_definition(c, 48, 33, 150, 1, NULL);
    sums_by_definition(c, 61, 47, 333, 1, odd);
    sums_by_definition(c, 49, 16, 7, 1, single);
    sums_by_definition(c, 53, 1, 1, 1, single);
    sums_by_definition(c, 529, 45, 300, 7, NULL);
    sums_by_definition(c, 505, 801, 70, 7, NULL);
    sums_by_definition(c, 290, 130, 333, 7, odd);
}

/* Chunks of odd lengths: the same as one call for each. */
static void chunks_by_definition(const omm_compute *c) {
    enum { M = 37, N = 50, K = 150 };
    static const uint32_t ends[] = {64, 65, 96, 149, K};
    float *a = battery_floats(1, (size_t)K * M), *b = battery_floats(2, (size_t)K * N);
    float *r = battery_floats(3, (size_t)M * N), *want = battery_floats(3, (size_t)M * N);
    for (int more = 0; more < 2; more++) {
        omm_gemm g = {r, a, b, M, N, K, M, N, N, more != 0};
        omm_gemm_tn_chunks(c, &g, ends);
        g.c = want;
        for (uint32_t i = 0, from = 0; i < sizeof ends / sizeof *ends; from = ends[i++]) {
            g.a = a + (size_t)from * M;
            g.b = b + (size_t)from * N;
            g.k = ends[i] - from;
            g.accumulate = more || i > 0;
            omm_gemm_tn_chunks(c, &g, NULL);
        }
        for (int i = 0; i < M * N; i++) CHECK(same_bits(&want[i], &r[i]));
    }
    omm_free(a);
    omm_free(b);
    omm_free(r);
    omm_free(want);
}

/* Rows of A are read where they lie or packed first, by their distance; both over two blocks of k. */
static void strides_by_definition(const omm_compute *c) {
    enum { M = 40, N = 33, K = 300 };
    static const size_t strides[] = {K, 1024, 5001};
    float *b = battery_floats(2, (size_t)K * N), *r = battery_floats(3, (size_t)M * N);
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        const size_t lda = strides[s];
        float *a = battery_floats(1, M * lda);
        omm_gemm_nn(c, &(omm_gemm){r, a, b, M, N, K, lda, N, N, false});
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++) {
                float want = 0.0f;
                for (size_t k = 0; k < K; k++) want = fmaf(a[i * lda + k], b[k * N + j], want);
                CHECK(same_bits(&want, &r[i * N + j]));
            }
        omm_free(a);
    }
    omm_free(b);
    omm_free(r);
}

static float exp_of(const omm_compute *c, float x) {
    float y = 0.0f;
    omm_vec_exp(c, &y, &x, 1);
    return y;
}

/* Forward, and with the opposite angle as backward does; the magnitude is both's, what does not turn stays. */
static void rope_by_definition(const omm_compute *c, bool inverse) {
    enum { M = 3, HEADS = 2, DIM = 22, ROTATED = 18 };
    double frequency[ROTATED / 2];
    omm_rope rope = {0};
    omm_rope_spec spec = {OMM_ROPE_HALVES, 9, DIM, ROTATED, frequency, 1.5};
    omm_rope_frequencies(frequency, ROTATED, 500.0);
    CHECK_OK(omm_rope_init(&rope, &spec));
    float *x = battery_floats(1, (size_t)M * HEADS * DIM);
    float *y = battery_floats(1, (size_t)M * HEADS * DIM);
    omm_rope_apply(c, y, &rope, M, HEADS, 5, inverse);
    for (int row = 0; row < M * HEADS; row++) {
        const int position = row / HEADS;
        const float *in = x + (size_t)row * DIM;
        for (int i = 0; i < ROTATED / 2; i++) {
            double angle = (double)(5 + position) * pow(500.0, -2.0 * i / ROTATED);
            if (inverse) angle = -angle;
            float cs = (float)(1.5 * cos(angle)), sn = (float)(1.5 * sin(angle));
            float a = in[i], b = in[i + ROTATED / 2];
            CHECK(fabsf(fmaf(a, cs, b * -sn) - y[row * DIM + i]) < 1e-6f);
            CHECK(fabsf(fmaf(b, cs, a * sn) - y[row * DIM + i + ROTATED / 2]) < 1e-6f);
        }
        for (int i = ROTATED; i < DIM; i++) CHECK(same_bits(&in[i], &y[row * DIM + i]));
    }
    omm_rope_fini(&rope);
    omm_free(x);
    omm_free(y);
}

static void q8_by_definition(const omm_compute *c, omm_format format) {
    enum { N = 19, K = 96 };
    omm_matrix w = battery_matrix(format, N, K, 4);
    float *x = battery_floats(7, K), y[N], row[K];
    omm_q8_rows q = {0};
    CHECK_OK(omm_q8_rows_init(&q, 1, K));
    omm_q8_quantize(c, &q, x, 1, K);
    omm_linear_q8(c, y, &q, &w, 1);
    for (uint32_t n = 0; n < N; n++) {
        float acc = 0.0f;
        omm_matrix_row(row, &w, n);
        for (int b = 0; b < K / 32; b++) {
            int32_t dot = 0;
            float d = 0.0f; /* recover scale and integers from the packed bytes */
            const size_t stride = format == OMM_FORMAT_Q8_0 ? 544 : 288;
            const uint8_t *p = w.data + (size_t)n / 16 * w.strip_bytes + (size_t)b * stride;
            uint16_t h;
            memcpy(&h, p + (size_t)n % 16 * 2, 2);
            d = omm_f16_to_f32(h);
            for (int i = 0; i < 32; i++) {
                float v = row[b * 32 + i] / d;
                dot += (int32_t)lrintf(v) * q.q[b * 32 + i];
            }
            acc = fmaf((float)dot * d, q.d[b], acc);
        }
        CHECK(same_bits(&acc, &y[n]));
    }
    for (int b = 0; b < K / 32; b++) {
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) {
            CHECK(fabsf(x[b * 32 + i] - (float)q.q[b * 32 + i] * q.d[b]) <= q.d[b] * 0.5001f);
            sum += q.q[b * 32 + i];
        }
        CHECK_EQ(sum, q.sums[(ptrdiff_t)2 * b] + q.sums[(ptrdiff_t)2 * b + 1]);
    }
    omm_q8_rows_fini(&q);
    omm_matrix_fini(&w);
    omm_free(x);
}

/* More tokens than pass at once, over two blocks of columns: as token by token. */
static void q8_passes(const omm_compute *c, omm_format format) {
    enum { M = 2 * (int)Q8_TOKENS + 11, N = 35, K = (int)Q8_COLUMNS + 256 };
    omm_matrix w = battery_matrix(format, N, K, 5);
    float *x = battery_floats(8, (size_t)M * K), *y = battery_floats(9, (size_t)M * N), one[N];
    omm_q8_rows q = {0};
    CHECK_OK(omm_q8_rows_init(&q, M, K));
    omm_q8_quantize(c, &q, x, M, K);
    omm_linear_q8(c, y, &q, &w, M);
    for (size_t i = 0; i < M; i++) {
        omm_q8_quantize(c, &q, x + i * K, 1, K);
        omm_linear_q8(c, one, &q, &w, 1);
        for (size_t n = 0; n < N; n++) CHECK(same_bits(&one[n], &y[i * N + n]));
    }
    omm_q8_rows_fini(&q);
    omm_matrix_fini(&w);
    omm_free(x);
    omm_free(y);
}

static void q8_product(const omm_compute *c, float *y, const float *x, const omm_matrix *w,
                       size_t m) {
    omm_q8_rows q = {0};
    CHECK_OK(omm_q8_rows_init(&q, m, w->cols));
    omm_q8_quantize(c, &q, x, m, w->cols);
    omm_linear_q8(c, y, &q, w, m);
    omm_q8_rows_fini(&q);
}

/* Few tokens take strips as they lie, some side by side or not, more of them unpacked ones: as token by token. */
static void q8_few_tokens(const omm_compute *c, omm_format format) {
    enum { M = 61, N = 83, K = 512 };
    omm_matrix w = battery_matrix(format, N, K, 6);
    float *x = battery_floats(10, (size_t)M * K), *y = battery_floats(11, (size_t)M * N);
    float *ones = battery_floats(12, (size_t)M * N);
    for (int together = 0; together < 2; together++) {
        atomic_store(&kernels_strips_together, together == 1);
        for (size_t i = 0; i < M; i++)
            q8_product(c, together ? y + i * N : ones + i * N, x + i * K, &w, 1);
        for (size_t i = 0; i < (size_t)M * N && together; i++) CHECK(same_bits(&ones[i], &y[i]));
        for (size_t m = 2; m <= M; m += m < 16 ? 1 : 9) {
            memset(y, 0xff, m * N * sizeof *y); /* no row is one of the last product */
            q8_product(c, y, x, &w, m);
            for (size_t i = 0; i < m * N; i++) CHECK(same_bits(&ones[i], &y[i]));
        }
    }
    omm_matrix_fini(&w);
    omm_free(x);
    omm_free(y);
    omm_free(ones);
}

/* A piece of the work writes its own strips and tokens, an odd number of strips too, and nothing beside them. */
static void q8_pieces(const omm_compute *c, size_t strips) {
    enum { M = 70, N = 83, K = 512, FIRST = 3 };
    const size_t s0 = 1, n0 = s0 * OMM_STRIP, n1 = (s0 + strips) * OMM_STRIP;
    omm_matrix w = battery_matrix(OMM_FORMAT_Q4_K, N, K, 6);
    float *x = battery_floats(14, (size_t)M * K), *y = battery_floats(15, (size_t)M * N);
    float *whole = battery_floats(16, (size_t)M * N);
    const float before = 7.0f;
    omm_q8_rows q = {0};
    CHECK_OK(omm_q8_rows_init(&q, M, K));
    omm_q8_quantize(c, &q, x, M, K);
    omm_linear_q8(c, whole, &q, &w, M);
    for (size_t m1 = FIRST + 2; m1 <= M; m1 += M - FIRST - 2) {
        for (size_t i = 0; i < (size_t)M * N; i++) y[i] = before;
        c->q8->linear(y, &q, &w, c->work, FIRST, m1, s0, s0 + strips);
        for (size_t i = 0; i < (size_t)M * N; i++) {
            const size_t m = i / N, n = i % N;
            const bool own = m >= FIRST && m < m1 && n >= n0 && n < n1;
            CHECK(same_bits(&y[i], own ? &whole[i] : &before));
        }
    }
    omm_q8_rows_fini(&q);
    omm_matrix_fini(&w);
    omm_free(x);
    omm_free(y);
    omm_free(whole);
}

/* Rows that are quantised side by side are what each is alone, whatever one of them holds. */
static void q8_rows_together(const omm_compute *c) {
    enum { M = 66, K = 64 };
    float *x = battery_floats(13, (size_t)M * K);
    const float odd[4] = {NAN, -INFINITY, 1e-31f, -3e38f};
    for (size_t i = 0; i < 4; i++) {
        x[(8 + 5 * i) * K + 40 + i] = odd[i]; /* each in another place of four */
        if (i == 2)
            for (size_t k = 32; k < K; k++) x[(8 + 5 * i) * K + k] = odd[i];
    }
    omm_q8_rows all = {0}, one = {0};
    CHECK_OK(omm_q8_rows_init(&all, M, K));
    CHECK_OK(omm_q8_rows_init(&one, 1, K));
    for (size_t m = 1; m <= M; m += m < 9 ? 1 : 57) {
        omm_q8_quantize(c, &all, x, m, K);
        CHECK(all.stride >= m);
        for (size_t i = 0; i < m; i++) {
            omm_q8_quantize(c, &one, x + i * K, 1, K);
            for (size_t b = 0; b < K / 32; b++) {
                const size_t at = b * all.stride + i;
                CHECK(memcmp(all.q + at * 32, one.q + b * 32, 32) == 0);
                CHECK(same_bits(&all.d[at], &one.d[b]));
                CHECK(memcmp(all.sums + 2 * at, one.sums + 2 * b, 4) == 0);
                for (size_t k = 0; k < 3; k++)
                    CHECK(same_bits(&all.weighted[3 * at + k], &one.weighted[3 * b + k]));
            }
        }
    }
    omm_q8_rows_fini(&all);
    omm_q8_rows_fini(&one);
    omm_free(x);
}

static void q8_edges(const omm_compute *c) {
    float x[128] = {0}, y[1];
    x[3] = 1e-31f;    /* block 0: too small, becomes zero */
    x[40] = INFINITY; /* block 1 */
    x[70] = NAN;      /* block 2 */
    x[100] = -3e38f;  /* block 3: largest magnitude */
    omm_q8_rows q = {0};
    CHECK_OK(omm_q8_rows_init(&q, 1, 128));
    omm_q8_quantize(c, &q, x, 1, 128);
    CHECK(q.d[0] == 0.0f && q.q[3] == 0);
    CHECK(isnan(q.d[1]) && isnan(q.d[2]));
    CHECK_EQ(q.q[100], -127);
    omm_matrix w = battery_matrix(OMM_FORMAT_Q8_0, 1, 128, 1);
    omm_linear_q8(c, y, &q, &w, 1);
    CHECK(!omm_all_finite(c, y, 1));
    omm_matrix_fini(&w);
    omm_q8_rows_fini(&q);
}

/* Measured over a dense sample: exp 1.01 ulp, log 0.82 ulp. */
static void functions_are_close(const omm_compute *c) {
    const double ulp_max = 1.1;
    for (uint32_t b = 0x33000000; b < 0x42aeac00; b += 40009)
        for (int sign = 0; sign < 2; sign++) {
            float x, y;
            uint32_t bits = b | (uint32_t)sign << 31;
            memcpy(&x, &bits, 4);
            omm_vec_exp(c, &y, &x, 1);
            double want = exp((double)x);
            int e;
            frexp(want, &e);
            CHECK(fabs((double)y - want) <= ulp_max * ldexp(1.0, e - 24));
        }
    for (uint32_t b = 0x00800000; b < 0x7f7f0000; b += 90001) {
        float x, y;
        memcpy(&x, &b, 4);
        omm_vec_log(c, &y, &x, 1);
        double want = log((double)x);
        int e;
        frexp(want, &e);
        CHECK(fabs((double)y - want) <= ulp_max * ldexp(1.0, e - 24));
    }
    CHECK(exp_of(c, -88.0f) == 0.0f && exp_of(c, -INFINITY) == 0.0f);
    CHECK(exp_of(c, 0.0f) == 1.0f);
}

/* As plain C has it where it is cut off, where 2^n takes two factors, and of what is no number. */
static void exp_at_its_ends(const omm_compute *c) {
    enum { N = 4096 };
    static const float middles[] = {-87.33654f, 88.72283f, -0.34657f, 0.34657f,
                                    44.0f,      -1e30f,    1e30f};
    float x[N], y[N], want[N];
    omm_compute plain;
    CHECK_OK(omm_compute_init(&plain, NULL, OMM_ISA_SCALAR));
    for (size_t i = 0; i < sizeof middles / sizeof middles[0]; i++) {
        uint32_t middle;
        memcpy(&middle, &middles[i], sizeof middle);
        for (uint32_t k = 0; k < N; k++) {
            const uint32_t bits = middle - N / 2 + k;
            memcpy(&x[k], &bits, sizeof bits);
        }
        x[7] = NAN;
        x[8] = INFINITY;
        x[9] = -INFINITY;
        omm_vec_exp(c, y, x, N);
        omm_vec_exp(&plain, want, x, N);
        for (size_t k = 0; k < N; k++) CHECK(same_bits(&y[k], &want[k]));
    }
    omm_compute_fini(&plain);
}

static double ulps(float got, double want) {
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

/* Measured over a dense sample: tanh 1.15 ulp; gelu 1.1e-7 of |x|. */
static void bounded_functions_are_close(const omm_compute *c) {
    const double tanh_ulp_max = 1.2, gelu_relative_max = 2e-7;
    double worst_tanh = 0.0, worst_gelu = 0.0;
    for (uint32_t b = 0x33000000; b < 0x42aeac00; b += 10007)
        for (int sign = 0; sign < 2; sign++) {
            float x, y, one = 1.0f;
            uint32_t bits = b | (uint32_t)sign << 31;
            memcpy(&x, &bits, 4);
            omm_vec_softcap(c, &y, &x, 1.0f, 1);
            worst_tanh = worse_of(worst_tanh, ulps(y, tanh((double)x)));
            omm_geglu_forward(c, &y, &x, &one, 1);
            double d = (double)x, u = 0.7978845608028654 * (d + 0.044715 * d * d * d);
            worst_gelu =
                worse_of(worst_gelu, fabs((double)y - 0.5 * d * (1.0 + tanh(u))) / fabs(d));
        }
    printf("tanh %.3f ulp, gelu %.2e of |x|\n", worst_tanh, worst_gelu);
    CHECK(worst_tanh <= tanh_ulp_max && worst_gelu <= gelu_relative_max);
    const float edges[] = {0.0f, INFINITY, -INFINITY, 1e30f, 0.625f, -0.0f};
    const double want[] = {0.0, 30.0, -30.0, 30.0, 0.0, 0.0};
    for (size_t i = 0; i < 6; i++) {
        float y;
        omm_vec_softcap(c, &y, &edges[i], 30.0f, 1);
        if (i != 4) CHECK((double)y == want[i]);
    }
}

/* A row whose squares add up to more than f32 has is no row of zeros; the one before and after are as they are. */
static void norm_overflows(const omm_compute *c) {
    enum { ROWS = 3, N = 21 };
    float x[ROWS][N], y[ROWS][N], w[N];
    for (size_t i = 0; i < N; i++) {
        w[i] = 1.0f;
        x[0][i] = x[2][i] = (float)i + 1.0f;
        x[1][i] = i == 20 ? 1e20f : 1.0f;
    }
    omm_rmsnorm_forward(c, y[0], NULL, x[0], w, ROWS, N, 1e-5f);
    for (size_t i = 0; i < N; i++) {
        CHECK(isfinite(y[0][i]) && y[0][i] > 0.0f && same_bits(&y[0][i], &y[2][i]));
        CHECK(isnan(y[1][i]));
    }
}

int main(void) {
    omm_compute c;
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++) linear_by_definition(&c, (omm_format)f);
    q8_by_definition(&c, OMM_FORMAT_Q8_0);
    q8_by_definition(&c, OMM_FORMAT_Q4_0);
    q8_edges(&c);
    functions_are_close(&c);
    bounded_functions_are_close(&c);
    rope_by_definition(&c, false);
    rope_by_definition(&c, true);
    omm_compute_fini(&c);
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        CHECK_OK(omm_compute_init(&c, NULL, (omm_isa)isa));
        norm_overflows(&c);
        exp_at_its_ends(&c);
        q8_rows_together(&c);
        q8_pieces(&c, 3);
        q8_pieces(&c, 5);
        tokens_by_definition(&c);
        chunks_by_definition(&c);
        strides_by_definition(&c);
        q8_passes(&c, OMM_FORMAT_Q8_0);
        q8_passes(&c, OMM_FORMAT_Q6_K);
        for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++)
            if (omm_format_is_quantised((omm_format)f)) q8_few_tokens(&c, (omm_format)f);
        omm_compute_fini(&c);
    }
    all_equal();
#if defined(__x86_64__)
    calls_equal_instructions();
#endif
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
