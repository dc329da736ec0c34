/* rounds_test.c - over-selection, rounds that are held, stages that go on after a restart, and rollback. */
#include "internal.h"
#include "peer.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static omm_coord_status status_of(const fed *f) {
    return omm_coord_get_status(f->coord);
}

/* Step until the state is `state`. */
static void until(fed *f, omm_coord_state state) {
    for (int i = 0; status_of(f).state != state; i++) CHECK(i < 10000 && fed_step(f));
}

/* ---- over-selection ---- */

/* Three of four get the offer, two are needed, and the slow third is not waited for. */
static void test_over_select(bool restart) {
    fed_options o = fed_options_default();
    peer p;
    o.nodes = 4;
    o.rounds = 3;
    o.select = 2;
    o.over_select = 1.5;
    o.deadline_ms = 1000000;
    o.on_disk = o.restart_coordinator = restart;
    for (uint32_t i = 0; i < o.nodes; i++) o.train_ms[i] = (uint64_t)1000 * (1 + 20 * i);
    peer_open(&p, &o);
    fed_run(&p.f);
    CHECK(p.f.now_ms < o.deadline_ms);
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, p.f.coord);
    CHECK_EQ(count, 3);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(rounds[i].selected, 3);
        CHECK_EQ(rounds[i].accepted, 2);
        CHECK(rounds[i].published);
    }
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* Of all that are ready so many fewer are needed; who comes later has it in writing. */
static void test_late(bool announced) {
    fed_options o = peer_options();
    peer p;
    bool receipt = false;
    o.over_select = 1.5;
    o.deadline_ms = 1000000;
    peer_open(&p, &o);
    CHECK_EQ(o.nodes, 3);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    if (announced) { /* the manifest is here, the payload is not */
        peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    }
    for (int i = 0; status_of(&p.f).state == OMM_COORD_OPEN; i++) CHECK(i < 1000 && fed_step(&p.f));
    CHECK(p.f.now_ms < o.deadline_ms);
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_LATE);
    CHECK(receipt);
    CHECK(!announced || strstr(p.sentence, "not complete when enough had come"));
    until(&p.f, OMM_COORD_CLOSED);
    const omm_round_record round = peer_last_round(&p);
    CHECK_EQ(round.selected_count, 3);
    CHECK_EQ(round.accepted_count, 2);
    CHECK_EQ(round.refused_count, announced);
    CHECK_EQ(round.missing_count,
             !announced); /* it came when the last round's evidence was complete */
    peer_close(&p);
}

/* Fewer than accept_min are never enough. */
static void test_enough_is_accept_min(void) {
    fed_options o = fed_options_default();
    peer p;
    listener l;
    o.over_select = 1.5;
    o.accept_min = o.nodes;
    o.rounds = 1;
    o.deadline_ms = 1000000;
    o.train_ms[2] = 20000;
    listener_open(&l, "round_void");
    o.log = &l.log;
    peer_open(&p, &o);
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).accepted_count, o.nodes);
    CHECK(!peer_last_round(&p).voided && l.lines == 0);
    peer_close(&p);
}

/* Who gave nothing is named in the log, of many only some. */
static void test_missing_names(void) {
    fed_options o = fed_options_default();
    peer p;
    listener l;
    uint32_t names = 0;
    o.nodes = 8;
    o.rounds = 1;
    o.deadline_ms = 20000; /* it asks until then */
    for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = i != 1;
    listener_open(&l, "round_collected");
    o.log = &l.log;
    peer_open(&p, &o);
    for (uint32_t i = 0; i < o.nodes; i++) peer_poll_as(&p, i);
    until(&p.f, OMM_COORD_AGGREGATING);
    for (const char *at = l.last; (at = strstr(at, "node-")); at++) names++;
    CHECK_EQ(names, 5);
    CHECK(l.lines == 1 && strstr(l.last, " and 2 more"));
    CHECK(strstr(l.last, "accepted=1 ") && !strstr(l.last, "node-01"));
    peer_close(&p);
}

