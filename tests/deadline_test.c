/* deadline_test.c - a round's deadline while the coordinator cannot keep what nodes give: nobody is late because of our disk. */
#include "internal.h"
#include "peer.h"

#include "omm_test.h"

#include <string.h>

#define AGAIN_MS 30000u /* a node comes again */

/* A round in which the peer alone has not given yet, a moment before it runs out. */
typedef struct scene {
    fed_options o;
    peer p;
    listener l;
    uint64_t opened_ms, deadline_ms; /* as the offer has it */
    bool receipt;
} scene;

static omm_coord_status status_of(const scene *s) {
    return omm_coord_get_status(s->p.f.coord);
}

static void scene_open(scene *s, uint32_t rounds, uint64_t before_ms) {
    *s = (scene){.o = peer_options()};
    s->o.on_disk = s->o.batched = true;
    s->o.deadline_ms = 600000;
    s->o.rounds = rounds;
    listener_open(&s->l, "deadline_waits");
    s->o.log = &s->l.log;
    peer_open(&s->p, &s->o);
    peer_until_open(&s->p, 0);
    s->opened_ms = s->p.f.now_ms - omm_coord_stage_ms(s->p.f.coord, s->p.f.now_ms);
    s->deadline_ms = s->opened_ms + s->o.deadline_ms;
    while (status_of(s).accepted < s->o.nodes - 1) CHECK(fed_step(&s->p.f));
    peer_fill(&s->p, NULL);
    peer_seal(&s->p, OMM_CONTEXT_SUBMISSION, &s->p.f.keys[PEER]);
    s->p.f.now_ms = s->deadline_ms - before_ms;
}

static void scene_close(scene *s) {
    peer_close(&s->p);
}

/* Its manifest cannot be kept, for so long. */
static void fail_for(scene *s, uint64_t ms) {
    const uint64_t end_ms = s->p.f.now_ms + ms;
    for (;; s->p.f.now_ms += AGAIN_MS) {
        const uint32_t undone = s->p.f.undone;
        s->p.f.undo_next = true;
        peer_submit(&s->p);
        CHECK_EQ(s->p.f.undone, undone + 1);
        CHECK_EQ(status_of(s).state, OMM_COORD_OPEN);
        if (s->p.f.now_ms >= end_ms) return;
    }
}

static omm_err tick(scene *s) {
    return omm_coord_tick(&s->p.f.coord_deadline_ms, s->p.f.coord, s->p.f.now_ms);
}

static void expect_accepted(scene *s) {
    peer_submit(&s->p);
    CHECK_EQ(s->p.last.kind, OMM_REPLY_NEED);
    peer_upload(&s->p);
    CHECK_EQ(peer_reason_of(&s->p, &s->receipt), OMM_OK);
    CHECK(s->receipt);
    fed_run(&s->p.f);
    CHECK_EQ(peer_last_round(&s->p).accepted_count, s->o.nodes);
    fed_seal_and_verify(&s->p.f);
}

/* The disk is full from before the deadline until long after it, and is mended; the node comes last of all. */
static void test_full_disk(uint64_t before_ms, uint64_t full_ms, uint64_t away_ms) {
    scene s;
    scene_open(&s, 1, before_ms);
    CHECK(before_ms < full_ms);
    fail_for(&s, full_ms);
    CHECK_EQ(s.l.lines, 1);
    CHECK(strstr(s.l.last, "detail="));
    s.p.f.now_ms += away_ms;
    expect_accepted(&s);
    scene_close(&s);
}

/* The time that does not count is that between the failures, and no more. */
static void test_moves(void) {
    scene s;
    scene_open(&s, 1, 300000);
    fail_for(&s, 60000);
    CHECK_EQ(s.p.f.coord_deadline_ms, s.deadline_ms + 60000);
    CHECK_EQ(status_of(&s).waited_ms, 60000);
    s.p.f.now_ms += COORD_FAILING_MS; /* all is well for so long: two disks that are full */
    fail_for(&s, 30000);
    CHECK_EQ(s.p.f.coord_deadline_ms, s.deadline_ms + 90000);
    CHECK_EQ(s.l.lines, 2);
    s.p.f.now_ms = s.deadline_ms + 90000 - 1;
    CHECK_OK(tick(&s));
    CHECK_EQ(status_of(&s).state, OMM_COORD_OPEN);
    s.p.f.now_ms++;
    CHECK_OK(tick(&s));
    CHECK_EQ(status_of(&s).state, OMM_COORD_AGGREGATING);
    peer_submit(&s.p);
    CHECK_EQ(peer_reason_of(&s.p, &s.receipt), OMM_ERR_REFUSED_LATE);
    scene_close(&s);
}

/* A start gives everybody time to come again; that the disk is still full is said all the same, once. */
static void test_said_after_a_start(void) {
    scene s;
    scene_open(&s, 1, 300000);
    omm_coord_resume_stage(s.p.f.coord, s.p.f.now_ms, 1000);
    CHECK_EQ(s.l.lines, 0);
    s.p.f.now_ms += 1000;
    fail_for(&s, 0);
    CHECK_EQ(s.l.lines, 1);
    fail_for(&s, 60000);
    CHECK_EQ(s.l.lines, 1);
    scene_close(&s);
}

