/* power_test - what a power cut leaves, at every moment of a run, and while a killed one is mended.
 *
 * A federation runs once on a disk that writes down every operation; then, for a cut after
 * any number of them, what may be left is made, and coordinator and nodes go on from that.  Every
 * receipt that a node had been given must be there, and the run must end with the digest it would have
 * had.  A process that is killed and begins again is written down the same way, and the power cut while it
 * takes up what it finds.  `power_test all` tries every operation, else a sample.
 *
 * Many cuts leave the same files: a digest over names and bytes finds those, and each state is gone on
 * from once.  What was promised by then is part of it. */
#include "disk.h"
#include "federation.h"

#include "omm/envelope.h"
#include "omm/evidence.h"
#include "omm/file.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <string.h>

#define RECEIPTS_MAX 64u

/* What is run, and after how many of its operations a cut is tried where not all are. */
typedef struct scene {
    const char *name;
    uint32_t nodes, rounds, values_cols;
    uint32_t samples, kills;
    uint32_t listed; /* who comes later works to be let in, and passes canaries first; 0: all */
} scene;
static const scene s_scenes[] = {{"small", 3, 2, 0, 28, 5, 0},
                                 {"chunks", 1, 1, 75000, 3, 1, 0},
                                 {"stranger", 3, 2, 0, 28, 5, 2}};
#define PASSES 2u
#define LET_IN_STEP 4u /* operations: a commit has more */
static const scene *s_scene;

/* A node has been told: from this many operations on, it must never be otherwise. */
typedef struct promise {
    uint64_t after;
    uint32_t node, round;
    omm_buf submission, receipt;
} promise;

static promise s_promises[RECEIPTS_MAX];
static uint32_t s_promise_count;
static omm_digest s_expected;

static void copy_of(omm_buf *out, omm_bytes bytes) {
    omm_buf_init(out, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_buf_append(out, bytes.data, bytes.size));
}

/* The receipt of a canary is of no round, and its node's alone: what it has passed shows in its being let in. */
static bool is_canary(const fed *f, uint32_t node, omm_bytes envelope, omm_arena *arena) {
    omm_envelope opened;
    omm_submission submission;
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_SUBMISSION, envelope));
    CHECK_OK(omm_submission_decode(&submission, opened.payload, arena));
    return !omm_digest_equal(&submission.data_commitment, &f->training[node]->data_commitment);
}

/* The round of a receipt: it may be given again when that is over. */
static uint32_t round_of(omm_bytes envelope, omm_arena *arena) {
    omm_envelope opened;
    omm_receipt receipt;
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_RECEIPT, envelope));
    CHECK_OK(omm_receipt_decode(&receipt, opened.payload, arena));
    CHECK(receipt.accepted);
    return receipt.round;
}

static void note_receipt(void *ud, fed *f, uint32_t node, omm_bytes bytes) {
    omm_arena arena;
    omm_reply reply;
    (void)ud;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_reply_decode(&reply, bytes, &arena));
    omm_bytes envelope = {0}, payload = {0};
    if (reply.kind == OMM_REPLY_RECEIPT)
        omm_node_get_submission(&envelope, &payload, f->nodes[node]);
    if (envelope.size > 0 && !is_canary(f, node, envelope, &arena)) {
        CHECK(s_promise_count < RECEIPTS_MAX);
        promise *p = &s_promises[s_promise_count++];
        *p = (promise){disk_count(), node, round_of(reply.envelope, &arena), {0}, {0}};
        copy_of(&p->submission, envelope);
        copy_of(&p->receipt, reply.envelope);
    }
    omm_arena_fini(&arena);
}

static fed_options power_options(const char *dir) {
    fed_options options = fed_options_durable(dir);
    options.nodes = s_scene->nodes;
    options.rounds = s_scene->rounds;
    options.values_cols = s_scene->values_cols;
    if (s_scene->listed > 0) {
        options.listed = s_scene->listed;
        options.work_bits = 4;
        options.canaries = true;
        options.passes = PASSES;
        options.quorum = s_scene->nodes; /* so that rounds are the same whenever it is let in */
        options.join_ms = (uint64_t)1 << 40;
    }
    return options;
}

static void record(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = power_options(dir);
    options.answered = note_receipt;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    s_expected = fed_bundle_digest(&f);
    disk_rest();
    fed_close(&f);
    CHECK_EQ(s_promise_count, s_scene->nodes * s_scene->rounds);
}

/* What was promised later than that. */
static void forget_after(uint64_t count) {
    while (s_promise_count > 0 && s_promises[s_promise_count - 1].after > count) {
        promise *p = &s_promises[--s_promise_count];
        omm_buf_fini(&p->submission);
        omm_buf_fini(&p->receipt);
    }
}

/* ---- after a cut ---- */

