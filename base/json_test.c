#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static json_t *parse(const char *text) {
    json_t *value = NULL;
    CHECK_OK(omm_json_parse(&value, omm_bytes_str(text), "test"));
    return value;
}

static void check_written(const json_t *value, const char *want) {
    omm_buf buf;
    omm_buf_init(&buf, 10000);
    CHECK_OK(omm_json_write(&buf, value));
    if (!omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str(want)))
        fprintf(stderr, "written: %.*s", (int)buf.size, (const char *)buf.data);
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str(want)));
    omm_buf_fini(&buf);
}

/* Text in, canonical text out; and the canonical text is its own canonical text. */
static void canonical_spelling(void) {
    static const char *const table[][2] = {
        {" { \"b\" : 1 , \"a\" : [ true , null ] } ", "{\"a\":[true,null],\"b\":1}\n"},
        {"{\"\xc3\xa4\":1,\"z\":2,\"Z\":3,\"\":4,\"zz\":5}",
         "{\"\":4,\"Z\":3,\"z\":2,\"zz\":5,\"\xc3\xa4\":1}\n"},
        {"\"\\u00e4\\/\\u001f\\n\\\"\\\\\\u007f\"", "\"\xc3\xa4/\\u001F\\n\\\"\\\\\x7f\"\n"},
        {"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"\n"},
        {"[0.1,1.0,1e0,100e-2,-0.0,1e300,1E+22,5e-324]",
         "[0.10000000000000001,1.0,1.0,1.0,-0.0,1.0000000000000001e300,1e22,"
         "4.9406564584124654e-324]\n"},
        {"[9223372036854775807,-9223372036854775808,0,-0]",
         "[9223372036854775807,-9223372036854775808,0,0]\n"},
        {"{}", "{}\n"},
        {"[]", "[]\n"},
        {"7", "7\n"},
        {"{\"a\":{\"d\":1,\"c\":2}}", "{\"a\":{\"c\":2,\"d\":1}}\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *value = parse(table[i][0]);
        check_written(value, table[i][1]);
        json_t *again = parse(table[i][1]);
        CHECK(json_equal(value, again));
        check_written(again, table[i][1]);
        json_decref(value);
        json_decref(again);
    }
}

enum { VALUES = 12000001 }; /* one more than there may be */

/* OMM_JSON_BYTES_MAX of "[]," would become gigabytes. */
static void counts_are_limited(void) {
    size_t size = (size_t)6 << 20;
    char *text = omm_alloc(size, 1);
    CHECK(text);
    json_t *value = NULL;
    for (size_t i = 0; i < size; i++) text[i] = "[],"[i % 3];
    text[0] = '[';
    text[1] = '1';
    text[size - 2] = '1';
    text[size - 1] = ']';
    CHECK_ERR(omm_json_parse(&value, omm_bytes_of(text, size), "test"), OMM_ERR_TOO_BIG);
    text[0] = '"'; /* in a string they are text */
    text[size - 1] = '"';
    CHECK_OK(omm_json_parse(&value, omm_bytes_of(text, size), "test"));
    json_decref(value);
    omm_free(text);
    char *const values = omm_alloc(VALUES, 1); /* each kind of sign counts */
    CHECK(values);
    for (const char *sign = ",:"; *sign; sign++) {
        memset(values, *sign, VALUES);
        CHECK_ERR(omm_json_parse(&value, omm_bytes_of(values, VALUES), "test"), OMM_ERR_TOO_BIG);
        CHECK_ERR(omm_json_parse(&value, omm_bytes_of(values, VALUES - 1), "test"), OMM_ERR_FORMAT);
    }
    omm_free(values);
}

static void pretty_spelling(void) {
    json_t *value = parse("{\"b\":[1,{\"y\":2,\"x\":3}],\"a\":{}}");
    static const char want[] = "{\n  \"a\": {},\n  \"b\": [\n    1,\n    {\n      \"x\": 3,\n"
                               "      \"y\": 2\n    }\n  ]\n}\n";
    char dir[] = "/tmp/omm_json_test_XXXXXX";
    char path[OMM_PATH_MAX];
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(path, dir, "v.json"));
    CHECK_OK(omm_json_save(path, value));
    omm_buf buf;
    omm_buf_init(&buf, 1000);
    CHECK_OK(omm_file_read(&buf, path));
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str(want)));
    omm_buf_fini(&buf);
    json_t *loaded = NULL;
    CHECK_OK(omm_json_load(&loaded, path, 1000));
    CHECK(json_equal(value, loaded));
    json_decref(loaded);
    loaded = NULL;
    CHECK_ERR(omm_json_load(&loaded, path, 10), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_file_write(path, omm_bytes_str("{\"a\":1,\n \"b\" 2}"), 0644));
    CHECK_ERR(omm_json_load(&loaded, path, 100), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "v.json:2:6: ':' expected near '2'") != NULL);
    CHECK_OK(omm_file_remove(path));
    CHECK_ERR(omm_json_load(&loaded, path, 100), OMM_ERR_NOT_FOUND);
    CHECK(loaded == NULL);
    CHECK_OK(omm_dir_remove(dir));
    json_decref(value);
}

