/* grammar_number.c - numbers, byte after byte: any, or those of a range.
 *
 * In a range are those spelled without an exponent, with up to 9 digits behind the point.  What may follow is known digit by
 * digit: the numbers that begin with some digits are those of a few intervals, one for each digit that may still come before
 * the point, and one of them has to meet the range. */
#include "grammar_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FRACTION_DIGITS_MAX 17u
#define EXPONENT_DIGITS_MAX 2u
static const int32_t s_tens[DECIMAL_DIGITS + 1] = {
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, DECIMAL_NANO};

/* ---- decimals ------------------------------------------------------------------------------------ */

int decimal_compare(decimal a, decimal b) {
    if (a.whole != b.whole) return a.whole < b.whole ? -1 : 1;
    return a.nano < b.nano ? -1 : a.nano > b.nano;
}

static decimal negated(decimal a) {
    return (decimal){-a.whole, -a.nano};
}

decimal decimal_whole(decimal a, bool up) {
    const bool moves = up ? a.nano > 0 : a.nano < 0;
    return (decimal){a.whole + (moves ? (up ? 1 : -1) : 0), 0};
}

static decimal moved(decimal a, int64_t nanos) {
    const int64_t sum = a.nano + nanos;
    a.whole += sum / DECIMAL_NANO;
    a.nano = (int32_t)(sum % DECIMAL_NANO);
    if (a.whole > 0 && a.nano < 0) return (decimal){a.whole - 1, a.nano + DECIMAL_NANO};
    if (a.whole < 0 && a.nano > 0) return (decimal){a.whole + 1, a.nano - DECIMAL_NANO};
    return a;
}

static double read_back(decimal a) {
    char text[64];
    const bool minus = a.whole < 0 || a.nano < 0;
    snprintf(text, sizeof text, "%s%" PRId64 ".%09d", minus ? "-" : "",
             a.whole < 0 ? -a.whole : a.whole, abs(a.nano));
    return strtod(text, NULL);
}

/* Of the first of a range as a double: the least decimal that whoever reads doubles takes for one that is in it. */
static decimal least_read(double first, bool exclusive) {
    char text[400];
    const int size = snprintf(text, sizeof text, "%.*f", (int)DECIMAL_DIGITS, first);
    const int32_t nano = (int32_t)strtol(text + size - DECIMAL_DIGITS, NULL, 10);
    const decimal near = {strtoll(text, NULL, 10), first < 0 ? -nano : nano};
    const double size_of = fabs(first), next = nextafter(size_of, HUGE_VAL);
    int64_t high = (int64_t)((next - size_of) * DECIMAL_NANO * 2) + 2, low = -high;
    while (high - low > 1) { /* low is not in it, high is */
        const int64_t middle = low + (high - low) / 2;
        const double read = read_back(moved(near, middle));
        if (exclusive ? read > first : read >= first)
            high = middle;
        else
            low = middle;
    }
    return moved(near, high);
}

static decimal least_of(const json_t *number, bool is_low, bool exclusive, bool is_integer) {
    const double v = is_low ? json_number_value(number) : -json_number_value(number);
    const json_int_t given = json_integer_value(number);
    decimal exact = {.whole = INTEGER_MAX + 1};
    if (v > (double)INTEGER_MAX) return exact;
    if (v < -(double)INTEGER_MAX) return (decimal){.whole = -INTEGER_MAX - 1};
    if (!json_is_integer(number) && is_integer)
        return moved((decimal){.whole = (int64_t)floor(v)}, floor(v) < v || exclusive);
    if (!json_is_integer(number)) return least_read(v, exclusive);
    exact = moved((decimal){.whole = is_low ? given : -given}, exclusive);
    if (is_integer || !exclusive) return exact;
    const decimal read = least_read(v, true);
    return decimal_compare(read, exact) > 0 ? read : exact;
}

decimal decimal_bound(const json_t *number, bool is_low, bool exclusive, bool is_integer) {
    const decimal least = least_of(number, is_low, exclusive, is_integer);
    return is_low ? least : negated(least);
}

/* ---- any number ---------------------------------------------------------------------------------- */

static bool is_digit(uint8_t b) {
    return b >= '0' && b <= '9';
}

static bool begin_digits(thread *t, uint8_t b) {
    return is_digit(b) && match_go(t, b == '0' ? PHASE_ZERO : PHASE_DIGITS, 1);
}

/* Behind a digit. */
static bool more_digits(thread *t, uint8_t b, uint32_t most) {
    if (!is_digit(b) || t->at == most) return false;
    t->at++;
    return true;
}

static bool begin_exponent(thread *t, uint8_t b) {
    return (b == 'e' || b == 'E') && match_go(t, PHASE_E, 0);
}

