/* canary_files.h - the `canary:` of coordinator.yaml: which files, and how often. */
#ifndef CLI_CANARY_FILES_H
#define CLI_CANARY_FILES_H

#include "service_config.h"

#include "omm/coordinator_canary.h"

typedef struct canary_file {
    omm_config_list shards; /* const char * */
    uint32_t passes, threads;
    double share;
} canary_file;

extern const omm_config_field canary_fields[];

/* Read the files; all of it lives in env->arena.  *out NULL: no shard is named, there are no canaries.
 * Errors: CONFIG (share without shards; a file that is empty or too large), those of omm_file_read. */
OMM_CHECKED omm_err canary_files_load(const omm_coord_canaries **out, service_env *env,
                                      const canary_file *file);

#endif