/* Whether the state is an older copy is a guess at why a round is void only while a node has seen more than it. */
static void test_void_because_older(void) {
    for (uint32_t seen = 1; seen <= 2; seen++) {
        fed_options o = peer_options();
        peer p;
        listener l;
        omm_poll poll = {.rounds_seen = seen};
        o.rounds = 1;
        for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = true;
        listener_open(&l, "round_void");
        o.log = &l.log;
        peer_open(&p, &o);
        peer_poll_with(&p, &poll, false);
        for (uint32_t i = 0; i < o.nodes; i++) peer_poll_as(&p, i);
        until(&p.f, OMM_COORD_CLOSED);
        CHECK(l.lines == 1 && !strstr(l.last, "state_is_older") == (seen < 2));
        peer_close(&p);
    }
}

/* What changes nothing is no worse: with loss_increase_max 0 it is published. */
static void test_as_good_as_before(void) {
    fed_options o = peer_options();
    peer p;
    float zeros[64] = {0};
    bool receipt = false;
    for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = true;
    o.join_ms = 10;
    o.loss_increase_max = 0;
    peer_open(&p, &o);
    CHECK(p.f.run.layout.value_count <= 64);
    peer_until_open(&p, 0);
    peer_fill(&p, zeros);
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    until(&p.f, OMM_COORD_CLOSED);
    CHECK(peer_last_round(&p).published);
    peer_close(&p);
}

/* ---- held ---- */

/* Who was here may be gone: nobody is, and the time to join begins again. */
static void check_anew(const fed *f) {
    CHECK_EQ(status_of(f).ready, 0);
    CHECK_EQ(f->coord_deadline_ms, OMM_COORD_NEVER);
    CHECK_EQ(omm_coord_stage_ms(f->coord, f->now_ms), 0);
}

static void test_hold(void) {
    fed_options o = fed_options_default();
    peer p;
    o.rounds = 1;
    peer_open(&p, &o);
    CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, true));
    for (int i = 0; i < 300; i++) CHECK(fed_step(&p.f));
    CHECK_EQ(status_of(&p.f).state, OMM_COORD_JOINING);
    CHECK_EQ(status_of(&p.f).ready, o.nodes);
    CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, false));
    check_anew(&p.f);
    omm_coord_hold(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, true);
    for (int i = 0; i < 300; i++) CHECK(fed_step(&p.f));
    CHECK_EQ(status_of(&p.f).state, OMM_COORD_JOINING);
    CHECK_EQ(status_of(&p.f).ready, o.nodes);
    omm_coord_hold(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, false);
    check_anew(&p.f);
    until(&p.f, OMM_COORD_CLOSING);
    CHECK_ERR(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, true), OMM_ERR_STATE);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* What the operator said of the run and of a node stays said over restarts, and what he took back stays taken back. */
static void test_words_are_kept(void) {
    fed_options o = peer_options();
    peer p;
    o.on_disk = true;
    peer_open(&p, &o);
    fed *f = &p.f;
    const uint32_t node = f->of_node[PEER], other = f->of_node[0];
    peer_poll(&p);
    CHECK(omm_coord_get_node(f->coord, node).ready);
    for (int is = 1; is >= 0; is--) {
        CHECK_OK(omm_coord_pause(&f->coord_deadline_ms, f->coord, f->now_ms, is));
        CHECK_OK(omm_coord_quarantine(&f->coord_deadline_ms, f->coord, f->now_ms, node, is));
        fed_restart_coordinator(f);
        CHECK_EQ(status_of(f).paused, is);
        CHECK_EQ(omm_coord_get_node(f->coord, node).quarantined, is);
        CHECK(!is || !omm_coord_get_node(f->coord, node).ready);
        CHECK(!omm_coord_get_node(f->coord, other).quarantined);
    }
    peer_close(&p);
}

/* ---- a restart in the middle ---- */

/* What of an upload is there is there after a restart: the node is asked for the other chunks only. */
static void test_upload(void) {
    fed_options o = peer_options();
    peer p;
    bool receipt = false;
    static const omm_codec f16 = {.kind = OMM_CODEC_F16};
    o.on_disk = o.is_plain = true;
    o.values_cols = 80000; /* 320,010 values, each two bytes: three chunks */
    o.up = &f16;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK_EQ(p.last.missing_count, 3);
    while (p.last.missing_count > 1) {
        const size_t missing = p.last.missing_count;
        peer_put(&p, p.last.missing[1]); /* the first comes last */
        fed_restart_coordinator(&p.f);
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
        CHECK_EQ(p.last.missing_count, missing - 1);
        CHECK_EQ(p.last.missing[0], 0);
    }
    peer_put(&p, 0);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    CHECK(receipt);
    peer_close(&p);
}

