/* frame_write.c - a payload as one zstd frame (RFC 8878) of our own making: entropy coding alone.
 *
 * libzstd makes other frames in each of its versions, and what a run sends, and all its evidence of bytes, would
 * differ with them.  These frames do not, and whatever reads zstd reads them.  Numbers of an adapter hardly
 * repeat in sequences, so nothing is lost without them; what helps is to code indices, scales and values each
 * by their own frequencies.  So the payload is cut where that saves bytes:
 *
 *   cells    runs of one byte, and pieces of CELL_BYTES between them
 *   blocks   cells joined from the left, as long as one block of them is no larger than two
 *
 * and each block is plain, one byte repeated, or Huffman codes, whichever is smallest.
 *
 * What is well made every reader reads alike.  What is not, some read and others refuse: libzstd does not look whether
 * four streams of codes end where they should on processors with BMI2, and does elsewhere; newer versions refuse what
 * older ones took.  Who must know that others will read a frame as he did therefore makes it again.
 */
#include "huffman.h"
#include "internal.h"

#include "omm/mem.h"

#include <string.h>

#define BLOCK_BYTES_MAX ((size_t)128 << 10) /* of its content, by the format */
#define CELL_BYTES ((size_t)4096)
#define RUN_BYTES ((size_t)1024) /* shorter ones are left to codes of a bit */
#define ONE_STREAM_MAX ((size_t)1023)
#define HEADER_BYTES_MAX ((size_t)14)

typedef enum block_kind { BLOCK_PLAIN, BLOCK_RUN, BLOCK_CODED } block_kind; /* as written */

typedef struct block {
    const uint8_t *bytes;
    size_t size;
    uint32_t count[256];
    block_kind kind;
    size_t cost; /* bytes that it takes, a few more where it is coded */
    huffman code;
} block;

/* ---- cells and blocks ------------------------------------------------------------------------ */

static size_t run_at(const uint8_t *bytes, size_t left) {
    size_t n = 1;
    while (n < left && n < BLOCK_BYTES_MAX && bytes[n] == bytes[0]) n++;
    return n;
}

/* A run that is long enough, or what is before the next one; left > 0. */
static size_t cell_at(const uint8_t *bytes, size_t left) {
    size_t at = 0;
    while (at < left && at < CELL_BYTES) {
        const size_t run = run_at(bytes + at, left - at);
        if (run >= RUN_BYTES) return at > 0 ? at : run;
        at += run;
    }
    return at < CELL_BYTES ? at : CELL_BYTES;
}

static size_t literals_header(size_t size) {
    return size <= ONE_STREAM_MAX ? 3 : size < 1u << 14 ? 4 : 5;
}

/* With bytes, size and count there. */
static void judge(block *b) {
    b->kind = BLOCK_PLAIN;
    b->cost = 3 + b->size;
    if (b->count[b->bytes[0]] == b->size) {
        b->kind = BLOCK_RUN;
        b->cost = 4;
        return;
    }
    if (!huffman_init(&b->code, b->count)) return;
    const size_t streams = b->size <= ONE_STREAM_MAX ? 1 : 4;
    const size_t cost = 3 + literals_header(b->size) + b->code.description_size +
                        (streams == 4 ? 6 : 0) + (size_t)(huffman_bits(&b->code, b->count) / 8) +
                        streams * 2 + 1;
    if (cost >= b->cost) return;
    b->kind = BLOCK_CODED;
    b->cost = cost;
}

static void cell_init(block *out, const uint8_t *bytes, size_t left) {
    *out = (block){.bytes = bytes, .size = cell_at(bytes, left)};
    for (size_t i = 0; i < out->size; i++) out->count[bytes[i]]++;
    judge(out);
}

