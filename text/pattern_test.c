/* pattern_test.c - which texts an expression takes, against PCRE2 on every short text; what is not read, and limits. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern_nodes.h"

#include "omm/bytes.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* ---- one text ------------------------------------------------------------------------------------ */

enum { GONE = -1, OPEN, WHOLE };

/* Of a text of code points, which may have at most `most`: GONE: none that begins so is taken. */
static int follow(const pattern_table *t, uint32_t start, uint32_t most, const uint32_t *text,
                  size_t count) {
    uint32_t state = start;
    for (size_t i = 0; i < count; i++) {
        const uint32_t room = most == PATTERN_NONE ? PATTERN_NONE : most - (uint32_t)i;
        const pattern_edge *edge = pattern_find(t, state, text[i], text[i], room);
        if (!edge) return GONE;
        state = edge->next;
        CHECK(t->states[state].left != PATTERN_NONE);
    }
    return t->states[state].left == 0 ? WHOLE : OPEN;
}

static size_t to_points(uint32_t *out, const char *text) {
    size_t count = 0;
    for (const uint8_t *p = (const uint8_t *)text; *p;) {
        const unsigned more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
        uint32_t c = more ? *p & (0x3fu >> more) : *p;
        p++;
        for (unsigned i = 0; i < more; i++, p++) c = c << 6 | (*p & 0x3fu);
        out[count++] = c;
    }
    return count;
}

static bool takes(const char *expression, const char *text) {
    pattern_table t = {0};
    uint32_t start = 0, points[256];
    if (pattern_add(&start, &t, expression, 0, PATTERN_NONE) != OMM_OK) {
        fprintf(stderr, "%s: %s\n", expression, omm_err_sentence());
        exit(1);
    }
    const bool taken = follow(&t, start, PATTERN_NONE, points, to_points(points, text)) == WHOLE;
    pattern_table_fini(&t);
    return taken;
}

