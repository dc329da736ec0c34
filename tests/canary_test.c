/* Canaries: strangers on probation and nodes whose turn it is, in whole runs with kills and lost messages between
 * any two messages; and everything that a cheat, a copier, a flood and a restart may try. */
#include "federation_fakes.h"
#include "hand.h"

#include "canary.h"

#include "omm/envelope.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define BITS 6u
#define QUEUE OMM_COORD_CANARY_QUEUE_MAX

static fed s_fed;

/* ---- whole runs ---- */

static fed_options strangers(void) {
    fed_options o = fed_options_default();
    o.nodes = 4;
    o.listed = 1;
    o.work_bits = BITS;
    o.canaries = true;
    o.passes = 2;
    o.quorum = 4; /* the round waits until all have passed */
    o.on_disk = true;
    return o;
}

static omm_digest run_all(const fed_options *o, uint32_t passed) {
    fed_open(&s_fed, o);
    fed_run(&s_fed);
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, s_fed.coord);
    CHECK_EQ(s_fed.run.node_count, o->nodes);
    CHECK_EQ(count, o->rounds);
    CHECK_EQ(rounds[count - 1].accepted, o->nodes);
    CHECK_EQ(s_fed.failed, 0);
    CHECK(s_fed.passed >= passed);
    const omm_coord_status status = omm_coord_get_status(s_fed.coord);
    CHECK(status.candidates == 0 && status.canaries_waiting == 0);
    const omm_digest digest = fed_bundle_digest(&s_fed);
    fed_seal_and_verify(&s_fed);
    fed_close(&s_fed);
    return digest;
}

/* The same bundle, whatever was killed or lost on the way. */
static void test_probation(void) {
    omm_seed seed = omm_seed_from_u64(1);
    fed_options o = strangers();
    const omm_digest plain = run_all(&o, 6);
    o.restart_coordinator = true;
    const omm_digest killed = run_all(&o, 6);
    o.restart_nodes = true;
    o.fault = fed_fault_often;
    o.ud = &seed;
    const omm_digest lost = run_all(&o, 6);
    o = strangers();
    o.on_disk = false;
    o.batched = true;
    const omm_digest batched = run_all(&o, 6);
    o.whole = true;
    const omm_digest whole = run_all(&o, 6);
    CHECK(omm_digest_equal(&plain, &killed));
    CHECK(omm_digest_equal(&plain, &lost));
    CHECK(omm_digest_equal(&plain, &whole));
    CHECK(omm_digest_equal(&plain, &batched));
    /* Nobody on probation: they come in at once, and the rounds are the same. */
    o.passes = 0;
    const omm_digest at_once = run_all(&o, 0);
    CHECK(omm_digest_equal(&plain, &at_once));
}

/* An allocation that fails in a step changes nothing, and the run ends as without it. */
static void test_no_memory(void) {
    for (uint64_t call = 2; call < 22; call += 3)
        for (uint32_t nth = 1; nth < 30; nth += 4) {
            fed_options o = strangers();
            o.nodes = o.quorum = 2;
            o.rounds = 1;
            o.on_disk = false;
            o.alloc_kind = FED_ALLOC_STEP;
            o.alloc_call = call;
            o.alloc_nth = nth;
            (void)run_all(&o, 2);
        }
}

/* ---- turns ---- */

static fed_options members(double share) {
    fed_options o = fed_options_default();
    o.nodes = o.listed = 5;
    o.rounds = 5;
    o.canaries = true;
    o.share = share;
    o.on_disk = true;
    return o;
}

static omm_digest run_turns(const fed_options *o, uint32_t *missed) {
    fed_open(&s_fed, o);
    fed_run(&s_fed);
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, s_fed.coord);
    CHECK_EQ(count, o->rounds);
    *missed = 0;
    for (uint32_t i = 0; i < count; i++) {
        CHECK(rounds[i].accepted >= 1 && rounds[i].missing == 0 && rounds[i].refused == 0);
        *missed += o->nodes - rounds[i].accepted;
    }
    CHECK_EQ(s_fed.failed, 0);
    const omm_digest digest = fed_bundle_digest(&s_fed);
    fed_seal_and_verify(&s_fed);
    fed_close(&s_fed);
    return digest;
}

static void test_share(void) {
    uint32_t missed = 0, again = 0;
    fed_options o = members(0.4);
    const omm_digest plain = run_turns(&o, &missed);
    CHECK(missed >= 5 && missed <= 15); /* of 25 turns */
    CHECK(s_fed.passed >= missed - 5);  /* those of the last round are not waited for */
    o.restart_coordinator = true;
    const omm_digest killed = run_turns(&o, &again);
    CHECK(omm_digest_equal(&plain, &killed));
    CHECK_EQ(missed, again);
    o = members(1); /* a round is left its least, and there is one in each */
    (void)run_turns(&o, &missed);
    CHECK(missed >= 10);
    o = members(0);
    (void)run_turns(&o, &missed);
    CHECK_EQ(missed, 0);
}

/* ---- cheats ---- */

typedef enum cheat {
    CHEAT_VALUES,
    CHEAT_TOKENS,
    CHEAT_EXAMPLES,
    CHEAT_LOSS,
    CHEAT_STEP,
    CHEATS
} cheat;
static cheat s_cheat;
static uint32_t s_cheater;

