/* serve_test.c - a server of the shipped model, asked over sockets: what is answered, to whom, and what happens when
 * somebody goes away, comes too many, or the server is stopped. */
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm/session.h"
#include "omm_test.h"
#include "test_served.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"

enum { CLIENTS = 6, ROUNDS = 2 };

static void has(const char *json, const char *path, const char *want) {
    char *got = served_member(json, path);
    if (strcmp(got, want) != 0) {
        fprintf(stderr, "%s is %s, not %s, in %s\n", path, got, want, json);
        exit(1);
    }
    free(got);
}

static void ask_for(unsigned port, const char *path, const char *body, unsigned status,
                    const char *member, const char *want) {
    answer a = served_ask(port, path, body);
    if (a.status != status) {
        fprintf(stderr, "%s: %u, not %u: %s\n", body, a.status, status, a.body);
        exit(1);
    }
    has(a.body, member, want);
    answer_fini(&a);
}

/* ---- what is answered ------------------------------------------------------------------------ */

#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]"
#define STORY "\"prompt\": \"Once upon a time\", \"max_tokens\": 24"

/* All contents of a stream's events, one after the other. */
static void join_stream(char *out, size_t size, const char *body, const char *member) {
    size_t at = 0;
    out[0] = 0;
    for (const char *p = strstr(body, "data: "); p; p = strstr(p + 6, "\ndata: ")) {
        p += *p == '\n';
        const char *end = strchr(p, '\n');
        CHECK(end && end[1] == '\n');
        char line[4096];
        snprintf(line, sizeof line, "%.*s", (int)(end - p - 6), p + 6);
        if (strcmp(line, "[DONE]") == 0) {
            CHECK_EQ(strcmp(end, "\n\n"), 0);
            return;
        }
        char *got = served_member(line, member);
        if (strcmp(got, "(none)") != 0) at += (size_t)snprintf(out + at, size - at, "%s", got);
        free(got);
    }
    check_failed("a stream without an end", __FILE__, __LINE__);
}

/* The text that the engine gives by itself. */
static void alone(char *out, size_t size, const served *s, const char *prompt, uint64_t seed,
                  size_t count) {
    omm_session *session = NULL;
    omm_tokens ids;
    omm_buf text;
    const omm_seed root = omm_seed_from_u64(seed);
    const omm_sampler sampler = {
        .temperature = 1.0f, .top_p = 1.0f, .rng = omm_rng_init(&root, OMM_PURPOSE_SAMPLE, 0, 0)};
    float *logits = (float *)omm_alloc(s->model.dims.vocab, sizeof *logits);
    omm_tokens_init(&ids, 1 << 12);
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_session_open(&session, &s->compute, &s->model, NULL, &s->options.batcher.session));
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(prompt), OMM_TOKENIZE_BOS));
    CHECK_OK(omm_session_append(session, ids.ids, ids.count, logits, false));
    for (size_t i = 0; i < count; i++) {
        uint32_t id = 0;
        CHECK_OK(
            omm_sample(&id, &sampler, logits, s->model.dims.vocab, omm_session_position(session)));
        if (omm_tokenizer_is_end(s->tokenizer, id)) break;
        CHECK_OK(omm_tokenizer_decode(&text, s->tokenizer, &id, 1, OMM_DETOKENIZE_CONTINUE));
        CHECK_OK(omm_session_append(session, &id, 1, logits, false));
    }
    snprintf(out, size, "%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    omm_tokens_fini(&ids);
    omm_session_close(session);
    omm_free(logits);
}

static void test_answers(const served *s, unsigned port) {
    char want[4096], got[4096];
    alone(want, sizeof want, s, "Once upon a time", 7, 24);
    ask_for(port, TEXT, "{" STORY ", \"seed\": 7, \"temperature\": 1}", 200, "choices.0.text",
            want);
    ask_for(port, TEXT, "{\"prompt\": \"A\", \"max_tokens\": 1, \"seed\": 7}", 200, "seed", "7");
    answer a =
        served_ask(port, TEXT, "{" STORY ", \"seed\": 7, \"temperature\": 1, \"stream\": true}");
    CHECK_EQ(a.status, 200);
    CHECK(strcasestr(a.head, "content-type: text/event-stream"));
    join_stream(got, sizeof got, a.body, "choices.0.text");
    CHECK_EQ(strcmp(got, want), 0);
    answer_fini(&a);

    a = served_ask(port, CHAT, "{" HELLO ", \"temperature\": 0, \"model\": \"base\"}");
    CHECK_EQ(a.status, 200);
    has(a.body, "object", "chat.completion");
    has(a.body, "model", "base");
    has(a.body, "system_fingerprint", "omm-test");
    has(a.body, "choices.0.message.role", "assistant");
    has(a.body, "choices.0.message.content", "Hello! How can I help you?");
    has(a.body, "choices.0.finish_reason", "stop");
    has(a.body, "usage",
        "{\"completion_tokens\":10,\"prompt_tokens\":11,\"prompt_tokens_details\":"
        "{\"cached_tokens\":0},\"total_tokens\":21}");
    char *seed = served_member(a.body, "seed"); /* drawn, and said */
    CHECK(strlen(seed) > 3);
    free(seed);
    answer_fini(&a);
    a = served_ask(port, CHAT,
                   "{" HELLO ", \"temperature\": 0, \"stream\": true, \"stream_options\": "
                   "{\"include_usage\": true}}");
    join_stream(got, sizeof got, a.body, "choices.0.delta.content");
    CHECK_EQ(strcmp(got, "Hello! How can I help you?"), 0);
    join_stream(got, sizeof got, a.body, "choices.0.finish_reason");
    CHECK_EQ(strcmp(got + strlen(got) - 4, "stop"), 0);
    join_stream(got, sizeof got, a.body, "usage.total_tokens");
    CHECK_EQ(strcmp(got, "21"), 0);
    answer_fini(&a);
}