static void test_stage(void) {
    fed_options o = peer_options();
    peer p;
    o.on_disk = true;
    o.deadline_ms = 600000;
    peer_open(&p, &o); /* the peer's silence keeps the round open */
    peer_until_open(&p, 0);
    const uint64_t opened = p.f.now_ms - omm_coord_stage_ms(p.f.coord, p.f.now_ms);
    uint64_t next = 0;
    p.f.now_ms += 25000;
    const uint64_t passed = omm_coord_stage_ms(p.f.coord, p.f.now_ms);
    fed_restart_coordinator(&p.f);
    omm_coord_resume_stage(p.f.coord, p.f.now_ms, passed);
    CHECK_OK(omm_coord_tick(&next, p.f.coord, p.f.now_ms));
    CHECK_EQ(next, opened + o.deadline_ms);
    fed_restart_coordinator(&p.f);
    p.f.now_ms += o.deadline_ms;
    omm_coord_resume_stage(p.f.coord, p.f.now_ms, o.deadline_ms); /* over while it was away, */
    CHECK_OK(omm_coord_tick(&next, p.f.coord, p.f.now_ms)); /* and so were its nodes' uploads */
    CHECK_EQ(status_of(&p.f).state, OMM_COORD_OPEN);
    CHECK_EQ(next, p.f.now_ms + COORD_FAILING_MS);
    p.f.now_ms = next;
    CHECK_OK(omm_coord_tick(&next, p.f.coord, p.f.now_ms));
    CHECK_EQ(status_of(&p.f).state, OMM_COORD_AGGREGATING);
    peer_close(&p);
}

/* A stage that lasted longer than there is time began when time did. */
static void test_long_stage(void) {
    fed_options o = peer_options();
    peer p;
    uint64_t next = 0;
    o.on_disk = true;
    o.deadline_ms = 600000;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    fed_restart_coordinator(&p.f);
    omm_coord_resume_stage(p.f.coord, p.f.now_ms, p.f.now_ms + 1);
    CHECK_OK(omm_coord_tick(&next, p.f.coord, p.f.now_ms));
    CHECK_EQ(next, o.deadline_ms);
    peer_close(&p);
}

/* A deadline that has passed counts though nobody ticked, and not a millisecond before it. */
static void test_deadline(void) {
    fed_options o = peer_options();
    peer p;
    bool receipt = false;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    p.f.now_ms += o.deadline_ms - 1 - omm_coord_stage_ms(p.f.coord, p.f.now_ms);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    p.f.now_ms++;
    peer_put(&p, 0);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_LATE);
    CHECK(strstr(p.sentence, "at the deadline"));
    CHECK_EQ(status_of(&p.f).state, OMM_COORD_AGGREGATING);
    peer_close(&p);
}

/* ---- quorum ---- */

/* Nodes that say nothing of themselves: nobody is ready, and the first adapter is evaluated. */
static void open_silent(peer *p, fed_options *o) {
    for (uint32_t i = 0; i < o->nodes; i++) o->silent[i] = true;
    peer_open(p, o);
    p->f.now_ms = 5;
    while (!status_of(&p->f).has_loss) CHECK(fed_step(&p->f));
}

/* Where others may join, a quorum is a quorum: with one of it in quarantine it is not there any more. */
static void test_quorum_is_asked_again(void) {
    fed_options o = fed_options_default();
    peer p;
    o.quorum = o.listed = o.nodes;
    o.node_max = o.nodes + 1;
    open_silent(&p, &o);
    for (uint32_t i = 0; i < o.nodes; i++) peer_poll_as(&p, i);
    CHECK_EQ(p.f.coord_deadline_ms, p.f.now_ms);
    CHECK_OK(omm_coord_quarantine(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, 1, true));
    CHECK_EQ(p.f.coord_deadline_ms, p.f.now_ms + o.join_ms);
    peer_close(&p);
}

/* Two more polls' time for nodes that do not count, unless they are here. */
static void test_extra_nodes_get_two_polls(void) {
    fed_options o = fed_options_default();
    peer p;
    o.extra[2] = true;
    open_silent(&p, &o);
    peer_poll_as(&p, 0);
    CHECK(p.f.coord_deadline_ms > p.f.now_ms + 200);
    peer_poll_as(&p, 1);
    CHECK_EQ(p.f.coord_deadline_ms, p.f.now_ms + 200);
    peer_poll_as(&p, 2);
    CHECK_EQ(p.f.coord_deadline_ms, p.f.now_ms);
    peer_close(&p);
}

