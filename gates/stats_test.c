/* Goal: the statistics are what their definitions say, to the last bit.
 * Method: values by hand, and bootstrap intervals from an independent program (ChaCha20, BLAKE2b and
 * the resampling written anew in another language) compared as hexadecimal floats.  Quantiles of t against the closed form of
 * its distribution, and how often noise passes by drawing it.
 */
#include "omm/mem.h"
#include "omm/stats.h"
#include "omm_test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static void test_mean_and_jain(void) {
    CHECK(omm_mean((const double[]){1, 2, 6}, 3) == 3.0);
    CHECK(isnan(omm_mean(NULL, 0)));
    CHECK(omm_jain((const double[]){1, 1, 1, 1}, 4) == 1.0);
    CHECK(omm_jain((const double[]){1, 0, 0, 0}, 4) == 0.25);
    /* 6^2 / (3 * 14) = 6/7 */
    CHECK(omm_jain((const double[]){1, 2, 3}, 3) == 36.0 / 42.0);
    CHECK(omm_jain((const double[]){0, 0}, 2) == 0.0);
    CHECK(isnan(omm_jain(NULL, 0)));
    CHECK(isnan(omm_jain((const double[]){1, -1}, 2)));
    CHECK(isnan(omm_jain((const double[]){1, (double)NAN}, 2)));
    CHECK(isnan(omm_jain((const double[]){1, (double)INFINITY}, 2)));
}

static void test_decile(void) {
    double values[25];
    double out;
    for (int i = 0; i < 25; i++) values[i] = (double)((i * 7) % 25); /* 0 .. 24, shuffled */
    CHECK_OK(omm_lowest_decile(&out, values, 25));
    CHECK(out == 1.0); /* the lowest 3: 0, 1, 2 */
    CHECK_OK(omm_lowest_decile(&out, values, 10));
    CHECK(out == 0.0);
    CHECK_OK(omm_lowest_decile(&out, values, 11));
    CHECK(out == 1.5); /* the lowest 2: 0, 3 */
    CHECK_OK(omm_lowest_decile(&out, values + 1, 1));
    CHECK(out == 7.0);
    CHECK_OK(omm_lowest_decile(&out, NULL, 0));
    CHECK(isnan(out));
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_lowest_decile(&out, values, 25), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
}

static void test_bootstrap(void) {
    const double five[] = {0.5, -0.25, 1.0, 0.125, 2.0};
    omm_interval interval;
    omm_seed seed = omm_seed_from_u64(7);
    CHECK_OK(omm_bootstrap(&interval, five, 5, &seed, 10000));
    CHECK(interval.low == 0x1.999999999999ap-5);
    CHECK(interval.high == 0x1.6666666666666p+0);

    double values[24];
    for (int i = 0; i < 24; i++) values[i] = (double)(i * i % 23) / 16 - 0.3;
    seed = omm_seed_from_u64(1);
    CHECK_OK(omm_bootstrap(&interval, values, 24, &seed, 1000));
    CHECK(interval.low == 0x1.f777777777774p-6);
    CHECK(interval.high == 0x1.4f7777777777ap-2);

    CHECK_OK(omm_bootstrap(&interval, five, 1, &seed, 40)); /* one client: no spread */
    CHECK(interval.low == 0.5 && interval.high == 0.5);
    CHECK_ERR(omm_bootstrap(&interval, five, 0, &seed, 1000), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_bootstrap(&interval, five, 5, &seed, 39), OMM_ERR_CONFIG);
    CHECK_ERR(omm_bootstrap(&interval, five, 5, &seed, 1000001), OMM_ERR_CONFIG);
    values[23] = (double)NAN;
    CHECK_ERR(omm_bootstrap(&interval, values, 24, &seed, 1000), OMM_ERR_NUMERIC);
    for (size_t nth = 1; nth <= 2; nth++) {
        omm_mem_fail_nth(nth);
        CHECK_ERR(omm_bootstrap(&interval, five, 5, &seed, 1000), OMM_ERR_NOMEM);
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), 0);
    }
}

