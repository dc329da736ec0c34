/* coordinator_service.h - the coordinator on a real clock and a real transport, until the run is
 * closed and its bundle sealed.
 *
 *   server --request--> omm_coord_step --reply--> server;  deadline --> omm_coord_tick
 *
 * Killed at any instant and started again with the same options it goes on where it was.  Over HTTP
 * it is seen (coordinator/web.h), read-only, from a thread that no round waits for.
 *
 * Depends on: base, proto (transport), coordinator.h, run_config.h.
 * Threads: runs on the calling thread; `stop` may be set by another or by a signal handler.
 */
#ifndef OMM_COORDINATOR_SERVICE_H
#define OMM_COORDINATOR_SERVICE_H

#include "omm/clock.h"
#include "omm/judge.h"
#include "omm/run_config.h"

#include <stdatomic.h>

/* What strangers and nodes may take.  0 in a minute's: no limit. */
typedef struct omm_coord_limits {
    uint32_t strangers, strangers_per_address; /* connections that nobody vouched for; at least 1 */
    uint64_t strangers_idle_ms;   /* of those, without a complete message for so long: closed */
    uint64_t messages_per_minute; /* of a node, or of a stranger's address; more is told to wait */
    uint64_t bytes_per_minute;    /* both ways together */
    size_t
        message_bytes; /* of one request; less than the run's nodes send is refused at the start */
    uint64_t submission_bytes; /* a run whose payloads may be longer is not begun; 0: any */
} omm_coord_limits;

/* All borrowed. */
typedef struct omm_coord_service_options {
    omm_run *run;                       /* takes up who joins */
    const char *url;                    /* tls+tcp://0.0.0.0:4711 */
    omm_bytes tls_certificate, tls_key; /* PEM; empty unless the url is tls+tcp:// */
    const char *bundle_dir;             /* the same at every start */
    const char *state_dir;
    const char *port_file;         /* gets the tcp port in decimal once it is bound; NULL: none */
    const char *http;              /* "127.0.0.1:8080": status page, health, metrics; NULL: none */
    const char *const *http_hosts; /* (http_host_count) names that it may be asked by */
    size_t http_host_count;
    const char *http_port_file;
    const omm_key *bundle_key; /* signs the sealed bundle */
    const char *commit, *build, *machine;
    uint32_t work_bits;                        /* omm_coord_enrolment */
    const struct omm_coord_canaries *canaries; /* omm/coordinator_canary.h; NULL: none */
    uint32_t canary_threads;                   /* that train them again; 0: 1 */
    uint32_t base_transfers;         /* addresses that fetch the base model at a time; 0: none */
    uint64_t base_bytes_per_second;  /* over all of them; 0: no limit */
    const char *const *base_mirrors; /* (base_mirror_count) named in the signed manifest */
    size_t base_mirror_count;
    uint64_t every_ms; /* from one round's opening to the next; 0: as soon as nodes are ready */
    bool has_at;    /* rounds open at_ms after the beginning of the UTC day, and every_ms (0: a */
    uint64_t at_ms; /* day) after it */
    double over_select; /* of omm_coord_policy; 0: the run's own */
    uint64_t poll_ms;   /* 0: the run's own */
    uint64_t linger_ms; /* how long to tell nodes that the run is closed */
    omm_coord_limits limits;
    const char *crash_at;
    omm_pool *pool;
    omm_clock clock;
    const omm_log *log;
    const atomic_bool *stop; /* leave soon, with everything kept; NULL: never */
} omm_coord_service_options;

typedef struct omm_coord_service_result {
    bool is_sealed; /* false: stopped before the end */
    omm_digest run_digest;
    omm_judgement judgement; /* when sealed */
} omm_coord_service_result;

/* Errors: those of omm_coord_open, the transport and sealing; STATE (the bundle is sealed already).
 * On error nothing is to be freed. */
OMM_CHECKED omm_err omm_coord_serve(omm_coord_service_result *result,
                                    const omm_coord_service_options *options);
void omm_coord_service_result_fini(omm_coord_service_result *result);

#endif
