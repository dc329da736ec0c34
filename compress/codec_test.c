/* Goal: every codec keeps its promises, and what it writes never changes.
 * Method: the battery over every combination, hand-made payloads that must be refused, goldens
 * (one by hand, the others as digests), and the choice of a codec from a budget against brute force.
 */
#include "codec_battery.h"

#include "omm/mem.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>
#include <zstd.h>

static const omm_segment SEGMENTS[] = {
    {"blk.0.attn_q.weight.lora_a", 3, 17, 0},
    {"blk.0.attn_q.weight.lora_b", 11, 3, 51},
    {"one", 1, 1, 84},
    {"blk.1.ffn_up.weight.lora_a", 2, 23, 85},
};
static const omm_layout LAYOUT = {SEGMENTS, 4, 131};

static void test_battery(void) {
    static const uint32_t keeps[] = {0, 1, 13, 64, 131};
    static const uint32_t levels[] = {0, 3};
    for (int kind = OMM_CODEC_NONE; kind <= OMM_CODEC_INT8; kind++)
        for (size_t k = 0; k < sizeof keeps / sizeof keeps[0]; k++)
            for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
                omm_codec codec = {
                    .kind = (omm_codec_kind)kind, .keep_count = keeps[k], .zstd_level = levels[l]};
                battery_run(&codec, &LAYOUT);
            }
}

/* Two pieces and a bit; rows lie across their ends, and the last piece begins within a row. */
static void test_pieces(void) {
    static const omm_segment segments[] = {
        {"narrow", 1000, 3, 0}, {"wide", 1, 100001, 3000}, {"rest", 61, 701, 103001}};
    static const omm_layout layout = {segments, 3, 145762};
    static const uint32_t keeps[] = {0, 5000, 73000}; /* all, gaps, a bitmap */
    for (int kind = OMM_CODEC_NONE; kind <= OMM_CODEC_INT8; kind++)
        for (size_t k = 0; k < sizeof keeps / sizeof keeps[0]; k++) {
            const omm_codec codec = {
                .kind = (omm_codec_kind)kind, .keep_count = keeps[k], .zstd_level = k == 1 ? 3 : 0};
            battery_pieces(&codec, &layout);
        }
}

static void test_layout(void) {
    CHECK_EQ(omm_layout_rows(&LAYOUT), 17);

    omm_segment bad[4];
    for (int what = 0; what < 7; what++) {
        memcpy(bad, SEGMENTS, sizeof bad);
        omm_layout layout = {bad, 4, 131};
        if (what == 0) bad[1].offset = 52;
        if (what == 1) bad[1].rows = 0;
        if (what == 2) bad[1].name = "a b";
        if (what == 3) bad[1].name = "";
        if (what == 4) layout.value_count = 130;
        if (what == 5) bad[3].rows = UINT32_MAX, bad[3].cols = UINT32_MAX;
        if (what == 6) { /* as many as there may be in all, behind others */
            bad[3].rows = OMM_LAYOUT_VALUES_MAX;
            bad[3].cols = 1;
            layout.value_count = bad[3].offset + OMM_LAYOUT_VALUES_MAX;
        }
        CHECK_ERR(omm_layout_check(&layout), OMM_ERR_CONFIG);
    }
}

/* A payload of the header for `codec` over this layout, of at most LONG_VALUES, and `body`; sent without zstd. */
enum { LONG_VALUES = 795 };

static omm_err decode_body(const omm_codec *codec, const omm_layout *layout, uint8_t index,
                           uint32_t kept_count, omm_bytes body) {
    uint8_t sent[128] = {0, 'O', 'M', 'M', 'D', 1, (uint8_t)codec->kind, index, 0};
    omm_digest id = omm_layout_digest(layout);
    omm_put_u32(sent + 9, (uint32_t)layout->value_count);
    omm_put_u32(sent + 13, kept_count);
    memcpy(sent + 17, id.b, 8);
    memcpy(sent + 25, body.data, body.size);
    float values[LONG_VALUES];
    return omm_codec_decode(values, NULL, codec, layout, omm_bytes_of(sent, 25 + body.size));
}

static const omm_segment SMALL_SEGMENTS[] = {{"w", 2, 4, 0}};
static const omm_layout SMALL = {SMALL_SEGMENTS, 1, 8};

