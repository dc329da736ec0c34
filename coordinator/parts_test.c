/* Small parts of the service, each alone: the files that a run stands on, and how much a batch may hold. */
#include "footing.h"
#include "held.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char s_folder[] = "/tmp/omm-parts-XXXXXX";

static char *path_of(char path[OMM_PATH_MAX], const char *name) {
    CHECK_OK(omm_path_join(path, s_folder, name));
    return path;
}

static void expect_lost(const footing *f, const char *path, const char *why) {
    CHECK_ERR(footing_check(f), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), path) && strstr(omm_err_sentence(), why));
}

/* Each of the five, gone, replaced by a copy with the same bytes, and back. */
static void test_footing(void) {
    static const char *const names[] = {"state", "bundle", "state/coordinator.sqlite",
                                        "state/enrolment.sqlite", "state/audit.jsonl"};
    char path[OMM_PATH_MAX], away[OMM_PATH_MAX], state[OMM_PATH_MAX], bundle[OMM_PATH_MAX];
    footing f;
    CHECK_EQ(mkdir(path_of(state, names[0]), 0700), 0);
    CHECK_EQ(mkdir(path_of(bundle, names[1]), 0700), 0);
    CHECK_ERR(footing_open(&f, state, bundle), OMM_ERR_IO); /* they are to be there */
    for (size_t i = 2; i < FOOTING_FILES; i++)
        CHECK_OK(omm_file_write(path_of(path, names[i]), omm_bytes_str("x"), 0600));
    CHECK_OK(footing_open(&f, state, bundle));
    CHECK_OK(footing_check(&f));
    path_of(away, "away");
    for (size_t i = 0; i < FOOTING_FILES; i++) {
        path_of(path, names[i]);
        CHECK_EQ(rename(path, away), 0);
        expect_lost(&f, path, "it was there when this process began");
        CHECK_ERR(footing_open(&(footing){0}, state, bundle), OMM_ERR_IO); /* nor can one begin */
        CHECK(strstr(omm_err_sentence(), path));
        if (i < 2)
            CHECK_EQ(mkdir(path, 0700), 0);
        else
            CHECK_OK(omm_file_write(path, omm_bytes_str("x"), 0600));
        expect_lost(&f, path, "is another one than when this process began");
        CHECK_EQ(i < 2 ? rmdir(path) : unlink(path), 0);
        CHECK_EQ(rename(away, path), 0);
        CHECK_OK(footing_check(&f));
    }
}

static void count_sent(void *ud, const held_answer *answer) {
    (void)answer;
    ++*(unsigned *)ud;
}

/* A batch ends with its last exchange, or when it holds too many bytes; the next one begins empty. */
static void test_held(void) {
    unsigned sent = 0;
    static held h;
    CHECK(held_has_room(&h));
    h.count = HELD_MAX - 1;
    h.bytes = HELD_BYTES_MAX - 1;
    CHECK(held_has_room(&h));
    h.count = HELD_MAX;
    CHECK(!held_has_room(&h));
    h.count = 0;
    h.bytes = HELD_BYTES_MAX;
    CHECK(!held_has_room(&h));
    held_send(&h, count_sent, &sent);
    CHECK(held_has_room(&h) && h.bytes == 0 && sent == 0);
}

int main(void) {
    CHECK(mkdtemp(s_folder));
    test_footing();
    test_held();
    CHECK_OK(omm_dir_remove(s_folder));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
