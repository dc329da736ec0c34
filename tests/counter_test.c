/* Polls that a listener recorded and sends again, before and after the coordinator was killed: none of them is taken for
 * the node itself, whose own next poll is, after one refusal at most. */
#include "peer.h"

#include "omm_test.h"

#include <string.h>

static uint32_t ready(const peer *p) {
    return omm_coord_get_status(p->f.coord).ready;
}

static void open_peer(peer *p, uint32_t rounds) {
    fed_options options = peer_options();
    options.rounds = rounds;
    options.on_disk = true;
    options.join_ms = 5000;
    peer_open(p, &options);
}

/* The node's poll with this counter, byte for byte, from whoever kept it. */
static void replay(peer *p, uint64_t counter) {
    const uint64_t own = p->counter;
    p->counter = counter - 1;
    peer_poll_as(p, PEER);
    p->counter = own;
    CHECK(!omm_coord_peer_is_fresh(p->f.coord));
}

static void check_refused(const peer *p, omm_err reason) {
    CHECK_EQ(p->last.kind, OMM_REPLY_REFUSED);
    CHECK_EQ(p->last.reason, reason);
}

/* Takes part in round 0, then is told to wait a few times, of which nothing in the database speaks. */
static void give_and_wait(peer *p) {
    bool receipt = false;
    peer_until_open(p, 0);
    peer_fill(p, NULL);
    peer_give(p);
    CHECK_EQ(peer_reason_of(p, &receipt), OMM_OK);
    for (int i = 0; i < 3; i++) {
        peer_poll_as(p, PEER);
        CHECK_EQ(p->last.kind, OMM_REPLY_WAIT);
    }
}

/* The polls of a node that has gone away must not make the coordinator wait for it until the deadline. */
static void replays_summon_nobody(bool restart) {
    peer p;
    open_peer(&p, 2);
    give_and_wait(&p);
    const uint64_t last = p.counter;
    for (int i = 0; omm_coord_get_status(p.f.coord).round == 0; i++) {
        CHECK(i < 1000);
        CHECK(fed_step(&p.f));
    }
    if (restart) fed_restart_coordinator(&p.f);
    const uint32_t before = ready(&p);
    for (uint64_t counter = last; counter > 0; counter--) {
        replay(&p, counter);
        if (counter == last && !restart)
            CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
        else
            check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
        CHECK_EQ(ready(&p), before);
    }
    CHECK(strstr(p.last.sentence, restart ? "before this start" : "the node's state is new"));
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord));
    CHECK_EQ(peer_last_round(&p).selected_count, 2);
    peer_poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_DONE);
    CHECK(omm_coord_peer_is_fresh(p.f.coord));
    peer_close(&p);
}

/* With its last poll, played again, nobody takes a node's offer: it may have older receipts to ask for. */
static void replays_take_no_offer(void) {
    peer p;
    open_peer(&p, 1);
    peer_poll_as(&p, PEER);
    for (int i = 0; omm_coord_get_status(p.f.coord).state != OMM_COORD_OPEN; i++)
        CHECK(i < 1000 && fed_step(&p.f));
    replay(&p, p.counter);
    CHECK_EQ(p.last.kind, OMM_REPLY_OFFER);
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).offered);
    peer_poll_as(&p, PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_OFFER);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).offered);
    peer_close(&p);
}

/* The node itself comes back after the kill: refused once, then ready. */
static void node_comes_back(void) {
    peer p;
    open_peer(&p, 2);
    give_and_wait(&p);
    for (int i = 0; omm_coord_get_status(p.f.coord).round == 0; i++)
        CHECK(i < 1000 && fed_step(&p.f));
    fed_restart_coordinator(&p.f);
    const uint32_t before = ready(&p);
    peer_poll_as(&p, PEER);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    p.counter += OMM_COUNTER_BLOCK;
    peer_poll_as(&p, PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    CHECK(omm_coord_peer_is_fresh(p.f.coord));
    CHECK_EQ(ready(&p), before + 1);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(ready(&p), before + 1);
    replay(&p, p.counter);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    peer_close(&p);
}

/* A node that has not heard of the end is not taken for told, and hears of it when it asks itself. */
static void replays_end_nothing(bool restart) {
    peer p;
    open_peer(&p, 1);
    give_and_wait(&p);
    const uint64_t last = p.counter;
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord) && !omm_coord_all_told(p.f.coord));
    CHECK_OK(omm_coord_keep_told(p.f.coord));
    if (restart) fed_restart_coordinator(&p.f);
    for (uint64_t counter = last; counter > 0; counter--) {
        replay(&p, counter);
        CHECK(p.last.kind != OMM_REPLY_DONE);
        CHECK(!omm_coord_all_told(p.f.coord));
    }
    peer_poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_DONE);
    CHECK(omm_coord_all_told(p.f.coord));
    replay(&p, p.counter); /* its answer was lost: the same again */
    CHECK_EQ(p.last.kind, OMM_REPLY_DONE);
    peer_close(&p);
}

