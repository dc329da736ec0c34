/* http.h - a small read-only web server: a table of texts, made anew at most once a second.
 *
 *   GET or HEAD of a path in the table --> its text; anything else --> 404 or 405
 *   by a name that is not its own      --> 403, so that no page of somebody's can read it in a browser here
 *
 * One thread of its own, one request per connection, and every connection ends `connection_ms`
 * after it began, whatever it has sent or taken until then: who dribbles a request or does not
 * take the answer holds one of `connections_max` slots for that long, and nothing else.  Who comes while
 * all are taken waits for one; of an address that has `connections_per_address` it is closed.  However
 * many ask, a text is made once in HTTP_FRESH_MS and shared by all who get it.
 *
 * Depends on: base; libmicrohttpd.  Threads: `make` is called on the server's thread.
 */
#ifndef COORDINATOR_HTTP_H
#define COORDINATOR_HTTP_H

#include "omm/bytes.h"
#include "omm/clock.h"
#include "omm/log.h"

#define HTTP_FRESH_MS 500u
#define HTTP_REQUEST_BYTES_MAX ((size_t)8 << 10) /* request line and headers; more is refused */
#define HTTP_TEXT_BYTES_MAX ((size_t)8 << 20)

typedef struct http_text {
    const char *path; /* "/healthz"; NULL ends the table */
    const char *type; /* "text/plain; charset=utf-8" */
    omm_bytes fixed;  /* served as it is, when make is NULL */
    /* Append the text; *code is 200.  An error is answered with 500 and logged. */
    omm_err (*make)(void *ud, omm_buf *out, unsigned *code);
} http_text;

typedef struct http_place {
    const char *address; /* "127.0.0.1:8080", "[::1]:8080"; port 0: a free one */
    /* (host_count) names by which it is asked, besides localhost and addresses; without any it is
     * these two where only this machine reaches it, and any name elsewhere. */
    const char *const *hosts;
    size_t host_count;
} http_place;

typedef struct http_options {
    http_place place; /* borrowed, as all here */
    const http_text *texts;
    void *ud;
    unsigned connections_max, connections_per_address;
    uint64_t connection_ms;
    omm_clock clock;
    const omm_log *log;
} http_options;
/* 64, 16, 10,000, the system's clock. */
http_options http_options_default(void);

typedef struct http_server http_server;
/* Errors: CONFIG (address), STATE (in use), IO, NOMEM. */
OMM_CHECKED omm_err http_open(http_server **out, const http_options *options);
void http_close(http_server *http); /* NULL is fine; waits for the thread */
unsigned http_port(const http_server *http);

#endif
