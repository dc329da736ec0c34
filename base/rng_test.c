#include "omm/rng.h"

#include "omm/hash.h"
#include "omm_test.h"

#include <string.h>

/* RFC 8439, appendix A.1, test vectors 1, 2 and 4 (first words of the key stream block). */
static void test_rfc_8439(void) {
    static const uint32_t block0[4] = {0xade0b876u, 0x903df1a0u, 0xe56a5d40u, 0x28bd8653u};
    static const uint32_t block1[4] = {0xbee7079fu, 0x7a385155u, 0x7c97ba98u, 0x0d082d73u};
    static const uint32_t other2[4] = {0xfb4dd572u, 0x4bc42ef1u, 0xdf922636u, 0x327f1394u};
    omm_rng zero = {{0}}, other = {{0, 0xff}};
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(omm_rng_u32(&zero, i), block0[i]);
        CHECK_EQ(omm_rng_u32(&zero, 16 + i), block1[i]);
        CHECK_EQ(omm_rng_u32(&other, 32 + i), other2[i]);
    }
}

/* The block number goes on past 32 bits: dropout indices of a long run are that large. */
static void test_large_index(void) {
    omm_rng zero = {{0}};
    uint32_t pair[2];
    CHECK_EQ(omm_rng_u32(&zero, (uint64_t)16 << 32), 0x3a1db43du);
    CHECK_EQ(omm_rng_u32(&zero, ((uint64_t)16 << 32) + 15), 0x5a2b6209u);
    omm_rng_fill_u32(pair, &zero, ((uint64_t)16 << 32) - 1, 2);
    CHECK_EQ(pair[0], omm_rng_u32(&zero, ((uint64_t)16 << 32) - 1));
    CHECK_EQ(pair[1], 0x3a1db43du);
    omm_rng_fill_u32(pair, &zero, ((uint64_t)16 << 32) + 14, 2);
    CHECK_EQ(pair[1], 0x5a2b6209u);
    CHECK_EQ(omm_rng_below(&zero, ((uint64_t)8 << 32) + 7, UINT64_MAX), 0x5a2b6209cf2802f4u);
}

static omm_rng golden_lane(omm_seed *seed_out) {
    omm_seed seed = omm_seed_from_u64(42);
    if (seed_out) *seed_out = seed;
    return omm_rng_init(&seed, OMM_PURPOSE_DROPOUT, 7, 3);
}

/* Computed by an independent program from the definitions in the header. */
static void test_derivation_golden(void) {
    char hex[65];
    omm_seed seed;
    omm_rng lane = golden_lane(&seed);
    omm_hex(hex, omm_bytes_of(seed.b, 32));
    CHECK(!strcmp(hex, "c3450b48bc9d94b885479306511bbc7311550f7f45e545faf628918b54064ea1"));
    omm_hex(hex, omm_bytes_of(lane.key, 32));
    CHECK(!strcmp(hex, "ed771f2b7664f68192bd79e2d91bd5c64531364b2bf2af30f3f094a7a83ccd35"));
    omm_seed child = omm_seed_derive(&seed, OMM_PURPOSE_NONCE, omm_bytes_str("round 3"));
    omm_hex(hex, omm_bytes_of(child.b, 32));
    CHECK(!strcmp(hex, "8ae46e8fa550e94191efc136a1745e93ece1db1331a999c7ecdb0fe8e265d469"));
    CHECK_EQ(omm_rng_u32(&lane, 0), 0x27211e2e);
    CHECK_EQ(omm_rng_u32(&lane, 15), 0xa6f7cfa9u);
    CHECK_EQ(omm_rng_u32(&lane, 16), 0x109976dd);
    CHECK_EQ(omm_rng_u32(&lane, 33), 0x56adf417);
    CHECK_EQ(omm_rng_below(&lane, 5, 1000), 444);
    CHECK(omm_rng_unit(&lane, 16) == (float)(0x109976dd >> 8) / 16777216.0f);
}

static void test_fill_equals_single(void) {
    omm_rng lane = golden_lane(NULL);
    uint32_t out[700];
    static const size_t counts[] = {0, 1, 15, 16, 17, 240, 256, 257, 600};
    for (uint64_t first = 0; first < 40; first += 3) {
        for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset(out, 0xee, sizeof out);
            omm_rng_fill_u32(out, &lane, first, counts[c]);
            for (size_t i = 0; i < counts[c]; i++) CHECK(out[i] == omm_rng_u32(&lane, first + i));
            CHECK_EQ(out[counts[c]], 0xeeeeeeeeu);
        }
    }
}

static void test_ranges(void) {
    omm_rng lane = golden_lane(NULL);
    unsigned seen[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) {
        float u = omm_rng_unit(&lane, i);
        CHECK(u >= 0.0f);
        CHECK(u < 1.0f);
        uint64_t v = omm_rng_below(&lane, i, 7);
        CHECK(v < 7);
        seen[v]++;
    }
    for (unsigned v = 0; v < 7; v++) CHECK(seen[v] > 850 && seen[v] < 1150);
    CHECK_EQ(omm_rng_below(&lane, 9, 1), 0);
    CHECK(omm_rng_below(&lane, 9, UINT64_MAX) < UINT64_MAX);
}

static void test_shuffle(void) {
    static const uint32_t want[10] = {8, 9, 5, 4, 6, 3, 2, 7, 1, 0};
    omm_rng lane = golden_lane(NULL);
    uint32_t items[10];
    for (unsigned i = 0; i < 10; i++) items[i] = i;
    omm_rng_shuffle_u32(items, 10, &lane, 100);
    for (unsigned i = 0; i < 10; i++) CHECK_EQ(items[i], want[i]);
    omm_rng_shuffle_u32(items, 0, &lane, 0);
    omm_rng_shuffle_u32(items, 1, &lane, 0);
    CHECK_EQ(items[0], 8);
}

/* Every part of the derivation matters. */
static void test_separation(void) {
    omm_seed a = omm_seed_from_u64(1), b = omm_seed_from_u64(2), r = omm_seed_random(),
             s = omm_seed_random();
    omm_rng base = omm_rng_init(&a, OMM_PURPOSE_TEST, 1, 1);
    omm_rng others[4] = {
        omm_rng_init(&b, OMM_PURPOSE_TEST, 1, 1), omm_rng_init(&a, OMM_PURPOSE_FAULT, 1, 1),
        omm_rng_init(&a, OMM_PURPOSE_TEST, 2, 1), omm_rng_init(&a, OMM_PURPOSE_TEST, 1, 2)};
    for (unsigned i = 0; i < 4; i++) CHECK(memcmp(base.key, others[i].key, 32) != 0);
    CHECK(memcmp(r.b, s.b, 32) != 0);
}

int main(void) {
    test_rfc_8439();
    test_large_index();
    test_derivation_golden();
    test_fill_equals_single();
    test_ranges();
    test_shuffle();
    test_separation();
    return 0;
}
