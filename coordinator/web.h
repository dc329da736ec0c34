/* web.h - the coordinator's web server: which path shows what of a watch.
 *
 *   /            the page (with /status.css, /status.js), which polls /status.json
 *   /status.json  rounds, nodes, bytes, verdicts, loss curve
 *   /healthz     200 "ok", or 503 "sick" and why, a line each
 *   /metrics     Prometheus
 *
 * Depends on: base, proto (transport), watch.h, http.h.
 */
#ifndef COORDINATOR_WEB_H
#define COORDINATOR_WEB_H

#include "http.h"
#include "watch.h"

#include "omm/log.h"

typedef struct web web;
/* seen and server: borrowed until web_close.  Errors: those of http_open. */
OMM_CHECKED omm_err web_open(web **out, const http_place *place, watch *seen, omm_server *server,
                             const omm_log *log);
void web_close(web *w); /* NULL is fine */
unsigned web_port(const web *w);

#endif