/* Integers that 64 bits do not hold, among others that they do: those stay integers, and columns stay what they are. */
static const char *const s_texts[] = {"text", "more", NULL};

static void what_is_asked_may_have_nul(void) {
    static const char wide[] = "{\"a\": [1, {\"b\": \"x\\u0000y\"}], \"n\": 18446744073709551616}";
    json_t *value = NULL;
    CHECK_OK(omm_json_parse_asked(&value, omm_bytes_str(wide), s_texts, "t"));
    const json_t *text = json_object_get(json_array_get(json_object_get(value, "a"), 1), "b");
    CHECK(json_string_length(text) == 3 && memcmp(json_string_value(text), "x\0y", 3) == 0);
    CHECK(omm_json_has_nul(value) && !omm_json_has_nul(json_object_get(value, "n")));
    CHECK(json_real_value(json_object_get(value, "n")) == 18446744073709551616.0);
    json_decref(value);
    CHECK_OK(omm_json_parse_asked(&value, omm_bytes_str("[\"x\", {\"a\": \"\"}]"), s_texts, "t"));
    CHECK(!omm_json_has_nul(value));
    json_decref(value);
    CHECK_ERR(omm_json_parse_asked(&value, omm_bytes_str("{\"a\\u0000\": 1}"), s_texts, "t"),
              OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_parse_asked(&value, omm_bytes_str("{\"a\": 1, \"a\": 1}"), s_texts, "t"),
              OMM_ERR_FORMAT);
}

#define REPLACED "\xef\xbf\xbd"

