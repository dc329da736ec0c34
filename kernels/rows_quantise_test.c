/* rows_quantise_test.c - quantised rows: goldens, reference roundings by hand, error bounds, what is
 * refused. */
#include "rows_internal.h"

#include "omm/hash.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { COLS = 16384 };

static float s_x[COLS], s_y[COLS];
static uint8_t s_row[COLS * 4];

/* Bell-shaped values of a few sizes, with outliers, zeros and a shifted stretch. */
static void fill(void) {
    omm_seed seed = omm_seed_from_u64(4);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < COLS; i++) {
        float v = 0.0f;
        for (size_t k = 0; k < 8; k++) v += omm_rng_unit(&rng, 8 * i + k) - 0.5f;
        v *= 0.02f * (float)(1 + i / 1024 % 5);
        if (i % 97 == 0) v *= 20.0f;
        if (i % 7 == 0 && i / 2048 % 2 == 1) v = 0.0f;
        if (i / 4096 == 2) v += 0.1f;
        s_x[i] = i / 256 == 5 ? 0.0f : v;
    }
}

/* Digest of the row, and its error as a share of the values' size.  The bytes of the types with a
 * reference rounding were compared with ggml's, the errors of the others too:
 * docs/measurements/files.md. */
static const struct {
    omm_ggml_type type;
    float error_max;
    uint64_t bytes;
} s_goldens[] = {
    {OMM_GGML_F32, 0.0000f, 0x275aaa6fbb28e399},    {OMM_GGML_F16, 0.0003f, 0xade6e62b29387467},
    {OMM_GGML_Q4_0, 0.1507f, 0x35f7866dcc051759},   {OMM_GGML_Q4_1, 0.0989f, 0xe9f59364e1d81f5f},
    {OMM_GGML_Q5_0, 0.0805f, 0x7aae86727855b5f8},   {OMM_GGML_Q5_1, 0.0469f, 0xa0302609c10ea25f},
    {OMM_GGML_Q8_0, 0.0105f, 0xa772471b29c70428},   {OMM_GGML_Q2_K, 0.1913f, 0x34dfde7171bb0e84},
    {OMM_GGML_Q3_K, 0.1575f, 0xc168f781e167befd},   {OMM_GGML_Q4_K, 0.0883f, 0x30e88f23985c5d8b},
    {OMM_GGML_Q5_K, 0.0435f, 0xbb8722eaffe4eb71},   {OMM_GGML_Q6_K, 0.0279f, 0x9ac4c5b86c489e40},
    {OMM_GGML_IQ4_NL, 0.1178f, 0x24163ca13ecbbd82}, {OMM_GGML_IQ4_XS, 0.1203f, 0x23e560e72e0f73a5},
    {OMM_GGML_BF16, 0.0018f, 0xd51e45be9038a7f1},   {OMM_GGML_TQ1_0, 0.6163f, 0xabf9d02f562aadf7},
    {OMM_GGML_TQ2_0, 0.6163f, 0xe78e4ba8a71b73c6},
};

static void goldens(void) {
    size_t count = 0, found = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t k = 0; k < count; k++) {
        const omm_ggml_type type = all[k].type;
        const size_t stride = omm_rows_stride(type, COLS);
        CHECK_OK(omm_rows_quantise(s_row, type, s_x, COLS));
        CHECK_EQ(omm_rows_check(type, s_row, COLS), COLS);
        omm_rows_dequantise(s_y, type, s_row, COLS);
        double error = 0.0, size = 0.0;
        for (size_t i = 0; i < COLS; i++) {
            error += ((double)s_x[i] - (double)s_y[i]) * ((double)s_x[i] - (double)s_y[i]);
            size += (double)s_x[i] * (double)s_x[i];
        }
        error = sqrt(error / size);
        const omm_digest d = omm_hash(omm_bytes_of(s_row, stride));
        const uint64_t digest = omm_get_u64(d.b);
        bool same = false;
        for (size_t i = 0; i < sizeof s_goldens / sizeof *s_goldens; i++)
            same = same || (s_goldens[i].type == type && s_goldens[i].bytes == digest &&
                            error <= (double)s_goldens[i].error_max);
        found += same;
        if (!same)
            printf("{OMM_GGML_%s, %.5ff, 0x%016" PRIx64 "}, is no golden\n", all[k].name, error,
                   digest);
    }
    CHECK_EQ(found, count);
}

