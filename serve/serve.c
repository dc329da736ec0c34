/* serve.c - see omm/serve.h: what is served, and the two threads that do it. */
#include "omm/serve.h"

#include "cors.h"
#include "front.h"
#include "omm/mem.h"

#include <string.h>
#include <sys/resource.h>

#define OWN_FILES                                                                                  \
    32u /* beside connections: outputs, the model's files, the listener and what waits on it */

struct omm_serve {
    omm_serve_options o;
    work *work;
    front *front;
};

omm_serve_options omm_serve_options_default(void) {
    return (omm_serve_options){.batcher = omm_batcher_options_default(),
                               .sampler = omm_sampler_default(),
                               .waiting_max = 64,
                               .connections_max = 256,
                               .connections_per_address = 128,
                               .unread_bytes_max = (size_t)16 << 20,
                               .request_ms = 30000,
                               .look_ms = 100,
                               .clock = omm_clock_system()};
}

static omm_err check_name(const omm_serve_options *o, size_t index, const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    const size_t size = strlen(name);
    if (size < 1 || size > OMM_SERVE_NAME_MAX || strspn(name, letters) != size)
        return omm_raise(OMM_ERR_CONFIG,
                         "a model named %.80s: accepted are 1 to %u letters, digits, . _ : and -",
                         name, OMM_SERVE_NAME_MAX);
    for (size_t i = 0; i < index; i++)
        if (strcmp(i ? o->adapters[i - 1].name : o->name, name) == 0)
            return omm_raise(
                OMM_ERR_CONFIG,
                "two models are named %s: --name NAME and --lora NAME=FILE give others", name);
    return OMM_OK;
}

bool omm_serve_is_address(const char *listen) {
    return omm_mhd_can_listen(listen);
}

omm_err omm_serve_check(const omm_serve_options *o) {
    for (size_t i = 0; i <= o->adapter_count; i++)
        OMM_TRY(check_name(o, i, i ? o->adapters[i - 1].name : o->name));
    if (o->api_key && !o->api_key[0]) return omm_raise(OMM_ERR_CONFIG, "an empty API key is none");
    for (size_t i = 0; i < o->origin_count; i++) OMM_TRY(cors_check(o->origins[i]));
    return omm_sampler_check(&o->sampler);
}

/* One for each connection: as many as the system gives, and a word where these are too few. */
static void take_descriptors(const omm_serve_options *o) {
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)o->connections_max + OWN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur < wanted)
        omm_log_event(o->log, OMM_LOG_WARN, "few_open_files",
                      OMM_LOG_INT("allowed", (int64_t)limit.rlim_cur),
                      OMM_LOG_INT("wanted", (int64_t)wanted),
                      OMM_LOG_STR("then", "more connections wait until others end; raise "
                                          "`ulimit -n` or LimitNOFILE, or lower --connections"));
}

omm_err omm_serve_open(omm_serve **out, const omm_serve_options *options) {
    OMM_TRY(omm_serve_check(options));
    OMM_ASSERT(options->batcher.session.positions_max > 0);
    omm_serve *s = (omm_serve *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for the server");
    s->o = *options;
    take_descriptors(&s->o);
    omm_err err = work_open(&s->work, &s->o);
    if (err == OMM_OK) err = front_open(&s->front, &s->o, s->work);
    if (err != OMM_OK) {
        omm_serve_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

unsigned omm_serve_port(const omm_serve *s) {
    return front_port(s->front);
}

uint32_t omm_serve_stop(omm_serve *s) {
    return work_stop(s->work);
}

void omm_serve_close(omm_serve *s) {
    if (!s) return;
    if (s->work) work_end(s->work); /* nobody is suspended after that */
    front_close(s->front);
    work_close(s->work);
    omm_free(s);
}
