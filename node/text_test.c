/* text_test.c - what counts as plain text, how it is folded, and which words a query has. */
#include "text.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static bool gives(omm_err (*make)(omm_buf *, omm_bytes), const char *text, const char *wanted) {
    omm_buf out;
    omm_buf_init(&out, 1024);
    CHECK_OK(make(&out, omm_bytes_str(text)));
    bool equal = omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(wanted));
    omm_buf_fini(&out);
    return equal;
}

static void test_plain(void) {
    static const char *const s_plain[] = {"",
                                          "a b\tc\r\nd",
                                          "\xc3\xa9",
                                          "\xe2\x82\xac",
                                          "\xf0\x9f\x98\x80",
                                          "\xed\x9f\xbf",
                                          "\xf4\x8f\xbf\xbf"};
    static const char *const s_not[] = {"\x01",
                                        "\x1b[2J",
                                        "\x7f",
                                        "\xc2\x9b",
                                        "\x80",
                                        "\xc3",
                                        "\xc0\xaf",
                                        "\xc1\x81",
                                        "\xe0\x80\x80",
                                        "\xed\xa0\x80",
                                        "\xf0\x80\x80\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xf5\x80\x80\x80",
                                        "\xe2\x82",
                                        "\xff"};
    for (size_t i = 0; i < sizeof s_plain / sizeof s_plain[0]; i++)
        CHECK(text_is_plain(omm_bytes_str(s_plain[i])));
    for (size_t i = 0; i < sizeof s_not / sizeof s_not[0]; i++)
        CHECK(!text_is_plain(omm_bytes_str(s_not[i])));
    CHECK(!text_is_plain(omm_bytes_of("a\0b", 3)));
}

static void test_fold_and_clean(void) {
    CHECK(gives(text_fold, "  a \r\n\t b  ", "a b"));
    CHECK(gives(text_fold, " \n ", ""));
    CHECK(gives(omm_text_clean, "a\x1b[31m\n\tb\r\xff\xc2\x9b", "a?[31m\n\tb???"));
    CHECK(gives(omm_text_clean,
                "a\xe2\x80\xae"
                "b\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\xa7",
                "a?b??\xe2\x80\xa7"));
    CHECK(gives(omm_text_clean, "\xe2\x82\xac\xe2\x82", "\xe2\x82\xac??"));
}

static bool matches(const char *query, bool miss_one, const char *wanted) {
    text_terms terms;
    omm_buf out;
    omm_buf_init(&out, 4096);
    CHECK_OK(text_take_terms(&terms, omm_bytes_str(query)));
    CHECK_OK(text_put_match(&out, &terms, miss_one));
    bool equal = omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(wanted));
    if (!equal) fprintf(stderr, "%s: %.*s\n", query, (int)out.size, (const char *)out.data);
    omm_buf_fini(&out);
    return equal;
}

static void test_terms(void) {
    CHECK(matches("door code", false, "(\"door\" AND \"code\")"));
    CHECK(matches("the password of the kitchen", false, "(\"password\" AND \"kitchen\")"));
    CHECK(matches("What is the", false, "(\"What\" AND \"is\" AND \"the\")"));
    CHECK(matches("key Key KEY", false, "(\"key\")"));
    CHECK(matches("one two", true, "(\"one\" AND \"two\")"));
    CHECK(matches("one two six", true,
                  "(\"two\" AND \"six\") OR (\"one\" AND \"six\") OR (\"one\" AND \"two\")"));
    /* whatever means something to FTS5 is gone, or a quoted word */
    CHECK(matches("a\" OR text:* NEAR(b) -c ^d", false,
                  "(\"text\" AND \"NEAR\" AND \"b\" AND \"c\" AND \"d\")"));
    CHECK(matches("\xc2\xab"
                  "caf\xc3\xa9\xe2\x80\x94key\xc2\xbb",
                  false, "(\"caf\xc3\xa9\" AND \"key\")"));
    text_terms terms;
    CHECK_ERR(text_take_terms(&terms, omm_bytes_str("")), OMM_ERR_FORMAT);
    CHECK_ERR(text_take_terms(&terms, omm_bytes_str("\"*-^():")), OMM_ERR_FORMAT);
    CHECK_ERR(text_take_terms(&terms, omm_bytes_str("a\x01")), OMM_ERR_FORMAT);
    CHECK_OK(text_take_terms(&terms, omm_bytes_str("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16")));
    CHECK_EQ(terms.count, TEXT_TERMS_MAX);
    CHECK_ERR(text_take_terms(&terms, omm_bytes_str("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17")),
              OMM_ERR_TOO_BIG);
    char text[TEXT_QUERY_BYTES_MAX + 2];
    memset(text, 'a', sizeof text);
    CHECK_OK(text_take_terms(&terms, omm_bytes_of(text, TEXT_QUERY_BYTES_MAX)));
    CHECK_ERR(text_take_terms(&terms, omm_bytes_of(text, TEXT_QUERY_BYTES_MAX + 1)),
              OMM_ERR_TOO_BIG);
}

int main(void) {
    test_plain();
    test_fold_and_clean();
    test_terms();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
