/* A disk without room, and one that fails.  A federation runs on a disk whose every call for writing fails
 * once with ENOSPC (or three times in a row, or with EROFS): whoever was refused says so and has changed
 * nothing, and the run ends with the same digest.  Then an fsync fails: nobody goes on as if it had not,
 * and a new process goes on from what the disk has kept.  The same at each call of sealing the bundle. */
#include "disk.h"
#include "federation.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/sync.h"
#include "omm_test.h"

#include <errno.h>
#include <string.h>

/* What is run, and how many faults of each kind are tried where not all are. */
typedef struct scene {
    const char *name;
    uint32_t nodes, rounds, values_cols;
    uint32_t faults;
} scene;
static const scene s_scenes[] = {{"small", 3, 2, 0, 40}, {"chunks", 1, 1, 75000, 3}};
static const scene *s_scene;

static omm_digest s_expected;
static uint64_t s_writes, s_syncs;
/* Calls for writing until round 0 is over, and until round 1 is open. */
static uint64_t s_over, s_next;
/* Calls for naming (a file that is written needs one) until round 0 is open, and until its first verdict. */
static uint64_t s_offered, s_judged;

static fed_options disk_options(const char *dir) {
    fed_options options = fed_options_durable(dir);
    options.nodes = s_scene->nodes;
    options.rounds = s_scene->rounds;
    options.values_cols = s_scene->values_cols;
    options.disk_fails = true;
    return options;
}

static void note_event(void *ud, const omm_coord_event *event) {
    (void)ud;
    const uint64_t calls = disk_calls(DISK_WRITE | DISK_NAME), names = disk_calls(DISK_NAME);
    if (event->kind == OMM_COORD_EVENT_OPENED && event->round == 0) s_offered = names;
    if (event->kind == OMM_COORD_EVENT_SUBMISSION && s_judged == 0) s_judged = names;
    if (event->kind == OMM_COORD_EVENT_PUBLISHED && event->round == 0) s_over = calls;
    if (event->kind == OMM_COORD_EVENT_OPENED && event->round == 1) s_next = calls;
}

