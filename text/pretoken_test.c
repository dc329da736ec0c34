/* pretoken_test.c - text cut into words as the models' own tokenizers cut it, and in linear time
 * whatever the text. */
#include "tokenizer_internal.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#include "omm_test.h"
#include "pretoken_cases.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECES_MAX = 200 };

typedef struct pieces {
    size_t sizes[PIECES_MAX];
    size_t count, bytes;
} pieces;

static omm_err collect(void *ud, omm_bytes word) {
    pieces *p = ud;
    CHECK(word.size > 0);
    CHECK(p->count < PIECES_MAX);
    p->sizes[p->count++] = word.size;
    p->bytes += word.size;
    return OMM_OK;
}

static void check_pieces(const pretoken *p, omm_bytes bytes, size_t text, const char *want) {
    pieces have = {0};
    CHECK_OK(pretoken_split(p, bytes, collect, &have));
    CHECK_EQ(have.bytes, bytes.size);
    size_t at = 0;
    for (const char *w = want; *w;) {
        char *end = NULL;
        size_t size = strtoul(w, &end, 10);
        if (at >= have.count || have.sizes[at] != size)
            fprintf(stderr, "%s: text %zu, piece %zu: have %zu bytes, want %zu\n", p->name, text,
                    at, at < have.count ? have.sizes[at] : 0, size);
        CHECK(at < have.count && have.sizes[at] == size);
        at++;
        for (w = end; *w == ' '; w++) {
        }
    }
    CHECK_EQ(have.count, at);
}

static omm_err refuse_nth(void *ud, omm_bytes word) {
    size_t *left = ud;
    (void)word;
    return --*left ? OMM_OK : omm_raise(OMM_ERR_CANCELLED, "as asked");
}

/* Who refuses a word gets no other, wherever it stands. */
static void check_stops(const pretoken *p) {
    const omm_bytes text = omm_bytes_str("ab 1234567 c's");
    pieces have = {0};
    CHECK_OK(pretoken_split(p, text, collect, &have));
    for (size_t n = 1; n <= have.count; n++) {
        size_t left = n;
        CHECK_ERR(pretoken_split(p, text, refuse_nth, &left), OMM_ERR_CANCELLED);
        CHECK_EQ(left, 0);
    }
}

static bool is_tested(const pretoken_family *family) {
    for (size_t i = 0; i < sizeof s_cases / sizeof s_cases[0]; i++) {
        const char *at = strstr(family->names, s_cases[i].pre);
        size_t size = strlen(s_cases[i].pre);
        if (at && at[-1] == ' ' && at[size] == ' ') return true;
    }
    return false;
}

static void test_cases(void) {
    for (size_t i = 0; i < sizeof s_cases / sizeof s_cases[0]; i++) {
        pretoken p;
        CHECK_OK(pretoken_open(&p, omm_bytes_str(s_cases[i].pre)));
        for (size_t t = 0; t < PRETOKEN_CASE_TEXTS; t++)
            check_pieces(&p, omm_bytes_of(s_texts[t].bytes, s_texts[t].size), t,
                         s_cases[i].sizes[t]);
        check_stops(&p);
        pretoken_close(&p);
    }
    for (size_t f = 0; f < pretoken_family_count; f++) {
        if (!is_tested(&pretoken_families[f]))
            fprintf(stderr, "no case for%s\n", pretoken_families[f].names);
        CHECK(is_tested(&pretoken_families[f]));
    }
}

/* What those texts do not have, made in the same way. */
static void test_more(void) {
    static const struct {
        const char *pre, *text, *sizes;
    } cases[] = {{"gpt-2", "a's't're've'm'll'd'D", "1 2 2 3 3 2 3 2 1 1"},
                 {"qwen2", "a's'T're'VE'm'lL'd", "1 2 2 3 3 2 3 2"},
                 {"qwen2", "!\r\n!\ra b", "3 2 1 2"},
                 {"qwen2", "b\ra", "1 1 1"},
                 {"gpt-4o",
                  "\xca\xb0"
                  "Ab a\xca\xb0 \xc7\x85"
                  "b A\xca\xb0"
                  "B",
                  "4 4 4 4 1"},
                 {"gpt-4o", "!\r\n/!/a'd", "4 2 3"},
                 {"bloom",
                  "a\xe3\x80\x81"
                  "b\xe0\xa5\xa4"
                  "c\xe2\x80\xa6"
                  "d\xe3\x80\x82"
                  "e",
                  "1 3 1 3 1 3 1 3 1"}};
    static const struct {
        size_t spaces; /* in front of one letter */
        const char *sizes;
    } runs[] = {{1027, "512 512 2 2"}, {518, "512 4 1 2"}, {262, "256 4 1 2"}, {134, "128 4 1 2"},
                {70, "64 4 1 2"},      {38, "32 4 1 2"},   {22, "16 4 1 2"},   {14, "8 4 1 2"}};
    pretoken p;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(pretoken_open(&p, omm_bytes_str(cases[i].pre)));
        check_pieces(&p, omm_bytes_str(cases[i].text), i, cases[i].sizes);
        pretoken_close(&p);
    }
    CHECK_OK(pretoken_open(&p, omm_bytes_str("jais-2")));
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char text[1100];
        snprintf(text, sizeof text, "%*s", (int)runs[i].spaces + 1, "a");
        check_pieces(&p, omm_bytes_str(text), i, runs[i].sizes);
    }
    pretoken_close(&p);
}