/* Nor is anybody made to wait for them in the end. */
static void test_extra_nodes_in_the_end(void) {
    fed_options o = fed_options_default();
    peer p;
    o.rounds = 1;
    o.extra[2] = o.silent[2] = true;
    peer_open(&p, &o);
    fed_run(&p.f);
    CHECK(omm_coord_all_told(p.f.coord));
    peer_close(&p);
}

/* After join_ms a round opens with accept_min nodes, and not with fewer; a join_ms without end has none. */
static void test_join(uint64_t join_ms) {
    fed_options o = fed_options_default();
    peer p;
    o.join_ms = join_ms;
    o.accept_min = 2;
    open_silent(&p, &o);
    peer_poll_as(&p, 0);
    CHECK_EQ(p.f.coord_deadline_ms, OMM_COORD_NEVER);
    peer_poll_as(&p, 1);
    CHECK_EQ(p.f.coord_deadline_ms, join_ms == UINT64_MAX ? OMM_COORD_NEVER : p.f.now_ms + join_ms);
    peer_close(&p);
}

/* Three are asked for, and one of the three is in quarantine: the two that are left are not made to wait. */
static void test_quorum_without_quarantined(void) {
    fed_options o = fed_options_default();
    peer p;
    o.nodes = o.quorum = 3;
    o.silent[2] = true;
    o.join_ms = 3600000;
    peer_open(&p, &o);
    CHECK_OK(
        omm_coord_quarantine(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, p.f.of_node[2], true));
    until(&p.f, OMM_COORD_OPEN);
    CHECK_EQ(status_of(&p.f).selected, 2);
    CHECK(p.f.now_ms < o.join_ms);
    fed_run(&p.f);
    CHECK(omm_coord_all_told(p.f.coord)); /* nor is it in the end */
    peer_close(&p);
}

/* ---- an evaluation that fails ---- */

static omm_coord_evaluator s_works;
static unsigned s_evaluations;

static omm_err fail_first(void) {
    return s_evaluations++ % 2 == 0 ? omm_raise(OMM_ERR_IO, "the held-out data cannot be read")
                                    : OMM_OK;
}

static omm_err sample_late(void *ud, uint64_t *items, double *loss,
                           const omm_coord_values *values) {
    OMM_TRY(fail_first());
    return s_works.sample(ud, items, loss, values);
}

static omm_err full_late(void *ud, omm_buf *jsonl, const omm_coord_values *values) {
    OMM_TRY(fail_first());
    return s_works.full(ud, jsonl, values);
}

static omm_err render_late(void *ud, omm_buf *gguf, const omm_coord_values *values) {
    OMM_TRY(fail_first());
    return s_works.render(ud, gguf, values);
}

/* What cannot be evaluated is not published, nor held back: the same is tried again, and comes out as if it had not failed. */
static void test_evaluator_fails(void) {
    fed_options o = fed_options_default();
    fed f;
    o.on_disk = true;
    o.loss_rises = true; /* no candidate is published */
    const omm_digest want = fed_digest_of_run(&o, NULL, NULL);
    o.disk_fails = true;
    fed_open(&f, &o);
    until(&f, OMM_COORD_OPEN);
    CHECK_EQ(status_of(&f).ready, 0); /* who was is selected now */
    omm_coord_close(f.coord);
    omm_coord_options options = fed_coord_options(&f);
    s_works = options.evaluator;
    options.evaluator.sample = sample_late;
    options.evaluator.full = full_late;
    options.evaluator.render = render_late;
    CHECK_OK(omm_coord_open(&f.coord, &options));
    fed_run(&f);
    CHECK_EQ(f.out_of_disk, o.rounds + 3); /* a candidate each; before, after and the adapter */
    CHECK_EQ(s_evaluations, 2 * f.out_of_disk);
    const omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &want));
    fed_close(&f);
}

