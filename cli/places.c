/* places.c - see places.h.  Source: XDG Base Directory Specification 0.8. */
#include "places.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

omm_err place_path(char out[OMM_PATH_MAX], place where, const char *name) {
    const char *folders[] = {getenv("XDG_CONFIG_HOME"), getenv("XDG_DATA_HOME"),
                             getenv("XDG_STATE_HOME")};
    static const char *const defaults[] = {".config", ".local/share", ".local/state"};
    const char *folder = folders[where], *home = getenv("HOME");
    int size = 0;
    if (folder && folder[0] == '/')
        size = snprintf(out, OMM_PATH_MAX, "%s/openmeshmind/%s", folder, name);
    else if (home && home[0] == '/')
        size = snprintf(out, OMM_PATH_MAX, "%s/%s/openmeshmind/%s", home, defaults[where], name);
    else
        return omm_raise(OMM_ERR_CONFIG, "HOME is not set, so there is no place for %s: name one",
                         name);
    if (size >= (int)OMM_PATH_MAX) return omm_raise(OMM_ERR_TOO_BIG, "path of %s", name);
    return OMM_OK;
}

omm_err place_make_parent(const char *path) {
    char dir[OMM_PATH_MAX];
    OMM_TRY(omm_path_dir(dir, path));
    const mode_t mask = umask(077);
    const omm_err err = omm_dir_make(dir);
    (void)umask(mask);
    return err;
}
