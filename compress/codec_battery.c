#include "codec_battery.h"

#include "omm/mem.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { SEEDS = 5, ROOM = 1 << 20 };

void battery_values(float *out, size_t n, uint64_t seed) {
    omm_seed s = omm_seed_from_u64(seed);
    omm_rng rng = omm_rng_init(&s, OMM_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < n; i++) {
        float u = 2.0f * omm_rng_unit(&rng, 2 * i) - 1.0f;
        uint32_t shape = omm_rng_u32(&rng, 2 * i + 1) % 16;
        out[i] = shape == 0   ? 0.0f
                 : shape == 1 ? -0.0f
                 : shape == 2 ? 0.125f
                 : shape < 6  ? u
                              : u * u * u * 0.01f;
    }
}

static float *values_new(const omm_layout *layout, uint64_t seed) {
    float *values = omm_alloc(layout->value_count, sizeof *values);
    CHECK(values != NULL);
    battery_values(values, layout->value_count, seed);
    return values;
}

static omm_buf encode_new(omm_encoded *info, const omm_codec *codec, const omm_layout *layout,
                          const float *values) {
    omm_buf sent;
    omm_buf_init(&sent, ROOM);
    CHECK_OK(omm_codec_encode(&sent, info, codec, layout, values));
    return sent;
}

/* The slow twin of the selection: an entry is kept when fewer than k entries beat it. */
static bool is_kept(const float *values, size_t n, size_t index, size_t k) {
    size_t better = 0;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(values[i]);
        float b = fabsf(values[index]);
        better += a > b || (a == b && i < index);
    }
    return better < k;
}

/* The most |v - decoded| may be for a kept value: the row's scale / 2 and a last bit for int8. */
static float error_bound(const omm_codec *codec, const omm_layout *layout, const float *values,
                         size_t index) {
    if (codec->kind == OMM_CODEC_NONE) return 0.0f;
    if (codec->kind == OMM_CODEC_F16) return fabsf(values[index]) * 0x1p-11f + 0x1p-25f;
    size_t s = layout->segment_count - 1;
    while (layout->segments[s].offset > index) s--;
    size_t cols = layout->segments[s].cols;
    size_t first = index - (index - layout->segments[s].offset) % cols;
    float magnitude_max = 0.0f;
    for (size_t i = first; i < first + cols; i++)
        if (fabsf(values[i]) > magnitude_max) magnitude_max = fabsf(values[i]);
    return magnitude_max / 127.0f * 0.5001f;
}

static void check_bounds(const omm_codec *codec, const omm_layout *layout, const float *values,
                         const float *decoded) {
    size_t n = layout->value_count;
    size_t k = codec->keep_count ? codec->keep_count : n;
    for (size_t i = 0; i < n; i++) {
        if (!is_kept(values, n, i, k))
            CHECK(decoded[i] == 0.0f);
        else
            CHECK(fabsf(values[i] - decoded[i]) <= error_bound(codec, layout, values, i));
        CHECK(decoded[i] != 0.0f || !signbit(decoded[i]));
    }
}

/* What a walk has given so far. */
typedef struct walked {
    float *values;
    size_t count, calls;
    size_t stop_at; /* the call that fails; 0: none */
} walked;

static omm_err take_piece(void *ud, size_t first, const float *values, size_t count) {
    walked *w = ud;
    CHECK_EQ(first, w->count);
    CHECK(count >= 1 && count <= OMM_CODEC_PIECE_VALUES);
    if (++w->calls == w->stop_at) return omm_raise(OMM_ERR_CANCELLED, "enough");
    memcpy(w->values + first, values, count * sizeof *values);
    w->count += count;
    return OMM_OK;
}

