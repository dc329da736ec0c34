/* Many steps with one commit: nothing of a batch counts before its commit, on disk, in memory or to those who are
 * told of events; a batch that is killed or cannot be written leaves everything as it was. */
#include "hand.h"
#include "internal.h"
#include "peer.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static omm_digest s_reference;

/* ---- a whole federation ---- */

static fed_options batched_options(void) {
    fed_options options = fed_options_default();
    options.batched = true;
    options.on_disk = true;
    options.rounds = 1;
    return options;
}

static void a_failed_commit_changes_nothing(void) {
    fed_options options = batched_options();
    uint64_t messages = 0;
    options.batched = options.on_disk = false;
    uint32_t undone = 0;
    s_reference = fed_digest_of_run(&options, NULL, NULL);
    options = batched_options();
    omm_digest digest = fed_digest_of_run(&options, &messages, &undone);
    CHECK(omm_digest_equal(&digest, &s_reference));
    CHECK_EQ(undone, 0);
    fed_one_fault one = {.fault = FED_UNDO};
    options.fault = fed_fault_once;
    options.ud = &one;
    for (one.index = 0; one.index < messages; one.index++) {
        digest = fed_digest_of_run(&options, NULL, &undone);
        CHECK(omm_digest_equal(&digest, &s_reference));
    }
    CHECK(undone > messages / 4); /* the others had nothing to write */
    CHECK(undone < messages);
    options.fault = fed_fault_every_other;
    options.ud = &one.fault;
    undone = 0;
    digest = fed_digest_of_run(&options, NULL, &undone);
    CHECK(omm_digest_equal(&digest, &s_reference));
    CHECK(undone > 5);
}

/* ---- several steps in one batch ---- */

typedef struct heard {
    uint32_t verdicts, refused;
} heard;

static void on_event(void *ud, const omm_coord_event *event) {
    heard *h = ud;
    if (event->kind == OMM_COORD_EVENT_SUBMISSION) {
        h->verdicts++;
        CHECK(!omm_digest_is_zero(event->digest));
    }
    if (event->kind == OMM_COORD_EVENT_REQUEST) {
        h->refused++;
        CHECK(strcmp(event->peer, "test") == 0);
        CHECK(event->sentence[0] != '\0');
    }
}

static uint32_t accepted(const peer *p) {
    return omm_coord_get_status(p->f.coord).accepted;
}

/* A chunk that nobody announced: refused without a record. */
static size_t make_stray(uint8_t bytes[512]) {
    omm_buf request;
    omm_buf_init(&request, 512);
    omm_request stray = {.kind = OMM_REQUEST_PUT,
                         .digest = omm_hash(omm_bytes_str("nobody's")),
                         .data = omm_bytes_str("x")};
    CHECK_OK(omm_request_encode(&request, &stray));
    memcpy(bytes, request.data, request.size);
    size_t size = request.size;
    omm_buf_fini(&request);
    return size;
}

static omm_err stray_chunk(peer *p, size_t fail_nth) {
    uint8_t bytes[512];
    omm_bytes request = omm_bytes_of(bytes, make_stray(bytes));
    omm_mem_fail_nth(fail_nth);
    omm_err err = omm_coord_step(&p->reply, &p->f.coord_deadline_ms, p->f.coord, p->f.now_ms,
                                 request, "test");
    omm_mem_fail_nth(0);
    return err;
}

static omm_err commit(peer *p) {
    return omm_coord_commit(&p->f.coord_deadline_ms, p->f.coord, p->f.now_ms);
}

/* Announcement, chunk and a stranger's chunk, all in one. */
static void give_in_batch(peer *p) {
    bool receipt = false;
    CHECK_OK(omm_coord_begin(p->f.coord));
    peer_give(p);
    CHECK_OK(peer_reason_of(p, &receipt));
    CHECK(receipt);
    CHECK_EQ(accepted(p), 1);
    CHECK_OK(stray_chunk(p, 0));
}

static void until_open(peer *p, heard *h, const omm_log *log) {
    fed_options options = peer_options();
    options.on_disk = true;
    options.log = log;
    options.on_event = on_event;
    options.ud = h;
    peer_open(p, &options);
    peer_until_open(p, 0);
    peer_fill(p, NULL);
}

