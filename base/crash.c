/* crash.c - the marker is written and synced before the signal, so the stage kills only once. */
#include "omm/crash.h"

#include "omm/file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const s_stages[] = {
#define XX(name, help) #name,
    OMM_CRASH_MAP(XX)
#undef XX
};

omm_err omm_crash_check(const char *stage) {
    if (!stage || !stage[0]) return OMM_OK;
    char names[512] = "";
    for (size_t i = 0; i < sizeof s_stages / sizeof s_stages[0]; i++) {
        if (strcmp(stage, s_stages[i]) == 0) return OMM_OK;
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", s_stages[i]);
    }
    return omm_raise(OMM_ERR_CONFIG, "%s=%s is no stage; accepted: %s", OMM_CRASH_VARIABLE, stage,
                     names);
}

void omm_crash_point(const char *state_dir, const char *wanted, const char *stage) {
    if (!state_dir || !wanted || strcmp(wanted, stage) != 0) return;
    char name[64];
    (void)snprintf(name, sizeof name, "crashed-%s", stage);
    char path[OMM_PATH_MAX];
    if (omm_path_join(path, state_dir, name) != OMM_OK || omm_file_exists(path)) return;
    if (omm_file_write(path, omm_bytes_str(stage), 0644) != OMM_OK) return;
    (void)kill(getpid(), SIGKILL);
}