/* Piece by piece the same bits. */
static void check_walk(const omm_codec *codec, const omm_layout *layout, const float *decoded,
                       const omm_encoded *info, omm_bytes sent) {
    omm_encoded read;
    walked w = {.values = omm_alloc(layout->value_count, sizeof(float))};
    CHECK(w.values != NULL);
    CHECK_OK(omm_codec_walk(&read, codec, layout, sent, take_piece, &w));
    CHECK_EQ(w.count, layout->value_count);
    CHECK(memcmp(w.values, decoded, layout->value_count * sizeof(float)) == 0);
    CHECK(omm_digest_equal(&info->payload_digest, &read.payload_digest));
    CHECK(omm_digest_equal(&info->sent_digest, &read.sent_digest));
    CHECK_EQ(info->kept_count, read.kept_count);
    w = (walked){.values = w.values, .stop_at = w.calls};
    CHECK_ERR(omm_codec_walk(NULL, codec, layout, sent, take_piece, &w), OMM_ERR_CANCELLED);
    CHECK_EQ(w.calls, w.stop_at);
    omm_free(w.values);
}

static void test_round_trip(const omm_codec *codec, const omm_layout *layout) {
    float *decoded = omm_alloc(layout->value_count, sizeof *decoded);
    CHECK(decoded != NULL);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        float *values = values_new(layout, seed);
        omm_encoded info, read;
        omm_buf sent = encode_new(&info, codec, layout, values);
        CHECK(info.payload_bytes <= omm_codec_payload_bytes_max(codec, layout));
        CHECK(info.sent_bytes <= omm_codec_sent_bytes_max(codec, layout));
        CHECK_EQ(info.sent_bytes, sent.size);
        memset(decoded, 0x55, layout->value_count * sizeof *decoded);
        CHECK_OK(omm_codec_decode(decoded, &read, codec, layout, omm_buf_view(&sent)));
        CHECK(omm_digest_equal(&info.payload_digest, &read.payload_digest));
        CHECK(omm_digest_equal(&info.sent_digest, &read.sent_digest));
        const omm_digest hash = omm_hash(omm_buf_view(&sent));
        CHECK(omm_digest_equal(&info.sent_digest, &hash));
        CHECK_EQ(info.payload_bytes, read.payload_bytes);
        CHECK_EQ(info.sent_bytes, read.sent_bytes);
        CHECK_EQ(info.kept_count, read.kept_count);
        check_bounds(codec, layout, values, decoded);
        check_walk(codec, layout, decoded, &info, omm_buf_view(&sent));

        omm_encoded again;
        omm_buf twice = encode_new(&again, codec, layout, values);
        CHECK(omm_bytes_equal(omm_buf_view(&sent), omm_buf_view(&twice)));
        omm_buf_fini(&twice);
        twice = encode_new(&again, codec, layout, decoded); /* the fixed point */
        CHECK(omm_bytes_equal(omm_buf_view(&sent), omm_buf_view(&twice)));
        omm_buf_fini(&twice);
        omm_buf_fini(&sent);
        omm_free(values);
    }
    omm_free(decoded);
}

/* Decode hostile bytes: refused and `values` untouched, or the one encoding of its values. */
static void try_hostile(const omm_codec *codec, const omm_layout *layout, omm_bytes bytes) {
    size_t n = layout->value_count;
    float *values = omm_alloc(n, sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < n; i++) values[i] = 7.0f;
    omm_err err = omm_codec_decode(values, NULL, codec, layout, bytes);
    walked w = {.values = values, .stop_at = 1};
    CHECK_ERR(omm_codec_walk(NULL, codec, layout, bytes, take_piece, &w),
              err == OMM_OK ? OMM_ERR_CANCELLED : err);
    CHECK_EQ(w.calls, err == OMM_OK ? 1 : 0); /* what is refused has reached nobody */
    if (err != OMM_OK) {
        for (size_t i = 0; i < n; i++) CHECK(values[i] == 7.0f);
        CHECK(strncmp(omm_err_name(err), "REFUSED_", 8) == 0);
    } else if (bytes.data[0] == 0) {
        omm_codec plain = *codec;
        plain.zstd_level = 0;
        omm_buf again = encode_new(NULL, &plain, layout, values);
        CHECK(omm_bytes_equal(omm_buf_view(&again), bytes));
        omm_buf_fini(&again);
    }
    omm_free(values);
}

