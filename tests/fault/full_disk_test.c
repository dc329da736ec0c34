/* A disk without room, and one that fails.  A federation runs on a disk whose every call for writing fails
 * once with ENOSPC (or three times in a row, or with EROFS): whoever was refused says so and has changed
 * nothing, and the run ends with the same digest.  Then an fsync fails: nobody goes on as if it had not,
 * and a new process goes on from what the disk has kept. */
#include "disk.h"
#include "federation.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/sync.h"
#include "omm_test.h"

#include <errno.h>
#include <string.h>

#define FAULTS 40u

static omm_digest s_expected;
static uint64_t s_writes, s_syncs;

static void make_folder(char out[64]) {
    (void)snprintf(out, 64, "/dev/shm/omm-full-XXXXXX");
    if (mkdtemp(out)) return;
    (void)snprintf(out, 64, "/tmp/omm-full-XXXXXX");
    CHECK(mkdtemp(out));
}

static fed_options disk_options(const char *dir) {
    fed_options options = fed_options_default();
    options.on_disk = options.durable = options.disk_fails = true;
    options.dir = dir;
    return options;
}

/* The calls of a run after it was opened, which is what fails first. */
static void count_calls(void) {
    char dir[64];
    make_folder(dir);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    fed f;
    fed_open(&f, &options);
    uint64_t writes = disk_calls(DISK_WRITE | DISK_NAME), syncs = disk_calls(DISK_SYNC);
    fed_run(&f);
    s_writes = disk_calls(DISK_WRITE | DISK_NAME) - writes;
    s_syncs = disk_calls(DISK_SYNC) - syncs;
    CHECK(s_writes > 200 && s_syncs > 100);
    s_expected = fed_bundle_digest(&f);
    disk_rest();
    fed_close(&f);
}

static void check_end(fed *f) {
    CHECK(omm_coord_is_done(f->coord));
    fed_restart_coordinator(f); /* where even removing failed, a temporary file is left until now */
    omm_digest digest = fed_bundle_digest(f);
    CHECK(omm_digest_equal(&digest, &s_expected));
}

/* A check that fails ends the program: say which fault it was. */
static char s_at[64];
static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: full_disk_test %s\n", s_at);
}

static uint32_t no_room(uint64_t after, uint64_t times, int why) {
    char dir[64];
    make_folder(dir);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    fed f;
    (void)snprintf(s_at, sizeof s_at, "room %u %u %d", (unsigned)after, (unsigned)times, why);
    fed_open(&f, &options);
    disk_fail(DISK_WRITE | DISK_NAME, after, times, why);
    fed_run(&f);
    disk_fail(0, 0, 0, 0);
    check_end(&f);
    uint32_t refused = f.out_of_disk;
    disk_rest();
    fed_close(&f);
    return refused;
}

static void room_comes_back(uint64_t faults) {
    static const int whys[] = {ENOSPC, EROFS, EDQUOT};
    uint64_t refused = 0;
    for (uint64_t i = 0; i < faults; i++)
        refused += no_room(i * s_writes / faults, 1 + 2 * (i % 2), whys[i % 3]);
    CHECK(refused > faults / 2);
}

/* ---- fsync ---- */

static bool everybody(void *ud, const char *name) {
    (void)ud;
    return name[0] != '\0';
}

/* Until an fsync has failed; then nobody does anything any more. */
static void run_until_failed(fed *f) {
    for (uint32_t steps = 0; steps < 100000 && omm_sync_check() == OMM_OK; steps++)
        if (!fed_step(f)) return;
}

static bool failing_sync(uint64_t after) {
    char dir[64], left[64];
    make_folder(dir);
    make_folder(left);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    fed f;
    (void)snprintf(s_at, sizeof s_at, "sync %u", (unsigned)after);
    fed_open(&f, &options);
    options.disk_fails = false;
    disk_fail(DISK_SYNC, after, 1, EIO);
    run_until_failed(&f);
    bool has_failed = omm_sync_check() != OMM_OK;
    disk_rebuild(left, disk_count(), DISK_LOSE_UNSYNCED, 1, everybody, NULL);
    disk_rest();
    fed_close(&f);
    omm_sync_forget();
    options.dir = left;
    fed_open(&f, &options);
    fed_run(&f);
    check_end(&f);
    fed_close(&f);
    return has_failed;
}

static void a_failed_fsync_stops(uint64_t faults) {
    uint64_t stopped = 0;
    for (uint64_t i = 0; i < faults; i++) stopped += failing_sync(i * s_syncs / faults);
    CHECK(stopped > faults / 2);
}

/* full_disk_test [all | room AFTER TIMES ERRNO | sync AFTER], the latter to look at one fault. */
int main(int argc, char **argv) {
    (void)atexit(say_at);
    count_calls();
    if (argc == 5) {
        (void)no_room(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
                      (int)strtol(argv[4], NULL, 10));
    } else if (argc == 3) {
        (void)failing_sync(strtoul(argv[2], NULL, 10));
    } else {
        const bool all = argc == 2 && strcmp(argv[1], "all") == 0;
        room_comes_back(all ? s_writes : FAULTS);
        a_failed_fsync_stops(all ? s_syncs : FAULTS);
        printf("%u calls for writing, %u fsyncs; %s of them failed once\n", (unsigned)s_writes,
               (unsigned)s_syncs, all ? "each" : "a part");
        CHECK_EQ(omm_mem_live(), 0);
    }
    s_at[0] = '\0';
    return 0;
}