/* Adapters change what is said, in their order, and what one computed serves no other. */
static void test_adapters(unsigned port) {
    static const char *const names[] = {"base", "one", "two", "one+two"};
    char *texts[4];
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < 4; i++) {
            char body[256];
            snprintf(body, sizeof body, "{" STORY ", \"temperature\": 0, \"model\": \"%s\"}",
                     names[i]);
            answer a = served_ask(port, TEXT, body);
            CHECK_EQ(a.status, 200);
            has(a.body, "model", names[i]);
            char *text = served_member(a.body, "choices.0.text");
            if (round == 0) texts[i] = text;
            CHECK_EQ(strcmp(text, texts[i]), 0);
            if (round == 1) free(text);
            answer_fini(&a);
        }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < i; j++) CHECK(strcmp(texts[i], texts[j]) != 0);
    for (unsigned i = 0; i < 4; i++) free(texts[i]);
}

static void test_logprobs(unsigned port) {
    answer a = served_ask(port, TEXT, "{" STORY ", \"temperature\": 0, \"logprobs\": 2}");
    CHECK_EQ(a.status, 200);
    char *chosen = served_member(a.body, "choices.0.logprobs.tokens.1");
    char *value = served_member(a.body, "choices.0.logprobs.token_logprobs.1");
    char path[256];
    snprintf(path, sizeof path, "choices.0.logprobs.top_logprobs.1.%s", chosen);
    has(a.body, path, value); /* greedy: it is the likeliest */
    CHECK(value[0] == '-' && strtod(value, NULL) > -8.0);
    has(a.body, "choices.0.logprobs.text_offset.0", "0");
    char *first = served_member(a.body, "choices.0.logprobs.tokens.0");
    char *offset = served_member(a.body, "choices.0.logprobs.text_offset.1");
    CHECK_EQ(strtoul(offset, NULL, 10), strlen(first)); /* ASCII */
    free(first);
    free(offset);
    free(chosen);
    free(value);
    answer_fini(&a);
}

/* All tokens of an answer's list. */
static size_t join_list(char *out, size_t size, const char *json) {
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0;; i++) {
        char path[64];
        snprintf(path, sizeof path, "choices.0.logprobs.tokens.%zu", i);
        char *token = served_member(json, path);
        const bool there = strcmp(token, "(none)") != 0;
        if (there) at += (size_t)snprintf(out + at, size - at, "%s", token);
        free(token);
        if (!there) return at;
    }
}

/* All tokens of the lists in a stream's events. */
static void join_tokens(char *out, size_t size, const char *body) {
    static char copy[65536];
    char *rest = NULL;
    size_t at = 0;
    CHECK(strlen(body) < sizeof copy);
    snprintf(copy, sizeof copy, "%s", body);
    out[0] = 0;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "data: {", 7) == 0) at += join_list(out + at, size - at, line + 6);
    }
}

/* Tokens of a stop text are in no list; whole and streamed have the same ones. */
static void test_logprobs_stopped(unsigned port) {
    char streamed[4096];
    answer a = served_ask(port, TEXT, "{" STORY ", \"temperature\": 0, \"logprobs\": 0}");
    char *text = served_member(a.body, "choices.0.text");
    CHECK(strlen(text) > 12);
    char joined[512] = "";
    join_list(joined, sizeof joined, a.body);
    CHECK_EQ(strcmp(joined, text), 0); /* all of it */
    answer_fini(&a);
    char body[512];
    snprintf(body, sizeof body,
             "{" STORY ", \"temperature\": 0, \"logprobs\": 0, \"stop\": \"%.4s\"",
             text + 8); /* from inside a word to inside another, it may be */
    free(text);
    const size_t size = strlen(body);
    snprintf(body + size, sizeof body - size, "}");
    a = served_ask(port, TEXT, body);
    CHECK_EQ(a.status, 200);
    text = served_member(a.body, "choices.0.text");
    CHECK_EQ(strlen(text), 8);
    join_list(joined, sizeof joined, a.body);
    CHECK(strlen(joined) > 0 && strncmp(text, joined, strlen(joined)) == 0);
    answer_fini(&a);
    snprintf(body + size, sizeof body - size, ", \"stream\": true}");
    a = served_ask(port, TEXT, body);
    join_stream(streamed, sizeof streamed, a.body, "choices.0.text");
    CHECK_EQ(strcmp(streamed, text), 0);
    join_tokens(streamed, sizeof streamed, a.body);
    CHECK_EQ(strcmp(streamed, joined), 0);
    free(text);
    answer_fini(&a);
}

static size_t count_words(const char *text, const char *word) {
    size_t count = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word)) count++;
    return count;
}

#define SUM                                                                                        \
    "\"messages\": [{\"role\": \"user\", \"content\": \"What is 12 * 7?\"}], \"temperature\": 0, " \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"calculator\", "               \
    "\"parameters\": {\"properties\": {\"expression\": {}}}}}]"

