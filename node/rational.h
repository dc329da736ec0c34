/* rational.h - private to node: exact fractions on 128 bits.
 *
 * Invariants: den >= 1, gcd(num, den) = 1, num and den <= 10^37 (so that ten times either fits),
 * zero is +0/1.  Every operation is exact or refused.
 *
 * Depends on: err, bytes.  Threads: no shared state.
 */
#ifndef OMM_NODE_RATIONAL_H
#define OMM_NODE_RATIONAL_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

#define RATIONAL_DIGITS_MAX 37u

/* Magnitudes are unsigned, with the sign apart: the overflow helpers that compilers want for signed
 * 128-bit products are not in every runtime library. */
__extension__ typedef unsigned __int128 rational_wide;

typedef struct rational {
    bool negative;
    rational_wide num, den;
} rational;

rational rational_of(uint32_t value);
rational rational_negate(rational a);
bool rational_is_zero(rational a);
/* Read `size` bytes of digits with at most one point.  Errors: FORMAT, TOO_BIG. */
OMM_CHECKED omm_err rational_parse(rational *out, const char *text, size_t size);
/* Errors: TOO_BIG (over 37 digits); NUMERIC (division by zero). */
OMM_CHECKED omm_err rational_add(rational *out, rational a, rational b);
OMM_CHECKED omm_err rational_multiply(rational *out, rational a, rational b);
OMM_CHECKED omm_err rational_divide(rational *out, rational a, rational b);
/* `exponent` must be whole and at most `exponent_max`.  Errors: FORMAT (it is not), TOO_BIG, NUMERIC
 * (0 to a power below 1). */
OMM_CHECKED omm_err rational_power(rational *out, rational a, rational exponent,
                                   uint32_t exponent_max);
/* Append as calculator.h says.  Errors: NOMEM, TOO_BIG (the buffer). */
OMM_CHECKED omm_err rational_write(omm_buf *out, rational a);

#endif
