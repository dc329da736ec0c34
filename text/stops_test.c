/* stops_test.c - stop texts that straddle pieces: whatever the pieces, the output is the text before
 * the first stop text, and what comes out early could not have belonged to one. */
#include "omm/stops.h"

#include "omm/mem.h"
#include "omm/rng.h"

#include "omm_test.h"

#include <string.h>

enum { TEXT_MAX = 1 << 20 };

static void open_stops(omm_stops *s, const char *const *texts, size_t count) {
    omm_stops_init(s);
    for (size_t i = 0; i < count; i++) CHECK_OK(omm_stops_add(s, omm_bytes_str(texts[i])));
}

static void push(omm_buf *out, omm_stops *s, const char *piece, const char *want) {
    CHECK_OK(omm_stops_push(out, s, omm_bytes_str(piece)));
    CHECK(omm_bytes_equal(omm_buf_view(out), omm_bytes_str(want)));
}

static void test_pieces(void) {
    static const char *const texts[] = {"[INST]", "\n\n", "[I]"};
    omm_stops s;
    omm_buf out;
    open_stops(&s, texts, 3);
    omm_buf_init(&out, TEXT_MAX);
    push(&out, &s, "ok [", "ok ");
    push(&out, &s, "IN", "ok ");
    push(&out, &s, "TO ", "ok [INTO ");
    push(&out, &s, "a\n", "ok [INTO a");
    push(&out, &s, "b[[I", "ok [INTO a\nb[");
    push(&out, &s, "", "ok [INTO a\nb[");
    CHECK(!s.stopped);
    push(&out, &s, "]c\n\nd", "ok [INTO a\nb[");
    CHECK(s.stopped);
    push(&out, &s, "more", "ok [INTO a\nb[");
    CHECK_OK(omm_stops_flush(&out, &s));
    CHECK_EQ(out.size, 13);
    omm_stops_fini(&s);
    open_stops(&s, texts, 3);
    omm_buf_clear(&out);
    push(&out, &s, "end[INST", "end");
    CHECK_OK(omm_stops_flush(&out, &s));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("end[INST")));
    CHECK_OK(omm_stops_flush(&out, &s));
    CHECK_EQ(out.size, 8);
    omm_stops_fini(&s);
    omm_buf_fini(&out);
}

/* Against the plain definition, over random texts of few letters, cut at random. */
static void test_random(void) {
    static const char *const texts[] = {"aab", "abab", "bb", "caac"};
    omm_seed seed = omm_seed_from_u64(3);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    for (uint64_t round = 0; round < 3000; round++) {
        uint64_t at = round << 8;
        char text[65] = "";
        size_t size = (size_t)omm_rng_below(&rng, at++, 64);
        size_t count = (size_t)omm_rng_below(&rng, at++, 5);
        for (size_t i = 0; i < size; i++) text[i] = (char)('a' + (int)omm_rng_below(&rng, at++, 3));
        text[size] = 0;
        size_t first = size;
        for (size_t i = 0; i < count; i++) {
            const char *hit = strstr(text, texts[i]);
            if (hit && (size_t)(hit - text) < first) first = (size_t)(hit - text);
        }
        omm_stops s;
        omm_buf out;
        open_stops(&s, texts, count);
        omm_buf_init(&out, TEXT_MAX);
        for (size_t from = 0; from < size;) {
            size_t piece = 1 + (size_t)omm_rng_below(&rng, at++, 6);
            if (piece > size - from) piece = size - from;
            CHECK_OK(omm_stops_push(&out, &s, omm_bytes_of(text + from, piece)));
            from += piece;
            CHECK(out.size <= first);
            CHECK(s.stopped || from - out.size <= 3); /* the longest text less one byte */
        }
        CHECK_EQ(s.stopped, first < size);
        CHECK_OK(omm_stops_flush(&out, &s));
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_of(text, first)));
        omm_stops_fini(&s);
        omm_buf_fini(&out);
    }
}

static void test_limits(void) {
    char text[OMM_STOP_BYTES_MAX + 2];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    omm_stops s;
    memset(&s, 0xff, sizeof s); /* whatever was there */
    omm_stops_init(&s);
    CHECK_ERR(omm_stops_add(&s, omm_bytes_str("")), OMM_ERR_USAGE);
    CHECK_ERR(omm_stops_add(&s, omm_bytes_str(text)), OMM_ERR_USAGE);
    CHECK_OK(omm_stops_add(&s, omm_bytes_of(text, OMM_STOP_BYTES_MAX)));
    for (unsigned i = 1; i < OMM_STOPS_MAX; i++) CHECK_OK(omm_stops_add(&s, omm_bytes_str("x")));
    CHECK_ERR(omm_stops_add(&s, omm_bytes_str("x")), OMM_ERR_USAGE);
    omm_buf out;
    omm_buf_init(&out, 2); /* an output that is full: nothing has changed */
    CHECK_ERR(omm_stops_push(&out, &s, omm_bytes_str("abc")), OMM_ERR_TOO_BIG);
    CHECK_EQ(s.held.size, 0);
    CHECK_EQ(out.size, 0);
    omm_stops_fini(&s);
    omm_buf_fini(&out);
}

int main(void) {
    test_pieces();
    test_random();
    test_limits();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
