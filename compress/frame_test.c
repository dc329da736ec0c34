/* Frames of our own making: zstd reads them, they have the same bytes everywhere, and they are small. */
#include "huffman.h"
#include "internal.h"

#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <string.h>
#include <zstd.h>

enum { ROOM = 3 << 17 };

static uint8_t s_bytes[ROOM + 16], s_back[ROOM + 16];

/* How a test fills bytes; each has its own way through the writer. */
typedef enum fill {
    FILL_ONE,       /* one byte */
    FILL_TWO,       /* two bytes, 1 : 7 */
    FILL_FEW,       /* 9 bytes */
    FILL_LOW,       /* 128 bytes, falling: a plain description could hold it */
    FILL_ALL,       /* 256 bytes, falling: it could not */
    FILL_FIBONACCI, /* frequencies whose best code is deeper than 11 bits */
    FILL_GAPS,      /* one byte of 1 bit, 32 of 6: most weights between do not occur */
    FILL_EVEN,      /* 256 bytes alike: no code helps */
    FILL_RUNS,      /* runs of up to 6,000 between pieces of noise */
    FILL_PARTS,     /* low bytes, then high ones: blocks of their own */
    FILL_COUNT
} fill;

static uint8_t fibonacci_byte(uint32_t r) {
    uint32_t a = 1, b = 1, byte = 0;
    for (uint64_t sum = 1; sum < r && byte < 40; sum += b, byte++) {
        const uint32_t next = a + b;
        a = b;
        b = next;
    }
    return (uint8_t)(200 - byte);
}

static uint8_t byte_of(fill how, const omm_rng *rng, size_t i, size_t n) {
    const uint32_t r = omm_rng_u32(rng, i), skewed = (r >> 8 & 255) * (r >> 16 & 255) >> 8;
    switch (how) {
    case FILL_ONE: return 77;
    case FILL_TWO: return r % 8 == 0 ? 200 : 3;
    case FILL_FEW: return (uint8_t)(skewed % 9 * 11);
    case FILL_LOW: return (uint8_t)(skewed / 2);
    case FILL_ALL: return (uint8_t)(i < 256 ? i : skewed);
    case FILL_FIBONACCI: return fibonacci_byte(r >> (r & 15));
    case FILL_GAPS: return r % 2 ? 3 : (uint8_t)(r / 2 % 32 * 8 + 7);
    case FILL_EVEN: return (uint8_t)(r >> 24);
    case FILL_RUNS: return i / 6000 % 2 ? (uint8_t)(i / 6000) : (uint8_t)skewed;
    default: return (uint8_t)(i < n / 5 ? skewed / 8 : 128 + (skewed & 127));
    }
}

static void fill_bytes(fill how, size_t n, uint64_t seed) {
    const omm_seed s = omm_seed_from_u64(seed);
    const omm_rng rng = omm_rng_init(&s, OMM_PURPOSE_TEST, (uint32_t)how, (uint32_t)n);
    for (size_t i = 0; i < n; i++) s_bytes[i] = byte_of(how, &rng, i, n);
}

/* Bytes of the frame of s_bytes[n], which gives them back; n + 1 where there is none. */
static size_t frame_of(size_t n) {
    uint8_t *frame = NULL;
    size_t size = 0;
    CHECK_OK(frame_write(&frame, &size, omm_bytes_of(s_bytes, n)));
    if (!frame) return n + 1;
    CHECK(size < n);
    CHECK_EQ(ZSTD_getFrameContentSize(frame, size), n);
    CHECK_EQ(ZSTD_findFrameCompressedSize(frame, size), size);
    memset(s_back, 0xa5, n + 16);
    CHECK_EQ(ZSTD_decompress(s_back, n, frame, size), n);
    CHECK(memcmp(s_back, s_bytes, n) == 0);
    CHECK_EQ(s_back[n], 0xa5);
    omm_free(frame);
    return size;
}

