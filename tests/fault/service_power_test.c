/* Goal: after a power cut at any moment the service's own files are what was said to be kept, or what was being written, and never
 * a part of it: the run's seed, the timetable, the counts of bytes, a rollback that an operator was told of, the evidence against a
 * node that is in quarantine for its canary.
 * Method: each is written on a disk that writes down every operation; for a cut after every one of these, whatever may be left is
 * made and taken up as a service does at its start. */
#include "disk.h"
#include "federation.h"

#include "omm/coordinator_canary.h"
#include "omm/run_config.h"
#include "omm_test.h"
#include "timetable.h"
#include "wires.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 3, ENOUGH_STEPS = 3000 };

/* Operations from which on cuts are tried, and after which what a scene has written is promised. */
static uint64_t s_begin, s_end;

static bool is_promised(uint64_t count) {
    return count >= s_end;
}

static void state_of(char out[OMM_PATH_MAX], const char *dir) {
    CHECK_OK(omm_path_join(out, dir, "coordinator"));
}

/* ---- the run's seed ---- */

static omm_seed s_seed;

static void draw_seed(const char *dir) {
    char state[OMM_PATH_MAX];
    state_of(state, dir);
    CHECK_OK(omm_run_seed_keep(&s_seed, state));
    s_end = disk_count();
}

static void look_at_seed(const char *dir, uint64_t count) {
    char state[OMM_PATH_MAX];
    omm_seed seed, again;
    state_of(state, dir);
    CHECK_OK(omm_run_seed_keep(&seed, state));
    CHECK_OK(omm_run_seed_keep(&again, state));
    CHECK(memcmp(again.b, seed.b, sizeof seed.b) == 0);
    if (is_promised(count)) CHECK(memcmp(seed.b, s_seed.b, sizeof seed.b) == 0);
}

/* ---- the timetable ---- */

enum { NOTES = 4 };
static const uint32_t s_notes[NOTES][2] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}}; /* round, stage */
static uint64_t s_noted[NOTES];                                             /* from here on */
static omm_fake_clock s_clock;

static timetable open_times(const char *dir) {
    timetable t;
    char state[OMM_PATH_MAX];
    state_of(state, dir);
    CHECK_OK(omm_dir_make(state));
    CHECK_OK(timetable_open(&t, state, omm_clock_fake(&s_clock), 0, false, 0, "a"));
    return t;
}

static void note_times(const char *dir) {
    s_clock = (omm_fake_clock){.now_ms = 5000, .wall_ms = 5000};
    timetable t = open_times(dir);
    for (uint32_t i = 0; i < NOTES; i++) {
        CHECK_OK(timetable_note(&t, s_notes[i][0], s_notes[i][1], 100 + i));
        s_noted[i] = s_end = disk_count();
    }
}

/* The last stage that was noted goes on, or the one that was being noted. */
static void look_at_times(const char *dir, uint64_t count) {
    const timetable t = open_times(dir);
    uint32_t promised = 0, found = 0;
    for (uint32_t i = 0; i < NOTES; i++) {
        uint64_t ms = 0;
        if (s_noted[i] <= count) promised = i + 1;
        if (!timetable_stage_ms(&ms, &t, s_notes[i][0], s_notes[i][1])) continue;
        CHECK_EQ(ms, 100 + i);
        found = i + 1;
    }
    CHECK(found == promised || found == promised + 1);
}

/* ---- counts of bytes ---- */

enum { WIRE_NODES = 2, WIRE_NUMBERS = 4, WIRE_BYTES = 8 * WIRE_NUMBERS * WIRE_NODES };
static omm_run_node s_wire_nodes[WIRE_NODES];
static const omm_run_record s_wire_run = {.nodes = s_wire_nodes, .node_count = WIRE_NODES};

static void put_counts(const char *dir, uint64_t first) {
    char state[OMM_PATH_MAX], path[OMM_PATH_MAX];
    uint8_t bytes[WIRE_BYTES];
    for (size_t i = 0; i < WIRE_BYTES / 8; i++) omm_put_u64(bytes + 8 * i, first + i);
    state_of(state, dir);
    CHECK_OK(omm_dir_make(state));
    CHECK_OK(omm_path_join(path, state, "traffic"));
    CHECK_OK(omm_file_write(path, omm_bytes_of(bytes, sizeof bytes), 0644));
}

