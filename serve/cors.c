/* cors.c - see cors.h. */
#include "cors.h"

#include <string.h>

/* A browser asks again after so many seconds. */
#define AGE_S "600"

#define SMALL "abcdefghijklmnopqrstuvwxyz0123456789"

omm_err cors_check(const char *origin) {
    if (strcmp(origin, "*") == 0) return OMM_OK;
    const size_t size = strlen(origin), scheme = strspn(origin, SMALL "+.-");
    const char *host = origin + scheme;
    const bool has_host = scheme > 0 && strncmp(host, "://", 3) == 0 && host[3];
    if (has_host && size <= CORS_ORIGIN_BYTES_MAX &&
        strspn(host + 3, SMALL "._-:[]") == strlen(host + 3))
        return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "origin %.80s: accepted are * (any page) and an origin as browsers spell it, "
                     "http://localhost:3000 or https://chat.example: small letters, no path, no / "
                     "at the end",
                     origin);
}

const char *cors_allowed(const omm_serve_options *o, const char *origin) {
    for (size_t i = 0; i < o->origin_count; i++) {
        if (strcmp(o->origins[i], "*") == 0) return o->origins[i];
        if (origin && strcmp(o->origins[i], origin) == 0) return o->origins[i];
    }
    return NULL;
}

/* With a list the answer is another for another page: caches are told. */
enum MHD_Result cors_mark(struct MHD_Response *r, const omm_serve_options *o,
                          struct MHD_Connection *c) {
    if (o->origin_count == 0) return MHD_YES;
    const char *allowed = cors_allowed(
        o, omm_mhd()->lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN));
    enum MHD_Result ok = MHD_YES;
    if (!allowed || strcmp(allowed, "*") != 0)
        ok = omm_mhd()->add_response_header(r, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    if (ok == MHD_YES && allowed)
        ok = omm_mhd()->add_response_header(r, "Access-Control-Allow-Origin", allowed);
    return ok;
}

/* Authorization has to be named beside *; that is for what clients add of their own, which is not looked at. */
enum MHD_Result cors_mark_options(struct MHD_Response *r) {
    static const char *const headers[][2] = {
        {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
        {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
        {"Access-Control-Max-Age", AGE_S}};
    enum MHD_Result ok = MHD_YES;
    for (size_t i = 0; ok == MHD_YES && i < sizeof headers / sizeof *headers; i++)
        ok = omm_mhd()->add_response_header(r, headers[i][0], headers[i][1]);
    return ok;
}
