/* cors_test.c - which pages may ask, by what a browser sends and is told: asked before, answered, streamed, refused. */
#include "cors.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "test_served.h"

#include <string.h>

#define CHAT "/v1/chat/completions"
#define UI "http://localhost:3000"
#define OTHER "https://chat.example"
#define BODY                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"max_tokens\": 3, "          \
    "\"temperature\": 0%s}"

static answer ask(unsigned port, const char *line, const char *headers, const char *body) {
    char text[2048];
    answer a;
    const int fd = served_connect(port);
    const int size =
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n",
                 line, headers);
    CHECK(size > 0 && (size_t)size < sizeof text - 200);
    served_send(fd, text, (size_t)size);
    if (body[0]) {
        snprintf(text, sizeof text, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(body));
        served_send(fd, text, strlen(text));
    }
    served_send(fd, "\r\n", 2);
    served_send(fd, body, strlen(body));
    served_read(&a, fd);
    return a;
}

/* The value of a header of the answer, to its line's end; NULL: there is none.  Caller frees. */
static char *header_of(const answer *a, const char *name) {
    char line[64];
    snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strcasestr(a->head, line);
    if (!at) return NULL;
    at += strlen(line);
    return strndup(at, strcspn(at, "\r"));
}

static bool has(const answer *a, const char *name, const char *want) {
    char *got = header_of(a, name);
    const bool same = want ? got && strcmp(got, want) == 0 : !got;
    if (!same)
        fprintf(stderr, "%s: %s, not %s\n", name, got ? got : "(none)", want ? want : "(none)");
    free(got);
    return same;
}

/* Asks, and looks at status, Access-Control-Allow-Origin and Vary. */
static void check_ask(unsigned port, const char *line, const char *headers, const char *body,
                      unsigned status, const char *origin, const char *vary) {
    answer a = ask(port, line, headers, body);
    if (a.status != status || !has(&a, "Access-Control-Allow-Origin", origin) ||
        !has(&a, "Vary", vary)) {
        fprintf(stderr, "%s\n%s: %u\n%s\n%s\n", line, headers, a.status, a.head, a.body);
        exit(1);
    }
    if (status == 204) {
        CHECK(has(&a, "Access-Control-Allow-Methods", "GET, POST, OPTIONS"));
        CHECK(has(&a, "Access-Control-Allow-Headers", "Authorization, Content-Type, *"));
        CHECK(has(&a, "Access-Control-Max-Age", "600") && has(&a, "Content-Type", NULL));
        CHECK_EQ(a.body_size, 0);
    } else {
        CHECK(has(&a, "Access-Control-Allow-Methods", NULL));
    }
    answer_fini(&a);
}

#define FROM(origin) "Origin: " origin "\r\n"
#define ASKS(origin)                                                                               \
    FROM(origin)                                                                                   \
    "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,"        \
    "content-type\r\n"

static void test_off(unsigned port) {
    check_ask(port, "OPTIONS " CHAT, ASKS(UI), "", 405, NULL, NULL);
    check_ask(port, "GET /health", FROM(UI), "", 200, NULL, NULL);
}

static void test_listed(unsigned port) {
    char body[256];
    check_ask(port, "OPTIONS " CHAT, ASKS(UI), "", 204, UI, "Origin");
    check_ask(port, "OPTIONS /v1/models", ASKS(OTHER), "", 204, OTHER, "Origin");
    snprintf(body, sizeof body, BODY, "");
    check_ask(port, "POST " CHAT, FROM(UI), body, 200, UI, "Origin");
    snprintf(body, sizeof body, BODY, ", \"stream\": true");
    check_ask(port, "POST " CHAT, FROM(UI), body, 200, UI, "Origin");
    snprintf(body, sizeof body, BODY, ", \"x\": 1");
    check_ask(port, "POST " CHAT, FROM(UI), body, 400, UI, "Origin");
    check_ask(port, "GET /v1/models", FROM(OTHER), "", 200, OTHER, "Origin");
    check_ask(port, "GET /nothing", FROM(UI), "", 404, UI, "Origin");
    check_ask(port, "PUT /health", FROM(UI), "", 405, UI, "Origin");
}