static void test_texts(void) {
    static const struct {
        const char *expression, *yes[6], *no[6];
    } cases[] = {
        {"", {"", "x"}, {NULL}},
        {"b",
         {"b", "abc",
          "\xc3\xa9"
          "b"},
         {"", "ac"}},
        {"^b", {"b", "bc"}, {"ab", ""}},
        {"b$", {"b", "ab"}, {"ba", "b\n"}},
        {"^(?:ab|c)*$", {"", "ab", "cab"}, {"a", "abb"}},
        {"^a|b$", {"ax", "xb"}, {"xa", "bx"}},
        {"$^", {""}, {"a"}},
        {"^a{2,3}$", {"aa", "aaa"}, {"a", "aaaa"}},
        {"^a{2,}?$", {"aa", "aaaaa"}, {"a"}},
        {"^a{0}b$", {"b"}, {"ab"}},
        {"^.$",
         {"a", "\xc3\xa9", "\xf0\x9f\x98\x80"},
         {"\n", "\xe2\x80\xa8", "\xe2\x80\xa9", "ab", "\r"}},
        {"^[^a-c]$", {"d", "\n", "\xf4\x8f\xbf\xbf"}, {"a", "c", ""}},
        {"^[^]$", {"d", "\n"}, {""}},
        {"^(?:[]|a)$", {"a"}, {"", "]"}},
        {"^a[]*$",
         {"a"},
         {"a]"}}, /* PCRE2 10.42 takes nothing there, so it is not asked about [] */
        {"^[\\d\\-x-z]+$", {"0-y"}, {"w"}},
        {"^[\\w-.]+$", {"a_-.Z"}, {"\xc3\xa9", "!", "/", "`", "^"}},
        {"^[a-zbc-d]$", {"a", "c", "e", "z"}, {"{"}},
        {"^[^a-zbc-d]$", {"{"}, {"a", "c", "e", "z"}},
        {"^[\\d-x]$", {"5", "-", "x"}, {"a", "!"}},
        {"^[a-\\d]+$", {"a-7"}, {"b"}},
        {"^[\\s-\\d]+$", {" -7"}, {"b"}},
        {"^[a\\]]$", {"a", "]"}, {"["}},
        {"^[-a]$", {"-", "a"}, {"b"}},
        {"^[a-]$", {"-", "a"}, {"b"}},
        {"^[\\b]$", {"\b"}, {"b"}},
        {"^\\S\\D\\W$", {"a! "}, {"a1 ", " ! "}},
        {"^\\s+$", {" \t\n\v\f\r\xc2\xa0\xe2\x80\xa8\xe3\x80\x80\xef\xbb\xbf"}, {"\xc2\x85"}},
        {"^(?<$a>a)(?<_$1>b)$", {"ab"}, {"a"}},
        {"^\\u{0000041}\\u{00000000000000000000000b7}$", {"A\xc2\xb7"}, {"A"}},
        {"^\\x41\\u0042\\u{1F600}\\ud83d\\ude00\\cJ$",
         {"AB\xf0\x9f\x98\x80\xf0\x9f\x98\x80\n"},
         {"AB"}},
        {"^\\cj\\udbff\\udffd$", {"\n\xf4\x8f\xbf\xbd"}, {"\n\xf4\x8f\x8f\xbd"}},
        {"^\\/\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\\\-$", {"/.*+?()[]{}|^$\\-"}, {"x"}},
        {"^a}]$", {"a}]"}, {"a"}},
        {"^(?<year>\\d{4})(?P<x_1>a)(b)$", {"2026ab"}, {"2026"}},
        {"^(?:a*)*$", {"", "aaa"}, {"b"}},
        {"^(?:a?){3}$", {"", "aaa"}, {"aaaa"}},
        {"^(?:|a)+$", {"", "aa"}, {"b"}},
        {"(?:^a)b", {"ab", "abx"}, {"xab"}},
        {"b|$^", {"b", "", "ab"}, {"a"}},
        {"^(?:a$b|c)$", {"c"}, {"a", "ab", ""}},
        {"a(?:$|b)c*$", {"a", "ab", "abcc", "xa"}, {"ac"}},
        {"^\\0?a$", {"a"}, {"0a"}},
        {"\xc3\xa9+", {"\xc3\xa9"}, {"e"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < 6 && cases[i].yes[k]; k++)
            if (!takes(cases[i].expression, cases[i].yes[k])) {
                fprintf(stderr, "%s: not taken: %s\n", cases[i].expression, cases[i].yes[k]);
                exit(1);
            }
        for (size_t k = 0; k < 6 && cases[i].no[k]; k++)
            if (takes(cases[i].expression, cases[i].no[k])) {
                fprintf(stderr, "%s: taken: %s\n", cases[i].expression, cases[i].no[k]);
                exit(1);
            }
    }
}

static void test_refused(void) {
    static const struct {
        const char *expression;
        omm_err err;
        const char *words;
    } cases[] = {
        {"(a", OMM_ERR_FORMAT, "byte 2 of the pattern: ( is not closed"},
        {"a)", OMM_ERR_FORMAT, "byte 1 of the pattern: ) closes nothing"},
        {"[a", OMM_ERR_FORMAT, "[ is not closed"},
        {"[b-a]", OMM_ERR_FORMAT, "a range goes down"},
        {"a{3,2}", OMM_ERR_FORMAT, "a repetition goes down"},
        {"*a", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"a**", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"a++", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"{2}", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"a{,3}", OMM_ERR_FORMAT, "{ without a repetition"},
        {"a{", OMM_ERR_FORMAT, "{ without a repetition"},
        {"^*", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"a|*", OMM_ERR_FORMAT, "there is nothing to repeat"},
        {"a\\", OMM_ERR_FORMAT, "a character is missing"},
        {"\\x4", OMM_ERR_FORMAT, "a hex digit is missing"},
        {"\\u{110000}", OMM_ERR_FORMAT, "that is no character"},
        {"\\ud800", OMM_ERR_FORMAT, "that is no character"},
        {"\\udc00", OMM_ERR_FORMAT, "that is no character"},
        {"\\ud800\\u0041", OMM_ERR_FORMAT, "half a pair"},
        {"\\u{12", OMM_ERR_FORMAT, "\\u{ is not closed"},
        {"\\c1", OMM_ERR_FORMAT, "\\c has a letter"},
        {"(?<a", OMM_ERR_FORMAT, "the name of a group is not closed"},
        {"(?<>a)", OMM_ERR_FORMAT, "byte 3 of the pattern: the name of a group begins"},
        {"(?<1>a)", OMM_ERR_FORMAT, "the name of a group begins"},
        {"(?<a-b>a)", OMM_ERR_FORMAT, "the name of a group is not closed"},
        {"(?<\xc3\xa9>a)", OMM_ERR_UNSUPPORTED, "names of groups are read in ASCII"},
        {"(?", OMM_ERR_UNSUPPORTED, "byte 2 of the pattern: (? with this behind it"},
        {"\\u{}", OMM_ERR_FORMAT, "a hex digit is missing"},
        {"(?=a)", OMM_ERR_UNSUPPORTED, "byte 2 of the pattern: (? with this behind it"},
        {"(?!a)", OMM_ERR_UNSUPPORTED, "(? with this behind it"},
        {"(?<=a)", OMM_ERR_UNSUPPORTED, "(? with this behind it"},
        {"(?<!a)", OMM_ERR_UNSUPPORTED, "(? with this behind it"},
        {"(?i)a", OMM_ERR_UNSUPPORTED, "(? with this behind it"},
        {"a\\b", OMM_ERR_UNSUPPORTED, "\\ before this letter"},
        {"(a)\\1", OMM_ERR_UNSUPPORTED, "\\ before this letter"},
        {"\\00", OMM_ERR_UNSUPPORTED, "\\ before this letter"},
        {"\\p{L}", OMM_ERR_UNSUPPORTED, "\\ before this letter"},
        {"\\A", OMM_ERR_UNSUPPORTED, "\\ before this letter"},
        {"^[]a]$", OMM_ERR_UNSUPPORTED, "a pattern that no text fulfils"},
        {"[]", OMM_ERR_UNSUPPORTED, "a pattern that no text fulfils"},
        {"a^b", OMM_ERR_UNSUPPORTED, "a pattern that no text fulfils"},
        {"^\\0$", OMM_ERR_UNSUPPORTED, "a pattern that no text fulfils"},
        {"a{4294967297}", OMM_ERR_UNSUPPORTED, "repeats too much"},
        {"a{9000}", OMM_ERR_UNSUPPORTED, "it is too long, or repeats too much"},
        {"(?:(?:){99999}){99999}", OMM_ERR_UNSUPPORTED, "repeats too much"},
        {"(?:(?:a{90}){90}){90}", OMM_ERR_UNSUPPORTED, "repeats too much"},
        {"a.{20}b.{20}c$", OMM_ERR_UNSUPPORTED, "patterns that take more than 32768 states"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pattern_table t = {0};
        uint32_t start = 0;
        const omm_err err = pattern_add(&start, &t, cases[i].expression, 0, PATTERN_NONE);
        if (err != cases[i].err || !strstr(omm_err_sentence(), cases[i].words)) {
            fprintf(stderr, "%s: %s: %s\n", cases[i].expression, omm_err_name(err),
                    omm_err_sentence());
            exit(1);
        }
        CHECK(t.state_count == 0 && t.edge_count == 0);
        pattern_table_fini(&t);
    }
}

/* Nothing is read behind the end, wherever an expression breaks off. */
static void test_broken_off(void) {
    static const char whole[] =
        "(?<a>x)(?:\\u{41}|\\ud83d\\ude00)[^a-\\d\\]](?P<b>\\cA\\x41\\0){2,30}?(?=(?<!\xc3\xa9";
    for (size_t size = 0; size < sizeof whole; size++) {
        pattern_table t = {0};
        uint32_t start = 0;
        char *text = (char *)omm_alloc(size + 1, 1);
        CHECK(text != NULL);
        memcpy(text, whole, size);
        const omm_err err = pattern_add(&start, &t, text, 0, PATTERN_NONE);
        CHECK(err == OMM_OK || err == OMM_ERR_FORMAT || err == OMM_ERR_UNSUPPORTED);
        pattern_table_fini(&t);
        omm_free(text);
    }
}

/* ^, `one` so many times, then `behind` as many. */
static omm_err add_repeated(const char *one, unsigned times, const char *behind) {
    omm_buf text;
    pattern_table t = {0};
    uint32_t start = 0;
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_buf_printf(&text, "^"));
    for (unsigned i = 0; i < 2 * times; i++)
        CHECK_OK(omm_buf_printf(&text, "%s", i < times ? one : behind));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const omm_err err = pattern_add(&start, &t, (const char *)text.data, 0, PATTERN_NONE);
    pattern_table_fini(&t);
    omm_buf_fini(&text);
    return err;
}

/* Sets in front of "x", which is a set too: so many, each of \s and one of the characters from U+0100 on. */
static omm_err add_sets(unsigned count, const char *opens, const char *closes) {
    omm_buf text;
    pattern_table t = {0};
    uint32_t start = 0;
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_buf_append(&text, "^", 1));
    for (unsigned i = 0; i < count; i++)
        CHECK_OK(omm_buf_printf(&text, "%s%c%c%s", opens, (int)(0xc4 + i / 64),
                                (int)(0x80 + i % 64), closes));
    CHECK_OK(omm_buf_append(&text, "x", 2));
    const omm_err err = pattern_add(&start, &t, (const char *)text.data, 0, PATTERN_NONE);
    pattern_table_fini(&t);
    omm_buf_fini(&text);
    return err;
}