static void test_hostile_bytes(const omm_codec *codec, const omm_layout *layout) {
    float *values = values_new(layout, 3);
    float *decoded = values_new(layout, 4);
    omm_buf sent = encode_new(NULL, codec, layout, values);
    for (size_t size = 0; size < sent.size; size++) {
        /* a copy of the exact size, so that the sanitizer sees any read past the end */
        uint8_t *copy = omm_alloc(size + 1, 1);
        CHECK(copy != NULL);
        memcpy(copy + 1, sent.data, size);
        CHECK(omm_codec_decode(decoded, NULL, codec, layout, omm_bytes_of(copy + 1, size)) !=
              OMM_OK);
        omm_free(copy);
    }
    for (size_t bit = 0; bit < sent.size * 8; bit++) {
        sent.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        try_hostile(codec, layout, omm_buf_view(&sent));
        sent.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    CHECK_OK(omm_buf_append(&sent, "", 1));
    CHECK(omm_codec_decode(decoded, NULL, codec, layout, omm_buf_view(&sent)) != OMM_OK);
    omm_buf_fini(&sent);
    omm_free(values);
    omm_free(decoded);
}

static void test_other_round(const omm_codec *codec, const omm_layout *layout) {
    float *values = values_new(layout, 5);
    omm_buf sent = encode_new(NULL, codec, layout, values);
    omm_codec other = *codec;
    other.kind = codec->kind == OMM_CODEC_F16 ? OMM_CODEC_NONE : OMM_CODEC_F16;
    omm_err err = omm_codec_decode(values, NULL, &other, layout, omm_buf_view(&sent));
    CHECK(err == OMM_ERR_REFUSED_RECIPE || err == OMM_ERR_REFUSED_SIZE);

    omm_segment segments[64];
    CHECK(layout->segment_count <= 64);
    memcpy(segments, layout->segments, layout->segment_count * sizeof *segments);
    segments[0].name = "another";
    omm_layout renamed = *layout;
    renamed.segments = segments;
    CHECK_ERR(omm_codec_decode(values, NULL, codec, &renamed, omm_buf_view(&sent)),
              OMM_ERR_REFUSED_SHAPE);
    omm_buf_fini(&sent);
    omm_free(values);
}

static void test_bad_values(const omm_codec *codec, const omm_layout *layout) {
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 32513.0f, -40000.0f};
    float *values = values_new(layout, 6);
    omm_buf sent;
    omm_buf_init(&sent, ROOM);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        values[layout->value_count - 1] = bad[i];
        CHECK_ERR(omm_codec_encode(&sent, NULL, codec, layout, values), OMM_ERR_REFUSED_VALUE);
        CHECK_EQ(sent.size, 0);
        const float first = values[0];
        values[layout->value_count - 1] = 0;
        values[0] = bad[i];
        CHECK_ERR(omm_codec_encode(&sent, NULL, codec, layout, values), OMM_ERR_REFUSED_VALUE);
        CHECK_EQ(sent.size, 0);
        values[0] = first;
    }
    values[layout->value_count - 1] = -OMM_CODEC_VALUE_MAX;
    CHECK_OK(omm_codec_encode(&sent, NULL, codec, layout, values));
    CHECK_OK(omm_codec_decode(values, NULL, codec, layout, omm_buf_view(&sent)));
    CHECK(values[layout->value_count - 1] == -OMM_CODEC_VALUE_MAX);
    omm_buf_fini(&sent);
    omm_free(values);
}

