/* data_reader.c - examples in any order, from memory or made again from the lines of a file. */
#include "dataset_index.h"

#include <string.h>

#define CACHE_BYTES_DEFAULT ((size_t)64 << 20)
#define BATCH_BYTES_MAX ((size_t)1 << 30)

enum { SLOTS_MAX = 4096 };

/* What a line of text takes while it is made into tokens: its strings in JSON's buffers, symbols, ids and mask, with
 * what growing takes.  Measured: up to 64 bytes for each of a line, behind a power of two */
#define LINE_BYTES_EACH 72u
#define LINE_BYTES_LEAST ((uint64_t)256 << 10) /* 256 messages as JSON, buffers at their least */

/* --- cache ----------------------------------------------------------------------------------- */

/* Tokens of one line, at the place that its offset gives; whoever comes later takes it over. */
typedef struct slot {
    size_t at; /* of its block in the ring, plus 1; 0: empty */
    uint64_t offset;
    made made; /* points into the ring */
} slot;

/* A block of the ring: this, then ids, mask, client, skill, reply.  Its slot may have gone to another since. */
typedef struct block {
    uint32_t slot;
    uint32_t bytes; /* with this, a multiple of 16 */
} block;

/* Blocks lie in [tail, head), or once round in [tail, wrap) and [0, head); the oldest makes room.  One array: what
 * the cache takes is its size, whatever the heap would make of blocks of all sizes. */
typedef struct ring {
    uint8_t *bytes; /* (size) NULL until the first block, or where there was no memory */
    size_t size;
    size_t head, tail, wrap, live;
} ring;

struct omm_data_reader {
    const omm_dataset *data;
    omm_data_reader_options options;
    source source;
    maker maker;
    omm_arena batch; /* what was taken since the last release */
    slot *slots;
    size_t slot_count;
    ring ring;
};

static slot *slot_of(omm_data_reader *r, uint64_t offset) {
    return &r->slots[(offset * 0x9e3779b97f4a7c15ULL >> 32) % r->slot_count];
}

/* A slot is emptied only with the block that it points to. */
static void drop_oldest(omm_data_reader *r) {
    ring *g = &r->ring;
    block b;
    memcpy(&b, g->bytes + g->tail, sizeof b);
    slot *s = &r->slots[b.slot];
    if (s->at == g->tail + 1) *s = (slot){0};
    g->tail += b.bytes;
    g->live--;
    if (g->tail == g->wrap) g->tail = 0;
}

/* Where `bytes` fit, at most the ring's size, after what stands in the way is gone. */
static uint8_t *make_room(omm_data_reader *r, size_t bytes) {
    ring *g = &r->ring;
    for (;;) {
        if (g->live == 0) g->head = g->tail = 0;
        const bool is_round = g->live > 0 && g->head <= g->tail;
        if (!is_round) g->wrap = g->size;
        if ((is_round ? g->tail : g->size) - g->head >= bytes) return g->bytes + g->head;
        if (is_round) {
            drop_oldest(r);
        } else {
            g->wrap = g->head;
            g->head = 0;
        }
    }
}

/* Copy `size` bytes to *at and move it on; NULL stays NULL. */
static const void *put(uint8_t **at, const void *from, size_t size) {
    if (!from) return NULL;
    uint8_t *to = *at;
    if (size) memcpy(to, from, size);
    *at += size;
    return to;
}

static size_t text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

static size_t block_bytes(size_t count, bool has_mask, size_t texts) {
    return (sizeof(block) + count * (sizeof(uint32_t) + has_mask) + texts + 15) & ~(size_t)15;
}

