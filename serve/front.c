/* front.c - see front.h.  The protocol itself is libmicrohttpd's. */
#include "front.h"

#include "answer.h"
#include "cors.h"
#include "tokens.h"

#include "omm/mem.h"
#include "omm/mhd.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES_MAX ((size_t)16 << 10) /* request line and headers */
#define BODIES_AT_ONCE 16u                /* so many of the largest, or more of smaller ones */
#define BLOCK_BYTES 4096u                 /* of a stream, at once */
#define METRICS_BYTES_MAX ((size_t)1 << 20)
#define STOPPING_MS 5000 /* for what is still being sent when the server closes */
#define STOPPING_LOOK_MS 50

/* One request on a connection. */
typedef struct visit {
    omm_buf body;
    job *job;       /* NULL: not yet, or there is none */
    unsigned fault; /* of HTTP, that taking the body has come to; 0: none */
} visit;

typedef struct slot {
    front *of;
    struct MHD_Connection *is; /* NULL: free */
    int fd;
    uint64_t since_ms; /* of the connection, or of the end of its last request */
    bool asked;        /* the request is here: no hurry any more */
    bool cut;
    job *waits; /* whose answer it waits for */
} slot;

struct front {
    const omm_serve_options *o;
    work *work;
    struct MHD_Daemon *daemon;
    int fd;    /* listens; -1: the daemon's */
    int event; /* eventfd of work's */
    unsigned port;
    uint64_t created; /* seconds since 1970 */
    omm_seed seed;    /* of the seeds of requests without one */
    uint64_t drawn;
    size_t body_max, bodies; /* bytes of one, and of all that are being taken */
    slot *slots;             /* (connections_max) */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
};

static uint64_t now_ms(const front *h) {
    return h->o->clock.now_ms(h->o->clock.ud);
}

