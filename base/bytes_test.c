#include "omm/bytes.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

static void buffer_grows_to_its_limit(void) {
    omm_buf buf;
    omm_buf_init(&buf, 1000);
    for (unsigned i = 0; i < 100; i++) CHECK_OK(omm_buf_append(&buf, "0123456789", 10));
    CHECK_EQ(buf.size, 1000);
    CHECK_EQ(buf.capacity, 1000);
    CHECK_ERR(omm_buf_append(&buf, "x", 1), OMM_ERR_TOO_BIG);
    CHECK_ERR(omm_buf_reserve(&buf, SIZE_MAX), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_buf_append(&buf, NULL, 0));
    CHECK_EQ(buf.size, 1000);
    CHECK(memcmp(buf.data + 990, "0123456789", 10) == 0);
    omm_buf_clear(&buf);
    uint8_t *tail = NULL;
    CHECK_OK(omm_buf_extend(&buf, &tail, 5));
    CHECK(memcmp(tail, "\0\0\0\0\0", 5) == 0); /* what was there is gone */
    omm_buf_fini(&buf);
    CHECK_EQ(omm_mem_live(), 0);
    CHECK_OK(omm_buf_extend(&buf, &tail, 0));
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str("")));
}

static void printf_fills_the_last_byte(void) {
    omm_buf buf;
    omm_buf_init(&buf, 600);
    CHECK_OK(omm_buf_printf(&buf, "%0600d", 7)); /* over the small text: no room for a NUL */
    CHECK_EQ(buf.size, 600);
    CHECK_EQ(buf.data[599], '7');
    CHECK_ERR(omm_buf_printf(&buf, "%d", 1), OMM_ERR_TOO_BIG);
    CHECK_ERR(omm_buf_printf(&buf, "%0700d", 1), OMM_ERR_TOO_BIG);
    omm_buf_fini(&buf);
    CHECK_OK(omm_buf_printf(&buf, "%s", ""));
    CHECK_OK(omm_buf_printf(&buf, "%d-%s", 5, "x"));
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str("5-x")));
    omm_buf_fini(&buf);
    CHECK_EQ(omm_mem_live(), 0);
}

static omm_err fill(omm_buf *buf) {
    OMM_TRY(omm_buf_append(buf, "abc", 3));
    OMM_TRY(omm_buf_printf(buf, "%0600d", 7));
    OMM_TRY(omm_buf_put_u32(buf, 0x01020304u));
    return omm_buf_put_u64(buf, 0x05060708090a0b0cu);
}

static void buffer_survives_failing_memory(void) {
    omm_buf buf;
    size_t n = 1;
    for (;; n++) {
        omm_buf_init(&buf, 1u << 20);
        omm_mem_fail_nth(n);
        omm_err err = fill(&buf);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) break;
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK(buf.size == 0 || buf.size == 3 || buf.size == 603);
        omm_buf_fini(&buf);
        CHECK_EQ(omm_mem_live(), 0);
    }
    CHECK(n > 2);
    CHECK_EQ(buf.size, 615);
    CHECK(memcmp(buf.data + 603, "\x04\x03\x02\x01\x0c\x0b\x0a\x09\x08\x07\x06\x05", 12) == 0);
    omm_buf_fini(&buf);
}

static void little_endian_at_any_address(void) {
    uint8_t raw[24];
    for (unsigned at = 0; at < 8; at++) {
        uint8_t *p = raw + at;
        omm_put_u16(p, 0x8182);
        CHECK_EQ(omm_get_u16(p), 0x8182);
        CHECK_EQ(p[0], 0x82);
        omm_put_u32(p, 0x81828384u);
        CHECK_EQ(omm_get_u32(p), 0x81828384u);
        CHECK_EQ(p[0], 0x84);
        omm_put_u64(p, 0x8182838485868788u);
        CHECK(omm_get_u64(p) == 0x8182838485868788u);
        CHECK_EQ(p[0], 0x88);
        omm_put_f32(p, -0.15625f);
        CHECK_EQ(omm_get_u32(p), 0xbe200000u);
        CHECK_EQ(omm_f32_to_bits(omm_get_f32(p)), 0xbe200000u);
    }
}

static void numbers_as_bits(void) {
    CHECK_EQ(omm_f32_to_bits(1.5f), 0x3fc00000u);
    CHECK(omm_f32_of_bits(0xc0200000u) == -2.5f);
    CHECK(omm_f64_to_bits(1.5) == 0x3ff8000000000000u);
    CHECK(omm_f64_of_bits(0xc004000000000000u) == -2.5);
    /* Zeros of both signs, the smallest, infinity, a quiet NaN and a signalling one with payload. */
    static const uint32_t odd[] = {0, 0x80000000u, 1, 0x7f800000u, 0x7fc00000u, 0xffa00001u};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        CHECK_EQ(omm_f32_to_bits(omm_f32_of_bits(odd[i])), odd[i]);
        const uint64_t wide = (uint64_t)odd[i] << 32 | odd[i];
        CHECK(omm_f64_to_bits(omm_f64_of_bits(wide)) == wide);
    }
}

/* Every half: widened by the definition, and back. */
static void half_round_trips(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t e = h >> 10 & 31;
        uint32_t m = h & 1023;
        uint32_t wide = omm_f32_to_bits(omm_f16_to_f32((uint16_t)h));
        if (e == 31 && m != 0) {
            CHECK_EQ(wide, (h & 0x8000u) << 16 | 0x7fc00000u | m << 13);
            CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(wide)), 0x7e00);
            continue;
        }
        double want = e == 31 ? (double)omm_f32_of_bits(0x7f800000u)
                              : (e ? 1024.0 + m : (double)m) * (1 << (e ? e : 1)) * 0x1p-25;
        CHECK(omm_f32_to_bits((float)(h & 0x8000u ? -want : want)) == wide);
        CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(wide)), h);
    }
}

