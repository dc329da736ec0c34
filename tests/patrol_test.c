/* Goal: whatever happens to a file of a round that is over, the coordinator says which one, once, and that it is back;
 * and of files as they were it never says anything.
 * Method: a federation with an honest and a refused submission; every file that it left is changed, cut, removed and made a
 * folder in turn.
 */
#include "patrol.h"

#include "omm/file.h"
#include "omm_test.h"
#include "peer.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ACCEPTED: one in the round of the refusal, two in the others. */
enum { ROUNDS = 3, ACCEPTED = 5, STEPS_MAX = 1000, NAMES_MAX = 64 };

static patrol s_patrol;
static uint64_t s_now_ms = 1;

static struct {
    unsigned damaged, mended;
    char path[OMM_BUNDLE_PATH_MAX];
} s_said;

static void tell(void *ud, uint32_t round, const char *path, const char *why) {
    (void)ud;
    CHECK(round < ROUNDS);
    s_said.damaged += why != NULL;
    s_said.mended += why == NULL;
    (void)snprintf(s_said.path, sizeof s_said.path, "%s", path);
}

static struct {
    char names[NAMES_MAX][OMM_PATH_MAX];
    unsigned count;
} s_files;

/* Those that are looked at; the state before the first round is in no round's line. */
static omm_err list_file(void *ud, const char *path) {
    static const char *const folders[] = {"offers/",   "submissions/", "receipts/",   "adapters/",
                                          "payloads/", "refused/",     "rounds.jsonl"};
    (void)ud;
    if (strstr(path, "r000.") && strncmp(path, "adapters/", 9) == 0) return OMM_OK;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (strncmp(path, folders[i], strlen(folders[i])) != 0) continue;
        CHECK(s_files.count < NAMES_MAX);
        (void)snprintf(s_files.names[s_files.count++], OMM_PATH_MAX, "%s", path);
    }
    return OMM_OK;
}

static void step(void) {
    s_now_ms += PATROL_STEP_MS;
    patrol_step(&s_patrol, s_now_ms);
}

/* All rounds, from the first one on. */
static void pass(void) {
    int steps = 0;
    for (step(); s_patrol.next.round < ROUNDS || s_patrol.fd >= 0; step())
        CHECK(steps++ < STEPS_MAX);
}

/* The next one, an hour later; what is damaged may be looked at before it begins. */
static void pass_anew(void) {
    const uint64_t began_ms = s_patrol.began_ms;
    s_now_ms += PATROL_PASS_MS;
    for (int steps = 0; s_patrol.began_ms == began_ms; step()) CHECK(steps++ < STEPS_MAX);
    pass();
}

static void until_mended(size_t left) {
    for (int i = 0; i < STEPS_MAX && s_patrol.damaged_count > left; i++) step();
    CHECK_EQ(s_patrol.damaged_count, left);
}