static void do_cheat(void *ud, uint32_t node, omm_training_result *result, float *values,
                     omm_buf *step_digests) {
    (void)ud;
    if (node != s_cheater) return;
    if (s_cheat == CHEAT_VALUES) values[3] += 0.5f;
    if (s_cheat == CHEAT_TOKENS) result->tokens += 1;
    if (s_cheat == CHEAT_EXAMPLES) result->examples += 1;
    if (s_cheat == CHEAT_LOSS) result->loss_after -= 0.25f;
    if (s_cheat == CHEAT_STEP) step_digests->data[9] ^= 1;
}

static const char *const s_whys[CHEATS] = {
    "canary: the payload is not what the recipe gives", "canary: tokens is not what",
    "canary: examples is not what", "canary: loss_after is not what", "canary: step 2 is not what"};

static bool list_says(const char *what) {
    omm_buf text;
    omm_buf_init(&text, 65536);
    CHECK_OK(omm_coord_nodes(&text, s_fed.coord));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const bool says = strstr((const char *)text.data, what) != NULL;
    if (!says) fprintf(stderr, "no '%s' in\n%s", what, (const char *)text.data);
    omm_buf_fini(&text);
    return says;
}

typedef struct found {
    uint32_t files, verdicts;
} found;

static omm_err count_file(void *ud, const char *relative) {
    found *f = ud;
    f->files++;
    f->verdicts += strstr(relative, "verdict.json") != NULL;
    return OMM_OK;
}

static found evidence(void) {
    char path[OMM_PATH_MAX];
    found f = {0};
    CHECK_OK(omm_path_join(path, s_fed.dir, "coordinator/canaries/failed"));
    if (omm_file_exists(path)) CHECK_OK(omm_dir_walk(path, count_file, &f));
    return f;
}

/* A candidate that pretends is never let in, and is told why; the others are not held up. */
static void test_false_candidate(void) {
    for (s_cheat = 0; s_cheat < CHEATS; s_cheat++) {
        fed_options o = strangers();
        o.quorum = 3;
        o.cheat = do_cheat;
        s_cheater = 2;
        fed_open(&s_fed, &o);
        for (uint32_t i = 0; i < 3000 && s_fed.failed == 0; i++) CHECK(fed_step(&s_fed));
        for (uint32_t i = 0; i < 40; i++) CHECK(fed_step(&s_fed));
        fed_restart_coordinator(&s_fed);
        s_fed.done[2] = true;
        fed_run(&s_fed);
        CHECK_EQ(s_fed.failed, 1);
        CHECK_EQ(s_fed.run.node_count, 3);
        const found f = evidence();
        CHECK(f.files == 5 && f.verdicts == 1);
        fed_seal_and_verify(&s_fed);
        fed_close(&s_fed);
    }
}

/* The cheater's owner reads that it is refused, and `what`. */
static bool says_refused(const char *what) {
    const omm_node_status status = omm_node_get_status(s_fed.nodes[s_cheater]);
    return status.refused[0] && strstr(status.refused, what);
}

/* A node of the run that pretends in its turn is in quarantine, with the reason, also after a restart. */
static void test_false_node(void) {
    for (s_cheat = 0; s_cheat < CHEATS; s_cheat++) {
        fed_options o = members(0.9);
        o.cheat = do_cheat;
        s_cheater = 1;
        fed_open(&s_fed, &o);
        const uint32_t node = s_fed.of_node[s_cheater];
        for (uint32_t i = 0; i < 3000 && s_fed.failed == 0; i++) CHECK(fed_step(&s_fed));
        CHECK(omm_coord_get_node(s_fed.coord, node).quarantined);
        CHECK(list_says(s_whys[s_cheat]));
        fed_restart_coordinator(&s_fed);
        CHECK(omm_coord_get_node(s_fed.coord, node).quarantined);
        CHECK(list_says(s_whys[s_cheat]));
        for (uint32_t i = 0; i < 3000 && !says_refused("round: node is in quarantine, "); i++)
            CHECK(fed_step(&s_fed));
        CHECK(says_refused("round: node is in quarantine, ") && says_refused(s_whys[s_cheat]));
        const found f = evidence();
        CHECK(f.files == 5 && f.verdicts == 1);
        if (s_cheat ==
            CHEAT_VALUES) { /* the operator's word ends it, and the next canary is another */
            s_cheat = CHEATS;
            CHECK_OK(omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, node,
                                          false));
            CHECK(!omm_coord_get_node(s_fed.coord, node).quarantined);
            CHECK(list_says("enrolled"));
            for (uint32_t i = 0; i < 3000 && says_refused(""); i++) CHECK(fed_step(&s_fed));
            CHECK(!says_refused(""));
            CHECK_OK(omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, node,
                                          true));
            omm_buf text; /* another time for another reason */
            omm_buf_init(&text, 65536);
            CHECK_OK(omm_coord_nodes(&text, s_fed.coord));
            CHECK_OK(omm_buf_append(&text, "", 1));
            CHECK(!strstr((const char *)text.data, "canary: the payload"));
            omm_buf_fini(&text);
            s_cheat = CHEAT_VALUES;
        }
        fed_close(&s_fed);
    }
}

