#include "omm/blobs.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK 1000u
#define SIZE 10500u /* 11 chunks, the last of 500 bytes */
#define CHUNKS 11u

static bool has(const omm_blobs *blobs, const omm_digest *digest) {
    bool is_there = false;
    CHECK_OK(omm_blobs_has(&is_there, blobs, digest));
    return is_there;
}

static char s_dir[] = "/tmp/omm_blobs_test_XXXXXX";
static uint8_t s_data[SIZE];
static omm_digest s_chunk_digests[CHUNKS];

static omm_bytes chunk(uint32_t index) {
    size_t from = (size_t)index * CHUNK;
    return omm_bytes_of(s_data + from, SIZE - from < CHUNK ? SIZE - from : CHUNK);
}

static omm_blob_plan make_plan(void) {
    for (uint32_t i = 0; i < SIZE; i++) s_data[i] = (uint8_t)(i * 31 + i / 256);
    for (uint32_t i = 0; i < CHUNKS; i++) s_chunk_digests[i] = omm_hash(chunk(i));
    return (omm_blob_plan){.digest = omm_hash(omm_bytes_of(s_data, SIZE)),
                           .size = SIZE,
                           .chunk_bytes = CHUNK,
                           .chunk_digests = s_chunk_digests,
                           .chunk_count = CHUNKS};
}

static omm_blobs *open_blobs(const char *dir) {
    omm_blobs *blobs;
    omm_blobs_options options = {.dir = dir, .blob_bytes_max = 1 << 20, .durable = dir != NULL};
    CHECK_OK(omm_blobs_open(&blobs, &options));
    return blobs;
}

static omm_err put(omm_blobs *blobs, const omm_blob_plan *plan, uint32_t index) {
    bool complete;
    return omm_blobs_put_chunk(&complete, blobs, plan, index, chunk(index));
}

static size_t missing_count(omm_blobs *blobs, const omm_blob_plan *plan) {
    uint32_t missing[CHUNKS];
    size_t count;
    CHECK_OK(omm_blobs_missing(missing, &count, blobs, plan));
    for (size_t i = 1; i < count; i++) CHECK(missing[i - 1] < missing[i]);
    return count;
}

static void check_whole(omm_blobs *blobs, const omm_blob_plan *plan) {
    omm_buf out;
    omm_buf_init(&out, SIZE);
    CHECK_OK(omm_blobs_get(&out, blobs, &plan->digest));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_of(s_data, SIZE)));
    omm_buf_fini(&out);
}

static void test_whole_blobs(const char *dir) {
    omm_blobs *blobs = open_blobs(dir);
    omm_digest a, b, empty, none = {{0}};
    omm_buf out;
    uint64_t size;
    omm_buf_init(&out, 100);
    CHECK_OK(omm_blobs_put(&a, blobs, omm_bytes_str("hello")));
    omm_digest want = omm_hash(omm_bytes_str("hello"));
    CHECK(omm_digest_equal(&a, &want));
    CHECK_OK(omm_blobs_put(&b, blobs, omm_bytes_str("world!")));
    CHECK_OK(omm_blobs_put(NULL, blobs, omm_bytes_str("hello")));
    CHECK_OK(omm_blobs_put(&empty, blobs, omm_bytes_of(NULL, 0)));
    CHECK_EQ(omm_blobs_total(blobs), 11);
    CHECK(has(blobs, &a));
    CHECK(!has(blobs, &none));
    CHECK_OK(omm_blobs_get(&out, blobs, &a));
    CHECK_OK(omm_blobs_get(&out, blobs, &empty));
    CHECK_OK(omm_blobs_get(&out, blobs, &b));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("helloworld!")));
    CHECK_ERR(omm_blobs_get(&out, blobs, &none), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_blobs_size(&size, blobs, &b));
    CHECK_EQ(size, 6);
    omm_buf_clear(&out);
    CHECK_OK(omm_blobs_get_range(&out, blobs, &b, 2, 3));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("rld")));
    CHECK_ERR(omm_blobs_get_range(&out, blobs, &b, 4, 3), OMM_ERR_SIZE);
    CHECK_ERR(omm_blobs_get_range(&out, blobs, &b, 7, 0), OMM_ERR_SIZE);
    CHECK_ERR(omm_blobs_get_range(&out, blobs, &none, 0, 0), OMM_ERR_NOT_FOUND);
    CHECK_EQ(out.size, 3);
    CHECK_OK(omm_blobs_remove(blobs, &b));
    CHECK_OK(omm_blobs_remove(blobs, &b));
    CHECK_EQ(omm_blobs_total(blobs), 5);
    CHECK(!has(blobs, &b));
    omm_blobs_close(blobs);
    if (dir) { /* what was there is there again */
        blobs = open_blobs(dir);
        CHECK_EQ(omm_blobs_total(blobs), 5);
        CHECK(has(blobs, &a));
        CHECK_OK(omm_blobs_remove(blobs, &a));
        omm_blobs_close(blobs);
    }
    omm_buf_fini(&out);
}

