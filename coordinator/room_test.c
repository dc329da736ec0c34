/* room_test.c - what a run may come to fits a bundle, however many join and however much is refused. */
#include "omm_test.h"

#include "internal.h"

/* Options of a run; `listed` 0: nobody joins. */
typedef struct room {
    omm_run_record run;
    omm_coord_enrolment enrolment;
    omm_coord_options o;
} room;

static void room_of(room *r, uint32_t rounds, size_t nodes, size_t listed) {
    *r = (room){.run = {.rounds = rounds, .node_count = listed ? listed : nodes},
                .enrolment = {.listed = listed, .node_max = (uint32_t)nodes}};
    r->o = (omm_coord_options){.run = &r->run, .enrolment = listed ? &r->enrolment : NULL};
}

static void joining_nodes_count(void) {
    room r;
    const uint32_t most = 999900 / (3 + 3 * 4096);
    room_of(&r, most, 4096, 1);
    CHECK_OK(coord_room_check(&r.o, 4096));
    r.run.rounds++;
    CHECK_ERR(coord_room_check(&r.o, 4096), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "4096 nodes"));
    CHECK(strstr(omm_err_sentence(), "up to 81 rounds"));
    CHECK(strstr(omm_err_sentence(), "(select, node_max)"));
    r.o.policy.select = 100;
    CHECK_OK(coord_room_check(&r.o, 4096));
    room_of(&r, most + 1, 4096, 0);
    CHECK_ERR(coord_room_check(&r.o, 4096), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "(select)"));
}

/* Nodes that a round is offered to beside those it needs have files, too. */
static void over_selected_nodes_count(void) {
    room r;
    room_of(&r, 999900 / (3 + 3 * 3), 6, 0);
    r.o.policy.select = 2;
    r.o.policy.over_select = 1.25; /* of two: three */
    CHECK_OK(coord_room_check(&r.o, 6));
    r.run.rounds++;
    CHECK_ERR(coord_room_check(&r.o, 6), OMM_ERR_CONFIG);
}

/* Nodes that take nobody's place come on top of those that are drawn. */
static void extra_nodes_count(void) {
    room r;
    const bool extra[] = {true, false, true, false, false, false};
    room_of(&r, 999900 / (3 + 3 * 4), 6, 0);
    r.o.policy.select = 2;
    CHECK_OK(coord_room_check(&r.o, 6));
    r.o.extra = extra;
    CHECK_OK(coord_room_check(&r.o, 6));
    r.run.rounds++;
    CHECK_ERR(coord_room_check(&r.o, 6), OMM_ERR_CONFIG);
}

/* Files of all rounds when everybody is taken and as much is refused as is kept. */
static double files_at_most(const omm_coord *c) {
    const double of_round =
        3 + 3.0 * c->node_max + c->anonymous_records_max + 2.0 * c->node_max * c->node_records_max;
    return 100 + c->o.run->rounds * of_round;
}

static omm_coord *shared(uint32_t rounds, uint32_t nodes) {
    static room r;
    static omm_coord c;
    room_of(&r, rounds, nodes, 0);
    CHECK_OK(coord_room_check(&r.o, nodes));
    c.o = r.o;
    c.node_max = nodes;
    coord_room_share(&c);
    CHECK(files_at_most(&c) <= OMM_BUNDLE_FILES_MAX);
    return &c;
}

static void refusals_get_what_is_left(void) {
    const omm_coord *c = shared(100, 64); /* as the defaults are */
    CHECK_EQ(c->anonymous_records_max, 32);
    CHECK_EQ(c->node_records_max, 8);
    c = shared(81, 4096); /* 54 files of a round are left */
    CHECK_EQ(c->anonymous_records_max, 32);
    CHECK_EQ(c->node_records_max, 0);
    c = shared(999900 / 6, 1);
    CHECK_EQ(c->anonymous_records_max, 0);
    CHECK_EQ(c->node_records_max, 0);
    c = shared(20000, 1); /* 49 of a round, 43 are left */
    CHECK_EQ(c->anonymous_records_max, 32);
    CHECK_EQ(c->node_records_max, 5);
    for (uint32_t nodes = 1; nodes <= 4096; nodes += 13)
        for (uint32_t rounds = 1; rounds <= 999900 / (3 + 3 * nodes); rounds += 1 + rounds / 3)
            (void)shared(rounds, nodes);
}

int main(void) {
    joining_nodes_count();
    over_selected_nodes_count();
    extra_nodes_count();
    refusals_get_what_is_left();
    return 0;
}
