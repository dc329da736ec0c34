/* calculator.h - exact arithmetic for the assistant: what it cannot read in one way only, it refuses.
 *
 *   numbers      12  3.5  .5           digits with at most one point; no comma, exponent or hex
 *   operators    + - * / ^ ( )         and x, **, U+00D7, U+00F7, U+2212
 *   words        plus, minus, times, multiplied by, divided by, to the power of, squared, cubed
 *   percent      20% of 50, 20 percent of 50, 50 * 20%
 *   around it    "what is", "how much is", "calculate" before; "?", "=" or "." after
 *
 * Read in two ways, and so refused: -2^2, 2^3^2, 2(3+4), 50 + 20%, 10 % 3, 100 / 20% of 50.
 * Values are fractions of two whole numbers of at most 37 digits; beyond that is refused, too.
 *
 * Depends on: err, bytes.  Threads: no shared state.
 */
#ifndef OMM_CALCULATOR_H
#define OMM_CALCULATOR_H

#include "omm/bytes.h"
#include "omm/err.h"

#define OMM_CALCULATOR_BYTES_MAX 256u
#define OMM_CALCULATOR_DEPTH_MAX 32u      /* parentheses and signs inside each other */
#define OMM_CALCULATOR_EXPONENT_MAX 1000u /* size of a whole exponent */

/* Append the value of `expression` (UTF-8).  A finite decimal is written in full ("2.04", "1024");
 * any other value as "33.33 (rounded; exactly 100/3)".
 * Errors: FORMAT (cannot be read in one way only; says what), NUMERIC ("division by zero", 0^0),
 * TOO_BIG (length, depth, digits), NOMEM.  On error `out` is unchanged. */
OMM_CHECKED omm_err omm_calculate(omm_buf *out, omm_bytes expression);

/* The part of a question that would be read: without "what is" and "?".  Borrowed from it; empty
 * where there is none.  It need not be an expression. */
omm_bytes omm_calculator_core(omm_bytes question);

#endif
