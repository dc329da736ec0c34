/* service_config.c - see service_config.h. */
#include "service_config.h"

#include "places.h"

#include "signals.h"

#include "omm/crash.h"
#include "omm/mem.h"
#include "omm/tls.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVICE_ARENA_BYTES ((size_t)160 << 20) /* 16 shards of 4 MiB, each in a block of its own */

static atomic_bool s_stop;
static atomic_uint s_grace_s; /* 0: as long as it takes */
static atomic_bool s_trains;

static void on_alarm(int number) {
    static const char trained[] =
        "stopped in the middle of a step: goes on from the last checkpoint at the next start\n";
    static const char idle[] = "stopped\n";
    const bool trains = atomic_load(&s_trains);
    (void)number;
    if (write(STDERR_FILENO, trains ? trained : idle,
              trains ? sizeof trained - 1 : sizeof idle - 1) < 0)
        _exit(0);
    _exit(0);
}

static void on_signal(int number) {
    (void)number;
    if (!atomic_exchange(&s_stop, true) && atomic_load(&s_grace_s)) alarm(atomic_load(&s_grace_s));
}

void service_stop_within(unsigned seconds) {
    atomic_store(&s_grace_s, seconds);
}

const atomic_bool *service_stop(void) {
    return &s_stop;
}

atomic_bool *service_trains(void) {
    return &s_trains;
}

omm_err service_load(service_env *env, void *out, const omm_config_field *fields,
                     const char *path) {
    omm_arena_init(&env->arena, SERVICE_ARENA_BYTES);
    OMM_TRY(omm_path_dir(env->dir, path));
    return omm_config_load(out, fields, path, &env->arena);
}

omm_err service_start(service_env *env, uint32_t threads, const char *log_level) {
    omm_log_level level;
    if (!omm_log_level_parse(&level, log_level))
        return omm_raise(OMM_ERR_CONFIG, "log_level: %s; accepted: debug, info, warn, error",
                         log_level);
    omm_mem_give_back_large();
    env->log = omm_log_stderr(level);
    env->crash_at = getenv(OMM_CRASH_VARIABLE);
    OMM_TRY(omm_crash_check(env->crash_at));
    omm_isa isa;
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(omm_pool_open(&env->pool, threads ? threads : omm_threads_default()));
    OMM_TRY(omm_compute_init(&env->compute, env->pool, isa));
    const struct sigaction late = {.sa_handler = on_alarm};
    if (sigaction(SIGALRM, &late, NULL) != 0)
        return omm_raise(OMM_ERR_IO, "cannot take the alarm's signal");
    return cli_take_signals(on_signal, 0);
}

void service_end(service_env *env) {
    if (env->compute.k) omm_compute_fini(&env->compute);
    omm_pool_close(env->pool);
    omm_arena_fini(&env->arena);
}

omm_err service_path(const char **out, service_env *env, const char *path) {
    *out = "";
    if (!path[0]) return OMM_OK;
    char joined[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(joined, env->dir, path));
    *out = omm_arena_strdup(&env->arena, joined);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "path %s", joined);
}

omm_err service_pem(omm_buf *out, service_env *env, const char *key, const char *path,
                    bool is_secret) {
    const char *resolved = NULL;
    omm_buf_init(out, OMM_TLS_PEM_BYTES_MAX);
    if (!path[0]) return OMM_OK;
    OMM_TRY(service_path(&resolved, env, path));
    if (is_secret) OMM_TRY(omm_err_about(omm_file_check_private(resolved), key));
    OMM_TRY(omm_buf_reserve(out, OMM_TLS_PEM_BYTES_MAX)); /* no copy of the secret moves */
    return omm_err_about(omm_file_read(out, resolved), key);
}

void service_tell_time(const service_env *env, const omm_buf *certificates) {
    if (certificates->size == 0 || omm_tls_check_time(omm_buf_view(certificates)) == OMM_OK) return;
    omm_log_event(&env->log, OMM_LOG_WARN, "certificate_not_valid",
                  OMM_LOG_STR("detail", omm_err_sentence()),
                  OMM_LOG_STR("then", "nobody whose clock says so connects"));
}

