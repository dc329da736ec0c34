/* web.c - see web.h. */
#include "web.h"

#include "http.h"
#include "page.h" /* made by the build from page/ */
#include "watch_text.h"

#include "omm/mem.h"

#define WEB_TEXTS 6u

struct web {
    watch *watch;
    omm_server *server;
    http_server *http;
    http_text texts[WEB_TEXTS + 1];
    watch_facts facts; /* of the text that is being made */
    watch_node *nodes; /* (watch_node_max) */
};

static void see(watch_seen *seen, web *w) {
    watch_see(seen, &w->facts, w->nodes, w->watch, w->server);
}

static omm_err make_health(void *ud, omm_buf *out, unsigned *code) {
    watch_seen seen;
    bool healthy = false;
    see(&seen, ud);
    OMM_TRY(watch_health_text(out, &healthy, &seen));
    *code = healthy ? 200 : 503;
    return OMM_OK;
}

static omm_err make_metrics(void *ud, omm_buf *out, unsigned *code) {
    watch_seen seen;
    *code = 200;
    see(&seen, ud);
    return watch_metrics_text(out, &seen);
}

static omm_err make_status(void *ud, omm_buf *out, unsigned *code) {
    watch_seen seen;
    *code = 200;
    see(&seen, ud);
    return watch_status_text(out, &seen);
}

omm_err web_open(web **out, const http_place *place, watch *seen, omm_server *server,
                 const omm_log *log) {
    web *w = omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "web server");
    const watch_options *o = watch_get_options(seen);
    w->watch = seen;
    w->server = server;
    w->nodes = omm_alloc(watch_node_max(seen), sizeof *w->nodes);
    const http_text texts[WEB_TEXTS] = {
        {"/", "text/html; charset=utf-8", {s_status_html, sizeof s_status_html}, NULL},
        {"/status.css", "text/css; charset=utf-8", {s_status_css, sizeof s_status_css}, NULL},
        {"/status.js", "text/javascript; charset=utf-8", {s_status_js, sizeof s_status_js}, NULL},
        {"/status.json", "application/json", {0}, make_status},
        {"/healthz", "text/plain; charset=utf-8", {0}, make_health},
        {"/metrics", "text/plain; version=0.0.4; charset=utf-8", {0}, make_metrics}};
    for (unsigned i = 0; i < WEB_TEXTS; i++) w->texts[i] = texts[i];
    http_options options = http_options_default();
    options.place = *place;
    options.texts = w->texts;
    options.ud = w;
    options.clock = o->clock;
    options.log = log;
    omm_err err = w->nodes ? http_open(&w->http, &options) : omm_raise(OMM_ERR_NOMEM, "web server");
    if (err != OMM_OK) {
        web_close(w);
        return err;
    }
    *out = w;
    return OMM_OK;
}

void web_close(web *w) {
    if (!w) return;
    http_close(w->http);
    omm_free(w->nodes);
    omm_free(w);
}

unsigned web_port(const web *w) {
    return http_port(w->http);
}