static void test_chunks(const char *dir) {
    static const uint32_t order[CHUNKS] = {10, 3, 0, 7, 1, 9, 2, 8, 4, 6, 5};
    omm_blob_plan plan = make_plan();
    omm_blobs *blobs = open_blobs(dir);
    uint64_t before = omm_blobs_total(blobs);
    bool complete = true;
    CHECK_EQ(missing_count(blobs, &plan), CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, order[i], chunk(order[i])));
        CHECK_EQ(complete, i == CHUNKS - 1);
        if (i == 4) CHECK_OK(put(blobs, &plan, order[2])); /* again */
        CHECK_EQ(missing_count(blobs, &plan), CHUNKS - 1 - i);
    }
    check_whole(blobs, &plan);
    CHECK_EQ(omm_blobs_total(blobs), before + SIZE);
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, 0, chunk(0))); /* and again */
    CHECK(complete);
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    CHECK_EQ(omm_blobs_total(blobs), before);
    CHECK_OK(put(blobs, &plan, 3));
    CHECK_EQ(omm_blobs_total(blobs), before + CHUNK);
    CHECK_OK(omm_blobs_drop_partial(blobs, &plan));
    CHECK_OK(omm_blobs_drop_partial(blobs, &plan));
    CHECK_EQ(omm_blobs_total(blobs), before);
    CHECK_EQ(missing_count(blobs, &plan), CHUNKS);
    omm_blobs_close(blobs);
}

static void test_refusals(const char *dir) {
    omm_blob_plan plan = make_plan(), bad;
    omm_blobs *blobs = open_blobs(dir);
    uint32_t missing[CHUNKS];
    size_t count;
    bool complete = false;
    uint8_t flipped[CHUNK];
    for (unsigned bit = 0; bit < 8 * CHUNK; bit += 97) {
        memcpy(flipped, s_data, CHUNK);
        flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 0, omm_bytes_of(flipped, CHUNK)),
                  OMM_ERR_REFUSED_DIGEST);
    }
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 0, omm_bytes_of(s_data, CHUNK - 1)),
              OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 10, omm_bytes_of(s_data, CHUNK)),
              OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, CHUNKS, chunk(0)), OMM_ERR_REFUSED_SIZE);
    CHECK(!complete);
    CHECK_EQ(omm_blobs_total(blobs), 0);
    bad = plan;
    bad.size = (1 << 20) + 1;
    CHECK_ERR(omm_blobs_missing(missing, &count, blobs, &bad), OMM_ERR_REFUSED_SIZE);
    bad = plan;
    bad.chunk_count--;
    CHECK_ERR(omm_blobs_missing(missing, &count, blobs, &bad), OMM_ERR_SIZE);
    bad = plan;
    bad.size = 0;
    bad.chunk_count = 0;
    CHECK_ERR(omm_blobs_missing(missing, &count, blobs, &bad), OMM_ERR_SIZE);
    bad = plan; /* chunks as announced, but another whole: everything of it is dropped */
    bad.digest.b[0] ^= 1;
    for (uint32_t i = 0; i + 1 < CHUNKS; i++) CHECK_OK(put(blobs, &bad, i));
    CHECK_ERR(put(blobs, &bad, CHUNKS - 1), OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(omm_blobs_total(blobs), 0);
    CHECK_EQ(missing_count(blobs, &bad), CHUNKS);
    CHECK(!has(blobs, &bad.digest));
    omm_blobs_close(blobs);
}