static void test_tools(unsigned port) {
    answer a = served_ask(port, CHAT, "{" SUM "}");
    CHECK_EQ(a.status, 200);
    has(a.body, "choices.0.finish_reason", "tool_calls");
    has(a.body, "choices.0.message.content", "null");
    has(a.body, "choices.0.message.tool_calls.0.function.name", "calculator");
    has(a.body, "choices.0.message.tool_calls.0.function.arguments", "{\"expression\": \"12*7\"}");
    answer_fini(&a);
    a = served_ask(port, CHAT, "{" SUM ", \"stream\": true}");
    char got[4096];
    join_stream(got, sizeof got, a.body, "choices.0.delta.tool_calls.0.function.arguments");
    CHECK_EQ(strcmp(got, "{\"expression\": \"12*7\"}"), 0);
    CHECK(count_words(a.body, "\"tool_calls\":") > 4); /* while it is written */
    join_stream(got, sizeof got, a.body, "choices.0.delta.tool_calls.0.function.name");
    CHECK_EQ(strcmp(got, "calculator"), 0);
    join_stream(got, sizeof got, a.body, "choices.0.delta.tool_calls.0.type");
    CHECK_EQ(strcmp(got, "function"), 0);
    join_stream(got, sizeof got, a.body, "choices.0.delta.content");
    CHECK_EQ(strcmp(got, ""), 0);
    answer_fini(&a);
    ask_for(port, CHAT, "{" SUM ", \"tool_choice\": \"required\"}", 200,
            "choices.0.message.tool_calls.0.function.name", "calculator");
}

#define LIGHTS                                                                                     \
    "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"max_tokens\": 200, "         \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"calculator\", "               \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"expression\": {\"type\": "          \
    "\"string\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": \"lights\", \"strict\": "  \
    "true, \"parameters\": {\"type\": \"object\", \"properties\": {\"room\": {\"enum\": "          \
    "[\"hall\", \"attic\"]}, \"level\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": "     \
    "7}}, "                                                                                        \
    "\"required\": [\"room\", \"level\"], \"additionalProperties\": false}}}]"

/* Made to call what it would not, a model makes a call that can be read, however it is drawn: with the tool that is named, and
 * arguments as its parameters describe them. */
static void test_forced_calls(unsigned port) {
    for (unsigned i = 0; i < 12; i++) {
        char body[2048];
        const bool named = i % 2;
        snprintf(body, sizeof body, "{" LIGHTS ", \"temperature\": %u, \"seed\": %u, %s}",
                 2 * (i / 4), i,
                 named ? "\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
                         "\"lights\"}}"
                       : "\"tool_choice\": \"required\", \"parallel_tool_calls\": false");
        answer a = served_ask(port, CHAT, body);
        json_t *root = NULL, *arguments = NULL;
        CHECK_EQ(a.status, 200);
        CHECK_OK(omm_json_parse(&root, omm_bytes_of(a.body, a.body_size), "an answer"));
        const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
        const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
        const json_t *calls = json_object_get(json_object_get(choice, "message"), "tool_calls");
        const json_t *call = json_object_get(json_array_get(calls, 0), "function");
        const char *name = json_string_value(json_object_get(call, "name"));
        const char *text = json_string_value(json_object_get(call, "arguments"));
        CHECK(json_is_null(json_object_get(json_object_get(choice, "message"), "content")));
        if (strcmp(finish, "length") == 0) { /* a text of the calculator's that does not end */
            CHECK(!named && strcmp(name, "calculator") == 0);
            CHECK_EQ(strncmp(text, "{\"expression\":", 14), 0);
        } else {
            CHECK_EQ(json_array_size(calls), 1);
            CHECK_OK(omm_json_parse(&arguments, omm_bytes_str(text), "arguments"));
            if (strcmp(name, "lights") == 0) {
                const json_t *level = json_object_get(arguments, "level");
                const char *room = json_string_value(json_object_get(arguments, "room"));
                CHECK(strcmp(room, "hall") == 0 || strcmp(room, "attic") == 0);
                CHECK(json_integer_value(level) >= 0 && json_integer_value(level) <= 7);
            } else {
                CHECK(!named && strcmp(name, "calculator") == 0);
                CHECK(json_is_string(json_object_get(arguments, "expression")) ||
                      json_object_size(arguments) == 0);
            }
        }
        json_decref(arguments);
        json_decref(root);
        answer_fini(&a);
    }
}

#define CAT                                                                                        \
    "\"messages\": [{\"role\": \"user\", \"content\": \"A cat?\"}], \"seed\": 3, "                 \
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"cat\", "       \
    "\"schema\": {\"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 12}, \"age\": " \
    "{\"type\": \"integer\"}, \"kind\": {\"enum\": [\"cat\", \"dog\"]}}, \"required\": "           \
    "[\"name\", "                                                                                  \
    "\"age\", \"kind\"], \"additionalProperties\": false}}}"

static void check_cat(const char *content) {
    json_t *cat = NULL;
    CHECK_OK(omm_json_parse(&cat, omm_bytes_str(content), "an answer"));
    CHECK_EQ(json_object_size(cat), 3);
    CHECK(json_is_string(json_object_get(cat, "name")));
    CHECK(json_is_integer(json_object_get(cat, "age")));
    const char *kind = json_string_value(json_object_get(cat, "kind"));
    CHECK(kind && (strcmp(kind, "cat") == 0 || strcmp(kind, "dog") == 0));
    json_decref(cat);
}

