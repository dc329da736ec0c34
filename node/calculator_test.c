/* calculator_test.c - a table of expressions with their exact values, and one of refusals. */
#include "omm/calculator.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

typedef struct sample {
    const char *expression;
    const char *value;
} sample;

static const sample s_values[] = {
    /* the four of the issue */
    {"100 times 3", "300"},
    {"2^10", "1024"},
    {"20% of 50", "10"},
    /* as the base model writes them */
    {"47*86", "4042"},
    {"12*(3+4)", "84"},
    {"17*12/100", "2.04"},
    {"90-70", "20"},
    {"240/24", "10"},
    {"(678+87)*4", "3060"},
    {"967*(79+20)", "95733"},
    {"1380+29", "1409"},
    {"3+4+5", "12"},
    /* words and signs */
    {"7 plus 5", "12"},
    {"7 Plus 5", "12"},
    {"20 minus 30", "-10"},
    {"6 multiplied   by 7", "42"},
    {"9 divided by 4", "2.25"},
    {"2 to the power of 8", "256"},
    {"20 percent of 50", "10"},
    {"20 per cent of 50", "10"},
    {"3 squared", "9"},
    {"2 cubed", "8"},
    {"3 x 4", "12"},
    {"3x4", "12"},
    {"3 X 4", "12"},
    {"0 x 4", "0"},
    {"3 \xc3\x97 4", "12"},
    {"12 \xc3\xb7 5", "2.4"},
    {"5 \xe2\x88\x92 7", "-2"},
    {"5 \xe2\x80\x93 3", "2"},
    {"2**3", "8"},
    {"What is 100 times 3?", "300"},
    {"how much is 7 plus 5 ?", "12"},
    {"calculate 2+2.", "4"},
    {"2 + 2 =", "4"},
    /* order and association */
    {"2+3*4", "14"},
    {"(2+3)*4", "20"},
    {"100-10-1", "89"},
    {"100/10/2", "5"},
    {"2*3^2", "18"},
    {"-(2^2)", "-4"},
    {"(-2)^2", "4"},
    {"(-2)^3", "-8"},
    {"2^-2", "0.25"},
    {"2^(1+2)", "8"},
    {"(2^3)^2", "64"},
    {"2^(3^2)", "512"},
    {"3--5", "8"},
    {"--5", "5"},
    {"+5", "5"},
    {"-5 + 3", "-2"},
    {"3 - 2^2", "-1"},
    {"((((7))))", "7"},
    /* percent */
    {"20%", "0.2"},
    {"50 * 20%", "10"},
    {"20% * 50", "10"},
    {"50 / 20%", "250"},
    {"12.5% of 80", "10"},
    {"20% of 50 + 3", "13"},
    {"20% of (50 + 3)", "10.6"},
    {"10% of 20% of 50 * 2", NULL},
    {"10% of 20%", "0.02"},
    {"-20% of 50", "-10"},
    /* exact where binary floating point is not */
    {"0.1 + 0.2", "0.3"},
    {"0.1 * 3 - 0.3", "0"},
    {"1.10 + 2.20", "3.3"},
    {".5 + .25", "0.75"},
    {"1/3 + 1/6", "0.5"},
    {"1/3*3", "1"},
    {"1/49*49", "1"},
    {"9007199254740993 + 0", "9007199254740993"},
    {"9007199254740993 * 3", "27021597764222979"},
    {"123456789 * 987654321", "121932631112635269"},
    {"2^100", "1267650600228229401496703205376"},
    {"2^120 / 2^119", "2"},
    {"10^37", "10000000000000000000000000000000000000"},
    {"-10^1 ", NULL},
    {"1/2^20", "0.00000095367431640625"},
    {"1/1024", "0.0009765625"},
    {"0 * -5", "0"},
    {"0/7", "0"},
    {"-0", "0"},
    {"007", "7"},
    {"1^1000", "1"},
    {"0^5", "0"},
    {"5^0", "1"},
    /* not a finite decimal: says that it is rounded, and the exact value */
    {"100/3", "33.33 (rounded; exactly 100/3)"},
    {"200/3", "66.67 (rounded; exactly 200/3)"},
    {"-200/3", "-66.67 (rounded; exactly -200/3)"},
    {"1/3", "0.33 (rounded; exactly 1/3)"},
    {"2/3", "0.67 (rounded; exactly 2/3)"},
    {"1/300", "0.00333 (rounded; exactly 1/300)"},
    {"2999/3000", "1.00 (rounded; exactly 2999/3000)"},
    {"29999/30", "999.97 (rounded; exactly 29999/30)"},
    {"89999/9000", "10.00 (rounded; exactly 89999/9000)"},
    {"6/4/3*2/7", "0.14 (rounded; exactly 1/7)"},
};