/* The calls of a run after it was opened, which is what fails first. */
static void count_calls(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    options.on_event = note_event;
    fed f;
    fed_open(&f, &options);
    uint64_t writes = disk_calls(DISK_WRITE | DISK_NAME), syncs = disk_calls(DISK_SYNC);
    const uint64_t names = disk_calls(DISK_NAME);
    s_offered = s_judged = s_over = s_next = 0;
    fed_run(&f);
    s_writes = disk_calls(DISK_WRITE | DISK_NAME) - writes;
    s_syncs = disk_calls(DISK_SYNC) - syncs;
    s_offered -= names;
    s_judged -= names;
    s_over -= writes;
    s_next = s_scene->rounds > 1 ? s_next - writes : s_over;
    CHECK(s_writes > 80 && s_syncs > 40);
    CHECK(s_scene->values_cols ? s_offered < s_judged : s_over < s_next);
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

static uint32_t no_room(unsigned calls, uint64_t after, uint64_t times, int why) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    fed f;
    (void)snprintf(s_at, sizeof s_at, "%d room %u %u %u %d", (int)(s_scene - s_scenes), calls,
                   (unsigned)after, (unsigned)times, why);
    fed_open(&f, &options);
    disk_fail(calls, after, times, why);
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
        refused +=
            no_room(DISK_WRITE | DISK_NAME, i * s_writes / faults, 1 + 2 * (i % 2), whys[i % 3]);
    CHECK(refused > faults / 2);
    /* A payload's way, from the offer to the verdict (a file is named twice: one of the two), and from
     * one round to the next, when nobody asks: each is tried. */
    for (uint64_t i = s_offered; i < s_judged; i += 2) (void)no_room(DISK_NAME, i, 1, ENOSPC);
    for (uint64_t i = s_over; i < s_next; i++) (void)no_room(DISK_WRITE | DISK_NAME, i, 1, ENOSPC);
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
    disk_folder(dir);
    disk_folder(left);
    disk_watch(dir);
    fed_options options = disk_options(dir);
    fed f;
    (void)snprintf(s_at, sizeof s_at, "%d sync %u", (int)(s_scene - s_scenes), (unsigned)after);
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

/* ---- sealing ---- */

static void unseal(const fed *f) {
    static const char *const names[] = {"bundle/manifest.json", "bundle/manifest.json.minisig"};
    char path[OMM_PATH_MAX];
    for (size_t i = 0; i < 2; i++) CHECK_OK(omm_file_remove(fed_path(f, path, names[i])));
}

/* What fails leaves no manifest, or one that is complete; and the next attempt seals it.  False: it did not need that call. */
static bool fail_to_seal(fed *f, unsigned calls, uint64_t after, int why) {
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    omm_digest digest;
    (void)snprintf(s_at, sizeof s_at, "sealing %u %u %d", calls, (unsigned)after, why);
    disk_fail(calls, after, 1, why);
    const omm_err err = fed_try_to_seal(&digest, f->bundle, 0);
    CHECK(err == OMM_ERR_IO || (err == OMM_OK && calls != DISK_SYNC));
    CHECK_EQ(disk_failed(), 1);
    CHECK_EQ(omm_sync_check() != OMM_OK, calls == DISK_SYNC);
    omm_sync_forget();
    disk_fail(0, 0, 0, 0);
    (void)fed_path(f, dir, "bundle");
    if (omm_file_exists(fed_path(f, path, "bundle/manifest.json"))) fed_verify(f, dir);
    (void)fed_seal(f->bundle, 0);
    fed_verify(f, dir);
    unseal(f);
    return err != OMM_OK;
}

static void fail_while_sealing(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = fed_options_durable(dir);
    options.nodes = options.rounds = 1;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    (void)fed_seal(f.bundle, 0); /* makes a folder, once */
    unseal(&f);
    uint64_t writes = disk_calls(DISK_WRITE | DISK_NAME), syncs = disk_calls(DISK_SYNC);
    (void)fed_seal(f.bundle, 0);
    writes = disk_calls(DISK_WRITE | DISK_NAME) - writes;
    syncs = disk_calls(DISK_SYNC) - syncs;
    unseal(&f);
    CHECK(writes > 10 && syncs > 8);
    uint64_t refused = 0;
    for (uint64_t i = 0; i < writes; i++)
        refused += fail_to_seal(&f, DISK_WRITE | DISK_NAME, i, ENOSPC);
    CHECK(refused > writes / 2);
    for (uint64_t i = 0; i < syncs; i++) CHECK(fail_to_seal(&f, DISK_SYNC, i, EIO));
    disk_rest();
    fed_close(&f);
    printf("sealing: %u calls for writing, %u fsyncs; each of them failed once\n", (unsigned)writes,
           (unsigned)syncs);
}

static void fail_all(bool all) {
    count_calls();
    room_comes_back(all ? s_writes : s_scene->faults);
    a_failed_fsync_stops(all ? s_syncs : s_scene->faults);
    printf("%s: %u calls for writing, %u fsyncs; %s of them failed once, and all between two "
           "rounds and all that name "
           "something between an offer and a verdict (%u and %u)\n",
           s_scene->name, (unsigned)s_writes, (unsigned)s_syncs, all ? "each" : "a part",
           (unsigned)(s_next - s_over), (unsigned)(s_judged - s_offered));
    CHECK_EQ(omm_mem_live(), 0);
}

/* full_disk_test [all | sealing | SCENE room CALLS AFTER TIMES ERRNO | SCENE sync AFTER], the latter to look at one fault. */
int main(int argc, char **argv) {
    (void)atexit(say_at);
    if (argc > 3) {
        s_scene = &s_scenes[strtoul(argv[1], NULL, 10) % 2];
        count_calls();
    }
    if (argc == 7) {
        (void)no_room((unsigned)strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10),
                      strtoul(argv[5], NULL, 10), (int)strtol(argv[6], NULL, 10));
    } else if (argc == 4) {
        (void)failing_sync(strtoul(argv[3], NULL, 10));
    } else if (argc == 2 && strcmp(argv[1], "sealing") == 0) {
        fail_while_sealing();
    } else {
        for (s_scene = s_scenes; s_scene < s_scenes + 2; s_scene++)
            fail_all(argc == 2 && strcmp(argv[1], "all") == 0);
        fail_while_sealing();
    }
    s_at[0] = '\0';
    return 0;
}