/* A payload that is not on the disk any more as it was accepted is left out of no sum: the round waits until it is back. */
static void test_payload_damaged(void) {
    fed_options o = fed_options_default();
    uint32_t count = 9;
    fed f;
    o.on_disk = true;
    const omm_digest want = fed_digest_of_run(&o, NULL, NULL);
    fed_open(&f, &o);
    until(&f, OMM_COORD_AGGREGATING);
    omm_db *db = f.coord->db;
    CHECK_OK(omm_db_exec(db, "CREATE TABLE good AS SELECT * FROM small_blob;"
                             "UPDATE small_blob SET bytes = zeroblob(LENGTH(bytes))"
                             " WHERE id = (SELECT MAX(id) FROM small_blob)"));
    CHECK_EQ(omm_db_changes(db), 1);
    for (int i = 0; i < 2; i++) {
        CHECK_ERR(omm_coord_tick(&f.coord_deadline_ms, f.coord, f.now_ms), OMM_ERR_DIGEST);
        (void)omm_coord_history(&count, f.coord);
        CHECK(count == 0 && status_of(&f).state == OMM_COORD_AGGREGATING);
    }
    CHECK_OK(omm_db_exec(db, "UPDATE small_blob SET bytes ="
                             " (SELECT bytes FROM good WHERE good.id = small_blob.id);"
                             "DROP TABLE good"));
    fed_run(&f);
    const omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &want));
    fed_close(&f);
}

/* How far a transition has come that is tried again: what was summed or judged is not done twice. */
static int progress(const fed *f) {
    return 2 * (int)status_of(f).state + f->coord->is_judged;
}

/* One transition, in each part of which the nth allocation fails, for every nth that there is; it ends where it should. */
static void tick_without_memory(fed *f, omm_coord_state to) {
    const omm_coord_state from = status_of(f).state;
    for (size_t nth = 1; status_of(f).state != to; nth++) {
        const int before = progress(f);
        omm_mem_fail_nth(nth);
        const omm_err err = omm_coord_tick(&f->coord_deadline_ms, f->coord, f->now_ms);
        const bool is_due = omm_mem_fail_is_due();
        omm_mem_fail_nth(0);
        CHECK(nth < 2000 && is_due == (err == OMM_OK)); /* none is overlooked */
        if (err == OMM_OK) continue;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(status_of(f).state == from || status_of(f).state == OMM_COORD_EVALUATING);
        if (progress(f) != before) nth = 0;
    }
}

/* The sum, the evidence of a round with one who came by an invitation, and the end: wherever memory runs out, they come out
 * the same at the next try. */
static void test_no_memory(void) {
    fed_options o = fed_options_default();
    fed f;
    o.rounds = 2;
    o.listed = 2;
    o.on_disk = true;
    const omm_digest want = fed_digest_of_run(&o, NULL, NULL);
    fed_open(&f, &o);
    until(&f, OMM_COORD_OPEN);
    while (status_of(&f).round == 0) CHECK(fed_step(&f));
    until(&f, OMM_COORD_AGGREGATING);
    CHECK_EQ(status_of(&f).accepted, o.nodes);
    tick_without_memory(&f, OMM_COORD_PUBLISHED);
    tick_without_memory(&f, OMM_COORD_CLOSING);
    tick_without_memory(&f, OMM_COORD_CLOSED);
    fed_run(&f);
    const omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &want));
    fed_close(&f);
}

static omm_err read_nothing(void *ud, float *values) {
    (void)ud;
    values[0] = 0;
    return omm_raise(OMM_ERR_IO, "the first adapter cannot be read");
}

/* Nor does a run begin without its first adapter. */
static void test_initial_fails(void) {
    fed_options o = fed_options_default();
    fed f;
    fed_open(&f, &o);
    omm_coord_options options = fed_coord_options(&f);
    options.initial.read = read_nothing;
    omm_coord_close(f.coord);
    f.coord = NULL;
    CHECK_ERR(omm_coord_open(&f.coord, &options), OMM_ERR_IO);
    CHECK(!f.coord && strstr(omm_err_sentence(), "the first adapter"));
    fed_close(&f);
}

/* A round whose evidence cannot be written, as something else lies where it belongs, is not over: it is when that is gone,
 * with the same evidence. */
