/* Selection by counting, not sorting: the bits of |v| order as |v| does, so two histograms (upper
 * 16 bits, then the lower 15 within one bucket) give the k-th magnitude in three passes.
 */
#include "internal.h"

#include "omm/mem.h"

#include <string.h>

enum { HIGH_BUCKETS = 1 << 16, LOW_BITS = 15 };

static uint32_t magnitude_bits(float v) {
    return omm_f32_to_bits(v) & 0x7fffffffu;
}

/* The bucket that holds the entry ranked `rank` from the top (1 is the largest), which is none above
 * `highest`; `rank` becomes its rank within the bucket. */
static uint32_t bucket_of_rank(const uint32_t *counts, uint32_t highest, size_t *rank) {
    uint32_t b = highest;
    while (counts[b] < *rank) {
        OMM_ASSERT(b > 0); /* a rank is at most the number of entries */
        *rank -= counts[b];
        b--;
    }
    return b;
}

/* Magnitude bits of the k-th largest entry; `ties` is how many entries equal to it are kept.  `counts` are zeros. */
static uint32_t threshold_bits(size_t *ties, uint32_t *counts, const float *values, size_t n,
                               size_t k) {
    const uint32_t low_mask = (1u << LOW_BITS) - 1;
    uint32_t highest = 0;
    size_t rank = k;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bucket = magnitude_bits(values[i]) >> LOW_BITS;
        counts[bucket]++;
        if (bucket > highest) highest = bucket;
    }
    const uint32_t high = bucket_of_rank(counts, highest, &rank);

    memset(counts, 0, (low_mask + 1) * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = magnitude_bits(values[i]);
        if (bits >> LOW_BITS == high) counts[bits & low_mask]++;
    }
    const uint32_t low = bucket_of_rank(counts, low_mask, &rank);
    *ties = rank;
    return high << LOW_BITS | low;
}

omm_err keep_select(kept *out, const float *values, size_t n, size_t k) {
    OMM_ASSERT(k >= 1);
    OMM_ASSERT(k <= n);
    *out = (kept){0};
    uint32_t *counts = omm_alloc(HIGH_BUCKETS, sizeof *counts);
    uint32_t *indices = omm_alloc(k, sizeof *indices);
    if (!counts || !indices) {
        omm_free(counts);
        omm_free(indices);
        return omm_raise(OMM_ERR_NOMEM, "top-k of %zu among %zu", k, n);
    }
    size_t ties;
    uint32_t threshold = threshold_bits(&ties, counts, values, n, k);
    omm_free(counts);

    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = magnitude_bits(values[i]);
        if (bits < threshold) continue;
        if (bits == threshold && ties == 0) continue;
        if (bits == threshold) ties--;
        indices[count++] = (uint32_t)i;
    }
    OMM_ASSERT(count == k);
    *out = (kept){indices, k};
    return OMM_OK;
}

void kept_fini(kept *k) {
    omm_free(k->indices);
    *k = (kept){0};
}

static size_t varint_bytes(uint32_t v) {
    size_t bytes = 1;
    while (v >= 0x80) {
        v >>= 7;
        bytes++;
    }
    return bytes;
}

/* Gap before entry i: how many indices are skipped. */
static uint32_t gap_at(const kept *k, size_t i) {
    return i == 0 ? k->indices[0] : k->indices[i] - k->indices[i - 1] - 1;
}

static size_t bitmap_bytes(size_t n) {
    return (n + 7) / 8;
}

index_coding index_choose(size_t *bytes, const kept *k, size_t n) {
    *bytes = 0;
    if (!k->indices) return INDEX_ALL;
    size_t gaps = 0;
    for (size_t i = 0; i < k->count; i++) gaps += varint_bytes(gap_at(k, i));
    if (bitmap_bytes(n) < gaps) {
        *bytes = bitmap_bytes(n);
        return INDEX_BITMAP;
    }
    *bytes = gaps;
    return INDEX_GAPS;
}

/* Gaps add up to at most n - k.  A gap takes a second byte from 2^7 on, a third from 2^14, a
 * fourth from 2^21; buying the cheap bytes first gives the most. */
size_t index_bytes_max(size_t n, size_t k) {
    size_t spare = n - k;
    size_t bytes = k;
    for (unsigned extra = 1; extra <= 3; extra++) {
        size_t cost = extra == 1 ? 1u << 7 : (1u << 7 * extra) - (1u << 7 * (extra - 1));
        size_t bought = spare / cost < k ? spare / cost : k;
        bytes += bought;
        spare -= bought * cost;
    }
    return bytes < bitmap_bytes(n) ? bytes : bitmap_bytes(n);
}

static omm_err gaps_write(omm_buf *out, const kept *k) {
    for (size_t i = 0; i < k->count; i++) {
        uint8_t byte[5];
        size_t size = 0;
        uint32_t v = gap_at(k, i);
        for (; v >= 0x80; v >>= 7) byte[size++] = (uint8_t)(v | 0x80);
        byte[size++] = (uint8_t)v;
        OMM_TRY(omm_buf_append(out, byte, size));
    }
    return OMM_OK;
}

omm_err index_write(omm_buf *out, index_coding coding, const kept *k, size_t n) {
    if (coding == INDEX_ALL) return OMM_OK;
    if (coding == INDEX_GAPS) return gaps_write(out, k);
    uint8_t *map;
    OMM_TRY(omm_buf_extend(out, &map, bitmap_bytes(n)));
    for (size_t i = 0; i < k->count; i++)
        map[k->indices[i] / 8] |= (uint8_t)(1u << (k->indices[i] % 8));
    return OMM_OK;
}