/* The text has the form that is asked for, drawn or the likeliest, whole or streamed; and it is cut where it is too long. */
static void test_json(unsigned port) {
    char got[4096];
    static const char *const ways[] = {"0", "1", "5"};
    for (unsigned i = 0; i < 3; i++) {
        char body[1024];
        snprintf(body, sizeof body, "{" CAT ", \"temperature\": %s, \"logprobs\": true}", ways[i]);
        answer a = served_ask(port, CHAT, body);
        CHECK_EQ(a.status, 200);
        has(a.body, "choices.0.finish_reason", "stop");
        char *content = served_member(a.body, "choices.0.message.content");
        check_cat(content);
        char *first = served_member(a.body, "choices.0.logprobs.content.0.logprob");
        CHECK(first[0] == '-'); /* as the model has it, whatever is allowed */
        free(first);
        answer_fini(&a);
        snprintf(body, sizeof body, "{" CAT ", \"temperature\": %s, \"stream\": true}", ways[i]);
        a = served_ask(port, CHAT, body);
        join_stream(got, sizeof got, a.body, "choices.0.delta.content");
        CHECK_EQ(strcmp(got, content), 0);
        free(content);
        answer_fini(&a);
    }
    answer a = served_ask(port, CHAT, "{" CAT ", \"max_tokens\": 4}");
    has(a.body, "choices.0.finish_reason", "length");
    answer_fini(&a);
    a = served_ask(port, CHAT, "{" CAT ", \"n\": 3, \"temperature\": 2}");
    for (unsigned i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof path, "choices.%u.message.content", i);
        char *content = served_member(a.body, path);
        check_cat(content);
        free(content);
    }
    answer_fini(&a);
    a = served_ask(port, CHAT,
                   "{" HELLO ", \"temperature\": 0, \"response_format\": {\"type\": "
                   "\"json_object\"}, \"max_tokens\": 100}");
    char *content = served_member(a.body, "choices.0.message.content");
    CHECK_EQ(content[0], '{');
    free(content);
    answer_fini(&a);
    ask_for(port, CHAT,
            "{" HELLO ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": "
            "{\"name\": \"x\", \"schema\": {\"items\": {\"format\": \"day\"}}}}}",
            400, "error.param", "response_format");
}

/* What has been computed is not computed again, but for other adapters: one, none, several, and those in another order. */
static void test_kept(unsigned port) {
    static const char *const models[] = {"base",    "base", "one",     "base",    "one",
                                         "one+two", "one",  "two+one", "one+two", "two+one"};
    static const char *const cached[] = {"0", "64", "0", "64", "64", "0", "64", "0", "64", "64"};
    static const size_t count = sizeof models / sizeof *models;
    char body[2048], prompt[1024] = "";
    for (size_t i = 0, at = 0; i < 90; i++)
        at += (size_t)snprintf(prompt + at, sizeof prompt - at, "%s%zu", i ? ", " : "", 300 + i);
    for (size_t i = 0; i < count; i++) {
        snprintf(body, sizeof body, "{\"prompt\": [%s], \"max_tokens\": 2, \"model\": \"%s\"}",
                 prompt, models[i]);
        ask_for(port, TEXT, body, 200, "usage.prompt_tokens_details.cached_tokens", cached[i]);
    }
}

#define END "Connection: close\r\n\r\n"

/* A body is as large as a context of so many positions can have use for. */
static void test_body(unsigned port) {
    static const char story[] = "{" STORY "}";
    const size_t size = ((size_t)256 << 10) + 512 * (size_t)64 + 1;
    char *body = (char *)omm_alloc(size + 1, 1);
    CHECK(body != NULL);
    memset(body, ' ', size);
    memcpy(body, story, sizeof story - 1);
    ask_for(port, TEXT, body, 413, "error.message", "the body is over 294912 bytes");
    body[size - 1] = 0;
    ask_for(port, TEXT, body, 200, "choices.0.index", "0");
    for (size_t more = 0; more < 2; more++) { /* before a byte of it, where its client waits */
        char head[256];
        answer a;
        const int fd = served_connect(port);
        snprintf(head, sizeof head,
                 "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Expect: 100-continue\r\nContent-Length: %zu\r\n" END,
                 size - 1 + more);
        served_send(fd, head, strlen(head));
        if (more == 0) served_send(fd, body, size - 1);
        served_read(&a, fd);
        CHECK_EQ(a.status, more ? 413 : 100);
        CHECK_EQ(strncmp(a.body, "HTTP/1.1 200 ", 13) == 0, more == 0);
        answer_fini(&a);
    }
    omm_free(body);
}