/* A write for a block, not for each poll; a kill anywhere in it or behind it gives nothing away. */
static void a_block_needs_one_write(void) {
    peer p;
    open_peer(&p, 1);
    give_and_wait(&p); /* polls 1, 2 and so on: the first block is on disk */
    fed_forbid_writing(true);
    while (p.counter < OMM_COUNTER_BLOCK / 2) {
        peer_poll_as(&p, PEER);
        CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    }
    fed_forbid_writing(false);
    for (int restart = 0; restart < 2; restart++) {
        for (int i = 0; i < 3; i++) {
            peer_poll_as(&p, PEER); /* into the next one */
            CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
        }
        fed_restart_coordinator(&p.f);
        for (uint64_t back = 0; back < p.counter; back += 100) {
            replay(&p, p.counter - back);
            check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
        }
        p.counter += OMM_COUNTER_BLOCK;
    }
    peer_poll_as(&p, PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    peer_close(&p);
}

static void poll_and_undo(peer *p, uint32_t node) {
    uint64_t deadline_ms = 0;
    const uint32_t before = ready(p);
    CHECK_OK(omm_coord_begin(p->f.coord));
    peer_poll_as(p, node);
    CHECK_EQ(ready(p), before + 1);
    fed_forbid_writing(true);
    CHECK_ERR(omm_coord_commit(&deadline_ms, p->f.coord, p->f.now_ms), OMM_ERR_IO);
    fed_forbid_writing(false);
    CHECK_EQ(ready(p), before);
}

/* What comes while nothing can be answered is not worth more later than what was answered, after a kill neither. */
static void passed_over(bool restart) {
    peer p;
    open_peer(&p, 2);
    give_and_wait(&p);
    for (int i = 0; i < 5; i++) peer_pass_over(&p);
    const uint64_t last = p.counter;
    p.counter = 0; /* neither one that is played again nor one beyond all numbers takes that back */
    peer_pass_over(&p);
    p.counter = INT64_MAX;
    peer_pass_over(&p);
    p.counter = last;
    for (int i = 0; omm_coord_get_status(p.f.coord).round == 0; i++)
        CHECK(i < 1000 && fed_step(&p.f));
    if (restart) fed_restart_coordinator(&p.f);
    const uint32_t before = ready(&p);
    for (uint64_t counter = last; counter + 5 > last; counter--) {
        replay(&p, counter);
        CHECK(counter == last || p.last.kind == OMM_REPLY_REFUSED);
        CHECK_EQ(ready(&p), before);
    }
    peer_poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    CHECK_EQ(ready(&p), before + 1);
    peer_poll(&p); /* what was answered since is worth more than what was passed over before */
    replay(&p, p.counter - 1);
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    peer_close(&p);
}

/* Wherever in a block the last poll that counted stands, there is room for so many that are passed over. */
static void half_a_block_is_passed_over(void) {
    static const int polls[] = {1, 100, 511, 512, 513, 514, 1023};
    peer p;
    open_peer(&p, 2);
    give_and_wait(&p);
    for (size_t i = 0; i < sizeof polls / sizeof *polls; i++) {
        for (int k = 0; k < polls[i]; k++) {
            peer_poll_as(&p, PEER);
            CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
        }
        fed_restart_coordinator(&p.f);
        replay(&p, p.counter + OMM_COUNTER_BLOCK / 2);
        p.counter += OMM_COUNTER_BLOCK;
    }
    peer_close(&p);
}

/* After an orderly end nobody is refused but who is not new; whoever polls after all, before the process is gone, is
 * written down as ever. */
static void an_orderly_end(bool polls_after) {
    peer p;
    open_peer(&p, 2);
    give_and_wait(&p);
    CHECK_OK(omm_coord_keep_counters(p.f.coord));
    for (int i = 0; polls_after && i < 3; i++) peer_poll_as(&p, PEER);
    fed_restart_coordinator(&p.f);
    replay(&p, p.counter - 1);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    replay(&p, p.counter);
    CHECK_EQ(p.last.kind == OMM_REPLY_WAIT, !polls_after);
    if (polls_after) p.counter += OMM_COUNTER_BLOCK;
    peer_poll_as(&p, PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    CHECK(omm_coord_peer_is_fresh(p.f.coord));
    CHECK_OK(omm_coord_keep_counters(p.f.coord));
    fed_restart_coordinator(&p.f);
    CHECK_OK(omm_coord_keep_counters(p.f.coord)); /* it has heard of nobody */
    fed_restart_coordinator(&p.f);
    replay(&p, p.counter - 1);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    peer_close(&p);
}

/* A batch that is undone forgets what its polls changed, not that they were there; and the block is written again. */
static void an_undone_batch(void) {
    peer p;
    open_peer(&p, 1);
    poll_and_undo(&p, PEER);
    replay(&p, p.counter); /* it had no answer, and sends the same again */
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    CHECK_EQ(ready(&p), 1);
    poll_and_undo(&p, 0);
    peer_poll_as(&p, PEER); /* nobody is refused for that */
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    fed_restart_coordinator(&p.f);
    replay(&p, p.counter);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    CHECK_EQ(ready(&p), 1);
    peer_close(&p);
}

/* The last numbers there are. */
static void the_end_of_the_numbers(void) {
    peer p;
    open_peer(&p, 1);
    p.counter = INT64_MAX - 2;
    peer_poll_as(&p, PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    fed_restart_coordinator(&p.f);
    replay(&p, p.counter);
    check_refused(&p, OMM_ERR_REFUSED_DUPLICATE);
    replay(&p, INT64_MAX); /* may have been there */
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    replay(&p, (uint64_t)INT64_MAX + 1);
    check_refused(&p, OMM_ERR_REFUSED_SIZE);
    replay(&p, UINT64_MAX);
    check_refused(&p, OMM_ERR_REFUSED_SIZE);
    peer_close(&p);
}

int main(void) {
    replays_summon_nobody(false);
    replays_summon_nobody(true);
    replays_take_no_offer();
    node_comes_back();
    replays_end_nothing(false);
    replays_end_nothing(true);
    a_block_needs_one_write();
    passed_over(false);
    passed_over(true);
    half_a_block_is_passed_over();
    an_orderly_end(false);
    an_orderly_end(true);
    an_undone_batch();
    the_end_of_the_numbers();
    return 0;
}