/* What is read has room for so much, however much of it a short expression asks for. */
static void test_sets(void) {
    const unsigned spaces = 10; /* ranges of \s */
    pattern_table t = {0};
    uint32_t start = 0;
    for (unsigned more = 0; more < 2; more++) {
        omm_buf text;
        omm_buf_init(&text, PATTERN_BYTES_MAX);
        CHECK_OK(omm_buf_printf(&text, "["));
        for (size_t i = 0; i < PATTERN_RANGES_MAX / spaces; i++)
            CHECK_OK(omm_buf_printf(&text, "\\s"));
        for (size_t i = 0; i < PATTERN_RANGES_MAX % spaces + more; i++)
            CHECK_OK(omm_buf_printf(&text, "a"));
        CHECK_OK(omm_buf_append(&text, "]", 2));
        const omm_err err = pattern_add(&start, &t, (const char *)text.data, 0, PATTERN_NONE);
        CHECK_EQ(err, more ? OMM_ERR_UNSUPPORTED : OMM_OK);
        omm_buf_fini(&text);
    }
    CHECK(strstr(omm_err_sentence(), "it is too long, or repeats too much"));
    /* nodes that wait at once, of which each has many ranges */
    CHECK_ERR(pattern_add(&start, &t, "^(?:\\S?){1000}$", 0, PATTERN_NONE), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "patterns that take more than"));
    pattern_table_fini(&t);
    /* ranges of all sets: 11 each, and those of x and of what may stand in front */
    CHECK_OK(add_sets((PATTERN_RANGES_MAX - 3) / 11, "[\\s", "]"));
    CHECK_ERR(add_sets((PATTERN_RANGES_MAX - 3) / 11 + 1, "[\\s", "]"), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "it is too long, or repeats too much"));
    CHECK_OK(add_sets(PATTERN_SETS_MAX - 2, "", ""));
    CHECK_ERR(add_sets(PATTERN_SETS_MAX - 1, "", ""), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "it is too long, or repeats too much"));
}