static const struct {
    const char *expression;
    omm_err err;
    const char *says;
} s_refused[] = {
    {"150 / 0", OMM_ERR_NUMERIC, "division by zero"},
    {"150/0", OMM_ERR_NUMERIC, "division by zero"},
    {"1/(2-2)", OMM_ERR_NUMERIC, "division by zero"},
    {"0^-1", OMM_ERR_NUMERIC, "division by zero"},
    {"5 / 0%", OMM_ERR_NUMERIC, "division by zero"},
    {"0^0", OMM_ERR_NUMERIC, "agreed"},
    {"", OMM_ERR_FORMAT, "nothing"},
    {"   ", OMM_ERR_FORMAT, "nothing"},
    {"?", OMM_ERR_FORMAT, "nothing"},
    {"what is", OMM_ERR_FORMAT, "nothing"},
    {"()", OMM_ERR_FORMAT, "missing before"},
    {"(1", OMM_ERR_FORMAT, "')' is missing"},
    {"1)", OMM_ERR_FORMAT, "here"},
    {"1+", OMM_ERR_FORMAT, "missing at the end"},
    {"*2", OMM_ERR_FORMAT, "missing before"},
    {"1 2", OMM_ERR_FORMAT, "operator is missing"},
    {"2(3+4)", OMM_ERR_FORMAT, "operator is missing"},
    {"(1)(2)", OMM_ERR_FORMAT, "operator is missing"},
    {"1.2.3", OMM_ERR_FORMAT, "operator is missing"},
    {"1,000 + 1", OMM_ERR_FORMAT, "comma"},
    {"1e5", OMM_ERR_FORMAT, "cannot read"},
    {"0x10", OMM_ERR_FORMAT, "hexadecimal"},
    {"2x", OMM_ERR_FORMAT, "missing at the end"},
    {"2 xx 3", OMM_ERR_FORMAT, "cannot read"},
    {"3 timesy 4", OMM_ERR_FORMAT, "cannot read"},
    {"-2^2", OMM_ERR_FORMAT, "two things"},
    {"3 * -2^2", OMM_ERR_FORMAT, "two things"},
    {"-2 squared", OMM_ERR_FORMAT, "two things"},
    {"2^3^2", OMM_ERR_FORMAT, "two things"},
    {"2 squared ^ 2", OMM_ERR_FORMAT, "two things"},
    {"2^3 squared", OMM_ERR_FORMAT, "two things"},
    {"20%^2", OMM_ERR_FORMAT, "two things"},
    {"2^20%", OMM_ERR_FORMAT, "two things"},
    {"2^0.5", OMM_ERR_FORMAT, "whole exponents"},
    {"50 + 20%", OMM_ERR_FORMAT, "two things"},
    {"20% - 5", OMM_ERR_FORMAT, "two things"},
    {"10% of 20% + 5", OMM_ERR_FORMAT, "two things"},
    {"(20%) + 5", OMM_ERR_FORMAT, "two things"},
    {"10 % 3", OMM_ERR_FORMAT, "percent"},
    {"20%%", OMM_ERR_FORMAT, "here"},
    {"(20%)%", OMM_ERR_FORMAT, "of what"},
    {"100 / 20% of 50", OMM_ERR_FORMAT, "'of'"},
    {"3 of 4", OMM_ERR_FORMAT, "'of'"},
    {"10% of 20% of 50", OMM_ERR_FORMAT, "'of'"},
    {"half of 50", OMM_ERR_FORMAT, "cannot read"},
    {"twelve plus 3", OMM_ERR_FORMAT, "cannot read"},
    {"1 + a", OMM_ERR_FORMAT, "cannot read"},
    {"system('ls')", OMM_ERR_FORMAT, "cannot read"},
    {"1; 2", OMM_ERR_FORMAT, "cannot read"},
    {"1 = 1", OMM_ERR_FORMAT, "cannot read"},
    {"3!", OMM_ERR_FORMAT, "cannot read"},
    {"sqrt(4)", OMM_ERR_FORMAT, "cannot read"},
    {".", OMM_ERR_FORMAT, "nothing"},
    {"1 + .", OMM_ERR_FORMAT, "missing at the end"},
    {"\xff\xfe", OMM_ERR_FORMAT, "cannot read"},
    {"10^38", OMM_ERR_TOO_BIG, "37 digits"},
    {"2^1000", OMM_ERR_TOO_BIG, "37 digits"},
    {"2^1001", OMM_ERR_TOO_BIG, "exponent"},
    {"2^99999999999", OMM_ERR_TOO_BIG, "exponent"},
    {"2^-500", OMM_ERR_TOO_BIG, "37 digits"},
    {"10^37 + 1", OMM_ERR_TOO_BIG, "37 digits"},
    {"10^37 * 10^37", OMM_ERR_TOO_BIG, "37 digits"},
    {"1/10^37/10", OMM_ERR_TOO_BIG, "37 digits"},
    {"99999999999999999999999999999999999999999999", OMM_ERR_TOO_BIG, "37 digits"},
    {"0.00000000000000000000000000000000000000001", OMM_ERR_TOO_BIG, "37 digits"},
};