/* ---- what is kept of failures ---- */

/* Its answer is false in one number. */
static void fail_as(hand *h) {
    h->s.tokens++;
    hand_give(h);
    fed_replay(&s_fed);
    CHECK_EQ(hand_verdict(h), OMM_ERR_REFUSED_DIGEST);
    hand_close(h);
}

/* Strangers cannot fill the disk: the evidence of the first ones is kept, of further ones a verdict alone; of nodes all is. */
static void test_evidence_max(void) {
    hand h;
    fed_options o = members(1);
    o.nodes = o.listed = 2;
    o.node_max = 8;
    o.work_bits = BITS;
    o.passes = 2;
    o.replays_by_hand = true;
    o.silent[1] = true;
    fed_open(&s_fed, &o);
    for (uint32_t i = 0; i < CANARY_EVIDENCE_MAX; i++) {
        CHECK_EQ(evidence().verdicts, i);
        hand_begin(&h, &s_fed, i + 1);
        fail_as(&h);
    }
    CHECK_EQ(evidence().verdicts, CANARY_EVIDENCE_MAX);
    CHECK_EQ(evidence().files, 5 * CANARY_EVIDENCE_MAX);
    hand_begin(&h, &s_fed, 1000);
    fail_as(&h);
    CHECK_EQ(s_fed.failed, CANARY_EVIDENCE_MAX + 1);
    CHECK_EQ(evidence().verdicts, CANARY_EVIDENCE_MAX);
    hand_open_node(&h, &s_fed, 1);
    for (uint32_t i = 0; i < 3000 && hand_poll(&h) != OMM_REPLY_OFFER; i++) CHECK(fed_step(&s_fed));
    hand_train(&h);
    fail_as(&h);
    CHECK_EQ(evidence().verdicts, CANARY_EVIDENCE_MAX + 1);
    fed_close(&s_fed);
}

/* ---- candidates, by hand ---- */

static struct { uint32_t passed, failed; } s_heard; /* verdicts, as those hear of them who count */

static void hear(void *ud, const omm_coord_event *event) {
    (void)ud;
    if (event->kind != OMM_COORD_EVENT_CANARY) return;
    s_heard.passed += event->reason == OMM_OK;
    s_heard.failed += event->reason == OMM_ERR_REFUSED_DIGEST;
}

static fed_options quiet(bool on_disk) {
    fed_options o = strangers();
    s_heard.passed = s_heard.failed = 0;
    o.on_event = hear;
    o.nodes = 2;
    o.listed = 2;
    o.node_max = 8;
    o.quorum = 0;
    o.on_disk = on_disk;
    o.replays_by_hand = true;
    o.silent[0] = o.silent[1] = true;
    return o;
}

static void open_quiet(bool on_disk) {
    const fed_options o = quiet(on_disk);
    fed_open(&s_fed, &o);
}

static void test_by_hand(void) {
    hand h;
    open_quiet(true);
    hand_begin(&h, &s_fed, 1);
    CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT); /* again: it is one already */
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER); /* and the same offer, over a restart */
    const omm_digest offer = h.offer_digest;
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER);
    CHECK(omm_digest_equal(&offer, &h.offer_digest));
    CHECK(list_says("0 of 2 canaries, trains"));
    CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    fed_restart_coordinator(&s_fed); /* in the middle of an upload */
    CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    CHECK_EQ(hand_put(&h), OMM_REPLY_WAIT);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_STATE);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_WAIT);
    fed_restart_coordinator(&s_fed); /* in the queue */
    CHECK(list_says("waits for its verdict"));
    CHECK_EQ(s_fed.run.node_count, 2);
    fed_replay(&s_fed);
    CHECK_EQ(s_fed.passed, 1);
    fed_restart_coordinator(&s_fed);
    CHECK_OK(hand_verdict(&h)); /* as often as it takes */
    CHECK_OK(hand_verdict(&h));
    const omm_submission first = h.s;
    omm_buf kept;
    omm_buf_init(&kept, 1u << 20);
    CHECK_OK(omm_buf_append(&kept, h.payload.data, h.payload.size));
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER); /* another nonce */
    CHECK(!omm_digest_equal(&first.nonce, &h.offer.nonce));
    const omm_offer second = h.offer;
    h.s = first; /* an older canary is no answer; nor is it in the new one's clothes */
    CHECK_EQ(hand_refused(&h, hand_submit(&h)), OMM_ERR_REFUSED_ROUND);
    h.offer = second;
    hand_train(&h);
    const omm_submission honest = h.s;
    h.s.payload = first.payload;
    h.s.round = honest.round;
    omm_buf swap = h.payload;
    h.payload = kept;
    kept = swap;
    CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    h.s = honest; /* it starts over, honestly */
    swap = h.payload;
    h.payload = kept;
    kept = swap;
    hand_give(&h);
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(&h));
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_EQ(s_fed.failed, 0);
    CHECK(list_says("by work of 6 bits, 2 canaries"));
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_WAIT); /* a node like others */
    CHECK_OK(hand_verdict(&h));
    omm_buf_fini(&kept);
    hand_close(&h);
    fed_close(&s_fed);
}