static void nothing_counts_before_the_commit(bool killed) {
    peer p;
    heard h = {0};
    listener l;
    listener_open(&l, " submission_accepted ");
    until_open(&p, &h, &l.log);
    give_in_batch(&p);
    CHECK_EQ(h.verdicts + l.lines, 0);
    if (killed) {
        fed_restart_coordinator(&p.f);
    } else {
        fed_forbid_writing(true);
        CHECK_ERR(commit(&p), OMM_ERR_IO);
        fed_forbid_writing(false);
    }
    CHECK_EQ(accepted(&p), 0);
    CHECK_EQ(h.verdicts + h.refused, 0);
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    CHECK_EQ(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).accepted, 0);
    give_in_batch(&p); /* the very same bytes */
    CHECK_OK(commit(&p));
    CHECK_EQ(h.verdicts, 1);
    CHECK(l.lines == 1 && strstr(l.last, "recorded=1"));
    CHECK_EQ(h.refused, 1);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(accepted(&p), 1);
    peer_submit(&p); /* asks for its receipt */
    bool receipt = false;
    CHECK_OK(peer_reason_of(&p, &receipt));
    CHECK(receipt);
    CHECK_EQ(accepted(&p), 1); /* and is not counted twice */
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).accepted_count, 3);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* An event that cannot be kept must not be missing from what was committed. */
static void no_event_is_lost(void) {
    peer p;
    heard h = {0};
    uint32_t undone = 0;
    until_open(&p, &h, NULL);
    CHECK_OK(stray_chunk(&p, 0)); /* statements are prepared now */
    h.refused = 0;
    for (size_t nth = 1;; nth++) {
        CHECK_OK(omm_coord_begin(p.f.coord));
        omm_err stepped = stray_chunk(&p, nth);
        omm_err committed = commit(&p);
        undone += committed != OMM_OK;
        CHECK_EQ(h.refused, stepped == OMM_OK && committed == OMM_OK);
        if (h.refused) break;
        CHECK_ERR(stepped != OMM_OK ? stepped : committed, OMM_ERR_NOMEM);
        CHECK(nth < 100);
    }
    CHECK(undone > 0);
    peer_close(&p);
}

static void undo(peer *p) {
    fed_forbid_writing(true);
    CHECK_ERR(commit(p), OMM_ERR_IO);
    fed_forbid_writing(false);
}

/* What was left over of a submission that was undone is no residual that the next may begin from. */
static void an_undone_residual(void) {
    peer p;
    heard h = {0};
    bool receipt = false;
    until_open(&p, &h, NULL);
    p.s.residual_after.b[0] ^= 1;
    give_in_batch(&p);
    undo(&p);
    p.s.residual_before = p.s.residual_after;
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_RESIDUAL);
    peer_close(&p);
}

/* Nor was one announced: nobody waits for its chunks, and none of them is taken. */
static void an_undone_announcement(void) {
    peer p;
    heard h = {0};
    bool receipt = false;
    until_open(&p, &h, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    CHECK_OK(omm_coord_begin(p.f.coord));
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    undo(&p);
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    peer_put(&p, 0);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_DIGEST);
    peer_give(&p);
    CHECK_OK(peer_reason_of(&p, &receipt));
    CHECK_EQ(accepted(&p), 1);
    peer_close(&p);
}

static uint32_t s_joined;

static void count_joined(void *ud, const omm_coord_event *event) {
    (void)ud;
    s_joined += event->kind == OMM_COORD_EVENT_JOINED;
}

/* Who joined in it has: that is kept by itself, and so told at once. */
static void joined_in_an_undone_batch(void) {
    static peer p; /* of it the federation alone */
    fed_options o = fed_options_default();
    hand h;
    o.nodes = 3;
    o.listed = 2;
    o.node_max = 4;
    o.work_bits = 6;
    o.quorum = 0;
    o.on_disk = true;
    o.on_event = count_joined;
    o.silent[0] = o.silent[1] = o.silent[2] = true;
    fed_open(&p.f, &o);
    CHECK_OK(omm_coord_begin(p.f.coord));
    hand_open(&h, &p.f, 1);
    CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
    CHECK(s_joined == 1 && p.f.run.node_count == 3);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_WAIT); /* there is something to write */
    undo(&p);
    CHECK(s_joined == 1 && p.f.run.node_count == 3);
    hand_close(&h);
    fed_close(&p.f);
}