/* Two peers announce one blob in contradicting ways: neither meets the chunks of the other. */
static void test_owners(const char *dir) {
    omm_blob_plan plan = make_plan();
    omm_blob_plan liar = plan;
    omm_blob_plan other = plan;
    omm_blobs *blobs = open_blobs(dir);
    liar.owner.b[0] = 1;
    liar.size = CHUNK;
    liar.chunk_count = 1;
    other.owner.b[0] = 2;
    CHECK_EQ(missing_count(blobs, &liar), 1);
    CHECK_EQ(missing_count(blobs, &plan), CHUNKS);
    for (uint32_t i = 0; i < 5; i++) CHECK_OK(put(blobs, &plan, i));
    CHECK_OK(put(blobs, &other, 0));
    CHECK_EQ(missing_count(blobs, &liar), 1);
    CHECK_OK(omm_blobs_drop_partial(blobs, &other));
    CHECK_ERR(put(blobs, &liar, 0), OMM_ERR_REFUSED_DIGEST); /* one chunk is not the whole */
    CHECK_EQ(missing_count(blobs, &plan), CHUNKS - 5);
    for (uint32_t i = 5; i < CHUNKS; i++) CHECK_OK(put(blobs, &plan, i));
    check_whole(blobs, &plan);
    CHECK_EQ(missing_count(blobs, &other), 0);
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    CHECK_OK(put(blobs, &other, 3));
    CHECK_OK(put(blobs, &plan, 4));
    CHECK_OK(omm_blobs_drop_partials(blobs));
    CHECK_EQ(omm_blobs_total(blobs), 0);
    CHECK_EQ(missing_count(blobs, &other), CHUNKS);
    omm_blobs_close(blobs);
}

static void test_limits(const char *dir) {
    omm_blob_plan plan = make_plan();
    omm_blobs_options options = {.dir = dir, .blob_bytes_max = SIZE, .total_bytes_max = SIZE + 5};
    omm_blobs *blobs;
    omm_buf out;
    omm_digest d;
    CHECK_OK(omm_blobs_open(&blobs, &options));
    uint8_t big[SIZE + 1] = {0};
    CHECK_ERR(omm_blobs_put(&d, blobs, omm_bytes_of(big, sizeof big)), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_blobs_put(&d, blobs, omm_bytes_str("sixsix")));
    for (uint32_t i = 0; i + 1 < CHUNKS; i++) CHECK_OK(put(blobs, &plan, i));
    CHECK_ERR(put(blobs, &plan, CHUNKS - 1), OMM_ERR_REFUSED_SIZE); /* one byte too many */
    CHECK_ERR(omm_blobs_put(NULL, blobs, omm_bytes_of(s_data, 600)), OMM_ERR_TOO_BIG);
    omm_buf_init(&out, 3);
    CHECK_ERR(omm_blobs_get(&out, blobs, &d), OMM_ERR_TOO_BIG);
    omm_buf_fini(&out);
    CHECK_OK(omm_blobs_remove(blobs, &d));
    CHECK_OK(omm_blobs_put(&d, blobs, omm_bytes_str("five5")));
    CHECK_OK(put(blobs, &plan, CHUNKS - 1)); /* and now to the last byte */
    check_whole(blobs, &plan);
    CHECK_OK(omm_blobs_remove(blobs, &d));
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    omm_blobs_close(blobs);
}