static wires *open_wires(const char *dir) {
    char state[OMM_PATH_MAX];
    wires *w = NULL;
    state_of(state, dir);
    CHECK_OK(wires_open(&w, &s_wire_run, WIRE_NODES, state));
    return w;
}

/* The later ones are kept in place of what was there. */
static void keep_counts(const char *dir) {
    put_counts(dir, 2000);
    wires *w = open_wires(dir);
    put_counts(dir, 1000);
    s_begin = disk_count();
    CHECK_OK(wires_keep(w));
    s_end = disk_count();
    wires_close(w);
}

static void look_at_counts(const char *dir, uint64_t count) {
    wires *w = open_wires(dir);
    const uint64_t first = wires_of(w, 0).up;
    CHECK(first == 2000 || (first == 1000 && !is_promised(count)));
    for (size_t i = 0; i < WIRE_NODES; i++) {
        CHECK_EQ(wires_of(w, i).up, first + WIRE_NUMBERS * i);
        CHECK_EQ(wires_of(w, i).down, first + WIRE_NUMBERS * i + 1);
    }
    wires_close(w);
}

/* ---- a rollback ---- */

static omm_digest s_digests[2]; /* of a run without, and with it */

static fed_options rollback_options(const char *dir) {
    fed_options options = fed_options_durable(dir);
    options.nodes = 1;
    return options;
}

/* To its end; does the second round begin with the first one's adapter? */
static bool is_rolled_back(omm_digest *digest, fed *f) {
    uint32_t count = 0;
    fed_run(f);
    const omm_coord_round *rounds = omm_coord_history(&count, f->coord);
    CHECK_EQ(count, 2);
    *digest = fed_bundle_digest(f);
    return rounds[1].begins == 0;
}

static bool is_between_rounds(const fed *f) {
    const omm_coord_status status = omm_coord_get_status(f->coord);
    return status.round == 1 && status.state == OMM_COORD_JOINING;
}

static void roll_back(const char *dir) {
    char plain[64];
    fed f;
    fed_options options = rollback_options(dir);
    uint32_t next = 0;
    fed_open(&f, &options);
    while (!is_between_rounds(&f)) CHECK(fed_step(&f));
    s_begin = disk_count();
    CHECK_OK(omm_coord_rollback(&next, &f.coord_deadline_ms, f.coord, f.now_ms, -1));
    s_end = disk_count();
    CHECK_EQ(next, 1);
    CHECK(is_rolled_back(&s_digests[1], &f));
    disk_rest();
    fed_close(&f);
    disk_folder(plain);
    options = rollback_options(plain);
    fed_open(&f, &options);
    CHECK(!is_rolled_back(&s_digests[0], &f));
    fed_close(&f);
    CHECK(!omm_digest_equal(&s_digests[0], &s_digests[1]));
}

static void look_at_rollback(const char *dir, uint64_t count) {
    fed f;
    omm_digest digest;
    fed_options options = rollback_options(dir);
    fed_open(&f, &options);
    const bool is = is_rolled_back(&digest, &f);
    CHECK(is || !is_promised(count));
    CHECK(omm_digest_equal(&digest, &s_digests[is]));
    disk_rest();
    fed_close(&f);
}

/* ---- evidence against a node ---- */

enum { CHEATER = 1, EVIDENCE_FILES = 5 };

static omm_digest s_evidence; /* of names and bytes */

static void lie(void *ud, uint32_t node, omm_training_result *result, float *values,
                omm_buf *step_digests) {
    (void)ud;
    (void)result;
    (void)step_digests;
    if (node == CHEATER) values[3] += 0.5f;
}

static fed_options canary_options(const char *dir) {
    fed_options options = fed_options_durable(dir);
    options.nodes = options.listed = 3;
    options.canaries = options.replays_by_hand = true;
    options.share = 0.9;
    options.rounds = 4;
    options.cheat = lie;
    return options;
}

typedef struct folder {
    char path[OMM_PATH_MAX];
    uint32_t files;
    omm_hasher hasher;
} folder;