static void test_values(void) {
    for (size_t i = 0; i < sizeof s_values / sizeof s_values[0]; i++) {
        omm_buf out;
        omm_buf_init(&out, 1024);
        omm_err err = omm_calculate(&out, omm_bytes_str(s_values[i].expression));
        const char *value = s_values[i].value;
        if (!value) { /* refused, with whatever reason */
            CHECK_ERR(err, OMM_ERR_FORMAT);
        } else {
            bool equal = err == OMM_OK && omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(value));
            if (!equal)
                fprintf(stderr, "%s: wanted %s, got %.*s %s\n", s_values[i].expression, value,
                        (int)out.size, (const char *)out.data, err ? omm_err_sentence() : "");
            CHECK(equal);
        }
        omm_buf_fini(&out);
    }
}

static void test_refused(void) {
    for (size_t i = 0; i < sizeof s_refused / sizeof s_refused[0]; i++) {
        omm_buf out;
        omm_buf_init(&out, 1024);
        CHECK_OK(omm_buf_printf(&out, "kept"));
        omm_err err = omm_calculate(&out, omm_bytes_str(s_refused[i].expression));
        if (err != s_refused[i].err || !strstr(omm_err_sentence(), s_refused[i].says))
            fprintf(stderr, "%s: %s: %s\n", s_refused[i].expression, omm_err_name(err),
                    omm_err_sentence());
        CHECK_ERR(err, s_refused[i].err);
        CHECK(strstr(omm_err_sentence(), s_refused[i].says) != NULL);
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("kept")));
        omm_buf_fini(&out);
    }
}

static omm_err try_size(size_t size, char fill, const char *end) {
    char text[1024];
    omm_buf out;
    omm_buf_init(&out, 1024);
    CHECK(size + strlen(end) < sizeof text);
    memset(text, fill, size);
    memcpy(text + size, end, strlen(end) + 1);
    omm_err err = omm_calculate(&out, omm_bytes_str(text));
    omm_buf_fini(&out);
    return err;
}

static void test_limits(void) {
    CHECK_OK(try_size(OMM_CALCULATOR_BYTES_MAX - 1, ' ', "1"));
    CHECK_ERR(try_size(OMM_CALCULATOR_BYTES_MAX, ' ', "1"), OMM_ERR_TOO_BIG);
    CHECK_ERR(try_size(OMM_CALCULATOR_DEPTH_MAX, '(', "1"), OMM_ERR_FORMAT);
    CHECK_ERR(try_size(OMM_CALCULATOR_DEPTH_MAX + 1, '(', "1"), OMM_ERR_TOO_BIG);
    CHECK_OK(try_size(OMM_CALCULATOR_DEPTH_MAX, '-', "1"));
    CHECK_ERR(try_size(OMM_CALCULATOR_DEPTH_MAX + 1, '-', "1"), OMM_ERR_TOO_BIG);
    omm_buf out;
    omm_buf_init(&out, 1024);
    CHECK_ERR(omm_calculate(&out, omm_bytes_of("1\0+1", 4)), OMM_ERR_FORMAT);
    CHECK_ERR(omm_calculate(&out, omm_bytes_of(NULL, 0)), OMM_ERR_FORMAT);
    omm_buf_fini(&out);
}

/* (a/b op c/d) against plain integers, for every small operand. */
static void test_against_integers(void) {
    for (int a = -6; a <= 6; a++)
        for (int b = 1; b <= 5; b++)
            for (int c = -6; c <= 6; c++) {
                char text[128];
                char wanted[64];
                omm_buf out;
                omm_buf_init(&out, 256);
                /* (a/b + c/8) * 40 b = 40 a + 5 b c */
                snprintf(text, sizeof text, "((%d)/%d + (%d)/8)*40*%d", a, b, c, b);
                snprintf(wanted, sizeof wanted, "%d", 40 * a + 5 * b * c);
                CHECK_OK(omm_calculate(&out, omm_bytes_str(text)));
                CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(wanted)));
                omm_buf_fini(&out);
            }
}

static void test_no_memory(void) {
    omm_buf out;
    omm_buf_init(&out, 1024);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_calculate(&out, omm_bytes_str("1+1")), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
    omm_buf_init(&out, 8); /* "33.33 (r" does not do */
    CHECK_ERR(omm_calculate(&out, omm_bytes_str("100/3")), OMM_ERR_TOO_BIG);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
}

int main(void) {
    test_values();
    test_refused();
    test_limits();
    test_against_integers();
    test_no_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