/* Where a text is cut that has this character, in characters. */
static void cut_around(pieces *out, const pretoken *p, const char *character) {
    static const char *const parts[] = {"a", "b", "", "d!", "", "?"};
    omm_buf text;
    pieces bytes = {0};
    omm_buf_init(&text, 256);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        CHECK_OK(omm_buf_printf(&text, "%s%s", parts[i], character));
    CHECK_OK(pretoken_split(p, omm_buf_view(&text), collect, &bytes));
    size_t at = 0;
    *out = (pieces){.count = bytes.count};
    for (size_t i = 0; i < bytes.count; at += bytes.sizes[i++])
        out->sizes[i] = omm_utf8_count(omm_bytes_of(text.data + at, bytes.sizes[i]));
    omm_buf_fini(&text);
}

static void check_alike(const pretoken *p, const char *one, const char *other) {
    pieces a, b;
    cut_around(&a, p, one);
    cut_around(&b, p, other);
    if (memcmp(&a, &b, sizeof a) != 0) fprintf(stderr, "%s: '%s', '%s'\n", p->name, one, other);
    CHECK_EQ(memcmp(&a, &b, sizeof a), 0);
}

/* White space is Unicode's, one character of it like the other, and nothing else is.  DeepSeek's first models count most of it
 * among the characters of Asia, or as marks. */
static void test_space(void) {
    static const char *const spaces[] = {
        "\xe2\x80\x83", "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80",
        "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    static const char *const none[] = {"\xe1\xa0\x8e", "\xe2\x80\x8b", "\xef\xbb\xbf"};
    for (size_t f = 0; f < pretoken_family_count; f++) {
        const char *name = pretoken_families[f].names + 1;
        const bool counts_others =
            strcmp(name, "deepseek-llm ") == 0 || strcmp(name, "deepseek-coder ") == 0;
        pretoken p;
        CHECK_OK(pretoken_open(&p, omm_bytes_of(name, strcspn(name, " "))));
        for (size_t i = 1; !counts_others && i < sizeof spaces / sizeof spaces[0]; i++)
            check_alike(&p, spaces[0], spaces[i]);
        for (size_t i = 1; i < sizeof none / sizeof none[0]; i++) check_alike(&p, none[0], none[i]);
        pretoken_close(&p);
    }
}

/* Numbers that have case, from their first to their last, and what stands beside them; a letter whose bytes are like theirs
 * but for the first. */
static void test_small_numbers(void) {
    static const char *const cases[][2] = {{"\xe2\x85\xa0\xe2\x85\xaf", "\xe2\x85\xb0\xe2\x85\xbf"},
                                           {"\xe2\x92\xb6\xe2\x93\x8f", "\xe2\x93\x90\xe2\x93\xa9"},
                                           {"\xe2\x85\x9f\xe2\x85\xb0", NULL},
                                           {"\xe2\x92\xb5\xe2\x93\x90", NULL},
                                           {"\xe3\x85\xa0x", NULL}};
    pretoken p;
    CHECK_OK(pretoken_open(&p, omm_bytes_str("whitespace")));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_buf out;
        omm_buf_init(&out, 64);
        CHECK_OK(pretoken_lower(&out, &p, omm_bytes_str(cases[i][0])));
        const char *want = cases[i][1] ? cases[i][1] : cases[i][0];
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)));
        omm_buf_fini(&out);
    }
    pretoken_close(&p);
}