static omm_err add_file(void *ud, const char *relative) {
    folder *f = ud;
    char path[OMM_PATH_MAX];
    omm_digest digest;
    OMM_TRY(omm_path_join(path, f->path, relative));
    OMM_TRY(omm_hash_file(&digest, path));
    omm_hasher_update(&f->hasher, omm_bytes_of(relative, strlen(relative) + 1));
    omm_hasher_update(&f->hasher, omm_bytes_of(digest.b, sizeof digest.b));
    f->files++;
    return OMM_OK;
}

static omm_digest evidence_of(const fed *f) {
    folder in = {.files = 0};
    omm_hasher_init(&in.hasher);
    (void)fed_path(f, in.path, "coordinator/canaries/failed");
    CHECK_OK(omm_dir_walk(in.path, add_file, &in));
    CHECK_EQ(in.files, EVIDENCE_FILES);
    return omm_hasher_final(&in.hasher);
}

static bool is_out(const fed *f) {
    return omm_coord_get_node(f->coord, f->of_node[CHEATER]).quarantined;
}

static void judge_canaries(const char *dir) {
    fed f;
    const fed_options options = canary_options(dir);
    fed_open(&f, &options);
    for (uint32_t i = 0; i < ENOUGH_STEPS && f.failed == 0; i++) {
        CHECK(fed_step(&f));
        if (omm_coord_get_status(f.coord).canaries_waiting == 0) continue;
        s_begin = disk_count();
        fed_replay(&f);
        s_end = disk_count();
    }
    disk_rest();
    CHECK(f.failed == 1 && is_out(&f));
    s_evidence = evidence_of(&f);
    fed_close(&f);
}

/* Who is out is so with all that it is out for; else the verdict is found again. */
static void look_at_evidence(const char *dir, uint64_t count) {
    fed f;
    const fed_options options = canary_options(dir);
    fed_open(&f, &options);
    CHECK(is_out(&f) || !is_promised(count));
    if (!is_out(&f)) fed_replay(&f);
    CHECK(is_out(&f));
    const omm_digest found = evidence_of(&f);
    CHECK(omm_digest_equal(&found, &s_evidence));
    fed_close(&f);
}

/* ---- all of them ---- */

typedef struct scene {
    const char *name;
    void (*record)(const char *dir);
    void (*look)(const char *dir, uint64_t count);
    bool closes; /* its folder goes with its federation */
} scene;
static const scene s_scenes[] = {{"seed", draw_seed, look_at_seed, false},
                                 {"timetable", note_times, look_at_times, false},
                                 {"counts", keep_counts, look_at_counts, false},
                                 {"rollback", roll_back, look_at_rollback, true},
                                 {"evidence", judge_canaries, look_at_evidence, true}};

static char s_at[80];
static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: %s\n", s_at);
}

static void cut(const scene *s, uint64_t count, disk_loss loss, uint64_t seed) {
    char dir[64];
    (void)snprintf(s_at, sizeof s_at, "%s: cut after %u, loss %d, seed %u", s->name,
                   (unsigned)count, (int)loss, (unsigned)seed);
    disk_folder(dir);
    disk_rebuild(dir, count, loss, seed, disk_everything, NULL);
    s->look(dir, count);
    if (!s->closes) CHECK_OK(omm_dir_remove(dir));
}

static void cut_all(const scene *s) {
    char dir[64];
    uint64_t cuts = 0;
    (void)snprintf(s_at, sizeof s_at, "%s: no cut", s->name);
    disk_folder(dir);
    disk_watch(dir);
    s_begin = 0;
    s->record(dir);
    disk_rest();
    if (!s->closes) CHECK_OK(omm_dir_remove(dir));
    CHECK(s_end >= s_begin + 4);
    for (uint64_t count = s_begin; count <= s_end; count++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
            for (uint64_t seed = 0; seed < (loss == DISK_LOSE_SOME ? SEEDS : 1); seed++, cuts++)
                cut(s, count, (disk_loss)loss, seed);
    printf("%s: %u operations, %u cuts\n", s->name, (unsigned)(s_end - s_begin), (unsigned)cuts);
    s_at[0] = '\0';
}

int main(void) {
    (void)atexit(say_at);
    for (size_t i = 0; i < sizeof s_scenes / sizeof s_scenes[0]; i++) cut_all(&s_scenes[i]);
    return 0;
}