/* What is of no disk moves nothing: a node that takes too much memory at each try would keep the round open. */
static void test_no_disk(void) {
    static const omm_err others[] = {OMM_OK, OMM_ERR_NOMEM, OMM_ERR_STATE};
    scene s;
    scene_open(&s, 1, 300000);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        coord_deadline_failed(s.p.f.coord, s.p.f.now_ms, others[i]);
        s.p.f.now_ms += 1000;
        coord_deadline_failed(s.p.f.coord, s.p.f.now_ms, others[i]);
        CHECK_EQ(coord_deadline_ms(s.p.f.coord), s.deadline_ms);
    }
    CHECK(!status_of(&s).is_spared);
    CHECK_EQ(s.l.lines, 0);
    scene_close(&s);
}

/* A disk that is full for the last second only: whoever was put off has time to come again, and nobody more than that. */
static void test_time_to_come_again(void) {
    scene s;
    scene_open(&s, 1, 1000);
    fail_for(&s, 0);
    s.p.f.now_ms += COORD_FAILING_MS - 1;
    CHECK_OK(tick(&s));
    CHECK_EQ(status_of(&s).state, OMM_COORD_OPEN);
    s.p.f.now_ms++;
    CHECK_OK(tick(&s));
    CHECK_EQ(status_of(&s).state, OMM_COORD_AGGREGATING);
    scene_close(&s);
}

/* Nobody gave anything while it was full, so the round itself finds out, at its deadline. */
static void test_end_that_cannot_be_kept(void) {
    scene s;
    scene_open(&s, 1, 1000);
    peer_submit(&s.p); /* announced, and the payload is on its way */
    CHECK_EQ(s.p.last.kind, OMM_REPLY_NEED);
    s.p.f.now_ms = s.deadline_ms;
    fed_forbid_writing(true);
    CHECK_EQ(tick(&s), OMM_ERR_IO);
    fed_forbid_writing(false);
    CHECK_EQ(s.p.f.coord_deadline_ms, s.deadline_ms + COORD_FAILING_MS);
    CHECK_EQ(s.l.lines, 1);
    s.p.f.now_ms += COORD_FAILING_MS - 1;
    expect_accepted(&s);
    scene_close(&s);
}

/* A payload whose file cannot be written: the step fails, and not its commit. */
static void test_payload_without_room(void) {
    scene s;
    scene_open(&s, 1, 1000);
    omm_buf bytes;
    omm_buf_init(&bytes, (size_t)1 << 20);
    const omm_request request = {.kind = OMM_REQUEST_SUBMIT,
                                 .envelope = omm_buf_view(&s.p.envelope)};
    CHECK_OK(omm_request_encode(&bytes, &request));
    s.p.f.now_ms = s.deadline_ms - 1;
    fed_forbid_writing(true); /* not in a batch: each step keeps its own */
    CHECK_EQ(omm_coord_step(&s.p.reply, &s.p.f.coord_deadline_ms, s.p.f.coord, s.p.f.now_ms,
                            omm_buf_view(&bytes), "test"),
             OMM_ERR_IO);
    fed_forbid_writing(false);
    CHECK_EQ(s.p.f.coord_deadline_ms, s.p.f.now_ms + COORD_FAILING_MS);
    omm_buf_fini(&bytes);
    s.p.f.now_ms += COORD_FAILING_MS - 1;
    expect_accepted(&s);
    scene_close(&s);
}

/* One file that can never be written keeps no round open for ever. */
static void test_bound(void) {
    scene s;
    scene_open(&s, 1, 1000);
    const uint64_t most_ms = COORD_FAILING_MS_MAX + COORD_FAILING_MS;
    for (; s.p.f.now_ms < s.deadline_ms + most_ms; s.p.f.now_ms += COORD_FAILING_MS - 1) {
        s.p.f.undo_next = true;
        peer_submit(&s.p);
    }
    CHECK(status_of(&s).waited_ms > COORD_FAILING_MS_MAX - COORD_FAILING_MS);
    CHECK(s.p.f.coord_deadline_ms < s.deadline_ms + most_ms);
    CHECK_OK(tick(&s));
    CHECK_EQ(status_of(&s).state, OMM_COORD_AGGREGATING);
    scene_close(&s);
}

/* The next round has the time that its offer says. */
static void test_next_round(void) {
    scene s;
    scene_open(&s, 2, 1000);
    fail_for(&s, 60000);
    CHECK(status_of(&s).is_spared && status_of(&s).waited_ms == 60000);
    s.p.f.now_ms += COORD_FAILING_MS;
    for (int i = 0; status_of(&s).round == 0 || status_of(&s).state != OMM_COORD_OPEN; i++) {
        if (status_of(&s).round > 0 && !status_of(&s).ready) peer_poll(&s.p);
        CHECK(i < 1000 && fed_step(&s.p.f));
    }
    CHECK(!status_of(&s).is_spared && status_of(&s).waited_ms == 0);
    CHECK_EQ(s.p.f.coord_deadline_ms, s.p.f.now_ms + s.o.deadline_ms);
    scene_close(&s);
}

int main(void) {
    test_full_disk(1000, 60000, 0);
    test_full_disk(1000, 60000, COORD_FAILING_MS - 1);
    test_full_disk(500000, (uint64_t)36 * 3600 * 1000, COORD_FAILING_MS - 1);
    test_moves();
    test_no_disk();
    test_said_after_a_start();
    test_time_to_come_again();
    test_end_that_cannot_be_kept();
    test_payload_without_room();
    test_bound();
    test_next_round();
    return 0;
}
