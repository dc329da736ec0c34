/* Goal: a candidate that is invited while its canaries are still to come is a node of the run at once, by the invitation, over
 * restarts too; one that shows an invitation which is not good stays the candidate that it was, and is told why.
 * Method: candidates played by hand at each stage of a canary; the first message of a node that has an invitation.
 */
#include "hand.h"

#include "omm/coordinator_canary.h"
#include "omm/coordinator_enrol.h"
#include "omm/enrolment.h"
#include "omm_test.h"

#include <string.h>

enum { BITS = 6 };

static fed s_fed;

static void open_door(uint32_t node_max) {
    fed_options o = fed_options_default();
    o.nodes = 3;
    o.listed = 2;
    o.node_max = node_max;
    o.work_bits = BITS;
    o.canaries = true;
    o.passes = 2;
    o.quorum = 0;
    o.on_disk = true;
    o.replays_by_hand = true;
    o.silent[0] = o.silent[1] = o.silent[2] = true;
    fed_open(&s_fed, &o);
}

static omm_seed invitation(void) {
    omm_buf text;
    omm_seed token;
    omm_buf_init(&text, 4096);
    CHECK_OK(omm_coord_invite(&text, s_fed.coord, 1, 0, "friend"));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK_OK(omm_invitation_parse(&token, (const char *)text.data));
    omm_buf_fini(&text);
    return token;
}

static bool members_say(const char *what) {
    omm_buf list;
    omm_buf_init(&list, 1 << 20);
    CHECK_OK(omm_coord_nodes(&list, s_fed.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    const bool is = strstr((const char *)list.data, what) != NULL;
    omm_buf_fini(&list);
    return is;
}

/* Where the canary of a candidate stands when it is invited. */
typedef enum stage { DUE, OFFERED, UPLOADING, WAITING, PASSED_ONE, STAGES } stage;

static void bring_to(hand *h, stage to) {
    hand_open(h, &s_fed, (uint64_t)to + 1);
    CHECK_EQ(hand_enrol(h), OMM_REPLY_WAIT);
    if (to == DUE) return;
    CHECK_EQ(hand_poll(h), OMM_REPLY_OFFER);
    if (to == OFFERED) return;
    hand_train(h);
    CHECK_EQ(hand_submit(h), OMM_REPLY_NEED);
    if (to == UPLOADING) return;
    CHECK_EQ(hand_put(h), OMM_REPLY_WAIT);
    if (to == WAITING) return;
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(h));
}

/* A canary that was begun is ended, as a node's is; then it gets no other. */
static void end_canary(hand *h, stage from) {
    if (from == DUE || from == PASSED_ONE) return;
    if (from == OFFERED) hand_train(h);
    if (from != WAITING) hand_give(h);
    CHECK_EQ(hand_poll(h), OMM_REPLY_WAIT);
    fed_replay(&s_fed);
    CHECK_OK(hand_verdict(h));
}

static void test_invited(stage at, bool restarts) {
    hand h;
    open_door(8);
    bring_to(&h, at);
    const omm_seed token = invitation();
    CHECK_EQ(s_fed.run.node_count, 2);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).candidates, 1);
    CHECK_EQ(hand_enrol_by(&h, &token), OMM_REPLY_WAIT);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(s_fed.run.node_count, 3);
        CHECK_EQ(omm_coord_get_status(s_fed.coord).candidates, 0);
        CHECK(members_say("by invitation "));
        CHECK(strncmp(s_fed.run.nodes[2].name, "friend-", 7) == 0);
        CHECK_EQ(hand_enrol_by(&h, &token), OMM_REPLY_WAIT); /* again: it is in */
        if (restarts) fed_restart_coordinator(&s_fed);
    }
    end_canary(&h, at);
    for (int i = 0; i < 2; i++) CHECK_EQ(hand_poll(&h), OMM_REPLY_WAIT); /* a node like others */
    hand_close(&h);
    fed_close(&s_fed);
}

/* Each refused by name, and it goes on with its canary. */
static void test_refused(void) {
    hand h, other;
    open_door(3);
    bring_to(&h, OFFERED);
    const omm_digest offer = h.offer_digest;
    const omm_seed unknown = omm_seed_from_u64(77), used = invitation(), late = invitation();
    CHECK_EQ(hand_refused(&h, hand_enrol_by(&h, &unknown)), OMM_ERR_REFUSED_INVITATION);
    hand_open(&other, &s_fed, 50);
    CHECK_EQ(hand_enrol_by(&other, &used), OMM_REPLY_WAIT);
    CHECK_EQ(hand_refused(&h, hand_enrol_by(&h, &used)), OMM_ERR_REFUSED_INVITATION);
    CHECK_EQ(hand_refused(&h, hand_enrol_by(&h, &late)), OMM_ERR_REFUSED_FULL); /* of three nodes */
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).candidates, 1);
    CHECK_EQ(hand_poll(&h), OMM_REPLY_OFFER);
    CHECK(omm_digest_equal(&offer, &h.offer_digest));
    hand_close(&other);
    hand_close(&h);
    fed_close(&s_fed);
}

/* The kind of a node's first request; what is answered to it, if it asks to be let in, is given to it. */
static omm_request_kind first_request(const omm_seed *token) {
    char path[OMM_PATH_MAX];
    omm_node *node = NULL;
    omm_node_action action = {0};
    omm_request request;
    omm_buf reply;
    omm_arena arena;
    omm_arena_init(&arena, 1u << 20);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(
        omm_node_open(&node, &(omm_node_options){.key = &s_fed.keys[2],
                                                 .name = "ada",
                                                 .coordinator = s_fed.coordinator_key.public_key,
                                                 .limits = omm_node_limits_default(),
                                                 .token = token,
                                                 .training = s_fed.training[0],
                                                 .state_dir = fed_path(&s_fed, path, "ada")}));
    CHECK_OK(omm_node_step(&action, node, 0, &(omm_node_event){.kind = OMM_NODE_TICK}));
    CHECK_EQ(action.kind, OMM_NODE_SEND);
    CHECK_OK(omm_request_decode(&request, action.request, &arena));
    if (request.kind == OMM_REQUEST_ENROL) {
        fed_send(&s_fed, &reply, action.request);
        CHECK_OK(omm_node_step(
            &action, node, 0,
            &(omm_node_event){.kind = OMM_NODE_REPLY, .reply = omm_buf_view(&reply)}));
    }
    omm_node_close(node);
    omm_buf_fini(&reply);
    omm_arena_fini(&arena);
    return request.kind;
}

/* A node shows a new invitation as soon as it starts, since it may be a candidate, whom nobody refuses; until it has heard
 * that it is in. */
static void test_shown_once(void) {
    open_door(8);
    const omm_seed unknown = omm_seed_from_u64(77), token = invitation(), other = invitation();
    for (int i = 0; i < 2; i++) CHECK_EQ(first_request(&unknown), OMM_REQUEST_ENROL);
    CHECK_EQ(s_fed.run.node_count, 2);
    CHECK_EQ(first_request(&token), OMM_REQUEST_ENROL);
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_EQ(first_request(&token), OMM_REQUEST_POLL);
    CHECK_EQ(first_request(&other), OMM_REQUEST_ENROL);
    CHECK_EQ(first_request(NULL), OMM_REQUEST_POLL);
    fed_close(&s_fed);
}

int main(void) {
    for (int at = 0; at < STAGES; at++)
        for (int restarts = 0; restarts < 2; restarts++) test_invited((stage)at, restarts != 0);
    test_refused();
    test_shown_once();
    return 0;
}