static void test_evidence_in_the_way(const char *name) {
    fed_options o = fed_options_default();
    char path[OMM_PATH_MAX], folder[OMM_PATH_MAX];
    uint32_t count = 9;
    fed f;
    o.on_disk = true;
    const omm_digest want = fed_digest_of_run(&o, NULL, NULL);
    fed_open(&f, &o);
    CHECK_OK(omm_path_join(path, omm_bundle_dir(f.bundle), name));
    until(&f, OMM_COORD_AGGREGATING);
    CHECK(!fed_bundle_has(&f, name));
    CHECK_OK(omm_path_dir(folder, path));
    CHECK_OK(omm_dir_make(folder));
    CHECK_OK(omm_file_write(path, omm_bytes_str("another's\n"), 0600));
    for (int i = 0; i < 2; i++) {
        CHECK(omm_coord_tick(&f.coord_deadline_ms, f.coord, f.now_ms) != OMM_OK);
        CHECK(strstr(omm_err_sentence(), name));
        (void)omm_coord_history(&count, f.coord);
        CHECK(count == 0 && status_of(&f).state == OMM_COORD_EVALUATING);
    }
    CHECK_OK(omm_file_remove(path));
    fed_run(&f);
    const omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &want));
    fed_close(&f);
}

/* ---- rollback ---- */

static void until_round(fed *f, omm_coord_state state, uint32_t round) {
    for (int i = 0; status_of(f).state != state || status_of(f).round != round; i++)
        CHECK(i < 10000 && fed_step(f));
}

static uint32_t roll_back(fed *f, int64_t round) {
    uint32_t next = 99;
    CHECK_OK(omm_coord_rollback(&next, &f->coord_deadline_ms, f->coord, f->now_ms, round));
    if (f->coord_deadline_ms < f->now_ms) f->coord_deadline_ms = f->now_ms;
    return next;
}

static omm_digest file_digest(const fed *f, const char *path) {
    omm_buf bytes;
    omm_buf_init(&bytes, (size_t)1 << 24);
    CHECK_OK(omm_bundle_read(&bytes, f->bundle, path));
    const omm_digest digest = omm_hash(omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    return digest;
}

static void check_begins(fed *f, uint32_t round, uint32_t state) {
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, f->coord);
    CHECK(count > round);
    CHECK_EQ(rounds[round].begins, state);
}

/* Round 2 begins from what round 0 gave, round 3 (asked for while 2 is open) from the run's first adapter; the rest
 * as always.  With kills after every message, after the operator's words, or without, and with candidates that are held
 * back. */
static void test_rollback(bool restart, bool is_killed, bool held_back) {
    fed_options o = fed_options_default();
    peer p;
    uint32_t next = 0;
    o.rounds = 6;
    o.on_disk = true;
    o.restart_coordinator = restart;
    o.loss_nan = held_back; /* no candidate is published */
    o.join_ms = 1000;
    peer_open(&p, &o);
    fed *f = &p.f;
    until_round(f, OMM_COORD_JOINING, 1);
    CHECK_ERR(omm_coord_rollback(&next, &f->coord_deadline_ms, f->coord, f->now_ms, 1),
              OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "round 1 is not over; accepted: start, or 0 to 0"));
    until_round(f, OMM_COORD_JOINING, 2);
    CHECK_ERR(omm_coord_rollback(&next, &f->coord_deadline_ms, f->coord, f->now_ms, 2),
              OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "round 2 is not over; accepted: start, or 0 to 1"));
    CHECK_EQ(roll_back(f, -1), 2); /* the last word counts */
    CHECK_EQ(roll_back(f, 0), 2);
    if (is_killed) fed_restart_coordinator(f);
    until_round(f, OMM_COORD_OPEN, 2);
    CHECK_EQ(roll_back(f, -1), 3);
    if (is_killed)
        fed_restart_coordinator(f); /* both are known: that of the open round, and the next one's */
    until_round(f, OMM_COORD_JOINING, 4);
    CHECK_EQ(roll_back(f, 1), 4);
    CHECK_EQ(roll_back(f, 3), 4); /* the newest: taken back */
    until_round(f, OMM_COORD_OPEN, 5);
    CHECK_ERR(omm_coord_rollback(&next, &f->coord_deadline_ms, f->coord, f->now_ms, 0),
              OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "no round is left"));
    fed_run(f);
    static const uint32_t begins[6] = {0, 1, 1, 0, 4, 5};
    for (uint32_t r = 0; r < 6; r++) check_begins(f, r, begins[r]);
    const omm_digest first = file_digest(f, "adapters/r000.bin");
    const omm_digest third = file_digest(f, "adapters/r004.bin");
    CHECK_EQ(omm_digest_equal(&first, &third),
             held_back); /* held back, it stays what it began from */
    fed_seal_and_verify(f);
    peer_close(&p);
}

/* With an earlier adapter its loss counts, by which the next candidate is judged, over a round that is held back and
 * over a restart. */
