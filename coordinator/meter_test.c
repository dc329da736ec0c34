/* Allowances of a minute: by node, by address, in messages and in bytes. */
#include "meter.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

#define NOBODY (-1)

static meter *open_meter(uint64_t messages, uint64_t bytes) {
    meter *m;
    meter_limits limits = {messages, bytes};
    CHECK_OK(meter_open(&m, 3, &limits));
    return m;
}

static void messages_are_counted_by_node(void) {
    meter *m = open_meter(3, 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(meter_take(m, 1, "a", 1000, 10), 0);
    CHECK_EQ(meter_take(m, 1, "b", 1500, 10), METER_WINDOW_MS - 500); /* wherever it comes from */
    CHECK(strstr(omm_err_sentence(), "messages: 3"));
    CHECK_EQ(meter_take(m, 2, "a", 1500, 10), 0);
    CHECK_EQ(meter_take(m, NOBODY, "a", 1500, 10), 0);
    CHECK_EQ(meter_take(m, 1, "a", 1000 + METER_WINDOW_MS - 1, 10), 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(meter_take(m, 1, "a", 1000 + METER_WINDOW_MS, 10), 0);
    CHECK_EQ(meter_take(m, 1, "a", 1000 + METER_WINDOW_MS, 10), METER_WINDOW_MS);
    meter_close(m);
}

static void bytes_go_both_ways(void) {
    meter *m = open_meter(0, 1000);
    CHECK_EQ(meter_take(m, 0, "a", 0, 400), 0);
    meter_add(m, 400);
    CHECK_EQ(meter_take(m, 0, "a", 0, 400), 0); /* 824 with frames before it */
    CHECK_EQ(meter_take(m, 0, "a", 10, 1), METER_WINDOW_MS - 10);
    CHECK(strstr(omm_err_sentence(), "bytes: 1236"));
    meter_close(m);
}

/* More addresses than there is room for: the oldest is forgotten, never one that is busy now. */
static void addresses_make_room(void) {
    meter *m = open_meter(1, 0);
    char address[32];
    for (unsigned i = 0; i < 256; i++) {
        (void)snprintf(address, sizeof address, "10.0.0.%u", i);
        CHECK_EQ(meter_take(m, NOBODY, address, i, 1), 0);
        CHECK(meter_take(m, NOBODY, "10.0.0.0", i, 1) > 0); /* for which there was room */
    }
    CHECK_EQ(meter_take(m, NOBODY, "10.0.0.1", 256, 1), METER_WINDOW_MS - 255);
    CHECK_EQ(meter_take(m, NOBODY, "10.0.1.0", 256, 1), 0); /* in the place of 10.0.0.0 */
    CHECK(meter_take(m, NOBODY, "10.0.0.1", 256, 1) > 0);
    CHECK_EQ(meter_take(m, NOBODY, "10.0.0.0", 257, 1), 0); /* in the place of 10.0.0.1 */
    CHECK(meter_take(m, NOBODY, "10.0.1.0", 257, 1) > 0);
    meter_close(m);
}

static void no_limit_is_none(void) {
    meter *m = open_meter(0, 0);
    for (int i = 0; i < 100000; i++) CHECK_EQ(meter_take(m, 0, "a", 1, 1 << 18), 0);
    meter_close(m);
}

int main(void) {
    messages_are_counted_by_node();
    bytes_go_both_ways();
    addresses_make_room();
    no_limit_is_none();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