static void test_limits(void) {
    CHECK_OK(add_repeated("(", 64, ")"));
    CHECK_ERR(add_repeated("(", 65, ")"), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "more groups inside one another"));
    CHECK_OK(add_repeated("(a)", 65, ""));
    CHECK_OK(add_repeated("\\s", 1000, "")); /* one set */
    CHECK_OK(add_repeated("a", PATTERN_BYTES_MAX - 1, ""));
    CHECK_ERR(add_repeated("a", PATTERN_BYTES_MAX, ""), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "a pattern of more than 4096 bytes"));
}

/* ---- every short text ---------------------------------------------------------------------------- */

static const uint32_t s_letters[] = {'a', 'b', '7', '\n', 0xe9};
enum { LETTERS = sizeof s_letters / sizeof s_letters[0], LENGTH_MAX = 5 };
enum { TEXTS = 1 + 5 + 25 + 125 + 625 + 3125 };

typedef struct text {
    uint32_t points[LENGTH_MAX];
    uint8_t bytes[2 * LENGTH_MAX];
    size_t count, size;
} text;

static text s_all[TEXTS];

/* One text behind the other, each behind the one that it goes on from. */
static void make_texts(void) {
    size_t made = 1;
    for (size_t i = 0; made < TEXTS; i++)
        for (size_t k = 0; k < LETTERS; k++) {
            text *t = &s_all[made++];
            *t = s_all[i];
            t->points[t->count++] = s_letters[k];
            if (s_letters[k] >= 0x80) t->bytes[t->size++] = 0xc3;
            t->bytes[t->size++] = s_letters[k] >= 0x80 ? 0xa9 : (uint8_t)s_letters[k];
        }
}

