/* Goal: a power cut at any moment while a node gets its base model leaves no file under a model's name that is not that model's, and
 * pieces that are taken up again; once it was finished it is there whole, and so is the manifest that was kept of it.
 * Method: manifest and model are written on a disk that writes down every operation, the model in one file and in two; for a cut
 * after every one of these, whatever may be left is made, looked at, and gone on with.  And every fsync fails once: what was written
 * is lost then, and nothing is promised that needs it. */
#include "disk.h"

#include "base_store.h"
#include "omm/sync.h"
#include "omm_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES = 2,
    PARTS = 2,
    BYTES = (int)OMM_CHUNK_BYTES + 77777,
    STEP = 70000,
    LONGEST = 40,
    SEEDS = 4
};

static uint8_t s_model[BYTES];
static omm_digest s_pieces[PIECES];
static const uint64_t s_parts[PARTS] = {100000, BYTES - 100000};
static const char s_manifests[2][LONGEST] = {"the manifest of before",
                                             "what the coordinator has signed"};
static uint64_t s_kept, s_finished; /* operations: the second manifest, the model */
static uint64_t s_syncs;            /* of its end */
static char s_at[80];

static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: %s\n", s_at);
}

static omm_base_model model(size_t parts) {
    for (size_t i = 0; i < sizeof s_model; i++) s_model[i] = (uint8_t)(i * 2654435761u >> 24 | 1);
    for (size_t i = 0; i < PIECES; i++) {
        const size_t at = i * OMM_CHUNK_BYTES, left = sizeof s_model - at;
        s_pieces[i] =
            omm_hash(omm_bytes_of(s_model + at, left < OMM_CHUNK_BYTES ? left : OMM_CHUNK_BYTES));
    }
    return (omm_base_model){.digest = omm_hash(omm_bytes_of(s_model, sizeof s_model)),
                            .size = sizeof s_model,
                            .piece_chunks = 1,
                            .pieces = s_pieces,
                            .piece_count = PIECES,
                            .parts = s_parts,
                            .part_count = (uint32_t)parts};
}

static void put_all(base_store *s) {
    while (!base_store_is_whole(s)) {
        const size_t left = sizeof s_model - (size_t)s->at;
        CHECK_OK(base_store_put(s, omm_bytes_of(s_model + s->at, left < STEP ? left : STEP)));
    }
}

static omm_bytes manifest(size_t i) {
    return omm_bytes_str(s_manifests[i]);
}

static void record(const char *folder, const omm_base_model *base) {
    base_store s;
    for (size_t i = 0; i < 2; i++) CHECK_OK(base_store_put_manifest(folder, manifest(i)));
    s_kept = disk_count();
    CHECK_OK(base_store_open(&s, folder, base));
    put_all(&s);
    s_syncs = disk_calls(DISK_SYNC);
    CHECK_OK(base_store_finish(&s));
    s_finished = disk_count();
    s_syncs = disk_calls(DISK_SYNC) - s_syncs;
    base_store_close(&s);
}

/* Whether all files have their names: where the first one has.  Every one that has is as it must be. */
static bool check_named(const char *folder, const omm_base_model *base) {
    uint64_t begin = 0;
    size_t named = 0;
    bool has_first = false;
    for (size_t i = 0; i < base_store_files(base); i++) {
        char path[OMM_PATH_MAX];
        omm_buf file;
        const size_t bytes = (size_t)base_store_file_bytes(base, i);
        CHECK_OK(base_store_path(path, folder, base, i));
        omm_buf_init(&file, sizeof s_model);
        if (omm_file_exists(path)) {
            CHECK_OK(omm_file_read(&file, path));
            CHECK_EQ(file.size, bytes);
            CHECK(file.data && memcmp(file.data, s_model + begin, bytes) == 0);
            named++;
            has_first |= i == 0;
        }
        omm_buf_fini(&file);
        begin += bytes;
    }
    CHECK(has_first == (named == base_store_files(base)));
    return has_first;
}

