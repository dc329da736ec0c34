/* given_back_test.c - what a client has of the server, as it uses it: a message as the next request's history, offsets in a text. */
#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm/serve.h"
#include "omm/utf8.h"
#include "omm_test.h"
#include "test_served.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define USER "{\"role\": \"user\", \"content\": \"What is 12 * 7?\"}"
#define TOOLS                                                                                      \
    "\"temperature\": 0, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "           \
    "\"calculator\", \"parameters\": {\"properties\": {\"expression\": {}}}}}]"

static char *ask_for(unsigned port, const char *path, const char *body, const char *member) {
    answer a = served_ask(port, path, body);
    if (a.status != 200) fprintf(stderr, "%s\n%s\n", body, a.body);
    CHECK_EQ(a.status, 200);
    char *got = served_member(a.body, member);
    answer_fini(&a);
    return got;
}

/* A call, wherever max_tokens cuts it, stands in the next question as it came; the last of these is whole. */
static void test_calls(unsigned port) {
    char body[2048];
    unsigned cut = 0, whole = 0;
    for (unsigned most = 1; most < 40 && !whole; most++) {
        snprintf(body, sizeof body, "{\"messages\": [" USER "], " TOOLS ", \"max_tokens\": %u}",
                 most);
        answer a = served_ask(port, CHAT, body);
        char *message = served_member(a.body, "choices.0.message");
        char *finish = served_member(a.body, "choices.0.finish_reason");
        const bool calls = strstr(message, "\"arguments\"") != NULL;
        whole += strcmp(finish, "tool_calls") == 0;
        cut += calls && strcmp(finish, "length") == 0;
        snprintf(body, sizeof body,
                 "{\"messages\": [" USER ", %s, " USER "], " TOOLS ", \"max_tokens\": 1}", message);
        free(ask_for(port, CHAT, body, "usage"));
        free(message);
        free(finish);
        answer_fini(&a);
    }
    CHECK(cut > 4 && whole == 1);
}

/* An answer that says nothing, however its client spells that, is an empty one. */
static void test_empty(unsigned port) {
    static const char *const turns[] = {
        "{\"role\": \"assistant\", \"content\": null}",
        "{\"role\": \"assistant\", \"content\": \"\"}",
        "{\"role\": \"assistant\"}",
        "{\"role\": \"assistant\", \"content\": null, \"refusal\": null, \"tool_calls\": null}",
    };
    char body[1024], *first = NULL;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        snprintf(body, sizeof body, "{\"messages\": [" USER ", %s, " USER "], \"max_tokens\": 1}",
                 turns[i]);
        char *got = ask_for(port, CHAT, body, "usage.prompt_tokens");
        if (!first) first = strdup(got);
        CHECK_EQ(strcmp(got, first), 0);
        free(got);
    }
    free(first);
}

static uint32_t byte_token(const served *s, uint8_t byte) {
    for (uint32_t id = 0; id < omm_tokenizer_vocab(s->tokenizer); id++) {
        const omm_bytes piece = omm_tokenizer_piece(s->tokenizer, id);
        if (piece.size == 1 && piece.data[0] == byte) return id;
    }
    CHECK(false);
    return 0;
}

/* Offsets of tokens are those of their characters in the text that is sent, bytes of none among them: U+FFFD each. */
static void test_offsets(const served *s, unsigned port) {
    static const struct {
        const char *bytes, *text, *offsets;
    } cases[] = {
        {"a\xe2z", "a\xef\xbf\xbdz", "[0,1,2,3]"},
        {"\xe2\x82\xacz", "\xe2\x82\xacz", "[0,0,0,1,2]"}, /* a character of three tokens */
        {"\xe2\x82z", "\xef\xbf\xbd\xef\xbf\xbdz", "[0,0,2,3]"},
        {"z\xe2", "z\xef\xbf\xbd", "[0,1,2]"}, /* broken by its end */
        {"\xe2\xe2\xffz", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", "[0,1,2,3,4]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512], ids[128] = "";
        size_t at = 0;
        for (const char *b = cases[i].bytes; *b; b++)
            at += (size_t)snprintf(ids + at, sizeof ids - at, "%s%u", at ? ", " : "",
                                   byte_token(s, (uint8_t)*b));
        snprintf(body, sizeof body,
                 "{\"prompt\": [%s], \"echo\": true, \"logprobs\": 0, \"max_tokens\": 1, "
                 "\"temperature\": 0, \"seed\": 1}",
                 ids);
        char *text = ask_for(port, TEXT, body, "choices.0.text");
        char *offsets = ask_for(port, TEXT, body, "choices.0.logprobs.text_offset");
        if (strcmp(offsets, cases[i].offsets) != 0)
            fprintf(stderr, "%zu: %s not %s\n", i, offsets, cases[i].offsets);
        CHECK_EQ(strncmp(text, cases[i].text, strlen(cases[i].text)), 0);
        CHECK_EQ(strcmp(offsets, cases[i].offsets), 0);
        free(text);
        free(offsets);
    }
}