static void path_of(char out[OMM_PATH_MAX], const char *kind, const omm_digest *digest,
                    const char *tail) {
    char hex[OMM_DIGEST_HEX_SIZE], two[4] = "";
    omm_digest_hex(hex, digest);
    if (strcmp(kind, "blobs") == 0) snprintf(two, sizeof two, "%.2s/", hex);
    snprintf(out, OMM_PATH_MAX, "%s/%s/%s%s%s", s_dir, kind, two, hex, tail);
}

/* Damage on disk is found when a blob is read and when chunks are taken up again. */
static void test_damage_on_disk(void) {
    char path[OMM_PATH_MAX];
    omm_blob_plan plan = make_plan();
    omm_digest folder = omm_blob_plan_name(&plan);
    omm_blobs *blobs = open_blobs(s_dir);
    omm_buf out;
    for (uint32_t i = 0; i < 5; i++) CHECK_OK(put(blobs, &plan, i));
    omm_blobs_close(blobs);
    path_of(path, "partial", &folder, "/000002");
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(s_data, CHUNK), 0644)); /* another's bytes */
    path_of(path, "partial", &folder, "/000003");
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(s_data, 10), 0644)); /* cut */
    path_of(path, "partial", &folder, "/000004.tmp.1.1");
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(s_data, 10), 0644)); /* half-written */
    blobs = open_blobs(s_dir);
    CHECK(!omm_file_exists(path));
    CHECK_EQ(missing_count(blobs, &plan), CHUNKS - 3);
    CHECK_EQ(omm_blobs_total(blobs), 3 * CHUNK);
    for (uint32_t i = 0; i < CHUNKS; i++) CHECK_OK(put(blobs, &plan, i));
    check_whole(blobs, &plan);
    path_of(path, "blobs", &plan.digest, "");
    s_data[77] ^= 1;
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(s_data, SIZE), 0644));
    omm_buf_init(&out, SIZE);
    CHECK_ERR(omm_blobs_get(&out, blobs, &plan.digest), OMM_ERR_DIGEST);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    omm_blobs_close(blobs);
}

/* Killed between the blob and the end of its chunks: found whole, leftovers dropped when asked. */
static void test_killed_after_the_blob(void) {
    char path[OMM_PATH_MAX];
    bool complete = false;
    omm_blob_plan plan = make_plan();
    omm_digest folder = omm_blob_plan_name(&plan);
    omm_blobs *blobs = open_blobs(s_dir);
    for (uint32_t i = 0; i < 5; i++) CHECK_OK(put(blobs, &plan, i));
    omm_blobs_close(blobs);
    blobs = open_blobs(s_dir);
    CHECK_OK(omm_blobs_put(NULL, blobs, omm_bytes_of(s_data, SIZE)));
    CHECK_EQ(missing_count(blobs, &plan), 0);
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, 7, chunk(7)));
    CHECK(complete);
    path_of(path, "partial", &folder, "");
    CHECK(!omm_file_exists(path));
    CHECK_EQ(omm_blobs_total(blobs), SIZE);
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    omm_blobs_close(blobs);
}

/* Killed with all chunks but without the blob: one of them more, and it is put together. */
static void test_killed_before_the_blob(void) {
    char path[OMM_PATH_MAX];
    bool complete = false;
    omm_blob_plan plan = make_plan();
    omm_digest folder = omm_blob_plan_name(&plan);
    omm_blobs *blobs = open_blobs(s_dir);
    for (uint32_t i = 0; i < CHUNKS - 1; i++) CHECK_OK(put(blobs, &plan, i));
    omm_blobs_close(blobs);
    path_of(path, "partial", &folder, "/000010");
    CHECK_OK(omm_file_write_fast(path, chunk(CHUNKS - 1), 0644));
    blobs = open_blobs(s_dir);
    CHECK_EQ(missing_count(blobs, &plan), 1);
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, CHUNKS - 1, chunk(CHUNKS - 1)));
    CHECK(complete);
    check_whole(blobs, &plan);
    CHECK_EQ(omm_blobs_total(blobs), SIZE);
    CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
    omm_blobs_close(blobs);
}