/* Each refused by name, and none of it costs a replay. */
static void test_refused_manifests(void) {
    hand h;
    open_quiet(false);
    hand_begin(&h, &s_fed, 1);
    const omm_submission good = h.s;
#define REFUSED(want, ...)                                                                         \
    h.s = good;                                                                                    \
    __VA_ARGS__;                                                                                   \
    CHECK_EQ(hand_refused(&h, hand_submit(&h)), want)
    REFUSED(OMM_ERR_REFUSED_ROUND, h.s.nonce.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_ROUND, h.s.offer_digest.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_BASE, h.s.base_digest.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_BASE, h.s.global_digest.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_DIGEST, h.s.data_commitment.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_RESIDUAL, h.s.residual_before.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_RESIDUAL, h.s.residual_after.b[0] ^= 1);
    REFUSED(OMM_ERR_REFUSED_FORMAT, h.s.steps = 4);
    REFUSED(OMM_ERR_REFUSED_FORMAT, (h.s.steps = 0, h.s.step_digests.size = 0));
    REFUSED(OMM_ERR_REFUSED_RECIPE, h.s.codec.size = 7);
    omm_digest many[64] = {{{0}}};
    REFUSED(OMM_ERR_REFUSED_BUDGET, /* a huge payload is refused before its first byte */
            (h.s.payload.size = (uint64_t)64 * OMM_CHUNK_BYTES, h.s.payload.chunk_digests = many,
             h.s.payload.chunk_count = 64));
#undef REFUSED
    for (int i = 0; i < 4; i++) { /* it may start over a few times, not without end */
        h.s = good;
        h.s.tokens += (uint64_t)i + 1;
        CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    }
    h.s.tokens += 10;
    CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    h.s.tokens += 10;
    CHECK_EQ(hand_refused(&h, hand_submit(&h)), OMM_ERR_REFUSED_DUPLICATE);
    CHECK_EQ(s_fed.replays, 0);
    hand_close(&h);
    fed_close(&s_fed);
}

/* Another's work, in the same queue: the same bytes are wrong for every other seed. */
static void test_copy(void) {
    hand a, b;
    open_quiet(true);
    hand_begin(&a, &s_fed, 1);
    hand_begin(&b, &s_fed, 2);
    b.s.payload = a.s.payload;
    omm_buf_clear(&b.payload);
    CHECK_OK(omm_buf_append(&b.payload, a.payload.data, a.payload.size));
    hand_give(&a);
    CHECK_EQ(hand_submit(&b), OMM_REPLY_WAIT); /* the blob is here already */
    fed_replay(&s_fed);
    CHECK(s_fed.passed == 1 && s_fed.failed == 1);
    CHECK(s_heard.passed == 1 && s_heard.failed == 1);
    CHECK_OK(hand_verdict(&a));
    CHECK_EQ(hand_verdict(&b), OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(hand_refused(&b, hand_poll(&b)), OMM_ERR_REFUSED_KEY);
    hand_close(&a);
    hand_close(&b);
    fed_close(&s_fed);
}

/* Another's payload under the digest of one's own is not one's own. */
static void test_false_name(void) {
    hand a, b;
    open_quiet(true);
    hand_begin(&a, &s_fed, 1);
    hand_begin(&b, &s_fed, 2);
    const omm_digest honest = b.s.payload.canonical;
    b.s.payload = a.s.payload;
    b.s.payload.canonical = honest;
    omm_buf_clear(&b.payload);
    CHECK_OK(omm_buf_append(&b.payload, a.payload.data, a.payload.size));
    hand_give(&b);
    fed_replay(&s_fed);
    CHECK_EQ(hand_verdict(&b), OMM_ERR_REFUSED_DIGEST);
    hand_close(&a);
    hand_close(&b);
    fed_close(&s_fed);
}

/* Nobody on the way answers in a candidate's name, or takes its upload away with other bytes. */
static void test_on_the_way(void) {
    hand h;
    uint8_t other[4096];
    open_quiet(false);
    hand_begin(&h, &s_fed, 1);
    CHECK_EQ(hand_refused(&h, hand_submit_forged(&h)), OMM_ERR_REFUSED_SIGNATURE);
    CHECK(list_says("trains"));
    CHECK_EQ(hand_submit(&h), OMM_REPLY_NEED);
    CHECK(h.payload.size <= sizeof other);
    memcpy(other, h.payload.data, h.payload.size);
    other[0] ^= 1;
    CHECK_EQ(hand_refused(&h, hand_submit_whole(&h, omm_bytes_of(other, h.payload.size))),
             OMM_ERR_REFUSED_DIGEST);
    CHECK(list_says("uploads"));
    CHECK_EQ(hand_submit_whole(&h, omm_buf_view(&h.payload)), OMM_REPLY_WAIT);
    CHECK(list_says("waits for its verdict"));
    hand_close(&h);
    fed_close(&s_fed);
}

/* ---- what a restart, or the disk, changes ---- */

/* An offer of data, or of a first adapter in bytes, that are not the run's any more is no offer: another canary takes its
 * place. */
static void test_another_offer(bool other_data) {
    static const omm_coord_shard others[2] = {{"three.jsonl", {(const uint8_t *)"a third", 7}},
                                              {"four.jsonl", {(const uint8_t *)"a fourth", 8}}};
    hand h;
    open_quiet(true);
    for (uint32_t i = 0; i < 2; i++) s_fed.done[i] = s_fed.o.silent[i] = false;
    while (omm_coord_get_status(s_fed.coord).round == 0) CHECK(fed_step(&s_fed));
    hand_begin(&h, &s_fed, 1);
    const omm_digest before = h.offer_digest;
    if (other_data)
        s_fed.canaries.shards = others;
    else
        s_fed.initial[0] += 0.25f;
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER);
    CHECK(!omm_digest_equal(&before, &h.offer_digest));
    hand_train(&h); /* all of it can be had */
    hand_give(&h);
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(&h));
    hand_close(&h);
    fed_close(&s_fed);
}