static omm_err decode_small(const omm_codec *codec, uint8_t index, uint32_t kept_count,
                            omm_bytes body) {
    return decode_body(codec, &SMALL, index, kept_count, body);
}
#define BODY(...)                                                                                  \
    omm_bytes_of((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void test_refuses_small(void) {
    const omm_codec none = {.kind = OMM_CODEC_NONE, .keep_count = 2};
    const omm_codec wide = {.kind = OMM_CODEC_NONE, .keep_count = 8};
    const omm_codec f16 = {.kind = OMM_CODEC_F16, .keep_count = 8};
    const omm_codec int8 = {.kind = OMM_CODEC_INT8, .keep_count = 4};
    const omm_codec dense = {.kind = OMM_CODEC_INT8};
    enum { GAPS = 1, BITMAP = 2 };

    CHECK_OK(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0x80, 0x3f)));
    CHECK_OK(decode_small(&none, BITMAP, 2, BODY(0x81, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f)));
    CHECK_OK(decode_small(&none, GAPS, 0, omm_bytes_of("", 0))); /* nothing moved: all zeros */
    /* another codec: too many entries, or dense where sparse is agreed */
    CHECK_ERR(decode_small(&none, GAPS, 3, BODY(0, 0, 0, 0)), OMM_ERR_REFUSED_RECIPE);
    CHECK_ERR(decode_small(&none, 0, 8, BODY(0)), OMM_ERR_REFUSED_RECIPE);
    CHECK_ERR(decode_small(&dense, GAPS, 1, BODY(0)), OMM_ERR_REFUSED_RECIPE);
    /* the longer index coding, both ways (gaps may tie with the bitmap, and win then) */
    CHECK_ERR(decode_small(&none, BITMAP, 1, BODY(0x80, 0, 0, 0x80, 0x3f)), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&wide, GAPS, 2, BODY(0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f)),
              OMM_ERR_REFUSED_FORMAT);
    /* a coding that there is none of, though its bits would do as a bitmap's */
    CHECK_ERR(decode_small(&none, 3, 1, BODY(0x80, 0, 0, 0x80, 0x3f)), OMM_ERR_REFUSED_FORMAT);
    /* an index outside, a varint that is not minimal, one that never ends */
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(8, 0, 0, 0x80, 0x3f)), OMM_ERR_REFUSED_SHAPE);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(0x87, 0, 0, 0, 0x80, 0x3f)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(255, 255, 255, 255, 255, 255)),
              OMM_ERR_REFUSED_FORMAT);
    /* int8: a scale too few or too many, though a scale is wrong, too */
    CHECK_OK(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0x3c, 0, 0, 0x3c, 127, 129)));
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0x3c, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0xbc, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x05, 0, 0, 0x3c, 0, 0, 0x3c, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x05, 0, 0, 0xbc, 0, 0, 0x3c, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0xbc, 0, 0, 0x3c, 127, 129)),
              OMM_ERR_REFUSED_VALUE);
    /* and a part of a scale too much */
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0x3c, 0, 0, 0x3c, 1, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, BITMAP, 2, BODY(0x21, 0, 0, 0x3c, 0, 0, 0x3c, 1, 1, 127, 129)),
              OMM_ERR_REFUSED_FORMAT);
    /* bitmap counts that do not match, both ways */
    CHECK_ERR(decode_small(&none, BITMAP, 2, BODY(0x07, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&none, BITMAP, 2, BODY(0x01, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f)),
              OMM_ERR_REFUSED_FORMAT);
    /* values: NaN, infinity, too large, zero where nothing is stored, f16 infinity, -0 */
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0xc0, 0x7f)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0x80, 0xff)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0, 0x47)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0, 0)), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&f16, GAPS, 1, BODY(7, 0, 0x7c)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&f16, GAPS, 1, BODY(7, 0, 0x80)), OMM_ERR_REFUSED_FORMAT);
    /* int8: scale 2^-7 is 0x3c0000 in its upper 24 bits */
    CHECK_OK(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0x3c, 127)));
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0x3c, 126)), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0x3c, 128)), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0, 0)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0xbc, 127)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0xc0, 0x7f, 127)), OMM_ERR_REFUSED_VALUE);
    CHECK_ERR(decode_small(&int8, GAPS, 1, BODY(7, 0, 0, 0x08, 127)), OMM_ERR_REFUSED_VALUE);
    CHECK_OK(decode_small(&dense, 0, 8, BODY(0, 0, 0x3c, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0)));
    CHECK_ERR(decode_small(&dense, 0, 8, BODY(0, 0, 0x3c, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 1)),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&dense, 0, 7, BODY(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
              OMM_ERR_REFUSED_FORMAT);
    /* trailing and missing bytes */
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0x80, 0x3f, 0)), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(decode_small(&none, GAPS, 1, BODY(7, 0, 0, 0x80)), OMM_ERR_REFUSED_FORMAT);
}