/* The same submission once more must get the same receipt; of an older round it is in the bundle. */
static void check_promise(fed *f, const promise *p) {
    omm_buf got;
    omm_buf_init(&got, (size_t)1 << 20);
    if (omm_coord_get_status(f->coord).round > p->round) {
        const omm_digest *id = &f->run_nodes[f->of_node[p->node]].id;
        CHECK_OK(omm_bundle_read(&got, f->bundle, omm_bundle_path_receipt(p->round, id).text));
        CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&p->receipt)));
        omm_buf_fini(&got);
        return;
    }
    omm_arena arena;
    omm_reply reply;
    omm_buf bytes;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&bytes, (size_t)1 << 20);
    omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p->submission)};
    CHECK_OK(omm_request_encode(&bytes, &request));
    fed_send(f, &got, omm_buf_view(&bytes));
    CHECK_OK(omm_reply_decode(&reply, omm_buf_view(&got), &arena));
    CHECK_EQ(reply.kind, OMM_REPLY_RECEIPT);
    CHECK(omm_bytes_equal(reply.envelope, omm_buf_view(&p->receipt)));
    omm_buf_fini(&bytes);
    omm_buf_fini(&got);
    omm_arena_fini(&arena);
}

typedef enum who { ALL, COORDINATOR, NODES } who;

static bool loses(void *ud, const char *name) {
    const who *which = ud;
    bool is_node = strncmp(name, "node-", 5) == 0;
    return *which == ALL || (*which == NODES) == is_node;
}

/* A check that fails ends the program: say which cut it was. */
static char s_at[96];
static size_t s_at_size; /* of its beginning: the scene, and the kill */
static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: power_test %s\n", s_at);
}

/* Scene, kill (0: none). */
static void say_scene(uint64_t kill) {
    s_at_size =
        (size_t)snprintf(s_at, sizeof s_at, "%d %u", (int)(s_scene - s_scenes), (unsigned)kill);
}

static uint64_t promised(uint64_t count) {
    uint64_t kept = 0;
    for (uint32_t i = 0; i < s_promise_count; i++) kept += s_promises[i].after <= count;
    return kept;
}

static void check_promises(fed *f, uint64_t count) {
    for (uint32_t i = 0; i < s_promise_count; i++)
        if (s_promises[i].after <= count) check_promise(f, &s_promises[i]);
}

static void check_end(const fed *f) {
    CHECK(omm_coord_is_done(f->coord));
    CHECK_EQ(f->run.node_count, s_scene->nodes);
    const omm_digest digest = fed_bundle_digest(f);
    CHECK(omm_digest_equal(&digest, &s_expected));
}

/* ---- what was tried before ---- */

#define TRIED_SLOTS (1u << 19)

/* Names and bytes, and the receipts that must be there, say all about a test: who finds the same does
 * the same.  Open addressing by the first bytes of a digest; 0 is nothing. */
static uint64_t s_tried[TRIED_SLOTS][2];
static uint64_t s_tried_count;

static bool was_tried(const disk_state *state, uint64_t count, bool kill) {
    const omm_digest files = disk_digest(state);
    const uint64_t besides[2] = {promised(count), kill};
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(files.b, sizeof files.b));
    omm_hasher_update(&h, omm_bytes_of(besides, sizeof besides));
    const omm_digest all = omm_hasher_final(&h);
    uint64_t key[2];
    memcpy(key, all.b, sizeof key);
    CHECK(2 * s_tried_count < TRIED_SLOTS);
    uint64_t slot = key[0] % TRIED_SLOTS;
    for (; s_tried[slot][0] != 0; slot = (slot + 1) % TRIED_SLOTS)
        if (memcmp(s_tried[slot], key, sizeof key) == 0) return true;
    memcpy(s_tried[slot], key, sizeof key);
    s_tried_count++;
    return false;
}

static void forget_tried(void) {
    memset(s_tried, 0, sizeof s_tried);
    s_tried_count = 0;
}

/* ---- cuts ---- */

/* False: this state was tried before. */
static bool cut(uint64_t count, disk_loss loss, who which, uint64_t seed) {
    char dir[64];
    disk_state *state = disk_make(count, loss, seed, loses, &which);
    const bool is_new = !was_tried(state, count, false);
    if (is_new) {
        disk_folder(dir);
        disk_put(state, dir);
    }
    disk_free(state);
    if (!is_new) return false;
    (void)snprintf(s_at + s_at_size, sizeof s_at - s_at_size, " %u %d %d %u", (unsigned)count,
                   (int)loss, (int)which, (unsigned)seed);
    fed_options options = power_options(dir);
    fed f;
    fed_open(&f, &options);
    check_promises(&f, count);
    fed_run(&f);
    check_end(&f);
    fed_close(&f);
    return true;
}

/* Every kind of loss after every operation; or a part of it that meets each kind. */
static bool is_tried(bool all, uint64_t i, disk_loss loss, who which) {
    if (!all) return ((uint64_t)loss * 3 + which) % 15 == i * 7 % 15;
    return loss != DISK_LOSE_NOTHING || which == ALL;
}

