/* Who is put in quarantine or revoked while a round is open: no round waits for it, and nothing of it is taken any more,
 * whatever fails just then. */
#include "peer.h"

#include "omm/coordinator_enrol.h"
#include "omm/declined.h"
#include "omm_test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char *const s_files[] = {"coordinator.sqlite", "coordinator.sqlite-wal"};

/* Everybody is played by the test, and who is revoked stays so. */
static fed_options quiet(void) {
    fed_options o = peer_options();
    for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = true;
    o.listed = o.nodes;
    o.node_max = o.nodes + 1;
    o.rounds = 2;
    o.on_disk = true;
    return o;
}

static omm_coord_status status(const peer *p) {
    return omm_coord_get_status(p->f.coord);
}

static void open_round(peer *p, const fed_options *o) {
    peer_open(p, o);
    for (uint32_t i = 0; i < o->nodes; i++) peer_poll_as(p, i);
    while (status(p).state != OMM_COORD_OPEN) CHECK(fed_step(&p->f));
    CHECK_EQ(status(p).selected, o->nodes);
    peer_poll(p);
    peer_take_offer(p);
    peer_fill(p, NULL);
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
}

static omm_err quarantine(peer *p, uint32_t node, bool is) {
    return omm_coord_quarantine(&p->f.coord_deadline_ms, p->f.coord, p->f.now_ms,
                                p->f.of_node[node], is);
}

static omm_err shut_out(peer *p, uint32_t node) {
    return omm_coord_revoke(&p->f.coord_deadline_ms, p->f.coord, p->f.now_ms, p->f.of_node[node],
                            "has left");
}

/* ---- who is not waited for ---- */

/* Two that are silent: with the word about the second one the round is over, long before its deadline. */
static void no_round_waits(bool is_for_good, bool restart) {
    peer p;
    const fed_options o = quiet();
    open_round(&p, &o);
    peer_submit(&p);
    peer_upload(&p);
    CHECK_EQ(status(&p).accepted, 1);
    for (uint32_t i = 0; i < PEER; i++) {
        CHECK_EQ(status(&p).state, OMM_COORD_OPEN);
        CHECK(p.f.coord_deadline_ms > p.f.now_ms);
        CHECK_OK(is_for_good ? shut_out(&p, i) : quarantine(&p, i, true));
        CHECK_EQ(p.f.coord_deadline_ms <= p.f.now_ms, i + 1 == PEER);
        if (restart) fed_restart_coordinator(&p.f);
        CHECK_OK(omm_coord_tick(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms));
    }
    CHECK_EQ(status(&p).state, OMM_COORD_AGGREGATING);
    while (status(&p).state != OMM_COORD_PUBLISHED)
        CHECK_OK(omm_coord_tick(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms));
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, p.f.coord);
    CHECK(count == 1 && rounds[0].accepted == 1 && rounds[0].missing == 2);
    peer_close(&p);
}

/* Released again it is waited for again; and one that has spoken is not counted twice. */
static void waits_for_the_released(void) {
    peer p;
    const fed_options o = quiet();
    open_round(&p, &o);
    CHECK_OK(quarantine(&p, 0, true));
    CHECK_OK(quarantine(&p, 1, true));
    CHECK_OK(quarantine(&p, 1, false));
    peer_submit(&p);
    peer_upload(&p);
    CHECK(p.f.coord_deadline_ms > p.f.now_ms);
    CHECK_OK(quarantine(&p, PEER, true));
    CHECK(p.f.coord_deadline_ms > p.f.now_ms); /* its verdict stays what it is */
    CHECK_EQ(status(&p).accepted, 1);
    CHECK_OK(quarantine(&p, 1, true));
    CHECK(p.f.coord_deadline_ms <= p.f.now_ms);
    peer_close(&p);
}

/* A dry run that is put in quarantine is one node that is not waited for, not two. */
static void a_dry_run(void) {
    peer p;
    fed_options o = quiet();
    o.silent[0] = false;
    o.accept_min = 1;
    open_round(&p, &o);
    while (status(&p).accepted < 1) CHECK(fed_step(&p.f));
    peer_poll_with(&p, &(omm_poll){.declined = OMM_DECLINED_DRY}, false);
    CHECK_OK(quarantine(&p, PEER, true));
    CHECK(p.f.coord_deadline_ms > p.f.now_ms);
    CHECK_OK(quarantine(&p, 1, true));
    CHECK(p.f.coord_deadline_ms <= p.f.now_ms);
    peer_close(&p);
}

/* With everybody in quarantine no round opens, and with the first that is released one does. */
static void nobody_is_left(void) {
    peer p;
    const fed_options o = quiet();
    peer_open(&p, &o);
    for (uint32_t i = 0; i < o.nodes; i++) {
        CHECK_OK(quarantine(&p, i, true));
        CHECK_OK(omm_coord_tick(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms));
    }
    p.f.now_ms += 10 * o.join_ms;
    CHECK_OK(omm_coord_tick(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms));
    CHECK_EQ(p.f.coord_deadline_ms, OMM_COORD_NEVER);
    CHECK_EQ(status(&p).state, OMM_COORD_JOINING);
    CHECK_OK(quarantine(&p, PEER, false));
    peer_poll(&p);
    while (status(&p).state != OMM_COORD_OPEN) CHECK(fed_step(&p.f));
    CHECK_EQ(status(&p).selected, 1);
    peer_close(&p);
}