static slot *slot_of(front *h, const struct MHD_Connection *is) {
    for (unsigned i = 0; i < h->o->connections_max; i++)
        if (h->slots[i].is == is) return &h->slots[i];
    return NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char s_json[] = "application/json", s_events[] = "text/event-stream";

/* The response is taken. */
static enum MHD_Result queue(const front *h, struct MHD_Connection *c, unsigned status,
                             const char *type, struct MHD_Response *r) {
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"}};
    if (!r) return MHD_NO;
    enum MHD_Result ok =
        status == MHD_HTTP_NO_CONTENT /* which has no content */
            ? MHD_YES
            : omm_mhd()->add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    for (size_t i = 0; ok == MHD_YES && i < 2; i++)
        ok = omm_mhd()->add_response_header(r, headers[i][0], headers[i][1]);
    if (ok == MHD_YES) ok = cors_mark(r, h->o, c);
    if (ok == MHD_YES && status == MHD_HTTP_NO_CONTENT) ok = cors_mark_options(r);
    if (ok == MHD_YES && status == MHD_HTTP_UNAUTHORIZED)
        ok = omm_mhd()->add_response_header(r, "WWW-Authenticate", "Bearer");
    if (ok == MHD_YES && strcmp(type, s_events) == 0) /* a proxy would hold events back */
        ok = omm_mhd()->add_response_header(r, "X-Accel-Buffering", "no");
    if (ok == MHD_YES && (status == 429 || status == 503))
        ok = omm_mhd()->add_response_header(r, "Retry-After", "1");
    if (ok == MHD_YES) ok = omm_mhd()->queue_response(c, status, r);
    omm_mhd()->destroy_response(r);
    return ok;
}

static enum MHD_Result queue_bytes(const front *h, struct MHD_Connection *c, unsigned status,
                                   const char *type, const omm_buf *text) {
    return queue(
        h, c, status, type,
        omm_mhd()->create_response_from_buffer(text->size, text->data, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result queue_fault(front *h, struct MHD_Connection *c, const fault *why) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    work_count_status(h->work, why->status);
    /* not the sentence: it may quote what was asked */
    omm_log_event(h->o->log, OMM_LOG_INFO, "refused", OMM_LOG_INT("status", why->status),
                  OMM_LOG_STR("param", why->param ? why->param : "none"),
                  OMM_LOG_STR("code", why->code ? why->code : "none"));
    enum MHD_Result ok =
        answer_fault(&text, why) == OMM_OK ? queue_bytes(h, c, why->status, s_json, &text) : MHD_NO;
    omm_buf_fini(&text);
    return ok;
}

static enum MHD_Result queue_refusal(front *h, struct MHD_Connection *c, unsigned status,
                                     const char *code, const char *message) {
    fault why = {.status = status, .type = "invalid_request_error", .code = code};
    snprintf(why.message, sizeof why.message, "%s", message);
    return queue_fault(h, c, &why);
}

/* ---- who may ask ----------------------------------------------------------------------------- */

static const char *header_of(struct MHD_Connection *c, const char *name) {
    return omm_mhd()->lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* As long as the key takes, whatever was sent; blanks behind it are not a part of it. */
static bool same_key(const char *sent, const char *key) {
    const size_t size = strlen(key);
    size_t has = strlen(sent);
    while (has > 0 && (sent[has - 1] == ' ' || sent[has - 1] == '\t')) has--;
    unsigned differ = size != has;
    for (size_t i = 0; i < size; i++)
        differ |=
            (unsigned)(unsigned char)key[i] ^ (unsigned)(unsigned char)sent[i < has ? i : has];
    return differ == 0;
}

static bool has_key(const front *h, struct MHD_Connection *c) {
    const char *sent = header_of(c, "Authorization");
    if (!h->o->api_key) return true;
    return sent && strncasecmp(sent, "Bearer ", 7) == 0 && same_key(sent + 7, h->o->api_key);
}

static bool is_ours(const front *h, struct MHD_Connection *c) {
    return h->o->api_key || omm_mhd_is_address(header_of(c, MHD_HTTP_HEADER_HOST));
}

static enum MHD_Result refuse_host(front *h, struct MHD_Connection *c) {
    return queue_refusal(h, c, MHD_HTTP_FORBIDDEN, NULL,
                         "this server answers to names of this machine alone; one with an API key "
                         "answers to any");
}

/* What says whom a request is for and where it ends. */
typedef struct framing {
    unsigned hosts, lengths, encodings;
    bool is_strange; /* an encoding that is not read here */
} framing;

static enum MHD_Result count_header(void *ud, enum MHD_ValueKind kind, const char *name,
                                    const char *value) {
    framing *f = (framing *)ud;
    (void)kind;
    f->hosts += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    f->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->encodings++;
        f->is_strange |= !value || strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

/* A request that a proxy in front of this server may read as another one, or as two (RFC 9112, 3.2 and 6.3). */
static bool is_ambiguous(struct MHD_Connection *c) {
    framing f = {0};
    (void)omm_mhd()->get_connection_values(c, MHD_HEADER_KIND, count_header, &f);
    return f.hosts > 1 || f.lengths + f.encodings > 1 || f.is_strange;
}

static bool is_json(struct MHD_Connection *c) {
    const char *type = header_of(c, MHD_HTTP_HEADER_CONTENT_TYPE);
    const size_t size = sizeof s_json - 1;
    return type && strncasecmp(type, s_json, size) == 0 &&
           (type[size] == 0 || type[size] == ';' || type[size] == ' ');
}

/* ---- what is there to be read ---------------------------------------------------------------- */

/* Layers that are streamed come from the file as it was when the server began, or from none. */
static bool is_model_lost(const front *h) {
    const omm_model *m = h->o->model;
    return m->gguf && m->resident < m->dims.layers && omm_gguf_check_unchanged(m->gguf) != OMM_OK;
}

/* No path: who has no key may read it. */
static omm_err put_health(omm_buf *out, unsigned *status, front *h) {
    const bool is_stopping = work_is_stopped(h->work), is_lost = !is_stopping && is_model_lost(h);
    *status = is_stopping || is_lost ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK;
    if (is_stopping) return omm_buf_printf(out, "{\"status\":\"stopping\"}\n");
    if (is_lost)
        return omm_buf_printf(out,
                              "{\"status\":\"broken\",\"reason\":\"the model's file was written "
                              "to while this server streams from it: every text fails until "
                              "it is started again\"}\n");
    return omm_buf_printf(out, "{\"status\":\"ok\"}\n");
}

static omm_err put_metrics(omm_buf *out, unsigned *status, front *h) {
    *status = MHD_HTTP_OK;
    return work_metrics(out, h->work);
}

static omm_err put_models(omm_buf *out, unsigned *status, front *h) {
    *status = MHD_HTTP_OK;
    return answer_models(out, h->o, NULL, h->created);
}

static const struct page {
    const char *path, *type;
    omm_err (*put)(omm_buf *out, unsigned *status, front *h);
    bool is_open; /* to who has no key */
} s_pages[] = {
    {"/health", s_json, put_health, true},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", put_metrics, false},
    {"/v1/models", s_json, put_models, false},
};

static enum MHD_Result send_page(front *h, struct MHD_Connection *c, const struct page *p) {
    omm_buf out;
    omm_buf_init(&out, METRICS_BYTES_MAX);
    unsigned status = 0;
    const omm_err err = p->put(&out, &status, h);
    enum MHD_Result ok = MHD_NO;
    if (err == OMM_OK) {
        work_count_status(h->work, status);
        ok = queue_bytes(h, c, status, p->type, &out);
    }
    omm_buf_fini(&out);
    return ok;
}

static enum MHD_Result send_model(front *h, struct MHD_Connection *c, const char *name) {
    omm_buf out;
    omm_buf_init(&out, METRICS_BYTES_MAX);
    enum MHD_Result ok = MHD_NO;
    const omm_err err = answer_models(&out, h->o, name, h->created);
    if (err == OMM_OK) {
        work_count_status(h->work, MHD_HTTP_OK);
        ok = queue_bytes(h, c, MHD_HTTP_OK, s_json, &out);
    } else {
        ok = queue_refusal(h, c, MHD_HTTP_NOT_FOUND, "model_not_found", omm_err_sentence());
    }
    omm_buf_fini(&out);
    return ok;
}

static const char s_models[] = "/v1/models/";
static const char s_chat[] = "/v1/chat/completions", s_text[] = "/v1/completions";

/* What a POST may ask. */
static const struct question {
    const char *path;
    bool is_chat;
    /* Answered at once; NULL: by a job. */
    bool (*answer)(omm_buf *out, fault *why, const omm_serve_options *o, omm_bytes body);
} s_questions[] = {
    {s_chat, true, NULL},
    {s_text, false, NULL},
    {"/tokenize", false, tokens_of_text},
    {"/detokenize", false, tokens_to_text},
};

static const struct question *question_of(const char *path) {
    for (size_t i = 0; i < sizeof s_questions / sizeof *s_questions; i++)
        if (strcmp(path, s_questions[i].path) == 0) return &s_questions[i];
    return NULL;
}

static enum MHD_Result get(front *h, struct MHD_Connection *c, const char *path) {
    for (size_t i = 0; i < sizeof s_pages / sizeof s_pages[0]; i++)
        if (strcmp(path, s_pages[i].path) == 0) return send_page(h, c, &s_pages[i]);
    if (strncmp(path, s_models, sizeof s_models - 1) == 0)
        return send_model(h, c, path + sizeof s_models - 1);
    if (question_of(path))
        return queue_refusal(h, c, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, "POST is needed here");
    return queue_refusal(h, c, MHD_HTTP_NOT_FOUND, NULL,
                         "there is nothing here; what there is: GET /v1/models, /health, /metrics; "
                         "POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize");
}

/* ---- what is asked --------------------------------------------------------------------------- */

static ssize_t read_stream(void *ud, uint64_t at, char *out, size_t size) {
    const slot *s = (const slot *)ud;
    bool end = false;
    (void)at;
    const size_t n = work_read(s->of->work, s->waits, out, size, &end, s->is);
    return end ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static enum MHD_Result start_stream(slot *s) {
    work_count_status(s->of->work, MHD_HTTP_OK);
    return queue(s->of, s->is, MHD_HTTP_OK, s_events,
                 omm_mhd()->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                          read_stream, s, NULL));
}

static uint64_t draw_seed(front *h) {
    const omm_rng rng = omm_rng_init(&h->seed, OMM_PURPOSE_SAMPLE, 0, 0);
    return omm_rng_below(&rng, h->drawn++, REQUEST_SEED_MAX);
}

/* Many clients that send much take no more memory than some of them would. */
static void take_body(front *h, visit *v, const char *data, size_t size) {
    if (v->fault) return;
    if (v->body.size + size > h->body_max)
        v->fault = MHD_HTTP_CONTENT_TOO_LARGE;
    else if (h->bodies + size > BODIES_AT_ONCE * h->body_max ||
             omm_buf_append(&v->body, data, size) != OMM_OK)
        v->fault = MHD_HTTP_SERVICE_UNAVAILABLE;
    else
        h->bodies += size;
}

static void drop_body(front *h, visit *v) {
    h->bodies -= v->body.size;
    omm_buf_fini(&v->body);
}

static enum MHD_Result queue_body_fault(front *h, struct MHD_Connection *c, unsigned status) {
    fault why = {.status = status, .type = "invalid_request_error"};
    if (status == MHD_HTTP_CONTENT_TOO_LARGE) {
        snprintf(why.message, sizeof why.message, "the body is over %zu bytes", h->body_max);
    } else {
        why.type = "server_error";
        snprintf(why.message, sizeof why.message,
                 "too much is being sent at once; try again later");
    }
    return queue_fault(h, c, &why);
}

/* If it is there; else the connection is suspended, and asked for again when it is woken. */
static enum MHD_Result send_answer(front *h, struct MHD_Connection *c, const visit *v) {
    omm_buf out;
    char block[BLOCK_BYTES];
    bool end = false;
    if (!work_is_done(h->work, v->job, c)) return MHD_YES;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err = OMM_OK;
    while (!end && err == OMM_OK) {
        const size_t n = work_read(h->work, v->job, block, sizeof block, &end, c);
        err = omm_buf_append(&out, block, n);
    }
    enum MHD_Result ok = MHD_NO;
    if (err == OMM_OK && out.size > 0) ok = queue_bytes(h, c, v->job->status, s_json, &out);
    omm_buf_fini(&out);
    return ok;
}

/* The body is here. */
static enum MHD_Result ask(front *h, struct MHD_Connection *c, visit *v, bool is_chat) {
    fault why = {0};
    job *j = NULL;
    if (work_make(&j) != OMM_OK) return queue_body_fault(h, c, MHD_HTTP_SERVICE_UNAVAILABLE);
    const bool ok =
        request_read(&j->request, &why, h->o, is_chat, omm_buf_view(&v->body), draw_seed(h)) &&
        work_submit(h->work, j, &why);
    if (!ok) {
        work_leave(h->work, j);
        return queue_fault(h, c, &why);
    }
    drop_body(h, v);
    slot *s = slot_of(h, c);
    OMM_ASSERT(s != NULL);
    v->job = s->waits = j;
    if (j->request.stream) return start_stream(s);
    return send_answer(h, c, v);
}

static enum MHD_Result answer_now(front *h, struct MHD_Connection *c, const visit *v,
                                  const struct question *q) {
    fault why = {0};
    omm_buf out;
    omm_buf_init(&out, 2 * TOKENS_TEXT_MAX); /* escaped */
    enum MHD_Result ok = MHD_NO;
    if (q->answer(&out, &why, h->o, omm_buf_view(&v->body))) {
        work_count_status(h->work, MHD_HTTP_OK);
        ok = queue_bytes(h, c, MHD_HTTP_OK, s_json, &out);
    } else {
        ok = queue_fault(h, c, &why);
    }
    omm_buf_fini(&out);
    return ok;
}

/* A body that its client sends only if it may; one that comes all the same is taken and dropped, as who is still sending does
 * not hear a refusal. */
static bool asks_too_much(const front *h, struct MHD_Connection *c) {
    const char *length = header_of(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length && header_of(c, MHD_HTTP_HEADER_EXPECT) &&
           strtoull(length, NULL, 10) > h->body_max;
}

/* Before the body: true where it may come, else *result is that of the refusal or the page. */
static bool check_head(front *h, struct MHD_Connection *c, const char *path, bool is_post,
                       enum MHD_Result *result) {
    bool is_open = false;
    for (size_t i = 0; !is_post && i < sizeof s_pages / sizeof s_pages[0]; i++)
        is_open = is_open || (s_pages[i].is_open && strcmp(path, s_pages[i].path) == 0);
    if (!is_ours(h, c)) {
        *result = refuse_host(h, c);
    } else if (!is_open && !has_key(h, c)) {
        *result = queue_refusal(h, c, MHD_HTTP_UNAUTHORIZED, "invalid_api_key",
                                "an API key is needed: Authorization: Bearer KEY");
    } else if (!is_post) {
        *result = get(h, c, path);
    } else if (!question_of(path)) {
        *result = get(h, c, "");
    } else if (!is_json(c)) {
        *result = queue_refusal(h, c, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL,
                                "the body has to be JSON and say so: Content-Type: "
                                "application/json");
    } else if (asks_too_much(h, c)) {
        *result = queue_body_fault(h, c, MHD_HTTP_CONTENT_TOO_LARGE);
    } else {
        return true;
    }
    return false;
}

/* A browser asks whether a page may ask.  It sends no key with that. */
static enum MHD_Result answer_options(front *h, struct MHD_Connection *c) {
    omm_buf none;
    if (!is_ours(h, c)) return refuse_host(h, c);
    if (!cors_allowed(h->o, header_of(c, MHD_HTTP_HEADER_ORIGIN)))
        return queue_refusal(h, c, MHD_HTTP_FORBIDDEN, "origin_not_allowed",
                             "pages of this origin may not ask here; the server's --cors names "
                             "those that may");
    work_count_status(h->work, MHD_HTTP_NO_CONTENT);
    omm_buf_init(&none, 0);
    return queue_bytes(h, c, MHD_HTTP_NO_CONTENT, s_json, &none);
}

static enum MHD_Result begin(front *h, struct MHD_Connection *c, const char *path,
                             const char *method, void **own) {
    enum MHD_Result result = MHD_NO;
    const bool is_get =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    /* Before anything of it is believed; the connection ends with the answer. */
    if (is_ambiguous(c))
        return queue_refusal(h, c, MHD_HTTP_BAD_REQUEST, "ambiguous_request",
                             "accepted are one Host, and one Content-Length or one "
                             "Transfer-Encoding: chunked");
    if (h->o->origin_count > 0 && strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0)
        return answer_options(h, c);
    if (!is_get && !is_post)
        return queue_refusal(h, c, MHD_HTTP_METHOD_NOT_ALLOWED, NULL,
                             "GET and POST are known here");
    if (!check_head(h, c, path, is_post, &result)) return result;
    visit *v = (visit *)omm_alloc(1, sizeof *v);
    if (!v) return MHD_NO;
    omm_buf_init(&v->body, h->body_max);
    *own = v;
    return MHD_YES;
}

static enum MHD_Result on_request(void *ud, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **own) {
    front *h = (front *)ud;
    (void)version;
    if (!*own) return begin(h, c, path, method, own);
    visit *v = (visit *)*own;
    if (*size > 0) {
        take_body(h, v, data, *size);
        *size = 0;
        return MHD_YES;
    }
    slot *s = slot_of(h, c);
    if (s) s->asked = true;
    if (v->fault) return queue_body_fault(h, c, v->fault);
    if (v->job) return send_answer(h, c, v);
    const struct question *q = question_of(path);
    OMM_ASSERT(q != NULL); /* check_head */
    return q->answer ? answer_now(h, c, v, q) : ask(h, c, v, q->is_chat);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void leave(front *h, slot *s) {
    if (s->waits) work_leave(h->work, s->waits);
    s->waits = NULL;
}

static void on_completed(void *ud, struct MHD_Connection *c, void **own,
                         enum MHD_RequestTerminationCode how) {
    front *h = (front *)ud;
    visit *v = (visit *)*own;
    slot *s = slot_of(h, c);
    (void)how;
    if (s) {
        leave(h, s);
        s->asked = false;
        s->since_ms = now_ms(h);
    }
    if (!v) return;
    drop_body(h, v);
    omm_free(v);
    *own = NULL;
}

static void on_connection(void *ud, struct MHD_Connection *is, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    front *h = (front *)ud;
    (void)context;
    slot *s = slot_of(h, what == MHD_CONNECTION_NOTIFY_CLOSED ? is : NULL);
    if (!s) return;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        leave(h, s);
        *s = (slot){0};
        return;
    }
    const union MHD_ConnectionInfo *info =
        omm_mhd()->get_connection_info(is, MHD_CONNECTION_INFO_CONNECTION_FD);
    *s = (slot){.of = h, .is = is, .fd = info ? info->connect_fd : -1, .since_ms = now_ms(h)};
}

/* Nothing is read of a connection that is suspended: that its other end has closed is seen by looking, and what it sent
 * before that hides nothing. */
static bool has_gone(const slot *s) {
    struct pollfd p = {.fd = s->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void sweep(front *h) {
    const uint64_t now = now_ms(h);
    for (unsigned i = 0; i < h->o->connections_max; i++) {
        slot *s = &h->slots[i];
        if (!s->is || s->cut || s->fd < 0) continue;
        const bool slow = !s->asked && now - s->since_ms >= h->o->request_ms;
        const bool gone = (s->waits || !s->asked) && has_gone(s);
        if (!slow && !gone) continue;
        s->cut = true;
        (void)shutdown(s->fd, SHUT_RDWR);
        if (s->waits) work_forget(h->work, s->waits);
    }
}

/* libmicrohttpd's own wait is not ended by a connection that is resumed. */
static void wait_and_run(front *h, uint64_t most_ms) {
    const union MHD_DaemonInfo *info =
        omm_mhd()->get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    uint64_t events = 0;
    struct pollfd p[2] = {{.fd = info ? info->epoll_fd : -1, .events = POLLIN},
                          {.fd = h->event, .events = POLLIN}};
    if (omm_mhd()->get_timeout(h->daemon, &timeout) != MHD_YES || timeout > most_ms)
        timeout = most_ms;
    (void)poll(p, 2, (int)timeout);
    if (p[1].revents) (void)!read(h->event, &events, sizeof events);
    (void)omm_mhd()->run_wait(h->daemon, 0);
}

static void *run(void *ud) {
    front *h = (front *)ud;
    while (!atomic_load(&h->stop)) {
        wait_and_run(h, h->o->look_ms);
        sweep(h);
    }
    /* What has been written is sent, to those who take it. */
    const uint64_t begun = now_ms(h);
    bool any = true;
    while (any && now_ms(h) - begun < STOPPING_MS) {
        any = false;
        for (unsigned i = 0; i < h->o->connections_max; i++) any = any || h->slots[i].waits;
        if (any) wait_and_run(h, STOPPING_LOOK_MS);
    }
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* Paths stay as they came: none of ours has anything to unescape, a %00 would cut one short. */
static size_t keep_path(void *ud, struct MHD_Connection *c, char *path) {
    (void)ud;
    (void)c;
    return strlen(path);
}

static omm_err start(front *h) {
    const omm_serve_options *o = h->o;
    OMM_TRY(omm_mhd_load());
    OMM_TRY(omm_mhd_listen(&h->fd, &h->port, o->listen));
    h->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->event < 0) return omm_raise(OMM_ERR_IO, "http: no eventfd: %s", strerror(errno));
    work_tell(h->work, h->event);
    h->slots = (slot *)omm_alloc(o->connections_max, sizeof *h->slots);
    if (!h->slots)
        return omm_raise(OMM_ERR_NOMEM, "no memory for %u connections", o->connections_max);
    h->daemon = omm_mhd()->start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h,
        MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT, o->connections_max,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, o->connections_per_address,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(o->request_ms / 1000 + 1), MHD_OPTION_UNESCAPE_CALLBACK, keep_path, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
    if (!h->daemon) return omm_raise(OMM_ERR_IO, "http: cannot serve on %s", o->listen);
    h->fd = -1; /* the daemon's now */
    const int why = pthread_create(&h->thread, NULL, run, h);
    if (why != 0) return omm_raise(OMM_ERR_IO, "http: no thread: %s", strerror(why));
    h->has_thread = true;
    return OMM_OK;
}

omm_err front_open(front **out, const omm_serve_options *o, work *w) {
    front *h = (front *)omm_alloc(1, sizeof *h);
    if (!h) return omm_raise(OMM_ERR_NOMEM, "no memory for the server");
    h->o = o;
    h->work = w;
    h->fd = h->event = -1;
    h->seed = omm_seed_random();
    h->created = o->clock.wall_ms(o->clock.ud) / 1000;
    h->body_max = request_bytes_max(o);
    atomic_init(&h->stop, false);
    const omm_err err = start(h);
    if (err != OMM_OK) {
        front_close(h);
        return err;
    }
    *out = h;
    return OMM_OK;
}

unsigned front_port(const front *h) {
    return h->port;
}

void front_close(front *h) {
    const uint64_t one = 1;
    if (!h) return;
    atomic_store(&h->stop, true);
    if (h->event >= 0) (void)!write(h->event, &one, sizeof one);
    if (h->has_thread) (void)pthread_join(h->thread, NULL);
    if (h->daemon) omm_mhd()->stop_daemon(h->daemon);
    if (h->fd >= 0) (void)close(h->fd);
    if (h->event >= 0) (void)close(h->event);
    omm_free(h->slots);
    omm_free(h);
}