/* As the header has it, one draw after the other: of 79 means the lowest and the highest, of 80 the second ones. */
static void test_bootstrap_slowly(void) {
    enum { N = 24, MOST = 80 };
    double values[N], means[MOST];
    const omm_seed seed = omm_seed_from_u64(3);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_BOOTSTRAP, 0, 0);
    omm_interval interval;
    for (int i = 0; i < N; i++) values[i] = (double)(i * i % 23) / 16 - 0.3;
    for (uint32_t b = 0; b < MOST; b++) {
        double sum = 0;
        for (uint64_t j = 0; j < N; j++)
            sum += values[omm_rng_below(&lane, (uint64_t)b * N + j, N)];
        means[b] = sum / N;
    }
    for (uint32_t resamples = MOST - 1; resamples <= MOST; resamples++) {
        const size_t cut = resamples / 40;
        CHECK_OK(omm_bootstrap(&interval, values, N, &seed, resamples));
        size_t below = 0, above = 0;
        for (uint32_t b = 0; b < resamples; b++) {
            below += means[b] < interval.low;
            above += means[b] > interval.high;
        }
        CHECK_EQ(below, cut - 1);
        CHECK_EQ(above, cut - 1);
    }
    const double one = 0.5;
    CHECK_OK(omm_bootstrap(&interval, &one, 1, &seed, OMM_BOOTSTRAP_RESAMPLES_MAX));
    values[0] = (double)NAN;
    CHECK_ERR(omm_bootstrap(&interval, values, N, &seed, 1000), OMM_ERR_NUMERIC);
}

/* P(|T| <= t) of a whole number of degrees of freedom.  Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4. */
static double within(double t, size_t df) {
    const double theta = atan2(t, sqrt((double)df)), c = cos(theta), s = sin(theta);
    const double pi = 3.14159265358979323846;
    double sum = 0, term = df % 2 ? c : 1;
    for (size_t i = 2 + df % 2; i <= df; i += 2) {
        sum += term;
        term *= c * c * (double)(i - 1) / (double)i;
    }
    return df % 2 ? 2 / pi * (theta + s * sum) : s * sum;
}

/* Half of them at -a, half at a, one at 0 where they are odd: mean 0, and a such that the mean's standard error is 1. */
static double quantile_of(double *values, size_t count) {
    const double a = sqrt((double)(count % 2 ? count : count - 1));
    for (size_t i = 0; i < count; i++) values[i] = i < count / 2 ? -a : a;
    if (count % 2) values[count / 2] = 0;
    return -omm_student_low(values, count);
}

static void test_student(void) {
    enum { MOST = 4096 }; /* clients of a bundle */
    static double values[MOST];
    static const struct {
        size_t count;
        double t; /* scipy.stats.t.ppf(0.975, count - 1), scipy 1.17 */
    } known[] = {{2, 12.706204736174694},   {3, 4.302652729749462},     {5, 2.7764451051977934},
                 {10, 2.262157162798205},   {31, 2.0422724563012378},   {32, 2.0395134463964077},
                 {101, 1.9839715185235518}, {1001, 1.9623390808264083}, {4096, 1.9605434621072302}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK(fabs(quantile_of(values, known[i].count) - known[i].t) < 3e-8); /* 2.6e-8 of 32 */
    for (size_t count = 2; count <= MOST; count++)
        CHECK(fabs(within(quantile_of(values, count), count - 1) - 0.95) < 4e-9); /* 2.8e-9 of 32 */

    /* mean 2, s 1 */
    CHECK(omm_student_low((const double[]){1, 2, 3}, 3) == 2 - 4.3026527297494639 * sqrt(1.0 / 3));
    CHECK(omm_student_low((const double[]){0.5, 0.5, 0.5}, 3) == 0.5);
    CHECK(isnan(omm_student_low(values, 0)) && isnan(omm_student_low(values, 1)));
    CHECK(isnan(omm_student_low((const double[]){1, (double)NAN}, 2)));
    CHECK(isnan(omm_student_low((const double[]){1, (double)INFINITY}, 2)));
    CHECK(isnan(omm_student_low((const double[]){DBL_MAX, -DBL_MAX}, 2)));
}

/* Uplifts that are noise: the sum of twelve uniform numbers less 6 is close to normal.  Of 20,000 draws 2.5 % are 500, their
 * standard deviation 22. */
static void test_noise(void) {
    static const size_t counts[] = {2, 3, 5, 10, 40};
    enum { DRAWS = 20000, MOST = 40, PARTS = 12, MEAN = 6 };
    const omm_seed seed = omm_seed_from_u64(5);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, c, 0);
        size_t passed = 0;
        for (size_t draw = 0; draw < DRAWS; draw++) {
            uint32_t words[MOST * PARTS];
            double values[MOST];
            const size_t size = counts[c] * PARTS;
            omm_rng_fill_u32(words, &lane, draw * size, size);
            for (size_t i = 0; i < counts[c]; i++) {
                values[i] = -MEAN;
                for (size_t k = 0; k < PARTS; k++) values[i] += words[i * PARTS + k] * 0x1p-32;
            }
            passed += omm_student_low(values, counts[c]) >= 0;
        }
        if (passed < 435 || passed > 565) fprintf(stderr, "%zu clients: %zu\n", counts[c], passed);
        CHECK(passed > 435 && passed < 565);
    }
}

int main(void) {
    test_mean_and_jain();
    test_decile();
    test_bootstrap();
    test_bootstrap_slowly();
    test_student();
    test_noise();
    return 0;
}
