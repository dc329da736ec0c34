/* utf8_test.c - every sequence of bytes that may matter, against characters spelled from their numbers. */
#include "omm/utf8.h"

#include "omm_test.h"

/* RFC 3629, section 3: the one spelling of a number below 0x110000. */
static unsigned spell(uint8_t out[4], uint32_t code) {
    const unsigned size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (unsigned i = size; i-- > 1; code >>= 6) out[i] = (uint8_t)(0x80 | (code & 0x3f));
    out[0] = (uint8_t)(heads[size] | code);
    return size;
}

static void every_character(void) {
    for (uint32_t code = 0; code < 0x110000; code++) {
        uint8_t text[5] = {0};
        const unsigned size = spell(text, code);
        const unsigned want = code >= 0xd800 && code < 0xe000 ? 0 : size;
        text[size] = 0x80; /* what follows is another matter */
        CHECK_EQ(omm_utf8_size(text, 5), want);
        CHECK_EQ(omm_utf8_size(text, size), want);
        for (unsigned left = 0; left < size; left++) CHECK_EQ(omm_utf8_size(text, left), 0);
    }
}

/* Of all first and second bytes, and a third and fourth that are continuations or not, as many are
 * characters as there are numbers for them: nothing has a second spelling. */
static void nothing_else(void) {
    static const uint8_t tails[] = {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    unsigned count = 0;
    for (unsigned head = 0; head < 0x10000; head++)
        for (unsigned tail = 0; tail < 36; tail++) {
            const uint8_t text[4] = {(uint8_t)(head >> 8), (uint8_t)head, tails[tail / 6],
                                     tails[tail % 6]};
            count += omm_utf8_size(text, sizeof text) > 1;
        }
    /* first and second bytes of characters of two, three and four, times the tails that may follow */
    const unsigned twos = 0x780 * 36, threes = (0xf800 - 0x800) / 64 * 2 * 6;
    const unsigned fours = 0x100000 / 4096 * 2 * 2;
    CHECK_EQ(count, twos + threes + fours);
}

static void mended(void) {
    char text[] = "a\xc3\xa9\xff\xe2\x82z\xf0\x9f\x90\xb1\xc3";
    omm_utf8_mend(text);
    CHECK_EQ(strcmp(text, "a\xc3\xa9???z\xf0\x9f\x90\xb1?"), 0);
    text[0] = 0;
    omm_utf8_mend(text);
    CHECK_EQ(text[0], 0);
}

/* Nothing that a terminal takes for a command is left, everything else is; and it ends where there is no more room. */
static void cleaned(void) {
    static const char sample[] = "a\x1b[2J\tb\xc3\xa9\xc2\x9b\x31m\xc2\xa0\x7f\xf0\x9f\x90\xb1\r\n";
    static const char want[] = "a?[2J?b\xc3\xa9?1m\xc2\xa0?\xf0\x9f\x90\xb1??";
    char out[sizeof sample + 1];
    for (size_t size = 1; size <= sizeof out; size++) {
        memset(out, 'x', sizeof out);
        omm_utf8_clean(out, size, sample);
        const size_t fits = size - 1 < sizeof want - 1 ? size - 1 : sizeof want - 1;
        CHECK_EQ(strlen(out), fits);
        CHECK(same_bytes(out, want, fits));
        for (size_t i = size; i < sizeof out; i++) CHECK_EQ(out[i], 'x');
    }
    for (unsigned code = 1; code < 0x800; code++) {
        uint8_t text[5] = {0};
        const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        (void)spell(text, code);
        omm_utf8_clean(out, sizeof out, (const char *)text);
        CHECK(strcmp(out, is_control ? "?" : (const char *)text) == 0);
    }
}

/* Characters, and each byte that is part of none. */
static void counted(void) {
    static const char text[] = "a\xc3\xa9\xff\xe2\x82z\xf0\x9f\x90\xb1\xc3";
    CHECK_EQ(omm_utf8_count(omm_bytes_of(text, sizeof text - 1)), 8);
    CHECK_EQ(omm_utf8_count(omm_bytes_of(text, 3)), 2);
    CHECK_EQ(omm_utf8_count(omm_bytes_of(NULL, 0)), 0);
}

int main(void) {
    mended();
    cleaned();
    counted();
    every_character();
    nothing_else();
    return 0;
}