/* Sixteen of the largest may be on their way at once; when those have gone, the next one is taken. */
static void test_bodies(unsigned port) {
    static char half[290000], body[200000]; /* NUL at its end */
    static const char story[] = "{" STORY "}";
    static const char head[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json\r\nContent-Length: 294912\r\n\r\n";
    int fds[17];
    memset(half, ' ', sizeof half);
    memset(body, ' ', sizeof body - 1);
    memcpy(body, story, sizeof story - 1);
    for (unsigned i = 0; i < 17; i++) {
        fds[i] = served_connect(port);
        served_send(fds[i], head, sizeof head - 1);
        served_send(fds[i], half, sizeof half);
    }
    answer a = served_ask(port, TEXT, body);
    for (unsigned i = 0; i < 1000 && a.status == 200; i++) { /* they are still being read */
        answer_fini(&a);
        a = served_ask(port, TEXT, body);
    }
    CHECK_EQ(a.status, 503);
    has(a.body, "error.message", "too much is being sent at once; try again later");
    for (unsigned i = 0; i < 17; i++) close(fds[i]);
    for (unsigned i = 0; i < 1000 && a.status != 200; i++) {
        usleep(10000);
        answer_fini(&a);
        a = served_ask(port, TEXT, body);
    }
    CHECK_EQ(a.status, 200);
    answer_fini(&a);
}

/* Text number i of a prompt is the same wherever the prompt stands; the texts of one prompt are not. */
static void test_n(unsigned port) {
    answer a =
        served_ask(port, TEXT,
                   "{\"prompt\": [\"Once upon a time\", \"The\", \"Once upon a time\"], \"n\": "
                   "2, \"seed\": 7, \"temperature\": 1, \"max_tokens\": 24}");
    char *texts[6];
    CHECK_EQ(a.status, 200);
    for (unsigned i = 0; i < 6; i++) {
        char path[32];
        snprintf(path, sizeof path, "choices.%u.text", i);
        texts[i] = served_member(a.body, path);
    }
    CHECK(strcmp(texts[0], texts[4]) == 0 && strcmp(texts[1], texts[5]) == 0);
    CHECK(strcmp(texts[0], texts[1]) != 0 && strcmp(texts[0], texts[2]) != 0);
    ask_for(port, TEXT, "{" STORY ", \"seed\": 7, \"temperature\": 1}", 200, "choices.0.text",
            texts[0]);
    for (unsigned i = 0; i < 6; i++) free(texts[i]);
    answer_fini(&a);
}

/* Of a prompt that is echoed every token has its probability but the first; the same as of one that was drawn there. */
static void test_echo(unsigned port) {
    char joined[512];
    answer a = served_ask(port, TEXT, "{" STORY ", \"temperature\": 0, \"logprobs\": 1}");
    char *text = served_member(a.body, "choices.0.text"), whole[512], body[1024];
    char *drawn = served_member(a.body, "choices.0.logprobs.token_logprobs.5");
    char *token = served_member(a.body, "choices.0.logprobs.tokens.5");
    answer_fini(&a);
    snprintf(whole, sizeof whole, "Once upon a time%s", text);
    json_t *quoted = json_string(whole);
    char *prompt = json_dumps(quoted, JSON_ENCODE_ANY);
    json_decref(quoted);
    for (unsigned stream = 0; stream < 2; stream++) {
        snprintf(body, sizeof body,
                 "{\"prompt\": %s, \"echo\": true, \"logprobs\": 1, \"max_tokens\": 1, "
                 "\"temperature\": 0%s}",
                 prompt, stream ? ", \"stream\": true" : "");
        a = served_ask(port, TEXT, body);
        CHECK_EQ(a.status, 200);
        if (stream)
            join_tokens(joined, sizeof joined, a.body);
        else
            join_list(joined, sizeof joined, a.body);
        CHECK_EQ(strncmp(joined, whole, strlen(whole)), 0);
        if (!stream) {
            has(a.body, "choices.0.logprobs.token_logprobs.0", "null");
            has(a.body, "choices.0.logprobs.top_logprobs.0", "null");
            has(a.body, "choices.0.logprobs.text_offset.0", "0");
            has(a.body, "choices.0.logprobs.text_offset.2", "4"); /* behind On, ce */
            has(a.body, "choices.0.logprobs.tokens.11", token);   /* six of the prompt before it */
            has(a.body, "choices.0.logprobs.token_logprobs.11", drawn);
            has(a.body, "usage.prompt_tokens_details.cached_tokens", "0");
            char *offsets = served_member(a.body, "choices.0.logprobs.text_offset");
            /* what is drawn stands behind it (the text is ASCII) */
            CHECK_EQ(strtoul(strrchr(offsets, ',') + 1, NULL, 10), strlen(whole));
            free(offsets);
        }
        answer_fini(&a);
    }
    free(prompt);
    free(text);
    free(drawn);
    free(token);
}

/* max_tokens 0: the prompt as it is with a token behind it, and nothing else; of as many tokens as there are positions, too. */
static void test_echo_alone(unsigned port) {
    static const char *const ends[] = {"", ", \"stream\": true"};
    char text[512], body[512], with[4096], alone[4096];
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned most = 0; most < 2; most++) {
            snprintf(body, sizeof body,
                     "{\"prompt\": \"Once upon a time\", \"echo\": true, \"logprobs\": 1, "
                     "\"temperature\": "
                     "0, \"max_tokens\": %u%s}",
                     most, ends[i]);
            answer a = served_ask(port, TEXT, body);
            CHECK_EQ(a.status, 200);
            if (i == 0 && most == 0) {
                has(a.body, "choices.0.text", "Once upon a time");
                has(a.body, "choices.0.finish_reason", "length");
                has(a.body, "usage.completion_tokens", "0");
                char *of_prompt = served_member(a.body, "choices.0.logprobs.token_logprobs");
                snprintf(alone, sizeof alone, "%s", of_prompt);
                free(of_prompt);
            } else if (i == 0) {
                char *of_all = served_member(a.body, "choices.0.logprobs.token_logprobs");
                snprintf(with, sizeof with, "%s", of_all);
                free(of_all);
            } else if (most == 0) {
                join_tokens(text, sizeof text, a.body);
                CHECK(strcmp(text, "Once upon a time") == 0);
                CHECK(strstr(a.body, "\"finish_reason\":\"length\"") != NULL);
                CHECK(strstr(a.body, "data: [DONE]") != NULL);
            }
            answer_fini(&a);
        }
    }
    CHECK(strncmp(with, alone, strlen(alone) - 1) == 0 && with[strlen(alone) - 1] == ',');
}