/* A manifest that was replaced in a batch that is undone was not replaced. */
static void an_undone_replacement(void) {
    peer p;
    heard h = {0};
    until_open(&p, &h, NULL);
    CHECK_OK(omm_coord_begin(p.f.coord));
    for (p.s.tokens = 100; p.s.tokens < 102; p.s.tokens++) {
        peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    }
    undo(&p);
    for (p.s.tokens = 101; p.s.tokens >= 100; p.s.tokens--) {
        peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    }
    peer_close(&p);
}

/* An answer that does not leave tells nobody that the run is over. */
static void an_undone_end(void) {
    peer p;
    heard h = {0};
    until_open(&p, &h, NULL);
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord) && !omm_coord_all_told(p.f.coord));
    CHECK_OK(omm_coord_begin(p.f.coord));
    p.counter += OMM_COUNTER_BLOCK; /* there is something to write */
    peer_poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_DONE);
    undo(&p);
    CHECK(!omm_coord_all_told(p.f.coord));
    peer_close(&p);
}

/* What SQLite gave up is not gone on with: statements of their own would stay. */
static void a_batch_that_is_given_up(void) {
    peer p;
    heard h = {0};
    until_open(&p, &h, NULL);
    CHECK_OK(omm_coord_begin(p.f.coord));
    omm_db_rollback(p.f.coord->db); /* as it does itself when it cannot write */
    CHECK_ERR(stray_chunk(&p, 0), OMM_ERR_IO);
    CHECK_ERR(commit(&p), OMM_ERR_IO);
    CHECK_EQ(h.refused, 0);
    give_in_batch(&p);
    CHECK_OK(commit(&p));
    peer_close(&p);
}

static omm_err fail_half_way(omm_coord *c, const void *ud) {
    (void)ud;
    OMM_TRY(coord_store_paused(c, true));
    return omm_raise(OMM_ERR_NOMEM, "half way");
}

/* Statements that belong together are there together or not at all, in a batch as without one. */
static void half_a_step(bool batched) {
    peer p;
    heard h = {0};
    until_open(&p, &h, NULL);
    if (batched) CHECK_OK(omm_coord_begin(p.f.coord));
    CHECK_ERR(coord_store_in_transaction(p.f.coord, fail_half_way, NULL), OMM_ERR_NOMEM);
    CHECK(strstr(omm_err_sentence(), "half way"));
    if (batched) CHECK_OK(commit(&p));
    fed_restart_coordinator(&p.f);
    CHECK(!omm_coord_get_status(p.f.coord).paused);
    peer_close(&p);
}

/* What cannot be read again is not guessed: nothing is done any more, until another process begins. */
static void a_state_that_cannot_be_read(void) {
    peer p;
    heard h = {0};
    uint64_t next = 0;
    until_open(&p, &h, NULL);
    give_in_batch(&p);
    fed_forbid_writing(true);
    omm_mem_fail_nth(1);
    CHECK_ERR(commit(&p), OMM_ERR_STATE);
    omm_mem_fail_nth(0);
    fed_forbid_writing(false);
    CHECK_ERR(stray_chunk(&p, 0), OMM_ERR_STATE);
    CHECK_ERR(omm_coord_begin(p.f.coord), OMM_ERR_STATE);
    CHECK_ERR(omm_coord_tick(&next, p.f.coord, p.f.now_ms), OMM_ERR_STATE);
    CHECK_EQ(h.verdicts + h.refused, 0);
    fed_restart_coordinator(&p.f);
    give_in_batch(&p);
    CHECK_OK(commit(&p));
    CHECK_EQ(accepted(&p), 1);
    peer_close(&p);
}

int main(void) {
    a_failed_commit_changes_nothing();
    nothing_counts_before_the_commit(true);
    nothing_counts_before_the_commit(false);
    no_event_is_lost();
    an_undone_residual();
    an_undone_announcement();
    joined_in_an_undone_batch();
    an_undone_replacement();
    an_undone_end();
    a_batch_that_is_given_up();
    half_a_step(false);
    half_a_step(true);
    a_state_that_cannot_be_read();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