/* Who is not listed is told nothing, whatever he calls himself; nothing of that comes back. */
static void test_others(unsigned port) {
    static const char *const headers[] = {
        ASKS("https://evil.example"),
        ASKS(UI ".evil.example"),
        ASKS("http://localhost:30000"),
        ASKS("http://localhost:300"),
        ASKS("HTTP://LOCALHOST:3000"),
        ASKS(UI "/"),
        ASKS("null"),
        ASKS("*"),
        ASKS(""),
        ASKS(UI ", https://evil.example"),
        ASKS(UI "\t\x01<script>"),
        ASKS("\xff\xfe"),
        "",
        ASKS(UI ":80"),
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        answer a = ask(port, "OPTIONS " CHAT, headers[i], "");
        CHECK(a.status == 403 || a.status == 400); /* of libmicrohttpd: no header at all */
        CHECK(has(&a, "Access-Control-Allow-Origin", NULL));
        CHECK(!strstr(a.head, "evil") && !strstr(a.body, "evil") && !strstr(a.body, "script"));
        answer_fini(&a);
        a = ask(port, "GET /health", headers[i], "");
        CHECK(has(&a, "Access-Control-Allow-Origin", NULL) && !strstr(a.head, "evil"));
        if (a.status == 200) CHECK(has(&a, "Vary", "Origin"));
        answer_fini(&a);
    }
    /* a name that somebody has pointed at this machine asks nothing, wherever its page comes from */
    answer a;
    static const char rebound[] =
        "OPTIONS " CHAT " HTTP/1.1\r\nHost: evil.example\r\n" ASKS(UI) "Connection: close\r\n\r\n";
    const int fd = served_connect(port);
    served_send(fd, rebound, sizeof rebound - 1);
    served_read(&a, fd);
    CHECK_EQ(a.status, 403);
    CHECK(strstr(a.body, "names of this machine alone") &&
          has(&a, "Access-Control-Allow-Methods", NULL));
    answer_fini(&a);
}

/* Asked before without a key, as browsers do; what is asked needs it, and who has none may read that. */
static void test_key(unsigned port) {
    check_ask(port, "OPTIONS " CHAT, ASKS(UI), "", 204, UI, "Origin");
    check_ask(port, "GET /v1/models", FROM(UI), "", 401, UI, "Origin");
    check_ask(port, "GET /v1/models", FROM(UI) "Authorization: Bearer sesame\r\n", "", 200, UI,
              "Origin");
}

static void test_any(unsigned port) {
    check_ask(port, "OPTIONS " CHAT, ASKS("https://any.example"), "", 204, "*", NULL);
    check_ask(port, "GET /health", FROM("null"), "", 200, "*", NULL);
}

static void test_spelling(void) {
    static const char *const good[] = {
        "*", UI, OTHER, "https://[::1]:1", "app://obsidian.md", "chrome-extension://abc_d"};
    static const char *const bad[] = {"",
                                      "null",
                                      "http://localhost:3000/",
                                      "localhost:3000",
                                      "http://",
                                      "://x",
                                      "http://A",
                                      "http://a/b",
                                      "http://a b",
                                      "**",
                                      "http:/a",
                                      "http://a\r\nx: y",
                                      "http://*.example",
                                      "HTTP://a"};
    char longest[CORS_ORIGIN_BYTES_MAX + 2] = "http://";
    memset(longest + 7, 'a', sizeof longest - 8);
    CHECK_ERR(cors_check(longest), OMM_ERR_CONFIG);
    longest[CORS_ORIGIN_BYTES_MAX] = 0;
    CHECK_OK(cors_check(longest));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK_OK(cors_check(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(cors_check(bad[i]), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), "no / at the end"));
    }
}

static void with_server(served *s, void (*test)(unsigned port)) {
    omm_serve *server = NULL;
    CHECK_OK(omm_serve_open(&server, &s->options));
    test(omm_serve_port(server));
    omm_serve_close(server);
}

int main(void) {
    static const char *const listed[] = {OTHER, UI}, *const any[] = {UI, "*"},
                             *const bad[] = {UI, OTHER "/"};
    served s;
    omm_serve *server = NULL;
    test_spelling();
    if (omm_mhd_load() == OMM_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", omm_err_sentence());
        return 77;
    }
    served_open(&s);
    with_server(&s, test_off);
    s.options.origins = listed;
    s.options.origin_count = 2;
    with_server(&s, test_listed);
    with_server(&s, test_others);
    s.options.api_key = "sesame";
    with_server(&s, test_key);
    s.options.api_key = NULL;
    s.options.origins = any;
    with_server(&s, test_any);
    s.options.origins = bad;
    s.options.origin_count = 2;
    CHECK_ERR(omm_serve_open(&server, &s.options), OMM_ERR_CONFIG);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
