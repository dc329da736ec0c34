/* calculator.c - reads an expression by recursive descent and works it out while reading.
 *
 *   sum     = product { (+ | -) product }        a bare percentage may not be added: 50 + 20%
 *   product = signed { (* | / ) signed }         or  percentage "of" signed, as the first pair only
 *   signed  = { + | - } power                    -2^2 is refused
 *   power   = postfix [ ^ { + | - } postfix ]    2^3^2 is refused
 *   postfix = atom [ % | squared | cubed ]
 *   atom    = number | ( sum )
 */
#include "omm/calculator.h"

#include "rational.h"

#include <string.h>
#include <strings.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NUMBER,
    TOKEN_PLUS,
    TOKEN_MINUS,
    TOKEN_TIMES,
    TOKEN_DIVIDE,
    TOKEN_POWER,
    TOKEN_PERCENT,
    TOKEN_OF,
    TOKEN_SQUARED,
    TOKEN_CUBED,
    TOKEN_OPEN,
    TOKEN_CLOSE
} token_kind;

typedef struct parser {
    const char *text; /* NUL-terminated copy */
    size_t at;        /* behind the current token */
    token_kind kind;  /* the current token */
    size_t start;     /* where it begins */
    rational number;  /* of TOKEN_NUMBER */
    unsigned depth;
} parser;

/* What a part of the expression is, besides its value. */
typedef struct operand {
    rational value;
    bool is_percent; /* a percentage that has not been applied to anything yet */
    bool is_power;   /* ends in ^ or squared, outside of parentheses */
} operand;

/* ---- Tokens -------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    token_kind kind;
} s_words[] = {{"plus", TOKEN_PLUS},
               {"minus", TOKEN_MINUS},
               {"times", TOKEN_TIMES},
               {"multiplied by", TOKEN_TIMES},
               {"x", TOKEN_TIMES},
               {"divided by", TOKEN_DIVIDE},
               {"to the power of", TOKEN_POWER},
               {"percent", TOKEN_PERCENT},
               {"per cent", TOKEN_PERCENT},
               {"of", TOKEN_OF},
               {"squared", TOKEN_SQUARED},
               {"cubed", TOKEN_CUBED}};

static const struct {
    const char *text;
    token_kind kind;
} s_signs[] = {
    {"**", TOKEN_POWER},          {"+", TOKEN_PLUS},          {"-", TOKEN_MINUS},
    {"*", TOKEN_TIMES},           {"/", TOKEN_DIVIDE},        {"^", TOKEN_POWER},
    {"%", TOKEN_PERCENT},         {"(", TOKEN_OPEN},          {")", TOKEN_CLOSE},
    {"\xc3\x97", TOKEN_TIMES},    {"\xc3\xb7", TOKEN_DIVIDE}, {"\xe2\x88\x92", TOKEN_MINUS},
    {"\xe2\x80\x93", TOKEN_MINUS}}; /* an en dash, as word processors write it */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Bytes of `text` that spell `phrase` (any case, any white space between its words), or 0. */
static size_t match_phrase(const char *text, const char *phrase) {
    const char *t = text;
    for (; *phrase; phrase++) {
        if (*phrase == ' ') {
            if (!is_space(*t)) return 0;
            while (is_space(*t)) t++;
        } else if (strncasecmp(t++, phrase, 1) != 0) {
            return 0;
        }
    }
    return is_letter(*t) ? 0 : (size_t)(t - text);
}

static omm_err take_number(parser *p) {
    size_t end = p->at;
    bool point = false;
    while (is_digit(p->text[end]) || (p->text[end] == '.' && !point)) {
        point = point || p->text[end] == '.';
        end++;
    }
    OMM_TRY(rational_parse(&p->number, p->text + p->at, end - p->at));
    if (end - p->at == 1 && p->text[p->at] == '0' && (p->text[end] == 'x' || p->text[end] == 'X'))
        return omm_raise(OMM_ERR_FORMAT, "hexadecimal numbers are not read");
    if (p->text[end] == ',')
        return omm_raise(OMM_ERR_FORMAT, "a comma can mean two things: write 1000 or 1.5");
    p->kind = TOKEN_NUMBER;
    p->at = end;
    return OMM_OK;
}

static bool take_fixed(parser *p) {
    for (size_t i = 0; i < sizeof s_words / sizeof s_words[0]; i++) {
        size_t size = match_phrase(p->text + p->at, s_words[i].text);
        if (size > 0) {
            p->kind = s_words[i].kind;
            p->at += size;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof s_signs / sizeof s_signs[0]; i++) {
        size_t size = strlen(s_signs[i].text);
        if (strncmp(p->text + p->at, s_signs[i].text, size) == 0) {
            p->kind = s_signs[i].kind;
            p->at += size;
            return true;
        }
    }
    return false;
}

static omm_err advance(parser *p) {
    while (is_space(p->text[p->at])) p->at++;
    p->start = p->at;
    char c = p->text[p->at];
    if (c == '\0') {
        p->kind = TOKEN_END;
        return OMM_OK;
    }
    if (is_digit(c) || (c == '.' && is_digit(p->text[p->at + 1]))) return take_number(p);
    if (take_fixed(p)) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "cannot read '%.20s'", p->text + p->at);
}

