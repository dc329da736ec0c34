/* mathd.h - exp, log, sin and cos in double, the same bits on every machine.
 *
 * Built from IEEE add, multiply and divide and bit operations only (no libm, no contraction), so
 * that schedules and rotary tables need no tolerance.  Within 2 ulp of the true value in the
 * ranges given, which is far below what is kept of them in f32.
 *
 * Depends on: nothing.  Threads: pure functions.
 */
#ifndef OMM_MATHD_H
#define OMM_MATHD_H

#define OMM_TURN_MAX 0x1p20 /* radians of which sin and cos are known */

double omm_exp_d(double x); /* |x| <= 700, clamped there; NaN gives NaN */
double omm_log_d(double x); /* x > 0 and normal; else NaN */
double omm_sin_d(double x); /* |x| <= OMM_TURN_MAX; else NaN */
double omm_cos_d(double x);
double omm_pow_d(double x, double y); /* exp(y log x), x > 0; relative error about |y log x| ulp */

#endif
