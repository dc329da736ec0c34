/* Goal: wherever the power is cut while a bundle is sealed, what is found is a sealed bundle that verifies, or one that is not sealed
 * and can be, to the same run digest; after omm_bundle_seal has returned, the former.
 * Method: a small run is written down with its sealing; for a cut after every operation of that, whatever may be left is made, and
 * sealed where it is not.  The same while it is sealed once more, as after an attempt that failed in its last step.  Then a kill after
 * every operation, a second sealing at another time, and cuts within that one. */
#include "disk.h"
#include "federation.h"

#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = 3, LOSSES = DISK_LOSE_SOME + 1 };

static fed s_fed; /* the run; its layout is what verifies the others */
static omm_digest s_expected;
static uint64_t s_begin, s_sealed,
    s_end; /* of the sealing, and of the one after it, in operations */
static char s_at[80];

static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: %s\n", s_at);
}

static void record(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = fed_options_durable(dir);
    options.nodes = options.rounds = 1;
    fed_open(&s_fed, &options);
    fed_run(&s_fed);
    s_begin = disk_count();
    s_expected = fed_seal(s_fed.bundle, 1000);
    s_sealed = disk_count();
    const omm_digest again = fed_seal(s_fed.bundle, 1500);
    s_end = disk_count();
    disk_rest();
    CHECK(omm_digest_equal(&again, &s_expected));
    CHECK(s_sealed - s_begin > 10 && s_end - s_sealed > 10);
}

/* Sealed in the end: as it is found, or now.  True when it was found so. */
static bool seal_where_it_is_not(const char *bundle_dir, uint64_t wall_ms) {
    bool sealed = false;
    omm_digest digest;
    CHECK_OK(omm_bundle_sealed(&sealed, &digest, bundle_dir, s_fed.run.run_id));
    if (!sealed) {
        omm_bundle *bundle = NULL;
        CHECK_OK(omm_bundle_open(&bundle, bundle_dir, true));
        digest = fed_seal(bundle, wall_ms);
        omm_bundle_close(bundle);
    }
    CHECK(omm_digest_equal(&digest, &s_expected));
    return sealed;
}

static void cut(uint64_t count, disk_loss loss, uint64_t seed, bool is_promised) {
    char dir[64], path[OMM_PATH_MAX];
    disk_folder(dir);
    disk_rebuild(dir, count, loss, seed, disk_everything, NULL);
    CHECK_OK(omm_path_join(path, dir, "bundle"));
    const bool was_sealed = seal_where_it_is_not(path, 2000);
    CHECK(was_sealed || !is_promised);
    fed_verify(&s_fed, path);
    CHECK_OK(omm_dir_remove(dir));
}

static uint64_t cut_all(void) {
    uint64_t cuts = 0;
    for (uint64_t count = s_begin; count <= s_end; count++)
        for (int loss = DISK_LOSE_NOTHING; loss < LOSSES; loss++)
            for (uint64_t seed = 0; seed < (loss == DISK_LOSE_SOME ? SEEDS : 1); seed++, cuts++) {
                (void)snprintf(s_at, sizeof s_at, "cut after %u, loss %d, seed %u", (unsigned)count,
                               loss, (unsigned)seed);
                cut(count, (disk_loss)loss, seed, count == s_sealed || count == s_end);
            }
    return cuts;
}

/* Killed after `count` operations, sealed again a second later, and cut after every third operation of that. */
static uint64_t kill_at(uint64_t count) {
    char dir[64], path[OMM_PATH_MAX];
    uint64_t cuts = 0;
    disk_folder(dir);
    disk_rebuild(dir, count, DISK_LOSE_NOTHING, 0, disk_everything, NULL);
    CHECK_OK(omm_path_join(path, dir, "bundle"));
    disk_go_on(dir, count);
    const bool was_sealed = seal_where_it_is_not(path, 3000);
    const uint64_t end = disk_count();
    disk_rest();
    for (uint64_t at = count + 1; at <= end && !was_sealed; at += 3, cuts++) {
        const int loss = (int)(at % LOSSES);
        (void)snprintf(s_at, sizeof s_at, "kill after %u, cut after %u, loss %d", (unsigned)count,
                       (unsigned)at, loss);
        cut(at, (disk_loss)loss, at, at == end);
    }
    CHECK_OK(omm_dir_remove(dir));
    return cuts;
}

int main(void) {
    (void)atexit(say_at);
    record();
    const uint64_t cuts = cut_all();
    uint64_t behind = 0;
    for (uint64_t count = s_sealed; count-- > s_begin;)
        behind += kill_at(count); /* from the last */
    printf("%u operations, %u cuts, %u behind a kill\n", (unsigned)(s_end - s_begin),
           (unsigned)cuts, (unsigned)behind);
    fed_close(&s_fed);
    s_at[0] = '\0';
    return 0;
}
