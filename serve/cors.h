/* cors.h - which web pages may ask this server from a browser, and how that is said to it.
 *
 *   browser --OPTIONS, Origin: PAGE--> 204 with Access-Control-Allow-Origin: PAGE     if it is listed
 *           --POST, Origin: PAGE-----> the answer with it;  of pages that are not listed: without, so no script may read it
 *
 * An origin is never given back as it came: what is said is the text of the list that it is equal to.
 * Source: the Fetch standard (fetch.spec.whatwg.org), CORS protocol.
 *
 * Depends on: serve.h; libmicrohttpd.  Threads: no shared state.
 */
#ifndef SERVE_CORS_H
#define SERVE_CORS_H

#include "omm/mhd.h"
#include "omm/serve.h"

#define CORS_ORIGIN_BYTES_MAX 256u

/* "*", or "SCHEME://HOST[:PORT]" as a browser spells it: small letters, no path.  Errors: CONFIG. */
OMM_CHECKED omm_err cors_check(const char *origin);
/* What is to be said to who comes from `origin` (NULL: nobody says): a text of the list; NULL: nothing. */
const char *cors_allowed(const omm_serve_options *o, const char *origin);
/* The headers of an answer on that connection. */
enum MHD_Result cors_mark(struct MHD_Response *r, const omm_serve_options *o,
                          struct MHD_Connection *c);
/* Those of an answer to OPTIONS beside them: what a page may send. */
enum MHD_Result cors_mark_options(struct MHD_Response *r);

#endif