typedef enum lost { LOST_OVER_A_RESTART, LOST_WHILE_IT_WAITS, DAMAGED } lost;

/* What happens to the payload of `h`, which waits. */
static void lose(const hand *h, lost how) {
    const coord_canary *w = s_fed.coord->canary;
    if (how == DAMAGED)
        CHECK_OK(omm_db_run(w->db,
                            "UPDATE small_blob SET bytes = zeroblob(length(bytes)) WHERE id > ?",
                            OMM_DB_INT(0)));
    else
        CHECK_OK(omm_blobs_remove(w->uploads, &h->s.payload.digest));
    if (how == LOST_OVER_A_RESTART) fed_restart_coordinator(&s_fed);
}

/* A payload that is not on the disk as it was is asked for once more, and nobody fails by it. */
static void test_lost_payload(lost how) {
    hand h;
    open_quiet(true);
    hand_begin(&h, &s_fed, 1);
    hand_give(&h);
    lose(&h, how);
    fed_replay(&s_fed);
    CHECK(s_fed.replays == 0 && s_fed.failed == 0);
    hand_give(&h);
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(&h));
    hand_close(&h);
    fed_close(&s_fed);
}

/* A replay that runs out of memory has no verdict, and no false one. */
static void test_replay_without_memory(void) {
    hand h;
    omm_canary_job job;
    omm_canary_result result;
    omm_err err = OMM_ERR_NOMEM;
    bool has_job = false;
    static const omm_codec f16 = {.kind = OMM_CODEC_F16, .zstd_level = 3};
    fed_options o = quiet(true);
    o.values_cols = 500; /* its payload is worth to be packed */
    o.up = &f16;
    fed_open(&s_fed, &o);
    hand_begin(&h, &s_fed, 1);
    hand_give(&h);
    CHECK_OK(omm_coord_canary_next(&has_job, &job, s_fed.coord));
    CHECK(has_job);
    for (size_t nth = 1; err != OMM_OK; nth++) {
        CHECK(nth < 1000);
        omm_mem_fail_nth(nth);
        err = omm_canary_replay(&result, &job, fed_train_again, &s_fed);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_ERR_NOMEM || (err == OMM_OK && result.passed));
    }
    omm_canary_job_fini(&job);
    hand_close(&h);
    fed_close(&s_fed);
}

/* A verdict counts once, however often it is given. */
static void test_verdict_twice(void) {
    const omm_canary_result passed = {.passed = true};
    hand h;
    omm_canary_job job;
    bool has_job = false;
    open_quiet(true);
    hand_begin(&h, &s_fed, 1);
    hand_give(&h);
    CHECK_OK(omm_coord_canary_next(&has_job, &job, s_fed.coord));
    for (int i = 0; i < 3; i++)
        CHECK_OK(omm_coord_canary_verdict(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, &job,
                                          &passed));
    CHECK(list_says("1 of 2 canaries"));
    CHECK_EQ(s_fed.run.node_count, 2);
    CHECK_EQ(s_heard.passed, 1);
    omm_canary_job_fini(&job);
    hand_close(&h);
    fed_close(&s_fed);
}

/* Who has passed all of its canaries in a run that is full is told so, and is asked for nothing more. */
static void test_full_run(void) {
    hand all[2];
    fed_options o = strangers();
    o.nodes = o.listed = 2;
    o.node_max = 3;
    o.passes = 1;
    o.quorum = 0;
    o.replays_by_hand = true;
    o.silent[0] = o.silent[1] = true;
    fed_open(&s_fed, &o);
    for (uint32_t i = 0; i < 2; i++) hand_begin(&all[i], &s_fed, i);
    for (uint32_t i = 0; i < 2; i++) hand_give(&all[i]);
    fed_replay(&s_fed);
    CHECK_EQ(s_fed.passed, 2);
    for (uint32_t i = 0; i < 2; i++) CHECK_OK(hand_verdict(&all[i]));
    CHECK_EQ(hand_poll(&all[0]), OMM_REPLY_WAIT); /* the third node */
    CHECK_EQ(hand_refused(&all[1], hand_poll(&all[1])), OMM_ERR_REFUSED_FULL);
    CHECK_EQ(s_fed.run.node_count, 3);
    for (uint32_t i = 0; i < 2; i++) hand_close(&all[i]);
    fed_close(&s_fed);
}

/* ---- nodes of the run ---- */