/* False: apart they are smaller, or too large together. */
static bool join(block *out, const block *left, const block *right) {
    if (left->size + right->size > BLOCK_BYTES_MAX) return false;
    out->bytes = left->bytes;
    out->size = left->size + right->size;
    for (size_t i = 0; i < 256; i++) out->count[i] = left->count[i] + right->count[i];
    judge(out);
    return out->cost <= left->cost + right->cost;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_bytes(uint8_t *out, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

/* A quarter of them in each stream, whose sizes come first. */
static size_t four_streams(uint8_t *out, const block *b) {
    const size_t part = (b->size + 3) / 4;
    size_t at = 6;
    for (size_t i = 0; i < 4; i++) {
        const size_t begin = i * part, n = i < 3 ? part : b->size - begin;
        const size_t size = huffman_write(out + at, &b->code, b->bytes + begin, n);
        if (i < 3) put_bytes(out + 2 * i, size, 2);
        at += size;
    }
    return at;
}

/* Literals by their codes, and no sequences. */
static size_t coded_content(uint8_t *out, const block *b) {
    enum { LITERALS_CODED = 2, FORMAT_ONE_STREAM = 0, FORMAT_14_BITS = 2, FORMAT_18_BITS = 3 };
    const size_t header = literals_header(b->size), streams = header + b->code.description_size;
    size_t end = streams;
    memcpy(out + header, b->code.description, b->code.description_size);
    if (b->size <= ONE_STREAM_MAX)
        end += huffman_write(out + streams, &b->code, b->bytes, b->size);
    else
        end += four_streams(out + streams, b);
    const unsigned width = header == 3 ? 10 : header == 4 ? 14 : 18;
    const unsigned format = header == 3   ? FORMAT_ONE_STREAM
                            : header == 4 ? FORMAT_14_BITS
                                          : FORMAT_18_BITS;
    put_bytes(out,
              LITERALS_CODED | format << 2 | (uint64_t)b->size << 4 |
                  (uint64_t)(end - header) << (4 + width),
              header);
    out[end++] = 0;
    return end;
}

static size_t put_block(uint8_t *out, const block *b, bool is_last) {
    size_t content = 1; /* of a run */
    size_t declared = b->size;
    if (b->kind == BLOCK_CODED) {
        declared = content = coded_content(out + 3, b);
    } else {
        if (b->kind == BLOCK_PLAIN) content = b->size;
        memcpy(out + 3, b->bytes, content);
    }
    put_bytes(out, (uint64_t)is_last | (uint64_t)b->kind << 1 | (uint64_t)declared << 3, 3);
    OMM_ASSERT(3 + content <= b->cost);
    return 3 + content;
}

/* Magic number and content size; a window of one block, or the content alone where it is no larger. */
static size_t put_header(uint8_t *out, size_t size) {
    enum { MAGIC_BYTES = 4, SINGLE_SEGMENT = 1 << 5, WINDOW_128K = (17 - 10) << 3 };
    const bool single = size <= BLOCK_BYTES_MAX;
    const unsigned log = size < 256 ? 0 : size < 65792 ? 1 : size <= UINT32_MAX ? 2 : 3;
    size_t at = MAGIC_BYTES;
    put_bytes(out, 0xFD2FB528u, MAGIC_BYTES);
    out[at++] = (uint8_t)(log << 6 | (single ? SINGLE_SEGMENT : 0));
    if (!single) out[at++] = WINDOW_128K;
    put_bytes(out + at, log == 1 ? size - 256 : size, (size_t)1 << log);
    return at + ((size_t)1 << log);
}

/* What the blocks come to, without a frame around them, is at most that of the payload in plain blocks. */
static size_t frame_bytes_max(size_t size) {
    const size_t cells = size / CELL_BYTES + 2 * (size / RUN_BYTES) + 2;
    return HEADER_BYTES_MAX + size + 3 * cells;
}

/* Where a frame goes: behind each other, or piece by piece to the same place, to be compared with one. */
typedef struct sink {
    uint8_t *out;
    size_t at;
    const omm_bytes *like; /* NULL: all of it is kept */
    bool is_other;
} sink;

static uint8_t *sink_place(const sink *s) {
    return s->like ? s->out : s->out + s->at;
}

static void sink_add(sink *s, size_t n) {
    if (s->like && (n > s->like->size - s->at || memcmp(s->like->data + s->at, s->out, n) != 0))
        s->is_other = true;
    else
        s->at += n;
}

static void put_frame(sink *s, omm_bytes payload) {
    block blocks[2], *last = &blocks[0], *spare = &blocks[1], cell;
    sink_add(s, put_header(sink_place(s), payload.size));
    cell_init(last, payload.data, payload.size);
    for (size_t done = last->size; done < payload.size && !s->is_other; done += cell.size) {
        cell_init(&cell, payload.data + done, payload.size - done);
        if (!join(spare, last, &cell)) {
            sink_add(s, put_block(sink_place(s), last, false));
            *spare = cell;
        }
        block *swap = last;
        last = spare;
        spare = swap;
    }
    if (!s->is_other) sink_add(s, put_block(sink_place(s), last, true));
}

omm_err frame_write(uint8_t **out, size_t *size, omm_bytes payload) {
    *out = NULL;
    if (payload.size == 0) return OMM_OK;
    uint8_t *made = (uint8_t *)omm_alloc(frame_bytes_max(payload.size), 1);
    if (!made) return omm_raise(OMM_ERR_NOMEM, "no memory for a frame of %zu bytes", payload.size);
    sink s = {.out = made};
    put_frame(&s, payload);
    *size = s.at;
    OMM_ASSERT(*size <= frame_bytes_max(payload.size));
    if (*size < payload.size) {
        *out = made;
        return OMM_OK;
    }
    omm_free(made);
    return OMM_OK;
}

bool frame_is_ours(omm_bytes frame, omm_bytes payload) {
    uint8_t room[3 + BLOCK_BYTES_MAX];
    sink s = {.out = room, .like = &frame};
    if (payload.size == 0) return false;
    put_frame(&s, payload);
    return !s.is_other && s.at == frame.size;
}

bool frame_is_plain(omm_bytes frame) {
    enum { SINGLE_SEGMENT = 1 << 5, OTHER_FLAGS = 0x1f };
    omm_reader in = omm_reader_of(frame);
    (void)omm_read_u32(&in);
    const uint8_t flags = omm_read_u8(&in);
    if (!(flags & SINGLE_SEGMENT) || (flags & OTHER_FLAGS)) return false;
    (void)omm_read_bytes(&in, (size_t)1 << (flags >> 6));
    for (bool is_last = false; !is_last && !in.failed;) {
        const omm_bytes head = omm_read_bytes(&in, 3);
        if (in.failed) return false;
        const unsigned bits = omm_get_u16(head.data) | (uint32_t)head.data[2] << 16;
        const unsigned kind = bits >> 1 & 3, size = bits >> 3;
        if (kind > BLOCK_RUN || size > BLOCK_BYTES_MAX) return false;
        (void)omm_read_bytes(&in, kind == BLOCK_RUN ? 1 : size);
        is_last = bits & 1;
    }
    return !in.failed && in.at == frame.size;
}