/* Every length up to some, and those where a header or a field becomes another. */
static void test_zstd_reads_them(void) {
    static const size_t lengths[] = {1022,  1023,  1024,  1025,   4095,   4096,   4097,     16383,
                                     16384, 65791, 65792, 131071, 131072, 131073, 2u << 17, ROOM};
    for (int how = 0; how < FILL_COUNT; how++) {
        for (size_t n = 0; n < 700; n += n < 300 ? 1 : 13) {
            fill_bytes((fill)how, n, 1);
            frame_of(n);
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            fill_bytes((fill)how, lengths[i], 2);
            frame_of(lengths[i]);
        }
    }
}

/* A code never has more than 11 bits, and is the shortest of those: against all that a heap can make without a
 * limit, where that stays below it. */
static void test_codes(void) {
    uint32_t count[256] = {0};
    huffman h;
    for (unsigned i = 0; i < 24; i++) count[i] = i < 2 ? 1 : count[i - 1] + count[i - 2];
    CHECK(huffman_init(&h, count));
    CHECK_EQ(h.longest, HUFFMAN_BITS_MAX);
    uint32_t kraft = 0;
    for (unsigned i = 0; i < 256; i++)
        if (h.length[i]) kraft += 1u << (HUFFMAN_BITS_MAX - h.length[i]);
    CHECK_EQ(kraft, 1u << HUFFMAN_BITS_MAX);
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < 8; i++) count[i * 30] = 1u << i; /* 128 64 .. 2 1: 1 to 7, 7 bits */
    CHECK(huffman_init(&h, count));
    for (size_t i = 1; i < 8; i++) CHECK_EQ(h.length[i * 30], 8 - i);
    CHECK_EQ(h.length[0], 7);
    CHECK_EQ(huffman_bits(&h, count), 128 + 64 * 2 + 32 * 3 + 16 * 4 + 8 * 5 + 4 * 6 + 2 * 7 + 7);
    memset(count, 0, sizeof count);
    for (unsigned i = 0; i < 128; i++)
        count[i] = 1; /* one weight: by itself, and as many as are possible so */
    count[128] = 200;
    CHECK(huffman_init(&h, count));
    CHECK(h.description[0] == 255 && h.description_size == 1 + 64);
    for (size_t i = 1; i <= 64; i++) CHECK_EQ(h.description[i], 0x11);
    memset(count, 0, sizeof count);
    count[9] = 5;
    CHECK(!huffman_init(&h, count));
    for (unsigned i = 0; i < 256; i++) count[i] = 100;
    CHECK(!huffman_init(&h, count));
}

/* Within 1 % of what frequencies allow, and parts of other frequencies apart. */
static void test_small(void) {
    fill_bytes(FILL_TWO, ROOM, 3); /* a bit each is the least */
    CHECK(frame_of(ROOM) < ROOM / 8 + 100);
    fill_bytes(FILL_ONE, ROOM, 3);
    CHECK_EQ(frame_of(ROOM), 10 + 3 * 4); /* header; runs of at most 128 KiB */
    fill_bytes(FILL_RUNS, ROOM, 3);
    CHECK(frame_of(ROOM) < ROOM / 2);
    fill_bytes(FILL_PARTS, ROOM, 3);
    const size_t together = frame_of(ROOM);
    const size_t bound = ZSTD_compressBound(ROOM);
    uint8_t *other = omm_alloc(bound, 1);
    CHECK(other != NULL);
    CHECK(together < ZSTD_compress(other, bound, s_bytes, ROOM, 3));
    omm_free(other);
    fill_bytes(FILL_EVEN, ROOM, 3);
    CHECK_EQ(frame_of(ROOM), ROOM + 1);
}

