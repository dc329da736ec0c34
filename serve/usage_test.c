/* usage_test.c - requests of several texts, and what is counted and named of them: places, tokens, log probabilities, calls,
 * seeds, who went away. */
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm_test.h"
#include "test_served.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"

static void has(const char *json, const char *path, const char *want) {
    char *got = served_member(json, path);
    if (strcmp(got, want) != 0) {
        fprintf(stderr, "%s is %s, not %s, in %s\n", path, got, want, json);
        exit(1);
    }
    free(got);
}

static void ask_for(unsigned port, const char *body, unsigned status, const char *member,
                    const char *want) {
    answer a = served_ask(port, TEXT, body);
    has(a.body, member, want);
    CHECK_EQ(a.status, status);
    answer_fini(&a);
}

static void wait_for(unsigned port, const char *name, double want) {
    for (unsigned i = 0; served_metric(port, name) != want; i++) {
        CHECK(i < 6000);
        usleep(10000);
    }
}

/* Each prompt has its own tokens and its own room: the longer one ends where the context does. */
static void test_rooms(unsigned port) {
    enum { LONG = 500, MORE = 512 - LONG + 1 };
    char body[4096], tokens[16];
    for (unsigned first = 0; first < 2; first++) {
        size_t at = (size_t)snprintf(body, sizeof body, "{\"prompt\": [%s", first ? "" : "[5], ");
        for (unsigned i = 0; i < LONG; i++)
            at += (size_t)snprintf(body + at, sizeof body - at, "%s%u", i ? ", " : "[", 300 + i);
        snprintf(body + at, sizeof body - at,
                 "]%s], \"n\": 2, \"max_tokens\": 20, \"temperature\": 9, \"seed\": 5}",
                 first ? ", [5]" : "");
        answer a = served_ask(port, TEXT, body);
        CHECK_EQ(a.status, 200);
        for (unsigned i = 0; i < 4; i++) {
            char path[64];
            snprintf(path, sizeof path, "choices.%u.finish_reason", i);
            has(a.body, path, "length");
        }
        snprintf(tokens, sizeof tokens, "%d", 2 * (20 + MORE));
        has(a.body, "usage.completion_tokens", tokens);
        has(a.body, "usage.prompt_tokens", "501"); /* once each */
        answer_fini(&a);
    }
}

/* The token that ends an answer is counted, and is no part of it: neither its text nor its log probabilities. */
static void test_end(unsigned port) {
    answer a = served_ask(port, CHAT,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], "
                          "\"temperature\": 0, \"logprobs\": true}");
    CHECK_EQ(a.status, 200);
    has(a.body, "choices.0.finish_reason", "stop");
    has(a.body, "usage.completion_tokens", "10");
    json_t *root = NULL;
    CHECK_OK(omm_json_parse(&root, omm_bytes_of(a.body, a.body_size), "an answer"));
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *list = json_object_get(json_object_get(choice, "logprobs"), "content");
    char text[256] = "";
    CHECK_EQ(json_array_size(list), 9);
    for (size_t i = 0; i < json_array_size(list); i++)
        strncat(text, json_string_value(json_object_get(json_array_get(list, i), "token")),
                sizeof text - strlen(text) - 1);
    has(a.body, "choices.0.message.content", text);
    json_decref(root);
    answer_fini(&a);
}

/* Of texts of several prompts each stands behind its own, whole or streamed. */
static void test_echoes(unsigned port) {
    static const char *const ends[] = {"", ", \"stream\": true"};
    for (unsigned i = 0; i < 2; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\": [\"One\", \"Two\"], \"n\": 2, \"echo\": true, \"max_tokens\": 0%s}",
                 ends[i]);
        answer a = served_ask(port, TEXT, body);
        CHECK_EQ(a.status, 200);
        for (unsigned k = 0; k < 4 && i == 0; k++) {
            char path[32];
            snprintf(path, sizeof path, "choices.%u.text", k);
            has(a.body, path, k < 2 ? "One" : "Two");
        }
        const char *at = a.body;
        for (unsigned k = 0; k < 4 && i == 1; k++) { /* one after the other, as they sit down */
            char *text = NULL;
            char line[2048];
            at = strstr(at, "data: {");
            CHECK(at != NULL);
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 6, "\n"), at + 6);
            text = served_member(line, "choices.0.index");
            has(line, "choices.0.text", strtoul(text, NULL, 10) < 2 ? "One" : "Two");
            free(text);
            at += 6;
        }
        answer_fini(&a);
    }
}

/* What was computed before counts once for each prompt, however many texts begin with it. */
static void test_reused(unsigned port) {
    static const char *const reused[] = {"0", "64"};
    char body[1024];
    size_t at = (size_t)snprintf(body, sizeof body, "{\"max_tokens\": 1, \"n\": 2, \"prompt\": [");
    for (unsigned i = 0; i < 90; i++)
        at += (size_t)snprintf(body + at, sizeof body - at, "%s%u", i ? ", " : "", 400 + i);
    snprintf(body + at, sizeof body - at, "]}");
    for (unsigned i = 0; i < 2; i++) {
        ask_for(port, body, 200, "usage.prompt_tokens_details.cached_tokens", reused[i]);
        ask_for(port, body, 200, "usage.prompt_tokens", "90");
    }
}