/* One index has one spelling, also where a longer one would still be no longer than a bitmap. */
static void test_refuses_varints(void) {
    static const omm_segment segments[] = {{"w", 1, LONG_VALUES, 0}};
    static const omm_layout layout = {segments, 1, LONG_VALUES};
    const omm_codec codec = {.kind = OMM_CODEC_NONE, .keep_count = 2};
    CHECK_OK(decode_body(&codec, &layout, 1, 1, BODY(5, 0, 0, 0x80, 0x3f)));
    CHECK_OK(decode_body(&codec, &layout, 1, 1, BODY(0x85, 1, 0, 0, 0x80, 0x3f)));
    CHECK_ERR(decode_body(&codec, &layout, 1, 1, BODY(0x85, 0, 0, 0, 0x80, 0x3f)),
              OMM_ERR_REFUSED_FORMAT);
    /* 5 and 2^32, of which 32 bits are 5 */
    CHECK_ERR(
        decode_body(&codec, &layout, 1, 1, BODY(0x85, 0x80, 0x80, 0x80, 0x10, 0, 0, 0x80, 0x3f)),
        OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(
        decode_body(&codec, &layout, 1, 1, BODY(0x85, 0x80, 0x80, 0x80, 0x80, 1, 0, 0, 0x80, 0x3f)),
        OMM_ERR_REFUSED_FORMAT);
}

static void test_refuses_frames(void) {
    const omm_codec codec = {.kind = OMM_CODEC_NONE, .zstd_level = 3};
    size_t max = omm_codec_payload_bytes_max(&codec, &SMALL);
    float values[8];
    omm_buf zeros, sent;
    omm_buf_init(&zeros, 1 << 27);
    omm_buf_init(&sent, 1 << 20);
    uint8_t *tail;
    CHECK_OK(omm_buf_extend(&zeros, &tail, 100u << 20));
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&zeros), 3)); /* 100 MiB in a few kB */
    size_t live = omm_mem_live();
    omm_err err = omm_codec_decode(values, NULL, &codec, &SMALL, omm_buf_view(&sent));
    CHECK_ERR(err, OMM_ERR_REFUSED_SIZE); /* already the sent size is over the limit */
    sent.size = 20;                       /* and a short one is refused for what it declares */
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &SMALL, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_SIZE);
    CHECK_EQ(omm_mem_live(), live);

    /* a frame that lies: 20 bytes of content are declared, more comes out */
    sent.size = 0;
    zeros.size = 5000;
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&zeros), 3));
    CHECK_EQ(sent.data[0], 1);
    CHECK_EQ(sent.data[5] & 0xe0, 0x60); /* single segment, two-byte content size */
    omm_put_u16(sent.data + 6, 40 - 0);  /* stored as content - 256: declares 296 */
    CHECK(omm_codec_unpack(&zeros, omm_buf_view(&sent), 400) != OMM_OK);
    sent.size = 0;
    zeros.size = 200;
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&zeros), 3));
    size_t frame_end = sent.size;
    CHECK_OK(omm_buf_append(&sent, "x", 1)); /* something after the frame */
    CHECK_ERR(omm_codec_unpack(&zeros, omm_buf_view(&sent), 400), OMM_ERR_REFUSED_FORMAT);
    sent.size = frame_end; /* an empty skippable frame, which zstd itself would pass over */
    CHECK_OK(omm_buf_append(&sent, "\x50\x2a\x4d\x18\0\0\0\0", 8));
    CHECK_ERR(omm_codec_unpack(&zeros, omm_buf_view(&sent), 400), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_codec_unpack(&zeros, BODY(2, 0), max), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_codec_unpack(&zeros, BODY(1, 0), max), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_codec_unpack(&zeros, omm_bytes_of("", 0), max), OMM_ERR_REFUSED_FORMAT);
    /* a skippable frame of 4 bytes, then nothing */
    CHECK_ERR(
        omm_codec_unpack(&zeros, BODY(1, 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4), max),
        OMM_ERR_REFUSED_FORMAT);
    /* zstd's format before RFC 8878, which some builds of libzstd still read and others do not: 1,000 times one byte */
    CHECK_ERR(omm_codec_unpack(&zeros,
                               BODY(1, 0x27, 0xb5, 0x2f, 0xfd, 0xa0, 0xe8, 3, 0, 0, 0x80, 3, 0xe8,
                                    'A', 0xc0, 0, 0),
                               1000),
              OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&zeros);
    omm_buf_fini(&sent);

    const omm_codec plain = {.kind = OMM_CODEC_NONE};
    CHECK_ERR(omm_codec_decode(values, NULL, &plain, &SMALL, BODY(1, 0x28)),
              OMM_ERR_REFUSED_RECIPE);
}