/* Blocks are independent: a row quantised in pieces has the same bytes. */
static void pieces(void) {
    static uint8_t piece[1024];
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t k = 0; k < count; k++) {
        const size_t stride = omm_rows_stride(all[k].type, 256);
        CHECK_OK(omm_rows_quantise(s_row, all[k].type, s_x, 4096));
        for (size_t i = 0; i < 16; i++) {
            CHECK_OK(omm_rows_quantise(piece, all[k].type, s_x + 256 * i, 256));
            CHECK(memcmp(piece, s_row + i * stride, stride) == 0);
        }
    }
}

/* BF16: the upper half of the bits, to nearest, of two that are as near the even one. */
static void brain_roundings(void) {
    static const struct {
        uint32_t bits, want;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80},
                 {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81}, {0x3f818000, 0x3f82},
                 {0xbf818000, 0xbf82}, {0x00018000, 0x0002}, {0x7f7f7fff, 0x7f7f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[4], row[2];
        omm_put_u32(bytes, cases[i].bits);
        const float v = omm_get_f32(bytes);
        CHECK_OK(omm_rows_quantise(row, OMM_GGML_BF16, &v, 1));
        CHECK_EQ(omm_get_u16(row), cases[i].want);
    }
    const float beyond = 0x1.ffp127f; /* rounds to infinity */
    uint8_t row[2];
    CHECK_ERR(omm_rows_quantise(row, OMM_GGML_BF16, &beyond, 1), OMM_ERR_NUMERIC);
}

/* Halves and ties as the reference rounds them. */
static void reference_roundings(void) {
    float x[32] = {0}, y[32];
    uint8_t row[64];
    for (size_t i = 0; i < 32; i++) x[i] = (float)i - 15.5f;
    x[0] = -127.0f; /* d = 1: halves away from zero */
    CHECK_OK(omm_rows_quantise(row, OMM_GGML_Q8_0, x, 32));
    CHECK_EQ(omm_get_u16(row), 0x3c00);
    for (size_t i = 1; i < 32; i++)
        CHECK_EQ((int8_t)row[2 + i], i < 16 ? (int)i - 16 : (int)i - 15);
    for (size_t i = 0; i < 32; i++) x[i] = fminf(fmaxf(x[i], -7.5f), 7.5f);
    x[0] = 8.0f; /* the extreme value is code 0: d = -1; halves upwards in code, so down in value */
    CHECK_OK(omm_rows_quantise(row, OMM_GGML_Q4_0, x, 32));
    CHECK_EQ(omm_get_u16(row), 0xbc00);
    CHECK_EQ(row[2] & 15, 0);
    CHECK_EQ(row[2 + 15] & 15, 9); /* -0.5 */
    CHECK_EQ(row[2] >> 4, 8);      /* 0.5 */
    CHECK_EQ(row[2 + 1] & 15, 15); /* -7.5: 16 is cut to the largest code */
    memset(x, 0, sizeof x);
    x[3] = -8.0f; /* of two that are as large the first is code 0: d = 1 */
    x[5] = 8.0f;
    CHECK_OK(omm_rows_quantise(row, OMM_GGML_Q4_0, x, 32));
    CHECK_EQ(omm_get_u16(row), 0x3c00);
    CHECK_EQ(row[2 + 3] & 15, 0);
    CHECK_EQ(row[2 + 5] & 15, 15);
    for (size_t i = 0; i < 32; i++) x[i] = 2.0f + (float)(i % 16);
    CHECK_OK(omm_rows_quantise(row, OMM_GGML_Q4_1, x, 32));
    omm_rows_dequantise(y, OMM_GGML_Q4_1, row, 32);
    for (size_t i = 0; i < 32; i++) CHECK(x[i] == y[i]);
    memset(x, 0, sizeof x);
    for (size_t i = 0; i < 32; i++) x[i] = 1e-41f; /* 1 / d overflows */
    CHECK_OK(omm_rows_quantise(row, OMM_GGML_Q8_0, x, 32));
    for (size_t i = 0; i < 34; i++) CHECK_EQ(row[i], 0);
}

/* Equal values, of a whole block or of 32 columns, stay what they are: where levels start at 0 and a minimum is taken
 * away, negative ones are all minimum. */