/* Two at once are each told once, whichever is mended first. */
static void check_two(const char *dir) {
    static const char *const names[] = {"offers/r000.env", "offers/r001.env"};
    static const char *const others[] = {"offers/r000.aside", "offers/r001.aside"};
    char path[2][OMM_PATH_MAX], aside[2][OMM_PATH_MAX];
    for (int first = 0; first < 2; first++) {
        memset(&s_said, 0, sizeof s_said);
        for (int i = 0; i < 2; i++) {
            CHECK_OK(omm_path_join(path[i], dir, names[i]));
            CHECK_OK(omm_path_join(aside[i], dir, others[i]));
            CHECK_EQ(rename(path[i], aside[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pass_anew();
            CHECK(s_said.damaged == 2 && s_said.mended == 0 && s_patrol.damaged_count == 2);
            CHECK(strcmp(patrol_damaged(&s_patrol), names[1]) == 0); /* the last that was found */
        }
        CHECK_EQ(rename(aside[first], path[first]), 0);
        until_mended(1);
        CHECK(s_said.mended == 1 && strcmp(s_said.path, names[first]) == 0);
        CHECK(strcmp(patrol_damaged(&s_patrol), names[1 - first]) == 0);
        CHECK_EQ(rename(aside[1 - first], path[1 - first]), 0);
        until_mended(0);
        CHECK(s_said.damaged == 2 && s_said.mended == 2);
        CHECK(patrol_damaged(&s_patrol)[0] == '\0');
    }
}

/* More than are remembered: these are told again in the next pass, and all are mended. */
static void check_many(const char *dir) {
    const unsigned count = s_files.count - 1; /* without the lines, which are of all rounds */
    char path[OMM_PATH_MAX], aside[OMM_PATH_MAX + 8];
    CHECK(count > PATROL_DAMAGED_MAX);
    for (int back = 0; back < 2; back++) {
        for (unsigned i = 0; i < s_files.count; i++) {
            if (strcmp(s_files.names[i], "rounds.jsonl") == 0) continue;
            CHECK_OK(omm_path_join(path, dir, s_files.names[i]));
            (void)snprintf(aside, sizeof aside, "%s.aside", path);
            CHECK_EQ(back ? rename(aside, path) : rename(path, aside), 0);
        }
        memset(&s_said, 0, sizeof s_said);
        if (back) break;
        pass_anew();
        CHECK(s_said.damaged == count && s_patrol.damaged_count == PATROL_DAMAGED_MAX);
        memset(&s_said, 0, sizeof s_said);
        pass_anew();
        CHECK(s_said.damaged == count - PATROL_DAMAGED_MAX && s_said.mended == 0);
    }
    until_mended(0);
    CHECK(s_said.damaged == 0 && s_said.mended == PATROL_DAMAGED_MAX);
}

static void check_file(const char *dir, const char *name, int how) {
    char path[OMM_PATH_MAX];
    omm_buf good, bad;
    omm_buf_init(&good, 1u << 20);
    omm_buf_init(&bad, 1u << 20);
    CHECK_OK(omm_path_join(path, dir, name));
    CHECK_OK(omm_file_read(&good, path));
    CHECK_OK(omm_buf_append(&bad, good.data, good.size));
    if (how == 0) bad.data[bad.size / 2] ^= 1;
    if (how == 1) bad.size--;
    if (how >= 2) CHECK_EQ(unlink(path), 0);
    if (how == 3) CHECK_EQ(mkdir(path, 0700), 0); /* it opens, and cannot be read */
    if (how < 2) CHECK_OK(omm_file_write(path, omm_buf_view(&bad), 0600));
    memset(&s_said, 0, sizeof s_said);
    pass_anew();
    if (s_said.damaged == 0) fprintf(stderr, "%s, %d\n", name, how);
    const bool lines = strcmp(name, "rounds.jsonl") == 0; /* of all rounds */
    CHECK(s_said.damaged == 1 || (lines && s_said.damaged == ROUNDS));
    CHECK(strncmp(s_said.path, name, strlen(name) - 4) ==
          0); /* a name that is gone does not say whether .env or .bin */
    CHECK(s_patrol.damaged_count > 0 && s_said.mended == 0);
    if (how == 3) CHECK_EQ(rmdir(path), 0);
    CHECK_OK(omm_file_write(path, omm_buf_view(&good), 0600));
    until_mended(0); /* without another pass */
    CHECK_EQ(s_said.mended, s_said.damaged);
    omm_buf_fini(&good);
    omm_buf_fini(&bad);
}

/* That this process has no descriptor left says nothing about a file. */
static void without_descriptors(void) {
    struct rlimit limit, before;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 0;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < ROUNDS * ACCEPTED; i++) step();
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(s_said.damaged == 0);
}

/* One piece in so long, however often it is asked. */
static void at_its_rate(void) {
    s_now_ms += PATROL_PASS_MS;
    step();
    const patrol_place next = s_patrol.next;
    patrol_step(&s_patrol, s_now_ms + PATROL_STEP_MS - 1);
    CHECK(s_patrol.next.round == next.round && s_patrol.next.item == next.item);
    patrol_step(&s_patrol, s_now_ms + PATROL_STEP_MS);
    CHECK(s_patrol.next.round != next.round || s_patrol.next.item != next.item);
    pass();
}

int main(void) {
    peer p;
    char dir[OMM_PATH_MAX];
    fed_options options = peer_options();
    options.rounds = ROUNDS;
    options.quorum = 2;
    peer_open(&p, &options);
    fed_path(&p.f, dir, "bundle");
    CHECK_OK(patrol_open(&s_patrol, p.f.coord, dir, tell, NULL));
    step(); /* no round is over */
    CHECK(s_said.damaged == 0);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    p.s.tokens = UINT32_MAX;
    peer_give(&p);
    omm_key stranger;
    omm_key_generate(&stranger); /* who is refused without a receipt */
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &stranger);
    peer_submit(&p);
    fed_run(&p.f);
    without_descriptors();
    pass();
    at_its_rate();
    CHECK(s_said.damaged == 0);
    CHECK_OK(omm_dir_walk(dir, list_file, NULL));
    /* offer, master, adapter; submission, receipt and payload; two refused, one with its receipt; the lines once */
    CHECK_EQ(s_files.count, ROUNDS * 3 + ACCEPTED * 3 + 2 + 1 + 1);
    check_two(dir);
    check_many(dir);
    for (unsigned i = 0; i < s_files.count; i++)
        for (int how = 0; how < 4; how++) check_file(dir, s_files.names[i], how);
    patrol_close(&s_patrol);
    peer_close(&p);
    return 0;
}