/* The same bytes on every machine. */
static void test_golden(void) {
    static const struct {
        fill how;
        size_t n;
        const char *digest; /* first 8 bytes */
    } goldens[] = {
        {FILL_TWO, 131073, "e36f7ac63585e7a3"},  {FILL_LOW, 900, "510c9a549b4098b4"},
        {FILL_ALL, 20000, "bcaf3c192cccc692"},   {FILL_FIBONACCI, 131072, "5d1a077ff321595a"},
        {FILL_RUNS, 200000, "5a8d033d5d132d3f"}, {FILL_PARTS, 300000, "d821bf083a97efc1"},
    };
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        uint8_t *frame = NULL;
        size_t size = 0;
        char hex[OMM_DIGEST_HEX_SIZE];
        fill_bytes(goldens[i].how, goldens[i].n, 4);
        CHECK_OK(frame_write(&frame, &size, omm_bytes_of(s_bytes, goldens[i].n)));
        CHECK(frame != NULL);
        const omm_digest digest = omm_hash(omm_bytes_of(frame, size));
        omm_digest_hex(hex, &digest);
        if (strncmp(hex, goldens[i].digest, 16) != 0)
            fprintf(stderr, "golden %zu: %.16s\n", i, hex);
        CHECK(strncmp(hex, goldens[i].digest, 16) == 0);
        omm_free(frame);
    }
}

static omm_err check_frame(const uint8_t *frame, size_t size) {
    omm_buf sent;
    omm_buf_init(&sent, (size_t)2 * ROOM);
    CHECK_OK(omm_buf_append(&sent, "\1", 1));
    CHECK_OK(omm_buf_append(&sent, frame, size));
    omm_bytes payload;
    omm_buf room;
    omm_buf_init(&room, ROOM);
    omm_err err = frame_open(&payload, &room, omm_buf_view(&sent), ROOM);
    if (err == OMM_OK) err = frame_check_known(omm_buf_view(&sent), payload);
    omm_buf_fini(&room);
    omm_buf_fini(&sent);
    return err;
}

/* A run longer than a block may be; and plain blocks behind a byte for a window, which would be plain blocks without one,
 * too, but others.  room: (ROOM) */
static void test_odd_frames(uint8_t *room) {
    enum { LONG = 200000, FIRST = 8192, LAST = 31, HEAD = 10, BLOCK = 3 };
    static const uint8_t long_run[] = {0x28,
                                       0xb5,
                                       0x2f,
                                       0xfd,
                                       0xa0,
                                       LONG & 255,
                                       LONG >> 8 & 255,
                                       LONG >> 16,
                                       0,
                                       (LONG << 3 & 255) | 3,
                                       LONG >> 5 & 255,
                                       LONG >> 13,
                                       'x'};
    static const uint8_t head[HEAD + BLOCK] = {
        0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x38, (FIRST + LAST) & 255, (FIRST + LAST) >> 8,
        0,    0,    0,    0,    1};
    CHECK(!frame_is_plain(omm_bytes_of(long_run, sizeof long_run)));
    memset(room, 0, ROOM);
    memcpy(room, head, sizeof head);
    room[sizeof head] = room[sizeof head + 1] =
        1; /* read as the size of a block that ends the frame */
    room[sizeof head + FIRST] = LAST << 3 | 1;
    const size_t size = sizeof head + FIRST + BLOCK + LAST;
    CHECK_EQ(ZSTD_decompress(s_back, ROOM, room, size), FIRST + LAST);
    CHECK(!frame_is_plain(omm_bytes_of(room, size)));
}