/* A child puts chunks and tells; killed at any moment, what it told is there and the rest can go on. */
static void upload_and_tell(int fd) {
    omm_blob_plan plan = make_plan();
    omm_blobs *blobs = open_blobs(s_dir);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (put(blobs, &plan, i) != OMM_OK) _exit(1);
        if (write(fd, &i, sizeof i) != sizeof i) _exit(1);
    }
    _exit(0);
}

static void test_kill_9(void) {
    omm_blob_plan plan = make_plan();
    for (unsigned delay_us = 0; delay_us < 6000; delay_us += 700) {
        int fds[2];
        uint32_t told = 0, index;
        CHECK_EQ(pipe(fds), 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) upload_and_tell(fds[1]);
        close(fds[1]);
        CHECK_EQ(read(fds[0], &index, sizeof index), (int64_t)sizeof index);
        usleep(delay_us);
        CHECK_EQ(kill(pid, SIGKILL), 0);
        do {
            told = index + 1;
        } while (read(fds[0], &index, sizeof index) == sizeof index);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
        close(fds[0]);
        omm_blobs *blobs = open_blobs(s_dir);
        CHECK(missing_count(blobs, &plan) <= CHUNKS - told);
        for (uint32_t i = 0; i < CHUNKS; i++) CHECK_OK(put(blobs, &plan, i));
        check_whole(blobs, &plan);
        CHECK_OK(omm_blobs_remove(blobs, &plan.digest));
        CHECK_EQ(omm_blobs_total(blobs), 0);
        omm_blobs_close(blobs);
    }
}

static omm_err use_everything(const char *dir, const omm_blob_plan *plan) {
    omm_blobs *blobs;
    omm_blobs_options options = {.dir = dir, .blob_bytes_max = 1 << 20};
    omm_buf out;
    bool complete;
    OMM_TRY(omm_blobs_open(&blobs, &options));
    omm_buf_init(&out, SIZE);
    omm_err err = omm_blobs_put(NULL, blobs, omm_bytes_str("some blob"));
    for (uint32_t i = 0; err == OMM_OK && i < CHUNKS; i++) {
        err = omm_blobs_put_chunk(&complete, blobs, plan, i, chunk(i));
    }
    if (err == OMM_OK) err = omm_blobs_get(&out, blobs, &plan->digest);
    if (err == OMM_OK) CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_of(s_data, SIZE)));
    omm_buf_fini(&out);
    omm_blobs_close(blobs);
    return err;
}

/* After each failed allocation a new try goes on from what is there, and nothing leaks. */
static void test_no_memory(const char *dir) {
    omm_blob_plan plan = make_plan();
    for (size_t nth = 1;; nth++) {
        size_t live = omm_mem_live();
        omm_mem_fail_nth(nth);
        omm_err err = use_everything(dir, &plan);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(nth < 300);
    }
}

/* ---- small blobs, in a database ---- */

#define SMALL_MAX 1000u

static omm_blobs *open_small(omm_db **db, const char *dir) {
    char path[300];
    char inner[300];
    omm_blobs *blobs;
    if (dir) CHECK_OK(omm_dir_make(dir));
    (void)snprintf(path, sizeof path, "%s/small.sqlite", dir ? dir : "");
    (void)snprintf(inner, sizeof inner, "%s/blobs", dir ? dir : "");
    omm_db_options options = {.path = dir ? path : NULL, .application_id = 7};
    CHECK_OK(omm_db_open(db, &options));
    omm_blobs_options blobs_options = {.dir = dir ? inner : NULL,
                                       .blob_bytes_max = 1 << 20,
                                       .total_bytes_max = 4000,
                                       .durable = dir != NULL,
                                       .db = *db,
                                       .small_bytes_max = SMALL_MAX};
    CHECK_OK(omm_blobs_open(&blobs, &blobs_options));
    return blobs;
}

static void close_small(omm_blobs *blobs, omm_db *db) {
    omm_blobs_close(blobs);
    omm_db_close(db);
}

