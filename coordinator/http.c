/* http.c - see http.h.  The protocol itself is libmicrohttpd's. */
#include "http.h"

#include "omm/mem.h"
#include "omm/mhd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HTTP_TEXTS_MAX 16u
#define HTTP_WAIT_MS 200 /* how soon a stop, or the end of a connection's time, is noticed */

/* Nothing from elsewhere is loaded, nothing here is framed, no text is taken for another kind. */
static const char *const s_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
    {"Connection", "close"},
};

typedef struct cached {
    struct MHD_Response *response;
    unsigned code;
    uint64_t made_ms;
} cached;

typedef struct slot {
    struct MHD_Connection *is; /* NULL: free */
    int fd;
    uint64_t since_ms;
    bool ended;
} slot;

struct http_server {
    http_options o;
    struct MHD_Daemon *daemon;
    int fd;
    unsigned port;
    slot *connections; /* (connections_max) */
    cached texts[HTTP_TEXTS_MAX];
    struct MHD_Response *not_found, *not_allowed, *not_ours, *failed;
    bool is_local;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
};

http_options http_options_default(void) {
    return (http_options){.connections_max = 64,
                          .connections_per_address = 16,
                          .connection_ms = 10000,
                          .clock = omm_clock_system()};
}

static uint64_t now_ms(const http_server *h) {
    return h->o.clock.now_ms(h->o.clock.ud);
}

/* ---- answers ---- */

static struct MHD_Response *response_of(omm_bytes text, const char *type, bool keep) {
    void *data = NULL;
    memcpy(&data, &text.data, sizeof data); /* read only, whatever the parameter's type says */
    struct MHD_Response *r = omm_mhd()->create_response_from_buffer(
        text.size, data, keep ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    bool ok = r && omm_mhd()->add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
    for (size_t i = 0; ok && i < sizeof s_headers / sizeof s_headers[0]; i++)
        ok = omm_mhd()->add_response_header(r, s_headers[i][0], s_headers[i][1]) == MHD_YES;
    if (ok) return r;
    if (r) omm_mhd()->destroy_response(r);
    return NULL;
}

static struct MHD_Response *plain(const char *text) {
    return response_of(omm_bytes_str(text), "text/plain; charset=utf-8", true);
}

/* What was made stays with those who are still taking it; others get the new one. */
static bool refresh(http_server *h, const http_text *text, cached *c) {
    uint64_t now = now_ms(h);
    if (c->response && (!text->make || now - c->made_ms < HTTP_FRESH_MS)) return true;
    omm_buf out;
    omm_buf_init(&out, HTTP_TEXT_BYTES_MAX);
    unsigned code = MHD_HTTP_OK;
    omm_err err = text->make ? text->make(h->o.ud, &out, &code) : OMM_OK;
    struct MHD_Response *fresh = NULL;
    if (err == OMM_OK)
        fresh = response_of(text->make ? omm_buf_view(&out) : text->fixed, text->type, !text->make);
    omm_buf_fini(&out);
    if (err != OMM_OK)
        omm_log_event(h->o.log, OMM_LOG_WARN, "http_text_failed", OMM_LOG_STR("path", text->path),
                      OMM_LOG_STR("detail", omm_err_sentence()));
    if (!fresh) return false;
    if (c->response) omm_mhd()->destroy_response(c->response);
    *c = (cached){fresh, code, now};
    return true;
}

static bool is_ours(const http_server *h, const char *host) {
    const http_place *place = &h->o.place;
    if (omm_mhd_is_address(host)) return true;
    for (size_t i = 0; i < place->host_count; i++)
        if (omm_mhd_is_host(host, place->hosts[i])) return true;
    return place->host_count == 0 && !h->is_local;
}

static enum MHD_Result on_request(void *ud, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request) {
    http_server *h = ud;
    (void)version;
    (void)upload;
    *upload_size = 0; /* nothing of a body is wanted: answered before it is read, and closed */
    (void)request;
    if (!is_ours(h, omm_mhd()->lookup_connection_value(connection, MHD_HEADER_KIND,
                                                       MHD_HTTP_HEADER_HOST)))
        return omm_mhd()->queue_response(connection, MHD_HTTP_FORBIDDEN, h->not_ours);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return omm_mhd()->queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, h->not_allowed);
    for (unsigned i = 0; h->o.texts[i].path; i++) {
        if (strcmp(h->o.texts[i].path, url) != 0) continue;
        cached *c = &h->texts[i];
        if (!refresh(h, &h->o.texts[i], c))
            return omm_mhd()->queue_response(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, h->failed);
        return omm_mhd()->queue_response(connection, c->code, c->response);
    }
    return omm_mhd()->queue_response(connection, MHD_HTTP_NOT_FOUND, h->not_found);
}