/* Ours, and what nobody can read otherwise; no other, be it good. */
static void test_known_frames(void) {
    static const uint8_t runs[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 100, 10 << 3, 0,
                                   0,    '0',  '1',  '2',  '3',  '4', '5',     '6',
                                   '7',  '8',  '9',  0xd3, 2,    0,   'x'};
    uint8_t other[ROOM];
    for (int how = 0; how < FILL_COUNT; how++)
        for (size_t n = 40; n < ROOM; n = n * 5 / 2) {
            uint8_t *frame = NULL;
            size_t size = 0;
            fill_bytes((fill)how, n, 6);
            CHECK_OK(frame_write(&frame, &size, omm_bytes_of(s_bytes, n)));
            if (frame) CHECK_OK(check_frame(frame, size));
            if (frame)
                CHECK(!frame_is_ours(omm_bytes_of(frame, size - 1), omm_bytes_of(s_bytes, n)));
            if (frame && n > 1)
                CHECK(!frame_is_ours(omm_bytes_of(frame, size), omm_bytes_of(s_bytes, n - 1)));
            if (frame) memcpy(other, frame, size);
            if (frame) other[size] = 0;
            if (frame)
                CHECK(!frame_is_ours(omm_bytes_of(other, size + 1), omm_bytes_of(s_bytes, n)));
            omm_free(frame);
        }
    CHECK(!frame_is_ours(omm_bytes_of(runs, sizeof runs), omm_bytes_of(runs, 0)));
    CHECK_OK(check_frame(runs, sizeof runs));
    memcpy(other, runs, sizeof runs);
    other[4] |= 8; /* a bit that readers may look at one day */
    CHECK(!frame_is_plain(omm_bytes_of(other, sizeof runs)));
    for (size_t n = 0; n < sizeof runs; n++) CHECK(!frame_is_plain(omm_bytes_of(runs, n)));
    memcpy(other, runs, sizeof runs);
    other[sizeof runs] = 0; /* behind its last block */
    CHECK(!frame_is_plain(omm_bytes_of(other, sizeof runs + 1)));
    test_odd_frames(other);
    fill_bytes(FILL_FEW, 20000, 6);
    const size_t size = ZSTD_compress(other, sizeof other, s_bytes, 20000, 3);
    CHECK(!ZSTD_isError(size));
    CHECK_ERR(check_frame(other, size), OMM_ERR_REFUSED_FORMAT);
}

/* One byte more in the second of four streams, behind all that is read of it: some readers do not see it. */
static void test_longer_stream(void) {
    uint8_t *frame = NULL, longer[20000];
    size_t size = 0;
    fill_bytes(FILL_LOW, 4000, 7);
    CHECK_OK(frame_write(&frame, &size, omm_bytes_of(s_bytes, 4000)));
    CHECK(frame != NULL && frame[4] == 0x60 &&
          (frame[7] & 7) == 5); /* two bytes of size, one block, coded */
    const uint32_t block = omm_get_u16(frame + 7) | (uint32_t)frame[9] << 16;
    const uint32_t literals = omm_get_u32(frame + 10),
                   description = frame[14] < 128 ? 1u + frame[14] : 1u + (frame[14] - 126u) / 2;
    uint8_t *sizes = frame + 14 + description;
    const size_t at = (size_t)(sizes - frame) + 6 + omm_get_u16(sizes);
    omm_put_u32(frame + 10, literals + (1u << 18));
    omm_put_u16(sizes + 2, (uint16_t)(omm_get_u16(sizes + 2) + 1));
    omm_put_u16(frame + 7, (uint16_t)(block + 8));
    CHECK(((block + 8) >> 16) == frame[9]);
    memcpy(longer, frame, at);
    longer[at] = 0;
    memcpy(longer + at + 1, frame + at, size - at);
    CHECK_ERR(check_frame(longer, size + 1), OMM_ERR_REFUSED_FORMAT);
    if (!ZSTD_isError(ZSTD_decompress(s_back, 4000, longer, size + 1)))
        CHECK(memcmp(s_back, s_bytes, 4000) == 0);
    omm_free(frame);
}

/* No memory is an error, and nothing is kept. */
static void test_no_memory(void) {
    uint8_t *frame = NULL;
    size_t size = 0;
    fill_bytes(FILL_TWO, 5000, 5);
    omm_mem_fail_nth(1);
    CHECK_ERR(frame_write(&frame, &size, omm_bytes_of(s_bytes, 5000)), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK(frame == NULL);
}

int main(void) {
    test_zstd_reads_them();
    test_codes();
    test_small();
    test_golden();
    test_known_frames();
    test_longer_stream();
    test_no_memory();
    return 0;
}