static omm_blob_plan plan_of_one(omm_digest *chunk_digest, omm_bytes data) {
    *chunk_digest = omm_hash(data);
    return (omm_blob_plan){.digest = *chunk_digest,
                           .size = data.size,
                           .chunk_bytes = 100000,
                           .chunk_digests = chunk_digest,
                           .chunk_count = 1};
}

static void check_small(omm_blobs *blobs, const omm_digest *digest, omm_bytes want) {
    omm_buf out;
    omm_buf_init(&out, SIZE);
    uint64_t size = 0;
    CHECK_OK(omm_blobs_size(&size, blobs, digest));
    CHECK_EQ(size, want.size);
    CHECK_OK(omm_blobs_get(&out, blobs, digest));
    CHECK(omm_bytes_equal(omm_buf_view(&out), want));
    CHECK_OK(omm_blobs_get_range(&out, blobs, digest, 1, want.size - 1));
    CHECK_EQ(out.size, 2 * want.size - 1);
    CHECK_ERR(omm_blobs_get_range(&out, blobs, digest, 1, want.size), OMM_ERR_SIZE);
    omm_buf_fini(&out);
}

/* Rows come and go with the database's transactions; what is over the limit is a file as ever. */
static void test_small(const char *dir) {
    omm_db *db;
    omm_blobs *blobs = open_small(&db, dir);
    omm_bytes data = omm_bytes_of(s_data, SMALL_MAX);
    omm_digest digest, other;
    omm_blob_plan plan = plan_of_one(&digest, data);
    uint32_t missing = 7;
    size_t count = 0;
    bool complete = false;
    CHECK_OK(omm_blobs_missing(&missing, &count, blobs, &plan));
    CHECK_EQ(count, 1);
    CHECK_EQ(missing, 0);
    CHECK_OK(omm_db_begin(db));
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, 0, data));
    CHECK(complete);
    check_small(blobs, &digest, data);
    CHECK_EQ(omm_blobs_total(blobs), SMALL_MAX);
    omm_db_rollback(db);
    CHECK_OK(omm_blobs_undone(blobs));
    CHECK_EQ(omm_blobs_total(blobs), 0);
    CHECK(!has(blobs, &digest));
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, 0, data));
    complete = false;
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &plan, 0, data)); /* again */
    CHECK(complete);
    CHECK_OK(omm_blobs_missing(&missing, &count, blobs, &plan));
    CHECK_EQ(count, 0);
    CHECK_OK(omm_blobs_put(&other, blobs, omm_bytes_of(s_data, SMALL_MAX + 1))); /* a file */
    CHECK_OK(omm_blobs_drop_partials(blobs));
    if (dir) {
        close_small(blobs, db);
        blobs = open_small(&db, dir);
    }
    CHECK_EQ(omm_blobs_total(blobs), 2 * SMALL_MAX + 1);
    check_small(blobs, &digest, data);
    check_small(blobs, &other, omm_bytes_of(s_data, SMALL_MAX + 1));
    CHECK_ERR(omm_blobs_put(NULL, blobs, omm_bytes_of(s_data, 2000)), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_blobs_remove(blobs, &digest));
    CHECK_OK(omm_blobs_remove(blobs, &digest)); /* missing is no error */
    CHECK_OK(omm_blobs_remove(blobs, &other));
    CHECK_EQ(omm_blobs_total(blobs), 0);
    CHECK(!has(blobs, &digest));
    close_small(blobs, db);
}

static void test_small_refusals(void) {
    omm_db *db;
    omm_blobs *blobs = open_small(&db, NULL);
    omm_bytes data = omm_bytes_of(s_data, 500);
    omm_digest digest;
    bool complete = false;
    omm_blob_plan plan = plan_of_one(&digest, data);
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 1, data), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 0, omm_bytes_of(s_data, 499)),
              OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 0, omm_bytes_of(s_data + 1, 500)),
              OMM_ERR_REFUSED_DIGEST);
    plan.digest = omm_hash(omm_bytes_str("another")); /* the manifest contradicts itself */
    CHECK_ERR(omm_blobs_put_chunk(&complete, blobs, &plan, 0, data), OMM_ERR_REFUSED_DIGEST);
    CHECK(!complete);
    CHECK_EQ(omm_blobs_total(blobs), 0);
    close_small(blobs, db);
}