/* Half of a pair, wherever it stands below the members that are named, and nowhere else. */
static void halves_of_pairs_are_replaced(void) {
    static const char *const cut[][2] = {
        {"{\"text\": \"a\\ud83d\"}", "a" REPLACED},
        {"{\"x\": [{}], \"text\": \"\\uDE00\\uD83D\"}", REPLACED REPLACED},
        {"{\"text\": \"\\ud83d\\ude00\\ud83d\\ud83d\\ude00\"}",
         "\xf0\x9f\x98\x80" REPLACED "\xf0\x9f\x98\x80"},
        {"{\"text\": \"\\ud83d\\u0041\\ud83d\\n\\\\ud83d\"}", REPLACED "A" REPLACED "\n\\ud83d"},
        {"{\"n\": 18446744073709551616, \"text\": \"\\ud83d\\u0000\"}", REPLACED},
    };
    static const char *const refused[] = {
        "{\"x\": \"\\ud83d\"}",
        "{\"x\": [{\"text\": \"\\ud83d\"}]}",
        "{\"text\": 1, \"x\": \"\\ud83d\"}",
        "{\"text\\ud83d\": 1}",
        "{\"text\": \"\\ud83d\", \"x\\ud83d\": 1}",
        "{\"text\": \"\\ud83d\", \"x\": \"\\ud83d\"}",
        "[\"text\", \"\\ud83d\"]",
        "\"\\ud83d\"",
        "{\"text\": \"\\ud83d",
        "{\"text\": \"\\ud83",
        "{\"text\": \"\\ud83d\", \"n\": 1e400}",
        "{\"text\": \"\\ud83x\"}",
        "{\"text\": {\"\\ud83d\": 1, \"\\ud83d\": 2}}",
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        json_t *value = NULL;
        CHECK_OK(omm_json_parse_asked(&value, omm_bytes_str(cut[i][0]), s_texts, "t"));
        CHECK_EQ(strcmp(json_string_value(json_object_get(value, "text")), cut[i][1]), 0);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *value = NULL;
        CHECK_ERR(omm_json_parse_asked(&value, omm_bytes_str(refused[i]), s_texts, "t"),
                  OMM_ERR_FORMAT);
        CHECK(!value);
    }
    json_t *value = NULL;
    static const char deep[] = "{\"more\": [{\"a\": [\"\\ud83d\"], \"\\udc00\": 1}], \"x\": \"{\"}";
    CHECK_OK(omm_json_parse_asked(&value, omm_bytes_str(deep), s_texts, "t"));
    const json_t *one = json_array_get(json_object_get(value, "more"), 0);
    CHECK(json_object_get(one, REPLACED));
    json_decref(value);
}

