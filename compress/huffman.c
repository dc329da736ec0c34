/* huffman.c - length-limited prefix codes, by packages. */
#include "huffman.h"

#include "bits.h"
#include "weights.h"

#include "omm/err.h"

#include <string.h>

/* ---- lengths --------------------------------------------------------------------------------- */

typedef struct coin {
    uint32_t count;
    uint8_t byte;
} coin;

/* Ascending by count, of equal ones the lower byte: counts have 18 bits, 6 a pass. */
static void sort_coins(coin *coins, size_t n) {
    enum { BITS = 6, VALUES = 1 << BITS, PASSES = 3 };
    coin room[256];
    for (unsigned pass = 0; pass < PASSES; pass++) {
        const unsigned shift = pass * BITS;
        coin *from = pass % 2 ? room : coins, *to = pass % 2 ? coins : room;
        size_t at[VALUES + 1] = {0};
        for (size_t i = 0; i < n; i++) at[(from[i].count >> shift) % VALUES + 1]++;
        for (size_t v = 1; v <= VALUES; v++) at[v] += at[v - 1];
        for (size_t i = 0; i < n; i++) to[at[(from[i].count >> shift) % VALUES]++] = from[i];
    }
    memcpy(coins, room, n * sizeof *coins);
}

/* What a level of packages is made of: coins and pairs of the level below, ascending. */
typedef struct level {
    uint32_t weight[512];
    bool is_coin[512];
    size_t size;
} level;

/* below: NULL for the lowest */
static void merge_level(level *out, const level *below, const coin *coins, size_t n) {
    size_t c = 0, p = 0;
    const size_t pairs = below ? below->size / 2 : 0;
    for (out->size = 0; c < n || p < pairs; out->size++) {
        const uint32_t pair = p < pairs ? below->weight[2 * p] + below->weight[2 * p + 1] : 0;
        out->is_coin[out->size] = p == pairs || (c < n && coins[c].count <= pair);
        if (out->is_coin[out->size])
            out->weight[out->size] = coins[c++].count;
        else
            out->weight[out->size] = pair, p++;
    }
}

/* Of the codes of at most HUFFMAN_BITS_MAX bits, the one that writes these bytes in fewest (Larmore and
 * Hirschberg, 1990): of 2 n - 2 items on the highest level, each that a coin is part of is a bit of its code. */
static void set_lengths(uint8_t length[256], const coin *coins, size_t n) {
    level levels[HUFFMAN_BITS_MAX];
    for (unsigned i = 0; i < HUFFMAN_BITS_MAX; i++)
        merge_level(&levels[i], i ? &levels[i - 1] : NULL, coins, n);
    size_t taken = 2 * n - 2;
    for (unsigned i = HUFFMAN_BITS_MAX; i-- > 0;) {
        size_t c = 0;
        for (size_t j = 0; j < taken; j++) c += levels[i].is_coin[j];
        for (size_t j = 0; j < c; j++) length[coins[j].byte]++;
        taken = 2 * (taken - c);
    }
}

/* ---- codes and their description ------------------------------------------------------------- */

/* The longest codes come first, from 0 on; of one length in the order of bytes. */
static void set_codes(huffman *h) {
    unsigned code = 0;
    for (unsigned length = h->longest; length > 0; length--, code >>= 1)
        for (unsigned byte = 0; byte < 256; byte++)
            if (h->length[byte] == length) h->code[byte] = (uint16_t)code++;
}

/* Weights of all bytes below the last that occurs, whose own follows from theirs. */
static bool describe(huffman *h) {
    uint8_t weights[256] = {0};
    size_t n = 255;
    while (h->length[n] == 0) n--;
    for (size_t i = 0; i < n; i++)
        weights[i] = h->length[i] ? (uint8_t)(h->longest + 1 - h->length[i]) : 0;
    const size_t plain = (n + 1) / 2, packed = weights_write(h->description + 1, weights, n);
    if (packed > 0 && (n > 128 || packed < plain)) {
        h->description[0] = (uint8_t)packed;
        h->description_size = 1 + packed;
        return true;
    }
    if (n > 128) return false;
    h->description[0] = (uint8_t)(127 + n);
    for (size_t i = 0; i < plain; i++)
        h->description[1 + i] = (uint8_t)(weights[2 * i] << 4 | weights[2 * i + 1]);
    h->description_size = 1 + plain;
    return true;
}

bool huffman_init(huffman *out, const uint32_t count[256]) {
    coin coins[256];
    size_t n = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        if (count[byte] > 0) coins[n++] = (coin){count[byte], (uint8_t)byte};
    if (n < 2) return false;
    sort_coins(coins, n);
    memset(out->length, 0, sizeof out->length);
    set_lengths(out->length, coins, n);
    out->longest = out->length[coins[0].byte];
    set_codes(out);
    return describe(out);
}

uint64_t huffman_bits(const huffman *h, const uint32_t count[256]) {
    uint64_t bits = 0;
    for (unsigned byte = 0; byte < 256; byte++) bits += (uint64_t)count[byte] * h->length[byte];
    return bits;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the writer */
size_t huffman_write(uint8_t *out, const huffman *h, const uint8_t *bytes, size_t n) {
    bit_writer w = {.out = out};
    for (size_t i = n; i-- > 0;) bits_put(&w, h->code[bytes[i]], h->length[bytes[i]]);
    bits_put(&w, 1, 1); /* where they end */
    bits_end(&w);
    return w.size;
}
