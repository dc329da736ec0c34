/* Goal: places.  A flood of candidates keeps no node's canary out of the queue and no node out of the operator's list; who waits for
 * its verdict, or uploads, keeps its place, over a restart too; and how often one may start over counts anew with each canary.
 * Method: candidates and a node played by hand.
 */
#include "hand.h"

#include "canary.h"
#include "omm/coordinator_canary.h"
#include "omm/coordinator_ctl.h"
#include "omm/coordinator_enrol.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

enum { BITS = 6 };

static fed s_fed;

static void open_door(double share) {
    fed_options o = fed_options_default();
    o.nodes = 3;
    o.listed = 2;
    o.node_max = 8;
    o.work_bits = BITS;
    o.canaries = true;
    o.passes = 2;
    o.share = share;
    o.quorum = 0;
    o.on_disk = true;
    o.replays_by_hand = true;
    o.silent[0] = o.silent[1] = o.silent[2] = true;
    fed_open(&s_fed, &o);
}

/* ---- the operator's list ---- */

static unsigned count_words(const char *text, const char *words) {
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++) count++;
    return count;
}

/* With room for so many bytes: nodes, candidates, and those that are left out. */
static void check_list(size_t bytes, unsigned nodes, bool has_all) {
    omm_buf list;
    char more[64];
    omm_buf_init(&list, bytes);
    CHECK_OK(omm_coord_nodes(&list, s_fed.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    const char *text = (const char *)list.data;
    const unsigned shown = count_words(text, "  candidate  ");
    CHECK_EQ(count_words(text, "  enrolled  "), nodes);
    CHECK_EQ(count_words(text, "and 2 more; status.json has all\n"), nodes == 0);
    CHECK_EQ(shown == OMM_COORD_CANDIDATES_MAX, has_all);
    CHECK(shown > 0);
    (void)snprintf(more, sizeof more, "\nand %u more candidates\n",
                   OMM_COORD_CANDIDATES_MAX - shown);
    CHECK_EQ(count_words(text, more), !has_all);
    omm_buf_fini(&list);
}

/* As many candidates as there may be: the operator's list has them beside all that it had before, and where there is no room it
 * says how many it has left out. */
static void test_lists(void) {
    hand h, first;
    open_door(0);
    hand_begin(&first, &s_fed, 1);
    hand_give(&first);
    for (uint32_t i = 1; i < OMM_COORD_CANDIDATES_MAX; i++) {
        hand_open(&h, &s_fed, i + 10);
        CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
        hand_close(&h);
    }
    const omm_digest id = omm_key_id(&first.key.public_key);
    check_list(OMM_COORD_CTL_ANSWER_MAX / 3, 2, true);
    check_list(16384, 2, false);
    check_list(4096, 0, false);
    s_fed.clock.wall_ms += 3600000; /* who waits for its verdict keeps its place, however long */
    hand_open(&h, &s_fed, 5000);
    CHECK_EQ(hand_enrol(&h), OMM_REPLY_WAIT);
    hand_close(&h);
    CHECK(canary_find(s_fed.coord->canary, &id));
    check_list(OMM_COORD_CTL_ANSWER_MAX / 3, 2, true);
    hand_close(&first);
    fed_close(&s_fed);
}

/* ---- the queue ---- */

static omm_reply_kind begin_upload(hand *h, uint64_t number) {
    hand_begin(h, &s_fed, number);
    return hand_submit(h);
}

/* As many candidates as have a place each upload; one more waits, over a restart too, until one of them stands still. */
static void test_queue(void) {
    static hand all[OMM_COORD_CANARY_QUEUE_MAX], more, node[2];
    open_door(1);
    for (uint32_t i = 0; i < OMM_COORD_CANARY_QUEUE_MAX; i++)
        CHECK_EQ(begin_upload(&all[i], i + 10), OMM_REPLY_NEED);
    CHECK_EQ(begin_upload(&more, 100), OMM_REPLY_WAIT);
    for (uint32_t i = 0; i < 2; i++) {
        hand_open_node(&node[i], &s_fed, i);
        CHECK_EQ(hand_poll(&node[i]), OMM_REPLY_WAIT);
    }
    while (omm_coord_get_status(s_fed.coord).state != OMM_COORD_OPEN) CHECK(fed_step(&s_fed));
    uint32_t tested = 0;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(hand_poll(&node[i]), OMM_REPLY_OFFER);
        if (!node[i].offer.is_canary) continue;
        tested++;
        hand_train(&node[i]);
        CHECK_EQ(hand_submit(&node[i]), OMM_REPLY_NEED); /* nodes have places of their own */
    }
    CHECK_EQ(tested, 1);
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(hand_submit(&more), OMM_REPLY_WAIT);
    s_fed.now_ms += CANARY_UPLOAD_MS - 1;
    CHECK_EQ(hand_submit(&more), OMM_REPLY_WAIT);
    s_fed.now_ms++;
    CHECK_EQ(hand_submit(&more), OMM_REPLY_NEED);
    for (uint32_t i = 0; i < OMM_COORD_CANARY_QUEUE_MAX; i++) hand_close(&all[i]);
    for (uint32_t i = 0; i < 2; i++) hand_close(&node[i]);
    hand_close(&more);
    fed_close(&s_fed);
}

/* It starts over as often as it may, and is right in the end; of the next canary it may as often. */
static void start_over(hand *h) {
    const omm_submission good = h->s;
    CHECK_EQ(hand_submit(h), OMM_REPLY_NEED);
    for (uint32_t i = 1; i <= COORD_REPLACED_MAX; i++) {
        h->s.tokens = good.tokens + (i < COORD_REPLACED_MAX ? i : 0);
        CHECK_EQ(hand_submit(h), OMM_REPLY_NEED);
    }
    CHECK_EQ(hand_put(h), OMM_REPLY_WAIT);
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(h));
}

static void test_starts_over(void) {
    hand h;
    open_door(0);
    hand_begin(&h, &s_fed, 1);
    start_over(&h);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER);
    hand_train(&h);
    start_over(&h);
    CHECK_EQ(s_fed.run.node_count, 3);
    hand_close(&h);
    fed_close(&s_fed);
}

int main(void) {
    test_lists();
    test_queue();
    test_starts_over();
    return 0;
}