/* ---- Grammar ------------------------------------------------------------------------------- */

static omm_err parse_sum(operand *out, parser *p);

static omm_err enter(parser *p) {
    if (++p->depth > OMM_CALCULATOR_DEPTH_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u parentheses or signs inside each other",
                         OMM_CALCULATOR_DEPTH_MAX);
    return OMM_OK;
}

static omm_err parse_atom(operand *out, parser *p) {
    *out = (operand){.value = p->number};
    if (p->kind == TOKEN_NUMBER) return advance(p);
    if (p->kind == TOKEN_END) return omm_raise(OMM_ERR_FORMAT, "a number is missing at the end");
    if (p->kind != TOKEN_OPEN)
        return omm_raise(OMM_ERR_FORMAT, "a number is missing before '%.20s'", p->text + p->start);
    OMM_TRY(enter(p));
    OMM_TRY(advance(p));
    OMM_TRY(parse_sum(out, p));
    if (p->kind != TOKEN_CLOSE) return omm_raise(OMM_ERR_FORMAT, "')' is missing");
    p->depth--;
    out->is_power = false;
    return advance(p);
}

static omm_err parse_postfix(operand *out, parser *p) {
    OMM_TRY(parse_atom(out, p));
    if (p->kind == TOKEN_PERCENT) {
        if (out->is_percent) return omm_raise(OMM_ERR_FORMAT, "a percentage of what?");
        OMM_TRY(rational_divide(&out->value, out->value, rational_of(100)));
        out->is_percent = true;
        OMM_TRY(advance(p));
        if (p->kind == TOKEN_NUMBER || p->kind == TOKEN_OPEN)
            return omm_raise(OMM_ERR_FORMAT, "%% means percent here: write '20%% of 50'");
    } else if (p->kind == TOKEN_SQUARED || p->kind == TOKEN_CUBED) {
        rational exponent = rational_of(p->kind == TOKEN_SQUARED ? 2 : 3);
        OMM_TRY(rational_power(&out->value, out->value, exponent, OMM_CALCULATOR_EXPONENT_MAX));
        out->is_power = true;
        return advance(p);
    }
    return OMM_OK;
}

/* Signs in front of something: true in *negative for an odd number of minus signs. */
static omm_err take_signs(bool *negative, bool *any, parser *p) {
    unsigned signs = 0;
    *negative = false;
    for (; p->kind == TOKEN_MINUS || p->kind == TOKEN_PLUS; signs++) {
        if (signs == OMM_CALCULATOR_DEPTH_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "more than %u signs in a row", signs);
        if (p->kind == TOKEN_MINUS) *negative = !*negative;
        OMM_TRY(advance(p));
    }
    *any = signs > 0;
    return OMM_OK;
}

static omm_err parse_power(operand *out, parser *p) {
    OMM_TRY(parse_postfix(out, p));
    if (p->kind != TOKEN_POWER) return OMM_OK;
    operand exponent = {0};
    bool negative = false;
    bool any = false;
    if (out->is_power || out->is_percent)
        return omm_raise(OMM_ERR_FORMAT, "a power of this can mean two things: use parentheses");
    OMM_TRY(advance(p));
    OMM_TRY(take_signs(&negative, &any, p));
    OMM_TRY(parse_postfix(&exponent, p));
    if (p->kind == TOKEN_POWER || exponent.is_power || exponent.is_percent)
        return omm_raise(OMM_ERR_FORMAT, "2^3^2 can mean two things: use parentheses");
    if (negative) exponent.value = rational_negate(exponent.value);
    OMM_TRY(rational_power(&out->value, out->value, exponent.value, OMM_CALCULATOR_EXPONENT_MAX));
    out->is_power = true;
    return OMM_OK;
}

static omm_err parse_signed(operand *out, parser *p) {
    bool negative = false;
    bool any = false;
    OMM_TRY(take_signs(&negative, &any, p));
    OMM_TRY(parse_power(out, p));
    if (any && out->is_power)
        return omm_raise(OMM_ERR_FORMAT, "-2^2 can mean two things: write (-2)^2 or -(2^2)");
    if (negative) out->value = rational_negate(out->value);
    return OMM_OK;
}