typedef struct peer {
    pcre2_code *code;
    pcre2_match_data *data;
} peer;

static void open_peer(peer *p, const char *expression) {
    int error = 0;
    PCRE2_SIZE at = 0;
    const uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS;
    p->code =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    if (!p->code) fprintf(stderr, "%s\n", expression);
    CHECK(p->code != NULL);
    p->data = pcre2_match_data_create(1, NULL);
}

static bool peer_takes(const peer *p, const text *t) {
    const int found = pcre2_match(p->code, t->bytes, t->size, 0, 0, p->data, NULL);
    CHECK(found >= 0 || found == PCRE2_ERROR_NOMATCH);
    return found >= 0;
}

/* Whether each short text that the peer takes, and has the length, is taken, and none beside them; and where a text is let
 * begin that `left` more characters end it. */
static void compare(const char *expression, uint32_t least, uint32_t most) {
    pattern_table t = {0};
    uint32_t start = 0;
    peer p;
    static bool wanted[TEXTS], begins[TEXTS];
    open_peer(&p, expression);
    const omm_err err = pattern_add(&start, &t, expression, least, most);
    if (err != OMM_OK) CHECK(strstr(omm_err_sentence(), "a pattern that no text fulfils"));
    for (size_t i = TEXTS; i-- > 0;) {
        const size_t count = s_all[i].count;
        wanted[i] = count >= least && count <= most && peer_takes(&p, &s_all[i]);
        begins[i] = wanted[i];
        for (size_t k = 1; count < LENGTH_MAX && k <= LETTERS; k++)
            begins[i] = begins[i] || begins[i * LETTERS + k];
    }
    for (size_t i = 0; i < TEXTS; i++) {
        const int got =
            err == OMM_OK ? follow(&t, start, most, s_all[i].points, s_all[i].count) : GONE;
        if ((got == WHOLE) == wanted[i] && (got != GONE || !begins[i])) continue;
        fprintf(stderr, "%s {%u,%u}: %.*s: %d\n", expression, least, most, (int)s_all[i].size,
                (const char *)s_all[i].bytes, got);
        exit(1);
    }
    pcre2_match_data_free(p.data);
    pcre2_code_free(p.code);
    pattern_table_fini(&t);
}

typedef struct writer {
    char text[512];
    size_t size;
    uint64_t seed;
} writer;

static unsigned draw(writer *w, unsigned count) {
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->seed >> 33) % count;
}

static void put(writer *w, const char *more) {
    w->size += (size_t)snprintf(w->text + w->size, sizeof w->text - w->size, "%s", more);
}

static void put_either(writer *w, unsigned depth);

static void put_term(writer *w, unsigned depth) {
    static const char *const atoms[] = {"a",    "b",     "7",   ".",        "[ab]",
                                        "[^a]", "\\d",   "\\W", "\xc3\xa9", "[^\\d\\n]",
                                        "\\n",  "[7-a]", "[^]"};
    static const char *const times[] = {"",    "",      "",       "*",  "+",   "?",
                                        "{2}", "{1,3}", "{0,2}?", "*?", "{2,}"};
    if (draw(w, 12) == 0) {
        put(w, draw(w, 2) ? "^" : "$");
        return;
    }
    if (depth > 0 && draw(w, 3) == 0) {
        put(w, draw(w, 2) ? "(" : "(?:");
        put_either(w, depth - 1);
        put(w, ")");
    } else {
        put(w, atoms[draw(w, sizeof atoms / sizeof atoms[0])]);
    }
    put(w, times[draw(w, sizeof times / sizeof times[0])]);
}

static void put_either(writer *w, unsigned depth) {
    const unsigned ways = 1 + draw(w, 3) / 2;
    for (unsigned i = 0; i < ways; i++) {
        const unsigned terms = draw(w, 4);
        if (i > 0) put(w, "|");
        for (unsigned k = 0; k < terms; k++) put_term(w, depth);
    }
}