static void tell_rights(const service_env *env, const char *path) {
    char mode[8];
    struct stat st;
    if (stat(path, &st) != 0) return;
    if (!(st.st_mode & (S_IWGRP | S_IRWXO))) return;
    snprintf(mode, sizeof mode, "%04o", (unsigned)st.st_mode & 07777);
    omm_log_event(&env->log, OMM_LOG_WARN, "state_is_open", OMM_LOG_STR("dir", path),
                  OMM_LOG_STR("mode", mode),
                  OMM_LOG_STR("what", st.st_mode & (S_IWGRP | S_IWOTH)
                                          ? "other users of this machine may change what is in it"
                                          : "other users of this machine may read in it"),
                  OMM_LOG_STR("do", "chmod 700, as a folder that is made here has"));
}

/* A file lies in its way, or it is somebody else's folder: starting again does not mend that, as it may a disk that is full. */
static bool is_barred(const char *path) {
    char at[OMM_PATH_MAX], up[OMM_PATH_MAX];
    struct stat st;
    (void)snprintf(at, sizeof at, "%s", path);
    while (stat(at, &st) != 0) {
        if (errno == EACCES) return true;
        if (omm_path_dir(up, at) != OMM_OK || strcmp(up, at) == 0) return false;
        memcpy(at, up, sizeof at);
    }
    return !S_ISDIR(st.st_mode) || (access(at, W_OK | X_OK) != 0 && errno == EACCES);
}

omm_err service_take_state(const service_env *env, const char *state_dir) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, env->dir, state_dir));
    OMM_TRY(place_check_unsealed("state_dir", path));
    omm_err err = omm_dir_make_private(path);
    if (err == OMM_ERR_IO && is_barred(path)) err = OMM_ERR_CONFIG;
    if (err != OMM_OK)
        return omm_raise(err, "state_dir: %s; accepted: a folder, or a path where one can be made",
                         omm_err_sentence());
    tell_rights(env, path);
    return OMM_OK;
}

void service_pem_wipe(omm_buf *pem) {
    omm_free_secret(pem->data, pem->capacity);
    omm_buf_init(pem, 0);
}

omm_err service_public_key(omm_public_key *out, const char *hex, const char *what) {
    if (omm_unhex(out->b, sizeof out->b, hex) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "%s: not 64 lower-case hex digits, as keygen prints", what);
}

omm_err service_duration(uint64_t *out_ms, const char *text, const char *what) {
    static const struct {
        char unit;
        uint64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', SERVICE_DAY_MS}};
    const size_t size = strlen(text), digits = strspn(text, "0123456789");
    for (size_t i = 0; digits > 0 && digits < 9 && size == digits + 1 && i < 4; i++) {
        const uint64_t ms = strtoull(text, NULL, 10) * units[i].ms;
        if (text[digits] != units[i].unit || ms == 0 || ms > 366 * SERVICE_DAY_MS) continue;
        *out_ms = ms;
        return OMM_OK;
    }
    return omm_raise(OMM_ERR_CONFIG, "%s: %s; accepted: 90s, 30m, 6h, 1d, up to 366d", what, text);
}

omm_err service_time_of_day(uint64_t *out_ms, const char *text, const char *what) {
    static const char form[] = "00:00";
    bool ok = strlen(text) == sizeof form - 1;
    for (size_t i = 0; ok && i < sizeof form - 1; i++)
        ok = form[i] == ':' ? text[i] == ':' : text[i] >= '0' && text[i] <= '9';
    const unsigned long hours = ok ? strtoul(text, NULL, 10) : 24;
    const unsigned long minutes = ok ? strtoul(text + 3, NULL, 10) : 60;
    if (hours > 23 || minutes > 59)
        return omm_raise(OMM_ERR_CONFIG, "%s: %s; accepted: 00:00 to 23:59, UTC", what, text);
    *out_ms = (hours * 60 + minutes) * 60000;
    return OMM_OK;
}

void service_describe(const omm_config_field *fields) {
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 20);
    if (omm_config_describe(&text, fields) == OMM_OK)
        printf("\nkeys of the file (paths start from its folder):\n%.*s", (int)text.size,
               (const char *)text.data);
    omm_buf_fini(&text);
}