/* The last one, or, while that is written, the one before or none. */
static void check_manifest(const char *folder, bool is_kept) {
    omm_buf bytes;
    omm_buf_init(&bytes, LONGEST);
    const omm_err err = base_store_get_manifest(&bytes, folder);
    CHECK(err == OMM_OK || (err == OMM_ERR_NOT_FOUND && !is_kept));
    const omm_bytes found = omm_buf_view(&bytes);
    if (err == OMM_OK)
        CHECK(omm_bytes_equal(found, manifest(1)) ||
              (!is_kept && omm_bytes_equal(found, manifest(0))));
    omm_buf_fini(&bytes);
}

static void go_on(const char *folder, const omm_base_model *base) {
    base_store s;
    CHECK_OK(base_store_open(&s, folder, base));
    put_all(&s);
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    CHECK(check_named(folder, base));
}

static void cut(uint64_t count, disk_loss loss, uint64_t seed, const omm_base_model *base) {
    char dir[64], folder[OMM_PATH_MAX];
    (void)snprintf(s_at, sizeof s_at, "%u files, cut after %u, loss %d, seed %u",
                   (unsigned)base_store_files(base), (unsigned)count, (int)loss, (unsigned)seed);
    disk_folder(dir);
    disk_rebuild(dir, count, loss, seed, disk_everything, NULL);
    CHECK_OK(omm_path_join(folder, dir, "base"));
    check_manifest(folder, count >= s_kept);
    const bool is_there = check_named(folder, base);
    CHECK(is_there || count < s_finished);
    if (!is_there) go_on(folder, base);
    CHECK_OK(omm_dir_remove(dir));
}

/* The `nth` fsync of the end fails, and takes what it was for. */
static void fail_sync(uint64_t nth, const omm_base_model *base) {
    char dir[64], left[64], folder[OMM_PATH_MAX];
    base_store s;
    (void)snprintf(s_at, sizeof s_at, "%u files, fsync %u", (unsigned)base_store_files(base),
                   (unsigned)nth);
    disk_folder(dir);
    disk_folder(left);
    CHECK_OK(omm_path_join(folder, dir, "base"));
    disk_watch(dir);
    CHECK_OK(base_store_open(&s, folder, base));
    put_all(&s);
    disk_fail(DISK_SYNC, nth, 1, EIO);
    CHECK_ERR(base_store_finish(&s), OMM_ERR_IO);
    CHECK_ERR(omm_sync_check(), OMM_ERR_IO);
    base_store_close(&s);
    disk_fail(0, 0, 0, 0);
    disk_rebuild(left, disk_count(), DISK_LOSE_DATA, 0, disk_everything, NULL);
    disk_rest();
    omm_sync_forget();
    CHECK_OK(omm_dir_remove(dir));
    CHECK_OK(omm_path_join(folder, left, "base"));
    if (!check_named(folder, base)) go_on(folder, base);
    CHECK_OK(omm_dir_remove(left));
}

static void cut_all(size_t parts) {
    const omm_base_model base = model(parts);
    char dir[64], folder[OMM_PATH_MAX];
    disk_folder(dir);
    CHECK_OK(omm_path_join(folder, dir, "base"));
    disk_watch(dir);
    record(folder, &base);
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
    for (uint64_t count = 0; count <= s_finished; count++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
            for (uint64_t seed = 0; seed < (loss == DISK_LOSE_SOME ? SEEDS : 1); seed++)
                cut(count, (disk_loss)loss, seed, &base);
    for (uint64_t nth = 0, count = s_syncs; nth < count; nth++) fail_sync(nth, &base);
    printf("%u files: %u operations\n", (unsigned)base_store_files(&base), (unsigned)s_finished);
    s_at[0] = '\0';
}

int main(void) {
    (void)atexit(say_at);
    cut_all(0);
    cut_all(PARTS);
    return 0;
}
