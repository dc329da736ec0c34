/* footing.c - see footing.h. */
#include "footing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static omm_err add(footing *f, const char *folder, const char *name) {
    struct stat st;
    char *path = f->files[f->count].path;
    OMM_TRY(omm_path_join(path, folder, name));
    if (stat(path, &st) != 0) return omm_raise(OMM_ERR_IO, "%s: %s", path, strerror(errno));
    f->files[f->count].device = st.st_dev;
    f->files[f->count++].number = st.st_ino;
    return OMM_OK;
}

omm_err footing_open(footing *f, const char *state_dir, const char *bundle_dir) {
    f->count = 0;
    OMM_TRY(add(f, state_dir, "."));
    OMM_TRY(add(f, bundle_dir, "."));
    OMM_TRY(add(f, state_dir, "coordinator.sqlite"));
    OMM_TRY(add(f, state_dir, "enrolment.sqlite"));
    return add(f, state_dir, "audit.jsonl");
}

omm_err footing_check(const footing *f) {
    for (unsigned i = 0; i < f->count; i++) {
        struct stat st;
        const char *path = f->files[i].path;
        if (stat(path, &st) != 0)
            return omm_raise(OMM_ERR_IO,
                             "%s: %s; it was there when this process began: put it back, or mount "
                             "its disk again",
                             path, strerror(errno));
        if (st.st_dev != f->files[i].device || st.st_ino != f->files[i].number)
            return omm_raise(OMM_ERR_IO,
                             "%s is another one than when this process began; put that one back",
                             path);
    }
    return OMM_OK;
}