static void constants(void) {
    static const float values[] = {-1.0f, 1.0f, -0.013f, 2.7f, -300.0f};
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t k = 0; k < count; k++)
        for (size_t v = 0; v < 2 * sizeof values / sizeof *values; v++) {
            const bool affine = all[k].type == OMM_GGML_Q4_K || all[k].type == OMM_GGML_Q5_K;
            if (v % 2 && !affine)
                continue; /* the others have one scale for more than 32, or few bits for it */
            for (size_t i = 0; i < 512; i++)
                s_y[i] = values[v / 2] * (v % 2 ? 1.0f + 0.25f * (float)(i / 32 % 5) : 1.0f);
            CHECK_OK(omm_rows_quantise(s_row, all[k].type, s_y, 512));
            omm_rows_dequantise(s_y + 512, all[k].type, s_row, 512);
            for (size_t i = 0; i < 512; i++)
                CHECK(fabsf(s_y[i + 512] - s_y[i]) <= 0.02f * fabsf(values[v / 2]));
        }
}

/* Values about the least half: the fitted types lose no more than zeros in their place would. */
static void least_halves(void) {
    static const omm_ggml_type types[] = {OMM_GGML_Q2_K,  OMM_GGML_Q3_K, OMM_GGML_Q4_K,
                                          OMM_GGML_Q5_K,  OMM_GGML_Q6_K, OMM_GGML_IQ4_NL,
                                          OMM_GGML_IQ4_XS};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        for (size_t i = 0; i < 4096; i++) s_y[i] = ldexpf(s_x[i] / 0.02f, -24);
        CHECK_OK(omm_rows_quantise(s_row, types[k], s_y, 4096));
        omm_rows_dequantise(s_y + 4096, types[k], s_row, 4096);
        for (size_t block = 0; block < 4096; block += 256) {
            double lost = 0.0, whole = 0.0;
            for (size_t i = block; i < block + 256; i++) {
                const double x = (double)s_y[i], e = (double)s_y[i + 4096] - x;
                lost += e * e;
                whole += x * x;
            }
            CHECK(lost <= whole);
        }
    }
}

static void refused(omm_ggml_type type, size_t at, float v) {
    const float was = s_x[at];
    s_x[at] = v;
    CHECK_ERR(omm_rows_quantise(s_row, type, s_x, 1024), OMM_ERR_NUMERIC);
    s_x[at] = was;
    CHECK_OK(omm_rows_quantise(s_row, type, s_x, 1024));
}

/* Equal values need no scale, but a minimum. */
static void minimum_is_named(omm_ggml_type type) {
    for (size_t i = 0; i < 64; i++) s_y[i] = i < 32 ? s_x[i] : 70000.0f;
    CHECK_ERR(omm_rows_quantise(s_row, type, s_y, 64), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "columns 32 to 63 in ") != NULL);
    CHECK(strstr(omm_err_sentence(), "the minimum 70000 does not fit into f16") != NULL);
}

static void refusals(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t k = 0; k < count; k++) {
        refused(all[k].type, 1023, NAN);
        refused(all[k].type, 0, INFINITY);
        refused(all[k].type, 600, -INFINITY);
        if (all[k].type != OMM_GGML_F32) refused(all[k].type, 300, 3.4e38f);
    }
    refused(OMM_GGML_F16, 3, 65520.0f);
    refused(OMM_GGML_Q6_K, 3, -65520.0f);
    refused(OMM_GGML_Q8_0, 3, 8.4e6f);
    minimum_is_named(OMM_GGML_Q4_1);
    minimum_is_named(OMM_GGML_Q5_1);
}

/* Sizes from the least float to the largest that is allowed: finite values, no more error than the
 * largest value. */
static void extremes(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t k = 0; k < count; k++)
        for (int e = -149; e <= 15; e++) {
            const float top = ldexpf(1.0f, e);
            for (size_t i = 0; i < 512; i++) s_y[i] = i % 3 ? s_x[i + 4096] / 4.0f * top : -top;
            if (e % 2) s_y[70] = top;
            CHECK_OK(omm_rows_quantise(s_row, all[k].type, s_y, 512));
            CHECK_EQ(omm_rows_check(all[k].type, s_row, 512), 512);
            omm_rows_dequantise(s_y + 512, all[k].type, s_row, 512);
            float largest = ldexpf(1.0f, -18); /* f16 scales end at 2^-24 */
            for (size_t i = 0; i < 512; i++) largest = fmaxf(largest, fabsf(s_y[i]));
            for (size_t i = 0; i < 512; i++)
                if (!(fabsf(s_y[i] - s_y[i + 512]) <= largest)) {
                    fprintf(stderr, "%s, size 2^%d, column %zu: %g became %g\n", all[k].name, e, i,
                            (double)s_y[i], (double)s_y[i + 512]);
                    exit(1);
                }
        }
}

int main(void) {
    fill();
    goldens();
    pieces();
    brain_roundings();
    reference_roundings();
    constants();
    least_halves();
    refusals();
    extremes();
    return 0;
}
