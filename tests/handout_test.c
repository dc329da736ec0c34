/* handout_test.c - who is handed what, and when: the lots of a round, what each kind of peer is answered in each state, and the
 * places in the queue of canaries, of which nodes have their own.  In whole rounds, but for the test's own hands. */
#include "hand.h"

#include "omm/mem.h"
#include "omm/run_config.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE OMM_COORD_CANARY_QUEUE_MAX

static fed s_fed;

static omm_coord_status status(void) {
    return omm_coord_get_status(s_fed.coord);
}

static void until_state(omm_coord_state state) {
    for (int i = 0; status().state != state; i++) CHECK(i < 10000 && fed_step(&s_fed));
}

/* ---- lots ---- */

typedef struct lot {
    omm_digest rank, id;
} lot;

static int by_rank(const void *a, const void *b) {
    return omm_digest_compare(&((const lot *)a)->rank, &((const lot *)b)->rank);
}

/* As docs/design.md has it: the lowest digests of nonce and id, of those nodes that `may` be drawn. */
static void expect_lots(bool *chosen, const omm_digest *nonce, const bool *may, uint32_t take) {
    lot lots[FED_NODES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s_fed.o.nodes; i++) {
        uint8_t both[64];
        chosen[i] = false;
        if (!may[i]) continue;
        const omm_digest id = omm_key_id(&s_fed.keys[i].public_key);
        memcpy(both, nonce->b, 32);
        memcpy(both + 32, id.b, 32);
        lots[count++] = (lot){omm_hash(omm_bytes_of(both, sizeof both)), id};
    }
    qsort(lots, count, sizeof *lots, by_rank);
    for (uint32_t k = 0; k < take && k < count; k++)
        for (uint32_t i = 0; i < s_fed.o.nodes; i++) {
            const omm_digest id = omm_key_id(&s_fed.keys[i].public_key);
            chosen[i] |= omm_digest_equal(&id, &lots[k].id);
        }
}

static bool is_selected(uint32_t node) {
    return omm_coord_get_node(s_fed.coord, s_fed.of_node[node]).selected;
}

/* Every round its own lots, nobody is left out for long, and nobody is favoured. */
static void test_lots(void) {
    enum { NODES = 5, ROUNDS = 60, SELECT = 2 };
    fed_options o = fed_options_default();
    uint32_t turns[NODES] = {0};
    o.nodes = NODES;
    o.rounds = ROUNDS;
    o.select = SELECT;
    fed_open(&s_fed, &o);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool may[NODES] = {true, true, true, true, true}, want[NODES] = {false};
        omm_digest nonce;
        const omm_seed seed = omm_seed_from_u64(7); /* of federations */
        until_state(OMM_COORD_OPEN);
        CHECK_EQ(status().round, round);
        omm_run_nonce(nonce.b, &seed, round);
        expect_lots(want, &nonce, may, SELECT);
        for (uint32_t i = 0; i < NODES; i++) {
            CHECK_EQ(is_selected(i), want[i]);
            turns[i] += want[i];
        }
        while (status().state == OMM_COORD_OPEN) CHECK(fed_step(&s_fed));
    }
    for (uint32_t i = 0; i < NODES; i++) CHECK(turns[i] > 12 && turns[i] < 36); /* 24 of 60 each */
    fed_run(&s_fed);
    fed_close(&s_fed);
}

/* ---- what each is answered ---- */

/* Nodes of the run; the last two are put in quarantine, and revoked. */
enum { FIRST, SECOND, THIRD, FOURTH, CAUGHT, GONE, NODES };

static hand s_nodes[NODES], s_candidate, s_stranger;

static void open_all(void) {
    fed_options o = fed_options_default();
    o.nodes = o.listed = NODES;
    o.node_max = NODES + 2;
    o.rounds = 2;
    o.select = 3;
    o.quorum = 4;
    o.accept_min = 1;
    o.work_bits = 4;
    o.canaries = true;
    o.passes = 2;
    o.replays_by_hand = true;
    for (uint32_t i = 0; i < NODES; i++) o.silent[i] = true;
    o.on_disk = true;
    fed_open(&s_fed, &o);
    for (uint32_t i = 0; i < NODES; i++) hand_open_node(&s_nodes[i], &s_fed, i);
    hand_open(&s_candidate, &s_fed, 1);
    hand_open(&s_stranger, &s_fed, 2);
    while (!status().has_loss) CHECK(fed_step(&s_fed));
}

static void close_all(void) {
    for (uint32_t i = 0; i < NODES; i++) hand_close(&s_nodes[i]);
    hand_close(&s_candidate);
    hand_close(&s_stranger);
    fed_close(&s_fed);
}

static void set_quarantine(uint32_t node, bool is) {
    CHECK_OK(omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms,
                                  s_fed.of_node[node], is));
}

/* Signed, as whoever is on the way could say so too. */
static omm_err kept_out(hand *h) {
    const omm_reply_kind kind = hand_poll(h);
    CHECK_EQ(kind, OMM_REPLY_RECEIPT);
    return hand_refused(h, kind);
}