/* Keep a copy if it is small enough; without memory nothing is kept. */
static void keep_made(omm_data_reader *r, uint64_t offset, const made *m) {
    ring *g = &r->ring;
    const size_t texts = text_size(m->client) + text_size(m->skill) + text_size(m->reply);
    const size_t seq_max = r->maker.options.seq_max; /* a text's windows lie behind it too */
    const size_t count = m->learn && m->count > seq_max ? seq_max : m->count;
    const size_t bytes = block_bytes(count, m->learn != NULL, texts);
    if (bytes > g->size || bytes > UINT32_MAX) return;
    if (!g->bytes) g->bytes = omm_alloc(g->size, 1);
    if (!g->bytes) return;
    uint8_t *at = make_room(r, bytes);
    slot *s = slot_of(r, offset);
    const block b = {(uint32_t)(s - r->slots), (uint32_t)bytes};
    *s = (slot){(size_t)(at - g->bytes) + 1, offset, *m};
    g->head += bytes;
    g->live++;
    memcpy(at, &b, sizeof b);
    at += sizeof b;
    s->made.count = count;
    s->made.ids = put(&at, m->ids, count * sizeof *m->ids);
    s->made.learn = put(&at, m->learn, count);
    s->made.client = put(&at, m->client, text_size(m->client));
    s->made.skill = put(&at, m->skill, text_size(m->skill));
    s->made.reply = put(&at, m->reply, text_size(m->reply));
}

/* --- reader ---------------------------------------------------------------------------------- */

static size_t slot_count(const omm_dataset *data) {
    return data->count < SLOTS_MAX ? data->count : SLOTS_MAX;
}

static size_t cache_bytes_max(const omm_dataset *data) {
    const size_t asked = data->stream->options.cache_bytes_max;
    return asked ? asked : CACHE_BYTES_DEFAULT;
}

/* A text's windows are cut out of pieces, which are made whole: the last one stays, or each of its windows would make it
 * again. */
static size_t least_ring(const omm_dataset *data) {
    const bool is_text = omm_data_format_is_text(data->stream->options.format);
    return is_text ? block_bytes(OMM_DATASET_PIECE_BYTES_MAX, false, 0) : 0;
}

/* Of a text's windows each is counted with its own tokens: a piece has no more than all of its windows. */
void omm_data_reader_room_of(omm_data_reader_room *out, const omm_dataset *data) {
    *out = (omm_data_reader_room){0};
    if (!data->stream) return;
    const bool has_mask = !omm_data_format_is_text(data->stream->options.format);
    uint64_t all = 0, line = 0;
    for (size_t i = 0; i < data->count; i++) {
        const entry *e = &data->stream->entries[i];
        all += block_bytes(entry_tokens(e), has_mask, (size_t)2 * (OMM_DATASET_NAME_BYTES_MAX + 1));
        if (entry_bytes(e) > line) line = entry_bytes(e);
    }
    const size_t most = cache_bytes_max(data), least = least_ring(data);
    out->reading = source_window_bytes(data->stream->identity.size) + least +
                   slot_count(data) * sizeof(slot) + line * LINE_BYTES_EACH + LINE_BYTES_LEAST;
    out->cache = all < most ? all : most;
}

static omm_err open_stream(omm_data_reader *r) {
    const stream *s = r->data->stream;
    OMM_TRY(source_open(&r->source, s->path));
    OMM_TRY(source_check(&r->source, &s->identity));
    OMM_TRY(maker_init(&r->maker, s->path, s->tokenizer, &s->options));
    r->slot_count = slot_count(r->data);
    r->slots = omm_alloc(r->slot_count, sizeof *r->slots);
    omm_data_reader_room room; /* a larger ring would never be full */
    omm_data_reader_room_of(&room, r->data);
    const size_t asked = r->options.cache_bytes_max;
    r->ring.size = least_ring(r->data) + (asked && asked < room.cache ? asked : (size_t)room.cache);
    return r->slots ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a reader");
}

omm_err omm_data_reader_open(omm_data_reader **out, const omm_dataset *data,
                             const omm_data_reader_options *options) {
    omm_data_reader *r = omm_alloc(1, sizeof *r);
    if (!r) return omm_raise(OMM_ERR_NOMEM, "no memory for a reader");
    r->data = data;
    if (options) r->options = *options;
    r->source.fd = -1;
    omm_arena_init(&r->batch, BATCH_BYTES_MAX);
    omm_err err = data->stream ? open_stream(r) : OMM_OK;
    if (err != OMM_OK) {
        omm_data_reader_close(r);
        return err;
    }
    *out = r;
    return OMM_OK;
}