/* What is said in a stream where its use is asked for: nothing in each event, and all of it in the last. */
static void test_streamed_usage(unsigned port) {
    for (unsigned asked = 0; asked < 2; asked++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\": \"x\", \"max_tokens\": 3, \"temperature\": 0, \"stream\": true%s}",
                 asked ? ", \"stream_options\": {\"include_usage\": true}" : "");
        answer a = served_ask(port, TEXT, body);
        unsigned events = 0, empty = 0, whole = 0;
        for (const char *at = a.body; (at = strstr(at, "data: {")) != NULL; at += 6) events++;
        for (const char *at = a.body; (at = strstr(at, "\"usage\":null")) != NULL; at += 6) empty++;
        for (const char *at = a.body; (at = strstr(at, "\"usage\":{")) != NULL; at += 6) whole++;
        CHECK(events >= 3);
        CHECK_EQ(empty, asked ? events - 1 : 0);
        CHECK_EQ(whole, asked);
        CHECK_EQ(strstr(a.body, "\"choices\":[]") != NULL, asked); /* it stands alone */
        answer_fini(&a);
    }
}

/* No two calls have one name, and no two requests that say none have one seed. */
static void test_names(unsigned port) {
    static const char call[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 12 * 7?\"}], "
        "\"temperature\": 0, \"n\": 2, \"tools\": [{\"type\": \"function\", \"function\": "
        "{\"name\": "
        "\"calculator\", \"parameters\": {\"properties\": {\"expression\": {}}}}}]}";
    char *ids[4], *seeds[2];
    for (unsigned i = 0; i < 2; i++) {
        answer a = served_ask(port, CHAT, call);
        CHECK_EQ(a.status, 200);
        ids[(size_t)2 * i] = served_member(a.body, "choices.0.message.tool_calls.0.id");
        ids[(size_t)2 * i + 1] = served_member(a.body, "choices.1.message.tool_calls.0.id");
        seeds[i] = served_member(a.body, "seed");
        answer_fini(&a);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(strncmp(ids[i], "call_", 5), 0);
        for (unsigned k = 0; k < i; k++) CHECK(strcmp(ids[i], ids[k]) != 0);
    }
    CHECK(strcmp(seeds[0], seeds[1]) != 0);
    for (unsigned i = 0; i < 4; i++) free(ids[i]);
    for (unsigned i = 0; i < 2; i++) free(seeds[i]);
}

/* 31 places, one of them to be written at: each text of a request takes one, and who goes away gives back all of his.
 * None of this is a matter of how many of the thirty have ended meanwhile, unless ten have. */
static void test_places(served *s) {
    omm_serve *server = NULL;
    s->options.waiting_max = 30;
    s->options.batcher.seats = 1;
    CHECK_OK(omm_serve_open(&server, &s->options));
    const unsigned port = omm_serve_port(server);
    ask_for(port, "{\"prompt\": [\"a\", \"b\", \"c\", \"d\"], \"n\": 8}", 400, "error.message",
            "n: 32 texts; this server takes at most 31");
    const int fd = served_connect(port);
    served_post(
        fd, TEXT,
        "{\"prompt\": \"x\", \"max_tokens\": 500, \"temperature\": 9, \"n\": 30, \"seed\": 5}");
    wait_for(port, "seats_taken", 1);
    answer a = served_ask(port, TEXT, "{\"prompt\": \"a\", \"n\": 12}");
    CHECK(a.status == 429 && strcasestr(a.head, "\nretry-after: 1\r"));
    has(a.body, "error.code", "queue_full");
    answer_fini(&a);
    ask_for(port, "{\"prompt\": [\"a\", \"b\"], \"n\": 6}", 429, "error.type", "rate_limit_error");
    CHECK_EQ(served_metric(port, "left_total"), 0); /* who was refused is nobody who has left */
    close(fd);
    wait_for(port, "waiting", 0);
    wait_for(port, "seats_taken", 0);
    CHECK_EQ(served_metric(port, "left_total"), 1);
    CHECK(served_metric(port, "texts_total") < 30); /* the others were never begun */
    ask_for(port, "{\"prompt\": [\"a\", \"b\", \"c\", \"d\"], \"max_tokens\": 1}", 200,
            "usage.completion_tokens", "4");
    CHECK_EQ(omm_serve_stop(server), 0);
    a = served_ask(port, TEXT, "{\"prompt\": \"a\"}");
    CHECK(a.status == 503 && strcasestr(a.head, "\nretry-after: 1\r"));
    answer_fini(&a);
    omm_serve_close(server);
    s->options.waiting_max = 64;
    s->options.batcher.seats = 4;
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
    test_rooms(port);
    test_end(port);
    test_echoes(port);
    test_reused(port);
    test_streamed_usage(port);
    test_names(port);
    omm_serve_close(server);
    test_places(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