/* Of those who are none of the round's: the same in every state. */
static void check_others(void) {
    CHECK_EQ(hand_poll(&s_candidate), OMM_REPLY_OFFER);
    CHECK(s_candidate.offer.is_canary && s_candidate.offer.selected_count == 1);
    CHECK(omm_coord_peer_stays(s_fed.coord));
    CHECK_EQ(hand_refused(&s_stranger, hand_poll(&s_stranger)), OMM_ERR_REFUSED_KEY);
    CHECK(!omm_coord_peer_stays(s_fed.coord));
    CHECK_EQ(kept_out(&s_nodes[GONE]), OMM_ERR_REFUSED_KEY);
    CHECK_EQ(kept_out(&s_nodes[CAUGHT]), OMM_ERR_REFUSED_NOT_SELECTED);
}

/* Three of the four that were ready have the one offer, as often as they ask; the fourth waits. */
static void check_open(const bool *want) {
    omm_digest offer = {{0}};
    for (uint32_t i = 0; i < NODES; i++) {
        if (i == CAUGHT || i == GONE) continue;
        CHECK_EQ(hand_poll(&s_nodes[i]), want[i] ? OMM_REPLY_OFFER : OMM_REPLY_WAIT);
        if (!want[i]) continue;
        CHECK(!s_nodes[i].offer.is_canary && s_nodes[i].offer.selected_count == 3);
        if (omm_digest_is_zero(&offer)) offer = s_nodes[i].offer_digest;
        CHECK(omm_digest_equal(&offer, &s_nodes[i].offer_digest));
    }
    check_others();
}

static void test_who_gets_what(void) {
    bool may[NODES] = {[FIRST] = true, [SECOND] = true, [THIRD] = true, [FOURTH] = true};
    bool want[NODES] = {false};
    open_all();
    CHECK_EQ(hand_enrol(&s_candidate), OMM_REPLY_WAIT);
    for (uint32_t i = 0; i < NODES; i++) /* the fourth makes the quorum */
        if (i != FOURTH) CHECK_EQ(hand_poll(&s_nodes[i]), OMM_REPLY_WAIT);
    set_quarantine(CAUGHT, true);
    CHECK_OK(omm_coord_revoke(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms,
                              s_fed.of_node[GONE], "test"));
    CHECK_EQ(status().state, OMM_COORD_JOINING);
    check_others();
    CHECK_EQ(hand_poll(&s_nodes[FOURTH]), OMM_REPLY_WAIT);
    until_state(OMM_COORD_OPEN);
    CHECK_EQ(status().selected, 3);
    omm_digest nonce;
    const omm_seed seed = omm_seed_from_u64(7);
    omm_run_nonce(nonce.b, &seed, 0);
    expect_lots(want, &nonce, may, 3);
    check_open(want);
    check_open(want); /* again, and over a restart */
    fed_restart_coordinator(&s_fed);
    check_open(want);
    uint32_t one =
        0; /* of those that have it, one is caught: it is kept out until it is released */
    while (!want[one]) one++;
    set_quarantine(one, true);
    CHECK_EQ(kept_out(&s_nodes[one]), OMM_ERR_REFUSED_NOT_SELECTED);
    set_quarantine(one, false);
    check_open(want);
    s_fed.now_ms +=
        s_fed.o.deadline_ms; /* nobody answers: the round is void, and all gather anew */
    until_state(OMM_COORD_JOINING);
    CHECK_EQ(status().round, 1);
    for (uint32_t i = 0; i < NODES; i++)
        if (i != CAUGHT && i != GONE) CHECK_EQ(hand_poll(&s_nodes[i]), OMM_REPLY_WAIT);
    until_state(OMM_COORD_OPEN);
    s_fed.now_ms += s_fed.o.deadline_ms;
    until_state(OMM_COORD_CLOSED);
    for (uint32_t i = 0; i < NODES; i++)
        if (i != GONE) CHECK_EQ(hand_poll(&s_nodes[i]), OMM_REPLY_DONE);
    CHECK_EQ(hand_poll(&s_candidate), OMM_REPLY_DONE);
    CHECK_EQ(hand_refused(&s_stranger, hand_poll(&s_stranger)), OMM_ERR_REFUSED_KEY);
    CHECK_EQ(kept_out(&s_nodes[GONE]), OMM_ERR_REFUSED_KEY); /* in the end, too */
    close_all();
}

/* ---- places ---- */

enum { MANY = (int)QUEUE + 3 }; /* one of them is left to the round */

static hand s_many[MANY], s_guests[QUEUE + 1];

