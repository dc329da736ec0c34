/* mirror.c - see mirror.h. */
#include "mirror.h"

#include "omm/clock.h"

#include <curl/curl.h>

#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the library ---- */

#define CURL_MAP(XX)                                                                               \
    XX(global_init)                                                                                \
    XX(easy_init)                                                                                  \
    XX(easy_setopt)                                                                                \
    XX(easy_perform)                                                                               \
    XX(easy_getinfo)                                                                               \
    XX(easy_strerror)                                                                              \
    XX(easy_cleanup)

static struct {
#define XX(name) __typeof__ (&curl_##name)(name);
    CURL_MAP(XX)
#undef XX
} s_curl;
static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool s_is_loaded;

static omm_err missing(void) {
    const char *why = dlerror();
    return omm_raise(OMM_ERR_UNSUPPORTED, "mirrors need libcurl.so.4 (package libcurl4): %s",
                     why ? why : "not found");
}

static omm_err load(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return missing();
#define XX(name)                                                                                   \
    {                                                                                              \
        void *found = dlsym(library, "curl_" #name);                                               \
        if (!found) return missing(); /* the library stays: what it uses does not like to go */    \
        memcpy(&s_curl.name, &found, sizeof found);                                                \
    }
    CURL_MAP(XX)
#undef XX
    if (s_curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return omm_raise(OMM_ERR_NOMEM, "libcurl does not start");
    s_is_loaded = true;
    return OMM_OK;
}

static omm_err need_library(void) {
    pthread_mutex_lock(&s_mutex);
    const omm_err err = s_is_loaded ? OMM_OK : load();
    pthread_mutex_unlock(&s_mutex);
    return err;
}

/* ---- addresses ---- */

static bool is_private_v4(uint32_t a) {
    static const struct {
        uint32_t net;
        unsigned bits;
    } nets[] = {{0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},
                {0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0a80000, 16},
                {0xc6120000, 15}, {0xe0000000, 3}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        if ((a ^ nets[i].net) >> (32 - nets[i].bits) == 0) return true;
    return false;
}

static uint32_t v4_at(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Global unicast is 2000::/3; in it 6to4, and beside it NAT64, carry a v4 address. */
static bool is_private_v6(const uint8_t a[16]) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};
    if (memcmp(a, mapped, sizeof mapped) == 0 || memcmp(a, nat64, sizeof nat64) == 0)
        return is_private_v4(v4_at(a + 12));
    if (a[0] == 0x20 && a[1] == 0x02) return is_private_v4(v4_at(a + 2));
    return a[0] >> 5 != 1;
}

bool mirror_is_private(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return is_private_v4(ntohl(v4.sin_addr.s_addr));
    }
    if (address->sa_family != AF_INET6) return true;
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return is_private_v6(v6.sin6_addr.s6_addr);
}

/* ---- one transfer ---- */

typedef struct transfer {
    const mirror_get *get;
    CURL *curl;
    bool has_status;
    long status;
    uint64_t skip;                      /* bytes before `from` that a server without Range sends */
    uint64_t left;                      /* bytes that are wanted */
    uint64_t body;                      /* bytes that were the answer's, and not a redirect's */
    uint64_t slow_since_ns, slow_bytes; /* what came since then is too little so far */
    bool is_private, is_stalled, is_endless;
    omm_err err; /* of take, and what it said */
    char sentence[300];
} transfer;

static void fail(transfer *t, omm_err err) {
    t->err = err;
    (void)snprintf(t->sentence, sizeof t->sentence, "%s", omm_err_sentence());
}

static void read_status(transfer *t) {
    if (t->has_status) return;
    t->has_status = true;
    (void)s_curl.easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->status);
    t->skip = t->status == 200 ? t->get->from : 0;
}

static size_t on_body(char *data, size_t one, size_t count, void *ud) {
    transfer *t = ud;
    omm_bytes bytes = omm_bytes_of(data, one * count);
    t->body += bytes.size;
    read_status(t);
    if (t->status != 200 && t->status != 206) return 0;
    const size_t over = bytes.size < t->skip ? bytes.size : (size_t)t->skip;
    t->skip -= over;
    bytes = omm_bytes_of(bytes.data + over, bytes.size - over);
    if (bytes.size > t->left) bytes.size = (size_t)t->left;
    const omm_err err = t->get->take(t->get->ud, bytes);
    if (err != OMM_OK) fail(t, err);
    t->left -= bytes.size;
    return err == OMM_OK && t->left > 0 ? one * count
                                        : 0; /* what comes after the file is not waited for */
}

/* Asked when bytes come, and about once a second.  Counted here and not by libcurl, whose mean over its last
 * seconds leaves a stalled mirror much later. */