static void test_random(void) {
    writer w = {.seed = 7};
    for (unsigned i = 0; i < 200; i++) {
        const unsigned anchors = draw(&w, 4);
        w.size = 0;
        put(&w, anchors & 1 ? "^(?:" : "(?:");
        put_either(&w, 3);
        put(&w, anchors & 2 ? ")$" : ")");
        const uint32_t least = i % 4 == 1 ? draw(&w, 4) : 0;
        compare(w.text, least, i % 4 >= 2 ? least + draw(&w, 4) : PATTERN_NONE);
    }
}

/* ---- states -------------------------------------------------------------------------------------- */

static void test_states(void) {
    pattern_table t = {0};
    uint32_t a = 0, b = 0;
    CHECK_OK(pattern_add(&a, &t, "^\\d{4}-\\d\\d$", 0, PATTERN_NONE));
    CHECK_EQ(t.states[a].left, 7);
    CHECK_EQ(t.state_count, 8);
    CHECK(t.states[a].room == PATTERN_ROOM_UNKNOWN && t.states[a].plain == PATTERN_NONE);
    CHECK_OK(pattern_add(&b, &t, "x", 3, PATTERN_NONE));
    CHECK_EQ(b, 8);
    CHECK_EQ(t.states[b].left, 3);
    CHECK_EQ(t.states[a].left, 7);
    /* behind the match and three characters anything may follow */
    uint32_t state = b;
    for (unsigned i = 0; i < 3; i++) state = pattern_find(&t, state, 'x', 'x', PATTERN_NONE)->next;
    CHECK(t.states[state].plain == state && t.states[state].room == PATTERN_ROOM_ALL);
    CHECK_EQ(t.states[state].left, 0);
    CHECK(!pattern_find(&t, state, 0xd800, 0xdfff, PATTERN_NONE));
    CHECK(!pattern_find(&t, state, 0, 0, PATTERN_NONE));
    CHECK(pattern_find(&t, state, 0, 1, PATTERN_NONE));
    /* room: of one more character none but the last */
    CHECK(!pattern_find(&t, b, 'x', 'x', 2) && pattern_find(&t, b, 'x', 'x', 3));
    CHECK(!pattern_find(&t, state, 'x', 'x', 0));
    /* what does not fit leaves those that are there */
    CHECK_ERR(pattern_add(&a, &t, "a{9}", 5, 8), OMM_ERR_UNSUPPORTED);
    CHECK_ERR(pattern_add(&a, &t, "a.{20}b.{20}c$", 0, PATTERN_NONE), OMM_ERR_UNSUPPORTED);
    CHECK_EQ(pattern_find(&t, 0, '0', '9', PATTERN_NONE)->next, 1);
    /* and what was spent is spent */
    unsigned times = 0;
    while (pattern_add(&a, &t, "a.{10}b$", 0, PATTERN_NONE) == OMM_OK) times++;
    CHECK(times < 100);
    CHECK(strstr(omm_err_sentence(), "patterns that take more than"));
    pattern_table_fini(&t);
}

/* Few states that are much work have an end, too. */
static void test_work(void) {
    pattern_table t = {0};
    uint32_t start = 0;
    while (pattern_add(&start, &t, "^(?:[ab]{0,20}){0,20}$", 0, PATTERN_NONE) == OMM_OK) {
    }
    CHECK(strstr(omm_err_sentence(), "patterns that take more than"));
    CHECK(t.state_count < PATTERN_STATES_MAX / 2 && t.edge_count < PATTERN_EDGES_MAX / 2);
    CHECK(t.work <= PATTERN_WORK_MAX);
    pattern_table_fini(&t);
}