/* One node of two that is played by hand, with its canary trained. */
static void open_with_turn(hand *h) {
    fed_options o = members(1);
    o.nodes = o.listed = 2;
    o.replays_by_hand = true;
    o.silent[1] = true;
    fed_open(&s_fed, &o);
    hand_open_node(h, &s_fed, 1);
    for (uint32_t i = 0; i < 3000 && hand_poll(h) != OMM_REPLY_OFFER; i++) CHECK(fed_step(&s_fed));
    hand_train(h);
}

/* While its answer waits for a verdict a node is in no round. */
static void test_waiting_node(void) {
    hand h;
    open_with_turn(&h);
    hand_give(&h);
    const uint32_t round = omm_coord_get_status(s_fed.coord).round;
    for (uint32_t i = 0; i < 3000 && omm_coord_get_status(s_fed.coord).round < round + 2; i++) {
        CHECK_EQ(hand_poll(&h), OMM_REPLY_WAIT);
        CHECK(!omm_coord_get_node(s_fed.coord, s_fed.of_node[1]).ready);
        CHECK(fed_step(&s_fed));
    }
    CHECK_EQ(omm_coord_get_status(s_fed.coord).round, round + 2);
    hand_close(&h);
    fed_close(&s_fed);
}

static void set_quarantine(uint32_t node, bool is) {
    CHECK_OK(omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms,
                                  s_fed.of_node[node], is));
}

/* In quarantine nothing is taken of it; and what it gave before may fail as ever. */
static void test_node_in_quarantine(void) {
    hand h;
    open_with_turn(&h);
    set_quarantine(1, true);
    CHECK_EQ(hand_refused(&h, hand_submit(&h)), OMM_ERR_REFUSED_NOT_SELECTED);
    set_quarantine(1, false);
    h.s.tokens++;
    hand_give(&h);
    set_quarantine(1, true);
    fed_replay(&s_fed);
    CHECK_EQ(s_fed.failed, 1);
    CHECK(list_says("canary: tokens"));
    hand_close(&h);
    fed_close(&s_fed);
}

/* Nodes that do not count have no turns: they take nobody's place, and nobody takes theirs. */
static void test_extra_has_no_turn(void) {
    fed_options o = members(1);
    o.nodes = o.listed = 3;
    o.extra[2] = true;
    fed_open(&s_fed, &o);
    uint32_t opened = 0;
    for (uint32_t round = 0; round < o.rounds; round++) {
        while (omm_coord_get_status(s_fed.coord).state != OMM_COORD_OPEN) CHECK(fed_step(&s_fed));
        CHECK(omm_coord_get_node(s_fed.coord, s_fed.of_node[2]).selected);
        opened += omm_coord_get_status(s_fed.coord).selected == 2;
        while (omm_coord_get_status(s_fed.coord).state == OMM_COORD_OPEN) CHECK(fed_step(&s_fed));
    }
    CHECK_EQ(opened, o.rounds);
    fed_close(&s_fed);
}

/* The key of who failed is not taken again: not by a poll, work, a restart. */
static void test_failed_key(void) {
    hand h;
    open_quiet(true);
    hand_begin(&h, &s_fed, 1);
    h.s.tokens++;
    hand_give(&h);
    fed_replay(&s_fed);
    CHECK_EQ(s_fed.failed, 1);
    const omm_submission s = h.s;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(hand_refused(&h, hand_poll(&h)), OMM_ERR_REFUSED_KEY);
        CHECK(strstr(h.said.sentence, "failed its canary: canary: tokens is not what"));
        CHECK_EQ(hand_refused(&h, hand_enrol(&h)), OMM_ERR_REFUSED_KEY);
        h.s = s;
        CHECK_EQ(hand_verdict(&h), OMM_ERR_REFUSED_DIGEST); /* signed */
        h.s.tokens++;
        CHECK_EQ(hand_refused(&h, hand_submit(&h)), OMM_ERR_REFUSED_KEY);
        fed_restart_coordinator(&s_fed);
    }
    CHECK_EQ(s_fed.run.node_count, 2);
    hand_close(&h);
    fed_close(&s_fed);
}

/* More than the queue takes: they wait, and who stands still loses its place. */
static void test_flood(void) {
    static hand all[QUEUE + 2];
    open_quiet(false);
    for (uint32_t i = 0; i < QUEUE + 2; i++) hand_begin(&all[i], &s_fed, i);
    for (uint32_t i = 0; i < QUEUE; i++) CHECK_EQ(hand_submit(&all[i]), OMM_REPLY_NEED);
    CHECK_EQ(hand_submit(&all[QUEUE]), OMM_REPLY_WAIT);
    s_fed.now_ms += 60000;
    for (uint32_t i = 1; i < QUEUE; i++) CHECK_EQ(hand_put(&all[i]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&all[QUEUE]), OMM_REPLY_NEED); /* in the place of the first */
    CHECK_EQ(hand_put(&all[QUEUE]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&all[0]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&all[QUEUE + 1]), OMM_REPLY_WAIT);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).canaries_waiting, QUEUE);
    fed_replay(&s_fed);
    CHECK_EQ(s_fed.passed, QUEUE);
    CHECK_EQ(hand_submit(&all[0]), OMM_REPLY_NEED);
    for (uint32_t i = 0; i < QUEUE + 2; i++) hand_close(&all[i]);
    fed_close(&s_fed);
}