static omm_err parse_product(operand *out, parser *p) {
    OMM_TRY(parse_signed(out, p));
    for (bool first = true;; first = false) {
        token_kind kind = p->kind;
        operand right = {0};
        if (kind == TOKEN_OF && !(first && out->is_percent))
            return omm_raise(OMM_ERR_FORMAT, "'of' is read only as in '20%% of 50'");
        if (kind != TOKEN_TIMES && kind != TOKEN_DIVIDE && kind != TOKEN_OF) return OMM_OK;
        OMM_TRY(advance(p));
        OMM_TRY(parse_signed(&right, p));
        OMM_TRY(kind == TOKEN_DIVIDE ? rational_divide(&out->value, out->value, right.value)
                                     : rational_multiply(&out->value, out->value, right.value));
        /* 10% of 20% is a percentage still: adding to it would be as unclear. */
        out->is_percent = kind == TOKEN_OF && right.is_percent;
        out->is_power = false;
    }
}

static omm_err parse_sum(operand *out, parser *p) {
    OMM_TRY(parse_product(out, p));
    while (p->kind == TOKEN_PLUS || p->kind == TOKEN_MINUS) {
        bool minus = p->kind == TOKEN_MINUS;
        operand right = {0};
        OMM_TRY(advance(p));
        OMM_TRY(parse_product(&right, p));
        if (out->is_percent || right.is_percent)
            return omm_raise(OMM_ERR_FORMAT,
                             "adding a percentage can mean two things: write '20%% of 50'");
        if (minus) right.value = rational_negate(right.value);
        OMM_TRY(rational_add(&out->value, out->value, right.value));
    }
    return OMM_OK;
}

static omm_err evaluate(rational *out, const char *text) {
    parser p = {.text = text};
    operand value = {0};
    OMM_TRY(advance(&p));
    if (p.kind == TOKEN_END) return omm_raise(OMM_ERR_FORMAT, "there is nothing to calculate");
    OMM_TRY(parse_sum(&value, &p));
    if (p.kind == TOKEN_NUMBER || p.kind == TOKEN_OPEN)
        return omm_raise(OMM_ERR_FORMAT, "an operator is missing before '%.20s'", text + p.start);
    if (p.kind != TOKEN_END)
        return omm_raise(OMM_ERR_FORMAT, "cannot read '%.20s' here", text + p.start);
    *out = value.value;
    return OMM_OK;
}

/* ---- Around the expression ----------------------------------------------------------------- */

/* Bytes of "what is" and white space at the start of `text`. */
static size_t question_size(const char *text) {
    static const char *const s_openings[] = {"what is", "how much is", "calculate"};
    size_t start = 0;
    while (is_space(text[start])) start++;
    for (size_t i = 0; i < sizeof s_openings / sizeof s_openings[0]; i++) {
        size_t size = match_phrase(text + start, s_openings[i]);
        if (size > 0) start += size;
    }
    while (is_space(text[start])) start++;
    return start;
}

/* Without one sign at the end, and white space around it. */
static size_t cut_end(const char *text, size_t size) {
    static const char s_endings[] = "?=.";
    while (size > 0 && is_space(text[size - 1])) size--;
    if (size > 0 && strchr(s_endings, text[size - 1])) size--;
    while (size > 0 && is_space(text[size - 1])) size--;
    return size;
}

/* Copy the expression into `text`.  *start: where it stands in the question. */
static omm_err take_core(char text[OMM_CALCULATOR_BYTES_MAX + 1], size_t *start, size_t *size,
                         omm_bytes question) {
    if (question.size > OMM_CALCULATOR_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "expression of %zu bytes, at most %u", question.size,
                         OMM_CALCULATOR_BYTES_MAX);
    if (question.size > 0) memcpy(text, question.data, question.size);
    text[question.size] = '\0';
    if (strlen(text) != question.size)
        return omm_raise(OMM_ERR_FORMAT, "a zero byte in the expression");
    size_t end = cut_end(text, question.size);
    text[end] = '\0';
    *start = question_size(text);
    *size = end - *start;
    return OMM_OK;
}

omm_bytes omm_calculator_core(omm_bytes question) {
    char text[OMM_CALCULATOR_BYTES_MAX + 1] = "";
    size_t start = 0;
    size_t size = 0;
    if (take_core(text, &start, &size, question) != OMM_OK || size == 0) return (omm_bytes){0};
    return omm_bytes_of(question.data + start, size);
}

omm_err omm_calculate(omm_buf *out, omm_bytes expression) {
    char text[OMM_CALCULATOR_BYTES_MAX + 1] = "";
    rational value = {0};
    size_t start = 0;
    size_t size = 0;
    OMM_TRY(take_core(text, &start, &size, expression));
    OMM_TRY(evaluate(&value, text + start));
    return rational_write(out, value);
}