/* By hand: |3| at 3 and |-2| at 0 are kept; row 0 has scale 3/127 = 0x3cc18306 rounded up to
 * 0x3cc18400 (16 bits), -2 / that = -84.66 -> -85. */
static void test_golden_by_hand(void) {
    const float values[8] = {-2.0f, 0.5f, 0.25f, 3.0f, 1.0f, -0.0f, 0.0f, 0.125f};
    const omm_codec codec = {.kind = OMM_CODEC_INT8, .keep_count = 2};
    omm_digest id = omm_layout_digest(&SMALL);
    uint8_t golden[31] = {0, 'O', 'M', 'M', 'D', 1, 2, 2, 0, 8, 0, 0, 0, 2, 0, 0, 0};
    memcpy(golden + 17, id.b, 8);
    memcpy(golden + 25, (const uint8_t[]){0x09, 0x84, 0xc1, 0x3c, 0xab, 0x7f}, 6);
    omm_buf sent;
    omm_buf_init(&sent, 1024);
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &SMALL, values));
    CHECK(omm_bytes_equal(omm_buf_view(&sent), omm_bytes_of(golden, sizeof golden)));
    omm_buf_fini(&sent);
}

static void test_golden_digests(void) {
    static const struct {
        omm_codec codec;
        const char *digest; /* first 8 bytes of the payload's */
    } goldens[] = {
        {{.kind = OMM_CODEC_NONE}, "9dc80d8bc7bf7a25"},
        {{.kind = OMM_CODEC_F16}, "257927bd1c2c7669"},
        {{.kind = OMM_CODEC_INT8}, "c327ae249df3ea14"},
        {{.kind = OMM_CODEC_NONE, .keep_count = 13, .zstd_level = 3}, "8cf51a07012c0317"},
        {{.kind = OMM_CODEC_F16, .keep_count = 13, .zstd_level = 3}, "4d278a8f9e499ccd"},
        {{.kind = OMM_CODEC_INT8, .keep_count = 64, .zstd_level = 3}, "d6da6a605c6082ac"},
    };
    float values[131];
    battery_values(values, 131, 42);
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        omm_buf sent;
        omm_buf_init(&sent, 4096);
        omm_encoded info;
        CHECK_OK(omm_codec_encode(&sent, &info, &goldens[i].codec, &LAYOUT, values));
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest_hex(hex, &info.payload_digest);
        if (strncmp(hex, goldens[i].digest, 16) != 0)
            fprintf(stderr, "golden %zu: %.16s\n", i, hex);
        CHECK(strncmp(hex, goldens[i].digest, 16) == 0);
        omm_buf_fini(&sent);
    }
}

/* The stated maximum is met with equality by indices spread as far as they can be. */
static void test_size_max_is_exact(void) {
    const omm_segment wide[] = {{"w", 1, 3000, 0}};
    const omm_layout layout = {wide, 1, 3000};
    const omm_codec codec = {.kind = OMM_CODEC_F16, .keep_count = 10};
    static float values[3000];
    for (int i = 1; i <= 10; i++) values[i * 129 - 1] = 1.0f; /* every gap is 128: two bytes */
    omm_buf sent;
    omm_buf_init(&sent, 4096);
    omm_encoded info;
    CHECK_OK(omm_codec_encode(&sent, &info, &codec, &layout, values));
    CHECK_EQ(info.payload_bytes, omm_codec_payload_bytes_max(&codec, &layout));
    CHECK_EQ(info.payload_bytes, 24 + 10 * 2 + 10 * 2);
    omm_buf_fini(&sent);
}