/* Whose the next job is; it stays so until there is a verdict, which is given here. */
static void next_is(const hand *h) {
    const omm_digest want = omm_key_id(&h->key.public_key);
    const omm_canary_result passed = {.passed = true};
    bool has_job = false;
    omm_canary_job job;
    for (int again = 0; again < 2; again++) {
        CHECK_OK(omm_coord_canary_next(&has_job, &job, s_fed.coord));
        CHECK(has_job && omm_digest_equal(&job.node, &want));
        if (again == 0) omm_canary_job_fini(&job);
    }
    CHECK_OK(omm_coord_canary_verdict(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, &job,
                                      &passed));
    omm_canary_job_fini(&job);
}

/* First come, first judged, over restarts; who has begun first does not matter, nor who asks most often. */
static void test_order(void) {
    static hand all[4];
    static const uint32_t order[] = {2, 0, 3, 1};
    bool has_job = true;
    omm_canary_job job;
    open_quiet(true);
    for (uint32_t i = 0; i < 4; i++) hand_begin(&all[i], &s_fed, i);
    for (uint32_t i = 0; i < 4; i++) CHECK_EQ(hand_submit(&all[i]), OMM_REPLY_NEED);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).canaries_open, 4);
    for (uint32_t i = 0; i < 4; i++) CHECK_EQ(hand_put(&all[order[i]]), OMM_REPLY_WAIT);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).canaries_open, 0);
    for (uint32_t i = 0; i < 20; i++) CHECK_EQ(hand_submit(&all[1]), OMM_REPLY_WAIT);
    next_is(&all[order[0]]);
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).canaries_waiting, 3);
    for (uint32_t i = 1; i < 4; i++) next_is(&all[order[i]]);
    CHECK_OK(omm_coord_canary_next(&has_job, &job, s_fed.coord));
    CHECK(!has_job);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).canaries_waiting, 0);
    for (uint32_t i = 0; i < 4; i++) hand_close(&all[i]);
    fed_close(&s_fed);
}

/* The run ends while one waits: it is told so, signed, and hears of the end. */
static void test_end(void) {
    hand h, trains;
    open_quiet(false);
    hand_begin(&h, &s_fed, 1);
    hand_begin(&trains, &s_fed, 2);
    hand_give(&h);
    for (uint32_t i = 0; i < 2; i++) s_fed.done[i] = s_fed.o.silent[i] = false;
    while (omm_coord_get_status(s_fed.coord).state != OMM_COORD_CLOSING) CHECK(fed_step(&s_fed));
    CHECK_EQ(hand_poll(&trains), OMM_REPLY_WAIT); /* it has worked for nothing already */
    hand_close(&trains);
    fed_run(&s_fed);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).state, OMM_COORD_CLOSED);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_REFUSED_LATE);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_DONE);
    fed_replay(&s_fed); /* nothing is judged any more */
    CHECK_EQ(s_fed.replays, 0);
    CHECK_EQ(s_fed.run.node_count, 2);
    fed_seal_and_verify(&s_fed);
    hand_close(&h);
    fed_close(&s_fed);
}

/* As many candidates as there may be; an hour later one that has not moved makes room. */
static void test_full(void) {
    hand h;
    open_quiet(false);
    for (uint32_t i = 0; i < OMM_COORD_CANDIDATES_MAX; i++) {
        hand_open(&h, &s_fed, i);
        CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
        hand_close(&h);
    }
    hand_open(&h, &s_fed, 5000);
    CHECK_EQ(hand_refused(&h, hand_enrol(&h)), OMM_ERR_REFUSED_FULL);
    s_fed.clock.wall_ms += 3600000;
    CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).candidates, OMM_COORD_CANDIDATES_MAX);
    CHECK_EQ(s_fed.run.node_count, 2);
    hand_close(&h);
    fed_close(&s_fed);
}

/* No file can be opened when it is to make room: then it has all that it had. */
static void keeps_its_place(hand *slow) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = limit.rlim_max}), 0);
    CHECK_ERR(coord_canary_admit(s_fed.coord, &s_fed.keys[0].public_key, "work"), OMM_ERR_IO);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_EQ(hand_poll(slow), OMM_REPLY_OFFER);
}

/* Who moves on keeps its place, however slow; of who is forgotten no byte stays. */
static void test_slow_upload(void) {
    static const omm_codec f16 = {.kind = OMM_CODEC_F16};
    static hand slow, h;
    char path[OMM_PATH_MAX];
    found files = {0};
    fed_options o = quiet(true);
    o.values_cols = 40000; /* 160,010 values, each two bytes: two chunks */
    o.up = &f16;
    fed_open(&s_fed, &o);
    hand_begin(&slow, &s_fed, OMM_COORD_CANDIDATES_MAX);
    CHECK_EQ(hand_submit(&slow), OMM_REPLY_NEED);
    s_fed.now_ms += 30000;
    CHECK_EQ(hand_put_chunk(&slow, 0), OMM_REPLY_NEED);
    const omm_digest id = omm_key_id(&slow.key.public_key);
    CHECK_EQ(canary_find(s_fed.coord->canary, &id)->chunk_ms, s_fed.now_ms);
    CHECK_OK(omm_path_join(path, s_fed.dir, "coordinator/canaries/uploads"));
    CHECK_OK(omm_dir_walk(path, count_file, &files));
    CHECK(files.files > 0);
    s_fed.clock.wall_ms += 3600000;
    for (uint32_t i = 0; i < OMM_COORD_CANDIDATES_MAX; i++) {
        if (i + 1 == OMM_COORD_CANDIDATES_MAX) keeps_its_place(&slow);
        hand_open(&h, &s_fed, i);
        CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
        hand_close(&h);
    }
    CHECK(!canary_find(s_fed.coord->canary, &id));
    files.files = 0;
    CHECK_OK(omm_dir_walk(path, count_file, &files));
    CHECK_EQ(files.files, 0);
    hand_close(&slow);
    fed_close(&s_fed);
}

