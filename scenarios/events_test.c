/* Goal: events come out in one total order, whatever the order they went in; virtual delays are the
 * scenario's arithmetic and the same every time.
 */
#include "internal.h"
#include "omm/mem.h"
#include "omm_test.h"

static void test_order(void) {
    omm_rng rng = {{3}};
    sim_queue queue;
    sim_queue_init(&queue);
    enum { N = 1000 };
    for (uint32_t i = 0; i < N; i++)
        CHECK_OK(sim_queue_push(&queue, omm_rng_below(&rng, i, 50),
                                (uint32_t)omm_rng_below(&rng, N + i, 5), SIM_WAKE));
    sim_event last = {0};
    sim_event event;
    for (uint32_t i = 0; i < N; i++) {
        CHECK(sim_queue_pop(&event, &queue));
        if (i > 0) {
            CHECK(event.at_ms >= last.at_ms);
            if (event.at_ms == last.at_ms) CHECK(event.node >= last.node);
            if (event.at_ms == last.at_ms && event.node == last.node)
                CHECK(event.sequence > last.sequence);
        }
        last = event;
    }
    CHECK(!sim_queue_pop(&event, &queue));
    sim_queue_fini(&queue);
}

static void test_coordinator_comes_last_in_its_millisecond(void) {
    sim_queue queue;
    sim_queue_init(&queue);
    CHECK_OK(sim_queue_push(&queue, 5, SIM_NODE_COORDINATOR, SIM_DEADLINE));
    CHECK_OK(sim_queue_push(&queue, 5, 9999, SIM_ARRIVE));
    sim_event event;
    CHECK(sim_queue_pop(&event, &queue));
    CHECK_EQ(event.kind, SIM_ARRIVE);
    sim_queue_fini(&queue);
}

static void test_nth_allocation(void) {
    for (size_t nth = 1; nth < 4; nth++) {
        sim_queue queue;
        sim_queue_init(&queue);
        omm_mem_fail_nth(nth);
        omm_err err = OMM_OK;
        for (uint32_t i = 0; i < 100 && err == OMM_OK; i++)
            err = sim_queue_push(&queue, i, 0, SIM_WAKE);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(err, nth < 3 ? OMM_ERR_NOMEM : OMM_OK);
        sim_queue_fini(&queue);
    }
}

static void test_link(void) {
    omm_scenario_group group = {.tokens_per_s = 1000,
                                .slowdown = 2,
                                .uplink_kbit_s = 800,
                                .downlink_kbit_s = 8000,
                                .latency_ms = 30};
    omm_seed seed = omm_seed_from_u64(1);
    sim_link link;
    sim_link_init(&link, &group, &seed, 3);
    CHECK_EQ(sim_link_up_ms(&link, 1000), 40);     /* 30 + 8000 bit / 800 kbit/s */
    CHECK_EQ(sim_link_down_ms(&link, 1000), 31);   /* 30 + 1 */
    CHECK_EQ(sim_link_up_ms(&link, 1), 31);        /* rounded up */
    CHECK_EQ(sim_link_train_ms(&link, 500), 1000); /* half speed */
    group.jitter_ms = 100;
    sim_link again;
    sim_link_init(&link, &group, &seed, 3);
    sim_link_init(&again, &group, &seed, 3);
    bool moved = false;
    uint64_t before = 0;
    int others = 0; /* than the message before */
    for (int i = 0; i < 20; i++) {
        uint64_t a = sim_link_up_ms(&link, 1000);
        CHECK_EQ(a, sim_link_up_ms(&again, 1000));
        CHECK(a >= 40 && a <= 141);
        moved = moved || a > 50;
        others += a != before;
        before = a;
    }
    CHECK(moved && others > 15);
}

static void test_dropouts(void) {
    omm_scenario_group group = {.dropout = 0.25};
    omm_seed seed = omm_seed_from_u64(1);
    sim_link link;
    sim_link_init(&link, &group, &seed, 3);
    int dropped = 0;
    for (uint32_t round = 0; round < 4000; round++) dropped += sim_link_drops_out(&link, round);
    CHECK(dropped > 850 && dropped < 1150);
    group.dropout = 0;
    for (uint32_t round = 0; round < 100; round++) CHECK(!sim_link_drops_out(&link, round));
    group.dropout = 1;
    for (uint32_t round = 0; round < 100; round++) CHECK(sim_link_drops_out(&link, round));
}

int main(void) {
    test_order();
    test_coordinator_comes_last_in_its_millisecond();
    test_nth_allocation();
    test_link();
    test_dropouts();
    return 0;
}
