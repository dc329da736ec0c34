/* Goal: a key that was said to be saved is there after a power cut, whole; before that there is either no file or all of it,
 * so that nobody is enrolled with a key that is lost.  And the first file that an fsync failed for is the one that is named;
 * nothing is left of what failed, neither a folder nor a file of another name.
 * Method: keys with and without a passphrase are saved on a disk that writes down every operation; for a cut after every one
 * of these, whatever may be left is made and compared.
 */
#include "disk.h"

#include "omm/file.h"
#include "omm/key_lock.h"
#include "omm/sync.h"
#include "omm_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 3, SEEDS = 4, FILE_BYTES = 8192 };

static const char *const s_names[KEYS] = {"node.key", "coordinator.key", "locked.key"};
static omm_key s_keys[KEYS];
static omm_buf s_files[KEYS];  /* as they were saved */
static uint64_t s_saved[KEYS]; /* operations when it was said to be there */
static char s_at[64];

static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: %s\n", s_at);
}

static void path_of(char path[OMM_PATH_MAX], const char *dir, const char *name) {
    char state[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(state, dir, "state"));
    CHECK_OK(omm_dir_make(state));
    CHECK_OK(omm_path_join(path, state, name));
}

static omm_err save(const char *dir, size_t i) {
    char path[OMM_PATH_MAX];
    path_of(path, dir, s_names[i]);
    if (i + 1 < KEYS) return omm_key_save(path, &s_keys[i]);
    return omm_key_save_locked(path, &s_keys[i], omm_bytes_str("correct horse"));
}

static void record(const char *dir) {
    disk_watch(dir);
    for (size_t i = 0; i < KEYS; i++) {
        omm_key_generate(&s_keys[i]);
        CHECK_OK(save(dir, i));
        s_saved[i] = disk_count();
    }
    disk_rest();
    for (size_t i = 0; i < KEYS; i++) {
        char path[OMM_PATH_MAX];
        path_of(path, dir, s_names[i]);
        omm_buf_init(&s_files[i], FILE_BYTES);
        CHECK_OK(omm_file_read(&s_files[i], path));
    }
}

static void check_key(const char *dir, size_t i, bool must_be) {
    char path[OMM_PATH_MAX];
    omm_buf file;
    path_of(path, dir, s_names[i]);
    if (!must_be && !omm_file_exists(path)) return;
    omm_buf_init(&file, FILE_BYTES);
    CHECK_OK(omm_file_read(&file, path));
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&s_files[i])));
    omm_buf_fini(&file);
}

static void cut(uint64_t count, disk_loss loss, uint64_t seed) {
    char dir[64];
    (void)snprintf(s_at, sizeof s_at, "cut after %u, loss %d, seed %u", (unsigned)count, (int)loss,
                   (unsigned)seed);
    disk_folder(dir);
    disk_rebuild(dir, count, loss, seed, disk_everything, NULL);
    for (size_t i = 0; i < KEYS; i++) check_key(dir, i, s_saved[i] <= count);
    CHECK_OK(omm_dir_remove(dir));
}

/* The next one that fails is because of the first. */
static void first_failed_is_named(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    CHECK_OK(save(dir, 0)); /* the folder is there */
    CHECK_OK(omm_sync_check());
    disk_fail(DISK_SYNC, 0, 2, EIO);
    CHECK_ERR(save(dir, 1), OMM_ERR_IO);
    CHECK_ERR(save(dir, 2), OMM_ERR_IO);
    disk_fail(0, 0, 0, 0);
    CHECK_ERR(omm_sync_check(), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), s_names[1]) && !strstr(omm_err_sentence(), s_names[2]));
    CHECK_OK(save(dir, 2)); /* what failed left no file */
    CHECK_ERR(omm_sync_check(), OMM_ERR_IO);
    omm_sync_forget();
    CHECK_OK(omm_sync_check());
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
}

/* A file system that cannot sync has not lost anything: the call fails, and the process may go on. */
static void cannot_be_synced(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    CHECK_OK(save(dir, 0));
    disk_fail(DISK_SYNC, 0, 1, EINVAL);
    CHECK_ERR(save(dir, 1), OMM_ERR_IO);
    CHECK_EQ(disk_failed(), 1);
    CHECK_OK(omm_sync_check());
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
}

/* The name of a folder that was not synced goes again: the next attempt makes it, and syncs it. */
static void folder_that_is_not_kept(void) {
    char dir[64], path[OMM_PATH_MAX];
    disk_folder(dir);
    disk_watch(dir);
    CHECK_OK(omm_path_join(path, dir, "new"));
    disk_fail(DISK_SYNC, 0, 1, EIO);
    CHECK_ERR(omm_dir_make(path), OMM_ERR_IO);
    CHECK(!omm_file_exists(path));
    omm_sync_forget();
    const uint64_t syncs = disk_calls(DISK_SYNC);
    CHECK_OK(omm_dir_make(path));
    CHECK(omm_file_exists(path) && disk_calls(DISK_SYNC) > syncs);
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
}

static omm_err count_file(void *ud, const char *relative) {
    (void)relative;
    ++*(unsigned *)ud;
    return OMM_OK;
}

/* Where files need a name from the beginning, one that could not be written leaves none. */
static void name_from_the_beginning(void) {
    char dir[64], path[OMM_PATH_MAX];
    disk_folder(dir);
    disk_watch(dir);
    CHECK_OK(omm_path_join(path, dir, "file"));
    for (unsigned whole = 0; whole < 2; whole++) {
        omm_file_out out;
        unsigned files = 0;
        disk_fail(DISK_NAME, 0, 1, EOPNOTSUPP);
        CHECK_OK(omm_file_out_open(&out, path, 0600));
        CHECK_EQ(disk_failed(), 1);
        disk_fail(DISK_WRITE, 0, !whole, ENOSPC);
        const omm_err err = omm_file_out_write(&out, omm_bytes_str("text"));
        CHECK_EQ(err, whole ? OMM_OK : OMM_ERR_IO);
        CHECK_OK(omm_dir_walk(dir, count_file, &files));
        CHECK_EQ(files, 1);
        if (whole) CHECK_OK(omm_file_out_finish(&out, true));
        omm_file_out_close(&out);
        files = 0;
        CHECK_OK(omm_dir_walk(dir, count_file, &files));
        CHECK_EQ(files, whole);
        CHECK_EQ(omm_file_exists(path), whole == 1);
    }
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    char dir[64];
    (void)atexit(say_at);
    disk_folder(dir);
    record(dir);
    CHECK_OK(omm_dir_remove(dir));
    const uint64_t count = disk_count();
    uint64_t cuts = 0;
    for (uint64_t i = 0; i <= count; i++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
            for (uint64_t seed = 0; seed < (loss == DISK_LOSE_SOME ? SEEDS : 1); seed++, cuts++)
                cut(i, (disk_loss)loss, seed);
    CHECK(s_saved[KEYS - 1] == count);
    for (size_t i = 0; i < KEYS; i++) omm_buf_fini(&s_files[i]);
    first_failed_is_named();
    cannot_be_synced();
    folder_that_is_not_kept();
    name_from_the_beginning();
    printf("%u operations, %u cuts\n", (unsigned)count, (unsigned)cuts);
    s_at[0] = '\0';
    return 0;
}
