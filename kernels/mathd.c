/* mathd.c - exp, log, sin and cos in double from IEEE operations; the schemes of fdlibm. */
#include "omm/mathd.h"

#include "omm/bytes.h"

static const double LN2_HI = 6.93147180369123816490e-01; /* 32 bits: n * LN2_HI is exact */
static const double LN2_LO = 1.90821492927058770002e-10;
/* Adding and taking away 1.5 * 2^52 rounds to the nearest integer, ties to even. */
static const double MAGIC = 6755399441055744.0;

static double not_a_number(void) {
    return omm_f64_of_bits(0x7ff8000000000000u);
}

double omm_exp_d(double x) {
    if (x != x) return not_a_number();
    if (x > 700.0) x = 700.0;
    if (x < -700.0) x = -700.0;
    double n = (x * 1.44269504088896338700 + MAGIC) - MAGIC;
    double r = (x - n * LN2_HI) - n * LN2_LO;
    double p = 1.0; /* Taylor, |r| <= 0.347: the term after the last is below 1e-17 */
    for (int k = 14; k >= 1; k--) p = 1.0 + r * p / (double)k;
    return p * omm_f64_of_bits((uint64_t)((int64_t)n + 1023) << 52);
}

double omm_log_d(double x) {
    if (!(x >= 0x1p-1022 && x < 0x1p1023 * 2)) return not_a_number();
    uint64_t bits = omm_f64_to_bits(x);
    /* m in [sqrt(1/2), sqrt(2)) */
    int64_t e = ((int64_t)bits - 0x3fe6a09e00000000) >> 52;
    double m = omm_f64_of_bits(bits - ((uint64_t)e << 52));
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, k = (double)e;
    double r = 1.479819860511658591e-01;
    r = r * z + 1.531383769920937332e-01;
    r = r * z + 1.818357216161805012e-01;
    r = r * z + 2.222219843214978396e-01;
    r = r * z + 2.857142874366239149e-01;
    r = r * z + 3.999999999940941908e-01;
    r = r * z + 6.666666666666735130e-01;
    r = r * z;
    double h = 0.5 * f * f;
    return k * LN2_HI - ((h - (s * (h + r) + k * LN2_LO)) - f);
}

static double sin_small(double x) { /* |x| <= pi / 4 */
    double z = x * x;
    double p = 1.58969099521155010221e-10;
    p = p * z - 2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    p = p * z - 1.66666666666666324348e-01;
    return x + x * z * p;
}

static double cos_small(double x) {
    double z = x * x;
    double p = -1.13596475577881948265e-11;
    p = p * z + 2.08757232129817482790e-09;
    p = p * z - 2.75573143513906633035e-07;
    p = p * z + 2.48015872894767294178e-05;
    p = p * z - 1.38888888888741095749e-03;
    p = p * z + 4.16666666666666019037e-02;
    return 1.0 - (0.5 * z - z * z * p);
}

/* x - n pi/2 for the nearest n; returns n mod 4.  pi/2 in two parts, the first of 33 bits, so that
 * n times it is exact for n < 2^20. */
static unsigned reduce(double *r, double x) {
    double n = (x * 6.36619772367581382433e-01 + MAGIC) - MAGIC;
    *r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    return (unsigned)((int64_t)n & 3);
}

double omm_sin_d(double x) {
    if (!(x >= -OMM_TURN_MAX && x <= OMM_TURN_MAX)) return not_a_number();
    double r = 0.0;
    switch (reduce(&r, x)) {
    case 0: return sin_small(r);
    case 1: return cos_small(r);
    case 2: return -sin_small(r);
    default: return -cos_small(r);
    }
}

double omm_cos_d(double x) {
    if (!(x >= -OMM_TURN_MAX && x <= OMM_TURN_MAX)) return not_a_number();
    double r = 0.0;
    switch (reduce(&r, x)) {
    case 0: return cos_small(r);
    case 1: return -sin_small(r);
    case 2: return -cos_small(r);
    default: return sin_small(r);
    }
}

double omm_pow_d(double x, double y) {
    return omm_exp_d(y * omm_log_d(x));
}
