/* test_served.c - see test_served.h. */
#include "test_served.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "test_template.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_adapter(served *s, unsigned i) {
    omm_lora lora;
    const omm_lora_spec spec = {2, 4.0f, OMM_LORA_ALL_TARGETS};
    const omm_seed seed = omm_seed_from_u64(i);
    const omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    CHECK_OK(omm_lora_init(&lora, &spec, &s->model.lora_shape));
    for (size_t j = 0; j < lora.value_count; j++)
        lora.values[j] = (omm_rng_unit(&rng, j) - 0.5f) * 0.2f;
    CHECK_OK(omm_adapter_open(&s->adapters[i], &s->model, &lora, 1.0f));
    omm_lora_fini(&lora);
}

void served_open(served *s) {
    omm_gguf gguf;
    omm_isa isa;
    *s = (served){0};
    open_base_file(&gguf);
    CHECK_OK(omm_model_load(&s->model, &gguf));
    CHECK_OK(omm_tokenizer_open(&s->tokenizer, &gguf));
    omm_gguf_close(&gguf);
    for (unsigned i = 0; i < 2; i++) open_adapter(s, i);
    CHECK_OK(omm_pool_open(&s->pool, 2));
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&s->compute, s->pool, isa));
    s->options = omm_serve_options_default();
    s->options.listen = "127.0.0.1:0";
    s->options.name = "base";
    s->options.fingerprint = "omm-test";
    s->options.compute = &s->compute;
    s->options.model = &s->model;
    s->options.tokenizer = s->tokenizer;
    s->options.adapters[0] = (omm_serve_adapter){"one", s->adapters[0]};
    s->options.adapters[1] = (omm_serve_adapter){"two", s->adapters[1]};
    s->options.adapter_count = 2;
    s->options.batcher.session.activations = OMM_ACTIVATIONS_Q8; /* as the command has it */
    s->options.batcher.session.kv_type = OMM_KV_F16;
    s->options.batcher.session.positions_max = s->model.dims.context;
    s->options.batcher.prefix_bytes_max = (size_t)1 << 24;
}

void served_close(served *s) {
    omm_compute_fini(&s->compute);
    omm_pool_close(s->pool);
    for (unsigned i = 0; i < 2; i++) omm_adapter_close(s->adapters[i]);
    omm_tokenizer_close(s->tokenizer);
    omm_model_fini(&s->model);
}

omm_tokenizer *served_other_tokenizer(const char *jinja) {
    omm_gguf gguf;
    open_base_file(&gguf);
    omm_tokenizer *made = open_under(&gguf, jinja);
    omm_gguf_close(&gguf);
    return made;
}

int served_connect(unsigned port) {
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

void served_send(int fd, const char *bytes, size_t size) {
    (void)!send(fd, bytes, size, MSG_NOSIGNAL); /* a server that does not want it may have closed */
}

void served_post(int fd, const char *path, const char *body) {
    char head[256];
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Connection: close\r\nContent-Length: %zu\r\n\r\n",
             path, strlen(body));
    served_send(fd, head, strlen(head));
    served_send(fd, body, strlen(body));
}

/* In place. */
static size_t join_chunks(char *text, size_t size) {
    size_t from = 0, to = 0;
    while (from < size) {
        char *end = NULL;
        const size_t n = strtoul(text + from, &end, 16);
        from = (size_t)(end - text) + 2;
        if (n == 0) break;
        CHECK(from + n <= size);
        memmove(text + to, text + from, n);
        to += n;
        from += n + 2;
    }
    text[to] = 0;
    return to;
}

void served_read(answer *out, int fd) {
    omm_buf all;
    char piece[4096];
    ssize_t n = 0;
    omm_buf_init(&all, 1 << 26);
    while ((n = recv(fd, piece, sizeof piece, 0)) > 0)
        CHECK_OK(omm_buf_append(&all, piece, (size_t)n));
    CHECK_OK(omm_buf_append(&all, "", 1));
    close(fd);
    *out = (answer){.head = (char *)all.data};
    char *end = strstr(out->head, "\r\n\r\n");
    if (!end) { /* closed without a word */
        out->body = out->head + all.size - 1;
        return;
    }
    *end = 0;
    out->body = end + 4;
    out->body_size = all.size - 1 - (size_t)(out->body - out->head);
    if (strcasestr(out->head, "transfer-encoding: chunked"))
        out->body_size = join_chunks(out->body, out->body_size);
    CHECK_EQ(strncmp(out->head, "HTTP/1.1 ", 9), 0);
    out->status = (unsigned)strtoul(out->head + 9, NULL, 10);
}

void answer_fini(answer *a) {
    omm_free(a->head);
}

answer served_ask(unsigned port, const char *path, const char *body) {
    answer a;
    const int fd = served_connect(port);
    served_post(fd, path, body);
    served_read(&a, fd);
    return a;
}

double served_metric(unsigned port, const char *name) {
    answer a;
    char line[128];
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
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

char *served_member(const char *json, const char *path) {
    json_t *root = NULL;
    CHECK_OK(omm_json_parse(&root, omm_bytes_str(json), "an answer"));
    json_t *at = root;
    char name[64];
    for (const char *p = path; at && *p;) {
        const size_t size = strcspn(p, ".");
        snprintf(name, sizeof name, "%.*s", (int)size, p);
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10))
                               : json_object_get(at, name);
        p += size + (p[size] == '.');
    }
    char *out = NULL;
    if (json_is_string(at))
        out = strdup(json_string_value(at));
    else
        out = at ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT) : strdup("(none)");
    json_decref(root);
    return out;
}