typedef struct tally {
    uint64_t cuts, states;
} tally;

static void cut_at(tally *t, bool all, uint64_t i, uint64_t count) {
    for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
        for (int which = ALL; which <= NODES; which++) {
            if (!is_tried(all, i, (disk_loss)loss, (who)which)) continue;
            t->states += cut(count, (disk_loss)loss, (who)which, i);
            t->cuts++;
        }
}

/* Being let in is several commits in three databases, each of some operations: a cut between any two of them, until the
 * first receipt of a round. */
static void let_in_all(tally *t) {
    for (uint64_t count = 0; count < s_promises[0].after; count += LET_IN_STEP) {
        t->states += cut(count, DISK_LOSE_NOTHING, ALL, count);
        t->cuts++;
    }
}

/* What a receipt stands for is on the disk when its node reads it, and not soon after: the coordinator's power fails then. */
static void cut_behind_receipts(tally *t) {
    static const disk_loss losses[] = {DISK_LOSE_UNSYNCED, DISK_LOSE_DATA, DISK_LOSE_NAMES};
    for (uint32_t i = 0; i < s_promise_count; i++)
        for (size_t k = 0; k < sizeof losses / sizeof *losses; k++) {
            t->states += cut(s_promises[i].after, losses[k], COORDINATOR, 0);
            t->cuts++;
        }
}

static void cut_all(bool all) {
    say_scene(0);
    record();
    uint64_t count = disk_count(), steps = all ? count : s_scene->samples;
    tally t = {0};
    CHECK(count > 150);
    for (uint64_t i = 0; i <= steps; i++) cut_at(&t, all, i, i * count / steps);
    if (!all) cut_behind_receipts(&t);
    if (s_scene->listed > 0 && !all) let_in_all(&t);
    printf("%s: %u operations, %u cuts, %u different states\n", s_scene->name, (unsigned)count,
           (unsigned)t.cuts, (unsigned)t.states);
}

/* ---- a kill, and a cut while it is mended ---- */

static bool nobody(void *ud, const char *name) {
    (void)ud;
    (void)name;
    return false;
}

/* After `count` operations all are killed and begin again; what they do then is written down behind, to the
 * end of the run.  False: a kill that left the same was tried before. */
static bool kill_at(uint64_t count) {
    char dir[64];
    disk_state *state = disk_make(count, DISK_LOSE_NOTHING, 0, nobody, NULL);
    forget_after(count);
    const bool is_new = !was_tried(state, count, true);
    if (is_new) {
        disk_folder(dir);
        disk_put(state, dir);
    }
    disk_free(state);
    if (!is_new) return false;
    disk_go_on(dir, count);
    fed_options options = power_options(dir);
    options.answered = note_receipt;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    disk_rest();
    check_end(&f);
    fed_close(&f);
    return true;
}

/* Operations from a restart on after which the power is cut: what was found is taken up in these. */
#define MENDING 64u
#define SAMPLED 7u /* of these one is, where not all are tried */

/* From the last to the first, because a kill rewrites the log behind it. */
static void kill_all(bool all) {
    const uint64_t count = disk_count(), steps = all ? count : s_scene->kills;
    uint64_t kills = 0;
    tally t = {0};
    for (uint64_t i = steps; i > 0; i--) {
        const uint64_t at = i * count / steps;
        say_scene(at);
        if (!kill_at(at)) continue;
        kills++;
        const uint64_t end = disk_count() - at < MENDING ? disk_count() - at : MENDING;
        for (uint64_t k = 1; k <= end; k += all ? 1 : SAMPLED) cut_at(&t, all, at + k, at + k);
    }
    printf("%s: %u kills, %u cuts behind them, %u different states\n", s_scene->name,
           (unsigned)kills, (unsigned)t.cuts, (unsigned)t.states);
}

/* power_test [all | SCENE KILL COUNT LOSS WHO SEED], the latter to look at one cut. */
int main(int argc, char **argv) {
    (void)atexit(say_at);
    if (argc == 7) {
        long n[6];
        for (int i = 0; i < 6; i++) n[i] = strtol(argv[1 + i], NULL, 10);
        s_scene = &s_scenes[n[0]];
        record();
        if (n[1] > 0) CHECK(kill_at((uint64_t)n[1]));
        disk_print();
        (void)cut((uint64_t)n[2], (disk_loss)n[3], (who)n[4], (uint64_t)n[5]);
        forget_after(0);
        return 0;
    }
    const bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    for (size_t i = 0; i < sizeof s_scenes / sizeof s_scenes[0]; i++) {
        s_scene = &s_scenes[i];
        cut_all(all);
        kill_all(all);
        forget_after(0);
        forget_tried();
    }
    s_at[0] = '\0';
    return 0;
}
