/* Goal: chunks that are removed on a disk that fails half way are asked for again, those and no others, and the blob is put
 * together from what then comes.
 * Method: chunks are dropped with the first, second, ... call for removing failing; what is missing is compared with the files.
 */
#include "disk.h"

#include "omm/blobs.h"
#include "omm/file.h"
#include "omm_test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 5000, CHUNKS = 6, SIZE = CHUNK * CHUNKS, KEPT = CHUNKS - 1 };

static uint8_t s_data[SIZE];
static omm_digest s_chunk_digests[CHUNKS];

static omm_blob_plan make_plan(void) {
    for (uint32_t i = 0; i < SIZE; i++) s_data[i] = (uint8_t)(i * 31 + i / 256);
    for (uint32_t i = 0; i < CHUNKS; i++)
        s_chunk_digests[i] = omm_hash(omm_bytes_of(s_data + (size_t)i * CHUNK, CHUNK));
    return (omm_blob_plan){.digest = omm_hash(omm_bytes_of(s_data, SIZE)),
                           .size = SIZE,
                           .chunk_bytes = CHUNK,
                           .chunk_digests = s_chunk_digests,
                           .chunk_count = CHUNKS};
}

static bool put(omm_blobs *blobs, const omm_blob_plan *plan, uint32_t index) {
    bool complete = false;
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, plan, index,
                                 omm_bytes_of(s_data + (size_t)index * CHUNK, CHUNK)));
    return complete;
}

static omm_err count_file(void *ud, const char *relative) {
    (void)relative;
    ++*(size_t *)ud;
    return OMM_OK;
}

static size_t files_in(const char *dir) {
    size_t count = 0;
    CHECK_OK(omm_dir_walk(dir, count_file, &count));
    return count;
}

static omm_err drop(omm_blobs *blobs, const omm_blob_plan *plan, bool all) {
    return all ? omm_blobs_drop_partials(blobs) : omm_blobs_drop_partial(blobs, plan);
}

/* All chunks but the last are there, and the call for removing after `after` others fails; false: there are not as many. */
static bool fails_after(uint64_t after, bool all) {
    const omm_blob_plan plan = make_plan();
    uint32_t missing[CHUNKS];
    size_t count = 0;
    char dir[64];
    omm_blobs *blobs = NULL;
    disk_folder(dir);
    disk_watch(dir);
    CHECK_OK(omm_blobs_open(&blobs, &(omm_blobs_options){.dir = dir, .blob_bytes_max = SIZE}));
    for (uint32_t i = 0; i < KEPT; i++) CHECK(!put(blobs, &plan, i));
    disk_fail(DISK_NAME, after, 1, EIO);
    const omm_err err = drop(blobs, &plan, all);
    const bool failed = disk_failed() > 0;
    disk_fail(0, 0, 0, 0);
    CHECK_EQ(err, failed ? OMM_ERR_IO : OMM_OK);
    CHECK(!failed || strstr(omm_err_sentence(), dir)); /* it says where */
    const size_t files = files_in(dir);
    CHECK_EQ(omm_blobs_total(blobs), files * CHUNK);
    CHECK_OK(omm_blobs_missing(missing, &count, blobs, &plan));
    CHECK_EQ(count, CHUNKS - files);
    for (size_t i = 0; i < count; i++) CHECK_EQ(put(blobs, &plan, missing[i]), i + 1 == count);
    CHECK_EQ(omm_blobs_total(blobs), SIZE);
    omm_blobs_close(blobs);
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
    return failed;
}

int main(void) {
    for (int all = 0; all < 2; all++) {
        uint64_t after = 0;
        while (fails_after(after, all != 0)) after++;
        CHECK(after >= KEPT);
    }
    return 0;
}