static void test_rollback_loss(void) {
    fed_options o = fed_options_default();
    peer p;
    uint32_t count = 0;
    o.rounds = 5;
    o.on_disk = true;
    peer_open(&p, &o);
    fed *f = &p.f;
    until_round(f, OMM_COORD_JOINING, 3);
    const double first = omm_coord_history(&count, f->coord)[0].loss;
    CHECK(count == 3 && first > status_of(f).loss);
    const double newest = status_of(f).loss;
    fed_restart_coordinator(f);
    CHECK(same_bytes(&newest, &(double){status_of(f).loss}, sizeof newest));
    CHECK_EQ(roll_back(f, 0), 3);
    until_round(f, OMM_COORD_OPEN, 3);
    CHECK(same_bytes(&first, &(double){status_of(f).loss}, sizeof first));
    f->o.loss_nan = true;
    until_round(f, OMM_COORD_JOINING, 4);
    CHECK(!omm_coord_history(&count, f->coord)[3].published);
    fed_restart_coordinator(f);
    CHECK(same_bytes(&first, &(double){status_of(f).loss}, sizeof first));
    CHECK_EQ(roll_back(f, 3), 4); /* what the round that was held back ended with: the same */
    until_round(f, OMM_COORD_OPEN, 4);
    CHECK(same_bytes(&first, &(double){status_of(f).loss}, sizeof first));
    f->o.loss_nan = false;
    fed_run(f);
    peer_close(&p);
}

/* Without the first adapter's loss no candidate could be judged: the round waits for the file, and nothing has changed. */
static void test_rollback_without_loss(void) {
    fed_options o = fed_options_default();
    char path[OMM_PATH_MAX], away[OMM_PATH_MAX];
    peer p;
    o.on_disk = true;
    o.loss_increase_max = 1;
    peer_open(&p, &o);
    fed *f = &p.f;
    CHECK_OK(omm_path_join(path, omm_bundle_dir(f->bundle), "eval/rounds.jsonl"));
    CHECK_OK(omm_path_join(away, f->dir, "away"));
    until_round(f, OMM_COORD_JOINING, 1);
    const double first = status_of(f).loss;
    CHECK_EQ(roll_back(f, -1), 1);
    CHECK_EQ(rename(path, away), 0);
    for (int i = 0; i < 2; i++)
        CHECK_ERR(omm_coord_tick(&f->coord_deadline_ms, f->coord, f->now_ms), OMM_ERR_NOT_FOUND);
    CHECK(status_of(f).state == OMM_COORD_JOINING && status_of(f).loss == first);
    CHECK_EQ(rename(away, path), 0);
    until_round(f, OMM_COORD_OPEN, 1);
    CHECK(status_of(f).loss > first); /* that of the first adapter, which was worse */
    fed_run(f);
    check_begins(f, 1, 0);
    fed_seal_and_verify(f);
    peer_close(&p);
}

/* A rollback that was confirmed is not forgotten: a file that is damaged, or of another run, stops the start. */
static void test_rollback_file(void) {
    fed_options o = fed_options_default();
    char path[OMM_PATH_MAX], text[256];
    peer p;
    o.on_disk = true;
    peer_open(&p, &o);
    CHECK_OK(omm_path_join(path, p.f.state_dir, "rollback.json"));
    const struct {
        const char *run_id, *rounds;
        omm_err end;
    } cases[] = {
        {p.f.run.run_id, "[[0,0]]", OMM_OK},
        {"00112233445566778899aabbccddeeff", "[[0,0]]", OMM_ERR_FORMAT},
        {p.f.run.run_id, "[[0,1]]", OMM_ERR_FORMAT}, /* no round begins from what it gives */
        {p.f.run.run_id, "[[99,0]]", OMM_ERR_FORMAT},
        {p.f.run.run_id, "[[0,0]", OMM_ERR_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"schema_version\":1,\"run_id\":\"%s\",\"rounds\":%s}\n", cases[i].run_id,
                       cases[i].rounds);
        CHECK_OK(omm_file_write(path, omm_bytes_str(text), 0600));
        omm_coord_close(p.f.coord);
        p.f.coord = NULL;
        const omm_coord_options options = fed_coord_options(&p.f);
        CHECK_ERR(omm_coord_open(&p.f.coord, &options), cases[i].end);
        if (cases[i].end != OMM_OK) CHECK(strstr(omm_err_sentence(), "remove it to begin"));
    }
    CHECK_OK(omm_file_remove(path));
    fed_restart_coordinator(&p.f);
    peer_close(&p);
}

