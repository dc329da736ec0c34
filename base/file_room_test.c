/* file_room_test.c - what has no room on its disk is refused with what is needed and what is free, and what nobody can say is not. */
#include "omm/file.h"
#include "omm_test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PETABYTE 1000000000000000u

static bool says(const char *part) {
    const bool found = strstr(omm_err_sentence(), part) != NULL;
    if (!found) fprintf(stderr, "%s\n", omm_err_sentence());
    return found;
}

static void what_is_too_large_is_refused(void) {
    char path[] = "/tmp/omm-room-XXXXXX", file[64], wanted[96];
    uint64_t room = 0;
    CHECK(mkdtemp(path) != NULL);
    snprintf(file, sizeof file, "%s/file", path);
    CHECK(omm_file_room(&room, path));
    CHECK(room < 1000u * PETABYTE);
    CHECK_OK(omm_file_check_room(file, 0));
    CHECK_OK(omm_file_check_room(file, room / 2));
    CHECK_ERR(omm_file_check_room(file, room + PETABYTE), OMM_ERR_IO);
    snprintf(wanted, sizeof wanted, "%s: no room for %.1f MB: ", file,
             (double)(room + PETABYTE) / 1e6);
    CHECK(says(wanted) && says(" MB are free"));
    CHECK_ERR(omm_file_check_room(file, UINT64_MAX), OMM_ERR_IO);
    CHECK(!omm_file_exists(file));
    /* The folder is a file's, the current one too. */
    CHECK_EQ(chdir(path), 0);
    CHECK_ERR(omm_file_check_room("file", UINT64_MAX), OMM_ERR_IO);
    CHECK_EQ(chdir("/"), 0);
    CHECK_OK(omm_dir_remove(path));
}

static void what_nobody_can_say_is_not(void) {
    uint64_t room = 7;
    CHECK(!omm_file_room(&room, "/proc"));
    CHECK(!omm_file_room(&room, "/tmp/omm-room-that-is-not-there"));
    CHECK_EQ(room, 7);
    CHECK_OK(omm_file_check_room("/proc/file", UINT64_MAX));
    CHECK_OK(omm_file_check_room("/tmp/omm-room-that-is-not-there/file", UINT64_MAX));
}

int main(void) {
    what_is_too_large_is_refused();
    what_nobody_can_say_is_not();
    return 0;
}