static void test_choose(void) {
    for (int kind = OMM_CODEC_NONE; kind <= OMM_CODEC_INT8; kind++) {
        for (uint64_t budget = 0; budget < 600; budget++) {
            omm_codec chosen;
            omm_codec trial = {.kind = (omm_codec_kind)kind};
            bool whole = omm_codec_sent_bytes_max(&trial, &LAYOUT) <= budget;
            uint32_t best = 0;
            for (uint32_t k = 1; k <= 131 && !whole; k++) {
                trial.keep_count = k;
                if (omm_codec_sent_bytes_max(&trial, &LAYOUT) <= budget) best = k;
            }
            omm_err err = omm_codec_choose(&chosen, (omm_codec_kind)kind, 0, &LAYOUT, budget);
            CHECK_EQ(err, whole || best ? OMM_OK : OMM_ERR_CONFIG);
            if (err == OMM_OK) CHECK_EQ(chosen.keep_count, best);
        }
    }
}

static void test_describe(void) {
    const omm_codec codec = {OMM_CODEC_INT8, 4096, 3, true};
    uint8_t bytes[OMM_CODEC_BYTES];
    omm_codec read;
    omm_codec_put(bytes, &codec);
    CHECK_OK(omm_codec_get(&read, omm_bytes_of(bytes, sizeof bytes)));
    CHECK(read.kind == codec.kind && read.keep_count == 4096 && read.zstd_level == 3);
    CHECK(read.error_feedback);
    char text[OMM_CODEC_TEXT_SIZE];
    omm_codec_text(text, &codec);
    CHECK(strcmp(text, "int8 top-4096 zstd-3 feedback") == 0);
    CHECK_ERR(omm_codec_get(&read, omm_bytes_of(bytes, 7)), OMM_ERR_REFUSED_FORMAT);
    static const uint8_t bad[4] = {3, 20, 2, 1};
    for (int i = 0; i < 4; i++) {
        omm_codec_put(bytes, &codec);
        bytes[i] = bad[i];
        CHECK_ERR(omm_codec_get(&read, omm_bytes_of(bytes, sizeof bytes)), OMM_ERR_REFUSED_FORMAT);
    }
}

/* Decode a copy of the exact size, so that the sanitizer sees any read past the end. */
static omm_err decode_copy(float *values, const omm_codec *codec, const omm_layout *layout,
                           omm_bytes sent) {
    uint8_t *copy = omm_alloc(sent.size, 1);
    CHECK(copy != NULL);
    memcpy(copy, sent.data, sent.size);
    omm_err err = omm_codec_decode(values, NULL, codec, layout, omm_bytes_of(copy, sent.size));
    omm_free(copy);
    return err;
}

/* Ends within the indices, of two bytes each, and is long enough for the codes. */
static void test_cut_gaps(void) {
    enum { N = 795, INDEX_AT = 7, BODY_AT = 25, GAPS = 1 };
    static const omm_segment segments[] = {{"w", 1, N, 0}};
    static const omm_layout layout = {segments, 1, N};
    const omm_codec codec = {.kind = OMM_CODEC_INT8, .keep_count = 2};
    float values[N] = {0};
    omm_buf sent;
    omm_buf_init(&sent, 1000);
    values[200] = values[500] = 1;
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &layout, values));
    CHECK_EQ(sent.data[INDEX_AT], GAPS);
    CHECK_EQ(sent.size, BODY_AT + 2 * 2 + 3 + 2);
    for (size_t size = BODY_AT; size < sent.size; size++)
        CHECK_ERR(decode_copy(values, &codec, &layout, omm_bytes_of(sent.data, size)),
                  OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&sent);
}

/* Gaps of three and four bytes: what is kept is found where it was. */
static void check_far(size_t n, const size_t *kept, uint32_t count, size_t gap_bytes) {
    const omm_segment segments[] = {{"w", 1, (uint32_t)n, 0}};
    const omm_layout layout = {segments, 1, n};
    const omm_codec codec = {.kind = OMM_CODEC_F16, .keep_count = count};
    float *values = omm_alloc(n, sizeof *values);
    float *back = omm_alloc(n, sizeof *back);
    omm_buf sent;
    CHECK(values != NULL && back != NULL);
    omm_buf_init(&sent, 1000);
    for (uint32_t i = 0; i < count; i++) values[kept[i]] = (float)(i + 1);
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &layout, values));
    CHECK_EQ(sent.size, 1 + OMM_CODEC_HEADER_BYTES + gap_bytes + 2 * (size_t)count);
    CHECK_OK(decode_copy(back, &codec, &layout, omm_buf_view(&sent)));
    CHECK(memcmp(back, values, n * sizeof *values) == 0);
    omm_buf_fini(&sent);
    omm_free(values);
    omm_free(back);
}

