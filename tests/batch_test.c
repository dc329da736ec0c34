/* Many steps with one commit: nothing of a batch counts before its commit, on disk, in memory or to those who are
 * told of events; a batch that is killed or cannot be written leaves everything as it was. */
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

static void until_open(peer *p, heard *h) {
    fed_options options = peer_options();
    options.on_disk = true;
    options.on_event = on_event;
    options.ud = h;
    peer_open(p, &options);
    peer_until_open(p, 0);
    peer_fill(p, NULL);
}

static void nothing_counts_before_the_commit(bool killed) {
    peer p;
    heard h = {0};
    until_open(&p, &h);
    give_in_batch(&p);
    CHECK_EQ(h.verdicts, 0);
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
    give_in_batch(&p); /* the very same bytes */
    CHECK_OK(commit(&p));
    CHECK_EQ(h.verdicts, 1);
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
    until_open(&p, &h);
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

int main(void) {
    a_failed_commit_changes_nothing();
    nothing_counts_before_the_commit(true);
    nothing_counts_before_the_commit(false);
    no_event_is_lost();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