/* Every name opens; names of two families would be a mistake in the table. */
static void test_names(void) {
    for (size_t f = 0; f < pretoken_family_count; f++) {
        char names[256];
        snprintf(names, sizeof names, "%s", pretoken_families[f].names);
        for (char *save = NULL, *name = strtok_r(names, " ", &save); name;
             name = strtok_r(NULL, " ", &save)) {
            pretoken p;
            CHECK_OK(pretoken_open(&p, omm_bytes_str(name)));
            CHECK(strcmp(p.name, pretoken_families[f].family.name) == 0);
            pretoken_close(&p);
        }
    }
    static const struct {
        const char *name, *family;
        bool adds_bos, whole_words;
    } later[] = {{"f2llmv2", "qwen2", false, false},
                 {"jina-v5-nano", "llama3", true, true},
                 {"glm5", "glm4", false, true},
                 {"chatglm-bpe", "dbrx", false, false},
                 {"minicpm5", "minicpm5", false, true},
                 {"youtu", "youtu", false, true},
                 {"tekken", "tekken", true, true},
                 {"chameleon", "chameleon", true, false},
                 {"modern-bert", "gpt-2", false, false},
                 {"jina-v1-en", "gpt-2", false, false},
                 {"jina-v2-code", "gpt-2", false, false},
                 {"roberta-bpe", "gpt-2", false, false},
                 {"granite-embed-multi-97m", "granite-embed", false, true},
                 {"granite-embed-multi-311m", "gemma4", true, false},
                 {"sarvam-moe", "sarvam-moe", false, false},
                 {"whitespace", "whitespace", false, false}};
    pretoken p;
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        CHECK_OK(pretoken_open(&p, omm_bytes_str(later[i].name)));
        CHECK(strcmp(p.name, later[i].family) == 0);
        CHECK(p.adds_bos == later[i].adds_bos && p.whole_words == later[i].whole_words);
        pretoken_close(&p);
    }
    static const struct {
        const char *name;
        bool characters, marks, lines;
    } merged[] = {{"gemma4", true, true, true},
                  {"sarvam-moe", true, true, false},
                  {"whitespace", true, false, false},
                  {"gpt-2", false, false, false}};
    for (size_t i = 0; i < sizeof merged / sizeof merged[0]; i++) {
        CHECK_OK(pretoken_open(&p, omm_bytes_str(merged[i].name)));
        CHECK(p.characters == merged[i].characters && p.marks == merged[i].marks &&
              p.whole_lines == merged[i].lines);
        pretoken_close(&p);
    }
    CHECK_ERR(pretoken_open(&p, omm_bytes_str("gpt-4711")), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "'gpt-4711' is not known; known are: ") != NULL);
    CHECK(strstr(omm_err_sentence(), "starcoder") != NULL);
    CHECK(strstr(omm_err_sentence(), "default") != NULL); /* the last: nothing is cut off */
    CHECK_ERR(pretoken_open(&p, omm_bytes_str("gpt-2 phi-2")), OMM_ERR_UNSUPPORTED);
    CHECK_ERR(pretoken_open(&p, omm_bytes_str("")), OMM_ERR_UNSUPPORTED);
}

/* ---- No text takes more than a constant time per byte -------------------------------------- */

static omm_err ignore(void *ud, omm_bytes word) {
    *(size_t *)ud += word.size;
    return OMM_OK;
}

/* `unit` again and again, then `end`, which spoils what the run could have matched. */
static double split_seconds(const pretoken *p, const char *unit, const char *end, size_t bytes) {
    size_t size = strlen(unit);
    size_t repeated = bytes / size * size;
    char *text = omm_alloc(repeated + strlen(end) + 1, 1);
    size_t total = 0;
    for (size_t i = 0; i < repeated; i++) text[i] = unit[i % size];
    for (size_t i = 0; end[i]; i++) text[repeated + i] = end[i];
    clock_t begin = clock();
    CHECK_OK(pretoken_split(p, omm_bytes_str(text), ignore, &total));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK_EQ(total, repeated + strlen(end));
    omm_free(text);
    return seconds;
}

/* Sixteen times the text takes far less than the 256 times of a quadratic search.  Where a short text leaves that open, in
 * which the time of a call and of other programs is much, a long one tells. */
static bool is_linear(const pretoken *p, const char *unit, const char *end) {
    double taken[3] = {0};
    for (int turn = 0; turn < 3; turn++) { /* one may be disturbed */
        for (unsigned i = 0; i < 2; i++) taken[i] = split_seconds(p, unit, end, 1u << (11 + 4 * i));
        if (taken[1] <= 64 * taken[0]) return true;
        taken[2] = split_seconds(p, unit, end, 1u << 19);
        if (taken[2] <= 64 * taken[1] + 0.02) return true;
    }
    fprintf(stderr, "%s: '%s'..'%s': %f, %f, %f s\n", p->name, unit, end, taken[0], taken[1],
            taken[2]);
    return false;
}

static void test_linear(void) {
    static const char *const units[] = {"a",
                                        "A",
                                        " ",
                                        "\n",
                                        "1",
                                        ".",
                                        "'",
                                        "aA",
                                        "a ",
                                        "\n ",
                                        " \n",
                                        "'s",
                                        "\xcc\x81",
                                        "1 ",
                                        "\xc3\xa9",
                                        "\xe4\xb8\xad",
                                        "\xe0\xb9\x84",
                                        "A\xcc\x81",
                                        "\x01"};
    static const char *const ends[] = {"", "a", "\n", "!", "1"};
    for (size_t f = 0; f < pretoken_family_count; f++) {
        pretoken p;
        const char *name = pretoken_families[f].names + 1;
        CHECK_OK(pretoken_open(&p, omm_bytes_of(name, strcspn(name, " "))));
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
            for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++)
                CHECK(is_linear(&p, units[u], ends[e]));
        pretoken_close(&p);
    }
}

/* A version, not the library's word that it has no Unicode. */
static void test_unicode_version(void) {
    char version[OMM_UNICODE_SIZE];
    omm_unicode_version(version);
    CHECK(strlen(version) >= 4 && strspn(version, "0123456789.") == strlen(version));
}

int main(void) {
    test_cases();
    test_more();
    test_space();
    test_small_numbers();
    test_unicode_version();
    test_names();
    test_linear();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