/* ---- many at once ---------------------------------------------------------------------------- */

static char s_texts[3][4096]; /* that each of three prompts has alone */

typedef struct client {
    unsigned port, number;
} client;

static void *be_client(void *ud) {
    const client *c = (const client *)ud;
    char body[512];
    for (unsigned i = 0; i < ROUNDS; i++) {
        const unsigned which = (c->number + i) % 3;
        snprintf(body, sizeof body,
                 "{\"prompt\": \"Number %u went\", \"seed\": %u, \"temperature\": 1, "
                 "\"max_tokens\": 20}",
                 which, which);
        ask_for(c->port, TEXT, body, 200, "choices.0.text", s_texts[which]);
    }
    return NULL;
}

static void test_together(const served *s, unsigned port) {
    pthread_t threads[CLIENTS];
    client clients[CLIENTS];
    for (unsigned i = 0; i < 3; i++) {
        char prompt[64];
        snprintf(prompt, sizeof prompt, "Number %u went", i);
        alone(s_texts[i], sizeof s_texts[i], s, prompt, i, 20);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (client){port, i};
        CHECK_EQ(pthread_create(&threads[i], NULL, be_client, &clients[i]), 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* ---- who may ask ----------------------------------------------------------------------------- */

static unsigned status_of(unsigned port, const char *request) {
    answer a;
    const int fd = served_connect(port);
    served_send(fd, request, strlen(request));
    served_read(&a, fd);
    const unsigned status = a.status;
    answer_fini(&a);
    return status;
}

#define JSON "Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n"

#define NAME31 "0123456789012345678901234567890"

/* A request that two readers may take for different ones is read by neither. */
static void test_ambiguous(unsigned port) {
    static const char *const cases[] = {
        JSON "Host: 127.0.0.1\r\n" END "{}",
        JSON "Content-Length: 3\r\n" END "{} ",
        JSON "Transfer-Encoding: chunked\r\n" END "2\r\n{}\r\n0\r\n\r\n",
        "Content-Type: application/json\r\nTransfer-Encoding: gzip\r\n" END "{}",
        "Content-Type: application/json\r\nTransfer-Encoding: gzip, chunked\r\n" END
        "2\r\n{}\r\n0\r\n\r\n",
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "chunked\r\n" END "2\r\n{}\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[512];
        answer a;
        const int fd = served_connect(port);
        snprintf(request, sizeof request, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\n%s",
                 cases[i]);
        served_send(fd, request, strlen(request));
        served_read(&a, fd);
        CHECK_EQ(a.status, 400);
        CHECK(strstr(a.body, "ambiguous_request") != NULL);
        answer_fini(&a);
    }
    CHECK_EQ(status_of(port, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "application/json\r\nTransfer-Encoding: Chunked\r\n" END
                             "e\r\n{\"model\": \"x\"}\r\n0\r\n\r\n"),
             404); /* the model is read */
}

static void test_strangers(unsigned port) {
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: localhost:80\r\n" END), 200);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" END), 200);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: [::1]:1\r\n" END), 200);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\n" END), 400); /* says not whose */
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: evil.example\r\n" END), 403);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: localhost.evil\r\n" END), 403);
    CHECK_EQ(status_of(port, "GET /metrics HTTP/1.1\r\nHost: dead.cafe\r\n" END), 403);
    CHECK_EQ(status_of(port, "GET /none HTTP/1.1\r\nHost: localhost\r\n" END), 404);
    CHECK_EQ(status_of(port, "GET " CHAT " HTTP/1.1\r\nHost: localhost\r\n" END), 405);
    CHECK_EQ(status_of(port, "HEAD /health HTTP/1.1\r\nHost: localhost\r\n" END), 200);
    CHECK_EQ(status_of(port, "POST /health HTTP/1.1\r\nHost: localhost\r\n" JSON END "{}"), 404);
    CHECK_EQ(status_of(port, "PUT " CHAT " HTTP/1.1\r\nHost: localhost\r\n" END), 405);
    CHECK_EQ(status_of(port, "GET /v1/models/one HTTP/1.1\r\nHost: localhost\r\n" END), 200);
    CHECK_EQ(status_of(port, "GET /v1/models/\xff HTTP/1.1\r\nHost: localhost\r\n" END), 404);
    CHECK_EQ(status_of(port, "GET /v1/models/x HTTP/1.1\r\nHost: localhost\r\n" END), 404);
    CHECK_EQ(status_of(port, "POST /none HTTP/1.1\r\nHost: localhost\r\n" JSON END "{}"), 404);
    CHECK_EQ(status_of(port, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\n" JSON END "{}"), 400);
    CHECK_EQ(status_of(port, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "text/plain\r\nContent-Length: 2\r\n" END "{}"),
             415);
    CHECK_EQ(status_of(port, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "application/jsonp\r\nContent-Length: 2\r\n" END "{}"),
             415);
    CHECK_EQ(status_of(port, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "application/json\r\nExpect: 100-continue\r\nContent-Length: "
                             "999999999\r\n" END),
             413); /* before a byte of it */
    test_ambiguous(port);
    ask_for(port, CHAT, "{\"model\": \"x\"}", 404, "error.code", "model_not_found");
    ask_for(port, CHAT, "{\"n\": 0}", 400, "error.param", "n");
    /* A name that is cut inside a character. */
    ask_for(port, CHAT, "{\"messages\": [{\"role\": \"" NAME31 "\xc3\xa9\"}]}", 400,
            "error.message",
            "message 0: role '" NAME31 "?'; accepted: system, user, assistant, tool");
}

static void test_key(served *s) {
    omm_serve *server = NULL;
    s->options.api_key = "sesame";
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: any.example\r\n" END), 200);
    CHECK_EQ(status_of(port, "GET /v1/models HTTP/1.1\r\nHost: a\r\n" END), 401);
    CHECK_EQ(status_of(port, "POST /health HTTP/1.1\r\nHost: a\r\n" END),
             401); /* only to be read */
#define KEY(key) "GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: " key "\r\n" END
    CHECK_EQ(status_of(port, KEY("Bearer sesame")), 200);
    CHECK_EQ(status_of(port, KEY("Bearer sesame \t")), 200);
    CHECK_EQ(status_of(port, KEY("Bearer sesam")), 401);
    CHECK_EQ(status_of(port, KEY("Bearer sesame1")), 401);
    CHECK_EQ(status_of(port, KEY("Bearer ")), 401);
    CHECK_EQ(status_of(port, KEY("Basic sesame")), 401);
    CHECK_EQ(status_of(port, KEY("Bear3r sesame")), 401);
    ask_for(port, CHAT, "{" HELLO "}", 401, "error.code", "invalid_api_key");
    omm_serve_close(server);
    s->options.api_key = NULL;
}

/* ---- who goes away, and who comes too many --------------------------------------------------- */

static void wait_for(unsigned port, const char *name, double want) {
    double is = 0;
    for (unsigned i = 0; (is = served_metric(port, name)) != want; i++) {
        if (i == 6000) fprintf(stderr, "%s is %g, not %g\n", name, is, want);
        CHECK(i < 6000);
        usleep(10000);
    }
}

/* One that would go on to the end of the context, unless somebody stops it. */
#define LONG "{\"prompt\": \"x\", \"max_tokens\": 500, \"temperature\": 9, \"n\": 4, \"seed\": 5%s}"
#define LONG_TOKENS "2000" /* with this seed none of the four ends by itself */

static int ask_long(unsigned port, const char *more) {
    char body[256];
    const int fd = served_connect(port);
    snprintf(body, sizeof body, LONG, more);
    served_post(fd, TEXT, body);
    return fd;
}

/* Texts that a grammar lets come to no end. */
static void test_gone_constrained(unsigned port) {
    const int fd = served_connect(port);
    served_post(fd, CHAT,
                "{" HELLO ", \"temperature\": 9, \"n\": 4, \"response_format\": {\"type\": "
                "\"json_schema\", \"json_schema\": {\"name\": \"x\", \"schema\": {\"items\": "
                "{\"type\": \"boolean\"}, \"minItems\": 1000000}}}}");
    wait_for(port, "seats_taken", 4);
    close(fd);
    wait_for(port, "seats_taken", 0);
}

static void test_gone(unsigned port) {
    static const char *const ways[] = {"", ", \"stream\": true"};
    for (unsigned i = 0; i < 4; i++) {
        const double left = served_metric(port, "left_total"),
                     drawn = served_metric(port, "tokens_total");
        const int fd = ask_long(port, ways[i % 2]);
        if (i == 1) served_send(fd, "\r\nGET /", 7); /* hides nothing */
        if (i < 2) wait_for(port, "seats_taken", 4);
        close(fd);
        if (i < 2)
            wait_for(port, "left_total", left + 1); /* else it may be gone before it was read */
        wait_for(port, "seats_taken", 0);
        wait_for(port, "waiting", 0);
        /* the seats were left, not written to their end */
        CHECK(served_metric(port, "tokens_total") - drawn < strtod(LONG_TOKENS, NULL));
    }
}

/* Who closes in the middle of a request holds no place: of these there are more than places. */
static void test_many_gone(unsigned port) {
    static const char half[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\n";
    for (unsigned i = 0; i < 300; i++) {
        const int fd = served_connect(port);
        served_send(fd, half, sizeof half - 1);
        close(fd);
        if (i % 50 == 49) usleep(300000); /* three looks */
    }
    answer a = {0};
    for (unsigned i = 0; a.status != 200;
         i++) { /* on a starved machine the server comes to look later */
        CHECK(i < 600);
        if (i > 0) usleep(100000);
        answer_fini(&a);
        a = served_ask(port, CHAT, "{" HELLO ", \"temperature\": 0}");
    }
    has(a.body, "choices.0.finish_reason", "stop");
    answer_fini(&a);
}

static void test_full(served *s) {
    omm_serve *server = NULL;
    s->options.waiting_max = 3;
    s->options.batcher.seats = 1;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    ask_for(port, CHAT, "{" HELLO ", \"n\": 5}", 400, "error.message",
            "n: 5 texts; this server takes at most 4");
    const int first = ask_long(port, ""); /* four texts, of which three wait */
    wait_for(port, "seats_taken", 1);
    wait_for(port, "waiting", 3);
    ask_for(port, CHAT, "{" HELLO "}", 429, "error.code", "queue_full");
    close(first);
    wait_for(port, "waiting", 0);
    ask_for(port, CHAT, "{" HELLO ", \"temperature\": 0}", 200, "choices.0.message.content",
            "Hello! How can I help you?");
    omm_serve_close(server);
    s->options.waiting_max = 64;
    s->options.batcher.seats = 4;
}

/* What is being written when the server is stopped is written to its end, as whoever waits for that sees. */
static void test_drain(served *s) {
    omm_serve *server = NULL;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    const int fd = ask_long(port, ", \"stream\": true");
    wait_for(port, "seats_taken", 4);
    CHECK(omm_serve_stop(server) > 0);
    CHECK_EQ(status_of(port, "GET /health HTTP/1.1\r\nHost: localhost\r\n" END), 503);
    while (omm_serve_stop(server) > 0) usleep(10000);
    omm_serve_close(server);
    answer a;
    served_read(&a, fd);
    CHECK(strstr(a.body, "[DONE]"));
    answer_fini(&a);
}

/* Stopped: what is being written goes on, nothing else begins; closed: that gets an error, too. */
static void test_stop(served *s) {
    omm_serve *server = NULL;
    s->options.batcher.seats = 1;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    const int second = ask_long(port, ""), third = ask_long(port, ", \"stream\": true");
    wait_for(port, "waiting", 7);
    CHECK_EQ(omm_serve_stop(server), 8);
    ask_for(port, CHAT, "{" HELLO "}", 503, "error.type", "server_error");
    omm_serve_close(server);
    answer a;
    served_read(&a, second);
    CHECK_EQ(a.status, 503);
    has(a.body, "error.message", "the server was stopped");
    answer_fini(&a);
    served_read(&a, third);
    CHECK_EQ(a.status, 200);
    CHECK(strstr(a.body, "the server was stopped") && !strstr(a.body, "[DONE]"));
    answer_fini(&a);
    s->options.batcher.seats = 4;
}

static _Atomic uint64_t s_time_ms = 1000;

static uint64_t read_time(void *ud) {
    (void)ud;
    return atomic_load(&s_time_ms);
}

/* Who does not say what he wants is cut off, in the middle of it and before; who waits for an answer is not. */
static void test_slow(served *s) {
    omm_serve *server = NULL;
    struct pollfd p[3];
    char byte = 0;
    s->options.clock.now_ms = read_time;
    s->options.request_ms = 1000000;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    static const char half[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\n" JSON "\r\n{";
    p[0] = (struct pollfd){.fd = served_connect(port), .events = POLLIN};
    p[1] = (struct pollfd){.fd = served_connect(port), .events = POLLIN};
    served_send(p[1].fd, half, sizeof half - 1);
    p[2] = (struct pollfd){.fd = ask_long(port, ""), .events = POLLIN};
    wait_for(port, "seats_taken", 4);
    CHECK_EQ(poll(p, 2, 300), 0);
    atomic_fetch_add(&s_time_ms, s->options.request_ms);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(poll(&p[i], 1, 60000), 1);
        CHECK_EQ(recv(p[i].fd, &byte, 1, 0), 0);
        close(p[i].fd);
    }
    answer a;
    served_read(&a, p[2].fd);
    CHECK_EQ(a.status, 200);
    has(a.body, "usage.completion_tokens", LONG_TOKENS);
    answer_fini(&a);
    omm_serve_close(server);
    s->options.clock = omm_clock_system();
    s->options.request_ms = 30000;
}

/* An answer is sent when it is there, not at the server's next look. */
static void test_prompt(served *s) {
    omm_serve *server = NULL;
    const omm_clock clock = omm_clock_system();
    const uint64_t begun = clock.now_ms(clock.ud);
    s->options.look_ms = 3600000;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    ask_for(port, CHAT, "{" HELLO ", \"temperature\": 0}", 200, "choices.0.finish_reason", "stop");
    answer a = served_ask(port, CHAT, "{" HELLO ", \"temperature\": 0, \"stream\": true}");
    CHECK_EQ(a.status, 200);
    answer_fini(&a);
    omm_serve_close(server);
    CHECK(clock.now_ms(clock.ud) - begun < s->options.look_ms);
    s->options.look_ms = 100;
}

static void test_options(const served *s) {
    omm_serve *server = NULL;
    omm_serve_options o = s->options;
    o.name = "a+b";
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG);
    o.name = "one";
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG); /* an adapter has that name */
    o = s->options;
    o.api_key = "";
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG);
    o = s->options;
    o.listen = "nowhere";
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG);
    char taken[32];
    int fd = -1;
    unsigned port = 0;
    CHECK_OK(omm_mhd_listen(&fd, &port, "127.0.0.1:0"));
    snprintf(taken, sizeof taken, "127.0.0.1:%u", port);
    o.listen = taken;
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_STATE);
    close(fd);
    o = s->options;
    o.sampler.top_p = 2.0f;
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG);
    o = s->options;
    o.batcher.seats = 0;
    CHECK_ERR(omm_serve_open(&server, &o), OMM_ERR_CONFIG);
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
    const unsigned port = omm_serve_port(server);
    test_answers(&s, port);
    test_adapters(port);
    test_logprobs(port);
    test_logprobs_stopped(port);
    test_echo(port);
    test_echo_alone(port);
    test_tools(port);
    test_forced_calls(port);
    test_json(port);
    test_n(port);
    test_kept(port);
    test_body(port);
    test_bodies(port);
    test_together(&s, port);
    test_strangers(port);
    test_gone(port);
    test_gone_constrained(port);
    test_many_gone(port);
    omm_serve_close(server);
    test_key(&s);
    test_full(&s);
    test_drain(&s);
    test_stop(&s);
    test_slow(&s);
    test_prompt(&s);
    test_options(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
