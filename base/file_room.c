/* file_room.c - what a disk still takes: asked before work whose result would have no place. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool omm_file_room(uint64_t *bytes, const char *folder) {
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0 || disk.f_blocks == 0) return false; /* /proc has no blocks */
    /* What is kept back is kept back for root. */
    const uint64_t blocks = geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
    const uint64_t size = disk.f_frsize ? disk.f_frsize : disk.f_bsize;
    *bytes = size && blocks > UINT64_MAX / size ? UINT64_MAX : blocks * size;
    return true;
}

omm_err base_no_room(const char *path, uint64_t wanted, uint64_t room) {
    const bool is_small = wanted < 1000000;
    return omm_raise(OMM_ERR_IO, "%s%sno room for %.*f MB: %.*f MB are free", path ? path : "",
                     path ? ": " : "", is_small ? 3 : 1, (double)wanted / 1e6, is_small ? 3 : 1,
                     (double)room / 1e6);
}

omm_err omm_file_check_room(const char *path, uint64_t bytes) {
    char folder[OMM_PATH_MAX];
    uint64_t room = 0;
    OMM_TRY(omm_path_dir(folder, path));
    if (!omm_file_room(&room, folder) || room >= bytes) return OMM_OK;
    return base_no_room(path, bytes, room);
}
