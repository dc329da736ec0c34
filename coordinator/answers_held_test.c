/* Goal: answers that wait for a commit leave in their order, each with its own words; where there is no memory for another answer
 * the exchange that lacks it is out, and no other one.
 * Method: the transport's two calls that held.c makes are the test's own.
 */
#include "held.h"

#include "omm_test.h"

#include <string.h>

struct omm_exchange {
    bool fails;     /* there is no memory for an answer */
    bool has_ended; /* without one */
    char said[16];
    unsigned sent; /* as which one; 0: not yet */
};

static struct omm_exchange s_all[HELD_MAX];
static held s_held;
static unsigned s_sent;
static size_t s_heard;

omm_err omm_exchange_hold(omm_exchange *exchange, omm_bytes reply) {
    CHECK(!exchange->has_ended && exchange->sent == 0);
    exchange->has_ended = exchange->fails;
    if (exchange->fails) return omm_raise(OMM_ERR_NOMEM, "a reply");
    CHECK(reply.size < sizeof exchange->said);
    memset(exchange->said, 0, sizeof exchange->said);
    memcpy(exchange->said, reply.data, reply.size);
    return OMM_OK;
}

void omm_exchange_send(omm_exchange *exchange) {
    CHECK(!exchange->has_ended && exchange->sent == 0);
    exchange->sent = ++s_sent;
}

/* Just before it leaves: who said what, how long. */
static void on_sent(void *ud, const held_answer *answer) {
    const size_t index = (size_t)(answer->exchange - s_all);
    CHECK(ud == &s_held && answer->exchange->sent == 0);
    CHECK_EQ(answer->said_by, (int32_t)index - 1);
    CHECK_EQ(answer->request_bytes, 100 + index);
    CHECK_EQ(answer->reply_bytes, strlen(answer->exchange->said));
    CHECK_EQ(answer->payload.up, index == 1 ? 40 : 0); /* has come, whatever is answered */
    CHECK_EQ(answer->payload.down,
             index == 1 && strcmp(answer->exchange->said, "verdict") == 0 ? 5 : 0);
    s_heard++;
}

static void begin(size_t count) {
    memset(s_all, 0, sizeof s_all);
    s_sent = 0;
    s_heard = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(held_has_room(&s_held));
        CHECK_OK(held_take(&s_held, &s_all[i], (int32_t)i - 1, 100 + i, omm_bytes_str("verdict")));
        if (i == 1) held_payload(&s_held, (omm_coord_payload){40, 5});
    }
    CHECK_EQ(s_held.count, count);
}

/* All leave once, the ones of `out` (a bit each) without an answer, the others with this one. */
static void expect_sent(size_t count, unsigned out, const char *said) {
    unsigned sent = 0;
    held_send(&s_held, on_sent, &s_held);
    for (size_t i = 0; i < count; i++) {
        const bool is_out = out >> i & 1u;
        CHECK(s_all[i].has_ended == is_out);
        CHECK_EQ(s_all[i].sent, is_out ? 0 : ++sent);
        CHECK(is_out || strcmp(s_all[i].said, said) == 0);
    }
    CHECK(s_sent == sent && s_heard == sent);
    CHECK(s_held.count == 0 && s_held.bytes == 0);
    held_send(&s_held, on_sent, &s_held);
    CHECK_EQ(s_sent, sent);
}

/* Whichever of five cannot have the other answer. */
static void test_replaced(void) {
    enum { COUNT = 5 };
    for (unsigned out = 0; out < 1u << COUNT; out++) {
        begin(COUNT);
        for (unsigned i = 0; i < COUNT; i++) s_all[i].fails = out >> i & 1u;
        held_replace(&s_held, omm_bytes_str("again"));
        expect_sent(COUNT, out, "again");
    }
    begin(COUNT);
    expect_sent(COUNT, 0, "verdict");
}

/* One that could not be kept is not among them, and takes no place. */
static void test_not_taken(void) {
    begin(2);
    s_all[2].fails = true;
    CHECK_ERR(held_take(&s_held, &s_all[2], 1, 102, omm_bytes_str("verdict")), OMM_ERR_NOMEM);
    CHECK_EQ(s_held.count, 2);
    expect_sent(3, 1u << 2, "verdict");
}

static void test_room(void) {
    begin(HELD_MAX);
    CHECK(!held_has_room(&s_held));
    held_send(&s_held, on_sent, &s_held);
    begin(0);
    CHECK_OK(held_take(&s_held, &s_all[0], -1, HELD_BYTES_MAX - 8, omm_bytes_str("verdict")));
    CHECK(held_has_room(&s_held)); /* a byte is left */
    CHECK_OK(held_take(&s_held, &s_all[1], 0, 1, omm_bytes_str("")));
    CHECK(!held_has_room(&s_held));
}

int main(void) {
    test_replaced();
    test_not_taken();
    test_room();
    return 0;
}