/* ---- what is not taken ---- */

static void check_not_taken(peer *p, bool again) {
    bool receipt = false;
    if (again)
        peer_submit(p);
    else
        peer_put(p, 0);
    CHECK_EQ(peer_reason_of(p, &receipt), OMM_ERR_REFUSED_NOT_SELECTED);
    CHECK(receipt);
    CHECK_EQ(status(p).accepted, 0);
    CHECK_EQ(status(p).refused, 1);
}

/* What it owes the round is refused with the word about it, and not only when it speaks again. */
static void half_an_upload(bool is_for_good) {
    peer p;
    const fed_options o = quiet();
    open_round(&p, &o);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    CHECK_OK(is_for_good ? shut_out(&p, PEER) : quarantine(&p, PEER, true));
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    CHECK_EQ(status(&p).refused, 1);
    check_not_taken(&p, true);
    peer_close(&p);
}

/* Killed when the revocation was kept, and what the node owed not refused yet. */
static void killed_in_between(bool again) {
    peer p;
    omm_buf kept[2];
    char path[OMM_PATH_MAX];
    const fed_options o = quiet();
    open_round(&p, &o);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    for (int i = 0; i < 2; i++) {
        omm_buf_init(&kept[i], (size_t)64 << 20);
        CHECK_OK(omm_path_join(path, p.f.state_dir, s_files[i]));
        if (omm_file_exists(path)) CHECK_OK(omm_file_read(&kept[i], path));
    }
    CHECK_OK(shut_out(&p, PEER));
    omm_coord_close(p.f.coord);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(omm_path_join(path, p.f.state_dir, s_files[i]));
        if (kept[i].size > 0) CHECK_OK(omm_file_write(path, omm_buf_view(&kept[i]), 0600));
        omm_buf_fini(&kept[i]);
    }
    const omm_coord_options options = fed_coord_options(&p.f);
    CHECK_OK(omm_coord_open(&p.f.coord, &options));
    const omm_coord_node_status is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(is.revoked && is.quarantined && is.uploading);
    check_not_taken(&p, again);
    peer_close(&p);
}

/* The room that the disk has is enough for the shorter of the two logs of changes, that of revocations. */
static void let_rounds_write(const peer *p, bool may) {
    struct rlimit limit;
    uint64_t size = 0;
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, p->f.state_dir, s_files[1]));
    CHECK_OK(omm_file_size(&size, path));
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = may ? limit.rlim_max : (rlim_t)size;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A disk that is full for the state of rounds alone: the revocation is in force, and says so. */
static void disk_is_full(bool again) {
    peer p;
    const fed_options o = quiet();
    open_round(&p, &o);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    let_rounds_write(&p, false);
    CHECK_ERR(quarantine(&p, 1, true), OMM_ERR_IO); /* as it is */
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[1]).quarantined);
    CHECK_OK(shut_out(&p, PEER));
    let_rounds_write(&p, true);
    CHECK_ERR(shut_out(&p, PEER), OMM_ERR_STATE);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).quarantined);
    check_not_taken(&p, again);
    peer_close(&p);
}

/* ---- who is asked anew whether it is there ---- */

typedef enum rest { REST_PAUSE, REST_HOLD, REST_QUARANTINE } rest;

/* Who was ready before a long rest may be gone, and is not ready again because the coordinator is started anew. */
static void ready_before_a_rest(rest why) {
    peer p;
    fed_options o = quiet();
    o.accept_min = o.nodes;
    peer_open(&p, &o);
    peer_poll_as(&p, 0);
    peer_poll(&p);
    CHECK_EQ(status(&p).ready, 2);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(status(&p).ready, 2);
    for (int i = 0; i < 2; i++) {
        const bool begins = i == 0;
        if (why == REST_PAUSE)
            CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, begins));
        else if (why == REST_HOLD)
            omm_coord_hold(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, begins);
        else
            CHECK_OK(quarantine(&p, PEER, begins));
    }
    const uint32_t left = why == REST_QUARANTINE ? 1 : 0;
    CHECK_EQ(status(&p).ready, left);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(status(&p).ready, left);
    peer_poll(&p);
    CHECK_EQ(status(&p).ready, left + 1);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(status(&p).ready, left + 1);
    peer_close(&p);
}

int main(void) {
    for (rest why = REST_PAUSE; why <= REST_QUARANTINE; why++) ready_before_a_rest(why);
    for (int i = 0; i < 4; i++) no_round_waits(i & 1, i & 2);
    waits_for_the_released();
    a_dry_run();
    nobody_is_left();
    for (int i = 0; i < 2; i++) half_an_upload(i);
    for (int i = 0; i < 2; i++) {
        killed_in_between(i);
        disk_is_full(i);
    }
    return 0;
}
