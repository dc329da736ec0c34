/* mathd_test.c - our double functions against the C library's, within a stated distance. */
#include "omm/mathd.h"
#include "omm_test.h"

#include <math.h>

/* In units of the last place of the true value (of 1 for sin and cos).  Measured: 1.2. */
static const double ULP_MAX = 2.0;

static void near(double got, double want, double unit) {
    if (fabs(got - want) <= ULP_MAX * unit * 0x1p-52) return;
    fprintf(stderr, "%.17g is not near %.17g\n", got, want);
    exit(1);
}

int main(void) {
    for (double x = -690.0; x < 690.0; x += 0.137) near(omm_exp_d(x), exp(x), exp(x));
    for (double x = 1e-300; x < 1e300; x *= 1.37)
        near(omm_log_d(x), log(x), fmax(fabs(log(x)), 1e-3));
    for (double x = 0.5; x < 2.0; x += 0.0007) near(omm_log_d(x), log(x), fmax(fabs(log(x)), 1e-3));
    for (double x = -1048570.0; x < 1048570.0; x += 37.123) {
        near(omm_sin_d(x), sin(x), 1.0);
        near(omm_cos_d(x), cos(x), 1.0);
    }
    for (double x = -7.0; x < 7.0; x += 0.0013) {
        near(omm_sin_d(x), sin(x), 1.0);
        near(omm_cos_d(x), cos(x), 1.0);
    }
    near(omm_pow_d(10000.0, -0.75), 1e-3, 20e-3);
    CHECK(omm_exp_d(0.0) == 1.0 && omm_cos_d(0.0) == 1.0 && omm_sin_d(0.0) == 0.0);
    CHECK(omm_log_d(1.0) == 0.0);
    CHECK(isnan(omm_log_d(0.0)) && isnan(omm_log_d(-1.0)) && isnan(omm_log_d(HUGE_VAL)));
    CHECK(isnan(omm_sin_d(HUGE_VAL)) && isnan(omm_cos_d((double)NAN)) && isnan(omm_exp_d((double)NAN)));
    CHECK(omm_exp_d(-HUGE_VAL) < 1e-300 && omm_exp_d(HUGE_VAL) > 1e300);
    return 0;
}
