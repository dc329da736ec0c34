/* tokens_test.c - texts as ids and back, and what of a body is refused. */
#include "tokens.h"

#include "omm/json.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "test_served.h"
#include "test_vocab.h"

#include <string.h>

typedef bool (*question)(omm_buf *out, fault *why, const omm_serve_options *o, omm_bytes body);

static const char *s_param; /* that the last refusal names */

/* The answer; of a refusal its sentence. */
static const char *ask(omm_buf *out, const served *s, question q, const char *body) {
    static fault why;
    why = (fault){0};
    omm_buf_clear(out);
    const bool ok = q(out, &why, &s->options, omm_bytes_str(body));
    CHECK(ok || why.status == 400);
    CHECK(ok || strcmp(why.type, "invalid_request_error") == 0);
    s_param = why.param;
    CHECK_OK(omm_buf_append(out, "", 1));
    return ok ? (const char *)out->data : why.message;
}

static void test_there_and_back(const served *s) {
    static const char *const texts[] = {"Hello there", "", "\xc3\xa9\xe2\x82\xac \\u0001",
                                        "a \\n\\t b", "12 * 7 = 84"};
    omm_buf out;
    omm_tokens ids;
    omm_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char body[256], want[256];
        snprintf(body, sizeof body, "{\"content\": \"%s\"}", texts[i]);
        /* its answer is what the other takes */
        snprintf(body, sizeof body, "%s", ask(&out, s, tokens_of_text, body));
        snprintf(want, sizeof want, "{\"content\":\"%s\"}\n", texts[i]);
        CHECK_EQ(strcmp(ask(&out, s, tokens_to_text, body), want), 0);
    }
    omm_tokens_init(&ids, 100);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str("Hello there"), 0));
    CHECK(ids.count > 1);
    char want[128] = "{\"tokens\":[";
    for (size_t i = 0, at = strlen(want); i < ids.count; i++)
        at += (size_t)snprintf(want + at, sizeof want - at, "%u%s", ids.ids[i],
                               i + 1 < ids.count ? "," : "]}\n");
    CHECK_EQ(strcmp(ask(&out, s, tokens_of_text, "{\"content\": \"Hello there\"}"), want), 0);
    omm_tokens_fini(&ids);
    omm_buf_fini(&out);
}

/* Control tokens by their names, unless that is not wanted; the token that begins a text if it is. */
static void test_special(const served *s) {
    char end[32], begin[64];
    omm_buf out;
    omm_buf_init(&out, 1 << 20);
    snprintf(end, sizeof end, "{\"tokens\":[%u]}\n",
             omm_tokenizer_special(s->tokenizer, "<|im_end|>"));
    const char *got = ask(&out, s, tokens_of_text, "{\"content\": \"<|im_end|>\"}");
    CHECK_EQ(strcmp(got, end), 0);
    got = ask(&out, s, tokens_of_text, "{\"content\": \"<|im_end|>\", \"parse_special\": false}");
    CHECK(strcmp(got, end) != 0 && strchr(got, ','));
    CHECK_EQ(strcmp(ask(&out, s, tokens_to_text, end), "{\"content\":\"<|im_end|>\"}\n"), 0);
    const bool adds = omm_tokenizer_adds_bos(s->tokenizer);
    snprintf(begin, sizeof begin, "{\"tokens\":[]}\n");
    if (adds) snprintf(begin, sizeof begin, "{\"tokens\":[%u]}\n", omm_tokenizer_bos(s->tokenizer));
    got = ask(&out, s, tokens_of_text, "{\"content\": \"\", \"add_special\": true}");
    CHECK_EQ(strcmp(got, begin), 0);
    got = ask(&out, s, tokens_of_text,
              "{\"content\": \"\", \"add_special\": null, \"with_pieces\": false}");
    CHECK_EQ(strcmp(got, "{\"tokens\":[]}\n"), 0);
    omm_buf_fini(&out);
}

/* Of a vocabulary whose texts begin with a token and a space, both are asked for or not there. */
static void test_begins(const served *s) {
    const vocab_recipe recipe = {.spm = true, .adds_bos = true};
    served other = *s;
    char with[128], without[64];
    omm_buf out;
    omm_buf_init(&out, 1 << 20);
    omm_tokenizer *made = open_vocab(&recipe);
    other.options.tokenizer = made;
    snprintf(without, sizeof without, "%s",
             ask(&out, &other, tokens_of_text, "{\"content\": \"ab\"}"));
    CHECK_EQ(strncmp(without, "{\"tokens\":[", 11), 0);
    snprintf(with, sizeof with, "{\"tokens\":[%u,%s", omm_tokenizer_bos(made), without + 11);
    const char *got =
        ask(&out, &other, tokens_of_text, "{\"content\": \"ab\", \"add_special\": true}");
    CHECK_EQ(strcmp(got, with), 0);
    got = ask(&out, &other, tokens_of_text, "{\"content\": \"ab\", \"add_special\": false}");
    CHECK_EQ(strcmp(got, without), 0);
    CHECK_EQ(strcmp(ask(&out, &other, tokens_to_text, without), "{\"content\":\"ab\"}\n"), 0);
    omm_tokenizer_close(made);
    omm_buf_fini(&out);
}