static void test_far_gaps(void) {
    check_far(16385, (const size_t[]){16384}, 1, 3);
    check_far(20000, (const size_t[]){0, 16385, 19999}, 3, 1 + 3 + 2);
    check_far(40000, (const size_t[]){16383, 16384, 39999}, 3, 2 + 1 + 3);
    check_far(2200000, (const size_t[]){2100000}, 1, 4);
}

/* Bitmaps that end anywhere in a word and in a byte, with the last values kept and bytes of codes behind them. */
static void test_bitmap_ends(void) {
    enum { N_MIN = 433, N_MAX = 448, FIRST = 340, INDEX_AT = 7, MAP_AT = 25, BITMAP = 2 };
    for (uint32_t n = N_MIN; n <= N_MAX; n++) {
        const omm_segment segments[] = {{"w", 1, n, 0}};
        const omm_layout layout = {segments, 1, n};
        const omm_codec codec = {.kind = OMM_CODEC_F16, .keep_count = n - FIRST};
        float values[N_MAX] = {0}, back[N_MAX];
        omm_buf sent;
        omm_buf_init(&sent, 1000);
        for (uint32_t i = FIRST; i < n; i++) values[i] = 0x1.204p0f; /* 0x3c81: no byte is 0 */
        CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &layout, values));
        CHECK_EQ(sent.data[INDEX_AT], BITMAP);
        CHECK_OK(decode_copy(back, &codec, &layout, omm_buf_view(&sent)));
        CHECK(memcmp(back, values, n * sizeof *values) == 0);
        if (n % 8) { /* a bit behind the last value */
            sent.data[MAP_AT + n / 8] |= (uint8_t)(1u << n % 8);
            CHECK_ERR(decode_copy(back, &codec, &layout, omm_buf_view(&sent)),
                      OMM_ERR_REFUSED_SHAPE);
        }
        omm_buf_fini(&sent);
    }
}

/* 99 values in front and one far behind: its gap takes two bytes, so a bitmap of 100 is the shorter by one. */
static omm_buf encode_far(const omm_codec *codec, const omm_layout *layout, size_t far) {
    float values[800] = {0};
    omm_buf sent;
    omm_buf_init(&sent, 1000);
    for (size_t i = 0; i < 99; i++) values[i] = 1;
    values[far] = 1;
    CHECK_OK(omm_codec_encode(&sent, NULL, codec, layout, values));
    float back[800];
    CHECK_OK(omm_codec_decode(back, NULL, codec, layout, omm_buf_view(&sent)));
    CHECK(memcmp(back, values, layout->value_count * sizeof *values) == 0);
    return sent;
}

static void test_index_border(void) {
    enum { INDEX_AT = 7, MAP_AT = 25, GAPS = 1, BITMAP = 2 };
    static const omm_segment segments[] = {{"w", 1, 795, 0}};
    static const omm_layout layout = {segments, 1, 795};
    const omm_codec codec = {.kind = OMM_CODEC_F16, .keep_count = 100};
    static const size_t near[] = {99, 127, 128, 191, 226};
    static const size_t far[] = {227, 255, 256, 700, 794};
    float values[795];
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        omm_buf sent = encode_far(&codec, &layout, near[i]);
        CHECK_EQ(sent.data[INDEX_AT], GAPS);
        omm_buf_fini(&sent);
        sent = encode_far(&codec, &layout, far[i]);
        CHECK_EQ(sent.data[INDEX_AT], BITMAP);
        omm_buf_fini(&sent);
    }
    omm_buf sent = encode_far(&codec, &layout, 700);
    uint8_t *map = sent.data + MAP_AT;
    map[99] |= 1u << 3; /* value 795, of 0 .. 794 */
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_SHAPE);
    map[0] &= 0xfe; /* and as many as there should be */
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_SHAPE);
    map[30] |= 3; /* too many before it */
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_FORMAT);
    map[99] &= 0xf7;
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_FORMAT);
    map[30] &= 0xfd;
    CHECK_OK(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)));
    omm_buf_fini(&sent);
    sent = encode_far(&codec, &layout, 227);
    map = sent.data + MAP_AT;
    CHECK_EQ(map[28], 1u << 3); /* 227 to 226: as gaps they would be as long, and win */
    map[28] = 1u << 2;
    CHECK_ERR(omm_codec_decode(values, NULL, &codec, &layout, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&sent);
}