static int64_t rows_of(omm_db *db) {
    omm_rows *rows = NULL;
    bool more = false;
    CHECK_OK(
        omm_db_query(&rows, db, "SELECT COUNT(*) FROM small_blob WHERE id > ?", OMM_DB_INT(0)));
    CHECK_OK(omm_rows_next(&more, rows));
    const int64_t count = omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return count;
}

/* A row is what is small and comes at once: not a small blob in two chunks, nor a large one in one. */
static void test_small_chunks(void) {
    omm_db *db;
    omm_blobs *blobs = open_small(&db, NULL);
    const omm_bytes halves[] = {omm_bytes_of(s_data, 300), omm_bytes_of(s_data + 300, 300)};
    const omm_digest digests[] = {omm_hash(halves[0]), omm_hash(halves[1])};
    const omm_bytes large = omm_bytes_of(s_data, SMALL_MAX + 1);
    omm_digest digest;
    bool complete = true;
    const omm_blob_plan two = {.digest = omm_hash(omm_bytes_of(s_data, 600)),
                               .size = 600,
                               .chunk_bytes = 300,
                               .chunk_digests = digests,
                               .chunk_count = 2};
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &two, 0, halves[0]));
    CHECK(!complete && !has(blobs, &two.digest));
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &two, 1, halves[1]));
    CHECK(complete);
    check_small(blobs, &two.digest, omm_bytes_of(s_data, 600));
    const omm_blob_plan one = plan_of_one(&digest, large);
    CHECK_OK(omm_blobs_put_chunk(&complete, blobs, &one, 0, large));
    CHECK(complete);
    check_small(blobs, &digest, large);
    CHECK_EQ(rows_of(db), 0);
    CHECK_OK(omm_blobs_put(&digest, blobs, halves[0]));
    CHECK_EQ(rows_of(db), 1);
    close_small(blobs, db);
}

static void test_small_damaged(void) {
    omm_db *db;
    omm_blobs *blobs = open_small(&db, NULL);
    omm_digest digest;
    omm_buf out;
    omm_buf_init(&out, SIZE);
    CHECK_OK(omm_blobs_put(&digest, blobs, omm_bytes_of(s_data, 500)));
    CHECK_OK(omm_db_run(db, "UPDATE small_blob SET bytes = zeroblob(?)", OMM_DB_INT(500)));
    CHECK_ERR(omm_blobs_get(&out, blobs, &digest), OMM_ERR_DIGEST);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
    close_small(blobs, db);
}

static void test_bad_folder(void) {
    omm_blobs *blobs;
    omm_blobs_options options = {.dir = "/proc/nowhere", .blob_bytes_max = 10};
    CHECK(omm_blobs_open(&blobs, &options) != OMM_OK);
    omm_blobs_close(NULL);
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    const char *const dirs[] = {NULL, s_dir};
    for (unsigned i = 0; i < 2; i++) {
        test_whole_blobs(dirs[i]);
        test_refusals(dirs[i]);
        test_chunks(dirs[i]);
        test_owners(dirs[i]);
        test_limits(dirs[i]);
    }
    CHECK_OK(omm_dir_remove(s_dir));
    test_damage_on_disk();
    test_killed_after_the_blob();
    test_killed_before_the_blob();
    CHECK_OK(omm_dir_remove(s_dir));
    test_kill_9();
    test_no_memory(NULL);
    test_no_memory(s_dir);
    test_bad_folder();
    CHECK_OK(omm_dir_remove(s_dir));
    test_small(NULL);
    test_small(s_dir);
    test_small_refusals();
    test_small_chunks();
    test_small_damaged();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