static bool step_any(thread *t, uint8_t b) {
    switch (t->phase) {
    case PHASE_BEGIN: return b == '-' ? match_go(t, PHASE_SIGN, 0) : begin_digits(t, b);
    case PHASE_SIGN: return begin_digits(t, b);
    case PHASE_DIGITS:
        if (more_digits(t, b, INTEGER_DIGITS_MAX)) return true;
        break;
    case PHASE_POINT: return is_digit(b) && match_go(t, PHASE_FRACTION, 1);
    case PHASE_FRACTION: return more_digits(t, b, FRACTION_DIGITS_MAX) || begin_exponent(t, b);
    case PHASE_E:
        if (b == '+' || b == '-') return match_go(t, PHASE_E_SIGN, 0);
        return is_digit(b) && match_go(t, PHASE_EXPONENT, 1);
    case PHASE_E_SIGN: return is_digit(b) && match_go(t, PHASE_EXPONENT, 1);
    case PHASE_EXPONENT: return more_digits(t, b, EXPONENT_DIGITS_MAX);
    default: break;
    }
    return b == '.' ? match_go(t, PHASE_POINT, 0) : begin_exponent(t, b);
}

/* ---- of a range ---------------------------------------------------------------------------------- */

static int64_t whole_of(const thread *t) {
    return (int64_t)((uint64_t)t->hi << 32 | t->lo);
}

static void set_whole(thread *t, uint64_t value) {
    t->lo = (uint32_t)value;
    t->hi = (uint32_t)(value >> 32);
}

/* Does one of first .. last, without the sign that was written, lie in the range? */
static bool meets(const thread *t, const rule *r, decimal first, decimal last) {
    const decimal low = t->letter ? negated(r->high) : r->low;
    const decimal high = t->letter ? negated(r->low) : r->high;
    if (decimal_compare(first, high) > 0 || decimal_compare(last, low) < 0) return false;
    if (r->multiple == 0) return true;
    const int64_t least = first.whole > low.whole ? first.whole : low.whole; /* not below 0 */
    const int64_t most = last.whole < high.whole ? last.whole : high.whole;
    return most - most % r->multiple >= least;
}

static int32_t last_nano(const rule *r) {
    return r->kind == RULE_NUMBER ? DECIMAL_NANO - 1 : 0;
}

/* Is there one that begins with the digits so far, all before the point? */
static bool may_be(const thread *t, const rule *r) {
    int64_t first = whole_of(t), last = first;
    const uint32_t most = first ? INTEGER_DIGITS_MAX : t->at; /* nothing follows a zero */
    for (uint32_t digits = t->at;; digits++) {
        if (meets(t, r, (decimal){first, 0}, (decimal){last, last_nano(r)})) return true;
        if (digits == most) return false;
        first *= 10;
        last = last * 10 + 9;
    }
}

/* The same behind the point. */
static bool may_be_fraction(const thread *t, const rule *r) {
    const int32_t first = (int32_t)t->pos * s_tens[DECIMAL_DIGITS - t->at];
    const int64_t whole = whole_of(t);
    return meets(t, r, (decimal){whole, first},
                 (decimal){whole, first + s_tens[DECIMAL_DIGITS - t->at] - 1});
}

static bool step_whole(thread *t, const rule *r, uint8_t b) {
    if (!is_digit(b) || t->phase == PHASE_ZERO || t->at == INTEGER_DIGITS_MAX) return false;
    if (r->kind == RULE_INTEGER && t->phase == PHASE_SIGN && b == '0') return false; /* no -0 */
    const uint64_t value = (uint64_t)whole_of(t) * 10 + (uint64_t)(b - '0');
    set_whole(t, value);
    return match_go(t, value ? PHASE_DIGITS : PHASE_ZERO, t->at + 1) && may_be(t, r);
}

static bool step_fraction(thread *t, const rule *r, uint8_t b) {
    if (!is_digit(b) || t->at == DECIMAL_DIGITS) return false;
    t->pos = t->pos * 10 + (uint32_t)(b - '0');
    return match_go(t, PHASE_FRACTION, t->at + 1) && may_be_fraction(t, r);
}

static bool step_ranged(thread *t, const rule *r, uint8_t b) {
    const bool has_digits = t->phase == PHASE_ZERO || t->phase == PHASE_DIGITS;
    if (t->phase == PHASE_POINT || t->phase == PHASE_FRACTION) return step_fraction(t, r, b);
    if (t->phase == PHASE_BEGIN && b == '-') {
        t->letter = 1;
        const int below = decimal_compare(r->low, (decimal){0, r->kind == RULE_NUMBER});
        return below < 0 && match_go(t, PHASE_SIGN, 0); /* of integers there is no -0 */
    }
    if (b == '.' && has_digits && r->kind == RULE_NUMBER) {
        t->pos = 0;
        return match_go(t, PHASE_POINT, 0) && may_be_fraction(t, r);
    }
    return step_whole(t, r, b);
}

bool number_step(thread *t, const rule *r, uint8_t b) {
    return r->ranged ? step_ranged(t, r, b) : step_any(t, b);
}

bool number_can_end(const thread *t, const rule *r) {
    decimal value = {.whole = whole_of(t)};
    if (!r->ranged) return true;
    if (t->phase == PHASE_FRACTION) value.nano = (int32_t)t->pos * s_tens[DECIMAL_DIGITS - t->at];
    return meets(t, r, value, value);
}