/* Rows narrower than a scale: a payload may end behind the scales and still be as long as its codes. */
static void test_narrow_rows(void) {
    static const omm_segment segments[] = {{"b", 5, 3, 0}, {"c", 7, 1, 15}, {"d", 4, 2, 22}};
    static const omm_layout layout = {segments, 3, 30};
    for (int kind = OMM_CODEC_NONE; kind <= OMM_CODEC_INT8; kind++)
        for (uint32_t keep = 0; keep <= 30; keep += 15)
            battery_run(&(omm_codec){.kind = (omm_codec_kind)kind, .keep_count = keep}, &layout);
    static const omm_segment threes[] = {{"w", 2, 3, 0}};
    static const omm_layout narrow = {threes, 1, 6};
    const omm_codec codec = {.kind = OMM_CODEC_INT8};
    const float values[6] = {1, 0, 0, 0, 1, 0};
    float back[6];
    omm_buf sent;
    omm_buf_init(&sent, 100);
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &narrow, values));
    CHECK_EQ(sent.size, 1 + 24 + 6 + 6);
    for (size_t size = 0; size < sent.size; size++)
        CHECK(decode_copy(back, &codec, &narrow, omm_bytes_of(sent.data, size)) != OMM_OK);
    omm_buf_fini(&sent);
}

/* Rows of the smallest and of the largest values that there are, and one step beyond. */
static void test_row_limits(void) {
    const omm_codec codec = {.kind = OMM_CODEC_INT8};
    static const float rows[] = {0x1p-100f, 0x1.8p-97f, 1, OMM_CODEC_VALUE_MAX};
    float values[8] = {0}, back[8];
    omm_buf sent;
    omm_buf_init(&sent, 100);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        values[0] = rows[i];
        sent.size = 0;
        CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &SMALL, values));
        CHECK_OK(omm_codec_decode(back, NULL, &codec, &SMALL, omm_buf_view(&sent)));
        CHECK(back[0] >= rows[i] && back[0] <= rows[i] * 1.0001f);
    }
    values[0] = 0x1.fffffep-101f;
    sent.size = 0;
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &SMALL, values));
    CHECK_OK(omm_codec_decode(back, NULL, &codec, &SMALL, omm_buf_view(&sent)));
    CHECK(back[0] == 0);
    omm_buf_fini(&sent);
    /* scale 256 is 0x438000, 257 is 0x438080: 127 times that is over the largest value */
    CHECK_OK(decode_small(&codec, 0, 8, BODY(0, 0x80, 0x43, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0)));
    CHECK_ERR(decode_small(&codec, 0, 8, BODY(0x80, 0x80, 0x43, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0)),
              OMM_ERR_REFUSED_VALUE);
}

/* The last bit of a value decides. */
static void test_closest(void) {
    const omm_codec codec = {.kind = OMM_CODEC_NONE, .keep_count = 1};
    const float values[8] = {1, 0, 0, -0x1.000002p0f, 0, 0, 0x1p0f, 0};
    float back[8];
    omm_buf sent;
    omm_buf_init(&sent, 100);
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &SMALL, values));
    CHECK_OK(omm_codec_decode(back, NULL, &codec, &SMALL, omm_buf_view(&sent)));
    CHECK(back[0] == 0 && back[3] == values[3]);
    omm_buf_fini(&sent);
}

