/* node_model.c - see node_model.h. */
#include "node_model.h"

#include "omm/base_fetch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define ARGUMENT_BYTES_MAX 65536u
#define GIGABYTE ((uint64_t)1000000000)

/* Returns only where that is not possible: then the process goes on as it is. */
static void begin_anew(void) {
    omm_buf text;
    char *arguments[ARGUMENTS_MAX + 1] = {NULL};
    size_t count = 0;
    omm_buf_init(&text, ARGUMENT_BYTES_MAX);
    if (omm_file_read(&text, "/proc/self/cmdline") == OMM_OK && text.size > 0 &&
        text.data[text.size - 1] == '\0') {
        for (size_t at = 0; at < text.size && count < ARGUMENTS_MAX;) {
            arguments[count] = (char *)text.data + at;
            at += strlen(arguments[count++]) + 1;
        }
        if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0 && count < ARGUMENTS_MAX)
            (void)execv("/proc/self/exe", arguments);
    }
    omm_buf_fini(&text);
}

omm_err node_get_model(const char **model, service_env *env, const node_file *file,
                       const node_model_asker *asker) {
    omm_base_fetch_options options = {.name = file->name,
                                      .url = file->coordinator,
                                      .tls_certificate = asker->tls_certificate,
                                      .key = asker->key,
                                      .token = asker->token,
                                      .run_id = file->run_id[0] ? file->run_id : NULL,
                                      .work_bits_max = node_file_limits(file).work_bits_max,
                                      .mirrors = file->mirrors.items,
                                      .mirror_count = file->mirrors.count,
                                      .private_mirrors = file->private_mirrors,
                                      .bytes_max = file->max_model_gb * GIGABYTE,
                                      .answer_ms = file->answer_ms,
                                      .stall_s = file->mirror_stall_s,
                                      .guest = asker->rules,
                                      .guest_root = getenv("OMM_GUEST_ROOT"),
                                      .clock = omm_clock_system(),
                                      .log = &env->log,
                                      .stop = service_stop()};
    omm_base_fetch_result result;
    *model = NULL;
    OMM_TRY(service_public_key(&options.coordinator, file->coordinator_key, "coordinator_key"));
    OMM_TRY(service_path(&options.state_dir, env, file->state_dir));
    OMM_TRY(omm_base_fetch(&result, &options));
    if (!result.path[0]) return OMM_OK;
    if (result.used_mirrors) begin_anew();
    *model = omm_arena_strdup(&env->arena, result.path);
    return *model ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "path %s", result.path);
}