static void test_nul(const served *s) {
    static const char content[] = "{\"content\":\"a\\u0000b\"}\n";
    char body[64];
    omm_buf out;
    omm_buf_init(&out, 1 << 20);
    snprintf(body, sizeof body, "%s", ask(&out, s, tokens_of_text, content));
    CHECK_EQ(strcmp(ask(&out, s, tokens_to_text, body), content), 0);
    snprintf(body, sizeof body, "%s", ask(&out, s, tokens_of_text, "{\"content\": \"\\ufffd\"}"));
    CHECK_EQ(strcmp(ask(&out, s, tokens_of_text, "{\"content\": \"\\ud83d\"}"), body), 0);
    omm_buf_fini(&out);
}

/* Half a character is none. */
static void test_halves(const served *s) {
    omm_buf out;
    omm_tokens ids;
    char body[64];
    uint32_t half = OMM_TOKEN_NONE;
    omm_buf_init(&out, 1 << 20);
    omm_tokens_init(&ids, 100);
    for (uint32_t id = 0; id < omm_tokenizer_vocab(s->tokenizer) && half == OMM_TOKEN_NONE; id++) {
        const omm_bytes piece = omm_tokenizer_piece(s->tokenizer, id);
        if (piece.size == 1 && piece.data[0] == 0xe2) half = id;
    }
    CHECK(half != OMM_TOKEN_NONE);
    snprintf(body, sizeof body, "{\"tokens\": [%u]}", half);
    CHECK_EQ(strcmp(ask(&out, s, tokens_to_text, body), "{\"content\":\"\xef\xbf\xbd\"}\n"), 0);
    omm_tokens_fini(&ids);
    omm_buf_fini(&out);
}

static void test_refused(const served *s) {
    static const struct {
        question ask;
        const char *body, *words;
    } cases[] = {
        {tokens_of_text, "{", "the body"},
        {tokens_of_text, "[1]", "the body is no JSON object"},
        {tokens_of_text, "{}", "content: a text is needed"},
        {tokens_of_text, "{\"content\": 5}", "content: a text is needed"},
        {tokens_of_text, "{\"content\\ud83d\": \"\"}", "the body:1:16: invalid Unicode"},
        {tokens_of_text, "{\"content\": \"x\", \"add_special\": 1}",
         "add_special: accepted are true"},
        {tokens_of_text, "{\"content\": \"x\", \"parse_special\": \"no\"}",
         "parse_special: accepted"},
        {tokens_of_text, "{\"content\": \"x\", \"with_pieces\": true}",
         "with_pieces: not supported"},
        {tokens_of_text, "{\"content\": \"x\", \"tokens\": []}",
         "tokens: not known here; accepted: content, add_special"},
        {tokens_to_text, "{}", "tokens: a list is needed"},
        {tokens_to_text, "{\"tokens\": \"x\"}", "tokens: a list is needed"},
        {tokens_to_text, "{\"tokens\": [-1]}", "tokens: accepted are whole numbers from 0 to "},
        {tokens_to_text, "{\"tokens\": [1, 1e3]}", "tokens: accepted are whole numbers from 0 to "},
        {tokens_to_text, "{\"tokens\": [18446744073709551616]}",
         "tokens: accepted are whole numbers from 0 "},
        {tokens_to_text, "{\"tokens\": [4294967296]}",
         "tokens: accepted are whole numbers from 0 "},
        {tokens_to_text, "{\"tokens\": [], \"content\": \"\"}", "content: not known here"},
    };
    omm_buf out;
    omm_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = ask(&out, s, cases[i].ask, cases[i].body);
        const bool names = strncmp(got, "the body", 8) != 0 && !strstr(got, "not known here");
        CHECK_EQ(s_param != NULL, names);
        CHECK(!names || strncmp(got, s_param, strlen(s_param)) == 0);
        if (strstr(got, cases[i].words) == got) continue;
        fprintf(stderr, "%s: %s\n", cases[i].body, got);
        exit(1);
    }
    char body[64];
    snprintf(body, sizeof body, "{\"tokens\": [%u]}", omm_tokenizer_vocab(s->tokenizer));
    CHECK(strstr(ask(&out, s, tokens_to_text, body), "accepted are whole numbers"));
    omm_buf_fini(&out);
}

static void test_memory(const served *s) {
    static const question questions[] = {tokens_of_text, tokens_to_text};
    static const char *const bodies[] = {"{\"content\": \"Hello there\"}", "{\"tokens\": [5, 6]}"};
    for (size_t n = 2; n < 30; n++) {
        fault why = {0};
        omm_buf out;
        omm_buf_init(&out, 1 << 20);
        omm_mem_fail_nth(n / 2);
        const bool ok = questions[n % 2](&out, &why, &s->options, omm_bytes_str(bodies[n % 2]));
        CHECK(!ok || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(ok || (why.status == 503 && !why.param));
        omm_buf_fini(&out);
    }
}

int main(void) {
    served s;
    served_open(&s);
    test_there_and_back(&s);
    test_special(&s);
    test_begins(&s);
    test_nul(&s);
    test_halves(&s);
    test_refused(&s);
    test_memory(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