static omm_err gap_read(uint32_t *gap, omm_reader *in, size_t entry) {
    uint32_t v = 0;
    for (unsigned shift = 0; shift <= 28; shift += 7) {
        uint8_t byte = omm_read_u8(in);
        if (in->failed) return omm_raise(OMM_ERR_REFUSED_FORMAT, "ends within index %zu", entry);
        if (shift == 28 && byte > 0x0f) break;
        v |= (uint32_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if (byte == 0 && shift > 0)
            return omm_raise(OMM_ERR_REFUSED_FORMAT, "index %zu is no minimal varint", entry);
        *gap = v;
        return OMM_OK;
    }
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "index %zu is over 32 bits", entry);
}

static omm_err gaps_check(omm_reader *in, size_t count, size_t n) {
    uint64_t next = 0; /* the lowest index the next entry can have */
    for (size_t i = 0; i < count; i++) {
        uint32_t gap;
        if (in->at < in->in.size && in->in.data[in->at] < 0x80) {
            gap = in->in.data[in->at++];
        } else {
            OMM_TRY(gap_read(&gap, in, i));
        }
        if (next + gap >= n)
            return omm_raise(OMM_ERR_REFUSED_SHAPE, "index %llu of entry %zu, values are %zu",
                             (unsigned long long)(next + gap), i, n);
        next += (uint64_t)gap + 1;
    }
    return OMM_OK;
}

/* Bits 64 x word and on of a bitmap: none behind its end. */
static uint64_t map_word(omm_bytes map, size_t word) {
    const size_t at = 8 * word;
    if (at + 8 <= map.size) return omm_get_u64(map.data + at);
    uint8_t last[8] = {0};
    if (at < map.size) memcpy(last, map.data + at, map.size - at);
    return omm_get_u64(last);
}

/* gap_bytes: what the same indices take as gaps.  Only a word's first bit may be so far from the one before it
 * that its gap has a second byte. */
static omm_err bitmap_check(size_t *gap_bytes, omm_reader *in, size_t entries, size_t n) {
    omm_bytes map = omm_read_bytes(in, bitmap_bytes(n));
    if (in->failed) return omm_raise(OMM_ERR_REFUSED_FORMAT, "ends within the bitmap");
    size_t count = 0;
    size_t next = 0;
    *gap_bytes = 0;
    for (size_t word = 0; 8 * word < map.size; word++) {
        const uint64_t bits = map_word(map, word);
        if (bits == 0) continue;
        const size_t first = 64 * word + (size_t)__builtin_ctzll(bits);
        const size_t here = (size_t)__builtin_popcountll(bits);
        *gap_bytes += varint_bytes((uint32_t)(first - next)) + here - 1;
        next = 64 * (word + 1) - (size_t)__builtin_clzll(bits);
        count += here;
    }
    const unsigned behind = n % 8 ? (unsigned)map.data[map.size - 1] >> n % 8 : 0;
    if (behind && count - (size_t)__builtin_popcount(behind) <= entries)
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "bitmap has bit %zu of %zu",
                         n + (size_t)__builtin_ctz(behind), n);
    if (count != entries)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "bitmap has %zu bits set, not %zu", count,
                         entries);
    return OMM_OK;
}

omm_err index_check(index_walk *out, omm_reader *in, index_coding coding, size_t count, size_t n) {
    const size_t begin = in->at;
    size_t gap_bytes = 0;
    *out = (index_walk){.coding = coding, .left = count};
    if (coding == INDEX_ALL) return OMM_OK;
    if (coding == INDEX_GAPS) {
        OMM_TRY(gaps_check(in, count, n));
        gap_bytes = in->at - begin;
    } else {
        OMM_TRY(bitmap_check(&gap_bytes, in, count, n));
    }
    if ((bitmap_bytes(n) < gap_bytes) != (coding == INDEX_BITMAP))
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "indices are in the longer of the two codings");
    out->in = omm_bytes_of(in->in.data + begin, in->at - begin);
    return OMM_OK;
}

static void read_gaps(index_walk *w) {
    const uint8_t *p = w->in.data;
    for (size_t i = 0; i < w->count; i++) {
        uint64_t gap = *p & 0x7fu;
        for (unsigned shift = 7; *p++ & 0x80u; shift += 7) gap |= (uint64_t)(*p & 0x7fu) << shift;
        w->index[i] = (uint32_t)(w->next + gap);
        w->next += gap + 1;
    }
    w->in = omm_bytes_of(p, w->in.size - (size_t)(p - w->in.data));
}

static void read_bits(index_walk *w) {
    size_t word = (size_t)(w->next / 64);
    uint64_t bits = map_word(w->in, word) & UINT64_MAX << w->next % 64;
    for (size_t i = 0; i < w->count;) {
        for (; bits && i < w->count; bits &= bits - 1)
            w->index[i++] = (uint32_t)(64 * word + (size_t)__builtin_ctzll(bits));
        if (i < w->count) bits = map_word(w->in, ++word);
        OMM_ASSERT(8 * word < w->in.size);
    }
    w->next = (uint64_t)w->index[w->count - 1] + 1;
}

void index_read_ahead(index_walk *w) {
    const size_t room = sizeof w->index / sizeof w->index[0];
    OMM_ASSERT(w->left > 0);
    w->at = 0;
    w->count = w->left < room ? w->left : room;
    w->left -= w->count;
    if (w->coding == INDEX_GAPS) {
        read_gaps(w);
    } else {
        read_bits(w);
    }
}