/* What is too much leaves room for those behind it; nothing is added where no work is left, and reading is work. */
static void test_shares(void) {
    pattern_table t = {0};
    uint32_t start = 0;
    for (unsigned i = 0; i < 16; i++)
        CHECK_ERR(pattern_add(&start, &t, "^(?:(?:[ab]{0,30}){0,30}){0,4}$", 0, PATTERN_NONE),
                  OMM_ERR_UNSUPPORTED);
    CHECK(t.work < PATTERN_WORK_MAX);
    CHECK_OK(pattern_add(&start, &t, "^\\d{4}-\\d\\d$", 0, PATTERN_NONE));
    uint32_t before = t.work;
    CHECK_ERR(pattern_add(&start, &t, "(?:(?:){200}){30}(", 0, PATTERN_NONE), OMM_ERR_FORMAT);
    CHECK_EQ(t.work, before); /* it is no expression */
    CHECK_ERR(pattern_add(&start, &t, "(?:(?:){200}){99999}", 0, PATTERN_NONE),
              OMM_ERR_UNSUPPORTED);
    CHECK(t.work > before + 1000);
    t.work_max = t.work + 64; /* of which one may take 16 */
    CHECK_ERR(pattern_add(&start, &t, "^\\d{4}-\\d\\d$", 0, PATTERN_NONE), OMM_ERR_UNSUPPORTED);
    t.work = t.work_max = PATTERN_WORK_MAX;
    const size_t asked = omm_mem_asked();
    CHECK_ERR(pattern_add(&start, &t, "a", 0, PATTERN_NONE), OMM_ERR_UNSUPPORTED);
    CHECK_EQ(omm_mem_asked(), asked);
    pattern_table_fini(&t);
}

/* How many plain characters may follow behind a text. */
static void test_rooms(void) {
    static const struct {
        const char *expression, *behind;
        uint32_t room;
    } cases[] = {
        {"", "", PATTERN_ROOM_ALL},
        {"^[^]*$", "b", PATTERN_ROOM_ALL},
        {"^[^\"\\\\\\n]*$", "b", PATTERN_ROOM_ALL},
        {"^[^\"\\\\\\0-\\x1f]*$", "b", PATTERN_ROOM_ALL},
        {"^.+$", "", PATTERN_ROOM_ALL},
        {"^.+$", "b", PATTERN_ROOM_ALL},
        {"^[^\\u2028]+$", "b", PATTERN_ROOM_ALL},
        {"^(?:[^]{3})*$", "b", PATTERN_ROOM_ALL},
        {"^.(?:.{3})*$", "", PATTERN_ROOM_ALL},
        {"^.{1,200}$", "", 200},
        {"^.{1,200}$", "bb", 198},
        {"^.{5}$", "bbbbb", 0},
        {"^\\d\\n?$", "1", 0},
        {"^b\\u2029{2}$", "b", 0},
        {"^[^\\u2027]+$", "b", PATTERN_ROOM_UNKNOWN},
        {"^[ -~\\ue000-\\ue001]*$", "b", PATTERN_ROOM_UNKNOWN},
        {"^[^a]*$", "b", PATTERN_ROOM_UNKNOWN},
        {"^[^ ]*$", "b", PATTERN_ROOM_UNKNOWN},
        {"b$", "b", PATTERN_ROOM_UNKNOWN},
        {"^.{3}[ab]$", "b", PATTERN_ROOM_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pattern_table t = {0};
        uint32_t state = 0;
        CHECK_OK(
            pattern_add(&state, &t, "^.{3}x$", 0, PATTERN_NONE)); /* not the first of the table */
        CHECK_OK(pattern_add(&state, &t, cases[i].expression, 0, PATTERN_NONE));
        for (const char *p = cases[i].behind; *p; p++)
            state = pattern_find(&t, state, (uint8_t)*p, (uint8_t)*p, PATTERN_NONE)->next;
        if (t.states[state].room != cases[i].room) fprintf(stderr, "%s\n", cases[i].expression);
        CHECK_EQ(t.states[state].room, cases[i].room);
        pattern_table_fini(&t);
    }
}

static void test_memory(void) {
    size_t failed = 0;
    for (size_t n = 1; n < 60; n++) {
        pattern_table t = {0};
        uint32_t start = 0;
        omm_mem_fail_nth(n);
        const omm_err err = pattern_add(&start, &t, "^(?:ab|cd){1,60}$", 2, 100);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        failed += err == OMM_ERR_NOMEM;
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && t.state_count == 0 && t.edge_count == 0));
        pattern_table_fini(&t);
    }
    CHECK(failed > 8);
}

int main(void) {
    make_texts();
    test_texts();
    test_refused();
    test_broken_off();
    test_limits();
    test_sets();
    test_random();
    test_states();
    test_work();
    test_shares();
    test_rooms();
    test_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