/* The checks of a description, each at its limit. */
static void test_check_limits(void) {
    char name[OMM_LAYOUT_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[OMM_LAYOUT_NAME_MAX] = 0;
    omm_segment s[] = {{name, 2, 4, 0}};
    omm_layout layout = {s, 1, 8};
    CHECK_OK(omm_layout_check(&layout));
    name[OMM_LAYOUT_NAME_MAX] = 'n';
    name[OMM_LAYOUT_NAME_MAX + 1] = 0;
    CHECK_ERR(omm_layout_check(&layout), OMM_ERR_CONFIG);
    CHECK_ERR(omm_codec_check(&(omm_codec){.kind = OMM_CODEC_F16}, &layout), OMM_ERR_CONFIG);
    s[0] =
        (omm_segment){"w", 1u << 15, (OMM_LAYOUT_VALUES_MAX >> 15) + 1, 0}; /* as many as it says */
    layout.value_count = (size_t)s[0].rows * s[0].cols;
    CHECK_ERR(omm_layout_check(&layout), OMM_ERR_CONFIG);
    static const omm_codec bad[] = {{.kind = (omm_codec_kind)3},
                                    {.keep_count = 9},
                                    {.zstd_level = OMM_CODEC_ZSTD_LEVEL_MAX + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(omm_codec_check(&bad[i], &SMALL), OMM_ERR_CONFIG);
    const omm_codec best = {
        .kind = OMM_CODEC_F16, .keep_count = 8, .zstd_level = OMM_CODEC_ZSTD_LEVEL_MAX};
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    omm_buf sent;
    omm_buf_init(&sent, 100);
    CHECK_OK(omm_codec_encode(&sent, NULL, &best, &SMALL, values));
    omm_buf_fini(&sent);
    /* two kept values of seventeen rows take two scales, two indices and a byte for the packing */
    const omm_codec few = {.kind = OMM_CODEC_INT8, .keep_count = 2};
    CHECK_EQ(omm_codec_payload_bytes_max(&few, &LAYOUT), 24 + 2 + 2 * 3 + 3);
    CHECK_EQ(omm_codec_sent_bytes_max(&few, &LAYOUT), 24 + 2 + 2 * 3 + 3 + 1);
}

static void test_residual_digest(void) {
    enum { N = 600 };
    float values[N];
    uint8_t bytes[4 * N], zeros[4 * N] = {0};
    battery_values(values, N, 3);
    for (size_t i = 0; i < N; i++) omm_put_f32(bytes + 4 * i, values[i]);
    static const size_t counts[] = {1, 255, 256, 257, 512, N};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const omm_digest have = omm_residual_digest(values, counts[i]);
        const omm_digest want = omm_hash(omm_bytes_of(bytes, 4 * counts[i]));
        CHECK(omm_digest_equal(&have, &want));
        const omm_digest zero = omm_residual_zero(counts[i]);
        const omm_digest of_zeros = omm_hash(omm_bytes_of(zeros, 4 * counts[i]));
        CHECK(omm_digest_equal(&zero, &of_zeros));
    }
}

static omm_err count_values(void *ud, size_t first, const float *values, size_t count) {
    (void)first;
    (void)values;
    *(size_t *)ud += count;
    return OMM_OK;
}

/* A frame of libzstd's own: decode takes it, who will show it to others does not. */
static void test_walk_known(void) {
    static const omm_segment segments[] = {{"w", 1, 4000, 0}};
    static const omm_layout layout = {segments, 1, 4000};
    const omm_codec codec = {.kind = OMM_CODEC_F16, .zstd_level = 3};
    static float values[4000], back[4000];
    uint8_t frame[9000] = {1};
    size_t count = 0;
    omm_buf sent, payload;
    omm_buf_init(&sent, 10000);
    omm_buf_init(&payload, 10000);
    for (size_t i = 0; i < 4000; i++) values[i] = (float)(i % 7);
    CHECK_OK(omm_codec_encode(&sent, NULL, &codec, &layout, values));
    CHECK_EQ(sent.data[0], 1);
    CHECK_OK(
        omm_codec_walk_known(NULL, &codec, &layout, omm_buf_view(&sent), count_values, &count));
    CHECK_EQ(count, 4000);
    CHECK_OK(omm_codec_unpack(&payload, omm_buf_view(&sent), 9000));
    const size_t size = ZSTD_compress(frame + 1, sizeof frame - 1, payload.data, payload.size, 3);
    CHECK(!ZSTD_isError(size));
    const omm_bytes other = omm_bytes_of(frame, size + 1);
    CHECK_OK(omm_codec_decode(back, NULL, &codec, &layout, other));
    CHECK(same_bytes(back, values, sizeof back));
    count = 0;
    CHECK_OK(omm_codec_walk(NULL, &codec, &layout, other, count_values, &count));
    CHECK_EQ(count, 4000);
    count = 0;
    CHECK_ERR(omm_codec_walk_known(NULL, &codec, &layout, other, count_values, &count),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_EQ(count, 0);
    omm_buf_fini(&sent);
    omm_buf_fini(&payload);
}

int main(void) {
    test_narrow_rows();
    test_row_limits();
    test_closest();
    test_check_limits();
    test_residual_digest();
    test_walk_known();
    test_index_border();
    test_cut_gaps();
    test_far_gaps();
    test_bitmap_ends();
    test_layout();
    test_golden_by_hand();
    test_describe();
    test_choose();
    test_size_max_is_exact();
    test_refuses_small();
    test_refuses_varints();
    test_refuses_frames();
    test_battery();
    test_pieces();
    test_golden_digests();
    return 0;
}