/* Between each two neighbours: the middle goes to the even one, its neighbours to their side. */
static void half_rounds_to_even(void) {
    for (uint32_t h = 0; h < 0x7c00; h++) {
        /* Above the largest finite half, the next one would be 65536. */
        double next = h == 0x7bff ? 65536.0 : (double)omm_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)omm_f16_to_f32((uint16_t)h) + next) / 2); /* exact */
        uint32_t bits = omm_f32_to_bits(middle);
        uint16_t even = (uint16_t)(h + (h & 1));
        CHECK_EQ(omm_f32_to_f16(middle), even);
        CHECK_EQ(omm_f32_to_f16(-middle), even | 0x8000);
        CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(bits - 1)), h);
        CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(bits + 1)), h + 1);
    }
    CHECK_EQ(omm_f32_to_f16(3e38f), 0x7c00);
    CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(1)), 0);                /* smallest float */
    CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(0x7f800001u)), 0x7e00); /* signalling */
    CHECK_EQ(omm_f32_to_f16(omm_f32_of_bits(0xffc00001u)), 0x7e00);
    CHECK_EQ(omm_f32_to_f16(-0.0f), 0x8000);
}

/* Every truncation of a record: all reads before the cut are right, all after it are zero. */
static void reader_stops_at_the_end(void) {
    omm_buf buf;
    omm_buf_init(&buf, 100);
    CHECK_OK(omm_buf_append(&buf, "\x01\x02\x03", 3));
    CHECK_OK(omm_buf_put_u32(&buf, 4));
    CHECK_OK(omm_buf_put_u64(&buf, 5));
    CHECK_OK(omm_buf_put_u32(&buf, omm_f32_to_bits(6.0f)));
    CHECK_OK(omm_buf_append(&buf, "tail", 4));
    for (size_t size = 0; size <= buf.size; size++) {
        uint8_t *exact = omm_alloc(size, 1); /* ASan sees a read past it */
        if (size > 0) memcpy(exact, buf.data, size);
        omm_reader r = omm_reader_of(omm_bytes_of(exact, size));
        CHECK_EQ(omm_read_u8(&r), size >= 1 ? 1 : 0);
        CHECK_EQ(omm_read_u16(&r), size >= 3 ? 0x0302 : 0);
        CHECK_EQ(omm_read_u32(&r), size >= 7 ? 4 : 0);
        CHECK_EQ(omm_read_u64(&r), size >= 15 ? 5 : 0);
        CHECK_EQ(omm_f32_to_bits(omm_read_f32(&r)), size >= 19 ? omm_f32_to_bits(6.0f) : 0);
        omm_bytes tail = omm_read_bytes(&r, 4);
        CHECK_EQ(tail.size, size == 23 ? 4 : 0);
        CHECK_EQ(r.failed, size != 23);
        omm_bytes none = omm_read_bytes(&r, 0);
        CHECK_EQ(none.size, 0);
        CHECK_EQ(omm_read_bytes(&r, SIZE_MAX).size, 0);
        CHECK(r.failed);
        omm_free(exact);
    }
    omm_reader empty = omm_reader_of(omm_bytes_of(NULL, 0));
    CHECK_EQ(omm_read_u8(&empty), 0);
    CHECK(empty.failed);
    omm_buf_fini(&buf);
}

static void hex_is_lower_case_only(void) {
    uint8_t all[256];
    uint8_t back[256];
    char text[513];
    for (unsigned i = 0; i < 256; i++) all[i] = (uint8_t)i;
    omm_hex(text, omm_bytes_of(all, 256));
    CHECK(strncmp(text, "000102", 6) == 0 && strcmp(text + 508, "feff") == 0);
    CHECK_OK(omm_unhex(back, 256, text));
    CHECK(memcmp(all, back, 256) == 0);
    static const char *const refused[] = {"",   "0",  "012", "01234", "0A", "0g", "0x",
                                          " 1", "1 ", "0/",  "0:",    "`0", "+1"};
    uint8_t one = 77;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_ERR(omm_unhex(&one, 1, refused[i]), OMM_ERR_FORMAT);
        CHECK_EQ(one, 77);
    }
    uint8_t two[2] = {7, 7};
    CHECK_ERR(omm_unhex(two, 2, "00zz"), OMM_ERR_FORMAT);
    CHECK_EQ(two[0], 7); /* checked before anything is written */
    CHECK_OK(omm_unhex(&one, 0, ""));
    omm_hex(text, omm_bytes_of(NULL, 0));
    CHECK_EQ(text[0], 0);
}

/* printf has a sign for them, which says nothing: by bits that a peer may choose. */
static void no_number_is_nan(void) {
    char text[32];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%g",
                 omm_nan_plain((double)omm_f32_of_bits(0x7fc00001u | i << 31)));
        CHECK(strcmp(text, "nan") == 0);
    }
    snprintf(text, sizeof text, "%g %g", omm_nan_plain(-0.5), omm_nan_plain(-(double)INFINITY));
    CHECK(strcmp(text, "-0.5 -inf") == 0);
}

int main(void) {
    buffer_grows_to_its_limit();
    printf_fills_the_last_byte();
    buffer_survives_failing_memory();
    little_endian_at_any_address();
    numbers_as_bits();
    no_number_is_nan();
    half_round_trips();
    half_rounds_to_even();
    reader_stops_at_the_end();
    hex_is_lower_case_only();
    CHECK(!omm_bytes_equal(omm_bytes_str("ab"), omm_bytes_str("ac")));
    CHECK(!omm_bytes_equal(omm_bytes_str("ab"), omm_bytes_str("abc")));
    return 0;
}