/* Behind so many characters of a text. */
static const char *behind(const char *text, size_t characters) {
    for (; characters > 0 && *text; characters--)
        text += omm_utf8_size((const uint8_t *)text, strlen(text));
    return text;
}

/* The same of a text that is drawn, about any token as likely as any other. */
static void test_drawn_offsets(unsigned port) {
    answer a = served_ask(port, TEXT,
                          "{\"prompt\": \"a\", \"logprobs\": 0, \"max_tokens\": 300, "
                          "\"temperature\": 100, \"seed\": 3}");
    json_t *root = NULL;
    CHECK_EQ(a.status, 200);
    CHECK_OK(omm_json_parse(&root, omm_bytes_str(a.body), "an answer"));
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *logprobs = json_object_get(choice, "logprobs");
    const json_t *tokens = json_object_get(logprobs, "tokens");
    const json_t *offsets = json_object_get(logprobs, "text_offset");
    const char *text = json_string_value(json_object_get(choice, "text"));
    unsigned halves = 0, whole = 0;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        const size_t offset = (size_t)json_integer_value(json_array_get(offsets, i));
        const bool is_whole = strncmp(token, "bytes:", 6) != 0;
        halves += !is_whole;
        whole += is_whole;
        if (is_whole) CHECK_EQ(strncmp(behind(text, offset), token, strlen(token)), 0);
    }
    CHECK(halves > 4 && whole > 40);
    json_decref(root);
    answer_fini(&a);
}

/* A tokenizer that puts a space in front: the text has none there, and offsets are the text's. */
static void test_leading(const served *s) {
    char path[OMM_PATH_MAX];
    const char *dir = getenv("OMM_TESTDATA");
    omm_serve_options o = s->options;
    omm_serve *server = NULL;
    omm_tokenizer *tokenizer = NULL;
    omm_model model;
    omm_gguf gguf;
    CHECK_OK(omm_path_join(path, dir ? dir : "", "models/stories260K-f32.gguf"));
    if (!omm_file_exists(path)) return;
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(omm_tokenizer_open(&tokenizer, &gguf));
    omm_gguf_close(&gguf);
    CHECK(omm_tokenizer_leads(tokenizer));
    o.model = &model;
    o.tokenizer = tokenizer;
    o.adapter_count = 0;
    o.batcher.session.positions_max = model.dims.context;
    CHECK_OK(omm_serve_open(&server, &o));
    char *offsets = ask_for(omm_serve_port(server), TEXT,
                            "{\"prompt\": \"Once upon a time\", \"echo\": true, \"logprobs\": 0, "
                            "\"max_tokens\": 1, \"temperature\": 0}",
                            "choices.0.logprobs.text_offset");
    CHECK_EQ(strcmp(offsets, "[0,0,4,9,11,16]"),
             0); /* BOS, Once, upon, a, time and what is drawn */
    free(offsets);
    omm_serve_close(server);
    omm_tokenizer_close(tokenizer);
    omm_model_fini(&model);
}

int main(void) {
    served s;
    omm_serve *server = NULL;
    if (omm_mhd_load() == OMM_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", omm_err_sentence());
        return 77;
    }
    served_open(&s);
    CHECK_OK(omm_serve_open(&server, &s.options));
    test_calls(omm_serve_port(server));
    test_empty(omm_serve_port(server));
    test_offsets(&s, omm_serve_port(server));
    test_drawn_offsets(omm_serve_port(server));
    omm_serve_close(server);
    test_leading(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