static void wide_integers_are_reals(void) {
    static const char text[] =
        "{\"a\": 18446744073709551615, \"b\": [-9223372036854775809, 9223372036854775808], \"c\": "
        "[9223372036854775807, -9223372036854775808, 7, -1, 1e2, 0.5, 123456789012345678901.5], "
        "\"s\": \"99999999999999999999 \\\" 99999999999999999999\", "
        "\"e\": 1234567890123456789012345678901234567890123}";
    json_t *value = NULL;
    bool is_wide = true;
    CHECK_OK(omm_json_parse_wide(&value, &is_wide, omm_bytes_str("[1, 2.5]"), "t"));
    CHECK(!is_wide && json_is_integer(json_array_get(value, 0)));
    json_decref(value);
    CHECK_ERR(omm_json_parse(&value, omm_bytes_str(text), "t"), OMM_ERR_FORMAT);
    CHECK_OK(omm_json_parse_wide(&value, &is_wide, omm_bytes_str(text), "t"));
    CHECK(is_wide);
    CHECK(fabs(json_real_value(json_object_get(value, "a")) / 18446744073709551615.0 - 1) < 1e-15);
    CHECK(fabs(json_real_value(json_object_get(value, "e")) / 1.2345678901234567e42 - 1) < 1e-15);
    json_t *b = json_object_get(value, "b"), *c = json_object_get(value, "c");
    CHECK(json_real_value(json_array_get(b, 0)) <= -0x1p63);
    CHECK(json_real_value(json_array_get(b, 1)) >= 0x1p63);
    CHECK_EQ(json_integer_value(json_array_get(c, 0)), INT64_MAX);
    CHECK_EQ(json_integer_value(json_array_get(c, 1)), INT64_MIN);
    CHECK_EQ(json_integer_value(json_array_get(c, 2)), 7);
    CHECK_EQ(json_integer_value(json_array_get(c, 3)), -1);
    CHECK(json_real_value(json_array_get(c, 4)) == 100 &&
          json_real_value(json_array_get(c, 5)) == 0.5);
    CHECK(strcmp(json_string_value(json_object_get(value, "s")),
                 "99999999999999999999 \" 99999999999999999999") == 0);
    json_decref(value);
    static const char *const refused[][2] = {
        {"[99999999999999999999, 1, x]", "t:1:27: invalid token near 'x'"},
        {"[99999999999999999999, 1e999]", "t:1:28: real number overflow"},
        {"{\"a\": 99999999999999999999, \"a\": 1}", "duplicate object key"},
        {"[099999999999999999999]", "t:1:2: invalid token"},
        {"[-99999999999999999999-]", "t:1:22: too big negative integer"},
        {"99999999999999999999 \"\\", "t:1:"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_ERR(omm_json_parse_wide(&value, &is_wide, omm_bytes_str(refused[i][0]), "t"),
                  OMM_ERR_FORMAT);
        if (!strstr(omm_err_sentence(), refused[i][1]))
            fprintf(stderr, "said: %s\n", omm_err_sentence());
        CHECK(strstr(omm_err_sentence(), refused[i][1]) != NULL);
    }
}

static void malformed_text_is_refused(void) {
    static const char *const refused[][2] = {
        {"", "t:1:0: "},
        {"{", "t:1:1: "},
        {"{} x", "t:1:4: end of file expected near 'x'"},
        {"{\"a\":1,\"a\":2}", "t:1:10: duplicate object key near '\"a\"'"},
        {"[NaN]", "t:1:4: invalid token near 'NaN'"},
        {"[nan]", "t:1:4: invalid token near 'nan'"},
        {"[Infinity]", "t:1:9: invalid token"},
        {"[-Infinity]", "t:1:2: invalid token"},
        {"[1e999]", "t:1:6: real number overflow"},
        {"[9223372036854775808]", "t:1:20: too big integer"},
        {"[01]", "t:1:2: invalid token"},
        {"[1,]", "t:1:4: unexpected token"},
        {"['a']", "t:1:2: invalid token"},
        {"[\"\xff\"]", "t:1:2: unable to decode byte 0xff"},
        {"[\"\xc0\x80\"]", "unable to decode byte 0xc0"},
        {"[\"\\u0000\"]", "t:1:9: \\u0000 is not allowed, every other character is"},
        {"[\"\\ud800\"]", "invalid Unicode"},
        {"[\"a\nb\"]", "unexpected newline"},
        {"[1] // c", "end of file expected"},
        {"\xef\xbb\xbf{}", "invalid token"},
    };
    json_t *value = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_ERR(omm_json_parse(&value, omm_bytes_str(refused[i][0]), "t"), OMM_ERR_FORMAT);
        if (!strstr(omm_err_sentence(), refused[i][1]))
            fprintf(stderr, "said: %s\n", omm_err_sentence());
        CHECK(strstr(omm_err_sentence(), refused[i][1]) != NULL);
    }
    CHECK_ERR(omm_json_parse(&value, omm_bytes_of("{}\0", 3), "t"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_parse(&value, omm_bytes_of(NULL, 0), "t"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_parse(&value, omm_bytes_of("", OMM_JSON_BYTES_MAX + 1), "t"),
              OMM_ERR_TOO_BIG);
    char deep[10000];
    memset(deep, '[', sizeof deep);
    CHECK_ERR(omm_json_parse(&value, omm_bytes_of(deep, sizeof deep), "t"), OMM_ERR_FORMAT);
    CHECK(value == NULL);
}

/* Every truncation is refused, every flipped bit is parsed or refused and stays in bounds. */
static void damaged_text_stays_in_bounds(void) {
    static const char text[] = "{\"a\":[1,2.5,true,null,\"\\u00e4\xc3\xa4\"],\"b\":{\"c\":-1e-5}}";
    size_t size = sizeof text - 1;
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *exact = omm_alloc(cut, 1);
        memcpy(exact, text, cut);
        json_t *value = NULL;
        CHECK_ERR(omm_json_parse(&value, omm_bytes_of(exact, cut), "t"), OMM_ERR_FORMAT);
        omm_free(exact);
    }
    uint8_t *flipped = omm_alloc(size, 1);
    for (size_t bit = 0; bit < size * 8; bit++) {
        memcpy(flipped, text, size);
        flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        json_t *value = NULL;
        omm_err err = omm_json_parse(&value, omm_bytes_of(flipped, size), "t");
        CHECK(err == OMM_OK || err == OMM_ERR_FORMAT);
        if (err == OMM_OK) json_decref(value);
    }
    omm_free(flipped);
}

static void members_are_typed(void) {
    json_t *o =
        parse("{\"s\":\"text\",\"i\":5,\"r\":1.5,\"b\":true,\"o\":{},\"a\":[],\"n\":null,"
              "\"d\":\"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff\","
              "\"D\":\"000102030405060708090A0B0C0D0E0F101112131415161718191a1b1c1d1eff\"}");
    const char *s = NULL;
    int64_t i = 0;
    double r = 0;
    bool b = false;
    json_t *child = NULL;
    uint8_t d[32] = {1};
    CHECK_OK(omm_json_get_str(&s, o, "s"));
    CHECK(strcmp(s, "text") == 0);
    CHECK_OK(omm_json_get_int(&i, o, "i", 5, 5));
    CHECK_EQ(i, 5);
    CHECK_OK(omm_json_get_real(&r, o, "r"));
    CHECK(r > 1.4 && r < 1.6);
    CHECK_OK(omm_json_get_real(&r, o, "i"));
    CHECK_EQ((int)r, 5);
    CHECK_OK(omm_json_get_bool(&b, o, "b"));
    CHECK(b);
    CHECK_OK(omm_json_get_object(&child, o, "o"));
    CHECK_OK(omm_json_get_array(&child, o, "a"));
    CHECK_ERR(omm_json_get_digest(d, o, "D"), OMM_ERR_FORMAT);
    CHECK_EQ(d[0], 1);
    CHECK_OK(omm_json_get_digest(d, o, "d"));
    CHECK_EQ(d[30], 0x1e);
    CHECK_EQ(d[31], 0xff);

    CHECK_ERR(omm_json_get_str(&s, o, "none"), OMM_ERR_NOT_FOUND);
    CHECK(strcmp(omm_err_sentence(), "member \"none\" is missing") == 0);
    CHECK_ERR(omm_json_get_digest(d, o, "none"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_json_get_int(&i, o, "s", 0, 9), OMM_ERR_FORMAT);
    CHECK(strcmp(omm_err_sentence(), "member \"s\": want an integer, found a string") == 0);
    CHECK_ERR(omm_json_get_int(&i, o, "i", 6, 9), OMM_ERR_FORMAT);
    CHECK(strcmp(omm_err_sentence(), "member \"i\": 5 is not from 6 to 9") == 0);
    CHECK_ERR(omm_json_get_int(&i, o, "i", 0, 4), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_int(&i, o, "r", 0, 9), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_str(&s, o, "n"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_real(&r, o, "s"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_bool(&b, o, "i"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_object(&child, o, "a"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_array(&child, o, "o"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_digest(d, o, "s"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_digest(d, o, "b"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_get_str(&s, child, "x"), OMM_ERR_FORMAT);
    CHECK(strcmp(omm_err_sentence(), "member \"x\": looked for in an array, not an object") == 0);
    CHECK_ERR(omm_json_get_str(&s, NULL, "x"), OMM_ERR_FORMAT);
    json_decref(o);
}

static void members_are_set(void) {
    json_t *o = json_object();
    uint8_t digest[32] = {0xab};
    CHECK_OK(omm_json_set_str(o, "s", "x"));
    CHECK_OK(omm_json_set_int(o, "i", INT64_MIN));
    CHECK_OK(omm_json_set_real(o, "r", 2));
    CHECK_OK(omm_json_set_bool(o, "b", false));
    CHECK_OK(omm_json_set(o, "a", json_array()));
    CHECK_OK(omm_json_set_digest(o, "d", digest));
    static const char want[] =
        "{\"a\":[],\"b\":false,"
        "\"d\":\"ab00000000000000000000000000000000000000000000000000000000000000\","
        "\"i\":-9223372036854775808,\"r\":2.0,\"s\":\"x\"}\n";
    check_written(o, want);
    double nan = strtod("nan", NULL);
    double inf = strtod("inf", NULL);
    CHECK(json_real(nan) == NULL); /* so no json_t holds one */
    CHECK_ERR(omm_json_set_real(o, "r", nan), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_json_set_real(o, "r", inf), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_json_set_real(o, "r", -inf), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_json_set_str(o, "s", "\xff"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_set_str(o, "\xff", "x"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_set(o, "s", json_real(nan)), OMM_ERR_FORMAT);
    check_written(o, want);
    json_decref(o);
}

/* A path is bytes, and what is no UTF-8 in it is shown as such. */
static void texts_of_the_system(void) {
    static const struct {
        const char *text, *shown;
    } cases[] = {{"", ""},
                 {"a/\"b\"", "a/\"b\""},
                 {"gr\xc3\xbcn", "gr\xc3\xbcn"},
                 {"caf\xe9/x", "caf?/x"},
                 {"\xff\xfe", "??"},
                 {"cut \xe2\x82", "cut ??"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *text = omm_json_text(cases[i].text);
        CHECK(text != NULL);
        CHECK(strcmp(json_string_value(text), cases[i].shown) == 0);
        json_decref(text);
    }
}

static void failed_write_leaves_the_buffer(void) {
    json_t *value = parse("{\"long\":\"0123456789012345678901234567890123456789\",\"x\":[1,2,3],"
                          "\"z\":\"0123456789012345678901234567890123456789\","
                          "\"y\":\"0123456789012345678901234567890123456789\"}");
    /* Keys long enough that growing fails while one of them is written, which jansson ignores. */
    char key[80];
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "key-%d-0123456789012345678901234567890123456789012345678901", i);
        CHECK_EQ(json_object_set_new(value, key, json_true()), 0);
    }
    omm_buf buf;
    omm_buf good;
    omm_buf_init(&good, 1000);
    CHECK_OK(omm_buf_append(&good, "kept", 4));
    CHECK_OK(omm_json_write(&good, value));
    size_t n = 1;
    for (;; n++) {
        omm_buf_init(&buf, 1000);
        CHECK_OK(omm_buf_append(&buf, "kept", 4));
        omm_mem_fail_nth(n);
        omm_err err = omm_json_write(&buf, value);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) break;
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str("kept")));
        omm_buf_fini(&buf);
    }
    CHECK(n > 1);
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_buf_view(&good)));
    omm_buf_fini(&good);
    size_t whole = buf.size;
    omm_buf_fini(&buf);
    for (size_t max = 4; max < whole; max++) {
        omm_buf_init(&buf, max);
        CHECK_OK(omm_buf_append(&buf, "kept", 4));
        CHECK_ERR(omm_json_write(&buf, value), OMM_ERR_TOO_BIG);
        CHECK_ERR(omm_json_write_pretty(&buf, value), OMM_ERR_TOO_BIG);
        CHECK_EQ(buf.size, 4);
        omm_buf_fini(&buf);
    }
    omm_buf_init(&buf, 100);
    CHECK_ERR(omm_json_write(&buf, NULL), OMM_ERR_FORMAT);
    json_t *ring = json_array();
    json_t *inner = json_array();
    CHECK_EQ(json_array_append(ring, inner), 0);
    CHECK_EQ(json_array_append(inner, ring), 0);
    CHECK_ERR(omm_json_write(&buf, ring), OMM_ERR_FORMAT);
    CHECK_EQ(buf.size, 0);
    CHECK_EQ(json_array_clear(inner), 0);
    json_decref(inner);
    json_decref(ring);
    omm_buf_fini(&buf);
    json_decref(value);
}

static omm_err spell(omm_buf *out, json_t *value, unsigned indent) {
    return indent ? omm_json_write_indented(out, value, indent) : omm_json_write_spaced(out, value);
}

/* Whole, or not at all. */
static void spelled(const char *json, const char *wanted, unsigned indent) {
    json_t *value = NULL;
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_json_parse(&value, omm_bytes_str(json), "case"));
    CHECK_OK(spell(&text, value, indent));
    if (!omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(wanted)))
        fprintf(stderr, "%s: %.*s\n", wanted, (int)text.size, (const char *)text.data);
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(wanted)));
    omm_buf_fini(&text);
    for (size_t max = 1; max < strlen(wanted); max++) {
        omm_buf_init(&text, max);
        CHECK_ERR(spell(&text, value, indent), OMM_ERR_TOO_BIG);
        CHECK_EQ(text.size, 0);
        omm_buf_fini(&text);
    }
    json_decref(value);
}

/* As Python's json.dumps has it, ensure_ascii off. */
static void spaced(void) {
    static const char *const cases[][2] = {
        {"{\"price\":19.99,\"item\":\"tea\"}", "{\"price\": 19.99, \"item\": \"tea\"}"},
        {"{\"b\":[1,2.5,[],{}],\"a\":null}", "{\"b\": [1, 2.5, [], {}], \"a\": null}"},
        {"[0.1,-0.0,1.0,100.0,54.6872,25.2797,37.2]",
         "[0.1, -0.0, 1.0, 100.0, 54.6872, 25.2797, 37.2]"},
        {"[1e15,1e16,123456789012345680.0,0.0001,0.00001,1.5e-7,1e300,5e-324]",
         "[1000000000000000.0, 1e+16, 1.2345678901234568e+17, 0.0001, 1e-05, 1.5e-07, 1e+300, "
         "5e-324]"},
        {"[9007199254740993.0,0.30000000000000004,2.2250738585072014e-308,1.7976931348623157e308]",
         "[9007199254740992.0, 0.30000000000000004, 2.2250738585072014e-308, "
         "1.7976931348623157e+308]"},
        {"[true,false,-7,9223372036854775807]", "[true, false, -7, 9223372036854775807]"},
        {"\"caf\xc3\xa9 / \\\" \\n\"", "\"caf\xc3\xa9 / \\\" \\n\""},
        {"\"\\u001B\\u001f\\u000B \\\\u00AB\"", "\"\\u001b\\u001f\\u000b \\\\u00AB\""},
        {"{}", "{}"},
        {"\"\"", "\"\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) spelled(cases[i][0], cases[i][1], 0);
    omm_buf none;
    omm_buf_init(&none, 10);
    CHECK_ERR(omm_json_write_spaced(&none, NULL), OMM_ERR_FORMAT);
    CHECK_ERR(omm_json_write_indented(&none, NULL, 4), OMM_ERR_FORMAT);
    omm_buf_fini(&none);
}

/* The same with indent=4. */
static void indented(void) {
    static const char *const cases[][2] = {
        {"{\"b\":[1,2.50,{}],\"a\":{\"x\":null}}",
         "{\n    \"b\": [\n        1,\n        2.5,\n        {}\n    ],\n"
         "    \"a\": {\n        \"x\": null\n    }\n}"},
        {"[[],[[\"\xc3\xa9\"]]]", "[\n    [],\n    [\n        [\n            \"\xc3\xa9\"\n"
                                  "        ]\n    ]\n]"},
        {"{}", "{}"},
        {"7", "7"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) spelled(cases[i][0], cases[i][1], 4);
}

int main(void) {
    texts_of_the_system();
    spaced();
    indented();
    canonical_spelling();
    counts_are_limited();
    pretty_spelling();
    wide_integers_are_reals();
    what_is_asked_may_have_nul();
    halves_of_pairs_are_replaced();
    malformed_text_is_refused();
    damaged_text_stays_in_bounds();
    members_are_typed();
    members_are_set();
    failed_write_leaves_the_buffer();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