/* ---- bytes of adapters ---- */

/* So many of the last message and of its answer were an adapter's (measured/wire.json). */
static void adapters_passed(size_t up, size_t down) {
    const omm_coord_payload passed = omm_coord_last_payload(s_fed.coord);
    CHECK_EQ(passed.up, up);
    CHECK_EQ(passed.down, down);
}

static void get(hand *h, const omm_blob *blob, omm_bytes *data) {
    omm_buf request;
    omm_buf_init(&request, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_request_encode(
        &request, &(omm_request){.kind = OMM_REQUEST_GET, .digest = blob->digest, .index = 0}));
    fed_send(&s_fed, &h->reply, omm_buf_view(&request));
    CHECK_OK(omm_reply_decode(&h->said, omm_buf_view(&h->reply), &h->arena));
    CHECK_EQ(h->said.kind, OMM_REPLY_CHUNK);
    *data = h->said.data;
    omm_buf_fini(&request);
}

/* What comes down is an adapter, whoever asks; its shard is none, and an offer without it neither. */
static void check_down(hand *h) {
    omm_bytes data = {0};
    CHECK_EQ(hand_poll(h), OMM_REPLY_OFFER);
    CHECK_EQ(h->said.data.size, 0);
    adapters_passed(0, 0);
    h->whole = true;
    CHECK_EQ(hand_poll(h), OMM_REPLY_OFFER);
    CHECK_EQ(h->said.data.size, h->offer.global.size);
    adapters_passed(0, h->offer.global.size);
    get(h, &h->offer.global, &data);
    CHECK_EQ(data.size, h->offer.global.size);
    adapters_passed(0, data.size);
    get(h, &h->offer.canary, &data);
    CHECK(data.size > 0);
    adapters_passed(0, 0);
    hand_train(h);
}

/* `is_node`: what it sends is a node's own payload, each time, before and after its verdict. */
static void check_up(hand *h, bool is_node) {
    const omm_bytes payload = omm_buf_view(&h->payload);
    const size_t up = is_node ? payload.size : 0;
    CHECK_EQ(hand_submit(h), OMM_REPLY_NEED);
    adapters_passed(0, 0);
    CHECK_EQ(hand_put(h), OMM_REPLY_WAIT);
    adapters_passed(up, 0);
    CHECK_EQ(hand_submit_whole(h, payload), OMM_REPLY_WAIT); /* is there news? */
    adapters_passed(up, 0);
    fed_replay(&s_fed);
    CHECK_EQ(hand_submit_whole(h, payload), OMM_REPLY_RECEIPT);
    adapters_passed(up, 0);
    CHECK_EQ(hand_submit(h), OMM_REPLY_RECEIPT);
    adapters_passed(0, 0);
}

static void test_bytes(void) {
    hand h;
    open_quiet(false);
    hand_open(&h, &s_fed, 1); /* a candidate has no row, so its payloads are nobody's */
    CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
    check_down(&h);
    check_up(&h, false);
    hand_close(&h);
    fed_close(&s_fed);
    fed_options o = members(1);
    o.nodes = o.listed = 2;
    o.replays_by_hand = true;
    o.silent[1] = true;
    fed_open(&s_fed, &o);
    hand_open_node(&h, &s_fed, 1);
    for (uint32_t i = 0; i < 3000 && hand_poll(&h) != OMM_REPLY_OFFER; i++) CHECK(fed_step(&s_fed));
    CHECK(h.offer.is_canary);
    check_down(&h);
    check_up(&h, true);
    hand_close(&h);
    fed_close(&s_fed);
}

int main(void) {
    test_bytes();
    test_probation();
    test_no_memory();
    test_share();
    test_false_candidate();
    test_false_node();
    test_evidence_max();
    test_by_hand();
    test_refused_manifests();
    test_copy();
    test_false_name();
    test_on_the_way();
    test_another_offer(true);
    test_another_offer(false);
    test_lost_payload(LOST_OVER_A_RESTART);
    test_lost_payload(LOST_WHILE_IT_WAITS);
    test_lost_payload(DAMAGED);
    test_replay_without_memory();
    test_verdict_twice();
    test_full_run();
    test_waiting_node();
    test_node_in_quarantine();
    test_extra_has_no_turn();
    test_failed_key();
    test_flood();
    test_order();
    test_end();
    test_full();
    test_slow_upload();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
