/* usage_test.c - what is counted: places of a request with several texts, tokens of several prompts, log probabilities, who
 * went away. */
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
#define END "Connection: close\r\n\r\n"

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

static double metric(unsigned port, const char *name) {
    answer a;
    char line[128];
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n" END;
    const int fd = served_connect(port);
    served_send(fd, request, sizeof request - 1);
    served_read(&a, fd);
    snprintf(line, sizeof line, "\nmeshmind_serve_%s ", name);
    const char *at = strstr(a.body, line);
    CHECK(at != NULL);
    const double value = strtod(at + strlen(line), NULL);
    answer_fini(&a);
    return value;
}

static void wait_for(unsigned port, const char *name, double want) {
    for (unsigned i = 0; metric(port, name) != want; i++) {
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
    ask_for(port, "{\"prompt\": \"a\", \"n\": 12}", 429, "error.code", "queue_full");
    ask_for(port, "{\"prompt\": [\"a\", \"b\"], \"n\": 6}", 429, "error.type", "rate_limit_error");
    CHECK_EQ(metric(port, "left_total"), 0); /* who was refused is nobody who has left */
    close(fd);
    wait_for(port, "waiting", 0);
    wait_for(port, "seats_taken", 0);
    CHECK_EQ(metric(port, "left_total"), 1);
    CHECK(metric(port, "texts_total") < 30); /* the others were never begun */
    ask_for(port, "{\"prompt\": [\"a\", \"b\", \"c\", \"d\"], \"max_tokens\": 1}", 200,
            "usage.completion_tokens", "4");
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
    test_rooms(omm_serve_port(server));
    test_end(omm_serve_port(server));
    omm_serve_close(server);
    test_places(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