/* Paths stay as they came: none of ours has anything to unescape, a %00 would cut one short. */
static size_t keep_path(void *ud, struct MHD_Connection *connection, char *path) {
    (void)ud;
    (void)connection;
    return strlen(path);
}

/* ---- connections ---- */

static void on_connection(void *ud, struct MHD_Connection *is, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    http_server *h = ud;
    (void)context;
    for (unsigned i = 0; i < h->o.connections_max; i++) {
        slot *c = &h->connections[i];
        if (what == MHD_CONNECTION_NOTIFY_CLOSED && c->is == is) c->is = NULL;
        if (what == MHD_CONNECTION_NOTIFY_CLOSED || c->is) continue;
        const union MHD_ConnectionInfo *info =
            omm_mhd()->get_connection_info(is, MHD_CONNECTION_INFO_CONNECTION_FD);
        *c = (slot){is, info ? info->connect_fd : -1, now_ms(h), false};
        return;
    }
}

/* Who has had his time is cut off; libmicrohttpd sees the end and closes. */
static void sweep(http_server *h) {
    uint64_t now = now_ms(h);
    for (unsigned i = 0; i < h->o.connections_max; i++) {
        slot *c = &h->connections[i];
        if (!c->is || c->ended || now - c->since_ms < h->o.connection_ms) continue;
        c->ended = true;
        if (c->fd >= 0) (void)shutdown(c->fd, SHUT_RDWR);
    }
}

static void *serve(void *ud) {
    http_server *h = ud;
    while (!atomic_load(&h->stop)) {
        if (omm_mhd()->run_wait(h->daemon, HTTP_WAIT_MS) != MHD_YES)
            h->o.clock.sleep_ms(h->o.clock.ud, HTTP_WAIT_MS);
        sweep(h);
    }
    return NULL;
}

/* ---- open and close ---- */

static omm_err start(http_server *h) {
    OMM_TRY(omm_mhd_load());
    OMM_TRY(omm_mhd_listen(&h->fd, &h->port, h->o.place.address));
    h->connections = omm_alloc(h->o.connections_max, sizeof *h->connections);
    h->not_found = plain("not found; / is the page, with links to the rest\n");
    h->not_allowed = plain("this server is read-only: GET and HEAD\n");
    h->not_ours = plain("Host: another name than this server's; accepted: localhost, an address, "
                        "and the names in http_hosts of the coordinator's file\n");
    h->is_local = omm_mhd_is_local(h->fd);
    h->failed = plain("failed; the log says why\n");
    if (!h->connections || !h->not_found || !h->not_allowed || !h->not_ours || !h->failed ||
        omm_mhd()->add_response_header(h->not_allowed, "Allow", "GET, HEAD") != MHD_YES)
        return omm_raise(OMM_ERR_NOMEM, "http server");
    h->daemon = omm_mhd()->start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, h->fd,
        MHD_OPTION_CONNECTION_LIMIT, h->o.connections_max, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        h->o.connections_per_address, MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_REQUEST_BYTES_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(h->o.connection_ms / 1000 + 1),
        MHD_OPTION_UNESCAPE_CALLBACK, keep_path, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    if (!h->daemon) return omm_raise(OMM_ERR_IO, "http: cannot serve on %s", h->o.place.address);
    h->fd = -1; /* the daemon's now */
    int why = pthread_create(&h->thread, NULL, serve, h);
    if (why != 0) return omm_raise(OMM_ERR_IO, "http: no thread: %s", strerror(why));
    h->has_thread = true;
    return OMM_OK;
}

omm_err http_open(http_server **out, const http_options *options) {
    unsigned count = 0;
    while (options->texts[count].path) count++;
    OMM_ASSERT(count <= HTTP_TEXTS_MAX);
    http_server *h = omm_alloc(1, sizeof *h);
    if (!h) return omm_raise(OMM_ERR_NOMEM, "http server");
    h->o = *options;
    h->fd = -1;
    atomic_init(&h->stop, false);
    omm_err err = start(h);
    if (err != OMM_OK) {
        http_close(h);
        return err;
    }
    *out = h;
    return OMM_OK;
}

static void drop(struct MHD_Response *response) {
    if (response) omm_mhd()->destroy_response(response);
}

void http_close(http_server *h) {
    if (!h) return;
    atomic_store(&h->stop, true);
    if (h->has_thread) (void)pthread_join(h->thread, NULL);
    if (h->daemon) omm_mhd()->stop_daemon(h->daemon);
    if (h->fd >= 0) (void)close(h->fd);
    for (unsigned i = 0; i < HTTP_TEXTS_MAX; i++) drop(h->texts[i].response);
    drop(h->not_found);
    drop(h->not_allowed);
    drop(h->not_ours);
    drop(h->failed);
    omm_free(h->connections);
    omm_free(h);
}

unsigned http_port(const http_server *h) {
    return h->port;
}
