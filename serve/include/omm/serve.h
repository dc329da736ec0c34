/* serve.h - a model over HTTP, as OpenAI's API has it: chat and text completions, whole or streamed.
 *
 *   client --POST--> request (JSON, checked) --> prompt's ids --> a seat among others (batcher.h)
 *   client <--JSON or SSE-- text, tool calls, usage <------ id after id
 *
 *   GET  /health  /metrics  /v1/models  /v1/models/NAME
 *   POST /v1/chat/completions  /v1/completions
 *
 * Which adapters answer is said with each request: "model" is the base's name, or the names of adapters, joined by +
 * in the order in which they are applied.
 *
 * A text depends on the request, its seed, the model and system_fingerprint; not on what else is asked at the same time, how
 * many seats there are, or what is in a cache.  Where no seed is given one is drawn, and the answer says it.
 *
 * Two threads: one speaks HTTP, one computes.  Strangers: a request has a size and a time, an address so many
 * connections, the queue an end; whoever goes away frees his seat.  Without a key only names of this machine are
 * answered to (a web page elsewhere that points its own name here is refused), and JSON has to say it is JSON (which
 * no other page's script may say unasked).  Pages that may ask are named by their origins (CORS).
 *
 * Depends on: engine; libmicrohttpd.  Threads: open, stop and close by one thread; the rest is its own.
 */
#ifndef OMM_SERVE_H
#define OMM_SERVE_H

#include "omm/adapter.h"
#include "omm/batcher.h"
#include "omm/clock.h"
#include "omm/log.h"
#include "omm/tokenizer.h"

#include <stdbool.h>

#define OMM_SERVE_NAME_MAX 64u /* bytes of a model's or adapter's name: letters, digits, . _ - : */

typedef struct omm_serve_adapter {
    const char *name;
    const omm_adapter *adapter;
} omm_serve_adapter;

/* All borrowed until close. */
typedef struct omm_serve_options {
    const char *listen;  /* "127.0.0.1:8080", "[::1]:8080"; port 0: a free one */
    const char *api_key; /* that requests must bring; NULL: none */
    const char *const
        *origins; /* (origin_count) of web pages whose scripts may ask from a browser; "*": any */
    size_t origin_count;     /* 0: those of none */
    const char *name;        /* of the model */
    const char *fingerprint; /* of all that a text depends on beside its request; printable ASCII */
    const omm_compute *compute;
    const omm_model *model;
    const omm_tokenizer *tokenizer;
    omm_serve_adapter adapters[OMM_ADAPTERS_MAX];
    size_t adapter_count;
    omm_batcher_options batcher;      /* session.positions_max over 0: requests are checked by it */
    omm_sampler sampler;              /* of requests that say nothing; its rng is not used */
    bool at_once;                     /* the same: a model that thinks does not */
    uint32_t waiting_max;             /* texts that wait beside those that sit; default 64 */
    unsigned connections_max;         /* default 256 */
    unsigned connections_per_address; /* default 128 */
    /* Of a stream whose client does not read it, which ends it; default 16 MiB: an echoed prompt may have 10 at once. */
    size_t unread_bytes_max;
    uint64_t request_ms; /* that a client may take to say what he wants; default 30,000 */
    uint64_t look_ms;    /* how soon it is seen that somebody has gone; default 100 */
    omm_clock clock;
    const omm_log *log;
} omm_serve_options;
omm_serve_options omm_serve_options_default(void);

/* Can that be an omm_serve_options's `listen`? */
bool omm_serve_is_address(const char *listen);

/* What is wrong with names, key, origins and sampler, to be said before a model is loaded.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_serve_check(const omm_serve_options *options);

typedef struct omm_serve omm_serve;

/* Errors: those of omm_serve_check; CONFIG (address), STATE (address in use), UNSUPPORTED (no libmicrohttpd), IO, NOMEM,
 * those of omm_batcher_open. */
OMM_CHECKED omm_err omm_serve_open(omm_serve **out, const omm_serve_options *options);
unsigned omm_serve_port(const omm_serve *serve);
/* From now on nothing new is taken (503); what is being answered goes on.  Returns the texts that do. */
uint32_t omm_serve_stop(omm_serve *serve);
/* Whoever still waits gets an error.  NULL is fine. */
void omm_serve_close(omm_serve *serve);

#endif
