/* grammar_number.c - numbers, byte after byte: any, or those of a range.
 *
 * In a range are those spelled without an exponent, with up to 9 digits behind the point.  What may follow is known digit by
 * digit: the numbers that begin with some digits are those of a few intervals, one for each digit that may still come before
 * the point, and one of them has to meet the range. */
#include "grammar_internal.h"

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

/* The nearest one, and how it compares with the number. */
static decimal nearest(int *compares, const json_t *number) {
    char text[400];
    if (json_is_integer(number)) {
        *compares = 0;
        return (decimal){.whole = json_integer_value(number)};
    }
    const double v = json_real_value(number);
    const int size = snprintf(text, sizeof text, "%.*f", (int)DECIMAL_DIGITS, v);
    const double made = strtod(text, NULL);
    *compares = made < v ? -1 : made > v;
    if (fabs(v) > (double)INTEGER_MAX)
        return (decimal){.whole = v < 0 ? -INTEGER_MAX - 1 : INTEGER_MAX + 1};
    const int32_t nano = (int32_t)strtol(text + size - DECIMAL_DIGITS, NULL, 10);
    return (decimal){strtoll(text, NULL, 10), v < 0 ? -nano : nano};
}

decimal decimal_bound(const json_t *number, bool is_low, bool exclusive) {
    int compares = 0;
    decimal a = nearest(&compares, number);
    if (a.whole > INTEGER_MAX) return (decimal){.whole = INTEGER_MAX + 1};
    if (a.whole < -INTEGER_MAX) return (decimal){.whole = -INTEGER_MAX - 1};
    if (is_low && (compares < 0 || (exclusive && compares == 0))) a.nano++;
    if (!is_low && (compares > 0 || (exclusive && compares == 0))) a.nano--;
    return a;
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
    return decimal_compare(first, high) <= 0 && decimal_compare(last, low) >= 0;
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
        return decimal_compare(r->low, (decimal){0, 0}) <= 0 && match_go(t, PHASE_SIGN, 0);
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