/* Rows of the database that say what cannot be stop the start. */
static void test_damaged_rows(void) {
    static const struct {
        const char *sql, *says;
    } cases[] = {
        {"UPDATE submission SET node = 99 WHERE round = ?", "submission of node 99"},
        {"UPDATE submission SET node = -2 WHERE round = ?", "submission of node -2"},
        {"UPDATE round SET line = (SELECT line FROM round WHERE round = 0) WHERE round = ?",
         "line of round 0 where that of 1 belongs"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fed_options o = fed_options_default();
        peer p;
        o.on_disk = true;
        peer_open(&p, &o);
        fed_run(&p.f);
        CHECK_OK(omm_db_run(p.f.coord->db, cases[i].sql, OMM_DB_INT(1)));
        omm_coord_close(p.f.coord);
        p.f.coord = NULL;
        const omm_coord_options options = fed_coord_options(&p.f);
        CHECK_ERR(omm_coord_open(&p.f.coord, &options), OMM_ERR_FORMAT);
        CHECK(strstr(omm_err_sentence(), cases[i].says));
        p.f.coord = NULL;
        peer_close(&p);
    }
}

/* Whoever drains it lets the open round end, and no other one opens, however many are ready for it. */
static void test_drained(void) {
    fed_options o = fed_options_default();
    peer p;
    o.rounds = 2;
    peer_open(&p, &o);
    until_round(&p.f, OMM_COORD_OPEN, 0);
    omm_coord_drain(p.f.coord);
    until_round(&p.f, OMM_COORD_JOINING, 1);
    for (int i = 0; i < 200 && fed_step(&p.f); i++)
        CHECK_EQ(omm_coord_get_status(p.f.coord).state, OMM_COORD_JOINING);
    CHECK_EQ(omm_coord_get_status(p.f.coord).ready, o.nodes);
    CHECK_EQ(p.f.coord_deadline_ms, OMM_COORD_NEVER);
    peer_close(&p);
}

/* Bounds of a sum are powers of two, else they are none of what nodes were offered. */
static void test_ranges(void) {
    static const struct {
        double value_max;
        uint64_t weight_sum_max;
        const char *says; /* NULL: it is good */
    } cases[] = {{1, 1, NULL},
                 {0x1p-16, (uint64_t)1 << 40, NULL},
                 {0x1p15, 4096, NULL},
                 {0x1p-17, 1, "value_max: 7.62939453125e-06"},
                 {0x1p16, 1, "value_max: 65536"},
                 {3, 1, "value_max: 3; accepted: powers of two, 2^-16 to 2^15"},
                 {1, 3, "weight_sum_max: 3; accepted: powers of two up to 2^40"},
                 {1, 0, "weight_sum_max: 0"},
                 {1, (uint64_t)1 << 41, "weight_sum_max: 2199023255552"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_fedavg_range range;
        const omm_run_record run = {.value_max = cases[i].value_max,
                                    .weight_sum_max = cases[i].weight_sum_max};
        CHECK_EQ(coord_range(&range, &run), cases[i].says ? OMM_ERR_CONFIG : OMM_OK);
        if (cases[i].says) CHECK(strstr(omm_err_sentence(), cases[i].says));
    }
}

int main(void) {
    test_drained();
    test_ranges();
    test_evaluator_fails();
    test_payload_damaged();
    test_no_memory();
    test_initial_fails();
    test_evidence_in_the_way("adapters/r001.bin");
    test_evidence_in_the_way("offers/r000.env");
    test_rollback(false, false, false);
    test_rollback(false, true, false);
    test_rollback(true, true, false);
    test_rollback(false, true, true);
    test_rollback_loss();
    test_rollback_without_loss();
    test_rollback_file();
    test_over_select(false);
    test_over_select(true);
    test_late(false);
    test_late(true);
    test_enough_is_accept_min();
    test_missing_names();
    test_void_because_older();
    test_as_good_as_before();
    test_hold();
    test_words_are_kept();
    test_quorum_without_quarantined();
    test_quorum_is_asked_again();
    test_extra_nodes_get_two_polls();
    test_extra_nodes_in_the_end();
    test_join(1000);
    test_join(UINT64_MAX);
    test_upload();
    test_stage();
    test_long_stage();
    test_deadline();
    test_damaged_rows();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