/* All nodes but one have a canary, and have trained it. */
static void open_many(void) {
    fed_options o = fed_options_default();
    o.nodes = o.listed = MANY;
    o.node_max = MANY + 1;
    o.rounds = 1;
    o.deadline_ms = 100000000;
    o.work_bits = 4;
    o.canaries = true;
    o.passes = 1;
    o.share = 1;
    o.replays_by_hand = true;
    for (uint32_t i = 0; i < MANY; i++) o.silent[i] = true;
    o.on_disk = true;
    fed_open(&s_fed, &o);
    while (!status().has_loss) CHECK(fed_step(&s_fed));
    for (uint32_t i = 0; i < MANY; i++) hand_open_node(&s_many[i], &s_fed, i);
    for (uint32_t i = 0; i < MANY; i++) CHECK_EQ(hand_poll(&s_many[i]), OMM_REPLY_WAIT);
    until_state(OMM_COORD_OPEN);
    CHECK_EQ(status().selected, 1);
    uint32_t last = 0;
    for (uint32_t i = 0; i < MANY; i++)
        if (is_selected(i)) last = i;
    const hand moved = s_many[last];
    s_many[last] = s_many[MANY - 1];
    s_many[MANY - 1] = moved;
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK_EQ(hand_poll(&s_many[i]), OMM_REPLY_OFFER);
        CHECK_EQ(s_many[i].offer.is_canary, i < MANY - 1);
        if (i < MANY - 1) hand_train(&s_many[i]);
    }
}

static void close_many(void) {
    for (uint32_t i = 0; i < MANY; i++) hand_close(&s_many[i]);
    for (uint32_t i = 0; i < QUEUE + 1; i++) hand_close(&s_guests[i]);
    fed_close(&s_fed);
}

static void is_next(const hand *h) {
    const omm_digest want = omm_key_id(&h->key.public_key);
    const omm_canary_result passed = {.passed = true};
    bool has_job = false;
    omm_canary_job job;
    CHECK_OK(omm_coord_canary_next(&has_job, &job, s_fed.coord));
    CHECK(has_job && omm_digest_equal(&job.node, &want));
    CHECK_OK(omm_coord_canary_verdict(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, &job,
                                      &passed));
    omm_canary_job_fini(&job);
}

/* Candidates have taken all of theirs: nodes have as many, and not one more; who stands still makes room for its own kind; each
 * verdict frees one place, first come, first judged, whoever it is. */
static void test_places(void) {
    open_many();
    s_fed.now_ms += (uint64_t)1 << 40; /* the clock of a service begins there */
    for (uint32_t i = 0; i < QUEUE + 1; i++) hand_begin(&s_guests[i], &s_fed, i);
    for (uint32_t i = 0; i < QUEUE; i++) CHECK_EQ(hand_submit(&s_guests[i]), OMM_REPLY_NEED);
    CHECK_EQ(hand_submit(&s_guests[QUEUE]), OMM_REPLY_WAIT);
    for (uint32_t i = 0; i < QUEUE; i++) CHECK_EQ(hand_submit(&s_many[i]), OMM_REPLY_NEED);
    CHECK_EQ(hand_submit(&s_many[QUEUE]), OMM_REPLY_WAIT);
    for (uint32_t i = 1; i < QUEUE; i++) CHECK_EQ(hand_put(&s_many[i]), OMM_REPLY_WAIT);
    fed_restart_coordinator(&s_fed); /* and their places are theirs still */
    CHECK_EQ(hand_submit(&s_many[QUEUE]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&s_guests[QUEUE]), OMM_REPLY_WAIT);
    for (uint32_t i = 0; i < QUEUE; i++) CHECK_EQ(hand_put(&s_guests[i]), OMM_REPLY_WAIT);
    s_fed.now_ms +=
        60000; /* the first node's upload stands still: its place is a node's, not a guest's */
    CHECK_EQ(hand_submit(&s_guests[QUEUE]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&s_many[QUEUE]), OMM_REPLY_NEED);
    CHECK_EQ(hand_put(&s_many[QUEUE]), OMM_REPLY_WAIT);
    CHECK_EQ(hand_submit(&s_many[0]), OMM_REPLY_WAIT);
    CHECK_EQ(status().canaries_waiting, 2 * QUEUE);
    for (uint32_t i = 1; i < QUEUE; i++) is_next(&s_many[i]); /* they came before the guests */
    CHECK_EQ(hand_submit(&s_many[0]), OMM_REPLY_NEED);
    CHECK_EQ(hand_put(&s_many[0]), OMM_REPLY_WAIT);
    is_next(&s_guests[0]);
    CHECK_EQ(hand_submit(&s_guests[QUEUE]), OMM_REPLY_NEED);
    for (uint32_t i = 1; i < QUEUE; i++) is_next(&s_guests[i]);
    is_next(&s_many[QUEUE]);
    is_next(&s_many[0]);
    CHECK_EQ(status().canaries_waiting, 0);
    for (uint32_t i = 0; i < MANY - 1;
         i++) /* who has answered is nobody's any more, until the next round */
        CHECK_EQ(hand_poll(&s_many[i]), i == QUEUE + 1 ? OMM_REPLY_OFFER : OMM_REPLY_WAIT);
    close_many();
}

int main(void) {
    test_lots();
    test_who_gets_what();
    test_places();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
