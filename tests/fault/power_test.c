/* Power cuts.  A federation runs once on a disk that writes down every operation; then, for a cut after
 * any number of them, what may be left is made, and coordinator and nodes go on from that.  Every
 * receipt that a node had been given must be there, and the run must end with the digest it would have
 * had.  `power_test all` cuts after every operation, else after a sample of them. */
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
    uint32_t samples;
} scene;
static const scene s_scenes[] = {{"small", 3, 2, 0, 28}, {"chunks", 1, 1, 75000, 3}};
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

static void note_receipt(void *ud, fed *f, uint32_t node, omm_bytes bytes) {
    omm_arena arena;
    omm_reply reply;
    (void)ud;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_reply_decode(&reply, bytes, &arena));
    if (reply.kind == OMM_REPLY_RECEIPT) {
        CHECK(s_promise_count < RECEIPTS_MAX);
        promise *p = &s_promises[s_promise_count++];
        omm_bytes envelope, payload;
        omm_node_get_submission(&envelope, &payload, f->nodes[node]);
        *p = (promise){disk_count(), node, omm_coord_get_status(f->coord).round, {0}, {0}};
        copy_of(&p->submission, envelope);
        copy_of(&p->receipt, reply.envelope);
    }
    omm_arena_fini(&arena);
}

static fed_options power_options(const char *dir) {
    fed_options options = fed_options_default();
    options.nodes = s_scene->nodes;
    options.rounds = s_scene->rounds;
    options.values_cols = s_scene->values_cols;
    options.on_disk = options.durable = true;
    options.dir = dir;
    return options;
}

static void make_folder(char out[64]) {
    (void)snprintf(out, 64,
                   "/dev/shm/omm-power-XXXXXX"); /* in memory, where there is such a folder */
    if (mkdtemp(out)) return;
    (void)snprintf(out, 64, "/tmp/omm-power-XXXXXX");
    CHECK(mkdtemp(out));
}

static void record(void) {
    char dir[64];
    make_folder(dir);
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

static void forget(void) {
    while (s_promise_count > 0) {
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
static char s_at[64];
static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: power_test %s\n", s_at);
}

static void cut(uint64_t count, disk_loss loss, who which, uint64_t seed) {
    char dir[64];
    make_folder(dir);
    disk_rebuild(dir, count, loss, seed, loses, &which);
    (void)snprintf(s_at, sizeof s_at, "%d %u %d %d %u", (int)(s_scene - s_scenes), (unsigned)count,
                   (int)loss, (int)which, (unsigned)seed);
    fed_options options = power_options(dir);
    fed f;
    fed_open(&f, &options);
    for (uint32_t i = 0; i < s_promise_count; i++)
        if (s_promises[i].after <= count) check_promise(&f, &s_promises[i]);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &s_expected));
    fed_close(&f);
}

/* Every kind of loss after every operation; or a part of it that meets each kind. */
static bool is_tried(bool all, uint64_t i, disk_loss loss, who which) {
    if (!all) return ((uint64_t)loss * 3 + which) % 15 == i * 7 % 15;
    return loss != DISK_LOSE_NOTHING || which == ALL;
}

static void cut_all(bool all) {
    record();
    uint64_t count = disk_count(), cuts = 0, steps = all ? count : s_scene->samples;
    CHECK(count > 150);
    for (uint64_t i = 0; i <= steps; i++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
            for (int which = ALL; which <= NODES; which++) {
                if (!is_tried(all, i, (disk_loss)loss, (who)which)) continue;
                cut(i * count / steps, (disk_loss)loss, (who)which, i);
                cuts++;
            }
    printf("%s: %u operations, %u cuts\n", s_scene->name, (unsigned)count, (unsigned)cuts);
}

/* power_test [all | SCENE COUNT LOSS WHO SEED], the latter to look at one cut. */
int main(int argc, char **argv) {
    if (argc == 6) {
        long n[5];
        for (int i = 0; i < 5; i++) n[i] = strtol(argv[1 + i], NULL, 10);
        s_scene = &s_scenes[n[0]];
        record();
        disk_print();
        cut((uint64_t)n[1], (disk_loss)n[2], (who)n[3], (uint64_t)n[4]);
        forget();
        return 0;
    }
    (void)atexit(say_at);
    for (size_t i = 0; i < sizeof s_scenes / sizeof s_scenes[0]; i++) {
        s_scene = &s_scenes[i];
        cut_all(argc > 1 && strcmp(argv[1], "all") == 0);
        forget();
    }
    s_at[0] = '\0';
    return 0;
}
