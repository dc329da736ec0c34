/* rational.c - exact fractions: every step is exact, or refused before anything overflows. */
#include "rational.h"

#include <string.h>

#define WIDE_MAX (~(rational_wide)0)
#define ROUNDED_DECIMALS 2u /* of a rounded value from 1 on */
#define DECIMALS_MAX 128u   /* 10^37 < 2^123: no finite decimal here has more */
#define DIGIT_BYTES_MAX 40u /* of one whole number */

static rational_wide limit(void) {
    rational_wide v = 1;
    for (unsigned i = 0; i < RATIONAL_DIGITS_MAX; i++) v *= 10;
    return v;
}

static omm_err too_big(void) {
    return omm_raise(OMM_ERR_TOO_BIG, "a number here has more than %u digits", RATIONAL_DIGITS_MAX);
}

static rational_wide gcd(rational_wide a, rational_wide b) {
    while (b != 0) {
        rational_wide rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static omm_err times(rational_wide *out, rational_wide a, rational_wide b) {
    if (a != 0 && b > WIDE_MAX / a) return too_big();
    *out = a * b;
    return OMM_OK;
}

/* Lowest terms, within the limit. */
static omm_err reduce(rational *out, bool negative, rational_wide num, rational_wide den) {
    rational_wide g = gcd(num, den);
    OMM_ASSERT(g != 0);
    num /= g;
    den /= g;
    if (num > limit() || den > limit()) return too_big();
    *out = (rational){negative && num != 0, num, den};
    return OMM_OK;
}

rational rational_of(uint32_t value) {
    return (rational){false, value, 1};
}

rational rational_negate(rational a) {
    a.negative = !a.negative && a.num != 0;
    return a;
}

bool rational_is_zero(rational a) {
    return a.num == 0;
}

omm_err rational_parse(rational *out, const char *text, size_t size) {
    rational_wide num = 0;
    rational_wide den = 1;
    bool point = false;
    bool digit = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            return omm_raise(OMM_ERR_FORMAT, "'%.*s' is not a number", (int)size, text);
        if (num > limit() / 10 || den > limit() / 10) return too_big();
        unsigned value = (unsigned)(text[i] - '0');
        num *= 10;
        num += value;
        if (point) den *= 10;
        digit = true;
    }
    if (!digit) return omm_raise(OMM_ERR_FORMAT, "'%.*s' is not a number", (int)size, text);
    return reduce(out, false, num, den);
}

omm_err rational_add(rational *out, rational a, rational b) {
    rational_wide left = 0;
    rational_wide right = 0;
    rational_wide den = 0;
    rational_wide g = gcd(a.den, b.den);
    OMM_ASSERT(g != 0);
    OMM_TRY(times(&left, a.num, b.den / g));
    OMM_TRY(times(&right, b.num, a.den / g));
    OMM_TRY(times(&den, a.den, b.den / g));
    if (a.negative != b.negative)
        return left >= right ? reduce(out, a.negative, left - right, den)
                             : reduce(out, b.negative, right - left, den);
    if (left > WIDE_MAX - right) return too_big();
    return reduce(out, a.negative, left + right, den);
}

omm_err rational_multiply(rational *out, rational a, rational b) {
    rational_wide num = 0;
    rational_wide den = 0;
    rational_wide g = gcd(a.num, b.den); /* across first: the products are then in lowest terms */
    rational_wide h = gcd(b.num, a.den);
    OMM_ASSERT(g != 0);
    OMM_ASSERT(h != 0);
    OMM_TRY(times(&num, a.num / g, b.num / h));
    OMM_TRY(times(&den, a.den / h, b.den / g));
    return reduce(out, a.negative != b.negative, num, den);
}

omm_err rational_divide(rational *out, rational a, rational b) {
    if (b.num == 0) return omm_raise(OMM_ERR_NUMERIC, "division by zero");
    return rational_multiply(out, a, (rational){b.negative, b.den, b.num});
}

omm_err rational_power(rational *out, rational a, rational exponent, uint32_t exponent_max) {
    if (exponent.den != 1) return omm_raise(OMM_ERR_FORMAT, "only whole exponents are read");
    if (exponent.num > exponent_max)
        return omm_raise(OMM_ERR_TOO_BIG, "an exponent is at most %u", exponent_max);
    if (a.num == 0 && exponent.num == 0)
        return omm_raise(OMM_ERR_NUMERIC, "0 to the power of 0 has no agreed value");
    if (exponent.negative) OMM_TRY(rational_divide(&a, rational_of(1), a));
    rational result = rational_of(1);
    for (uint32_t rest = (uint32_t)exponent.num; rest > 0; rest /= 2) {
        if (rest % 2 == 1) OMM_TRY(rational_multiply(&result, result, a));
        if (rest > 1) OMM_TRY(rational_multiply(&a, a, a));
    }
    *out = result;
    return OMM_OK;
}

/* ---- In digits ----------------------------------------------------------------------------- */

static omm_err put_whole(omm_buf *out, rational_wide v) {
    char digits[DIGIT_BYTES_MAX];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + (int)(v % 10));
        v /= 10;
    } while (v != 0);
    return omm_buf_append(out, digits + at, sizeof digits - at);
}

static bool is_finite_decimal(rational_wide den) {
    while (den % 2 == 0) den /= 2;
    while (den % 5 == 0) den /= 5;
    return den == 1;
}

/* Decimals of rest/den into `digits`: all of them, or (rounded) as many as say something. */
static size_t decimals(char digits[DECIMALS_MAX], rational_wide *rest, rational_wide den, bool all,
                       bool below_one) {
    size_t count = 0;
    size_t wanted = ROUNDED_DECIMALS;
    bool leading = below_one;
    while (*rest != 0 && (all || count < wanted)) {
        OMM_ASSERT(count < DECIMALS_MAX);
        *rest *= 10;
        int digit = (int)(*rest / den);
        *rest %= den;
        digits[count++] = (char)('0' + digit);
        if (leading && digit == 0) wanted = count + 1 + ROUNDED_DECIMALS;
        if (digit != 0) leading = false;
    }
    return count;
}

/* Add one in the last place; true when it carries over the point. */
static bool round_up(char *digits, size_t count) {
    while (count > 0) {
        if (digits[--count] != '9') {
            digits[count]++;
            return false;
        }
        digits[count] = '0';
    }
    return true;
}

static omm_err write(omm_buf *out, rational a) {
    char digits[DECIMALS_MAX];
    rational_wide whole = a.num / a.den;
    rational_wide rest = a.num % a.den;
    bool finite = is_finite_decimal(a.den);
    size_t count = decimals(digits, &rest, a.den, finite, whole == 0);
    /* Half of the last place cannot be met exactly by a value that is no finite decimal. */
    if (!finite && rest * 2 > a.den && round_up(digits, count)) whole++;
    OMM_TRY(omm_buf_printf(out, "%s", a.negative ? "-" : ""));
    OMM_TRY(put_whole(out, whole));
    if (count > 0) OMM_TRY(omm_buf_printf(out, ".%.*s", (int)count, digits));
    if (finite) return OMM_OK;
    OMM_TRY(omm_buf_printf(out, " (rounded; exactly %s", a.negative ? "-" : ""));
    OMM_TRY(put_whole(out, a.num));
    OMM_TRY(omm_buf_printf(out, "/"));
    OMM_TRY(put_whole(out, a.den));
    return omm_buf_printf(out, ")");
}

omm_err rational_write(omm_buf *out, rational a) {
    size_t before = out->size;
    omm_err err = write(out, a);
    if (err != OMM_OK) out->size = before;
    return err;
}