static void test_out_of_memory(const omm_codec *codec, const omm_layout *layout) {
    float *values = values_new(layout, 7);
    float *residual = values_new(layout, 8);
    float *expected = values_new(layout, 8);
    omm_buf whole;
    omm_buf_init(&whole, ROOM);
    CHECK_OK(omm_feedback_encode(&whole, NULL, expected, codec, layout, values, residual));
    for (size_t nth = 1, done = 0; !done; nth++) {
        size_t live = omm_mem_live();
        omm_buf sent;
        omm_buf_init(&sent, ROOM);
        float before = residual[0];
        omm_mem_fail_nth(nth);
        omm_err err = omm_feedback_encode(&sent, NULL, residual, codec, layout, values, residual);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) {
            CHECK_ERR(err, OMM_ERR_NOMEM);
            CHECK_EQ(sent.size, 0);
            CHECK(residual[0] == before);
        }
        done = err == OMM_OK;
        if (done) {
            CHECK(omm_bytes_equal(omm_buf_view(&sent), omm_buf_view(&whole)));
            CHECK(memcmp(residual, expected, layout->value_count * sizeof *residual) == 0);
        }
        omm_buf_fini(&sent);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_buf_fini(&whole);
    omm_free(expected);
    omm_free(values);
    omm_free(residual);
}

/* What is sent and what is carried over add up; two rounds send what one round could not. */
static void test_feedback(const omm_codec *codec, const omm_layout *layout) {
    size_t n = layout->value_count;
    float *delta = values_new(layout, 9);
    float *residual = values_new(layout, 10);
    float *decoded = values_new(layout, 11);
    omm_buf sent;
    omm_buf_init(&sent, ROOM);
    const uint8_t prefix = 0xa5; /* appended to, not replaced */
    CHECK_OK(omm_buf_append(&sent, &prefix, 1));
    omm_encoded info;
    CHECK_OK(omm_feedback_encode(&sent, &info, residual, codec, layout, delta, NULL));
    CHECK_EQ(sent.data[0], prefix);
    CHECK_EQ(info.sent_bytes, sent.size - 1);
    const omm_digest hash = omm_hash(omm_bytes_of(sent.data + 1, sent.size - 1));
    CHECK(omm_digest_equal(&info.sent_digest, &hash));
    CHECK_OK(
        omm_codec_decode(decoded, NULL, codec, layout, omm_bytes_of(sent.data + 1, sent.size - 1)));
    for (size_t i = 0; i < n; i++) CHECK(residual[i] == delta[i] - decoded[i]);

    float *carried = omm_alloc(n, sizeof *carried);
    CHECK(carried != NULL);
    for (size_t i = 0; i < n; i++) carried[i] = delta[i] + residual[i];
    sent.size = 0;
    CHECK_OK(omm_feedback_encode(&sent, NULL, residual, codec, layout, delta, residual));
    CHECK_OK(omm_codec_decode(decoded, NULL, codec, layout, omm_buf_view(&sent)));
    for (size_t i = 0; i < n; i++) CHECK(residual[i] == carried[i] - decoded[i]);
    omm_buf_fini(&sent);
    omm_free(carried);
    omm_free(delta);
    omm_free(residual);
    omm_free(decoded);
}

void battery_pieces(const omm_codec *codec, const omm_layout *layout) {
    omm_encoded info;
    omm_buf sent;
    float *values = values_new(layout, 12);
    float *decoded = omm_alloc(layout->value_count, sizeof *decoded);
    CHECK(decoded != NULL);
    CHECK(layout->value_count > OMM_CODEC_PIECE_VALUES);
    omm_buf_init(&sent, omm_codec_sent_bytes_max(codec, layout));
    CHECK_OK(omm_codec_encode(&sent, &info, codec, layout, values));
    CHECK_OK(omm_codec_decode(decoded, NULL, codec, layout, omm_buf_view(&sent)));
    check_walk(codec, layout, decoded, &info, omm_buf_view(&sent));
    omm_buf_fini(&sent);
    omm_free(values);
    omm_free(decoded);
}

void battery_run(const omm_codec *codec, const omm_layout *layout) {
    CHECK_OK(omm_codec_check(codec, layout));
    test_round_trip(codec, layout);
    test_hostile_bytes(codec, layout);
    test_other_round(codec, layout);
    test_bad_values(codec, layout);
    test_out_of_memory(codec, layout);
    test_feedback(codec, layout);
}
