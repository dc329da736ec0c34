/* service_config.h - the YAML files of `meshmind coordinator` and `meshmind node`, and what both
 * need around a service: threads, a stop on SIGINT, SIGTERM and SIGHUP (signals.h), the environment.
 */
#ifndef CLI_SERVICE_CONFIG_H
#define CLI_SERVICE_CONFIG_H

#include "omm/compute.h"
#include "omm/config.h"
#include "omm/file.h"
#include "omm/hash.h"
#include "omm/log.h"
#include "omm/mem.h"
#include "omm/sign.h"

#include <stdatomic.h>

typedef struct service_env {
    omm_arena arena;
    char dir[OMM_PATH_MAX]; /* of the YAML file: its paths start there */
    omm_log log;
    omm_pool *pool;
    omm_compute compute;
    const char *crash_at; /* OMM_CRASH_AT, for tests */
} service_env;

/* Load `path` by `fields` into `out` and find out where it is.  Errors: those of omm_config_load. */
OMM_CHECKED omm_err service_load(service_env *env, void *out, const omm_config_field *fields,
                                 const char *path);
/* Threads (0: all), instruction set (OMM_ISA), log level; takes the signals that end it (signals.h).
 * Errors: CONFIG, NOMEM, IO. */
OMM_CHECKED omm_err service_start(service_env *env, uint32_t threads, const char *log_level);
void service_end(service_env *env);
const atomic_bool *service_stop(void);
/* Said while a training runs that such an end would cut short (omm_node_service_options.trains). */
atomic_bool *service_trains(void);
/* After such a signal the process has so many seconds (rounded up to the next) to end by itself; then
 * it ends at once, with exit code 0.  For services whose state on disk is whole at any time. */
void service_stop_within(unsigned seconds);

/* A path of the file as one that can be opened, in the arena; "" stays "".  Errors: TOO_BIG, NOMEM. */
OMM_CHECKED omm_err service_path(const char **out, service_env *env, const char *path);
/* A PEM file of TLS (omm/tls.h), read into `out`, which service_pem_wipe frees; "" leaves it empty.
 * is_secret: refused when others than its owner may read it.  Errors, which name `key`: those of
 * omm_file_read and omm_file_check_private. */
OMM_CHECKED omm_err service_pem(omm_buf *out, service_env *env, const char *key, const char *path,
                                bool is_secret);
/* A word in the log where none of these certificates is valid now. */
void service_tell_time(const service_env *env, const omm_buf *certificates);
/* The state folder, a path of the file, is made if it is not there; where others may read it or change it, a word in the
 * log.  Errors, which name state_dir: CONFIG (a file is in the way, or a folder of somebody else), IO (a disk), NOMEM. */
OMM_CHECKED omm_err service_take_state(const service_env *env, const char *state_dir);
void service_pem_wipe(omm_buf *pem);
/* 64 hex digits.  Errors: CONFIG (names `what`). */
OMM_CHECKED omm_err service_public_key(omm_public_key *out, const char *hex, const char *what);
#define SERVICE_DAY_MS ((uint64_t)24 * 3600 * 1000)
/* "90s", "30m", "6h", "1d", at most 366 days, and not none; "03:00" from the beginning of a day.
 * Errors: CONFIG (names `what`, and what is accepted). */
OMM_CHECKED omm_err service_duration(uint64_t *out_ms, const char *text, const char *what);
OMM_CHECKED omm_err service_time_of_day(uint64_t *out_ms, const char *text, const char *what);
/* Print the table of a file for --help.  */
void service_describe(const omm_config_field *fields);

#endif