static int on_progress(void *ud, curl_off_t all, curl_off_t got, curl_off_t up, curl_off_t sent) {
    transfer *t = ud;
    (void)all, (void)up, (void)sent;
    const uint64_t now = omm_measure_ns(), seconds = t->get->stall_s;
    const uint64_t bytes = got > 0 ? (uint64_t)got : 0;
    if (bytes - t->slow_bytes >= MIRROR_STALL_BYTES * seconds) {
        t->slow_bytes = bytes;
        t->slow_since_ns = now;
    }
    t->is_stalled = now - t->slow_since_ns >= seconds * 1000000000u;
    /* What comes with a redirect is read to its end, which there need not be, and shown to nobody. */
    t->is_endless = bytes > t->body && bytes - t->body > MIRROR_BESIDE_BYTES;
    return t->is_stalled || t->is_endless || !t->get->may_go_on(t->get->ud);
}

/* The address that is really connected to, of every redirect too: names cannot say one thing and mean another. */
static curl_socket_t on_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *address) {
    transfer *t = ud;
    (void)purpose;
    if (!t->get->may_be_private && mirror_is_private(&address->addr)) {
        t->is_private = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool set_options(transfer *t) {
    const mirror_get *get = t->get;
    char range[64];
    (void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)get->from,
                   (unsigned long long)get->size - 1);
    bool ok = true;
#define SET(option, value) ok = ok && s_curl.easy_setopt(t->curl, option, value) == CURLE_OK
    SET(CURLOPT_URL, get->url);
    SET(CURLOPT_RANGE, range);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, (long)MIRROR_REDIRECTS_MAX);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_FAILONERROR, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_CONNECTTIMEOUT, (long)get->connect_s);
    SET(CURLOPT_BUFFERSIZE, 65536L);
    SET(CURLOPT_USERAGENT, "meshmind");
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, t);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
#undef SET
    return ok;
}

#define TOO_LARGE 100 /* CURLE_TOO_LARGE, of 8.6.0 */

/* What the end of a transfer means for the next one. */
static omm_err judge(const transfer *t, CURLcode code) {
    const char *url = t->get->url;
    const char *why = s_curl.easy_strerror(code);
    curl_off_t length = -1;
    if (t->left == 0 && t->err == OMM_OK) return OMM_OK;
    if (t->err != OMM_OK) return omm_raise(t->err, "%.120s: %s", url, t->sentence);
    if (t->is_private && code != CURLE_OK)
        return omm_raise(OMM_ERR_MISMATCH, "%.120s: at an address of a private network", url);
    if (t->is_endless)
        return omm_raise(OMM_ERR_MISMATCH, "%.120s: over %u bytes come with a redirect", url,
                         MIRROR_BESIDE_BYTES);
    if (t->is_stalled)
        return omm_raise(OMM_ERR_TIMEOUT, "%.120s: under %u bytes a second", url,
                         MIRROR_STALL_BYTES);
    if (code == CURLE_ABORTED_BY_CALLBACK) return omm_raise(OMM_ERR_CANCELLED, "%.120s", url);
    switch ((int)code) {
    case CURLE_OK:
    case CURLE_WRITE_ERROR:
        if (t->status != 200 && t->status != 206)
            return omm_raise(OMM_ERR_MISMATCH, "%.120s: status %ld", url, t->status);
        (void)s_curl.easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        return omm_raise(length >= 0 ? OMM_ERR_MISMATCH : OMM_ERR_CLOSED, "%.120s: fewer bytes",
                         url);
    case CURLE_OPERATION_TIMEDOUT: return omm_raise(OMM_ERR_TIMEOUT, "%.120s: %s", url, why);
    case CURLE_HTTP_RETURNED_ERROR:
        if (t->status >= 500 || t->status == 429)
            return omm_raise(OMM_ERR_CLOSED, "%.120s: status %ld", url, t->status);
        return omm_raise(OMM_ERR_MISMATCH, "%.120s: status %ld", url, t->status);
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PEER_FAILED_VERIFICATION:
    case TOO_LARGE:
    case CURLE_RANGE_ERROR: return omm_raise(OMM_ERR_MISMATCH, "%.120s: %s", url, why);
    /* A header that is too long, to older ones.  Where it is our own memory, whoever needs it next says so. */
    case CURLE_OUT_OF_MEMORY:
        return omm_raise(OMM_ERR_MISMATCH, "%.120s: its answer takes too much memory", url);
    default: return omm_raise(OMM_ERR_CLOSED, "%.120s: %s", url, why);
    }
}

omm_err mirror_fetch(const mirror_get *get) {
    OMM_TRY(need_library());
    OMM_ASSERT(get->from < get->size && get->connect_s > 0);
    transfer t = {.get = get,
                  .curl = s_curl.easy_init(),
                  .left = get->size - get->from,
                  .slow_since_ns = omm_measure_ns()};
    if (!t.curl) return omm_raise(OMM_ERR_NOMEM, "libcurl");
    omm_err err = OMM_OK;
    if (set_options(&t)) {
        const CURLcode code = s_curl.easy_perform(t.curl);
        read_status(&t);
        err = judge(&t, code);
    } else {
        err = omm_raise(OMM_ERR_UNSUPPORTED, "%.120s: this libcurl is too old: 7.85 is needed",
                        get->url);
    }
    s_curl.easy_cleanup(t.curl);
    return err;
}