void omm_data_reader_close(omm_data_reader *r) {
    if (!r) return;
    omm_free(r->ring.bytes);
    omm_free(r->slots);
    maker_fini(&r->maker);
    source_close(&r->source);
    omm_arena_fini(&r->batch);
    omm_free(r);
}

void omm_data_reader_release(omm_data_reader *r) {
    omm_arena_fini(&r->batch);
    omm_arena_init(&r->batch, BATCH_BYTES_MAX);
}

static omm_err changed(const omm_data_reader *r, const entry *e) {
    return omm_raise(OMM_ERR_MISMATCH,
                     "%s: the example at byte %llu is not what was indexed: the file has changed",
                     r->source.name, (unsigned long long)entry_offset(e));
}

/* The line of an entry as tokens, from the cache or again from the file. */
static omm_err make_again(omm_data_reader *r, made *out, omm_bytes *raw, const entry *e) {
    slot *s = slot_of(r, entry_offset(e));
    bool wanted = true;
    if (omm_data_format_is_text(r->maker.options.format))
        raw = NULL; /* its raw bytes are its ids */
    if (!raw && s->at > 0 && s->offset == entry_offset(e)) {
        *out = s->made;
        return OMM_OK;
    }
    record line = {.offset = entry_offset(e), .begins = e->shape >> 1 & 1, .ends = e->shape & 1};
    if (line.offset + entry_bytes(e) > r->source.size) return changed(r, e);
    OMM_TRY(source_view(&r->source, &line.bytes, line.offset, entry_bytes(e)));
    line.bytes.size = entry_bytes(e);
    omm_err err = maker_make(&r->maker, out, &wanted, &line);
    if (err == OMM_ERR_FORMAT) return changed(r, e);
    if (err == OMM_OK && r->options.no_replies) out->reply = NULL;
    if (err == OMM_OK && raw)
        *raw = line.bytes;
    else if (err == OMM_OK)
        keep_made(r, line.offset, out);
    return err;
}

static omm_err copy_example(omm_arena *arena, omm_example *out, const omm_example *e) {
    *out = *e;
    uint32_t *ids = omm_arena_alloc(arena, e->count, sizeof *ids);
    uint8_t *learn = omm_arena_alloc(arena, e->count, 1);
    out->client = omm_arena_strdup(arena, e->client);
    out->skill = omm_arena_strdup(arena, e->skill);
    out->reply = e->reply ? omm_arena_strdup(arena, e->reply) : NULL;
    if (!ids || !learn || !out->client || !out->skill || (e->reply && !out->reply))
        return omm_raise(OMM_ERR_NOMEM, "no memory for an example");
    memcpy(ids, e->ids, e->count * sizeof *ids);
    memcpy(learn, e->learn, e->count);
    out->ids = ids;
    out->learn = learn;
    return OMM_OK;
}

static omm_err take(omm_data_reader *r, omm_example *out, omm_bytes *raw, const entry *from) {
    made m;
    omm_example e;
    bool there = false, cut = false;
    OMM_TRY(make_again(r, &m, raw, from));
    OMM_TRY(made_window(&r->maker, &e, &there, &cut, &m, entry_window(from)));
    if (!there || e.count != entry_tokens(from) || e.learn_count != entry_learned(from) ||
        omm_get_u32(e.digest.b) != from->mark)
        return changed(r, from);
    OMM_TRY(copy_example(&r->batch, out, &e));
    if (raw && omm_data_format_is_text(r->maker.options.format))
        *raw = omm_bytes_of(out->ids, out->count * sizeof *out->ids);
    return OMM_OK;
}

omm_err reader_take_raw(omm_data_reader *r, omm_example *out, omm_bytes *raw, size_t index) {
    OMM_ASSERT(index < r->data->count);
    OMM_ASSERT(r->data->stream);
    return take(r, out, raw, &r->data->stream->entries[index]);
}

omm_err omm_data_reader_take(omm_data_reader *r, omm_example *out, size_t index) {
    OMM_ASSERT(index < r->data->count);
    if (r->data->stream) return take(r, out, NULL, &r->data->stream->entries[index]);
    *out = r->data->examples[index];
    return OMM_OK;
}
